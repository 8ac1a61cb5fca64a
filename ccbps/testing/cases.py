"""Cases of a scheme: matchers that it proposes, with interests that they take, and records.

Nothing here knows a scheme by name. The randomness that a matcher needs and the party that answers
follow from the contract.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from itertools import product
from traceback import TracebackException
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pytest

from ccbps import Bool, Category, Int, Schema, Text, UInt
from ccbps.arrays import Bools, Bytes
from ccbps.errors import PredicateError
from ccbps.matching import Answers, Keying, Matcher
from ccbps.matching.contract.parties import Party, distinct
from ccbps.matching.contract.scheme import ServerScheme
from ccbps.predicates import Predicate


class Offer(NamedTuple):
    """A schema and predicates, for which a scheme may propose matchers.

    Attributes:
        schema: the events' attributes.
        predicates: SQL texts; the scheme takes some of them.
        records: events.
        constants: values of private constants, by name; as many for each name.
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
"""Offers to every scheme."""


def every(**values: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """Return all records with these values of attributes."""
    return tuple(dict(zip(values, row, strict=True)) for row in product(*values.values()))


SMALLEST: Final[tuple[Offer, ...]] = (
    Offer(
        TINY,
        (
            "x = 1",
            "x = 0",
            "TRUE",
            "FALSE",
            "x = :y",
            "x < :y",
            "hamming(x, :y) <= 0",
            "hamming(x, 1) <= 0",
            "NOT hamming(x, 1) <= 0",
        ),
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
        (
            "x = 1",
            "x = 3",
            "x < 2",
            "TRUE",
            "FALSE",
            "x = :y",
            "hamming(x, :y) <= 1",
            "hamming(x, 1) <= 1",
            "hamming(x, 2) <= 0",
        ),
        every(x=range(4)),
        {"y": [0, 1, 3], "t": [0, 1, 1]},
    ),
    # The answer is one bit of the event plus one of the interest.
    Offer(TINY, ("hamming(x, :y) <= 0",), every(x=range(2)), {"y": [0, 1], "t": [0, 1]}),
)
"""Offers where all randomness is enumerated: events of few bits, and all of them."""


MATCHERS: Final = 2
"""Greatest number of matchers of one schema."""
INTERESTS: Final = 6
"""Greatest number of interests of one matcher."""


@dataclass
class Case:
    """A matcher, interests that it takes and refuses, and records that it can publish."""

    matcher: Matcher
    interests: list[Any]
    records: list[Mapping[str, Any]]
    refused: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.party = Party(self.matcher, self.interests)
        if self.matcher.keying is Keying.SESSION:
            served = self.party.publisher.serves(self.records)
            self.records = [self.records[place] for place in np.flatnonzero(served)]

    @property
    def meaning(self) -> Bools:
        """The answers in plaintext, shape (records, interests)."""
        events = self.matcher.schema.encode(self.records)
        columns = [self.matcher.meaning(interest, events) for interest in self.interests]
        return np.array(columns, dtype=np.bool_).reshape(len(columns), len(self.records)).T

    def pairs(self) -> tuple[Bytes, Bytes]:
        """Return messages of every record with every interest, a pair a row."""
        return self.party.pairs(self.records, self.interests)

    def sides(self) -> tuple[Bytes, Bytes]:
        """Return messages of all records and messages of all interests, without rounds."""
        party = self.party
        return party.publisher.encode(self.records), party.subscriber.encode(self.interests)

    def unlike_interests(self) -> list[tuple[Any, Any]]:
        """Return pairs of interests, in both orders, that do not mean the same."""
        sides = list(zip(self.interests, self.meaning.T.tolist(), strict=True))
        return [(first, other) for first, a in sides for other, b in sides if a != b]


def proposed(scheme: type[Matcher], schema: Schema, predicate: Predicate) -> list[Matcher]:
    """Return the proposals of a scheme, with toy keys where it has any: primes take long to find.

    Pairings are those of the transparent model, which computes the same equations fast.

    False positives that a scheme leaves to chance are no part of a matcher's meaning. They are made
    so rare here that no test meets one.
    """
    defaults = scheme.__init__.__kwdefaults__ or {}
    with pytest.MonkeyPatch.context() as patch:
        if "toy" in signature(scheme).parameters:
            patch.setattr(scheme.__init__, "__defaults__", (512, True))
        if "false_positives" in defaults:
            patch.setitem(defaults, "false_positives", 2**-40)
        if "pairing" in defaults:
            patch.setitem(defaults, "pairing", "transparent")
        return list(scheme.propose(schema, predicate))


def cases(scheme: type[Matcher], offers: Sequence[Offer] = OFFERS) -> list[Case]:
    """Return cases of a scheme: for each schema, up to two matchers that it proposes.

    Args:
        scheme: the class.
        offers: offers to the scheme.
    """
    out: list[Case] = []
    for offer in offers:
        chosen: dict[bytes, Case] = {}
        predicates = [offer.schema.parse(text) for text in offer.predicates]
        for predicate in predicates:
            if len(chosen) == MATCHERS:
                break
            for matcher in proposed(scheme, offer.schema, predicate):
                if matcher.digest not in chosen and len(chosen) < MATCHERS:
                    chosen[matcher.digest] = _case_of(matcher, offer, predicates)
        out += chosen.values()
    return out


def _case_of(matcher: Matcher, offer: Offer, predicates: Sequence[Predicate]) -> Case:
    """Return a case with those interests of an offer that the matcher takes, and the others."""
    interests: list[Any] = [
        predicate.text for predicate in predicates if not predicate.private_names
    ]
    if matcher.private_names is not None:
        names = matcher.private_names
        rows = zip(*(offer.constants[name] for name in names), strict=True)
        interests = [dict(zip(names, row, strict=True)) for row in rows]
    taken, refused = [], []
    for interest in interests:
        try:
            matcher.prepare(interest)
            taken.append(interest)
        except PredicateError:
            refused.append(interest)
    if matcher.keying is Keying.SESSION:
        taken = distinct(matcher, taken)
    return Case(matcher, taken[:INTERESTS], list(offer.records), refused)


# -- checks ---------------------------------------------------------------------------------------

Check: TypeAlias = Callable[[Case], None]
CHECKS: Final[dict[str, Check]] = {}
"""Checks of a case by name, which the modules of this package register."""


def check(*conditions: Callable[[Case], bool]) -> Callable[[Check], Check]:
    """Register a check of the cases that meet some conditions, under its name with spaces."""

    def register(function: Check) -> Check:
        def run(case: Case) -> None:
            if all(condition(case) for condition in conditions):
                function(case)

        CHECKS[function.__name__.replace("_", " ")] = run
        return function

    return register


def one_time(case: Case) -> bool:
    """Tell whether messages belong to rounds."""
    return case.matcher.keying is Keying.ROUNDS


def keyed(case: Case) -> bool:
    """Tell whether keys come from a key server, and the broker keeps tables."""
    return case.matcher.keying is Keying.SERVER


def brokered(case: Case) -> bool:
    """Tell whether brokers answer."""
    return case.matcher.answers is not Answers.SUBSCRIBER


def alone(case: Case) -> bool:
    """Tell whether clients need one broker at most, not three."""
    return case.matcher.keying is not Keying.BROKERS


def updated(case: Case) -> bool:
    """Tell whether a change of key comes with a token that brings stored interests along."""
    kind = type(case.matcher)
    return issubclass(kind, ServerScheme) and kind.update is not ServerScheme.update


def refuses(errors: Any, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Check that a call raises an error of a class, or of one of several.

    Its traceback prints with the locals of all frames, as many loggers print it.
    """
    with pytest.raises(errors) as caught:
        call(*arguments, **options)
    with np.printoptions(threshold=0, edgeitems=1):  # arrays take long to print in full
        TracebackException.from_exception(caught.value, capture_locals=True)
