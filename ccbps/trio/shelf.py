"""File of broker 1 or 2: its parts of interests, and heads of grants (SQLite).

The file holds the messages that broker 0 passed on, sealed for this broker's key. It shows the
clients and the number of interests of each. Of grants, whose parts broker 0 passes on again, it
holds the head of each client's last one. So no earlier grant is taken, even if broker 0 lost its
file.

If the disk is full, deletions are repeated with the next change that can be written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools, Bytes
from ccbps.errors import LedgerError, ParameterError
from ccbps.shares.clients import GRANTEE, HEAD_BYTES
from ccbps.shares.grants import follows

_APPLICATION: Final = int.from_bytes(b"ccbt", "big")
_TABLES: Final = """
CREATE TABLE about (owner BLOB NOT NULL);
CREATE TABLE parts (head BLOB PRIMARY KEY, part BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE grants (client BLOB PRIMARY KEY, head BLOB NOT NULL) WITHOUT ROWID;
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
        # The head of each client's last grant, and the clients whose heads are not written yet.
        self._grants: dict[bytes, bytes] = {}
        self._unwritten = set[bytes]()
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
            self._grants.update(self._db.execute("SELECT client, head FROM grants"))
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
        """Forget the named heads: `prune` keeps those that are named from here on."""
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

    def earlier(self, heads: Bytes) -> Bools:
        """Mark the grants that came before their clients' last ones, shape (count,).

        Args:
            heads: heads of grants, shape (count, 76).
        """
        content = [head.tobytes() for head in heads]
        marks = [not follows(head, self._grants.get(head[GRANTEE])) for head in content]
        return np.array(marks, dtype=np.bool_)

    def grant(self, heads: Bytes) -> None:
        """Remember grants as their clients' last ones.

        Raises:
            LedgerError: the file cannot be written now. They are written later.
        """
        new = {head[GRANTEE].tobytes(): head.tobytes() for head in heads}
        self._unwritten.update(name for name in new if self._grants.get(name) != new[name])
        self._grants.update(new)
        if self._unwritten:
            rows = [(name, self._grants[name]) for name in self._unwritten]
            self._write("INSERT OR REPLACE INTO grants VALUES (?, ?)", rows)
            self._unwritten.clear()

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
