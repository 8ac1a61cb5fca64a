"""BranchingMatch: many pairs answer as plaintext, and programs have the stated sizes.

`test_templates.py` and `test_rounds.py` test what it has in common with other matchers.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from ccbps import Bool, Int, Keyword, Schema, Text, Timestamp, UInt
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import ParameterError
from ccbps.matching import BranchingMatch
from ccbps.predicates import Events, Predicate
from ccbps.wire import ROUND_HEADER_BYTES, TAG_BYTES
from tests.support.one_time import QUOTES, SYMBOLS, TEMPLATE, answered, quotes

# -- answers ------------------------------------------------------------------------------------


def test_match_of_quotes_is_what_sql_says() -> None:
    records = [
        {"issue": "IBM", "price": 119.99, "volume": 1001},
        {"issue": "IBM", "price": 120.00, "volume": 1001},
        {"issue": "SAP", "price": 119.99, "volume": 1001},
        {"issue": "IBM", "price": 0, "volume": 1000},
    ]
    wanted = "issue = 'IBM' AND price < 120 AND volume > 1000"
    expected = [True, False, False, False]
    assert answered(BranchingMatch.box(QUOTES), records, wanted).tolist() == expected
    template = "issue = :issue AND price < :limit AND volume > 1000"
    values = {"issue": "IBM", "limit": 120}
    assert answered(BranchingMatch(QUOTES, template), records, values).tolist() == expected


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
    assert np.array_equal(answered(matcher, events, column), expected)


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
    assert_equals_plaintext(BranchingMatch.box(QUOTES), quotes(40_000, 1), texts, bound)


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
    assert_equals_plaintext(matcher, quotes(count, 2), interests, bound)


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


# -- sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", [None, TEMPLATE, "price < :p OR volume = 3"])
def test_sizes_follow_from_the_program(template: str | None) -> None:
    matcher = BranchingMatch.box(QUOTES) if template is None else BranchingMatch(QUOTES, template)
    size = matcher.program.size
    bits = size * (size + 1) // 2
    assert matcher.event_bytes == matcher.interest_bytes == ROUND_HEADER_BYTES + -(-bits // 8)
    assert matcher.randomness_bytes == TAG_BYTES + 2 * 8 * -(-bits // 64)


def test_box_of_the_design_takes_683_bytes_a_side_behind_the_header() -> None:
    matcher = BranchingMatch.box(Schema(a=UInt(16), b=UInt(16), c=UInt(20)))
    assert matcher.program.size == 104
    assert matcher.event_bytes == 8 + 683


def test_the_hour_that_clocks_repeat_is_two_constants() -> None:
    first = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    second = first.replace(fold=1)  # an hour later, and equal to Python
    matcher = BranchingMatch(Schema(t=Timestamp("s", "2026-01-01", "2027-01-01")), "t < :limit")
    interests = [{"limit": first}, {"limit": second}]
    assert answered(matcher, [{"t": first}] * 2, interests).tolist() == [False, True]


# -- programs too large -------------------------------------------------------------------------

LISTED = Schema(n=UInt(16))
SCATTERED = f"n IN ({', '.join(str(2 * i) for i in range(400))})"


def test_list_of_neighbours_takes_the_messages_of_an_interval() -> None:
    matcher = BranchingMatch(LISTED, f"n IN ({', '.join(map(str, range(1000, 1400)))})")
    assert matcher.event_bytes == BranchingMatch(LISTED, "n BETWEEN 1000 AND 1399").event_bytes
    assert matcher.event_bytes < 100
    found = answered(matcher, {"n": [999, 1000, 1399, 1400]}, {})
    assert found.tolist() == [False, True, True, False]


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
