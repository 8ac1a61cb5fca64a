"""Rates: token buckets."""

from __future__ import annotations

from collections.abc import Callable


class Bucket:
    """A token bucket. It is full at first."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        """Make a bucket.

        Args:
            rate: amount that flows in per second.
            burst: largest amount that the bucket holds.
            clock: source of seconds.
        """
        self._rate, self._burst, self._clock = rate, burst, clock
        self._level, self._then = burst, clock()

    def level(self) -> float:
        """Return the amount in the bucket; below 0 if too much was taken."""
        now = self._clock()
        passed = max(0.0, now - self._then)  # a clock that was set back takes nothing away
        self._level = min(self._burst, self._level + passed * self._rate)
        self._then = now
        return self._level

    def take(self, amount: float) -> None:
        """Take an amount, even if the bucket holds less."""
        self._level -= amount

    def debt(self) -> float:
        """Return the seconds until the bucket is not in debt any more, 0 if it is not."""
        return max(0.0, -self.level() / self._rate)
