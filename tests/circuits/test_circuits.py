"""Circuits: shape, depth, value, building with folding, and rewriting, against one-row twins."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from ccbps.algebra import A5
from ccbps.circuits import (
    Circuit,
    CircuitBuilder,
    Gate,
    Op,
    balance,
    fix_inputs,
    negation_normal_form,
    pad,
    without_xor,
)
from ccbps.circuits.circuit import pack_lanes, unpack_lanes
from ccbps.errors import ParameterError, ShapeError
from ccbps.programs.barrington import preserving, preserving_length
from tests.reference.circuits import depth, value
from tests.support.circuit_strategies import all_rows, circuits

AND_OR_NOT = (Op.NOT, Op.AND, Op.OR, Op.TRUE, Op.FALSE)


def table(circuit: Circuit) -> list[list[bool]]:
    """Outputs for all rows of input bits, by the twin."""
    return [value(circuit, row) for row in all_rows(circuit.inputs).tolist()]


# -- Circuit ------------------------------------------------------------------------------------


@given(circuits())
def test_evaluate_is_the_gates_value_for_every_row(circuit):
    rows = all_rows(circuit.inputs)
    expected = np.array(table(circuit), dtype=bool).reshape(len(rows), len(circuit.outputs))
    assert_array_equal(circuit.evaluate(rows), expected)


@given(circuits())
def test_depths_are_longest_paths(circuit):
    assert list(circuit.depths) == [depth(circuit, wire) for wire in range(circuit.wires)]
    assert circuit.depth == max((circuit.depths[wire] for wire in circuit.outputs), default=0)


@given(circuits(), st.data())
def test_cone_keeps_chosen_outputs_and_no_other_gate(circuit, data):
    count = len(circuit.outputs)
    chosen = data.draw(st.lists(st.integers(0, max(0, count - 1)), max_size=3 if count else 0))
    cone = circuit.cone(chosen)
    assert table(cone) == [[row[i] for i in chosen] for row in table(circuit)]
    read = {wire for gate in cone.gates for wire in gate[1:]} | set(cone.outputs)
    assert set(range(cone.inputs, cone.wires)) <= read
    assert circuit.cone().output_depths == circuit.output_depths


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 200])
def test_lanes_hold_64_rows_a_word(rows):
    bits = np.random.default_rng(rows).integers(0, 2, (rows, 5)).astype(bool)
    words = pack_lanes(bits)
    assert words.shape == (5, -(-rows // 64)) and words.dtype == np.uint64
    for row, bit in itertools.product(range(rows), range(5)):
        assert bool(int(words[bit, row // 64]) >> row % 64 & 1) == bits[row, bit]
    assert_array_equal(unpack_lanes(words, rows), bits)


def test_evaluate_takes_single_rows_leading_axes_and_long_batches(monkeypatch):
    b = CircuitBuilder()
    x, y, z = b.inputs(3)
    circuit = b.build(x & ~y | z, x ^ z)
    rows = np.random.default_rng(1).integers(0, 2, (2, 500, 3))
    monkeypatch.setattr("ccbps.circuits.circuit._WORKING_WORDS", 20)
    out = circuit.evaluate(rows)
    assert out.shape == (2, 500, 2) and out.dtype == np.bool_
    assert_array_equal(out[..., 1], rows[..., 0] != rows[..., 2])
    assert circuit.evaluate(rows[0, 0]).tolist() == out[0, 0].tolist()
    assert circuit.evaluate([True, False, False]).tolist() == [True, True]


def test_circuits_without_inputs_or_outputs_evaluate():
    b = CircuitBuilder()
    assert b.build(True, False).evaluate(np.zeros((3, 0), bool)).tolist() == [[True, False]] * 3
    assert CircuitBuilder().build().evaluate(np.zeros((3, 0), bool)).shape == (3, 0)


def test_circuits_compare_hash_and_pickle_by_their_gates():
    circuit = Circuit(2, ((Op.AND, 0, 1),), (2,))
    same = Circuit(2, (Gate(Op.AND, 0, 1),), (2,))
    other = Circuit(2, (Gate(Op.OR, 0, 1),), (2,))
    assert circuit == same and hash(circuit) == hash(same) and circuit != other
    assert pickle.loads(pickle.dumps(circuit)) == circuit
    assert repr(circuit) == "<Circuit: 2 inputs, 1 gates, 1 outputs, depth 1>"
    with pytest.raises(AttributeError):
        circuit.inputs = 3


@pytest.mark.parametrize(
    "arguments, match",
    [
        ((-1, (), ()), "inputs must be"),
        ((1, ((Op.AND, 0, 1),), ()), "must read 2 wires below 1"),
        ((1, ((Op.AND, 0, -1),), ()), "must read 2 wires"),
        ((1, ((Op.NOT, 0, 0),), ()), "must read 1 wires"),
        ((1, ((Op.TRUE, 0, -1),), ()), "must read 0 wires"),
        ((1, (), (1,)), r"outputs must be wires 0\.\.0"),
        ((1, (), (-1,)), "outputs must be wires"),
    ],
)
def test_circuit_refuses_what_is_no_circuit(arguments, match):
    with pytest.raises(ParameterError, match=match):
        Circuit(*arguments)


def test_evaluate_refuses_other_shapes_and_values():
    circuit = Circuit(2, (), (0,))
    for wrong in (np.zeros((4, 3), bool), np.zeros(()), [[0, 2]], [[0.0, 1.0]]):
        with pytest.raises(ShapeError, match="bits must"):
            circuit.evaluate(wrong)
    with pytest.raises(ParameterError, match="a position must be a whole number from 0 to 0"):
        circuit.cone([1])


# -- CircuitBuilder -----------------------------------------------------------------------------


@given(circuits())
def test_embedding_folds_and_keeps_function_and_depth(circuit):
    b = CircuitBuilder()
    built = b.build(*b.embed(circuit, b.inputs(circuit.inputs)))
    assert table(built) == table(circuit)
    assert all(
        now <= before
        for now, before in zip(built.output_depths, circuit.output_depths, strict=True)
    )
    assert len(set(built.gates)) == len(built.gates)
    constants = {built.inputs + i for i, gate in enumerate(built.gates) if gate.op <= Op.TRUE}
    assert not constants & {wire for gate in built.gates for wire in gate[1:]}


def test_folding_rules():
    b = CircuitBuilder()
    x, y = b.inputs(2)
    true, false = b.constant(True), b.constant(False)
    assert x & False is false and True & x is x and x & x is x and x & ~x is false
    assert x | True is true and False | x is x and x | x is x and ~x | x is true
    assert x ^ False is x and (x ^ True) is ~x and x ^ x is false and x ^ ~x is true
    assert ~~x is x and ~true is false
    assert x & y is y & x and ~x ^ y is ~(x ^ y) and ~x ^ ~y is y ^ x
    assert (x & y).depth == 1 and (~(x ^ y)).depth == 2 and x.constant is None
    assert true.constant is True and false.constant is False


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.booleans())
def test_joining_many_wires_reaches_the_least_depth(depths, disjunction):
    b = CircuitBuilder()
    # A chain on inputs of its own, of alternating gates, has its length as depth.
    wires = []
    for levels in depths:
        wire, *more = b.inputs(levels + 1)
        for i, x in enumerate(more):
            wire = wire & x if i % 2 else wire | x
        wires.append(wire)
    out = b.any_of(wires) if disjunction else b.all_of(wires)
    assert out.depth == (sum(2**levels for levels in depths) - 1).bit_length()


def test_joining_none_and_constants():
    b = CircuitBuilder()
    x, y = b.inputs(2)
    assert b.all_of([]).constant is True and b.any_of([]).constant is False
    assert b.all_of([x, True, x]) is x and b.any_of([x, True]).constant is True
    assert b.all_of([x, ~x, y]).constant is False


def test_build_keeps_inputs_made_late_and_drops_unused_gates():
    b = CircuitBuilder()
    (x,) = b.inputs(1)
    unused = x & ~x | ~x
    (y,) = b.inputs(1)
    circuit = b.build(y & ~x)
    assert unused is not None and circuit.inputs == 2 and len(circuit.gates) == 2
    assert table(circuit) == [[False], [True], [False], [False]]


@pytest.mark.parametrize(
    ("misuse", "error", "message"),
    [
        (lambda b, x: x & CircuitBuilder().inputs(1)[0], ParameterError, "another builder"),
        (lambda b, x: bool(x), TypeError, "no truth value"),
        (lambda b, x: x & 1, ParameterError, "wires or bools, got int"),
        (lambda b, x: b.gate(Op.TRUE, x), ParameterError, "use constant"),
        (lambda b, x: b.embed(Circuit(2, (), ()), [x]), ParameterError, "wires must be 2"),
        (lambda b, x: b.inputs(-1), ParameterError, "count"),
    ],
)
def test_wires_refuse_misuse(misuse, error, message):
    builder = CircuitBuilder()
    with pytest.raises(error, match=message):
        misuse(builder, *builder.inputs(1))


# -- rewriting ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rewrite", [without_xor, negation_normal_form])
@given(circuits())
def test_rewriting_keeps_function_and_depth_without_xor(rewrite, circuit):
    out = rewrite(circuit)
    assert table(out) == table(circuit)
    assert all(gate.op != Op.XOR for gate in out.gates)
    assert out.depth <= circuit.depth
    if rewrite is negation_normal_form:
        assert all(gate.a < out.inputs for gate in out.gates if gate.op == Op.NOT)


FOLDING = Circuit(
    4,
    (
        Gate(Op.XOR, 3, 3), Gate(Op.NOT, 2), Gate(Op.XOR, 3, 5), Gate(Op.TRUE), Gate(Op.TRUE),
        Gate(Op.AND, 6, 5), Gate(Op.XOR, 9, 9), Gate(Op.XOR, 10, 9), Gate(Op.TRUE),
        Gate(Op.AND, 11, 6),
    ),
    (13,),
)  # fmt: skip
"""Its XORs fold to constants or vanish, and then two chains of ANDs are one."""


@given(circuits())
@example(FOLDING)
def test_balance_keeps_the_function_and_never_deepens(circuit):
    out = balance(circuit)
    assert table(out) == table(circuit)
    for now, before in zip(out.output_depths, circuit.output_depths, strict=True):
        assert now <= before
    assert balance(out).depth == out.depth


@pytest.mark.parametrize("length", [2, 3, 8, 9, 33])
def test_balance_makes_chains_logarithmic_even_when_each_link_is_used(length):
    b = CircuitBuilder()
    links = b.inputs(length)
    for i in range(1, length):
        links[i] = links[i - 1] & links[i]
    out = balance(b.build(*links))
    assert list(out.output_depths) == [i.bit_length() for i in range(length)]


@given(circuits(), st.integers(0, 3))
def test_pad_reaches_the_depth_and_keeps_the_function(circuit, more):
    out = pad(circuit, circuit.depth + more)
    assert table(out) == table(circuit)
    assert set(out.output_depths) <= {circuit.depth + more}


@given(circuits(min_outputs=1), st.integers(0, 2))
def test_programs_of_one_padded_depth_have_one_length(circuit, more):
    out = pad(circuit, circuit.depth + more)
    lengths = {preserving_length(out.cone([place])) for place in range(len(out.outputs))}
    assert lengths == {4 ** (circuit.depth + more)}


def test_padding_reaches_one_length_from_2_4_10_and_16_instructions():
    b = CircuitBuilder()
    x, y, z, u = b.inputs(4)
    for output, length in (
        (x, 1), (x & y, 4), (x & y | z, 10), (x & y | z & u, 16), (x ^ y, 16)
    ):  # fmt: skip
        circuit = b.build(output)
        padded = pad(circuit, 3)
        assert (preserving_length(circuit), preserving_length(padded)) == (length, 64)
        program = preserving(padded, A5)
        assert program.length == 64
        expected = np.where(circuit.evaluate(all_rows(4))[:, 0], A5.alpha, 0)
        assert_array_equal(program.evaluate(all_rows(4)), expected)


def test_pad_refuses_less_than_the_depth():
    b = CircuitBuilder()
    x, y = b.inputs(2)
    with pytest.raises(ParameterError, match="at least the circuit's own, 1, got 0"):
        pad(b.build(x & y), 0)
    constant = CircuitBuilder().build(True)
    assert pad(constant, 0) == constant
    with pytest.raises(ParameterError, match="without inputs has depth 0 always, got depth=1"):
        pad(constant, 1)


@given(circuits(), st.data())
def test_fix_inputs_is_the_function_at_those_values(circuit, data):
    fixed = data.draw(st.dictionaries(st.integers(0, circuit.inputs - 1), st.booleans()))
    out = fix_inputs(circuit, fixed)
    assert out.inputs == circuit.inputs - len(fixed)
    for row in all_rows(out.inputs).tolist():
        free = iter(row)
        inputs = [fixed[i] if i in fixed else next(free) for i in range(circuit.inputs)]
        assert value(out, row) == value(circuit, inputs)
    with pytest.raises(ParameterError, match="an input in values must be a whole number"):
        fix_inputs(circuit, {circuit.inputs: True})
