"""Networks of logical brokers: shapes, routes, and paths that share no broker."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.errors import ParameterError
from ccbps.overlay import PhysicalBroker, Topology, missing_links, parallel_paths, shared_brokers
from tests.support.effort import examples

EDGES = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "a"), ("e", "f")]


def test_line() -> None:
    line = Topology.line(4)
    assert line.route == line.path("S1") == ["B1", "B2", "B3", "B4"]
    assert line.children == {"B1": ["B2"], "B2": ["B3"], "B3": ["B4"], "B4": []}
    assert line.clients == {"B1": [], "B2": [], "B3": [], "B4": ["S1"]}
    assert line.links["B2"] == ["B1", "B3"]
    assert Topology.line(1).path("S1") == ["B1"]


def test_star() -> None:
    star = Topology.star(3)
    assert star.children == {"B1": ["B2", "B3", "B4"], "B2": [], "B3": [], "B4": []}
    assert star.subscribers == {"S1": "B2", "S2": "B3", "S3": "B4"}


def test_ring_goes_both_ways() -> None:
    ring = Topology.ring(6)
    assert [len(near) for near in ring.links.values()] == [2] * 6
    assert ring.path("S2") == ["B1", "B2", "B3"]
    assert ring.path("S4") == ["B1", "B6", "B5"]
    assert len(ring.path("S3")) == 4


@pytest.mark.parametrize(("depth", "fanout", "each"), [(1, 3, 2), (2, 1, 1), (3, 2, 2), (4, 3, 1)])
def test_tree(depth: int, fanout: int, each: int) -> None:
    tree = Topology.tree(depth, fanout, subscribers=each)
    assert len(tree.links) == sum(fanout**level for level in range(depth))
    assert len(tree.subscribers) == each * fanout ** (depth - 1)
    assert tree.route == [f"B{i}" for i in range(1, len(tree.links) + 1)]
    assert {len(tree.path(subscriber)) for subscriber in tree.subscribers} == {depth}
    assert all(len(below) in (0, fanout) for below in tree.children.values())


def test_brokers_on_no_way_to_a_subscriber_get_nothing() -> None:
    imported = Topology(EDGES, "a", {"near": "a", "far": "d"})
    assert imported.route == ["a", "c", "d"]
    assert imported.children == {"a": ["c"], "c": ["d"], "d": []}
    assert imported.clients == {"a": ["near"], "c": [], "d": ["far"]}
    assert repr(imported) == "<Topology of 6 logical brokers, 6 links and 2 subscribers>"


def test_edges_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "network.edges"
    file.write_text("".join(f"{one} {other}\n" for one, other in EDGES))
    graph = networkx.read_edgelist(file)
    imported = Topology(graph.edges, "a", {"far": "d", "side": "f"})
    assert imported.path("far") == ["a", "c", "d"]
    assert imported.path("side") == ["a", "e", "f"]


@given(seed=st.integers(0, 1 << 30), nodes=st.integers(2, 12))
@settings(max_examples=examples(60), deadline=None)
def test_routes_are_shortest_paths(seed: int, nodes: int) -> None:
    graph = networkx.gnp_random_graph(nodes, 0.4, seed=seed)
    graph = networkx.relabel_nodes(graph, {i: f"b{i}" for i in range(nodes)})
    reached = sorted(networkx.node_connected_component(graph, "b0"))
    topology = Topology(graph.edges, "b0", {f"s{name}": name for name in reached})
    assert sorted(topology.route) == reached
    for subscriber, broker in topology.subscribers.items():
        path = topology.path(subscriber)
        assert len(path) == networkx.shortest_path_length(graph, "b0", broker) + 1
        assert all(child in topology.children[parent] for parent, child in pairwise(path))
        assert all(graph.has_edge(one, other) for one, other in pairwise(path))


@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize(
    "topology", [Topology.line(3), Topology.ring(5), Topology.tree(3, 2)], ids=repr
)
def test_logical_brokers_of_m_have_m_parallel_paths(topology: Topology, m: int) -> None:
    graph = topology.physical(m)
    for subscriber in topology.subscribers:
        paths = parallel_paths(graph, "publisher", subscriber, m)
        assert len(paths) == m
        assert shared_brokers(paths) == []
        for path in paths:
            assert path[0] == "publisher" and path[-1] == subscriber
            assert all(graph.has_edge(one, other) for one, other in pairwise(path))
    # Of a tree and a line there is one path of logical brokers, so that there are no more.
    if topology.links["B1"] != ["B2", "B5"]:
        with pytest.raises(ParameterError, match=f"and the network has {m}: add links or brokers"):
            parallel_paths(graph, "publisher", "S1", m + 1)


def test_a_ring_has_two_ways() -> None:
    graph = Topology.ring(4).physical(2)
    assert len(parallel_paths(graph, "publisher", "S2", 2)) == 2
    # The publisher is at two brokers only.
    with pytest.raises(ParameterError, match="the network has 2"):
        parallel_paths(graph, "publisher", "S2", 3)


def test_paths_that_share_brokers() -> None:
    one, two, three = ["P", "a", "b", "S"], ["P", "c", "d", "S"], ["P", "b", "d", "S"]
    assert shared_brokers([one, two]) == []
    assert shared_brokers([one, two, three]) == ["b", "d"]
    assert shared_brokers([]) == []


def test_parallel_paths_need_brokers_between() -> None:
    graph = networkx.Graph([("P", "a"), ("a", "S"), ("P", "T"), ("x", "y")])
    assert parallel_paths(graph, "P", "S", 1) == [["P", "a", "S"]]
    with pytest.raises(ParameterError, match="must have brokers between them"):
        parallel_paths(graph, "P", "T", 1)
    with pytest.raises(ParameterError, match="graph has no node 'Q'"):
        parallel_paths(graph, "Q", "S", 1)
    with pytest.raises(ParameterError, match="the network has 0"):
        parallel_paths(graph, "P", "y", 1)
    with pytest.raises(ParameterError, match="n must be a whole number, at least 1, got 0"):
        parallel_paths(graph, "P", "S", 0)


@pytest.mark.parametrize("connectivity", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_missing_links_make_a_network_as_connected_as_asked(seed: int, connectivity: int) -> None:
    tree = networkx.random_labeled_tree(16, seed=seed)
    graph = networkx.relabel_nodes(tree, {node: f"b{node}" for node in tree})
    if seed == 3:
        graph.add_edge("c", "d")  # a part of its own
    added = missing_links(graph, connectivity)
    needed = sum(max(0, connectivity - degree) for _, degree in graph.degree) / 2
    assert needed <= len(added) <= needed + 4
    graph.add_edges_from(added)
    assert networkx.node_connectivity(graph) == connectivity
    assert missing_links(graph, connectivity) == []


def test_no_network_is_more_connected_than_a_complete_one() -> None:
    assert missing_links(networkx.complete_graph("abcd"), 3) == []
    with pytest.raises(ParameterError, match="a network of 4 brokers"):
        missing_links(networkx.complete_graph("abcd"), 4)


def test_paths_do_not_lead_through_clients() -> None:
    edges = [("P", "a"), ("a", "T"), ("T", "b"), ("b", "S"), ("P", "c"), ("c", "S")]
    graph = networkx.Graph(edges)
    assert len(parallel_paths(graph, "P", "S", 2)) == 2
    assert parallel_paths(graph, "P", "S", 1, clients=["T", "S"]) == [["P", "c", "S"]]
    with pytest.raises(ParameterError, match="the network has 1"):
        parallel_paths(graph, "P", "S", 2, clients=["T"])


def test_physical_brokers_have_names() -> None:
    assert str(PhysicalBroker("B2", 3)) == "B2.3"
    graph = Topology.line(2).physical(2)
    assert set(graph) == {"publisher", "B1.1", "B1.2", "B2.1", "B2.2", "S1"}
    assert graph.number_of_edges() == 2 + 4 + 2


@pytest.mark.parametrize(
    ("edges", "root", "subscribers", "message"),
    [
        ([("a", "a")], "a", {"s": "a"}, "edges must be between two brokers, got 'a' twice"),
        ([("a", "b")], "a", {}, "subscribers must name at least one"),
        ([("a", "b")], "a", {"s": "c"}, "subscriber 's' is at 'c', to which no links lead"),
        ([("a", "b"), ("c", "d")], "a", {"s": "d"}, "subscriber 's' is at 'd'"),
        ([("a", "b")], "a", {"b": "b"}, "must have different names"),
        ([("a", "publisher")], "a", {"s": "a"}, "must have different names"),
        ([("a", "")], "a", {"s": "a"}, "named by non-empty strings"),
        ([(1, 2)], 1, {"s": 1}, "named by non-empty strings"),
        ([("a", "b")], "a", {"a.2": "b"}, "ends like that of a physical broker"),
    ],
)
def test_networks_are_checked(
    edges: list[tuple[str, str]], root: str, subscribers: dict[str, str], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        Topology(edges, root, subscribers)


@pytest.mark.parametrize("count", [0, -1, 1.5, "3"])
def test_sizes_are_checked(count: int) -> None:
    for make in (Topology.line, Topology.star, Topology.ring, Topology.line(1).physical):
        with pytest.raises(ParameterError, match="must be a whole number, at least"):
            make(count)
    with pytest.raises(ParameterError, match="fanout must be a whole number, at least 1"):
        Topology.tree(2, count)
    with pytest.raises(ParameterError, match="subscriber must be one of"):
        Topology.line(2).path("S2")


def test_without_networkx_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(ImportError, match=r"needs networkx: pip install 'ccbps\[networks\]'"):
        Topology.line(2).physical(2)
    assert Topology.line(2).route == ["B1", "B2"]
