"""One party's half of a program's matrix L, as the encoders use it: labels packed by source.

Labels are affine bits of one party's input. They are computed packed, many to a word, by moving
many input bits at once; the encoders then spread them to words of ones or zeros, one per message.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from ccbps.arrays import Words
from ccbps.encodings.branching.triangle import SHIFTS, WORD
from ccbps.programs.branching import BranchingProgram, sorted_edges

_SIGN: Final = np.int64(WORD - 1)
DIAGONAL: Final = np.uint64(1) << np.arange(WORD, dtype=np.uint64)[:, None]
_TO_SIGN: Final = np.arange(WORD - 1, -1, -1, dtype=np.uint64)[:, None]


def spread(word: Words, bits: slice, out: Words) -> Words:
    """Return bits of a word as all ones or zero: shape (batch,) -> (bits, batch), in `out`."""
    masks: Words = np.left_shift(word, _TO_SIGN[bits], out[: bits.stop - bits.start, : len(word)])
    signed = masks.view(np.int64)
    np.right_shift(signed, _SIGN, signed)
    return masks


class Half:
    """Hold one party's part of each edge's label.

    Row 0 of the labels has the diagonal of L: the edges u -> u + 1, but for the one into the sink.
    Each other row has the edges into one column.

    Attributes:
        name: "event" or "interest".
        ones_below: whether the ones below the diagonal of L belong to this half.
        columns: the column of each row but the first.
        runs: neighbouring sources of edges into one column: (row, first source, stop).
        moves: which bits of the input are added where: {(row, word of the row, word of the input,
            bits to shift up): mask of input bits}.
        ones: constants of the labels, shape (rows, words, 1).
        input_words: words of the party's input.
    """

    def __init__(self, program: BranchingProgram, name: Literal["event", "interest"]) -> None:
        self.name = name
        self.ones_below = name == "event"
        self.columns: list[int] = []
        self.runs: list[tuple[int, int, int]] = []
        self.moves: dict[tuple[int, int, int, int], int] = {}
        ones: list[tuple[int, int]] = []
        for (u, v), label in sorted_edges(program.edges):
            bits = label.event if name == "event" else label.interest
            # A constant may belong to either half; the interest's is often one for a whole batch.
            one = label.one and name == "interest"
            if not bits and not one:
                continue
            row = 0
            if v != u + 1 or v == program.size:
                if self.columns[-1:] != [v - 1]:
                    self.columns.append(v - 1)
                row, first = len(self.columns), u
                if self.runs and self.runs[-1][::2] == (row, u):
                    first = self.runs.pop()[1]
                self.runs.append((row, first, u + 1))
            for bit in bits:
                move = row, u // WORD, bit // WORD, u % WORD - bit % WORD
                self.moves[move] = self.moves.get(move, 0) | 1 << bit % WORD
            if one:
                ones.append((row, u))
        blocks = -(-program.size // WORD)
        self.ones = np.zeros((1 + len(self.columns), blocks, 1), dtype=np.uint64)
        for row, u in ones:
            self.ones[row, u // WORD] |= DIAGONAL[u % WORD]
        self.input_words = 1 + max((source for _, _, source, _ in self.moves), default=-1)

    def labels(self, inputs: Words) -> Words:
        """Return the labels for packed input bits, shape (rows, words, batch)."""
        labels = np.repeat(self.ones, inputs.shape[1], axis=2)
        for (row, word, source, shift), mask in self.moves.items():
            bits = inputs[source] & np.uint64(mask)
            labels[row, word] ^= bits << SHIFTS[shift] if shift >= 0 else bits >> SHIFTS[-shift]
        return labels

    def mix(self, labels: Words, r2: Words) -> Words:
        """Return L_half times the last column of R2, packed: shape (words, batch)."""
        mixed: Words = labels[0] & r2
        if self.ones_below:
            mixed ^= r2 << SHIFTS[1]
            mixed[1:] ^= r2[:-1] >> SHIFTS[WORD - 1]
        for row, column in enumerate(self.columns, 1):
            bit = slice(column % WORD, column % WORD + 1)
            mixed ^= labels[row] & spread(r2[column // WORD], bit, np.empty_like(r2[:1]))
        return mixed
