"""A broker of an overlay that enforces labels, policies of hops, and domains.

It stands before and behind a `Router`, of which it has one for each topic. Whatever comes over a
link is examined before the router sees it, and whatever the router sends is examined again:

1. The link is one of the topic's routes, so both ends may be linked, and neither is in a domain
   whose transit is forbidden.
2. The message is a `SealedMessage` of this topic, kind, owner and number, of an epoch that is not
   over. A broker whose domain is a member opens it.
3. All signatures and rights of its stamp hold, by this broker's own list of parties. That is
   examined at every hop or, if brokers of one domain believe one another, at the domain's border.
4. The hop policy allows it, and perhaps raises its label.
5. Its label flows to the broker that gets it, on the way out to the neighbour, and on the way in to
   this one. For a broker that is no member, sealing stands for a declassification by the topic's
   owner, and the label of the topic itself must flow to it.

The end of a filter passes wherever the filter passed, and nowhere else.

What fails is dropped and counted, by the direction and the reason: nobody is told, since the sender
may be the attacker. A client's own message that fails is refused with an error.

A delivery takes place if the event's label flows to the client and its privacy level is at most the
client's, both by the lists of this broker, at the time of the delivery. Deliveries wait in a queue
in order of priority (`AgeingQueue`).

Covering. A filter hides another one only if it may also go wherever the other one may: its label
flows to the other's, and its epoch is no earlier. Brokers that are no members pass all filters on.

Leak: brokers of member domains read filters and events; others what `ccbps.access.domains` says.
Hazards: a broker can hold back what it should pass on. A replayed filter that its owner has
withdrawn is believed until the epoch is over. Clients trust the broker at their edge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from ccbps.access.domains import DomainMap, KeyRing, SealedMessage, Topic
from ccbps.access.hops import AgeingQueue, Clearance, Direction, Hop, HopPolicy
from ccbps.access.labels import Body, Label, Party, Stamp, Subject
from ccbps.arrays import Bools
from ccbps.checks import choice, instance, number
from ccbps.errors import DecodeError, ParameterError, RefusedError
from ccbps.keys.plain_key import SigningKey
from ccbps.keys.secret import Confined
from ccbps.overlay.links import Port
from ccbps.overlay.routing.relations import Others, Relation
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
"""Deliveries of a broker that wait at most."""


@dataclass(frozen=True, slots=True)
class GuardedMessage:
    """Message between two guarded brokers.

    Attributes:
        topic: topic.
        message: message of the topic's routers.
    """

    topic: str
    message: RoutingMessage


@dataclass(frozen=True, slots=True)
class Reading:
    """A sealed message, as far as a broker can read it.

    Attributes:
        content: bytes of the message.
        sealed: the message.
        body: content; None if the broker has no key for it.
        parsed: content as the inner relation read it; None without a body.
    """

    content: bytes = field(repr=False)
    sealed: SealedMessage = field(repr=False)
    body: Body | None = field(repr=False)
    parsed: Any = field(repr=False)

    @property
    def stamp(self) -> Stamp:
        """Stamp of the message."""
        return self.sealed.stamp


class GuardedRelation(Relation):
    """A broker's view of the sealed messages of a topic. A row of a filter holds its `Reading`.

    Args:
        inner: relation of the contents.
        ring: keys of the broker's domain.
        domains: map with the topic.
        topic: name of the topic.
    """

    advertising = True

    def __init__(self, inner: Relation, ring: KeyRing, domains: DomainMap, topic: str) -> None:
        self.inner = instance("inner", inner, Relation)
        self._ring, self._domains, self._topic = ring, domains, topic
        self._last: Reading | None = None

    def __repr__(self) -> str:
        return f"<GuardedRelation of {self._topic!r} over {self.inner!r}>"

    @property
    def topic(self) -> Topic:
        """Topic, as its manager told of it last."""
        return self._domains.topic(self._topic)

    def read(self, content: bytes) -> Reading:
        """Read a message of any kind, and open it if the broker has the key.

        Raises:
            DecodeError: it is no message of this topic, or was altered.
        """
        if self._last is None or self._last.content != content:
            sealed = SealedMessage.from_bytes(content)
            if sealed.stamp.topic != self._topic:
                raise DecodeError("a message of another topic")
            body = parsed = None
            if (key := self._ring.key(self.topic, sealed.epoch)) is not None:
                body = sealed.open(key)
                is_event = sealed.stamp.kind == "event"
                parse = self.inner.read_event if is_event else self.inner.read_filter
                parsed = parse(body.content)
            self._last = Reading(content, sealed, body, parsed)
        return self._last

    def read_filter(self, content: bytes) -> NDArray[Any]:
        reading = self.read(content)
        if reading.stamp.kind == "event":
            raise DecodeError("an event in place of a filter")
        row = np.empty((), dtype=np.object_)
        row[()] = reading
        return row

    def read_event(self, content: bytes) -> Reading:
        reading = self.read(content)
        if reading.stamp.kind != "event":
            raise DecodeError("a filter in place of an event")
        return reading

    def covers(self, wide: Any, others: Others) -> Bools:
        return self._compared(self.inner.covers, wide, others, _goes_with)

    def covered(self, narrow: Any, others: Others) -> Bools:
        return self._compared(
            self.inner.covered, narrow, others, lambda own, other: _goes_with(other, own)
        )

    def matches(self, event: Reading, others: Any) -> Bools:
        oldest, readings = self.topic.oldest, _readings(others)
        live = np.array([other.sealed.epoch >= oldest for other in readings], dtype=np.bool_)
        return live & self._asked(self.inner.matches, event, readings, unreadable=True)

    def intersects(self, one: Any, others: Others) -> Bools:
        readings = _readings(others)
        return self._asked(self.inner.intersects, _reading(one), readings, unreadable=True)

    def _compared(
        self,
        ask: Callable[[Any, Sequence[Any]], Bools],
        one: Any,
        others: Others,
        goes_with: Callable[[Reading, Reading], bool],
    ) -> Bools:
        """Tell which filters cover or are covered; sealed ones only if they are the same bytes."""
        own, readings = _reading(one), _readings(others)
        answers = self._asked(ask, own, readings, unreadable=False)
        allowed = np.array([goes_with(own, other) for other in readings], dtype=np.bool_)
        same = np.array([other.content == own.content for other in readings], dtype=np.bool_)
        return answers & allowed | same

    def _asked(
        self,
        ask: Callable[[Any, Sequence[Any]], Bools],
        own: Reading,
        others: Sequence[Reading],
        *,
        unreadable: bool,
    ) -> Bools:
        """Ask the inner relation where both sides can be read; give one answer for all others."""
        answers = np.full(len(others), unreadable, dtype=np.bool_)
        places = [] if own.body is None else [n for n, o in enumerate(others) if o.body is not None]
        if places:
            answers[places] = ask(own.parsed, [others[place].parsed for place in places])
        return answers


def _reading(row: Any) -> Reading:
    reading: Reading = row.item() if isinstance(row, np.ndarray) else row
    return reading


def _readings(rows: Others) -> list[Reading]:
    return [_reading(row) for row in rows]


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
        clearance: question to a trusted service for the privacy level and priority of a client; it
            knows None of strangers, who get nothing.
        relation: relation of the contents.
        policy: policy of this broker's hops.
        deliver: function from a client's name and a publication in the clear.
        advertise: True if subscriptions go only where advertisements come from.
        verify: "every hop", or "border" to examine the stamps of messages from other domains and of
            own clients only, and believe the brokers of the own domain.
        priorities: number of priorities of deliveries.
        rate: deliveries a second; None for as many as there are.

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
        self._queue: AgeingQueue[tuple[str, Stamp, Publication]] = AgeingQueue(
            priorities, MOST_WAITING
        )
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

        Filters of epochs that are over are forgotten. Those of own clients are sealed again; until
        the new key is there, they match nothing. Both ends of a link must follow a notice before
        messages of the other one arrive.

        Returns:
            kind, client and number of own clients' filters that ended, since this domain is no
            member any more, or is not on the routes.
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
        for way in self._ways.values():
            if neighbour in way.router.sent["subscription"]:
                self._disconnect(way, neighbour)

    def _open(self, topic: str) -> _Way:
        relation = GuardedRelation(self._relation, self._ring, self._domains, topic)
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

    # -- clients --------------------------------------------------------------------------------

    def add(self, stamp: Stamp, body: Body) -> None:
        """Take a subscription or advertisement from its owner, who was authenticated.

        Raises:
            RefusedError: the label, the topic or the domain does not allow it.
            DecodeError: the content is none.
            ParameterError: the stamp is an event's, or another body's.
        """
        if stamp.kind == "event":
            raise ParameterError("stamp must be that of a filter: publish() takes events")
        way = self._accept(stamp)
        sealed = self._sealed(stamp, body)
        way.router.add(stamp.kind, stamp.owner, stamp.number, sealed.to_bytes())
        self._own[stamp.topic, stamp.kind, stamp.owner, stamp.number] = stamp, body, sealed.epoch
        self._drain()

    def withdraw(self, kind: Filter, topic: str, client: str, number: int) -> None:
        """End a client's subscription or advertisement; one that is not there is no error."""
        if self._own.pop((topic, kind, client, number), None) is not None:
            self._ways[topic].router.withdraw(kind, client, number)

    def publish(self, stamp: Stamp, body: Body) -> None:
        """Take an event from its owner, who was authenticated.

        Raises:
            RefusedError: the label, the topic, the domain or the advertisements do not allow it.
            DecodeError: the content is none.
            ParameterError: the stamp is a filter's, or another body's.
        """
        if stamp.kind != "event":
            raise ParameterError("stamp must be that of an event: add() takes filters")
        way = self._accept(stamp)
        way.router.publish(stamp.owner, stamp.number, self._sealed(stamp, body).to_bytes())
        self._drain()

    def _accept(self, stamp: Stamp) -> _Way:
        """Check a client's message, and return the way of its topic."""
        self._domains.route(stamp.topic, self.name, self.name)  # refused where there is none
        if stamp.owner in self._domains.domains:
            raise ParameterError(f"a client must not have a broker's name, got {stamp.owner!r}")
        label = stamp.check(self._parties)
        self._party(self.name).check_read(label, f"broker {self.name!r}")
        if stamp.topic not in self._ways:
            raise RefusedError(f"topic {stamp.topic!r} is not served yet", reason="domain")
        return self._ways[stamp.topic]

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
        """Take a message from a neighbour, or drop it. Nothing is raised."""
        try:
            self._take(neighbour, guarded)
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
            if self._verify == "every hop" or self._domains.domain(neighbour) != self._ring.domain:
                stamp.check(self._parties)
            stamp = self._hop("in", neighbour, way.relation, reading, self.name)
            message = _with_stamp(message, reading, stamp)
        way.router.receive(neighbour, message)

    def _send(self, topic: str, neighbour: str, message: RoutingMessage) -> None:
        """Send what a router wants to send, if it may go out."""
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
            clearance = self._cleared(client, reading.stamp)
            content = msgspec.structs.replace(
                publication, content=reading.body.content, payload=reading.body.payload
            )
            self._queue.push((client, reading.stamp, content), clearance.priority, self._port.time)
        except RefusedError as error:
            self.dropped[f"delivery {error.reason}"] += 1

    def _cleared(self, client: str, stamp: Stamp) -> Clearance:
        """Return a client's clearance, if it may have an event."""
        self._party(client).check_read(stamp.label, f"client {client!r}")
        clearance = self._clearance(client)
        if clearance is None or not clearance.suffices(stamp.privacy):
            raise RefusedError(
                f"client {client!r} is not cleared for privacy level {stamp.privacy}",
                reason="label",
            )
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
        client, stamp, publication = self._queue.pop()
        try:
            self._cleared(client, stamp)  # again, since it waited
        except RefusedError as error:
            self.dropped[f"delivery {error.reason}"] += 1
        else:
            self._deliver(client, publication)


def _is_name(name: Any) -> bool:
    return isinstance(name, tuple) and [*map(type, name)] == [str, int]


def _goes_with(wide: Reading, narrow: Reading) -> bool:
    """Tell whether a filter may go wherever, and lasts as long as, another one."""
    return wide.stamp.label.flows_to(narrow.stamp.label) and (
        wide.sealed.epoch >= narrow.sealed.epoch
    )


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
