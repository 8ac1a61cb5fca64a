"""Prefixes of codes: intervals as unions of them, and all prefixes of many codes at a time.

A prefix is kept as the least code that begins with it, so it fits where a code does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Prefix", "cover_size", "limbs_of", "prefix_cover", "prefix_masks"]

Words = NDArray[np.uint64]

_MASK: Final = (1 << 64) - 1

Prefix = tuple[int, int]
"""(length in bits, least code with the prefix)."""


def prefix_cover(low: int, high: int, bits: int) -> tuple[Prefix, ...]:
    """The fewest prefixes of `bits`-bit codes whose union is low .. high, both inclusive."""
    found = []
    while low <= high:
        free = bits if low == 0 else (low & -low).bit_length() - 1
        free = min(free, (high - low + 1).bit_length() - 1)
        found.append((bits - free, low))
        low += 1 << free
    return tuple(found)


def cover_size(bits: int) -> int:
    """The most prefixes an interval takes."""
    return max(1, 2 * (bits - 1))


def limbs_of(codes: Sequence[int], limbs: int) -> Words:
    """Codes as uint64, shape (limbs, n), most significant first."""
    shifts = [64 * place for place in reversed(range(limbs))]
    return np.array([[code >> by & _MASK for code in codes] for by in shifts], dtype=np.uint64)


def prefix_masks(bits: int, limbs: int) -> tuple[Words, Words]:
    """Lengths 0 .. bits, and what each leaves of a code: (bits + 1,) and (limbs, bits + 1)."""
    full = (1 << bits) - 1
    kept = [full >> (bits - length) << (bits - length) for length in range(bits + 1)]
    return np.arange(bits + 1, dtype=np.uint64), limbs_of(kept, limbs)
