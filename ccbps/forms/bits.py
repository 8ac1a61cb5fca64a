"""An event's bits: the codes of all attributes in schema order, most significant bit first.

Branching programs read them as words, circuits and access trees as Booleans.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Words, slices
from ccbps.predicates.attributes import Events
from ccbps.predicates.codes import unpack

WORD: Final = 64
"""Bits of a word."""
LITTLE: Final = np.dtype("<u8")
"""Words of 64 bits, the lowest byte first."""
BLOCK: Final = 1 << 13
"""Events whose words are made at a time, so that they stay in the cache."""

_SWAPS = [
    (np.uint64(4), np.uint64(0x0F0F0F0F0F0F0F0F)),
    (np.uint64(2), np.uint64(0x3333333333333333)),
    (np.uint64(1), np.uint64(0x5555555555555555)),
]


_REVERSED: Final = bytes(int(f"{octet:08b}"[::-1], 2) for octet in range(256))
"""Each byte with its bits in the opposite order."""


def reversed_bits(value: int, bits: int) -> int:
    """Return a number whose lowest bit is the most significant one of `value`, and so on."""
    return int.from_bytes(_reversed_octets(value, bits), "little")


def _reversed_octets(value: int, bits: int) -> bytes:
    octets = -(-bits // 8)
    return (value << 8 * octets - bits).to_bytes(octets, "big").translate(_REVERSED)


def event_words(events: Events) -> Words:
    """Return the input bits, bit i at bit i % 64 of word i // 64: shape (words, count), uint64."""
    widths, bits = events.schema.widths, events.schema.bits
    words = -(-bits // WORD)
    if events.count == 1:  # Python's numbers take less time than a call of NumPy for each step.
        value = 0
        for name, width in widths.items():
            value = value << width | unpack(events.codes[name])[0]
        octets = _reversed_octets(value, bits).ljust(8 * words, b"\0")
        return np.frombuffer(octets, LITTLE).reshape(words, 1)
    out = np.zeros((words, events.count), dtype=np.uint64)
    for at in slices(events.count, BLOCK):
        # First the most significant bit on top of each word, then all words turned round.
        for name, position in events.schema.first_bits.items():
            last = position + widths[name] - 1
            for limb in events.codes[name][::-1, at]:
                if last < position:
                    break  # a limb that no code uses
                place, above = divmod(last, WORD)
                shift = WORD - 1 - above
                out[place, at] |= limb << np.uint64(shift)
                if shift and position < WORD * place:
                    out[place - 1, at] |= limb >> np.uint64(WORD - shift)
                last -= WORD
        for word in out:
            word[at] = _reverse(word[at])
    return out


def code_bits(events: Events) -> Bytes:
    """Return the bits of a word of zeros and of all limbs of all codes, most significant bit first.

    Shape (count, 64 * (1 + limbs)), uint8: 0 and 1. Faster than `event_bits` for a few events; most
    of the bits belong to no code.
    """
    zeros = np.zeros((1, events.count), dtype=np.uint64)
    limbs = np.concatenate([zeros, *(events.codes[name] for name in events.schema)])
    return np.unpackbits(limbs.T.astype(">u8", order="C").view(np.uint8), axis=1)


def event_bits(events: Events) -> Bools:
    """Return the event's bits, shape (count, schema.bits), bool."""
    out = np.empty((events.count, events.schema.bits), dtype=np.uint8)
    position = 0
    for name, bits in events.schema.widths.items():
        limbs = events.codes[name]
        octets = np.ascontiguousarray(limbs.T.astype(">u8")).view(np.uint8)
        # Whole bytes, of which the first may have bits that no code has.
        used = octets[:, octets.shape[1] - -(-bits // 8) :]
        unpacked = np.unpackbits(used, axis=1)
        out[:, position : position + bits] = unpacked[:, -bits:]
        position += bits
    return out.view(np.bool_)


def _reverse(words: Words) -> Words:
    """Reverse the bits of each 64-bit word."""
    out = words.byteswap()
    for shift, low in _SWAPS:  # neighbouring nibbles, pairs of bits, bits
        out = (out >> shift & low) | ((out & low) << shift)
    return out
