"""Fields of 2^n elements, GF(2)[x] / (x^n + x^a + ... + 1), for n < 8 or whole bytes: many at once.

Elements are *limbs*: uint64 of shape (limbs, count), lowest limb first. A sum is an XOR.

A product of two 32-bit numbers without carries comes from products of integers. Every fourth bit of
each factor is kept: a column sums up at most eight ones, and the three bits above it hold the
carries. Sixteen such products give all columns. Longer factors are cut into halves (Karatsuba). No
look-up and no branch depends on an element.

Sources: Karatsuba and Ofman 1962; T. Pornin, BearSSL (multiplication with holes); the polynomials
were found by Rabin's test of irreducibility, and tests repeat it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ccbps.arrays import Bytes, Words
from ccbps.checks import whole
from ccbps.errors import ParameterError

LIMB: Final = 64
MOST_BITS: Final = 1024
"""Largest number of bits of an element."""
# Exponents between n and 0 of each polynomial. These are the first irreducible ones in the order of
# a, then b, then c; no trinomial is where n is a multiple of 8.
_SHORT: Final = ((), (1,), (1,), (1,), (2,), (1,), (1,))
"""Those of 1 to 7 bits."""
_WHOLE: Final = (
    (4, 3, 1),
    (5, 3, 1),
    (4, 3, 1),
    (7, 3, 2),
    (5, 4, 3),
    (5, 3, 2),
    (7, 4, 2),
    (4, 3, 1),
    (10, 9, 3),
    (9, 4, 2),
    (7, 6, 2),
    (10, 9, 6),
    (4, 3, 1),
    (5, 4, 3),
    (4, 3, 1),
    (7, 2, 1),
    (5, 3, 2),
    (7, 4, 2),
    (6, 3, 2),
    (5, 3, 2),
    (15, 3, 2),
    (11, 3, 2),
    (9, 8, 7),
    (7, 2, 1),
    (5, 3, 2),
    (9, 3, 1),
    (7, 3, 1),
    (9, 8, 3),
    (9, 4, 2),
    (8, 5, 3),
    (15, 14, 10),
    (10, 5, 2),
    (9, 6, 2),
    (9, 3, 2),
    (9, 5, 2),
    (11, 10, 1),
    (7, 3, 2),
    (11, 2, 1),
    (9, 7, 4),
    (4, 3, 1),
    (8, 3, 1),
    (7, 4, 1),
    (7, 2, 1),
    (13, 11, 6),
    (5, 3, 2),
    (7, 3, 2),
    (8, 7, 5),
    (12, 3, 2),
    (13, 10, 6),
    (5, 3, 2),
    (5, 3, 2),
    (9, 5, 2),
    (9, 7, 2),
    (13, 4, 3),
    (4, 3, 1),
    (11, 6, 4),
    (18, 9, 6),
    (19, 18, 13),
    (11, 3, 2),
    (15, 9, 6),
    (4, 3, 1),
    (16, 5, 2),
    (15, 14, 6),
    (8, 5, 2),
    (15, 11, 2),
    (11, 6, 2),
    (7, 5, 3),
    (8, 3, 1),
    (19, 16, 9),
    (11, 9, 6),
    (15, 7, 6),
    (13, 4, 3),
    (14, 13, 3),
    (13, 6, 3),
    (9, 5, 2),
    (19, 13, 6),
    (19, 10, 3),
    (11, 6, 5),
    (9, 2, 1),
    (14, 3, 2),
    (13, 3, 1),
    (7, 5, 4),
    (11, 9, 8),
    (11, 6, 5),
    (23, 16, 9),
    (19, 14, 6),
    (23, 10, 2),
    (8, 3, 2),
    (5, 4, 3),
    (9, 6, 4),
    (4, 3, 2),
    (13, 8, 6),
    (13, 11, 1),
    (13, 10, 3),
    (11, 6, 5),
    (19, 17, 4),
    (15, 14, 7),
    (13, 9, 6),
    (9, 7, 3),
    (9, 7, 1),
    (14, 3, 2),
    (11, 8, 2),
    (11, 6, 4),
    (13, 5, 2),
    (11, 5, 1),
    (11, 4, 1),
    (19, 10, 3),
    (21, 10, 6),
    (13, 3, 1),
    (15, 7, 5),
    (19, 18, 10),
    (7, 5, 3),
    (12, 7, 2),
    (7, 5, 1),
    (14, 9, 6),
    (10, 3, 2),
    (15, 13, 12),
    (12, 11, 9),
    (16, 9, 7),
    (12, 9, 3),
    (9, 5, 2),
    (17, 10, 6),
    (24, 9, 3),
    (17, 15, 13),
    (5, 4, 3),
    (19, 17, 8),
    (15, 6, 3),
    (19, 6, 1),
)
"""Those of 1 to 128 bytes."""
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)
_EVERY_FOURTH: Final = tuple(np.uint64(0x1111111111111111 << place) for place in range(4))


class BinaryField:
    """The field of 2^bits elements.

    Example:
        >>> import numpy as np
        >>> field = BinaryField(8)                                   # the field of AES
        >>> x, y = np.array([[0x57]], dtype=np.uint64), np.array([[0x83]], dtype=np.uint64)
        >>> hex(field.multiply(x, y)[0, 0])
        '0xc1'

    Args:
        bits: number of bits of an element: less than 8, or a multiple of 8 up to 1,024.

    Attributes:
        bits: number of bits of an element.
        element_bytes: number of bytes of an element, whose highest bits may be unused.
        limbs: number of 64-bit limbs of an element.
        exponents: exponents of the polynomial between `bits` and 0, highest first.
    """

    def __init__(self, bits: int) -> None:
        self.bits = whole("bits", bits, 1, MOST_BITS)
        if bits > 8 and bits % 8:
            raise ParameterError(f"bits must be less than 8 or a multiple of 8, got {bits}")
        self.element_bytes, self.limbs = -(-bits // 8), -(-bits // LIMB)
        self.exponents: tuple[int, ...] = _SHORT[bits - 1] if bits < 8 else _WHOLE[bits // 8 - 1]

    def load(self, elements: Bytes) -> Words:
        """Return the limbs of elements of bytes, little-endian, shape (count, element_bytes).

        Unused bits are ignored.
        """
        room = np.zeros((len(elements), 8 * self.limbs), dtype=np.uint8)
        room[:, : self.element_bytes] = elements
        if self.bits < 8:
            room &= np.uint8((1 << self.bits) - 1)
        return np.ascontiguousarray(room.view("<u8").astype(np.uint64, copy=False).T)

    def store(self, elements: Words) -> Bytes:
        """Return the bytes of elements, shape (count, element_bytes)."""
        octets = np.ascontiguousarray(elements.T.astype("<u8", copy=False)).view(np.uint8)
        return octets[:, : self.element_bytes]

    def multiply(self, left: Words, right: Words) -> Words:
        """Multiply elements, each of shape (limbs, count)."""
        if self.bits <= LIMB // 2:
            short = np.zeros((2, left.shape[1]), dtype=np.uint64)
            short[0] = _of_halves(left[0], right[0])
            return self._reduced(short)
        return self._reduced(_product(left, right))

    @property
    def integer_products(self) -> int:
        """Number of 64-bit integer multiplications in one product of elements."""
        return 16 if self.bits <= LIMB // 2 else 48 * _products(self.limbs)

    def _reduced(self, product: Words) -> Words:
        """Reduce a product of 2 * limbs limbs."""
        # x^bits = x^a + x^b + x^c + 1. What is above is shorter the second time: a is small.
        for _ in range(2):
            above = _shifted_down(product, self.bits, self.limbs)
            product[self.limbs :] = 0
            if top := self.bits % LIMB:
                product[self.limbs - 1] &= np.uint64((1 << top) - 1)
            for exponent in (*self.exponents, 0):
                _add_shifted_up(product, above, exponent)
        return product[: self.limbs]


def _product(left: Words, right: Words) -> Words:
    """Multiply polynomials over GF(2) of equally many limbs; the product has twice as many."""
    limbs, count = left.shape
    if limbs == 1:
        return _of_limbs(left[0], right[0])
    half = limbs // 2
    out = np.zeros((2 * limbs, count), dtype=np.uint64)
    low, high = _product(left[:half], right[:half]), _product(left[half:], right[half:])
    sums = [side[half:].copy() for side in (left, right)]
    for total, side in zip(sums, (left, right), strict=True):
        total[:half] ^= side[:half]
    middle = _product(*sums)
    middle[: 2 * half] ^= low
    middle ^= high
    out[: 2 * half] = low
    out[2 * half :] = high
    out[half : half + len(middle)] ^= middle[: 2 * limbs - half]
    return out


def _of_limbs(left: Words, right: Words) -> Words:
    """Multiply polynomials of 64 bits, shape (count,), to products of shape (2, count)."""
    low, high = _of_halves(left & _LOW, right & _LOW), _of_halves(left >> _HALF, right >> _HALF)
    middle = _of_halves((left ^ left >> _HALF) & _LOW, (right ^ right >> _HALF) & _LOW)
    middle ^= low
    middle ^= high
    return np.stack([low ^ middle << _HALF, high ^ middle >> _HALF])


def _of_halves(left: Words, right: Words) -> Words:
    """Multiply polynomials of 32 bits, shape (count,)."""
    lefts, rights = [left & mask for mask in _EVERY_FOURTH], [right & m for m in _EVERY_FOURTH]
    out, part = np.zeros_like(left), np.empty_like(left)
    for column, mask in enumerate(_EVERY_FOURTH):
        total = np.multiply(lefts[0], rights[column])
        for place in range(1, 4):
            total ^= np.multiply(lefts[place], rights[(column - place) % 4], out=part)
        total &= mask
        out |= total
    return out


def _products(limbs: int) -> int:
    """Return the number of products of limbs in a product of so many limbs."""
    if limbs == 1:
        return 1
    half = limbs // 2
    return _products(half) + 2 * _products(limbs - half)


def _shifted_down(words: Words, bits: int, limbs: int) -> Words:
    """Return so many limbs of words from a bit on."""
    first, shift = divmod(bits, LIMB)
    out = np.zeros((limbs, words.shape[1]), dtype=np.uint64)
    part = words[first : first + limbs]
    np.right_shift(part, np.uint64(shift), out=out[: len(part)])
    if shift:
        above = words[first + 1 : first + 1 + limbs]
        out[: len(above)] |= above << np.uint64(LIMB - shift)
    return out


def _add_shifted_up(words: Words, more: Words, bits: int) -> None:
    """Add some limbs, shifted up by less than a limb, to words, which are longer."""
    words[: len(more)] ^= more << np.uint64(bits)
    if bits:
        words[1 : 1 + len(more)] ^= more >> np.uint64(LIMB - bits)
