"""Canaries are the same for both sides, as many as agreed, and found missing at their rate."""

from __future__ import annotations

import numpy as np
import pytest

from ccbps import SharedSeed
from ccbps.delivery import Canary
from ccbps.errors import ParameterError


def test_both_sides_know_the_same_canaries_and_nobody_else() -> None:
    seed = SharedSeed.generate()
    due = Canary(seed, share=0.25).due(range(40_000))
    assert np.array_equal(due, Canary(seed, share=0.25).due(range(40_000)))
    assert abs(due.mean() - 0.25) < 0.02
    other = Canary(SharedSeed.generate(), share=0.25).due(range(40_000))
    assert abs((due & other).mean() - 0.0625) < 0.01
    # More canaries are the same ones and others.
    assert not (due & ~Canary(seed, share=0.5).due(range(40_000))).any()
    assert Canary(seed, share=1).due([0, 7, (1 << 64) - 1]).all()


def test_missing_ones_are_named() -> None:
    canary = Canary(SharedSeed.generate(), share=0.1)
    due = np.flatnonzero(canary.due(range(500))).tolist()
    assert canary.missing({*range(500)}, 500) == ()
    assert canary.missing(due[2:], 500) == tuple(due[:2])
    assert canary.missing([], due[3], first=due[0] + 1) == tuple(due[1:3])


@pytest.mark.parametrize("share", [0, -1, 1.5, float("nan"), "much"])
def test_impossible_shares(share: object) -> None:
    with pytest.raises(ParameterError):
        Canary(SharedSeed.generate(), share=share)  # type: ignore[arg-type]
