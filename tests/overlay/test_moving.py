"""Enclaves that move: they reach the best places, follow slow changes, and ignore fast ones."""

from __future__ import annotations

import random
from itertools import pairwise

import networkx
import pytest

from ccbps.errors import ParameterError
from ccbps.overlay import ISSPS, HyShare, MovingEnclaves, Topology, fewest_messages

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


@pytest.mark.parametrize("seed", [82, 129, *range(20)])
def test_steady_traffic_on_random_networks(seed: int) -> None:
    """Also where no enclave saves anything by moving alone (seeds 82 and 129)."""
    draw = random.Random(seed)
    size = draw.randrange(4, 9)
    tree = networkx.random_labeled_tree(size, seed=seed)
    edges = [(f"B{a}", f"B{b}") for a, b in tree.edges]
    names = [f"B{number}" for number in range(size)]
    routes = []
    for _ in range(draw.randrange(1, 4)):
        root = draw.choice(names)
        clients = {f"S{number}": draw.choice(names) for number in range(draw.randrange(1, 4))}
        routes.append(Topology(edges, root, clients))
    on_routes = sorted({broker for route in routes for broker in route.route})
    count = draw.randrange(1, min(3, len(on_routes)) + 1)
    start = draw.sample(on_routes, count)
    secrets = [draw.randrange(500, 5000) for _ in routes]
    places = MovingEnclaves(routes, PROTOCOL, start, windows=4)
    for _ in range(3):
        places.observe(secrets)
    best = fewest_messages([*zip(routes, secrets, strict=True)], PROTOCOL, count)
    assert places.messages(secrets) == places.messages(secrets, best)


@pytest.mark.parametrize(("windows", "turn"), [(w, t) for w in (4, 6) for t in range(1, 2 * w + 2)])
def test_turns_longer_than_w_are_followed_and_others_are_not(windows: int, turn: int) -> None:
    """Two routes in turn: at the end of a turn the enclave is where traffic is, or never moves.

    The first turn is all that is known of traffic, so the enclave may move in it.
    """
    places = MovingEnclaves(WAYS, PROTOCOL, ["C"], windows=windows)
    moves = []
    for number in range(8):
        counts = [100, 0] if number % 2 else [0, 100]
        for _ in range(turn):
            places.observe(counts)
        moves.append(places.moves)
        if turn > windows:
            best = fewest_messages(WAYS[0 if number % 2 else 1], PROTOCOL, 1)
            assert places.messages(counts) == places.messages(counts, best)
    assert [after - before for before, after in pairwise(moves)] == [int(turn > windows)] * 7


def test_one_window_that_speaks_against_a_move_keeps_it_back_for_w_windows() -> None:
    places = MovingEnclaves(WAYS, PROTOCOL, ["C"], windows=3)
    places.observe([100, 0])
    moves = []
    for counts in ([0, 100], [0, 100], [90, 10], [0, 100], [0, 100], [0, 100], [0, 100]):
        places.observe(counts)
        moves.append(places.moves)
    assert moves == [0, 0, 0, 0, 0, 0, 1]


def test_a_move_has_to_pay() -> None:
    """A secret or two in a window do not pay for an attestation."""
    few, many = (MovingEnclaves(WAYS[:1], PROTOCOL, ["A"], windows=1) for _ in range(2))
    for _ in range(5):
        few.observe([0])
        many.observe([1])
    assert (few.moves, many.moves) == (0, 1)
    saved = many.messages([1], ["A"]) - many.messages([1])
    assert saved > 2 + 2


def test_secrets_that_go_whole_to_enclaves_count_once() -> None:
    whole = HyShare(3, enclaves=[], direct=True)
    places = MovingEnclaves(WAYS[:1], whole, ["A"], windows=1)
    assert places.messages([1]) == whole.hybrid(["A"]).messages(WAYS[0])
    assert places.messages([1], WAYS[0].route) == 5 + 1
    assert places.messages([1]) < MovingEnclaves(WAYS[:1], PROTOCOL, ["A"], windows=1).messages([1])


def test_arguments_are_checked() -> None:
    for routes, enclaves in (([], ["A"]), (WAYS, []), (WAYS, ["Q"])):
        with pytest.raises(ParameterError, match="at least one"):
            MovingEnclaves(routes, PROTOCOL, enclaves, windows=3)
    with pytest.raises(ParameterError, match="2 numbers"):
        MovingEnclaves(WAYS, PROTOCOL, ["A"], windows=3).observe([1])
