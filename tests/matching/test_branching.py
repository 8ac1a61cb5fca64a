"""BranchingMatch: encrypted answers are plaintext answers, and whatever does not fit is refused."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from threading import Barrier
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps import (
    Bool,
    Category,
    Decimal,
    Int,
    Keyword,
    OneTimePad,
    Schema,
    SeedRing,
    SharedSeed,
    Text,
    Timestamp,
    UInt,
)
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import (
    CcbpsError,
    DecodeError,
    EventError,
    PadExhaustedError,
    ParameterError,
    PredicateSyntaxError,
    PredicateTypeError,
    RandomnessReuseError,
    SerializationError,
    ShapeError,
    UnknownAttributeError,
    UnsupportedPredicateError,
)
from ccbps.matching import (
    BranchingMatch,
    Broker,
    Matcher,
    OFSGPMatch,
    PublicFunctionMatch,
    Publisher,
    Subscriber,
)
from ccbps.predicates import Events, Predicate
from ccbps.wire import ROUND_HEADER_BYTES, TAG_BYTES, Cause
from tests.reference.ishai_kushilevitz import encode_event, encode_interest
from tests.support.effort import examples
from tests.support.strategies import predicates, record, rows, schemas

Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]
Roles = tuple[Publisher, Subscriber, Broker]

SEED = SharedSeed(bytes(range(32)))
SYMBOLS = ["IBM", "MSFT", "ORCL", "SAP", "TSM"]
QUOTES = Schema(issue=Category(SYMBOLS), price=Decimal(0, "655.35", "0.01"), volume=UInt(20))
TEMPLATE = "issue = :issue AND price < :price"


def roles(matcher: BranchingMatch, seed: SharedSeed | OneTimePad = SEED) -> Roles:
    return matcher.publisher(seed), matcher.subscriber(seed), matcher.broker()


def matched(matcher: BranchingMatch, events: Any, interest: Any, count: int) -> Any:
    publisher, subscriber, broker = roles(matcher)
    rounds = range(count)
    messages = publisher.encode(events, rounds), subscriber.encode(interest, rounds)
    return broker.match(*messages).tolist()


# -- answers ------------------------------------------------------------------------------------


def test_match_of_quotes_is_what_sql_says() -> None:
    quotes = [
        {"issue": "IBM", "price": 119.99, "volume": 1001},
        {"issue": "IBM", "price": 120.00, "volume": 1001},
        {"issue": "SAP", "price": 119.99, "volume": 1001},
        {"issue": "IBM", "price": 0, "volume": 1000},
    ]
    wanted = "issue = 'IBM' AND price < 120 AND volume > 1000"
    assert matched(BranchingMatch.box(QUOTES), quotes, wanted, 4) == [True, False, False, False]
    template = "issue = :issue AND price < :limit AND volume > 1000"
    values = {"issue": "IBM", "limit": 120}
    assert matched(BranchingMatch(QUOTES, template), quotes, values, 4) == [
        True, False, False, False
    ]  # fmt: skip


def assert_equals_plaintext(
    matcher: BranchingMatch, events: Events, interests: Sequence[Any], bound: Sequence[Predicate]
) -> None:
    """Row i pairs event i with interest i % len(interests); both answers must be common."""
    which = np.arange(events.count) % len(interests)
    column = DictionaryColumn(interests, which)
    expected = np.empty(events.count, np.bool_)
    for i, predicate in enumerate(bound):
        at = np.flatnonzero(which == i)
        expected[at] = predicate.evaluate(events.take(at))
    assert 0.1 < expected.mean() < 0.9
    publisher, subscriber, broker = roles(matcher)
    rounds = np.arange(events.count, dtype=np.uint64)
    messages = (
        publisher.encode(events, rounds),
        subscriber.encode(column, rounds),
    )
    assert np.array_equal(broker.match(*messages), expected)


def quotes(count: int, rng: np.random.Generator) -> Events:
    return QUOTES.encode(
        {
            "issue": rng.choice(SYMBOLS, count),
            "price": rng.integers(0, 65_536, count) / 100,
            "volume": rng.integers(0, 2**20, count),
        }
    )


def test_box_answers_40000_pairs_as_plaintext() -> None:
    rng = np.random.default_rng(1)

    def conditions() -> Iterator[str]:
        price, other = rng.integers(-5_000, 70_000, 2) / 100
        volume = int(rng.integers(0, 2**20))
        if rng.random() < 0.3:
            yield f"issue {rng.choice(['=', '>=', '<'])} '{rng.choice([*SYMBOLS, 'NONE'])}'"
        if rng.random() < 0.3:
            yield f"issue LIKE '{rng.choice(['I', 'S', 'M', 'T', ''])}%'"
        if rng.random() < 0.4:
            yield f"price BETWEEN {min(price, other)} AND {max(price, other)}"
        if rng.random() < 0.4:
            yield f"{rng.choice(['', 'NOT '])}price {rng.choice(['<', '<=', '>', '>='])} {other}"
        if rng.random() < 0.5:
            yield f"volume {rng.choice(['<', '<=', '>', '>='])} {volume}"
        yield "volume < 2000000"

    texts = [" AND ".join(conditions()) for _ in range(800)]
    bound = [QUOTES.parse(text) for text in texts]
    assert_equals_plaintext(BranchingMatch.box(QUOTES), quotes(40_000, rng), texts, bound)


@pytest.mark.parametrize("count", [7_500, pytest.param(30_000, marks=pytest.mark.slow)])
def test_template_answers_many_pairs_as_plaintext(count: int) -> None:
    rng = np.random.default_rng(2)
    matcher = BranchingMatch(
        QUOTES,
        "(issue IN (:a, :b, 'SAP') OR price < :p) AND NOT volume BETWEEN :low AND :high "
        "AND at_least(2, price >= :q, volume > 300000, hamming(volume, :v) <= 9)",
    )
    assert matcher.template is not None
    interests = [
        {
            "a": str(rng.choice(SYMBOLS)),
            "b": str(rng.choice([*SYMBOLS, "NONE"])),
            "p": float(rng.integers(-100, 66_000) / 100),
            "q": float(rng.integers(-100, 66_000) / 100),
            "low": int(low),
            "high": int(low + rng.integers(-1, 400_000)),
            "v": int(rng.integers(0, 2**20)),
        }
        for low in rng.integers(0, 2**20, count // 25)
    ]
    bound = [matcher.template.bind(**interest) for interest in interests]
    assert_equals_plaintext(matcher, quotes(count, rng), interests, bound)


def test_box_with_null_answers_30000_pairs_as_plaintext() -> None:
    rng = np.random.default_rng(3)
    schema = Schema(
        load=Int(9, nullable=True),
        city=Text(3, nullable=True),
        day=Timestamp("day", "2020-01-01", "2023-12-31"),
        urgent=Bool(nullable=True),
        tag=Keyword(48),
    )

    def some(values: list[Any], count: int = 30_000) -> list[Any]:
        return [values[i] for i in rng.integers(0, len(values), count)]

    offsets = rng.integers(0, 1461, 400).astype("m8[D]")
    days = [str(day) for day in np.datetime64("2020-01-01") + offsets]
    cities = ["", "a", "ab", "aé", "b", "bcd", "zz"]
    events = schema.encode(
        {
            "load": some([None, *range(-256, 256)]),
            "city": some([None, *cities]),
            "day": some(days),
            "urgent": some([None, True, False]),
            "tag": some(["x", "y"]),
        }
    )

    def conditions() -> Iterator[str]:
        if rng.random() < 0.4:
            yield f"load {rng.choice(['<', '<=', '>', '>='])} {rng.integers(-300, 300)}"
        if rng.random() < 0.2:
            yield rng.choice(["load IS NOT NULL", "load IS NULL", "NOT load < -200"])
        if rng.random() < 0.3:
            yield f"city {rng.choice(['>=', '<'])} '{rng.choice(cities)}'"
        if rng.random() < 0.2:
            yield f"city LIKE '{rng.choice(['a', 'b', 'zz', ''])}%'"
        if rng.random() < 0.2:
            yield rng.choice(["urgent", "NOT urgent", "urgent IS NULL", "urgent IS NOT NULL"])
        if rng.random() < 0.2:
            yield f"tag = '{rng.choice(['x', 'y', 'z'])}'"
        yield f"day {rng.choice(['<', '>='])} '{rng.choice(days)}'"

    texts = [" AND ".join(conditions()) for _ in range(600)]
    bound = [schema.parse(text) for text in texts]
    assert_equals_plaintext(BranchingMatch.box(schema), events, texts, bound)


@given(schema=schemas(max_attributes=3), data=st.data())
@settings(max_examples=examples(60))
def test_template_answers_as_plaintext_for_any_schema(schema: Schema, data: st.DataObject) -> None:
    drawn = data.draw(predicates(schema))
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    matcher = BranchingMatch(schema, drawn.text)
    expected = schema.parse(drawn.text).bind(**drawn.private).evaluate(events)
    assert matched(matcher, events, drawn.private, events.count) == expected.tolist()


@given(schema=schemas(max_attributes=3), data=st.data())
@settings(max_examples=examples(60))
def test_box_answers_as_plaintext_for_any_schema(schema: Schema, data: st.DataObject) -> None:
    drawn = data.draw(predicates(schema, hamming=False))
    predicate = schema.parse(drawn.text).bind(**drawn.private)
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    matcher = BranchingMatch.box(schema)
    try:
        predicate.box()
    except UnsupportedPredicateError:
        with pytest.raises(UnsupportedPredicateError):
            matcher.subscriber(SEED).encode(predicate, [0])
    else:
        expected = predicate.evaluate(events).tolist()
        assert matched(matcher, events, predicate, events.count) == expected


@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_interest_for_all_rows_equals_it_repeated(count: int) -> None:
    matcher, text = BranchingMatch.box(QUOTES), "price < 300"
    index = np.full(count, 1, np.intp)
    forms: list[Any] = [
        text,
        QUOTES.parse(text),
        [text] * count,
        [QUOTES.parse(text)] * count,
        DictionaryColumn(["volume = 3", text, "issue = 'SAP'"], index),
    ]
    found = [matcher.subscriber(SEED).encode(form, range(count)).tobytes() for form in forms]
    assert set(found) == {found[0]}


def test_interest_of_a_lazy_sequence_is_read_row_by_row() -> None:
    class Lazy(Sequence[Any]):
        def __len__(self) -> int:
            return 30

        def __getitem__(self, place: Any) -> Any:
            if place >= 30:
                raise IndexError
            return {"issue": "IBM", "price": float(place)}

    events = {"issue": ["IBM"] * 30, "price": [14.5] * 30, "volume": [0] * 30}
    found = matched(BranchingMatch(QUOTES, TEMPLATE), events, Lazy(), 30)
    assert found == [place > 14.5 for place in range(30)]


def test_interest_that_no_row_uses_is_not_looked_at() -> None:
    column = DictionaryColumn[Any](["price < 3", "no predicate at all"], np.zeros(2, np.intp))
    found = BranchingMatch.box(QUOTES).subscriber(SEED).encode(column, [0, 1])
    assert np.array_equal(
        found, BranchingMatch.box(QUOTES).subscriber(SEED).encode("price < 3", [0, 1])
    )


def test_messages_are_written_where_the_caller_wants_them() -> None:
    matcher = BranchingMatch.box(QUOTES)
    events = quotes(300, np.random.default_rng(4))
    out = np.empty((300, matcher.event_bytes), np.uint8)
    assert matcher.publisher(SEED).encode(events, range(300), out=out) is out
    assert np.array_equal(out, matcher.publisher(SEED).encode(events, range(300)))
    frozen = out.copy()
    frozen.flags.writeable = False
    publisher = matcher.publisher(SEED)
    wrong: list[Any] = [out[:, :-1], out[:, ::-1], frozen, out.astype(np.int8), [1, 2]]
    for bad in wrong:
        with pytest.raises(ShapeError, match="out must be a writeable C-contiguous uint8 array"):
            publisher.encode(events, range(300), out=bad)
    publisher.encode(events, range(300), out=out)  # no round was used


# -- rounds, pairs, pads ------------------------------------------------------------------------


def test_rounds_can_be_provisioned_before_events_and_used_in_any_order() -> None:
    matcher = BranchingMatch.box(QUOTES)
    publisher, subscriber, broker = roles(matcher)
    events = quotes(500, np.random.default_rng(5))
    provisioned = subscriber.encode("price < 300", range(10_000, 11_000))
    rounds = np.random.default_rng(6).permutation(1000)[:500]
    sent = publisher.encode(events, 10_000 + rounds)
    expected = QUOTES.parse("price < 300").evaluate(events)
    assert np.array_equal(broker.match(sent, provisioned[rounds]), expected)


@pytest.mark.parametrize("first", [0, 2**32 - 2, 2**64 - 4])
def test_rounds_may_be_as_large_as_64_bits(first: int) -> None:
    publisher, subscriber, broker = roles(BranchingMatch.box(QUOTES))
    rounds = np.array([first + i for i in (2, 0, 3)], np.uint64)
    events = {"issue": ["IBM", "SAP", "TSM"], "price": [1, 2, 3], "volume": [0, 0, 0]}
    messages = publisher.encode(events, rounds), subscriber.encode("issue != 'IBM'", rounds)
    assert broker.match(*messages).tolist() == [False, True, True]


def test_publisher_serves_many_pairs_by_label() -> None:
    matcher = BranchingMatch.box(QUOTES)
    wanted = {"alice": "price < 300", "bob": "volume > 500000", "zoë": "issue >= 'ORCL'"}
    events = quotes(60, np.random.default_rng(7))
    spread = events.take(np.repeat(np.arange(60), 3))
    labels, rounds = list(wanted) * 60, np.repeat(np.arange(60), 3)
    sent = matcher.publisher(SEED).encode(spread, rounds, pairs=labels)
    for place, (label, text) in enumerate(wanted.items()):
        provisioned = matcher.subscriber(SEED.pair(label)).encode(text, range(60))
        answers = matcher.broker().match(sent[place::3], provisioned)
        assert np.array_equal(answers, QUOTES.parse(text).evaluate(events))


def test_subscriptions_of_many_pairs_are_encoded_with_the_master_seed() -> None:
    subscriber = BranchingMatch.box(QUOTES).subscriber
    together = subscriber(SEED).encode(
        ["price < 3", "volume < 4", "price < 3"], [7, 7, 8], pairs=["a", "b", "a"]
    )
    assert np.array_equal(together[::2], subscriber(SEED.pair("a")).encode("price < 3", [7, 8]))
    assert np.array_equal(together[1:2], subscriber(SEED.pair("b")).encode("volume < 4", [7]))


def test_pad_serves_a_pair_from_end_to_end() -> None:
    matcher = BranchingMatch.box(QUOTES)
    secret = np.random.default_rng(8).integers(0, 256, 200 * matcher.randomness_bytes, np.uint8)
    publisher, _, broker = roles(matcher, OneTimePad(secret.tobytes()))
    subscriber = matcher.subscriber(OneTimePad(secret.tobytes()))
    events, rounds = quotes(200, np.random.default_rng(9)), np.arange(200)[::-1]
    messages = publisher.encode(events, rounds), subscriber.encode("price < 300", rounds)
    expected = QUOTES.parse("price < 300").evaluate(events)
    assert np.array_equal(broker.match(*messages), expected)


def test_message_is_a_header_and_the_formula_over_the_bytes_of_its_round() -> None:
    matcher = BranchingMatch.box(Schema(a=UInt(4)))
    width = matcher.randomness_bytes
    secret = np.random.default_rng(12).integers(0, 256, 3 * width, np.uint8)
    publisher, subscriber, _ = roles(matcher, OneTimePad(secret.tobytes()))
    body, tag = np.split(secret[2 * width :], [width - 7])
    event = np.array([[0, 1, 0, 1]], np.uint8)
    interest = np.array([[0, 0, 1, 1, 1, 0, 0, 1]], np.uint8)
    for message, kind, wanted in (
        (publisher.encode({"a": [5]}, [2]), 1, encode_event(matcher.program, event, body[None])),
        (
            subscriber.encode("a BETWEEN 3 AND 9", [2]),
            2,
            encode_interest(matcher.program, interest, body[None]),
        ),
    ):
        part = matcher.fingerprint[:7] if kind == 1 else matcher.fingerprint[7:14]
        check = bytes(a ^ b for a, b in zip(tag.tobytes(), part, strict=True))
        assert message.tobytes() == bytes([0x20 + kind]) + check + wanted.tobytes()


def test_messages_of_a_round_share_a_tag_that_no_other_round_has() -> None:
    matcher = BranchingMatch.box(QUOTES)
    publisher, subscriber, _ = roles(matcher)
    events = publisher.encode(quotes(200, np.random.default_rng(10)), range(200))
    interests = subscriber.encode("price < 3", range(200))
    names = np.frombuffer(matcher.fingerprint[:14], np.uint8).reshape(2, 7)
    tags = events[:, 1:8] ^ names[0]
    assert np.array_equal(tags, interests[:, 1:8] ^ names[1])
    assert len({tag.tobytes() for tag in tags}) == 200


def test_messages_of_different_rounds_look_unrelated() -> None:
    _, subscriber, _ = roles(BranchingMatch.box(QUOTES))
    bodies = subscriber.encode("price < 3", range(400))[:, ROUND_HEADER_BYTES:]
    ones = np.unpackbits(bodies[:, :-1], axis=1).mean()
    assert abs(ones - 0.5) < 0.005
    assert len({body.tobytes() for body in bodies}) == 400


# -- a round is used once -----------------------------------------------------------------------

ROW: dict[str, list[Any]] = {"issue": ["IBM"], "price": [1], "volume": [1]}


def rows_of(count: int) -> dict[str, list[Any]]:
    return {name: values * count for name, values in ROW.items()}


def encode_as(role: str, seed: SharedSeed | OneTimePad = SEED) -> Callable[..., Bytes]:
    """``encode(rounds, pairs=...)`` of one role, with a fitting number of rows."""
    publisher, subscriber, _ = roles(BranchingMatch.box(QUOTES), seed)
    if role == "publisher":
        return lambda rounds, **more: publisher.encode(rows_of(len(rounds)), rounds, **more)
    return lambda rounds, **more: subscriber.encode("price < 3", rounds, **more)


GROUP_MATCHER = OFSGPMatch(Schema(x=UInt(2)), 2)
both_roles = pytest.mark.parametrize("role", ["publisher", "subscriber"])


@both_roles
def test_round_is_refused_the_second_time(role: str) -> None:
    encode = encode_as(role)
    encode([4, 5])
    with pytest.raises(RandomnessReuseError, match="round 5 was already used by this role"):
        encode([5])


@both_roles
def test_round_is_refused_twice_in_a_batch(role: str) -> None:
    with pytest.raises(RandomnessReuseError, match="round 5 occurs more than once"):
        encode_as(role)([4, 5, 5])


@pytest.mark.parametrize(
    "matcher", [BranchingMatch.box(QUOTES), BranchingMatch(QUOTES, "price < :p"), GROUP_MATCHER]
)
def test_costs_are_data_and_explained(matcher: Matcher) -> None:
    assert [(cost.role, cost.per) for cost in matcher.costs] == [
        ("publisher", "pair"), ("subscriber", "pair"), ("broker", "pair")
    ]  # fmt: skip
    lines = [" ".join(line.split()) for line in matcher.explain().splitlines()]
    assert all(f"{cost.role}: per pair: {cost}" in lines for cost in matcher.costs)


@pytest.mark.parametrize(
    "make",
    [
        BranchingMatch.box,
        lambda schema: BranchingMatch(schema, "price < 3"),
        lambda schema: OFSGPMatch(schema, 2),
        lambda schema: PublicFunctionMatch(schema, None, None),
    ],
)
def test_a_schema_that_is_none_is_refused(make: Callable[[Any], object]) -> None:
    with pytest.raises(ParameterError, match=r"schema must be a ccbps.Schema, got dict; make one"):
        make({"price": 8})


def test_threads_that_share_a_role_never_share_a_round() -> None:
    matcher, seed = BranchingMatch.box(Schema(x=UInt(8))), SharedSeed.generate()
    publisher, runs, size = matcher.publisher(seed), 40, 1500
    interests = matcher.subscriber(seed).encode("x < 100", np.arange(runs * size))
    records = {"x": np.arange(runs * size) % 256}
    start = Barrier(4)

    def take_what_is_left(thread: int) -> list[int]:
        start.wait()
        won = []
        for run in np.random.default_rng(thread).permutation(runs).tolist():
            at = slice(run * size, (run + 1) * size)
            with contextlib.suppress(RandomnessReuseError):
                sent = publisher.encode({"x": records["x"][at]}, np.arange(at.start, at.stop))
                won.append(run)
                answers = matcher.broker().match(sent, interests[at])
                assert np.array_equal(answers, records["x"][at] < 100)
        return won

    with ThreadPoolExecutor(4) as pool:
        won = [run for part in pool.map(take_what_is_left, range(4)) for run in part]
    assert sorted(won) == list(range(runs))


@both_roles
def test_refused_batch_uses_up_no_round(role: str) -> None:
    encode = encode_as(role)
    encode([5])
    for refused in ([4, 5], [6, 6]):
        with pytest.raises(RandomnessReuseError):
            encode(refused)
    assert len(encode([4, 6])) == 2


@both_roles
def test_refused_batch_of_many_pairs_uses_up_no_round(role: str) -> None:
    encode = encode_as(role)
    encode([1], pairs=["b"])
    with pytest.raises(RandomnessReuseError, match="pair 'b': round 1"):
        encode([5, 1, 5], pairs=["a", "b", "c"])
    assert len(encode([5, 5, 1], pairs=["a", "c", "a"])) == 3


@both_roles
def test_round_of_another_pair_is_another_round(role: str) -> None:
    encode = encode_as(role)
    assert len(encode([1, 1], pairs=["a", "b"])) == len(encode([2, 2], pairs=["a", "b"])) == 2


@pytest.mark.parametrize(
    "events", [{**ROW, "volume": [-1]}, {**ROW, "price": ["x"]}, {"issue": ["IBM"], "price": [1]}]
)
def test_refused_event_uses_up_no_round(events: dict[str, list[Any]]) -> None:
    publisher, _, _ = roles(BranchingMatch.box(QUOTES))
    with pytest.raises(EventError):
        publisher.encode(events, [7])
    assert len(publisher.encode(ROW, [7])) == 1


@pytest.mark.parametrize("interest", ["price <", "price < 3 OR volume < 3", "prise < 3"])
def test_refused_predicate_uses_up_no_round(interest: str) -> None:
    _, subscriber, _ = roles(BranchingMatch.box(QUOTES))
    with pytest.raises(CcbpsError):
        subscriber.encode(interest, [7])
    assert len(subscriber.encode("price < 3", [7])) == 1


@both_roles
def test_exhausted_pad_is_refused_and_uses_up_no_round(role: str) -> None:
    matcher = BranchingMatch.box(QUOTES)
    encode = encode_as(role, OneTimePad(bytes(3 * matcher.randomness_bytes + 5)))
    with pytest.raises(PadExhaustedError, match=r"round 3 lies beyond the pad.*rounds 0\.\.2"):
        encode([1, 2, 3])
    assert len(encode([0, 1, 2])) == 3


def test_pad_is_refused_by_a_second_matcher() -> None:
    pad = OneTimePad(bytes(10_000))
    BranchingMatch.box(QUOTES).subscriber(pad).encode("price < 3", [0])
    with pytest.raises(RandomnessReuseError, match="already serves another matcher"):
        BranchingMatch(QUOTES, "price < :p").subscriber(pad).encode({"p": 3}, [5])


def test_pad_takes_no_pair_labels() -> None:
    with pytest.raises(ParameterError, match="belongs to one pair"):
        encode_as("publisher", OneTimePad(bytes(10_000)))([0], pairs=["alice"])


# -- messages that do not belong together -------------------------------------------------------

LENGTH = 40


class Exchange:
    """Messages of `LENGTH` rounds, all of them matches, for a matcher with unused bits."""

    def __init__(self) -> None:
        self.matcher = BranchingMatch(QUOTES, "price < :price AND volume < :volume")
        publisher, subscriber, self.broker = roles(self.matcher)
        self.events = publisher.encode(rows_of(LENGTH), range(LENGTH))
        self.interests = subscriber.encode({"price": 300, "volume": 9}, range(LENGTH))
        self.unused = np.uint8(~self.matcher.encoding.layout.last_byte_mask & 0xFF)


def flipped(row: Bytes, byte: int, bit: int = 0) -> None:
    row[byte] ^= np.uint8(1 << bit)


def other_seed(e: Exchange, row: int) -> None:
    subscriber = e.matcher.subscriber(SharedSeed(bytes(32)))
    e.interests[row] = subscriber.encode({"price": 300, "volume": 9}, [row])[0]


def other_matcher(e: Exchange, row: int) -> None:
    # The same number of nodes, so the same number of bytes.
    subscriber = BranchingMatch(QUOTES, "price < :price AND volume >= :volume").subscriber(SEED)
    e.interests[row] = subscriber.encode({"price": 300, "volume": 9}, [row])[0]


def swapped(e: Exchange, row: int) -> None:
    e.events[row], e.interests[row] = e.interests[row].copy(), e.events[row].copy()


def wrong_round(e: Exchange, row: int) -> None:
    e.events[row] = e.events[row + 1]


def padded(e: Exchange, row: int, *sides: str) -> None:
    for side in sides:
        getattr(e, side)[row, -1] |= e.unused & np.uint8(0x80)


SPOILED: list[tuple[str, Callable[[Exchange, int], None], Cause]] = [
    ("event kind", lambda e, i: flipped(e.events[i], 0, 1), Cause.EVENT_KIND),
    ("interest kind", lambda e, i: flipped(e.interests[i], 0), Cause.INTEREST_KIND),
    ("event version", lambda e, i: flipped(e.events[i], 0, 4), Cause.EVENT_KIND),
    ("interest version", lambda e, i: flipped(e.interests[i], 0, 7), Cause.INTEREST_KIND),
    ("event check", lambda e, i: flipped(e.events[i], 1), Cause.PAIRING),
    ("interest check", lambda e, i: flipped(e.interests[i], 7, 7), Cause.PAIRING),
    ("swapped", swapped, Cause.EVENT_KIND),
    ("another round", wrong_round, Cause.PAIRING),
    ("another seed", other_seed, Cause.PAIRING),
    ("another matcher", other_matcher, Cause.PAIRING),
    ("event padding", lambda e, i: padded(e, i, "events"), Cause.PADDING),
    ("interest padding", lambda e, i: padded(e, i, "interests"), Cause.PADDING),
    ("padding of both", lambda e, i: padded(e, i, "events", "interests"), Cause.PADDING),
]
spoiled = pytest.mark.parametrize(
    ("spoil", "cause"), [pytest.param(*rest, id=name) for name, *rest in SPOILED]
)


def test_exchange_matches_everywhere_and_has_unused_bits() -> None:
    exchange = Exchange()
    assert exchange.broker.match(exchange.events, exchange.interests).all()
    assert exchange.unused & 0x80


@spoiled
def test_match_refuses_messages_and_names_row_and_cause(
    spoil: Callable[[Exchange, int], None], cause: Cause
) -> None:
    exchange = Exchange()
    spoil(exchange, 3)
    with pytest.raises(DecodeError, match=f"row 3: {cause.text}") as refusal:
        exchange.broker.match(exchange.events, exchange.interests)
    assert refusal.value.rows == (3,)
    assert refusal.value.causes == (cause.text,)


@spoiled
def test_examine_refuses_single_rows_and_answers_the_others(
    spoil: Callable[[Exchange, int], None], cause: Cause
) -> None:
    exchange = Exchange()
    for row in (0, 17, LENGTH - 2):
        spoil(exchange, row)
    answers, causes = exchange.broker.examine(exchange.events, exchange.interests)
    refused = np.isin(np.arange(LENGTH), [0, 17, LENGTH - 2])
    assert causes.tolist() == np.where(refused, cause, 0).tolist()
    assert answers.tolist() == (~refused).tolist()


def test_examine_tells_causes_apart_in_one_batch() -> None:
    exchange = Exchange()
    for row, (_, spoil, _) in enumerate(SPOILED):
        spoil(exchange, 2 * row)
    answers, causes = exchange.broker.examine(exchange.events, exchange.interests)
    expected = np.zeros(LENGTH, np.uint8)
    expected[: 2 * len(SPOILED) : 2] = [cause for *_, cause in SPOILED]
    assert causes.tolist() == expected.tolist()
    assert answers.tolist() == (expected == 0).tolist()


def test_match_reads_rows_in_any_memory_order() -> None:
    exchange = Exchange()
    exchange.interests[5] = exchange.interests[6]
    answers, causes = exchange.broker.examine(
        np.asfortranarray(exchange.events), np.repeat(exchange.interests, 2, axis=0)[::2]
    )
    assert np.flatnonzero(causes).tolist() == [5]
    assert np.flatnonzero(~answers).tolist() == [5]


@pytest.mark.parametrize("method", ["match", "examine"])
@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (lambda e, i: (e[:, :-1], i), "events must be uint8 messages of"),
        (lambda e, i: (e, np.hstack([i, i[:, :1]])), "interests must be uint8 messages of"),
        (lambda e, i: (e.astype(np.int16), i), "events must be uint8 messages of"),
        (lambda e, i: (e[0], i[0]), "events must be uint8 messages of"),
        (lambda e, i: (e, i[:-1]), f"{LENGTH} events do not pair with {LENGTH - 1} interests"),
        (lambda e, i: ([m.tobytes() for m in e], i), "events must be uint8 messages of"),
    ],
    ids=["narrow", "wide", "dtype", "one row", "length", "list of bytes"],
)
def test_broker_refuses_arrays_that_are_not_messages(
    method: str, cut: Callable[[Bytes, Bytes], tuple[Bytes, Bytes]], message: str
) -> None:
    exchange = Exchange()
    with pytest.raises(DecodeError, match=message):
        getattr(exchange.broker, method)(*cut(exchange.events, exchange.interests))


# -- arguments that do not fit ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("prise < 3", UnknownAttributeError, r"unknown attribute 'prise'.*closest is 'price'"),
        ("price < 'IBM'", PredicateTypeError, r"attribute 'price' \(Decimal\)"),
        ("issue = 3", PredicateTypeError, r"attribute 'issue' \(Category\)"),
        ("price <", PredicateSyntaxError, r"line 1, column"),
        ("", PredicateSyntaxError, "the predicate is empty"),
        ("price + 1 < 3", UnsupportedPredicateError, "is not supported; accepted are"),
        ("price < volume", UnsupportedPredicateError, "not compared with one another"),
        ("issue LIKE '%M'", UnsupportedPredicateError, "one wildcard, a final %"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["box", "template"])
def test_bad_predicate_is_refused_with_the_place(
    kind: str, text: str, error: type[CcbpsError], message: str
) -> None:
    subscriber = BranchingMatch.box(QUOTES).subscriber(SEED)
    with pytest.raises(error, match=message) as refusal:
        subscriber.encode(text, [0]) if kind == "box" else BranchingMatch(QUOTES, text)
    assert not text or f"\n  {text}\n" in str(refusal.value)


def test_bad_predicate_among_many_is_refused_with_its_row() -> None:
    subscriber = BranchingMatch.box(QUOTES).subscriber(SEED)
    texts = ["price < 3", "price < 4", "prise < 5", "price < 3"]
    with pytest.raises(UnknownAttributeError, match="'prise'") as refusal:
        subscriber.encode(texts, range(4))
    assert any("row 2" in note for note in refusal.value.__notes__)


@pytest.mark.parametrize(
    "text",
    ["price < 3 OR volume < 3", "issue IN ('IBM', 'SAP')", "price != 3", "hamming(volume, 3) <= 1"],
)
def test_box_refuses_predicates_that_are_no_box(text: str) -> None:
    with pytest.raises(UnsupportedPredicateError, match="conjunction of intervals"):
        BranchingMatch.box(QUOTES).subscriber(SEED).encode(text, [0])


@pytest.mark.parametrize(
    ("events", "attribute", "row", "message"),
    [
        ({**rows_of(3), "volume": [0, 2**20, 0]}, "volume", 1, "out of range"),
        ({**rows_of(3), "volume": [0, 1, -1]}, "volume", 2, "out of range"),
        ({**rows_of(3), "issue": ["IBM", "IBM", "??"]}, "issue", 2, "issue"),
        ({**rows_of(3), "price": [1, None, 1]}, "price", 1, "missing"),
        ({**rows_of(3), "price": ["a", "b", "c"]}, "price", 0, "not a number|wrong type"),
        ({"issue": ["IBM"], "price": [1]}, "volume", None, "'volume' is missing"),
        ({**rows_of(3), "price": [1]}, "price", None, "has 1 values"),
    ],
)
def test_bad_event_is_refused_with_attribute_and_row(
    events: dict[str, list[Any]], attribute: str, row: int | None, message: str
) -> None:
    with pytest.raises(EventError, match=message) as refusal:
        BranchingMatch.box(QUOTES).publisher(SEED).encode(events, range(3))
    assert (refusal.value.attribute, refusal.value.row) == (attribute, row)


@pytest.mark.parametrize(
    ("rounds", "message"),
    [
        ([0.0, 1.0], "whole numbers"),
        ([True, False], "whole numbers"),
        (["0", "1"], "whole numbers"),
        ([0, -1], "must not be negative"),
        ([0, 2**64], "whole numbers"),
        ([[0, 1], [2, 3]], "whole numbers"),
        (7, "whole numbers"),
        (None, "needs rounds"),
    ],
)
@both_roles
def test_bad_rounds_are_refused(role: str, rounds: Any, message: str) -> None:
    holder = getattr(BranchingMatch.box(QUOTES), role)(SEED)
    data = rows_of(2) if role == "publisher" else "price < 3"
    with pytest.raises(ParameterError, match=message):
        holder.encode(data, rounds)


@pytest.mark.parametrize("count", [1, 3])
def test_rounds_must_be_as_many_as_rows(count: int) -> None:
    publisher, subscriber, _ = roles(BranchingMatch.box(QUOTES))
    with pytest.raises(ParameterError, match=f"2 rows need 2 rounds, got {count}"):
        publisher.encode(rows_of(2), range(count))
    with pytest.raises(ParameterError, match=f"2 interests need as many rounds, got {count}"):
        subscriber.encode(["price < 3"] * 2, range(count))


@pytest.mark.parametrize("pairs", [["a"], ["a", "b", "c"], "ab", "alice"])
@both_roles
def test_pair_labels_must_be_as_many_as_rows(role: str, pairs: Any) -> None:
    with pytest.raises(ParameterError, match=r"pair labels|pairs must be 2 labels"):
        encode_as(role)([0, 1], pairs=pairs)


@pytest.mark.parametrize("seed", [None, bytes(32), "ccbps-seed-1:" + "00" * 32, np.zeros(32)])
@both_roles
def test_seed_must_be_a_source_of_randomness(role: str, seed: Any) -> None:
    wanted = "seed must be a SharedSeed, a SeedRing or a OneTimePad, got"
    with pytest.raises(ParameterError, match=wanted):
        getattr(BranchingMatch.box(QUOTES), role)(seed)


@pytest.mark.parametrize("interest", ["price < 3", QUOTES.parse("price < 3"), ["price < 3"], 5])
def test_template_takes_mappings(interest: Any) -> None:
    matcher = BranchingMatch(QUOTES, TEMPLATE)
    with pytest.raises(ParameterError, match=r"mapping with values for .*:issue, :price"):
        matcher.subscriber(SEED).encode(interest, [0])


@pytest.mark.parametrize("interest", [{"price": 3}, [{"price": 3}], 5, [5], None])
def test_box_takes_predicates(interest: Any) -> None:
    with pytest.raises(ParameterError, match="an interest is a predicate"):
        BranchingMatch.box(QUOTES).subscriber(SEED).encode(interest, [0])


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"issue": "IBM"}, ParameterError, "lacks price"),
        ({}, ParameterError, "lacks issue, price"),
        ({"issue": "IBM", "price": 3, "prise": 4}, ParameterError, "has no prise"),
        ({"issue": "IBM", "price": "secret"}, PredicateTypeError, "constant :price, .*'price'"),
        ({"issue": 12_345, "price": 3}, PredicateTypeError, "constant :issue, .*'issue'"),
        ({"issue": "IBM", "price": None}, PredicateTypeError, "cannot be NULL"),
    ],
)
def test_private_constants_must_fit_the_template_and_stay_unseen(
    values: dict[str, Any], error: type[CcbpsError], message: str
) -> None:
    with pytest.raises(error, match=message) as refusal:
        BranchingMatch(QUOTES, TEMPLATE).subscriber(SEED).encode(values, [0])
    assert "secret" not in str(refusal.value)
    assert "12345" not in str(refusal.value)


def test_private_constants_may_have_any_name() -> None:
    matcher = BranchingMatch(QUOTES, "price < :self AND volume < :class")
    assert matched(matcher, ROW, {"self": 3, "class": 4}, 1) == [True]


def test_box_refuses_a_predicate_with_unbound_constants() -> None:
    with pytest.raises(UnsupportedPredicateError, match=r"\(p\) need values; call bind first"):
        BranchingMatch.box(QUOTES).subscriber(SEED).encode("price < :p", [0])


def test_predicate_of_another_schema_is_refused() -> None:
    other = Schema(price=UInt(4)).parse("price < 3")
    with pytest.raises(ParameterError, match="parsed for another schema"):
        BranchingMatch.box(QUOTES).subscriber(SEED).encode(other, [0])
    with pytest.raises(ParameterError, match="parsed for another schema"):
        BranchingMatch(QUOTES, other)


def test_events_of_another_schema_are_refused() -> None:
    events = Schema(price=UInt(4)).encode({"price": [3]})
    with pytest.raises(EventError, match="another schema"):
        BranchingMatch.box(QUOTES).publisher(SEED).encode(events, [0])


@pytest.mark.parametrize("template", [None, 5, ["price < 3"]])
def test_template_must_be_a_predicate(template: Any) -> None:
    with pytest.raises(ParameterError, match="template"):
        BranchingMatch(QUOTES, template)


def test_template_with_its_constants_filled_in_is_refused() -> None:
    # It would make the private constants public, and take no notice of the subscriber's.
    bound = QUOTES.parse(TEMPLATE).bind(issue="IBM", price=120)
    with pytest.raises(ParameterError, match="template"):
        BranchingMatch(QUOTES, bound)


# -- public parameters, secrets, texts ----------------------------------------------------------

MATCHERS: dict[str, Callable[[], BranchingMatch]] = {
    "box": lambda: BranchingMatch.box(QUOTES),
    "template": lambda: BranchingMatch(QUOTES, TEMPLATE),
    "predicate": lambda: BranchingMatch(QUOTES, QUOTES.parse("price < :p OR volume = 3")),
}
every_matcher = pytest.mark.parametrize("name", MATCHERS)


def interest_for(matcher: BranchingMatch) -> Any:
    if matcher.template is None:
        return "price < 300"
    values = {"issue": "IBM", "price": 300, "p": 300}
    return {name: values[name] for name in matcher.template.private_names}


@every_matcher
@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_matcher_that_was_pickled_or_copied_is_the_same(
    name: str, duplicate: Callable[[BranchingMatch], BranchingMatch]
) -> None:
    matcher = MATCHERS[name]()
    twin = duplicate(matcher)
    assert twin == matcher
    assert hash(twin) == hash(matcher)
    assert twin.fingerprint == matcher.fingerprint
    events, interest = quotes(50, np.random.default_rng(11)), interest_for(matcher)
    messages = (
        matcher.publisher(SEED).encode(events, range(50)),
        twin.subscriber(SEED).encode(interest, range(50)),
    )
    answers = matcher.broker().match(*messages)
    assert 0 < answers.sum() < 50
    assert np.array_equal(pickle.loads(pickle.dumps(twin)).broker().match(*messages), answers)


@every_matcher
@both_roles
@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.deepcopy, copy.copy])
def test_role_with_a_seed_is_not_pickled_or_copied(
    name: str, role: str, duplicate: Callable[[Any], object]
) -> None:
    holder = getattr(MATCHERS[name](), role)(SEED)
    with pytest.raises(SerializationError, match="must not be pickled"):
        duplicate(holder)


@every_matcher
@both_roles
def test_role_does_not_show_its_seed(name: str, role: str) -> None:
    shown = repr(getattr(MATCHERS[name](), role)(SEED))
    assert role.capitalize() in shown
    assert SEED.export_secret().hex()[:8] not in shown


def test_fingerprint_differs_when_anything_public_does() -> None:
    def with_type(kind: Any) -> Schema:
        return Schema(price=kind, volume=UInt(4))

    schemas_ = [
        with_type(Decimal(0, 15, 1)),
        with_type(Decimal(0, "1.5", "0.1")),
        with_type(Decimal(1, 16, 1)),
        with_type(UInt(4)),
        with_type(Int(4)),
        with_type(UInt(3, nullable=True)),
        with_type(UInt(4, nullable=True)),
        Schema(volume=UInt(4), price=Decimal(0, 15, 1)),
        Schema(price=Decimal(0, 15, 1), volume=UInt(4), more=Bool()),
        Schema(price=Decimal(0, 15, 1), volumes=UInt(4)),
    ]
    matchers = [BranchingMatch.box(schema) for schema in schemas_]
    templates = [
        "price < :p",
        "price <= :p",
        "price > :p",
        "price <= 3",
        "price < 5",
        "price < :q",
        "volume < :p",
        "price >= :p",
        "price < :p AND volume < :q",
        "price < :q AND volume < :p",
        "volume < :p AND price < :q",
        "price BETWEEN :p AND :q",
        "price BETWEEN :p AND :q AND volume BETWEEN :r AND :s",
    ]
    matchers += [BranchingMatch(schemas_[0], template) for template in templates]
    assert len({m.fingerprint for m in matchers}) == len(matchers)
    assert len({m.fingerprint[:6] for m in matchers}) == len(matchers)
    assert len(set(matchers)) == len(matchers)


def test_fingerprint_does_not_depend_on_the_process() -> None:
    code = (
        "from ccbps import Schema, UInt; from ccbps.matching import BranchingMatch; "
        "s = Schema(a=UInt(5), b=UInt(7)); "
        "t = 'at_least(2, a = :x, b < 9, hamming(b, :y) <= 2)'; "
        "print(BranchingMatch.box(s).fingerprint.hex(), BranchingMatch(s, t).fingerprint.hex())"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    assert len(printed.pop().split()) == 2


@every_matcher
def test_sizes_follow_from_the_program(name: str) -> None:
    matcher = MATCHERS[name]()
    size = matcher.program.size
    bits = size * (size + 1) // 2
    assert matcher.event_bytes == matcher.interest_bytes == ROUND_HEADER_BYTES + -(-bits // 8)
    assert matcher.randomness_bytes == TAG_BYTES + 2 * 8 * -(-bits // 64)
    publisher, subscriber, _ = roles(matcher)
    assert publisher.encode(ROW, [0]).shape == (1, matcher.event_bytes)
    assert subscriber.encode(interest_for(matcher), [0]).shape == (1, matcher.interest_bytes)


def test_box_of_the_design_takes_683_bytes_a_side_behind_the_header() -> None:
    matcher = BranchingMatch.box(Schema(a=UInt(16), b=UInt(16), c=UInt(20)))
    assert matcher.program.size == 104
    assert matcher.event_bytes == 8 + 683


@every_matcher
def test_explain_states_sizes_and_the_leakage_card(name: str) -> None:
    matcher = MATCHERS[name]()
    text = matcher.explain()
    for number in (
        f"{matcher.program.size + 1} nodes",
        f"{len(matcher.program.edges)} edges",
        f"{matcher.event_bytes:,} bytes per event",
        f"{matcher.encoding.layout.bits:,} bits per message",
        f"{matcher.randomness_bytes:,} bytes per round",
        *(f"{count:,} x 64-bit word" for count in matcher.encoding.operations.values()),
    ):
        assert number in text
    assert all(line in text for line in str(matcher.leakage).splitlines())
    if matcher.template is not None:
        assert matcher.template.text in text


@every_matcher
def test_leakage_card_is_json(name: str) -> None:
    card = MATCHERS[name]().leakage
    assert json.loads(json.dumps(card.to_dict()))["scheme"] == "BranchingMatch"


@every_matcher
def test_matcher_shows_its_shape_and_attributes(name: str) -> None:
    matcher = MATCHERS[name]()
    shown = repr(matcher)
    assert "issue, price, volume" in shown
    assert ("box" if matcher.template is None else matcher.template.text) in shown
    assert matcher != shown


# -- labels, texts and pads at the edges ---------------------------------------------------------


def test_labels_that_no_row_has_are_not_looked_up() -> None:
    pairs = DictionaryColumn(["a", "b"], np.zeros(2, np.intp))
    subscriber = BranchingMatch.box(QUOTES).subscriber(SeedRing.of(SEED, ["a"]))
    assert len(subscriber.encode("price < 3", [0, 1], pairs=pairs)) == 2


def test_labels_may_come_from_arrow() -> None:
    box, labels = BranchingMatch.box(QUOTES), ["a", "b", "a"]
    found = box.subscriber(SEED).encode("price < 3", range(3), pairs=pa.array(labels))
    assert np.array_equal(found, box.subscriber(SEED).encode("price < 3", range(3), pairs=labels))
    with pytest.raises(ParameterError, match="each row must be a str"):
        box.subscriber(SEED).encode("price < 3", [7, 8], pairs=pa.array(["a", None]))


def test_interests_may_be_an_array_of_texts() -> None:
    texts = ["price < 3", "price < 4"]
    box = BranchingMatch.box(QUOTES)
    found = box.subscriber(SEED).encode(np.array(texts, dtype=object), [0, 1])
    assert np.array_equal(found, box.subscriber(SEED).encode(texts, [0, 1]))


@pytest.mark.parametrize("pairs", [5, [[1]], [None], [1, 2]])
def test_pairs_that_are_no_labels_are_refused(pairs: Any) -> None:
    with pytest.raises(ParameterError, match=r"pair labels|strings|each row must be a str"):
        BranchingMatch.box(QUOTES).subscriber(SEED).encode("price < 3", [0, 1], pairs=pairs)


def test_names_of_private_constants_are_strings() -> None:
    names: Any = {1: 2}
    with pytest.raises(ParameterError, match="strings"):
        BranchingMatch(QUOTES, TEMPLATE).subscriber(SEED).encode(names, [0])


def test_a_refused_batch_does_not_bind_a_pad() -> None:
    box, template = BranchingMatch.box(QUOTES), BranchingMatch(QUOTES, TEMPLATE)
    pad = OneTimePad(bytes(10 * box.randomness_bytes))
    with pytest.raises(RandomnessReuseError, match="more than once"):
        box.subscriber(pad).encode("price < 3", [0, 0])
    template.subscriber(pad).encode({"issue": "IBM", "price": 120}, [0])
    with pytest.raises(RandomnessReuseError, match="another matcher"):
        box.subscriber(pad).encode("price < 3", [0])


def test_the_hour_that_clocks_repeat_is_two_constants() -> None:
    first = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    second = first.replace(fold=1)  # an hour later, and equal to Python
    matcher = BranchingMatch(Schema(t=Timestamp("s", "2026-01-01", "2027-01-01")), "t < :limit")
    interests = matcher.subscriber(SEED).encode([{"limit": first}, {"limit": second}], [0, 1])
    events = matcher.publisher(SEED).encode([{"t": first}, {"t": first}], [0, 1])
    assert matcher.broker().match(events, interests).tolist() == [False, True]


def test_a_matcher_without_a_template_names_the_box() -> None:
    with pytest.raises(ParameterError, match=r"template.*take BranchingMatch\.box\(schema\)"):
        BranchingMatch(Schema(price=UInt(8)))


# -- programs too large -------------------------------------------------------------------------

LISTED = Schema(n=UInt(16))
SCATTERED = f"n IN ({', '.join(str(2 * i) for i in range(400))})"


def test_list_of_neighbours_takes_the_messages_of_an_interval() -> None:
    matcher = BranchingMatch(LISTED, f"n IN ({', '.join(map(str, range(1000, 1400)))})")
    assert matcher.event_bytes == BranchingMatch(LISTED, "n BETWEEN 1000 AND 1399").event_bytes
    assert matcher.event_bytes < 100
    events = {"n": [999, 1000, 1399, 1400]}
    sent = matcher.publisher(SEED).encode(events, range(4))
    wanted = matcher.subscriber(SEED).encode({}, range(4))
    assert matcher.broker().match(sent, wanted).tolist() == [False, True, True, False]


def test_programs_past_the_limit_are_refused_with_their_size() -> None:
    with pytest.raises(ParameterError, match=r"6,002 nodes, .* 2,251,125 bytes.* allows 4,096"):
        BranchingMatch(LISTED, SCATTERED)
    with pytest.raises(ParameterError, match=r"33 nodes, .* max_nodes allows 32"):
        BranchingMatch.box(LISTED, max_nodes=32)
    wide = Schema(**{f"a{i}": UInt(64) for i in range(33)})
    with pytest.raises(ParameterError, match=r"4,225 nodes, .* max_nodes allows 4,096"):
        BranchingMatch.box(wide)
    for wrong in (1, 0, None, 4096.0, True):
        with pytest.raises(ParameterError, match="max_nodes must be a whole number"):
            BranchingMatch(LISTED, "n < :p", max_nodes=wrong)  # type: ignore[arg-type]


def test_limit_of_the_caller_travels_and_changes_nothing_else() -> None:
    text = f"n IN ({', '.join(str(2 * i) for i in range(40))})"
    for make in (
        lambda limit: BranchingMatch(LISTED, text, max_nodes=limit),
        lambda limit: BranchingMatch.box(LISTED, max_nodes=limit),
    ):
        exact = make(make(4096).program.size + 1)
        again = pickle.loads(pickle.dumps(exact))
        assert again.fingerprint == exact.fingerprint == make(4096).fingerprint
        for nodes in (exact.program.size, exact.program.size + 2, 4096, "33", 33.0, None):
            with pytest.raises(ParameterError, match="nodes"):
                BranchingMatch.from_parameters(LISTED, {**exact.parameters(), "nodes": nodes})
