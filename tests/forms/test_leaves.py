"""Conditions on bits and on digits: every one of a few bits means what its private bits say."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from ccbps.errors import ParameterError
from ccbps.forms.bits import event_bits
from ccbps.forms.formula import FormulaForm
from ccbps.forms.leaves import Leaves, WindowLeaves, digit_values
from ccbps.predicates import Schema, UInt
from ccbps.programs.formula import Formula, conjunction
from tests.support.program_values import evaluate

LEAVES: list[Any] = [Leaves, *(lambda s, w=w: WindowLeaves(s, w) for w in (1, 2, 3, 5))]


@pytest.mark.parametrize("make", LEAVES, ids=["bits", "1", "2", "3", "5"])
@pytest.mark.parametrize("bits", range(1, 5))
def test_conditions_on_all_codes(make: Any, bits: int) -> None:
    schema, last = Schema(before=UInt(2), x=UInt(bits)), (1 << bits) - 1
    codes = range(last + 1)
    events = schema.encode({"before": [code % 3 for code in codes], "x": codes})
    leaves: Leaves = make(schema)
    event = event_bits(events).T
    if isinstance(leaves, WindowLeaves):
        event = digit_values(events, (), leaves.positions(range(leaves.code_digits))).T

    def codes_of(formulas: Sequence[Formula], count: int, private: int) -> list[int]:
        assert private >> count == 0
        row = np.array([private >> i & 1 for i in range(count)], dtype=np.bool_)
        held = evaluate(conjunction(formulas), event, np.repeat(row[:, None], len(codes), axis=1))
        return np.flatnonzero(held).tolist()

    chain, count = [leaves.chain("x", 0)], leaves.chain_bits("x")
    assert codes_of(chain, count, leaves.never("x")) == []
    for bound in range(last + 2):
        assert codes_of(chain, count, leaves.below("x", bound)) == [*range(bound)]
    for value in codes:
        for free in range(bits + 1):
            block = [code for code in codes if code >> free == value >> free]
            assert codes_of(chain, count, leaves.prefix("x", value, bits - free)) == block
        equality, width = leaves.equality("x", 0), leaves.equality_bits("x")
        assert codes_of(equality, width, leaves.equal("x", value)) == [value]
        for high in range(-1, last + 1):
            inside = leaves.within("x", value, high)
            interval = codes_of([leaves.interval("x", 0)], 2 * count, inside)
            assert interval == [*range(value, high + 1)]


@pytest.mark.parametrize(
    "text",
    [
        *(
            f"{name} {operator} :p"
            for name in "xy"
            for operator in ("<", "<=", ">", ">=", "=", "!=")
        ),
        *(f"NOT {name} BETWEEN :p AND :q" for name in "xy"),
        "x BETWEEN :p AND :q AND y < 2",
        "x IN (:p, 3, :q) OR y = 1 OR y = :p",
        "at_least(2, x < :p, NOT y = :q, x IS NULL)",
        "hamming(y, :p) <= 1 AND NOT hamming(y, :q) < 1",
    ],
)
def test_formulas_mean_their_predicates_on_all_codes(text: str) -> None:
    schema = Schema(x=UInt(2, nullable=True), y=UInt(2))
    events = schema.encode([{"x": x, "y": y} for x in (None, *range(4)) for y in range(4)])
    template = schema.parse(text)
    form = FormulaForm(Leaves(schema), template.true_form(), 999)

    def unpacked(words: Any) -> Any:
        return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").T.astype(np.bool_)

    event = unpacked(form.event_rows(events))
    for values in product(range(4), repeat=len(template.private_names)):
        bound = template.bind(**dict(zip(template.private_names, values, strict=True)))
        interest = unpacked(form.interest_row(bound.true_form()))
        held = evaluate(form.formula, event, np.repeat(interest, events.count, axis=1))
        assert np.array_equal(held, bound.evaluate(events))


@pytest.mark.parametrize("other", ["x < :p AND x < :q", "y < :p", "hamming(x, :p) <= 1", "TRUE"])
def test_interest_of_another_structure_is_refused(other: str) -> None:
    schema = Schema(x=UInt(4), y=UInt(4))
    form = FormulaForm(Leaves(schema), schema.parse("x < :p").true_form(), 99)
    predicate = schema.parse(other)
    bound = predicate.bind(**dict.fromkeys(predicate.private_names, 3))
    with pytest.raises(ParameterError, match="does not have the structure of the template"):
        form.interest_row(bound.true_form())
