"""Loads that show elsewhere: at the far end of a path, or at its beginning only."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from ccbps.access.rates import Bucket
from ccbps.arrays import Reals
from ccbps.attacks.catalogue import Curve, Figure, Outcome, Taxonomy, attack
from ccbps.attacks.network.queues import QueueBroker, Sink, attach, send_at_random, serve
from ccbps.checks import number, whole
from ccbps.overlay.links import Links

ALARM: Final = 4.0
"""Standard deviations above the mean of quiet windows at which an alarm fires."""
WINDOWS: Final = 400
"""Number of windows of one second on which an alarm is tested."""


@attack(
    title="A publisher loads an edge far away, and no broker on the way",
    goal="availability",
    adversary="a client that may publish, and knows of an edge with many subscribers to one event",
    defence="an alarm on deliveries for each event in place of one on messages, and a token bucket "
    "of deliveries for each publisher",
    source="[WCJ07]",
    taxonomy=Taxonomy("resource", "client", "broker", "multi-hop", "stateless", "proportional"),
)
def transmission(
    *,
    rate: float = 19.0,
    forwards: float = 1000.0,
    clients: int = 50,
    hops: int = 3,
    limit: float = 500.0,
    honest: float = 200.0,
    events: int = 800_000,
    seed: int = 1,
) -> Outcome:
    """Publish few events that an edge delivers to many clients.

    Brokers send `forwards` messages a second. The brokers of the path send each event once, so for
    them the events are a small load. The edge sends each of them to all of its clients, and serves
    forwards / clients events a second. All are M/M/1 queues. At that rate, the edge's delay grows
    without bounds, and the path still notices nothing.

    An operator watches windows of one second of the whole network, in which honest clients publish
    `honest` events, each for one or more clients. One alarm is on events, the other on deliveries
    for each event. Both fire four standard deviations above the mean of quiet windows. With the
    defence, the second alarm is there, and the edge refuses events of a publisher that bring more
    than `limit` deliveries a second.

    Args:
        rate: events that the adversary publishes in a second.
        forwards: messages that a broker sends in a second.
        clients: clients of the edge that get each event of the adversary.
        hops: number of brokers on the path before the edge, 1 or more.
        limit: deliveries a second that a publisher may bring, with the defence.
        honest: events that honest clients publish in a second, elsewhere in the network.
        events: number of events of a simulation; a twentieth of them with the defence.
        seed: seed of the simulation.

    Example:
        >>> from ccbps.attacks import transmission
        >>> outcome = transmission(rate=10, events=20_000)
        >>> print(outcome["load of the edge"].expected, outcome["load of the path"].expected)
        0.5 0.01
        >>> outcome["windows of the attack in which an alarm fires"].defended > 0.99
        True
    """
    number("rate", rate, 1e-6)
    number("forwards", forwards, 1e-6)
    whole("clients", clients, 1)
    whole("hops", hops, 1)
    number("limit", limit, clients)
    number("honest", honest, 1)
    whole("events", events, 1000, 10**7)
    whole("seed", seed, 0)
    service = forwards / clients

    def simulate(rate: float, defended: bool) -> tuple[float, float, float, float]:
        """Return the load and the mean delay of a broker of the path, and those of the edge."""
        random, count = np.random.default_rng(seed), events // 20 if defended else events
        starts, delays = np.cumsum(random.exponential(1 / rate, count)), []
        arriving = count / starts[-1]
        for _ in range(hops):
            ends = serve(starts, forwards, random)
            delays.append(float(np.mean(ends - starts)))
            starts = ends
        if defended:
            starts = admitted(starts)
        edge = float(np.mean(serve(starts, service, random) - starts))
        at_edge = arriving * len(starts) / count
        return arriving / forwards, float(np.mean(delays)), at_edge / service, edge

    def admitted(times: Reals) -> Reals:
        """Return the events for whose deliveries there are tokens."""
        kept, clock = [], iter([0.0, *times.tolist()])
        bucket = Bucket(limit, limit, clock.__next__)
        for time in times.tolist():
            if bucket.level() >= clients:
                bucket.take(clients)
                kept.append(time)
        return np.array(kept)

    def watch(random: np.random.Generator, rate: float) -> tuple[Reals, Reals]:
        """Return the events, and the deliveries for each of them, of some windows."""
        others, own = random.poisson(honest, WINDOWS), random.poisson(rate, WINDOWS)
        deliveries = others + random.poisson(others) + clients * own
        events = np.asarray(others + own, dtype=np.float64)
        return events, np.asarray(deliveries / np.maximum(1, events))

    random = np.random.default_rng(seed)
    quiet, noticed, false = watch(random, 0.0), [], []
    for before, during, after in zip(quiet, watch(random, rate), watch(random, 0.0), strict=True):
        bound = before.mean() + ALARM * before.std()
        noticed.append(float(np.mean(during > bound)))
        false.append(float(np.mean(after > bound)))
    parts = (0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
    places = sorted({rate, *(service * part for part in parts)})
    runs = {defended: [simulate(each, defended) for each in places] for defended in (False, True)}
    at = places.index(rate)
    path_load, path, edge_load, edge = runs[False][at]
    safe_path_load, safe_path, safe_edge_load, safe_edge = runs[True][at]
    edge_delay = 1000 / (service - rate) if rate < service else None
    path_delay = 1000 / (forwards - rate) if rate < forwards else None
    return Outcome(
        (
            Figure("load of the path", "", path_load, safe_path_load, rate / forwards),
            Figure("load of the edge", "", edge_load, safe_edge_load, rate / service),
            Figure(
                "delay of a broker of the path", "ms", 1000 * path, 1000 * safe_path, path_delay
            ),
            Figure("delay of the edge", "ms", 1000 * edge, 1000 * safe_edge, edge_delay),
            Figure("windows of the attack in which an alarm fires", "", *noticed),
            Figure("quiet windows in which an alarm fires", "", *false),
        ),
        Curve(
            "events of the adversary (a second)",
            "delay of a broker (seconds)",
            tuple(places),
            {
                "edge without defence": tuple(run[3] for run in runs[False]),
                "path without defence": tuple(run[1] for run in runs[False]),
                "with a bucket of deliveries": tuple(run[3] for run in runs[True]),
            },
            log="y",
        ),
    )


@attack(
    title="A flood enters at a fast broker, and fills all that come after it",
    goal="availability",
    adversary="a client that may publish",
    defence="a first broker that serves no more than the slowest broker behind it can: it loses "
    "the flood, and clients of other brokers notice nothing",
    source="[WCJ07]",
    taxonomy=Taxonomy("resource", "client", "broker", "global", "stateless", "proportional"),
)
def localisation(
    *,
    flood: float = 3000.0,
    honest: float = 100.0,
    first: float = 2000.0,
    slow_first: float = 400.0,
    service: float = 1000.0,
    brokers: int = 4,
    room: int = 100,
    seconds: float = 2.0,
    seed: int = 1,
) -> Outcome:
    """Flood a line of brokers whose first one is faster, or slower, than those behind it.

    A first broker of m events a second under a flood of f loses 1 - m / f of it, and sends m on. So
    a broker of s events a second behind it has the load m / s at most. An honest client publishes
    at the second broker, and does not share the first one. Clients that do share its losses.

    Args:
        flood: events that the adversary publishes in a second.
        honest: events that the honest client publishes in a second.
        first: events that the first broker serves in a second.
        slow_first: the same with the defence.
        service: events that each other broker serves in a second.
        brokers: number of brokers on the line, 2 or more.
        room: events that wait at a broker at most.
        seconds: length of the simulation.
        seed: seed of the simulation.

    Example:
        >>> from ccbps.attacks import localisation
        >>> outcome = localisation(seconds=1)
        >>> outcome["honest events delivered"].defended
        1.0
        >>> outcome["load behind the first broker"].expected
        2.0
    """
    number("flood", flood, 1e-6)
    number("honest", honest, 1e-6)
    number("first", first, 1e-6)
    number("slow_first", slow_first, 1e-6, service)
    number("service", service, 1e-6)
    whole("brokers", brokers, 2)
    whole("room", room, 1)
    number("seconds", seconds, 1e-6)
    line = [f"broker {place}" for place in range(brokers)]

    def simulate(first: float) -> tuple[float, float, float]:
        """Return the share lost at the first broker, the load behind it, and the honest share."""
        random, sink = np.random.default_rng(whole("seed", seed, 0)), Sink()
        links = Links(pairwise([*line, "subscriber"]), delay=0.001, seed=seed)
        attach(links, "subscriber", sink)
        nodes = []
        for place, (name, onward) in enumerate(pairwise([*line, "subscriber"])):
            rate = service if place else first
            nodes.append(QueueBroker(rate, lambda _, to=(onward,): to, random, room=room))  # type: ignore[misc]
            attach(links, name, nodes[-1])
        sent = send_at_random(links, "honest", line[1], honest, seconds, random)
        send_at_random(links, "adversary", line[0], flood, seconds, random)
        links.run(seconds)
        lost, arrived = nodes[0].lost / max(1, nodes[0].arrived), nodes[1].arrived - sent
        links.run()
        share = len(sink.delays.get("honest", [])) / max(1, sent)
        return lost, arrived / seconds / service, share

    rates = np.geomspace(slow_first, first, 4).tolist()
    runs = [simulate(rate) for rate in rates]
    safe, *_, plain = runs
    out = min(flood, first)
    return Outcome(
        (
            Figure("flood lost at the first broker", "", plain[0], safe[0], 1 - out / flood),
            Figure("load behind the first broker", "", plain[1], safe[1], out / service),
            Figure(
                "honest events delivered",
                "",
                plain[2],
                safe[2],
                min(1.0, service / (out + honest)),
            ),
        ),
        Curve(
            "events that the first broker serves (a second)",
            "share",
            tuple(rates),
            {
                "flood lost at the first broker": tuple(run[0] for run in runs),
                "honest events delivered": tuple(run[2] for run in runs),
            },
        ),
    )
