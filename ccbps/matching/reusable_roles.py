"""The roles of reusable matchers: they encrypt events and interests once, and match all pairs.

Every message starts with a header: kind, version, matcher, key and epoch. The broker refuses
messages of another matcher, of another master key or of another epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Randomness
from ccbps.errors import CcbpsError, DecodeError, KeyMismatchError, ParameterError, PredicateError
from ccbps.keys.role_key import Role, RoleKey
from ccbps.keys.secret import Confined
from ccbps.matching.parameters import check_key
from ccbps.predicates import Predicate
from ccbps.wire import HEADER_BYTES, VERSION, Cause, Kind, raise_for

if TYPE_CHECKING:
    from ccbps.matching.reusable import ReusableMatcher

__all__ = ["ReusableBroker", "ReusablePublisher", "ReusableSubscriber", "Table"]


MATCH_ROWS: Final = 1 << 12
"""Events matched with all interests at a time."""


class _Role(Confined):
    def __init__(
        self, matcher: ReusableMatcher, key: RoleKey, role: Role, randomness: Randomness
    ) -> None:
        check_key(matcher, key, role)
        self.matcher = matcher
        self.epoch = key.epoch
        self._key, self._id, self._randomness = key.export_secret_data(), key.key_id, randomness

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.matcher!r}, epoch {self.epoch}>"

    def _header(self, kind: Kind) -> Bytes:
        head = bytes([kind, VERSION]) + self.matcher.fingerprint[:6] + self._id
        return np.frombuffer(head + self.epoch.to_bytes(2, "little"), dtype=np.uint8)


class ReusablePublisher(_Role):
    """Encrypts events, each once. Made by `ReusableMatcher.publisher`.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching import TagMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = TagMatch(schema, topic=["issue"])
        >>> server = matcher.key_server()
        >>> publisher = matcher.publisher(server.publisher_key())
        >>> events = publisher.encode({"issue": ["IBM", "AAPL"], "price": [119, 121]})
        >>> events.shape == (2, matcher.event_bytes)
        True
    """

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
    """Encrypts predicates, each once. Made by `ReusableMatcher.subscriber`.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching import TagMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = TagMatch(schema, topic=["issue"])
        >>> server = matcher.key_server()
        >>> subscriber = matcher.subscriber(server.subscriber_key("alice"))
        >>> interests = subscriber.encode(["issue = 'IBM' AND price < 120", "price > 120"])
        >>> interests.shape == (2, matcher.interest_bytes)
        True
    """

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
                if not one:
                    error.add_note(f"interest of row {row}")
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
    """Matches messages. Made by `ReusableMatcher.broker`.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching import TagMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = TagMatch(schema, topic=["issue"])
        >>> server = matcher.key_server()
        >>> publisher = matcher.publisher(server.publisher_key())
        >>> subscriber = matcher.subscriber(server.subscriber_key("alice"))
        >>> broker = matcher.broker(server.broker_key())
        >>> interests = subscriber.encode(["issue = 'IBM' AND price < 120", "price > 120"])
        >>> table = broker.prepare(interests)              # once, for all events to come
        >>> events = publisher.encode({"issue": ["IBM", "AAPL"], "price": [119, 121]})
        >>> broker.match_all(events, table)
        array([[ True, False],
               [False,  True]])
    """

    def examine_events(self, events: Bytes) -> Bytes:
        """The `ccbps.wire.Cause` for refusing each event message, 0 where there is none."""
        return self._examine(events, Kind.EVENT, self.matcher.event_bytes)

    def examine_interests(self, interests: Bytes) -> Bytes:
        """The `ccbps.wire.Cause` for refusing each interest message, 0 where there is none."""
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
