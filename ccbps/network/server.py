"""A server for pinned peers: each connection in a thread, a bounded number of them at a time.

Further connections wait in the kernel's queue, and bytes of peers wait in their own kernels until
they are read. A client that has not proved within `HANDSHAKE_SECONDS` to be a pinned peer is
disconnected.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from ccbps.checks import whole
from ccbps.errors import NetworkError, PeerError
from ccbps.keys.secret import Confined, confined
from ccbps.keys.used_rounds import this_process
from ccbps.network.channel import Channel, Lookup, accept
from ccbps.network.identity import Credentials

_log: Final = logging.getLogger(__name__)
HANDSHAKE_SECONDS: Final = 10
"""Time in which a peer must have proved its identity."""
REFUSALS: Final = 100
"""Most refusals that are logged in an hour. Strangers would fill the disk otherwise."""
POLL_SECONDS: Final = 0.1
"""Time after which a waiting server checks whether it was closed."""


class Server(Confined):
    """A server of channels for pinned peers, in threads of this process.

    Example:
        >>> from ccbps.network import Credentials, Identity, Server, connect
        >>> alice, bob = Identity.generate(), Identity.generate()
        >>> def answer(channel):
        ...     channel.send(channel.receive(100).upper())
        >>> with Server(Credentials(bob, (alice.certificate(),)), answer) as server:
        ...     with connect(server.address, alice, bob.certificate()) as channel:
        ...         channel.send(b"hello")
        ...         channel.receive(100)
        bytearray(b'HELLO')

    Attributes:
        address: address of the server, ``host:port``; peers may know its machine by another name.

    Args:
        credentials: credentials of this side; or a function that returns them, or None, by the
            fingerprint of the certificate that a client asks for.
        serve: function called with each channel, in a thread of its own. When it returns, the
            channel is closed. Its errors are logged.
        host: name or number to listen at; by default this machine only.
        port: port to listen at; 0 for any that is free.
        connections: number of connections that are served at a time; others wait.
        frame_seconds: time that a frame may take.
        title: name of the server in log messages.

    Raises:
        NetworkError: the address cannot be listened at.
    """

    def __init__(
        self,
        credentials: Credentials | Lookup,
        serve: Callable[[Channel], object],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        connections: int = 64,
        frame_seconds: float = 60,
        title: str = "the server",
    ) -> None:
        port = whole("port", port, 0, (1 << 16) - 1)
        self._lookup: Lookup
        if isinstance(credentials, Credentials):
            fingerprint = credentials.identity.certificate().fingerprint()
            self._lookup = {fingerprint: credentials}.get
        else:
            self._lookup = credentials
        self._serve, self._seconds, self._title = serve, frame_seconds, title
        self._process, self._ended = this_process(), threading.Event()
        self._free, self._lock = threading.Semaphore(connections), threading.Lock()
        self._served: dict[socket.socket, threading.Thread] = {}
        self._refusals, self._hour = 0, time.monotonic() + 3600
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listening = socket.create_server((host, port), family=family)
        except (OSError, UnicodeError) as error:
            raise NetworkError(f"no server can listen at {host}, port {port}: {error}") from None
        self._listening.settimeout(POLL_SECONDS)
        name, number = self._listening.getsockname()[:2]
        self.address = f"[{name}]:{number}" if ":" in name else f"{name}:{number}"
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Server {self.address}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, end all connections, and return when none is served any more.

        In a forked process it does nothing.
        """
        if self._process != this_process():
            return
        self._ended.set()
        # A process that inherited it in a fork does not keep it open.
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()
        with self._lock:
            served = [*self._served.items()]
        for line, thread in served:
            with suppress(OSError):  # it has ended
                line.shutdown(socket.SHUT_RDWR)
            thread.join()

    def log_some(self, level: int, text: str, *details: object) -> None:
        """Log a message that a stranger can cause, at most `REFUSALS` times an hour."""
        with self._lock:
            if (now := time.monotonic()) >= self._hour:
                self._refusals, self._hour = 0, now + 3600
            self._refusals = number = self._refusals + 1
        if number <= REFUSALS:
            last = "; no more refusals are logged in this hour" * (number == REFUSALS)
            _log.log(level, text + "%s", *details, last)

    def _listen(self) -> None:
        while not self._ended.is_set():
            if not self._free.acquire(timeout=POLL_SECONDS):
                continue
            try:
                connection, place = self._listening.accept()
                self._begin(connection, f"{place[0]}:{place[1]}")
            except TimeoutError:
                self._free.release()
            except (OSError, RuntimeError):  # no more files, or threads: later there may be
                self._free.release()
                self._ended.wait(POLL_SECONDS)

    def _begin(self, connection: socket.socket, place: str) -> None:
        """Serve a connection in a thread.

        Raises:
            RuntimeError: no thread can be started.
        """
        try:
            line = connection.dup()  # TLS takes the socket itself away
        except BaseException:
            connection.close()
            raise
        thread = threading.Thread(target=self._run, args=(connection, line, place), daemon=True)
        with self._lock:
            self._served[line] = thread
        try:
            thread.start()
        except BaseException:
            self._forget(line)
            connection.close()
            raise

    def _run(self, connection: socket.socket, line: socket.socket, place: str) -> None:
        """Serve one connection.

        Args:
            connection: socket for TLS.
            line: second handle of it, by which `close` ends it.
            place: address of the client.
        """
        try:
            self._admit(connection, place)
        finally:
            self._forget(line)
            self._free.release()

    def _forget(self, line: socket.socket) -> None:
        """Shut down a connection, also for processes forked meanwhile."""
        with self._lock:
            del self._served[line]
        with suppress(OSError):  # it has ended
            line.shutdown(socket.SHUT_RDWR)
        line.close()

    @confined
    def _admit(self, connection: socket.socket, place: str) -> None:
        until = time.monotonic() + HANDSHAKE_SECONDS
        try:
            with accept(connection, self._lookup, until, self._seconds) as channel:
                self._serve(channel)
        except PeerError as error:
            self.log_some(logging.WARNING, "%s refused %s: %s", self._title, place, error)
        except NetworkError as error:
            _log.info("the connection of %s with %s broke: %s", self._title, place, error)
        except Exception:
            _log.exception("%s failed to serve %s", self._title, place)
