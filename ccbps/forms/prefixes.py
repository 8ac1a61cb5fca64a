"""Ranges of codes as prefixes: the fewest blocks of 2^j aligned codes that make up an interval.

A prefix (value, length) stands for the n-bit codes that start with the first `length` bits of
`value`; the bits after them are zero. Length 0 is every code.

Not protected: the prefixes are the range, and so are their lengths alone, up to a shift and a
reflection. Source: [Survey] Algorithm 1.
"""

from __future__ import annotations

from typing import TypeAlias

from ccbps.errors import ParameterError

Prefix: TypeAlias = tuple[int, int]
"""A value and a length, for the codes from the value on up to value + 2^(n - length) - 1."""


def range_prefixes(low: int, high: int, bits: int) -> list[Prefix]:
    """Cover low ... high exactly by the fewest prefixes, in ascending order.

    Args:
        low: least code, inclusive.
        high: greatest code, inclusive; an empty range (high < low) has no prefixes.
        bits: n, the width of the codes.

    Raises:
        ParameterError: a bound does not fit the width.
    """
    if high < low:
        return []
    if low < 0 or high >> bits:
        raise ParameterError(f"the range is not one of codes of {bits} bits")
    # Algorithm 1 splits at the first bit in which the bounds differ, again and again. The prefixes
    # are the same if one takes the largest aligned block at `low` that does not pass `high`.
    prefixes = []
    while low <= high:
        aligned = (low & -low).bit_length() - 1 if low else bits
        free = min(aligned, (high - low + 1).bit_length() - 1)
        prefixes.append((low, bits - free))
        low += 1 << free
    return prefixes


def most_prefixes(bits: int) -> int:
    """Count the most prefixes that a range of n-bit codes takes: 2(n - 1), and 1 for one bit."""
    # Erratum: [Survey] 4.1 gives [1, 2^n - 1] as the range that takes 2(n - 1) prefixes. That one
    # takes n; [1, 2^n - 2] takes 2(n - 1). test_prefixes.py tries all ranges, n <= 7.
    return max(1, 2 * (bits - 1))
