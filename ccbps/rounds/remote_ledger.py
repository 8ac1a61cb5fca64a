"""A ledger of events for workers that do not share a file system: one process has the file.

`LedgerServer` serves the file, and `RemoteLedger` is the ledger as workers see it. Both derive the
identities of both sides (`ccbps.network`) from the `LedgerKey`, so they need nothing but one key:
its owners are let in, and nobody else.

A worker asks over TCP, in a connection for each batch of events. It sends the ledger's identity (if
known), the stream and the events' names. Then the server sends frames, each of which begins with a
letter, and the worker answers:

- `ROUNDS`, 8 bytes for each event. The worker sends a tag of 16 bytes for each, computed from
  rounds and contents with the seed, which the server does not have.
- perhaps `OTHER`, a bit for each event that has other content than before. The worker sends an
  empty frame.
- `DONE`, the same bits; or, in place of any of these, `FAILED` and the reason.

All of it is one transaction of the file. A connection that breaks before the last answer leaves
nothing behind, or the whole of it: the worker asks again, and gets the same rounds.

The server learns the contents of the file: keyed names, keyed tags, the number of events and their
times. It must be honest: one that allots a round twice makes a publisher use it twice. Publishers
who share a server can hold one another up.

Hazard: two servers with one key and two files are two ledgers, each of which begins with round 0.
Workers that know the file's identity are refused by all but its own server; an older copy has the
same identity.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Rounds
from ccbps.checks import instance
from ccbps.errors import KeyMismatchError, LedgerError, NetworkError, ParameterError, PeerError
from ccbps.keys.plain_key import LedgerKey
from ccbps.keys.randomness import TAG_BYTES
from ccbps.keys.secret import confined
from ccbps.keys.sources import KeySource, ledger_key
from ccbps.network.channel import Channel, Server, connect, split_address
from ccbps.network.identity import Credentials, Identity
from ccbps.rounds.event_ledger import EventLedger
from ccbps.rounds.ledger_file import IDENTITY_BYTES, WAIT_SECONDS, identity_bytes

_log: Final = logging.getLogger(__name__)
CONNECTIONS: Final = 64
"""Connections that are served at a time; others wait."""
ANSWER_SECONDS: Final = 10
"""Seconds in which a worker answers while the file is locked for it; twice, if some events have
other content."""
AGAIN_SECONDS: Final = 0.2
"""Time between two tries to reach a server."""
MOST_EVENTS: Final = 1 << 20
"""Most events in one connection: some 50 MB of memory."""
STREAM_BYTES: Final = 16
ROUNDS, OTHER, DONE, FAILED = b"r", b"o", b"d", b"f"


@confined
def identities(key: LedgerKey) -> tuple[Identity, Identity]:
    """Derive the identities of the server and of a worker from their common key."""
    secret = key.export_secret()
    return Identity.derive(secret, b"ledger server"), Identity.derive(secret, b"ledger worker")


class LedgerServer(Server):
    """A server of an `EventLedger` for workers on other machines, in threads of this process.

    After `close`, nothing is allotted any more; workers that were not told their rounds ask again.

    Example:
        >>> import pathlib, tempfile
        >>> from ccbps import SharedSeed
        >>> from ccbps.keys import FileKey
        >>> from ccbps.rounds import EventLedger, LedgerServer, RemoteLedger
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "ledger.key").write_text(SharedSeed.generate().ledger_key().to_text())
        >>> ledger = EventLedger(folder / "events.ledger", rounds=1_000_000)
        >>> with LedgerServer(ledger, FileKey(folder / "ledger.key")) as server:
        ...     remote = RemoteLedger(server.address, ledger.identity())    # of encode_events

    Attributes:
        address: address of the server, ``host:port``; workers may know its machine by another name.

    Args:
        ledger: file of the ledger.
        keys: source of the publisher's `LedgerKey`, or sources of several publishers'; read again
            for each connection, so that a file may be replaced. A source may also hold a
            publisher's seed: use this only where the seed is anyway.
        host: name or IP address to listen on; by default this machine only.
        port: port to listen on; 0 for any free port.

    Raises:
        KeyMismatchError: there is no such key.
        LedgerError: the server cannot listen on the address.
    """

    def __init__(
        self,
        ledger: EventLedger,
        keys: KeySource | Sequence[KeySource],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._ledger = instance("ledger", ledger, EventLedger)
        self._keys: Sequence[Any] = (*keys,) if isinstance(keys, (list, tuple)) else (keys,)
        if not self._keys or not all(isinstance(key, KeySource) for key in self._keys):
            raise ParameterError(
                "keys must be a KeySource such as FileKey('path'), or several, got "
                f"{[type(key).__name__ for key in self._keys]}"
            )
        for source in self._keys:
            ledger_key(source)
        try:
            super().__init__(
                self._credentials,
                self._allot,
                host=host,
                port=port,
                connections=CONNECTIONS,
                frame_seconds=ANSWER_SECONDS,
                title="the ledger's server",
            )
        except NetworkError as error:
            raise LedgerError(str(error)) from None

    def __repr__(self) -> str:
        return f"<LedgerServer {self.address} {self._ledger!r}>"

    @confined
    def _credentials(self, fingerprint: str) -> Credentials | None:
        """Find the identities that follow from the key that a worker has; read keys again."""
        for source in self._keys:
            try:
                server, worker = identities(ledger_key(source))
            except Exception as error:  # one publisher's key is missing; the others' are not
                self.log_some(
                    logging.ERROR, "the ledger's server has no key from %r: %s", source, error
                )
                continue
            if server.certificate().fingerprint == fingerprint:
                return Credentials(server, (worker.certificate(),))
        return None

    @confined
    def _allot(self, channel: Channel) -> None:
        """Allot rounds to one batch of events of a worker."""
        head = IDENTITY_BYTES + STREAM_BYTES
        request = channel.receive(head + 8 * MOST_EVENTS)
        if len(request) < head or len(request) % 8:
            raise PeerError("a request that is none")
        identity, stream = bytes(request[:IDENTITY_BYTES]), bytes(request[IDENTITY_BYTES:head])
        names = np.frombuffer(request, "<i8", offset=head).astype(np.int64)

        def tags(rounds: Rounds) -> Bytes:
            channel.send(ROUNDS, rounds.astype("<u8").tobytes())
            answer = channel.receive(TAG_BYTES * len(rounds))
            if len(answer) != TAG_BYTES * len(rounds):
                raise PeerError("other tags than asked for")
            return np.frombuffer(answer, np.uint8).reshape(-1, TAG_BYTES)

        def refuse(other: Bools, rounds: Rounds) -> None:
            channel.send(OTHER, np.packbits(other).tobytes())
            channel.receive(0)  # it sets them aside; or has ended the connection

        try:
            named = identity != identity_bytes(None)
            if named and identity.hex() != (own := self._ledger.identity()):
                raise LedgerError(
                    f"the ledger at {self.address} is {own}, wanted {identity.hex()}: another file "
                    "would allot rounds that were used. Start the server with the ledger's own "
                    "file; if that is lost, take new seeds and a new ledger"
                )
            _, other = self._ledger.allot(stream, names, tags, refuse)
        except LedgerError as error:
            _log.error("the ledger's server allots nothing: %s", error)
            channel.send(FAILED, str(error).encode())
            return
        channel.send(DONE, np.packbits(other).tobytes())


@dataclass(frozen=True, slots=True)
class RemoteLedger:
    """The ledger of a `LedgerServer`, for workers, in place of an `EventLedger`.

    Workers and server authenticate each other by a key that workers derive from the publisher's
    seed. Their messages are encrypted, with forward secrecy (`ccbps.network`).

    Example:
        >>> from ccbps.rounds import RemoteLedger
        >>> RemoteLedger("10.0.0.5:7400", "8c1f0d5e2a7b4c3d9e6f1a0b5c4d3e2f")  # of encode_events
        RemoteLedger(address='10.0.0.5:7400', identity='8c1f0d5e2a7b4c3d9e6f1a0b5c4d3e2f')

    Attributes:
        address: address of the server, ``host:port``, as workers reach it.
        identity: identity of the server's file (`EventLedger.identity`), which ``ccbps ledger``
            shows: a server with another file, which would use rounds twice, is refused. None for
            any.
    """

    address: str
    identity: str | None = None

    def __post_init__(self) -> None:
        split_address(self.address)
        identity_bytes(self.identity)

    @confined
    def allot(
        self,
        key: LedgerKey,
        stream: bytes,
        names: NDArray[np.int64],
        tags: Callable[[Rounds], Bytes],
        refuse: Callable[[Bools, Rounds], object],
    ) -> tuple[Rounds, Bools]:
        """Allot rounds to events as `EventLedger.allot` does; `tags` may be called several times.

        Raises:
            KeyMismatchError: the server does not have the key of this seed.
            LedgerError: the server could not be reached for a minute, could not allot, or has
                another ledger.

        Cost: five round trips in the network, one of them while the file is locked; and the cost of
        the ledger.
        """
        if not len(names):
            return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.bool_)
        if len(names) > MOST_EVENTS:
            raise LedgerError(
                f"a server allots {MOST_EVENTS} events at a time, got {len(names)}: set "
                "spark.sql.execution.arrow.maxRecordsPerBatch to fewer"
            )
        (server, worker), until = identities(key), None
        head = identity_bytes(self.identity) + stream
        while True:
            try:
                with connect(
                    self.address, worker, server.certificate(), seconds=WAIT_SECONDS
                ) as channel:
                    return _ask(channel, head, names, tags, refuse)
            except KeyMismatchError:
                raise KeyMismatchError(
                    "the ledger's server does not know the ledger key of this seed: give the "
                    "server the key that `ccbps keygen ledger` derives from it"
                ) from None
            except NetworkError as error:
                now = time.monotonic()
                until = now + WAIT_SECONDS if until is None else until
                if now >= until:
                    raise LedgerError(
                        f"the ledger's server at {self.address} cannot be used, so nothing was "
                        f"encoded: {error}"
                    ) from None
            time.sleep(AGAIN_SECONDS * (0.5 + os.urandom(1)[0] / 256))  # not all at once


def _ask(
    channel: Channel,
    head: bytes,
    names: NDArray[np.int64],
    tags: Callable[[Rounds], Bytes],
    refuse: Callable[[Bools, Rounds], object],
) -> tuple[Rounds, Bools]:
    """Ask for rounds: the worker's part of `LedgerServer._allot`."""
    count = len(names)
    channel.send(head, names.astype("<i8").tobytes())
    rounds: Rounds = np.zeros(0, dtype=np.uint64)
    refused_once = False
    while True:
        answer = channel.receive(1 + max(8 * count, 1 << 16))
        kind, content = bytes(answer[:1]), memoryview(answer)[1:]
        if kind == FAILED:
            raise LedgerError(str(content, errors="replace"))
        if kind == ROUNDS and len(content) == 8 * count and not len(rounds):
            rounds = np.frombuffer(content, "<u8").astype(np.uint64)
            channel.send(tags(rounds).tobytes())
            continue
        if len(content) != -(-count // 8) or len(rounds) != count or kind not in (OTHER, DONE):
            raise PeerError("an answer that is none")
        other = np.unpackbits(np.frombuffer(content, np.uint8), count=count).astype(np.bool_)
        if kind == DONE:
            return rounds, other
        if refused_once:
            raise PeerError("an answer that came before")
        refused_once = True
        refuse(other, rounds)
        channel.send(b"")
