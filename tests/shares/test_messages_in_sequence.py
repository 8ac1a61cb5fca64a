"""Messages that follow one another for an event: those of grants travel with the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ccbps.keys import ClientKey
from ccbps.matching import ThreeBrokerMatch
from ccbps.predicates import Schema, UInt
from ccbps.shares.clients import BrokerKey, part_of, sealed_part
from ccbps.shares.ring import Ring, local_links

SCHEMA = Schema(price=UInt(16), volume=UInt(16))
KEYS = [BrokerKey.generate() for _ in range(3)]
PUBLIC = [key.public for key in KEYS]
BOXES = [f"price BETWEEN {n} AND {n + 30_000} AND volume < {n + 9}" for n in range(70)]


class Clock:
    """A broker's clock, by which nothing takes time but a message on its way, which takes 1."""

    def __init__(self) -> None:
        self.now = 0


class Timed:
    """A link whose frames carry the sender's time."""

    def __init__(self, link: Any, clock: Clock) -> None:
        self._link, self._clock = link, clock
        self.close = link.close

    def send(self, *parts: Any) -> None:
        self._link.send(self._clock.now.to_bytes(8, "little"), *parts)

    def receive(self, most: int) -> bytearray:
        frame = self._link.receive(most + 8)
        self._clock.now = max(self._clock.now, int.from_bytes(frame[:8], "little") + 1)
        return bytearray(frame[8:])


def in_sequence(matcher: Any, texts: list[Any], prices: list[int]) -> int:
    """Return the messages in sequence that three brokers need for events; answers are right."""
    giver = matcher.authority(ClientKey.generate(PUBLIC)) if matcher.grants else None
    ann, feed = matcher.subscriber(PUBLIC), matcher.publisher(PUBLIC)
    wanted = ann.encode(texts)
    records = {"price": prices, "volume": [5] * len(prices)}
    sent = feed.encode(records)
    grant = None if giver is None else giver.grant("price < 40000", to=ann.client)
    results: list[Any] = [None] * 3

    def serve(party: int, links: Any) -> None:
        clock = Clock()
        hello = {} if giver is None else {"authority": giver.hellos[party]}
        timed = [Timed(link, clock) for link in links]
        try:
            with Ring(party, timed[0], timed[1], matcher.digest) as ring:
                broker = matcher.broker(party, KEYS[party], ring, **hello)
                for role in (ann, feed):
                    broker.greet(role.hellos[party])
                if grant is not None:
                    assert not broker.grant(sealed_part(party, grant, "grant")).any()
                broker.subscribe(part_of(party, wanted))
                before = clock.now
                answers, _ = broker.publish(part_of(party, sent))
                results[party] = clock.now - before, answers
        finally:
            for link in links:
                link.close()

    threads = [threading.Thread(target=serve, args=pair) for pair in enumerate(local_links())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    allowed = np.array([price < 40000 for price in prices]) if matcher.grants else True
    events = SCHEMA.encode(records)
    meaning = np.stack([matcher.meaning(text, events) & allowed for text in texts], axis=1)
    for _, answers in results:
        assert np.array_equal(answers[:, : len(texts)], meaning)
    return max(count for count, _ in results)


MAKERS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "box": (lambda **options: ThreeBrokerMatch.box(SCHEMA, **options), BOXES),
    # Of fewer layers than a grant.
    "template": (
        lambda **options: ThreeBrokerMatch(SCHEMA, "price < :p", **options),
        [{"p": 700 * n} for n in range(70)],
    ),
}


@pytest.mark.parametrize("shape", MAKERS)
@pytest.mark.parametrize("count", [1, 300])
def test_grants_travel_with_subscriptions(shape: str, count: int) -> None:
    make, texts = MAKERS[shape]
    prices = [701 * n % 65_536 for n in range(count)]
    plain, granted = (in_sequence(make(grants=grants), texts, prices) for grants in (False, True))
    # For many events, units of work take turns; then all that counts is that answers are right.
    if count == 1:
        assert plain < granted <= plain + 2
