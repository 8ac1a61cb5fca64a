"""Filters as weapons: messages, deliveries and blocks are those of the formulas."""

from __future__ import annotations

import pytest

from ccbps import attacks
from ccbps.attacks import costly_filters, uncovering_churn, wide_filters
from ccbps.errors import ParameterError


def test_one_withdrawal_of_a_wide_filter_costs_all_that_it_covered() -> None:
    """The filters that it covered, and the withdrawal itself, on each hop."""
    outcome = uncovering_churn(withdrawals=1)
    assert outcome["messages for one withdrawal"].undefended == (40 + 1) * 7 == 287
    assert outcome["messages for a narrow filter in its place"].undefended == 287


def test_a_hold_down_stops_haste_and_a_quota_patience() -> None:
    outcome = uncovering_churn(covered=6, brokers=3, withdrawals=10, hold=4.0, pause=20.0)
    cycle, lines = 2 * (6 + 1) * 2 / 40, outcome.curve.lines
    assert lines["without defence"] == pytest.approx([cycle * n for n in (1, 2, 4, 10)])
    assert lines["with a hold-down"] == pytest.approx([cycle * n for n in (1, 2, 4, 0)])
    assert lines["with a quota"] == pytest.approx([cycle * n for n in (1, 2, 2, 2)])
    assert lines["with both"] == pytest.approx([cycle * n for n in (1, 2, 2, 0)])


def test_wide_filters_bring_every_event_everywhere() -> None:
    outcome = wide_filters(brokers=4, seconds=15.0)
    messages, events, honest = outcome.figures
    assert messages.undefended == messages.expected == 3
    assert events.undefended == events.expected == 1
    assert honest.undefended == honest.defended == 1
    # What was saved up, and what came in 15 seconds, of some 300 events.
    assert events.defended == pytest.approx((10 + 15) * 2 / 300, rel=0.3)
    assert messages.defended is not None and messages.defended < 2


def test_a_filter_that_matches_a_share_of_events_moves_that_share() -> None:
    messages, events, _ = wide_filters(brokers=3, width=0.5, seconds=15.0).figures
    assert messages.undefended == pytest.approx(messages.expected, rel=0.15)
    assert events.undefended == pytest.approx(0.5, rel=0.15)


def test_a_conjunction_that_fails_late_costs_all_its_words() -> None:
    numbers = {"words": 4, "usual": 1.0, "filters": 20, "honest": 2, "events": 40, "budget": 200.0}
    cost, honest, refused = costly_filters(**numbers, speed=1.5e5).figures[1:]
    assert cost.expected == pytest.approx(3 * 10 + 2, abs=0.5)
    assert cost.undefended == pytest.approx(cost.expected, rel=0.03)
    assert cost.defended == pytest.approx(cost.undefended / 4, rel=0.1)
    assert honest.undefended == pytest.approx(honest.expected, rel=0.15)
    # A publisher pays for the matches of its events with the filters of others.
    assert refused.expected == pytest.approx(1 - 0.5 * 1.5e5 / 200 / (20 * 32 + 40 * 2), abs=0.05)
    assert refused.undefended == pytest.approx(refused.expected, abs=0.1)
    assert refused.defended == 0


@pytest.mark.parametrize(
    ("name", "argument"),
    [("uncovering-churn", {"brokers": 1}), ("wide-filters", {"width": 0.01})],
)
def test_bounds_of_arguments(name: str, argument: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=min(argument)):
        attacks.run(name, **argument)
