"""Circuits over real connections: tunnels to a server that knows nothing of them."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ccbps.network import Credentials, Identity
from ccbps.overlay import RelayKey, RelayServer, Tunnel
from tests.support.relay import place_of


@contextmanager
def echo() -> Iterator[str]:
    """A server that sends back what comes, and its address."""

    def serve(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    def listen() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=listen, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def test_a_tunnel_through_two_relays_carries_what_a_connection_does() -> None:
    client, entry, leave = (Identity.generate() for _ in range(3))
    keys = [RelayKey.generate(), RelayKey.generate()]
    with (
        echo() as target,
        RelayServer(
            keys[1], Credentials(leave, (entry.certificate(),)), {}, targets=[target]
        ) as last,
        RelayServer(
            keys[0],
            Credentials(entry, (client.certificate(),)),
            {"last": (last.address, leave.certificate())},
        ) as first,
    ):
        path = [("first", keys[0].public()), ("last", keys[1].public())]
        place = first.address, entry.certificate()
        with Tunnel(path, target, place, client) as tunnel:
            content, heard, connections = os.urandom(400_000), bytearray(), []
            for _ in range(2):  # each connection has a circuit of its own
                connection = socket.create_connection(place_of(tunnel.address), 20)
                connections.append(connection)
                sender = threading.Thread(target=connection.sendall, args=(content,))
                sender.start()
                heard.clear()
                while len(heard) < len(content):
                    heard += connection.recv(1 << 16)
                sender.join()
                assert heard == content
            assert first.relay.circuits == last.relay.circuits == 2
            # Half a connection is none: the circuit ends when one side has said all.
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(10) == b""
        with Tunnel(path, "127.0.0.1:9", place, client) as tunnel:
            # What the exit does not list is not reached.
            refused = socket.create_connection(place_of(tunnel.address), 20)
            assert refused.recv(10) == b""
        assert not first.relay.dropped
        assert not last.relay.dropped
