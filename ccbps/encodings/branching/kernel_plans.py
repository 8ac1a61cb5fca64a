"""What the compiled kernels know of a program: tables of where each piece of a column lies.

Plans are public and the kernels loop over them, so that one compilation serves all programs.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ccbps.arrays import Words
from ccbps.encodings.branching.halves import Half
from ccbps.encodings.branching.tiles import Shape
from ccbps.encodings.branching.triangle import WORD


def _joined(*tables: Iterable[tuple[int, ...]]) -> Words:
    """Tables of numbers in one array: start, rows and columns of each first, read by `_table`."""
    arrays = [np.array(list(table), dtype=np.uint64) for table in tables]
    start, head = 3 * len(arrays), []
    for array in arrays:
        rows, columns = array.shape if array.size else (0, 1)
        head += [start, rows, columns]
        start += array.size
    return np.concatenate([np.array(head, dtype=np.uint64), *(a.reshape(-1) for a in arrays)])


def encoder_plan(shape: Shape, half: Half) -> Words:
    """What `_encode` needs to know of one half of a program."""
    # u, block, diagonal one; then first and stop in `reads`, in `writes` and in `runs`.
    steps: list[tuple[int, ...]] = []
    # Word, offset and first bit of a piece of a column; and its rows as a mask.
    reads: list[tuple[int, ...]] = []
    writes: list[tuple[int, ...]] = []
    # Row of labels, row of sums.
    runs: list[tuple[int, ...]] = []
    for u in range(shape.size):
        for b in range(u // WORD + 1):
            starts = len(reads), len(writes), len(runs)
            # Column u of R1 is its diagonal one on top of column u - 1 of the randomness.
            if u > WORD * b:
                reads += [(w, o, bit, (1 << n) - 1) for w, o, bit, n in shape.pieces(u - 1, b)]
            if half.diagonal[u // WORD]:
                writes += [(w, o, bit) for w, o, bit, _ in shape.pieces(u, b)]
            runs += [
                (1 + run, half.sum_row(column, b))
                for run, (column, start, stop) in enumerate(half.runs)
                if start <= u < stop
            ]
            diagonal = 1 << u % WORD if b == u // WORD else 0
            ends = zip(starts, (len(reads), len(writes), len(runs)), strict=True)
            steps.append((u, b, diagonal, *(edge for pair in ends for edge in pair)))
    last = shape.size - 1
    return _joined(
        [(shape.size, half.below_diagonal, int(shape.used_bits), half.sum_rows)],
        steps,
        reads,
        writes,
        runs,
        # Runs that R2 mixes: row of labels, column, first and stop of blocks.
        [
            (1 + run, column, start // WORD, (stop - 1) // WORD + 1)
            for run, (column, start, stop) in enumerate(half.runs)
            if column != last
        ],
        # Where sums go: row of sums, word, offset, first bit.
        [
            (half.sum_row(column, b), w, o, bit)
            for column in half.columns
            for b in range(column // WORD + 1)
            for w, o, bit, _ in shape.pieces(column, b)
        ],
        # The last column: block, word, offset, first bit, rows.
        [
            (b, w, o, bit, (1 << n) - 1)
            for b in range(shape.blocks)
            for w, o, bit, n in shape.pieces(last, b)
        ],
    )


def decoder_plan(shape: Shape) -> Words:
    """What `_decode` needs to know of a program's layout."""
    # Block, word, offset, first bit, rows as a mask.
    pieces: list[tuple[int, ...]] = []
    # Node, first and stop in `pieces`.
    steps: list[tuple[int, ...]] = []
    for column in range(shape.size - 1, -1, -1):
        start = len(pieces)
        for b in range(column // WORD + 1):
            found = shape.pieces(column, b)
            # Rows above a column's last are never looked at, so only split pieces are masked.
            every = (1 << WORD) - 1
            pieces += [
                (b, w, o, bit, (1 << n) - 1 if len(found) > 1 else every) for w, o, bit, n in found
            ]
        steps.append((column + 1, start, len(pieces)))
    return _joined([(int(shape.used_bits), shape.blocks)], steps, pieces)
