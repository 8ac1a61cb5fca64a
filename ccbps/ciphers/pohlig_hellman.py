"""Commutative encryption by exponentiation (Pohlig-Hellman), in squares or any other group.

A layer is a secret exponent: adding it raises an element to e, removing it raises to the inverse
of e. Layers commute, so they come off in any order. Equal words under equal sets of layers are
equal elements, and nothing else is. A broker needs no more to compare words that it cannot read.

`PohligHellman` computes modulo a safe prime p = 2q + 1; its elements are the squares modulo p, a
group of prime order q, without 1. A word w becomes H(w)^2. Without the square every party, with no
key at all, sees whether H(w) is a square: exponents are odd, so the Legendre symbol passes through
all layers. From 2048 bits on, keys are drawn such that removing a layer takes an exponent of 256
bits (adding one takes a full exponent). A discrete logarithm of that length takes 2^128 steps, and
the groups' Diffie-Hellman problem is as hard as for long exponents if finding short logarithms is
[KK04].

`GroupLayers` computes in any `PrimeOrderGroup`. On a curve a layer takes 40 microseconds to add or
remove; 2,048-bit integers take hundreds or thousands.

Hazards: encryption is deterministic, and it is malleable: E(m) gives E(m^2). Words of small domains
are safe only from those who lack a layer's key. Exponentiations modulo p do not branch on keys
(`ccbps.algebra.modular.powmod_secret`); those in other groups and the hashing of words are not
constant time.
Source: [PH78]; its use for publish/subscribe [SOM09].
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import shake_256
from typing import Any, Final

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
from ccbps.algebra.prime_order import ModpGroup, PrimeOrderGroup
from ccbps.arrays import Bytes, Randomness
from ccbps.checks import Printable
from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.keys.secret import SecretBytes

MODP_2048: Final = int(ModpGroup("modp2048").modulus)
"""The safe prime of group 14 of RFC 3526 [RFC3526]."""

TOY_PRIME_64: Final = int(ModpGroup("toy64").modulus)
"""A safe prime of 64 bits, for tests and examples: every layer comes off without its key."""

SHORT_BITS: Final = 256
SHORT_FROM_BITS: Final = 2048


class LayerKey(SecretBytes):
    """The key of one layer modulo a safe prime: the exponent that removes it.

    Together with the prime it also gives the exponent that adds the layer.

    Attributes:
        group: safe prime p that the key belongs to.

    Args:
        secret: removing exponent, most significant byte first.
        prime: safe prime p.

    Raises:
        KeyMismatchError: the exponent is not in 2..p - 2 or not coprime to p - 1.
    """

    kind = "layer key"
    __slots__ = ("_add", "_remove", "group")

    def __init__(self, secret: bytes, prime: int) -> None:
        super().__init__(secret)
        self.group = _checked(int(prime))
        remove = from_bytes(self._secret)
        if not 1 < remove < prime - 1 or not remove & 1 or remove == prime >> 1:
            raise KeyMismatchError(
                "a layer key is an exponent in 2..p - 2 that has no factor in common with p - 1; "
                "PohligHellman.generate() draws one"
            )
        self._remove, self._add = remove, inverse(remove, prime - 1)


class GroupKey(SecretBytes):
    """The key of one layer in a group of prime order q: the exponent that adds it, below q.

    Attributes:
        group: group that the key belongs to.

    Raises:
        KeyMismatchError: the exponent is not in 2..q - 1.
    """

    kind = "group layer key"
    __slots__ = ("_add", "_remove", "group")

    def __init__(self, secret: bytes, group: PrimeOrderGroup) -> None:
        super().__init__(secret)
        add = from_bytes(self._secret)
        if not 1 < add < group.order:
            raise KeyMismatchError(
                "a layer key is an exponent in 2..q - 1; GroupLayers.generate() draws one"
            )
        self.group, self._add, self._remove = group, add, inverse(add, group.order)


class Layers(Printable, ABC):
    """Base of the ciphers. A cipher is public: it holds no key.

    Attributes:
        group: group of the elements, or the safe prime that it follows from.
        order: number of elements, a prime q.
        element_bytes: bytes of an element in a row.
    """

    group: Any
    order: int
    element_bytes: int

    @abstractmethod
    def generate(self, randomness: Randomness = os.urandom) -> Any:
        """Draw a key."""

    def derive(self, secret: bytes, context: bytes) -> Any:
        """Derive the key named `context` from a secret, the same key at each call.

        Raises:
            KeyMismatchError: the secret has less than 16 bytes.
        """
        if len(secret) < 16:
            raise KeyMismatchError(
                f"layer keys are derived from 16 bytes or more, got {len(secret)}"
            )
        base, used = shake_256(len(secret).to_bytes(4, "big") + secret + context), 0

        def stream(count: int) -> bytes:
            nonlocal used
            used += count
            return base.digest(used)[-count:]

        return self.generate(stream)

    def add(self, elements: Iterable[Any], *keys: LayerKey | GroupKey) -> list[Any]:
        """Add a layer of each key to elements, with one exponentiation for all layers.

        Raises:
            ParameterError: there is no key, or an object is no element (the error names its
                position).
            KeyMismatchError: a key belongs to another group.
        """
        return self._powers(elements, keys, "_add")

    def remove(self, elements: Iterable[Any], *keys: LayerKey | GroupKey) -> list[Any]:
        """Remove a layer of each key from elements: the inverse of `add`, with the same errors.

        A layer that is not there cannot be detected: the result is then an unrelated element.
        """
        return self._powers(elements, keys, "_remove")

    def _powers(
        self, elements: Iterable[Any], keys: Sequence[LayerKey | GroupKey], name: str
    ) -> list[Any]:
        if not keys:
            raise ParameterError("adding or removing layers needs at least one key")
        exponent = integer(1)
        for key in keys:
            if not isinstance(key, LayerKey | GroupKey) or key.group != self.group:
                raise KeyMismatchError(f"a layer needs a key that {self!r} made")
            power = getattr(key, name)
            exponent = power if exponent == 1 else exponent * power % self.order
        values = list(elements)
        for row, value in enumerate(values):
            if not self.is_element(value):
                raise ParameterError(
                    f"element {row} is not an element of {self!r}; refuse its message"
                )
        return self._raise(values, exponent)

    @abstractmethod
    def _raise(self, values: list[Any], exponent: int) -> list[Any]:
        """Raise elements to an exponent."""

    @abstractmethod
    def is_element(self, value: Any) -> bool:
        """Return whether a value of `from_rows` is an element."""


@lru_cache(maxsize=16)
def _checked(prime: int) -> int:
    if prime == MODP_2048 or (prime > 10 and is_safe_prime(prime)):
        return prime
    raise ParameterError(
        "prime must be a safe prime of at least 11 (p and (p - 1) / 2 both prime), as MODP_2048 is"
    )


class PohligHellman(Layers):
    """The cipher over one safe prime p. Elements are integers.

    Attributes:
        prime: safe prime p.

    Raises:
        ParameterError: p is not a safe prime of at least 11.
    """

    def __init__(self, prime: int = MODP_2048) -> None:
        self.prime = self.group = _checked(int(prime))
        self.order = self.prime >> 1
        self.element_bytes = -(-self.prime.bit_length() // 8)
        self._p = integer(self.prime)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PohligHellman) and self.prime == other.prime

    def __hash__(self) -> int:
        return hash(("Pohlig-Hellman", self.prime))

    def __repr__(self) -> str:
        return f"<PohligHellman of {self.prime.bit_length()} bits>"

    def encode(self, word: bytes) -> int:
        """Return the element that stands for a word, H(w)^2 mod p; never 0 or 1."""
        width = self.element_bytes + 16  # modulo p it is uniform up to 2^-128
        counter = 0
        while True:
            head = b"ccbps Pohlig-Hellman\0" + counter.to_bytes(4, "big")
            value = from_bytes(shake_256(head + word).digest(width)) % self._p
            value = value * value % self._p
            if value > 1:
                return value
            counter += 1

    def key(self, secret: bytes) -> LayerKey:
        """Return the key from its `export_secret`."""
        return LayerKey(secret, self.prime)

    def generate(self, randomness: Randomness = os.urandom) -> LayerKey:
        """Draw a key: from 2048 bits on a removing exponent of 256 bits, below that any one."""
        short = self.prime.bit_length() >= SHORT_FROM_BITS
        while True:
            if short:  # All of one length, because the time of a power shows it.
                drawn = from_bytes(randomness(SHORT_BITS // 8)) | 1 << (SHORT_BITS - 1)
            else:
                drawn = random_below(self.prime - 1, randomness)
            drawn |= 1
            if drawn > 1 and drawn != self.order:
                return self.key(int(drawn).to_bytes(self.element_bytes, "big"))

    def _raise(self, values: list[int], exponent: int) -> list[int]:
        return [powmod_secret(integer(value), exponent, self._p) for value in values]

    def is_element(self, value: int) -> bool:
        """Return whether a value is a square modulo p, reduced, and neither 0 nor 1.

        0, 1, p - 1 and numbers that are no squares would show or leak something.
        """
        return 1 < value < self.prime and jacobi(value, self._p) == 1

    def to_rows(self, elements: Sequence[int]) -> Bytes:
        """Return elements as bytes, shape (len(elements), element_bytes)."""
        return rows_to(elements, self.element_bytes)

    def from_rows(self, rows: Bytes) -> list[int]:
        """Return the integers of rows of bytes, each to be checked by `is_element`."""
        return rows_from(rows)


class GroupLayers(Layers):
    """The cipher over one group of prime order. Elements are opaque, and None is no element."""

    def __init__(self, group: PrimeOrderGroup) -> None:
        self.group: PrimeOrderGroup = group
        self.order, self.element_bytes = group.order, group.element_bytes

    def __repr__(self) -> str:
        return f"<GroupLayers over {self.group.name}>"

    def encode(self, word: bytes) -> Any:
        """Return the element that stands for a word; never the identity."""
        return self.group.hash_to_group(b"ccbps layers\0" + word)

    def key(self, secret: bytes) -> GroupKey:
        """Return the key from its `export_secret`."""
        return GroupKey(secret, self.group)

    def generate(self, randomness: Randomness = os.urandom) -> GroupKey:
        while True:
            exponent = int(self.group.random_exponent(randomness))
            if exponent > 1:
                return self.key(exponent.to_bytes(self.group.exponent_bytes, "big"))

    def _raise(self, values: list[Any], exponent: int) -> list[Any]:
        return self.group.powers(values, exponent)

    def is_element(self, value: Any) -> bool:
        return value is not None

    def to_rows(self, elements: Sequence[Any]) -> Bytes:
        """Return elements as bytes, shape (len(elements), element_bytes)."""
        return self.group.encode_many(elements)

    def from_rows(self, rows: Bytes) -> list[Any]:
        """Return the element of each row of bytes, or None."""
        return self.group.decode_many(rows)
