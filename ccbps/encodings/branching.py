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
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ccbps.encodings.triangle import WORD, TriangleLayout
from ccbps.errors import ShapeError
from ccbps.programs.branching import BranchingProgram, Label, sorted_edges

__all__ = ["BranchingEncoding"]

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
Draw = Callable[[int, int], Bytes]
"""``draw(start, stop)``: the shared randomness of pairs start .. stop - 1, asked for in order and
once; shape (stop - start, randomness_bytes), uint8, rows contiguous. May reuse one buffer."""

# Block lengths are an odd number of cache lines (8 words each): with a power of two, equal places
# of different words would compete for the same few cache sets, and transposing is 7 times slower.
ENCODE_ROWS: Final = 8 * 257
"""Messages encoded at a time."""
ENCODE_COLUMNS: Final = 64
"""Columns of R1 treated at a time, at most those of one block of rows."""
DECODE_ROWS: Final = 8 * 1025
"""Messages decoded at a time: long rows, because REC makes some hundred short calls a block."""
LOAD_ROWS: Final = 256
"""Messages turned from rows into words at a time: source and target both fit the cache."""
BLOCK_BYTES: Final = 64 << 20
"""Working memory of a block at most: large programs are treated in shorter blocks."""
SHIFTS: Final = tuple(np.uint64(i) for i in range(WORD))
SIGN: Final = np.int64(WORD - 1)
_BITS: Final = np.arange(WORD, dtype=np.uint64)[:, None]
_TO_SIGN: Final = np.ascontiguousarray(_BITS[::-1])


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
        self._shape = _Shape(self.layout)
        # A constant may belong to either half; the interest's is often one row for a whole batch.
        self._event = _Half(
            program.size, [(u, v, Label(event=e.event)) for (u, v), e in edges], "event", True
        )
        self._interest = _Half(
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

        def half(half: _Half) -> int:
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
        half: _Half,
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

    def _encode_block(self, half: _Half, labels: Words, out: Bytes, work: _Workspace) -> None:
        """Encode one block whose randomness is loaded. `labels`: see `_Half.labels`."""
        shape, message, random = self._shape, work.message, work.random
        if half.below_diagonal:
            # R1 times the ones below the diagonal of L is R1 moved by one column: column c + 1 of
            # R1 lies in `random` just where column c of a message does.
            np.bitwise_xor(message, random, out=message)
        last = work.last
        for b in range(shape.blocks):
            shape.read(shape.size - 1, b, random, last[b])
            last[b] &= shape.used_rows[b]
        mixed = half.mix(labels, last, work)
        if not half.below_diagonal:
            last.fill(0)  # else it takes out again what is not R1's but came along with it
        work.sums.fill(0)

        for tile in shape.tiles:
            top = WORD * (tile.first // WORD)
            count, place = tile.stop - tile.first, slice(tile.first - top, tile.stop - top)
            b_own = top // WORD
            mix = _masks(mixed[b_own], place, work.mix)
            diagonal = _masks(labels[0, b_own], place, work.mask)
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
                mask = _masks(labels[1 + run, b_own], slice(low - top, high - top), work.mask)
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


def _masks(word: Words, bits: slice, out: Words) -> Words:
    """Bits of a word as all-ones or zero words: (rows,) -> (bits, rows), in `out` where it fits."""
    out = out[: bits.stop - bits.start, : len(word)]
    np.left_shift(word, _TO_SIGN[bits], out=out)
    signed = out.view(np.int64)
    np.right_shift(signed, SIGN, out=signed)
    return out


class _Half:
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

    def mix(self, labels: Words, last: Words, work: _Workspace) -> Words:
        """L_half times R2's last column, without its 1 at the end: packed, shape (blocks, rows)."""
        mixed: Words = np.bitwise_and(labels[0], last, out=work.mixed)
        mixed[-1] &= np.uint64((1 << (self.size - 1) % WORD) - 1)
        if self.below_diagonal:
            mixed ^= last << SHIFTS[1]
            mixed[1:] ^= last[:-1] >> SHIFTS[WORD - 1]
        for run, (column, start, stop) in enumerate(self.runs):
            if column == self.size - 1:
                continue
            factor = _masks(
                last[column // WORD], slice(column % WORD, column % WORD + 1), work.mask
            )
            blocks = slice(start // WORD, (stop - 1) // WORD + 1)
            mixed[blocks] ^= labels[1 + run, blocks] & factor
        return mixed

    def sum_of(self, sums: Words, column: int, block: int) -> Words:
        """Where the sum of a column's runs is kept for a block of rows."""
        out: Words = sums[self._sum_rows[column] + block]
        return out


class _Workspace:
    """Arrays of one block of messages, made once and used for every block of a batch."""

    def __init__(self, shape: _Shape, half: _Half, rows: int) -> None:
        def words(count: int) -> Words:
            return np.empty((count, rows), dtype=np.uint64)

        self.message, self.random = words(shape.layout.words), words(shape.layout.words)
        self.last, self.mixed = words(shape.blocks), words(shape.blocks)
        self.sums = words(half.sum_rows)
        self.r1, self.product = words(ENCODE_COLUMNS), words(ENCODE_COLUMNS)
        self.mask, self.mix = words(ENCODE_COLUMNS), words(ENCODE_COLUMNS)

    def first(self, rows: int) -> _Workspace:
        """The same arrays, cut to a last, shorter block."""
        if rows == self.message.shape[1]:
            return self
        cut = object.__new__(_Workspace)
        for name, array in vars(self).items():
            setattr(cut, name, array[:, :rows])
        return cut


@dataclass(frozen=True, slots=True)
class _Read:
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
class _Fold:
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
class _Scatter:
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
class _Tile:
    """Columns first .. stop - 1 of R1, all within one block: how to read and where to write them.

    In its own block, column u of R1 is its diagonal entry, a one, on top of the piece of column
    u - 1 of the randomness. `reads` brings those pieces out, `folds` puts products into their own
    column's pieces; the few columns whose pieces are not in one place are in `split_reads` and
    `split`. In lower blocks all pieces are whole words.
    """

    first: int
    stop: int
    reads: tuple[_Read, ...]
    split_reads: tuple[int, ...]
    split: tuple[int, ...]
    diagonal: Words
    folds: tuple[tuple[_Fold | _Scatter, ...], ...]
    shape: _Shape

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


class _Shape:
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
            self._tile(first, min(first + ENCODE_COLUMNS, self.size))
            for first in range(0, self.size, ENCODE_COLUMNS)
        ]

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
        for word, offset, bit, length in self._pieces[column, block]:
            part = rows >> SHIFTS[bit] if bit else rows
            if bit or bit + length < min(WORD, column - WORD * block + 1):
                part = part & np.uint64((1 << length) - 1)
            message[word] ^= part << SHIFTS[offset]

    def _tile(self, first: int, stop: int) -> _Tile:
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
        return _Tile(
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


def _reads(entries: list[_Entry]) -> list[_Read]:
    """Read pieces by runs at a fixed step; short runs that follow one another by one gather."""
    reads: list[_Read] = []
    loose: list[_Entry] = []

    def gather() -> None:
        if loose:
            reads.append(
                _Read(
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
            _Read(
                slice(run[0][0], run[-1][0] + 1),
                _word_slice(run),
                _column([e[2] for e in run]) if shifted or not masked else None,
                _column([(1 << e[4]) - 1 for e in run]) if masked else None,
            )
        )
    gather()
    return reads


def _folds(entries: list[_Entry]) -> list[_Fold | _Scatter]:
    """Write pieces by runs at a fixed step; short runs by one scatter."""
    folds: list[_Fold | _Scatter] = []
    loose: list[_Entry] = []
    for run in _runs(entries):
        if len(run) < _SHORT:
            loose += run
        else:
            shifts = _column([e[2] for e in run]) if run[0][2] else None
            folds.append(_Fold(slice(run[0][0], run[-1][0] + 1), _word_slice(run), shifts))
    if loose:
        loose.sort(key=lambda e: e[1])
        words = [e[1] for e in loose]
        ends = [i for i in range(1, len(words) + 1) if i == len(words) or words[i] != words[i - 1]]
        # The scatter takes a copy, and the folds above shift in place, so it comes first.
        folds.insert(
            0,
            _Scatter(
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
