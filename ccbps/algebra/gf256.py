"""The field of 256 elements, GF(2)[x] / (x^8 + x^4 + x^3 + x + 1): bytes that can be divided.

A sum is an XOR. Secret bytes are only multiplied by public constants, many bytes at a time:
doubling all bytes of a word takes six word operations, and a multiple is a sum of doubles. So no
look-up and no branch depends on a secret. `multiply` and `inverse` look up tables: they are for
public numbers, such as the points of a sharing.

Source: FIPS 197, section 4 (the field).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from ccbps.arrays import Words
from ccbps.errors import ParameterError

ORDER: Final = 256
_REDUCED: Final = 0x1B


def _tables() -> tuple[list[int], list[int]]:
    """Return the powers of the generator 3, twice over, and the logarithm of each number but 0."""
    powers, logarithms, value = [], [0] * ORDER, 1
    for exponent in range(ORDER - 1):
        powers.append(value)
        logarithms[value] = exponent
        value ^= value << 1
        value ^= (value >> 8) * (1 << 8 | _REDUCED)
    return powers * 2, logarithms


_POWERS, _LOGARITHMS = _tables()


def multiply(left: int, right: int) -> int:
    """Multiply two public numbers, 0 .. 255 each."""
    return _POWERS[_LOGARITHMS[left] + _LOGARITHMS[right]] if left and right else 0


def inverse(value: int) -> int:
    """Return the inverse of a public number, 1 .. 255.

    Raises:
        ParameterError: the number is 0.
    """
    if not value:
        raise ParameterError("0 has no inverse in the field of 256 elements")
    return _POWERS[ORDER - 1 - _LOGARITHMS[value]]


def power(base: int, exponent: int) -> int:
    """Raise a public number to a whole exponent, at least 0."""
    if not base:
        return int(not exponent)
    return _POWERS[_LOGARITHMS[base] * exponent % (ORDER - 1)]


Plan: TypeAlias = tuple[tuple[int, ...], ...]
"""For each power of two that a linear combination needs, the rows that occur with it."""


def plan_of(constants: Sequence[int]) -> Plan:
    """Plan a sum of rows times public constants, with the highest power of two first."""
    most = max(constants, default=0).bit_length()
    return tuple(
        tuple(row for row, constant in enumerate(constants) if constant >> bit & 1)
        for bit in range(most - 1, -1, -1)
    )


class IntegerRows:
    """Rows of bytes as integers: for a few short rows, faster than arrays of so few bytes.

    Hazard: Python's integers drop leading zeros, so running times show roughly how many there are.

    Args:
        size: bytes of a row.
    """

    def __init__(self, size: int) -> None:
        self._low = int.from_bytes(b"\x7f" * size)
        self._ones = int.from_bytes(b"\x01" * size)

    def combine(self, plan: Plan, rows: Sequence[int]) -> int:
        """Add up the rows times the constants of a plan."""
        low, ones, total = self._low, self._ones, 0
        for chosen in plan:
            total = (total & low) << 1 ^ (total >> 7 & ones) * _REDUCED
            for row in chosen:
                total ^= rows[row]
        return total


class Points:
    """Values of polynomials at the points 1 .. n, all at once, as one integer of n rows.

    It is for short rows, and has the hazard of `IntegerRows`.

    Args:
        n: number of points.
        size: number of polynomials, one for each byte of a row.
    """

    def __init__(self, n: int, size: int) -> None:
        self._n, self._size = n, size
        self._low = int.from_bytes(b"\x7f" * (n * size))
        self._ones = int.from_bytes(b"\x01" * (n * size))
        # For each power of two, ones in the rows of the points that contain it.
        self._first, *self._others = (
            int.from_bytes(
                b"".join(b"\xff" * size if x >> bit & 1 else bytes(size) for x in range(1, n + 1))
            )
            for bit in range(n.bit_length())
        )

    def values(self, constant: bytes, coefficients: bytes) -> list[bytes]:
        """Evaluate polynomials at all points.

        Args:
            constant: constant terms, a row.
            coefficients: the other coefficients, rows one after another, the highest one last.

        Returns:
            For each point a row of values.
        """
        n, size, low, ones = self._n, self._size, self._low, self._ones
        total = 0
        for at in range(len(coefficients) - size, -1, -size):
            multiple = total ^ int.from_bytes(coefficients[at : at + size] * n)
            total = multiple & self._first
            for mask in self._others:
                multiple = (multiple & low) << 1 ^ (multiple >> 7 & ones) * _REDUCED
                total ^= multiple & mask
        rows = (total ^ int.from_bytes(constant * n)).to_bytes(n * size)
        return [rows[at : at + size] for at in range(0, n * size, size)]


class WordRows:
    """Rows of bytes as arrays of words: for many bytes.

    Args:
        words: number of words in a row.
    """

    def __init__(self, words: int) -> None:
        self._high = np.empty(words, dtype=np.uint64)

    def combine(self, plan: Plan, rows: Sequence[Words], out: Words) -> None:
        """Write the sum of the rows times the constants of a plan to `out`."""
        out[:] = 0
        for number, chosen in enumerate(plan):
            if number:
                self.double(out)
            for row in chosen:
                np.bitwise_xor(out, rows[row], out=out)

    def double(self, row: Words) -> None:
        """Double all bytes, in place."""
        high = self._high
        np.right_shift(row, _SEVEN, out=high)
        np.bitwise_and(high, _ONES, out=high)
        np.multiply(high, _FACTOR, out=high)
        np.bitwise_and(row, _LOW, out=row)
        np.left_shift(row, _ONE, out=row)
        np.bitwise_xor(row, high, out=row)


_LOW: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONES: Final = np.uint64(0x0101010101010101)
_FACTOR: Final = np.uint64(_REDUCED)
_ONE, _SEVEN = np.uint64(1), np.uint64(7)
