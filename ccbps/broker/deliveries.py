"""Deliveries on their way into queues and out of them, in memory and on disk alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

from msgspec.structs import replace

from ccbps.broker.mailbox import Mailboxes
from ccbps.broker.messages import Delivery, Publication
from ccbps.broker.metrics import Metrics
from ccbps.broker.store import Store

Addressed = Sequence[tuple[str, Delivery]]
"""Deliveries with their clients."""


class Deliveries:
    """Makes deliveries, and puts them into queues. All of it with the broker's lock.

    Attributes:
        boxes: of clients.
    """

    def __init__(self, boxes: Mailboxes, store: Store, metrics: Metrics, relayed: bool) -> None:
        """
        Args:
            relayed: whether subscribers decide, so that they need the event's message.
        """
        self.boxes, self._store, self._metrics, self._relayed = boxes, store, metrics, relayed

    def of(
        self,
        matched: Sequence[tuple[str, tuple[str, ...]]],
        publisher: str,
        publication: Publication,
    ) -> list[tuple[str, Delivery]]:
        """A delivery for each client, of those whose subscriptions of these names matched."""
        event = publication.event if self._relayed else None
        payload, wraps, number = publication.payload or b"", publication.wraps, publication.number
        made = []
        for client, names in matched:
            wrap = None
            if wraps:
                # The name whose wrap it is comes first.
                names = tuple(sorted(names, key=lambda name: f"{client}/{name}" not in wraps))
                wrap = wraps.get(f"{client}/{names[0]}")
            at = self.boxes.of(client).following
            made.append((client, Delivery(at, publisher, number, names, payload, event, wrap)))
        return made

    def sealed(
        self, publisher: str, number: int, messages: Mapping[str, bytes]
    ) -> list[tuple[str, Delivery]]:
        """Deliveries that a publisher sealed."""
        return [
            (client, Delivery(self.boxes.of(client).following, publisher, number, (), message))
            for client, message in messages.items()
        ]

    @contextmanager
    def put(self, wanted: Addressed) -> Iterator[None]:
        """Put deliveries into queues, in a transaction with what is written inside.

        Raises:
            RefusedError: a queue is full.
            LedgerError: nothing was written, and nothing is in a queue.
        """
        dropped = self.boxes.dropped(wanted)
        with self._store.transaction():
            for client, count in dropped:
                oldest = islice(self.boxes.of(client).waiting, count)
                self._store.drop(client, [one.sequence for one in oldest])
            yield
            self._store.deliver(wanted)
        for client, count in dropped:
            self.boxes.of(client).drop(count)
        for client, delivery in wanted:
            self.boxes.of(client).put(delivery)
        self._metrics.add("dropped", sum(count for _, count in dropped))
        self._metrics.add("deliveries", len(wanted))

    def put_kept(self, client: str, name: str, kept: Sequence[tuple[str, Publication]]) -> bool:
        """Deliver publications that were kept, but for those that wait for the client already;
        returns whether there are some. What does not fit into its queue is left out."""
        box = self.boxes.of(client)
        there = {(delivery.publisher, delivery.number) for delivery in box.waiting}
        wanted: list[tuple[str, Delivery]] = []
        size = 0
        for publisher, publication in kept:
            if (publisher, publication.number) in there:
                continue
            ((_, one),) = self.of([(client, (name,))], publisher, publication)
            if self.boxes.fits(client, len(wanted) + 1, size + one.size):
                wanted.append((client, replace(one, sequence=one.sequence + len(wanted))))
                size += one.size
        with self.put(wanted):
            self._store.settle(client, name)
        return bool(wanted)

    def acknowledge(self, client: str, sequence: int) -> None:
        """Forget a client's deliveries up to this number."""
        box = self.boxes.admitted(client)
        gone = box.through(sequence)
        if gone:
            with self._store.transaction():
                self._store.drop(client, gone)
            box.drop(len(gone))
            self._metrics.add("acknowledged", len(gone))
