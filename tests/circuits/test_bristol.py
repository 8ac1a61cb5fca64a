"""Bristol Fashion and Bristol Format: reading, writing, integers, malformed text, real circuits."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Callable
from itertools import product
from pathlib import Path

import bfcl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from ccbps.circuits import Circuit, CircuitBuilder, Gate, Op, blocks, bristol
from ccbps.errors import DecodeError, ParameterError
from tests.support.circuit_strategies import all_rows, circuits
from tests.vectors.circuits import generate_bristol

# Every kind of gate, by hand: wires 0, 1 are a, wires 2, 3 are b.
FASHION = """\
8 14
2 2 2
3 1 2 1

4 2 0 1 2 3 5 10 MAND
2 1 5 10 4 XOR
1 1 4 7 NOT
1 1 1 8 EQ
1 1 0 9 EQ
2 1 8 9 13 XOR
1 1 7 11 EQW
1 1 2 12 INV
"""
HALF_ADDER = "2 4\n1 1   2\n\n2 1 0 1 2 XOR\n2 1 0 1 3 AND\n"


def adder(k: int) -> bristol.BristolCircuit:
    """An adder of this package with its wires in the files' order."""
    b = CircuitBuilder()
    circuit = b.build(*blocks.add(b.inputs(k), b.inputs(k)))
    return bristol.BristolCircuit.from_blocks(circuit, (k, k), (k + 1,))


def test_loads_reads_every_kind_of_gate():
    read = bristol.loads(FASHION)
    assert (read.input_widths, read.output_widths) == ((2, 2), (1, 2, 1))
    # MAND takes a_0 & b_0 and a_1 & b_1. Wire 6 is never used.
    rows = all_rows(4)
    first, second = rows[:, 0] & rows[:, 2], rows[:, 1] & rows[:, 3]
    expected = [second, first == second, ~rows[:, 2], np.ones(16, bool)]
    assert_array_equal(read.circuit.evaluate(rows), np.stack(expected, axis=1))


def test_loads_reads_the_old_format():
    read = bristol.loads(HALF_ADDER)
    assert (read.input_widths, read.output_widths) == ((1, 1), (2,))
    assert read.circuit == Circuit(2, (Gate(Op.XOR, 0, 1), Gate(Op.AND, 0, 1)), (2, 3))
    assert read.integers([0, 0, 1, 1], [0, 1, 0, 1]) == [[0, 1, 1, 2]]
    assert bristol.dumps(read, style="format").split() == HALF_ADDER.split()
    negation = bristol.loads("1 2\n1 0 1\n\n1 1 0 1 INV\n")
    assert negation.integers([0, 1], [0, 0]) == [[1, 0]]
    assert bristol.loads("0 2\n1 1 2\n").circuit == Circuit(2, (), (0, 1))
    assert bristol.loads("0 2\n1 2\n1 2\n").circuit == Circuit(2, (), (0, 1))


def test_load_reads_a_file(tmp_path):
    path = tmp_path / "half_adder.txt"
    path.write_text(HALF_ADDER)
    assert bristol.load(path) == bristol.load(str(path)) == bristol.loads(HALF_ADDER)
    path.write_bytes(b"1 2\xff")
    with pytest.raises(DecodeError, match="ASCII"):
        bristol.load(path)


@given(circuits(ops=[Op.AND, Op.XOR, Op.NOT, Op.FALSE, Op.TRUE]))
def test_fashion_round_trip_is_the_same_circuit(circuit):
    read = bristol.loads(bristol.dumps(circuit))
    assert read == bristol.BristolCircuit(circuit, (circuit.inputs,), (len(circuit.outputs),))


@given(circuits(), st.sampled_from(["fashion", "format"]))
def test_round_trip_keeps_function_and_depth(circuit, style):
    read = bristol.loads(bristol.dumps(circuit, style=style)).circuit
    rows = all_rows(circuit.inputs)
    assert_array_equal(read.evaluate(rows), circuit.evaluate(rows))
    # The old format has 0 as x ^ x only, which counts as two levels.
    if style == "fashion":
        assert read.output_depths == circuit.output_depths


@pytest.mark.parametrize("style", ["fashion", "format"])
def test_integers_are_least_significant_wire_first(style):
    read = bristol.loads(bristol.dumps(adder(20), style=style))
    rng = random.Random(20)
    a, b = ([rng.getrandbits(20) for _ in range(100)] for _ in range(2))
    assert read.integers(a, b) == [[x + y for x, y in zip(a, b, strict=True)]]
    # Wire 0 is bit 0 of the first value: 1 + 0 = 1.
    row = np.zeros(40, bool)
    row[0] = True
    assert read.circuit.evaluate(row).nonzero()[0].tolist() == [0]


@given(st.data())
def test_mutated_text_is_read_or_refused_with_its_line(data):
    lines = bristol.dumps(adder(2)).splitlines()
    place = data.draw(st.integers(0, len(lines) - 1))
    words = lines[place].split() or [""]
    word = data.draw(st.integers(0, len(words) - 1))
    odd = ["", "x", "-1", "0", "1", "7", "99", "10" * 12, "AND", "MAND", "EQ", "1_0", "²"]
    words[word] = data.draw(st.sampled_from(odd))
    lines[place] = " ".join(words)
    refusal = "line 0"
    try:
        bristol.loads("\n".join(lines))
    except DecodeError as error:
        refusal = str(error)
    assert refusal.startswith("line ")


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "line 1: expected the numbers of gates and of wires, got 'the end'"),
        ("1 2 3", "line 1: expected the numbers of gates"),
        ("1 -2", "line 1: expected the numbers of gates"),
        ("1 " + "9" * 30, "line 1: expected smaller numbers"),
        ("0 9999999\n1 9999998\n1 1", "line 3: expected at most 1048576 input wires"),
        ("1 2", "line 2: expected the inputs' widths"),
        ("1 2\n1 1\n2 1 0 1 2 AND", "line 2: expected two input widths"),
        ("1 2\n2 1\n1 1\n", "line 2: expected the number of input values"),
        ("1 2\n1 1\n2 1\n", "line 3: expected the number of output values"),
        ("1 2\n1 3\n1 1\n", "line 3: expected no more inputs or outputs than 2 wires"),
        ("1 2\n1 1\n1 1\n\n1 1 0 1 NAND", "line 5: expected AND, XOR, INV, NOT, EQ, EQW or MAND"),
        ("1 2\n1 1\n1 1\n1 1 0 1 AND", "line 4: expected 2 inputs and 1 output of AND"),
        ("1 2\n1 1\n1 1\n1 1 0 INV", "line 4: expected 1 inputs and 1 output of INV"),
        ("1 2\n1 1\n1 1\n1 1 2 1 EQ", "line 4: expected the constant 0 or 1"),
        ("1 2\n1 1\n1 1\n1 1 x 1 INV", "line 4: expected a gate's numbers"),
        ("1 2\n1 1\n1 1\n1 INV", "line 4: expected a gate"),
        ("1 2\n1 1\n1 1\n2 2 0 0 1 1 MAND", "line 4: expected 2n inputs and n outputs"),
        ("1 3\n1 1\n1 1\n1 1 1 2 INV", "line 4: expected a wire that has a value already, got '1'"),
        ("1 3\n1 1\n1 1\n1 1 1 2 EQW", "line 4: expected a wire that has a value already"),
        ("1 2\n1 1\n1 1\n1 1 0 0 INV", "line 4: expected a wire below 2 without a value, got '0'"),
        ("1 2\n1 1\n1 1\n1 1 0 2 INV", "line 4: expected a wire below 2 without a value"),
        ("2 3\n1 1\n1 1\n1 1 0 1 INV", "line 5: expected 2 gates"),
        ("0 2\n1 1\n1 1\n1 1 0 1 INV", "line 4: expected the end after 0 gates"),
        ("1 3\n1 1\n1 1\n1 1 0 1 INV", "line 4: expected a gate for output wire 2"),
    ],
)
def test_loads_names_line_and_problem(text, message):
    with pytest.raises(DecodeError) as caught:
        bristol.loads(text)
    assert str(caught.value).startswith(message)


def test_writing_and_integers_refuse_misuse():
    read = adder(4)
    with pytest.raises(ParameterError, match="style must be"):
        bristol.dumps(read, style="verilog")
    with pytest.raises(ParameterError, match="leave the arguments out"):
        bristol.dumps(read, input_widths=[8])
    with pytest.raises(ParameterError, match="input_widths must add up to 8"):
        bristol.dumps(read.circuit, input_widths=[4, 5])
    with pytest.raises(ParameterError, match="at most 2 input values"):
        bristol.dumps(read.circuit, input_widths=[4, 2, 2], style="format")
    with pytest.raises(ParameterError, match="no constants without inputs"):
        bristol.dumps(CircuitBuilder().build(True), style="format")
    for values in ([[1]], [[1], [2, 3]]):
        with pytest.raises(ParameterError, match="values must be 2 sequences"):
            read.integers(*values)
    with pytest.raises(ParameterError, match="must be integers of 4 bits"):
        read.integers([16], [0])


@pytest.mark.parametrize("k", [1, 8, 13])
def test_another_implementation_reads_what_is_written(k):
    theirs = bfcl.circuit(bristol.dumps(adder(k)))
    rng = random.Random(k)
    for a, b in [
        (0, 0),
        (2**k - 1, 1),
        *((rng.getrandbits(k), rng.getrandbits(k)) for _ in range(20)),
    ]:
        bits = [[value >> i & 1 for i in range(k)] for value in (a, b)]
        (out,) = theirs.evaluate(bits)
        assert sum(bit << i for i, bit in enumerate(out)) == a + b


STORED = Path(__file__).parents[1] / "vectors" / "circuits"


@pytest.mark.parametrize("case", json.loads((STORED / "bristol.json").read_text())["cases"])
def test_stored_files_compute_what_they_say_in_both_orders(case):
    read = bristol.load(STORED / case["file"])
    xs, ys = zip(*product(range(8), repeat=2), strict=True)
    assert read.integers(xs, ys) == [case["out"]]
    # Rows of most significant bits first are the numbers 0 .. 63, x above y.
    turned = read.most_significant_first()
    assert turned.evaluate(all_rows(6))[:, 0].tolist() == [bool(out) for out in case["out"]]
    assert bristol.BristolCircuit.from_blocks(turned, (3, 3), (1,)) == read


def test_stored_files_are_what_the_generator_makes():
    assert generate_bristol.vectors() == json.loads((STORED / "bristol.json").read_text())
    for case in generate_bristol.vectors()["cases"]:
        text = (STORED / case["file"]).read_bytes()
        assert hashlib.sha256(text).hexdigest() == case["sha256"]


@given(circuits(), st.data())
def test_order_of_values_is_turned_in_and_out(circuit, data):
    cut = data.draw(st.integers(0, circuit.inputs))
    widths, outs = (cut, circuit.inputs - cut), (len(circuit.outputs),)
    read = bristol.BristolCircuit(circuit, widths, outs)
    turned = read.most_significant_first()
    rows = all_rows(circuit.inputs)
    other = np.concatenate([rows[:, :cut][:, ::-1], rows[:, cut:][:, ::-1]], axis=1)
    assert_array_equal(turned.evaluate(other), circuit.evaluate(rows)[:, ::-1])
    assert bristol.BristolCircuit.from_blocks(turned, widths, outs) == read


def signed(number: int) -> int:
    return number - (number >> 31 << 32)


# The published circuits and what they compute, by their files' names.
PUBLISHED: dict[str, Callable[..., int]] = {
    "adder64": lambda a, b: (a + b) % 2**64,
    "sub64": lambda a, b: (a - b) % 2**64,
    "neg64": lambda a: -a % 2**64,
    "mult64": lambda a, b: a * b % 2**64,
    "zero_equal": lambda a: a == 0,
    "adder_32bit": lambda a, b: a + b,
    "adder_64bit": lambda a, b: a + b,
    "mult_32x32": lambda a, b: a * b,
    "comparator_32bit_signed_lt": lambda a, b: signed(a) < signed(b),
    "comparator_32bit_signed_lteq": lambda a, b: signed(a) <= signed(b),
    "comparator_32bit_unsigned_lt": lambda a, b: a < b,
    "comparator_32bit_unsigned_lteq": lambda a, b: a <= b,
}


@pytest.mark.skipif("BRISTOL_CIRCUITS" not in os.environ, reason="BRISTOL_CIRCUITS is not set")
def test_published_circuits_compute_what_they_say():
    """BRISTOL_CIRCUITS names a directory with published circuits; the repository holds none."""
    paths = sorted(Path(os.environ["BRISTOL_CIRCUITS"]).glob("*.txt"))
    paths = [path for path in paths if path.stem in PUBLISHED]
    assert paths, "the directory of BRISTOL_CIRCUITS has none of these circuits"
    for path in paths:
        read = bristol.load(path)
        rng = random.Random(path.stem)
        columns = []
        for width in read.input_widths:
            near = [0, 0, 1, 2**width - 1, 2 ** (width - 1), 2 ** (width - 1) - 1]
            columns.append([rng.choice(near) for _ in range(60)])
            columns[-1] += [rng.getrandbits(width) for _ in range(200)]
        meaning = PUBLISHED[path.stem]
        expected = [int(meaning(*row)) for row in zip(*columns, strict=True)]
        assert read.integers(*columns) == [expected], path.stem
        assert bristol.loads(bristol.dumps(read)) == read
