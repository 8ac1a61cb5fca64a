"""AdditiveMaskMatch and MaskedTopicMatch: encrypted answers are plaintext answers, covering is
containment, bad input is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps import Category, Keyword, Schema, Text, UInt
from ccbps.errors import DecodeError, ParameterError, UnsupportedPredicateError
from ccbps.matching import AdditiveMaskMatch, MaskedTopicMatch
from ccbps.matching.boxes.cells import GROUP
from ccbps.wire import HEADER_BYTES, Cause
from tests.reusable_checks import check_answers, check_covering, roles
from tests.strategies import record, rows, schemas, small_types

Words = NDArray[np.uint64]
SCHEMA = Schema(issue=Category(["AAPL", "GOOG", "IBM", "MSFT"]), price=UInt(16))
LARGEST = 2**62


# -- additive masks -----------------------------------------------------------------------------


@given(schema=schemas(), data=st.data())
@settings(max_examples=100)
def test_masked_answers_are_the_plaintext_meaning(schema: Schema, data: st.DataObject) -> None:
    if any(schema[name].bits > 61 for name in schema):
        with pytest.raises(ParameterError, match="less than 62 bits"):
            AdditiveMaskMatch(schema)
    else:
        check_answers(AdditiveMaskMatch(schema), data)


def test_largest_values_and_masks_do_not_wrap_around() -> None:
    schema = Schema(x=UInt(61))
    matcher = AdditiveMaskMatch(schema)
    data = matcher._generate(lambda count: b"\xff" * count)
    assert data["masks"] == [LARGEST - 1]
    key = {"masks": data["masks"]}
    values = [0, 1, 2**61 - 2, 2**61 - 1]
    bodies = np.zeros((4, 8), dtype=np.uint8)
    matcher._encode_events(key, schema.encode({"x": values}), bodies, lambda n: b"")
    assert not matcher._check_events({}, bodies).any()
    texts = ["x >= 1", f"x > {2**61 - 2}", "x < 1", "x >= 0"]
    prepared = [matcher._prepare(text) for text in texts]
    wanted = np.zeros((4, 16), dtype=np.uint8)
    matcher._encode_interests(key, prepared, wanted, lambda n: b"")
    assert not matcher._check_interests({}, wanted).any()
    found = matcher._match_all({}, bodies, matcher._table({}, wanted))
    expected = np.stack([schema.parse(text).evaluate({"x": values}) for text in texts], axis=1)
    np.testing.assert_array_equal(found, expected)


def test_more_masked_interests_than_a_group() -> None:
    publisher, subscriber, broker = roles(AdditiveMaskMatch(SCHEMA))
    rng = np.random.default_rng(3)
    prices = rng.integers(0, 2**16, 100)
    bounds = np.sort(rng.integers(0, 2**16, size=(GROUP + 60, 2)), axis=1)
    # Made from one subscription by hand: the parser would take most of the time.
    one = subscriber.encode("price BETWEEN 0 AND 0 AND issue = 'IBM'")
    many = np.repeat(one, len(bounds), axis=0)
    words = many[:, HEADER_BYTES:].reshape(-1, 4, 8).view("<u8")[:, :, 0]
    words[:, 2:] += bounds.astype(np.uint64)
    issues = np.array(["IBM", "MSFT"])[rng.integers(0, 2, 100)]
    events = publisher.encode({"price": prices, "issue": issues.tolist()})
    low, high = bounds.T
    expected = (prices[:, None] >= low) & (prices[:, None] <= high) & (issues == "IBM")[:, None]
    np.testing.assert_array_equal(broker.match_all(events, many), expected)
    inside = (low[:, None] <= low) & (high[:, None] >= high)
    np.testing.assert_array_equal(broker.covers(many, many), inside)


@given(schema=schemas(small_types(), max_attributes=3), data=st.data())
@settings(max_examples=50)
def test_covering_is_containment_of_boxes(schema: Schema, data: st.DataObject) -> None:
    check_covering(AdditiveMaskMatch(schema), data)


def with_words(message: NDArray[np.uint8], words: list[int]) -> NDArray[np.uint8]:
    out = message.copy()
    out[0, HEADER_BYTES:] = np.array(words, dtype="<u8").view(np.uint8)
    return out


def test_masked_values_that_no_key_gives_are_refused() -> None:
    publisher, subscriber, broker = roles(AdditiveMaskMatch(SCHEMA))
    event = publisher.encode([{"issue": "IBM", "price": 3}])
    interest = subscriber.encode("price = 3")
    # At most 2^62 - 1 + 3 for the issue and 2^62 - 1 + 65535 for the price.
    highest = [LARGEST + 2, LARGEST + 65534]
    assert broker.examine_events(with_words(event, highest)).tolist() == [0]
    for words in ([LARGEST + 4, 0], [0, LARGEST + 2**16], [2**64 - 1, 0]):
        assert broker.examine_events(with_words(event, words)).tolist() == [Cause.VALUE]
    for words in ([0, 0, 0, 0], [3, 2, 5, 9]):
        assert broker.examine_interests(with_words(interest, words)).tolist() == [0]
    for words in ([0, 0, 0, LARGEST + 2**16], [3, 1, 0, 0], [2**64 - 1, 0, 0, 0]):
        wrong = with_words(interest, words)
        assert broker.examine_interests(wrong).tolist() == [Cause.VALUE]
        with pytest.raises(DecodeError, match="row 0"):
            broker.match_all(event, wrong)


def test_masks_are_uniform_below_their_bound() -> None:
    matcher = AdditiveMaskMatch(SCHEMA)
    masks = [matcher.key_server().key.export_secret_data()["masks"] for _ in range(200)]
    top = np.array(masks, dtype=np.uint64).reshape(-1) >> np.uint64(59)
    assert sorted(set(top.tolist())) == list(range(8))


# -- masked topics ------------------------------------------------------------------------------


@given(
    schema=schemas(small_types(), max_attributes=3)
    | st.builds(
        lambda k, t: Schema(k=k, t=t),
        st.builds(Keyword, st.sampled_from([48, 128]), nullable=st.booleans()),
        st.builds(Text, st.sampled_from([3, 20]), nullable=st.booleans()),
    ),
    data=st.data(),
)
@settings(max_examples=60)
def test_topic_answers_are_the_plaintext_meaning(schema: Schema, data: st.DataObject) -> None:
    publisher, subscriber, broker = roles(MaskedTopicMatch(schema))
    records = [record(row) for row in data.draw(rows(schema))]
    texts = [
        " AND ".join(
            f"{name} IS NULL" if value is None else f"{name} = {literal(value)}"
            for name, value in row.items()
        )
        for row in [*records[:3], *map(record, data.draw(rows(schema, max_size=3)))]
    ]
    found = broker.match_all(publisher.encode(records), subscriber.encode(texts))
    for column, text in zip(found.T, texts, strict=True):
        assert column.tolist() == schema.parse(text).evaluate(records).tolist()
    messages = subscriber.encode(texts)
    same = [[schema.parse(a).box().ranges == schema.parse(b).box().ranges for b in texts]
            for a in texts]  # fmt: skip
    assert broker.covers(messages, messages).tolist() == same


def literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).upper()


def test_tokens_are_hmac_of_the_codes() -> None:
    matcher = MaskedTopicMatch(SCHEMA)
    server = matcher.key_server()
    key = bytes.fromhex(server.publisher_key().export_secret_data()["key"])
    event = matcher.publisher(server.publisher_key()).encode([{"issue": "IBM", "price": 300}])
    topic = (2).to_bytes(8, "little") + (300).to_bytes(8, "little")
    token = hmac.new(key, topic, hashlib.sha256).digest()[:16]
    assert event[0, HEADER_BYTES:].tobytes() == token


@pytest.mark.parametrize("text", ["issue = 'IBM'", "issue = 'IBM' AND price < 7", "FALSE"])
def test_interests_that_name_no_topic_are_refused(text: str) -> None:
    _, subscriber, _ = roles(MaskedTopicMatch(SCHEMA))
    with pytest.raises(UnsupportedPredicateError, match="names one value of"):
        subscriber.encode(text)


# -- both ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [AdditiveMaskMatch, MaskedTopicMatch])
def test_matchers_pickle_as_their_arguments(kind: Any) -> None:
    matcher = kind(SCHEMA)
    again = pickle.loads(pickle.dumps(matcher))
    assert again == matcher and again.schema == SCHEMA
    publisher, subscriber, broker = roles(again)
    event = publisher.encode([{"issue": "IBM", "price": 3}])
    assert broker.match_all(event, subscriber.encode("issue = 'IBM' AND price = 3")).all()


@pytest.mark.parametrize("kind", [AdditiveMaskMatch, MaskedTopicMatch])
def test_cards_costs_and_broker_keys(kind: Any) -> None:
    matcher = kind(SCHEMA)
    assert matcher.covering and matcher.leakage.attacks
    assert {cost.role for cost in matcher.costs} == {"publisher", "subscriber", "broker"}
    assert matcher.key_server().broker_key().export_secret_data() == {}
