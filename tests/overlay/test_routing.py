"""Routing by covering and advertisements: deliveries are those of plaintext, tables are small."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Schema, UInt
from ccbps.errors import DecodeError, ParameterError, RefusedError
from ccbps.matching.broken import AspeMatch, PrefixMatch
from ccbps.overlay import Links, MatcherRelation, PlainRelation, Publication, Router
from ccbps.overlay.routing.router import KINDS, Add
from tests.support.effort import examples

SCHEMA = Schema(x=UInt(6), y=UInt(6))
PLAIN = PlainRelation(SCHEMA)
Box = tuple[tuple[int, int], tuple[int, int]]


def text(box: Box) -> str:
    (a, b), (c, d) = box
    return f"x BETWEEN {a} AND {b} AND y BETWEEN {c} AND {d}"


def inside(box: Box, event: tuple[int, int]) -> bool:
    return all(low <= code <= high for (low, high), code in zip(box, event, strict=True))


class World:
    """Brokers in a random tree, clients at them, and what the clients should get.

    `filters` has the boxes by kind, client and number.
    """

    def __init__(
        self,
        seed: int,
        brokers: int = 8,
        clients: int = 12,
        *,
        advertise: bool = True,
        relation: Any = PLAIN,
        slack: float | None = None,
        delay: Any = (0.5, 3),
        by_link: bool = False,
    ) -> None:
        self.by_link = by_link
        self.draw = random.Random(seed)
        self.relation, self.advertise, self.slack = relation, advertise, slack
        tree = networkx.random_labeled_tree(brokers, seed=seed)
        self.links = Links([(f"B{a}", f"B{b}") for a, b in tree.edges], delay=delay, seed=seed)
        self.routers: dict[str, Router] = {}
        self.got: Counter[tuple[str, str, int]] = Counter()
        for number in range(brokers):
            self.start(f"B{number}")
        for name, router in self.routers.items():
            for other in self.links.neighbours(name):
                router.connect(self.label(name, other))
        self.home = {f"c{n}": self.draw.choice([*self.routers]) for n in range(clients)}
        self.filters: dict[str, dict[tuple[str, int], Box]] = {kind: {} for kind in KINDS}
        self.number = 0

    def label(self, name: str, other: str) -> str:
        """A neighbour's name at a broker, or the number of the link to it."""
        if not self.by_link:
            return other
        return f"link {self.links.neighbours(name).index(other) * 37 % 101}"

    def start(self, name: str) -> None:
        """Start a broker with empty tables."""
        world = self

        class Node:
            def receive(self, sender: str, message: Any) -> None:
                world.routers[name].receive(world.label(name, sender), message)

        port = self.links.attach(name, Node())

        def send(label: str, message: Any) -> None:
            (other,) = [n for n in self.links.neighbours(name) if self.label(name, n) == label]
            port.send(other, message)

        def deliver(client: str, publication: Publication) -> None:
            self.got[client, publication.publisher, publication.number] += 1

        self.routers[name] = Router(
            self.relation, send, deliver, advertise=self.advertise, slack=self.slack
        )

    def box(self) -> Box:
        a, b, c, d = (self.draw.randrange(64) for _ in range(4))
        return (min(a, b), max(a, b)), (min(c, d), max(c, d))

    def filter_bytes(self, box: Box) -> bytes:
        return PLAIN.filter_bytes(text(box))

    def add(self, kind: Any, box: Box | None = None, client: str | None = None) -> None:
        client, box = client or self.draw.choice([*self.home]), box or self.box()
        self.number += 1
        self.filters[kind][client, self.number] = box
        router = self.routers[self.home[client]]
        router.add(kind, client, self.number, self.filter_bytes(box))

    def withdraw(self, kind: Any) -> None:
        if self.filters[kind]:
            client, number = self.draw.choice([*self.filters[kind]])
            del self.filters[kind][client, number]
            self.routers[self.home[client]].withdraw(kind, client, number)

    def publish(self) -> bool:
        """Publish an event, and compare the deliveries; False if the edge refuses it."""
        client = self.draw.choice([*self.home])
        event = self.draw.randrange(64), self.draw.randrange(64)
        self.number += 1
        advertised = any(
            owner == client and inside(box, event)
            for (owner, _), box in self.filters["advertisement"].items()
        )
        router = self.routers[self.home[client]]
        content = self.relation.event_bytes({"x": event[0], "y": event[1]})
        self.got.clear()
        if self.advertise and not advertised:
            with pytest.raises(RefusedError, match="outside of its advertisements"):
                router.publish(client, self.number, content)
            return False
        router.publish(client, self.number, content)
        self.links.run()
        assert self.got == self.wanted(client, event)
        return True

    def wanted(self, publisher: str, event: tuple[int, int]) -> Counter[tuple[str, str, int]]:
        return Counter(
            {
                (client, publisher, self.number): 1
                for (client, _), box in self.filters["subscription"].items()
                if inside(box, event) and client != publisher
            }
        )

    def step(self) -> None:
        """Let a client do something at random."""
        act = self.draw.random()
        if act < 0.35:
            self.add("subscription")
        elif act < 0.5:
            self.withdraw("subscription")
        elif act < 0.65:
            self.add("advertisement")
        elif act < 0.72:
            self.withdraw("advertisement")
        else:
            self.links.run()
            self.publish()

    def check(self) -> None:
        """Compare tables of both ends of each link, and with the maximal filters."""
        self.links.run()
        for name, router in self.routers.items():
            for kind in KINDS:
                for other, sent in router.sent[kind].items():
                    candidates = router._candidates(kind, other)
                    maximal = router._maximal(candidates)
                    assert {*sent.values()} == {candidates[name] for name in maximal}
                    held = self.routers[other].tables[kind][name]
                    assert held.keys() == sent.keys()


@given(st.integers(0, 1 << 32), st.booleans())
@settings(max_examples=examples(160))
def test_random_histories_deliver_what_plaintext_does(seed: int, advertise: bool) -> None:
    world = World(seed, advertise=advertise)
    for _ in range(60):
        world.step()
    world.check()


@pytest.mark.slow
def test_ten_thousand_events() -> None:
    published = 0
    for seed in range(60):
        world = World(seed, brokers=8 + seed % 23, clients=20)
        for _ in range(60):
            world.step()
        for _ in range(6):
            world.add("advertisement", ((0, 63), (0, 63)))
        while published < (seed + 1) * 170:
            world.step()
            world.links.run()
            published += world.publish()
        world.check()
    assert published > 10_000


def flooded(world: World) -> int:
    """Count the hops of flooding: each broker but the first gets each event."""
    return len(world.routers) - 1


def test_tables_and_hops_beside_flooding() -> None:
    """Covering, advertisements, and neither, for the same subscriptions and events."""
    entries, hops = {}, {}
    for advertise in (True, False):
        world = World(3, brokers=16, clients=40, advertise=advertise)
        for number in range(5):
            world.add("advertisement", ((8 * number, 8 * number + 7), (0, 63)), f"c{number}")
        world.links.run()
        for _ in range(120):
            world.add("subscription")
        world.links.run()
        entries[advertise] = sum(router.entries for router in world.routers.values())
        before = world.links.messages
        events = 0
        while events < 60:
            events += world.publish()
        hops[advertise] = (world.links.messages - before) / events
    every = 120 * 16  # all subscriptions at all brokers
    assert entries[True] < entries[False] < 0.6 * every
    assert hops[True] <= flooded(world)
    assert hops[False] < flooded(world)


def test_equal_filters_do_not_suppress_each_other() -> None:
    world = World(1)
    box = (3, 9), (3, 9)
    for client in ("c1", "c2", "c3"):
        world.add("subscription", box, client)
    world.add("advertisement", ((0, 63), (0, 63)))
    for _ in range(3):
        world.check()
        world.withdraw("subscription")
    world.check()
    assert not sum(router.entries for router in world.routers.values())


def test_the_new_filter_is_there_before_the_old_one_goes() -> None:
    """An event between the two messages of a link goes over it once."""
    sent: list[Any] = []
    delivered: list[Any] = []
    router = Router(
        PLAIN,
        lambda link, message: sent.append((link, message)),
        lambda client, publication: delivered.append(client),
        advertise=False,
    )
    router.connect("left")
    router.connect("right")
    router.receive("left", Add("subscription", ("a", 1), PLAIN.filter_bytes("x < 9")))
    router.receive("left", Add("subscription", ("a", 2), PLAIN.filter_bytes("x < 20")))
    assert [type(message).__name__ for _, message in sent] == ["Add", "Add", "Withdraw"]
    sent.clear()
    router.receive("right", Publication("p", 1, PLAIN.event_bytes({"x": 3, "y": 3})))
    assert [(link, message.number) for link, message in sent] == [("left", 1)]
    # The same number again goes nowhere.
    router.receive("right", Publication("p", 1, PLAIN.event_bytes({"x": 3, "y": 3})))
    assert len(sent) == 1


def test_brokers_that_know_links_by_number_only_route_alike() -> None:
    """No broker needs the name of another one: with numbers nothing else changes."""
    runs = []
    for by_link in (False, True):
        world, delivered = World(5, by_link=by_link), []
        for _ in range(40):
            world.step()
            world.links.run()
            for _ in range(8):
                if world.publish():
                    delivered.append(dict(world.got))
        runs.append((delivered, world.links.sent, world.links.time))
        known = {link for router in world.routers.values() for link in router.tables[KINDS[1]]}
        assert by_link != any(link in world.routers for link in known)
    assert runs[0] == runs[1]
    assert sum(map(len, runs[0][0])) > 10


def test_only_the_owner_withdraws() -> None:
    world = World(5, advertise=False)
    world.add("subscription", ((0, 63), (0, 63)), "c1")
    router = world.routers[world.home["c1"]]
    router.withdraw("subscription", "c2", 1)
    router.withdraw("subscription", "c1", 2)
    world.links.run()
    assert router.entries == 1
    world.publish()


@pytest.mark.parametrize("brokers", [8, pytest.param(30, marks=pytest.mark.slow)])
def test_brokers_crash_and_return(brokers: int) -> None:
    """Neighbours forget a dead broker; when it is back, links and clients begin anew."""
    world = World(11, brokers=brokers, clients=3 * brokers)
    world.add("advertisement", ((0, 63), (0, 63)), "c0")
    for _ in range(3 * brokers):
        world.add("subscription")
    published = 0
    for name in [*world.routers]:
        world.links.run()
        for _ in range(3):
            world.step()  # some of it is on its way when the broker dies
        world.links.crash(name)
        for other in world.links.neighbours(name):
            world.routers[other].disconnect(name)
        world.links.run()
        world.links.restore(name)
        world.start(name)
        for other in world.links.neighbours(name):
            world.routers[name].connect(other)
            world.routers[other].connect(name)
        for kind in KINDS:
            for (client, number), box in world.filters[kind].items():
                if world.home[client] == name:
                    world.routers[name].add(kind, client, number, world.filter_bytes(box))
        world.check()
        for _ in range(4):
            published += world.publish()
    assert published


# -- merging --------------------------------------------------------------------------------------


@given(st.integers(0, 1 << 32), st.sampled_from([0, 30, 300, 4096]))
@settings(max_examples=examples(80))
def test_merged_subscriptions_deliver_the_same(seed: int, slack: float) -> None:
    world = World(seed, slack=slack)
    for _ in range(40):
        world.step()
    world.links.run()
    for name, router in world.routers.items():
        for other, sent in router.sent["subscription"].items():
            assert world.routers[other].tables["subscription"][name].keys() == sent.keys()


def test_merging_makes_tables_smaller_and_hops_more() -> None:
    entries, hops = [], []
    for slack in (None, 0, 600):
        world = World(3, brokers=8, clients=30, advertise=False, slack=slack)
        for _ in range(40):
            low, high = world.draw.randrange(60), world.draw.randrange(60)
            world.add("subscription", ((low, low + 3), (high, high + 3)))
        world.links.run()
        entries.append(sum(router.entries for router in world.routers.values()))
        before = world.links.messages
        for _ in range(40):
            world.publish()
        hops.append(world.links.messages - before)
    assert entries[0] >= entries[1] > 2 * entries[2]
    assert hops[0] == hops[1] < hops[2]


def test_boxes_are_merged_where_their_hull_is_near() -> None:
    def boxes(slack: float, *texts: str) -> int:
        return len(PLAIN.merged([PLAIN.read_filter(PLAIN.filter_bytes(t)) for t in texts], slack))

    assert boxes(0, "x < 9 AND y = 1", "x >= 9 AND y = 1") == 1
    assert boxes(0, "x < 9 AND y = 1", "x > 9 AND y = 1") == 2
    assert boxes(1, "x < 9 AND y = 1", "x > 9 AND y = 1") == 1
    assert boxes(1, "x = 1 AND y = 1", "x = 3 AND y = 1", "x = 5 AND y = 1") == 2
    assert boxes(2, "x = 1 AND y = 1", "x = 3 AND y = 1", "x = 5 AND y = 1") == 1
    assert boxes(2, "x = 1 AND y = 1", "x = 2 AND y = 2") == 1
    assert boxes(1, "x = 1 AND y = 1", "x = 2 AND y = 2") == 2
    with pytest.raises(ParameterError, match="does not merge"):
        MatcherRelation.merged(PLAIN, [], 0)  # type: ignore[arg-type]


# -- relations ------------------------------------------------------------------------------------


@given(st.integers(0, 1 << 32), st.integers(0, 6), st.integers(0, 6))
@settings(max_examples=examples(300))
def test_leading_bits_widen_and_never_lose(seed: int, one: int, two: int) -> None:
    draw = random.Random(seed)
    relation = PlainRelation(SCHEMA, bits={"x": one, "y": two})
    world = World(seed, brokers=2, clients=1)
    boxes, event = [world.box() for _ in range(5)], (draw.randrange(64), draw.randrange(64))
    filters = [relation.read_filter(relation.filter_bytes(text(box))) for box in boxes]
    met = relation.matches(
        relation.read_event(relation.event_bytes({"x": event[0], "y": event[1]})), filters
    )
    exact = np.array([inside(box, event) for box in boxes])
    assert (met >= exact).all()
    if (one, two) == (6, 6):
        assert (met == exact).all()
    if (one, two) == (0, 0):
        assert met.all()


def test_with_leading_bits_the_edge_makes_the_match() -> None:
    """Inner brokers see two bits; the exact match, here in plaintext, is made at the edge."""
    world = World(2, advertise=False, relation=PlainRelation(SCHEMA, bits={"x": 2}))
    world.filter_bytes = lambda box: world.relation.filter_bytes(text(box))  # type: ignore[method-assign]
    for _ in range(30):
        world.add("subscription")
    world.links.run()
    extra = 0
    for _ in range(40):
        world.number += 1
        event = world.draw.randrange(64), world.draw.randrange(64)
        world.got.clear()
        content = world.relation.event_bytes({"x": event[0], "y": event[1]})
        assert len(content) == 8
        world.routers[world.home["c0"]].publish("c0", world.number, content, b"sealed")
        world.links.run()
        wanted = world.wanted("c0", event)
        assert wanted.keys() <= world.got.keys()
        extra += len(world.got) - len(wanted)
    assert extra


@pytest.mark.parametrize("scheme", [PrefixMatch, AspeMatch])
@pytest.mark.filterwarnings("ignore:.*is broken")
def test_encrypted_filters_are_routed_by_what_their_brokers_see(scheme: Any) -> None:
    schema = Schema(x=UInt(4), y=UInt(4))
    matcher = scheme(schema)
    server = matcher.key_server()
    relation = MatcherRelation(matcher.broker(server.broker_key()))
    publisher = matcher.publisher(server.publisher_key())
    subscriber = matcher.subscriber(server.subscriber_key("alice"))
    boxes = [((a, a + 4), (b, b + 5)) for a in (0, 3, 3, 7) for b in (1, 1, 6)]
    boxes += [((0, 15), (0, 15)), ((3, 4), (1, 2))]
    rows = [subscriber.encode(text(box))[0].tobytes() for box in boxes]
    sent: list[Any] = []
    delivered: list[Any] = []
    router = Router(
        relation,
        lambda link, message: sent.append(message),
        lambda client, publication: delivered.append(client),
        advertise=False,
    )
    router.connect("next")
    for number, row in enumerate(rows[:-2]):
        router.add("subscription", f"c{number:02}", 0, row)
    kept = {name[0] for name in router.sent["subscription"]["next"]}
    plain = [PLAIN.read_filter(PLAIN.filter_bytes(text(box))) for box in boxes[:-2]]
    maximal = {
        f"c{i:02}"
        for i, one in enumerate(plain)
        if not any(
            PLAIN.covers(other, [one])[0] and (j < i or not PLAIN.covers(one, [other])[0])
            for j, other in enumerate(plain)
            if j != i
        )
    }
    assert len(kept) < len(plain)
    assert kept >= maximal if scheme is AspeMatch else kept == maximal
    for number, event in enumerate([(1, 2), (4, 7), (15, 15), (8, 6)]):
        delivered.clear()
        row = publisher.encode({"x": [event[0]], "y": [event[1]]})[0].tobytes()
        router.receive("next", Publication("p", number, row))
        assert set(delivered) == {
            f"c{i:02}" for i, box in enumerate(boxes[:-2]) if inside(box, event)
        }
    with pytest.raises(DecodeError, match="bytes is expected"):
        relation.read_event(b"x")
    # One client's garbage of the right length would refuse the events of all others.
    for read in (relation.read_filter, relation.read_event):
        with pytest.raises(DecodeError):
            read(bytes(len(rows[0] if read == relation.read_filter else row)))
    with pytest.raises(ParameterError, match="without advertisements"):
        relation.intersects(rows[0], [])


def test_malformed_filters_and_events_are_refused() -> None:
    good = PLAIN.filter_bytes("x < 3")
    for content in (b"", good[:-1], good + b"\0", b"\xff" * len(good)):
        with pytest.raises(DecodeError):
            PLAIN.read_filter(content)
        with pytest.raises(DecodeError):
            PLAIN.read_event(content)
    with pytest.raises(ParameterError, match="bits"):
        PlainRelation(SCHEMA, bits={"x": 7})
    with pytest.raises(ParameterError, match="no attribute 'z'"):
        PlainRelation(SCHEMA, bits={"z": 1})
