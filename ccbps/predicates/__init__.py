"""Predicates: schemas of typed attributes, subscriptions in SQL, and what they mean.

A `Schema` turns records into `Events` (codes) and SQL text into a `Predicate`; a predicate gives
its plaintext meaning, its code form (`Form`) and, where it is a box, its `Box`. Everything here
belongs to one party; nothing here is encrypted.
"""

from __future__ import annotations

from ccbps.predicates.attributes import Events
from ccbps.predicates.box import Box
from ccbps.predicates.form import AllOf, AnyOf, AtLeastOf, Form, HammingWithin, InRange, iter_leaves
from ccbps.predicates.numeric import Bool, Decimal, Int, UInt
from ccbps.predicates.schema import Predicate, Schema
from ccbps.predicates.suggest import Suggestion
from ccbps.predicates.temporal import Timestamp
from ccbps.predicates.textual import Category, Keyword, Text
from ccbps.predicates.types import AttributeType

__all__ = [
    "AllOf",
    "AnyOf",
    "AtLeastOf",
    "AttributeType",
    "Bool",
    "Box",
    "Category",
    "Decimal",
    "Events",
    "Form",
    "HammingWithin",
    "InRange",
    "Int",
    "Keyword",
    "Predicate",
    "Schema",
    "Suggestion",
    "Text",
    "Timestamp",
    "UInt",
    "iter_leaves",
]
