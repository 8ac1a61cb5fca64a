"""Circuits over real connections: tunnels to a server that knows nothing of them."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ccbps.errors import NetworkError, ParameterError, RefusedError
from ccbps.network import Credentials, Identity
from ccbps.overlay import RelayKey, RelayServer, Tunnel
from ccbps.overlay.onion.relay import WINDOW
from ccbps.overlay.onion.served import _Line, _Pump
from tests.support.refusals import refused
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
        path = [("first", keys[0].public), ("last", keys[1].public)]
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
            # No circuit can ask for the link of a client.
            for link in (*first._came, *last._came):
                with pytest.raises(UnicodeEncodeError):
                    link.encode()
            # Half a connection is none: the circuit ends when one side has said all.
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(10) == b""
        with Tunnel(path, "127.0.0.1:9", place, client) as tunnel:
            # What the exit does not list is not reached.
            refused = socket.create_connection(place_of(tunnel.address), 20)
            assert refused.recv(10) == b""
        assert not first.relay.dropped
        assert not last.relay.dropped


def test_a_tunnel_listens_on_when_a_circuit_cannot_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    client, leave = Identity.generate(), Identity.generate()
    key = RelayKey.generate()
    with (
        echo() as target,
        RelayServer(key, Credentials(leave, (client.certificate(),)), {}, targets=[target]) as last,
        Tunnel(
            [("last", key.public)], target, (last.address, leave.certificate()), client
        ) as tunnel,
    ):
        with monkeypatch.context() as patched:
            patched.setattr("ccbps.overlay.onion.served.MOST_WAITING", 0)
            with socket.create_connection(place_of(tunnel.address), 20) as connection:
                assert connection.recv(10) == b""
        with socket.create_connection(place_of(tunnel.address), 20) as connection:
            connection.sendall(b"hello")
            assert connection.recv(10) == b"hello"
            # A relay has a limit of connections to servers.
            last._most = 1
            refused(RefusedError, "as many connections", last._leave, target.encode(), None)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(10) == b""
        for _ in range(6000):
            if not last._ends:
                break
            threading.Event().wait(0.01)
        assert not last._ends


def connected() -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = socket.create_connection(listening.getsockname())
        return here, listening.accept()[0]


def test_who_breaks_the_window_ends_the_circuit() -> None:
    """What does not fit is not left out: the server would get other bytes than were sent."""
    for breach in ("data", "credit"):
        here, there = connected()
        ended, sent = threading.Event(), list[bytes]()
        with here, there:
            pump = _Pump(here, sent.append, lambda _: None, ended.set)
            for _ in range(20 * WINDOW):  # nobody reads `there`
                if breach == "data" and not ended.is_set():
                    pump.receive(bytes(1000))
            if breach == "credit":
                pump.credit(1)
            assert ended.is_set()
            pump.close()


def test_targets_are_addresses() -> None:
    own = Credentials(Identity.generate(), ())
    key = RelayKey.generate()
    for targets in ("127.0.0.1:9", ["127.0.0.1"], ["127.0.0.1:99999"]):
        refused(ParameterError, "address", RelayServer, key, own, {}, targets=targets)


def test_a_link_that_ends_while_it_is_opened_leaves_no_channel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[Any] = []
    going = threading.Event()

    class Opened:
        def __init__(self) -> None:
            self.closed = False
            opened.append(self)

        def send(self, *_: bytes) -> None:
            if self.closed:
                raise NetworkError("closed")

        def close(self) -> None:
            self.closed = True

    def slow(*_: object) -> Opened:
        going.wait(10)
        return Opened()

    monkeypatch.setattr("ccbps.overlay.onion.served.connect", slow)
    lost = threading.Event()
    line = _Line(("127.0.0.1:9", None), None, lambda _: None, lost.set)  # type: ignore[arg-type]
    line.close()
    going.set()
    for _ in range(3000):
        if opened and opened[0].closed:
            break
        threading.Event().wait(0.02)
    assert opened[0].closed
