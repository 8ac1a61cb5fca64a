"""The running broker: who is refused while others are served, races, and crashes."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccbps import Category, Schema, SharedSeed
from ccbps.broker import MatchingBroker, Payloads, Publication, Quota, Subscription
from ccbps.errors import (
    DecodeError,
    LedgerError,
    ParameterError,
    RefusedError,
    ReplayError,
)
from ccbps.matching import BroadcastMatch, KeywordMatch
from tests.broker_world import PREDICATES, SCHEMA, Clock, World, count, meant


@pytest.fixture(scope="module")
def world() -> World:
    return World()


# -- who is refused, while others are served -----------------------------------------------------


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
    clock, timer = Clock(), Clock()
    broker = world.broker(quota=Quota(cost=0.5, patience=1.0), clock=clock, timer=timer)
    broker.subscribe("alice", world.wants("a", "price < 9"))
    kind = type(broker._broker)
    matches, examines = kind.match_parts, kind.examine_interests

    def slow_match(*arguments: Any) -> Any:
        timer.now += 3.0
        return matches(*arguments)

    def slow_check(*arguments: Any) -> Any:
        timer.now += 3.0
        return examines(*arguments)

    monkeypatch.setattr(kind, "match_parts", slow_match)
    monkeypatch.setattr(kind, "examine_interests", slow_check)
    broker.publish("costly", world.event(0, 3))
    # What is refused takes time, too.
    with pytest.raises(DecodeError):
        broker.subscribe("malformed", World().wants("a", "price < 9"))
    calls: list[Callable[[], object]] = [
        lambda: broker.publish("costly", world.event(1, 3)),
        lambda: broker.take("costly"),
        lambda: broker.acknowledge("costly", 1),
        lambda: broker.deliver("costly", Payloads(0, {})),
        lambda: broker.subscribe("malformed", b""),
    ]
    for call in calls:
        with pytest.raises(RefusedError, match="used up") as caught:
            call()
        assert caught.value.reason == "cost"
    broker.publish("feed", world.event(0, 3))
    clock.now += 4.1
    broker.publish("costly", world.event(1, 3))
    assert len(broker.take("alice")) == 3


def test_what_clients_store_is_bounded_in_bytes(world: World) -> None:
    size = world.wants("a", "price < 9").interests.nbytes + 1
    broker = world.broker(quota=Quota(stored_bytes=2 * size, queue_bytes=33))
    for name in ("a", "b", "a"):  # the last one takes the place of the first
        broker.subscribe("alice", world.wants(name, "price < 9"))
    with pytest.raises(RefusedError, match="subscriptions of") as caught:
        broker.subscribe("alice", world.wants("c", "price < 9"))
    assert caught.value.reason == "subscriptions"
    broker.unsubscribe("alice", "a")
    broker.subscribe("alice", world.wants("c", "price < 9"))
    for number in range(5):  # deliveries of 11 bytes, with the names
        broker.publish("feed", world.event(number, 3))
    assert [one.number for one in broker.take("alice")] == [2, 3, 4]
    assert count(broker, "dropped_total") == 2


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
        (lambda: broker.deliver("feed", Payloads(6, {})), ParameterError),
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
    with pytest.raises(RefusedError, match="alice was revoked"):
        broker.publish("alice", world.event(2, 3))
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


def test_revoked_users_of_a_scheme_are_refused(tmp_path: Path) -> None:
    matcher = KeywordMatch(Schema(word=Category(["a", "b"])))
    server = matcher.key_server()
    keys = {name: server.subscriber_key(name) for name in ("alice", "bob")}
    feed = matcher.publisher(server.publisher_key())
    key, path = server.broker_key(), tmp_path / "broker.db"
    broker = MatchingBroker(matcher.broker(key), path=path)
    for name, one in keys.items():
        subscriber = matcher.subscriber(one)
        broker.subscribe(name, Subscription("a", subscriber.encode("word = 'a'")))
    stolen = matcher.subscriber(keys["alice"]).encode("word = 'a'")
    broker.subscribe("carol", Subscription("a", stolen))
    broker.revoke("alice", server.revoke("subscriber", "alice"))
    for number in range(2):
        event = feed.encode([{"word": "a"}])[0].tobytes()
        broker.publish("feed", Publication(number, event, b""))
        assert len(broker.take("bob")) == number + 1
        assert broker.take("carol") == []
        with pytest.raises(DecodeError, match="revoked"):
            broker.subscribe("dave", Subscription("a", stolen))
        # So it stays when the broker starts anew with the key that it had.
        broker.close()
        broker = MatchingBroker(matcher.broker(key), path=path)
    # Users that come later are told to the broker that matches, or are in its next key.
    later = matcher.subscriber(server.subscriber_key("erin")).encode("word = 'a'")
    with pytest.raises(DecodeError):
        broker.subscribe("erin", Subscription("a", later))
    broker.close()
    inner = matcher.broker(key)
    broker = MatchingBroker(inner, path=path)
    inner.admit(server.broker_key())
    broker.subscribe("erin", Subscription("a", later))
    broker.close()
    broker = MatchingBroker(matcher.broker(server.broker_key()), path=path)
    broker.publish("feed", Publication(2, feed.encode([{"word": "a"}])[0].tobytes(), b""))
    assert [len(broker.take(client)) for client in ("bob", "carol", "erin")] == [3, 0, 1]


# -- at the same time -----------------------------------------------------------------------------


class Meanwhile:
    """Does something in the middle of a match."""

    def __init__(self, broker: MatchingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.todo: list[Callable[[], object]] = []
        matches = type(broker._broker).match_parts

        def interrupted(*arguments: Any) -> Any:
            found = matches(*arguments)
            while self.todo:
                self.todo.pop()()
            return found

        monkeypatch.setattr(type(broker._broker), "match_parts", interrupted)


@pytest.mark.parametrize("keep", [0, 5])
def test_subscriptions_that_change_during_a_match_miss_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, keep: int
) -> None:
    broker = world.broker(keep=keep)
    broker.subscribe("alice", world.wants("a", "price < 9"))
    broker.subscribe("bob", world.wants("a", "price < 5"))
    meanwhile = Meanwhile(broker, monkeypatch)
    changes: list[tuple[Callable[[], object], dict[str, int]]] = [
        # In its own place: not lost, and once.
        (lambda: broker.subscribe("alice", world.wants("a", "price < 8")), {"alice": 1, "bob": 1}),
        (lambda: broker.subscribe("carol", world.wants("a", "price < 8")), {"carol": 1}),
        (lambda: broker.subscribe("dave", world.wants("a", "price > 20")), {"dave": 0}),
        (lambda: broker.unsubscribe("bob", "a"), {"alice": 1, "bob": 0, "carol": 1}),
    ]
    for number, (change, wanted) in enumerate(changes):
        meanwhile.todo = [change]
        broker.publish("feed", world.event(number, 3))
        for client, times in wanted.items():
            found = [one.number for one in broker.take(client)]
            assert found.count(number) == times, (number, client)
    for client in ("alice", "bob", "carol"):
        numbers = [one.number for one in broker.take(client)]
        assert len(numbers) == len({*numbers})


def test_a_publication_that_comes_twice_at_once_is_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = world.broker()
    broker.subscribe("alice", world.wants("a", "price < 9"))
    event, receipts = world.event(0, 3), []
    meanwhile = Meanwhile(broker, monkeypatch)
    meanwhile.todo = [lambda: receipts.append(broker.publish("feed", event))]
    receipts.append(broker.publish("feed", event))
    assert [one.again for one in receipts] == [False, True]
    assert len(broker.take("alice")) == 1


def test_a_client_that_comes_back_gets_nothing_from_before(world: World) -> None:
    broker = world.broker()
    broker.subscribe("alice", world.wants("a", "price < 9"))
    event = world.event(0, 3)
    receipt = broker.publish("feed", Publication(0, event.event, None))
    broker.revoke("alice")
    broker.admit("alice")
    broker.deliver("feed", Payloads(0, dict.fromkeys(receipt.clients, b"sealed before")))
    assert broker.take("alice") == []


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


def progress(folder: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return int((folder / "published").read_text())
    return 0


def run(folder: Path, until: int, linger: float) -> bool:
    """Kill it a moment after it published so many; returns whether it was killed."""
    process = subprocess.Popen([sys.executable, str(KILLED), str(folder)])
    while process.poll() is None and progress(folder) < until:
        time.sleep(0.0005)
    time.sleep(linger)
    process.kill()
    status = process.wait()
    assert status in (0, -signal.SIGKILL)
    return status != 0


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
    points = np.sort(rng.integers(1, events - 5, kills)).tolist()
    killed = [run(tmp_path, point, rng.random() * 0.004) for point in points]
    assert sum(killed) > kills // 2
    assert not run(tmp_path, events + 1, 0)
    lines = [line.split() for line in (tmp_path / "got").read_text().splitlines()]
    got = {client: [int(n) for one, n in lines if one == client] for client in wanted}
    for client in ("alice", "bob"):
        assert [*dict.fromkeys(got[client])] == [
            n for n, price in enumerate(prices) if meant(wanted[client], price)
        ]
        # Again at most what a kill left without an acknowledgement.
        assert len(got[client]) <= len({*got[client]}) + 20 * kills
    assert {*got["carol"]} <= {n for n, price in enumerate(prices[:revoked_at]) if price < 31}
    broker = world.broker(path=tmp_path / "broker.db")
    assert not any(broker.take(client) for client in ("alice", "bob"))
    with pytest.raises(RefusedError, match="carol was revoked"):
        broker.take("carol")
    broker.admit("carol")
    assert broker.take("carol") == []
    assert broker.subscriptions("carol") == []


def test_rounds_are_used_up_also_after_a_restart(tmp_path: Path) -> None:
    matcher = BroadcastMatch.box(SCHEMA)
    master = SharedSeed.generate()
    feed, subscriber = matcher.publisher(master), matcher.subscriber(master)

    def started() -> MatchingBroker:
        return MatchingBroker(matcher.broker(), path=tmp_path / "broker.db")

    broker = started()
    stack = subscriber.encode("price < 9", rounds=range(5), pairs=["alice/a"] * 5)
    broker.subscribe("alice", Subscription("a", stack, None, "feed", 0))
    events = [row.tobytes() for row in feed.encode({"price": [5] * 5}, rounds=range(5))]
    for number, turn in enumerate([1, 3]):
        broker.publish("feed", Publication(number, events[turn], b"", None, turn))
        broker.close()
        broker = started()
        for used in range(turn + 1):
            with pytest.raises(ReplayError, match=f"the next one is {turn + 1}"):
                broker.publish("feed", Publication(9, events[used], b"", None, used))
    # Rounds are each publisher's own.
    broker.publish("other", Publication(0, events[0], b"", None, 0))
    broker.publish("feed", Publication(2, events[4], b"", None, 4))
    assert [one.number for one in broker.take("alice")] == [0, 1, 2]


def test_files_are_of_one_broker(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccbps.broker.store.WAIT_SECONDS", 0.1)
    path = tmp_path / "broker.db"
    broker = world.broker(path=path)
    with pytest.raises(LedgerError, match="cannot be used"):
        world.broker(path=path)
    broker.close()
    with pytest.raises(ParameterError, match="another matcher, key or epoch"):
        World().broker(path=path)
    foreign = tmp_path / "foreign.db"
    with contextlib.closing(sqlite3.connect(foreign)) as db:
        db.execute("CREATE TABLE notes (note TEXT)")
    before = foreign.read_bytes()
    with pytest.raises(ParameterError, match="not a broker's file"):
        world.broker(path=foreign)
    assert foreign.read_bytes() == before
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
