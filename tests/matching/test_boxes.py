"""Matchers of boxes that have a known attack: masks, prefixes and blinded comparisons.

Encrypted answers are plaintext answers, covering is containment, and bad input is refused. Toy
moduli can be factored; they make the tests fast.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps import Category, Decimal, Keyword, Schema, Text, UInt
from ccbps.algebra.modular import integer, rows_from, rows_to
from ccbps.ciphers.nabeel import NabeelComparer
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import DecodeError, ParameterError, SerializationError
from ccbps.forms.prefixes import most_prefixes, range_prefixes
from ccbps.matching.broken import AdditiveMaskMatch, PaillierRangeMatch, PrefixMatch
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
    secrets_of,
)
from tests.support.strategies import schemas, small_types

Bytes = NDArray[np.uint8]
SCHEMA = Schema(issue=Category(["AAPL", "GOOG", "IBM", "MSFT"]), price=UInt(16))
LARGEST = 2**62
NO_DRAW: Any = None


TOY = 256
BITS = {AdditiveMaskMatch: 61, PrefixMatch: 128, PaillierRangeMatch: TOY - 67}
"""Greatest width of an attribute."""


def made(kind: Any, schema: Schema) -> Any:
    return PaillierRangeMatch(schema, TOY, toy=True) if kind is PaillierRangeMatch else kind(schema)


@pytest.mark.parametrize("kind", BITS)
@given(schema=schemas(), data=st.data())
@settings(max_examples=examples(120))
def test_answers_are_the_plaintext_meaning(kind: Any, schema: Schema, data: st.DataObject) -> None:
    if any(schema[name].bits > BITS[kind] for name in schema):
        refused(ParameterError, "at most .* bits|need a modulus of at least", made, kind, schema)
    else:
        check_answers(made(kind, schema), data)


@pytest.mark.parametrize("kind", [AdditiveMaskMatch, PrefixMatch])
@given(schema=schemas(small_types(), max_attributes=3), data=st.data())
@settings(max_examples=examples(60))
def test_covering_is_containment_of_boxes(kind: Any, schema: Schema, data: st.DataObject) -> None:
    check_covering(kind(schema), data)


# -- masks ----------------------------------------------------------------------------------------


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


# -- prefixes -------------------------------------------------------------------------------------


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
    # The flips of 31 nodes of the tree; those of a few would be equal under two keys now and then.
    text = "price BETWEEN 1 AND 65534 AND issue = 'IBM'"
    alice = matcher.subscriber(server.subscriber_key("alice")).encode(text)
    bob = matcher.subscriber(server.subscriber_key("bob")).encode(text)
    carol = matcher.subscriber(other.subscriber_key("carol")).encode(text)
    assert (alice == bob).all()
    assert (alice[:, BODY] != carol[:, BODY]).any()


def test_wide_attributes_are_refused_by_name() -> None:
    schema = Schema(price=UInt(8), note=Text(40))
    for kind, message in (
        (AdditiveMaskMatch, "'note' must have at most 61 bits"),
        (PrefixMatch, "'note' must have at most 128 bits"),
        (PaillierRangeMatch, "attribute 'note': values of"),
    ):
        refused(ParameterError, message, made, kind, schema)


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


# -- blinded comparisons ---------------------------------------------------------------------------

QUOTES = Schema(
    issue=Category(["AAPL", "GOOG", "IBM", "MSFT"]), price=Decimal(0, 1000, "0.01"), volume=UInt(32)
)
TEXTS = [
    "issue = 'IBM' AND price < 120 AND volume > 1000",
    "price BETWEEN 100 AND 120",
    "volume = 0",
    "TRUE",
    "price < 5 AND price > 6",
]


MATCHER = made(PaillierRangeMatch, QUOTES)
SERVER = MATCHER.key_server()
PUBLISHER, SUBSCRIBER, BROKER = roles(MATCHER, SERVER)
BROKER_KEY = SERVER.broker_key().export_secret_data()
RECORDS: list[dict[str, Any]] = [
    {"issue": "IBM", "price": 119.50, "volume": 2500},
    {"issue": "IBM", "price": 120.00, "volume": 1000},
    {"issue": "AAPL", "price": 0, "volume": 0},
    {"issue": "MSFT", "price": 1000, "volume": 2**32 - 1},
]


@given(st.lists(st.integers(0, 2**16 - 1), min_size=1), st.data())
@settings(max_examples=examples(40))
def test_intervals_and_their_edges(values: list[int], data: st.DataObject) -> None:
    schema = Schema(x=UInt(16))
    edge = st.sampled_from([0, 2**16 - 1, *values]) | st.integers(0, 2**16 - 1)
    pairs = data.draw(st.lists(st.tuples(edge, edge), min_size=1, max_size=6))
    texts = [f"x BETWEEN {min(p)} AND {max(p)}" for p in pairs] + [f"x = {p[0]}" for p in pairs]
    texts += [f"x < {p[0]}" for p in pairs] + [f"x BETWEEN {p[0]} AND {p[1]}" for p in pairs]
    matches = answers(made(PaillierRangeMatch, schema), {"x": values}, texts)
    np.testing.assert_array_equal(matches, plain(schema, {"x": values}, texts))


def test_answers_are_those_of_a_modular_product_for_every_comparison() -> None:
    """The table's way (sums against a reference, ranks) against D(E_p E_s), pair by pair."""
    events, interests = PUBLISHER.encode(RECORDS), SUBSCRIBER.encode(TEXTS)
    key = BROKER_KEY
    comparer = NabeelComparer(integer(key["n"]), integer(key["mu"]))
    size, want = TOY // 4, np.ones((len(events), len(interests)), dtype=np.bool_)
    for i, event in enumerate(events[:, BODY]):
        values = rows_from(event.reshape(-1, size))
        for j, interest in enumerate(interests[:, BODY]):
            bounds = rows_from(interest.reshape(-1, size))
            for value, low, high in zip(values, bounds[::2], bounds[1::2], strict=True):
                want[i, j] &= comparer.at_least(value, low) and not comparer.at_least(value, high)
    np.testing.assert_array_equal(BROKER.match_all(events, interests), want)
    table = BROKER.prepare(interests)
    np.testing.assert_array_equal(BROKER.match_all(events, table), want)
    np.testing.assert_array_equal(BROKER.match(events[[0, 1, 3]], interests[[0, 0, 3]]), [1, 0, 1])
    assert want[0].tolist() == [True, True, False, True, False]


def test_events_are_randomized_and_bounds_are_not() -> None:
    first, second = PUBLISHER.encode(RECORDS), PUBLISHER.encode(RECORDS)
    assert (first[:, BODY] != second[:, BODY]).any(axis=1).all()
    assert np.array_equal(SUBSCRIBER.encode(TEXTS), SUBSCRIBER.encode(TEXTS))


def test_bytes_that_no_client_wrote_are_refused() -> None:
    n = integer(BROKER_KEY["n"])
    size = TOY // 4
    events, interests = PUBLISHER.encode(RECORDS), SUBSCRIBER.encode(TEXTS)
    for role, messages, examine, match in (
        (PUBLISHER, events, BROKER.examine_events, lambda m: BROKER.match_all(m, interests)),
        (SUBSCRIBER, interests, BROKER.examine_interests, BROKER.prepare),
    ):
        (good,) = rows_from(messages[:1, BODY][:, -size:])
        for wrong in (0, 1, n, good - 1, good + n * n, 2 ** (8 * size) - 1):
            bad = messages.copy()
            bad[2, BODY][-size:] = rows_to([wrong % 2 ** (8 * size)], size)
            sealed(role, bad)
            assert examine(bad).tolist()[:4] == [0, 0, Cause.VALUE, 0]
            refused(DecodeError, r"row 2: .* holds a value that no message", match, bad)


@pytest.mark.parametrize(
    ("bits", "toy", "message"),
    [
        (1024, False, "from 2,048 to 16,384, got 1024"),
        (112, True, "from 128 to 16,384, got 112"),
        (2056, False, "a multiple of 16"),
        ("2048", False, "must be a whole number"),
    ],
)
def test_moduli_out_of_range_are_refused(bits: Any, toy: bool, message: str) -> None:
    refused(ParameterError, message, PaillierRangeMatch, QUOTES, bits, toy)


def test_a_toy_is_kept_as_one() -> None:
    assert MATCHER.sizes.interest == 6 * TOY // 4
    assert PaillierRangeMatch(QUOTES, 272, toy=True) != MATCHER
    again = PaillierRangeMatch.from_parameters(QUOTES, MATCHER.parameters())
    assert (again.modulus_bits, again.toy) == (TOY, True)


def test_keys_hold_what_their_role_may_know() -> None:
    server = MATCHER.key_server()
    keys = server.key, server.broker_key(), server.publisher_key(), server.subscriber_key("a")
    master, broker, publisher, subscriber = [secrets_of(key) for key in keys]
    assert set(broker) == {"n", "mu", "attributes"}
    for data in (broker, publisher, subscriber):
        text = json.dumps(data)
        assert master["p"] not in text and master["q"] not in text
    shown = repr(server) + repr(server.key) + repr(MATCHER.publisher(server.publisher_key()))
    for secret in (master["p"], master["kappa"], *(a["r"] for a in master["attributes"])):
        assert secret not in json.dumps(broker) + shown
    assert len({a["r"] for a in master["attributes"]}) == len(QUOTES)
    refused(SerializationError, "", pickle.dumps, server.key)
    assert MATCHER.key_server(type(server.key).from_text(server.key.to_text())).key == server.key


@pytest.mark.slow
def test_full_size() -> None:
    matches = answers(PaillierRangeMatch(QUOTES), RECORDS, TEXTS)
    np.testing.assert_array_equal(matches, plain(QUOTES, RECORDS, TEXTS))
