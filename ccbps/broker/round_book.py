"""Interests that are provisioned ahead for rounds: an event meets those of its round."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock

import numpy as np

from ccbps.arrays import Bytes, Index
from ccbps.broker.book import Book
from ccbps.broker.messages import Publication, Subscription
from ccbps.broker.registry import Registry
from ccbps.errors import DecodeError
from ccbps.matching.access import message_bytes
from ccbps.matching.broker import Broker
from ccbps.matching.contract import is_broadcast
from ccbps.wire import Cause

__all__ = ["RoundBook"]


class RoundBook(Book):
    """Interests for rounds, of one publisher."""

    reuse = False

    def __init__(self, broker: Broker, registry: Registry, lock: RLock) -> None:
        super().__init__(registry, lock)
        self._broker = broker
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
        if subscription.interests.shape[1] != message_bytes(self._broker.matcher, "interest"):
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
        width = message_bytes(self._broker.matcher, "interest")
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
        width, own = message_bytes(self._broker.matcher, "event"), publication.events
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
