"""A connection to an MQTT server, by URL; and the topics that everything goes through.

The MQTT server is not trusted with anything but clients' names: it must let a client publish to its
own requests and subscribe to its own answers and deliveries only. Topics say who speaks with the
matching broker, nothing about what.

===================================  ==================================================
topic                                carries
===================================  ==================================================
``ccbps/to/<client>/<verb>``         a client's requests: 8 bytes that number it, and a
                                     message; verbs are those of `VERBS`
``ccbps/for/<client>/answer``        the broker's answers: the same 8 bytes, and JSON
``ccbps/for/<client>/delivery``      deliveries, each behind the position of the one before it,
                                     so that a lost one is missed
``ccbps/up``                         8 random bytes, retained: a broker has started
===================================  ==================================================

All with quality of service 1, which an MQTT server gives while both sides are connected. So nothing
hangs on the server's memory: when a broker or a client comes back, clients send again what was not
answered, and ask for what they did not get. For mosquitto, this access control list does it::

    user broker
    topic readwrite ccbps/#
    pattern write ccbps/to/%u/#
    pattern read ccbps/for/%u/#
    pattern read ccbps/up
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Final
from urllib.parse import urlsplit

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from ccbps.broker.messages import check_name
from ccbps.errors import ParameterError

BROKER: Final = "broker"
"""The service's name at the MQTT server."""
UP: Final = "ccbps/up"
VERBS: Final = ("subscribe", "unsubscribe", "publish", "deliver", "acknowledge", "resume")
WAIT_SECONDS: Final = 30.0
QOS: Final = 1


@dataclass(frozen=True)
class MqttUrl:
    """Where an MQTT server is, and as whom to go there.

    Attributes:
        url: ``mqtt://host:port`` or, over TLS, ``mqtts://host:port``.
        client: the user's name.
        password: of the user; None for none.
        ca: of TLS: file with the certificates that are trusted; None for the system's.
        version: of MQTT: 3 for 3.1.1, or 5.

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
        parts = urlsplit(self.url)
        if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname or parts.username:
            raise ParameterError(
                f"url must be mqtt://host:port or mqtts://host:port, without a user, got "
                f"{self.url!r}"
            )
        if self.version not in (3, 5):
            raise ParameterError(f"version must be 3 or 5, got {self.version!r}")

    @property
    def tls(self) -> bool:
        """Whether to go there over TLS."""
        return self.url.startswith("mqtts")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        return str(parts.hostname), parts.port or (8883 if self.tls else 1883)


class Connection:
    """A connection that comes back by itself; messages arrive in its thread."""

    def __init__(
        self,
        url: MqttUrl,
        topics: list[str],
        on_message: Callable[[str, bytes], object],
        on_up: Callable[[], object],
    ) -> None:
        """
        Args:
            topics: to subscribe to.
            on_message: takes topic and content.
            on_up: called when the topics are subscribed to, each time.
        """
        self._url, self._topics = url, topics
        self._on_message, self._on_up = on_message, on_up
        self._paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            # Who knew it could take the connection's place, in some servers without a password.
            client_id=f"ccbps-{url.client}-{os.urandom(8).hex()}",
            protocol=paho.MQTTv5 if url.version == 5 else paho.MQTTv311,
        )
        self._paho.username_pw_set(url.client, url.password)
        if url.tls:
            context = ssl.create_default_context(cafile=url.ca)
            self._paho.tls_set_context(context)
        self._paho.reconnect_delay_set(1, 10)
        self._paho.max_inflight_messages_set(1000)
        self._paho.on_socket_open = self._opened
        self._paho.on_connect = self._connected
        self._paho.on_subscribe = self._subscribed
        self._paho.on_message = self._arrived
        self.refused: str | None = None

    def open(self) -> None:
        """Connect, and go on in another thread.

        Raises:
            OSError: there is no server.
        """
        self._paho.connect(*self._url.address, keepalive=30)
        self._paho.loop_start()

    def send(self, topic: str, content: bytes, *, retain: bool = False) -> None:
        """Send a message; it waits if there is no connection."""
        info = self._paho.publish(topic, content, qos=QOS, retain=retain)
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

    def _subscribed(self, *_: Any) -> None:
        self._on_up()

    def _connected(self, *arguments: Any) -> None:
        reason = arguments[3]
        if reason.is_failure:
            self.refused = str(reason)
            self._on_up()
            return
        self.refused = None
        self._paho.subscribe([(topic, QOS) for topic in self._topics])


def answers_topic(client: str) -> str:
    """Where a client's answers go."""
    return f"ccbps/for/{client}/answer"


def deliveries_topic(client: str) -> str:
    """Where a client's deliveries go."""
    return f"ccbps/for/{client}/delivery"
