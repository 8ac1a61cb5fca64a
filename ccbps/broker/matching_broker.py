"""The running broker: registers subscriptions and publications, matches, and delivers.

It runs any scheme: a `ccbps.matching.Broker` says what matches, and the scheme's kind says how
subscriptions are kept (`ccbps.broker.books`). It is not trusted. Events and interests are encrypted
by the scheme, topics are tokens, payloads are encrypted by publishers; what the broker learns
beside the scheme's card is who subscribes and publishes, when, under which token, and who gets
what.

*Payloads* come with a publication, together with wrapped keys if the publisher made some, of which
each client gets its own if it matched. Or a publication comes without: its receipt says who
matches, and the publisher seals for them (`ccbps.delivery.GroupSealer`) and calls `deliver`.

*Exactly once.* With a file (`path`) a publication and its deliveries are on disk when the publisher
has its receipt. A publisher that got none repeats the publication, which is known by its number if
it was accepted. A delivery waits until it is acknowledged, and is named by publisher and number, so
that a client that gets it twice can tell.

*Revocation* takes effect at once, also for subscriptions that are there, deliveries that wait, and
publications that are being matched.

Hazard: clients' names must be authenticated by whoever calls: by a TLS certificate or password of
the MQTT server, for one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from threading import RLock
from typing import Any, Final, Literal

from ccbps.broker.accepted import Accepted, Kept, Numbers
from ccbps.broker.books import Book
from ccbps.broker.mailbox import Mailboxes
from ccbps.broker.messages import Delivery, Publication, Receipt, Subscription, check_name
from ccbps.broker.metrics import Metrics
from ccbps.broker.prefilter import FilterKind
from ccbps.broker.quotas import Quota
from ccbps.broker.store import BrokerStore, NoStore, Store
from ccbps.broker.subscriptions import Subscriptions
from ccbps.errors import CcbpsError, ParameterError, RefusedError
from ccbps.keys.secret import Confined
from ccbps.matching.broker import Broker
from ccbps.matching.contract import Answers

__all__ = ["MatchingBroker"]

REMEMBER: Final = 1 << 12
"""Numbers of publications of each publisher that are remembered one by one."""


class MatchingBroker(Confined):
    """A broker with clients. Several threads may use it.

    Attributes:
        broker: matches.
        quota: of each client.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.broker import MatchingBroker, Publication, Subscription
        >>> from ccbps.matching import TagMatch
        >>> matcher = TagMatch(Schema(price=UInt(8)))
        >>> server = matcher.key_server()
        >>> broker = MatchingBroker(matcher.broker(server.broker_key()))
        >>> alice = matcher.subscriber(server.subscriber_key("alice"))
        >>> broker.subscribe("alice", Subscription("cheap", alice.encode("price < 10")))
        >>> feed = matcher.publisher(server.publisher_key())
        >>> for number, event in enumerate(feed.encode({"price": [5, 50]})):
        ...     receipt = broker.publish("feed", Publication(number, event.tobytes(), b"encrypted"))
        >>> [(one.number, one.names) for one in broker.take("alice")]
        [(0, ('cheap',))]
        >>> broker.acknowledge("alice", 0)
        >>> broker.take("alice")
        []
    """

    def __init__(
        self,
        broker: Broker,
        *,
        path: str | os.PathLike[str] | None = None,
        durable: bool = True,
        prefilter: FilterKind | None = "cuckoo",
        keep: int = 0,
        quota: Quota | None = None,
        when_full: Literal["refuse", "drop"] = "refuse",
        remember: int = REMEMBER,
        on_delivery: Callable[[str], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            broker: of the matcher; holds its broker key, if it has one.
            path: of the broker's file; None to keep everything in memory. One broker at a time.
            durable: whether what was accepted survives a loss of power; else the death of the
                process only, and a publication takes less time.
            prefilter: "cuckoo", "bloom", or None for none.
            keep: so many publications, the last ones, are kept for later subscribers.
            quota: of each client; `Quota()` if None.
            when_full: what happens to a publication for a client whose queue is full: "refuse" it,
                so that the publisher must wait, and one client that is gone stops it; or "drop"
                that client's oldest delivery.
            remember: numbers of each publisher's publications that are remembered one by one;
                smaller ones are refused.
            on_delivery: called with a client's name when something was put into its queue; must
                return at once.
            clock: seconds.

        Raises:
            LedgerError: the file cannot be used.
            ParameterError: the file is another matcher's, key's or epoch's.
        """
        if not isinstance(broker, Broker):
            raise ParameterError(f"broker must be a Broker, got {type(broker).__name__}")
        if when_full not in ("refuse", "drop"):
            raise ParameterError(f"when_full must be 'refuse' or 'drop', got {when_full!r}")
        for name, number, least in (("keep", keep, 0), ("remember", remember, 1)):
            if type(number) is not int or number < least:
                raise ParameterError(
                    f"{name} must be a whole number, at least {least}, got {number!r}"
                )
        self.broker, self.quota = broker, quota or Quota()
        self._on_delivery, self._clock = on_delivery, clock
        # One changes subscriptions at a time; the lock is for what takes no time.
        self._changing, self._lock = RLock(), RLock()
        self._metrics = Metrics()
        self._subscriptions = Subscriptions(broker, prefilter, self._lock)
        self._numbers, self._kept = Numbers(remember), Kept(keep, prefilter)
        self._boxes = Mailboxes(self.quota, when_full == "drop", clock)
        self._store: Store = NoStore()
        if path is not None:
            self._store = BrokerStore(Path(path), broker._names, durable)
            self._load()

    def __repr__(self) -> str:
        count = len(self._subscriptions)
        return f"<MatchingBroker of {self.broker.matcher!r}, {count} subscriptions>"

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
        for publisher, number, digest, clients in self._store.numbers():
            waiting = None if clients is None else tuple(clients)
            self._numbers.add(publisher, number, Accepted(digest, waiting))
        self._numbers.oldest |= self._store.oldest()
        self._numbers.next_round |= self._store.rounds()
        for publisher, publication in self._store.kept() if self._kept.most else ():
            self._kept.add(publisher, publication)
        self._subscriptions.add_all([*self._store.subscriptions()])

    # -- subscriptions ---------------------------------------------------------------------------

    def subscribe(self, client: str, subscription: Subscription | bytes) -> None:
        """Register a subscription, in place of the client's one with that name, if it has one.

        Publications that are kept and match are delivered at once.

        Raises:
            DecodeError: malformed, or not of the broker's matcher, key and epoch.
            RefusedError: the client was revoked, or its quota is used up.
            LedgerError: the file cannot be written. In all cases nothing was changed.
        """
        with self._counting_refusals(), self._changing:
            with self._lock:
                box = self._boxes.enter(client, _size(subscription))
            if not isinstance(subscription, Subscription):
                subscription = Subscription.from_bytes(subscription)
            start = self._clock()
            try:
                own = self._subscriptions.registry.of(client)
                if subscription.name not in own and len(own) >= self.quota.subscriptions:
                    raise RefusedError(
                        f"{client} has {len(own)} subscriptions, as many as it may",
                        reason="subscriptions",
                    )
                self._subscriptions.check(subscription)
                with self._lock, self._store.transaction():
                    self._store.subscribe(client, subscription)
                self._subscriptions.add(client, subscription)
                told = self._deliver_kept(client, subscription)
            finally:
                with self._lock:
                    box.account.spend(self._clock() - start)
        self._tell(told)

    def subscribe_all(self, subscriptions: Sequence[tuple[str, Subscription]]) -> None:
        """Register many subscriptions of several clients at once, which is faster. No quota holds,
        and nothing that was kept is delivered: for those who set a broker up.

        Raises:
            DecodeError: one of them is malformed; none was registered.
            ParameterError: a name is there already, or twice.
        """
        with self._changing:
            seen = set()
            for client, one in subscriptions:
                check_name("client", client)
                there = one.name in self._subscriptions.registry.of(client)
                if there or (client, one.name) in seen:
                    raise ParameterError(f"{client} has a subscription {one.name!r} already")
                seen.add((client, one.name))
                self._subscriptions.check(one)
            with self._lock, self._store.transaction():
                for client, one in subscriptions:
                    self._store.subscribe(client, one)
            self._subscriptions.add_all(subscriptions)

    def unsubscribe(self, client: str, name: str) -> None:
        """Forget a subscription. Deliveries that wait are delivered.

        Raises:
            ParameterError: the client has none of that name.
            LedgerError: the file cannot be written; nothing was changed.
        """
        with self._changing:
            if name not in self._subscriptions.registry.of(client):
                raise ParameterError(f"{client} has no subscription {name!r}")
            with self._lock, self._store.transaction():
                self._store.unsubscribe(client, name)
            self._subscriptions.remove(client, name)

    def subscriptions(self, client: str) -> list[str]:
        """Names of a client's subscriptions."""
        with self._lock:
            return [*self._subscriptions.registry.of(client)]

    def revoke(self, client: str, user: bytes | None = None) -> None:
        """Shut a client out: its subscriptions and deliveries are gone, and it is refused.

        Args:
            user: what `KeyServer.revoke` returned, where the scheme has users: messages with this
                user's key are refused from others, too.
        """
        check_name("client", client)
        if user is not None:
            self.broker.revoke(user)
        with self._changing:
            names = self.subscriptions(client)
            with self._lock:
                box = self._boxes.of(client)
                with self._store.transaction():
                    self._store.revoke(client, True)
                    for name in names:
                        self._store.unsubscribe(client, name)
                    self._store.drop(client, [one.sequence for one in box.waiting])
                # From here on nothing comes into its queue, whatever is being matched.
                box.revoked = True
                box.waiting.clear()
                self._metrics.add("revoked")
            for name in names:
                self._subscriptions.remove(client, name)

    def admit(self, client: str) -> None:
        """Let a client in again that was revoked. It must subscribe anew."""
        check_name("client", client)
        with self._lock:
            with self._store.transaction():
                self._store.revoke(client, False)
            self._boxes.of(client).revoked = False

    # -- publications ----------------------------------------------------------------------------

    def publish(self, publisher: str, publication: Publication | bytes) -> Receipt:
        """Match a publication, and put it into the queues of those that match.

        Raises:
            DecodeError: malformed, or not of the broker's matcher, key and epoch.
            ReplayError: another publication has this number, the number is too small to tell, or
                the round was used.
            RefusedError: the client was revoked, its quota is used up, or a queue is full.
            LedgerError: the file cannot be written. In all cases nothing was delivered; where it
                is not the publication's fault, publish it again.
        """
        with self._counting_refusals():
            with self._lock:
                box = self._boxes.enter(publisher, _size(publication))
            if not isinstance(publication, Publication):
                publication = Publication.from_bytes(publication)
            digest = blake2b(publication.to_bytes(), digest_size=16).digest()
            with self._lock:
                known = self._known(publisher, publication, digest)
                books, filtered = self._subscriptions.for_publication(publisher, publication)
            if known is not None:
                return known
            start = self._clock()
            try:
                found = [(book, book.find(publication)) for book in books]
            finally:
                took = self._clock() - start
                with self._lock:
                    box.account.spend(took)
            with self._lock:
                # Meanwhile it may have been accepted, and its publisher revoked.
                self._boxes.admitted(publisher)
                known = self._known(publisher, publication, digest)
                if known is not None:
                    return known
                receipt, told = self._accept(publisher, publication, digest, found)
                self._metrics.matched(took)
                self._metrics.add("publications")
                if filtered:
                    self._metrics.add(filtered)
        self._tell(told)
        return receipt

    def deliver(self, publisher: str, number: int, messages: Mapping[str, bytes]) -> None:
        """Deliver what the publisher sealed for those who match a publication without payload.

        Args:
            publisher: whose publication it is.
            number: of it.
            messages: by client, of `Receipt.clients`; who is left out gets nothing.

        Raises:
            RefusedError: the publisher was revoked, its quota is used up, or a queue is full.
            ParameterError: the publication is not there, was delivered before, or has a payload; or
                somebody is to get it who does not match.
        """
        with self._counting_refusals(), self._lock:
            self._boxes.enter(publisher, sum(map(len, messages.values())))
            clients = self._numbers.waiting(publisher, number)
            if clients is None:
                raise ParameterError(f"no publication {number} of {publisher} waits for a payload")
            if others := messages.keys() - {*clients}:
                raise ParameterError(f"{min(others)} does not match publication {number}")
            wanted = [
                (client, Delivery(self._boxes.of(client).following, publisher, number, (), message))
                for client, message in messages.items()
                if not self._boxes.of(client).revoked
            ]
            with self._delivering(wanted):
                self._store.delivered(publisher, number)
            self._numbers.delivered(publisher, number)
        self._tell([client for client, _ in wanted])

    # -- deliveries ------------------------------------------------------------------------------

    def take(self, client: str, most: int = 100, *, after: int = -1) -> list[Delivery]:
        """What waits for a client, oldest first. It stays there until it is acknowledged.

        Args:
            most: deliveries.
            after: a sequence number: those behind it.

        Raises:
            RefusedError: the client was revoked.
        """
        with self._lock:
            return self._boxes.admitted(client).after(after, most)

    def acknowledge(self, client: str, sequence: int) -> None:
        """That a client has its deliveries up to this sequence number; they are forgotten.

        Raises:
            RefusedError: the client was revoked.
            LedgerError: the file cannot be written; nothing was changed.
        """
        with self._lock:
            box = self._boxes.admitted(client)
            gone = box.through(sequence)
            if gone:
                with self._store.transaction():
                    self._store.drop(client, gone)
                box.drop(len(gone))
                self._metrics.add("acknowledged", len(gone))

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
            return self._subscriptions.topics.to_bytes()

    def metrics(self) -> str:
        """Counts, in OpenMetrics text."""
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
            return self._metrics.text(gauges, pairs)

    # -- inside ----------------------------------------------------------------------------------

    def _known(self, publisher: str, publication: Publication, digest: bytes) -> Receipt | None:
        known = self._numbers.receipt(publisher, publication, digest)
        if known is not None:
            self._metrics.add("repeated")
        return known

    def _accept(
        self,
        publisher: str,
        publication: Publication,
        digest: bytes,
        found: Sequence[tuple[Book, Any]],
    ) -> tuple[Receipt, list[str]]:
        number, later = publication.number, publication.payload is None
        matched = self._subscriptions.recipients([book.members(some) for book, some in found])
        clients = tuple(client for client, _ in matched) if later else None
        wanted = (
            []
            if later
            else [
                (client, self._delivery(client, names, publisher, publication))
                for client, names in matched
            ]
        )
        keeps = self._kept.most > 0 and not later
        with self._delivering(wanted):
            self._store.publish(publisher, publication, digest, clients)
            if keeps:
                self._store.keep(publisher, publication, self._kept.most)
            if publisher in self._numbers.oldest:
                self._store.forget_numbers(publisher, self._numbers.oldest[publisher])
        self._numbers.add(publisher, number, Accepted(digest, clients))
        if publication.round is not None:
            self._numbers.spend(publisher, publication.round)
            self._subscriptions.spend(publisher, publication.round)
        if keeps:
            self._kept.add(publisher, publication)
        return Receipt(number, False, clients or ()), [client for client, _ in wanted]

    def _deliver_kept(self, client: str, one: Subscription) -> list[str]:
        """A new subscription against publications that are kept; returns who got something."""
        with self._lock:
            kept = self._kept.for_subscription(one)
        if not kept:
            return []
        book = self._subscriptions.book(one)
        found = book.matching(f"{client}/{one.name}", one, [some for _, some in kept])
        with self._lock:
            box = self._boxes.of(client)
            there = {(delivery.publisher, delivery.number) for delivery in box.waiting}
            told = []
            for publisher, publication in (kept[at] for at in found):
                full = len(box.waiting) >= self.quota.queue
                if (publisher, publication.number) not in there and not full:
                    delivery = self._delivery(client, (one.name,), publisher, publication)
                    with self._delivering([(client, delivery)]):
                        pass
                    told = [client]
        return told

    def _delivery(
        self, client: str, names: tuple[str, ...], publisher: str, publication: Publication
    ) -> Delivery:
        wraps = publication.wraps
        own = (wraps.get(f"{client}/{name}") for name in names) if wraps else ()
        relayed = self.broker.matcher.answers is Answers.SUBSCRIBER
        return Delivery(
            self._boxes.of(client).following,
            publisher,
            publication.number,
            names,
            publication.payload or b"",
            publication.event if relayed else None,
            next((wrap for wrap in own if wrap is not None), None),
        )

    @contextmanager
    def _delivering(self, wanted: Sequence[tuple[str, Delivery]]) -> Iterator[None]:
        """Put deliveries into queues, in a transaction with what is written inside."""
        dropped = self._boxes.full([client for client, _ in wanted])
        with self._store.transaction():
            for client in dropped:
                self._store.drop(client, [self._boxes.of(client).waiting[0].sequence])
            yield
            self._store.deliver(wanted)
        for client in dropped:
            self._boxes.of(client).drop(1)
        for client, delivery in wanted:
            self._boxes.of(client).put(delivery)
        self._metrics.add("dropped", len(dropped))
        self._metrics.add("deliveries", len(wanted))

    @contextmanager
    def _counting_refusals(self) -> Iterator[None]:
        try:
            yield
        except CcbpsError as error:
            reason = error.reason if isinstance(error, RefusedError) else type(error).__name__
            with self._lock:
                self._metrics.add("refused", reason=reason)
            raise

    def _tell(self, clients: Sequence[str]) -> None:
        if self._on_delivery is not None:
            for client in clients:
                self._on_delivery(client)


def _size(message: Subscription | Publication | bytes) -> int:
    """Bytes of a message as it is sent."""
    return len(message if isinstance(message, bytes) else message.to_bytes())
