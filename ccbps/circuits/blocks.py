"""Building blocks: comparison, addition, selection and thresholds, shallow before small.

Values are lists of wires, most significant bit first; a comparison also takes an integer constant,
and its bits then cost nothing. At least one operand of a block is a list of wires.

Comparison and carry are one chain, from the most significant bit down:

    g_1 | p_1 & (g_2 | p_2 & (... g_k))

with g_i "decided true here" and p_i "still possible here", g_i implying p_i: for a < b they are
~a_i & b_i and ~a_i | b_i, for a carry a_i & b_i and a_i | b_i. A constant leaves one of them: a
chain of at most k literals. `Chain` cuts such a chain in two at the best place, again and again.

=====================================  ======================================================
block on k bits, wires of depth 0      depth
=====================================  ======================================================
`equal`, constant / wires              ceil(log2 k) / ceil(log2 k) + 2
`less_than`, `at_most`, constant       by the constant; the deepest of all are k = 4: 3, 8: 4 and
                                       16: 6, and of many tried 32: 7, 64: 8; never seen above
                                       ceil(log2 k) + ceil(log2 log2 k)
`less_than`, `at_most`, wires          k = 4: 5, 8: 6, 16: 8, 32: 9, 64: 11
`within`, constant bounds              at most one more than a comparison
`add` / `add_parallel`                 about 2 k / at most 2 more than a comparison on wires
`select`, 1 of n, binary index         ceil(log2 n) + ceil(log2(1 + ceil(log2 n)))
`select_one_hot`, 1 of n               1 + ceil(log2 n)
`at_least`, of n                       at most that of Batcher's network; for 2 of n and all but 1
                                       ceil(log2 n) + ceil(log2 log2 n)
=====================================  ======================================================

Source: the cuts are those of and-or paths, see [G08] for what depth they can reach; [SSM] section
4.1 for `select`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from ccbps.circuits.builder import CircuitBuilder, Wire
from ccbps.circuits.circuit import Op
from ccbps.circuits.networks import batcher
from ccbps.errors import ParameterError, ShapeError

__all__ = [
    "Chain",
    "add",
    "add_parallel",
    "at_least",
    "at_most",
    "equal",
    "less_than",
    "popcount",
    "select",
    "select_one_hot",
    "within",
]

# Longer chains against a constant are shortened by joining runs, for the time of the search only.
_LONG = 192

Bits = Sequence[Wire]
Depths = NDArray[np.int64]


def _constant_bits(value: int, width: int) -> list[bool]:
    return [bool(value >> (width - 1 - i) & 1) for i in range(width)]


def _widths(a: Bits, b: Sequence[Wire | bool]) -> CircuitBuilder:
    if not a or len(a) != len(b):
        raise ShapeError(f"both values must have as many bits, at least 1: {len(a)}, {len(b)}")
    return a[0].builder


def equal(a: Bits, b: Bits | int) -> Wire:
    """[a = b]; false for a constant that does not fit the width.

    Raises:
        ShapeError: not the same number of bits.
    """
    if isinstance(b, int):
        builder = _widths(a, a)
        if b < 0 or b >> len(a):
            return builder.constant(False)
        return builder.all_of(
            x if bit else ~x for x, bit in zip(a, _constant_bits(b, len(a)), strict=True)
        )
    return _widths(a, b).all_of(~(x ^ y) for x, y in zip(a, b, strict=True))


def less_than(a: Bits, b: Bits | int) -> Wire:
    """[a < b] as unsigned numbers; a constant may be any integer.

    Raises:
        ShapeError: not the same number of bits.
    """
    return _compare(a, b, weak=False)


def at_most(a: Bits, b: Bits | int) -> Wire:
    """[a <= b] as unsigned numbers, likewise."""
    return _compare(a, b, weak=True)


def _compare(a: Bits, b: Bits | int, *, weak: bool) -> Wire:
    builder = _widths(a, a)
    if isinstance(b, int):
        if b < 0 or b >> len(a):
            return builder.constant(b >= 0)
        other: Sequence[Wire | bool] = _constant_bits(b, len(a))
    else:
        other = b
        _widths(a, b)
    decided = [~x & y for x, y in zip(a, other, strict=True)]
    possible = [~x | y for x, y in zip(a, other, strict=True)]
    # A strict chain does not look past its last g that can hold, nor a weak one past its last p
    # that can fail.
    while decided and (possible[-1].constant is True if weak else decided[-1].constant is False):
        decided.pop()
        possible.pop()
    if not decided:
        return builder.constant(weak)
    if len(decided) > _LONG:
        decided, possible = _runs(builder, decided, possible)
    chain = Chain(decided, possible)
    return chain.weak(0, len(decided)) if weak else chain.strict(0, len(decided))


def _runs(
    builder: CircuitBuilder, decided: Sequence[Wire], possible: Sequence[Wire]
) -> tuple[list[Wire], list[Wire]]:
    """The same chain with neighbouring positions joined that all have no g, or all no p."""
    positions = zip(decided, possible, strict=True)
    kinds = groupby(positions, key=lambda pair: (pair[0].constant, pair[1].constant))
    g: list[Wire] = []
    p: list[Wire] = []
    for kind, members in kinds:
        joined = [list(wires) for wires in zip(*members, strict=True)]
        if kind in ((False, None), (None, True)):
            g.append(builder.any_of(joined[0]))
            p.append(builder.all_of(joined[1]))
        else:
            g.extend(joined[0])
            p.extend(joined[1])
    return g, p


def within(a: Bits, low: int, high: int) -> Wire:
    """[low <= a <= high] for constants, bounds included; false when high < low.

    Bits that low and high have in common, from the top, are an equality and drop out of the two
    comparisons, where that is not deeper.
    """
    builder, k = _widths(a, a), len(a)
    low, high = max(low, 0), min(high, (1 << k) - 1)
    if high < low:
        return builder.constant(False)
    common = k - (low ^ high).bit_length()
    rest, mask = a[common:], (1 << (k - common)) - 1
    if not rest:
        return equal(a, low)
    head = [x if bit else ~x for x, bit in zip(a, _constant_bits(low, k)[:common], strict=False)]
    cut = builder.all_of([*head, ~less_than(rest, low & mask), at_most(rest, high & mask)])
    whole = builder.all_of([~less_than(a, low), at_most(a, high)])
    return min(cut, whole, key=lambda wire: wire.depth)


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
        self.builder = _widths(decided, possible)
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


def add(a: Bits, b: Bits, carry: Wire | bool = False) -> list[Wire]:
    """a + b + carry in k + 1 bits, the carry rippling up: fewest gates, depth 2k or a bit more.

    Raises:
        ShapeError: not the same number of bits.
    """
    builder = _widths(a, b)
    moving = builder.constant(carry) if isinstance(carry, bool) else carry
    out: list[Wire] = []
    for x, y in zip(reversed(a), reversed(b), strict=True):
        out.append(x ^ y ^ moving)
        moving = (x & y) | ((x | y) & moving)
    return [moving, *reversed(out)]


def add_parallel(a: Bits, b: Bits, carry: Wire | bool = False) -> list[Wire]:
    """a + b + carry in k + 1 bits, every carry in small depth of its own.

    Raises:
        ShapeError: not the same number of bits.
    """
    builder, k = _widths(a, b), len(a)
    last = builder.constant(carry) if isinstance(carry, bool) else carry
    chain = Chain(
        [*(x & y for x, y in zip(a, b, strict=True)), last],
        [*(x | y for x, y in zip(a, b, strict=True)), builder.constant(True)],
    )
    carries = [chain.strict(i, k + 1) for i in range(k + 1)]
    sums = [x ^ y ^ c for x, y, c in zip(a, b, carries[1:], strict=True)]
    return [carries[0], *sums]


def popcount(wires: Bits) -> list[Wire]:
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


def select(index: Bits, items: Sequence[Wire | bool]) -> Wire:
    """items[index], the index in binary; false for an index past the last item.

    Raises:
        ParameterError: no item, more items than the index can name, or an index of no bits.
    """
    if not index or not items or len(items) > 1 << len(index):
        raise ParameterError(
            f"items must be 1..{1 << len(index)} for an index of {len(index)} bits (at least 1), "
            f"got {len(items)}"
        )
    builder, k = index[0].builder, len(index)
    used = []
    for number, item in enumerate(items):
        literals = [
            x if bit else ~x for x, bit in zip(index, _constant_bits(number, k), strict=True)
        ]
        used.append(builder.all_of([item, *literals]))
    return builder.any_of(used)


def select_one_hot(flags: Bits, items: Sequence[Wire | bool]) -> Wire:
    """The item whose flag is set; the OR of several where several are, false where none is.

    Raises:
        ShapeError: not one flag for each item.
    """
    builder = _widths(flags, items)
    return builder.any_of(flag & item for flag, item in zip(flags, items, strict=True))
