"""Lowering: from an expression to the code form of "is TRUE".

Two mutually recursive readings, T(e) = "e is TRUE" and F(e) = "e is FALSE", push negation to the
leaves: T(NOT e) = F(e), F(a AND b) = F(a) or F(b), F(at least k of n) = at least n-k+1 are FALSE.
Neither holds where e is unknown, so two-valued logic is enough afterwards.

Hidden: the shape of the result (nodes, attributes, order, flags, which bounds are public) depends
on the expression and its public constants only. Private constants fill bounds in and change nothing
else: a private constant outside the domain makes a range empty, it does not remove a leaf. This is
why the bounds of BETWEEN are both private as soon as one of its constants is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ccbps.predicates import expression as tree
from ccbps.predicates.attributes import Attributes
from ccbps.predicates.constants import hamming_code, is_prefix, selected
from ccbps.predicates.form import (
    AllOf,
    Always,
    AnyOf,
    AtLeastOf,
    Form,
    HammingWithin,
    InRange,
    Never,
)
from ccbps.predicates.types import EMPTY

Range = tuple[int | None, int | None]
_UNKNOWN: Range = (None, None)


def lower(schema: Attributes, expression: tree.Expression, constants: Mapping[str, Any]) -> Form:
    """Code form of "the expression is TRUE".

    Args:
        schema: gives the codes of constants.
        expression: the predicate; its constants have been checked against the schema.
        constants: values of private constants; those without a value leave bounds None.
    """
    return _Lowering(schema, constants).read(expression, True)


class _Lowering:
    def __init__(self, schema: Attributes, constants: Mapping[str, Any]) -> None:
        self.schema = schema
        self.constants = constants

    def read(self, node: tree.Expression, want: bool) -> Form:
        """T(node) when `want`, else F(node)."""
        if isinstance(node, tree.Not):
            return self.read(node.part, not want)
        if isinstance(node, (tree.And, tree.Or)):
            parts = tuple(self.read(part, want) for part in node.parts)
            if isinstance(node, tree.And) == want:
                return AllOf(parts)
            return AnyOf(parts, disjoint=False)
        if isinstance(node, tree.AtLeast):
            parts = tuple(self.read(part, want) for part in node.parts)
            return AtLeastOf(node.count if want else len(parts) - node.count + 1, parts)
        if isinstance(node, tree.Truth):
            return Always() if node.value is want else Never()
        if isinstance(node, tree.IsNull):
            return self._is_null(node.attribute, want)
        if isinstance(node, tree.Compare):
            return self._compare(node, want)
        if isinstance(node, tree.Between):
            return self._between(node, want)
        if isinstance(node, tree.In):
            return self._in(node, want)
        if isinstance(node, tree.Like):
            return self._like(node, want)
        return self._hamming(node, want)

    def _known(self, operand: tree.Operand) -> tuple[bool, Any]:
        """(whether the operand has a value, the value)."""
        if isinstance(operand, tree.Constant):
            return True, operand.value
        return operand.name in self.constants, self.constants.get(operand.name)

    def _not_null(self, attribute: str) -> tuple[Form, ...]:
        kind = self.schema[attribute]
        if not kind.nullable:
            return ()
        return (InRange(attribute, kind.lowest, kind.highest, equal=False, negated=False),)

    def _leaf(
        self, attribute: str, bounds: Range, *, equal: bool, want: bool, prefix: bool = False
    ) -> Form:
        leaf = InRange(attribute, *bounds, equal=equal, negated=not want, prefix=prefix)
        # A range never contains NULL, so only its complement has to exclude it.
        guard = () if want else self._not_null(attribute)
        return AllOf((*guard, leaf)) if guard else leaf

    def _is_null(self, attribute: str, want: bool) -> Form:
        if not self.schema[attribute].nullable:
            return Never() if want else Always()
        if want:
            return InRange(attribute, 0, 0, equal=True, negated=False)
        return self._not_null(attribute)[0]

    def _compare(self, node: tree.Compare, want: bool) -> Form:
        if _is_literal_null(node.operand):
            return Never()
        if node.operator == "!=":
            equality = tree.Compare(node.attribute, "=", node.operand, node.position)
            return self._compare(equality, not want)
        kind = self.schema[node.attribute]
        known, value = self._known(node.operand)
        bounds: Range
        if known:
            bounds = kind.code_range(node.operator, value)
        elif node.operator == "=":
            bounds = _UNKNOWN
        elif node.operator in ("<", "<="):
            bounds = (kind.lowest, None)
        else:
            bounds = (None, kind.highest)
        return self._leaf(node.attribute, bounds, equal=node.operator == "=", want=want)

    def _between(self, node: tree.Between, want: bool) -> Form:
        if _is_literal_null(node.low) or _is_literal_null(node.high):
            # One half is unknown for every row, but the other can still make it FALSE.
            halves = (
                tree.Compare(node.attribute, ">=", node.low, node.position),
                tree.Compare(node.attribute, "<=", node.high, node.position),
            )
            return self.read(tree.And(halves, node.position), want)
        kind = self.schema[node.attribute]
        low_known, low_value = self._known(node.low)
        high_known, high_value = self._known(node.high)
        bounds = _UNKNOWN
        if low_known and high_known:
            low, _ = kind.code_range(">=", low_value)
            _, high = kind.code_range("<=", high_value)
            bounds = (low, high) if low <= high else EMPTY
        return self._leaf(node.attribute, bounds, equal=False, want=want)

    def _in(self, node: tree.In, want: bool) -> Form:
        items = [item for item in node.items if not _is_literal_null(item)]
        if not items or (not want and len(items) < len(node.items)):
            # With a NULL in the list, "not equal to any" is never certain.
            return Never()
        kind = self.schema[node.attribute]
        # Public constants go first: what becomes of them must not depend on a private one. They
        # come to as few ranges as there are; four hundred neighbours are one range.
        taken: set[int] = set()
        for item in items:
            if isinstance(item, tree.Constant):
                low, high = kind.code_range("=", item.value)
                taken.update(range(low, high + 1))
        found: list[tuple[int | None, int | None, bool]] = [
            (low, high, low == high) for low, high in _runs(taken)
        ]
        # Each private constant keeps a leaf of its own. One that is there already, as a public
        # constant or an earlier private one, is emptied: at most one alternative holds.
        for item in items:
            if isinstance(item, tree.Constant):
                continue
            known, value = self._known(item)
            if not known:
                found.append((*_UNKNOWN, True))
                continue
            low, high = kind.code_range("=", value)
            if low in taken:
                low, high = EMPTY
            taken.update(range(low, high + 1))
            found.append((low, high, True))
        leaves = tuple(
            InRange(node.attribute, low, high, equal=equal, negated=not want)
            for low, high, equal in found
        )
        if want:
            return AnyOf(leaves, disjoint=True) if leaves else Never()
        parts = (*self._not_null(node.attribute), *leaves)
        return AllOf(parts) if parts else Always()

    def _like(self, node: tree.Like, want: bool) -> Form:
        if _is_literal_null(node.pattern):
            return Never()
        known, value = self._known(node.pattern)
        bounds = selected(self.schema[node.attribute], "like", value) if known else _UNKNOWN
        # A private pattern may or may not end in %, and the flag must not tell which.
        literal = isinstance(node.pattern, tree.Constant)
        equal = literal and not is_prefix(value)
        prefix = not literal and self.schema[node.attribute].aligned
        return self._leaf(node.attribute, bounds, equal=equal, want=want, prefix=prefix)

    def _hamming(self, node: tree.Hamming, want: bool) -> Form:
        if _is_literal_null(node.value):
            return Never()
        kind = self.schema[node.attribute]
        if node.limit < 0:
            return Never() if want else Always()
        known, value = self._known(node.value)
        centre = hamming_code(kind, value) if known else None
        return HammingWithin(node.attribute, centre, min(node.limit, kind.bits), negated=not want)


def _runs(codes: set[int]) -> Iterator[tuple[int, int]]:
    """The codes as ranges, bounds included, ascending; neighbours are in one range."""
    low: int | None = None
    high = 0
    for code in sorted(codes):
        if low is not None and code == high + 1:
            high = code
            continue
        if low is not None:
            yield low, high
        low = high = code
    if low is not None:
        yield low, high


def _is_literal_null(operand: tree.Operand) -> bool:
    return isinstance(operand, tree.Constant) and operand.value is None
