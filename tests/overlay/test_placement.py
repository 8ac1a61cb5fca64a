"""Where enclaves save most: the best places are as good as the best of all sets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.errors import ParameterError
from ccbps.overlay import (
    ISSPS,
    SSPS,
    HyShare,
    Topology,
    breadth_first,
    fewest_messages,
    longest_chain,
    most_enclaves,
    shortest_chains,
)
from ccbps.overlay.splits import placement
from tests.support.effort import examples

RATIOS = [(0, 1), (1, 5), (1, 3), (1, 2), (1, 1), (2, 1), (1, 0)]


def random_network(seed: int, brokers: int, edges_more: int = 0) -> Topology:
    rng = np.random.default_rng(seed)
    edges = [(f"B{rng.integers(1, i)}", f"B{i}") for i in range(2, brokers + 1)]
    for _ in range(edges_more):
        one, other = (rng.permutation(brokers)[:2] + 1).tolist()
        edges.append((f"B{one}", f"B{other}"))
    clients = {f"S{i}": f"B{rng.integers(1, brokers + 1)}" for i in range(rng.integers(1, 5))}
    return Topology(edges, "B1", clients)


def hybrid(protocol: ISSPS, enclaves: Iterable[str]) -> HyShare:
    direct = isinstance(protocol, HyShare) and protocol.direct
    return HyShare(protocol.k, protocol.n, enclaves=enclaves, direct=direct)


def sets(topology: Topology, count: int) -> list[tuple[str, ...]]:
    return [some for size in range(count + 1) for some in combinations(topology.route, size)]


PROTOCOLS = [ISSPS(2), ISSPS(3), ISSPS(2, 3), HyShare(2, enclaves=[], direct=True)]


@given(
    seed=st.integers(0, 1 << 30),
    brokers=st.integers(1, 7),
    more=st.integers(0, 3),
    protocol=st.sampled_from(PROTOCOLS),
)
@settings(max_examples=examples(120), deadline=None)
def test_best_places_are_the_best_of_all_sets(
    seed: int, brokers: int, more: int, protocol: ISSPS
) -> None:
    topology = random_network(seed, brokers, more if brokers > 1 else 0)
    before = before_chain = None
    for count in range(len(topology.route) + 2):
        found = fewest_messages(topology, protocol, count)
        messages = hybrid(protocol, found).messages(topology)
        assert len(found) <= count and found == [b for b in topology.route if b in found]
        all_sets = sets(topology, count)
        assert messages == min(hybrid(protocol, some).messages(topology) for some in all_sets)
        assert before is None or messages <= before
        first = hybrid(protocol, breadth_first(topology, count)).messages(topology)
        assert messages <= first
        before = messages

        short = shortest_chains(topology, protocol, count)
        assert len(short) <= count
        chain = longest_chain(topology, short), hybrid(protocol, short).messages(topology)
        assert chain == min(
            (longest_chain(topology, some), hybrid(protocol, some).messages(topology))
            for some in all_sets
        )
        assert before_chain is None or chain[0] <= before_chain
        before_chain = chain[0]


@given(seed=st.integers(0, 1 << 30), protocol=st.sampled_from(PROTOCOLS))
@settings(max_examples=examples(40), deadline=None)
def test_several_topologies_share_enclaves(seed: int, protocol: ISSPS) -> None:
    one, other = random_network(seed, 6), random_network(seed + 1, 5)
    traffic = [(one, 3.0), (other, 1.0)]

    def cost(enclaves: Iterable[str]) -> float:
        return sum(
            weight * hybrid(protocol, {*enclaves} & {*each.route}).messages(each)
            for each, weight in traffic
        )

    brokers = [*dict.fromkeys([*one.route, *other.route])]
    for count in range(len(brokers) + 1):
        exact = min(cost(some) for some in combinations(brokers, count))
        found = fewest_messages(traffic, protocol, count)
        assert len(found) == count and cost(found) == exact
        # One by one with exchanges: never worse than one by one, and nowhere near all sets.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(placement, "MOST_SETS", 0)
            greedy = fewest_messages(traffic, protocol, count)
        assert len(greedy) == count and exact <= cost(greedy)
        assert cost(greedy) == exact or count > 1


@given(seed=st.integers(0, 1 << 30), brokers=st.integers(1, 7), protocol=st.sampled_from(PROTOCOLS))
@settings(max_examples=examples(60), deadline=None)
def test_subscribers_with_secrets_of_their_own(seed: int, brokers: int, protocol: ISSPS) -> None:
    topology = random_network(seed, brokers)
    numbers = np.random.default_rng(seed).integers(0, 20, len(topology.subscribers)).tolist()
    rates = dict(zip(topology.subscribers, numbers, strict=True))
    edges = [(a, b) for a, near in topology.links.items() for b in near]
    alone = {
        s: Topology(edges, topology.root, {s: broker}) for s, broker in topology.subscribers.items()
    }

    def cost(enclaves: Iterable[str]) -> float:
        made = hybrid(protocol, enclaves)
        return sum(rate * made.messages(alone[s]) for s, rate in rates.items())

    for count in range(len(topology.route) + 1):
        found = fewest_messages(topology, protocol, count, rates=rates)
        assert len(found) <= count
        assert cost(found) == min(cost(some) for some in sets(topology, count))


def test_a_search_starts_from_each_publisher_too() -> None:
    """From one by one alone it would stop at 19 % more."""
    names = [f"B{i}" for i in range(1, 31)]
    there = Topology(pairwise(names), "B1", {"S": "B30"})
    back = Topology(pairwise(names), "B30", {"T": "B1"})
    found = fewest_messages([(there, 1), (back, 1)], ISSPS(3), 4)
    made = HyShare(3, enclaves=found)
    assert made.messages(there) + made.messages(back) <= 25_470


def test_traffic_decides() -> None:
    there = Topology.line(5)
    back = Topology([("B5", "B4"), ("B4", "B6")], "B5", {"S2": "B6"})
    assert fewest_messages([(there, 100), (back, 1)], ISSPS(3), 1) == ["B3"]
    assert fewest_messages([(there, 1), (back, 100)], ISSPS(3), 1) == ["B4"]


@pytest.mark.parametrize("k", [2, 3, 7])
def test_worked_examples_of_the_source(k: int) -> None:
    line = Topology.line(3)
    assert fewest_messages(line, ISSPS(k), 1) == shortest_chains(line, ISSPS(k), 1) == ["B2"]
    assert HyShare(k, enclaves=["B2"]).messages(line) == 4 * k
    tree = Topology.tree(4, 3)
    for count in (1, 4):
        # Subscribers at the leaves: from the root on, as the source says.
        best = HyShare(k, enclaves=fewest_messages(tree, ISSPS(k), count)).messages(tree)
        first = HyShare(k, enclaves=breadth_first(tree, count)).messages(tree)
        assert best <= first


def test_breadth_first_is_not_always_best_on_trees() -> None:
    """[Survey] section 8.5 says that it is, for subscribers at the leaves."""
    tree = Topology.tree(3, 2)
    best = fewest_messages(tree, ISSPS(3), 2)
    assert (best, breadth_first(tree, 2)) == (["B2", "B3"], ["B1", "B2"])
    assert HyShare(3, enclaves=best).messages(tree) == 33
    assert HyShare(3, enclaves=breadth_first(tree, 2)).messages(tree) == 57
    for levels, fanout in ((3, 2), (3, 4), (4, 3)):
        tree = Topology.tree(levels, fanout)
        one = HyShare(3, enclaves=fewest_messages(tree, ISSPS(3), 1)).messages(tree)
        assert HyShare(3, enclaves=["B1"]).messages(tree) == one


def test_chains_are_hops_between_brokers_that_split() -> None:
    line = Topology.line(6)
    assert longest_chain(line, []) == 5
    assert longest_chain(line, ["B3"]) == 2
    assert longest_chain(line, ["B2", "B4"]) == 1
    assert longest_chain(line, line.links) == 0
    assert longest_chain(Topology.line(1), []) == 0
    assert longest_chain(Topology.tree(3, 2), ["B1", "B3"]) == 1
    with pytest.raises(ParameterError, match="enclaves must be brokers of the topology, 'B7'"):
        longest_chain(line, ["B7"])


@pytest.mark.parametrize("k", [3, 7])
def test_growth_by_ratio(k: int) -> None:
    """One to one grows as a line does, without enclaves as a power of k."""
    counts = {
        ratio: [
            HyShare(
                k, enclaves=fewest_messages(line, ISSPS(k), most_enclaves(hops, *ratio))
            ).messages(line)
            for hops in range(1, 11)
            for line in [Topology.line(hops)]
        ]
        for ratio in RATIOS
    }
    linear = [k * (hops + 1) for hops in range(1, 11)]
    assert counts[1, 0] == counts[2, 1] == counts[1, 1] == linear
    assert all(fewer <= 2 * straight for fewer, straight in zip(counts[1, 1], linear, strict=True))
    steps = np.diff(counts[1, 1][1::2])
    assert {*steps.tolist()} == {2 * k}
    assert all(after > (k - 1) * before for before, after in pairwise(counts[0, 1]))
    # 1 to 5: no enclave before the sixth hop.
    assert counts[1, 5][:5] == counts[0, 1][:5]
    assert counts[1, 5][5] < counts[1, 5][4]
    for more, fewer in pairwise(RATIOS):
        assert all(a >= b for a, b in zip(counts[more], counts[fewer], strict=True))


@pytest.mark.parametrize(
    ("brokers", "ratio", "count"),
    [
        (5, (1, 5), 0),
        (6, (1, 5), 1),
        (7, (1, 1), 3),
        (8, (1, 1), 4),
        (9, (2, 1), 6),
        (9, (0, 1), 0),
        (9, (1, 0), 9),
        (0, (1, 1), 0),
    ],
)
def test_ratios_are_never_exceeded(brokers: int, ratio: tuple[int, int], count: int) -> None:
    assert most_enclaves(brokers, *ratio) == count
    enclaves, others = ratio
    assert count * others <= enclaves * (brokers - count)
    if count < brokers:
        assert (count + 1) * others > enclaves * (brokers - count - 1)


def test_large_networks() -> None:
    """Subtrees of one shape are planned once; numbers may be larger than 64 bits."""
    tree = Topology.tree(5, 10)
    assert fewest_messages(tree, ISSPS(7), 4) == ["B1", "B2", "B3", "B4"]
    half = fewest_messages(tree, ISSPS(7), 5_555)
    assert HyShare(7, enclaves=half).messages(tree) == 7 * (len(tree.links) + 10_000)
    line = Topology.line(100)
    assert fewest_messages(line, ISSPS(7), 9) == [f"B{i}" for i in range(11, 101, 10)]
    assert shortest_chains(line, ISSPS(7), 50) == [f"B{i}" for i in range(2, 101, 2)]


@pytest.mark.slow
def test_numbers_beyond_floats() -> None:
    long = Topology.line(400)
    assert fewest_messages([(long, 1.5), (long, 0.25)], ISSPS(7), 1) == ["B200"]
    assert fewest_messages(long, ISSPS(7), 1, rates={"S1": 0.3}) == ["B201"]
    two = Topology(
        [("B1", "B2"), ("B1", "B3"), ("B2", "B4"), ("B3", "B5")], "B1", {"S": "B4", "T": "B5"}
    )
    assert fewest_messages(two, ISSPS(3), 1, rates={"S": 1e17, "T": 1}) == ["B2"]
    assert fewest_messages(two, ISSPS(3), 1, rates={"S": 1, "T": 1e17}) == ["B3"]


LINE = Topology.line(2)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: breadth_first(LINE, -1), "count must be a whole number, at least 0"),
        (lambda: fewest_messages(LINE, ISSPS(2), -1), "count must be a whole number, at least 0"),
        (lambda: most_enclaves(3, 0, 0), "which is no ratio"),
        (lambda: most_enclaves(3, 1, -1), "others must be a whole number"),
        (
            lambda: fewest_messages([(LINE, 1.0)], ISSPS(2), 1, rates={"S1": 1}),
            "rates are for one topology",
        ),
        *[
            (partial(fewest_messages, traffic, ISSPS(2), 1), "pairs of one and a positive weight")
            for traffic in ([], *([(LINE, weight)] for weight in (0.0, -1.0, math.inf, math.nan)))
        ],
        *[
            (
                partial(fewest_messages, LINE, ISSPS(2), 1, rates=rates),
                r"rates\['S1'\] must be a finite number, at least 0",
            )
            for rates in ({}, *({"S1": rate} for rate in (-1, math.inf, math.nan)))
        ],
        *[
            (partial(place, LINE, protocol, 1), "protocol must be ISSPS, or HyShare without")
            for protocol in (SSPS(2), HyShare(2, enclaves=["B1"]))
            for place in (fewest_messages, shortest_chains)
        ],
    ],
)
def test_arguments_are_checked(use: Callable[[], object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        use()
