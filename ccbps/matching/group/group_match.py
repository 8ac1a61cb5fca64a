"""Base of the matchers by blinded group programs: parameters, messages, pieces, and the product.

A matcher of this family knows two things: which input bit each of the publisher's elements takes
(public), and the interstitial elements of a subscription (private). Everything else is here:
blinding for a batch of short programs at once, or segment by segment for programs longer than
memory; and the broker's product.

A message of several segments can be made, sent and matched piece by piece (`encode_chunks`,
`match_chunks`); one after the other, the pieces are the message that `encode` makes. Pieces get
lost or mixed up. So the segments behind the first one, and the subscriber's last element, carry the
message's tag plus their number in the message: a segment that is from another message, or out of
place, is refused and not multiplied. The message's tag is the round's, seven bytes that follow from
the header of either message (`ccbps.wire`), so the broker learns nothing new.

Hazard: tags find mistakes. An attacker who alters a message can copy them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra import A5, S5, Group
from ccbps.arrays import Bools, Bytes, Index, Randomness, Ranks, slices
from ccbps.checks import choice
from ccbps.circuits import Circuit
from ccbps.circuits.bristol import BristolCircuit
from ccbps.dictionary import DictionaryColumn
from ccbps.encodings.group import LAYOUT, TAG_BYTES, TRAILER_BYTES, GroupEncoding, Segment
from ccbps.errors import DecodeError, ParameterError
from ccbps.forms.bits import event_bits
from ccbps.keys.randomness import RandomnessSource
from ccbps.keys.role_key import RoleKey
from ccbps.keys.used_rounds import as_rounds
from ccbps.leakage import LeakageCard, Protects
from ccbps.matching.contract.access import RoleName
from ccbps.matching.contract.broker import Broker
from ccbps.matching.contract.matcher import Matcher, within_text
from ccbps.matching.contract.roles import Publisher, Subscriber, event_content
from ccbps.matching.contract.scheme import (
    Cost,
    Draw,
    Interest,
    Operation,
    Operator,
    PairScheme,
    Side,
    Sizes,
)
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.programs.group import PreservingProgram
from ccbps.wire import (
    ROUND_HEADER_BYTES,
    Cause,
    Kind,
    check_round_headers,
    raise_for,
    round_tags,
)

GROUPS: Final[Mapping[str, Group]] = {"A5": A5, "S5": S5}
PROPOSED: Final = 1 << 21
"""Largest number of a publisher's elements in a proposal: messages of a megabyte and a half."""
MAX_ELEMENTS: Final = 1 << 34
"""Largest number of a publisher's elements at all: messages of gigabytes."""
BLOCK_POSITIONS: Final = 1 << 20
"""Positions encoded or decoded at a time: short programs go together, up to this many."""


class GroupMatch(Matcher, PairScheme):
    """Matcher by blinded group programs.

    Attributes:
        group: the group of the elements.
        length: l, number of the publisher's elements; the subscriber has l + 1.
        encoding: the two encoders and the decoder.
    """

    operators: tuple[Operator, ...] = get_args(Operator)
    group: Group
    length: int
    encoding: GroupEncoding
    _positions: Index
    """The index sequence, or a period of it."""
    _hides: frozenset[Protects]
    """Protections of a subscription."""
    _public: str
    """Public parameters, in words."""
    _hidden: str
    """Hidden part of a subscription, in words."""

    def _compile(self, schema: Schema, group: str | Group, length: int) -> None:
        """Make the encoding. Call this at the end of the constructor."""
        self.group, self.length = self._affordable_group(group, length), length
        self.encoding = encoding = GroupEncoding(self.group, length)
        self._set_up(schema, sizes_of(encoding))

    @staticmethod
    def _affordable_group(group: str | Group, length: int) -> Group:
        """Return a group by its name; refuse messages that would be too long to build.

        Args:
            group: the group of the elements, or its name.
            length: number of the publisher's elements, or a lower bound.

        Raises:
            ParameterError: no group has this name, or the elements are too many, for any matcher or
                for one that is read from a text.
        """
        group = group if isinstance(group, Group) else GROUPS[choice("group", group, GROUPS)]
        if length > MAX_ELEMENTS:
            raise ParameterError(
                f"messages would have {length:,} elements, more than {MAX_ELEMENTS:,}: take fewer "
                "or shorter attributes, or fewer instructions"
            )
        within_text(group.element_bytes(group.padded(length)))
        return group

    def layout(self) -> Any:
        index = sha256(np.ascontiguousarray(self._positions, dtype="<i4").data).hexdigest()
        randomness = self.encoding.segment_randomness
        return [LAYOUT, self.length, self.encoding.segment, randomness, index]

    @property
    def elements(self) -> int:
        """Number of elements in the broker's product, 2 l + 1."""
        return 2 * self.length + 1

    @property
    def leakage(self) -> LeakageCard:
        return self._perfect(self._public, self._hidden, self._hides)

    @property
    def costs(self) -> tuple[Cost, ...]:
        products = Operation.GROUP_PRODUCT, 2 * self.length, self.group.name
        return tuple(Cost(role, "pair", *products) for role in get_args(RoleName))

    def explain(self) -> str:
        program = (
            f"{self.elements:,} elements: {self.length:,} of the publisher, "
            f"{self.length + 1:,} of the subscriber"
        )
        return self._explain(
            [
                ("public", self._public),
                ("group", f"{self.group.name}, {self.group.order} elements"),
                ("segments", f"{len(self.encoding.segments)}"),
                ("program", program),
            ]
        )

    # -- interests ----------------------------------------------------------------------------

    def identify(self, prepared: PreservingProgram) -> bytes:
        return prepared.interstitials.tobytes() + prepared.index.tobytes()

    def meaning(self, interest: Any, events: Events) -> Bools:
        if isinstance(interest, Circuit):
            return interest.evaluate(event_bits(events))[:, 0]
        return super().meaning(interest, events)

    def _index(self, start: int, stop: int) -> Index:
        """Return the event bit of each of the publisher's elements start .. stop - 1."""
        return self._positions[start:stop]

    def _interstitials(self, interest: PreservingProgram, start: int, stop: int) -> Ranks:
        """Return the subscriber's elements start .. stop - 1 of l + 1, for a prepared interest."""
        return interest.interstitials[start:stop]

    # -- roles --------------------------------------------------------------------------------

    def publisher(
        self,
        key: RandomnessSource | RoleKey,
        *,
        ledger: str | os.PathLike[str] | None = None,
        randomness: Randomness = os.urandom,
    ) -> PiecePublisher:
        return PiecePublisher(self, key, ledger, randomness)

    def subscriber(
        self,
        key: RandomnessSource | RoleKey,
        *,
        ledger: str | os.PathLike[str] | None = None,
        randomness: Randomness = os.urandom,
    ) -> PieceSubscriber:
        return PieceSubscriber(self, key, ledger, randomness)

    def broker(self, key: RoleKey | None = None) -> PieceBroker:
        return PieceBroker(self, key)

    # -- encoding -----------------------------------------------------------------------------

    def _blocks(self, batch: int) -> Iterator[slice]:
        """Yield slices of rows that are encoded together."""
        segments = self.encoding.segments
        rows = 1 if len(segments) > 1 else max(1, BLOCK_POSITIONS // segments[0].padded)
        return slices(batch, rows)

    def _raw_event(self, bits: Bools, segment: Segment) -> NDArray[Any]:
        """Return a segment of the publisher's elements before blinding.

        Args:
            bits: event bits, with a last column of zeros, for `NONE`.
            segment: the segment.
        """
        index = self._index(segment.start, segment.stop)
        return self.encoding.raw_event(np.take(bits, index, axis=1, mode="wrap"), segment)

    def _raw_interests(self, interests: Sequence[Any], segment: Segment) -> NDArray[Any]:
        """Return a segment of the subscriber's elements, for each of some prepared interests."""
        at = segment.start, segment.stop
        ranks = np.stack([self._interstitials(interest, *at) for interest in interests])
        return self.encoding.raw_interest(ranks, segment)

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        bits = _with_zero(event_bits(events))
        for at in self._blocks(len(out)):
            for number, segment in enumerate(self.encoding.segments):
                self._put_event(bits[at], number, segment, draw, at, out[at])

    def event_pieces(self, event: Events, draw: Draw) -> Iterator[Bytes]:
        """Yield the body of one event in pieces, uint8, of one dimension."""
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
        # The next rows often need the elements that were made last.
        latest: tuple[tuple[int, bytes], NDArray[Any]] | None = None
        for at in self._blocks(len(out)):
            used, place = np.unique(interests.index[at], return_inverse=True)
            values = [interests.values[i] for i in used]
            carried = np.zeros(len(place), dtype=np.uint8)
            for number, segment in enumerate(self.encoding.segments):
                name = number, used.tobytes()
                if latest is None or latest[0] != name:
                    latest = name, self._raw_interests(values, segment)
                raw = self.group.take(latest[1], place)
                carried = self._put_interest(raw, carried, number, segment, draw, at, out[at])
            self._put_end(values, place, carried, draw, at, out[at])

    def interest_pieces(self, prepared: Any, draw: Draw) -> Iterator[Bytes]:
        """Yield the body of one prepared interest in pieces, uint8, of one dimension."""
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
        """Write one segment of messages `at`, with its tag. Return its last blinders."""
        random = draw.shared(at.start, at.stop, number)
        if number:
            body[:, segment.tag] = _tags(draw.tags(at.start, at.stop), number, "interest")
        return self.encoding.encode_interest(raw, carried, random, segment, body)

    def _put_end(
        self,
        values: Sequence[Any],
        place: NDArray[np.intp],
        carried: Ranks,
        draw: Draw,
        at: slice,
        body: Bytes,
    ) -> None:
        """Write the last elements and their tags."""
        stop = self.length + 1
        ends = [self._interstitials(value, self.length, stop)[0] for value in values]
        self.encoding.finish_interest(np.array(ends, dtype=np.uint8)[place], carried, body)
        body[:, 1 - TRAILER_BYTES :] = self._end_tags(draw.tags(at.start, at.stop))

    def _end_tags(self, tags: Bytes) -> Bytes:
        """Return the last elements' tags, as far as there is room for them."""
        return _tags(tags, len(self.encoding.segments), "interest")[:, : TRAILER_BYTES - 1]

    # -- matching -----------------------------------------------------------------------------

    def match_pairs(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bytes]:
        encoding, batch = self.encoding, len(events)
        events, interests = (
            bodies if bodies.strides[1] == 1 else np.ascontiguousarray(bodies)
            for bodies in (events, interests)
        )
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
        causes = np.full(len(events), Cause.NONE, dtype=np.uint8)
        sides: tuple[tuple[Bytes, Side], ...] = (events, "event"), (interests, "interest")
        for at in self._blocks(len(events)):
            own = tags(at.start, at.stop)
            placed = (interests[at, 1 - TRAILER_BYTES :] == self._end_tags(own)).all(axis=1)
            for number, segment in enumerate(self.encoding.segments[1:], 1):
                for bodies, side in sides:
                    placed &= (bodies[at, segment.tag] == _tags(own, number, side)).all(axis=1)
            causes[at][~placed] = Cause.SEGMENT
        return causes

    def match_pieces(
        self, event: PieceReader, interest: PieceReader, tag: Bytes
    ) -> tuple[bool, Cause]:
        """Match two bodies in pieces.

        Args:
            event: body of the event.
            interest: body of the interest.
            tag: tag of their round, shape (1, TAG_BYTES).

        Returns:
            the answer, and the cause for refusing the bodies, or `Cause.NONE`.

        Raises:
            DecodeError: a body is too short or too long.
        """
        product, valid = np.zeros(1, dtype=np.uint8), True
        for number, segment in enumerate(self.encoding.segments):
            if number:
                # At once: pieces that follow are of no use, and a wrong order shows here.
                tags = event.take(TAG_BYTES), interest.take(TAG_BYTES)
                expected = _tags(tag, number, "event"), _tags(tag, number, "interest")
                if not np.array_equal(tags, expected):
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
    """Return the bytes of bodies and of randomness, with a piece for each segment."""
    return Sizes(
        encoding.event_bytes,
        encoding.interest_bytes,
        encoding.segment_randomness,
        pieces=len(encoding.segments),
    )


def formula(schema: Schema, interest: Any) -> Predicate | Circuit:
    """Return a subscription to a matcher that hides its formula: a predicate, or a circuit.

    Raises:
        PredicateError: the predicate does not parse, or a private constant has no value.
        ParameterError: `interest` is neither, or of another schema.
    """
    if isinstance(interest, Circuit):
        return interest
    if isinstance(interest, (str, Predicate)):
        return bound_predicate(schema, interest)
    hint = "; pass its most_significant_first()" if isinstance(interest, BristolCircuit) else ""
    raise ParameterError(
        "an interest is a predicate (SQL text or Predicate) or a Circuit, "
        f"got {type(interest).__name__}{hint}"
    )


def _tags(tags: Bytes, number: int, side: Side) -> Bytes:
    """Return the tags of part `number`: the messages' own plus it; shape (batch, TAG_BYTES).

    In interests their highest bit is set, so that parts of the two sides are not taken for each
    other.
    """
    own = np.zeros((len(tags), TAG_BYTES), dtype=np.uint8)
    own[:, : tags.shape[1]] = tags
    words = own.view("<u8") + np.uint64(number) | np.uint64((side == "interest") << 63)
    return words.astype("<u8", copy=False).view(np.uint8)


def _with_zero(bits: Bools) -> Bools:
    """Add a column of zeros, for an index of `NONE` (-1)."""
    out = np.zeros((bits.shape[0], bits.shape[1] + 1), dtype=np.bool_)
    out[:, :-1] = bits
    return out


# -- messages in pieces -----------------------------------------------------------------------


class PiecePublisher(Publisher):
    """Publisher that encodes events also in pieces.

    Example:
        >>> import numpy as np
        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import OFSGPMatch
        >>> matcher, seed = OFSGPMatch(Schema(a=UInt(2)), depth=1), SharedSeed.generate()
        >>> whole = matcher.publisher(seed).encode([{"a": 3}], rounds=[0])
        >>> pieces = matcher.publisher(seed).encode_chunks({"a": 3}, round=0)
        >>> np.array_equal(np.concatenate(list(pieces)), whole[0])
        True
    """

    matcher: GroupMatch

    def encode_chunks(self, event: Any, round: int, *, pair: str | None = None) -> Iterator[Bytes]:
        """Encode one event's message in pieces, for messages larger than memory.

        Args:
            event: one record, a mapping; or events as `encode` takes them, with one row.
            round: round of the event, which counts as used as soon as this is called.
            pair: a pair label, when the seed is a master for many pairs.

        Returns:
            an iterator of uint8 arrays; one after the other they are `encode`'s message.
        """
        schema = self.matcher.schema
        if isinstance(event, Mapping) and all(_is_scalar(event.get(name)) for name in schema):
            event = [event]
        batch = schema.encode(event)
        if batch.count != 1:
            raise ParameterError(f"encode_chunks takes one event, got {batch.count}")
        head = np.empty((1, ROUND_HEADER_BYTES), dtype=np.uint8)
        labels, used = None if pair is None else [pair], as_rounds([round], 1)
        draw = self._access.open(used, 1, labels, lambda: event_content(batch), head)
        return _behind(head, self.matcher.event_pieces(batch, draw))


class PieceSubscriber(Subscriber):
    """Subscriber that encodes predicates also in pieces.

    Example:
        >>> import numpy as np
        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import OFSGPMatch
        >>> matcher, seed = OFSGPMatch(Schema(a=UInt(2)), depth=1), SharedSeed.generate()
        >>> whole = matcher.subscriber(seed).encode("a > 1", rounds=[0])
        >>> pieces = matcher.subscriber(seed).encode_chunks("a > 1", round=0)
        >>> np.array_equal(np.concatenate(list(pieces)), whole[0])
        True
    """

    matcher: GroupMatch

    def encode_chunks(
        self, interest: Interest, round: int, *, pair: str | None = None
    ) -> Iterator[Bytes]:
        """Encode one interest's message in pieces, as `PiecePublisher.encode_chunks` an event's."""
        prepared = self.matcher.prepare(interest)
        column = DictionaryColumn([prepared], np.zeros(1, dtype=np.intp))
        head = np.empty((1, ROUND_HEADER_BYTES), dtype=np.uint8)
        labels, used = None if pair is None else [pair], as_rounds([round], 1)
        draw = self._access.open(used, 1, labels, lambda: self._content(column), head)
        return _behind(head, self.matcher.interest_pieces(prepared, draw))


class PieceBroker(Broker):
    """Broker that matches messages also in pieces.

    Example:
        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import OFSGPMatch
        >>> matcher, seed = OFSGPMatch(Schema(a=UInt(2)), depth=1), SharedSeed.generate()
        >>> event = matcher.publisher(seed).encode_chunks({"a": 3}, round=0)
        >>> interest = matcher.subscriber(seed).encode_chunks("a > 1", round=0)
        >>> matcher.broker().match_chunks(event, interest)
        True
    """

    matcher: GroupMatch

    def match_chunks(self, events: Iterable[Bytes], interests: Iterable[Bytes]) -> bool:
        """Match one event and one interest whose messages come in pieces.

        Args:
            events: pieces that `encode_chunks` gave, in order, as uint8 arrays of one dimension or
                as bytes; they may be cut elsewhere.
            interests: pieces of the interest, likewise.

        Raises:
            DecodeError: the pieces are not two whole messages of one pair and round, in order, or
                one is not a piece of bytes.
        """
        ours, theirs = PieceReader(events, "event"), PieceReader(interests, "interest")
        head, name = ours.take(ROUND_HEADER_BYTES), self.matcher.digest
        raise_for(check_round_headers(head, theirs.take(ROUND_HEADER_BYTES), name))
        tag = round_tags(head, Kind.EVENT, name)
        answer, cause = self.matcher.match_pieces(ours, theirs, tag)
        raise_for(np.array([cause], dtype=np.uint8))
        return answer


class PieceReader:
    """Message that arrives in pieces, read in pieces of other sizes."""

    def __init__(self, pieces: Iterable[Bytes], name: str) -> None:
        self._pieces, self._name = iter(pieces), name
        self._rest = np.empty(0, dtype=np.uint8)

    def take(self, count: int) -> Bytes:
        """Return the next `count` bytes, shape (1, count).

        Raises:
            DecodeError: fewer bytes are left, or a piece is not of bytes.
        """
        parts, have = [self._rest], len(self._rest)
        while have < count:
            try:
                parts.append(self._array(next(self._pieces)))
            except StopIteration:
                raise DecodeError(f"the {self._name} message ends too early") from None
            have += len(parts[-1])
        whole = np.concatenate(parts) if len(parts) > 1 else parts[0]
        self._rest = whole[count:]
        return np.ascontiguousarray(whole[:count])[None]

    def end(self) -> None:
        """Raise DecodeError if there is more."""
        if len(self._rest) or any(len(self._array(piece)) for piece in self._pieces):
            raise DecodeError(f"the {self._name} message goes on after its end")

    def _array(self, piece: Any) -> Bytes:
        """Return a piece as an array. Nothing is cast: `match` would refuse it, too."""
        array = piece
        if not isinstance(piece, np.ndarray):
            with suppress(TypeError):
                view = memoryview(piece)
                if view.itemsize == 1 and view.ndim == 1 and view.contiguous:
                    array = np.frombuffer(view, dtype=np.uint8)
        if isinstance(array, np.ndarray) and array.dtype == np.uint8 and array.ndim == 1:
            return array
        came = type(piece).__name__
        if isinstance(array, np.ndarray):
            came = f"{array.dtype} {array.shape}"
        raise DecodeError(
            f"a piece of the {self._name} message must be bytes, or a uint8 array of one "
            f"dimension, got {came}"
        )


def _behind(head: Bytes, pieces: Iterator[Bytes]) -> Iterator[Bytes]:
    """Yield the pieces of a message, the first one behind the header.

    The header is written when the first piece is made.
    """
    first = next(pieces)
    yield np.concatenate([head[0], first])
    # Nothing is held while the next piece is made.
    del first
    yield from pieces


def _is_scalar(value: Any) -> bool:
    """Return whether a value is of one record, and not a column."""
    return isinstance(value, (str, bytes)) or not hasattr(value, "__len__")
