"""EqualityMatch, MembershipMatch and TruthTableMatch against the plaintext meaning; refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Category, Keyword, OneTimePad, Schema, SharedSeed, Text, UInt
from ccbps.errors import DecodeError, ParameterError, PredicateError, UnsupportedPredicateError
from ccbps.matching import EqualityMatch, Matcher, MembershipMatch, TruthTableMatch
from tests.support.effort import examples
from tests.support.one_time import answered
from tests.support.strategies import predicates, record, rows, schemas

QUOTES = Schema(issue=Category(["AAPL", "IBM", "SAP"]), price=UInt(16), account=UInt(64))
TINY = Schema(x=UInt(3), y=Category(["a", "c"], nullable=True))


@given(data=st.data(), schema=schemas())
@settings(max_examples=examples(150))
@pytest.mark.parametrize("scheme", [EqualityMatch, MembershipMatch, TruthTableMatch])
def test_what_is_proposed_answers_as_in_plaintext(
    scheme: type[Matcher], data: st.DataObject, schema: Schema
) -> None:
    drawn = data.draw(predicates(schema))
    predicate = schema.parse(drawn.text).bind(**drawn.private)
    records = [record(row) for row in data.draw(rows(schema))]
    for matcher in scheme.propose(schema, predicate):
        events = schema.encode(records)
        found = answered(matcher, events, [predicate] * events.count)
        assert np.array_equal(found, predicate.evaluate(events))


@given(data=st.data())
@settings(max_examples=examples(80))
def test_sets_of_values_are_found(data: st.DataObject) -> None:
    issues = data.draw(st.sets(st.sampled_from(["AAPL", "IBM", "SAP", "none"]), min_size=1))
    prices = data.draw(st.sets(st.integers(0, 20), min_size=1, max_size=6))
    matcher = MembershipMatch(QUOTES, ["issue", "price"], members=len(issues) * len(prices))
    listed = ", ".join(f"'{issue}'" for issue in sorted(issues))
    text = f"issue IN ({listed}) AND price IN ({', '.join(map(str, sorted(prices)))})"
    count = 12
    events = {
        "issue": data.draw(
            st.lists(st.sampled_from(["AAPL", "IBM", "SAP"]), min_size=count, max_size=count)
        ),
        "price": data.draw(st.lists(st.integers(0, 20), min_size=count, max_size=count)),
        "account": list(range(count)),
    }
    wanted = QUOTES.parse(text)
    assert np.array_equal(answered(matcher, events, [text] * count), wanted.evaluate(events))


def test_equality_of_64_bits_takes_8_bytes_a_side() -> None:
    matcher = EqualityMatch(QUOTES, ["account"])
    assert (matcher.event_bytes, matcher.interest_bytes) == (16, 16)
    accounts = [5, 2**64 - 1, 0]
    events = {"issue": ["IBM"] * 3, "price": [0] * 3, "account": accounts}
    assert answered(matcher, events, [f"account = {2**64 - 1}"] * 3).tolist() == [
        False,
        True,
        False,
    ]


def test_what_never_matches_takes_a_value_that_no_event_has() -> None:
    every = {"x": [*range(8)] * 2, "y": ["a"] * 8 + [None] * 8}
    for matcher in (MembershipMatch(TINY, ["x"], members=2), EqualityMatch(TINY, ["y"])):
        for text in ("x = 1000 AND y = 'a'", "FALSE", "y = NULL", "x = 3 AND x = 4"):
            assert not answered(matcher, every, [text] * 16).any()
    # The values of x fill its bits.
    with pytest.raises(UnsupportedPredicateError, match="every value is that of some event"):
        EqualityMatch(TINY, ["x"]).prepare("x = 1000")


def test_null_is_a_value() -> None:
    matcher = MembershipMatch(TINY, ["y"], members=2)
    events = {"x": [1, 1, 1], "y": ["a", None, "c"]}
    text = "y IS NULL OR y = 'c'"
    assert answered(matcher, events, [text] * 3).tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("make", "text", "problem"),
    [
        (
            lambda: EqualityMatch(QUOTES, ["issue"]),
            "issue = 'IBM' AND price = 3",
            "constrains 'price'",
        ),
        (lambda: EqualityMatch(QUOTES, ["issue"]), "issue IN ('IBM', 'SAP')", "it has 2 values"),
        (lambda: EqualityMatch(QUOTES, ["issue"]), "TRUE", "it has 3 values.*one value of issue"),
        (lambda: EqualityMatch(QUOTES, ["price"]), "price < 7", "it has 7 values"),
        (lambda: EqualityMatch(QUOTES, ["price"]), "price <> 7", "65,535 values"),
        (lambda: MembershipMatch(QUOTES, ["price"], members=3), "price < 5", "5 .* at most 4"),
        (lambda: MembershipMatch(QUOTES, members=8), "price = 3", "55,340,232,221,128,654,848"),
        (lambda: MembershipMatch(QUOTES, members=8), "price = 3 OR issue = 'IBM'", "several"),
    ],
)
def test_other_predicates_are_refused(make: Any, text: str, problem: str) -> None:
    with pytest.raises(PredicateError, match=problem):
        make().prepare(text)


def test_impossible_parameters_are_refused() -> None:
    long, full = Schema(note=Text(200)), Schema(**{f"a{n}": UInt(64) for n in range(16)})
    for make, problem in (
        (lambda: EqualityMatch(QUOTES, []), "must be a list of names"),
        (lambda: EqualityMatch(QUOTES, "issue"), "must be a list of names"),
        (lambda: EqualityMatch(QUOTES, ["colour"]), "no attribute 'colour'"),
        (lambda: EqualityMatch(QUOTES, ["price", "price"]), "must differ"),
        (lambda: EqualityMatch(long), "at most 1,024"),
        (lambda: MembershipMatch(full, members=4), "at most 1,023"),
        (lambda: MembershipMatch(QUOTES, members=0), "members must be"),
        (lambda: MembershipMatch(QUOTES, members=4097), "members must be"),
        (lambda: TruthTableMatch(QUOTES), "82 bits.*at most 20"),
    ):
        with pytest.raises(ParameterError, match=problem):
            make()  # type: ignore[no-untyped-call]
    assert MembershipMatch(QUOTES, members=5).members == 8
    assert EqualityMatch(Schema(note=Keyword(128)))
    assert EqualityMatch(full)


def test_proposals_take_the_attributes_of_the_predicate() -> None:
    found = EqualityMatch.propose(QUOTES, QUOTES.parse("issue = 'IBM' AND price = 4"))
    assert [*map(repr, found)] == ["<EqualityMatch over issue, price>"]
    several = QUOTES.parse("price IN (1, 5, 9)")
    found = MembershipMatch.propose(QUOTES, several)
    assert [*map(repr, found)] == ["<MembershipMatch of 4 values over price>"]
    assert not [*EqualityMatch.propose(QUOTES, several)]


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 6, 7, 12, 16])
def test_tables_of_every_size(bits: int) -> None:
    schema = Schema(x=UInt(bits))
    matcher, values = TruthTableMatch(schema), [*range(1 << bits)][:: 1 << max(0, bits - 7)]
    assert matcher.sizes.interest == max(1, (1 << bits) // 8)
    text = "x % 2 = 1" if False else f"hamming(x, {(1 << bits) - 1}) <= {bits // 2} OR x = 0"
    expected = schema.parse(text).evaluate({"x": values})
    assert np.array_equal(answered(matcher, {"x": values}, [text] * len(values)), expected)


def test_publisher_of_a_long_table_makes_two_pieces_of_randomness() -> None:
    schema = Schema(x=UInt(20))
    matcher = TruthTableMatch(schema)
    assert matcher.encoding.pieces == 32
    asked: list[tuple[int, int, int]] = []
    events = np.arange(3, dtype=np.int64) << 18
    out = np.empty((3, matcher.sizes.event), dtype=np.uint8)

    def pieces(start: int, stop: int, piece: int) -> Any:
        asked.append((start, stop, piece))
        return np.zeros((stop - start, matcher.encoding.randomness_bytes), dtype=np.uint8)

    matcher.encoding.encode_event(events, pieces, out)
    assert asked == [(0, 3, 0), (1, 2, 8), (2, 3, 16)]


@pytest.mark.slow
def test_longest_table() -> None:
    schema = Schema(a=UInt(10), b=UInt(10))
    matcher, rng = TruthTableMatch(schema), np.random.default_rng(1)
    events = schema.encode({"a": rng.integers(0, 1024, 200), "b": rng.integers(0, 1024, 200)})
    text = "a < 300 AND NOT b BETWEEN 100 AND 900 OR hamming(a, 5) <= 3"
    assert np.array_equal(
        answered(matcher, events, [text] * 200), schema.parse(text).evaluate(events)
    )


def test_altered_padding_is_refused() -> None:
    for matcher in (TruthTableMatch(Schema(x=UInt(2))), EqualityMatch(Schema(x=UInt(3)))):
        seed = SharedSeed.generate()
        events = matcher.publisher(seed).encode({"x": [1]}, [0])
        interests = matcher.subscriber(seed).encode("x = 1", [0])
        assert matcher.broker().match(events, interests).all()
        for side in (events, interests):
            altered = side.copy()
            altered[0, -1] |= 0x80
            pair = (altered, interests) if side is events else (events, altered)
            with pytest.raises(DecodeError, match="unused bits"):
                matcher.broker().match(*pair)


def test_one_time_pads_serve() -> None:
    for matcher in (EqualityMatch(TINY, ["x"]), TruthTableMatch(TINY)):
        pad = np.random.default_rng(3).bytes(4 * matcher.randomness_bytes)
        events = matcher.publisher(OneTimePad(pad)).encode({"x": [1, 2], "y": ["a", None]}, [0, 3])
        interests = matcher.subscriber(OneTimePad(pad)).encode("x = 2", [0, 3])
        assert matcher.broker().match(events, interests).tolist() == [False, True]
