"""Shamir's sharing as in a textbook: one polynomial, one value at a time, and no tables.

Nothing here imports the package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def product(left: int, right: int) -> int:
    """Multiply two bytes as polynomials over GF(2): shift and add, then divide by 0x11b."""
    total = 0
    for bit in range(8):
        if right >> bit & 1:
            total ^= left << bit
    for bit in range(14, 7, -1):
        if total >> bit & 1:
            total ^= 0x11B << (bit - 8)
    return total


def inverse(value: int) -> int:
    """Find the inverse by trying all."""
    return next(other for other in range(256) if product(value, other) == 1)


def byte_value(coefficients: Sequence[int], x: int) -> int:
    """Evaluate a polynomial over GF(2^8), with the constant term first."""
    total, power = 0, 1
    for coefficient in coefficients:
        total ^= product(coefficient, power)
        power = product(power, x)
    return total


def byte_secret(shares: Mapping[int, bytes]) -> bytes:
    """Compute Lagrange's formula at 0, for each byte."""
    out = []
    for place in range(len(next(iter(shares.values())))):
        total = 0
        for x, value in shares.items():
            term = value[place]
            for other in shares:
                if other != x:
                    term = product(term, product(other, inverse(other ^ x)))
            total ^= term
        out.append(total)
    return bytes(out)


def value(coefficients: Sequence[int], x: int, p: int) -> int:
    """Evaluate a polynomial modulo p, with the constant term first."""
    return sum(c * x**power for power, c in enumerate(coefficients)) % p


def secret(shares: Mapping[int, int], p: int) -> int:
    """Compute Lagrange's formula at 0 modulo p."""
    total = 0
    for x, y in shares.items():
        above, below = 1, 1
        for other in shares:
            if other != x:
                above, below = above * -other, below * (x - other)
        total += y * above * pow(below, -1, p)
    return total % p
