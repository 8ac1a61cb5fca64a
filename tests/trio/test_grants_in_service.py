"""Grants of an authority at three brokers as services: all three meet the same one, or none."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from ccbps import Schema, UInt
from ccbps.broker import Hellos, MatchingBroker, Publication, SealedGrants, Subscription
from ccbps.errors import DecodeError, ParameterError, RefusedError
from ccbps.keys import ClientKey
from ccbps.matching import TagMatch, ThreeBrokerMatch
from ccbps.shares.clients import GRANT_HEAD_BYTES, GRANTEE, NUMBER
from ccbps.shares.public_clients import Authority
from ccbps.trio.shelf import Shelf
from tests.support.trios import Parts

SCHEMA = Schema(price=UInt(8))
MATCHER = ThreeBrokerMatch.box(SCHEMA, grants=True)


class World:
    """An authority and clients of three brokers, whose broker 0 may begin again."""

    def __init__(self) -> None:
        self.parts = Parts()
        self.key = ClientKey.generate(self.parts.public)
        self.giver = MATCHER.authority(self.key)
        self.parts.name(Authority(MATCHER.digest, self.giver.hellos))
        self.feed = MATCHER.publisher(self.parts.public)
        self.roles: dict[str, Any] = {
            name: MATCHER.subscriber(self.parts.public) for name in ("ann", "bob")
        }
        self.broker: Any = None
        self._number = 0

    def serve(self, leader: Any, path: Path | None = None, **options: Any) -> None:
        """Let broker 0 serve."""
        self.broker = MatchingBroker(leader, path=path, **options)

    def greet(self) -> None:
        self.broker.greet("feed", Hellos(self.feed.hellos))
        for name, role in self.roles.items():
            self.broker.greet(name, Hellos(role.hellos))

    def grant(self, predicate: str | None, *names: str, number: int | None = None) -> SealedGrants:
        """Return grants for clients."""
        to = [self.roles[name].client for name in names]
        return SealedGrants(self.giver.grant(predicate, to=to, number=number))

    def grants(self, predicate: str | None, *names: str, number: int | None = None) -> None:
        """Send grants for clients."""
        self.broker.grant("giver", self.grant(predicate, *names, number=number))

    def wants(self, client: str, name: str, predicate: str) -> None:
        role = self.roles[client]
        wanted = Subscription(name, role.seal(role.encode(predicate)))
        self.broker.subscribe(client, wanted)

    def publish(self, *prices: int) -> None:
        """Publish events together, whose payloads are their prices."""
        rows = self.feed.seal(self.feed.encode({"price": [*prices]}))
        first, self._number = self._number, self._number + len(prices)
        pairs = enumerate(zip(rows, prices, strict=True), first)
        events = [Publication(n, row.tobytes(), b"%d" % price) for n, (row, price) in pairs]
        for receipt in self.broker.publish_all("feed", events):
            assert not isinstance(receipt, Exception), receipt

    def received(self, client: str) -> list[int]:
        """Return the prices of what waits for a client, and acknowledge it."""
        waiting = self.broker.take(client)
        if waiting:
            self.broker.acknowledge(client, waiting[-1].sequence)
        return [int(one.payload) for one in waiting]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    if made.broker is not None:
        made.broker.close()


def refuses(act: Callable[[], object], said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        act()


def test_answers_are_subscription_and_grant(world: World, tmp_path: Path) -> None:
    parts, paths = world.parts, [tmp_path / name for name in ("zero", "one", "two")]
    with (
        parts.follower(1, MATCHER, path=paths[1]) as one,
        parts.follower(2, MATCHER, path=paths[2]) as two,
        parts.leader(MATCHER, patience=20) as leader,
    ):
        world.serve(leader, paths[0], keep=3)
        world.greet()
        # Without a grant there is no subscription, and a grant may come before the first hello.
        refuses(lambda: world.wants("ann", "all", "price >= 0"), "no grant: the authority")
        world.grants("price < 100", "ann")
        world.wants("ann", "all", "price >= 0")
        refuses(lambda: world.wants("bob", "all", "price >= 0"), "no grant")
        world.publish(99, 100)
        assert world.received("ann") == [99]
        # In place of an earlier one, also for subscriptions that are there, and at once.
        early = world.grant("price < 50", "ann", "bob")
        world.grants("price > 150", "ann", "bob")
        world.wants("bob", "some", "price < 200")
        world.publish(99, 160, 210)
        assert [world.received(name) for name in ("ann", "bob")] == [[160, 210], [160]]
        # What was kept meets the grant of today.
        world.wants("ann", "more", "price < 200")
        assert world.received("ann") == [160]
        # An earlier grant never counts again, whoever sends it.
        refuses(lambda: world.broker.grant("eve", early), "comes after grant")
        # The same grants again, as after a lost answer, change nothing.
        again = world.grant("price > 150", "ann", "bob")
        for _ in range(3):
            world.broker.grant("giver", again)
        world.grants(None, "bob")
        world.publish(160)
        assert [world.received(name) for name in ("ann", "bob")] == [[160], []]
        world.broker.close()
        one.close()
        two.close()
    # All begin again with their files.
    with (
        parts.follower(1, MATCHER, path=paths[1]),
        parts.follower(2, MATCHER, path=paths[2]),
        parts.leader(MATCHER, patience=20) as leader,
    ):
        world.serve(leader, paths[0])
        world.publish(99, 170)
        assert [world.received(name) for name in ("ann", "bob")] == [[170], []]
        refuses(lambda: world.broker.grant("eve", early), "comes after grant")
        # A client that was shut out and comes back has its last grant.
        world.broker.revoke("ann")
        world.broker.admit("ann")
        world.broker.greet("ann", Hellos(world.roles["ann"].hellos))
        world.wants("ann", "all", "price >= 0")
        world.publish(99, 171)
        assert world.received("ann") == [171]


def test_files_of_brokers_one_and_two_have_the_last_grant_of_each_client(tmp_path: Path) -> None:
    path, owner = tmp_path / "one", bytes(32)

    def head(client: int, number: int) -> np.ndarray:
        row = np.zeros((1, GRANT_HEAD_BYTES), dtype=np.uint8)
        row[0, GRANTEE], row[0, NUMBER.start] = client, number
        return row

    with closing(Shelf(path, owner, 100)) as shelf:
        for client, number in ((1, 4), (1, 5), (2, 3)):
            assert not shelf.earlier(head(client, number)).any()
            shelf.grant(head(client, number))
    with closing(Shelf(path, owner, 100)) as shelf:
        shelf.begin()
        shelf.prune()  # which deletes parts of interests, and no heads of grants
        heads = np.concatenate([head(1, 4), head(1, 5), head(1, 6), head(2, 2), head(3, 0)])
        other = head(1, 5)
        other[0, 30] = 1  # another grant of this number
        assert shelf.earlier(heads).tolist() == [True, False, False, True, False]
        assert shelf.earlier(other).all()


@pytest.mark.slow
def test_brokers_one_and_two_accept_no_earlier_grant_from_a_broker_that_lost_its_file(
    world: World, tmp_path: Path
) -> None:
    parts, paths = world.parts, [tmp_path / name for name in ("one", "two")]
    early, none = world.grant("price >= 0", "ann"), world.grant(None, "ann")
    with (
        parts.follower(1, MATCHER, path=paths[0]),
        parts.follower(2, MATCHER, path=paths[1]),
        parts.leader(MATCHER, patience=20) as leader,
    ):
        world.serve(leader)
        world.greet()
        world.broker.grant("giver", none)
        world.wants("ann", "all", "price >= 0")
    for path in paths:
        with closing(sqlite3.connect(path)) as file:
            ((name, head),) = file.execute("SELECT client, head FROM grants").fetchall()
        assert name == world.roles["ann"].client and len(head) == GRANT_HEAD_BYTES
    # Broker 0 lost all, and one of the others its file: the last one still says no.
    with parts.follower(1, MATCHER, path=paths[0]), parts.follower(2, MATCHER):
        with parts.leader(MATCHER, patience=20) as leader:
            world.serve(leader, tmp_path / "zero")
            world.greet()
            refuses(lambda: world.broker.grant("giver", early), "refuse a grant")
            refuses(lambda: world.wants("ann", "all", "price >= 0"), "no grant")
            world.broker.grant("giver", none)
            world.wants("ann", "all", "price >= 0")
            world.publish(5)
            assert world.received("ann") == []
            world.broker.close()
        # Broker 0 has an older copy of its file: the grant in it gives nothing.
        with closing(sqlite3.connect(tmp_path / "zero")) as file, file:
            file.execute("UPDATE grants SET message = ?", (early.messages.tobytes(),))
        with parts.leader(MATCHER, patience=20) as leader:
            world.serve(leader, tmp_path / "zero")
            world.publish(6)
            assert world.received("ann") == []
            refuses(lambda: world.wants("ann", "all", "price >= 0"), "no grant")
            world.grants("price < 10", "ann")
            world.wants("ann", "all", "price >= 0")
            world.publish(7, 17)
            assert world.received("ann") == [7]


def test_nobody_but_the_authority_grants(world: World) -> None:
    parts = world.parts
    with (
        parts.follower(1, MATCHER),
        parts.follower(2, MATCHER),
        parts.leader(MATCHER, patience=20) as leader,
    ):
        world.serve(leader)
        world.greet()
        world.grants("price < 10", "ann")
        world.wants("ann", "all", "price >= 0")
        eve = MATCHER.authority(parts.public)
        theirs = eve.grant("price >= 0", to=[world.roles["ann"].client])
        refuses(lambda: world.broker.grant("eve", SealedGrants(theirs)), "another master key")
        # With the authority's name, another number, another client, or a bit that was turned.
        named = theirs.copy()
        named[:, 8:24] = np.frombuffer(world.giver.client, np.uint8)
        good = world.grant("price >= 0", "ann").messages
        bent = [named]
        for place in (NUMBER.stop - 1, GRANTEE.start, GRANT_HEAD_BYTES, good.shape[1] - 1):
            altered = good.copy()
            altered[0, place] ^= 1
            bent.append(altered)
        for messages in bent:
            refuses(lambda rows=messages: world.broker.grant("eve", SealedGrants(rows)), "refuse")  # type: ignore[misc]
        for wrong, said in (
            (good[:, :-1], "bytes"),
            (np.concatenate([good, good]), "several grants"),
            (world.feed.encode({"price": [5]}), "bytes"),
        ):
            refuses(lambda rows=wrong: world.broker.grant("eve", SealedGrants(rows)), said)  # type: ignore[misc]
        refuses(lambda: world.broker.grant("eve", b"x"), "not grants")
        refuses(lambda: world.broker.greet("eve", Hellos(world.giver.hellos)), "authority's hellos")
        world.publish(5, 15)
        assert world.received("ann") == [5]
        # A good one among bad ones is not taken either.
        both = np.concatenate([world.grant("price >= 0", "bob").messages, bent[1]])
        refuses(lambda: world.broker.grant("giver", SealedGrants(both)), "refuse")
        refuses(lambda: world.wants("bob", "all", "price >= 0"), "no grant")


@pytest.mark.slow
def test_grants_that_come_while_the_others_are_away_change_nothing(world: World) -> None:
    parts = world.parts
    with parts.leader(MATCHER, patience=0.3) as leader:
        world.serve(leader)
        with parts.follower(1, MATCHER), parts.follower(2, MATCHER):
            leader.meet()
            world.greet()
            world.grants("price < 10", "ann")
            world.wants("ann", "all", "price >= 0")
        with pytest.raises(RefusedError, match="cannot be reached"):
            world.grants("price >= 0", "ann")
        # It was verified before they left: they take it before they match anything.
        leader.put_grants(world.grant("price > 200", "ann").messages)
        with parts.follower(1, MATCHER), parts.follower(2, MATCHER):
            leader.meet()
            world.publish(5, 205)
            assert world.received("ann") == [205]


def test_a_broker_that_missed_a_grant_is_noticed_before_anything_is_sent(world: World) -> None:
    parts = world.parts
    with (
        parts.follower(1, MATCHER) as one,
        parts.follower(2, MATCHER),
        parts.leader(MATCHER, patience=20) as leader,
    ):
        world.serve(leader)
        world.greet()
        world.grants("price < 10", "ann")
        world.wants("ann", "all", "price >= 0")
        # Broker 1 says that it took the grant, and did not.
        obey = one._workers.obey  # type: ignore[union-attr]
        kept: list[Any] = []

        def deaf(order: Any) -> Any:
            if order.verb == "grant" and not kept:
                kept.append(order)
                order = structs.replace(order, verb="examine")
            return obey(order)

        one._workers.obey = deaf  # type: ignore[union-attr, method-assign]
        world.grants("price > 200", "ann")
        world.publish(5, 205)
        assert kept and world.received("ann") == [205]


def test_services_name_the_authority_where_the_matcher_demands_one(world: World) -> None:
    parts, plain = world.parts, ThreeBrokerMatch.box(SCHEMA)
    for start in (parts.leader, lambda one: parts.follower(1, one)):
        with pytest.raises(ParameterError, match="demands no grants"):
            start(plain)
        with pytest.raises(ParameterError, match="another matcher"):
            start(ThreeBrokerMatch.box(SCHEMA, grants=True, digits=3))
    others = Parts()
    for start in (others.leader, lambda one: others.follower(1, one)):
        with pytest.raises(ParameterError, match="know no authority"):
            start(MATCHER)
    others.name(Authority(MATCHER.digest, world.giver.hellos))
    with pytest.raises(DecodeError, match="hello"):
        others.leader(MATCHER)
    broker = MatchingBroker((tag := TagMatch(SCHEMA)).broker(tag.key_server().broker_key()))
    with pytest.raises(ParameterError, match="has one broker"):
        broker.grant("ann", world.grant(None, "ann"))


def test_public_sides_are_read_strictly(world: World) -> None:
    hellos = world.giver.hellos
    for wrong in (hellos[::-1], (*hellos[:2], world.feed.hellos[2])):
        with pytest.raises(ParameterError, match="one client"):
            Authority(MATCHER.digest, wrong)
    text = Authority(MATCHER.digest, hellos).to_text()
    for damaged in (text[:-2], text.replace("ccbps-authority", "ccbps-operator"), text[:-1] + "z"):
        refuses(lambda one=damaged: Authority.from_text(one), "not the public side")  # type: ignore[misc]
