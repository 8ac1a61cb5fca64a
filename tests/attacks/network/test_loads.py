"""Loads that show elsewhere: loads, delays and losses are those of M/M/1 queues."""

from __future__ import annotations

import numpy as np
import pytest

from ccbps.attacks import localisation, transmission
from ccbps.attacks.network.queues import QueueBroker, Sink, attach, send_at_random, serve
from ccbps.overlay import Links


def test_a_far_edge_is_loaded_and_the_path_is_not() -> None:
    outcome = transmission(events=300_000, seed=3)
    path, edge, on_path, at_edge = outcome.figures[:4]
    assert [figure.expected for figure in (path, edge)] == pytest.approx([0.019, 0.95])
    assert [figure.expected for figure in (on_path, at_edge)] == pytest.approx([1000 / 981, 1000])
    assert [path.undefended, edge.undefended] == pytest.approx([0.019, 0.95], rel=0.02)
    assert on_path.undefended == pytest.approx(1000 / 981, rel=0.01)
    # Near its limit a queue is slow to show its mean: the error of 300,000 events is 7 %.
    assert at_edge.undefended == pytest.approx(1000, rel=0.3)
    assert at_edge.defended is not None and at_edge.defended < 100


def test_at_its_service_rate_only_the_edge_diverges() -> None:
    places = transmission(events=2000).curve.at
    short, long = (transmission(events=each).curve.lines for each in (20_000, 320_000))
    last = places.index(20.0)
    edge, path = (f"{name} without defence" for name in ("edge", "path"))
    assert long[edge][last] > 1.5 * short[edge][last]
    assert long[path][last] == pytest.approx(short[path][last], rel=0.05)
    assert long[edge][0] == pytest.approx(short[edge][0], rel=0.1)


def test_an_alarm_on_deliveries_fires_and_one_on_events_does_not() -> None:
    outcome = transmission(events=2000)
    by_events = outcome["windows of the attack in which an alarm fires"]
    assert by_events.undefended < 0.1
    assert by_events.defended == 1
    false = outcome["quiet windows in which an alarm fires"]
    assert false.undefended < 0.02 and false.defended is not None and false.defended < 0.02


def test_both_queues_are_the_same() -> None:
    """With room for all, a broker of the simulation and the recursion have one distribution."""
    random, sink = np.random.default_rng(5), Sink()
    links = Links([("broker", "end")], delay=0.0)
    attach(links, "broker", QueueBroker(20.0, lambda _: ["end"], random))
    attach(links, "end", sink)
    count = send_at_random(links, "client", "broker", 10.0, 400.0, random)
    links.run()
    arrivals = np.sort(random.uniform(0, 400, count))
    for delays in (np.array(sink.delays["client"]), serve(arrivals, 20.0, random) - arrivals):
        assert delays.mean() == pytest.approx(1 / (20 - 10), rel=0.15)
        # Delays of an M/M/1 queue are exponential.
        assert delays.std() == pytest.approx(delays.mean(), rel=0.2)


def test_a_slow_first_broker_keeps_a_flood_to_itself() -> None:
    lost, load, honest = localisation(seconds=2.0).figures
    assert [figure.expected for figure in (lost, load)] == pytest.approx([1 / 3, 2])
    # The first broker has room for 100 of 6,000 events.
    assert lost.undefended == pytest.approx(1 / 3, abs=0.05)
    assert lost.defended == pytest.approx(1 - 400 / 3000, abs=0.03)
    assert load.undefended == pytest.approx(2, rel=0.05)
    assert load.defended == pytest.approx(0.4, rel=0.15)
    assert honest.undefended == pytest.approx(honest.expected, abs=0.12)
    assert honest.defended == 1
