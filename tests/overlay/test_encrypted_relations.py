"""Routing on what brokers of matchers see: deliveries are those of plaintext, tables are small."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Category, Schema, UInt
from ccbps.errors import ParameterError
from ccbps.matching import (
    CommutativeMatch,
    KeywordDictionaryMatch,
    KeywordFilterMatch,
    MaskedTopicMatch,
    Matcher,
    TagMatch,
)
from ccbps.matching.broken import AdditiveMaskMatch, AspeMatch, PrefixMatch
from ccbps.matching.contract.parties import Party
from ccbps.overlay import Links, MatcherRelation, Publication, Router
from tests.support.effort import examples

pytestmark = pytest.mark.filterwarnings("ignore:.*is broken")
ISSUES = ["AAPL", "IBM", "MSFT"]
TOPICS = Schema(issue=Category(ISSUES), price=UInt(4))
NUMBERS = Schema(price=UInt(4), volume=UInt(4))
Draw = random.Random


def words(draw: Draw) -> str:
    """Draw a conjunction that is exact with points at 4, 8 and 12."""
    price = f"price {draw.choice(['<', '>'])} {draw.choice([4, 8, 12])}"
    parts = [f"issue = '{draw.choice(ISSUES)}'", price]
    return " AND ".join(draw.sample(parts, draw.choice([1, 1, 2])))


def topic(draw: Draw) -> str:
    return f"issue = '{draw.choice(ISSUES)}' AND price = {draw.randrange(3)}"


def box(draw: Draw) -> str:
    """Draw a box, half of them open in one attribute."""
    bounds = {name: sorted([draw.randrange(16), draw.randrange(16)]) for name in NUMBERS.names}
    parts = [f"{name} BETWEEN {low} AND {high}" for name, (low, high) in bounds.items()]
    return " AND ".join(draw.sample(parts, draw.choice([1, 2])))


MATCHERS: dict[str, tuple[Callable[[], Matcher], Callable[[Draw], str]]] = {
    "keyword filter": (
        lambda: KeywordFilterMatch(TOPICS, points={"price": [4, 8, 12]}, false_positives=1e-12),
        words,
    ),
    "keyword dictionary": (
        lambda: KeywordDictionaryMatch(TOPICS, points={"price": [4, 8, 12]}),
        words,
    ),
    "masked topic": (lambda: MaskedTopicMatch(TOPICS), topic),
    "commutative layers": (lambda: CommutativeMatch(TOPICS, group="toy64"), topic),
    "prefix": (lambda: PrefixMatch(NUMBERS), box),
    "aspe": (lambda: AspeMatch(NUMBERS), box),
    "additive mask": (lambda: AdditiveMaskMatch(NUMBERS), box),
}


@cache
def party(name: str) -> Party:
    return Party(MATCHERS[name][0]())


class World:
    """Brokers in a random tree that route what a matcher encrypted, and plaintext beside it."""

    def __init__(self, name: str, seed: int, brokers: int = 6, clients: int = 8) -> None:
        self.draw, self.party, self.text = Draw(seed), party(name), MATCHERS[name][1]
        self.schema = self.party.matcher.schema
        tree = networkx.random_labeled_tree(brokers, seed=seed)
        self.links = Links([(f"B{a}", f"B{b}") for a, b in tree.edges], delay=(0.5, 3), seed=seed)
        relation = MatcherRelation(self.party.broker)
        self.got: Counter[str] = Counter()
        self.routers = {
            f"B{number}": self.router(relation, f"B{number}") for number in range(brokers)
        }
        for at, router in self.routers.items():
            for other in self.links.neighbours(at):
                router.connect(other)
        self.home = {f"c{n}": self.draw.choice([*self.routers]) for n in range(clients)}
        self.held: dict[tuple[str, int], str] = {}
        self.number = 0

    def router(self, relation: MatcherRelation, name: str) -> Router:
        world = self

        class Node:
            def receive(self, sender: str, message: Any) -> None:
                world.routers[name].receive(sender, message)

        port = self.links.attach(name, Node())

        def deliver(client: str, publication: Publication) -> None:
            self.got[client] += 1

        return Router(relation, port.send, deliver, advertise=False)

    def subscribe(self) -> None:
        client, text = self.draw.choice([*self.home]), self.text(self.draw)
        self.number += 1
        self.held[client, self.number] = text
        content = self.party.subscriber.encode(text)[0].tobytes()
        self.routers[self.home[client]].add("subscription", client, self.number, content)

    def unsubscribe(self) -> None:
        if self.held:
            client, number = self.draw.choice([*self.held])
            del self.held[client, number]
            self.routers[self.home[client]].withdraw("subscription", client, number)

    def publish(self) -> None:
        """Publish an event, and compare deliveries with those of the predicates in plaintext."""
        self.number += 1
        first = self.schema.names[0]
        event = {name: self.draw.randrange(16) for name in self.schema.names}
        if first == "issue":
            event = {"issue": self.draw.choice(ISSUES), "price": self.draw.randrange(5)}
        content = self.party.publisher.encode([event])[0].tobytes()
        self.got.clear()
        client = self.draw.choice([*self.home])
        self.routers[self.home[client]].publish(client, self.number, content)
        self.links.run()
        events = self.schema.encode([event])
        wanted = {
            subscriber
            for (subscriber, _), text in self.held.items()
            if subscriber != client and self.schema.parse(text).evaluate(events)[0]
        }
        assert self.got == Counter(dict.fromkeys(wanted, 1))

    @property
    def entries(self) -> int:
        return sum(router.entries for router in self.routers.values())


@pytest.mark.parametrize("name", MATCHERS)
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=examples(3), deadline=None)
def test_random_histories_deliver_what_plaintext_does(name: str, seed: int) -> None:
    world = World(name, seed)
    for _ in range(30):
        act = world.draw.random()
        if act < 0.5:
            world.subscribe()
        elif act < 0.7:
            world.unsubscribe()
        else:
            world.links.run()
            world.publish()
    while world.held:
        world.unsubscribe()
    world.links.run()
    assert not world.entries


@pytest.mark.slow
@pytest.mark.parametrize("name", MATCHERS)
def test_tables_and_hops_beside_flooding(name: str) -> None:
    """Without covering each of 40 subscriptions is at each of 8 brokers."""
    world = World(name, 3, brokers=8, clients=16)
    for _ in range(40):
        world.subscribe()
    world.links.run()
    assert len(world.held) == 40
    assert world.entries < 0.6 * 40 * 8
    before = world.links.messages
    for _ in range(20):
        world.publish()
    assert world.links.messages - before < 20 * 7


@pytest.mark.parametrize("name", ["keyword filter", "keyword dictionary"])
def test_a_subscription_covers_those_with_all_of_its_words(name: str) -> None:
    relation, encode = MatcherRelation(party(name).broker), party(name).subscriber.encode
    wide, narrow, other = (
        relation.read_filter(encode(text)[0].tobytes())
        for text in ("issue = 'IBM'", "issue = 'IBM' AND price < 8", "issue = 'AAPL'")
    )
    assert relation.covers(wide, [narrow, other, wide]).tolist() == [True, False, True]
    assert relation.covered(narrow, [wide, other, narrow]).tolist() == [True, False, True]
    assert relation.covers(narrow, [wide]).tolist() == [False]


def test_matchers_without_covering_are_refused_and_the_way_out_is_named() -> None:
    with pytest.raises(ParameterError, match=r"brokers of TagMatch .* PlainRelation\(schema, bits"):
        MatcherRelation(Party(TagMatch(NUMBERS)).broker)
