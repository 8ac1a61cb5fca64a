"""A matching broker at the edge of a network of brokers.

Its clients are those of any `MatchingBroker`, such as `ccbps.mqtt.MqttClient`. Their subscriptions
and publications have a *route* in addition: bytes of a filter, and of an event, that all brokers of
the network read (`Relation`). Brokers between the edges route by it, and carry the publication as
it is. The match is made where the subscriber is, once, by the scheme of that edge.

A receipt says that the publisher's edge has a publication. Publications that match are delivered
exactly once, even if brokers between the edges crash. Edges with a file (`path`) may crash as well:
publications on their way are in the file of their publisher's edge.

Names of clients belong to the whole network: each edge vouches for the names of its clients.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import Any, Final

from msgspec import structs

from ccbps.broker import MatchingBroker, Publication, Receipt, Subscription
from ccbps.broker.accepted import Accepted, Publishers
from ccbps.broker.matching_broker import REMEMBER
from ccbps.errors import CcbpsError, DecodeError, LedgerError, ParameterError, RefusedError
from ccbps.network import Identity
from ccbps.overlay.routing import router as routing
from ccbps.overlay.routing.relations import Relation
from ccbps.overlay.routing.served import PATIENCE, Place, ServedRouter

_log: Final = logging.getLogger(__name__)
PAUSE_SECONDS: Final = 0.05
"""Seconds until an event that cannot be taken now is tried again."""
LATER: Final = ("rate", "cost", "queue")
"""Temporary reasons for refusing an event."""


class EdgeBroker(MatchingBroker):
    """A matching broker with neighbours in a network. Several threads may use it.

    Args:
        broker: see `MatchingBroker`. Edges may have different matchers, as long as routes keep
            publications of one away from the edges of another.
        relation: knowledge of routes, the same at all brokers.
        identity: network identity of this broker.
        neighbours: address and certificate of each neighbour, by a name for it.
        advertisements: filters that the publications of each of its publishers match, by name.
        advertise: False to let all publishers publish everything; the same at all brokers.
        slack: see `Router`.
        patience: see `ServedRouter`.
        host: name or number to listen at, for neighbours.
        port: port to listen at, for neighbours.
        options: options of `MatchingBroker`; `masks` are the same at all edges.

    Attributes:
        router: the router.

    Raises:
        NetworkError: the address cannot be listened at; and errors of `MatchingBroker`.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.broker import Publication, Subscription
        >>> from ccbps.matching import TagMatch
        >>> from ccbps.network import Identity
        >>> from ccbps.overlay import EdgeBroker, PlainRelation
        >>> schema = Schema(price=UInt(8))
        >>> matcher, relation = TagMatch(schema), PlainRelation(schema, bits={"price": 2})
        >>> keys = matcher.key_server()
        >>> edge = EdgeBroker(
        ...     matcher.broker(keys.broker_key()), relation, Identity.generate(), {},
        ...     advertisements={"feed": [relation.filter_bytes("price < 200")]})
        >>> alice = matcher.subscriber(keys.subscriber_key("alice"))
        >>> edge.subscribe("alice", Subscription(
        ...     "cheap", alice.encode("price < 10"), route=relation.filter_bytes("price < 10")))
        >>> feed = matcher.publisher(keys.publisher_key())
        >>> for number, price in enumerate([5, 50, 150]):
        ...     receipt = edge.publish("feed", Publication(
        ...         number, feed.encode({"price": [price]})[0].tobytes(), b"encrypted",
        ...         route=relation.event_bytes({"price": price})))
        >>> edge.router.wait_arrived(10)
        True
        >>> [delivery.number for delivery in edge.take("alice")]
        [0]
        >>> edge.close()
    """

    def __init__(
        self,
        broker: Any,
        relation: Relation,
        identity: Identity,
        neighbours: Mapping[str, Place],
        *,
        advertisements: Mapping[str, Sequence[bytes]] | None = None,
        advertise: bool = True,
        slack: float | None = None,
        patience: float = PATIENCE,
        host: str = "127.0.0.1",
        port: int = 0,
        **options: Any,
    ) -> None:
        if options.get("access") is not None:
            raise ParameterError(
                "access must be None at an edge, since publishers present their tokens to one edge "
                "only; GuardedBroker enforces policies in a network"
            )
        super().__init__(broker, **options)
        self._relation, self._ending = relation, Event()
        # Subscriptions of all clients have this owner: brokers do not learn whose they are.
        self._owner = identity.certificate().fingerprint
        self._number = 0
        self._routes: dict[tuple[str, str], tuple[int, bytes]] = {}
        self._taken = Publishers(REMEMBER)
        # Publications that an earlier broker had sent; and numbers of those that have arrived.
        self._unsent = deque(self._store.outgoing() or ())
        self._done: deque[int] = deque()
        filters: list[tuple[routing.Subject, str, int, bytes]] = [
            ("advertisement", publisher, number, content)
            for publisher, contents in (advertisements or {}).items()
            for number, content in enumerate(contents)
        ]
        try:
            for client, subscription in self._store.subscriptions() or ():
                if subscription.route and subscription.name in self.subscriptions(client):
                    number = self._enter(client, subscription.name, subscription.route)
                    filters.append(("subscription", self._owner, number, subscription.route))
            self.router = ServedRouter(
                relation,
                identity,
                {f"/{name}": place for name, place in neighbours.items()},  # no client's name
                self._arrived,
                filters=tuple(filters),
                advertise=advertise,
                slack=slack,
                arrived=self._done.append,
                patience=patience,
                host=host,
                port=port,
            )
        except BaseException:
            super().close()
            raise
        self._thread = Thread(target=self._send_again, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all links, and release the file, which holds what has not arrived."""
        self._ending.set()
        self._thread.join()
        self.router.close()
        with suppress(LedgerError), self._lock, self._store.transaction():
            self._forget_arrived()
        super().close()

    # -- subscriptions ---------------------------------------------------------------------------

    def subscribe(self, client: str, subscription: Subscription | bytes) -> None:
        """Register a subscription, as `MatchingBroker.subscribe` does, and tell the network.

        Events of other edges arrive once all brokers on their way know its route.

        Raises:
            DecodeError: it has no route, or a malformed one.
            CcbpsError: as for `MatchingBroker.subscribe`.
        """
        with self._door.counting():
            if not isinstance(subscription, Subscription):
                subscription = Subscription.from_bytes(subscription)
            self._check(subscription)
        with self._changing:
            super().subscribe(client, subscription)
            self._announce(client, subscription)

    def subscribe_all(self, subscriptions: Sequence[tuple[str, Subscription]]) -> None:
        for _, subscription in subscriptions:
            self._check(subscription)
        with self._changing:
            super().subscribe_all(subscriptions)
            for pair in subscriptions:
                self._announce(*pair)

    def unsubscribe(self, client: str, name: str) -> None:
        with self._changing:
            super().unsubscribe(client, name)
            self._forget(client, [name])

    def revoke(self, client: str, user: bytes | None = None) -> None:
        with self._changing:
            super().revoke(client, user)
            self._forget(client, [name for owner, name in self._routes if owner == client])

    def _check(self, subscription: Subscription) -> None:
        if subscription.route is None:
            raise DecodeError("in a network of brokers a subscription has a route")
        self._relation.read_filter(subscription.route)

    def _announce(self, client: str, subscription: Subscription) -> None:
        """Tell the network the route of a subscription, and end the one that it had before."""
        key, route = (client, subscription.name), subscription.route or b""
        old = self._routes.get(key)
        if old is not None and old[1] == route:
            return
        number = self._enter(client, subscription.name, route)
        self.router.add("subscription", self._owner, number, route)
        if old is not None:
            self.router.withdraw("subscription", self._owner, old[0])

    def _enter(self, client: str, name: str, route: bytes) -> int:
        # Numbers of an earlier broker with this identity were smaller.
        self._number = max(self._number + 1, time.time_ns())
        self._routes[client, name] = self._number, route
        return self._number

    def _forget(self, client: str, names: Sequence[str]) -> None:
        for name in names:
            if (old := self._routes.pop((client, name), None)) is not None:
                self.router.withdraw("subscription", self._owner, old[0])

    # -- publications ----------------------------------------------------------------------------

    def publish_all(
        self, publisher: str, publications: Sequence[Publication | bytes]
    ) -> list[Receipt | CcbpsError]:
        """Send publications of a client into the network, in order, each by itself.

        Returns:
            a receipt of each, or an error: of `MatchingBroker.publish`; of `ServedRouter.publish`;
            or a `DecodeError` if it has no route or no payload.
        """
        return [self._sent(publisher, one) for one in publications]

    def _sent(self, publisher: str, sent: Publication | bytes) -> Receipt | CcbpsError:
        try:
            with self._door.reading(publisher, Publication, sent) as (new, message):
                if new.route is None or new.payload is None:
                    raise DecodeError("in a network of brokers a publication has route and payload")
                digest = new.digest(message)
                with self._lock:
                    numbers = self._taken[publisher]
                    receipt = numbers.receipt(new, digest)
                    if receipt is not None:
                        return receipt
                    if self._unsent:
                        raise RefusedError("earlier publications go first: wait", reason="order")
                    self._send(publisher, new)
                    numbers.add(new.number, Accepted(digest, None))
                    if new.round is not None:
                        numbers.next_round = new.round + 1
                return Receipt(new.number)
        except CcbpsError as error:
            return error

    def _send(self, publisher: str, publication: Publication, before: int | None = None) -> None:
        """Send a publication into the network, and keep it until it has arrived.

        Args:
            publisher: name of its publisher.
            publication: the publication.
            before: number that it had before this broker started.
        """
        route = publication.route or b""
        content = structs.replace(publication, route=None, after=None).to_bytes()
        with self._store.transaction():
            number = self.router.publish(publisher, route, content)
            self._store.send(number, publisher, publication.to_bytes())
            if before is not None:
                self._done.append(before)
            self._forget_arrived()

    def _forget_arrived(self) -> None:
        """Delete publications that have arrived from the file; within a transaction."""
        self._store.arrived([self._done.popleft() for _ in range(len(self._done))])

    def _send_again(self) -> None:
        """Send the publications that were on their way when an earlier broker ended."""
        while self._unsent and not self._ending.is_set():
            before, publisher, message = self._unsent[0]
            try:
                with self._lock:
                    self._send(publisher, Publication.from_bytes(message), before)
                    self._unsent.popleft()
                continue
            except (RefusedError, LedgerError) as error:
                passes = isinstance(error, LedgerError) or error.reason in LATER
                if not passes and self.router.router.is_ready:
                    _log.warning("a publication of %s is dropped: %s", publisher, error)
                    self._unsent.popleft()
                    self._done.append(before)
            self._ending.wait(PAUSE_SECONDS)

    def _arrived(self, event: routing.Publication, _: list[str]) -> None:
        """Match a publication that came over the network, or from a client of this edge."""
        take: Callable[[str, Sequence[bytes]], list[Receipt | CcbpsError]] = super().publish_all
        waits = False
        while not self._ending.is_set():
            (result,) = take(event.publisher, [event.payload])
            if isinstance(result, Receipt):
                return
            passes = isinstance(result, RefusedError) and result.reason in LATER
            if not passes and not isinstance(result, LedgerError):
                _log.warning("a publication of %s is dropped: %s", event.publisher, result)
                return
            if not waits:
                waits = True
                _log.warning("a publication of %s waits: %s", event.publisher, result)
            self._ending.wait(PAUSE_SECONDS)
