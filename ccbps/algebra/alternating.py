"""A5: the 60 even permutations of five points, bit-sliced, 64 to a word.

A5 has all that Barrington's construction needs of S5, and is SL(2,4) (`ccbps.algebra.sl24`): eight
bit-planes, multiplied by word operations; no table, no secret address, 6 bits an element on the
wire.

Lanes. A sequence is cut into 64 contiguous chunks, one for each bit of a word; each chunk into V
contiguous pieces, one for each *column*; a piece has M elements, one for each *step*. Position
p = (bit * V + column) * M + step. So neighbours are multiplied as rows of words, with nothing to
reorder. V is the largest power of two with M >= 64, at most 4096.

A bulk has the shape (8 planes, M, batch, V), uint64; cut along the second axis it is a bulk for the
operations on each position by itself. Packed bits: (M, batch, V).

Hazard: constant time but for `uniform`, which shows what was rejected, and for the conversions from
and to ranks.
Source: [Bar89] (any group that is not solvable); the isomorphism is classical.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra import sl24
from ccbps.algebra.group import Bits, Bulk, Bytes, Group, Ranks, all_permutations, require_rows
from ccbps.algebra.rejection import Reserve
from ccbps.errors import ParameterError, ShapeError

__all__ = ["A5", "AlternatingGroup"]

Words = NDArray[np.uint64]

LANES: Final = 64
STEPS: Final = 64
"""A sequence has at least as many steps before it has a second column."""
COLUMNS: Final = 4096
"""Columns at most: a plane of one step is then long enough for a NumPy call to cost little."""
BLOCK: Final = 4096
"""Words of a plane treated at a time: planes and scratch stay in the second-level cache."""
PLANES: Final = 8
WIRE_PLANES: Final = 6
DRAWN_PLANES: Final = 10
"""a0 a1 b0 b1 t0 t1, and a second draw of the first four for lanes where they were all 0."""

_ALL: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_ONE: Final = np.uint64(1)


@dataclass(frozen=True, slots=True)
class _Lanes:
    """How the positions of a sequence lie in words."""

    steps: int
    columns: int

    @property
    def words(self) -> int:
        return self.steps * self.columns

    @property
    def length(self) -> int:
        return LANES * self.words

    @classmethod
    def at_least(cls, words: int) -> _Lanes:
        """For this many words or a few more."""
        columns = _columns(words)
        steps = -(-words // columns)
        # Rounding up may reach the next power of two: then there are more columns, as many words.
        more = _columns(steps * columns)
        return cls(steps * columns // more, more)

    @classmethod
    def exactly(cls, words: int) -> _Lanes:
        lanes = cls.at_least(words) if words > 0 else None
        if lanes is None or lanes.words != words:
            raise ParameterError(f"no padded length of A5 has {words} words of 64 lanes")
        return lanes


class AlternatingGroup(Group):
    """A5; see the module. Use the instance `A5`."""

    def __init__(self) -> None:
        even = [
            p
            for p in all_permutations()
            if sum(p[i] > p[j] for i in range(5) for j in range(i, 5)) % 2 == 0
        ]
        super().__init__("A5", even, beta="(1 2 4 5 3)")
        self._codes = sl24.rank_codes(even)
        self._ranks_of_codes = np.zeros(256, dtype=np.uint8)
        self._ranks_of_codes[self._codes] = np.arange(self.order)

    def padded(self, length: int) -> int:
        """A multiple of 64, at most 1/64 more than that."""
        if length < 1:
            raise ParameterError(f"length must be at least 1, got {length}")
        return _Lanes.at_least(-(-length // LANES)).length

    def element_bytes(self, length: int) -> int:
        """Six bits an element."""
        return 8 * WIRE_PLANES * _lanes(length).words

    def random_bytes(self, length: int) -> int:
        """11 bits an element, and slack."""
        words = _lanes(length).words
        return 8 * (DRAWN_PLANES * words + 4 * _reserve(words))

    def from_ranks(self, ranks: Ranks) -> Bulk:
        self._require_ranks(ranks, 2)
        lanes = _lanes(ranks.shape[1])
        codes = _steps_first(self._codes.take(ranks), lanes)
        out = _empty(lanes, len(ranks))
        for plane in range(PLANES):
            out[plane] = _pack_lanes(codes & np.uint8(1 << plane))
        return out

    def to_ranks(self, bulk: Bulk) -> Ranks:
        _, steps, batch, columns = bulk.shape
        codes = np.zeros((steps, batch, columns, LANES), dtype=np.uint8)
        for plane in range(PLANES):
            octets = np.ascontiguousarray(bulk[plane], dtype="<u8").view(np.uint8)
            bits = np.unpackbits(octets, bitorder="little").reshape(codes.shape)
            codes |= bits << np.uint8(plane)
        ranks = self._ranks_of_codes.take(codes)
        return ranks.transpose(1, 3, 2, 0).reshape(batch, -1)

    def pack(self, bits: NDArray[np.bool_]) -> Bits:
        if bits.dtype != np.bool_ or bits.ndim != 2:
            raise ShapeError(f"bits must be bool (batch, length), got {bits.dtype} {bits.shape}")
        return _pack_lanes(_steps_first(bits.view(np.uint8), _lanes(bits.shape[1])))

    def pack_periodic(self, bits: NDArray[np.bool_], length: int) -> Bits:
        """See `Group.pack_periodic`. Fast where the period divides the number of steps."""
        lanes, (batch, period) = _lanes(length), bits.shape
        if lanes.steps % period:
            times = -(-length // period)
            return self.pack(np.tile(bits, (1, times))[:, :length])
        words = np.where(bits.T, _ALL, np.uint64(0))[:, :, None]
        words = np.tile(words, (lanes.steps // period, 1, 1))
        return np.broadcast_to(words, (lanes.steps, batch, lanes.columns))

    def powers(self, bits: Bits, element: int) -> Bulk:
        """See `Group.powers`. Cost: eight planes written."""
        self._require_rank(element)
        masks = self.pack(bits) if bits.dtype == np.bool_ else bits  # type: ignore[arg-type]
        steps, batch, columns = masks.shape
        out = _empty(_Lanes(steps, columns), batch)
        for plane in range(PLANES):
            value, fixed = (c >> plane & 1 for c in (int(self._codes[element]), sl24.IDENTITY))
            if value == fixed:
                out[plane] = _ALL if value else 0
            elif value:
                out[plane] = masks
            else:
                np.bitwise_not(masks, out=out[plane])
        return out

    def multiply(self, x: Bulk, y: Bulk, out: Bulk | None = None) -> Bulk:
        out = _like(x, out)
        scratch = _scratch(sl24.MULTIPLY_SCRATCH + PLANES, min(BLOCK, x[0].size))
        for at, (left, right, result) in _blocks(x, y, out):
            rows = scratch[:, at]
            product = rows[sl24.MULTIPLY_SCRATCH :]
            sl24.multiply(list(left), list(right), list(product), list(rows))
            result[...] = product
        return out

    def inverse(self, x: Bulk, out: Bulk | None = None) -> Bulk:
        if out is x:
            held = x[:2].copy()
            x[:2], x[6:] = x[6:], held
            return x
        out = _like(x, out)
        for plane, source in enumerate(sl24.INVERSE_PLANES):
            out[plane] = x[source]
        return out

    def blind(self, left: Bulk, x: Bulk, right: Bulk, out: Bulk | None = None) -> Bulk:
        out = _like(x, out)
        scratch = _scratch(sl24.MULTIPLY_SCRATCH + 2 * PLANES, min(BLOCK, x[0].size))
        for at, (before, middle, after, result) in _blocks(left, x, right, out):
            rows = list(scratch[:, at])
            inner, outer = rows[-2 * PLANES : -PLANES], rows[-PLANES:]
            inverse = [before[plane] for plane in sl24.INVERSE_PLANES]
            sl24.multiply(inverse, list(middle), inner, rows)
            sl24.multiply(inner, list(after), outer, rows)
            result[...] = scratch[-PLANES:, at]
        return out

    def delay(self, x: Bulk, first: Ranks, out: Bulk | None = None) -> Bulk:
        out = _like(x, out)
        end = x[:, -1].copy()
        codes = self._codes.take(first)
        # A chunk's first element comes from the end of the chunk before: one lane lower.
        carry = end[:, :, -1] << _ONE
        for plane in range(PLANES):
            carry[plane] |= (codes >> np.uint8(plane) & np.uint8(1)).astype(np.uint64)
        step = max(1, BLOCK // x[0, 0].size) if x[0, 0].size else 1
        for stop in range(x.shape[1], 1, -step):  # from the end: `out` may be x
            start = max(1, stop - step)
            out[:, start:stop] = x[:, start - 1 : stop - 1]
        out[:, 0, :, 1:] = end[:, :, :-1]
        out[:, 0, :, 0] = carry
        return out

    def last(self, x: Bulk) -> Ranks:
        return self._lane(x[:, -1, :, -1], LANES - 1)

    def product(self, x: Bulk) -> Ranks:
        """See `Group.product`. Cost: 52 word operations for 64 products, some 0.25 ns each."""
        _, _, batch, columns = x.shape
        ends = np.empty((PLANES, batch), dtype=np.uint64)
        count = max(1, BLOCK // columns)
        for start in range(0, batch, count):
            at = slice(start, start + count)
            ends[:, at] = _columns_product(_steps_product(x[:, :, at]))
        return self._lane(_lanes_product(ends), 0)

    def uniform(self, randomness: Bytes) -> Bulk:
        lanes = _drawn_lanes(randomness.shape[1])
        require_rows("randomness", randomness, self.random_bytes(lanes.length))
        words = randomness.view("<u8")
        batch, drawn = len(words), DRAWN_PLANES * lanes.words
        planes = words[:, :drawn].reshape(batch, DRAWN_PLANES, lanes.steps, lanes.columns)
        out = _empty(lanes, batch)
        steps = max(1, BLOCK // lanes.columns)
        count = max(1, BLOCK // min(lanes.words, steps * lanes.columns))
        rows = steps * lanes.columns if steps < lanes.steps else lanes.words
        scratch = _scratch(DRAWN_PLANES + 4 + sl24.COMPLETE_SCRATCH, count * rows)
        for begin in range(0, batch, count):
            some = slice(begin, min(begin + count, batch))
            spare = Reserve(words[some, drawn:].reshape(-1, _reserve(lanes.words), 4))
            for step in range(0, lanes.steps, steps):
                at = slice(step, step + steps)
                block = planes[some, :, at]
                n = block[:, 0].size
                draw = scratch[:DRAWN_PLANES, :n].reshape(DRAWN_PLANES, *block[:, 0].shape)
                np.copyto(draw, block.swapaxes(0, 1))
                rows_ = list(scratch[:, :n])
                _redraw(rows_, spare, n // len(block))
                matrix = rows_[:4] + rows_[DRAWN_PLANES : DRAWN_PLANES + 4]
                sl24.complete(rows_[:6], matrix[4:], rows_[DRAWN_PLANES + 4 :])
                for plane, row in enumerate(matrix):
                    out[plane, at, some] = row.reshape(block[:, 0].shape).swapaxes(0, 1)
        return out

    def store(self, x: Bulk, out: Bytes) -> None:
        _, steps, batch, columns = x.shape
        require_rows("out", out, self.element_bytes(LANES * steps * columns))
        wire = out.view("<u8").reshape(batch, WIRE_PLANES, steps, columns)
        size = batch * columns
        count = max(1, BLOCK // size)
        scratch = _scratch(2 + sl24.FIND_T_SCRATCH, size * min(count, steps))
        for step in range(0, steps, count):
            part = x[:, step : step + count]
            shape = part.shape[1:]
            rows = [row.reshape(shape) for row in scratch[:, : part[0].size]]
            sl24.find_t(list(part), rows[0], rows[1], rows[2:])
            for plane, row in enumerate([*part[:4], *rows[:2]]):
                wire[:, plane, step : step + count] = row.swapaxes(0, 1)

    def load(self, rows: Bytes) -> tuple[Bulk, NDArray[np.bool_]]:
        lanes, wire = _wire(rows)
        batch = len(rows)
        out, valid = _empty(lanes, batch), np.ones(batch, dtype=np.bool_)
        size = batch * lanes.columns
        count = max(1, BLOCK // size)
        scratch = _scratch(WIRE_PLANES + sl24.COMPLETE_SCRATCH, size * min(count, lanes.steps))
        for step in range(0, lanes.steps, count):
            part = out[:, step : step + count]
            work = [row.reshape(part[0].shape) for row in scratch[:, : part[0].size]]
            for plane in range(WIRE_PLANES):
                target = part[plane] if plane < 4 else work[plane]
                np.copyto(target, wire[:, plane, step : step + count].swapaxes(0, 1))
            sl24.complete([*part[:4], *work[4:6]], list(part[4:]), work[WIRE_PLANES:])
            valid &= np.bitwise_and.reduce(work[WIRE_PLANES], axis=(0, 2)) == _ALL
        return out, valid

    def product_of(self, x: Bytes, y: Bytes) -> tuple[Ranks, NDArray[np.bool_]]:
        left, left_valid = self.load(x)
        right, right_valid = self.load(y)
        return self.product(self.multiply(left, right, out=left)), left_valid & right_valid

    def _lane(self, planes: NDArray[Any], lane: int) -> Ranks:
        """Ranks in one lane of planes of shape (8, batch)."""
        bits = (planes >> np.uint64(lane) & _ONE).astype(np.uint8)
        shifts = np.arange(PLANES, dtype=np.uint8)[:, None]
        ranks: Ranks = self._ranks_of_codes[np.bitwise_or.reduce(bits << shifts, axis=0)]
        return ranks


def _columns(words: int) -> int:
    return 1 << min(COLUMNS.bit_length() - 1, max(1, words // STEPS).bit_length() - 1)


def _lanes(length: int) -> _Lanes:
    if length < 1 or length % LANES:
        raise ParameterError(f"length must be padded, a multiple of {LANES}, got {length}")
    return _Lanes.exactly(length // LANES)


def _reserve(words: int) -> int:
    """Spare draws of 64 lanes: mean 0.2381 * words, standard deviation 0.47 sqrt(words)."""
    return 61 * words // 256 + 5 * isqrt(words) + 20


def _drawn_lanes(random_bytes: int) -> _Lanes:
    """The lanes whose randomness has this width; it grows with every word."""
    low, high = 1, max(1, random_bytes // (8 * DRAWN_PLANES))
    while low < high:
        middle = (low + high) // 2
        if 8 * (DRAWN_PLANES * middle + 4 * _reserve(middle)) < random_bytes:
            low = middle + 1
        else:
            high = middle
    return _Lanes.exactly(low)


def _wire(rows: Bytes) -> tuple[_Lanes, Words]:
    """Received bytes as words of shape (batch, 6, M, V)."""
    require_rows("rows", rows)
    if rows.shape[1] % (8 * WIRE_PLANES):
        raise ShapeError(f"a sequence takes a multiple of 48 bytes, got {rows.shape[1]}")
    lanes = _Lanes.exactly(rows.shape[1] // (8 * WIRE_PLANES))
    return lanes, rows.view("<u8").reshape(-1, WIRE_PLANES, lanes.steps, lanes.columns)


def _scratch(rows: int, words: int) -> Words:
    """Rows of words, each an odd number of cache lines apart: equal places of different rows must
    not compete for the same few cache sets. Aligned to cache lines.
    """
    lines = -(-words // 8) | 1
    memory = np.empty(8 * (rows * lines + 1), dtype=np.uint64)
    start = -memory.ctypes.data % 64 // 8
    return memory[start : start + 8 * rows * lines].reshape(rows, -1)[:, :words]


def _empty(lanes: _Lanes, batch: int) -> Words:
    shape = (PLANES, lanes.steps, batch, lanes.columns)
    return _scratch(PLANES, lanes.words * batch).reshape(shape)


def _like(x: Bulk, out: Bulk | None) -> Bulk:
    if out is None:
        _, steps, batch, columns = x.shape
        return _empty(_Lanes(steps, columns), batch)
    if out.shape != x.shape:
        raise ShapeError(f"out has the shape {out.shape}, wanted {x.shape}")
    return out


def _blocks(*bulks: Bulk) -> Iterator[tuple[slice, list[Words]]]:
    """Blocks of all of `bulks` at once, planes flat: where in scratch rows, and the planes."""
    flat: list[Any] = []
    for bulk in bulks:
        if bulk.shape != bulks[0].shape:
            raise ShapeError(f"shapes differ: {bulks[0].shape} and {bulk.shape}")
        flat.append(bulk.reshape(PLANES, -1))
    if not np.may_share_memory(flat[-1], bulks[-1]):
        raise ShapeError("out must be a bulk, or one cut along its second axis")
    for start in range(0, flat[0].shape[1], BLOCK):
        at = slice(start, start + BLOCK)
        yield slice(0, flat[0][0, at].size), [f[:, at] for f in flat]


def _steps_first(values: Bytes, lanes: _Lanes) -> Bytes:
    """(batch, length) to (M, batch, V, 64 lanes)."""
    cut = values.reshape(len(values), LANES, lanes.columns, lanes.steps)
    return np.ascontiguousarray(cut.transpose(3, 0, 2, 1))


def _pack_lanes(values: Bytes) -> Words:
    """Bits (..., 64), any value but 0 counting as 1, to words."""
    packed = np.packbits(values, axis=-1, bitorder="little").view("<u8")[..., 0]
    return packed.astype(np.uint64, copy=False)


def _redraw(rows: list[Words], spare: Reserve, words: int) -> None:
    """Make the first row (rows 0 to 3) nonzero in all lanes: from rows 6 to 9, then `spare`.

    `words`: of one sequence, in each row.
    """
    first, second, zero = rows[:4], rows[6:10], rows[10]
    _nowhere(first, zero)
    for drawn, again in zip(first, second, strict=True):
        np.bitwise_and(again, zero, out=again)
        np.bitwise_or(drawn, again, out=drawn)
    _nowhere(first, zero)
    places = np.flatnonzero(zero)
    missing = zero[places]
    while len(places):
        fresh = spare.take(places // words) & missing[:, None]
        for plane, drawn in enumerate(first):
            drawn[places] |= fresh[:, plane]
        missing &= ~np.bitwise_or.reduce(fresh, axis=1)
        left = np.flatnonzero(missing)
        places, missing = places[left], missing[left]


def _nowhere(planes: list[Words], out: Words) -> None:
    """Lanes where all four planes are 0."""
    np.bitwise_or(planes[0], planes[1], out=out)
    np.bitwise_or(out, planes[2], out=out)
    np.bitwise_or(out, planes[3], out=out)
    np.bitwise_not(out, out=out)


def _steps_product(x: Bulk) -> Words:
    """Products over the steps: (8, M, batch, V) to (8, batch, V)."""
    _, steps, batch, columns = x.shape
    groups = min(steps, max(1, BLOCK // (batch * columns)))
    each = steps // groups
    # `groups` runs of `each` steps at once, step by step; what is left over after them.
    shape = (groups, batch, columns)
    work = _scratch(sl24.MULTIPLY_SCRATCH + 2 * PLANES, groups * batch * columns)
    rows = [row.reshape(shape) for row in work]
    product, other, scratch = rows[:8], rows[8:16], rows[16:]
    runs = x[:, : groups * each].reshape(PLANES, groups, each, batch, columns)
    for plane in range(PLANES):
        product[plane][...] = runs[plane, :, 0]
    for step in range(1, each):
        sl24.multiply(product, list(runs[:, :, step]), other, scratch)
        product, other = other, product
    level: Any = np.stack(product)
    if groups * each < steps:
        level = np.concatenate([level, x[:, groups * each :]], axis=1)
    while (count := level.shape[1]) > 1:
        half = _pairs(level[:, 0 : count - 1 : 2], level[:, 1:count:2])
        level = np.concatenate([half, level[:, -1:]], axis=1) if count % 2 else half
    result: Words = level[:, 0]
    return result


def _columns_product(x: Words) -> Words:
    """Products over the columns: (8, batch, V) to (8, batch)."""
    while x.shape[2] > 1:
        x = _pairs(x[:, :, 0::2], x[:, :, 1::2])
    result: Words = x[:, :, 0]
    return result


def _lanes_product(x: Words) -> Words:
    """Products over the lanes, in lane 0 of (8, batch); the other lanes mean nothing."""
    for shift in (1, 2, 4, 8, 16, 32):
        x = _pairs(x, x >> np.uint64(shift))
    return x


def _pairs(x: Words, y: Words) -> Words:
    out = np.empty(x.shape, dtype=np.uint64)
    scratch = np.empty((sl24.MULTIPLY_SCRATCH, *x.shape[1:]), dtype=np.uint64)
    sl24.multiply(list(x), list(y), list(out), list(scratch))
    return out


A5: Final = AlternatingGroup()
