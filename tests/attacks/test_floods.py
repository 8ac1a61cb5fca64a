"""Floods: their figures are those of queues."""

from __future__ import annotations

import pytest

from ccbps.attacks import publication_flood
from ccbps.errors import ParameterError


def test_a_flood_takes_the_share_of_a_full_queue_and_a_bucket_gives_it_back() -> None:
    outcome = publication_flood(flood=4000, seconds=5, brokers=2)
    share = outcome["honest events delivered"]
    assert share.expected == pytest.approx(1000 / 4100)
    # The queue is empty at first: it has room for 200 of 20,000 events.
    assert share.undefended == pytest.approx(share.expected, abs=0.06)
    assert share.defended == 1.0
    delay = outcome["mean delay"]
    assert delay.defended is not None and delay.undefended > 10 * delay.defended


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
