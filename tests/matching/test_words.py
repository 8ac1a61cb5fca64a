"""KeywordFilterMatch and KeywordDictionaryMatch: exact for words, ranges widened as announced."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps import Category, Decimal, Keyword, Schema, Text, Timestamp, UInt
from ccbps.ciphers import word_prf
from ccbps.errors import DecodeError, ParameterError, UnsupportedPredicateError
from ccbps.matching import KeywordDictionaryMatch, KeywordFilterMatch
from ccbps.wire import KEY_HEADER_BYTES, Cause
from tests.support.effort import examples
from tests.support.refusals import refused
from tests.support.reusable_checks import BODY, answers, conjunctions, plain, roles, sealed
from tests.support.strategies import record, rows, schemas, small_types
from tests.support.word_matchers import Both, both

QUOTES = Schema(
    issue=Category(["AAPL", "GOOG", "IBM", "MSFT"]), price=UInt(8), volume=UInt(8, nullable=True)
)
POINTS = {"price": [50, 100, 200]}
CELLS = {"volume": (8, 4)}


def quotes(count: int, seed: int) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    volume = [None if v > 255 else int(v) for v in rng.integers(0, 300, count)]
    issue = [QUOTES["issue"].values[i] for i in rng.integers(0, 4, count)]  # type: ignore[attr-defined]
    return {"issue": issue, "price": rng.integers(0, 256, count).tolist(), "volume": volume}


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
    interests, narrow, wide = [], [], []
    for predicate in data.draw(st.lists(conjunctions(schema), min_size=1, max_size=4)):
        try:
            predicate.box()
        except UnsupportedPredicateError:
            refused(UnsupportedPredicateError, "", filtered.widened, predicate)
            continue
        interests.append(predicate)
        narrow.append(predicate.evaluate(records))
        wide.append(exact.meaning(predicate, schema.encode(records)))
    matches = answers(exact, records, interests)
    assert matches.T.tolist() == [column.tolist() for column in wide]
    assert not any((exactly & ~wider).any() for exactly, wider in zip(narrow, wide, strict=True))
    assert not (matches & ~answers(filtered, records, interests)).any()


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
    matches, exact = answers(matcher, records, texts), plain(QUOTES, records, texts)
    assert not (exact & ~matches).any()
    if kind is KeywordDictionaryMatch:  # every bound is a point or the edge of a cell
        assert np.array_equal(matches, exact)
    else:
        assert (matches & ~exact).sum() < 100  # 0.1 % a word, five times that as a bound


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
    named = {"dictionaries": {"note": values[:-1]}}
    given: Any = named if kind is KeywordDictionaryMatch else {"false_positives": 2**-40}
    texts = [f"note = '{value}'" for value in values[:-1]]
    matches = answers(kind(schema, **given), records, texts)
    assert np.array_equal(matches, np.eye(6, 5, dtype=bool))


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
             "price < 200", "volume < 32", "volume < 32 AND price < 99", "price = 3",
             "issue = 'IBM' AND price > 50 AND price < 100 AND volume < 32"]  # fmt: skip
    assert len(matcher.prepare(texts[-1])) == matcher.vocabulary.clauses
    messages = subscriber.encode(texts)
    matches = broker.covers(messages, messages)
    records = quotes(3_000, 2)
    wide = [matcher.widened(text).evaluate(QUOTES.encode(records)) for text in texts]
    truth = np.array([[not (b & ~a).any() for b in wide] for a in wide])
    assert not (matches & ~truth).any()
    assert matches[0].all() and matches.diagonal().all()
    assert matches[1, 2] and matches[3, 2] and matches[3, 4] and matches[4, 3] and matches[6, 7]
    assert not matches[5, 3] and truth[5, 3]  # containment that words do not show


# -- messages -----------------------------------------------------------------------------------


@both
def test_equal_events_are_unrelated_and_equal_interests_equal(kind: Both) -> None:
    publisher, subscriber, _ = roles(kind(QUOTES, points=POINTS, partitions=CELLS))
    pair = publisher.encode({name: values * 2 for name, values in quotes(1, 3).items()})
    assert (pair[0] != pair[1])[BODY].sum() > 16
    texts = ["issue = 'IBM' AND price < 100", "price < 100 AND issue = 'IBM'", "price < 200"]
    first, second, third = subscriber.encode(texts)
    assert np.array_equal(first, second) and not np.array_equal(first, third)


@both
def test_broken_messages_are_refused(kind: Both) -> None:
    matcher = kind(QUOTES, points=POINTS, partitions=CELLS)
    publisher, subscriber, broker = roles(matcher)
    interests = subscriber.encode(["price < 100"])
    if kind is KeywordDictionaryMatch:
        place = np.array([matcher.size], dtype="<u4")  # type: ignore[union-attr]
        interests[0, BODY][:4] = place.view(np.uint8)
        assert matcher.size % 8 != 0  # type: ignore[union-attr]
        events = publisher.encode(quotes(1, 4))
        events[0, BODY][-1] |= 128
        sealed(publisher, events)
        refused(DecodeError, "unused bits", broker.match_all, events, subscriber.encode(["TRUE"]))
    else:
        interests[0, KEY_HEADER_BYTES : KEY_HEADER_BYTES + 16] = 0
    sealed(subscriber, interests)
    assert broker.examine_interests(interests).tolist() == [Cause.VALUE]
    refused(DecodeError, "row 0: the message holds a value", broker.prepare, interests)


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


@pytest.mark.parametrize("options", [{}, {"hashes": 8, "bits": 64}, {"hashes": 1, "bits": 128}])
def test_cost_of_a_pair_is_that_of_an_absent_word(options: dict[str, int]) -> None:
    """It is looked at as long as bits are set, up to all of them."""
    matcher = KeywordFilterMatch(QUOTES, points=POINTS, **options)  # type: ignore[arg-type]
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
    matches = broker.match_all(events, np.tile(interests, (40, 1)))
    assert np.array_equal(matches, np.tile(broker.match_all(events, interests), (1, 40)))
    for column in (0, 511):
        alone = broker.match_all(events, interests[column : column + 1])[:, 0]
        assert np.array_equal(matches[:, column], alone)
    assert broker.match_all(events[:0], interests).shape == (0, 512)


# -- parameters: checked, the same as JSON, and proposed for a predicate -------------------------


@both
def test_parameters_are_checked(kind: Both) -> None:
    for wrong, message in (
        ({"points": {"cost": [1]}}, "no attribute 'cost'"),
        ({"points": {"price": []}}, "one or more ascending"),
        ({"points": {"price": [5, 3]}}, "one or more ascending"),
        ({"points": {"price": [256]}}, "points of 'price'"),
        ({"points": {"price": [3]}, "partitions": {"price": (2, 1)}}, "not both"),
        ({"partitions": {"price": (0, 1)}}, "'price', cells must be .* at least 1, got 0"),
        ({"partitions": {"price": 7}}, r"partitions of 'price' must be \(cells.*got 7"),
        ({"partitions": {"price": (8,)}}, r"partitions of 'price' must be .*got \(8,\)"),
        ({"partitions": {"price": (8.0, 2)}}, "'price', cells must be .*got 8.0"),
        ({"partitions": {"price": (8, True)}}, "'price', shifts must be .*got True"),
        ({"partitions": {"price": np.array(8)}}, "partitions of 'price' must be .*got array"),
        ({"partitions": [("price", (8, 2))]}, "partitions must be a Mapping, got list"),
        ({"points": 7}, "points must be a Mapping, got int"),
        ({"points": {"price": 7}}, "points of 'price' must be a list of values, got 7"),
        ({"points": {"price": "57"}}, "points of 'price' must be a list of values, got '57'"),
        ({"points": {"price": {5: 7}}}, "points of 'price' must be a list of values"),
        ({"points": {"price": np.array(5)}}, "points of 'price' must be a list of values"),
        ({"partitions": {"price": (64, 5)}}, "shifts must be .* from 1 to 4, got 5"),
    ):
        refused(ParameterError, message, kind, QUOTES, **wrong)
    with pytest.raises(ParameterError, match="cells take at most 62"):
        kind(Schema(x=UInt(63)), partitions={"x": (4, 1)})
    subscriber = roles(kind(QUOTES, points=POINTS))[1]
    with pytest.raises(UnsupportedPredicateError, match="'volume' needs points") as caught:
        subscriber.encode(["price < 50", "volume < 7"])
    assert caught.value.row == 1 and "7" not in str(caught.value).split("matcher")[0]


def test_own_parameters_are_checked() -> None:
    for name, wrong in (
        *(("hashes", value) for value in (0, 65, 2.5, "3", True, [3])),
        *(("bits", value) for value in (0, 100, 1 << 21, 64.0, "64", np.array([64, 64]))),
        *(("false_positives", value) for value in (0.9, float("nan"), "0.1", True, [0.1])),
    ):
        with pytest.raises(ParameterError, match=f"^{name} must be .*got "):
            KeywordFilterMatch(QUOTES, **{name: wrong})  # type: ignore[arg-type]
    given = {"hashes": np.int64(3), "bits": np.int64(64), "false_positives": np.float32(0.25)}
    matcher = KeywordFilterMatch(QUOTES, points={"price": iter([5, 9])}, **given)  # type: ignore
    same = KeywordFilterMatch(QUOTES, points={"price": [5, 9]}, hashes=3, bits=64)
    assert pickle.loads(pickle.dumps(matcher)) == matcher == same
    for dictionaries, message in (
        (5, "dictionaries must be a Mapping, got int"),
        ({"price": 7}, "dictionary of 'price' must be a list of values, got 7"),
        ({"issue": "IBM"}, "dictionary of 'issue' must be a list of values, got 'IBM'"),
    ):
        refused(ParameterError, message, KeywordDictionaryMatch, QUOTES, dictionaries=dictionaries)
    with pytest.raises(ParameterError, match="no attribute 'cost'"):
        KeywordDictionaryMatch(QUOTES, dictionaries={"cost": []})
    with pytest.raises(ParameterError, match="dictionary of 'price'"):
        KeywordDictionaryMatch(QUOTES, dictionaries={"price": [300]})
    refused(ParameterError, "at most 1048576 words", KeywordDictionaryMatch, Schema(x=UInt(32)))
    dictionary = KeywordDictionaryMatch(Schema(x=UInt(32)), dictionaries={"x": [7, 2**31]})
    assert answers(dictionary, {"x": [7, 8, 2**31]}, ["x = 7", f"x = {2**31}"]).tolist() == [
        [True, False],
        [False, False],
        [False, True],
    ]
    with pytest.raises(UnsupportedPredicateError, match="does not have the value"):
        roles(dictionary)[1].encode("x = 8")


@both
def test_parameters_as_json_make_the_same_matcher(kind: Both) -> None:
    schema = Schema(
        day=Timestamp("day", "2020-01-01", "2030-12-31", nullable=True),
        price=Decimal(0, 10, "0.5"),
        note=Text(20),
        tag=Keyword(64),
        volume=UInt(8),
    )
    given: dict[str, Any] = {
        "points": {"day": ["2021-05-01", datetime.date(2022, 1, 1)], "price": ["0.5", 2.0]},
        "partitions": {"volume": (8, 2)},
    }
    if kind is KeywordDictionaryMatch:
        given["dictionaries"] = {"note": ["IBM", "SAP", "IBM"], "tag": ["x"], "day": []}
        given["dictionaries"] |= {"price": [decimal.Decimal("0.5")], "volume": []}
    else:
        given["false_positives"] = 2**-40  # so that none is met
    matcher = kind(schema, **given)
    text = json.dumps(matcher.parameters())
    again = kind.from_parameters(schema, json.loads(text))
    assert again == matcher and again.sizes == matcher.sizes
    assert json.dumps(again.parameters()) == text
    day, price = [datetime.date(2021, 5, 1), "2022-01-01"], [decimal.Decimal("0.50"), 2]
    assert kind(schema, **given | {"points": {"day": day, "price": price}}) == matcher
    # Messages of the one for a broker of the other.
    server = matcher.key_server()
    records = {"day": [None, "2021-05-02"], "price": [1, 0.5], "volume": [9, 70]}
    records |= {"note": ["IBM", "SAP"], "tag": ["x", "y"]}
    texts = ["day > DATE '2021-05-01'", "note = 'IBM' AND tag = 'x'", "price < 2", "volume < 32"]
    events = matcher.publisher(server.publisher_key()).encode(records)
    interests = matcher.subscriber(server.subscriber_key("alice")).encode(texts)
    matches = again.broker(server.broker_key()).match_all(events, interests)
    assert np.array_equal(matches, plain(schema, records, texts))
    for name, wrong in (
        ("points", {"price": [1]}),
        ("points", {"price": ["1"]}),
        ("points", {"price": ["0x01"]}),
        ("points", {"price": ["0x15"]}),  # 21 of 21 values
        ("points", {"day": ["0x0"]}),  # NULL
        ("points", {"price": "0x1"}),
        ("points", {"cost": ["0x1"]}),
        ("points", [5]),
        ("points", None),
        ("partitions", {"volume": [8]}),
    ):
        with pytest.raises(ParameterError, match=name):
            kind.from_parameters(schema, {**matcher.parameters(), name: wrong})
    for name in matcher.parameters():
        left = {key: value for key, value in matcher.parameters().items() if key != name}
        with pytest.raises(ParameterError, match=f"{name} must be|parameters are not those"):
            kind.from_parameters(schema, left)


@both
def test_matchers_are_proposed_with_points_that_tell_nothing(
    kind: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults: Any = KeywordFilterMatch.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "false_positives", 2**-40)  # so that none is met
    proposals = [
        list(kind.propose(QUOTES, QUOTES.parse(text)))
        for text in ("issue = 'IBM' AND price < 77", "price < 12", "price = 3", "price < 3 OR TRUE")
    ]
    (first,), (second,), (equal,), (free,) = proposals
    assert first.vocabulary.points == second.vocabulary.points
    assert first.vocabulary.points == {"price": list(range(16, 256, 16))}
    assert equal.vocabulary.points == free.vocabulary.points == {}
    assert (first == second) is (kind is KeywordFilterMatch)  # a dictionary has its equalities
    assert first.widened("price < 77").ranges["price"] == (0, 79)
    matches = answers(first, {"issue": ["IBM"] * 2, "price": [79, 80], "volume": [1, 1]},
                    ["issue = 'IBM' AND price < 77"])  # fmt: skip
    assert matches[:, 0].tolist() == [True, False]
    assert not list(kind.propose(QUOTES, QUOTES.parse("price < 3 OR volume < 3")))
    assert not list(kind.propose(QUOTES, QUOTES.parse("price < :limit")))
    # Few values, and NULL among them.
    small = Schema(level=Category(["a", "b", "c"], nullable=True))
    (matcher,) = kind.propose(small, small.parse("level < 'c'"))
    assert matcher.vocabulary.points == {"level": [1, 2, 3]}
    wide = Schema(x=UInt(32))
    assert bool(list(kind.propose(wide, wide.parse("x = 3")))) is (kind is KeywordFilterMatch)
    assert list(kind.propose(wide, wide.parse("x < 3")))
