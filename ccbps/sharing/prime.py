"""Shamir's secret sharing of integers modulo a prime, as in [Survey].

A secret is the value at 0 of a polynomial of degree k - 1 modulo p whose other coefficients are
uniform. Share i is its value at i. `ccbps.sharing.shamir` describes the properties that these
shares have in common with shares of bytes. Shares of bytes are as long as the secret, and faster in
batches. Shares modulo a prime can be added, and interoperate with other implementations.

Hazard: not constant time: GMP's arithmetic takes less time for small numbers.
Sources: [S79]; [Survey] section 2.3.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from ccbps.algebra.modular import from_bytes, integer, is_prime
from ccbps.arrays import Randomness
from ccbps.checks import Printable, whole
from ccbps.errors import DecodeError, ParameterError
from ccbps.sharing.polynomials import altered_places, lagrange, prime_field
from ccbps.sharing.share import check_threshold

PRIME_257: Final = (1 << 256) + 297
"""The smallest prime above all secrets of 32 bytes."""
_SPARE: Final = 16
"""Extra bytes of a random number: modulo p it is then uniform up to 2^-128."""


class PrimeShamir(Printable):
    """Shamir's sharing of integers below a prime: any k of n shares reconstruct them.

    Args:
        k: number of shares needed.
        n: number of shares, at points 1 .. n.
        p: prime modulus.

    Example:
        >>> from ccbps.sharing import PrimeShamir
        >>> scheme = PrimeShamir(2, 3, p=257)
        >>> shares = scheme.split(200)
        >>> sorted(shares), scheme.join({3: shares[3], 1: shares[1]})
        ([1, 2, 3], 200)

    Raises:
        ParameterError: k and n do not satisfy ``1 <= k <= n < p``, or p is not a prime.
    """

    def __init__(self, k: int, n: int, p: int = PRIME_257) -> None:
        self.p = p = whole("p", p, 2)
        if not is_prime(p):
            raise ParameterError(f"p must be a prime number, got {p}")
        self.k, self.n = check_threshold(k, n, p - 1)
        self._modulus = integer(p)
        self._bytes = (p.bit_length() + 7) // 8 + _SPARE

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.k}, {self.n}, p={self.p})"

    def split(self, secret: int, *, randomness: Randomness = os.urandom) -> dict[int, int]:
        """Split a secret into shares: a value for each point.

        Args:
            secret: an int, 0 .. p - 1.
            randomness: source of uniform bytes: for each of k - 1 coefficients 16 more than p has.
                Modulo p such a number is uniform up to 2^-128.

        Raises:
            ParameterError: the secret is not such a number. The message does not show it.
        """
        if type(secret) is not int or not 0 <= secret < self.p:
            raise ParameterError("the secret must be a whole number from 0 to p - 1, an int")
        p, size = self._modulus, self._bytes
        random = randomness(size * (self.k - 1))
        # Horner's rule takes the highest coefficient first.
        coefficients = [
            from_bytes(random[at : at + size]) % p for at in range(0, len(random), size)
        ]
        shares = {}
        for point in range(1, self.n + 1):
            value = integer(0)
            for coefficient in coefficients:
                value = (value + coefficient) * point
            shares[point] = int((value + secret) % p)
        return shares

    def join(self, shares: Mapping[int, int]) -> int:
        """Recover a secret.

        Args:
            shares: values by point, at least k. Of m shares, up to (m - k) / 2 may have been
                altered.

        Raises:
            DecodeError: there are fewer than k shares, a point is not 1 .. p - 1, a value is not
                0 .. p - 1, or more shares were altered, as far as detectable. (With exactly k
                shares it is not.)
        """
        k, p = self.k, self.p
        if len(shares) < k:
            raise DecodeError(f"{k} shares of a secret are needed, got {len(shares)}")
        points, values = [*shares], [*shares.values()]
        if not all(type(x) is int and 0 < x < p for x in points) or not all(
            type(y) is int and 0 <= y < p for y in values
        ):
            raise DecodeError(
                "shares must have points 1 .. p - 1 and values 0 .. p - 1, all of them ints"
            )
        for place in range(k, len(points)):
            if self._value(points[:k], values[:k], points[place]) != values[place]:
                altered = altered_places(prime_field(p), points, values, k)
                kept = [i for i in range(len(points)) if i not in altered]
                points, values = [points[i] for i in kept], [values[i] for i in kept]
                break
        return self._value(points[:k], values[:k], 0)

    def _value(self, points: list[int], values: list[int], at: int) -> int:
        """Return the value at a point of the polynomial through k others."""
        total = 0
        for weight, value in zip(_weights(tuple(points), at, self.p), values, strict=True):
            total += weight * value
        return int(total % self._modulus)


@lru_cache(maxsize=4096)
def _weights(points: tuple[int, ...], at: int, p: int) -> tuple[int, ...]:
    return tuple(map(integer, lagrange(prime_field(p), points, at)))
