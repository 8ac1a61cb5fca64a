"""Confidential content-based publish/subscribe.

A publisher holds an event, a subscriber holds a predicate over the event's attributes, and a broker
nobody trusts decides whether they match, and learns nothing else.

    from ccbps import Decimal, Category, Schema, SharedSeed
    from ccbps.matching import BranchingMatch

Submodules: `predicates` (schema, SQL, plaintext meaning), `matching` (the schemes), `delivery`
(payloads for the matched), `spark` (DataFrames; needs ``ccbps[spark]``).
"""

from ccbps.errors import BrokenSchemeWarning, CcbpsError
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
from ccbps.randomness import OneTimePad, SeedRing, SharedSeed

__version__ = "0.1.0"

__all__ = [
    "Bool",
    "BrokenSchemeWarning",
    "Category",
    "CcbpsError",
    "Decimal",
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
