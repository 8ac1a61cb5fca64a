"""Strategies that cache keys of whole groups: none, simple, and build-up.

Source: [OP01] sections 2, 4.1 and 4.2.
"""

from __future__ import annotations

import numpy as np

from ccbps.arrays import Bytes, Index, Words
from ccbps.delivery.groups import group_sizes
from ccbps.delivery.key_cache import Eviction, KeyCache
from ccbps.delivery.plans import Plan, Strategy, Wrap, as_counts, each_member, personal

__all__ = ["BuildUpCache", "Naive", "SimpleCache", "group_name"]


def group_name(group: Bytes) -> bytes:
    """The name of a whole group's key."""
    return b"g" + group.tobytes()


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
        return Plan((*each_member(self, group),), {})

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
            return Plan((*each_member(self, group),), {})
        self.cache.add(name)
        return Plan((*each_member(self, group, (name,)),), {name: (*one_by_one,)})

    def _count(self, groups: Bytes) -> Index:
        cache, counts = self.cache, group_sizes(groups)
        for place, (group, size) in enumerate(zip(groups, counts.tolist(), strict=True)):
            name = group_name(group)
            if cache.touch(name):
                counts[place] = 1
            elif size > 1:
                cache.add(name)
        return counts


class BuildUpCache(Strategy):
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
        super().__init__(subscribers)
        self.cache = KeyCache(capacity, eviction)
        self._words = -(-subscribers // 64)
        self._rows = np.zeros((capacity, self._words), dtype=np.uint64)
        self._sizes = np.zeros(capacity, dtype=np.intp)
        self._names: list[bytes] = [b""] * capacity
        self._place: dict[bytes, int] = {}

    def _plan(self, group: Bytes) -> Plan:
        name = group_name(group)
        if self.cache.touch(name):
            return Plan((Wrap(name),), {})
        parts, rest = self._parts(self._as_words(group))
        left = np.unpackbits(rest.view(np.uint8), bitorder="little")
        under = [*parts, *(personal(one) for one in np.flatnonzero(left).tolist())]
        one_by_one = self._members(group)
        if len(one_by_one) < 2:
            return Plan((*(Wrap(key) for key in under),), {})
        self._add(name, group, len(one_by_one))
        return Plan((*(Wrap(key, (name,)) for key in under),), {name: (*one_by_one,)})

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
        for place in inside[np.argsort(-self._sizes[inside], kind="stable")].tolist():
            row = self._rows[place]
            if not (row & ~rest).any():
                parts.append(self._names[place])
                self.cache.touch(self._names[place])
                rest &= ~row
        return parts, rest

    def _add(self, name: bytes, group: Bytes, size: int) -> None:
        evicted = self.cache.add(name)
        if evicted == name:
            return
        place = len(self._place) if evicted is None else self._place.pop(evicted)
        self._place[name], self._names[place] = place, name
        self._rows[place], self._sizes[place] = self._as_words(group), size
