"""FormulaMatch: answers are plaintext answers for every construct, and sizes are what gates say."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
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
    Schema,
    SeedRing,
    SharedSeed,
    Text,
    Timestamp,
    UInt,
)
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import DecodeError, ParameterError, PredicateTypeError, UnsupportedPredicateError
from ccbps.forms.formula import FormulaForm
from ccbps.forms.leaves import BitLeaves
from ccbps.leakage import Protects
from ccbps.matching import BranchingMatch, BroadcastMatch, FormulaMatch, Matcher, from_json
from ccbps.matching.one_time import templates
from ccbps.matching.one_time.templates import MAX_SIZE, MAX_TEMPLATE
from ccbps.predicates import AttributeType, Events, Predicate
from ccbps.predicates.form import InRange
from ccbps.programs.formula import depth, evaluate, gates
from ccbps.wire import ROUND_HEADER_BYTES, TAG_BYTES, Cause
from tests.support.effort import examples
from tests.support.strategies import Const, Node, predicates, record, render, rows, schemas

SEED = SharedSeed(bytes(range(32)))
SYMBOLS = ["IBM", "MSFT", "ORCL", "SAP", "TSM"]
QUOTES = Schema(issue=Category(SYMBOLS), price=Decimal(0, "655.35", "0.01"), volume=UInt(20))
TEMPLATE = "issue = :issue AND price < :price"
BITS = Schema({name: UInt(4) for name in "abcd"})


def answered(matcher: Matcher, events: Any, interests: Any, count: int) -> Any:
    """Answers for `count` events, each in a round of its own."""
    rounds = np.arange(count, dtype=np.uint64)
    sent = matcher.publisher(SEED).encode(events, rounds)
    return matcher.broker().match(sent, matcher.subscriber(SEED).encode(interests, rounds))


# -- every construct ----------------------------------------------------------------------------


@given(schema=schemas(max_attributes=3), data=st.data())
@settings(max_examples=examples(150))
def test_template_answers_as_plaintext_for_any_schema(schema: Schema, data: st.DataObject) -> None:
    drawn = data.draw(predicates(schema))
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    matcher = FormulaMatch(schema, drawn.text, max_gates=1 << 16)
    expected = schema.parse(drawn.text).bind(**drawn.private).evaluate(events)
    assert answered(matcher, events, drawn.private, events.count).tolist() == expected.tolist()
    assert pickle.loads(pickle.dumps(matcher)) == matcher


@given(schema=schemas(max_attributes=4), data=st.data())
@settings(max_examples=examples(90))
def test_box_answers_as_plaintext_for_any_schema(schema: Schema, data: st.DataObject) -> None:
    drawn = data.draw(predicates(schema, hamming=False))
    predicate = schema.parse(drawn.text).bind(**drawn.private)
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    matcher = FormulaMatch.box(schema)
    try:
        predicate.box()
    except UnsupportedPredicateError:
        with pytest.raises(UnsupportedPredicateError):
            matcher.prepare(predicate)
    else:
        expected = predicate.evaluate(events).tolist()
        assert answered(matcher, events, predicate, events.count).tolist() == expected


CONSTRUCTS = {
    "equal": ("a = :p", {"p": 9}),
    "unequal": ("a <> :p", {"p": 9}),
    "below": ("a < :p", {"p": 9}),
    "at most": ("a <= :p", {"p": 9}),
    "above": ("a > :p", {"p": 9}),
    "at least": ("a >= :p", {"p": 9}),
    "between": ("a BETWEEN :p AND :q", {"p": 3, "q": 9}),
    "not between": ("a NOT BETWEEN :p AND :q", {"p": 3, "q": 9}),
    "public low": ("a BETWEEN 3 AND :q", {"q": 9}),
    "public high": ("a BETWEEN :p AND 12", {"p": 3}),
    "in": ("a IN (:p, 7, :q, 1)", {"p": 3, "q": 7}),
    "not in": ("a NOT IN (:p, 7, :q, 1)", {"p": 3, "q": 15}),
    "public": ("a IN (1, 2, 3) OR b > 5", {}),
    "and": ("a < :p AND b >= :q AND c = 3", {"p": 9, "q": 3}),
    "or": ("a < :p OR b >= :q OR c = 3", {"p": 3, "q": 9}),
    "not": ("NOT (a < :p AND b < 9)", {"p": 9}),
    "two of three": ("at_least(2, a < :p, b < :q, c < 7)", {"p": 9, "q": 7}),
    "three of five": ("at_least(3, a < :p, b < :q, c < 7, d > 3, a > 2)", {"p": 9, "q": 7}),
    "all of two": ("at_least(2, a < :p, b < :q)", {"p": 9, "q": 12}),
    "hamming": ("hamming(a, :p) <= 1", {"p": 9}),
    "public hamming": ("hamming(a, 9) <= 1 AND b < :p", {"p": 12}),
    "not hamming": ("NOT hamming(a, :p) <= 2", {"p": 9}),
    "nested": ("a < :p AND NOT (b = :q OR (c IN (:r, 4) AND d > 2))", {"p": 12, "q": 3, "r": 9}),
}


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_every_construct_answers_as_plaintext(name: str) -> None:
    template, values = CONSTRUCTS[name]
    rng = np.random.default_rng(1)
    events = BITS.encode({attribute: rng.integers(0, 16, 300) for attribute in BITS})
    expected = BITS.parse(template).bind(**values).evaluate(events)
    assert 0 < expected.sum() < 300
    assert np.array_equal(
        answered(FormulaMatch(BITS, template), events, values, events.count), expected
    )


@pytest.mark.parametrize(
    "kind", [UInt(3), Category(list("abcde")), UInt(2, nullable=True)], ids=str
)
@pytest.mark.parametrize("box", [True, False])
def test_every_interval_is_its_own_whatever_its_order(kind: AttributeType, box: bool) -> None:
    """Empty ones, as lo > hi, and full ones, over domains of 2^k codes and of fewer."""
    schema = Schema(x=kind)
    words = not isinstance(kind, UInt)
    values: list[Any] = list("abcde") if not isinstance(kind, UInt) else [*range(1 << kind.width)]
    bounds: list[Any] = ["A", *values, "f"] if words else [-1, *values, len(values)]
    every = [(low, high) for low in bounds for high in bounds]
    shown = {bound: f"'{bound}'" if words else str(bound) for bound in bounds}
    texts = [f"x BETWEEN {shown[low]} AND {shown[high]}" for low, high in every]
    asked: Sequence[Any] = texts if box else [{"low": low, "high": high} for low, high in every]
    matcher = FormulaMatch.box(schema) if box else FormulaMatch(schema, "x BETWEEN :low AND :high")
    inside = [*values, None] if kind.nullable else values
    count = len(inside) * len(every)
    events = schema.encode({"x": inside * len(every)})
    column = DictionaryColumn(asked, np.repeat(np.arange(len(every)), len(inside)))
    alone = schema.encode({"x": inside})
    expected = np.concatenate([schema.parse(text).evaluate(alone) for text in texts])
    assert 0 < expected.sum() < count
    assert np.array_equal(answered(matcher, events, column, count), expected)


def test_a_range_of_codes_that_is_empty_never_holds_however_it_is_written() -> None:
    """Predicates come with one kind of empty range; the formula would take others amiss."""
    schema = Schema(x=UInt(3))
    form = FormulaForm(BitLeaves(schema), InRange("x", None, None, equal=False, negated=False), 99)
    events = schema.encode({"x": range(8)})
    sent, rounds = form.event_rows(events), np.arange(8)
    for low, high in np.ndindex(8, 8):
        asked = form.interest_row(InRange("x", low, high, equal=False, negated=False))
        wanted = asked.repeat(8, axis=0)
        bits = [np.unpackbits(w.view(np.uint8), axis=1, bitorder="little") for w in (sent, wanted)]
        found = evaluate(form.formula, *(b.T.astype(bool) for b in bits))
        assert found.tolist() == ((low <= rounds) & (rounds <= high)).tolist()


@pytest.mark.parametrize("kind", [UInt(2), UInt(2, nullable=True), Category(list("abc"))], ids=str)
def test_equality_with_what_does_not_occur_never_holds(kind: AttributeType) -> None:
    schema = Schema(x=kind)
    matcher = FormulaMatch(schema, "x = :p")
    some: list[Any] = ["a", "b", "c"] if isinstance(kind, Category) else [0, 1, 2]
    other: Any = "z" if isinstance(kind, Category) else 77
    for value in [*some, other]:
        expected = [one == value for one in some]
        assert answered(matcher, {"x": some}, {"p": value}, 3).tolist() == expected


def test_a_contradiction_looks_like_any_box_and_never_holds() -> None:
    matcher = FormulaMatch.box(QUOTES)
    events = {
        "issue": SYMBOLS,
        "price": [0, 1, 300, 655, 655.35],
        "volume": [0, 1, 5, 9, 2**20 - 1],
    }
    for text in ("price < 3 AND price > 5", "FALSE", "issue = 'NONE'", "volume > 5 AND volume < 5"):
        assert not answered(matcher, events, text, 5).any()
    assert answered(matcher, events, "TRUE", 5).all()


@pytest.mark.parametrize(("window", "length"), [(1, 20), (2, 70), (4, 20)])
def test_a_long_text_is_compared_in_all_its_digits(window: int, length: int) -> None:
    schema = Schema(t=Text(length))
    matcher = BroadcastMatch.box(schema, window=window)
    start = "a" * (length - 1)
    texts = [start + "b", start + "a", start + "c", "b", ""]
    found = answered(matcher, schema.encode({"t": texts}), f"t <= '{texts[0]}'", 5)
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
                assert answered(template, events, {"p": value}, 5).tolist() == expected
                assert answered(box, events, text, 5).tolist() == expected


# -- a million pairs ----------------------------------------------------------------------------


def uniform(kind: AttributeType, rng: np.random.Generator, count: int) -> list[Any]:
    """Values of a type, some of them often."""
    if isinstance(kind, Category):
        found: list[Any] = rng.choice(kind.values, count).tolist()
    elif isinstance(kind, Keyword | Text):
        found = [f"w{i}" for i in rng.integers(0, 9, count)]
    elif isinstance(kind, Bool):
        found = rng.integers(0, 2, count).astype(bool).tolist()
    elif isinstance(kind, UInt | Int):
        wide = [int(word) for word in rng.integers(0, 2**63, count, dtype=np.uint64)]
        few = [(word >> 40) % 3 * ((1 << kind.width) - 1) // 2 for word in wide]
        codes = [w * 2 % (1 << kind.width) if w & 64 else f for w, f in zip(wide, few, strict=True)]
        found = [kind.least + code for code in codes]
    else:
        assert isinstance(kind, Decimal)
        found = [kind.low + int(i) * kind.step for i in rng.integers(0, kind.cardinality, count)]
    if kind.nullable:
        found = [
            None if none else one for none, one in zip(rng.random(count) < 0.1, found, strict=True)
        ]
    return found


def some_schema(rng: np.random.Generator) -> Schema:
    """One to four attributes."""
    width = [1, 2, 3, 7, 16, 31, 33, 64]

    def one() -> AttributeType:
        bits, nullable = int(rng.choice(width)), bool(rng.random() < 0.3)
        names = [f"n{i}" for i in range(int(rng.integers(1, 9)))]
        return (
            UInt(bits, nullable=nullable),
            Int(bits, nullable=nullable),
            Decimal("-7.5", "80.25", "0.25", nullable=nullable),
            Category(names, nullable=nullable),
            Keyword(128),
            Text(9, nullable=nullable),
            Bool(nullable=nullable),
        )[rng.integers(0, 7)]

    return Schema({name: one() for name in "abcd"[: rng.integers(1, 5)]})


def some_leaf(schema: Schema, rng: np.random.Generator, box: bool) -> Node:
    """A condition; for a box, one that is an interval."""
    name = str(rng.choice(schema.names))
    kind = schema[name]

    def constant() -> Const:
        values = [one for one in uniform(kind, rng, 9) if one is not None]
        return Const(values[0] if values else kind.low if isinstance(kind, Decimal) else 0)

    ordered = not isinstance(kind, Keyword)
    what = rng.integers(0, 4)
    if what == 0 and ordered:
        return Node("between", name, (constant(), constant()), detail=False)
    if what == 1 and not box:
        many = tuple(constant() for _ in range(int(rng.integers(1, 5))))
        return Node("in", name, many, detail=bool(rng.random() < 0.5))
    if what == 2 and kind.nullable:
        return Node("null", name, detail=bool(rng.random() < 0.5))
    signs = ["<", "<=", ">", ">=", "="] if ordered else ["="]
    signs += [] if box else ["!="]
    return Node("compare", name, (constant(),), detail=(str(rng.choice(signs)), False))


def some_formula(schema: Schema, rng: np.random.Generator, leaves: int) -> Node:
    """A tree of AND, OR, NOT and at_least."""
    if leaves == 1:
        return some_leaf(schema, rng, box=False)
    cut = int(rng.integers(1, leaves))
    parts = (some_formula(schema, rng, cut), some_formula(schema, rng, leaves - cut))
    what = str(rng.choice(["and", "or", "or", "not", "at_least"]))
    if what == "not":
        return Node("not", parts=(Node("and", parts=parts),))
    if what == "at_least":
        return Node("at_least", parts=(*parts, some_leaf(schema, rng, box=False)), detail=2)
    return Node(what, parts=parts)


def hidden(node: Node, rng: np.random.Generator, values: dict[str, Any]) -> Node:
    """Half of the constants become private ones, whose values are kept."""
    constants = []
    for constant in node.constants:
        if rng.random() < 0.5:
            name = f"p{len(values)}"
            values[name] = constant.value
            constant = Const(constant.value, name)
        constants.append(constant)
    parts = tuple(hidden(part, rng, values) for part in node.parts)
    return Node(node.kind, node.attribute, tuple(constants), parts, node.detail)


def private_kinds(node: Node) -> dict[str, str]:
    """The attribute that each private constant is compared with."""
    own = {one.name: node.attribute for one in node.constants if one.name is not None}
    return own | {name: kind for part in node.parts for name, kind in private_kinds(part).items()}


def checked(
    matcher: FormulaMatch, events: Events, interests: Sequence[Any], bound: Sequence[Predicate]
) -> float:
    """Event i meets interest i % len(interests); the share of matches."""
    which = np.arange(events.count) % len(interests)
    expected = np.empty(events.count, np.bool_)
    for i, predicate in enumerate(bound):
        at = np.flatnonzero(which == i)
        expected[at] = predicate.evaluate(events.take(at))
    found = answered(matcher, events, DictionaryColumn(interests, which), events.count)
    assert np.array_equal(found, expected)
    return float(expected.mean())


@pytest.mark.parametrize("pairs", [30_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("box", [True, False], ids=["box", "template"])
def test_random_pairs_over_random_schemas_answer_as_plaintext(pairs: int, box: bool) -> None:
    rng = np.random.default_rng(pairs + box)
    matchers, shares = 20, []
    for _ in range(matchers):
        schema, count = some_schema(rng), pairs // matchers
        events = schema.encode({name: uniform(schema[name], rng, count) for name in schema})
        interests: list[Any] = []
        if box:
            while len(interests) < 40:
                parts = tuple(
                    some_leaf(schema, rng, box=True) for _ in range(int(rng.integers(1, 3)))
                )
                interests.append(render(schema, Node("and", parts=parts), sqlite=False))
            bound = [schema.parse(text) for text in interests]
            shares.append(checked(FormulaMatch.box(schema), events, interests, bound))
            continue
        values: dict[str, Any] = {}
        tree = hidden(some_formula(schema, rng, int(rng.integers(1, 6))), rng, values)
        matcher = FormulaMatch(schema, render(schema, tree, sqlite=False), max_gates=1 << 16)
        assert matcher.template is not None
        others = {
            name: [one for one in uniform(schema[kind], rng, 99) if one is not None]
            for name, kind in private_kinds(tree).items()
        }
        interests = [values, *({n: some[i] for n, some in others.items()} for i in range(24))]
        bound = [matcher.template.bind(**one) for one in interests]
        shares.append(checked(matcher, events, interests, bound))
    assert 0.05 < np.mean(shares) < 0.9


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
    values = np.arange(16)
    events = BITS.encode({"a": values, "b": values, "c": values, "d": values})
    expected = BITS.parse(template).evaluate(events)
    assert np.array_equal(answered(matcher, events, {}, 16), expected)


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


@every_matcher
def test_explain_states_sizes_costs_and_the_leakage_card(name: str) -> None:
    matcher = MATCHERS[name]()
    text, slots = matcher.explain(), matcher.encoding.slots
    event, interest = slots.bits
    for figure in (
        f"{gates(matcher.formula):,} AND gates, depth {depth(matcher.formula)}",
        f"{event:,} of an event, {interest:,} of an interest",
        f"{slots.products:,} at the broker",
        f"{matcher.event_bytes:,} bytes per event, {matcher.interest_bytes:,} bytes per interest",
        f"{matcher.randomness_bytes:,} bytes per round",
        *(f"{cost.role}:" for cost in matcher.costs),
        *(f"{cost.count:,} x 64-bit word" for cost in matcher.costs),
    ):
        assert figure in text
    assert [cost.role for cost in matcher.costs] == ["publisher", "subscriber", "broker"]
    assert all(line in text for line in str(matcher.leakage).splitlines())
    shown = "box" if matcher.template is None else matcher.template.text
    assert shown in text and shown in repr(matcher)


def test_cards_tell_box_and_template_apart() -> None:
    box, template = MATCHERS["box"]().leakage, MATCHERS["template"]().leakage
    assert box.security == template.security == "perfect"
    assert json.loads(json.dumps(box.to_dict()))["scheme"] == "FormulaMatch"
    assert any("which attributes" in text for text in box.hides)
    assert not any("which attributes" in text for text in template.hides)
    assert any("template" in text for text in template.learns)
    assert not any("template" in text for text in box.learns)
    assert box.protects - template.protects == {Protects.ATTRIBUTES}


# -- compiled kernels, stray bits ---------------------------------------------------------------


def test_all_parties_of_a_broadcast_have_one_seed() -> None:
    matcher, ring = BroadcastMatch.box(BITS), SeedRing.of(SEED, ["ann", "bob"])
    for role in (matcher.publisher, matcher.subscriber):
        with pytest.raises(ParameterError, match="give the SharedSeed of all"):
            role(ring)
    FormulaMatch.box(BITS).publisher(ring)
    record = dict.fromkeys("abcd", 1)
    with pytest.raises(ParameterError, match="leave out pairs"):
        matcher.publisher(SEED).encode([record], rounds=[0], pairs=["ann"])


LAYOUTS: dict[str, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = {
    "columns": np.asfortranarray,
    "every other byte": lambda rows: np.repeat(rows, 2, axis=1)[:, ::2],
    "upside down": lambda rows: rows[::-1].copy()[::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("wish", ["0", "1"])
@pytest.mark.parametrize("scheme", [FormulaMatch, BroadcastMatch])
def test_messages_may_lie_anyhow_in_memory(
    scheme: Any, layout: str, wish: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if wish == "1":
        pytest.importorskip("numba")
    monkeypatch.setenv("CCBPS_COMPILED", wish)
    matcher = scheme.box(QUOTES)
    events = QUOTES.encode({"issue": ["IBM"] * 70, "price": range(70), "volume": range(70)})
    sent = matcher.publisher(SEED).encode(events, range(70))
    wanted = matcher.subscriber(SEED).encode("volume < 30", range(70))
    lay = LAYOUTS[layout]
    found = matcher.broker().match(lay(sent), lay(wanted))
    assert np.array_equal(found, np.arange(70) < 30)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 63, 65, 511, 513, 1026, 2049])
def test_compiled_kernels_write_and_read_the_same_messages(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also rows that fill no whole word of a register."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(count)
    events = QUOTES.encode(
        {
            "issue": rng.choice(SYMBOLS, count),
            "price": rng.integers(0, 65_536, count) / 100,
            "volume": rng.integers(0, 2**20, count),
        }
    )
    text = "issue >= 'ORCL' AND price < 500"
    made = []
    for wish in "01":
        monkeypatch.setenv("CCBPS_COMPILED", wish)
        matcher = FormulaMatch.box(QUOTES)
        sent = matcher.publisher(SEED).encode(events, range(count))
        wanted = matcher.subscriber(SEED).encode(text, range(count))
        made.append((sent, wanted, matcher.broker().match(sent, wanted)))
    for first, second in zip(*made, strict=True):
        assert np.array_equal(first, second)
    assert np.array_equal(made[0][2], QUOTES.parse(text).evaluate(events))


@pytest.mark.parametrize("side", ["event", "interest"])
def test_bits_behind_the_last_slot_are_refused(side: str) -> None:
    matcher = FormulaMatch.box(QUOTES)
    bits = dict(zip(("event", "interest"), matcher.encoding.slots.bits, strict=True))
    records = {"issue": ["IBM"] * 20, "price": [3] * 20, "volume": [5] * 20}
    messages = {
        "event": matcher.publisher(SEED).encode(records, range(20)),
        "interest": matcher.subscriber(SEED).encode("price < 9", range(20)),
    }
    assert bits[side] % 8
    messages[side][7, -1] |= 0x80
    answers, causes = matcher.broker().examine(messages["event"], messages["interest"])
    assert np.flatnonzero(causes).tolist() == [7] and causes[7] == Cause.PADDING
    assert answers.tolist() == [row != 7 for row in range(20)]


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


def small(make: Callable[[], Any], message: str) -> None:
    """A refusal before anything is built: it takes next to no memory."""
    tracemalloc.start()
    try:
        with pytest.raises((ParameterError, DecodeError), match=message):
            make()
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


WIDE = Schema({f"a{number}": UInt(64) for number in range(1000)})


def text_of(matcher: Matcher, schema: Schema | None = None, **parameters: Any) -> str:
    fields = json.loads(matcher.to_json())
    if schema is not None:
        fields["schema"] = schema.describe()
    return json.dumps({**fields, "parameters": {**fields["parameters"], **parameters}})


@pytest.mark.parametrize(
    ("schema", "parameters", "message"),
    [
        (WIDE, {"gates": 10**9}, "a text may ask for at most 4,096 gates, got 1,000,000,000"),
        (WIDE, {"gates": 4096}, "more than the 4,096 AND gates"),
        (BITS, {"gates": 4097}, r"at most 4,096 gates, got 4,097.*max_gates=4097"),
        (BITS, {"gates": 34}, "the matcher has 35 gates, not 34"),
        (BITS, {"gates": -1}, "gates must be a whole number"),
        (BITS, {"gates": 4.0}, "has a number that is not whole"),
        (BITS, {"gates": None}, "gates must be a whole number"),
        (BITS, {"gates": True}, "gates must be a whole number"),
        (BITS, {"template": "a < 3" + " " * MAX_TEMPLATE}, "template has at most 131,072 char"),
        (BITS, {"template": "hamming(a, :p) <= 2", "gates": 1}, "the matcher has .* gates, not 1"),
        (BITS, {"template": 5}, "template must be SQL text or a Predicate"),
    ],
)
def test_texts_that_ask_for_too_much_are_refused(
    schema: Schema, parameters: dict[str, Any], message: str
) -> None:
    text = text_of(FormulaMatch.box(BITS), schema, **parameters)
    small(lambda: from_json(text), message)


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


def test_a_matcher_without_a_template_names_the_box() -> None:
    with pytest.raises(ParameterError, match=r"template.*take FormulaMatch\.box\(schema\)"):
        FormulaMatch(BITS)
    for wrong in (5, ["a < 3"]):
        with pytest.raises(ParameterError, match="template must be SQL text or a Predicate"):
            FormulaMatch(BITS, wrong)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="parsed for another schema"):
        FormulaMatch(BITS, QUOTES.parse("price < 3"))
    with pytest.raises(ParameterError, match="template is public"):
        FormulaMatch(QUOTES, QUOTES.parse(TEMPLATE).bind(issue="IBM", price=120))


@pytest.mark.parametrize("interest", ["price < 3", QUOTES.parse("price < 3"), ["price < 3"], 5])
def test_template_takes_mappings(interest: Any) -> None:
    with pytest.raises(ParameterError, match=r"mapping with values for .*:issue, :price"):
        FormulaMatch(QUOTES, TEMPLATE).subscriber(SEED).encode(interest, [0])
    with pytest.raises(ParameterError, match="strings"):
        FormulaMatch(QUOTES, TEMPLATE).prepare({1: 2})  # type: ignore[dict-item]


@pytest.mark.parametrize("interest", [{"price": 3}, [{"price": 3}], 5, None])
def test_box_takes_predicates(interest: Any) -> None:
    with pytest.raises(ParameterError, match="an interest is a predicate"):
        FormulaMatch.box(QUOTES).subscriber(SEED).encode(interest, [0])


def test_private_constants_must_fit_the_template_and_stay_unseen() -> None:
    matcher = FormulaMatch(QUOTES, TEMPLATE)
    with pytest.raises(PredicateTypeError, match=r"constant :price, .*'price'") as refusal:
        matcher.prepare({"issue": "IBM", "price": "secret"})
    assert "secret" not in str(refusal.value)
    with pytest.raises(ParameterError, match="lacks price"):
        matcher.prepare({"issue": "IBM"})


# -- public parameters --------------------------------------------------------------------------


def test_fingerprint_differs_when_anything_public_does() -> None:
    def with_type(kind: Any) -> Schema:
        return Schema(price=kind, volume=UInt(4))

    made = [
        with_type(Decimal(0, 15, 1)),
        with_type(Decimal(0, "1.5", "0.1")),
        with_type(Decimal(1, 16, 1)),
        with_type(UInt(4)),
        with_type(Int(4)),
        with_type(UInt(3, nullable=True)),
        with_type(UInt(4, nullable=True)),
        Schema(volume=UInt(4), price=Decimal(0, 15, 1)),
        Schema(price=Decimal(0, 15, 1), volumes=UInt(4)),
    ]
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
        "price < :p AND volume < 3",
        "price < :p AND volume < 4",
        "price BETWEEN :p AND :q",
    ]
    matchers: list[Matcher] = [FormulaMatch.box(schema) for schema in made]
    matchers += [FormulaMatch(made[0], template) for template in templates]
    matchers += [BranchingMatch.box(made[0]), BranchingMatch(made[0], templates[0])]
    assert len({m.fingerprint for m in matchers}) == len(matchers)
    assert len({m.fingerprint[:6] for m in matchers}) == len(matchers)


def test_fingerprint_does_not_depend_on_the_process() -> None:
    code = (
        "from ccbps import Schema, UInt; from ccbps.matching import FormulaMatch; "
        "s = Schema(a=UInt(5), b=UInt(7)); "
        "t = 'at_least(2, a = :x, b < 9, hamming(b, :y) <= 2)'; "
        "print(FormulaMatch.box(s).fingerprint.hex(), FormulaMatch(s, t).fingerprint.hex())"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    assert len(printed.pop().split()) == 2


def test_a_day_is_compared_as_a_day() -> None:
    schema = Schema(day=Timestamp("day", "2020-01-01", "2023-12-31"))
    events = {"day": ["2020-01-01", "2021-06-01", "2023-12-31"]}
    found = answered(FormulaMatch(schema, "day < :limit"), events, {"limit": "2021-06-01"}, 3)
    assert found.tolist() == [True, False, False]
