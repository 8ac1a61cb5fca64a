"""Bodies of PrefixMatch's messages, and keys that order what is in them.

A ciphertext of k bits is written big-endian and left-aligned in ceil(k/8) bytes. A prefix is a
*slot*: such a ciphertext, zero after the prefix, and a byte for the length. A body has one
attribute after the other: in an event their ciphertexts, in an interest all their slots, unused
ones last.

Not protected: nothing here encrypts; `ccbps.matching.broken.prefix` says what the bytes give away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Index
from ccbps.predicates.codes import CodeArray

Keys = NDArray[Any]
"""What orders values and prefixes: uint64, or bytes where a value takes more than 7."""

UNUSED: Final = 0xFF
"""Length of a slot that holds no prefix."""


@dataclass(frozen=True, slots=True)
class Field:
    """Where an attribute is in the bodies.

    Attributes:
        name: of the attribute.
        bits: of the attribute.
        width: bytes of a ciphertext.
        slots: prefixes an interest has room for.
        event_at: first byte in the body of an event.
        interest_at: first byte in the body of an interest.
    """

    name: str
    bits: int
    width: int
    slots: int
    event_at: int
    interest_at: int

    def values_of(self, bodies: Bytes) -> Bytes:
        """Ciphertexts of event bodies, shape (rows, width)."""
        return bodies[:, self.event_at : self.event_at + self.width]

    def slots_of(self, bodies: Bytes) -> Bytes:
        """Slots of interest bodies, ciphertext then length, shape (rows, slots, width + 1)."""
        size = self.slots * (self.width + 1)
        chosen = bodies[:, self.interest_at : self.interest_at + size]
        return chosen.reshape(len(bodies), self.slots, self.width + 1)

    def body_of(self, ciphertexts: Bytes, lengths: Bytes, rows: Index, count: int) -> Bytes:
        """This attribute's part of interest bodies, shape (count, bytes).

        Args:
            ciphertexts: of the codes that prefixes are taken of, shape (prefixes, width).
            lengths: of the prefixes.
            rows: which interest each belongs to, ascending.
            count: of interests.
        """
        slots = np.empty((len(rows), self.width + 1), dtype=np.uint8)
        slots[:, :-1] = ciphertexts & mask(lengths, self.width)
        slots[:, -1] = lengths
        # In the order of ciphertexts: that of the codes would show which bits are flipped.
        order = np.lexsort((keys_of(slots), rows))
        starts = np.searchsorted(rows, np.arange(count))
        body = np.zeros((count, self.slots, self.width + 1), dtype=np.uint8)
        body[:, :, -1] = UNUSED
        body[rows, np.arange(len(rows)) - starts[rows]] = slots[order]
        return body.reshape(count, self.slots * (self.width + 1))

    def strays(self, bodies: Bytes) -> Bools:
        """Which event bodies have bits after this attribute's ciphertext."""
        spare = 8 * self.width - self.bits
        return np.asarray(self.values_of(bodies)[:, -1] & ((1 << spare) - 1), dtype=np.bool_)

    def malformed(self, bodies: Bytes) -> Bools:
        """Which interest bodies have slots of this attribute that nobody encodes."""
        slots = self.slots_of(bodies)
        lengths = slots[:, :, -1]
        used = lengths != UNUSED
        wrong = (used & (lengths > self.bits)).any(axis=1)
        wrong |= (used[:, 1:] & ~used[:, :-1]).any(axis=1)
        inside = mask(np.where(used, lengths, 0).reshape(-1), self.width)
        beyond = slots[:, :, :-1] & ~inside.reshape(slots[:, :, :-1].shape)
        wrong |= beyond.any(axis=(1, 2))
        # Ascending, and no prefix within another.
        firsts, lasts = ends(slots.reshape(-1, slots.shape[2]))
        after = firsts.reshape(lengths.shape)[:, 1:] > lasts.reshape(lengths.shape)[:, :-1]
        return np.asarray(wrong | (used[:, 1:] & ~after).any(axis=1), dtype=np.bool_)


def wire(codes: CodeArray, bits: int) -> Bytes:
    """Codes as big-endian bytes, left-aligned; shape (rows, width)."""
    width = -(-bits // 8)
    whole = np.ascontiguousarray(codes.T.astype(">u8")).view(np.uint8)
    whole = whole.reshape(codes.shape[1], 8 * codes.shape[0])[:, 8 * codes.shape[0] - width :]
    spare = 8 * width - bits
    if not spare:
        return whole
    out = whole << np.uint8(spare)
    out[:, :-1] |= whole[:, 1:] >> np.uint8(8 - spare)
    return out


def mask(lengths: Bytes, width: int) -> Bytes:
    """Ones in the first `length` bits of each row; shape (rows, width)."""
    left = lengths.astype(np.int32)[:, None] - 8 * np.arange(width, dtype=np.int32)
    return (0xFF00 >> left.clip(0, 8) & 0xFF).astype(np.uint8)


def keys_of(slots: Bytes) -> Keys:
    """Keys of rows of value and length: values in order, and of one value, shorter lengths first.

    The key of a whole value is greater than that of any prefix it starts with, and not greater than
    such a prefix's last key (`ends`).
    """
    width = slots.shape[1] - 1
    if width > 7:
        return np.ascontiguousarray(slots).view(f"S{width + 1}")[:, 0]
    wide = np.zeros((len(slots), 8), dtype=np.uint8)
    wide[:, :width] = slots[:, :-1]
    wide[:, 7] = slots[:, -1]
    return wide.view(">u8")[:, 0].astype(np.uint64)


def ends(slots: Bytes) -> tuple[Keys, Keys]:
    """First and last key of each prefix."""
    last = slots.copy()
    last[:, :-1] |= ~mask(slots[:, -1], slots.shape[1] - 1)
    last[:, -1] = UNUSED
    return keys_of(slots), keys_of(last)


def event_keys(field: Field, bodies: Bytes) -> Keys:
    """Keys of an attribute's ciphertexts in event bodies, shape (rows,)."""
    points = np.empty((len(bodies), field.width + 1), dtype=np.uint8)
    points[:, :-1] = field.values_of(bodies)
    points[:, -1] = field.bits
    return keys_of(points)
