"""Numbers of received messages, by which each counts once, in any order of arrival.

The latest number and a window of those below it are remembered, one bit each. A number below the
window counts as received.
Source: RFC 4303, section 3.4.3 (anti-replay window).
"""

from __future__ import annotations

from typing import Final

WINDOW: Final = 1 << 12
"""Number of numbers that are remembered."""


class SeenNumbers:
    """The received numbers of one sender.

    Example:
        >>> from ccbps.overlay.seen_numbers import SeenNumbers
        >>> seen = SeenNumbers()
        >>> [seen.take(number) for number in (5, 7, 6, 5, 10_000, 8)]
        [True, True, True, False, True, False]
    """

    __slots__ = ("_bits", "_latest")

    def __init__(self) -> None:
        self._latest, self._bits = -1, 0

    def is_new(self, number: int) -> bool:
        """Tell whether a number, 0 or more, would be taken."""
        below = self._latest - number
        return below < 0 or (below < WINDOW and not self._bits >> below & 1)

    def take(self, number: int) -> bool:
        """Take note of a number; tell whether it is new."""
        if not self.is_new(number):
            return False
        ahead = number - self._latest
        if ahead > 0:
            kept = self._bits & ((1 << max(WINDOW - ahead, 0)) - 1)
            self._bits, self._latest = kept << min(ahead, WINDOW), number
        self._bits |= 1 << self._latest - number
        return True
