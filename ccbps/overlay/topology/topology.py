"""Networks of logical brokers, and the routes of a publisher's secrets through them.

A *logical broker* stands for m physical ones that are all linked to whatever it is linked to. So
one path through logical brokers is m parallel paths of physical brokers, which share none: fragment
i of a secret takes the i-th broker of each hop.

A secret's route is a tree: shortest paths from the publisher's broker to those of the subscribers,
in breadth-first order, which branch as late as they can.

Source: [Survey] section 2.3.2 for logical brokers and parallel paths, 9.2 and 9.3 for lines and
trees.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ccbps.errors import ParameterError

if TYPE_CHECKING:
    import networkx

PUBLISHER = "publisher"
NUMBERED = re.compile(r"\.\d+$")


class PhysicalBroker(NamedTuple):
    """One of the m brokers of a logical one.

    Attributes:
        broker: the logical broker's name.
        number: 1 .. m.
    """

    broker: str
    number: int

    def __str__(self) -> str:
        return f"{self.broker}.{self.number}"


class Topology:
    """Logical brokers, their links, and where clients are.

    Attributes:
        links: each broker's neighbours, in order.
        root: the broker that the publisher is at.
        subscribers: the broker that each subscriber is at.

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
    """

    def __init__(
        self, edges: Iterable[tuple[str, str]], root: str, subscribers: Mapping[str, str]
    ) -> None:
        """
        Args:
            edges: pairs of brokers that are linked.
            root: the publisher's broker.
            subscribers: each subscriber's broker, by the subscriber's name.

        Raises:
            ParameterError: a name is not a non-empty string, or has two meanings; there is no
                subscriber, or no path to one.
        """
        links: dict[str, dict[str, None]] = {root: {}}
        for one, other in edges:
            if one == other:
                raise ParameterError(f"edges must be between two brokers, got {one!r} twice")
            links.setdefault(one, {})[other] = None
            links.setdefault(other, {})[one] = None
        self.links = {name: [*near] for name, near in links.items()}
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
        """Brokers B1 .. B<hops> in a row, the publisher at the first, subscriber S1 at the last."""
        names = _names(hops, "hops")
        return cls(pairwise(names), names[0], {"S1": names[-1]})

    @classmethod
    def star(cls, leaves: int) -> Self:
        """B1 with the publisher in the middle, and a broker with one subscriber on each ray."""
        check_count(leaves, "leaves")
        names = _names(leaves + 1, "leaves")
        return cls(
            [(names[0], leaf) for leaf in names[1:]],
            names[0],
            {f"S{i}": leaf for i, leaf in enumerate(names[1:], 1)},
        )

    @classmethod
    def ring(cls, brokers: int) -> Self:
        """B1 .. B<brokers> in a circle, the publisher at B1, a subscriber at each other broker."""
        names = _names(brokers, "brokers", least=3)
        return cls(
            pairwise([*names, names[0]]),
            names[0],
            {f"S{i}": name for i, name in enumerate(names[1:], 1)},
        )

    @classmethod
    def tree(cls, depth: int, fanout: int, *, subscribers: int = 1) -> Self:
        """A tree in breadth-first order: B1 has the publisher, the leaves have the subscribers.

        Args:
            depth: brokers on each path, at least 1.
            fanout: links of each broker to brokers of the next level.
            subscribers: of each leaf.

        Raises:
            ParameterError: one of them is not a number of at least 1.
        """
        for name, value in (("depth", depth), ("fanout", fanout), ("subscribers", subscribers)):
            check_count(value, name)
        edges, level, count = [], ["B1"], 1
        for _ in range(depth - 1):
            below = []
            for parent in level:
                for _ in range(fanout):
                    count += 1
                    below.append(f"B{count}")
                    edges.append((parent, below[-1]))
            level = below
        ends = [leaf for leaf in level for _ in range(subscribers)]
        return cls(edges, "B1", {f"S{i}": leaf for i, leaf in enumerate(ends, 1)})

    @classmethod
    def from_graph(
        cls, graph: networkx.Graph[str], root: str, subscribers: Mapping[str, str]
    ) -> Self:
        """Of a networkx graph, whose nodes are logical brokers: a file of edges is read by
        ``networkx.read_edgelist``.

        Raises:
            ParameterError: see `Topology`.
        """
        return cls(graph.edges(), root, subscribers)

    # -- routes -----------------------------------------------------------------------------------

    @cached_property
    def _parents(self) -> dict[str, str]:
        """The broker before each one on a shortest path; the root's is the publisher."""
        parents, waiting = {self.root: PUBLISHER}, deque([self.root])
        while waiting:
            broker = waiting.popleft()
            for near in self.links[broker]:
                if near not in parents:
                    parents[near] = broker
                    waiting.append(near)
        return parents

    @cached_property
    def route(self) -> list[str]:
        """The brokers on a way to a subscriber, breadth-first from the root."""
        needed: set[str] = set()
        for broker in self.subscribers.values():
            while broker != PUBLISHER and broker not in needed:
                needed.add(broker)
                broker = self._parents[broker]
        return [broker for broker in self._parents if broker in needed]

    @cached_property
    def children(self) -> dict[str, list[str]]:
        """The brokers of the route that follow each broker of it."""
        children: dict[str, list[str]] = {broker: [] for broker in self.route}
        for broker in self.route[1:]:
            children[self._parents[broker]].append(broker)
        return children

    @cached_property
    def clients(self) -> dict[str, list[str]]:
        """The subscribers of each broker of the route."""
        clients: dict[str, list[str]] = {broker: [] for broker in self.route}
        for subscriber, broker in self.subscribers.items():
            clients[broker].append(subscriber)
        return clients

    def path(self, subscriber: str) -> list[str]:
        """The brokers on the way to a subscriber, the publisher's first."""
        if subscriber not in self.subscribers:
            raise ParameterError(f"subscriber must be one of {[*self.subscribers]}")
        return [*self._back(self.subscribers[subscriber])][::-1]

    def _back(self, broker: str) -> Iterator[str]:
        while broker != PUBLISHER:
            yield broker
            broker = self._parents[broker]

    # -- physical brokers -------------------------------------------------------------------------

    def physical(self, m: int) -> networkx.Graph[str]:
        """The network of m physical brokers for each logical one, and all clients.

        Nodes are named as `PhysicalBroker` prints, or as the client. Needs networkx.

        Raises:
            ParameterError: m is not a number of at least 1, or networkx is not installed.
        """
        networkx = graph_library("physical")
        check_count(m, "m")
        graph = networkx.Graph()
        members = {
            name: [str(PhysicalBroker(name, i)) for i in range(1, m + 1)] for name in self.links
        }
        members[PUBLISHER] = [PUBLISHER]
        members |= {name: [name] for name in self.subscribers}
        pairs = [(one, other) for one, near in self.links.items() for other in near]
        pairs += [(PUBLISHER, self.root), *self.subscribers.items()]
        for one, other in pairs:
            graph.add_edges_from((a, b) for a in members[one] for b in members[other])
        return graph


def graph_library(use: str) -> Any:
    """networkx.

    Raises:
        ParameterError: it is not installed.
    """
    try:
        import networkx
    except ImportError:
        raise ParameterError(f"{use} needs networkx: pip install 'ccbps[networks]'") from None
    return networkx


def _names(count: int, name: str, *, least: int = 1) -> list[str]:
    check_count(count, name, least)
    return [f"B{i}" for i in range(1, count + 1)]


def check_count(value: int, name: str, least: int = 1) -> None:
    """Raise ParameterError unless this is a whole number, and large enough."""
    if type(value) is not int or value < least:
        raise ParameterError(f"{name} must be a whole number, at least {least}, got {value!r}")
