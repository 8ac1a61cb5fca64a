"""A ledger of events for workers that do not share a file system: one process has the file.

A worker asks over TCP (`ccbps.rounds.ledger_channel`), in a connection for each batch of events. It
says which ledger it wants, if it knows, and sends names; the server, in a transaction of the file,
answers with rounds; the worker sends tags, computed from rounds and contents with the seed, which
the server does not have; the server compares and keeps them, and says which events have other
content. A connection that breaks before the last answer leaves nothing behind, or the whole of it:
the worker asks again, and gets the same rounds.

The server learns what stands in the file: keyed names, keyed tags, how many events there are and
when. It must be honest: one that allots a round twice makes a publisher use it twice. Publishers
who share a server can hold one another up.

Hazard: two servers with one key and two files are two ledgers, each of which begins with round 0.
Workers that know the file's identity are refused by all but its own server; an older copy has the
same identity.
"""

from __future__ import annotations

import logging
import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

from ccbps.arrays import Bools, Bytes, Rounds
from ccbps.errors import LedgerError, ParameterError
from ccbps.keys.confine import confined
from ccbps.keys.ledger_key import LedgerKey
from ccbps.keys.randomness import TAG_BYTES
from ccbps.keys.sources import KeySource, ledger_key
from ccbps.rounds.event_ledger import EventLedger
from ccbps.rounds.ledger_channel import (
    DONE,
    FAILED,
    MOST_EVENTS,
    OTHER,
    ROUNDS,
    STREAM_BYTES,
    Broken,
    Channel,
    Forged,
    accept,
)
from ccbps.rounds.ledger_file import IDENTITY_BYTES, identity_bytes

_log: Final = logging.getLogger(__name__)
CONNECTIONS: Final = 64
"""At a time; others wait."""
ANSWER_SECONDS: Final = 10
"""Within which a worker answers, while the file is locked for it; twice, if it is told of others'
content."""
REFUSALS: Final = 100
"""That are logged in an hour: whoever can connect would fill the disk otherwise."""
LOST_SECONDS: Final = 6
"""After which a machine that says nothing any more is lost."""


class LedgerServer:
    """Serves an `EventLedger` to workers on other machines, from threads of this process.

    Example:
        >>> import pathlib, tempfile
        >>> from ccbps import SharedSeed
        >>> from ccbps.rounds import EventLedger, LedgerServer, RemoteLedger
        >>> from ccbps.keys import FileKey
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "ledger.key").write_text(SharedSeed.generate().ledger_key().to_text())
        >>> ledger = EventLedger(folder / "events.ledger", rounds=1_000_000)
        >>> with LedgerServer(ledger, FileKey(folder / "ledger.key")) as server:
        ...     remote = RemoteLedger(server.address, ledger.identity())    # of encode_events

    Attributes:
        address: where it listens, ``host:port``; workers may know its machine by another name.
    """

    def __init__(
        self,
        ledger: EventLedger,
        keys: KeySource | Sequence[KeySource],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """
        Args:
            ledger: the file.
            keys: where the publisher's `LedgerKey` is, or those of several; read again for each
                connection, so that a file may be replaced. A publisher's seed is taken, too, but
                let a server have it only where the seed is anyway.
            host: to listen at; by default for this machine only.
            port: 0 for any that is free.

        Raises:
            KeyMismatchError: there is no such key.
            LedgerError: the address cannot be listened at.
        """
        if not isinstance(ledger, EventLedger):
            raise ParameterError(f"ledger must be an EventLedger, got {type(ledger).__name__}")
        self._ledger = ledger
        given: Sequence[Any] = keys if isinstance(keys, (list, tuple)) else [keys]
        self._keys = [one for one in given if isinstance(one, KeySource)]
        if not self._keys or len(self._keys) < len(given):
            raise ParameterError(
                "keys must be a KeySource such as FileKey('path'), or several, got "
                f"{[type(one).__name__ for one in given]}"
            )
        for source in self._keys:
            ledger_key(source)
        if type(port) is not int or not 0 <= port < 1 << 16:
            raise ParameterError(f"port must be 0 to 65535, got {port!r}")
        self._process = os.getpid()
        self._counting, self._refusals, self._hour = threading.Lock(), 0, time.monotonic() + 3600
        try:
            self._server = _Server(host, port, self._serve)
        except OSError as error:
            raise LedgerError(
                f"no server can listen at {host}, port {port}: {error.strerror or error}"
            ) from None
        found, number = self._server.server_address[:2]
        name = found.decode() if isinstance(found, (bytes, bytearray)) else str(found)
        self.address = f"[{name}]:{number}" if ":" in name else f"{name}:{number}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<LedgerServer {self.address} {self._ledger!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Listen no longer, and end all connections: whoever has not been told its rounds by now
        asks again. When it returns, nothing is allotted any more."""
        if os.getpid() == self._process:
            self._server.stop()
            self._thread.join()

    @confined
    def _serve(self, connection: socket.socket, peer: str) -> None:
        """One batch of events of a worker."""
        try:
            channel = accept(connection, self._key, ANSWER_SECONDS)
            self._allot(channel)
        except Forged as error:
            self._log_some(logging.WARNING, "the ledger's server refused %s: %s", peer, error)
        except Broken as error:
            _log.info("the connection with %s broke: %s", peer, error)

    def _log_some(self, level: int, text: str, *details: object) -> None:
        """Log what somebody without the key can cause: so many times an hour."""
        with self._counting:
            if (now := time.monotonic()) >= self._hour:
                self._refusals, self._hour = 0, now + 3600
            self._refusals = number = self._refusals + 1
        if number <= REFUSALS:
            last = "; no more refusals are logged in this hour" * (number == REFUSALS)
            _log.log(level, text + "%s", *details, last)

    def _key(self, name: bytes) -> LedgerKey | None:
        for source in self._keys:
            try:
                key = ledger_key(source)
            except Exception as error:  # one publisher's key is missing; the others' are not
                self._log_some(
                    logging.ERROR, "the ledger's server has no key from %r: %s", source, error
                )
                continue
            if key.fingerprint() == name.hex():
                return key
        return None

    def _allot(self, channel: Channel) -> None:
        head = IDENTITY_BYTES + STREAM_BYTES
        request = channel.receive(head + 8 * MOST_EVENTS)
        if len(request) < head or len(request) % 8:
            raise Forged("a request that is none")
        wanted, stream = request[:IDENTITY_BYTES], request[IDENTITY_BYTES:head]
        names = np.frombuffer(request, "<i8", offset=head).astype(np.int64)

        def tags(rounds: Rounds) -> Bytes:
            channel.send(ROUNDS + rounds.astype("<u8").tobytes())
            answer = channel.receive(TAG_BYTES * len(rounds))
            if len(answer) != TAG_BYTES * len(rounds):
                raise Forged("other tags than asked for")
            return np.frombuffer(answer, np.uint8).reshape(-1, TAG_BYTES)

        def refuse(other: Bools, rounds: Rounds) -> None:
            channel.send(OTHER + np.packbits(other).tobytes())
            channel.receive(0)  # it sets them aside; or has ended the connection

        try:
            self._require(wanted)
            _, other = self._ledger.allot(stream, names, tags, refuse)
        except LedgerError as error:
            _log.error("the ledger's server allots nothing: %s", error)
            channel.send(FAILED + str(error).encode())
            return
        channel.send(DONE + np.packbits(other).tobytes())

    def _require(self, wanted: bytes) -> None:
        """Raises LedgerError if a worker wants another ledger."""
        if wanted != identity_bytes(None) and wanted.hex() != (found := self._ledger.identity()):
            raise LedgerError(
                f"the ledger at {self.address} is {found}, wanted {wanted.hex()}: another file "
                "would allot rounds that were used. Start the server with the ledger's own file; "
                "if that is lost, take new seeds and a new ledger"
            )


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Connections in threads, a bounded number at a time."""

    allow_reuse_address = os.name == "posix"
    request_queue_size = CONNECTIONS

    def __init__(self, host: str, port: int, serve: Callable[[socket.socket, str], None]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._serve, self._free = serve, threading.Semaphore(CONNECTIONS)
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._served: dict[socket.socket, threading.Thread] = {}
        super().__init__((host, port), socketserver.BaseRequestHandler)

    def stop(self) -> None:
        """Serve no longer; returns when no thread does."""
        self._ended.set()
        # Whoever inherited it in a fork does not keep it open.
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.shutdown()
        self.server_close()
        with self._lock:
            served = [*self._served.items()]
        for connection, _ in served:
            with suppress(OSError):  # it has ended
                connection.shutdown(socket.SHUT_RDWR)
        for _, thread in served:
            thread.join()

    def process_request(self, request: Any, client_address: Any) -> None:
        while not self._free.acquire(timeout=0.1):
            if self._ended.is_set():
                return self.shutdown_request(request)
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), daemon=True
        )
        with self._lock:
            self._served[request] = thread
        try:
            thread.start()
        except BaseException:
            self._forget(request)
            raise
        return None

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def finish_request(self, request: Any, client_address: Any) -> None:
        _notice_loss(request)
        self._serve(request, str(client_address))

    def _forget(self, request: socket.socket) -> None:
        with self._lock:
            self._served.pop(request, None)
        self._free.release()


def _notice_loss(connection: socket.socket) -> None:
    """A connection whose other machine is gone ends by itself, also while it waits for the file."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {
        "TCP_KEEPIDLE": LOST_SECONDS // 2,
        "TCP_KEEPINTVL": 1,
        "TCP_KEEPCNT": LOST_SECONDS // 2,
        "TCP_USER_TIMEOUT": 1000 * LOST_SECONDS,
    }.items():
        if hasattr(socket, name):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
