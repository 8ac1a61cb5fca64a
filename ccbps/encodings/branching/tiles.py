"""The triangle's layout as the encoders use it: pieces of columns, and tiles of columns.

Block array b has a row for each column c >= 64b of a matrix: a word with rows 64b .. of the column.
A tile is some neighbouring columns within one block of rows; reading it out of a message's words
and folding it back costs a few NumPy calls, one for each run of pieces that lie at a fixed step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Words
from ccbps.encodings.branching.triangle import WORD, TriangleLayout

TILE_COLUMNS: Final = 16
"""Columns of a tile; divides 64. Three tiles of a block of messages fit the second-level cache."""
SHIFTS: Final = tuple(np.uint64(i) for i in range(WORD))
_BITS: Final = np.arange(WORD, dtype=np.uint64)[:, None]


@dataclass(frozen=True, slots=True)
class Read:
    """Rows of a tile that come from words at a fixed step, or (an array) from anywhere."""

    rows: slice
    words: slice | NDArray[np.intp]
    shifts: Words | None
    masks: Words | None

    def copy(self, random: Words, out: Words) -> None:
        part = out[self.rows]
        if isinstance(self.words, slice):
            source = random[self.words]
        else:
            source = np.take(random, self.words, axis=0, out=part, mode="clip")
        if self.shifts is not None:
            source = np.right_shift(source, self.shifts, out=part)
        if self.masks is not None:
            np.bitwise_and(source, self.masks, out=part)


@dataclass(frozen=True, slots=True)
class Fold:
    """Rows of a tile that go to words at a fixed step of a message, each shifted to its offset."""

    rows: slice
    words: slice
    shifts: Words | None

    def add(self, product: Words, message: Words) -> None:
        part = product[self.rows]
        if self.shifts is not None:
            np.left_shift(part, self.shifts, out=part)
        target = message[self.words]
        np.bitwise_xor(target, part, out=target)


@dataclass(frozen=True, slots=True)
class Scatter:
    """Rows of a tile that go to words anywhere in a message, several of them to the same word."""

    rows: NDArray[np.intp]
    shifts: Words
    words: tuple[tuple[int, int, int], ...]  # first and last of `rows`, word

    def add(self, product: Words, message: Words) -> None:
        part = product[self.rows]
        np.left_shift(part, self.shifts, out=part)
        for start, stop, word in self.words:
            message[word] ^= np.bitwise_xor.reduce(part[start:stop], axis=0)


@dataclass(frozen=True, slots=True)
class Tile:
    """Columns first .. stop - 1 of R1, all within one block: how to read and where to write them.

    In its own block, column u of R1 is its diagonal entry, a one, on top of the piece of column
    u - 1 of the randomness. `reads` brings those pieces out, `folds` puts products into their own
    column's pieces; the few columns whose pieces are not in one place are in `split_reads` and
    `split`. In lower blocks all pieces are whole words.
    """

    first: int
    stop: int
    reads: tuple[Read, ...]
    split_reads: tuple[int, ...]
    split: tuple[int, ...]
    diagonal: Words
    folds: tuple[tuple[Fold | Scatter, ...], ...]
    shape: Shape

    def unfold(self, random: Words, out: Words) -> Words:
        for read in self.reads:
            read.copy(random, out)
        for u in self.split_reads:
            row = out[u - self.first]
            self.shape.read(u - 1, u // WORD, random, row)
            row &= np.uint64((1 << u % WORD) - 1)
        if self.first % WORD == 0:
            out[0] = 0
        np.bitwise_or(out, self.diagonal, out=out)
        return out


class Shape:
    """The layout as the kernels use it: pieces of columns by block, and tiles of columns."""

    def __init__(self, layout: TriangleLayout) -> None:
        self.layout, self.size, self.blocks = layout, layout.size, layout.blocks
        self.column_words = sum(self.size - WORD * b for b in range(self.blocks))
        # (column, block) -> [(word, offset, first bit, length)], one entry unless it was split.
        self._pieces: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}
        for b, (word, column, count) in enumerate(layout.full):
            for i in range(count):
                self._pieces[column + i, b] = [(word + i, 0, 0, WORD)]
        for p in layout.partial:
            key = p.column, p.first_row // WORD
            self._pieces.setdefault(key, []).append(
                (p.word, p.offset, p.first_row % WORD, p.length)
            )
        self.reads: list[list[tuple[int, int, int]]] = [[] for _ in range(self.size)]
        self.split_reads: list[list[int]] = [[] for _ in range(self.size)]
        for (column, b), pieces in self._pieces.items():
            if len(pieces) == 1:
                self.reads[column].append((b, *pieces[0][:2]))
            else:
                self.split_reads[column].append(b)
        # The last word of a message holds its last bits, and nothing above them.
        self.used_bits = np.uint64((1 << (layout.bits - 1) % WORD + 1) - 1)
        used = (1 << self.size) - 1
        self.used_rows = [
            np.uint64(used >> (WORD * b) & ((1 << WORD) - 1)) for b in range(self.blocks)
        ]
        self.tiles = [
            self._tile(first, min(first + TILE_COLUMNS, self.size))
            for first in range(0, self.size, TILE_COLUMNS)
        ]

    def pieces(self, column: int, block: int) -> list[tuple[int, int, int, int]]:
        """Where a block of a column's rows lies: word, offset, first bit, length of each piece."""
        return self._pieces[column, block]

    def read(self, column: int, block: int, words: Words, out: Words) -> Words:
        """A block of a column's rows into `out`; bits above its last row may be other pieces'."""
        pieces = self._pieces[column, block]
        for i, (word, offset, bit, length) in enumerate(pieces):
            if len(pieces) == 1:
                np.right_shift(words[word], SHIFTS[offset], out=out)
                continue
            part = (words[word] >> SHIFTS[offset]) & np.uint64((1 << length) - 1)
            part <<= SHIFTS[bit]
            out[...] = part if i == 0 else out | part
        return out

    def add(self, column: int, block: int, rows: Words, message: Words) -> None:
        """Add a block of a column's rows, zero above its last row, to a message's words."""
        for word, offset, bit, _ in self._pieces[column, block]:
            # A split piece ends at the end of its word, so what is above it is shifted out.
            part = rows >> SHIFTS[bit] if bit else rows
            message[word] ^= part << SHIFTS[offset]

    def _tile(self, first: int, stop: int) -> Tile:
        own = first // WORD
        inner = range(max(first, WORD * own + 1), stop)
        single = [
            (u - first, *self._pieces[u - 1, own][0])
            for u in inner
            if len(self._pieces[u - 1, own]) == 1
        ]
        folds = [
            [
                (u - first, *self._pieces[u, b][0])
                for u in range(first, stop)
                if len(self._pieces[u, b]) == 1
            ]
            for b in range(own + 1)
        ]
        return Tile(
            first=first,
            stop=stop,
            reads=tuple(_reads(single)),
            split_reads=tuple(u for u in inner if len(self._pieces[u - 1, own]) > 1),
            split=tuple(u for u in range(first, stop) if len(self._pieces[u, own]) > 1),
            diagonal=SHIFTS[1] << _BITS[first - WORD * own : stop - WORD * own],
            folds=tuple(tuple(_folds(entries)) for entries in folds),
            shape=self,
        )


_Entry = tuple[int, int, int, int, int]
"""Row of a tile, then its piece: word, offset, first bit (0), length."""
_SHORT: Final = 3
"""Runs of fewer rows are not worth a call each: they are gathered."""


def _column(values: list[int]) -> Words:
    return np.array(values, dtype=np.uint64)[:, None]


def _reads(entries: list[_Entry]) -> list[Read]:
    """Read pieces by runs at a fixed step; short runs that follow one another by one gather."""
    reads: list[Read] = []
    loose: list[_Entry] = []

    def gather() -> None:
        if loose:
            reads.append(
                Read(
                    slice(loose[0][0], loose[-1][0] + 1),
                    np.array([e[1] for e in loose], dtype=np.intp),
                    _column([e[2] for e in loose]),
                    _column([(1 << e[4]) - 1 for e in loose]),
                )
            )
            loose.clear()

    for run in _runs(entries):
        if len(run) < _SHORT and (not loose or run[0][0] == loose[-1][0] + 1):
            loose.extend(run)
            continue
        gather()
        if len(run) < _SHORT:
            loose.extend(run)
            continue
        shifted, masked = run[0][2] > 0, run[0][2] + run[0][4] < WORD
        reads.append(
            Read(
                slice(run[0][0], run[-1][0] + 1),
                _word_slice(run),
                _column([e[2] for e in run]) if shifted or not masked else None,
                _column([(1 << e[4]) - 1 for e in run]) if masked else None,
            )
        )
    gather()
    return reads


def _folds(entries: list[_Entry]) -> list[Fold | Scatter]:
    """Write pieces by runs at a fixed step; short runs by one scatter."""
    folds: list[Fold | Scatter] = []
    loose: list[_Entry] = []
    for run in _runs(entries):
        if len(run) < _SHORT:
            loose += run
        else:
            shifts = _column([e[2] for e in run]) if run[0][2] else None
            folds.append(Fold(slice(run[0][0], run[-1][0] + 1), _word_slice(run), shifts))
    if loose:
        loose.sort(key=lambda e: e[1])
        words = [e[1] for e in loose]
        ends = [i for i in range(1, len(words) + 1) if i == len(words) or words[i] != words[i - 1]]
        # The scatter takes a copy, and the folds above shift in place, so it comes first.
        folds.insert(
            0,
            Scatter(
                np.array([e[0] for e in loose], dtype=np.intp),
                _column([e[2] for e in loose]),
                tuple(
                    (start, stop, words[start])
                    for start, stop in zip([0, *ends[:-1]], ends, strict=True)
                ),
            ),
        )
    return folds


def _runs(entries: list[_Entry]) -> list[list[_Entry]]:
    """Cut entries into runs: rows go up by one, words by a fixed step, one kind of shift."""
    runs: list[list[_Entry]] = []
    for entry in entries:
        run = runs[-1] if runs else []
        if run and entry[0] == run[-1][0] + 1 and _kind(entry) == _kind(run[-1]):
            step = entry[1] - run[-1][1]
            if step and (len(run) == 1 or step == run[-1][1] - run[-2][1]):
                run.append(entry)
                continue
        runs.append([entry])
    return runs


def _kind(entry: _Entry) -> tuple[bool, bool]:
    """Is the piece shifted? Are there other pieces above it?"""
    return entry[2] > 0, entry[2] + entry[4] < WORD


def _word_slice(run: list[_Entry]) -> slice:
    """The words of a run as a slice."""
    first, last = run[0][1], run[-1][1]
    step = run[1][1] - first
    stop = last + step
    return slice(first, stop if stop >= 0 else None, step)
