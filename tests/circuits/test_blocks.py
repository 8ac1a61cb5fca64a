"""Blocks: comparison, addition, selection, thresholds against integers, and their depths."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from ccbps.circuits import CircuitBuilder, Wire, balance, blocks, negation_normal_form, networks
from ccbps.circuits.networks import batcher
from ccbps.errors import ParameterError, ShapeError
from tests.support.circuit_strategies import all_rows, bits_of, numbers_of


def depth(wire: Wire) -> int:
    """Depth after the rewriting that predicates get, too."""
    return balance(negation_normal_form(wire.builder.build(wire))).depth


def log2(number: int) -> int:
    """Return ceil(log2(number))."""
    return (number - 1).bit_length()


COMPARISONS: list[tuple[Callable[..., Wire], Callable[[int, int], bool]]] = [
    (blocks.equal, lambda a, b: a == b),
    (blocks.less_than, lambda a, b: a < b),
    (blocks.at_most, lambda a, b: a <= b),
]


@pytest.mark.parametrize("block, meaning", COMPARISONS)
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_comparisons_of_wires(block, meaning, k):
    b = CircuitBuilder()
    circuit = b.build(block(b.inputs(k), b.inputs(k)))
    rows = all_rows(2 * k)
    expected = [meaning(n >> k, n % (1 << k)) for n in range(1 << 2 * k)]
    assert circuit.evaluate(rows)[:, 0].tolist() == expected


@pytest.mark.parametrize("block, meaning", COMPARISONS)
@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_comparisons_with_constants(block, meaning, k):
    b = CircuitBuilder()
    x = b.inputs(k)
    bounds = range(-2, (1 << k) + 3)
    out = b.build(*(block(x, bound) for bound in bounds)).evaluate(all_rows(k))
    assert out.tolist() == [[meaning(n, bound) for bound in bounds] for n in range(1 << k)]


def test_long_chains_join_their_runs(monkeypatch):
    monkeypatch.setattr(blocks, "_LONG", 0)
    for block, meaning in COMPARISONS[1:]:
        test_comparisons_with_constants(block, meaning, 7)


def test_comparisons_of_very_long_values():
    k = 400
    x = CircuitBuilder().inputs(k)
    rng = random.Random(k)
    bound = rng.getrandbits(k) >> 40 << 40
    numbers = [bound - 1, bound, bound + 1, bound ^ 1 << 39, bound ^ 1 << 390, 0, (1 << k) - 1]
    circuit = x[0].builder.build(blocks.less_than(x, bound), blocks.at_most(x, bound))
    assert circuit.evaluate(bits_of(numbers, k)).tolist() == [
        [n < bound, n <= bound] for n in numbers
    ]
    assert circuit.depth <= log2(k) + log2(log2(k))


@pytest.mark.parametrize("k", [1, 2, 4])
def test_within_constant_bounds(k):
    b = CircuitBuilder()
    x = b.inputs(k)
    bounds = [(low, high) for low in range(-1, 1 << k) for high in range(-1, (1 << k) + 2)]
    out = b.build(*(blocks.within(x, low, high) for low, high in bounds)).evaluate(all_rows(k))
    assert out.tolist() == [[low <= n <= high for low, high in bounds] for n in range(1 << k)]


@given(st.integers(6, 40), st.data())
def test_comparisons_of_long_values(k, data):
    values = st.integers(0, (1 << k) - 1)
    low, high = data.draw(values), data.draw(values)
    near = [low - 1, low, low + 1, high, high + 1, *data.draw(st.lists(values, max_size=9))]
    numbers = [n % (1 << k) for n in near]
    b = CircuitBuilder()
    x, y = b.inputs(k), b.inputs(k)
    circuit = b.build(blocks.less_than(x, y), blocks.at_most(x, low), blocks.within(x, low, high))
    rows = np.concatenate([bits_of(numbers, k), bits_of([high] * len(numbers), k)], axis=1)
    assert circuit.evaluate(rows).tolist() == [
        [n < high, n <= low, low <= n <= high] for n in numbers
    ]


@pytest.mark.parametrize("k, deepest", [(2, 1), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4), (8, 4)])
def test_depth_of_every_comparison_with_a_constant(k, deepest):
    x = CircuitBuilder().inputs(k)
    depths = [
        depth(block(x, c)) for c in range(1 << k) for block in (blocks.less_than, blocks.at_most)
    ]
    assert max(depths) == deepest
    assert {depth(blocks.equal(x, c)) for c in range(1 << k)} == {log2(k)}


@pytest.mark.parametrize("k, expected", [(4, 3), (8, 4), (16, 5), (32, 7), (64, 8), (128, 10)])
def test_depth_of_alternating_chains(k, expected):
    x = CircuitBuilder().inputs(k)
    alternating = int("10" * (k // 2), 2)
    depths = [depth(blocks.less_than(x, c)) for c in (alternating, alternating >> 1)]
    assert max(depths) == expected <= log2(k) + log2(log2(k))


@given(st.integers(9, 64), st.data())
def test_depth_of_any_constant(k, data):
    x = CircuitBuilder().inputs(k)
    bound = data.draw(st.integers(0, (1 << k) - 1))
    for block in (blocks.less_than, blocks.at_most):
        assert block(x, bound).depth <= log2(k) + log2(log2(k))


@pytest.mark.parametrize("k, expected", [(4, 5), (8, 6), (16, 8), (32, 9), (64, 11)])
def test_depth_of_comparisons_of_wires(k, expected):
    b = CircuitBuilder()
    x, y = b.inputs(k), b.inputs(k)
    assert depth(blocks.less_than(x, y)) == expected
    assert depth(blocks.equal(x, y)) == log2(k) + 2
    assert max(wire.depth for wire in blocks.add_parallel(x, y)) <= expected + 2


@pytest.mark.parametrize("k", [1, 4, *(pytest.param(k, marks=pytest.mark.slow) for k in (5, 6))])
def test_depth_of_intervals(k):
    x = CircuitBuilder().inputs(k)
    comparison = max(depth(blocks.less_than(x, c)) for c in range(1 << k))
    for low in range(1 << k):
        for high in range(low, 1 << k):
            assert depth(blocks.within(x, low, high)) <= comparison + 1


@pytest.mark.parametrize("block", [blocks.add, blocks.add_parallel])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_addition(block, k):
    b = CircuitBuilder()
    x, y, (carry,) = b.inputs(k), b.inputs(k), b.inputs(1)
    with_carry = b.build(*block(x, y, carry)).evaluate(all_rows(2 * k + 1))
    plain = b.build(*block(x, y)).evaluate(all_rows(2 * k + 1))
    assert with_carry.shape[1] == k + 1
    pairs = [(n >> k + 1, n >> 1 & (1 << k) - 1, n & 1) for n in range(1 << 2 * k + 1)]
    assert numbers_of(with_carry) == [a + b + carry for a, b, carry in pairs]
    assert numbers_of(plain) == [a + b for a, b, _ in pairs]


@pytest.mark.parametrize("n", range(1, 11))
def test_popcount(n):
    b = CircuitBuilder()
    rows = all_rows(n)
    out = b.build(*networks.popcount(b.inputs(n))).evaluate(rows)
    assert out.shape[1] == n.bit_length()
    assert numbers_of(out) == rows.sum(axis=1).tolist()


@pytest.mark.parametrize("n", range(1, 13))
def test_at_least(n):
    b = CircuitBuilder()
    wires, rows = b.inputs(n), all_rows(n)
    lines = batcher(n).circuit().output_depths
    for k in range(-1, n + 2):
        wire = networks.at_least(k, wires)
        assert_array_equal(b.build(wire).evaluate(rows)[:, 0], rows.sum(axis=1) >= k)
        if 1 <= k <= n:
            assert wire.depth <= lines[n - k]


@pytest.mark.parametrize("n", [4, 16, 23, 32])
def test_depth_of_extreme_thresholds(n):
    wires = CircuitBuilder().inputs(n)
    assert networks.at_least(1, wires).depth == networks.at_least(n, wires).depth == log2(n)
    for k in (2, n - 1):
        assert networks.at_least(k, wires).depth <= log2(n) + log2(log2(n))


@given(st.integers(1, 4), st.data())
def test_select_is_indexing(k, data):
    count = data.draw(st.integers(1, 1 << k))
    b = CircuitBuilder()
    index, items = b.inputs(k), b.inputs(count)
    wire = blocks.select(index, items)
    circuit = b.build(wire)
    content = bits_of([data.draw(st.integers(0, (1 << count) - 1))], count)
    for number, row in enumerate(all_rows(k)):
        expected = number < count and content[0, number]
        assert circuit.evaluate(np.concatenate([row, content[0]])).tolist() == [expected]
    assert wire.depth == (log2(count) + log2(1 + k) if count > 1 else log2(1 + k))


def test_select_one_hot():
    b = CircuitBuilder()
    flags, items = b.inputs(3), b.inputs(3)
    wire = blocks.select_one_hot(flags, items)
    rows = all_rows(6)
    expected = (rows[:, :3] & rows[:, 3:]).any(axis=1)
    assert_array_equal(b.build(wire).evaluate(rows)[:, 0], expected)
    assert wire.depth == 1 + 2


@pytest.mark.parametrize(
    ("misuse", "error", "message"),
    [
        *(
            (lambda x, y, block=block: block(x, y), ShapeError, "as many bits")
            for block in (
                blocks.equal, blocks.less_than, blocks.at_most, blocks.add, blocks.add_parallel
            )
        ),
        (lambda x, y: blocks.equal([], 0), ShapeError, "as many bits"),
        (lambda x, y: networks.popcount([]), ShapeError, "at least 1"),
        (lambda x, y: networks.at_least(0, []), ParameterError, "needs a builder"),
        (lambda x, y: blocks.select(x, [True] * 5), ParameterError, r"items must be 1\.\.4"),
        (lambda x, y: blocks.select_one_hot(x, [True]), ShapeError, "as many bits"),
    ],
)  # fmt: skip
def test_blocks_refuse_misuse(misuse, error, message):
    b = CircuitBuilder()
    with pytest.raises(error, match=message):
        misuse(b.inputs(2), b.inputs(3))
    assert networks.at_least(0, [], b).constant is True
