"""A matcher with its parties, for tests of the running broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec import structs

from ccbps import Schema, SharedSeed, UInt
from ccbps.broker import MatchingBroker, Publication, Subscription
from ccbps.errors import RefusedError
from ccbps.filters import ContentFilter, FilterKey, TopicTokens
from ccbps.matching import BroadcastMatch, TagMatch
from tests.support.meanwhile import Meanwhile

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


def received(broker: MatchingBroker, *clients: str) -> list[list[int]]:
    """Numbers of the publications that wait for each client."""
    return [[one.number for one in broker.take(client, 1000)] for client in clients]


@contextmanager
def refused(reason: str, said: str | None = None) -> Iterator[None]:
    """A call that the broker refuses for a reason."""
    with pytest.raises(RefusedError, match=said) as caught:
        yield
    assert caught.value.reason == reason


class World:
    """Publications and subscriptions of one matcher, perhaps with masks of their contents."""

    def __init__(self, kind: type[Any] = TagMatch, *, masked: bool = False) -> None:
        self.matcher = kind(SCHEMA)
        self.contents = ContentFilter(SCHEMA, FilterKey(bytes(16))) if masked else None
        self.server = self.matcher.key_server()
        self.feed = self.matcher.publisher(self.server.publisher_key())
        self.alice = self.matcher.subscriber(self.server.subscriber_key("alice"))
        self.key = self.server.broker_key()

    def broker(self, **options: Any) -> MatchingBroker:
        if self.contents is not None:
            options = {"masks": self.contents.layout, **options}
        return MatchingBroker(self.matcher.broker(self.key), **options)

    def broker_of_alice(self, **options: Any) -> MatchingBroker:
        """A broker at which alice wants prices below 9, as her subscription "a"."""
        broker = self.broker(**options)
        broker.subscribe("alice", self.wants("a", "price < 9"))
        return broker

    def wants(self, name: str, predicate: str, topic: str | None = None) -> Subscription:
        mask = None
        if self.contents is not None:
            mask = self.contents.interests([predicate])[0].tobytes()
        return Subscription(name, self.alice.encode(predicate), token(topic), mask=mask)

    def event(self, number: int, price: int, topic: str | None = None) -> Publication:
        event, mask = self.feed.encode({"price": [price]})[0].tobytes(), None
        if self.contents is not None:
            mask = self.contents.events({"price": [price]})[0].tobytes()
        return Publication(number, event, b"payload %d" % number, token(topic), mask=mask)

    def bare(self, number: int, price: int, topic: str | None = None) -> Publication:
        """A publication whose payload comes later."""
        return structs.replace(self.event(number, price, topic), payload=None)


class RoundWorld:
    """Publications and subscriptions of a broadcast, for rounds."""

    def __init__(self) -> None:
        self.matcher = BroadcastMatch.box(SCHEMA)
        master = SharedSeed.generate()
        self.subscriber, self.feed = self.matcher.subscriber(master), self.matcher.publisher(master)
        self.messages: dict[int, bytes] = {}

    def broker(self, **options: Any) -> MatchingBroker:
        return MatchingBroker(self.matcher.broker(), **options)

    def wants(
        self, label: str, predicate: str, publisher: str = "feed", topic: str | None = None
    ) -> Subscription:
        stack = self.subscriber.encode(predicate, rounds=range(5), pairs=[label] * 5)
        return Subscription(label.split("/")[1], stack, token(topic), publisher, 0)

    def event(
        self, number: int, turn: int, price: int, payload: bytes = b"", topic: str | None = None
    ) -> Publication:
        """An event of a round, which is encoded once."""
        if turn not in self.messages:
            self.messages[turn] = self.feed.encode({"price": [price]}, rounds=[turn])[0].tobytes()
        return Publication(number, self.messages[turn], payload, token(topic), turn)


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def in_match(broker: MatchingBroker, monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """What happens while the broker matches its next publication."""
    masked = broker._subscriptions._masks is not None
    return Meanwhile(monkeypatch, type(broker._broker), "examine" if masked else "match_parts")
