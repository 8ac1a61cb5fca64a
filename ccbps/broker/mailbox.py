"""What waits for clients, and what they have used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice, takewhile

from ccbps.broker.messages import Delivery, check_name
from ccbps.broker.quotas import Account, Quota
from ccbps.errors import RefusedError

__all__ = ["Mailbox", "Mailboxes"]


class Mailbox:
    """A client's queue of deliveries.

    Attributes:
        account: what it used.
        following: the next delivery's number.
        revoked: whether it is shut out.
        waiting: deliveries, oldest first.
        size: bytes of their payloads.
    """

    __slots__ = ("account", "following", "revoked", "size", "waiting")

    def __init__(self, quota: Quota, clock: Callable[[], float]) -> None:
        self.account = Account(quota, clock)
        self.following, self.revoked = 0, False
        self.waiting: deque[Delivery] = deque()
        self.size = 0

    def put(self, delivery: Delivery) -> None:
        """Put a delivery at the end."""
        self.waiting.append(delivery)
        self.size += delivery.size
        self.following = delivery.sequence + 1

    def after(self, sequence: int, most: int) -> list[Delivery]:
        """The first deliveries behind this number."""
        return list(islice((one for one in self.waiting if one.sequence > sequence), most))

    def through(self, sequence: int) -> list[int]:
        """Numbers of deliveries up to this one."""
        return [one.sequence for one in takewhile(lambda d: d.sequence <= sequence, self.waiting)]

    def drop(self, count: int) -> None:
        """Forget the first deliveries."""
        for _ in range(count):
            self.size -= self.waiting.popleft().size

    def clear(self) -> None:
        """Forget all of them."""
        self.drop(len(self.waiting))


class Mailboxes:
    """Of all clients, by name."""

    def __init__(self, quota: Quota, drops: bool, clock: Callable[[], float]) -> None:
        self._quota, self._drops, self._clock = quota, drops, clock
        self._boxes: dict[str, Mailbox] = {}

    @property
    def waiting(self) -> int:
        """Deliveries, of all."""
        return sum(len(box.waiting) for box in self._boxes.values())

    def of(self, client: str) -> Mailbox:
        """A client's, made when it is first needed."""
        box = self._boxes.get(client)
        if box is None:
            box = self._boxes[client] = Mailbox(self._quota, self._clock)
        return box

    def admitted(self, client: str) -> Mailbox:
        """Of a client that was not revoked.

        Raises:
            RefusedError: it was.
        """
        check_name("client", client)
        box = self.of(client)
        if box.revoked:
            raise RefusedError(f"{client} was revoked", reason="revoked")
        return box

    def is_full(self, client: str) -> bool:
        """Whether a client's queue has no room."""
        box = self.of(client)
        return len(box.waiting) >= self._quota.queue or box.size >= self._quota.queue_bytes

    def full(self, clients: Sequence[str]) -> list[str]:
        """Those that have no room for one delivery more, if their oldest one may be dropped.

        Raises:
            RefusedError: it may not.
        """
        full = [one for one in clients if self.is_full(one)]
        if full and not self._drops:
            raise RefusedError(
                "a queue is full, as its client does not take what waits for it: publish again "
                "later",
                reason="queue",
            )
        return full
