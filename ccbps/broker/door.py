"""The door of a broker: it lets requests in, charges clients for them, and counts refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, TypeVar

from ccbps.access import Presentation
from ccbps.broker.mailbox import Mailboxes
from ccbps.broker.messages import Hellos, Payloads, Publication, SealedGrants, Subscription
from ccbps.broker.metrics import Metrics
from ccbps.errors import CcbpsError, RefusedError

_Sent = TypeVar("_Sent", Subscription, Publication, Payloads, Hellos, SealedGrants, Presentation)


class Door:
    """The door.

    Args:
        boxes: queues and accounts of the clients.
        lock: lock that guards them.
        metrics: counters.
        timer: source of seconds of processor time that the calling thread used.
    """

    def __init__(
        self, boxes: Mailboxes, lock: RLock, metrics: Metrics, timer: Callable[[], float]
    ) -> None:
        self._boxes, self._lock, self._metrics, self._timer = boxes, lock, metrics, timer

    @contextmanager
    def reading(self, client: str, kind: type[_Sent], sent: Any) -> Iterator[tuple[_Sent, bytes]]:
        """Let a client's message in (`serving`), and yield it as a record and as bytes."""
        message = sent.to_bytes() if isinstance(sent, kind) else sent
        with self.serving(client, len(message)):
            yield sent if isinstance(sent, kind) else kind.from_bytes(message), message

    @contextmanager
    def serving(self, client: str, size: int | None = None) -> Iterator[None]:
        """Let a client's request in, charge it for the time that it takes, and count refusals.

        Args:
            client: name of the client.
            size: bytes of the request's message; None if it has none.

        Raises:
            RefusedError: the client was revoked, or its quota is used up.
        """
        with self.counting(), self.charging(client):
            self.enter(client, size)
            yield

    def enter(self, client: str, size: int | None) -> None:
        """Let a request in; see `serving`."""
        with self._lock:
            self._boxes.admitted(client).account.enter(size)

    @contextmanager
    def charging(self, client: str) -> Iterator[None]:
        """Charge a client that is known for the time that the block takes."""
        start = self._timer()
        try:
            yield
        finally:
            with self._lock:
                if client in self._boxes:
                    self._boxes[client].account.spend(self._timer() - start)

    @contextmanager
    def noting(self, results: list[Any], place: int) -> Iterator[None]:
        """Count a refusal, and put it into results."""
        try:
            with self.counting():
                yield
        except CcbpsError as error:
            results[place] = error

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count refusals."""
        try:
            yield
        except CcbpsError as error:
            reason = error.reason if isinstance(error, RefusedError) else type(error).__name__
            self._metrics.add("refused", reason=reason)
            raise
