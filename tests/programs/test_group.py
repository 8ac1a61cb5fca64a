"""Group programs: the theorems on lengths, structure that tells nothing, values against twins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps.algebra import A5, S5, Group
from ccbps.circuits import Circuit, CircuitBuilder, Gate, Op, without_xor
from ccbps.errors import ParameterError, ShapeError
from ccbps.programs.barrington import (
    MAX_LENGTH,
    fixed_structure,
    partner_of,
    preserving,
    preserving_length,
)
from ccbps.programs.group import NONE, GroupProgram, PreservingProgram
from ccbps.programs.selector import Selector, barrington_selector, optimized_selector, selected
from tests.reference import group_programs as twin
from tests.reference.circuits import value as circuit_value
from tests.support.circuit_strategies import all_rows
from tests.support.effort import examples
from tests.support.program_strategies import (
    GATES,
    complete_circuit,
    every_formula,
    seeds,
    shallow_circuits,
)

Ranks = NDArray[np.uint8]
Bools = NDArray[np.bool_]

GROUPS = [S5, A5]
every_group = pytest.mark.parametrize("group", GROUPS, ids=repr)
groups = st.sampled_from(GROUPS)


def alpha_where(group: Group, holds: Bools) -> list[int]:
    ranks: list[int] = np.where(holds, group.alpha, 0).tolist()
    return ranks


def assert_computes(program: PreservingProgram, circuit: Circuit) -> None:
    rows = all_rows(circuit.inputs)
    expected = alpha_where(program.group, circuit.evaluate(rows)[:, 0])
    assert program.evaluate(rows).tolist() == expected


def tuples(group: Group, ranks: Ranks) -> list[tuple[int, ...]]:
    return [group.one_line(rank) for rank in ranks.tolist()]


# -- Barrington's transform ---------------------------------------------------------------------


@given(circuit=shallow_circuits(), group=groups)
def test_program_computes_the_circuit(circuit: Circuit, group: Group) -> None:
    program = preserving(circuit, group)
    assert_computes(program, circuit)
    rows = all_rows(circuit.inputs)
    assert np.array_equal(program.group_program().evaluate(rows), program.evaluate(rows))


@pytest.mark.parametrize("name", ["S5", "A5"])
@given(circuit=shallow_circuits(max_depth=2, max_inputs=3, ops=GATES))
@settings(max_examples=examples(40))
def test_twins_compute_the_circuit_and_have_the_programs_index(name: str, circuit: Circuit) -> None:
    instructions, pieces = twin.program(circuit, name), twin.preserving(circuit, name)
    for bits in product([False, True], repeat=circuit.inputs):
        expected = twin.ALPHA if circuit_value(circuit, bits)[0] else twin.ONE
        assert twin.value(instructions, bits) == expected
        assert twin.product(twin.sequence(pieces, bits)) == expected
    program = preserving(circuit, {"S5": S5, "A5": A5}[name])
    assert program.index.tolist() == pieces[1] == [index for *_, index in instructions]


@given(circuit=shallow_circuits(max_depth=2, max_inputs=3), group=groups)
@settings(max_examples=examples(40))
def test_program_evaluates_as_its_definition_says(circuit: Circuit, group: Group) -> None:
    program = preserving(circuit, group)
    elements = tuples(group, program.interstitials), program.index.tolist()
    joined = program.group_program()
    pairs = zip(tuples(group, joined.zero), tuples(group, joined.one), strict=True)
    instructions = [(*pair, i) for pair, i in zip(pairs, joined.index.tolist(), strict=True)]
    rows = all_rows(circuit.inputs)
    for bits, rank in zip(rows.tolist(), program.evaluate(rows).tolist(), strict=True):
        assert twin.product(twin.sequence(elements, bits)) == group.one_line(rank)
        # Index -1 is a bit that is 0.
        assert twin.value(instructions, [*bits, False]) == group.one_line(rank)


@pytest.mark.parametrize("depth", range(7))
@every_group
def test_theorems_8_and_18_complete_circuit_takes_4_to_its_depth(group: Group, depth: int) -> None:
    circuit = complete_circuit(depth, 5, seed=depth)
    assert circuit.depth == depth
    program = preserving(circuit, group)
    assert program.length == len(program.index) == preserving_length(circuit) == 4**depth
    assert program.elements == len(program.index) + len(program.interstitials) == 2 * 4**depth + 1
    assert program.group_program().length == 4**depth
    assert_computes(program, circuit)


@given(circuit=shallow_circuits(max_depth=5, max_gates=20), group=groups)
def test_length_is_counted_rightly_and_at_most_4_to_the_depth(
    circuit: Circuit, group: Group
) -> None:
    program = preserving(circuit, group)
    assert program.length == preserving_length(circuit) <= 4**circuit.depth


def test_length_is_counted_without_building() -> None:
    assert preserving_length(complete_circuit(12, 9, seed=1)) == 4**12
    xor = Circuit(2, (Gate(Op.XOR, 0, 1),), (2,))
    assert preserving_length(xor) == 4**xor.depth == 16


def assert_free(circuit: Circuit, group: Group, owned: Sequence[int]) -> None:
    """Assert that one index sequence, without owned inputs, serves all values of theirs."""
    rows = all_rows(circuit.inputs)
    sequences = set()
    for values in product([False, True], repeat=len(owned)):
        program = preserving(circuit, group, dict(zip(owned, values, strict=True)))
        changed = rows.copy()
        changed[:, owned] = values
        holds = circuit.evaluate(changed)[:, 0]
        # The program does not read the owned inputs.
        assert program.evaluate(rows).tolist() == alpha_where(group, holds)
        assert not set(program.index.tolist()) & set(owned)
        sequences.add(program.index.tobytes())
    assert len(sequences) == 1
    assert program.length == preserving_length(circuit, owned) <= 4**circuit.depth


@given(circuit=shallow_circuits(max_depth=3), group=groups, data=st.data())
def test_owned_inputs_are_free_and_their_values_unseen(
    circuit: Circuit, group: Group, data: st.DataObject
) -> None:
    owned = data.draw(st.sets(st.integers(0, circuit.inputs - 1)))
    assert_free(circuit, group, sorted(owned))


@every_group
@pytest.mark.parametrize("owned", [(2,), (0, 1)])
def test_owned_inputs_of_every_formula_are_free(group: Group, owned: tuple[int, ...]) -> None:
    for circuit in every_formula(3, 2)[group is A5 :: 9]:
        assert_free(circuit, group, owned)


@every_group
def test_xor_with_an_owned_value_is_one_instruction(group: Group) -> None:
    xor = Circuit(2, (Gate(Op.XOR, 0, 1),), (2,))
    for y in (False, True):
        program = preserving(xor, group, {1: y})
        assert program.index.tolist() == [0]
        expected = alpha_where(group, np.array([y, not y]))
        assert program.evaluate(all_rows(2)[::2]).tolist() == expected


@every_group
def test_gates_with_an_owned_value_cost_one_doubling_at_most(group: Group) -> None:
    # ((x0 & y) | y) & y, and the same over an AND of two inputs.
    for inputs, length in ((1, 2), (2, 4)):
        builder = CircuitBuilder()
        x, y = builder.inputs(inputs), builder.inputs(3)
        wire = x[0] if inputs == 1 else x[0] & x[1]
        circuit = builder.build(((wire & y[0]) | y[1]) & y[2])
        for values in product([False, True], repeat=3):
            owned = dict(enumerate(values, inputs))
            program = preserving(circuit, group, owned)
            assert program.length == preserving_length(circuit, owned) == length
            rows = all_rows(inputs)
            complete = np.hstack([rows, np.tile(values, (len(rows), 1))])
            expected = alpha_where(group, circuit.evaluate(complete)[:, 0])
            assert program.evaluate(rows).tolist() == expected


@every_group
def test_owned_names_inputs_only_and_takes_values_of_any_bit_type(group: Group) -> None:
    xor = Circuit(2, (Gate(Op.XOR, 0, 1),), (2,))
    message = "an input in owned must be a whole number from 0 to 1"
    for wrong in ({2: True}, {-1: False}, {0: True, 7: True}, {"x": True}):
        with pytest.raises(ParameterError, match=message):
            preserving(xor, group, wrong)  # type: ignore[arg-type]
        with pytest.raises(ParameterError, match=message):
            preserving_length(xor, wrong)  # type: ignore[arg-type]
    for bit in (True, 1, np.bool_(True), np.uint8(1)):
        program = preserving(xor, group, {1: bit})  # type: ignore[dict-item]
        expected = alpha_where(group, np.array([True, False]))
        assert program.evaluate(all_rows(2)[::2]).tolist() == expected


@every_group
def test_program_of_owned_values_only_is_one_instruction(group: Group) -> None:
    circuit = Circuit(2, (Gate(Op.AND, 0, 1), Gate(Op.NOT, 2)), (3,))
    for x, y in product([False, True], repeat=2):
        program = preserving(circuit, group, {0: x, 1: y})
        assert program.index.tolist() == [NONE]
        assert program.evaluate(all_rows(2)).tolist() == 4 * alpha_where(
            group, np.array([not (x and y)])
        )


@every_group
def test_partner_is_a_conjugate_whose_product_with_alpha_is_one_too(group: Group) -> None:
    partner = partner_of(group)
    alpha, b = group.one_line(group.alpha), group.one_line(partner)
    for other in (b, twin.product([alpha, b])):
        assert twin.conjugator(group.name, alpha, other)


# -- fixed structure ----------------------------------------------------------------------------


@given(circuit=shallow_circuits(max_depth=3), group=groups, more=st.integers(0, 2))
def test_fixed_structure_takes_4_to_the_depth_and_computes_the_circuit(
    circuit: Circuit, group: Group, more: int
) -> None:
    plain = without_xor(circuit)
    depth = min(4, plain.depth + more)
    program = fixed_structure(plain, 4**depth, group)
    assert program.length == 4**depth
    assert len(program.interstitials) == 4**depth + 1
    assert_computes(program, circuit)


@given(circuit=shallow_circuits(max_depth=3), group=groups, more=st.integers(0, 9))
def test_fixed_structure_may_have_any_length_that_holds_the_program(
    circuit: Circuit, group: Group, more: int
) -> None:
    length = preserving_length(circuit) + more
    program = fixed_structure(circuit, length, group)
    assert program.length == length
    assert_computes(program, circuit)


@every_group
def test_fixed_structure_of_every_formula_of_two_inputs(group: Group) -> None:
    formulas = every_formula(2, 2)
    assert len(formulas) == 6 + 42 + (48 * 49 - 6 * 7)
    for circuit in formulas[::3]:
        program = fixed_structure(circuit, 16, group)
        assert program.length == 16
        assert_computes(program, circuit)


@given(circuit=shallow_circuits(max_depth=2, ops=GATES), group=groups)
def test_program_behind_selectors_has_one_index_sequence(circuit: Circuit, group: Group) -> None:
    selector = optimized_selector(circuit.inputs, group)
    program = fixed_structure(circuit, 16, group)
    elements = selected(program, selector, 0, 16 * selector.length + 1)
    assert_computes(PreservingProgram(group, elements, np.tile(selector.index, 16)), circuit)


def test_fixed_structure_refuses_what_it_cannot_hold() -> None:
    for depth in (1, 2, 3):
        circuit, length = complete_circuit(depth, 2, seed=1), 4**depth - 1
        with pytest.raises(
            ParameterError, match=f"{4**depth} instructions, more than length={length}"
        ):
            fixed_structure(circuit, length, A5)
    for outputs in ((), (0, 0)):
        for make in (lambda c: fixed_structure(c, 1, A5), lambda c: preserving(c, A5)):
            with pytest.raises(ParameterError, match=f"one output, got {len(outputs)}"):
                make(Circuit(1, (), outputs))


def test_programs_that_would_fill_the_memory_are_refused() -> None:
    chain = Circuit(1, tuple(Gate(Op.AND, i, i) for i in range(15)), (15,))
    assert preserving_length(chain) == 4**15 > MAX_LENGTH
    with pytest.raises(ParameterError, match="depth 15: lower its depth"):
        preserving(chain, A5)


# -- selectors ----------------------------------------------------------------------------------

SELECTORS: list[Callable[[int, Group], Selector]] = [optimized_selector, barrington_selector]
every_selector = pytest.mark.parametrize("make", SELECTORS, ids=["OFSGP", "FSGP"])


@every_selector
@every_group
@pytest.mark.parametrize("inputs", range(1, 7))
def test_selector_gives_every_choice_and_none_on_all_inputs(
    make: Callable[[int, Group], Selector], group: Group, inputs: int
) -> None:
    selector, rows = make(inputs, group), all_rows(inputs)
    assert selector.inputs == inputs
    for choice in range(inputs + 1):
        program = selector.program(choice)
        holds = rows[:, choice] if choice < inputs else np.zeros(len(rows), dtype=np.bool_)
        assert program.evaluate(rows).tolist() == alpha_where(group, holds)
        assert program.index is selector.index
    assert not selector.index.flags.writeable
    assert not selector.table.flags.writeable


@every_group
@pytest.mark.parametrize("inputs", [1, 2, 3, 6, 40])
def test_optimized_selector_takes_4n_elements(group: Group, inputs: int) -> None:
    selector = optimized_selector(inputs, group)
    assert selector.index.tolist() == [i for i in range(inputs) for _ in range(2)]
    assert selector.program(0).elements == 4 * inputs + 1


@every_group
@pytest.mark.parametrize("inputs", [1, 2, 4, 8, 16])
def test_barrington_selector_takes_4n_squared_elements(group: Group, inputs: int) -> None:
    selector = barrington_selector(inputs, group)
    assert selector.program(0).elements == 4 * inputs**2 + 1
    assert np.bincount(selector.index).tolist() == [2 * inputs] * inputs


@every_selector
@given(group=groups, seed=seeds, data=st.data())
def test_selected_may_be_cut_anywhere(
    make: Callable[[int, Group], Selector], group: Group, seed: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    inputs, length = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    selector = make(inputs, group)
    program = PreservingProgram(
        group,
        rng.integers(0, group.order, length + 1, dtype=np.uint8),
        rng.integers(NONE, inputs, length).astype(np.int32),
    )
    total = length * selector.length + 1
    elements = selected(program, selector, 0, total)
    assert elements.shape == (total,)
    joined = PreservingProgram(group, elements, np.tile(selector.index, length))
    rows = all_rows(inputs)
    assert np.array_equal(joined.evaluate(rows), program.evaluate(rows))
    cuts = sorted(data.draw(st.lists(st.integers(0, total), max_size=4)))
    edges = [0, *cuts, total]
    parts = [selected(program, selector, a, b) for a, b in pairwise(edges)]
    assert np.array_equal(np.concatenate(parts), elements)


def test_selected_at_every_single_position() -> None:
    selector = optimized_selector(2, S5)
    program = fixed_structure(complete_circuit(1, 2, seed=3), 4, S5)
    elements = selected(program, selector, 0, 17)
    for start, stop in product(range(18), repeat=2):
        if start <= stop <= 17:
            assert np.array_equal(selected(program, selector, start, stop), elements[start:stop])


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (3, 2), (0, 18), (18, 18)])
def test_selected_refuses_what_lies_outside(start: int, stop: int) -> None:
    program = fixed_structure(complete_circuit(1, 2, seed=3), 4, S5)
    with pytest.raises(ParameterError, match=r"(start|stop) must be a whole number from \d to 17"):
        selected(program, optimized_selector(2, S5), start, stop)


@every_selector
def test_selector_needs_an_input(make: Callable[[int, Group], Selector]) -> None:
    with pytest.raises(ParameterError, match="inputs must be a whole number, at least 1, got 0"):
        make(0, A5)


def test_barrington_selector_of_very_many_inputs_is_refused() -> None:
    with pytest.raises(ParameterError, match="use optimized_selector"):
        barrington_selector(1 << 14, A5)


# -- programs as values -------------------------------------------------------------------------


def test_programs_do_not_show_their_elements() -> None:
    program = preserving(complete_circuit(1, 2, seed=1), A5)
    for shown in (repr(program), repr(program.group_program()), repr(optimized_selector(2, A5))):
        assert "array" not in shown and "[" not in shown


def test_program_of_no_instructions_is_its_element() -> None:
    program = PreservingProgram(S5, np.array([7], np.uint8), np.zeros(0, np.int32))
    assert program.evaluate(all_rows(1)).tolist() == [7, 7]


def test_program_needs_one_interstitial_more_than_indices() -> None:
    with pytest.raises(ParameterError, match="interstitials must be 3 for 2 indices"):
        PreservingProgram(S5, np.zeros(2, np.uint8), np.zeros(2, np.int32))


def test_evaluation_refuses_rows_that_are_too_narrow() -> None:
    index = np.array([2], np.int32)
    program = GroupProgram(S5, np.zeros(1, np.uint8), np.ones(1, np.uint8), index)
    for bits in (all_rows(2), np.zeros(3, np.bool_)):
        with pytest.raises(ShapeError, match="at least 3"):
            program.evaluate(bits)
