"""The encoders' and the decoder's inner loops in NumPy.

Everything works on blocks of messages with the batch innermost: word j of all messages of a block
lies contiguous, and one NumPy call treats one word (or many) of the whole block.
`ccbps.encodings.branching.compiled_kernels` does the same steps, and takes their place where Numba
is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Words
from ccbps.encodings.branching.halves import SIGN, Half, bit_masks
from ccbps.encodings.branching.tiles import SHIFTS, TILE_COLUMNS, Shape
from ccbps.encodings.branching.triangle import WORD
from ccbps.encodings.rows import Draw

Flags = NDArray[np.bool_]
# Block lengths are an odd number of cache lines (8 words each): with a power of two, equal places
# of different words would compete for the same few cache sets, and transposing is 7 times slower.
ENCODE_ROWS: Final = 8 * 257
"""Messages encoded at a time."""
DECODE_ROWS: Final = 8 * 1025
"""Messages decoded at a time: long rows, because REC makes some hundred short calls per block."""
LOAD_ROWS: Final = 256
"""Messages turned from rows into words at a time: source and target both fit the cache."""
BLOCK_BYTES: Final = 64 << 20
"""Working memory of a block at most: large programs are treated in shorter blocks."""


class ArrayEncoder:
    """One party's encoder for one program and one batch.

    Attributes:
        rows: messages to encode in one call.
    """

    def __init__(self, shape: Shape, half: Half, batch: int) -> None:
        self.rows = _block_rows(ENCODE_ROWS, 2 * shape.layout.words)
        self._shape, self._half = shape, half
        self._work = _Workspace(shape, half, min(batch, self.rows))

    def encode(self, draw: Draw, at: slice, labels: Words, out: Bytes) -> None:
        """Encode messages `at` of the batch, `rows` at most, to `out`.

        `labels`: of those messages, or of one for all; see `Half.labels`.
        """
        work, words = self._work.first(at.stop - at.start), self._shape.layout.words
        # Z goes to the message, R1 and R2 to `random`.
        for start in range(at.start, at.stop, LOAD_ROWS):
            stop = min(start + LOAD_ROWS, at.stop)
            rows = draw(start, stop).view("<u8")
            place = slice(start - at.start, stop - at.start)
            np.copyto(work.message[:, place], rows[:, :words].T)
            np.copyto(work.random[:, place], rows[:, words:].T)
        with _direct_broadcast():
            self._add(labels, work)
        _store(work.message, out)

    def _add(self, labels: Words, work: _Workspace) -> None:
        """Add R1 times this half of L times R2 to the block's messages."""
        shape, half, message, random = self._shape, self._half, work.message, work.random
        if half.below_diagonal:
            # R1 times the ones below the diagonal of L is R1 moved by one column: column c + 1 of
            # R1 lies in `random` just where column c of a message does.
            np.bitwise_xor(message, random, out=message)
        last = work.last
        for b in range(shape.blocks):
            shape.read(shape.size - 1, b, random, last[b])
            last[b] &= shape.used_rows[b]
        mixed = half.mix(labels, last, work.mixed)
        if not half.below_diagonal:
            last.fill(0)  # else it takes out again what is not R1's but came along with it
        work.sums.fill(0)

        for tile in shape.tiles:
            top = WORD * (tile.first // WORD)
            count, place = tile.stop - tile.first, slice(tile.first - top, tile.stop - top)
            b_own = top // WORD
            mix = bit_masks(mixed[b_own], place, work.mix)
            diagonal = bit_masks(labels[0, b_own], place, work.mask)
            for b in range(b_own + 1):
                if b == b_own:
                    r1 = tile.unfold(random, work.r1[:count])
                else:
                    first = shape.layout.full[b][0] + tile.first - 1 - shape.layout.full[b][1]
                    r1 = random[first : first + count]
                product = np.bitwise_and(r1, mix, out=work.product[:count])
                last[b] ^= np.bitwise_xor.reduce(product, axis=0)
                if half.diagonal[b_own]:
                    np.bitwise_and(r1, diagonal, out=product)
                    for fold in tile.folds[b]:
                        fold.add(product, message)
                    if b == b_own:
                        for u in tile.split:
                            shape.add(u, b, product[u - tile.first], message)
            for run, (column, start, stop) in enumerate(half.runs):
                low, high = max(start, tile.first), min(stop, tile.stop)
                if low >= high:
                    continue
                mask = bit_masks(labels[1 + run, b_own], slice(low - top, high - top), work.mask)
                at = slice(low - tile.first, high - tile.first)
                for b in range(b_own + 1):
                    if b == b_own:
                        r1 = work.r1[at]
                    else:
                        first = shape.layout.full[b][0] + low - 1 - shape.layout.full[b][1]
                        r1 = random[first : first + high - low]
                    terms = np.bitwise_and(r1, mask, out=work.product[: high - low])
                    half.sum_of(work.sums, column, b)[...] ^= np.bitwise_xor.reduce(terms, axis=0)
        for column in half.columns:
            for b in range(column // WORD + 1):
                shape.add(column, b, half.sum_of(work.sums, column, b), message)
        for b in range(shape.blocks):
            shape.add(shape.size - 1, b, last[b], message)
        message[-1] &= shape.used_bits


class ArrayDecoder:
    """REC for one program and one batch.

    Attributes:
        rows: pairs to decode in one call.
    """

    def __init__(self, shape: Shape, width: int, batch: int) -> None:
        words = shape.layout.words
        self.rows = _block_rows(DECODE_ROWS, words)
        self._shape = shape
        rows = min(batch, self.rows)
        self._words = np.empty((words, rows), dtype=np.uint64)
        self._work = np.empty((shape.blocks + 3, rows), dtype=np.uint64)
        # One pass sums whole rows, headers too, which is much faster than row by row; one more
        # brings them to word boundaries, which transposing wants.
        self._both = np.empty((LOAD_ROWS, width), dtype=np.uint8)
        self._aligned = np.zeros((LOAD_ROWS, words), dtype="<u8")

    def decode(
        self, events: Bytes, interests: Bytes, heads: Bytes, answers: Flags, stray: Flags
    ) -> None:
        """Decode `rows` pairs at most.

        Args:
            events, interests: messages behind their headers.
            heads: where headers go, shape (2, batch, bytes of a header).
            answers, stray: where answers go, and whether unused bits of a message are not zero.
        """
        batch, skip, layout = len(events), heads.shape[2], self._shape.layout
        words, both = self._words[:, :batch], self._both
        body = self._aligned.view(np.uint8)[:, : layout.message_bytes]
        for start in range(0, batch, LOAD_ROWS):
            at = slice(start, min(start + LOAD_ROWS, batch))
            n = at.stop - start
            np.bitwise_xor(events[at], interests[at], out=both[:n])
            heads[0, at], heads[1, at] = events[at, :skip], interests[at, :skip]
            # Either message may have them: the events' are looked at, and the sums'.
            np.greater(events[at, -1], layout.last_byte_mask, out=stray[at])
            body[:n] = both[:n, skip:]
            np.copyto(words[:, at], self._aligned[:n].T)
        stray |= words[-1] > self._shape.used_bits
        answers[...] = self._recurrence(words, self._work[:, :batch])

    def _recurrence(self, words: Words, work: Words) -> NDArray[np.bool_]:
        """z_0 of the summed messages; `words` has shape (layout.words, rows)."""
        shape, size = self._shape, self._shape.size
        source = list(words)
        sums = list(work[: shape.blocks])
        mask, part, term = work[shape.blocks :]
        signed = mask.view(np.int64)
        left, right, conj, xor = np.left_shift, np.right_shift, np.bitwise_and, np.bitwise_xor
        for b in range(shape.blocks):
            shape.read(size - 1, b, words, sums[b])
        for i in range(size - 1, 0, -1):
            left(sums[i // WORD], SHIFTS[WORD - 1 - i % WORD], mask)
            right(signed, SIGN, signed)
            for b, word, shift in shape.reads[i - 1]:
                piece = right(source[word], SHIFTS[shift], part) if shift else source[word]
                conj(piece, mask, term)
                xor(sums[b], term, sums[b])
            for b in shape.split_reads[i - 1]:
                conj(shape.read(i - 1, b, words, part), mask, term)
                xor(sums[b], term, sums[b])
        answers: NDArray[np.bool_] = (sums[0] & SHIFTS[1]).astype(np.bool_)
        return answers


def _block_rows(rows: int, words: int) -> int:
    """`rows`, or as many as keep `words` words each within `BLOCK_BYTES`: 8 times an odd number."""
    return 8 * (min(rows // 8, max(1, BLOCK_BYTES // (64 * words))) - 1 | 1)


def _store(words: Words, rows: Bytes) -> None:
    """Words (words, batch) to rows of bytes (batch, bytes), little-endian, the last word cut."""
    whole = rows.shape[1] // 8
    np.copyto(rows[:, : 8 * whole].view("<u8").T, words[:whole])
    if whole < len(words):
        tail = words[whole].astype("<u8").view(np.uint8).reshape(-1, 8)
        for i in range(8 * whole, rows.shape[1]):
            rows[:, i] = tail[:, i - 8 * whole]


@contextmanager
def _direct_broadcast() -> Iterator[None]:
    """Keep NumPy from copying one operand of ``rows op column`` into its buffer, row by row.

    It does so where rows are shorter than half its buffer, and then takes twice the time.
    """
    size = np.setbufsize(16)
    try:
        yield
    finally:
        np.setbufsize(size)


class _Workspace:
    """Arrays of one block of messages, made once and used for every block of a batch."""

    def __init__(self, shape: Shape, half: Half, rows: int) -> None:
        def words(count: int) -> Words:
            return np.empty((count, rows), dtype=np.uint64)

        self.message, self.random = words(shape.layout.words), words(shape.layout.words)
        self.last, self.mixed = words(shape.blocks), words(shape.blocks)
        self.sums = words(half.sum_rows)
        self.r1, self.product = words(TILE_COLUMNS), words(TILE_COLUMNS)
        self.mask, self.mix = words(TILE_COLUMNS), words(TILE_COLUMNS)

    def first(self, rows: int) -> _Workspace:
        """The same arrays, cut to a last, shorter block."""
        if rows == self.message.shape[1]:
            return self
        cut = object.__new__(_Workspace)
        for name, array in vars(self).items():
            setattr(cut, name, array[:, :rows])
        return cut
