"""What all kinds of books of subscriptions do.

A matcher's kind says only who finds out what, so there are three: `TableBook` where the broker
matches every event with every interest, `RoundBook` where publisher and subscriber share a seed,
and `RelayBook` where subscribers decide by themselves, so that all get everything.

To match has two steps: `find` takes long and needs no lock; `members`, which says whose interests
they are, is quick and must not meet changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from threading import RLock
from typing import Any

import numpy as np

from ccbps.arrays import Bools, Bytes, Index
from ccbps.broker.messages import Publication, Subscription
from ccbps.broker.registry import Registry
from ccbps.errors import DecodeError


class Book(ABC):
    """Some subscriptions, by number.

    Attributes:
        tests: pairs that were tested.
        saved: pairs that were not, since an equal one was, or a covering one did not match.
        refused: pairs that could not be tested, as their messages do not belong together.
    """

    def __init__(self, registry: Registry, lock: RLock) -> None:
        """
        Args:
            registry: of all books.
            lock: held when `members` is called.
        """
        self._registry, self._lock = registry, lock
        self.tests = self.saved = self.refused = 0

    @property
    @abstractmethod
    def distinct(self) -> int:
        """Interests that differ."""

    @abstractmethod
    def check(self, subscription: Subscription) -> None:
        """Raises DecodeError if its messages are not the matcher's."""

    @abstractmethod
    def check_event(self, publication: Publication) -> None:
        """Raises DecodeError if its events are not the matcher's."""

    @abstractmethod
    def add(self, number: int, label: str, subscription: Subscription) -> None:
        """Add a subscription that was checked."""

    @abstractmethod
    def remove(self, numbers: Sequence[int]) -> None:
        """Take subscriptions out."""

    @abstractmethod
    def find(self, publication: Publication) -> Any:
        """What matches a publication that was checked, for `members`."""

    @abstractmethod
    def members(self, found: Any) -> Index:
        """Numbers of subscriptions."""

    @abstractmethod
    def matching(
        self, some: Sequence[tuple[str, Subscription]], publications: Sequence[Publication]
    ) -> Bools:
        """Which publications match which subscriptions, with their labels. All of them were
        checked, and need not be in the book. Shape (publications, subscriptions)."""


class RelayBook(Book):
    """Subscribers that decide by themselves."""

    def __init__(self, registry: Registry, lock: RLock) -> None:
        super().__init__(registry, lock)
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

    def check_event(self, publication: Publication) -> None:
        """See `Book.check_event`. Only subscribers can tell more."""
        if publication.event is None:
            raise DecodeError("the publication has no event for all subscriptions")
        if publication.payload is None:
            raise DecodeError("nobody but subscribers can tell who matches: send the payload along")

    def remove(self, numbers: Sequence[int]) -> None:
        """See `Book.remove`."""
        with self._lock:
            for number in numbers:
                del self._numbers[number]

    def find(self, publication: Publication) -> None:
        """See `Book.find`."""

    def members(self, found: None) -> Index:
        """See `Book.members`."""
        return np.fromiter(self._numbers, dtype=np.int64, count=len(self._numbers))

    def matching(
        self, some: Sequence[tuple[str, Subscription]], publications: Sequence[Publication]
    ) -> Bools:
        """See `Book.matching`: all."""
        return np.ones((len(publications), len(some)), dtype=np.bool_)


def one_message(message: bytes) -> Bytes:
    """A message as a batch of one."""
    return np.frombuffer(message, dtype=np.uint8)[None]
