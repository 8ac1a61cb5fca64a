"""Commutative encryption by exponentiation modulo a safe prime (Pohlig-Hellman).

A layer is a secret exponent: adding it raises an element to e, removing it raises to the inverse
of e. Layers commute, so they come off in any order; equal words under equal sets of layers are
equal elements, and nothing else is. That is all a broker needs to compare what it cannot read.

Conventions: p = 2q + 1 with p and q prime; elements are the squares modulo p except 1, a group of
prime order q. A word w becomes H(w)^2. Without the square every party, with no key at all, sees
whether H(w) is a square: exponents are odd, so the Legendre symbol passes through all layers.
From 2048 bits on, keys are drawn such that removing a layer takes an exponent of 256 bits (adding
one takes a full exponent): a discrete logarithm of that length takes 2^128 steps, and the groups'
Diffie-Hellman problem is as hard as for long exponents if finding short logarithms is [KK04].

Hazards: encryption is deterministic, and it is malleable: whoever sees E(m) can make E(m^2). Words
of small domains are safe only from those who lack a layer's key. Exponentiations do not branch on
keys (`ccbps.algebra.modular.powmod_secret`); hashing of words is not constant time.
Source: [PH78]; its use for publish/subscribe [SOM09].
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import shake_256
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra.modular import (
    from_bytes,
    integer,
    inverse,
    is_safe_prime,
    jacobi,
    powmod_secret,
    random_below,
    rows_from,
    rows_to,
)
from ccbps.algebra.prime_order import ModpGroup
from ccbps.arrays import Randomness
from ccbps.ciphers.group_layers import key_stream
from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.keys.secret import SecretBytes

Rows = NDArray[np.uint8]

MODP_2048: Final = int(ModpGroup("modp2048").modulus)
"""The safe prime of group 14 of RFC 3526 [RFC3526]."""

TOY_PRIME_64: Final = int(ModpGroup("toy64").modulus)
"""A safe prime of 64 bits, for tests and examples: every layer comes off without its key."""

SHORT_BITS: Final = 256
SHORT_FROM_BITS: Final = 2048


@lru_cache(maxsize=16)
def _checked(prime: int) -> int:
    if prime == MODP_2048 or (prime > 10 and is_safe_prime(prime)):
        return prime
    raise ParameterError(
        "prime must be a safe prime of at least 11 (p and (p - 1) / 2 both prime), as MODP_2048 is"
    )


class LayerKey(SecretBytes):
    """One layer: the exponent that removes it, and with the prime also the one that adds it.

    Attributes:
        prime: the p it belongs to.
    """

    kind = "layer key"
    __slots__ = ("_add", "_remove", "prime")

    def __init__(self, secret: bytes, prime: int) -> None:
        """
        Args:
            secret: the removing exponent, most significant byte first.
            prime: a safe prime p.

        Raises:
            KeyMismatchError: the exponent is not in 2..p - 2 or not coprime to p - 1.
        """
        super().__init__(secret)
        self.prime = _checked(int(prime))
        remove = from_bytes(self._secret)
        if not 1 < remove < prime - 1 or not remove & 1 or remove == prime >> 1:
            raise KeyMismatchError(
                "a layer key is an exponent in 2..p - 2 that has no factor in common with p - 1; "
                "PohligHellman.generate() draws one"
            )
        self._remove, self._add = remove, inverse(remove, prime - 1)


class PohligHellman:
    """The cipher over one safe prime. Public: holds no key.

    Attributes:
        prime: p.
        order: q = (p - 1) / 2, the number of elements.
        element_bytes: width of an element.
    """

    def __init__(self, prime: int = MODP_2048) -> None:
        """
        Raises:
            ParameterError: p is not a safe prime of at least 11.
        """
        self.prime = _checked(int(prime))
        self.order = self.prime >> 1
        self.element_bytes = -(-self.prime.bit_length() // 8)
        self._p = integer(self.prime)

    def __repr__(self) -> str:
        return f"<PohligHellman of {self.prime.bit_length()} bits>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PohligHellman) and self.prime == other.prime

    def __hash__(self) -> int:
        return hash(("Pohlig-Hellman", self.prime))

    # -- words and keys -----------------------------------------------------------------------

    def encode(self, word: bytes) -> int:
        """The element that stands for a word, H(w)^2 mod p; never 0 or 1."""
        width = self.element_bytes + 16  # modulo p it is uniform up to 2^-128
        counter = 0
        while True:
            head = b"ccbps Pohlig-Hellman\0" + counter.to_bytes(4, "big")
            value = from_bytes(shake_256(head + word).digest(width)) % self._p
            value = value * value % self._p
            if value > 1:
                return value
            counter += 1

    def generate(self, randomness: Randomness = os.urandom) -> LayerKey:
        """A fresh key: from 2048 bits on a removing exponent of 256 bits, below that any one."""
        short = self.prime.bit_length() >= SHORT_FROM_BITS
        while True:
            if short:  # All of one length, because the time of a power shows it.
                drawn = from_bytes(randomness(SHORT_BITS // 8)) | 1 << (SHORT_BITS - 1)
            else:
                drawn = random_below(self.prime - 1, randomness)
            drawn |= 1
            if drawn > 1 and drawn != self.order:
                return LayerKey(int(drawn).to_bytes(self.element_bytes, "big"), self.prime)

    def key(self, secret: bytes) -> LayerKey:
        """The key that `export_secret` wrote."""
        return LayerKey(secret, self.prime)

    def derive(self, secret: bytes, context: bytes) -> LayerKey:
        """The key named `context` of a secret of at least 16 bytes; the same one every time."""
        return self.generate(key_stream(secret, context))

    # -- layers -------------------------------------------------------------------------------

    def add(self, elements: Iterable[int], *keys: LayerKey) -> list[int]:
        """The elements with one more layer of each key; one exponentiation each in all.

        Raises:
            ParameterError: something is not an element; names its position.
            KeyMismatchError: a key belongs to another prime.
        """
        return self._powers(elements, keys, "_add")

    def remove(self, elements: Iterable[int], *keys: LayerKey) -> list[int]:
        """The elements with one layer of each key removed; the inverse of `add`, errors likewise.

        A layer that is not there cannot be detected: the result is then an unrelated element.
        """
        return self._powers(elements, keys, "_remove")

    def _powers(self, elements: Iterable[int], keys: Sequence[LayerKey], name: str) -> list[int]:
        if not keys:
            raise ParameterError("adding or removing layers needs at least one key")
        exponent = integer(1)
        for key in keys:
            if not isinstance(key, LayerKey):
                raise KeyMismatchError(f"a layer needs a LayerKey, got {type(key).__name__}")
            if key.prime != self.prime:
                raise KeyMismatchError("this layer key belongs to another prime than this cipher")
            power = getattr(key, name)
            exponent = power if exponent == 1 else exponent * power % self.order
        values = [self.require(value, f"element {row}") for row, value in enumerate(elements)]
        return [powmod_secret(value, exponent, self._p) for value in values]

    # -- elements -----------------------------------------------------------------------------

    def is_element(self, value: int) -> bool:
        """Whether `value` is a square modulo p, reduced, and neither 0 nor 1."""
        return 1 < value < self.prime and jacobi(value, self._p) == 1

    def require(self, value: int, name: str = "value") -> int:
        """`value`, if it is an element.

        Raises:
            ParameterError: it is not; the value is not shown.
        """
        if not self.is_element(value):
            raise ParameterError(
                f"{name} is not an element: wanted a square modulo p in 2..p - 1 "
                "(0, 1, p - 1 and non-squares show or leak something; refuse the message)"
            )
        return integer(value)

    def to_rows(self, elements: Sequence[int]) -> Rows:
        """Elements as bytes, shape (len(elements), element_bytes)."""
        return rows_to(elements, self.element_bytes)

    def from_rows(self, rows: Rows) -> list[int]:
        """Integers of rows of bytes; whether they are elements is for `is_element` to say."""
        return rows_from(rows)
