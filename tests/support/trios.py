"""Three brokers as services on this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ccbps.keys import OperatorKey
from ccbps.shares.operators import Operator
from ccbps.trio import Follower, Leader, Trio
from ccbps.trio.members import WORKERS


def free_ports(count: int) -> list[int]:
    """Return ports that have free ones above them for a few workers."""
    ports: list[int] = []
    while len(ports) < count:
        with ExitStack() as stack:
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
            try:
                for above in range(1, 5):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port + above))
            except OSError:
                continue
            if port + WORKERS < 1 << 16 and all(abs(port - other) > 8 for other in ports):
                ports.append(port)
    return ports


class Parts:
    """What three brokers need: keys, and what they know of one another."""

    def __init__(self, workers: int = 1) -> None:
        self.keys = [OperatorKey.generate() for _ in range(3)]
        pairs = zip(self.keys, free_ports(3), strict=True)
        a, b, c = (Operator.of(key, f"127.0.0.1:{port}") for key, port in pairs)
        self.trio = Trio((a, b, c), workers)
        self.public = a.public, b.public, c.public

    def follower(self, party: int, matcher: Any, **options: Any) -> Follower:
        """Start broker 1 or 2."""
        return Follower(party, self.trio, self.keys[party], matcher, **options)

    def leader(self, matcher: Any, **options: Any) -> Leader:
        """Start broker 0."""
        return Leader(self.trio, self.keys[0], matcher, **options)


@contextmanager
def running(matcher: Any, workers: int = 1) -> Iterator[tuple[Parts, Leader]]:
    """Yield the parts of three brokers that run, and broker 0."""
    parts = Parts(workers)
    with (
        parts.follower(1, matcher),
        parts.follower(2, matcher),
        parts.leader(matcher, patience=30) as leader,
    ):
        yield parts, leader
