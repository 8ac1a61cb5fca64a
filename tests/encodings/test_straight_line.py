"""Straight-line programs: levels and both kernels do what the steps do one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps.encodings.straight_line.planes import ArrayPlanes, LanePlanes
from ccbps.encodings.straight_line.program import (
    LEVEL_STEPS,
    MOST_RANKS,
    WORD,
    StraightLine,
    StraightLineBuilder,
)
from tests.support.effort import examples
from tests.support.program_strategies import seeds

Words = NDArray[np.uint64]


def one_by_one(program: StraightLine, rows: Words) -> list[int]:
    """Every register at the end, one bit a row."""
    registers = [0] * program.registers
    for bit in range(WORD * program.inputs):
        for row, words in enumerate(rows.tolist()):
            registers[bit] |= (words[bit // WORD] >> bit % WORD & 1) << row
    registers[program.one] = (1 << len(rows)) - 1
    for target, left, right in program.steps.tolist():
        registers[target] ^= registers[left] & registers[right]
    return registers


def output_words(program: StraightLine, registers: list[int], count: int) -> Words:
    out = np.zeros((count, program.outputs), dtype=np.uint64)
    for bit in range(WORD * program.outputs):
        for row in range(count):
            value = registers[program.output + bit] >> row & 1
            out[row, bit // WORD] |= np.uint64(value << bit % WORD)
    return out


def level_by_level(program: StraightLine, rows: Words) -> list[int]:
    """The same by levels; what a level writes is not seen by that level."""
    registers = one_by_one(StraightLine(program.inputs, program.registers, 0, 0, []), rows)
    levels = program.levels
    registers += [0] * (program.array_registers - program.registers)
    for level in levels:
        lefts, rights, targets = (
            part.tolist() for part in (level.lefts, level.rights, level.targets)
        )
        products = [registers[a] & registers[b] for a, b in zip(lefts, rights, strict=True)]
        for size in level.ranks:
            for target, product in zip(targets, products[:size], strict=False):
                registers[target] ^= product
            products = products[size:]
        assert products == []
    return registers[: program.registers]


def random_program(seed: int, inputs: int, outputs: int, count: int) -> StraightLine:
    """Steps among few registers, so that most are read after they are written, and the reverse."""
    rng = np.random.default_rng(seed)
    builder = StraightLineBuilder(WORD * inputs)
    spare = builder.new(int(rng.integers(1, 20)))
    last = builder.new(WORD * outputs)
    stop = builder.new()
    known = [bit for bit in range(stop) if bit != builder.one]
    # A few hot registers, and all others.
    hot = rng.choice(known, min(len(known), int(rng.integers(2, 9)))).tolist()

    def register() -> int:
        return int(rng.choice(hot if rng.random() < 0.7 else known))

    for _ in range(count):
        builder.add(register(), register(), register() if rng.random() < 0.8 else None)
    return builder.build(last if outputs else spare, outputs)


def check_levels(program: StraightLine) -> None:
    done: dict[str, int] = {}
    for level in program.levels:
        targets = level.targets.tolist()
        assert len(set(targets)) == len(targets) == level.ranks[0]
        assert all(more >= fewer > 0 for more, fewer in pairwise(level.ranks))
        assert sum(level.ranks) == len(level.lefts) == len(level.rights)
        assert len(level.ranks) <= MOST_RANKS
        assert len(level.lefts) <= LEVEL_STEPS + MOST_RANKS
        # A step may read its own target, but no one else's.
        written = set(targets)
        starts = np.cumsum([0, *level.ranks]).tolist()
        for start, size in zip(starts, level.ranks, strict=False):
            for place in range(size):
                reads = {int(level.lefts[start + place]), int(level.rights[start + place])}
                assert reads & written <= {targets[place]}
        done["steps"] = done.get("steps", 0) + len(level.lefts)
    # Each step once, and those that add registers that took the steps of a busy target.
    assert done.get("steps", 0) == len(program.steps) + program.array_registers - program.registers


def rows_of(program: StraightLine, count: int, seed: int) -> Words:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 1 << WORD, (count, program.inputs), dtype=np.uint64)


@pytest.fixture(params=["lanes", "arrays", "compiled"], scope="module")
def kernel(request: pytest.FixtureRequest) -> str:
    if request.param == "compiled":
        pytest.importorskip("numba")
    return str(request.param)


def run(kernel: str, program: StraightLine, rows: Words) -> NDArray[np.generic]:
    """A kernel's output for rows of any number, in as many calls as it needs."""
    count = len(rows)
    out: NDArray[np.generic]
    if program.outputs:
        out = np.full((count, program.outputs), 0xAA, dtype=np.uint64)
    else:
        out = np.ones(count, dtype=np.bool_)
    if kernel == "compiled":
        from ccbps.encodings.straight_line.compiled_planes import CompiledPlanes

        planes: LanePlanes | ArrayPlanes | CompiledPlanes = CompiledPlanes(program)
    elif kernel == "lanes":
        planes = LanePlanes(program, min(count, WORD))
    else:
        planes = ArrayPlanes(program, count)
    for start in range(0, count, planes.rows):
        stop = min(start + planes.rows, count)
        planes.run(rows[start:stop], out[start:stop])
    return out


@given(seed=seeds, inputs=st.integers(0, 3), outputs=st.integers(0, 2), count=st.integers(0, 150))
@settings(max_examples=examples(300), deadline=None)
@example(seed=0, inputs=1, outputs=1, count=0)
@example(seed=1, inputs=2, outputs=0, count=3000)
@example(seed=2, inputs=0, outputs=1, count=40)
def test_levels_are_the_steps_one_by_one(seed: int, inputs: int, outputs: int, count: int) -> None:
    program = random_program(seed, inputs, outputs, count)
    rows = rows_of(program, 70, seed)
    check_levels(program)
    assert level_by_level(program, rows) == one_by_one(program, rows)


@given(
    seed=seeds,
    inputs=st.integers(0, 3),
    outputs=st.integers(0, 2),
    count=st.integers(0, 150),
    rows=st.sampled_from([1, 7, 8, 9, 63, 64, 65, 511, 512, 513]),
)
@settings(max_examples=examples(200), deadline=None)
@example(seed=3, inputs=2, outputs=2, count=2000, rows=65)
def test_kernels_run_the_steps(
    kernel: str, seed: int, inputs: int, outputs: int, count: int, rows: int
) -> None:
    program = random_program(seed, inputs, outputs, count)
    given_rows = rows_of(program, rows, seed)
    registers = one_by_one(program, given_rows)
    found = run(kernel, program, given_rows)
    if outputs:
        assert np.array_equal(found, output_words(program, registers, rows))
    else:
        answers = [registers[program.output] >> row & 1 for row in range(rows)]
        assert np.array_equal(found, np.array(answers, np.bool_))


@pytest.mark.parametrize("rows", [2047, 2048, 2049, 8191, 8192, 8193])
@pytest.mark.parametrize("outputs", [0, 1])
def test_kernels_agree_on_rows_of_several_blocks(kernel: str, outputs: int, rows: int) -> None:
    program = random_program(5, 2, outputs, 100)
    given_rows = rows_of(program, rows, rows)
    found = run(kernel, program, given_rows)
    for start in range(0, rows, 64):
        part = slice(start, start + 64)
        assert np.array_equal(found[part], run("arrays", program, given_rows[part].copy()))


@pytest.mark.parametrize("bit", [0, 1, 63, 64, 100, 127])
def test_the_answer_may_be_a_bit_of_the_input(kernel: str, bit: int) -> None:
    builder = StraightLineBuilder(2 * WORD)
    builder.add(bit, 5, 70)
    rows = rows_of(program := builder.build(bit, 0), 130, bit)
    inputs = np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little").astype(np.bool_)
    expected = inputs[:, bit] ^ (inputs[:, 5] & inputs[:, 70])
    assert np.array_equal(run(kernel, program, rows), expected)


def test_a_register_is_read_before_it_is_written_again() -> None:
    builder = StraightLineBuilder(WORD)
    copy = builder.new(2)
    builder.add(copy, 0)  # reads bit 0
    builder.add(0, 1)  # then changes it
    builder.add(copy + 1, 0)  # reads the changed one
    builder.add(0, 0)  # and makes it zero
    program = builder.build(copy, 0)
    assert [level.targets.tolist() for level in program.levels] == [[copy], [0], [copy + 1], [0]]
    for bits in range(4):
        registers = level_by_level(program, np.array([[bits]], np.uint64))
        assert registers[copy : copy + 2] == [bits & 1, bits & 1 ^ bits >> 1]
        assert registers[0] == 0


@pytest.mark.parametrize("count", [8, 9, 16, 17, 65, 600])
def test_a_target_of_many_steps(count: int) -> None:
    """More than a level's ranks go to registers of their own, which are added then."""
    builder = StraightLineBuilder(2 * WORD)
    total = builder.new()
    for step in range(count):
        builder.add(total, step % 128, (7 * step + 1) % 128)
    program = builder.build(total, 0)
    check_levels(program)
    assert (program.array_registers > program.registers) == (count > MOST_RANKS)
    rows = rows_of(program, 64, count)
    assert level_by_level(program, rows) == one_by_one(program, rows)


def test_operations_count_steps_and_transpositions() -> None:
    builder = StraightLineBuilder(2 * WORD)
    first = builder.new(64)
    for bit in range(10):
        builder.add(first + bit, bit, bit + 1)
    assert builder.build(first, 1).operations == 2 * 10 + 3 * 6 * 32 * 6
    assert builder.build(first, 0).operations == 2 * 10 + 2 * 6 * 32 * 6
