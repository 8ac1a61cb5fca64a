"""Groups of prime order q in which discrete logarithms are hard: the interface, and the groups.

Elements are opaque: only the group's methods make and read them. Methods named in the plural take
and return lists. `labels` and `quotient_labels` are for hashing and comparing. They may give an
element and its inverse the same label, which saves a curve work. `prime_order_group` returns a
group by its name:

========================  ===================  =================================================
name                      security             group
========================  ===================  =================================================
"secp256k1"               about 128 bits       `Secp256k1Group`; needs ``ccbps[groups]``
"modp2048", "modp3072"    about 112, 128 bits  `ModpGroup`; needs no other library, and is 50
                                               times slower
"toy64"                   none                 `ModpGroup`, for tests: logarithms are easy
========================  ===================  =================================================

Decoding checks that bytes are an element of the group. It refuses the identity, which honest
messages hold with probability 1/q only.

The libraries of curves on PyPI compare as follows, measured on one machine in one run
(microseconds):

=======================  ========  =========  ============  ================
library                  g^k       a^k        product       decode and check
=======================  ========  =========  ============  ================
coincurve 21             20        33         4.1           5.4
PyNaCl 1.6, Ed25519      15        68         13.4          33
rbcl 1.1, Ristretto255   13        38         12.7          4.3
=======================  ========  =========  ============  ================

Ed25519 has a cofactor of 8. Both of the others decode and encode around every product, the
operation of a broker on every pair. GMP multiplies coordinates still faster: a product in a batch
takes about 1 microsecond, as a batch shares one inversion. coincurve is an optional dependency
because it has no wheels for every Python this package runs on.

Hazard: not constant time, except for powers of the generator of secp256k1. Tables are read at
places that depend on exponents, and the time of GMP's and the curve's products by public bases
depends on them, too.
Sources: RFC 3526 and SEC 2 for the constants; simultaneous inversion [M87].
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256, shake_256
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
from ccbps.checks import Printable, choice
from ccbps.errors import DecodeError, ParameterError
from ccbps.loading import need

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


class PrimeOrderGroup(Printable, ABC):
    """A group of prime order, written as a product.

    Attributes:
        name: name for `prime_order_group`.
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

    def __reduce__(self) -> tuple[Callable[[str], PrimeOrderGroup], tuple[str]]:
        return prime_order_group, (self.name,)

    # -- many at a time -----------------------------------------------------------------------

    @abstractmethod
    def generator_powers(self, exponents: Sequence[int]) -> list[Element]:
        """Return the generator's powers. Exponents may be any integers."""

    @abstractmethod
    def powers(self, bases: Sequence[Element], exponents: int | Sequence[int]) -> list[Element]:
        """Raise each base to its exponent, or all bases to one. Exponents may be any integers."""

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
        """Yield, for each divisor in `right`, the labels of the quotients of all `left` by it."""

    @abstractmethod
    def table(self, base: Element) -> PowerTable:
        """Prepare an element of which many powers are needed."""

    # -- one at a time ------------------------------------------------------------------------

    def generator_power(self, exponent: int) -> Element:
        """Return generator^exponent."""
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


MODULI: Final = {
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
"""Modulus p of each group, in hexadecimal."""


class ModpGroup(PrimeOrderGroup):
    """The squares modulo a safe prime p = 2q + 1 with p = 7 mod 8, computed by GMP.

    "modp2048" and "modp3072" have the primes of RFC 3526 (its groups 14 and 15), "toy64" has a
    prime of 64 bits. As all primes are 7 mod 8, 2 is a square and generates the squares. Decoding
    checks a Jacobi symbol.

    Args:
        name: "modp2048", "modp3072" or "toy64".

    Attributes:
        modulus: p.
    """

    identity = integer(1)
    generator = integer(2)

    def __init__(self, name: str) -> None:
        self.name = choice("name", name, MODULI)
        self.modulus = integer(MODULI[name])
        self.order = self.modulus >> 1
        self.element_bytes = self.modulus.bit_length() // 8
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

    def quotient_labels(
        self, left: Sequence[Element], right: Sequence[Any]
    ) -> Iterator[list[bytes]]:
        p, width = self.modulus, self.element_bytes
        for factor in right:
            yield [(a * factor % p).to_bytes(width, "big") for a in left]

    def table(self, base: Element) -> PowerTable:
        q = self.order
        # 6 bits per digit: 2,048-bit exponents take 6 MB and 342 products. 8 bits would take three
        # times the memory and time to build, for a quarter fewer products.
        fixed = FixedBase(base, self.modulus, q.bit_length(), window=6)
        return PowerTable(lambda exponents: fixed.powers(exponent % q for exponent in exponents))

    def hash_to_group(self, data: bytes) -> Element:
        for counter in range(256):
            seed = b"ccbps square\0" + bytes([counter]) + data
            root = from_bytes(shake_256(seed).digest(self.element_bytes + SLACK)) % self.modulus
            if 1 < root < self.modulus - 1:
                return root * root % self.modulus
        raise ParameterError("no element found")  # cannot happen except with a broken hash


Point = tuple[Any, Any]

P: Final = integer(2**256 - 2**32 - 977)
Q: Final = integer("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141")

BATCH: Final = 1 << 12
"""Quotients that share one inversion."""


class Secp256k1Group(PrimeOrderGroup):
    """The points of secp256k1: y^2 = x^3 + 7 over a prime field of 256 bits.

    Powers are computed by libsecp256k1, sums by GMP. An element is a pair (x, y). The identity is
    (0, 0), which is not on the curve. There is no cofactor: every point of the curve but the
    identity generates the group, so decoding checks only the curve's equation. An encoded element
    is a compressed point of SEC 1, 33 bytes. A label is the coordinate x, which an element shares
    with its inverse.

    Raises:
        ImportError: coincurve is not installed.
    """

    name = "secp256k1"
    order = Q
    element_bytes = 33
    security = 128
    identity = (integer(0), integer(0))

    def __init__(self) -> None:
        slower = "Or use group='modp2048', which needs nothing and is about 50 times slower"
        self._key: Any = need("group secp256k1", "groups", slower).PublicKey
        self.generator = self.generator_powers([1])[0]

    @staticmethod
    def _point(key: Any) -> Point:
        data = key.format(compressed=False)
        x, y = int.from_bytes(data[1:33], "big"), int.from_bytes(data[33:], "big")
        return integer(x), integer(y)

    def generator_powers(self, exponents: Sequence[int]) -> list[Any]:
        from_secret, numbers = self._key.from_secret, [int(exponent % Q) for exponent in exponents]
        return [
            self._point(from_secret(k.to_bytes(32, "big"))) if k else self.identity for k in numbers
        ]

    def powers(self, bases: Sequence[Any], exponents: int | Sequence[int]) -> list[Any]:
        if not isinstance(exponents, Sequence):
            exponents = [exponents] * len(bases)
        key, out = self._key, []
        for (x, y), exponent in zip(bases, exponents, strict=True):
            k = exponent % Q
            if not k or not y:
                out.append(self.identity)
                continue
            point = key(b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big"))
            out.append(self._point(point.multiply(int(k).to_bytes(32, "big"))))
        return out

    def products(self, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        gaps = [(b[0] - a[0]) % P if a[1] and b[1] else 0 for a, b in zip(left, right, strict=True)]
        slopes = inverse_many([gap or 1 for gap in gaps], P)
        out = []
        for a, b, gap, slope in zip(left, right, gaps, slopes, strict=True):
            if gap:
                slope = (b[1] - a[1]) * slope % P
                x = (slope * slope - a[0] - b[0]) % P
                out.append((x, (slope * (a[0] - x) - a[1]) % P))
            else:
                out.append(self._special(a, b))
        return out

    def _special(self, a: Any, b: Any) -> Any:
        """Multiply by the identity, by the same element or by its inverse."""
        if not a[1] or not b[1]:
            return b if not a[1] else a
        if a[1] != b[1]:
            return self.identity
        slope = 3 * a[0] * a[0] * inverse_many([2 * a[1] % P], P)[0] % P
        x = (slope * slope - 2 * a[0]) % P
        return x, (slope * (a[0] - x) - a[1]) % P

    def inverses(self, elements: Sequence[Any]) -> list[Any]:
        return [(x, P - y if y else y) for x, y in elements]

    def encode_many(self, elements: Sequence[Any]) -> Bytes:
        joined = b"".join(
            [
                (b"\x03" if y & 1 else b"\x02" if y else b"\x00") + x.to_bytes(32, "big")
                for x, y in elements
            ]
        )
        return np.frombuffer(joined, dtype=np.uint8).reshape(len(elements), self.element_bytes)

    def decode_many(self, rows: Bytes) -> list[Any | None]:
        data = np.ascontiguousarray(rows).tobytes()
        out: list[Any | None] = []
        for at in range(0, len(data), self.element_bytes):
            try:
                key = self._key(data[at : at + self.element_bytes])
            except ValueError:
                out.append(None)
            else:
                out.append(self._point(key))
        return out

    def labels(self, elements: Sequence[Any]) -> list[bytes]:
        return [x.to_bytes(32, "big") for x, _ in elements]

    def divisors(self, elements: Sequence[Any]) -> Sequence[Any]:
        return elements  # the one inversion of a batch of quotients depends on both sides

    def quotient_labels(self, left: Sequence[Any], right: Sequence[Any]) -> Iterator[list[bytes]]:
        # x of a / b is slope^2 - xa - xb with the slope (ya + yb) / (xa - xb).
        step = max(1, BATCH // (len(left) or 1))
        for start in range(0, len(right), step):
            part = right[start : start + step]
            gaps = [xa - xb if yb else 0 for xb, yb in part for xa, _ in left]
            if 0 in gaps or any(not ya for _, ya in left):
                for b in part:
                    yield self.labels(self.quotients(left, [b] * len(left)))
                continue
            slopes = inverse_many(gaps, P)
            for place, (xb, yb) in enumerate(part):
                row = slopes[place * len(left) : (place + 1) * len(left)]
                roots = [(ya + yb) * slope % P for (_, ya), slope in zip(left, row, strict=True)]
                yield [
                    ((root * root - xa - xb) % P).to_bytes(32, "big")
                    for (xa, _), root in zip(left, roots, strict=True)
                ]

    def table(self, base: Any) -> PowerTable:
        # No table: 43 affine sums with GMP would take as long as the library's multiplication.
        return PowerTable(lambda exponents: self.powers([base] * len(exponents), exponents))

    def hash_to_group(self, data: bytes) -> Any:
        # Every second x has points, so that 256 in a row without one never happen.
        for counter in range(256):
            digest = sha256(b"ccbps point\0" + bytes([counter]) + data).digest()
            sign = sha256(b"ccbps sign\0" + bytes([counter]) + data).digest()[0] & 1
            row = np.frombuffer(bytes([2 + sign]) + digest, dtype=np.uint8).reshape(1, -1)
            point = self.decode_many(row)[0]
            if point is not None:
                return point
        raise ParameterError("no point found")  # cannot happen except with a broken hash


GROUPS: Final = ("secp256k1", *MODULI)
"""Names of all groups."""


def prime_order_group(name: str) -> PrimeOrderGroup:
    """Return the group of a name, always the same object: its table of powers is worth keeping.

    Raises:
        ParameterError: there is no such group.
        ImportError: the group's library is not installed.
    """
    return _group(choice("group", name, GROUPS))


@cache
def _group(name: str) -> PrimeOrderGroup:
    return Secp256k1Group() if name == "secp256k1" else ModpGroup(name)
