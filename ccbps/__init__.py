"""Confidential content-based publish/subscribe.

A publisher holds an event, a subscriber holds a predicate over the event's attributes, and a broker
nobody trusts decides whether they match, and learns nothing else.

    from ccbps import Decimal, Category, Schema, SharedSeed
    from ccbps.matching import BranchingMatch

Submodules: `predicates` (schema, SQL, plaintext meaning), `matching` (the schemes), `delivery`
(payloads for the matched), `spark` (DataFrames; needs ``ccbps[spark]``).
"""

from ccbps.errors import CcbpsError
from ccbps.pad import OneTimePad
from ccbps.predicates import (
    Bool,
    Category,
    Decimal,
    Int,
    Keyword,
    Predicate,
    Schema,
    Text,
    Timestamp,
    UInt,
)
from ccbps.randomness import EpochSeed, SeedRing, SharedSeed

__version__ = "0.1.0"

__all__ = [
    "Bool",
    "Category",
    "CcbpsError",
    "Decimal",
    "EpochSeed",
    "Int",
    "Keyword",
    "OneTimePad",
    "Predicate",
    "Schema",
    "SeedRing",
    "SharedSeed",
    "Text",
    "Timestamp",
    "UInt",
    "__version__",
]
