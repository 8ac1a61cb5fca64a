"""Groups of prime order q in which discrete logarithms are hard, behind one interface.

An element is opaque: make it with the group's methods and give it back to them. Methods named in
the plural take and return lists. `labels` and `quotient_labels` are for hashing and comparing: they
may give an element and its inverse the same label, and in exchange cost a curve nothing extra.

`prime_order_group(name)` gives one of

- ``"secp256k1"``: `ccbps.algebra.curve`; about 128 bits of security. Needs ``ccbps[groups]``.
- ``"modp2048"``, ``"modp3072"``: squares modulo the safe primes p = 2q + 1 of RFC 3526 (its groups
  14 and 15); about 112 and 128 bits. They work wherever the package does, 50 times slower.
- ``"toy64"``: squares modulo a prime of 64 bits, for tests. Anybody takes logarithms in it.

Decoding checks that bytes are an element of the group, and refuses the identity, which honest
messages hold with probability 1/q only. For a safe prime the check is a Jacobi symbol.

Hazard: not constant time. Tables are read at places that depend on exponents, and GMP's and the
curve's products by public bases take time that depends on them too.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from hashlib import shake_256
from typing import Any, Final, TypeAlias

import numpy as np

from ccbps.algebra.modular import (
    FixedBase,
    from_bytes,
    integer,
    inverse_many,
    jacobi,
    powmod,
    powmod_many,
    rows_from,
    rows_to,
)
from ccbps.arrays import Bytes, Randomness
from ccbps.errors import DecodeError, ParameterError

__all__ = ["GROUPS", "ModpGroup", "PowerTable", "PrimeOrderGroup", "prime_order_group"]

Element: TypeAlias = Any
"""An element of a group: opaque, immutable, comparable with ==."""

SLACK: Final = 16
"""Bytes that integers are drawn too long by before they are reduced: a bias below 2^-128."""

_MODP: Final = {
    "modp2048": (
        "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a0879"
        "8e3404ddef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b"
        "0bff5cb6f406b7edee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598da4836"
        "1c55d39a69163fa8fd24cf5f83655d23dca3ad961c62f356208552bb9ed529077096966d670c354e4abc9804"
        "f1746c08ca18217c32905e462e36ce3be39e772c180e86039b2783a2ec07a28fb5c55df06f4c52c9de2bcbf6"
        "955817183995497cea956ae515d2261898fa051015728e5a8aacaa68ffffffffffffffff"
    ),
    "modp3072": (
        "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a0879"
        "8e3404ddef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b"
        "0bff5cb6f406b7edee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598da4836"
        "1c55d39a69163fa8fd24cf5f83655d23dca3ad961c62f356208552bb9ed529077096966d670c354e4abc9804"
        "f1746c08ca18217c32905e462e36ce3be39e772c180e86039b2783a2ec07a28fb5c55df06f4c52c9de2bcbf6"
        "955817183995497cea956ae515d2261898fa051015728e5a8aaac42dad33170d04507a33a85521abdf1cba64"
        "ecfb850458dbef0a8aea71575d060c7db3970f85a6e1e4c7abf5ae8cdb0933d71e8c94e04a25619dcee3d226"
        "1ad2ee6bf12ffa06d98a0864d87602733ec86a64521f2b18177b200cbbe117577a615d6c770988c0bad946e2"
        "08e24fa074e5ab3143db5bfce0fd108e4b82d120a93ad2caffffffffffffffff"
    ),
    "toy64": "ffffffffffffded7",
}

GROUPS: Final = ("secp256k1", *_MODP)
"""Names `prime_order_group` knows."""


class PowerTable(ABC):
    """One element whose powers are taken many times. Made by `PrimeOrderGroup.table`."""

    @abstractmethod
    def powers(self, exponents: Sequence[int]) -> list[Element]:
        """The element to each exponent (reduced modulo the order)."""


class PrimeOrderGroup(ABC):
    """A group of prime order, written as a product.

    Attributes:
        name: what `prime_order_group` knows it by.
        order: q.
        element_bytes: bytes of one encoded element.
        label_bytes: bytes of one label.
        generator: the standard generator.
        identity: the neutral element.
        security: bits, roughly.
    """

    name: str
    order: int
    element_bytes: int
    label_bytes: int
    generator: Element
    identity: Element
    security: int

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrimeOrderGroup) and self.name == other.name

    def __hash__(self) -> int:
        return hash(("prime-order group", self.name))

    def __reduce__(self) -> tuple[Callable[[str], PrimeOrderGroup], tuple[str]]:
        return prime_order_group, (self.name,)

    # -- many at a time -----------------------------------------------------------------------

    @abstractmethod
    def generator_powers(self, exponents: Sequence[int]) -> list[Element]:
        """g to each exponent (any integers)."""

    @abstractmethod
    def powers(self, bases: Sequence[Element], exponents: int | Sequence[int]) -> list[Element]:
        """Each base to its exponent, or all to one (any integers)."""

    @abstractmethod
    def products(self, left: Sequence[Element], right: Sequence[Element]) -> list[Element]:
        """left[i] right[i]."""

    @abstractmethod
    def inverses(self, elements: Sequence[Element]) -> list[Element]:
        """The inverse of each."""

    def quotients(self, left: Sequence[Element], right: Sequence[Element]) -> list[Element]:
        """left[i] / right[i]."""
        return self.products(left, self.inverses(right))

    @abstractmethod
    def encode_many(self, elements: Sequence[Element]) -> Bytes:
        """Rows of bytes, shape (len(elements), element_bytes)."""

    @abstractmethod
    def decode_many(self, rows: Bytes) -> list[Element | None]:
        """The elements of rows of bytes, shape (count, element_bytes); None where a row is not
        the encoding of an element of this group, or is that of the identity."""

    @abstractmethod
    def labels(self, elements: Sequence[Element]) -> list[bytes]:
        """Canonical bytes of each, `label_bytes` long; the same at most for its inverse."""

    @abstractmethod
    def divisors(self, elements: Sequence[Element]) -> Sequence[Any]:
        """Elements in the form in which `quotient_labels` divides by them."""

    @abstractmethod
    def quotient_labels(
        self, left: Sequence[Element], right: Sequence[Any]
    ) -> Iterator[list[bytes]]:
        """The labels of all quotients: for each of the divisors `right`, those of left[i] / it."""

    @abstractmethod
    def table(self, base: Element) -> PowerTable:
        """Whatever makes many powers of `base` cheaper."""

    # -- one at a time ------------------------------------------------------------------------

    def generator_power(self, exponent: int) -> Element:
        """g^exponent."""
        return self.generator_powers([exponent])[0]

    def power(self, base: Element, exponent: int) -> Element:
        """base^exponent."""
        return self.powers([base], [exponent])[0]

    def multiply(self, left: Element, right: Element) -> Element:
        """left right."""
        return self.products([left], [right])[0]

    def inverse(self, element: Element) -> Element:
        """1 / element."""
        return self.inverses([element])[0]

    def divide(self, left: Element, right: Element) -> Element:
        """left / right."""
        return self.quotients([left], [right])[0]

    def encode(self, element: Element) -> bytes:
        """`element_bytes` bytes."""
        return self.encode_many([element]).tobytes()

    def decode(self, data: bytes) -> Element:
        """The element that `encode` wrote.

        Raises:
            DecodeError: the bytes are not an element of this group, or are the identity.
        """
        rows = np.frombuffer(data, dtype=np.uint8).reshape(1, -1)
        element = self.decode_many(rows)[0] if len(data) == self.element_bytes else None
        if element is None:
            raise DecodeError(
                f"expected {self.element_bytes} bytes of an element of {self.name} other than "
                f"the identity, got {len(data)} bytes that are none"
            )
        return element

    # -- drawing and hashing ------------------------------------------------------------------

    @property
    def exponent_bytes(self) -> int:
        """Bytes of an exponent below the order."""
        return -(-self.order.bit_length() // 8)

    def random_exponents(self, count: int, randomness: Randomness = os.urandom) -> list[int]:
        """Uniform in 1..q - 1, up to a bias below 2^-128."""
        width = self.exponent_bytes + SLACK
        drawn = randomness(count * width)
        return [
            1 + from_bytes(drawn[at : at + width]) % (self.order - 1)
            for at in range(0, count * width, width)
        ]

    def random_exponent(self, randomness: Randomness = os.urandom) -> int:
        """Uniform in 1..q - 1, up to a bias below 2^-128."""
        return self.random_exponents(1, randomness)[0]

    def hash_to_exponent(self, data: bytes) -> int:
        """A digest of `data` in 0..q - 1 (SHAKE256)."""
        width = self.exponent_bytes + SLACK
        return from_bytes(shake_256(b"ccbps exponent\0" + data).digest(width)) % self.order

    @abstractmethod
    def hash_to_group(self, data: bytes) -> Element:
        """An element other than the identity, whose logarithm nobody knows. Not constant time."""


class _ModpTable(PowerTable):
    def __init__(self, base: int, p: int, q: int) -> None:
        # 6 bits per digit: 2,048-bit exponents take 6 MB and 342 products; 8 bits take three times
        # the memory and time to build for a quarter fewer products.
        self._table = FixedBase(base, p, q.bit_length(), window=6)
        self._order = q

    def powers(self, exponents: Sequence[int]) -> list[Element]:
        q = self._order
        return self._table.powers([exponent % q for exponent in exponents])


class ModpGroup(PrimeOrderGroup):
    """The squares modulo a safe prime p = 2q + 1 with p = 7 mod 8, generated by 2.

    Attributes:
        modulus: p.
    """

    identity = integer(1)
    generator = integer(2)

    def __init__(self, name: str) -> None:
        """
        Args:
            name: "modp2048", "modp3072" or "toy64".
        """
        if name not in _MODP:
            raise ParameterError(f"name must be one of {', '.join(_MODP)}; got {name!r}")
        self.name = name
        self.modulus = integer(_MODP[name])
        self.order = self.modulus >> 1
        self.element_bytes = self.label_bytes = self.modulus.bit_length() // 8
        self.security = {"modp2048": 112, "modp3072": 128}.get(name, 0)

    @cached_property
    def _powers(self) -> PowerTable:
        return self.table(self.generator)

    def generator_powers(self, exponents: Sequence[int]) -> list[Element]:
        return self._powers.powers(exponents)

    def powers(self, bases: Sequence[Element], exponents: int | Sequence[int]) -> list[Element]:
        p, q = self.modulus, self.order
        if not isinstance(exponents, Sequence):
            return powmod_many(bases, exponents % q, p)
        pairs = zip(bases, exponents, strict=True)
        return [powmod(base, exponent % q, p) for base, exponent in pairs]

    def products(self, left: Sequence[Element], right: Sequence[Element]) -> list[Element]:
        p = self.modulus
        return [a * b % p for a, b in zip(left, right, strict=True)]

    def inverses(self, elements: Sequence[Element]) -> list[Element]:
        return inverse_many(elements, self.modulus)

    def encode_many(self, elements: Sequence[Element]) -> Bytes:
        return rows_to(elements, self.element_bytes)

    def decode_many(self, rows: Bytes) -> list[Element | None]:
        p = self.modulus
        return [a if 1 < a < p and jacobi(a, p) == 1 else None for a in rows_from(rows)]

    def labels(self, elements: Sequence[Element]) -> list[bytes]:
        width = self.element_bytes
        return [a.to_bytes(width, "big") for a in elements]

    def divisors(self, elements: Sequence[Element]) -> Sequence[Any]:
        return self.inverses(elements)

    def quotient_labels(
        self, left: Sequence[Element], right: Sequence[Any]
    ) -> Iterator[list[bytes]]:
        p, width = self.modulus, self.element_bytes
        for factor in right:
            yield [(a * factor % p).to_bytes(width, "big") for a in left]

    def table(self, base: Element) -> PowerTable:
        return _ModpTable(base, self.modulus, self.order)

    def hash_to_group(self, data: bytes) -> Element:
        for counter in range(256):
            seed = b"ccbps square\0" + bytes([counter]) + data
            root = from_bytes(shake_256(seed).digest(self.element_bytes + SLACK)) % self.modulus
            if 1 < root < self.modulus - 1:
                return root * root % self.modulus
        raise ParameterError("no element found")  # cannot happen except with a broken hash


@cache
def prime_order_group(name: str) -> PrimeOrderGroup:
    """The group of that name, one object for each.

    Raises:
        ParameterError: no such group, or the library it needs is not installed.
    """
    if name == "secp256k1":
        from ccbps.algebra.curve import Secp256k1Group  # an optional dependency

        return Secp256k1Group()
    if name not in _MODP:
        raise ParameterError(f"group must be one of {', '.join(GROUPS)}; got {name!r}")
    return ModpGroup(name)
