"""Partitions: articulation points by their formula, and cuts no smaller than the connectivity."""

from __future__ import annotations

from itertools import combinations

import networkx
import pytest

from ccbps.attacks import Outcome, partition
from ccbps.attacks.network.partition import connected_at_worst, connected_pairs
from ccbps.errors import ParameterError


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return partition(trees=400, networks=2)


def test_articulation_points(outcome: Outcome) -> None:
    points = outcome["articulation points"]
    assert points.expected == pytest.approx(18.4, abs=0.05)
    assert points.undefended == pytest.approx(points.expected, abs=4.5 * 1.7 / 20)
    assert points.defended == 0
    assert outcome["articulation points of a ring"].undefended == 0


def test_more_links_than_bogus_brokers_keep_all_pairs(outcome: Outcome) -> None:
    one, two = (outcome[f"pairs cut by {count}"] for count in ("one broker", "2 brokers"))
    assert one.undefended > 0.4 and one.defended == 0
    # As many bogus brokers as the connectivity do cut it.
    assert two.defended is not None and 0 < two.defended < two.undefended
    links = outcome["links"]
    assert links.undefended == links.expected == 29
    assert links.defended is not None and 30 <= links.defended < 45


def test_the_worst_brokers() -> None:
    star = networkx.star_graph(5)
    assert connected_at_worst(star, 1) == [1, 0]
    assert connected_pairs(star, {1}) == 1
    path = networkx.path_graph(5)
    assert connected_pairs(path, {2}) == pytest.approx(2 / 6)
    # By all sets: a ring of 8 is cut by two opposite brokers.
    ring = networkx.cycle_graph(8)
    best = min(connected_pairs(ring, set(pair)) for pair in combinations(ring, 2))
    assert connected_at_worst(ring, 3)[:3] == [1, 1, best]
    assert best == pytest.approx(2 * 3 / 15)
    # Three brokers of a network that no two cut, where single steps lead nowhere.
    graph = networkx.compose(
        networkx.complete_graph(range(6)), networkx.complete_graph(range(3, 9))
    )
    assert connected_at_worst(graph, 3) == [1, 1, 1, pytest.approx(6 / 15)]


@pytest.mark.parametrize("wrong", [{"connectivity": 1}, {"networks": 0}, {"most": 1}])
def test_arguments_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        partition(**wrong)
