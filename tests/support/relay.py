"""A relay between a client and a server, which sees all that is sent and may change it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Change = Callable[[int, bytes], bytes | None]


def place_of(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def read_or_end(connection: socket.socket) -> bytes:
    """Read what has come; a connection that was reset has ended."""
    try:
        return connection.recv(1 << 16)
    except OSError:
        return b""


def pieces(connection: socket.socket) -> Iterator[bytes]:
    """Yield what comes, as it comes."""
    while piece := read_or_end(connection):
        yield piece


def records(connection: socket.socket) -> Iterator[bytes]:
    """Yield the records of TLS that come."""
    buffer = b""
    for piece in pieces(connection):
        buffer += piece
        while len(buffer) >= 5 and len(buffer) >= (end := 5 + int.from_bytes(buffer[3:5], "big")):
            yield buffer[:end]
            buffer = buffer[end:]


class Relay:
    """Between clients and a server.

    Attributes:
        address: where clients connect.
        seen: what clients sent, and what the server did.
    """

    def __init__(
        self,
        target: str,
        change: Change,
        side: int = 1,
        split: Callable[[socket.socket], Iterator[bytes]] = pieces,
        port: int = 0,
    ) -> None:
        """
        Args:
            change: function from number and piece to its replacement; None breaks the connection.
            side: side whose pieces are changed: 0 for a client, 1 for the server.
            split: function that yields the pieces that come from a socket.
        """
        self.seen = [b"", b""]
        self._listening = socket.create_server(("127.0.0.1", port))
        self._open: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._target, self._change, self._side, self._split = target, change, side, split
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(place_of(self._target))
            except OSError:
                client.close()
                continue
            self._open = [one for one in self._open if one.fileno() >= 0] + [client, server]
            threading.Thread(target=self._pump, args=(0, client, server), daemon=True).start()
            threading.Thread(target=self._pump, args=(1, server, client), daemon=True).start()

    def _pump(self, side: int, source: socket.socket, target: socket.socket) -> None:
        for number, piece in enumerate(self._split(source)):
            self.seen[side] += piece
            changed = self._change(number, piece) if side == self._side else piece
            if changed is None:
                break
            with suppress(OSError):  # it has ended
                target.sendall(changed)
        for end in (source, target):
            with suppress(OSError):  # it has ended
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> int:
        """Break all connections, and return how many there were."""
        broken, self._open = self._open, []
        for end in broken:
            with suppress(OSError):  # it has ended
                end.shutdown(socket.SHUT_RDWR)
        return len(broken)

    def close(self) -> None:
        self._listening.close()


@contextmanager
def relayed(
    target: str,
    change: Change = lambda number, piece: piece,
    side: int = 1,
    split: Callable[[socket.socket], Iterator[bytes]] = pieces,
) -> Iterator[Relay]:
    relay = Relay(target, change, side, split)
    try:
        yield relay
    finally:
        relay.close()
