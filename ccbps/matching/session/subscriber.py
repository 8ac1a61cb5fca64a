"""The subscriber of `ccbps.matching.session.oblivious_topic`: asks for topics and opens events.

It can be saved: `key` holds all of it, and the matcher's `subscriber` restores it.

Conventions: of one publisher's answers to one request, the first is taken, for good. No
message that comes later, old or new, takes its place.

Hazard: a key is a copy of its role at that moment: without the requests that came later it cannot
use the answers to them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Randomness
from ccbps.checks import whole
from ccbps.ciphers.payloads import open_sealed
from ccbps.ciphers.signatures import (
    IDENTITY_BYTES,
    NAME_BYTES,
    SIGNATURE_BYTES,
    check_identity,
    name_of,
    signed_by,
)
from ccbps.ciphers.slots import SlotKey, joined_keys, split_keys
from ccbps.errors import DecodeError, ParameterError, PredicateError
from ccbps.keys.role_key import RoleKey
from ccbps.matching.contract.interests import Interest, is_one_interest
from ccbps.matching.contract.scheme import SessionScheme
from ccbps.matching.session.layout import (
    DIGEST_BYTES,
    NUMBERED,
    OPENED,
    PLACE_BYTES,
    SIGNED,
    Layout,
    SessionRole,
    raw,
    role_key,
)
from ccbps.wire import KEY_HEADER_BYTES, Kind

_STRANGER = "of a publisher that is not trusted; call trust with its identity if it is"
_UNSIGNED = "not signed by the publisher that it names for this request, or altered"
_ANOTHER = "unlike the one that this publisher gave to the request before; encode a new request"
_UNKNOWN = "of a publisher whose sessions were not accepted; call accept with its answers"


@dataclass(frozen=True, slots=True, repr=False)
class Opened:
    """A batch of events as a subscriber reads it.

    Attributes:
        matched: True where an event is of the topic of an interest, bool (events, interests).
        payloads: payload of each event that is of one of the topics, None for the others.
    """

    matched: Bools
    payloads: list[bytes | None]

    def __repr__(self) -> str:
        return f"<Opened: {len(self.payloads)} events>"


@dataclass(frozen=True, slots=True, repr=False)
class _Asked:
    """A request of this subscriber.

    Attributes:
        secret: the number z.
        interest: place of the interest among all.
        digest: digest of the request, 32 bytes.
    """

    secret: int
    interest: int
    digest: bytes


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
        self._requests: dict[bytes, _Asked] = {}
        # By publisher and interest: the slot's place, and a key for each of its topics.
        self._sessions: dict[bytes, dict[int, tuple[int, list[SlotKey]]]] = {}
        for identity in data["publishers"]:
            self.trust(raw(identity, IDENTITY_BYTES))
        order = int(self._layout.transfer.group.order)
        for place, (name, secret, digest) in enumerate(data["requests"]):
            z = whole("z", int(secret, 16), 0, order - 1)
            self._requests[raw(name, NAME_BYTES)] = _Asked(z, place, raw(digest, DIGEST_BYTES))
        count = 0
        for publisher, interest, place, keys in data["sessions"]:
            session = whole("place", place, 0, (1 << 8 * PLACE_BYTES) - 1), split_keys(keys)
            whole("interest", interest, 0, len(self._requests) - 1)
            whole("keys", len(session[1]), 1)
            self._sessions.setdefault(raw(publisher, NAME_BYTES), {})[interest] = session
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
        """All of this role, to save it: whom it trusts, requests with secrets, and sessions.

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
            identity: the publisher's `identity`, received in a way that no broker can tamper with.

        Raises:
            ParameterError: not an identity, or one with another's name (one chance in 2^64).
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
                asked = _Asked(int(secret), len(self._requests), layout.digest(message))
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

    def _examined(self, sessions: Bytes) -> dict[int, tuple[bytes, _Asked]]:
        """Return publisher and request of this subscriber's sessions, by row."""
        answers: dict[int, tuple[bytes, _Asked]] = {}
        problems: dict[int, str] = {}
        for row, session in enumerate(sessions):
            asked = self._requests.get(session[8:KEY_HEADER_BYTES].tobytes())
            if asked is None:
                continue
            name = session[KEY_HEADER_BYTES:SIGNED].tobytes()
            if name not in self._publishers:
                problems[row] = f"a session {_STRANGER}"
                continue
            signature = session[-SIGNATURE_BYTES:].tobytes()
            signed = self._layout.session(session, asked.digest)
            if signed_by(self._publishers[name], signed, signature):
                answers[row] = name, asked
            else:
                problems[row] = f"a session {_UNSIGNED}"
        self._layout.refuse(problems)
        return answers

    def open(self, events: Bytes) -> Opened:
        """Read events as far as they are of this subscriber's topics.

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
