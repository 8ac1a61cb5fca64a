"""The running broker: who is refused while others are served, races, and crashes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccbps import Category, Schema
from ccbps.broker import MatchingBroker, Payloads, Publication, Quota, Subscription
from ccbps.errors import (
    DecodeError,
    ParameterError,
    RefusedError,
    ReplayError,
)
from ccbps.matching import KeywordMatch
from tests.support import killed_broker
from tests.support.broker_world import (
    Clock,
    World,
    count,
    in_match,
    meant,
    received,
    refused,
)
from tests.support.kills import run_and_kill

# -- who is refused, while others are served -----------------------------------------------------


def test_clients_that_do_too_much_are_refused_and_others_served(world: World) -> None:
    clock = Clock()
    quota = Quota(rate=10.0, burst=5.0, subscriptions=2, message_bytes=5000)
    broker = world.broker_of_alice(quota=quota, clock=clock)
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: broker.publish("flood", world.event(9, 1)), "rate"),
        (lambda: broker.publish("large", Publication(0, bytes(5000), b"")), "size"),
        (lambda: broker.publish("large", bytes(10**6)), "size"),
        (lambda: broker.subscribe("many", world.wants("c", "price < 9")), "subscriptions"),
    ]
    for number in range(5):
        broker.publish("flood", world.event(number, 1))
    for name in "ab":
        broker.subscribe("many", world.wants(name, "price < 9"))
    for call, reason in calls:
        with refused(reason):
            call()
        assert f'ccbps_refused_total{{reason="{reason}"}}' in broker.metrics()
    broker.publish("feed", world.event(0, 3))
    assert len(broker.take("alice")) == 6
    clock.now = 0.1
    broker.publish("flood", world.event(9, 1))
    broker.subscribe("many", world.wants("b", "price < 5"))  # in place of the old one


def test_whoever_takes_too_much_time_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, timer = Clock(), Clock()
    broker = world.broker_of_alice(quota=Quota(cost=0.5, patience=1.0), clock=clock, timer=timer)
    kind = type(broker._broker)

    def slow(method: Callable[..., Any]) -> Callable[..., Any]:
        def slowly(*arguments: Any) -> Any:
            timer.now += 3.0
            return method(*arguments)

        return slowly

    for name in ("match_parts", "examine_interests"):
        monkeypatch.setattr(kind, name, slow(getattr(kind, name)))
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
        with refused("cost", "used up"):
            call()
    broker.publish("feed", world.event(0, 3))
    clock.now += 4.1
    broker.publish("costly", world.event(1, 3))
    assert len(broker.take("alice")) == 3


def test_rates_are_exact(world: World) -> None:
    clock, sent = Clock(), 0
    broker = world.broker(quota=Quota(rate=10.0, burst=5.0), clock=clock)
    for now, allowed in ((0.0, 5), (0.05, 0), (0.1, 1), (0.35, 2), (60.0, 5)):
        clock.now = now
        for _ in range(allowed):
            broker.publish("feed", world.event(sent, 3))
            sent += 1
        with refused("rate", r"more than 10\.0 messages"):
            broker.publish("feed", world.event(sent, 3))
        broker.publish(f"other at {now}", world.event(0, 3))  # has a rate of its own
        broker.take("feed")  # is no message


def test_to_take_and_acknowledge_takes_time_too(world: World) -> None:
    ticks = iter(range(10**9))
    calls: list[Callable[[MatchingBroker], object]] = [
        lambda broker: broker.take("alice"),
        lambda broker: broker.acknowledge("alice", 1),
    ]
    for call in calls:
        options: dict[str, Any] = {"clock": Clock(), "timer": lambda: float(next(ticks))}
        broker = world.broker(quota=Quota(patience=3.0), **options)
        for _ in range(3):  # a second each
            call(broker)
        with pytest.raises(RefusedError, match="used up"):
            call(broker)


def test_sealed_payloads_are_messages_with_a_size(world: World) -> None:
    broker = world.broker_of_alice(quota=Quota(message_bytes=500))
    broker.publish("feed", Publication(0, world.event(0, 3).event, None))
    for large in (Payloads(0, {"alice": bytes(500)}), bytes(501)):
        with refused("size"):
            broker.deliver("feed", large)
    broker.deliver("feed", Payloads(0, {"alice": bytes(400)}).to_bytes())
    assert len(broker.take("alice")) == 1


def test_messages_need_not_be_read_to_be_refused(world: World) -> None:
    broker = world.broker(quota=Quota(message_bytes=500))
    broker.turn_away("alice", 500)
    broker.revoke("mallory")
    for client, size, reason in (("mallory", 1, "revoked"), ("alice", 501, "size")):
        with refused(reason):
            broker.turn_away(client, size)
        assert f'ccbps_refused_total{{reason="{reason}"}} 1' in broker.metrics()


def test_publications_that_wait_for_payloads_are_not_forgotten(world: World) -> None:
    broker = world.broker_of_alice(remember=2, quota=Quota(queue=10))
    event = world.event(0, 3).event
    for number in range(3):
        broker.publish("feed", Publication(number, event, None))
    with refused("queue", "deliver first"):
        broker.publish("feed", Publication(3, event, None))
    for number in range(3):
        broker.deliver("feed", Payloads(number, {"alice": b"sealed"}))
    broker.publish("feed", Publication(3, event, None))
    # Neither too many publications nor too many clients wait.
    for clients, fit in ((80, 1), (3, 2)):
        broker = world.broker(quota=Quota(queue=2))
        for n in range(clients):
            broker.subscribe(f"client {n}", world.wants("a", "price < 9"))
        for number in range(fit):
            receipt = broker.publish("feed", Publication(number, event, None))
            assert len(receipt.clients) == clients
        with refused("queue", "deliver first"):
            broker.publish("feed", Publication(fit, event, None))


def test_what_clients_store_is_bounded_in_bytes(world: World) -> None:
    size = world.wants("a", "price < 9").interests.nbytes + 1
    broker = world.broker(quota=Quota(stored_bytes=2 * size, queue_bytes=33))
    for name in ("a", "b", "a"):  # the last one takes the place of the first
        broker.subscribe("alice", world.wants(name, "price < 9"))
    with refused("subscriptions", "subscriptions of"):
        broker.subscribe("alice", world.wants("c", "price < 9"))
    broker.unsubscribe("alice", "a")
    broker.subscribe("alice", world.wants("c", "price < 9"))
    for number in range(5):  # deliveries of 11 bytes, with the names
        broker.publish("feed", world.event(number, 3))
    assert received(broker, "alice") == [[2, 3, 4]]
    assert count(broker, "dropped_total") == 2


def test_malformed_and_replayed_messages_are_refused(world: World) -> None:
    broker = world.broker_of_alice(remember=4)
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
        broker = world.broker_of_alice(quota=Quota(queue=3), when_full=when_full)
        broker.subscribe("bob", world.wants("a", "price < 5"))
        for number in range(3):
            broker.publish("feed", world.event(number, 7))
        if when_full == "refuse":
            with refused("queue", "a queue is full"):
                broker.publish("feed", world.event(3, 3))
            assert broker.take("bob") == []  # all or nobody
            broker.acknowledge("alice", broker.take("alice", 1)[0].sequence)
        broker.publish("feed", world.event(3, 3))
        assert received(broker, "alice", "bob") == [[1, 2, 3], [3]]


def test_revocation_reaches_what_is_there_and_what_is_being_matched(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = world.broker()
    for client in ("alice", "bob"):
        broker.subscribe(client, world.wants("a", "price < 9"))
    broker.publish("feed", world.event(0, 3))
    in_match(broker, monkeypatch).todo = [lambda: broker.revoke("alice")]
    broker.publish("feed", world.event(1, 3))
    with pytest.raises(RefusedError, match="alice was revoked"):
        broker.publish("alice", world.event(2, 3))
    assert received(broker, "bob") == [[0, 1]]
    calls: list[Callable[[], object]] = [
        lambda: broker.take("alice"),
        lambda: broker.acknowledge("alice", 5),
        lambda: broker.subscribe("alice", world.wants("a", "price < 9")),
        lambda: broker.publish("alice", world.event(0, 3)),
    ]
    for call in calls:
        with refused("revoked", "alice was revoked"):
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
    assert received(broker, "bob", "carol", "erin") == [[0, 1, 2], [], [2]]


# -- crashes -------------------------------------------------------------------------------------


def subscribed(client: str, interest: str, at: int, until: int, kept: int = 0) -> dict[str, Any]:
    return {"client": client, "wants": interest, "at": at, "until": until, "kept": kept}


@pytest.mark.parametrize(
    ("events", "kills"), [(150, 3), pytest.param(1000, 25, marks=pytest.mark.slow)]
)
def test_a_broker_that_is_killed_loses_nothing(tmp_path: Path, events: int, kills: int) -> None:
    """Killed at random points, while clients come, change, leave and are revoked, and with some
    payloads that come later: all that matched arrives, in order, and nobody gets what is not for
    it."""
    rng = np.random.default_rng(4)
    world = World()
    (tmp_path / "matcher.json").write_text(world.matcher.to_json())
    (tmp_path / "key").write_text(world.key.to_text())
    prices = rng.integers(0, 32, events).tolist()
    later = [n for n in range(events) if n % 10 == 3]
    early, half, late = events // 4, events // 2, 3 * events // 4
    periods = [
        subscribed("alice", "price < 10", 0, events),
        subscribed("bob", "price > 20", 0, early),
        subscribed("bob", "price > 25", early, events),
        subscribed("carol", "price < 31", 0, half),  # is revoked
        subscribed("dave", "price < 31", 0, late),  # leaves
        subscribed("erin", "price > 3", late, events, killed_broker.KEEP),
    ]
    changes = [
        {"at": one["at"], "client": one["client"], "what": message.to_bytes().hex()}
        for one in periods
        for message in [world.wants("a", one["wants"])]
    ]
    changes += [
        {"at": half, "client": "carol", "what": "revoke"},
        {"at": late, "client": "dave", "what": "unsubscribe"},
    ]
    messages = []
    for number, price in enumerate(prices):
        event = world.event(number, price)
        sent = Publication(number, event.event, None) if number in later else event
        messages.append(sent.to_bytes().hex())
    wanted: dict[str, list[int]] = {}
    for one in periods:
        first = one["at"]
        kept = [n for n in range(first) if n not in later][-one["kept"] or first :]
        during = [*kept, *range(first, one["until"])]
        found = [n for n in during if meant(one["wants"], prices[n])]
        wanted.setdefault(one["client"], []).extend(found)
    todo = {
        "clients": [*wanted],
        "events": messages,
        "changes": sorted(changes, key=lambda change: int(change["at"])),
    }
    (tmp_path / "todo.json").write_text(json.dumps(todo))
    points = np.sort(rng.integers(1, events - 5, kills)).tolist()
    killed = [
        run_and_kill(killed_broker, tmp_path, point, rng.random() * 0.004) for point in points
    ]
    assert sum(killed) > kills // 2
    assert not run_and_kill(killed_broker, tmp_path, events + 1, 0)
    lines = [line.split() for line in (tmp_path / "got").read_text().splitlines()]
    got = {client: [int(n) for one, n in lines if one == client] for client in wanted}
    for client in ("alice", "bob", "dave", "erin"):
        assert [*dict.fromkeys(got[client])] == wanted[client], client
        # Again at most what a kill left without an acknowledgement.
        assert len(got[client]) <= len({*got[client]}) + 20 * kills
    assert {*got["carol"]} <= {*wanted["carol"]}
    broker = world.broker(path=tmp_path / "broker.db")
    assert not any(broker.take(client) for client in ("alice", "bob", "dave", "erin"))
    with pytest.raises(RefusedError, match="carol was revoked"):
        broker.take("carol")
    broker.admit("carol")
    assert broker.take("carol") == []
    assert broker.subscriptions("carol") == broker.subscriptions("dave") == []
