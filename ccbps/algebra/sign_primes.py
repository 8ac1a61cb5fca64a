"""Primes whose Legendre symbol is the sign, for all odd numbers up to a bound.

p = 3 modulo 4 makes -1 no square. If each odd prime q up to a bound B is a square modulo p, then
the Legendre symbol of v is the sign of v for all odd v with ``|v| <= B``. Even numbers have
symbols of their own, so callers ask for odd ones only.

A prime is kept as two numbers: for the first few q, p has the smallest residue that makes q a
square, which gives a residue c modulo 4 times their product M. For the other q, k in
``p = c + k M`` was found by search. Where nothing is prescribed, p is the smallest such prime.

Source: D. H. Lehmer's pseudosquares; quadratic reciprocity.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from ccbps.algebra import modular
from ccbps.errors import ParameterError

# Bound W of weights, number of prescribed primes q, and k: B = 2 W + 1.
_PRIMES: Final = (
    (2, 0, 2),
    (8, 0, 452),
    (16, 0, 16_622),
    (24, 0, 567_434),
    (32, 0, 10_535_804),
    (48, 0, 354_635_852),
    (64, 2, 860_619_282),
    (72, 0, 14_972_058_267_464),
    (80, 0, 154_236_551_241_947),
    (96, 13, 5_241_873_282),
    (112, 17, 22_059_615_265),
    (128, 24, 30_382_251_105),
    (160, 39, 3_962_061_774),
    (192, 49, 1_092_172_602),
    (224, 60, 1_104_752_401),
    (256, 70, 818_663_916),
    (320, 89, 5_538_019_097),
    (384, 109, 4_534_085_842),
    (448, 127, 268_304_698),
    (512, 145, 4_134_219_791),
    (640, 180, 3_246_701_240),
    (768, 215, 118_947_928),
    (896, 251, 2_146_087_595),
    (1024, 282, 47_830_841_365),
)
MOST_TOTAL: Final = _PRIMES[-1][0]
"""Largest bound of weights."""


@cache
def sign_prime(total: int) -> int:
    """Return a prime p with ``(v | p) = sign(v)`` for all odd v, ``|v| <= 2 total + 1``.

    Args:
        total: bound of weights, at least 1.

    Raises:
        ParameterError: it is greater than 1,024.
    """
    for bound, prescribed, factor in _PRIMES:
        if bound >= total:
            residue, modulus = 3, 4
            for q in odd_primes(2 * bound + 1)[:prescribed]:
                wanted = next(a for a in range(1, q) if is_square_modulo(q, a))
                step = (wanted - residue) * modular.inverse(modulus, q) % q
                residue, modulus = residue + modulus * int(step), modulus * q
            return residue + factor * modulus
    raise ParameterError(f"weights may sum up to {MOST_TOTAL:,}, got {total:,}: use smaller ones")


def is_square_modulo(q: int, residue: int) -> bool:
    """Tell whether an odd prime q is a square modulo primes p = 3 modulo 4, p = residue modulo q.

    By quadratic reciprocity.
    """
    return modular.jacobi(residue, q) == (1 if q % 4 == 1 else -1)


def odd_primes(most: int) -> list[int]:
    """Return the odd primes up to a number."""
    return [q for q in range(3, most + 1, 2) if all(q % d for d in range(3, int(q**0.5) + 1, 2))]
