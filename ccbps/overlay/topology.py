"""Networks of logical brokers, the routes of a publisher's secrets, and parallel paths.

A *logical broker* stands for m physical brokers, each of which has all of its links. So one path
through logical brokers is m disjoint paths through physical brokers: fragment i of a secret takes
the i-th broker of each hop.

The route of a secret is a tree. It consists of shortest paths from the publisher's broker to those
of the subscribers, in breadth-first order, which branch as late as they can.

Sources: [Survey] section 2.3.2 for logical brokers and parallel paths, 9.2 and 9.3 for lines and
trees; Menger, Fundamenta Mathematicae 10, 1927.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from ccbps.checks import Printable, whole
from ccbps.errors import ParameterError
from ccbps.loading import need

if TYPE_CHECKING:
    import networkx

PUBLISHER: Final = "publisher"
NUMBERED: Final = re.compile(r"\.\d+$")


class PhysicalBroker(NamedTuple):
    """Physical broker of a logical one.

    Attributes:
        broker: name of the logical broker.
        number: number from 1 to m.
    """

    broker: str
    number: int

    def __str__(self) -> str:
        return f"{self.broker}.{self.number}"


class Topology(Printable):
    """Logical brokers, their links, and the places of clients.

    Args:
        edges: pairs of brokers that are linked, such as the edges of a networkx graph.
        root: broker of the publisher.
        subscribers: broker of each subscriber, by the subscriber's name.

    Attributes:
        links: neighbours of each broker, in order.

    Example:
        >>> from ccbps.overlay import Topology
        >>> line = Topology.line(3)
        >>> line.path("S1")
        ['B1', 'B2', 'B3']
        >>> tree = Topology.tree(depth=3, fanout=2)
        >>> len(tree.links), len(tree.subscribers)
        (7, 4)
        >>> tree.children["B1"]
        ['B2', 'B3']

    Raises:
        ParameterError: a name is not a non-empty string, or has two meanings; or there is no
            subscriber, or no path to one.
    """

    def __init__(
        self, edges: Iterable[tuple[str, str]], root: str, subscribers: Mapping[str, str]
    ) -> None:
        links: dict[str, dict[str, None]] = {root: {}}
        for left, right in edges:
            if left == right:
                raise ParameterError(f"edges must be between two brokers, got {left!r} twice")
            links.setdefault(left, {})[right] = None
            links.setdefault(right, {})[left] = None
        self.links = {name: [*neighbours] for name, neighbours in links.items()}
        self.root, self.subscribers = root, dict(subscribers)
        names = [*self.links, *self.subscribers, PUBLISHER]
        if not all(isinstance(name, str) and name for name in names):
            raise ParameterError("brokers and subscribers must be named by non-empty strings")
        for name in names:
            if NUMBERED.search(name):
                raise ParameterError(
                    f"the name {name!r} ends like that of a physical broker: leave out the number"
                )
        if len({*names}) != len(names):
            raise ParameterError(
                f"brokers, subscribers and {PUBLISHER!r} must have different names: rename some"
            )
        if not self.subscribers:
            raise ParameterError("subscribers must name at least one: a secret is for someone")
        for subscriber, broker in self.subscribers.items():
            if broker not in self._parents:
                raise ParameterError(
                    f"subscriber {subscriber!r} is at {broker!r}, to which no links lead from "
                    f"{root!r}: add edges"
                )

    def __repr__(self) -> str:
        links = sum(map(len, self.links.values())) // 2
        return (
            f"<Topology of {len(self.links)} logical brokers, {links} links and "
            f"{len(self.subscribers)} subscribers>"
        )

    # -- shapes -----------------------------------------------------------------------------------

    @classmethod
    def line(cls, hops: int) -> Self:
        """Make a line of brokers B1 .. B<hops>.

        The publisher is at the first broker, subscriber S1 at the last.
        """
        names = _brokers("hops", hops)
        return cls(pairwise(names), names[0], _subscribers(names[-1:]))

    @classmethod
    def star(cls, leaves: int) -> Self:
        """Make a star: B1 with the publisher, linked to brokers with one subscriber each."""
        root, *names = [*_brokers("leaves", leaves), f"B{leaves + 1}"]
        return cls([(root, leaf) for leaf in names], root, _subscribers(names))

    @classmethod
    def ring(cls, brokers: int) -> Self:
        """Make a ring of brokers B1 .. B<brokers>.

        The publisher is at B1, and one subscriber is at each other broker.
        """
        root, *names = _brokers("brokers", brokers, least=3)
        return cls(pairwise([root, *names, root]), root, _subscribers(names))

    @classmethod
    def tree(cls, depth: int, fanout: int, *, subscribers: int = 1) -> Self:
        """Make a tree in breadth-first order.

        The publisher is at B1, the subscribers are at the leaves.

        Args:
            depth: number of brokers on each path.
            fanout: number of links of each broker to brokers of the next level.
            subscribers: number of subscribers of each leaf.

        Raises:
            ParameterError: a number is not at least 1.
        """
        for name, value in (("depth", depth), ("fanout", fanout), ("subscribers", subscribers)):
            whole(name, value, 1)
        count = sum(fanout**level for level in range(depth))
        names = _brokers("depth", count)
        edges = [(names[(place - 1) // fanout], names[place]) for place in range(1, count)]
        leaves = names[-(fanout ** (depth - 1)) :]
        return cls(edges, "B1", _subscribers([leaf for leaf in leaves for _ in range(subscribers)]))

    # -- routes -----------------------------------------------------------------------------------

    @cached_property
    def _parents(self) -> dict[str, str]:
        """Previous broker of each broker on a shortest path; the publisher for the root."""
        parents, waiting = {self.root: PUBLISHER}, deque([self.root])
        while waiting:
            broker = waiting.popleft()
            for neighbour in self.links[broker]:
                if neighbour not in parents:
                    parents[neighbour] = broker
                    waiting.append(neighbour)
        return parents

    @cached_property
    def route(self) -> list[str]:
        """Brokers on a path to a subscriber, breadth-first from the root."""
        needed: set[str] = set()
        for broker in self.subscribers.values():
            while broker != PUBLISHER and broker not in needed:
                needed.add(broker)
                broker = self._parents[broker]
        return [broker for broker in self._parents if broker in needed]

    @cached_property
    def children(self) -> dict[str, list[str]]:
        """Next brokers of each broker of the route."""
        children: dict[str, list[str]] = {broker: [] for broker in self.route}
        for broker in self.route[1:]:
            children[self._parents[broker]].append(broker)
        return children

    @cached_property
    def clients(self) -> dict[str, list[str]]:
        """Subscribers of each broker of the route."""
        clients: dict[str, list[str]] = {broker: [] for broker in self.route}
        for subscriber, broker in self.subscribers.items():
            clients[broker].append(subscriber)
        return clients

    @cached_property
    def senders(self) -> dict[str, str]:
        """Previous broker of each broker of the route and of each subscriber."""
        return {broker: self._parents[broker] for broker in self.route} | self.subscribers

    def path(self, subscriber: str) -> list[str]:
        """List the brokers on the path to a subscriber, the publisher's first.

        Raises:
            ParameterError: there is no such subscriber.
        """
        if subscriber not in self.subscribers:
            raise ParameterError(f"subscriber must be one of {[*self.subscribers]}")
        path = [self.subscribers[subscriber]]
        while path[-1] != self.root:
            path.append(self._parents[path[-1]])
        return path[::-1]

    # -- physical brokers -------------------------------------------------------------------------

    def physical(self, m: int) -> networkx.Graph[str]:
        """Return the network of m physical brokers for each logical one, and of all clients.

        A node has the name of a client, or the text of a `PhysicalBroker`. Needs networkx.

        Raises:
            ParameterError: m is not at least 1.
            ImportError: networkx is not installed.
        """
        graph = need("physical", "networks").Graph()
        whole("m", m, 1)
        nodes = {
            name: [str(PhysicalBroker(name, number)) for number in range(1, m + 1)]
            for name in self.links
        }
        nodes |= {name: [name] for name in (PUBLISHER, *self.subscribers)}
        pairs = [(name, other) for name, others in self.links.items() for other in others]
        for left, right in [*pairs, (PUBLISHER, self.root), *self.subscribers.items()]:
            graph.add_edges_from((a, b) for a in nodes[left] for b in nodes[right])
        return graph


def parallel_paths(
    graph: networkx.Graph[str],
    publisher: str,
    subscriber: str,
    n: int,
    *,
    clients: Iterable[str] = (),
) -> list[list[str]]:
    """Find n paths from a publisher to a subscriber that share no broker, shorter ones first.

    Secret sharing needs as many paths as a secret has fragments. The greatest number of paths is
    the least number of brokers whose loss separates the two clients (Menger's theorem). So a
    network with too few paths needs more brokers, or logical brokers. The paths found need not be
    the shortest ones. Needs networkx.

    Args:
        graph: network of physical brokers and clients.
        publisher: node of the publisher.
        subscriber: node of the subscriber.
        n: number of paths.
        clients: nodes that are clients, through which no path may lead.

    Raises:
        ParameterError: there are fewer paths, or the two are linked without a broker between them.
        ImportError: networkx is not installed.

    Example:
        >>> from ccbps.overlay import Topology, parallel_paths
        >>> paths = parallel_paths(Topology.line(2).physical(3), "publisher", "S1", 3)
        >>> sorted(map(len, paths))
        [4, 4, 4]
    """
    networkx = need("parallel_paths", "networks")
    whole("n", n, 1)
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
        paths = sorted(networkx.node_disjoint_paths(graph, publisher, subscriber), key=len)
    except networkx.NetworkXNoPath:
        paths = []
    if len(paths) < n:
        raise ParameterError(
            f"{n} paths that share no broker are needed from {publisher!r} to {subscriber!r}, and "
            f"the network has {len(paths)}: add links or brokers, or take logical brokers of {n}"
        )
    return paths[:n]


def missing_links(graph: networkx.Graph[str], connectivity: int) -> list[tuple[str, str]]:
    """Find links that give a network a vertex connectivity of at least `connectivity`.

    As long as fewer brokers cut the network in two, a link joins two of the parts, at brokers with
    few links. That takes few links, not always the fewest. Needs networkx.

    Args:
        graph: network of brokers. It is left as it is.
        connectivity: number of brokers whose loss may cut the network in two.

    Raises:
        ParameterError: there are no more brokers than `connectivity`.

    Example:
        >>> import networkx
        >>> from ccbps.overlay import missing_links
        >>> missing_links(networkx.path_graph("abcd"), 2)
        [('a', 'd')]
    """
    networkx = need("missing_links", "networks")
    if len(graph) <= whole("connectivity", connectivity, 1):
        raise ParameterError(
            f"a network of {len(graph)} brokers has a connectivity below {len(graph)}, got "
            f"{connectivity}"
        )
    names = [*graph]
    added: list[tuple[str, str]] = []
    # Numbers, as the order of a set of texts differs from process to process.
    numbered = networkx.relabel_nodes(networkx.Graph(graph), {n: i for i, n in enumerate(names)})
    while True:
        cut: set[int] = set()
        if networkx.is_connected(numbered):
            cut = networkx.minimum_node_cut(numbered)
            if len(cut) >= connectivity:
                return added
        left = numbered.subgraph([broker for broker in numbered if broker not in cut])
        parts = sorted(networkx.connected_components(left), key=len, reverse=True)
        ends = sorted(min(part, key=lambda one: (numbered.degree(one), one)) for part in parts[:2])
        numbered.add_edge(*ends)
        added.append((names[ends[0]], names[ends[1]]))


def shared_brokers(paths: Iterable[Iterable[str]]) -> list[str]:
    """List the brokers that are on more than one path. Parallel paths have none.

    Args:
        paths: paths whose ends are clients.

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


def _brokers(argument: str, count: int, least: int = 1) -> list[str]:
    return [f"B{number}" for number in range(1, whole(argument, count, least) + 1)]


def _subscribers(brokers: Sequence[str]) -> dict[str, str]:
    """Return one subscriber for each broker: S1, S2 and so on."""
    return {f"S{number}": broker for number, broker in enumerate(brokers, 1)}
