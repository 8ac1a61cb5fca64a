"""Matching brokers at the edges of a network: who gets what, and what brokers between them see."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ccbps import Category, Schema, SharedSeed, UInt
from ccbps.broker import Hellos, MatchingBroker, Publication, Subscription
from ccbps.errors import DecodeError, RefusedError, ReplayError
from ccbps.matching import FormulaMatch, TagMatch, ThreeBrokerMatch
from ccbps.matching.broken import PrefixMatch
from ccbps.mqtt import LocalServer, MqttClient, MqttService, MqttUrl
from ccbps.network import Identity
from ccbps.overlay import EdgeBroker, MatcherRelation, PlainRelation, ServedRouter
from ccbps.overlay.routing.served import read_message
from tests.support.three_brokers import free_ports
from tests.support.trios import Parts

SCHEMA = Schema(issue=Category(["IBM", "FB"]), price=UInt(8))
RELATION = PlainRelation(SCHEMA, bits={"issue": 1, "price": 2})
MATCHER = TagMatch(SCHEMA)
NAMES = ("west", "middle", "east")
ALL = RELATION.filter_bytes("price >= 0")


def eventually(condition: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


class Net:
    """Two edges and a broker in the middle, which notes down what it gets."""

    def __init__(self, relation: Any = RELATION) -> None:
        first = free_ports(3)
        self.relation = relation
        self.places = {name: f"127.0.0.1:{first + n}" for n, name in enumerate(NAMES)}
        self.identities = {name: Identity.generate() for name in NAMES}
        self.edges: dict[str, EdgeBroker] = {}
        self.seen: list[bytes] = []

    def near(self, name: str) -> dict[str, Any]:
        others = ["middle"] if name != "middle" else ["west", "east"]
        return {one: (self.places[one], self.identities[one].certificate()) for one in others}

    def edge(self, name: str, broker: Any, **options: Any) -> EdgeBroker:
        port = int(self.places[name].rpartition(":")[2])
        self.edges[name] = EdgeBroker(
            broker, self.relation, self.identities[name], self.near(name), port=port, **options
        )
        return self.edges[name]

    def start(self, **options: Any) -> None:
        """Start the broker in the middle."""
        port = int(self.places["middle"].rpartition(":")[2])
        self.middle = ServedRouter(
            self.relation, self.identities["middle"], self.near("middle"), port=port, **options
        )
        receive = self.middle.router.receive

        def noted(neighbour: str, message: Any) -> None:
            self.seen.append(message.to_bytes())
            receive(neighbour, message)

        self.middle.router.receive = noted  # type: ignore[method-assign]

    def wait(self, name: str, count: int) -> None:
        """Wait until a broker knows so many subscriptions, and all are ready."""
        router = self.middle if name == "middle" else self.edges[name].router
        eventually(lambda: router.router.router.entries == count and router.router.is_ready)
        assert all(edge.router.wait_ready(60) for edge in self.edges.values())


@contextmanager
def net(relation: Any = RELATION) -> Iterator[Net]:
    world = Net(relation)
    try:
        yield world
    finally:
        world.middle.close()
        for edge in world.edges.values():
            edge.close()


class Tags:
    """Publishers and subscribers of a matcher with a key server."""

    def __init__(self, matcher: Any = MATCHER, relation: PlainRelation = RELATION) -> None:
        self.matcher, self.relation = matcher, relation
        self.server = matcher.key_server()
        self.publisher = matcher.publisher(self.server.publisher_key())
        self.keys = {name: self.server.subscriber_key(name) for name in ("alice", "bob")}
        self.broker_key = self.server.broker_key()

    def broker(self) -> Any:
        return self.matcher.broker(self.broker_key)

    def subscription(self, client: str, text: str, name: str = "mine") -> Subscription:
        interests = self.matcher.subscriber(self.keys[client]).encode(text)
        return Subscription(name, interests, route=self.relation.filter_bytes(text))

    def publication(self, number: int, issue: str, price: int) -> Publication:
        record = {"issue": issue, "price": price}
        event = self.publisher.encode([record])[0].tobytes()
        payload = b"%s %d" % (issue.encode(), price)
        return Publication(number, event, payload, route=self.relation.event_bytes(record))


def got(edge: EdgeBroker, client: str) -> list[int]:
    """Numbers of all publications that a client got, each once."""
    numbers = []
    while deliveries := edge.take(client):
        numbers += [delivery.number for delivery in deliveries]
        edge.acknowledge(client, deliveries[-1].sequence)
    assert len({*numbers}) == len(numbers)
    return sorted(numbers)


def test_brokers_end_and_start_again_amid_publications(tmp_path: Path) -> None:
    tags = Tags()
    with net() as world:
        west = world.edge("west", tags.broker(), advertisements={"feed": [ALL]})
        east = world.edge("east", tags.broker(), path=tmp_path / "east")
        world.start()
        assert west.router.wait_ready(60)
        east.subscribe("alice", tags.subscription("alice", "issue = 'IBM' AND price < 100"))
        west.subscribe("bob", tags.subscription("bob", "price BETWEEN 80 AND 120"))
        world.wait("west", 2)
        for number in range(90):
            if number == 20:
                world.middle.close()
            if number == 40:
                world.start()
            if number == 60:
                east.close()
            if number == 75:
                east = world.edge("east", tags.broker(), path=tmp_path / "east")
            issue, price = ("IBM", "FB")[number % 2], number * 2
            west.publish("feed", tags.publication(number, issue, price))
        assert west.router.wait_arrived(60)
        assert got(east, "alice") == [*range(0, 50, 2)]
        assert got(west, "bob") == [*range(40, 61)]
        assert east.subscriptions("alice") == ["mine"]
        # The middle read two bits of prices, and no content.
        assert not any(b"alice" in one or b"bob" in one or b"mine" in one for one in world.seen)
        routes = {one.content for one in map(read_message, world.seen) if hasattr(one, "payload")}
        assert routes <= {
            RELATION.event_bytes({"issue": issue, "price": 64 * block})
            for issue in ("IBM", "FB")
            for block in range(4)
        }


def test_what_an_edge_refuses() -> None:
    tags = Tags()
    with net() as world:
        edge = world.edge("west", tags.broker(), advertisements={"feed": [ALL]})
        wanted, event = tags.subscription("alice", "price < 9"), tags.publication(7, "IBM", 5)
        with pytest.raises(RefusedError, match="not all neighbours"):
            edge.publish("feed", event)
        world.edge("east", tags.broker())
        world.start()
        world.wait("middle", 0)
        bare = Subscription("mine", wanted.interests)
        with pytest.raises(DecodeError, match="has a route"):
            edge.subscribe("alice", bare)
        with pytest.raises(DecodeError, match="not a filter"):
            edge.subscribe_all([("alice", Subscription("a", wanted.interests, route=b"x"))])
        assert edge.subscriptions("alice") == []
        for changed in (
            Publication(7, event.event, event.payload),
            Publication(7, event.event, None, route=event.route),
        ):
            with pytest.raises(DecodeError, match="route and payload"):
                edge.publish("feed", changed)
        with pytest.raises(RefusedError, match="outside of its advertisements"):
            edge.publish("stranger", event)
        with pytest.raises(DecodeError, match="not a filter or an event"):
            edge.publish("feed", Publication(7, event.event, b"", route=b"x"))
        edge.subscribe("alice", wanted.to_bytes())
        assert not edge.publish("feed", event.to_bytes()).again
        assert edge.publish("feed", event).again
        with pytest.raises(ReplayError, match="something else"):
            edge.publish("feed", tags.publication(7, "FB", 5))
        late = Publication(9, event.event, b"", after=8, route=event.route)
        with pytest.raises(RefusedError, match="comes after 8"):
            edge.publish("feed", late)
        assert edge.router.wait_arrived(60)
        assert got(edge, "alice") == [7]


def test_routes_follow_the_subscriptions() -> None:
    tags = Tags()
    with net() as world:
        world.edge("west", tags.broker(), advertisements={"feed": [ALL]})
        east = world.edge("east", tags.broker())
        world.start()
        world.wait("west", 0)
        east.subscribe("alice", tags.subscription("alice", "price < 70"))
        world.wait("west", 1)
        (first,) = east._routes.values()
        east.subscribe("alice", tags.subscription("alice", "price < 70"))
        east.subscribe("alice", tags.subscription("alice", "price < 80"))  # of the same route
        assert [*east._routes.values()] == [first]
        east.subscribe("alice", tags.subscription("alice", "price > 200"))
        east.subscribe_all([("bob", tags.subscription("bob", "issue = 'FB'"))])
        world.wait("west", 2)
        east.unsubscribe("alice", "mine")
        world.wait("west", 1)
        assert east.router.router.router.entries == 1
        east.revoke("bob")
        world.wait("west", 0)
        assert not east._routes


def test_a_publication_that_cannot_be_taken_now_is_taken_later(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    tags, refusals = Tags(), [RefusedError("wait", reason="rate")] * 2
    take = MatchingBroker.publish_all

    def refuse(self: Any, *arguments: Any) -> Any:
        return [refusals.pop()] if refusals else take(self, *arguments)

    monkeypatch.setattr(MatchingBroker, "publish_all", refuse)
    relation = PlainRelation(SCHEMA, bits={})
    with closing(
        EdgeBroker(tags.broker(), relation, Identity.generate(), {}, advertise=False)
    ) as edge:
        tags.relation = relation
        edge.subscribe("alice", tags.subscription("alice", "price < 9"))
        edge.publish("feed", tags.publication(1, "IBM", 5))
        bad = Publication(2, b"no event", b"", route=b"")
        edge.publish("feed", bad)
        edge.publish("feed", tags.publication(3, "IBM", 5))
        assert edge.router.wait_arrived(60)
        assert got(edge, "alice") == [1, 3]
    assert not refusals
    assert "a publication of feed is dropped" in caplog.text
    assert caplog.text.count("a publication of feed waits") == 1


def test_one_time_messages_meet_at_the_edge_only() -> None:
    """Rounds that do not get there leave interests unused; brokers between see two bits."""
    matcher, seed = FormulaMatch.box(SCHEMA), SharedSeed.generate()
    with net() as world:
        west = world.edge("west", matcher.broker(), advertisements={"feed": [ALL]})
        east = world.edge("east", matcher.broker())
        world.start()
        world.wait("west", 0)
        text, label, rounds = "issue = 'IBM' AND price < 50", "alice/mine", range(30)
        interests = matcher.subscriber(seed.pair(label)).encode(text, rounds)
        route = RELATION.filter_bytes(text)
        east.subscribe("alice", Subscription("mine", interests, None, "feed", 0, route))
        world.wait("west", 1)
        publisher, wanted, sent = matcher.publisher(seed), [], 0
        for number in rounds:
            record = {"issue": ("IBM", "FB")[number % 2], "price": 4 * number}
            event = publisher.encode([record], [number], pairs=[label])[0].tobytes()
            west.publish(
                "feed",
                Publication(
                    number,
                    None,
                    b"sealed",
                    None,
                    number,
                    {label: event},
                    route=RELATION.event_bytes(record),
                ),
            )
            sent += record["issue"] == "IBM" and record["price"] < 64
            if SCHEMA.parse(text).evaluate([record])[0]:
                wanted.append(number)
        assert west.router.wait_arrived(60)
        assert got(east, "alice") == wanted
        assert west.router.hops == world.middle.hops == sent < len(rounds)
        # Interests stay at the edge: brokers between have events alone, which tell nothing.
        pieces = [row[:24].tobytes() for row in interests]
        assert not any(piece in one for piece in pieces for one in world.seen)


@pytest.mark.slow
def test_three_brokers_match_at_the_edge_only() -> None:
    """The publisher greets the three, and publishes at an edge of another matcher."""
    matcher, parts = ThreeBrokerMatch.box(SCHEMA), Parts()
    feed, alice = matcher.publisher(parts.public), matcher.subscriber(parts.public)
    with (
        parts.follower(1, matcher),
        parts.follower(2, matcher),
        parts.leader(matcher, patience=30) as leader,
        net() as world,
    ):
        west = world.edge("west", Tags().broker(), advertisements={"feed": [ALL]})
        east = world.edge("east", leader)
        world.start()
        world.wait("west", 0)
        east.greet("feed", Hellos(feed.hellos))
        east.greet("alice", Hellos(alice.hellos))
        text = "issue = 'IBM' AND price < 50"
        interests = alice.seal(alice.encode(text))
        east.subscribe("alice", Subscription("mine", interests, route=RELATION.filter_bytes(text)))
        world.wait("west", 1)
        records = [{"issue": ("IBM", "FB")[n % 2], "price": 4 * n} for n in range(30)]
        for n, (record, row) in enumerate(
            zip(records, feed.seal(feed.encode(records)), strict=True)
        ):
            route = RELATION.event_bytes(record)
            west.publish("feed", Publication(n, row.tobytes(), b"sealed", route=route))
        assert west.router.wait_arrived(60)
        meant = [n for n, match in enumerate(SCHEMA.parse(text).evaluate(records)) if match]
        assert got(east, "alice") == meant
        assert not any(interests[0, 40:64].tobytes() in one for one in world.seen)


@pytest.mark.filterwarnings("ignore:.*is broken")
def test_routes_are_encrypted_messages_where_brokers_tell_what_covers_what() -> None:
    matcher = PrefixMatch(Schema(price=UInt(4)))
    server = matcher.key_server()
    publisher = matcher.publisher(server.publisher_key())
    key = server.broker_key()
    with net(MatcherRelation(matcher.broker(key))) as world:
        west = world.edge("west", matcher.broker(key), advertise=False)
        east = world.edge("east", matcher.broker(key), advertise=False)
        world.start(advertise=False)
        subscriber = matcher.subscriber(server.subscriber_key("alice"))
        for name, text in (("wide", "price < 12"), ("narrow", "price < 4")):
            interests = subscriber.encode(text)
            east.subscribe("alice", Subscription(name, interests, route=interests[0].tobytes()))
        world.wait("west", 1)  # the wide one covers the other
        for number in range(16):
            event = publisher.encode({"price": [number]})[0].tobytes()
            west.publish("feed", Publication(number, event, b"sealed", route=event))
        assert west.router.wait_arrived(60)
        assert got(east, "alice") == [*range(12)]
        assert west.router.hops == 12


def test_a_client_of_mqtt_reconnects_amid_publications() -> None:
    tags = Tags()
    passwords = {name: secrets.token_hex(8) for name in ("broker", "alice", "feed")}
    with net() as world, ExitStack() as stack:
        world.edge("west", tags.broker(), advertisements={"feed": [ALL]})
        world.edge("east", tags.broker())
        world.start()
        urls = {}
        for name, edge in world.edges.items():
            server = stack.enter_context(LocalServer(passwords))
            urls[name] = server.url
            stack.enter_context(
                MqttService(edge, MqttUrl(server.url, "broker", passwords["broker"]))
            )
        feed = stack.enter_context(MqttClient(MqttUrl(urls["west"], "feed", passwords["feed"])))
        place, numbers = MqttUrl(urls["east"], "alice", passwords["alice"]), []
        with MqttClient(place) as alice:
            alice.subscribe(tags.subscription("alice", "price < 100"))
            world.wait("west", 1)
            for number in range(10):
                feed.publish(tags.publication(number, "IBM", number))
            numbers += [alice.receive(60).number for _ in range(5)]
        for number in range(10, 20):
            feed.publish(tags.publication(number, "IBM", number))
        world.middle.close()
        for number in range(20, 30):
            feed.publish(tags.publication(number, "IBM", number))
        world.start()
        with MqttClient(place) as alice:
            numbers += [alice.receive(60).number for _ in range(25)]
            with pytest.raises(TimeoutError):
                alice.receive(0.1)
        assert numbers == [*range(30)]


@pytest.mark.parametrize("refuse", [False, True])
def test_an_edge_with_a_file_loses_nothing_that_it_gave_a_receipt_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, refuse: bool
) -> None:
    """It ends while publications are on their way, or after the rules for a publisher changed."""
    caplog.set_level(logging.WARNING)
    tags, path = Tags(), tmp_path / "west"
    events = [tags.publication(number, "IBM", number) for number in range(22)]
    with net() as world:
        west = world.edge("west", tags.broker(), path=path, advertisements={"feed": [ALL]})
        east = world.edge("east", tags.broker())
        world.start()
        world.wait("middle", 0)
        east.subscribe("alice", tags.subscription("alice", "price < 100"))
        world.wait("west", 1)
        for number in range(10):
            west.publish("feed", events[number])
        assert west.router.wait_arrived(60)
        world.middle.close()
        for number in range(10, 20):
            west.publish("feed", events[number])
        assert len(west._store.outgoing()) == 10  # those that arrived are gone with the next one
        west.close()
        rules = {} if refuse else {"feed": [ALL]}
        west = world.edge("west", tags.broker(), path=path, advertisements=rules)
        with pytest.raises(RefusedError, match="earlier publications go first"):
            west.publish("feed", events[20])
        world.start()
        eventually(lambda: not west._unsent)
        assert west.router.wait_arrived(60)
        assert got(east, "alice") == [*range(10 if refuse else 20)]
        assert caplog.text.count("is dropped: an event of 'feed' is outside") == 10 * refuse
        west.close()
        west = world.edge("west", tags.broker(), path=path, advertisements={"feed": [ALL]})
        eventually(lambda: west.router.router.is_ready and not west._unsent)
        # A repeated one is known where it was delivered.
        west.publish("feed", events[3])
        west.publish("feed", events[21])
        assert west.router.wait_arrived(60)
        assert got(east, "alice") == [21]
