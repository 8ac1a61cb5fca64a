"""Comparisons with private constants as chains of affine maps, and their private bits.

One chain of 2 k private bits is any of: x < c for c in 0 .. 2^k, "the first l bits of x are those
of v" for l in 0 .. k, and false; which one, only its bits tell. The bits of a chain, from its first
one on: the k - 1 first bits of c or v, inverted; the k - 1 first addends; the last map's slope and
offset. Both blocks have the most significant bit first.
"""

from __future__ import annotations

from ccbps.programs import event_bit, interest_bit
from ccbps.programs.formula import Chain


def chain_bits(bits: int) -> int:
    """Private bits of a chain over so many event bits."""
    return 2 * bits


def chain(first_event: int, bits: int, first_private: int) -> Chain:
    """The chain over event bits ``first_event ...``, with private bits ``first_private ...``."""
    maps = tuple(
        (
            event_bit(first_event + i) ^ interest_bit(first_private + i),
            interest_bit(first_private + bits - 1 + i),
        )
        for i in range(bits - 1)
    )
    last = first_private + 2 * bits - 2
    return Chain(
        maps, event_bit(first_event + bits - 1), interest_bit(last), interest_bit(last + 1)
    )


def below_bits(bits: int, bound: int) -> int:
    """Private bits of x < bound, 0 <= bound <= 2^bits, as a number with the first bit lowest."""
    if bound >> bits:
        # Always true: the first addend is 1, and all others are 0.
        return 1 << (bits - 1 if bits > 1 else 1)
    return _bits(bits, bound, bound ^ bound >> 1, bool(bound & 1))


def prefix_bits(bits: int, value: int, length: int) -> int:
    """Private bits of "the first `length` bits are those of `value`"; `length` = `bits`: equal."""
    addends = 0 if length == bits else 1 << (bits - 1 - length)
    return _bits(bits, value, addends, length == bits)


def reversed_bits(value: int, bits: int) -> int:
    """A number's bits, the most significant one first, as private bits."""
    return int(f"{value:0{bits}b}"[::-1], 2)


def _bits(bits: int, value: int, addends: int, slope: bool) -> int:
    """A chain's bits from a number, k addends (the most significant first) and the last slope."""
    last = not value & 1 and slope
    offset = bool(addends & 1) ^ last
    different = (~value & (1 << bits) - 1) >> 1
    in_order = (different << (bits - 1) | addends >> 1) << 2 | slope << 1 | offset
    return reversed_bits(in_order, 2 * bits)
