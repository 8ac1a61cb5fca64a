"""Deliveries on their way into queues and out of them, in memory and on disk alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ccbps.broker.mailbox import Mailboxes
from ccbps.broker.messages import Delivery, Publication
from ccbps.broker.metrics import Metrics
from ccbps.broker.store import Store

__all__ = ["Deliveries"]

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
            own = (wraps.get(f"{client}/{name}") for name in names) if wraps else ()
            wrap = next((wrap for wrap in own if wrap is not None), None)
            at = self.boxes.of(client).following
            made.append((client, Delivery(at, publisher, number, names, payload, event, wrap)))
        return made

    def sealed(
        self, publisher: str, number: int, messages: Mapping[str, bytes]
    ) -> list[tuple[str, Delivery]]:
        """Deliveries that a publisher sealed, without those of clients that were revoked."""
        return [
            (client, Delivery(self.boxes.of(client).following, publisher, number, (), message))
            for client, message in messages.items()
            if not self.boxes.of(client).revoked
        ]

    @contextmanager
    def put(self, wanted: Addressed) -> Iterator[None]:
        """Put deliveries into queues, in a transaction with what is written inside.

        Raises:
            RefusedError: a queue is full.
            LedgerError: nothing was written, and nothing is in a queue.
        """
        dropped = self.boxes.full([client for client, _ in wanted])
        with self._store.transaction():
            for client in dropped:
                self._store.drop(client, [self.boxes.of(client).waiting[0].sequence])
            yield
            self._store.deliver(wanted)
        for client in dropped:
            self.boxes.of(client).drop(1)
        for client, delivery in wanted:
            self.boxes.of(client).put(delivery)
        self._metrics.add("dropped", len(dropped))
        self._metrics.add("deliveries", len(wanted))

    def put_kept(self, client: str, name: str, kept: Sequence[tuple[str, Publication]]) -> bool:
        """Deliver publications that were kept, but for those that wait for the client already;
        returns whether there are some. What does not fit into its queue is left out."""
        box = self.boxes.of(client)
        there = {(delivery.publisher, delivery.number) for delivery in box.waiting}
        some = False
        for publisher, publication in kept:
            if (publisher, publication.number) in there or self.boxes.is_full(client):
                continue
            with self.put(self.of([(client, (name,))], publisher, publication)):
                some = True
        return some

    def acknowledge(self, client: str, sequence: int) -> None:
        """Forget a client's deliveries up to this number."""
        box = self.boxes.admitted(client)
        gone = box.through(sequence)
        if gone:
            with self._store.transaction():
                self._store.drop(client, gone)
            box.drop(len(gone))
            self._metrics.add("acknowledged", len(gone))
