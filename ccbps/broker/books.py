"""Subscriptions of one topic, as the matcher's kind needs them: it says only who finds out what.

- `TableBook`: the broker matches every event with every interest (`Answers.ALL`). Equal interests
  are kept once. Where the scheme tells that an interest covers another one, the covered one is
  tested for events that match the covering one only.
- `RoundBook`: publisher and subscriber share a seed (`Answers.PAIRS`). Interests are provisioned
  ahead for rounds; an event meets those of its round, and they are gone.
- `RelayBook`: subscribers decide by themselves (`Answers.SUBSCRIBER`), so all get everything.

To match has two steps: `find` takes long and needs no lock; `members`, which says whose interests
they are, is quick and must not meet changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from hashlib import blake2b
from threading import Lock, RLock
from typing import Any, Final, NamedTuple

import numpy as np

from ccbps.arrays import Bytes, Index
from ccbps.broker.messages import Publication, Subscription
from ccbps.broker.registry import Column, Registry
from ccbps.errors import DecodeError
from ccbps.matching.access import message_bytes
from ccbps.matching.broker import Broker
from ccbps.matching.contract import Answers, is_broadcast
from ccbps.matching.table import Table
from ccbps.wire import Cause, raise_for

__all__ = ["Book", "RelayBook", "RoundBook", "TableBook", "new_book"]

_NOBODY: Final = np.empty(0, dtype=np.int64)


class Book(ABC):
    """Some subscriptions, by number.

    Attributes:
        reuse: whether a number may be given to another subscription once it was removed.
        tests: pairs that were tested.
        saved: pairs that were not, since an equal one was, or a covering one did not match.
        refused: pairs that could not be tested, as their messages do not belong together.
    """

    reuse = True

    def __init__(self, broker: Broker, registry: Registry, lock: RLock) -> None:
        """
        Args:
            broker: matches.
            registry: of all books.
            lock: held when `members` is called.
        """
        self._broker, self._registry, self._lock = broker, registry, lock
        self.tests = self.saved = self.refused = 0

    @property
    @abstractmethod
    def distinct(self) -> int:
        """Interests that differ."""

    @abstractmethod
    def check(self, subscription: Subscription) -> None:
        """Raises DecodeError if its messages are not the matcher's."""

    @abstractmethod
    def add(self, number: int, label: str, subscription: Subscription) -> None:
        """Add a subscription that was checked."""

    @abstractmethod
    def remove(self, number: int) -> None:
        """Take a subscription out."""

    @abstractmethod
    def find(self, publication: Publication) -> Any:
        """What matches, for `members`.

        Raises:
            DecodeError: the event's message is not the matcher's.
        """

    @abstractmethod
    def members(self, found: Any) -> Index:
        """Numbers of subscriptions."""

    @abstractmethod
    def matching(
        self, label: str, subscription: Subscription, publications: Sequence[Publication]
    ) -> list[int]:
        """Which publications that were kept match a new subscription."""


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
        super().__init__(broker, registry, lock)
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
        return self._broker.prepare(np.empty((0, interest_bytes(self._broker)), dtype=np.uint8))

    @property
    def distinct(self) -> int:
        """Interests that differ."""
        return len(self._members)

    def check(self, subscription: Subscription) -> None:
        """See `Book.check`."""
        if len(subscription.interests) != 1:
            raise DecodeError(
                f"a subscription has one interest message here, not {len(subscription.interests)}"
            )
        raise_for(self._broker.examine_interests(subscription.interests))

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

    def remove(self, number: int) -> None:
        """See `Book.remove`."""
        with self._lock:
            entry, place = self._registry.entries[number], self._registry.places[number]
            members = self._members[entry]
            moved = members.pop(place)
            if place < len(members):
                self._registry.places[moved] = place
            self._count -= 1
            last = not len(members)
            if last:
                del self._members[entry], self._entries[self._digests.pop(entry)]
        if last:
            self._drop(entry)

    def _drop(self, entry: int) -> None:
        root = self._over.pop(entry, None)
        if root is not None:
            self._under[root].remove([entry])
            return
        with self._moving:
            uncovered = self._under.pop(entry, None)
            if uncovered is not None and len(uncovered):
                ids: list[Any] = uncovered.ids
                self._table.add(uncovered.messages, ids)
                for one in ids:
                    del self._over[one]
            self._table.remove([entry])

    def find(self, publication: Publication) -> Found:
        """See `Book.find`: entries."""
        if publication.event is None:
            raise DecodeError("the publication has no event for all subscriptions")
        if self._broker.matcher.covering:
            with self._moving:
                return self._find(one_message(publication.event))
        return self._find(one_message(publication.event))

    def _find(self, event: Bytes) -> Found:
        tests, saved = len(self._table), self._count - self.distinct
        found: list[Any] = self._broker.matches(event, self._table)[1]
        tables = [self._under.get(root) for root in found] if self._under else []
        covered = len(self._over)
        for table in tables:
            if table is not None:
                found = found + self._broker.matches(event, table)[1]
                tests, covered = tests + len(table), covered - len(table)
        return Found(found, tests, saved + covered)

    def members(self, found: Found) -> Index:
        """See `Book.members`."""
        self.tests += found.tests
        self.saved += found.saved
        columns = [self._members.get(entry) for entry in {*found.entries}]
        numbers = [column.values for column in columns if column is not None]
        return np.concatenate([_NOBODY, *numbers])

    def matching(
        self, label: str, subscription: Subscription, publications: Sequence[Publication]
    ) -> list[int]:
        """See `Book.matching`."""
        events = np.frombuffer(b"".join(one.event or b"" for one in publications), np.uint8)
        answers = self._broker.match_all(
            events.reshape(len(publications), -1), subscription.interests
        )
        found: list[int] = np.flatnonzero(answers[:, 0]).tolist()
        return found


class RoundBook(Book):
    """Interests for rounds, of one publisher."""

    reuse = False

    def __init__(self, broker: Broker, registry: Registry, lock: RLock) -> None:
        super().__init__(broker, registry, lock)
        self._rounds: dict[int, tuple[list[int], bytearray]] = {}
        self._labels: dict[int, str] = {}
        self._left: dict[int, int] = {}

    @property
    def distinct(self) -> int:
        """All of them: each has randomness of its own."""
        return len(self._labels)

    def rounds_left(self, number: int) -> int:
        """How many rounds a subscription still has interests for."""
        return self._left[number]

    def check(self, subscription: Subscription) -> None:
        """See `Book.check`. That messages belong to a round shows when they meet an event."""
        if subscription.first_round is None or not len(subscription.interests):
            raise DecodeError("the matcher has rounds: a subscription needs first_round and rows")
        if subscription.interests.shape[1] != interest_bytes(self._broker):
            raise DecodeError(Cause.INTEREST_WIDTH.text)

    def add(self, number: int, label: str, subscription: Subscription) -> None:
        """See `Book.add`."""
        assert subscription.first_round is not None
        # First, so that the label is there when an event finds the messages.
        with self._lock:
            self._labels[number], self._left[number] = label, len(subscription.interests)
        for turn, message in enumerate(subscription.interests, subscription.first_round):
            numbers, messages = self._rounds.setdefault(turn, ([], bytearray()))
            numbers.append(number)
            messages += message.tobytes()

    def remove(self, number: int) -> None:
        """See `Book.remove`; its messages go with their rounds."""
        with self._lock:
            del self._labels[number], self._left[number]

    def spend(self, turn: int) -> None:
        """Drop the interests of a round that was used; with the lock."""
        numbers, _ = self._rounds.pop(turn, ([], bytearray()))
        for number in numbers:
            if number in self._left:
                self._left[number] -= 1

    def find(self, publication: Publication) -> Index:
        """See `Book.find`: numbers."""
        if publication.round is None:
            raise DecodeError("the matcher has rounds: a publication needs one")
        # The messages first: their numbers are there before they are.
        numbers, messages = self._rounds.get(publication.round, ([], bytearray()))
        width = interest_bytes(self._broker)
        data = bytes(messages)
        there = np.array(numbers[: len(data) // width], dtype=np.int64)
        interests = np.frombuffer(data, dtype=np.uint8).reshape(len(there), width)
        labels = [self._labels.get(one, "") for one in there.tolist()]
        events, rows = self._events(publication, labels)
        there, interests = there[rows], interests[rows]
        if not len(there):
            return there
        answers, causes = self._broker.examine(events, interests)
        self.tests += len(there)
        self.refused += int(np.count_nonzero(causes))
        return there[answers]

    def _events(self, publication: Publication, labels: Sequence[str]) -> tuple[Bytes, list[int]]:
        """Events for subscriptions, and which of those have one."""
        width, own = event_bytes(self._broker), publication.events
        if publication.event is not None:
            if not is_broadcast(self._broker.matcher):
                raise DecodeError("each subscription needs an event of its own in this matcher")
            chosen, rows = [publication.event], [*range(len(labels))]
        else:
            rows = [row for row, label in enumerate(labels) if label in own]
            chosen = [own[labels[row]] for row in rows]
        if any(len(event) != width for event in chosen):
            raise DecodeError(Cause.EVENT_WIDTH.text)
        return np.frombuffer(b"".join(chosen), dtype=np.uint8).reshape(-1, width), rows

    def members(self, found: Index) -> Index:
        """See `Book.members`."""
        return np.array([one for one in found.tolist() if one in self._labels], dtype=np.int64)

    def matching(
        self, label: str, subscription: Subscription, publications: Sequence[Publication]
    ) -> list[int]:
        """See `Book.matching`."""
        found, first = [], subscription.first_round
        for place, publication in enumerate(publications):
            row = -1 if publication.round is None or first is None else publication.round - first
            if 0 <= row < len(subscription.interests):
                event, rows = self._events(publication, [label])
                if rows:
                    answers, _ = self._broker.examine(event, subscription.interests[row : row + 1])
                    found += [place] * bool(answers[0])
        return found


class RelayBook(Book):
    """Subscribers that decide by themselves."""

    def __init__(self, broker: Broker, registry: Registry, lock: RLock) -> None:
        super().__init__(broker, registry, lock)
        self._numbers: dict[int, None] = {}

    @property
    def distinct(self) -> int:
        """All of them."""
        return len(self._numbers)

    def check(self, subscription: Subscription) -> None:
        """See `Book.check`."""

    def add(self, number: int, label: str, subscription: Subscription) -> None:
        """See `Book.add`."""
        with self._lock:
            self._numbers[number] = None

    def remove(self, number: int) -> None:
        """See `Book.remove`."""
        with self._lock:
            del self._numbers[number]

    def find(self, publication: Publication) -> None:
        """See `Book.find`."""
        if publication.event is None:
            raise DecodeError("the publication has no event for all subscriptions")

    def members(self, found: None) -> Index:
        """See `Book.members`."""
        return np.fromiter(self._numbers, dtype=np.int64, count=len(self._numbers))

    def matching(
        self, label: str, subscription: Subscription, publications: Sequence[Publication]
    ) -> list[int]:
        """See `Book.matching`: all."""
        return [*range(len(publications))]


def new_book(broker: Broker, registry: Registry, lock: RLock) -> Book:
    """An empty book for a broker's kind of matcher."""
    kinds: dict[Answers, type[Book]] = {
        Answers.ALL: TableBook,
        Answers.PAIRS: RoundBook,
        Answers.SUBSCRIBER: RelayBook,
    }
    return kinds[broker.matcher.answers](broker, registry, lock)


def interest_bytes(broker: Broker) -> int:
    """Of a message."""
    return message_bytes(broker.matcher, "interest")


def event_bytes(broker: Broker) -> int:
    """Of a message."""
    return message_bytes(broker.matcher, "event")


def one_message(message: bytes) -> Bytes:
    """A message as a batch of one."""
    return np.frombuffer(message, dtype=np.uint8)[None]
