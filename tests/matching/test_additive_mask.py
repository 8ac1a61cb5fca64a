"""AdditiveMaskMatch: encrypted answers are plaintext answers, covering is containment, bad input is
refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps import Category, Schema, UInt
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import DecodeError, ParameterError
from ccbps.matching.broken import AdditiveMaskMatch
from ccbps.matching.broken.cells import GROUP
from ccbps.wire import Cause
from tests.support.effort import examples
from tests.support.refusals import refused
from tests.support.reusable_checks import BODY, check_answers, check_covering, plain, roles, sealed
from tests.support.strategies import schemas, small_types

Words = NDArray[np.uint64]
SCHEMA = Schema(issue=Category(["AAPL", "GOOG", "IBM", "MSFT"]), price=UInt(16))
LARGEST = 2**62
NO_DRAW: Any = None


@given(schema=schemas(), data=st.data())
@settings(max_examples=examples(100))
def test_masked_answers_are_the_plaintext_meaning(schema: Schema, data: st.DataObject) -> None:
    if any(schema[name].bits > 61 for name in schema):
        refused(ParameterError, "at most 61 bits", AdditiveMaskMatch, schema)
    else:
        check_answers(AdditiveMaskMatch(schema), data)


def test_largest_values_and_masks_do_not_wrap_around() -> None:
    schema = Schema(x=UInt(61))
    matcher = AdditiveMaskMatch(schema)
    data = matcher.generate(lambda count: b"\xff" * count)
    assert data["masks"] == [LARGEST - 1]
    key = {"masks": data["masks"]}
    values = [0, 1, 2**61 - 2, 2**61 - 1]
    bodies = np.zeros((4, 8), dtype=np.uint8)
    matcher.encode_events(key, schema.encode({"x": values}), NO_DRAW, bodies)
    assert not matcher.check({}, "event", bodies).any()
    texts = ["x >= 1", f"x > {2**61 - 2}", "x < 1", "x >= 0"]
    prepared = [matcher.prepare(text) for text in texts]
    column = DictionaryColumn(prepared, np.arange(4))
    encoded = np.zeros((4, 16), dtype=np.uint8)
    matcher.encode_interests(key, column, NO_DRAW, encoded)
    assert not matcher.check({}, "interest", encoded).any()
    matches = matcher.match({}, bodies, matcher.table({}, encoded))
    np.testing.assert_array_equal(matches, plain(schema, {"x": values}, texts))


def test_more_masked_interests_than_a_group() -> None:
    publisher, subscriber, broker = roles(AdditiveMaskMatch(SCHEMA))
    rng = np.random.default_rng(3)
    prices = rng.integers(0, 2**16, 100)
    bounds = np.sort(rng.integers(0, 2**16, size=(GROUP + 60, 2)), axis=1)
    # Made from one subscription by hand: the parser would take most of the time.
    single = subscriber.encode("price BETWEEN 0 AND 0 AND issue = 'IBM'")
    many = np.repeat(single, len(bounds), axis=0)
    words = many[:, BODY].copy().view("<u8")
    words[:, 2:] += bounds.astype(np.uint64)
    many[:, BODY] = words.view(np.uint8)
    issues = np.array(["IBM", "MSFT"])[rng.integers(0, 2, 100)]
    sealed(subscriber, many)
    events = publisher.encode({"price": prices, "issue": issues.tolist()})
    low, high = bounds.T
    expected = (prices[:, None] >= low) & (prices[:, None] <= high) & (issues == "IBM")[:, None]
    np.testing.assert_array_equal(broker.match_all(events, many), expected)
    inside = (low[:, None] <= low) & (high[:, None] >= high)
    np.testing.assert_array_equal(broker.covers(many, many), inside)


@given(schema=schemas(small_types(), max_attributes=3), data=st.data())
@settings(max_examples=examples(50))
def test_covering_is_containment_of_boxes(schema: Schema, data: st.DataObject) -> None:
    check_covering(AdditiveMaskMatch(schema), data)


def with_words(role: Any, message: NDArray[np.uint8], words: list[int]) -> NDArray[np.uint8]:
    out = message.copy()
    out[0, BODY] = np.array(words, dtype="<u8").view(np.uint8)
    return sealed(role, out)


def test_masked_values_that_no_key_gives_are_refused() -> None:
    publisher, subscriber, broker = roles(AdditiveMaskMatch(SCHEMA))
    event = publisher.encode([{"issue": "IBM", "price": 3}])
    interest = subscriber.encode("price = 3")
    # At most 2^62 - 1 + 3 for the issue and 2^62 - 1 + 65535 for the price.
    highest = [LARGEST + 2, LARGEST + 65534]
    assert broker.examine_events(with_words(publisher, event, highest)).tolist() == [0]
    for words in ([LARGEST + 4, 0], [0, LARGEST + 2**16], [2**64 - 1, 0]):
        assert broker.examine_events(with_words(publisher, event, words)).tolist() == [Cause.VALUE]
    for words in ([0, 0, 0, 0], [3, 2, 5, 9]):
        assert broker.examine_interests(with_words(subscriber, interest, words)).tolist() == [0]
    for words in ([0, 0, 0, LARGEST + 2**16], [3, 1, 0, 0], [2**64 - 1, 0, 0, 0]):
        wrong = with_words(subscriber, interest, words)
        assert broker.examine_interests(wrong).tolist() == [Cause.VALUE]
        refused(DecodeError, "row 0", broker.match_all, event, wrong)


def test_masks_are_uniform_below_their_bound() -> None:
    matcher = AdditiveMaskMatch(SCHEMA)
    masks = [matcher.key_server().key.export_secret_data()["masks"] for _ in range(200)]
    top = np.array(masks, dtype=np.uint64).reshape(-1) >> np.uint64(59)
    assert sorted(set(top.tolist())) == list(range(8))
