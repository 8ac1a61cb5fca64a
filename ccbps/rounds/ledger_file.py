"""A file that remembers the use of rounds: SQLite, safe across processes, forks and kills.

The file is opened for each transaction, and a fork waits for one in progress to end, so a child
inherits nothing. A transaction is on disk when it returns, or nothing of it is.

Each change of the file has a *generation*, a number that grows, and a random *stamp*. The file
keeps all of them. An object refuses a file that lacks a change it has seen: another ledger, an
older copy, or a ledger that continued from an older copy. It sees its own transactions. A *mark* is
a second file, written in the same transaction (`MarkedLedger`): it holds the last change by any
process that names it. The ledger records that it has a mark, so that nobody makes another one.

Rows have checksums in tables of their own. So a flipped bit does not hide a row, since the other
table still has it.

Hazards: without a mark, a process that starts does not notice an older copy. With a mark, nobody
notices if older copies of both files are put back together. Then, or if a file is lost, start with
new seeds. Network file systems whose locks do not work break SQLite.
Source: SQLite documentation, "Atomic Commit in SQLite".
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ccbps.checks import flag
from ccbps.errors import LedgerError, ParameterError

if TYPE_CHECKING:
    import sqlite3

WAIT_SECONDS: Final = 60
"""Longest time that a transaction waits for another process that writes."""
IDENTITY_BYTES: Final = 16

_CHANGES: Final = (
    # One that made a mark has a 1 in the last column.
    "CREATE TABLE changes (generation INTEGER PRIMARY KEY, stamp BLOB NOT NULL, mark INTEGER)",
    "INSERT INTO changes VALUES (0, randomblob(16), NULL)",
)
_NEWEST: Final = "SELECT generation, stamp FROM changes ORDER BY generation DESC LIMIT 1"
_MARK_FORMAT: Final = int.from_bytes(b"ccbm", "big"), 1
_NEW: Final = "take new seeds and a new ledger"
"""Advice where a ledger is lost."""

Change: TypeAlias = tuple[int, bytes]
"""A generation and its stamp."""

_claiming = RLock()
"""Lock of a transaction, and of a fork: SQLite in a child takes locks of its parent for its own."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_claiming.acquire,
        after_in_parent=_claiming.release,
        after_in_child=_claiming.release,
    )


def identity_bytes(identity: str | None) -> bytes:
    """Convert a ledger's identity to bytes: zeros, which no ledger has, for None (any ledger).

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


@dataclass(frozen=True, slots=True)
class MarkedLedger(os.PathLike[str]):
    """The path of a ledger, and that of a mark, which notices an older copy of the ledger.

    Give it wherever a ledger's path is taken. Keep the mark where no backup, snapshot or
    synchronization of the ledger reaches it, at best on another disk. Both files are written in one
    transaction. All processes that use the ledger must name the same mark.

    Example:
        >>> import os, tempfile
        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import FormulaMatch
        >>> from ccbps.rounds import MarkedLedger
        >>> folder = tempfile.mkdtemp()
        >>> ledger = MarkedLedger(os.path.join(folder, "rounds"), os.path.join(folder, "mark"))
        >>> matcher = FormulaMatch.box(Schema(price=UInt(8)))
        >>> publisher = matcher.publisher(SharedSeed.generate(), ledger=ledger)
        >>> len(publisher.encode({"price": [119]}, rounds=[0]))
        1

    Attributes:
        path: path of the ledger.
        mark: path of the mark. It is made with the ledger, and refused beside another ledger. While
            the mark is there, a missing ledger is not made anew.
        adopt: True to make a mark for a ledger that never had one. The ledger must be the newest
            copy. For a ledger that has had a mark, this changes nothing.
    """

    path: str | os.PathLike[str]
    mark: str | os.PathLike[str]
    adopt: bool = False

    def __post_init__(self) -> None:
        _path_of("ledger", self.path)
        _path_of("mark", self.mark)
        flag("adopt", self.adopt)

    def __fspath__(self) -> str:
        return os.fspath(self.path)


def _path_of(name: str, path: Any) -> Path:
    """Return an absolute path.

    Raises:
        ParameterError: `path` is no path of a file.
    """
    if not isinstance(path, (str, os.PathLike)) or "\0" in os.fspath(path):
        raise ParameterError(f"{name} must be the path of a file, got {type(path).__name__}")
    return Path(path).absolute()


def _make(path: Path) -> None:
    """Make a file for its owner only, if there is none."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


class LedgerFile:
    """The file of a ledger. With `new` it is made, for its owner only, if there is none.

    Attributes:
        path: absolute path of the file.

    Args:
        path: path of the file, or a `MarkedLedger`.
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
        self.path = where = _path_of("ledger", path)
        self._format = int.from_bytes(application, "big"), version
        self._tables, self._kind, self._forgets = (*_CHANGES, *tables), kind, forgets
        self._seen: Change | None = None
        self._mark = _path_of("mark", path.mark) if isinstance(path, MarkedLedger) else None
        self._adopts = isinstance(path, MarkedLedger) and path.adopt
        if self._mark is not None:
            new = self._with_mark(self._mark, new)
        if not new and not where.exists():
            raise LedgerError(
                f"the ledger {where} is missing, so nothing was encoded: bring it back. A new one "
                f"would have forgotten every {forgets}; if it is lost, {_NEW}"
            )
        try:
            # Made here: SQLite would make a file that others can read, and would later replace a
            # lost file by a new one.
            if new:
                _make(where)
        except OSError as error:
            raise LedgerError(f"no ledger can be made at {where}: {error.strerror}") from None
        with self.transaction(new=new):
            pass

    @contextmanager
    def transaction(
        self, examine: Callable[[sqlite3.Connection], object] | None = None, *, new: bool = False
    ) -> Iterator[sqlite3.Connection]:
        """Lock and open the file. Changes are kept when the block ends, and undone if it raises.

        Args:
            examine: function that is called first, and may refuse the file.
            new: True if an empty file becomes a ledger.
        """
        import sqlite3  # here, since most roles have no ledger

        try:
            address, wait = self.path.as_uri() + "?mode=rw", WAIT_SECONDS
            connect = partial(sqlite3.connect, uri=True, timeout=wait, isolation_level=None)
            with _claiming, closing(connect(address)) as file:
                if self._mark is not None:
                    file.execute("ATTACH ? AS mark", (self._mark.as_uri() + "?mode=rw",))
                file.execute("PRAGMA journal_mode = TRUNCATE")
                file.execute("PRAGMA synchronous = FULL")
                file.execute("PRAGMA temp_store = MEMORY")
                file.execute("BEGIN IMMEDIATE")
                self._check(file, new)
                if examine is not None:
                    examine(file)
                self._require(file, self._seen)
                marked = None if self._mark is None else self._marked(file)
                self._require(file, marked)
                yield file
                newest = self._newest(file)
                if marked not in (None, newest):
                    file.execute("UPDATE mark.seen SET generation = ?, stamp = ?", newest)
                file.execute("COMMIT")
                self._seen = newest
        except sqlite3.Error as error:
            raise LedgerError(
                f"the ledger {self.path} cannot be used, so nothing was encoded: {error}"
            ) from None
        except UnicodeDecodeError:  # sqlite3 decodes names and messages out of the file
            raise self.damaged() from None

    def advance(self, file: sqlite3.Connection) -> None:
        """Begin a new generation: call this in each transaction that changes the file."""
        generation = self._newest(file)[0] + 1
        file.execute("INSERT INTO changes VALUES (?, randomblob(16), NULL)", (generation,))

    def damaged(self) -> LedgerError:
        """Return an error for content that no ledger has."""
        return LedgerError(
            f"the ledger {self.path} is damaged, so nothing was encoded: bring back the newest "
            f"copy that is whole, if nothing was encoded since; or {_NEW}"
        )

    def _newest(self, file: sqlite3.Connection) -> Change:
        return self._change(file.execute(_NEWEST).fetchone())

    def _change(self, row: Any) -> Change:
        if row is None or type(row[0]) is not int or type(row[1]) is not bytes or row[0] < 0:
            raise self.damaged()
        return row[0], row[1]

    def _require(self, file: sqlite3.Connection, seen: Change | None) -> None:
        """Refuse a file that does not have a change that was seen.

        Raises:
            LedgerError: the file is another ledger or an older copy, or continued from one.
        """
        if seen is None:
            return
        query = "SELECT generation, stamp FROM changes WHERE generation = ?"
        if file.execute(query, seen[:1]).fetchone() != seen:
            raise LedgerError(
                f"the ledger {self.path} is another one or an older copy, or goes on from one, so "
                f"nothing was encoded: the right one was used up to change {seen[0]}, which this "
                f"file, of change {self._newest(file)[0]}, does not have. Bring back the newest "
                f"one; if it is lost, {_NEW}"
            )

    def _with_mark(self, mark: Path, new: bool) -> bool:
        """Make the file of the mark, if it may be; return whether the ledger may be new, too."""
        used = self.path.exists() and self.path.stat().st_size > 0
        if mark.exists() and mark.stat().st_size:
            return False
        if used and not self._adopts:
            raise self._mark_is_lost(
                ". Only for a ledger that never had a mark, and is surely the newest, name it with "
                "adopt=True once"
            )
        try:
            _make(mark)
        except OSError as error:
            raise LedgerError(f"no mark can be made at {mark}: {error.strerror}") from None
        return new

    def _mark_is_lost(self, more: str = "") -> LedgerError:
        return LedgerError(
            f"the mark {self._mark} of the ledger {self.path} is missing or empty, so nothing was "
            f"encoded: bring it back; if it is lost, {_NEW}{more}"
        )

    def _marked(self, file: sqlite3.Connection) -> Change:
        """Return the change that the mark saw last; make the mark if its file is empty."""
        queries = ("PRAGMA mark.application_id", "PRAGMA mark.user_version")
        identifiers = tuple(file.execute(query).fetchone()[0] for query in queries)
        assert self._mark is not None
        if identifiers == (0, 0) and not self._mark.stat().st_size:
            had_one = file.execute("SELECT count(mark) FROM changes").fetchone()[0]
            if had_one or (self._newest(file)[0] and not self._adopts):
                raise self._mark_is_lost()
            self.advance(file)  # so that a copy without the mark counts as an older one
            newest = self._newest(file)
            file.execute("UPDATE changes SET mark = 1 WHERE generation = ?", newest[:1])
            file.execute("CREATE TABLE mark.seen (generation INTEGER, stamp BLOB)")
            file.execute("INSERT INTO mark.seen VALUES (?, ?)", newest)
            file.execute(f"PRAGMA mark.application_id = {_MARK_FORMAT[0]}")
            file.execute(f"PRAGMA mark.user_version = {_MARK_FORMAT[1]}")
        elif identifiers != _MARK_FORMAT:
            raise LedgerError(f"{self._mark} is not the mark of a ledger: name another file")
        return self._change(file.execute("SELECT generation, stamp FROM mark.seen").fetchone())

    def _check(self, file: sqlite3.Connection, new: bool) -> None:
        """Turn an empty file into a ledger, if it may be `new`; refuse any other file."""
        query = "SELECT * FROM pragma_application_id, pragma_user_version"
        application, version = file.execute(query).fetchone()
        if (application, version) == self._format:
            return
        if application == self._format[0]:
            raise LedgerError(
                f"the ledger {self.path} is of version {version}, and this ccbps reads "
                f"{self._format[1]}; or it is damaged. So nothing was encoded: use the ccbps that "
                f"wrote it, or {_NEW}"
            )
        tables = {name for (name,) in file.execute("SELECT name FROM sqlite_master")}
        # Where it has all tables of a ledger, only its identifier is wrong.
        own = set(re.findall(r"CREATE TABLE (\w+)", " ".join(self._tables)))
        if own <= tables:
            raise self.damaged()
        # To SQLite a file of a few bytes is an empty one, whatever is in it.
        if application or version or tables or self.path.stat().st_size:
            raise LedgerError(
                f"{self.path} is not {self._kind}: name the file of the ledger; or, with new "
                "seeds, one that does not exist yet"
            )
        if not new:
            raise LedgerError(
                f"the ledger {self.path} was emptied, so nothing was encoded: it has forgotten "
                f"every {self._forgets}; {_NEW}"
            )
        for table in self._tables:
            file.execute(table)
        file.execute(f"PRAGMA application_id = {self._format[0]}")
        file.execute(f"PRAGMA user_version = {self._format[1]}")
