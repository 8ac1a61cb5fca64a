"""ObliviousTopicMatch: subscribers open the events of their topics; bad input is refused."""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import getitem
from threading import Barrier, BrokenBarrierError
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Category, Schema, SharedSeed, UInt
from ccbps.ciphers.oblivious import EqCot
from ccbps.ciphers.payloads import own_keys
from ccbps.ciphers.signatures import SIGNATURE_BYTES
from ccbps.ciphers.slots import SlotKey
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import (
    BrokenSchemeWarning,
    DecodeError,
    EventError,
    KeyMismatchError,
    ParameterError,
    PredicateError,
    RandomnessReuseError,
    SerializationError,
    UnsupportedPredicateError,
)
from ccbps.keys.role_key import RoleKey
from ccbps.leakage import Protects
from ccbps.matching import Answers, Keying, ObliviousTopicMatch
from ccbps.matching.broken import AdditiveMaskMatch
from ccbps.matching.contract.scheme import Draw
from ccbps.matching.session.layout import SIGNED
from ccbps.matching.session.roles import ObliviousPublisher, ObliviousSubscriber
from ccbps.wire import KEY_HEADER_BYTES
from tests.support.effort import examples
from tests.support.refusals import refused
from tests.support.reusable_checks import plain
from tests.support.topic_strategies import (
    acquainted,
    equalities,
    introduce,
    sign,
    topics_and_records,
)

SCHEMA = Schema(issue=Category(["AAPL", "GOOG", "IBM"]), price=UInt(8))
TEXTS = ["issue = 'AAPL'", "issue = 'GOOG'", "issue = 'IBM'"]
EVENTS = [{"issue": name, "price": 7} for name in ("IBM", "GOOG", "IBM")]


def toy(payload_bytes: int = 0) -> ObliviousTopicMatch:
    return ObliviousTopicMatch(SCHEMA, ["issue"], payload_bytes=payload_bytes, group="toy64")


@given(drawn=topics_and_records(), data=st.data(), payload=st.sampled_from([0, 9]))
@settings(max_examples=examples(60), deadline=None)
def test_answers_are_the_plaintext_meaning(drawn: Any, data: st.DataObject, payload: int) -> None:
    schema, attributes, texts, records = drawn
    matcher = ObliviousTopicMatch(schema, attributes, payload_bytes=payload, group="toy64")
    mine = {equalities(schema, row, attributes) for row in map(dict, records)}
    by_topic = {matcher.prepare(text): text for text in mine}
    subscribers = [matcher.new_subscriber(), matcher.new_subscriber()]
    requests = [subscriber.encode(texts) for subscriber in subscribers]
    if not by_topic:
        refused(ParameterError, "one topic or more", matcher.new_publisher, [])
        return
    publisher = matcher.new_publisher(data.draw(st.permutations(list(by_topic.values()))))
    introduce(publisher, *subscribers)
    sessions = publisher.answer(np.vstack(requests))
    payloads = [b"%d" % row for row in range(len(records))]
    events = publisher.encode(records, payloads=payloads if payload else None)
    expected = plain(schema, records, texts)
    for subscriber in subscribers:
        assert subscriber.accept(sessions) == len(texts)
        opened = subscriber.open(events)
        assert np.array_equal(opened.matched, expected)
        read = [text if any(row) else None for row, text in zip(expected, payloads, strict=True)]
        assert opened.payloads == (read if payload else [None] * len(records))


def test_two_threads_answer_no_more_requests_than_were_admitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matcher = toy(payload_bytes=4)
    publisher, alice = matcher.new_publisher(TEXTS), matcher.new_subscriber()
    publisher.admit(alice.identity, requests=1)
    requests, respond = alice.encode(TEXTS[:2]), EqCot.respond
    together = Barrier(2)

    def slow(*arguments: Any, **options: Any) -> Any:
        with contextlib.suppress(BrokenBarrierError):  # nobody else came while this one was here
            together.wait(timeout=0.1)
        return respond(*arguments, **options)

    monkeypatch.setattr(EqCot, "respond", slow)
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(publisher.answer, requests[row : row + 1]) for row in (0, 1)]
        errors = [answer.exception() for answer in answers]
    assert publisher.requests == 1
    assert sorted(type(error).__name__ for error in errors) == ["DecodeError", "NoneType"]


def test_several_publishers_and_requests_that_come_later() -> None:
    matcher = toy(payload_bytes=4)
    alice, bob = matcher.new_subscriber(), matcher.new_subscriber()
    first, second = matcher.new_publisher(TEXTS), matcher.new_publisher(TEXTS[1:])
    introduce(first, alice, bob)
    introduce(second, alice, carol := matcher.new_subscriber())
    wish = alice.encode([TEXTS[2], TEXTS[0]])
    assert alice.accept(first.answer(wish)) == 2
    before = first.encode(EVENTS, payloads=[b"a", b"b", b"c"])
    assert bob.accept(first.answer(bob.encode(TEXTS[1]))) == 1
    after = first.encode(EVENTS, payloads=[b"d", b"e", b"f"])
    assert after.shape[1] - before.shape[1] == 32
    assert alice.open(before).payloads == [b"a", None, b"c"]
    assert alice.open(after).matched.tolist() == [[True, False], [False, False], [True, False]]
    assert bob.open(before).payloads == [None] * 3
    assert bob.open(after).payloads == [None, b"e", None]
    sessions = second.answer(wish)
    # Two publishers in one batch; alice's interests keep their places.
    second.answer(carol.encode(TEXTS[1]))
    other = second.encode(EVENTS[:1], payloads=[b"g"])
    both = np.vstack([after, other])
    assert refused(DecodeError, "sessions were not accepted", alice.open, both).rows == (3,)
    assert alice.accept(sessions) == 2
    assert alice.open(both).payloads == [b"d", None, b"f", b"g"]
    # Later interests are further columns.
    alice.accept(first.answer(alice.encode(TEXTS[1])))
    assert alice.open(first.encode(EVENTS)).matched.tolist() == [
        [True, False, False],
        [False, False, True],
        [True, False, False],
    ]


def test_sessions_are_taken_by_their_subscriber_only() -> None:
    matcher = toy()
    publisher, alice, bob = acquainted(matcher, TEXTS, 2)
    sessions = publisher.answer(alice.encode(TEXTS))
    assert bob.accept(sessions) == 0
    refused(DecodeError, "not accepted", bob.open, publisher.encode(EVENTS))
    assert alice.accept(sessions[::-1]) == 3


def test_empty_batches() -> None:
    matcher = toy()
    publisher, subscriber = acquainted(matcher, TEXTS)
    assert subscriber.encode([]).shape == (0, matcher.interest_bytes)
    assert publisher.answer(subscriber.encode([])).shape == (0, matcher.session_bytes(3))
    subscriber.accept(publisher.answer(subscriber.encode(TEXTS)))
    events = publisher.encode([])
    assert events.shape == (0, matcher.event_bytes_for(3))
    assert subscriber.open(events).matched.shape == (0, 3)


def test_messages_that_are_not_of_this_matcher_are_refused() -> None:
    matcher, other = toy(), toy(payload_bytes=16)
    publisher, subscriber = acquainted(matcher, TEXTS)
    requests = subscriber.encode(TEXTS)
    with pytest.raises(DecodeError, match="row 0: no request of this version and matcher"):
        publisher.answer(other.new_subscriber().encode(TEXTS))
    with pytest.raises(DecodeError, match="requests have 112 bytes, got 113"):
        publisher.answer(np.zeros((1, 113), dtype=np.uint8))
    refused(DecodeError, "uint8 array of shape", publisher.answer, requests.tolist())
    sessions = publisher.answer(requests)
    for name, act, good in (
        ("request", publisher.answer, requests),
        ("session", subscriber.accept, sessions),
        ("event", subscriber.open, publisher.encode(EVENTS)),
    ):
        for column in (0, 1, 2, 7):
            bad = good.copy()
            bad[1, column] ^= 1
            assert refused(DecodeError, f"row 1: no {name} of this", act, bad).rows == (1,)
    refused(DecodeError, "a multiple of 16, got", subscriber.accept, sessions[:, :-1])


def test_elements_outside_the_group_are_refused_and_nothing_is_kept() -> None:
    matcher = toy()
    publisher, subscriber = acquainted(matcher, TEXTS)
    requests = subscriber.encode(TEXTS)
    bad = requests.copy()
    bad[2, SIGNED : SIGNED + 8] = 0
    sign(subscriber, bad[2])
    assert refused(DecodeError, "not elements of the group", publisher.answer, bad).rows == (2,)
    assert publisher.requests == 0
    sessions = publisher.answer(requests)
    altered = sessions.copy()
    altered[1, -SIGNATURE_BYTES - 8 : -SIGNATURE_BYTES] = 0
    sign(publisher, altered[1], matcher._layout.digest(requests[1]))
    caught = refused(DecodeError, "row 1: a message holds", subscriber.accept, altered)
    assert caught.rows == (1,)
    refused(DecodeError, "not accepted", subscriber.open, publisher.encode(EVENTS))
    assert subscriber.accept(sessions) == 3


def test_altered_events_do_not_match_or_are_refused() -> None:
    publisher, subscriber = pair(matcher := toy(payload_bytes=8), TEXTS[2:])
    events = publisher.encode(EVENTS, payloads=[b"x", b"y", b"z"])
    fixed = matcher.event_bytes
    for column in (KEY_HEADER_BYTES, fixed):  # the number, the slot's first block
        bad = events.copy()
        bad[2, column] ^= 1
        assert subscriber.open(bad).payloads == [b"x", None, None]
    for column in (fixed - 1, KEY_HEADER_BYTES + 8, fixed + 16):  # the payload, its key
        bad = events.copy()
        bad[2, column] ^= 1
        caught = refused(DecodeError, "row 2: not a payload for this key", subscriber.open, bad)
        assert caught.rows == (2,)
        opened, problems = subscriber.examine(bad)
        assert set(problems) == {2} and opened.matched[:, 0].tolist() == [True, False, False]


def test_events_and_payloads_that_do_not_fit_are_refused() -> None:
    matcher = toy(payload_bytes=2)
    publisher = matcher.new_publisher(TEXTS[:2])
    with pytest.raises(EventError, match="row 1 is of none of this publisher's topics") as caught:
        publisher.encode([EVENTS[1], EVENTS[0]])
    assert caught.value.row == 1
    assert "IBM" not in str(caught.value)
    with pytest.raises(ParameterError, match="1 payloads do not go with 2 events"):
        publisher.encode([EVENTS[1]] * 2, payloads=[b""])
    with pytest.raises(ParameterError, match="payloads must have 2 bytes or less; row 0 has 3"):
        publisher.encode([EVENTS[1]], payloads=[b"123"])
    with pytest.raises(ParameterError, match="no payloads"):
        toy().new_publisher(TEXTS).encode(EVENTS, payloads=[b""] * 3)


def test_topics_and_interests_are_single_values() -> None:
    matcher = toy()
    for topics in ([], TEXTS[:1] * 2):
        refused(ParameterError, "one topic or more, each once", matcher.new_publisher, topics)
    refused(ParameterError, "got a single one", matcher.new_publisher, TEXTS[0])
    with pytest.raises(UnsupportedPredicateError, match="not part of the topic"):
        matcher.new_publisher(["issue = 'IBM' AND price = 3"])
    with pytest.raises(UnsupportedPredicateError) as caught:
        matcher.new_subscriber().encode([TEXTS[0], "issue <> 'IBM'"])
    assert caught.value.row == 1
    refused(PredicateError, "call bind first", matcher.new_subscriber().encode, "issue = :x")
    refused(ParameterError, "got int", matcher.new_subscriber().encode, 5)
    other = Schema(issue=SCHEMA["issue"])
    with pytest.raises(ParameterError, match="another schema"):
        matcher.new_subscriber().encode(other.parse(TEXTS[0]))


def test_parameters_are_checked_and_kept() -> None:
    for size in (-1, 2**31, True, 5.0, "5"):
        refused(ParameterError, "payload_bytes must be", toy, payload_bytes=size)
    with pytest.raises(ParameterError, match="must name some of"):
        ObliviousTopicMatch(SCHEMA, ["volume"], group="toy64")
    with pytest.raises(ParameterError, match=r"group must be .*, got 'toy'"):
        ObliviousTopicMatch(SCHEMA, group="toy")
    matcher = toy(payload_bytes=5)
    assert ObliviousTopicMatch(SCHEMA, ["price", "issue"]) == ObliviousTopicMatch(SCHEMA)
    assert (matcher.keying, matcher.answers) == (Keying.SESSION, Answers.SUBSCRIBER)
    for role in (matcher.new_publisher(TEXTS), matcher.new_subscriber(), matcher):
        assert "IBM" not in repr(role)


def test_card_says_that_toys_are_broken() -> None:
    matcher = toy(payload_bytes=5)
    assert matcher.leakage.security == "broken" and not matcher.leakage.protects
    with pytest.warns(BrokenSchemeWarning, match="the group is a toy.*Take group='modp2048'"):
        toy()
    card = ObliviousTopicMatch(SCHEMA).leakage
    assert card.security == "computational" and not any("toy" in text for text in card.attacks)
    # Attributes and form of a subscription are public: they are the matcher's.
    assert set(Protects) - card.protects == {Protects.ATTRIBUTES, Protects.FORMULA}
    text = matcher.explain()
    assert "topic:       issue" in text
    assert "per pair: 2 x AES block" in text
    assert "per interest: 5 x exponentiation (toy64), for each topic" in text


@pytest.mark.parametrize("payload", [0, 9])
def test_sizes_are_those_of_messages(payload: int) -> None:
    matcher = toy(payload)
    publisher, subscriber = acquainted(matcher, TEXTS[:2])
    texts = [b"text"] if payload else None

    def event() -> int:
        return publisher.encode(EVENTS[1:2], payloads=texts).shape[1]

    assert event() == matcher.event_bytes == matcher.event_bytes_for(0)
    requests = subscriber.encode(TEXTS)
    assert requests.shape == (3, matcher.interest_bytes)
    assert publisher.answer(requests).shape == (3, matcher.session_bytes(2))
    assert event() == matcher.event_bytes_for(3)
    sizes = matcher.sizes
    assert event() == KEY_HEADER_BYTES + sizes.event + 3 * sizes.event_per_request
    assert requests.shape[1] == KEY_HEADER_BYTES + sizes.interest
    assert (sizes.randomness, matcher.randomness_bytes) == (0, 0)
    assert f"{matcher.session_bytes(1)} bytes for one topic" in matcher.explain()


def test_nobody_matches_and_nobody_gives_keys() -> None:
    matcher = toy()
    refused(ParameterError, r"no broker that matches: pass on every event", matcher.broker)
    refused(ParameterError, r"no key server: new_publisher\(topics\)", matcher.key_server)
    publisher, subscriber = matcher.new_publisher(TEXTS), matcher.new_subscriber()
    for make, key in ((matcher.publisher, publisher.key), (matcher.subscriber, subscriber.key)):
        refused(ParameterError, "no ledger", make, key, ledger="ledger")
    # Messages are made by roles, who know what they have agreed on.
    draw, out = Draw(bytes, None, None), np.zeros((3, 200), np.uint8)  # type: ignore[arg-type]
    interests = DictionaryColumn([matcher.prepare(TEXTS[0])], np.zeros(3, dtype=np.intp))
    with pytest.raises(ParameterError, match="ObliviousTopicMatch are made by its roles"):
        matcher.encode_events({}, SCHEMA.encode(EVENTS), draw, out)
    with pytest.raises(ParameterError, match="ObliviousTopicMatch are made by its roles"):
        matcher.encode_interests({}, interests, draw, out)


def test_what_is_prepared_is_what_is_asked_for_and_what_it_means() -> None:
    matcher = toy()
    assert len({matcher.prepare(text) for text in TEXTS}) == 3
    assert matcher.prepare(SCHEMA.parse("issue = :x").bind(x="IBM")) == matcher.prepare(TEXTS[2])
    assert matcher.meaning(TEXTS[2], SCHEMA.encode(EVENTS)).tolist() == [True, False, True]
    for wrong in ("TRUE", "price = 3", "issue = 'IBM' AND price = 3", "issue IN ('IBM', 'GOOG')"):
        refused(UnsupportedPredicateError, "", matcher.prepare, wrong)
        refused(UnsupportedPredicateError, "", matcher.new_subscriber().encode, wrong)


@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        ("issue = 'IBM'", ("issue",)),
        ("price = 3 AND issue = 'IBM'", ("issue", "price")),
        ("price BETWEEN 3 AND 3", ("price",)),
    ],
)
def test_proposals_have_the_topic_that_a_predicate_names(
    text: str, attributes: tuple[str, ...]
) -> None:
    (matcher,) = ObliviousTopicMatch.propose(SCHEMA, SCHEMA.parse(text))
    assert (matcher.attributes, matcher.payload_bytes) == (attributes, 0)
    matcher.prepare(text)


@pytest.mark.parametrize(
    "text", ["TRUE", "FALSE", "price < 3", "issue = 'IBM' AND price < 3", "issue = :x"]
)
def test_nothing_is_proposed_for_what_names_no_topic(text: str) -> None:
    assert not list(ObliviousTopicMatch.propose(SCHEMA, SCHEMA.parse(text)))


# -- keys of roles and numbers of events ----------------------------------------------------------


def pair(
    matcher: ObliviousTopicMatch, wishes: list[str] = TEXTS
) -> tuple[ObliviousPublisher, ObliviousSubscriber]:
    """A publisher of all topics and a subscriber of `wishes` that has accepted its sessions."""
    publisher, subscriber = acquainted(matcher, TEXTS)
    subscriber.accept(publisher.answer(subscriber.encode(wishes)))
    return publisher, subscriber


def kept(key: RoleKey) -> RoleKey:
    """What is left of a key when it was written down."""
    return RoleKey.from_text(key.to_text())


@pytest.mark.parametrize("payload", [0, 4])
def test_roles_are_restored_from_their_keys(payload: int) -> None:
    matcher = toy(payload)
    publisher, subscriber = pair(matcher, [TEXTS[2], TEXTS[0]])
    other, _ = pair(matcher)
    introduce(other, subscriber)
    wish = subscriber.encode(TEXTS[1])  # Its session is accepted after it was restored.
    subscriber.accept(other.answer(wish))
    payloads = [b"a", b"b", b"c"] if payload else None
    first = publisher.encode(EVENTS, payloads=payloads)
    publisher_key, subscriber_key = kept(publisher.key), kept(subscriber.key)
    assert (publisher_key.role, subscriber_key.role) == ("publisher", "subscriber")
    assert publisher_key.matcher == subscriber_key.matcher == matcher.digest
    assert publisher_key.epoch == subscriber_key.epoch == 0
    assert publisher_key.key_id == bytes(first[0, 8:14])
    publisher = matcher.publisher(publisher_key)
    subscriber = matcher.subscriber(subscriber_key)
    assert publisher.key == publisher_key and subscriber.key == subscriber_key
    # The names, topics, keys and the place of the next slot are those they were.
    subscriber.accept(publisher.answer(wish))
    second = publisher.encode(EVENTS, payloads=payloads)
    third = other.encode(EVENTS, payloads=payloads)
    assert not {bytes(row[16:24]) for row in first} & {bytes(row[16:24]) for row in second}
    ibm, goog = [True, False, False], [False, False, True]
    for events, expected in (
        (first, [ibm, [False] * 3, ibm]),
        (second, [ibm, goog, ibm]),
        (third, [[False] * 3, goog, [False] * 3]),
    ):
        opened = subscriber.open(events)
        assert opened.matched.tolist() == expected
        if payloads is not None:
            rows = zip(expected, payloads, strict=True)
            read = [text if any(row) else None for row, text in rows]
            assert opened.payloads == read


def test_a_restored_role_gives_the_same_message_for_a_number() -> None:
    matcher = toy(payload_bytes=4)
    publisher, subscriber = pair(matcher)
    key = kept(publisher.key)
    payloads, numbers = [b"a", b"b", b"c"], np.array([7, 2**64 - 1, 9], dtype=np.uint64)
    messages = publisher.encode(EVENTS, numbers, payloads=payloads)
    assert np.array_equal(messages[:, 16:24].copy().view("<u8")[:, 0], numbers)
    assert subscriber.open(messages).payloads == payloads
    # Run again, in batches of another order, by roles made of the same key.
    for row in (2, 0, 1):
        again = matcher.publisher(key)
        same = again.encode([EVENTS[row]], numbers[[row]], payloads=[payloads[row]])
        assert np.array_equal(same[0], messages[row])
    # Of another publisher, the same event under the same number is another message.
    other, _ = pair(matcher)
    assert not np.array_equal(
        other.encode(EVENTS[:1], [7], payloads=[b"a"])[0, 24:], messages[0, 24:]
    )


def test_each_number_and_payload_has_a_key_of_its_own() -> None:
    matcher = toy(payload_bytes=4)
    publisher, subscriber = pair(matcher, TEXTS[2:])
    count, place = 50, matcher.event_bytes
    payloads = [b"same"] * count
    messages = publisher.encode([EVENTS[0]] * count, payloads=payloads)
    (_, keys) = next(iter(subscriber._sessions.values()))[0]
    numbers = np.arange(count, dtype=np.uint64)
    slots = messages[:, place:]
    key = next(key for key in keys if key.recognizes(numbers, slots).all())
    opened = key.payload_keys(numbers, slots)
    assert len({row.tobytes() for row in opened}) == count
    # They follow from the payload secret, which the key holds.
    secret = SlotKey(bytes.fromhex(publisher.key.export_secret_data()["payload"]))
    assert np.array_equal(own_keys(secret, numbers, payloads), opened)
    assert not (own_keys(secret, numbers, [b"some"] * count) == opened).all(axis=1).any()
    assert (
        matcher.new_publisher(TEXTS).key.export_secret_data()["payload"]
        != publisher.key.export_secret_data()["payload"]
    )


def test_numbers_are_used_once_and_the_counter_goes_on_beyond_them() -> None:
    matcher = toy()
    publisher, _ = pair(matcher)
    numbers = [int(row[16:24].view("<u8")[0]) for row in publisher.encode(EVENTS)]
    assert numbers == [0, 1, 2]
    publisher.encode(EVENTS, numbers=np.array([10, 5, 20], dtype=np.uint64))
    for bad, problem in (
        ([2], "event number 2 was already used by this role"),
        ([6, 20], "event number 20 was already used"),
        ([6, 7, 6], "event number 6 occurs more than once in this batch"),
    ):
        refused(RandomnessReuseError, problem, publisher.encode, EVENTS[:1] * len(bad), numbers=bad)
    publisher.encode(EVENTS, numbers=[6, 7, 8])  # What was refused took none of them.
    after = publisher.encode(EVENTS[:2])
    assert after[:, 16:24].copy().view("<u8")[:, 0].tolist() == [21, 22]


def test_events_that_are_refused_take_no_number() -> None:
    publisher = toy(payload_bytes=2).new_publisher(TEXTS[:2])
    refused(EventError, "row 0 is of none", publisher.encode, EVENTS[:1], [3], payloads=[b""])
    with pytest.raises(ParameterError, match="payloads must have 2 bytes or less"):
        publisher.encode(EVENTS[1:2], [3], payloads=[b"long"])
    publisher.encode(EVENTS[1:2], [3], payloads=[b""])
    refused(RandomnessReuseError, "number 3", publisher.encode, EVENTS[1:2], [3], payloads=[b""])


def test_a_restored_publisher_takes_no_number_below_its_counter() -> None:
    matcher = toy()
    publisher, _ = pair(matcher)
    publisher.encode(EVENTS)
    again = matcher.publisher(kept(publisher.key))
    with pytest.raises(RandomnessReuseError, match=r"number 1 may have been used.* from 3 on"):
        again.encode(EVENTS, numbers=[7, 1, 8])
    assert again.encode(EVENTS[:1])[0, 16] == 3
    assert again.encode(EVENTS[:1], numbers=[8])[0, 16] == 8
    assert matcher.publisher(kept(again.key)).encode(EVENTS[:1])[0, 16] == 9


def test_the_counter_has_an_end() -> None:
    matcher = toy()
    publisher, subscriber = pair(matcher)
    last = publisher.encode(EVENTS[:1], numbers=[2**64 - 1])
    assert subscriber.open(last).matched.any()
    for role in (publisher, matcher.publisher(kept(publisher.key))):
        assert len(role.encode([])) == 0
        refused(RandomnessReuseError, "no 1 numbers left", role.encode, EVENTS[:1])
    publisher.encode(EVENTS[:1], numbers=[2**64 - 2])


def test_numbers_that_do_not_fit_are_refused() -> None:
    publisher = toy().new_publisher(TEXTS)
    bad: list[tuple[Any, str]] = [
        ([1, 2], "3 rows need 3 numbers, got 2"),
        ([1, -2, 3], "must not be negative, got -2"),
        ([1.0, 2.0, 3.0], "numbers must be a sequence of whole numbers, one per row, got float64"),
        ([[1], [2], [3]], r"got int64 of shape \(3, 1\)"),
        (["1", "2", "3"], "numbers must be a sequence of whole numbers"),
    ]
    for numbers, problem in bad:
        refused(ParameterError, problem, publisher.encode, EVENTS, numbers=numbers)
    refused(ParameterError, "0 rows need 0 numbers, got 1", publisher.encode, [], numbers=[1])
    assert publisher.encode(EVENTS)[:, 16].tolist() == [0, 1, 2]


def test_keys_of_something_else_are_refused() -> None:
    matcher, masks = toy(), AdditiveMaskMatch(SCHEMA)
    publisher, subscriber = pair(matcher)
    for make, mine, other in (
        (matcher.publisher, publisher.key, subscriber.key),
        (matcher.subscriber, subscriber.key, publisher.key),
    ):
        refused(KeyMismatchError, f"key of a {other.role}, wanted a {mine.role}'s", make, other)
        for key in (masks.key_server().publisher_key(), toy(4).new_publisher(TEXTS).key):
            refused(KeyMismatchError, "belongs to another matcher", make, key)
        with pytest.raises(
            KeyMismatchError, match=f"a {mine.role} needs a RoleKey, got SharedSeed"
        ):
            make(SharedSeed.generate())  # type: ignore[arg-type]


def leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is something in nested lists and dicts, at any depth."""
    if path:
        yield path
    if isinstance(data, (dict, list)):
        for name in data if isinstance(data, dict) else range(len(data)):
            yield from leaves(data[name], (*path, name))


def damages(key: RoleKey) -> Iterator[dict[str, Any]]:
    """Data of keys of which a part is gone, there twice, or of another kind."""
    for path in leaves(key.export_secret_data()):
        old = reduce(getitem, path, key.export_secret_data())
        wrongs: list[Any] = [None, 1.5, -1, "5x", True, [], {}]
        if path[0] == "subscribers" and path[2:] == (1,):
            wrongs.remove(None)  # Any number of requests.
        if path == ("sessions",):
            wrongs = wrongs[:-2]  # None are accepted yet.
        elif isinstance(old, (str, list)) and (path[0], path[2:]) != ("requests", (1,)):
            wrongs.append(old[1:])
        if path[0] in ("answered", "requests", "sessions", "topics") and len(path) == 1:
            wrongs.append([*old, old[0]])
        for wrong in wrongs:
            data = key.export_secret_data()
            reduce(getitem, path[:-1], data)[path[-1]] = wrong
            yield data
    for name in key.export_secret_data():
        data = key.export_secret_data()
        del data[name]
        yield data


def test_damaged_keys_are_refused() -> None:
    publisher, subscriber = pair(matcher := toy(), TEXTS[:2])
    for make, mine in ((matcher.publisher, publisher.key), (matcher.subscriber, subscriber.key)):
        assert make(mine).key == mine
        for data in damages(mine):
            broken = RoleKey.make(mine.matcher, mine.role, mine.key_id, 0, data)
            caught = refused(KeyMismatchError, "this role key is damaged", make, broken)
            assert caught.__context__ is None
        data = mine.export_secret_data()
        for changed in (
            RoleKey.make(mine.matcher, mine.role, bytes(6), 0, data),  # of another identity
            RoleKey.make(mine.matcher, mine.role, mine.key_id, 0, data | {"signing": "00" * 32}),
        ):
            refused(KeyMismatchError, "this role key is damaged", make, changed)
        # A digit that was changed in the text.
        text = mine.to_text()
        with pytest.raises(KeyMismatchError, match="key, but damaged"):
            RoleKey.from_text(text[:-9] + ("1" if text[-9] == "0" else "0") + text[-8:])


def test_roles_show_and_hand_on_no_secret() -> None:
    publisher, subscriber = pair(toy(payload_bytes=4))
    mine, other = (role.key.export_secret_data() for role in (publisher, subscriber))
    secrets = {mine["payload"], mine["answers"], mine["signing"], *mine["keys"], *mine["topics"]}
    secrets |= {other["signing"], *(request[1] for request in other["requests"])}
    slot_key = publisher._keys[0][0]
    signing = publisher._signing
    for holder in (publisher, subscriber, publisher.key, slot_key, signing, publisher._numbers):
        for turn in (pickle.dumps, copy.copy, copy.deepcopy):
            refused(SerializationError, "must not be pickled", turn, holder)
        shown = f"{holder!r} {holder} {[holder]}"
        assert not any(secret[:8] in shown for secret in secrets)
