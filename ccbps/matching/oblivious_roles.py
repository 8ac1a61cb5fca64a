"""The two roles of `ccbps.matching.oblivious_topic`, and the layout of their messages.

=======  =====================================================================================
message  bytes
=======  =====================================================================================
request  header with a name drawn for the request; three elements
session  header with the request's name; the publisher's name (8); the slot's place (4); two
         elements for each topic of the publisher
event    header with the publisher's name; number (8); the sealed payload, if there are any; a
         slot of 16 or 32 bytes for each request that the publisher has answered
=======  =====================================================================================

Headers are 16 bytes: kind (1), version (1), matcher (6), name (8).

Hazard: roles hold their keys in memory only. A publisher that is made again draws a new name and
needs new sessions; a subscriber that is made again needs new requests.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.ciphers.oblivious import EqCot
from ccbps.ciphers.slots import BLOCK, SlotKey, seal, sealed_bytes, unseal
from ccbps.errors import (
    DecodeError,
    EventError,
    ParameterError,
    PredicateError,
    RandomnessReuseError,
)
from ccbps.keys import Confined
from ccbps.matching.topics import bound_predicate, keyword_codes, keyword_of
from ccbps.predicates import Predicate, Schema
from ccbps.wire import HEADER_BYTES, VERSION

__all__ = ["Layout", "ObliviousPublisher", "ObliviousSubscriber", "Opened"]

Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]
Randomness = Callable[[int], bytes]

EVENT, REQUEST, SESSION = 1, 2, 3
NAME_BYTES: Final = 8
NUMBER_BYTES: Final = 8
PLACE_BYTES: Final = 4
NUMBERED: Final = HEADER_BYTES + NUMBER_BYTES
OPENED: Final = HEADER_BYTES + NAME_BYTES + PLACE_BYTES


@dataclass(frozen=True, slots=True)
class Layout:
    """What both roles know: public."""

    schema: Schema
    attributes: tuple[str, ...]
    payload_bytes: int
    transfer: EqCot
    fingerprint: bytes

    @property
    def request_bytes(self) -> int:
        """Bytes of a request."""
        return HEADER_BYTES + self.transfer.request_bytes

    def session_bytes(self, topics: int) -> int:
        """Bytes of a session with a publisher of that many topics."""
        return OPENED + topics * self.transfer.response_bytes

    @property
    def fixed_bytes(self) -> int:
        """Bytes of an event in front of its slots."""
        return NUMBERED + (sealed_bytes(self.payload_bytes) if self.payload_bytes else 0)

    @property
    def slot_bytes(self) -> int:
        """Bytes of a slot."""
        return 2 * BLOCK if self.payload_bytes else BLOCK

    def event_bytes(self, requests: int) -> int:
        """Bytes of an event of a publisher that has answered that many requests."""
        return self.fixed_bytes + requests * self.slot_bytes

    def topic(self, interest: Any) -> bytes:
        """The topic that a predicate names, as bytes."""
        codes = keyword_of(bound_predicate(self.schema, interest), self.attributes)
        return codes.astype("<u8").tobytes()

    def headers(self, kind: int, names: Bytes) -> Bytes:
        """Headers, one for each row of names."""
        head = np.zeros((len(names), HEADER_BYTES), dtype=np.uint8)
        head[:, :8] = np.frombuffer(bytes([kind, VERSION]) + self.fingerprint[:6], dtype=np.uint8)
        head[:, 8:] = names
        return head

    def context(self, publisher: Bytes, request: Bytes) -> bytes:
        """What a key is bound to."""
        return self.fingerprint + publisher.tobytes() + request.tobytes()

    def check(self, messages: Bytes, kind: int, fixed: int, step: int, name: str) -> int:
        """How many parts of `step` bytes follow the first `fixed` ones.

        Raises:
            DecodeError: these are no such messages of this matcher; names rows.
        """
        if not isinstance(messages, np.ndarray) or messages.dtype != np.uint8 or messages.ndim != 2:
            raise DecodeError(
                f"{name}s must be a uint8 array of shape (batch, bytes), "
                f"got {type(messages).__name__}"
            )
        width = messages.shape[1]
        if width != fixed if not step else width < fixed or (width - fixed) % step:
            more = f" and a multiple of {step}" if step else ""
            raise DecodeError(f"{name}s have {fixed} bytes{more}, got {width}")
        wanted = self.headers(kind, np.zeros((1, NAME_BYTES), dtype=np.uint8))[0, :8]
        bad = tuple(np.flatnonzero((messages[:, :8] != wanted).any(axis=1)).tolist())
        if bad:
            cause = f"not a {name} of this version and matcher"
            raise DecodeError(f"row {bad[0]}: {cause}", rows=bad, causes=(cause,) * len(bad))
        return (width - fixed) // step if step else 0


class ObliviousPublisher(Confined):
    """Answers requests once, and encrypts events. Made by `ObliviousTopicMatch.publisher`."""

    def __init__(
        self, layout: Layout, topics: Iterable[Any], randomness: Randomness = os.urandom
    ) -> None:
        if isinstance(topics, (str, Predicate)):
            raise ParameterError("topics must be a list of predicates, got a single one")
        self._layout, self._randomness = layout, randomness
        names = [layout.topic(topic) for topic in topics]
        if not names or len(set(names)) < len(names):
            raise ParameterError("a publisher needs one topic or more, each once")
        # Their places tell nothing about the topics.
        draws = np.frombuffer(randomness(16 * len(names)), dtype=np.uint8).reshape(-1, 16)
        self._topics = [names[place] for place in np.lexsort(draws.T)]
        self._place = {topic: place for place, topic in enumerate(self._topics)}
        self._name = np.frombuffer(randomness(NAME_BYTES), dtype=np.uint8)
        self._keys: list[list[SlotKey]] = [[] for _ in self._topics]
        self._next, self._lock, self._process = 0, Lock(), os.getpid()

    def __repr__(self) -> str:
        return f"<ObliviousPublisher of {len(self._topics)} topics, {self.requests} requests>"

    @property
    def requests(self) -> int:
        """How many requests have been answered."""
        return len(self._keys[0])

    def answer(self, requests: Bytes) -> Bytes:
        """Open sessions: one answer to each request, with a part for each topic.

        Args:
            requests: uint8, shape (count, request_bytes).

        Returns:
            uint8, shape (count, session_bytes(topics)); for the subscribers.

        Raises:
            DecodeError: some bytes are not requests of this matcher, or hold no elements of the
                group; names rows, and answers none.
        """
        layout, cot = self._layout, self._layout.transfer
        layout.check(requests, REQUEST, layout.request_bytes, 0, "request")
        count, topics, size = len(requests), len(self._topics), cot.response_bytes
        out = np.zeros((count, layout.session_bytes(topics)), dtype=np.uint8)
        if not count:
            return out
        names = requests[:, 8:HEADER_BYTES]
        out[:, :HEADER_BYTES] = layout.headers(SESSION, names)
        out[:, HEADER_BYTES : HEADER_BYTES + NAME_BYTES] = self._name
        places = np.arange(self.requests, self.requests + count, dtype="<u4")
        out[:, OPENED - PLACE_BYTES : OPENED] = places.view(np.uint8).reshape(-1, PLACE_BYTES)
        contexts = [layout.context(self._name, name) for name in names]
        keys, responses = cot.respond(
            requests[:, HEADER_BYTES:],
            self._topics * count,
            [context for context in contexts for _ in range(topics)],
            self._randomness,
            of=[row for row in range(count) for _ in range(topics)],
        )
        out[:, OPENED:] = responses.reshape(count, topics * size)
        for place, known in enumerate(self._keys):
            known += [SlotKey(key) for key in keys[place::topics]]
        return out

    def encode(self, events: Any, payloads: Sequence[bytes] | None = None) -> Bytes:
        """Messages for everybody.

        Args:
            events: `Events`, or any records `Schema.encode` takes.
            payloads: one for each event, of at most `payload_bytes` bytes; none if that is 0.

        Returns:
            uint8, shape (events, event_bytes(requests)).

        Raises:
            EventError: a record does not fit the schema, or is of none of the publisher's topics.
            ParameterError: payloads do not fit.
        """
        layout = self._layout
        batch = layout.schema.encode(events)
        places = self._places(keyword_codes(batch, layout.attributes))
        if payloads is not None and not layout.payload_bytes:
            raise ParameterError("this matcher has no payloads: make it with payload_bytes")
        payloads = [b""] * batch.count if payloads is None else payloads
        if len(payloads) != batch.count:
            raise ParameterError(f"{len(payloads)} payloads do not go with {batch.count} events")
        out = np.zeros((batch.count, layout.event_bytes(self.requests)), dtype=np.uint8)
        if not batch.count:
            return out
        names = np.broadcast_to(self._name, (batch.count, NAME_BYTES))
        out[:, :HEADER_BYTES] = layout.headers(EVENT, names)
        if os.getpid() != self._process:
            raise RandomnessReuseError(
                "a publisher cannot encode after a fork: its event numbers would be used twice; "
                "make one in each process"
            )
        with self._lock:  # Never used again under the same keys, whatever happens now.
            numbers = np.arange(self._next, self._next + batch.count, dtype="<u8")
            self._next += batch.count
        out[:, HEADER_BYTES:NUMBERED] = numbers.view(np.uint8).reshape(-1, NUMBER_BYTES)
        keys = None
        if layout.payload_bytes:
            drawn = self._randomness(BLOCK * batch.count)
            keys = np.frombuffer(drawn, dtype=np.uint8).reshape(-1, BLOCK)
            sealed = seal(payloads, layout.payload_bytes, keys, out[:, :NUMBERED])
            out[:, NUMBERED : layout.fixed_bytes] = sealed
        for place in np.unique(places).tolist():
            rows = np.flatnonzero(places == place)
            wrapped = None if keys is None else keys[rows]
            for slot, key in enumerate(self._keys[place]):
                start = layout.event_bytes(slot)
                stop = start + layout.slot_bytes
                out[rows, start:stop] = key.slots(numbers[rows], wrapped)
        return out

    def _places(self, codes: NDArray[np.uint64]) -> NDArray[np.intp]:
        distinct, index = np.unique(codes, axis=0, return_inverse=True)
        found = [self._place.get(row.tobytes(), -1) for row in distinct.astype("<u8")]
        places = np.array(found, dtype=np.intp)[index.reshape(-1)]
        bad = np.flatnonzero(places < 0)
        if len(bad):
            raise EventError(
                f"row {bad[0]} is of none of this publisher's topics ({len(bad)} such rows); "
                "make a publisher with all topics it has events of",
                row=int(bad[0]),
            )
        return places


@dataclass(frozen=True, slots=True, repr=False)
class Opened:
    """What a subscriber reads of a batch of events.

    Attributes:
        matched: which events are of which of its topics, bool (events, interests).
        payloads: of each event that is of one of them, None for the others.
    """

    matched: Bools
    payloads: list[bytes | None]

    def __repr__(self) -> str:
        return f"<Opened: {len(self.payloads)} events>"


class ObliviousSubscriber(Confined):
    """Asks for topics and opens events. Made by `ObliviousTopicMatch.subscriber`."""

    def __init__(self, layout: Layout, randomness: Randomness = os.urandom) -> None:
        self._layout, self._randomness = layout, randomness
        # By name: the secret and the place of the interest. By publisher and interest: the slot's
        # place, and a key for each of the publisher's topics.
        self._requests: dict[bytes, tuple[int, int]] = {}
        self._sessions: dict[bytes, dict[int, tuple[int, list[SlotKey]]]] = {}

    def __repr__(self) -> str:
        return f"<ObliviousSubscriber of {len(self._requests)} interests>"

    def encode(self, interest: Any | Iterable[Any]) -> Bytes:
        """Requests for one topic, or for a list of them; for every publisher.

        Returns:
            uint8, shape (interests, request_bytes).

        Raises:
            PredicateError: a predicate does not parse, does not fit the schema, or does not name
                one topic; `row` says which of several.
        """
        one = isinstance(interest, (str, Predicate)) or not isinstance(interest, Iterable)
        words = []
        for row, value in enumerate([interest] if one else interest):
            try:
                words.append(self._layout.topic(value))
            except PredicateError as error:
                error.row = row
                raise
        out = np.zeros((len(words), self._layout.request_bytes), dtype=np.uint8)
        if not words:
            return out
        secrets, rows = self._layout.transfer.request(words, self._randomness)
        drawn = self._randomness(NAME_BYTES * len(words))
        names = np.frombuffer(drawn, dtype=np.uint8).reshape(-1, NAME_BYTES)
        out[:, :HEADER_BYTES] = self._layout.headers(REQUEST, names)
        out[:, HEADER_BYTES:] = rows
        for name, secret in zip(names, secrets, strict=True):
            self._requests[name.tobytes()] = int(secret), len(self._requests)
        return out

    def accept(self, sessions: Bytes) -> int:
        """Take a publisher's answers to this subscriber's requests; others are passed over.

        Returns:
            How many were its own.

        Raises:
            DecodeError: some bytes are not sessions of this matcher, or hold no elements of the
                group; accepts none.
        """
        layout, cot = self._layout, self._layout.transfer
        topics = layout.check(sessions, SESSION, OPENED, cot.response_bytes, "session")
        taken = []
        for row, session in enumerate(sessions):
            own = self._requests.get(session[8:HEADER_BYTES].tobytes())
            if own is None:
                continue
            name = session[HEADER_BYTES : HEADER_BYTES + NAME_BYTES]
            context = layout.context(name, session[8:HEADER_BYTES])
            responses = session[OPENED:].reshape(topics, cot.response_bytes)
            try:
                keys = cot.finish([own[0]] * topics, responses, [context] * topics)
            except DecodeError as error:
                causes = error.causes[:1]
                raise DecodeError(f"row {row}: {causes[0]}", rows=(row,), causes=causes) from None
            place = int.from_bytes(session[OPENED - PLACE_BYTES : OPENED].tobytes(), "little")
            taken.append((name.tobytes(), own[1], place, [SlotKey(key) for key in keys]))
        for publisher, interest, place, ciphers in taken:
            self._sessions.setdefault(publisher, {})[interest] = place, ciphers
        return len(taken)

    def open(self, events: Bytes) -> Opened:
        """What the events say to this subscriber.

        Raises:
            DecodeError: some bytes are not events of this matcher, or of a publisher whose sessions
                were not accepted; or a payload was altered. Names rows.
        """
        layout = self._layout
        fixed, size = layout.fixed_bytes, layout.slot_bytes
        slots = layout.check(events, EVENT, fixed, size, "event")
        out = Opened(
            np.zeros((len(events), len(self._requests)), dtype=np.bool_), [None] * len(events)
        )
        words = np.ascontiguousarray(events[:, 8:NUMBERED]).view("<u8")
        for name in np.unique(words[:, 0]):
            rows = np.flatnonzero(words[:, 0] == name)
            sessions = self._sessions.get(name.tobytes())
            if sessions is None:
                cause = "of a publisher whose sessions were not accepted"
                raise DecodeError(
                    f"row {rows[0]}: {cause}; call accept with what its answer method made",
                    rows=tuple(rows.tolist()),
                    causes=(cause,) * len(rows),
                )
            for interest, (place, keys) in sessions.items():
                if place >= slots:  # The events are older than the session.
                    continue
                own = events[rows, fixed + place * size : fixed + (place + 1) * size]
                for key in keys:
                    same = key.recognizes(words[rows, 1], own)
                    out.matched[rows[same], interest] = True
                    if layout.payload_bytes and same.any():
                        opened = key.payload_keys(words[rows[same], 1], own[same])
                        self._unseal(events, rows[same], opened, out.payloads)
        return out

    def _unseal(
        self, events: Bytes, rows: NDArray[np.intp], keys: Bytes, payloads: list[bytes | None]
    ) -> None:
        for row, key in zip(rows.tolist(), keys, strict=True):
            if payloads[row] is not None:
                continue
            head = events[row, :NUMBERED].tobytes()
            sealed = events[row, NUMBERED : self._layout.fixed_bytes].tobytes()
            try:
                payloads[row] = unseal(sealed, key.tobytes(), head)
            except DecodeError as error:
                text = str(error)
                raise DecodeError(f"row {row}: {text}", rows=(row,), causes=(text,)) from None
