"""Broker 0: it gives orders to the other two, and can restore their tables.

All messages reach broker 0 first, sealed for the others. It decides on the order of interests and
events and on lanes, so the three always do the same. An order that fails, since a broker or a
connection ended, is given again over new connections, with new masks. Failed changes of tables are
repeated first, before anything else is done. A broker that lost its tables gets all interests
again; it has its parts of them in its file. If brokers were at different positions, digests tell
which tables differ.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import count
from typing import Any, Final, TypeVar

import numpy as np

from ccbps.arrays import Bools, Bytes, Index
from ccbps.errors import DecodeError, NetworkError, PeerError, RefusedError
from ccbps.keys.plain_key import PARTIES, OperatorKey
from ccbps.keys.secret import Closable
from ccbps.shares.clients import (
    CLIENT,
    CLIENT_BYTES,
    HEAD_BYTES,
    SharedKeys,
    head_causes,
    hello_bytes,
    sealed_bytes,
)
from ccbps.shares.ring import DIGEST_BYTES
from ccbps.trio.granted import Granted
from ccbps.trio.members import Trio
from ccbps.trio.orders import Order, as_rows, pieces
from ccbps.trio.others import FOLLOWERS, Others
from ccbps.wire import Cause, raise_for

T = TypeVar("T")
PATIENCE: Final = 20.0
"""Seconds for which an order is repeated before it is given up."""
PAUSES: Final = (0.02, 0.1, 0.5, 1.0)
"""Seconds before an order is repeated the first, second ... time."""
MOST_LATE: Final = 1 << 12
"""Largest number of changes that wait for the other brokers; above that, they get all anew."""
BATCH: Final = 64
"""Largest number of events that are matched together."""
_log: Final = logging.getLogger(__name__)


@dataclass(eq=False)
class _Request:
    """Events that wait to be matched, and their result."""

    tables: tuple[int, ...]
    rows: Bytes
    result: tuple[list[Bools], Bools] | None = None
    seconds: float = 0.0
    error: Exception | None = None

    @property
    def done(self) -> bool:
        """True if there is a result or an error."""
        return self.result is not None or self.error is not None


class Leader(Closable):
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
        ParameterError: the matcher's brokers do not learn the answers; or the matcher demands
            grants and there is no authority, or the other way round.
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
        self.matcher, self._others = matcher, Others(trio, key, matcher)
        self._authority = trio.authority_name
        self._granted = Granted(matcher, self._authority)
        public = b"".join(operator.public for operator in trio.operators) + self._authority
        self.names = matcher.digest, sha256(public).digest()[:CLIENT_BYTES], 0
        self._patience, self._is_away = patience, False
        self._width = {
            "event": sealed_bytes(HEAD_BYTES + matcher.sizes.event),
            "interest": sealed_bytes(HEAD_BYTES + matcher.sizes.interest),
        }
        self._lock, self._line = threading.RLock(), threading.Lock()
        self._waiting: list[_Request] = []
        self._hellos: dict[bytes, Sequence[bytes]] = {}
        # Of each client that ever said hello, also of those that were forgotten.
        self._owners: dict[bytes, str] = {}
        self._keys: dict[bytes, SharedKeys] = {}
        self._held: dict[int, dict[int, bytes]] = {}
        # Changes that the other brokers may not have made yet, in order.
        self._late: list[Callable[[], object]] = []
        self._table_numbers, self._attempt = count(1), 0
        self._is_closed = False
        self._took, self._spent = 0.0, threading.local()

    def __repr__(self) -> str:
        return f"<Leader of {self.matcher!r}>"

    def close(self) -> None:
        """End all connections and workers."""
        self._is_closed = True
        self._others.leave()
        with self._lock:
            self._others.close()

    def meet(self) -> None:
        """Wait until both other brokers are connected."""
        while not self._is_closed:
            with suppress(RefusedError):
                self._ordered(lambda: None)
                return
            time.sleep(PAUSES[-1])

    @property
    def sent_bytes(self) -> int:
        """Bytes that this broker's workers handed to their rings, without positions."""
        with self._lock:
            return self._others.workers.sent_bytes()

    def with_workers(self, timer: Callable[[], float]) -> Callable[[], float]:
        """Return a timer of the calling thread that includes the workers' time for it."""
        return lambda: timer() + self._worker_seconds

    @property
    def _worker_seconds(self) -> float:
        return float(getattr(self._spent, "seconds", 0.0))

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
        if name == self._authority:
            raise DecodeError("these are the authority's hellos, which says no hello: it grants")
        with self._lock:
            if self._owners.get(name, owner) != owner:
                raise DecodeError("another client has said hello under this name")
            if name in self._hellos:
                if [*self._hellos[name]] != [*hellos]:
                    raise DecodeError("the client has said another hello under this name")
                return name
            if self._ordered(lambda: self._others.greet([hellos])).any():
                self.forget([name])
                raise DecodeError("a hello is not for these brokers, the matcher and epoch")
            self._hellos[name], self._owners[name] = [*hellos], owner
            self._keys[name] = SharedKeys(name, {}, self.matcher.digest)
        return name

    def reserve(self, owner: str, name: bytes) -> None:
        """Reserve a name for its client, which was forgotten."""
        with self._lock:
            self._owners[name] = owner

    def forget(self, clients: Sequence[bytes]) -> None:
        """Forget the keys of clients, whose messages are refused from here on."""
        with self._lock:
            for client in clients:
                self._keys.pop(client, None)
                self._hellos.pop(client, None)
            self._others.lose_verified(clients)
            self._change(lambda: self._others.all("forget", rows=as_rows(clients)))

    def check(self, kind: str, messages: Bytes, owner: str) -> None:
        """Refuse sealed messages that are malformed, or of another client.

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
            if kind == "interest" and self._granted.lacks(name):
                raise DecodeError(Cause.UNGRANTED.text)

    # -- grants -----------------------------------------------------------------------------------

    def check_grants(self, messages: Bytes) -> Bytes:
        """Return those of some sealed grants that are new; errors are those of `Granted.new`."""
        return self._granted.new(messages)

    def verify_grants(self, grants: Bytes) -> None:
        """Refuse grants that are not the authority's, or that come before later ones.

        Args:
            grants: sealed messages that were checked, shape (count, bytes).

        Raises:
            DecodeError: the brokers refuse some of them.
            RefusedError: the other brokers cannot be reached.
        """
        for rows in pieces(len(grants)):
            with self._lock:
                refused = self._ordered(partial(self._others.examine, grants[rows]))
                self._charge(self._took)
            if refused.any():
                raise DecodeError(
                    "the brokers refuse a grant: it was altered, is not of the authority that they "
                    "know, or comes after a later one"
                )

    def put_grants(self, grants: Bytes) -> None:
        """Take grants in place of earlier ones, at all three brokers between the same two orders.

        Brokers that cannot be reached now take them before anything else when they are back.

        Args:
            grants: sealed messages that were verified, shape (count, bytes).
        """
        with self._lock:
            self._granted.put(grants)
            self._change(lambda: self._others.grant(grants))

    # -- interests --------------------------------------------------------------------------------

    def new_table(self) -> int:
        """Return the number of a new table of interests."""
        return next(self._table_numbers)

    def verify(self, interests: Bytes) -> None:
        """Refuse interests that the brokers hold differently.

        Args:
            interests: sealed messages that were checked, shape (count, bytes).

        Raises:
            DecodeError: some were altered on their way, or two brokers got different ones.
            RefusedError: the other brokers cannot be reached, or cannot keep the interests.
        """
        for rows in pieces(len(interests)):
            with self._lock:
                refused = self._ordered(partial(self._others.verify, interests[rows]))
                self._charge(self._took)
            raise_for(refused.astype(np.uint8) * np.uint8(Cause.VALUE))

    def put(self, table: int, chosen: Index, interests: Bytes) -> None:
        """Put interests into lanes of a table.

        If the other brokers cannot be reached, they get the interests later. An interest that they
        refuse, or cannot keep, matches nothing.

        Args:
            table: number of the table.
            chosen: lane of each interest, shape (count,).
            interests: sealed messages that were checked, shape (count, bytes).
        """
        with self._lock:
            # Its client may have been forgotten since it was checked.
            known = self._known(interests)
            chosen, interests = chosen[known], interests[known]
            if not len(chosen):
                return
            held = self._held.setdefault(table, {})
            for lane, row in zip(chosen.tolist(), interests, strict=True):
                held[lane] = row.tobytes()
            self._change(lambda: self._put(table, chosen, interests))

    def remove(self, table: int, chosen: Index) -> None:
        """Remove the interests of lanes; they match nothing from here on."""
        with self._lock:
            held = self._held.get(table, {})
            gone = [lane for lane in chosen.tolist() if lane in held]
            heads = as_rows([held.pop(lane)[:HEAD_BYTES] for lane in gone])
            if not held:
                self._held.pop(table, None)
            if gone:
                self._change(lambda: self._others.remove(table, np.array(gone), heads))

    def match(self, tables: Sequence[int], events: Bytes) -> tuple[list[Bools], Bools]:
        """Match events with tables. Calls of several threads are matched together.

        Args:
            tables: numbers of the tables.
            events: sealed messages that were checked, shape (count, bytes).

        Returns:
            answers by table, each of shape (count, lanes); and the events that are refused, shape
            (count,): those that were altered on their way, differ between two brokers, or are not
            one-hot.

        Raises:
            RefusedError: the other brokers cannot be reached.
        """
        request = _Request((*tables,), events)
        with self._line:
            self._waiting.append(request)
        with self._lock:
            if not request.done:
                self._match_waiting(request)
        self._charge(request.seconds)
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
                (answers,), _ = self.match([table], events)
                out = np.zeros((len(events), len(interests)), dtype=np.bool_)
                out[:, : answers.shape[1]] = answers[:, : len(interests)]
                return out
            finally:
                self._held.pop(table, None)
                self._change(lambda: self._others.all("drop", tables=(table,)))

    # -- inside -----------------------------------------------------------------------------------

    def _known(self, messages: Bytes) -> Bools:
        """Return the messages whose clients have said hello and were not forgotten."""
        return np.array([row[CLIENT].tobytes() in self._keys for row in messages], np.bool_)

    def _charge(self, seconds: float) -> None:
        """Count processor time of workers for the calling thread."""
        self._spent.seconds = self._worker_seconds + seconds

    def _match_waiting(self, first: _Request) -> None:
        """Match a request, and others that wait for the same tables."""
        with self._line:
            self._waiting.remove(first)
            batch, events = [first], len(first.rows)
            for request in [*self._waiting]:
                if request.tables == first.tables and events + len(request.rows) <= BATCH:
                    batch.append(request)
                    events += len(request.rows)
                    self._waiting.remove(request)
        for request in batch:
            # Its client may have been forgotten since it was checked.
            if not self._known(request.rows).all():
                request.error = DecodeError("the event's client did not say hello")
        good = [request for request in batch if not request.done]
        if not good:
            return
        try:
            rows = np.concatenate([request.rows for request in good])
            answers, refused = self._ordered(lambda: self._others.match(first.tables, rows))
        except Exception as error:
            for request in good:
                request.error = error
            return
        start = 0
        for request in good:
            at = slice(start, start + len(request.rows))
            request.result, start = ([own[at] for own in answers], refused[at]), at.stop
            request.seconds = self._took * len(request.rows) / len(rows)

    def _ordered(self, act: Callable[[], T]) -> T:
        """Call a function that needs the other brokers, again and again until it succeeds.

        `_took` is then the processor time of this broker's workers, without that of connecting.

        Raises:
            RefusedError: it did not succeed in time.
        """
        with self._lock:
            # While they are away, no caller waits for them.
            patience, pauses = 0.0 if self._is_away else self._patience, iter(PAUSES)
            until = time.monotonic() + patience
            while True:
                try:
                    self._join()
                    before = self._others.workers.seconds
                    done = act()
                except (NetworkError, PeerError) as error:
                    self._others.part(error)
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
                    self._took = self._others.workers.seconds - before
                    return done

    def _change(self, act: Callable[[], object]) -> None:
        """Give the other brokers a change now, or before anything else when they are back."""
        if not self._others.sessions:
            return  # they get everything
        self._late.append(act)
        if len(self._late) > MOST_LATE:
            self._late.clear()
            self._others.sessions.clear()
        if not self._others.is_joined:
            return
        try:
            self._catch_up()
        except (NetworkError, PeerError) as error:
            _log.info("the other brokers will be told later: %s", error)
            self._others.part(error)

    def _catch_up(self) -> None:
        """Repeat all changes that the other brokers may lack; a second time does no harm."""
        while self._late:
            try:
                self._late[0]()
            except DecodeError as error:
                self._others.sessions.clear()  # it lacks a client: all get everything anew
                raise NetworkError(f"a change was refused: {error}") from None
            del self._late[0]

    def _join(self) -> None:
        """Connect with the other brokers, and send them the state that they lack."""
        if self._others.is_joined:
            return
        others = self._others
        sessions = others.connect()
        anew = sessions != others.sessions
        if anew:
            others.sessions.clear()
            others.all("reset")
        self._attempt = max(self._attempt + 1, int(1000 * time.time()))
        others.all("join", attempt=self._attempt)
        if anew:
            self._restore()
        else:
            self._catch_up()
            if others.may_differ:
                self._mend()
        self._late.clear()
        others.sessions, others.may_differ, others.is_joined = sessions, False, True

    def _restore(self) -> None:
        """Give the other brokers all clients and interests, and delete others there."""
        hellos = [*self._hellos.values()]
        for rows in pieces(len(hellos)):
            if self._others.greet(hellos[rows]).any():
                _log.error("brokers refuse hellos that they had taken: their keys are others")
        self._restore_grants()
        for table in self._held:
            self._put_all(table)
        self._others.all("prune")

    def _restore_grants(self) -> None:
        """Give the other brokers all grants, and forget those that they refuse."""
        grants = self._granted.rows()
        for rows in pieces(len(grants)):
            refused = self._others.examine(grants[rows])
            if refused.any():
                _log.error("brokers 1 and 2 have later grants than %d of those here", refused.sum())
                self._granted.drop(grants[rows][refused])
            self._others.grant(grants[rows][~refused])

    def _put(self, table: int, chosen: Index, interests: Bytes) -> None:
        # Clients may have been forgotten before the other brokers were told.
        known = self._known(interests)
        self._others.put(table, chosen[known], interests[known])

    def _put_all(self, table: int) -> None:
        """Put all interests of a table into their lanes."""
        lanes, content = [*self._held[table]], [*self._held[table].values()]
        for rows in pieces(len(lanes)):
            self._put(table, np.array(lanes[rows]), as_rows(content[rows]))

    def _mend(self) -> None:
        """Give the other brokers anew the tables that differ, or all if necessary."""
        tables = (*self._held,)
        order = Order("digests", tables=tables)
        replies, own = self._others.give([order] * PARTIES, lambda w: w.digests(order))
        others = [replies[party].digests for party in FOLLOWERS]
        differing = [
            place
            for place, digest in enumerate(own)
            if any(other[DIGEST_BYTES * place :][:DIGEST_BYTES] != digest for other in others)
        ]
        _log.info("the brokers hold %d tables differently", len(differing))
        if 0 in differing:  # clients, or the set of tables
            self._others.sessions.clear()
            self._others.all("reset")
            self._restore()
            return
        for place in differing:
            self._others.all("drop", tables=(tables[place - 1],))
            self._put_all(tables[place - 1])
