"""Attacks on TagMatch of the catalogue: figures without and with the defence.

`tests/security/test_attack_tag.py` asserts what each routine of these attacks recovers.
"""

from __future__ import annotations

import numpy as np
import pytest

from ccbps.attacks import (
    tag_bounds_from_hits,
    tag_collusion,
    tag_limits_from_events,
    tag_limits_from_intervals,
)
from ccbps.errors import ParameterError


def test_intervals_turn_the_tree_and_those_of_another_group_do_not() -> None:
    outcome = tag_limits_from_intervals(intervals=100)
    error = outcome["median error of constants"]
    assert error.defended is not None
    # The middle of the domain is wrong by a quarter of it, in the median.
    assert error.undefended < 4 and 20 < error.defended < 30
    without, apart = outcome.curve.lines.values()
    assert outcome.curve.at[0] == 0 and without[0] == apart[0]
    assert set(apart) == {apart[0]}
    assert without[-1] < without[-2] < without[1] < without[0]


def test_events_turn_a_tree_of_all_and_hardly_one_of_few() -> None:
    outcome = tag_limits_from_events(seed=2)
    error = outcome["median error of constants"]
    assert error.defended is not None
    assert error.undefended < 1.5 and error.defended > 4
    without, groups = outcome.curve.lines.values()
    assert without[-1] < without[0] and groups[-1] < groups[0]
    assert all(a < b for a, b in zip(without, groups, strict=True))


def test_hits_of_keys_give_intervals_and_counted_answers_do_not() -> None:
    outcome = tag_bounds_from_hits()
    share = outcome["intervals read exactly"]
    assert share.defended is not None
    assert share.undefended >= 0.5 and share.defended <= 0.15
    without, _ = outcome.curve.lines.values()
    assert without[-1] > without[0]


def test_a_client_reads_the_events_of_its_group() -> None:
    outcome = tag_collusion(groups=6)
    assert outcome.curve.at == (1, 2, 4, 6)
    read = outcome["events read"]
    assert read.undefended == read.expected == 1
    assert np.allclose(outcome.curve.lines["with groups"], [1, 1 / 2, 1 / 4, 1 / 6])


def test_parameters_are_checked() -> None:
    with pytest.raises(ParameterError, match="subscriptions must be a whole number, at least 60"):
        tag_limits_from_events(subscriptions=59)
    with pytest.raises(ParameterError, match="bits must be"):
        tag_bounds_from_hits(bits=9)
