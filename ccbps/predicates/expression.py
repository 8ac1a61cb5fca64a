"""Expression tree: a predicate as written, with names resolved and constants typed.

Every node knows its `position` in the text, for error messages, and hides its constants from repr:
a subscriber's constants are its secret. The tree keeps `Private` placeholders even after binding,
so that whatever is derived from it can depend on where the placeholders are, never on their values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant in the text: int, decimal.Decimal, str, bool, Instant, or None for NULL."""

    value: Any = field(repr=False)
    position: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Private:
    """A placeholder ``:name``: a constant that only the subscriber knows."""

    name: str
    position: int = field(compare=False)


Operand: TypeAlias = Constant | Private


@dataclass(frozen=True, slots=True)
class Condition:
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
    position: int = field(compare=False)
    limit: int = 0


@dataclass(frozen=True, slots=True)
class AtLeast:
    """``at_least(count, parts...)``: at least `count` of the parts hold."""

    count: int
    parts: tuple[Expression, ...]
    position: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class And:
    """All of two or more parts."""

    parts: tuple[Expression, ...]
    position: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Or:
    """Any of two or more parts."""

    parts: tuple[Expression, ...]
    position: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """SQL's NOT: unknown stays unknown."""

    part: Expression
    position: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Truth:
    """TRUE, FALSE, or NULL (None) where a condition stands."""

    value: bool | None
    position: int = field(compare=False)


Expression: TypeAlias = Condition | AtLeast | And | Or | Not | Truth

_USES: Final = {"!=": ("=",), "between": (">=", "<=")}


def is_null(operand: Operand) -> bool:
    """Tell whether an operand is the literal NULL."""
    return isinstance(operand, Constant) and operand.value is None


def iter_nodes(expression: Expression) -> Iterator[Expression]:
    """Yield the expression and everything in it, in the order of the text."""
    pending = [expression]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, And | Or | AtLeast):
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
