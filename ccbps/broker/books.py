"""Books of subscriptions: one kind for each place where a matcher decides.

`TableBook` is for matchers whose broker tests every event with every interest, `SharesBook` for
three brokers that do so together, `RoundBook` for publishers and subscribers who share a seed, and
`RelayBook` for subscribers that decide by themselves, so that all of them get everything.

Matching has two steps. `find` takes long and needs no lock. `members` turns its result into
subscriptions; it is quick, and runs under the lock that guards changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from threading import Lock, RLock
from typing import Any, ClassVar, Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Index
from ccbps.broker.messages import Publication, Subscription
from ccbps.broker.metrics import Metrics
from ccbps.broker.registry import NUMBERS, Registry
from ccbps.errors import DecodeError
from ccbps.matching.contract.access import message_bytes
from ccbps.matching.contract.broker import Broker
from ccbps.matching.contract.scheme import Answers
from ccbps.matching.contract.table import Table
from ccbps.trio.leader import Leader
from ccbps.wire import Cause, raise_for

Labelled = tuple[str, Subscription]
"""A subscription behind its label, "client/name"."""
_NOBODY: Final = np.empty(0, dtype=np.int64)


class Book(ABC):
    """Subscriptions by number, of one topic and publisher.

    Attributes:
        is_joint: True if matching a publication with several books takes no longer than with one.
    """

    is_joint: ClassVar[bool] = False

    def __init__(self, lock: RLock, metrics: Metrics) -> None:
        """Make an empty book.

        Args:
            lock: lock that is held when `members` is called.
            metrics: counters of tested pairs.
        """
        self._lock, self._metrics = lock, metrics
        self._subscriptions: dict[int, Any] = {}

    @property
    def distinct(self) -> int:
        """Number of interests that differ."""
        return len(self._subscriptions)

    @abstractmethod
    def check(self, subscriptions: Sequence[Labelled]) -> None:
        """Refuse subscriptions that are not for the matcher, all at once.

        Raises:
            DecodeError: their messages are malformed, or of another matcher, key or epoch.
        """

    def check_owner(self, client: str, subscription: Subscription) -> None:  # noqa: B027
        """Refuse a subscription that was checked, if it is not the client's any more.

        Raises:
            DecodeError: its keys are another client's, or were forgotten.
        """

    @abstractmethod
    def check_event(self, publisher: str, publication: Publication) -> None:
        """Refuse a publication whose events are not the matcher's.

        Args:
            publisher: name of its publisher.
            publication: the publication.

        Raises:
            DecodeError: they are malformed, or of another matcher, key or epoch.
        """

    def add(self, numbers: Sequence[int], subscriptions: Sequence[Labelled]) -> None:
        """Add subscriptions that were checked."""
        with self._lock:
            self._subscriptions.update(zip(numbers, subscriptions, strict=True))

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove subscriptions."""
        with self._lock:
            for number in numbers:
                del self._subscriptions[number]

    @abstractmethod
    def find(self, publications: Sequence[Publication]) -> Sequence[Any]:
        """Return the matches of each publication, for `members`; all of them were checked.

        Where a publication is refused after all, its `DecodeError` stands in their place.

        Raises:
            RefusedError: they cannot be matched now.
        """

    @classmethod
    def find_in(
        cls, books: Sequence[Any], publications: Sequence[Publication]
    ) -> list[Sequence[Any]]:
        """Return the result of `find` for each of some books of this class."""
        return [book.find(publications) for book in books]

    @abstractmethod
    def members(self, matches: Any) -> Index:
        """Return the numbers of the subscriptions among the matches of a publication."""

    @abstractmethod
    def matching(
        self, subscriptions: Sequence[Labelled], publications: Sequence[Publication]
    ) -> Bools:
        """Match subscriptions, which need not be in the book, with publications.

        All of them were checked.

        Returns:
            shape (publications, subscriptions).
        """

    def _still_there(self, matches: Sequence[tuple[int, Any]]) -> Index:
        """Return the numbers that name the same subscriptions as before."""
        numbers = [number for number, entry in matches if self._subscriptions.get(number) is entry]
        return np.array(numbers, dtype=np.int64)


class RelayBook(Book):
    """Subscriptions whose subscribers decide by themselves."""

    def add(self, numbers: Sequence[int], subscriptions: Sequence[Labelled]) -> None:
        # There may be millions, and only their numbers are needed.
        with self._lock:
            self._subscriptions.update(dict.fromkeys(numbers))

    def check(self, subscriptions: Sequence[Labelled]) -> None:
        pass

    def check_event(self, publisher: str, publication: Publication) -> None:
        _require_event(publication)
        if publication.payload is None:
            raise DecodeError("nobody but subscribers can tell who matches: send the payload along")

    def find(self, publications: Sequence[Publication]) -> Sequence[None]:
        return [None] * len(publications)

    def members(self, matches: None) -> Index:
        return np.fromiter(self._subscriptions, dtype=np.int64, count=len(self._subscriptions))

    def matching(
        self, subscriptions: Sequence[Labelled], publications: Sequence[Publication]
    ) -> Bools:
        return np.ones((len(publications), len(subscriptions)), dtype=np.bool_)


class RoundBook(Book):
    """Interests that were provisioned for rounds: an event meets those of its round."""

    def __init__(self, broker: Broker, lock: RLock, metrics: Metrics) -> None:
        super().__init__(lock, metrics)
        self._broker = broker

    def check(self, subscriptions: Sequence[Labelled]) -> None:
        # Whether messages belong to a round shows when they meet an event.
        for _, subscription in subscriptions:
            if subscription.publisher is None:
                raise DecodeError("the matcher has rounds: a subscription names its publisher")
            if subscription.first_round is None or not len(subscription.interests):
                raise DecodeError(
                    "the matcher has rounds: a subscription needs first_round and rows"
                )
            if subscription.interests.shape[1] != message_bytes(self._broker.matcher, "interest"):
                raise DecodeError(Cause.INTEREST_WIDTH.text)

    def check_event(self, publisher: str, publication: Publication) -> None:
        if publication.round is None:
            raise DecodeError("the matcher has rounds: a publication needs one")
        events = [*publication.events.values()]
        if publication.event is not None:
            if self._broker.matcher.answers is not Answers.ROUND:
                raise DecodeError("each subscription needs an event of its own in this matcher")
            events = [publication.event]
        width = message_bytes(self._broker.matcher, "event")
        if any(len(event) != width for event in events):
            raise DecodeError(Cause.EVENT_WIDTH.text)

    def find(self, publications: Sequence[Publication]) -> list[list[tuple[int, Labelled]]]:
        with self._lock:
            numbered = [*self._subscriptions.items()]
        out = []
        for publication in publications:
            rows, answers = self._match([labelled for _, labelled in numbered], publication)
            out.append([numbered[rows[place]] for place in np.flatnonzero(answers)])
        return out

    def members(self, matches: list[tuple[int, Labelled]]) -> Index:
        return self._still_there(matches)

    def matching(
        self, subscriptions: Sequence[Labelled], publications: Sequence[Publication]
    ) -> Bools:
        out = np.zeros((len(publications), len(subscriptions)), dtype=np.bool_)
        for place, publication in enumerate(publications):
            rows, answers = self._match(subscriptions, publication)
            out[place, rows] = answers
        return out

    def _match(
        self, subscriptions: Sequence[Labelled], publication: Publication
    ) -> tuple[list[int], Bools]:
        """Return the places of subscriptions that have messages for a round, and the answers."""
        assert publication.round is not None
        common, own = publication.event, publication.events
        rows, interests, events = [], [], []
        for place, (label, subscription) in enumerate(subscriptions):
            row = publication.round - (subscription.first_round or 0)
            if 0 <= row < len(subscription.interests) and (common is not None or label in own):
                rows.append(place)
                interests.append(subscription.interests[row])
                events.append(own[label] if common is None else common)
        if not rows:
            return [], np.zeros(0, dtype=np.bool_)
        if common is not None:
            events = events[:1]
        content = np.frombuffer(b"".join(events), dtype=np.uint8).reshape(len(events), -1)
        answers, causes = self._broker.examine(content, np.stack(interests))
        self._metrics.add("pairs_tested", len(rows))
        self._metrics.add("pairs_refused", int(np.count_nonzero(causes)))
        return rows, answers


class TableBook(Book):
    """Interests that the broker tests with every event. Equal interests are kept once.

    If an interest in the table covers a new one, the new one stands under it, and is tested only
    with events that match the covering one. A wide interest that comes later takes nothing under
    it.
    """

    def __init__(self, broker: Broker, registry: Registry, lock: RLock, metrics: Metrics) -> None:
        super().__init__(lock, metrics)
        self._broker, self._registry = broker, registry
        self._table = self._new_table()
        # An entry is an interest of the tables, by a number; its members are subscriptions.
        self._entries: dict[bytes, int] = {}
        self._digests: dict[int, bytes] = {}
        self._members: dict[int, array[int]] = defaultdict(partial(array, NUMBERS))
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
        """Number of interests that differ."""
        return len(self._members)

    def check(self, subscriptions: Sequence[Labelled]) -> None:
        rows = _one_row_each(subscriptions, message_bytes(self._broker.matcher, "interest"))
        if len(rows):
            raise_for(self._broker.examine_interests(rows))

    def check_event(self, publisher: str, publication: Publication) -> None:
        _require_event(publication)
        raise_for(self._broker.examine_events(events_of([publication])))

    def add(self, numbers: Sequence[int], subscriptions: Sequence[Labelled]) -> None:
        entries, fresh, rows = [], dict[bytes, int](), []
        for row, (_, one) in enumerate(subscriptions):
            # With its mask: a client with another's interest and a mask of its own hides nothing.
            content = one.interests.tobytes() + (one.mask or b"")
            digest = blake2b(content, digest_size=16).digest()
            entry = self._entries.get(digest, fresh.get(digest))
            if entry is None:
                entry = fresh[digest] = self._next + len(fresh)
                rows.append(row)
            entries.append(entry)
        new = [subscriptions[row] for row in rows]
        equal = self._put(new, [*fresh.values()]) if rows else {}
        self._next += len(fresh)
        for digest, entry in fresh.items():
            if entry not in equal:
                self._entries[digest], self._digests[entry] = entry, digest
        with self._lock:
            for number, entry in zip(numbers, entries, strict=True):
                entry = equal.get(entry, entry)
                members = self._members[entry]
                self._registry.entries[number] = entry
                self._registry.places[number] = len(members)
                members.append(number)
            self._count += len(numbers)

    def _put(self, subscriptions: Sequence[Labelled], entries: Sequence[int]) -> dict[int, int]:
        """Put interests that differ into the tables.

        Returns:
            for entries whose interest equals one of the tables in another form: the entry of that.
            These are not put into the tables.
        """
        interests = interests_of(subscriptions)
        if not self._broker.matcher.covering:
            self._table.add(interests, entries)
            return {}
        equal = {}
        for entry, interest in zip(entries, interests[:, None], strict=True):
            over, same = self._compared(interest, self._table)
            if same is None and over in self._under:
                _, same = self._compared(interest, self._under[over])
            if same is not None:
                equal[entry] = same
            elif over is None:
                self._table.add(interest, [entry])
            else:
                if over not in self._under:
                    self._under[over] = self._new_table()
                self._under[over].add(interest, [entry])
                self._over[entry] = over
        return equal

    def _compared(self, interest: Bytes, table: Table) -> tuple[Any, Any]:
        """Return the first entry of a table that covers an interest, and the first that equals it.

        None stands for no entry.
        """
        if not len(table):
            return None, None
        over = np.flatnonzero(self._broker.covers(table, interest)[:, 0])
        equal = over[self._broker.covers(interest, table)[0, over]]
        ids = table.ids
        return ids[over[0]] if len(over) else None, ids[equal[0]] if len(equal) else None

    def remove(self, numbers: Sequence[int]) -> None:
        with self._lock:
            gone = [entry for number in numbers if (entry := self._leave(number)) is not None]
        self._take_out(gone)

    def _take_out(self, gone: Sequence[int]) -> None:
        """Remove interests from the tables."""
        outer = []
        for entry in gone:
            over = self._over.pop(entry, None)
            if over is None:
                outer.append(entry)
            else:
                self._under[over].remove([entry])
        if plain := [entry for entry in outer if entry not in self._under]:
            self._table.remove(plain)
        for entry in outer:
            if entry in self._under:
                self._uncover(entry)

    def _leave(self, number: int) -> int | None:
        """Remove a subscription from its entry, and return the entry if that was the last one."""
        entry, place = self._registry.entries[number], self._registry.places[number]
        members = self._members[entry]
        # The last one takes its place.
        last = members.pop()
        if place < len(members):
            members[place] = last
            self._registry.places[last] = place
        self._count -= 1
        if len(members):
            return None
        del self._members[entry], self._entries[self._digests.pop(entry)]
        return entry

    def _uncover(self, entry: int) -> None:
        """Remove an interest that covers others, which move into the outer table."""
        with self._moving:
            uncovered = self._under.pop(entry)
            ids: list[Any] = uncovered.ids
            if ids:
                self._table.add(uncovered.messages, ids)
            for below in ids:
                del self._over[below]
            self._table.remove([entry])

    def find(self, publications: Sequence[Publication]) -> list[list[Any]]:
        events = events_of(publications)
        if not self._broker.matcher.covering:
            return self._find(events)
        with self._moving:
            return self._find(events)

    def _find(self, events: Bytes) -> list[list[Any]]:
        """Return the entries that match each event."""
        tested = len(events) * len(self._table)
        saved = len(events) * (self._count - self.distinct + len(self._over))
        found = self._matches(events, self._table)
        for event, entries in zip(events, found, strict=True) if self._under else ():
            for over in [*entries]:
                if table := self._under.get(over):
                    entries += self._matches(event[None], table)[0]
                    tested, saved = tested + len(table), saved - len(table)
        self._metrics.add("pairs_tested", tested)
        # Other threads may add and remove subscriptions between the counts.
        self._metrics.add("pairs_saved", max(0, saved))
        return found

    def _matches(self, events: Bytes, table: Table) -> list[list[Any]]:
        """Return the entries of a table that match each event.

        Other threads may change the table meanwhile.
        """
        parts = table.parts
        events_, columns = np.nonzero(self._broker.match_parts(events, parts))
        ends = np.cumsum([part.live for part in parts], dtype=np.intp)
        where = np.searchsorted(ends, columns, "right")
        entries: list[list[Any]] = [[] for _ in events]
        for event, column, place in zip(
            events_.tolist(), columns.tolist(), where.tolist(), strict=True
        ):
            part = parts[place]
            entries[event].append(part.ids[part.rows[column - ends[place] + part.live]])
        return entries

    def members(self, matches: list[Any]) -> Index:
        members = [self._members[entry] for entry in {*matches} if entry in self._members]
        return np.concatenate([_NOBODY, *(np.frombuffer(own, np.uint32) for own in members)])

    def matching(
        self, subscriptions: Sequence[Labelled], publications: Sequence[Publication]
    ) -> Bools:
        interests = interests_of(subscriptions)
        # A user who was revoked since the check matches nothing.
        good = np.flatnonzero(self._broker.examine_interests(interests) == Cause.NONE)
        events = events_of(publications)
        out = np.zeros((len(events), len(interests)), dtype=np.bool_)
        if len(good):
            out[:, good] = self._broker.examine_all(events, interests[good])[0]
        return out


class SharesBook(Book):
    """Interests that three brokers keep in lanes, and test with every event.

    The leader has their messages.
    """

    is_joint = True

    def __init__(self, leader: Leader, lock: RLock, metrics: Metrics) -> None:
        super().__init__(lock, metrics)
        self._leader, self._table = leader, leader.new_table()
        # Of each lane the number of its subscription, the lane, and the change that put it there.
        self._held: dict[int, tuple[int, int, int]] = {}
        self._change = self._used = 0
        # Lanes without an interest. They are used again at once: events that are being matched
        # ignore what was put into lanes after them.
        self._free: list[int] = []
        self._moving = Lock()

    def check(self, subscriptions: Sequence[Labelled]) -> None:
        _one_row_each(subscriptions, self._leader.width("interest"))
        for label, subscription in subscriptions:
            self.check_owner(label.partition("/")[0], subscription)
        if subscriptions:
            self._leader.verify(interests_of(subscriptions))

    def check_owner(self, client: str, subscription: Subscription) -> None:
        self._leader.check("interest", subscription.interests, client)

    def check_event(self, publisher: str, publication: Publication) -> None:
        _require_event(publication)
        self._leader.check("event", events_of([publication]), publisher)

    def add(self, numbers: Sequence[int], subscriptions: Sequence[Labelled]) -> None:
        with self._moving:
            self._change += 1
            chosen = [self._free.pop() for _ in numbers[: len(self._free)]]
            fresh = len(numbers) - len(chosen)
            chosen += range(self._used, self._used + fresh)
            self._used += fresh
            self._leader.put(self._table, np.array(chosen), interests_of(subscriptions))
            with self._lock:
                for number, lane in zip(numbers, chosen, strict=True):
                    self._subscriptions[number] = self._held[lane] = number, lane, self._change

    def remove(self, numbers: Sequence[int]) -> None:
        with self._moving:
            with self._lock:
                gone = [self._subscriptions[number][1] for number in numbers]
                super().remove(numbers)
                for lane in gone:
                    del self._held[lane]
            self._leader.remove(self._table, np.array(gone))
            self._free += gone

    def find(self, publications: Sequence[Publication]) -> Sequence[Any]:
        return self.find_in([self], publications)[0]

    @classmethod
    def find_in(
        cls, books: Sequence[Any], publications: Sequence[Publication]
    ) -> list[Sequence[Any]]:
        changes = []
        for book in books:
            with book._moving:
                changes.append(book._change)
                tested = len(book._held)
            book._metrics.add("pairs_tested", tested * len(publications))
        leader = books[0]._leader
        answers, refused = leader.match([book._table for book in books], events_of(publications))
        pairs = zip(books, answers, changes, strict=True)
        return [book._entries(own, refused, change) for book, own, change in pairs]

    def _entries(self, answers: Bools, refused: Bools, change: int) -> list[Any]:
        """Return the matches of each publication, without those that came after a change."""
        out: list[Any] = []
        for row, is_refused in zip(answers, refused.tolist(), strict=True):
            if is_refused:
                out.append(DecodeError("two brokers hold different events, or no event at all"))
                continue
            with self._lock:
                held = [self._held.get(lane) for lane in np.flatnonzero(row).tolist()]
            # What came meanwhile is matched afterwards.
            out.append([(one[0], one) for one in held if one is not None and one[2] <= change])
        return out

    def members(self, matches: list[tuple[int, Any]]) -> Index:
        return self._still_there(matches)

    def matching(
        self, subscriptions: Sequence[Labelled], publications: Sequence[Publication]
    ) -> Bools:
        return self._leader.match_once(interests_of(subscriptions), events_of(publications))


def events_of(publications: Sequence[Publication]) -> Bytes:
    """Return the events for all subscriptions, shape (count, event_bytes)."""
    events = [publication.event or b"" for publication in publications]
    return np.frombuffer(b"".join(events), dtype=np.uint8).reshape(len(events), -1)


def interests_of(subscriptions: Sequence[Labelled]) -> Bytes:
    """Return the interests of subscriptions that have one each, shape (count, interest_bytes)."""
    return np.concatenate([subscription.interests for _, subscription in subscriptions])


def _one_row_each(subscriptions: Sequence[Labelled], width: int) -> Bytes:
    """Return the interests of subscriptions, shape (count, interest_bytes).

    Raises:
        DecodeError: one of them has not exactly one interest message of this width.
    """
    for _, subscription in subscriptions:
        if subscription.interests.shape != (1, width):
            raise DecodeError(
                f"a subscription has 1 interest message of {width} bytes here, "
                f"got {subscription.interests.shape}"
            )
    return interests_of(subscriptions) if subscriptions else np.zeros((0, width), np.uint8)


def _require_event(publication: Publication) -> None:
    """Refuse a publication without an event for all subscriptions."""
    if publication.event is None:
        raise DecodeError("the publication has no event for all subscriptions")
