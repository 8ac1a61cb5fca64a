"""Formulas for tests: comparisons, intervals, boxes and hidden trees, with the bits that say them.

Written out from the definitions, so that they check the library's own ways to make formulas, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ccbps.encodings.formula.encoding import FormulaEncoding
from ccbps.programs.branching import ONE, ZERO, Label, event_bit, interest_bit
from ccbps.programs.formula import And, Chain, Formula, Sum, conjunction, total

Bits = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]


# -- rows of bits -------------------------------------------------------------------------------


def packed(bits: NDArray[np.generic]) -> Words:
    """Bits of shape (batch, bits) as the encoders take them; at least one word."""
    padded = np.zeros((len(bits), max(1, -(-bits.shape[1] // 64)) * 64), dtype=np.uint8)
    padded[:, : bits.shape[1]] = bits
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64)


def unpacked(rows: Bytes, count: int) -> Bits:
    """The first bits of rows of bytes, shape (batch, count)."""
    rows = np.ascontiguousarray(rows)
    return np.unpackbits(rows, axis=1, bitorder="little", count=count).astype(np.bool_)


def uniform(encoding: FormulaEncoding, batch: int, seed: int) -> Bytes:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (batch, encoding.randomness_bytes), dtype=np.uint8)


def binary(value: int, width: int) -> list[int]:
    """Most significant bit first."""
    return [value >> (width - 1 - i) & 1 for i in range(width)]


# -- comparisons --------------------------------------------------------------------------------


def comparison(width: int, event: int, interest: int) -> Chain:
    """[x < c] for bits from `event` on, with the 2 * width interest bits of `comparison_bits`."""
    maps = tuple(
        (event_bit(event + i) ^ interest_bit(interest + 2 * i), interest_bit(interest + 2 * i + 1))
        for i in range(width - 1)
    )
    last = interest + 2 * width - 2
    return Chain(maps, event_bit(event + width - 1), interest_bit(last), interest_bit(last + 1))


def chain_bits(opposite: Sequence[int], addends: Sequence[int]) -> list[int]:
    """Interest bits of a chain of e_i = x_i + opposite_i: sum of addends_i e_0 ... e_{i-1}."""
    *maps, last = zip(opposite, addends[:-1], strict=True)
    return [*(bit for pair in maps for bit in pair), addends[-1], last[0] & addends[-1] ^ last[1]]


def comparison_bits(width: int, bound: int) -> list[int]:
    """Interest bits of [x < bound], bound in 0 .. 2 ** width."""
    if bound == 1 << width:
        return chain_bits([0] * width, [1] + [0] * width)
    c = binary(bound, width)
    return chain_bits([1 - b for b in c], [a ^ b for a, b in zip([*c, 0], [0, *c], strict=True)])


def equality(width: int, event: int, interest: int) -> Chain:
    """[x = c]: the last addend is one, the others are zero."""
    maps = tuple(
        (event_bit(event + i) ^ interest_bit(interest + i), ZERO) for i in range(width - 1)
    )
    return Chain(maps, event_bit(event + width - 1), ONE, interest_bit(interest + width - 1))


def equality_bits(width: int, value: int) -> list[int]:
    return [1 - b for b in binary(value, width)]


def interval(width: int, event: int, interest: int) -> Sum:
    """[low <= x <= high] = [x < high + 1] + [x < low], if low <= high + 1."""
    upper = comparison(width, event, interest)
    return Sum((upper, comparison(width, event, interest + 2 * width)))


def interval_bits(width: int, low: int, high: int) -> list[int]:
    """Interest bits of an interval; an empty one is written as high + 1 = low."""
    high = max(high, low - 1)
    return comparison_bits(width, high + 1) + comparison_bits(width, low)


def box(widths: Sequence[int]) -> Formula:
    """Intervals on attributes, all of which must hold."""
    starts = np.cumsum([0, *widths]).tolist()
    return conjunction([interval(k, at, 4 * at) for k, at in zip(widths, starts, strict=False)])


def box_bits(widths: Sequence[int], ranges: Sequence[tuple[int, int]]) -> list[int]:
    parts = zip(widths, ranges, strict=True)
    return [bit for k, (low, high) in parts for bit in interval_bits(k, low, high)]


def near_bounds(
    rng: np.random.Generator, widths: Sequence[int], batch: int
) -> tuple[list[list[int]], list[list[tuple[int, int]]], Bits]:
    """Draw events, half of them near a bound, and boxes.

    Returns:
        for each pair a code of every attribute, a range of every attribute, and the answer.
    """
    bounds = [np.sort(rng.integers(0, 1 << k, (batch, 2))) for k in widths]
    codes = [
        np.where(
            rng.random(batch) < 0.5,
            rng.integers(0, 1 << k, batch),
            np.clip(b[:, 0] + rng.integers(-1, 2, batch), 0, (1 << k) - 1),
        )
        for k, b in zip(widths, bounds, strict=True)
    ]
    inside = [(b[:, 0] <= x) & (x <= b[:, 1]) for x, b in zip(codes, bounds, strict=True)]
    ranges = [[(int(low), int(high)) for low, high in row] for row in zip(*bounds, strict=True)]
    return np.array(codes).T.tolist(), ranges, np.all(inside, axis=0)


# -- hidden trees -------------------------------------------------------------------------------


def hidden_tree(depth: int, leaf: Callable[[int], tuple[Formula, int]]) -> tuple[Formula, int]:
    """A tree of 2 ** depth leaves whose nodes are nu + t + (e + t)(w + t), t and nu private.

    Args:
        leaf: from its first interest bit to the leaf and the first interest bit after it.

    Returns:
        The formula and how many interest bits it has: before each node's parts its t and nu.
    """

    def grown(depth: int, first: int) -> tuple[Formula, int]:
        if not depth:
            return leaf(first)
        kind, negated = interest_bit(first), interest_bit(first + 1)
        left, after = grown(depth - 1, first + 2)
        right, after = grown(depth - 1, after)
        product = And(total([left, kind]), total([right, kind]))
        return total([product, negated ^ kind]), after

    return grown(depth, 0)


def literal_tree(depth: int, width: int) -> tuple[Formula, int]:
    """A hidden tree of leaves s_0 + sum over j of s_j x_j."""

    def leaf(first: int) -> tuple[Formula, int]:
        chosen = [And(event_bit(j), interest_bit(first + 1 + j)) for j in range(width)]
        return total([*chosen, interest_bit(first)]), first + 1 + width

    return hidden_tree(depth, leaf)


def bits_used(formula: Formula) -> tuple[int, int]:
    """Event bits and interest bits that a formula is over: one more than the highest number."""
    match formula:
        case Sum(parts):
            used = list(map(bits_used, parts))
        case And(left, right):
            used = [bits_used(left), bits_used(right)]
        case Chain(maps, bit, slope, offset):
            used = list(map(bits_used, (bit, slope, offset, *(x for pair in maps for x in pair))))
        case Label(event, interest):
            return max(event, default=-1) + 1, max(interest, default=-1) + 1
        case _:
            raise TypeError(f"a formula of digits: {formula}")
    return max((e for e, _ in used), default=0), max((i for _, i in used), default=0)


# -- any formula --------------------------------------------------------------------------------


def random_formula(
    seed: int, event_bits: int = 4, interest_bits: int = 4, depth: int = 4
) -> Formula:
    """Any formula: parts of one party only, constants, zeros, the same bits and parts again."""
    rng = np.random.default_rng(seed)
    earlier: list[Formula] = []

    def bits(count: int) -> frozenset[int]:
        return frozenset(rng.integers(0, count, rng.choice(3, p=[0.2, 0.6, 0.2])).tolist())

    def label(event: bool, interest: bool) -> Label:
        return Label(
            bits(event_bits) if event else frozenset(),
            bits(interest_bits) if interest else frozenset(),
            bool(interest and rng.random() < 0.2),
        )

    def grown(depth: int) -> Formula:
        if earlier and rng.random() < 0.15:
            return earlier[rng.integers(len(earlier))]
        kind = rng.choice(4, p=[0.1, 0.5, 0.2, 0.2]) if depth else 0
        out: Formula
        if kind == 0:
            out = label(*[(True, True), (True, False), (False, True)][rng.integers(3)])
        elif kind == 1:
            out = And(grown(depth - 1), grown(depth - 1))
        elif kind == 2:
            out = Sum(tuple(grown(depth - 1) for _ in range(rng.integers(1, 4))))
        else:
            maps = tuple((label(True, True), label(False, True)) for _ in range(rng.integers(4)))
            out = Chain(maps, label(True, False), label(False, True), label(False, True))
        earlier.append(out)
        return out

    return grown(depth)
