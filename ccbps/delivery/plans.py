"""Delivery plans: under which keys an event's key is wrapped, and which keys travel with it.

An event's payload is encrypted once, under a key of its own. A plan wraps that key so that the
group, and nobody else, can unwrap it. A wrap may carry fresh keys of groups, too, so that a later
event to the same group needs one wrap. Encryptions are wraps, whatever they carry; the one of the
payload is not counted, and is the same for all strategies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np

from ccbps.arrays import Bytes, Index
from ccbps.ciphers.payloads import as_bytes
from ccbps.delivery.groups import members, require_groups
from ccbps.delivery.key_cache import NO_SNAPSHOT
from ccbps.delivery.names import personal
from ccbps.errors import DecodeError, ParameterError

TAG_BYTES: Final = 8


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
                f"subscribers must be a whole number, at least 1, got {subscribers!r}"
            )
        self.subscribers = subscribers
        self._own = [Wrap(personal(one)) for one in range(subscribers)]

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

    def snapshot(self) -> bytes:
        """Which keys the receivers have, as far as the strategy remembers; no key. Secret like the
        groups that it saw.

        Example:
            >>> import numpy as np
            >>> from ccbps.delivery import SimpleCache, pack_groups
            >>> group = pack_groups(np.array([True, False, True, True]))
            >>> before, after = SimpleCache(4, capacity=10), SimpleCache(4, capacity=10)
            >>> before.plan(group).encryptions
            3
            >>> after.restore(before.snapshot())
            >>> after.plan(group).encryptions
            1
        """
        found = self._snapshot()
        return self._tag(found) + found

    def restore(self, snapshot: bytes) -> None:
        """Go on from a snapshot.

        Raises:
            DecodeError: malformed, or of a strategy with other parameters; nothing has changed. The
                check finds accidents; `GroupSealer.restore` refuses what an attacker changed.
        """
        (snapshot,) = as_bytes("snapshot", [snapshot])
        tag, found = snapshot[:TAG_BYTES], snapshot[TAG_BYTES:]
        if tag != self._tag(found):
            raise DecodeError(f"not a snapshot of {self!r} with these parameters, or cut off")
        before = self._snapshot()
        try:
            self._restore(found)
        except DecodeError:
            self._restore(before)
            raise

    def _tag(self, snapshot: bytes) -> bytes:
        """Says which strategy a snapshot is of, and that it is whole."""
        identity = f"{type(self).__name__} {self.subscribers} {self._identity()}\0".encode()
        return blake2b(identity + snapshot, digest_size=TAG_BYTES).digest()

    def _identity(self) -> str:
        """Parameters that a snapshot depends on."""
        return ""

    def _snapshot(self) -> bytes:
        return b""

    def _restore(self, snapshot: bytes) -> None:
        if snapshot:
            raise DecodeError(NO_SNAPSHOT)

    @abstractmethod
    def _plan(self, group: Bytes) -> Plan: ...

    @abstractmethod
    def _count(self, groups: Bytes) -> Index: ...

    def forget(self, subscriber: int | None = None) -> None:  # noqa: B027  (nothing, for some)
        """Drop the keys of a subscriber's groups, or all keys, since they are made anew.

        A group that comes again then gets its new key with the event; nobody has to ask for it.
        Where no keys travel with events, there is nothing to drop.
        """

    def _members(self, group: Bytes) -> list[int]:
        return members(group, self.subscribers)

    def _each(self, subscribers: Iterable[int], carries: tuple[bytes, ...] = ()) -> list[Wrap]:
        """A wrap for each of them, under its own key."""
        if not carries:
            return [self._own[one] for one in subscribers]
        return [Wrap(self._own[one].under, carries) for one in subscribers]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} for {self.subscribers} subscribers>"


def as_counts(counts: list[int]) -> Index:
    """Encryptions of events."""
    return np.array(counts, dtype=np.intp)
