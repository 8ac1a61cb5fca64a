"""ObliviousTopicMatch: subscribers open the events of their topics; bad input is refused."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Category, Schema, UInt
from ccbps.errors import (
    DecodeError,
    EventError,
    ParameterError,
    PredicateError,
    UnsupportedPredicateError,
)
from ccbps.matching import ObliviousTopicMatch
from ccbps.wire import HEADER_BYTES
from tests.topic_strategies import equalities, topics_and_records

SCHEMA = Schema(issue=Category(["AAPL", "GOOG", "IBM"]), price=UInt(8))
TEXTS = ["issue = 'AAPL'", "issue = 'GOOG'", "issue = 'IBM'"]
EVENTS = [{"issue": name, "price": 7} for name in ("IBM", "GOOG", "IBM")]


def toy(payload_bytes: int = 0) -> ObliviousTopicMatch:
    return ObliviousTopicMatch(SCHEMA, ["issue"], payload_bytes=payload_bytes, group="toy64")


@given(drawn=topics_and_records(), data=st.data(), payload=st.sampled_from([0, 9]))
@settings(max_examples=60, deadline=None)
def test_answers_are_the_plaintext_meaning(drawn: Any, data: st.DataObject, payload: int) -> None:
    schema, attributes, texts, records = drawn
    matcher = ObliviousTopicMatch(schema, attributes, payload_bytes=payload, group="toy64")
    own = {equalities(schema, row, attributes) for row in map(dict, records)}
    by_topic = {matcher._layout.topic(text): text for text in own}
    subscribers = [matcher.subscriber(), matcher.subscriber()]
    requests = [subscriber.encode(texts) for subscriber in subscribers]
    if not by_topic:
        with pytest.raises(ParameterError, match="one topic or more"):
            matcher.publisher([])
        return
    publisher = matcher.publisher(data.draw(st.permutations(list(by_topic.values()))))
    sessions = publisher.answer(np.vstack(requests))
    payloads = [b"%d" % row for row in range(len(records))]
    events = publisher.encode(records, payloads if payload else None)
    wanted = np.array([schema.parse(text).evaluate(records) for text in texts]).T
    for subscriber in subscribers:
        assert subscriber.accept(sessions) == len(texts)
        opened = subscriber.open(events)
        assert np.array_equal(opened.matched, wanted)
        read = [text if any(row) else None for row, text in zip(wanted, payloads, strict=True)]
        assert opened.payloads == (read if payload else [None] * len(records))


def test_several_publishers_and_requests_that_come_later() -> None:
    matcher = toy(payload_bytes=4)
    alice, bob = matcher.subscriber(), matcher.subscriber()
    first, second = matcher.publisher(TEXTS), matcher.publisher(TEXTS[1:])
    wish = alice.encode([TEXTS[2], TEXTS[0]])
    assert alice.accept(first.answer(wish)) == 2
    before = first.encode(EVENTS, [b"a", b"b", b"c"])
    assert bob.accept(first.answer(bob.encode(TEXTS[1]))) == 1
    after = first.encode(EVENTS, [b"d", b"e", b"f"])
    assert after.shape[1] - before.shape[1] == 32
    assert alice.open(before).payloads == [b"a", None, b"c"]
    assert alice.open(after).matched.tolist() == [[True, False], [False, False], [True, False]]
    assert bob.open(before).payloads == [None] * 3
    assert bob.open(after).payloads == [None, b"e", None]
    sessions = second.answer(wish)
    # Two publishers in one batch; alice's interests keep their places.
    second.answer(matcher.subscriber().encode(TEXTS[1]))
    other = second.encode(EVENTS[:1], [b"g"])
    both = np.vstack([after, other])
    with pytest.raises(DecodeError, match="sessions were not accepted") as caught:
        alice.open(both)
    assert caught.value.rows == (3,)
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
    alice, bob = matcher.subscriber(), matcher.subscriber()
    publisher = matcher.publisher(TEXTS)
    sessions = publisher.answer(alice.encode(TEXTS))
    assert bob.accept(sessions) == 0
    with pytest.raises(DecodeError, match="not accepted"):
        bob.open(publisher.encode(EVENTS))
    assert alice.accept(sessions[::-1]) == 3


def test_empty_batches() -> None:
    matcher = toy()
    subscriber, publisher = matcher.subscriber(), matcher.publisher(TEXTS)
    assert subscriber.encode([]).shape == (0, matcher.request_bytes)
    assert publisher.answer(subscriber.encode([])).shape == (0, matcher.session_bytes(3))
    subscriber.accept(publisher.answer(subscriber.encode(TEXTS)))
    events = publisher.encode([])
    assert events.shape == (0, matcher.event_bytes(3))
    assert subscriber.open(events).matched.shape == (0, 3)


def test_messages_that_are_not_of_this_matcher_are_refused() -> None:
    matcher, other = toy(), toy(payload_bytes=16)
    subscriber, publisher = matcher.subscriber(), matcher.publisher(TEXTS)
    requests = subscriber.encode(TEXTS)
    with pytest.raises(DecodeError, match="row 0: not a request of this version and matcher"):
        publisher.answer(other.subscriber().encode(TEXTS))
    with pytest.raises(DecodeError, match="requests have 40 bytes, got 41"):
        publisher.answer(np.zeros((1, 41), dtype=np.uint8))
    with pytest.raises(DecodeError, match="uint8 array of shape"):
        publisher.answer(requests.tolist())
    sessions = publisher.answer(requests)
    for name, act, good in (
        ("request", publisher.answer, requests),
        ("session", subscriber.accept, sessions),
        ("event", subscriber.open, publisher.encode(EVENTS)),
    ):
        for column in (0, 1, 2, 7):
            bad = good.copy()
            bad[1, column] ^= 1
            with pytest.raises(DecodeError, match=f"row 1: not a {name}") as caught:
                act(bad)
            assert caught.value.rows == (1,)
    with pytest.raises(DecodeError, match="a multiple of 16, got"):
        subscriber.accept(sessions[:, :-1])


def test_elements_outside_the_group_are_refused_and_nothing_is_kept() -> None:
    matcher = toy()
    subscriber, publisher = matcher.subscriber(), matcher.publisher(TEXTS)
    requests = subscriber.encode(TEXTS)
    bad = requests.copy()
    bad[2, HEADER_BYTES : HEADER_BYTES + 8] = 0
    with pytest.raises(DecodeError, match="no element of toy64") as caught:
        publisher.answer(bad)
    assert caught.value.rows == (2,)
    assert publisher.requests == 0
    sessions = publisher.answer(requests)
    altered = sessions.copy()
    altered[1, -8:] = 0
    with pytest.raises(DecodeError, match="row 1: the response holds") as caught:
        subscriber.accept(altered)
    assert caught.value.rows == (1,)
    with pytest.raises(DecodeError, match="not accepted"):
        subscriber.open(publisher.encode(EVENTS))
    assert subscriber.accept(sessions) == 3


def test_altered_events_do_not_match_or_are_refused() -> None:
    matcher = toy(payload_bytes=8)
    subscriber, publisher = matcher.subscriber(), matcher.publisher(TEXTS)
    subscriber.accept(publisher.answer(subscriber.encode("issue = 'IBM'")))
    events = publisher.encode(EVENTS, [b"x", b"y", b"z"])
    fixed = matcher.event_bytes(0)
    for column in (HEADER_BYTES, fixed):  # the number, the slot's first block
        bad = events.copy()
        bad[2, column] ^= 1
        assert subscriber.open(bad).payloads == [b"x", None, None]
    for column in (fixed - 1, HEADER_BYTES + 8, fixed + 16):  # the payload, its key
        bad = events.copy()
        bad[2, column] ^= 1
        with pytest.raises(DecodeError, match="row 2: the payload was altered") as caught:
            subscriber.open(bad)
        assert caught.value.rows == (2,)


def test_events_and_payloads_that_do_not_fit_are_refused() -> None:
    matcher = toy(payload_bytes=2)
    publisher = matcher.publisher(TEXTS[:2])
    with pytest.raises(EventError, match="row 1 is of none of this publisher's topics") as caught:
        publisher.encode([EVENTS[1], EVENTS[0]])
    assert caught.value.row == 1
    assert "IBM" not in str(caught.value)
    with pytest.raises(ParameterError, match="1 payloads do not go with 2 events"):
        publisher.encode([EVENTS[1]] * 2, [b""])
    with pytest.raises(ParameterError, match="payload 0 must be bytes, 2 or less"):
        publisher.encode([EVENTS[1]], [b"123"])
    with pytest.raises(ParameterError, match="no payloads"):
        toy().publisher(TEXTS).encode(EVENTS, [b""] * 3)


def test_topics_and_interests_are_single_values() -> None:
    matcher = toy()
    for topics in ([], TEXTS[:1] * 2):
        with pytest.raises(ParameterError, match="one topic or more, each once"):
            matcher.publisher(topics)
    with pytest.raises(ParameterError, match="got a single one"):
        matcher.publisher(TEXTS[0])
    with pytest.raises(UnsupportedPredicateError, match="not part of the keyword"):
        matcher.publisher(["issue = 'IBM' AND price = 3"])
    with pytest.raises(UnsupportedPredicateError) as caught:
        matcher.subscriber().encode([TEXTS[0], "issue <> 'IBM'"])
    assert caught.value.row == 1
    with pytest.raises(PredicateError, match="call bind first"):
        matcher.subscriber().encode("issue = :x")
    with pytest.raises(ParameterError, match="got int"):
        matcher.subscriber().encode(5)
    other = Schema(issue=SCHEMA["issue"])
    with pytest.raises(ParameterError, match="another schema"):
        matcher.subscriber().encode(other.parse(TEXTS[0]))


def test_parameters_are_checked_and_kept() -> None:
    for size in (-1, 2**31, True):
        with pytest.raises(ParameterError, match="payload_bytes must be"):
            toy(payload_bytes=size)
    with pytest.raises(ParameterError, match="must name some of"):
        ObliviousTopicMatch(SCHEMA, ["volume"], group="toy64")
    with pytest.raises(ParameterError, match="group must be one of"):
        ObliviousTopicMatch(SCHEMA, group="toy")
    matcher = toy(payload_bytes=5)
    again = pickle.loads(pickle.dumps(matcher))
    assert again == matcher
    assert hash(again) == hash(matcher)
    assert matcher != toy()
    assert matcher != ObliviousTopicMatch(SCHEMA, ["issue"], payload_bytes=5)
    assert matcher != 5
    flags = matcher.reusable, matcher.rounds, matcher.has_key_server, matcher.covering
    assert flags == (True, False, False, False)
    assert matcher.operators == ("=", "and")
    assert matcher.leakage.security == "broken"
    assert ObliviousTopicMatch(SCHEMA).leakage.security == "computational"
    assert matcher.costs
    assert "AES block per pair" in matcher.explain()
    for role in (matcher.publisher(TEXTS), matcher.subscriber(), matcher):
        assert "IBM" not in repr(role)
