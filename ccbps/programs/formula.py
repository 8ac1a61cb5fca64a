"""Formulas over GF(2) of two parties' bits: free sums, AND gates, and chains of affine maps.

A formula is the public form of a predicate for the rank-one-gate encoding
(`ccbps.encodings.formula.encoding`). A leaf is a `Label`: a sum of event bits, interest bits and a
constant. XOR and NOT are free, and so is an interest bit that inverts a leaf or turns an AND into
an OR. Only AND gates cost bits.

A `Chain` is a product of affine maps z -> e z + a, the first outermost. Comparisons are chains:
with e_i = [bit i of x and c are equal] and a_i = c_i XOR c_{i-1}, [x < c] is the sum over i of
e_1 ... e_i a_{i+1}. Other private a_i give equalities and prefixes of a private length.

==============================  ===================================================
formula                         AND gates
==============================  ===================================================
`Label`, `Sum`                  0, and those of the parts
`And`                           1, and those of the parts
`Chain` of k maps               k
==============================  ===================================================

At least k of n parts is a sum over the number of true parts in the first half. Sums are free, since
these numbers exclude one another. So gates only join the halves, but parts occur repeatedly. Few
parts are cheap (two of three is one gate), many are not: a branching program shares its nodes, a
formula cannot.

Sources: Ishai and Kushilevitz, ICALP 2002 (affine labels of two parties' bits); Huffman, 1952, and
Knuth, J. Algorithms 3, 1982 (`conjunction`: the greedy rule for weights that add up and one more).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from heapq import heapify, heappop, heappush
from typing import Any, TypeAlias

from msgspec import Struct

from ccbps.programs.branching import ONE, ZERO, Label, differences, event_bit, interest_bit


class Sum(Struct, frozen=True):
    """A sum of parts mod 2."""

    parts: tuple[Formula, ...]


class And(Struct, frozen=True):
    """A product of two parts."""

    left: Formula
    right: Formula


class Chain(Struct, frozen=True):
    """A product of affine maps z -> e z + a, applied to ``bit * slope + offset``.

    Attributes:
        maps: pairs (e, a), the outermost first; a has interest bits and constants only.
        bit: label of event bits only.
        slope: label of interest bits and constants only.
        offset: label of interest bits and constants only.
    """

    maps: tuple[tuple[Label, Label], ...]
    bit: Label
    slope: Label
    offset: Label

    @classmethod
    def over(cls, first_event: int, bits: int, first_interest: int) -> Chain:
        """Make a chain over event bits, the first one outermost.

        It takes 2 * `bits` interest bits: those that all but the last event bit are compared with,
        as many addends, the slope and the offset.
        """
        inner = bits - 1
        factors = differences(first_event, inner, first_interest)
        addend, last = first_interest + inner, first_interest + 2 * inner
        maps = tuple((factor, interest_bit(addend + i)) for i, factor in enumerate(factors))
        return cls(maps, event_bit(first_event + inner), interest_bit(last), interest_bit(last + 1))


class Lookup(Struct, frozen=True):
    """An entry of a private table, at the place given by a digit of the event.

    Attributes:
        digit: number of the digit.
        entries: label for each value of the digit, of interest bits and constants only.
        odd: True if the entries' sum is 1 for all private bits.
    """

    digit: int
    entries: tuple[Label, ...]
    odd: bool


class Scan(Struct, frozen=True):
    """A comparison of digit after digit: value + equal * (the result for the next digits).

    Attributes:
        steps: triples (digit, equal, value). `equal` and `value` have an entry for each value of
            the digit, and those of `equal` sum to 1. The last `equal` is not used, and empty.
    """

    steps: tuple[tuple[int, tuple[Label, ...], tuple[Label, ...]], ...]


Formula: TypeAlias = Label | Sum | And | Chain | Lookup | Scan
"""A formula. `Chain` is for events of bits, `Lookup` and `Scan` are for events of digits."""


def gates(formula: Formula) -> int:
    """Count the AND gates, including those of chains."""
    match formula:
        case Sum(parts):
            return sum(map(gates, parts))
        case And(left, right):
            return 1 + gates(left) + gates(right)
        case Chain(maps):
            return len(maps) + 1
        case Scan(steps):
            return len(steps) - 1
    return 0


def depth(formula: Formula) -> int:
    """Return the largest number of nested AND gates. A chain of k maps counts as log2 of k."""
    match formula:
        case Sum(parts):
            return max(map(depth, parts), default=0)
        case And(left, right):
            return 1 + max(depth(left), depth(right))
        case Chain(maps):
            return (len(maps) + 1).bit_length()
        case Scan(steps):
            return (len(steps) - 1).bit_length()
    return 0


def as_json(formula: Formula) -> Any:
    """Convert a formula to nested lists, from which fingerprints are computed."""
    match formula:
        case Sum(parts):
            return ["sum", *map(as_json, parts)]
        case And(left, right):
            return ["and", as_json(left), as_json(right)]
        case Chain(maps, bit, slope, offset):
            factors = [[as_json(factor), as_json(addend)] for factor, addend in maps]
            return ["chain", *factors, as_json(bit), as_json(slope), as_json(offset)]
        case Lookup(digit, entries, odd):
            return ["lookup", digit, odd, *map(as_json, entries)]
        case Scan(steps):
            tables = [[d, [*map(as_json, e)], [*map(as_json, v)]] for d, e, v in steps]
            return ["scan", *tables]
    return [sorted(formula.event), sorted(formula.interest), formula.one]


def negation(formula: Formula) -> Formula:
    """Negate a formula, which is free."""
    return total([formula, ONE])


def total(parts: Iterable[Formula]) -> Formula:
    """Add parts mod 2. Nested sums are flattened and labels are merged."""
    label = ZERO
    others: list[Formula] = []
    waiting = list(parts)[::-1]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Sum):
            waiting.extend(reversed(part.parts))
        elif isinstance(part, Label):
            label ^= part
        else:
            others.append(part)
    if label or not others:
        others.append(label)
    return others[0] if len(others) == 1 else Sum(tuple(others))


def conjunction(parts: Sequence[Formula]) -> Formula:
    """Join parts by AND, as the tree of `And` with the least sum of depths over all gates.

    Every gate costs two bits on each side, and another bit for each `And` above it. So parts with
    many gates belong near the root. The greedy rule of Huffman, with an additional gate for each
    joined pair, finds the best tree.
    """
    factors = [part for part in parts if part != ONE]
    if any(part == ZERO for part in factors):
        return ZERO
    if not factors:
        return ONE
    heap: list[tuple[int, int, Formula]] = [(gates(p), i, p) for i, p in enumerate(factors)]
    heapify(heap)
    while len(heap) > 1:
        small, first, left = heappop(heap)
        large, second, right = heappop(heap)
        heappush(heap, (small + large + 1, min(first, second), And(left, right)))
    return heap[0][2]


def disjunction(parts: Sequence[Formula], *, disjoint: bool = False) -> Formula:
    """Join parts by OR. It is a free sum if they are disjoint: at most one of them can hold."""
    if disjoint:
        return total(parts)
    return negation(conjunction([negation(part) for part in parts]))


# -- at least k of n parts -------------------------------------------------------------------------


def at_least(k: int, parts: Sequence[Formula]) -> Formula:
    """Return the formula for at least k true parts. `at_least_gates` gives its cost beforehand."""
    if not 0 < k <= len(parts):
        return ONE if k <= 0 else ZERO
    if k == 1:
        return disjunction(parts)
    if k == len(parts):
        return conjunction(parts)
    if len(parts) == 3:
        # The part that is used three times is the cheapest one.
        a, b, c = sorted(parts, key=gates)
        return total([a, And(total([a, b]), total([a, c]))])
    left, right = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    terms = [at_least(k, left)]
    for i in range(max(0, k - len(right)), min(k, len(left) + 1)):
        terms.append(conjunction([exactly(i, left), at_least(k - i, right)]))
    return total(terms)


def exactly(k: int, parts: Sequence[Formula]) -> Formula:
    """Return the formula for exactly k true parts, 0 <= k <= number of parts."""
    if k in (0, len(parts)):
        return conjunction(parts if k else [negation(part) for part in parts])
    left, right = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    counts = range(max(0, k - len(right)), min(k, len(left)) + 1)
    return total([conjunction([exactly(i, left), exactly(k - i, right)]) for i in counts])


def at_least_gates(k: int, sizes: Sequence[int]) -> int:
    """Count the AND gates of `at_least` for parts of so many gates, without building it."""

    @cache
    def of_at_least(k: int, start: int, stop: int) -> int:
        parts = sizes[start:stop]
        if not 0 < k <= len(parts):
            return 0
        if k in (1, len(parts)):
            return sum(parts) + len(parts) - 1
        if len(parts) == 3:
            return sum(parts) + 2 * min(parts) + 1
        middle = (start + stop) // 2
        return of_at_least(k, start, middle) + sum(
            of_exactly(i, start, middle) + of_at_least(k - i, middle, stop) + 1
            for i in range(max(0, k - (stop - middle)), min(k, middle - start + 1))
        )

    @cache
    def of_exactly(k: int, start: int, stop: int) -> int:
        if k in (0, stop - start):
            return sum(sizes[start:stop]) + stop - start - 1
        middle = (start + stop) // 2
        return sum(
            of_exactly(i, start, middle) + of_exactly(k - i, middle, stop) + 1
            for i in range(max(0, k - (stop - middle)), min(k, middle - start) + 1)
        )

    return of_at_least(k, 0, len(sizes))
