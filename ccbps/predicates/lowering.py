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

from collections.abc import Mapping
from typing import Any

from ccbps.predicates import expression as tree
from ccbps.predicates.attributes import Attributes
from ccbps.predicates.codes import joined
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
from ccbps.predicates.types import EMPTY, is_prefix


def lower(schema: Attributes, expression: tree.Expression, constants: Mapping[str, Any]) -> Form:
    """Derive the code form of "the expression is TRUE".

    Args:
        schema: the attributes, which give the codes of constants.
        expression: the predicate; its constants have been checked against the schema.
        constants: values of private constants; bounds of those without a value are None.
    """
    return _Lowering(schema, constants).read(expression, True)


class _Lowering:
    def __init__(self, schema: Attributes, constants: Mapping[str, Any]) -> None:
        self.schema = schema
        self.constants = constants

    def read(self, node: tree.Expression, truth: bool) -> Form:
        """Return T(node) for the truth value True, F(node) for False."""
        if isinstance(node, tree.Not):
            return self.read(node.part, not truth)
        if isinstance(node, tree.Truth):
            return Always() if node.value is truth else Never()
        if isinstance(node, tree.Condition):
            return self._condition(node, truth)
        parts = tuple(self.read(part, truth) for part in node.parts)
        if isinstance(node, tree.AtLeast):
            return AtLeastOf(node.count if truth else len(parts) - node.count + 1, parts)
        return AllOf(parts) if isinstance(node, tree.And) == truth else AnyOf(parts, disjoint=False)

    def _condition(self, node: tree.Condition, truth: bool) -> Form:
        if node.operator == "null":
            return self._is_null(node.attribute, truth)
        if node.operator == "in":
            return self._in(node, truth)
        if any(map(tree.is_null, node.operands)):
            return Never()
        if node.operator == "hamming":
            return self._hamming(node, truth)
        if node.operator == "!=":
            truth = not truth
        kind, operator = self.schema[node.attribute], node.operator.replace("!=", "=")
        values = [self._value(operand) for operand in node.operands]
        public = isinstance(node.operands[0], tree.Constant)
        low: int | None
        high: int | None
        if any(value is None for value in values):
            low = kind.lowest if operator in ("<", "<=") else None
            high = kind.highest if operator in (">", ">=") else None
        elif operator == "between":
            low, high = kind.code_range(">=", values[0])[0], kind.code_range("<=", values[1])[1]
            if low > high:
                low, high = EMPTY
        else:
            low, high = kind.code_range(operator, values[0])
        # A private pattern may or may not end in %, and the flags must not tell which.
        like = operator == "like"
        equal = public and not is_prefix(values[0]) if like else operator == "="
        prefix = like and not public and kind.aligned
        leaf = InRange(node.attribute, low, high, equal=equal, negated=not truth, prefix=prefix)
        # A range never contains NULL, so only its complement has to exclude it.
        guard = () if truth else self._not_null(node.attribute)
        return AllOf((*guard, leaf)) if guard else leaf

    def _value(self, operand: tree.Operand) -> Any:
        """Return the value of an operand other than NULL; None for a placeholder without one."""
        if isinstance(operand, tree.Constant):
            return operand.value
        return self.constants.get(operand.name)

    def _not_null(self, attribute: str) -> tuple[Form, ...]:
        kind = self.schema[attribute]
        if not kind.nullable:
            return ()
        return (InRange(attribute, kind.lowest, kind.highest, equal=False, negated=False),)

    def _is_null(self, attribute: str, truth: bool) -> Form:
        if not self.schema[attribute].nullable:
            return Never() if truth else Always()
        null = InRange(attribute, 0, 0, equal=True, negated=False)
        return null if truth else self._not_null(attribute)[0]

    def _in(self, node: tree.Condition, truth: bool) -> Form:
        items = [item for item in node.operands if not tree.is_null(item)]
        if not items or (not truth and len(items) < len(node.operands)):
            # With a NULL in the list, "not equal to any" is never certain.
            return Never()
        kind = self.schema[node.attribute]
        # Public constants go first: what becomes of them must not depend on a private one. They
        # come to as few ranges as there are; four hundred neighbours are one range.
        constants = [item.value for item in items if isinstance(item, tree.Constant)]
        ranges = [kind.code_range("=", value) for value in constants]
        taken = {low for low, high in ranges if low <= high}
        bounds: list[tuple[int | None, int | None, bool]] = [
            (low, high, low == high) for low, high in joined((code, code) for code in taken)
        ]
        # Each private constant keeps a leaf of its own. One that is there already, as a public
        # constant or an earlier private one, is emptied: at most one alternative holds.
        for item in items:
            if isinstance(item, tree.Constant):
                continue
            value = self._value(item)
            if value is None:
                bounds.append((None, None, True))
                continue
            low, high = kind.code_range("=", value)
            if low in taken:
                low, high = EMPTY
            elif low <= high:
                taken.add(low)
            bounds.append((low, high, True))
        leaves = tuple(
            InRange(node.attribute, low, high, equal=equal, negated=not truth)
            for low, high, equal in bounds
        )
        if truth:
            return AnyOf(leaves, disjoint=True) if leaves else Never()
        parts = (*self._not_null(node.attribute), *leaves)
        return AllOf(parts) if parts else Always()

    def _hamming(self, node: tree.Condition, truth: bool) -> Form:
        if node.limit < 0:
            return Never() if truth else Always()
        kind, value = self.schema[node.attribute], self._value(node.operands[0])
        centre = None if value is None else kind.code_range("hamming", value)[0]
        return HammingWithin(node.attribute, centre, min(node.limit, kind.bits), negated=not truth)
