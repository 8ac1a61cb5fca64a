"""Trials: networks from plain values, with faults and colluders drawn at random."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ccbps.errors import ParameterError
from ccbps.overlay import Trial, TrialResult
from ccbps.overlay.splits import trials

LINE = {"topology": "line", "hops": 3, "protocol": "ISSPS", "k": 2}


def trial(**changes: Any) -> Trial:
    return Trial(**{**LINE, **changes})


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({}, 2 + 4 + 8 + 8),
        ({"protocol": "SSPS", "n": 5}, 5 * 4),
        ({"protocol": "HyShare", "enclaves": ["B2"]}, 4 * 2),
        ({"protocol": "HyShare", "enclaves": []}, 2 + 4 + 8 + 8),
        ({"topology": "star"}, 2 + 3 * (4 + 4)),
        ({"topology": "ring"}, 2 + 2 * (4 + 4)),
        ({"topology": "tree", "fanout": 3}, 2 + 3 * 4 + 9 * (8 + 8)),
    ],
)
def test_networks(changes: dict[str, Any], messages: int) -> None:
    result = trial(**changes, secrets=7).run()
    assert result == TrialResult(7 * messages, 7 * messages, True, 1.0, 0.0)


def test_secrets_are_simulated_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trial(secrets=50, n=3, failing=0.3, colluding=0.3, seed=8).run()
    monkeypatch.setattr(trials, "FRAGMENTS", 100)
    assert trial(secrets=50, n=3, failing=0.3, colluding=0.3, seed=8).run() == whole


def test_too_many_messages_are_only_counted() -> None:
    assert trial(hops=30, k=7).run().messages == sum(7**i for i in range(1, 31)) + 7**30
    assert not trial(hops=30, k=7).run().held
    with pytest.raises(ParameterError, match="messages are too many for brokers that fail or look"):
        trial(hops=30, k=7, failing=1.0).run()
    assert trial(most_held=22).run() == TrialResult(22, 22, True, 1.0, 0.0)
    assert trial(most_held=21).run() == TrialResult(22, 22, False, 1.0, 0.0)


def test_failing_brokers_lose_secrets_as_often_as_they_should() -> None:
    """ISSPS delivers where k of n brokers of every logical broker work."""
    results = [trial(n=3, failing=0.2, seed=seed).run() for seed in range(400)]
    assert {result.delivered for result in results} == {0.0, 1.0}
    works = (0.8**3 + 3 * 0.8**2 * 0.2) ** 3
    delivered = sum(result.delivered for result in results)
    assert abs(delivered - 400 * works) < 5 * math.sqrt(400 * works * (1 - works))
    assert all(result.messages <= result.formula for result in results)
    assert trial(failing=1.0).run().messages == 2


@pytest.mark.parametrize(
    ("protocol", "safe"),
    [("ISSPS", (0.7**2 + 2 * 0.7 * 0.3) ** 3), ("SSPS", 1 - (1 - 0.7**3) ** 2)],
)
def test_colluders_recover_secrets_as_often_as_they_should(protocol: str, safe: float) -> None:
    results = [trial(protocol=protocol, colluding=0.3, seed=seed).run() for seed in range(400)]
    assert {result.recovered for result in results} == {0.0, 1.0}
    recovered = sum(result.recovered for result in results)
    assert abs(recovered - 400 * (1 - safe)) < 5 * math.sqrt(400 * safe * (1 - safe))
    assert all(result.delivered == 1.0 for result in results)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topology": "mesh"}, "topology must be 'line', 'star', 'ring' or 'tree', got 'mesh'"),
        ({"protocol": "Shamir"}, "protocol must be 'SSPS', 'ISSPS' or 'HyShare', got 'Shamir'"),
        ({"enclaves": ["B1"]}, "enclaves are for HyShare, and protocol is 'ISSPS'"),
        ({"failing": 1.5}, "failing must be a finite number from 0 to 1, got 1.5"),
        ({"colluding": -0.1}, "colluding must be a finite number from 0 to 1, got -0.1"),
        ({"hops": 0}, "hops must be a whole number, at least 1, got 0"),
        ({"k": 1}, "k must be a whole number from 2 to 255"),
        ({"secrets": 0}, "secrets must be a whole number, at least 1, got 0"),
        ({"seed": -1}, "seed must be a whole number, at least 0, got -1"),
    ],
)
def test_values_are_checked(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        trial(**changes).run()
