"""Logical layers: no cycle, no two neighbours act at once, everybody acts, everything arrives."""

from __future__ import annotations

import random
from typing import Any

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.errors import ParameterError
from ccbps.overlay import Links
from ccbps.overlay.layers import Cell, LayerNode, joining_value
from tests.support.effort import examples

SIZE = 32


class Layer:
    """A layer over simulated links, with counters that are not taken modulo 3.

    Attributes:
        problems: what broke an invariant.
    """

    def __init__(self, seed: int, nodes: int, joins: int = 3, **options: Any) -> None:
        self.draw = random.Random(seed)
        self.links = Links(seed=seed, **({"delay": (0.2, 3)} | options))
        self.nodes: dict[str, LayerNode] = {}
        self.counters: dict[str, int] = {}
        self.got: dict[str, list[bytes]] = {}
        self.problems: list[str] = []
        first = [f"n{number}" for number in range(joins + 1)]
        for name in first:
            self.make(name, 0, [other for other in first if other != name], counter=0)
        for number in range(joins + 1, nodes):
            self.join(f"n{number}", joins)

    def make(self, name: str, value: int, neighbours: list[str], counter: int) -> None:
        number = int(name[1:])
        self.got[name] = []
        self.counters[name] = counter
        views = {
            other: self.nodes[other].value if other in self.nodes else 0 for other in neighbours
        }
        node = LayerNode(
            number,
            value,
            views,
            {other: int(other[1:]) for other in neighbours},
            cell_bytes=SIZE,
            deliver=self.got[name].append,
            randomness=self.draw.randbytes,
        )
        self.nodes[name] = node
        layer = self

        class Port:
            def send(self, receiver: str, cell: Cell) -> None:
                layer.links.send(name, receiver, cell)

        node.port = Port()
        self.links.attach(name, self.watched(name))
        for other in neighbours:
            self.links.link(name, other)

    def watched(self, name: str) -> Any:
        layer = self

        class Watched:
            def receive(self, sender: str, cell: Cell) -> None:
                layer.counted(name, lambda: layer.nodes[name].receive(sender, cell))

        return Watched()

    def counted(self, name: str, action: Any) -> None:
        """Let a node do something, and check all invariants."""
        before = self.nodes[name].acts
        sinks = [other for other in self.links.neighbours(name) if self.is_sink(other)]
        action()
        if self.nodes[name].acts == before:
            return
        self.counters[name] += 1
        if sinks:
            self.problems.append(f"{name} acts beside {sinks}")
        for other in self.links.neighbours(name):
            if other in self.counters and abs(self.counters[name] - self.counters[other]) > 1:
                self.problems.append(f"counters of {name} and {other} differ by 2")
        if not networkx.is_directed_acyclic_graph(self.graph()):
            self.problems.append("a cycle")

    def is_sink(self, name: str) -> bool:
        """Tell whether all links point to a node, by the true values."""
        return all(self.points(other, name) for other in self.links.neighbours(name))

    def points(self, start: str, end: str) -> bool:
        one, two = self.nodes[start], self.nodes[end]
        return one.value == (two.value + 1) % 3 or (
            one.value == two.value and two.number < one.number
        )

    def graph(self) -> Any:
        graph = networkx.DiGraph()
        graph.add_nodes_from(self.nodes)
        for name in self.nodes:
            graph.add_edges_from(
                (name, other) for other in self.links.neighbours(name) if self.points(name, other)
            )
        return graph

    def undirected(self) -> Any:
        return self.graph().to_undirected()

    def join(self, name: str, count: int) -> None:
        """Join at some nodes that are mutually adjacent."""
        graph = self.undirected()
        cliques = [c for c in networkx.enumerate_all_cliques(graph) if len(c) == count]
        chosen = self.draw.choice(cliques)
        values = [self.nodes[other].value for other in chosen]
        value = joining_value(values)
        highest = max(self.counters[other] for other in chosen)
        lowest = min(self.counters[other] for other in chosen)
        counter = highest if highest > lowest else highest + 1
        assert counter % 3 == value
        for other in chosen:
            self.nodes[other].add_neighbour(name, int(name[1:]), value)
        self.make(name, value, chosen, counter)

    def start(self) -> None:
        for name, node in self.nodes.items():
            self.counted(name, node.act)

    def run(self, time: float) -> None:
        self.links.run(until=self.links.time + time)


@given(st.integers(0, 1 << 32), st.integers(4, 14), st.integers(1, 3))
@settings(max_examples=examples(80))
def test_invariants_hold_with_any_delays_and_joins(seed: int, nodes: int, joins: int) -> None:
    layer = Layer(seed, nodes, joins)
    layer.start()
    layer.run(60)
    for number in range(3):
        layer.join(f"n{nodes + number}", joins)
        layer.counted(f"n{nodes + number}", layer.nodes[f"n{nodes + number}"].act)
        layer.run(40)
    assert layer.problems == []
    before = {name: node.acts for name, node in layer.nodes.items()}
    layer.run(300)
    assert all(node.acts > before[name] for name, node in layer.nodes.items())
    # Counters of two nodes differ by no more than their distance.
    distances = dict(networkx.all_pairs_shortest_path_length(layer.undirected()))
    assert all(
        abs(layer.counters[a] - layer.counters[b]) <= distances[a][b]
        for a in layer.nodes
        for b in layer.nodes
    )


def test_every_message_reaches_every_node_once() -> None:
    layer = Layer(4, 30)
    layer.start()
    layer.run(20)
    sent = [bytes([number]) * SIZE for number in range(5)]
    for number, content in enumerate(sent):
        layer.nodes[f"n{5 * number}"].say(content)
    layer.run(400)
    for name, got in layer.got.items():
        own = [content for number, content in enumerate(sent) if name == f"n{5 * number}"]
        assert sorted(got + own) == sent
    # Each act sends one cell to each neighbour, a message or a dummy.
    degrees = dict(layer.undirected().degree())
    assert layer.links.messages == sum(
        node.acts * degrees[name] for name, node in layer.nodes.items()
    )


@pytest.mark.parametrize("least", [600, pytest.param(3_000, marks=pytest.mark.slow)])
def test_acts_are_fair(least: int) -> None:
    """Nobody is ahead by more than the diameter and the difference at the start."""
    layer = Layer(9, 25)
    layer.start()
    while sum(node.acts for node in layer.nodes.values()) < least:
        layer.run(10)
    acts = [node.acts for node in layer.nodes.values()]
    diameter = networkx.diameter(layer.undirected())
    assert max(acts) - min(acts) <= 2 * diameter
    assert min(acts) > least / 30 - 5


@pytest.mark.parametrize("n", [2, 3])
def test_joining_n_neighbours_leaves_the_layer_n_connected(n: int) -> None:
    assert networkx.node_connectivity(Layer(2, 25, n).undirected()) == n


def test_crashed_neighbours_are_dropped_and_the_rest_goes_on() -> None:
    layer = Layer(6, 20, 3)
    layer.start()
    layer.run(30)
    for name in ("n5", "n11"):  # fewer than 3
        layer.links.crash(name)
        for other in layer.links.neighbours(name):
            layer.links.unlink(name, other)
            layer.nodes[other].drop_neighbour(name)
        del layer.nodes[name]
        for other, node in layer.nodes.items():
            layer.counted(other, node.act)
    layer.run(30)
    before = {name: node.acts for name, node in layer.nodes.items()}
    layer.nodes["n0"].say(b"x" * SIZE)
    layer.run(300)
    assert all(node.acts > before[name] for name, node in layer.nodes.items())
    assert all(layer.got[name] == [b"x" * SIZE] for name in layer.nodes if name != "n0")
    assert layer.problems == []


@pytest.mark.parametrize("runs", [3, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fifo", [True, False])
def test_links_need_not_keep_an_order(runs: int, fifo: bool) -> None:
    """Neighbours act in turn, so cells of one link cannot overtake one another."""
    for seed in range(runs):
        layer = Layer(seed, 12, 2, fifo=fifo, delay=(0.1, 8))
        layer.start()
        for number in range(12, 15):
            layer.run(50)
            layer.join(f"n{number}", 2)
            layer.counted(f"n{number}", layer.nodes[f"n{number}"].act)
        layer.run(150)
        before = {name: node.acts for name, node in layer.nodes.items()}
        layer.run(150)
        assert layer.problems == []
        assert all(node.acts > before[name] for name, node in layer.nodes.items())


def test_values_of_nodes_that_join() -> None:
    assert [joining_value(values) for values in ([0], [1, 1], [2])] == [1, 2, 0]
    assert [joining_value(values) for values in ([0, 1], [1, 2, 1], [2, 0])] == [1, 2, 0]
    for values in ([0, 1, 2], []):
        with pytest.raises(ParameterError, match="one value or two"):
            joining_value(values)


def test_a_start_by_the_printed_rules_closes_cycles() -> None:
    """[Survey] algorithm 4 gives 0 beside {0, 1} and {1, 2}."""
    broken = 0
    for values in ([0, 1], [1, 2]):
        printed = 0 if values != [0, 2] else 2
        # p joins at i and j, which are linked: with its value, do the three links form a cycle?
        numbers = {"i": 0, "j": 1, "p": 2}
        value = {"i": values[0], "j": values[1], "p": printed}
        graph = networkx.DiGraph()
        for one in value:
            for two in value:
                if one != two and (
                    value[one] == (value[two] + 1) % 3
                    or (value[one] == value[two] and numbers[two] < numbers[one])
                ):
                    graph.add_edge(one, two)
        broken += not networkx.is_directed_acyclic_graph(graph)
    assert broken


def test_contents_have_one_length() -> None:
    node = Layer(1, 4).nodes["n0"]
    with pytest.raises(ParameterError):
        node.say(b"short")
