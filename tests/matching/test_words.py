"""KeywordFilterMatch and KeywordDictionaryMatch: exact for words, ranges widened as announced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps import Category, Decimal, Schema, Text, UInt
from ccbps.ciphers import word_prf
from ccbps.errors import (
    DecodeError,
    ParameterError,
    UnsupportedPredicateError,
)
from ccbps.matching import KeywordDictionaryMatch, KeywordFilterMatch, Matcher
from ccbps.predicates import Predicate
from ccbps.wire import KEY_HEADER_BYTES, Cause
from tests.support.effort import examples
from tests.support.reusable_checks import BODY, roles, sealed, secrets_of
from tests.support.strategies import Drawn, Node, leaves, record, rows, schemas, small_types

QUOTES = Schema(
    issue=Category(["AAPL", "GOOG", "IBM", "MSFT"]),
    price=UInt(8),
    volume=UInt(8, nullable=True),
)
POINTS = {"price": [50, 100, 200]}
CELLS = {"volume": (8, 4)}
Both = type[KeywordFilterMatch] | type[KeywordDictionaryMatch]
both = pytest.mark.parametrize("kind", [KeywordFilterMatch, KeywordDictionaryMatch])


def answers(matcher: Matcher, records: Any, interests: list[Any]) -> NDArray[np.bool_]:
    publisher, subscriber, broker = roles(matcher)
    return broker.match_all(publisher.encode(records), subscriber.encode(interests))


def quotes(count: int, seed: int) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    volume = [None if v > 255 else int(v) for v in rng.integers(0, 300, count)]
    issue = [QUOTES["issue"].values[i] for i in rng.integers(0, 4, count)]  # type: ignore[attr-defined]
    return {"issue": issue, "price": rng.integers(0, 256, count).tolist(), "volume": volume}


@st.composite
def conjunctions(draw: st.DrawFn, schema: Schema) -> Predicate:
    """AND of one to three conditions on one attribute each; most are boxes."""
    parts = draw(st.lists(leaves(schema, hamming=False, null=False), min_size=1, max_size=3))
    node = parts[0] if len(parts) == 1 else Node("and", parts=tuple(parts))
    return schema.parse(Drawn(schema, node).text)


# -- correctness --------------------------------------------------------------------------------


@st.composite
def widenings(draw: st.DrawFn, schema: Schema) -> dict[str, Any]:
    """Points or cells for each attribute."""
    given: dict[str, dict[str, Any]] = {"points": {}, "partitions": {}}
    for name in schema:
        kind = schema[name]
        if draw(st.booleans()) and isinstance(kind, UInt):
            several = st.lists(
                st.integers(0, kind.cardinality - 1), min_size=1, max_size=3, unique=True
            )
            given["points"][name] = sorted(draw(several))
        else:
            cells = draw(st.integers(1, 5))
            width = -(-kind.cardinality // cells)
            given["partitions"][name] = (cells, draw(st.integers(1, min(3, width))))
    return given


@given(schema=schemas(small_types() | st.builds(UInt, st.integers(3, 6))), data=st.data())
@settings(max_examples=examples(60))
def test_dictionary_decides_the_widened_box_and_filter_misses_nothing(
    schema: Schema, data: st.DataObject
) -> None:
    given = data.draw(widenings(schema))
    exact = KeywordDictionaryMatch(schema, **given)
    filtered = KeywordFilterMatch(schema, false_positives=2**-20, **given)
    records = [record(row) for row in data.draw(rows(schema))]
    interests, plain, wide = [], [], []
    for predicate in data.draw(st.lists(conjunctions(schema), min_size=1, max_size=4)):
        try:
            predicate.box()
        except UnsupportedPredicateError:
            with pytest.raises(UnsupportedPredicateError):
                filtered.widened(predicate)
            continue
        interests.append(predicate)
        plain.append(predicate.evaluate(records))
        wide.append(exact.meaning(predicate, schema.encode(records)))
    found = answers(exact, records, interests)
    assert found.T.tolist() == [column.tolist() for column in wide]
    for narrow, wider in zip(plain, wide, strict=True):
        assert not (narrow & ~wider).any()
    assert not (found & ~answers(filtered, records, interests)).any()


@both
def test_answers_20000_pairs_as_plaintext(kind: Both) -> None:
    matcher = kind(QUOTES, points=POINTS, partitions=CELLS)
    texts = [
        "issue = 'IBM' AND price < 100",
        "price > 100 AND price < 200",
        "price > 50",
        "price = 77",
        "volume IS NULL",
        "volume IS NOT NULL AND issue LIKE 'IBM%'",
        "volume < 32",
        "volume BETWEEN 40 AND 103 AND price < 50",
        "TRUE",
        "price < 5 AND price > 9",
    ]
    records = quotes(2_000, 1)
    predicates = [QUOTES.parse(text) for text in texts]
    found = answers(matcher, records, predicates)
    plain = np.stack([predicate.evaluate(records) for predicate in predicates], axis=1)
    assert not (plain & ~found).any()
    if kind is KeywordDictionaryMatch:  # every bound is a point or the edge of a cell
        assert np.array_equal(found, plain)
    else:
        assert (found & ~plain).sum() < 100  # 0.1 % a word, five times that as a bound


def test_widening_is_what_the_page_says() -> None:
    matcher = KeywordFilterMatch(QUOTES, points=POINTS, partitions=CELLS)

    def price(text: str) -> tuple[int, int]:
        return matcher.widened(text).ranges["price"]

    assert price("price > 100 AND price < 200") == (101, 199)  # strictly between points: exact
    assert price("price >= 100 AND price <= 200") == (51, 255)
    assert price("price < 90") == (0, 99)
    assert price("price < 10") == (0, 49)
    assert price("price > 210") == (201, 255)
    assert price("price = 201") == (201, 201)
    # Cells of 32 values, starting 0, 8, 16 or 24 earlier; codes are values plus one.
    assert matcher.widened("volume BETWEEN 24 AND 55").ranges["volume"] == (25, 56)
    assert matcher.widened("volume BETWEEN 25 AND 55").ranges["volume"] == (25, 56)
    assert matcher.widened("volume BETWEEN 20 AND 55").ranges["volume"] == (1, 56)
    assert matcher.widened("volume BETWEEN 100 AND 130").ranges["volume"] == (97, 160)
    assert matcher.widened("volume IS NULL OR volume < 9").ranges["volume"] == (0, 256)


@pytest.mark.parametrize("shifts", [1, 2, 4, 8])
def test_more_partitions_widen_less(shifts: int) -> None:
    schema = Schema(x=UInt(10))
    matcher = KeywordDictionaryMatch(schema, dictionaries={"x": []}, partitions={"x": (16, shifts)})
    rng = np.random.default_rng(5)
    extra = []
    for low, width in zip(rng.integers(0, 800, 400), rng.integers(2, 200, 400), strict=True):
        inside = matcher.widened(f"x BETWEEN {low} AND {low + width - 1}").ranges["x"]
        extra.append(inside[1] - inside[0] + 1 - width)
    # One partition leaves 63 values on average; many leave little more than rounding, 32.
    assert min(extra) >= 0
    assert np.mean(extra) == pytest.approx({1: 63, 2: 47, 4: 39, 8: 35}[shifts], abs=5)


@both
def test_wide_attributes_have_words_too(kind: Both) -> None:
    schema = Schema(note=Text(12), price=Decimal(0, 10, "0.5"))
    values = ["", "a", "ab", "twelve bytes", "ab\x01", "twelve bytez"]
    records = {"note": values, "price": [0, 1, 1, 2, 2, 10]}
    given = {"dictionaries": {"note": values[:-1]}} if kind is KeywordDictionaryMatch else {}
    texts = [f"note = '{value}'" for value in values[:-1]]
    found = answers(kind(schema, **given), records, texts)
    assert np.array_equal(found, np.eye(6, 5, dtype=bool))


def test_false_positive_rate_is_the_formula() -> None:
    schema = Schema(x=UInt(16), y=UInt(16))
    for hashes, bits in ((1, 64), (3, 64), (4, 128)):
        matcher = KeywordFilterMatch(schema, points={"y": [5, 9, 1000]}, hashes=hashes, bits=bits)
        assert matcher.words == 5
        stated = (1 - np.exp(-hashes * 5 / bits)) ** hashes
        assert matcher.false_positive_rate == pytest.approx(stated)
        records = {"x": np.zeros(4000, int), "y": np.zeros(4000, int)}
        absent = [f"x = {x}" for x in range(1, 101)]
        rate = answers(matcher, records, absent).mean()  # of 400,000
        exact = occupied(hashes * 5, bits) @ (np.arange(bits + 1) / bits) ** hashes
        assert abs(rate - exact) < 6 * np.sqrt(exact / 400_000)
        assert stated == pytest.approx(exact, rel=0.1)  # it takes bits as independent


def occupied(draws: int, bits: int) -> NDArray[np.float64]:
    """Chances that 0 .. bits bits are set after so many draws."""
    chances = np.zeros(bits + 1)
    chances[0] = 1
    share = np.arange(bits + 1) / bits
    for _ in range(draws):
        chances = chances * share + np.concatenate([[0], (chances * (1 - share))[:-1]])
    return chances


@both
def test_covering_is_never_wrong_and_sees_equal_words(kind: Both) -> None:
    matcher = kind(QUOTES, points=POINTS, partitions=CELLS)
    _, subscriber, broker = roles(matcher)
    texts = ["TRUE", "issue = 'IBM'", "issue = 'IBM' AND price < 100", "price < 100", "price < 90",
             "price < 200", "volume < 32", "volume < 32 AND price < 99", "price = 3"]  # fmt: skip
    messages = subscriber.encode(texts)
    found = broker.covers(messages, messages)
    records = quotes(3_000, 2)
    wide = [matcher.widened(text).evaluate(QUOTES.encode(records)) for text in texts]
    truth = np.array([[not (b & ~a).any() for b in wide] for a in wide])
    assert not (found & ~truth).any()
    assert found[0].all() and found.diagonal().all()
    assert found[1, 2] and found[3, 2] and found[3, 4] and found[4, 3] and found[6, 7]
    assert not found[5, 3] and truth[5, 3]  # containment that words do not show


# -- messages -----------------------------------------------------------------------------------


@both
def test_equal_events_are_unrelated_and_equal_interests_equal(kind: Both) -> None:
    publisher, subscriber, _ = roles(kind(QUOTES, points=POINTS, partitions=CELLS))
    one = publisher.encode({name: values * 2 for name, values in quotes(1, 3).items()})
    assert (one[0] != one[1])[BODY].sum() > 16
    texts = ["issue = 'IBM' AND price < 100", "price < 100 AND issue = 'IBM'", "price < 200"]
    first, second, third = subscriber.encode(texts)
    assert np.array_equal(first, second) and not np.array_equal(first, third)


@both
def test_broken_messages_are_refused(kind: Both) -> None:
    matcher = kind(QUOTES, points=POINTS, partitions=CELLS)
    publisher, subscriber, broker = roles(matcher)
    interests = subscriber.encode(["price < 100"])
    if kind is KeywordDictionaryMatch:
        interests[0, KEY_HEADER_BYTES + 2] = 7
        assert matcher.size % 8 != 0  # type: ignore[union-attr]
        events = publisher.encode(quotes(1, 4))
        events[0, BODY][-1] |= 128
        sealed(publisher, events)
        with pytest.raises(DecodeError, match="unused bits"):
            broker.match_all(events, subscriber.encode(["TRUE"]))
    else:
        interests[0, KEY_HEADER_BYTES : KEY_HEADER_BYTES + 16] = 0
    sealed(subscriber, interests)
    assert broker.examine_interests(interests).tolist() == [Cause.VALUE]
    with pytest.raises(DecodeError, match="row 0: the message holds a value"):
        broker.prepare(interests)


def test_an_attribute_of_more_limbs_than_a_block_can_name_is_refused() -> None:
    class Long(Text):
        extra = 255

        @property
        def limbs(self) -> int:
            return self.extra

    assert KeywordFilterMatch(Schema(note=Long(8))).words == 1
    Long.extra = 256
    with pytest.raises(ParameterError, match="attribute 'note' must have at most 16320 bits"):
        KeywordFilterMatch(Schema(note=Long(8)))
    # The longest that the library has, to the last of its blocks.
    records = {"note": ["x" * 1024, "x" * 1023 + "y", None]}
    matcher = KeywordFilterMatch(Schema(note=Text(1024, nullable=True)), false_positives=2**-40)
    texts = [f"note = '{records['note'][0]}'", "note IS NULL", "note IS NOT NULL"]
    assert answers(matcher, records, texts).T.tolist() == [
        [True, False, False],
        [False, False, True],
        [True, True, False],
    ]


@both
def test_a_broker_has_the_key_of_the_permutation_alone(kind: Both) -> None:
    assert set(secrets_of(kind(QUOTES).key_server().broker_key())) == {"permutation"}


@pytest.mark.parametrize("own", [{}, {"hashes": 8, "bits": 64}, {"hashes": 1, "bits": 128}])
def test_cost_of_a_pair_is_that_of_an_absent_word(own: dict[str, int]) -> None:
    """It is looked at as long as bits are set, up to all of them."""
    matcher = KeywordFilterMatch(QUOTES, points=POINTS, **own)  # type: ignore[arg-type]
    events = roles(matcher)[0].encode(quotes(2_000, 6))
    bits = np.unpackbits(events[:, BODY][:, 16:], axis=1).mean(axis=1)
    looked = np.mean([bits**number for number in range(matcher.hashes)], axis=1).sum()
    assert matcher.costs[-1].count == pytest.approx(looked, abs=0.2)


def test_costs_count_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema(note=Text(30, nullable=True), price=UInt(8))
    matcher = KeywordFilterMatch(schema, points={"price": [50, 100]})
    publisher, subscriber, _ = roles(matcher)
    counted: list[int] = []
    encipher = word_prf._Blocks._encipher

    def counting(self: Any, blocks: Any) -> Any:
        counted.append(len(blocks))
        return encipher(self, blocks)

    monkeypatch.setattr(word_prf._Blocks, "_encipher", counting)
    records = {"note": ["a", None, "b"], "price": [1, 70, 200]}
    publisher.encode(records)
    assert sum(counted) == 3 * matcher.costs[0].count
    counted.clear()
    subscriber.encode("note = 'a' AND price > 50 AND price < 100")  # all clauses there are
    assert sum(counted) == matcher.costs[1].count


def test_ten_thousand_interests_and_one_are_the_same_to_the_filter() -> None:
    matcher = KeywordFilterMatch(QUOTES, points=POINTS)
    publisher, subscriber, broker = roles(matcher)
    texts = [f"issue = '{i}' AND price = {p}" for i in ("IBM", "GOOG") for p in range(256)]
    events, interests = publisher.encode(quotes(200, 8)), subscriber.encode(texts)
    found = broker.match_all(events, np.tile(interests, (40, 1)))
    assert np.array_equal(found, np.tile(broker.match_all(events, interests), (1, 40)))
    for column in (0, 511):
        alone = broker.match_all(events, interests[column : column + 1])[:, 0]
        assert np.array_equal(found[:, column], alone)
    assert broker.match_all(events[:0], interests).shape == (0, 512)
