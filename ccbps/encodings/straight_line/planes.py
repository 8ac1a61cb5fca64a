"""Straight-line programs on rows: the choice of kernels, and the kernels in NumPy.

For up to 64 rows, a register is one number whose bit r is of row r: see `LanePlanes`.

For more rows, the kernel treats rows in blocks that fit the second-level cache. A plane holds one
bit of all rows of a block: of a block of 64 m rows, bit r of word j is the bit of row m r + j. So
words of rows are moved as whole words, and 64 x 64 bits are exchanged in place by six stages of
masks and shifts (Knuth, TAOCP 7.1.3; Warren, Hacker's Delight 7-3), each on all words of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Words, slices
from ccbps.compiled import rows_compiled
from ccbps.encodings.straight_line.program import WORD, StraightLine

if TYPE_CHECKING:
    from ccbps.encodings.straight_line.compiled_planes import CompiledPlanes

BLOCK_BYTES: Final = 1 << 21
"""Memory for the registers and products of a block, if a block of the fewest words fits at all."""
MOST_WORDS: Final = 128
"""Largest number of words of a plane: 8,192 rows."""
BLOCK_ROWS: Final = 1 << 11
"""Rows that `run_rows` treats together by default."""
_LANES: Final = (np.uint8, np.uint16, np.uint32, np.uint64)
"""Types of numbers that hold a bit of each row."""
_BITS: Final = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], 1, None, "little")
_OCTETS: Final[Words] = _BITS.view(np.uint64).reshape(-1)
"""The bits of each byte, a byte for each bit. To look them up takes half as long as to unpack."""
_STAGES: Final = tuple(
    (j, np.uint64(j), np.uint64(sum(1 << i for i in range(WORD) if not i & j)))
    for j in (32, 16, 8, 4, 2, 1)
)


def planes(program: StraightLine, batch: int) -> LanePlanes | ArrayPlanes | CompiledPlanes:
    """Return the kernel that runs a program on a batch of so many rows, block by block."""
    words = program.inputs + program.outputs
    if rows_compiled(batch, words, "encodings.straight_line.compiled_planes"):
        from ccbps.encodings.straight_line.compiled_planes import CompiledPlanes

        return CompiledPlanes(program)
    return array_planes(program, batch)


def array_planes(program: StraightLine, batch: int) -> LanePlanes | ArrayPlanes:
    """Return the kernel in NumPy for a batch of so many rows."""
    return LanePlanes(program, batch) if batch <= WORD else ArrayPlanes(program, batch)


def run_rows(
    program: StraightLine,
    sizes: Sequence[int],
    fill: Callable[..., None],
    out: NDArray[Any],
    block_rows: int = BLOCK_ROWS,
) -> None:
    """Run a program on rows of bytes, block by block.

    Args:
        program: the program.
        sizes: bytes of each part of an input row.
        fill: function that writes input rows. ``fill(at, *parts)`` gets the slice of the rows, and
            for each size a view of shape (rows, size), which still holds the rows before.
        out: place of the output, shape (count, bytes), uint8; for a program with one bit of output,
            shape (count,), bool.
        block_rows: largest number of rows that are treated together.
    """
    count, runner = len(out), planes(program, len(out))
    rows = min(runner.rows, block_rows)
    joined = np.zeros((rows, program.inputs), dtype=np.uint64)
    edges = np.cumsum([0, *sizes]).tolist()
    parts = [joined.view(np.uint8)[:, start:stop] for start, stop in pairwise(edges)]
    words = np.empty((rows, program.outputs), dtype=np.uint64)
    for at in slices(count, rows):
        here = at.stop - at.start
        fill(at, *(part[:here] for part in parts))
        if program.outputs:
            runner.run(joined[:here], words[:here])
            out[at] = words.view(np.uint8)[:here, : out.shape[1]]
        else:
            runner.run(joined[:here], out[at])


def kernel_rows(program: StraightLine, batch: int) -> int:
    """Return the largest number of rows of one call of `array_planes` for a batch.

    The blocks of a batch are all about as large.
    """
    if batch <= WORD:
        return max(1, batch)
    held = 8 * (program.array_registers + 2 * program.most_products)
    most, needed = max(1, min(MOST_WORDS, BLOCK_BYTES // held)), max(1, -(-batch // WORD))
    return WORD * -(-needed // -(-needed // most))


class LanePlanes:
    """Kernel for one straight-line program and at most 64 rows.

    A register is one number of 8, 16, 32 or 64 bits, whose bit r is of row r. So the levels need no
    cuts, and a level takes a few calls of NumPy, however many steps it has.

    Attributes:
        rows: largest number of rows of one call.
    """

    def __init__(self, program: StraightLine, batch: int) -> None:
        self._program, self.rows = program, max(1, batch)
        levels, size, self._outputs = program.lanes
        kind = _LANES[max(0, (batch - 1).bit_length() - 3)]
        most = max((len(level.operands) for level in levels), default=0)
        self._room = np.empty(size + most, dtype=kind)
        self._registers = registers = self._room[:size]
        self._given, taken = registers[: program.one], self._room[size:]
        self._levels = [
            (
                operands,
                taken[: len(operands)],
                tuple(taken[: len(operands)].reshape(2, len(operands) // 2)),
                registers[products],
                [(registers[a], registers[b]) for a, b in ranks],
                registers[summed],
                starts,
                registers[sums],
            )
            for operands, products, ranks, summed, starts, sums in levels
        ]
        self.clear()

    def clear(self) -> None:
        """Forget the rows of the last call."""
        self._room.fill(0)
        self._registers[self._program.one] = (1 << self.rows) - 1

    def run(self, rows: Words, out: Words | Bools) -> None:
        """Run the program on rows, as `ArrayPlanes.run`."""
        program, registers, count = self._program, self._registers, len(out)
        if self.rows == 1:
            _OCTETS.take(rows.view(np.uint8)[0], None, self._given.view(np.uint64), "clip")
        else:  # all is packed at once: row by row takes ten times as long
            bits = np.unpackbits(rows.view(np.uint8)[:count], axis=1, bitorder="little")
            lanes = np.zeros((bits.shape[1], 8 * registers.itemsize), dtype=np.uint8)
            lanes[:, :count] = bits.T
            self._given[:] = np.packbits(lanes, bitorder="little").view(registers.dtype)
        take, multiply, add = registers.take, np.bitwise_and, np.bitwise_xor
        for operands, taken, (lefts, rights), products, ranks, summed, starts, sums in self._levels:
            take(operands, None, taken, "clip")
            multiply(lefts, rights, products)
            for added, values in ranks:
                add(values, added, values)
            if len(starts):
                add.reduceat(summed, starts, 0, None, sums)
        found: NDArray[Any] = take(self._outputs)
        if self.rows > 1:
            bits = np.unpackbits(found.view(np.uint8), bitorder="little")
            found = bits.reshape(len(found), -1)[:, :count].T
        if program.outputs:
            out.view(np.uint8)[:] = np.packbits(found, None, "little").reshape(count, -1)
        else:
            out[:] = found.reshape(-1)


class ArrayPlanes:
    """Kernel for one straight-line program.

    Attributes:
        rows: largest number of rows of one call.
    """

    def __init__(self, program: StraightLine, batch: int) -> None:
        self._program, self.rows = program, max(WORD, kernel_rows(program, batch))
        words = self.rows // WORD
        self._registers = np.zeros((program.array_registers, words), dtype=np.uint64)
        self._first, self._second = np.empty((2, program.most_products, words), dtype=np.uint64)
        half = WORD // 2 * max(program.inputs, program.outputs) * words
        self._spare = np.empty(half, dtype=np.uint64)

    def run(self, rows: Words, out: Words | Bools) -> None:
        """Run the program on rows.

        Args:
            rows: shape (count, inputs), C-contiguous, count at most `rows`. If there are `rows` of
                them, they are not copied, and those past `out` are ignored.
            out: shape (count, outputs); for a program with one bit of output, (count,), bool.
        """
        program, registers = self._program, self._registers
        words, count = registers.shape[1], len(out)
        used = WORD * program.inputs
        if len(rows) < self.rows:
            padded = np.zeros((self.rows, program.inputs), dtype=np.uint64)
            padded[:count] = rows
            rows = padded
        inputs = registers[:used].reshape(WORD, program.inputs, words)
        inputs[:] = rows.reshape(WORD, words, program.inputs).transpose(0, 2, 1)
        self._exchange(inputs)
        registers[used] = ~np.uint64(0)
        registers[used + 1 :] = 0
        for targets, lefts, rights, ranks in program.placed_levels:
            first, second = self._first[: len(lefts)], self._second[: len(lefts)]
            np.take(registers, lefts, axis=0, out=first, mode="clip")
            np.take(registers, rights, axis=0, out=second, mode="clip")
            np.bitwise_and(first, second, out=first)
            start = total = ranks[0]
            for size in ranks[1:]:
                part = first[:size]
                np.bitwise_xor(part, first[start : start + size], out=part)
                start += size
            registers[targets] ^= first[:total]
        if not program.outputs:
            octets = registers[program.places[program.output]].view(np.uint8)
            bits = np.unpackbits(octets, bitorder="little").reshape(words, WORD)
            out[:] = bits.T.reshape(-1)[:count]
            return
        outputs = registers[program.output :][: WORD * program.outputs]
        outputs = outputs.reshape(WORD, program.outputs, words)
        self._exchange(outputs)
        by_row = outputs.transpose(0, 2, 1)
        if count == self.rows:
            out.reshape(WORD, words, program.outputs)[:] = by_row
        else:
            out[:] = by_row.reshape(self.rows, program.outputs)[:count]

    def _exchange(self, planes: Words) -> None:
        """Transpose 64 x 64 bits, in place: bit c of row r to bit r of row c; (64, ...)."""
        for j, shift, low in _STAGES:
            parts = planes.reshape(WORD // (2 * j), 2, j, -1)
            upper, lower = parts[:, 0], parts[:, 1]
            spare = self._spare[: upper.size].reshape(upper.shape)
            np.right_shift(upper, shift, out=spare)
            np.bitwise_xor(spare, lower, out=spare)
            np.bitwise_and(spare, low, out=spare)
            np.bitwise_xor(lower, spare, out=lower)
            np.left_shift(spare, shift, out=spare)
            np.bitwise_xor(upper, spare, out=upper)
