"""Deliveries on their way to clients: in order, a window of them at a time.

A client says where it is (`Position`): when it comes up, when it misses something, and with each
delivery that it took. What it has not acknowledged is sent again when it asks for it; only so much
is on its way at once, so that neither a client that is slow nor one that asks again and again makes
the service or the MQTT server hold more.
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
"""Of deliveries to a client that it has not acknowledged; a single one may be larger."""
REWIND_SECONDS: Final = 0.5
"""Between two times that a client gets the same deliveries again."""
_POSITION: Final = struct.Struct(">8sq")
POSITION_BYTES: Final = _POSITION.size


class Position(NamedTuple):
    """How far a client is.

    Attributes:
        numbering: `MatchingBroker.numbering`, 8 bytes; zeros if the client knows none.
        sequence: number of the last delivery; -1 for none.
    """

    numbering: bytes = bytes(8)
    sequence: int = -1

    def to_bytes(self) -> bytes:
        """16 bytes."""
        return _POSITION.pack(*self)

    @classmethod
    def from_bytes(cls, message: bytes) -> Position:
        """Raises DecodeError if it is none."""
        if len(message) != POSITION_BYTES:
            raise DecodeError(f"a position has {POSITION_BYTES} bytes, got {len(message)}")
        return cls(*_POSITION.unpack(message))


class _Stream:
    """What is on its way to one client.

    Attributes:
        sent: sequence number of the last delivery.
        flight: sequence numbers and sizes of those that were not acknowledged.
        size: bytes of them.
        rewound: when it was last sent something again.
    """

    def __init__(self) -> None:
        self.sent, self.size, self.rewound = -1, 0, -REWIND_SECONDS
        self.flight: deque[tuple[int, int]] = deque()

    @property
    def room(self) -> int:
        """Deliveries that may follow."""
        return WINDOW - len(self.flight) if self.size < WINDOW_BYTES else 0

    def add(self, sequence: int, size: int) -> None:
        """That one more is on its way."""
        self.sent = sequence
        self.flight.append((sequence, size))
        self.size += size

    def take_off(self, sequence: int) -> None:
        """That the client has all up to this one."""
        while self.flight and self.flight[0][0] <= sequence:
            self.size -= self.flight.popleft()[1]

    def rewind(self, sequence: int) -> None:
        """Go back, or forth, to this one."""
        self.sent, self.size = sequence, 0
        self.flight.clear()


class Outgoing:
    """What is on its way to clients. For one thread."""

    def __init__(
        self,
        broker: MatchingBroker,
        send: Callable[[str, bytes], object],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """
        Args:
            send: takes a client and a message, which is the position before the delivery, and the
                delivery.
            clock: seconds.
        """
        self._broker, self._send, self._clock = broker, send, clock
        self._streams: dict[str, _Stream] = {}

    def push(self, client: str) -> None:
        """Send what has room.

        Raises:
            RefusedError: the client was revoked, or the broker's time for it is used up.
        """
        stream = self._of(client)
        while stream.room:
            wanted = stream.room
            some = self._broker.take(client, wanted, after=stream.sent)
            for delivery in some:
                before = Position(self._broker.numbering, stream.sent).to_bytes()
                message = before + delivery.to_bytes()
                self._send(client, message)
                stream.add(delivery.sequence, len(message))
                if not stream.room:
                    return
            if len(some) < wanted:
                return

    def acknowledge(self, client: str, position: Position) -> None:
        """Forget what a client has, and send what comes next."""
        if position.numbering == self._broker.numbering:
            self._broker.acknowledge(client, position.sequence)
            stream = self._of(client)
            was_full = not stream.room
            stream.take_off(position.sequence)
            if was_full:
                self.push(client)

    def resume(self, client: str, position: Position) -> None:
        """Send what a client does not have.

        Raises:
            RefusedError: it asks too often; or see `push`.
        """
        stream, now = self._of(client), self._clock()
        sequence = position.sequence if position.numbering == self._broker.numbering else -1
        if sequence < stream.sent:
            if now < stream.rewound + REWIND_SECONDS:
                raise RefusedError("deliveries were sent again just now: wait", reason="rate")
            stream.rewound = now
            stream.rewind(sequence)
        self.push(client)

    def _of(self, client: str) -> _Stream:
        stream = self._streams.get(client)
        if stream is None:
            stream = self._streams[client] = _Stream()
        return stream
