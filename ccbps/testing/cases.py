"""Cases of a scheme: matchers that it proposes, with interests that they take and records.

Nothing here knows a scheme by name. Which randomness a matcher needs and who answers follow from
the contract.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import pytest

from ccbps import Bool, Category, Int, Schema, SharedSeed, Text, UInt
from ccbps.arrays import Bools, Bytes
from ccbps.errors import PredicateError
from ccbps.matching import Answers, Keying, Matcher
from ccbps.matching.contract.scheme import ServerScheme
from ccbps.predicates import Predicate


class Offer(NamedTuple):
    """What a scheme is offered, to see whether it proposes a matcher for it.

    Attributes:
        schema: the events' attributes.
        predicates: SQL, some of which the scheme takes.
        records: events.
        constants: by name, values of private constants of these predicates; as many for each.
    """

    schema: Schema
    predicates: tuple[str, ...]
    records: tuple[Mapping[str, Any], ...]
    constants: Mapping[str, Sequence[Any]] = {}


PLAIN: Final = Schema(issue=Category(["AAPL", "IBM", "SAP"]), price=UInt(6))
NULLABLE: Final = Schema(
    price=Int(4, nullable=True), note=Text(1, nullable=True), live=Bool(nullable=True)
)
TINY: Final = Schema(x=UInt(1))
WORDS: Final = Schema(x=UInt(8))

OFFERS: Final[tuple[Offer, ...]] = (
    Offer(
        PLAIN,
        (
            "issue = 'IBM' AND price < 20",
            "price BETWEEN 3 AND 9",
            "price = 63",
            "issue = 'SAP' AND price = 9",
            "issue = 'IBM' AND price = 5",
            "price < 1000000000",
            "price > 63",
            "price < -5",
            "issue = 'MSFT'",
            "issue = 'MSFT' AND price = 3",
            "price < 3 AND price > 5",
            "price < 5 OR NOT issue = 'IBM'",
            "TRUE",
            "FALSE",
            "issue = :issue AND price < :limit",
        ),
        (
            {"issue": "IBM", "price": 5},
            {"issue": "IBM", "price": 5},
            {"issue": "SAP", "price": 9},
            {"issue": "AAPL", "price": 63},
            {"issue": "IBM", "price": 0},
        ),
        {"issue": ["IBM", "SAP", "MSFT"], "limit": [20, 1, 10**9]},
    ),
    Offer(
        NULLABLE,
        (
            "price = 3",
            "price IS NULL",
            "price >= -2 AND note = 'a'",
            "price = 3 AND note = 'a' AND live = TRUE",
            "price = -8 AND note = 'b' AND live = FALSE",
            "note IS NOT NULL",
            "live",
            "price BETWEEN -100 AND 100",
            "price = NULL",
        ),
        (
            {"price": None, "note": None, "live": None},
            {"price": 3, "note": "a", "live": True},
            {"price": -8, "note": "b", "live": False},
            {"price": 3, "note": None, "live": True},
            {"price": 7, "note": "", "live": None},
        ),
    ),
    Offer(TINY, ("x = 1", "x = 0", "TRUE", "x < 1"), ({"x": 0}, {"x": 1})),
    Offer(
        WORDS,
        ("hamming(x, :y) <= 2", "hamming(x, 3) <= 2", "x < 100", "x = 7"),
        ({"x": 3}, {"x": 7}, {"x": 255}, {"x": 0}),
        {"y": [3, 0, 250], "t": [0, 2, 8]},
    ),
)
"""What every scheme is offered."""


def every(**values: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """Return all records with these values of attributes."""
    return tuple(dict(zip(values, row, strict=True)) for row in product(*values.values()))


SMALLEST: Final[tuple[Offer, ...]] = (
    Offer(
        TINY,
        ("x = 1", "x = 0", "TRUE", "FALSE", "x = :y", "x < :y", "hamming(x, :y) <= 0"),
        every(x=range(2)),
        {"y": [0, 1], "t": [0, 1]},
    ),
    Offer(
        Schema(a=UInt(1), b=UInt(1)),
        (
            "a = 1",
            "b = 0",
            "TRUE",
            "FALSE",
            "a = 1 AND b = 0",
            "a = 0 AND b = 0",
            "a = :y AND b = :z",
        ),
        every(a=range(2), b=range(2)),
        {"y": [0, 1, 1], "z": [0, 0, 1]},
    ),
    Offer(
        Schema(x=UInt(2)),
        ("x = 1", "x = 3", "x < 2", "TRUE", "FALSE", "x = :y", "hamming(x, :y) <= 1"),
        every(x=range(4)),
        {"y": [0, 1, 3], "t": [0, 1, 1]},
    ),
)
"""What a scheme is offered where all randomness is enumerated: all events, and few bits of them."""


MATCHERS: Final = 2
"""Matchers of one schema, at most."""
INTERESTS: Final = 6
"""Interests of one matcher, at most."""


@dataclass
class Case:
    """A matcher, interests that it takes, and records that it can publish."""

    matcher: Matcher
    interests: list[Any]
    records: list[Mapping[str, Any]]
    refused: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.party = Party(self.matcher, self.interests)
        if self.matcher.keying is Keying.SESSION:
            own = self.party.publisher.serves(self.records)
            self.records = [
                record for record, served in zip(self.records, own, strict=True) if served
            ]

    @property
    def meaning(self) -> Bools:
        """The answers in plaintext, shape (records, interests)."""
        events = self.matcher.schema.encode(self.records)
        columns = [self.matcher.meaning(interest, events) for interest in self.interests]
        return np.array(columns, dtype=np.bool_).reshape(len(columns), len(self.records)).T


class Party:
    """All roles of a matcher under one seed, server or session."""

    publisher: Any
    subscriber: Any
    server: Any
    broker: Any

    def __init__(self, matcher: Matcher, interests: Sequence[Any] = ()) -> None:
        self.matcher = matcher
        self.next = 0
        if matcher.keying is Keying.ROUNDS:
            self.keys: tuple[Any, Any] = (SharedSeed.generate(),) * 2
            self.broker = matcher.broker()
        elif matcher.keying is Keying.SERVER:
            self.server = matcher.key_server()
            self.keys = self.server.publisher_key(), self.server.subscriber_key("alice")
            self.broker = matcher.broker(self.server.broker_key())
        else:
            sessions: Any = matcher
            self.publisher = sessions.new_publisher(distinct(matcher, interests))
            self.subscriber = sessions.new_subscriber()
            self.publisher.admit(self.subscriber.identity)
            self.subscriber.trust(self.publisher.identity)
            self.interests = list(interests)
            requests = self.subscriber.encode(self.interests)
            self.subscriber.accept(self.publisher.answer(requests))
            return
        self.publisher = matcher.publisher(self.keys[0])
        self.subscriber = matcher.subscriber(self.keys[1])

    def rounds(self, count: int) -> Any:
        """Return fresh rounds, or None where there are none."""
        if self.matcher.keying is not Keying.ROUNDS:
            return None
        self.next += count
        return range(self.next - count, self.next)

    def pairs(self, records: Sequence[Any], interests: Sequence[Any]) -> tuple[Bytes, Bytes]:
        """Return messages of every record with every interest, a pair a row."""
        rounds = self.rounds(len(records) * len(interests))
        events = [record for record in records for _ in interests]
        asked = [interest for _ in records for interest in interests]
        return self.publisher.encode(events, rounds), self.subscriber.encode(asked, rounds)

    def answers(self, records: Sequence[Any], interests: Sequence[Any]) -> Bools:
        """Return what the scheme answers, shape (records, interests)."""
        out: Bools
        if self.matcher.answers is Answers.SUBSCRIBER:
            assert list(interests) == self.interests
            out = self.subscriber.open(self.publisher.encode(list(records))).matched
            return out
        if self.matcher.answers is Answers.ALL and self.matcher.keying is Keying.SERVER:
            events = self.publisher.encode(list(records))
            out = self.broker.match_all(events, self.subscriber.encode(list(interests)))
            return out
        out = self.broker.match(*self.pairs(records, interests))
        return out.reshape(len(records), len(interests))


def distinct(matcher: Matcher, interests: Sequence[Any]) -> list[Any]:
    """Return interests without those that come to the same."""
    unlike: dict[Any, Any] = {}
    for interest in interests:
        unlike.setdefault(repr(matcher.prepare(interest)), interest)
    return list(unlike.values())


def proposed(scheme: type[Matcher], schema: Schema, predicate: Predicate) -> list[Matcher]:
    """Return what a scheme proposes, with toy keys where it has any: primes take long to find.

    False positives that a scheme leaves to chance are no part of a matcher's meaning. There are so
    few of them here that nobody sees one.
    """
    defaults = scheme.__init__.__kwdefaults__ or {}
    with pytest.MonkeyPatch.context() as patch:
        if "toy" in signature(scheme).parameters:
            patch.setattr(scheme.__init__, "__defaults__", (512, True))
        if "false_positives" in defaults:
            patch.setitem(defaults, "false_positives", 2**-40)
        return list(scheme.propose(schema, predicate))


def cases(scheme: type[Matcher], offers: Sequence[Offer] = OFFERS) -> list[Case]:
    """Return cases of a scheme: for each schema, two matchers that it proposes for a predicate.

    Args:
        scheme: the class.
        offers: what it is offered.
    """
    out: list[Case] = []
    for offer in offers:
        some: dict[bytes, Case] = {}
        predicates = [offer.schema.parse(text) for text in offer.predicates]
        for predicate in predicates:
            for matcher in proposed(scheme, offer.schema, predicate):
                if matcher.fingerprint not in some and len(some) < MATCHERS:
                    taken, refused = sorted_out(matcher, offer, predicates)
                    case = Case(matcher, taken[:INTERESTS], list(offer.records), refused)
                    some[matcher.fingerprint] = case
            if len(some) == MATCHERS:
                break
        out += some.values()
    return out


def sorted_out(
    matcher: Matcher, offer: Offer, predicates: Sequence[Predicate]
) -> tuple[list[Any], list[Any]]:
    """Return the interests of an offer that a matcher takes, and those that it refuses."""
    asked: list[Any] = [one.text for one in predicates if not one.private_names]
    if matcher.private_names is not None:
        names = matcher.private_names
        rows = zip(*(offer.constants[name] for name in names), strict=True)
        asked = [dict(zip(names, row, strict=True)) for row in rows]
    taken, refused = [], []
    for interest in asked:
        try:
            matcher.prepare(interest)
        except PredicateError:
            refused.append(interest)
        else:
            taken.append(interest)
    if matcher.keying is Keying.SESSION:
        taken = distinct(matcher, taken)
    return taken, refused


# -- checks ---------------------------------------------------------------------------------------

CHECKS: Final[dict[str, Callable[[Case], None]]] = {}
"""Checks of a case by name, which the modules of this package register."""


def check(function: Callable[[Case], None]) -> Callable[[Case], None]:
    """Register a check under its name, with spaces."""
    CHECKS[function.__name__.replace("_", " ")] = function
    return function


def brokered(case: Case) -> bool:
    """Tell whether a broker answers."""
    return case.matcher.answers is not Answers.SUBSCRIBER


def tabled(case: Case) -> bool:
    """Tell whether a broker keeps tables."""
    return case.matcher.answers is Answers.ALL and case.matcher.keying is Keying.SERVER


def updated(case: Case) -> bool:
    """Tell whether a change of key comes with a token that brings stored interests along."""
    kind = type(case.matcher)
    return issubclass(kind, ServerScheme) and kind.update is not ServerScheme.update


def unlike_interests(case: Case) -> list[tuple[Any, Any]]:
    """Return pairs of interests, in both orders, that do not mean the same."""
    columns = case.meaning.T.tolist()
    sides = list(zip(case.interests, columns, strict=True))
    return [(one, two) for one, left in sides for two, right in sides if left != right]
