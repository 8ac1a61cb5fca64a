"""Pairings of type 3: groups G1, G2 and GT of prime order r, and a bilinear map e: G1 x G2 -> GT.

``e(P^a, Q^b) = e(P, Q)^(a b)``, and no map between G1 and G2 is known. All groups are written as
products. Elements are opaque: only the methods of a `Pairing` make and read them. The function
`ccbps.algebra.pairing.pairing` returns one by its name:

================  ==========  ====================================================================
name              security    pairing
================  ==========  ====================================================================
"bls12-381"       about 120   the curve BLS12-381, computed by ``pymcl`` or ``py-arkworks-bls12381``
                              or both (``ccbps.algebra.pairing.curve``); needs ``ccbps[pairings]``
"transparent"     none        an element is its logarithm, for tests of equations
================  ==========  ====================================================================

Messages are hashed to G1, whose elements are half as long as those of G2 and twice as fast. Bytes
of elements do not depend on the library. Decoding checks that a point lies in the group of order r,
and refuses the identity, which honest messages hold with probability 1/r only.

Hazard: nothing here is constant time.
Source: the compressed encoding of BLS12-381 is that of draft-irtf-cfrg-pairing-friendly-curves,
appendix C; hashing is RFC 9380.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, ClassVar, Final, TypeAlias

from ccbps.algebra.modular import from_bytes
from ccbps.arrays import Randomness
from ccbps.checks import Printable
from ccbps.errors import DecodeError

Point: TypeAlias = Any
"""An element of G1 or G2: opaque, immutable, comparable with ==."""
Target: TypeAlias = Any
"""An element of GT: opaque, immutable, comparable with ==."""
Pair: TypeAlias = tuple[Point, Point]
"""An element of G1 and one of G2."""

SLACK: Final = 16
"""Extra bytes of an exponent that is drawn and then reduced: they keep the bias below 2^-128."""
HASHED: Final = 1 << 14
"""Number of hashed messages whose points are kept."""
HASHED_BYTES: Final = 1 << 10
"""Greatest length of such a message (bytes): senders choose messages."""


class Pairing(Printable, ABC):
    """Groups of prime order with a bilinear map.

    Attributes:
        name: name for `ccbps.algebra.pairing.pairing`.
        library: library that computes it.
        security: rough strength in bits.
        parallel: True if several threads compute products of pairings at the same time.
        order: r, the order of all three groups.
        g1: generator of G1.
        g2: generator of G2.
        g1_bytes: length of an encoded element of G1.
        g2_bytes: length of an encoded element of G2.
        target_bytes: length of an encoded element of GT.
    """

    name: ClassVar[str]
    library: ClassVar[str]
    security: ClassVar[int]
    parallel: ClassVar[bool] = False
    order: int
    g1: Point
    g2: Point
    g1_bytes: int
    g2_bytes: int
    target_bytes: int

    def __init__(self) -> None:
        self._remembered = lru_cache(HASHED)(self._hash_to_g1)

    def __repr__(self) -> str:
        return f"<Pairing {self.name} by {self.library}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pairing) and self.name == other.name

    def __hash__(self) -> int:
        return hash(("pairing", self.name))

    # -- G1 and G2 ------------------------------------------------------------------------------

    @abstractmethod
    def power(self, base: Point, exponent: int) -> Point:
        """Raise an element of G1 or G2 to any integer."""

    @abstractmethod
    def multiply(self, left: Point, right: Point) -> Point:
        """Multiply two elements of G1, or two of G2."""

    @abstractmethod
    def inverse(self, point: Point) -> Point:
        """Invert an element of G1 or G2."""

    @abstractmethod
    def encode(self, point: Point) -> bytes:
        """Return the bytes of an element of G1 or G2."""

    @abstractmethod
    def decode_g1(self, data: bytes) -> Point:
        """Read an element of G1.

        Raises:
            DecodeError: the bytes are no element, not in their only form, or the identity.
        """

    @abstractmethod
    def decode_g2(self, data: bytes) -> Point:
        """Read an element of G2; errors are those of `decode_g1`."""

    def hash_to_g1(self, message: bytes, domain: bytes) -> Point:
        """Hash a message to G1 by RFC 9380; the domain is a tag of at most 255 bytes."""
        short = len(message) <= HASHED_BYTES
        return self._remembered(message, domain) if short else self._hash_to_g1(message, domain)

    @abstractmethod
    def _hash_to_g1(self, message: bytes, domain: bytes) -> Point:
        """Hash a message to G1."""

    # -- the map and GT -------------------------------------------------------------------------

    @abstractmethod
    def product(self, pairs: Sequence[Pair]) -> Target:
        """Return the product of e(P, Q) over all pairs, which share the last step of the map."""

    def cancels(self, pairs: Sequence[Pair]) -> bool:
        """Return whether the product of e(P, Q) over all pairs is 1."""
        return bool(self.product(pairs) == self.product(()))

    @abstractmethod
    def target_power(self, base: Target, exponent: int) -> Target:
        """Raise an element of GT to any integer."""

    @abstractmethod
    def encode_target(self, target: Target) -> bytes:
        """Return the bytes of an element of GT."""

    @abstractmethod
    def decode_target(self, data: bytes) -> Target:
        """Read an element of GT, of an authority that is trusted: its order is not checked.

        Raises:
            DecodeError: the bytes are no element of the field, or not in their only form.
        """

    # -- exponents ------------------------------------------------------------------------------

    @property
    def exponent_bytes(self) -> int:
        """Uniform bytes that give one exponent."""
        return (self.order.bit_length() + 7) // 8 + SLACK

    def exponents(self, count: int, randomness: Randomness = os.urandom) -> list[int]:
        """Draw exponents in 1 .. r - 1, with a bias below 2^-128."""
        size = self.exponent_bytes
        drawn = randomness(count * size)
        return [
            int(from_bytes(drawn[at : at + size]) % (self.order - 1)) + 1
            for at in range(0, count * size, size)
        ]


class TransparentPairing(Pairing):
    """Each element is its logarithm, so that equations are checked fast. It hides nothing."""

    name = "transparent"
    library = "integers"
    security = 0

    def __init__(self) -> None:
        super().__init__()
        self.order = BLS12_381_ORDER
        self.g1, self.g2 = (1, 1), (2, 1)
        self.g1_bytes = self.g2_bytes = self.target_bytes = 33

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    def power(self, base: Point, exponent: int) -> Point:
        group, logarithm = base
        return group, logarithm * exponent % self.order

    def multiply(self, left: Point, right: Point) -> Point:
        assert left[0] == right[0], "a product of elements of different groups"
        return left[0], (left[1] + right[1]) % self.order

    def inverse(self, point: Point) -> Point:
        return self.power(point, -1)

    def encode(self, point: Point) -> bytes:
        group, logarithm = point
        return bytes([group]) + int(logarithm).to_bytes(32)

    def decode_g1(self, data: bytes) -> Point:
        return self._decode(data, 1)

    def decode_g2(self, data: bytes) -> Point:
        return self._decode(data, 2)

    def _decode(self, data: bytes, group: int) -> Point:
        logarithm = int.from_bytes(data[1:])
        if len(data) != 33 or data[0] != group or not 0 < logarithm < self.order:
            raise DecodeError(NO_POINT)
        return group, logarithm

    def _hash_to_g1(self, message: bytes, domain: bytes) -> Point:
        digest = sha256(len(domain).to_bytes(2) + domain + message).digest()
        return 1, int.from_bytes(digest) % self.order

    def product(self, pairs: Sequence[Pair]) -> Target:
        total = 0
        for (one, left), (two, right) in pairs:
            assert (one, two) == (1, 2), "a pairing takes an element of G1 and one of G2"
            total += left * right
        return 3, total % self.order

    def target_power(self, base: Target, exponent: int) -> Target:
        assert base[0] == 3
        return self.power(base, exponent)

    def encode_target(self, target: Target) -> bytes:
        return self.encode(target)

    def decode_target(self, data: bytes) -> Target:
        return self._decode(data, 3)


BLS12_381_ORDER: Final = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
NO_POINT: Final = "not an element of the pairing's group"
