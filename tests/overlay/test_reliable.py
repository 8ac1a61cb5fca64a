"""Reliable routing: whatever brokers and links fail, no event is lost, and none comes twice."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Schema, UInt
from ccbps.errors import DecodeError, RefusedError
from ccbps.overlay import Links, PlainRelation, Publication
from ccbps.overlay.routing.reliable import (
    WINDOW,
    Acknowledge,
    Opening,
    ReliableRouter,
    Settled,
)
from ccbps.overlay.routing.router import KINDS, Add, Withdraw
from tests.support.effort import examples

SCHEMA = Schema(x=UInt(6))
RELATION = PlainRelation(SCHEMA)
ALL = RELATION.filter_bytes("x >= 0")


def event(x: int) -> bytes:
    return RELATION.event_bytes({"x": x})


class World:
    """Brokers in a random tree, whose links break and which crash, with clients at some of them."""

    def __init__(self, seed: int, brokers: int = 7, *, advertise: bool, slack: Any = None) -> None:
        self.draw, self.advertise, self.slack = random.Random(seed), advertise, slack
        tree = networkx.random_labeled_tree(brokers, seed=seed)
        self.edges = [(f"B{a}", f"B{b}") for a, b in tree.edges]
        self.links = Links(self.edges, delay=(0.5, 3), seed=seed)
        self.near = {f"B{n}": self.links.neighbours(f"B{n}") for n in range(brokers)}
        self.routers: dict[str, ReliableRouter] = {}
        self.got: Counter[tuple[str, str, int]] = Counter()
        self.down: set[str] = set()
        self.had: set[str] = set()
        self.broken: set[tuple[str, str]] = set()
        # Publishers are at brokers that do not crash: what these took would be lost.
        self.publishers = {f"p{n}": f"B{self.draw.randrange(brokers)}" for n in range(2)}
        self.filters: dict[tuple[str, int], tuple[int, int]] = {}
        self.home = {f"c{n}": f"B{self.draw.randrange(brokers)}" for n in range(5)}
        self.wanted: Counter[tuple[str, str, int]] = Counter()
        self.number = self.opened = 0
        # Connections that are open, by sender and receiver: what another one carried is lost.
        self.connections: dict[tuple[str, str], int] = {}
        for name in self.near:
            self.start(name)
        for name in self.near:
            for other in self.near[name]:
                self.open(name, other)
        self.links.run()

    def start(self, name: str) -> None:
        """Start a broker, to which its clients say again what they want."""
        world = self

        class Node:
            def receive(self, sender: str, sent: Any) -> None:
                connection, message = sent
                if connection == world.connections.get((sender, name)):
                    message = type(message).from_bytes(message.to_bytes())
                    world.routers[name].receive(sender, message)

        def deliver(publication: Publication, clients: list[str]) -> None:
            for client in clients:
                self.got[client, publication.publisher, int(publication.payload)] += 1
            delay = self.draw.choice([0, 2])  # they take their time
            port.after(delay, lambda: self.routers[name].delivered(publication))

        def send(other: str, message: Any) -> None:
            if name not in world.down and other in world.links.neighbours(name):
                port.send(other, (world.connections.get((name, other), 0), message))

        port = self.links.attach(name, Node())
        self.routers[name] = ReliableRouter(
            RELATION,
            self.near[name],
            send,
            deliver,
            advertise=self.advertise,
            slack=self.slack,
        )
        for publisher, home in self.publishers.items():
            if home == name and self.advertise:
                self.routers[name].router.add("advertisement", publisher, 0, ALL)
        for (client, number), (low, high) in self.filters.items():
            if self.home[client] == name:
                self.add(client, number, low, high)

    def add(self, client: str, number: int, low: int, high: int) -> None:
        content = RELATION.filter_bytes(f"x BETWEEN {low} AND {high}")
        self.routers[self.home[client]].router.add("subscription", client, number, content)

    # -- what happens -----------------------------------------------------------------------------

    def open(self, name: str, other: str) -> None:
        self.opened += 1
        self.connections[name, other] = self.opened
        self.routers[name].closed(other)
        self.routers[name].opened(other)

    def lose(self, name: str, other: str) -> None:
        """Break both connections between two brokers; they notice it after a while."""
        for one, two in ((name, other), (other, name)):
            broken, router = self.connections.pop((one, two), None), self.routers[one]

            def close(one: str = one, two: str = two, router: Any = router) -> None:
                if (one, two) not in self.connections:
                    router.closed(two)

            if broken is not None:
                self.links.after(self.draw.uniform(0, 4), close, one)

    def crash(self, name: str) -> None:
        for other in self.near[name]:
            self.lose(name, other)
        self.links.crash(name)
        self.down.add(name)
        self.had.add(name)

    def back(self, name: str) -> None:
        self.links.restore(name)
        self.down.discard(name)
        self.start(name)
        for other in self.near[name]:
            self.meet(name, other)

    def meet(self, name: str, other: str) -> None:
        """Open the connections between two brokers, each after a while."""
        if name in self.down or other in self.down or other not in self.links.neighbours(name):
            return
        for one, two in ((name, other), (other, name)):
            router = self.routers[one]

            def open_(one: str = one, two: str = two, router: Any = router) -> None:
                linked = self.links.is_up(two) and two in self.links.neighbours(one)
                if linked and self.routers[one] is router:
                    self.open(one, two)

            self.links.after(self.draw.uniform(4, 9), open_, one)

    def cut(self, left: str, right: str) -> None:
        self.lose(left, right)
        self.links.unlink(left, right)
        self.broken.add((left, right))

    def mend(self, left: str, right: str) -> None:
        self.links.link(left, right)
        self.broken.discard((left, right))
        self.meet(left, right)

    def publish(self) -> None:
        publisher = self.draw.choice([*self.publishers])
        router, x = self.routers[self.publishers[publisher]], self.draw.randrange(64)
        self.number += 1
        router.publish(publisher, event(x), b"%d" % self.number)
        for (client, _), (low, high) in self.filters.items():
            if low <= x <= high:
                self.wanted[client, publisher, self.number] = 1

    def change(self) -> None:
        """Let a client subscribe or end a subscription, while nothing else happens."""
        if self.filters and self.draw.random() < 0.4:
            client, number = self.draw.choice([*self.filters])
            del self.filters[client, number]
            self.routers[self.home[client]].router.withdraw("subscription", client, number)
        else:
            client, number = self.draw.choice([*self.home]), len(self.filters) + self.number * 50
            low, high = sorted(self.draw.randrange(64) for _ in range(2))
            self.filters[client, number] = low, high
            self.add(client, number, low, high)

    def trouble(self) -> None:
        act, may = self.draw.random(), sorted({*self.near} - {*self.publishers.values()})
        if self.down and act < 0.3:
            self.back(self.draw.choice(sorted(self.down)))
        elif self.broken and act < 0.5:
            self.mend(*self.draw.choice(sorted(self.broken)))
        elif act < 0.75 and (up := [name for name in may if name not in self.down]):
            self.crash(self.draw.choice(up))
        elif left := [pair for pair in self.edges if pair not in self.broken]:
            self.cut(*self.draw.choice(left))

    def repair(self) -> None:
        for name in sorted(self.down):
            self.back(name)
        for pair in sorted(self.broken):
            self.mend(*pair)
        self.links.run()

    def check(self) -> None:
        assert self.got.keys() == self.wanted.keys()
        # Only a broker's file knows what its clients got before it crashed.
        once = [n for (client, *_), n in self.got.items() if self.home[client] not in self.had]
        assert {*once} <= {1}
        for router in self.routers.values():
            assert (router.own, router.lost, router.is_ready, router._pending) == (0, 0, True, {})
            for kind in KINDS:
                for other, sent in router.router.sent[kind].items():
                    name = next(n for n, one in self.routers.items() if one is router)
                    held = self.routers[other].router.tables[kind][name]
                    assert held.keys() == sent.keys()


def run(world: World, acts: int) -> None:
    """Let clients subscribe and publish while brokers and links fail, three times over."""
    for _ in range(3):
        for _ in range(6):
            world.change()
        world.links.run()
        for _ in range(acts):
            act = world.draw.random()
            if act < 0.6:
                world.publish()
            elif act < 0.75:
                world.trouble()
            else:
                world.links.run(world.links.time + world.draw.uniform(0, 3))
        world.repair()
        world.check()


@given(st.integers(0, 1 << 32), st.booleans(), st.sampled_from([None, 30]))
@settings(max_examples=examples(60))
def test_whatever_fails_nothing_is_lost(seed: int, advertise: bool, slack: Any) -> None:
    run(World(seed, advertise=advertise, slack=slack), 40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_thirty_brokers_fail(seed: int) -> None:
    run(World(seed, 30, advertise=bool(seed % 2)), 250)


# -- one router ---------------------------------------------------------------------------------


class Alone:
    """A router between neighbours that the test plays."""

    def __init__(self, *neighbours: str, opens: list[str] | None = None) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.got: list[tuple[Publication, list[str]]] = []
        self.router = ReliableRouter(
            RELATION,
            neighbours,
            lambda link, message: self.sent.append((link, message)),
            lambda publication, clients: self.got.append((publication, clients)),
            advertise=False,
        )
        for name in neighbours if opens is None else opens:
            self.open(name)

    def open(self, name: str, epoch: bytes = b"eight by") -> None:
        """Open both connections to a neighbour, which wants all events."""
        self.router.opened(name)
        self.router.receive(name, Opening(epoch))
        self.router.receive(name, Add("subscription", (name, 1), ALL))
        for kind in KINDS:
            self.router.receive(name, Settled(kind))

    def taken(self, kind: type) -> list[tuple[str, Any]]:
        """What was sent of a kind since the last time."""
        some = [pair for pair in self.sent if type(pair[1]) is kind]
        self.sent = [pair for pair in self.sent if type(pair[1]) is not kind]
        return some

    def acknowledge(self, name: str, count: int) -> None:
        self.router.receive(name, Acknowledge(self.router._out[name].epoch, count))


def test_an_event_is_acknowledged_when_all_behind_have_it() -> None:
    alone = Alone("up", "left", "right")
    router = alone.router
    router.router.add("subscription", "alice", 1, ALL)
    alone.taken(Acknowledge)
    router.receive("up", Publication("p", 1, event(5)))
    assert [link for link, _ in alone.taken(Publication)] == ["left", "right"]
    alone.acknowledge("left", 1)
    # It comes again over another connection, and is the same one.
    alone.open("up", b"other ep")
    alone.taken(Acknowledge)
    router.receive("up", Publication("p", 1, event(5)))
    assert not alone.taken(Publication)
    router.delivered(alone.got[0][0])
    assert not alone.taken(Acknowledge)
    alone.acknowledge("right", 1)
    assert alone.taken(Acknowledge) == [("up", Acknowledge(b"other ep", 1))]
    # Once more, after all have it.
    router.receive("up", Publication("p", 1, event(5)))
    assert alone.taken(Acknowledge) == [("up", Acknowledge(b"other ep", 2))]
    assert len(alone.got) == 1


def test_a_neighbour_has_a_window_of_events_at_most() -> None:
    alone = Alone("up", "down")
    for number in range(WINDOW):
        alone.router.receive("up", Publication("p", number, event(5)))
    assert len(alone.taken(Publication)) == WINDOW
    with pytest.raises(DecodeError, match="at once"):
        alone.router.receive("up", Publication("p", WINDOW, event(5)))
    alone.acknowledge("down", 3)
    for number in range(WINDOW, WINDOW + 3):
        alone.router.receive("up", Publication("p", number, event(5)))
    assert len(alone.taken(Publication)) == 3
    for count in (2, WINDOW + 4):
        with pytest.raises(DecodeError, match="acknowledged"):
            alone.acknowledge("down", count)


def test_large_events_fill_the_window_earlier() -> None:
    alone = Alone("down")
    for _ in range(5):
        alone.router.publish("p", event(5), bytes(3 << 20))
    assert len(alone.taken(Publication)) == 3  # the third is begun below 8 MiB
    alone.acknowledge("down", 1)
    assert len(alone.taken(Publication)) == 1


def test_a_neighbour_that_stays_away_is_given_up() -> None:
    alone = Alone("up", "down")
    router = alone.router
    router.closed("down")
    router.receive("up", Publication("p", 1, event(5)))
    router.publish("alice", event(5))
    alone.taken(Acknowledge)
    router.give_up("down")
    assert (router.lost, router.own, router.router.entries) == (2, 1, 1)
    assert alone.taken(Acknowledge) == [("up", Acknowledge(b"eight by", 1))]
    assert alone.taken(Withdraw) == [("up", Withdraw("subscription", ("down", 1)))]
    with pytest.raises(DecodeError, match="opening"):  # an old connection
        router.receive("down", Publication("p", 2, event(5)))
    alone.open("down")
    router.receive("up", Publication("p", 3, event(5)))
    assert ("down", Publication("p", 3, event(5))) in alone.taken(Publication)


def test_a_broker_that_starts_waits_for_a_neighbour_until_it_is_given_up() -> None:
    alone = Alone("up", "down", opens=["up"])
    router = alone.router
    with pytest.raises(RefusedError, match="not all neighbours"):
        router.publish("alice", event(1))
    router.receive("up", Publication("p", 1, event(5)))
    with pytest.raises(DecodeError):
        router.receive("up", Publication("p", 2, b"no event"))
    assert not alone.taken(Acknowledge)
    router.give_up("down")
    assert alone.taken(Acknowledge)
    router.publish("alice", event(1))


def test_too_many_events_of_clients_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccbps.overlay.routing.reliable.MOST_OWN", 2)
    alone = Alone("down")
    for _ in range(2):
        alone.router.publish("p", event(5))
    with pytest.raises(RefusedError, match="on their way"):
        alone.router.publish("p", event(5))
    alone.acknowledge("down", 1)
    alone.router.publish("p", event(5))


def test_too_many_filters_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccbps.overlay.routing.reliable.MOST_FILTERS", 2)
    alone = Alone("up")
    alone.router.receive("up", Add("subscription", ("up", 2), ALL))
    with pytest.raises(DecodeError, match="more than 2 filters"):
        alone.router.receive("up", Add("subscription", ("up", 3), ALL))
    alone.router.receive("up", Withdraw("subscription", ("up", 2)))
