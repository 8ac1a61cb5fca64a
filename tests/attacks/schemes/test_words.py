"""Attacks on matchers of words of the catalogue: figures without and with the defence.

`tests/security/test_attack_words.py` asserts what each routine of these attacks recovers.
"""

from __future__ import annotations

import pytest

from ccbps.attacks import word_cells_in_order, word_frequencies
from ccbps.errors import ParameterError


def test_ranges_put_cells_in_order_and_one_time_messages_do_not() -> None:
    outcome = word_cells_in_order(ranges=60)
    error = outcome["median error of bounds"]
    assert error.defended is not None
    # A cell is 3.1 % of the domain wide; a line of unrelated words is wrong by a quarter of it.
    assert error.undefended < 3.2 and error.defended > 15
    without, _ = outcome.curve.lines.values()
    assert without[-1] < without[0]


def test_frequencies_name_words_and_hardly_whole_subscriptions() -> None:
    outcome = word_frequencies()
    named = outcome["subscriptions whose issue is named"]
    assert named.defended is not None
    assert named.undefended >= 0.7 and named.defended <= 0.4  # chance: 1 in 8
    without, answers = outcome.curve.lines.values()
    assert without[-1] > without[0]
    assert all(a > b for a, b in zip(without, answers, strict=True))


def test_parameters_are_checked() -> None:
    with pytest.raises(ParameterError, match="cells must be a whole number from 4 to 16"):
        word_cells_in_order(bits=6)
