"""Run straight-line programs with code compiled by Numba (extra ``compiled``).

The results are those of `ccbps.encodings.straight_line.planes`.

512 rows at a time: a register is eight words, one vector of the widest machines, and all registers
of a program stay in the second-level cache. The loop over steps is compiled once for all programs.
"""

from __future__ import annotations

from typing import Final

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ccbps.arrays import Bools, Words
from ccbps.compiled import compile_kernel
from ccbps.encodings.straight_line.program import WORD, StraightLine

LANES: Final = 8
"""Words of a register."""
ROWS: Final = 4 * LANES * WORD
"""Largest number of rows of one call: they fit the second-level cache beside the registers."""

_ROWS = types.Array(types.uint64, 2, "C", readonly=True)
_ROWS_OUT = types.Array(types.uint64, 2, "C")
_FLAGS_OUT = types.Array(types.boolean, 1, "A")
_STEPS = types.Array(types.int64, 2, "C", readonly=True)


def _vector(context, builder, array_type, array, place):  # type: ignore[no-untyped-def]
    """Return a pointer to the eight words of a register, as one vector."""
    data = context.make_array(array_type)(context, builder, array).data
    word = builder.gep(data, [builder.mul(place, place.type(LANES))])
    return builder.bitcast(word, ir.PointerType(ir.VectorType(ir.IntType(WORD), LANES)))


@intrinsic
def _and_into(typing_context, registers, target, left, right):  # type: ignore[no-untyped-def]
    """Set registers[target] ^= registers[left] & registers[right]."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        t, a, b = (
            _vector(context, builder, signature.args[0], arguments[0], place)  # type: ignore[no-untyped-call]
            for place in arguments[1:]
        )
        product = builder.and_(builder.load(a, align=8), builder.load(b, align=8))
        builder.store(builder.xor(builder.load(t, align=8), product), t, align=8)
        return context.get_dummy_value()

    return types.void(registers, target, left, right), emit


@intrinsic
def _exchange_stages(typing_context, registers, first, step):  # type: ignore[no-untyped-def]
    """Run three stages of the exchange of 64 x 64 bits on registers first + i * step, i < 8."""
    if not isinstance(step, types.IntegerLiteral):
        raise numba.errors.RequireLiteralValue("step must be a literal")
    distance = step.literal_value

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        vector = ir.VectorType(ir.IntType(WORD), LANES)
        number = arguments[1].type
        pointers = [
            _vector(  # type: ignore[no-untyped-call]
                context,
                builder,
                signature.args[0],
                arguments[0],
                builder.add(arguments[1], number(i * distance)),
            )
            for i in range(8)
        ]
        rows = [builder.load(pointer, align=8) for pointer in pointers]
        for apart in (4, 2, 1):
            bits = apart * distance
            low = sum(1 << i for i in range(WORD) if not i & bits)
            shift, mask = ir.Constant(vector, [bits] * LANES), ir.Constant(vector, [low] * LANES)
            for i in range(8):
                if i & apart:
                    continue
                upper, lower = rows[i], rows[i + apart]
                spare = builder.and_(builder.xor(builder.lshr(upper, shift), lower), mask)
                rows[i + apart] = builder.xor(lower, spare)
                rows[i] = builder.xor(upper, builder.shl(spare, shift))
        for pointer, row in zip(pointers, rows, strict=True):
            builder.store(row, pointer, align=8)
        return context.get_dummy_value()

    return types.void(registers, first, step), emit


@numba.njit
def exchange(registers, first):  # type: ignore[no-untyped-def]
    """Transpose 64 x 64 bits of each lane, in place: bit c of row r to bit r of row c."""
    for i in range(8):
        _exchange_stages(registers, first + i, 8)  # type: ignore[call-arg]
    for i in range(8):
        _exchange_stages(registers, first + 8 * i, 1)  # type: ignore[call-arg]


@numba.njit
def new_registers(count):  # type: ignore[no-untyped-def]
    """Return so many registers, each in a cache line of its own."""
    words = np.empty(LANES * (count + 1), dtype=np.uint64)
    skip = (-words.ctypes.data >> 3) % LANES
    return words[skip : skip + LANES * count].reshape((count, LANES))


@numba.njit
def begin(registers, inputs):  # type: ignore[no-untyped-def]
    """Exchange the words of input that are loaded, and give other registers their first values."""
    registers[WORD * inputs] = ~np.uint64(0)
    registers[WORD * inputs + 1 :] = 0
    for w in range(inputs):
        exchange(registers, WORD * w)


@numba.njit
def run_steps(registers, steps):  # type: ignore[no-untyped-def]
    """Run a program's steps."""
    for i in range(steps.shape[0]):
        _and_into(registers, steps[i, 0], steps[i, 1], steps[i, 2])  # type: ignore[call-arg]


@compile_kernel(types.void(_ROWS, _ROWS_OUT, _FLAGS_OUT, types.int64, types.int64, _STEPS))
def _run(rows, out, answers, count, output, steps):  # type: ignore[no-untyped-def]
    """Run a program on rows; its output is `answers` if output rows have no words."""
    registers, inputs, outputs = new_registers(count), rows.shape[1], out.shape[1]
    for base in range(0, rows.shape[0], LANES * WORD):
        stop = min(base + LANES * WORD, rows.shape[0])
        # Row 8 r + m goes to word m of register r of each input word's 64.
        for r in range(WORD):
            for w in range(inputs):
                for m in range(LANES):
                    row = base + LANES * r + m
                    word = np.uint64(0)
                    if row < stop:
                        word = rows[row, w]
                    registers[WORD * w + r, m] = word
        begin(registers, inputs)
        run_steps(registers, steps)
        for w in range(outputs):
            exchange(registers, output + WORD * w)
        for row in range(base, stop):
            r, m = (row - base) // LANES, (row - base) % LANES
            for w in range(outputs):
                out[row, w] = registers[output + WORD * w + r, m]
            if outputs == 0:
                word = registers[output, m] >> np.uint64(r)
                answers[row] = (word & np.uint64(1)) == np.uint64(1)


class CompiledPlanes:
    """Kernel for one straight-line program, as `ccbps.encodings.straight_line.planes.ArrayPlanes`.

    Attributes:
        rows: largest number of rows of one call.
    """

    rows = ROWS

    def __init__(self, program: StraightLine) -> None:
        self._program = program
        self._steps = as_steps(program)

    def run(self, rows: Words, out: Words | Bools) -> None:
        """Run the program on rows, as `ccbps.encodings.straight_line.planes.ArrayPlanes.run`."""
        program = self._program
        words = out if program.outputs else np.empty((0, 0), dtype=np.uint64)
        answers = np.empty(0, dtype=np.bool_) if program.outputs else out
        _run(rows, words, answers, program.registers, program.output, self._steps)


def as_steps(program: StraightLine) -> NDArray[np.int64]:
    """Return a program's steps as the kernels read them."""
    return np.ascontiguousarray(program.steps, dtype=np.int64)
