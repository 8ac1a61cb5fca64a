"""Branching programs that compare a value with another one, or with a public bound.

Values are lists of labels, most significant bit first. Costs, in inner nodes, for k bits:

=====================  =====================================================
equality               k - 1 (a chain of k edges)
comparison             k
interval               2k - 1: two chains that share their last node
=====================  =====================================================

The chains are derived in the docstrings below.
"""

from __future__ import annotations

from collections.abc import Sequence

from ccbps.errors import ShapeError
from ccbps.programs.branching import ONE, ZERO, BranchingProgram, Label, constant


def check_widths(value: Sequence[Label], other: Sequence[Label]) -> None:
    """Check that both values have the same number of bits, at least 1.

    Raises:
        ShapeError: they have different numbers of bits, or none.
    """
    if not value or len(value) != len(other):
        raise ShapeError(
            "both sides must have the same number of bits, at least 1, "
            f"got {len(value)} and {len(other)}"
        )


def equality(value: Sequence[Label], other: Sequence[Label]) -> BranchingProgram:
    """Return [value = other]: a chain of k edges, of which edge i carries value_i + other_i + 1."""
    check_widths(value, other)
    return BranchingProgram.from_edges(
        len(value),
        [(i, i + 1, x ^ c ^ ONE) for i, (x, c) in enumerate(zip(value, other, strict=True))],
    )


def less_than(
    value: Sequence[Label], bound: Sequence[Label], flip: Label = ZERO
) -> BranchingProgram:
    """Return [value < bound] XOR flip, most significant bit first, with k inner nodes.

    Let e_i be "the first i bits are equal". The first difference decides, so
    [x < c] = sum over i of e_i c_i (1 + x_i) mod 2. For i < k - 1 the term is (e_i + e_{i+1}) c_i:
    it needs only the private constants c_i + c_{i-1} on an edge from chain node i to the sink. The
    last term takes an additional node: e_{k-1} --c_{k-1}--> node --(1 + x_{k-1})--> sink.

    `flip`, on the edge source -> sink, negates the comparison. It also makes constants that no
    k-bit bound gives (bound 0 and flip 1: always true).
    """
    check_widths(value, bound)
    k = len(value)
    last, sink = k, k + 1
    edges = [
        *_chain(value, bound, range(k), sink),
        (k - 1, last, bound[k - 1]),
        (last, sink, value[k - 1] ^ ONE),
        (0, sink, flip),
    ]
    return BranchingProgram.from_edges(sink, edges)


def below_constant(value: Sequence[Label], bound: int) -> BranchingProgram:
    """Return [value < bound] for a public bound, without its trailing zeros and the last node."""
    if bound <= 0 or bound >> len(value):
        return constant(bound > 0)
    k = len(value) - (bound & -bound).bit_length() + 1
    digits = [ONE if bound >> (len(value) - 1 - i) & 1 else ZERO for i in range(k)]
    return BranchingProgram.from_edges(
        k, [*_chain(value[:k], digits, range(k), k), (k - 1, k, value[k - 1] ^ ONE)]
    )


def interval(
    value: Sequence[Label], low: Sequence[Label], high: Sequence[Label]
) -> BranchingProgram:
    """Return [low <= value <= high], bounds included, with 2k - 1 inner nodes.

    It is [x <= high] + [x < low] mod 2: two chains from one source to one sink. Their last terms
    are h (1 + x (1 + c)) and l c (1 + x), with h, l the two chains' nodes k - 1 and x, c the last
    bits. Both have the form a + b x, so a single node in front of an edge labelled x serves both.

    The interval is empty if low = high + 1. With low > high + 1 the sum is 1 between the bounds:
    canonicalise empty intervals first.
    """
    check_widths(value, low)
    check_widths(value, high)
    k = len(value)
    low_chain = [0, *range(k, 2 * k - 1)]
    last, sink = 2 * k - 1, 2 * k
    high_end, low_end = k - 1, low_chain[-1]
    edges = [
        *_chain(value, high, range(k), sink),
        *_chain(value, low, low_chain, sink),
        (high_end, sink, ONE),
        (high_end, last, ONE ^ high[-1]),
        (low_end, sink, low[-1]),
        (low_end, last, low[-1]),
        (last, sink, value[-1]),
    ]
    return BranchingProgram.from_edges(sink, edges)


def _chain(
    value: Sequence[Label], bound: Sequence[Label], nodes: Sequence[int], sink: int
) -> list[tuple[int, int, Label]]:
    """Return the equality chain over all bits but the last, and the exits (e_i + e_{i+1}) c_i."""
    edges = []
    for i in range(len(value) - 1):
        edges.append((nodes[i], nodes[i + 1], value[i] ^ bound[i] ^ ONE))
        edges.append((nodes[i], sink, bound[i]))
        edges.append((nodes[i + 1], sink, bound[i]))
    return edges
