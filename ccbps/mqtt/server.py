"""An MQTT server in this process, for examples, tests and small installations: aMQTT.

It authenticates clients by their passwords, and lets each client speak for itself only. It limits
the rate at which it reads a client's messages: aMQTT takes some hundred microseconds for a message,
so one client that sends thousands a second would hold all others up.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from os import PathLike
from time import monotonic
from typing import Any, Final

from amqtt.adapters import ReaderAdapter
from amqtt.broker import Broker
from amqtt.contexts import Action, BrokerConfig
from amqtt.mqtt.packet import PUBLISH
from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin
from amqtt.session import Session

from ccbps.access.rates import Bucket
from ccbps.broker.messages import check_name
from ccbps.checks import number
from ccbps.errors import ParameterError
from ccbps.mqtt.connection import BROKER, UP, WAIT_SECONDS, Startable

_log: Final = logging.getLogger(__name__)
RATE: Final = 1000.0
"""Messages of a client that are read per second."""
BURST: Final = 1000.0
"""Messages of a client that are read at once."""


class Passwords(BaseAuthPlugin):  # type: ignore[misc]
    """Admission of clients by name and password."""

    @dataclass
    class Config:
        """Passwords by name."""

        users: dict[str, str] = field(default_factory=dict)

    async def authenticate(self, *, session: Session) -> bool:
        """Tell whether the password is right, and there is no last will.

        A last will would be published in the name of any client.
        """
        if session.will_flag:
            return False
        users: dict[str, str] = self._get_config_option("users", {})
        password, given = users.get(session.username or ""), session.password or ""
        return password is not None and hmac.compare_digest(password.encode(), given.encode())


class OwnTopics(BaseTopicPlugin):  # type: ignore[misc]
    """Access to topics: a client writes its requests and reads its answers, the broker all."""

    @dataclass
    class Config:
        """No configuration."""

    async def topic_filtering(
        self,
        *,
        session: Session | None = None,
        topic: str | None = None,
        action: Action | None = None,
    ) -> bool:
        """Tell whether a client may use a topic."""
        name = None if session is None else session.username
        if name is None or topic is None:
            return False
        if name == BROKER:
            return True
        if action is Action.PUBLISH:
            return topic.startswith(f"ccbps/to/{name}/")
        return topic == UP or topic.startswith(f"ccbps/for/{name}/")


class _Subscriptions(dict[str, list[Any]]):
    """Subscriptions that may change during an iteration, where aMQTT 0.12 fails."""

    def __iter__(self) -> Any:
        return iter([*super().keys()])

    def items(self) -> Any:
        """Copy the subscriptions as they are now."""
        return [(topic, [*some]) for topic, some in super().items()]


def _note(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Write the error of a task into the log."""
    _log.debug("%s", context.get("message"), exc_info=context.get("exception"))


class _PacedReader(ReaderAdapter):  # type: ignore[misc]
    """A connection's reader that waits while its client publishes too fast.

    Meanwhile TCP holds the client back. Only messages of the kind PUBLISH count.
    """

    def __init__(self, reader: ReaderAdapter, rate: float) -> None:
        self._reader, self._bucket = reader, Bucket(rate, BURST, monotonic)
        # Bytes of the message's body that were not read, and the bits of its length so far; None
        # before the message.
        self._body = 0
        self._length: list[int] | None = None

    async def read(self, n: int = -1) -> bytes:
        """Read bytes, as many as are left of a part of a message at most."""
        content: bytes = await self._reader.read(n)
        if self._body:
            self._body -= len(content)
        elif self._length is None:
            self._length = []
            if content and content[0] >> 4 == PUBLISH:
                self._bucket.take(1)
                if pause := self._bucket.debt():
                    await asyncio.sleep(pause)
        elif content:
            self._length.append(content[0] & 127)
            if content[0] < 128:
                self._body = sum(bits << 7 * place for place, bits in enumerate(self._length))
                self._length = None
        return content

    def feed_eof(self) -> None:
        """End the stream."""
        self._reader.feed_eof()


class _Broker(Broker):  # type: ignore[misc]
    """aMQTT's server, which paces its clients."""

    rate = RATE

    async def _handle_client_session(
        self, reader: ReaderAdapter, writer: Any, client_session: Session, *others: Any
    ) -> None:
        if client_session.username != BROKER:
            reader = _PacedReader(reader, self.rate)
        await super()._handle_client_session(reader, writer, client_session, *others)

    async def _publish_retained_messages_for_subscription(
        self, subscription: tuple[str, int], session: Session
    ) -> None:
        # aMQTT 0.12 calls this for the topics of all clients.
        if session.username == BROKER or subscription[0] == UP:
            await super()._publish_retained_messages_for_subscription(subscription, session)


class LocalServer(Startable):
    """An MQTT 3.1.1 server on this machine, in a thread of its own.

    aMQTT logs each refused client at length, under the names "amqtt" and "transitions". Set the
    levels of these loggers if you do not want that.

    Attributes:
        url: address of the server.

    Example:
        >>> from ccbps.mqtt import LocalServer
        >>> with LocalServer({"broker": "secret", "alice": "wonderland"}) as server:
        ...     server.url.startswith("mqtt://127.0.0.1:")
        True
    """

    def __init__(
        self,
        users: Mapping[str, str],
        *,
        port: int = 0,
        certificate: str | PathLike[str] | None = None,
        key: str | PathLike[str] | None = None,
        rate: float = RATE,
    ) -> None:
        """Prepare a server.

        Args:
            users: passwords by client's name; the service's name is "broker".
            port: port of 127.0.0.1; 0 for a free one.
            certificate: file with the server's certificate, for TLS.
            key: file with the certificate's key.
            rate: messages of a client that are read in a second. A client that sends more waits.

        Raises:
            ParameterError: a name is malformed, or certificate and key are not given together.
        """
        for name in users:
            check_name("users", name)
        if (certificate is None) != (key is None):
            raise ParameterError("certificate and key must be given together, for TLS")
        listener: dict[str, Any] = {"type": "tcp", "bind": f"127.0.0.1:{port}"}
        if certificate is not None:
            listener |= {"ssl": True, "certfile": str(certificate), "keyfile": str(key)}
        passwords, own_topics = f"{__name__}.Passwords", f"{__name__}.OwnTopics"
        self._config = {
            "listeners": {"default": listener},
            "plugins": {passwords: {"users": dict(users)}, own_topics: {}},
        }
        self._rate = number("rate", rate, 1)
        self._scheme, self.url = "mqtt" if certificate is None else "mqtts", ""
        self._thread = threading.Thread(target=self._run, name="MQTT server", daemon=True)
        self._started: Future[str] = Future()

    def start(self) -> None:
        """Listen.

        Raises:
            OSError: the port is taken.
        """
        self._thread.start()
        try:
            self.url = self._started.result(WAIT_SECONDS)
        except Exception as error:
            problem: BaseException = error
            while problem.__cause__ is not None:
                problem = problem.__cause__  # aMQTT's own error hides the system's
            number = getattr(problem, "errno", None)
            reason = os.strerror(number) if number else problem
            address = self._config["listeners"]["default"]["bind"]
            raise OSError(f"the MQTT server cannot start at {address}: {reason}") from None

    def stop(self) -> None:
        """Close all connections."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(WAIT_SECONDS)

    def _run(self) -> None:
        # The loop is made in this thread: on Windows, one that is made in the main thread would
        # take the signals' wake-up from others.
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        # aMQTT's tasks turn their cancellation at the end into errors, whose tracebacks asyncio
        # would print.
        self._loop.set_exception_handler(_note)
        broker = _Broker(BrokerConfig.from_dict(self._config))
        broker.rate = self._rate
        broker._subscriptions = _Subscriptions()
        await broker.start()
        server = broker._servers["default"].instance
        host, port = server.sockets[0].getsockname()[:2]
        self._started.set_result(f"{self._scheme}://{host}:{port}")
        await self._ended.wait()
        with contextlib.suppress(Exception):
            await broker.shutdown()
