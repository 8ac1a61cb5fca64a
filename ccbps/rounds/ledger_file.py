"""A file that remembers what rounds were used for: SQLite, safe across processes, forks and kills.

The file is opened for each transaction, and a fork waits for one in progress to end, so a child
inherits nothing. A transaction is on disk when it returns, or nothing of it is.

Hazards: a file that was lost, copied elsewhere or restored from a backup knows nothing of what
other copies have seen: in that case, start with new seeds. Network file systems whose locks do not
work break SQLite.
Source: SQLite documentation, "Atomic Commit in SQLite".
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Final

from ccbps.errors import LedgerError, ParameterError

WAIT_SECONDS: Final = 60
"""How long a transaction waits for another process that writes."""
IDENTITY_BYTES: Final = 16

_claiming = RLock()
"""Held in a transaction, and in a fork: SQLite in a child takes locks of its parent for its own."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_claiming.acquire,
        after_in_parent=_claiming.release,
        after_in_child=_claiming.release,
    )


def identity_bytes(identity: str | None) -> bytes:
    """A ledger's identity as bytes; None, for any ledger, is all zero, which no ledger has.

    Raises:
        ParameterError: it is no identity.
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


@dataclass(frozen=True)
class LedgerFile:
    """Where a ledger is, and what tells it from other files.

    Attributes:
        path: absolute.
        application: id of SQLite for files of this kind.
        version: of the tables.
        tables: statements that make them.
        kind: what errors call such a file.
        forgets: what an emptied file has forgotten.
    """

    path: Path
    application: int
    version: int
    tables: tuple[str, ...]
    kind: str
    forgets: str

    @classmethod
    def at(
        cls,
        path: str | os.PathLike[str],
        application: bytes,
        version: int,
        tables: tuple[str, ...],
        kind: str,
        forgets: str,
        *,
        new: bool = True,
    ) -> LedgerFile:
        """The file at a path; with `new`, made for its owner only if there is none.

        Raises:
            LedgerError: it cannot be opened or created, or is something else.
        """
        if not isinstance(path, (str, os.PathLike)) or "\0" in str(path):
            raise ParameterError(f"ledger must be the path of a file, got {type(path).__name__}")
        where = Path(path).absolute()
        found = cls(where, int.from_bytes(application, "big"), version, tables, kind, forgets)
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
        with found.transaction(new=new):
            pass
        return found

    @contextmanager
    def transaction(self, *, new: bool = False) -> Iterator[sqlite3.Connection]:
        """The file, locked; changes are kept when the block ends, and undone where it raises.

        Args:
            new: an empty file becomes a ledger.
        """
        try:
            address = self.path.as_uri() + "?mode=rw"
            with (
                _claiming,
                closing(
                    sqlite3.connect(address, uri=True, timeout=WAIT_SECONDS, isolation_level=None)
                ) as file,
            ):
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
        """Turn an empty file into a ledger, if it may be `new`; refuse what is not a ledger."""
        found = file.execute("PRAGMA application_id").fetchone()[0]
        version = file.execute("PRAGMA user_version").fetchone()[0]
        if (found, version) == (self.application, self.version):
            return
        tables = file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        # To SQLite a file of a few bytes is an empty one, whatever is in it.
        if found or version or tables or self.path.stat().st_size:
            raise LedgerError(
                f"{self.path} is not {self.kind} of version {self.version}: name another file, "
                "or one that does not exist yet"
            )
        if not new:
            raise LedgerError(
                f"the ledger {self.path} was emptied, so nothing was encoded: it has forgotten "
                f"every {self.forgets}; take new seeds and a new ledger"
            )
        for table in self.tables:
            file.execute(table)
        file.execute(f"PRAGMA application_id = {self.application}")
        file.execute(f"PRAGMA user_version = {self.version}")
