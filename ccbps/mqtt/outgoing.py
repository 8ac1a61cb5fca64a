"""Deliveries on their way to a client: in order, a window of them at a time.

A client tells where it is (`Position`): when it connects, when it misses something, and with each
delivery that it took. Deliveries that it has not acknowledged are sent again when it asks for them.
Only a window of them is on its way at once. So no client, slow or asking again and again, makes the
service or the MQTT server hold more.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final, NamedTuple

from ccbps.broker import MatchingBroker
from ccbps.errors import DecodeError, RefusedError

WINDOW: Final = 256
WINDOW_BYTES: Final = 1 << 20
"""Number and bytes of a client's deliveries that it has not acknowledged; a single delivery may be
larger."""
REWIND_SECONDS: Final = 0.5
"""Seconds between two times that a client gets the same deliveries again."""
_POSITION: Final = struct.Struct(">8sq")
POSITION_BYTES: Final = _POSITION.size


class Position(NamedTuple):
    """The last delivery that a client has.

    Attributes:
        numbering: `MatchingBroker.numbering`, 8 bytes; zeros if the client knows none.
        sequence: sequence number of the delivery; -1 for none.
    """

    numbering: bytes = bytes(8)
    sequence: int = -1

    def to_bytes(self) -> bytes:
        """Return the 16 bytes of the position."""
        return _POSITION.pack(*self)

    @classmethod
    def from_bytes(cls, message: bytes) -> Position:
        """Read what `to_bytes` gave.

        Raises:
            DecodeError: it has another length.
        """
        if len(message) != POSITION_BYTES:
            raise DecodeError(f"a position has {POSITION_BYTES} bytes, got {len(message)}")
        return cls(*_POSITION.unpack(message))


class Outgoing:
    """Deliveries on their way to one client. For one thread."""

    def __init__(
        self,
        broker: MatchingBroker,
        client: str,
        send: Callable[[str, bytes], object],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Prepare to send from the first delivery on.

        Args:
            broker: broker whose deliveries these are.
            client: name of the client.
            send: called with the client and a message, which is the position before a delivery and
                the delivery.
            clock: source of seconds.
        """
        self._broker, self._client, self._send, self._clock = broker, client, send, clock
        # The last delivery that was sent, when some were last sent again, and sequence numbers and
        # sizes of those that were not acknowledged.
        self._sent, self._rewound = -1, -REWIND_SECONDS
        self._flight_bytes = 0
        self._flight: deque[tuple[int, int]] = deque()

    @property
    def _room(self) -> int:
        """Number of deliveries that may follow."""
        return WINDOW - len(self._flight) if self._flight_bytes < WINDOW_BYTES else 0

    def push(self) -> None:
        """Send the deliveries that have room.

        Raises:
            RefusedError: the client was revoked, or the broker's time for it is used up.
        """
        while room := self._room:
            deliveries = self._broker.take(self._client, room, after=self._sent)
            for delivery in deliveries:
                before = Position(self._broker.numbering, self._sent).to_bytes()
                message = before + delivery.to_bytes()
                self._send(self._client, message)
                self._sent = delivery.sequence
                self._flight.append((self._sent, len(message)))
                self._flight_bytes += len(message)
                if not self._room:
                    return
            if len(deliveries) < room:
                return

    def acknowledge(self, position: Position) -> None:
        """Forget the deliveries that the client has, and send the next ones."""
        if position.numbering == self._broker.numbering:
            self._broker.acknowledge(self._client, position.sequence)
            was_full = not self._room
            while self._flight and self._flight[0][0] <= position.sequence:
                self._flight_bytes -= self._flight.popleft()[1]
            if was_full:
                self.push()

    def resume(self, position: Position) -> None:
        """Send the deliveries that the client does not have.

        Raises:
            RefusedError: it asks too often; or see `push`.
        """
        now = self._clock()
        sequence = position.sequence if position.numbering == self._broker.numbering else -1
        if sequence < self._sent:
            if now < self._rewound + REWIND_SECONDS:
                raise RefusedError("deliveries were sent again just now: wait", reason="rate")
            self._rewound, self._sent = now, sequence
            self._flight.clear()
            self._flight_bytes = 0
        self.push()
