"""A broker of an overlay that enforces labels, policies of hops, and domains.

It stands before and behind a `Router`, of which it has one for each topic. Each message that comes
over a link is examined before the router sees it, and each that the router sends is examined again:

1. The link is one of the topic's routes, so both ends may be linked, and neither is in a domain
   whose transit is forbidden.
2. The message is a `SealedMessage` of this topic, kind, owner and number, of an epoch that is not
   over. A broker whose domain is a member opens it.
3. All signatures and rights of its stamp hold, by this broker's own list of parties. That is
   examined at every hop or, if brokers of one domain trust one another, at the domain's border.
4. Its owner has the right to it, if the broker has a guard (`ccbps.overlay.rights`): examined where
   signatures are.
5. The hop policy allows it, and perhaps raises its label.
6. Its label flows to the broker that receives it: on the way out the neighbour, on the way in this
   broker. For a broker whose domain is no member, sealing stands for a declassification by the
   topic's owner, and the label of the topic itself must flow to it.

A message that fails is dropped and counted, by direction and reason. Nobody is notified, since the
sender may be the attacker. A client's own message that fails is refused with an error.

An event is delivered if its label flows to the client and its privacy level is at most the
client's, both by the lists of this broker at the time of the delivery; and if, with a guard, the
client may receive it. Deliveries wait in a queue in order of priority (`AgeingQueue`), and then
until the client's rate to receive lets them through.

Leak: brokers of member domains read filters and events; for others see `ccbps.access.domains`.
Hazards: a broker can withhold messages. A replayed filter that its owner has withdrawn is accepted
until the epoch is over. Clients trust the broker at their edge.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from ccbps.access import Guard
from ccbps.access.domains import DomainMap, KeyRing, SealedMessage
from ccbps.access.hops import AgeingQueue, Clearance, Direction, Hop, HopPolicy
from ccbps.access.labels import Body, Label, Party, Stamp, Subject
from ccbps.checks import choice, number
from ccbps.errors import DecodeError, MissingKeyError, ParameterError, RefusedError
from ccbps.keys.plain_key import SigningKey
from ccbps.keys.secret import Confined
from ccbps.overlay.guarded_relation import GuardedRelation, Reading
from ccbps.overlay.links import Port
from ccbps.overlay.rights import OverlayPolicy, Rights, When
from ccbps.overlay.routing.relations import Relation
from ccbps.overlay.routing.router import (
    KINDS,
    Add,
    Name,
    Publication,
    Router,
    RoutingMessage,
    Withdraw,
)

Filter: TypeAlias = Literal["advertisement", "subscription"]
MOST_WAITING: Final = 100_000
"""Largest number of deliveries of a broker, or messages of a link, that wait."""
MOST_PACED: Final = 10_000
"""Largest number of deliveries of a client that wait for its rate to receive."""


@dataclass(frozen=True, slots=True)
class GuardedMessage:
    """Message between two guarded brokers.

    Attributes:
        topic: topic.
        message: message of the topic's routers.
    """

    topic: str
    message: RoutingMessage


class _Way(NamedTuple):
    """A broker's part of a topic's routes.

    Attributes:
        relation: relation of the topic's messages.
        router: router.
        passed: kinds and names of filters that passed the guard to each neighbour.
    """

    relation: GuardedRelation
    router: Router
    passed: dict[str, set[tuple[str, Name]]]


class GuardedBroker(Confined):
    """A broker with labels, hop policy and domains.

    Args:
        port: way out into the network, which knows the broker's name.
        domains: map of all brokers.
        ring: keys of this broker's domain.
        key: key that signs changes of labels.
        parties: clients and brokers with their rights, from a trusted service.
        clearance: function that asks a trusted service for the privacy level and priority of a
            client; it returns None for strangers, who get nothing.
        relation: relation of the contents.
        policy: policy of this broker's hops.
        deliver: function that takes a client's name and a publication in the clear.
        advertise: True if subscriptions go only where advertisements come from.
        verify: "every hop", or "border" to examine only the stamps of messages from other domains
            and of own clients, and trust the brokers of the own domain.
        priorities: number of priorities of deliveries.
        rate: deliveries a second; None for no limit.
        guard: guard of this broker, to which its clients present their tokens; `enact` gives it
            policies. Rates to receive follow its timer, which must be that of the port. None for no
            access control.
        when: "before" or "after", for the filters of a policy to apply before or after matching
            (`ccbps.overlay.rights`).

    Attributes:
        dropped: number of messages that were dropped, by direction and reason, such as "in label".
    """

    def __init__(
        self,
        port: Port,
        domains: DomainMap,
        ring: KeyRing,
        key: SigningKey,
        parties: Mapping[str, Party],
        clearance: Callable[[str], Clearance | None],
        relation: Relation,
        policy: HopPolicy,
        deliver: Callable[[str, Publication], None],
        *,
        advertise: bool = True,
        verify: Literal["every hop", "border"] = "every hop",
        priorities: int = 16,
        rate: float | None = None,
        guard: Guard | None = None,
        when: When = "before",
    ) -> None:
        self.name, self._port, self._domains, self._ring = port.name, port, domains, ring
        if domains.domain(self.name) != ring.domain:
            raise ParameterError(f"ring must be that of the domain of {self.name!r}")
        self._key, self._parties, self._clearance = key, parties, clearance
        self._relation, self._policy, self._deliver = relation, policy, deliver
        self._advertise = advertise
        self._verify = choice("verify", verify, ("every hop", "border"))
        self._wheres = {
            rule.where: relation.read_filter(rule.where)
            for rule in policy.rules
            if rule.where is not None
        }
        self._rights = None if guard is None else Rights(guard, relation, when)
        self._behind: dict[str, deque[Any]] = {}
        self._queue: AgeingQueue[tuple[str, Reading, Publication]] = AgeingQueue(
            priorities, MOST_WAITING
        )
        self._paced: dict[str, deque[tuple[Reading, Publication]]] = {}
        self._pause = None if rate is None else 1 / number("rate", rate, 1e-9)
        self._is_serving = False
        self._ways: dict[str, _Way] = {}
        self._own: dict[tuple[str, Filter, str, int], tuple[Stamp, Body, int]] = {}
        self.dropped: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<GuardedBroker {self.name!r} of {self._ring.domain!r}: {len(self._ways)} topics>"

    # -- topics and links -----------------------------------------------------------------------

    def refresh(self, topic: str) -> list[tuple[Filter, str, int]]:
        """Follow a manager's notice of a topic, and new keys.

        Filters of epochs that are over are forgotten. Own clients' filters are sealed again; until
        the new key is there, they match nothing. Each end of a link must follow a notice before
        messages of the other end arrive.

        Returns:
            kind, client and number of own clients' filters that ended because this domain is no
            longer a member, or is not on the routes.
        """
        way = self._ways.get(topic) or self._open(topic)
        self._ways[topic] = way
        neighbours = self._domains.neighbours(topic, self.name)
        for gone in [*way.router.sent["subscription"].keys() - neighbours]:
            self._disconnect(way, gone)
        for neighbour in neighbours:
            if neighbour not in way.router.sent["subscription"]:
                way.passed[neighbour] = set()
                way.router.connect(neighbour)
        oldest = self._domains.topic(topic).oldest
        for kind in KINDS:
            for link in neighbours:
                table = way.router.tables[kind][link]
                read = way.relation.read
                old = [n for n, content in table.items() if read(content).sealed.epoch < oldest]
                for name in old:
                    way.router.receive(link, Withdraw(kind, name))
        return self._renew(topic, way)

    def disconnect(self, neighbour: str) -> None:
        """Forget a neighbour whose link broke; `refresh` takes the link up again."""
        self._behind.pop(neighbour, None)
        for way in self._ways.values():
            if neighbour in way.router.sent["subscription"]:
                self._disconnect(way, neighbour)

    def _open(self, topic: str) -> _Way:
        relation = GuardedRelation(self._relation, self._ring, self._domains, topic, self._rights)
        send = partial(self._send, topic)
        deliver = partial(self._queue_delivery, topic)
        return _Way(relation, Router(relation, send, deliver, advertise=self._advertise), {})

    @staticmethod
    def _disconnect(way: _Way, neighbour: str) -> None:
        way.passed.pop(neighbour, None)
        way.router.disconnect(neighbour)

    def _renew(self, topic: str, way: _Way) -> list[tuple[Filter, str, int]]:
        ended: list[tuple[Filter, str, int]] = []
        newest = self._domains.topic(topic).epoch
        for place, (stamp, body, epoch) in [*self._own.items()]:
            name, kind, client, count = place
            if name != topic:
                continue
            if not self._serves(topic):
                way.router.withdraw(kind, client, count)
                del self._own[place]
                ended.append((kind, client, count))
            elif epoch < newest and self._ring.key(self._domains.topic(topic), newest):
                sealed = self._sealed(stamp, body)
                way.router.add(kind, client, count, sealed.to_bytes())
                self._own[place] = stamp, body, newest
        return ended

    def _serves(self, topic: str) -> bool:
        """Tell whether clients of this broker can speak on a topic."""
        is_member = self._domains.is_member(topic, self.name)
        return is_member and self.name in self._domains.tree(topic)

    # -- policies -------------------------------------------------------------------------------

    def enact(self, policy: OverlayPolicy) -> list[tuple[str, Filter, str, int]]:
        """Put a version of the policy into force, and take the messages that waited for it.

        Filters that it does not allow are withdrawn, also those of other brokers' clients.

        Returns:
            topic, kind, client and number of own clients' filters that ended.

        Raises:
            ParameterError: the broker has no guard, or another schema.
            DecodeError: the policy is malformed, or not signed by the authority.
            ReplayError: it was forgotten, or there is another one of this version.
            UnsupportedPredicateError: a filter has more than 256 alternatives.
        """
        rights = self._require_rights()
        rights.enact(policy)
        ended: list[tuple[str, Filter, str, int]] = []
        for topic, way in self._ways.items():
            for kind in KINDS:
                for link, table in [*way.router.tables[kind].items()]:
                    for name, content in [*table.items()]:
                        reading = way.relation.read(content)
                        try:
                            rights.check(reading.stamp, reading.parsed)
                        except MissingKeyError:
                            continue  # without this version's filters, nothing is guessed
                        except RefusedError:
                            if link in way.router.sent[kind]:
                                way.router.receive(link, Withdraw(kind, name))
                            else:
                                self.withdraw(kind, topic, *name)
                                ended.append((topic, kind, *name))
        for neighbour, waiting in [*self._behind.items()]:
            del self._behind[neighbour]
            for message in waiting:
                self.receive(neighbour, message)
        return ended

    def forget(self, below: int) -> None:
        """Refuse events of versions below one from now on: none of them is on its way any more.

        Raises:
            ParameterError: the broker has no guard.
        """
        self._require_rights().forget(below)

    def _require_rights(self) -> Rights:
        if self._rights is None:
            raise ParameterError("guard must be given to a broker that enforces policies")
        return self._rights

    # -- clients --------------------------------------------------------------------------------

    def add(self, stamp: Stamp, body: Body) -> None:
        """Take a subscription or advertisement from its owner, who was authenticated.

        Raises:
            RefusedError: the label, the topic, the domain or the policy does not allow it.
            MissingKeyError: there are no filters of the policy in force here yet.
            DecodeError: the content is malformed.
            ParameterError: the stamp is an event's, or another body's.
        """
        if stamp.kind == "event":
            raise ParameterError("stamp must be that of a filter: publish() takes events")
        way, content = self._accept(stamp, body)
        way.router.add(stamp.kind, stamp.owner, stamp.number, content)
        epoch = way.relation.read(content).sealed.epoch
        self._own[stamp.topic, stamp.kind, stamp.owner, stamp.number] = stamp, body, epoch
        self._drain()

    def withdraw(self, kind: Filter, topic: str, client: str, number: int) -> None:
        """End a client's subscription or advertisement; a missing one is no error.

        The client was authenticated. Withdrawing its own filter takes no right.
        """
        if self._own.pop((topic, kind, client, number), None) is not None:
            self._ways[topic].router.withdraw(kind, client, number)

    def publish(self, stamp: Stamp, body: Body) -> None:
        """Take an event from its owner, who was authenticated.

        Raises:
            RefusedError: the label, the topic, the domain, the policy or the advertisements do not
                allow it.
            MissingKeyError: there are no filters of the policy in force here yet.
            DecodeError: the content is malformed.
            ParameterError: the stamp is a filter's, or another body's.
        """
        if stamp.kind != "event":
            raise ParameterError("stamp must be that of an event: add() takes filters")
        way, content = self._accept(stamp, body)
        way.router.publish(stamp.owner, stamp.number, content)
        self._drain()

    def _accept(self, stamp: Stamp, body: Body) -> tuple[_Way, bytes]:
        """Check a client's message; return the way of its topic, and the sealed message."""
        self._domains.route(stamp.topic, self.name, self.name)  # refused where there is none
        if stamp.owner in self._domains.domains:
            raise ParameterError(f"a client must not have a broker's name, got {stamp.owner!r}")
        label = stamp.check(self._parties)
        self._party(self.name).check_read(label, f"broker {self.name!r}")
        if stamp.topic not in self._ways:
            raise RefusedError(f"topic {stamp.topic!r} is not served yet", reason="domain")
        way, content = self._ways[stamp.topic], self._sealed(stamp, body).to_bytes()
        parsed = way.relation.read(content).parsed
        if self._rights is not None:
            self._rights.accept(stamp, parsed)
        return way, content

    def _sealed(self, stamp: Stamp, body: Body) -> SealedMessage:
        topic = self._domains.topic(stamp.topic)
        key = self._ring.key(topic, topic.epoch)
        if key is None or not self._serves(topic.name):
            raise RefusedError(
                f"domain {self._ring.domain!r} has no key of {topic.name!r} in epoch "
                f"{topic.epoch}: ask the manager of {topic.owner!r} for a grant",
                reason="domain",
            )
        return SealedMessage.seal(stamp, body, topic.epoch, key)

    # -- hops -----------------------------------------------------------------------------------

    def receive(self, neighbour: str, guarded: Any) -> None:
        """Take a message from a neighbour, or drop it. Nothing is raised.

        A message of a policy version that is not here yet waits, and so do all later messages.
        """
        try:
            waiting = self._behind.get(neighbour)
            if waiting is None:
                self._take(neighbour, guarded)
            elif len(waiting) < MOST_WAITING:
                waiting.append(guarded)
            else:
                raise RefusedError(f"{MOST_WAITING:,} messages wait", reason="queue")
        except MissingKeyError:
            self._behind[neighbour] = deque([guarded])
        except RefusedError as error:
            self.dropped[f"in {error.reason}"] += 1
        except DecodeError:
            self.dropped["in malformed"] += 1
        self._drain()

    def _take(self, neighbour: str, guarded: Any) -> None:
        if not isinstance(guarded, GuardedMessage) or not isinstance(guarded.topic, str):
            raise DecodeError("not a guarded message")
        way, message = self._ways.get(guarded.topic), guarded.message
        if way is None or neighbour not in way.router.sent["subscription"]:
            raise RefusedError("the link is not on the topic's routes", reason="link")
        if isinstance(message, Withdraw):
            if message.kind not in KINDS or not _is_name(message.name):
                raise DecodeError("not a message of routers")
        else:
            kind, owner, payload = _described(message)
            reading = way.relation.read(message.content)
            stamp = reading.stamp
            if payload or (stamp.kind, (stamp.owner, stamp.number)) != (kind, owner):
                raise DecodeError("a message whose stamp is another one's")
            if reading.sealed.epoch < way.relation.topic.oldest:
                raise RefusedError("the message is of an epoch that is over", reason="domain")
            examine = (
                self._verify == "every hop" or self._domains.domain(neighbour) != self._ring.domain
            )
            if examine:
                stamp.check(self._parties)
            if self._rights is not None:
                self._rights.check(stamp, reading.parsed, examine=examine)
            stamp = self._hop("in", neighbour, way.relation, reading, self.name)
            message = _with_stamp(message, reading, stamp)
        way.router.receive(neighbour, message)

    def _send(self, topic: str, neighbour: str, message: RoutingMessage) -> None:
        """Send a router's message, if it may go out."""
        way = self._ways[topic]
        passed = way.passed[neighbour]
        if isinstance(message, Withdraw):
            # The neighbour never heard of a filter that did not pass, not even its name.
            if (message.kind, message.name) not in passed:
                return
            passed.discard((message.kind, message.name))
        else:
            reading = way.relation.read(message.content)
            try:
                stamp = self._hop("out", neighbour, way.relation, reading, neighbour)
            except RefusedError as error:
                self.dropped[f"out {error.reason}"] += 1
                return
            message = _with_stamp(message, reading, stamp)
            if isinstance(message, Add):
                passed.add((message.kind, message.name))
        self._port.send(neighbour, GuardedMessage(topic, message))

    def _hop(
        self,
        direction: Direction,
        neighbour: str,
        relation: GuardedRelation,
        reading: Reading,
        receiver: str,
    ) -> Stamp:
        """Return the stamp with which a message passes, or raise the RefusedError."""

        def matches(where: bytes) -> bool | None:
            if reading.body is None:
                return None
            return bool(self._relation.matches(reading.parsed, [self._wheres[where]])[0])

        stamp, topic = reading.stamp, relation.topic
        domain = self._domains.domain(neighbour)
        hop = Hop(neighbour, domain, direction, stamp.kind, topic.name)
        label = self._policy.decide(hop, stamp.label, matches)
        party = self._party(receiver)
        is_member = self._domains.is_member(topic.name, receiver)
        party.check_read(label if is_member else topic.outer, f"broker {receiver!r}")
        return stamp if label == stamp.label else self._relabelled(stamp, label)

    def _relabelled(self, stamp: Stamp, label: Label) -> Stamp:
        try:
            return stamp.relabel(self.name, self._key, label)
        except ParameterError:
            raise RefusedError("the label was changed too often", reason="label") from None

    def _party(self, name: str) -> Party:
        if name not in self._parties:
            raise RefusedError(f"{name!r} is no party that is known here", reason="label")
        return self._parties[name]

    # -- deliveries -----------------------------------------------------------------------------

    def _queue_delivery(self, topic: str, client: str, publication: Publication) -> None:
        reading = self._ways[topic].relation.read_event(publication.content)
        try:
            if reading.body is None:
                raise RefusedError("there is no key for the event", reason="domain")
            clearance = self._cleared(client, reading)
            content = msgspec.structs.replace(
                publication, content=reading.body.content, payload=reading.body.payload
            )
            self._queue.push((client, reading, content), clearance.priority, self._port.time)
        except RefusedError as error:
            self.dropped[f"delivery {error.reason}"] += 1

    def _cleared(self, client: str, reading: Reading) -> Clearance:
        """Return a client's clearance, if it may have an event."""
        stamp = reading.stamp
        self._party(client).check_read(stamp.label, f"client {client!r}")
        clearance = self._clearance(client)
        if clearance is None or not clearance.suffices(stamp.privacy):
            raise RefusedError(
                f"client {client!r} is not cleared for privacy level {stamp.privacy}",
                reason="label",
            )
        if self._rights is not None:
            self._rights.check_delivery(client, stamp, reading.parsed)
        return clearance

    def _drain(self) -> None:
        """Make deliveries: all that wait or, with a rate, one after each pause."""
        if self._pause is None:
            while len(self._queue):
                self._serve()
        elif len(self._queue) and not self._is_serving:
            self._is_serving = True
            self._port.after(self._pause, self._serve_and_go_on)

    def _serve_and_go_on(self) -> None:
        self._is_serving = False
        self._serve()
        self._drain()

    def _serve(self) -> None:
        client, reading, publication = self._queue.pop()
        paced = self._paced.setdefault(client, deque())
        if len(paced) < MOST_PACED:
            paced.append((reading, publication))
        else:
            self.dropped["delivery rate"] += 1
        if len(paced) == 1:
            self._hand_out(client)

    def _hand_out(self, client: str) -> None:
        """Make a client's deliveries, as many as its rate to receive allows now."""
        paced = self._paced[client]
        while paced:
            reading, publication = paced[0]
            try:
                self._cleared(client, reading)  # again, since it waited
                pause = 0.0 if self._rights is None else self._rights.pause(client, reading.stamp)
            except RefusedError as error:
                paced.popleft()
                self.dropped[f"delivery {error.reason}"] += 1
            else:
                if pause:
                    self._port.after(pause, partial(self._hand_out, client))
                    return
                paced.popleft()
                self._deliver(client, publication)
        self._paced.pop(client, None)


def _is_name(name: Any) -> bool:
    return isinstance(name, tuple) and [*map(type, name)] == [str, int]


def _described(message: Any) -> tuple[Subject, Name, bytes]:
    """Return the kind, the name and the clear payload of a routing message with content."""
    if isinstance(message, Publication):
        return "event", (message.publisher, message.number), message.payload
    if isinstance(message, Add):
        return message.kind, message.name, b""
    raise DecodeError("not a message of routers")


def _with_stamp(message: Add | Publication, reading: Reading, stamp: Stamp) -> Any:
    if stamp is reading.stamp:
        return message
    sealed = msgspec.structs.replace(reading.sealed, stamp=stamp)
    return msgspec.structs.replace(message, content=sealed.to_bytes())
