"""The broker: it matches messages and learns what the matcher's leakage card says.

Whatever is not a message of the broker's matcher, key and epoch is refused, and so are two messages
of different pairs or rounds: never a wrong answer. Nothing it is given is changed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from ccbps.arrays import Bools, Bytes
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError
from ccbps.keys.role_key import KeyUpdate, RoleKey
from ccbps.keys.secret import Confined, confined
from ccbps.matching.contract.access import KeyAccess, access, header_bytes, message_bytes
from ccbps.matching.contract.kinds import Answers, Keying, Side
from ccbps.matching.contract.scheme import MATCH_ROWS, PairScheme, Scheme, ServerScheme, TableScheme
from ccbps.matching.contract.table import InterestId, Part, Table
from ccbps.matching.contract.updating import check_update
from ccbps.wire import (
    ROUND_HEADER_BYTES,
    Cause,
    Kind,
    check_round_headers,
    raise_for,
    round_tags,
)


class Broker(Confined):
    """Matches messages. Made by `Matcher.broker`.

    Example:
        Pairs, one event and one interest of a round each:

        >>> from ccbps import Category, Schema, SharedSeed, UInt
        >>> from ccbps.matching import FormulaMatch, TagMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = FormulaMatch.box(schema)
        >>> seed = SharedSeed.generate()
        >>> records = {"issue": ["IBM", "AAPL"], "price": [119, 121]}
        >>> events = matcher.publisher(seed).encode(records, rounds=[0, 1])
        >>> interests = matcher.subscriber(seed).encode("price < 120", rounds=[0, 1])
        >>> broker = matcher.broker()
        >>> broker.match(events, interests)
        array([ True, False])
        >>> answers, causes = broker.examine(events, events)      # refuses row by row
        >>> answers, causes.astype(bool)
        (array([False, False]), array([ True,  True]))

        All events with all interests of a table:

        >>> reusable = TagMatch(schema, topic=["issue"])
        >>> server = reusable.key_server()
        >>> alice = reusable.subscriber(server.subscriber_key("alice"))
        >>> broker = reusable.broker(server.broker_key())
        >>> table = broker.prepare(alice.encode(["issue = 'IBM' AND price < 120", "price > 120"]))
        >>> events = reusable.publisher(server.publisher_key()).encode(records)
        >>> broker.match_all(events, table)
        array([[ True, False],
               [False,  True]])
    """

    def __init__(self, matcher: Scheme, key: RoleKey | None = None) -> None:
        self.matcher = matcher
        self._access = access(matcher, "broker", key)

    @property
    def epoch(self) -> int:
        """Of the key; 0 where there is none."""
        return self._access.epoch

    def __reduce__(self) -> Any:
        # Where it has no key, it is as public as the matcher.
        if isinstance(self._access, KeyAccess):
            return super().__reduce__()
        return Broker, (self.matcher,)

    def __repr__(self) -> str:
        epoch = f", epoch {self.epoch}" if self.matcher.keying is Keying.SERVER else ""
        return f"<Broker of {self.matcher!r}{epoch}>"

    # -- pairs ----------------------------------------------------------------------------------

    def match(self, events: Bytes, interests: Bytes) -> Bools:
        """Which pairs of messages match; row i of one belongs to row i of the other.

        Args:
            events: uint8, shape (batch, event_bytes); where the scheme is a broadcast, also one
                event for all interests.
            interests: uint8, shape (batch, interest_bytes).

        Returns:
            bool, shape (batch,).

        Raises:
            DecodeError: some bytes are not messages of this matcher, key and epoch, or two are of
                different pairs or rounds; names the rows.
        """
        answers, causes = self.examine(events, interests)
        raise_for(causes)
        return answers

    def examine(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bytes]:
        """As `match`, but refuses rows one by one.

        Returns:
            answers, shape (batch,), False where refused; and the `ccbps.wire.Cause` of each row.
        """
        for rows, side in ((events, "event"), (interests, "interest")):
            self._require_width(rows, side)  # type: ignore[arg-type]
        matcher = self.matcher
        if len(events) == 1 and matcher.answers is Answers.ROUND:
            events = np.broadcast_to(events, (len(interests), events.shape[1]))
        if len(events) != len(interests):
            raise DecodeError(f"{len(events)} events do not pair with {len(interests)} interests")
        if isinstance(matcher, PairScheme):
            return self._examine_rounds(matcher, events, interests)
        causes = self.examine_events(events)
        causes = np.where(causes == Cause.NONE, self.examine_interests(interests), causes)
        answers = np.zeros(len(events), dtype=np.bool_)
        good = np.flatnonzero(causes == Cause.NONE)
        if len(good):
            at = slice(None) if len(good) == len(events) else good
            pairs = self._body(events[at], "event"), self._body(interests[at], "interest")
            answers[at] = self._tables().match_rows(self._access.key, *pairs)
        return answers, causes

    def _examine_rounds(
        self, matcher: PairScheme, events: Bytes, interests: Bytes
    ) -> tuple[Bools, Bytes]:
        """Answer pairs of messages of rounds; as `examine`."""
        heads = np.empty((2, len(events), ROUND_HEADER_BYTES), dtype=np.uint8)
        answers, causes = matcher.match_behind(events, interests, heads)

        def tags(start: int, stop: int) -> Bytes:
            return round_tags(heads[0, start:stop], Kind.EVENT, matcher.fingerprint)

        bodies = self._body(events, "event"), self._body(interests, "interest")
        # What is found last is named: a header of another round before anything in the bodies.
        for refused in (
            matcher.check_tags(*bodies, tags),
            check_round_headers(heads[0], heads[1], matcher.fingerprint),
        ):
            if refused.any():
                causes = np.where(refused, refused, causes)
        answers[causes != Cause.NONE] = False
        return answers, causes

    # -- all pairs --------------------------------------------------------------------------------

    def prepare(self, interests: Bytes, ids: Sequence[InterestId] | None = None) -> Table:
        """Interests as the broker keeps them: whatever can be computed before events come.

        Args:
            interests: uint8, shape (interests, interest_bytes).
            ids: a name for each; None to number them from 0.

        Raises:
            DecodeError: some bytes are not interest messages of this matcher, key and epoch.
            ParameterError: the matcher answers pairs only; or ids do not fit.
        """
        self._tables()
        table = Table(self)
        table.add(interests, ids)
        return table

    def load(self, table: bytes | str | os.PathLike[str], *, drop_unserved: bool = False) -> Table:
        """A table that `Table.save` or `Table.to_bytes` wrote.

        Args:
            table: path of the file, or its bytes.
            drop_unserved: leave out interests of users whom this broker does not serve: revoked
                ones. Users who are still to be admitted are lost by it: `admit` them first.

        Raises:
            DecodeError: it is not a saved table, or a damaged one; or it has interests of users
                whom this broker does not serve, and is not to drop them.
            KeyMismatchError: it is another matcher's, key's or epoch's.
            OSError: the file cannot be read.
        """
        self._tables()
        made = Table(self)
        data = table if isinstance(table, bytes) else Path(table).read_bytes()
        made._restore(data, drop_unserved)
        return made

    def match_all(self, events: Bytes, interests: Bytes | Table) -> Bools:
        """Which events match which interests.

        Args:
            events: uint8, shape (events, event_bytes).
            interests: uint8, shape (interests, interest_bytes), or what `prepare` made of them.

        Returns:
            bool, shape (events, interests); a table's columns are in the order of `Table.ids`.

        Raises:
            DecodeError: some bytes are not messages of this matcher, key and epoch; names rows.
            ParameterError: the matcher answers pairs only.
        """
        return self.match_parts(events, self._own(interests).parts)

    def examine_all(self, events: Bytes, interests: Bytes | Table) -> tuple[Bools, Bytes]:
        """As `match_all`, but refuses event messages one by one.

        Returns:
            answers, shape (events, interests), False where the event is refused; and the
            `ccbps.wire.Cause` of each event.
        """
        causes, parts = self.examine_events(events), self._own(interests).parts
        good = np.flatnonzero(causes == Cause.NONE)
        if len(good) == len(events):
            return self._answers(events, parts), causes
        found = self._answers(events[good], parts)
        out = np.zeros((len(events), found.shape[1]), dtype=np.bool_)
        out[good] = found
        return out, causes

    def match_parts(self, events: Bytes, parts: Sequence[Part]) -> Bools:
        """As `match_all`, with the parts that a table had at some moment (`Table.parts`)."""
        raise_for(self.examine_events(events))
        return self._answers(events, parts)

    def examine_events(self, events: Bytes) -> Bytes:
        """The `ccbps.wire.Cause` for refusing each event message, 0 where there is none."""
        return self._examine(events, "event")

    def examine_interests(self, interests: Bytes) -> Bytes:
        """The `ccbps.wire.Cause` for refusing each interest message, 0 where there is none."""
        return self._examine(interests, "interest")

    def covers(self, wide: Bytes | Table, narrow: Bytes | Table) -> Bools:
        """Which interests of `wide` cover which of `narrow`, shape (wide, narrow).

        Raises:
            ParameterError: the scheme cannot tell.
        """
        matcher = self._tables()
        if not matcher.covering:
            raise ParameterError(f"{type(matcher).__name__} does not support covering")
        outer, inner = self._own(wide).parts, self._own(narrow).parts
        key, none = self._access.key, sum(part.live for part in inner)
        bands = [
            np.concatenate(
                [matcher.covers(key, a.content, b.content)[a.alive][:, b.alive] for b in inner],
                axis=1,
            )
            for a in outer
            if inner
        ]
        empty = np.zeros((0 if inner else sum(part.live for part in outer), none), dtype=np.bool_)
        return np.concatenate([empty, *bands])

    # -- keys that change -------------------------------------------------------------------------

    @overload
    def update(self, interests: Bytes, token: KeyUpdate, new: Broker) -> Bytes: ...

    @overload
    def update(self, interests: Table, token: KeyUpdate, new: Broker) -> Table: ...

    @confined
    def update(self, interests: Bytes | Table, token: KeyUpdate, new: Broker) -> Bytes | Table:
        """Interests of this broker's epoch as interests of the next one.

        Args:
            interests: messages, or what `prepare` made of them. They are not changed.
            token: from `KeyServer.rotate`. Several changes of key take their tokens in turn.
            new: the broker of the new epoch.

        Returns:
            new messages, or a new table of the new broker's, with the same ids.

        Raises:
            KeyMismatchError: the token leads from another matcher, server, key or epoch, or not to
                that of the new broker; or the table is not this broker's.
            DecodeError: messages are not interests of this broker's key and epoch.
        """
        if not isinstance(new, Broker):
            raise ParameterError(f"new must be a Broker, got {type(new).__name__}")
        check_update(token, self._names, new._names)
        change = token.export_secret_data()["change"]
        if not isinstance(interests, Table):
            raise_for(self.examine_interests(interests))
            return self._moved(interests, change, new)
        parts = self._own(interests).parts
        made = Table(new)
        ids = [name for part in parts for name in part.names]
        made.add(self._moved(interests._messages(parts), change, new), ids)
        made._follow(interests)
        return made

    @confined
    def revoke(self, user: bytes) -> None:
        """Forget a user: its messages are refused, its interests in all tables match nothing.

        Args:
            user: what `KeyServer.revoke` returned.

        Raises:
            ParameterError: the broker does not serve a user of this identifier.
        """
        self._server().forget(self._access.key, user)

    @confined
    def admit(self, key: RoleKey) -> None:
        """Take over the users of a newer broker key of the same server and epoch, except those that
        were revoked here.

        Raises:
            KeyMismatchError: the key is of another master key or epoch.
        """
        newer = Broker(self.matcher, key)
        if newer._names != self._names:
            raise KeyMismatchError("this broker key is of another master key or epoch")
        self._server().admit(self._access.key, newer._access.key)

    @property
    def users(self) -> tuple[str, ...]:
        """Users it serves, in hexadecimal, where the scheme has users."""
        return self._server().users(self._access.key)

    # -- what tables need, and what is inside ------------------------------------------------------

    @property
    def _interest_bytes(self) -> int:
        return message_bytes(self.matcher, "interest")

    @property
    def _names(self) -> tuple[bytes, bytes, int]:
        key_id = self._access.key_id if isinstance(self._access, KeyAccess) else b""
        return self.matcher.fingerprint, key_id, self.epoch

    def _contents(self, interests: Bytes) -> Any:
        return self._tables().table(self._access.key, self._body(interests, "interest"))

    def _tables(self) -> TableScheme:
        if not isinstance(self.matcher, TableScheme):
            name = type(self.matcher).__name__
            raise ParameterError(f"{name} answers for pairs of messages only; call match")
        return self.matcher

    def _server(self) -> ServerScheme:
        if not isinstance(self.matcher, ServerScheme):
            raise ParameterError(f"{type(self.matcher).__name__} has no key server")
        return self.matcher

    def _body(self, messages: Bytes, side: Side) -> Bytes:
        sizes, start = self.matcher.sizes, header_bytes(self.matcher)
        width = sizes.event if side == "event" else sizes.interest
        return messages[:, start : start + width]

    def _own(self, interests: Bytes | Table) -> Table:
        """Interests prepared under this broker's key and epoch."""
        if not isinstance(interests, Table):
            return self.prepare(interests)
        if interests.names != self._names:
            raise KeyMismatchError("the table was prepared with another matcher, key or epoch")
        return interests

    def _answers(self, events: Bytes, parts: Sequence[Part]) -> Bools:
        """Answers for well-formed events and the parts of a table."""
        matcher, key = self._tables(), self._access.key
        whole = len(parts) == 1 and parts[0].live == len(parts[0].ids)
        if whole and 0 < len(events) <= MATCH_ROWS:
            # Nothing to put together: 100,000 answers more to write take as long as to match some.
            opened = matcher.open_events(key, self._body(events, "event"))
            return matcher.match(key, opened, parts[0].content)
        out = np.zeros((len(events), sum(part.live for part in parts)), dtype=np.bool_)
        for start in range(0, len(events) if parts else 0, MATCH_ROWS):
            at, column = slice(start, start + MATCH_ROWS), 0
            opened = matcher.open_events(key, self._body(events[at], "event"))
            for part in parts:
                found = matcher.match(key, opened, part.content)
                stop = column + part.live
                out[at, column:stop] = found if part.live == len(part.ids) else found[:, part.alive]
                column = stop
        return out

    def _require_width(self, messages: Bytes, side: Side) -> None:
        array, width = np.asarray(messages), message_bytes(self.matcher, side)
        if array is not messages or array.dtype != np.uint8 or array.shape[1:] != (width,):
            raise DecodeError(
                f"{side}s must be uint8 messages of {width} bytes, an array of shape "
                f"(batch, {width}); got {type(messages).__name__} of {array.dtype} {array.shape}"
            )

    def _examine(self, messages: Bytes, side: Side) -> Bytes:
        if not isinstance(self._access, KeyAccess):
            raise ParameterError(
                f"a message of {type(self.matcher).__name__} is examined with the other one of its "
                "pair; call examine"
            )
        self._require_width(messages, side)
        return self._access.examine(messages, side)

    def _moved(self, messages: Bytes, change: Any, new: Broker) -> Bytes:
        out = messages.copy()
        if len(out):
            moved = self._server().update(change, self._body(messages, "interest"))
            self._body(out, "interest")[:] = moved
            assert isinstance(new._access, KeyAccess)
            out[:, : header_bytes(new.matcher)] = new._access.header(Kind.INTEREST)
            new._access.authenticate(out)
        return out
