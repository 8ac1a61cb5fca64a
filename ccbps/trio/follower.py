"""Broker 1 or 2: it keeps its parts of interests, and obeys the orders of broker 0.

Broker 0 decides on the order of the work, never on the function that is computed. An order to match
names events and tables, and the three compare positions before they send anything.

A broker whose file cannot be written, such as on a full disk, reports that and refuses new
interests. It goes on with those that it has.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec import structs

from ccbps.arrays import Bytes
from ccbps.checks import whole
from ccbps.errors import CcbpsError, DecodeError, LedgerError, NetworkError, PeerError
from ccbps.keys.plain_key import OperatorKey
from ccbps.keys.secret import Closable
from ccbps.network import Channel, Credentials, Server
from ccbps.shares.clients import CLIENT, GRANT_HEAD_BYTES, HEAD_BYTES, sealed_width
from ccbps.shares.operators import broker_key, identity
from ccbps.trio.members import Trio
from ccbps.trio.orders import MOST_BYTES, MOST_VERIFIED, SESSION_BYTES, Order, Reply
from ccbps.trio.shelf import Shelf
from ccbps.trio.worker import Workers

_log: Final = logging.getLogger(__name__)


class Follower(Closable):
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
        ParameterError: the file is another broker's; the matcher's brokers do not learn answers; or
            the matcher demands grants and there is no authority, or the other way round.
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
        names = broker_key(key).public + matcher.digest + trio.authority_name
        owner = sha256(bytes([party]) + names).digest()
        width = sealed_width(party, matcher.form.rows)
        self._shelf = Shelf(None if path is None else Path(path), owner, width)
        # Parts that were verified over these connections but not put yet, by their heads.
        self._new: dict[bytes, Bytes] = {}
        self._is_full = False
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

    def close(self) -> None:
        """End all connections and workers, and release the file."""
        if hasattr(self, "_server"):
            self._server.close()
        if self._workers is not None:
            self._workers.close()
        self._shelf.close()

    def _begin(self) -> None:
        """Start workers, and a session in which broker 0 fills their tables."""
        if self._workers is not None:
            self._workers.close()
        self._workers, self._session = self._make_workers(), os.urandom(SESSION_BYTES)
        self._new.clear()

    def _serve(self, channel: Channel) -> None:
        """Obey broker 0; its new connection replaces an old one."""
        assert self._workers is not None
        with self._lock:
            old, self._channel = self._channel, channel
        if old is not None:
            old.close()
        self._workers.leave()
        with self._leader:  # the old one has come to its end
            try:
                while True:
                    # Broker 0 may be silent for days.
                    content = channel.receive(MOST_BYTES, seconds=1e6)
                    channel.send(self._reply(bytes(content)).to_bytes())
            finally:
                self._workers.leave()

    def _reply(self, content: bytes) -> Reply:
        try:
            return self._obey(Order.from_bytes(content))
        except (NetworkError, PeerError) as error:
            assert self._workers is not None
            if not self._workers.are_alive:
                self._begin()
            anew = isinstance(error, PeerError)
            return Reply(self._session, error=str(error), again=True, anew=anew)
        except CcbpsError as error:
            return Reply(self._session, error=str(error))

    def _obey(self, order: Order) -> Reply:
        """Obey an order, and return the reply."""
        assert self._workers is not None
        rows, marks, unkept = order.rows, np.zeros(0, dtype=np.bool_), ""
        match order.verb:
            case "about":
                pass
            case "digests":
                return Reply(self._session, digests=b"".join(self._workers.digests(order)))
            case "match":
                if not len(rows):
                    raise DecodeError("an order to match has no events")
                _, marks = self._workers.match(order)
            case "missing":
                marks = self._shelf.missing(rows)
            case "store":
                unkept = self._stored(rows)
            case "prune":
                self._kept(self._shelf.prune)
            case "examine":
                marks = self._workers.obey(order) | self._shelf.earlier(rows[:, :GRANT_HEAD_BYTES])
            case "grant":
                unkept = self._granted(order)
            case "verify":
                marks = self._workers.obey(order)
                unkept = self._verified(rows[~marks])
            case "put":
                marks = self._workers.obey(structs.replace(order, rows=self._parts(order)))
            case _:
                if order.verb == "reset":
                    self._shelf.begin()
                    self._new.clear()
                elif order.verb == "forget":
                    gone = {row.tobytes() for row in rows}
                    self._leave([head for head in self._new if head[CLIENT] in gone])
                elif order.verb == "remove":
                    self._kept(partial(self._shelf.remove, [row.tobytes() for row in rows]))
                marks = self._workers.obey(order)
        return Reply(self._session, np.packbits(marks).tobytes(), unkept=unkept)

    def _granted(self, order: Order) -> str:
        """Take grants; return the reason if the file cannot be written now, else nothing.

        They take effect all the same: a grant may withdraw rights of an earlier one.
        """
        assert self._workers is not None
        heads = order.rows[:, :GRANT_HEAD_BYTES]
        if self._shelf.earlier(heads).any() or self._workers.obey(order).any():
            raise DecodeError("grants are refused that this broker did not examine")
        return self._kept(partial(self._shelf.grant, heads))

    def _kept(self, write: Callable[[], None]) -> str:
        """Change the file; return the reason if that cannot be done now, else nothing."""
        try:
            write()
        except LedgerError as error:
            if not self._is_full:
                _log.error("no more interests are taken: %s", error)
            self._is_full = True
            return str(error)
        return ""

    def _stored(self, parts: Bytes) -> str:
        """Write parts to the file; return the reason if that cannot be done now, else nothing."""
        unkept = self._kept(partial(self._shelf.store, parts)) if len(parts) else ""
        if self._is_full and len(parts) and not unkept:
            _log.warning("the broker's file can be written again")
            self._is_full = False
        return unkept

    def _verified(self, parts: Bytes) -> str:
        """Keep parts that were verified; return the reason if that cannot be done now."""
        unkept = self._stored(parts)
        if not unkept:
            self._new.update((part[:HEAD_BYTES].tobytes(), part) for part in parts)
            self._leave([*self._new][: max(0, len(self._new) - MOST_VERIFIED)])
        return unkept

    def _leave(self, heads: Sequence[bytes]) -> None:
        """Delete parts that were verified but not put."""
        for head in heads:
            del self._new[head]
        if heads:
            self._kept(partial(self._shelf.remove, heads))

    def _parts(self, order: Order) -> Bytes:
        """Return the parts that an order puts into lanes."""
        new = [self._new.pop(row.tobytes(), None) for row in order.rows]
        if order.verified:
            verified = [part for part in new if part is not None]
            if len(verified) < len(new):
                raise NetworkError("interests were not verified over these connections")
            return np.stack(verified)
        parts = self._shelf.parts(order.rows)
        if parts is None:
            raise LedgerError("interests are missing in the broker's file")
        return parts
