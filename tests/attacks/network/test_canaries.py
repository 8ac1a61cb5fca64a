"""Brokers that lie are found at the rate of the formula, and messages of canaries are as others."""

from __future__ import annotations

import numpy as np
import pytest

from ccbps import SharedSeed
from ccbps.arrays import Bools, Bytes, Index
from ccbps.attacks import lying_broker
from ccbps.attacks.network.canaries import (
    LIMIT,
    came_before,
    one_time_answers,
    reusable_answers,
    three_broker_answers,
)
from ccbps.delivery import Canary, detection_chance
from ccbps.errors import ParameterError


def test_brokers_are_found_at_the_rate_of_the_formula() -> None:
    outcome = lying_broker(runs=2000, real_runs=20)
    dropping, changing = detection_chance(0.02, 0.1, 500), detection_chance(0.04, 0.1, 500)
    assert outcome["dropping broker found, by the formula"].defended == pytest.approx(
        0.63, abs=5e-3
    )
    for name, chance, runs in [
        ("dropping broker found", dropping, 2000),
        ("dropping broker found, FormulaMatch", dropping, 20),
        ("changing broker found, FormulaMatch", changing, 20),
        ("changing broker found, ThreeBrokerMatch", changing, 20),
    ]:
        figure = outcome[name]
        assert figure.undefended == 0
        within = 4.5 * (chance * (1 - chance) / runs) ** 0.5
        assert figure.defended == pytest.approx(chance, abs=within), name
    for name in ("repetitions", "repetitions, long lists"):
        sparing = outcome[f"broker found that spares {name}"]
        assert sparing.undefended < 0.2
        assert sparing.defended is not None and sparing.defended > 0.55
    simulated, formula = (
        np.array(outcome.curve.lines[f"with canaries{name}"]) for name in ("", ", by the formula")
    )
    assert np.abs(simulated - formula).max() < 4.5 * 0.5 / 2000**0.5


def test_more_canaries_find_the_broker_earlier() -> None:
    shares = [
        lying_broker(canaries=share, runs=500, real_runs=1)["dropping broker found"].defended
        for share in (0.005, 0.02, 0.1)
    ]
    assert shares == sorted(shares) and shares[-1] > 0.95  # type: ignore[type-var, operator]


def prices(count: int, canary: Canary) -> Index:
    random, numbers = np.random.default_rng(4), np.arange(count)
    drawn = random.integers(0, 1 << 16, count)
    due = canary.due(numbers)
    drawn[due] = random.integers(0, LIMIT, 10)[canary.pick(numbers[due], 10)]
    return drawn


def largest_difference(messages: Bytes, marked: Bools) -> float:
    """Largest difference of a bit's mean between some messages and the others, as a z-score."""
    bits = np.unpackbits(messages, axis=1).astype(float)
    constant = bits.std(axis=0) == 0
    ones, zeros = bits[marked][:, ~constant], bits[~marked][:, ~constant]
    deviation = 0.5 * (1 / len(ones) + 1 / len(zeros)) ** 0.5
    return float(np.abs(ones.mean(axis=0) - zeros.mean(axis=0)).max() / deviation)


def test_messages_of_canaries_are_as_others_unless_events_show() -> None:
    canary = Canary(SharedSeed(bytes(range(32))), share=0.2)
    drawn = prices(20_000, canary)
    due = canary.due(np.arange(20_000))
    _, messages = one_time_answers(drawn, np.random.default_rng(5))
    assert largest_difference(messages, due) < 5
    assert not came_before(messages).any()
    _, bodies = reusable_answers(drawn)
    assert largest_difference(bodies, due) > 20
    assert came_before(bodies)[due].mean() > 0.99


def test_all_matchers_answer_alike() -> None:
    drawn = prices(300, Canary(SharedSeed.generate(), share=0.3))
    expected = (drawn < LIMIT).tolist()
    assert 0 < sum(expected) < 300
    assert one_time_answers(drawn, np.random.default_rng(1))[0].tolist() == expected
    assert reusable_answers(drawn)[0].tolist() == expected
    assert three_broker_answers(drawn).tolist() == expected


def test_messages_that_came_before() -> None:
    rows = np.array([[1, 2], [3, 4], [1, 2], [1, 3], [3, 4], [1, 2]], dtype=np.uint8)
    assert came_before(rows).tolist() == [False, False, True, False, True, True]


@pytest.mark.parametrize(
    "wrong",
    [
        {"canaries": 0},
        {"canaries": 0.7},
        {"changed": 2},
        {"events": 9},
        {"runs": 400_000},
        {"real_runs": 500},
    ],
)
def test_arguments_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError):
        lying_broker(**wrong)  # type: ignore[arg-type]
