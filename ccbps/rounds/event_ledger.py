"""A ledger that allots rounds to events: an event gets one when it is first seen, and keeps it.

The encoder knows each event by an id of the event's own, and by nothing else. A task that is run
again, a second copy of it and a restarted stream get the same rounds as before, so the same
messages come out. Other content under a used id is refused before anything is encoded. All
subscriptions share the rounds: a pair's round encodes one event, since pairs have seeds of their
own.

The file (`ccbps.rounds.ledger_file`) binds each event's *name* to a round and to a *tag* of its
content, both computed with keys derived from the seed, the tag from the round as well. A reader of
the file learns the number of events, roughly their order, and the times of changes, but no ids and
no contents.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Index, Rounds
from ccbps.checks import Printable, whole
from ccbps.errors import LedgerError
from ccbps.keys.randomness import TAG_BYTES
from ccbps.rounds.ledger_file import IDENTITY_BYTES, LedgerFile, identity_bytes

if TYPE_CHECKING:
    import sqlite3

_log: Final = logging.getLogger(__name__)
_MORE: Final = "let subscribers encode interests for more"
_ENDS: Final = ("streams", "ends")
"""Tables of each stream's next round."""
_FACTORS: Final = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93
"""Odd, so that a changed bit changes the sum."""
FORETOLD: Final = 0.9
"""Part of the rounds after whose use a warning says that they run out."""
_TABLES: Final = (
    "CREATE TABLE events (name INTEGER PRIMARY KEY, round INTEGER NOT NULL, tag BLOB NOT NULL)",
    "CREATE TABLE streams (stream BLOB PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID",
    # The same keys once more: a row that one table lacks is a damaged one.
    "CREATE TABLE sums (name INTEGER PRIMARY KEY, sum INTEGER NOT NULL)",
    "CREATE TABLE ends (stream BLOB PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE identity AS SELECT randomblob(16) AS identity",
)


class EventLedger(Printable):
    """The rounds of events, in a file. Several processes may use it at once.

    The object is bound to one file. If its path leads to another file, for example on another
    machine, nothing is allotted.

    Attributes:
        rounds: number of rounds 0 .. rounds - 1 that subscribers have interests for; None for no
            bound.

    Args:
        path: path of the file. All processes that encode must reach it by this path.
        rounds: number of rounds that subscribers have interests for. Beyond them events are
            refused, and a warning is logged once nine tenths are used.
        identity: identity of the file, from `identity()` when it was made. A program that restarts,
            such as a stream, should give it: then a missing file or another file is refused, since
            a new ledger would use the seed's rounds once more. None to make a missing file, for its
            owner only.

    Raises:
        LedgerError: the file cannot be opened or created, is not such a ledger, or has another
            identity.

    Example:
        >>> import os, tempfile
        >>> from ccbps.rounds import EventLedger
        >>> path = os.path.join(tempfile.mkdtemp(), "events.ledger")
        >>> EventLedger(path, rounds=1_000_000).used()
        0
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        rounds: int | None = None,
        identity: str | None = None,
    ) -> None:
        self.rounds = None if rounds is None else whole("rounds", rounds, 1, 1 << 63)
        self._warned_from = max(1, int(FORETOLD * (self.rounds or 0)))
        identity_bytes(identity)  # refuses other text
        self._identity = identity
        kind, new = "a ledger of events", identity is None
        self._file = LedgerFile(path, b"ccbe", 4, _TABLES, kind, "event", new=new)
        self._identity = self.identity()

    def __repr__(self) -> str:
        return f"<EventLedger {self._file.path}>"

    def identity(self) -> str:
        """Return 32 hexadecimal digits, drawn when the file was made.

        Copies of the file have the same, and no other file has.

        Raises:
            LedgerError: the file cannot be read.
        """
        with self._transaction() as file:
            return self._identity_of(file)

    def used(self) -> int:
        """Return the number of used rounds, for the matcher and seed that used most.

        Raises:
            LedgerError: the file cannot be read.
        """
        with self._transaction() as file:
            most, again = (
                file.execute(f"SELECT max(next) FROM {table}").fetchone()[0] or 0  # noqa: S608
                for table in _ENDS
            )
            if type(most) is not int or most != again:
                raise self._file.damaged()
        return most

    def allot(
        self,
        stream: bytes,
        names: NDArray[np.int64],
        tags: Callable[[Rounds], Bytes],
        refuse: Callable[[Bools, Rounds], object],
    ) -> tuple[Rounds, Bools]:
        """Allot rounds to events.

        Args:
            stream: name of the seed and the matcher, 16 bytes: each has rounds of its own.
            names: names of the stream's events, shape (events,), 64 bits that nobody can foresee.
                A name may occur several times. (Two events with one name are refused as one with
                other content.)
            tags: function that computes tags, shape (events, 16), of the events' rounds and
                contents.
            refuse: function called if there are events whose content is not that for which their
                name was first used: with marks of these events, and the rounds. If it raises,
                nothing is allotted.

        Returns:
            The rounds, and marks of the events with other content, both of shape (events,).

        Raises:
            LedgerError: the file cannot be read or written; or there are too few rounds. Nothing
                is allotted.

        Cost: a transaction, which waits for the disk about five times; and for each new event, on
        one core, 8 us, which grow to 30 where a file is large, and 65 bytes of the file.
        """
        if not len(names):
            return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.bool_)
        # In the order of the file.
        distinct, first, place = np.unique(names, return_index=True, return_inverse=True)
        with self._transaction() as file:
            events = _stored_events(file, distinct)
            begin = _begin(file, stream)
            if events is None or begin is None:
                raise self._file.damaged()
            stored, numbers, kept = events
            new = np.flatnonzero(~stored)
            self._require(begin, len(new))
            # In the order of the batch.
            numbers[new[np.argsort(first[new])]] = np.arange(begin, begin + len(new))
            rounds = numbers[place]
            computed = tags(rounds)
            kept[new] = computed[first[new]]
            other: Bools = (computed != kept[place]).any(axis=1)
            if other.any():
                refuse(other, rounds)
            if not len(new):
                return rounds, other
            self._file.advance(file)
            fresh = distinct[new].tolist()
            rows = zip(fresh, numbers[new].tolist(), map(bytes, kept[new]), strict=True)
            file.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)
            sums = _sums(distinct[new], numbers[new], kept[new]).tolist()
            file.executemany("INSERT INTO sums VALUES (?, ?)", zip(fresh, sums, strict=True))
            for table in _ENDS:
                last = stream, begin + len(new)
                file.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", last)  # noqa: S608
        return rounds, other

    def _transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """Lock and open the file.

        Raises:
            LedgerError: the file was replaced by another one, or cannot be used.
        """
        return self._file.transaction(self._require_identity)

    def _require_identity(self, file: sqlite3.Connection) -> None:
        if self._identity not in (None, identity := self._identity_of(file)):
            raise LedgerError(
                f"{self._file.path} is another ledger ({identity}) than the one that was meant "
                f"({self._identity}), so nothing was encoded: it would use rounds once more. "
                "Bring that one back (not an older copy); if it is lost, take a new seed and a "
                "new ledger"
            )

    def _identity_of(self, file: sqlite3.Connection) -> str:
        row = file.execute("SELECT identity FROM identity").fetchone()
        if row is None or type(row[0]) is not bytes or len(row[0]) != IDENTITY_BYTES:
            raise self._file.damaged()
        return bytes(row[0]).hex()

    def _require(self, begin: int, count: int) -> None:
        """Check that enough rounds are left, and warn before they run out.

        Raises:
            LedgerError: too few rounds are left.
        """
        if self.rounds is None:
            return
        if begin + count > self.rounds:
            raise LedgerError(
                f"{begin} of {self.rounds} rounds are used, and {count} more events came: "
                "subscribers must encode interests for more rounds, and EventLedger be told"
            )
        if begin < self._warned_from <= begin + count:
            _log.warning("%d of %d rounds are used: %s", begin + count, self.rounds, _MORE)

    def foretell(self) -> None:
        """Log a warning if nine tenths of the rounds are used, as a job that begins does.

        Raises:
            LedgerError: the file cannot be read.
        """
        if self.rounds is None or (used := self.used()) < self._warned_from:
            return
        of = "(with the matcher and seed, or epoch, that used most)"
        _log.warning("%d of %d rounds are used %s: %s", used, self.rounds, of, _MORE)


def _sums(names: NDArray[np.int64], rounds: Rounds, tags: Bytes) -> NDArray[np.int64]:
    """Return a checksum of each event: it changes with each bit of name, round or tag."""
    parts = [names.view(np.uint64), rounds, *np.ascontiguousarray(tags).view("<u8").T]
    total = np.zeros(len(names), dtype=np.uint64)
    for part, factor in zip(parts, _FACTORS, strict=True):
        total += part * np.uint64(factor)
    return total.view(np.int64)


def _begin(file: sqlite3.Connection, stream: bytes) -> int | None:
    """Return the next round of a stream; None if the file is damaged."""
    start, again = (
        file.execute(f"SELECT next FROM {table} WHERE stream = ?", (stream,)).fetchone()  # noqa: S608
        or (0,)
        for table in _ENDS
    )
    return start[0] if start == again and type(start[0]) is int and start[0] >= 0 else None


def _stored_events(
    file: sqlite3.Connection, names: NDArray[np.int64]
) -> tuple[Bools, Rounds, Bytes] | None:
    """Mark the events that have rounds.

    Returns:
        The marks, the rounds and the tags; None if the file is damaged.
    """
    stored = np.zeros(len(names), dtype=np.bool_)
    rounds, tags = np.zeros(len(names), np.uint64), np.zeros((len(names), TAG_BYTES), np.uint8)
    file.execute("CREATE TEMP TABLE asked (place INTEGER, name INTEGER)")
    file.executemany("INSERT INTO asked VALUES (?, ?)", enumerate(names.tolist()))
    query = "SELECT place, {1} FROM asked CROSS JOIN {0} ON {0}.name = asked.name ORDER BY place"
    rows = file.execute(query.format("events", "round, tag")).fetchall()
    sums = file.execute(query.format("sums", "sum")).fetchall()
    whole = [type(number) is int and type(tag) is bytes for _, number, tag in rows]
    if not all(whole) or any(len(tag) != TAG_BYTES or number < 0 for _, number, tag in rows):
        return None
    if rows:
        places, numbers, tag_bytes = zip(*rows, strict=True)
        index: Index = np.array(places, dtype=np.intp)
        stored[index], rounds[index] = True, numbers
        tags[index] = np.frombuffer(b"".join(tag_bytes), np.uint8).reshape(-1, TAG_BYTES)
    computed = _sums(names[stored], rounds[stored], tags[stored]).tolist()
    expected = zip(np.flatnonzero(stored).tolist(), computed, strict=True)
    return (stored, rounds, tags) if sums == [*expected] else None
