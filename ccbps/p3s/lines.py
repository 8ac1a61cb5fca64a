"""Ways to the servers of P3S: over TLS with pinned certificates, or within a process."""

from __future__ import annotations

import threading
from typing import Any, Final

from ccbps.checks import whole
from ccbps.errors import ParameterError
from ccbps.keys.secret import Closable, confined
from ccbps.network import Certificate, Channel, Credentials, Identity, Server, connect
from ccbps.p3s.messages import (
    ITEM_BYTES,
    MOST_ITEM_BYTES,
    Ask,
    Reply,
    Request,
    asked_bytes,
    read_reply,
    reply_bytes,
)
from ccbps.p3s.servers import Role

IDLE_SECONDS: Final = 3600.0
"""Seconds after which a server ends the connection of a silent client."""
CONNECTIONS: Final = 256


def serve(role: Role, credentials: Credentials, **options: Any) -> Server:
    """Serve clients over the network, each connection in a thread, until the server is closed.

    A client that sends more than `Role.request_bytes` at a time loses its connection.

    Args:
        role: the server.
        credentials: its identity, and the certificates of all clients.
        options: host, port and further options of `ccbps.network.Server`.

    Raises:
        NetworkError: the address cannot be listened at.
    """

    def answer(channel: Channel) -> None:
        client = channel.peer.fingerprint
        while True:
            content = channel.receive(role.request_bytes, IDLE_SECONDS)
            channel.send(role.answer(client, bytes(content)))

    return Server(
        credentials, answer, **{"connections": CONNECTIONS, "title": role.title, **options}
    )


class Line(Closable):
    """A client's connection to a server. The first request makes it, and the first after a loss.

    Args:
        address: address of the server, ``host:port``.
        identity: identity of the client.
        peer: certificate of the server.
        seconds: seconds that a request may take.
        item_bytes: largest number of bytes of an item, equal to the repository's.
    """

    def __init__(
        self,
        address: str,
        identity: Identity,
        peer: Certificate,
        *,
        seconds: float = 60,
        item_bytes: int = ITEM_BYTES,
    ) -> None:
        self._item_bytes = whole("item_bytes", item_bytes, 1, MOST_ITEM_BYTES)
        self._place = address, identity, peer
        self._seconds, self._lock = seconds, threading.Lock()
        self._channel: Channel | None = None

    def __repr__(self) -> str:
        return f"<Line to {self._place[0]}>"

    @confined
    def __call__(self, request: Request) -> Reply:
        """Send a request and return its reply.

        Raises:
            ParameterError: the request's content is too long for its verb.
            NetworkError: the server cannot be reached, the connection was lost, or the reply is too
                long for the verb. It is not known whether the request was done.
            DecodeError: the answer is no reply.
            CcbpsError: the server refused the request.
        """
        verb, size = request.verb, len(request.content)
        most = asked_bytes(verb, self._item_bytes)
        if size > most:
            raise ParameterError(f"a request to {verb} has at most {most:,} bytes, got {size:,}")
        with self._lock:
            if self._channel is None or not self._channel.is_quiet():
                self.close()
                self._channel = connect(*self._place, seconds=self._seconds)
            self._channel.send(request.to_bytes())
            return read_reply(bytes(self._channel.receive(reply_bytes(verb, self._item_bytes))))

    def close(self) -> None:
        """End the connection."""
        if self._channel is not None:
            self._channel.close()


def local(role: Role, client: str) -> Ask:
    """Return the way of a client to a server in the same process.

    Args:
        role: the server.
        client: fingerprint of the client's certificate, or another name.
    """
    return lambda request: read_reply(role.answer(client, request.to_bytes()))
