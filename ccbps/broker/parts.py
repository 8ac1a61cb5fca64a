"""A broker's parts, put together: what it holds, loads from its file, and has for whom."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Final, Literal

from ccbps.broker.accepted import Accepted, Kept, Numbers, chosen_for
from ccbps.broker.deliveries import Deliveries
from ccbps.broker.mailbox import Mailboxes
from ccbps.broker.messages import Delivery, Publication, Subscription
from ccbps.broker.metrics import Metrics, metrics_text
from ccbps.broker.prefilter import FilterKind
from ccbps.broker.quotas import Quota
from ccbps.broker.store import BrokerStore, NoStore, Store
from ccbps.broker.subscriptions import Subscriptions
from ccbps.errors import (
    CcbpsError,
    DecodeError,
    FilterFullError,
    LedgerError,
    ParameterError,
    RefusedError,
)
from ccbps.keys.secret import Confined
from ccbps.matching.contract.broker import Broker
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers

if TYPE_CHECKING:
    from prometheus_client import Metric

_log: Final = logging.getLogger(__name__)
REMEMBER: Final = 1 << 12
"""Numbers of publications of each publisher that are remembered one by one."""


class BrokerParts(Confined):
    """What `MatchingBroker` is made of, and what does not match.

    Attributes:
        matcher: which scheme.
        quota: of each client.
        numbering: 8 random bytes that tell this broker's sequence numbers from those of others. A
            broker that starts again with its file goes on with them.
        on_delivery: called with a client's name when something was put into its queue.
    """

    def __init__(
        self,
        broker: Broker | Matcher,
        *,
        path: str | os.PathLike[str] | None = None,
        durable: bool = True,
        prefilter: FilterKind | None = "cuckoo",
        keep: int = 0,
        quota: Quota | None = None,
        when_full: Literal["drop", "refuse"] = "drop",
        remember: int = REMEMBER,
        on_delivery: Callable[[str], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        timer: Callable[[], float] = time.thread_time,
    ) -> None:
        """
        Args:
            broker: of the matcher, `Matcher.broker`; the matcher itself where subscribers decide.
            path: of the broker's file; None to keep everything in memory. One broker at a time.
            durable: whether what was accepted survives a loss of power; else the death of the
                process only, and a publication takes less time.
            prefilter: "cuckoo", "bloom", or None for none.
            keep: so many publications, the last ones, are kept for later subscribers.
            quota: of each client; `Quota()` if None.
            when_full: what happens to a publication for a client whose queue is full: "drop" that
                client's oldest delivery, which shows in its sequence numbers and in `metrics`; or
                "refuse" the publication, so that its publisher waits and nothing is lost, but one
                client that is gone stops everybody.
            remember: numbers of each publisher's publications that are remembered one by one;
                smaller ones are refused.
            on_delivery: called with a client's name when something was put into its queue; must
                return at once.
            clock: seconds, for quotas.
            timer: seconds of the processor that the calling thread used.

        Raises:
            LedgerError: the file cannot be used.
            ParameterError: the file is another matcher's, key's or epoch's.
        """
        relays = isinstance(broker, Matcher) and broker.answers is Answers.SUBSCRIBER
        if not relays and not isinstance(broker, Broker):
            raise ParameterError(
                "broker must be a Broker, made by matcher.broker(...), or a matcher whose "
                f"subscribers decide, got {broker!r}"
            )
        if when_full not in ("refuse", "drop"):
            raise ParameterError(f"when_full must be 'refuse' or 'drop', got {when_full!r}")
        for name, number, least in (("keep", keep, 0), ("remember", remember, 1)):
            if type(number) is not int or number < least:
                raise ParameterError(
                    f"{name} must be a whole number, at least {least}, got {number!r}"
                )
        self._broker, self.quota = broker, quota or Quota()
        self.on_delivery, self._timer = on_delivery, timer
        # One changes subscriptions at a time; the lock is for what takes no time.
        self._changing, self._lock = RLock(), RLock()
        self._metrics, self._revoked = Metrics(), set[bytes]()
        self._subscriptions = Subscriptions(broker, prefilter, self._lock)
        self.matcher = self._subscriptions.matcher
        self._numbers, self._kept = Numbers(remember), Kept(keep, prefilter)
        self._store: Store = NoStore()
        if path is not None:
            names = broker.names if isinstance(broker, Broker) else (broker.fingerprint, b"", 0)
            self._store = BrokerStore(Path(path), names, durable)
        self.numbering = self._store.numbering
        relayed = self.matcher.answers is Answers.SUBSCRIBER
        self._deliveries = Deliveries(
            Mailboxes(self.quota, when_full == "drop", clock), self._store, self._metrics, relayed
        )
        self._boxes = self._deliveries.boxes
        if path is not None:
            try:
                self._load()
            except BaseException:
                self._store.close()
                raise

    def __repr__(self) -> str:
        count = len(self._subscriptions)
        return f"<MatchingBroker of {self.matcher!r}, {count} subscriptions>"

    def close(self) -> None:
        """Give the file free. What waits is in it."""
        with self._changing, self._lock:
            self._store.close()

    def _load(self) -> None:
        for client, sequence, revoked in self._store.clients():
            box = self._boxes.of(client)
            box.following, box.revoked = sequence, revoked
        for client, delivery in self._store.deliveries():
            self._boxes.of(client).put(delivery)
        for user in self._store.users():
            self._forget_user(user)
        for publisher, number, digest, clients, served in self._store.numbers():
            waiting = None if clients is None else tuple(clients)
            self._numbers.add(publisher, number, Accepted(digest, waiting, {*served}))
        for publisher, oldest in self._store.oldest().items():
            known = self._numbers.oldest.get(publisher, 0)
            self._numbers.oldest[publisher] = max(known, oldest)
        self._numbers.next_round |= self._store.rounds()
        with self._store.transaction():
            self._store.keep_last(self._kept.most)
        for publisher, publication in self._store.kept():
            self._kept.add(publisher, publication)
        found = [*self._store.subscriptions()]
        try:
            self._subscriptions.check([one for _, one in found])
        except DecodeError:
            # Those of users that were revoked, for one: they match nothing any more.
            found = [(client, one) for client, one in found if self._usable(client, one)]
        self._subscriptions.add_all(found)
        # Of those who subscribed when an earlier broker was killed.
        for client, one, kept in self._store.awaiting_kept():
            if one.name in self._subscriptions.registry.of(client):
                self._deliver_kept(client, one, chosen_for(one, kept))

    def _usable(self, client: str, one: Subscription) -> bool:
        try:
            self._subscriptions.check([one])
        except DecodeError as error:
            _log.warning("subscription %s of %s is left out: %s", one.name, client, error)
            return False
        return True

    def _deliver_kept(
        self, client: str, one: Subscription, kept: Sequence[tuple[str, Publication]]
    ) -> list[str]:
        """A new subscription against publications that are kept; returns who got something."""
        if not kept:
            return []
        found = self._subscriptions.matching(client, one, [some for _, some in kept])
        try:
            with self._lock:
                if self._boxes.of(client).revoked:
                    return []
                some = self._deliveries.put_kept(client, one.name, [kept[at] for at in found])
        except LedgerError as error:  # the subscription is there
            _log.warning("publications that were kept are not delivered now: %s", error)
            return []
        return [client] if some else []

    def _knows(self, user: bytes) -> bool:
        """Whether it serves a user of the scheme, or has revoked it."""
        served = isinstance(self._broker, Broker) and user.hex() in self._broker.users
        return served or user in self._revoked

    def _forget_user(self, user: bytes) -> None:
        """Revoke a user of the scheme, if the broker serves it still."""
        self._revoked.add(user)
        if isinstance(self._broker, Broker) and user.hex() in self._broker.users:
            self._broker.revoke(user)

    def subscriptions(self, client: str) -> list[str]:
        """Names of a client's subscriptions."""
        with self._lock:
            return [*self._subscriptions.registry.of(client)]

    # -- deliveries ------------------------------------------------------------------------------

    def take(self, client: str, most: int = 100, *, after: int = -1) -> list[Delivery]:
        """What waits for a client, oldest first. It stays there until it is acknowledged.

        Args:
            most: deliveries.
            after: a sequence number: those behind it.

        Raises:
            RefusedError: the client was revoked, or the broker's time for it is used up.
        """
        if type(most) is not int or most < 1 or type(after) is not int:
            raise ParameterError(
                f"most must be a whole number, at least 1, and after one, got {most!r} and "
                f"{after!r}"
            )
        with self._serving(client), self._lock:
            return self._boxes.admitted(client).after(after, most)

    def acknowledge(self, client: str, sequence: int) -> None:
        """That a client has its deliveries up to this sequence number; they are forgotten.

        Raises:
            RefusedError: the client was revoked, or the broker's time for it is used up.
            LedgerError: the file cannot be written; nothing was changed.
        """
        if type(sequence) is not int:
            raise ParameterError(f"sequence must be a whole number, got {sequence!r}")
        with self._serving(client), self._lock:
            self._deliveries.acknowledge(client, sequence)

    def turn_away(self, client: str, size: int) -> None:
        """Refuse a message that need not be read. For who has messages wait before it asks for them
        to be served.

        Raises:
            RefusedError: the client was revoked, or the message is too large.
        """
        with self._counting(), self._lock:
            self._boxes.admitted(client).account.require_size(size)

    # -- what others are told --------------------------------------------------------------------

    def topic_filter(self) -> bytes:
        """The filter of tokens with subscriptions, for publishers: what is not in it they need not
        encode. `CuckooFilter.from_bytes` or `CountingBloomFilter.from_bytes` reads it.

        Raises:
            ParameterError: there is none; or somebody subscribed to all topics.
        """
        with self._lock:
            if self._subscriptions.to_all_topics:
                raise ParameterError("somebody subscribed to all topics: every event is wanted")
            tries = 8
            while True:
                tries -= 1
                try:
                    return self._subscriptions.topics.to_bytes(int.from_bytes(os.urandom(4)))
                except FilterFullError:
                    if not tries:
                        raise

    def metrics(self) -> str:
        """Return counts as OpenMetrics text.

        Raises:
            ImportError: prometheus-client, the extra ``metrics``, is missing.
        """
        return metrics_text(self)

    def collect(self) -> Iterator[Metric]:
        """Give counts to prometheus-client, in whose registries a broker is a collector.

        Raises:
            ImportError: prometheus-client, the extra ``metrics``, is missing.
        """
        with self._lock:
            known = self._subscriptions
            books = [*known.books]
            gauges = {
                "clients": known.registry.subscribed,
                "subscriptions": len(known),
                "interests": sum(book.distinct for book in books),
                "topics": len(known.topics),
                "waiting": self._boxes.waiting,
                "kept": len(self._kept),
            }
            pairs = {
                "pairs_tested": known.tests + sum(book.tests for book in books),
                "pairs_saved": known.saved + sum(book.saved for book in books),
                "pairs_refused": known.refused + sum(book.refused for book in books),
            }
            metrics = self._metrics.collect(gauges, pairs)
        yield from metrics

    @contextmanager
    def _serving(self, client: str, size: int | None = None) -> Iterator[None]:
        """Let a client's request in, charge it for the time that it takes, and count refusals.

        Args:
            size: of a message; None for a request that is none.
        """
        start = self._timer()
        with self._counting():
            with self._lock:
                box = self._boxes.admitted(client)
                if size is None:
                    box.account.continue_()
                else:
                    box.account.enter(size)
            try:
                yield
            finally:
                with self._lock:
                    box.account.spend(self._timer() - start)

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Count refusals."""
        try:
            yield
        except CcbpsError as error:
            reason = error.reason if isinstance(error, RefusedError) else type(error).__name__
            with self._lock:
                self._metrics.add("refused", reason=reason)
            raise

    def _tell(self, clients: Sequence[str]) -> None:
        if self.on_delivery is not None:
            for client in clients:
                try:
                    self.on_delivery(client)
                except Exception:  # what was accepted is accepted
                    _log.exception("on_delivery failed")
