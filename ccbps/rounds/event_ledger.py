"""A ledger that allots rounds to events: an event gets one when it is first seen, and keeps it.

Whoever encodes names events by an id of its own, and nothing else: a task that is run again, a
second copy of it and a stream that starts anew get the rounds that they had, so the same messages
come out, and other content under an id that was used is refused before anything is encoded. All
subscriptions share the rounds: a pair's round encodes one event, since pairs have seeds of their
own.

The file (`ccbps.rounds.ledger_file`) binds each event's *name* to a round and to a *tag* of its
content, both computed with keys derived from the seed, the tag from the round as well. Whoever
reads the file learns how many events there were, in which order roughly, and when it changed, but
no ids and no contents.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Index, Rounds
from ccbps.errors import LedgerError, ParameterError
from ccbps.keys.randomness import TAG_BYTES
from ccbps.rounds.ledger_file import LedgerFile, identity_bytes

_log: Final = logging.getLogger(__name__)
_MORE: Final = "let subscribers encode interests for more"
FORETOLD: Final = 0.9
"""Of the rounds: once so many are used, it is said that they run out."""
_TABLES: Final = (
    "CREATE TABLE events (name INTEGER PRIMARY KEY, round INTEGER NOT NULL, tag BLOB NOT NULL)",
    "CREATE TABLE streams (stream BLOB PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE identity AS SELECT randomblob(16) AS identity",
)


class EventLedger:
    """Rounds of events, in a file. Several processes may use it at once.

    The object stands for one file: where another one is under its path by now, also on another
    machine that it is sent to, nothing is allotted.

    Attributes:
        rounds: that subscribers have interests for: 0 .. rounds - 1; None for no bound.

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
        """
        Args:
            path: of the file. All processes that encode must reach it by this path.
            rounds: that subscribers have interests for. Beyond them events are refused, and a
                warning is logged once nine tenths are used.
            identity: of the file, from `identity()` when it was made. A program that starts again,
                a stream for one, should give it: a file that is missing by then, or another one, is
                refused, since a new ledger would use the seed's rounds once more. None makes the
                file if there is none, for its owner only.

        Raises:
            LedgerError: the file cannot be opened or created, or is not such a ledger; or not the
                one that `identity` means.
        """
        if rounds is not None and (type(rounds) is not int or not 0 < rounds <= 1 << 63):
            raise ParameterError(f"rounds must be a whole number above 0, or None, got {rounds!r}")
        identity_bytes(identity)  # refuses what is no identity
        self.rounds, self._identity = rounds, identity
        self._file = LedgerFile.at(
            path, b"ccbe", 2, _TABLES, "a ledger of events", "event", new=identity is None
        )
        self._identity = self.identity()

    def __repr__(self) -> str:
        return f"<EventLedger {self._file.path}>"

    def identity(self) -> str:
        """32 hexadecimal digits, drawn when the file was made: copies of it have the same, and no
        other file has.

        Raises:
            LedgerError: the file cannot be read.
        """
        with self._transaction() as file:
            return _identity_of(file)

    def used(self) -> int:
        """How many rounds are used; of the matcher and seed that used most, if there are several.

        Raises:
            LedgerError: the file cannot be read.
        """
        with self._transaction() as file:
            (most,) = file.execute("SELECT max(next) FROM streams").fetchone()
        return int(most or 0)

    def allot(
        self,
        stream: bytes,
        names: NDArray[np.int64],
        tags: Callable[[Rounds], Bytes],
        refuse: Callable[[Bools, Rounds], object],
    ) -> tuple[Rounds, Bools]:
        """Rounds of events.

        Args:
            stream: of the seed and the matcher, 16 bytes: each has rounds of its own.
            names: of the stream's events, int64, shape (events,), 64 bits that nobody can foresee.
                One may occur several times. (Two events with one name are refused as one with other
                content.)
            tags: computes tags, uint8, shape (events, 16), of the events' rounds and contents.
            refuse: called with which events have other content than the one that their name was
                used for first, if there are any; where it raises, nothing was allotted.

        Returns:
            rounds, uint64, and which events were refused, both of shape (events,).

        Raises:
            LedgerError: the file cannot be read or written; or there are too few rounds. Nothing
                was allotted.

        Cost: a transaction, which waits for the disk about five times; and for each new event, on
        one core, 6 us, which grow to 20 where a file is large, and 40 bytes of the file.
        """
        if not len(names):
            return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.bool_)
        # In the order of the file.
        distinct, first, place = np.unique(names, return_index=True, return_inverse=True)
        with self._transaction() as file:
            known, numbers, kept = _known(file, distinct)
            start = file.execute("SELECT next FROM streams WHERE stream = ?", (stream,)).fetchone()
            begin = 0 if start is None else int(start[0])
            new = np.flatnonzero(~known)
            self._require(begin, len(new))
            # In the order in which they come.
            numbers[new[np.argsort(first[new])]] = np.arange(begin, begin + len(new))
            rounds = numbers[place]
            made = tags(rounds)
            kept[new] = made[first[new]]
            other: Bools = (made != kept[place]).any(axis=1)
            if other.any():
                refuse(other, rounds)
            rows = zip(
                distinct[new].tolist(), numbers[new].tolist(), map(bytes, kept[new]), strict=True
            )
            file.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)
            if len(new):
                file.execute(
                    "INSERT OR REPLACE INTO streams VALUES (?, ?)", (stream, begin + len(new))
                )
        return rounds, other

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """The file, locked, if it is the one that it was.

        Raises:
            LedgerError: it is another one, or cannot be used.
        """
        with self._file.transaction() as file:
            if self._identity not in (None, found := _identity_of(file)):
                raise LedgerError(
                    f"{self._file.path} is another ledger ({found}) than the one that was meant "
                    f"({self._identity}), so nothing was encoded: it would use rounds once more. "
                    "Bring that one back (not an older copy); if it is lost, take a new seed and a "
                    "new ledger"
                )
            yield file

    def _require(self, begin: int, count: int) -> None:
        """Raises LedgerError if there are too few rounds; tells before there are."""
        if self.rounds is None:
            return
        if begin + count > self.rounds:
            raise LedgerError(
                f"{begin} of {self.rounds} rounds are used, and {count} more events came: "
                "subscribers must encode interests for more rounds, and EventLedger be told"
            )
        if begin < self._foretold(self.rounds) <= begin + count:
            _log.warning("%d of %d rounds are used: %s", begin + count, self.rounds, _MORE)

    def foretell(self) -> None:
        """Log a warning if nine tenths of the rounds are used, as a job that begins does.

        Raises:
            LedgerError: the file cannot be read.
        """
        if self.rounds is None or (used := self.used()) < self._foretold(self.rounds):
            return
        of = "(with the matcher and seed, or epoch, that used most)"
        _log.warning("%d of %d rounds are used %s: %s", used, self.rounds, of, _MORE)

    @staticmethod
    def _foretold(rounds: int) -> int:
        return max(1, int(FORETOLD * rounds))


def _identity_of(file: sqlite3.Connection) -> str:
    (found,) = file.execute("SELECT identity FROM identity").fetchone()
    return bytes(found).hex()


def _known(file: sqlite3.Connection, names: NDArray[np.int64]) -> tuple[Bools, Rounds, Bytes]:
    """Which events have rounds; those, and their tags."""
    known = np.zeros(len(names), dtype=np.bool_)
    rounds, tags = np.zeros(len(names), np.uint64), np.zeros((len(names), TAG_BYTES), np.uint8)
    file.execute("CREATE TEMP TABLE asked (place INTEGER, name INTEGER)")
    file.executemany("INSERT INTO asked VALUES (?, ?)", enumerate(names.tolist()))
    found = file.execute(
        "SELECT place, round, tag FROM asked CROSS JOIN events ON events.name = asked.name"
    ).fetchall()
    if any(len(tag) != TAG_BYTES for *_, tag in found):
        raise LedgerError("the ledger is damaged, so nothing was encoded")
    if found:
        places: Index = np.array([place for place, *_ in found], dtype=np.intp)
        known[places] = True
        rounds[places] = [number for _, number, _ in found]
        joined = b"".join(tag for *_, tag in found)
        tags[places] = np.frombuffer(joined, np.uint8).reshape(-1, TAG_BYTES)
    return known, rounds, tags
