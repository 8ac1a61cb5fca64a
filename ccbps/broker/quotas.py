"""What a client may use: how often it sends, how much it stores, how long it keeps others waiting.

Rates are token buckets: a bucket fills at a rate up to a burst, and what a client uses is taken
out. The time that the broker's processor spends on its requests is measured, and taken out
afterwards; so a bucket may be in debt, and the client waits until it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ccbps.errors import ParameterError, RefusedError

_RATES = ("rate", "burst", "cost", "patience")


@dataclass(frozen=True)
class Quota:
    """Of each client.

    Attributes:
        rate: publications and changes of subscriptions, a second.
        burst: so many at once.
        cost: seconds of the processor, a second.
        patience: seconds of the processor at once.
        subscriptions: at most.
        stored_bytes: of its subscriptions, together; one with a topic counts 4 KiB more.
        message_bytes: of a publication or a subscription.
        queue: deliveries that wait for it, and publications of it that wait for payloads.
        queue_bytes: of deliveries that wait for it; a single one may be larger.

    Example:
        >>> from ccbps.broker import Quota
        >>> Quota(rate=10.0).queue
        10000
    """

    rate: float = 1000.0
    burst: float = 2000.0
    cost: float = 0.5
    patience: float = 5.0
    subscriptions: int = 1000
    stored_bytes: int = 1 << 26
    message_bytes: int = 1 << 20
    queue: int = 10_000
    queue_bytes: int = 1 << 26

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            kinds = (int, float) if name in _RATES else (int,)
            if isinstance(value, bool) or not isinstance(value, kinds) or not value > 0:
                raise ParameterError(f"{name} must be a number above 0, got {value!r}")


class Account:
    """What one client has used."""

    def __init__(self, quota: Quota, clock: Callable[[], float]) -> None:
        self._quota = quota
        self._often = _Bucket(quota.rate, quota.burst, clock)
        self._long = _Bucket(quota.cost, quota.patience, clock)

    def enter(self, size: int) -> None:
        """Take one message of this size.

        Raises:
            RefusedError: too large, too often, or the ones before took too long.
        """
        self.require_size(size)
        self.continue_()
        if not self._often.take(1.0):
            raise RefusedError(
                f"more than {self._quota.rate} messages a second: send later", reason="rate"
            )

    def require_size(self, size: int) -> None:
        """Raises RefusedError if a message is too large."""
        if size > self._quota.message_bytes:
            raise RefusedError(
                f"a message of {size} bytes, of at most {self._quota.message_bytes}", reason="size"
            )

    def continue_(self) -> None:
        """Take a request that is no message.

        Raises:
            RefusedError: the ones before took too long.
        """
        if self._long.level() <= 0:
            raise RefusedError(
                f"the broker's time for this client is used up, {self._quota.cost} s a second: "
                "send later",
                reason="cost",
            )

    def spend(self, seconds: float) -> None:
        """Charge the processor's time."""
        self._long.take(seconds, debt=True)


class _Bucket:
    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._level, self._then = burst, clock()

    def level(self) -> float:
        now = self._clock()
        self._level = min(self._burst, self._level + (now - self._then) * self._rate)
        self._then = now
        return self._level

    def take(self, amount: float, *, debt: bool = False) -> bool:
        there = debt or self.level() >= amount
        if there:
            self._level -= amount
        return there
