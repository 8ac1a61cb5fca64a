"""Lagrange's formula over the field of 256 elements: from values at some points to one at another.

Points are public, so the weights are, and are kept; values are rows of bytes as integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from ccbps.algebra.gf256 import ORDER, IntegerRows, Plan, inverse, multiply, plan_of
from ccbps.errors import DecodeError

SHORT: Final = 1 << 12
"""Bytes of a value for which arithmetic is kept."""


@lru_cache(maxsize=4096)
def weights(points: tuple[int, ...], wanted: int) -> Plan:
    """Lagrange's formula: values at `points`, times these, are the value at `wanted`.

    Raises:
        DecodeError: points that no share has.
    """
    if not all(type(point) is int and 1 <= point < ORDER for point in points):
        raise DecodeError(f"points of shares are 1 .. 255, got {[*points]}")
    found = []
    for point in points:
        above, below = 1, 1
        for other in points:
            if other != point:
                above, below = multiply(above, wanted ^ other), multiply(below, point ^ other)
        found.append(multiply(above, inverse(below)))
    return plan_of(found)


def misfit(points: Sequence[int], rows: Sequence[int], k: int, size: int) -> int:
    """The first byte in which shares after the first k do not fit these; -1 if they do.

    Args:
        points: k or more, each once.
        rows: values as integers, the first byte the highest, one for each point.
        k: shares needed.
        size: bytes of a value.
    """
    known, combine = (*points[:k],), integer_rows(size).combine
    for at in range(k, len(points)):
        differs = combine(weights(known, points[at]), rows[:k]) ^ rows[at]
        if differs:
            return size - -(-differs.bit_length() // 8)
    return -1


def integer_rows(size: int) -> IntegerRows:
    """For values of so many bytes; kept, if they are short."""
    return _short_rows(size) if size <= SHORT else IntegerRows(size)


@lru_cache(maxsize=64)
def _short_rows(size: int) -> IntegerRows:
    return IntegerRows(size)
