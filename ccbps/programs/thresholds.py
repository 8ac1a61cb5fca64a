"""At least k of n parts, as a formula: a sum over how many hold among the first half.

Sums are free, as the numbers of parts that hold exclude one another, so the gates are those that
join the halves; but parts occur many times. Few parts are cheap (two of three is one gate), many
are not: a branching program (`ccbps.programs.counting`) shares its nodes, a formula cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from ccbps.programs.branching import ONE, ZERO
from ccbps.programs.formula import And, Formula, conjunction, disjunction, gates, negation, total


def at_least(k: int, parts: Sequence[Formula]) -> Formula:
    """At least k of the parts hold; any k. See `at_least_gates` before."""
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
    left, right = _halves(parts)
    found = [at_least(k, left)]
    for i in range(max(0, k - len(right)), min(k, len(left) + 1)):
        found.append(conjunction([exactly(i, left), at_least(k - i, right)]))
    return total(found)


def exactly(k: int, parts: Sequence[Formula]) -> Formula:
    """Exactly k of the parts hold, 0 <= k <= number of parts."""
    if k in (0, len(parts)):
        return conjunction(parts if k else [negation(part) for part in parts])
    left, right = _halves(parts)
    counts = range(max(0, k - len(right)), min(k, len(left)) + 1)
    return total([conjunction([exactly(i, left), exactly(k - i, right)]) for i in counts])


def at_least_gates(k: int, sizes: Sequence[int]) -> int:
    """AND gates of `at_least` for parts of so many gates, without making it."""
    counter = _Counter(sizes)
    return counter.at_least(k, 0, len(sizes))


class _Counter:
    """Gates of `at_least` and `exactly`, each for a stretch of the parts."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self.at_least: Callable[[int, int, int], int] = cache(self._at_least)
        self.exactly: Callable[[int, int, int], int] = cache(self._exactly)

    def _all(self, start: int, stop: int) -> int:
        return sum(self._sizes[start:stop]) + stop - start - 1

    def _at_least(self, k: int, start: int, stop: int) -> int:
        if not 0 < k <= stop - start:
            return 0
        if k in (1, stop - start):
            return self._all(start, stop)
        if stop - start == 3:
            return sum(self._sizes[start:stop]) + 2 * min(self._sizes[start:stop]) + 1
        middle = (start + stop) // 2
        found = self.at_least(k, start, middle)
        for i in range(max(0, k - (stop - middle)), min(k, middle - start + 1)):
            found += self.exactly(i, start, middle) + self.at_least(k - i, middle, stop) + 1
        return found

    def _exactly(self, k: int, start: int, stop: int) -> int:
        if k in (0, stop - start):
            return self._all(start, stop)
        middle = (start + stop) // 2
        counts = range(max(0, k - (stop - middle)), min(k, middle - start) + 1)
        return sum(
            self.exactly(i, start, middle) + self.exactly(k - i, middle, stop) + 1 for i in counts
        )


def _halves(parts: Sequence[Formula]) -> tuple[Sequence[Formula], Sequence[Formula]]:
    middle = len(parts) // 2
    return parts[:middle], parts[middle:]
