"""A file that remembers the use of rounds: SQLite, safe across processes, forks and kills.

The file is opened for each transaction, and a fork waits for one in progress to end, so a child
inherits nothing. A transaction is on disk when it returns, or nothing of it is.

Hazards: a file that was lost, copied elsewhere or restored from a backup knows nothing of the
rounds in other copies: in that case, start with new seeds. Network file systems whose locks do not
work break SQLite.
Source: SQLite documentation, "Atomic Commit in SQLite".
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Final

from ccbps.errors import LedgerError, ParameterError

WAIT_SECONDS: Final = 60
"""Longest time that a transaction waits for another process that writes."""
IDENTITY_BYTES: Final = 16

_claiming = RLock()
"""Lock of a transaction, and of a fork: SQLite in a child takes locks of its parent for its own."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_claiming.acquire,
        after_in_parent=_claiming.release,
        after_in_child=_claiming.release,
    )


def identity_bytes(identity: str | None) -> bytes:
    """Return a ledger's identity as bytes; None, for any ledger, is all zero, which no ledger has.

    Raises:
        ParameterError: the text is no identity.
    """
    if identity is None:
        return bytes(IDENTITY_BYTES)
    digits = identity if isinstance(identity, str) else ""
    if re.fullmatch("[0-9a-f]{32}", digits) and digits.strip("0"):
        return bytes.fromhex(digits)
    raise ParameterError(
        "identity must be 32 hexadecimal digits in lower case, not all 0, as "
        f"EventLedger.identity() gives them and ccbps ledger shows them, or None, got {identity!r}"
    )


class LedgerFile:
    """The file of a ledger. With `new` it is made, for its owner only, if there is none.

    Attributes:
        path: absolute path of the file.

    Args:
        path: path of the file.
        application: SQLite's id of such files, 4 bytes.
        version: version of the tables.
        tables: SQL statements that make the tables.
        kind: name of such a file in errors.
        forgets: name of the numbers that an emptied file has forgotten, for errors.
        new: True if the file may be made.

    Raises:
        LedgerError: the file cannot be opened or created, or is something else.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        application: bytes,
        version: int,
        tables: tuple[str, ...],
        kind: str,
        forgets: str,
        *,
        new: bool = True,
    ) -> None:
        if not isinstance(path, (str, os.PathLike)) or "\0" in str(path):
            raise ParameterError(f"ledger must be the path of a file, got {type(path).__name__}")
        self.path = where = Path(path).absolute()
        self._format = int.from_bytes(application, "big"), version
        self._tables, self._kind, self._forgets = tables, kind, forgets
        if not new and not where.exists():
            raise LedgerError(
                f"the ledger {where} is missing, so nothing was encoded: bring it back. A new one "
                f"would have forgotten every {forgets}; if it is lost, take new seeds with it"
            )
        try:
            # Made here: SQLite would make a file that others can read, and later on a second one
            # where the first was lost.
            if new:
                os.close(os.open(where, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise LedgerError(f"no ledger can be made at {where}: {error.strerror}") from None
        with self.transaction(new=new):
            pass

    @contextmanager
    def transaction(self, *, new: bool = False) -> Iterator[sqlite3.Connection]:
        """Lock and open the file. Changes are kept when the block ends, and undone if it raises.

        Args:
            new: True if an empty file becomes a ledger.
        """
        try:
            address, wait = self.path.as_uri() + "?mode=rw", WAIT_SECONDS
            connect = partial(sqlite3.connect, uri=True, timeout=wait, isolation_level=None)
            with _claiming, closing(connect(address)) as file:
                file.execute("PRAGMA journal_mode = TRUNCATE")
                file.execute("PRAGMA synchronous = FULL")
                file.execute("PRAGMA temp_store = MEMORY")
                file.execute("BEGIN IMMEDIATE")
                self._check(file, new)
                yield file
                file.execute("COMMIT")
        except sqlite3.Error as error:
            raise LedgerError(
                f"the ledger {self.path} cannot be used, so nothing was encoded: {error}"
            ) from None

    def _check(self, file: sqlite3.Connection, new: bool) -> None:
        """Turn an empty file into a ledger, if it may be `new`; refuse any other file."""
        query = "SELECT * FROM pragma_application_id, pragma_user_version"
        application, version = file.execute(query).fetchone()
        if (application, version) == self._format:
            return
        tables = file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        # To SQLite a file of a few bytes is an empty one, whatever is in it.
        if application or version or tables or self.path.stat().st_size:
            raise LedgerError(
                f"{self.path} is not {self._kind} of version {self._format[1]}: name another file, "
                "or one that does not exist yet"
            )
        if not new:
            raise LedgerError(
                f"the ledger {self.path} was emptied, so nothing was encoded: it has forgotten "
                f"every {self._forgets}; take new seeds and a new ledger"
            )
        for table in self._tables:
            file.execute(table)
        file.execute(f"PRAGMA application_id = {self._format[0]}")
        file.execute(f"PRAGMA user_version = {self._format[1]}")
