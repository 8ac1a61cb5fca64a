"""Messages of blinded group elements, in segments: encoders, pieces and the broker's product.

A matcher of this family knows two things: which input bit each of the publisher's elements takes
(public), and the interstitial elements of a subscription (private). Everything else is here:
blinding for a batch of short programs at once, or segment by segment for programs longer than
memory; and the broker's product.

Messages of several segments may arrive in pieces, and pieces get lost or mixed up. So the segments
behind the first one, and the subscriber's last element, carry the message's tag plus their number
in the message: a segment that is from another message, or out of place, is refused and not
multiplied. The message's tag is the round's, seven bytes that follow from the header of either
message (`ccbps.wire`), so this tells nobody anything new.

Hazard: tags find mistakes. Whoever alters a message can copy them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra import Group
from ccbps.arrays import Bools, Bytes, Index, Ranks
from ccbps.dictionary import DictionaryColumn
from ccbps.encodings.group import TAG_BYTES, TRAILER_BYTES, GroupEncoding, Segment
from ccbps.forms.bits import event_bits
from ccbps.matching.contract.scheme import Draw, Side, Sizes
from ccbps.matching.group.pieces import PieceMatcher, PieceReader
from ccbps.predicates import Events
from ccbps.programs.group import PreservingProgram
from ccbps.wire import Cause

BLOCK_POSITIONS: Final = 1 << 20
"""Positions encoded or decoded at a time: short programs go together, up to this many."""


class GroupMessages(PieceMatcher):
    """Encodes and matches; what is encoded is the matcher's.

    Attributes:
        group: where the elements are.
        length: l, elements of the publisher; the subscriber has l + 1.
        encoding: the two encoders and the decoder.
    """

    group: Group
    length: int
    encoding: GroupEncoding
    _positions: Index
    """The index sequence, or what it repeats."""

    def _index(self, start: int, stop: int) -> Index:
        """Which event bit each of the publisher's elements start .. stop - 1 takes."""
        return self._positions[start:stop]

    def _interstitials(self, interest: PreservingProgram, start: int, stop: int) -> Ranks:
        """The subscriber's elements start .. stop - 1 of l + 1, for a prepared interest."""
        return interest.interstitials[start:stop]

    # -- encoding -----------------------------------------------------------------------------

    def _blocks(self, batch: int) -> Iterator[slice]:
        """Rows that are encoded together."""
        segments = self.encoding.segments
        rows = 1 if len(segments) > 1 else max(1, BLOCK_POSITIONS // segments[0].padded)
        for start in range(0, batch, rows):
            yield slice(start, min(start + rows, batch))

    def _raw_event(self, bits: Bools, segment: Segment) -> NDArray[Any]:
        """A segment of the publisher's elements. `bits` has a last column of zeros, for `NONE`."""
        index = self._index(segment.start, segment.stop)
        return self.encoding.raw_event(np.take(bits, index, axis=1, mode="wrap"), segment)

    def _raw_interests(self, interests: Sequence[Any], segment: Segment) -> NDArray[Any]:
        """A segment of the subscriber's elements, for each of some prepared interests."""
        at = segment.start, segment.stop
        ranks = np.stack([self._interstitials(interest, *at) for interest in interests])
        return self.encoding.raw_interest(ranks, segment)

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        """See `Scheme.encode_events`."""
        bits = _with_zero(event_bits(events))
        for at in self._blocks(len(out)):
            for number, segment in enumerate(self.encoding.segments):
                self._put_event(bits[at], number, segment, draw, at, out[at])

    def event_pieces(self, event: Events, draw: Draw) -> Iterator[Bytes]:
        """See `PieceMatcher.event_pieces`."""
        bits = _with_zero(event_bits(event))
        for number, segment in enumerate(self.encoding.segments):
            piece = np.empty((1, segment.alone.place.stop), dtype=np.uint8)
            self._put_event(bits, number, segment.alone, draw, slice(0, 1), piece)
            yield piece[0]

    def _put_event(
        self, bits: Bools, number: int, segment: Segment, draw: Draw, at: slice, body: Bytes
    ) -> None:
        """Write one segment of messages `at`, with its tag."""
        random = draw.shared(at.start, at.stop, number)
        if number:
            body[:, segment.tag] = _tags(draw.tags(at.start, at.stop), number, "event")
        self.encoding.encode_event(self._raw_event(bits, segment), random, segment, body)

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Any], draw: Draw, out: Bytes
    ) -> None:
        """See `Scheme.encode_interests`."""
        made = _Latest()
        for at in self._blocks(len(out)):
            used, place = np.unique(interests.index[at], return_inverse=True)
            values = [interests.values[i] for i in used]
            carried = np.zeros(len(place), dtype=np.uint8)
            for number, segment in enumerate(self.encoding.segments):
                name = (number, used.tobytes())
                if made.name != name:
                    made.name, made.value = name, self._raw_interests(values, segment)
                raw = self.group.take(made.value, place)
                carried = self._put_interest(raw, carried, number, segment, draw, at, out[at])
            self._put_end(values, place, carried, draw, at, out[at])

    def interest_pieces(self, prepared: Any, draw: Draw) -> Iterator[Bytes]:
        """See `PieceMatcher.interest_pieces`."""
        at, carried = slice(0, 1), np.zeros(1, dtype=np.uint8)
        for number, segment in enumerate(self.encoding.segments):
            piece = np.empty((1, segment.alone.place.stop), dtype=np.uint8)
            raw = self._raw_interests([prepared], segment)
            carried = self._put_interest(raw, carried, number, segment.alone, draw, at, piece)
            yield piece[0]
        end = np.empty((1, TRAILER_BYTES), dtype=np.uint8)
        self._put_end([prepared], np.zeros(1, dtype=np.intp), carried, draw, at, end)
        yield end[0]

    def _put_interest(
        self,
        raw: NDArray[Any],
        carried: Ranks,
        number: int,
        segment: Segment,
        draw: Draw,
        at: slice,
        body: Bytes,
    ) -> Ranks:
        """Write one segment of messages `at`, with its tag; its last blinders."""
        random = draw.shared(at.start, at.stop, number)
        if number:
            body[:, segment.tag] = _tags(draw.tags(at.start, at.stop), number, "interest")
        return self.encoding.encode_interest(raw, carried, random, segment, body)

    def _put_end(
        self,
        values: Sequence[Any],
        place: Index | NDArray[np.intp],
        carried: Ranks,
        draw: Draw,
        at: slice,
        body: Bytes,
    ) -> None:
        """Write the last elements and what stands behind them."""
        ends = [self._interstitials(one, self.length, self.length + 1)[0] for one in values]
        self.encoding.finish_interest(np.array(ends, dtype=np.uint8)[place], carried, body)
        body[:, 1 - TRAILER_BYTES :] = self._end_tags(draw.tags(at.start, at.stop))

    def _end_tags(self, tags: Bytes) -> Bytes:
        """What stands behind the last element: as much of its tag as there is room for."""
        return _tags(tags, len(self.encoding.segments), "interest")[:, : TRAILER_BYTES - 1]

    # -- matching -----------------------------------------------------------------------------

    def match_pairs(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bytes]:
        """See `PairScheme.match_pairs`."""
        encoding, batch = self.encoding, len(events)
        events, interests = _with_contiguous_rows(events), _with_contiguous_rows(interests)
        answers = np.zeros(batch, dtype=np.bool_)
        causes = np.full(batch, Cause.NONE, dtype=np.uint8)
        for at in self._blocks(batch):
            ours, theirs = events[at], interests[at]
            product = np.zeros(len(ours), dtype=np.uint8)
            valid = np.ones(len(ours), dtype=np.bool_)
            for segment in encoding.segments:
                place = segment.place
                part, good = encoding.decode_segment(ours[:, place], theirs[:, place])
                product = self.group.multiplication[product, part]
                valid &= good
            answers[at], impossible = encoding.finish(product, theirs[:, -TRAILER_BYTES:])
            causes[at][impossible] = Cause.PRODUCT
            causes[at][~valid] = Cause.ELEMENT
        return answers, causes

    def check_tags(
        self, events: Bytes, interests: Bytes, tags: Callable[[int, int], Bytes]
    ) -> Bytes:
        """See `PairScheme.check_tags`."""
        causes = np.full(len(events), Cause.NONE, dtype=np.uint8)
        for at in self._blocks(len(events)):
            own = tags(at.start, at.stop)
            placed = (interests[at, 1 - TRAILER_BYTES :] == self._end_tags(own)).all(axis=1)
            for number, segment in enumerate(self.encoding.segments[1:], 1):
                for bodies, side in ((events, "event"), (interests, "interest")):
                    expected = _tags(own, number, side)  # type: ignore[arg-type]
                    placed &= (bodies[at, segment.tag] == expected).all(axis=1)
            causes[at][~placed] = Cause.SEGMENT
        return causes

    def match_pieces(
        self, event: PieceReader, interest: PieceReader, tag: Bytes
    ) -> tuple[bool, Cause]:
        """See `PieceMatcher.match_pieces`."""
        product, valid = np.zeros(1, dtype=np.uint8), True
        for number, segment in enumerate(self.encoding.segments):
            if number:
                # At once: what follows is of no use, and a wrong order shows here.
                found = event.take(TAG_BYTES), interest.take(TAG_BYTES)
                wanted = _tags(tag, number, "event"), _tags(tag, number, "interest")
                if not np.array_equal(found, wanted):
                    return False, Cause.SEGMENT
            width = segment.place.stop - segment.place.start
            part, good = self.encoding.decode_segment(event.take(width), interest.take(width))
            product = self.group.multiplication[product, part]
            valid = valid and bool(good[0])
        trailer = interest.take(TRAILER_BYTES)
        event.end()
        interest.end()
        if not np.array_equal(trailer[:, 1:], self._end_tags(tag)):
            return False, Cause.SEGMENT
        if not valid:
            return False, Cause.ELEMENT
        answers, impossible = self.encoding.finish(product, trailer)
        return bool(answers[0]), Cause.PRODUCT if impossible[0] else Cause.NONE


def sizes_of(encoding: GroupEncoding) -> Sizes:
    """Bytes of bodies and of randomness; a piece for each segment."""
    return Sizes(
        encoding.event_bytes,
        encoding.interest_bytes,
        encoding.segment_randomness,
        pieces=len(encoding.segments),
    )


class _Latest:
    """The elements that were made last, and what for: often the next rows want them again."""

    def __init__(self) -> None:
        self.name: tuple[int, bytes] | None = None
        self.value: NDArray[Any] = np.empty(0)


def _tags(tags: Bytes, number: int, side: Side) -> Bytes:
    """The tags of part `number`: the messages' own plus it; shape (batch, TAG_BYTES).

    In interests their highest bit is set, so that parts of the two sides are not taken for each
    other.
    """
    own = np.zeros((len(tags), TAG_BYTES), dtype=np.uint8)
    own[:, : tags.shape[1]] = tags
    words = own.view("<u8") + np.uint64(number) | np.uint64((side == "interest") << 63)
    return words.astype("<u8", copy=False).view(np.uint8)


def _with_contiguous_rows(messages: Bytes) -> Bytes:
    return messages if messages.strides[1] == 1 else np.ascontiguousarray(messages)


def _with_zero(bits: Bools) -> Bools:
    """Bits with one more column, of zeros: where an index of `NONE` (-1) leads."""
    out = np.zeros((bits.shape[0], bits.shape[1] + 1), dtype=np.bool_)
    out[:, :-1] = bits
    return out
