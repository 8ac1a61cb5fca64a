"""BranchingMatch, FormulaMatch and BroadcastMatch: whatever templates and boxes have in common.

Encrypted answers are plaintext answers for every construct, and whatever does not fit is refused.
"""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps import Bool, Category, Decimal, Int, Schema, UInt
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import (
    CcbpsError,
    DecodeError,
    ParameterError,
    PredicateSyntaxError,
    PredicateTypeError,
    UnknownAttributeError,
    UnsupportedPredicateError,
)
from ccbps.leakage import Protects
from ccbps.matching import (
    BranchingMatch,
    BroadcastMatch,
    FormulaMatch,
    Matcher,
    from_json,
)
from ccbps.predicates import AttributeType, Events, Predicate
from ccbps.programs.formula import depth
from ccbps.wire import ROUND_HEADER_BYTES, Cause
from tests.support.effort import examples
from tests.support.kernels import KERNELS, wished
from tests.support.one_time import (
    BITS,
    CONSTRUCTS,
    QUOTES,
    SEED,
    SYMBOLS,
    TEMPLATE,
    WIDE,
    answered,
    cheap_refusal,
    in_two_processes,
    quotes,
    some_schema,
    some_template,
    some_text,
    text_of,
    uniform,
)
from tests.support.strategies import predicates, record, rows, schemas

SCHEMES: list[Any] = [BranchingMatch, FormulaMatch, BroadcastMatch]
every_scheme = pytest.mark.parametrize("scheme", SCHEMES)
OPTIONS: dict[str, tuple[Any, dict[str, int]]] = {
    "branching": (BranchingMatch, {}),
    "formula": (FormulaMatch, {}),
    **{f"broadcast, window {w}": (BroadcastMatch, {"window": w}) for w in (1, 2, 3, 4)},
}
every_option = pytest.mark.parametrize("name", OPTIONS)
SHAPES: dict[str, tuple[Callable[..., Any], Any]] = {
    "box": (lambda scheme, **o: scheme.box(QUOTES, **o), "price < 300"),
    "template": (
        lambda scheme, **o: scheme(QUOTES, TEMPLATE, **o),
        {"issue": "IBM", "price": 300},
    ),
    "predicate": (
        lambda scheme, **o: scheme(QUOTES, QUOTES.parse("price < :p OR volume = 3"), **o),
        {"p": 300},
    ),
    "hidden": (
        lambda scheme, **o: scheme.hidden(QUOTES, leaves=2, leaf="interval", **o),
        "price < 300",
    ),
}
MATCHERS: dict[str, tuple[Callable[[], Any], Any]] = {
    f"{name}, {shape}": (partial(make, scheme, **options), interest)
    for name, (scheme, options) in OPTIONS.items()
    for shape, (make, interest) in SHAPES.items()
    if shape != "hidden" or name != "branching"
}
every_matcher = pytest.mark.parametrize("name", MATCHERS)


def plaintext(bound: list[Predicate], events: Events) -> NDArray[np.bool_]:
    """Shape (predicates, events)."""
    return np.array([one.evaluate(events) for one in bound]).reshape(len(bound), events.count)


# -- every construct ----------------------------------------------------------------------------


def options_for(scheme: Any, data: st.DataObject) -> dict[str, int]:
    if scheme is BranchingMatch:
        return {}
    window = {"window": data.draw(st.integers(1, 4))} if scheme is BroadcastMatch else {}
    return {"max_gates": 1 << 16, **window}


@every_scheme
@given(schema=schemas(max_attributes=3), data=st.data())
@settings(max_examples=examples(90))
def test_template_answers_as_plaintext_for_any_schema(
    scheme: Any, schema: Schema, data: st.DataObject
) -> None:
    drawn = data.draw(predicates(schema))
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    matcher = scheme(schema, drawn.text, **options_for(scheme, data))
    expected = schema.parse(drawn.text).bind(**drawn.private).evaluate(events)
    which = np.repeat(np.arange(events.count), 2)
    found = answered(matcher, events, drawn.private, which)
    assert found.tolist() == expected[which].tolist()
    assert pickle.loads(pickle.dumps(matcher)) == matcher


@every_scheme
@given(schema=schemas(max_attributes=4), data=st.data())
@settings(max_examples=examples(70))
def test_box_answers_as_plaintext_for_any_schema(
    scheme: Any, schema: Schema, data: st.DataObject
) -> None:
    drawn = data.draw(predicates(schema, hamming=False))
    predicate = schema.parse(drawn.text).bind(**drawn.private)
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    matcher = scheme.box(schema, **options_for(scheme, data))
    try:
        predicate.box()
    except UnsupportedPredicateError:
        with pytest.raises(UnsupportedPredicateError):
            matcher.subscriber(SEED).encode(predicate, [0])
    else:
        found = answered(matcher, events, predicate)
        assert found.tolist() == predicate.evaluate(events).tolist()


@every_option
@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_every_construct_answers_as_plaintext(construct: str, name: str) -> None:
    (scheme, options), (template, values) = OPTIONS[name], CONSTRUCTS[construct]
    rng = np.random.default_rng(len(name))
    events = BITS.encode({attribute: rng.integers(0, 16, 150) for attribute in BITS})
    expected = BITS.parse(template).bind(**values).evaluate(events)
    assert 0 < expected.sum() < 150
    assert np.array_equal(answered(scheme(BITS, template, **options), events, values), expected)


KINDS = [
    *(UInt(1), UInt(2), UInt(3), UInt(4), Category(list("abcde")), UInt(2, nullable=True)),
    pytest.param(UInt(5), marks=pytest.mark.slow),
]


@every_option
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_interval_is_its_own_whatever_its_order(kind: AttributeType, name: str) -> None:
    """Empty ones, as lo > hi, and full ones, over domains of 2^k codes and of fewer."""
    schema, (scheme, options) = Schema(x=kind), OPTIONS[name]
    words = not isinstance(kind, UInt)
    values: list[Any] = list("abcde") if not isinstance(kind, UInt) else [*range(1 << kind.width)]
    bounds: list[Any] = ["A", *values, "f"] if words else [-1, *values, len(values)]
    every = [(low, high) for low in bounds for high in bounds]
    shown = {bound: f"'{bound}'" if words else str(bound) for bound in bounds}
    texts = [f"x BETWEEN {shown[low]} AND {shown[high]}" for low, high in every]
    events = schema.encode({"x": [*values, None] if kind.nullable else values})
    which = np.tile(np.arange(events.count), len(every))
    index = np.repeat(np.arange(len(every)), events.count)
    expected = plaintext([schema.parse(text) for text in texts], events).ravel()
    assert 0 < expected.sum() < expected.size
    asked = [{"low": low, "high": high} for low, high in every]
    for matcher, interests in (
        (scheme.box(schema, **options), texts),
        (scheme(schema, "x BETWEEN :low AND :high", **options), asked),
    ):
        column: Any = DictionaryColumn(interests, index)
        assert np.array_equal(answered(matcher, events, column, which), expected)


@every_option
@pytest.mark.parametrize("kind", [UInt(2), UInt(2, nullable=True), Category(list("abc"))], ids=str)
def test_equality_with_what_does_not_occur_never_holds(kind: AttributeType, name: str) -> None:
    scheme, options = OPTIONS[name]
    matcher = scheme(Schema(x=kind), "x = :p", **options)
    some: list[Any] = ["a", "b", "c"] if isinstance(kind, Category) else [0, 1, 2]
    for value in [*some, "z" if isinstance(kind, Category) else 77]:
        expected = [one == value for one in some]
        assert answered(matcher, {"x": some}, {"p": value}).tolist() == expected


@every_option
def test_a_contradiction_looks_like_any_box_and_never_holds(name: str) -> None:
    scheme, options = OPTIONS[name]
    matcher, events = scheme.box(QUOTES, **options), quotes(9, 1)
    for text in ("price < 3 AND price > 5", "FALSE", "issue = 'NONE'", "volume > 5 AND volume < 5"):
        assert not answered(matcher, events, text).any()
    assert answered(matcher, events, "TRUE").all()


@every_option
@pytest.mark.parametrize(
    "template",
    ["a < 3", "a < 3 AND b > 5 OR c IN (1, 4)", "NOT at_least(2, a < 3, b < 4, c < 5)", "TRUE"],
)
def test_a_template_without_private_constants_answers(template: str, name: str) -> None:
    scheme, options = OPTIONS[name]
    values = np.arange(16)
    events = BITS.encode({"a": values, "b": values, "c": values, "d": values})
    expected = BITS.parse(template).evaluate(events)
    assert np.array_equal(answered(scheme(BITS, template, **options), events, {}), expected)


@pytest.mark.parametrize(
    ("pairs", "matchers"), [(1_600, 5), pytest.param(1_000_000, 12, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("shape", ["box", "template", "hidden"])
@pytest.mark.parametrize("scheme", [FormulaMatch, BroadcastMatch])
def test_random_pairs_over_random_schemas_answer_as_plaintext(
    pairs: int, matchers: int, shape: str, scheme: Any
) -> None:
    """Few events, and many interests for each, shuffled."""
    rng = np.random.default_rng([pairs, len(shape)])
    kinds, shares = 25, []
    for number in range(matchers):
        schema, count = some_schema(rng), pairs // matchers
        events = schema.encode({name: uniform(schema[name], rng, 200) for name in schema})
        options = {"window": number % 4 + 1} if scheme is BroadcastMatch else {}
        asked: list[Any] = []
        if shape == "template":
            text, asked = some_template(schema, rng, kinds - 1)
            matcher = scheme(schema, text, max_gates=1 << 16, **options)
            bound = [matcher.template.bind(**one) for one in asked]
        else:
            tree = {"leaves": 4, "leaf": "interval", "max_gates": 1 << 16}
            make = scheme.box if shape == "box" else partial(scheme.hidden, **tree)
            matcher = make(schema, **options)
            while len(asked) < kinds:
                asked.append(some_text(schema, rng, box=shape == "box"))
                try:
                    matcher.prepare(asked[-1])
                except UnsupportedPredicateError:
                    asked.pop()  # of a hidden formula, too deep
            bound = [schema.parse(text) for text in asked]
        index, which = rng.integers(0, kinds, count), rng.integers(0, 200, count)
        found = answered(matcher, events, DictionaryColumn(asked, index), which)
        expected = plaintext(bound, events)[index, which]
        assert np.array_equal(found, expected)
        shares.append(expected.mean())
    assert 0.05 < np.mean(shares) < 0.9


# -- messages -----------------------------------------------------------------------------------

LAYOUTS: dict[str, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = {
    "columns": np.asfortranarray,
    "every other byte": lambda rows: np.repeat(rows, 2, axis=1)[:, ::2],
    "upside down": lambda rows: rows[::-1].copy()[::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", KERNELS)
@every_scheme
def test_messages_may_lie_anyhow_in_memory(scheme: Any, kernel: str, layout: str) -> None:
    with wished(kernel):
        matcher, lay = scheme.box(QUOTES), LAYOUTS[layout]
        events = {"issue": ["IBM"] * 70, "price": range(70), "volume": range(70)}
        sent = matcher.publisher(SEED).encode(events, range(70))
        wanted = matcher.subscriber(SEED).encode("volume < 30", range(70))
        found = matcher.broker().match(lay(sent), lay(wanted))
        assert np.array_equal(found, np.arange(70) < 30)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 63, 65, 511, 513, 1026, 2049])
@pytest.mark.parametrize("scheme", [FormulaMatch, BroadcastMatch])
def test_compiled_kernels_write_and_read_the_same_messages(scheme: Any, count: int) -> None:
    """Also rows that fill no whole word of a register."""
    pytest.importorskip("numba")
    text, sent, wanted, answers = "issue >= 'ORCL' AND price < 500", [], [], []
    events = quotes(count, count)
    for kernel in KERNELS:
        with wished(kernel):
            matcher = scheme.box(QUOTES)
            sent.append(matcher.publisher(SEED).encode(events, range(count)))
            wanted.append(matcher.subscriber(SEED).encode(text, range(count)))
            answers += [matcher.broker().match(sent[-1], one) for one in wanted]
    assert np.array_equal(*sent)
    # Interests of a broadcast have a fresh nonce.
    assert scheme is BroadcastMatch or np.array_equal(*wanted)
    expected = QUOTES.parse(text).evaluate(events)
    assert all(np.array_equal(found, expected) for found in answers)


def used_bits(matcher: Any) -> dict[str, int]:
    """Bits of the bodies of both sides, from the encoding's own counts."""
    encoding = matcher.encoding
    if isinstance(matcher, BranchingMatch):
        return dict.fromkeys(("event", "interest"), encoding.layout.bits)
    if isinstance(matcher, FormulaMatch):
        return dict(zip(("event", "interest"), encoding.slots.bits, strict=True))
    return {"event": 8 * matcher.sizes.event, "interest": 8 * 12 + encoding.slots.bits}


@every_matcher
@pytest.mark.parametrize("side", ["event", "interest"])
def test_bits_behind_the_last_one_are_refused(side: str, name: str) -> None:
    make, interest = MATCHERS[name]
    matcher = make()
    records = {"issue": ["IBM"] * 8, "price": [3] * 8, "volume": [5] * 8}
    messages = {
        "event": matcher.publisher(SEED).encode(records, range(8)),
        "interest": matcher.subscriber(SEED).encode(interest, range(8)),
    }
    used = (used_bits(matcher)[side] - 1) % 8 + 1
    for bit in range(used, 8):
        messages[side][bit, -1] ^= 1 << bit
    answers, causes = matcher.broker().examine(messages["event"], messages["interest"])
    wrong = np.arange(8) >= used
    assert causes.tolist() == np.where(wrong, Cause.PADDING, Cause.NONE).tolist()
    assert answers.tolist() == (~wrong).tolist()


def test_some_messages_have_unused_bits_and_some_have_none() -> None:
    bits = {bits % 8 for make, _ in MATCHERS.values() for bits in used_bits(make()).values()}
    assert len(bits) > 3 and 0 in bits


# -- arguments that do not fit ------------------------------------------------------------------


@every_scheme
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
)
@pytest.mark.parametrize("kind", ["box", "template"])
def test_bad_predicate_is_refused_with_the_place(
    kind: str, text: str, error: type[CcbpsError], message: str, scheme: Any
) -> None:
    subscriber = scheme.box(QUOTES).subscriber(SEED)
    with pytest.raises(error, match=message) as refusal:
        subscriber.encode(text, [0]) if kind == "box" else scheme(QUOTES, text)
    assert not text or f"\n  {text}\n" in str(refusal.value)


@every_scheme
@pytest.mark.parametrize(
    ("interest", "error", "message"),
    [
        *(
            (text, UnsupportedPredicateError, "conjunction of intervals")
            for text in (
                "price < 3 OR volume < 3", "issue IN ('IBM', 'SAP')", "price != 3",
                "hamming(volume, 3) <= 1",
            )
        ),
        *(
            (interest, ParameterError, "an interest is a predicate")
            for interest in ({"price": 3}, [{"price": 3}], 5, [5], None)
        ),
        ("price < :p", UnsupportedPredicateError, r"\(p\) need values; call bind first"),
        (Schema(price=UInt(4)).parse("price < 3"), ParameterError, "parsed for another schema"),
    ],
)  # fmt: skip
def test_box_takes_predicates_that_are_boxes(
    scheme: Any, interest: Any, error: type[CcbpsError], message: str
) -> None:
    with pytest.raises(error, match=message):
        scheme.box(QUOTES).subscriber(SEED).encode(interest, [0])


@every_scheme
@pytest.mark.parametrize(
    ("interest", "error", "message"),
    [
        *(
            (interest, ParameterError, r"mapping with values for .*:issue, :price")
            for interest in ("price < 3", QUOTES.parse("price < 3"), ["price < 3"], 5)
        ),
        ({1: 2}, ParameterError, "strings"),
        ({"issue": "IBM"}, ParameterError, "lacks price"),
        ({}, ParameterError, "lacks issue, price"),
        ({"issue": "IBM", "price": 3, "prise": 4}, ParameterError, "has no prise"),
        ({"issue": "IBM", "price": "secret"}, PredicateTypeError, "constant :price, .*'price'"),
        ({"issue": 12_345, "price": 3}, PredicateTypeError, "constant :issue, .*'issue'"),
        ({"issue": "IBM", "price": None}, PredicateTypeError, "cannot be NULL"),
    ],
)
def test_private_constants_must_fit_the_template_and_stay_unseen(
    scheme: Any, interest: Any, error: type[CcbpsError], message: str
) -> None:
    with pytest.raises(error, match=message) as refusal:
        scheme(QUOTES, TEMPLATE).subscriber(SEED).encode(interest, [0])
    assert "secret" not in str(refusal.value)
    assert "12345" not in str(refusal.value)


@every_scheme
@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, r"template.*take {}\.box\(schema\)"),
        (5, "template must be SQL text or a Predicate"),
        (["price < 3"], "template must be SQL text or a Predicate"),
        (Schema(price=UInt(4)).parse("price < 3"), "parsed for another schema"),
        # It would make the private constants public, and take no notice of the subscriber's.
        (QUOTES.parse(TEMPLATE).bind(issue="IBM", price=120), "a template is public"),
    ],
    ids=str,
)
def test_template_must_be_a_predicate_without_values(
    scheme: Any, template: Any, message: str
) -> None:
    with pytest.raises(ParameterError, match=message.format(scheme.__name__)):
        scheme(QUOTES, template)


@every_scheme
def test_private_constants_may_have_any_name(scheme: Any) -> None:
    matcher = scheme(QUOTES, "price < :self AND volume < :class")
    events = {"issue": ["IBM"], "price": [1], "volume": [1]}
    assert answered(matcher, events, {"self": 3, "class": 4}).tolist() == [True]


@pytest.mark.parametrize(
    ("scheme", "schema", "parameters", "message"),
    [
        (FormulaMatch, WIDE, {"gates": 10**9}, "at most 4,096 gates, got 1,000,000,000"),
        (FormulaMatch, WIDE, {"gates": 4096}, "more than the 4,096 AND gates"),
        (FormulaMatch, BITS, {"gates": 4097}, r"at most 4,096 gates, got 4,097.*max_gates=4097"),
        (FormulaMatch, BITS, {"gates": 34}, "the matcher has 35 gates, not 34"),
        (FormulaMatch, BITS, {"gates": -1}, "gates must be a whole number"),
        (FormulaMatch, BITS, {"gates": 4.0}, "has a number that is not whole"),
        (FormulaMatch, BITS, {"gates": None}, "gates must be a whole number"),
        (FormulaMatch, BITS, {"gates": True}, "gates must be a whole number"),
        (
            FormulaMatch, BITS, {"template": "a < 3" + " " * (1 << 17)},
            "predicate has at most 131,072 char",
        ),
        (
            FormulaMatch, BITS, {"template": f"a < INTERVAL '{'1' * 100_000}'"},
            "the template does not parse: INTERVAL is not supported",
        ),
        (
            FormulaMatch, BITS, {"template": "hamming(a, :p) <= 2", "gates": 1},
            "the matcher has .* gates, not 1",
        ),
        (FormulaMatch, BITS, {"template": 5}, "template must be SQL text or a Predicate"),
        (BroadcastMatch, WIDE, {"gates": 4096}, "more than the 4,096 AND gates"),
        (BroadcastMatch, BITS, {"gates": 4097}, r"at most 4,096 gates, got 4,097"),
        (BroadcastMatch, BITS, {"gates": 1}, "the matcher has .* gates, not 1"),
        (BroadcastMatch, BITS, {"window": 5}, "window must be .* from 1 to 4, got 5"),
        (BroadcastMatch, BITS, {"window": 2.0}, "has a number that is not whole"),
        (BroadcastMatch, BITS, {"window": True}, "window must be a whole number"),
        (BroadcastMatch, BITS, {"width": 2}, "the parameters are not those of a BroadcastMatch"),
        (BroadcastMatch, BITS, {"hidden": [30, "box"]}, "depth must be .* from 0 to 16, got 30"),
        (BroadcastMatch, BITS, {"hidden": [1, "tree"]}, "leaf must be 'literal'"),
        (BroadcastMatch, BITS, {"hidden": 1}, "hidden must be levels and a kind of leaves"),
    ],
)  # fmt: skip
def test_texts_that_ask_for_too_much_are_refused(
    scheme: Any, schema: Schema, parameters: dict[str, Any], message: str
) -> None:
    text = text_of(scheme.box(BITS), schema, **parameters)
    cheap_refusal(lambda: from_json(text), message, (ParameterError, DecodeError))


# -- public parameters --------------------------------------------------------------------------


@pytest.mark.slow
@every_matcher
@pytest.mark.parametrize(
    "duplicate",
    [
        copy.copy,
        copy.deepcopy,
        lambda m: pickle.loads(pickle.dumps(m)),
        lambda m: from_json(m.to_json()),
    ],
)
def test_a_copied_matcher_is_the_same(name: str, duplicate: Callable[[Matcher], Matcher]) -> None:
    make, interest = MATCHERS[name]
    matcher = make()
    twin = duplicate(matcher)
    assert type(twin) is type(matcher)
    assert twin == matcher and hash(twin) == hash(matcher) and twin.sizes == matcher.sizes
    assert twin.fingerprint == matcher.fingerprint
    messages = (
        matcher.publisher(SEED).encode(quotes(50, 11), range(50)),
        twin.subscriber(SEED).encode(interest, range(50)),
    )
    answers = matcher.broker().match(*messages)
    assert 0 < answers.sum() < 50
    assert np.array_equal(pickle.loads(pickle.dumps(twin.broker())).match(*messages), answers)


@every_scheme
def test_fingerprint_differs_when_anything_public_does(scheme: Any) -> None:
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
        Schema(price=Decimal(0, 15, 1), volume=UInt(4), more=Bool()),
        Schema(price=Decimal(0, 15, 1), volumes=UInt(4)),
    ]
    templates = [
        "price < :p", "price <= :p", "price > :p", "price <= 3", "price < 5", "price < :q",
        "volume < :p", "price >= :p", "price < :p AND volume < :q", "price < :q AND volume < :p",
        "volume < :p AND price < :q", "price < :p AND volume < 3", "price < :p AND volume < 4",
        "price BETWEEN :p AND :q", "price BETWEEN :p AND :q AND volume BETWEEN :r AND :s",
    ]  # fmt: skip
    matchers = [scheme.box(schema) for schema in made]
    matchers += [scheme(made[0], template) for template in templates]
    others = [other for other in SCHEMES if other is not scheme]
    matchers += [other.box(made[0]) for other in others]
    matchers += [other(made[0], templates[0]) for other in others]
    if scheme is BroadcastMatch:
        matchers += [scheme.box(made[0], window=window) for window in (1, 3, 4)]
    if scheme is not BranchingMatch:
        matchers += [scheme.hidden(made[0], leaves=2), scheme.hidden(made[0], leaves=4)]
    assert len({m.fingerprint for m in matchers}) == len(matchers)
    assert len({m.digest[:6] for m in matchers}) == len(matchers) == len(set(matchers))


def test_fingerprint_does_not_depend_on_the_process() -> None:
    printed = in_two_processes(
        "from ccbps import Schema, UInt; from ccbps.matching import *; "
        "s = Schema(a=UInt(5), b=UInt(7)); "
        "t = 'at_least(2, a = :x, b < 9, hamming(b, :y) <= 2)'; "
        "schemes = BranchingMatch, FormulaMatch, BroadcastMatch\n"
        "for scheme in schemes: print(scheme.box(s).fingerprint, "
        "scheme(s, t).fingerprint)"
    )
    assert len(printed) == 6


def figures(matcher: Any) -> list[str]:
    """Parts of a matcher's explanation, by the scheme's own counts."""
    encoding, costs = matcher.encoding, matcher.costs
    if isinstance(matcher, BranchingMatch):
        return [
            f"{matcher.program.size + 1} nodes",
            f"{len(matcher.program.edges)} edges",
            f"{encoding.layout.bits:,} bits per message",
            *(f"{count:,} x 64-bit word" for count in encoding.operations.values()),
        ]
    slots = encoding.slots
    common = [
        f"{matcher.size:,} AND gates, depth {depth(matcher.formula)}",
        f"{slots.products:,} at the broker",
    ]
    if isinstance(matcher, FormulaMatch):
        event, interest = slots.bits
        bits = f"{event:,} of an event, {interest:,} of an interest"
        return [*common, bits, *(f"{cost.count:,} x 64-bit word" for cost in costs)]
    digits = f"{len(slots.digits)} of at most {matcher.window} bits, a label each"
    sizes = f"{slots.slots:,} slots and {slots.rows:,} rows of an interest, after a nonce of 12"
    return [*common, digits, sizes]


@every_matcher
def test_explain_states_sizes_costs_and_the_leakage_card(name: str) -> None:
    matcher = MATCHERS[name][0]()
    text, shown = matcher.explain(), repr(matcher)
    for figure in (
        f"{matcher.event_bytes:,} bytes per event, {matcher.interest_bytes:,} bytes per interest",
        f"{matcher.randomness_bytes:,} bytes per round",
        *figures(matcher),
        *str(matcher.leakage).splitlines(),
    ):
        assert figure in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert all(f"{cost.role}: per {cost.per}: {cost}" in lines for cost in matcher.costs)
    assert {cost.role for cost in matcher.costs} == {"publisher", "subscriber", "broker"}
    assert isinstance(matcher, BroadcastMatch) or {cost.per for cost in matcher.costs} == {"pair"}
    shape = "box" if matcher.template is None else matcher.template.text
    if "hidden" in name:
        shape = "hidden formula of 2 interval leaves"
    assert shape in text and shape in shown and "issue, price, volume" in shown
    assert matcher != shown


@every_scheme
def test_cards_tell_boxes_templates_and_hidden_formulas_apart(scheme: Any) -> None:
    shapes = [shape for shape in SHAPES if shape != "hidden" or scheme is not BranchingMatch]
    cards = {shape: SHAPES[shape][0](scheme).leakage for shape in shapes}
    for card in cards.values():
        assert card.security == ("computational" if scheme is BroadcastMatch else "perfect")
        assert json.loads(json.dumps(card.to_dict()))["scheme"] == scheme.__name__
        assert card.reuse == "one-time"
        assert {Protects.EVENT, Protects.EQUALITY_OF_EVENTS, Protects.CONSTANTS} <= card.protects
    box, template = cards["box"], cards["template"]
    assert any("which attributes" in text for text in box.hides)
    assert not any("which attributes" in text for text in template.hides)
    assert any("template" in text for text in template.learns)
    assert not any("template" in text for text in box.learns)
    assert box.protects - template.protects == {Protects.ATTRIBUTES}
    if "hidden" in cards:
        assert cards["hidden"].protects - box.protects == {Protects.FORMULA}


@every_matcher
def test_messages_have_the_stated_sizes(name: str) -> None:
    make, interest = MATCHERS[name]
    matcher = make()
    bits = used_bits(matcher)
    assert matcher.event_bytes == ROUND_HEADER_BYTES + -(-bits["event"] // 8)
    assert matcher.interest_bytes == ROUND_HEADER_BYTES + -(-bits["interest"] // 8)
    events = {"issue": SYMBOLS[:1], "price": [1], "volume": [1]}
    assert matcher.publisher(SEED).encode(events, [0]).shape == (1, matcher.event_bytes)
    assert matcher.subscriber(SEED).encode(interest, [0]).shape == (1, matcher.interest_bytes)
