"""Three brokers in threads of this process, connected over TLS; and ports for such brokers."""

from __future__ import annotations

import os
import queue
import random
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import numpy as np

from ccbps.arrays import Bytes, Words
from ccbps.keys.plain_key import PARTIES
from ccbps.network import Channel, Credentials, Identity, Server, connect
from ccbps.shares.clients import HEAD_BYTES, Client, part_of
from ccbps.shares.replicated import Shares, Steps

Three: TypeAlias = tuple[Bytes, Bytes, Bytes]
"""Messages for brokers 0, 1 and 2."""


def run_together(brokers: Sequence[Steps]) -> list[Shares]:
    """Run three brokers in step in one thread, and return what each returns."""
    sent = [next(broker) for broker in brokers]
    while True:
        done: list[Shares] = []
        following = []
        for number, broker in enumerate(brokers):
            try:
                following.append(broker.send(sent[(number + 1) % PARTIES]))
            except StopIteration as stop:
                done.append(stop.value)
        if done:
            return done
        sent = following


@contextmanager
def channels() -> Iterator[list[tuple[Channel, Channel]]]:
    """Yield each broker's channels to the one before it and from the one behind it."""
    identities = [Identity.generate() for _ in range(3)]
    certificates = [identity.certificate() for identity in identities]
    arrived: list[queue.SimpleQueue[Channel]] = [queue.SimpleQueue() for _ in range(3)]
    done = threading.Event()

    def serving(party: int) -> Callable[[Channel], None]:
        def serve(channel: Channel) -> None:
            arrived[party].put(channel)
            done.wait()

        return serve

    servers = [
        Server(Credentials(identities[i], (certificates[(i + 1) % 3],)), serving(i))
        for i in range(3)
    ]
    try:
        lower = [
            connect(servers[i - 1].address, identities[i], certificates[i - 1]) for i in range(3)
        ]
        yield [(lower[i], arrived[i].get()) for i in range(3)]
    finally:
        done.set()
        for server in servers:
            server.close()


def together(act: Callable[[int, Channel, Channel], Any]) -> list[Any]:
    """Run a function for each broker in a thread, and return results or errors."""
    results: list[Any] = [None] * 3
    with channels() as pairs:

        def run(party: int) -> None:
            try:
                results[party] = act(party, *pairs[party])
            except Exception as error:
                results[party] = error
                for channel in pairs[party]:
                    channel.close()

        threads = [threading.Thread(target=run, args=(party,)) for party in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return results


GIVEN: deque[int] = deque(maxlen=200)
"""Ports of which somebody may still make use."""


def free_ports(count: int) -> int:
    """Return the first of several ports that follow one another, and that nobody uses now.

    Each process of a test run has ports of its own, and no port is given twice in a short time:
    between a call and its use, another call would find the same ports free.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    own = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % workers
    width = 10_000 // workers
    while True:
        # Below those that systems give to connections.
        first = 20_000 + own * width + random.randrange(width - count)
        ports = range(first, first + count)
        if not {*ports}.isdisjoint(GIVEN):
            continue
        with ExitStack() as taken:
            try:
                for port in ports:
                    taken.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            GIVEN.extend(ports)
            return first


def share(client: Client, kind: str, bits: Bytes, heads: Bytes | None = None) -> Three:
    """Return the messages of a client for brokers 0, 1 and 2; bits are 0 and 1, (count, bits)."""
    packed = np.packbits(bits, axis=1, bitorder="little")
    heads = client.heads(kind, len(bits)) if heads is None else heads
    packed ^= client.mask(kind, heads, packed.shape[1])
    if bits.shape[1] % 8:
        packed[:, -1] &= np.uint8((1 << bits.shape[1] % 8) - 1)
    messages = np.concatenate([heads, packed], axis=1)
    assert heads.shape[1] == HEAD_BYTES
    return part_of(0, messages).copy(), messages, messages.copy()


def recorded(brokers: Sequence[Steps]) -> tuple[list[Shares], list[list[Words]]]:
    """Run three brokers in step; return what each returns, and what each received."""
    seen: list[list[Words]] = [[], [], []]

    def watched(number: int, steps: Steps) -> Steps:
        sent = next(steps)
        while True:
            arrived = yield sent
            seen[number].append(arrived.copy())
            try:
                sent = steps.send(arrived)
            except StopIteration as stop:
                done: Shares = stop.value
                return done

    return run_together([watched(*pair) for pair in enumerate(brokers)]), seen
