"""What does a circuit of relays cost, beside a direct connection?

A client talks to a server on loopback: directly, and through a tunnel over 1, 2 and 3 relays, each
a process of its own. MB/s that the server sends back while the client sends; milliseconds of a
round trip of 100 bytes, and to the first answer on a new connection, at which a circuit is built.
Ratios are to the direct connection of the same run. With --quick few bytes are sent.

    python benchmarks/bench_circuit.py [--quick]
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from circuit_relays import tunnelled
from report import Table, options
from timing import machine


@contextmanager
def echo() -> Iterator[str]:
    """Run a server that sends back what comes; give its address."""

    def serve(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(1 << 16):
            connection.sendall(data)

    def listen() -> None:
        while True:
            threading.Thread(target=serve, args=listening.accept()[:1], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=listen, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def measure(address: str, count: int, size: int) -> list[float]:
    """Return MB/s, and milliseconds of a round trip and of a first one."""
    host, _, port = address.rpartition(":")
    firsts, trips, content = [], [], os.urandom(size)
    for _ in range(10):
        start = time.perf_counter()
        with socket.create_connection((host, int(port)), 60) as connection:
            connection.sendall(bytes(100))
            connection.recv(1000)
            firsts.append(1e3 * (time.perf_counter() - start))
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            start = time.perf_counter()
            connection.sendall(bytes(100))
            connection.recv(1000)
            trips.append(1e3 * (time.perf_counter() - start))
        start, left = time.perf_counter(), size
        threading.Thread(target=connection.sendall, args=(content,), daemon=True).start()
        while left:
            left -= len(connection.recv(1 << 16))
        rate = size / 1e6 / (time.perf_counter() - start)
    return [rate, median(trips), median(firsts)]


def main() -> None:
    given = options(__doc__, quick="few bytes and round trips")
    count, size = (50, 1 << 19) if given.quick else (1000, 1 << 24)
    print(machine())
    table = Table(
        "A circuit beside a direct connection",
        {"MB/s": ".1f", "ratio": ".3f", "trip ms": ".2f", "times": ".1f", "first ms": ".2f"},
    )
    with echo() as address:
        direct = measure(address, count, size)
        table.row("direct", direct[0], 1.0, direct[1], 1.0, direct[2])
        for hops in (1, 2, 3):
            with tunnelled(address, hops) as (tunnel, _):
                rate, trip, first = measure(tunnel.address, count, size)
            table.row(f"{hops} relays", rate, rate / direct[0], trip, trip / direct[1], first)


if __name__ == "__main__":
    main()
