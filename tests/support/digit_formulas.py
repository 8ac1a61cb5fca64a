"""Formulas over digits for tests, and the private bits that say them.

Digits are numbered; one of w bits has the values 0 .. 2^w - 1. Written out from the definitions, so
that they check the library's own ways to make formulas, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ccbps.encodings.broadcast.encoding import BroadcastEncoding
from ccbps.encodings.labels import NONCE_BYTES
from ccbps.programs.branching import ONE, ZERO, Label, interest_bit
from ccbps.programs.formula import And, Formula, Lookup, Scan, Sum, conjunction, total
from tests.support.formula_strategies import hidden_tree, packed, unpacked

__all__ = [
    "Stream",
    "box",
    "box_bits",
    "comparison",
    "comparison_bits",
    "cut",
    "equality",
    "equality_bits",
    "fresh_bytes",
    "interval",
    "interval_bits",
    "odd",
    "packed",
    "parity_tree",
    "random_formula",
    "table_bits",
    "unpacked",
    "windows",
]

Bits = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]


# -- randomness ---------------------------------------------------------------------------------


class Stream:
    """Uniform bytes: the same ones, in whatever pieces they are asked for."""

    def __init__(self, rows: Bytes) -> None:
        self.rest = rows.tobytes()

    def __call__(self, count: int) -> bytes:
        taken, self.rest = self.rest[:count], self.rest[count:]
        assert len(taken) == count
        return taken


def fresh_bytes(encoding: BroadcastEncoding) -> int:
    """Bytes of a nonce and free masks."""
    return NONCE_BYTES + encoding.slots.free_bytes


# -- digits -------------------------------------------------------------------------------------


def windows(bits: int, window: int) -> list[int]:
    """Widths of a code's digits: the last one may be shorter."""
    return [min(window, bits - i) for i in range(0, bits, window)]


def cut(value: int, widths: Sequence[int]) -> list[int]:
    """A code's digits, the first bits first."""
    digits = []
    for width in reversed(widths):
        digits.append(value & (1 << width) - 1)
        value >>= width
    assert not value
    return digits[::-1]


# -- comparisons --------------------------------------------------------------------------------


def _table(first: int, width: int) -> tuple[Label, ...]:
    return tuple(interest_bit(first + value) for value in range(1 << width))


def comparison(widths: Sequence[int], digit: int = 0, first: int = 0) -> Scan:
    """[x < c] for digits from `digit` on, with the interest bits of `comparison_bits`."""
    steps = []
    for i, width in enumerate(widths):
        equal: tuple[Label, ...] = ()
        if i + 1 < len(widths):
            equal = _table(first, width)
            first += 1 << width
        steps.append((digit + i, equal, _table(first, width)))
        first += 1 << width
    return Scan(tuple(steps))


def table_bits(widths: Sequence[int]) -> int:
    """How many interest bits a comparison has."""
    return sum(2 << width for width in widths) - (1 << widths[-1])


def comparison_bits(widths: Sequence[int], bound: int) -> list[int]:
    """Interest bits of [x < bound], bound in 0 .. 2 ** (all bits)."""
    always = bound == 1 << sum(widths)
    bits = []
    for i, (c, width) in enumerate(zip(cut(0 if always else bound, widths), widths, strict=True)):
        values = range(1 << width)
        if i + 1 < len(widths):
            bits += [int(v == c) for v in values]
        bits += [int(v < c or (always and i == 0)) for v in values]
    return bits


def interval(widths: Sequence[int], digit: int = 0, first: int = 0) -> Formula:
    """[low <= x <= high] = [x < high + 1] + [x < low], if low <= high + 1."""
    upper = comparison(widths, digit, first)
    return total([upper, comparison(widths, digit, first + table_bits(widths))])


def interval_bits(widths: Sequence[int], low: int, high: int) -> list[int]:
    """Interest bits of an interval; an empty one is written as high + 1 = low."""
    high = max(high, low - 1)
    return comparison_bits(widths, high + 1) + comparison_bits(widths, low)


def box(attributes: Sequence[Sequence[int]]) -> Formula:
    """Intervals on attributes, all of which must hold, given the widths of each one's digits."""
    digit = first = 0
    parts = []
    for widths in attributes:
        parts.append(interval(widths, digit, first))
        digit += len(widths)
        first += 2 * table_bits(widths)
    return conjunction(parts)


def box_bits(attributes: Sequence[Sequence[int]], ranges: Sequence[tuple[int, int]]) -> list[int]:
    parts = zip(attributes, ranges, strict=True)
    return [bit for widths, (low, high) in parts for bit in interval_bits(widths, low, high)]


def equality(widths: Sequence[int]) -> Formula:
    """Every digit is a private one."""
    parts: list[Formula] = []
    first = 0
    for digit, width in enumerate(widths):
        parts.append(Lookup(digit, _table(first, width), odd=True))
        first += 1 << width
    return conjunction(parts)


def equality_bits(widths: Sequence[int], digits: Sequence[int]) -> list[int]:
    pairs = zip(widths, digits, strict=True)
    return [int(value == c) for width, c in pairs for value in range(1 << width)]


def odd(digit: int, width: int, first: int) -> Lookup:
    """Any private table that sums to one."""
    entries = [interest_bit(first + i) for i in range((1 << width) - 1)]
    last = ONE
    for label in entries:
        last ^= label
    return Lookup(digit, (*entries, last), odd=True)


# -- hidden trees -------------------------------------------------------------------------------


def parity_tree(depth: int, widths: Sequence[int]) -> tuple[Formula, int]:
    """A tree whose nodes are nu + t + (e + t)(w + t), t and nu private, and leaves any parities.

    Returns:
        The formula and how many interest bits it has.
    """

    def leaf(first: int) -> tuple[Formula, int]:
        parts: list[Formula] = [interest_bit(first)]
        first += 1
        for digit, width in enumerate(widths):
            entries = []
            for value in range(1 << width):
                entry = ZERO
                for i in range(width):
                    if value >> i & 1:
                        entry ^= interest_bit(first + i)
                entries.append(entry)
            parts.append(Lookup(digit, tuple(entries), odd=False))
            first += width
        return total(parts), first

    return hidden_tree(depth, leaf)


# -- any formula --------------------------------------------------------------------------------


def random_formula(
    seed: int, widths: Sequence[int], interest_bits: int = 5, depth: int = 3
) -> Formula:
    """Any formula over digits: the same digits and parts again, constants, empty tables.

    Tables that sum to one do so whatever the private bits are.
    """
    rng = np.random.default_rng(seed)
    earlier: list[Formula] = []

    def label() -> Label:
        chosen = rng.integers(0, interest_bits, rng.choice(3, p=[0.3, 0.5, 0.2])).tolist()
        return Label(interest=frozenset(chosen), one=bool(rng.random() < 0.3))

    def table(digit: int, odd: bool) -> tuple[Label, ...]:
        entries = [label() for _ in range(1 << widths[digit])]
        if odd:
            last = ONE
            for entry in entries[1:]:
                last ^= entry
            entries[0] = last
        return tuple(entries)

    def lookup() -> Formula:
        digit, odd = int(rng.integers(len(widths))), bool(rng.random() < 0.5)
        return Lookup(digit, table(digit, odd), odd)

    def scan() -> Formula:
        digits = rng.integers(0, len(widths), rng.integers(1, 6)).tolist()
        *before, last = digits
        steps = [(d, table(d, True), table(d, False)) for d in before]
        return Scan((*steps, (last, (), table(last, False))))

    leaves: list[Callable[[], Formula]] = [label, lookup, scan]

    def grown(depth: int) -> Formula:
        if earlier and rng.random() < 0.15:
            return earlier[rng.integers(len(earlier))]
        kind = rng.choice(3, p=[0.2, 0.5, 0.3]) if depth else 0
        out: Formula
        if kind == 0:
            out = leaves[rng.choice(3, p=[0.2, 0.4, 0.4])]()
        elif kind == 1:
            out = And(grown(depth - 1), grown(depth - 1))
        else:
            out = Sum(tuple(grown(depth - 1) for _ in range(rng.integers(1, 4))))
        earlier.append(out)
        return out

    return grown(depth)
