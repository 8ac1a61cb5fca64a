"""Check messages of a case: their answers, their bytes, and which of them are refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from ccbps import OneTimePad, Schema, SharedSeed, UInt
from ccbps.arrays import Bytes
from ccbps.broker import MatchingBroker, Publication, Quota, Subscription
from ccbps.errors import (
    DecodeError,
    ParameterError,
    PredicateError,
)
from ccbps.leakage import Protects
from ccbps.matching import Keying, Matcher
from ccbps.matching.contract.access import MAC_BYTES, header_bytes
from ccbps.matching.contract.kinds import Answers
from ccbps.testing.cases import Case, brokered, check, tabled
from ccbps.wire import Cause


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
            row = np.frombuffer(delivery.event, dtype=np.uint8)[None]
            found[delivery.number] = subscriber.open(row).matched[0]
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
