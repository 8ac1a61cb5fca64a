"""Bogus brokers: deliveries by the formulas, forgeries, and complaints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ccbps.attacks import bogus_brokers
from ccbps.attacks.network.bogus import honest_paths, lost
from ccbps.errors import ParameterError
from ccbps.overlay import Links, Topology


def test_figures_are_those_of_the_formulas() -> None:
    f, hops, trials, neighbours = 0.1, 4, 20_000, 5
    outcome = bogus_brokers(share=f, hops=hops, trials=trials, neighbours=neighbours)
    captured = 1 - (1 - f) ** hops
    liars = sum(c * f**k * (1 - f) ** (5 - k) for k, c in ((3, 10), (4, 5), (5, 1)))
    for name, undefended, defended in [
        ("events delivered", 0.656, 0.959),
        ("events delivered over two paths", 0.656, 0.882),
        ("subscribers without an honest edge broker", f, f**3),
        ("forged identities believed", captured, captured**3),
        ("lookups of identities refused", 0, 1 - captured**3 - (1 - captured) ** 3),
        ("honest brokers taken off", 1 - (1 - f) ** 5, liars),
    ]:
        figure = outcome[name]
        assert figure.expected in (None, pytest.approx(undefended, abs=5e-4))
        for measured, share in ((figure.undefended, undefended), (figure.defended, defended)):
            within = 4.5 * (share * (1 - share) / trials) ** 0.5 + 5e-4
            assert measured == pytest.approx(share, abs=within), name


def test_what_helps_and_what_does_not() -> None:
    outcome = bogus_brokers(trials=100)
    forged = outcome["forgeries delivered"]
    assert (forged.undefended, forged.defended) == (1, 0)
    dropped = outcome["deliveries lost at a bogus broker"]
    assert dropped.undefended == pytest.approx(0.2, abs=0.03)
    assert dropped.defended is not None and dropped.defended < 0.01
    spared = outcome["deliveries lost if it drops for a minority"]
    assert spared.undefended == spared.defended == pytest.approx(0.08, abs=0.02)
    left = outcome["deliveries lost if neighbours leave it"].defended
    assert left is not None and left < 0.01


def test_events_arrive_over_links_where_a_path_is_honest() -> None:
    topology, paths, f = Topology.line(3), 2, 0.3
    bogus = np.random.default_rng(2).random((40, 6))
    graph = topology.physical(paths)
    brokers = sorted(name for name in graph if name[0] == "B")

    class Node:
        """Broker, or a client that only notes what comes."""

        def __init__(self, onward: list[str]) -> None:
            self.onward, self.port, self.got = onward, None, 0

        def receive(self, sender: str, message: Any) -> None:
            self.got += 1
            for neighbour in self.onward:
                self.port.send(neighbour, message)  # type: ignore[attr-defined]

    says = np.any(honest_paths(topology, "S1", paths, bogus, f), axis=1).tolist()
    assert 0 < sum(says) < len(says)
    for row, arrives in zip(bogus, says, strict=True):
        links = Links(graph.edges)
        nodes = {name: Node([]) for name in graph}
        for place, name in enumerate(brokers):
            if row[place] >= f:
                hop, number = int(name[1]), name[-1]
                nodes[name].onward = [f"B{hop + 1}.{number}" if hop < 3 else "S1"]
        for name, node in nodes.items():
            node.port = links.attach(name, node)  # type: ignore[assignment]
        for number in (1, 2):
            links.send("publisher", f"B1.{number}", "event")
        links.run()
        assert bool(nodes["S1"].got) == arrives


def test_when_complaints_take_a_broker_off() -> None:
    drops = np.zeros((8, 3), dtype=np.bool_)
    drops[1] = drops[3] = True
    # The first gap is seen at event 2, so event 3 is not lost.
    for patience, losses in ((1, 3), (2, 6)):
        gone = lost(drops, patience=patience, heartbeat=100, majority=True)
        assert gone.sum() == losses
    # Who drops everything is found by the number of events that comes by another path.
    everything = np.ones((60, 3), dtype=np.bool_)
    for heartbeat, losses in ((10, 10), (100, 60)):
        gone = lost(everything, patience=1, heartbeat=heartbeat, majority=True)
        assert gone.sum() == 3 * losses
    # Two of four are no majority; they leave by themselves.
    half = np.ones((60, 4), dtype=np.bool_) & (np.arange(4) < 2)
    assert lost(half, patience=1, heartbeat=10, majority=True).sum() == 120
    assert lost(half, patience=1, heartbeat=10, leave=True).sum() == 20


@pytest.mark.parametrize("wrong", [{"share": 2}, {"paths": 1}, {"neighbours": 1}, {"hops": 0}])
def test_arguments_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        bogus_brokers(**wrong)
