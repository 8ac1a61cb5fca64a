"""Changes and orders of three brokers: few of them, repeated where links break, and none twice."""

from __future__ import annotations

import gc
import logging
import random
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccbps import Schema, UInt
from ccbps.broker import Hellos, MatchingBroker, Publication, Quota, Subscription
from ccbps.errors import NetworkError, RefusedError
from ccbps.matching import ThreeBrokerMatch
from ccbps.shares.clients import CLIENT_BYTES, HEAD_BYTES
from ccbps.trio import Follower, Leader, others
from ccbps.trio.orders import Order, Reply, lane_bytes
from tests.support.trios import Parts

SCHEMA = Schema(price=UInt(8))
MATCHER = ThreeBrokerMatch.box(SCHEMA)


class Trio:
    """Three brokers with two clients, and the verbs of orders to broker 1."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        parts = Parts()
        self.followers: list[Follower] = [
            stack.enter_context(parts.follower(party, MATCHER, path=folder / f"{party}"))
            for party in (1, 2)
        ]
        self.leader: Leader = stack.enter_context(parts.leader(MATCHER, patience=20))
        self.feed, self.ann = MATCHER.publisher(parts.public), MATCHER.subscriber(parts.public)
        self.broker = self.served()
        self.verbs: list[str] = []
        self.fails: str | None = None
        self._number = 0
        send = self.leader._others._send

        def watched(party: int, order: Order) -> None:
            if party == 1:
                self.verbs.append(order.verb)
            elif order.verb == self.fails:
                self.fails = None
                raise NetworkError("broker 1 has it, and broker 2 has not")
            send(party, order)

        self.leader._others._send = watched  # type: ignore[method-assign]

    def served(self, **options: Any) -> MatchingBroker:
        """Start a broker with both clients."""
        broker = MatchingBroker(self.leader, **options)
        broker.greet("feed", Hellos(self.feed.hellos))
        broker.greet("ann", Hellos(self.ann.hellos))
        return broker

    def event(self, price: int) -> Publication:
        row = self.feed.seal(self.feed.encode({"price": [price]}))[0]
        self._number += 1
        return Publication(self._number, row.tobytes(), b"")

    def wants(self, name: str, predicate: str, token: bytes | None = None) -> Subscription:
        return Subscription(name, self.ann.seal(self.ann.encode(predicate)), token)

    def subscribe(self, name: str, predicate: str, token: bytes | None = None) -> None:
        self.broker.subscribe("ann", self.wants(name, predicate, token))

    def names(self, price: int) -> set[str]:
        """Publish an event, and return the names of the subscriptions that match."""
        self.broker.publish("feed", self.event(price))
        waiting = self.broker.take("ann")
        if waiting:
            self.broker.acknowledge("ann", waiting[-1].sequence)
        return {name for one in waiting for name in one.names}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    with ExitStack() as stack:
        yield Trio(stack, tmp_path_factory.mktemp("trio"))


@pytest.fixture
def trio(running: Trio) -> Iterator[Trio]:
    running.verbs.clear()
    yield running
    for name in running.broker.subscriptions("ann"):
        running.broker.unsubscribe("ann", name)
    for table, held in [*running.leader._held.items()]:  # of other brokers
        running.leader.remove(table, np.array([*held]))


def test_one_order_serves_all_topics(trio: Trio) -> None:
    for n in range(6):
        trio.subscribe(f"{n}", f"price > {n}", bytes([n]) * 16)
    trio.verbs.clear()
    assert trio.names(4) == {"0", "1", "2", "3"}
    assert trio.verbs == ["match"]
    trio.broker.unsubscribe("ann", "2")
    assert trio.names(4) == {"0", "1", "3"}


def test_clients_pay_for_the_time_of_workers(trio: Trio) -> None:
    broker = trio.served(quota=Quota(cost=1e-9, patience=1e-6), timer=lambda: 0.0)
    for _ in range(3):
        broker.publish("feed", trio.event(4))  # no table, and no order
    broker.subscribe("ann", trio.wants("a", "price > 1", bytes(16)))
    broker.publish("feed", trio.event(4))
    for act in (
        lambda: broker.publish("feed", trio.event(4)),
        lambda: broker.subscribe("ann", trio.wants("b", "price > 1")),
    ):
        with pytest.raises(RefusedError, match="time for this client is used up"):
            act()


def test_a_subscription_takes_two_orders_and_its_message_is_held_once(trio: Trio) -> None:
    wanted = trio.wants("a", "price > 7")
    trio.verbs.clear()
    trio.broker.subscribe("ann", wanted)
    assert trio.verbs == ["verify", "put"]
    held = weakref.ref(wanted.interests)
    del wanted
    gc.collect()
    assert held() is None
    assert trio.names(8) == {"a"}


@pytest.mark.parametrize("verb", ["put", "remove", "missing"])
def test_a_change_that_meets_a_broken_link_is_repeated(trio: Trio, verb: str) -> None:
    trio.subscribe("a", "price > 7")
    trio.subscribe("b", "price > 8")
    trio.verbs.clear()
    trio.fails = "put" if verb == "missing" else verb
    trio.subscribe("c", "price > 9")
    if verb == "missing":
        trio.fails = "missing"  # the link breaks again while the change is repeated
    trio.broker.unsubscribe("ann", "a")
    trio.subscribe("a", "price > 100")
    assert trio.names(50) == {"b", "c"} and trio.fails is None
    assert trio.names(101) == {"a", "b", "c"}
    assert "reset" not in trio.verbs and trio.verbs.count("join") == 1 + (verb == "missing")


def test_links_that_are_cut_lead_to_no_restore(trio: Trio) -> None:
    trio.subscribe("a", "price > 7")
    trio.verbs.clear()
    for channel in trio.leader._others._channels.values():
        channel.close()
    trio.broker.unsubscribe("ann", "a")
    trio.subscribe("b", "price > 8")
    assert trio.names(50) == {"b"}
    assert "reset" not in trio.verbs


@pytest.mark.parametrize("loss", ["interest", "table", "client"])
def test_only_tables_that_differ_are_restored(trio: Trio, loss: str) -> None:
    for n, token in enumerate([None, None, bytes(16)]):
        trio.subscribe(f"{n}", f"price > {n}", token)
    ((first, held), (second, _)) = trio.leader._held.items()
    assert trio.names(50) == {"0", "1", "2"}
    trio.verbs.clear()
    head = np.frombuffer(held[0], np.uint8)[None, :HEAD_BYTES]
    feed = np.frombuffer(trio.feed.hellos[0], np.uint8)[None, :CLIENT_BYTES]
    lost = {
        "interest": Order("remove", tables=(first,), rows=head, lanes=lane_bytes([0])),
        "table": Order("drop", tables=(second,)),
        "client": Order("forget", rows=feed),
    }
    trio.leader._others.give([None, None, lost[loss]], lambda _: None)
    assert trio.names(50) == {"0", "1", "2"}
    assert ("reset" in trio.verbs) == (loss != "interest")
    if loss == "interest":
        assert trio.verbs.count("put") == trio.verbs.count("digests") == 1


def test_a_broker_that_tells_late_that_tables_differ_is_heard(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broker 0's worker sees only that its connections end, and sooner."""
    monkeypatch.setattr(others, "LATE_SECONDS", 60.0)  # enough on a busy machine
    trio.subscribe("a", "price > 7")
    assert trio.names(50) == {"a"}
    ((table, held),) = trio.leader._held.items()
    head = np.frombuffer(held[0], np.uint8)[None, :HEAD_BYTES]
    lost = Order("remove", tables=(table,), rows=head, lanes=lane_bytes([0]))
    trio.leader._others.give([None, None, lost], lambda _: None)
    trio.verbs.clear()
    for follower in trio.followers:

        def late(content: bytes, reply: Any = follower._reply) -> Reply:
            said: Reply = reply(content)
            if said.anew:
                time.sleep(0.2)
            return said

        monkeypatch.setattr(follower, "_reply", late)
    assert trio.names(50) == {"a"}
    assert trio.verbs.count("join") == 1


def test_a_full_disk_stops_new_interests_and_no_others(
    trio: Trio, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(20):
        trio.subscribe(f"{n}", f"price > {n}")
    shelf = trio.followers[0]._shelf._db
    (pages,) = shelf.execute("PRAGMA page_count").fetchone()
    shelf.execute(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        for n in range(20, 200):
            trio.subscribe(f"{n}", "price > 100")

    with caplog.at_level(logging.ERROR), pytest.raises(RefusedError, match=r"1 cannot keep.*full"):
        fill()
    kept = len(trio.broker.subscriptions("ann"))
    assert 20 <= kept < 200
    told = [record.message for record in caplog.records]
    assert any("no more interests are taken" in text for text in told)
    assert any("broker 1 cannot keep interests" in text for text in told)
    assert trio.names(20) == {f"{n}" for n in range(20)}
    trio.broker.unsubscribe("ann", "3")
    assert trio.names(20) == {f"{n}" for n in range(20) if n != 3}
    assert len(trio.names(101)) == kept - 1
    shelf.execute("PRAGMA max_page_count = 100000")
    trio.subscribe("again", "price > 200")
    assert "again" in trio.names(201)


def test_a_follower_compares_what_was_not_verified(trio: Trio) -> None:
    trio.subscribe("a", "price > 7")
    (table,) = trio.leader._held
    rows = trio.ann.encode(["price > 8"])[:, :HEAD_BYTES]
    order = Order("put", tables=(table,), rows=rows, lanes=lane_bytes([1]), verified=True)
    with pytest.raises(NetworkError, match="not verified"):
        trio.leader._others.give([None, order, None], lambda _: None)
    assert trio.names(8) == {"a"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_changes_amid_failures_keep_all_brokers_alike(trio: Trio, seed: int) -> None:
    draw, wanted = random.Random(seed), dict[str, int]()
    for _ in range(150):
        match draw.randrange(7):
            case 0 | 1 | 2:
                name, low = str(draw.randrange(12)), draw.randrange(100)
                token = [None, bytes(16), bytes([1]) * 16][int(name) % 3]
                trio.subscribe(name, f"price > {low}", token)
                wanted[name] = low
            case 3 if wanted:
                name = draw.choice([*wanted])
                trio.broker.unsubscribe("ann", name)
                del wanted[name]
            case 4:
                trio.fails = draw.choice(["put", "remove", "match", "missing", "join", "verify"])
            case 5:
                for channel in trio.leader._others._channels.values():
                    if draw.random() < 0.5:
                        channel.close()
            case 6 if draw.random() < 0.2:
                side = draw.choice([trio.leader._others.workers, trio.followers[0]._workers])
                assert side is not None
                side._processes[0].kill()
        if draw.random() < 0.5:
            price = draw.randrange(120)
            assert trio.names(price) == {name for name, low in wanted.items() if price > low}
    trio.fails = None
    assert trio.names(120) == wanted.keys()
    tables = (*trio.leader._held,)
    order = Order("digests", tables=tables)
    replies, own = trio.leader._others.give([order] * 3, lambda workers: workers.digests(order))
    assert {reply.digests for reply in replies.values()} == {b"".join(own)}
