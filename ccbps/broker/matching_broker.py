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

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from ccbps.broker.accepted import Accepted
from ccbps.broker.book import Book
from ccbps.broker.messages import Publication, Receipt, Subscription, check_name
from ccbps.broker.parts import BrokerParts
from ccbps.errors import ParameterError, RefusedError
from ccbps.matching.broker import Broker

__all__ = ["MatchingBroker"]


class MatchingBroker(BrokerParts):
    """A broker with clients. Several threads may use it.

    Attributes:
        matcher: which scheme.
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
                self._subscriptions.check([subscription])
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
            self._subscriptions.check([one for _, one in subscriptions])
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

    def revoke(self, client: str, user: bytes | None = None) -> None:
        """Shut a client out: its subscriptions and deliveries are gone, and it is refused.

        Args:
            user: what `KeyServer.revoke` returned, where the scheme has users: messages with this
                user's key are refused from others, too.
        """
        check_name("client", client)
        if user is not None:
            if not isinstance(self._broker, Broker):
                raise ParameterError(f"{type(self.matcher).__name__} has no users of their own")
            self._broker.revoke(user)
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
            wanted = self._deliveries.sealed(publisher, number, messages)
            with self._deliveries.put(wanted):
                self._store.delivered(publisher, number)
            self._numbers.delivered(publisher, number)
        self._tell([client for client, _ in wanted])

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
        wanted = [] if later else self._deliveries.of(matched, publisher, publication)
        keeps = self._kept.most > 0 and not later
        with self._deliveries.put(wanted):
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
            chosen = [kept[at] for at in found]
            return [client] * self._deliveries.put_kept(client, one.name, chosen)


def _size(message: Subscription | Publication | bytes) -> int:
    """Bytes of a message as it is sent."""
    return len(message if isinstance(message, bytes) else message.to_bytes())
