"""Requests that wait for their turn, in a queue for each client.

Clients have their turns one after another, however many requests each of them has. So a client
waits for one request of each other client, or one batch (`following`), and not for all requests
that others have sent before.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from threading import Condition
from typing import Final, NamedTuple

from ccbps.errors import RefusedError

WAITING: Final = 2000
WAITING_BYTES: Final = 1 << 24
"""Number and bytes of a client's requests that may wait for their turn."""
TOTAL_BYTES: Final = 1 << 28
"""Bytes of all requests that wait; clients whose requests wait share them equally."""


class Request(NamedTuple):
    """A request of a client, or of the service itself.

    Attributes:
        client: name of the client.
        verb: verb of the request.
        content: content of its message.
    """

    client: str
    verb: str
    content: bytes


@dataclass
class _Queue:
    """Requests of one client, and their bytes."""

    requests: deque[Request] = field(default_factory=deque)
    size: int = 0


class FairQueue:
    """Requests of all clients. Several threads may use it."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._queues: dict[str, _Queue] = {}
        # Clients whose requests wait, in the order of their turns.
        self._turns: deque[str] = deque()
        self._is_open = True

    def __len__(self) -> int:
        with self._changed:
            return sum(len(queue.requests) for queue in self._queues.values())

    def put(self, request: Request, *, bounded: bool = True) -> None:
        """Let a request wait. It is dropped after `close`.

        Args:
            request: the request.
            bounded: whether it is refused if the client has no more room.

        Raises:
            RefusedError: too many requests of the client wait, or too large ones.
        """
        client, size = request.client, len(request.content)
        with self._changed:
            if not self._is_open:
                return
            queue = self._queues.get(client)
            if bounded and queue is not None:
                share = min(WAITING_BYTES, TOTAL_BYTES // len(self._queues))
                if len(queue.requests) >= WAITING or queue.size + size > share:
                    raise RefusedError("too many requests wait: send later", reason="rate")
            if queue is None:
                queue = self._queues[client] = _Queue()
                self._turns.append(client)
            queue.requests.append(request)
            queue.size += size
            self._changed.notify()

    def get(self) -> Request | None:
        """Return the first request of the client whose turn it is, None once all is over."""
        with self._changed:
            while not self._turns:
                if not self._is_open:
                    return None
                self._changed.wait()
            client = self._turns.popleft()
            queue = self._queues[client]
            request = queue.requests.popleft()
            queue.size -= len(request.content)
            if queue.requests:
                self._turns.append(client)
            else:
                del self._queues[client]
            return request

    def following(self, request: Request, most: int) -> list[Request]:
        """Return the client's next requests, as long as they have the same verb.

        Args:
            request: result of `get`.
            most: largest number of requests.
        """
        out: list[Request] = []
        with self._changed:
            queue = self._queues.get(request.client)
            while queue is not None and queue.requests and len(out) < most:
                if queue.requests[0].verb != request.verb:
                    break
                out.append(queue.requests.popleft())
                queue.size -= len(out[-1].content)
            if queue is not None and not queue.requests:
                del self._queues[request.client]
                self._turns.remove(request.client)
        return out

    def forget(self, client: str) -> None:
        """Drop the requests of a client."""
        with self._changed:
            if self._queues.pop(client, None) is not None:
                self._turns.remove(client)

    def close(self) -> None:
        """Let `get` return None once no request waits."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()
