"""File of broker 1 or 2: its parts of interests (SQLite).

The file holds what broker 0 passed on, still sealed, and opens with this broker's key only. It
tells which clients there are and how many interests each of them has.

A disk may be full. What cannot be deleted then is deleted with the next change that can be written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools, Bytes
from ccbps.errors import LedgerError, ParameterError
from ccbps.shares.clients import HEAD_BYTES

_APPLICATION: Final = int.from_bytes(b"ccbt", "big")
_TABLES: Final = """
CREATE TABLE about (owner BLOB NOT NULL);
CREATE TABLE parts (head BLOB PRIMARY KEY, part BLOB NOT NULL) WITHOUT ROWID;
"""


class Shelf:
    """The file, for one thread at a time.

    Args:
        path: path of the file, which is made if it is missing; None keeps everything in memory.
        owner: digest of the broker's key, number and public parameters.
        width: bytes of a part.

    Raises:
        LedgerError: the file cannot be used, or another process has it open.
        ParameterError: it is another broker's, or no such file.
    """

    def __init__(self, path: Path | None, owner: bytes, width: int) -> None:
        self._width, self._gone = width, set[bytes]()
        if path is not None and not path.exists():
            path.touch(mode=0o600)
        self._db = sqlite3.connect(
            path or ":memory:", isolation_level=None, check_same_thread=False
        )
        try:
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("BEGIN EXCLUSIVE")
            if self._one("SELECT count(*) FROM sqlite_schema") == 0:
                for statement in _TABLES.split(";"):
                    self._db.execute(statement)
                self._db.execute("INSERT INTO about VALUES (?)", (owner,))
                self._db.execute(f"PRAGMA application_id = {_APPLICATION}")
            if self._one("PRAGMA application_id") != _APPLICATION:
                raise ParameterError(f"{path} is not a file of this kind of broker")
            if self._one("SELECT owner FROM about") != owner:
                raise ParameterError(f"{path} belongs to another broker, key or matcher")
            self._db.execute("COMMIT")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA temp_store = MEMORY")
            self._db.execute("CREATE TEMP TABLE named (content BLOB PRIMARY KEY) WITHOUT ROWID")
        except BaseException as error:
            self._db.close()
            if isinstance(error, sqlite3.Error):
                raise LedgerError(f"the broker's file {path} cannot be used: {error}") from None
            raise

    def _one(self, query: str) -> Any:
        (value,) = self._db.execute(query).fetchone()
        return value

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def begin(self) -> None:
        """Forget what was named: `prune` keeps what is named from here on."""
        self._db.execute("DELETE FROM temp.named")

    def prune(self) -> None:
        """Delete the parts that were not named since `begin`.

        Raises:
            LedgerError: the file cannot be written.
        """
        named = "SELECT content FROM temp.named"
        self._write(f"DELETE FROM parts WHERE head NOT IN ({named})", [()])  # noqa: S608
        self.begin()

    def missing(self, heads: Bytes) -> Bools:
        """Mark the heads whose interests are not there, shape (count,); they count as named."""
        content = [head.tobytes() for head in heads]
        self._write("INSERT OR IGNORE INTO temp.named VALUES (?)", [(head,) for head in content])
        there = self._parts(content)
        return np.array([head not in there for head in content], dtype=np.bool_)

    def parts(self, heads: Bytes) -> Bytes | None:
        """Return the parts with these heads, shape (count, bytes), or None if some are missing."""
        content = [head.tobytes() for head in heads]
        there = self._parts(content)
        if any(head not in there for head in content):
            return None
        joined = bytearray(b"".join(there[head] for head in content))
        return np.frombuffer(joined, dtype=np.uint8).reshape(len(heads), self._width)

    def store(self, parts: Bytes) -> None:
        """Write parts; those that are there stay as they are.

        Raises:
            LedgerError: the file cannot be written.
        """
        rows = [(part[:HEAD_BYTES].tobytes(), part.tobytes()) for part in parts]
        self._gone.difference_update(head for head, _ in rows)
        self._write("INSERT OR IGNORE INTO parts VALUES (?, ?)", rows)

    def remove(self, heads: Iterable[bytes]) -> None:
        """Delete parts.

        Raises:
            LedgerError: the file cannot be written now. They are deleted later.
        """
        self._gone.update(heads)
        self._write("DELETE FROM parts WHERE head = ?", [(head,) for head in self._gone])
        self._gone.clear()

    def _parts(self, heads: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the parts that are there, by their heads."""
        asked = ",".join("?" * len(heads))
        query = f"SELECT head, part FROM parts WHERE head IN ({asked})"  # noqa: S608
        return dict(self._db.execute(query, heads))

    def _write(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            with self._db:
                self._db.executemany(statement, rows)
        except sqlite3.Error as error:
            raise LedgerError(f"the broker's file cannot be written: {error}") from None
