"""Members of a layer that lie, join at the worst time, or watch; and how many senders are left."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from ccbps.attacks import layer_watchers
from ccbps.attacks.network.watchers import (
    CELL_BYTES,
    MEMBERS,
    WatchedLayer,
    WatchedPort,
    possible_senders,
)
from ccbps.errors import RefusedError
from ccbps.overlay import Links
from ccbps.overlay.layers import ID_BYTES, Cell, LayerNode, joining_value
from tests.support.refusals import refused


class _Port(WatchedPort):
    """The connections of a node: its cells, and the messages by which others join at it."""

    def send(self, receiver: str, message: Any) -> None:
        if isinstance(message, Cell):
            super().send(receiver, message)
        else:
            self.layer.links.send(self.name, receiver, message)

    def receive(self, sender: str, message: Any) -> None:
        layer, node = self.layer, self.layer.nodes.get(self.name)
        if isinstance(message[0], Cell):
            super().receive(sender, message)
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


class Layer(WatchedLayer):
    """A layer whose nodes join by messages."""

    port = _Port

    def goes_on(self) -> bool:
        """Tell whether every node acts again and again."""
        before = {name: node.acts for name, node in self.nodes.items()}
        self.run(300)
        return all(node.acts > before[name] + 5 for name, node in self.nodes.items())


@pytest.mark.parametrize(("held", "seeds"), [(True, 6), (False, 12)])
def test_neighbours_wait_while_a_node_joins(held: bool, seeds: int) -> None:
    """Without that, a node starts with values that are no longer so, and layers stop."""
    stopped = 0
    for seed in range(seeds):
        layer = Layer(seed, 8, 2)
        layer.start()
        for number in range(8, 12):
            layer.run(20 * layer.draw.random())
            chosen = layer.draw.choice(layer.cliques(2))
            port = _Port(layer, f"n{number}")
            layer.links.attach(port.name, port)
            port.join(chosen, held=held)
            if number % 2:  # two join at one time
                layer.run(50)
        stopped += not layer.goes_on()
        assert not held or all(not node.dropped for node in layer.nodes.values())
    assert (stopped == 0) is held


NOTHING = bytes(CELL_BYTES)


@pytest.mark.parametrize(
    ("number", "cells"),
    [
        pytest.param(3, [Cell(2, b"", NOTHING)], id="wrong value"),
        pytest.param(3, [Cell(4, b"", NOTHING)], id="no value"),
        pytest.param(3, [Cell(1, b"", NOTHING), Cell(2, b"", NOTHING)], id="twice"),
        pytest.param(0, [Cell(1, b"", NOTHING)], id="before its turn"),
        pytest.param(3, [Cell(1, b"", b"")], id="short"),
        pytest.param(3, [Cell(1, b"", bytes(CELL_BYTES + 1))], id="long"),
        pytest.param(3, [Cell(1, b"?", NOTHING)], id="id"),
    ],
)
def test_a_neighbour_that_breaks_the_rules_is_forgotten(number: int, cells: list[Cell]) -> None:
    """It has the number 2. With a higher number than that, its turn is first."""
    got: list[bytes] = []
    links = Links([("node", "other")])
    values = {"liar": 0, "other": 0}
    node = LayerNode(
        number, 0, values, {"liar": 2, "other": 1}, cell_bytes=CELL_BYTES, deliver=got.append
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
        node.say(bytes(CELL_BYTES))
    refused(RefusedError, "too many messages", node.say, bytes(CELL_BYTES))
    name = os.urandom(ID_BYTES)
    node._take(name, bytes(CELL_BYTES))
    assert (node.dropped, name in node._known) == ({"full": 1}, True)
    for _ in range(20):
        node._take(os.urandom(ID_BYTES), bytes(CELL_BYTES))
    assert len(node._known) == 7
    assert len(node._queue) == 5
    assert got == []


# -- anonymity --------------------------------------------------------------------------------


@pytest.mark.parametrize(("runs", "within"), [(2, 9), pytest.param(60, 1, marks=pytest.mark.slow)])
def test_how_many_senders_are_left(runs: int, within: float) -> None:
    """30 nodes that joined 3 each; the figures of docs/routing.md.

    Further messages of the sender tell little, since the order of acts stays as it is.
    """
    counts: list[list[list[int]]] = []
    for seed in range(runs):
        layer = Layer(seed, 30)
        layer.start()
        layer.run(60)
        sender, *watchers = layer.draw.sample([*layer.nodes], 1 + max(MEMBERS))
        left, outside = [{*layer.nodes} for _ in MEMBERS], {*layer.nodes}
        counts.append([])
        for number in range(5):
            content = number.to_bytes(CELL_BYTES - 1, "big") + b"!"
            layer.nodes[sender].say(content)
            layer.run(150 + 20 * layer.draw.random())
            came = possible_senders(layer, watchers, content)
            left = [one & more for one, more in zip(left, came, strict=True)]
            assert all(sender in one for one in left)
            counts[-1].append([len(one) for one in left])
            # Without dummies, a cell that carries something is longer: the first is the sender's.
            outside &= {min(act for act in layer.acts if act[2] == content)[1]}
        assert outside == {sender}
    means = np.mean(counts, axis=0)
    assert np.abs(means[0] - [14, 8.3, 4.4, 1.8]).max() < within
    assert (means[0] - means[-1] < 1).all()


def test_an_observer_and_members() -> None:
    """An observer knows the sender by a longer cell; of cells of one length all might be it."""
    outcome = layer_watchers(nodes=14, runs=2)
    observer = outcome["senders left to an observer"]
    assert (observer.undefended, observer.defended) == (1, 14)
    for line in outcome.curve.lines.values():
        assert [*line] == sorted(line, reverse=True)
        assert line[0] < 14 and line[-1] >= 1


@pytest.mark.slow
def test_fewer_neighbours_leave_more_senders_on_average() -> None:
    outcome = layer_watchers(runs=150)
    for members in ("1 member", "2 members", "4 members", "8 members"):
        left = outcome[f"senders left to {members}"]
        assert left.defended is not None
        assert left.undefended < left.defended < 1.5 * left.undefended
