"""Attacks on ThreeBrokerMatch of the catalogue: figures without and with the defence.

`tests/security/test_attack_three_brokers.py` asserts what each routine of these attacks recovers.
"""

from __future__ import annotations

import numpy as np

from ccbps.attacks import three_brokers_together, three_brokers_unmasked
from ccbps.attacks.schemes.three_brokers import null_space


def test_two_brokers_read_events_and_one_guesses() -> None:
    outcome = three_brokers_together()
    read, right = outcome["events read"], outcome["bits guessed rightly"]
    assert (read.undefended, read.defended, read.expected) == (1, 0, 1)
    assert right.undefended == 1 and right.defended is not None
    # 50 events of 60 bits and more.
    assert abs(right.defended - 0.5) < 4.5 * (0.25 / 3_000) ** 0.5
    assert outcome.curve.lines["without defence"][1:] == (1, 1)


def test_without_masks_sums_of_events_are_read() -> None:
    outcome = three_brokers_unmasked(events=80)
    sums = outcome["sums read"]
    assert sums.undefended == sums.expected == 80 - 15
    assert sums.defended is not None
    # Guesses are right or wrong with equal chances.
    assert abs(sums.defended) < 4.5 * 65**0.5
    assert outcome.curve.lines["without defence"][1:] == (25, 45, 65)


def test_sets_of_rows_add_up_to_nothing() -> None:
    rows = np.random.default_rng(4).integers(0, 2, (20, 8), dtype=np.uint8)
    sets = null_space(rows)
    assert len(sets) == 20 - 8
    assert not any((rows[some].sum(axis=0) % 2).any() for some in sets)
