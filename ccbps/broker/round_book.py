"""Interests that are provisioned ahead for rounds: an event meets those of its round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import RLock
from typing import NamedTuple

import numpy as np

from ccbps.arrays import Bools, Bytes, Index
from ccbps.broker.book import Book
from ccbps.broker.messages import Publication, Subscription
from ccbps.broker.registry import Registry
from ccbps.errors import DecodeError
from ccbps.matching.contract.access import message_bytes
from ccbps.matching.contract.broker import Broker
from ccbps.matching.contract.scheme import Answers
from ccbps.wire import Cause


class _Stack(NamedTuple):
    """A subscription's interests for consecutive rounds.

    Attributes:
        label: "client/name".
        first: round.
        interests: shape (rounds, interest_bytes).
    """

    label: str
    first: int
    interests: Bytes

    def of(self, turn: int) -> Bytes | None:
        """The interest for a round."""
        row = turn - self.first
        return self.interests[row] if 0 <= row < len(self.interests) else None


Chosen = list[tuple[int, _Stack]]
"""Subscriptions that match, by number."""


class RoundBook(Book):
    """Interests for rounds, of one publisher."""

    def __init__(self, broker: Broker, registry: Registry, lock: RLock) -> None:
        super().__init__(registry, lock)
        self._broker = broker
        self._stacks: dict[int, _Stack] = {}

    @property
    def distinct(self) -> int:
        """All of them: each has randomness of its own."""
        return len(self._stacks)

    def check(self, subscription: Subscription) -> None:
        """See `Book.check`. That messages belong to a round shows when they meet an event."""
        if subscription.first_round is None or not len(subscription.interests):
            raise DecodeError("the matcher has rounds: a subscription needs first_round and rows")
        if subscription.interests.shape[1] != message_bytes(self._broker.matcher, "interest"):
            raise DecodeError(Cause.INTEREST_WIDTH.text)

    def check_event(self, publication: Publication) -> None:
        """See `Book.check_event`."""
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

    def add(self, number: int, label: str, subscription: Subscription) -> None:
        """See `Book.add`."""
        assert subscription.first_round is not None
        with self._lock:
            stack = _Stack(label, subscription.first_round, subscription.interests)
            self._stacks[number] = stack

    def remove(self, numbers: Sequence[int]) -> None:
        """See `Book.remove`."""
        with self._lock:
            for number in numbers:
                del self._stacks[number]

    def find(self, publication: Publication) -> Chosen:
        """See `Book.find`."""
        with self._lock:
            stacks = [*self._stacks.items()]
        chosen, answers = self._matched(stacks, publication)
        return [chosen[row] for row in np.flatnonzero(answers)]

    def members(self, found: Chosen) -> Index:
        """See `Book.members`."""
        numbers = [number for number, stack in found if self._stacks.get(number) is stack]
        return np.array(numbers, dtype=np.int64)

    def matching(
        self, some: Sequence[tuple[str, Subscription]], publications: Sequence[Publication]
    ) -> Bools:
        """See `Book.matching`."""
        stacks = [
            (place, _Stack(label, one.first_round or 0, one.interests))
            for place, (label, one) in enumerate(some)
        ]
        out = np.zeros((len(publications), len(some)), dtype=np.bool_)
        for row, publication in enumerate(publications):
            chosen, answers = self._matched(stacks, publication)
            out[row, [place for place, _ in chosen]] = answers
        return out

    def _matched(
        self, stacks: Sequence[tuple[int, _Stack]], publication: Publication
    ) -> tuple[Chosen, Bools]:
        """Subscriptions that have an interest and an event in a publication's round, and the
        answers."""
        assert publication.round is not None
        own: Mapping[str, bytes] = publication.events
        chosen, interests, events = [], [], []
        for number, stack in stacks:
            interest = stack.of(publication.round)
            if interest is None or (publication.event is None and stack.label not in own):
                continue
            chosen.append((number, stack))
            interests.append(interest)
            if publication.event is None:
                events.append(own[stack.label])
        if not chosen:
            return [], np.zeros(0, dtype=np.bool_)
        if publication.event is not None:
            events = [publication.event]
        rows = np.frombuffer(b"".join(events), dtype=np.uint8).reshape(len(events), -1)
        answers, causes = self._broker.examine(rows, np.stack(interests))
        self.tests += len(chosen)
        self.refused += int(np.count_nonzero(causes))
        return chosen, answers
