"""Connections to an MQTT server by URL, and the topics of all messages.

The MQTT server is trusted with clients' names only: it must let a client publish to its own
requests, and subscribe to its own answers and deliveries, and to nothing else. Topics tell who
speaks with the matching broker, and nothing about the contents.

===================================  ==================================================
topic                                carries
===================================  ==================================================
``ccbps/to/<client>/<verb>``         a client's requests: 8 bytes that number it, and a
                                     message; verbs are those of `VERBS`
``ccbps/for/<client>/answer``        the broker's answers: the same 8 bytes, and JSON
``ccbps/for/<client>/delivery``      deliveries, each behind the position of the one before it,
                                     so that a lost one is missed
``ccbps/up``                         8 random bytes, retained: a broker has started; behind them
                                     the session for which tokens are presented, if it has one
``ccbps/claim``                      the service that answers here, retained (`ccbps.mqtt.claim`)
===================================  ==================================================

The service subscribes to the requests of each client by the client's name, so it can also cease to
listen to one client: the server then drops that client's requests. A client's first request is
``resume``, which another connection of the service reads, for all names. The client sends other
requests once it has the answer.

All messages but claims have quality of service 1, which an MQTT server gives while both sides are
connected.
Nothing depends on the server's memory: when a broker or a client comes back, clients send requests
without an answer again, and ask for deliveries that they did not get. The page
*A broker on a server* has the access control list that mosquitto needs.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Final, Self
from urllib.parse import urlsplit

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from ccbps.broker.messages import check_name
from ccbps.checks import choice
from ccbps.errors import ParameterError

BROKER: Final = "broker"
"""Name of the service at the MQTT server."""
UP: Final = "ccbps/up"
REQUESTS: Final = "ccbps/to/"
HELLO: Final = "resume"
"""A client's first verb."""
VERBS: Final = (
    "greet",
    "grant",
    "present",
    "enact",
    "subscribe",
    "unsubscribe",
    "publish",
    "deliver",
    "acknowledge",
    HELLO,
)
WAIT_SECONDS: Final = 30.0
QOS: Final = 1
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class MqttUrl:
    """Address of an MQTT server, with the name and password of one of its clients.

    Attributes:
        url: ``mqtt://host:port`` or, over TLS, ``mqtts://host:port``.
        client: name of the client.
        password: its password; None for none.
        ca: file with the certificates that are trusted for TLS; None for the system's.
        version: version of MQTT, 3 for 3.1.1, or 5.

    Example:
        >>> from ccbps.mqtt import MqttUrl
        >>> MqttUrl("mqtts://mqtt.example.org", "alice", "secret").address
        ('mqtt.example.org', 8883)
    """

    url: str
    client: str
    password: str | None = field(default=None, repr=False)
    ca: str | PathLike[str] | None = None
    version: int = 3

    def __post_init__(self) -> None:
        check_name("client", self.client)
        try:
            parts = urlsplit(self.url)
            is_good = parts.scheme in ("mqtt", "mqtts") and bool(parts.hostname)
            is_good = is_good and "@" not in self.url and parts.port != 0
        except ValueError:  # a bad port, or brackets of an address
            is_good = False
        if not is_good:
            # It may hold a password.
            shown = self.url.rpartition("@")[2]
            hint = ", without a user or a password" if "@" in self.url else ""
            raise ParameterError(
                f"url must be mqtt://host:port or mqtts://host:port{hint}, got {shown!r}"
            )
        choice("version", self.version, (3, 5))

    @property
    def tls(self) -> bool:
        """Whether the connection is over TLS."""
        return urlsplit(self.url).scheme == "mqtts"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        return str(parts.hostname), parts.port or (8883 if self.tls else 1883)


class Startable(ABC):
    """Base of services and clients: they run in a `with` block, or from `start` to `stop`."""

    @abstractmethod
    def start(self) -> None:
        """Connect.

        Raises:
            OSError: the server cannot be reached, or refuses.
        """

    @abstractmethod
    def stop(self) -> None:
        """Disconnect."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Connection:
    """A connection that reconnects by itself. Messages arrive in its thread."""

    def __init__(
        self,
        url: MqttUrl,
        topics: list[str],
        on_message: Callable[[str, bytes], object],
        on_up: Callable[[], object] = lambda: None,
    ) -> None:
        """Prepare a connection.

        Args:
            url: address of the server.
            topics: topics to subscribe to.
            on_message: called with topic and content of a message.
            on_up: called each time that the topics are subscribed to.
        """
        self._url, self._topics = url, dict.fromkeys(topics)
        # Functions to call when the server confirms a subscription, each with the number of its
        # request, which is None if there was no connection.
        self._lock = threading.Lock()
        self._confirming: list[tuple[int | None, Callable[[], object]]] = []
        self._all: int | None = None
        self._on_message, self._on_up = on_message, on_up
        self._paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            # Who knew it could take the connection's place, in some servers without a password.
            client_id=f"ccbps-{url.client}-{os.urandom(8).hex()}",
            protocol=paho.MQTTv5 if url.version == 5 else paho.MQTTv311,
        )
        self._paho.username_pw_set(url.client, url.password)
        if url.tls:
            self._paho.tls_set_context(ssl.create_default_context(cafile=url.ca))
        self._paho.reconnect_delay_set(1, 10)
        self._paho.max_inflight_messages_set(1000)
        self._paho.on_socket_open = self._opened
        self._paho.on_connect = self._connected
        self._paho.on_disconnect = self._disconnected
        self._paho.on_subscribe = self._subscribed
        self._paho.on_message = self._arrived
        # Whether all topics are subscribed to, and whether the server has accepted or refused.
        self._is_up, self._decided = False, threading.Event()
        self._refused: str | None = None

    def open(self, seconds: float) -> None:
        """Connect, subscribe to the topics, and go on in another thread.

        Args:
            seconds: time to wait for the server.

        Raises:
            OSError: there is no server, or it refuses.
        """
        self._paho.connect(*self._url.address, keepalive=30)
        self._paho.loop_start()
        is_decided = self._decided.wait(seconds)
        if not is_decided or self._refused:
            self.close()
            client = self._url.client
            if is_decided:
                raise OSError(f"the MQTT server refuses {client}: {self._refused}")
            raise OSError(f"the MQTT server does not answer {client} in {seconds:g} s")

    def listen(self, topic: str, then: Callable[[], object]) -> None:
        """Subscribe to one more topic, and call a function once the server has confirmed it."""
        with self._lock:
            self._topics[topic] = None
            _, number = self._paho.subscribe(topic, QOS)
            # Without a connection there is no number. The next one subscribes to all topics.
            self._confirming.append((number, then))

    def ignore(self, topic: str) -> None:
        """End the subscription to a topic."""
        with self._lock:
            self._topics.pop(topic, None)
            self._paho.unsubscribe(topic)

    def send(self, topic: str, content: bytes, *, retain: bool = False, waits: bool = True) -> None:
        """Send a message.

        Args:
            topic: topic of the message.
            content: content of the message.
            retain: whether the server keeps it for those who subscribe later.
            waits: whether it waits if there is no connection; otherwise it is dropped.
        """
        if not (waits or self._is_up):
            return
        info = self._paho.publish(topic, content, qos=QOS if waits else 0, retain=retain)
        if info.rc not in (MQTTErrorCode.MQTT_ERR_SUCCESS, MQTTErrorCode.MQTT_ERR_NO_CONN):
            raise OSError(f"MQTT: {paho.error_string(info.rc)}")

    def close(self) -> None:
        """Disconnect."""
        self._paho.disconnect()
        self._paho.loop_stop()

    def _arrived(self, _: object, __: object, message: Any) -> None:
        self._on_message(message.topic, bytes(message.payload))

    def _opened(self, _: object, __: object, opened: Any) -> None:
        # Else a short message waits 40 ms for the acknowledgement of the one before it.
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _connected(self, *arguments: Any) -> None:
        reason = arguments[3]
        if reason.is_failure:
            self._refuse(str(reason))
        else:
            with self._lock:
                self._refused = None
                topics = [(topic, QOS) for topic in self._topics]
                _, self._all = self._paho.subscribe(topics)

    def _disconnected(self, *_: Any) -> None:
        self._is_up = False

    def _refuse(self, reason: str) -> None:
        _log.warning("the MQTT server refuses %s: %s", self._url.client, reason)
        self._refused = reason
        self._decided.set()

    def _subscribed(self, *arguments: Any) -> None:
        _, _, number, reasons, _ = arguments
        is_all = number == self._all
        with self._lock:
            confirmed = [pair for pair in self._confirming if is_all or pair[0] == number]
            self._confirming = [pair for pair in self._confirming if pair not in confirmed]
        if any(reason.is_failure for reason in reasons):
            self._refuse("it does not let this client read its topics")
            return
        for _, then in confirmed:
            then()
        if is_all:
            self._on_up()
            self._is_up = True
            self._decided.set()


def requests_topic(client: str, verb: str = "+") -> str:
    """Return the topic of a client's requests with a verb, + for all verbs."""
    return f"{REQUESTS}{client}/{verb}"


def answers_topic(client: str) -> str:
    """Return the topic of a client's answers."""
    return f"ccbps/for/{client}/answer"


def deliveries_topic(client: str) -> str:
    """Return the topic of a client's deliveries."""
    return f"ccbps/for/{client}/delivery"
