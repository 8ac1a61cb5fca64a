"""Codes: attribute values as unsigned integers of a fixed width, many rows at a time, and sets.

Convention: a batch of codes is a uint64 array of shape (limbs, rows). The most significant limb
comes first and the code is right-aligned, so the code of a row is the sum over j of
``limb[j] * 2**(64 * (limbs - 1 - j))``. Bounds are Python integers and may lie outside the width:
a bound below zero is below every code, and a bound of ``2**(64 * limbs)`` or more is above every
code.

Hazard: nothing here runs in constant time. It is for the owner of the codes, not for a broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

CodeArray = npt.NDArray[np.uint64]
BoolArray = npt.NDArray[np.bool_]

Intervals: TypeAlias = tuple[tuple[int, int], ...]
"""A set of codes as intervals (low, high), both included: ascending, disjoint and not touching."""

_LIMB_BITS = 64
_LIMB_MASK = (1 << _LIMB_BITS) - 1


def limbs_for(bits: int) -> int:
    """Return the number of 64-bit limbs that hold `bits` bits."""
    return -(-bits // _LIMB_BITS)


def pack(values: Sequence[int], limbs: int) -> CodeArray:
    """Return codes, shape (limbs, len(values)), of integers from 0 to ``2**(64 * limbs) - 1``."""
    if limbs == 1:
        return np.array([values], dtype=np.uint64)
    width = 8 * limbs
    joined = b"".join(value.to_bytes(width, "big") for value in values)
    rows = np.frombuffer(joined, dtype=">u8").reshape(-1, limbs)
    return np.ascontiguousarray(rows.T.astype(np.uint64))


def unpack(codes: CodeArray) -> list[int]:
    """Return codes as Python integers, one for each row: the inverse of `pack`."""
    limbs: list[list[int]] = codes.tolist()
    values = limbs[0]
    for limb in limbs[1:]:
        values = [(value << _LIMB_BITS) | word for value, word in zip(values, limb, strict=True)]
    return values


def increment(codes: CodeArray) -> CodeArray:
    """Return codes plus one. The caller makes sure that the width holds the results."""
    out = codes.copy()
    carry = np.ones(codes.shape[1], dtype=np.uint64)
    for limb in out[::-1]:
        limb += carry
        # A limb overflowed exactly when adding the carry made it smaller than the carry.
        carry = (limb < carry).astype(np.uint64)
    return out


def at_most(codes: CodeArray, bound: int) -> BoolArray:
    """Evaluate ``code <= bound`` for every row, shape (rows,)."""
    limbs, rows = codes.shape
    if bound < 0:
        return np.zeros(rows, dtype=np.bool_)
    if bound >> (_LIMB_BITS * limbs):
        return np.ones(rows, dtype=np.bool_)
    below = np.ones(rows, dtype=np.bool_)
    # From the least significant limb up: a higher limb decides unless it is equal.
    for position in range(limbs - 1, -1, -1):
        word = np.uint64((bound >> (_LIMB_BITS * (limbs - 1 - position))) & _LIMB_MASK)
        limb = codes[position]
        below = (limb < word) | ((limb == word) & below)
    return below


def in_range(codes: CodeArray, low: int, high: int) -> BoolArray:
    """Evaluate ``low <= code <= high`` for every row, shape (rows,); false when ``high < low``."""
    return at_most(codes, high) & ~at_most(codes, low - 1)


def distance_at_most(codes: CodeArray, value: int, limit: int) -> BoolArray:
    """Tell whether codes differ from `value` in at most `limit` bits, shape (rows,)."""
    word = pack([value], codes.shape[0])
    distance = np.bitwise_count(codes ^ word).sum(axis=0, dtype=np.int64)
    return np.asarray(distance <= limit, dtype=np.bool_)


def conjunction(parts: Sequence[BoolArray]) -> BoolArray:
    """Return the AND of one or more arrays of one shape."""
    return np.asarray(np.logical_and.reduce(parts, axis=0), dtype=np.bool_)


def disjunction(parts: Sequence[BoolArray]) -> BoolArray:
    """Return the OR of one or more arrays of one shape."""
    return np.asarray(np.logical_or.reduce(parts, axis=0), dtype=np.bool_)


# -- sets of codes of one attribute -------------------------------------------------------------


def joined(ranges: Iterable[tuple[int, int]]) -> Intervals:
    """Join ranges that are not empty, in any order, into intervals."""
    intervals: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if intervals and low <= intervals[-1][1] + 1:
            low, high = intervals[-1][0], max(high, intervals.pop()[1])
        intervals.append((low, high))
    return tuple(intervals)


def complement(allowed: Intervals, last: int) -> Intervals:
    """Return the codes from 0 to `last` that are not allowed."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for low, high in allowed:
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= last:
        gaps.append((start, last))
    return tuple(gaps)


def common(left: Intervals, right: Intervals) -> Intervals:
    """Return the codes in both sets."""
    shared: list[tuple[int, int]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        low = max(left[i][0], right[j][0])
        high = min(left[i][1], right[j][1])
        if low <= high:
            shared.append((low, high))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(shared)
