"""secp256k1: y^2 = x^3 + 7 over a prime field of 256 bits; powers by libsecp256k1, sums by GMP.

An element is a pair (x, y). The identity is (0, 0), which is not on the curve. There is no
cofactor: every point of the curve but the identity generates the group, so decoding checks only the
curve's equation. An encoded element is a compressed point of SEC 1, 33 bytes. A label is the
coordinate x, which an element shares with its inverse.

The libraries on PyPI compare as follows, measured on one machine in one run (microseconds):

=======================  ========  =========  ============  ================
library                  g^k       a^k        product       decode and check
=======================  ========  =========  ============  ================
coincurve 21             20        33         4.1           5.4
PyNaCl 1.6, Ed25519      15        68         13.4          33
rbcl 1.1, Ristretto255   13        38         12.7          4.3
=======================  ========  =========  ============  ================

Ed25519 has a cofactor of 8. Both of the others decode and encode around every product, the
operation of a broker on every pair. GMP multiplies coordinates still faster: a product in a batch
takes about 1 microsecond, as a batch shares one inversion.

Hazard: not constant time except for powers of the generator. coincurve is an optional dependency
because it has no wheels for every Python this package runs on.
Source: SEC 2 for the constants; simultaneous inversion [M87].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from typing import Any, Final

import numpy as np

from ccbps.algebra.modular import integer, inverse_many
from ccbps.algebra.prime_order import PowerTable, PrimeOrderGroup
from ccbps.arrays import Bytes
from ccbps.errors import ParameterError

Point = tuple[Any, Any]

P: Final = integer(2**256 - 2**32 - 977)
Q: Final = integer("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141")

BATCH: Final = 1 << 12
"""Quotients that share one inversion."""


class Secp256k1Group(PrimeOrderGroup):
    """The points of secp256k1.

    Raises:
        ParameterError: coincurve is not installed.
    """

    name = "secp256k1"
    order = Q
    element_bytes = 33
    security = 128
    identity = (integer(0), integer(0))

    def __init__(self) -> None:
        try:
            from coincurve import PublicKey
        except ImportError:
            raise ParameterError(
                "group secp256k1 needs coincurve: pip install 'ccbps[groups]'; "
                "or use group='modp2048', which needs nothing and is about 50 times slower"
            ) from None
        self._key: Any = PublicKey
        self.generator = self.generator_powers([1])[0]

    def __reduce__(self) -> tuple[Callable[[], Secp256k1Group], tuple[()]]:
        return secp256k1_group, ()

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


@cache
def secp256k1_group() -> Secp256k1Group:
    """Return the group, always the same object.

    Raises:
        ParameterError: coincurve is not installed.
    """
    return Secp256k1Group()
