"""A5: the 60 even permutations of five points, bit-sliced, 64 to a word.

A5 has all that Barrington's construction needs of S5. It is isomorphic to SL(2,4)
(`ccbps.algebra.sl24`): eight bit-planes, multiplied by word operations, and 6 bits per element on
the wire.

A bulk has the shape (8 planes, M, batch, V), uint64; `ccbps.algebra.sl24` defines the order of its
positions. A bulk cut along the second axis is a bulk for the elementwise operations. Packed bits
have the shape (M, batch, V).

Elements are drawn 64 at a time, exactly uniformly. The first row of a matrix, four bits, is drawn
until it is not 0; 15 of 16 draws are kept. Nearly always, some of the 64 lanes of a word need
another draw. So every word has a second draw for these. After it, about two words in nine still
have a lane without a row: they draw from the sequence's reserve. t, two bits, needs one draw only.
So the 60 elements are equally likely in each lane.

The random bytes of a sequence are planes of words, little-endian: first draws a0 a1 b0 b1, then t0
t1, then second draws a0 a1 b0 b1, each (M, V); then the spare draws, four planes of `reserve`
words. Spare draws are used in the order of the words that need them, round by round, for one run of
8192 words after the other.

Hazard: constant time with three exceptions. The time of `uniform` shows which draws were rejected,
but nothing about the draws kept. Ranks that come in or go out, and the end of `product`, use
tables.
Source: [Bar89] (any group that is not solvable); the isomorphism is classical.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from math import isqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra import sl24
from ccbps.algebra.group import Bits, Bulk, Group, Reserve, require_rows
from ccbps.algebra.sl24 import LANES, PLANES, Lanes, empty, scratch
from ccbps.arrays import Bytes, Ranks, Words, slices
from ccbps.checks import array, whole
from ccbps.errors import ShapeError

BLOCK: Final = 4096
"""Words of a plane treated at a time: planes and scratch stay in the second-level cache."""
DRAWN_BLOCK: Final = 8192
"""Words of a sequence whose rejected draws are replaced together. It decides which spare draw goes
where, so both parties must use the same value: a change of it changes the message format."""
DRAWN_PLANES: Final = 10
"""Planes a0 a1 b0 b1 t0 t1, and a second draw of the first four for lanes with a row of zeros."""
FEW: Final = 256
"""Number of words up to which look-ups multiply faster than 52 NumPy calls."""
WIRE_PLANES: Final = 6

_ALL: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_ONE: Final = np.uint64(1)

Source = Callable[[slice], list[Any]]
"""Planes of some steps of a batch: eight arrays (steps, batch, V), valid until the next call."""


class AlternatingGroup(Group):
    """A5; see the module. Use the instance `A5`."""

    def __init__(self) -> None:
        super().__init__("A5", only_even=True)
        self._codes = sl24.rank_codes(self._elements)
        self._ranks_of_codes = np.zeros(256, dtype=np.uint8)
        self._ranks_of_codes[self._codes] = np.arange(self.order)

    def padded(self, length: int) -> int:
        """Return the positions that a sequence of `length` elements takes.

        The result is a multiple of 64, at most 1/64 above the next one.
        """
        return LANES * Lanes.at_least(-(-whole("length", length, 1) // LANES)).words

    def element_bytes(self, length: int) -> int:
        """Return the bytes of a sequence on the wire: six bits per element."""
        return 8 * WIRE_PLANES * Lanes.of(length).words

    def random_bytes(self, length: int) -> int:
        """Return the bytes that `uniform` takes for a sequence: 11 bits per element, and slack."""
        return _random_bytes(Lanes.of(length).words)

    def from_ranks(self, ranks: Ranks) -> Bulk:
        self._require_ranks(ranks)
        out = empty(Lanes.of(ranks.shape[1]), len(ranks))
        sl24.pack(ranks, out, self._codes)
        return out

    def to_ranks(self, bulk: Bulk) -> Ranks:
        return sl24.unpack(bulk, self._ranks_of_codes)

    def pack(self, bits: NDArray[np.bool_]) -> Bits:
        array("bits", bits, np.bool_, ("batch", "length"))
        form = Lanes.of(bits.shape[1])
        out = np.empty((form.steps, len(bits), form.columns), dtype=np.uint64)
        sl24.pack(bits.view(np.uint8), out[None])
        return out

    def pack_periodic(self, bits: NDArray[np.bool_], length: int) -> Bits:
        """Pack bits of shape (batch, period), repeated until `length` is reached.

        Cost: next to nothing where the period divides M, the steps.
        """
        form, (batch, period) = Lanes.of(length), bits.shape
        if form.steps % period:
            times = -(-length // period)
            return self.pack(np.tile(bits, (1, times))[:, :length])
        words = np.where(bits.T, _ALL, np.uint64(0))[:, :, None]
        words = np.tile(words, (form.steps // period, 1, 1))
        return np.broadcast_to(words, (form.steps, batch, form.columns))

    def choose(self, bits: Bits, one: int, zero: int) -> Bulk:
        self._require_rank(one)
        self._require_rank(zero)
        masks = self.pack(bits) if bits.dtype == np.bool_ else bits
        steps, batch, columns = masks.shape
        out = empty(Lanes(steps, columns), batch)
        for plane in range(PLANES):
            value, fixed = (int(self._codes[rank]) >> plane & 1 for rank in (one, zero))
            if value == fixed:
                out[plane] = _ALL if value else 0
            elif value:
                out[plane] = masks
            else:
                np.bitwise_not(masks, out=out[plane])
        return out

    def divides(self, every: int, length: int) -> bool:
        return Lanes.of(length).steps % every == 0

    def put(self, x: Bulk, every: int, ranks: Ranks) -> None:
        self._require_ranks(ranks)
        sl24.pack(ranks, x[:, ::every], self._codes)

    def invert(self, x: Bulk, every: int) -> None:
        part = x[:, ::every]
        part[...] = part[list(sl24.INVERSE_PLANES)]

    def take(self, x: Bulk, rows: NDArray[np.intp]) -> Bulk:
        return x.take(rows, axis=2)

    def multiply(self, x: Bulk, y: Bulk, out: Bulk | None = None) -> Bulk:
        """Return x * y at each position; `out` may be x or y.

        Cost: 52 word operations for 64 elements.
        """
        out = _like(x, out)
        held = np.may_share_memory(out, x) or np.may_share_memory(out, y)
        work = scratch(sl24.MULTIPLY_SCRATCH + PLANES, min(BLOCK, x[0].size))
        for size, (left, right, result) in _blocks(x, y, out):
            rows = list(work[:, :size])
            product = rows[sl24.MULTIPLY_SCRATCH :] if held else list(result)
            sl24.multiply(list(left), list(right), product, rows)
            if held:
                result[...] = work[sl24.MULTIPLY_SCRATCH :, :size]
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
        """Return left^-1 * x * right at each position, in one pass; `out` may be any of them.

        Cost: two products. It is fastest where `out` is not `right`.
        """
        out = _like(x, out)
        held = np.may_share_memory(out, right)
        work = scratch(sl24.MULTIPLY_SCRATCH + 2 * PLANES, min(BLOCK, x[0].size))
        for size, (before, middle, after, result) in _blocks(left, x, right, out):
            rows = list(work[:, :size])
            inner = rows[-2 * PLANES : -PLANES]
            inverse = [before[plane] for plane in sl24.INVERSE_PLANES]
            sl24.multiply(inverse, list(middle), inner, rows)
            sl24.multiply(inner, list(after), rows[-PLANES:] if held else list(result), rows)
            if held:
                result[...] = work[-PLANES:, :size]
        return out

    def delay(self, x: Bulk, first: Ranks, out: Bulk | None = None) -> Bulk:
        out = _like(x, out)
        end = x[:, -1].copy()
        codes = self._codes.take(first)
        # A chunk's first element comes from the end of the chunk before: one lane lower.
        carry = end[:, :, -1] << _ONE
        for plane in range(PLANES):
            carry[plane] |= (codes >> np.uint8(plane) & np.uint8(1)).astype(np.uint64)
        step = max(1, BLOCK // max(1, end[0].size))
        for stop in range(x.shape[1], 1, -step):  # from the end: `out` may be x
            start = max(1, stop - step)
            out[:, start:stop] = x[:, start - 1 : stop - 1]
        out[:, 0, :, 1:] = end[:, :, :-1]
        out[:, 0, :, 0] = carry
        return out

    def last(self, x: Bulk) -> Ranks:
        return self._lane(x[:, -1, :, -1], LANES - 1)

    def product(self, x: Bulk) -> Ranks:
        """Return the product of each whole sequence, left to right, shape (batch,).

        Cost: 52 word operations for 64 products. A single sequence costs some 0.1 ms more, for many
        calls on few words. Multiply many short sequences as a batch.
        """
        _, steps, batch, columns = x.shape
        result = np.empty(batch, dtype=np.uint8)
        for some in _runs(batch, columns):
            part = x[:, :, some]

            def source(at: slice, part: Bulk = part) -> list[Any]:
                return list(part[:, at])

            result[some] = self._folded(_steps_product(source, steps, *part.shape[2:]))
        return result

    def product_of(self, x: Bytes, y: Bytes) -> tuple[Ranks, NDArray[np.bool_]]:
        """Multiply x_1 y_1 x_2 y_2 ... of two messages on the wire, in one pass over them.

        Cost: 146 word operations for 64 elements of each message.

        Returns:
            Products, shape (batch,), and for each pair whether both messages are valid.
        """
        form, left = _wire(x)
        other, right = _wire(y)
        if form != other or len(x) != len(y):
            raise ShapeError(f"messages do not pair: {x.shape} and {y.shape}")
        batch, columns = len(x), form.columns
        result, valid = np.empty(batch, dtype=np.uint8), np.ones(batch, dtype=np.bool_)
        size = min(BLOCK, batch * form.words)
        work = scratch(3 * PLANES + 2 + sl24.MULTIPLY_SCRATCH, max(size, columns))
        for some in _runs(batch, columns):

            def source(at: slice, some: slice = some) -> list[Any]:
                shape = left[some, 0, at].swapaxes(0, 1).shape
                size = shape[0] * shape[1] * shape[2]
                rows = [row.reshape(shape) for row in work[:, :size]]
                factors, product, spare = rows[: 2 * PLANES], rows[16:24], rows[24:]
                valid[some] &= _complete(left[some, :, at], factors[:PLANES], spare)
                valid[some] &= _complete(right[some, :, at], factors[PLANES:], spare)
                sl24.multiply(factors[:PLANES], factors[PLANES:], product, spare)
                return product

            part = left[some]
            result[some] = self._folded(_steps_product(source, form.steps, len(part), columns))
        return result, valid

    def uniform(self, randomness: Bytes) -> Bulk:
        """Draw independent, exactly uniform elements from uniform bytes (batch, random_bytes).

        Equal bytes give equal elements. The bytes determine the length.
        Cost: 37 word operations for 64 elements, and the spare draws.

        Raises:
            SamplingError: too many draws were rejected, which happens with probability below
                2^-64 per sequence. Otherwise the elements are exactly uniform.
        """
        width = randomness.shape[-1]
        # The bytes grow with every word.
        words_at_most = width // (8 * DRAWN_PLANES)
        form = Lanes.exactly(1 + bisect_left(range(1, words_at_most), width, key=_random_bytes))
        require_rows("randomness", randomness, _random_bytes(form.words))
        words = randomness.view("<u8")
        batch, drawn = len(words), DRAWN_PLANES * form.words
        planes = words[:, :drawn].reshape(batch, DRAWN_PLANES, form.steps, form.columns)
        spares = words[:, drawn:].reshape(batch, 4, words.shape[1] // 4 - drawn // 4)
        out = empty(form, batch)
        steps = min(form.steps, max(1, DRAWN_BLOCK // form.columns))
        count = max(1, DRAWN_BLOCK // (steps * form.columns))
        size = min(count, batch) * steps * form.columns
        work = scratch(DRAWN_PLANES + PLANES + sl24.COMPLETE_SCRATCH, size)
        for some in slices(batch, count):
            spare = Reserve(spares[some])
            for at in slices(form.steps, steps):
                block, target = planes[some, :, at].swapaxes(0, 1), out[:, at, some]
                size = block[0].size
                rows = work[:, :size]
                if batch == 1:  # in place: nothing to transpose
                    draw, matrix = block.reshape(DRAWN_PLANES, size), target.reshape(PLANES, size)
                    np.copyto(matrix[:4], draw[:4])
                else:
                    draw, matrix = rows[:DRAWN_PLANES], rows[DRAWN_PLANES:][:PLANES]
                    np.copyto(draw.reshape(block.shape), block)
                    matrix[:4] = draw[:4]
                _redraw(matrix[:4], draw[6:], spare, size // block.shape[1], rows[-5:])
                sl24.complete([*matrix[:4], *draw[4:6]], list(matrix[4:]), list(rows[-5:]))
                if batch > 1:
                    target[...] = matrix.reshape(PLANES, *block.shape[1:]).swapaxes(1, 2)
        return out

    def store(self, x: Bulk, out: Bytes) -> None:
        _, steps, batch, columns = x.shape
        require_rows("out", out, 8 * WIRE_PLANES * steps * columns)
        wire = out.view("<u8").reshape(batch, WIRE_PLANES, steps, columns)
        work = scratch(2 + sl24.FIND_T_SCRATCH, min(max(BLOCK, columns), x[0].size))
        for at, some in _parts(steps, batch, columns):
            part = x[:, at, some]
            rows = [row.reshape(part[0].shape) for row in work[:, : part[0].size]]
            sl24.find_t(list(part), rows[0], rows[1], rows[2:])
            for plane, row in enumerate([*part[:4], *rows[:2]]):
                wire[some, plane, at] = row.swapaxes(0, 1)

    def load(self, rows: Bytes) -> tuple[Bulk, NDArray[np.bool_]]:
        form, wire = _wire(rows)
        batch, columns = len(rows), form.columns
        out, valid = empty(form, batch), np.ones(batch, dtype=np.bool_)
        work = scratch(2 + sl24.COMPLETE_SCRATCH, min(max(BLOCK, columns), out[0].size))
        for at, some in _parts(form.steps, batch, columns):
            part = list(out[:, at, some])
            spare = [row.reshape(part[0].shape) for row in work[:, : part[0].size]]
            valid[some] &= _complete(wire[some, :, at], part, spare)
        return out, valid

    def _folded(self, x: Words) -> Ranks:
        """Multiply whole sequences (8, M, batch, V), by words while there are many of them."""
        while x.shape[1] > 1 and x[0].size > FEW:
            even = x.shape[1] // 2 * 2
            halves = _pairs(x[:, 0:even:2], x[:, 1:even:2])
            odd = x[:, even:]
            x = np.concatenate([halves, odd], axis=1) if odd.size else halves
        while x.shape[3] > 1 and x[0].size > FEW:
            x = _pairs(x[..., 0::2], x[..., 1::2])
        if x[0].size <= FEW:
            return self.row_products(self.to_ranks(x))
        x = x[:, 0, :, 0]
        for shift in (1, 2, 4, 8, 16, 32):  # then lane 0 has the product of all
            x = _pairs(x, x >> np.uint64(shift))
        return self._lane(x, 0)

    def _lane(self, planes: NDArray[Any], lane: int) -> Ranks:
        """Return the ranks in one lane of planes of shape (8, batch)."""
        bits = (planes >> np.uint64(lane) & _ONE).astype(np.uint8)
        shifts = np.arange(PLANES, dtype=np.uint8)[:, None]
        ranks: Ranks = self._ranks_of_codes[np.bitwise_or.reduce(bits << shifts, axis=0)]
        return ranks


def _random_bytes(words: int) -> int:
    """Return the bytes for a sequence of so many words: ten planes, and the spare draws."""
    return 8 * (DRAWN_PLANES * words + 4 * reserve(words))


def reserve(words: int) -> int:
    """Return the number of spare draws of 64 lanes for a sequence of so many words.

    A sequence needs 0.2381 * words on average, with a standard deviation of 0.47 sqrt(words).
    """
    return 61 * words // 256 + 5 * isqrt(words) + 20


def _redraw(first: Words, second: Words, spare: Reserve, words: int, work: Words) -> None:
    """Make the first row nonzero in all lanes.

    Args:
        first: four planes of first draws, replaced in place.
        second: four planes of second draws.
        spare: draws for lanes where both are zero.
        words: words of one sequence, in each plane.
        work: five scratch rows.
    """
    zero, again = work[0], work[1:5]
    _empty_lanes(first, zero)
    np.bitwise_or(first, np.bitwise_and(second, zero, out=again), out=first)
    _empty_lanes(first, zero)
    places = np.flatnonzero(zero != 0)
    missing = zero.take(places)
    while len(places):
        drawn = spare.take(places, words) & missing
        for row, fresh in zip(first, drawn, strict=True):
            row[places] |= fresh
        missing &= _empty_lanes(drawn, np.empty_like(missing))
        left = np.flatnonzero(missing)
        places, missing = places[left], missing[left]


def _empty_lanes(planes: Words, out: Words) -> Words:
    """Mark the lanes where all four planes are 0."""
    np.bitwise_or(planes[0], planes[1], out=out)
    np.bitwise_or(out, planes[2], out=out)
    np.bitwise_or(out, planes[3], out=out)
    return np.bitwise_not(out, out=out)


def _wire(rows: Bytes) -> tuple[Lanes, Words]:
    """Return received bytes as words of shape (batch, 6, M, V), with their lanes."""
    require_rows("rows", rows)
    if rows.shape[1] % (8 * WIRE_PLANES):
        raise ShapeError(f"rows must have a multiple of 48 bytes, got {rows.shape[1]}")
    form = Lanes.exactly(rows.shape[1] // (8 * WIRE_PLANES))
    return form, rows.view("<u8").reshape(-1, WIRE_PLANES, form.steps, form.columns)


def _complete(wire: Words, planes: list[Any], spare: list[Any]) -> NDArray[np.bool_]:
    """Write planes (M, batch, V) of a part of `_wire`. Return which sequences are valid in it."""
    for plane, target in enumerate([*planes[:4], *spare[:2]]):
        np.copyto(target, wire[:, plane].swapaxes(0, 1))
    sl24.complete([*planes[:4], *spare[:2]], planes[4:], spare[2:])
    valid: NDArray[np.bool_] = np.bitwise_and.reduce(spare[2], axis=(0, 2)) == _ALL
    return valid


def _like(x: Bulk, out: Bulk | None) -> Bulk:
    if out is None:
        _, steps, batch, columns = x.shape
        return empty(Lanes(steps, columns), batch)
    if out.shape != x.shape:
        raise ShapeError(f"out must have the shape {x.shape}, got {out.shape}")
    return out


def _blocks(*bulks: Bulk) -> Iterator[tuple[int, list[Any]]]:
    """Yield blocks of all bulks at once: words in a plane, and the planes, (8, words) each."""
    flat: list[Any] = []
    for bulk in bulks:
        if bulk.shape != bulks[0].shape:
            raise ShapeError(f"shapes differ: {bulks[0].shape} and {bulk.shape}")
        flat.append(bulk.reshape(PLANES, bulk[0].size))
    if flat[-1].size and not np.may_share_memory(flat[-1], bulks[-1]):
        raise ShapeError("out must be a bulk, or one cut along its second axis")
    words = flat[0].shape[1]
    for start in range(0, words, BLOCK):
        yield min(BLOCK, words - start), [f[:, start : start + BLOCK] for f in flat]


def _runs(batch: int, columns: int) -> Iterator[slice]:
    """Yield the sequences to treat together, so that a step of them is about one block."""
    count = max(1, BLOCK // columns)
    return slices(batch, count)


def _parts(steps: int, batch: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Yield steps and sequences that are about one block of words."""
    for some in _runs(batch, columns):
        count = max(1, BLOCK // ((some.stop - some.start) * columns))
        for at in slices(steps, count):
            yield at, some


def _steps_product(source: Source, steps: int, batch: int, columns: int) -> Words:
    """Multiply over many of the steps: (8, fewer steps, batch, V)."""
    groups = min(steps, max(1, BLOCK // (batch * columns)))
    each = steps // groups
    # `groups` runs of `each` steps go side by side, step by step. Left-over steps are kept.
    shape = (groups, batch, columns)
    work = scratch(sl24.MULTIPLY_SCRATCH + 2 * PLANES, groups * batch * columns)
    rows = [row.reshape(shape) for row in work]
    product, other, spare = rows[:PLANES], rows[PLANES : 2 * PLANES], rows[2 * PLANES :]
    for row, plane in zip(product, source(slice(0, groups * each, each)), strict=True):
        row[...] = plane
    for step in range(1, each):
        sl24.multiply(product, source(slice(step, groups * each, each)), other, spare)
        product, other = other, product
    result = np.stack(product)
    if groups * each < steps:
        rest = np.stack(source(slice(groups * each, steps)))
        result = np.concatenate([result, rest], axis=1)
    return result


def _pairs(x: Words, y: Words) -> Words:
    """Return x * y, for few words."""
    out = np.empty(x.shape, dtype=np.uint64)
    spare = np.empty((sl24.MULTIPLY_SCRATCH, *x.shape[1:]), dtype=np.uint64)
    sl24.multiply(list(x), list(y), list(out), list(spare))
    return out


A5: Final = AlternatingGroup()
