"""Integers modulo a product of primes, by their residues: exact matrix products in float64.

A number modulo P = p_1 ... p_k is kept as k residues (Chinese remainders), each a whole number in
float64 with ``|residue| <= p_i / 2``. The primes are just below 2^23, so a product of two residues
is below 2^44 and sums of up to 512 of them below 2^53: results of BLAS are exact, in any order.

Signs: a number v with ``|v| < P / 4`` has a sign. Its mixed-radix digits show it: v = a_1 +
a_2 p_1 + a_3 p_1 p_2 + ... with ``|a_i| <= p_i / 2 (+ 2)`` has the sign of its highest digit that
is not 0.

Conventions: arrays have the primes as their first axis: shape (primes, ...).

Hazard: not constant time.
Source: textbook residue number systems; Garner's algorithm for the digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Reals
from ccbps.checks import array, whole
from ccbps.errors import ParameterError, ShapeError

PRIMES: Final = (8388593, 8388587, 8388581, 8388571, 8388547, 8388539)
"""The six greatest primes below 2^23."""
MAX_INNER: Final = 256
"""Largest number of terms of a scalar product: 256 * 2^44 = 2^52 leaves room for corrections."""


class Residues:
    """Arithmetic modulo the product of the first `count` primes.

    Args:
        count: number of primes, 1 to 6.

    Attributes:
        primes: the primes.
        modulus: their product P. Whole numbers of absolute value below P / 4 have a sign.
    """

    def __init__(self, count: int) -> None:
        self.primes = PRIMES[: whole("count", count, 1, len(PRIMES), unit="primes")]
        self.modulus = prod(self.primes)
        below = [prod(self.primes[:i]) for i in range(count)]  # p_1 ... p_(i-1)
        self._unit = [
            float(_centred(pow(b, -1, p), p)) for b, p in zip(below, self.primes, strict=True)
        ]
        self._digit = [
            [float(_centred(below[j] * pow(below[i], -1, p), p)) for j in range(i)]
            for i, p in enumerate(self.primes)
        ]

    def __len__(self) -> int:
        return len(self.primes)

    @staticmethod
    def primes_for(bound: int) -> int:
        """Return the number of primes with P / 4 > `bound`.

        Raises:
            ParameterError: six primes are too few.
        """
        for count in range(1, len(PRIMES) + 1):
            if prod(PRIMES[:count]) > 4 * bound:
                return count
        raise ParameterError(f"bound is too large: {bound.bit_length()} bits; use smaller numbers")

    def of(self, values: NDArray[Any]) -> Reals:
        """Convert integers of any dtype, objects included, to residues ``(primes, *shape)``."""
        out = np.empty((len(self), *values.shape))
        for part, prime in zip(out, self.primes, strict=True):
            part[...] = values % (prime if values.dtype == object else values.dtype.type(prime))
        return self.reduced(out)

    def integers(self, residues: Reals) -> NDArray[Any]:
        """Convert residues to Python integers in (-P/2, P/2). It undoes `of`, slowly."""
        total = np.zeros(residues.shape[1:], dtype=object)
        for part, prime in zip(residues, self.primes, strict=True):
            other = self.modulus // prime
            total += part.astype(np.int64).astype(object) * (other * pow(other, -1, prime))
        half = self.modulus // 2
        return np.asarray((total + half) % self.modulus - half)

    def reduced(self, values: Reals) -> Reals:
        """Reduce whole numbers below 2^52 to residues, in place."""
        for part, prime in zip(values, self.primes, strict=True):
            _reduce(part, float(prime), np.empty_like(part))
        return values

    def times(self, left: Reals, right: Reals) -> Reals:
        """Multiply entrywise, with broadcasting."""
        return self.reduced(left * right)

    def matmul(self, left: Reals, right: Reals) -> Reals:
        """Multiply matrices of shapes (primes, a, b) and (primes, b, c), b at most 256."""
        if left.shape[-1] > MAX_INNER:
            raise ShapeError(
                f"the inner dimension must be at most {MAX_INNER}, got {left.shape[-1]}"
            )
        return self.reduced(left @ right)

    def inverse(self, matrix: Reals) -> Reals:
        """Invert a matrix of shape (primes, n, n) by Gauss-Jordan elimination.

        Raises:
            ParameterError: the matrix is singular modulo a prime.
        """
        array("matrix", matrix, np.float64, (len(self), "n", "n"))
        n = matrix.shape[2]
        out = np.empty((len(self), n, n))
        for part, prime, result in zip(matrix, self.primes, out, strict=True):
            work = np.concatenate([part.astype(np.int64), np.eye(n, dtype=np.int64)], axis=1)
            work %= prime
            for column in range(n):
                pivots = np.flatnonzero(work[column:, column])
                if not len(pivots):
                    raise ParameterError("the matrix is singular: it has no inverse; draw another")
                row = column + int(pivots[0])
                work[[column, row]] = work[[row, column]]
                work[column] = work[column] * pow(int(work[column, column]), -1, prime) % prime
                factors = work[:, column].copy()
                factors[column] = 0
                work = (work - factors[:, None] * work[column]) % prime
            result[...] = work[:, n:]
        return self.reduced(out)

    def prepared(self, right: Reals) -> Reals:
        """Scale the right-hand factors of `signed_products`, once for many products."""
        return self.reduced(right * np.array(self._unit)[:, None, None])

    def unprepared(self, scaled: Reals) -> Reals:
        """Undo `prepared`, for shapes (primes, ...)."""
        out = np.empty(scaled.shape)
        for part, values, unit, prime in zip(out, scaled, self._unit, self.primes, strict=True):
            np.multiply(values, float(_centred(pow(int(unit), -1, prime), prime)), out=part)
        return self.reduced(out)

    def signed_products(self, left: Sequence[Reals], right: Sequence[Reals], room: Reals) -> Reals:
        """Return a float64 with the sign of each entry of a matrix product, 0 for exactly 0.

        Args:
            left: factors, for every prime of shape (a, b).
            right: factors from `prepared`, for every prime of shape (b, c).
            room: scratch, shape (primes + 1, a, c). The result is a view of it.
        """
        scratch = room[-1]
        for i, prime in enumerate(self.primes):
            part = np.matmul(left[i], right[i], out=room[i])
            for j, weight in enumerate(self._digit[i]):
                np.multiply(room[j], weight, out=scratch)
                part -= scratch
            _reduce(part, float(prime), scratch)
        # This goes from the lowest digit up. The sum below a digit is less than 1, so that a digit
        # other than 0 decides. Scaling keeps the sign in spite of rounding.
        total: Reals = room[0]
        for i in range(1, len(self)):
            total *= 1 / self.primes[i - 1]
            total += room[i]
        return total


def _centred(value: int, prime: int) -> int:
    value %= prime
    return value - prime if value > prime // 2 else value


def _reduce(part: Reals, prime: float, scratch: Reals) -> None:
    """Reduce whole numbers below 2^52 modulo a prime, in place, to at most prime / 2 (+ 1)."""
    # The quotient may be off by one where it is near a half. The result is congruent all the same.
    np.multiply(part, 1 / prime, out=scratch)
    np.rint(scratch, out=scratch)
    scratch *= prime
    part -= scratch
