"""Counts of true wires and thresholds on them. Small depth comes before few gates.

The depth of `at_least` on n wires of depth 0 is at most that of a line of Batcher's network. For 2
of n and for all but 1 it is ceil(log2 n) + ceil(log2 log2 n).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ccbps.circuits.blocks import add_parallel
from ccbps.circuits.builder import CircuitBuilder, Wire
from ccbps.circuits.circuit import Op
from ccbps.circuits.networks import batcher
from ccbps.errors import ParameterError, ShapeError


def popcount(wires: Sequence[Wire]) -> list[Wire]:
    """Return the number of true wires among n >= 1, in n.bit_length() bits."""
    if not wires:
        raise ShapeError("wires must be at least 1, got 0")
    n = len(wires)
    if n == 1:
        return list(wires)
    # The last wire is the carry of the sum of the two halves of the others.
    *others, carry = wires
    half = len(others) // 2
    halves = [popcount(part) if part else [] for part in (others[:half], others[half:])]
    zero = carry.builder.constant(False)
    # The second half is never the smaller one.
    first, second = ([zero] * (len(halves[1]) - len(part)) + part for part in halves)
    return add_parallel(first, second, carry)[-n.bit_length() :]


def at_least(k: int, wires: Sequence[Wire], builder: CircuitBuilder | None = None) -> Wire:
    """Return whether at least k wires are true, by the shallower of two monotone circuits.

    The first is a line of Batcher's network. The second splits the wires: at least k of all are
    true if for some i at least i of the first half and k - i of the second are.

    Args:
        k: threshold; any integer.
        wires: wires to be counted; any number of them.
        builder: builder of the result, needed only if there are no wires.

    Raises:
        ParameterError: there are neither wires nor a builder.
    """
    if builder is None:
        if not wires:
            raise ParameterError("at_least of no wires needs a builder")
        builder = wires[0].builder
    n = len(wires)
    if k <= 0 or k > n:
        return builder.constant(k <= 0)
    # Deep wires come last, so that the wires of a half are of about equal depth.
    ordered = sorted(wires, key=lambda wire: wire.depth)
    split = _at_least_split(builder, k, ordered)
    if n < 3 or k in (1, n):
        return split
    line = batcher(n).on_wires(ordered)[n - k]
    return min(split, line, key=lambda wire: wire.depth)


def _at_least_split(builder: CircuitBuilder, k: int, wires: Sequence[Wire]) -> Wire:
    @cache
    def reach(count: int, i: int, j: int) -> Wire:
        if count <= 0 or count > j - i:
            return builder.constant(count <= 0)
        if count == 1:
            return builder.any_of(wires[i:j])
        if count == j - i:
            return builder.all_of(wires[i:j])
        if count in (2, j - i - 1):
            return _all_but_one(builder, wires[i:j], few=count == 2)
        m = (i + j) // 2
        return builder.any_of(
            reach(first, i, m) & reach(count - first, m, j)
            for first in range(max(0, count - (j - m)), min(count, m - i) + 1)
        )

    return reach(k, 0, len(wires))


def _all_but_one(builder: CircuitBuilder, wires: Sequence[Wire], *, few: bool) -> Wire:
    """Return whether at least 2 wires are true if `few`, else the dual: whether at most 1 is false.

    The numbers of two true wires differ in some bit: on each side of it a wire is true.
    """
    sides, both = (Op.OR, Op.AND) if few else (Op.AND, Op.OR)
    pairs = [
        builder.joined(
            both,
            [
                builder.joined(sides, [x for i, x in enumerate(wires) if (i >> bit & 1) == side])
                for side in (0, 1)
            ],
        )
        for bit in range((len(wires) - 1).bit_length())
    ]
    return builder.joined(sides, pairs)
