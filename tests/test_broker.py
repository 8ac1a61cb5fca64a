"""The running broker: who gets what, whatever happens meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ccbps import Category, Schema, SharedSeed, UInt
from ccbps.broker import Delivery, MatchingBroker, Publication, Quota, Subscription
from ccbps.broker.registry import Column
from ccbps.delivery import GroupOpener, GroupSealer, SimpleCache, pack_groups
from ccbps.errors import (
    DecodeError,
    LedgerError,
    ParameterError,
    RefusedError,
    ReplayError,
)
from ccbps.filters import CuckooFilter, FilterKey, TopicTokens
from ccbps.matching import BroadcastMatch, FormulaMatch, KeywordMatch, PrefixMatch, TagMatch
from tests.effort import examples

SCHEMA = Schema(price=UInt(5))
TOPICS = [None, "news", "quotes"]
PREDICATES = ["price < 10", "price < 20", "price > 5", "price = 7", "price BETWEEN 3 AND 12"]
TOKENS = TopicTokens(FilterKey(bytes(range(16))))


def token(topic: str | None) -> bytes | None:
    return None if topic is None else TOKENS.one(topic)


class World:
    """A matcher with its parties; publications and subscriptions of them."""

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


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def meant(predicate: str, price: int) -> bool:
    return bool(SCHEMA.parse(predicate).evaluate(SCHEMA.encode({"price": [price]}))[0])


# -- against a model -----------------------------------------------------------------------------

WORLDS = {"tag": World(TagMatch), "prefix": World(PrefixMatch)}


class Running(RuleBasedStateMachine):
    """Any sequence of what clients do, with restarts, against dictionaries."""

    clients = st.sampled_from(["alice", "bob", "carol"])
    names = st.sampled_from(["a", "b", "c"])
    topics = st.sampled_from(TOPICS)
    path: Path

    @initialize(
        kind=st.sampled_from([*WORLDS]),
        prefilter=st.sampled_from(["cuckoo", "bloom", None]),
        keep=st.integers(0, 3),
        stored=st.booleans(),
    )
    def start(self, kind: str, prefilter: Any, keep: int, stored: bool) -> None:
        self.world = WORLDS[kind]
        self.stored = stored
        if stored:
            for file in self.path.parent.glob("broker*"):
                file.unlink()
        self.options = {
            "prefilter": prefilter,
            "keep": keep,
            "durable": False,
            "path": self.path if stored else None,
        }
        self.broker = self.world.broker(**self.options)
        self.wanted: dict[tuple[str, str], tuple[str, str | None]] = {}
        self.queues: dict[str, list[tuple[int, frozenset[str]]]] = {}
        self.kept: list[tuple[int, int, str | None]] = []
        self.revoked: set[str] = set()
        self.number = 0

    def matches(self, predicate: str, topic: str | None, price: int, about: str | None) -> bool:
        return meant(predicate, price) and (None in (topic, about) or topic == about)

    @rule(client=clients, name=names, predicate=st.sampled_from(PREDICATES), topic=topics)
    def subscribe(self, client: str, name: str, predicate: str, topic: str | None) -> None:
        subscription = self.world.wants(name, predicate, topic)
        if client in self.revoked:
            with pytest.raises(RefusedError, match="revoked"):
                self.broker.subscribe(client, subscription)
            return
        self.broker.subscribe(client, subscription.to_bytes())
        self.wanted[client, name] = predicate, topic
        queue = self.queues.setdefault(client, [])
        for number, price, about in self.kept:
            there = number in [one for one, _ in queue]
            if self.matches(predicate, topic, price, about) and not there:
                queue.append((number, frozenset([name])))

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        client, name = data.draw(st.sampled_from(sorted(self.wanted)))
        self.broker.unsubscribe(client, name)
        del self.wanted[client, name]

    @rule(price=st.integers(0, 31), topic=topics, again=st.booleans())
    def publish(self, price: int, topic: str | None, again: bool) -> None:
        event = self.world.event(self.number, price, topic)
        for turn in range(2 if again else 1):
            assert self.broker.publish("feed", event).again == bool(turn)
        for client in {client for client, _ in self.wanted}:
            names = [
                name
                for (one, name), (predicate, wanted) in self.wanted.items()
                if one == client and self.matches(predicate, wanted, price, topic)
            ]
            if names:
                self.queues.setdefault(client, []).append((self.number, frozenset(names)))
        if self.options["keep"]:
            self.kept = [*self.kept, (self.number, price, topic)][-self.options["keep"] :]
        self.number += 1

    @rule(client=clients, count=st.integers(1, 3))
    def acknowledge(self, client: str, count: int) -> None:
        if client not in self.revoked:
            some = self.broker.take(client, count)
            if some:
                self.broker.acknowledge(client, some[-1].sequence)
                del self.queues[client][: len(some)]

    @rule(client=clients)
    def revoke(self, client: str) -> None:
        self.broker.revoke(client)
        self.revoked.add(client)
        self.queues.pop(client, None)
        self.wanted = {key: value for key, value in self.wanted.items() if key[0] != client}

    @rule(client=clients)
    def admit(self, client: str) -> None:
        self.broker.admit(client)
        self.revoked.discard(client)

    @precondition(lambda self: self.stored)
    @rule()
    def restart(self) -> None:
        self.broker.close()
        self.broker = self.world.broker(**self.options)

    @invariant()
    def queues_hold_what_matched(self) -> None:
        if not hasattr(self, "broker"):
            return
        for client in ("alice", "bob", "carol"):
            if client not in self.revoked:
                found = self.broker.take(client, 1000)
                assert [(one.number, frozenset(one.names)) for one in found] == self.queues.get(
                    client, []
                )
                assert all(one.payload == b"payload %d" % one.number for one in found)
                sequences = [one.sequence for one in found]
                assert sequences == sorted({*sequences})
        text = self.broker.metrics()
        assert f"ccbps_subscriptions {len(self.wanted)}\n" in text
        assert f"ccbps_topics {len({t for _, t in self.wanted.values() if t})}\n" in text

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            self.broker.close()


def test_any_sequence_of_what_clients_do(tmp_path: Path) -> None:
    class Here(Running):
        path = tmp_path / "broker.db"

    run_state_machine_as_test(
        Here, settings=settings(max_examples=examples(150), stateful_step_count=25, deadline=None)
    )


# -- messages ------------------------------------------------------------------------------------


@given(data=st.binary(max_size=60), kind=st.integers(14, 19), at=st.integers(0, 10**9))
def test_any_bytes_are_refused_or_are_what_they_say(data: bytes, kind: int, at: int) -> None:
    whole = Publication(1, b"event", b"payload", bytes(16), 3, {"a/b": b"1"}, {"a/b": b"2"})
    wanted = Subscription("a", np.zeros((2, 3), dtype=np.uint8), bytes(16), "feed", 7)
    delivery = Delivery(1, "feed", 2, ("a", "b"), b"payload", None, b"wrap")
    for message in (whole, wanted, delivery):
        sent = message.to_bytes()
        found = type(message).from_bytes(sent)
        assert found.to_bytes() == sent
        bent = bytearray(sent)
        bent[at % len(sent)] ^= 1 + at % 255
        for other in (bytes(bent), sent[: at % len(sent)], bytes([kind, 1]) + data):
            try:
                read = type(message).from_bytes(other)
            except DecodeError:
                continue
            assert read.to_bytes() == other


@pytest.mark.parametrize("name", ["", "a/b", "a+b", "#", "$x", "a\n", "é" * 129, "\ud800"])
def test_names_fit_into_labels_and_topics(world: World, name: str) -> None:
    with pytest.raises(ParameterError, match="name must be 1 to 256 bytes"):
        Subscription(name, np.zeros((1, 1), dtype=np.uint8))
    with pytest.raises(ParameterError, match="client must be 1 to 256 bytes"):
        world.broker().revoke(name)


# -- pre-filter and covering ---------------------------------------------------------------------


def count(broker: MatchingBroker, name: str) -> int:
    (line,) = [one for one in broker.metrics().splitlines() if one.startswith(f"ccbps_{name} ")]
    return int(line.split()[1])


def test_hopeless_topics_are_not_matched(world: World) -> None:
    broker = world.broker()
    for n in range(20):
        broker.subscribe(f"client {n}", world.wants("a", "price < 9", "quotes"))
    for number in range(10):
        broker.publish("feed", world.event(number, 3, "news"))
    assert count(broker, "pairs_tested_total") == 0
    assert count(broker, "prefiltered_total") == 10
    found = CuckooFilter.from_bytes(broker.topic_filter())
    assert token("quotes") in found
    assert token("news") not in found
    broker.publish("feed", world.event(10, 3, "quotes"))
    assert count(broker, "deliveries_total") == 20
    # Equal interests are one test.
    assert count(broker, "pairs_tested_total") == 1
    assert count(broker, "pairs_saved_total") == 19


def test_filters_grow_and_lose_no_topic(world: World) -> None:
    broker = world.broker()
    interest = world.alice.encode("price < 9")
    everything = [(f"c{n}", Subscription("a", interest, token(f"t{n}"))) for n in range(1500)]
    broker.subscribe_all(everything[:1000])
    for client, one in everything[1000:]:
        broker.subscribe(client, one)
    found = CuckooFilter.from_bytes(broker.topic_filter())
    assert all(one.token in found for _, one in everything)
    for n in range(1000):
        broker.unsubscribe(f"c{n}", "a")
    assert count(broker, "topics") == 500
    for number, n in enumerate((3, 1400)):
        broker.publish("feed", world.event(number, 3, f"t{n}"))
    assert [len(broker.take(f"c{n}")) for n in (3, 1400)] == [0, 1]


def test_covered_interests_are_tested_when_the_covering_one_matches() -> None:
    world = WORLDS["prefix"]
    broker = world.broker()
    for name, predicate in (("wide", "price < 24"), ("in", "price < 16"), ("deep", "price < 8")):
        broker.subscribe("alice", world.wants(name, predicate))
    broker.subscribe("bob", world.wants("as wide", "price < 24"))
    broker.publish("feed", world.event(0, 30))
    assert count(broker, "pairs_tested_total") == 1
    broker.publish("feed", world.event(1, 3))
    assert count(broker, "pairs_tested_total") == 4
    broker.unsubscribe("alice", "wide")
    broker.unsubscribe("bob", "as wide")
    broker.publish("feed", world.event(2, 12))
    assert [one.names for one in broker.take("alice")] == [("wide", "in", "deep"), ("in",)]


# -- rounds, wraps, and payloads that are sealed later -------------------------------------------


def test_one_time_matchers_run_on_provisioned_rounds() -> None:
    matcher = FormulaMatch.box(SCHEMA)
    master = SharedSeed.generate()
    feed, subscriber = matcher.publisher(master), matcher.subscriber(master)
    broker = MatchingBroker(matcher.broker())
    wanted = {"alice/a": "price < 9", "bob/a": "price > 3", "bob/b": "price = 5"}
    for label, predicate in wanted.items():
        client, name = label.split("/")
        stack = subscriber.encode(predicate, rounds=range(4), pairs=[label] * 4)
        broker.subscribe(client, Subscription(name, stack, token("quotes"), "feed", 0))
    got = Counter[tuple[str, int]]()
    for turn, price in enumerate([2, 5, 20]):
        rows = feed.encode({"price": [price] * 3}, rounds=[turn] * 3, pairs=[*wanted])
        events = {label: row.tobytes() for label, row in zip(wanted, rows, strict=True)}
        wraps = {label: label.encode() for label in wanted}
        sent = Publication(turn, None, b"sealed", token("quotes"), turn, events, wraps)
        broker.publish("feed", sent.to_bytes())
        with pytest.raises(ReplayError, match="rounds grow"):
            broker.publish("feed", Publication(turn + 9, None, b"", None, turn, events))
    for client in ("alice", "bob"):
        for one in broker.take(client):
            assert one.wrap == f"{client}/{one.names[0]}".encode()
            got.update((f"{client}/{name}", one.number) for name in one.names)
    assert {*got} == {
        (label, turn)
        for label, predicate in wanted.items()
        for turn, price in enumerate([2, 5, 20])
        if meant(predicate, price)
    }
    # Another publisher's events are no answer to these interests, and a round that nobody
    # provisioned has none.
    rows = feed.encode({"price": [5]}, rounds=[3], pairs=["bob/b"])
    other = Publication(0, None, b"", None, 3, {"bob/b": rows[0].tobytes()})
    broker.publish("somebody", other)
    broker.publish("feed", Publication(9, None, b"", None, 77, {"bob/b": rows[0].tobytes()}))
    assert len(broker.take("bob")) == 2
    with pytest.raises(DecodeError, match="names its publisher"):
        broker.subscribe("alice", Subscription("x", subscriber.encode("price < 1", rounds=[50])))
    wrong = np.zeros((1, 3), dtype=np.uint8)
    with pytest.raises(DecodeError, match="wrong number of bytes"):
        broker.subscribe("alice", Subscription("x", wrong, None, "feed", 3))


def test_broadcast_matchers_need_one_event_for_all() -> None:
    matcher = BroadcastMatch.box(SCHEMA)
    master = SharedSeed.generate()
    feed, subscriber = matcher.publisher(master), matcher.subscriber(master)
    broker = MatchingBroker(matcher.broker())
    for client, predicate in (("alice", "price < 9"), ("bob", "price > 3")):
        stack = subscriber.encode(predicate, rounds=range(5, 8), pairs=[f"{client}/a"] * 3)
        broker.subscribe(client, Subscription("a", stack, None, "feed", 5))
    event = feed.encode({"price": [5]}, rounds=[6])[0].tobytes()
    broker.publish("feed", Publication(0, event, b"both", None, 6))
    event = feed.encode({"price": [20]}, rounds=[7])[0].tobytes()
    broker.publish("feed", Publication(1, event, b"bob", None, 7))
    assert [[one.payload for one in broker.take(c)] for c in ("alice", "bob")] == [
        [b"both"],
        [b"both", b"bob"],
    ]


def test_payloads_are_sealed_for_those_who_match(world: World) -> None:
    """The publisher learns who matches, and seals with as few encryptions as a strategy needs."""
    broker = world.broker()
    numbers = {"alice": 0, "bob": 1, "carol": 2}
    sealer = GroupSealer(SimpleCache(3, capacity=9))
    openers = {name: GroupOpener(sealer.join(n), capacity=9) for name, n in numbers.items()}
    for client, predicate in zip(numbers, ["price < 9", "price < 20", "price > 9"], strict=True):
        broker.subscribe(client, world.wants("a", predicate))
    for number, price in enumerate([3, 12, 3]):
        event = world.event(number, price)
        receipt = broker.publish("feed", Publication(number, event.event, None))
        assert receipt.clients == (("alice", "bob"), ("bob", "carol"), ("alice", "bob"))[number]
        assert broker.publish("feed", Publication(number, event.event, None)).again
        group = pack_groups(np.isin(range(3), [numbers[one] for one in receipt.clients]))
        sealed = sealer.seal(b"event %d" % number, number, group)
        messages = {one: sealed.for_subscriber(numbers[one]) for one in receipt.clients}
        with pytest.raises(ParameterError, match="does not match"):
            broker.deliver("feed", number, {**messages, "mallory": b""})
        broker.deliver("feed", number, messages)
        with pytest.raises(ParameterError, match="waits for a payload"):
            broker.deliver("feed", number, messages)
    got = {
        client: [openers[client].open(one.payload) for one in broker.take(client)]
        for client in numbers
    }
    assert got == {
        "alice": [b"event 0", b"event 2"],
        "bob": [b"event 0", b"event 1", b"event 2"],
        "carol": [b"event 1"],
    }


# -- who is refused, while others are served -----------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_clients_that_do_too_much_are_refused_and_others_served(world: World) -> None:
    clock = Clock()
    quota = Quota(rate=10.0, burst=5.0, subscriptions=2, message_bytes=5000)
    broker = world.broker(quota=quota, clock=clock)
    broker.subscribe("alice", world.wants("a", "price < 9"))
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: broker.publish("flood", world.event(9, 1)), "rate"),
        (lambda: broker.publish("large", Publication(0, bytes(5000), b"")), "size"),
        (lambda: broker.publish("large", bytes(10**6)), "size"),
        (lambda: broker.subscribe("many", world.wants("c", "price < 9")), "subscriptions"),
    ]
    for number in range(5):
        broker.publish("flood", world.event(number, 1))
    for name in "ab":
        broker.subscribe("many", world.wants(name, "price < 9"))
    for call, reason in refused:
        with pytest.raises(RefusedError) as caught:
            call()
        assert caught.value.reason == reason
        assert f'ccbps_refused_total{{reason="{reason}"}}' in broker.metrics()
    broker.publish("feed", world.event(0, 3))
    assert len(broker.take("alice")) == 6
    clock.now = 0.1
    broker.publish("flood", world.event(9, 1))
    broker.subscribe("many", world.wants("b", "price < 5"))  # in place of the old one


def test_whoever_takes_too_much_time_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    broker = world.broker(quota=Quota(cost=0.5, patience=1.0), clock=clock)
    broker.subscribe("alice", world.wants("a", "price < 9"))
    matches = type(broker._broker).match_parts

    def slow(*arguments: Any) -> Any:
        clock.now += 3.0
        return matches(*arguments)

    monkeypatch.setattr(type(broker._broker), "match_parts", slow)
    broker.publish("costly", world.event(0, 3))
    with pytest.raises(RefusedError, match="used up") as caught:
        broker.publish("costly", world.event(1, 3))
    assert caught.value.reason == "cost"
    broker.publish("feed", world.event(0, 3))
    clock.now += 4.1
    broker.publish("costly", world.event(1, 3))
    assert len(broker.take("alice")) == 3


def test_malformed_and_replayed_messages_are_refused(world: World) -> None:
    broker = world.broker(remember=4)
    broker.subscribe("alice", world.wants("a", "price < 9"))
    good = world.event(5, 3)
    broker.publish("feed", good)
    other = World()
    wrong: list[tuple[Callable[[], object], type[Exception]]] = [
        (lambda: broker.publish("feed", b""), DecodeError),
        (lambda: broker.publish("feed", good.to_bytes()[:-1]), DecodeError),
        (lambda: broker.publish("x", Publication(6, b"short", b"")), DecodeError),
        (lambda: broker.publish("x", Publication(6, None, b"")), DecodeError),
        (lambda: broker.publish("x", other.event(6, 3)), DecodeError),
        (lambda: broker.publish("feed", world.event(5, 4)), ReplayError),
        (lambda: broker.subscribe("alice", b"\x10\x01"), DecodeError),
        (lambda: broker.subscribe("alice", other.wants("b", "price < 9")), DecodeError),
        (lambda: broker.unsubscribe("alice", "b"), ParameterError),
        (lambda: broker.deliver("feed", 5, {}), ParameterError),
    ]
    for call, kind in wrong:
        with pytest.raises(kind):
            call()
    assert broker.subscriptions("alice") == ["a"]
    assert len(broker.take("alice")) == 1
    # The same publication from another client is another one.
    broker.publish("mallory", good)
    for number in range(6, 13):
        broker.publish("feed", world.event(number, 30))
    with pytest.raises(ReplayError, match="too old to tell"):
        broker.publish("feed", good)


def test_full_queues_hold_publishers_back_or_drop(world: World) -> None:
    for when_full in ("refuse", "drop"):
        broker = world.broker(quota=Quota(queue=3), when_full=when_full)
        broker.subscribe("alice", world.wants("a", "price < 9"))
        broker.subscribe("bob", world.wants("a", "price < 5"))
        for number in range(3):
            broker.publish("feed", world.event(number, 7))
        if when_full == "refuse":
            with pytest.raises(RefusedError, match="a queue is full"):
                broker.publish("feed", world.event(3, 3))
            assert broker.take("bob") == []  # all or nobody
            broker.acknowledge("alice", broker.take("alice", 1)[0].sequence)
        broker.publish("feed", world.event(3, 3))
        assert [one.number for one in broker.take("alice")] == [1, 2, 3]
        assert [one.number for one in broker.take("bob")] == [3]


def test_revocation_reaches_what_is_there_and_what_is_being_matched(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = world.broker()
    for client in ("alice", "bob"):
        broker.subscribe(client, world.wants("a", "price < 9"))
    broker.publish("feed", world.event(0, 3))
    matches = type(broker._broker).match_parts

    def revoked_meanwhile(*arguments: Any) -> Any:
        found = matches(*arguments)
        broker.revoke("alice")
        return found

    monkeypatch.setattr(type(broker._broker), "match_parts", revoked_meanwhile)
    broker.publish("feed", world.event(1, 3))
    assert [one.number for one in broker.take("bob")] == [0, 1]
    refused: list[Callable[[], object]] = [
        lambda: broker.take("alice"),
        lambda: broker.acknowledge("alice", 5),
        lambda: broker.subscribe("alice", world.wants("a", "price < 9")),
        lambda: broker.publish("alice", world.event(0, 3)),
    ]
    for call in refused:
        with pytest.raises(RefusedError, match="alice was revoked"):
            call()
    broker.admit("alice")
    assert broker.take("alice") == []
    assert broker.subscriptions("alice") == []


def test_revoked_users_of_a_scheme_are_refused() -> None:
    matcher = KeywordMatch(Schema(word=Category(["a", "b"])))
    server = matcher.key_server()
    keys = {name: server.subscriber_key(name) for name in ("alice", "bob")}
    feed = matcher.publisher(server.publisher_key())
    broker = MatchingBroker(matcher.broker(server.broker_key()))
    for name, key in keys.items():
        subscriber = matcher.subscriber(key)
        broker.subscribe(name, Subscription("a", subscriber.encode("word = 'a'")))
    broker.revoke("alice", server.revoke("subscriber", "alice"))
    broker.publish("feed", Publication(0, feed.encode([{"word": "a"}])[0].tobytes(), b""))
    assert len(broker.take("bob")) == 1
    stolen = matcher.subscriber(keys["alice"]).encode("word = 'a'")
    with pytest.raises(DecodeError, match="revoked"):
        broker.subscribe("carol", Subscription("a", stolen))


def test_changes_of_subscriptions_and_publications_go_on_together(world: World) -> None:
    """A subscription that is always there misses nothing, and nothing is delivered twice."""
    broker = world.broker()
    broker.subscribe("alice", world.wants("always", "price < 31"))
    stop, failures = threading.Event(), []

    def churn(client: str) -> None:
        try:
            while not stop.is_set():
                for predicate in PREDICATES:
                    broker.subscribe(client, world.wants("a", predicate, "news"))
                    broker.subscribe(client, world.wants("b", predicate))
                    broker.unsubscribe(client, "a")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=churn, args=(f"churn {n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for number in range(150):
        broker.publish("feed", world.event(number, number % 31, "news"))
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    found = broker.take("alice", 1000)
    assert [one.number for one in found] == [*range(150)]


# -- crashes -------------------------------------------------------------------------------------

KILLED = Path(__file__).parent / "killed_broker.py"


def run_until_killed(folder: Path, after: float) -> None:
    process = subprocess.Popen([sys.executable, str(KILLED), str(folder)])
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    else:
        assert process.returncode == 0


@pytest.mark.parametrize(
    ("events", "kills"), [(150, 3), pytest.param(1000, 25, marks=pytest.mark.slow)]
)
def test_a_broker_that_is_killed_loses_nothing(tmp_path: Path, events: int, kills: int) -> None:
    """Killed at random points, with a client that was revoked midway: all that matched arrives, in
    order, and nobody gets what is not for it."""
    rng = np.random.default_rng(4)
    world = World()
    (tmp_path / "matcher.json").write_text(world.matcher.to_json())
    (tmp_path / "key").write_text(world.key.to_text())
    prices = rng.integers(0, 32, events).tolist()
    revoked_at = events // 2
    wanted = {"alice": "price < 10", "bob": "price > 20", "carol": "price < 31"}
    messages = {
        "events": [world.event(n, price).to_bytes().hex() for n, price in enumerate(prices)],
        "wanted": {c: world.wants("a", one).to_bytes().hex() for c, one in wanted.items()},
        "revoke": ["carol", revoked_at],
    }
    (tmp_path / "todo.json").write_text(json.dumps(messages))
    for _ in range(kills):
        run_until_killed(tmp_path, 0.7 + rng.random() * 0.5)
    run_until_killed(tmp_path, 120)
    assert (tmp_path / "done").exists()
    lines = [line.split() for line in (tmp_path / "got").read_text().splitlines()]
    got = {client: [int(n) for one, n in lines if one == client] for client in wanted}
    for client in ("alice", "bob"):
        assert sorted({*got[client]}) == [
            n for n, price in enumerate(prices) if meant(wanted[client], price)
        ]
        # Again at most what a kill left without an acknowledgement.
        assert len(got[client]) <= len({*got[client]}) + 100 * (kills + 1)
    assert {*got["carol"]} <= {n for n, price in enumerate(prices[:revoked_at]) if price < 31}


def test_files_are_of_one_broker(world: World, tmp_path: Path) -> None:
    path = tmp_path / "broker.db"
    broker = world.broker(path=path)
    with pytest.raises(LedgerError, match="cannot be used"):
        world.broker(path=path)
    broker.close()
    with pytest.raises(ParameterError, match="another matcher, key or epoch"):
        World().broker(path=path)
    (tmp_path / "text").write_text("not a database, but long enough to be one" * 100)
    with pytest.raises(LedgerError):
        world.broker(path=tmp_path / "text")


def test_what_cannot_be_written_is_not_done(world: World, tmp_path: Path) -> None:
    broker = world.broker(path=tmp_path / "broker.db")
    broker.subscribe("alice", world.wants("a", "price < 9"))
    broker._store._db.execute("PRAGMA query_only = ON")
    failing: list[Callable[[], object]] = [
        lambda: broker.publish("feed", world.event(0, 3)),
        lambda: broker.subscribe("bob", world.wants("a", "price < 9")),
        lambda: broker.unsubscribe("alice", "a"),
    ]
    for call in failing:
        with pytest.raises(LedgerError, match="cannot be written"):
            call()
    broker._store._db.execute("PRAGMA query_only = OFF")
    assert broker.take("alice") == []
    assert broker.subscriptions("bob") == []
    assert not broker.publish("feed", world.event(0, 3)).again
    assert len(broker.take("alice")) == 1


# -- arguments and small parts -------------------------------------------------------------------


@given(st.lists(st.integers(-1, 30), max_size=60))
def test_columns_are_lists(steps: list[int]) -> None:
    column, model = Column(np.uint32), list[int]()
    for step in steps:
        if step >= 0:
            column.append(step)
            model.append(step)
        elif model:
            column.pop(0)
            last = model.pop()
            if model:
                model[0] = last
    assert column.values.tolist() == model


def test_misuse_is_refused(world: World) -> None:
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: MatchingBroker(world.matcher), "broker must be a Broker"),
        (lambda: world.broker(prefilter="bitmap"), "prefilter must be"),
        (lambda: world.broker(when_full="wait"), "when_full must be"),
        (lambda: world.broker(keep=-1), "keep must be"),
        (lambda: Quota(rate=0.0), "rate must be a number above 0"),
        (lambda: Quota(queue=1.5), "queue must be"),  # type: ignore[arg-type]
        (lambda: Publication(-1, b"", b""), "number must be"),
        (lambda: Publication(1, b"", b"", b"short"), "token must be 16 bytes"),
        (lambda: Publication(1, "text", b""), "event must be bytes"),  # type: ignore[arg-type]
        (lambda: Subscription("a", np.zeros(3, dtype=np.uint8)), "interests must be uint8"),
        (lambda: world.broker(prefilter=None).topic_filter(), "no filter"),
    ]
    for call, said in wrong:
        with pytest.raises(ParameterError, match=said):
            call()
    broker = world.broker()
    broker.subscribe("alice", world.wants("a", "price < 9"))
    with pytest.raises(ParameterError, match="all topics"):
        broker.topic_filter()
    with pytest.raises(ParameterError, match="already"):
        broker.subscribe_all([("alice", world.wants("a", "price < 9"))])
    with pytest.raises(ParameterError, match="already"):
        broker.subscribe_all([("bob", world.wants("a", "price < 9"))] * 2)
