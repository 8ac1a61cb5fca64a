"""Content pre-filters: never a false negative, rates, savings on stock quotes, and what leaks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps import Category, Decimal, Int, Keyword, Schema, Text, UInt
from ccbps.errors import DecodeError, ParameterError, SerializationError, ShapeError
from ccbps.filters import ContentFilter, FilterKey, may_match
from ccbps.matching import TagMatch
from ccbps.matching.broken import AspeMatch

KEY = FilterKey(bytes(range(16)))
SCHEMA = Schema(
    issue=Category(["AAPL", "FB", "GOOG", "IBM", "MSFT"]),
    close=Decimal(0, "1310.71", step="0.01"),
    volume=UInt(30),
)
MIXED = Schema(
    a=UInt(4),
    b=Int(5, nullable=True),
    c=Text(20, nullable=True),
    d=Keyword(16),
    e=UInt(64),
)
PARTS = [
    "a < 5",
    "a BETWEEN 7 AND 8",
    "a IN (1, 6, 9, 15)",
    "a <> 3",
    "b IS NULL",
    "b > -3",
    "b IS NOT NULL AND b < 9",
    "NOT b = 2",
    "c LIKE 'ab%'",
    "c >= 'b'",
    "c = 'abcdefghijklmnop'",
    "d = 'x'",
    "e > 18446744073709551000",
    "e = 0",
    "hamming(a, 5) <= 1",
    "at_least(2, a > 3, b > 0, d = 'y')",
    "FALSE",
]
texts = st.recursive(
    st.sampled_from(PARTS),
    lambda inner: st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
        lambda t: f"({t[0]} {t[1]} {t[2]})"
    ),
    max_leaves=5,
)
rows = st.fixed_dictionaries(
    {
        "a": st.integers(0, 15),
        "b": st.none() | st.integers(-16, 15),
        "c": st.none() | st.sampled_from(["", "ab", "abc", "b", "abcdefghijklmnop", "zz"]),
        "d": st.sampled_from(["x", "y"]),
        "e": st.sampled_from([0, 1, 2**64 - 1, 2**64 - 600]),
    }
)


@given(
    st.lists(rows, min_size=1, max_size=20),
    st.lists(texts, min_size=1, max_size=6),
    st.integers(1, 6),
    st.integers(0, 9),
)
def test_what_matches_passes(
    records: list[dict[str, Any]], interests: list[str], masks: int, levels: int
) -> None:
    contents = ContentFilter(MIXED, KEY, masks=masks, levels=levels)
    passing = may_match(contents.events(records), contents.interests(interests))
    matching = np.stack([MIXED.parse(text).evaluate(records) for text in interests], axis=1)
    assert (passing >= matching).all()


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 7))
def test_a_range_is_covered_by_two_prefixes_of_less_than_twice_its_width(
    first: int, second: int, levels: int
) -> None:
    schema = Schema(x=UInt(8))
    low, high = sorted((first, second))
    # So many bits that nothing passes by chance.
    contents = ContentFilter(schema, KEY, levels=levels, bits=4096, hashes=12)
    interests = contents.interests([f"x BETWEEN {low} AND {high}"])
    passing = may_match(contents.events({"x": np.arange(256)}), interests)[:, 0]
    assert passing[low : high + 1].all()
    if levels == 7:
        assert passing.sum() < 2 * (high - low + 1) + 2


def test_rates_of_the_specification() -> None:
    """m = 64, k = 3, a = 4, u = 1: .0051, simulated .0052."""
    schema = Schema(**{name: UInt(32) for name in "abcd"})
    contents = ContentFilter(schema, KEY, levels=0, bits=64, hashes=3)
    assert round(contents.false_positives(), 4) == 0.0051
    rng = np.random.default_rng(1)
    events = contents.events({name: rng.integers(0, 1 << 32, 3000) for name in "abcd"})
    asked = contents.interests([f"a = {n}" for n in rng.integers(0, 1 << 32, 300)])
    rate = may_match(events, asked).mean()
    # 300 masks are few: their own bits differ.
    assert rate == pytest.approx(0.0051, abs=0.002)
    assert contents.false_positives(2) < contents.false_positives(1)
    assert contents.false_positives(0) == 1


def quotes() -> tuple[dict[str, Any], list[str]]:
    stocks = pytest.importorskip("bokeh_sampledata.stocks")
    names = SCHEMA["issue"].values  # type: ignore[attr-defined]
    data = [getattr(stocks, name) for name in names]
    records = {
        "issue": [name for name, own in zip(names, data, strict=True) for _ in own["date"]],
        "close": np.round(np.concatenate([own["close"] for own in data]), 2),
        "volume": np.concatenate([own["volume"] for own in data]),
    }
    rng = np.random.default_rng(2000)
    usual = dict(zip(names, (150, 28, 480, 115, 30), strict=True))
    interests = []
    for n in range(200):
        issue = names[int(rng.integers(0, 5))]
        price = usual[issue] * float(rng.uniform(0.6, 1.5))
        volume = int(rng.choice([2, 5, 10, 20, 50])) * 1_000_000
        band = f"close BETWEEN {0.95 * price:.2f} AND {1.05 * price:.2f}"
        interests.append(f"issue = '{issue}' AND {band}")
        if n % 2:
            interests[-1] += f" AND volume > {volume}"
    return records, interests


def test_stock_quotes_need_a_tenth_of_the_tests_or_less() -> None:
    records, interests = quotes()
    contents = ContentFilter(SCHEMA, KEY)
    events = SCHEMA.encode(records)
    chosen = events.take(np.random.default_rng(1).integers(0, len(events), 5000))
    passing = may_match(contents.events(chosen), contents.interests(interests))
    matching = np.stack([SCHEMA.parse(text).evaluate(chosen) for text in interests], axis=1)
    assert passing.size == 1_000_000
    assert (passing >= matching).all()
    assert passing.sum() * 10 <= passing.size
    assert matching.any()


@pytest.mark.slow
def test_never_a_false_negative_in_many_pairs() -> None:
    rng = np.random.default_rng(5)
    records, _ = quotes()
    events = SCHEMA.encode(records)
    for seed in range(3):
        contents = ContentFilter(SCHEMA, FilterKey.generate(), masks=1 + 3 * seed, levels=4 + seed)
        interests = []
        for _ in range(400):
            low, volume = rng.uniform(0, 600), int(rng.integers(0, 10**8))
            interests.append(
                f"(close BETWEEN {low:.2f} AND {low * rng.uniform(1, 3):.2f} OR issue = 'IBM')"
                f" AND volume > {volume}"
            )
        passing = may_match(contents.events(events), contents.interests(interests))
        matching = np.stack([SCHEMA.parse(text).evaluate(events) for text in interests], axis=1)
        assert passing.size > 10**6
        assert (passing >= matching).all()


@pytest.mark.parametrize("scheme", [TagMatch, AspeMatch])
def test_a_broker_tests_only_what_passes(scheme: type[Any]) -> None:
    records, interests = quotes()
    events = SCHEMA.encode(records).take(range(0, 12000, 60))
    contents = ContentFilter(SCHEMA, KEY)
    matcher = scheme(SCHEMA)
    server = matcher.key_server()
    sent = matcher.publisher(server.publisher_key()).encode(events)
    kept = matcher.subscriber(server.subscriber_key("alice")).encode(interests)
    broker = matcher.broker(server.broker_key())
    passing = may_match(contents.events(events), contents.interests(interests))
    expected = broker.match_all(sent, kept)
    assert np.array_equal(broker.match_all(sent, kept, where=passing), expected)
    none = np.zeros_like(passing)
    assert not broker.match_all(sent, kept, where=none).any()
    alone = none.copy()
    alone[3] = True  # a single event
    assert np.array_equal(broker.match_all(sent, kept, where=alone), expected & alone)
    one = none.copy()
    one[3, 4] = True
    assert np.flatnonzero(broker.match_all(sent, kept, one)).tolist() == (
        [3 * one.shape[1] + 4] if expected[3, 4] else []
    )
    with pytest.raises(ParameterError, match="not with a table"):
        broker.match_all(sent, broker.prepare(kept), where=passing)
    with pytest.raises(ShapeError, match="where must be a bool array"):
        broker.match_all(sent, kept, where=passing[1:])
    broken = sent.copy()
    broken[7] ^= 1
    with pytest.raises(DecodeError, match="row 7"):
        broker.match_all(broken, kept, where=none)
    answers, causes = broker.examine_all(broken, kept, where=passing)
    assert np.flatnonzero(causes).tolist() == [7]
    expected[7] = False
    assert np.array_equal(answers, expected)


def test_masks_of_another_filter_are_refused() -> None:
    """They would let matches fail without a word."""
    schema = Schema(x=UInt(32))
    one = ContentFilter(schema, KEY)
    events, interests = one.events({"x": [7, 8]}), one.interests(["x = 7", "x = 9"])
    assert may_match(events, interests)[0, 0]
    for other in (
        ContentFilter(schema, FilterKey.generate()),
        ContentFilter(Schema(y=UInt(32)), KEY),
        ContentFilter(schema, KEY, hashes=one.hashes + 1),
        ContentFilter(schema, KEY, levels=7, bits=one.bits, hashes=one.hashes),
    ):
        name = other.schema.names[0]
        asked = other.interests([f"{name} = 7", f"{name} = 9"])
        with pytest.raises(DecodeError, match="events, row 0: a mask of another schema, key"):
            may_match(events, asked)
        mixed = interests.copy()
        mixed[1] = asked[1]
        with pytest.raises(DecodeError, match="interests, row 1"):
            may_match(events, mixed)
    # The number of masks is the subscriber's own choice.
    assert may_match(events, ContentFilter(schema, KEY, masks=1).interests(["x = 7"]))[0, 0]


def test_what_is_refused() -> None:
    for options, message in [
        ({"levels": {"no": 3}}, "no attribute 'no'"),
        ({"levels": -1}, "levels of 'issue'"),
        ({"rate": 1}, "rate must be above 0"),
        ({"masks": 0}, "masks must be"),
        ({"bits": 0}, "bits must be"),
    ]:
        with pytest.raises(ParameterError, match=message):
            ContentFilter(SCHEMA, KEY, **options)
    contents = ContentFilter(SCHEMA, KEY)
    assert KEY.export_secret().hex() not in repr(contents)
    import pickle

    with pytest.raises(SerializationError):
        pickle.dumps(contents)
    events = contents.events([])
    assert may_match(events, contents.interests([])).shape == (0, 0)
    with pytest.raises(DecodeError, match="not of one filter"):
        may_match(np.zeros((2, 32), np.uint8), np.zeros((2, 48), np.uint8))
    with pytest.raises(DecodeError, match="whole words"):
        may_match(np.zeros((2, 25), np.uint8), np.zeros((2, 50), np.uint8))
    with pytest.raises(ShapeError):
        may_match(np.zeros((2, 24)), np.zeros((2, 48), np.uint8))


# -- what the broker learns ------------------------------------------------------------------------


def test_a_broker_sees_which_subscriptions_are_equal_and_which_contain_others() -> None:
    contents = ContentFilter(SCHEMA, KEY)
    asked = contents.interests(
        ["issue = 'IBM'", "issue = 'IBM' AND volume = 7", "issue = 'IBM'", "volume = 7"]
    ).view(np.uint64)[:, 1:]
    assert (asked[0] == asked[2]).all()
    contained = (asked[:, None] & asked[None]) == asked[None]
    assert contained.all(axis=2).tolist() == [
        [True, False, True, False],
        [True, True, True, True],
        [True, False, True, False],
        [False, False, False, True],
    ]


def test_a_broker_sees_which_events_are_near_one_another() -> None:
    """Masks of near values have more bits in common, so a near one of 200 is found."""
    schema = Schema(x=UInt(16))
    contents = ContentFilter(schema, KEY, levels=15)
    values = np.random.default_rng(3).integers(0, 1 << 16, 200)
    masks = contents.events({"x": values}).view(np.uint64)
    common = np.bitwise_count(masks[:, None] & masks[None]).sum(axis=2).astype(int)
    np.fill_diagonal(common, 0)
    guess = values[common.argmax(axis=1)]
    distance = np.median(np.abs(values - guess))
    assert distance < 500  # of 65,536; a guess at random is off by some 19,000


def test_the_order_of_masks_does_not_tell_which_prefix_is_lower() -> None:
    """Else a broker alone would put events in order."""
    schema, rng = Schema(price=UInt(16)), np.random.default_rng(1)
    lows = rng.integers(0, 60_000, 400)
    texts = [f"price BETWEEN {low} AND {low + 1000 + low % 3000}" for low in lows]
    shares = []
    for key in (bytes(16), bytes(range(16))):
        contents = ContentFilter(schema, FilterKey(key))
        masks, end = contents.interests(texts), 8 + contents.bits // 8
        second = masks[:, end : end + contents.bits // 8]
        several = (masks[:, 8:end] != second).any(axis=1)
        assert several.mean() > 0.7
        events = contents.events({"price": lows})
        # The first mask is that of the lower half if the lower end has all of its bits.
        shares.append(may_match(events, masks[:, :end]).diagonal()[several].mean())
    assert all(0.3 < share < 0.7 for share in shares)
