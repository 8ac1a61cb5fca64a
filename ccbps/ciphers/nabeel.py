"""Nabeel, Shang and Bertino's modified Paillier: blinded comparisons without decryption.

With E(m) = g_p^m r^n of a Paillier key and lambda = lcm(p - 1, q - 1), E'(m) = E(m)^lambda has lost
its randomness: E'(m) = E'(1)^m, and E'(1) = 1 + kappa n with kappa = L(g_p^lambda), L(u) =
(u - 1) / n. The owner of mu = 1 / kappa reads it with one L and one product. Two parties who share
T = g^t and r_p send::

    E_p(m) = T    E'(m)^(r_p) E'(r_q)        of a value m, with a fresh r_q for each
    E_s(s) = T^-1 E'(-s)^(r_p)               of a bound s

and the owner of mu computes d = mu L(E_p E_s mod n^2) = r_p (m - s) + r_q modulo n: m >= s exactly
if d is in 0..n/2. That takes 0 <= r_q < r_p and r_p 2^l + r_q < n/2 for values and bounds in
0..2^l: both are enforced here.

Conventions: the key server has `NabeelParameters`, which hold secrets, one client a `NabeelEncoder`
for one attribute, the broker a `NabeelComparer`. T is per attribute.

Hazard: this hides little. d / r_p is m - s up to less than 1, two values or two bounds can be
compared with each other by division, and r_p is a greatest common divisor: see the attacks in the
matcher's tests. E' is not randomized. g_p must have the form (1 + n)^a b^n with a secret random a:
kappa is a lambda, so with a = 1, or a fraction that can be guessed, mu gives lambda and with it the
factors of n. Not constant time.
Source: [NSB12]; the conditions on r_p and r_q are derived here, as are the attacks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final

from ccbps.algebra.modular import gcd, integer, inverse, lcm, powmod, random_below, random_unit
from ccbps.arrays import Randomness
from ccbps.checks import Printable
from ccbps.ciphers.paillier import PaillierSecretKey, as_integer
from ccbps.errors import ParameterError
from ccbps.keys.secret import Confined

MIN_FACTOR_BITS: Final = 64
"""Fewest bits of r_p, and so of the range in which r_q hides the difference."""
GUESS_BITS: Final = 64
"""Bits of numerators and denominators that an attacker may guess."""


class NabeelParameters(Confined):
    """The key server's parameters: the factors of n, and g_p.

    Attributes:
        n: modulus.
        n2: square of the modulus.
        kappa: L(g_p^lambda). Clients and, as mu = 1 / kappa, the broker know it.
        mu: inverse of kappa modulo n.

    Args:
        secret: a Paillier key.
        g: g_p, modulo n^2. The server keeps it secret, as `generate` draws it.

    Raises:
        ParameterError: g_p has an order that is not a multiple of n, or is of a form that gives
            lambda away: (1 + n)^a b^n with b = 1 or -1, or with a fraction a = x / y modulo n of
            numbers below 2^64 (in toys below n^(1/4)).
    """

    __slots__ = ("_g", "_secret", "kappa", "mu", "n", "n2")

    def __init__(self, secret: PaillierSecretKey, g: int) -> None:
        self._secret = secret
        self.n, self.n2 = secret.public.n, secret.public.n2
        if gcd(g, self.n) != 1 or not 0 < g < self.n2:
            raise ParameterError("g_p must be in 1..n^2 - 1 and have no factor in common with n")
        if g % self.n in (1, self.n - 1):
            raise ParameterError(
                "g_p must not be 1 + a n (so not n + 1): mu would give away lambda and with it "
                "the factors of n; let generate() draw it"
            )
        self._g = integer(g)
        p, q = secret.primes()
        order = lcm(p - 1, q - 1)
        self.kappa = (powmod(self._g, order, self.n2) - 1) // self.n
        if gcd(self.kappa, self.n) != 1:
            raise ParameterError("the order of g_p must be a multiple of n; draw another")
        bound = 1 << min(GUESS_BITS, self.n.bit_length() // 4)
        if _is_small_fraction(self.kappa * inverse(order, self.n) % self.n, self.n, bound):
            raise ParameterError(
                "g_p must not be (1 + n)^a b^n with a = 1 or another small fraction: 1 / mu would "
                "give away lambda and with it the factors of n; let generate() draw it"
            )
        self.mu = inverse(self.kappa, self.n)

    @classmethod
    def generate(
        cls, bits: int = 2048, *, toy: bool = False, randomness: Randomness = os.urandom
    ) -> NabeelParameters:
        """Draw a key with g_p = (1 + n)^a b^n for random units a and b."""
        secret = PaillierSecretKey.generate(bits, toy=toy, randomness=randomness)
        n, n2 = secret.public.n, secret.public.n2
        a, b = random_unit(n, randomness), 1
        while b in (1, n - 1):
            b = random_unit(n, randomness)
        return cls(secret, (1 + a * n) * powmod(b, n, n2) % n2)

    def __repr__(self) -> str:
        return f"<NabeelParameters of {self.n.bit_length()} bits>"

    def primes(self) -> tuple[int, int]:
        """Return the factors of n, for the server to keep."""
        return self._secret.primes()

    def blinding(self, randomness: Randomness = os.urandom) -> int:
        """Draw T = g_p^t modulo n^2."""
        return powmod(self._g, random_below(self.n2, randomness), self.n2)

    def factor(self, value_bits: int, randomness: Randomness = os.urandom) -> int:
        """Draw r_p of the greatest length that keeps comparisons exact.

        Raises:
            ParameterError: this length is below 64 bits.
        """
        bits = factor_bits(self.n.bit_length(), value_bits)
        return random_below(1 << (bits - 1), randomness) | 1 << (bits - 1)


def _is_small_fraction(a: int, n: int, bound: int) -> bool:
    """Return whether a = x / y or -x / y modulo n for some 0 < x, y < bound; bound^2 < n / 2.

    If x and y exist, they occur in Euclid's algorithm.
    """
    (x, y), (rest, factor) = (n, 0), (a, 1)
    while rest >= bound:
        quotient = x // rest
        (x, y), (rest, factor) = (rest, factor), (x - quotient * rest, y - quotient * factor)
    return bool(abs(factor) < bound)


def factor_bits(modulus_bits: int, value_bits: int) -> int:
    """Return the bits of r_p with which r_p 2^value_bits + r_q < n / 2 for every n.

    Raises:
        ParameterError: they are fewer than 64.
    """
    bits = modulus_bits - value_bits - 3
    if bits < MIN_FACTOR_BITS:
        raise ParameterError(
            f"values of {value_bits} bits need a modulus of at least "
            f"{value_bits + MIN_FACTOR_BITS + 3} bits, got {modulus_bits}"
        )
    return bits


class NabeelEncoder(Confined):
    """A client's encoder of values, or of bounds, for one attribute.

    Attributes:
        n: modulus.
        value_bits: bits of values and bounds, which are 0..2^value_bits.

    Args:
        n: modulus.
        kappa: L(g_p^lambda).
        blinding: T to encode values, its inverse modulo n^2 to encode bounds.
        factor: r_p.
        value_bits: bits of values and bounds.

    Raises:
        ParameterError: r_p is not positive, or r_p 2^value_bits + r_q < n/2 could fail.
    """

    __slots__ = ("_blinding", "_factor", "_kappa", "_n2", "n", "value_bits")

    def __init__(self, n: int, kappa: int, blinding: int, factor: int, value_bits: int) -> None:
        if factor < 1 or 2 * (factor * (1 << value_bits) + factor - 1) >= n:
            raise ParameterError(
                "r_p 2^value_bits + r_q must stay below n / 2, and r_p be positive: otherwise "
                "comparisons would be wrong; use a larger modulus or fewer bits"
            )
        self.n, self.value_bits = integer(n), value_bits
        self._n2, self._kappa = self.n * self.n, integer(kappa)
        self._blinding, self._factor = integer(blinding), integer(factor)

    def __repr__(self) -> str:
        return f"<NabeelEncoder of {self.n.bit_length()} bits>"

    def values(self, values: Iterable[int], randomness: Randomness = os.urandom) -> list[int]:
        """Return E_p of each value, with a fresh r_q."""
        factor = self._factor
        scaled = (factor * self._checked(m) for m in values)
        return [self._encode(x + random_below(factor, randomness)) for x in scaled]

    def bounds(self, bounds: Iterable[int]) -> list[int]:
        """Return E_s of each bound (the encoder of bounds has the inverse of T)."""
        return [self._encode(-self._factor * self._checked(s)) for s in bounds]

    def _encode(self, x: int) -> int:
        """Return T E'(x) = T (1 + kappa n)^x = T (1 + kappa x n) modulo n^2."""
        return self._blinding * (self._kappa * x % self.n * self.n + 1) % self._n2

    def _checked(self, value: int) -> int:
        value = as_integer(value, "a value or bound")
        if not 0 <= value <= 1 << self.value_bits:
            raise ParameterError(f"values and bounds must be in 0..2^{self.value_bits}")
        return value


class NabeelComparer(Printable):
    """The broker's comparison of a value with a bound, which tells more (see the module)."""

    def __init__(self, n: int, mu: int) -> None:
        self.n, self.mu = integer(n), integer(mu)
        self.n2, self._half = self.n * self.n, self.n >> 1

    def __repr__(self) -> str:
        return f"<NabeelComparer of {self.n.bit_length()} bits>"

    def reads(self, cipher: int) -> int:
        """Return the x of E'(x), modulo n and centred: -(n - 1)/2..(n - 1)/2.

        Raises:
            ParameterError: the number is not an E'(x).
        """
        quotient, rest = divmod(cipher, self.n)
        if rest != 1:
            raise ParameterError("not an E'(x): value and bound are of different keys")
        x = quotient * self.mu % self.n
        return x - self.n if x > self._half else x

    def difference(self, value: int, bound: int) -> int:
        """Return d = r_p (m - s) + r_q of E_p(m) and E_s(s), centred."""
        return self.reads(value * bound % self.n2)

    def at_least(self, value: int, bound: int) -> bool:
        """Return whether m >= s."""
        return self.difference(value, bound) >= 0

    def offsets(self, ciphers: Sequence[int], reference: int) -> list[int]:
        """Return the difference of each of `ciphers` to one reference of the other kind."""
        return [self.difference(cipher, reference) for cipher in ciphers]
