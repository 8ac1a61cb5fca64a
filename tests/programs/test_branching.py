"""Branching programs: their values, their sizes, and that no label needs both parties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from ccbps.errors import ParameterError, ShapeError
from ccbps.programs import branching as programs
from ccbps.programs.branching import ONE, ZERO, BranchingProgram, Label
from tests.reference.gf2 import determinant
from tests.support.program_strategies import (
    bit_rows,
    box_program,
    event_bits,
    input_bits,
    interest_bits,
    random_program,
    seeds,
)
from tests.support.program_values import matrix_of, value_of

Bits = NDArray[np.uint8]
Bools = NDArray[np.bool_]
WIDTHS = range(1, 5)
NONE = np.zeros((1, 1), dtype=np.uint8)


def numbers(rows: Bits) -> NDArray[np.int64]:
    """0/1 rows, most significant bit first, as integers."""
    return rows.astype(np.int64) @ (1 << np.arange(rows.shape[1])[::-1])


def all_pairs(k: int, constants: int = 1) -> tuple[Bits, Bits]:
    """Every value of k bits with every `constants` constants of k bits."""
    width = k * (1 + constants)
    rows = bit_rows(width)
    return rows[:, :k], rows[:, k:]


def values(program: BranchingProgram, event: Bits, interest: Bits | None = None) -> Bools:
    if interest is None:
        interest = np.zeros((len(event), 1), dtype=np.uint8)
    return value_of(program, event, interest)


# -- what the programs mean, exhaustively -------------------------------------------------------


@pytest.mark.parametrize("k", WIDTHS)
def test_equality_is_integer_equality(k: int) -> None:
    x, c = all_pairs(k)
    program = programs.equality(event_bits(0, k), interest_bits(0, k))
    assert_array_equal(values(program, x, c), numbers(x) == numbers(c))


@pytest.mark.parametrize("k", WIDTHS)
@pytest.mark.parametrize("flip", [ZERO, ONE, None], ids=["plain", "turned", "private"])
def test_less_than_is_integer_comparison_or_its_negation(k: int, flip: Label | None) -> None:
    rows = bit_rows(2 * k + 1)
    x, c = rows[:, :k], rows[:, k:]
    turned = c[:, -1] == 1 if flip is None else flip.one
    flip = programs.interest_bit(k) if flip is None else flip
    program = programs.less_than(event_bits(0, k), interest_bits(0, k), flip)
    assert_array_equal(values(program, x, c), (numbers(x) < numbers(c[:, :-1])) ^ turned)


@pytest.mark.parametrize("k", WIDTHS)
def test_below_constant_takes_every_bound_inside_and_outside_the_range(k: int) -> None:
    x = bit_rows(k)
    for bound in range(-2, 2**k + 3):
        program = programs.below_constant(event_bits(0, k), bound)
        assert_array_equal(values(program, x), numbers(x) < bound, f"bound = {bound}")


@pytest.mark.parametrize("k", WIDTHS)
def test_interval_includes_its_bounds_and_if_they_are_crossed_is_true_between_them(k: int) -> None:
    x, bounds = all_pairs(k, 2)
    n, low, high = numbers(x), numbers(bounds[:, :k]), numbers(bounds[:, k:])
    program = programs.interval(event_bits(0, k), interest_bits(0, k), interest_bits(k, k))
    inside, between = (low <= n) & (n <= high), (high < n) & (n < low)
    assert_array_equal(values(program, x, bounds), np.where(low <= high + 1, inside, between))
    assert not inside[low == high + 1].any()
    assert inside[(low == 0) & (high == 2**k - 1)].all()


@pytest.mark.parametrize("k", WIDTHS)
def test_hamming_within_counts_differing_bits(k: int) -> None:
    x, c = all_pairs(k)
    distance = (x ^ c).sum(axis=1)
    for limit in range(-1, k + 2):
        program = programs.hamming_within(event_bits(0, k), interest_bits(0, k), limit)
        assert_array_equal(values(program, x, c), distance <= limit, f"limit = {limit}")


@pytest.mark.parametrize("n", range(6))
def test_at_least_counts_true_programs(n: int) -> None:
    x = bit_rows(n) if n else NONE
    parts = [programs.constant(programs.event_bit(i)) for i in range(n)]
    for count in range(-1, n + 2):
        program = programs.at_least(count, parts)
        assert_array_equal(values(program, x), x.sum(axis=1) >= count, f"count = {count}")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_at_least_counts_programs_with_inner_nodes(count: int) -> None:
    x, c = all_pairs(2, 2)
    value = event_bits(0, 2)
    low, high = interest_bits(0, 2), interest_bits(2, 2)
    parts = [
        programs.less_than(value, low),
        programs.equality(value, high),
        programs.hamming_within(value, low, 1),
    ]
    n, a, b = numbers(x), numbers(c[:, :2]), numbers(c[:, 2:])
    near = (x ^ c[:, :2]).sum(axis=1) <= 1
    true = (n < a).astype(int) + (n == b) + near
    assert_array_equal(values(programs.at_least(count, parts), x, c), true >= count)


@pytest.mark.parametrize("n", range(5))
def test_connectives_are_boolean_on_all_inputs(n: int) -> None:
    x = bit_rows(n) if n else NONE
    parts = [programs.constant(programs.event_bit(i)) for i in range(n)]
    used = x[:, :n]
    assert_array_equal(values(programs.conjunction(parts), x), used.all(axis=1))
    assert_array_equal(values(programs.disjunction(parts), x), used.any(axis=1))
    assert_array_equal(values(programs.negation(programs.conjunction(parts)), x), ~used.all(axis=1))


@pytest.mark.parametrize("n", range(5))
def test_disjunction_of_disjoint_programs_is_their_or(n: int) -> None:
    x = bit_rows(3)
    chosen = [1, 3, 4, 6][:n]
    digits = [[ONE if c >> i & 1 else ZERO for i in (2, 1, 0)] for c in chosen]
    parts = [programs.equality(event_bits(0, 3), wanted) for wanted in digits]
    program = programs.disjunction(parts, disjoint=True)
    assert_array_equal(values(program, x), np.isin(numbers(x), chosen))


def test_negation_by_a_private_bit_negates_when_it_is_set() -> None:
    x, c = all_pairs(1, 1)
    program = programs.negation(programs.constant(programs.event_bit(0)), programs.interest_bit(0))
    assert_array_equal(values(program, x, c), x[:, 0] != c[:, 0])


# -- any formula --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Formula:
    """A program, and what it must mean for a value and private constants of `BITS` bits each."""

    program: BranchingProgram
    meaning: Callable[[Bits, Bits], Bools]


BITS = 6


@st.composite
def comparisons(draw: st.DrawFn) -> Formula:
    """A comparison of neighbouring event bits with private bits, or with a public bound."""
    k = draw(st.integers(1, 3))
    e, i, j = (draw(st.integers(0, BITS - k)) for _ in range(3))
    value, wanted, other = event_bits(e, k), interest_bits(i, k), interest_bits(j, k)

    def ints(rows: Bits, first: int) -> NDArray[np.int64]:
        return numbers(rows[:, first : first + k])

    kind = draw(st.sampled_from(["equality", "less", "constant", "interval", "hamming"]))
    if kind == "equality":
        return Formula(programs.equality(value, wanted), lambda x, c: ints(x, e) == ints(c, i))
    if kind == "less":
        return Formula(programs.less_than(value, wanted), lambda x, c: ints(x, e) < ints(c, i))
    if kind == "constant":
        bound = draw(st.integers(-1, 2**k + 1))
        return Formula(programs.below_constant(value, bound), lambda x, c: ints(x, e) < bound)
    if kind == "interval":
        # Any bounds: crossed ones mean what lies strictly between them.
        def inside(x: Bits, c: Bits) -> Bools:
            n, low, high = ints(x, e), ints(c, i), ints(c, j)
            return np.where(low <= high, (low <= n) & (n <= high), (high < n) & (n < low))

        return Formula(programs.interval(value, wanted, other), inside)
    limit = draw(st.integers(-1, k))
    return Formula(
        programs.hamming_within(value, wanted, limit),
        lambda x, c: (x[:, e : e + k] ^ c[:, i : i + k]).sum(axis=1) <= limit,
    )


def connected(inner: st.SearchStrategy[Formula]) -> st.SearchStrategy[Formula]:
    def series(parts: list[Formula]) -> Formula:
        return Formula(
            programs.conjunction([p.program for p in parts]),
            lambda x, c: np.logical_and.reduce([p.meaning(x, c) for p in parts]),
        )

    def either(parts: list[Formula]) -> Formula:
        return Formula(
            programs.disjunction([p.program for p in parts]),
            lambda x, c: np.logical_or.reduce([p.meaning(x, c) for p in parts]),
        )

    def parity(parts: list[Formula]) -> Formula:
        return Formula(
            programs.parallel(parts[0].program, parts[-1].program),
            lambda x, c: parts[0].meaning(x, c) ^ parts[-1].meaning(x, c),
        )

    def several(parts: list[Formula], count: int) -> Formula:
        return Formula(
            programs.at_least(count, [p.program for p in parts]),
            lambda x, c: np.sum([p.meaning(x, c) for p in parts], axis=0) >= count,
        )

    def negated(part: Formula) -> Formula:
        return Formula(programs.negation(part.program), lambda x, c: ~part.meaning(x, c))

    parts = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        inner.map(negated),
        parts.map(series),
        parts.map(either),
        parts.map(parity),
        st.builds(several, parts, st.integers(0, 4)),
    )


formulas = st.recursive(comparisons(), connected, max_leaves=8)


def rows_of_inputs(seed: int, batch: int = 48) -> tuple[Bits, Bits]:
    rng = np.random.default_rng(seed)
    event, interest = rng.integers(0, 2, (2, batch, BITS), dtype=np.uint8)
    return event, interest


@given(formula=formulas, seed=seeds)
def test_formula_means_what_its_parts_say(formula: Formula, seed: int) -> None:
    x, c = rows_of_inputs(seed)
    assert_array_equal(values(formula.program, x, c), formula.meaning(x, c))


@given(formula=formulas, seed=seeds)
def test_program_of_a_formula_evaluates_to_its_determinant(formula: Formula, seed: int) -> None:
    x, c = rows_of_inputs(seed, 8)
    found = [determinant(matrix) for matrix in matrix_of(formula.program, x, c)]
    assert_array_equal(values(formula.program, x, c), found)


@given(size=st.integers(1, 80), made=seeds, seed=seeds)
def test_any_program_evaluates_to_its_determinant(size: int, made: int, seed: int) -> None:
    program = random_program(size, made)
    x, c = input_bits(program, 6, seed)
    found = [determinant(matrix) for matrix in matrix_of(program, x, c)]
    assert_array_equal(values(program, x, c), found)


# -- what they cost -----------------------------------------------------------------------------


def inner_and_edges(program: BranchingProgram) -> tuple[int, int]:
    return program.inner_nodes, len(program.edges)


SIZES = range(1, 13)


@pytest.mark.parametrize("k", SIZES)
def test_equality_is_a_chain(k: int) -> None:
    program = programs.equality(event_bits(0, k), interest_bits(0, k))
    assert inner_and_edges(program) == (k - 1, k)


@pytest.mark.parametrize("k", SIZES)
def test_less_than_has_as_many_inner_nodes_as_bits(k: int) -> None:
    # k - 1 chain edges, an exit from each of k chain nodes, two edges through the last node. With
    # one bit there is no chain, so the only exit is the flip.
    x, c, flip = event_bits(0, k), interest_bits(0, k), programs.interest_bit(k)
    assert inner_and_edges(programs.less_than(x, c, flip)) == (k, 2 * k + 1)
    assert inner_and_edges(programs.less_than(x, c)) == (k, 2 * k + (k > 1))


@pytest.mark.parametrize("k", SIZES)
def test_interval_chains_share_source_last_node_and_sink(k: int) -> None:
    # Two chains of k - 1 edges from one source, exits from its 2k - 1 nodes, three edges at the
    # last node. With one bit both chains are the source itself.
    program = programs.interval(event_bits(0, k), interest_bits(0, k), interest_bits(k, k))
    assert inner_and_edges(program) == (2 * k - 1, 4 * k if k > 1 else 3)


@pytest.mark.parametrize("k", range(1, 8))
def test_below_constant_drops_trailing_zeros_and_equal_digits(k: int) -> None:
    for bound in range(1, 2**k):
        digits = f"{bound:0{k}b}".rstrip("0")
        used = len(digits)
        changes = sum(a != b for a, b in zip("0" + digits[:-1], digits[:-1], strict=False))
        program = programs.below_constant(event_bits(0, k), bound)
        assert inner_and_edges(program) == (used - 1, used + changes), bound


@pytest.mark.parametrize("k", range(1, 9))
def test_hamming_within_has_a_node_for_each_bit_and_distance(k: int) -> None:
    for limit in range(k):
        nodes = [min(i, limit) + 1 for i in range(k + 1)]  # distances after i bits
        full = sum(1 for i in range(k) if i >= limit)  # nodes where no more bit may differ
        program = programs.hamming_within(event_bits(0, k), interest_bits(0, k), limit)
        edges = 2 * sum(nodes[:-1]) - full + nodes[-1]
        assert inner_and_edges(program) == (sum(nodes[1:]), edges), limit


@pytest.mark.parametrize("n", range(1, 6))
@pytest.mark.parametrize("k", [1, 3])
def test_at_least_has_a_program_for_each_reachable_count(n: int, k: int) -> None:
    parts = [programs.equality(event_bits(k * i, k), interest_bits(0, k)) for i in range(n)]
    for count in range(1, n + 1):
        states = [
            (i, true)
            for i in range(n)
            for true in range(min(i, count - 1) + 1)
            if true + n - i >= count
        ]
        negated = sum(true + n - i - 1 >= count for i, true in states)
        copies = len(states) + negated
        program = programs.at_least(count, parts)
        # A negated chain has one more edge than a chain, except when both are the same edge.
        edges = copies * k + negated * (k > 1)
        assert inner_and_edges(program) == (len(states) - 1 + copies * (k - 1), edges), count


@given(first=formulas, second=formulas)
def test_series_adds_nodes_and_one_more_and_edges(first: Formula, second: Formula) -> None:
    a, b = first.program, second.program
    both = programs.series(a, b)
    assert both.inner_nodes == a.inner_nodes + b.inner_nodes + 1
    assert len(both.edges) == len(a.edges) + len(b.edges)


@given(first=formulas, second=formulas)
def test_parallel_adds_nodes_and_merges_direct_edges_only(first: Formula, second: Formula) -> None:
    a, b = first.program, second.program
    both = programs.parallel(a, b)
    assert both.inner_nodes == a.inner_nodes + b.inner_nodes
    direct = [p.edges.get((0, p.size), ZERO) for p in (a, b)]
    merged = sum(map(bool, direct)) - bool(direct[0] ^ direct[1])
    assert len(both.edges) == len(a.edges) + len(b.edges) - merged


@given(formula=formulas)
def test_negation_costs_no_node_and_undoes_itself(formula: Formula) -> None:
    program = formula.program
    negated = programs.negation(program)
    assert negated.size == program.size
    assert negated != program
    assert programs.negation(negated) == program


def test_box_of_the_design_has_size_104() -> None:
    program = box_program([16, 16, 20])
    assert (program.size, len(program.edges)) == (104, 4 * (16 + 16 + 20))
    assert (program.event_bits, program.interest_bits) == (52, 104)


def test_disjunction_of_any_programs_costs_as_much_as_their_conjunction() -> None:
    parts = [programs.equality(event_bits(0, k), interest_bits(0, k)) for k in (2, 3, 4)]
    assert programs.disjunction(parts).size == programs.conjunction(parts).size == 9
    assert programs.disjunction(parts, disjoint=True).size == 1 + (1 + 2 + 3)


# -- labels and construction --------------------------------------------------------------------


def test_label_sum_cancels_what_occurs_twice() -> None:
    both = programs.event_bit(1) ^ programs.interest_bit(2) ^ ONE
    assert both ^ both == ZERO
    assert not both ^ both
    assert both ^ programs.event_bit(1) == programs.interest_bit(2) ^ ONE


def test_constant_has_one_edge_or_none() -> None:
    assert programs.constant(True).edges == {(0, 1): ONE}
    assert programs.constant(False).edges == {}
    assert programs.constant(programs.event_bit(3)).event_bits == 4


@pytest.mark.parametrize("edge", [(1, 1), (2, 1), (-1, 1), (0, 4)])
def test_program_refuses_an_edge_that_does_not_run_upward(edge: tuple[int, int]) -> None:
    with pytest.raises(ParameterError, match=r"upward within nodes 0\.\.3"):
        BranchingProgram(3, {edge: ONE})


def test_program_refuses_size_zero() -> None:
    with pytest.raises(ParameterError, match="at least 1, got 0"):
        BranchingProgram(0, {})


@pytest.mark.parametrize("build", [programs.equality, programs.less_than])
@pytest.mark.parametrize(("k", "other"), [(2, 3), (0, 0), (1, 0)])
def test_comparison_refuses_sides_of_unequal_width(
    build: Callable[[list[Label], list[Label]], BranchingProgram], k: int, other: int
) -> None:
    with pytest.raises(ShapeError, match="same number of bits, at least 1"):
        build(event_bits(0, k), interest_bits(0, other))
