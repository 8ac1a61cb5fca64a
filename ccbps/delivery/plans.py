"""Delivery plans: under which keys an event's key is wrapped, and which keys travel with it.

An event's payload is encrypted once, under a key of its own. A plan wraps that key so that the
group, and nobody else, can unwrap it. A wrap may carry fresh keys of groups, too, so that a later
event to the same group needs one wrap. Encryptions are wraps, whatever they carry; the one of the
payload is not counted, and is the same for all strategies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ccbps.arrays import Bytes, Index
from ccbps.delivery.groups import members, require_groups
from ccbps.errors import ParameterError

__all__ = ["Plan", "Strategy", "Wrap", "personal"]


class Wrap(NamedTuple):
    """One encryption.

    Attributes:
        under: the name of the key that it is under.
        carries: names of fresh keys that travel with the event's key.

    Example:
        >>> from ccbps.delivery import Wrap
        >>> Wrap(b"a group").carries
        ()
    """

    under: bytes
    carries: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """How one event reaches one group.

    Attributes:
        wraps: the encryptions.
        fresh: keys that are made for it, by name, each with its subscribers.

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import SimpleCache, pack_groups
        >>> group = pack_groups(np.array([True, False, True, True]))
        >>> plan = SimpleCache(4, capacity=10).plan(group)
        >>> plan.encryptions, list(plan.fresh.values())
        (3, [(0, 2, 3)])
    """

    wraps: tuple[Wrap, ...]
    fresh: dict[bytes, tuple[int, ...]]

    @property
    def encryptions(self) -> int:
        """How many wraps."""
        return len(self.wraps)


def personal(subscriber: int) -> bytes:
    """The name of the key that a subscriber shares with the broker."""
    return b"p" + subscriber.to_bytes(4)


class Strategy(ABC):
    """Plans deliveries, and remembers which keys their receivers have since.

    Attributes:
        subscribers: N, numbered from 0.

    Example:
        >>> from ccbps.delivery import KeyHierarchy, Naive, Strategy
        >>> all(issubclass(kind, Strategy) for kind in (Naive, KeyHierarchy))
        True
    """

    def __init__(self, subscribers: int) -> None:
        """
        Raises:
            ParameterError: not a number of at least 1.
        """
        if type(subscribers) is not int or subscribers < 1:
            raise ParameterError(
                f"subscribers must be a whole number of at least 1, got {subscribers!r}"
            )
        self.subscribers = subscribers

    def plan(self, group: Bytes) -> Plan:
        """The plan for one group; the keys that it hands out are in the cache from now on.

        Args:
            group: packed, shape (subscribers / 8, rounded up), as `pack_groups` makes.

        Raises:
            ShapeError: another shape.
        """
        require_groups(group[None], self.subscribers)
        return self._plan(group)

    def count(self, groups: Bytes) -> Index:
        """Encryptions of many events, one after the other, without their plans: faster.

        Args:
            groups: packed, shape (events, subscribers / 8, rounded up).

        Returns:
            shape (events,).
        """
        require_groups(groups, self.subscribers)
        return self._count(groups)

    @abstractmethod
    def _plan(self, group: Bytes) -> Plan: ...

    @abstractmethod
    def _count(self, groups: Bytes) -> Index: ...

    def _members(self, group: Bytes) -> list[int]:
        return members(group, self.subscribers)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} for {self.subscribers} subscribers>"


def each_member(strategy: Strategy, group: Bytes, carries: tuple[bytes, ...] = ()) -> list[Wrap]:
    """A wrap for each member, under its own key."""
    return [Wrap(personal(one), carries) for one in members(group, strategy.subscribers)]


def as_counts(counts: list[int]) -> Index:
    """Encryptions of events."""
    return np.array(counts, dtype=np.intp)
