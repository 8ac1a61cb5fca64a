"""A ledger of rounds on disk: the use of each (pair, round), across roles and processes.

A round may be encoded again with the same content, for example after a crash, since the same
message comes out; with other content it is refused before anything is encoded. So the ledger binds
each round to a *tag* of its content. Names of streams (a pair, a side, a matcher) and tags are
computed with keys derived from the pair's seed, and tags from the round as well. A reader of the
file learns the round numbers, their grouping by streams, and the times of changes, but no labels,
no contents, and not which contents are equal.

The ledger is an SQLite file (`ccbps.rounds.ledger_file`). A claim is one transaction: all its
rounds are on disk when it returns, or none, even if the process is killed or several processes
write at once. Consecutive rounds are stored as one row, 16 bytes per round.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Rounds
from ccbps.checks import Printable
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import RandomnessReuseError
from ccbps.keys.randomness import TAG_BYTES, Marks
from ccbps.keys.used_rounds import ROUND_RULE
from ccbps.rounds.ledger_file import LedgerFile

if TYPE_CHECKING:
    import sqlite3

Shifted = NDArray[np.int64]
"""Rounds minus 2^63, in the same order: SQLite's integers hold them."""

ROW_ROUNDS: Final = 48
"""Most consecutive rounds in a row of the file: five such rows fill a page."""

_TABLES: Final = (
    "CREATE TABLE runs (stream BLOB NOT NULL, first INTEGER NOT NULL, tags BLOB NOT NULL, "
    "PRIMARY KEY (stream, first)) WITHOUT ROWID",
    # The same keys once more: a row that one table lacks is a damaged one.
    "CREATE TABLE sums (stream BLOB NOT NULL, first INTEGER NOT NULL, sum INTEGER NOT NULL, "
    "PRIMARY KEY (stream, first)) WITHOUT ROWID",
)
# Windows of one stream are disjoint, so that no row is found twice.
_FIND: Final = (
    "SELECT asked.owner, {0}.first, {0}.{1} FROM asked CROSS JOIN {0} "
    "ON {0}.stream = asked.stream AND {0}.first BETWEEN asked.low AND asked.high"
)
_LOWEST: Final = -(1 << 63)


@dataclass(frozen=True, slots=True)
class _Batch:
    """The rounds of a batch, sorted by stream and number; `rows` are their places at the caller."""

    names: list[bytes]
    owner: NDArray[np.intp]
    number: Shifted
    tags: Bytes
    rows: NDArray[np.intp]


class DiskLedger(Printable):
    """The used rounds, each bound to its content, in a file.

    Args:
        path: path of the file; if there is none, it is created for its owner only.
        noun: name of a number, in errors.
        rule: rule for the use of a number, in errors.

    Raises:
        LedgerError: the file cannot be opened or created, or is not a ledger.
    """

    def __init__(
        self, path: str | os.PathLike[str], noun: str = "round", rule: str = ROUND_RULE
    ) -> None:
        self._noun, self._rule = noun, rule
        self._file = LedgerFile(path, b"ccbr", 3, _TABLES, "a ledger of rounds", noun)

    def __repr__(self) -> str:
        return f"<DiskLedger {self._file.path}>"

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self._file.path

    def holds(self, streams: Sequence[bytes]) -> list[bool]:
        """Tell for each stream, by its name, whether a round of it was ever used.

        Raises:
            LedgerError: the file cannot be read, or is damaged.
        """
        query = "SELECT 1 FROM {} WHERE stream = ? LIMIT 1"
        with self._file.transaction() as file:
            runs, sums = (
                [file.execute(query.format(table), (name,)).fetchone() for name in streams]
                for table in ("runs", "sums")
            )
            if runs != sums:
                raise self._file.damaged()
        return [row is not None for row in runs]

    def claim(
        self, rounds: Rounds, marks: Marks, pairs: DictionaryColumn[str] | None = None
    ) -> None:
        """Bind rounds to their content: all of them, or none when it raises.

        Args:
            rounds: round numbers, shape (batch,).
            marks: marks of the source of randomness for these rounds and their content.
            pairs: pair of each row, for errors; None for a role of one pair.

        Raises:
            RandomnessReuseError: a round was used for something else, or occurs twice; with marks
                that are not bound, it was used before, for anything.
            LedgerError: the file cannot be read or written.

        Cost: a transaction, which waits for the disk about five times; and for each round, on one
        core, 0.2 us and 18 bytes where rounds are consecutive, 6 us and 95 bytes elsewhere.
        """
        if not len(rounds):
            return
        batch = _sorted(rounds, marks)
        same = (batch.owner[1:] == batch.owner[:-1]) & (batch.number[1:] == batch.number[:-1])
        self._refuse(np.flatnonzero(same) + 1, batch, pairs, "occurs more than once in this batch")
        with self._file.transaction() as file:
            kept, sums = _stored(file, batch)
            if {*sums} != {*_sums(batch, kept)} or len(sums) != len(kept):
                raise self._file.damaged()
            stored, differ = _compared(batch, kept)
            use = "used for something else" if marks.bound else "already used"
            wrong = np.flatnonzero(differ if marks.bound else stored)
            self._refuse(wrong, batch, pairs, f"was {use}, says {self._file.path}")
            if not stored.all():
                self._file.advance(file)
                _store(file, batch, np.flatnonzero(~stored), kept)

    def _refuse(
        self,
        wrong: NDArray[np.intp],
        batch: _Batch,
        pairs: DictionaryColumn[str] | None,
        reason: str,
    ) -> None:
        if len(wrong):
            row = int(batch.rows[wrong[0]])
            number = int(batch.number[wrong[0]]) - _LOWEST
            pair = "" if pairs is None else f"pair {pairs.values[pairs.index[row]]!r}: "
            raise RandomnessReuseError(f"{pair}{self._noun} {number} {reason}; {self._rule}")


def _sorted(rounds: Rounds, marks: Marks) -> _Batch:
    # Two labels may lead to one stream.
    numbers: dict[bytes, int] = {}
    streams = np.array([numbers.setdefault(name, len(numbers)) for name in marks.names], np.intp)
    owner = streams[np.zeros(len(rounds), np.intp) if marks.index is None else marks.index]
    number = (rounds ^ np.uint64(1 << 63)).view(np.int64)
    rows = np.lexsort((number, owner))
    return _Batch(list(numbers), owner[rows], number[rows], marks.tags[rows], rows)


def _edges(owner: NDArray[np.intp], number: Shifted, gap: int) -> list[tuple[int, int]]:
    """Cut where the stream changes or a step is wider than `gap`; return begin and end of each."""
    # The difference of neighbours of one stream is positive: as uint64 it does not wrap around.
    step = number[1:].view(np.uint64) - number[:-1].view(np.uint64)
    new = np.flatnonzero((owner[1:] != owner[:-1]) | (step > np.uint64(gap))) + 1
    return list(zip([0, *new.tolist()], [*new.tolist(), len(owner)], strict=True))


def _sum(stream: bytes, first: int, tags: bytes) -> int:
    """Return the checksum of a row."""
    return crc32(tags, crc32(first.to_bytes(8, "big", signed=True), crc32(stream)))


def _sums(batch: _Batch, kept: list[tuple[int, int, bytes]]) -> Iterator[tuple[int, int, Any]]:
    """Yield what the table of checksums must hold for rows; -1, no checksum, for damaged rows."""
    for owner, first, tags in kept:
        whole = type(first) is int and type(tags) is bytes and not len(tags) % TAG_BYTES
        yield owner, first, _sum(batch.names[owner], first, tags) if whole else -1


def _stored(
    file: sqlite3.Connection, batch: _Batch
) -> tuple[list[tuple[int, int, bytes]], list[tuple[int, int, int]]]:
    """Read the rows that may hold rounds of the batch, or that may end right before one.

    Returns:
        stream, first, tags of each; and stream, first, checksum of each.
    """
    windows = [
        (
            int(batch.owner[low]),
            batch.names[batch.owner[low]],
            max(_LOWEST, int(batch.number[low]) - ROW_ROUNDS),
            int(batch.number[high - 1]),
        )
        for low, high in _edges(batch.owner, batch.number, ROW_ROUNDS)
    ]
    file.execute("CREATE TEMP TABLE asked (owner INTEGER, stream BLOB, low INTEGER, high INTEGER)")
    file.executemany("INSERT INTO asked VALUES (?, ?, ?, ?)", windows)
    runs, sums = (_FIND.format(*names) for names in (("runs", "tags"), ("sums", "sum")))
    return file.execute(runs).fetchall(), file.execute(sums).fetchall()


def _compared(
    batch: _Batch, kept: list[tuple[int, int, bytes]]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Mark the rounds of the batch that the file has, and those that it has with another tag."""
    stored, differ = np.zeros((2, len(batch.rows)), dtype=np.bool_)
    if not kept:
        return stored, differ
    counts = np.array([len(tags) // TAG_BYTES for _, _, tags in kept], dtype=np.intp)
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    owner = np.repeat(np.array([owner for owner, _, _ in kept], dtype=np.intp), counts)
    number = np.repeat(np.array([first for _, first, _ in kept], dtype=np.int64), counts) + place
    tags = np.frombuffer(b"".join(tags for _, _, tags in kept), np.uint8).reshape(-1, TAG_BYTES)
    # Neither side has a round twice: equal neighbours are one of the file and one of the batch.
    owners, numbers = np.append(owner, batch.owner), np.append(number, batch.number)
    side = np.arange(len(owners)) >= len(owner)
    order = np.lexsort((side, numbers, owners))
    both = (np.diff(owners[order]) == 0) & (numbers[order[1:]] == numbers[order[:-1]])
    theirs, ours = order[:-1][both], order[1:][both] - len(owner)
    stored[ours] = True
    differ[ours] = (tags[theirs] != batch.tags[ours]).any(axis=1)
    return stored, differ


def _store(
    file: sqlite3.Connection,
    batch: _Batch,
    fresh: NDArray[np.intp],
    kept: list[tuple[int, int, bytes]],
) -> None:
    """Write the rounds `fresh` of the batch: behind a row that ends before them, or as new rows."""
    owner, number, tags = batch.owner[fresh], batch.number[fresh], batch.tags[fresh].tobytes()
    # Rows by the next round that would continue them: (stream, number) -> first round and tags.
    ends = {(stream, first + len(row) // TAG_BYTES): (first, row) for stream, first, row in kept}
    longer: list[tuple[bytes, bytes, int]] = []
    new: list[tuple[bytes, int, bytes]] = []
    for low, high in _edges(owner, number, 1):
        for start in range(low, high, ROW_ROUNDS):
            stop = min(start + ROW_ROUNDS, high)
            stream, first = int(owner[start]), int(number[start])
            part = tags[start * TAG_BYTES : stop * TAG_BYTES]
            begun, row = ends.get((stream, first), (0, b""))
            if row and len(row) + len(part) <= ROW_ROUNDS * TAG_BYTES:
                longer.append((row + part, batch.names[stream], begun))
            else:
                new.append((batch.names[stream], first, part))
    new.sort()  # in the order of the file
    file.executemany("INSERT INTO runs VALUES (?, ?, ?)", new)
    file.executemany("UPDATE runs SET tags = ? WHERE stream = ? AND first = ?", longer)
    sums = [(name, first, _sum(name, first, part)) for name, first, part in new]
    file.executemany("INSERT INTO sums VALUES (?, ?, ?)", sums)
    sums = [(name, first, _sum(name, first, part)) for part, name, first in longer]
    file.executemany("INSERT OR REPLACE INTO sums VALUES (?, ?, ?)", sums)
