"""A matcher with its parties, for tests of the running broker."""

from __future__ import annotations

from typing import Any

from ccbps import Schema, UInt
from ccbps.broker import MatchingBroker, Publication, Subscription
from ccbps.filters import FilterKey, TopicTokens
from ccbps.matching import TagMatch

SCHEMA = Schema(price=UInt(5))
TOPICS = [None, "news", "quotes"]
PREDICATES = ["price < 10", "price < 20", "price > 5", "price = 7", "price BETWEEN 3 AND 12"]
TOKENS = TopicTokens(FilterKey(bytes(range(16))))


def token(topic: str | None) -> bytes | None:
    return None if topic is None else TOKENS.one(topic)


def meant(predicate: str, price: int) -> bool:
    return bool(SCHEMA.parse(predicate).evaluate(SCHEMA.encode({"price": [price]}))[0])


def count(broker: MatchingBroker, name: str) -> int:
    """What the broker's metrics say."""
    (line,) = [one for one in broker.metrics().splitlines() if one.startswith(f"ccbps_{name} ")]
    return int(float(line.split()[1]))


class World:
    """Publications and subscriptions of one matcher."""

    def __init__(self, kind: type[Any] = TagMatch) -> None:
        self.matcher = kind(SCHEMA)
        self.server = self.matcher.key_server()
        self.feed = self.matcher.publisher(self.server.publisher_key())
        self.alice = self.matcher.subscriber(self.server.subscriber_key("alice"))
        self.key = self.server.broker_key()

    def broker(self, **options: Any) -> MatchingBroker:
        return MatchingBroker(self.matcher.broker(self.key), **options)

    def wants(self, name: str, predicate: str, topic: str | None = None) -> Subscription:
        return Subscription(name, self.alice.encode(predicate), token(topic))

    def event(self, number: int, price: int, topic: str | None = None) -> Publication:
        event = self.feed.encode({"price": [price]})[0].tobytes()
        return Publication(number, event, b"payload %d" % number, token(topic))


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now
