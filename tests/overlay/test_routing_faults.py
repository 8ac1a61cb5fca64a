"""Routing where something goes wrong: names used twice, covers not found, links that break."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Schema, UInt
from ccbps.errors import ParameterError, RefusedError
from ccbps.matching.broken import PrefixMatch
from ccbps.overlay import Links, MatcherRelation, PlainRelation, Publication, Router
from ccbps.overlay.routing.router import Add, Withdraw
from ccbps.overlay.seen_numbers import WINDOW, SeenNumbers
from tests.support.effort import examples

SCHEMA = Schema(x=UInt(6), y=UInt(6))
PLAIN = PlainRelation(SCHEMA)


def box(text: str) -> bytes:
    return PLAIN.filter_bytes(text)


class Forgetful(PlainRelation):
    """Finds a filter to cover another only if its ranges are less than 4 codes wider.

    So a covers b and b covers c, but a does not cover c.
    """

    exact = False

    def covers(self, wide: Any, others: Any) -> Any:
        covered = super().covers(wide, others)
        for place, other in enumerate(others):
            covered[place] &= ((wide[1] - wide[0]) - (other[1] - other[0]) < 4).all()
        return covered

    def covered(self, narrow: Any, others: Any) -> Any:
        return np.array([self.covers(other, [narrow])[0] for other in others], dtype=np.bool_)


class Wires:
    """A router, what it sent, and what its neighbours hold of it.

    Args:
        neighbours: names of neighbours.
        options: arguments of the router.
    """

    def __init__(self, *neighbours: str, relation: Any = PLAIN, **options: Any) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.held: dict[str, dict[Any, bytes]] = {name: {} for name in neighbours}
        self.delivered: list[str] = []
        self.router = Router(
            relation,
            self.send,
            lambda client, _: self.delivered.append(client),
            **{"advertise": False} | options,
        )
        for name in neighbours:
            self.router.connect(name)

    def send(self, link: str, message: Any) -> None:
        self.sent.append((link, message))
        if isinstance(message, Add):
            self.held[link][message.kind, message.name] = message.content
        elif isinstance(message, Withdraw):
            self.held[link].pop((message.kind, message.name), None)

    def wanted(self, neighbour: str, x: int, relation: Any = PLAIN) -> bool:
        """Tell whether a neighbour would send the event (x, 0) here."""
        filters = [relation.read_filter(content) for content in self.held[neighbour].values()]
        event = relation.read_event(relation.event_bytes({"x": x, "y": 0}))
        return bool(len(filters)) and bool(relation.matches(event, filters).any())


@given(st.integers(0, 1 << 32), st.sampled_from([Forgetful(SCHEMA), PLAIN]))
@settings(max_examples=examples(80), deadline=None)
def test_a_relation_that_finds_few_covers_costs_messages_and_loses_nothing(
    seed: int, relation: Any
) -> None:
    draw, wires = random.Random(seed), Wires("n", relation=relation)
    live: dict[int, tuple[int, int]] = {}
    for number in range(40):
        if live and draw.random() < 0.45:
            gone = draw.choice([*live])
            del live[gone]
            wires.router.withdraw("subscription", "c", gone)
        else:
            low = draw.randrange(12)
            live[number] = low, 39 - low - draw.randrange(2)
            text = "x BETWEEN {} AND {} AND y < 9".format(*live[number])
            wires.router.add("subscription", "c", number, box(text))
        for x in range(40):
            assert wires.wanted("n", x) == any(low <= x <= high for low, high in live.values())


def test_a_cover_of_a_cover_that_the_relation_does_not_find() -> None:
    """The widest filter covers the next, and that one the narrowest, which all the same is sent."""
    wires = Wires("n", relation=Forgetful(SCHEMA))
    for number, (low, high) in enumerate([(5, 6), (4, 8), (3, 10)]):
        wires.router.add("subscription", "c", number, box(f"x BETWEEN {low} AND {high} AND y < 9"))
    assert [*wires.held["n"]] == [("subscription", ("c", 2))]
    for number in (1, 2):
        wires.router.withdraw("subscription", "c", number)
    assert [*wires.held["n"]] == [("subscription", ("c", 0))]


def test_what_replaces_a_filter_is_sent_before_it_goes() -> None:
    """A new content of an old name, and what only the old content covered."""
    wires = Wires("n")
    add = wires.router.add
    add("subscription", "a", 1, box("x < 20"))
    add("subscription", "b", 1, box("x < 9"))
    add("subscription", "c", 1, box("x BETWEEN 30 AND 35"))
    wires.sent.clear()
    add("subscription", "a", 1, box("x BETWEEN 5 AND 40"))
    kinds = [(type(message).__name__, message.name[0]) for _, message in wires.sent]
    assert kinds == [("Add", "b"), ("Add", "a"), ("Withdraw", "c")]
    assert [wires.wanted("n", x) for x in (0, 8, 12, 19, 33, 41)] == [True] * 5 + [False]
    wires.router.withdraw("subscription", "a", 1)
    assert [wires.wanted("n", x) for x in (0, 12, 33)] == [True, False, True]


def test_an_advertisement_that_is_replaced_keeps_the_subscriptions() -> None:
    wires = Wires("n", advertise=True)
    wires.router.add("subscription", "a", 1, box("x < 20"))
    for text in ("x < 9", "x BETWEEN 5 AND 12"):
        wires.router.receive("n", Add("advertisement", ("p", 1), box(text)))
        assert wires.wanted("n", 6)
    assert [type(message).__name__ for _, message in wires.sent] == ["Add"]


@pytest.mark.parametrize("again", ["x < 9", "x < 5", "x < 30", "x BETWEEN 20 AND 25"])
@pytest.mark.parametrize("slack", [None, 0])
@pytest.mark.parametrize("first", ["left", "right"])
def test_a_client_that_moves_has_one_name_at_two_brokers(
    again: str, slack: float | None, first: str
) -> None:
    wires = Wires("left", "right", "n", slack=slack)
    for link, text in (("left", "x < 9"), ("right", again)):
        wires.router.receive(link, Add("subscription", ("a", 1), box(text)))
    texts = {"left": "x < 9", "right": again}
    for _ in range(2):
        wanted = [PLAIN.read_filter(box(text)) for text in texts.values()]
        for x in range(40):
            event = PLAIN.read_event(PLAIN.event_bytes({"x": x, "y": 0}))
            assert wires.wanted("n", x) == PLAIN.matches(event, wanted).any()
        if first in texts:
            del texts[first]
            wires.router.receive(first, Withdraw("subscription", ("a", 1)))


def test_names_of_clients_are_not_those_of_neighbours_nor_of_merged_filters() -> None:
    wires = Wires("n", slack=0)
    for client in ("n", "~", "~ab"):
        for call in (
            lambda name=client: wires.router.add("subscription", name, 1, box("x < 9")),
            lambda name=client: wires.router.withdraw("subscription", name, 1),
            lambda name=client: wires.router.publish(name, 1, PLAIN.event_bytes({"x": 1, "y": 1})),
        ):
            with pytest.raises(ParameterError, match="client"):
                call()
    wires.router.add("subscription", "a", 1, box("x < 9"))
    with pytest.raises(ParameterError, match="client"):
        wires.router.connect("a")
    for kind, number in (("wish", 1), ("subscription", -1)):
        with pytest.raises(ParameterError):
            wires.router.add(kind, "a", number, box("x < 9"))  # type: ignore[arg-type]
    assert not [link for link, _ in wires.sent if link != "n"]


def test_a_link_that_is_taken_up_again_begins_empty() -> None:
    wires = Wires("n", "other")
    wires.router.receive("n", Add("subscription", ("a", 1), box("x < 9")))
    assert wires.wanted("other", 3)
    wires.router.connect("n")
    assert not wires.wanted("other", 3)


def test_a_broken_link_is_forgotten_without_detours() -> None:
    """What goes is withdrawn; nothing of it is sent first, as it would be one by one."""
    wires = Wires("n", "other")
    for number, width in enumerate((40, 30, 20, 10)):
        wires.router.receive("n", Add("subscription", ("a", number), box(f"x < {width}")))
    wires.router.add("subscription", "b", 1, box("x < 5"))
    wires.sent.clear()
    wires.router.disconnect("n")
    assert [(type(message).__name__, message.name) for _, message in wires.sent] == [
        ("Add", ("b", 1)),
        ("Withdraw", ("a", 0)),
    ]


def test_a_number_that_brokers_would_drop_is_refused_at_the_edge() -> None:
    wires, content = Wires("n"), PLAIN.event_bytes({"x": 1, "y": 1})
    wires.router.publish("p", 5, content)
    for number in (6, 4, 9999):
        wires.router.publish("p", number, content)
    for number in (5, 4, 9999, 7):
        with pytest.raises(RefusedError, match=f"had the number {number} or one 4096") as caught:
            wires.router.publish("p", number, content)
        assert caught.value.reason == "order"
    with pytest.raises(ParameterError, match="number"):
        wires.router.publish("p", -1, content)


@given(st.lists(st.integers(0, 40) | st.integers(0, 20_000), max_size=60))
def test_seen_numbers_are_those_of_a_window(numbers: list[int]) -> None:
    seen, came = SeenNumbers(), set[int]()
    for number in numbers:
        new = number not in came and number > max(came, default=0) - WINDOW
        assert seen.is_new(number) == new
        assert seen.take(number) == new
        came |= {number} if new else set()


def test_the_window_of_seen_numbers_has_its_bounds() -> None:
    seen = SeenNumbers()
    seen.take(5 * WINDOW)
    assert not seen.is_new(4 * WINDOW)
    assert seen.take(4 * WINDOW + 1)
    seen.take(5 * WINDOW + 1)
    assert not seen.is_new(4 * WINDOW + 1)


def test_events_of_a_publisher_that_moves_may_overtake_one_another() -> None:
    """Two brokers bring its events over ways of different lengths; none is lost."""
    wires = Wires("left", "right")
    wires.router.add("subscription", "a", 1, box("x < 9"))
    content = PLAIN.event_bytes({"x": 1, "y": 1})
    for link, number in (("right", 8), ("left", 7), ("left", 7), ("right", 8)):
        wires.router.receive(link, Publication("p", number, content))
    assert wires.delivered == ["a", "a"]


@pytest.mark.filterwarnings("ignore:.*is broken")
def test_what_a_relation_cannot_do_is_refused_at_once() -> None:
    matcher = PrefixMatch(SCHEMA)
    relation = MatcherRelation(matcher.broker(matcher.key_server().broker_key()))
    for options, message in (
        ({}, "without advertisements"),
        ({"advertise": False, "slack": 3}, "does not merge"),
    ):
        with pytest.raises(ParameterError, match=message):
            Router(relation, lambda *_: None, lambda *_: None, **options)  # type: ignore[arg-type]


def test_a_filter_that_nothing_fulfils_has_bytes_with_any_leading_bits() -> None:
    for bits in ({"x": 0}, {"x": 0, "y": 2}, {}, {"x": 3}):
        relation = PlainRelation(SCHEMA, bits=bits)
        relation.read_filter(relation.filter_bytes("x < 5 AND x > 9"))


def test_leading_bits_of_codes_of_two_words() -> None:
    """With NULL, a value of 64 bits has a code of 65."""
    relation = PlainRelation(Schema(x=UInt(64, nullable=True)), bits={"x": 4})
    wide = relation.read_filter(relation.filter_bytes(f"x >= {15 << 59}"))
    for value, want in ((15 << 59, True), ((1 << 64) - 1, True), (3, False)):
        event = relation.read_event(relation.event_bytes({"x": value}))
        assert relation.matches(event, [wide]).tolist() == [want]


@given(st.integers(0, 1 << 32), st.sampled_from([None, 0, 200]), st.booleans())
@settings(max_examples=examples(120), deadline=None)
def test_after_any_crashes_and_moves_all_is_as_it_was(
    seed: int, slack: float | None, advertise: bool
) -> None:
    """Brokers crash while subscriptions end; clients move; afterwards each event arrives once."""
    draw = random.Random(seed)
    names = [f"B{number}" for number in range(6)]
    tree = [(name, names[draw.randrange(at)]) for at, name in enumerate(names) if at]
    links = Links(tree, delay=(0.5, 3), seed=seed)
    routers: dict[str, Router] = {}
    got: list[tuple[str, int]] = []

    def start(name: str) -> None:
        class Node:
            def receive(self, sender: str, message: Any) -> None:
                routers[name].receive(sender, message)

        def deliver(client: str, event: Publication) -> None:
            got.append((client, event.number))

        send = links.attach(name, Node()).send
        relation = draw.choice([PLAIN, Forgetful(SCHEMA)])
        routers[name] = Router(relation, send, deliver, advertise=advertise, slack=slack)

    for name in names:
        start(name)
    for name in names:
        for other in links.neighbours(name):
            routers[name].connect(other)
    home = {f"c{number}": draw.choice(names) for number in range(6)}
    filters: dict[tuple[Any, str, int], tuple[int, int]] = {}

    def add(kind: Any, client: str, number: int) -> None:
        text = "x BETWEEN {} AND {}".format(*filters[kind, client, number])
        routers[home[client]].add(kind, client, number, box(text))

    for number in range(40):
        act, client = draw.random(), draw.choice([*home])
        if act < 0.5:
            kind, low = draw.choice(["subscription", "advertisement"]), draw.randrange(50)
            key = kind, client, draw.randrange(4)  # a number may be used again, for other content
            filters[key] = low, low + draw.randrange(14)
            add(*key)
        elif act < 0.7 and filters:
            kind, client, number = draw.choice([*filters])
            del filters[kind, client, number]
            routers[home[client]].withdraw(kind, client, number)
        elif act < 0.85:
            before, home[client] = home[client], draw.choice(names)
            for key in [*filters]:
                if key[1] == client:
                    add(*key)
            if before != home[client]:
                routers[before].disconnect(client)
        else:
            name = draw.choice(names)
            links.crash(name)
            for other in links.neighbours(name):
                routers[other].disconnect(name)
            links.run(links.time + draw.random() * 3)
            links.restore(name)
            start(name)
            for other in links.neighbours(name):
                routers[name].connect(other)
                routers[other].connect(name)
            for key in filters:
                if home[key[1]] == name:
                    add(*key)
        links.run(links.time + draw.random() * 2)
    links.run()
    for number in range(100, 130):
        x, publisher = draw.randrange(64), draw.choice([*home])
        held = [(kind, client) for (kind, client, _), (a, b) in filters.items() if a <= x <= b]
        if advertise and ("advertisement", publisher) not in held:
            continue
        routers[home[publisher]].publish(publisher, number, PLAIN.event_bytes({"x": x, "y": 0}))
        links.run()
        reached = {client for kind, client in held if kind == "subscription"} - {publisher}
        assert sorted(got) == sorted((client, number) for client in reached)
        got.clear()


@pytest.mark.parametrize("advertise", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_an_event_on_its_way_overtakes_no_withdrawal(seed: int, advertise: bool) -> None:
    """What was published before an advertisement ends arrives, also over slow links."""
    got: list[int] = []
    links, routers = network([("a", "b"), ("b", "c")], seed, got, advertise)
    routers["a"].add("advertisement", "p", 1, box("x < 9"))
    links.run()
    routers["c"].add("subscription", "s", 1, box("x < 30"))
    links.run()
    routers["a"].publish("p", 1, PLAIN.event_bytes({"x": 3, "y": 3}))
    routers["a"].withdraw("advertisement", "p", 1)
    links.run()
    assert got == [1]


def network(
    edges: list[tuple[str, str]], seed: int, got: list[int], advertise: bool
) -> tuple[Links, dict[str, Router]]:
    """Brokers over slow links; `got` takes the numbers of delivered events."""
    links, routers = Links(edges, delay=(0.1, 9), seed=seed), dict[str, Router]()

    class Node:
        def __init__(self, name: str) -> None:
            send = links.attach(name, self).send
            self.router = routers[name] = Router(
                PLAIN, send, lambda _, event: got.append(event.number), advertise=advertise
            )

        def receive(self, sender: str, message: Any) -> None:
            self.router.receive(sender, message)

    names = dict.fromkeys(name for edge in edges for name in edge)
    for name in names:
        Node(name)
    for name in names:
        for other in links.neighbours(name):
            routers[name].connect(other)
    return links, routers
