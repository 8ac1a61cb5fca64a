"""Blinded group programs: a 2-decomposable randomized encoding, perfect, split between two parties.

An alpha-preserving program is a product g0 a1 g1 a2 ... al gl. The publisher knows the a's (alpha
or the identity, by its bits), the subscriber the g's. With uniform R1 ... R2l, which both know::

    s1 R1,  R1^-1 s2 R2,  R2^-1 s3 R3,  ...,  R2l^-1 s(2l+1)        (blinding)

has the product of the s's and is uniform among all sequences with that product: so a broker that
gets every other element from each of the two learns the product, which is alpha or the identity,
and nothing else. The publisher's message does not depend on the program, nor the subscriber's on
the bits.

On the wire the elements come in *segments* of some ten thousand positions; a position is one
element of the subscriber and the publisher's next. Both write whole segments: the last one is
filled up with blinded identities. The subscriber's last element stands alone, the first of eight
bytes at the end (`TRAILER_BYTES`). Any number of segments can be produced, sent and multiplied one
by one. In front of every segment but the first, whose message has a header, and behind the last
element is room for a tag (`Segment.tag`, seven bytes of the trailer). Tags identify segments that
belong together. The matcher writes them: blinding leaves their room zero.

Hazard: randomness must be uniform, shared by the two parties only, and used for one pair only.
Source: [SSM] Definitions 4, 10 and 11, Lemmas 5 and 22; Feige, Kilian and Naor 1994; Kilian 1988.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ccbps.algebra.group import Bulk, Group
from ccbps.arrays import Bools, Bytes, Ranks
from ccbps.checks import whole
from ccbps.errors import ParameterError, ShapeError

SEGMENT: Final = 1 << 20
"""Number of positions of a segment. NumPy calls cost little then, and its elements and its blinders
take a megabyte each; kernels go through them in blocks that fit the cache."""
TAG_BYTES: Final = 8
"""Bytes of a tag, in front of every segment but the first."""
TRAILER_BYTES: Final = 8
"""Bytes at the end of an interest: its last element, and seven bytes of a tag."""
LAYOUT: Final = 2
"""Number of the wire format and of which random bytes become which elements, part of fingerprints.
Raise it when either changes, here or in `ccbps.algebra`: old and new key streams must not meet."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Positions of a program that are written together.

    Attributes:
        start: first position.
        stop: end of the positions.
        padded: number of positions, filled up to whole words.
        place: bytes on the wire.
    """

    start: int
    stop: int
    padded: int
    place: slice

    @property
    def tag(self) -> slice:
        """Bytes of the segment's tag on the wire, right before `place`; empty for the first."""
        return slice(self.place.start - (TAG_BYTES if self.start else 0), self.place.start)

    @property
    def alone(self) -> Segment:
        """This segment as a piece of its own: its tag, if it has one, and its positions."""
        front = self.tag.stop - self.tag.start
        width = self.place.stop - self.place.start
        return replace(self, place=slice(front, front + width))


class GroupEncoding:
    """Encoders, decoder and simulator for programs of one length.

    Attributes:
        group: the group of the elements.
        length: l, number of the publisher's elements.
        segment: positions of a whole segment.
        segments: segments of a message.
        event_bytes: bytes of an event.
        interest_bytes: bytes of an interest.
        segment_randomness: bytes of shared randomness one segment uses.
    """

    def __init__(self, group: Group, length: int, *, segment: int | None = None) -> None:
        length = whole("length", length, 1)
        segment = SEGMENT if segment is None else segment
        if segment < 1 or group.padded(segment) != segment:
            raise ParameterError(f"segment must be a whole number of words, got {segment}")
        self.group, self.length, self.segment = group, length, segment
        segments, place = [], 0
        for start in range(0, length, segment):
            stop = min(start + segment, length)
            padded = group.padded(stop - start)
            width = group.element_bytes(padded)
            place += TAG_BYTES if start else 0
            segments.append(Segment(start, stop, padded, slice(place, place + width)))
            place += width
        self.segments = tuple(segments)
        self.event_bytes, self.interest_bytes = place, place + TRAILER_BYTES
        self.segment_randomness = 2 * group.random_bytes(self.segments[0].padded)

    def raw_event(self, bits: Bools, segment: Segment) -> Bulk:
        """Return the publisher's elements before blinding: alpha where a bit is set.

        Args:
            bits: bits of the segment's positions, shape (batch, stop - start).
            segment: the segment.
        """
        padded = np.zeros((len(bits), segment.padded), dtype=np.bool_)
        padded[:, : bits.shape[1]] = bits
        return self.group.powers(self.group.pack(padded), self.group.alpha)

    def raw_interest(self, ranks: Ranks, segment: Segment) -> Bulk:
        """Return the subscriber's elements before blinding: interstitials start .. stop - 1.

        Args:
            ranks: ranks of the interstitials, shape (batch, stop - start).
            segment: the segment.
        """
        padded = np.zeros((len(ranks), segment.padded), dtype=np.uint8)
        padded[:, : ranks.shape[1]] = ranks
        return self.group.from_ranks(padded)

    def blinders(self, randomness: Bytes, segment: Segment) -> tuple[Bulk, Bulk]:
        """Draw R1, R3, ... (behind the subscriber's elements) and R2, R4, ... of a segment.

        Args:
            randomness: shared bytes, shape (batch, segment_randomness).
            segment: the segment.

        Raises:
            SamplingError: the bytes do not yield enough elements (see `Group.uniform`).
        """
        if randomness.shape[1] != self.segment_randomness:
            raise ShapeError(
                f"randomness must have shape (batch, {self.segment_randomness}), "
                f"got {randomness.shape}"
            )
        width = self.group.random_bytes(segment.padded)
        return (
            self.group.uniform(randomness[:, :width]),
            self.group.uniform(randomness[:, width : 2 * width]),
        )

    def encode_event(self, raw: Bulk, randomness: Bytes, segment: Segment, out: Bytes) -> None:
        """Blind a segment of the publisher's: R1^-1 a R2.

        Args:
            raw: elements from `raw_event`.
            randomness: shared bytes, as for `blinders`.
            segment: the segment.
            out: whole messages, shape (batch, event_bytes); written where the segment lies.
        """
        group = self.group
        front, behind = self.blinders(randomness, segment)
        group.store(group.blind(front, raw, behind, out=behind), out[:, segment.place])

    def encode_interest(
        self, raw: Bulk, carried: Ranks, randomness: Bytes, segment: Segment, out: Bytes
    ) -> Ranks:
        """Blind a segment of the subscriber's: R0^-1 g R1, where R0 is `carried`.

        Args:
            raw: elements from `raw_interest`.
            carried: last blinders of the segment before, shape (batch,); 0 for the first.
            randomness: shared bytes, as for `blinders`.
            segment: the segment.
            out: whole messages, shape (batch, interest_bytes).

        Returns:
            the last blinders of this segment.
        """
        group = self.group
        behind, after = self.blinders(randomness, segment)
        last = group.last(after)
        front = group.delay(after, carried, out=after)
        group.store(group.blind(front, raw, behind, out=behind), out[:, segment.place])
        return last

    def finish_interest(self, last: Ranks, carried: Ranks, out: Bytes) -> None:
        """Write the last interstitial, blinded in front, behind the segments."""
        group = self.group
        out[:, -TRAILER_BYTES] = group.multiplication[group.inverses[carried], last]

    def decode_segment(self, events: Bytes, interests: Bytes) -> tuple[Ranks, Bools]:
        """Return the products of a segment, and whether its bytes are elements; both (batch,).

        Args:
            events: bytes of the segment in events, shape (batch, element bytes).
            interests: bytes of the segment in interests, likewise.
        """
        return self.group.product_of(interests, events)

    def finish(self, product: Ranks, trailers: Bytes) -> tuple[Bools, Bools]:
        """Return the answers (REC), and whether a product is not a possible one; both (batch,).

        Args:
            product: products of all segments, shape (batch,).
            trailers: ends of the interests, shape (batch, TRAILER_BYTES).
        """
        group = self.group
        valid = trailers[:, 0] < group.order
        products = group.multiplication[product, np.where(valid, trailers[:, 0], 0)]
        answers = products == group.alpha
        return answers, ~valid | ~(answers | (products == 0))

    def simulate(self, answers: Bools, randomness: Bytes) -> tuple[Bytes, Bytes]:
        """Make messages from the answers alone, distributed as the real ones (SIM).

        Args:
            answers: shape (batch,), bool.
            randomness: fresh uniform bytes, shape (batch, segments, segment_randomness).

        Returns:
            event messages and interest messages, zeros where tags go.
        """
        group, batch = self.group, len(answers)
        events = np.zeros((batch, self.event_bytes), dtype=np.uint8)
        interests = np.zeros((batch, self.interest_bytes), dtype=np.uint8)
        product = np.zeros(batch, dtype=np.uint8)
        for number, segment in enumerate(self.segments):
            theirs, ours = self.blinders(randomness[:, number], segment)
            group.store(theirs, interests[:, segment.place])
            group.store(ours, events[:, segment.place])
            part = group.product(group.multiply(theirs, ours))
            product = group.multiplication[product, part]
        whole_product = np.where(answers, group.alpha, 0)
        interests[:, -TRAILER_BYTES] = group.multiplication[group.inverses[product], whole_product]
        return events, interests
