"""Broker 0's workers, and its connections to brokers 1 and 2, to which it gives orders.

The leader decides on the work and its order, and holds the state that must outlast a connection.
This module gives the orders.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Final, TypeVar

import numpy as np

from ccbps.arrays import Bools, Bytes, Index
from ccbps.errors import DecodeError, NetworkError, PeerError, RefusedError
from ccbps.keys.plain_key import PARTIES, OperatorKey
from ccbps.keys.secret import Confined
from ccbps.network import Channel, connect
from ccbps.shares.clients import CLIENT, HEAD_BYTES, sealed_part
from ccbps.shares.operators import identity
from ccbps.trio.members import Trio
from ccbps.trio.orders import (
    MOST_BYTES,
    MOST_VERIFIED,
    Order,
    Reply,
    as_rows,
    lane_bytes,
    pieces,
)
from ccbps.trio.worker import Workers

T = TypeVar("T")
FOLLOWERS: Final = (1, 2)
REPLY_SECONDS: Final = 60.0
"""Seconds within which a broker must reply to an order."""
LATE_SECONDS: Final = 1.0
"""Seconds within which a broker replies once this one's workers have failed."""
_log: Final = logging.getLogger(__name__)


class Others(Confined):
    """Workers of broker 0, and connections to the other brokers. One thread at a time uses them.

    Attributes:
        workers: workers of broker 0.
        sessions: sessions of brokers 1 and 2 that have all clients and tables; empty for none.
        is_joined: True while all three brokers are connected and have the same clients and tables.
        may_differ: True after brokers were at different positions: their tables may differ.

    Args:
        trio: the three brokers.
        key: key of broker 0's operator.
        matcher: the matcher.
    """

    def __init__(self, trio: Trio, key: OperatorKey, matcher: Any) -> None:
        self._trio, self._key, self._matcher = trio, key, matcher
        self._channels: dict[int, Channel] = {}
        self.sessions: dict[int, bytes] = {}
        self.is_joined = self.may_differ = False
        # Heads of interests that were verified over these connections but not put yet, in order.
        self._verified: dict[bytes, None] = {}
        # Why a broker cannot write to its file; of brokers that can, nothing.
        self._full: dict[int, str] = {}
        self._threads = ThreadPoolExecutor(PARTIES, thread_name_prefix="ccbps trio")
        self.workers = Workers(0, trio, key, matcher)

    def leave(self) -> None:
        """End all connections, also while another thread waits for them."""
        self.workers.leave()
        for channel in [*self._channels.values()]:
            channel.close()

    def close(self) -> None:
        """End all workers."""
        self.workers.close()
        self._threads.shutdown()

    def part(self, error: BaseException) -> None:
        """End all connections after an error."""
        self.is_joined = False
        self.may_differ |= isinstance(error, PeerError)
        self.leave()
        self._channels.clear()
        self._verified.clear()

    def connect(self) -> dict[int, bytes]:
        """Connect with brokers 1 and 2, and return their sessions.

        Raises:
            NetworkError: one of them cannot be reached.
        """
        if not self.workers.are_alive:
            self.workers.close()
            self.workers = Workers(0, self._trio, self._key, self._matcher)
            self.sessions.clear()
        own, sessions = identity(self._key), {}
        for party in FOLLOWERS:
            operator = self._trio.operators[party]
            channel = connect(operator.address, own, operator.pin, seconds=10)
            self._channels[party] = channel
            self._send(party, Order("about"))
            sessions[party] = self._reply(party, channel).session
        return sessions

    def all(self, verb: Any, **fields: Any) -> None:
        """Give all three brokers the same order."""
        self.marked([Order(verb, **fields)] * PARTIES)

    def marked(self, orders: Sequence[Order]) -> Bools:
        """Give each broker an order, and return the rows that any of them marks."""
        replies, marks = self.give(orders, lambda workers: workers.obey(orders[0]))
        for reply in replies.values():
            marks |= reply.marked(len(marks))
        return marks

    def give(
        self, orders: Sequence[Order | None], own: Callable[[Workers], T]
    ) -> tuple[dict[int, Reply], T]:
        """Give orders while this broker's workers do their part.

        Args:
            orders: orders to brokers 0, 1 and 2; None for no order. `own` carries out broker 0's.
            own: function that is called with this broker's workers.

        Returns:
            replies of brokers 1 and 2, and the result of `own`.

        Raises:
            NetworkError: a broker or a connection has ended, or failed in another way.
            PeerError: the brokers are at different positions.
        """
        replies = {}
        for party in FOLLOWERS:
            if (order := orders[party]) is not None:
                self._send(party, order)
        for party in FOLLOWERS:
            if orders[party] is not None:
                channel = self._channels[party]
                replies[party] = self._threads.submit(self._reply, party, channel)
        try:
            result = own(self.workers)
        except BaseException as error:
            # The others notice, too, and one of them may know better what is wrong.
            self.workers.leave()
            wait(replies.values(), LATE_SECONDS)
            self.part(error)
            raise
        return {party: reply.result() for party, reply in replies.items()}, result

    # -- what several orders do -------------------------------------------------------------------

    def greet(self, hellos: Sequence[Sequence[bytes]]) -> Bools:
        """Let the brokers take clients' hellos, three of each; return those that are refused."""
        orders = [Order("greet", rows=as_rows([*own])) for own in zip(*hellos, strict=True)]
        return self.marked(orders)

    def examine(self, grants: Bytes) -> Bools:
        """Return the grants that a broker refuses."""
        return self.marked(_parts("examine", grants, "grant"))

    def grant(self, grants: Bytes) -> None:
        """Let the brokers take grants that none of them refuses."""
        for rows in pieces(len(grants)):
            orders = _parts("grant", grants[rows], "grant")
            replies, refused = self.give(orders, _obeyed(orders[0]))
            for party, reply in replies.items():
                if reply.unkept:
                    self._tell_full(party, reply)
            if refused.any():
                raise PeerError("broker 0 refuses grants that it examined")

    def verify(self, interests: Bytes) -> Bools:
        """Verify interests, and return those that are refused.

        Raises:
            RefusedError: a broker cannot keep them.
        """
        orders = _parts("verify", interests, "interest")
        replies, refused = self.give(orders, _obeyed(orders[0]))
        self._require_room(replies)
        for reply in replies.values():
            refused |= reply.marked(len(interests))
        good = interests[~refused, :HEAD_BYTES]
        self._verified.update(dict.fromkeys(head.tobytes() for head in good))
        for head in [*self._verified][: max(0, len(self._verified) - MOST_VERIFIED)]:
            del self._verified[head]
        return refused

    def lose_verified(self, clients: Sequence[bytes]) -> None:
        """Treat interests of clients as if they had not been verified."""
        gone = {*clients}
        for head in [head for head in self._verified if head[CLIENT] in gone]:
            del self._verified[head]

    def put(self, table: int, chosen: Index, interests: Bytes) -> None:
        """Put interests into lanes of a table; those that a broker cannot keep match nothing."""
        for rows in pieces(len(interests)):
            self._put_piece(table, chosen[rows], interests[rows])

    def remove(self, table: int, chosen: Index, heads: Bytes) -> None:
        """Remove interests, named by their heads, from lanes of a table."""
        for rows in pieces(len(heads)):
            self.all("remove", tables=(table,), rows=heads[rows], lanes=lane_bytes(chosen[rows]))

    def match(self, tables: tuple[int, ...], events: Bytes) -> tuple[list[Bools], Bools]:
        """Return answers by table, and the events that are refused, as `Workers.match` does."""
        orders = _parts("match", events, "event", tables=tables)
        return self.give(orders, lambda workers: workers.match(orders[0]))[1]

    # -- inside -----------------------------------------------------------------------------------

    def _require_room(self, replies: dict[int, Reply]) -> None:
        """Raise an error if a broker could not write to its file."""
        for party, reply in replies.items():
            if reply.unkept:
                self._tell_full(party, reply)
                raise RefusedError(
                    f"broker {party} cannot keep interests: {reply.unkept}", reason="brokers"
                )
            self._full.pop(party, None)

    def _tell_full(self, party: int, reply: Reply) -> None:
        """Log that a broker could not write to its file, once."""
        if party not in self._full:
            _log.error("broker %d cannot keep interests: %s", party, reply.unkept)
        self._full[party] = reply.unkept

    def _put_piece(self, table: int, lanes: Index, interests: Bytes) -> None:
        heads = np.ascontiguousarray(interests[:, :HEAD_BYTES])
        names = [head.tobytes() for head in heads]
        verified = all(name in self._verified for name in names)
        if not verified:
            kept = self._stored(heads, interests)
            heads, lanes = heads[kept], lanes[kept]
        for name in names:
            self._verified.pop(name, None)
        put = Order("put", tables=(table,), rows=heads, lanes=lane_bytes(lanes), verified=verified)
        refused = self.marked([put] * PARTIES)
        if refused.any():
            _log.warning("%d interests are held differently, and match nothing", refused.sum())

    def _stored(self, heads: Bytes, interests: Bytes) -> Bools:
        """Let the other brokers have their parts; return the interests that both can keep."""
        asked = Order("missing", rows=heads)
        replies, _ = self.give([None, asked, asked], lambda _: None)
        kept = np.ones(len(heads), dtype=np.bool_)
        store: list[Order | None] = [None] * PARTIES
        missing = {party: reply.marked(len(heads)) for party, reply in replies.items()}
        for party, lacks in missing.items():
            if lacks.any():
                store[party] = Order("store", rows=sealed_part(party, interests[lacks]))
        for party, reply in self.give(store, lambda _: None)[0].items():
            if reply.unkept:
                kept &= ~missing[party]
                self._tell_full(party, reply)
        if not kept.all():
            _log.error("%d interests match nothing until all brokers keep them", (~kept).sum())
        return kept

    def _send(self, party: int, order: Order) -> None:
        if party not in self._channels:
            raise NetworkError(f"broker {party} is not connected")
        self._channels[party].send(order.to_bytes())

    def _reply(self, party: int, channel: Channel) -> Reply:
        """Return the reply of a broker.

        Raises:
            NetworkError: its connection ended, or it could not carry out the order.
        """
        content = channel.receive(MOST_BYTES, REPLY_SECONDS)
        try:
            reply = Reply.from_bytes(bytes(content))
        except DecodeError as error:
            raise PeerError(f"broker {party} does not follow the protocol: {error}") from None
        if reply.error:
            self.may_differ |= reply.anew
            if not reply.again:
                self.sessions.clear()  # all get everything anew
            self.workers.leave()  # they may wait for it
            raise NetworkError(f"broker {party}: {reply.error}")
        return reply


def _parts(verb: Any, messages: Bytes, kind: str, **fields: Any) -> list[Order]:
    """Return an order to each broker, with its parts of sealed messages."""
    parts = (sealed_part(party, messages, kind) for party in range(PARTIES))
    return [Order(verb, rows=part, **fields) for part in parts]


def _obeyed(order: Order) -> Callable[[Workers], Bools]:
    """Return a function that lets workers obey an order."""
    return lambda workers: workers.obey(order)
