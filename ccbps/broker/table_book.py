"""Interests that the broker matches with every event: equal ones are kept once.

Where the scheme tells that an interest covers a new one, the new one stands under it, and is tested
for events that match the covering one only. (A wide interest that comes later takes nothing under
it.)
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from threading import Lock, RLock
from typing import Any, Final, NamedTuple

import numpy as np

from ccbps.arrays import Bools, Bytes, Index
from ccbps.broker.book import Book, one_message
from ccbps.broker.messages import Publication, Subscription
from ccbps.broker.registry import Column, Registry
from ccbps.errors import DecodeError
from ccbps.matching.contract.access import message_bytes
from ccbps.matching.contract.broker import Broker
from ccbps.matching.contract.table import Table
from ccbps.wire import Cause, raise_for

_NOBODY: Final = np.empty(0, dtype=np.int64)


class Found(NamedTuple):
    """What `TableBook.find` found.

    Attributes:
        entries: that match.
        tests: pairs that were tested.
        saved: those that were not.
    """

    entries: list[Any]
    tests: int
    saved: int


class TableBook(Book):
    """Interests in a table, equal ones once."""

    def __init__(self, broker: Broker, registry: Registry, lock: RLock) -> None:
        super().__init__(registry, lock)
        self._broker = broker
        self._table = self._new_table()
        self._entries: dict[bytes, int] = {}
        self._digests: dict[int, bytes] = {}
        self._members: dict[int, Column[np.uint32]] = {}
        self._next = self._count = 0
        # Covered interests, in a table under each that covers some.
        self._under: dict[int, Table] = {}
        self._over: dict[int, int] = {}
        # Held by whoever moves interests from table to table, or must not miss them meanwhile.
        self._moving = Lock()

    def _new_table(self) -> Table:
        return self._broker.prepare(
            np.empty((0, message_bytes(self._broker.matcher, "interest")), dtype=np.uint8)
        )

    @property
    def distinct(self) -> int:
        """Interests that differ."""
        return len(self._members)

    def check(self, subscription: Subscription) -> None:
        """See `Book.check`."""
        self.check_all([subscription])

    def check_all(self, subscriptions: Sequence[Subscription]) -> None:
        """As `check`; one by one takes ten times as long."""
        wanted = 1, message_bytes(self._broker.matcher, "interest")
        for one in subscriptions:
            if one.interests.shape != wanted:
                raise DecodeError(
                    f"a subscription has {wanted[0]} interest message of {wanted[1]} bytes here, "
                    f"got {one.interests.shape}"
                )
        if subscriptions:
            rows = np.concatenate([one.interests for one in subscriptions])
            raise_for(self._broker.examine_interests(rows))

    def check_event(self, publication: Publication) -> None:
        """See `Book.check_event`."""
        if publication.event is None:
            raise DecodeError("the publication has no event for all subscriptions")
        raise_for(self._broker.examine_events(one_message(publication.event)))

    def add(self, number: int, label: str, subscription: Subscription) -> None:
        """See `Book.add`."""
        self.add_all([number], subscription.interests)

    def add_all(self, numbers: Sequence[int], interests: Bytes) -> None:
        """Add subscriptions of one message each, all of which were checked."""
        entries, fresh, rows = [], dict[bytes, int](), []
        for row, message in enumerate(interests):
            digest = blake2b(message.tobytes(), digest_size=16).digest()
            entry = self._entries.get(digest, fresh.get(digest))
            if entry is None:
                entry = fresh[digest] = self._next + len(fresh)
                rows.append(row)
            entries.append(entry)
        equal = self._put(interests[rows], [*fresh.values()]) if rows else {}
        self._next += len(fresh)
        for digest, entry in fresh.items():
            if entry not in equal:
                self._entries[digest], self._digests[entry] = entry, digest
        with self._lock:
            for number, entry in zip(numbers, entries, strict=True):
                self._join(number, equal.get(entry, entry))

    def _join(self, number: int, entry: int) -> None:
        members = self._members.get(entry)
        if members is None:
            members = self._members[entry] = Column(np.uint32)
        self._registry.entries[number], self._registry.places[number] = entry, len(members)
        members.append(number)
        self._count += 1

    def _put(self, interests: Bytes, entries: Sequence[int]) -> dict[int, int]:
        """Take interests into the tables; those that equal others in another form are not, and are
        returned with the entries that they equal."""
        if not self._broker.matcher.covering:
            self._table.add(interests, entries)
            return {}
        equal = {}
        for entry, interest in zip(entries, interests, strict=True):
            covering, same = self._covering(interest[None])
            if same is not None:
                equal[entry] = same
            else:
                self._put_under(covering, interest[None], entry)
        return equal

    def _covering(self, interest: Bytes) -> tuple[int | None, int | None]:
        """An entry of the outer table that covers an interest; and one that equals it."""
        over, same = self._compared(interest, self._table)
        if same is not None or over is None or over not in self._under:
            return over, same
        return over, self._compared(interest, self._under[over])[1]

    def _compared(self, interest: Bytes, table: Table) -> tuple[int | None, int | None]:
        """The first interest of a table that covers this one, and the first that equals it."""
        if not len(table):
            return None, None
        ids: list[Any] = table.ids
        over = np.flatnonzero(self._broker.covers(table, interest)[:, 0])
        equal = over[self._broker.covers(interest, table)[0, over]]
        return ids[over[0]] if len(over) else None, ids[equal[0]] if len(equal) else None

    def _put_under(self, root: int | None, interest: Bytes, entry: int) -> None:
        if root is None:
            self._table.add(interest, [entry])
            return
        if root not in self._under:
            self._under[root] = self._new_table()
        self._under[root].add(interest, [entry])
        self._over[entry] = root

    def remove(self, numbers: Sequence[int]) -> None:
        """See `Book.remove`."""
        with self._lock:
            gone = [entry for number in numbers if (entry := self._leave(number)) is not None]
        outer = [entry for entry in gone if entry not in self._over]
        for entry in gone:
            root = self._over.pop(entry, None)
            if root is not None:
                self._under[root].remove([entry])
        plain = [entry for entry in outer if entry not in self._under]
        if plain:
            self._table.remove(plain)
        for entry in outer:
            if entry in self._under:
                self._uncover(entry)

    def _leave(self, number: int) -> int | None:
        """Take a subscription from its interest; returns that if it was the last one."""
        entry, place = self._registry.entries[number], self._registry.places[number]
        members = self._members[entry]
        moved = members.pop(place)
        if place < len(members):
            self._registry.places[moved] = place
        self._count -= 1
        if len(members):
            return None
        del self._members[entry], self._entries[self._digests.pop(entry)]
        return entry

    def _uncover(self, entry: int) -> None:
        """Take out an interest that covers others, which come into the outer table."""
        with self._moving:
            uncovered = self._under.pop(entry)
            ids: list[Any] = uncovered.ids
            if ids:
                self._table.add(uncovered.messages, ids)
            for one in ids:
                del self._over[one]
            self._table.remove([entry])

    def find(self, publication: Publication) -> Found:
        """See `Book.find`: entries."""
        assert publication.event is not None
        if self._broker.matcher.covering:
            with self._moving:
                return self._find(one_message(publication.event))
        return self._find(one_message(publication.event))

    def _find(self, event: Bytes) -> Found:
        tests, saved = len(self._table), self._count - self.distinct
        found = self._matches(event, self._table)
        tables = [self._under.get(root) for root in found] if self._under else []
        covered = len(self._over)
        for table in tables:
            if table is not None:
                found = found + self._matches(event, table)
                tests, covered = tests + len(table), covered - len(table)
        return Found(found, tests, saved + covered)

    def _matches(self, event: Bytes, table: Table) -> list[Any]:
        """Entries of a table that match an event; others may change the table meanwhile."""
        parts = table.parts
        columns = np.flatnonzero(self._broker.match_parts(event, parts)[0])
        ends = np.cumsum([part.live for part in parts], dtype=np.intp)
        where = np.searchsorted(ends, columns, "right")
        found = []
        for column, place in zip(columns.tolist(), where.tolist(), strict=True):
            part = parts[place]
            found.append(part.ids[part.rows[column - ends[place] + part.live]])
        return found

    def members(self, found: Found) -> Index:
        """See `Book.members`."""
        self.tests += found.tests
        self.saved += found.saved
        columns = [self._members.get(entry) for entry in {*found.entries}]
        numbers = [column.values for column in columns if column is not None]
        return np.concatenate([_NOBODY, *numbers])

    def matching(
        self, some: Sequence[tuple[str, Subscription]], publications: Sequence[Publication]
    ) -> Bools:
        """See `Book.matching`. Whose user was revoked since it was checked matches nothing."""
        interests = np.concatenate([one.interests for _, one in some])
        good = np.flatnonzero(self._broker.examine_interests(interests) == Cause.NONE)
        events = np.concatenate([one_message(one.event or b"") for one in publications])
        out = np.zeros((len(events), len(interests)), dtype=np.bool_)
        if len(good):
            out[:, good] = self._broker.examine_all(events, interests[good])[0]
        return out
