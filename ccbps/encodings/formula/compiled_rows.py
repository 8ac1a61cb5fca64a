"""The formula encoding's passes over rows of bytes, compiled by Numba (extra ``compiled``).

As `ccbps.encodings.formula.encoding` does with NumPy, but from bytes to bytes in one pass: words of
rows are loaded where they lie, exchanged to planes, run through the program's steps and stored
again.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Index, Words
from ccbps.compiled import compile_kernel
from ccbps.encodings.rows import Decoding
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


@intrinsic
def _get(typing_context, octets, place):  # type: ignore[no-untyped-def]
    """Eight bytes of an array as a word, wherever they begin."""

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


@compile_kernel(
    types.void(
        _BYTES, types.int64, _PLACES, _WORDS, _WORD_ROWS, _PLACES, _PLACES, _WORDS, types.uint64,
        _BYTES_OUT, types.int64, types.int64, types.int64, types.int64, types.int64, _STEPS,
    )
)  # fmt: skip
def _encode(  # type: ignore[no-untyped-def]
    random,
    random_step,
    places,
    shifts,
    inputs,
    index,
    mask_places,
    mask_shifts,
    kept,
    out,
    out_step,
    width,
    count,
    output,
    outputs,
    steps,
):
    """Rows of randomness, and of input words by `index`, to rows of `width` bytes."""
    registers = new_registers(count)
    drawn, given, masks = places.shape[0], inputs.shape[1], mask_places.shape[0]
    for base in range(0, index.shape[0], LANES * WORD):
        stop = min(base + LANES * WORD, index.shape[0])
        for r in range(WORD):
            for w in range(drawn):
                for m in range(LANES):
                    row = base + LANES * r + m
                    word = np.uint64(0)
                    if row < stop:
                        word = _get(random, row * random_step + places[w]) >> shifts[w]  # type: ignore[call-arg]
                    registers[WORD * w + r, m] = word
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
                    mask = _get(random, row * random_step + mask_places[w]) >> mask_shifts[w]  # type: ignore[call-arg]
                    word ^= mask & kept if w == masks - 1 else mask
                if 8 * w + 8 <= width:
                    _put(out, row * out_step + 8 * w, word)  # type: ignore[call-arg]
                else:
                    for k in range(width - 8 * w):
                        out[row * out_step + 8 * w + k] = word >> np.uint64(8 * k)


@compile_kernel(
    types.void(
        _BYTES, types.int64, _PLACES, _WORDS, _BYTES, types.int64, _PLACES, _WORDS,
        _BYTES, types.int64, _PLACES, _WORDS, _BYTES_OUT, _BYTES_OUT, types.int64, types.int64,
        types.int64, types.uint8, types.uint8, _FLAGS, _FLAGS, types.int64, types.int64, _STEPS,
    )
)  # fmt: skip
def _decode(  # type: ignore[no-untyped-def]
    long,
    long_step,
    long_places,
    long_shifts,
    short,
    short_step,
    short_places,
    short_shifts,
    own,
    own_step,
    own_places,
    own_shifts,
    long_heads,
    short_heads,
    skip,
    long_last,
    short_last,
    long_unused,
    short_unused,
    stray,
    out,
    count,
    output,
    steps,
):
    """Answers of pairs: words of the longer and the shorter message are added, own ones follow.

    Also gathers their heads, and where bits of their last bytes are set that are `unused`.
    """
    registers = new_registers(count)
    most, both, mine = long_places.shape[0], short_places.shape[0], own_places.shape[0]
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
            for w in range(both - 1, both):
                for m in range(LANES):
                    row = base + LANES * r + m
                    word = np.uint64(0)
                    if row < stop:
                        word = _get(long, row * long_step + long_places[w]) >> long_shifts[w]  # type: ignore[call-arg]
                        place = row * short_step + short_places[w]
                        word ^= _get(short, place) >> short_shifts[w]
                    registers[WORD * w + r, m] = word
            for w in range(both, most):
                for m in range(LANES):
                    row = base + LANES * r + m
                    word = np.uint64(0)
                    if row < stop:
                        word = _get(long, row * long_step + long_places[w]) >> long_shifts[w]  # type: ignore[call-arg]
                    registers[WORD * w + r, m] = word
            for w in range(mine):
                for m in range(LANES):
                    row = base + LANES * r + m
                    word = np.uint64(0)
                    if row < stop:
                        word = _get(own, row * own_step + own_places[w]) >> own_shifts[w]  # type: ignore[call-arg]
                    registers[WORD * (most + w) + r, m] = word
        begin(registers, most + mine)
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
    """One party's encoder.

    Args:
        program: from words of random bits and words of input bits to words of a message.
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
        """Rows of randomness, and of input words by `index`, to messages."""
        rows, program = _wide(random), self._program
        flat, step = _flat(rows)
        target, out_step = _flat(out)
        _encode(
            flat, step, *self._random, inputs, index, *self._mask, self._kept, target, out_step,
            self._width, program.registers, program.output, program.outputs, self._steps,
        )  # fmt: skip


class CompiledDecoder:
    """REC."""

    def __init__(self, of: Decoding) -> None:
        self._program, words, (self._apart, self._start), self._widths, self._unused = of
        self._own = self._program.inputs > words
        self._steps = as_steps(self._program)
        # Calls into compiled code cost no time then, and it still returns some times a second.
        self.rows = LANES * WORD * max(4, min(512, (1 << 18) // max(1, len(self._steps))))

    def decode(
        self, events: Bytes, interests: Bytes, heads: Bytes, answers: Bools, stray: Bools
    ) -> None:
        """Answers of messages behind their heads; gathers these, and finds stray bits.

        Args:
            heads: shape (2, batch, skip): the first bytes of events and interests.
            stray: shape (batch,): whether one of both has an unused bit that is set.
        """
        skip, sides = heads.shape[2], [_wide(events), _wide(interests)]
        parts = [
            (*_flat(whole), *_words(skip, width, whole.shape[1]))
            for whole, width in zip(sides, self._widths, strict=True)
        ]
        whole, left = sides[self._apart], self._widths[self._apart] - self._start
        own = _words(skip + self._start, left if self._own else 0, whole.shape[1])
        program, longer = self._program, int(self._widths[1] > self._widths[0])
        order = longer, 1 - longer
        _decode(
            *parts[longer], *parts[1 - longer], *parts[self._apart][:2], *own,
            *(heads[side].reshape(-1) for side in order), skip,
            *(skip + self._widths[side] - 1 for side in order),
            *(self._unused[side] for side in order), stray, answers,
            program.registers, program.output, self._steps,
        )  # fmt: skip


def _words(start: int, count: int, row_bytes: int) -> tuple[NDArray[np.int64], Words]:
    """Where to load the words of some bytes of a row, and how far to shift each to the right.

    The last one is loaded from further ahead if it would pass the row's end. Its bits beyond the
    part are anything.
    """
    wanted = np.arange(start, start + count, 8, dtype=np.int64)
    places = np.minimum(wanted, row_bytes - 8)
    return places, (8 * (wanted - places)).astype(np.uint64)


def _wide(rows: Bytes) -> Bytes:
    """Rows of at least a word, with zeros behind shorter ones."""
    if rows.shape[1] >= 8:
        return rows
    out = np.zeros((len(rows), 8), dtype=np.uint8)
    out[:, : rows.shape[1]] = rows
    return out


def _flat(rows: Bytes) -> tuple[Bytes, int]:
    """The memory from the first row to the last one, and the bytes from row to row."""
    step, width = rows.strides[0], rows.shape[1]
    if len(rows) and step < width:
        rows = np.ascontiguousarray(rows)
        step = width
    size = (len(rows) - 1) * step + width if len(rows) else 0
    return np.lib.stride_tricks.as_strided(rows, (size,), (1,)), step
