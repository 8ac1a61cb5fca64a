"""Predicates: schemas of typed attributes, subscriptions in SQL, and their meaning.

A `Schema` turns records into `Events` (codes) and SQL text into a `Predicate`; a predicate gives
its plaintext meaning, its code form (`Form`) and, where it is a box, its `Box`. Everything here
belongs to one party; nothing here is encrypted.
"""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.predicates.attributes import Events as Events
    from ccbps.predicates.box import Box as Box
    from ccbps.predicates.form import AllOf as AllOf
    from ccbps.predicates.form import AnyOf as AnyOf
    from ccbps.predicates.form import AtLeastOf as AtLeastOf
    from ccbps.predicates.form import Form as Form
    from ccbps.predicates.form import HammingWithin as HammingWithin
    from ccbps.predicates.form import InRange as InRange
    from ccbps.predicates.form import iter_leaves as iter_leaves
    from ccbps.predicates.numeric import Bool as Bool
    from ccbps.predicates.numeric import Decimal as Decimal
    from ccbps.predicates.numeric import Int as Int
    from ccbps.predicates.numeric import UInt as UInt
    from ccbps.predicates.schema import Predicate as Predicate
    from ccbps.predicates.schema import Schema as Schema
    from ccbps.predicates.split import Split as Split
    from ccbps.predicates.suggest import Suggestion as Suggestion
    from ccbps.predicates.temporal import Timestamp as Timestamp
    from ccbps.predicates.textual import Category as Category
    from ccbps.predicates.textual import Keyword as Keyword
    from ccbps.predicates.textual import Text as Text
    from ccbps.predicates.types import AttributeType as AttributeType
