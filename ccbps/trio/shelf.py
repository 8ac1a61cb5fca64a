"""File of broker 1 or 2: its parts of interests and the hellos of clients (SQLite).

The file holds what broker 0 passed on, still sealed, and opens with this broker's key only. It
tells which clients there are and how many interests each of them has.
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
CREATE TABLE hellos (hello BLOB PRIMARY KEY) WITHOUT ROWID;
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
        self._width = width
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
        """Delete the parts and hellos that were not named since `begin`.

        Raises:
            LedgerError: the file cannot be written.
        """
        for table, column in (("parts", "head"), ("hellos", "hello")):
            statement = f"DELETE FROM {table} WHERE {column} NOT IN (SELECT content FROM named)"  # noqa: S608
            self._write(statement, [()])

    def _name(self, rows: Iterable[bytes]) -> None:
        self._write("INSERT OR IGNORE INTO temp.named VALUES (?)", [(row,) for row in rows])

    def missing(self, heads: Bytes) -> Bools:
        """Mark the heads whose interests are not there, shape (count,); they count as named."""
        self._name(head.tobytes() for head in heads)
        return np.array([part is None for part in self._parts(heads)], dtype=np.bool_)

    def parts(self, heads: Bytes) -> Bytes | None:
        """Return the parts with these heads, shape (count, bytes), or None if some are missing."""
        parts = self._parts(heads)
        if any(part is None for part in parts):
            return None
        content = bytearray(b"".join(part for part in parts if part is not None))
        return np.frombuffer(content, dtype=np.uint8).reshape(len(heads), self._width)

    def store(self, parts: Bytes) -> None:
        """Write parts; those that are there stay as they are.

        Raises:
            LedgerError: the file cannot be written.
        """
        rows = [(part[:HEAD_BYTES].tobytes(), part.tobytes()) for part in parts]
        self._write("INSERT OR IGNORE INTO parts VALUES (?, ?)", rows)

    def remove(self, heads: Bytes) -> None:
        """Delete parts."""
        rows = [(head.tobytes(),) for head in heads]
        self._write("DELETE FROM parts WHERE head = ?", rows)

    def greet(self, hellos: Sequence[bytes]) -> None:
        """Write hellos; they count as named."""
        self._name(hellos)
        self._write("INSERT OR IGNORE INTO hellos VALUES (?)", [(hello,) for hello in hellos])

    def forget(self, clients: Iterable[bytes]) -> None:
        """Delete the hellos of clients, by their names."""
        rows = [(len(client), client) for client in clients]
        self._write("DELETE FROM hellos WHERE substr(hello, 1, ?) = ?", rows)

    def _parts(self, heads: Bytes) -> list[bytes | None]:
        read = self._db.cursor()
        found = []
        for head in heads:
            row = read.execute(
                "SELECT part FROM parts WHERE head = ?", (head.tobytes(),)
            ).fetchone()
            found.append(None if row is None else row[0])
        return found

    def _write(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            with self._db:
                self._db.executemany(statement, rows)
        except sqlite3.Error as error:
            raise LedgerError(f"the broker's file cannot be written: {error}") from None
