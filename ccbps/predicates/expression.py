"""Expression tree: a predicate as written, and its meaning in SQL's three-valued logic.

Names are resolved and constants typed. Every node knows its `position` in the text, for error
messages, and hides its constants from repr: a subscriber's constants are its secret. The tree keeps
`Private` placeholders even after binding, so that whatever is derived from it can depend on where
the placeholders are, never on their values.

`evaluate` is the oracle that every matcher is tested against. It follows the text node by node and
does not look at the code form. For each row it tells whether a condition is true, and whether it is
false: an unknown condition is neither. WHERE keeps a row only where it is true.

Hazard: `evaluate` computes on plaintext, for the owner of the events and in tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from ccbps.checks import Redacted
from ccbps.predicates.attributes import Events
from ccbps.predicates.codes import (
    BoolArray,
    at_most,
    conjunction,
    disjunction,
    distance_at_most,
    in_range,
)


class Node(Redacted, frozen=True, eq=False):
    """Base of nodes. Two that differ in their positions only are equal."""

    _hidden: ClassVar[tuple[str, ...]] = ()

    def _content(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name != "position")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node) or type(other) is not type(self):
            return NotImplemented
        return self._content() == other._content()

    def __hash__(self) -> int:
        return hash((type(self), self._content()))


class Constant(Node, frozen=True, eq=False):
    """A constant in the text: int, decimal.Decimal, str, bool, Instant, or None for NULL."""

    value: Any
    position: int
    _hidden = ("value",)


class Private(Node, frozen=True, eq=False):
    """A placeholder ``:name``: a constant that only the subscriber knows."""

    name: str
    position: int


Operand: TypeAlias = Constant | Private


class Condition(Node, frozen=True, eq=False):
    """A condition on one attribute.

    ===========  ================================================================================
    operator     operands
    ===========  ================================================================================
    = != < <=    one constant
    > >=
    between      the least and the greatest value, both included; neither is NULL
    in           one or more constants
    like         a pattern: a text, or a text and one trailing ``%``
    null         none
    hamming      a value from which at most `limit` bits differ
    ===========  ================================================================================

    Attributes:
        attribute: name in the schema.
        operator: one of the table above.
        operands: constants and placeholders.
        position: offset in the text.
        limit: number of bits of a Hamming distance, -1 or more.
    """

    attribute: str
    operator: str
    operands: tuple[Operand, ...]
    position: int
    limit: int = 0


class AtLeast(Node, frozen=True, eq=False):
    """``at_least(count, parts...)``: at least `count` of the parts hold, 1 <= count <= len(parts).

    AND is at least all parts, and OR at least one.
    """

    count: int
    parts: tuple[Expression, ...]
    position: int


class Not(Node, frozen=True, eq=False):
    """SQL's NOT: unknown stays unknown."""

    part: Expression
    position: int


class Truth(Node, frozen=True, eq=False):
    """TRUE, FALSE, or NULL (None) where a condition stands."""

    value: bool | None
    position: int


Expression: TypeAlias = Condition | AtLeast | Not | Truth

_USES: Final = {"!=": ("=",), "between": (">=", "<=")}


def both(left: Expression, right: Expression, position: int) -> Expression:
    """Return left AND right."""
    return AtLeast(2, (left, right), position)


def is_null(operand: Operand) -> bool:
    """Tell whether an operand is the literal NULL."""
    return isinstance(operand, Constant) and operand.value is None


def iter_nodes(expression: Expression) -> Iterator[Expression]:
    """Yield the expression and everything in it, in the order of the text."""
    pending = [expression]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, AtLeast):
            pending.extend(reversed(node.parts))
        elif isinstance(node, Not):
            pending.append(node.part)


def operands_of(node: Expression) -> list[tuple[str, str, Operand]]:
    """List the operands of one node itself as (attribute, use, operand).

    A use is one of = < <= > >= "like" "hamming"; ``!=`` is the negation of a use of ``=``.
    """
    if not isinstance(node, Condition):
        return []
    if node.operator == "in":
        return [(node.attribute, "=", item) for item in node.operands]
    uses = _USES.get(node.operator, (node.operator,))
    return [
        (node.attribute, use, operand) for use, operand in zip(uses, node.operands, strict=False)
    ]


def value_of(operand: Operand, constants: Mapping[str, Any]) -> Any:
    """Return the value of an operand; None for NULL and for a placeholder without a value."""
    return operand.value if isinstance(operand, Constant) else constants.get(operand.name)


def attributes_of(expression: Expression) -> tuple[str, ...]:
    """List the attributes of an expression, in order of first appearance."""
    nodes = iter_nodes(expression)
    return tuple(dict.fromkeys(n.attribute for n in nodes if isinstance(n, Condition)))


def privates_of(expression: Expression) -> list[tuple[str, str, Private]]:
    """List the placeholders as (attribute, use, placeholder), in the order of the text."""
    return [
        (attribute, use, operand)
        for node in iter_nodes(expression)
        for attribute, use, operand in operands_of(node)
        if isinstance(operand, Private)
    ]


def private_names_of(expression: Expression) -> tuple[str, ...]:
    """List the names of placeholders, in order of first appearance."""
    return tuple(dict.fromkeys(operand.name for *_, operand in privates_of(expression)))


# -- meaning ---------------------------------------------------------------------------------------


_Logic: TypeAlias = tuple[BoolArray, BoolArray]
"""Rows for which a condition is true, and rows for which it is false."""


def evaluate(expression: Expression, events: Events, constants: Mapping[str, Any]) -> BoolArray:
    """Find the records that SQL's WHERE would keep, shape (count,).

    Args:
        expression: the predicate.
        events: the records.
        constants: values of all private constants in the expression.
    """
    return _logic(expression, events, constants)[0]


def _logic(node: Expression, events: Events, constants: Mapping[str, Any]) -> _Logic:
    if isinstance(node, Not):
        return _logic(node.part, events, constants)[::-1]
    if isinstance(node, Truth):
        return np.full(events.count, node.value is True), np.full(events.count, node.value is False)
    if isinstance(node, AtLeast):
        return _at_least(node.count, [_logic(part, events, constants) for part in node.parts])
    kind, codes = events.schema[node.attribute], events.codes[node.attribute]
    nowhere = np.zeros(events.count, dtype=np.bool_)
    null = at_most(codes, 0) if kind.nullable else nowhere
    if node.operator == "null":
        return null, ~null
    parts: list[_Logic] = []
    for _, use, operand in operands_of(node):
        constant = value_of(operand, constants)
        if constant is None:
            parts.append((nowhere, nowhere))
            continue
        low, high = kind.code_range(use, constant)
        if use == "hamming":
            inside = distance_at_most(codes, low, node.limit)
        else:
            inside = in_range(codes, low, high)
        parts.append((inside & ~null, ~inside & ~null))
    truth = _at_least(1 if node.operator == "in" else len(parts), parts)
    return truth[::-1] if node.operator == "!=" else truth


def _at_least(count: int, parts: list[_Logic]) -> _Logic:
    true, false = [part[0] for part in parts], [part[1] for part in parts]
    if count == len(parts):
        return conjunction(true), disjunction(false)
    if count == 1:
        return disjunction(true), conjunction(false)
    possible = len(parts) - np.sum(false, axis=0)  # true or unknown
    return np.sum(true, axis=0) >= count, possible < count
