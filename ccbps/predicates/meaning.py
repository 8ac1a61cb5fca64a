"""Meaning: what a predicate says about plaintext events, in SQL's three-valued logic.

This is the oracle that every matcher is tested against. It follows the text of the predicate node
by node and does not look at the lowered form. A condition is the pair (true, false) of bool arrays
over the rows, and is unknown where neither holds. WHERE keeps a row only where it is true.

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


class _Logic(NamedTuple):
    """Three-valued truth of every row: true, false, or neither (unknown)."""

    true: BoolArray
    false: BoolArray


def evaluate(
    expression: tree.Expression, events: Events, constants: Mapping[str, Any]
) -> BoolArray:
    """Find the records that SQL's WHERE would keep, shape (count,).

    Args:
        expression: the predicate.
        events: the records.
        constants: values of all private constants in the expression.

    Raises:
        ParameterError: a private constant has no value.
    """
    return _logic(expression, events, constants).true


def _logic(node: tree.Expression, events: Events, constants: Mapping[str, Any]) -> _Logic:
    if isinstance(node, tree.Not):
        return _negation(_logic(node.part, events, constants))
    if isinstance(node, tree.Truth):
        true, false = (np.full(events.count, node.value is value) for value in (True, False))
        return _Logic(true, false)
    if isinstance(node, tree.Condition):
        return _condition(node, events, constants)
    parts = [_logic(part, events, constants) for part in node.parts]
    if isinstance(node, tree.AtLeast):
        return _at_least(node.count, parts)
    return _at_least(len(parts) if isinstance(node, tree.And) else 1, parts)


def _condition(node: tree.Condition, events: Events, constants: Mapping[str, Any]) -> _Logic:
    kind, codes = events.schema[node.attribute], events.codes[node.attribute]
    null = at_most(codes, 0) if kind.nullable else np.zeros(events.count, dtype=np.bool_)
    if node.operator == "null":
        return _Logic(null, ~null)
    parts: list[_Logic] = []
    for _, use, operand in tree.operands_of(node):
        constant = _value(operand, constants)
        if constant is None:
            unknown = np.zeros(events.count, dtype=np.bool_)
            parts.append(_Logic(unknown, unknown))
            continue
        low, high = kind.code_range(use, constant)
        if use == "hamming":
            inside = distance_at_most(codes, low, node.limit)
        else:
            inside = in_range(codes, low, high)
        parts.append(_Logic(inside & ~null, ~inside & ~null))
    truth = _at_least(1 if node.operator == "in" else len(parts), parts)
    return _negation(truth) if node.operator == "!=" else truth


def _value(operand: tree.Operand, constants: Mapping[str, Any]) -> Any:
    if isinstance(operand, tree.Constant):
        return operand.value
    if operand.name not in constants:
        raise ParameterError(f"private constant :{operand.name} has no value; bind it first")
    return constants[operand.name]


def _negation(part: _Logic) -> _Logic:
    return _Logic(part.false, part.true)


def _at_least(count: int, parts: list[_Logic]) -> _Logic:
    true, false = [part.true for part in parts], [part.false for part in parts]
    if count == len(parts):  # AND
        return _Logic(conjunction(true), disjunction(false))
    if count == 1:  # OR
        return _Logic(disjunction(true), conjunction(false))
    possible = len(parts) - np.sum(false, axis=0)  # true or unknown
    return _Logic(np.sum(true, axis=0) >= count, possible < count)
