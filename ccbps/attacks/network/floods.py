"""Floods: an adversary that is allowed to take part, and takes too much part."""

from __future__ import annotations

from typing import Final

import numpy as np

from ccbps.access.rates import Bucket
from ccbps.attacks.catalogue import Curve, Figure, Outcome, Taxonomy, attack
from ccbps.attacks.network.queues import Packet, QueueBroker, Sink, attach, send_at_random
from ccbps.checks import number, whole
from ccbps.errors import ParameterError
from ccbps.overlay.links import Links

MOST_PACKETS: Final = 100_000
"""Events that brokers of a simulation serve at most."""


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
    served = (number("flood", flood, 0) + number("honest", honest, 0)) * number(
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
