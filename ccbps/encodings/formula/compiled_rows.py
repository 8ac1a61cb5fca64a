"""Passes of the formula encoding over rows of bytes, compiled by Numba (extra ``compiled``).

The results are those of `ccbps.encodings.formula.encoding` in NumPy, but from bytes to bytes in one
pass: words of rows are loaded where they lie, exchanged to planes, run through the program's steps
and stored again.
"""

from __future__ import annotations

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Index, Words
from ccbps.compiled import compile_kernel
from ccbps.encodings.formula.slot_programs import Decoding
from ccbps.encodings.straight_line.compiled_planes import (
    LANES,
    as_steps,
    begin,
    exchange,
    new_registers,
    run_steps,
)
from ccbps.encodings.straight_line.program import WORD, StraightLine

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_BYTES_OUT = types.Array(types.uint8, 1, "C")
_PLACES = types.Array(types.int64, 1, "C", readonly=True)
_WORDS = types.Array(types.uint64, 1, "C", readonly=True)
_WORD_ROWS = types.Array(types.uint64, 2, "C", readonly=True)
_FLAGS = types.Array(types.boolean, 1, "C")
_STEPS = types.Array(types.int64, 2, "C", readonly=True)
_PART = types.Tuple((_BYTES, types.int64, _PLACES, _WORDS))  # type: ignore[no-untyped-call]
"""Memory of rows, bytes from row to row, and place and shift of each word of a part of a row."""
_END = types.Tuple((_BYTES_OUT, types.int64, types.uint8))  # type: ignore[no-untyped-call]
"""Place of the heads of one side's messages, and the last byte of a message and its unused bits."""


@intrinsic
def _get(typing_context, octets, place):  # type: ignore[no-untyped-def]
    """Load eight bytes of an array as a word, wherever they begin."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.gep(data, [arguments[1]])
        word = builder.bitcast(pointer, ir.PointerType(ir.IntType(WORD)))
        return builder.load(word, align=1)

    return types.uint64(octets, place), emit


@intrinsic
def _put(typing_context, octets, place, word):  # type: ignore[no-untyped-def]
    """Store a word in eight bytes of an array."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.gep(data, [arguments[1]])
        pointer = builder.bitcast(pointer, ir.PointerType(ir.IntType(WORD)))
        builder.store(arguments[2], pointer, align=1)
        return context.get_dummy_value()

    return types.void(octets, place, word), emit


@numba.njit
def _load(registers, first, part, begin, base, stop):  # type: ignore[no-untyped-def]
    """Load the words of a part, from word `begin` on, of rows base .. stop - 1; zeros behind."""
    octets, step, places, shifts = part
    for r in range(WORD):
        for w in range(begin, places.shape[0]):
            for m in range(LANES):
                row = base + LANES * r + m
                word = np.uint64(0)
                if row < stop:
                    word = _get(octets, row * step + places[w]) >> shifts[w]  # type: ignore[call-arg]
                registers[WORD * (first + w) + r, m] = word


@compile_kernel(
    types.void(
        _PART, _PART, types.uint64, _WORD_ROWS, _PLACES, _BYTES_OUT, types.int64, types.int64,
        types.int64, types.int64, types.int64, _STEPS,
    )
)  # fmt: skip
def _encode(  # type: ignore[no-untyped-def]
    random, mask, kept, inputs, index, out, out_step, width, count, output, outputs, steps
):
    """Encode rows of randomness, and of input words by `index`, to rows of `width` bytes."""
    registers = new_registers(count)
    drawn, given = random[2].shape[0], inputs.shape[1]
    octets, step, places, shifts = mask
    masks = places.shape[0]
    for base in range(0, index.shape[0], LANES * WORD):
        stop = min(base + LANES * WORD, index.shape[0])
        _load(registers, 0, random, 0, base, stop)
        for r in range(WORD):
            for w in range(given):
                for m in range(LANES):
                    row = base + LANES * r + m
                    word = np.uint64(0)
                    if row < stop:
                        word = inputs[index[row], w]
                    registers[WORD * (drawn + w) + r, m] = word
        begin(registers, drawn + given)
        run_steps(registers, steps)
        for w in range(outputs):
            exchange(registers, output + WORD * w)
        for row in range(base, stop):
            r, m = (row - base) // LANES, (row - base) % LANES
            for w in range(outputs):
                word = registers[output + WORD * w + r, m]
                if w < masks:
                    added = _get(octets, row * step + places[w]) >> shifts[w]  # type: ignore[call-arg]
                    word ^= added & kept if w == masks - 1 else added
                if 8 * w + 8 <= width:
                    _put(out, row * out_step + 8 * w, word)  # type: ignore[call-arg]
                else:
                    for k in range(width - 8 * w):
                        out[row * out_step + 8 * w + k] = word >> np.uint64(8 * k)


@compile_kernel(
    types.void(
        _PART, _PART, _PART, _END, _END, types.int64, _FLAGS, _FLAGS, types.int64, types.int64,
        _STEPS,
    )
)  # fmt: skip
def _decode(  # type: ignore[no-untyped-def]
    longer, shorter, own, longer_end, shorter_end, skip, stray, out, count, output, steps
):
    """Answer pairs: words of the longer and the shorter message are added, own ones follow.

    Also copies their heads, and finds messages of which an unused bit is set.
    """
    registers = new_registers(count)
    long, long_step, long_places, long_shifts = longer
    short, short_step, short_places, short_shifts = shorter
    long_heads, long_last, long_unused = longer_end
    short_heads, short_last, short_unused = shorter_end
    most, both = long_places.shape[0], short_places.shape[0]
    long_skip, short_skip = long_places[0], short_places[0]
    for base in range(0, out.shape[0], LANES * WORD):
        stop = min(base + LANES * WORD, out.shape[0])
        for r in range(WORD):
            for w in range(both - 1):
                for m in range(LANES):
                    row = base + LANES * r + m
                    word = np.uint64(0)
                    if row < stop:
                        word = _get(long, row * long_step + long_skip + 8 * w)  # type: ignore[call-arg]
                        word ^= _get(short, row * short_step + short_skip + 8 * w)
                    registers[WORD * w + r, m] = word
            for m in range(LANES):
                row, w = base + LANES * r + m, both - 1
                word = np.uint64(0)
                if row < stop:
                    word = _get(long, row * long_step + long_places[w]) >> long_shifts[w]  # type: ignore[call-arg]
                    word ^= _get(short, row * short_step + short_places[w]) >> short_shifts[w]
                registers[WORD * w + r, m] = word
        _load(registers, 0, longer, both, base, stop)
        _load(registers, most, own, 0, base, stop)
        begin(registers, most + own[2].shape[0])
        run_steps(registers, steps)
        for row in range(base, stop):
            r, m = (row - base) // LANES, (row - base) % LANES
            out[row] = (registers[output, m] >> np.uint64(r)) & np.uint64(1) == np.uint64(1)
        # All that is read of a message is read while it is in the cache.
        for row in range(base, stop):
            for k in range(0, skip - 7, 8):
                _put(long_heads, row * skip + k, _get(long, row * long_step + k))  # type: ignore[call-arg]
                _put(short_heads, row * skip + k, _get(short, row * short_step + k))
            for k in range(skip // 8 * 8, skip):
                long_heads[row * skip + k] = long[row * long_step + k]
                short_heads[row * skip + k] = short[row * short_step + k]
            set_ = long[row * long_step + long_last] & long_unused
            set_ |= short[row * short_step + short_last] & short_unused
            stray[row] = set_ != 0


class CompiledEncoder:
    """Encoder of one party.

    Args:
        program: program from random bits and input bits to words of a message.
        random_bytes: bytes of random bits at the start of a row of randomness.
        mask_bits: bits of the mask behind them, which is added to the first bits of a message.
        row_bytes: bytes of a row of randomness.
        width: bytes of a message.
    """

    rows = 4 * LANES * WORD

    def __init__(
        self, program: StraightLine, random_bytes: int, mask_bits: int, row_bytes: int, width: int
    ) -> None:
        self._program, self._width = program, width
        self._steps = as_steps(program)
        self._row_bytes = max(8, row_bytes)
        self._random = _words(0, random_bytes, self._row_bytes)
        self._mask = _words(random_bytes, -(-mask_bits // 8), self._row_bytes)
        self._kept = np.uint64((1 << (mask_bits - 1) % WORD + 1) - 1)

    def encode(self, random: Bytes, inputs: Words, index: Index, out: Bytes) -> None:
        """Write messages of rows of randomness, and of rows of inputs by `index`."""
        rows, program = _flat(_wide(random)), self._program
        _encode(
            (*rows, *self._random), (*rows, *self._mask), self._kept, inputs, index, *_flat(out),
            self._width, program.registers, program.output, program.outputs, self._steps,
        )  # fmt: skip


class CompiledDecoder:
    """Decoder (REC)."""

    def __init__(self, decoding: Decoding) -> None:
        self._decoding, self._steps = decoding, as_steps(decoding.program)
        # Calls into compiled code cost no time then, and it still returns some times a second.
        self.rows = LANES * WORD * max(4, min(512, (1 << 18) // max(1, len(self._steps))))

    def decode(
        self, events: Bytes, interests: Bytes, heads: Bytes, answers: Bools, stray: Bools
    ) -> None:
        """Answer messages behind their heads; copy these, and find stray bits.

        Args:
            events: messages, shape (batch, skip + bytes of an event).
            interests: messages, shape (batch, skip + bytes of an interest).
            heads: place of the first bytes of events and interests, shape (2, batch, skip).
            answers: place of the answers, shape (batch,).
            stray: place of flags, shape (batch,): one of both has an unused bit that is set.
        """
        program, sum_words, side, start, widths, unused = self._decoding
        skip, messages = heads.shape[2], [_wide(events), _wide(interests)]
        parts = [
            (*_flat(rows), *_words(skip, width, rows.shape[1]))
            for rows, width in zip(messages, widths, strict=True)
        ]
        own = widths[side] - start if program.inputs > sum_words else 0
        own_words = _words(skip + start, own, messages[side].shape[1])
        ends = [
            (head.reshape(-1), skip + width - 1, bits)
            for head, width, bits in zip(heads, widths, unused, strict=True)
        ]
        longer = int(widths[1] > widths[0])
        shorter = 1 - longer
        _decode(
            parts[longer], parts[shorter], (*parts[side][:2], *own_words), ends[longer],
            ends[shorter], skip, stray, answers, program.registers, program.output, self._steps,
        )  # fmt: skip


def _words(start: int, count: int, row_bytes: int) -> tuple[NDArray[np.int64], Words]:
    """Return the places of the words of some bytes of a row, and the bits to shift each down.

    The last word is loaded from further ahead if it would pass the row's end. Its bits beyond the
    part are anything.
    """
    starts = np.arange(start, start + count, 8, dtype=np.int64)
    places = np.minimum(starts, row_bytes - 8)
    return places, (8 * (starts - places)).astype(np.uint64)


def _wide(rows: Bytes) -> Bytes:
    """Return rows of at least a word, with zeros behind shorter ones."""
    if rows.shape[1] >= 8:
        return rows
    out = np.zeros((len(rows), 8), dtype=np.uint8)
    out[:, : rows.shape[1]] = rows
    return out


def _flat(rows: Bytes) -> tuple[Bytes, int]:
    """Return the memory from the first row to the last one, and the bytes from row to row."""
    step, width = rows.strides[0], rows.shape[1]
    if len(rows) and step < width:
        rows = np.ascontiguousarray(rows)
        step = width
    size = (len(rows) - 1) * step + width if len(rows) else 0
    return np.lib.stride_tricks.as_strided(rows, (size,), (1,)), step
