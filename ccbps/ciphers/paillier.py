"""Paillier's cryptosystem: additively homomorphic encryption of integers modulo n = p q.

E(m) = (1 + n)^m r^n mod n^2 for messages m modulo n. The product of two ciphertexts is one of the
sum, a power one of a multiple. Ciphertexts are plain integers here, so that an addition costs what
GMP takes; `PaillierPublicKey` adds and multiplies them, `PaillierPublicKey.check` refuses others.

- `PaillierSecretKey.generate(bits)` draws the textbook key. With ``subgroup_bits=256`` each prime
  has a secret prime factor v of that many bits in p - 1, and the public key a generator h of the
  subgroup of order v_p v_q: decryption then raises to v instead of p - 1.
- `PaillierEncryptor` makes the blinding r^n in one of two ways: as a power of one fixed base h^n
  with a short random exponent (fast, and the default), or textbook with a fresh uniform r.
  `fill` makes blindings ahead of time; encryption from the pool costs one product.

Assumptions: decisional composite residuosity (textbook form). The fast form adds that powers of
h^n with exponents of 256 bits look like n-th powers of uniform r: that is about short exponents,
and with a subgroup key also about subgroups of hidden order (finding v takes about 2^(bits/2)
products, so 256 bits for each prime against 2^128; 160 would give only 2^80).

Hazard: malleable, by design: whoever has the public key can change what a ciphertext says.
Not constant time, except for decryption with ``hardened=True``. A toy modulus is one that can be
factored. Messages and primes stay in memory until Python collects them.
Source: [P99]; the h^n form is that of [DJN10], with fixed-base tables [BGMW92].
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final

from ccbps.algebra.modular import FixedBase, from_bytes, powmod, random_unit
from ccbps.arrays import Randomness
from ccbps.ciphers.paillier_keys import PaillierPublicKey
from ccbps.errors import ParameterError
from ccbps.keys.used_rounds import this_process

EXPONENT_BITS: Final = 256


class PaillierEncryptor:
    """Encrypts for one public key. Holds a table of powers, and a pool of blindings.

    Not secret, but whoever sees the pool can read what is encrypted with it. The pool stays where
    it was filled: a copy, a pickled encryptor and a forked process start with an empty one, since
    two messages under one blinding show their difference.
    """

    __slots__ = ("_pool", "_process", "_randomness", "_table", "public")

    def __init__(
        self,
        public: PaillierPublicKey,
        *,
        textbook: bool = False,
        exponent_bits: int = EXPONENT_BITS,
        window: int = 8,
        randomness: Randomness = os.urandom,
    ) -> None:
        """
        Args:
            textbook: blind with r^n of a uniform r instead of short powers of one base.
            exponent_bits: of the random exponents; at least 256, except for toy keys.
            window: of the table, which has 2^window ceil(exponent_bits / window) ciphertexts:
                4 MiB for 2048-bit keys and 8.

        Raises:
            ParameterError: exponents too short.
        """
        if exponent_bits < min(EXPONENT_BITS, public.bits):
            raise ParameterError(f"exponent_bits must be at least 256, got {exponent_bits}")
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

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        state = {name: getattr(self, name) for name in self.__slots__}
        return None, {**state, "_pool": []}

    def _own_pool(self) -> list[int]:
        """The pool, but not what another process filled."""
        if self._process != this_process():
            self._pool, self._process = [], this_process()
        return self._pool

    @property
    def pooled(self) -> int:
        """Blindings in the pool: encryptions that will cost one product."""
        return len(self._own_pool())

    def fill(self, count: int) -> None:
        """Add `count` blindings to the pool. Each is used once."""
        pool = self._own_pool()
        pool += [self.blinding() for _ in range(count)]

    def blinding(self) -> int:
        """A fresh encryption of 0."""
        if self._table is None:
            return powmod(
                random_unit(self.public.n, self._randomness), self.public.n, self.public.n2
            )
        width = -(-self._table.bits // 8)
        exponent = from_bytes(self._randomness(width)) >> (8 * width - self._table.bits)
        return self._table.power(exponent)

    def encrypt(self, m: int) -> int:
        """A ciphertext of m, from the pool while it lasts.

        Raises:
            ParameterError: m is not an integer, or not between -n and n.
        """
        plain = self.public.plain(m)
        return plain * self._next_blinding() % self.public.n2

    def encrypt_many(self, values: Iterable[int]) -> list[int]:
        """Ciphertexts of all values: a sequence or one-dimensional array of integers.

        Raises:
            ParameterError: one is not an integer, or not between -n and n.

        Example:
            >>> from ccbps.ciphers.paillier import PaillierEncryptor
            >>> from ccbps.ciphers.paillier_keys import PaillierSecretKey
            >>> secret = PaillierSecretKey.generate(256, subgroup_bits=64, toy=True)
            >>> sent = PaillierEncryptor(secret.public).encrypt_many([3, 4, -5])
            >>> secret.decrypt_many(sent, signed=True)
            [3, 4, -5]
        """
        return [self.encrypt(value) for value in values]

    def refresh(self, ciphertext: int) -> int:
        """Another ciphertext of the same message."""
        return ciphertext * self._next_blinding() % self.public.n2

    def _next_blinding(self) -> int:
        pool = self._own_pool()
        return pool.pop() if pool else self.blinding()
