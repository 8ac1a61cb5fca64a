"""Chains of decisions in small depth: what comparisons and carries are made of.

From the most significant bit down, a chain is

    g_1 | p_1 & (g_2 | p_2 & (... g_k))

with g_i "decided true here" and p_i "still possible here", g_i implying p_i: for a < b they are
~a_i & b_i and ~a_i | b_i, for a carry a_i & b_i and a_i | b_i. A constant leaves one of them: a
chain of at most k literals. `Chain` cuts such a chain in two at the best place, again and again.

Source: the cuts are those of and-or paths, see [G08] for what depth they can reach.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ccbps.circuits.builder import CircuitBuilder, Wire
from ccbps.errors import ShapeError

Depths = NDArray[np.int64]


def shared_builder(a: Sequence[Wire], b: Sequence[Wire | bool]) -> CircuitBuilder:
    """The builder of two values of one width.

    Raises:
        ShapeError: not the same number of bits, or none.
    """
    if not a or len(a) != len(b):
        raise ShapeError(f"both values must have as many bits, at least 1: {len(a)}, {len(b)}")
    return a[0].builder


class Chain:
    """g_1 | p_1 & (g_2 | p_2 & ...) over any stretch of positions, in small depth.

    With H the first part of a stretch and L the rest, strict(H L) is both of

        strict(H) | all p of H & strict(L)          weak(H) & (some g of H | strict(L))

    and weak(H L) is the same with weak(L). Both hold because g implies p. The least depth over all
    cuts and both forms comes from dynamic programming over stretches.

    Args:
        decided: g, first position first.
        possible: p, as many; every g must imply its p.

    Cost: about k**3 array elements for k positions, once for each pattern of depths.
    """

    def __init__(self, decided: Sequence[Wire], possible: Sequence[Wire]) -> None:
        self.builder = shared_builder(decided, possible)
        self._g, self._p = decided, possible

        def depth(wire: Wire, neutral: bool) -> int:
            return -1 if wire.constant is neutral else wire.depth

        self._cuts = _best_cuts(
            tuple(depth(wire, False) for wire in decided),
            tuple(depth(wire, True) for wire in possible),
        )
        self._made: dict[tuple[bool, int, int], Wire] = {}

    def strict(self, i: int, j: int) -> Wire:
        """The chain over positions i .. j-1, ending in g: [a < b], carry."""
        return self._part(False, i, j)

    def weak(self, i: int, j: int) -> Wire:
        """The chain over positions i .. j-1, ending in p: [a <= b]."""
        return self._part(True, i, j)

    def _part(self, weak: bool, i: int, j: int) -> Wire:
        if j - i == 1:
            return self._p[i] if weak else self._g[i]
        key = (weak, i, j)
        if key not in self._made:
            cut = int(self._cuts[int(weak), i, j])
            m, conjunctive = i + abs(cut), cut < 0
            rest = self._part(weak, m, j)
            if conjunctive:
                some = self.builder.any_of(self._g[i:m])
                self._made[key] = self._part(True, i, m) & (some | rest)
            else:
                every = self.builder.all_of(self._p[i:m])
                self._made[key] = self._part(False, i, m) | (every & rest)
        return self._made[key]


def _best_cuts(decided: tuple[int, ...], possible: tuple[int, ...]) -> NDArray[np.int16]:
    """Where to cut: [weak, i, j] is the length of H, negative for the conjunctive form.

    Depths of g and p; -1 where g is never true, and where p always is: such a wire disappears.
    """
    k = len(decided)
    some, every = _joined_depths(decided), _joined_depths(possible)
    strict = np.full((k + 1, k + 1), -1, dtype=np.int64)
    weak = strict.copy()
    cuts = np.zeros((2, k + 1, k + 1), dtype=np.int16)
    for position in range(k):
        strict[position, position + 1] = decided[position]
        weak[position, position + 1] = possible[position]
    for length in range(2, k + 1):
        starts = np.arange(k - length + 1)
        i = starts[:, None]
        m, j = i + np.arange(1, length), i + length
        for last, table in enumerate((strict, weak)):
            rest = table[m, j]
            if last:
                inner = _join(every[i, m], rest)
                disjunctive = np.where(inner < 0, -1, _join(strict[i, m], inner))
                inner = _join(some[i, m], rest)
                conjunctive = np.where(rest < 0, weak[i, m], _join(weak[i, m], inner))
            else:
                inner = _join(every[i, m], rest)
                disjunctive = np.where(rest < 0, strict[i, m], _join(strict[i, m], inner))
                inner = _join(some[i, m], rest)
                conjunctive = np.where(inner < 0, -1, _join(weak[i, m], inner))
            both = np.concatenate([disjunctive, conjunctive], axis=1)
            best = both.argmin(axis=1)
            table[starts, starts + length] = both[starts, best]
            cuts[last, starts, starts + length] = np.where(
                best < length - 1, best + 1, -(best - length + 2)
            )
    cuts.flags.writeable = False
    return cuts


def _join(a: Depths, b: Depths) -> Depths:
    """Depth of one gate on wires of these depths; a wire of depth -1 is not there."""
    joined = np.where(a < 0, b, np.where(b < 0, a, np.maximum(a, b) + 1))
    return np.asarray(joined, dtype=np.int64)


def _joined_depths(depths: tuple[int, ...]) -> Depths:
    """[i, j]: depth of joining wires i .. j-1, ceil(log2(sum of 2**depth)), -1 for none."""
    k = len(depths)
    out = np.full((k + 1, k + 1), -1, dtype=np.int64)
    for i in range(k):
        weight = 0
        for j in range(i, k):
            weight += 1 << depths[j] if depths[j] >= 0 else 0
            out[i, j + 1] = (weight - 1).bit_length() if weight else -1
    return out
