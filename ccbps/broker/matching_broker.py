"""A broker as a running service: it registers subscriptions, matches publications and delivers.

It runs any scheme, whose kind decides how subscriptions are kept (`ccbps.broker.books`). It is not
trusted: the scheme encrypts events and interests, topics are tokens, and publishers encrypt
payloads. Beside the leaks on the scheme's card, the broker learns who subscribes and publishes,
when, under which token, and which client gets which publication.

*Payloads* come with a publication, perhaps with wrapped keys, one for each client that matches. Or
they come later: the receipt names the clients that match, and the publisher seals for them
(`ccbps.delivery.GroupSealer`) and calls `deliver`.

*Exactly once.* With a file (`path`) a publication and its deliveries are on disk when the publisher
has its receipt. A publisher that got no receipt repeats the publication, and the broker knows by
its number whether it was accepted. A delivery waits until it is acknowledged, and names publisher
and number.

*Revocation* takes effect at once, also for existing subscriptions, deliveries that wait, and
publications that are being matched.

Hazard: the caller must authenticate the names of clients, such as by passwords.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Final, Literal

from ccbps.access import Presentation
from ccbps.broker.accepted import Kept, Publishers
from ccbps.broker.door import Door
from ccbps.broker.enforcement import Enactment, Enforcement, NoEnforcement
from ccbps.broker.ingress import Ingress
from ccbps.broker.last_rounds import LastRounds, notice
from ccbps.broker.mailbox import Mailboxes
from ccbps.broker.messages import (
    Delivery,
    Hellos,
    Payloads,
    Publication,
    Receipt,
    SealedGrants,
    Subscription,
    check_name,
)
from ccbps.broker.metrics import Metrics, metrics_text
from ccbps.broker.policies import Policies
from ccbps.broker.prefilter import FilterKind
from ccbps.broker.quotas import Quota
from ccbps.broker.store import BrokerStore, NoStore, Store
from ccbps.broker.subscriptions import Subscriptions
from ccbps.broker.trio_clients import TrioClients
from ccbps.checks import choice, instance, octets, whole
from ccbps.errors import CcbpsError, ParameterError
from ccbps.filters.contents import MaskLayout
from ccbps.keys.secret import Confined
from ccbps.matching.contract.broker import Broker
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers, Keying
from ccbps.trio.leader import Leader

if TYPE_CHECKING:
    from prometheus_client import Metric

_log: Final = logging.getLogger(__name__)
REMEMBER: Final = 1 << 12
"""Number of each publisher's publications that are remembered one by one."""


class MatchingBroker(Confined):
    """A broker with clients. Several threads may use it.

    Attributes:
        matcher: matcher of its interests and events.
        quota: limits of each client.
        access: access control.
        numbering: 8 random bytes that distinguish this broker's sequence numbers from those of
            others. A broker that starts again with its file keeps them.
        on_delivery: function that is called with a client's name after a delivery was put into its
            queue; must return at once.
        on_revoked: function that is called with a client's name when it was revoked; must return
            at once.
        on_notice: function that is called with a client's name when `notices` has something new for
            it; must return at once.

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
        broker: Broker | Leader | Matcher,
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
        access: Enforcement | None = None,
        masks: MaskLayout | None = None,
    ) -> None:
        """Start a broker, and read its file if it has one.

        Args:
            broker: the matcher's broker, `Matcher.broker`; broker 0 of three
                (`ccbps.trio.Leader`); or the matcher itself if subscribers decide.
            path: path of the broker's file, which one broker at a time may use. None keeps
                everything in memory.
            durable: whether accepted messages survive a loss of power. Otherwise they survive only
                the death of the process, and a publication takes less time.
            prefilter: "cuckoo", "bloom", or None for no filter.
            keep: number of latest publications that are kept for later subscribers.
            quota: limits of each client; `Quota()` if None.
            when_full: fate of a publication for a client whose queue is full. "drop" drops that
                client's oldest delivery, which shows in its sequence numbers and in `metrics`.
                "refuse" refuses the publication: its publisher waits and nothing is lost, but one
                absent client stops all publishers.
            remember: number of each publisher's publications that are remembered one by one.
                Publications with smaller numbers are refused.
            on_delivery: function that is called with a client's name after a delivery was put into
                its queue; must return at once.
            clock: source of seconds for quotas.
            timer: source of seconds of processor time that the calling thread used.
            access: access control; None lets every client publish and subscribe.
            masks: layout of the content filter (`ContentFilter.layout`) whose masks all
                subscriptions and publications have. Only pairs whose masks fit are tested. None for
                no masks.

        Raises:
            LedgerError: the file cannot be used.
            ParameterError: the file is another matcher's, key's, epoch's or content filter's; or
                there are masks, and the matcher's broker does not test all pairs by itself.
        """
        relays = isinstance(broker, Matcher) and broker.answers is Answers.SUBSCRIBER
        if not relays:
            hint = "make one by matcher.broker(...), or give a matcher whose subscribers decide"
            instance("broker", broker, (Broker, Leader), hint=hint)
        choice("when_full", when_full, ("drop", "refuse"))
        if keep and access is not None and access.when == "after":
            raise ParameterError(
                "keep must be 0 where a policy is enforced after matching: later subscribers would "
                "need the matches of filters that are forgotten; enforce it before matching"
            )
        self._broker, self.quota, self.on_delivery = broker, quota or Quota(), on_delivery
        self.on_revoked: Callable[[str], object] | None = None
        self.on_notice: Callable[[str], object] | None = None
        self._last_rounds, self.access = LastRounds(), access or NoEnforcement()
        # One thread at a time changes subscriptions. The lock is for what takes no time.
        self._changing, self._lock = RLock(), RLock()
        self._metrics, self._revoked = Metrics(), set[bytes]()
        self._subscriptions = Subscriptions(broker, prefilter, self._lock, self._metrics, masks)
        self.matcher, self._examiner = self._subscriptions.matcher, self._subscriptions.examiner
        self._publishers = Publishers(whole("remember", remember, 1))
        self._kept = Kept(whole("keep", keep, 0), prefilter)
        self._store: Store = NoStore()
        if path is not None:
            names = (broker.digest, b"", 0) if isinstance(broker, Matcher) else broker.names
            layout = "" if masks is None else masks.to_text()
            self._store = BrokerStore(Path(path), (*names, layout), durable)
        self._trio_clients, self.numbering = TrioClients(broker, self._store), self._store.numbering
        self._boxes = Mailboxes(
            self.quota, when_full == "drop", clock, self._store, self._metrics, relays
        )
        self._policies = Policies(
            self.access, self._lock, self._subscriptions, self._store, self._kept, self._end
        )
        timer = broker.with_workers(timer) if isinstance(broker, Leader) else timer
        self._door = Door(self._boxes, self._lock, self._metrics, timer)
        self._ingress = Ingress(
            self._door,
            self._lock,
            self._publishers,
            self._kept,
            self._boxes,
            self._subscriptions,
            self._store,
            self._metrics,
            self.quota,
            self.access,
        )
        try:
            if path is not None:
                self._load()
        except BaseException:
            self._store.close()
            raise

    def __repr__(self) -> str:
        count = len(self._subscriptions.registry)
        return f"<MatchingBroker of {self.matcher!r}, {count} subscriptions>"

    def close(self) -> None:
        """Release the file, which holds the waiting deliveries."""
        with self._changing, self._lock:
            self._store.close()

    def _load(self) -> None:
        """Read the file."""
        self._trio_clients.load()
        for client, sequence, revoked in self._store.clients():
            box = self._boxes[client]
            box.following, box.revoked = sequence, bool(revoked)
        for client, delivery in self._store.deliveries():
            self._boxes[client].put(delivery)
        for user in self._store.users():
            self._forget_user(user)
        for publisher, number, accepted in self._store.numbers():
            self._publishers[publisher].add(number, accepted)
        for publisher, oldest, turn in self._store.publishers():
            numbers = self._publishers[publisher]
            numbers.oldest, numbers.next_round = max(numbers.oldest, oldest), turn + 1
        with self._store.transaction():
            self._store.keep_last(self._kept.most)
        for publisher, publication in self._store.kept():
            self._kept.add(publisher, publication)
        subscriptions = self._subscriptions.usable(
            [*self._store.subscriptions()], self.access.encoder
        )
        self._policies.load(subscriptions)
        self._subscriptions.add_all(subscriptions)
        for pair in subscriptions:
            self._last_rounds.add(*pair)
        self._policies.end_forbidden()
        # An earlier broker was killed before it delivered to these.
        for client, subscription, kept in self._store.awaiting_kept():
            if subscription.name in self._subscriptions.registry.of(client):
                kept = [pair for pair in kept if subscription.concerns(*pair)]
                self._ingress.deliver_kept(client, subscription, kept)

    # -- subscriptions ---------------------------------------------------------------------------

    def greet(self, client: str, hellos: Hellos | bytes) -> None:
        """Take a client's keys for three brokers; equal ones change nothing.

        Raises:
            CcbpsError: as for `subscribe`; or the hellos are not for these three brokers, or the
                two other brokers cannot be reached.
        """
        with self._door.reading(client, Hellos, hellos) as (new, message):
            name = self._trio_clients.greet(client, new, self.quota.subscriptions)
            with self._changing, self._lock:
                self._boxes.admitted(client)  # it may have been revoked meanwhile
                self._trio_clients.keep(client, name, message)

    def grant(self, client: str, grants: SealedGrants | bytes) -> None:
        """Take grants from any client, in place of earlier ones; equal ones change nothing.

        Raises:
            CcbpsError: as for `subscribe`, or the brokers refuse them; nothing was changed.
        """
        with self._door.reading(client, SealedGrants, grants) as (new, _):
            self._trio_clients.verify(new.messages)
            with self._changing:
                with self._lock:
                    self._boxes.admitted(client)  # it may have been revoked meanwhile
                    messages = self._trio_clients.write(new.messages)
                self._trio_clients.put(messages)

    def subscribe(self, client: str, subscription: Subscription | bytes) -> None:
        """Register a subscription, in place of the client's one with that name.

        Kept publications that match are delivered at once. An equal subscription changes nothing.

        Raises:
            DecodeError: malformed, or not of the broker's matcher, key and epoch.
            RefusedError: the client was revoked, or its quota is used up.
            LedgerError: the file cannot be written. In all cases nothing was changed.
        """
        kept: list[tuple[str, Publication]] = []
        with self._door.reading(client, Subscription, subscription) as (new, _):
            self.access.check(client, new)
            # Three brokers may take their time: others may be served meanwhile.
            encoder = self.access.encoder(client)
            self._subscriptions.check_masks([new])
            self._examiner.check([(f"{encoder}/{new.name}", new)])

            def enter() -> None:
                # All publications accepted from here on are matched with it: none comes twice.
                if self._kept.most and self._kept.stops(new):
                    self._metrics.add("kept_prefiltered")
                else:
                    kept.extend(self._kept.for_subscription(new))
                with self._store.transaction():
                    self._store.subscribe(client, new, awaits_kept=bool(kept))
                self.access.enter(client, new)

            with self._changing:
                self._subscriptions.require_room(client, new, self.quota)
                with self._lock:
                    self._boxes.admitted(client)  # it may have been revoked, and come back
                    self.access.check(client, new)  # by a policy that is new
                    self._examiner.check_owner(encoder, new)
                    if self._subscriptions.has(client, new):
                        return
                self._subscriptions.add(client, new, enter)
                with self._lock:
                    self._last_rounds.add(client, new)
                told = self._ingress.deliver_kept(client, new, kept)
        self._tell(told)

    def subscribe_all(self, subscriptions: Sequence[tuple[str, Subscription]]) -> None:
        """Register many subscriptions of several clients at once, to set a broker up.

        It is faster than `subscribe`. No quota applies, and kept publications are not delivered.

        Raises:
            DecodeError: one of them is malformed; none was registered.
            ParameterError: a name is there already, or twice.
            RefusedError: a client was revoked.
        """
        with self._changing:
            seen = set()
            for client, one in subscriptions:
                self._boxes.admitted(client)
                self.access.check(client, one)
                names = self._subscriptions.registry.of(client)
                if one.name in names or (client, one.name) in seen:
                    raise ParameterError(f"{client} has a subscription {one.name!r} already")
                seen.add((client, one.name))
            encoder = self.access.encoder
            self._subscriptions.check_masks(one for _, one in subscriptions)
            self._examiner.check(
                [(f"{encoder(client)}/{one.name}", one) for client, one in subscriptions]
            )
            with self._lock, self._store.transaction():
                for client, one in subscriptions:
                    self._store.subscribe(client, one, awaits_kept=False)
                    self._last_rounds.add(client, one)
                    self.access.enter(client, one)
            self._subscriptions.add_all(subscriptions)

    def unsubscribe(self, client: str, name: str) -> None:
        """Forget a subscription. Its waiting deliveries stay in the queue.

        Raises:
            ParameterError: the client has no subscription of that name.
            RefusedError: the client was revoked, or its quota is used up.
            LedgerError: the file cannot be written; nothing was changed.
        """
        with self._door.serving(client, 0), self._changing:
            self.access.check_client(client)
            if name not in self._subscriptions.registry.of(client):
                raise ParameterError(f"{client} has no subscription {name!r}")
            self._end(client, [name])

    def _end(self, client: str, names: Sequence[str]) -> None:
        """Forget subscriptions of a client."""
        with self._lock, self._store.transaction():
            for name in names:
                self._store.unsubscribe(client, name)
        self._subscriptions.remove(client, names)
        with self._lock:
            self._last_rounds.remove(client, names)
            self.access.leave(client, names)

    def subscriptions(self, client: str) -> list[str]:
        """Return the names of a client's subscriptions."""
        with self._lock:
            return [*self._subscriptions.registry.of(client)]

    def revoke(self, client: str, user: bytes | None = None) -> None:
        """Shut a client out: it is refused, and its subscriptions and deliveries are gone.

        Publications of the client are delivered, but not kept for later subscribers.

        Args:
            client: name of the client.
            user: result of `KeyServer.revoke`, if the scheme has users. Messages with this user's
                key are then refused from other clients, too.

        Raises:
            ParameterError: the broker does not serve the user, and never revoked it.
            LedgerError: the file cannot be written; nothing was changed.
        """
        check_name("client", client)
        if user is not None:
            user = octets("user", user, hint="it is what KeyServer.revoke returns")
            if user not in self._revoked and not self._serves(user):
                raise ParameterError(f"the broker serves no user {user.hex()}")
        with self._changing:
            names = self.subscriptions(client)
            with self._lock:
                box = self._boxes[client]
                # Payloads that are sealed for it later count as delivered.
                unsealed = [
                    (publisher, number, accepted)
                    for publisher, numbers in self._publishers.items()
                    for number, accepted in numbers.waiting_for(client)
                ]
                with self._store.transaction():
                    self._store.revoke(client)
                    for publisher, number, accepted in unsealed:
                        served = accepted.served | {client}
                        self._store.served(publisher, number, accepted.clients, served)
                    if user is not None:
                        self._store.revoke_user(user)
                    self._store.drop(client, [one.sequence for one in box.waiting])
                # From here on nothing comes into its queue, whatever is being matched.
                box.revoked = True
                box.drop(len(box.waiting))
                for *_, accepted in unsealed:
                    accepted.served.add(client)
                self._kept.forget(client)
                self._last_rounds.remove(client, names)
                self.access.forget(client, names)
                self._metrics.add("revoked")
            if user is not None:
                self._forget_user(user)
            self._subscriptions.remove(client, names)
            self._trio_clients.forget(client)
        self._call(self.on_revoked, [client])

    def admit(self, client: str) -> None:
        """Let a client that was revoked come back. It must subscribe anew."""
        check_name("client", client)
        with self._changing, self._lock:
            with self._store.transaction():
                self._store.admit(client)
            self._boxes[client].revoked = False

    # -- policies --------------------------------------------------------------------------------

    def enact(self, policy: Enactment | bytes, *, client: str | None = None) -> None:
        """Put a policy into force, for subscriptions that exist, too.

        The authority has signed it, so anybody may bring it. An equal policy changes nothing.
        Publications that were kept for later subscribers are forgotten, as another policy judged
        them.

        Args:
            policy: the policy.
            client: client that brings it, which is charged for the time; None for the operator.

        Raises:
            ParameterError: the broker enforces no policy; or the policy has filters, and
                subscribers decide which events match.
            DecodeError: it is malformed, or not signed by the authority.
            ReplayError: it is older than the one in force.
            RefusedError: the client was revoked, or its quota is used up.
            LedgerError: the file cannot be written; nothing was changed.
        """
        self._policies.enforcement()
        message = policy.to_bytes() if isinstance(policy, Enactment) else policy
        with self._door.counting() if client is None else self._door.serving(client, len(message)):
            new = policy if isinstance(policy, Enactment) else Enactment.from_bytes(policy)
            with self._changing:
                told = self._policies.enact(new, message)
        self._call(self.on_notice, told)

    def present(self, client: str, presentation: Presentation | bytes) -> None:
        """Take a client's token, with which it may publish, subscribe and receive.

        Raises:
            ParameterError: the broker enforces no policy.
            DecodeError: the token is malformed, or not of the authority.
            RefusedError: the proof is missing, or the token ended or was revoked; or the client was
                revoked, or its quota is used up.
            ReplayError: the presentation is not new.
        """
        access = self._policies.enforcement()
        with self._door.reading(client, Presentation, presentation) as (new, _):
            access.present(client, new)
            with self._lock, self._store.transaction():
                self._store.present(client, new.token)

    # -- publications ----------------------------------------------------------------------------

    def publish(self, publisher: str, publication: Publication | bytes) -> Receipt:
        """Match a publication, and put it into the queues of the clients that match.

        Raises:
            DecodeError: malformed, or not of the broker's matcher, key and epoch.
            ReplayError: another publication has this number, the number is too old to be known, or
                the round was used.
            RefusedError: the client was revoked, its quota is used up, a queue is full, or the
                publication comes after one that was not accepted.
            LedgerError: the file cannot be written. In all cases nothing was delivered. If the
                publication is not at fault, publish it again.
        """
        (result,) = self.publish_all(publisher, [publication])
        if isinstance(result, CcbpsError):
            raise result
        return result

    def publish_all(
        self, publisher: str, publications: Sequence[Publication | bytes]
    ) -> list[Receipt | CcbpsError]:
        """Publish several publications of a publisher, which are matched together.

        They are accepted in order, each by itself, as by `publish`.

        Returns:
            a receipt of each, or the error that `publish` would raise.
        """
        with self._door.charging(publisher):
            results, told = self._ingress.take_in(publisher, publications)
            self._tell(told)
            with self._lock:
                due = self._last_rounds.due(publisher, self._publishers.next_round(publisher))
        self._call(self.on_notice, due)
        return results

    def deliver(self, publisher: str, payloads: Payloads | bytes) -> None:
        """Deliver payloads that the publisher sealed for the clients that match a publication.

        Several calls may each serve some clients, as they must if all messages together are larger
        than `Quota.message_bytes`. A call may be repeated: nobody gets a payload twice.

        Raises:
            DecodeError: malformed.
            RefusedError: the publisher was revoked, its quota is used up, or a queue is full.
            ParameterError: the publication is not there, or a client does not match it.
        """
        with self._door.reading(publisher, Payloads, payloads) as (sealed, _), self._lock:
            self.access.check_deliver(publisher)
            number, messages = sealed.number, sealed.messages
            numbers = self._publishers[publisher]
            accepted = numbers.waiting(number)
            if accepted is None:
                return  # all clients have theirs
            clients = {*(accepted.clients or ())}
            if others := messages.keys() - clients:
                raise ParameterError(f"{min(others)} does not match publication {number}")
            deliveries = [
                (client, Delivery(self._boxes[client].following, publisher, number, (), message))
                for client, message in messages.items()
                if client not in accepted.served
            ]
            served = accepted.served | messages.keys()
            is_over = sealed.last or served == clients
            with self._boxes.put(deliveries):
                self._store.served(publisher, number, None if is_over else clients, served)
            accepted.served = served
            if is_over:
                numbers.finish(number)
        self._tell([client for client, _ in deliveries])

    # -- deliveries ------------------------------------------------------------------------------

    def take(self, client: str, most: int = 100, *, after: int = -1) -> list[Delivery]:
        """Return deliveries that wait for a client, oldest first.

        A delivery waits until it is acknowledged.

        Args:
            client: name of the client.
            most: largest number of deliveries.
            after: sequence number; only deliveries with larger ones are returned.

        Raises:
            RefusedError: the client was revoked, or has no right to receive, or the broker's time
                for it is used up.
        """
        whole("most", most, 1)
        whole("after", after)
        with self._door.serving(client), self._lock:
            box = self._boxes.admitted(client)
            waiting = box.after(after, most)
            return [*self.access.release(client, waiting, lambda last: box.after(last, most))]

    def acknowledge(self, client: str, sequence: int) -> None:
        """Forget a client's deliveries up to a sequence number: the client has them.

        Raises:
            RefusedError: the client was revoked, or the broker's time for it is used up.
            LedgerError: the file cannot be written; nothing was changed.
        """
        whole("sequence", sequence)
        with self._door.serving(client), self._lock:
            self._boxes.acknowledge(client, sequence)

    def notices(self, client: str) -> list[str]:
        """Return notices for a client of subscriptions that end by their rounds or a policy.

        Raises:
            RefusedError: the client was revoked, or the broker's time for it is used up.
        """
        if self.matcher.keying is not Keying.ROUNDS and isinstance(self.access, NoEnforcement):
            return []
        with self._door.serving(client), self._lock:
            texts: list[str | None] = [*self.access.notices(client)]
            texts += [
                notice(name, publisher, rounds, self._publishers.next_round(publisher))
                for name, (publisher, rounds) in self._last_rounds.of(client).items()
            ]
        return [text for text in texts if text is not None]

    def knows(self, client: str) -> bool:
        """Tell whether a client of this name was ever here."""
        check_name("client", client)
        with self._lock:
            own = self._subscriptions.registry.of(client)
            return bool(own) or client in self._boxes or client in self._publishers

    def turn_away(self, client: str, size: int) -> None:
        """Refuse a message that need not be read, for callers that queue messages.

        Raises:
            RefusedError: the client was revoked, or the message is too large.
        """
        # Without the lock, which a publication holds while it is written.
        with self._door.counting():
            self._boxes.turn_away(client)
            self.quota.require_size(size)

    # -- information for others ------------------------------------------------------------------

    def topic_filter(self) -> bytes:
        """Return the filter of tokens with subscriptions: publishers need not encode other events.

        `CuckooFilter.from_bytes` or `CountingBloomFilter.from_bytes` reads it.

        Raises:
            ParameterError: there is no filter, or a client subscribed to all topics.
            FilterFullError: a client has chosen tokens that do not fit.
        """
        with self._lock:
            if self._subscriptions.to_all_topics(self.access.owner):
                raise ParameterError("somebody subscribed to all topics: every event is wanted")
            return self._subscriptions.topics.to_bytes()

    def metrics(self) -> str:
        """Return counts as OpenMetrics text.

        Raises:
            ImportError: prometheus-client, the extra ``metrics``, is missing.
        """
        return metrics_text(self)

    def collect(self) -> Iterator[Metric]:
        """Yield metrics for prometheus-client, in whose registries a broker is a collector.

        Raises:
            ImportError: prometheus-client, the extra ``metrics``, is missing.
        """
        with self._lock:
            waiting = sum(len(box.waiting) for box in self._boxes.values())
            gauges = {"waiting": waiting, "kept": len(self._kept), **self._subscriptions.gauges()}
            metrics = [*self._metrics.collect(gauges)]
        yield from metrics

    # -- inside ----------------------------------------------------------------------------------

    def _serves(self, user: bytes) -> bool:
        """Tell whether the scheme's broker serves a user."""
        return isinstance(self._broker, Broker) and user.hex() in self._broker.users

    def _forget_user(self, user: bytes) -> None:
        """Revoke a user of the scheme, if the broker still serves it."""
        self._revoked.add(user)
        if isinstance(self._broker, Broker) and self._serves(user):
            self._broker.revoke(user)

    def _tell(self, clients: Sequence[str]) -> None:
        """Call `on_delivery` for clients."""
        self._call(self.on_delivery, clients)

    @staticmethod
    def _call(hook: Callable[[str], object] | None, clients: Iterable[str]) -> None:
        """Call a function of the broker's user for clients."""
        if hook is not None:
            for client in clients:
                try:
                    hook(client)
                except Exception:  # what the broker did is done all the same
                    _log.exception("a call for %s failed", client)
