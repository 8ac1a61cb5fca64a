"""Enclaves that move: they reach the best places, follow slow changes, and ignore fast ones."""

from __future__ import annotations

import random

import pytest

from ccbps.errors import ParameterError
from ccbps.overlay import ISSPS, MovingEnclaves, Topology, fewest_messages

WAYS = [
    Topology([("A", "B"), ("B", "C"), ("C", "D"), ("D", "E")], "A", {"S1": "E"}),
    Topology([("A", "V"), ("V", "W"), ("W", "X"), ("X", "Y")], "A", {"S2": "Y"}),
]
"""Two lines that have their first broker in common."""
PROTOCOL = ISSPS(3)


@pytest.mark.parametrize("seed", range(5))
def test_steady_traffic_leads_to_the_best_places_within_three_windows(seed: int) -> None:
    draw = random.Random(seed)
    counts = [draw.randrange(20, 200), draw.randrange(20, 200)]
    places = MovingEnclaves(WAYS, PROTOCOL, ["A", "E"], windows=4)
    for _ in range(3):
        places.observe(counts)
    best = fewest_messages(list(zip(WAYS, counts, strict=True)), PROTOCOL, 2)
    assert places.messages(counts) == places.messages(counts, best)
    moves = places.moves
    for _ in range(10):
        places.observe(counts)
    assert places.moves == moves


def lasting(windows: int, times: int = 6) -> MovingEnclaves:
    """Observe two routes in turn, each for some windows, with W = 6."""
    places = MovingEnclaves(WAYS, PROTOCOL, ["C"], windows=6)
    for turn in range(times):
        for _ in range(windows):
            places.observe([100, 0] if turn % 2 else [0, 100])
    return places


def test_slow_changes_are_followed() -> None:
    """At the end of each turn the enclave is where its traffic is; on the way it may stop once."""
    places = MovingEnclaves(WAYS, PROTOCOL, ["C"], windows=6)
    for turn in range(6):
        counts = [100, 0] if turn % 2 else [0, 100]
        for _ in range(20):
            places.observe(counts)
        best = fewest_messages(WAYS[0 if turn % 2 else 1], PROTOCOL, 1)
        assert places.messages(counts) == places.messages(counts, best)
        assert places.moves <= 2 * (turn + 1)


@pytest.mark.parametrize("windows", [1, 2, 3])
def test_fast_changes_move_nothing_for_long(windows: int) -> None:
    """The first turn is all that is known of traffic; after W windows nothing moves any more."""
    places = lasting(windows, times=4)
    moves = places.moves
    for turn in range(40):
        for _ in range(windows):
            places.observe([100, 0] if turn % 2 else [0, 100])
    assert places.moves - moves <= 1


def test_a_move_has_to_pay() -> None:
    """A secret or two in a window do not pay for an attestation."""
    few, many = (MovingEnclaves(WAYS[:1], PROTOCOL, ["A"], windows=1) for _ in range(2))
    for _ in range(5):
        few.observe([0])
        many.observe([1])
    assert (few.moves, many.moves) == (0, 1)
    saved = many.messages([1], ["A"]) - many.messages([1])
    assert saved > 2 + 2


def test_arguments_are_checked() -> None:
    for routes, enclaves in (([], ["A"]), (WAYS, []), (WAYS, ["Q"])):
        with pytest.raises(ParameterError, match="at least one"):
            MovingEnclaves(routes, PROTOCOL, enclaves, windows=3)
    with pytest.raises(ParameterError, match="2 numbers"):
        MovingEnclaves(WAYS, PROTOCOL, ["A"], windows=3).observe([1])
