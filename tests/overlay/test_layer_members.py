"""Members of a layer that lie, join at the worst time, or watch; and how many senders are left."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import Any

import networkx
import numpy as np
import pytest

from ccbps.errors import RefusedError
from ccbps.overlay import Links
from ccbps.overlay.layers import ID_BYTES, Cell, LayerNode, joining_value
from tests.support.refusals import refused

SIZE = 8


class Layer:
    """A layer over simulated links, whose nodes join by messages.

    Attributes:
        acts: time, node and content of each act.
        came: time, receiver and sender of each cell, by the number of its act.
        got: contents by node.
    """

    def __init__(self, seed: int, nodes: int, joins: int = 3) -> None:
        self.draw, self.joins = random.Random(seed), joins
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
            cliques = networkx.enumerate_all_cliques(self.graph)
            chosen = self.draw.choice([c for c in cliques if len(c) == joins])
            value = joining_value(self.nodes[other].value for other in chosen)
            for other in chosen:
                self.nodes[other].add_neighbour(f"n{number}", number, value)
            self.make(f"n{number}", value, {other: self.nodes[other].value for other in chosen})

    def make(self, name: str, value: int, views: dict[str, int | None]) -> None:
        self.got[name] = []
        self.nodes[name] = node = LayerNode(
            int(name[1:]),
            value,
            views,
            {other: int(other[1:]) for other in views},
            cell_bytes=SIZE,
            deliver=self.got[name].append,
            randomness=self.draw.randbytes,
        )
        for other in views:
            self.links.link(name, other)
            self.graph.add_edge(name, other)
        node.port = _Port(self, name)
        self.links.attach(name, node.port)

    def start(self) -> None:
        for node in self.nodes.values():
            node.act()

    def run(self, time: float) -> None:
        self.links.run(until=self.links.time + time)

    def goes_on(self) -> bool:
        """Tell whether every node acts again and again."""
        before = {name: node.acts for name, node in self.nodes.items()}
        self.run(300)
        return all(node.acts > before[name] + 5 for name, node in self.nodes.items())


class _Port:
    """The connections of a node: its cells, and the messages by which others join at it."""

    def __init__(self, layer: Layer, name: str) -> None:
        self.layer, self.name = layer, name

    def send(self, receiver: str, message: Any) -> None:
        layer = self.layer
        if isinstance(message, Cell):
            if not layer.acts or layer.acts[-1][:2] != (layer.links.time, self.name):
                layer.acts.append((layer.links.time, self.name, message.content))
                layer.came.append([])
            message = message, len(layer.acts) - 1
        layer.links.send(self.name, receiver, message)

    def receive(self, sender: str, message: Any) -> None:
        layer, node = self.layer, self.layer.nodes.get(self.name)
        if isinstance(message[0], Cell):
            layer.came[message[1]].append((layer.links.time, self.name, sender))
            assert node is not None
            node.receive(sender, message[0])
        elif message[0] == "join":
            assert node is not None
            if message[1]:
                node.add_neighbour(sender, int(sender[1:]))
            self.send(sender, ("value", node.value))
        elif message[0] == "value":
            self.values[sender] = message[1]
            if len(self.values) == len(self.chosen):
                value = joining_value(self.values.values())
                layer.make(self.name, value, {**self.values})
                for other in self.chosen:
                    self.send(other, ("joined", value))
                layer.nodes[self.name].act()
        elif message[0] == "joined":
            assert node is not None
            node.add_neighbour(sender, int(sender[1:]), message[1])
            node.act()

    def join(self, chosen: list[str], *, held: bool) -> None:
        """Ask neighbours for their values; `held` says whether they wait for the answer."""
        self.chosen, self.values = chosen, dict[str, int]()
        for other in chosen:
            self.layer.links.link(self.name, other)
            self.send(other, ("join", held))


@pytest.mark.parametrize(("held", "seeds"), [(True, 6), (False, 12)])
def test_neighbours_wait_while_a_node_joins(held: bool, seeds: int) -> None:
    """Without that, a node starts with values that are no longer so, and layers stop."""
    stopped = 0
    for seed in range(seeds):
        layer = Layer(seed, 8, 2)
        layer.start()
        for number in range(8, 12):
            layer.run(20 * layer.draw.random())
            cliques = networkx.enumerate_all_cliques(layer.graph)
            chosen = layer.draw.choice([c for c in cliques if len(c) == 2])
            port = _Port(layer, f"n{number}")
            layer.links.attach(port.name, port)
            port.join(chosen, held=held)
            if number % 2:  # two join at one time
                layer.run(50)
        stopped += not layer.goes_on()
        assert not held or all(not node.dropped for node in layer.nodes.values())
    assert (stopped == 0) is held


NOTHING = bytes(SIZE)


@pytest.mark.parametrize(
    ("number", "cells"),
    [
        pytest.param(3, [Cell(2, b"", NOTHING)], id="wrong value"),
        pytest.param(3, [Cell(4, b"", NOTHING)], id="no value"),
        pytest.param(3, [Cell(1, b"", NOTHING), Cell(2, b"", NOTHING)], id="twice"),
        pytest.param(0, [Cell(1, b"", NOTHING)], id="before its turn"),
        pytest.param(3, [Cell(1, b"", b"")], id="short"),
        pytest.param(3, [Cell(1, b"", bytes(SIZE + 1))], id="long"),
        pytest.param(3, [Cell(1, b"?", NOTHING)], id="id"),
    ],
)
def test_a_neighbour_that_breaks_the_rules_is_forgotten(number: int, cells: list[Cell]) -> None:
    """It has the number 2. With a higher number than that, its turn is first."""
    got: list[bytes] = []
    links = Links([("node", "other")])
    values = {"liar": 0, "other": 0}
    node = LayerNode(
        number, 0, values, {"liar": 2, "other": 1}, cell_bytes=SIZE, deliver=got.append
    )
    node.port = links.attach("node", node)
    for cell in cells:
        assert not node.dropped
        node.receive("liar", cell)
    assert node.dropped == {"forgotten": 1}
    assert [*node.views] == ["other"]
    assert not got


def test_a_layer_goes_on_without_members_that_lie() -> None:
    layer = Layer(3, 14)
    layer.start()
    layer.run(40)
    liar = layer.nodes.pop("n13")

    class Lying(_Port):
        def send(self, receiver: str, message: Cell) -> None:
            super().send(receiver, Cell((message.value + 1) % 3, message.id, message.content))

        def receive(self, sender: str, message: Any) -> None:
            liar.receive(sender, message[0])

    liar.port = Lying(layer, "n13")
    layer.links.attach("n13", liar.port)
    layer.run(40)
    assert all("n13" not in node.views for node in layer.nodes.values())
    assert layer.goes_on()


def test_a_flood_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccbps.overlay.layers.MOST_WAITING", 5)
    monkeypatch.setattr("ccbps.overlay.layers.MOST_KNOWN", 7)
    layer = Layer(1, 4)
    node, got = layer.nodes["n0"], layer.got["n0"]
    for _ in range(5):
        node.say(bytes(SIZE))
    refused(RefusedError, "too many messages", node.say, bytes(SIZE))
    name = os.urandom(ID_BYTES)
    node._take(name, bytes(SIZE))
    assert (node.dropped, name in node._known) == ({"full": 1}, True)
    for _ in range(20):
        node._take(os.urandom(ID_BYTES), bytes(SIZE))
    assert len(node._known) == 7
    assert len(node._queue) == 5
    assert got == []


# -- anonymity --------------------------------------------------------------------------------


MEMBERS = (1, 2, 4, 8)


def senders(layer: Layer, watchers: list[str], content: bytes) -> list[set[str]]:
    """Return the senders of a message that members have to reckon with, by their number `MEMBERS`.

    They know the layer, and when everybody acted and each cell came. They see which neighbour
    brought the message first to each of them. They take each node and each act before for the start
    of the message, follow it from act to act, and keep the nodes from which it would come as it
    did. Nothing else is on its way.
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
    left: list[set[str]] = [set() for _ in MEMBERS]
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
        would = _first_arrivals(cells)
        for count, names in zip(MEMBERS, left, strict=True):
            mine = watchers[:count]
            if name not in mine and all(would.get(one) == seen[one] for one in mine):
                names.add(name)
    return left


def _first_arrivals(cells: Iterable[tuple[float, str, str]]) -> dict[str, tuple[float, str]]:
    """Return when the first cell came to each receiver, and from whom."""
    first: dict[str, tuple[float, str]] = {}
    for came, receiver, sender in cells:
        first[receiver] = min((came, sender), first.get(receiver, (came, sender)))
    return first


@pytest.mark.parametrize(("runs", "within"), [(2, 9), pytest.param(60, 1, marks=pytest.mark.slow)])
def test_how_many_senders_are_left(runs: int, within: float) -> None:
    """30 nodes that joined 3 each; the figures of docs/routing.md.

    Further messages of the sender tell little, since the order of acts stays as it is.
    """
    counts = []
    for seed in range(runs):
        layer = Layer(seed, 30)
        layer.start()
        layer.run(60)
        sender, *watchers = layer.draw.sample([*layer.nodes], 1 + max(MEMBERS))
        left, outside = [{*layer.nodes} for _ in MEMBERS], {*layer.nodes}
        counts.append([])
        for number in range(5):
            content = number.to_bytes(SIZE - 1, "big") + b"!"
            layer.nodes[sender].say(content)
            layer.run(150 + 20 * layer.draw.random())
            came = senders(layer, watchers, content)
            left = [one & more for one, more in zip(left, came, strict=True)]
            assert all(sender in one for one in left)
            counts[-1].append([len(one) for one in left])
            # Without dummies, a cell that carries something is longer: the first is the sender's.
            outside &= {min(act for act in layer.acts if act[2] == content)[1]}
        assert outside == {sender}
    means = np.mean(counts, axis=0)
    assert np.abs(means[0] - [14, 8.3, 4.4, 1.8]).max() < within
    assert (means[0] - means[-1] < 1).all()
