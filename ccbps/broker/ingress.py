"""The way of a publication into a broker: let in, matched, judged, and put into queues.

Matching holds no lock; the steps before and after it hold the broker's.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import RLock
from typing import Any, Final

import numpy as np

from ccbps.broker.accepted import Accepted, Kept, Publishers
from ccbps.broker.door import Door
from ccbps.broker.enforcement import Enforcement, NoEnforcement
from ccbps.broker.mailbox import Mailboxes, Matched
from ccbps.broker.messages import Publication, Receipt, Subscription
from ccbps.broker.metrics import Metrics
from ccbps.broker.quotas import Quota
from ccbps.broker.store import Store
from ccbps.broker.subscriptions import Coming, Subscriptions
from ccbps.errors import CcbpsError, LedgerError

_log: Final = logging.getLogger(__name__)


class Ingress:
    """The way in of one broker.

    Args:
        door: door of the broker.
        lock: lock that guards all the others.
        publishers: numbers of accepted publications.
        kept: publications for later subscribers.
        boxes: queues of the clients.
        subscriptions: subscriptions of all clients.
        store: file of the broker.
        metrics: counters.
        quota: limits of each client.
        access: access control.
    """

    def __init__(
        self,
        door: Door,
        lock: RLock,
        publishers: Publishers,
        kept: Kept,
        boxes: Mailboxes,
        subscriptions: Subscriptions,
        store: Store,
        metrics: Metrics,
        quota: Quota,
        access: Enforcement | NoEnforcement,
    ) -> None:
        self._door, self._lock, self._publishers, self._kept = door, lock, publishers, kept
        self._boxes, self._subscriptions, self._store = boxes, subscriptions, store
        self._metrics, self._quota, self._access = metrics, quota, access

    def take_in(
        self, publisher: str, publications: Sequence[Publication | bytes]
    ) -> tuple[list[Receipt | CcbpsError], list[str]]:
        """Accept publications in order, each by itself.

        Returns:
            a receipt of each, or the error for which it was refused; and the clients that have
            new deliveries.
        """
        results: list[Receipt | CcbpsError | None] = [None] * len(publications)
        told: list[str] = []
        coming = [
            one
            for place, sent in enumerate(publications)
            if (one := self._begun(publisher, sent, place, results)) is not None
        ]
        try:
            # A publication that the filter stops is not examined, unless it is kept.
            took = self._subscriptions.find(publisher, coming, self._kept.most > 0)
            for one in coming:
                with self._door.noting(results, one.place):
                    results[one.place], more = self._matched(publisher, one, took)
                    told += more
        finally:
            with self._lock:
                for one in coming:
                    self._subscriptions.end(one.snapshot)
        return [one for one in results if one is not None], [*dict.fromkeys(told)]

    def _begun(
        self, publisher: str, sent: Publication | bytes, place: int, results: list[Any]
    ) -> Coming | None:
        """Let a publication in, and return it if it must be matched, else store its result."""
        with self._door.noting(results, place):
            message = sent.to_bytes() if isinstance(sent, Publication) else sent
            self._door.enter(publisher, len(message))
            new = sent if isinstance(sent, Publication) else Publication.from_bytes(message)
            digest = new.digest(message)
            with self._lock:
                # The one before it may come with it: `_matched` tells.
                receipt = self._receipt(publisher, new, digest, in_order=not place)
                if receipt is None:
                    stamp = self._access.begin(publisher)
                    snapshot = self._subscriptions.begin(publisher, new)
                    return Coming(place, new, digest, snapshot, stamp)
                results[place] = receipt
        return None

    def _matched(self, publisher: str, one: Coming, took: float) -> tuple[Receipt, list[str]]:
        """Accept a publication that was matched; return its receipt, and clients to tell."""
        new = one.publication
        if one.error is not None:
            raise one.error
        while True:
            with self._lock:
                # Meanwhile it may have been accepted, and its publisher revoked.
                self._boxes.admitted(publisher)
                receipt = self._receipt(publisher, new, one.digest)
                if receipt is not None:
                    return receipt, []
                later = self._subscriptions.later(publisher, one)
                if not later:
                    matched, withheld = self._access.judge(
                        publisher, one.stamp, self._subscriptions.recipients(one)
                    )
                    self._metrics.add("withheld", withheld)
                    receipt, told = self._accept(
                        publisher, new, one.digest, matched, self._access.is_current(one.stamp)
                    )
                    self._metrics.published(took, one.snapshot.filtered)
                    return receipt, told
            self._subscriptions.find_later(one, later)

    def _receipt(
        self, publisher: str, publication: Publication, digest: bytes, in_order: bool = True
    ) -> Receipt | None:
        """Return the receipt of a publication that was accepted before, None if it is new."""
        receipt = self._publishers[publisher].receipt(publication, digest, in_order)
        if receipt is None:
            return None
        self._metrics.add("repeated")
        clients = tuple(one for one in receipt.clients if not self._boxes[one].revoked)
        return Receipt(receipt.number, True, clients)

    def _accept(
        self,
        publisher: str,
        publication: Publication,
        digest: bytes,
        matched: Matched,
        may_be_kept: bool,
    ) -> tuple[Receipt, list[str]]:
        """Accept a publication, and return its receipt and the clients with new deliveries."""
        numbers, is_sealed_later = self._publishers[publisher], publication.payload is None
        # Subscriptions of a client that was revoked just now may still be in the books.
        matched = [pair for pair in matched if not self._boxes[pair[0]].revoked]
        clients = tuple(client for client, _ in matched) if is_sealed_later and matched else None
        numbers.require_room(clients, self._quota.queue)
        deliveries = (
            [] if is_sealed_later else self._boxes.addressed(matched, publisher, publication)
        )
        is_kept = self._kept.most > 0 and may_be_kept and not is_sealed_later
        below = numbers.cutoff()
        with self._boxes.put(deliveries):
            self._store.publish(publisher, publication, digest, clients)
            if is_kept:
                self._store.keep(publisher, publication, self._kept.most)
            if below is not None:
                self._store.forget_numbers(publisher, below)
        numbers.add(publication.number, Accepted(digest, clients))
        if publication.round is not None:
            numbers.next_round = publication.round + 1
        if is_kept:
            self._kept.add(publisher, publication)
        told = [client for client, _ in deliveries]
        return Receipt(publication.number, False, clients or ()), told

    def deliver_kept(
        self, client: str, subscription: Subscription, kept: Sequence[tuple[str, Publication]]
    ) -> list[str]:
        """Match a new subscription with kept publications, and return clients with deliveries."""
        if not kept:
            return []
        labelled = f"{client}/{subscription.name}", subscription
        publications = [publication for _, publication in kept]
        answers = self._subscriptions.examiner.matching([labelled], publications)
        matching = [kept[place] for place in np.flatnonzero(answers[:, 0]).tolist()]
        try:
            with self._lock:
                if not self._boxes[client].revoked and self._boxes.put_kept(
                    client, subscription.name, matching
                ):
                    return [client]
        except LedgerError as error:  # the subscription is there
            _log.warning("publications that were kept are not delivered now: %s", error)
        return []
