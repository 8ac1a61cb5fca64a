"""The attack at dawn: guesses as good as distributions allow, and chance at a constant rate."""

from __future__ import annotations

import numpy as np
import pytest

from ccbps.attacks import attack_at_dawn
from ccbps.attacks.network.dawn import (
    SECTORS,
    WIDTH,
    Windows,
    accuracy,
    answers,
    at_constant_rate,
    best_accuracy,
    learned_counts,
)
from ccbps.errors import ParameterError

PARTLY = ("canaries", "rounds that always match", "cloaks, other operations")


def test_what_hides_operations_and_what_only_delays_the_guess() -> None:
    outcome = attack_at_dawn(windows=640, seed=3)
    bare = outcome["right guesses, canaries"]
    assert bare.expected == pytest.approx(0.946, abs=1e-3)
    assert bare.undefended == pytest.approx(bare.expected, abs=4.5 * (0.95 * 0.05 / 320) ** 0.5)
    guesses = {
        name: outcome[f"right guesses, {name}"].defended
        for name in (*PARTLY, "masks", "cloaks, no other operation", "constant rate")
    }
    assert guesses["constant rate"] == 0.5
    assert guesses["masks"] is not None and guesses["masks"] > 0.88
    for name in PARTLY:
        assert 0.55 < (guesses[name] or 0) < 0.85, name
        # Whoever watches longer guesses better.
        line = outcome.curve.lines[f"with {name}"]
        assert line[3] > line[0] + 0.05, name
    assert outcome.curve.lines["with constant rate"] == (0.5,) * 5
    # The broker sees 62 publications in each window, so that it cannot subtract canaries.
    canary, chance = 12 / 62, WIDTH / SECTORS
    rates = [canary + (1 - canary) * rate for rate in (chance, 0.1 + 0.9 * chance)]
    within = 4.5 * (0.75 * 0.25 / 320) ** 0.5
    assert guesses["canaries"] == pytest.approx(best_accuracy(62, *rates), abs=within)
    # All of them cost deliveries, the constant rate not more than the others.
    for name in guesses:
        traffic = outcome[f"deliveries in a window, {name}"]
        assert traffic.defended is not None and traffic.defended > traffic.undefended
    assert outcome["deliveries in a window, constant rate"].defended == 12
    wait = outcome["windows that an event waits, constant rate"].defended
    assert wait is not None and wait < 0.1


def test_a_constant_rate_is_constant_and_loses_nothing() -> None:
    random, low, slots = np.random.default_rng(2), 250, 3
    sectors = random.integers(0, SECTORS, (40, 20))
    sectors[5:10, :4] = low
    wanted = (sectors >= low) & (sectors < low + WIDTH)
    rounds, wait = at_constant_rate(sectors, wanted, slots, low, random)
    assert rounds.shape == (40, 20 + slots)
    matched = (rounds >= low) & (rounds < low + WIDTH)
    assert matched.sum(axis=1).tolist() == [slots] * 40
    assert wanted.sum(axis=1).max() > slots and 0 < wait < 5
    assert np.array_equal(answers(rounds, f"sector BETWEEN {low} AND {low + 3}", random), matched)
    # With enough slots each event is published in its window.
    rounds, wait = at_constant_rate(sectors, wanted, 20, low, random)
    assert wait == 0
    for before, after in zip(sectors, rounds, strict=True):
        assert np.all(np.bincount(before, minlength=256) <= np.bincount(after, minlength=256))


def test_guesses() -> None:
    states = np.arange(64) % 2 == 0
    assert accuracy(np.where(states, 5, 1), states) == 1
    assert accuracy(np.full(64, 3), states) == 0.5
    random = np.random.default_rng(1)
    states = np.arange(40_000) % 2 == 0
    counts = random.binomial(20, np.where(states, 0.3, 0.2))
    best = best_accuracy(20, 0.2, 0.3)
    assert accuracy(counts, states) == pytest.approx(best, abs=4.5 * 0.5 / 20_000**0.5)
    assert accuracy(counts, states, 4) > best + 0.05
    assert best_accuracy(20, 0.2, 0.2) == pytest.approx(0.5) and best_accuracy(9, 0, 1) == 1


def test_masks_that_come_amid_operations_are_learned() -> None:
    states = np.arange(8) % 2 == 0
    masks = np.where(states[:, None], [0, 0, 1, 2], [1, 1, 2, 2])
    counts = learned_counts(np.ones_like(masks, dtype=np.bool_), masks, Windows(masks, states))
    assert counts.tolist() == [2, 0] * 4


@pytest.mark.parametrize("wrong", [{"focus": 0.2}, {"k": 1}, {"extra": 51}, {"windows": 63}])
def test_arguments_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        attack_at_dawn(**wrong)  # type: ignore[arg-type]
