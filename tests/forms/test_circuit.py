"""Predicates as circuits: the plaintext meaning, the inputs' order, normal form and depth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from ccbps.circuits import Op
from ccbps.errors import ParameterError
from ccbps.forms.bits import event_bits
from ccbps.forms.circuit import predicate_circuit
from ccbps.predicates import Category, Schema, Text, UInt
from tests.support.strategies import predicates, record, rows, schemas, small_types


@given(st.one_of(schemas(), schemas(small_types())), st.data())
def test_circuit_is_the_plaintext_meaning_in_negation_normal_form(schema, data):
    drawn = data.draw(predicates(schema))
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    predicate = schema.parse(drawn.text).bind(**drawn.private)
    circuit = predicate_circuit(predicate)
    assert circuit.inputs == schema.bits and len(circuit.outputs) == 1
    assert_array_equal(circuit.evaluate(event_bits(events))[:, 0], predicate.evaluate(events))
    for op, a, _ in circuit.gates:
        assert op != Op.XOR and (op != Op.NOT or a < circuit.inputs)


def depths(schema: Schema, texts: list[str]) -> int:
    return max(predicate_circuit(schema.parse(text)).depth for text in texts)


@pytest.mark.slow
def test_depth_of_conditions_on_few_bits():
    four, eight = Schema(a=UInt(4)), Schema(a=UInt(8))
    assert depths(four, [f"a < {c}" for c in range(16)]) == 3
    assert depths(four, [f"a >= {c}" for c in range(16)]) == 3
    assert depths(eight, [f"a = {c}" for c in range(0, 256, 5)]) == 3
    assert depths(eight, [f"a <> {c}" for c in range(0, 256, 5)]) == 3
    assert depths(eight, [f"a <= {c}" for c in range(256)]) == 4
    assert depths(eight, [f"a BETWEEN {c} AND {c + 90}" for c in range(0, 160, 3)]) == 5


def test_depth_of_whole_predicates():
    schema = Schema(
        issue=Category(["AAPL", "GOOG", "IBM", "MSFT"]), price=UInt(16), volume=UInt(32)
    )
    # Depths 1, at most 5 and at most 7, joined by Huffman's rule.
    text = "issue = 'IBM' AND price < 12000 AND volume > 1000"
    assert depths(schema, [text]) <= 8
    assert depths(schema, ["TRUE", "price >= 0", "issue IN ('AAPL', 'GOOG', 'IBM', 'MSFT')"]) <= 2
    assert depths(Schema(a=Text(8)), ["a LIKE 'IBM%'"]) == 5


def test_codes_that_do_not_occur_need_no_comparison():
    schema = Schema(issue=Category(["a", "b", "c", "d", "e"]))
    # Codes 2..4 of 0..7: with codes 5, 6 and 7 out of the way, x >= 2.
    circuit = predicate_circuit(schema.parse("issue >= 'c'"))
    assert circuit.depth == 1


def test_private_constants_must_be_bound():
    schema = Schema(a=UInt(4))
    for text in ("a < :x", "hamming(a, :x) <= 1"):
        predicate = schema.parse(text)
        with pytest.raises(ParameterError, match="attribute 'a' is not bound"):
            predicate_circuit(predicate)
        predicate_circuit(predicate.bind(x=3))
