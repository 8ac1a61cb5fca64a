"""What waits for clients, and what they have used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice, takewhile

from ccbps.broker.messages import Delivery
from ccbps.broker.names import check_name
from ccbps.broker.quotas import Account, Quota
from ccbps.errors import RefusedError


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

    def fits(self, client: str, count: int, size: int) -> bool:
        """Whether so many more deliveries, of this size together, have room."""
        box, quota = self.of(client), self._quota
        all_of_them, bytes_of_them = len(box.waiting) + count, box.size + size
        within = bytes_of_them <= quota.queue_bytes or all_of_them == 1
        return all_of_them <= quota.queue and within

    def excess(self, client: str, size: int) -> int:
        """How many of a client's deliveries must go before one more of this size has room."""
        box, quota = self.of(client), self._quota
        count = max(0, len(box.waiting) + 1 - quota.queue)
        left = box.size + size - sum(one.size for one in islice(box.waiting, count))
        for one in islice(box.waiting, count, None):
            if left <= quota.queue_bytes:
                break
            count, left = count + 1, left - one.size
        return count

    def dropped(self, wanted: Sequence[tuple[str, Delivery]]) -> list[tuple[str, int]]:
        """Clients without room for these deliveries, and how many of their oldest ones are to go.

        Raises:
            RefusedError: none may go.
        """
        counts = [(client, self.excess(client, delivery.size)) for client, delivery in wanted]
        full = [(client, count) for client, count in counts if count]
        if full and not self._drops:
            raise RefusedError(
                "a queue is full, as its client does not take what waits for it: publish again "
                "later",
                reason="queue",
            )
        return full
