"""Confidential content-based publish/subscribe.

A publisher holds an event, a subscriber holds a predicate over the event's attributes, and a broker
nobody trusts decides whether they match, and learns nothing else.

    from ccbps import Decimal, Category, Schema, SharedSeed
    from ccbps.matching import FormulaMatch

Submodules: `predicates` (schema, SQL, plaintext meaning), `matching` (the schemes), `delivery`
(payloads for matched subscribers), `spark` (DataFrames; needs ``ccbps[spark]``). After ``import
ccbps`` all of them are available; those that are slow to load are loaded on first use.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from ccbps.errors import BrokenSchemeWarning, CcbpsError
from ccbps.keys import EpochSeed, OneTimePad, SeedRing, SharedSeed
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

if TYPE_CHECKING:
    from ccbps import delivery as delivery
    from ccbps import matching as matching
    from ccbps import spark as spark

__version__ = "0.4.0"

__all__ = [
    "Bool",
    "BrokenSchemeWarning",
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

_DEFERRED = ("delivery", "matching", "spark")


def __getattr__(name: str) -> Any:
    if name in _DEFERRED:
        # ccbps.spark raises ImportError with the extra to install where it lacks one.
        return importlib.import_module(f"ccbps.{name}")
    hint = "; matchers are in ccbps.matching" if name.endswith("Match") else ""
    raise AttributeError(f"module 'ccbps' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    # What completion offers, and what a tool that walks the package can load without an error.
    deferred = _DEFERRED if importlib.util.find_spec("pyspark") else _DEFERRED[:2]
    return sorted({*__all__, "errors", "predicates", *deferred})
