"""Expression tree: a predicate as written, with names resolved and constants typed.

Every node knows its `position` in the text, for error messages, and hides its constants from repr:
a subscriber's constants are its secret. The tree keeps `Private` placeholders even after binding,
so that whatever is derived from it can depend on where the placeholders are, never on their values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant in the text: int, decimal.Decimal, str, bool, Instant, or None for NULL."""

    value: Any = field(repr=False)
    position: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Private:
    """``:name``, a constant that only the subscriber knows."""

    name: str
    position: int = field(compare=False)


Operand: TypeAlias = Constant | Private


@dataclass(frozen=True, slots=True)
class Compare:
    """``attribute operator operand``; operator is one of = != < <= > >=."""

    attribute: str
    operator: str
    operand: Operand
    position: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Between:
    """``attribute BETWEEN low AND high``, both included."""

    attribute: str
    low: Operand
    high: Operand
    position: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class In:
    """``attribute IN (items)``, at least one item."""

    attribute: str
    items: tuple[Operand, ...]
    position: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Like:
    """``attribute LIKE pattern``; the pattern is a text or a text and one trailing ``%``."""

    attribute: str
    pattern: Operand
    position: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class IsNull:
    """``attribute IS NULL``."""

    attribute: str
    position: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Hamming:
    """``hamming(attribute, value) <= limit``: at most `limit` bits differ. `limit` may be -1."""

    attribute: str
    value: Operand
    limit: int
    position: int = field(compare=False)


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


Expression: TypeAlias = (
    Compare | Between | In | Like | IsNull | Hamming | AtLeast | And | Or | Not | Truth
)


def iter_nodes(expression: Expression) -> Iterator[Expression]:
    """The expression and everything in it, in the order of the text."""
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, (And, Or, AtLeast)):
            waiting.extend(reversed(node.parts))
        elif isinstance(node, Not):
            waiting.append(node.part)


def operands_of(node: Expression) -> tuple[tuple[str, str, Operand], ...]:
    """(attribute, use, operand) of one node itself, not of its parts.

    The use is one of = < <= > >= "like" "hamming"; ``!=`` is the negation of a use of ``=``.
    """
    if isinstance(node, Compare):
        operator = "=" if node.operator == "!=" else node.operator
        return ((node.attribute, operator, node.operand),)
    if isinstance(node, Between):
        return ((node.attribute, ">=", node.low), (node.attribute, "<=", node.high))
    if isinstance(node, In):
        return tuple((node.attribute, "=", item) for item in node.items)
    if isinstance(node, Like):
        return ((node.attribute, "like", node.pattern),)
    if isinstance(node, Hamming):
        return ((node.attribute, "hamming", node.value),)
    return ()


def attributes_of(expression: Expression) -> tuple[str, ...]:
    """Names of the attributes an expression mentions, in order of first appearance."""
    nodes = iter_nodes(expression)
    names = [
        node.attribute
        for node in nodes
        if isinstance(node, (Compare, Between, In, Like, IsNull, Hamming))
    ]
    return tuple(dict.fromkeys(names))


def privates_of(expression: Expression) -> list[tuple[str, str, Private]]:
    """(attribute, use, placeholder) of every placeholder, in the order of the text."""
    return [
        (attribute, use, operand)
        for node in iter_nodes(expression)
        for attribute, use, operand in operands_of(node)
        if isinstance(operand, Private)
    ]
