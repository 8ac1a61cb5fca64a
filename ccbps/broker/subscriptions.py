"""All subscriptions, in a book for each topic and publisher, behind the filter of topics.

A publication is matched without a lock, while others subscribe. Subscriptions that came meanwhile
are matched with it afterwards, one by one (`Snapshot`). So no registered subscription misses a
publication, even if the subscription has just replaced another one.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import RLock
from typing import Any, Final, NamedTuple

import numpy as np

from ccbps.arrays import Index
from ccbps.broker.books import Book, Labelled, RelayBook, RoundBook, SharesBook, TableBook
from ccbps.broker.masked_book import MaskedBook
from ccbps.broker.messages import Publication, Subscription
from ccbps.broker.metrics import Metrics
from ccbps.broker.prefilter import FilterKind, TokenFilter
from ccbps.broker.quotas import Quota
from ccbps.broker.registry import Registry
from ccbps.checks import instance
from ccbps.errors import CcbpsError, DecodeError, ParameterError, RefusedError
from ccbps.filters.contents import MaskLayout
from ccbps.matching.contract.broker import Broker
from ccbps.matching.contract.scheme import Answers, Scheme
from ccbps.trio.leader import Leader

_log: Final = logging.getLogger(__name__)
TOPIC_BYTES: Final = 4096
"""Bytes that a topic is charged with, since it has a book of its own."""
_Key = tuple[bytes | None, str | None]
"""A topic's token (None for all topics) and a publisher (None for all publishers)."""


@dataclass
class Added:
    """A new subscription.

    Attributes:
        number: number of the subscription.
        labelled: the subscription behind its label.
        since: first version in whose books it is; None while it comes in.
    """

    number: int
    labelled: Labelled
    since: int | None = None


class Snapshot(NamedTuple):
    """The subscriptions that a publication is to be matched with.

    Attributes:
        version: version of the subscriptions.
        books: books with subscriptions of its topic and publisher.
        filtered: name of the counter of the filter's effect; empty for none.
    """

    version: int
    books: list[Book]
    filtered: str


@dataclass
class Coming:
    """A publication that is being matched.

    Attributes:
        place: place among the publications that came together.
        publication: the publication.
        digest: digest of its message.
        snapshot: subscriptions to match it with.
        stamp: result of `Enforcement.begin`, by which it is judged.
        matches: matches in each book of the snapshot.
        later: subscriptions that came after the snapshot, and whether they match.
        error: reason for refusing it; None for none.
    """

    place: int
    publication: Publication
    digest: bytes
    snapshot: Snapshot
    stamp: Any = None
    matches: list[tuple[Book, Any]] = field(default_factory=list)
    later: list[tuple[Added, bool]] = field(default_factory=list)
    error: CcbpsError | None = None


class Subscriptions:
    """Subscriptions of all clients. One thread changes them at a time.

    Attributes:
        matcher: matcher of their interests.
        registry: their clients and names.
        topics: filter of tokens.
        examiner: an empty book, which checks messages and matches subscriptions of no book.
    """

    def __init__(
        self,
        matching: Broker | Leader | Scheme,
        prefilter: FilterKind | None,
        lock: RLock,
        metrics: Metrics,
        masks: MaskLayout | None = None,
    ) -> None:
        self._matching, self._lock, self._metrics = matching, lock, metrics
        self.matcher = matching if isinstance(matching, Scheme) else matching.matcher
        self._masks = masks
        if masks is not None:
            instance("masks", masks, MaskLayout, hint="take ContentFilter.layout")
        if masks is not None and not (
            isinstance(matching, Broker) and self.matcher.answers is Answers.ALL
        ):
            raise ParameterError(
                f"masks must be None with {type(self.matcher).__name__}: they are for one broker "
                "that tests every event with every interest, and show what other matchers hide"
            )
        self.registry, self.topics = Registry(), TokenFilter(prefilter)
        self._books: dict[_Key, Book] = {}
        self._keys: dict[int, _Key] = {}
        self.examiner = self._new_book()
        self._version, self._under_way = 0, list[int]()
        self._secret = os.urandom(16)
        self._added: list[Added] = []

    def to_all_topics(self, owner: str) -> bool:
        """Tell whether there is a subscription without a token. Called with the lock.

        Args:
            owner: client whose subscriptions do not count: all of them are without a token.
        """
        own = len(self.registry.of(owner))
        if not own:
            return any(token is None for token, _ in self._books)
        return sum(token is None for token, _ in self._keys.values()) > own

    def gauges(self) -> dict[str, int]:
        """Return numbers of clients, subscriptions, interests and topics, for metrics."""
        return {
            "clients": self.registry.subscribed,
            "subscriptions": len(self.registry),
            "interests": sum(book.distinct for book in self._books.values()),
            "topics": len(self.topics),
        }

    def usable(
        self, subscriptions: list[tuple[str, Subscription]], encoder: Callable[[str], str]
    ) -> list[tuple[str, Subscription]]:
        """Select the subscriptions of an earlier broker that match something.

        Those of users that were revoked match nothing any more, for example.

        Args:
            subscriptions: clients and subscriptions.
            encoder: function that returns who encoded a client's subscriptions.
        """
        try:
            self.check_masks(one for _, one in subscriptions)
            self.examiner.check(
                [(f"{encoder(client)}/{one.name}", one) for client, one in subscriptions]
            )
        except DecodeError as error:
            if len(subscriptions) > 1:
                return [pair for one in subscriptions for pair in self.usable([one], encoder)]
            ((client, subscription),) = subscriptions
            _log.warning("subscription %s of %s is left out: %s", subscription.name, client, error)
            return []
        return subscriptions

    def check_masks(self, sent: Iterable[Subscription | Publication]) -> None:
        """Refuse messages of clients whose masks do not fit, or are missing.

        Raises:
            DecodeError: masks are missing, malformed or of another filter; or nobody compares them.
        """
        for one in sent:
            if self._masks is None:
                if one.mask is not None:
                    raise DecodeError("this broker compares no masks: leave the mask out")
            elif isinstance(one, Subscription):
                self._masks.check_interest(one.mask)
            else:
                self._masks.check_event(one.mask)

    def require_room(self, client: str, new: Subscription, quota: Quota) -> None:
        """Refuse a subscription of a client that may have no more.

        Raises:
            RefusedError: it would have too many, or too many bytes of them.
        """
        own = self.registry.of(client)
        count = len(own) + (new.name not in own)
        size = self.registry.stored(client) - self.registry.size(client, new.name)
        size += self._size(new)
        if count > quota.subscriptions or size > quota.stored_bytes:
            raise RefusedError(
                f"{client} would have {count} subscriptions of {size} bytes, and may have "
                f"{quota.subscriptions} of {quota.stored_bytes}",
                reason="subscriptions",
            )

    def has(self, client: str, subscription: Subscription) -> bool:
        """Tell whether a client has this very subscription already."""
        number = self.registry.of(client).get(subscription.name)
        return number is not None and self.registry.prints[number] == self._print(subscription)

    def add(self, client: str, subscription: Subscription, enter: Callable[[], object]) -> None:
        """Add a subscription that was checked, in place of the client's one with that name.

        Args:
            client: its client.
            subscription: the subscription.
            enter: called with the lock. No publication is accepted without the subscription from
                here on. If it raises, nothing has changed.
        """
        labelled = f"{client}/{subscription.name}", subscription
        with self._lock:
            enter()
            old = self.registry.of(client).get(subscription.name)
            number, book = self._enter(client, subscription)
            added = Added(number, labelled)
            self._added.append(added)
        book.add([number], [labelled])
        with self._lock:
            self._version += 1
            added.since = self._version
            self._forget_added()
        if old is not None:
            self._take_out([old])

    def add_all(self, subscriptions: Sequence[tuple[str, Subscription]]) -> None:
        """Add subscriptions that were checked before there are events. None of them is there."""
        by_book: dict[_Key, tuple[list[int], list[Labelled]]] = {}
        for client, subscription in subscriptions:
            with self._lock:
                number, _ = self._enter(client, subscription)
            numbers, labelled = by_book.setdefault(self._keys[number], ([], []))
            numbers.append(number)
            labelled.append((f"{client}/{subscription.name}", subscription))
        for key, added in by_book.items():
            self._books[key].add(*added)

    def remove(self, client: str, names: Sequence[str]) -> None:
        """Remove subscriptions of a client. No event matches them from here on."""
        with self._lock:
            numbers = [self.registry.kill(client, name) for name in names]
        self._take_out([number for number in numbers if number is not None])

    # -- matching ---------------------------------------------------------------------------------

    def begin(self, publisher: str, publication: Publication) -> Snapshot:
        """Return the subscriptions to match a publication with: [N1], Algorithm 2.

        Called with the lock. `end` must follow.
        """
        self._under_way.append(self._version)
        token = publication.token
        if token is None:
            books = [book for key, book in self._books.items() if key[1] in (None, publisher)]
            return Snapshot(self._version, books, "")
        passes = token in self.topics
        tokens = [None, token] if passes else [None]
        keys = [(one, name) for one in tokens for name in (None, publisher)]
        books = [book for key in keys if (book := self._books.get(key)) is not None]
        if any((token, name) in self._books for name in (None, publisher)):
            filtered = ""
        elif not passes:
            filtered = "prefiltered"
        else:
            filtered = "filter_false_positives" if self.topics.filter is not None else ""
        return Snapshot(self._version, books, filtered)

    def find(self, publisher: str, coming: Sequence[Coming], examine: bool) -> float:
        """Match publications with their books, and return the seconds that each took.

        Args:
            publisher: name of their publisher.
            coming: the publications, which get their matches, or errors.
            examine: whether to examine also publications that no book is for.
        """
        by_books: dict[tuple[int, ...], tuple[Sequence[Book], list[Coming]]] = {}
        for one in coming:
            try:
                if one.snapshot.books or examine:
                    self.check_masks([one.publication])
                    self.examiner.check_event(publisher, one.publication)
            except CcbpsError as error:
                one.error = error
                continue
            books = one.snapshot.books
            groups = [books] * bool(books) if self.examiner.is_joint else [[b] for b in books]
            for group in groups:
                by_books.setdefault((*map(id, group),), (group, []))[1].append(one)
        start = time.perf_counter()
        found: Sequence[Sequence[Any]]
        for some, together in by_books.values():
            try:
                found = some[0].find_in(some, [one.publication for one in together])
            except CcbpsError as error:
                found = [[error] * len(together)] * len(some)
            for book, each in zip(some, found, strict=True):
                for one, matches in zip(together, each, strict=True):
                    if isinstance(matches, CcbpsError):
                        one.error = matches
                    one.matches.append((book, matches))
        return (time.perf_counter() - start) / max(1, len(coming))

    def end(self, snapshot: Snapshot) -> None:
        """Note that a publication has been matched. Called with the lock."""
        self._under_way.remove(snapshot.version)
        self._forget_added()

    def later(self, publisher: str, one: Coming) -> list[Added]:
        """Return the subscriptions newer than a publication's snapshot that were not yet tested.

        Called with the lock.
        """
        tested = {id(added) for added, _ in one.later}
        return [
            added
            for added in self._added
            if (added.since is None or added.since > one.snapshot.version)
            and added.labelled[1].concerns(publisher, one.publication)
            and id(added) not in tested
        ]

    def find_later(self, one: Coming, later: Sequence[Added]) -> None:
        """Match a publication with subscriptions that `later` returned."""
        answers = self.examiner.matching([added.labelled for added in later], [one.publication])
        one.later += zip(later, answers[0].tolist(), strict=True)

    def recipients(self, one: Coming) -> list[tuple[str, tuple[str, ...]]]:
        """Return the clients whose subscriptions match a publication, each with their names.

        Called with the lock.
        """
        numbers: list[Index] = [book.members(some) for book, some in one.matches]
        matching = [added for added, matches in one.later if matches]
        # One that was removed meanwhile may have given its number to another.
        there = [added.number for added in matching if any(added is it for it in self._added)]
        if there:
            numbers.append(np.array(there))
        return self.registry.by_owner(np.concatenate(numbers)) if numbers else []

    # -- inside -----------------------------------------------------------------------------------

    def _forget_added(self) -> None:
        """Forget new subscriptions that are in the books of all snapshots in use."""
        first = min(self._under_way, default=self._version)
        self._added = [one for one in self._added if one.since is None or one.since > first]

    def _new_book(self) -> Book:
        if isinstance(self._matching, Leader):
            return SharesBook(self._matching, self._lock, self._metrics)
        if not isinstance(self._matching, Broker):
            return RelayBook(self._lock, self._metrics)
        if self._masks is not None:
            return MaskedBook(self._matching, self.registry, self._lock, self._metrics, self._masks)
        if self.matcher.answers is Answers.ALL:
            return TableBook(self._matching, self.registry, self._lock, self._metrics)
        return RoundBook(self._matching, self._lock, self._metrics)

    @staticmethod
    def _size(subscription: Subscription) -> int:
        """Return about the number of bytes that a subscription takes."""
        topic = TOPIC_BYTES if subscription.token else 0
        masks = len(subscription.mask or b"")
        return subscription.interests.nbytes + len(subscription.name.encode()) + topic + masks

    def _print(self, subscription: Subscription) -> int:
        """Return 64 bits of a subscription. No client can choose two with the same bits."""
        digest = blake2b(subscription.to_bytes(), digest_size=8, key=self._secret).digest()
        return int.from_bytes(digest, signed=True)

    def _enter(self, client: str, subscription: Subscription) -> tuple[int, Book]:
        """Return a number for a subscription, and the book for it."""
        key = subscription.token, subscription.publisher
        size, print_ = self._size(subscription), self._print(subscription)
        number = self.registry.new(client, subscription.name, size, print_)
        self._keys[number] = key
        if key not in self._books:
            self._books[key] = self._new_book()
            if subscription.token is not None:
                self.topics.add(subscription.token)
        return number, self._books[key]

    def _take_out(self, numbers: Sequence[int]) -> None:
        by_key: dict[_Key, list[int]] = {}
        for number in numbers:
            by_key.setdefault(self._keys[number], []).append(number)
        for key, some in by_key.items():
            book = self._books[key]
            book.remove(some)
            with self._lock:
                # Other subscriptions will have their numbers.
                self._added = [added for added in self._added if added.number not in {*some}]
                for number in some:
                    del self._keys[number]
                self.registry.free += some
                if not book.distinct:
                    del self._books[key]
                    if key[0] is not None:
                        self.topics.remove(key[0])
