"""What the group-program matchers have in common: messages of blinded elements, in segments.

A matcher of this family knows two things: which input bit each of the publisher's elements takes
(public), and the interstitial elements of a subscription (private). Everything else is here:
blinding for a batch of short programs at once, or segment by segment for programs longer than
memory; the broker's product; and what the broker learns.

Messages of several segments may arrive in pieces, and pieces get lost or mixed up. So the segments
behind the first one, and the subscriber's last element, carry the message's tag plus their number
in the message: a segment that is from another message, or out of place, is refused and not
multiplied. A tag is eight bytes that both messages of a round have in their headers anyway
(`ccbps.wire`), so this tells nobody anything new.

Hazard: tags find mistakes. Whoever alters a message can copy them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra import A5, S5, Group
from ccbps.arrays import Bools, Bytes, Index, Ranks, Rounds
from ccbps.circuits import Circuit
from ccbps.circuits.bristol import BristolCircuit
from ccbps.circuits.rewriting import balance, without_xor
from ccbps.dictionary import DictionaryColumn
from ccbps.encodings.group import LAYOUT, TRAILER_BYTES, GroupEncoding, Segment
from ccbps.errors import (
    DecodeError,
    PadExhaustedError,
    ParameterError,
    UnsupportedPredicateError,
)
from ccbps.inputs.circuit import event_bits, predicate_circuit
from ccbps.keys.seeds import Pairs, RandomnessReader, RandomnessSource
from ccbps.leakage import LeakageCard
from ccbps.matching.matcher import Matcher
from ccbps.matching.parameters import ROLES, Cost, bound_predicate, fingerprint_of
from ccbps.matching.roles import Interest
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.schema import Events
from ccbps.programs.barrington import fixed_structure, preserving_length
from ccbps.programs.group import PreservingProgram
from ccbps.wire import (
    HEADER_BYTES,
    TAG_BYTES,
    Cause,
    Kind,
    check_headers,
    raise_for,
    write_header,
)

__all__ = ["GROUPS", "GroupMatch", "depth_within", "program_within"]


GROUPS: Final[Mapping[str, Group]] = {"A5": A5, "S5": S5}
BLOCK_POSITIONS: Final = 1 << 20
"""Positions encoded or decoded at a time: short programs go together, up to this many."""


class GroupMatch(Matcher):
    """A matcher by blinded group programs.

    Attributes:
        group: where the elements are.
        length: l, elements of the publisher; the subscriber has l + 1.
        encoding: the two encoders and the decoder.
    """

    scheme: ClassVar[str]
    _positions: Index
    """The index sequence, where it is at hand and not made piece by piece."""

    def _set_up(
        self, schema: Schema, group: str | Group, length: int, parameters: Mapping[str, Any]
    ) -> None:
        self.schema = schema
        self.group = self._group_of(group)
        self.length = length
        self.private_names = None
        self.encoding = GroupEncoding(self.group, length)
        self.event_bytes = HEADER_BYTES + self.encoding.event_bytes
        self.interest_bytes = HEADER_BYTES + self.encoding.interest_bytes
        self._width = TAG_BYTES + self.encoding.segment_randomness
        self.randomness_bytes = len(self.encoding.segments) * self._width
        described = {
            "scheme": f"{self.scheme} 1",
            "schema": schema.describe(),
            "group": self.group.name,
            "length": length,
            "layout": [LAYOUT, self.encoding.segment, self.encoding.segment_randomness],
            **parameters,
        }
        self.fingerprint = fingerprint_of(described)

    @staticmethod
    def _group_of(group: str | Group) -> Group:
        """A group by its name."""
        if isinstance(group, Group):
            return group
        if not isinstance(group, str) or group not in GROUPS:
            raise ParameterError(
                f"group must be one of {', '.join(map(repr, GROUPS))}, got {group!r}"
            )
        return GROUPS[group]

    @property
    def elements(self) -> int:
        """Elements in the broker's product, 2 l + 1."""
        return 2 * self.length + 1

    def _index(self, start: int, stop: int) -> Index:
        """Which event bit each of the publisher's elements start .. stop - 1 takes."""
        return self._positions[start:stop]

    def _interstitials(self, interest: PreservingProgram, start: int, stop: int) -> Ranks:
        """The subscriber's elements start .. stop - 1 of l + 1, for a prepared interest."""
        return interest.interstitials[start:stop]

    @property
    @abstractmethod
    def _public(self) -> str:
        """The public parameters, in words."""

    @property
    @abstractmethod
    def _hidden(self) -> str:
        """What is hidden of a subscription, in words."""

    @property
    def leakage(self) -> LeakageCard:
        """What the broker learns."""
        return self._perfect(self._public, self._hidden)

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role for a pair."""
        count = 2 * self.length
        return tuple(Cost(role, "pair", "group product", count) for role in ROLES)

    def explain(self) -> str:
        """Program size, bytes per side, predicted operations and the leakage card, as text."""
        length = self.length
        return self._explain(
            f"{type(self).__name__} over {', '.join(self.schema)} ({self.schema.bits} bits)",
            [
                ("public", self._public),
                ("group", f"{self.group.name}, {self.group.order} elements"),
                ("segments", f"{len(self.encoding.segments)}"),
                (
                    "program",
                    f"{self.elements:,} elements: {length:,} of the publisher, "
                    f"{length + 1:,} of the subscriber",
                ),
                (
                    "operations",
                    "group products per pair: "
                    + ", ".join(f"{cost.role} {cost.count:,}" for cost in self.costs),
                ),
            ],
        )

    # -- randomness ---------------------------------------------------------------------------

    def _reader(
        self, source: RandomnessSource, rounds: Rounds, pairs: Pairs | None
    ) -> RandomnessReader:
        """One row of randomness per segment: round r has rows r * segments and following."""
        segments = len(self.encoding.segments)
        if segments == 1:
            return source.reader(self.fingerprint, self._width, rounds, pairs)
        if len(rounds) and int(rounds.max()) >= (1 << 64) // segments:
            raise ParameterError(
                f"rounds must be below {(1 << 64) // segments} for messages of {segments} "
                f"segments, got {int(rounds.max())}"
            )
        parts = np.arange(segments, dtype=np.uint64)
        rows = (rounds[:, None] * np.uint64(segments) + parts).reshape(-1)
        if pairs is not None:
            pairs = DictionaryColumn(pairs.values, np.repeat(pairs.index, segments))
        try:
            return source.reader(self.fingerprint, self._width, rows, pairs)
        except PadExhaustedError:
            raise PadExhaustedError(
                f"round {int(rounds.max())} lies beyond the pad: a round takes "
                f"{self.randomness_bytes} bytes"
            ) from None

    def _blocks(self, batch: int) -> Iterator[slice]:
        """Rows that are encoded together."""
        segments = self.encoding.segments
        rows = 1 if len(segments) > 1 else max(1, BLOCK_POSITIONS // segments[0].padded)
        for start in range(0, batch, rows):
            yield slice(start, min(start + rows, batch))

    def _drawn(
        self, kind: Kind, reader: RandomnessReader, at: slice, number: int, out: Bytes
    ) -> Bytes:
        """The randomness of segment `number` of some rows; the first one writes the headers."""
        first = at.start * len(self.encoding.segments) + number
        rows = reader(first, first + at.stop - at.start)
        if number == 0:
            write_header(out[at], kind, self.fingerprint, rows[:, :TAG_BYTES])
        return rows[:, TAG_BYTES:]

    def _content(self, prepared: PreservingProgram) -> bytes:
        return prepared.interstitials.tobytes() + prepared.index.tobytes()

    # -- encoding -----------------------------------------------------------------------------

    def _raw_event(self, bits: Bools, segment: Segment) -> NDArray[Any]:
        """A segment of the publisher's elements. `bits` has a last column of zeros, for `NONE`."""
        index = self._index(segment.start, segment.stop)
        return self.encoding.raw_event(np.take(bits, index, axis=1, mode="wrap"), segment)

    def _raw_interests(self, interests: Sequence[Any], segment: Segment) -> NDArray[Any]:
        """A segment of the subscriber's elements, for each of some prepared interests."""
        at = segment.start, segment.stop
        ranks = np.stack([self._interstitials(interest, *at) for interest in interests])
        return self.encoding.raw_interest(ranks, segment)

    def _encode_events(self, events: Events, reader: RandomnessReader, out: Bytes) -> None:
        bits = _with_zero(event_bits(events))
        for at in self._blocks(len(out)):
            body = out[at, HEADER_BYTES:]
            for number, segment in enumerate(self.encoding.segments):
                random = self._drawn(Kind.EVENT, reader, at, number, out)
                if number:
                    body[:, segment.tag] = _tags(out[at], number, Kind.EVENT)
                raw = self._raw_event(bits[at], segment)
                self.encoding.encode_event(raw, random, segment, body)

    def _encode_interests(
        self, interests: DictionaryColumn[Any], reader: RandomnessReader, out: Bytes
    ) -> None:
        encoding, made = self.encoding, _Latest()
        for at in self._blocks(len(out)):
            rows = interests.index[at]
            body = out[at, HEADER_BYTES:]
            carried = np.zeros(len(rows), dtype=np.uint8)
            used, place = np.unique(rows, return_inverse=True)
            for number, segment in enumerate(encoding.segments):
                random = self._drawn(Kind.INTEREST, reader, at, number, out)
                if number:
                    body[:, segment.tag] = _tags(out[at], number, Kind.INTEREST)
                key = (number, used.tobytes())
                if made.key != key:
                    values = [interests.values[i] for i in used]
                    made.key, made.value = key, self._raw_interests(values, segment)
                raw = self.group.take(made.value, place)
                carried = encoding.encode_interest(raw, carried, random, segment, body)
            last = [self._last(interests.values[i]) for i in used]
            encoding.finish_interest(np.array(last, dtype=np.uint8)[place], carried, body)
            body[:, 1 - TRAILER_BYTES :] = self._end_tags(out[at])

    def _last(self, interest: Any) -> int:
        return int(self._interstitials(interest, self.length, self.length + 1)[0])

    def _end_tags(self, heads: Bytes) -> Bytes:
        """What stands behind the last element: as much of its tag as there is room for."""
        return _tags(heads, len(self.encoding.segments), Kind.INTEREST)[:, : TRAILER_BYTES - 1]

    # -- matching -----------------------------------------------------------------------------

    def _examine(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bytes]:
        batch, encoding = len(events), self.encoding
        events, interests = _with_contiguous_rows(events), _with_contiguous_rows(interests)
        heads = [np.ascontiguousarray(m[:, :HEADER_BYTES]) for m in (events, interests)]
        causes = check_headers(heads[0], heads[1], self.fingerprint)
        answers = np.zeros(batch, dtype=np.bool_)
        for at in self._blocks(batch):
            theirs, ours = interests[at, HEADER_BYTES:], events[at, HEADER_BYTES:]
            product = np.zeros(at.stop - at.start, dtype=np.uint8)
            valid = np.ones(at.stop - at.start, dtype=np.bool_)
            placed = (theirs[:, 1 - TRAILER_BYTES :] == self._end_tags(heads[1][at])).all(axis=1)
            for number, segment in enumerate(encoding.segments):
                place = segment.place
                if number:
                    for body, head, kind in zip((ours, theirs), heads, Kind, strict=True):
                        tags = _tags(head[at], number, kind)
                        placed &= (body[:, segment.tag] == tags).all(axis=1)
                part, good = encoding.decode_segment(ours[:, place], theirs[:, place])
                product = self.group.multiplication[product, part]
                valid &= good
            answers[at], impossible = encoding.finish(product, theirs[:, -TRAILER_BYTES:])
            fresh = causes[at] == Cause.NONE
            causes[at][fresh & impossible] = Cause.PRODUCT
            causes[at][fresh & ~valid] = Cause.ELEMENT
            causes[at][fresh & ~placed] = Cause.SEGMENT
        return answers, causes

    # -- one message in pieces ----------------------------------------------------------------

    def _event_chunks(self, event: Events, reader: RandomnessReader) -> Iterator[Bytes]:
        bits = _with_zero(event_bits(event))
        head = np.empty((1, HEADER_BYTES), dtype=np.uint8)
        for number, segment in enumerate(self.encoding.segments):
            random = self._drawn(Kind.EVENT, reader, slice(0, 1), number, head)
            alone, out = self._alone(segment)
            self.encoding.encode_event(self._raw_event(bits, segment), random, alone, out)
            front = _tags(head, number, Kind.EVENT) if number else head
            yield np.concatenate([front[0], out[0]])

    def _interest_chunks(self, interest: Any, reader: RandomnessReader) -> Iterator[Bytes]:
        head = np.empty((1, HEADER_BYTES), dtype=np.uint8)
        carried = np.zeros(1, dtype=np.uint8)
        for number, segment in enumerate(self.encoding.segments):
            random = self._drawn(Kind.INTEREST, reader, slice(0, 1), number, head)
            alone, out = self._alone(segment)
            raw = self._raw_interests([interest], segment)
            carried = self.encoding.encode_interest(raw, carried, random, alone, out)
            front = _tags(head, number, Kind.INTEREST) if number else head
            yield np.concatenate([front[0], out[0]])
        trailer = np.empty((1, TRAILER_BYTES), dtype=np.uint8)
        last = np.array([self._last(interest)], dtype=np.uint8)
        self.encoding.finish_interest(last, carried, trailer)
        trailer[:, 1:] = self._end_tags(head)
        yield trailer[0]

    @staticmethod
    def _alone(segment: Segment) -> tuple[Segment, Bytes]:
        """The segment as if it were a message of its own, and room for it, without its tag."""
        width = segment.place.stop - segment.place.start
        moved = Segment(segment.start, segment.stop, segment.padded, slice(0, width))
        return moved, np.empty((1, width), dtype=np.uint8)

    def _match_chunks(self, events: Iterable[Bytes], interests: Iterable[Bytes]) -> bool:
        ours, theirs = _Pieces(events, "event"), _Pieces(interests, "interest")
        head = ours.take(HEADER_BYTES)
        raise_for(check_headers(head, theirs.take(HEADER_BYTES), self.fingerprint))
        product, valid = np.zeros(1, dtype=np.uint8), True
        for number, segment in enumerate(self.encoding.segments):
            if number:
                for message, kind in zip((ours, theirs), Kind, strict=True):
                    # At once: what follows is of no use, and a wrong order shows here.
                    if not np.array_equal(message.take(TAG_BYTES), _tags(head, number, kind)):
                        _refuse(Cause.SEGMENT)
            width = segment.place.stop - segment.place.start
            part, good = self.encoding.decode_segment(ours.take(width), theirs.take(width))
            product = self.group.multiplication[product, part]
            valid = valid and bool(good[0])
        trailer = theirs.take(TRAILER_BYTES)
        answers, impossible = self.encoding.finish(product, trailer)
        ours.end()
        theirs.end()
        if not np.array_equal(trailer[:, 1:], self._end_tags(head)):
            _refuse(Cause.SEGMENT)
        cause = Cause.PRODUCT if impossible[0] else Cause.NONE
        _refuse(cause if valid else Cause.ELEMENT)
        return bool(answers[0])


def program_within(
    schema: Schema, interest: Interest, length: int, group: Group
) -> PreservingProgram:
    """A subscription as a program of fixed structure over the schema's bits.

    Args:
        interest: SQL text, a `Predicate`, or a `Circuit` over the schema's bits.
        length: instructions that the program is filled up to.

    Raises:
        PredicateError: the predicate does not parse, has no value for a private constant, or needs
            more instructions.
        ParameterError: a circuit has another number of inputs, or not one output.
    """
    text = ""
    if isinstance(interest, (str, Predicate)):
        predicate = bound_predicate(schema, interest)
        circuit, text = predicate_circuit(predicate), predicate.text
    elif isinstance(interest, Circuit):
        if interest.inputs != schema.bits:
            raise ParameterError(
                f"the circuit must have {schema.bits} inputs, one for each bit of the schema, "
                f"got {interest.inputs}"
            )
        if len(interest.outputs) != 1:
            raise ParameterError(f"the circuit must have one output, got {len(interest.outputs)}")
        circuit = min(interest, balance(without_xor(interest)), key=preserving_length)
    else:
        hint = "; pass its most_significant_first()" if isinstance(interest, BristolCircuit) else ""
        raise ParameterError(
            "an interest is a predicate (SQL text or Predicate) or a Circuit, "
            f"got {type(interest).__name__}{hint}"
        )
    needed = preserving_length(circuit)
    if needed > length:
        raise UnsupportedPredicateError(
            f"the predicate's circuit has depth {circuit.depth} and its program {needed:,} "
            f"instructions; this matcher takes {length:,}, enough for any of depth "
            f"{depth_within(length)}: use a matcher of greater depth or length, or a simpler "
            "predicate",
            text=text,
        )
    return fixed_structure(circuit, length, group)


def depth_within(length: int) -> int:
    """The greatest depth d with 4^d <= length: of circuits whose programs certainly fit."""
    return (length.bit_length() - 1) // 2


class _Latest:
    """The elements that were made last, and what for: often the next rows want them again."""

    def __init__(self) -> None:
        self.key: tuple[int, bytes] | None = None
        self.value: NDArray[Any] = np.empty(0)


class _Pieces:
    """A message that arrives in pieces, read in pieces of other sizes."""

    def __init__(self, pieces: Iterable[Bytes], name: str) -> None:
        self._pieces, self._name = iter(pieces), name
        self._rest = np.empty(0, dtype=np.uint8)

    def take(self, count: int) -> Bytes:
        """The next `count` bytes, shape (1, count)."""
        parts, have = [self._rest], len(self._rest)
        while have < count:
            piece = next(self._pieces, None)
            if piece is None:
                raise DecodeError(f"the {self._name} message ends too early")
            parts.append(piece)
            have += len(piece)
        whole = np.concatenate(parts) if len(parts) > 1 else parts[0]
        self._rest = whole[count:]
        return np.ascontiguousarray(whole[:count])[None]

    def end(self) -> None:
        if len(self._rest) or any(len(piece) for piece in self._pieces):
            raise DecodeError(f"the {self._name} message goes on after its end")


def _tags(messages: Bytes, number: int, kind: Kind) -> Bytes:
    """The tags of part `number`: those of the messages' headers plus it; shape (batch, 8).

    In interests their highest bit is turned, so that parts of the two sides are not taken for each
    other.
    """
    side = np.uint64((kind == Kind.INTEREST) << 63)
    tags = np.ascontiguousarray(messages[:, HEADER_BYTES - TAG_BYTES : HEADER_BYTES])
    return (tags.view("<u8") + np.uint64(number) ^ side).astype("<u8", copy=False).view(np.uint8)


def _refuse(cause: Cause) -> None:
    """Raise for the cause of a single message, if there is one."""
    raise_for(np.array([cause], dtype=np.uint8))


def _with_contiguous_rows(messages: Bytes) -> Bytes:
    return messages if messages.strides[1] == 1 else np.ascontiguousarray(messages)


def _with_zero(bits: Bools) -> Bools:
    """Bits with one more column, of zeros: where an index of `NONE` (-1) leads."""
    out = np.zeros((bits.shape[0], bits.shape[1] + 1), dtype=np.bool_)
    out[:, :-1] = bits
    return out
