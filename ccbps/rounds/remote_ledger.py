"""The ledger of a server, as workers see it, and what the two say to one another.

Server and worker each derive both sides' identities (`ccbps.network`) from the `LedgerKey`, so one
key is all that they are given: who has it is let in, and who does not is not believed.

In a channel for each batch of events, the worker sends which ledger it wants, the stream and the
events' names; then come, each in a frame behind a letter, from the server and in answer to it:

- `ROUNDS`, 8 bytes for each event; the worker sends a tag of 16 bytes for each;
- perhaps `OTHER`, a bit for each event that has other content; the worker sends an empty frame;
- `DONE`, the same bits; or, in place of any of these, `FAILED` and why.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Rounds
from ccbps.errors import KeyMismatchError, LedgerError, NetworkError, PeerError
from ccbps.keys.plain_key import LedgerKey
from ccbps.keys.secret import confined
from ccbps.network.channel import Channel, connect, split_address
from ccbps.network.identity import Identity
from ccbps.rounds.ledger_file import WAIT_SECONDS, identity_bytes

AGAIN_SECONDS: Final = 0.2
"""Between two tries to reach a server."""
MOST_EVENTS: Final = 1 << 20
"""In one connection: some 50 MB of memory."""
STREAM_BYTES: Final = 16
ROUNDS, OTHER, DONE, FAILED = b"r", b"o", b"d", b"f"


@confined
def identities(key: LedgerKey) -> tuple[Identity, Identity]:
    """Derive the identities of the server and of a worker from their common key."""
    secret = key.export_secret()
    return Identity.derive(secret, b"ledger server"), Identity.derive(secret, b"ledger worker")


@dataclass(frozen=True, slots=True)
class RemoteLedger:
    """The ledger of a `LedgerServer`, for workers, in place of an `EventLedger`.

    Workers and server know each other by a key that workers derive from the publisher's seed. What
    they send is encrypted, and stays so if somebody finds that key later (`ccbps.network`).

    Example:
        >>> from ccbps.rounds import RemoteLedger
        >>> RemoteLedger("10.0.0.5:7400", "8c1f0d5e2a7b4c3d9e6f1a0b5c4d3e2f")  # of encode_events
        RemoteLedger(address='10.0.0.5:7400', identity='8c1f0d5e2a7b4c3d9e6f1a0b5c4d3e2f')

    Attributes:
        address: the server's, ``host:port``, as workers reach it.
        identity: `EventLedger.identity` of the server's file, which ``ccbps ledger`` shows: a
            server with another file, which would use rounds twice, is refused. None for any.
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
        """See `EventLedger.allot`; `tags` may be called several times.

        Raises:
            KeyMismatchError: the server does not have the key of this seed.
            LedgerError: it could not be reached for a minute, could not allot, or has another
                ledger than the one that is wanted.

        Cost: five round trips in the network, one of them while the file is locked; and what the
        ledger costs.
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
    """The worker's part of `LedgerServer._allot`."""
    count = len(names)
    channel.send(head, names.astype("<i8").tobytes())
    rounds: Rounds = np.zeros(0, dtype=np.uint64)
    told = False
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
        if told:
            raise PeerError("an answer that came before")
        told = True
        refuse(other, rounds)
        channel.send(b"")
