"""Queues of deliveries, in memory and on disk alike, and their clients' use of quotas."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, takewhile

from msgspec.structs import replace

from ccbps.broker.messages import Delivery, Publication, check_name
from ccbps.broker.metrics import Metrics
from ccbps.broker.quotas import Account, Quota
from ccbps.broker.store import Store
from ccbps.errors import RefusedError

Matched = Sequence[tuple[str, tuple[str, ...]]]
"""Clients, each with the names of its subscriptions that matched."""


class Mailbox:
    """A client's queue of deliveries.

    Attributes:
        account: use that the client made of its quota.
        following: sequence number of the next delivery.
        revoked: whether the client is shut out.
        waiting: deliveries, oldest first.
        size: bytes of the deliveries.
    """

    __slots__ = ("_quota", "account", "following", "revoked", "size", "waiting")

    def __init__(self, quota: Quota, clock: Callable[[], float]) -> None:
        self._quota, self.account = quota, Account(quota, clock)
        self.following = self.size = 0
        self.revoked = False
        self.waiting: deque[Delivery] = deque()

    def put(self, delivery: Delivery) -> None:
        """Append a delivery."""
        self.waiting.append(delivery)
        self.size += delivery.size
        self.following = delivery.sequence + 1

    def after(self, sequence: int, most: int) -> list[Delivery]:
        """Return the first deliveries with a larger sequence number."""
        return list(islice((one for one in self.waiting if one.sequence > sequence), most))

    def drop(self, count: int) -> None:
        """Remove the oldest deliveries."""
        for _ in range(count):
            self.size -= self.waiting.popleft().size

    def fits(self, count: int, size: int) -> bool:
        """Tell whether `count` more deliveries, of `size` bytes together, have room."""
        count += len(self.waiting)
        return count <= self._quota.queue and (
            count == 1 or self.size + size <= self._quota.queue_bytes
        )

    def excess(self, size: int) -> int:
        """Count the oldest deliveries that must go to make room for one more of `size` bytes."""
        count = max(0, len(self.waiting) + 1 - self._quota.queue)
        left = self.size + size - sum(one.size for one in islice(self.waiting, count))
        for one in islice(self.waiting, count, None):
            if left <= self._quota.queue_bytes:
                break
            count, left = count + 1, left - one.size
        return count


class Mailboxes(dict[str, Mailbox]):
    """Queues of all clients by name, used with the broker's lock.

    A client that has no queue gets an empty one.
    """

    def __init__(
        self,
        quota: Quota,
        drops: bool,
        clock: Callable[[], float],
        store: Store,
        metrics: Metrics,
        relays: bool,
    ) -> None:
        """Make queues for clients that come.

        Args:
            quota: limits of each client.
            drops: True if a full queue loses its oldest deliveries; otherwise it refuses new ones.
            clock: source of seconds for quotas.
            store: the broker's file.
            metrics: counters of deliveries.
            relays: whether subscribers decide, and so need the event's message.
        """
        self._quota, self._drops, self._clock = quota, drops, clock
        self._store, self._metrics, self._relays = store, metrics, relays

    def __missing__(self, client: str) -> Mailbox:
        box = self[client] = Mailbox(self._quota, self._clock)
        return box

    def admitted(self, client: str) -> Mailbox:
        """Return the queue of a client.

        Raises:
            ParameterError: it is no name of a client.
            RefusedError: the client was revoked.
        """
        self.turn_away(client)
        return self[client]

    def turn_away(self, client: str) -> None:
        """Refuse a client that was revoked. This needs no lock.

        Raises:
            ParameterError: it is no name of a client.
            RefusedError: the client was revoked.
        """
        check_name("client", client)
        box = self.get(client)
        if box is not None and box.revoked:
            raise RefusedError(f"{client} was revoked", reason="revoked")

    def addressed(
        self, matched: Matched, publisher: str, publication: Publication
    ) -> list[tuple[str, Delivery]]:
        """Return a delivery of a publication for each client that matched."""
        event = publication.event if self._relays else None
        payload, wraps, number = publication.payload or b"", publication.wraps, publication.number
        deliveries = []
        for client, names in matched:
            wrap = None
            if wraps:
                # A name that has a wrap comes first.
                names = tuple(sorted(names, key=lambda name: f"{client}/{name}" not in wraps))
                wrap = wraps.get(f"{client}/{names[0]}")
            sequence = self[client].following
            delivery = Delivery(sequence, publisher, number, names, payload, event, wrap)
            deliveries.append((client, delivery))
        return deliveries

    @contextmanager
    def put(self, deliveries: Sequence[tuple[str, Delivery]]) -> Iterator[None]:
        """Put deliveries into queues, in one transaction with the writes of the block.

        Raises:
            RefusedError: a queue is full, and its deliveries may not be dropped.
            LedgerError: nothing was written, and nothing is in a queue.
        """
        counts = [(client, self[client].excess(delivery.size)) for client, delivery in deliveries]
        full = [(client, count) for client, count in counts if count]
        if full and not self._drops:
            raise RefusedError(
                "a queue is full, as its client does not take what waits for it: publish again "
                "later",
                reason="queue",
            )
        with self._store.transaction():
            for client, count in full:
                oldest = islice(self[client].waiting, count)
                self._store.drop(client, [one.sequence for one in oldest])
            yield
            self._store.deliver(deliveries)
        for client, count in full:
            self[client].drop(count)
        for client, delivery in deliveries:
            self[client].put(delivery)
        self._metrics.add("dropped", sum(count for _, count in full))
        self._metrics.add("deliveries", len(deliveries))

    def put_kept(self, client: str, name: str, kept: Sequence[tuple[str, Publication]]) -> bool:
        """Deliver kept publications to a new subscription, and tell whether there are any.

        Publications that wait for the client already, or do not fit into its queue, are left out.
        """
        box = self[client]
        present = {(delivery.publisher, delivery.number) for delivery in box.waiting}
        deliveries: list[tuple[str, Delivery]] = []
        size = 0
        for publisher, publication in kept:
            if (publisher, publication.number) in present:
                continue
            ((_, delivery),) = self.addressed([(client, (name,))], publisher, publication)
            if box.fits(len(deliveries) + 1, size + delivery.size):
                sequence = delivery.sequence + len(deliveries)
                deliveries.append((client, replace(delivery, sequence=sequence)))
                size += delivery.size
        with self.put(deliveries):
            self._store.settle(client, name)
        return bool(deliveries)

    def acknowledge(self, client: str, sequence: int) -> None:
        """Remove a client's deliveries up to a sequence number."""
        box = self.admitted(client)
        gone = [*takewhile(lambda one: one.sequence <= sequence, box.waiting)]
        if gone:
            with self._store.transaction():
                self._store.drop(client, [one.sequence for one in gone])
            box.drop(len(gone))
            self._metrics.add("acknowledged", len(gone))
