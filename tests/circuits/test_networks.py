"""Sorting networks: that they sort (0-1 principle), sizes, depths; circuits for distances."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ccbps.circuits.networks import SortingNetwork, batcher, bose_nelson, hamming_circuit
from ccbps.errors import ParameterError, ShapeError
from tests.support.circuit_strategies import all_rows

BOTH = pytest.mark.parametrize("make", [batcher, bose_nelson])


@BOTH
@pytest.mark.parametrize("n", range(1, 15))
def test_networks_sort_all_rows_of_bits(make, n):
    network, rows = make(n), all_rows(n)
    assert_array_equal(network.sort(rows), np.sort(rows, axis=1))
    assert_array_equal(network.circuit().evaluate(rows), np.sort(rows, axis=1))


@BOTH
@pytest.mark.parametrize("n", [17, 31, 32, 33, 100])
def test_networks_sort_numbers(make, n):
    rows = np.random.default_rng(n).integers(-50, 50, (3, 40, n))
    assert_array_equal(make(n).sort(rows), np.sort(rows, axis=-1))


@pytest.mark.parametrize(
    "n, batcher_size, batcher_depth, bose_nelson_size, bose_nelson_depth",
    # The table of the module, for the networks of [SSM] section 5.
    [
        (2, 1, 1, 1, 1),
        (4, 5, 3, 5, 3),
        (8, 19, 6, 19, 7),
        (16, 63, 10, 65, 15),
        (32, 191, 15, 211, 31),
    ],
)
def test_sizes_and_depths(n, batcher_size, batcher_depth, bose_nelson_size, bose_nelson_depth):
    assert (batcher(n).size, batcher(n).depth) == (batcher_size, batcher_depth)
    assert (bose_nelson(n).size, bose_nelson(n).depth) == (bose_nelson_size, bose_nelson_depth)


@pytest.mark.parametrize("t", range(1, 8))
def test_formulas_for_powers_of_two(t):
    n = 2**t
    assert batcher(n).size == (t * t - t + 4) * n // 4 - 1
    assert batcher(n).depth == t * (t + 1) // 2
    assert bose_nelson(n).size == 3**t - 2**t
    assert bose_nelson(n).depth == 2**t - 1


def test_sizes_between_powers_of_two():
    # Knuth 5.3.4: comparators of merge exchange for n = 1..16.
    published = [0, 1, 3, 5, 9, 12, 16, 19, 26, 31, 37, 41, 48, 53, 59, 63]
    assert [batcher(n).size for n in range(1, 17)] == published
    for n in range(2, 65):
        t = (n - 1).bit_length()
        assert batcher(n).depth <= t * (t + 1) // 2


@BOTH
def test_lines_are_reached_at_the_depth_of_their_cone(make):
    network = make(16)
    circuit = network.circuit()
    depths = [circuit.cone([i]).depth for i in range(16)]
    assert depths == list(circuit.output_depths)
    assert max(depths) == network.depth
    # The extremes are an AND and an OR of everything.
    assert depths[0] == depths[15] == 4


@BOTH
def test_layers_hold_each_line_once_and_all_comparators(make):
    for n in (1, 5, 16, 23):
        network = make(n)
        for layer in network.layers:
            lines = [line for pair in layer for line in pair]
            assert len(set(lines)) == len(lines)
        assert sorted(sum(network.layers, ())) == sorted(network.comparators)


@pytest.mark.parametrize("network", ["batcher", "bose-nelson"])
@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_hamming_circuit_compares_the_distance(network, n):
    rows = all_rows(n)
    pairs = all_rows(2 * n)
    for t in range(-1, n + 2):
        private = hamming_circuit(n, t, network=network)
        distance = (pairs[:, :n] != pairs[:, n:]).sum(axis=1)
        assert_array_equal(private.evaluate(pairs)[:, 0], distance > t)
        for y in rows[:: max(1, len(rows) // 8)]:
            fixed = hamming_circuit(n, t, network=network, y=y.astype(int).tolist())
            within = hamming_circuit(n, t, network=network, y=tuple(y), within=True)
            distance = (rows != y).sum(axis=1)
            assert_array_equal(fixed.evaluate(rows)[:, 0], distance > t)
            assert_array_equal(within.evaluate(rows)[:, 0], distance <= t)
            assert within.depth == fixed.depth


def test_hamming_circuit_has_the_depth_of_one_line():
    y = [0, 1] * 8
    for t in range(16):
        fixed = hamming_circuit(16, t, y=y)
        assert fixed.depth == batcher(16).circuit().output_depths[15 - t]
        assert hamming_circuit(16, t).depth == fixed.depth + 2
        assert fixed.cone() == fixed
    depths = [hamming_circuit(16, t, network="bose-nelson", y=y).depth for t in (0, 7, 15)]
    assert depths == [4, 15, 4]
    assert hamming_circuit(16, -1, y=y).depth == hamming_circuit(16, 16, y=y).depth == 0


@pytest.mark.parametrize(
    ("misuse", "error", "message"),
    [
        (lambda: batcher(0), ParameterError, "lines must be"),
        (lambda: SortingNetwork(3, ((2, 1),)), ParameterError, "pairs i < j"),
        (lambda: batcher(4).sort(np.zeros((4, 3))), ShapeError, r"must have shape \(\.\.\., 4\)"),
        (lambda: batcher(4).on_wires([]), ShapeError, "wires must be 4"),
        (lambda: hamming_circuit(0, 0), ParameterError, "n must be"),
        (lambda: hamming_circuit(4, 1, network="x"), ParameterError, "'batcher' or 'bose-nelson'"),
        (lambda: hamming_circuit(4, 1, y=[0, 1]), ParameterError, "y must be 4 bits"),
        (lambda: hamming_circuit(4, 1, y=[0, 1, 2, 1]), ParameterError, "y must be 4 bits"),
    ],
)
def test_networks_refuse_misuse(misuse, error, message):
    with pytest.raises(error, match=message):
        misuse()
