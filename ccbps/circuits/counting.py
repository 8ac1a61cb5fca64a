"""Counting true wires: how many, and whether at least k, shallow before small.

The depth of `at_least` on n wires of depth 0 is at most that of a line of Batcher's network; for 2
of n and for all but 1 it is ceil(log2 n) + ceil(log2 log2 n).
"""

from __future__ import annotations

from collections.abc import Sequence

from ccbps.circuits.blocks import add_parallel
from ccbps.circuits.builder import CircuitBuilder, Wire
from ccbps.circuits.circuit import Op
from ccbps.circuits.networks import batcher
from ccbps.errors import ParameterError, ShapeError


def popcount(wires: Sequence[Wire]) -> list[Wire]:
    """How many of n >= 1 wires are true, in n.bit_length() bits."""
    if not wires:
        raise ShapeError("wires must be at least 1, got 0")
    n = len(wires)
    if n == 1:
        return list(wires)
    # The last wire is the carry of the sum of the two halves of the others.
    *others, carry = wires
    half = len(others) // 2
    halves = [popcount(part) for part in (others[:half], others[half:]) if part]
    if len(halves) == 1:
        halves.insert(0, [carry.builder.constant(False)])
    width = max(len(part) for part in halves)
    zero = carry.builder.constant(False)
    first, second = ([zero] * (width - len(part)) + part for part in halves)
    return add_parallel(first, second, carry)[-n.bit_length() :]


def at_least(k: int, wires: Sequence[Wire], builder: CircuitBuilder | None = None) -> Wire:
    """[at least k of the wires are true]; the shallower of two monotone circuits.

    One is a line of Batcher's network. The other splits the wires: at least k of all, if for some i
    at least i of the first half and k - i of the second.

    Args:
        k: any integer.
        wires: any number.
        builder: needed only for no wires.

    Raises:
        ParameterError: no wires and no builder.
    """
    if builder is None:
        if not wires:
            raise ParameterError("at_least of no wires needs a builder")
        builder = wires[0].builder
    n = len(wires)
    if k <= 0 or k > n:
        return builder.constant(k <= 0)
    # Deep wires last, so that halves are of about equal depth inside.
    ordered = sorted(wires, key=lambda wire: wire.depth)
    split = _at_least_split(builder, k, ordered)
    if n < 3 or k in (1, n):
        return split
    line = batcher(n).on_wires(ordered)[n - k]
    return min(split, line, key=lambda wire: wire.depth)


def _at_least_split(builder: CircuitBuilder, k: int, wires: Sequence[Wire]) -> Wire:
    made: dict[tuple[int, int, int], Wire] = {}

    def reach(count: int, i: int, j: int) -> Wire:
        if count <= 0 or count > j - i:
            return builder.constant(count <= 0)
        if count == 1:
            return builder.any_of(wires[i:j])
        if count == j - i:
            return builder.all_of(wires[i:j])
        key = (count, i, j)
        if key not in made and count in (2, j - i - 1):
            made[key] = _all_but_one(builder, wires[i:j], few=count == 2)
        if key not in made:
            m = (i + j) // 2
            made[key] = builder.any_of(
                reach(first, i, m) & reach(count - first, m, j)
                for first in range(max(0, count - (j - m)), min(count, m - i) + 1)
            )
        return made[key]

    return reach(k, 0, len(wires))


def _all_but_one(builder: CircuitBuilder, wires: Sequence[Wire], *, few: bool) -> Wire:
    """[at least 2 are true] when `few`, else the dual [at most 1 is false].

    Two true wires have numbers that differ in some bit: one is true on each side of it.
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
