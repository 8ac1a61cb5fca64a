"""Interests as a broker keeps them: a table that grows, shrinks and can be saved.

The scheme's form of interests (`TableScheme.table`) is made once for each of a few *parts*. New
interests become a part of their own; parts of about the same size are joined, so that there are at
most about log2 n of them and every interest is prepared at most that often. Removed interests are
passed over, and dropped for good when their part has lost half.

The table keeps the messages, too: to join parts, and to be saved. So a saved table holds messages
that the broker has received, nothing more; and loading it examines every message again.

Parts are immutable. A change of the table makes all its new parts first, and then puts them in
place of the old ones at once. So another thread sees the table before or after the change, and a
change that fails changes nothing.

Hazard: ids in a saved table are not authenticated. Whoever can write the file can give ids to other
interests.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from operator import lt
from threading import Lock
from typing import Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ccbps import primitives
from ccbps.arrays import Bools, Bytes, Index
from ccbps.checks import instance
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError
from ccbps.keys.secret import Confined
from ccbps.matching.contract.access import KeyAccess
from ccbps.records import Number, Record, read, write
from ccbps.wire import VERSION, Cause, Kind, raise_for

InterestId = str | int
"""Name of an interest in a table."""

_FRONT: Final = bytes([Kind.TABLE, VERSION])
_CHECK_BYTES: Final = 32
_DAMAGED: Final = "not a saved table of interests, or a damaged one"
_LENGTH_BYTES: Final = 8


class _Head(Record, frozen=True):
    """Fields in front of the messages of a saved table."""

    matcher: bytes
    key: bytes
    epoch: Number
    following: Number
    ids: list[InterestId]


class Part(Struct, frozen=True, dict=True):
    """Interests whose content was made together.

    Attributes:
        messages: interest messages, shape (interests, interest_bytes).
        ids: name of each interest.
        alive: True for the interests that are still in the table.
        content: the scheme's form of the interests.
    """

    messages: Bytes
    ids: Sequence[InterestId]
    alive: Bools
    content: Any

    @cached_property
    def live(self) -> int:
        """Number of interests that are still in the table."""
        return int(np.count_nonzero(self.alive))

    @cached_property
    def rows(self) -> Index:
        """Rows of the interests that are still in the table."""
        return np.flatnonzero(self.alive)

    @property
    def names(self) -> Iterator[InterestId]:
        """Ids of the interests that are still in the table."""
        return (name for name, here in zip(self.ids, self.alive.tolist(), strict=True) if here)

    def without(self, rows: Sequence[int]) -> Part:
        """Return the same part with some more interests removed."""
        alive = self.alive.copy()
        alive[rows] = False
        part = replace(self, alive=alive)
        # The index of ids is made once, not at every removal.
        for name in ("_ascending", "_places"):
            if name in vars(self):
                vars(part)[name] = vars(self)[name]
        return part

    def row_of(self, name: InterestId) -> int | None:
        """Return the row of an id, or None if it is not in the table any more."""
        if self._ascending and isinstance(name, int):
            row = bisect_left(self.ids, name)
            if row == len(self.ids) or self.ids[row] != name:
                return None
        else:
            row = self._places.get(name, -1)
        return row if row >= 0 and self.alive[row] else None

    @cached_property
    def _ascending(self) -> bool:
        """True if ids are ascending numbers, as those that a table gives are."""
        if isinstance(self.ids, range):
            return True
        if not all(type(name) is int for name in self.ids):
            return False
        return all(map(lt, self.ids, islice(self.ids, 1, None)))

    @cached_property
    def _places(self) -> Mapping[InterestId, int]:
        """Row of each id, removed ones included."""
        return {name: row for row, name in enumerate(self.ids)}


class Table(Confined):
    """Interests that a broker keeps. Made by `Broker.prepare` and `Broker.load`.

    Several threads may use one table.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import TagMatch
        >>> matcher = TagMatch(Schema(price=UInt(8)))
        >>> server = matcher.key_server()
        >>> alice = matcher.subscriber(server.subscriber_key("alice"))
        >>> broker = matcher.broker(server.broker_key())
        >>> table = broker.prepare(alice.encode(["price < 10", "price > 99"]), ids=["low", "high"])
        >>> table.add(alice.encode("price = 50"), ids=["middle"])
        >>> table.remove(["low"])
        >>> table.ids
        ['high', 'middle']
        >>> feed = matcher.publisher(server.publisher_key())
        >>> broker.match_all(feed.encode({"price": [5, 50]}), table)
        array([[False, False],
               [False,  True]])
    """

    def __init__(self, access: KeyAccess) -> None:
        self._access = access
        self._next = 0
        self._lock = Lock()
        self.parts: tuple[Part, ...] = ()
        """The parts as they are now, for the broker."""

    def __len__(self) -> int:
        return sum(part.live for part in self.parts)

    def __repr__(self) -> str:
        return f"<Table of {len(self)} interests>"

    @property
    def names(self) -> tuple[bytes, bytes, int]:
        """The matcher's digest, the key's id and its epoch, which the interests belong to."""
        return self._access.names

    @property
    def ids(self) -> list[InterestId]:
        """Names of the interests, in the order of `Broker.match_all`'s columns."""
        return [name for part in self.parts for name in part.names]

    @property
    def messages(self) -> Bytes:
        """The interest messages in that order, shape (interests, interest_bytes)."""
        return self._messages(self.parts)

    def add(self, interests: Bytes, ids: Iterable[InterestId] | None = None) -> None:
        """Keep more interests.

        Args:
            interests: messages, uint8, shape (interests, interest_bytes).
            ids: a unique name for each, text or number; None to continue the numbering.

        Raises:
            DecodeError: some bytes are not interest messages of the broker's matcher, key and
                epoch; names rows, and adds none.
            ParameterError: ids do not fit, or are already in the table.
        """
        raise_for(self._access.examine(interests, "interest"))
        with self._lock:
            self._append(np.array(interests), self._named(ids, len(interests)))

    def remove(self, ids: Iterable[InterestId]) -> None:
        """Remove some interests.

        Raises:
            ParameterError: an id is not in the table; removes none.
        """
        gone = set(_listed(ids))
        with self._lock:
            parts = []
            for part in self.parts:
                rows = [row for name in gone if (row := part.row_of(name)) is not None]
                if rows:
                    gone -= {part.ids[row] for row in rows}
                    part = part.without(rows)
                parts.append(part)
            if gone:
                raise ParameterError(f"no interest {min(gone, key=str)!r} is in the table")
            self.parts = self._tidy(parts)

    def merge(self, other: Table) -> None:
        """Add the interests of another table, of a broker with the same key.

        Raises:
            KeyMismatchError: the other table is of another matcher, key or epoch.
            ParameterError: an id is in both tables; or `other` is no table.
        """
        if instance("other", other, Table).names != self.names:
            raise KeyMismatchError("the tables belong to another matcher, key or epoch")
        theirs = other.parts
        messages, ids = self._messages(theirs), [name for part in theirs for name in part.names]
        with self._lock:
            self._append(messages, self._named(ids, len(messages)))

    def to_bytes(self) -> bytes:
        """Return messages and ids, for `Broker.load`; with a checksum, and nothing secret."""
        with self._lock:
            parts, following = self.parts, self._next
        ids = [name for part in parts for name in part.names]
        head = write(_Head(*self.names, following, ids))
        content = _FRONT + len(head).to_bytes(_LENGTH_BYTES) + head
        content += self._messages(parts).tobytes()
        return content + primitives.sha256(content).digest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_bytes` to a file atomically, in place of an older file.

        Raises:
            OSError: the file cannot be written.
        """
        # Here, since few brokers save tables.
        import tempfile
        from pathlib import Path

        target = Path(path).resolve()
        number, draft = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(self.to_bytes())
                file.flush()
                os.fsync(file.fileno())
            Path(draft).replace(target)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
        with suppress(OSError):  # Not everywhere can a folder be synchronized.
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _restore(self, data: bytes, drop_unserved: bool) -> None:
        """Add the interests of saved bytes to an empty table, for `Broker.load`."""
        content, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
        if not content.startswith(_FRONT) or primitives.sha256(content).digest() != check:
            raise DecodeError(_DAMAGED)
        start = len(_FRONT) + _LENGTH_BYTES
        stop = start + int.from_bytes(content[len(_FRONT) : start])
        head = read(_Head, content[start:stop], refusal=_DAMAGED)
        if (head.matcher, head.key, head.epoch) != self.names:
            raise KeyMismatchError("the saved table belongs to another matcher, key or epoch")
        ids, width = head.ids, self._access.interest_bytes
        if len(content) - stop != width * len(ids):
            raise DecodeError(_DAMAGED)
        rows = np.frombuffer(content[stop:], dtype=np.uint8).reshape(-1, width)
        causes = self._access.examine(rows, "interest")
        if drop_unserved:
            kept = np.flatnonzero(causes != Cause.USER)
            rows, causes, ids = rows[kept], causes[kept], [ids[row] for row in kept]
        raise_for(causes)
        try:
            names = self._named(ids, len(rows))
        except ParameterError:
            raise DecodeError(_DAMAGED) from None
        self._append(np.array(rows), names)
        self._next = max(self._next, head.following)

    def _messages(self, parts: Iterable[Part]) -> Bytes:
        none = np.empty((0, self._access.interest_bytes), dtype=np.uint8)
        return np.concatenate([none, *(part.messages[part.alive] for part in parts)])

    def _named(self, ids: Iterable[InterestId] | None, count: int) -> Sequence[InterestId]:
        """Return the ids of new interests, none of which is in the table."""
        if ids is None:
            return range(self._next, self._next + count)
        names = _listed(ids)
        if len(names) != count:
            raise ParameterError(f"{count} interests need as many ids, got {len(names)}")
        twice = [
            name for name in names if any(part.row_of(name) is not None for part in self.parts)
        ]
        if twice or len(set(names)) < len(names):
            problem = f"{twice[0]!r} is there already" if twice else "one occurs twice"
            raise ParameterError(
                f"ids must differ from one another and from those in the table; {problem}"
            )
        return names

    def _append(self, messages: Bytes, names: Sequence[InterestId]) -> None:
        if not len(messages):
            return
        parts = self._tidy([*self.parts, self._part(messages, names)])
        numbers = (name for name in names if isinstance(name, int))
        self._next = max(self._next, 1 + max(numbers, default=-1))
        self.parts = parts

    def _tidy(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Drop removed interests where they are many, and join the last parts while alike."""
        tidy = [self._joined([p]) if 2 * p.live <= len(p.ids) else p for p in parts if p.live]
        while len(tidy) > 1 and len(tidy[-2].ids) < 2 * len(tidy[-1].ids):
            tidy[-2:] = [self._joined(tidy[-2:])]
        return tuple(tidy)

    def _joined(self, parts: Sequence[Part]) -> Part:
        return self._part(self._messages(parts), [name for part in parts for name in part.names])

    def _part(self, messages: Bytes, names: Sequence[InterestId]) -> Part:
        alive = np.ones(len(messages), dtype=np.bool_)
        return Part(messages, names, alive, self._access.contents(messages))


def _listed(ids: Iterable[InterestId]) -> list[InterestId]:
    """Return ids as a list of text and whole numbers."""
    if isinstance(ids, str | bytes | int) or not isinstance(ids, Iterable):
        raise ParameterError(f"ids must be a list of names or numbers, got {ids!r}")
    names = [int(name) if isinstance(name, np.integer) else name for name in ids]
    for name in names:
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise ParameterError(f"an id must be text or a whole number, got {name!r}")
    return names
