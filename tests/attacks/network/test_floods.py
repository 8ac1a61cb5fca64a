"""Floods: their figures are those of queues."""

from __future__ import annotations

import pytest

from ccbps.attacks import publication_flood, subscription_flood
from ccbps.errors import ParameterError


def test_a_flood_takes_the_share_of_a_full_queue_and_a_bucket_gives_it_back() -> None:
    numbers = {"flood": 2000, "honest": 300, "limit": 400, "room": 100, "brokers": 1}
    outcome = publication_flood(**numbers, seconds=3)
    share = outcome["honest events delivered"]
    assert share.expected == pytest.approx(1000 / 2300)
    # The queue is empty at first: it has room for 100 of 6,900 events.
    assert share.undefended == pytest.approx(share.expected, abs=0.06)
    assert share.defended == 1.0
    delay = outcome["mean delay"]
    assert delay.defended is not None and delay.undefended > 5 * delay.defended


def test_without_a_flood_both_are_alike() -> None:
    outcome = publication_flood(flood=10, seconds=2, brokers=2)
    assert [figure.undefended for figure in outcome.figures] == [
        figure.defended for figure in outcome.figures
    ]


def test_bounds_of_arguments() -> None:
    with pytest.raises(ParameterError, match="flood"):
        publication_flood(flood=-1)
    with pytest.raises(ParameterError, match="service must be"):
        publication_flood(service=0)
    with pytest.raises(ParameterError, match="at most 100,000 in all seconds"):
        publication_flood(flood=100_000)


def test_a_flood_of_subscriptions_fills_every_table_and_a_quota_ends_it() -> None:
    outcome = subscription_flood(subscriptions=60, honest=5, brokers=3, quota=10, events=10)
    assert [figure.undefended for figure in outcome.figures] == [65, 3 * 65, 60]
    assert [figure.expected for figure in outcome.figures] == [65, 3 * 65, 60]
    assert [figure.defended for figure in outcome.figures] == [15, 3 * 15, 0]
    assert outcome.curve.lines["without defence"][0] == outcome.curve.lines["with a quota"][0] == 15
