"""Groups of prime order q in which discrete logarithms are hard: the interface.

Elements are opaque: only the group's methods make and read them. Methods named in the plural take
and return lists. `labels` and `quotient_labels` are for hashing and comparing. They may give an
element and its inverse the same label, which saves a curve work.
`ccbps.algebra.named_groups` has the groups.

Decoding checks that bytes are an element of the group. It refuses the identity, which honest
messages hold with probability 1/q only.

Hazard: not constant time. Tables are read at places that depend on exponents, and the time of GMP's
and the curve's products by public bases depends on them, too.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import shake_256
from typing import Any, Final, TypeAlias

import numpy as np

from ccbps.algebra.modular import from_bytes
from ccbps.arrays import Bytes, Randomness
from ccbps.errors import DecodeError

Element: TypeAlias = Any
"""An element of a group: opaque, immutable, comparable with ==."""

SLACK: Final = 16
"""Extra bytes of an integer that is drawn and then reduced: they keep the bias below 2^-128."""


@dataclass(frozen=True)
class PowerTable:
    """Powers of one element, prepared by `PrimeOrderGroup.table`.

    Attributes:
        powers: function from exponents, any integers, to the element's powers.
    """

    powers: Callable[[Sequence[int]], list[Element]]


class PrimeOrderGroup(ABC):
    """A group of prime order, written as a product.

    Attributes:
        name: name for `ccbps.algebra.named_groups.prime_order_group`.
        order: q.
        element_bytes: bytes of one encoded element.
        generator: standard generator.
        identity: neutral element.
        security: rough strength in bits.
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
        """Return the generator's powers. Exponents may be any integers."""

    @abstractmethod
    def powers(self, bases: Sequence[Element], exponents: int | Sequence[int]) -> list[Element]:
        """Raise each base to its exponent, or all to one. Exponents may be any integers."""

    @abstractmethod
    def products(self, left: Sequence[Element], right: Sequence[Element]) -> list[Element]:
        """Return left[i] right[i] for each i."""

    @abstractmethod
    def inverses(self, elements: Sequence[Element]) -> list[Element]:
        """Return the inverse of each element."""

    def quotients(self, left: Sequence[Element], right: Sequence[Element]) -> list[Element]:
        """Return left[i] / right[i] for each i."""
        return self.products(left, self.inverses(right))

    @abstractmethod
    def encode_many(self, elements: Sequence[Element]) -> Bytes:
        """Encode elements as rows of bytes, shape (len(elements), element_bytes)."""

    @abstractmethod
    def decode_many(self, rows: Bytes) -> list[Element | None]:
        """Decode rows of bytes, shape (count, element_bytes).

        Returns:
            For each row its element, or None if the row encodes the identity or no element.
        """

    @abstractmethod
    def labels(self, elements: Sequence[Element]) -> list[bytes]:
        """Return canonical bytes of each element, of one length.

        Only an element and its inverse may have the same label.
        """

    def divisors(self, elements: Sequence[Element]) -> Sequence[Any]:
        """Convert elements to the form in which `quotient_labels` divides by them."""
        return self.inverses(elements)

    @abstractmethod
    def quotient_labels(
        self, left: Sequence[Element], right: Sequence[Any]
    ) -> Iterator[list[bytes]]:
        """Yield for each of the divisors `right` the labels of all left[i] divided by it."""

    @abstractmethod
    def table(self, base: Element) -> PowerTable:
        """Prepare an element of which many powers are needed."""

    # -- one at a time ------------------------------------------------------------------------

    def generator_power(self, exponent: int) -> Element:
        """Return the generator to one exponent."""
        return self.generator_powers([exponent])[0]

    def power(self, base: Element, exponent: int) -> Element:
        """Return base^exponent."""
        return self.powers([base], [exponent])[0]

    def multiply(self, left: Element, right: Element) -> Element:
        """Return the product of two elements."""
        return self.products([left], [right])[0]

    def inverse(self, element: Element) -> Element:
        """Return the inverse of an element."""
        return self.inverses([element])[0]

    def encode(self, element: Element) -> bytes:
        """Encode an element in `element_bytes` bytes."""
        return self.encode_many([element]).tobytes()

    def decode(self, data: bytes) -> Element:
        """Decode the bytes of `encode`.

        Raises:
            DecodeError: the bytes encode the identity, or no element of this group.
        """
        rows = np.frombuffer(data, dtype=np.uint8).reshape(1, -1)
        element = self.decode_many(rows)[0] if len(data) == self.element_bytes else None
        if element is None:
            raise DecodeError(
                f"expected {self.element_bytes} bytes of an element of {self.name} other than "
                f"the identity, got {len(data)} bytes that encode none"
            )
        return element

    # -- drawing and hashing ------------------------------------------------------------------

    @property
    def exponent_bytes(self) -> int:
        """Bytes of an exponent that is below the order."""
        return -(-self.order.bit_length() // 8)

    def random_exponents(self, count: int, randomness: Randomness = os.urandom) -> list[int]:
        """Draw exponents uniformly from 1..q - 1, with a bias below 2^-128."""
        width = self.exponent_bytes + SLACK
        drawn = randomness(count * width)
        return [
            1 + from_bytes(drawn[at : at + width]) % (self.order - 1)
            for at in range(0, count * width, width)
        ]

    def random_exponent(self, randomness: Randomness = os.urandom) -> int:
        """Draw an exponent uniformly from 1..q - 1, with a bias below 2^-128."""
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
        """Hash data to an element whose logarithm nobody knows; never the identity.

        Hazard: not constant time.
        """
