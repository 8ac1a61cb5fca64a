"""Blinded encodings whose blinders the test chooses, and their messages as sequences of ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra import Group
from ccbps.encodings.group import TRAILER_BYTES, GroupEncoding, Segment

__all__ = ["PlantedEncoding", "encoded", "laid_out", "positions", "view"]

Bytes = NDArray[np.uint8]
Ranks = NDArray[np.uint8]
Bools = NDArray[np.bool_]


class PlantedEncoding(GroupEncoding):
    """Takes R1, R2, ... from `planted`, shape (batch, 2 * positions), not from random bytes."""

    planted: Ranks

    def blinders(self, randomness: Bytes, segment: Segment) -> tuple[Ranks, Ranks]:
        start = 2 * segment.start
        rows = self.planted[:, start : start + 2 * segment.padded]
        odd, even = np.ascontiguousarray(rows[:, ::2]), np.ascontiguousarray(rows[:, 1::2])
        return self.group.from_ranks(odd), self.group.from_ranks(even)


def positions(encoding: GroupEncoding) -> int:
    """Positions of all segments, those that fill up the last one included."""
    return sum(segment.padded for segment in encoding.segments)


def laid_out(encoding: GroupEncoding, bits: Bools, interstitials: Ranks) -> Ranks:
    """g0 a1 g1 ... with identities before the last interstitial, shape (batch, 2 positions + 1).

    Args:
        bits: of the publisher's elements, shape (batch, length).
        interstitials: shape (batch, length + 1).
    """
    length, filled = encoding.length, positions(encoding)
    out = np.zeros((len(bits), 2 * filled + 1), dtype=np.uint8)
    out[:, 0 : 2 * length : 2] = interstitials[:, :-1]
    out[:, 1 : 2 * length : 2] = np.where(bits, encoding.group.alpha, 0)
    out[:, -1] = interstitials[:, -1]
    return out


def encoded(
    encoding: GroupEncoding, bits: Bools, interstitials: Ranks, randomness: Bytes
) -> tuple[Bytes, Bytes]:
    """Both messages; randomness of shape (batch, segments, segment_randomness)."""
    batch, length = bits.shape
    events = np.zeros((batch, encoding.event_bytes), dtype=np.uint8)
    interests = np.zeros((batch, encoding.interest_bytes), dtype=np.uint8)
    carried = np.zeros(batch, dtype=np.uint8)
    for number, segment in enumerate(encoding.segments):
        at = slice(segment.start, segment.stop)
        random = randomness[:, number]
        encoding.encode_event(encoding.raw_event(bits[:, at], segment), random, segment, events)
        raw = encoding.raw_interest(interstitials[:, at], segment)
        carried = encoding.encode_interest(raw, carried, random, segment, interests)
    encoding.finish_interest(interstitials[:, length], carried, interests)
    return events, interests


def view(encoding: GroupEncoding, events: Bytes, interests: Bytes) -> Ranks:
    """What the broker holds, in the order of the product, shape (batch, 2 positions + 1)."""
    group: Group = encoding.group
    out = np.empty((len(events), 2 * positions(encoding) + 1), dtype=np.uint8)
    for segment in encoding.segments:
        at = slice(2 * segment.start, 2 * (segment.start + segment.padded))
        for shift, message in enumerate((interests, events)):
            bulk, valid = group.load(np.ascontiguousarray(message[:, segment.place]))
            assert valid.all()
            out[:, at][:, shift::2] = group.to_ranks(bulk)
    out[:, -1] = interests[:, -TRAILER_BYTES]
    return out
