"""Watchers of a logical layer: members and observers who look for the sender of a message."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ccbps.arrays import Reals
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.checks import Printable, whole
from ccbps.loading import need
from ccbps.overlay.layers import LayerNode, joining_value
from ccbps.overlay.links import Links

if TYPE_CHECKING:
    import networkx

CELL_BYTES: Final = 8
MEMBERS: Final = (1, 2, 4, 8)
"""Members who watch together, of the curve."""


class WatchedPort(Printable):
    """A node's connections, which note when the node acts, and when its cells arrive.

    Args:
        layer: the layer.
        name: name of the node.
    """

    def __init__(self, layer: WatchedLayer, name: str) -> None:
        self.layer, self.name = layer, name

    def __repr__(self) -> str:
        return f"<WatchedPort of {self.name}>"

    def send(self, receiver: str, message: Any) -> None:
        """Send a cell, with the number of its act."""
        layer, now = self.layer, self.layer.links.time
        if not layer.acts or layer.acts[-1][:2] != (now, self.name):
            layer.acts.append((now, self.name, message.content))
            layer.came.append([])
        layer.links.send(self.name, receiver, (message, len(layer.acts) - 1))

    def receive(self, sender: str, message: Any) -> None:
        """Hand a cell to the node."""
        cell, act = message
        self.layer.came[act].append((self.layer.links.time, self.name, sender))
        self.layer.nodes[self.name].receive(sender, cell)


class WatchedLayer(Printable):
    """A logical layer over simulated links, whose nodes joined one after the other.

    Args:
        seed: seed of the layer and its links.
        nodes: number of nodes.
        joins: number of neighbours at which a node joins.

    Attributes:
        draw: source of the layer.
        links: simulated links.
        nodes: nodes by name.
        acts: time, node and content of each act.
        came: time, receiver and sender of each cell, by the number of its act.
        got: contents that came to each node.
        graph: links of the layer.
    """

    port: type[WatchedPort] = WatchedPort
    graph: networkx.Graph[str]

    def __init__(self, seed: int, nodes: int, joins: int = 3) -> None:
        networkx = need("WatchedLayer", "networks")
        self.draw, self.joins = random.Random(seed), joins  # noqa: S311  # A simulation.
        self.links = Links(seed=seed, delay=(0.2, 3))
        self.nodes: dict[str, LayerNode] = {}
        self.acts: list[tuple[float, str, bytes]] = []
        self.came: list[list[tuple[float, str, str]]] = []
        self.got: dict[str, list[bytes]] = {}
        self.graph = networkx.Graph()
        first = [f"n{number}" for number in range(joins + 1)]
        for name in first:
            self.make(name, 0, {other: 0 for other in first if other != name})
        for number in range(joins + 1, nodes):
            chosen = self.draw.choice(self.cliques(joins))
            value = joining_value(self.nodes[other].value for other in chosen)
            for other in chosen:
                self.nodes[other].add_neighbour(f"n{number}", number, value)
            self.make(f"n{number}", value, {other: self.nodes[other].value for other in chosen})

    def __repr__(self) -> str:
        return f"<WatchedLayer: {len(self.nodes)} nodes, {len(self.acts)} acts>"

    def cliques(self, size: int) -> list[list[str]]:
        """List the sets of so many nodes that are all linked to one another."""
        cliques = need("WatchedLayer", "networks").enumerate_all_cliques(self.graph)
        # The smallest come first.
        up_to = takewhile(lambda clique: len(clique) <= size, cliques)
        return [clique for clique in up_to if len(clique) == size]

    def make(self, name: str, value: int, views: dict[str, int | None]) -> None:
        """Make a node and its links.

        Args:
            name: name of the node.
            value: value at the start.
            views: values of its neighbours, by name.
        """
        self.got[name] = []
        self.nodes[name] = node = LayerNode(
            int(name[1:]),
            value,
            views,
            {other: int(other[1:]) for other in views},
            cell_bytes=CELL_BYTES,
            deliver=self.got[name].append,
            randomness=self.draw.randbytes,
        )
        for other in views:
            self.links.link(name, other)
            self.graph.add_edge(name, other)
        port = self.port(self, name)
        node.port = port
        self.links.attach(name, port)

    def start(self) -> None:
        """Let those nodes act whose turn it is."""
        for node in self.nodes.values():
            node.act()

    def run(self, time: float) -> None:
        """Let the layer run for a time."""
        self.links.run(until=self.links.time + time)


def possible_senders(
    layer: WatchedLayer, watchers: Sequence[str], content: bytes, counts: Sequence[int] = MEMBERS
) -> list[set[str]]:
    """Return the possible senders of a message in the view of members, by number of members.

    The members know the layer, and the times of all acts and cells. They see which neighbour
    brought the message first to each of them. They assume each node and each earlier act as the
    start of the message, follow it from act to act, and keep the nodes that would explain all first
    arrivals. Nothing else is on its way.

    Args:
        layer: the layer, after the message came to all watchers.
        watchers: members that collude.
        content: content of the message.
        counts: numbers of first watchers that take part.
    """
    seen = _first_arrivals(
        (came, receiver, sender)
        for (_, _, sent), cells in zip(layer.acts, layer.came, strict=True)
        if sent == content
        for came, receiver, sender in cells
    )
    last = max(
        place for place, (time, *_) in enumerate(layer.acts) if time <= max(seen.values())[0]
    )
    left: list[set[str]] = [set() for _ in counts]
    for origin in range(max(0, last - 8 * len(layer.nodes)), last + 1):
        time, name, _ = layer.acts[origin]
        has, acted, cells = {name: time}, set[str](), list[tuple[float, str, str]]()
        for place in range(origin, last + 1):
            time, actor, _ = layer.acts[place]
            if actor not in acted and has.get(actor, np.inf) <= time:
                acted.add(actor)
                cells += layer.came[place]
                for came, receiver, _ in layer.came[place]:
                    has[receiver] = min(came, has.get(receiver, np.inf))
                if len(acted) == len(layer.nodes):
                    break
        would = _first_arrivals(cells)
        for count, names in zip(counts, left, strict=True):
            mine = watchers[:count]
            if name not in mine and all(would.get(one) == seen[one] for one in mine):
                names.add(name)
    return left


def _first_arrivals(cells: Iterable[tuple[float, str, str]]) -> dict[str, tuple[float, str]]:
    """Return the time and the sender of the first cell at each receiver."""
    first: dict[str, tuple[float, str]] = {}
    for came, receiver, sender in cells:
        first[receiver] = min((came, sender), first.get(receiver, (came, sender)))
    return first


@attack(
    title="Members and observers of a logical layer look for the sender of a message",
    goal="confidentiality",
    adversary="members that know the layer and the times of all acts, or an observer of all links",
    defence="cells of one length on encrypted links; fewer neighbours for each node",
    source="[Survey]",
)
def layer_watchers(
    *, nodes: int = 30, joins: int = 3, fewer: int = 2, runs: int = 24, seed: int = 1
) -> Outcome:
    """Exclude senders of a message by the times and neighbours from which it first came.

    An observer who can tell messages from dummies by their length knows the sender: it is the first
    node whose act has the message. With cells of one length the observer sees all nodes act.

    Members see which cells are dummies. They exclude each sender from which the message would have
    come otherwise. Fewer neighbours for each node leave somewhat more senders, and a layer that
    fewer crashes cut in two. Layers differ much, so that this shows only in the mean of many.

    Needs networkx.

    Args:
        nodes: number of nodes, 10 to 100.
        joins: number of neighbours at which a node joins, at most 8.
        fewer: the same with the defence.
        runs: number of layers of each kind, at most 400.
        seed: seed of the layers.

    Example:
        >>> from ccbps.attacks import layer_watchers
        >>> outcome = layer_watchers(nodes=12, runs=2)
        >>> observer = outcome["senders left to an observer"]
        >>> observer.undefended, observer.defended
        (1.0, 12.0)
    """
    whole("nodes", nodes, max(MEMBERS) + 2, 100)
    first = whole("seed", seed, 0) * whole("runs", runs, 1, 400)

    def watch(joins: int) -> tuple[Reals, Reals]:
        """Return the mean number of senders left to members, and to observers."""
        inside, outside = [], []
        for number in range(first, first + runs):
            layer = WatchedLayer(number, nodes, joins)
            layer.start()
            layer.run(60)
            sender, *watchers = layer.draw.sample([*layer.nodes], 1 + max(MEMBERS))
            content, said = layer.draw.randbytes(CELL_BYTES), layer.links.time
            layer.nodes[sender].say(content)
            layer.run(150)
            inside.append([len(left) for left in possible_senders(layer, watchers, content)])
            first_act = min(act for act in layer.acts if act[2] == content)[1]
            acting = {name for time, name, _ in layer.acts if time >= said}
            # The sender alone is left only if it was the first to act with the message.
            outside.append([len({first_act, sender}), len(acting)])
        return np.mean(inside, axis=0), np.mean(outside, axis=0)

    (members, observer), (more, _) = (
        watch(whole("joins", joins, 1, max(MEMBERS))),
        watch(whole("fewer", fewer, 1, max(MEMBERS))),
    )
    return Outcome(
        (
            Figure("senders left to an observer", "", *observer.tolist()),
            *(
                Figure(f"senders left to {count} member{'s' * (count > 1)}", "", *left)
                for count, left in zip(
                    MEMBERS, zip(members.tolist(), more.tolist(), strict=True), strict=True
                )
            ),
        ),
        Curve(
            "members that watch together",
            "senders left",
            tuple(map(float, MEMBERS)),
            {
                f"{joins} neighbours": tuple(members.tolist()),
                f"with {fewer} neighbours": tuple(more.tolist()),
            },
            log="x",
        ),
    )
