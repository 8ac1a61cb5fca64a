"""At least k of n parts, as a formula: a sum over the number of true parts in the first half.

Sums are free, since these numbers exclude one another. So gates only join the halves, but parts
occur repeatedly. Few parts are cheap (two of three is one gate), many are not: a branching program
(`ccbps.programs.counting`) shares its nodes, a formula cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ccbps.programs.branching import ONE, ZERO
from ccbps.programs.formula import And, Formula, conjunction, disjunction, gates, negation, total


def at_least(k: int, parts: Sequence[Formula]) -> Formula:
    """Return the formula for at least k true parts. `at_least_gates` tells its cost beforehand."""
    if not 0 < k <= len(parts):
        return ONE if k <= 0 else ZERO
    if k == 1:
        return disjunction(parts)
    if k == len(parts):
        return conjunction(parts)
    if len(parts) == 3:
        # The part that is used three times is the cheapest one.
        a, b, c = sorted(parts, key=gates)
        return total([a, And(total([a, b]), total([a, c]))])
    left, right = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    terms = [at_least(k, left)]
    for i in range(max(0, k - len(right)), min(k, len(left) + 1)):
        terms.append(conjunction([exactly(i, left), at_least(k - i, right)]))
    return total(terms)


def exactly(k: int, parts: Sequence[Formula]) -> Formula:
    """Return the formula for exactly k true parts, 0 <= k <= number of parts."""
    if k in (0, len(parts)):
        return conjunction(parts if k else [negation(part) for part in parts])
    left, right = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    counts = range(max(0, k - len(right)), min(k, len(left)) + 1)
    return total([conjunction([exactly(i, left), exactly(k - i, right)]) for i in counts])


def at_least_gates(k: int, sizes: Sequence[int]) -> int:
    """Count the AND gates of `at_least` for parts of so many gates, without building it."""

    @cache
    def of_at_least(k: int, start: int, stop: int) -> int:
        parts = sizes[start:stop]
        if not 0 < k <= len(parts):
            return 0
        if k in (1, len(parts)):
            return sum(parts) + len(parts) - 1
        if len(parts) == 3:
            return sum(parts) + 2 * min(parts) + 1
        middle = (start + stop) // 2
        return of_at_least(k, start, middle) + sum(
            of_exactly(i, start, middle) + of_at_least(k - i, middle, stop) + 1
            for i in range(max(0, k - (stop - middle)), min(k, middle - start + 1))
        )

    @cache
    def of_exactly(k: int, start: int, stop: int) -> int:
        if k in (0, stop - start):
            return sum(sizes[start:stop]) + stop - start - 1
        middle = (start + stop) // 2
        return sum(
            of_exactly(i, start, middle) + of_exactly(k - i, middle, stop) + 1
            for i in range(max(0, k - (stop - middle)), min(k, middle - start) + 1)
        )

    return of_at_least(k, 0, len(sizes))
