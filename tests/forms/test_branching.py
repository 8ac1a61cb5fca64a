"""Predicates as programs: the bits of both parties, and a program that hides private constants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.forms.bits import event_bits, event_words
from ccbps.forms.branching import CompiledForm, box_form
from ccbps.predicates import (
    AllOf,
    AnyOf,
    AtLeastOf,
    Bool,
    Category,
    Decimal,
    Events,
    Form,
    HammingWithin,
    InRange,
    Int,
    Keyword,
    Predicate,
    Schema,
    Text,
    UInt,
)
from ccbps.predicates.codes import unpack
from tests.support.effort import examples
from tests.support.program_values import value_of
from tests.support.strategies import (
    Const,
    Drawn,
    Moment,
    Node,
    predicates,
    record,
    rows,
    schemas,
    small_types,
)

Bits = NDArray[np.uint8]


def unpacked(words: NDArray[np.uint64], count: int) -> Bits:
    """Packed input bits as 0/1 rows, by the rule: bit i at bit i % 64 of word i // 64."""
    columns = [words[i // 64] >> np.uint64(i % 64) & np.uint64(1) for i in range(count)]
    return np.stack(columns, axis=1).astype(np.uint8)


def evaluated(compiled: CompiledForm, events: Events, form: Form) -> NDArray[np.bool_]:
    """The program's value for each event, no encoding in between."""
    event = unpacked(event_words(events), events.schema.bits)
    interest = unpacked(compiled.interest_row(form).T, max(1, compiled.private_bits))
    return value_of(compiled.program, event, np.repeat(interest, events.count, axis=0))


def all_private(drawn: Drawn) -> Drawn:
    """The same predicate with every constant a placeholder."""
    hidden: dict[str, Any] = {}

    def hide(node: Node) -> Node:
        chosen = []
        for constant in node.constants:
            if constant.value is not None:
                name = f"q{len(hidden)}"
                value = constant.value
                hidden[name] = value.iso() if isinstance(value, Moment) else value
                constant = Const(value, name)
            chosen.append(constant)
        return replace(node, constants=tuple(chosen), parts=tuple(map(hide, node.parts)))

    return Drawn(drawn.schema, hide(drawn.node), hidden)


# -- the event's bits ---------------------------------------------------------------------------


@given(schema=schemas(), data=st.data())
def test_event_bits_are_the_codes_in_schema_order_most_significant_first(
    schema: Schema, data: st.DataObject
) -> None:
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    texts = [
        "".join(f"{code:0{schema[name].bits}b}" for name, code in zip(schema, codes, strict=True))
        for codes in zip(*(unpack(events.codes[name]) for name in schema), strict=True)
    ]
    words, bits = event_words(events), event_bits(events)
    assert words.dtype == np.uint64 and bits.dtype == np.bool_
    assert words.shape == (-(-schema.bits // 64), events.count)
    assert bits.shape == (events.count, schema.bits)
    for read in (unpacked(words, schema.bits), bits.view(np.uint8)):
        assert ["".join(map(str, row)) for row in read.tolist()] == texts
    for row in range(events.count):
        packed = sum(int(word) << 64 * i for i, word in enumerate(words[:, row]))
        assert packed >> schema.bits == 0
        # The words of one event are made in another way.
        assert np.array_equal(event_words(events.take([row]))[:, 0], words[:, row])


# -- programs mean what predicates mean ---------------------------------------------------------


def check_meaning(drawn: Drawn, events: Events) -> None:
    template = drawn.schema.parse(drawn.text)
    bound = template.bind(**drawn.private)
    compiled = CompiledForm(drawn.schema, template.true_form())
    assert_array_equal(evaluated(compiled, events, bound.true_form()), bound.evaluate(events))


@pytest.mark.parametrize("hides_all", [False, True])
@given(schema=schemas(), data=st.data())
@settings(max_examples=examples(150))
def test_program_of_a_predicate_means_the_predicate(
    hides_all: bool, schema: Schema, data: st.DataObject
) -> None:
    drawn = data.draw(predicates(schema, private=not hides_all))
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    check_meaning(all_private(drawn) if hides_all else drawn, events)


def every_event(schema: Schema) -> Events:
    """All events of a schema whose attributes have few codes."""
    columns: list[list[Any]] = []
    for kind in (schema[name] for name in schema):
        values: list[Any] = [None] if kind.nullable else []
        if isinstance(kind, (UInt, Int)):
            values += range(kind.least, kind.least + kind.cardinality)
        elif isinstance(kind, Category):
            values += kind.values
        else:
            values += [False, True]
        columns.append(values)
    grid = np.meshgrid(*[np.arange(len(values)) for values in columns], indexing="ij")
    places = [g.ravel().tolist() for g in grid]
    return schema.encode(
        {
            name: [values[i] for i in at]
            for name, values, at in zip(schema, columns, places, strict=True)
        }
    )


@given(schema=schemas(small_types(), 3), data=st.data())
@settings(max_examples=examples(200))
def test_program_means_the_predicate_for_every_event_of_a_small_schema(
    schema: Schema, data: st.DataObject
) -> None:
    check_meaning(data.draw(predicates(schema)), every_event(schema))


@given(schema=schemas(), data=st.data())
@settings(max_examples=examples(150))
def test_program_of_the_box_means_every_predicate_that_is_a_box(
    schema: Schema, data: st.DataObject
) -> None:
    drawn = data.draw(predicates(schema, private=False, hamming=False))
    predicate = schema.parse(drawn.text)
    try:
        form = box_form(schema, predicate.box())
    except UnsupportedPredicateError:
        form = box_form(schema, schema.parse("TRUE").box())
        predicate = schema.parse("TRUE")
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    compiled = CompiledForm(schema, box_form(schema))
    assert_array_equal(evaluated(compiled, events, form), predicate.evaluate(events))


# -- what is private, what is public, and what they cost ----------------------------------------

SCHEMA = Schema(
    n=UInt(4),
    s=Int(3, nullable=True),
    d=Decimal(0, 9, 1),
    c=Category(["a", "b", "c"]),
    t=Text(1),
    w=Keyword(48),
    b=Bool(),
)
K = {name: SCHEMA[name].bits for name in SCHEMA}


@pytest.mark.parametrize(
    ("text", "inner", "private"),
    [
        # A code that no value has can mean "never"; n uses all its codes and needs a gate.
        ("d = :p", K["d"] - 1, K["d"]),
        ("c = :p", K["c"] - 1, K["c"]),
        ("n = :p", (K["n"] - 1) + 1, K["n"] + 1),
        ("n < :p", K["n"], K["n"] + 1),
        ("n <= :p", K["n"], K["n"] + 1),
        ("n > :p", K["n"], K["n"] + 1),
        ("n >= :p", K["n"], K["n"] + 1),
        ("NOT n >= :p", K["n"], K["n"] + 1),
        ("n != :p", (K["n"] - 1) + 1, K["n"] + 1),
        ("n BETWEEN :p AND :q", 2 * K["n"] - 1, 2 * K["n"]),
        ("n BETWEEN 3 AND :q", 2 * K["n"] - 1, 2 * K["n"]),
        ("t LIKE :p", 2 * K["t"] - 1, 2 * K["t"]),
        ("d IN (:p, :q, :r)", 3 * (K["d"] - 1), 3 * K["d"]),
        # NULL is code 0, so its complement needs one more public comparison, with bound 1.
        ("s < :p", K["s"] + (K["s"] - 1), K["s"] + 1),
        ("s > :p", K["s"], K["s"] + 1),
        ("hamming(n, :p) <= 1", 2 * K["n"], K["n"]),
        ("n < 8", 0, 0),
        ("n < 5", K["n"] - 1, 0),
        ("n = 5", K["n"] - 1, 0),
        ("n >= 8 AND n < 8", 1, 0),
        ("b", K["b"] - 1, 0),
        ("n < :p AND d = :q", K["n"] + 1 + K["d"] - 1, K["n"] + 1 + K["d"]),
        ("n < :p OR d = :q", K["n"] + 1 + K["d"] - 1, K["n"] + 1 + K["d"]),
        ("TRUE", 0, 0),
        ("FALSE", 0, 0),
    ],
)
def test_leaves_cost_what_the_table_says(text: str, inner: int, private: int) -> None:
    form = SCHEMA.parse(text).true_form()
    compiled = CompiledForm(SCHEMA, form, inner + 2)  # source and sink
    assert (compiled.program.inner_nodes, compiled.private_bits) == (inner, private)
    assert compiled.program.interest_bits <= private
    with pytest.raises(ParameterError, match=f"would have {inner + 2} nodes"):
        CompiledForm(SCHEMA, form, inner + 1)


@given(schema=schemas(max_attributes=3), data=st.data())
@settings(max_examples=examples(100))
def test_size_is_told_before_the_program_is_put_together(
    schema: Schema, data: st.DataObject
) -> None:
    form = schema.parse(data.draw(predicates(schema)).text).true_form()
    nodes = CompiledForm(schema, form).program.size + 1
    waiting, counted = [form], True
    while waiting:
        node = waiting.pop()
        counted = counted and not isinstance(node, AtLeastOf)
        waiting += node.children
    # An at_least may drop nodes that lead nowhere; then a bit more is told.
    if counted:
        assert CompiledForm(schema, form, nodes).program.size + 1 == nodes
    with pytest.raises(ParameterError, match=r"the program would have .* nodes") as caught:
        CompiledForm(schema, form, nodes - 1)
    told = int(str(caught.value).split()[4].replace(",", ""))
    assert told == nodes if counted else told >= nodes


def test_list_of_neighbours_is_one_interval() -> None:
    wide = Schema(m=UInt(16))
    values = ", ".join(str(1000 + i) for i in range(400))
    predicate = wide.parse(f"m IN ({values})")
    compiled = CompiledForm(wide, predicate.true_form())
    interval = wide.parse("m BETWEEN 1000 AND 1399").true_form()
    assert compiled.program == CompiledForm(wide, interval).program
    assert compiled.program.size < 32
    events = wide.encode({"m": [999, 1000, 1200, 1399, 1400]})
    held = evaluated(compiled, events, predicate.true_form())
    assert held.tolist() == [False, True, True, True, False]


def test_box_is_an_interval_on_every_attribute() -> None:
    compiled = CompiledForm(SCHEMA, box_form(SCHEMA))
    assert compiled.program.size == 2 * SCHEMA.bits
    assert compiled.private_bits == 2 * SCHEMA.bits


def erased(form: Form, template: Form) -> Form:
    """The form without the bounds that are private in the template."""
    if isinstance(form, InRange) and isinstance(template, InRange):
        low = None if template.low is None else form.low
        return structs.replace(form, low=low, high=None if template.high is None else form.high)
    if isinstance(form, HammingWithin) and isinstance(template, HammingWithin):
        return structs.replace(form, value=None if template.value is None else form.value)
    if isinstance(form, (AllOf, AnyOf, AtLeastOf)):
        parts = zip(form.parts, template.children, strict=True)
        return structs.replace(form, parts=tuple(erased(part, other) for part, other in parts))
    return form


@given(schema=schemas(max_attributes=2), data=st.data())
def test_private_constants_change_nothing_but_private_bounds(
    schema: Schema, data: st.DataObject
) -> None:
    drawn = data.draw(predicates(schema))
    parsed = schema.parse(drawn.text)
    template = parsed.true_form()
    assert erased(parsed.bind(**drawn.private).true_form(), template) == template


@pytest.mark.parametrize(
    ("template", "constants"),
    [
        ("n < :p", [0, 7, 15, 16, -1, 10**30]),
        ("n = :p", [0, 15, 16, -1, 0.5]),
        ("n BETWEEN :p AND 5", [0, 5, 6, 99]),
        ("t LIKE :p", ["", "%", "a%", "a", "abc"]),
        ("c = :p", ["a", "nothing"]),
        ("s > :p", [-9, -4, 3, 4]),
    ],
)
def test_private_constants_show_in_the_private_bits_only(
    template: str, constants: list[Any]
) -> None:
    parsed = SCHEMA.parse(template)
    compiled = CompiledForm(SCHEMA, parsed.true_form())
    words = [compiled.interest_row(parsed.bind(p=p).true_form()) for p in constants]
    assert len({word.shape for word in words}) == 1
    assert len({word.tobytes() for word in words}) > 1
    assert all(unpack(word[::-1])[0] >> compiled.private_bits == 0 for word in words)


@pytest.mark.parametrize("other", ["n < :p AND n < :q", "d < :p", "hamming(n, :p) <= 1", "TRUE"])
def test_interest_of_another_structure_is_refused(other: str) -> None:
    compiled = CompiledForm(SCHEMA, SCHEMA.parse("n < :p").true_form())
    predicate: Predicate = SCHEMA.parse(other)
    bound = predicate.bind(**dict.fromkeys(predicate.private_names, 3))
    with pytest.raises(ParameterError, match="does not have the structure of the template"):
        compiled.interest_row(bound.true_form())
