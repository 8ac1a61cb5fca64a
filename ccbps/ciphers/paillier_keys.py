"""Paillier's keys: public and secret, textbook or with a secret subgroup, and their checks.

What the scheme is, what it assumes and its hazards: `ccbps.ciphers.paillier`, which also encrypts.

Secrets of a key: the primes p and q of n; with a subgroup also a prime factor v of each p - 1.
Convention: ciphertexts are plain integers modulo n^2, messages integers modulo n.
Hazard: decryption is not constant time, except with ``hardened=True``.
Source: [P99], the subgroup's h after [DJN10].
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from hashlib import sha256
from operator import index
from typing import Final, Self

from ccbps.algebra.modular import (
    gcd,
    integer,
    inverse,
    is_prime,
    powmod,
    powmod_secret,
    product,
    random_below,
    random_prime,
    random_unit,
)
from ccbps.arrays import Randomness
from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.keys.secret import SecretBytes

MIN_BITS: Final = 2048
TOY_BITS: Final = 64


def whole(value: int, name: str) -> int:
    """`value` as an integer that computes fast.

    Raises:
        ParameterError: it is not one, as 1.5, 2.0, "7" or None are not; `name` says what it was
            for.
    """
    try:
        return integer(index(value))
    except TypeError:
        pass
    raise ParameterError(
        f"{name} must be an integer, got {type(value).__name__}: round it or scale it first"
    )


class PaillierPublicKey:
    """n, and with a subgroup key its h.

    Attributes:
        n: the modulus.
        n2: its square.
        h: generator of the secret subgroup modulo n, or None.
        bits: of n. A ciphertext has twice as many.
        width: bytes of a ciphertext.
    """

    __slots__ = ("bits", "h", "n", "n2", "width")

    def __init__(self, n: int, h: int | None = None) -> None:
        """
        Raises:
            ParameterError: n is even or too short, or h is not an element of the group modulo n.
        """
        if not n & 1 or n.bit_length() < TOY_BITS:
            raise ParameterError(
                f"n must be odd and of at least {TOY_BITS} bits, got {n.bit_length()} bits"
            )
        if h is not None and (not 1 < h < n or gcd(h, n) != 1):
            raise ParameterError("h must be in 2..n - 1 and have no factor in common with n")
        self.n = integer(n)
        self.n2 = self.n * self.n
        self.h = None if h is None else integer(h)
        self.bits = self.n.bit_length()
        self.width = -(-self.n2.bit_length() // 8)

    def fingerprint(self) -> str:
        """16 hex digits that name this key."""
        return sha256(f"Paillier {int(self.n)} {int(self.h or 0)}".encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"<PaillierPublicKey of {self.bits} bits, {self.fingerprint()}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PaillierPublicKey):
            return NotImplemented
        return (self.n, self.h) == (other.n, other.h)

    def __hash__(self) -> int:
        return hash((self.n, self.h))

    def __reduce__(self) -> tuple[type[Self], tuple[int, int | None]]:
        return type(self), (int(self.n), None if self.h is None else int(self.h))

    def add(self, a: int, b: int) -> int:
        """A ciphertext of the sum."""
        return a * b % self.n2

    def add_many(self, ciphertexts: Iterable[int]) -> int:
        """A ciphertext of the sum of all; 1, which anyone can read as 0, of none."""
        return product(ciphertexts, self.n2)

    def add_plain(self, a: int, m: int) -> int:
        """A ciphertext of the sum with a number: not blinded anew."""
        return a * self.plain(m) % self.n2

    def multiply(self, a: int, k: int) -> int:
        """A ciphertext of k times the message; k may be negative."""
        k = whole(k, "the factor")
        if abs(k) >= self.n:
            raise ParameterError("the factor must be between -n and n")
        return powmod(a, k, self.n2)

    def plain(self, m: int) -> int:
        """(1 + n)^m: m without any blinding, readable by all.

        Raises:
            ParameterError: m is not an integer, or not between -n and n (it would come back as
                another number).
        """
        m = whole(m, "a message")
        if not -self.n < m < self.n:
            raise ParameterError(
                "a message must be between -n and n: another would come back reduced"
            )
        return m % self.n * self.n + 1

    def check(self, ciphertexts: Iterable[int]) -> list[int]:
        """Places of what is not a ciphertext: outside 1..n^2 - 1, or sharing a factor with n."""
        values = list(ciphertexts)
        bad = [place for place, value in enumerate(values) if not 0 < value < self.n2]
        if bad or gcd(product(values, self.n), self.n) != 1:
            return [
                place
                for place, value in enumerate(values)
                if not 0 < value < self.n2 or gcd(value, self.n) != 1
            ]
        return bad


class PaillierSecretKey(SecretBytes):
    """The primes, and with a subgroup key their secret factors.

    Attributes:
        public: the public key.
        subgroup: whether ciphertexts are made and decrypted in a secret subgroup.
    """

    kind = "Paillier secret key"
    __slots__ = ("_halves", "_p_inverse", "public", "subgroup")

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        parts: dict[str, int] = {}
        problem = "not the bytes of a Paillier secret key"
        try:
            parts = {name: integer(text) for name, text in json.loads(self._secret).items()}
            p, q, n = parts["p"], parts["q"], parts["n"]
            problem = _key_problem(p, q, n)
            if not problem and "h" in parts:
                problem = _subgroup_problem(parts)
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        if problem:
            parts, p, q, n, secret = {}, 0, 0, 0, b""
            raise KeyMismatchError(problem)
        self.subgroup = "h" in parts
        self.public = PaillierPublicKey(n, parts.get("h"))
        self._p_inverse = inverse(p, q)
        self._halves = tuple(
            _Half(prime, other, parts[name] if self.subgroup else prime - 1)
            for prime, other, name in ((p, q, "vp"), (q, p, "vq"))
        )

    @classmethod
    def generate(
        cls,
        bits: int = MIN_BITS,
        subgroup_bits: int | None = None,
        *,
        toy: bool = False,
        randomness: Randomness = os.urandom,
    ) -> Self:
        """A fresh key.

        Args:
            bits: of n, even; at least 2048 unless `toy` says that the key protects nothing.
            subgroup_bits: of the secret prime factor of each p - 1; None for the textbook key.

        Raises:
            ParameterError: bits out of range.
        """
        least = TOY_BITS if toy else MIN_BITS
        if bits % 2 or bits < least:
            raise ParameterError(
                f"bits must be even and at least {least}, got {bits} (toy=True takes less, "
                "for tests)"
            )
        if subgroup_bits is None:
            while True:
                p, q = (random_prime(bits // 2, randomness) for _ in "pq")
                if not _key_problem(p, q, p * q):
                    return cls.from_primes(p, q, toy=toy)
        longest = bits // 2 - 24
        shortest = 16 if toy else 224
        if not shortest <= subgroup_bits <= longest:
            raise ParameterError(
                f"subgroup_bits must be {shortest}..{longest}, got {subgroup_bits}"
            )
        while True:
            (p, vp), (q, vq) = (
                _prime_with_factor(bits // 2, subgroup_bits, randomness) for _ in "pq"
            )
            n = p * q
            if vp != vq and not _key_problem(p, q, n):
                break
        while True:
            hp = powmod(random_unit(p, randomness), (p - 1) // vp, p)
            hq = powmod(random_unit(q, randomness), (q - 1) // vq, q)
            if hp != 1 and hq != 1:
                h = hp + p * ((hq - hp) * inverse(p, q) % q)
                return cls._from_parts(p=p, q=q, n=n, vp=vp, vq=vq, h=h)

    @classmethod
    def from_primes(cls, p: int, q: int, n: int | None = None, *, toy: bool = False) -> Self:
        """The textbook key of two primes; with `n`, their product is checked against it.

        Args:
            toy: take primes whose product has less than 2048 bits and protects nothing.

        Raises:
            KeyMismatchError: not two different primes, or not of this n.
            ParameterError: the product is too short.
        """
        bits = (p * q).bit_length()
        if bits < MIN_BITS and not toy:
            raise ParameterError(
                f"the primes' product must have at least {MIN_BITS} bits, got {bits} (toy=True "
                "takes less, for tests)"
            )
        return cls._from_parts(p=p, q=q, n=p * q if n is None else n)

    @classmethod
    def _from_parts(cls, **parts: int) -> Self:
        return cls(json.dumps({name: f"{int(value):x}" for name, value in parts.items()}).encode())

    def primes(self) -> tuple[int, int]:
        """p and q: as secret as the key."""
        return self._halves[0].prime, self._halves[1].prime

    def textbook(self) -> PaillierSecretKey:
        """The same primes without the subgroup: decrypts what anybody encrypted for this n."""
        return PaillierSecretKey.from_primes(*self.primes(), toy=self.public.bits < MIN_BITS)

    def decrypt(self, ciphertext: int, *, signed: bool = False, hardened: bool = False) -> int:
        """The message, 0..n - 1; with `signed`, -(n - 1)/2..(n - 1)/2.

        Args:
            hardened: raise to the secret exponent in time that does not depend on it.

        Raises:
            ParameterError: it is not a ciphertext for this n; or, with a subgroup key, it was not
                made with this key's h (a textbook key cannot notice another key's ciphertext).
        """
        public = self.public
        if not 0 < ciphertext < public.n2:
            raise ParameterError("a ciphertext must be in 1..n^2 - 1")
        power = powmod_secret if hardened else powmod
        mp, mq = (half.decrypt(ciphertext, power) for half in self._halves)
        p, q = self.primes()
        m = mp + p * ((mq - mp) * self._p_inverse % q)
        return int(m - public.n if signed and m > public.n >> 1 else m)

    def decrypt_many(self, ciphertexts: Iterable[int], *, signed: bool = False) -> list[int]:
        """The messages of all."""
        return [self.decrypt(ciphertext, signed=signed) for ciphertext in ciphertexts]

    def blinding(self, randomness: Randomness = os.urandom) -> int:
        """r^n mod n^2 of a uniform r, exactly, from the primes, in a third of the time it takes
        without them. x^p mod p^2 for uniform x is the same distribution modulo p^2."""
        low, high = (
            powmod(random_unit(half.prime, randomness), half.prime, half.square)
            for half in self._halves
        )
        first, second = self._halves
        step = inverse(first.square, second.square)
        return low + first.square * ((high - low) * step % second.square)


class _Half:
    """Decryption modulo one prime: c^e = 1 + (e m n mod p^2), where e kills the blinding."""

    __slots__ = ("exponent", "factor", "prime", "square")

    def __init__(self, prime: int, other: int, exponent: int) -> None:
        self.prime, self.square, self.exponent = prime, prime * prime, exponent
        self.factor = inverse(exponent * other, prime)

    def decrypt(self, ciphertext: int, power: Callable[[int, int, int], int]) -> int:
        quotient, rest = divmod(
            power(ciphertext % self.square, self.exponent, self.square), self.prime
        )
        if rest != 1:
            raise ParameterError(
                "no ciphertext of this key: it was made with another key, or without this key's h "
                "(textbook() decrypts any for this n)"
            )
        return quotient * self.factor % self.prime


def _key_problem(p: int, q: int, n: int) -> str:
    if p * q != n:
        return "the primes of a Paillier key must have the product n"
    if p == q or not (is_prime(p) and is_prime(q)):
        return "a Paillier key needs two different primes"
    if n.bit_length() < TOY_BITS or gcd(n, (p - 1) * (q - 1)) != 1:
        return f"the primes must not divide (p - 1)(q - 1), and n needs {TOY_BITS} bits or more"
    return ""


def _subgroup_problem(parts: dict[str, int]) -> str:
    for prime, factor in ((parts["p"], parts["vp"]), (parts["q"], parts["vq"])):
        if not is_prime(factor) or (prime - 1) % factor:
            return "the secret orders of a Paillier key must be prime factors of p - 1 and q - 1"
        if parts["h"] % prime == 1 or powmod(parts["h"], factor, prime) != 1:
            return "h of a Paillier key must have the secret orders modulo p and modulo q"
    return ""


def _prime_with_factor(bits: int, factor_bits: int, randomness: Randomness) -> tuple[int, int]:
    """A prime p of `bits` bits, its two highest ones, and a prime factor of p - 1."""
    factor = random_prime(factor_bits, randomness)
    low, high = 3 << (bits - 2), 1 << bits
    step = 2 * factor
    while True:
        p = low + random_below(high - low, randomness)
        p += 1 - p % step
        if low < p < high and is_prime(p):
            return p, factor
