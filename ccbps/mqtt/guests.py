"""The clients that a service listens to, and those that it does not listen to for a time.

A client that sends too much gets refusals, as many as an honest client that is told to wait would
need. If it goes on, the service unsubscribes from its requests, so that the MQTT server drops them
and they cost the service nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Final

from ccbps.access.rates import Bucket
from ccbps.broker.quotas import Quota

ARRIVALS: Final = 2
"""Requests that may arrive per request that the quota allows, as some are sent again."""
LEAST_ARRIVALS: Final = 1000.0
"""Requests that may arrive in a second, and at once, whatever the quota."""
HELLOS: Final = 20.0
HELLOS_BURST: Final = 100.0
"""First requests of a client that are read per second, and at once."""
PIECE: Final = 1 << 14
"""Bytes of a large request that count as one more request."""
REFUSALS: Final = 100.0
REFUSALS_BURST: Final = 1000.0
"""Refusals that a client may get in a second, and at once."""
NEW_SECONDS: Final = 5.0
"""Most seconds until the arrival of a hello that was sent before the service listened."""
BLOCK_SECONDS: Final = 30.0
"""Seconds for which a client is not listened to."""


@dataclass
class _Guest:
    """A client that came.

    Attributes:
        arrivals: bucket of its requests.
        refusals: bucket of the refusals that it got.
        hellos: bucket of its first requests.
        is_heard: True if the service listens to its requests.
        is_confirmed: True if the server has confirmed the subscription to its requests.
        since: time of that confirmation, in seconds of the clock.
        until: time before which it is not let in, in seconds of the clock.
    """

    arrivals: Bucket
    refusals: Bucket
    hellos: Bucket
    is_heard: bool = False
    is_confirmed: bool = False
    since: float = -math.inf
    until: float = 0.0


class Guests:
    """All clients that came. Several threads may use it.

    Args:
        quota: limits of each client.
        clock: source of seconds.
    """

    def __init__(self, quota: Quota, clock: Callable[[], float] = monotonic) -> None:
        self._quota, self._clock = quota, clock
        self._lock, self._guests = Lock(), dict[str, _Guest]()

    def is_heard(self, client: str) -> bool:
        """Tell whether the service listens to a client."""
        guest = self._guests.get(client)
        return guest is not None and guest.is_heard

    def greets(self, client: str) -> bool:
        """Count a hello; tell whether to read it: its client is not shut out, and sent few."""
        with self._lock:
            guest = self._guest(client)
            if self._clock() < guest.until or guest.hellos.level() < 1:
                return False
            guest.hellos.take(1)
            return True

    def is_outside(self, client: str) -> bool:
        """Tell whether a client may be let in: it is not listened to yet, and not shut out."""
        guest = self._guests.get(client)
        return guest is None or not (guest.is_confirmed or self._clock() < guest.until)

    def let_in(self, client: str) -> None:
        """Listen to a client from now on."""
        with self._lock:
            self._guest(client).is_heard = True

    def confirm(self, client: str) -> None:
        """Note that the server has confirmed that the service listens to a client."""
        with self._lock:
            guest = self._guest(client)
            guest.is_confirmed, guest.since = guest.is_heard, self._clock()

    def is_new(self, client: str) -> bool:
        """Tell whether the service has listened to a client for a few seconds only."""
        guest = self._guests.get(client)
        return guest is not None and self._clock() < guest.since + NEW_SECONDS

    def arrived(self, client: str, size: int) -> bool:
        """Count a request, and tell whether the client may have sent it.

        Args:
            client: name of a client that is listened to.
            size: bytes of the request.
        """
        arrivals = self._guests[client].arrivals
        if arrivals.level() <= 0:
            return False
        arrivals.take(1 + size // PIECE)
        return True

    def refused(self, client: str) -> bool:
        """Count a refusal, and tell whether the client may go on."""
        with self._lock:
            refusals = self._guest(client).refusals
            refusals.take(1)
            return refusals.level() >= 0

    def shut_out(self, client: str) -> bool:
        """Listen to a client no more for a time, and tell whether that is new."""
        now = self._clock()
        with self._lock:
            is_new = now >= self._guest(client).until
            if is_new:
                self._guests[client] = self._new()
                self._guests[client].until = now + BLOCK_SECONDS
            return is_new

    def leave(self, client: str) -> None:
        """Listen to a client no more, until it says hello again."""
        with self._lock:
            guest = self._guest(client)
            guest.is_heard = guest.is_confirmed = False

    def _guest(self, client: str) -> _Guest:
        return self._guests.setdefault(client, self._new())

    def _new(self) -> _Guest:
        rate = max(LEAST_ARRIVALS, ARRIVALS * self._quota.rate)
        burst = max(LEAST_ARRIVALS, ARRIVALS * self._quota.burst)
        return _Guest(
            Bucket(rate, burst, self._clock),
            Bucket(REFUSALS, REFUSALS_BURST, self._clock),
            Bucket(HELLOS, HELLOS_BURST, self._clock),
        )
