"""Paillier's cryptosystem: additively homomorphic encryption of integers modulo n = p q.

E(m) = (1 + n)^m r^n mod n^2 for messages m modulo n. The product of two ciphertexts encrypts the
sum of their messages, a power encrypts a multiple. Ciphertexts are plain integers modulo n^2 here,
so an addition costs one product of GMP. `PaillierPublicKey` adds and multiplies them.
`PaillierPublicKey.check` finds numbers that are no ciphertexts.

- `PaillierSecretKey.generate(bits)` draws the textbook key. With ``subgroup_bits=256`` each prime
  has a secret prime factor v of that many bits in p - 1, and the public key a generator h of the
  subgroup of order v_p v_q. Decryption then raises to v instead of p - 1.
- `PaillierEncryptor` makes the blinding r^n in one of two ways: as a power of one fixed base h^n
  with a short random exponent (fast, and the default), or textbook with a fresh uniform r. `fill`
  makes blindings ahead of time; encryption from the pool costs one product.

Assumptions: decisional composite residuosity (textbook form). The fast form adds that powers of h^n
with exponents of 256 bits look like n-th powers of uniform r. That is about short exponents, and
with a subgroup key also about subgroups of hidden order (finding v takes about 2^(bits/2) products,
so 256 bits for each prime against 2^128; 160 would give only 2^80).

Secrets of a key: the primes p and q of n; with a subgroup also a prime factor v of each p - 1.

Hazard: malleable, by design: the public key is enough to change the message of a ciphertext. Not
constant time, except for decryption with ``hardened=True``. A toy modulus is one that can be
factored. Messages and primes stay in memory until Python collects them.
Source: [P99]; the h^n form is that of [DJN10], with fixed-base tables [BGMW92].
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from operator import index
from typing import Any, Final, Self

from ccbps.algebra.modular import (
    FixedBase,
    from_bytes,
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
from ccbps.checks import Printable, whole
from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.keys.secret import SecretBytes
from ccbps.keys.used_rounds import this_process

MIN_BITS: Final = 2048
TOY_BITS: Final = 64
EXPONENT_BITS: Final = 256
_TOY_HINT: Final = "toy=True takes less, for tests"


def as_integer(value: int, name: str) -> int:
    """Return `value` as an integer that computes fast.

    Raises:
        ParameterError: it is no integer, as 1.5, 2.0, "7" or None are not.
    """
    try:
        return integer(index(value))
    except TypeError:
        pass
    raise ParameterError(
        f"{name} must be an integer, got {type(value).__name__}: round it or scale it first"
    )


@dataclass(repr=False, unsafe_hash=True)
class PaillierPublicKey(Printable):
    """A modulus n and, with a subgroup key, its h.

    Attributes:
        n: modulus.
        n2: square of the modulus.
        h: generator of the secret subgroup modulo n, or None.
        bits: bits of the modulus. A ciphertext has twice as many.
        width: bytes of a ciphertext.

    Raises:
        ParameterError: n is even or too short, or h is not an element of the group modulo n.
    """

    n: int
    h: int | None = None

    def __post_init__(self) -> None:
        if not self.n & 1:
            raise ParameterError("n must be odd")
        self.bits = whole("bits of n", self.n.bit_length(), TOY_BITS)
        if self.h is not None:
            if not 1 < self.h < self.n or gcd(self.h, self.n) != 1:
                raise ParameterError("h must be in 2..n - 1 and have no factor in common with n")
            self.h = integer(self.h)
        self.n = integer(self.n)
        self.n2 = self.n * self.n
        self.width = -(-self.n2.bit_length() // 8)

    @property
    def fingerprint(self) -> str:
        """16 hex digits that name the key."""
        return sha256(f"Paillier {int(self.n)} {int(self.h or 0)}".encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"<PaillierPublicKey of {self.bits} bits, {self.fingerprint}>"

    def __reduce__(self) -> tuple[type[Self], tuple[int, int | None]]:
        return type(self), (int(self.n), None if self.h is None else int(self.h))

    def add(self, a: int, b: int) -> int:
        """Return a ciphertext of the sum of two messages."""
        return a * b % self.n2

    def add_many(self, ciphertexts: Iterable[int]) -> int:
        """Return a ciphertext of the sum of all; for none it is 1, which anyone reads as 0."""
        return product(ciphertexts, self.n2)

    def add_plain(self, a: int, m: int) -> int:
        """Return a ciphertext of the sum with a public number, not blinded anew."""
        return a * self.plain(m) % self.n2

    def multiply(self, a: int, k: int) -> int:
        """Return a ciphertext of k times the message, for k between -n and n."""
        k = as_integer(k, "the factor")
        if abs(k) >= self.n:
            raise ParameterError("the factor must be between -n and n")
        return powmod(a, k, self.n2)

    def plain(self, m: int) -> int:
        """Return (1 + n)^m: m without any blinding, readable by all.

        Raises:
            ParameterError: m is not an integer, or not between -n and n (it would come back as
                another number).
        """
        m = as_integer(m, "a message")
        if not -self.n < m < self.n:
            raise ParameterError(
                "a message must be between -n and n: another would come back reduced"
            )
        return m % self.n * self.n + 1

    def check(self, ciphertexts: Iterable[int]) -> list[int]:
        """Return the places of numbers outside 1..n^2 - 1 or with a factor in common with n."""
        values = list(ciphertexts)
        inside = all(0 < value < self.n2 for value in values)
        if inside and gcd(product(values, self.n), self.n) == 1:
            return []
        return [
            place
            for place, value in enumerate(values)
            if not 0 < value < self.n2 or gcd(value, self.n) != 1
        ]


class PaillierSecretKey(SecretBytes):
    """The primes and, with a subgroup key, their secret factors.

    Attributes:
        public: public key.
        subgroup: True if ciphertexts are made and decrypted in a secret subgroup.
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
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
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
        """Draw a key.

        Args:
            bits: bits of n, even and at least 2048.
            subgroup_bits: bits of the secret prime factor of each p - 1, at least 224; None for the
                textbook key.
            toy: True to take fewer bits, which protect nothing.
            randomness: source of random bytes.

        Raises:
            ParameterError: bits are odd or out of range.
        """
        whole("bits", bits, TOY_BITS if toy else MIN_BITS, hint=_TOY_HINT)
        if bits % 2:
            raise ParameterError(f"bits must be even, got {bits}")
        if subgroup_bits is None:
            while True:
                p, q = (random_prime(bits // 2, randomness) for _ in "pq")
                if not _key_problem(p, q, p * q):
                    return cls.from_primes(p, q, toy=toy)
        whole("subgroup_bits", subgroup_bits, 16 if toy else 224, bits // 2 - 24)
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
        """Return the textbook key of two primes.

        Args:
            p: prime.
            q: another prime.
            n: product to check the primes against, if there is one.
            toy: True to take a product of less than 2048 bits, which protects nothing.

        Raises:
            KeyMismatchError: p and q are not different primes, or n is not their product.
            ParameterError: the product is too short.
        """
        least = 0 if toy else MIN_BITS
        whole("bits of the primes' product", (p * q).bit_length(), least, hint=_TOY_HINT)
        return cls._from_parts(p=p, q=q, n=p * q if n is None else n)

    @classmethod
    def _from_parts(cls, **parts: int) -> Self:
        return cls(json.dumps({name: f"{int(value):x}" for name, value in parts.items()}).encode())

    def primes(self) -> tuple[int, int]:
        """Return p and q, which are as secret as the key."""
        return self._halves[0].prime, self._halves[1].prime

    def textbook(self) -> PaillierSecretKey:
        """Return the key without the subgroup: it decrypts any ciphertext for this n."""
        return PaillierSecretKey.from_primes(*self.primes(), toy=self.public.bits < MIN_BITS)

    def decrypt(self, ciphertext: int, *, signed: bool = False, hardened: bool = False) -> int:
        """Return the message, 0..n - 1, or with `signed` -(n - 1)/2..(n - 1)/2.

        Args:
            ciphertext: number in 1..n^2 - 1.
            signed: True for negative messages, too.
            hardened: True to raise to the secret exponent in time that does not depend on it.

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
        """Return the message of each ciphertext."""
        return [self.decrypt(ciphertext, signed=signed) for ciphertext in ciphertexts]

    def blinding(self, randomness: Randomness = os.urandom) -> int:
        """Draw r^n mod n^2 of a uniform r, in a third of the time that it takes without the primes.

        x^p mod p^2 for uniform x has the same distribution modulo p^2.
        """
        low, high = (
            powmod(random_unit(half.prime, randomness), half.prime, half.square)
            for half in self._halves
        )
        first, second = self._halves
        step = inverse(first.square, second.square)
        return low + first.square * ((high - low) * step % second.square)


class _Half:
    """Decryption modulo one prime: c^e = 1 + (e m n mod p^2), where e cancels the blinding."""

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
    """Draw a prime p of `bits` bits, its two highest ones set, and a prime factor of p - 1."""
    factor = random_prime(factor_bits, randomness)
    low, high = 3 << (bits - 2), 1 << bits
    step = 2 * factor
    while True:
        p = low + random_below(high - low, randomness)
        p += 1 - p % step
        if low < p < high and is_prime(p):
            return p, factor


class PaillierEncryptor(Printable):
    """An encryptor for one public key, with a table of powers and a pool of blindings.

    It is not secret, but its pool opens the messages that are encrypted with it. The pool stays
    where it was filled: a copy, a pickled encryptor and a forked process start with an empty one,
    since two messages under one blinding show their difference.

    Args:
        public: public key.
        textbook: True to blind with r^n of a uniform r instead of short powers of one base.
        exponent_bits: bits of the random exponents, at least 256 except for toy keys.
        window: bits of an exponent that one look-up covers. The table has
            2^window ceil(exponent_bits / window) ciphertexts: 4 MiB for 2048-bit keys and 8.
        randomness: source of random bytes.

    Raises:
        ParameterError: exponents are too short.
    """

    def __init__(
        self,
        public: PaillierPublicKey,
        *,
        textbook: bool = False,
        exponent_bits: int = EXPONENT_BITS,
        window: int = 8,
        randomness: Randomness = os.urandom,
    ) -> None:
        whole("exponent_bits", exponent_bits, min(EXPONENT_BITS, public.bits))
        self.public, self._randomness = public, randomness
        self._pool: list[int] = []
        self._process = this_process()
        self._table: FixedBase | None = None
        if not textbook:
            h = public.h
            if h is None:  # any square: nobody but this encryptor needs to know it
                h = powmod(random_unit(public.n, randomness), 2, public.n)
            base = powmod(h, public.n, public.n2)
            self._table = FixedBase(base, public.n2, exponent_bits, window)

    def __repr__(self) -> str:
        return f"<PaillierEncryptor for {self.public!r}, {self.pooled} blindings in the pool>"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": []}

    def _own_pool(self) -> list[int]:
        """Return the pool, or an empty one if another process filled it."""
        if self._process != this_process():
            self._pool, self._process = [], this_process()
        return self._pool

    @property
    def pooled(self) -> int:
        """Number of blindings in the pool: encryptions that will cost one product."""
        return len(self._own_pool())

    def fill(self, count: int) -> None:
        """Add `count` blindings to the pool. Each is used once."""
        pool = self._own_pool()
        pool += [self.blinding() for _ in range(count)]

    def blinding(self) -> int:
        """Draw a fresh encryption of 0."""
        if self._table is None:
            unit = random_unit(self.public.n, self._randomness)
            return powmod(unit, self.public.n, self.public.n2)
        width = -(-self._table.bits // 8)
        exponent = from_bytes(self._randomness(width)) >> (8 * width - self._table.bits)
        return self._table.power(exponent)

    def encrypt(self, m: int) -> int:
        """Return a ciphertext of m, from the pool while it lasts.

        Raises:
            ParameterError: m is not an integer, or not between -n and n.
        """
        return self.refresh(self.public.plain(m))

    def encrypt_many(self, values: Iterable[int]) -> list[int]:
        """Return ciphertexts of all values, a sequence or one-dimensional array of integers.

        Raises:
            ParameterError: a value is not an integer, or not between -n and n.

        Example:
            >>> from ccbps.ciphers.paillier import PaillierEncryptor, PaillierSecretKey
            >>> secret = PaillierSecretKey.generate(256, subgroup_bits=64, toy=True)
            >>> sent = PaillierEncryptor(secret.public).encrypt_many([3, 4, -5])
            >>> secret.decrypt_many(sent, signed=True)
            [3, 4, -5]
        """
        return [self.encrypt(value) for value in values]

    def refresh(self, ciphertext: int) -> int:
        """Return another ciphertext of the same message."""
        pool = self._own_pool()
        return ciphertext * (pool.pop() if pool else self.blinding()) % self.public.n2
