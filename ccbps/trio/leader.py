"""Broker 0: it tells the other two what comes next, and holds what they need to begin anew.

All messages reach broker 0 first, sealed for the others. It decides on the order of interests and
events and on lanes, so that the three always do the same. An order that fails, since a broker or a
connection ended, is given again over new connections, with new masks. A broker that lost its tables
gets all interests again; it has its parts of them in its file.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Final, Self, TypeVar

import numpy as np

from ccbps.arrays import Bools, Bytes, Index
from ccbps.errors import DecodeError, NetworkError, PeerError, RefusedError
from ccbps.keys.plain_key import OperatorKey
from ccbps.keys.secret import Confined
from ccbps.network import Channel, connect
from ccbps.shares.clients import (
    CLIENT,
    CLIENT_BYTES,
    HEAD_BYTES,
    SharedKeys,
    head_causes,
    hello_bytes,
    sealed_bytes,
    sealed_part,
)
from ccbps.shares.operators import identity
from ccbps.shares.replicated import PARTIES
from ccbps.trio.members import Trio
from ccbps.trio.orders import MOST_BYTES, MOST_ROWS, Order, Reply, lane_bytes
from ccbps.trio.worker import Workers
from ccbps.wire import Cause, raise_for

T = TypeVar("T")
FOLLOWERS: Final = (1, 2)
REPLY_SECONDS: Final = 60.0
"""Seconds in which a broker must have done what it was told."""
PATIENCE: Final = 20.0
"""Seconds for which an order is repeated before it is given up."""
PAUSES: Final = (0.02, 0.1, 0.5, 1.0)
"""Seconds before an order is repeated the first, second ... time."""
BATCH: Final = 64
"""Events that are matched together at the most."""
_log: Final = logging.getLogger(__name__)


@dataclass(eq=False)
class _Request:
    """Events that wait to be matched, and what came of them."""

    table: int
    rows: Bytes
    result: tuple[Bools, Bools] | None = None
    error: Exception | None = None

    @property
    def done(self) -> bool:
        """Whether something came of them."""
        return self.result is not None or self.error is not None


class Leader(Confined):
    """Broker 0 together with its connections to brokers 1 and 2. Several threads may use it.

    Attributes:
        matcher: the matcher.
        names: digest of the matcher, id of this broker's key, and epoch.

    Args:
        trio: the three brokers.
        key: key of this broker's operator.
        matcher: the matcher, a `ccbps.matching.ThreeBrokerMatch`.
        patience: seconds for which an order is repeated before it is given up.

    Raises:
        KeyMismatchError: the key is not that of broker 0.
        ParameterError: the matcher's brokers do not learn the answers, or it demands grants.
    """

    def __init__(
        self,
        trio: Trio,
        key: OperatorKey,
        matcher: Any,
        *,
        patience: float = PATIENCE,
    ) -> None:
        trio.check(0, key, matcher)
        self._trio, self._key, self.matcher = trio, key, matcher
        self._identity = identity(key)
        public = b"".join(operator.public for operator in trio.operators)
        self.names = matcher.digest, sha256(public).digest()[:CLIENT_BYTES], 0
        self._patience, self._is_away = patience, False
        self._width = {
            "event": sealed_bytes(HEAD_BYTES + matcher.sizes.event),
            "interest": sealed_bytes(HEAD_BYTES + matcher.sizes.interest),
        }
        self._lock, self._line = threading.RLock(), threading.Lock()
        self._waiting: list[_Request] = []
        self._channels: dict[int, Channel] = {}
        self._sessions: dict[int, bytes] = {}
        self._hellos: dict[bytes, Sequence[bytes]] = {}
        # Of each client that ever said hello, also of those that were forgotten.
        self._owners: dict[bytes, str] = {}
        self._keys: dict[bytes, SharedKeys] = {}
        self._held: dict[int, dict[int, bytes]] = {}
        self._tables, self._attempt = 0, 0
        self._is_joined = self._is_closed = False
        self._threads = ThreadPoolExecutor(PARTIES, thread_name_prefix="ccbps trio")
        self._workers: Workers | None = Workers(0, trio, key, matcher)

    def __repr__(self) -> str:
        return f"<Leader of {self.matcher!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections and workers."""
        self._is_closed = True
        if self._workers is not None:
            self._workers.leave()
        for channel in [*self._channels.values()]:
            channel.close()
        with self._lock:
            if self._workers is not None:
                self._workers.close()
            self._threads.shutdown()

    def meet(self) -> None:
        """Wait until both other brokers are there."""
        while not self._is_closed:
            with suppress(RefusedError):
                self._ordered(lambda: None)
                return
            time.sleep(PAUSES[-1])

    @property
    def sent_bytes(self) -> int:
        """Bytes of masked sums that this broker's workers handed to their connections."""
        with self._lock:
            return 0 if self._workers is None else self._workers.sent_bytes()

    def width(self, kind: str) -> int:
        """Return the bytes of sealed messages of a kind, "event" or "interest"."""
        return self._width[kind]

    # -- clients ----------------------------------------------------------------------------------

    def greet(self, owner: str, hellos: Sequence[bytes]) -> bytes:
        """Take the hellos of a client for brokers 0, 1 and 2, and return the client's name.

        Args:
            owner: name of the client whose messages these keys are for.
            hellos: three hellos.

        Raises:
            DecodeError: one is not for its broker, the matcher and epoch; or another client has
                the name.
            RefusedError: the other brokers cannot be reached.
        """
        if len(hellos) != PARTIES or [len(one) for one in hellos] != [*map(hello_bytes, range(3))]:
            raise DecodeError("hellos are three, for brokers 0, 1 and 2")
        name = bytes(hellos[0][:CLIENT_BYTES])
        if any(hello[:CLIENT_BYTES] != name for hello in hellos):
            raise DecodeError("the three hellos are not of one client")
        with self._lock:
            if self._owners.get(name, owner) != owner:
                raise DecodeError("another client has said hello under this name")
            if name in self._hellos:
                if [*self._hellos[name]] != [*hellos]:
                    raise DecodeError("the client has said another hello under this name")
                return name
            if self._ordered(lambda: self._greet([hellos])).any():
                self.forget([name])
                raise DecodeError("a hello is not for these brokers, the matcher and epoch")
            self._hellos[name], self._owners[name] = [*hellos], owner
            self._keys[name] = SharedKeys(name, {}, self.matcher.digest)
        return name

    def reserve(self, owner: str, name: bytes) -> None:
        """Keep a name for its client, which was forgotten."""
        with self._lock:
            self._owners[name] = owner

    def forget(self, clients: Sequence[bytes]) -> None:
        """Forget the keys of clients, whose messages are refused from here on."""
        with self._lock:
            for client in clients:
                self._keys.pop(client, None)
                self._hellos.pop(client, None)
            self._at_leisure(
                lambda: self._all("forget", rows=_rows(clients), own=lambda w: w.forget(clients))
            )

    def check(self, kind: str, messages: Bytes, owner: str) -> None:
        """Refuse sealed messages that are none, or of another client.

        Args:
            kind: "event" or "interest".
            messages: sealed messages, shape (count, bytes).
            owner: name of the client that sent them.

        Raises:
            DecodeError: they have another size or head, or their client did not say hello.
        """
        width = self._width[kind]
        if messages.ndim != 2 or messages.shape[1] != width:
            raise DecodeError(
                f"sealed {kind}s have {width} bytes, got an array of shape {messages.shape}: send "
                "what the role's seal() returns"
            )
        for name in {row[CLIENT].tobytes() for row in messages}:
            keys = self._keys.get(name)
            if keys is None or self._owners[name] != owner:
                raise DecodeError(f"{owner} did not say hello with the key of this {kind}")
            own = (messages[:, CLIENT] == np.frombuffer(name, np.uint8)).all(axis=1)
            raise_for(head_causes(kind, keys, messages[own]))

    # -- interests --------------------------------------------------------------------------------

    def new_table(self) -> int:
        """Return the number of a new table of interests."""
        with self._lock:
            self._tables += 1
            return self._tables

    def verify(self, interests: Bytes) -> None:
        """Refuse interests that the brokers hold differently.

        Args:
            interests: sealed messages that were checked, shape (count, bytes).

        Raises:
            DecodeError: some were altered on their way, or two brokers got different ones.
            RefusedError: the other brokers cannot be reached.
        """
        for rows in _pieces(len(interests)):
            self._raise_for(self._ordered(partial(self._verify, interests[rows])))

    def put(self, table: int, chosen: Index, interests: Bytes) -> None:
        """Put interests into lanes of a table.

        If the other brokers cannot be reached, they get the interests later. An interest that they
        refuse matches nothing.

        Args:
            table: number of the table.
            chosen: lane of each, shape (count,).
            interests: sealed messages that were checked, shape (count, bytes).
        """
        with self._lock:
            # Its client may have been forgotten since it was checked.
            known = np.array([row[CLIENT].tobytes() in self._keys for row in interests], np.bool_)
            chosen, interests = chosen[known], interests[known]
            if not len(chosen):
                return
            held = self._held.setdefault(table, {})
            for lane, row in zip(chosen.tolist(), interests, strict=True):
                held[lane] = row.tobytes()
            self._at_leisure(lambda: self._put(table, chosen, interests))

    def remove(self, table: int, chosen: Index) -> None:
        """Remove the interests of lanes; they match nothing from here on."""
        with self._lock:
            held = self._held.get(table, {})
            gone = [lane for lane in chosen.tolist() if lane in held]
            heads = _rows([held.pop(lane)[:HEAD_BYTES] for lane in gone])
            if not held:
                self._held.pop(table, None)
            if gone:
                self._at_leisure(lambda: self._remove(table, np.array(gone), heads))

    def match(self, table: int, events: Bytes) -> tuple[Bools, Bools]:
        """Match events with a table. Calls of several threads are matched together.

        Args:
            table: number of the table.
            events: sealed messages that were checked, shape (count, bytes).

        Returns:
            answers, shape (count, lanes); and the events that are refused, shape (count,): those
            that were altered on their way, differ between two brokers, or are not one-hot.

        Raises:
            RefusedError: the other brokers cannot be reached.
        """
        request = _Request(table, events)
        with self._line:
            self._waiting.append(request)
        with self._lock:
            if not request.done:
                self._match_waiting(request)
        if request.error is not None:
            raise request.error
        assert request.result is not None
        return request.result

    def match_once(self, interests: Bytes, events: Bytes) -> Bools:
        """Match events with interests of no table, shape (events, interests).

        Events that are refused match nothing.

        Raises:
            RefusedError: the other brokers cannot be reached.
        """
        with self._lock:
            table, chosen = self.new_table(), np.arange(len(interests))
            self.put(table, chosen, interests)
            try:
                answers, _ = self.match(table, events)
                out = np.zeros((len(events), len(interests)), dtype=np.bool_)
                out[:, : answers.shape[1]] = answers[:, : len(interests)]
                return out
            finally:
                self._held.pop(table, None)
                self._at_leisure(
                    lambda: self._all("drop", table=table, own=lambda w: w.drop(table))
                )

    # -- inside -----------------------------------------------------------------------------------

    @staticmethod
    def _raise_for(refused: Bools) -> None:
        raise_for(refused.astype(np.uint8) * np.uint8(Cause.VALUE))

    def _match_waiting(self, first: _Request) -> None:
        """Match a request, and others that wait for the same table."""
        with self._line:
            self._waiting.remove(first)
            batch, count = [first], len(first.rows)
            for request in [*self._waiting]:
                if request.table == first.table and count + len(request.rows) <= BATCH:
                    batch.append(request)
                    count += len(request.rows)
                    self._waiting.remove(request)
        for request in batch:
            # Its client may have been forgotten since it was checked.
            if any(row[CLIENT].tobytes() not in self._keys for row in request.rows):
                request.error = DecodeError("the event's client did not say hello")
        good = [request for request in batch if not request.done]
        if not good:
            return
        try:
            rows = np.concatenate([request.rows for request in good])
            answers, refused = self._ordered(lambda: self._match(first.table, rows))
        except Exception as error:
            for request in good:
                request.error = error
            return
        start = 0
        for request in good:
            at = slice(start, start + len(request.rows))
            request.result, start = (answers[at], refused[at]), at.stop

    def _ordered(self, act: Callable[[], T]) -> T:
        """Call a function that needs the other brokers, again and again until it succeeds.

        Raises:
            RefusedError: it did not succeed in time.
        """
        with self._lock:
            # Once they are away, nobody waits for them any more until they are back.
            patience, pauses = 0.0 if self._is_away else self._patience, iter(PAUSES)
            until = time.monotonic() + patience
            while True:
                try:
                    self._join()
                    done = act()
                except (NetworkError, PeerError) as error:
                    if isinstance(error, PeerError):
                        self._sessions.clear()  # their tables may differ
                    self._part()
                    pause = next(pauses, PAUSES[-1])
                    if self._is_closed or time.monotonic() + pause > until:
                        self._is_away = True
                        raise RefusedError(
                            f"the other brokers cannot be reached: {error}", reason="brokers"
                        ) from None
                    _log.info("an order to the other brokers is repeated: %s", error)
                    time.sleep(pause)
                else:
                    self._is_away = False
                    return done

    def _at_leisure(self, act: Callable[[], object]) -> None:
        """Call a function that needs the other brokers, or let them have everything anew later."""
        if not self._is_joined:
            self._sessions.clear()
            return
        try:
            act()
        except (NetworkError, PeerError) as error:
            _log.info("the other brokers will be told later: %s", error)
            self._part()
            self._sessions.clear()

    def _part(self) -> None:
        """End all connections."""
        self._is_joined = False
        if self._workers is not None:
            self._workers.leave()
            if not self._workers.are_alive:
                self._workers.close()
                self._workers = None
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def _join(self) -> None:
        """Connect with the other brokers, and let them have all interests if they lack some."""
        if self._is_joined:
            return
        if self._workers is None:
            self._workers = Workers(0, self._trio, self._key, self.matcher)
            self._sessions.clear()
        self._attempt = max(self._attempt + 1, int(1000 * time.time()))
        sessions = {}
        for party in FOLLOWERS:
            operator = self._trio.operators[party]
            channel = connect(operator.address, self._identity, operator.pin, seconds=10)
            self._channels[party] = channel
            self._send(party, Order("about"))
            sessions[party] = self._reply(party, channel).session
        anew = sessions != self._sessions
        if anew:
            self._all("reset", own=Workers.reset)
        self._all("join", attempt=self._attempt, own=lambda w: w.join(self._attempt))
        if anew:
            self._restore()
        self._sessions, self._is_joined = sessions, True

    def _restore(self) -> None:
        """Give the other brokers all clients and interests, and let them forget all others."""
        hellos = [*self._hellos.values()]
        for rows in _pieces(len(hellos)):
            if self._greet(hellos[rows]).any():
                _log.error("brokers refuse hellos that they had taken: their keys are others")
        for table, held in self._held.items():
            own = [pair for pair in held.items() if pair[1][CLIENT] in self._keys]
            chosen = np.array([lane for lane, _ in own], dtype=np.int64)
            content = [row for _, row in own]
            for rows in _pieces(len(chosen)):
                self._put(table, chosen[rows], _rows(content[rows]))
        self._all("prune", own=lambda _: None)

    # -- orders -----------------------------------------------------------------------------------

    def _greet(self, hellos: Sequence[Sequence[bytes]]) -> Bools:
        own = [three[0] for three in hellos]
        orders = {
            party: Order("greet", rows=_rows([three[party] for three in hellos]))
            for party in FOLLOWERS
        }
        marks, refused = self._give(orders, lambda w: w.greet(own))
        return _marked(marks, len(own)) | refused

    def _verify(self, interests: Bytes) -> Bools:
        orders = {party: Order("verify", rows=sealed_part(party, interests)) for party in FOLLOWERS}
        own = sealed_part(0, interests)
        marks, refused = self._give(orders, lambda w: w.verify(own))
        return _marked(marks, len(own)) | refused

    def _put(self, table: int, chosen: Index, interests: Bytes) -> None:
        for rows in _pieces(len(interests)):
            heads = np.ascontiguousarray(interests[rows, :HEAD_BYTES])
            lanes = chosen[rows]
            orders = {party: Order("missing", rows=heads) for party in FOLLOWERS}
            marks, _ = self._give(orders, lambda _: None)
            store = {}
            for party in FOLLOWERS:
                missing = _marked({party: marks[party]}, len(heads))
                if missing.any():
                    parts = sealed_part(party, interests[rows][missing])
                    store[party] = Order("store", rows=parts)
            if store:
                self._give(store, lambda _: None)
            put = Order("put", table=table, rows=heads, lanes=lane_bytes(lanes))
            own = partial(Workers.put, table=table, chosen=lanes, parts=heads)
            _, refused = self._give(dict.fromkeys(FOLLOWERS, put), own)
            if refused.any():
                _log.warning("%d interests are held differently, and match nothing", refused.sum())

    def _remove(self, table: int, chosen: Index, heads: Bytes) -> None:
        for rows in _pieces(len(heads)):
            lanes = chosen[rows]
            order = Order("remove", table=table, rows=heads[rows], lanes=lane_bytes(lanes))
            own = partial(Workers.remove, table=table, chosen=lanes)
            self._give(dict.fromkeys(FOLLOWERS, order), own)

    def _match(self, table: int, events: Bytes) -> tuple[Bools, Bools]:
        orders = {
            party: Order("match", table=table, rows=sealed_part(party, events))
            for party in FOLLOWERS
        }
        own = sealed_part(0, events)
        _, (answers, refused) = self._give(orders, lambda w: w.match(table, own))
        return answers, refused

    def _all(self, verb: Any, *, own: Callable[[Workers], T], **fields: Any) -> T:
        """Give both brokers the same order while this one's workers do the same."""
        return self._give(dict.fromkeys(FOLLOWERS, Order(verb, **fields)), own)[1]

    def _give(
        self, orders: dict[int, Order], own: Callable[[Workers], T]
    ) -> tuple[dict[int, bytes], T]:
        """Give orders while this broker's workers do something; return marks and the result.

        Raises:
            NetworkError: a broker or a connection has ended, or failed in another way.
            PeerError: the brokers do not stand at the same place.
        """
        assert self._workers is not None
        for party, order in orders.items():
            self._send(party, order)
        replies = [self._threads.submit(self._reply, one, self._channels[one]) for one in orders]
        try:
            result = own(self._workers)
        except BaseException:
            self._part()
            raise
        return {
            party: one.result().marks for party, one in zip(orders, replies, strict=True)
        }, result

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
            if reply.anew or not reply.again:
                self._sessions.clear()  # all get everything anew
            if self._workers is not None:
                self._workers.leave()  # they may wait for it
            raise NetworkError(f"broker {party}: {reply.error}")
        return reply


def _pieces(count: int) -> Iterator[slice]:
    """Yield slices of the rows of orders."""
    for start in range(0, count, MOST_ROWS):
        yield slice(start, start + MOST_ROWS)


def _rows(content: Sequence[bytes]) -> Bytes:
    """Return texts of equal length as rows, shape (count, bytes)."""
    if not content:
        return np.zeros((0, 0), dtype=np.uint8)
    return np.frombuffer(bytearray(b"".join(content)), np.uint8).reshape(len(content), -1)


def _marked(marks: dict[int, bytes], count: int) -> Bools:
    """Return the rows that any broker marked, shape (count,)."""
    out = np.zeros(count, dtype=np.bool_)
    for packed in marks.values():
        out |= np.unpackbits(np.frombuffer(packed, np.uint8), count=count).view(np.bool_)
    return out
