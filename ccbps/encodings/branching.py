"""Ishai-Kushilevitz encoding of a mod-2 branching program, perfect, split between two parties.

The program's value is det(L) over GF(2), and L = L_event + L_interest. With shared randomness
R1 (unit upper-triangular), R2 (identity with a uniform last column) and Z (upper-triangular),

    event message    = R1 * L_event    * R2 + Z
    interest message = R1 * L_interest * R2 + Z

Their sum is R1 * L * R2: uniform among the matrices of that shape with the determinant of L, so the
two messages together depend on the answer and on nothing else (see `BranchingEncoding.simulate`).
The ones below the diagonal of L count to the event's half and are not sent.

The decoder REC is the recurrence of the determinant of a matrix with ones below its diagonal, run
from the last column: z_s = 1, z_i = sum over c >= i of m[i, c] * z_{c+1}, answer z_0. One word for
64 of the z's still being summed is enough, so each column costs one AND and one XOR per word.

Everything works on blocks of messages with the batch innermost: word j of all messages of a block
lies contiguous, and one NumPy call treats one word (or many) of the whole block.

Hazard: randomness must be uniform, shared by the two parties only, and used for one pair only.
Sources: Ishai and Kushilevitz, FOCS 2000 and ICALP 2002 (the encoding and its simulator).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ccbps.encodings.halves import SIGN, Half, bit_masks
from ccbps.encodings.tiles import SHIFTS, TILE_COLUMNS, Shape
from ccbps.encodings.triangle import WORD, TriangleLayout
from ccbps.errors import ShapeError
from ccbps.programs.branching import BranchingProgram, Label, sorted_edges

__all__ = ["BranchingEncoding", "Draw"]

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
Draw = Callable[[int, int], Bytes]
"""``draw(start, stop)``: the shared randomness of pairs start .. stop - 1, asked for in order and
once; shape (stop - start, randomness_bytes), uint8, rows contiguous. May reuse one buffer."""

# Block lengths are an odd number of cache lines (8 words each): with a power of two, equal places
# of different words would compete for the same few cache sets, and transposing is 7 times slower.
ENCODE_ROWS: Final = 8 * 257
"""Messages encoded at a time."""
DECODE_ROWS: Final = 8 * 1025
"""Messages decoded at a time: long rows, because REC makes some hundred short calls a block."""
LOAD_ROWS: Final = 256
"""Messages turned from rows into words at a time: source and target both fit the cache."""
BLOCK_BYTES: Final = 64 << 20
"""Working memory of a block at most: large programs are treated in shorter blocks."""


class BranchingEncoding:
    """The two encoders, the decoder and the simulator for one branching program.

    Attributes:
        program: the public program.
        layout: where each bit of a message lies.
        message_bytes: bytes a side, s(s+1)/2 bits rounded up.
        randomness_bytes: bytes of shared randomness for one pair: Z, then R1 and R2, each in
            the layout of a message, in whole words.

    Inputs of the encoders are packed bits: bit i of a party's input is bit ``i % 64``, counted from
    the low end, of word ``i // 64``; shape (words, batch), uint64.
    """

    def __init__(self, program: BranchingProgram) -> None:
        self.program = program
        self.layout = TriangleLayout(program.size)
        self.message_bytes = self.layout.message_bytes
        self.randomness_bytes = 2 * 8 * self.layout.words
        edges = sorted_edges(program.edges)
        self._shape = Shape(self.layout)
        # A constant may belong to either half; the interest's is often one row for a whole batch.
        self._event = Half(
            program.size, [(u, v, Label(event=e.event)) for (u, v), e in edges], "event", True
        )
        self._interest = Half(
            program.size,
            [(u, v, Label(interest=e.interest, one=e.one)) for (u, v), e in edges],
            "interest",
            False,
        )

    @property
    def operations(self) -> dict[str, int]:
        """64-bit word operations a pair, counted from the kernels' steps: {role: operations}.

        Loading and storing a word count as one operation each. A subscriber that encodes one
        predicate for many rounds saves the operations on its labels.
        """
        shape, size, words = self._shape, self.program.size, self._shape.column_words
        common = 4 * self.layout.words + 6 * len(self.layout.partial) + 5 * words + 4 * size

        def half(half: Half) -> int:
            runs = [
                (
                    2 * (min(stop, size) - start),
                    sum(max(0, stop - max(start, WORD * b)) for b in range(shape.blocks)),
                )
                for _, start, stop in half.runs
            ]
            return common + sum(masks + 2 * terms for masks, terms in runs) + 4 * len(half.moves)

        folded = sum(1 for piece in self.layout.partial if piece.offset)
        return {
            "publisher": half(self._event) + self.layout.words,
            "subscriber": half(self._interest),
            "broker": 2 * self.layout.words + 2 * (size - 1) + 2 * words + folded,
        }

    def encode_event(
        self,
        event: Words,
        randomness: Bytes | Draw,
        out: Bytes | None = None,
        *,
        index: NDArray[np.intp] | None = None,
    ) -> Bytes:
        """Event messages.

        Args:
            event: packed event bits, shape (words, batch), or (words, 1) for one event for all.
            randomness: shape (batch, randomness_bytes), uint8, rows contiguous; or a function
                that yields it a few hundred pairs at a time, so that it never leaves the cache.
            out: where to write, shape (batch, message_bytes), rows contiguous. Made when None
                (then `randomness` must be an array).
            index: column of `event` for each message, where few events serve many.

        Returns:
            shape (batch, message_bytes), uint8; unused bits of the last byte are 0.

        Raises:
            ShapeError: a shape does not fit.
        """
        return self._encode(self._event, event, randomness, out, index)

    def encode_interest(
        self,
        interest: Words,
        randomness: Bytes | Draw,
        out: Bytes | None = None,
        *,
        index: NDArray[np.intp] | None = None,
    ) -> Bytes:
        """Interest messages; as `encode_event`."""
        return self._encode(self._interest, interest, randomness, out, index)

    def decode(self, events: Bytes, interests: Bytes, *, skip: int = 0) -> NDArray[np.bool_]:
        """REC: the program's value for each pair of messages.

        Args:
            events, interests: shape (batch, skip + message_bytes), uint8.
            skip: bytes in front of each message to pass over (a header).

        Returns:
            shape (batch,), bool.
        """
        return self.decode_with_heads(events, interests, skip)[0]

    def decode_with_heads(
        self, events: Bytes, interests: Bytes, skip: int
    ) -> tuple[NDArray[np.bool_], Bytes, NDArray[np.bool_]]:
        """As `decode`; also gathers, while the messages are in the cache, what a caller checks.

        Returns:
            answers, shape (batch,); the first `skip` bytes of event and interest messages, shape
            (2, batch, skip); and where unused bits of a message are not zero.
        """
        width = skip + self.message_bytes
        for name, rows in (("events", events), ("interests", interests)):
            if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != width:
                raise ShapeError(
                    f"{name} must be uint8 of shape (batch, {width}), got {rows.dtype} {rows.shape}"
                )
        batch = len(events)
        if batch != len(interests):
            raise ShapeError(f"{batch} events do not pair with {len(interests)} interests")
        events, interests = np.ascontiguousarray(events), np.ascontiguousarray(interests)
        answers, stray = np.empty(batch, dtype=np.bool_), np.empty(batch, dtype=np.bool_)
        heads = np.empty((2, batch, skip), dtype=np.uint8)
        ends = np.empty(batch, dtype=np.uint8)
        rows_at_once = min(_block_rows(DECODE_ROWS, self.layout.words), max(1, batch))
        words = np.empty((self.layout.words, rows_at_once), dtype=np.uint64)
        work = np.empty((self._shape.blocks + 3, rows_at_once), dtype=np.uint64)
        both = np.empty((LOAD_ROWS, width), dtype=np.uint8)
        # One pass sums whole rows, headers too, which is much faster than row by row; one more
        # brings them to word boundaries, which transposing wants.
        aligned = np.zeros((LOAD_ROWS, self.layout.words), dtype="<u8")
        body = aligned.view(np.uint8)[:, : self.message_bytes]
        for start in range(0, batch, rows_at_once):
            count = min(rows_at_once, batch - start)
            for first in range(0, count, LOAD_ROWS):
                n = min(LOAD_ROWS, count - first)
                at = slice(start + first, start + first + n)
                np.bitwise_xor(events[at], interests[at], out=both[:n])
                heads[0, at], heads[1, at] = events[at, :skip], interests[at, :skip]
                ends[at] = events[at, -1]
                body[:n] = both[:n, skip:]
                np.copyto(words[:, first : first + n], aligned[:n].T)
            block = slice(start, start + count)
            # Either message may have them: the events' are looked at, and the sums'.
            stray[block] = words[-1, :count] > self._shape.used_bits
            stray[block] |= ends[block] > self.layout.last_byte_mask
            answers[block] = self._recurrence(words[:, :count], work[:, :count])
        return answers, heads, stray

    def simulate(self, answers: NDArray[np.bool_], uniform: Bytes) -> tuple[Bytes, Bytes]:
        """SIM: a pair of messages made from the answer alone, distributed as the real ones.

        Args:
            answers: shape (batch,), bool.
            uniform: fresh uniform bytes, shape (batch, randomness_bytes).

        Returns:
            event messages and interest messages, each (batch, message_bytes).
        """
        if uniform.shape != (len(answers), self.randomness_bytes):
            raise ShapeError(
                f"uniform must have shape {(len(answers), self.randomness_bytes)}, "
                f"got {uniform.shape}"
            )
        events = uniform[:, : self.message_bytes].copy()
        total = uniform[:, -self.message_bytes :].copy()
        for part in (events, total):
            part[:, -1] &= self.layout.last_byte_mask
        # The edge source -> sink is one path on its own: flipping it flips the determinant.
        position = self.layout.bit_position(0, self.program.size - 1)
        wrong = self.decode(total, np.zeros_like(total)) != answers
        total[:, position // 8] ^= wrong.astype(np.uint8) << (position % 8)
        return events, events ^ total

    def _encode(
        self,
        half: Half,
        inputs: Words,
        randomness: Bytes | Draw,
        out: Bytes | None,
        index: NDArray[np.intp] | None,
    ) -> Bytes:
        if isinstance(randomness, np.ndarray):
            rows = randomness
            _require("randomness", rows, self.randomness_bytes)
            if out is None:
                out = np.empty((len(rows), self.message_bytes), dtype=np.uint8)

            def draw(start: int, stop: int) -> Bytes:
                return rows[start:stop]

            source: Draw = draw
            batch = len(rows)
        elif out is None:
            raise ShapeError("out is needed when randomness is a function")
        else:
            source, batch = randomness, len(out)
        _require("out", out, self.message_bytes)
        if len(out) != batch:
            raise ShapeError(f"out has {len(out)} rows, randomness {batch}")
        columns = batch if index is None else len(index)
        if (
            inputs.dtype != np.uint64
            or inputs.ndim != 2
            or len(inputs) < half.input_words
            or columns != batch
            or (index is None and inputs.shape[1] not in (1, batch))
        ):
            raise ShapeError(
                f"{half.name} bits must be uint64 of shape ({half.input_words}, {batch} or 1), or "
                f"have an index of {batch} columns; got {inputs.dtype} {inputs.shape}"
            )
        if batch == 0:
            return out
        if index is not None and not 0 <= index.min() <= index.max() < inputs.shape[1]:
            raise ShapeError(f"index must lie within the {inputs.shape[1]} columns of bits")
        one_for_all = index is None and inputs.shape[1] == 1
        rows_at_once = _block_rows(ENCODE_ROWS, 2 * self.layout.words)
        work = _Workspace(self._shape, half, min(batch, rows_at_once))
        with _direct_broadcast():
            known = half.labels(inputs) if one_for_all or index is not None else None
            for start in range(0, batch, rows_at_once):
                at = slice(start, min(start + rows_at_once, batch))
                if known is None:
                    labels = half.labels(inputs[:, at])
                elif index is None:
                    labels = known
                else:
                    labels = np.take(known, index[at], axis=2)
                block = work.first(at.stop - at.start)
                self._load(source, at, block)
                self._encode_block(half, labels, out[at], block)
        return out

    def _load(self, draw: Draw, at: slice, work: _Workspace) -> None:
        """Draw the randomness of a block: Z into `work.message`, R1 and R2 into `work.random`."""
        words = self.layout.words
        for start in range(at.start, at.stop, LOAD_ROWS):
            stop = min(start + LOAD_ROWS, at.stop)
            rows = draw(start, stop).view("<u8")
            place = slice(start - at.start, stop - at.start)
            np.copyto(work.message[:, place], rows[:, :words].T)
            np.copyto(work.random[:, place], rows[:, words:].T)

    def _encode_block(self, half: Half, labels: Words, out: Bytes, work: _Workspace) -> None:
        """Encode one block whose randomness is loaded. `labels`: see `Half.labels`."""
        shape, message, random = self._shape, work.message, work.random
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
                    first = self.layout.full[b][0] + tile.first - 1 - self.layout.full[b][1]
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
                        first = self.layout.full[b][0] + low - 1 - self.layout.full[b][1]
                        r1 = random[first : first + high - low]
                    terms = np.bitwise_and(r1, mask, out=work.product[: high - low])
                    half.sum_of(work.sums, column, b)[...] ^= np.bitwise_xor.reduce(terms, axis=0)
        for column in half.columns:
            for b in range(column // WORD + 1):
                shape.add(column, b, half.sum_of(work.sums, column, b), message)
        for b in range(shape.blocks):
            shape.add(shape.size - 1, b, last[b], message)
        message[-1] &= shape.used_bits
        _store(message, out)

    def _recurrence(self, words: Words, work: Words) -> NDArray[np.bool_]:
        """z_0 of the summed messages; `words` has shape (layout.words, rows)."""
        shape, size = self._shape, self.program.size
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


def _require(name: str, rows: Bytes, width: int) -> None:
    """Rows of bytes that can be seen as words: each row contiguous."""
    if (
        rows.dtype != np.uint8
        or rows.ndim != 2
        or rows.shape[1] != width
        or (rows.size and rows.strides[1] != 1)
    ):
        raise ShapeError(
            f"{name} must be uint8 of shape (batch, {width}) with contiguous rows, "
            f"got {rows.dtype} {rows.shape}"
        )


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
