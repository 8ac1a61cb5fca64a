"""Check what all matchers promise: their text and card, their messages, and their rounds."""

from __future__ import annotations

import copy
import json
import os
import pickle
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from ccbps import Bool, OneTimePad, Schema, SeedRing, SharedSeed, UInt
from ccbps.arrays import Bytes
from ccbps.broker import MatchingBroker, Publication, Quota, Subscription
from ccbps.errors import (
    CcbpsError,
    DecodeError,
    ParameterError,
    PredicateError,
    RandomnessReuseError,
)
from ccbps.leakage import Protects
from ccbps.matching import Answers, Cost, Matcher, from_json
from ccbps.matching.contract.access import MAC_BYTES, header_bytes
from ccbps.matching.contract.parties import Party
from ccbps.testing.cases import Case, alone, brokered, check, keyed, one_time, refuses
from ccbps.wire import Cause

# -- descriptions ---------------------------------------------------------------------------------


@check()
def matchers_survive_pickling_and_text(case: Case) -> None:
    """Check that copies of a matcher equal it."""
    matcher = case.matcher
    for again in (
        pickle.loads(pickle.dumps(matcher)),
        copy.deepcopy(matcher),
        type(matcher).from_json(matcher.to_json()),
    ):
        assert again == matcher and hash(again) == hash(matcher)
        for name in ("fingerprint", "event_bytes", "interest_bytes"):
            assert getattr(again, name) == getattr(matcher, name)
        assert repr(again) == repr(matcher) and again.to_json() == matcher.to_json()
        for interest in case.interests:
            again.prepare(interest)


@check()
def the_catalogue_finds_it_by_its_text(case: Case) -> None:
    """Check that `from_json` finds the scheme of a text."""
    again = from_json(case.matcher.to_json())
    assert type(again) is type(case.matcher) and again == case.matcher


@check()
def another_schema_makes_another_matcher(case: Case) -> None:
    """Check that the schema is part of the fingerprint."""
    matcher = case.matcher
    wider = Schema({**{name: matcher.schema[name] for name in matcher.schema}, "more": Bool()})
    try:
        other = type(matcher).from_parameters(wider, matcher.parameters())
    except CcbpsError:
        return
    assert other != matcher and other.digest != matcher.digest


@check()
def bent_descriptions_are_refused(case: Case) -> None:
    """Check that texts of no matcher are refused, and texts of others give others."""
    kind, text = type(case.matcher), case.matcher.to_json()
    fields = json.loads(text)
    parameters = fields["parameters"]
    changes: list[dict[str, Any]] = [
        {"scheme": "nothing"},
        {"scheme_version": 99},
        {"scheme_version": float(fields["scheme_version"])},
        {"version": 2},
        {"version": True},
        {"ccbps": "schema"},
        {"parameters": []},
        {"schema": {}},
        {"more": 1},
        {"parameters": {**parameters, "nonsense": 1}},
    ]
    for name in parameters:
        left = {key: value for key, value in parameters.items() if key != name}
        changes.append({"parameters": left})
    bent = [
        *("", "[]", "null", "{" * 5000),
        text.replace('"ccbps"', '"ccbps": "matcher", "ccbps"', 1),
        json.dumps({name: value for name, value in fields.items() if name != "schema"}),
        *(json.dumps({**fields, **change}) for change in changes),
    ]
    for description in bent:
        refuses((DecodeError, ParameterError), kind.from_json, description)
    odd: tuple[Any, ...] = "'; DROP", {"a": []}, [[[]]], -1, 1e300
    for name in parameters:
        for value in odd:
            changed = {**fields, "parameters": {**parameters, name: value}}
            try:
                matcher = kind.from_json(json.dumps(changed))
            except (DecodeError, ParameterError, PredicateError):
                continue
            assert matcher != case.matcher


@check()
def the_card_and_the_costs_are_whole(case: Case) -> None:
    """Check that card, costs and explanation agree with one another and with the contract."""
    matcher, card = case.matcher, case.matcher.leakage
    assert card.scheme.partition(",")[0] == type(matcher).__name__
    assert card.reuse == ("one-time" if one_time(case) else "reusable")
    assert card.learns and card.assumption and card.hides
    assert card.protects <= set(Protects)
    assert (Protects.MATCH not in card.protects) == card.answers
    if alone(case):
        assert card.answers == brokered(case)
    if card.security == "perfect":
        assert {Protects.EVENT, Protects.EQUALITY_OF_EVENTS} <= card.protects
    if card.security == "broken":
        assert card.attacks and "[broken]" in repr(matcher)
    assert ("MAC" in card.integrity) == keyed(case)
    assert {cost.role for cost in matcher.costs} >= {"publisher", "subscriber"}
    for cost in matcher.costs:
        assert isinstance(cost, Cost) and cost.count > 0
    assert matcher.sizes.event > 0 and matcher.sizes.interest > 0
    text = " ".join(matcher.explain().split())
    for part in (type(matcher).__name__, *card.learns, *map(str, matcher.costs)):
        assert " ".join(part.split()) in text


# -- messages -------------------------------------------------------------------------------------


@check()
def answers_are_the_plaintext_meaning(case: Case) -> None:
    """Check the answers to all pairs."""
    answers = case.party.answers(case.records, case.interests)
    assert answers.dtype == np.bool_
    assert answers.tolist() == case.meaning.tolist()


@check()
def the_meaning_is_the_predicates_or_wider(case: Case) -> None:
    """Check that a matcher misses no event that the predicate matches."""
    schema, meaning = case.matcher.schema, case.meaning
    events = schema.encode(case.records)
    for interest, answers in zip(case.interests, meaning.T, strict=True):
        if isinstance(interest, str):
            assert not (schema.parse(interest).evaluate(events) & ~answers).any()


@check(keyed)
def rows_answer_as_all_pairs_do(case: Case) -> None:
    """Check the answers of `Broker.match`."""
    assert case.party.broker.match(*case.pairs()).tolist() == case.meaning.ravel().tolist()


@check(alone)
def a_running_broker_delivers_what_matches(case: Case) -> None:
    """Check that a `MatchingBroker` delivers the events that match, and no others."""
    party, matcher = case.party, case.matcher
    feed, subscriber = party.publisher, party.subscriber
    names = [f"wanted {place}" for place in range(len(case.interests))]
    labels, turns = [f"alice/{name}" for name in names], range(len(case.records))
    if one_time(case):
        master = SharedSeed.generate()
        feed, subscriber = matcher.publisher(master), matcher.subscriber(master)
    running = MatchingBroker(getattr(party, "broker", matcher), quota=Quota(message_bytes=1 << 24))
    for name, label, interest in zip(names, labels, case.interests, strict=True):
        messages, further = np.empty((0, 0), dtype=np.uint8), tuple[Any, ...]()
        if one_time(case):
            messages = subscriber.encode(interest, rounds=turns, pairs=[label] * len(turns))
            further = None, "feed", 0
        elif keyed(case):
            messages = subscriber.encode([interest])
        running.subscribe("alice", Subscription(name, messages, *further))
    for turn, record in enumerate(case.records):
        event, events, rounds = None, {}, turn if one_time(case) else None
        if matcher.answers is Answers.PAIRS:
            rows = feed.encode([record] * len(labels), rounds=[turn] * len(labels), pairs=labels)
            events = dict(zip(labels, map(bytes, rows), strict=True))
        else:
            event = bytes(feed.encode([record], *([[turn]] if one_time(case) else []))[0])
        running.publish("feed", Publication(turn, event, b"", None, rounds, events))
    delivered = np.zeros(case.meaning.shape, dtype=np.bool_)
    for delivery in running.take("alice"):
        for name in delivery.names:
            delivered[delivery.number, names.index(name)] = True
        if delivery.event is not None:
            row = np.frombuffer(delivery.event, dtype=np.uint8)[None]
            delivered[delivery.number] = subscriber.open(row).matched[0]
    assert delivered.tolist() == case.meaning.tolist()


@check()
def messages_have_the_stated_widths(case: Case) -> None:
    """Check the shapes of messages."""
    matcher = case.matcher
    assert (matcher.randomness_bytes > 0) == one_time(case)
    if not brokered(case):
        growth = len(case.interests) * matcher.sizes.event_per_request
        events = case.party.publisher.encode(case.records)
        assert events.shape[1] == matcher.event_bytes + growth
        return
    widths = matcher.event_bytes, matcher.interest_bytes
    for messages, width in zip(case.pairs(), widths, strict=True):
        assert messages.shape == (case.meaning.size, width)
        assert messages.dtype == np.uint8 and messages.flags.c_contiguous


@check()
def empty_batches_give_empty_answers(case: Case) -> None:
    """Check the shapes where there are no events or no interests."""
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
    if keyed(case):
        all_events, all_interests = case.sides()
        answers = party.broker.match_all(all_events, interests)
        assert answers.shape == (len(all_events), 0)
        answers = party.broker.match_all(events, all_interests)
        assert answers.shape == (0, len(all_interests))


@check(brokered)
def out_is_written_and_must_fit(case: Case) -> None:
    """Check that encoders write into a caller's array, or refuse it."""
    matcher, party = case.matcher, case.party
    for role, content, width in (
        (party.publisher, case.records, matcher.event_bytes),
        (party.subscriber, case.interests, matcher.interest_bytes),
    ):
        out = np.empty((len(content), width), dtype=np.uint8)
        assert role.encode(content, party.rounds(len(out)), out=out) is out
        apart = np.repeat(out, 2, axis=1)[:, ::2]
        for other in (out[:, 1:], out.astype(np.int8), apart, bytes(out)):
            refuses(ParameterError, role.encode, content, party.rounds(len(out)), out=other)


@check()
def messages_of_another_width_are_refused(case: Case) -> None:
    """Check that rows of other shapes or types are refused, and numbers that do not pair."""
    party = case.party
    if not brokered(case):
        events = party.publisher.encode(case.records)
        refuses(DecodeError, party.subscriber.open, events[:, :-1])
        return
    events, interests = case.pairs()
    for pair in (
        (events[:, :-1], interests),
        (events, interests[:, 1:]),
        (events.astype(np.uint16), interests),
        (events[0], interests),
        (list(events), interests),
        (events, interests[1:]),
    ):
        refuses(DecodeError, party.broker.match, *pair)


@check(brokered, alone)
def messages_of_another_kind_or_version_are_refused(case: Case) -> None:
    """Check the first bytes of headers."""
    # With rounds, kind and version share a byte: other kinds, other versions, and a kind alone.
    changes = [(0, 9), (1, 99)]
    if one_time(case):
        changes = [(0, value) for value in (0x01, 0x02, 0x11, 0x12, 0x23, 0x31, 0x32, 0xA1, 0xA2)]
    sent = case.pairs()
    for at, value in changes:
        for side, name in enumerate(("EVENT", "INTEREST")):
            bad = [messages.copy() for messages in sent]
            bad[side][0, at] = value
            _, causes = case.party.broker.examine(*bad)
            assert causes[0] == Cause[f"{name}_KIND"]
            assert not causes[1:].any()


@check(keyed)
def messages_of_another_matcher_are_refused(case: Case) -> None:
    """Check the bytes of headers that name the matcher."""
    sent, broker = [messages[:2] for messages in case.pairs()], case.party.broker
    for at in range(2, 8):
        for side, name, flip in ((0, "EVENT", 1), (1, "INTEREST", 128)):
            bad = [messages.copy() for messages in sent]
            bad[side][0, at] ^= flip
            answers, causes = broker.examine(*bad)
            assert causes[0] == Cause[f"{name}_MATCHER"] and not answers[0]
            refuses(DecodeError, broker.match, *bad)


@check(one_time)
def messages_of_another_matcher_are_refused_in_rounds(case: Case) -> None:
    """Check messages of one side or both, under one seed, and under pads, which know no matcher."""
    matcher = case.matcher
    other: Matcher = object.__new__(type(matcher))
    vars(other).update(vars(matcher), digest=sha256(matcher.digest).digest())
    records, interests, rounds = case.records[:1] * 2, case.interests[:1] * 2, [0, 1]
    secret, pad = SharedSeed.generate().export_secret(), os.urandom(2 * matcher.randomness_bytes)
    for source in (lambda: SharedSeed(secret), lambda: OneTimePad(pad)):
        (events, mine), (others, theirs) = (
            (
                sender.publisher(source()).encode(records, rounds),
                sender.subscriber(source()).encode(interests, rounds),
            )
            for sender in (matcher, other)
        )
        expected = [bool(case.meaning[0, 0])] * 2
        assert case.party.broker.match(events, mine).tolist() == expected
        assert other.broker().match(others, theirs).tolist() == expected
        for pair in ((others, mine), (events, theirs), (others, theirs)):
            answers, causes = case.party.broker.examine(*pair)
            assert causes.tolist() == [Cause.PAIRING] * 2 and not answers.any()


@check(keyed)
def altered_messages_are_refused(case: Case) -> None:
    """Check a bit of every byte behind the header, one in each copy."""
    events, interests = case.party.pairs(case.records[:1], case.interests[:1])
    broker = case.party.broker
    for messages, examine in (
        (events, broker.examine_events),
        (interests, broker.examine_interests),
    ):
        places = np.arange(header_bytes(case.matcher), messages.shape[1])
        bent = np.repeat(messages, len(places), axis=0)
        bent[np.arange(len(places)), places] ^= (1 << places % 8).astype(np.uint8)
        assert set(examine(bent).tolist()) == {Cause.ALTERED}


@check()
def what_prepare_refuses_encode_refuses(case: Case) -> None:
    """Check that encoders name the interest that `prepare` refuses."""

    def encode(interests: Any, count: int) -> None:
        rounds = case.party.rounds(count)
        case.party.subscriber.encode(interests, *([] if rounds is None else [rounds]))

    for interest in case.refused:
        with pytest.raises(PredicateError) as error:
            encode([*case.interests, interest], 1 + len(case.interests))
        assert error.value.row == len(case.interests)
    for nonsense in (7, None, object(), Schema(unlike=UInt(3)).parse("unlike = 1")):
        refuses((ParameterError, PredicateError), encode, nonsense, 1)


@check(brokered)
def equal_interests_are_prepared_once(case: Case) -> None:
    """Check how often an encoder calls `prepare`."""
    seen: list[Any] = []
    real = type(case.matcher).prepare

    def counted(self: Matcher, interest: Any) -> Any:
        seen.append(interest)
        return real(self, interest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(case.matcher), "prepare", counted)
        case.party.subscriber.encode(case.interests * 3, case.party.rounds(3 * len(case.interests)))
    assert len(seen) == len(case.interests)


@check(brokered)
def randomness_makes_messages_differ(case: Case) -> None:
    """Check equal messages wherever an encoder draws randomness or the card promises it."""
    matcher, kind, drawn = case.matcher, type(case.matcher), [0]
    body = slice(header_bytes(matcher), -MAC_BYTES if keyed(case) else None)

    def counted(real: Callable[..., None]) -> Callable[..., None]:
        def encode(self: Matcher, key: Any, content: Any, draw: Any, out: Bytes) -> None:
            def fresh(count: int) -> Any:
                drawn[0] += count
                return draw.fresh(count)

            real(self, key, content, replace(draw, fresh=fresh), out)

        return encode

    with pytest.MonkeyPatch.context() as patch:
        for name in ("encode_events", "encode_interests"):
            patch.setattr(kind, name, counted(getattr(kind, name)))
        for role, contents, hidden in (
            (case.party.publisher, case.records, Protects.EQUALITY_OF_EVENTS),
            (case.party.subscriber, case.interests, Protects.EQUALITY_OF_INTERESTS),
        ):
            promised = one_time(case) or hidden in matcher.leakage.protects
            # By chance, bodies of a few bits are the same.
            count = 32 if matcher.event_bytes < 512 else 2
            for content in contents[: 1 if promised else 3]:
                drawn[0] = 0
                sent, again = (
                    role.encode([content] * count, case.party.rounds(count)) for _ in range(2)
                )
                if drawn[0] or promised:
                    assert len({row[body].tobytes() for row in sent}) > 1
                    assert (sent != again)[:, body].any()


@check()
def equal_events_do_not_show_to_those_who_relay_them(case: Case) -> None:
    """Check the slots of events with sessions."""
    if brokered(case) or Protects.EQUALITY_OF_EVENTS not in case.matcher.leakage.protects:
        return
    sent = case.party.publisher.encode(case.records[:1] * 8)
    # The bytes before the slots hold a number.
    slots = sent[:, case.matcher.event_bytes :]
    assert len({row.tobytes() for row in slots}) == 8


# -- rounds ---------------------------------------------------------------------------------------


def _do_not_pair(case: Case, events: Bytes, interests: Bytes) -> None:
    """Check that the broker refuses all pairs of messages as those of other rounds or pairs."""
    answers, causes = case.party.broker.examine(events, interests)
    assert not answers.any() and set(causes.tolist()) == {Cause.PAIRING}


@check(one_time)
def messages_of_another_round_are_refused(case: Case) -> None:
    """Check pairs of messages of two rounds."""
    events, interests = case.pairs()
    _do_not_pair(case, events, np.roll(interests, 1, axis=0))


@check(one_time)
def rounds_are_used_once(case: Case) -> None:
    """Check that a role takes no round twice, in memory or with a ledger on disk."""
    matcher, record, interest = case.matcher, case.records[:1], case.interests[:1]
    party, seed = Party(matcher), SharedSeed.generate()
    for role, content in ((party.publisher, record), (party.subscriber, interest)):
        role.encode(content, [7])
        refuses(RandomnessReuseError, role.encode, content, [7])
        refuses(RandomnessReuseError, role.encode, content * 2, [8, 8])
        refuses(ParameterError, role.encode, content)
    others = [other for other in case.records if other != record[0]]
    unlike = [other for first, other in case.unlike_interests() if first == interest[0]]
    with tempfile.TemporaryDirectory() as folder:
        # After a restart: the same again is the same message, anything else is refused.
        for make, content, other, turned in (
            (matcher.publisher, record, others[:1], (matcher.subscriber, interest)),
            (matcher.subscriber, interest, unlike[:1], (matcher.publisher, record)),
        ):
            path = Path(folder) / make.__name__
            first, again = (make(seed, ledger=path).encode(content, [3]) for _ in range(2))
            if matcher.answers is Answers.ROUND and content is interest:
                # Interests of one round carry what makes them differ, so this is one more of them.
                assert again.tolist() != first.tolist()
                event = matcher.publisher(seed).encode(record, [3])
                answers = matcher.broker().match(event, np.concatenate([first, again]))
                assert answers.tolist() == [bool(case.meaning[0, 0])] * 2
            else:
                assert again.tolist() == first.tolist()
            if other:
                refuses(RandomnessReuseError, make(seed, ledger=path).encode, other, [3])
            # A party that publishes under a seed does not subscribe under it, nor the reverse.
            refuses(RandomnessReuseError, turned[0](seed, ledger=path).encode, turned[1], [4])


@check(keyed)
def reusable_messages_take_no_rounds(case: Case) -> None:
    """Check that roles with keys refuse rounds and ledgers."""
    party = case.party
    with pytest.raises(ParameterError, match="round"):
        party.publisher.encode(case.records, range(len(case.records)))
    with pytest.raises(ParameterError, match="round"):
        case.matcher.publisher(party.keys["publisher"], ledger="nowhere")


@check(one_time)
def interests_are_told_apart(case: Case) -> None:
    """Check the names of prepared interests, for ledgers."""
    matcher: Any = case.matcher

    def name_of(interest: Any) -> bytes:
        name = matcher.identify(matcher.prepare(interest))
        assert type(name) is bytes
        return name

    for interest in case.interests:
        assert name_of(interest) == name_of(interest)
    for first, other in case.unlike_interests():
        assert name_of(first) != name_of(other)


@check()
def pairs_have_seeds_of_their_own(case: Case) -> None:
    """Check that messages of two labels do not pair, and that a pair's own seed is enough."""
    matcher = case.matcher
    if not one_time(case):
        publisher = case.party.publisher
        refuses((ParameterError, TypeError), publisher.encode, case.records[:1], pairs=["alice"])
        return
    if matcher.answers is Answers.ROUND:
        return  # See the next check.
    master, broker = SharedSeed.generate(), matcher.broker()
    labels, rounds = ["alice", "bob"], [5, 5]
    records, interests = case.records[:1] * 2, case.interests[:1] * 2
    expected = [bool(case.meaning[0, 0])] * 2
    events = matcher.publisher(master).encode(records, rounds, pairs=labels)
    for seed in (master, SeedRing.of(master, labels)):
        same = matcher.subscriber(seed).encode(interests, rounds, pairs=labels)
        assert broker.match(events, same).tolist() == expected
    swapped = matcher.subscriber(master).encode(interests, rounds, pairs=labels[::-1])
    unlabelled = matcher.subscriber(master).encode(interests[:1], rounds[:1])
    for sent, foreign in ((events, swapped), (events[:1], unlabelled), (events[1:], unlabelled)):
        _do_not_pair(case, sent, foreign)
    # A subscriber that has the seed of its pair, and no other.
    for row, label in enumerate(labels):
        alone = matcher.subscriber(master.pair(label)).encode(interests[:1], rounds[:1])
        assert broker.match(events[row : row + 1], alone).tolist() == expected[:1]


@check()
def an_event_of_a_broadcast_serves_all_labels(case: Case) -> None:
    """Check that one event meets the interests of all labels of its round, and no others."""
    if case.matcher.answers is not Answers.ROUND:
        return
    matcher, master = case.matcher, SharedSeed.generate()
    broker, publisher = matcher.broker(), matcher.publisher(master)
    labels, expected = ["alice", "bob"], [bool(case.meaning[0, 0])]
    record, interest = case.records[:1], case.interests[:1]
    with pytest.raises(ParameterError, match="pairs"):
        publisher.encode(record, [5], pairs=labels[:1])
    event = publisher.encode(record, [5])  # Nothing was claimed before.
    refuses(RandomnessReuseError, publisher.encode, record, [5])
    subscriber = matcher.subscriber(master)
    same = subscriber.encode(interest * 2, [5, 5], pairs=labels)
    for events in (event, np.repeat(event, 2, axis=0)):
        assert broker.match(events, same).tolist() == expected * 2
    for label in labels:
        last = case.interests[-1:]
        refuses(RandomnessReuseError, subscriber.encode, last, [5], pairs=[label])
    refuses(RandomnessReuseError, subscriber.encode, interest * 2, [6, 6], pairs=["alice"] * 2)
    # Other labels, none, and other subscribers under the same seed meet the same event.
    more = np.concatenate(
        [
            subscriber.encode(interest, [5], pairs=["carol"]),
            subscriber.encode(interest, [5]),
            matcher.subscriber(master).encode(interest, [5], pairs=["alice"]),
        ]
    )
    assert broker.match(event, more).tolist() == expected * 3
    assert len({row.tobytes() for row in np.concatenate([same, more])}) == 5
    # Another round, another seed, and the seed of a pair do not.
    for seed, number in ((master, 6), (SharedSeed.generate(), 5), (master.pair("alice"), 5)):
        _do_not_pair(case, event, matcher.subscriber(seed).encode(interest, [number]))
    refuses((CcbpsError, TypeError), broker.match, np.repeat(event, 3, axis=0), same)
