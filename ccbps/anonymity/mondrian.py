"""Mondrian: a partition of points in several dimensions, cut at the median again and again.

A part is cut in its widest dimension, relative to the domain, as near to its median as equal values
allow: these stay together, so the hulls of parts do not overlap. It is cut in the next widest
dimension if one of its halves would have fewer than k rows or break the rule on sensitive values. A
part that cannot be cut in any dimension is a class.

All parts of one depth are cut at once. The loop is over depths and dimensions, not over rows.

Source: [LDR06], strict partitions.
"""

from __future__ import annotations

import numpy as np

from ccbps.anonymity.diversity import Diversity
from ccbps.arrays import Bools, Index, Reals, Words


def mondrian(
    points: Words, scale: Reals, k: int, rule: Diversity | None = None, values: Index | None = None
) -> Index:
    """Return the part of each point, numbered so that neighbours have neighbouring numbers.

    Args:
        points: coordinates, shape (dimensions, rows), of at least k rows that keep the rule.
        scale: width of the domain of each dimension, above 0.
        k: least number of rows of a part.
        rule: rule on the sensitive values of each part; None for no rule.
        values: sensitive value of each row, by number; None without a rule.
    """
    count = points.shape[1]
    order = np.arange(count)
    starts, active = np.array([0]), np.array([True])
    while active.any():
        sizes = np.diff(starts, append=count)
        active &= sizes >= 2 * k
        cuts = _cuts(points, scale, k, rule, values, order, starts, sizes, np.flatnonzero(active))
        active = cuts > 0
        starts = np.concatenate([starts, starts[active] + cuts[active]])
        both = np.concatenate([active, np.ones(int(active.sum()), dtype=np.bool_)])
        places = np.argsort(starts, kind="stable")
        starts, active = starts[places], both[places]
    parts = np.empty(count, dtype=np.intp)
    parts[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=count))
    return parts


def _cuts(
    points: Words,
    scale: Reals,
    k: int,
    rule: Diversity | None,
    values: Index | None,
    order: Index,
    starts: Index,
    sizes: Index,
    parts: Index,
) -> Index:
    """Return the number of rows before the cut of each part, 0 where there is none.

    Rows of `parts` are sorted, within their part, by the dimension that is cut.
    """
    cuts = np.zeros(len(starts), dtype=np.intp)
    if not len(parts):
        return cuts
    rows, begins = _rows_of(starts, sizes, parts)
    values_of = points[:, order[rows]]
    widths = np.maximum.reduceat(values_of, begins, axis=1)
    widths -= np.minimum.reduceat(values_of, begins, axis=1)
    # The widest first; of equally wide ones, the first.
    ranked = np.argsort(-(widths / scale[:, None]), axis=0, kind="stable")
    for dimensions in ranked:
        some = cuts[parts] == 0
        pending, chosen = parts[some], dimensions[some]
        if not len(pending):
            break
        rows, begins = _rows_of(starts, sizes, pending)
        within = np.repeat(np.arange(len(pending)), sizes[pending])
        coordinates = points[chosen[within], order[rows]]
        arranged = np.lexsort((coordinates, within))
        order[rows] = order[rows][arranged]
        middle = _medians(coordinates[arranged], within, begins, sizes[pending], k)
        good = middle > 0
        if rule is not None and values is not None:
            place = np.arange(len(rows)) - begins[within]
            halves = 2 * within + (place >= middle[within])
            kept = rule.of_groups(halves, values[order[rows]], 2 * len(pending))
            good &= kept[::2] & kept[1::2]
        cuts[pending[good]] = middle[good]
    return cuts


def _rows_of(starts: Index, sizes: Index, parts: Index) -> tuple[Index, Index]:
    """Return the places of the rows of some parts in turn, and where each part begins in them."""
    begins = np.cumsum(sizes[parts]) - sizes[parts]
    within = np.arange(int(sizes[parts].sum())) - np.repeat(begins, sizes[parts])
    return np.repeat(starts[parts], sizes[parts]) + within, begins


def _medians(coordinates: Words, within: Index, begins: Index, sizes: Index, k: int) -> Index:
    """Return, for each part, the cut between different values that is nearest to the middle.

    Only cuts that leave k rows on both sides count; 0 where there is none.
    """
    place = np.arange(len(within)) - begins[within]
    allowed: Bools = np.zeros(len(within), dtype=np.bool_)
    allowed[1:] = (coordinates[1:] != coordinates[:-1]) & (within[1:] == within[:-1])
    allowed &= (place >= k) & (place <= sizes[within] - k)
    distance = np.where(allowed, np.abs(2 * place - sizes[within]), len(within) + 1)
    nearest = np.minimum.reduceat(distance, begins)
    hits = np.flatnonzero(allowed & (distance == nearest[within]))
    cuts = np.zeros(len(sizes), dtype=np.intp)
    # The first of two that are equally near; the others are overwritten.
    cuts[within[hits[::-1]]] = place[hits[::-1]]
    return cuts
