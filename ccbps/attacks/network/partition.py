"""Partitions: a few bogus brokers cut a network in two; further links prevent it."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ccbps.attacks.catalogue import Curve, Figure, Outcome, Taxonomy, attack
from ccbps.checks import whole
from ccbps.loading import need
from ccbps.overlay.topology import missing_links

if TYPE_CHECKING:
    import networkx

    Network: TypeAlias = networkx.Graph[int]


def connected_pairs(graph: Network, bogus: Collection[int]) -> float:
    """Return the share of the pairs of honest brokers that honest brokers connect.

    Args:
        graph: network of brokers.
        bogus: brokers through which nothing passes.
    """
    networkx = need("partition", "networks")
    left = graph.subgraph([broker for broker in graph if broker not in bogus])
    sizes = [len(part) for part in networkx.connected_components(left)]
    pairs = len(left) * (len(left) - 1)
    return sum(size * (size - 1) for size in sizes) / pairs if pairs else 1.0


def connected_at_worst(graph: Network, most: int) -> list[float]:
    """Return the share of connected pairs for each number of bogus brokers, from none on.

    The adversary tries all brokers and all pairs of brokers. To the best pair, and to a minimum
    cut, it adds further brokers greedily, by the number of pairs that they cut.

    Args:
        graph: network of brokers, which the adversary knows.
        most: largest number of bogus brokers, 1 or more.
    """
    networkx = need("partition", "networks")
    shares = [1.0, min(connected_pairs(graph, {broker}) for broker in graph)]
    if most < 2:
        return shares
    best = min(combinations(graph, 2), key=lambda pair: connected_pairs(graph, pair))
    shares += [connected_pairs(graph, best)] + [1.0] * (most - 2)
    for start in ({*best}, {*networkx.minimum_node_cut(graph)}):
        bogus = start
        while len(bogus) <= most:
            shares[len(bogus)] = min(shares[len(bogus)], connected_pairs(graph, bogus))
            others = [broker for broker in graph if broker not in bogus]
            added = min(others, key=lambda broker: connected_pairs(graph, bogus | {broker}))
            bogus = bogus | {added}
    return shares


@attack(
    title="Brokers where paths meet cut the network in two",
    goal="availability",
    adversary="a few brokers of its choice, in a network that it knows",
    defence="links for a higher connectivity (`missing_links`) than there are bogus brokers",
    source="[Survey]",
    taxonomy=Taxonomy("semantic", "broker", "broker", "global", "stateless", "independent"),
)
def partition(
    *,
    brokers: int = 30,
    trees: int = 200,
    networks: int = 3,
    connectivity: int = 2,
    most: int = 4,
    seed: int = 1,
) -> Outcome:
    """Take control of the brokers whose loss separates the most others.

    Trees are uniform among all trees of so many brokers, and figures are means. With the defence
    links are added until no fewer than `connectivity` brokers cut the network. Then fewer bogus
    brokers cut no pair, wherever they are, and as many do.

    Needs networkx.

    Args:
        brokers: number of brokers, 5 to 60.
        trees: number of trees whose articulation points are counted.
        networks: number of trees that get links, at most 30.
        connectivity: number of brokers that cut the network with the defence.
        most: largest number of bogus brokers of the curve.
        seed: seed of the trees.

    Example:
        >>> from ccbps.attacks import partition
        >>> outcome = partition(trees=50, networks=1)
        >>> outcome["pairs cut by one broker"].undefended > 0.3
        True
        >>> outcome["pairs cut by one broker"].defended
        0.0
    """
    networkx = need("partition", "networks")
    random = np.random.default_rng(whole("seed", seed, 0))
    size, lines = (
        whole("brokers", brokers, 5, 60),
        whole("connectivity", connectivity, 2, brokers - 1),
    )
    drawn = [
        networkx.from_prufer_sequence(random.integers(0, size, size - 2).tolist())
        for _ in range(whole("trees", trees, whole("networks", networks, 1, 30)))
    ]
    whole("most", most, lines, size - 2)

    def points(graph: Network) -> int:
        return sum(1 for _ in networkx.articulation_points(graph))

    def with_links(graph: Network, connectivity: int) -> Network:
        linked = networkx.Graph(graph)
        linked.add_edges_from(missing_links(graph, connectivity))
        return linked

    few = drawn[:networks]
    stronger = [with_links(tree, lines) for tree in few]
    ring = networkx.cycle_graph(size)
    reached = {
        "tree": np.mean([connected_at_worst(tree, most) for tree in few], axis=0),
        "ring": np.array(connected_at_worst(ring, most)),
        f"with connectivity {lines}": np.mean(
            [connected_at_worst(graph, most) for graph in stronger], axis=0
        ),
    }
    cut = {name: (1 - shares).tolist() for name, shares in reached.items()}
    tree, defended = cut["tree"], cut[f"with connectivity {lines}"]
    return Outcome(
        (
            Figure(
                "articulation points",
                "",
                float(np.mean([points(graph) for graph in drawn])),
                float(np.mean([points(graph) for graph in stronger])),
                size - size * (1 - 1 / size) ** (size - 2),
            ),
            Figure("articulation points of a ring", "", points(ring)),
            Figure("pairs cut by one broker", "", tree[1], defended[1]),
            Figure(f"pairs cut by {lines} brokers", "", tree[lines], defended[lines]),
            Figure(
                "links",
                "",
                size - 1.0,
                float(np.mean([graph.number_of_edges() for graph in stronger])),
                size - 1.0,
            ),
        ),
        Curve(
            "bogus brokers",
            "pairs of honest brokers connected (share)",
            tuple(map(float, range(most + 1))),
            {name: tuple(shares.tolist()) for name, shares in reached.items()},
        ),
    )
