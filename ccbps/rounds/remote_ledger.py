"""The ledger of a server, as workers see it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Rounds
from ccbps.errors import LedgerError, ParameterError
from ccbps.keys.confine import confined
from ccbps.keys.ledger_key import LedgerKey
from ccbps.rounds.ledger_channel import (
    DONE,
    FAILED,
    MOST_EVENTS,
    OTHER,
    ROUNDS,
    Broken,
    Channel,
    Forged,
    connect,
)
from ccbps.rounds.ledger_file import WAIT_SECONDS, identity_bytes

AGAIN_SECONDS: Final = 0.2
"""Between two tries to reach a server."""


@dataclass(frozen=True, slots=True)
class RemoteLedger:
    """The ledger of a `LedgerServer`, for workers, in place of an `EventLedger`.

    Workers and server know each other by a key that workers derive from the publisher's seed.

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
        place_of(self.address)
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
        until: float | None = None
        while True:
            try:
                with _reached(self.address) as connection:
                    channel = connect(connection, key, WAIT_SECONDS)
                    return _ask(
                        channel, identity_bytes(self.identity) + stream, names, tags, refuse
                    )
            except Broken as error:
                now = time.monotonic()
                until = now + WAIT_SECONDS if until is None else until
                if now >= until:
                    raise LedgerError(
                        f"the ledger's server at {self.address} cannot be used, so nothing was "
                        f"encoded: {error}"
                    ) from None
            time.sleep(AGAIN_SECONDS * (0.5 + os.urandom(1)[0] / 256))  # not all at once


def _reached(address: str) -> socket.socket:
    """
    Raises:
        Broken: nobody is there.
    """
    try:
        return socket.create_connection(place_of(address), WAIT_SECONDS)
    except (OSError, UnicodeError) as error:
        raise Broken(str(error)) from None


def _ask(
    channel: Channel,
    head: bytes,
    names: NDArray[np.int64],
    tags: Callable[[Rounds], Bytes],
    refuse: Callable[[Bools, Rounds], object],
) -> tuple[Rounds, Bools]:
    """The worker's part of `LedgerServer._allot`."""
    count = len(names)
    channel.send(head + names.astype("<i8").tobytes())
    rounds: Rounds = np.zeros(0, dtype=np.uint64)
    told = False
    while True:
        answer = channel.receive(1 + max(8 * count, 1 << 16))
        kind, content = answer[:1], answer[1:]
        if kind == FAILED:
            raise LedgerError(content.decode(errors="replace"))
        if kind == ROUNDS and len(content) == 8 * count and not len(rounds):
            rounds = np.frombuffer(content, "<u8").astype(np.uint64)
            channel.send(tags(rounds).tobytes())
            continue
        if len(content) != -(-count // 8) or len(rounds) != count or kind not in (OTHER, DONE):
            raise Forged("an answer that is none")
        other = np.unpackbits(np.frombuffer(content, np.uint8), count=count).astype(np.bool_)
        if kind == DONE:
            return rounds, other
        if told:
            raise Forged("an answer that came before")
        told = True
        refuse(other, rounds)
        channel.send(b"")


def place_of(address: str) -> tuple[str, int]:
    """Host and port.

    Raises:
        ParameterError: it is no address.
    """
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ParameterError(
            f"address must be the server's 'host:port', such as '10.0.0.5:7400', got {address!r}"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
