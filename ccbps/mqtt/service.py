"""A `MatchingBroker` as a service behind an MQTT server.

Deliveries go to a client in order, a window of them at a time. A client tells where it is
(`Position`): when it connects, when it misses something, and with each delivery that it took.
Deliveries that it has not acknowledged are sent again when it asks for them. Only a window of them
is on its way at once. So no client, slow or asking again and again, makes the service or the MQTT
server hold more.
"""

from __future__ import annotations

import logging
import os
import queue
import struct
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import ClassVar, Final, NamedTuple

from ccbps import errors
from ccbps.broker import MatchingBroker, Receipt
from ccbps.errors import CcbpsError, DecodeError, RefusedError
from ccbps.mqtt.connection import (
    UP,
    VERBS,
    WAIT_SECONDS,
    Connection,
    MqttUrl,
    Startable,
    answers_topic,
    deliveries_topic,
)
from ccbps.records import Message

NUMBER_BYTES: Final = 8
WAITING: Final = 2000
WAITING_BYTES: Final = 1 << 24
"""Number and bytes of a client's requests that may wait for their turn."""
PUSH: Final = "push"
"""Verb of the service's own requests to send deliveries."""
WINDOW: Final = 256
WINDOW_BYTES: Final = 1 << 20
"""Number and bytes of a client's deliveries that it has not acknowledged; a single delivery may be
larger."""
REWIND_SECONDS: Final = 0.5
"""Seconds between two times that a client gets the same deliveries again."""
_POSITION: Final = struct.Struct(">8sq")
POSITION_BYTES: Final = _POSITION.size
_log: Final = logging.getLogger(__name__)


class Answer(Message, frozen=True):
    """The broker's answer to a request.

    Attributes:
        receipt: receipt of a publication.
        error: name of the error's class; empty if there is no error.
        message: text of the error.
        reason: reason of a `RefusedError`.
    """

    front: ClassVar[bytes] = b""
    what: ClassVar[str] = "an answer of the broker"
    receipt: Receipt | None = None
    error: str = ""
    message: str = ""
    reason: str = ""

    @classmethod
    def of(cls, error: CcbpsError) -> Answer:
        """Return the answer that stands for an error."""
        return cls(None, type(error).__name__, str(error), getattr(error, "reason", ""))

    def result(self, verb: str) -> Receipt | None:
        """Return the receipt, if the request was a publication.

        Raises:
            CcbpsError: the broker's error.
            DecodeError: the answer is to another request.
        """
        if self.error == RefusedError.__name__:
            raise RefusedError(self.message, reason=self.reason)
        if self.error:
            kind = vars(errors).get(self.error)
            if isinstance(kind, type) and issubclass(kind, CcbpsError):
                raise kind(self.message)
            raise CcbpsError(self.message)
        if (verb == "publish") != (self.receipt is not None):
            raise DecodeError("the broker's answer is to another request")
        return self.receipt


class Position(NamedTuple):
    """The last delivery that a client has.

    Attributes:
        numbering: `MatchingBroker.numbering`, 8 bytes; zeros if the client knows none.
        sequence: sequence number of the delivery; -1 for none.
    """

    numbering: bytes = bytes(8)
    sequence: int = -1

    def to_bytes(self) -> bytes:
        """Return the 16 bytes of the position."""
        return _POSITION.pack(*self)

    @classmethod
    def from_bytes(cls, message: bytes) -> Position:
        """Read what `to_bytes` gave.

        Raises:
            DecodeError: it has another length.
        """
        if len(message) != POSITION_BYTES:
            raise DecodeError(f"a position has {POSITION_BYTES} bytes, got {len(message)}")
        return cls(*_POSITION.unpack(message))


class Outgoing:
    """Deliveries on their way to one client. For one thread."""

    def __init__(
        self,
        broker: MatchingBroker,
        client: str,
        send: Callable[[str, bytes], object],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Prepare to send from the first delivery on.

        Args:
            broker: broker whose deliveries these are.
            client: name of the client.
            send: called with the client and a message, which is the position before a delivery and
                the delivery.
            clock: source of seconds.
        """
        self._broker, self._client, self._send, self._clock = broker, client, send, clock
        # The last delivery that was sent, when some were last sent again, and sequence numbers and
        # sizes of those that were not acknowledged.
        self._sent, self._rewound = -1, -REWIND_SECONDS
        self._flight_bytes = 0
        self._flight: deque[tuple[int, int]] = deque()

    @property
    def _room(self) -> int:
        """Number of deliveries that may follow."""
        return WINDOW - len(self._flight) if self._flight_bytes < WINDOW_BYTES else 0

    def push(self) -> None:
        """Send the deliveries that have room.

        Raises:
            RefusedError: the client was revoked, or the broker's time for it is used up.
        """
        while room := self._room:
            deliveries = self._broker.take(self._client, room, after=self._sent)
            for delivery in deliveries:
                before = Position(self._broker.numbering, self._sent).to_bytes()
                message = before + delivery.to_bytes()
                self._send(self._client, message)
                self._sent = delivery.sequence
                self._flight.append((self._sent, len(message)))
                self._flight_bytes += len(message)
                if not self._room:
                    return
            if len(deliveries) < room:
                return

    def acknowledge(self, position: Position) -> None:
        """Forget the deliveries that the client has, and send the next ones."""
        if position.numbering == self._broker.numbering:
            self._broker.acknowledge(self._client, position.sequence)
            was_full = not self._room
            while self._flight and self._flight[0][0] <= position.sequence:
                self._flight_bytes -= self._flight.popleft()[1]
            if was_full:
                self.push()

    def resume(self, position: Position) -> None:
        """Send the deliveries that the client does not have.

        Raises:
            RefusedError: it asks too often; or see `push`.
        """
        now = self._clock()
        sequence = position.sequence if position.numbering == self._broker.numbering else -1
        if sequence < self._sent:
            if now < self._rewound + REWIND_SECONDS:
                raise RefusedError("deliveries were sent again just now: wait", reason="rate")
            self._rewound, self._sent = now, sequence
            self._flight.clear()
            self._flight_bytes = 0
        self.push()


class MqttService(Startable):
    """A broker's client at an MQTT server: it takes requests, and sends answers and deliveries.

    Attributes:
        broker: the broker.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.broker import MatchingBroker, Publication, Subscription
        >>> from ccbps.matching import TagMatch
        >>> from ccbps.mqtt import LocalServer, MqttClient, MqttService, MqttUrl
        >>> matcher = TagMatch(Schema(price=UInt(8)))
        >>> keys = matcher.key_server()
        >>> users = {"broker": "b", "alice": "a", "feed": "f"}
        >>> with LocalServer(users) as server:
        ...     urls = {name: MqttUrl(server.url, name, users[name]) for name in users}
        ...     broker = MatchingBroker(matcher.broker(keys.broker_key()))
        ...     with (
        ...         MqttService(broker, urls["broker"]),
        ...         MqttClient(urls["alice"]) as alice,
        ...         MqttClient(urls["feed"]) as feed,
        ...     ):
        ...         wanted = matcher.subscriber(keys.subscriber_key("alice")).encode("price < 9")
        ...         alice.subscribe(Subscription("cheap", wanted))
        ...         event = matcher.publisher(keys.publisher_key()).encode({"price": [5]})
        ...         receipt = feed.publish(Publication(0, event[0].tobytes(), b"encrypted"))
        ...         print(alice.receive(timeout=10).payload)
        b'encrypted'
    """

    def __init__(self, broker: MatchingBroker, url: MqttUrl) -> None:
        """Prepare a service.

        Args:
            broker: the broker.
            url: address of the MQTT server, with the name `broker`.
        """
        self.broker = broker
        self._requests: queue.SimpleQueue[tuple[str, str, bytes] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # Number and bytes of each client's requests that wait.
        self._waiting: dict[str, tuple[int, int]] = {}
        # Clients with deliveries for which a push waits.
        self._told: set[str] = set()
        topics = [f"ccbps/to/+/{verb}" for verb in VERBS]
        self._connection = Connection(url, topics, self._arrived)
        self._outgoing: dict[str, Outgoing] = {}
        self._worker = threading.Thread(target=self._work, name="ccbps broker", daemon=True)

    def start(self) -> None:
        self._connection.open(WAIT_SECONDS)
        self.broker.on_delivery = self._tell
        self._worker.start()
        # Clients that hear it send requests without an answer again, and tell where they are.
        self._connection.send(UP, os.urandom(NUMBER_BYTES), retain=True)

    def stop(self) -> None:
        """Answer the requests that have arrived, and disconnect."""
        self._requests.put(None)
        self._worker.join()
        self.broker.on_delivery = None
        self._connection.close()

    # -- in other threads ------------------------------------------------------------------------

    def _tell(self, client: str) -> None:
        """Request a push of a client's deliveries, if none waits."""
        with self._lock:
            is_new = client not in self._told
            self._told.add(client)
        if is_new:
            self._requests.put((client, PUSH, b""))

    def _arrived(self, topic: str, content: bytes) -> None:
        parts = topic.split("/")
        if len(parts) != 4 or parts[3] not in VERBS:
            return
        _, _, client, verb = parts
        try:
            self.broker.turn_away(client, len(content) - NUMBER_BYTES)
            with self._lock:
                count, size = self._waiting.get(client, (0, 0))
                if count >= WAITING or (count and size + len(content) > WAITING_BYTES):
                    raise RefusedError("too many requests wait: send later", reason="rate")
                self._waiting[client] = count + 1, size + len(content)
        except CcbpsError as error:
            self._answer(client, verb, content, Answer.of(error))
        else:
            self._requests.put((client, verb, content))

    # -- in the worker's thread ------------------------------------------------------------------

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            client, verb, content = request
            answer = Answer()
            try:
                answer = self._do(client, verb, content[NUMBER_BYTES:])
            except CcbpsError as error:
                answer = Answer.of(error)
            except Exception:  # one client's request must not end the service for all
                _log.exception("a request of %s to %s failed", client, verb)
                answer = Answer(None, "CcbpsError", "the broker failed; it has a log")
            if verb != PUSH:
                self._forget(client, len(content))
                self._answer(client, verb, content, answer)

    def _forget(self, client: str, size: int) -> None:
        """Count a request that waits no longer."""
        with self._lock:
            count, total = self._waiting[client]
            if count == 1:
                del self._waiting[client]
            else:
                self._waiting[client] = count - 1, total - size

    def _do(self, client: str, verb: str, message: bytes) -> Answer:
        """Serve a request, and return its answer."""
        if verb == "subscribe":
            self.broker.subscribe(client, message)
        elif verb == "unsubscribe":
            self.broker.unsubscribe(client, _text(message))
        elif verb == "publish":
            return Answer(self.broker.publish(client, message))
        elif verb == "deliver":
            self.broker.deliver(client, message)
        else:
            self._send_deliveries(client, verb, message)
        return Answer()

    def _send_deliveries(self, client: str, verb: str, message: bytes) -> None:
        if client not in self._outgoing:
            self._outgoing[client] = Outgoing(self.broker, client, self._deliver)
        outgoing = self._outgoing[client]
        if verb == PUSH:
            with self._lock:
                self._told.discard(client)
            outgoing.push()
        elif verb == "acknowledge":
            outgoing.acknowledge(Position.from_bytes(message))
        else:
            outgoing.resume(Position.from_bytes(message))

    def _answer(self, client: str, verb: str, content: bytes, answer: Answer) -> None:
        if verb != "acknowledge" and len(content) >= NUMBER_BYTES:
            message = content[:NUMBER_BYTES] + answer.to_bytes()
            self._connection.send(answers_topic(client), message)

    def _deliver(self, client: str, message: bytes) -> None:
        self._connection.send(deliveries_topic(client), message)


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise DecodeError("a name must be UTF-8") from None
