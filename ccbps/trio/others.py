"""Broker 0's workers, and its connections to brokers 1 and 2, to which it gives orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from ccbps.arrays import Bools
from ccbps.errors import DecodeError, NetworkError, PeerError
from ccbps.keys.plain_key import PARTIES, OperatorKey
from ccbps.keys.secret import Confined
from ccbps.network import Channel, connect
from ccbps.shares.operators import identity
from ccbps.trio.members import Trio
from ccbps.trio.orders import MOST_BYTES, Order, Reply
from ccbps.trio.worker import Workers

T = TypeVar("T")
FOLLOWERS: Final = (1, 2)
REPLY_SECONDS: Final = 60.0
"""Seconds in which a broker must have done what it was told."""


class Others(Confined):
    """Workers of broker 0, and connections to the other brokers. One thread at a time uses them.

    Attributes:
        workers: workers of broker 0.
        sessions: sessions of brokers 1 and 2 that have all clients and tables; empty for none.
        is_joined: True while all three brokers are connected and have the same clients and tables.
        may_differ: True after brokers stood at different places: their tables may differ.

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

    def connect(self) -> dict[int, bytes]:
        """Connect with brokers 1 and 2, and return their sessions.

        Raises:
            NetworkError: one of them is not there.
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
        """Give orders while this broker's workers do something.

        Args:
            orders: orders to brokers 0, 1 and 2, None for none. That to broker 0 is up to `own`.
            own: function that is called with this broker's workers.

        Returns:
            replies of brokers 1 and 2, and the result of `own`.

        Raises:
            NetworkError: a broker or a connection has ended, or failed in another way.
            PeerError: the brokers do not stand at the same place.
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
            self.part(error)
            raise
        return {party: reply.result() for party, reply in replies.items()}, result

    def _send(self, party: int, order: Order) -> None:
        if party not in self._channels:
            raise NetworkError(f"broker {party} is not connected")
        self._channels[party].send(order.to_bytes())

    def _reply(self, party: int, channel: Channel) -> Reply:
        """Return the reply of a broker.

        Raises:
            NetworkError: its connection ended, or it could not do what it was told.
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
