"""Groups of prime order q in which discrete logarithms are hard: the interface.

An element is opaque: make it with the group's methods and give it back to them. Methods named in
the plural take and return lists. `labels` and `quotient_labels` are for hashing and comparing: they
may give an element and its inverse the same label, and in exchange cost a curve nothing extra.
`ccbps.algebra.named_groups` has the groups there are.

Decoding checks that bytes are an element of the group, and refuses the identity, which honest
messages hold with probability 1/q only.

Hazard: not constant time. Tables are read at places that depend on exponents, and GMP's and the
curve's products by public bases take time that depends on them too.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from hashlib import shake_256
from typing import Any, Final, TypeAlias

import numpy as np

from ccbps.algebra.modular import from_bytes
from ccbps.arrays import Bytes, Randomness
from ccbps.errors import DecodeError

Element: TypeAlias = Any
"""An element of a group: opaque, immutable, comparable with ==."""

SLACK: Final = 16
"""Bytes that integers are drawn too long by before they are reduced: a bias below 2^-128."""


class PowerTable(ABC):
    """One element whose powers are taken many times. Made by `PrimeOrderGroup.table`."""

    @abstractmethod
    def powers(self, exponents: Sequence[int]) -> list[Element]:
        """The element to each exponent (reduced modulo the order)."""


class PrimeOrderGroup(ABC):
    """A group of prime order, written as a product.

    Attributes:
        name: what `ccbps.algebra.named_groups.prime_order_group` knows it by.
        order: q.
        element_bytes: bytes of one encoded element.
        generator: the standard generator.
        identity: the neutral element.
        security: bits, roughly.
    """

    name: str
    order: int
    element_bytes: int
    generator: Element
    identity: Element
    security: int

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrimeOrderGroup) and self.name == other.name

    def __hash__(self) -> int:
        return hash(("prime-order group", self.name))

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
        """Canonical bytes of each, all as many; the same at most for its inverse."""

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

    def hash_to_exponents(self, messages: Iterable[bytes]) -> list[int]:
        """Hash each message to an exponent in 0..q - 1 (SHAKE256)."""
        width = self.exponent_bytes + SLACK
        digests = (shake_256(b"ccbps exponent\0" + data).digest(width) for data in messages)
        return [from_bytes(digest) % self.order for digest in digests]

    def hash_to_exponent(self, data: bytes) -> int:
        """Hash one message as `hash_to_exponents` does."""
        return self.hash_to_exponents([data])[0]

    @abstractmethod
    def hash_to_group(self, data: bytes) -> Element:
        """An element other than the identity, whose logarithm nobody knows. Not constant time."""
