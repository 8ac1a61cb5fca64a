"""Subscriptions whose rounds come to their end: their clients are told in time.

A subscription of a matcher with rounds has messages for some rounds of its publisher, and matches
nothing after them. Its client is told when a tenth of them is left, and when none is.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from typing import Final

from ccbps.broker.messages import Subscription

PART: Final = 10
"""A client is told when this part of its rounds is left, one tenth."""


def few(rounds: range) -> int:
    """Return the number of rounds at whose rest a client is told."""
    return max(1, len(rounds) // PART)


class LastRounds:
    """Clients to be told, by publisher and round. Used with the broker's lock."""

    def __init__(self) -> None:
        self._clients: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)

    def add(self, client: str, subscription: Subscription) -> None:
        """Note the ends of a new subscription."""
        publisher, first = subscription.publisher, subscription.first_round
        if publisher is None or first is None:
            return
        rounds = range(first, first + len(subscription.interests))
        for end in (rounds.stop - few(rounds), rounds.stop):
            heappush(self._clients[publisher], (end, client))

    def due(self, publisher: str, following: int) -> set[str]:
        """Return the clients to be told, each once, now that a publisher's next round is known."""
        waiting, clients = self._clients.get(publisher), set()
        while waiting and waiting[0][0] <= following:
            clients.add(heappop(waiting)[1])
        return clients


def notice(name: str, publisher: str, rounds: range, following: int) -> str | None:
    """Return what to tell the client of a subscription, None if it has rounds enough.

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
