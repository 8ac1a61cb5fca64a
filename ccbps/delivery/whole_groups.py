"""Strategies that cache keys of whole groups: none, simple, and build-up.

Source: [OP01] sections 2, 4.1 and 4.2.
"""

from __future__ import annotations

import numpy as np

from ccbps.arrays import Bytes, Index, Words
from ccbps.delivery.groups import group_sizes
from ccbps.delivery.key_cache import NO_SNAPSHOT, Eviction, KeyCache
from ccbps.delivery.names import group_name
from ccbps.delivery.plans import Plan, Strategy, Wrap, as_counts
from ccbps.errors import DecodeError


def restore_groups(cache: KeyCache, snapshot: bytes, subscribers: int) -> None:
    """Hold the names of whole groups that a snapshot says.

    Raises:
        DecodeError: malformed.
    """
    cache.restore(snapshot)
    width = 1 + -(-subscribers // 8)
    if any(len(name) != width or name[:1] != b"g" for name in cache.names()):
        raise DecodeError(NO_SNAPSHOT)


class Naive(Strategy):
    """No group keys: a wrap for each member.

    Attributes:
        subscribers: N.

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import Naive, pack_groups
        >>> groups = pack_groups(np.array([[True, False, True, True], [False, True, False, False]]))
        >>> Naive(4).count(groups)
        array([3, 1])
    """

    def _plan(self, group: Bytes) -> Plan:
        return Plan((*self._each(self._members(group)),), {})

    def _count(self, groups: Bytes) -> Index:
        return group_sizes(groups)


class SimpleCache(Strategy):
    """A key for each group in the cache: one wrap for those, for others one for each member.

    Attributes:
        subscribers: N.
        cache: names of groups.

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import SimpleCache, pack_groups
        >>> group = pack_groups(np.array([[True, False, True, True]]))
        >>> cache = SimpleCache(4, capacity=10)
        >>> cache.count(group), cache.count(group)
        (array([3]), array([1]))
    """

    def __init__(self, subscribers: int, capacity: int, eviction: Eviction = "frequency") -> None:
        """
        Args:
            subscribers: N.
            capacity: groups in the cache.
            eviction: "frequency" or "recency".
        """
        super().__init__(subscribers)
        self.cache = KeyCache(capacity, eviction)

    def _plan(self, group: Bytes) -> Plan:
        name = group_name(group)
        if self.cache.touch(name):
            return Plan((Wrap(name),), {})
        one_by_one = self._members(group)
        if len(one_by_one) < 2:
            return Plan((*self._each(one_by_one),), {})
        new = self.cache.add(name) != name
        wraps = self._each(one_by_one, (name,) if new else ())
        return Plan((*wraps,), {name: (*one_by_one,)} if new else {})

    def _count(self, groups: Bytes) -> Index:
        cache, counts = self.cache, group_sizes(groups)
        for place, (group, size) in enumerate(zip(groups, counts.tolist(), strict=True)):
            name = group_name(group)
            if cache.touch(name):
                counts[place] = 1
            elif size > 1:
                cache.add(name)
        return counts

    def forget(self, subscriber: int | None = None) -> None:
        """Drop the keys of groups that a subscriber is in, or all of them."""
        self.cache.forget(subscriber)

    def _identity(self) -> str:
        return repr(self.cache)

    def _snapshot(self) -> bytes:
        return self.cache.snapshot()

    def _restore(self, snapshot: bytes) -> None:
        restore_groups(self.cache, snapshot, self.subscribers)


class BuildUpCache(SimpleCache):
    """As `SimpleCache`, but other groups are put together from disjoint smaller ones in the cache,
    largest first; a wrap for each member that is left.

    Attributes:
        subscribers: N.
        cache: names of groups.

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import BuildUpCache, pack_groups
        >>> rows = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [1, 1, 1, 1, 1]], dtype=bool)
        >>> BuildUpCache(5, capacity=10).count(pack_groups(rows))       # the third is two and one
        array([2, 2, 3])
    """

    def __init__(self, subscribers: int, capacity: int, eviction: Eviction = "frequency") -> None:
        """
        Args:
            subscribers: N.
            capacity: groups in the cache.
            eviction: "frequency" or "recency".
        """
        super().__init__(subscribers, capacity, eviction)
        self._words = -(-subscribers // 64)
        self._rows = np.zeros((capacity, self._words), dtype=np.uint64)
        self._sizes = np.zeros(capacity, dtype=np.intp)
        self._names: list[bytes] = [b""] * capacity
        self._place: dict[bytes, int] = {}
        self._free = [*range(capacity)]

    def _plan(self, group: Bytes) -> Plan:
        name = group_name(group)
        if self.cache.touch(name):
            return Plan((Wrap(name),), {})
        parts, rest = self._parts(self._as_words(group))
        left = np.unpackbits(rest.view(np.uint8), bitorder="little")
        one_by_one = self._members(group)
        new = len(one_by_one) > 1 and self._add(name, group, len(one_by_one))
        carries = (name,) if new else ()
        wraps = [Wrap(part, carries) for part in parts]
        wraps += self._each(np.flatnonzero(left).tolist(), carries)
        return Plan((*wraps,), {name: (*one_by_one,)} if new else {})

    def _count(self, groups: Bytes) -> Index:
        return as_counts([self._plan(group).encryptions for group in groups])

    def _as_words(self, group: Bytes) -> Words:
        words = np.zeros(self._words, dtype=np.uint64)
        words.view(np.uint8)[: len(group)] = group
        return words

    def _parts(self, group: Words) -> tuple[list[bytes], Words]:
        """Names of the groups taken, and who is left."""
        rest, outside = group.copy(), ~group
        # Most groups are ruled out by their first words.
        inside = np.flatnonzero(self._sizes)
        for word in range(self._words):
            inside = inside[(self._rows[inside, word] & outside[word]) == 0]
        parts = []
        names, sizes = self._names, self._sizes
        for place in sorted(inside.tolist(), key=lambda at: (-sizes[at], names[at])):
            row = self._rows[place]
            if not (row & ~rest).any():
                parts.append(self._names[place])
                self.cache.touch(self._names[place])
                rest &= ~row
        return parts, rest

    def forget(self, subscriber: int | None = None) -> None:
        """Drop the keys of groups that a subscriber is in, or all of them."""
        for name in self.cache.forget(subscriber):
            place = self._place.pop(name)
            self._sizes[place] = 0
            self._free.append(place)

    def _restore(self, snapshot: bytes) -> None:
        super()._restore(snapshot)
        self._sizes[:], self._place, self._free = 0, {}, [*range(self.cache.capacity)]
        for name in self.cache.names():
            group = np.frombuffer(name[1:], dtype=np.uint8)
            self._put(self._free.pop(), name, group, int(group_sizes(group[None])[0]))

    def _add(self, name: bytes, group: Bytes, size: int) -> bool:
        evicted = self.cache.add(name)
        if evicted == name:
            return False
        place = self._free.pop() if evicted is None else self._place.pop(evicted)
        self._put(place, name, group, size)
        return True

    def _put(self, place: int, name: bytes, group: Bytes, size: int) -> None:
        self._place[name], self._names[place] = place, name
        self._rows[place], self._sizes[place] = self._as_words(group), size
