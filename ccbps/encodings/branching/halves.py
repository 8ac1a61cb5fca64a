"""One party's half of a program's matrix L, as the encoders use it: its labels, packed and spread.

Labels are affine bits of one party's input. They are computed packed, many to a word, by moving
runs of input bits at once; kernels then spread them to all-ones or zero words, one per message.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ccbps.arrays import Words
from ccbps.encodings.branching.tiles import SHIFTS
from ccbps.encodings.branching.triangle import WORD
from ccbps.programs.branching import Label

SIGN: Final = np.int64(WORD - 1)
_TO_SIGN: Final = np.arange(WORD - 1, -1, -1, dtype=np.uint64)[:, None]


def bit_masks(word: Words, bits: slice, out: Words) -> Words:
    """Bits of a word as all-ones or zero words: (rows,) -> (bits, rows), in `out` where it fits."""
    out = out[: bits.stop - bits.start, : len(word)]
    np.left_shift(word, _TO_SIGN[bits], out=out)
    signed = out.view(np.int64)
    np.right_shift(signed, SIGN, out=signed)
    return out


class Half:
    """One party's labels: which columns of R1 go into which columns, under which of its bits.

    Labels of edges c -> c + 1 are on the diagonal of L; all others are grouped into `runs`:
    neighbouring sources start .. stop - 1 of edges into one column.
    """

    def __init__(
        self, size: int, edges: list[tuple[int, int, Label]], name: str, below_diagonal: bool
    ) -> None:
        self.name, self.size, self.below_diagonal = name, size, below_diagonal
        self.blocks = -(-size // WORD)
        self.runs: list[tuple[int, int, int]] = []  # column, first source, stop
        placed: list[tuple[int, int, Label]] = []  # row of labels, source, label
        for u, v, label in edges:
            if not label:
                continue
            if v == u + 1:
                placed.append((0, u, label))
                continue
            if self.runs and self.runs[-1][0] == v - 1 and self.runs[-1][2] == u:
                self.runs[-1] = (v - 1, self.runs[-1][1], u + 1)
            else:
                self.runs.append((v - 1, u, u + 1))
            placed.append((len(self.runs), u, label))
        # Is there any diagonal label whose source lies in the block?
        self.diagonal = [
            any(row == 0 and u // WORD == b for row, u, _ in placed) for b in range(self.blocks)
        ]
        self.columns = sorted({column for column, _, _ in self.runs})
        starts = np.cumsum([0, *(column // WORD + 1 for column in self.columns)])
        self._sum_rows = dict(zip(self.columns, starts.tolist(), strict=False))
        self.sum_rows = int(starts[-1])

        # A label bit is a sum of input bits. Neighbouring label bits that take neighbouring input
        # bits are moved together: one shift, one AND, one XOR.
        bits = sorted(
            (row, place, u - bit, u, bit)
            for row, u, label in placed
            for place, bit in enumerate(sorted(label.event | label.interest))
        )
        self.input_words = 1 + max((bit // WORD for *_, bit in bits), default=-1)
        self.moves: list[list[int]] = []  # [row, target word, source word, target bit, bit, count]
        for row, _, _, u, bit in sorted(bits, key=lambda b: (b[0], b[2], b[3])):
            move = [row, u // WORD, bit // WORD, u % WORD, bit % WORD, 1]
            if self.moves:
                *same, to, source, count = self.moves[-1]
                if same == move[:3] and (to + count, source + count) == (move[3], move[4]):
                    self.moves[-1][5] += 1
                    continue
            self.moves.append(move)
        self._constants = np.zeros((1 + len(self.runs), self.blocks, 1), dtype=np.uint64)
        for row, u, label in placed:
            if label.one:
                self._constants[row, u // WORD] |= SHIFTS[1] << SHIFTS[u % WORD]

    def labels(self, inputs: Words) -> Words:
        """Label bits packed by source: shape (1 + runs, blocks, rows), diagonal labels first."""
        out = np.empty((1 + len(self.runs), self.blocks, inputs.shape[1]), dtype=np.uint64)
        out[...] = self._constants
        for row, to_word, from_word, to, source, count in self.moves:
            piece = (inputs[from_word] >> SHIFTS[source]) & np.uint64((1 << count) - 1)
            out[row, to_word] ^= piece << SHIFTS[to]
        return out

    def mix(self, labels: Words, last: Words, out: Words) -> Words:
        """L_half times R2's last column, without its 1 at the end: packed, shape (blocks, rows)."""
        mixed: Words = np.bitwise_and(labels[0], last, out=out)
        mixed[-1] &= np.uint64((1 << (self.size - 1) % WORD) - 1)
        if self.below_diagonal:
            mixed ^= last << SHIFTS[1]
            mixed[1:] ^= last[:-1] >> SHIFTS[WORD - 1]
        for run, (column, start, stop) in enumerate(self.runs):
            if column == self.size - 1:
                continue
            bit = slice(column % WORD, column % WORD + 1)
            factor = bit_masks(last[column // WORD], bit, np.empty_like(last[:1]))
            blocks = slice(start // WORD, (stop - 1) // WORD + 1)
            mixed[blocks] ^= labels[1 + run, blocks] & factor
        return mixed

    def sum_of(self, sums: Words, column: int, block: int) -> Words:
        """Where the sum of a column's runs is kept for a block of rows."""
        out: Words = sums[self.sum_row(column, block)]
        return out

    def sum_row(self, column: int, block: int) -> int:
        """The row of `sums`, of `sum_rows`, that a column's sum in a block of rows has."""
        return int(self._sum_rows[column] + block)
