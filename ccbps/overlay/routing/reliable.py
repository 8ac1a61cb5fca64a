"""A router that loses no event when links break or brokers crash, and delivers none twice.

A `ReliableRouter` is a `Router` with a protocol on each link. It does no input or output: its owner
reports the links that opened or closed, and their messages. Links are simulated
(`ccbps.overlay.Links`) or real (`ccbps.overlay.ServedRouter`). A link is two one-way connections,
each of which keeps order while it is open, and may lose messages on their way when it breaks.

*Custody.* A broker acknowledges an event once all brokers behind it have acknowledged it. Until
then the previous broker keeps the event, and sends it again when its connection has opened anew. So
the neighbours of a crashed broker have the events that it held. At most `WINDOW` events of a
connection are without acknowledgement. So no queue grows: a broker that is away holds back the
publishers whose events go there.

*Repair.* When a connection opens, its sender sends all filters that the receiver should have, and
then a message that these are all. Until then the receiver keeps its old filters, and afterwards
withdraws those that were not sent again. A broker that has just started sends that message only
when its other neighbours have sent it theirs, and routes no event of a link before that. So no
broker lacks a filter, not even for a moment.

A neighbour that does not come back is given up: the filters of its link are withdrawn, and events
for it are lost.

Hazard: events that a broker has taken from its own clients are lost with the broker, unless its
owner keeps them until they have `arrived`. Numbers of events begin with the clock: if a broker
starts again with its clock set back, others drop its events until the clock has caught up.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import Meta

from ccbps.checks import Printable
from ccbps.errors import DecodeError, RefusedError
from ccbps.overlay.routing.relations import Relation
from ccbps.overlay.routing.router import (
    KINDS,
    VERSION,
    Add,
    Publication,
    Router,
    RoutingMessage,
    Subject,
    Withdraw,
)
from ccbps.records import Message, Number
from ccbps.wire import Kind

WINDOW: Final = 256
"""Largest number of events of a connection without acknowledgement."""
WINDOW_BYTES: Final = 1 << 23
"""Largest number of bytes of these events; a single event may be larger."""
MOST_OWN: Final = 1 << 12
"""Largest number of events of a broker's own clients on their way."""
MOST_FILTERS: Final = 1 << 20
"""Largest number of subscriptions, and of advertisements, that a neighbour may send."""
EPOCH_BYTES: Final = 8
HERE: Final = ""
"""Place of the broker's own clients among its neighbours."""

Epoch = Annotated[bytes, Meta(min_length=EPOCH_BYTES, max_length=EPOCH_BYTES)]
_Key: TypeAlias = tuple[str, int]


class Opening(Message, frozen=True):
    """First message of a connection.

    Attributes:
        epoch: random bytes that name the connection.
    """

    front: ClassVar[bytes] = bytes([Kind.ROUTING, VERSION, 4])
    what: ClassVar[str] = "the opening of a link between brokers"
    epoch: Epoch


class Settled(Message, frozen=True):
    """Message: the receiver has all filters of a kind that it should have."""

    front: ClassVar[bytes] = bytes([Kind.ROUTING, VERSION, 5])
    what: ClassVar[str] = "the end of a broker's filters"
    kind: Subject


class Acknowledge(Message, frozen=True):
    """Message: the first events of a connection have arrived at all their receivers.

    Attributes:
        epoch: name of the connection, the one in the other direction.
        count: number of these events.
    """

    front: ClassVar[bytes] = bytes([Kind.ROUTING, VERSION, 6])
    what: ClassVar[str] = "an acknowledgement of a broker"
    epoch: Epoch
    count: Number


LinkMessage: TypeAlias = RoutingMessage | Opening | Settled | Acknowledge


@dataclass(slots=True)
class _Out:
    """A connection to a neighbour.

    Attributes:
        queue: events without acknowledgement, in order; the first `sent` of them were sent.
        flight: bytes of the events that were sent.
        acknowledged: number of events that were acknowledged in this epoch.
        settled: kinds of filters of which all were sent.
    """

    is_open: bool = False
    epoch: bytes = b""
    queue: deque[Publication] = field(default_factory=deque)
    sent: int = 0
    flight: int = 0
    acknowledged: int = 0
    settled: set[Subject] = field(default_factory=set)


@dataclass(slots=True)
class _In:
    """A connection from a neighbour.

    Attributes:
        received: number of events that came.
        done: number of first events that have all arrived at all their receivers.
        finished: places of later events that have, too.
        stale: names of filters that came over earlier connections but not over this one.
        held: events that wait until all neighbours have sent their filters, and their places.
    """

    epoch: bytes = b""
    received: int = 0
    done: int = 0
    finished: set[int] = field(default_factory=set)
    stale: dict[Subject, set[tuple[str, int]]] = field(default_factory=dict)
    held: list[tuple[int, Publication]] = field(default_factory=list)


@dataclass(slots=True)
class _Custody:
    """An event that is kept.

    Attributes:
        origin: neighbour that it came from, the epoch and its place; None for a client's.
        waiting: neighbours, and `HERE`, that have not acknowledged it.
    """

    origin: tuple[str, bytes, int] | None
    waiting: set[str]


class ReliableRouter(Printable):
    """A router with custody of events, and repair of links. For one thread at a time.

    Args:
        relation: knowledge of the content of filters and events.
        neighbours: names of all neighbours.
        send: function that sends a neighbour, by name, a message. It is called for open connections
            only, and must not call the router.
        deliver: function that takes a publication and the names of the receivers among this
            broker's clients. When they have it, the owner calls `delivered`.
        advertise: True if subscriptions go only where advertisements come from.
        slack: see `Router`.
        arrived: function that is called with the number of each event of this broker's clients that
            has arrived at all its receivers, except those behind a neighbour that was given up.
        clock: source of nanoseconds. The numbers of events begin with it, so a broker that starts
            again has greater ones.

    Attributes:
        router: the router; its tables are for reading.
        own: number of events of this broker's clients that are on their way.
        lost: number of events that were lost when neighbours were given up, once for each.
    """

    def __init__(
        self,
        relation: Relation,
        neighbours: Iterable[str],
        send: Callable[[str, LinkMessage], None],
        deliver: Callable[[Publication, list[str]], None],
        *,
        advertise: bool = True,
        slack: float | None = None,
        arrived: Callable[[int], object] = lambda number: None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._send, self._deliver, self._arrived, self._clock = send, deliver, arrived, clock
        self.router = Router(
            relation, self._routed, self._addressed, advertise=advertise, slack=slack
        )
        self._out = {name: _Out() for name in neighbours}
        self._in = {name: _In() for name in self._out}
        self._heard: set[tuple[Subject, str]] = set()
        self._pending: dict[_Key, _Custody] = {}
        # Where the router sent the last event.
        self._links: list[str] = []
        self._clients: list[str] = []
        self._event = Publication("", 0, b"")
        self._number = self.own = self.lost = 0
        for name in self._out:
            self.router.connect(name)

    def __repr__(self) -> str:
        return f"<ReliableRouter: {self.router!r}, {len(self._pending)} events on their way>"

    # -- clients --------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """True if all neighbours have sent their filters, so clients may publish."""
        return self._is_ready(HERE)

    def publish(self, client: str, content: bytes, payload: bytes = b"") -> int:
        """Take an event from a client, who was authenticated.

        Returns:
            number of the event, unique among the events of this broker's clients.

        Raises:
            RefusedError: it is outside of the client's advertisements; the broker has not heard
                from all neighbours since it started; or too many events are on their way.
            DecodeError: the content is malformed.
        """
        if not self.is_ready:
            raise RefusedError("not all neighbours have sent subscriptions: wait", reason="order")
        if self.own >= MOST_OWN:
            raise RefusedError(f"{self.own} events are on their way: wait", reason="queue")
        number = max(self._number + 1, self._clock())
        self.router.publish(client, number, content, payload)
        self._number, self.own = number, self.own + 1
        self._keep((client, number), None)
        return number

    def delivered(self, publication: Publication) -> None:
        """Take note that this broker's clients have an event."""
        self._finish((publication.publisher, publication.number), HERE)

    # -- links ----------------------------------------------------------------------------------

    def opened(self, neighbour: str) -> None:
        """Begin with a connection to a neighbour that has just opened."""
        out, came = self._out[neighbour], self._in[neighbour]
        out.is_open, out.epoch, out.settled = True, os.urandom(EPOCH_BYTES), set()
        out.sent = out.flight = out.acknowledged = 0
        self._send(neighbour, Opening(out.epoch))
        if came.epoch:
            self._send(neighbour, Acknowledge(came.epoch, came.done))
        self.router.resume(neighbour)
        self._settle()
        self._pump(neighbour)

    def closed(self, neighbour: str) -> None:
        """Send nothing to a neighbour until a connection is open again."""
        self._out[neighbour].is_open = False

    def give_up(self, neighbour: str) -> None:
        """Forget a neighbour's filters, and the events for it. It may come back later."""
        out = self._out[neighbour]
        gone = [*out.queue]
        self._in[neighbour] = _In()
        self._out[neighbour] = _Out()
        self.router.disconnect(neighbour)
        self.router.connect(neighbour)
        self.lost += len(gone)
        for publication in gone:
            self._finish((publication.publisher, publication.number), neighbour)
        self._heard |= {(kind, neighbour) for kind in KINDS}
        self._advance()

    def receive(self, neighbour: str, message: LinkMessage) -> None:
        """Take a message from a neighbour.

        Raises:
            DecodeError: its content is malformed, or the message is not allowed now. Close the
                connection from this neighbour.
        """
        came = self._in[neighbour]
        if isinstance(message, Opening):
            stale = {kind: {*self.router.tables[kind][neighbour]} for kind in KINDS}
            self._in[neighbour] = _In(message.epoch, stale=stale)
        elif not came.epoch:
            raise DecodeError("the first message of a link is its opening")
        elif isinstance(message, Publication):
            self._receive_event(neighbour, message)
        elif isinstance(message, Acknowledge):
            self._acknowledged(neighbour, message)
        elif isinstance(message, Settled):
            for name in came.stale.pop(message.kind, ()):
                self.router.receive(neighbour, Withdraw(message.kind, name))
            self._heard.add((message.kind, neighbour))
            self._advance()
        else:
            table = self.router.tables[message.kind][neighbour]
            if isinstance(message, Add) and len(table) >= MOST_FILTERS:
                raise DecodeError(f"a neighbour sent more than {MOST_FILTERS} filters")
            self.router.receive(neighbour, message)
            came.stale.get(message.kind, set()).discard(message.name)

    # -- repair ---------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Resume the work that waited for the filters of a neighbour."""
        self._settle()
        for neighbour, came in self._in.items():
            if came.held and self._is_ready(neighbour):
                held, came.held = came.held, []
                for place, publication in held:
                    self._route(neighbour, place, publication)

    def _has_all(self, kind: Subject, neighbour: str) -> bool:
        """Tell whether all other neighbours than one have sent their filters of a kind."""
        return all((kind, other) in self._heard for other in self._out if other != neighbour)

    def _is_ready(self, origin: str) -> bool:
        """Tell whether events that come from a neighbour, or from `HERE`, may be routed."""
        return self._has_all("subscription", origin)

    def _settle(self) -> None:
        """Tell neighbours that they have all filters, if they do.

        Which subscriptions a neighbour should have depends on its advertisements.
        """
        for neighbour, out in self._out.items():
            for kind in KINDS:
                knows = kind == "advertisement" or ("advertisement", neighbour) in self._heard
                if (
                    out.is_open
                    and knows
                    and kind not in out.settled
                    and self._has_all(kind, neighbour)
                ):
                    out.settled.add(kind)
                    self._send(neighbour, Settled(kind))

    # -- custody --------------------------------------------------------------------------------

    def _receive_event(self, neighbour: str, publication: Publication) -> None:
        came = self._in[neighbour]
        if came.received - came.done >= WINDOW:
            raise DecodeError(f"a neighbour sent more than {WINDOW} events at once")
        place, came.received = came.received, came.received + 1
        if self._is_ready(neighbour):
            self._route(neighbour, place, publication)
        else:
            self.router.relation.read_event(publication.content)
            came.held.append((place, publication))

    def _route(self, neighbour: str, place: int, publication: Publication) -> None:
        key, origin = (publication.publisher, publication.number), self._in[neighbour].epoch
        if key in self._pending:
            # It came over an earlier connection as well.
            self._pending[key].origin = neighbour, origin, place
            return
        self.router.receive(neighbour, publication)
        self._keep(key, (neighbour, origin, place))

    def _routed(self, neighbour: str, message: RoutingMessage) -> None:
        """Take a message of the router to a neighbour."""
        if isinstance(message, Publication):
            self._links.append(neighbour)
            self._out[neighbour].queue.append(message)
            self._event = message
        elif self._out[neighbour].is_open:  # another connection begins with all filters
            self._send(neighbour, message)

    def _addressed(self, client: str, publication: Publication) -> None:
        """Take an event of the router for a client."""
        self._clients.append(client)
        self._event = publication

    def _keep(self, key: _Key, origin: tuple[str, bytes, int] | None) -> None:
        """Keep the event that the router has just routed until all have it."""
        links, clients = self._links, self._clients
        self._links, self._clients = [], []
        custody = _Custody(origin, {*links, *([HERE] if clients else [])})
        self._pending[key] = custody
        if not custody.waiting:
            self._finish(key, HERE)
            return
        for neighbour in links:
            self._pump(neighbour)
        if clients:
            self._deliver(self._event, clients)

    def _pump(self, neighbour: str) -> None:
        """Send the events that have room."""
        out = self._out[neighbour]
        while (
            out.is_open
            and out.sent < min(WINDOW, len(out.queue))
            and (out.flight < WINDOW_BYTES or not out.sent)
        ):
            publication = out.queue[out.sent]
            out.sent += 1
            out.flight += _size(publication)
            self._send(neighbour, publication)

    def _acknowledged(self, neighbour: str, message: Acknowledge) -> None:
        out = self._out[neighbour]
        if message.epoch != out.epoch:
            return
        count = message.count - out.acknowledged
        if not 0 <= count <= out.sent:
            raise DecodeError("a neighbour acknowledged events that it was not sent")
        out.acknowledged = message.count
        for _ in range(count):
            publication = out.queue.popleft()
            out.sent -= 1
            out.flight -= _size(publication)
            self._finish((publication.publisher, publication.number), neighbour)
        self._pump(neighbour)

    def _finish(self, key: _Key, by: str) -> None:
        """Take note that one of the receivers of an event has it."""
        custody = self._pending.get(key)
        if custody is None:
            return
        custody.waiting.discard(by)
        if custody.waiting:
            return
        del self._pending[key]
        if custody.origin is None:
            self.own -= 1
            self._arrived(key[1])
            return
        neighbour, epoch, place = custody.origin
        came = self._in[neighbour]
        if came.epoch != epoch:
            return  # it will come again
        came.finished.add(place)
        before = came.done
        while came.done in came.finished:
            came.finished.remove(came.done)
            came.done += 1
        if came.done > before and self._out[neighbour].is_open:
            self._send(neighbour, Acknowledge(epoch, came.done))


def _size(publication: Publication) -> int:
    return len(publication.content) + len(publication.payload)
