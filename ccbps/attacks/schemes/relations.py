"""Linear relations between elements that a party can compute, in the generic group model.

In generic groups, all that a party can find out are linear relations between the products of
pairings of its points. In the transparent pairing of `ccbps.algebra.pairing`, where elements are
their logarithms, all such relations are found: those that hold for all keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ccbps.algebra.modular import inverse


def rank_modulo(rows: Any, order: int) -> int:
    """Return the rank of a matrix of integers modulo a prime.

    Args:
        rows: matrix.
        order: the prime.
    """
    reduced = np.array(rows, dtype=_kind(order)) % order
    rank = 0
    for column in range(reduced.shape[1]):
        pivots = np.flatnonzero(reduced[rank:, column]) + rank
        if not len(pivots):
            continue
        reduced[[rank, pivots[0]]] = reduced[[pivots[0], rank]]
        factor = int(inverse(int(reduced[rank, column]), order))
        reduced[rank] = reduced[rank] * factor % order
        below = reduced[rank + 1 :]
        below -= below[:, column : column + 1] * reduced[rank]
        below %= order
        rank += 1
    return rank


def pairings(ones: Sequence[int], twos: Sequence[int], order: int) -> list[int]:
    """Return the logarithms of the pairings of all points of two groups.

    Args:
        ones: logarithms of points of G1.
        twos: logarithms of points of G2.
        order: order of the groups.
    """
    return [left * right % order for left in ones for right in twos]


def _kind(order: int) -> Any:
    """Return the type of numbers modulo a prime: 64 bits hold products of those below 2^31."""
    return np.int64 if order < 1 << 31 else object


def observed(view: Callable[[], Sequence[int]], order: int) -> Any:
    """Return the views of a party under many keys, a row each: five more rows than columns.

    Args:
        view: function that makes fresh keys and messages, and returns all that the party can
            compute, as logarithms.
        order: order of the groups.
    """
    rows: list[Sequence[int]] = []
    while not rows or len(rows) < len(rows[0]) + 5:
        rows.append(view())
    return np.array(rows, dtype=_kind(order))


def relations_in(rows: Any, order: int) -> int:
    """Count the independent linear relations that hold in all views.

    Args:
        rows: views by `observed`.
        order: order of the groups.
    """
    return int(rows.shape[1]) - rank_modulo(rows, order)
