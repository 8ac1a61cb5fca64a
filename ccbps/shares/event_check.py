"""Check of a batch of events, which three brokers make while they already evaluate it.

No answer is opened before the check has ended: until then, the brokers send only masked parts of
answers. The check takes five messages, one after another::

    random bytes of a coin
    random bytes of the broker above
    tags of what two brokers share      | sums of the check of one-hot vectors, masked
    rows that differ                    | the same sums, opened
    rows that differ, of all brokers    |

Each broker draws its part of the coin when it has the events, so nobody who knows the coin can
still change them. The keys of the tags and the vectors of the sums derive from the coin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ccbps.arrays import Bools, Bytes
from ccbps.shares.one_hot import one_hot_steps
from ccbps.shares.replicated import Masks
from ccbps.shares.ring import Exchange, Ring, in_bytes, side_by_side

CHECK_MESSAGES: Final = 5
"""Messages of the check, one after another."""


class EventCheck:
    """Check of a batch of events, by one broker.

    Attributes:
        refused: events that two brokers hold differently, or whose vectors are not one-hot, shape
            (count,); None until all three brokers know them.
        coin: random bytes that the brokers drew together for the batch.

    Args:
        ring: connections to the other two brokers.
        common: heads and shares of the events, packed: the share in common with the broker below,
            and with the one above; each of shape (count, bytes).
        broken: events that this broker refuses by itself, shape (count,).
        events: two shares of the events with whole vectors, 0 and 1, shape (count, bits).
        digit_bits: bits of each digit.
    """

    def __init__(
        self,
        ring: Ring,
        common: tuple[Bytes, Bytes],
        broken: Bools,
        events: tuple[Bytes, Bytes],
        digit_bits: Sequence[int],
    ) -> None:
        self._ring, self._common, self._broken = ring, common, broken
        self._events, self._digit_bits = events, digit_bits
        self.refused: Bools | None = None
        self.coin = b""

    def begin(self, masks: Masks) -> Exchange[None]:
        """Begin the check, as a unit of work."""
        self.coin = yield from self._ring.draw()
        steps = one_hot_steps(self._events, self._digit_bits, self.coin, masks, self._broken)
        differ, (sums, _) = yield from side_by_side(
            [self._ring.comparison(self.coin, *self._common, self._broken), in_bytes(steps)]
        )
        self.refused = differ | (sums != 0)

    def good(self, rows: slice) -> Callable[[], Bools | None]:
        """Return a function that marks the events among some that are not refused."""
        return lambda: None if self.refused is None else ~self.refused[rows]
