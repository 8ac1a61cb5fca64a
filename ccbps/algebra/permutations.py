"""S5: all 120 permutations of five points, multiplied by table look-up.

A bulk is the array of ranks itself: shape (batch, length), uint8, as on the wire. Look-ups take two
neighbouring bytes at a time. Bytes from 120 up are not ranks: products and
inverses refuse them with a `ParameterError`.

Conventions: as in `ccbps.algebra.group`; ranks are lexicographic in one-line form.
Hazard: look-ups at secret addresses: not constant time.
Source: [SSM] section 1.2, the paper's group.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from math import isqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra.group import BLOCK, Bits, Bulk, Group, Reserve, pair_table, require_rows
from ccbps.arrays import Bytes, Ranks
from ccbps.checks import whole
from ccbps.errors import ShapeError

ACCEPTED: Final = 240
"""Bound of the random bytes that are kept: twice the order, so that two bytes give each rank."""


class SymmetricGroup(Group):
    """S5; see the module. Use the instance `S5`."""

    def __init__(self) -> None:
        super().__init__("S5", only_even=False)
        self._inverses = np.zeros(256, dtype=np.uint8)
        self._inverses[: self.order] = self.inverses
        self._quotients = pair_table(self.multiplication[self.inverses])

    def padded(self, length: int) -> int:
        return whole("length", length, 1)

    def element_bytes(self, length: int) -> int:
        return length

    def random_bytes(self, length: int) -> int:
        """Return the bytes of a sequence: one per element, and a reserve.

        The reserve is for one element in 15, with a slack of 3 standard units.
        """
        return length + _reserve(length)

    def from_ranks(self, ranks: Ranks) -> Bulk:
        self._require_ranks(ranks)
        return ranks.copy()

    def to_ranks(self, bulk: Bulk) -> Ranks:
        return bulk.copy()

    def pack(self, bits: NDArray[np.bool_]) -> Bits:
        return bits

    def pack_periodic(self, bits: NDArray[np.bool_], length: int) -> Bits:
        times = -(-length // bits.shape[1])
        return np.tile(bits, (1, times))[:, :length]

    def choose(self, bits: Bits, one: int, zero: int) -> Bulk:
        self._require_rank(one)
        self._require_rank(zero)
        out = np.multiply(bits, np.uint8(one ^ zero), dtype=np.uint8)
        return np.bitwise_xor(out, np.uint8(zero), out=out)

    def divides(self, every: int, length: int) -> bool:
        return length % every == 0

    def put(self, x: Bulk, every: int, ranks: Ranks) -> None:
        self._require_ranks(ranks)
        x[:, ::every] = ranks

    def invert(self, x: Bulk, every: int) -> None:
        x[:, ::every] = self._inverses.take(x[:, ::every])

    def take(self, x: Bulk, rows: NDArray[np.intp]) -> Bulk:
        return x.take(rows, axis=0)

    def multiply(self, x: Bulk, y: Bulk, out: Bulk | None = None) -> Bulk:
        self._require_ranks(x)
        self._require_ranks(y)
        return _products(self._products, x, y, out)

    def inverse(self, x: Bulk, out: Bulk | None = None) -> Bulk:
        self._require_ranks(x)
        return self._inverses.take(x, out=out, mode="clip")

    def blind(self, left: Bulk, x: Bulk, right: Bulk, out: Bulk | None = None) -> Bulk:
        if left.shape != x.shape or x.shape != right.shape:
            raise ShapeError(f"shapes differ: {left.shape}, {x.shape}, {right.shape}")
        for bulk in (left, x, right):
            self._require_ranks(bulk)
        out = np.empty_like(x) if out is None else out
        for at in _blocks(x):
            part = _products(self._quotients, left[at], x[at])
            _products(self._products, part, right[at], out[at])
        return out

    def delay(self, x: Bulk, first: Ranks, out: Bulk | None = None) -> Bulk:
        out = np.empty_like(x) if out is None else out
        out[:, 1:] = x[:, :-1]
        out[:, 0] = first
        return out

    def last(self, x: Bulk) -> Ranks:
        return x[:, -1].copy()

    def product(self, x: Bulk) -> Ranks:
        """Return the product of each whole sequence, left to right, shape (batch,).

        Cost: one look-up per product, about 0.7 ns.
        """
        self._require_ranks(x)
        return self.row_products(x)

    def uniform(self, randomness: Bytes) -> Bulk:
        width = randomness.shape[1]
        length = 1 + bisect_left(range(1, width), width, key=self.random_bytes)
        require_rows("randomness", randomness, self.random_bytes(length))
        spare = Reserve(_reduced(randomness[:, length:]))
        result = _reduced(randomness[:, :length])
        draws = result.reshape(-1)
        rejected = np.flatnonzero(draws >= self.order)
        while len(rejected):
            fresh = spare.take(rejected, length)
            draws[rejected] = fresh
            rejected = rejected[fresh >= self.order]
        return result

    def store(self, x: Bulk, out: Bytes) -> None:
        require_rows("out", out, x.shape[1])
        np.copyto(out, x)

    def load(self, rows: Bytes) -> tuple[Bulk, NDArray[np.bool_]]:
        require_rows("rows", rows)
        return rows.copy(), self._valid(rows)

    def product_of(self, x: Bytes, y: Bytes) -> tuple[Ranks, NDArray[np.bool_]]:
        require_rows("x", x)
        require_rows("y", y, x.shape[1])
        if len(x) != len(y):
            raise ShapeError(f"{len(x)} sequences do not pair with {len(y)}")
        partial = np.empty((len(x), -(-x.shape[1] // BLOCK)), dtype=np.uint8)
        for rows, part in _blocks(x):
            # Bytes that are not ranks count as the identity here, and their row is not valid.
            both = _products(self._products, x[rows, part], y[rows, part])
            partial[rows, part.start // BLOCK] = self.row_products(both)
        return self.product(partial), self._valid(x) & self._valid(y)

    def _valid(self, rows: Bytes) -> NDArray[np.bool_]:
        valid: NDArray[np.bool_] = rows.max(axis=1) < self.order
        return valid


def _products(table: Bytes, x: Bytes, y: Bytes, out: Bytes | None = None) -> Bytes:
    """Return x * y at each position of two arrays (batch, length); `out` may be one of them."""
    if x.shape != y.shape:
        raise ShapeError(f"shapes differ: {x.shape} and {y.shape}")
    out = np.empty(x.shape, dtype=np.uint8) if out is None else out
    for at in _blocks(x):
        pairs = np.empty((*x[at].shape, 2), dtype=np.uint8)
        pairs[..., 0], pairs[..., 1] = x[at], y[at]
        out[at] = table.take(pairs.view("<u2")[..., 0])
    return out


def _blocks(x: Bytes) -> Iterator[tuple[slice, slice]]:
    """Yield parts of an array (batch, length), about `BLOCK` elements each."""
    step = max(1, BLOCK // max(1, x.shape[1]))
    for row in range(0, len(x), step):
        for start in range(0, x.shape[1], BLOCK):
            yield slice(row, row + step), slice(start, start + BLOCK)


def _reduced(draws: Bytes) -> Bytes:
    """Reduce bytes below 240 mod 120, and map the others to numbers from 120 up."""
    reduced: Bytes = np.minimum(draws, draws - np.uint8(ACCEPTED // 2))
    return reduced


def _reserve(length: int) -> int:
    """Return the number of spare draws: mean length / 15, standard deviation 0.27 sqrt(length)."""
    return length // 15 + 3 * isqrt(length) + 22


S5: Final = SymmetricGroup()
