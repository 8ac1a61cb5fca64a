"""Delivery plans: the keys that wrap an event's key, the keys that travel with it, and their names.

An event's payload is encrypted once, under a key of its own. A plan wraps that key so that the
group, and nobody else, can unwrap it. A wrap may also carry new keys of groups, so that a later
event to the same group needs one wrap. The number of encryptions is the number of wraps, whatever
they carry. The encryption of the payload is not counted, since it is the same for all strategies.

The name of a key contains its members. So a key has the same members under every strategy, even
under one that is set up again after a crash. The first byte is the kind of name:

- `p`: number of a subscriber, 4 bytes. It names the key that this subscriber shares with the
  broker.
- `g`: packed group. It names the key of the whole group.
- `s`: numbers of the members, 4 bytes each, the last one repeated. It names the key of a small set.
  All sets of one clustering have names of the same length.
- `h`: level and node, 1 and 4 bytes. It names the key of a node of the binary tree over all
  numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from ccbps.arrays import Bytes, Index
from ccbps.checks import Printable, octets, whole
from ccbps.delivery.groups import check_groups
from ccbps.errors import DecodeError, ParameterError

TAG_BYTES: Final = 8
NO_SNAPSHOT: Final = "not a snapshot of a strategy, or cut off"
_NUMBER: Final = 4


def personal(subscriber: int) -> bytes:
    """Return the name of the key that a subscriber shares with the broker."""
    return b"p" + subscriber.to_bytes(_NUMBER)


def group_name(group: Bytes) -> bytes:
    """Return the name of the key of a whole group."""
    return b"g" + group.tobytes()


def set_name(members: Sequence[int], most: int) -> bytes:
    """Return the name of the key of a small set.

    Args:
        members: subscribers of the set, at least one, in ascending order.
        most: largest number of subscribers of a set.
    """
    padded = [*members, *[members[-1]] * (most - len(members))]
    return b"s" + b"".join([member.to_bytes(_NUMBER) for member in padded])


def node_name(level: int, node: int) -> bytes:
    """Return the name of the key of a node of the tree. Level 0 has the subscribers."""
    return b"h" + level.to_bytes(1) + node.to_bytes(_NUMBER)


def member_mask(name: bytes, subscribers: int) -> int:
    """Return the members of a key: bit i for subscriber i. Numbers from N on are ignored.

    Raises:
        ParameterError: there is no such name, or the key has no member.
    """
    kind, rest, everybody = name[:1], name[1:], (1 << subscribers) - 1
    mask = 0
    if kind == b"g" and len(rest) == -(-subscribers // 8):
        mask = int.from_bytes(rest, "little") & everybody
    elif (kind == b"p" and len(rest) == _NUMBER) or (kind == b"s" and not len(rest) % _NUMBER):
        for at in range(0, len(rest), _NUMBER):
            number = int.from_bytes(rest[at : at + _NUMBER])
            mask |= 1 << number if number < subscribers else 0
    elif kind == b"h" and len(rest) == 1 + _NUMBER and rest[0] <= subscribers.bit_length():
        first = int.from_bytes(rest[1:]) << rest[0]
        if first < subscribers:
            mask = (1 << (1 << rest[0])) - 1 << first & everybody
    if not mask:
        raise ParameterError(f"no key of {subscribers} subscribers has the name {name.hex()}")
    return mask


class Wrap(NamedTuple):
    """An encryption of an event's key.

    Attributes:
        under: name of the key that encrypts.
        carries: names of the new keys that travel with the event's key.

    Example:
        >>> from ccbps.delivery import Wrap
        >>> Wrap(b"a group").carries
        ()
    """

    under: bytes
    carries: tuple[bytes, ...] = ()


Plan: TypeAlias = tuple[Wrap, ...]
"""Wraps that bring one event to one group."""


class Strategy(Printable, ABC):
    """Planner of deliveries, which remembers the keys that receivers have.

    Args:
        subscribers: number N of subscribers, numbered from 0.

    Example:
        >>> from ccbps.delivery import KeyHierarchy, Naive, Strategy
        >>> all(issubclass(kind, Strategy) for kind in (Naive, KeyHierarchy))
        True

    Raises:
        ParameterError: the number of subscribers is not at least 1.
    """

    def __init__(self, subscribers: int) -> None:
        self.subscribers = whole("subscribers", subscribers, 1)
        self._own = [Wrap(personal(number)) for number in range(self.subscribers)]

    def plan(self, group: Bytes) -> Plan:
        """Plan the delivery to one group, and add the new keys that wraps carry to the cache.

        Args:
            group: packed group, shape (subscribers / 8, rounded up), from `pack_groups`.

        Returns:
            wraps that reach each member of the group once.

        Raises:
            ShapeError: the group has another shape.

        Example:
            >>> import numpy as np
            >>> from ccbps.delivery import SimpleCache, pack_groups
            >>> group = pack_groups(np.array([True, False, True, True]))
            >>> cache = SimpleCache(4, capacity=10)
            >>> [len(wrap.carries) for wrap in cache.plan(group)]    # each brings the group's key
            [1, 1, 1]
            >>> [wrap.under[:1] for wrap in cache.plan(group)]       # under the group's key
            [b'g']
        """
        check_groups(group[None], self.subscribers)
        return self._plan(group)

    def count(self, groups: Bytes) -> Index:
        """Count the encryptions of many events, one after the other, faster than by their plans.

        Args:
            groups: packed groups, shape (events, subscribers / 8, rounded up).

        Returns:
            encryptions of each event, shape (events,).

        Raises:
            ShapeError: the groups have another shape.
        """
        check_groups(groups, self.subscribers)
        return self._count(groups)

    def snapshot(self) -> bytes:
        """Save the memory of the keys that receivers have.

        A snapshot contains no key. It is as secret as the groups that the strategy saw.

        Example:
            >>> import numpy as np
            >>> from ccbps.delivery import SimpleCache, pack_groups
            >>> group = pack_groups(np.array([True, False, True, True]))
            >>> before, after = SimpleCache(4, capacity=10), SimpleCache(4, capacity=10)
            >>> len(before.plan(group))
            3
            >>> after.restore(before.snapshot())
            >>> len(after.plan(group))
            1
        """
        content = self._snapshot()
        return self._tag(content) + content

    def restore(self, snapshot: bytes) -> None:
        """Continue from a snapshot.

        Raises:
            DecodeError: it is malformed, or of a strategy with other parameters. Nothing has
                changed then. This detects accidents; `GroupSealer.restore` detects attacks.
        """
        snapshot = octets("snapshot", snapshot)
        tag, content = snapshot[:TAG_BYTES], snapshot[TAG_BYTES:]
        if tag != self._tag(content):
            raise DecodeError(f"not a snapshot of {self!r} with these parameters, or cut off")
        before = self._snapshot()
        try:
            self._restore(content)
        except DecodeError:
            self._restore(before)
            raise

    def _tag(self, snapshot: bytes) -> bytes:
        """Hash the strategy's parameters and a snapshot, to detect one that does not fit."""
        identity = f"{type(self).__name__} {self.subscribers} {self._identity()}\0".encode()
        return blake2b(identity + snapshot, digest_size=TAG_BYTES).digest()

    def _identity(self) -> str:
        """Describe the parameters that a snapshot depends on."""
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

    def forget(self, subscriber: int | None = None) -> None:
        """Drop the keys of a subscriber's groups, or all keys, because they change.

        The next event to such a group then carries its new key, and nobody has to request it. A
        strategy whose keys do not travel with events has nothing to drop.
        """

    def _each(self, members: Iterable[int], carries: tuple[bytes, ...] = ()) -> list[Wrap]:
        """Return a wrap for each member, under the member's own key."""
        if not carries:
            return [self._own[member] for member in members]
        return [Wrap(self._own[member].under, carries) for member in members]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} for {self.subscribers} subscribers>"
