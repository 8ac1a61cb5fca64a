"""BLS12-381 by the libraries of the extra ``pairings``, each of which suffices alone.

=======================  ==========  ================  ============================================
                         pymcl       py-arkworks       both
=======================  ==========  ================  ============================================
power in G1, G2, GT      library     library, GT here  pymcl
product of n pairings    one by one  library           py-arkworks: one last step for all pairs;
                                                       pymcl if they are few
hash to G1 (RFC 9380)    here        library           py-arkworks
threads run meanwhile    no          yes               during products
=======================  ==========  ================  ============================================

"Here" are plain integers: `hash_to_curve` and `target_field`. Bytes are the same in all three.
Powers of the two generators are looked up in tables, which take half the time of other powers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cache, cached_property, reduce
from importlib.util import find_spec
from itertools import accumulate, repeat
from operator import add
from typing import Any, Final, TypeAlias

from ccbps.algebra.pairing import hash_to_curve, target_field
from ccbps.algebra.pairing.groups import (
    BLS12_381_ORDER,
    NO_POINT,
    Pair,
    Pairing,
    Point,
    Target,
    TransparentPairing,
)
from ccbps.algebra.pairing.target_field import FIELD_BYTES, P
from ccbps.checks import choice
from ccbps.errors import DecodeError
from ccbps.loading import need

COMPRESSED: Final = 0x80
INFINITY: Final = 0x40
LARGER: Final = 0x20
"""Bits of the first byte of an encoded point: y is the larger one of y and -y."""
FEW_PAIRS: Final = 3
"""Pairs up to which single pairings of pymcl are faster than one product of py-arkworks."""
SMALL: Final = 1 << 64
"""Bound of exponents whose powers are much faster."""
_HALF: Final = (P - 1) // 2
_DIGITS: Final = 255
"""Digits of an exponent in base 256 that are not 0."""

Powers: TypeAlias = list[list[Point]]
"""For each place of an exponent in base 256, the powers of a generator by its digit less 1."""


class _Curve(Pairing):
    """The parts of the curve that do not depend on a library."""

    name = "bls12-381"
    security = 120
    g1_bytes, g2_bytes, target_bytes = FIELD_BYTES, 2 * FIELD_BYTES, target_field.TARGET_BYTES
    order = BLS12_381_ORDER

    def __reduce__(self) -> tuple[Any, ...]:
        return pairing, (self.name,)  # by the libraries that are installed there

    def power(self, base: Point, exponent: int) -> Point:
        exponent = int(exponent % self.order)
        if not exponent or not (base is self.g1 or base is self.g2):
            if self.order - exponent < SMALL:  # -3 is a shorter number than the order less 3
                return self.inverse(self._power(base, self.order - exponent))
            return self._power(base, exponent)
        digits = exponent.to_bytes(32, "little")
        powers = self._powers_of_g1 if base is self.g1 else self._powers_of_g2
        looked_up = (row[digit - 1] for row, digit in zip(powers, digits, strict=True) if digit)
        return reduce(add, looked_up)

    @abstractmethod
    def _power(self, base: Point, exponent: int) -> Point:
        """Raise an element of G1 or G2 to a number below the order."""

    @cached_property
    def _powers_of_g1(self) -> Powers:
        return self._powers(self.g1)

    @cached_property
    def _powers_of_g2(self) -> Powers:
        return self._powers(self.g2)

    def _powers(self, base: Point) -> Powers:
        rows = []
        for _ in range(32):
            rows.append(list(accumulate(repeat(base, _DIGITS), add)))
            base = self.multiply(rows[-1][-1], base)
        return rows

    _g1: Any
    _g2: Any

    def multiply(self, left: Point, right: Point) -> Point:
        return left + right

    def inverse(self, point: Point) -> Point:
        return -point

    def decode_g1(self, data: bytes) -> Point:
        return self._decode(data, self._g1, self.g1_bytes)

    def decode_g2(self, data: bytes) -> Point:
        return self._decode(data, self._g2, self.g2_bytes)

    def _decode(self, data: bytes, kind: Any, size: int) -> Point:
        if len(data) != size or data[0] & (COMPRESSED | INFINITY) != COMPRESSED:
            raise DecodeError(NO_POINT)
        return self._point(data, kind)

    @abstractmethod
    def _point(self, data: bytes, kind: Any) -> Point:
        """Read a point of this class of the library from bytes of the right length and form."""


class MclCurve(_Curve):
    """BLS12-381 by pymcl."""

    library = "pymcl"

    def __init__(self) -> None:
        super().__init__()
        import pymcl  # here and below: where it is needed

        self._number, self._map = pymcl.Fr, pymcl.pairing
        self._g1, self._g2, self._target = pymcl.G1, pymcl.G2, pymcl.GT
        self.g1, self.g2 = pymcl.g1, pymcl.g2
        self._one = pymcl.pairing(pymcl.g1 * pymcl.Fr("0"), pymcl.g2)

    def _power(self, base: Point, exponent: int) -> Point:
        return base * self._number(str(exponent))

    def encode(self, point: Point) -> bytes:
        x, y = self._coordinates(point)
        data = b"".join(part.to_bytes(FIELD_BYTES) for part in reversed(x))
        return bytes([data[0] | COMPRESSED | (LARGER if _is_larger(y) else 0)]) + data[1:]

    def _point(self, data: bytes, kind: Any) -> Point:
        x = bytes([data[0] & LARGER - 1]) + data[1:]
        try:
            point = kind.deserialize(x[::-1])  # it checks the curve and the order
        except ValueError:
            raise DecodeError(NO_POINT) from None
        if point.is_zero():
            raise DecodeError(NO_POINT)
        larger = bool(data[0] & LARGER)
        return point if _is_larger(self._coordinates(point)[1]) == larger else -point

    def _coordinates(self, point: Point) -> tuple[list[int], list[int]]:
        """Return x and y, each as one number of the field or two."""
        numbers = [int(word) for word in str(point).split()[1:]]
        if not numbers:
            raise DecodeError("the identity has no coordinates")
        return numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]

    def _hash_to_g1(self, message: bytes, domain: bytes) -> Point:
        x, y = hash_to_curve.hash_to_curve(message, domain)
        sign = LARGER if _is_larger([y]) else 0
        data = int(x).to_bytes(FIELD_BYTES)
        return self.decode_g1(bytes([data[0] | COMPRESSED | sign]) + data[1:])

    def product(self, pairs: Sequence[Pair]) -> Target:
        out = self._one
        for left, right in pairs:
            out *= self._map(left, right)
        return out

    def target_power(self, base: Target, exponent: int) -> Target:
        return base ** self._number(str(exponent % self.order))

    def encode_target(self, target: Target) -> bytes:
        return bytes(target.serialize())

    def decode_target(self, data: bytes) -> Target:
        try:
            return self._target.deserialize(data)
        except ValueError:
            raise DecodeError(NO_POINT) from None


class ArkworksCurve(_Curve):
    """BLS12-381 by py-arkworks-bls12381."""

    library = "py-arkworks-bls12381"
    parallel = True

    def __init__(self) -> None:
        super().__init__()
        import py_arkworks_bls12381 as arkworks

        self._number, self._map = arkworks.Scalar.from_be_bytes, arkworks.GT
        self._g1, self._g2 = arkworks.G1Point, arkworks.G2Point
        self.g1, self.g2 = arkworks.G1Point(), arkworks.G2Point()

    def _power(self, base: Point, exponent: int) -> Point:
        return base * self._number(exponent.to_bytes(32))

    def encode(self, point: Point) -> bytes:
        return bytes(point.to_compressed_bytes())

    def _point(self, data: bytes, kind: Any) -> Point:
        try:
            return kind.from_compressed_bytes(data)
        except ValueError:
            raise DecodeError(NO_POINT) from None

    def _hash_to_g1(self, message: bytes, domain: bytes) -> Point:
        return self._g1.hash_to_curve(message, domain)

    def product(self, pairs: Sequence[Pair]) -> Target:
        value = self._map.multi_pairing([left for left, _ in pairs], [right for _, right in pairs])
        return target_field.decode(bytes.fromhex(str(value)))

    def cancels(self, pairs: Sequence[Pair]) -> bool:
        lefts, rights = [left for left, _ in pairs], [right for _, right in pairs]
        return bool(self._map.pairing_check(lefts, rights))

    def target_power(self, base: Target, exponent: int) -> Target:
        return target_field.power(base, exponent % self.order)

    def encode_target(self, target: Target) -> bytes:
        return target_field.encode(target)

    def decode_target(self, data: bytes) -> Target:
        value = target_field.decode(data)
        if value is None:
            raise DecodeError(NO_POINT)
        return value


class BothCurve(MclCurve):
    """Powers by pymcl; products of pairings and hashes by py-arkworks-bls12381."""

    library = "pymcl and py-arkworks-bls12381"
    parallel = True

    def __init__(self) -> None:
        super().__init__()
        self._other = ArkworksCurve()
        self._g1_of = self._other._g1.from_xy_bytes_unchecked_be
        self._g2_of = self._other._g2.from_xy_bytes_unchecked_be

    def _hash_to_g1(self, message: bytes, domain: bytes) -> Point:
        return self.decode_g1(self._other.encode(self._other._hash_to_g1(message, domain)))

    def product(self, pairs: Sequence[Pair]) -> Target:
        if len(pairs) <= FEW_PAIRS:
            return super().product(pairs)
        lefts, rights = self._moved(pairs)
        value = self._other._map.multi_pairing(lefts, rights)
        return self._target.deserialize(bytes.fromhex(str(value)))

    def cancels(self, pairs: Sequence[Pair]) -> bool:
        lefts, rights = self._moved(pairs)
        return bool(self._other._map.pairing_check(lefts, rights))

    def _moved(self, pairs: Sequence[Pair]) -> tuple[list[Any], list[Any]]:
        """Return the points of pairs as the other library has them. Their group is known."""
        lefts, rights = [], []
        for left, right in pairs:
            if left.is_zero() or right.is_zero():
                continue
            x, y = str(left).split()[1:]
            lefts.append(self._g1_of(b"".join(int(n).to_bytes(FIELD_BYTES) for n in (x, y))))
            words = str(right).split()[1:]
            rights.append(self._g2_of(b"".join(int(n).to_bytes(FIELD_BYTES) for n in words)))
        return lefts, rights


def _is_larger(y: Sequence[int]) -> bool:
    """Return whether y is larger than -y; of two parts, the part of u decides unless it is 0."""
    deciding = next((part for part in reversed(y) if part), 0)
    return deciding > _HALF


@cache
def curve() -> Pairing:
    """Return BLS12-381 by all libraries that are installed.

    Raises:
        ImportError: none is installed.
    """
    installed = [name for name in ("pymcl", "py_arkworks_bls12381") if find_spec(name)]
    if not installed:
        need("a pairing", "pairings")
    if len(installed) == 2:
        return BothCurve()
    return MclCurve() if installed == ["pymcl"] else ArkworksCurve()


PAIRINGS: Final = {"bls12-381": curve, "transparent": cache(TransparentPairing)}


def pairing(name: str = "bls12-381") -> Pairing:
    """Return a pairing by its name.

    Raises:
        ParameterError: there is no such pairing.
        ImportError: neither library is installed: ``pip install 'ccbps[pairings]'``.
    """
    return PAIRINGS[choice("pairing", name, PAIRINGS)]()
