"""ThresholdMatch against the plaintext meaning: distances, scores, refusals, sizes."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Category, Schema, SharedSeed, UInt
from ccbps.errors import DecodeError, ParameterError, PredicateError
from ccbps.matching import ThresholdMatch, from_json
from tests.support.effort import examples
from tests.support.one_time import answered

QUOTES = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(16), mark=UInt(64))
CONDITIONS = {"ibm": "issue = 'IBM'", "cheap": "price < 100", "marked": "mark IN (1, 7)"}


@given(data=st.data(), bits=st.sampled_from([1, 2, 8, 33, 64]))
@settings(max_examples=examples(60))
def test_distances_are_found(data: st.DataObject, bits: int) -> None:
    schema = Schema(x=UInt(bits))
    code = st.integers(0, (1 << bits) - 1)
    values = data.draw(st.lists(code, min_size=1, max_size=6))
    texts = []
    for value in values:
        centre = data.draw(code | st.just(value ^ 1))
        limit, negation = (
            data.draw(st.integers(-1, bits + 1)),
            data.draw(st.sampled_from(["", "NOT "])),
        )
        texts.append(f"{negation}hamming(x, {centre}) <= {limit}")
    expected = [
        bool(schema.parse(text).evaluate({"x": [value]})[0])
        for text, value in zip(texts, values, strict=True)
    ]
    assert answered(ThresholdMatch(schema), {"x": values}, texts).tolist() == expected


@pytest.mark.parametrize("count", [2, 4, pytest.param(16, marks=pytest.mark.slow)])
def test_distances_over_several_attributes(count: int) -> None:
    schema = Schema({"price": UInt(16), **{f"a{number}": UInt(64) for number in range(count)}})
    names = [f"a{number}" for number in range(count)]
    matcher, rng = ThresholdMatch(schema, names), np.random.default_rng(count)
    events, wanted, expected = [], [], []
    for row in range(12):
        centre = {name: int(rng.integers(0, 1 << 63)) for name in names}
        flips = {
            name: int(rng.integers(0, 1 << 63)) & int(rng.integers(0, 1 << 63)) for name in names
        }
        events.append({"price": 1, **{name: centre[name] ^ flips[name] for name in names}})
        distance = sum(flip.bit_count() for flip in flips.values())
        limit = distance + int(rng.integers(-1, 2))
        wanted.append({**centre, ("beyond" if row % 2 else "within"): limit})
        expected.append((distance <= limit) ^ (row % 2 == 1))
    assert answered(matcher, events, wanted).tolist() == expected
    batch = schema.encode(events)
    assert [bool(matcher.meaning(own, batch)[row]) for row, own in enumerate(wanted)] == expected
    for other in ({**wanted[0], "colour": 3}, {"a0": 1, "within": 3}, "hamming(a0, 3) <= 2"):
        with pytest.raises(ParameterError, match="a mapping with the keys"):
            matcher.prepare(other)
    with pytest.raises(ParameterError, match="value of 'a1' must be a whole number from 0"):
        matcher.prepare({**wanted[0], "a1": -1})


@given(data=st.data())
@settings(max_examples=examples(60))
def test_scores_are_found(data: st.DataObject) -> None:
    matcher = ThresholdMatch.score(QUOTES, CONDITIONS, total=20)
    weight, count = st.integers(-6, 6), 8
    wanted: list[dict[str, int]] = [
        {
            **{name: data.draw(weight) for name in CONDITIONS if data.draw(st.booleans())},
            "at_least": data.draw(st.integers(-30, 30) | weight),
        }
        for _ in range(count)
    ]
    events = {
        "issue": [data.draw(st.sampled_from(["AAPL", "IBM"])) for _ in range(count)],
        "price": [data.draw(st.sampled_from([5, 99, 100])) for _ in range(count)],
        "mark": [data.draw(st.sampled_from([0, 1, 7])) for _ in range(count)],
    }
    holds = {name: QUOTES.parse(sql).evaluate(events) for name, sql in CONDITIONS.items()}
    expected = [
        sum(own.get(name, 0) * int(holds[name][row]) for name in CONDITIONS) >= own["at_least"]
        for row, own in enumerate(wanted)
    ]
    assert answered(matcher, events, wanted).tolist() == expected
    batch = QUOTES.encode(events)
    meanings = [matcher.meaning(own, batch)[row] for row, own in enumerate(wanted)]
    assert np.array_equal(meanings, expected)


def test_64_bits_take_13_and_325_bytes() -> None:
    matcher = ThresholdMatch(QUOTES, "mark")
    assert matcher.encoding.prime == 51637156931
    assert (matcher.sizes.event, matcher.sizes.interest) == (8 + 5, 65 * 5)


def test_weights_and_limits_at_the_bound() -> None:
    matcher = ThresholdMatch.score(QUOTES, CONDITIONS, total=8)
    events = {"issue": ["IBM"] * 6, "price": [5] * 6, "mark": [0] * 6}  # ibm and cheap hold
    wanted = [
        {"ibm": 8, "at_least": 8},
        {"ibm": 8, "at_least": 9},
        {"ibm": -8, "at_least": -8},
        {"marked": 8, "at_least": 1},
        {"marked": -8, "at_least": 10**30},
        {"ibm": 4, "cheap": -4, "at_least": 0},
    ]
    assert answered(matcher, events, wanted).tolist() == [True, False, True, False, False, True]


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ({"ibm": 1}, "at_least"),
        ({"ibm": 1, "at_least": 1, "colour": 2}, "colour"),
        ({"ibm": 9, "at_least": 1}, "weight of 'ibm' must be a whole number from -8 to 8"),
        ({"ibm": 5, "cheap": -4, "at_least": 1}, "sum to 9, and this matcher takes at most 8"),
        ({"ibm": 0.5, "at_least": 1}, "whole number"),
        ({"ibm": True, "at_least": 1}, "whole number"),
        ("ibm > 3", "a mapping with weights"),
    ],
)
def test_other_scores_are_refused(wanted: Any, problem: str) -> None:
    with pytest.raises(ParameterError, match=problem):
        ThresholdMatch.score(QUOTES, CONDITIONS, total=8).prepare(wanted)


@pytest.mark.parametrize(
    "text", ["mark = 3", "hamming(price, 3) <= 2", "hamming(mark, 3) <= 2 AND price = 3"]
)
def test_other_predicates_are_refused(text: str) -> None:
    with pytest.raises(PredicateError, match="one condition on a Hamming distance of mark"):
        ThresholdMatch(QUOTES, "mark").prepare(text)


def test_impossible_parameters_are_refused() -> None:
    nullable: Any = Schema(x=UInt(8, nullable=True))
    many = Schema({f"a{number}": UInt(64) for number in range(17)})
    for make, problem in (
        (lambda: ThresholdMatch(QUOTES), "UInts that are not nullable, and 'issue' is"),
        (lambda: ThresholdMatch(QUOTES, "colour"), "no attribute 'colour'"),
        (lambda: ThresholdMatch(nullable), "UInts that are not nullable"),
        (lambda: ThresholdMatch(QUOTES, []), "must be a list of names"),
        (lambda: ThresholdMatch(many), "1,088 bits together, at most 1,024"),
        (lambda: ThresholdMatch(Schema(a=UInt(1), within=UInt(1))), "cannot be called"),
        (lambda: ThresholdMatch.score(QUOTES, {}, total=3), "at least one"),
        (lambda: ThresholdMatch.score(QUOTES, CONDITIONS, total=0), "total must be"),
        (lambda: ThresholdMatch.score(QUOTES, CONDITIONS, total=1025), "total must be"),
        (lambda: ThresholdMatch.score(QUOTES, {"at_least": "price < 3"}, total=3), "the limit"),
        (lambda: ThresholdMatch.score(QUOTES, {"a": "price < :p"}, total=3), "need values"),
        (lambda: ThresholdMatch.score(QUOTES, {"a": 3}, total=3), "a must be"),  # type: ignore[dict-item]
    ):
        with pytest.raises((ParameterError, PredicateError), match=problem):
            make()  # type: ignore[no-untyped-call]


def test_matchers_travel_as_text_and_pickles() -> None:
    for matcher in (
        ThresholdMatch(QUOTES, "mark"),
        ThresholdMatch.score(QUOTES, CONDITIONS, total=8),
    ):
        assert from_json(matcher.to_json()) == matcher == pickle.loads(pickle.dumps(matcher))
    swapped = dict(reversed(CONDITIONS.items()))
    score = ThresholdMatch.score(QUOTES, CONDITIONS, total=8)
    assert ThresholdMatch.score(QUOTES, swapped, total=8) != score
    for parameters in ({"conditions": 3, "total": 8}, {"conditions": [["a"]], "total": 8}):
        with pytest.raises(ParameterError, match="pairs of a name and SQL text"):
            ThresholdMatch.from_parameters(QUOTES, parameters)
    twice = {"conditions": [["a", "price < 3"], ["a", "price < 4"]], "total": 8}
    with pytest.raises(ParameterError, match="must differ"):
        ThresholdMatch.from_parameters(QUOTES, twice)


def test_altered_messages_are_refused() -> None:
    matcher, seed = ThresholdMatch(QUOTES, "mark"), SharedSeed.generate()
    events = matcher.publisher(seed).encode({"issue": ["IBM"], "price": [1], "mark": [1]}, [0])
    interests = matcher.subscriber(seed).encode("hamming(mark, 1) <= 3", [0])
    assert matcher.broker().match(events, interests).all()
    events[0, -1] = 255
    with pytest.raises(DecodeError, match="row 0"):
        matcher.broker().match(events, interests)
