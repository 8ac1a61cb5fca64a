"""Limits of a client: its rate of messages, its storage, and the processor time of its requests.

Rates are token buckets. A bucket fills at a rate up to a burst, and each use takes an amount out.
The processor time of a client's requests is measured and taken out afterwards. So a bucket may be
in debt, and the client waits until it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ccbps.access.rates import Bucket
from ccbps.errors import ParameterError, RefusedError

_RATES = ("rate", "burst", "cost", "patience")


@dataclass(frozen=True)
class Quota:
    """Limits of each client.

    Attributes:
        rate: publications and changes of subscriptions per second.
        burst: publications and changes of subscriptions at once.
        cost: seconds of processor time per second.
        patience: seconds of processor time at once.
        subscriptions: number of subscriptions.
        stored_bytes: bytes of all its subscriptions; each with a topic counts 4 KiB more.
        message_bytes: bytes of a publication or a subscription.
        queue: number of deliveries that wait for it, and of its publications that wait for
            payloads.
        queue_bytes: bytes of deliveries that wait for it; a single delivery may be larger.

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

    def require_size(self, size: int) -> None:
        """Refuse a message that is too large.

        Raises:
            RefusedError: it has more bytes than the quota allows.
        """
        if size > self.message_bytes:
            raise RefusedError(
                f"a message of {size} bytes, of at most {self.message_bytes}", reason="size"
            )


class Account:
    """The use that one client made of its quota."""

    def __init__(self, quota: Quota, clock: Callable[[], float]) -> None:
        self._quota = quota
        self._messages = Bucket(quota.rate, quota.burst, clock)
        self._seconds = Bucket(quota.cost, quota.patience, clock)

    def enter(self, size: int | None) -> None:
        """Let in a message of some bytes, or a request without a message (None).

        Raises:
            RefusedError: it is too large or comes too often, or earlier ones took too long.
        """
        if size is not None:
            self._quota.require_size(size)
        if self._seconds.level() <= 0:
            raise RefusedError(
                f"the broker's time for this client is used up, {self._quota.cost} s a second: "
                "send later",
                reason="cost",
            )
        if size is not None:
            if self._messages.level() < 1:
                raise RefusedError(
                    f"more than {self._quota.rate} messages a second: send later", reason="rate"
                )
            self._messages.take(1)

    def spend(self, seconds: float) -> None:
        """Charge processor time."""
        self._seconds.take(seconds)
