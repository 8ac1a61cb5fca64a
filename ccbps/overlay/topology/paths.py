"""Parallel paths: paths from a publisher to a subscriber that share no broker.

Secret sharing needs as many as a secret has fragments. Where a network has too few, logical brokers
make them (`ccbps.overlay.topology.topology`).

Sources: [Survey] section 2.3.2; Menger, Fundamenta Mathematicae 10, 1927.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ccbps.errors import ParameterError
from ccbps.overlay.topology.topology import check_count, graph_library

if TYPE_CHECKING:
    import networkx


def parallel_paths(
    graph: networkx.Graph[str],
    publisher: str,
    subscriber: str,
    n: int,
    *,
    clients: Iterable[str] = (),
) -> list[list[str]]:
    """n paths from a publisher to a subscriber that share no broker, shortest first. Others may be
    shorter still.

    Their greatest number is that of brokers whose loss separates the two (Menger's theorem), so a
    network that has too few needs more brokers. Needs networkx.

    Args:
        graph: of physical brokers and clients.
        publisher: a node of it.
        subscriber: another one.
        n: of paths.
        clients: nodes that are no brokers, through which no path may lead.

    Raises:
        ParameterError: there are fewer, the two are linked without a broker between them,
            or networkx is not installed.

    Example:
        >>> from ccbps.overlay import Topology, parallel_paths
        >>> paths = parallel_paths(Topology.line(2).physical(3), "publisher", "S1", 3)
        >>> sorted(map(len, paths))
        [4, 4, 4]
    """
    networkx = graph_library("parallel_paths")
    check_count(n, "n")
    for name in (publisher, subscriber):
        if name not in graph:
            raise ParameterError(f"graph has no node {name!r}")
    if publisher == subscriber or graph.has_edge(publisher, subscriber):
        raise ParameterError(
            f"publisher {publisher!r} and subscriber {subscriber!r} must have brokers between them"
        )
    others = {*clients} - {publisher, subscriber}
    graph = graph.subgraph([node for node in graph if node not in others])
    try:
        found = sorted(networkx.node_disjoint_paths(graph, publisher, subscriber), key=len)
    except networkx.NetworkXNoPath:
        found = []
    if len(found) < n:
        raise ParameterError(
            f"{n} paths that share no broker are needed from {publisher!r} to {subscriber!r}, and "
            f"the network has {len(found)}: add links or brokers, or take logical brokers of {n}"
        )
    return found[:n]


def shared_brokers(paths: Iterable[Iterable[str]]) -> list[str]:
    """The brokers that are on more than one of some paths, whose ends are clients: parallel ones
    have none.

    Example:
        >>> from ccbps.overlay import shared_brokers
        >>> shared_brokers([["publisher", "a", "b", "S1"], ["publisher", "b", "S1"]])
        ['b']
    """
    seen: set[str] = set()
    shared: dict[str, None] = {}
    for path in paths:
        brokers = {*[*path][1:-1]}
        shared |= dict.fromkeys(sorted(brokers & seen))
        seen |= brokers
    return [*shared]
