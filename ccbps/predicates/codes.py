"""Codes: attribute values as unsigned integers of a fixed width, many rows at a time.

Convention: a batch of codes is a uint64 array of shape (limbs, rows). The most significant limb
comes first and the code is right-aligned, so the code of a row is the sum over j of
``limb[j] * 2**(64 * (limbs - 1 - j))``. Bounds are Python integers and may lie outside the width:
a bound below zero is below every code, one at or above ``2**(64 * limbs)`` is above every code.

Hazard: nothing here runs in constant time. It is for the owner of the codes, not for a broker.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

CodeArray = npt.NDArray[np.uint64]
BoolArray = npt.NDArray[np.bool_]

_LIMB_BITS = 64
_LIMB_MASK = (1 << _LIMB_BITS) - 1


def limbs_for(bits: int) -> int:
    """Number of 64-bit limbs that hold `bits` bits."""
    return -(-bits // _LIMB_BITS)


def pack(values: Sequence[int], limbs: int) -> CodeArray:
    """Codes of shape (limbs, len(values)) from non-negative integers below ``2**(64 * limbs)``."""
    if limbs == 1:
        return np.array(values, dtype=np.uint64).reshape(1, -1)
    width = 8 * limbs
    joined = b"".join(value.to_bytes(width, "big") for value in values)
    rows = np.frombuffer(joined, dtype=">u8").reshape(-1, limbs)
    return np.ascontiguousarray(rows.T.astype(np.uint64))


def unpack(codes: CodeArray) -> list[int]:
    """The codes as Python integers, one per row; the inverse of `pack`."""
    values: list[int] = [0] * codes.shape[1]
    for limb in codes:
        values = [
            (value << _LIMB_BITS) | word for value, word in zip(values, limb.tolist(), strict=True)
        ]
    return values


def increment(codes: CodeArray) -> CodeArray:
    """Every code plus one; the caller makes sure that the width can hold the result."""
    out = codes.copy()
    carry = np.ones(codes.shape[1], dtype=np.uint64)
    for limb in out[::-1]:
        limb += carry
        # A limb overflowed exactly when adding the carry made it smaller than the carry.
        carry = (limb < carry).astype(np.uint64)
    return out


def at_most(codes: CodeArray, bound: int) -> BoolArray:
    """``code <= bound`` for every row, shape (rows,)."""
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
    """``low <= code <= high`` for every row, shape (rows,); empty when ``high < low``."""
    return at_most(codes, high) & ~at_most(codes, low - 1)


def distance_at_most(codes: CodeArray, value: int, limit: int) -> BoolArray:
    """Whether each code differs from `value` in at most `limit` bits, shape (rows,)."""
    word = pack([value], codes.shape[0])
    distance = np.bitwise_count(codes ^ word).sum(axis=0, dtype=np.int64)
    return np.asarray(distance <= limit, dtype=np.bool_)


def conjunction(parts: Sequence[BoolArray]) -> BoolArray:
    """Rows where all parts hold; at least one part, all of shape (rows,)."""
    return np.asarray(np.logical_and.reduce(parts), dtype=np.bool_)


def disjunction(parts: Sequence[BoolArray]) -> BoolArray:
    """Rows where some part holds; at least one part, all of shape (rows,)."""
    return np.asarray(np.logical_or.reduce(parts), dtype=np.bool_)
