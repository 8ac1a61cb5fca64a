"""PrefixMatch: encrypted answers are plaintext answers, covering is containment, bad input is
refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps import Category, Keyword, Schema, Text, UInt
from ccbps.errors import DecodeError, ParameterError
from ccbps.forms.prefixes import most_prefixes, range_prefixes
from ccbps.matching.broken import PrefixMatch
from ccbps.matching.broken.cells import GROUP
from ccbps.matching.broken.prefix import UNUSED
from ccbps.wire import Cause
from tests.support.effort import examples
from tests.support.refusals import refused
from tests.support.reusable_checks import (
    BODY,
    answers,
    check_answers,
    check_covering,
    plain,
    roles,
    sealed,
)
from tests.support.strategies import schemas, small_types

Bytes = NDArray[np.uint8]
SCHEMA = Schema(issue=Category(["AAPL", "GOOG", "IBM", "MSFT"]), price=UInt(16), note=Text(3))


# -- answers ------------------------------------------------------------------------------------


@given(schema=schemas(), data=st.data())
@settings(max_examples=examples(150))
def test_answers_are_the_plaintext_meaning(schema: Schema, data: st.DataObject) -> None:
    if all(schema[name].bits <= 128 for name in schema):
        check_answers(PrefixMatch(schema), data)


@given(
    kind=st.builds(UInt, st.integers(1, 64), nullable=st.booleans())
    | st.builds(Text, st.integers(8, 15), nullable=st.booleans()),
    data=st.data(),
)
@settings(max_examples=examples(100))
def test_intervals_of_every_width(kind: UInt | Text, data: st.DataObject) -> None:
    schema = Schema(x=kind)
    value: st.SearchStrategy[Any]
    if isinstance(kind, Text):
        value = st.text("abé", max_size=3)
    else:
        value = st.integers(0, 2**kind.width - 1) | st.integers(0, min(9, 2**kind.width - 1))
    bounds = data.draw(st.lists(st.tuples(value, value), min_size=1, max_size=5))
    edges = [{"x": x} for pair in bounds for x in pair]
    records = edges + [{"x": x} for x in data.draw(st.lists(value))]
    predicate = schema.parse("x BETWEEN :low AND :high")
    interests = [predicate.bind(low=min(pair), high=max(pair)) for pair in bounds]
    interests += [predicate.bind(low=pair[0], high=pair[1]) for pair in bounds]
    matches = answers(PrefixMatch(schema), records, interests)
    np.testing.assert_array_equal(matches, plain(schema, records, interests))


def test_more_interests_than_a_group() -> None:
    schema = Schema(x=UInt(12), y=UInt(6))
    publisher, subscriber, broker = roles(PrefixMatch(schema))
    rng = np.random.default_rng(7)
    records = {"x": rng.integers(0, 4096, 50), "y": rng.integers(0, 64, 50)}
    bounds = np.sort(rng.integers(0, 4096, size=(40, 2)), axis=1).tolist()
    some = [f"x BETWEEN {a} AND {b} AND y < {b % 70}" for a, b in bounds]
    messages = subscriber.encode(some)
    order = rng.integers(0, len(some), GROUP * 2 + 5)
    events = publisher.encode(records)
    matches = broker.match_all(events, broker.prepare(messages[order]))
    expected = plain(schema, records, some)[:, order]
    np.testing.assert_array_equal(matches, expected)
    pairs = np.arange(50)
    np.testing.assert_array_equal(
        broker.match(events, messages[order[:50]]), expected[pairs, pairs]
    )


# -- covering -----------------------------------------------------------------------------------


@given(schema=schemas(small_types(), max_attributes=3), data=st.data())
@settings(max_examples=examples(60))
def test_covering_is_containment_of_boxes(schema: Schema, data: st.DataObject) -> None:
    check_covering(PrefixMatch(schema), data)


@pytest.mark.parametrize("bits", [10, 60])
def test_covering_of_many_intervals(bits: int) -> None:
    schema = Schema(x=UInt(bits))
    _, subscriber, broker = roles(PrefixMatch(schema))
    rng = np.random.default_rng(bits)
    ends = np.sort(rng.integers(0, 2**bits, size=(60, 2), dtype=np.uint64), axis=1)
    ends[::7, 0] = 0
    ends[::5, 1] = 2**bits - 1
    messages = subscriber.encode([f"x BETWEEN {a} AND {b}" for a, b in ends.tolist()])
    low, high = ends.T
    expected = (low[:, None] <= low) & (high[:, None] >= high)
    np.testing.assert_array_equal(broker.covers(messages, messages), expected)
    wide = broker.prepare(messages[np.arange(GROUP + 30) % 60])
    many = broker.covers(wide, messages)
    np.testing.assert_array_equal(many, expected[np.arange(GROUP + 30) % 60])


# -- messages -----------------------------------------------------------------------------------


def test_widths() -> None:
    matcher = PrefixMatch(Schema(x=UInt(16), y=UInt(3), z=UInt(1)))
    assert matcher.sizes.event == 2 + 1 + 1
    assert matcher.sizes.interest == 30 * 3 + 4 * 2 + 1 * 2
    exact = PrefixMatch(Schema(w=Keyword(64)))
    assert exact.sizes.interest == 9


def test_slots_hold_the_worst_range() -> None:
    schema = Schema(x=UInt(7))
    publisher, subscriber, broker = roles(PrefixMatch(schema))
    messages = subscriber.encode("x BETWEEN 1 AND 126")
    lengths = messages[0, BODY].reshape(-1, 2)[:, 1]
    assert len(lengths) == most_prefixes(7) == 12 and (lengths != UNUSED).all()
    assert len(range_prefixes(1, 2**128 - 2, 128)) == most_prefixes(128) == 254
    matches = broker.match_all(publisher.encode({"x": np.arange(128)}), messages)[:, 0]
    assert np.flatnonzero(~matches).tolist() == [0, 127]


def test_slots_are_in_the_order_of_ciphertexts() -> None:
    # In the order of plaintexts, every two of them would give away the flip at their fork.
    schema = Schema(x=UInt(16))
    in_order = 0
    for _ in range(8):
        _, subscriber, _ = roles(PrefixMatch(schema))
        slots = subscriber.encode("x BETWEEN 1 AND 65534")[0, BODY].reshape(-1, 3)
        values = slots[:, 0].astype(int) << 8 | slots[:, 1]
        assert (np.diff(values) > 0).all()
        plain = [length for _, length in range_prefixes(1, 65534, 16)]
        in_order += slots[:, 2].tolist() == plain
    assert in_order <= 1


def test_upper_bound_of_the_domain_costs_no_prefixes() -> None:
    schema = Schema(c=Category([f"v{i}" for i in range(5)]))  # 5 of 8 codes
    _, subscriber, _ = roles(PrefixMatch(schema))
    slots = subscriber.encode(["c >= 'v4'", "c <= 'v4'"])[:, BODY].reshape(2, -1, 2)
    assert slots[0, :, 1].tolist() == [1, UNUSED, UNUSED, UNUSED]
    assert slots[1, :, 1].tolist() == [0, UNUSED, UNUSED, UNUSED]


def test_encoding_is_the_same_for_all_clients_of_a_key_and_for_no_others() -> None:
    matcher = PrefixMatch(SCHEMA)
    server, other = matcher.key_server(), matcher.key_server()
    text = "price < 300 AND issue = 'IBM'"
    alice = matcher.subscriber(server.subscriber_key("alice")).encode(text)
    bob = matcher.subscriber(server.subscriber_key("bob")).encode(text)
    carol = matcher.subscriber(other.subscriber_key("carol")).encode(text)
    assert (alice == bob).all()
    assert (alice[:, BODY] != carol[:, BODY]).any()


# -- what is refused ----------------------------------------------------------------------------


def test_wide_attributes_are_refused() -> None:
    with pytest.raises(ParameterError, match="'note' must have at most 128 bits"):
        PrefixMatch(Schema(price=UInt(8), note=Text(40)))


SMALL = roles(PrefixMatch(Schema(x=UInt(12))))


def good_event() -> Bytes:
    return SMALL[0].encode({"x": [5]})


def test_events_with_bits_beyond_the_width_are_refused() -> None:
    event = good_event()
    event[0, BODY][-1] |= 1
    sealed(SMALL[0], event)
    assert SMALL[2].examine_events(event).tolist() == [Cause.VALUE]
    refused(DecodeError, "row 0", SMALL[2].match_all, event, SMALL[1].encode("x = 1"))


WRONG_SLOTS = {
    "too long": [[0, 0, 13]],
    "bits after the prefix": [[0x10, 0x10, 4]],
    "bits after the width": [[0x10, 0x01, 12]],
    "value in a free slot": [[1, 0, UNUSED]],
    "free slot before a used one": [[0, 0, UNUSED], [0x10, 0, 4]],
    "not ascending": [[0x20, 0, 4], [0x10, 0, 4]],
    "twice": [[0x10, 0, 4], [0x10, 0, 4]],
    "one within another": [[0x10, 0, 4], [0x18, 0, 5]],
    "whole twice": [[0, 0, 0], [0, 0, 0]],
    "after the whole": [[0, 0, 0], [0x10, 0, 4]],
}


@pytest.mark.parametrize("chosen", WRONG_SLOTS.values(), ids=WRONG_SLOTS)
def test_malformed_interests_are_refused(chosen: list[list[int]]) -> None:
    _, subscriber, broker = SMALL
    interests = subscriber.encode(["x = 1", "x = 1", "FALSE"])
    slots = interests[1, BODY].reshape(-1, 3)
    slots[:] = [0, 0, UNUSED]
    slots[: len(chosen)] = chosen
    interests[1, BODY] = slots.reshape(-1)
    sealed(subscriber, interests)
    assert broker.examine_interests(interests).tolist() == [0, Cause.VALUE, 0]
    assert refused(DecodeError, "row 1", broker.match_all, good_event(), interests).rows == (1,)


@given(body=st.binary(min_size=66, max_size=66))
def test_random_interests_are_refused_or_matched(body: bytes) -> None:
    _, subscriber, broker = SMALL
    interests = subscriber.encode("x = 1")
    interests[0, BODY] = np.frombuffer(body, dtype=np.uint8)
    sealed(subscriber, interests)
    if not broker.examine_interests(interests).any():
        assert broker.match_all(good_event(), interests).shape == (1, 1)
