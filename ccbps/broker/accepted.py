"""Accepted publications: their numbers and rounds, and those kept for later subscribers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ccbps.broker.messages import Publication, Receipt, Subscription
from ccbps.broker.prefilter import FilterKind, TokenFilter
from ccbps.errors import ParameterError, RefusedError, ReplayError

CLIENTS: Final = 64
"""Bound on the clients that wait for a publisher's payloads, per publication that may wait."""


@dataclass
class Accepted:
    """A publication that was accepted.

    Attributes:
        digest: digest of its message, 16 bytes.
        clients: clients that match, if the payload is still to be sealed for them. None if the
            publication came with a payload, or all clients have theirs.
        served: clients that already have their payload.
    """

    digest: bytes
    clients: tuple[str, ...] | None
    served: set[str] = field(default_factory=set)


class Numbers:
    """Numbers and rounds of one publisher's publications.

    Attributes:
        accepted: the accepted publications by number, as far as they are remembered.
        oldest: smallest number that is not refused as too old.
        next_round: first round that the publisher may use.
    """

    def __init__(self, publisher: str, remember: int) -> None:
        self._publisher, self._remember = publisher, remember
        self.accepted: dict[int, Accepted] = {}
        # Publications that wait for payloads, and how many clients wait for these.
        self._unsealed = self._waiting = 0
        self.oldest = self.next_round = 0

    def receipt(
        self, publication: Publication, digest: bytes, in_order: bool = True
    ) -> Receipt | None:
        """Return the receipt of a publication that was accepted before, None if it is new.

        Args:
            publication: the publication.
            digest: digest of its message.
            in_order: whether to refuse it if its predecessor (`after`) was not accepted.

        Raises:
            ReplayError: its number or round was used for another publication, or may have been.
            RefusedError: its predecessor was not accepted.
        """
        number, turn = publication.number, publication.round
        accepted = self.accepted.get(number)
        if accepted is not None:
            if accepted.digest != digest:
                raise ReplayError(f"{self._publisher} published something else as number {number}")
            return Receipt(number, True, accepted.clients or ())
        oldest = max(self.oldest, self.cutoff() or 0)
        if number < oldest:
            raise ReplayError(
                f"number {number} of {self._publisher} is refused as a replay: numbers below "
                f"{oldest} are too old to tell"
            )
        if turn is not None and turn < self.next_round:
            raise ReplayError(
                f"round {turn} of {self._publisher} is refused: rounds grow, and the next one is "
                f"{self.next_round}"
            )
        after = publication.after
        if in_order and after is not None and after >= oldest and after not in self.accepted:
            raise RefusedError(
                f"publication {number} of {self._publisher} comes after {after}, which was not "
                "accepted: send it first",
                reason="order",
            )
        return None

    def require_room(self, clients: tuple[str, ...] | None, most: int) -> None:
        """Refuse one more publication while too many wait for payloads.

        Args:
            clients: clients that would wait for its payload; None if it has one.
            most: number of publications that may wait.

        Raises:
            RefusedError: too many would wait, or a publication that still waits would be forgotten.
        """
        below = self.cutoff() if self._waiting else None
        is_lost = below is not None and any(
            number < below and accepted.clients is not None
            for number, accepted in self.accepted.items()
        )
        is_full = clients is not None and (
            self._unsealed >= most
            or (self._waiting and self._waiting + len(clients) > CLIENTS * most)
        )
        if is_lost or is_full:
            raise RefusedError(
                f"{self._unsealed} publications of {self._publisher} wait for payloads: deliver "
                "first",
                reason="queue",
            )

    def waiting(self, number: int) -> Accepted | None:
        """Return a publication that waits for payloads, None if all clients have theirs.

        Raises:
            ParameterError: there is no such publication.
        """
        accepted = self.accepted.get(number)
        if accepted is None:
            raise ParameterError(
                f"{self._publisher} has no publication {number} that is remembered"
            )
        return None if accepted.clients is None else accepted

    def waiting_for(self, client: str) -> list[tuple[int, Accepted]]:
        """Return the publications, with their numbers, for whose payloads a client waits."""
        if not self._unsealed:
            return []
        return [
            (number, accepted)
            for number, accepted in self.accepted.items()
            if client in (accepted.clients or ()) and client not in accepted.served
        ]

    def finish(self, number: int) -> None:
        """Note that no client waits for a publication's payload any more."""
        self._count(self.accepted[number], -1)
        self.accepted[number].clients = None

    def cutoff(self) -> int | None:
        """Return the bound below which numbers are forgotten at the next `add`; None for none."""
        if len(self.accepted) + 1 < 2 * self._remember:
            return None
        return sorted(self.accepted)[-self._remember]

    def add(self, number: int, accepted: Accepted) -> None:
        """Note that a publication was accepted. The largest numbers are remembered."""
        below = self.cutoff()
        self.accepted[number] = accepted
        self._count(accepted, 1)
        if below is not None:
            self.oldest = max(below, self.oldest)
            for old in [old for old in self.accepted if old < below]:
                self._count(self.accepted.pop(old), -1)

    def _count(self, accepted: Accepted, sign: int) -> None:
        if accepted.clients is not None:
            self._unsealed += sign
            self._waiting += sign * len(accepted.clients)


class Publishers(dict[str, Numbers]):
    """Numbers of all publishers by name. A new publisher has none."""

    def __init__(self, remember: int) -> None:
        self._remember = remember

    def __missing__(self, publisher: str) -> Numbers:
        numbers = self[publisher] = Numbers(publisher, self._remember)
        return numbers

    def next_round(self, publisher: str) -> int:
        """Return the first round that a publisher may use."""
        numbers = self.get(publisher)
        return 0 if numbers is None else numbers.next_round


class Kept:
    """The last publications, for subscribers that come later.

    Attributes:
        most: number of publications that are kept.
    """

    def __init__(self, most: int, prefilter: FilterKind | None) -> None:
        self.most, self._topics = most, TokenFilter(prefilter)
        self._kept: list[tuple[str, Publication]] = []
        self._without_token = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, publisher: str, publication: Publication) -> None:
        """Keep one more publication, and forget the oldest one if there are too many."""
        self._kept.append((publisher, publication))
        if publication.token is None:
            self._without_token += 1
        else:
            self._topics.add(publication.token)
        for _, oldest in self._kept[: -self.most]:
            self._remove_topic(oldest)
        del self._kept[: -self.most]

    def forget(self, publisher: str) -> None:
        """Forget the kept publications of a publisher."""
        for name, publication in self._kept:
            if name == publisher:
                self._remove_topic(publication)
        self._kept = [pair for pair in self._kept if pair[0] != publisher]

    def forget_all(self) -> None:
        """Forget all kept publications."""
        for publisher in {name for name, _ in self._kept}:
            self.forget(publisher)

    def _remove_topic(self, publication: Publication) -> None:
        if publication.token is None:
            self._without_token -= 1
        else:
            self._topics.remove(publication.token)

    def stops(self, subscription: Subscription) -> bool:
        """Tell whether the filter excludes all kept publications: [N1], Algorithm 1."""
        token = subscription.token
        return not self._without_token and token is not None and token not in self._topics

    def for_subscription(self, subscription: Subscription) -> list[tuple[str, Publication]]:
        """Return the publications, with publishers, of a subscription's topic and publisher."""
        return [pair for pair in self._kept if subscription.concerns(*pair)]
