"""Meeting of the workers of equal number of three operators, over TLS.

Worker w of an operator listens at the operator's port + w, and connects to worker w of the operator
before it. An operator's name may stand for several machines: only one of them listens at that port.
The first worker waits for the others. A worker that is started again, as Spark does after a
failure, finds its place anew, and draws fresh masks. The workers have met once all three have drawn
a number together; a meeting that breaks before is tried again. So a waiting worker also watches its
open connections: if one worker began anew unnoticed, all would wait for one another.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TypeVar

from ccbps.errors import KeyMismatchError, NetworkError, PeerError
from ccbps.keys.plain_key import PARTIES, OperatorKey
from ccbps.keys.secret import Confined
from ccbps.network.channel import Channel, Server, connect, split_address
from ccbps.network.identity import Credentials, Identity
from ccbps.shares.operators import Operator, broker_key, identity
from ccbps.shares.ring import Ring

T = TypeVar("T")

AGAIN_SECONDS: Final = 0.2
"""Mean seconds between two tries."""
POLL_SECONDS: Final = 0.01
"""Seconds between two looks at connections."""
TRY_SECONDS: Final = 10
"""Most seconds that a neighbour may take to let this worker in."""
FRAME_SECONDS: Final = 600
"""Most seconds that a frame of a neighbour may take. A lost machine is noticed earlier."""


class _Patient(Confined):
    """A channel whose frames may take longer than its handshake."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def send(self, *parts: Any) -> None:
        self._channel.send(*parts, seconds=FRAME_SECONDS)

    def receive(self, most: int) -> bytearray:
        return self._channel.receive(most, FRAME_SECONDS)

    def close(self) -> None:
        self._channel.close()


@contextmanager
def meeting(
    party: int,
    key: OperatorKey,
    operators: Sequence[Operator],
    context: bytes,
    *,
    worker: int,
    host: str,
    seconds: float,
    attempt: int = 0,
) -> Iterator[Ring]:
    """Yield the connections of one worker to its twins, and close them at the end.

    Args:
        party: number of this operator's broker.
        key: key of this operator.
        operators: public sides of operators 0, 1 and 2.
        context: digest of the parameters that the three must agree on, 32 bytes.
        worker: number of this worker.
        host: name or number of this machine to listen at.
        seconds: seconds within which all three must meet.
        attempt: number of the attempt that the three must agree on, if the caller counts attempts.

    Raises:
        KeyMismatchError: the key is not that of operator `party`, or a twin has another one.
        PeerError: a twin has another context or attempt.
        NetworkError: they did not come in time, or nobody can listen at the port.
    """
    if broker_key(key).public != operators[party].public:
        raise KeyMismatchError(
            f"the key is not that of operator {party}: its public key is another one than "
            "operators= says"
        )
    own, below = identity(key), operators[party - 1]
    above = operators[(party + 1) % PARTIES]
    until = time.monotonic() + seconds
    arrived: queue.SimpleQueue[Channel] = queue.SimpleQueue()
    over = threading.Event()

    def keep(channel: Channel) -> None:
        arrived.put(channel)
        over.wait()  # the channel closes when this function returns

    def listen() -> Server:
        port = split_address(operators[party].address)[1] + worker
        return Server(Credentials(own, (above.pin,)), keep, host=host, port=port)

    def meet() -> Ring:
        with ExitStack() as links:
            lower = links.enter_context(_reach(below, worker, own))
            upper = links.enter_context(_arrival(arrived, lower, until))
            # From here on all three read, and so notice who goes away.
            lower.send(b"")
            _wait(lower, until, lambda: not upper.is_quiet())
            upper.receive(0)
            both = _Patient(lower), _Patient(upper)
            ring = Ring(party, *both, context, worker=worker, attempt=attempt)
            ring.coin()
            links.pop_all()  # the ring closes them
            return ring

    server = _patiently(listen, until)  # a process that ends just now may hold the port
    try:
        with _patiently(meet, until) as ring:
            yield ring
    finally:
        over.set()
        server.close()


def _patiently(act: Callable[[], T], until: float) -> T:
    """Call a function again while the network fails, until a time of the monotonic clock."""
    while True:
        try:
            return act()
        except PeerError:
            raise
        except NetworkError as error:
            if time.monotonic() >= until:
                raise NetworkError(
                    f"the other two brokers did not come in time: {error}. All three run the same "
                    "job at once, with as many tasks"
                ) from None
        # Neighbours that failed together do not come together.
        time.sleep(AGAIN_SECONDS * (0.5 + os.urandom(1)[0] / 256))


def _reach(below: Operator, worker: int, own: Identity) -> Channel:
    """Connect to the worker of the operator below."""
    host, port = split_address(below.address)
    name = f"[{host}]" if ":" in host else host
    return connect(f"{name}:{port + worker}", own, below.pin, seconds=TRY_SECONDS)


def _arrival(arrived: queue.SimpleQueue[Channel], lower: Channel, until: float) -> Channel:
    """Return the newest connection of the operator above, which has given up all older ones."""
    _wait(lower, until, lambda: not arrived.empty())
    channel = arrived.get()
    while not arrived.empty():
        channel.close()
        channel = arrived.get()
    return channel


def _wait(lower: Channel, until: float, come: Callable[[], bool]) -> None:
    """Wait for the operator above, as long as the operator below stays connected.

    Raises:
        NetworkError: it does not come in time, or the one below goes away.
    """
    while not come():
        if not lower.is_quiet():
            raise NetworkError("the broker below went away")
        if time.monotonic() >= until:
            raise NetworkError("the broker above does not connect")
        time.sleep(POLL_SECONDS)
