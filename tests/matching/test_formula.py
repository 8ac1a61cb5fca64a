"""FormulaMatch: wide attributes, and sizes as gates say; and limits of gates.

`test_templates.py` tests what it has in common with other matchers.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ccbps import (
    Decimal,
    Int,
    Keyword,
    Schema,
    Text,
    Timestamp,
    UInt,
)
from ccbps.errors import ParameterError
from ccbps.forms.formula import FormulaForm
from ccbps.forms.leaves import Leaves
from ccbps.matching import BranchingMatch, BroadcastMatch, FormulaMatch, from_json, templates
from ccbps.matching.templates import MAX_SIZE
from ccbps.predicates.form import InRange
from ccbps.programs.formula import gates
from ccbps.wire import ROUND_HEADER_BYTES, TAG_BYTES
from tests.support.one_time import BITS, QUOTES, TEMPLATE, answered
from tests.support.program_values import evaluate

# -- answers ------------------------------------------------------------------------------------


def test_a_range_of_codes_that_is_empty_never_holds_however_it_is_written() -> None:
    """Predicates come with one kind of empty range; the formula would take others amiss."""
    schema = Schema(x=UInt(3))
    form = FormulaForm(Leaves(schema), InRange("x", None, None, equal=False, negated=False), 99)
    events = schema.encode({"x": range(8)})
    sent, rounds = form.event_rows(events), np.arange(8)
    for low, high in np.ndindex(8, 8):
        asked = form.interest_row(InRange("x", low, high, equal=False, negated=False))
        wanted = asked.repeat(8, axis=0)
        bits = [np.unpackbits(w.view(np.uint8), axis=1, bitorder="little") for w in (sent, wanted)]
        found = evaluate(form.formula, *(b.T.astype(bool) for b in bits))
        assert found.tolist() == ((low <= rounds) & (rounds <= high)).tolist()


@pytest.mark.parametrize(("window", "length"), [(1, 20), (2, 70), (4, 20)])
def test_a_long_text_is_compared_in_all_its_digits(window: int, length: int) -> None:
    schema = Schema(t=Text(length))
    matcher = BroadcastMatch.box(schema, window=window)
    start = "a" * (length - 1)
    texts = [start + "b", start + "a", start + "c", "b", ""]
    found = answered(matcher, schema.encode({"t": texts}), f"t <= '{texts[0]}'")
    assert found.tolist() == [True, True, False, False, True]


def test_wide_attributes_are_compared_in_all_their_bits() -> None:
    schema = Schema(
        u=UInt(64), i=Int(64), d=Decimal(-(2**40), 2**40, 1), k=Keyword(128), t=Text(12)
    )
    assert schema["k"].bits == 128 and schema["t"].bits > 64
    edges: dict[str, list[Any]] = {
        "u": [0, 1, 2**63 - 1, 2**63, 2**64 - 1],
        "i": [-(2**63), -1, 0, 1, 2**63 - 1],
        "d": [-(2**40), -1, 0, 1, 2**40],
        "k": ["", "a", "b", "ab", "a" * 40],
        "t": ["", "a", "abcdefghijkl", "abcdefghijkm", "b"],
    }
    box = FormulaMatch.box(schema)
    for name, values in edges.items():
        middle = {other: [some[2]] * 5 for other, some in edges.items()}
        events = schema.encode({**middle, name: values})
        signs = ("=",) if name == "k" else ("=", "<", ">=")
        for sign in signs:
            template = FormulaMatch(schema, f"{name} {sign} :p")
            for value in values:
                shown = f"'{value}'" if isinstance(value, str) else str(value)
                text = f"{name} {sign} {shown}"
                expected = schema.parse(text).evaluate(events).tolist()
                assert any(expected) or sign == "<"
                assert answered(template, events, {"p": value}).tolist() == expected
                assert answered(box, events, text).tolist() == expected


# -- sizes --------------------------------------------------------------------------------------


def count_of(template: str, schema: Schema = BITS) -> int:
    return gates(FormulaMatch(schema, template).formula)


@pytest.mark.parametrize(
    "template",
    ["a < 3", "a < 3 AND b > 5 OR c IN (1, 4)", "NOT at_least(2, a < 3, b < 4, c < 5)", "TRUE"],
)
def test_a_template_without_private_constants_takes_one_bit(template: str) -> None:
    matcher = FormulaMatch(BITS, template)
    assert gates(matcher.formula) == 0
    assert matcher.sizes.event == matcher.sizes.interest == 1


@pytest.mark.parametrize(
    ("private", "with_public"),
    [
        ("a < :p", "a < :p AND b > 5"),
        ("a < :p", "b > 5 AND a < :p"),
        ("a < :p", "a < :p AND (b > 5 OR c IN (1, 4)) AND NOT d = 3"),
        ("a < :p", "a < :p OR b > 5"),
        ("a < :p OR c = :q", "a < :p OR b > 5 OR c = :q OR d < 3"),
        ("a < :p AND c = :q", "a < :p AND b > 5 AND (c = :q AND d < 3)"),
    ],
)
def test_a_public_condition_adds_one_gate_however_large_it_is(
    private: str, with_public: str
) -> None:
    assert count_of(with_public) == count_of(private) + 1
    small, large = FormulaMatch(BITS, private), FormulaMatch(BITS, with_public)
    assert large.encoding.interest_bits == small.encoding.interest_bits


@pytest.mark.parametrize(
    ("template", "count"),
    [
        ("price < :p", 16),
        ("price >= :p", 16),
        ("price BETWEEN :p AND :q", 32),
        ("volume = :p", 20),
        ("issue = :p", 2),  # a code is left over for what does not occur
        ("issue LIKE :p", 6),
        ("price < :p AND issue = :q OR volume > 5", 16 + 1 + 2 + 1),
    ],
)
def test_conditions_take_as_many_gates_as_bits(template: str, count: int) -> None:
    assert count_of(template, QUOTES) == count


@pytest.mark.parametrize("sign", ["AND", "OR"])
def test_nested_conditions_of_one_kind_make_the_same_formula(sign: str) -> None:
    flat = f"a < :p {sign} b < :q {sign} c < :r {sign} d < :s"
    nested = [
        f"a < :p {sign} (b < :q {sign} (c < :r {sign} d < :s))",
        f"((a < :p {sign} b < :q) {sign} c < :r) {sign} d < :s",
        f"(a < :p {sign} b < :q) {sign} (c < :r {sign} d < :s)",
    ]
    wanted = FormulaMatch(BITS, flat).layout()
    assert all(FormulaMatch(BITS, text).layout() == wanted for text in nested)


def test_stock_box_takes_73_and_76_bytes_behind_the_header() -> None:
    matcher = FormulaMatch.box(Schema(a=UInt(16), b=UInt(16), c=UInt(20)))
    assert (matcher.sizes.event, matcher.sizes.interest) == (73, 76)
    assert matcher.event_bytes == ROUND_HEADER_BYTES + 73 == 81
    assert matcher.interest_bytes == ROUND_HEADER_BYTES + 76 == 84
    assert "10 AES blocks" in matcher.explain()


def test_sixteen_attributes_of_32_bits_take_less_than_1300_bytes() -> None:
    matcher = FormulaMatch.box(Schema({f"a{i}": UInt(32) for i in range(16)}))
    assert max(matcher.event_bytes, matcher.interest_bytes) < 1300


MATCHERS: dict[str, Callable[[], FormulaMatch]] = {
    "box": lambda: FormulaMatch.box(QUOTES),
    "template": lambda: FormulaMatch(QUOTES, TEMPLATE),
    "predicate": lambda: FormulaMatch(QUOTES, QUOTES.parse("price < :p OR volume = 3")),
}
every_matcher = pytest.mark.parametrize("name", MATCHERS)


@every_matcher
def test_sizes_follow_from_the_slots(name: str) -> None:
    matcher = MATCHERS[name]()
    slots = matcher.encoding.slots
    for bits, body, whole in zip(
        slots.bits,
        (matcher.sizes.event, matcher.sizes.interest),
        (matcher.event_bytes, matcher.interest_bytes),
        strict=True,
    ):
        assert body == -(-bits // 8) and whole == ROUND_HEADER_BYTES + body
    random = -(-slots.random_bits // 8) + -(-len(slots.both) // 8)
    assert matcher.randomness_bytes == TAG_BYTES + random


# -- what is refused ----------------------------------------------------------------------------


def test_formulas_past_the_limit_name_what_shares_its_nodes() -> None:
    schema = Schema(x=UInt(27))
    text = "hamming(x, :y) <= 13"
    with pytest.raises(ParameterError) as refusal:
        FormulaMatch(schema, text)
    other = BranchingMatch(schema, text)
    assert "more than the 4,096 AND gates that max_gates allows" in str(refusal.value)
    assert "take BranchingMatch(schema, template)" in str(refusal.value)
    assert f"{other.event_bytes:,} bytes an event" in str(refusal.value)
    assert gates(FormulaMatch(schema, text, max_gates=20_000).formula) > MAX_SIZE


@pytest.mark.parametrize(
    "make", [FormulaMatch.box, lambda schema, **o: FormulaMatch(schema, "a = :p", **o)]
)
def test_a_limit_is_a_whole_number_of_gates(make: Callable[..., FormulaMatch]) -> None:
    exact = gates(make(BITS).formula)
    assert make(BITS, max_gates=exact) == make(BITS)
    with pytest.raises(ParameterError, match=f"more than the {exact - 1} AND gates"):
        make(BITS, max_gates=exact - 1)
    for wrong in (0, -1, None, 4096.0, "9", True):
        with pytest.raises(ParameterError, match="max_gates must be a whole number, at least 1"):
            make(BITS, max_gates=wrong)


def test_a_long_template_is_refused_before_it_is_built() -> None:
    long = BITS.parse("a < :p OR " * 2500 + "a < :p")
    with pytest.raises(ParameterError, match="more than the 4,096 AND gates"):
        FormulaMatch(BITS, long)


def test_a_large_matcher_that_somebody_made_is_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_SIZE == 4096  # here a lower limit, as a matcher of so many takes long to make
    monkeypatch.setattr(templates, "MAX_SIZE", 1000)
    schema = Schema({f"a{number}": UInt(32) for number in range(16)})
    matcher = FormulaMatch.box(schema, max_gates=2000)
    assert gates(matcher.formula) > 1000
    assert pickle.loads(pickle.dumps(matcher)) == matcher == copy.deepcopy(matcher)
    with pytest.raises(ParameterError, match="at most 1,000 gates"):
        from_json(matcher.to_json())


def test_a_day_is_compared_as_a_day() -> None:
    schema = Schema(day=Timestamp("day", "2020-01-01", "2023-12-31"))
    events = {"day": ["2020-01-01", "2021-06-01", "2023-12-31"]}
    found = answered(FormulaMatch(schema, "day < :limit"), events, {"limit": "2021-06-01"})
    assert found.tolist() == [True, False, False]
