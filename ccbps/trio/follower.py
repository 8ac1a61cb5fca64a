"""Broker 1 or 2: it keeps its parts of interests, and does what broker 0 orders.

Broker 0 says when something happens, never what is computed: an order to match says which events
meet which table, and the three compare positions before they send anything.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np

from ccbps.arrays import Bools
from ccbps.checks import whole
from ccbps.errors import CcbpsError, DecodeError, LedgerError, NetworkError, PeerError
from ccbps.keys.plain_key import OperatorKey
from ccbps.keys.secret import Confined
from ccbps.network import Channel, Credentials, Server
from ccbps.shares.clients import sealed_width
from ccbps.shares.operators import broker_key, identity
from ccbps.trio.members import Trio
from ccbps.trio.orders import MOST_BYTES, SESSION_BYTES, Order, Reply
from ccbps.trio.shelf import Shelf
from ccbps.trio.worker import Workers


class Follower(Confined):
    """Broker 1 or 2, in a thread of this process and in worker processes.

    Attributes:
        address: address that it listens at.

    Args:
        party: 1 or 2.
        trio: the three brokers.
        key: key of this broker's operator.
        matcher: the matcher, a `ccbps.matching.ThreeBrokerMatch`.
        path: path of its file; None keeps everything in memory.

    Raises:
        LedgerError: the file cannot be used.
        NetworkError: it cannot listen at its address.
        KeyMismatchError: the key is not that of broker `party`.
        ParameterError: the file is another broker's, the matcher's brokers do not learn answers, or
            it demands grants.
    """

    def __init__(
        self,
        party: int,
        trio: Trio,
        key: OperatorKey,
        matcher: Any,
        *,
        path: str | PathLike[str] | None = None,
    ) -> None:
        trio.check(whole("party", party, 1, 2), key, matcher)
        self._make_workers = partial(Workers, party, trio, key, matcher)
        owner = sha256(bytes([party]) + broker_key(key).public + matcher.digest).digest()
        width = sealed_width(party, matcher.form.rows)
        self._shelf = Shelf(None if path is None else Path(path), owner, width)
        self._lock, self._leader = threading.Lock(), threading.Lock()
        self._channel: Channel | None = None
        self._workers: Workers | None = None
        try:
            self._begin()
            host, port = trio.place(party)
            self._server = Server(
                Credentials(identity(key), (trio.operators[0].pin,)),
                self._serve,
                host=host,
                port=port,
                title=f"broker {party}",
            )
        except BaseException:
            self.close()
            raise
        self.address = self._server.address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections and workers, and release the file."""
        if hasattr(self, "_server"):
            self._server.close()
        if self._workers is not None:
            self._workers.close()
        self._shelf.close()

    def _begin(self) -> None:
        """Start workers, and a session in which broker 0 says what they have."""
        if self._workers is not None:
            self._workers.close()
        self._workers, self._session = self._make_workers(), os.urandom(SESSION_BYTES)

    def _serve(self, channel: Channel) -> None:
        """Obey broker 0; a new connection of it takes the place of an old one."""
        assert self._workers is not None
        with self._lock:
            old, self._channel = self._channel, channel
        if old is not None:
            old.close()
        self._workers.leave()
        with self._leader:  # the old one has come to its end
            try:
                while True:
                    # Broker 0 may have nothing to say for days.
                    content = channel.receive(MOST_BYTES, seconds=1e6)
                    channel.send(self._reply(bytes(content)).to_bytes())
            finally:
                self._workers.leave()

    def _reply(self, content: bytes) -> Reply:
        try:
            marks = self._obey(Order.from_bytes(content))
        except (NetworkError, PeerError) as error:
            if self._workers is None or not self._workers.are_alive:
                self._begin()
            anew = isinstance(error, PeerError)
            return Reply(self._session, error=str(error), again=True, anew=anew)
        except CcbpsError as error:
            return Reply(self._session, error=str(error))
        return Reply(self._session, np.packbits(marks).tobytes())

    def _obey(self, order: Order) -> Bools:
        """Obey an order, and return marks of its rows."""
        assert self._workers is not None
        rows, none = order.rows, np.zeros(0, dtype=np.bool_)
        match order.verb:
            case "reset":
                self._workers.reset()
                self._shelf.begin()
            case "prune":
                self._shelf.prune()
            case "join":
                self._workers.join(order.attempt)
            case "greet":
                hellos = [row.tobytes() for row in rows]
                refused = self._workers.greet(hellos)
                self._shelf.greet(
                    [hello for hello, bad in zip(hellos, refused, strict=True) if not bad]
                )
                return refused
            case "forget":
                clients = [row.tobytes() for row in rows]
                self._shelf.forget(clients)
                self._workers.forget(clients)
            case "missing":
                return self._shelf.missing(rows)
            case "store":
                self._shelf.store(rows)
            case "verify":
                return self._workers.verify(rows)
            case "put":
                parts = self._shelf.parts(rows)
                if parts is None:
                    raise LedgerError("interests are missing in the broker's file")
                return self._workers.put(order.table, order.chosen, parts)
            case "remove":
                self._workers.remove(order.table, order.chosen)
                self._shelf.remove(rows)
            case "drop":
                self._workers.drop(order.table)
            case "match":
                if len(rows) == 0:
                    raise DecodeError("an order to match has no events")
                return self._workers.help_to_match(order.table, rows)
        return none
