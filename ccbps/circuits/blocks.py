"""Building blocks: comparison, addition and selection, shallow before small.

Values are lists of wires, most significant bit first; a comparison also takes an integer constant,
and its bits then cost nothing. At least one operand of a block is a list of wires.

Comparison and carry are a chain of decisions: see `ccbps.circuits.chain`.

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
=====================================  ======================================================

Source: [SSM] section 4.1 for `select`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ccbps.circuits.builder import CircuitBuilder, Wire
from ccbps.circuits.chain import Chain, shared_builder
from ccbps.errors import ParameterError

# Longer chains against a constant are shortened by joining runs, for the time of the search only.
_LONG = 192

Bits = Sequence[Wire]


def _constant_bits(value: int, width: int) -> list[bool]:
    return [bool(value >> (width - 1 - i) & 1) for i in range(width)]


def equal(a: Bits, b: Bits | int) -> Wire:
    """[a = b]; false for a constant that does not fit the width.

    Raises:
        ShapeError: not the same number of bits.
    """
    if isinstance(b, int):
        builder = shared_builder(a, a)
        if b < 0 or b >> len(a):
            return builder.constant(False)
        return builder.all_of(
            x if bit else ~x for x, bit in zip(a, _constant_bits(b, len(a)), strict=True)
        )
    return shared_builder(a, b).all_of(~(x ^ y) for x, y in zip(a, b, strict=True))


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
    builder = shared_builder(a, a)
    if isinstance(b, int):
        if b < 0 or b >> len(a):
            return builder.constant(b >= 0)
        other: Sequence[Wire | bool] = _constant_bits(b, len(a))
    else:
        other = b
        shared_builder(a, b)
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
    builder, k = shared_builder(a, a), len(a)
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


def add(a: Bits, b: Bits, carry: Wire | bool = False) -> list[Wire]:
    """a + b + carry in k + 1 bits, the carry rippling up: fewest gates, depth 2k or a bit more.

    Raises:
        ShapeError: not the same number of bits.
    """
    builder = shared_builder(a, b)
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
    builder = shared_builder(flags, items)
    return builder.any_of(flag & item for flag, item in zip(flags, items, strict=True))
