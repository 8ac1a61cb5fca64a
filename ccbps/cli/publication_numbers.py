"""Numbers of publications, which go on where they ended, whatever happened.

A number names one publication for ever, so numbers are taken from a file, and are taken there
before anything is published under them. What was taken and not used is left out.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import Final

from ccbps.errors import LedgerError

_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS numbers (publisher TEXT PRIMARY KEY, next INTEGER NOT NULL)"
)
_TAKE: Final = (
    "INSERT INTO numbers VALUES (?1, ?2 + ?3) ON CONFLICT DO UPDATE "
    "SET next = max(next, ?2) + ?3 RETURNING next"
)


def take_numbers(path: str, publisher: str, count: int, first: int = 0) -> range:
    """The next numbers of a publisher, which nobody gets again.

    Args:
        path: of an SQLite file, made if it is not there.
        publisher: several may share a file.
        count: how many.
        first: no smaller ones.

    Raises:
        LedgerError: the file cannot be used.
    """
    try:
        with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as file:
            file.execute("PRAGMA synchronous = FULL")
            file.execute(_TABLE)
            ((following,),) = file.execute(_TAKE, (publisher, first, count)).fetchall()
    except sqlite3.Error as error:
        raise LedgerError(f"the state {os.fspath(path)} cannot be used: {error}") from None
    return range(following - count, following)
