"""Puts a `MatchingBroker` behind an MQTT server."""

from __future__ import annotations

import json
import logging
import os
import queue
import struct
import threading
from collections.abc import Mapping
from typing import Any, Final

from ccbps.broker import MatchingBroker
from ccbps.errors import CcbpsError, DecodeError, RefusedError
from ccbps.mqtt.connection import (
    BROKER,
    UP,
    VERBS,
    WAIT_SECONDS,
    Connection,
    MqttUrl,
    answers_topic,
    deliveries_topic,
)

__all__ = ["MqttService"]

NUMBER_BYTES: Final = 8
BATCH: Final = 100
_log: Final = logging.getLogger(__name__)
_SEQUENCE: Final = struct.Struct(">q")


class MqttService:
    """Takes clients' requests from an MQTT server to a broker, and brings answers and deliveries.

    Attributes:
        broker: matches.

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
        """
        Args:
            broker: matches.
            url: of the MQTT server, with the name `broker`.
        """
        self.broker = broker
        self._requests: queue.SimpleQueue[tuple[str, str, bytes] | None] = queue.SimpleQueue()
        self._sent: dict[str, int] = {}
        self._up = threading.Event()
        topics = [f"ccbps/to/+/{verb}" for verb in VERBS]
        self._connection = Connection(url, topics, self._arrived, self._up.set)
        self._worker = threading.Thread(target=self._work, name="ccbps broker", daemon=True)

    def start(self) -> None:
        """Connect, and serve until `stop`.

        Raises:
            OSError: the server cannot be reached, or refuses.
        """
        self._connection.open()
        if not self._up.wait(WAIT_SECONDS) or self._connection.refused:
            self._connection.close()
            raise OSError(f"the MQTT server refuses {BROKER}: {self._connection.refused}")
        self.broker.on_delivery = lambda client: self._requests.put((client, "push", b""))
        self._worker.start()
        # Clients that hear it send again what was not answered, and say where they are.
        self._connection.send(UP, os.urandom(NUMBER_BYTES), retain=True)

    def stop(self) -> None:
        """Answer what has arrived, and disconnect."""
        self._requests.put(None)
        self._worker.join()
        self.broker.on_delivery = None
        self._connection.close()

    def __enter__(self) -> MqttService:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _arrived(self, topic: str, content: bytes) -> None:
        parts = topic.split("/")
        if len(parts) == 4 and parts[3] in VERBS:
            self._requests.put((parts[2], parts[3], content))

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            client, verb, content = request
            if verb == "push":
                self._push(client)
                continue
            number, message = content[:NUMBER_BYTES], content[NUMBER_BYTES:]
            answer: dict[str, Any] = {}
            try:
                answer = self._do(client, verb, message)
            except CcbpsError as error:
                answer = {"error": type(error).__name__, "message": str(error)}
                if isinstance(error, RefusedError):
                    answer["reason"] = error.reason
            except Exception:  # one client's request must not end the service for all
                _log.exception("a request of %s to %s failed", client, verb)
                answer = {"error": "CcbpsError", "message": "the broker failed; it has a log"}
            if len(number) == NUMBER_BYTES and verb != "acknowledge":
                self._connection.send(answers_topic(client), number + json.dumps(answer).encode())

    def _do(self, client: str, verb: str, message: bytes) -> dict[str, Any]:
        if verb == "subscribe":
            self.broker.subscribe(client, message)
        elif verb == "unsubscribe":
            self.broker.unsubscribe(client, _text(message))
        elif verb == "publish":
            receipt = self.broker.publish(client, message)
            return {"number": receipt.number, "again": receipt.again, "clients": receipt.clients}
        elif verb == "deliver":
            number, messages, last = sealed_from(message)
            self.broker.deliver(client, number, messages, last=last)
        elif verb == "acknowledge":
            self.broker.acknowledge(client, sequence_from(message))
        elif verb == "resume":
            self._sent[client] = sequence_from(message)
            self._push(client)
        return {}

    def _push(self, client: str) -> None:
        """Send what was put into a client's queue and was not sent yet."""
        while True:
            try:
                some = self.broker.take(client, BATCH, after=self._sent.get(client, -1))
            except CcbpsError:  # revoked
                return
            for delivery in some:
                before = sequence_bytes(self._sent.get(client, -1))
                self._connection.send(deliveries_topic(client), before + delivery.to_bytes())
                self._sent[client] = delivery.sequence
            if len(some) < BATCH:
                return


def sequence_bytes(sequence: int) -> bytes:
    """A sequence number, or -1, as it is sent."""
    return _SEQUENCE.pack(sequence)


def sequence_from(message: bytes) -> int:
    """Raises DecodeError if it is none."""
    if len(message) != _SEQUENCE.size:
        raise DecodeError(f"a sequence number has {_SEQUENCE.size} bytes, got {len(message)}")
    (sequence,) = _SEQUENCE.unpack(message)
    return int(sequence)


def sealed_bytes(number: int, messages: Mapping[str, bytes], last: bool) -> bytes:
    """A publication's payloads, sealed for clients, as they are sent."""
    found = {client: message.hex() for client, message in messages.items()}
    return json.dumps([number, found, last]).encode()


def sealed_from(message: bytes) -> tuple[int, dict[str, bytes], bool]:
    """Raises DecodeError if it is not what `sealed_bytes` made."""
    try:
        number, found, last = json.loads(message)
        if type(number) is not int or type(last) is not bool:
            raise ValueError
        return number, {str(one): bytes.fromhex(text) for one, text in found.items()}, last
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise DecodeError("not payloads that a publisher sealed") from None


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise DecodeError("a name must be UTF-8") from None
