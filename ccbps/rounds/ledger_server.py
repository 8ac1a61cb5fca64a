"""A ledger of events for workers that do not share a file system: one process has the file.

A worker asks over TCP (`ccbps.network`), in a connection for each batch of events. It
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
from collections.abc import Sequence
from typing import Any, Final, Self

import numpy as np

from ccbps.arrays import Bools, Bytes, Rounds
from ccbps.errors import LedgerError, NetworkError, ParameterError, PeerError
from ccbps.keys.randomness import TAG_BYTES
from ccbps.keys.secret import confined
from ccbps.keys.sources import KeySource, ledger_key
from ccbps.network.channel import Channel
from ccbps.network.identity import Credentials
from ccbps.network.server import Server
from ccbps.rounds.event_ledger import EventLedger
from ccbps.rounds.ledger_file import IDENTITY_BYTES, identity_bytes
from ccbps.rounds.remote_ledger import (
    DONE,
    FAILED,
    MOST_EVENTS,
    OTHER,
    ROUNDS,
    STREAM_BYTES,
    identities,
)

_log: Final = logging.getLogger(__name__)
CONNECTIONS: Final = 64
"""At a time; others wait."""
ANSWER_SECONDS: Final = 10
"""Within which a worker answers, while the file is locked for it; twice, if it is told of others'
content."""


class LedgerServer:
    """Serves an `EventLedger` to workers on other machines, from threads of this process.

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
        try:
            self._server = Server(
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
        self.address = self._server.address

    def __repr__(self) -> str:
        return f"<LedgerServer {self.address} {self._ledger!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Listen no longer, and end all connections: whoever has not been told its rounds by now
        asks again. When it returns, nothing is allotted any more."""
        self._server.close()

    @confined
    def _credentials(self, fingerprint: str) -> Credentials | None:
        """Find the identities that follow from the key that a worker has; read keys again."""
        for source in self._keys:
            try:
                server, worker = identities(ledger_key(source))
            except Exception as error:  # one publisher's key is missing; the others' are not
                self._server.log_some(
                    logging.ERROR, "the ledger's server has no key from %r: %s", source, error
                )
                continue
            if server.certificate().fingerprint() == fingerprint:
                return Credentials(server, (worker.certificate(),))
        return None

    @confined
    def _allot(self, channel: Channel) -> None:
        """Allot rounds to one batch of events of a worker."""
        head = IDENTITY_BYTES + STREAM_BYTES
        request = channel.receive(head + 8 * MOST_EVENTS)
        if len(request) < head or len(request) % 8:
            raise PeerError("a request that is none")
        wanted, stream = bytes(request[:IDENTITY_BYTES]), bytes(request[IDENTITY_BYTES:head])
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
            self._require(wanted)
            _, other = self._ledger.allot(stream, names, tags, refuse)
        except LedgerError as error:
            _log.error("the ledger's server allots nothing: %s", error)
            channel.send(FAILED, str(error).encode())
            return
        channel.send(DONE, np.packbits(other).tobytes())

    def _require(self, wanted: bytes) -> None:
        """Raises LedgerError if a worker wants another ledger."""
        if wanted != identity_bytes(None) and wanted.hex() != (found := self._ledger.identity()):
            raise LedgerError(
                f"the ledger at {self.address} is {found}, wanted {wanted.hex()}: another file "
                "would allot rounds that were used. Start the server with the ledger's own file; "
                "if that is lost, take new seeds and a new ledger"
            )
