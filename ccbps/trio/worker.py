"""Worker processes of one broker, each with some of the lanes and a ring of its own.

Worker w keeps lanes w, w + W, w + 2 W, ... of all tables and works with workers w of the other two
brokers. A worker ends with the process that started it.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from hashlib import sha256
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any, Final

import numpy as np
from msgspec import structs

from ccbps.arrays import Bools, Bytes, Index
from ccbps.errors import CcbpsError, DecodeError, NetworkError, PeerError
from ccbps.keys.plain_key import OperatorKey
from ccbps.keys.secret import Confined
from ccbps.matching.contract.matcher import Matcher
from ccbps.shares.clients import CLIENT_BYTES
from ccbps.shares.meeting import meeting
from ccbps.shares.operators import broker_key
from ccbps.shares.party import Party
from ccbps.shares.ring import Ring
from ccbps.shares.table import ShareTable
from ccbps.trio.members import Trio
from ccbps.trio.orders import Order, lane_bytes

_LEAVE: Final = "leave"
"""Order to end the ring, obeyed at once."""
JOIN_SECONDS: Final = 4.0
"""Seconds within which the workers of three brokers must join."""


class _Worker(Confined):
    """A worker, within its process."""

    def __init__(self, party: int, number: int, trio: Trio, key: OperatorKey, matcher: Any) -> None:
        host, _ = trio.place(party)
        self._party = party
        self._meeting = partial(
            meeting, party, key, trio.operators, matcher.digest, worker=number + 1, host=host
        )
        self._broker: Party = matcher.broker(
            party, broker_key(key), None, authority=trio.hello(party)
        )
        self._tables: dict[int, ShareTable] = {}
        self._hellos: dict[bytes, bytes] = {}
        self._met, self._sent = ExitStack(), 0
        self._ring: Ring | None = None

    def leave(self) -> None:
        """End the ring, also while another thread evaluates over it."""
        ring = self._ring
        if ring is not None:
            ring.close()

    def _join(self, attempt: int) -> None:
        """Make a ring with the workers of the other two brokers."""
        self._broker.join(None)
        self._sent, self._ring = self.sent_bytes(), None
        self._met.close()
        self._ring = self._met.enter_context(self._meeting(seconds=JOIN_SECONDS, attempt=attempt))
        self._broker.join(self._ring)

    def sent_bytes(self) -> int:
        """Return the bytes of masked sums that were handed to all rings."""
        return self._sent + (0 if self._ring is None else self._ring.sent_bytes)

    def obey(self, order: Order) -> Any:
        """Obey an order, and return its result for `Workers`: mostly marks of the rows."""
        rows = order.rows
        match order.verb:
            case "reset":
                self._tables.clear()
                self._forget([*self._hellos])
                self._broker.forget_grants()
            case "join":
                self._join(order.attempt)
            case "greet":
                return [self._is_refused(row.tobytes()) for row in rows]
            case "forget":
                self._forget([row.tobytes() for row in rows])
            case "examine" if len(rows):
                return self._broker.verify_grants(rows)
            case "grant" if len(rows):
                return self._broker.grant(rows)
            case "verify" if len(rows):
                return self._broker.verify(rows)
            case "put" if len(rows):
                return self._put(order)
            case "remove":
                self._remove(order.table, order.chosen)
            case "drop":
                self._tables.pop(order.table, None)
            case "digests":
                return self._digests(order.tables)
            case "match":
                return self._match(order.tables, rows)
        return np.zeros(len(rows), dtype=np.bool_)

    def _is_refused(self, hello: bytes) -> bool:
        """Take a hello of a client, and tell whether it is refused."""
        known = self._hellos.get(hello[:CLIENT_BYTES])
        if known is not None:
            return known != hello
        try:
            self._hellos[self._broker.greet(hello)] = hello
        except DecodeError:
            return True
        return False

    def _forget(self, clients: Sequence[bytes]) -> None:
        for client in clients:
            self._broker.forget(client)
            self._hellos.pop(client, None)

    def _put(self, order: Order) -> Bools:
        """Put interests into lanes, and return those that are refused."""
        if order.table not in self._tables:
            self._tables[order.table] = self._broker.new_table()
        lanes = self._broker.subscribe(
            order.rows,
            table=self._tables[order.table],
            chosen=order.chosen,
            sealed=True,
            verified=order.verified,
        )
        return np.asarray(lanes < 0)

    def _remove(self, table: int, chosen: Index) -> None:
        if table in self._tables:
            self._tables[table].remove(chosen)
            if not len(self._tables[table]):
                del self._tables[table]

    def _digests(self, tables: Sequence[int]) -> list[bytes]:
        """Return a digest of all clients, grants and numbers of tables, and one of each table."""
        numbers = repr(sorted(self._tables)).encode()
        own = sha256(numbers).digest() + self._broker.grants_digest
        state = sha256(own + b"".join(sorted(self._hellos)))
        return [state.digest(), *(self._table(number).digest for number in tables)]

    def _match(self, tables: Sequence[int], parts: Bytes) -> tuple[Bytes | None, list[int], Bools]:
        """Match events with tables.

        Returns:
            answers, packed, shape (events, bytes), None at the brokers that do not need them; the
            lanes of each table; and the refused events, shape (events,).
        """
        held = [self._table(number) for number in tables]
        answers, refused = self._broker.publish(parts, tables=held, sealed=True)
        packed = None if self._party else np.packbits(answers, axis=1)
        return packed, [table.used for table in held], refused

    def _table(self, number: int) -> ShareTable:
        held = self._tables.get(number)
        return self._broker.new_table() if held is None else held


def _run(line: Connection, settings: tuple[Any, ...]) -> None:
    """Serve the process that started this one, until it ends."""
    party, number, trio, key, matcher = settings
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    worker = _Worker(party, number, trio, OperatorKey(key), matcher)
    orders: SimpleQueue[Order | None] = SimpleQueue()

    def read() -> None:
        # In a thread of its own: the ring can be ended while the worker waits for others.
        try:
            while True:
                order = line.recv()
                if order == _LEAVE:
                    worker.leave()
                else:
                    orders.put(order)
        finally:
            os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        order, start = orders.get(), time.process_time()
        try:
            done = worker.sent_bytes() if order is None else worker.obey(order)
            line.send((True, done, time.process_time() - start))
        except CcbpsError as error:
            # Others may wait for this one.
            worker.leave()
            line.send((False, type(error).__name__, str(error)))


_KINDS: Final = {kind.__name__: kind for kind in (DecodeError, NetworkError, PeerError)}


class Workers(Confined):
    """All workers of a broker, from the process that started them.

    Attributes:
        seconds: seconds of processor time that the workers have used for orders.

    Args:
        party: number of the broker.
        trio: the three brokers.
        key: key of the broker's operator.
        matcher: the matcher.
    """

    def __init__(self, party: int, trio: Trio, key: OperatorKey, matcher: Matcher) -> None:
        context = multiprocessing.get_context("spawn")
        self._lines: list[Connection] = []
        self._processes: list[Any] = []
        self._sending, self._is_broken, self.seconds = threading.Lock(), False, 0.0
        for number in range(trio.workers):
            line, other = context.Pipe()
            settings = (party, number, trio, key.export_secret(), matcher)
            process = context.Process(
                target=_run, args=(other, settings), daemon=True, name=f"ccbps worker {number}"
            )
            process.start()
            other.close()
            self._lines.append(line)
            self._processes.append(process)

    def close(self) -> None:
        """End all workers."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
        for line in self._lines:
            line.close()

    @property
    def are_alive(self) -> bool:
        """True if all worker processes run."""
        return not self._is_broken and all(process.is_alive() for process in self._processes)

    def leave(self) -> None:
        """End all rings, also while workers wait for others."""
        for line in self._lines:
            with suppress(NetworkError):
                self._send(line, _LEAVE)

    def sent_bytes(self) -> int:
        """Return the bytes that all workers handed to their rings."""
        return sum(self._all(None))

    def obey(self, order: Order) -> Bools:
        """Let the workers obey an order, and return the rows that they mark, shape (count,).

        Raises:
            NetworkError: a connection broke, or not all three brokers came in time.
            PeerError: the brokers are at different positions, or have different parameters.
        """
        marks, count = np.zeros(len(order.rows), dtype=np.bool_), len(self._lines)
        chosen = order.chosen
        places: list[Any] = [slice(None)] * count
        if order.verb in ("put", "remove"):
            places = [np.flatnonzero(chosen % count == number) for number in range(count)]
        elif order.verb == "verify":
            places = [slice(number, None, count) for number in range(count)]
        for line, at in zip(self._lines, places, strict=True):
            lanes = lane_bytes(chosen[at] // count) if order.lanes else b""
            self._send(line, structs.replace(order, rows=order.rows[at], lanes=lanes))
        for at, own in zip(places, self._results(), strict=True):
            marks[at] |= own
        return marks

    def digests(self, order: Order) -> list[bytes]:
        """Return a digest of clients and grants, and one of each table of an order."""
        each = zip(*self._all(order), strict=True)
        return [sha256(b"".join(digests)).digest() for digests in each]

    def match(self, order: Order) -> tuple[list[Bools], Bools]:
        """Match events, the rows of an order, with its tables.

        Returns:
            at broker 0 answers by table, each of shape (events, lanes), at the others nothing; and
            the refused events, shape (events,).

        Raises:
            NetworkError: a connection broke.
            PeerError: the brokers are at different positions.
        """
        results, count = self._all(order), len(self._lines)
        refused = np.asarray(np.any([own for *_, own in results], axis=0), dtype=np.bool_)
        widths = [max(lanes) for lanes in zip(*(lanes for _, lanes, _ in results), strict=True)]
        events = len(order.rows)
        out = [np.zeros((events, width * count), dtype=np.bool_) for width in widths]
        for number, (packed, lanes, _) in enumerate(results):
            if packed is None:
                return [], refused
            own, start = np.unpackbits(packed, axis=1, count=sum(lanes)).view(np.bool_), 0
            for table, width in zip(out, lanes, strict=True):
                table[:, number::count][:, :width] = own[:, start : start + width]
                start += width
        return out, refused

    def _all(self, order: Order | None) -> list[Any]:
        """Give all workers the same order, and return their results."""
        for line in self._lines:
            self._send(line, order)
        return self._results()

    def _send(self, line: Connection, order: Order | str | None) -> None:
        """Give an order to a worker; any thread may do it.

        Raises:
            NetworkError: the worker has ended. The others' results may be left: start all anew.
        """
        try:
            with self._sending:
                line.send(order)
        except OSError:
            self._is_broken = True
            raise NetworkError("a worker of this broker has ended") from None

    def _results(self) -> list[Any]:
        """Return the result of each worker.

        Raises:
            CcbpsError: the error of one of them, once all have ended the order.
        """
        results: dict[int, Any] = {}
        failed: tuple[str, str] | None = None
        pending = [*enumerate(self._lines)]
        while pending:
            ready = wait([line for _, line in pending])
            for number, line in [pair for pair in pending if pair[1] in ready]:
                pending.remove((number, line))
                try:
                    good, *result = line.recv()
                except (EOFError, OSError):
                    self._is_broken = True
                    good, result = False, ["NetworkError", "a worker of this broker has ended"]
                if good:
                    results[number] = result[0]
                    self.seconds += result[1]
                elif failed is None:
                    failed = str(result[0]), str(result[1])
                    self.leave()  # others wait for the one that failed
        if failed:
            raise _KINDS.get(failed[0], NetworkError)(failed[1])
        return [results[number] for number in sorted(results)]
