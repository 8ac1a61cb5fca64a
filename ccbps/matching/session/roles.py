"""The roles of `ccbps.matching.session.oblivious_topic`: publisher and subscriber.

The publisher answers subscribers that it admits, and encrypts events. The subscriber asks for
topics and opens events. Each can be saved: its `key` holds all of it, and the matcher's `publisher`
or `subscriber` restores it.

Conventions: answers follow from the request and a secret. The same request gets the same answer
whenever it comes, and takes no further slot: an answer that was lost can be had again, and whoever
replays a request gets nothing new. Of one publisher's answers to one request, the subscriber takes
the first, for good. No message that comes later, old or new, takes its place.

Hazards: a key is a copy of its role at that moment. A publisher that is restored from an old key
counts through the same event numbers again, which shows events that are alike, and opens one of two
payloads to anyone who knows the other: save the key again after each use of the counter, or give
`encode` numbers from a source that never goes back. Within one role, `encode` makes sure of that.
A subscriber that is restored without the requests that came later cannot use the answers to them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import shake_256
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ccbps.arrays import Bools, Bytes, Index, Randomness, Words
from ccbps.checks import whole
from ccbps.ciphers.payloads import as_bytes, check_sizes, open_sealed, own_keys, seal
from ccbps.ciphers.signatures import (
    IDENTITY_BYTES,
    NAME_BYTES,
    SIGNATURE_BYTES,
    check_identity,
    name_of,
    signed_by,
)
from ccbps.ciphers.slots import SLOT_KEY_BYTES, SlotKey, joined_keys, split_keys
from ccbps.errors import DecodeError, EventError, ParameterError, PredicateError
from ccbps.forms.topic import topic_codes
from ccbps.keys.role_key import RoleKey, hex_bytes, hex_number
from ccbps.keys.secret import SecretBytes
from ccbps.keys.used_rounds import RoundLedger, as_rounds
from ccbps.matching.contract.roles import is_one_interest
from ccbps.matching.contract.scheme import Interest, SessionScheme
from ccbps.matching.session.layout import (
    DIGEST_BYTES,
    NUMBER_BYTES,
    NUMBERED,
    OPENED,
    PLACE_BYTES,
    SIGNED,
    Asked,
    Layout,
    Opened,
    SessionRole,
    role_key,
)
from ccbps.wire import KEY_HEADER_BYTES, Kind

_STRANGER = "of a subscriber that was not admitted; call admit with its identity if it may ask"
_UNSIGNED = "not signed by the subscriber that it names, or altered"
_TOO_MANY = "beyond the number that its subscriber was admitted with"
_DISTRUSTED = "of a publisher that is not trusted; call trust with its identity if it is"
_UNPROVEN = "not signed by the publisher that it names for this request, or altered"
_ANOTHER = "unlike the one that this publisher gave to the request before; encode a new request"
_UNKNOWN = "of a publisher whose sessions were not accepted; call accept with its answers"


class ObliviousPublisher(SessionRole):
    """The role that answers requests, each once, and encrypts events.

    Made by `ObliviousTopicMatch.new_publisher`, and again from its key by
    `ObliviousTopicMatch.publisher`. Several threads may use one.
    """

    _role = "publisher"

    def _restore(self, data: Mapping[str, Any]) -> None:
        # By name: a subscriber's identity, and how many requests it may make.
        self._subscribers: dict[bytes, tuple[bytes, int | None]] = {}
        # By a request's digest: the place of its slot, and whose it is. By name: how many they are.
        self._answered: dict[bytes, tuple[int, bytes]] = {}
        self._asked: Counter[bytes] = Counter()
        for identity, limit in data["subscribers"]:
            self.admit(hex_bytes(identity, IDENTITY_BYTES), limit)
        for place, (digest, asker) in enumerate(data["answered"]):
            self._answered[hex_bytes(digest, DIGEST_BYTES)] = place, hex_bytes(asker, NAME_BYTES)
        self._asked.update(asker for _, asker in self._answered.values())
        self._topics = [hex_bytes(topic, self._layout.topic_bytes) for topic in data["topics"]]
        self._keys = [split_keys(keys) for keys in data["keys"]]
        self._payload = SlotKey(hex_bytes(data["payload"], SLOT_KEY_BYTES))
        self._answers = SecretBytes(hex_bytes(data["answers"], SLOT_KEY_BYTES))
        self._numbers = RoundLedger(
            "event number",
            "each number is for one event: give one that was not used",
            after_fork="Make a publisher in each process, with numbers of its own",
            first=hex_number(data["next"], 0, 1 << 64),
        )
        self._place = {topic: place for place, topic in enumerate(self._topics)}
        fits = (
            len(self._keys) == len(self._topics) == len(self._place)
            and {len(keys) for keys in self._keys} == {len(data["answered"]), len(self._answered)}
            and set(self._asked) <= set(self._subscribers)
        )
        if not fits:
            raise ValueError

    @property
    def key(self) -> RoleKey:
        """Saved form of this role: topics, admitted subscribers, sessions, and the next number.

        Save it again after `admit` and `answer`, or a restored role lacks their effects; and after
        `encode` without `numbers`, or a restored role counts through the same numbers again.
        """
        with self._lock:
            return role_key(
                self._layout,
                self._role,
                self._signing,
                subscribers=[(who.hex(), limit) for who, limit in self._subscribers.values()],
                answered=[
                    (digest.hex(), name.hex()) for digest, (_, name) in self._answered.items()
                ],
                topics=[topic.hex() for topic in self._topics],
                keys=[joined_keys(keys) for keys in self._keys],
                payload=self._payload.export_secret().hex(),
                answers=self._answers.export_secret().hex(),
                next=f"{self._numbers.next:x}",
            )

    def __repr__(self) -> str:
        return f"<ObliviousPublisher of {len(self._topics)} topics, {self.requests} requests>"

    @property
    def requests(self) -> int:
        """Number of requests that have been answered."""
        return len(self._answered)

    def admit(self, identity: bytes, requests: int | None = None) -> None:
        """Admit a subscriber, whose requests are answered. Call it again to change their number.

        Args:
            identity: the subscriber's `identity`, from a channel that no broker can tamper with.
            requests: number of its requests to answer in all; None for any number.

        Raises:
            ParameterError: `identity` is none, or has the name of another one (one chance in
                2^64); `requests` is not a number.
        """
        identity = check_identity(identity)
        if requests is not None:
            requests = whole("requests", requests, 0, hint="or None for any number")
        name = name_of(identity)
        with self._lock:
            if self._subscribers.get(name, (identity,))[0] != identity:
                raise ParameterError(
                    "another subscriber has that name; let this one make a new role"
                )
            self._subscribers[name] = identity, requests

    def answer(self, requests: Bytes) -> Bytes:
        """Open sessions: one answer to each request, with a part for each topic.

        A request that was answered before gets the same answer, and takes no further slot.

        Args:
            requests: messages of subscribers that were admitted, uint8, (count, interest_bytes).

        Returns:
            uint8, shape (count, session_bytes(topics)); for the subscribers.

        Raises:
            DecodeError: some bytes are not requests of this matcher, are from a subscriber that was
                not admitted or has used up its number, are not signed by it, or do not hold
                elements of the group; names rows, and answers none.
        """
        layout, cot = self._layout, self._layout.transfer
        layout.check(requests, Kind.REQUEST, layout.request_bytes, 0, "request")
        count, topics = len(requests), len(self._topics)
        out = np.zeros((count, layout.session_bytes(topics)), dtype=np.uint8)
        if not count:
            return out
        with self._lock:
            digests, fresh = self._examined(requests)
            contexts = [layout.context(self.identity, digest) for digest in digests]
            keys, responses = cot.respond(
                requests[:, SIGNED:-SIGNATURE_BYTES],
                self._topics * count,
                [context for context in contexts for _ in range(topics)],
                lambda size: self._stream(digests, size),
                of=[row for row in range(count) for _ in range(topics)],
            )
            for digest, row in fresh.items():
                name = requests[row, KEY_HEADER_BYTES:SIGNED].tobytes()
                for place, topic_keys in enumerate(self._keys):
                    topic_keys.append(SlotKey(keys[row * topics + place]))
                self._asked[name] += 1
                # Last: `encode` in another thread makes slots for the requests that stand here.
                self._answered[digest] = len(self._answered), name
        out[:, :KEY_HEADER_BYTES] = layout.headers(Kind.SESSION, requests[:, 8:KEY_HEADER_BYTES])
        out[:, KEY_HEADER_BYTES:SIGNED] = self._name
        places = np.array([self._answered[digest][0] for digest in digests], dtype="<u4")
        out[:, SIGNED:OPENED] = places.view(np.uint8).reshape(-1, PLACE_BYTES)
        out[:, OPENED:-SIGNATURE_BYTES] = responses.reshape(count, -1)
        for message, digest in zip(out, digests, strict=True):
            self._sign(message, layout.session(message, digest))
        return out

    def _examined(self, requests: Bytes) -> tuple[list[bytes], dict[bytes, int]]:
        """Return the digests of requests, and the rows of those not answered before."""
        layout = self._layout
        digests = [layout.digest(request) for request in requests]
        more: Counter[bytes] = Counter()
        fresh: dict[bytes, int] = {}
        problems: dict[int, str] = {}
        for row, (request, digest) in enumerate(zip(requests, digests, strict=True)):
            name = request[KEY_HEADER_BYTES:SIGNED].tobytes()
            signature = request[-SIGNATURE_BYTES:].tobytes()
            identity, limit = self._subscribers.get(name, (None, None))
            if identity is None:
                problems[row] = f"a request {_STRANGER}"
            elif not signed_by(identity, layout.request(request), signature):
                problems[row] = f"a request {_UNSIGNED}"
            elif digest in self._answered or digest in fresh:
                continue
            elif limit is not None and self._asked[name] + more[name] >= limit:
                problems[row] = f"a request {_TOO_MANY}"
            else:
                fresh[digest] = row
                more[name] += 1
        layout.refuse(problems)
        return digests, fresh

    def _stream(self, digests: Sequence[bytes], size: int) -> bytes:
        """Return the pseudorandom bytes of answers, which follow from the request alone."""
        label = b"ccbps oblivious answers\0"
        streams = [
            shake_256(label + self._answers.export_secret() + digest).digest(size // len(digests))
            for digest in digests
        ]
        # All r are drawn first, then all u and all k: of each stream a third.
        parts = np.frombuffer(b"".join(streams), dtype=np.uint8).reshape(len(digests), 3, -1)
        return parts.swapaxes(0, 1).tobytes()

    def encode(
        self,
        events: Any,
        numbers: ArrayLike | None = None,
        *,
        payloads: Sequence[bytes] | None = None,
    ) -> Bytes:
        """Encode events for everybody. Equal event, payload and number give equal messages.

        Args:
            events: `Events`, or any records `Schema.encode` takes.
            numbers: public numbers, uint64, shape (events,), each for one event ever; None to
                continue the counter. It goes on beyond the greatest number used.
            payloads: payloads of at most `payload_bytes` bytes, one for each event; none if that
                is 0.

        Returns:
            uint8, shape (events, event_bytes_for(requests)).

        Raises:
            EventError: a record does not fit the schema, or belongs to none of the publisher's
                topics.
            ParameterError: payloads or numbers do not fit.
            RandomnessReuseError: this role has used a number, or an earlier one may have: it is
                below the counter in the key this role was restored from. Encodes nothing.
        """
        layout = self._layout
        batch = layout.schema.encode(events)
        places = self._topics_of(topic_codes(batch, layout.attributes))
        bad = np.flatnonzero(places < 0)
        if len(bad):
            raise EventError(
                f"row {bad[0]} is of none of this publisher's topics ({len(bad)} such rows); "
                "make a publisher with all topics it has events of",
                row=int(bad[0]),
            )
        if payloads is not None and not layout.payload_bytes:
            raise ParameterError("this matcher has no payloads: make it with payload_bytes")
        payloads = [b""] * batch.count if payloads is None else payloads
        if len(payloads) != batch.count:
            raise ParameterError(f"{len(payloads)} payloads do not go with {batch.count} events")
        payloads = as_bytes("payloads", payloads)
        check_sizes(payloads, layout.payload_bytes)
        given = None if numbers is None else as_rounds(numbers, batch.count, "numbers")
        requests = self.requests
        out = np.zeros((batch.count, layout.event_bytes(requests)), dtype=np.uint8)
        if not batch.count:
            return out
        if given is None:
            taken = self._numbers.take(batch.count)
        else:
            taken = given
            self._numbers.claim(taken)
        names = np.broadcast_to(self._name, (batch.count, NAME_BYTES))
        out[:, :KEY_HEADER_BYTES] = layout.headers(Kind.SESSION_EVENT, names)
        written = taken.astype("<u8").view(np.uint8).reshape(-1, NUMBER_BYTES)
        out[:, KEY_HEADER_BYTES:NUMBERED] = written
        keys = None
        if layout.payload_bytes:
            keys = own_keys(self._payload, taken, payloads)
            for message, payload, key in zip(out, payloads, keys, strict=True):
                head = message[:NUMBERED].tobytes()
                sealed = seal(payload, key.tobytes(), head, pad_to=layout.payload_bytes + 1)
                message[NUMBERED : layout.fixed_bytes] = np.frombuffer(sealed, dtype=np.uint8)
        for place in np.unique(places).tolist():
            rows = np.flatnonzero(places == place)
            wrapped = None if keys is None else keys[rows]
            for slot, key in enumerate(self._keys[place][:requests]):
                start = layout.event_bytes(slot)
                stop = start + layout.slot_bytes
                out[rows, start:stop] = key.slots(taken[rows], wrapped)
        return out

    def serves(self, events: Any) -> Bools:
        """Return the events that are of this publisher's topics, bool, shape (events,).

        Args:
            events: `Events`, or any records `Schema.encode` takes.

        Raises:
            EventError: a record does not fit the schema.
        """
        batch = self._layout.schema.encode(events)
        return np.asarray(self._topics_of(topic_codes(batch, self._layout.attributes)) >= 0)

    def _topics_of(self, codes: Words) -> Index:
        """Return the place of each event's topic; -1 where the publisher has none."""
        distinct, index = np.unique(codes, axis=0, return_inverse=True)
        places = [self._place.get(row.tobytes(), -1) for row in distinct.astype("<u8")]
        return np.array(places, dtype=np.intp)[index.reshape(-1)]


class ObliviousSubscriber(SessionRole):
    """The role that asks for topics and opens events.

    Made by `ObliviousTopicMatch.new_subscriber`, and again from its key by
    `ObliviousTopicMatch.subscriber`. Several threads may use one.
    """

    _role = "subscriber"

    def __init__(
        self,
        matcher: SessionScheme,
        layout: Layout,
        key: RoleKey,
        randomness: Randomness = os.urandom,
    ) -> None:
        super().__init__(matcher, layout, key)
        self._randomness = randomness

    def _restore(self, data: Mapping[str, Any]) -> None:
        # By name: publishers' identities, and this role's requests.
        self._publishers: dict[bytes, bytes] = {}
        self._requests: dict[bytes, Asked] = {}
        # By publisher and interest: the slot's place, and a key for each of its topics.
        self._sessions: dict[bytes, dict[int, tuple[int, list[SlotKey]]]] = {}
        for identity in data["publishers"]:
            self.trust(hex_bytes(identity, IDENTITY_BYTES))
        order = int(self._layout.transfer.group.order)
        for place, (name, secret, digest) in enumerate(data["requests"]):
            z = hex_number(secret, 0, order - 1)
            asked = Asked(z, place, hex_bytes(digest, DIGEST_BYTES))
            self._requests[hex_bytes(name, NAME_BYTES)] = asked
        count = 0
        for publisher, interest, place, keys in data["sessions"]:
            session = whole("place", place, 0, (1 << 8 * PLACE_BYTES) - 1), split_keys(keys)
            whole("interest", interest, 0, len(self._requests) - 1)
            whole("keys", len(session[1]), 1)
            self._sessions.setdefault(hex_bytes(publisher, NAME_BYTES), {})[interest] = session
            count += 1
        fits = (
            len(self._requests) == len(data["requests"])
            and sum(map(len, self._sessions.values())) == count
            and set(self._sessions) <= set(self._publishers)
        )
        if not fits:
            raise ValueError

    def __repr__(self) -> str:
        return f"<ObliviousSubscriber of {len(self._requests)} interests>"

    @property
    def key(self) -> RoleKey:
        """Saved form of this role: trusted publishers, requests with secrets, and sessions.

        Save it again after `trust`, `encode` and `accept`.
        """
        with self._lock:
            return role_key(
                self._layout,
                self._role,
                self._signing,
                publishers=[identity.hex() for identity in self._publishers.values()],
                requests=[
                    (name.hex(), f"{asked.secret:x}", asked.digest.hex())
                    for name, asked in self._requests.items()
                ],
                sessions=[
                    (publisher.hex(), interest, place, joined_keys(keys))
                    for publisher, sessions in self._sessions.items()
                    for interest, (place, keys) in sessions.items()
                ],
            )

    def trust(self, identity: bytes) -> None:
        """Take sessions from a publisher from now on.

        Args:
            identity: the publisher's `identity`, from a channel that no broker can tamper with.

        Raises:
            ParameterError: `identity` is none, or has the name of another one (one chance in 2^64).
        """
        identity = check_identity(identity)
        if self._publishers.setdefault(name_of(identity), identity) != identity:
            raise ParameterError("another publisher has that name; let this one make a new role")

    def encode(self, interest: Interest | Sequence[Interest]) -> Bytes:
        """Encode signed requests for one topic, or for a list of them; for every publisher.

        Returns:
            uint8, shape (interests, interest_bytes).

        Raises:
            PredicateError: a predicate does not parse, does not fit the schema, or does not name
                one topic; `row` says which of several.
        """
        layout = self._layout
        words = []
        interests: Any = [interest] if is_one_interest(interest) else interest
        for row, value in enumerate(interests):
            try:
                words.append(self.matcher.prepare(value))
            except PredicateError as error:
                error.row = row
                raise
        out = np.zeros((len(words), layout.request_bytes), dtype=np.uint8)
        if not words:
            return out
        secrets, rows = layout.transfer.request(words, self._randomness)
        drawn = self._randomness(NAME_BYTES * len(words))
        names = np.frombuffer(drawn, dtype=np.uint8).reshape(-1, NAME_BYTES)
        out[:, :KEY_HEADER_BYTES] = layout.headers(Kind.REQUEST, names)
        out[:, KEY_HEADER_BYTES:SIGNED] = self._name
        out[:, SIGNED:-SIGNATURE_BYTES] = rows
        with self._lock:
            for name, secret, message in zip(names, secrets, out, strict=True):
                self._sign(message, layout.request(message))
                asked = Asked(int(secret), len(self._requests), layout.digest(message))
                self._requests[name.tobytes()] = asked
        return out

    def accept(self, sessions: Bytes) -> int:
        """Take trusted publishers' answers to this subscriber's requests; others are passed over.

        Returns:
            the number of answers to its own requests; a repeated one counts, and changes nothing.

        Raises:
            DecodeError: some bytes are not sessions of this matcher; or an answer to one of its own
                requests is from a publisher that is not trusted, is not signed by it for this
                request, does not hold elements of the group, or is not the one that was accepted
                before. Names rows, and accepts none.
        """
        layout, cot = self._layout, self._layout.transfer
        least = layout.session_bytes(1)
        topics = 1 + layout.check(sessions, Kind.SESSION, least, cot.response_bytes, "session")
        answers = self._examined(sessions)
        rows = list(answers)
        problems: dict[int, str] = {}
        agreed: list[bytes] = []
        try:
            agreed = cot.finish(
                [asked.secret for _, asked in answers.values() for _ in range(topics)],
                sessions[rows, OPENED:-SIGNATURE_BYTES].reshape(-1, cot.response_bytes),
                [
                    layout.context(self._publishers[publisher], asked.digest)
                    for publisher, asked in answers.values()
                    for _ in range(topics)
                ],
            )
        except DecodeError as error:
            bad = zip(error.rows, error.causes, strict=True)
            problems = {rows[part // topics]: cause for part, cause in bad}
        layout.refuse(problems)
        taken: dict[tuple[bytes, int], tuple[int, list[SlotKey]]] = {}
        with self._lock:
            for at, (row, (publisher, asked)) in enumerate(answers.items()):
                place = int.from_bytes(sessions[row, SIGNED:OPENED].tobytes(), "little")
                keys = [SlotKey(key) for key in agreed[at * topics : (at + 1) * topics]]
                first = self._sessions.get(publisher, {}).get(asked.interest, (place, keys))
                if taken.setdefault((publisher, asked.interest), first) != (place, keys):
                    problems[row] = f"a session {_ANOTHER}"
            layout.refuse(problems)
            for (publisher, interest), session in taken.items():
                self._sessions.setdefault(publisher, {})[interest] = session
        return len(answers)

    def _examined(self, sessions: Bytes) -> dict[int, tuple[bytes, Asked]]:
        """Return publisher and request of this subscriber's sessions, by row."""
        answers: dict[int, tuple[bytes, Asked]] = {}
        problems: dict[int, str] = {}
        for row, session in enumerate(sessions):
            asked = self._requests.get(session[8:KEY_HEADER_BYTES].tobytes())
            if asked is None:
                continue
            name = session[KEY_HEADER_BYTES:SIGNED].tobytes()
            if name not in self._publishers:
                problems[row] = f"a session {_DISTRUSTED}"
                continue
            signature = session[-SIGNATURE_BYTES:].tobytes()
            signed = self._layout.session(session, asked.digest)
            if signed_by(self._publishers[name], signed, signature):
                answers[row] = name, asked
            else:
                problems[row] = f"a session {_UNPROVEN}"
        self._layout.refuse(problems)
        return answers

    def open(self, events: Bytes) -> Opened:
        """Open the events that are of this subscriber's topics.

        Raises:
            DecodeError: some bytes are not events of this matcher, or of a publisher whose sessions
                were not accepted; or a payload was altered. Names rows.
        """
        layout = self._layout
        layout.check(events, Kind.SESSION_EVENT, layout.fixed_bytes, layout.slot_bytes, "event")
        opened, problems = self.examine(events)
        layout.refuse(problems)
        return opened

    def examine(self, events: Bytes) -> tuple[Opened, dict[int, str]]:
        """Read events as `open` does, and return the malformed ones, which match nothing.

        Returns:
            the events, and causes by row of the malformed ones.

        Raises:
            DecodeError: events of this matcher do not have that many bytes.
        """
        layout = self._layout
        fixed, size = layout.fixed_bytes, layout.slot_bytes
        slots = layout.parts(events, fixed, size, "event")
        with self._lock:
            requests = len(self._requests)
            agreed = {name: list(keys.items()) for name, keys in self._sessions.items()}
        out = Opened(np.zeros((len(events), requests), dtype=np.bool_), [None] * len(events))
        foreign = layout.foreign(events, Kind.SESSION_EVENT)
        problems = dict.fromkeys(np.flatnonzero(foreign).tolist(), layout.cause("event"))
        words = np.ascontiguousarray(events[:, 8:NUMBERED]).view("<u8")
        for name in np.unique(words[~foreign, 0]):
            rows = np.flatnonzero(~foreign & (words[:, 0] == name))
            sessions = agreed.get(name.tobytes())
            if sessions is None:
                problems |= dict.fromkeys(rows.tolist(), _UNKNOWN)
                continue
            for interest, (place, keys) in sessions:
                if place >= slots:  # The events are older than the session.
                    continue
                mine = events[rows, fixed + place * size : fixed + (place + 1) * size]
                for key in keys:
                    same = key.recognizes(words[rows, 1], mine)
                    out.matched[rows[same], interest] = True
                    if layout.payload_bytes and same.any():
                        opened = key.payload_keys(words[rows[same], 1], mine[same])
                        self._unseal(events, rows[same], opened, out.payloads, problems)
        out.matched[list(problems)] = False
        return out, problems

    def _unseal(
        self,
        events: Bytes,
        rows: Index,
        keys: Bytes,
        payloads: list[bytes | None],
        problems: dict[int, str],
    ) -> None:
        """Open the payloads of some events, and note the rows whose payload was altered."""
        for row, key in zip(rows.tolist(), keys, strict=True):
            if payloads[row] is not None or row in problems:
                continue
            head = events[row, :NUMBERED].tobytes()
            sealed = events[row, NUMBERED : self._layout.fixed_bytes].tobytes()
            try:
                payloads[row] = open_sealed(sealed, key.tobytes(), head)
            except DecodeError as error:
                problems[row] = str(error)
