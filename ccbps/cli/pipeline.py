"""Send publications without waiting for the receipt of each, in their order.

Each publication on its way names the one before it, and the broker accepts it after that one only
(`Publication.after`). So a publication that the broker refuses for now holds up those behind it,
which are refused, too. All of them are sent again, fewer at once. A publication keeps its number,
and the broker accepts a number once, so sending it again does no harm.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ccbps.broker import Publication, Receipt
from ccbps.errors import RefusedError

if TYPE_CHECKING:
    from ccbps.mqtt import MqttClient

IN_FLIGHT: Final = 64
"""Publications that are on their way at most."""
IN_FLIGHT_BYTES: Final = 1 << 20
"""Bytes of the publications on their way; a single one may be larger."""
PATIENCE: Final = 2.0
"""Seconds until a publication without an answer is sent again."""
FIRST_PAUSE: Final = 0.05
"""Seconds."""
LONGEST_PAUSE: Final = 5.0
"""Seconds."""
_LATER: Final = ("rate", "cost", "queue", "order")
"""Reasons of a broker to refuse a publication for now."""


class Pipeline:
    """Publications on their way to a broker.

    Args:
        client: client that is connected.
        timeout: seconds that the broker may refuse a publication for now; None for any time.
    """

    def __init__(self, client: MqttClient, timeout: float | None) -> None:
        self._client, self._timeout = client, timeout
        self._flight: deque[tuple[Publication, Future[Receipt]]] = deque()
        self._width, self._bytes = IN_FLIGHT, 0
        self._pause, self._deadline = FIRST_PAUSE, float("inf")
        self._waited = False

    def send(self, publications: Iterable[Publication], accepted: Callable[[], object]) -> None:
        """Publish, and return when the broker has accepted all.

        If the broker asks for patience, wait, and say so once.

        Args:
            publications: publications with growing numbers.
            accepted: called for each publication that was accepted, in their order.

        Raises:
            CcbpsError: the broker refuses a publication. It accepts none behind it.
            TimeoutError: there is no answer, or the broker refuses a publication for too long.
        """
        waiting = deque(publications)
        self._flight.clear()
        self._bytes = 0
        while waiting or self._flight:
            while waiting and self._has_room(waiting[0]):
                self._start(waiting.popleft())
            try:
                self._receipt()
            except RefusedError as error:
                if error.reason not in _LATER:
                    raise
                waiting.extendleft(reversed(self._stop()))
                self._wait(error)
            else:
                publication, _ = self._flight.popleft()
                self._bytes -= _size(publication)
                self._width = min(self._width + 1, IN_FLIGHT)
                self._pause, self._deadline = FIRST_PAUSE, float("inf")
                accepted()

    def _has_room(self, publication: Publication) -> bool:
        room = self._bytes + _size(publication) <= IN_FLIGHT_BYTES
        return not self._flight or (room and len(self._flight) < self._width)

    def _start(self, publication: Publication) -> None:
        """Send a publication behind those on their way."""
        before = self._flight[-1][0].number if self._flight else None
        publication = replace(publication, after=before)
        self._flight.append((publication, self._client.publish_later(publication)))
        self._bytes += _size(publication)

    def _receipt(self) -> Receipt:
        """Return the receipt of the first publication on its way."""
        publication, answered = self._flight[0]
        try:
            return answered.result(PATIENCE)
        except FutureTimeoutError:
            return self._client.publish(publication)

    def _stop(self) -> list[Publication]:
        """Take all publications back, once they were answered."""
        publications = [publication for publication, _ in self._flight]
        # Those that get no answer, and are accepted all the same, keep their numbers.
        wait([answered for _, answered in self._flight], PATIENCE)
        self._flight.clear()
        self._bytes = 0
        return publications

    def _wait(self, refusal: RefusedError) -> None:
        """Wait before publications are sent again.

        Raises:
            TimeoutError: the time is over.
        """
        self._width = max(1, self._width // 2)
        now = time.monotonic()
        if self._timeout is not None and self._deadline == float("inf"):
            self._deadline = now + self._timeout
        if now >= self._deadline:
            raise TimeoutError(f"nothing was accepted for {self._timeout:g} s: {refusal}")
        if not self._waited:
            print(f"ccbps: waiting, as the broker asks: {refusal}", file=sys.stderr)
        self._waited = True
        time.sleep(min(self._pause, self._deadline - now))
        self._pause = min(2 * self._pause, LONGEST_PAUSE)


def _size(publication: Publication) -> int:
    """Return the bytes of a publication's messages."""
    own = sum(map(len, publication.events.values()))
    return len(publication.event or b"") + len(publication.payload or b"") + own
