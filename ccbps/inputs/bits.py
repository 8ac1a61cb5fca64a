"""An event's bits: the codes of all attributes in schema order, most significant bit first.

Branching programs read them as words, circuits and access trees as Booleans.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ccbps.arrays import Bools, Words
from ccbps.predicates.attributes import Attributes, Events

__all__ = ["WORD", "event_bits", "event_words", "first_bits"]

WORD: Final = 64
"""Bits of a word."""

_SWAPS = [
    (np.uint64(4), np.uint64(0x0F0F0F0F0F0F0F0F)),
    (np.uint64(2), np.uint64(0x3333333333333333)),
    (np.uint64(1), np.uint64(0x5555555555555555)),
]


def first_bits(schema: Attributes) -> dict[str, int]:
    """The number of each attribute's first, most significant, bit."""
    starts, position = {}, 0
    for name in schema:
        starts[name] = position
        position += schema[name].bits
    return starts


def event_words(events: Events) -> Words:
    """The event's input bits, bit i at bit i % 64 of word i // 64: shape (words, count), uint64."""
    out = np.zeros((-(-events.schema.bits // WORD), events.count), dtype=np.uint64)
    for name, position in first_bits(events.schema).items():
        bits, limbs = events.schema[name].bits, events.codes[name]
        # Reversed as one number of 64 * limbs bits, the code starts at bit `skip`.
        reversed_words = [_reverse(limb) for limb in limbs]
        skip = WORD * len(limbs) - bits
        for i in range(-(-bits // WORD)):
            word = reversed_words[i] >> np.uint64(skip)
            if skip and i + 1 < len(reversed_words):
                word |= reversed_words[i + 1] << np.uint64(WORD - skip)
            place, shift = divmod(position + WORD * i, WORD)
            out[place] |= word << np.uint64(shift)
            if shift and place + 1 < len(out):
                out[place + 1] |= word >> np.uint64(WORD - shift)
    return out


def event_bits(events: Events) -> Bools:
    """The event's bits, shape (count, schema.bits), bool."""
    packed = np.ascontiguousarray(event_words(events).T.astype("<u8")).view(np.uint8)
    bits = np.unpackbits(packed, axis=1, count=events.schema.bits, bitorder="little")
    return bits.view(np.bool_)


def _reverse(words: Words) -> Words:
    """Each 64-bit word with its bits in the opposite order."""
    out = words.byteswap()
    for shift, low in _SWAPS:  # neighbouring nibbles, pairs of bits, bits
        out = (out >> shift & low) | ((out & low) << shift)
    return out
