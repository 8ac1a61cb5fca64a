"""Attacks on rounds that serve twice, of the catalogue: figures without and with a ledger.

`tests/security` asserts what each routine of these attacks recovers: `test_reused_rounds.py`,
`test_attack_broadcast.py` and `test_attack_garbled.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ccbps.attacks import Outcome, broadcast_reused_round, garbled_reused_round, reused_rounds
from ccbps.attacks.schemes.broadcast import events_from_labels, labels_of_round
from ccbps.attacks.schemes.reused_rounds import bounds_from_answers
from ccbps.encodings.labels import LABEL_BYTES


def test_events_are_compared_without_a_ledger_only() -> None:
    outcome = reused_rounds(events=300, restarts=5)
    compared = outcome["events compared rightly with an earlier one"]
    assert (compared.undefended, compared.defended, compared.expected) == (1, 0, 1)
    known = outcome["events known to equal an earlier one"]
    assert known.expected == pytest.approx(1 - (7 / 8) ** 5)
    assert abs(known.undefended - known.expected) < 4.5 * (0.25 / 300) ** 0.5
    assert outcome.curve.lines["with a ledger"] == (0,) * 6


@pytest.mark.parametrize("run", [broadcast_reused_round, garbled_reused_round])
def test_bounds_are_read_without_a_ledger_only(run: Callable[..., Outcome]) -> None:
    outcome = run(rounds=20)
    (error,) = outcome.figures
    assert error.defended is not None
    assert error.undefended < 0.5 and error.defended > 8
    without, ledger = outcome.curve.lines.values()
    # One event of a round is as good as another: nothing is read, with or without a ledger.
    assert without[0] == ledger[0] and set(ledger) == {ledger[0]}
    assert without[-1] < without[1] <= without[0] or without[1] == 0


def test_two_events_open_a_garbled_circuit_and_a_part_of_a_broadcast() -> None:
    (broadcast,), (garbled,) = (
        run(events=2, rounds=30).figures for run in (broadcast_reused_round, garbled_reused_round)
    )
    assert garbled.undefended < 4 < broadcast.undefended


def test_bounds_lie_between_values_outside_and_inside() -> None:
    values = np.array([1, 4, 7, 9, 14])
    answers = np.array([False, True, True, False, False])
    assert bounds_from_answers(values, answers, 16) == (3, 7.5)
    assert bounds_from_answers(values, answers | True, 16) == (0.5, 14.5)
    assert bounds_from_answers(values, answers & False, 16) == (16 / 3, 32 / 3)


def test_labels_of_two_events_make_all_mixtures() -> None:
    # Digits 1 2 and 3 2 of two bits each, under the shifts 2 and 1.
    events = np.zeros((2, 2 * LABEL_BYTES), dtype=np.uint8)
    events[:, ::LABEL_BYTES] = np.array([[1, 2], [3, 2]]) ^ [2, 1]
    values, bodies = events_from_labels(labels_of_round(events, 0b0110, [2, 2]), [2, 2])
    assert values.tolist() == [0b0110, 0b1110]
    assert np.array_equal(bodies, events)
