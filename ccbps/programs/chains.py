"""Comparisons with private constants as chains of affine maps, and their private bits.

One chain of 2 k private bits is any of: x < c for c in 0 .. 2^k, "the first l bits of x are those
of v" for l in 0 .. k, and false; which one, only its bits tell. The bits of a chain, from its first
one on: the k - 1 first bits of c or v, inverted; the k - 1 first addends; the last map's slope and
offset. Both blocks have the most significant bit first.
"""

from __future__ import annotations

from ccbps.programs.branching import ONE, Label, event_bit, interest_bit
from ccbps.programs.formula import And, Chain, Formula, total


def chain_bits(bits: int) -> int:
    """Count the private bits of a chain over so many event bits."""
    return 2 * bits


def chain(first_event: int, bits: int, first_private: int) -> Chain:
    """Write the chain over event bits and private bits from those of the given numbers on."""
    factors = differences(first_event, bits - 1, first_private)
    maps = tuple(
        (factor, interest_bit(first_private + bits - 1 + i)) for i, factor in enumerate(factors)
    )
    last = first_private + 2 * bits - 2
    return Chain(
        maps, event_bit(first_event + bits - 1), interest_bit(last), interest_bit(last + 1)
    )


def interval(first_event: int, bits: int, first_private: int) -> Formula:
    """Write the sum of two chains over the same event bits, the second one's private bits last."""
    firsts = (first_private, first_private + chain_bits(bits))
    return total([chain(first_event, bits, first) for first in firsts])


def differences(first_event: int, bits: int, first_private: int) -> list[Label]:
    """Return, for each event bit, its sum with a private bit: whether the two differ."""
    return [event_bit(first_event + i) ^ interest_bit(first_private + i) for i in range(bits)]


def equalities(first_event: int, bits: int, first_private: int) -> list[Label]:
    """Return, for each event bit, whether it equals a private bit."""
    return [label ^ ONE for label in differences(first_event, bits, first_private)]


def parity(bits: int, first_private: int) -> Formula:
    """Write the sum of the event bits 0, 1, ... whose private bit is 1."""
    return total([And(event_bit(i), interest_bit(first_private + i)) for i in range(bits)])


def below_bits(bits: int, bound: int) -> int:
    """Return the private bits of x < bound, 0 <= bound <= 2^bits, the first bit lowest."""
    if bound >> bits:
        # Always true: the first addend is 1, and all others are 0.
        return 1 << (bits - 1 if bits > 1 else 1)
    return _bits(bits, bound, bound ^ bound >> 1, bool(bound & 1))


def prefix_bits(bits: int, value: int, length: int) -> int:
    """Return the private bits of "the first `length` bits are those of `value`"."""
    addends = 0 if length == bits else 1 << (bits - 1 - length)
    return _bits(bits, value, addends, length == bits)


def reversed_bits(value: int, bits: int) -> int:
    """Return a number's bits, the most significant one first, as private bits."""
    return int(f"{value:0{bits}b}"[::-1], 2)


def _bits(bits: int, value: int, addends: int, slope: bool) -> int:
    """Return a chain's bits for a number, k addends (first one highest) and the last slope."""
    last = not value & 1 and slope
    offset = bool(addends & 1) ^ last
    different = (~value & (1 << bits) - 1) >> 1
    in_order = (different << (bits - 1) | addends >> 1) << 2 | slope << 1 | offset
    return reversed_bits(in_order, 2 * bits)
