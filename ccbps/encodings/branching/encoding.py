"""Ishai-Kushilevitz encoding of a mod-2 branching program, perfect, split between two parties.

The program's value is det(L) over GF(2), and L = L_event + L_interest. With shared randomness
R1 (unit upper-triangular), R2 (identity with a uniform last column) and Z (upper-triangular)::

    event message    = R1 * L_event    * R2 + Z
    interest message = R1 * L_interest * R2 + Z

Their sum is R1 * L * R2: uniform among the matrices of that shape with the determinant of L, so the
two messages together depend on the answer and on nothing else (see `BranchingEncoding.simulate`).
The ones below the diagonal of L belong to the event's half and are not sent.

The decoder REC is the recurrence of the determinant of a matrix with ones below its diagonal, run
from the last column: z_s = 1, z_i = sum over c >= i of m[i, c] * z_{c+1}, answer z_0. A word holds
64 of the z's, so each column costs one AND and one XOR per word.

The loops run over columns and edges. One NumPy call treats one word of a whole block of messages.

Hazard: randomness must be uniform, shared by the two parties only, and used for one pair only.
Sources: Ishai and Kushilevitz, FOCS 2000 and ICALP 2002 (the encoding and its simulator).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Words
from ccbps.checks import array
from ccbps.encodings.branching.triangle import SHIFTS, WORD, TriangleLayout
from ccbps.encodings.rows import Draw, PairEncoding, draw_rows, require_inputs
from ccbps.programs.branching import BranchingProgram, sorted_edges

# An odd number of cache lines (8 words each): with a power of two, equal places of different words
# would compete for the same few cache sets.
ENCODE_ROWS: Final = 8 * 513
"""Messages encoded together."""
DECODE_ROWS: Final = 8 * 1025
"""Messages decoded together: more, because each column is a call of its own."""
BLOCK_BYTES: Final = 64 << 20
"""Working memory at most: messages of large programs are treated in shorter blocks."""
LOAD_ROWS: Final = 256
"""Messages turned from rows into words at a time: source and target both fit the cache."""

TILE_COLUMNS: Final = 16
"""Columns of R1 multiplied together; divides 64."""

_DIAGONAL: Final = np.uint64(1) << np.arange(WORD, dtype=np.uint64)[:, None]
_TO_SIGN: Final = np.arange(WORD - 1, -1, -1, dtype=np.uint64)[:, None]
_SIGN: Final = np.int64(WORD - 1)


class BranchingEncoding(PairEncoding):
    """Encoders, decoder and simulator of one branching program.

    Inputs of the encoders are rows of packed bits: bit i of a party's input is bit ``i % 64``,
    counted from the low end, of word ``i // 64``; shape (rows, words), uint64.

    Attributes:
        program: the public program.
        layout: place of each bit of a message.
        message_bytes: bytes of a message of either side, s(s+1)/2 bits rounded up.
        randomness_bytes: bytes of shared randomness for one pair: Z, then R1 and R2, each in
            the layout of a message, in whole words.
    """

    def __init__(self, program: BranchingProgram) -> None:
        self.program = program
        self.layout = TriangleLayout(program.size)
        self.message_bytes = self.layout.message_bytes
        self.event_bytes = self.interest_bytes = self.message_bytes
        self.randomness_bytes = 2 * 8 * self.layout.words
        self._event, self._interest = _Half(program, "event"), _Half(program, "interest")

    @property
    def operations(self) -> dict[Literal["publisher", "subscriber", "broker"], int]:
        """Number of 64-bit word operations for a pair, by role, from the steps of the loops.

        Loading and storing a word count as one operation each. A subscriber that encodes one
        predicate for many rounds saves the operations on its labels.
        """
        layout, size, blocks = self.layout, self.program.size, self._event.ones.shape[1]
        held = sum(map(len, layout.pieces))  # words of all columns, were each to start a word

        def encoding(half: _Half) -> int:
            sums = sum(
                2 + 2 * (u // WORD + 1)
                for row, start, stop in half.runs
                for u in range(start, stop)
                if half.columns[row - 1] < size - 1
            )
            labels = 3 * len(half.moves) + 4 * blocks * len(half.columns)
            return 4 * layout.words + 8 * size + 4 * held + labels + sums

        shifted = sum(first > 0 for pieces in layout.pieces for _, first, _ in pieces)
        return {
            "publisher": encoding(self._event),
            "subscriber": encoding(self._interest),
            "broker": 2 * layout.words + 2 * (size - 1) + 2 * held + shifted,
        }

    def encode_event(
        self, event: Words, randomness: Bytes | Draw, out: Bytes | None = None
    ) -> Bytes:
        """Encode event messages.

        Args:
            event: packed event bits, shape (batch, words); or (1, words) for one event for all.
            randomness: shape (batch, randomness_bytes), uint8, rows contiguous; or a function
                that yields it a few hundred pairs at a time, so that it never leaves the cache.
            out: place of the messages, shape (batch, message_bytes), rows contiguous. Made when
                None (then `randomness` must be an array).

        Returns:
            uint8, shape (batch, message_bytes); unused bits of the last byte are 0.

        Raises:
            ShapeError: a shape does not fit.
        """
        return self._encode(self._event, event, randomness, out, None)

    def encode_interest(
        self,
        interest: Words,
        randomness: Bytes | Draw,
        out: Bytes | None = None,
        *,
        index: Index | None = None,
    ) -> Bytes:
        """Encode interest messages, as `encode_event` does.

        Args:
            interest: packed interest bits, shape (rows, words).
            randomness: as for events.
            out: as for events.
            index: row of `interest` for each message, where few interests serve many messages.
        """
        return self._encode(self._interest, interest, randomness, out, index)

    def decode_with_heads(
        self, events: Bytes, interests: Bytes, heads: Bytes
    ) -> tuple[Bools, Bools]:
        events, interests = self.pair_rows(events, interests, heads)
        batch, skip = len(events), heads.shape[2]
        answers, stray = np.empty(batch, dtype=np.bool_), np.empty(batch, dtype=np.bool_)
        rows = self._block_rows(DECODE_ROWS, batch)
        words = np.empty((self.layout.words, rows), dtype=np.uint64)
        # One pass sums whole rows, headers too, which is much faster than row by row; one more
        # brings them to word boundaries, which transposing wants.
        sums = np.empty((LOAD_ROWS, skip + self.message_bytes), dtype=np.uint8)
        aligned = np.zeros((LOAD_ROWS, self.layout.words), dtype="<u8")
        body = aligned.view(np.uint8)[:, : self.message_bytes]
        for first in range(0, batch, rows):
            last = min(first + rows, batch)
            for at in _parts(first, last):
                part = sums[: at.stop - at.start]
                np.bitwise_xor(events[at], interests[at], out=part)
                heads[0, at], heads[1, at] = events[at, :skip], interests[at, :skip]
                stray[at] = (events[at, -1] | interests[at, -1]) > self.layout.last_byte_mask
                body[: len(part)] = part[:, skip:]
                words[:, at.start - first : at.stop - first] = aligned[: len(part)].T
            answers[first:last] = self._recurrence(list(words[:, : last - first]))
        return answers, stray

    def simulate(self, answers: Bools, uniform: Bytes) -> tuple[Bytes, Bytes]:
        """Make a pair of messages from the answer alone, distributed as the real ones (SIM).

        Args:
            answers: shape (batch,), bool.
            uniform: fresh uniform bytes, shape (batch, randomness_bytes).

        Returns:
            event messages and interest messages, each (batch, message_bytes).
        """
        array("uniform", uniform, np.uint8, (len(answers), self.randomness_bytes))
        events = uniform[:, : self.message_bytes].copy()
        total = uniform[:, -self.message_bytes :].copy()
        for part in (events, total):
            part[:, -1] &= self.layout.last_byte_mask
        # The edge source -> sink is one path on its own: flipping it flips the determinant.
        position = self.layout.bit_position(0, self.program.size - 1)
        wrong = self.decode(total, np.zeros_like(total)) != answers
        total[:, position // 8] ^= wrong.astype(np.uint8) << (position % 8)
        return events, events ^ total

    def _recurrence(self, words: list[Words]) -> Bools:
        """Return z_0 of the summed messages; `words` has an array for each word."""
        layout, last = self.layout, self.program.size - 1
        blocks = range(len(layout.pieces[last]))
        z = [layout.read(words, last, block, np.empty_like(words[0])).copy() for block in blocks]
        mask, part = np.empty((1, len(words[0])), dtype=np.uint64), np.empty_like(words[0])
        for node in range(last, 0, -1):
            bit = slice(node % WORD, node % WORD + 1)
            _spread(z[node // WORD], bit, mask)
            for block in range(len(layout.pieces[node - 1])):
                # Rows past the column's last one are not read any more.
                rows = layout.read(words, node - 1, block, part, exact=False)
                np.bitwise_and(rows, mask[0], part)
                np.bitwise_xor(z[block], part, z[block])
        return (z[0] & SHIFTS[1]).astype(np.bool_)

    def _multiply(self, half: _Half, labels: Words, random: Words, message: Words) -> None:
        """Set messages to R1 * L_half * R2; words have shape (words, messages)."""
        layout, last, rows = self.layout, self.program.size - 1, random.shape[1]
        # R1 times the ones below the diagonal of L is R1 moved by one column: column c + 1 of R1
        # lies in `random` just where column c of a message does.
        message[:] = random if half.ones_below else 0
        r2 = np.empty((labels.shape[1], rows), dtype=np.uint64)
        for block, out in enumerate(r2):
            out[:] = layout.read(random, last, block, out)
        # Bits that came along with R1, but are not R1's, are taken out again.
        total = r2.copy() if half.ones_below else np.zeros_like(r2)
        # R2's last column ends with a one.
        r2[-1] |= SHIFTS[1] << SHIFTS[last % WORD]
        mixed = half.mix(labels, r2)
        own, mask, terms = np.empty((3, TILE_COLUMNS, rows), dtype=np.uint64)
        for first in range(0, last + 1, TILE_COLUMNS):
            stop, block = min(first + TILE_COLUMNS, last + 1), first // WORD
            count, bits = stop - first, slice(first - WORD * block, stop - WORD * block)
            # Column u of R1 is a one on the diagonal under column u - 1 of the random triangle.
            for u, out in enumerate(own[:count], first):
                if u % WORD:
                    layout.read(random, u - 1, block, out)
                else:
                    out[:] = 0
            own[:count] |= _DIAGONAL[bits]
            starts = [layout.pieces[first - 1][b][0] for b in range(block)]
            columns = [*(random[word : word + count] for word in starts), own[:count]]

            factors = _spread(mixed[block], bits, mask)
            for b, r1 in enumerate(columns):
                total[b] ^= _sum(r1, factors, terms)
            factors = _spread(labels[0, block], bits, mask)
            for b, r1 in enumerate(columns):
                product = np.bitwise_and(r1, factors, terms[:count])
                if b < block:
                    word = layout.pieces[first][b][0]
                    message[word : word + count] ^= product
                else:
                    for u, part in enumerate(product, first):
                        layout.add(message, u, b, part)
            for row, start, end in half.runs:
                column, low, high = half.columns[row - 1], max(start, first), min(end, stop)
                if low < high and column < last:
                    bits = slice(low - WORD * block, high - WORD * block)
                    factors = _spread(labels[row, block], bits, mask)
                    for b, r1 in enumerate(columns):
                        part = _sum(r1[low - first : high - first], factors, terms)
                        layout.add(message, column, b, part)
        for block, part in enumerate(total):
            layout.add(message, last, block, part)

    def _encode(
        self,
        half: _Half,
        inputs: Words,
        randomness: Bytes | Draw,
        out: Bytes | None,
        index: Index | None,
    ) -> Bytes:
        draw, out = draw_rows(randomness, self.randomness_bytes, out, self.message_bytes)
        batch = len(out)
        require_inputs(half.name, inputs, half.input_words, batch, index, exact=False)
        # Labels of few inputs for many messages are computed once.
        few = half.labels(inputs) if index is not None or len(inputs) == 1 else None
        words, rows = self.layout.words, self._block_rows(ENCODE_ROWS, batch)
        random, message = np.empty((2, words, rows), dtype=np.uint64)
        stored = np.empty((LOAD_ROWS, words), dtype="<u8")
        body = stored.view(np.uint8)[:, : self.message_bytes]
        for first in range(0, batch, rows):
            last = min(first + rows, batch)
            for at in _parts(first, last):
                drawn = draw(at.start, at.stop)
                out[at] = drawn[:, : self.message_bytes]
                random[:, at.start - first : at.stop - first] = drawn[:, 8 * words :].view("<u8").T
            if few is None:
                labels = half.labels(inputs[first:last])
            else:
                labels = few if index is None else np.take(few, index[first:last], axis=2)
            # NumPy would copy one operand of ``rows op column`` into its buffer, row by row, where
            # rows are shorter than half of it, and take twice the time.
            buffer = np.setbufsize(16)
            try:
                self._multiply(half, labels, random[:, : last - first], message[:, : last - first])
            finally:
                np.setbufsize(buffer)
            for at in _parts(first, last):
                part = stored[: at.stop - at.start]
                part[:] = message[:, at.start - first : at.stop - first].T
                out[at] ^= body[: len(part)]
                out[at, -1] &= self.layout.last_byte_mask
        return out

    def _block_rows(self, rows: int, batch: int) -> int:
        """Return the number of messages to treat together: `rows`, or as many as memory allows."""
        fitting = BLOCK_BYTES // (8 * 8 * self.layout.words)
        return max(1, min(batch, 8 * (min(rows // 8, max(1, fitting)) - 1 | 1)))


def _parts(start: int, stop: int) -> Iterator[slice]:
    """Yield slices of `LOAD_ROWS` rows."""
    for first in range(start, stop, LOAD_ROWS):
        yield slice(first, min(first + LOAD_ROWS, stop))


def _sum(columns: Words, factors: Words, terms: Words) -> Words:
    """Return the sum of the columns times their factors, modulo 2; `terms` is overwritten."""
    products = np.bitwise_and(columns, factors, terms[: len(columns)])
    total: Words = np.bitwise_xor.reduce(products, axis=0)
    return total


class _Half:
    """One party's half of a program's matrix L: its part of each edge's label, packed by source.

    Labels are affine bits of the party's input. They are computed packed, many to a word, by moving
    many input bits at once. The encoder then spreads them to words of ones or zeros, one for each
    message.

    Row 0 of the labels has the diagonal of L: the edges u -> u + 1, but for the one into the sink.
    Each other row has the edges into one column.

    Attributes:
        name: "event" or "interest".
        ones_below: True if the ones below the diagonal of L belong to this half.
        columns: the column of each row but the first.
        runs: neighbouring sources of edges into one column: (row, first source, end).
        moves: input bits that are added to labels: {(row, word of the row, word of the input,
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
            constant = label.one and name == "interest"
            if not bits and not constant:
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
            if constant:
                ones.append((row, u))
        blocks = -(-program.size // WORD)
        self.ones = np.zeros((1 + len(self.columns), blocks, 1), dtype=np.uint64)
        for row, u in ones:
            self.ones[row, u // WORD] |= _DIAGONAL[u % WORD]
        self.input_words = 1 + max((source for _, _, source, _ in self.moves), default=-1)

    def labels(self, inputs: Words) -> Words:
        """Return the labels for rows of packed input bits, shape (rows, words, batch)."""
        labels = np.repeat(self.ones, len(inputs), axis=2)
        for (row, word, source, shift), mask in self.moves.items():
            bits = inputs[:, source] & np.uint64(mask)
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
            mixed ^= labels[row] & _spread(r2[column // WORD], bit, np.empty_like(r2[:1]))
        return mixed


def _spread(word: Words, bits: slice, out: Words) -> Words:
    """Return bits of a word as all ones or zero: shape (batch,) -> (bits, batch), in `out`."""
    masks: Words = np.left_shift(word, _TO_SIGN[bits], out[: bits.stop - bits.start, : len(word)])
    signed = masks.view(np.int64)
    np.right_shift(signed, _SIGN, signed)
    return masks
