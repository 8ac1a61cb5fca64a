"""A `MatchingBroker` as a service behind an MQTT server.

Deliveries go to a client in order, a window of them at a time. A client reports its `Position` when
it connects, when it misses a delivery, and with each delivery that it took. Deliveries that it has
not acknowledged are sent again when it asks for them. At most one window is on its way at once. So
no client, slow or asking again and again, makes the service or the MQTT server hold more.

Requests wait in a queue for each client, and clients have their turns one after another. A client
that floods the service is not listened to for a time (`ccbps.mqtt.guests`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic, sleep
from typing import ClassVar, Final, NamedTuple

from ccbps import errors
from ccbps.access.rates import Bucket
from ccbps.broker import MatchingBroker, Receipt
from ccbps.errors import CcbpsError, DecodeError, RefusedError
from ccbps.matching.contract.scheme import Answers
from ccbps.mqtt.claim import CLAIM, Claim
from ccbps.mqtt.connection import (
    HELLO,
    REQUESTS,
    UP,
    VERBS,
    WAIT_SECONDS,
    Connection,
    MqttUrl,
    Startable,
    answers_topic,
    deliveries_topic,
    requests_topic,
)
from ccbps.mqtt.fair_queue import FairQueue, Request
from ccbps.mqtt.guests import BLOCK_SECONDS, Guests
from ccbps.records import Message

NUMBER_BYTES: Final = 8
NOTICE: Final = bytes(NUMBER_BYTES)
"""Number of an answer that belongs to no request. With an error it answers all requests: the
service does not listen any more. Without an error its message is a warning."""
HELLOS: Final = 2000.0
HELLOS_BURST: Final = 5000.0
"""First requests of all clients that are read per second, and at once, at most."""
ACKNOWLEDGE: Final = "acknowledge"
PUBLISH: Final = "publish"
TOGETHER: Final = 32
"""Largest number of publications of a client that three brokers match together."""
PUSH: Final = "push"
"""Verb of the service's own requests to send deliveries."""
WINDOW: Final = 256
WINDOW_BYTES: Final = 1 << 20
"""Number and bytes of a client's deliveries that it has not acknowledged; a single delivery may be
larger."""
LONGEST_PAUSE: Final = 60.0
"""Seconds after which a client's rate is asked for again at the latest."""
REWIND_SECONDS: Final = 0.5
"""Least seconds between two repetitions of the same deliveries to a client."""
_POSITION: Final = struct.Struct(">8sq")
POSITION_BYTES: Final = _POSITION.size
_log: Final = logging.getLogger(__name__)


class Answer(Message, frozen=True):
    """The broker's answer to a request.

    Attributes:
        receipt: receipt of a publication.
        error: name of the error's class; empty if there is no error.
        message: text of the error, or a warning.
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
            send: function that is called with the client and a message: the position before a
                delivery, and the delivery.
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
            self._rewound = now
            self._flight.clear()
            self._flight_bytes = 0
        # It may also have more than this service has sent: from the one before it.
        self._sent = sequence
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
        ...         print(alice.receive(timeout=60).payload)
        b'encrypted'
    """

    def __init__(
        self, broker: MatchingBroker, url: MqttUrl, *, on_lost: Callable[[], object] = lambda: None
    ) -> None:
        """Prepare a service.

        Args:
            broker: the broker.
            url: address of the MQTT server, with the name `broker`.
            on_lost: function that is called if another service has taken this one's place at the
                server, and this one has ended its work; must return at once.
        """
        self.broker, self._on_lost = broker, on_lost
        self._together = TOGETHER if broker.matcher.answers is Answers.TOGETHER else 1
        self._guests, self._requests = Guests(broker.quota), FairQueue()
        self._lock = threading.Lock()
        # Clients with deliveries for which a push waits, and the last acknowledgements.
        self._told: set[str] = set()
        # Clients whose rate is used up, each with a timer.
        self._paused: set[str] = set()
        self._acknowledged: dict[str, bytes] = {}
        self._is_running = False
        self._connection = Connection(url, [CLAIM], self._arrived, self._came_up)
        # First requests of clients come here, so that a flood of them holds nobody else up. Of
        # quality 1, since the server's buffers would let others wait behind them for a minute.
        self._door = Connection(url, [requests_topic("+", HELLO)], self._knocked)
        self._hellos = Bucket(HELLOS, HELLOS_BURST, monotonic)
        self._claim = Claim(self._connection.send, broker.numbering, self._lost)
        self._outgoing: dict[str, Outgoing] = {}
        self._worker = threading.Thread(target=self._work, name="ccbps broker", daemon=True)

    def start(self) -> None:
        """Connect, and answer.

        Raises:
            OSError: the server cannot be reached, or refuses.
            RefusedError: another service answers at the server.
        """
        self._connection.open(WAIT_SECONDS)
        try:
            self._claim.acquire()
            self._door.open(WAIT_SECONDS)
        except BaseException:
            self._claim.release()
            self._connection.close()
            raise
        self.broker.on_delivery, self.broker.on_revoked = self._tell, self._revoked
        self.broker.on_notice = self._warn
        self._worker.start()
        self._is_running = True
        self._announce()

    def stop(self) -> None:
        """Answer the requests that have arrived, and disconnect."""
        self._is_running = False
        self._door.close()
        self._requests.close()
        self._worker.join()
        self.broker.on_delivery = self.broker.on_revoked = self.broker.on_notice = None
        self._claim.release()
        self._connection.close()

    # -- in other threads ------------------------------------------------------------------------

    def _announce(self) -> None:
        """Let clients say hello, and send requests without an answer again."""
        self._connection.send(
            UP, os.urandom(NUMBER_BYTES) + self.broker.access.session, retain=True
        )

    def _came_up(self) -> None:
        """Call clients over a new connection: messages that they sent meanwhile are lost."""
        if self._is_running:
            self._claim.ask()
            self._announce()

    def _tell(self, client: str) -> None:
        """Request a push of a client's deliveries, if none waits."""
        with self._lock:
            is_new = client not in self._told
            self._told.add(client)
        if is_new:
            self._requests.put(Request(client, PUSH, b""), bounded=False)

    def _revoked(self, client: str) -> None:
        self._cease(client, RefusedError(f"{client} was revoked", reason="revoked"))

    def _warn(self, client: str) -> None:
        """Send a client the broker's warnings."""
        with contextlib.suppress(RefusedError):  # its requests are refused as well
            for text in self.broker.notices(client):
                self._send_notice(client, Answer(message=text))

    def _send_notice(self, client: str, answer: Answer) -> None:
        self._connection.send(answers_topic(client), NOTICE + answer.to_bytes())

    def _lost(self) -> None:
        """End all work: another service has taken this one's place."""
        _log.critical("another service answers at this MQTT server: this one ends")
        self._is_running = False
        self._requests.close()
        self._on_lost()

    def _knocked(self, topic: str, content: bytes) -> None:
        """Listen to a client that says hello, unless it is listened to, or shut out."""
        client = topic[len(REQUESTS) : -len(HELLO) - 1]
        if not self._guests.greets(client):
            return
        self._hellos.take(1)
        if pause := self._hellos.debt():
            sleep(pause)  # the server drops what does not fit into its queue
        if not self._guests.is_outside(client):
            if self._guests.is_new(client):
                # It may have been sent before the server knew that the service listens.
                self._arrived(topic, content)
            return
        try:
            self.broker.turn_away(client, 0)
        except CcbpsError as error:
            self._refuse(client, HELLO, content, error)
            return
        self._guests.let_in(client)
        self._connection.listen(requests_topic(client), partial(self._listening, topic, content))

    def _listening(self, topic: str, content: bytes) -> None:
        """Take in the hello of a client, now that its other requests arrive."""
        client = topic[len(REQUESTS) : -len(HELLO) - 1]
        self._guests.confirm(client)
        self._arrived(topic, content)

    def _arrived(self, topic: str, content: bytes) -> None:
        if topic == CLAIM:
            self._claim.arrived(content)
            return
        client, _, verb = topic[len(REQUESTS) :].rpartition("/")
        if not self._guests.is_heard(client) or verb not in VERBS:
            return
        try:
            if not self._guests.arrived(client, len(content)):
                raise RefusedError("too many requests: send later", reason="rate")
            self.broker.turn_away(client, len(content) - NUMBER_BYTES)
            if verb == ACKNOWLEDGE:
                self._acknowledge_later(client, content)
            else:
                self._requests.put(Request(client, verb, content))
        except CcbpsError as error:
            self._refuse(client, verb, content, error)

    def _acknowledge_later(self, client: str, content: bytes) -> None:
        """Let an acknowledgement wait, in place of the one that waits, which it includes."""
        with self._lock:
            is_new = client not in self._acknowledged
            self._acknowledged[client] = content
        if is_new:
            self._requests.put(Request(client, ACKNOWLEDGE, b""), bounded=False)

    def _refuse(self, client: str, verb: str, content: bytes, error: CcbpsError) -> None:
        """Answer with an error; cease to listen to a client that gets too many of them."""
        if self._guests.refused(client):
            self._answer(client, verb, content, Answer.of(error))
        elif self._guests.shut_out(client):
            _log.warning("%s sends too much: not listened to for %s s", client, BLOCK_SECONDS)
            text = f"too many requests were refused: nothing is read for {BLOCK_SECONDS:g} s"
            self._cease(client, RefusedError(text, reason="rate"))

    def _cease(self, client: str, error: RefusedError) -> None:
        """Listen to a client no more, forget its requests that wait, and tell it why."""
        self._guests.leave(client)
        self._connection.ignore(requests_topic(client))
        self._requests.forget(client)
        with self._lock:
            self._told.discard(client)
            self._acknowledged.pop(client, None)
        self._send_notice(client, Answer.of(error))

    # -- in the worker's thread ------------------------------------------------------------------

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            client, verb, content = request
            if verb == PUBLISH:
                more = self._requests.following(request, self._together - 1)
                self._publish([request, *more])
                continue
            try:
                answer = self._do(client, verb, content[NUMBER_BYTES:])
            except CcbpsError as error:
                if verb not in (PUSH, ACKNOWLEDGE):
                    self._refuse(client, verb, content, error)
                continue
            except Exception:  # one client's request must not end the service for all
                _log.exception("a request of %s to %s failed", client, verb)
                answer = Answer(None, "CcbpsError", "the broker failed; it has a log")
            if verb != PUSH:
                self._answer(client, verb, content, answer)

    def _publish(self, requests: list[Request]) -> None:
        """Serve publications of one client together."""
        client, results = requests[0].client, list[Receipt | CcbpsError]()
        try:
            messages = [request.content[NUMBER_BYTES:] for request in requests]
            results = self.broker.publish_all(client, messages)
        except Exception:
            _log.exception("publications of %s failed", client)
            results = [CcbpsError("the broker failed; it has a log")] * len(requests)
        for request, result in zip(requests, results, strict=True):
            if isinstance(result, CcbpsError):
                self._refuse(client, PUBLISH, request.content, result)
            else:
                self._answer(client, PUBLISH, request.content, Answer(result))

    def _do(self, client: str, verb: str, message: bytes) -> Answer:
        """Serve a request, and return its answer."""
        if verb == "greet":
            self.broker.greet(client, message)
        elif verb == "grant":
            self.broker.grant(client, message)
        elif verb == "present":
            self.broker.present(client, message)
            self._tell(client)  # deliveries may have waited for it
        elif verb == "enact":
            self.broker.enact(message, client=client)
        elif verb == "subscribe":
            self.broker.subscribe(client, message)
        elif verb == "unsubscribe":
            self.broker.unsubscribe(client, _text(message))
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
        elif verb == ACKNOWLEDGE:
            with self._lock:
                content = self._acknowledged.pop(client, b"")
            outgoing.acknowledge(Position.from_bytes(content[NUMBER_BYTES:]))
        else:
            self._warn(client)
            outgoing.resume(Position.from_bytes(message))
        self._go_on(client)

    def _go_on(self, client: str) -> None:
        """Let a client's next deliveries follow when its rate allows them."""
        pause = self.broker.access.pause(client)
        with self._lock:
            waits = not pause or client in self._paused
            if waits or not self._is_running:
                return
            self._paused.add(client)
        timer = threading.Timer(min(pause, LONGEST_PAUSE), self._end_pause, [client])
        timer.daemon = True
        timer.start()

    def _end_pause(self, client: str) -> None:
        with self._lock:
            self._paused.discard(client)
        self._tell(client)

    def _answer(self, client: str, verb: str, content: bytes, answer: Answer) -> None:
        number = content[:NUMBER_BYTES]
        if verb != ACKNOWLEDGE and len(number) == NUMBER_BYTES and number != NOTICE:
            message = number + answer.to_bytes()
            self._connection.send(answers_topic(client), message)

    def _deliver(self, client: str, message: bytes) -> None:
        self._connection.send(deliveries_topic(client), message)


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise DecodeError("a name must be UTF-8") from None
