"""S5 and A5: tables, notation, and the facts that Barrington's construction stands on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.algebra import A5, S5, Group
from ccbps.algebra.sl24 import rank_codes
from ccbps.errors import ParameterError
from tests.reference.permutation_groups import (
    Permutation,
    alternating,
    class_of,
    commutator,
    inverse,
    matrix_times,
    order_of,
    symmetric,
    times,
)

GROUPS = [pytest.param(S5, symmetric(), id="S5"), pytest.param(A5, alternating(), id="A5")]
ALPHA: Permutation = (2, 3, 4, 5, 1)


@pytest.mark.parametrize("group, elements", GROUPS)
def test_tables_are_those_of_the_tuples(group: Group, elements: list[Permutation]) -> None:
    assert group.order == len(elements)
    rank = {p: i for i, p in enumerate(elements)}
    products = [[rank[times(p, q)] for q in elements] for p in elements]
    assert np.array_equal(group.multiplication, products)
    assert np.array_equal(group.inverses, [rank[inverse(p)] for p in elements])
    assert [group.one_line(r) for r in range(group.order)] == elements
    assert not group.multiplication.flags.writeable
    assert not group.inverses.flags.writeable


@pytest.mark.parametrize("group", [S5, A5], ids=repr)
def test_group_axioms_hold(group: Group) -> None:
    table, every = group.multiplication, np.arange(group.order)
    assert np.array_equal(table[0], every)
    assert np.array_equal(table[:, 0], every)
    assert not table[every, group.inverses].any()
    assert np.array_equal(table[table], table[every[:, None, None], table[None]])


@pytest.mark.parametrize("group", [S5, A5], ids=repr)
def test_cycle_notation_goes_both_ways(group: Group) -> None:
    assert group.cycle(0) == "()"
    assert [group.rank(group.cycle(r)) for r in range(group.order)] == list(range(group.order))
    assert group.rank("(2, 3, 4, 5, 1)") == group.alpha
    assert group.cycle(group.alpha) == "(1 2 3 4 5)"
    assert group.rank("(1)(3)") == 0


@pytest.mark.parametrize("text", ["", "1 2", "(1 2", "(1 6)", "(1 1)", "(1 2)(2 3)", "(1 x)"])
def test_rank_refuses_what_is_no_permutation(text: str) -> None:
    with pytest.raises(ParameterError):
        S5.rank(text)


def test_rank_refuses_odd_permutations_in_a5() -> None:
    with pytest.raises(ParameterError, match="not in A5"):
        A5.rank("(1 2)")


@given(st.sampled_from([S5, A5]), st.data(), st.integers(-200, 200))
def test_power_is_repeated_multiplication(group: Group, data: st.DataObject, n: int) -> None:
    rank = data.draw(st.integers(0, group.order - 1))
    base, result = group.one_line(rank), (1, 2, 3, 4, 5)
    for _ in range(abs(n)):
        result = times(result, base if n > 0 else inverse(base))
    assert group.one_line(group.power(rank, n)) == result


@pytest.mark.parametrize("group, elements", GROUPS)
def test_conjugator_conjugates_or_refuses(group: Group, elements: list[Permutation]) -> None:
    for a, p in enumerate(elements):
        conjugates = class_of(p, elements)
        for b, q in enumerate(elements):
            if q in conjugates:
                rho = elements[group.conjugator(a, b)]
                assert times(times(inverse(rho), p), rho) == q
            else:
                with pytest.raises(ParameterError):
                    group.conjugator(a, b)


@pytest.mark.parametrize("group, elements", GROUPS)
def test_alpha_and_beta_are_barringtons(group: Group, elements: list[Permutation]) -> None:
    conjugates = class_of(ALPHA, elements)
    beta = group.one_line(group.beta)
    assert group.one_line(group.alpha) == ALPHA
    assert beta == (2, 4, 1, 5, 3)  # [SSM] Lemma 29
    assert {beta, inverse(ALPHA), inverse(beta)} <= conjugates
    assert commutator(ALPHA, beta) == (5, 4, 2, 1, 3)
    assert commutator(ALPHA, beta) in conjugates


def test_a5_has_two_classes_of_five_cycles() -> None:
    cycles = {p for p in alternating() if order_of(p) == 5}
    mine = class_of(ALPHA, alternating())
    assert len(cycles) == 24 and len(mine) == 12
    # alpha^2 is in the other class: a commutator that lands there does not serve Barrington.
    assert times(ALPHA, ALPHA) not in mine
    with pytest.raises(ParameterError):
        A5.conjugator(A5.alpha, A5.power(A5.alpha, 2))
    assert S5.conjugator(S5.alpha, S5.power(S5.alpha, 2))


@pytest.mark.parametrize(
    "orders, expected",
    [((5, 5), {3, 5}), ((2, 5), {3, 5}), ((3, 3), {2, 3}), ((2, 3), {2, 3, 5}), ((2, 2), {3, 5})],
)
def test_commutators_in_a5_have_few_orders(orders: tuple[int, int], expected: set[int]) -> None:
    a, b = ([p for p in alternating() if order_of(p) == n] for n in orders)
    assert {order_of(commutator(p, q)) for p in a for q in b} - {1} == expected


def test_sl24_is_a5() -> None:
    elements = alternating()
    codes = rank_codes([tuple(image - 1 for image in p) for p in elements]).tolist()
    assert len(set(codes)) == 60 and codes[0] == 0b01_00_00_01  # the identity, a0 lowest
    rank = {code: i for i, code in enumerate(codes)}
    for i, x in enumerate(codes):
        for j, y in enumerate(codes):
            assert A5.multiplication[i, j] == rank[matrix_times(x, y)]
