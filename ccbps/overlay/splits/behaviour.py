"""What brokers of a simulation do, and what came of it.

Source: [Survey] section 8.1: brokers that are honest but curious, that collude, and that drop and
alter messages.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from ccbps.arrays import Bools
from ccbps.errors import ParameterError
from ccbps.overlay.splits.bundles import Bundle
from ccbps.overlay.topology.topology import PhysicalBroker


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What a physical broker does. Without arguments it is honest, and does not look.

    Attributes:
        curious: it keeps what it sees; those who collude put together what they kept.
        drop: the share of its fragments that it does not send on, 0 .. 1.
        alter: the share of its fragments whose bytes it changes, before it splits them or sends
            them on. An enclave's host changes ciphertexts, which their receivers refuse.
        delay: how much later it sends, in units of a link's time.
        crash: the time from which on it does nothing.

    Example:
        >>> from ccbps.overlay import Behaviour
        >>> Behaviour(drop=1.5)
        Traceback (most recent call last):
            ...
        ccbps.errors.ParameterError: drop must be a share of 0 to 1, got 1.5
    """

    curious: bool = False
    drop: float = 0.0
    alter: float = 0.0
    delay: float = 0.0
    crash: float = math.inf

    def __post_init__(self) -> None:
        for name, share in (("drop", self.drop), ("alter", self.alter)):
            if not 0 <= share <= 1:
                raise ParameterError(f"{name} must be a share of 0 to 1, got {share!r}")
        for name, time in (("delay", self.delay), ("crash", self.crash)):
            if not time >= 0:
                raise ParameterError(f"{name} must be a time of at least 0, got {time!r}")


HONEST: Final = Behaviour()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Attributes:
        links: messages from one party to another, by both names.
        intact: of each subscriber, which secrets it has, shape (secrets,).
        wrong: of each subscriber, which secrets it has wrong, and does not know.
        refused: messages of each receiver that an enclave's host altered, so that it noticed.
        views: what each curious broker saw.
        time: when the last message arrived.
    """

    links: Counter[tuple[str, str]] = field(default_factory=Counter)
    intact: dict[str, Bools] = field(default_factory=dict)
    wrong: dict[str, Bools] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    views: dict[PhysicalBroker, list[Bundle]] = field(default_factory=dict)
    time: float = 0.0

    @property
    def messages(self) -> int:
        """Messages that were sent."""
        return self.links.total()

    @property
    def received(self) -> Counter[str]:
        """Messages to each party."""
        counts: Counter[str] = Counter()
        for (_, receiver), count in self.links.items():
            counts[receiver] += count
        return counts
