"""The running broker: registers subscriptions and publications, matches, and delivers.

It runs any scheme: a `ccbps.matching.Broker` says what matches, and the scheme's kind says how
subscriptions are kept (`ccbps.broker.book`). It is not trusted. Events and interests are encrypted
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

import time
from collections.abc import Sequence
from hashlib import blake2b

from ccbps.broker.accepted import Accepted
from ccbps.broker.messages import Payloads, Publication, Receipt, Subscription
from ccbps.broker.names import check_name
from ccbps.broker.parts import BrokerParts
from ccbps.errors import ParameterError, RefusedError


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

        Publications that are kept and match are delivered at once. The same subscription again
        changes nothing.

        Raises:
            DecodeError: malformed, or not of the broker's matcher, key and epoch.
            RefusedError: the client was revoked, or its quota is used up.
            LedgerError: the file cannot be written. In all cases nothing was changed.
        """
        message = (
            subscription.to_bytes() if isinstance(subscription, Subscription) else subscription
        )
        with self._serving(client, len(message)), self._changing:
            if not isinstance(subscription, Subscription):
                subscription = Subscription.from_bytes(message)
            self._require_room(client, subscription)
            self._subscriptions.check([subscription])
            with self._lock:
                self._boxes.admitted(client)  # it may have been revoked meanwhile
                if self._subscriptions.has(client, subscription):
                    return
            kept: list[tuple[str, Publication]] = []

            def entered() -> None:
                # What is accepted from this moment on is matched with it, so nothing comes twice.
                if self._kept.most and self._kept.stops(subscription):
                    self._metrics.add("kept_prefiltered")
                else:
                    kept.extend(self._kept.for_subscription(subscription))
                with self._store.transaction():
                    self._store.subscribe(client, subscription, awaits_kept=bool(kept))

            self._subscriptions.add(client, subscription, entered)
            told = self._deliver_kept(client, subscription, kept)
        self._tell(told)

    def subscribe_all(self, subscriptions: Sequence[tuple[str, Subscription]]) -> None:
        """Register many subscriptions of several clients at once, which is faster. No quota holds,
        and nothing that was kept is delivered: for those who set a broker up.

        Raises:
            DecodeError: one of them is malformed; none was registered.
            ParameterError: a name is there already, or twice.
            RefusedError: a client was revoked.
        """
        with self._changing:
            seen = set()
            for client, one in subscriptions:
                self._boxes.admitted(client)
                there = one.name in self._subscriptions.registry.of(client)
                if there or (client, one.name) in seen:
                    raise ParameterError(f"{client} has a subscription {one.name!r} already")
                seen.add((client, one.name))
            self._subscriptions.check([one for _, one in subscriptions])
            with self._lock, self._store.transaction():
                for client, one in subscriptions:
                    self._store.subscribe(client, one, awaits_kept=False)
            self._subscriptions.add_all(subscriptions)

    def unsubscribe(self, client: str, name: str) -> None:
        """Forget a subscription. Deliveries that wait are delivered.

        Raises:
            ParameterError: the client has none of that name.
            RefusedError: the client was revoked, or its quota is used up.
            LedgerError: the file cannot be written; nothing was changed.
        """
        with self._serving(client, 0), self._changing:
            if name not in self._subscriptions.registry.of(client):
                raise ParameterError(f"{client} has no subscription {name!r}")
            with self._lock, self._store.transaction():
                self._store.unsubscribe(client, name)
            self._subscriptions.remove(client, [name])

    def revoke(self, client: str, user: bytes | None = None) -> None:
        """Shut a client out: its subscriptions and deliveries are gone, and it is refused. What it
        published is delivered, but not kept for later subscribers.

        Args:
            user: what `KeyServer.revoke` returned, where the scheme has users: messages with this
                user's key are refused from others, too.

        Raises:
            ParameterError: the broker does not serve the user, and never revoked it.
            LedgerError: the file cannot be written; nothing was changed.
        """
        check_name("client", client)
        if user is not None and not isinstance(user, bytes):
            raise ParameterError(f"user must be bytes, of KeyServer.revoke, got {user!r}")
        if user is not None and not self._knows(user):
            raise ParameterError(f"the broker serves no user {user.hex()}")
        with self._changing:
            names = self.subscriptions(client)
            with self._lock:
                box = self._boxes.of(client)
                # What is sealed for it later counts as delivered.
                unsealed = self._numbers.waiting_for(client)
                with self._store.transaction():
                    self._store.revoke(client)
                    for publisher, number, one in unsealed:
                        served = one.served | {client}
                        self._store.served(publisher, number, one.clients, served)
                    if user is not None:
                        self._store.revoke_user(user)
                    self._store.drop(client, [one.sequence for one in box.waiting])
                # From here on nothing comes into its queue, whatever is being matched.
                box.revoked = True
                box.clear()
                for *_, one in unsealed:
                    one.served.add(client)
                self._kept.forget(client)
                self._metrics.add("revoked")
            if user is not None:
                self._forget_user(user)
            self._subscriptions.remove(client, names)

    def admit(self, client: str) -> None:
        """Let a client in again that was revoked. It must subscribe anew."""
        check_name("client", client)
        with self._changing, self._lock:
            with self._store.transaction():
                self._store.admit(client)
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
        message = publication.to_bytes() if isinstance(publication, Publication) else publication
        with self._serving(publisher, len(message)):
            if not isinstance(publication, Publication):
                publication = Publication.from_bytes(message)
            digest = blake2b(message, digest_size=16).digest()
            with self._lock:
                known = self._known(publisher, publication, digest)
                if known is not None:
                    return known
                moment = self._subscriptions.begin(publisher, publication)
            try:
                # What the filter stops is not looked at, unless it is kept.
                if moment.books or self._kept.most:
                    self._subscriptions.check_event(publication)
                start = time.perf_counter()
                found = [(book, book.find(publication)) for book in moment.books]
                took = time.perf_counter() - start
                with self._lock:
                    # Meanwhile it may have been accepted, and its publisher revoked.
                    self._boxes.admitted(publisher)
                    known = self._known(publisher, publication, digest)
                    if known is not None:
                        return known
                    matched = self._subscriptions.recipients(moment, publisher, publication, found)
                    receipt, told = self._accept(publisher, publication, digest, matched)
                    self._metrics.matched(took)
                    self._metrics.add("publications")
                    if moment.filtered:
                        self._metrics.add(moment.filtered)
            finally:
                with self._lock:
                    self._subscriptions.end(moment)
        self._tell(told)
        return receipt

    def deliver(self, publisher: str, payloads: Payloads | bytes) -> None:
        """Deliver what the publisher sealed for those who match a publication without payload.

        It may be called several times, for some clients each, and must be where all messages
        together are larger than `Quota.message_bytes`. Who has it already gets nothing, so a call
        may be repeated.

        Raises:
            DecodeError: malformed.
            RefusedError: the publisher was revoked, its quota is used up, or a queue is full.
            ParameterError: the publication is not there; or somebody is to get it who does not
                match.
        """
        message = payloads.to_bytes() if isinstance(payloads, Payloads) else payloads
        with self._serving(publisher, len(message)):
            if not isinstance(payloads, Payloads):
                payloads = Payloads.from_bytes(message)
            with self._lock:
                told = self._deliver_sealed(publisher, payloads)
        self._tell(told)

    # -- inside ----------------------------------------------------------------------------------

    def _deliver_sealed(self, publisher: str, payloads: Payloads) -> list[str]:
        number, messages = payloads.number, payloads.messages
        accepted = self._numbers.waiting(publisher, number)
        if accepted is None:
            return []  # everybody has it
        clients = {*(accepted.clients or ())}
        if others := messages.keys() - clients:
            raise ParameterError(f"{min(others)} does not match publication {number}")
        served = accepted.served | messages.keys()
        new = {one: some for one, some in messages.items() if one not in accepted.served}
        over = payloads.last or served == clients
        wanted = self._deliveries.sealed(publisher, number, new)
        with self._deliveries.put(wanted):
            self._store.served(publisher, number, None if over else clients, served)
        accepted.served = served
        if over:
            self._numbers.finish(publisher, number)
        return [client for client, _ in wanted]

    def _require_room(self, client: str, one: Subscription) -> None:
        """Raises RefusedError if a client may have no more subscriptions."""
        registry = self._subscriptions.registry
        count = len(registry.of(client)) + (one.name not in registry.of(client))
        size = registry.stored(client) - registry.size(client, one.name)
        size += self._subscriptions.size(one)
        if count > self.quota.subscriptions or size > self.quota.stored_bytes:
            raise RefusedError(
                f"{client} would have {count} subscriptions of {size} bytes, and may have "
                f"{self.quota.subscriptions} of {self.quota.stored_bytes}",
                reason="subscriptions",
            )

    def _known(self, publisher: str, publication: Publication, digest: bytes) -> Receipt | None:
        known = self._numbers.receipt(publisher, publication, digest)
        if known is None:
            return None
        self._metrics.add("repeated")
        there = [one for one in known.clients if not self._boxes.of(one).revoked]
        return Receipt(known.number, True, tuple(there))

    def _accept(
        self,
        publisher: str,
        publication: Publication,
        digest: bytes,
        matched: list[tuple[str, tuple[str, ...]]],
    ) -> tuple[Receipt, list[str]]:
        number, later = publication.number, publication.payload is None
        # Subscriptions of who was revoked just now may still be in the books.
        matched = [pair for pair in matched if not self._boxes.of(pair[0]).revoked]
        clients = tuple(client for client, _ in matched) if later and matched else None
        self._numbers.require_room(publisher, clients, self.quota.queue)
        wanted = [] if later else self._deliveries.of(matched, publisher, publication)
        keeps = self._kept.most > 0 and not later
        below = self._numbers.cutoff(publisher)
        with self._deliveries.put(wanted):
            self._store.publish(publisher, publication, digest, clients)
            if keeps:
                self._store.keep(publisher, publication, self._kept.most)
            if below is not None:
                self._store.forget_numbers(publisher, below)
        self._numbers.add(publisher, number, Accepted(digest, clients))
        if publication.round is not None:
            self._numbers.spend(publisher, publication.round)
        if keeps:
            self._kept.add(publisher, publication)
        return Receipt(number, False, clients or ()), [client for client, _ in wanted]
