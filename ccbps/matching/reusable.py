"""The interface all reusable matchers share: no rounds, a key server, all pairs of a batch.

A one-time matcher (`ccbps.matching.matcher`) costs a message for every pair; a reusable one
encrypts each event and each subscription once, and leaks for it: read its card. The verbs are the
same. What is different is data on the matcher: `reusable`, `rounds`, `has_key_server`, `covering`,
`operators`.

    matcher = AdditiveMaskMatch(schema)
    server = matcher.key_server()                              # holds the master key
    publisher = matcher.publisher(server.publisher_key())
    subscriber = matcher.subscriber(server.subscriber_key("alice"))
    broker = matcher.broker(server.broker_key())
    events, interests = publisher.encode(records), subscriber.encode(["price < 3", "price = 9"])
    broker.match_all(events, interests)                        # bool (events, interests)

Every message starts with a header: kind, version, matcher, key and epoch. The broker refuses
messages of another matcher, of another master key or of another epoch.

What differs between schemes is the methods of `ReusableMatcher` whose names start with an
underscore; rows of bytes go in and out of them without headers.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ccbps.errors import CcbpsError, DecodeError, KeyMismatchError, ParameterError, PredicateError
from ccbps.keys import Confined, SecretBytes
from ccbps.leakage import LeakageCard
from ccbps.matching.parameters import PublicParameters, fingerprint_of
from ccbps.matching.topics import bound_predicate
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.schema import Events
from ccbps.wire import HEADER_BYTES, VERSION, Cause, Kind, raise_for

__all__ = [
    "Cost",
    "KeyServer",
    "ReusableBroker",
    "ReusableMatcher",
    "ReusablePublisher",
    "ReusableSubscriber",
    "RoleKey",
    "Table",
]

Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]
Role = Literal["server", "publisher", "subscriber", "broker"]
Randomness = Callable[[int], bytes]
"""``randomness(n)``: n fresh uniform bytes; the operating system's unless a test says otherwise."""

KEY_ID_BYTES: Final = 6
MATCH_ROWS: Final = 1 << 12
"""Events matched with all interests at a time."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One line of what a scheme costs.

    Attributes:
        role: who pays: "publisher", "subscriber" or "broker".
        per: for each "event", "interest" or "pair".
        operation: what is counted, such as "exponentiation" or "AES block".
        count: how many.
    """

    role: Literal["publisher", "subscriber", "broker", "key server"]
    per: Literal["event", "interest", "pair"]
    operation: str
    count: float


class RoleKey(SecretBytes):
    """What a key server gives one party: key material of one matcher, role and epoch.

    Attributes:
        role: "publisher", "subscriber", "broker"; "server" for the master key.
        key_id: 6 bytes that name the master key.
        epoch: number of the key's version.
    """

    kind = "role key"
    __slots__ = ("data", "epoch", "key_id", "matcher", "role")

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        problem = True
        try:
            fields = json.loads(self._secret)
            self.matcher = bytes.fromhex(fields["matcher"])
            self.role: Role = fields["role"]
            self.key_id = bytes.fromhex(fields["key"])
            self.epoch: int = fields["epoch"]
            if type(self.epoch) is not int or not 0 <= self.epoch < 1 << 16:
                raise ValueError
            self.data: dict[str, Any] = fields["data"]
            problem = False
        except (ValueError, KeyError, TypeError):
            fields = None
        if problem:
            raise KeyMismatchError("not a role key (RoleKey.to_text() writes one)")

    @classmethod
    def make(
        cls, matcher: bytes, role: Role, key_id: bytes, epoch: int, data: Mapping[str, Any]
    ) -> Self:
        """A key from its parts; `data` is JSON (large integers as hexadecimal text)."""
        fields = {
            "matcher": matcher.hex(),
            "role": role,
            "key": key_id.hex(),
            "epoch": epoch,
            "data": dict(data),
        }
        return cls(json.dumps(fields, sort_keys=True).encode())

    def to_text(self) -> str:
        """The secret in text form, for a key file or an environment variable."""
        return f"ccbps-role-key-1:{self.export_secret().hex()}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse what `to_text` wrote.

        Raises:
            KeyMismatchError: it is no role key (the text is not shown).
        """
        kind, _, body = text.strip().partition(":")
        text = ""
        if kind != "ccbps-role-key-1" or len(body) % 2 or set(body) - set("0123456789abcdef"):
            body = ""
            raise KeyMismatchError("not a role key: expected 'ccbps-role-key-1:' and hex digits")
        return cls(bytes.fromhex(body))


class ReusableMatcher(PublicParameters, ABC):
    """Public parameters of a reusable matcher. Makes the key server and the three roles.

    Attributes:
        schema: the events' attributes.
        operators: what predicates may use: of "=", "<", "interval", "prefix", "and", "or",
            "at_least", "in".
        covering: whether the broker can tell that one interest covers another.
        event_bytes, interest_bytes: bytes of one message, header included.
        fingerprint: 32 bytes that name these public parameters.
    """

    reusable: ClassVar[bool] = True
    rounds: ClassVar[bool] = False
    has_key_server: ClassVar[bool] = True
    covering: ClassVar[bool] = False
    operators: ClassVar[tuple[str, ...]] = ()
    scheme: ClassVar[str]

    schema: Schema
    event_bytes: int
    interest_bytes: int

    def _set_up(
        self, schema: Schema, event_body: int, interest_body: int, parameters: Mapping[str, Any]
    ) -> None:
        """To be called by the constructor: bytes of the bodies, and what else is public (JSON)."""
        self.schema = schema
        self.event_bytes = HEADER_BYTES + event_body
        self.interest_bytes = HEADER_BYTES + interest_body
        described = {"scheme": f"{self.scheme} 1", "schema": schema.describe(), **parameters}
        self.fingerprint = fingerprint_of(described)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {', '.join(self.schema)}>"

    @property
    @abstractmethod
    def leakage(self) -> LeakageCard:
        """What the broker learns, and the known attacks."""

    @property
    @abstractmethod
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role, as data."""

    def explain(self) -> str:
        """Bytes a side, operations and the leakage card, as text."""
        lines = [
            f"{type(self).__name__} over {', '.join(self.schema)} ({self.schema.bits} bits)",
            f"  operators:   {', '.join(self.operators)}",
            f"  messages:    {self.event_bytes:,} bytes an event, {self.interest_bytes:,} bytes an "
            f"interest ({HEADER_BYTES} of them header); reusable"
            + (", covering" if self.covering else ""),
        ]
        lines += [
            f"  {cost.role + ':':<13}{cost.count:,g} {cost.operation} per {cost.per}"
            for cost in self.costs
        ]
        return "\n".join([*lines, *("  " + line for line in str(self.leakage).splitlines())])

    def key_server(self, key: RoleKey | None = None) -> KeyServer:
        """A key server with a fresh master key, or with the one that `KeyServer.key` gave out."""
        return KeyServer(self, key)

    def publisher(self, key: RoleKey, *, randomness: Randomness = os.urandom) -> ReusablePublisher:
        """The role that encrypts events."""
        return ReusablePublisher(self, key, "publisher", randomness)

    def subscriber(
        self, key: RoleKey, *, randomness: Randomness = os.urandom
    ) -> ReusableSubscriber:
        """The role that encrypts predicates."""
        return ReusableSubscriber(self, key, "subscriber", randomness)

    def broker(self, key: RoleKey) -> ReusableBroker:
        """The role that matches. Its key holds what the scheme gives the broker, often nothing."""
        return ReusableBroker(self, key, "broker", os.urandom)

    # -- what schemes implement ---------------------------------------------------------------

    @abstractmethod
    def _generate(self, randomness: Randomness) -> dict[str, Any]:
        """A fresh master key, as JSON data."""

    @abstractmethod
    def _issue(
        self, master: Mapping[str, Any], role: Role, name: str, randomness: Randomness
    ) -> dict[str, Any]:
        """The key data of one party. A broker's never hold more than the broker may know.

        For schemes in which the server keeps something for each user: change `master["users"]`.
        """

    @abstractmethod
    def _encode_events(
        self, key: Mapping[str, Any], events: Events, out: Bytes, randomness: Randomness
    ) -> None:
        """Write bodies, shape (count, event body)."""

    @abstractmethod
    def _prepare(self, interest: Any) -> Any:
        """One subscription, parsed and checked; raises PredicateError where it cannot be used."""

    @abstractmethod
    def _encode_interests(
        self,
        key: Mapping[str, Any],
        interests: Sequence[Any],
        out: Bytes,
        randomness: Randomness,
    ) -> None:
        """Write bodies of prepared interests, shape (len(interests), interest body)."""

    def _check_events(self, key: Mapping[str, Any], bodies: Bytes) -> Bytes:
        """`Cause` of each event body that is malformed; 0 where none is."""
        return np.zeros(len(bodies), dtype=np.uint8)

    def _check_interests(self, key: Mapping[str, Any], bodies: Bytes) -> Bytes:
        """`Cause` of each interest body that is malformed; 0 where none is."""
        return np.zeros(len(bodies), dtype=np.uint8)

    @abstractmethod
    def _table(self, key: Mapping[str, Any], bodies: Bytes) -> Any:
        """What the broker keeps of interests, computed once (well-formed bodies only)."""

    @abstractmethod
    def _match_all(self, key: Mapping[str, Any], events: Bytes, table: Any) -> Bools:
        """Answers for all pairs, shape (events, interests); well-formed bodies only."""

    def _covers(self, key: Mapping[str, Any], wide: Any, narrow: Any) -> Bools:
        """Which interests of table `wide` cover which of `narrow`: every match of the one is one
        of the other; shape (wide, narrow)."""
        raise ParameterError(f"{type(self).__name__} does not support covering")

    def _predicate(self, interest: Any) -> Predicate:
        """SQL text or a `Predicate` of this schema, with all its constants."""
        return bound_predicate(self.schema, interest, "an interest")


class KeyServer(Confined):
    """Holds the master key and gives each party what it may know.

    Attributes:
        epoch: number of the keys that are given out now.
    """

    def __init__(self, matcher: ReusableMatcher, key: RoleKey | None = None) -> None:
        self.matcher = matcher
        if key is None:
            data = matcher._generate(os.urandom)
            key = RoleKey.make(matcher.fingerprint, "server", os.urandom(KEY_ID_BYTES), 0, data)
        _check_key(matcher, key, "server")
        self._id, self.epoch, self._master = key.key_id, key.epoch, key.data

    def __repr__(self) -> str:
        return f"<KeyServer of {self.matcher!r}, epoch {self.epoch}>"

    @property
    def key(self) -> RoleKey:
        """The master key, to keep it. Whoever has it can read everything."""
        return self._key("server", self._master)

    def publisher_key(self, name: str = "publisher") -> RoleKey:
        """The key of a publisher."""
        return self._issued("publisher", name)

    def subscriber_key(self, name: str) -> RoleKey:
        """The key of a subscriber."""
        return self._issued("subscriber", name)

    def broker_key(self) -> RoleKey:
        """The key of a broker: public parameters, or what the scheme lets it hold for users."""
        return self._issued("broker", "broker")

    def _issued(self, role: Role, name: str) -> RoleKey:
        return self._key(role, self.matcher._issue(self._master, role, name, os.urandom))

    def _key(self, role: Role, data: Mapping[str, Any]) -> RoleKey:
        return RoleKey.make(self.matcher.fingerprint, role, self._id, self.epoch, data)


def _check_key(matcher: ReusableMatcher, key: RoleKey, role: Role) -> None:
    if not isinstance(key, RoleKey):
        raise KeyMismatchError(f"a {role} needs a RoleKey, got {type(key).__name__}")
    if key.matcher != matcher.fingerprint:
        raise KeyMismatchError(f"this key belongs to another matcher than {matcher!r}")
    if key.role != role:
        raise KeyMismatchError(f"this is the key of a {key.role}, wanted a {role}'s")


class _Role(Confined):
    def __init__(
        self, matcher: ReusableMatcher, key: RoleKey, role: Role, randomness: Randomness
    ) -> None:
        _check_key(matcher, key, role)
        self.matcher = matcher
        self.epoch = key.epoch
        self._key, self._id, self._randomness = key.data, key.key_id, randomness

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.matcher!r}, epoch {self.epoch}>"

    def _header(self, kind: Kind) -> Bytes:
        head = bytes([kind, VERSION]) + self.matcher.fingerprint[:6] + self._id
        return np.frombuffer(head + self.epoch.to_bytes(2, "little"), dtype=np.uint8)


class ReusablePublisher(_Role):
    """Encrypts events, each once. Made by `ReusableMatcher.publisher`."""

    def encode(self, events: Any) -> Bytes:
        """Messages for events.

        Args:
            events: `Events`, or any records `Schema.encode` takes.

        Returns:
            uint8, shape (events, event_bytes).

        Raises:
            EventError: a record does not fit the schema.
        """
        batch = self.matcher.schema.encode(events)
        out = np.zeros((batch.count, self.matcher.event_bytes), dtype=np.uint8)
        out[:, :HEADER_BYTES] = self._header(Kind.EVENT)
        if batch.count:
            body = out[:, HEADER_BYTES:]
            self.matcher._encode_events(self._key, batch, body, self._randomness)
        return out


class ReusableSubscriber(_Role):
    """Encrypts predicates, each once. Made by `ReusableMatcher.subscriber`."""

    def encode(self, interest: Any | Iterable[Any]) -> Bytes:
        """Messages for one subscription, or for a list of them.

        Args:
            interest: SQL text or `Predicate` (or what the matcher's page says), or several.

        Returns:
            uint8, shape (interests, interest_bytes).

        Raises:
            PredicateError: a predicate does not parse, does not fit the schema, or is more than
                the matcher can encode; `row` says which of several.
        """
        one = isinstance(interest, (str, Predicate, Mapping)) or not isinstance(interest, Iterable)
        prepared = []
        for row, value in enumerate([interest] if one else interest):
            try:
                prepared.append(self.matcher._prepare(value))
            except CcbpsError as error:
                if isinstance(error, PredicateError):
                    error.row = row
                raise
        out = np.zeros((len(prepared), self.matcher.interest_bytes), dtype=np.uint8)
        out[:, :HEADER_BYTES] = self._header(Kind.INTEREST)
        if prepared:
            body = out[:, HEADER_BYTES:]
            self.matcher._encode_interests(self._key, prepared, body, self._randomness)
        return out


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """Interests as a broker keeps them, computed once by `ReusableBroker.prepare`."""

    content: Any
    count: int
    key_id: bytes
    epoch: int

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"<Table of {self.count} interests>"


class ReusableBroker(_Role):
    """Matches messages. Made by `ReusableMatcher.broker`."""

    def examine_events(self, events: Bytes) -> Bytes:
        """The `ccbps.wire.Cause` to refuse each event message, 0 where there is none."""
        return self._examine(events, Kind.EVENT, self.matcher.event_bytes)

    def examine_interests(self, interests: Bytes) -> Bytes:
        """The `ccbps.wire.Cause` to refuse each interest message, 0 where there is none."""
        return self._examine(interests, Kind.INTEREST, self.matcher.interest_bytes)

    def prepare(self, interests: Bytes) -> Table:
        """Interests as the broker keeps them: whatever can be computed before events come.

        Raises:
            DecodeError: some bytes are not interest messages of this matcher, key and epoch.
        """
        raise_for(self.examine_interests(interests))
        bodies = interests[:, HEADER_BYTES:]
        content = self.matcher._table(self._key, bodies) if len(bodies) else None
        return Table(content, len(interests), self._id, self.epoch)

    def match_all(self, events: Bytes, interests: Bytes | Table) -> Bools:
        """Which events match which interests.

        Args:
            events: uint8, shape (events, event_bytes).
            interests: uint8, shape (interests, interest_bytes), or what `prepare` made of them.

        Returns:
            bool, shape (events, interests).

        Raises:
            DecodeError: some bytes are not messages of this matcher, key and epoch; names rows.
        """
        raise_for(self.examine_events(events))
        table = self._own_table(interests)
        return self._answers(events, table.content, len(table))

    def examine(self, events: Bytes, interests: Bytes | Table) -> tuple[Bools, Bytes]:
        """As `match_all`, but refuses event messages one by one.

        Returns:
            answers, shape (events, interests), False where the event is refused; and the
            `ccbps.wire.Cause` of each event.
        """
        causes, table = self.examine_events(events), self._own_table(interests)
        good = np.flatnonzero(causes == Cause.NONE)
        if len(good) == len(events):
            return self._answers(events, table.content, len(table)), causes
        out = np.zeros((len(events), len(table)), dtype=np.bool_)
        out[good] = self._answers(events[good], table.content, len(table))
        return out, causes

    def _answers(self, events: Bytes, content: Any, count: int) -> Bools:
        """Answers for well-formed events and what `_table` made of `count` interests."""
        out = np.zeros((len(events), count), dtype=np.bool_)
        if count:
            for start in range(0, len(events), MATCH_ROWS):
                at = slice(start, start + MATCH_ROWS)
                bodies = events[at, HEADER_BYTES:]
                out[at] = self.matcher._match_all(self._key, bodies, content)
        return out

    def match(self, events: Bytes, interests: Bytes) -> Bools:
        """Which pairs match; row i of one belongs to row i of the other. Shape (batch,)."""
        self._require_pairs(events, interests)
        if not len(events):
            return np.zeros(0, dtype=np.bool_)
        distinct, index = np.unique(interests, axis=0, return_inverse=True)
        out = np.zeros(len(events), dtype=np.bool_)
        order = np.argsort(index.reshape(-1), kind="stable")
        edges = np.flatnonzero(np.diff(index.reshape(-1)[order], prepend=-1)).tolist()
        for number, (low, high) in enumerate(zip(edges, [*edges[1:], len(order)], strict=True)):
            rows = order[low:high]
            body = distinct[number : number + 1, HEADER_BYTES:]
            content = self.matcher._table(self._key, body)
            out[rows] = self._answers(events[rows], content, 1)[:, 0]
        return out

    def _require_pairs(self, events: Bytes, interests: Bytes) -> None:
        """Well-formed messages, as many of each."""
        if len(events) != len(interests):
            raise DecodeError(f"{len(events)} events do not pair with {len(interests)} interests")
        raise_for(self.examine_events(events))
        raise_for(self.examine_interests(interests))

    def covers(self, wide: Bytes | Table, narrow: Bytes | Table) -> Bools:
        """Which interests of `wide` cover which of `narrow`, shape (wide, narrow).

        Raises:
            ParameterError: the scheme cannot tell.
        """
        if not self.matcher.covering:
            raise ParameterError(f"{type(self.matcher).__name__} does not support covering")
        tables = [self._own_table(interests) for interests in (wide, narrow)]
        if not all(map(len, tables)):
            return np.zeros((len(tables[0]), len(tables[1])), dtype=np.bool_)
        return self.matcher._covers(self._key, tables[0].content, tables[1].content)

    def _own_table(self, interests: Bytes | Table) -> Table:
        """Interests prepared under this broker's key and epoch."""
        if not isinstance(interests, Table):
            return self.prepare(interests)
        if (interests.key_id, interests.epoch) != (self._id, self.epoch):
            raise KeyMismatchError("the table was prepared with another key or epoch")
        return interests

    def _examine(self, messages: Bytes, kind: Kind, width: int) -> Bytes:
        array = np.asarray(messages)
        if array is not messages or array.dtype != np.uint8 or array.shape[1:] != (width,):
            name = "events" if kind is Kind.EVENT else "interests"
            raise DecodeError(
                f"{name} must be uint8 messages of {width} bytes, an array of shape "
                f"(batch, {width}); got {type(messages).__name__} of {array.dtype} {array.shape}"
            )
        head, wanted = messages[:, :HEADER_BYTES], self._header(kind)
        event = kind is Kind.EVENT
        check = self.matcher._check_events if event else self.matcher._check_interests
        causes = np.zeros(len(messages), dtype=np.uint8)
        other = head != wanted
        if not other.any():
            return check(self._key, messages[:, HEADER_BYTES:]) if len(messages) else causes
        causes[other[:, 14:].any(axis=1)] = Cause.EPOCH
        causes[other[:, 8:14].any(axis=1)] = Cause.KEY
        causes[other[:, 2:8].any(axis=1)] = Cause.EVENT_MATCHER if event else Cause.INTEREST_MATCHER
        causes[other[:, :2].any(axis=1)] = Cause.EVENT_KIND if event else Cause.INTEREST_KIND
        good = np.flatnonzero(causes == Cause.NONE)
        if len(good):
            causes[good] = check(self._key, messages[good, HEADER_BYTES:])
        return causes
