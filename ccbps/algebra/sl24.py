"""SL(2,4), the 2x2 matrices of determinant 1 over GF(4): A5 in a form for word operations.

An element of GF(4) is lo + hi*w with w^2 = w + 1: two bits. A matrix [[a, b], [c, d]] is eight
bits, in *planes* a0 a1 b0 b1 c0 c1 d0 d1 (0 is lo, 1 is hi); bit i of a word belongs to lane i, so
one operation on 64-bit words works for 64 matrices. Six of the eight bits are sent: the first row
(a, b), not zero, and t, two bits, where::

    [[a, b], [c, d]] = [[a, b], base(a, b) + t*(a, b)],
    base(a, b) = (0, a^-1) if a is not 0, else (b^-1, 0).

15 rows times 4 values of t: 60 matrices, each once. Inverse: [[d, b], [c, a]], for -1 = 1.

Kernels take *rows*, one array for each plane, all of one shape. The caller provides scratch rows.
Word operations: `multiply` 52 (24 AND, 28 XOR), `complete` 21, `find_t` 20. A product of GF(4) is
three ANDs (Karatsuba: lo*lo', hi*hi', (lo+hi)*(lo'+hi')); sums lo + hi are shared, and an entry of
the product is reduced once, after its two terms are added.

A sequence is cut into 64 contiguous chunks, one for each bit of a word. Each chunk is cut into V
contiguous pieces, one for each *column*. A piece has M elements, one for each *step*::

    position = (bit * V + column) * M + step.

So neighbours lie in neighbouring rows of words, and can be multiplied without reordering. V is the
largest power of two with M >= 64, at most 4096. With one column, word w holds positions w, W + w,
2W + w and so on, of 64 * W. Rounding up to M * V words adds at most 1/64. Planes of a batch have
the shape (M, batch, V).

Conventions: matrices act on row vectors from the right, so the isomorphism to A5 keeps the order of
products: first p, then q. Kernels take constant time: no branch and no address depends on an
element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Words, slices
from ccbps.errors import ParameterError

Rows = Sequence[NDArray[Any]]
"""Arrays of words, one for each plane."""

INVERSE_PLANES: Final = (6, 7, 2, 3, 4, 5, 0, 1)
"""Planes of the inverse: a and d change places."""
MULTIPLY_SCRATCH: Final = 12
COMPLETE_SCRATCH: Final = 5
FIND_T_SCRATCH: Final = 6

LANES: Final = 64
PLANES: Final = 8
STEPS: Final = 64
"""Least number of steps of a sequence with two columns or more."""
COLUMNS: Final = 4096
"""Largest number of columns: a plane of one step is then long enough for cheap NumPy calls."""
CHUNK: Final = 1 << 17
"""Positions brought into lanes or out of them at a time."""

_and, _or, _xor, _not = np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.bitwise_not


def multiply(x: Rows, y: Rows, out: Rows, scratch: Rows) -> None:
    """Write x * y to `out`, which shares memory with neither. Needs twelve scratch rows."""
    p0, p1, p2, q = scratch[:4]
    sum_x, sum_y = scratch[4:8], scratch[8:12]
    for entry in range(4):
        _xor(x[2 * entry], x[2 * entry + 1], sum_x[entry])
        _xor(y[2 * entry], y[2 * entry + 1], sum_y[entry])
    for i in (0, 2):  # row i of x: entries i, i + 1
        for j in (0, 1):  # column j of y: entries j, j + 2
            left, right = 2 * i, 2 * j
            _and(x[left], y[right], p0)
            _xor(p0, _and(x[left + 2], y[right + 4], q), p0)
            _and(x[left + 1], y[right + 1], p1)
            _xor(p1, _and(x[left + 3], y[right + 5], q), p1)
            _and(sum_x[i], sum_y[j], p2)
            _xor(p2, _and(sum_x[i + 1], sum_y[j + 2], q), p2)
            _xor(p0, p1, out[2 * (i + j)])
            _xor(p0, p2, out[2 * (i + j) + 1])


def complete(wire: Rows, out: Rows, scratch: Rows) -> None:
    """Compute the second row (c0 c1 d0 d1) from a0 a1 b0 b1 t0 t1. Needs five scratch rows.

    `out` shares memory with none of `wire`. The first scratch row becomes a0 | a1 | b0 | b1: its
    zeros are lanes that hold no element.
    """
    a0, a1, b0, b1, t0, t1 = wire
    c0, c1, d0, d1 = out
    valid, sum_t, sum_a, sum_b, q = scratch[:5]
    _xor(t0, t1, sum_t)
    _xor(a0, a1, sum_a)
    _xor(b0, b1, sum_b)
    # d = t*b + a^-1; the inverse of lo + hi*w is its square, (lo + hi) + hi*w; 0 goes to 0.
    _and(t0, b0, q)
    _xor(q, sum_a, d0)
    _xor(q, a1, d1)
    _xor(d0, _and(t1, b1, q), d0)
    _xor(d1, _and(sum_t, sum_b, q), d1)
    # c = t*a, and b^-1 where a is 0: there t*a is 0.
    _and(t0, a0, c0)
    _and(sum_t, sum_a, c1)
    _xor(c0, c1, c1)
    _xor(c0, _and(t1, a1, q), c0)
    _or(a0, a1, valid)
    _not(valid, q)
    _xor(c0, _and(sum_b, q, sum_b), c0)
    _xor(c1, _and(b1, q, q), c1)
    _or(valid, b0, valid)
    _or(valid, b1, valid)


def find_t(x: Rows, t0: NDArray[Any], t1: NDArray[Any], scratch: Rows) -> None:
    """Find t of matrices: c * a^-1, or d * b^-1 where a is 0. Needs six scratch rows."""
    a0, a1, b0, b1, c0, c1, d0, d1 = x
    sum_a, sum_b, p0, p1, p2, zero = scratch[:6]
    _xor(a0, a1, sum_a)
    _xor(b0, b1, sum_b)
    _not(_or(a0, a1, zero), zero)
    # Where a is 0, the terms with c vanish of themselves; those with d are masked by it.
    _xor(d0, d1, p2)
    _and(_and(d0, sum_b, p0), zero, p0)
    _and(_and(d1, b1, p1), zero, p1)
    _and(_and(p2, b0, p2), zero, p2)
    _xor(p0, _and(c0, sum_a, sum_b), p0)
    _xor(p1, _and(c1, a1, sum_b), p1)
    _xor(p2, _and(_xor(c0, c1, sum_b), a0, sum_b), p2)
    _xor(p0, p1, t0)
    _xor(p0, p2, t1)


def rank_codes(elements: Sequence[tuple[int, ...]]) -> NDArray[np.uint8]:
    """Return the matrices of even permutations of 0..4: shape (60,), each as eight bits.

    A matrix permutes the five lines through 0 in GF(4)^2, here those of (1,0), (1,1), (1,w),
    (1,w+1) and (0,1), in this order; no two matrices do it alike.
    """
    lines = [(1, 0), (1, 1), (1, 2), (1, 3), (0, 1)]
    by_permutation: dict[tuple[int, ...], int] = {}
    for code in range(256):
        a, b, c, d = (code >> shift & 3 for shift in (0, 2, 4, 6))
        if _times(a, d) ^ _times(b, c) != 1:
            continue
        images = [(_times(x, a) ^ _times(y, c), _times(x, b) ^ _times(y, d)) for x, y in lines]
        # The vector of a line that begins with 1, or is (0, 1): divide by the first that is not 0.
        normal = [(_times(u, s), _times(v, s)) for u, v in images for s in [_inverse(u or v)]]
        by_permutation[tuple(lines.index(vector) for vector in normal)] = code
    return np.array([by_permutation[tuple(element)] for element in elements], dtype=np.uint8)


def _times(x: int, y: int) -> int:
    """Multiply in GF(4), with elements as lo + 2*hi."""
    product = (x if y & 1 else 0) ^ (x << 1 if y & 2 else 0)
    return product ^ 0b111 if product & 4 else product


def _inverse(x: int) -> int:
    """Return the inverse in GF(4), which is the square."""
    return _times(x, x)


# -- lanes -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lanes:
    """Steps M and columns V of a sequence."""

    steps: int
    columns: int

    @property
    def words(self) -> int:
        """Number of words in a plane."""
        return self.steps * self.columns

    @classmethod
    def at_least(cls, words: int) -> Lanes:
        """Return the lanes of so many words or a few more."""
        columns = _columns(words)
        steps = -(-words // columns)
        # Rounding up may reach the next power of two: then there are more columns, as many words.
        more = _columns(steps * columns)
        return cls(steps * columns // more, more)

    @classmethod
    def exactly(cls, words: int) -> Lanes:
        """Return the lanes of so many words.

        Raises:
            ParameterError: no sequence has so many words.
        """
        lanes = cls.at_least(words) if words > 0 else None
        if lanes is None or lanes.words != words:
            raise ParameterError(f"no padded length of A5 has {words} words of 64 lanes")
        return lanes

    @classmethod
    def of(cls, length: int) -> Lanes:
        """Return the lanes of a padded length.

        Raises:
            ParameterError: the length is not padded.
        """
        if length < 1 or length % LANES:
            raise ParameterError(f"length must be padded, a multiple of {LANES}, got {length}")
        return cls.exactly(length // LANES)


def pack(values: NDArray[np.uint8], planes: Words, table: NDArray[np.uint8] | None = None) -> None:
    """Write bit i of each value, or of table[value], to plane i.

    Args:
        values: bytes, shape (batch, length). With one plane, any value but 0 counts as 1.
        planes: words to be written, shape (n, M, batch, V).
        table: codes of the values; None to pack the values themselves.
    """
    for part, target in _chunks(values, planes):
        bits = np.ascontiguousarray(part)
        if table is not None:
            bits = table.take(bits)
        for plane, row in enumerate(target):
            plane_bits = bits & np.uint8(1 << plane) if len(planes) > 1 else bits
            row[...] = np.packbits(plane_bits, axis=-1, bitorder="little").view("<u8")[..., 0]


def unpack(planes: NDArray[Any], table: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Undo `pack`: return table[bits of all planes], shape (batch, length)."""
    _, steps, batch, columns = planes.shape
    values = np.empty((batch, LANES * steps * columns), dtype=np.uint8)
    for part, source in _chunks(values, planes):
        octets = np.ascontiguousarray(source, dtype="<u8").view(np.uint8)
        bits = np.unpackbits(octets, bitorder="little").reshape(len(source), *part.shape)
        for plane in range(1, len(bits)):
            np.left_shift(bits[plane], np.uint8(plane), out=bits[plane])
            np.bitwise_or(bits[0], bits[plane], out=bits[0])
        part[...] = table.take(bits[0])
    return values


def scratch(rows: int, words: int) -> Words:
    """Allocate rows of words, an odd number of cache lines apart and aligned to cache lines.

    So equal places of different rows do not compete for the same few cache sets, and no vector
    crosses a cache line.
    """
    lines = -(-words // 8) | 1
    memory = np.empty(8 * (rows * lines + 1), dtype=np.uint64)
    start = -memory.ctypes.data % 64 // 8
    return memory[start : start + 8 * rows * lines].reshape(rows, -1)[:, :words]


def empty(form: Lanes, batch: int) -> Words:
    """Allocate a bulk of shape (8, M, batch, V)."""
    shape = (PLANES, form.steps, batch, form.columns)
    return scratch(PLANES, form.words * batch).reshape(shape)


def _columns(words: int) -> int:
    return 1 << min(COLUMNS.bit_length() - 1, max(1, words // STEPS).bit_length() - 1)


def _chunks(
    values: NDArray[np.uint8], planes: NDArray[Any]
) -> Iterator[tuple[NDArray[np.uint8], NDArray[Any]]]:
    """Yield pieces that fit the cache: values as (M, batch, V, 64), a view, and their planes."""
    _, steps, batch, columns = planes.shape
    lanes_last = values.reshape(batch, LANES, columns, steps).transpose(3, 0, 2, 1)
    wide = max(1, min(columns, CHUNK // (LANES * steps)))
    count = max(1, CHUNK // (LANES * steps * columns))
    for rows in slices(batch, count):
        for at in slices(columns, wide):
            yield lanes_last[:, rows, at], planes[:, :, rows, at]
