"""What every scheme of the catalogue must do, whatever it is: a list of checks of one `Case`.

A case is a matcher with interests that it takes and records that it can publish. Nothing here knows
a scheme by name: where the randomness comes from and who answers follow from the contract.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from inspect import signature
from pathlib import Path
from threading import Thread
from typing import Any, Final

import numpy as np
import pytest

from ccbps import Bool, Category, Int, OneTimePad, Schema, SeedRing, SharedSeed, Text, UInt
from ccbps.arrays import Bools, Bytes
from ccbps.broker import MatchingBroker, Publication, Quota, Subscription
from ccbps.errors import (
    CcbpsError,
    DecodeError,
    KeyMismatchError,
    ParameterError,
    PredicateError,
    RandomnessReuseError,
    SerializationError,
)
from ccbps.leakage import Protects
from ccbps.matching import SCHEMES, Answers, Cost, Keying, Matcher, RoleKey, Table, from_json
from ccbps.matching.contract import broker as broker_module
from ccbps.matching.contract.access import MAC_BYTES, header_bytes
from ccbps.matching.contract.scheme import ServerScheme
from ccbps.predicates import Predicate
from ccbps.wire import Cause

# -- cases --------------------------------------------------------------------------------------

PLAIN: Final = Schema(issue=Category(["AAPL", "IBM", "SAP"]), price=UInt(6))
NULLABLE: Final = Schema(
    price=Int(4, nullable=True), note=Text(1, nullable=True), live=Bool(nullable=True)
)
TINY: Final = Schema(x=UInt(1))
WORDS: Final = Schema(x=UInt(8))

WANTED: Final[tuple[tuple[Schema, tuple[str, ...]], ...]] = (
    (
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
    ),
    (
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
    ),
    (TINY, ("x = 1", "x = 0", "TRUE", "x < 1")),
    (WORDS, ("hamming(x, :y) <= 2", "hamming(x, 3) <= 2", "x < 100", "x = 7")),
)
"""Schemas, and predicates that some schemes take."""

RECORDS: Final[dict[Schema, tuple[dict[str, Any], ...]]] = {
    PLAIN: (
        {"issue": "IBM", "price": 5},
        {"issue": "IBM", "price": 5},
        {"issue": "SAP", "price": 9},
        {"issue": "AAPL", "price": 63},
        {"issue": "IBM", "price": 0},
    ),
    NULLABLE: (
        {"price": None, "note": None, "live": None},
        {"price": 3, "note": "a", "live": True},
        {"price": -8, "note": "b", "live": False},
        {"price": 3, "note": None, "live": True},
        {"price": 7, "note": "", "live": None},
    ),
    TINY: ({"x": 0}, {"x": 1}),
    WORDS: ({"x": 3}, {"x": 7}, {"x": 255}, {"x": 0}),
}


@dataclass
class Case:
    """A matcher, interests that it takes, and records that it can publish."""

    matcher: Matcher
    interests: list[Any]
    records: list[dict[str, Any]]
    refused: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.party = Party(self.matcher, self.interests)
        if self.matcher.keying is Keying.SESSION:
            own = self.party.publisher.serves(self.records)
            self.records = [one for one, served in zip(self.records, own, strict=True) if served]

    @property
    def meaning(self) -> Bools:
        """In plaintext, shape (records, interests)."""
        events = self.matcher.schema.encode(self.records)
        columns = [self.matcher.meaning(interest, events) for interest in self.interests]
        return np.array(columns, dtype=np.bool_).reshape(len(columns), len(self.records)).T


class Party:
    """All roles of a matcher under one seed, server or session."""

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
            made: Any = matcher
            self.publisher = made.new_publisher(distinct(matcher, interests))
            self.subscriber = made.new_subscriber()
            self.publisher.admit(self.subscriber.identity)
            self.subscriber.trust(self.publisher.identity)
            self.interests = list(interests)
            requests = self.subscriber.encode(self.interests)
            self.subscriber.accept(self.publisher.answer(requests))
            return
        self.publisher = matcher.publisher(self.keys[0])
        self.subscriber = matcher.subscriber(self.keys[1])

    def rounds(self, count: int) -> Any:
        """Fresh rounds, or None where there are none."""
        if self.matcher.keying is not Keying.ROUNDS:
            return None
        self.next += count
        return range(self.next - count, self.next)

    def pairs(self, records: Sequence[Any], interests: Sequence[Any]) -> tuple[Bytes, Bytes]:
        """Messages of every record with every interest, a pair a row."""
        rounds = self.rounds(len(records) * len(interests))
        events = [one for one in records for _ in interests]
        wanted = [one for _ in records for one in interests]
        return self.publisher.encode(events, rounds), self.subscriber.encode(wanted, rounds)

    def answers(self, records: Sequence[Any], interests: Sequence[Any]) -> Bools:
        """What is found to match, shape (records, interests)."""
        if self.matcher.answers is Answers.SUBSCRIBER:
            assert list(interests) == self.interests
            out: Bools = self.subscriber.open(self.publisher.encode(list(records))).matched
            return out
        if self.matcher.answers is Answers.ALL and self.matcher.keying is Keying.SERVER:
            events = self.publisher.encode(list(records))
            return self.broker.match_all(events, self.subscriber.encode(list(interests)))
        found = self.broker.match(*self.pairs(records, interests))
        return found.reshape(len(records), len(interests))


def distinct(matcher: Matcher, interests: Sequence[Any]) -> list[Any]:
    """Interests without those that come to the same."""
    found: dict[Any, Any] = {}
    for interest in interests:
        found.setdefault(repr(matcher.prepare(interest)), interest)
    return list(found.values())


def values_for(names: Sequence[str]) -> list[dict[str, Any]]:
    """Values of private constants that the predicates above have, by name."""
    some: dict[str, list[Any]] = {
        "issue": ["IBM", "SAP", "MSFT"],
        "limit": [20, 1, 10**9],
        "y": [3, 0, 250],
        "t": [0, 2, 8],
    }
    return [{name: some[name][turn] for name in names} for turn in range(3)]


def proposed(scheme: type[Matcher], schema: Schema, wanted: Predicate) -> list[Matcher]:
    """What a scheme proposes. False positives that it leaves to chance are no part of a matcher's
    meaning: there are so few of them here that nobody sees one. Where a key may be a toy it is
    one: primes take long to find."""
    defaults = scheme.__init__.__kwdefaults__ or {}
    with pytest.MonkeyPatch.context() as patch:
        if "toy" in signature(scheme).parameters:
            patch.setattr(scheme.__init__, "__defaults__", (512, True))
        if "false_positives" in defaults:
            patch.setitem(defaults, "false_positives", 2**-40)
        return list(scheme.propose(schema, wanted))


def cases(
    scheme: type[Matcher], offered: Sequence[tuple[Schema, tuple[str, ...]]] = WANTED
) -> list[Case]:
    """Cases of a scheme: for each schema, the matchers it proposes for one of the predicates."""
    found: dict[bytes, Case] = {}
    for schema, texts in offered:
        wanted = [schema.parse(text) for text in texts]
        for predicate in wanted:
            for matcher in proposed(scheme, schema, predicate):
                if (
                    matcher.fingerprint in found
                    or sum(case.matcher.schema == matcher.schema for case in found.values()) >= 2
                ):
                    continue
                taken, refused = sorted_out(matcher, wanted)
                case = Case(matcher, taken, list(RECORDS[schema]), refused)
                found[matcher.fingerprint] = case
    return list(found.values())


def sorted_out(matcher: Matcher, wanted: Sequence[Predicate]) -> tuple[list[Any], list[Any]]:
    """Interests that a matcher takes, at most six, and those that it refuses."""
    offered: list[Any] = [one.text for one in wanted if not one.private_names]
    if matcher.private_names is not None:
        offered = values_for(matcher.private_names)
    taken, refused = [], []
    for interest in offered:
        try:
            matcher.prepare(interest)
        except PredicateError:
            refused.append(interest)
        else:
            taken.append(interest)
    if matcher.keying is Keying.SESSION:
        taken = distinct(matcher, taken)
    return taken[:6], refused


# -- checks -------------------------------------------------------------------------------------

CHECKS: dict[str, Callable[[Case], None]] = {}
CONCURRENT: Final = 0.03
"""Seconds of matching, of each case, while another thread changes the table."""


def check(function: Callable[[Case], None]) -> Callable[[Case], None]:
    """Registered under its name, with spaces."""
    CHECKS[function.__name__.replace("_", " ")] = function
    return function


def brokered(case: Case) -> bool:
    """Whether a broker answers."""
    return case.matcher.answers is not Answers.SUBSCRIBER


def tabled(case: Case) -> bool:
    """Whether a broker keeps tables."""
    return case.matcher.answers is Answers.ALL and case.matcher.keying is Keying.SERVER


def updated(case: Case) -> bool:
    """Whether a change of key comes with a token that brings stored interests along."""
    kind = type(case.matcher)
    return issubclass(kind, ServerScheme) and kind.update is not ServerScheme.update


def unlike_interests(case: Case) -> list[tuple[Any, Any]]:
    """Pairs of interests, in both orders, that do not mean the same."""
    columns = case.meaning.T.tolist()
    sides = list(zip(case.interests, columns, strict=True))
    return [(one, two) for one, left in sides for two, right in sides if left != right]


@check
def answers_are_the_plaintext_meaning(case: Case) -> None:
    found = case.party.answers(case.records, case.interests)
    assert found.dtype == np.bool_
    assert found.tolist() == case.meaning.tolist()


@check
def the_meaning_is_the_predicates_or_wider(case: Case) -> None:
    events = case.matcher.schema.encode(case.records)
    for interest in case.interests:
        if not isinstance(interest, str):
            continue
        exact = case.matcher.schema.parse(interest).evaluate(events)
        assert not (exact & ~case.matcher.meaning(interest, events)).any()


@check
def rows_answer_as_all_pairs_do(case: Case) -> None:
    if not tabled(case):
        return
    events, interests = case.party.pairs(case.records, case.interests)
    assert case.party.broker.match(events, interests).tolist() == case.meaning.ravel().tolist()


@check
def a_running_broker_delivers_what_matches(case: Case) -> None:
    party, matcher = case.party, case.matcher
    feed, subscriber = party.publisher, party.subscriber
    names = [f"wanted {place}" for place in range(len(case.interests))]
    labels, turns = [f"alice/{name}" for name in names], range(len(case.records))
    if matcher.keying is Keying.ROUNDS:
        master = SharedSeed.generate()
        feed, subscriber = matcher.publisher(master), matcher.subscriber(master)
    running = MatchingBroker(getattr(party, "broker", matcher), quota=Quota(message_bytes=1 << 24))
    for name, label, interest in zip(names, labels, case.interests, strict=True):
        if matcher.keying is Keying.ROUNDS:
            stack = subscriber.encode(interest, rounds=turns, pairs=[label] * len(turns))
            running.subscribe("alice", Subscription(name, stack, None, "feed", 0))
        elif matcher.keying is Keying.SERVER:
            running.subscribe("alice", Subscription(name, subscriber.encode([interest])))
        else:
            running.subscribe("alice", Subscription(name, np.empty((0, 0), dtype=np.uint8)))
    for turn, record in enumerate(case.records):
        event, events, rounds = None, {}, turn if matcher.keying is Keying.ROUNDS else None
        if rounds is not None and matcher.answers is not Answers.ROUND:
            rows = feed.encode([record] * len(labels), rounds=[turn] * len(labels), pairs=labels)
            events = dict(zip(labels, map(bytes, rows), strict=True))
        else:
            event = bytes(feed.encode([record], *([[turn]] if rounds is not None else []))[0])
        running.publish("feed", Publication(turn, event, b"", None, rounds, events))
    found = np.zeros(case.meaning.shape, dtype=np.bool_)
    for delivery in running.take("alice"):
        for name in delivery.names:
            found[delivery.number, names.index(name)] = True
        if delivery.event is not None:
            event = np.frombuffer(delivery.event, dtype=np.uint8)[None]
            found[delivery.number] = subscriber.open(event).matched[0]
    assert found.tolist() == case.meaning.tolist()


@check
def messages_have_the_stated_widths(case: Case) -> None:
    matcher = case.matcher
    if not brokered(case):
        events = case.party.publisher.encode(case.records)
        assert events.shape[1] == matcher.event_bytes + len(case.interests) * (
            matcher.sizes.event_per_request
        )
        return
    events, interests = case.party.pairs(case.records, case.interests)
    count = len(case.records) * len(case.interests)
    for messages, width in ((events, matcher.event_bytes), (interests, matcher.interest_bytes)):
        assert messages.shape == (count, width)
        assert messages.dtype == np.uint8 and messages.flags.c_contiguous
    assert (matcher.randomness_bytes > 0) == (matcher.keying is Keying.ROUNDS)


@check
def empty_batches_give_empty_answers(case: Case) -> None:
    matcher, party = case.matcher, case.party
    rounds = party.rounds(0)
    events = party.publisher.encode([], rounds)
    assert len(events) == 0
    if not brokered(case):
        assert party.subscriber.open(events).matched.shape == (0, len(case.interests))
        return
    interests = party.subscriber.encode([], rounds)
    assert events.shape == (0, matcher.event_bytes)
    assert interests.shape == (0, matcher.interest_bytes)
    assert party.broker.match(events, interests).shape == (0,)
    if tabled(case):
        some = party.publisher.encode(case.records)
        assert party.broker.match_all(some, interests).shape == (len(case.records), 0)
        full = party.subscriber.encode(case.interests)
        assert party.broker.match_all(events, full).shape == (0, len(case.interests))


@check
def out_is_written_and_must_fit(case: Case) -> None:
    if not brokered(case):
        return
    matcher, party = case.matcher, case.party
    out = np.empty((len(case.records), matcher.event_bytes), dtype=np.uint8)
    assert party.publisher.encode(case.records, party.rounds(len(out)), out=out) is out
    out = np.empty((len(case.interests), matcher.interest_bytes), dtype=np.uint8)
    assert party.subscriber.encode(case.interests, party.rounds(len(out)), out=out) is out
    with pytest.raises(ParameterError):
        party.subscriber.encode(case.interests, party.rounds(len(out)), out=out[:, 1:])


@check
def messages_of_another_width_are_refused(case: Case) -> None:
    if not brokered(case):
        with pytest.raises(DecodeError):
            case.party.subscriber.open(case.party.publisher.encode(case.records)[:, :-1])
        return
    events, interests = case.party.pairs(case.records, case.interests)
    broker = case.party.broker
    for pair in (
        (events[:, :-1], interests),
        (events, interests[:, 1:]),
        (events.astype(np.uint16), interests),
        (events[0], interests),
    ):
        with pytest.raises(DecodeError):
            broker.match(*pair)
    with pytest.raises(DecodeError):
        broker.match(events, interests[1:])


@check
def messages_of_another_kind_or_version_are_refused(case: Case) -> None:
    if not brokered(case):
        return
    events, interests = case.party.pairs(case.records, case.interests)
    # With rounds, kind and version share a byte: other kinds, other versions, and a kind alone.
    changes = [(0, 9), (1, 99)]
    if case.matcher.keying is Keying.ROUNDS:
        changes = [(0, value) for value in (0x01, 0x02, 0x11, 0x12, 0x23, 0x31, 0x32, 0xA1, 0xA2)]
    for at, value in changes:
        for messages, names in ((events, "EVENT"), (interests, "INTEREST")):
            bad = messages.copy()
            bad[0, at] = value
            pair = (bad, interests) if messages is events else (events, bad)
            _, causes = case.party.broker.examine(*pair)
            assert causes[0] == Cause[f"{names}_KIND"]
            assert not causes[1:].any()


@check
def messages_of_another_matcher_are_refused(case: Case) -> None:
    if not brokered(case):
        return
    if case.matcher.keying is Keying.ROUNDS:
        messages_of_another_matcher_are_refused_in_rounds(case)
        return
    events, interests = (sent[:2] for sent in case.party.pairs(case.records, case.interests))
    for at in range(2, 8):
        bad = events.copy()
        bad[0, at] ^= 1
        answers, causes = case.party.broker.examine(bad, interests)
        assert causes[0] == Cause.EVENT_MATCHER and not answers[0]
        bad = interests.copy()
        bad[0, at] ^= 128
        answers, causes = case.party.broker.examine(events, bad)
        assert causes[0] == Cause.INTEREST_MATCHER and not answers[0]
        with pytest.raises(DecodeError):
            case.party.broker.match(events, bad)


def messages_of_another_matcher_are_refused_in_rounds(case: Case) -> None:
    """Of one side or of both, under one seed, and where the matcher does not enter randomness."""
    matcher = case.matcher
    other: Matcher = object.__new__(type(matcher))
    vars(other).update(vars(matcher), fingerprint=sha256(matcher.fingerprint).digest())
    records, interests, rounds = case.records[:1] * 2, case.interests[:1] * 2, [0, 1]
    secret = SharedSeed.generate().export_secret()
    pad = os.urandom(2 * matcher.randomness_bytes)
    for source in (lambda: SharedSeed(secret), lambda: OneTimePad(pad)):
        events, others = (
            one.publisher(source()).encode(records, rounds) for one in (matcher, other)
        )
        mine, theirs = (
            one.subscriber(source()).encode(interests, rounds) for one in (matcher, other)
        )
        assert case.party.broker.match(events, mine).tolist() == [bool(case.meaning[0, 0])] * 2
        assert other.broker().match(others, theirs).tolist() == [bool(case.meaning[0, 0])] * 2
        for pair in ((others, mine), (events, theirs), (others, theirs)):
            answers, causes = case.party.broker.examine(*pair)
            assert causes.tolist() == [Cause.PAIRING] * 2 and not answers.any()


@check
def altered_messages_are_refused(case: Case) -> None:
    if case.matcher.keying is not Keying.SERVER:
        assert "MAC" not in case.matcher.leakage.integrity
        return
    assert "MAC" in case.matcher.leakage.integrity
    events, interests = case.party.pairs(case.records[:1], case.interests[:1])
    broker = case.party.broker
    for messages, examine in (
        (events, broker.examine_events),
        (interests, broker.examine_interests),
    ):
        # A bit of every byte behind the header, one in each copy.
        places = np.arange(header_bytes(case.matcher), messages.shape[1])
        bent = np.repeat(messages, len(places), axis=0)
        bent[np.arange(len(places)), places] ^= (1 << places % 8).astype(np.uint8)
        assert set(examine(bent).tolist()) == {int(Cause.ALTERED)}


@check
def messages_under_another_key_are_refused(case: Case) -> None:
    if not brokered(case):
        return
    other = Party(case.matcher)
    events, interests = case.party.pairs(case.records, case.interests)
    theirs, also = other.pairs(case.records, case.interests)
    for pair in ((theirs, interests), (events, also)):
        answers, causes = case.party.broker.examine(*pair)
        assert causes.all() and not answers.any()
    if tabled(case):
        with pytest.raises(DecodeError):
            case.party.broker.match_all(theirs, interests)
        with pytest.raises(DecodeError):
            case.party.broker.prepare(also)
        with pytest.raises(KeyMismatchError):
            case.party.broker.match_all(events, other.broker.prepare(also))


@check
def messages_of_another_epoch_are_refused(case: Case) -> None:
    if case.matcher.keying is not Keying.SERVER:
        return
    matcher, party = case.matcher, Party(case.matcher)
    events, interests = party.pairs(case.records, case.interests)
    old = party.broker.prepare(interests)
    token = party.server.rotate()
    assert party.server.epoch == 1
    fresh, stale = party.server.publisher_key(), party.keys[0]
    assert fresh.export_secret_data() != stale.export_secret_data()
    with pytest.raises(KeyMismatchError):
        matcher.broker(token)  # type: ignore[arg-type]
    broker = matcher.broker(party.server.broker_key())
    assert set(broker.examine_events(events).tolist()) == {int(Cause.EPOCH)}
    assert set(broker.examine_interests(interests).tolist()) == {int(Cause.EPOCH)}
    with pytest.raises(KeyMismatchError):
        broker.match_all(events[:0], old)
    assert (token is not None) == updated(case)
    if token is None:
        return
    sent = matcher.publisher(fresh).encode(case.records)
    for before in (old, interests):
        moved = party.broker.update(before, token, broker)
        some = broker.match_all(sent, moved)[:, : len(case.interests)]
        assert some.tolist() == case.meaning.tolist()


@check
def messages_of_another_round_are_refused(case: Case) -> None:
    if case.matcher.keying is not Keying.ROUNDS:
        return
    events, interests = case.party.pairs(case.records, case.interests)
    answers, causes = case.party.broker.examine(events, np.roll(interests, 1, axis=0))
    assert not answers.any()
    assert set(causes.tolist()) == {int(Cause.PAIRING)}


@check
def rounds_are_used_once(case: Case) -> None:
    if case.matcher.keying is not Keying.ROUNDS:
        return
    record, interest = case.records[:1], case.interests[:1]
    party = Party(case.matcher)
    for role, what in ((party.publisher, record), (party.subscriber, interest)):
        role.encode(what, [7])
        with pytest.raises(RandomnessReuseError):
            role.encode(what, [7])
        with pytest.raises(RandomnessReuseError):
            role.encode([*what, *what], [8, 8])
        with pytest.raises(ParameterError):
            role.encode(what)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        seed = SharedSeed.generate()
        others = [one for one in case.records if one != record[0]]
        unlike = [two for one, two in unlike_interests(case) if one == interest[0]]
        # After a restart: the same again is the same message, anything else is refused.
        for make, what, other in (
            (case.matcher.publisher, record, others[:1]),
            (case.matcher.subscriber, interest, unlike[:1]),
        ):
            first = make(seed, ledger=path).encode(what, [3])
            again = make(seed, ledger=path).encode(what, [3])
            if case.matcher.answers is Answers.ROUND and what is interest:
                # Interests of one round carry what makes them differ, so this is one more of them.
                assert again.tolist() != first.tolist()
                event = case.matcher.publisher(seed).encode(record, [3])
                found = case.matcher.broker().match(event, np.concatenate([first, again]))
                assert found.tolist() == [bool(case.meaning[0, 0])] * 2
            else:
                assert again.tolist() == first.tolist()
            if other:
                with pytest.raises(RandomnessReuseError):
                    make(seed, ledger=path).encode(other, [3])


@check
def reusable_messages_take_no_rounds(case: Case) -> None:
    if case.matcher.keying is not Keying.SERVER:
        return
    with pytest.raises(ParameterError, match="round"):
        case.party.publisher.encode(case.records, range(len(case.records)))
    with pytest.raises(ParameterError, match="round"):
        case.matcher.publisher(case.party.keys[0], ledger="nowhere")


@check
def keys_of_another_role_or_matcher_are_refused(case: Case) -> None:
    matcher = case.matcher
    if matcher.keying is Keying.ROUNDS:
        with pytest.raises(CcbpsError):
            matcher.publisher(b"0" * 32)  # type: ignore[arg-type]
        with pytest.raises(CcbpsError):
            matcher.key_server()
        return
    if matcher.keying is Keying.SERVER:
        server = case.party.server
        keys = {
            "publisher": server.publisher_key(),
            "subscriber": server.subscriber_key("bob"),
            "broker": server.broker_key(),
        }
    else:
        keys = {"publisher": case.party.publisher.key, "subscriber": case.party.subscriber.key}
    makers: dict[str, Callable[[Any], Any]] = {name: getattr(matcher, name) for name in keys}
    for name, key in keys.items():
        assert key.role == name
        for role, make in makers.items():
            if role != name:
                with pytest.raises(KeyMismatchError):
                    make(key)
        with pytest.raises(KeyMismatchError):
            makers[name](SharedSeed.generate())
        foreign = RoleKey.make(bytes(32), key.role, key.key_id, key.epoch, key.export_secret_data())
        with pytest.raises(KeyMismatchError):
            makers[name](foreign)


@check
def roles_go_on_from_saved_keys(case: Case) -> None:
    matcher, party = case.matcher, case.party
    if matcher.keying is Keying.ROUNDS:
        seed = SharedSeed.generate()
        again = SharedSeed.from_text(seed.to_text())
        count = len(case.records)
        events = matcher.publisher(seed).encode(case.records, range(count))
        interests = matcher.subscriber(again).encode([case.interests[0]] * count, range(count))
        assert matcher.broker().match(events, interests).tolist() == case.meaning[:, 0].tolist()
        return
    if matcher.keying is Keying.SERVER:
        server = matcher.key_server(RoleKey.from_text(party.server.key.to_text()))
        keys = [server.publisher_key(), server.subscriber_key("alice"), server.broker_key()]
        publisher, subscriber, broker = (
            make(RoleKey.from_text(key.to_text()))
            for make, key in zip(
                (matcher.publisher, matcher.subscriber, matcher.broker), keys, strict=True
            )
        )
        # New publishers with old subscribers, and the other way round.
        mixed = [
            broker.match_all(
                publisher.encode(case.records), party.subscriber.encode(case.interests)
            ),
            broker.match_all(
                party.publisher.encode(case.records), subscriber.encode(case.interests)
            ),
        ]
        assert [found.tolist() for found in mixed] == [case.meaning.tolist()] * 2
        return
    publisher = matcher.publisher(RoleKey.from_text(party.publisher.key.to_text()))
    subscriber: Any = matcher.subscriber(RoleKey.from_text(party.subscriber.key.to_text()))
    opened = subscriber.open(publisher.encode(case.records))
    assert opened.matched.tolist() == case.meaning.tolist()


@check
def matchers_survive_pickling_and_text(case: Case) -> None:
    matcher = case.matcher
    for again in (
        pickle.loads(pickle.dumps(matcher)),
        copy.deepcopy(matcher),
        type(matcher).from_json(matcher.to_json()),
    ):
        assert again == matcher and hash(again) == hash(matcher)
        assert again.fingerprint == matcher.fingerprint and repr(again) == repr(matcher)
        assert (again.event_bytes, again.interest_bytes) == (
            matcher.event_bytes,
            matcher.interest_bytes,
        )
        assert again.to_json() == matcher.to_json()
        for interest in case.interests:
            again.prepare(interest)


@check
def the_catalogue_finds_it_by_its_text(case: Case) -> None:
    found = from_json(case.matcher.to_json())
    assert type(found) is type(case.matcher)
    assert found == case.matcher


@check
def another_schema_makes_another_matcher(case: Case) -> None:
    matcher = case.matcher
    wider = Schema({**{name: matcher.schema[name] for name in matcher.schema}, "more": Bool()})
    try:
        other = type(matcher).from_parameters(wider, matcher.parameters())
    except CcbpsError:
        return
    assert other != matcher and other.fingerprint != matcher.fingerprint


@check
def bent_descriptions_are_refused(case: Case) -> None:
    fields = json.loads(case.matcher.to_json())
    kind = type(case.matcher)
    bent: list[Any] = [
        "",
        "[]",
        "null",
        "{" * 5000,
        json.dumps({**fields, "scheme": "nothing"}),
        case.matcher.to_json().replace('"ccbps"', '"ccbps": "matcher", "ccbps"', 1),
        json.dumps({**fields, "scheme_version": 99}),
        json.dumps({**fields, "scheme_version": float(fields["scheme_version"])}),
        json.dumps({**fields, "version": 2}),
        json.dumps({**fields, "version": True}),
        json.dumps({**fields, "ccbps": "schema"}),
        json.dumps({**fields, "parameters": []}),
        json.dumps({**fields, "schema": {}}),
        json.dumps({**fields, "more": 1}),
        json.dumps({**fields, "parameters": {**fields["parameters"], "nonsense": 1}}),
        json.dumps({name: value for name, value in fields.items() if name != "schema"}),
    ]
    for text in bent:
        with pytest.raises((DecodeError, ParameterError)):
            kind.from_json(text)
    for name in fields["parameters"]:
        left = {key: value for key, value in fields["parameters"].items() if key != name}
        with pytest.raises((DecodeError, ParameterError)):
            kind.from_json(json.dumps({**fields, "parameters": left}))
        for value in ("'; DROP", {"a": []}, [[[]]], -1, 1e300):
            changed = {**fields, "parameters": {**fields["parameters"], name: value}}
            try:
                made = kind.from_json(json.dumps(changed))
            except (DecodeError, ParameterError, PredicateError):
                continue
            assert made != case.matcher


@check
def secrets_do_not_show(case: Case) -> None:
    matcher, party = case.matcher, case.party
    roles = [party.publisher, party.subscriber]
    keys = [*getattr(party, "keys", ())]
    if matcher.keying is Keying.SERVER:
        roles += [
            party.broker,
            party.server,
            party.broker.prepare(party.subscriber.encode(case.interests)),
        ]
        keys += [party.server.key, party.server.broker_key()]
    if matcher.keying is Keying.SESSION:
        keys += [party.publisher.key, party.subscriber.key]
    shown = " ".join(f"{one!r} {one}" for one in [*roles, *keys])
    for key in keys:
        raw = key.export_secret()
        found = re.findall(rb"[0-9a-f]{16,}", raw) or [raw.hex().encode()]
        assert not any(text.decode() in shown for text in found)
    for one in [*roles, *keys]:
        with pytest.raises(SerializationError):
            pickle.dumps(one)
        with pytest.raises(SerializationError):
            copy.deepcopy(one)


@check
def what_prepare_refuses_encode_refuses(case: Case) -> None:
    def encode(interests: Any, count: int) -> None:
        rounds = case.party.rounds(count)
        case.party.subscriber.encode(interests, *([] if rounds is None else [rounds]))

    for interest in case.refused:
        with pytest.raises(PredicateError) as error:
            encode([*case.interests, interest], 1 + len(case.interests))
        assert error.value.row == len(case.interests)
    for nonsense in (7, None, object(), Schema(unlike=UInt(3)).parse("unlike = 1")):
        with pytest.raises((ParameterError, PredicateError)):
            encode(nonsense, 1)


@check
def equal_interests_are_prepared_once(case: Case) -> None:
    if case.matcher.keying is Keying.SESSION:
        return
    seen: list[Any] = []
    real = type(case.matcher).prepare

    def counted(self: Matcher, interest: Any) -> Any:
        seen.append(interest)
        return real(self, interest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(case.matcher), "prepare", counted)
        case.party.subscriber.encode(case.interests * 3, case.party.rounds(3 * len(case.interests)))
    assert len(seen) == len(case.interests)


@check
def tables_grow_and_shrink(case: Case) -> None:
    if not tabled(case):
        return
    party, names = case.party, [f"i{n}" for n in range(len(case.interests))]
    events, meaning = party.publisher.encode(case.records), case.meaning
    interests = party.subscriber.encode(case.interests)

    def holds(table: Table, columns: Sequence[int]) -> None:
        assert [str(one) for one in table.ids] == [names[column] for column in columns]
        assert len(table) == len(columns)
        found = party.broker.match_all(events, table)
        assert found.tolist() == meaning[:, list(columns)].tolist()
        some, causes = party.broker.examine_all(events, table)
        assert some.tolist() == found.tolist() and not causes.any()

    every = list(range(len(names)))
    table = party.broker.prepare(interests[:1], names[:1])
    for column in every[1:]:
        table.add(interests[column : column + 1], [names[column]])
    holds(table, every)
    holds(party.broker.load(table.to_bytes()), every)
    gone = every[::2]
    table.remove([names[column] for column in gone])
    kept = [column for column in every if column not in gone]
    holds(table, kept)
    table.add(interests[gone], [names[column] for column in gone])
    holds(table, [*kept, *gone])
    other = party.broker.prepare(interests[:0])
    other.merge(table)
    holds(other, [*kept, *gone])
    with pytest.raises(ParameterError):
        other.merge(table)
    with pytest.raises(ParameterError):
        table.add(interests[:1], names[:1])
    with pytest.raises(ParameterError):
        table.remove(["nobody"])
    holds(table, [*kept, *gone])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table"
        table.save(path)
        table.remove(table.ids)
        holds(table, [])
        holds(party.broker.load(path), [*kept, *gone])
    saved = bytearray(other.to_bytes())
    for place in range(0, len(saved), max(1, len(saved) // 50)):
        bent = saved.copy()
        bent[place] ^= 4
        with pytest.raises((DecodeError, KeyMismatchError)):
            party.broker.load(bytes(bent))
    with pytest.raises(KeyMismatchError):
        Party(case.matcher).broker.load(bytes(saved))


@check
def covering_is_containment(case: Case) -> None:
    if not tabled(case):
        return
    party = case.party
    interests = party.subscriber.encode(case.interests)
    if not case.matcher.covering:
        with pytest.raises(ParameterError):
            party.broker.covers(interests, interests)
        return
    covers = party.broker.covers(interests, party.broker.prepare(interests))
    assert covers.shape == (len(interests),) * 2 and covers.diagonal().all()
    for wide, narrow in np.argwhere(covers):
        assert not (case.meaning[:, narrow] & ~case.meaning[:, wide]).any()


@check
def keys_hold_the_macs_of_their_side(case: Case) -> None:
    if case.matcher.keying is not Keying.SERVER:
        return
    server = case.party.server
    keys = server.publisher_key(), server.subscriber_key("alice"), server.broker_key()
    event, interest, both = (key.export_secret_data()["macs"] for key in keys)
    assert event.keys() == {"EVENT"} and interest.keys() == {"INTEREST"}
    assert both == event | interest
    assert event["EVENT"] != interest["INTEREST"]


@check
def a_change_of_key_changes_the_macs(case: Case) -> None:
    if case.matcher.keying is not Keying.SERVER:
        return
    party = Party(case.matcher)
    messages = party.pairs(case.records[:1], case.interests[:1])
    old = party.server.broker_key().export_secret_data()["macs"]
    party.server.rotate()
    keys = party.server.publisher_key(), party.server.subscriber_key("alice")
    fresh = (
        case.matcher.publisher(keys[0]).encode(case.records[:1]),
        case.matcher.subscriber(keys[1]).encode(case.interests[:1]),
    )
    key = party.server.broker_key()
    new = key.export_secret_data()["macs"]
    assert not set(old.values()) & set(new.values())
    broker = case.matcher.broker(key)
    for stale, genuine, examine in zip(
        messages, fresh, (broker.examine_events, broker.examine_interests), strict=True
    ):
        assert not examine(genuine).any()
        head = header_bytes(case.matcher)
        stale[:, :head] = genuine[:, :head]
        assert examine(stale).tolist() == [Cause.ALTERED]


@check
def what_the_scheme_refuses_the_broker_refuses(case: Case) -> None:
    """Of messages with genuine MACs."""
    if case.matcher.keying is not Keying.SERVER:
        return
    broker, count = case.party.broker, len(case.records) * len(case.interests)
    causes = np.resize(np.array([Cause.VALUE, Cause.NONE], dtype=np.uint8), count)
    seen: list[Any] = []

    def odd(self: Matcher, key: Any, side: str, bodies: Bytes) -> Bytes:
        seen.append((side, bodies.tolist()))
        return causes[: len(bodies)]

    events, interests = case.party.pairs(case.records, case.interests)
    start = header_bytes(case.matcher)
    bodies = {
        "event": events[:, start:][:, : case.matcher.sizes.event],
        "interest": interests[:, start:][:, : case.matcher.sizes.interest],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(case.matcher), "check", odd)
        assert broker.examine_events(events).tolist() == causes.tolist()
        assert broker.examine_interests(interests).tolist() == causes.tolist()
    assert seen == [(side, rows.tolist()) for side, rows in bodies.items()]


@check
def randomness_makes_messages_differ(case: Case) -> None:
    """Wherever an encoder asks for any, and wherever the card promises it."""
    if not brokered(case):
        return
    matcher, kind, asked = case.matcher, type(case.matcher), [0]
    body = slice(header_bytes(matcher), message_end(matcher))

    def counted(real: Callable[..., None]) -> Callable[..., None]:
        def encode(self: Matcher, key: Any, what: Any, draw: Any, out: Bytes) -> None:
            def fresh(count: int) -> bytes:
                asked[0] += count
                drawn: bytes = draw.fresh(count)
                return drawn

            real(self, key, what, replace(draw, fresh=fresh), out)

        return encode

    with pytest.MonkeyPatch.context() as patch:
        for name in ("encode_events", "encode_interests"):
            patch.setattr(kind, name, counted(getattr(kind, name)))
        for role, some, hidden in (
            (case.party.publisher, case.records, Protects.EQUALITY_OF_EVENTS),
            (case.party.subscriber, case.interests, Protects.EQUALITY_OF_INTERESTS),
        ):
            promised = matcher.keying is Keying.ROUNDS or hidden in matcher.leakage.protects
            # By chance, bodies of a few bits are the same.
            count = 32 if matcher.event_bytes < 512 else 2
            for one in some[: 1 if promised else 3]:
                asked[0] = 0
                sent, again = (role.encode([one] * count, case.party.rounds(count)) for _ in "ab")
                if asked[0] or promised:
                    assert len({row[body].tobytes() for row in sent}) > 1
                    assert (sent != again)[:, body].any()


def message_end(matcher: Matcher) -> int | None:
    """Where bodies end."""
    return -MAC_BYTES if matcher.keying is Keying.SERVER else None


@check
def equal_events_do_not_show_to_those_who_relay_them(case: Case) -> None:
    if brokered(case) or Protects.EQUALITY_OF_EVENTS not in case.matcher.leakage.protects:
        return
    sent = case.party.publisher.encode(case.records[:1] * 8)
    # What stands before the slots has a number in it.
    slots = sent[:, case.matcher.event_bytes :]
    assert len({row.tobytes() for row in slots}) == 8


@check
def a_refused_event_has_no_answers(case: Case) -> None:
    if not tabled(case):
        return
    events = case.party.publisher.encode(case.records)
    interests = case.party.subscriber.encode(case.interests)
    row = int(np.argmax(case.meaning.sum(axis=1)))
    events[row, -1] ^= 1
    wanted = case.meaning
    wanted[row] = False
    for some in (interests, case.party.broker.prepare(interests)):
        answers, causes = case.party.broker.examine_all(events, some)
        assert answers.tolist() == wanted.tolist()
        assert causes[row] == Cause.ALTERED and np.count_nonzero(causes) == 1


@check
def tables_of_another_key_are_not_merged(case: Case) -> None:
    if not tabled(case):
        return
    party, other = case.party, Party(case.matcher)
    table = party.broker.prepare(
        party.subscriber.encode(case.interests), range(len(case.interests))
    )
    theirs = other.broker.prepare(other.subscriber.encode(case.interests[:1]), ["theirs"])
    other.server.rotate()
    subscriber = case.matcher.subscriber(other.server.subscriber_key("alice"))
    broker = case.matcher.broker(other.server.broker_key())
    later = broker.prepare(subscriber.encode(case.interests[:1]), ["later"])
    for one, foreign in ((table, theirs), (table, later), (later, theirs), (theirs, later)):
        names = one.ids
        with pytest.raises(KeyMismatchError):
            one.merge(foreign)
        assert one.ids == names
    events = party.publisher.encode(case.records)
    assert party.broker.match_all(events, table).tolist() == case.meaning.tolist()


@check
def tokens_are_used_once_and_in_turn(case: Case) -> None:
    """A token brings interests of its old epoch to its new one, and no others anywhere."""
    if not tabled(case) or not updated(case):
        return
    matcher, party = case.matcher, Party(case.matcher)
    names = [f"i{n}" for n in range(len(case.interests))]
    interests = party.subscriber.encode(case.interests)
    table = party.broker.prepare(interests, names)
    brokers, tokens = [party.broker], []
    for _ in range(2):
        tokens.append(party.server.rotate())
        brokers.append(matcher.broker(party.server.broker_key()))
    moved = brokers[0].update(table, tokens[0], brokers[1])
    messages = brokers[0].update(interests, tokens[0], brokers[1])
    assert moved.ids == table.ids == names
    stranger = Party(matcher)
    strange = stranger.server.rotate()
    unknown = matcher.broker(stranger.server.broker_key())
    for what, token, old, new in (
        # Again, and too early, and to another epoch.
        (moved, tokens[0], brokers[0], brokers[1]),
        (moved, tokens[0], brokers[1], brokers[2]),
        (messages, tokens[0], brokers[0], brokers[1]),
        (messages, tokens[0], brokers[1], brokers[2]),
        (table, tokens[1], brokers[0], brokers[1]),
        (table, tokens[1], brokers[1], brokers[2]),
        (interests, tokens[1], brokers[1], brokers[2]),
        (table, tokens[0], brokers[0], brokers[2]),
        # By another server.
        (table, strange, brokers[0], brokers[1]),
        (interests, strange, brokers[0], brokers[1]),
        (table, tokens[0], brokers[0], unknown),
    ):
        with pytest.raises((KeyMismatchError, DecodeError)):
            old.update(what, token, new)
    events = matcher.publisher(party.server.publisher_key()).encode(case.records)
    for before in (moved, messages):
        last = brokers[1].update(before, tokens[1], brokers[2])
        assert brokers[2].match_all(events, last).tolist() == case.meaning.tolist()


@check
def numbers_of_interests_are_not_given_again(case: Case) -> None:
    if not tabled(case):
        return
    party = case.party
    one = party.subscriber.encode(case.interests[:1])
    table = party.broker.prepare(np.repeat(one, 3, axis=0))
    assert table.ids == [0, 1, 2]
    table.remove([2])
    table.add(one)
    assert sorted(table.ids) == [0, 1, 3]
    table.remove([3])
    again = party.broker.load(table.to_bytes())
    again.add(one)
    assert sorted(again.ids) == [0, 1, 4]
    if not updated(case):
        return
    party = Party(case.matcher)
    one = party.subscriber.encode(case.interests[:1])
    table = party.broker.prepare(np.repeat(one, 3, axis=0))
    table.remove([2])
    token = party.server.rotate()
    new = case.matcher.broker(party.server.broker_key())
    later = case.matcher.subscriber(party.server.subscriber_key("alice"))
    moved = party.broker.update(table, token, new)
    moved.add(later.encode(case.interests[:1]))
    assert sorted(moved.ids) == [0, 1, 3]


@check
def many_events_are_matched_block_by_block(case: Case) -> None:
    if not tabled(case):
        return
    rows = list(range(len(case.records))) + list(range(len(case.records)))[::-1]
    events = case.party.publisher.encode([case.records[row] for row in rows])
    interests = case.party.subscriber.encode(case.interests)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_module, "MATCH_ROWS", 2)
        for some in (interests, case.party.broker.prepare(interests)):
            found = case.party.broker.match_all(events, some)
            assert found.tolist() == case.meaning[rows].tolist()
        answers, causes = case.party.broker.examine_all(events, interests)
        assert answers.tolist() == case.meaning[rows].tolist() and not causes.any()


@check
def interests_are_told_apart(case: Case) -> None:
    matcher: Any = case.matcher
    if matcher.keying is not Keying.ROUNDS:
        return
    for interest in case.interests:
        name = matcher.identify(matcher.prepare(interest))
        assert type(name) is bytes
        assert matcher.identify(matcher.prepare(interest)) == name
    for one, two in unlike_interests(case):
        assert matcher.identify(matcher.prepare(one)) != matcher.identify(matcher.prepare(two))


@check
def pairs_have_seeds_of_their_own(case: Case) -> None:
    matcher = case.matcher
    if matcher.keying is not Keying.ROUNDS:
        with pytest.raises((ParameterError, TypeError)):
            case.party.publisher.encode(case.records[:1], pairs=["alice"])
        return
    if case.matcher.answers is Answers.ROUND:
        return  # See the next check.
    master, broker = SharedSeed.generate(), matcher.broker()
    labels, rounds = ["alice", "bob"], [5, 5]
    records, interests = [case.records[0]] * 2, [case.interests[0]] * 2
    wanted = [bool(case.meaning[0, 0])] * 2
    events = matcher.publisher(master).encode(records, rounds, pairs=labels)
    for seed in (master, SeedRing.of(master, labels)):
        same = matcher.subscriber(seed).encode(interests, rounds, pairs=labels)
        assert broker.match(events, same).tolist() == wanted
    swapped = matcher.subscriber(master).encode(interests, rounds, pairs=labels[::-1])
    unlabelled = matcher.subscriber(master).encode(interests[:1], rounds[:1])
    for sent, with_them in ((events, swapped), (events[:1], unlabelled), (events[1:], unlabelled)):
        answers, causes = broker.examine(sent, with_them)
        assert not answers.any()
        assert set(causes.tolist()) == {int(Cause.PAIRING)}
    # A subscriber that has the seed of its pair, and no other.
    for row, label in enumerate(labels):
        alone = matcher.subscriber(master.pair(label)).encode(interests[:1], rounds[:1])
        assert broker.match(events[row : row + 1], alone).tolist() == wanted[:1]


@check
def an_event_of_a_broadcast_serves_all_labels(case: Case) -> None:
    if case.matcher.answers is not Answers.ROUND:
        return
    matcher, master = case.matcher, SharedSeed.generate()
    broker, publisher = matcher.broker(), matcher.publisher(master)
    labels, wanted = ["alice", "bob"], [bool(case.meaning[0, 0])] * 2
    interests = [case.interests[0]] * 2
    with pytest.raises(ParameterError, match="pairs"):
        publisher.encode(case.records[:1], [5], pairs=labels[:1])
    event = publisher.encode(case.records[:1], [5])  # Nothing was claimed before.
    with pytest.raises(RandomnessReuseError):
        publisher.encode(case.records[:1], [5])
    subscriber = matcher.subscriber(master)
    same = subscriber.encode(interests, [5, 5], pairs=labels)
    assert broker.match(event, same).tolist() == wanted
    assert broker.match(np.repeat(event, 2, axis=0), same).tolist() == wanted
    for label in labels:
        with pytest.raises(RandomnessReuseError):
            subscriber.encode(case.interests[-1:], [5], pairs=[label])
    with pytest.raises(RandomnessReuseError):
        subscriber.encode(interests, [6, 6], pairs=["alice", "alice"])
    # Other labels, none, and other subscribers under the same seed meet the same event.
    more = [
        subscriber.encode(interests[:1], [5], pairs=["carol"]),
        subscriber.encode(interests[:1], [5]),
        matcher.subscriber(master).encode(interests[:1], [5], pairs=["alice"]),
    ]
    assert broker.match(event, np.concatenate(more)).tolist() == wanted[:1] * 3
    assert len({row.tobytes() for row in np.concatenate([same, *more])}) == 5
    # Another round, another seed, and the seed of a pair do not.
    for seed, number in ((master, 6), (SharedSeed.generate(), 5), (master.pair("alice"), 5)):
        other = matcher.subscriber(seed).encode(interests[:1], [number])
        answers, causes = broker.examine(event, other)
        assert not answers.any() and causes.tolist() == [Cause.PAIRING]
    with pytest.raises((CcbpsError, TypeError)):
        broker.match(np.repeat(event, 3, axis=0), same)


@check
def epochs_are_told_apart_in_both_bytes(case: Case) -> None:
    if case.matcher.keying is not Keying.SERVER:
        return
    matcher, party = case.matcher, Party(case.matcher)
    key = party.server.key
    brokers, sent = [], []
    for epoch in (0, 1, 256, 257):
        data = key.export_secret_data()
        server = matcher.key_server(RoleKey.make(key.matcher, "server", key.key_id, epoch, data))
        assert server.epoch == epoch
        publisher = matcher.publisher(server.publisher_key())
        subscriber = matcher.subscriber(server.subscriber_key("alice"))
        brokers.append(matcher.broker(server.broker_key()))
        sent.append((publisher.encode(case.records), subscriber.encode(case.interests)))
    for number, broker in enumerate(brokers):
        for other, (events, interests) in enumerate(sent):
            cause = Cause.NONE if other == number else Cause.EPOCH
            assert set(broker.examine_events(events).tolist()) == {int(cause)}
            assert set(broker.examine_interests(interests).tolist()) == {int(cause)}


@check
def a_brokers_key_makes_no_messages(case: Case) -> None:
    """Not even with the MAC keys, and as no server either, that are right."""
    if case.matcher.keying is not Keying.SERVER:
        return
    matcher, party = case.matcher, case.party
    if case.meaning.all() or not case.meaning.any():
        return  # any message has these answers
    keys: dict[str, Any] = {"publisher": party.keys[0], "subscriber": party.keys[1]}
    key = party.server.broker_key()
    held = key.export_secret_data()
    messages = {
        "publisher": party.publisher.encode(case.records),
        "subscriber": party.subscriber.encode(case.interests),
    }

    def forged(role: Any, data: Any) -> Bytes:
        made: Any = getattr(matcher, role)(
            RoleKey.make(matcher.fingerprint, role, key.key_id, key.epoch, data)
        )
        sent: Bytes = made.encode(case.records if role == "publisher" else case.interests)
        return sent

    def issued(role: Any) -> Any:
        master = {**held, "macs": party.server.key.export_secret_data()["macs"]}
        server = matcher.key_server(
            RoleKey.make(matcher.fingerprint, "server", key.key_id, key.epoch, master)
        )
        made = server.publisher_key() if role == "publisher" else server.subscriber_key("alice")
        return made.export_secret_data()

    for role in keys:
        macs = keys[role].export_secret_data()["macs"]
        for material in (lambda role: held, issued):
            try:
                sent = forged(role, {**material(role), "macs": macs})
                pair = {**messages, role: sent}
                found = party.broker.match_all(pair["publisher"], pair["subscriber"])
            except (CcbpsError, LookupError, TypeError, ValueError, AttributeError):
                continue
            assert found.tolist() != case.meaning.tolist()


@check
def users_are_locked_out_and_let_in(case: Case) -> None:
    """Where the scheme has users."""
    if case.matcher.keying is not Keying.SERVER or not case.party.broker.users:
        return
    matcher, party = case.matcher, Party(case.matcher)
    server, broker, first = party.server, party.broker, party.server.broker_key()
    assert len(broker.users) == 2
    bob = matcher.subscriber(server.subscriber_key("bob"))
    second = server.broker_key()
    events = party.publisher.encode(case.records)
    mine, his = party.subscriber.encode(case.interests), bob.encode(case.interests)
    assert set(broker.examine_interests(his).tolist()) == {int(Cause.USER)}
    broker.admit(second)
    assert len(broker.users) == 3
    broker.admit(first)  # which is older
    assert len(broker.users) == 3
    names = [f"{who} {n}" for who in ("alice", "bob") for n in range(len(case.interests))]
    table = broker.prepare(np.concatenate([mine, his]), names)
    both = np.concatenate([case.meaning, case.meaning], axis=1)
    assert broker.match_all(events, table).tolist() == both.tolist()
    saved = table.to_bytes()

    broker.revoke(server.revoke("subscriber", "alice"))
    both[:, : len(case.interests)] = False

    def holds() -> None:
        assert broker.match_all(events, table).tolist() == both.tolist()
        assert set(broker.examine_interests(mine).tolist()) == {int(Cause.USER)}
        assert not broker.examine_interests(his).any()
        with pytest.raises(DecodeError):
            broker.prepare(mine)

    holds()
    assert len(broker.users) == 2
    for older in (first, second):
        broker.admit(older)  # Alice is in both.
        holds()
        assert len(broker.users) == 2
    carol = matcher.subscriber(server.subscriber_key("carol"))
    broker.admit(server.broker_key())
    holds()
    assert len(broker.users) == 3
    hers = broker.match_all(events, carol.encode(case.interests))
    assert hers.tolist() == case.meaning.tolist()
    with pytest.raises(CcbpsError):
        broker.load(saved)
    kept = broker.load(saved, drop_unserved=True)
    assert kept.ids == names[len(case.interests) :]
    assert broker.match_all(events, kept).tolist() == case.meaning.tolist()
    broker.revoke(server.revoke("publisher", "publisher"))
    assert set(broker.examine_events(events).tolist()) == {int(Cause.USER)}


@check
def a_table_is_as_it_was_when_adding_fails(case: Case) -> None:
    if not tabled(case):
        return
    kind: Any = type(case.matcher)
    party, real = case.party, kind.table
    interests = party.subscriber.encode(case.interests)
    events, meaning = party.publisher.encode(case.records), case.meaning
    kept, some = interests[:1], np.concatenate([interests, interests])
    table = party.broker.prepare(kept, ["kept"])
    # The first time is for the new interests, others are when parts are joined.
    for times in range(1, 5):
        calls = [0]

        def failing(
            self: Any, *arguments: Any, times: int = times, calls: list[int] = calls
        ) -> Any:
            calls[0] += 1
            if calls[0] == times:
                raise RuntimeError("no table today")
            return real(self, *arguments)

        for add in (some, some[:1]):
            calls[0] = 0
            names = [f"new {n}" for n in range(len(add))]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(kind, "table", failing)
                try:
                    table.add(add, names)
                except RuntimeError:
                    assert calls[0] >= times
                else:
                    assert calls[0] < times
            if len(table) > 1:
                table.remove(names)  # It was not called that often.
                assert calls[0] < times
            assert table.ids == ["kept"] and len(table) == 1 and len(table.messages) == 1
            found = party.broker.match_all(events, table)
            assert found.tolist() == meaning[:, :1].tolist()
            table.add(add, names)
            assert table.ids == ["kept", *names]
            table.remove(names)


@check
def a_table_may_change_while_it_is_matched(case: Case) -> None:
    """In another thread: answers are those of some moment."""
    if not tabled(case):
        return
    party, count = case.party, len(case.interests)
    events = party.publisher.encode(case.records)
    interests = party.subscriber.encode(case.interests)
    table = party.broker.prepare(interests, [f"stays {n}" for n in range(count)])
    both, problems, done = np.concatenate([case.meaning] * 2, axis=1), [], [False]
    wanted = {count: case.meaning.tolist(), 2 * count: both.tolist()}
    comes = [f"comes {n}" for n in range(count)]

    def change() -> None:
        try:
            while not done[0]:
                table.add(interests, comes)
                time.sleep(0)
                table.remove(comes)
                time.sleep(0)
        except Exception as error:
            problems.append(error)

    interval, thread = sys.getswitchinterval(), Thread(target=change)
    sys.setswitchinterval(1e-5)
    try:
        thread.start()
        stop = time.monotonic() + CONCURRENT
        while time.monotonic() < stop and not problems:
            found = party.broker.match_all(events, table)
            assert found.shape[1] in wanted
            assert found.tolist() == wanted[found.shape[1]]
    finally:
        done[0] = True
        thread.join()
        sys.setswitchinterval(interval)
    assert not problems


@check
def the_card_and_the_costs_are_whole(case: Case) -> None:
    matcher, card = case.matcher, case.matcher.leakage
    assert card.scheme.partition(",")[0] == type(matcher).__name__
    assert card.reuse == ("one-time" if matcher.keying is Keying.ROUNDS else "reusable")
    assert card.learns and card.assumption and card.hides
    assert card.protects <= set(Protects)
    assert (Protects.MATCH in card.protects) == (matcher.answers is Answers.SUBSCRIBER)
    assert card.answers == (matcher.answers is not Answers.SUBSCRIBER)
    if card.security == "perfect":
        assert {Protects.EVENT, Protects.EQUALITY_OF_EVENTS} <= card.protects
    if card.security == "broken":
        assert card.attacks and "[broken]" in repr(matcher)
    assert {cost.role for cost in matcher.costs} >= {"publisher", "subscriber"}
    for cost in matcher.costs:
        assert isinstance(cost, Cost) and cost.count > 0
    assert matcher.sizes.event > 0 and matcher.sizes.interest > 0
    text = matcher.explain()
    for part in (type(matcher).__name__, *card.learns, *(str(cost) for cost in matcher.costs)):
        assert " ".join(part.split()) in " ".join(text.split())


def all_cases() -> Iterator[tuple[str, Case]]:
    """Of every scheme of the catalogue."""
    for scheme in SCHEMES:
        for number, case in enumerate(cases(scheme)):
            yield f"{scheme.__name__}-{number}", case
