"""The cheapest partition of intervals into runs of neighbours, by dynamic programme.

The intervals of one attribute are sorted by lower bound, then by upper bound. A run is published as
its hull. Its cost is the sum, over the members, of the hull's size less the member's. So the cost
is the expected number of useless deliveries of uniform events, times the size of the domain. Points
are intervals of one value, and the cost is then the information that is lost.

best(j) = min over i of best(i) + cost(i, j). A run of 2k members or more can be cut into two, and
that never costs more. So runs of k to 2k - 1 suffice without a rule on the values of a run. With a
rule, runs up to 3k - 1 are tried, and longer ones only where these do not suffice.

The programme proceeds by blocks of k ends, whose best partitions do not depend on one another.
Costs come from windows over all rows. There is no loop over rows.

Source: [RCT13], whose problem is a partition into any sets. Runs cost little more: 259, not 256, in
`tests/anonymity/test_contiguous.py`, where a greedy cut costs 312.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from ccbps.arrays import Bools, Index, Reals, Words

SLAB: Final = 1 << 21
"""Windows whose costs are computed at once."""

Allowed: TypeAlias = Callable[[int, int, int], Bools]
"""``allowed(start, stop, longest)``: the windows that may be runs, as `Diversity.windows`."""


def runs(lows: Words, highs: Words, k: int, allowed: Allowed | None = None) -> Index:
    """Return the position of the first member of each run of a cheapest partition, ascending.

    Args:
        lows: lower bounds, ascending, shape (rows,).
        highs: upper bounds, shape (rows,).
        k: least number of members of a run.
        allowed: windows that may be runs; None for all.

    Returns:
        positions, 0 first; empty if there is no such partition.
    """
    count = len(lows)
    longest = 2 * k - 1 if allowed is None else 3 * k - 1
    while count >= k:
        found = _within(lows, highs, k, min(longest, count), allowed)
        if found is not None:
            return found
        if longest >= count:
            break
        longest *= 2
    return np.zeros(0, dtype=np.intp)


def cost(lows: Words, highs: Words, groups: Index) -> float:
    """Return the sum, over all members, of the size of the group's hull less the member's."""
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    sizes = np.diff(starts, append=len(order))
    low, high = np.minimum.reduceat(lows[order], starts), np.maximum.reduceat(highs[order], starts)
    hulls = (high - low).astype(np.float64)
    return float((hulls * sizes).sum() - (highs - lows).astype(np.float64).sum())


def _within(
    lows: Words, highs: Words, k: int, longest: int, allowed: Allowed | None
) -> Index | None:
    """Return the runs of a cheapest partition into runs of k to `longest`; None if there is none.

    Costs are exact below 2^53.
    """
    count, sizes = len(lows), np.arange(k, longest + 1)
    best: Reals = np.full(count + 1, np.inf)
    best[0] = 0
    size_at = np.zeros(count + 1, dtype=np.intp)
    # Relative to the least bound, numbers are as small as they can be.
    low, high = ((bounds - lows[0]).astype(np.float64) for bounds in (lows, highs))
    own = np.concatenate([[0.0], np.cumsum(high - low)])
    slab = max(k, SLAB // longest)
    for start in range(k, count + 1, slab):
        stop = min(start + slab, count + 1)
        costs = _costs(low, high, own, start, stop, sizes)
        if allowed is not None:
            costs[~allowed(start, stop, longest)[:, k - 1 :]] = np.inf
        for first in range(start, stop, k):
            ends = np.arange(first, min(first + k, stop))
            total = costs[first - start : first - start + len(ends)]
            total = total + best[np.maximum(ends[:, None] - sizes, 0)]
            choice = np.argmin(total, axis=1)
            best[ends] = total[np.arange(len(ends)), choice]
            size_at[ends] = sizes[choice]
    if not np.isfinite(best[count]):
        return None
    cuts, end, chosen = [], count, size_at.tolist()
    while end:
        end -= chosen[end]
        cuts.append(end)
    return np.array(cuts[::-1], dtype=np.intp)


def _costs(low: Reals, high: Reals, own: Reals, start: int, stop: int, sizes: Index) -> Reals:
    """Return the cost of each window, shape (ends, sizes); infinite before row 0."""
    ends = np.arange(start, stop)[:, None]
    places = ends - 1 - np.arange(int(sizes[-1]))
    reach = np.maximum.accumulate(high[np.maximum(places, 0)], axis=1)[:, sizes - 1]
    first = ends - sizes
    inside = np.maximum(first, 0)
    cost = sizes * (reach - low[inside]) - (own[ends] - own[inside])
    return np.where(first >= 0, cost, np.inf)
