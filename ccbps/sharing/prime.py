"""Shamir's secret sharing of integers modulo a prime, as in [Survey].

A secret is the value at 0 of a polynomial of degree k - 1 modulo p whose other coefficients are
uniform; share i is its value at i. What is said in `ccbps.sharing.shamir` of shares of bytes holds
of these, too. Shares of bytes take as many bytes as the secret, and are faster in batches; these
are what peers and papers have, and can be added.

Hazard: GMP's arithmetic takes less time for small numbers.
Sources: [S79]; [Survey] section 2.3.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from ccbps.algebra.modular import from_bytes, integer, inverse, is_prime
from ccbps.arrays import Randomness
from ccbps.errors import DecodeError, ParameterError
from ccbps.sharing.altered import PrimeField, altered_places
from ccbps.sharing.share import check_threshold

PRIME_257: Final = (1 << 256) + 297
"""The smallest prime above all secrets of 32 bytes."""
_SPARE: Final = 16
"""Bytes beyond the prime's: what is left of so many modulo p is uniform but for 2^-128."""


class PrimeShamir:
    """Splits integers below a prime into n shares, of which any k give them back.

    Attributes:
        k: shares needed.
        n: shares made, at points 1 .. n.
        p: the prime.

    Example:
        >>> from ccbps.sharing import PrimeShamir
        >>> scheme = PrimeShamir(2, 3, p=257)
        >>> shares = scheme.split(200)
        >>> sorted(shares), scheme.join({3: shares[3], 1: shares[1]})
        ([1, 2, 3], 200)
    """

    def __init__(self, k: int, n: int, p: int = PRIME_257) -> None:
        """
        Raises:
            ParameterError: not ``1 <= k <= n < p``, or p is no prime.
        """
        if type(p) is not int or not is_prime(p):
            raise ParameterError(f"p must be a prime number, got {p!r}")
        check_threshold(k, n, p - 1)
        self.k, self.n, self.p = k, n, p
        self._modulus = integer(p)
        self._bytes = (p.bit_length() + 7) // 8 + _SPARE

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.k}, {self.n}, p={self.p})"

    def split(self, secret: int, *, randomness: Randomness = os.urandom) -> dict[int, int]:
        """Shares of a secret: the value at each point.

        Args:
            secret: 0 .. p - 1.
            randomness: where uniform bytes come from: 16 more than p has, for each of k - 1
                coefficients. What such a number leaves modulo p is uniform but for 2^-128.

        Raises:
            ParameterError: the secret is no such number (it is not shown).
        """
        if type(secret) is not int or not 0 <= secret < self.p:
            raise ParameterError("the secret must be a whole number from 0 to p - 1, an int")
        p, size = self._modulus, self._bytes
        random = randomness(size * (self.k - 1))
        # Highest coefficient first, as Horner's rule takes them.
        coefficients = [
            from_bytes(random[at : at + size]) % p for at in range(0, len(random), size)
        ]
        known, shares = integer(secret), {}
        for point in range(1, self.n + 1):
            value = integer(0)
            for coefficient in coefficients:
                value = (value + coefficient) * point
            shares[point] = int((value + known) % p)
        return shares

    def join(self, shares: Mapping[int, int]) -> int:
        """The secret.

        Args:
            shares: values by point, at least k. If there are m, up to (m - k) / 2 of them may have
                been altered.

        Raises:
            DecodeError: fewer than k; a point is not 1 .. p - 1, or a value not 0 .. p - 1; or
                more were altered than can be told, as far as this can be noticed. (Of exactly k,
                nothing can be.)
        """
        k, p = self.k, self.p
        if len(shares) < k:
            raise DecodeError(f"{k} shares of a secret are needed, got {len(shares)}")
        points, values = [*shares], [*shares.values()]
        if not all(type(x) is int and 0 < x < p for x in points) or not all(
            type(y) is int and 0 <= y < p for y in values
        ):
            raise DecodeError("a share is a point 1 .. p - 1 and its value 0 .. p - 1, both ints")
        for at in range(k, len(points)):
            if self._at(points[:k], values[:k], points[at]) != values[at]:
                wrong = altered_places(PrimeField(p), points, values, k)
                kept = [i for i in range(len(points)) if i not in wrong]
                points, values = [points[i] for i in kept], [values[i] for i in kept]
                break
        return self._at(points[:k], values[:k], 0)

    def _at(self, points: list[int], values: list[int], wanted: int) -> int:
        """The value at a point of the polynomial through k others."""
        total = 0
        for weight, value in zip(_weights(tuple(points), wanted, self.p), values, strict=True):
            total += weight * value
        return int(total % self._modulus)


@lru_cache(maxsize=4096)
def _weights(points: tuple[int, ...], wanted: int, p: int) -> tuple[int, ...]:
    """Lagrange's formula: values at `points`, times these, are the value at `wanted`."""
    found = []
    for point in points:
        above, below = 1, 1
        for other in points:
            if other != point:
                above, below = above * (wanted - other) % p, below * (point - other) % p
        found.append(integer(above * inverse(below, p) % p))
    return tuple(found)
