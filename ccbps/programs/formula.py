"""Formulas over GF(2) of two parties' bits: free sums, AND gates, and chains of affine maps.

The public form of a predicate for the rank-one-gate encoding (`ccbps.encodings.formula.encoding`).
A leaf is a `Label`: a sum of event bits, interest bits and a constant. So XOR and NOT are free, and
so is an interest bit that inverts a leaf or turns an AND into an OR; only AND gates cost bits.

A `Chain` is a product of affine maps z -> e z + a, the first outermost. Comparisons are chains:
with e_i = [bit i of x and c are equal] and a_i = c_i XOR c_{i-1}, [x < c] is the sum over i of
e_1 ... e_i a_{i+1}. So are equalities and prefixes of a private length, by other private a_i.

==============================  ===================================================
formula                         AND gates
==============================  ===================================================
`Label`, `Sum`                  0, and those of the parts
`And`                           1, and those of the parts
`Chain` of k maps               k
==============================  ===================================================

Sources: Ishai and Kushilevitz, ICALP 2002 (affine labels of two parties' bits); Huffman, 1952, and
Knuth, J. Algorithms 3, 1982 (`conjunction`: the greedy rule for weights that add up and one more).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ccbps.programs.branching import ONE, ZERO, Label


@dataclass(frozen=True, slots=True)
class Sum:
    """The parts' sum mod 2."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class And:
    """Both parts' product."""

    left: Formula
    right: Formula


@dataclass(frozen=True, slots=True)
class Chain:
    """A product of affine maps z -> e z + a, applied to ``bit * slope + offset``.

    Attributes:
        maps: (e, a), the outermost first; a is of interest bits and constants only.
        bit: of event bits only.
        slope: of interest bits and constants only.
        offset: likewise.
    """

    maps: tuple[tuple[Label, Label], ...]
    bit: Label
    slope: Label
    offset: Label


@dataclass(frozen=True, slots=True)
class Lookup:
    """An entry of a private table, at the place that some event bits are as a number.

    Attributes:
        digit: number of the event's digit.
        entries: for each value of it, of interest bits and constants only.
        odd: whether the entries' sum is one, whatever the private bits.
    """

    digit: int
    entries: tuple[Label, ...]
    odd: bool


@dataclass(frozen=True, slots=True)
class Scan:
    """Digits compared one after the other: value + equal * (what the next digits say).

    Attributes:
        steps: (digit, equal, value), tables of entries by the digit's value; those of `equal` sum
            to one. The last digit's `equal` is not used, and empty.
    """

    steps: tuple[tuple[int, tuple[Label, ...], tuple[Label, ...]], ...]


Formula: TypeAlias = Label | Sum | And | Chain | Lookup | Scan
"""`Chain` is for an event of bits, `Lookup` and `Scan` are for one of digits."""


def gates(formula: Formula) -> int:
    """AND gates, those of chains included."""
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
    """Most AND gates that one is under, itself included: a chain of k maps counts as log2 of k."""
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
    """The formula as nested lists: what a fingerprint is made of."""
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
    """NOT, which is free."""
    return total([formula, ONE])


def total(parts: Iterable[Formula]) -> Formula:
    """The sum mod 2, with sums taken apart and labels put together."""
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
    """AND of any parts as a tree of `And`, of the least sum of depths over all gates.

    Every gate costs two bits a side and one more for each `And` that it is under. So many gates
    belong near the root; the greedy rule of Huffman, with one gate more for a pair that is joined,
    finds the best tree.
    """
    known = [part for part in parts if part != ONE]
    if any(part == ZERO for part in known):
        return ZERO
    if not known:
        return ONE
    heap: list[tuple[int, int, Formula]] = [(gates(p), i, p) for i, p in enumerate(known)]
    heapify(heap)
    while len(heap) > 1:
        small, first, left = heappop(heap)
        large, second, right = heappop(heap)
        heappush(heap, (small + large + 1, min(first, second), And(left, right)))
    return heap[0][2]


def disjunction(parts: Sequence[Formula], *, disjoint: bool = False) -> Formula:
    """OR of any parts; a free sum where at most one of them can hold."""
    if disjoint:
        return total(parts)
    return negation(conjunction([negation(part) for part in parts]))


def evaluate(
    formula: Formula, event: NDArray[Any], interest: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Plain value, shape (batch,).

    Args:
        formula: what to compute.
        event: bits, or a whole number for each digit; shape (bits or digits, batch).
        interest: bits, shape (bits, batch).
    """
    match formula:
        case Sum(parts):
            values = [evaluate(part, event, interest) for part in parts]
            return np.asarray(np.bitwise_xor.reduce(values, axis=0))
        case And(left, right):
            return evaluate(left, event, interest) & evaluate(right, event, interest)
        case Chain(maps, bit, slope, offset):
            value = evaluate(bit, event, interest) & evaluate(slope, event, interest)
            value ^= evaluate(offset, event, interest)
            for factor, addend in reversed(maps):
                value &= evaluate(factor, event, interest)
                value ^= evaluate(addend, event, interest)
            return value
        case Lookup(digit, entries):
            return _entry(entries, event, interest, digit)
        case Scan(steps):
            digit, _, less = steps[-1]
            value = _entry(less, event, interest, digit)
            for digit, equal, less in reversed(steps[:-1]):
                value &= _entry(equal, event, interest, digit)
                value ^= _entry(less, event, interest, digit)
            return value
    count = interest.shape[1]
    value = np.full(count, formula.one)
    for i in formula.event:
        value ^= event[i]
    for i in formula.interest:
        value ^= interest[i]
    return value


def _entry(
    entries: tuple[Label, ...], event: NDArray[Any], interest: NDArray[np.bool_], digit: int
) -> NDArray[np.bool_]:
    values = np.array([evaluate(entry, event[:0], interest) for entry in entries])
    return np.asarray(np.take_along_axis(values, event[digit][None].astype(np.intp), axis=0)[0])
