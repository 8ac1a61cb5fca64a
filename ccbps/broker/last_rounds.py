"""Warnings to clients whose subscriptions run out of rounds.

A subscription of a matcher with rounds has messages for some rounds of its publisher, and matches
nothing after them. Its client is warned when a tenth of them is left, and when none is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

from ccbps.broker.messages import Subscription

PART: Final = 10
"""Divisor of the rounds: a client is warned when a tenth of them is left."""

LEAST: Final = 1024
"""Ends that are kept, beyond four for each subscription, before stale ones are dropped."""


def few(rounds: range) -> int:
    """Return the number of rounds left at which a client is warned."""
    return max(1, len(rounds) // PART)


class LastRounds:
    """Rounds of all subscriptions, and the clients to warn. Used with the broker's lock."""

    def __init__(self) -> None:
        self._own: defaultdict[str, dict[str, tuple[str, range]]] = defaultdict(dict)
        # For each publisher the rounds at which clients are to be warned, with the subscriptions.
        # Entries of removed subscriptions stay for a while.
        self._ends: defaultdict[str, list[tuple[int, str, str]]] = defaultdict(list)
        self._count = 0

    def add(self, client: str, subscription: Subscription) -> None:
        """Note a new subscription, in place of the client's one with that name."""
        self.remove(client, [subscription.name])
        publisher, first = subscription.publisher, subscription.first_round
        if publisher is None or first is None:
            return
        rounds = range(first, first + len(subscription.interests))
        self._own[client][subscription.name] = publisher, rounds
        for end in _ends(rounds):
            heappush(self._ends[publisher], (end, client, subscription.name))
        self._count += 2
        if self._count > 4 * sum(map(len, self._own.values())) + LEAST:
            self._clear()

    def remove(self, client: str, names: Iterable[str]) -> None:
        """Forget subscriptions of a client."""
        own = self._own.get(client, {})
        for name in names:
            own.pop(name, None)
        if not own:
            self._own.pop(client, None)

    def due(self, publisher: str, following: int) -> set[str]:
        """Return the clients to warn, each once, now that a publisher's next round is known."""
        waiting, clients = self._ends.get(publisher), set()
        while waiting and waiting[0][0] <= following:
            entry = heappop(waiting)
            self._count -= 1
            if self._is_current(publisher, entry):
                clients.add(entry[1])
        return clients

    def of(self, client: str) -> dict[str, tuple[str, range]]:
        """Return the publisher and the rounds of each of a client's subscriptions, by name."""
        return self._own.get(client, {})

    def _is_current(self, publisher: str, entry: tuple[int, str, str]) -> bool:
        end, client, name = entry
        own = self.of(client).get(name)
        return own is not None and own[0] == publisher and end in _ends(own[1])

    def _clear(self) -> None:
        """Drop the ends of removed subscriptions."""
        for publisher, entries in [*self._ends.items()]:
            entries[:] = [one for one in entries if self._is_current(publisher, one)]
            heapify(entries)
            if not entries:
                del self._ends[publisher]
        self._count = sum(map(len, self._ends.values()))


def _ends(rounds: range) -> tuple[int, int]:
    """Return the publisher's next rounds at which a client is warned."""
    return rounds.stop - few(rounds), rounds.stop


def notice(name: str, publisher: str, rounds: range, following: int) -> str | None:
    """Return the warning for the client of a subscription, None if it has rounds enough.

    Args:
        name: name of the subscription.
        publisher: its publisher.
        rounds: its rounds.
        following: next round of the publisher.
    """
    left = rounds.stop - max(following, rounds.start)
    if left > few(rounds):
        return None
    last = rounds.stop - 1
    state = (
        f"rounds of {publisher} up to {last} only" if left > 0 else f"no more rounds of {publisher}"
    )
    return (
        f"subscription {name} has messages for {state}: the next round is {following}; subscribe "
        f"again with rounds from {max(rounds.stop, following)} on"
    )
