"""The encoders' and the decoder's inner loops, compiled by Numba (extra ``compiled``).

The same bits as `ccbps.encodings.branching.array_kernels`, in about half the time: a few messages
at a time stay in the nearest caches from the first to the last step, where NumPy passes whole
arrays through the second level once for every operation. Loops run over plans, tables of where each
piece of a column lies, so they are compiled once for all programs, and take no branch on a secret.

Importing this module compiles (about 5 s); see `ccbps.compiled`.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Words
from ccbps.compiled import compile_kernel
from ccbps.encodings.branching.halves import Half
from ccbps.encodings.branching.kernel_plans import decoder_plan, encoder_plan
from ccbps.encodings.branching.tiles import Shape
from ccbps.encodings.branching.triangle import WORD
from ccbps.encodings.rows import Draw

Flags = NDArray[np.bool_]

CACHE_BYTES: Final = 1 << 18
"""Memory for the words of the messages treated together: they are passed over a few times only."""
MOST_LANES: Final = 64
"""Messages treated together, at most: 512 bytes of each word."""
ROWS: Final = 32 * MOST_LANES
"""Messages whose labels are computed at a time."""
DRAW_BYTES: Final = 1 << 19
"""Randomness drawn at a time, for whole `MOST_LANES`: it stays in the second-level cache."""

# Rows of messages may be read-only, start anywhere and have any step: one compilation serves all.
_WORD_ROWS = types.Array(types.uint64, 2, "A", readonly=True, aligned=False)
_BYTE_ROWS = types.Array(types.uint8, 2, "A", readonly=True)
_WORD_ROWS_OUT = types.Array(types.uint64, 2, "A", aligned=False)
_BYTE_ROWS_OUT = types.Array(types.uint8, 2, "A")
_LABELS = types.Array(types.uint64, 3, "A", readonly=True)
_PLAN = types.Array(types.uint64, 1, "C", readonly=True)
_FLAGS = types.Array(types.boolean, 1, "A")


@numba.njit
def _table(plan, number):  # type: ignore[no-untyped-def]
    start, rows, columns = plan[3 * number], plan[3 * number + 1], plan[3 * number + 2]
    return plan[start : start + rows * columns].reshape((rows, columns))


@numba.njit
def _mask(word, bit):  # type: ignore[no-untyped-def]
    """All ones if the bit is set, else zero."""
    return np.uint64(0) - ((word >> bit) & np.uint64(1))


@numba.njit
def _load(rows, words):  # type: ignore[no-untyped-def]
    """Rows to words, eight messages at a time: each cache line of `words` is filled at once."""
    whole = rows.shape[0] // 8 * 8
    for first in range(0, whole, 8):
        for w in range(rows.shape[1]):
            for k in range(8):
                words[w, first + k] = rows[first + k, w]
    for lane in range(whole, rows.shape[0]):
        for w in range(rows.shape[1]):
            words[w, lane] = rows[lane, w]


@numba.njit
def _load_sums(events, interests, words):  # type: ignore[no-untyped-def]
    """As `_load`, the sum of two messages."""
    whole = events.shape[0] // 8 * 8
    for first in range(0, whole, 8):
        for w in range(events.shape[1]):
            for k in range(8):
                words[w, first + k] = events[first + k, w] ^ interests[first + k, w]
    for lane in range(whole, events.shape[0]):
        for w in range(events.shape[1]):
            words[w, lane] = events[lane, w] ^ interests[lane, w]


@compile_kernel(types.void(_WORD_ROWS, _WORD_ROWS_OUT, _BYTE_ROWS_OUT, _LABELS, types.int64, _PLAN))
def _encode(randomness, out, tails, labels, lanes, plan):  # type: ignore[no-untyped-def]
    """The steps of `ArrayEncoder`, for `lanes` messages at a time."""
    facts = _table(plan, 0)
    size, below, used, sum_rows = facts[0, 0], facts[0, 1], facts[0, 2], facts[0, 3]
    steps, reads, writes = _table(plan, 1), _table(plan, 2), _table(plan, 3)
    runs = _table(plan, 4)
    mixed_runs, sum_pieces, last_pieces = _table(plan, 5), _table(plan, 6), _table(plan, 7)
    words, blocks = randomness.shape[1] // 2, labels.shape[1]
    one, six, low = np.uint64(1), np.uint64(6), np.uint64(WORD - 1)
    message = np.zeros((words, lanes), dtype=np.uint64)
    random = np.zeros((words, lanes), dtype=np.uint64)
    label = np.zeros((labels.shape[0], blocks, lanes), dtype=np.uint64)
    last = np.zeros((blocks, lanes), dtype=np.uint64)
    mixed = np.zeros((blocks, lanes), dtype=np.uint64)
    sums = np.zeros((sum_rows + one, lanes), dtype=np.uint64)
    column = np.zeros(lanes, dtype=np.uint64)
    for base in range(0, randomness.shape[0], lanes):
        count = min(lanes, randomness.shape[0] - base)
        rows = randomness[base : base + count]
        _load(rows[:, :words], message)
        _load(rows[:, words:], random)
        for q in range(labels.shape[0]):
            for b in range(blocks):
                if labels.shape[2] > 1:
                    for lane in range(count):
                        label[q, b, lane] = labels[q, b, base + lane]
                elif base == 0:
                    label[q, b, :] = labels[q, b, 0]
        if below:
            for w in range(words):
                for lane in range(lanes):
                    message[w, lane] ^= random[w, lane]

        # R2's last column, and this half of L times it.
        last[:] = 0
        for i in range(last_pieces.shape[0]):
            b, w, used_rows = last_pieces[i, 0], last_pieces[i, 1], last_pieces[i, 4]
            offset, bit = last_pieces[i, 2], last_pieces[i, 3]
            for lane in range(lanes):
                last[b, lane] |= ((random[w, lane] >> offset) & used_rows) << bit
        for b in range(blocks):
            for lane in range(lanes):
                mixed[b, lane] = label[0, b, lane] & last[b, lane]
        top = (one << ((size - one) & low)) - one
        for lane in range(lanes):
            mixed[blocks - 1, lane] &= top
        if below:
            for b in range(blocks):
                for lane in range(lanes):
                    mixed[b, lane] ^= last[b, lane] << one
                    if b > 0:
                        mixed[b, lane] ^= last[b - 1, lane] >> low
        for i in range(mixed_runs.shape[0]):
            q, c = mixed_runs[i, 0], mixed_runs[i, 1]
            for b in range(mixed_runs[i, 2], mixed_runs[i, 3]):
                for lane in range(lanes):
                    mixed[b, lane] ^= label[q, b, lane] & _mask(last[c >> six, lane], c & low)
        if not below:
            last[:] = 0  # else it takes out again what is not R1's but came along with it
        sums[:] = 0

        # R1 times this half of L: column u of R1 goes wherever an edge leaves node u.
        for i in range(steps.shape[0]):
            u, b, diagonal = steps[i, 0], steps[i, 1], steps[i, 2]
            own, at = u >> six, u & low
            for lane in range(lanes):
                column[lane] = diagonal
            for p in range(steps[i, 3], steps[i, 4]):
                w, offset, bit, own_rows = reads[p, 0], reads[p, 1], reads[p, 2], reads[p, 3]
                for lane in range(lanes):
                    column[lane] |= ((random[w, lane] >> offset) & own_rows) << bit
            for lane in range(lanes):
                last[b, lane] ^= column[lane] & _mask(mixed[own, lane], at)
            for p in range(steps[i, 5], steps[i, 6]):
                w, offset, bit = writes[p, 0], writes[p, 1], writes[p, 2]
                for lane in range(lanes):
                    term = column[lane] & _mask(label[0, own, lane], at)
                    message[w, lane] ^= (term >> bit) << offset
            for p in range(steps[i, 7], steps[i, 8]):
                q, s = runs[p, 0], runs[p, 1]
                for lane in range(lanes):
                    sums[s, lane] ^= column[lane] & _mask(label[q, own, lane], at)
        for i in range(sum_pieces.shape[0]):
            s, w = sum_pieces[i, 0], sum_pieces[i, 1]
            offset, bit = sum_pieces[i, 2], sum_pieces[i, 3]
            for lane in range(lanes):
                message[w, lane] ^= (sums[s, lane] >> bit) << offset
        for i in range(last_pieces.shape[0]):
            b, w = last_pieces[i, 0], last_pieces[i, 1]
            offset, bit = last_pieces[i, 2], last_pieces[i, 3]
            for lane in range(lanes):
                message[w, lane] ^= (last[b, lane] >> bit) << offset
        for lane in range(lanes):
            message[words - 1, lane] &= used

        whole = out.shape[1]
        for lane in range(count):
            for w in range(whole):
                out[base + lane, w] = message[w, lane]
            for k in range(tails.shape[1]):
                tails[base + lane, k] = message[words - 1, lane] >> np.uint64(8 * k)


@compile_kernel(
    types.void(_WORD_ROWS, _BYTE_ROWS, _WORD_ROWS, _BYTE_ROWS, _FLAGS, _FLAGS, types.int64, _PLAN)
)
def _decode(events, event_tails, interests, interest_tails, answers, stray, lanes, plan):  # type: ignore[no-untyped-def]
    """REC as `ArrayDecoder` runs it, for `lanes` pairs at a time."""
    facts, steps, pieces = _table(plan, 0), _table(plan, 1), _table(plan, 2)
    used, blocks = facts[0, 0], facts[0, 1]
    whole, tail = events.shape[1], event_tails.shape[1]
    words = whole + (1 if tail else 0)
    one, six, low = np.uint64(1), np.uint64(6), np.uint64(WORD - 1)
    total = np.zeros((words, lanes), dtype=np.uint64)
    sums = np.zeros((blocks, lanes), dtype=np.uint64)
    mask = np.zeros(lanes, dtype=np.uint64)
    for base in range(0, events.shape[0], lanes):
        count = min(lanes, events.shape[0] - base)
        # By rows reads memory faster; by eight rows at once writes faster beyond the first cache.
        if lanes == MOST_LANES:
            for lane in range(count):
                for w in range(whole):
                    total[w, lane] = events[base + lane, w] ^ interests[base + lane, w]
        else:
            _load_sums(events[base : base + count], interests[base : base + count], total)
        for lane in range(count):
            row = base + lane
            either = np.uint64(0)
            if tail:
                first, second = np.uint64(0), np.uint64(0)
                for k in range(tail):
                    first |= np.uint64(event_tails[row, k]) << np.uint64(8 * k)
                    second |= np.uint64(interest_tails[row, k]) << np.uint64(8 * k)
                total[whole, lane] = first ^ second
                either = first | second
            else:
                either = events[row, whole - 1] | interests[row, whole - 1]
            stray[row] = either > used
        sums[:] = 0
        for i in range(steps.shape[0]):
            node = steps[i, 0]
            if i == 0:
                mask[:] = ~np.uint64(0)
            else:
                for lane in range(lanes):
                    mask[lane] = _mask(sums[node >> six, lane], node & low)
            for p in range(steps[i, 1], steps[i, 2]):
                b, w, rows = pieces[p, 0], pieces[p, 1], pieces[p, 4]
                offset, bit = pieces[p, 2], pieces[p, 3]
                for lane in range(lanes):
                    sums[b, lane] ^= (((total[w, lane] >> offset) & rows) << bit) & mask[lane]
        for lane in range(count):
            answers[base + lane] = (sums[0, lane] & one) == one


class CompiledEncoder:
    """One party's encoder for one program; see `ArrayEncoder`."""

    rows = ROWS

    def __init__(self, shape: Shape, half: Half) -> None:
        self._plan = encoder_plan(shape, half)
        words = 2 * shape.layout.words
        self._lanes = _lanes(words)
        self._draw_rows = MOST_LANES * max(1, DRAW_BYTES // (MOST_LANES * 8 * words))

    def encode(self, draw: Draw, at: slice, labels: Words, out: Bytes) -> None:
        """See `ArrayEncoder.encode`."""
        for start in range(at.start, at.stop, self._draw_rows):
            stop = min(start + self._draw_rows, at.stop)
            here = slice(start - at.start, stop - at.start)
            own = labels if labels.shape[2] == 1 else labels[:, :, here]
            randomness = draw(start, stop).view(np.uint64)
            _encode(randomness, *_split(out[here]), own, self._lanes, self._plan)


class CompiledDecoder:
    """REC for one program; see `ArrayDecoder`."""

    rows = ROWS

    def __init__(self, shape: Shape) -> None:
        self._plan = decoder_plan(shape)
        self._lanes = _lanes(shape.layout.words)

    def decode(
        self, events: Bytes, interests: Bytes, heads: Bytes, answers: Flags, stray: Flags
    ) -> None:
        """See `ArrayDecoder.decode`."""
        skip = heads.shape[2]
        sides = *_split(events[:, skip:]), *_split(interests[:, skip:])
        _decode(*sides, answers, stray, self._lanes, self._plan)
        heads[0], heads[1] = events[:, :skip], interests[:, :skip]


def compiled_encoder(shape: Shape, half: Half) -> CompiledEncoder:
    """The encoder of this half, made once."""
    if half not in _ENCODERS:
        _ENCODERS[half] = CompiledEncoder(shape, half)
    return _ENCODERS[half]


def compiled_decoder(shape: Shape) -> CompiledDecoder:
    """The decoder of this program, made once."""
    if shape not in _DECODERS:
        _DECODERS[shape] = CompiledDecoder(shape)
    return _DECODERS[shape]


_ENCODERS: WeakKeyDictionary[Half, CompiledEncoder] = WeakKeyDictionary()
_DECODERS: WeakKeyDictionary[Shape, CompiledDecoder] = WeakKeyDictionary()


def _lanes(words: int) -> int:
    """Messages to treat together: few enough for the cache, enough for long vectors."""
    fitting = CACHE_BYTES // (8 * words)
    return max(8, min(MOST_LANES, 1 << (fitting.bit_length() - 1 if fitting else 0)))


def _split(rows: Bytes) -> tuple[Words, Bytes]:
    """Rows of bytes as whole words, wherever they start, and the bytes left over."""
    whole = rows.shape[1] // 8 * 8
    return rows[:, :whole].view(np.uint64), rows[:, whole:]
