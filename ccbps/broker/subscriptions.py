"""All subscriptions, in a book for each topic and publisher, behind the filter of topics.

A publication is matched without a lock, while others subscribe. What was added meanwhile is matched
with it afterwards, one by one (`Moment`), so that a subscription that was there when the
publication was accepted, and one that took another one's place, misses nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from threading import RLock
from typing import Any, Final, NamedTuple

import numpy as np

from ccbps.arrays import Index
from ccbps.broker.book import Book, RelayBook
from ccbps.broker.messages import Publication, Subscription
from ccbps.broker.prefilter import FilterKind, TokenFilter
from ccbps.broker.registry import Registry
from ccbps.broker.round_book import RoundBook
from ccbps.broker.table_book import TableBook
from ccbps.errors import DecodeError
from ccbps.matching.contract.broker import Broker
from ccbps.matching.contract.scheme import Answers, Scheme

TOPIC_BYTES: Final = 4096
_Key = tuple[bytes | None, str | None]
"""A topic's token, None for all topics; a publisher, None for all."""


@dataclass
class _Added:
    """A subscription that is new.

    Attributes:
        number: of it.
        label: "client/name".
        one: itself.
        since: the version from which on it is in its book; None while it comes in.
    """

    number: int
    label: str
    one: Subscription
    since: int | None = None


class Moment(NamedTuple):
    """What a publication is to be matched with.

    Attributes:
        version: of the subscriptions.
        books: with those of its topic and publisher.
        filtered: what the filter did, as a counter's name.
    """

    version: int
    books: list[Book]
    filtered: str


class Subscriptions:
    """Who subscribed to what. One thread changes them at a time.

    Attributes:
        matcher: whose interests they are.
        registry: of their numbers.
        topics: the filter of tokens.
        tests: pairs that were tested, in books that are gone; `saved` and `refused` likewise.
    """

    def __init__(
        self, matching: Broker | Scheme, prefilter: FilterKind | None, lock: RLock
    ) -> None:
        self._matching, self._lock = matching, lock
        self.matcher = matching.matcher if isinstance(matching, Broker) else matching
        self.registry, self.topics = Registry(), TokenFilter(prefilter)
        self._books: dict[_Key, Book] = {}
        self._keys: dict[int, _Key] = {}
        self._examiner = self._new_book()
        self._version, self._under_way = 0, list[int]()
        self._secret = os.urandom(16)
        self._added: list[_Added] = []
        self.tests = self.saved = self.refused = 0

    def __len__(self) -> int:
        return len(self.registry)

    @property
    def books(self) -> Iterator[Book]:
        """All of them."""
        return iter([*self._books.values()])

    @property
    def to_all_topics(self) -> bool:
        """Whether somebody subscribed without a token."""
        return any(token is None for token, _ in self._books)

    def check(self, some: Sequence[Subscription]) -> None:
        """Raises DecodeError if one of them is not one for this matcher."""
        if isinstance(self._examiner, TableBook):
            self._examiner.check_all(some)
            return
        for one in some:
            if isinstance(self._examiner, RoundBook) and one.publisher is None:
                raise DecodeError("the matcher has rounds: a subscription names its publisher")
            self._examiner.check(one)

    def check_event(self, publication: Publication) -> None:
        """Raises DecodeError if a publication's events are not this matcher's."""
        self._examiner.check_event(publication)

    def has(self, client: str, one: Subscription) -> bool:
        """Whether a client has this very subscription already."""
        number = self.registry.of(client).get(one.name)
        return number is not None and self.registry.prints[number] == self._print(one)

    def add(self, client: str, one: Subscription, entered: Callable[[], object]) -> None:
        """Add a subscription that was checked, in place of the client's one of that name.

        Args:
            entered: called at the moment from which on no publication is accepted without it, with
                the lock. If it raises, nothing has changed.
        """
        with self._lock:
            entered()
            old = self.registry.of(client).get(one.name)
            number, book = self._enter(client, one)
            label = f"{client}/{one.name}"
            added = _Added(number, label, one)
            self._added.append(added)
        book.add(number, label, one)
        with self._lock:
            self._version += 1
            added.since = self._version
            self._forget_added()
        if old is not None:
            self._take_out([old])

    def add_all(self, subscriptions: Sequence[tuple[str, Subscription]]) -> None:
        """Add subscriptions that were checked, none of which is there, before there are events."""
        tables: dict[_Key, tuple[list[int], list[Subscription]]] = {}
        for client, one in subscriptions:
            with self._lock:
                number, book = self._enter(client, one)
            if not isinstance(book, TableBook):
                book.add(number, f"{client}/{one.name}", one)
                continue
            numbers, some = tables.setdefault((one.token, one.publisher), ([], []))
            numbers.append(number)
            some.append(one)
        for key, (numbers, some) in tables.items():
            book = self._books[key]
            assert isinstance(book, TableBook)
            book.add_all(numbers, np.concatenate([one.interests for one in some]))

    def remove(self, client: str, names: Sequence[str]) -> None:
        """Take a client's subscriptions out. They are in no answer from here on."""
        with self._lock:
            numbers = [self.registry.kill(client, name) for name in names]
        self._take_out([number for number in numbers if number is not None])

    # -- matching ---------------------------------------------------------------------------------

    def begin(self, publisher: str, publication: Publication) -> Moment:
        """What a publication is to be matched with: [N1], Algorithm 2. With the lock; `end` must
        follow."""
        self._under_way.append(self._version)
        token = publication.token
        if token is None:
            books = [book for key, book in self._books.items() if key[1] in (None, publisher)]
            return Moment(self._version, books, "")
        tokens = [None, token] if token in self.topics else [None]
        keys = [(one, whose) for one in tokens for whose in (None, publisher)]
        found = [book for key in keys if (book := self._books.get(key)) is not None]
        own = any((token, whose) in self._books for whose in (None, publisher))
        passed = "filter_false_positives" if self.topics.filters else ""
        filtered = "" if own else passed if len(tokens) > 1 else "prefiltered"
        return Moment(self._version, found, filtered)

    def end(self, moment: Moment) -> None:
        """That a publication is matched. With the lock."""
        self._under_way.remove(moment.version)
        self._forget_added()

    def recipients(
        self,
        moment: Moment,
        publisher: str,
        publication: Publication,
        found: Sequence[tuple[Book, Any]],
    ) -> list[tuple[str, tuple[str, ...]]]:
        """Clients whose subscriptions match, each with their names. With the lock."""
        numbers: list[Index] = [book.members(some) for book, some in found]
        later = [
            added
            for added in self._added
            if (added.since is None or added.since > moment.version)
            and self._concerns(added.one, publisher, publication)
        ]
        if later:
            pairs = [(added.label, added.one) for added in later]
            answers = self._examiner.matching(pairs, [publication])[0]
            own = np.array([added.number for added in later], dtype=np.int64)
            numbers.append(own[answers])
        return self.registry.by_owner(np.concatenate(numbers)) if numbers else []

    def matching(self, client: str, one: Subscription, kept: Sequence[Publication]) -> list[int]:
        """Which publications match a subscription."""
        if not kept:
            return []
        answers = self._examiner.matching([(f"{client}/{one.name}", one)], kept)
        found: list[int] = np.flatnonzero(answers[:, 0]).tolist()
        return found

    # -- inside -----------------------------------------------------------------------------------

    def _concerns(self, one: Subscription, publisher: str, publication: Publication) -> bool:
        topic = None in (one.token, publication.token) or one.token == publication.token
        return topic and one.publisher in (None, publisher)

    def _forget_added(self) -> None:
        """What was added before all that is being matched now began needs no second look."""
        first = min(self._under_way, default=self._version)
        self._added = [one for one in self._added if one.since is None or one.since > first]

    def _new_book(self) -> Book:
        if not isinstance(self._matching, Broker):
            return RelayBook(self.registry, self._lock)
        kind = TableBook if self.matcher.answers is Answers.ALL else RoundBook
        return kind(self._matching, self.registry, self._lock)

    @staticmethod
    def size(one: Subscription) -> int:
        """Bytes that a subscription takes, about: a topic has a book of its own."""
        return one.interests.nbytes + len(one.name.encode()) + (TOPIC_BYTES if one.token else 0)

    def _print(self, one: Subscription) -> int:
        """Tells subscriptions from one another; nobody outside can choose two that look alike."""
        digest = blake2b(one.to_bytes(), digest_size=8, key=self._secret).digest()
        return int.from_bytes(digest, signed=True)

    def _enter(self, client: str, one: Subscription) -> tuple[int, Book]:
        """A number for a subscription, and the book for it."""
        key = one.token, one.publisher
        number = self.registry.new(client, one.name, self.size(one), self._print(one))
        self._keys[number] = key
        book = self._books.get(key)
        if book is None:
            book = self._books[key] = self._new_book()
            if one.token is not None:
                self.topics.add(one.token)
        return number, book

    def _take_out(self, numbers: Sequence[int]) -> None:
        by_key: dict[_Key, list[int]] = {}
        for number in numbers:
            by_key.setdefault(self._keys[number], []).append(number)
        for key, some in by_key.items():
            book = self._books[key]
            book.remove(some)
            with self._lock:
                # Their numbers will be those of others.
                gone = {*some}
                self._added = [added for added in self._added if added.number not in gone]
                for number in some:
                    del self._keys[number]
                    self.registry.free(number)
                if not book.distinct:
                    self.tests += book.tests
                    self.saved += book.saved
                    self.refused += book.refused
                    del self._books[key]
                    if key[0] is not None:
                        self.topics.remove(key[0])
