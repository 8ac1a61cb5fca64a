"""The check of vectors: honest events pass, others do not, and the brokers learn nothing more."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from ccbps.arrays import Bytes, Words
from ccbps.errors import ParameterError
from ccbps.forms.branching import box_form
from ccbps.forms.digits import FormulaDigits
from ccbps.predicates import Schema, UInt
from ccbps.shares.masks import MaskStreams
from ccbps.shares.one_hot import one_hot_steps
from ccbps.shares.replicated import whole_vectors
from tests.support.three_brokers import run_together

SCHEMA = Schema(price=UInt(9), volume=UInt(6))
FORM = FormulaDigits(SCHEMA, {"price": 4, "volume": 3}, box_form(SCHEMA))
KEYS = [os.urandom(32) for _ in range(3)]


def checked(bits: Bytes, coin: bytes) -> Words:
    first, second = np.random.default_rng(1).integers(0, 2, (2, *bits.shape), dtype=np.uint8)
    shares = [first, second, bits ^ first ^ second]
    whole = [whole_vectors(s, FORM.digit_bits, i == 0) for i, s in enumerate(shares)]
    steps: list[Any] = []
    for i in range(3):
        masks = MaskStreams(KEYS[i], KEYS[(i + 1) % 3]).unit(0)
        pair = whole[i], whole[(i + 1) % 3]
        steps.append(one_hot_steps(pair, FORM.digit_bits, coin, masks))
    done = run_together(steps)
    assert all(np.array_equal(done[0][0], other[0]) for other in done)
    return done[0][0]


def events(count: int) -> Bytes:
    rng = np.random.default_rng(2)
    values = {"price": rng.integers(0, 512, count), "volume": rng.integers(0, 64, count)}
    return FORM.event_rows(SCHEMA.encode(values))


def test_honest_events_pass() -> None:
    for _ in range(20):
        sums = checked(events(30), os.urandom(32))
        assert sums.shape == (30,)
        assert not sums.any()


@pytest.mark.parametrize("place", range(1, 5))
def test_vectors_with_several_ones_fail(place: int) -> None:
    bits = events(30)
    starts = np.cumsum([0, *((1 << width) - 1 for width in FORM.digit_bits)])
    row = bits[11, starts[place] : starts[place + 1]]
    # Two more ones, so that the sum of the vector stays odd.
    row[np.flatnonzero(row == 0)[:2]] = 1
    coin = os.urandom(32)
    assert np.flatnonzero(checked(bits, coin)).tolist() == [11]


@pytest.mark.parametrize("ones", [1, 2, 3])
def test_each_test_catches_at_least_three_of_eight(ones: int) -> None:
    bits = events(1)
    width = (1 << FORM.digit_bits[1]) - 1
    start = (1 << FORM.digit_bits[0]) - 1
    caught = 0
    for number in range(60):
        row = bits.copy()
        part = row[0, start : start + width]
        part[:] = 0
        part[: 2 * ones + 1] = 1
        coin = number.to_bytes(32, "big")
        caught += int(np.bitwise_count(checked(row, coin)).sum())
    rate = caught / (60 * 64)
    assert 0.375 - 0.04 < rate < 0.5 + 0.04


def test_a_coin_has_32_bytes() -> None:
    with pytest.raises(ParameterError, match="coin"):
        checked(events(1), b"short")
