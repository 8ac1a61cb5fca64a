"""The broker, which matches messages, and the tables of interests that it keeps.

The broker learns what the matcher's leakage card says. It refuses everything that is not a message
of its matcher, key and epoch, and two messages of different pairs or rounds: it never gives a wrong
answer. It changes nothing that it is given.

A table grows, shrinks and can be saved. The scheme's form of interests (`TableScheme.table`) is
made once for each of a few *parts*. New interests become a part of their own; parts of about the
same size are joined, so that there are at most about log2 n of them and every interest is prepared
at most that often. Removed interests are passed over, and dropped for good when their part has lost
half.

The table keeps the messages, too: to join parts, and to be saved. So a saved table holds what the
broker has received, nothing more; and loading it examines every message again.

Parts never change. A change makes new ones and puts them in place of the old at once, when all of
them are there: another thread that matches meanwhile sees the table as it was or as it is, and a
change that fails changes nothing.

Hazard: ids in a saved table are not authenticated. Whoever can write the file can say which id
names which interest.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import islice
from operator import lt
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar

import numpy as np

from ccbps.arrays import Bools, Bytes, Index
from ccbps.checks import instance
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError
from ccbps.keys.confine import confined
from ccbps.keys.role_key import KeyUpdate, RoleKey
from ccbps.keys.secret import Confined
from ccbps.matching.contract.access import KeyAccess, bodies_of, header_bytes, message_bytes
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
from ccbps.records import Number, Record, read, write
from ccbps.wire import (
    ROUND_HEADER_BYTES,
    SERVER_BYTES,
    VERSION,
    Cause,
    Kind,
    check_round_headers,
    raise_for,
    round_tags,
)

InterestId = str | int
"""Name of an interest in a table."""

_FRONT: Final = bytes([Kind.TABLE, VERSION])
_CHECK_BYTES: Final = 32
_DAMAGED: Final = "not a saved table of interests, or a damaged one"
_LENGTH_BYTES: Final = 8


class _Head(Record, frozen=True):
    """Fields in front of the messages of a saved table."""

    matcher: bytes
    key: bytes
    epoch: Number
    following: Number
    ids: list[InterestId]


@dataclass(frozen=True)
class Part:
    """Interests whose content was made together.

    Attributes:
        messages: interest messages, shape (interests, interest_bytes).
        ids: name of each interest.
        alive: True for the interests that are still in the table.
        content: the scheme's form of the interests.
    """

    messages: Bytes
    ids: Sequence[InterestId]
    alive: Bools
    content: Any

    @cached_property
    def live(self) -> int:
        """Number of interests that are still in the table."""
        return int(np.count_nonzero(self.alive))

    @cached_property
    def rows(self) -> Index:
        """Rows of the interests that are still in the table."""
        return np.flatnonzero(self.alive)

    @property
    def names(self) -> Iterator[InterestId]:
        """Ids of the interests that are still in the table."""
        return (name for name, here in zip(self.ids, self.alive.tolist(), strict=True) if here)

    def without(self, rows: Sequence[int]) -> Part:
        """Return the same interests, of which some more are no longer in the table."""
        alive = self.alive.copy()
        alive[rows] = False
        part = replace(self, alive=alive)
        # What follows from ids is found once, not at every removal.
        for name in ("_ascending", "_places"):
            if name in vars(self):
                vars(part)[name] = vars(self)[name]
        return part

    def row_of(self, name: InterestId) -> int | None:
        """Return the row of an id, or None if it is not in the table any more."""
        if self._ascending and isinstance(name, int):
            row = bisect_left(self.ids, name)
            if row == len(self.ids) or self.ids[row] != name:
                return None
        else:
            row = self._places.get(name, -1)
        return row if row >= 0 and self.alive[row] else None

    @cached_property
    def _ascending(self) -> bool:
        """Whether ids are growing numbers, as the ones that a table gives are."""
        if isinstance(self.ids, range):
            return True
        if not all(type(name) is int for name in self.ids):
            return False
        return all(map(lt, self.ids, islice(self.ids, 1, None)))

    @cached_property
    def _places(self) -> Mapping[InterestId, int]:
        """Row of each id, removed ones included."""
        return {name: row for row, name in enumerate(self.ids)}


class Table(Confined):
    """Interests that a broker keeps. Made by `Broker.prepare` and `Broker.load`.

    Several threads may use one.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import TagMatch
        >>> matcher = TagMatch(Schema(price=UInt(8)))
        >>> server = matcher.key_server()
        >>> alice = matcher.subscriber(server.subscriber_key("alice"))
        >>> broker = matcher.broker(server.broker_key())
        >>> table = broker.prepare(alice.encode(["price < 10", "price > 99"]), ids=["low", "high"])
        >>> table.add(alice.encode("price = 50"), ids=["middle"])
        >>> table.remove(["low"])
        >>> table.ids
        ['high', 'middle']
        >>> feed = matcher.publisher(server.publisher_key())
        >>> broker.match_all(feed.encode({"price": [5, 50]}), table)
        array([[False, False],
               [False,  True]])
    """

    def __init__(self, keeper: Broker) -> None:
        self._keeper = keeper
        self._next = 0
        self._lock = Lock()
        self.parts: tuple[Part, ...] = ()
        """The parts as they are now, for the broker."""

    def __len__(self) -> int:
        return sum(part.live for part in self.parts)

    def __repr__(self) -> str:
        return f"<Table of {len(self)} interests>"

    @property
    def names(self) -> tuple[bytes, bytes, int]:
        """The matcher's fingerprint, the key's id and its epoch, which the interests belong to."""
        return self._keeper.names

    @property
    def ids(self) -> list[InterestId]:
        """Names of the interests, in the order of `Broker.match_all`'s columns."""
        return [name for part in self.parts for name in part.names]

    @property
    def messages(self) -> Bytes:
        """The interest messages in that order, shape (interests, interest_bytes)."""
        return self._messages(self.parts)

    def add(self, interests: Bytes, ids: Iterable[InterestId] | None = None) -> None:
        """Keep more interests.

        Args:
            interests: messages, uint8, shape (interests, interest_bytes).
            ids: a name for each, text or numbers that no other has; None to number them on.

        Raises:
            DecodeError: some bytes are not interest messages of the broker's matcher, key and
                epoch; names rows, and adds none.
            ParameterError: ids do not fit, or are there already.
        """
        raise_for(self._keeper.examine_interests(interests))
        with self._lock:
            self._append(np.array(interests), self._named(ids, len(interests)))

    def remove(self, ids: Iterable[InterestId]) -> None:
        """Keep some interests no longer.

        Raises:
            ParameterError: an id is not in the table; removes none.
        """
        gone = set(_listed(ids))
        with self._lock:
            parts = []
            for part in self.parts:
                rows = [row for name in gone if (row := part.row_of(name)) is not None]
                if rows:
                    gone -= {part.ids[row] for row in rows}
                    part = part.without(rows)
                parts.append(part)
            if gone:
                raise ParameterError(f"no interest {min(gone, key=str)!r} is in the table")
            self.parts = self._tidy(parts)

    def merge(self, other: Table) -> None:
        """Keep the interests of another table, too, of a broker with the same key.

        Raises:
            KeyMismatchError: it is another matcher's, key's or epoch's.
            ParameterError: an id is in both; or it is no table.
        """
        if instance("other", other, Table).names != self.names:
            raise KeyMismatchError("the tables belong to another matcher, key or epoch")
        theirs = other.parts
        messages, ids = self._messages(theirs), [name for part in theirs for name in part.names]
        with self._lock:
            self._append(messages, self._named(ids, len(messages)))

    def to_bytes(self) -> bytes:
        """Return messages and ids, for `Broker.load`; with a checksum, and nothing secret."""
        with self._lock:
            parts, following = self.parts, self._next
        ids = [name for part in parts for name in part.names]
        head = write(_Head(*self.names, following, ids))
        content = _FRONT + len(head).to_bytes(_LENGTH_BYTES) + head
        content += self._messages(parts).tobytes()
        return content + sha256(content).digest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_bytes` to a file, in place of what is there, or not at all.

        Raises:
            OSError: it cannot be written.
        """
        target = Path(path).resolve()
        number, draft = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(self.to_bytes())
                file.flush()
                os.fsync(file.fileno())
            Path(draft).replace(target)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
        with suppress(OSError):  # Not everywhere can a folder be synchronized.
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _restore(self, data: bytes, drop_unserved: bool) -> None:
        """Add the interests of saved bytes to an empty table, for `Broker.load`."""
        content, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
        if not content.startswith(_FRONT) or sha256(content).digest() != check:
            raise DecodeError(_DAMAGED)
        start = len(_FRONT) + _LENGTH_BYTES
        stop = start + int.from_bytes(content[len(_FRONT) : start])
        head = read(_Head, content[start:stop], refusal=_DAMAGED)
        if (head.matcher, head.key, head.epoch) != self.names:
            raise KeyMismatchError("the saved table belongs to another matcher, key or epoch")
        ids, width = head.ids, message_bytes(self._keeper.matcher, "interest")
        if len(content) - stop != width * len(ids):
            raise DecodeError(_DAMAGED)
        rows = np.frombuffer(content[stop:], dtype=np.uint8).reshape(-1, width)
        causes = self._keeper.examine_interests(rows)
        if drop_unserved:
            kept = np.flatnonzero(causes != Cause.USER)
            rows, causes, ids = rows[kept], causes[kept], [ids[row] for row in kept]
        raise_for(causes)
        try:
            names = self._named(ids, len(rows))
        except ParameterError:
            raise DecodeError(_DAMAGED) from None
        self._append(np.array(rows), names)
        self._next = max(self._next, head.following)

    def _messages(self, parts: Iterable[Part]) -> Bytes:
        none = np.empty((0, message_bytes(self._keeper.matcher, "interest")), dtype=np.uint8)
        return np.concatenate([none, *(part.messages[part.alive] for part in parts)])

    def _named(self, ids: Iterable[InterestId] | None, count: int) -> Sequence[InterestId]:
        """Return the ids of new interests, none of which is in the table."""
        if ids is None:
            return range(self._next, self._next + count)
        names = _listed(ids)
        if len(names) != count:
            raise ParameterError(f"{count} interests need as many ids, got {len(names)}")
        twice = [
            name for name in names if any(part.row_of(name) is not None for part in self.parts)
        ]
        if twice or len(set(names)) < len(names):
            problem = f"{twice[0]!r} is there already" if twice else "one occurs twice"
            raise ParameterError(
                f"ids must differ from one another and from those in the table; {problem}"
            )
        return names

    def _append(self, messages: Bytes, names: Sequence[InterestId]) -> None:
        if not len(messages):
            return
        parts = self._tidy([*self.parts, self._part(messages, names)])
        numbers = (name for name in names if isinstance(name, int))
        self._next = max(self._next, 1 + max(numbers, default=-1))
        self.parts = parts

    def _tidy(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Drop removed interests where they are many, and join the last parts while alike."""
        tidy = [self._joined([p]) if 2 * p.live <= len(p.ids) else p for p in parts if p.live]
        while len(tidy) > 1 and len(tidy[-2].ids) < 2 * len(tidy[-1].ids):
            tidy[-2:] = [self._joined(tidy[-2:])]
        return tuple(tidy)

    def _joined(self, parts: Sequence[Part]) -> Part:
        return self._part(self._messages(parts), [name for part in parts for name in part.names])

    def _part(self, messages: Bytes, names: Sequence[InterestId]) -> Part:
        alive = np.ones(len(messages), dtype=np.bool_)
        return Part(messages, names, alive, self._keeper.contents(messages))


def _listed(ids: Iterable[InterestId]) -> list[InterestId]:
    """Return ids as a list of text and whole numbers."""
    if isinstance(ids, str | bytes | int) or not isinstance(ids, Iterable):
        raise ParameterError(f"ids must be a list of names or numbers, got {ids!r}")
    names = [int(name) if isinstance(name, np.integer) else name for name in ids]
    for name in names:
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise ParameterError(f"an id must be text or a whole number, got {name!r}")
    return names


T = TypeVar("T", Bytes, Table)


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
        # Where it has no key, it is as public as the matcher.
        if isinstance(self._access, KeyAccess):
            return super().__reduce__()
        return Broker, (self.matcher,)

    # -- pairs ----------------------------------------------------------------------------------

    def match(self, events: Bytes, interests: Bytes) -> Bools:
        """Return the pairs of messages that match; row i of one belongs to row i of the other.

        Args:
            events: messages, uint8, shape (batch, event_bytes); where the scheme is a broadcast,
                also one event for all interests.
            interests: messages, uint8, shape (batch, interest_bytes).

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
        """Answer pairs as `match` does, but refuse rows one by one.

        Returns:
            answers, shape (batch,), False where refused; and the `ccbps.wire.Cause` of each row.
        """
        self._require_width(events, "event")
        self._require_width(interests, "interest")
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
        """Answer pairs of messages of rounds as `examine` does."""
        heads = np.empty((2, len(events), ROUND_HEADER_BYTES), dtype=np.uint8)
        answers, causes = matcher.match_behind(events, interests, heads)

        def tags(start: int, stop: int) -> Bytes:
            return round_tags(heads[0, start:stop], Kind.EVENT, matcher.fingerprint)

        bodies = self._body(events, "event"), self._body(interests, "interest")
        # The last cause is named: a header of another round before anything in the bodies.
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
        """Return a table of interests, with everything that can be computed before events come.

        Args:
            interests: messages, uint8, shape (interests, interest_bytes).
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
        """Return a table that `Table.save` or `Table.to_bytes` wrote.

        Args:
            table: path of the file, or its bytes.
            drop_unserved: True to leave out interests of users whom this broker does not serve:
                revoked ones. Users who are still to be admitted are lost by it: `admit` them first.

        Raises:
            DecodeError: it is not a saved table, or a damaged one; or it has interests of users
                whom this broker does not serve, and is not to drop them.
            KeyMismatchError: it is another matcher's, key's or epoch's.
            OSError: the file cannot be read.
        """
        self._tables()
        loaded = Table(self)
        data = table if isinstance(table, bytes) else Path(table).read_bytes()
        loaded._restore(data, drop_unserved)
        return loaded

    def match_all(self, events: Bytes, interests: Bytes | Table) -> Bools:
        """Match all events with all interests.

        Args:
            events: messages, uint8, shape (events, event_bytes).
            interests: messages, uint8, shape (interests, interest_bytes), or a table of them.

        Returns:
            bool, shape (events, interests); a table's columns are in the order of `Table.ids`.

        Raises:
            DecodeError: some bytes are not messages of this matcher, key and epoch; names rows.
            ParameterError: the matcher answers pairs only.
        """
        return self.match_parts(events, self._own(interests).parts)

    def examine_all(self, events: Bytes, interests: Bytes | Table) -> tuple[Bools, Bytes]:
        """Match as `match_all` does, but refuse event messages one by one.

        Returns:
            answers, shape (events, interests), False where the event is refused; and the
            `ccbps.wire.Cause` of each event.
        """
        causes, parts = self.examine_events(events), self._own(interests).parts
        good = np.flatnonzero(causes == Cause.NONE)
        if len(good) == len(events):
            return self._answers(events, parts), causes
        answers = self._answers(events[good], parts)
        out = np.zeros((len(events), answers.shape[1]), dtype=np.bool_)
        out[good] = answers
        return out, causes

    def match_parts(self, events: Bytes, parts: Sequence[Part]) -> Bools:
        """Match as `match_all` does, with the parts of a table at some moment (`Table.parts`)."""
        raise_for(self.examine_events(events))
        return self._answers(events, parts)

    def examine_events(self, events: Bytes) -> Bytes:
        """Return the `ccbps.wire.Cause` for refusing each event message; 0 for the others."""
        return self._examine(events, "event")

    def examine_interests(self, interests: Bytes) -> Bytes:
        """Return the `ccbps.wire.Cause` for refusing each interest message; 0 for the others."""
        return self._examine(interests, "interest")

    def covers(self, wide: Bytes | Table, narrow: Bytes | Table) -> Bools:
        """Return the pairs in which an interest of `wide` covers one of `narrow`, (wide, narrow).

        Raises:
            ParameterError: the scheme cannot tell.
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
            token: token from `KeyServer.rotate`. Several changes of key take theirs in turn.
            new: the broker of the new epoch.

        Returns:
            new messages, or a new table of the new broker's, with the same ids.

        Raises:
            KeyMismatchError: the token leads from another matcher, server, key or epoch, or not to
                that of the new broker; or the table is not this broker's.
            DecodeError: messages are not interests of this broker's key and epoch.
        """
        self._check_update(token, instance("new", new, Broker).names)
        change = token.export_secret_data()["change"]
        if not isinstance(interests, Table):
            raise_for(self.examine_interests(interests))
            return self._moved(interests, change, new)
        parts = self._own(interests).parts
        moved = Table(new)
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
        fingerprint, key_id, epoch = self.names
        if token.matcher != fingerprint or token.key_id[:SERVER_BYTES] != key_id[:SERVER_BYTES]:
            raise KeyMismatchError("the update belongs to another matcher or key server")
        data = token.export_secret_data()
        start = data.get("key"), data.get("from")
        data.clear()  # Tracebacks may show local variables.
        if start != (key_id.hex(), epoch):
            raise KeyMismatchError(
                f"the update is for interests of epoch {start[1]}; this broker's are of epoch "
                f"{epoch}, or of another key"
            )
        if new != (fingerprint, token.key_id, token.epoch):
            raise KeyMismatchError(
                f"the update leads to epoch {token.epoch}; the new broker is of epoch {new[2]}, or "
                "of another key"
            )

    def _moved(self, messages: Bytes, change: Any, new: Broker) -> Bytes:
        out = messages.copy()
        if len(out):
            moved = self._server().update(change, self._body(messages, "interest"))
            self._body(out, "interest")[:] = moved
            assert isinstance(new._access, KeyAccess)
            out[:, : header_bytes(new.matcher)] = new._access.header(Kind.INTEREST)
            new._access.authenticate(out)
        return out

    @confined
    def revoke(self, user: bytes) -> None:
        """Forget a user: its messages are refused, its interests in all tables match nothing.

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
        """Users that it serves, in hexadecimal, where the scheme has users."""
        return self._server().users(self._access.key)

    # -- for tables -------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[bytes, bytes, int]:
        """The matcher's fingerprint, the key's id and its epoch."""
        key_id = self._access.key_id if isinstance(self._access, KeyAccess) else b""
        return self.matcher.fingerprint, key_id, self.epoch

    def contents(self, interests: Bytes) -> Any:
        """Return the scheme's form of well-formed messages."""
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
        return bodies_of(self.matcher, messages, side)

    def _own(self, interests: Bytes | Table) -> Table:
        """Return interests as a table, which is under this broker's key and epoch."""
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
        for start in range(0, len(events) if parts else 0, MATCH_ROWS):
            at, column = slice(start, start + MATCH_ROWS), 0
            opened = matcher.open_events(key, self._body(events[at], "event"))
            for part in parts:
                answers = matcher.match(key, opened, part.content)
                stop = column + part.live
                full = part.live == len(part.ids)
                out[at, column:stop] = answers if full else answers[:, part.alive]
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
