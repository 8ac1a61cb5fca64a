"""All subscriptions, in a book for each topic, behind the filter of topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import RLock

import numpy as np

from ccbps.arrays import Index
from ccbps.broker.book import Book, RelayBook
from ccbps.broker.messages import Publication, Subscription
from ccbps.broker.prefilter import FilterKind, TokenFilter
from ccbps.broker.registry import Registry
from ccbps.broker.round_book import RoundBook
from ccbps.broker.table_book import TableBook
from ccbps.errors import DecodeError
from ccbps.matching.broker import Broker
from ccbps.matching.contract import Answers, Scheme

__all__ = ["Subscriptions"]

_Key = tuple[bytes | None, str | None]
"""A topic's token, None for all topics; and a publisher, where it shares seeds."""


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

    def book(self, one: Subscription) -> Book:
        """The book that a subscription belongs in; a new one if it is the first.

        Raises:
            DecodeError: it is not one for this matcher.
        """
        book = self._books.get(self._key(one))
        if book is not None:
            return book
        if not isinstance(self._matching, Broker):
            return RelayBook(self.registry, self._lock)
        kind = TableBook if self.matcher.answers is Answers.ALL else RoundBook
        return kind(self._matching, self.registry, self._lock)

    def check(self, some: Sequence[Subscription]) -> None:
        """Raises DecodeError if one of them is not one for this matcher."""
        tables: list[Subscription] = []
        for one in some:
            book = self.book(one)
            if isinstance(book, TableBook):
                tables.append(one)
            else:
                book.check(one)
        if tables:
            book = self.book(tables[0])
            assert isinstance(book, TableBook)
            book.check_all(tables)

    def add(self, client: str, one: Subscription) -> None:
        """Add a subscription that was checked, in place of the client's one of that name."""
        old = self.registry.of(client).get(one.name)
        book = self.book(one)
        with self._lock:
            number = self.registry.new(client, one.name)
            self._open(number, self._key(one), book)
        book.add(number, f"{client}/{one.name}", one)
        if old is not None:
            self._take_out(old)

    def add_all(self, subscriptions: Sequence[tuple[str, Subscription]]) -> None:
        """Add subscriptions that were checked, none of which is there."""
        tables: dict[_Key, tuple[list[int], list[Subscription]]] = {}
        for client, one in subscriptions:
            book = self.book(one)
            if not isinstance(book, TableBook):
                self.add(client, one)
                continue
            with self._lock:
                number = self.registry.new(client, one.name)
                self._open(number, self._key(one), book)
            numbers, some = tables.setdefault(self._key(one), ([], []))
            numbers.append(number)
            some.append(one)
        for key, (numbers, some) in tables.items():
            book = self._books[key]
            assert isinstance(book, TableBook)
            book.add_all(numbers, np.concatenate([one.interests for one in some]))

    def remove(self, client: str, name: str) -> None:
        """Take a subscription out. It is in no answer from here on."""
        with self._lock:
            number = self.registry.of(client).pop(name)
        self._take_out(number)

    def for_publication(self, publisher: str, publication: Publication) -> tuple[list[Book], str]:
        """Books that a publication is to be matched with; and what the filter did, as a counter's
        name: [N1], Algorithm 2."""
        whose = publisher if self.matcher.answers is Answers.PAIRS else None
        token = publication.token
        if token is None:
            return [book for key, book in self._books.items() if key[1] == whose], ""
        to_all = self._books.get((None, whose))
        books = [to_all] if to_all is not None else []
        if token not in self.topics:
            return books, "prefiltered"
        book = self._books.get((token, whose))
        if book is None:
            return books, "filter_false_positives"
        return [*books, book], ""

    def spend(self, publisher: str, turn: int) -> None:
        """Drop what was provisioned for a publisher's round, which was used."""
        for (_, whose), book in self._books.items():
            if whose == publisher and isinstance(book, RoundBook):
                book.spend(turn)

    def recipients(self, found: Sequence[Index]) -> list[tuple[str, tuple[str, ...]]]:
        """Clients whose subscriptions these are, each with their names."""
        numbers = np.concatenate(found) if found else np.empty(0, dtype=np.intp)
        return self.registry.by_owner(numbers) if len(numbers) else []

    def _key(self, one: Subscription) -> _Key:
        if self.matcher.answers is not Answers.PAIRS:
            return one.token, None
        if one.publisher is None:
            raise DecodeError("the matcher has rounds: a subscription names its publisher")
        return one.token, one.publisher

    def _open(self, number: int, key: _Key, book: Book) -> None:
        self._keys[number] = key
        if key not in self._books:
            self._books[key] = book
            if key[0] is not None:
                self.topics.add(key[0])

    def _take_out(self, number: int) -> None:
        key = self._keys[number]
        book = self._books[key]
        book.remove(number)
        with self._lock:
            del self._keys[number]
            self.registry.free(number, book.reuse)
            if not book.distinct:
                self.tests += book.tests
                self.saved += book.saved
                self.refused += book.refused
                del self._books[key]
                if key[0] is not None:
                    self.topics.remove(key[0])
