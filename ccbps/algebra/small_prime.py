"""Integers modulo a prime below 2^50, many at a time: products and Legendre symbols.

A residue is an int64 of absolute value less than 0.6 p. The quotient of a product by p is estimated
in float64, which is off by less than 0.6, and the remainder follows exactly modulo 2^64.

No branch depends on a residue.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Numbers, Words
from ccbps.checks import whole

MOST_BITS: Final = 50
"""Largest number of bits of a prime."""
_WINDOW: Final = 4


class SmallPrime:
    """Arithmetic modulo one prime. The caller has tested that the modulus is prime.

    Example:
        >>> import numpy as np
        >>> field = SmallPrime(1811)
        >>> field.product(np.array([1000]), np.array([-900])), 1000 * -900 % 1811
        (array([67]), 67)

    Attributes:
        modulus: the prime.
    """

    def __init__(self, modulus: int) -> None:
        self.modulus = whole("modulus", modulus, 3, (1 << MOST_BITS) - 1)
        self._inverse = 1 / modulus
        self._p = np.int64(modulus)
        exponent = (modulus - 1) // 2
        self._windows = _windows(exponent)

    def reduced(self, values: NDArray[Any]) -> Numbers:
        """Reduce integers of at most 64 bits, signed or not."""
        modulus = values.dtype.type(self.modulus)
        # NumPy divides by a number faster than it finds a remainder, up to five times.
        return self._halved((values - values // modulus * modulus).astype(np.int64))

    def product(self, left: Numbers, right: Numbers) -> Numbers:
        """Multiply residues, with broadcasting."""
        quotient = np.multiply(left, right, dtype=np.float64)
        quotient *= self._inverse
        np.rint(quotient, out=quotient)
        out = left * right  # both products modulo 2^64
        out -= quotient.astype(np.int64) * self._p
        return out

    def symbols(self, values: Numbers) -> Numbers:
        """Return the Legendre symbol of each residue: 1 for squares, -1 for others, 0 for 0."""
        square = self.product(values, values)
        odd = [values]
        for _ in range((1 << _WINDOW - 1) - 1):
            odd.append(self.product(odd[-1], square))
        first, *rest = self._windows
        out = odd[first[1] >> 1]
        for squarings, digit in rest:
            for _ in range(squarings):
                out = self.product(out, out)
            if digit:
                out = self.product(out, odd[digit >> 1])
        return out

    def unsigned(self, values: Numbers) -> Words:
        """Return residues as numbers from 0 to p - 1."""
        return (values - values // self._p * self._p).astype(np.uint64)

    def _halved(self, values: Numbers) -> Numbers:
        """Move numbers from 0 to p - 1 to -p / 2 to p / 2."""
        values -= self._p & -(values > self.modulus // 2).astype(np.int64)
        return values


def _windows(exponent: int) -> list[tuple[int, int]]:
    """Return odd digits of an exponent, highest first, with the squarings before each of them."""
    out, bits, place, squarings = [], f"{exponent:b}", 0, 0
    while place < len(bits):
        if bits[place] == "0":
            squarings, place = squarings + 1, place + 1
            continue
        digit = bits[place : place + _WINDOW].rstrip("0")
        out.append((squarings + len(digit), int(digit, 2)))
        squarings, place = 0, place + len(digit)
    if squarings:
        out.append((squarings, 0))
    return out
