"""A broker of a network as a process: its router, over TLS connections to its neighbours.

Each side of a link opens one connection (`ccbps.network`), over which it sends; so each direction
breaks and is repaired by itself. All connections are between pinned certificates. A frame is one
message, which has at most `LIMITS` bytes for its kind. A connection over which malformed bytes came
is refused; its sender opens another one after a pause, and begins anew.

The router is a `ReliableRouter`, as over simulated links.

Leak: an observer of the network sees lengths and times of messages.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Final

from ccbps.checks import number
from ccbps.errors import (
    CcbpsError,
    DecodeError,
    ParameterError,
    PeerError,
    RefusedError,
)
from ccbps.keys.secret import Closable, Confined
from ccbps.network import Certificate, Channel, Credentials, Identity, Server, connect
from ccbps.overlay.routing.relations import Relation
from ccbps.overlay.routing.reliable import (
    Acknowledge,
    LinkMessage,
    Opening,
    ReliableRouter,
    Settled,
)
from ccbps.overlay.routing.router import Add, Publication, Subject, Withdraw

_log: Final = logging.getLogger(__name__)
LIMITS: Final[dict[type[LinkMessage], int]] = {
    Add: 1 << 16,
    Withdraw: 1 << 10,
    Publication: 1 << 22,
    Opening: 32,
    Settled: 32,
    Acknowledge: 32,
}
"""Largest number of bytes of a message, by its class."""
_CLASSES: Final[dict[bytes, type[LinkMessage]]] = {kind.front: kind for kind in LIMITS}
_FRONT_BYTES: Final = 3
_NUMBER_BYTES: Final = 8
"""Bytes that an event's number may add."""
MOST_WAITING: Final = 1 << 14
"""Largest number of messages that wait for a connection. With more, it ends and begins anew."""
IDLE_SECONDS: Final = 1e6
"""Seconds for which a neighbour may be silent. TCP detects lost machines."""
SEND_SECONDS: Final = 30.0
"""Seconds within which a neighbour must take a message."""
PAUSES: Final = (0.05, 0.1, 0.3, 1.0)
"""Seconds before the first, second ... attempt to connect again."""
POLL_SECONDS: Final = 0.1
"""Seconds after which an idle connection checks whether it has ended."""
PATIENCE: Final = 300.0
"""Seconds after which a neighbour that is away is given up."""

Place = tuple[str, Certificate]
"""Address of a broker's server, ``host:port``, and its certificate."""


def read_message(frame: bytes) -> LinkMessage:
    """Read a message between brokers.

    Raises:
        DecodeError: it is malformed, or too long for its kind.
    """
    kind = _CLASSES.get(frame[:_FRONT_BYTES])
    if kind is None or len(frame) > LIMITS[kind]:
        raise DecodeError("not a message between brokers of this version, or too long")
    return kind.from_bytes(frame)


def _require_size(message: LinkMessage) -> None:
    """Refuse a message of a client that neighbours would refuse.

    Raises:
        RefusedError: it is too large.
    """
    size = len(message.to_bytes()) + _NUMBER_BYTES
    if size > LIMITS[type(message)]:
        raise RefusedError(
            f"{message.what} of {size} bytes, of at most {LIMITS[type(message)]}", reason="size"
        )


class _Way(Confined):
    """The connection over which a neighbour gets messages, which reconnects by itself.

    Attributes:
        since: time of the monotonic clock since which it has been closed; None while it is open.

    Args:
        place: the neighbour.
        identity: identity of this side.
        lock: lock of the router, held when the router is called, and by callers of `put`.
        opened: function that is called when a connection has opened.
        closed: function that is called when it has closed.
    """

    def __init__(
        self,
        place: Place,
        identity: Identity,
        lock: threading.RLock,
        opened: Callable[[], None],
        closed: Callable[[], None],
    ) -> None:
        self._place, self._identity = place, identity
        self._opened, self._closed = opened, closed
        self._changed, self._waiting = threading.Condition(lock), deque[LinkMessage]()
        self._most, self._is_stale = math.inf, False
        self._ending = threading.Event()
        self.since: float | None = time.monotonic()
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, message: LinkMessage) -> None:
        """Send a message. Of two acknowledgements that wait side by side, the later one is sent."""
        waiting = self._waiting
        if self._is_stale:
            return  # the next connection begins with all filters, and with what is not acknowledged
        if isinstance(message, Acknowledge) and waiting and isinstance(waiting[-1], Acknowledge):
            waiting.pop()
        waiting.append(message)
        if len(waiting) == 1:
            self._changed.notify()
        if len(waiting) > self._most:
            _log.warning("the link to %s is too slow: it begins anew", self._place[0])
            self.renew()

    def renew(self) -> None:
        """End the connection, if there is one; another one takes its place."""
        self._is_stale = True

    def close(self) -> None:
        """End, within the time that a message takes."""
        self._ending.set()

    def _run(self) -> None:
        attempts, (address, peer) = 0, self._place
        while not self._ending.is_set():
            began = time.monotonic()
            try:
                with connect(address, self._identity, peer, seconds=SEND_SECONDS) as channel:
                    self._serve(channel)
            except CcbpsError as error:
                _log.info("no link to %s: %s", address, error)
            if time.monotonic() > began + PAUSES[-1]:  # it was not refused at once
                attempts = 0
            self._ending.wait(PAUSES[min(attempts, len(PAUSES) - 1)])
            attempts += 1

    def _serve(self, channel: Channel) -> None:
        """Send messages until the connection or this side ends."""
        try:
            with self._changed:
                if self._ending.is_set():
                    return
                self._waiting.clear()
                # All filters wait at first, however many these are.
                self._most, self._is_stale = math.inf, False
                self._opened()
                self._most, self.since = len(self._waiting) + MOST_WAITING, None
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting, POLL_SECONDS)
                    messages = [*self._waiting]
                    self._waiting.clear()
                    if self._is_stale or self._ending.is_set():
                        return
                # Nothing ever arrives over it but its end.
                if not channel.is_quiet():
                    return
                for message in messages:
                    channel.send(message.to_bytes())
        finally:
            with self._changed:
                self.since = time.monotonic()
                self._closed()


class ServedRouter(Closable):
    """A broker of a network, in threads of this process.

    Args:
        relation: knowledge of the content of filters and events, the same at all brokers.
        identity: network identity of this broker.
        neighbours: address and certificate of each neighbour, by a name for it.
        deliver: function that takes an event and the names of the receivers among this broker's
            clients. It is called in a thread of its own, one event after another. Its errors are
            logged, and the event counts as delivered. None for a broker without clients.
        filters: initial filters of this broker's clients, as arguments of `add`.
        advertise: True if subscriptions go only where advertisements come from.
        slack: see `Router`.
        arrived: see `ReliableRouter`; must return at once.
        patience: seconds after which a neighbour that is away is given up: its filters are
            withdrawn, and events for it are lost. It may come back later.
        host: name or number to listen at.
        port: port to listen at, which the neighbours know; 0 for any that is free.

    Attributes:
        router: the router, for reading under `lock`.
        lock: lock that guards it.
        address: address of the server, ``host:port``.
        hops: number of events that were sent to neighbours; repeated ones count.

    Raises:
        NetworkError: the address cannot be listened at.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.network import Identity
        >>> from ccbps.overlay import PlainRelation, ServedRouter
        >>> relation = PlainRelation(Schema(price=UInt(8)))
        >>> alone = ServedRouter(relation, Identity.generate(), {})
        >>> alone.wait_ready(10)
        True
        >>> alone.close()
    """

    def __init__(
        self,
        relation: Relation,
        identity: Identity,
        neighbours: Mapping[str, Place],
        deliver: Callable[[Publication, list[str]], object] | None = None,
        *,
        filters: tuple[tuple[Subject, str, int, bytes], ...] = (),
        advertise: bool = True,
        slack: float | None = None,
        arrived: Callable[[int], object] = lambda number: None,
        patience: float = PATIENCE,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._deliver = deliver or (lambda *_: None)
        self._patience, self.hops = number("patience", patience, 0), 0
        self._arrived: SimpleQueue[tuple[Publication, list[str]] | None] = SimpleQueue()
        self.router = ReliableRouter(
            relation,
            neighbours,
            self._send,
            lambda *event: self._arrived.put(event),
            advertise=advertise,
            slack=slack,
            arrived=arrived,
        )
        for filter_ in filters:
            self.router.router.add(*filter_)
        self._names = {certificate: name for name, (_, certificate) in neighbours.items()}
        if len(self._names) < len(neighbours):
            raise ParameterError("neighbours must have different certificates")
        self._came: dict[str, Channel] = {}
        self._away = dict.fromkeys(neighbours, time.monotonic())
        self._ways: dict[str, _Way] = {}
        self._is_ended = threading.Event()
        self._server = Server(
            Credentials(identity, tuple(self._names)),
            self._serve,
            host=host,
            port=port,
            connections=16 + 4 * len(neighbours),
            title="the broker",
        )
        self.address = self._server.address
        with self.lock:
            for name, place in neighbours.items():
                self._ways[name] = self._way(name, place, identity)
        self._threads = [
            threading.Thread(target=task, daemon=True) for task in (self._hand_out, self._watch)
        ]
        for thread in self._threads:
            thread.start()

    def __repr__(self) -> str:
        return f"<ServedRouter {self.address}: {self.router.router!r}>"

    def close(self) -> None:
        """End all links, and stop listening. Events that are on their way here are sent again."""
        self._is_ended.set()
        self._arrived.put(None)
        for way in self._ways.values():
            way.close()
        self._server.close()
        for thread in self._threads:
            thread.join()

    # -- clients --------------------------------------------------------------------------------

    def add(self, kind: Subject, client: str, number: int, content: bytes) -> None:
        """Take a subscription or advertisement from a client, as `Router.add` does.

        Raises:
            RefusedError: it is too large for a message.
            DecodeError: the content is malformed.
        """
        _require_size(Add(kind, (client, number), content))
        with self.lock:
            self.router.router.add(kind, client, number, content)

    def withdraw(self, kind: Subject, client: str, number: int) -> None:
        """End a client's subscription or advertisement, as `Router.withdraw` does."""
        with self.lock:
            self.router.router.withdraw(kind, client, number)

    def publish(self, client: str, content: bytes, payload: bytes = b"") -> int:
        """Take an event from a client, and return its number, as `ReliableRouter.publish` does.

        Raises:
            RefusedError: it is too large for a message; or as for `ReliableRouter.publish`.
            DecodeError: the content is malformed.
        """
        _require_size(Publication(client, 0, content, payload))
        with self.lock:
            return self.router.publish(client, content, payload)

    def wait_ready(self, seconds: float) -> bool:
        """Wait until clients may publish; return False if that takes too long."""
        return self._wait(lambda: self.router.is_ready, seconds)

    def wait_arrived(self, seconds: float) -> bool:
        """Wait until all events of this broker's clients have arrived; return False if not."""
        return self._wait(lambda: not self.router.own, seconds)

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, seconds)

    # -- links ----------------------------------------------------------------------------------

    def _way(self, name: str, place: Place, identity: Identity) -> _Way:
        return _Way(
            place,
            identity,
            self.lock,
            lambda: self.router.opened(name),
            lambda: self.router.closed(name),
        )

    def _send(self, neighbour: str, message: LinkMessage) -> None:
        """Take a message of the router, which holds the lock."""
        self.hops += isinstance(message, Publication)
        self._ways[neighbour].put(message)

    def _serve(self, channel: Channel) -> None:
        """Take the messages of a connection; a new connection replaces an old one."""
        name = self._names[channel.peer]
        with self.lock:
            old, self._came[name] = self._came.get(name), channel
        if old is not None:
            old.close()
        try:
            while True:
                frame = bytes(channel.receive(max(LIMITS.values()), IDLE_SECONDS))
                message = read_message(frame)
                with self._changed:
                    if self._came.get(name) is not channel:
                        return
                    self.router.receive(name, message)
                    self._changed.notify_all()
        except DecodeError as error:
            raise PeerError(f"malformed bytes from {name}: {error}") from None
        finally:
            with self.lock:
                if self._came.get(name) is channel:
                    del self._came[name]
                    self._away[name] = time.monotonic()

    def _hand_out(self) -> None:
        """Deliver events, one after another."""
        while (event := self._arrived.get()) is not None and not self._is_ended.is_set():
            try:
                self._deliver(*event)
            except Exception:
                _log.exception("an event of %s was not delivered", event[0].publisher)
            if self._is_ended.is_set():
                return  # it may have ended in the middle
            with self._changed:
                self.router.delivered(event[0])
                self._changed.notify_all()

    def _watch(self) -> None:
        """Give up neighbours that stay away."""
        given_up: set[str] = set()
        while not self._is_ended.wait(min(1.0, self._patience / 4 + 0.01)):
            with self._changed:
                for name, way in self._ways.items():
                    gone = [] if name in self._came else [self._away[name]]
                    gone += [] if way.since is None else [way.since]
                    if not gone:
                        given_up.discard(name)
                    elif name not in given_up and time.monotonic() > min(gone) + self._patience:
                        _log.warning("%s was away for %g s: given up", name, self._patience)
                        given_up.add(name)
                        self.router.give_up(name)
                        way.renew()  # one direction may still be there
                        self._changed.notify_all()
