"""Rounds as a resource: pads run out when they should, and no role uses a round again."""

from __future__ import annotations

import numpy as np
import pytest

from ccbps import Schema, UInt
from ccbps.attacks import round_exhaustion
from ccbps.attacks.network.rounds import PadStock
from ccbps.errors import PadExhaustedError, RandomnessReuseError
from ccbps.matching import FormulaMatch


def test_pads_run_out_and_a_budget_with_new_pads_keeps_them() -> None:
    outcome = round_exhaustion(triggers=20, pairs=1, rounds=250, low=190, seconds=50)
    share, time, reused = outcome.figures
    assert time.expected == 250 / 25 == 10
    assert time.undefended == pytest.approx(10, abs=4 * np.sqrt(250) / 25)
    assert share.expected == 10 / 50
    assert share.undefended == pytest.approx(0.2, abs=0.08)
    assert (share.defended, time.defended) == (1, 50)
    assert (reused.undefended, reused.defended) == (0, 0)
    left = outcome.curve.lines
    assert left["without defence"][-1] == 0
    assert min(left["with new pads and a budget"]) > 0


def test_new_pads_alone_come_too_late() -> None:
    left = round_exhaustion(pairs=1, rounds=500, seconds=40).curve.lines
    assert min(left["with new pads"]) == 0 < min(left["with new pads and a budget"])


def test_a_stock_goes_from_pad_to_pad_and_uses_no_round_again() -> None:
    stock = PadStock(FormulaMatch.box(Schema(x=UInt(8))), np.random.default_rng(1))
    stock.add(2)
    stock.add(1)
    for left in (2, 1, 0):
        stock.encode(7)
        assert stock.left == left
        with pytest.raises(RandomnessReuseError):
            stock.encode_again(7)
    with pytest.raises(PadExhaustedError):
        stock.encode(7)
    assert stock.left == 0
