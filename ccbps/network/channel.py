"""Messages between machines that pin one another's certificates: frames over TLS 1.3.

A frame is its length, 4 bytes (big-endian), and so many bytes. The receiver limits the length of a
frame and the time in which it must come as a whole: a peer that sends a byte now and then does not
hold it up any longer than one that is silent. Unread bytes wait at the sender.

The client sends the name of the server's certificate in the clear (as TLS's server name), so a
server may have several. An eavesdropper sees that name, lengths and times.

A `Server` treats each connection in a thread, a bounded number of them at a time. Further
connections wait in the kernel's queue, and bytes of peers wait in their own kernels until they are
read. A client that has not proved within `HANDSHAKE_SECONDS` to be a pinned peer is disconnected.

Hazard: two machines that each send a large frame over one channel before they read wait for one
another until their time is up. Give each direction a channel of its own.

Source: RFC 8446 (TLS 1.3).
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from selectors import EVENT_READ, DefaultSelector
from typing import Any, Final, TypeAlias

from ccbps.checks import shown, whole
from ccbps.errors import KeyMismatchError, NetworkError, ParameterError, PeerError
from ccbps.keys.secret import Closable, confined
from ccbps.keys.used_rounds import this_process
from ccbps.network.identity import Certificate, Credentials, Identity, tls_context

Content: TypeAlias = bytes | bytearray | memoryview
Lookup: TypeAlias = Callable[[str], Credentials | None]

_log: Final = logging.getLogger(__name__)
LENGTH_BYTES: Final = 4
MOST_BYTES: Final = (1 << 8 * LENGTH_BYTES) - 1
"""Length of the longest frame (bytes). Receivers set lower limits."""
PIECE_BYTES: Final = 1 << 20
"""Most bytes that are handed to TLS at a time."""
SMALL_BYTES: Final = 1 << 14
"""Length of the longest frame that leaves in one record with its length (bytes)."""
PARTING_SECONDS: Final = 1
"""Time in which a refused peer may read the reason."""
LOST_SECONDS: Final = 6
"""Time after which a silent machine is lost."""
HANDSHAKE_SECONDS: Final = 10
"""Time in which a peer must have proved its identity."""
REFUSALS: Final = 100
"""Most refusals that are logged in an hour. Strangers would fill the disk otherwise."""
POLL_SECONDS: Final = 0.1
"""Time after which a waiting server checks whether it was closed."""
_ALERTS: Final = ("TLSV1_UNRECOGNIZED_NAME", "TLSV1_ALERT_UNKNOWN_CA")
"""OpenSSL's names of the alerts of a server that lacks a certificate or does not pin ours."""


class Channel(Closable):
    """A connection to a pinned peer. Frames are sent and received by one thread at a time.

    Another thread may close it: a frame that is on its way then ends with a `NetworkError`. After
    an error, and in a process forked from the one that made it, a channel is closed.

    Example:
        >>> from ccbps.network import Credentials, Identity, Server, connect
        >>> server, client = Identity.generate(), Identity.generate()
        >>> peers = (client.certificate(),)
        >>> def answer(channel):
        ...     channel.send(b"you are ", channel.peer.fingerprint.encode())
        >>> with Server(Credentials(server, peers), answer) as listening:
        ...     with connect(listening.address, client, server.certificate()) as channel:
        ...         text = channel.receive(100).decode()
        >>> text == f"you are {client.certificate().fingerprint}"
        True

    Attributes:
        peer: certificate that the other side proved to own.

    Args:
        connection: a connected socket whose handshake is done.
        peer: certificate of the other side.
        seconds: time that a frame may take to be sent or to arrive.
    """

    def __init__(self, connection: socket.socket, peer: Certificate, seconds: float) -> None:
        self._connection, self.peer, self._seconds = connection, peer, seconds
        self._process, self._lock = this_process(), threading.Lock()
        self._users, self._is_closed = 0, False

    def __repr__(self) -> str:
        return f"<Channel to {self.peer!r}>"

    def send(self, *parts: Content, seconds: float | None = None) -> None:
        """Send one frame.

        Args:
            parts: parts of its content, in order; large ones are not copied.
            seconds: time in which the last byte must have left; None for the channel's own.

        Raises:
            NetworkError: the connection broke, or the peer did not read in time.
            ParameterError: the frame is longer than `MOST_BYTES`.
        """
        # An empty view of an array cannot be cast.
        views = [view.cast("B") for part in parts if (view := memoryview(part)).nbytes]
        length = sum(len(view) for view in views)
        if length > MOST_BYTES:
            raise ParameterError(f"a frame has at most {MOST_BYTES} bytes, got {length}: split it")
        views.insert(0, memoryview(length.to_bytes(LENGTH_BYTES, "big")))
        if length <= SMALL_BYTES:
            views = [memoryview(b"".join(views))]
        with self._guarded(seconds) as until:
            for view in views:
                while view:
                    self._connection.settimeout(_left(until))
                    view = view[self._connection.send(view[:PIECE_BYTES]) :]

    def receive(self, most: int, seconds: float | None = None) -> bytearray:
        """Receive one frame.

        Args:
            most: greatest length that the frame may have (bytes).
            seconds: time in which its last byte must have come; None for the channel's own.

        Raises:
            NetworkError: the connection ended, also within a frame, or nothing came in time.
            PeerError: the frame is longer, or was altered on its way.
        """
        with self._guarded(seconds) as until:
            length = int.from_bytes(self._read(LENGTH_BYTES, until), "big")
            if length > most:
                raise PeerError(f"a frame of {length} bytes came, at most {most} were expected")
            return self._read(length, until)

    def is_quiet(self) -> bool:
        """Return whether no frame waits to be received, and the connection has not ended."""
        if self._process != this_process() or not self._enter():
            return False
        try:
            if isinstance(self._connection, ssl.SSLSocket) and self._connection.pending():
                return False
            with DefaultSelector() as selector:
                selector.register(self._connection, EVENT_READ)
                return not selector.select(0)
        finally:
            self._leave()

    def close(self) -> None:
        """Close the connection, for the peer too. In a forked process, close this handle only."""
        if self._process == this_process():
            with self._lock:
                if not self._is_closed:
                    self._is_closed = True
                    with suppress(OSError):  # it has ended
                        # Processes forked meanwhile hold it, too, but do not keep it open.
                        socket.socket.shutdown(self._connection, socket.SHUT_RDWR)
                if self._users:
                    # A thread that is within TLS would go on with the number of the connection,
                    # which another file may have by then. It closes the connection itself.
                    return
        self._is_closed = True
        self._connection.close()

    def _enter(self) -> bool:
        """Begin a thread's use of the connection; return False if it is closed."""
        with self._lock:
            self._users += not self._is_closed
            return not self._is_closed

    def _leave(self) -> None:
        """End a thread's use of the connection; close it if that was put off."""
        with self._lock:
            self._users -= 1
            is_over = self._is_closed and not self._users
        if is_over:
            self._connection.close()

    def _read(self, count: int, until: float) -> bytearray:
        content = bytearray(count)
        view = memoryview(content)
        while view:
            self._connection.settimeout(_left(until))
            arrived = self._connection.recv_into(view[:PIECE_BYTES])
            if not arrived:
                raise NetworkError("the connection ended")
            view = view[arrived:]
        return content

    @contextmanager
    def _guarded(self, seconds: float | None) -> Iterator[float]:
        """Yield the time of the monotonic clock at which all must be done. Close after errors."""
        if self._process != this_process():
            # Two processes would encrypt different records under one nonce.
            self.close()
            raise NetworkError("a channel cannot be used after a fork: connect in the new process")
        if not self._enter():
            raise NetworkError("the channel is closed: connect again")
        try:
            yield time.monotonic() + (self._seconds if seconds is None else seconds)
        except BaseException as error:
            self.close()
            _raise_as_network_error(error)
            raise
        finally:
            self._leave()


@confined
def connect(
    address: str,
    identity: Identity,
    peer: Certificate,
    *,
    seconds: float = 60,
) -> Channel:
    """Connect to a `Server` that has a pinned certificate, and wait until it lets this side in.

    Example:
        >>> from ccbps.network import Identity, connect
        >>> own, server = Identity.generate(), Identity.generate().certificate()
        >>> connect("127.0.0.1:9", own, server, seconds=1)
        Traceback (most recent call last):
            ...
        ccbps.errors.NetworkError: 127.0.0.1:9 cannot be reached: ...

    Args:
        address: address of the server, ``host:port``.
        identity: identity of this side.
        peer: certificate of the server.
        seconds: time that all of it may take, and each frame afterwards; there may be many
            connections before this one.

    Raises:
        KeyMismatchError: the server has no such certificate, or does not pin this side's.
        NetworkError: no server answers, or it took too long.
        PeerError: the server has another certificate.
        ParameterError: the address is not ``host:port``.
    """
    until = time.monotonic() + seconds
    place, fingerprint = split_address(address), peer.fingerprint
    context = identity.context([peer], server=False)
    try:
        connection = socket.create_connection(place, seconds)
    except (OSError, UnicodeError) as error:
        raise NetworkError(f"{address} cannot be reached: {error}") from None
    # The name that the server looks up. A part of a name has at most 63 characters.
    name = f"{fingerprint[:32]}.{fingerprint[32:]}"
    try:
        channel = _shake_hands(connection, context, [peer], until, seconds, server_hostname=name)
        channel.receive(0, until - time.monotonic())
    except _UnknownError:
        raise KeyMismatchError(
            f"the server at {address} does not have the certificate that was asked for, or does "
            "not pin the one of this identity: give it both"
        ) from None
    return channel


def split_address(address: str) -> tuple[str, int]:
    """Split an address into host and port.

    Raises:
        ParameterError: the address is not ``host:port``.
    """
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 1 << 16:
        raise ParameterError(
            f"address must be the server's 'host:port', such as '10.0.0.5:7400', got "
            f"{shown(address)}"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


class _UnknownError(PeerError):
    """Error of a side that lacks the requested certificate, or does not pin the other's."""


@confined
def _shake_hands(
    connection: socket.socket,
    context: ssl.SSLContext,
    peers: list[Certificate],
    until: float,
    seconds: float,
    **options: Any,
) -> Channel:
    """Make a channel of a connected socket, or close it.

    Args:
        connection: a connected socket.
        context: TLS context of this side.
        peers: certificates to accept; the list may still be empty when the handshake begins.
        until: time of the monotonic clock at which the handshake must be done.
        seconds: time that a frame may take afterwards.
        options: options of `ssl.SSLContext.wrap_socket`.
    """
    try:
        # Send small frames at once, and notice a machine that is gone, also while nobody reads.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        half = LOST_SECONDS // 2
        for name, value in (("TCP_KEEPIDLE", half), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", half)):
            if hasattr(socket, name):  # not on every system
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        connection = context.wrap_socket(connection, do_handshake_on_connect=False, **options)
        connection.settimeout(_left(until))
        connection.do_handshake()
        peer = Certificate(connection.getpeercert(binary_form=True) or b"")
        if peer not in peers:
            raise PeerError("the certificate of the other side is not pinned")
    except BaseException as error:
        _part(connection)
        _raise_as_network_error(error)
        raise
    return Channel(connection, peer, seconds)


def _part(connection: socket.socket) -> None:
    """Close a connection whose handshake failed, so that the other side still reads the alert.

    A connection that is closed with bytes unread takes back its own last bytes.
    """
    until = time.monotonic() + PARTING_SECONDS
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_WR)
        connection.settimeout(PARTING_SECONDS)
        while socket.socket.recv(connection, PIECE_BYTES):
            connection.settimeout(_left(until))
    connection.close()


def _left(until: float) -> float:
    """Return the seconds until a time of the monotonic clock."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise NetworkError("the peer took too long")
    return seconds


def _raise_as_network_error(error: BaseException) -> None:
    """Raise the `NetworkError` that an error of a socket means; ignore other errors."""
    if not isinstance(error, OSError) or isinstance(error, NetworkError):
        return
    kind, text = NetworkError, error.strerror or str(error)
    if isinstance(error, TimeoutError):
        text = "the peer took too long"
    elif isinstance(error, ssl.SSLCertVerificationError):
        kind, text = (
            PeerError,
            f"the certificate of the other side is refused: {error.verify_message}",
        )
    elif isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError):
        text = "the connection ended"
    elif isinstance(error, ssl.SSLError):
        kind = _UnknownError if error.reason in _ALERTS else PeerError
        text = f"TLS failed: {error.reason}"
    raise kind(text) from None


class Server(Closable):
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
            fingerprint = credentials.identity.certificate().fingerprint
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
        """Serve a pinned peer that has connected, or disconnect another one."""
        peers: list[Certificate] = []

        def choose(tls: ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> int | None:
            credentials = self._lookup(name.replace(".", "")) if name else None
            if credentials is None:
                return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
            peers.extend(credentials.peers)
            tls.context = credentials.identity.context(peers, server=True)
            return None

        until, context = time.monotonic() + HANDSHAKE_SECONDS, tls_context(server=True)
        context.sni_callback = choose  # type: ignore[assignment]
        try:
            with _shake_hands(
                connection, context, peers, until, self._seconds, server_side=True
            ) as channel:
                channel.send(b"")  # a client learns only by this that it was let in
                self._serve(channel)
        except PeerError as error:
            self.log_some(logging.WARNING, "%s refused %s: %s", self._title, place, error)
        except NetworkError as error:
            _log.info("the connection of %s with %s broke: %s", self._title, place, error)
        except Exception:
            _log.exception("%s failed to serve %s", self._title, place)
