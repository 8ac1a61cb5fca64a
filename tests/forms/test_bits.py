"""Trees over bits: all intervals of small codes, sizes, and simplification."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Category, Schema, UInt
from ccbps.errors import ParameterError
from ccbps.forms.bit_tree import FALSE, TRUE, BitNode, Literal, Threshold, bit_tree, iter_literals
from ccbps.predicates.attributes import Events
from ccbps.predicates.form import InRange
from tests.support.effort import examples
from tests.support.strategies import predicates, record, rows, schemas

NIBBLE = Schema(a=UInt(4))


def holds(node: BitNode, events: Events) -> list[bool]:
    if isinstance(node, Literal):
        bits, words = events.schema[node.attribute].bits, events.codes[node.attribute]
        limb, shift = divmod(bits - 1 - node.position, 64)
        return [word >> shift & 1 == node.value for word in words[-1 - limb].tolist()]
    if isinstance(node, Threshold):
        parts = np.array([holds(part, events) for part in node.parts])
        answers: list[bool] = (parts.sum(axis=0) >= node.least).tolist()
        return answers
    return [node is TRUE] * events.count


def test_every_interval_of_four_bits() -> None:
    events = NIBBLE.encode({"a": range(16)})
    for low, high in product(range(17), range(-1, 16)):
        if high < low - 1:
            continue
        for negated in (False, True):
            form = InRange("a", low, high, low == high, negated)
            tree = bit_tree(NIBBLE, form)
            assert holds(tree, events) == form.evaluate(events).tolist(), (low, high, negated)
            assert len(list(iter_literals(tree))) <= 8
            assert (tree in (TRUE, FALSE)) == (len(set(holds(tree, events))) == 1)


def test_a_comparison_as_it_is_printed() -> None:
    a3, a2, a1, a0 = (Literal("a", position, 0) for position in range(4))
    tree = bit_tree(NIBBLE, NIBBLE.parse("a < 5").true_form())
    assert tree == Threshold(2, (a3, Threshold(1, (a2, Threshold(2, (a1, a0))))))
    # Trailing zeros of the constant end the recursion.
    assert bit_tree(NIBBLE, NIBBLE.parse("a < 8").true_form()) == a3
    assert bit_tree(NIBBLE, NIBBLE.parse("a >= 8").true_form()) == Literal("a", 0, 1)


def test_one_comparison_takes_at_most_one_leaf_a_bit() -> None:
    schema = Schema(a=UInt(10))
    for bound in range(1, 1024):
        for operator in ("<", ">="):
            tree = bit_tree(schema, schema.parse(f"a {operator} {bound}").true_form())
            assert len(list(iter_literals(tree))) <= 10


def test_ranges_to_the_last_code_that_occurs() -> None:
    schema = Schema(issue=Category(["a", "b", "c", "d", "e"]))  # codes 0..4 of 3 bits
    tree = bit_tree(schema, schema.parse("issue >= 'e'").true_form())
    assert tree == Literal("issue", 0, 1)


@given(schema=schemas(), data=st.data())
@settings(max_examples=examples(100))
def test_trees_mean_what_predicates_mean(schema: Schema, data: st.DataObject) -> None:
    predicate = schema.parse(data.draw(predicates(schema, private=False)).text)
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    tree = bit_tree(schema, predicate.true_form())
    assert holds(tree, events) == predicate.evaluate(events).tolist()


@pytest.mark.parametrize("text", ["a < :x", "a = :x", "hamming(a, :x) <= 1"])
def test_private_constants_need_values(text: str) -> None:
    predicate = NIBBLE.parse(text)
    with pytest.raises(ParameterError, match="private constant on attribute 'a' is not bound"):
        bit_tree(NIBBLE, predicate.true_form())
    assert isinstance(bit_tree(NIBBLE, predicate.bind(x=5).true_form()), Threshold)


def test_literals_hide_their_values() -> None:
    tree = bit_tree(NIBBLE, NIBBLE.parse("a = 5").true_form())
    assert "value" not in repr(tree)
