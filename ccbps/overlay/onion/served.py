"""Relays and tunnels over real connections: `ccbps.network` links, and plain TCP at both ends.

A `RelayServer` is a relay that listens. A `Tunnel` is a port of this machine: each connection to it
goes through a circuit of its own to a server that the last relay reaches. So an MQTT client and an
MQTT server need no change: the client connects to the tunnel, and the server sees the last relay.

A link is two channels that the same side opened, one for each direction; the first frame of each
names the link by 16 random bytes. Threads carry the cells, several to a frame if several wait.

At most `WINDOW` cells of data are on their way in each direction of a circuit: the receiver gives
credit as it passes them on. So a slow server holds its client back, and no queue grows.

The operator of an exit lists the servers that it reaches. To them the exit is the client.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Final

from ccbps.checks import Printable, whole
from ccbps.errors import CcbpsError, NetworkError, ParameterError, RefusedError
from ccbps.keys.secret import Closable, Confined
from ccbps.network import Certificate, Channel, Credentials, Identity, Server, connect
from ccbps.network.channel import POLL_SECONDS, split_address
from ccbps.overlay.onion.cells import CELL_BYTES, CONTROL, DATA_BYTES, ID_BYTES, RelayKey
from ccbps.overlay.onion.circuit import Circuit
from ccbps.overlay.onion.relay import WINDOW, Relay, Stream

_log: Final = logging.getLogger(__name__)
BATCH: Final = 32
"""Largest number of cells in a frame."""
MOST_WAITING: Final = 1 << 14
"""Largest number of cells that wait for a link. With more, the circuits that send them end."""
UP: Final = b"u"
DOWN: Final = b"d"
NAME_BYTES: Final = 16
IDLE_SECONDS: Final = 1e6
"""Seconds for which a link may be silent. TCP detects lost machines."""

Place = tuple[str, Certificate]
"""Address of a relay's server, ``host:port``, and its certificate."""


class _Cells:
    """Cells that wait for a link."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[bytes | None] = SimpleQueue()
        self.ended = False

    def put(self, cell: bytes) -> None:
        if self.ended or self._waiting.qsize() >= MOST_WAITING:
            raise NetworkError("the link has ended, or is too slow")
        self._waiting.put(cell)

    def close(self) -> None:
        self.ended = True
        self._waiting.put(None)

    def drain(self, channel: Channel) -> None:
        """Send cells until the link ends."""
        while (cell := self._waiting.get()) is not None:
            frame = [cell]
            while len(frame) < BATCH and not self._waiting.empty():
                if (cell := self._waiting.get()) is None:
                    return
                frame.append(cell)
            channel.send(b"".join(frame))


def _read(channel: Channel, take: Callable[[bytes], None]) -> None:
    """Take the cells of a channel until it ends, which raises a `NetworkError`."""
    while True:
        frame = bytes(channel.receive(BATCH * CELL_BYTES, IDLE_SECONDS))
        for at in range(0, len(frame), CELL_BYTES):
            take(frame[at : at + CELL_BYTES])


class _Line(Confined):
    """A link that this side opens. Cells wait until it is open.

    Args:
        place: the other side.
        identity: identity of this side.
        take: function that takes each cell that comes.
        lost: function that is called once, when the link has ended.
    """

    def __init__(
        self,
        place: Place,
        identity: Identity,
        take: Callable[[bytes], None],
        lost: Callable[[], None],
    ) -> None:
        self._place, self._identity, self._take, self._lost = place, identity, take, lost
        self._cells, self._lock = _Cells(), threading.Lock()
        self._channels: list[Channel] = []
        self.send = self._cells.put
        threading.Thread(target=self._run, args=(UP, os.urandom(NAME_BYTES)), daemon=True).start()

    @property
    def ended(self) -> bool:
        return self._cells.ended

    def _run(self, way: bytes, name: bytes) -> None:
        try:
            channel = connect(self._place[0], self._identity, self._place[1])
            with self._lock:
                self._channels.append(channel)
                if self._cells.ended:  # meanwhile
                    channel.close()
            channel.send(way + name)
            if way == UP:
                threading.Thread(target=self._run, args=(DOWN, name), daemon=True).start()
                self._cells.drain(channel)
            else:
                _read(channel, self._take)
        except CcbpsError as error:
            _log.info("the link to %s ended: %s", self._place[0], error)
        self.close()

    def close(self) -> None:
        with self._lock:
            if self._cells.ended:
                return
            self._cells.close()
        for channel in self._channels:
            channel.close()
        self._lost()


class _Pump:
    """Both directions between a TCP connection and a circuit.

    Args:
        connection: a connected socket.
        send: function that sends data into the circuit.
        credit: function that gives credit.
        end: function that closes the circuit.
    """

    def __init__(
        self,
        connection: socket.socket,
        send: Callable[[bytes], None],
        credit: Callable[[int], None],
        end: Callable[[], None],
    ) -> None:
        self._connection, self._send, self._credit, self._end = connection, send, credit, end
        self._waiting: SimpleQueue[bytes] = SimpleQueue()
        self._room, self._closed = threading.BoundedSemaphore(WINDOW), False
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for task in (self._read, self._write):
            threading.Thread(target=task, daemon=True).start()

    def receive(self, data: bytes) -> None:
        """Take data of the circuit; end it if they exceed the window."""
        if self._waiting.qsize() >= 2 * WINDOW:
            self._end()
        elif data:
            self._waiting.put(data)

    def credit(self, count: int) -> None:
        """Take note that the other end has room for more cells; end it if there cannot be."""
        try:
            self._room.release(count)
        except ValueError:
            self._end()

    def close(self) -> None:
        """Close the connection, after the data that waits for it."""
        self._closed = True
        self._waiting.put(b"")
        with suppress(ValueError):
            self._room.release()

    def _read(self) -> None:
        with suppress(OSError, NetworkError):
            while data := self._connection.recv(BATCH * DATA_BYTES):
                for at in range(0, len(data), DATA_BYTES):
                    self._room.acquire()
                    if self._closed:
                        return
                    self._send(data[at : at + DATA_BYTES])
        self._end()

    def _write(self) -> None:
        done = 0
        with suppress(OSError, NetworkError):
            while data := self._waiting.get():
                self._connection.sendall(data)
                done += 1
                if done == WINDOW // 2:
                    self._credit(done)
                    done = 0
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


class _TcpEnd:
    """An end that connects to a server, in a thread of its own."""

    def __init__(
        self, target: str, stream: Stream, lock: threading.RLock, ends: set[_TcpEnd]
    ) -> None:
        self._stream, self._lock, self._closed, self._ends = stream, lock, False, ends
        ends.add(self)
        self._pump: _Pump | None = None
        threading.Thread(target=self._run, args=(target,), daemon=True).start()

    def _run(self, target: str) -> None:
        try:
            connection = socket.create_connection(split_address(target), 30)
        except (OSError, UnicodeError) as error:
            _log.info("%s cannot be reached: %s", target, error)
            self._locked(self._stream.close)
            return
        connection.settimeout(None)
        with self._lock:
            if self._closed:
                connection.close()
                return
            self._stream.ready()
            self._pump = _Pump(
                connection,
                lambda data: self._locked(self._stream.send, data),
                lambda count: self._locked(self._stream.credit, count),
                lambda: self._locked(self._stream.close),
            )

    def _locked(self, action: Callable[..., None], *arguments: object) -> None:
        with self._lock:
            action(*arguments)

    def receive(self, data: bytes) -> None:
        if self._pump is not None:
            self._pump.receive(data)

    def credit(self, count: int, visitor: bytes) -> None:
        if self._pump is not None:
            self._pump.credit(count)

    def close(self) -> None:
        self._closed = True
        self._ends.discard(self)
        if self._pump is not None:
            self._pump.close()


class RelayServer(Closable):
    """A relay that listens for links, and opens links to the relays that it knows.

    Args:
        key: static key of the relay.
        credentials: network identity of this relay, and certificates of the relays and clients that
            it lets in. Clients that share one identity cannot be told apart.
        relays: address and certificate of each relay that circuits may go on to, by name.
        targets: addresses of the servers that this relay reaches, ``host:port``; none for a relay
            that is no exit.
        rendezvous: True to let circuits meet here.
        host: name or number to listen at.
        port: port to listen at; 0 for any that is free.
        links: largest number of links at a time.
        connections: largest number of connections to servers at a time. Each takes three threads.

    Raises:
        ParameterError: a target is no address.

    Attributes:
        relay: the relay.
        address: address of the server, ``host:port``.
    """

    def __init__(
        self,
        key: RelayKey,
        credentials: Credentials,
        relays: Mapping[str, Place],
        *,
        targets: Collection[str] = (),
        rendezvous: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
        links: int = 256,
        connections: int = 256,
    ) -> None:
        if isinstance(targets, str):
            raise ParameterError(f"targets must be several addresses: write [{targets!r}]")
        for target in targets:
            split_address(target)
        self._identity, self._relays = credentials.identity, dict(relays)
        self._targets, self._lock = frozenset(targets), threading.RLock()
        self._most, self._ends = whole("connections", connections, 1), set[_TcpEnd]()
        self._opened: dict[str, _Line] = {}
        self._came: dict[str, _Cells] = {}
        self.relay = Relay(key, self._send, leave=self._leave, rendezvous=rendezvous)
        self._server = Server(
            credentials,
            self._serve,
            host=host,
            port=port,
            connections=2 * whole("links", links, 1),
            title="the relay",
        )
        self.address = self._server.address

    def __repr__(self) -> str:
        return f"<RelayServer {self.address}>"

    def close(self) -> None:
        """End all links, and stop listening."""
        with self._lock:
            lines, cells = [*self._opened.values()], [*self._came.values()]
        for line in lines:
            line.close()
        for waiting in cells:
            waiting.close()
        self._server.close()

    def _receive(self, link: str, cell: bytes) -> None:
        with self._lock:
            self.relay.receive(link, cell)

    def _lose(self, link: str) -> None:
        with self._lock:
            self._opened.pop(link, None)
            if (cells := self._came.pop(link, None)) is not None:
                cells.close()
            self.relay.lose(link)

    def _send(self, link: str, cell: bytes) -> None:
        if link in self._came:
            self._came[link].put(cell)
            return
        if link not in self._opened:
            if link not in self._relays:
                raise NetworkError("there is no relay of that name")
            self._opened[link] = _Line(
                self._relays[link],
                self._identity,
                lambda cell: self._receive(link, cell),
                lambda: self._lose(link),
            )
        self._opened[link].send(cell)

    def _serve(self, channel: Channel) -> None:
        hello = bytes(channel.receive(1 + NAME_BYTES))
        # Half a surrogate pair is in no name that a circuit can ask for. Otherwise a client could
        # make the circuit go on over its own link, to any destination.
        link = f"\udc00{channel.peer.fingerprint}/{hello[1:].hex()}"
        with self._lock:
            cells = self._came.setdefault(link, _Cells())
        try:
            if hello[:1] == UP:
                _read(channel, lambda cell: self._receive(link, cell))
            else:
                cells.drain(channel)
        finally:
            self._lose(link)

    def _leave(self, target: bytes, stream: Stream) -> _TcpEnd:
        name = target.decode("utf-8", "replace")
        if name not in self._targets:
            raise RefusedError("the relay does not reach that server", reason="revoked")
        if len(self._ends) >= self._most:
            raise RefusedError("the relay has as many connections as it may", reason="queue")
        return _TcpEnd(name, stream, self._lock, self._ends)


class Tunnel(Closable):
    """A port of this machine from which each connection goes through a circuit to one server.

    Args:
        path: name and public key of each relay.
        target: address of the server, ``host:port``, as the last relay lists it.
        first: address and certificate of the first relay.
        identity: network identity of this side, which the first relay pins.
        port: port to listen at, on this machine only; 0 for any that is free.

    Attributes:
        address: address to connect to, ``host:port``.
    """

    def __init__(
        self,
        path: Sequence[tuple[str, bytes]],
        target: str,
        first: Place,
        identity: Identity,
        *,
        port: int = 0,
    ) -> None:
        self._path, self._target = [*path], target.encode()
        self._first, self._identity = first, identity
        self._lock, self._line, self._closed = threading.RLock(), None, False
        self._circuits: dict[bytes, Circuit] = {}
        self._listening = socket.create_server(("127.0.0.1", port))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    _line: _Line | None

    def __repr__(self) -> str:
        return f"<Tunnel {self.address}>"

    def close(self) -> None:
        """Stop listening, and close all circuits."""
        self._closed = True
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            line = self._line
        if line is not None:
            line.close()

    def _listen(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # closed; or no more files, and later there may be
                time.sleep(POLL_SECONDS)
                continue
            try:
                with self._lock:
                    _Tunnelled(self, connection)
            except (CcbpsError, OSError, RuntimeError) as error:  # the link ended; no more threads
                _log.info("a connection to the tunnel was closed: %s", error)
                connection.close()

    def _open(self, notify: Callable[[str, bytes], None]) -> Circuit:
        if self._line is None or self._line.ended:
            self._line = _Line(self._first, self._identity, self._receive, self._lose)
        name = os.urandom(ID_BYTES)
        while name == CONTROL or name in self._circuits:
            name = os.urandom(ID_BYTES)
        circuit = Circuit(self._path, self._line.send, notify, circuit=name)
        self._circuits[name] = circuit
        return circuit

    def _receive(self, cell: bytes) -> None:
        name = cell[:ID_BYTES]
        with self._lock:
            circuit = self._circuits.get(cell[ID_BYTES : 2 * ID_BYTES] if name == CONTROL else name)
            if circuit is not None:
                circuit.receive(cell)

    def _lose(self) -> None:
        with self._lock:
            for circuit in [*self._circuits.values()]:
                circuit.close()


class _Tunnelled(Printable):
    """A connection to a tunnel, and its circuit."""

    def __init__(self, tunnel: Tunnel, connection: socket.socket) -> None:
        self._tunnel, self._connection = tunnel, connection
        self._pump: _Pump | None = None
        self._circuit = tunnel._open(self._hear)

    def _hear(self, event: str, data: bytes) -> None:
        if event == "built":
            self._circuit.begin(self._tunnel._target)
        elif event == "ready" and self._pump is None:
            circuit = self._circuit
            self._pump = _Pump(
                self._connection,
                lambda data: self._locked(circuit.send, data),
                lambda count: self._locked(circuit.credit, count),
                lambda: self._locked(circuit.close),
            )
        elif event == "closed":
            self._tunnel._circuits.pop(self._circuit.id, None)
            if self._pump is None:
                self._connection.close()
            else:
                self._pump.close()
        elif self._pump is not None and event == "data":
            self._pump.receive(data)
        elif self._pump is not None and event == "credit":
            self._pump.credit(int.from_bytes(data, "big"))

    def _locked(self, action: Callable[..., None], *arguments: object) -> None:
        with self._tunnel._lock:
            action(*arguments)
