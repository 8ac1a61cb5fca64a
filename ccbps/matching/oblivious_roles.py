"""The two roles of `ccbps.matching.oblivious_topic`.

Both can be kept: `key` holds all of a role; `publisher_from` and `subscriber_from` of the matcher
make it again.

Hazards: a key is a copy of its role at that moment. A publisher that is restored from an old key
counts through the same event numbers again, which shows events that are alike, and opens payloads
to who knows one of two: save the key again after each use of the counter, or give `encode` numbers
from a source that never goes back. Within one role, `encode` sees to it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccbps.ciphers.slots import (
    EventNumbers,
    SlotKey,
    check_payloads,
    joined_keys,
    seal,
    sealing_keys,
    split_keys,
    unseal,
)
from ccbps.errors import (
    DecodeError,
    EventError,
    KeyMismatchError,
    ParameterError,
    PredicateError,
)
from ccbps.keys import Confined
from ccbps.matching.role_keys import KEY_ID_BYTES, RoleKey
from ccbps.matching.topics import keyword_codes
from ccbps.predicates import Predicate
from ccbps.wire import HEADER_BYTES

if TYPE_CHECKING:
    from ccbps.matching.oblivious_topic import Layout

__all__ = ["ObliviousPublisher", "ObliviousSubscriber", "Opened"]

Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]
Randomness = Callable[[int], bytes]

EVENT, REQUEST, SESSION = 1, 2, 3
NAME_BYTES: Final = 8
NUMBER_BYTES: Final = 8
PLACE_BYTES: Final = 4
NUMBERED: Final = HEADER_BYTES + NUMBER_BYTES
OPENED: Final = HEADER_BYTES + NAME_BYTES + PLACE_BYTES

_DAMAGED: Final = "this role key is damaged: take the text that the role's key.to_text() wrote"
_UNKNOWN: Final = "of a publisher whose sessions were not accepted; call accept with its answers"


class ObliviousPublisher(Confined):
    """Answers requests once, and encrypts events. Made by `ObliviousTopicMatch.publisher`."""

    def __init__(self, layout: Layout, key: RoleKey, randomness: Randomness = os.urandom) -> None:
        layout.check_key(key, "publisher")
        self._layout, self._randomness = layout, randomness
        problem = True
        # No secret in a local variable: tracebacks may show those.
        with contextlib.suppress(LookupError, TypeError, ValueError):
            self._name = np.frombuffer(
                bytes.fromhex(key.export_secret_data()["name"]), dtype=np.uint8
            )
            self._topics = [bytes.fromhex(topic) for topic in key.export_secret_data()["topics"]]
            self._keys = [split_keys(keys) for keys in key.export_secret_data()["keys"]]
            self._payload = SlotKey(bytes.fromhex(key.export_secret_data()["payload"]))
            self._numbers = EventNumbers(int(key.export_secret_data()["next"], 16))
            same = len({len(keys) for keys in self._keys}) == 1
            fits = len(self._keys) == len(self._topics) and len(self._name) == NAME_BYTES
            problem = not (same and fits and 0 <= self._numbers.next <= 1 << 64)
        if problem:
            raise KeyMismatchError(_DAMAGED)
        self._place = {topic: place for place, topic in enumerate(self._topics)}

    @property
    def key(self) -> RoleKey:
        """All of this role, to keep it: topics, sessions, and the next number of its counter.

        Save it again after `answer`, or a restored role lacks sessions; and after `encode` without
        `numbers`, or a restored role counts through the same numbers again.
        """
        data = {
            "name": self._name.tobytes().hex(),
            "topics": [topic.hex() for topic in self._topics],
            "keys": [joined_keys(keys) for keys in self._keys],
            "payload": self._payload.export_secret().hex(),
            "next": f"{self._numbers.next:x}",
        }
        name = self._name[:KEY_ID_BYTES].tobytes()
        return RoleKey.make(self._layout.fingerprint, "publisher", name, 0, data)

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

    def encode(
        self,
        events: Any,
        payloads: Sequence[bytes] | None = None,
        numbers: ArrayLike | None = None,
    ) -> Bytes:
        """Messages for everybody. The same event, payload and number give the same message.

        Args:
            events: `Events`, or any records `Schema.encode` takes.
            payloads: one for each event, of at most `payload_bytes` bytes; none if that is 0.
            numbers: uint64, shape (events,), each for one event ever and public; None to count on.
                The counter goes on beyond the greatest number used.

        Returns:
            uint8, shape (events, event_bytes(requests)).

        Raises:
            EventError: a record does not fit the schema, or is of none of the publisher's topics.
            ParameterError: payloads or numbers do not fit.
            RandomnessReuseError: this role has used a number, or an earlier one may have: smaller
                ones than the counter's in the key it was restored from. Encodes nothing.
        """
        layout = self._layout
        batch = layout.schema.encode(events)
        places = self._places(keyword_codes(batch, layout.attributes))
        if payloads is not None and not layout.payload_bytes:
            raise ParameterError("this matcher has no payloads: make it with payload_bytes")
        payloads = [b""] * batch.count if payloads is None else payloads
        if len(payloads) != batch.count:
            raise ParameterError(f"{len(payloads)} payloads do not go with {batch.count} events")
        check_payloads(payloads, layout.payload_bytes)
        out = np.zeros((batch.count, layout.event_bytes(self.requests)), dtype=np.uint8)
        taken = self._numbers.take(batch.count, numbers)
        if not batch.count:
            return out
        names = np.broadcast_to(self._name, (batch.count, NAME_BYTES))
        out[:, :HEADER_BYTES] = layout.headers(EVENT, names)
        out[:, HEADER_BYTES:NUMBERED] = taken.astype("<u8").view(np.uint8).reshape(-1, NUMBER_BYTES)
        keys = None
        if layout.payload_bytes:
            keys = sealing_keys(self._payload, taken, payloads)
            sealed = seal(payloads, layout.payload_bytes, keys, out[:, :NUMBERED])
            out[:, NUMBERED : layout.fixed_bytes] = sealed
        for place in np.unique(places).tolist():
            rows = np.flatnonzero(places == place)
            wrapped = None if keys is None else keys[rows]
            for slot, key in enumerate(self._keys[place]):
                start = layout.event_bytes(slot)
                stop = start + layout.slot_bytes
                out[rows, start:stop] = key.slots(taken[rows], wrapped)
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

    def __init__(self, layout: Layout, key: RoleKey, randomness: Randomness = os.urandom) -> None:
        layout.check_key(key, "subscriber")
        self._layout, self._id, self._randomness = layout, key.key_id, randomness
        # By name: the secret and the place of the interest. By publisher and interest: the slot's
        # place, and a key for each of the publisher's topics.
        self._requests: dict[bytes, tuple[int, int]] = {}
        self._sessions: dict[bytes, dict[int, tuple[int, list[SlotKey]]]] = {}
        problem = True
        with contextlib.suppress(LookupError, TypeError, ValueError):
            for place, row in enumerate(key.export_secret_data()["requests"]):
                self._requests[bytes.fromhex(row[0])] = int(row[1], 16), place
            for row in key.export_secret_data()["sessions"]:
                session = int(row[2]), split_keys(row[3])
                interest = range(len(self._requests)).index(row[1])
                self._sessions.setdefault(bytes.fromhex(row[0]), {})[interest] = session
            problem = False
        if problem:
            raise KeyMismatchError(_DAMAGED)

    def __repr__(self) -> str:
        return f"<ObliviousSubscriber of {len(self._requests)} interests>"

    @property
    def key(self) -> RoleKey:
        """All of this role, to keep it: requests with their secrets, and accepted sessions.

        Save it again after `encode` and after `accept`.
        """
        requests = [(name.hex(), f"{secret:x}") for name, (secret, _) in self._requests.items()]
        sessions = [
            (publisher.hex(), interest, place, joined_keys(keys))
            for publisher, own in self._sessions.items()
            for interest, (place, keys) in own.items()
        ]
        data = {"requests": requests, "sessions": sessions}
        return RoleKey.make(self._layout.fingerprint, "subscriber", self._id, 0, data)

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
        layout.check(events, EVENT, layout.fixed_bytes, layout.slot_bytes, "event")
        opened, problems = self.examine(events)
        if problems:
            rows = tuple(sorted(problems))
            causes = tuple(problems[row] for row in rows)
            raise DecodeError(f"row {rows[0]}: {causes[0]}", rows=rows, causes=causes)
        return opened

    def examine(self, events: Bytes) -> tuple[Opened, dict[int, str]]:
        """Like `open`, but malformed events match nothing: also says which they are, and why.

        Raises:
            DecodeError: events of this matcher do not have that many bytes.
        """
        layout = self._layout
        fixed, size = layout.fixed_bytes, layout.slot_bytes
        slots = layout.parts(events, fixed, size, "event")
        out = Opened(
            np.zeros((len(events), len(self._requests)), dtype=np.bool_), [None] * len(events)
        )
        foreign = layout.foreign(events, EVENT)
        problems = dict.fromkeys(np.flatnonzero(foreign).tolist(), layout.cause("event"))
        words = np.ascontiguousarray(events[:, 8:NUMBERED]).view("<u8")
        for name in np.unique(words[~foreign, 0]):
            rows = np.flatnonzero(~foreign & (words[:, 0] == name))
            sessions = self._sessions.get(name.tobytes())
            if sessions is None:
                problems |= dict.fromkeys(rows.tolist(), _UNKNOWN)
                continue
            for interest, (place, keys) in sessions.items():
                if place >= slots:  # The events are older than the session.
                    continue
                own = events[rows, fixed + place * size : fixed + (place + 1) * size]
                for key in keys:
                    same = key.recognizes(words[rows, 1], own)
                    out.matched[rows[same], interest] = True
                    if layout.payload_bytes and same.any():
                        opened = key.payload_keys(words[rows[same], 1], own[same])
                        self._unseal(events, rows[same], opened, out.payloads, problems)
        out.matched[list(problems)] = False
        return out, problems

    def _unseal(
        self,
        events: Bytes,
        rows: NDArray[np.intp],
        keys: Bytes,
        payloads: list[bytes | None],
        problems: dict[int, str],
    ) -> None:
        for row, key in zip(rows.tolist(), keys, strict=True):
            if payloads[row] is not None or row in problems:
                continue
            head = events[row, :NUMBERED].tobytes()
            sealed = events[row, NUMBERED : self._layout.fixed_bytes].tobytes()
            try:
                payloads[row] = unseal(sealed, key.tobytes(), head)
            except DecodeError as error:
                problems[row] = str(error)
