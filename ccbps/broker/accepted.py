"""Which publications were accepted: numbers, digests, rounds, and what is kept of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ccbps.broker.messages import Publication, Receipt, Subscription
from ccbps.broker.prefilter import FilterKind, TokenFilter
from ccbps.errors import ParameterError, RefusedError, ReplayError

CLIENTS: Final = 64
"""That wait for payloads of a publisher, for each publication that may."""


@dataclass
class Accepted:
    """A publication that was accepted.

    Attributes:
        digest: of its message, 16 bytes.
        clients: who matches, where its payload is to be sealed for them; None where it came with
            one, or everybody has it.
        served: those who have it.
    """

    digest: bytes
    clients: tuple[str, ...] | None
    served: set[str] = field(default_factory=set)


class Numbers:
    """Numbers and rounds of all publishers' publications.

    Attributes:
        oldest: by publisher, the smallest number that is not too old to tell.
        next_round: by publisher, the first round that was not used.
    """

    def __init__(self, remember: int) -> None:
        self._remember = remember
        self._accepted: dict[str, dict[int, Accepted]] = {}
        # Publications that wait for payloads, and for how many clients.
        self._publications: dict[str, int] = {}
        self._unsealed: dict[str, int] = {}
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
        oldest = max(self.oldest.get(publisher, 0), self.cutoff(publisher) or 0)
        if number < oldest:
            raise ReplayError(
                f"number {number} of {publisher} is refused as a replay: numbers below {oldest} "
                "are too old to tell"
            )
        if turn is not None and turn < self.next_round.get(publisher, 0):
            raise ReplayError(
                f"round {turn} of {publisher} is refused: rounds grow, and the next one is "
                f"{self.next_round[publisher]}"
            )
        return None

    def require_room(self, publisher: str, clients: tuple[str, ...] | None, most: int) -> None:
        """Raises RefusedError if one more publication, whose payload these clients are to wait for,
        would make too many wait, or others be forgotten that still do."""
        waiting = self._unsealed.get(publisher, 0)
        below = self.cutoff(publisher) if waiting else None
        lost = below is not None and any(
            number < below and accepted.clients is not None
            for number, accepted in self._accepted[publisher].items()
        )
        if lost or (clients is not None and waiting and waiting + len(clients) > CLIENTS * most):
            raise RefusedError(
                f"publications of {publisher} wait for payloads: deliver first", reason="queue"
            )
        if clients is not None and self._publications.get(publisher, 0) >= most:
            raise RefusedError(
                f"{most} publications of {publisher} wait for payloads: deliver first",
                reason="queue",
            )

    def waiting(self, publisher: str, number: int) -> Accepted | None:
        """A publication that waits for payloads; None if everybody has them.

        Raises:
            ParameterError: there is no such publication.
        """
        accepted = self._accepted.get(publisher, {}).get(number)
        if accepted is None:
            raise ParameterError(f"{publisher} has no publication {number} that is remembered")
        return None if accepted.clients is None else accepted

    def waiting_for(self, client: str) -> list[tuple[str, int, Accepted]]:
        """Publishers and numbers of publications whose payloads a client waits for."""
        return [
            (publisher, number, accepted)
            for publisher, unsealed in self._publications.items()
            if unsealed
            for number, accepted in self._accepted[publisher].items()
            if client in (accepted.clients or ()) and client not in accepted.served
        ]

    def finish(self, publisher: str, number: int) -> None:
        """That nobody waits for a publication's payload any more."""
        accepted = self._accepted[publisher][number]
        self._count(publisher, accepted.clients, -1)
        accepted.clients = None

    def cutoff(self, publisher: str) -> int | None:
        """If there are too many numbers once one is added: below which one they are forgotten."""
        numbers = self._accepted.get(publisher, {})
        if len(numbers) + 1 < 2 * self._remember:
            return None
        return sorted(numbers)[-self._remember]

    def add(self, publisher: str, number: int, accepted: Accepted) -> None:
        """That a publication was accepted. The largest numbers are remembered."""
        below = self.cutoff(publisher)
        numbers = self._accepted.setdefault(publisher, {})
        numbers[number] = accepted
        self._count(publisher, accepted.clients, 1)
        if below is not None:
            self.oldest[publisher] = max(below, self.oldest.get(publisher, 0))
            for old in [old for old in numbers if old < below]:
                self._count(publisher, numbers.pop(old).clients, -1)

    def _count(self, publisher: str, clients: tuple[str, ...] | None, sign: int) -> None:
        if clients is not None:
            self._publications[publisher] = self._publications.get(publisher, 0) + sign
            self._unsealed[publisher] = self._unsealed.get(publisher, 0) + sign * len(clients)

    def spend(self, publisher: str, turn: int) -> None:
        """That a round was used."""
        self.next_round[publisher] = turn + 1


class Kept:
    """The last publications, for subscribers that come later."""

    def __init__(self, most: int, prefilter: FilterKind | None) -> None:
        self.most, self._topics = most, TokenFilter(prefilter)
        self._kept: list[tuple[str, Publication]] = []
        self._to_all = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, publisher: str, publication: Publication) -> None:
        """Keep one more, and forget the oldest one if there are too many."""
        self._kept.append((publisher, publication))
        if publication.token is None:
            self._to_all += 1
        else:
            self._topics.add(publication.token)
        for _, old in self._kept[: -self.most]:
            self._leaves(old)
        del self._kept[: -self.most]

    def forget(self, publisher: str) -> None:
        """Keep nothing of a publisher."""
        kept, self._kept = self._kept, []
        for whose, publication in kept:
            if whose != publisher:
                self._kept.append((whose, publication))
            else:
                self._leaves(publication)

    def _leaves(self, publication: Publication) -> None:
        if publication.token is None:
            self._to_all -= 1
        else:
            self._topics.remove(publication.token)

    def stops(self, one: Subscription) -> bool:
        """Whether the filter tells that nothing is kept for a subscription: [N1], Algorithm 1."""
        return not self._to_all and one.token is not None and one.token not in self._topics

    def for_subscription(self, one: Subscription) -> list[tuple[str, Publication]]:
        """Those that a new subscription is to be matched with. One without a token is for all
        topics, as a publication without one is."""
        return chosen_for(one, self._kept)


def chosen_for(
    one: Subscription, kept: Sequence[tuple[str, Publication]]
) -> list[tuple[str, Publication]]:
    """Of publications, those of a subscription's topic and publisher."""
    return [
        (publisher, publication)
        for publisher, publication in kept
        if None in (one.token, publication.token) or publication.token == one.token
        if one.publisher in (None, publisher)
    ]
