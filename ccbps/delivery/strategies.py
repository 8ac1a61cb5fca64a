"""Strategies without clusters: no caches, caches of whole groups, and a tree of keys.

Sources: [OP01] sections 2, 3, 4.1, 4.2 and 5; Wong, Gouda and Lam, SIGCOMM 1998, and Wallner,
Harder and Agee, RFC 2627, for the tree; [NNL01] for its covers, as the complete subtree method.
"""

from __future__ import annotations

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Words, slices
from ccbps.delivery.groups import group_sizes, members_of, unpack_groups
from ccbps.delivery.key_cache import Eviction, KeyCache
from ccbps.delivery.plans import NO_SNAPSHOT, Plan, Strategy, Wrap, group_name, node_name
from ccbps.errors import DecodeError


def restore_groups(cache: KeyCache, snapshot: bytes, subscribers: int) -> None:
    """Hold the names of whole groups that a snapshot has.

    Raises:
        DecodeError: the snapshot is malformed, or has other names.
    """
    cache.restore(snapshot)
    width = 1 + -(-subscribers // 8)
    if any(len(name) != width or name[:1] != b"g" for name in cache.names()):
        raise DecodeError(NO_SNAPSHOT)


class Naive(Strategy):
    """Strategy without keys of groups: a wrap for each member.

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import Naive, pack_groups
        >>> groups = pack_groups(np.array([[True, False, True, True], [False, True, False, False]]))
        >>> Naive(4).count(groups)
        array([3, 1])
    """

    def _plan(self, group: Bytes) -> Plan:
        return (*self._each(members_of(group, self.subscribers)),)

    def _count(self, groups: Bytes) -> Index:
        return group_sizes(groups)


class SimpleCache(Strategy):
    """Cache of groups. A cached group takes one wrap, another group one for each member.

    Args:
        subscribers: number N of subscribers.
        capacity: largest number of groups in the cache.
        eviction: "frequency" or "recency".

    Attributes:
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
        super().__init__(subscribers)
        self.cache = KeyCache(capacity, eviction)

    def _plan(self, group: Bytes) -> Plan:
        name = group_name(group)
        if self.cache.touch(name):
            return (Wrap(name),)
        members = members_of(group, self.subscribers)
        parts, rest = self._parts(group, members)
        # A single member's own key serves as well.
        carries = (name,) if len(members) > 1 and self._add(name, group) else ()
        return (*(Wrap(part, carries) for part in parts), *self._each(rest, carries))

    def _parts(self, group: Bytes, members: list[int]) -> tuple[list[bytes], list[int]]:
        """Return names of disjoint cached groups inside a group, and the members outside them."""
        return [], members

    def _add(self, name: bytes, group: Bytes) -> bool:
        """Add a group to the cache, and tell whether there is room for it."""
        return self.cache.add(name) != name

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
        self.cache.forget(subscriber)

    def _identity(self) -> str:
        return repr(self.cache)

    def _snapshot(self) -> bytes:
        return self.cache.snapshot()

    def _restore(self, snapshot: bytes) -> None:
        restore_groups(self.cache, snapshot, self.subscribers)


class BuildUpCache(SimpleCache):
    """Cache of groups, of which disjoint ones make up larger groups.

    A cached group takes one wrap. Another group is composed of disjoint cached groups inside it,
    the largest first, and takes a wrap for each of them and for each member that is left.

    Args:
        subscribers: number N of subscribers.
        capacity: largest number of groups in the cache.
        eviction: "frequency" or "recency".

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import BuildUpCache, pack_groups
        >>> rows = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [1, 1, 1, 1, 1]], dtype=bool)
        >>> BuildUpCache(5, capacity=10).count(pack_groups(rows))       # the third is two and one
        array([2, 2, 3])
    """

    def __init__(self, subscribers: int, capacity: int, eviction: Eviction = "frequency") -> None:
        super().__init__(subscribers, capacity, eviction)
        # A row for each cached group. Rows that are free have size 0.
        capacity = self.cache.capacity
        self._rows = np.zeros((capacity, -(-subscribers // 64)), dtype=np.uint64)
        self._sizes = np.zeros(capacity, dtype=np.intp)
        self._names: list[bytes] = [b""] * capacity
        self._place: dict[bytes, int] = {}
        self._free = [*range(capacity)]

    def _count(self, groups: Bytes) -> Index:
        return np.array([len(self._plan(group)) for group in groups], dtype=np.intp)

    def _as_words(self, group: Bytes) -> Words:
        words = np.zeros(self._rows.shape[1], dtype=np.uint64)
        words.view(np.uint8)[: len(group)] = group
        return words

    def _parts(self, group: Bytes, members: list[int]) -> tuple[list[bytes], list[int]]:
        rest = self._as_words(group)
        outside = ~rest
        # Most groups are ruled out by their first words.
        inside = np.flatnonzero(self._sizes)
        for word in range(len(outside)):
            inside = inside[(self._rows[inside, word] & outside[word]) == 0]
        parts = []
        names, sizes = self._names, self._sizes
        for place in sorted(inside.tolist(), key=lambda at: (-sizes[at], names[at])):
            row = self._rows[place]
            if not (row & ~rest).any():
                parts.append(names[place])
                self.cache.touch(names[place])
                rest &= ~row
        return parts, members_of(rest.view(np.uint8), self.subscribers)

    def forget(self, subscriber: int | None = None) -> None:
        for name in self.cache.forget(subscriber):
            place = self._place.pop(name)
            self._sizes[place] = 0
            self._free.append(place)

    def _restore(self, snapshot: bytes) -> None:
        super()._restore(snapshot)
        self._sizes[:], self._place, self._free = 0, {}, [*range(self.cache.capacity)]
        for name in self.cache.names():
            self._put(self._free.pop(), name, np.frombuffer(name[1:], dtype=np.uint8))

    def _add(self, name: bytes, group: Bytes) -> bool:
        evicted = self.cache.add(name)
        if evicted == name:
            return False
        self._put(self._free.pop() if evicted is None else self._place.pop(evicted), name, group)
        return True

    def _put(self, place: int, name: bytes, group: Bytes) -> None:
        self._place[name], self._names[place] = place, name
        self._rows[place], self._sizes[place] = self._as_words(group), group_sizes(group)


class KeyHierarchy(Strategy):
    """Binary tree of keys over the subscribers by number.

    A group is covered by the fewest subtrees that contain nobody else. Each subscriber has the keys
    on its way to the root. Nothing is learned from traffic, and no key is made for an event. There
    are 2N - 1 keys.

    Args:
        subscribers: number N of subscribers.

    Attributes:
        levels: levels of the full tree above its leaves. Leaves from N on are empty.

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import KeyHierarchy, pack_groups
        >>> group = np.array([[1, 1, 1, 1, 0, 1, 0, 0]], dtype=bool)
        >>> KeyHierarchy(8).count(pack_groups(group))       # the left half, and number 5
        array([2])
    """

    def __init__(self, subscribers: int) -> None:
        super().__init__(subscribers)
        self.levels = (self.subscribers - 1).bit_length()

    def _plan(self, group: Bytes) -> Plan:
        wraps = []
        for level, nodes in enumerate(self._cover(group[None])):
            for node in np.flatnonzero(nodes[0]).tolist():
                first = node << level
                if level and first + 1 < self.subscribers:
                    wraps.append(Wrap(node_name(level, node)))
                else:  # a single subscriber below
                    wraps += self._each([first])
        return (*wraps,)

    def _count(self, groups: Bytes) -> Index:
        counts = np.zeros(len(groups), dtype=np.intp)
        for block in slices(len(groups), 1 << 10):
            for nodes in self._cover(groups[block]):
                counts[block] += nodes.sum(axis=1)
        return counts

    def _cover(self, groups: Bytes) -> list[Bools]:
        """Return the nodes of each level that cover groups, leaves first, shape (groups, nodes)."""
        full: Bools = np.zeros((len(groups), 1 << self.levels), dtype=np.bool_)
        full[:, : self.subscribers] = unpack_groups(groups, self.subscribers)
        empty: Bools = np.arange(full.shape[1]) >= self.subscribers
        cover = []
        for _ in range(self.levels):
            # A key may cover empty leaves. A subtree of empty leaves is no part of a cover.
            pairs = (full | empty).reshape(len(groups), -1, 2)
            empty = np.asarray(empty.reshape(-1, 2).all(axis=1))
            above: Bools = np.asarray(pairs.all(axis=2) & ~empty)
            cover.append(full & ~np.repeat(above, 2, axis=1))
            full = above
        return [*cover, full]
