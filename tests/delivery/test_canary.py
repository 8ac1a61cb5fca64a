"""Canaries are the same for both sides, as many as agreed, and found missing at their rate."""

from __future__ import annotations

import numpy as np
import pytest

from ccbps import SharedSeed
from ccbps.delivery import Canary, detection_chance, share_needed
from ccbps.errors import ParameterError, ShapeError


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


def test_decoys_are_others_and_wrong_answers_are_named() -> None:
    canary = Canary(SharedSeed.generate(), share=0.1, decoys=0.2)
    numbers = np.arange(20_000)
    due, decoys = canary.due(numbers), canary.decoys(numbers)
    assert not (due & decoys).any()
    assert abs(decoys.mean() - 0.2) < 0.02
    answers = np.random.default_rng(1).random(len(numbers)) < 0.5
    honest = (answers | due) & ~decoys
    assert canary.wrong(honest) == ()
    changed = [int(np.flatnonzero(due)[3]), int(np.flatnonzero(decoys)[5])]
    free = int(np.flatnonzero(~due & ~decoys)[0])
    honest[[*changed, free]] ^= True
    assert canary.wrong(honest) == tuple(sorted(changed))
    assert canary.wrong(honest[1000:], first=1000) == tuple(
        number for number in sorted(changed) if number >= 1000
    )
    assert not Canary(SharedSeed.generate()).decoys(numbers).any()
    with pytest.raises(ShapeError, match="answers"):
        canary.wrong(honest.astype(np.uint8))  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="share and decoys"):
        Canary(SharedSeed.generate(), share=0.6, decoys=0.5)


@pytest.mark.parametrize("share", [0.0020060180541624875, 6 / 999, 0.3, 0.9])
def test_shares_that_are_1_together(share: float) -> None:
    canary, numbers = Canary(SharedSeed.generate(), share=share, decoys=1 - share), range(2000)
    assert (canary.due(numbers) ^ canary.decoys(numbers)).all()


def test_records_are_picked_alike_and_uniformly() -> None:
    seed = SharedSeed.generate()
    picked = Canary(seed).pick(range(20_000), 10)
    assert np.array_equal(picked, Canary(seed, share=0.5).pick(range(20_000), 10))
    counts = np.bincount(picked, minlength=10)
    assert len(counts) == 10 and abs(counts - 2000).max() < 6 * 1800**0.5
    # Which record is picked says nothing of whether it is due.
    due = Canary(seed, share=0.5).due(range(20_000))
    assert abs(due[picked < 5].mean() - 0.5) < 6 * 0.005


def test_how_many_canaries_are_needed() -> None:
    assert detection_chance(0.02, 0.1, 500) == pytest.approx(0.6325, abs=1e-4)
    assert detection_chance(0, 1, 500) == detection_chance(1, 1, 0) == 0
    for changed, count, chance in [(0.1, 500, 0.99), (1, 1, 0.5), (0.01, 10_000, 0.9)]:
        share = share_needed(changed, count, chance)
        assert detection_chance(share, changed, count) == pytest.approx(chance)
    assert share_needed(0.1, 500, 0) == 0
    for wrong in ((0.01, 100, 0.99), (0.1, 0, 0.5), (0.1, 10, 1), (0, 10, 0.5)):
        with pytest.raises(ParameterError):
            share_needed(*wrong)
