"""Which publications were accepted: numbers, digests, rounds, and what is kept of them."""

from __future__ import annotations

from typing import NamedTuple

from ccbps.broker.messages import Publication, Receipt, Subscription
from ccbps.broker.prefilter import FilterKind, TokenFilter
from ccbps.errors import ReplayError

__all__ = ["Accepted", "Kept", "Numbers"]


class Accepted(NamedTuple):
    """A publication that was accepted.

    Attributes:
        digest: of its message, 16 bytes.
        clients: who waits for its payload; None if nobody does.
    """

    digest: bytes
    clients: tuple[str, ...] | None


class Numbers:
    """Numbers and rounds of all publishers' publications.

    Attributes:
        oldest: by publisher, the smallest number that is not too old to tell.
        next_round: by publisher, the first round that was not used.
    """

    def __init__(self, remember: int) -> None:
        self._remember = remember
        self._accepted: dict[str, dict[int, Accepted]] = {}
        self.oldest: dict[str, int] = {}
        self.next_round: dict[str, int] = {}

    def receipt(self, publisher: str, publication: Publication, digest: bytes) -> Receipt | None:
        """The receipt of a publication that was accepted before; None for a new one.

        Raises:
            ReplayError: its number or round was used for another one, or may have been.
        """
        number, turn = publication.number, publication.round
        accepted = self._accepted.get(publisher, {}).get(number)
        if accepted is not None:
            if accepted.digest != digest:
                raise ReplayError(f"{publisher} published something else as number {number}")
            return Receipt(number, True, accepted.clients or ())
        if number < self.oldest.get(publisher, 0):
            raise ReplayError(
                f"number {number} of {publisher} is refused as a replay: numbers below "
                f"{self.oldest[publisher]} are too old to tell"
            )
        if turn is not None and turn < self.next_round.get(publisher, 0):
            raise ReplayError(
                f"round {turn} of {publisher} is refused: rounds grow, and the next one is "
                f"{self.next_round[publisher]}"
            )
        return None

    def waiting(self, publisher: str, number: int) -> tuple[str, ...] | None:
        """Who waits for the payload of a publication; None if nobody does."""
        accepted = self._accepted.get(publisher, {}).get(number)
        return None if accepted is None else accepted.clients

    def delivered(self, publisher: str, number: int) -> None:
        """That nobody waits for it any more."""
        numbers = self._accepted[publisher]
        numbers[number] = numbers[number]._replace(clients=None)

    def add(self, publisher: str, number: int, accepted: Accepted) -> None:
        """That a publication was accepted. The largest numbers are remembered."""
        numbers = self._accepted.setdefault(publisher, {})
        numbers[number] = accepted
        if len(numbers) >= 2 * self._remember:
            for old in sorted(numbers)[: -self._remember]:
                del numbers[old]
                self.oldest[publisher] = old + 1

    def spend(self, publisher: str, turn: int) -> None:
        """That a round was used."""
        self.next_round[publisher] = turn + 1


class Kept:
    """The last publications, for subscribers that come later."""

    def __init__(self, most: int, prefilter: FilterKind | None) -> None:
        self.most, self._topics = most, TokenFilter(prefilter)
        self._kept: list[tuple[str, Publication]] = []

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, publisher: str, publication: Publication) -> None:
        """Keep one more, and forget the oldest one if there are too many."""
        self._kept.append((publisher, publication))
        if publication.token is not None:
            self._topics.add(publication.token)
        for _, old in self._kept[: -self.most]:
            if old.token is not None:
                self._topics.remove(old.token)
        del self._kept[: -self.most]

    def for_subscription(self, one: Subscription) -> list[tuple[str, Publication]]:
        """Those that a new subscription is to be matched with: [N1], Algorithm 1. One without a
        token is for all topics, as a publication without one is."""
        token = one.token
        if token is not None and token not in self._topics:
            return [pair for pair in self._without_token() if one.publisher in (None, pair[0])]
        return [
            (publisher, publication)
            for publisher, publication in self._kept
            if token is None or publication.token in (None, token)
            if one.publisher in (None, publisher)
        ]

    def _without_token(self) -> list[tuple[str, Publication]]:
        return [pair for pair in self._kept if pair[1].token is None]
