"""Straight-line programs in NumPy: rows of bits to planes, steps level by level, planes to rows.

Rows are treated in blocks that fit the second-level cache. A plane is one bit of all rows of a
block: of a block of 64 m rows, bit r of word j is the bit of row m r + j. So words of rows are
moved as whole words, and 64 x 64 bits are exchanged in place by six stages of masks and shifts
(Knuth, TAOCP 7.1.3; Warren, Hacker's Delight 7-3), each on all words of a block.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ccbps.arrays import Bools, Words
from ccbps.encodings.straight_line.program import WORD, StraightLine

BLOCK_BYTES: Final = 1 << 21
"""Registers and products of a block together, if a block of the fewest words fits at all."""
MOST_WORDS: Final = 128
"""Words of a plane: 8,192 rows."""
_STAGES: Final = tuple(
    (j, np.uint64(j), np.uint64(sum(1 << i for i in range(WORD) if not i & j)))
    for j in (32, 16, 8, 4, 2, 1)
)


def plane_words(program: StraightLine, batch: int) -> int:
    """Words of a plane, for blocks of a batch of so many rows that are all about as large."""
    held = 8 * (program.array_registers + 2 * _widest(program))
    most, wanted = max(1, min(MOST_WORDS, BLOCK_BYTES // held)), max(1, -(-batch // WORD))
    return -(-wanted // -(-wanted // most))


def _widest(program: StraightLine) -> int:
    """Products of a level, at most."""
    return max((len(lefts) for _, lefts, _, _ in program.placed_levels), default=1)


class ArrayPlanes:
    """Runs one straight-line program.

    Attributes:
        rows: rows to be given in one call, at most.
    """

    def __init__(self, program: StraightLine, batch: int) -> None:
        self._program = program
        widest, words = _widest(program), plane_words(program, batch)
        self.rows = WORD * words
        self._registers = np.zeros((program.array_registers, words), dtype=np.uint64)
        self._first = np.empty((widest, words), dtype=np.uint64)
        self._second = np.empty((widest, words), dtype=np.uint64)
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
        planes = registers[:used].reshape(WORD, program.inputs, words)
        if len(rows) == self.rows:
            planes[:] = rows.reshape(WORD, words, program.inputs).transpose(0, 2, 1)
        else:
            padded = np.zeros((self.rows, program.inputs), dtype=np.uint64)
            padded[:count] = rows
            planes[:] = padded.reshape(WORD, words, program.inputs).transpose(0, 2, 1)
        self._exchange(planes)
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
            bits = registers[program.places[program.output]].view(np.uint8)
            found = np.unpackbits(bits, bitorder="little").reshape(words, WORD)
            out[:] = found.T.reshape(-1)[:count]
            return
        planes = registers[program.output :][: WORD * program.outputs]
        planes = planes.reshape(WORD, program.outputs, words)
        self._exchange(planes)
        made = planes.transpose(0, 2, 1)
        if count == self.rows:
            out.reshape(WORD, words, program.outputs)[:] = made
        else:
            out[:] = made.reshape(self.rows, program.outputs)[:count]

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
