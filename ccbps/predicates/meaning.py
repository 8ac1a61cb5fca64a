"""Meaning: what a predicate says about plaintext events, in SQL's three-valued logic.

This is the oracle that every matcher is tested against. It follows the text of the predicate node
by node and does not look at the lowered form; a condition is the pair (true, false) of bool arrays
over the rows, and is unknown where neither holds. WHERE keeps a row only when it is true.

Hazard: plaintext evaluation, for the owner of the events and in tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ccbps.errors import ParameterError
from ccbps.predicates import expression as tree
from ccbps.predicates.attributes import Events
from ccbps.predicates.codes import (
    BoolArray,
    at_most,
    conjunction,
    disjunction,
    distance_at_most,
    in_range,
)
from ccbps.predicates.constants import hamming_code, selected


class _Logic(NamedTuple):
    """Three-valued truth of every row: true, false, or neither (unknown)."""

    true: BoolArray
    false: BoolArray


def evaluate(
    expression: tree.Expression, events: Events, constants: Mapping[str, Any]
) -> BoolArray:
    """Rows for which SQL's WHERE would keep the record, shape (count,).

    Args:
        expression: the predicate.
        events: the records.
        constants: values of all private constants in the expression.

    Raises:
        ParameterError: a private constant has no value.
    """
    return _logic(expression, events, constants).true


def _logic(node: tree.Expression, events: Events, constants: Mapping[str, Any]) -> _Logic:
    if isinstance(node, tree.And):
        parts = [_logic(part, events, constants) for part in node.parts]
        return _both(parts)
    if isinstance(node, tree.Or):
        parts = [_logic(part, events, constants) for part in node.parts]
        return _negation(_both([_negation(part) for part in parts]))
    if isinstance(node, tree.Not):
        return _negation(_logic(node.part, events, constants))
    if isinstance(node, tree.AtLeast):
        parts = [_logic(part, events, constants) for part in node.parts]
        return _count(parts, node.count)
    if isinstance(node, tree.Truth):
        everywhere, nowhere = np.ones(events.count, np.bool_), np.zeros(events.count, np.bool_)
        return _Logic(
            everywhere if node.value is True else nowhere,
            everywhere if node.value is False else nowhere,
        )
    if isinstance(node, tree.IsNull):
        null = _is_null(node.attribute, events)
        return _Logic(null, ~null)
    values = [_value(operand, constants) for *_, operand in tree.operands_of(node)]
    if isinstance(node, tree.Compare):
        if node.operator == "!=":
            return _negation(_compare(node.attribute, "=", values[0], events))
        return _compare(node.attribute, node.operator, values[0], events)
    if isinstance(node, tree.Between):
        at_least = _compare(node.attribute, ">=", values[0], events)
        return _both([at_least, _compare(node.attribute, "<=", values[1], events)])
    if isinstance(node, tree.In):
        equals = [_compare(node.attribute, "=", value, events) for value in values]
        return _negation(_both([_negation(part) for part in equals]))
    if isinstance(node, tree.Like):
        return _compare(node.attribute, "like", values[0], events)
    return _hamming(node, values[0], events)


def _value(operand: tree.Operand, constants: Mapping[str, Any]) -> Any:
    if isinstance(operand, tree.Constant):
        return operand.value
    if operand.name not in constants:
        raise ParameterError(f"private constant :{operand.name} has no value; bind it first")
    return constants[operand.name]


def _both(parts: list[_Logic]) -> _Logic:
    return _Logic(
        conjunction([part.true for part in parts]),
        disjunction([part.false for part in parts]),
    )


def _negation(part: _Logic) -> _Logic:
    return _Logic(part.false, part.true)


def _count(parts: list[_Logic], count: int) -> _Logic:
    true = np.sum([part.true for part in parts], axis=0)
    false = np.sum([part.false for part in parts], axis=0)
    possible = len(parts) - false  # true or unknown
    return _Logic(true >= count, possible < count)


def _is_null(attribute: str, events: Events) -> BoolArray:
    if not events.schema[attribute].nullable:
        return np.zeros(events.count, dtype=np.bool_)
    return at_most(events.codes[attribute], 0)


def _known(inside: BoolArray, attribute: str, events: Events) -> _Logic:
    """A comparison of an attribute: unknown where the attribute is NULL."""
    null = _is_null(attribute, events)
    return _Logic(inside & ~null, ~inside & ~null)


def _compare(attribute: str, use: str, constant: Any, events: Events) -> _Logic:
    if constant is None:
        unknown = np.zeros(events.count, dtype=np.bool_)
        return _Logic(unknown, unknown)
    low, high = selected(events.schema[attribute], use, constant)
    return _known(in_range(events.codes[attribute], low, high), attribute, events)


def _hamming(node: tree.Hamming, constant: Any, events: Events) -> _Logic:
    if constant is None:
        unknown = np.zeros(events.count, dtype=np.bool_)
        return _Logic(unknown, unknown)
    centre = hamming_code(events.schema[node.attribute], constant)
    inside = distance_at_most(events.codes[node.attribute], centre, node.limit)
    return _known(inside, node.attribute, events)
