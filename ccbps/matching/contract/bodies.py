"""What encoders write, and what they draw: sizes of bodies, and randomness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ccbps.arrays import Bytes, Randomness


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of bodies, and of what is shared.

    Attributes:
        event: of an event.
        interest: of an interest.
        randomness: shared in one piece of one round; 0 where nothing is.
        pieces: of a message, each with randomness of its own.
        event_per_request: what an event grows by for every request that was answered, in schemes
            with sessions.
    """

    event: int
    interest: int
    randomness: int = 0
    pieces: int = 1
    event_per_request: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Draw:
    """Randomness for one call of an encoder.

    Attributes:
        fresh: ``fresh(n)`` gives n uniform bytes that nobody else has.
        shared: ``shared(start, stop, piece)`` gives rows of `Sizes.randomness` uniform bytes that
            publisher and subscriber have in common: of one piece of messages start .. stop - 1.
            Each is to be asked for once, a message's first piece first.
        tags: ``tags(start, stop)`` gives 7 public bytes of each of these messages, the same on both
            sides; to be asked for after the first piece.
    """

    fresh: Randomness
    shared: Callable[[int, int, int], Bytes]
    tags: Callable[[int, int], Bytes]

    def rows(self, start: int, stop: int) -> Bytes:
        """Shared randomness of messages start .. stop - 1 that have one piece."""
        return self.shared(start, stop, 0)
