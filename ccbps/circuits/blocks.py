"""Building blocks: comparison, addition and selection. Small depth comes before few gates.

Values are lists of wires, most significant bit first. A comparison also takes an integer constant,
whose bits cost nothing. At least one operand of a block is a list of wires.

Comparison and carry are chains of decisions. From the most significant bit down, a chain is::

    g_1 | p_1 & (g_2 | p_2 & (... g_k))

with g_i "decided true here" and p_i "still possible here". g_i implies p_i. For a < b they are
~a_i & b_i and ~a_i | b_i, for a carry a_i & b_i and a_i | b_i. A constant leaves one of them: a
chain of at most k literals. `Chain` cuts such a chain in two at the best place, recursively.

=====================================  ======================================================
block on k bits, wires of depth 0      depth
=====================================  ======================================================
`equal`, constant / wires              ceil(log2 k) / ceil(log2 k) + 2
`less_than`, `at_most`, constant       by the constant; the deepest of all are k = 4: 3, 8: 4 and
                                       16: 6, and of a large sample 32: 7, 64: 8; never seen above
                                       ceil(log2 k) + ceil(log2 log2 k)
`less_than`, `at_most`, wires          k = 4: 5, 8: 6, 16: 8, 32: 9, 64: 11
`within`, constant bounds              at most one more than a comparison
`add` / `add_parallel`                 about 2 k / at most 2 more than a comparison on wires
`select`, 1 of n, binary index         ceil(log2 n) + ceil(log2(1 + ceil(log2 n)))
`select_one_hot`, 1 of n               1 + ceil(log2 n)
=====================================  ======================================================

Sources: [SSM] section 4.1 for `select`; the cuts are those of and-or paths, see [G08] for the depth
they can reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from ccbps.circuits.circuit import CircuitBuilder, Wire
from ccbps.errors import ParameterError, ShapeError

# The search for cuts first joins runs in longer chains against a constant, to save time.
_LONG = 192

Bits = Sequence[Wire]
Depths = NDArray[np.int64]


def _constant_bits(value: int, width: int) -> list[bool]:
    return [bool(value >> (width - 1 - i) & 1) for i in range(width)]


def _literals(a: Bits, value: int) -> list[Wire]:
    """Return for each bit of `a` a wire that is true if the bit is that of the constant `value`."""
    return [x if bit else ~x for x, bit in zip(a, _constant_bits(value, len(a)), strict=True)]


def shared_builder(a: Bits, b: Sequence[Wire | bool]) -> CircuitBuilder:
    """Return the builder of two values of one width.

    Raises:
        ShapeError: the values have different numbers of bits, or none.
    """
    if not a or len(a) != len(b):
        raise ShapeError(
            f"both values must have as many bits, at least 1, got {len(a)} and {len(b)}"
        )
    return a[0].builder


def equal(a: Bits, b: Bits | int) -> Wire:
    """Return [a = b]. It is false for a constant that does not fit the width.

    Raises:
        ShapeError: the values have different numbers of bits.
    """
    if isinstance(b, int):
        builder = shared_builder(a, a)
        if b < 0 or b >> len(a):
            return builder.constant(False)
        return builder.all_of(_literals(a, b))
    return shared_builder(a, b).all_of(~(x ^ y) for x, y in zip(a, b, strict=True))


def less_than(a: Bits, b: Bits | int) -> Wire:
    """Return [a < b] of unsigned numbers. A constant may be any integer.

    Raises:
        ShapeError: the values have different numbers of bits.
    """
    return _compare(a, b, weak=False)


def at_most(a: Bits, b: Bits | int) -> Wire:
    """Return [a <= b] of unsigned numbers. A constant may be any integer.

    Raises:
        ShapeError: the values have different numbers of bits.
    """
    return _compare(a, b, weak=True)


def _compare(a: Bits, b: Bits | int, *, weak: bool) -> Wire:
    builder = shared_builder(a, a if isinstance(b, int) else b)
    if isinstance(b, int):
        if b < 0 or b >> len(a):
            return builder.constant(b >= 0)
        other: Sequence[Wire | bool] = _constant_bits(b, len(a))
    else:
        other = b
    decided = [~x & y for x, y in zip(a, other, strict=True)]
    possible = [~x | y for x, y in zip(a, other, strict=True)]
    # A strict chain ends at its last g that can hold, a weak one at its last p that can fail.
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
    """Join neighbouring positions of a chain that all have no g, or all no p."""
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
    """Return [low <= a <= high] for constants, bounds included. It is false when high < low.

    The top bits that low and high have in common become an equality and drop out of the two
    comparisons, where that is not deeper.
    """
    builder, k = shared_builder(a, a), len(a)
    low, high = max(low, 0), min(high, (1 << k) - 1)
    if high < low:
        return builder.constant(False)
    common = k - (low ^ high).bit_length()
    rest, mask = a[common:], (1 << (k - common)) - 1
    if not rest:
        return equal(a, low)
    head = _literals(a[:common], low >> (k - common))
    cut = builder.all_of([*head, ~less_than(rest, low & mask), at_most(rest, high & mask)])
    uncut = builder.all_of([~less_than(a, low), at_most(a, high)])
    return min(cut, uncut, key=lambda wire: wire.depth)


def add(a: Bits, b: Bits, carry: Wire | bool = False) -> list[Wire]:
    """Return a + b + carry in k + 1 bits, with a rippling carry.

    It takes the fewest gates, in depth 2k or slightly more.

    Raises:
        ShapeError: the values have different numbers of bits.
    """
    builder = shared_builder(a, b)
    moving = builder.constant(carry) if isinstance(carry, bool) else carry
    out: list[Wire] = []
    for x, y in zip(reversed(a), reversed(b), strict=True):
        out.append(x ^ y ^ moving)
        moving = (x & y) | ((x | y) & moving)
    return [moving, *reversed(out)]


def add_parallel(a: Bits, b: Bits, carry: Wire | bool = False) -> list[Wire]:
    """Return a + b + carry in k + 1 bits, each carry in small depth.

    Raises:
        ShapeError: the values have different numbers of bits.
    """
    builder, k = shared_builder(a, b), len(a)
    last = builder.constant(carry) if isinstance(carry, bool) else carry
    chain = Chain(
        [*(x & y for x, y in zip(a, b, strict=True)), last],
        [*(x | y for x, y in zip(a, b, strict=True)), builder.constant(True)],
    )
    carries = [chain.strict(i, k + 1) for i in range(k + 1)]
    sums = [x ^ y ^ c for x, y, c in zip(a, b, carries[1:], strict=True)]
    return [carries[0], *sums]


def select(index: Bits, items: Sequence[Wire | bool]) -> Wire:
    """Return items[index] for a binary index. It is false for an index past the last item.

    Raises:
        ParameterError: there are no items or more than 2^bits of the index, or it has no bits.
    """
    if not index or not items or len(items) > 1 << len(index):
        raise ParameterError(
            f"items must be 1..{1 << len(index)} for an index of {len(index)} bits (at least 1), "
            f"got {len(items)}"
        )
    builder = index[0].builder
    return builder.any_of(
        [builder.all_of([item, *_literals(index, number)]) for number, item in enumerate(items)]
    )


def select_one_hot(flags: Bits, items: Sequence[Wire | bool]) -> Wire:
    """Return the item whose flag is set, the OR of several items, or false if no flag is set.

    Raises:
        ShapeError: the number of flags is not that of the items.
    """
    builder = shared_builder(flags, items)
    return builder.any_of(flag & item for flag, item in zip(flags, items, strict=True))


class Chain:
    """A chain g_1 | p_1 & (g_2 | p_2 & ...) over any stretch of positions, in small depth.

    With H the first part of a stretch and L the rest, strict(H L) equals both::

        strict(H) | all p of H & strict(L)          weak(H) & (some g of H | strict(L))

    and weak(H L) the same with weak(L). Both hold because g implies p. Dynamic programming over
    stretches finds the least depth over all cuts and both forms.

    Args:
        decided: wires g, first position first.
        possible: wires p, as many. Every g must imply its p.

    Cost: about k**3 array elements for k positions, once for each pattern of depths.
    """

    def __init__(self, decided: Bits, possible: Bits) -> None:
        self.builder = shared_builder(decided, possible)
        self._g, self._p = decided, possible
        self._cuts = _best_cuts(
            [-1 if wire.constant is False else wire.depth for wire in decided],
            [-1 if wire.constant is True else wire.depth for wire in possible],
        )
        self._parts: dict[tuple[bool, int, int], Wire] = {}

    def strict(self, i: int, j: int) -> Wire:
        """Return the chain over positions i .. j-1, ending in g: [a < b], carry."""
        return self._part(False, i, j)

    def weak(self, i: int, j: int) -> Wire:
        """Return the chain over positions i .. j-1, ending in p: [a <= b]."""
        return self._part(True, i, j)

    def _part(self, weak: bool, i: int, j: int) -> Wire:
        if j - i == 1:
            return self._p[i] if weak else self._g[i]
        key = (weak, i, j)
        if key not in self._parts:
            cut = int(self._cuts[int(weak), i, j])
            m, conjunctive = i + abs(cut), cut < 0
            rest = self._part(weak, m, j)
            if conjunctive:
                some = self.builder.any_of(self._g[i:m])
                self._parts[key] = self._part(True, i, m) & (some | rest)
            else:
                every = self.builder.all_of(self._p[i:m])
                self._parts[key] = self._part(False, i, m) | (every & rest)
        return self._parts[key]


def _best_cuts(decided: Sequence[int], possible: Sequence[int]) -> NDArray[np.int16]:
    """Find the best cuts: [weak, i, j] is the length of H, negative for the conjunctive form.

    Args:
        decided: depths of g; -1 where g is never true, since such a wire disappears.
        possible: depths of p; -1 where p is always true.
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
            with_every, with_some = _join(every[i, m], rest), _join(some[i, m], rest)
            disjunctive = _join(strict[i, m], with_every)
            conjunctive = _join(weak[i, m], with_some)
            if last:
                disjunctive = np.where(with_every < 0, -1, disjunctive)
                conjunctive = np.where(rest < 0, weak[i, m], conjunctive)
            else:
                disjunctive = np.where(rest < 0, strict[i, m], disjunctive)
                conjunctive = np.where(with_some < 0, -1, conjunctive)
            both = np.concatenate([disjunctive, conjunctive], axis=1)
            best = both.argmin(axis=1)
            table[starts, starts + length] = both[starts, best]
            cuts[last, starts, starts + length] = np.where(
                best < length - 1, best + 1, -(best - length + 2)
            )
    return cuts


def _join(a: Depths, b: Depths) -> Depths:
    """Return the depth of one gate on wires of some depths. A wire of depth -1 is absent."""
    return np.where(a < 0, b, np.where(b < 0, a, np.maximum(a, b) + 1))


def _joined_depths(depths: Sequence[int]) -> Depths:
    """Return for [i, j] the depth of joining wires i .. j-1.

    It is ceil(log2(sum of 2**depth)), and -1 for no wires.
    """
    k = len(depths)
    out = np.full((k + 1, k + 1), -1, dtype=np.int64)
    for i in range(k):
        weight = 0
        for j in range(i, k):
            weight += 1 << depths[j] if depths[j] >= 0 else 0
            out[i, j + 1] = (weight - 1).bit_length() if weight else -1
    return out
