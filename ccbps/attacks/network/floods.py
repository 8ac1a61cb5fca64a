"""Floods: an authorized adversary sends too much."""

from __future__ import annotations

from typing import Final

import numpy as np

from ccbps.access.rates import Bucket
from ccbps.attacks.catalogue import Curve, Figure, Outcome, Taxonomy, attack
from ccbps.attacks.network.queues import Packet, QueueBroker, Sink, attach, send_at_random
from ccbps.attacks.network.routers import CountedRelation, line_of_routers
from ccbps.checks import number, whole
from ccbps.errors import ParameterError
from ccbps.overlay.links import Links
from ccbps.predicates import Schema, UInt

MOST_PACKETS: Final = 100_000
"""Largest number of events that brokers of a simulation serve."""


@attack(
    title="One client publishes more than brokers can serve",
    goal="availability",
    adversary="a client that may publish",
    defence="a token bucket for each client at its first broker (`Policy` rates, `Quota`)",
    source="[WCJ07]",
    taxonomy=Taxonomy("resource", "client", "broker", "global", "stateless", "proportional"),
)
def publication_flood(
    *,
    flood: float = 2000.0,
    honest: float = 100.0,
    service: float = 1000.0,
    room: int = 200,
    brokers: int = 3,
    limit: float = 200.0,
    seconds: float = 4.0,
    seed: int = 1,
) -> Outcome:
    """Send more events to the end of a line of brokers than these can serve.

    The brokers are M/M/1 queues with room for some events. The honest client and the adversary
    share the first broker. With the defence, the first broker takes `limit` events a second from
    each client, and refuses the others before it serves them.

    Args:
        flood: events that the adversary publishes in a second.
        honest: events that the honest client publishes in a second.
        service: events that a broker serves in a second.
        room: events that wait at a broker at most.
        brokers: number of brokers on the line, 1 or more.
        limit: events a second that a client may publish, with the defence.
        seconds: length of the simulation.
        seed: seed of the simulation.

    Raises:
        ParameterError: an argument is out of bounds, or there are too many events to simulate.

    Example:
        >>> from ccbps.attacks import publication_flood
        >>> outcome = publication_flood(flood=3000, brokers=1, seconds=1)
        >>> print(outcome["honest events delivered"].defended)
        1.0
    """
    whole("brokers", brokers, 1)
    number("service", service, 1)
    served = (number("flood", flood, 0) + number("honest", honest, 1e-6)) * number(
        "seconds", seconds, 0
    )
    if served * brokers > MOST_PACKETS:
        raise ParameterError(
            f"flood and honest events must be at most {MOST_PACKETS:,} in all seconds and at all "
            f"brokers, got {served * brokers:,.0f}"
        )
    line = [f"broker {place}" for place in range(brokers)]

    def simulate(rate: float, defended: bool) -> tuple[float, float]:
        """Return the share of honest events that arrive, and their mean delay in seconds."""
        random, sink = np.random.default_rng(whole("seed", seed, 0)), Sink()
        links = Links(delay=0.001, seed=seed)
        buckets: dict[str, Bucket] = {}

        def admit(packet: Packet, now: float) -> bool:
            bucket = buckets.setdefault(packet.sender, Bucket(limit, limit / 4, lambda: links.time))
            if bucket.level() < 1:
                return False
            bucket.take(1)
            return True

        for place, name in enumerate(line):
            onward = [line[place + 1] if place + 1 < brokers else "subscriber"]
            broker = QueueBroker(
                service,
                lambda _, onward=onward: onward,  # type: ignore[misc]
                random,
                room=room,
                admit=admit if defended and not place else None,
            )
            attach(links, name, broker)
            links.link(name, onward[0])
        attach(links, "subscriber", sink)
        sent = send_at_random(links, "honest", line[0], honest, seconds, random)
        send_at_random(links, "adversary", line[0], rate, seconds, random)
        links.run()
        delays = sink.delays.get("honest", [])
        return len(delays) / max(1, sent), float(np.mean(delays)) if delays else float("inf")

    rates = tuple(flood * part for part in (0.0, 0.25, 0.5, 0.75, 1.0))
    runs = {defended: [simulate(rate, defended) for rate in rates] for defended in (False, True)}
    (share, delay), (safe_share, safe_delay) = runs[False][-1], runs[True][-1]
    return Outcome(
        (
            Figure(
                "honest events delivered",
                "",
                share,
                safe_share,
                min(1.0, service / (flood + honest)),
            ),
            Figure("mean delay", "ms", 1000 * delay, 1000 * safe_delay),
        ),
        Curve(
            "events of the adversary (a second)",
            "honest events delivered (share)",
            rates,
            {
                "without defence": tuple(share for share, _ in runs[False]),
                "with token buckets": tuple(share for share, _ in runs[True]),
            },
        ),
    )


@attack(
    title="One client subscribes to more than tables can hold",
    goal="availability",
    adversary="a client that may subscribe, with one name; its filters match events that nobody "
    "publishes",
    defence="a quota of subscriptions for each client at its first broker (`Quota`), and "
    "subscriptions that end unless they are renewed in every epoch",
    source="[WCJ07]",
    taxonomy=Taxonomy("resource", "client", "broker", "multi-hop", "persistent", "inverse"),
)
def subscription_flood(
    *,
    subscriptions: int = 400,
    honest: int = 20,
    brokers: int = 4,
    quota: int = 25,
    events: int = 100,
    seed: int = 1,
) -> Outcome:
    """Fill the tables of a line of routers with filters that cover nothing.

    No filter of the adversary covers another, so each of them goes into the table of every router,
    and every router on the way of an event compares it. Then the adversary falls silent for an
    epoch. With the defence, its first broker takes `quota` filters from each client. At the end of
    an epoch the broker withdraws the filters that their clients did not renew in it.

    Args:
        subscriptions: number of filters that the adversary asks for.
        honest: number of filters of honest clients, one each.
        brokers: number of routers on the line, 2 or more.
        quota: number of filters that a client may have, with the defence.
        events: number of events from one end of the line to the other.
        seed: seed of the events.

    Example:
        >>> from ccbps.attacks import subscription_flood
        >>> print(subscription_flood(subscriptions=100, events=10))
                                            without defence  with defence  expected
        entries of a router's table                     120            45       120
        filters compared with an event                  480           180       480
        entries left of a silent adversary              100             0       100
    """
    whole("subscriptions", subscriptions, 0, 1 << 15)
    whole("honest", honest, 1, 1 << 10)
    whole("brokers", brokers, 2)
    whole("quota", quota, 1)
    whole("events", events, 1)
    schema = Schema(x=UInt(16))

    def simulate(count: int, defended: bool) -> tuple[float, float, float]:
        """Return entries of a table, filters compared with an event, and entries after silence."""
        random = np.random.default_rng(whole("seed", seed, 0))
        relation = CountedRelation(schema)
        links, routers = line_of_routers(brokers, relation, lambda *_: None)
        edge, renewed = routers[0], set[tuple[str, int]]()

        def subscribe(client: str, number: int, code: int) -> None:
            held = edge.tables["subscription"].get(client, {})
            if not defended or (client, number) in held or len(held) < quota:
                edge.add("subscription", client, number, relation.filter_bytes(f"x = {code}"))
                renewed.add((client, number))

        def end_epoch() -> None:
            for client, filters in [*edge.tables["subscription"].items()]:
                for name in [name for name in filters if name[0] == client]:
                    if name not in renewed:
                        edge.withdraw("subscription", *name)
            renewed.clear()

        for place in range(count):
            subscribe("adversary", place, (1 << 15) + place)
        for epoch in range(2):
            for client in range(honest):
                subscribe(f"client {client}", 0, client)
            links.run()
            if not epoch:
                entries = float(np.mean([router.entries for router in routers]))
                for place, code in enumerate(random.integers(0, honest, events).tolist()):
                    routers[-1].publish("feed", place, relation.event_bytes({"x": code}))
                links.run()
                compared = relation.compared / events
            if defended:
                end_epoch()
        links.run()
        left = float(np.mean([router.entries for router in routers])) - honest
        return entries, compared, left

    counts = sorted({subscriptions * part // 4 for part in range(5)})
    runs = {defended: [simulate(each, defended) for each in counts] for defended in (False, True)}
    plain, safe = runs[False][-1], runs[True][-1]
    entries = honest + subscriptions
    return Outcome(
        (
            Figure("entries of a router's table", "", plain[0], safe[0], entries),
            Figure("filters compared with an event", "", plain[1], safe[1], brokers * entries),
            Figure("entries left of a silent adversary", "", plain[2], safe[2], subscriptions),
        ),
        Curve(
            "subscriptions of the adversary",
            "filters compared with an event",
            tuple(map(float, counts)),
            {
                "without defence": tuple(run[1] for run in runs[False]),
                "with a quota": tuple(run[1] for run in runs[True]),
            },
        ),
    )
