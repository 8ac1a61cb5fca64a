"""Slow twin: groups of permutations as tuples, and matrices over GF(4) as polynomials mod 2."""

from __future__ import annotations

from itertools import combinations, permutations

Permutation = tuple[int, ...]
"""Images of 1..5."""


def symmetric() -> list[Permutation]:
    return sorted(permutations((1, 2, 3, 4, 5)))


def alternating() -> list[Permutation]:
    """List the permutations with an even number of inversions."""
    return [p for p in symmetric() if sum(a > b for a, b in combinations(p, 2)) % 2 == 0]


def times(p: Permutation, q: Permutation) -> Permutation:
    """Return first p, then q."""
    return tuple(q[image - 1] for image in p)


def inverse(p: Permutation) -> Permutation:
    return tuple(p.index(point) + 1 for point in (1, 2, 3, 4, 5))


def commutator(p: Permutation, q: Permutation) -> Permutation:
    return times(times(p, q), times(inverse(p), inverse(q)))


def class_of(p: Permutation, group: list[Permutation]) -> set[Permutation]:
    """Return the conjugates of p in `group`."""
    return {times(times(inverse(r), p), r) for r in group}


def order_of(p: Permutation) -> int:
    count, power = 1, p
    while power != (1, 2, 3, 4, 5):
        count, power = count + 1, times(power, p)
    return count


def gf4_times(x: int, y: int) -> int:
    """Multiply polynomials over GF(2), with bit i for w^i, and reduce by w^2 = w + 1."""
    product = sum((x >> i & 1) * (y >> j & 1) << (4 * (i + j)) for i in (0, 1) for j in (0, 1))
    w0, w1, w2 = (product >> 4 * i & 1 for i in range(3))
    return (w0 ^ w2) | (w1 ^ w2) << 1


def matrix_times(x: int, y: int) -> int:
    """Multiply 2x2 matrices over GF(4), with entries a b c d in two bits each from the lowest."""
    a, b, c, d = (x >> shift & 3 for shift in (0, 2, 4, 6))
    e, f, g, h = (y >> shift & 3 for shift in (0, 2, 4, 6))
    entries = [
        gf4_times(a, e) ^ gf4_times(b, g),
        gf4_times(a, f) ^ gf4_times(b, h),
        gf4_times(c, e) ^ gf4_times(d, g),
        gf4_times(c, f) ^ gf4_times(d, h),
    ]
    return sum(entry << 2 * i for i, entry in enumerate(entries))
