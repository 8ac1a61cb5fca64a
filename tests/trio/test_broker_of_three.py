"""A matching broker whose three brokers match together keeps all that a broker promises."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from ccbps import Schema, UInt
from ccbps.broker import Hellos, MatchingBroker, Publication, Subscription
from ccbps.errors import DecodeError, ParameterError, RefusedError
from ccbps.matching import TagMatch, ThreeBrokerMatch
from ccbps.shares.clients import HEAD_BYTES, TAG_BYTES
from ccbps.shares.replicated import Evaluation
from ccbps.shares.table import ShareTable
from tests.support.trios import Parts

SCHEMA = Schema(price=UInt(8))
MATCHER = ThreeBrokerMatch.box(SCHEMA)


class World:
    """Clients of one broker."""

    def __init__(self, broker: MatchingBroker, public: tuple[bytes, ...]) -> None:
        self.broker, self._number = broker, 0
        self.feed = MATCHER.publisher(public)
        self.roles: dict[str, Any] = {name: MATCHER.subscriber(public) for name in ("ann", "bob")}
        broker.greet("feed", Hellos(self.feed.hellos))
        for name, role in self.roles.items():
            broker.greet(name, Hellos(role.hellos))

    def wants(self, client: str, name: str, predicate: str) -> Subscription:
        role = self.roles[client]
        return Subscription(name, role.seal(role.encode(predicate)))

    def events(self, *prices: int) -> list[Publication]:
        rows = self.feed.seal(self.feed.encode({"price": [*prices]}))
        first, self._number = self._number, self._number + len(prices)
        return [Publication(first + n, row.tobytes(), b"%d" % n) for n, row in enumerate(rows)]

    def publish(self, *prices: int) -> list[int]:
        """Publish events together, and return their numbers."""
        events = self.events(*prices)
        receipts = self.broker.publish_all("feed", events)
        assert [receipt.number for receipt in receipts] == [one.number for one in events]  # type: ignore[union-attr]
        return [one.number for one in events]

    def received(self, client: str) -> list[tuple[int, tuple[str, ...]]]:
        waiting = self.broker.take(client)
        if waiting:
            self.broker.acknowledge(client, waiting[-1].sequence)
        return [(one.number, one.names) for one in waiting]


def bent(publication: Publication, place: int) -> bytes:
    event = bytearray(publication.event or b"")
    event[place] ^= 1
    return structs.replace(publication, event=bytes(event)).to_bytes()


def refuses(act: Callable[[], object], said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        act()


def test_a_broker_of_three_serves(tmp_path: Path) -> None:
    parts, path = Parts(), tmp_path / "broker.db"
    with parts.follower(1, MATCHER) as one, parts.follower(2, MATCHER) as two:
        with parts.leader(MATCHER, patience=20) as leader:
            broker = MatchingBroker(leader, path=path, keep=5)
            world = World(broker, parts.public)
            broker.subscribe("ann", world.wants("ann", "low", "price < 10"))
            broker.subscribe("ann", world.wants("ann", "high", "price > 200"))
            broker.subscribe("bob", world.wants("bob", "low", "price < 20"))
            a, b, c = world.publish(5, 15, 250)
            assert world.received("ann") == [(a, ("low",)), (c, ("high",))]
            assert world.received("bob") == [(a, ("low",)), (b, ("low",))]
            # In place of another one, and kept publications come with it.
            broker.subscribe("ann", world.wants("ann", "low", "price = 15"))
            assert world.received("ann") == [(b, ("low",))]
            broker.unsubscribe("bob", "low")
            (d,) = world.publish(15)
            assert world.received("ann") == [(d, ("low",))] and world.received("bob") == []

            # Nobody sends another client's message, or one that was altered.
            theirs, event = world.wants("bob", "x", "price > 0"), world.events(5)[0]
            refuses(lambda: broker.subscribe("ann", theirs), "ann did not say hello")
            refuses(lambda: broker.publish("bob", event), "bob did not say hello")
            refuses(lambda: broker.publish("eve", event), "eve did not say hello")
            for place in (0, 3, HEAD_BYTES, len(event.event or b"") - TAG_BYTES):
                refuses(lambda place=place: broker.publish("feed", bent(event, place)), ".")  # type: ignore[misc]
            altered = theirs.interests.copy()
            altered[0, -1] ^= 1
            refuses(lambda: broker.subscribe("bob", Subscription("x", altered)), ".")
            broker.subscribe("bob", theirs)
            assert [number for number, _ in world.received("bob")] == [a, b, c, d]
            refuses(lambda: broker.greet("eve", Hellos(world.feed.hellos)), "another client")
            mixed = (*MATCHER.publisher(parts.public).hellos[:2], world.feed.hellos[2])
            refuses(lambda: broker.greet("eve", Hellos(mixed)), "one client")
            other = MATCHER.publisher(Parts().public).hellos
            refuses(lambda: broker.greet("eve", Hellos(other)), "not for these brokers")

            # Several together: one that is refused takes nothing from the others.
            events = world.events(14, 15, 16)
            results = broker.publish_all("feed", [events[0], bent(events[1], -1), events[2]])
            assert isinstance(results[1], DecodeError) and not isinstance(results[2], DecodeError)
            assert [number for number, _ in world.received("bob")] == [
                events[0].number,
                events[2].number,
            ]
            broker.revoke("bob")
            with pytest.raises(RefusedError):
                broker.subscribe("bob", theirs)
            broker.admit("bob")
            refuses(lambda: broker.subscribe("bob", theirs), "bob did not say hello")
            (e,) = world.publish(15)
            broker.close()
        # Broker 0 starts again with its file, and broker 2 without one.
        two.close()
        with parts.follower(2, MATCHER), parts.leader(MATCHER, patience=20) as leader:
            broker = MatchingBroker(leader, path=path, keep=5)
            world.broker = broker
            assert world.received("ann") == [(e, ("low",))]
            f, g = world.publish(15, 251)
            assert world.received("ann") == [(f, ("low",)), (g, ("high",))]
            broker.close()
        one.close()


def test_one_broker_takes_no_hellos() -> None:
    matcher = TagMatch(SCHEMA)
    broker = MatchingBroker(matcher.broker(matcher.key_server().broker_key()))
    with pytest.raises(ParameterError, match="has one broker"):
        broker.greet("ann", Hellos((b"", b"", b"")))


def test_nothing_is_changed_while_the_others_are_away() -> None:
    parts = Parts()
    with parts.leader(MATCHER, patience=0.3) as leader:
        broker = MatchingBroker(leader)
        role = MATCHER.subscriber(parts.public)
        with pytest.raises(RefusedError, match="cannot be reached"):
            broker.greet("ann", Hellos(role.hellos))
        with parts.follower(1, MATCHER), parts.follower(2, MATCHER):
            leader.meet()
            broker.greet("ann", Hellos(role.hellos))
            wanted = Subscription("a", role.seal(role.encode("price < 9")))
            broker.subscribe("ann", wanted)
        feed = MATCHER.publisher(parts.public)
        with pytest.raises(RefusedError, match="cannot be reached"):
            broker.greet("feed", Hellos(feed.hellos))
        # It goes without the others: nobody gets anything for it from here on.
        broker.unsubscribe("ann", "a")
        with parts.follower(1, MATCHER), parts.follower(2, MATCHER):
            leader.meet()
            broker.greet("feed", Hellos(feed.hellos))
            row = feed.seal(feed.encode({"price": [5]}))[0]
            assert isinstance(row, np.ndarray)
            broker.publish("feed", Publication(0, row.tobytes(), b""))
            assert broker.take("ann") == []


def parts_in(path: Path) -> int:
    """Return the number of parts in a broker's file."""
    with closing(sqlite3.connect(path)) as file:
        return int(file.execute("SELECT count(*) FROM parts").fetchone()[0])


def test_what_was_removed_in_an_outage_leaves_the_files_of_the_others(tmp_path: Path) -> None:
    parts, path = Parts(), tmp_path / "one.db"
    with parts.leader(MATCHER, patience=5) as leader:
        broker = MatchingBroker(leader)
        with parts.follower(1, MATCHER, path=path), parts.follower(2, MATCHER):
            world = World(broker, parts.public)
            for name in ("ann", "bob"):
                broker.subscribe(name, world.wants(name, "low", "price < 10"))
        assert parts_in(path) == 2
        hellos, theirs = Hellos(world.roles["ann"].hellos), world.wants("ann", "x", "price > 0")
        broker.revoke("ann")
        with parts.follower(1, MATCHER, path=path), parts.follower(2, MATCHER):
            leader.meet()
            world.publish(5)
            assert [len(world.received(name)) for name in ("bob",)] == [1]
            # Nobody else gets ann's name, with a copy of what ann once sent.
            refuses(lambda: broker.greet("eve", hellos), "another client")
            refuses(lambda: broker.subscribe("eve", theirs), "did not say hello")
            broker.admit("ann")
            broker.greet("ann", hellos)
            broker.subscribe("ann", theirs)
        assert parts_in(path) == 2


def test_threads_publish_together_and_a_bad_event_is_its_publisher_s_own(tmp_path: Path) -> None:
    parts, token = Parts(), bytes(16)
    with parts.follower(1, MATCHER), parts.follower(2, MATCHER), parts.leader(MATCHER) as leader:
        broker = MatchingBroker(leader, path=tmp_path / "broker.db", keep=50)
        world = World(broker, parts.public)
        broker.subscribe("ann", world.wants("ann", "low", "price < 128"))
        roles = {f"feed {n}": MATCHER.publisher(parts.public) for n in range(4)}
        for name, role in roles.items():
            broker.greet(name, Hellos(role.hellos))

        def publish(name: str) -> None:
            rows = roles[name].seal(roles[name].encode({"price": [*range(0, 256, 16)]}))
            for number, row in enumerate(rows):
                broker.publish(name, Publication(number, row.tobytes(), b""))

        with ThreadPoolExecutor(4) as threads:
            for done in [threads.submit(publish, name) for name in roles]:
                done.result()
        assert len(world.received("ann")) == 4 * 8
        # Kept unseen, as nobody has its topic, until somebody does.
        broker.unsubscribe("ann", "low")
        (event,) = world.events(5)
        broker.publish("feed", bent(structs.replace(event, token=token), -1))
        role = world.roles["bob"]
        wanted = Subscription("all", role.seal(role.encode("price = 5")), token)
        broker.subscribe("bob", wanted)
        assert broker.subscriptions("bob") == ["all"] and world.received("bob") == []
        (number,) = world.publish(5)
        assert world.received("bob") == [(number, ("all",))]
        # Keys that were forgotten while their interest was on its way stop nobody.
        leader.put(99, np.arange(1), MATCHER.subscriber(parts.public).encode("price < 3")[:, :52])
        world.publish(7)
        broker.close()


def test_a_table_of_one_interest_is_small() -> None:
    form = MATCHER.form
    evaluation = Evaluation(form.program, form.digit_bits, form.tables, form.table_rows)
    table = ShareTable(evaluation, form.rows, HEAD_BYTES)
    bits = np.ones((1, form.rows), dtype=np.uint8)
    table.add(np.zeros((1, HEAD_BYTES), np.uint8), (bits, bits))
    assert table.blocks[0].shares.nbytes == 2 * form.rows * 8
