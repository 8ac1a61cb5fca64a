"""Polynomials over a field: interpolation, and detection of altered values.

A share is the value of a polynomial at a public point. Lagrange's formula gives the value at any
other point from k values; its weights are public and are cached.

Values of a polynomial of degree k - 1 at m points are a code word of a Reed-Solomon code. If at
most (m - k) / 2 of them were altered, decoding finds the altered ones, which are then unique. More
altered values are often detected, but not with certainty. The syndromes::

    S_j = sum over i of  v_i x_i^j y_i,    v_i = product over l != i of 1 / (x_i - x_l)

are zero for code words, so they depend on the errors alone, and not on a secret. They satisfy a
linear recurrence whose roots are the points in error (Berlekamp and Massey).

Sources: [S79]; [McES81] for the link to Reed-Solomon codes; [M69] for the recurrence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import xor
from typing import Final

from ccbps.algebra import gf256, modular
from ccbps.algebra.gf256 import IntegerRows, Plan
from ccbps.errors import DecodeError

SHORT: Final = 1 << 12
"""Largest number of bytes of a value for which `integer_rows` caches its result."""


@dataclass(frozen=True)
class Field:
    """Arithmetic in a field.

    Attributes:
        add: function for the sum of two numbers.
        subtract: function for the difference of two numbers.
        multiply: function for the product of two numbers.
        invert: function for the inverse of a number that is not 0.
    """

    add: Callable[[int, int], int]
    subtract: Callable[[int, int], int]
    multiply: Callable[[int, int], int]
    invert: Callable[[int], int]


BYTES: Final = Field(xor, xor, gf256.multiply, gf256.inverse)
"""The field of 256 elements."""


def prime_field(p: int) -> Field:
    """Return the field of the integers modulo a prime."""
    return Field(
        lambda left, right: (left + right) % p,
        lambda left, right: (left - right) % p,
        lambda left, right: left * right % p,
        lambda value: modular.inverse(value, p),
    )


# -- Lagrange's formula -------------------------------------------------------------------------


def lagrange(field: Field, points: Sequence[int], at: int) -> list[int]:
    """Return weights by which the values at `points` add up to the value at another point."""
    weights = []
    for point in points:
        above, below = 1, 1
        for other in points:
            if other != point:
                above = field.multiply(above, field.subtract(at, other))
                below = field.multiply(below, field.subtract(point, other))
        weights.append(field.multiply(above, field.invert(below)))
    return weights


@lru_cache(maxsize=4096)
def byte_weights(points: tuple[int, ...], at: int) -> Plan:
    """Return the plan of `lagrange` for rows of bytes.

    Raises:
        DecodeError: a point is not 1 .. 255.
    """
    if not all(type(point) is int and 1 <= point < gf256.ORDER for point in points):
        raise DecodeError(f"points of shares must be 1 .. 255, got {[*points]}")
    return gf256.plan_of(lagrange(BYTES, points, at))


def misfit(points: Sequence[int], rows: Sequence[int], k: int, size: int) -> int:
    """Return the first byte in which a row after the first k does not fit these, or -1.

    Args:
        points: at least k points, each once.
        rows: a value for each point, as an integer with its first byte highest.
        k: number of shares needed.
        size: bytes of a value.
    """
    first, combine = (*points[:k],), integer_rows(size).combine
    for place in range(k, len(points)):
        difference = combine(byte_weights(first, points[place]), rows[:k]) ^ rows[place]
        if difference:
            return size - -(-difference.bit_length() // 8)
    return -1


def integer_rows(size: int) -> IntegerRows:
    """Return arithmetic on values of `size` bytes."""
    return _short_rows(size) if size <= SHORT else IntegerRows(size)


_short_rows = lru_cache(maxsize=64)(IntegerRows)


# -- altered values -----------------------------------------------------------------------------


def altered_places(field: Field, points: Sequence[int], values: Sequence[int], k: int) -> set[int]:
    """Find the places of the values that do not lie on the polynomial of most of them.

    Args:
        field: field of points and values.
        points: m points, each once.
        values: a value for each point.
        k: number of coefficients of the polynomial.

    Raises:
        DecodeError: more than (m - k) / 2 values were altered, as far as detectable.
    """
    m, terms = len(points), []
    for x, y in zip(points, values, strict=True):
        divisor = 1
        for other in points:
            if other != x:
                divisor = field.multiply(divisor, field.subtract(x, other))
        terms.append(field.multiply(field.invert(divisor), y))
    syndromes = []
    for _ in range(m - k):
        total = 0
        for term in terms:
            total = field.add(total, term)
        syndromes.append(total)
        terms = [field.multiply(x, term) for x, term in zip(points, terms, strict=True)]
    recurrence = _recurrence(field, syndromes)
    altered = {i for i, x in enumerate(points) if not _value(field, recurrence, x)}
    if len(altered) != len(recurrence) - 1 or 2 * len(altered) > m - k:
        raise too_many_altered(m, k)
    return altered


def too_many_altered(m: int, k: int) -> DecodeError:
    """Return the error for more than (m - k) / 2 altered shares of m."""
    return DecodeError(
        f"more than {(m - k) // 2} of {m} shares were altered, and {k} are needed: it is unknown "
        "which ones; get more shares"
    )


def _recurrence(field: Field, sequence: Sequence[int]) -> list[int]:
    """Return the shortest recurrence sum c_i s_(j - i) = 0: its coefficients c_0 = 1, c_1, ..."""
    current, previous = [1], [1]
    length, gap, last = 0, 1, 1
    for place, item in enumerate(sequence):
        discrepancy = item
        for i in range(1, min(length, len(current) - 1) + 1):
            discrepancy = field.add(discrepancy, field.multiply(current[i], sequence[place - i]))
        if not discrepancy:
            gap += 1
            continue
        scale = field.multiply(discrepancy, field.invert(last))
        changed = current + [0] * max(0, len(previous) + gap - len(current))
        for i, coefficient in enumerate(previous):
            changed[i + gap] = field.subtract(changed[i + gap], field.multiply(scale, coefficient))
        if 2 * length <= place:
            previous, last, gap, length = current, discrepancy, 1, place + 1 - length
        else:
            gap += 1
        current = changed
    return (current + [0] * (length + 1))[: length + 1]


def _value(field: Field, recurrence: Sequence[int], x: int) -> int:
    """Evaluate c_0 x^t + c_1 x^(t - 1) + ... + c_t."""
    total = 0
    for coefficient in recurrence:
        total = field.add(field.multiply(total, x), coefficient)
    return total
