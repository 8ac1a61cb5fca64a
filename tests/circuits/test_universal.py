"""The universal circuit: its pieces, whole programs on it, and its depth by counting."""

from __future__ import annotations

import itertools
from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from ccbps.circuits import CircuitBuilder, universal
from ccbps.errors import ParameterError, ShapeError
from tests.reference.group_programs import BETA, ONE, Instruction, value
from tests.reference.permutation_groups import Permutation, inverse, symmetric, times
from tests.support.circuit_strategies import all_rows

S5: list[Permutation] = symmetric()
ALPHA = universal.ALPHA


def matrix(p: Permutation) -> np.ndarray:
    """The 25 bits of a permutation, by their definition."""
    out = np.zeros((5, 5), bool)
    for point, image in enumerate(p):
        out[point, image - 1] = True
    return out.ravel()


def run(n: int, program: list[Instruction], rows: np.ndarray) -> list[bool]:
    """The universal circuit on a program, for rows of x."""
    circuit = universal.universal_circuit(n, len(program))
    bits = [universal.program_bits(g0, g1, index, n=n) for g0, g1, index in program]
    fixed = np.broadcast_to(np.concatenate(bits), (len(rows), sum(map(len, bits))))
    return circuit.evaluate(np.concatenate([rows, fixed], axis=1))[:, 0].tolist()


def test_multiply_block_is_the_product_of_all_pairs():
    b = CircuitBuilder()
    circuit = b.build(*universal.multiply_block(b.inputs(25), b.inputs(25)))
    pairs = list(itertools.product(S5, S5))
    rows = np.array([np.concatenate([matrix(p), matrix(q)]) for p, q in pairs])
    assert_array_equal(circuit.evaluate(rows), [matrix(times(p, q)) for p, q in pairs])
    assert set(circuit.output_depths) == {4}


def test_program_bits_are_matrices_and_index():
    bits = universal.program_bits(ALPHA, BETA, 5, n=7)
    assert bits.dtype == np.bool_
    assert_array_equal(bits, np.concatenate([matrix(ALPHA), matrix(BETA), [True, False, True]]))
    assert len(universal.program_bits(ALPHA, BETA, 0, n=1)) == 50


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_select_block_chooses_by_the_bit_of_the_index(n):
    b = CircuitBuilder()
    x, index = b.inputs(n), b.inputs(universal.index_bits(n))
    circuit = b.build(*universal.select_block(x, index, b.inputs(25), b.inputs(25)))
    for place in range(n):
        bits = universal.program_bits(ALPHA, BETA, place, n=n)
        for row in all_rows(n):
            given_bits = np.concatenate([row, bits[50:], bits[:50]])
            expected = matrix(BETA if row[place] else ALPHA)
            assert_array_equal(circuit.evaluate(given_bits), expected)
    assert circuit.depth == universal.mux_depth(n) + 2


def test_index_past_the_last_bit_chooses_the_first_element():
    b = CircuitBuilder()
    x, index = b.inputs(3), b.inputs(2)
    circuit = b.build(*universal.select_block(x, index, b.inputs(25), b.inputs(25)))
    row = np.concatenate([[True] * 5, matrix(BETA), matrix(ALPHA)])
    assert_array_equal(circuit.evaluate(row), matrix(BETA))


def test_output_tells_alpha_from_the_identity():
    for g in (ALPHA, ONE):
        assert run(1, [(g, g, 0)], all_rows(1)) == [g == ALPHA] * 2


@given(st.integers(1, 5), st.data())
def test_any_program_runs(n, data):
    instruction = st.tuples(st.sampled_from(S5), st.sampled_from(S5), st.integers(0, n - 1))
    program = data.draw(st.lists(instruction, min_size=1, max_size=6))
    rows = all_rows(n)
    expected = [value(program, row)[0] == 2 for row in rows.tolist()]
    assert run(n, program, rows) == expected


def test_barringtons_program_for_and():
    # The commutator of alpha and beta is a 5-cycle; conjugated it is alpha itself.
    commutator = times(times(ALPHA, BETA), times(inverse(ALPHA), inverse(BETA)))
    assert commutator == (5, 4, 2, 1, 3)
    turn = next(g for g in S5 if times(times(inverse(g), commutator), g) == ALPHA)
    program = [
        (inverse(turn), times(inverse(turn), ALPHA), 0),
        (ONE, BETA, 1),
        (ONE, inverse(ALPHA), 0),
        (turn, times(inverse(BETA), turn), 1),
    ]
    rows = all_rows(2)
    products = [value(program, row) for row in rows.tolist()]
    assert products == [ONE, ONE, ONE, ALPHA]
    assert run(2, program, rows) == [False, False, False, True]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 9, 16, 17])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 16])
def test_depth_is_that_of_the_formula(n, length):
    assert universal.universal_circuit(n, length).depth == universal.universal_depth(n, length)


@pytest.mark.parametrize("n", [2, 4, 16, 256, pytest.param(2**16, marks=pytest.mark.slow)])
@pytest.mark.parametrize("c", [1, 2])
def test_depth_for_circuits_of_logarithmic_depth(n, c):
    # [SSM] section 4.1: (8 c + 1) log n + ceil(log(1 + log n)) + 2 for programs of n**(2 c).
    levels = round(log2(n))
    formula = (8 * c + 1) * levels + (1 + levels - 1).bit_length() + 2
    assert universal.universal_depth(n, n ** (2 * c)) == formula
    if n**c <= 16:
        assert universal.universal_circuit(n, n ** (2 * c)).depth == formula


def test_universal_refuses_misuse():
    for arguments in ((0, 1), (1, 0)):
        for function in (universal.universal_circuit, universal.universal_depth):
            with pytest.raises(ParameterError, match="must be a whole number, at least 1, got 0"):
                function(*arguments)
    with pytest.raises(ParameterError, match="g1 must be a permutation"):
        universal.program_bits(ALPHA, (1, 1, 2, 3, 4), 0, n=2)
    with pytest.raises(ParameterError, match=r"index must be within 0\.\.1"):
        universal.program_bits(ALPHA, BETA, 2, n=2)
    b = CircuitBuilder()
    with pytest.raises(ShapeError, match="must have 1 index bits"):
        universal.select_block(b.inputs(2), [], b.inputs(25), b.inputs(25))
    with pytest.raises(ShapeError, match="must have 25 bits"):
        universal.multiply_block(b.inputs(25), b.inputs(24))
