"""Polynomials over GF(2) as whole numbers: bit i is the coefficient of x^i. Slow and plain."""

from __future__ import annotations


def product(left: int, right: int) -> int:
    """Multiply two polynomials."""
    out = 0
    for place in range(right.bit_length()):
        if right >> place & 1:
            out ^= left << place
    return out


def remainder(value: int, modulus: int) -> int:
    """Return the remainder of a division."""
    while value.bit_length() >= modulus.bit_length():
        value ^= modulus << value.bit_length() - modulus.bit_length()
    return value


def common_divisor(left: int, right: int) -> int:
    """Return the greatest common divisor."""
    while right:
        left, right = right, remainder(left, right)
    return left


def is_irreducible(modulus: int) -> bool:
    """Decide by Rabin's test whether a polynomial has no divisor.

    x^(2^n) = x must hold modulo a polynomial of degree n, and for no prime divisor p of n may
    x^(2^(n/p)) - x have a divisor in common with it.
    """
    degree = modulus.bit_length() - 1
    tested = {degree // p for p in range(2, degree + 1) if degree % p == 0 and _is_prime(p)}
    power = remainder(2, modulus)
    for squarings in range(1, degree + 1):
        power = remainder(_square(power), modulus)
        if squarings in tested and common_divisor(modulus, power ^ 2) != 1:
            return False
    return power == remainder(2, modulus)


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def _square(value: int) -> int:
    """Put a 0 between each two bits."""
    return int("0".join(f"{value:b}"), 2)
