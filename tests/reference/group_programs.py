"""Group programs over S5 one input at a time: permutations as one-line tuples, left to right."""

from __future__ import annotations

from collections.abc import Sequence

Permutation = tuple[int, ...]
Instruction = tuple[Permutation, Permutation, int]

IDENTITY: Permutation = (1, 2, 3, 4, 5)


def then(p: Permutation, q: Permutation) -> Permutation:
    """First p, then q."""
    return tuple(q[image - 1] for image in p)


def inverse(p: Permutation) -> Permutation:
    """What undoes p."""
    return tuple(p.index(point) + 1 for point in range(1, len(p) + 1))


def product(program: Sequence[Instruction], bits: Sequence[bool]) -> Permutation:
    """What the program's choices for these bits multiply to."""
    out = IDENTITY
    for g0, g1, index in program:
        out = then(out, g1 if bits[index] else g0)
    return out
