"""Worker processes of one broker, each with some of the lanes and a ring of its own.

Worker w keeps lanes w, w + W, w + 2 W, ... of all tables and works with workers w of the other two
brokers. A worker ends with the process that started it.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any, Final

import numpy as np

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

JOIN_SECONDS: Final = 4.0
"""Seconds in which the workers of three brokers must have joined."""


class _Worker(Confined):
    """A worker, within its process."""

    def __init__(self, party: int, number: int, trio: Trio, key: OperatorKey, matcher: Any) -> None:
        host, _ = trio.place(party)
        self._meeting = partial(
            meeting, party, key, trio.operators, matcher.digest, worker=number + 1, host=host
        )
        self._broker: Party = matcher.broker(party, broker_key(key), None)
        self._tables: dict[int, ShareTable] = {}
        self._hellos: dict[bytes, bytes] = {}
        self._met, self._sent = ExitStack(), 0
        self._ring: Ring | None = None

    def leave(self) -> None:
        """End the ring, also while another thread evaluates over it."""
        ring = self._ring
        if ring is not None:
            ring.close()

    def join(self, attempt: int) -> None:
        """Make a ring with the workers of the other two brokers."""
        self._broker.join(None)
        self._sent, self._ring = self.sent_bytes(), None
        self._met.close()
        self._ring = self._met.enter_context(self._meeting(seconds=JOIN_SECONDS, attempt=attempt))
        self._broker.join(self._ring)

    def sent_bytes(self) -> int:
        """Return the bytes of masked sums that were handed to all rings."""
        return self._sent + (0 if self._ring is None else self._ring.sent_bytes)

    def reset(self) -> None:
        """Forget all tables and clients."""
        self._tables.clear()
        self.forget([*self._hellos])

    def greet(self, hellos: Sequence[bytes]) -> list[bool]:
        """Take hellos of clients, and tell of each whether it is refused."""
        refused = []
        for hello in hellos:
            known = self._hellos.get(hello[:CLIENT_BYTES])
            refused.append(known is not None and known != hello)
            if known is None:
                try:
                    self._hellos[self._broker.greet(hello)] = hello
                except DecodeError:
                    refused[-1] = True
        return refused

    def forget(self, clients: Sequence[bytes]) -> None:
        """Forget clients."""
        for client in clients:
            self._broker.forget(client)
            self._hellos.pop(client, None)

    def verify(self, parts: Bytes) -> Bools:
        """Return the interests that are refused."""
        return self._broker.verify(parts)

    def put(self, table: int, chosen: Index, parts: Bytes) -> Bools:
        """Put interests into lanes, and return those that are refused."""
        if not len(parts):
            return np.zeros(0, dtype=np.bool_)
        if table not in self._tables:
            self._tables[table] = self._broker.new_table()
        lanes = self._broker.subscribe(parts, table=self._tables[table], chosen=chosen, sealed=True)
        return np.asarray(lanes < 0)

    def remove(self, table: int, chosen: Index) -> None:
        """Remove the interests of lanes."""
        if table in self._tables:
            self._tables[table].remove(chosen)
            if not len(self._tables[table]):
                del self._tables[table]

    def drop(self, table: int) -> None:
        """Forget a table."""
        self._tables.pop(table, None)

    def match(self, table: int, parts: Bytes, wanted: bool) -> tuple[Bytes | None, int, Bools]:
        """Match events with a table.

        Returns:
            answers, packed, shape (events, bytes), None if they are not wanted; the number of
            lanes; and the refused events, shape (events,).
        """
        held = self._tables.get(table)
        answers, refused = self._broker.publish(
            parts, tables=[self._broker.new_table() if held is None else held], sealed=True
        )
        packed = np.packbits(answers, axis=1) if wanted else None
        return packed, answers.shape[1], refused


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
    orders: SimpleQueue[tuple[str, tuple[Any, ...]]] = SimpleQueue()

    def read() -> None:
        # In a thread of its own: the ring can be ended while the worker waits for others.
        try:
            while True:
                order = line.recv()
                if order[0] == "leave":
                    worker.leave()
                else:
                    orders.put(order)
        finally:
            os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        verb, arguments = orders.get()
        try:
            line.send((True, getattr(worker, verb)(*arguments)))
        except CcbpsError as error:
            # Others may wait for this one.
            worker.leave()
            line.send((False, type(error).__name__, str(error)))


_KINDS: Final = {kind.__name__: kind for kind in (DecodeError, NetworkError, PeerError)}


class Workers(Confined):
    """All workers of a broker, from the process that started them.

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
        self._sending, self._is_broken = threading.Lock(), False
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
        """Whether all worker processes run."""
        return not self._is_broken and all(process.is_alive() for process in self._processes)

    def leave(self) -> None:
        """End all rings, also while workers wait for others."""
        for line in self._lines:
            with suppress(NetworkError):
                self._send(line, "leave")

    def join(self, attempt: int) -> None:
        """Connect the workers with those of the other two brokers.

        Raises:
            NetworkError: not all three brokers came in time.
            PeerError: another broker has other parameters, or another attempt.
        """
        self._all("join", attempt)

    def sent_bytes(self) -> int:
        """Return the bytes of masked sums that all workers handed to their rings."""
        return sum(self._all("sent_bytes"))

    def reset(self) -> None:
        """Forget all tables."""
        self._all("reset")

    def greet(self, hellos: Sequence[bytes]) -> Bools:
        """Take hellos of clients, and return those that are refused, shape (count,).

        Hellos that are known change nothing.
        """
        return np.asarray(np.any(self._all("greet", [*hellos]), axis=0), dtype=np.bool_)

    def forget(self, clients: Sequence[bytes]) -> None:
        """Forget clients."""
        self._all("forget", [*clients])

    def verify(self, parts: Bytes) -> Bools:
        """Return the interests that are refused, shape (count,).

        Raises:
            NetworkError: a connection broke.
        """
        self._send(self._lines[0], "verify", parts)
        (refused,) = self._results(self._lines[:1])
        return np.asarray(refused)

    def put(self, table: int, chosen: Index, parts: Bytes) -> Bools:
        """Put interests into lanes, and return those that are refused, shape (count,).

        Raises:
            NetworkError: a connection broke.
            PeerError: the brokers do not stand at the same place.
        """
        count, refused = len(self._lines), np.zeros(len(parts), dtype=np.bool_)
        rows = [np.flatnonzero(chosen % count == number) for number in range(count)]
        for line, own in zip(self._lines, rows, strict=True):
            self._send(line, "put", table, chosen[own] // count, parts[own])
        for own, result in zip(rows, self._results(), strict=True):
            refused[own] = result
        return refused

    def remove(self, table: int, chosen: Index) -> None:
        """Remove the interests of lanes."""
        count = len(self._lines)
        for number, line in enumerate(self._lines):
            self._send(line, "remove", table, chosen[chosen % count == number] // count)
        self._results()

    def drop(self, table: int) -> None:
        """Forget a table."""
        self._all("drop", table)

    def match(self, table: int, parts: Bytes) -> tuple[Bools, Bools]:
        """Match events with a table.

        Args:
            table: number of the table.
            parts: this broker's parts of events, shape (events, bytes).

        Returns:
            answers, shape (events, lanes); and the refused events, shape (events,).

        Raises:
            NetworkError: a connection broke.
            PeerError: the brokers do not stand at the same place.
        """
        results = self._all("match", table, parts, True)
        count, width = len(results), max(lanes for _, lanes, _ in results)
        out = np.zeros((len(parts), width * count), dtype=np.bool_)
        for number, (packed, lanes, _) in enumerate(results):
            own = np.unpackbits(packed, axis=1, count=lanes)
            out[:, number::count][:, :lanes] = own.view(np.bool_)
        return out, np.asarray(np.any([refused for *_, refused in results], axis=0))

    def help_to_match(self, table: int, parts: Bytes) -> Bools:
        """Match as `match` does, but return the refused events only."""
        results = self._all("match", table, parts, False)
        return np.asarray(np.any([refused for *_, refused in results], axis=0))

    def _all(self, verb: str, *arguments: Any) -> list[Any]:
        """Let all workers do the same, and return their results."""
        for line in self._lines:
            self._send(line, verb, *arguments)
        return self._results()

    def _send(self, line: Connection, verb: str, *arguments: Any) -> None:
        """Give an order to a worker; any thread may do it.

        Raises:
            NetworkError: the worker has ended. The others' results may be left: start all anew.
        """
        try:
            with self._sending:
                line.send((verb, arguments))
        except OSError:
            self._is_broken = True
            raise NetworkError("a worker of this broker has ended") from None

    def _results(self, lines: Sequence[Connection] = ()) -> list[Any]:
        """Return a result of each worker, or of some.

        Raises:
            CcbpsError: the error of one of them, once all have come to their end.
        """
        results: dict[int, Any] = {}
        failed: tuple[str, str] | None = None
        pending = [*enumerate(lines or self._lines)]
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
                elif failed is None:
                    failed = str(result[0]), str(result[1])
                    self.leave()  # others wait for the one that failed
        if failed:
            raise _KINDS.get(failed[0], NetworkError)(failed[1])
        return [results[number] for number in sorted(results)]
