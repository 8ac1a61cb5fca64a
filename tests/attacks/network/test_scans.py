"""Overlay scans: what attackers place by formulas, beside noise, and on queues."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ccbps.arrays import Bools, Reals
from ccbps.attacks import overlay_scan
from ccbps.attacks.network.queues import Packet, QueueBroker, Sink, attach, send_at_random
from ccbps.attacks.network.scans import Scan, Tree, scan
from ccbps.errors import ParameterError
from ccbps.overlay import Links


def names(rows: Bools) -> set[bytes]:
    return {row.tobytes() for row in rows}


def test_without_noise_the_slowest_brokers_of_paths_are_placed_and_no_others() -> None:
    """The scan sees delays only; the slowest brokers follow from the drawn capacities."""
    random = np.random.default_rng(3)
    for load in (0.0, 0.3):
        for _ in range(20):
            tree = Tree.draw(12, load, random)
            floods, ends = tree.floods(together=False)
            observe = tree.observer(floods, ends, probes=2, window=10)
            result = scan(observe, floods, 5000, 0)
            assert names(result.brokers()) == names(tree.slowest())
            assert np.all(result.rates >= np.where(tree.on, tree.spare, np.inf).min(axis=1))
            assert not len(result.brokers(0.999 * tree.spare.min()))


def test_load_goes_down_the_path_and_no_further() -> None:
    tree = Tree.draw(12, 0.2, np.random.default_rng(5))
    floods, ends = tree.floods(together=False)
    honest = tree.service - tree.spare
    light = tree.loads(np.full(len(floods), 10.0), floods, ends)
    assert np.allclose(light, honest + 10 * tree.on)
    heavy = tree.loads(np.full(len(floods), 1e6), floods, ends)
    first = tree.leaves[tree.pairs[:, 0]]
    assert np.allclose(heavy[np.arange(len(first)), first], honest[first] + 1e6)
    # Behind an overloaded broker there is no more than it serves.
    for flood, path in enumerate(tree.on):
        behind = path & (np.arange(12) != first[flood])
        assert np.all(heavy[flood, behind] <= tree.service[first[flood]] + honest[behind].sum())


def test_trees_have_paths_between_leaves() -> None:
    for seed in range(20):
        tree = Tree.draw(9, 0.0, np.random.default_rng(seed))
        start, end = tree.leaves[tree.pairs.T]
        assert np.array_equal(tree.on.sum(axis=1), tree.distances[start, end] + 1)
        degrees = np.bincount(tree.parents, minlength=9) + (np.arange(9) > 0)
        assert np.array_equal(np.flatnonzero(degrees == 1), tree.leaves)


def test_figures() -> None:
    outcome = overlay_scan(trees=15)
    quiet = outcome["brokers placed in a quiet network"]
    assert quiet.undefended == quiet.expected and quiet.defended == 0
    assert outcome["wrong brokers in a quiet network"].undefended == 0
    noisy, wrong = (
        outcome[f"{kind} beside load and noise"] for kind in ("brokers placed", "wrong brokers")
    )
    assert noisy.undefended > 3.3 and wrong.undefended < 1.5
    assert noisy.defended == 0 and wrong.defended == 0
    # What does not help, or helps in part.
    together = outcome["brokers placed by all attackers together"]
    assert together.defended is not None and together.defended > 3
    assert outcome["brokers placed by all under a divided limit"].defended == 0
    delays = outcome["brokers placed despite random delays"].defended
    assert delays is not None and delays > 3
    roomy = outcome["brokers placed despite spare capacity"].defended
    assert roomy is not None and 1 < roomy < 3
    for line in outcome.curve.lines.values():
        assert [*line] == sorted(line)


@pytest.mark.parametrize("wrong", [{"brokers": 3}, {"load": 0.6}, {"probes": 1}, {"trees": 0}])
def test_arguments_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        overlay_scan(**wrong)  # type: ignore[arg-type]


def scan_queues(tree: Tree, *, most: float, window: float, probes: int, threshold: float) -> Scan:
    """Scan brokers that have queues, packet by packet."""
    floods, _ = tree.floods(together=False)
    clients = [f"attacker {place}" for place in range(len(tree.leaves))]
    homes = tree.leaves.tolist()

    def run(rate: float, flood: int, probed: Bools, seed: int) -> list[list[float]]:
        random, links = np.random.default_rng(seed), Links(delay=(0.001, 0.005), seed=seed)
        sinks = [Sink() for _ in clients]
        for place, service in enumerate(tree.service.tolist()):
            near = np.flatnonzero(tree.distances[place] == 1).tolist()

            def route(packet: Packet, place: int = place, near: list[int] = near) -> list[str]:
                if not packet.subject:
                    return []  # an honest event, for a client of this broker
                end = int(packet.subject)
                if homes[end] == place:
                    return [clients[end]]
                steps = tree.distances[near, homes[end]]
                return [f"broker {near[int(steps.argmin())]}"]

            attach(links, f"broker {place}", QueueBroker(service, route, random))
            for other in near:
                links.link(f"broker {place}", f"broker {other}")
        for client, sink, home in zip(clients, sinks, homes, strict=True):
            attach(links, client, sink)
            links.link(client, f"broker {home}")
        for place, honest in enumerate((tree.service - tree.spare).tolist()):
            client = f"honest {place}"
            attach(links, client, Sink())
            send_at_random(links, client, f"broker {place}", honest, window, random)
        start, end = tree.pairs[flood].tolist()
        broker = f"broker {homes[start]}"
        send_at_random(links, clients[start], broker, rate, window, random, f"{end}")
        delays: list[list[float]] = []
        for pair in np.flatnonzero(probed).tolist():
            first, last = tree.pairs[pair].tolist()
            probe = f"probe {pair}"
            attach(links, probe, Sink())
            links.link(probe, f"broker {homes[first]}")
            for number in range(probes):
                packet = Packet(probe, (number + 0.5) * window / probes, f"{last}")
                links.after(
                    packet.born,
                    lambda probe=probe, packet=packet, home=homes[first]: links.send(  # type: ignore[misc]
                        probe, f"broker {home}", packet
                    ),
                )
        links.run()
        for pair in np.flatnonzero(probed).tolist():
            last = int(tree.pairs[pair, 1])
            delays.append(sinks[last].delays[f"probe {pair}"])
        return delays

    calls = iter(range(1, 10_000))

    def observe(rates: Reals, probed: Bools) -> Reals:
        rows = [
            row
            for flood in np.flatnonzero(probed.any(axis=1)).tolist()
            for row in run(float(rates[flood]), flood, probed[flood], next(calls))
        ]
        return np.array(rows).reshape(-1, probes)

    return scan(observe, floods, most, threshold)


@pytest.mark.slow
def test_queues_are_scanned_as_the_formulas_say() -> None:
    tree = Tree.draw(7, 0.1, np.random.default_rng(8))
    tree = replace(tree, service=tree.service / 10, spare=tree.spare / 10)
    found = names(scan_queues(tree, most=300, window=60, probes=30, threshold=2).brokers())
    expected = names(tree.slowest())
    assert len(expected) == 3
    assert found == expected
