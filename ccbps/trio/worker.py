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
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Index
from ccbps.errors import CcbpsError, DecodeError, NetworkError, PeerError
from ccbps.keys.plain_key import OperatorKey
from ccbps.keys.secret import Confined
from ccbps.matching.contract.matcher import Matcher
from ccbps.network import Channel, Credentials, Server, connect
from ccbps.shares.clients import CLIENT_BYTES
from ccbps.shares.operators import broker_key, identity
from ccbps.shares.party import Party
from ccbps.shares.replicated import PARTIES
from ccbps.shares.ring import Ring
from ccbps.shares.table import ShareTable
from ccbps.trio.members import Trio

JOIN_SECONDS: Final = 10.0
"""Seconds in which the workers of three brokers must have joined."""
FRAME_SECONDS: Final = 20.0
"""Seconds in which a frame from another broker must come."""
_ATTEMPT_BYTES: Final = 8


class _Worker(Confined):
    """A worker, within its process."""

    def __init__(self, party: int, number: int, trio: Trio, key: OperatorKey, matcher: Any) -> None:
        self._party, self._number, self._trio = party, number, trio
        self._identity = identity(key)
        self._broker: Party = matcher.broker(party, broker_key(key), None)
        self._context = matcher.digest
        self._tables: dict[int, ShareTable] = {}
        self._hellos: dict[bytes, bytes] = {}
        self._ring: Ring | None = None
        self._sent = 0
        self._changed = threading.Condition()
        self._attempt, self._arrived = -1, dict[int, Channel]()
        self._over: dict[int, threading.Event] = {}
        above = trio.operators[(party + 1) % PARTIES]
        credentials = Credentials(self._identity, (above.pin,))
        host, port = trio.place(party, number + 1)
        self._server = Server(
            credentials,
            self._keep,
            host=host,
            port=port,
            frame_seconds=FRAME_SECONDS,
            title=f"worker {number} of broker {party}",
        )

    def _keep(self, channel: Channel) -> None:
        """Hold a channel from the broker above until its attempt is over."""
        attempt = int.from_bytes(channel.receive(_ATTEMPT_BYTES), "big")
        over = threading.Event()
        with self._changed:
            if attempt < self._attempt or attempt in self._arrived:
                return
            self._arrived[attempt], self._over[attempt] = channel, over
            self._changed.notify_all()
        over.wait()

    def leave(self) -> None:
        """End the ring, also while another thread evaluates over it."""
        ring = self._ring
        if ring is not None:
            ring.close()

    def join(self, attempt: int) -> None:
        """Make a ring with the workers of the other two brokers."""
        self.leave()
        self._broker.join(None)
        self._sent, self._ring = self.sent_bytes(), None
        with self._changed:
            self._attempt = attempt
            for old in [number for number in self._arrived if number < attempt]:
                del self._arrived[old]
                self._over.pop(old).set()
        until = time.monotonic() + JOIN_SECONDS
        address = self._trio.address(self._party - 1, self._number + 1)
        pin = self._trio.operators[self._party - 1].pin
        lower = connect(address, self._identity, pin, seconds=JOIN_SECONDS)
        lower.send(attempt.to_bytes(_ATTEMPT_BYTES, "big"))
        with self._changed:
            while attempt not in self._arrived:
                if not self._changed.wait(max(0.0, until - time.monotonic())):
                    lower.close()
                    raise NetworkError(f"broker {(self._party + 1) % PARTIES} did not connect")
            upper = self._arrived[attempt]
        try:
            self._ring = Ring(
                self._party, lower, upper, self._context, worker=self._number, attempt=attempt
            )
        except BaseException:
            lower.close()
            upper.close()
            raise
        self._broker.join(self._ring)

    def sent_bytes(self) -> int:
        """Return the bytes of masked sums that were handed to all rings."""
        return self._sent + (0 if self._ring is None else self._ring.sent_bytes)

    def reset(self) -> None:
        """Forget all tables."""
        self._tables.clear()

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

    def match(self, table: int, parts: Bytes) -> tuple[Bools, Bools]:
        """Match events with a table; return answers and the refused events."""
        held = self._tables.get(table)
        return self._broker.publish(
            parts, table=self._broker.new_table() if held is None else held, sealed=True
        )


def _run(line: Connection, settings: tuple[Any, ...]) -> None:
    """Serve the process that started this one, until it ends."""
    party, number, trio, key, matcher = settings
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        worker = _Worker(party, number, trio, OperatorKey(key), matcher)
    except CcbpsError as error:
        line.send((False, type(error).__name__, str(error)))
        return
    line.send((True, None))
    orders: SimpleQueue[tuple[str, tuple[Any, ...]] | None] = SimpleQueue()

    def read() -> None:
        # In a thread of its own: the ring can be ended while the worker waits for others.
        with suppress(EOFError, OSError):
            while True:
                order = line.recv()
                if order[0] == "leave":
                    worker.leave()
                else:
                    orders.put(order)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while (order := orders.get()) is not None:
        verb, arguments = order
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

    Raises:
        NetworkError: a worker cannot listen at its port.
    """

    def __init__(self, party: int, trio: Trio, key: OperatorKey, matcher: Matcher) -> None:
        context = multiprocessing.get_context("spawn")
        self._lines: list[Connection] = []
        self._processes: list[Any] = []
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
        try:
            self._results()
        except BaseException:
            self.close()
            raise

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
        return all(process.is_alive() for process in self._processes)

    def leave(self) -> None:
        """End all rings, also while workers wait for others."""
        for line in self._lines:
            with suppress(OSError):
                line.send(("leave", ()))

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
        self._lines[0].send(("verify", (parts,)))
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
            line.send(("put", (table, chosen[own] // count, parts[own])))
        for own, result in zip(rows, self._results(), strict=True):
            refused[own] = result
        return refused

    def remove(self, table: int, chosen: Index) -> None:
        """Remove the interests of lanes."""
        count = len(self._lines)
        for number, line in enumerate(self._lines):
            line.send(("remove", (table, chosen[chosen % count == number] // count)))
        self._results()

    def drop(self, table: int) -> None:
        """Forget a table."""
        self._all("drop", table)

    def match(self, table: int, parts: Bytes) -> tuple[Bools, Bools]:
        """Match events with a table.

        Returns:
            answers, shape (events, lanes); and the refused events, shape (events,).

        Raises:
            NetworkError: a connection broke.
            PeerError: the brokers do not stand at the same place.
        """
        results = self._all("match", table, parts)
        count, width = len(results), max(answers.shape[1] for answers, _ in results)
        out = np.zeros((len(parts), width * count), dtype=np.bool_)
        refused = np.zeros(len(parts), dtype=np.bool_)
        for number, (answers, wrong) in enumerate(results):
            out[:, number::count][:, : answers.shape[1]] = answers
            refused |= wrong
        return out, refused

    def _all(self, verb: str, *arguments: Any) -> list[Any]:
        """Let all workers do the same, and return their results."""
        for line in self._lines:
            try:
                line.send((verb, arguments))
            except OSError:
                raise NetworkError("a worker of this broker has ended") from None
        return self._results()

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
                    good, result = False, ["NetworkError", "a worker of this broker has ended"]
                if good:
                    results[number] = result[0]
                elif failed is None:
                    failed = str(result[0]), str(result[1])
                    self.leave()  # others wait for the one that failed
        if failed:
            raise _KINDS.get(failed[0], NetworkError)(failed[1])
        return [results[number] for number in sorted(results)]
