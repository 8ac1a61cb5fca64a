"""The broker: it matches messages and learns what the matcher's leakage card says.

It refuses everything that is not a message of its matcher, key and epoch, and two messages of
different pairs or rounds, rather than answer for them. It changes no argument.

Hazard: messages of rounds have no MAC: altered ones may pass, and then get wrong answers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from ccbps.arrays import Bools, Bytes, slices
from ccbps.checks import array, instance, whole
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError
from ccbps.keys.role_key import LAST_EPOCH, KeyUpdate, RoleKey
from ccbps.keys.secret import confined
from ccbps.matching.contract.access import (
    KeyAccess,
    bodies_of,
    check_data,
    header_bytes,
    require_width,
)
from ccbps.matching.contract.roles import MatcherRole
from ccbps.matching.contract.scheme import (
    MATCH_ROWS,
    Answers,
    PairScheme,
    Scheme,
    ServerScheme,
    Side,
    TableScheme,
)
from ccbps.matching.contract.table import InterestId, Part, Table
from ccbps.wire import (
    ROUND_HEADER_BYTES,
    SERVER_BYTES,
    Cause,
    Kind,
    check_round_headers,
    raise_for,
    round_tags,
    rounds_of_two_events,
)

T = TypeVar("T", Bytes, Table)
PAIR_ROWS: Final = 1 << 15
"""Pairs of a mask whose messages are put together at once."""


class Broker(MatcherRole):
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

    _role = "broker"

    def __init__(self, matcher: Scheme, key: RoleKey | None = None) -> None:
        super().__init__(matcher, key)

    def __reduce__(self) -> Any:
        # A broker without a key is as public as its matcher.
        if isinstance(self._access, KeyAccess):
            return super().__reduce__()
        return Broker, (self.matcher,)

    # -- pairs ----------------------------------------------------------------------------------

    def match(self, events: Bytes, interests: Bytes) -> Bools:
        """Return the pairs of messages that match: event i with interest i.

        Args:
            events: messages, uint8, shape (batch, event_bytes); where the scheme is a broadcast,
                also one event for all interests.
            interests: messages, uint8, shape (batch, interest_bytes).

        Returns:
            bool, shape (batch,).

        Raises:
            DecodeError: some bytes are not messages of this matcher, key and epoch; two messages
                are of different pairs or rounds; or a round of a broadcast has two different
                events. The error names the rows. Or events and interests differ in number.
        """
        answers, causes = self.examine(events, interests)
        raise_for(causes)
        return answers

    def examine(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bytes]:
        """Answer pairs as `match` does, but refuse rows one by one.

        A broadcast round with two different events is refused as a whole, since either may be the
        right one. So one copy that was altered in transit takes the answers from all rows of its
        round in this call.

        Returns:
            answers, shape (batch,), False where refused; and the `ccbps.wire.Cause` of each row.

        Raises:
            DecodeError: messages have a wrong width, or events and interests differ in number.
        """
        matcher = self.matcher
        require_width(matcher, events, "event")
        require_width(matcher, interests, "interest")
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
        """Answer pairs of messages of rounds as `examine` does."""
        heads = np.empty((2, len(events), ROUND_HEADER_BYTES), dtype=np.uint8)
        answers, causes = matcher.match_behind(events, interests, heads)

        def tags(start: int, stop: int) -> Bytes:
            return round_tags(heads[0, start:stop], Kind.EVENT, matcher.digest)

        if matcher.answers is Answers.ROUND:
            twice = rounds_of_two_events(heads[0], events)
            if twice.any():
                causes = np.where(twice, np.uint8(Cause.TWO_EVENTS), causes)
        bodies = events[:, ROUND_HEADER_BYTES:], interests[:, ROUND_HEADER_BYTES:]
        # The last cause is named: a header of another round before anything in the bodies.
        for refused in (
            matcher.check_tags(*bodies, tags),
            check_round_headers(heads[0], heads[1], matcher.digest),
        ):
            if np.count_nonzero(refused):
                causes = np.where(refused, refused, causes)
        if np.count_nonzero(causes):
            answers[causes != Cause.NONE] = False
        return answers, causes

    # -- all pairs --------------------------------------------------------------------------------

    def prepare(self, interests: Bytes, ids: Sequence[InterestId] | None = None) -> Table:
        """Return a table of interests, with everything that can be computed before events come.

        Args:
            interests: messages, uint8, shape (interests, interest_bytes).
            ids: a name for each; None to number them from 0.

        Raises:
            DecodeError: some bytes are not interest messages of this matcher, key and epoch.
            ParameterError: the matcher answers pairs only; or ids do not fit.
        """
        self._tables()
        table = Table(self._keyed())
        table.add(interests, ids)
        return table

    def load(self, table: bytes | str | os.PathLike[str], *, drop_unserved: bool = False) -> Table:
        """Return a table that `Table.save` or `Table.to_bytes` wrote.

        Args:
            table: path of the file, or its bytes.
            drop_unserved: True to leave out interests of users whom this broker does not serve,
                such as revoked ones. `admit` new users first, or their interests are lost.

        Raises:
            DecodeError: this is no saved table, or a damaged one; or it has interests of users
                whom this broker does not serve, and `drop_unserved` is False.
            KeyMismatchError: the table is of another matcher, key or epoch.
            OSError: the file cannot be read.
        """
        from pathlib import Path  # here, since few brokers load tables

        self._tables()
        loaded = Table(self._keyed())
        data = table if isinstance(table, bytes) else Path(table).read_bytes()
        loaded._restore(data, drop_unserved)
        return loaded

    def match_all(
        self, events: Bytes, interests: Bytes | Table, where: Bools | None = None
    ) -> Bools:
        """Match all events with all interests.

        Args:
            events: messages, uint8, shape (events, event_bytes).
            interests: messages, uint8, shape (interests, interest_bytes), or a table of them.
            where: pairs to test, bool, shape (events, interests), such as a pre-filter returns
                (`ccbps.filters.may_match`); the answer for all others is False. None to test all
                pairs. It takes interests as messages, not as a table.

        Returns:
            bool, shape (events, interests); a table's columns are in the order of `Table.ids`.

        Raises:
            DecodeError: some bytes are not messages of this matcher, key and epoch; names rows.
            ParameterError: the matcher answers pairs only, or `where` comes with a table.
        """
        if where is None:
            return self.match_parts(events, self._own(interests).parts)
        answers, causes = self.examine_all(events, interests, where)
        raise_for(causes)
        return answers

    def examine_all(
        self, events: Bytes, interests: Bytes | Table, where: Bools | None = None
    ) -> tuple[Bools, Bytes]:
        """Match as `match_all` does, but refuse event messages one by one.

        Returns:
            answers, shape (events, interests), False where the event is refused; and the
            `ccbps.wire.Cause` of each event.
        """
        if where is not None:
            return self._examine_where(events, interests, where)
        causes, parts = self.examine_events(events), self._own(interests).parts
        good = np.flatnonzero(causes == Cause.NONE)
        if len(good) == len(events):
            return self._answers(events, parts), causes
        answers = self._answers(events[good], parts)
        out = np.zeros((len(events), answers.shape[1]), dtype=np.bool_)
        out[good] = answers
        return out, causes

    def _examine_where(
        self, events: Bytes, interests: Bytes | Table, where: Bools
    ) -> tuple[Bools, Bytes]:
        """Match the pairs of a mask, and refuse event messages one by one."""
        if isinstance(interests, Table):
            raise ParameterError("where goes with interest messages, and not with a table")
        raise_for(self.examine_interests(interests))
        causes = self.examine_events(events)
        array("where", where, np.bool_, (len(events), len(interests)))
        out = np.zeros(where.shape, dtype=np.bool_)
        opened, asked = self._body(events, "event"), self._body(interests, "interest")
        tested = np.asarray(where & (causes == Cause.NONE)[:, None], dtype=np.bool_)
        # Interest by interest, since a scheme prepares each interest of a batch once.
        columns, rows = np.nonzero(tested.T)
        for start in range(0, len(rows), PAIR_ROWS):
            row, column = rows[start : start + PAIR_ROWS], columns[start : start + PAIR_ROWS]
            out[row, column] = self._tables().match_rows(
                self._access.key, opened[row], asked[column]
            )
        return out, causes

    def match_parts(self, events: Bytes, parts: Sequence[Part]) -> Bools:
        """Match as `match_all` does, with a snapshot of a table's parts (`Table.parts`)."""
        raise_for(self.examine_events(events))
        return self._answers(events, parts)

    def examine_events(self, events: Bytes) -> Bytes:
        """Return the `ccbps.wire.Cause` for refusing each event message; 0 for the others."""
        return self._keyed().examine(events, "event")

    def examine_interests(self, interests: Bytes) -> Bytes:
        """Return the `ccbps.wire.Cause` for refusing each interest message; 0 for the others."""
        return self._keyed().examine(interests, "interest")

    def covers(self, wide: Bytes | Table, narrow: Bytes | Table) -> Bools:
        """Return the pairs in which an interest of `wide` covers one of `narrow`.

        Returns:
            bool, shape (wide, narrow).

        Raises:
            ParameterError: the scheme cannot tell.
            DecodeError: some bytes are not interest messages of this matcher, key and epoch.
            KeyMismatchError: a table is not this broker's.
        """
        matcher = self._tables()
        if not matcher.covering:
            raise ParameterError(f"{type(matcher).__name__} does not support covering")
        outer, inner = self._own(wide).parts, self._own(narrow).parts
        out = np.zeros([sum(part.live for part in parts) for parts in (outer, inner)], np.bool_)
        row = 0
        for a in outer:
            column = 0
            for b in inner:
                covers = matcher.covers(self._access.key, a.content, b.content)
                at = slice(row, row + a.live), slice(column, column + b.live)
                out[at] = covers[a.alive][:, b.alive]
                column += b.live
            row += a.live
        return out

    # -- keys that change -------------------------------------------------------------------------

    @confined
    def update(self, interests: T, token: KeyUpdate, new: Broker) -> T:
        """Turn interests of this broker's epoch into interests of the next one.

        Args:
            interests: messages, or a table of them. They are not changed.
            token: token from `KeyServer.rotate`. After several rotations, apply each token in turn.
            new: the broker of the new epoch.

        Returns:
            new messages, or a new table of the new broker's, with the same ids.

        Raises:
            KeyMismatchError: the token does not lead from this broker's matcher, key and epoch to
                those of `new`; or the table is not this broker's.
            DecodeError: messages are not interests of this broker's key and epoch.
        """
        self._check_update(token, instance("new", new, Broker).names)
        change = token.export_secret_data().get("change")
        check_data(partial(self._server().check_change, change))
        if not isinstance(interests, Table):
            raise_for(self.examine_interests(interests))
            return self._moved(interests, change, new)
        parts = self._own(interests).parts
        moved = Table(new._keyed())
        ids = [name for part in parts for name in part.names]
        moved.add(self._moved(interests._messages(parts), change, new), ids)
        moved._next = max(moved._next, interests._next)
        return moved  # type: ignore[return-value]  # No table is an array.

    def _check_update(self, token: KeyUpdate, new: tuple[bytes, bytes, int]) -> None:
        """Refuse an update that does not lead from this broker's key to a new one's."""
        if not isinstance(token, KeyUpdate):
            raise KeyMismatchError(
                f"update takes what KeyServer.rotate returned, got {type(token).__name__}"
            )
        digest, key_id, epoch = self.names
        if token.matcher != digest or token.key_id[:SERVER_BYTES] != key_id[:SERVER_BYTES]:
            raise KeyMismatchError("the update belongs to another matcher or key server")
        data = token.export_secret_data()
        start = data.get("key"), data.get("from")
        data.clear()  # Tracebacks may show local variables.
        check_data(partial(whole, "epoch", start[1], 0, LAST_EPOCH))
        if start != (key_id.hex(), epoch):
            raise KeyMismatchError(
                f"the update is for interests of epoch {start[1]}; this broker's are of epoch "
                f"{epoch}, or of another key"
            )
        if new != (digest, token.key_id, token.epoch):
            raise KeyMismatchError(
                f"the update leads to epoch {token.epoch}; the new broker is of epoch {new[2]}, or "
                "of another key"
            )

    def _moved(self, messages: Bytes, change: Any, new: Broker) -> Bytes:
        out = messages.copy()
        if len(out):
            moved = self._server().update(change, self._body(messages, "interest"))
            self._body(out, "interest")[:] = moved
            out[:, : header_bytes(new.matcher)] = new._keyed().header(Kind.INTEREST)
            new._access.authenticate(out)
        return out

    @confined
    def revoke(self, user: bytes) -> None:
        """Forget a user: refuse its messages, and match its interests in all tables with nothing.

        Args:
            user: identifier from `KeyServer.revoke`.

        Raises:
            ParameterError: the broker does not serve a user of this identifier.
        """
        self._server().forget(self._access.key, user)

    @confined
    def admit(self, key: RoleKey) -> None:
        """Take over the users of a newer broker key of the same server and epoch.

        Users that were revoked here stay revoked.

        Raises:
            KeyMismatchError: the key is of another master key or epoch.
        """
        newer = Broker(self.matcher, key)
        if newer.names != self.names:
            raise KeyMismatchError("this broker key is of another master key or epoch")
        self._server().admit(self._access.key, newer._access.key)

    @property
    def users(self) -> tuple[str, ...]:
        """Identifiers of the users that it serves, in hexadecimal, where the scheme has users."""
        return self._server().users(self._access.key)

    # -- inside -----------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[bytes, bytes, int]:
        """The matcher's digest, the key's id and its epoch; for rounds, no id and 0."""
        return self._access.names

    def _keyed(self) -> KeyAccess:
        if not isinstance(self._access, KeyAccess):
            raise ParameterError(
                f"a message of {type(self.matcher).__name__} is examined with the other one of its "
                "pair; call examine"
            )
        return self._access

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
        return bodies_of(self.matcher, messages, side)

    def _own(self, interests: Bytes | Table) -> Table:
        """Return interests as a table; refuse a table of another key or epoch."""
        if not isinstance(interests, Table):
            return self.prepare(interests)
        if interests.names != self.names:
            raise KeyMismatchError("the table was prepared with another matcher, key or epoch")
        return interests

    def _answers(self, events: Bytes, parts: Sequence[Part]) -> Bools:
        """Answer well-formed events with the parts of a table."""
        matcher, key = self._tables(), self._access.key
        whole = len(parts) == 1 and parts[0].live == len(parts[0].ids)
        if whole and 0 < len(events) <= MATCH_ROWS:
            # Nothing to put together: 100,000 answers more to write take as long as to match some.
            opened = matcher.open_events(key, self._body(events, "event"))
            return matcher.match(key, opened, parts[0].content)
        out = np.zeros((len(events), sum(part.live for part in parts)), dtype=np.bool_)
        for at in slices(len(events) if parts else 0, MATCH_ROWS):
            column = 0
            opened = matcher.open_events(key, self._body(events[at], "event"))
            for part in parts:
                answers = matcher.match(key, opened, part.content)
                stop = column + part.live
                full = part.live == len(part.ids)
                out[at, column:stop] = answers if full else answers[:, part.alive]
                column = stop
        return out
