"""Confidential content-based publish/subscribe.

A publisher holds an event, a subscriber holds a predicate over the event's attributes, and a broker
nobody trusts decides whether they match, and learns nothing else.

Example::

    from ccbps import Decimal, Category, Schema, SharedSeed
    from ccbps.matching import FormulaMatch

Packages: `predicates` (schema, SQL, plaintext meaning), `matching` (the schemes), `delivery`
(payloads for matched subscribers), `spark` (DataFrames; needs ``ccbps[spark]``), and those that
``dir(ccbps)`` lists beside them. All are available after ``import ccbps``, and load on first use.
"""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__, "; matchers are in ccbps.matching"):
    from ccbps.errors import BrokenSchemeWarning as BrokenSchemeWarning
    from ccbps.errors import CcbpsError as CcbpsError
    from ccbps.keys import EpochSeed as EpochSeed
    from ccbps.keys import OneTimePad as OneTimePad
    from ccbps.keys import SeedRing as SeedRing
    from ccbps.keys import SharedSeed as SharedSeed
    from ccbps.planner import plan as plan
    from ccbps.predicates import Bool as Bool
    from ccbps.predicates import Category as Category
    from ccbps.predicates import Decimal as Decimal
    from ccbps.predicates import Int as Int
    from ccbps.predicates import Keyword as Keyword
    from ccbps.predicates import Predicate as Predicate
    from ccbps.predicates import Schema as Schema
    from ccbps.predicates import Text as Text
    from ccbps.predicates import Timestamp as Timestamp
    from ccbps.predicates import UInt as UInt

__version__ = "0.5.0"
