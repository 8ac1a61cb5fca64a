"""Strategies that cut a group along clusters of subscribers, and cache keys of the parts.

A cluster of n subscribers has 2^n - 1 parts, few enough for most of them to be in a cache. A group
takes a wrap for each cluster in which it has a member.

Source: [OP01] sections 4.3 and 4.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Index
from ccbps.checks import whole
from ccbps.delivery.groups import Clusters, group_sizes
from ccbps.delivery.key_cache import Eviction, KeyCache
from ccbps.delivery.plans import NO_SNAPSHOT, Plan, Strategy, Wrap, group_name, set_name
from ccbps.delivery.strategies import restore_groups
from ccbps.errors import DecodeError, ParameterError
from ccbps.records import read, write

EVENTS: Final = 1 << 10
"""Number of groups that are cut into parts together."""
TIME_BITS: Final = 40
MOST_USES: Final = (1 << 22) - 1
"""Uses of a part that are counted. Of parts with as many, the one used last stays longest."""
NAMES: Final = 1 << 18
"""Number of names of parts that are remembered."""
NOT_CACHED: Final = np.iinfo(np.int64).max


class ClusteredCache(Strategy):
    """Cache of parts for each cluster.

    A part of one member takes no key, as the member's own key serves.

    Args:
        clusters: clusters of subscribers. Memory is 8 bytes x clusters x 2^(size of the largest).
        capacity: largest number of parts in the cache of each cluster; one number for all clusters,
            or one for each.
        eviction: "frequency" or "recency".

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import ClusteredCache, Clusters, pack_groups
        >>> rows = np.array([[1, 1, 0, 1, 1], [1, 1, 0, 0, 1]], dtype=bool)
        >>> cache = ClusteredCache(Clusters([[0, 1, 2], [3, 4]]), capacity=3)
        >>> cache.count(pack_groups(rows))                 # the part of 0 and 1 has a key by then
        array([4, 2])

    Raises:
        ParameterError: a capacity is negative, or there is not one for each cluster, or there is no
            such eviction.
    """

    def __init__(
        self, clusters: Clusters, capacity: int | Sequence[int], eviction: Eviction = "frequency"
    ) -> None:
        super().__init__(clusters.subscribers)
        count = len(clusters.sizes)
        capacities = [*capacity] if isinstance(capacity, Sequence) else [capacity] * count
        if len(capacities) != count:
            raise ParameterError(f"capacity must be a number or {count} of them, got {capacity!r}")
        self.capacity = [whole("capacity", each, 0) for each in capacities]
        self.clusters, self.eviction = clusters, KeyCache(0, eviction).eviction
        # The rank of a cached part is its number of uses, then the time of the last use. The part
        # of least rank is evicted.
        self._rank = np.full((count, 1 << int(clusters.sizes.max())), NOT_CACHED, dtype=np.int64)
        self._held, self._places = [0] * count, np.arange(count)
        self._now = 0
        self._names: dict[tuple[int, int], bytes] = {}

    def _plan(self, group: Bytes, carries: tuple[bytes, ...] = ()) -> Plan:
        """Plan the delivery to a group, with keys that every wrap carries beside those of parts."""
        values = self.clusters.values(group[None])[0]
        hits, fresh = self._touch(values)
        wraps: list[Wrap] = []
        for cluster in np.flatnonzero(values).tolist():
            value = int(values[cluster])
            if hits[cluster]:
                wraps.append(Wrap(self._name(cluster, value), carries))
            else:
                new = (self._name(cluster, value),) if fresh[cluster] else ()
                wraps += self._each(self._part(cluster, value), (*carries, *new))
        return (*wraps,)

    def _part(self, cluster: int, value: int) -> list[int]:
        """List the members of a part."""
        members = self.clusters.clusters[cluster]
        return [member for place, member in enumerate(members) if value >> place & 1]

    def _name(self, cluster: int, value: int) -> bytes:
        """Return the name of a part's key. The names of the last parts are remembered."""
        name = self._names.get((cluster, value))
        if name is None:
            if len(self._names) >= NAMES:
                self._names.clear()
            most = int(self.clusters.sizes.max())
            name = self._names[cluster, value] = set_name(sorted(self._part(cluster, value)), most)
        return name

    def forget(self, subscriber: int | None = None) -> None:
        for cluster, members in enumerate(self.clusters.clusters):
            if subscriber is None or subscriber in members:
                ranks = self._rank[cluster]
                bits = -1 if subscriber is None else 1 << members.index(subscriber)
                dropped = (np.arange(len(ranks)) & bits != 0) & (ranks != NOT_CACHED)
                ranks[dropped] = NOT_CACHED
                self._held[cluster] -= int(dropped.sum())

    def _identity(self) -> str:
        return f"{self.clusters.clusters} {self.capacity} {self.eviction}"

    def _snapshot(self) -> bytes:
        places = np.nonzero(self._rank != NOT_CACHED)
        rows = np.stack([*places, self._rank[places]], axis=1).astype(">i8")
        return self._now.to_bytes(8) + rows.tobytes()

    def _restore(self, snapshot: bytes) -> None:
        if len(snapshot) % 24 != 8:
            raise DecodeError(NO_SNAPSHOT)
        cluster, value, rank = np.frombuffer(snapshot[8:], ">i8").reshape(-1, 3).T.astype(np.int64)
        outside = (cluster < 0) | (cluster >= len(self._held))
        outside |= (value < 0) | (value >= self._rank.shape[1])
        now = int.from_bytes(snapshot[:8])
        outside |= (rank < 0) | (rank >> TIME_BITS > MOST_USES)
        outside |= rank & (1 << TIME_BITS) - 1 > now
        held = np.bincount(cluster[~outside], minlength=len(self._held))
        twice = len({*zip(cluster.tolist(), value.tolist(), strict=True)}) != len(rank)
        # Half of all times are left to count on.
        if now >> TIME_BITS - 1 or twice or outside.any() or (held > self.capacity).any():
            raise DecodeError(NO_SNAPSHOT)
        self._rank[:] = NOT_CACHED
        self._rank[cluster, value] = rank
        self._held, self._now = held.tolist(), now

    def _count(self, groups: Bytes) -> Index:
        counts = np.empty(len(groups), dtype=np.intp)
        for start in range(0, len(groups), EVENTS):
            values = self.clusters.values(groups[start : start + EVENTS])
            # A hit takes one wrap, a miss one for each member.
            for place, (row, sizes) in enumerate(
                zip(values, np.bitwise_count(values).astype(np.intp), strict=True), start
            ):
                hits, _ = self._touch(row)
                counts[place] = sizes[~hits].sum() + hits.sum()
        return counts

    def _touch(self, values: Index) -> tuple[Bools, Bools]:
        """Count a use of the part in each cluster.

        Returns:
            whether each part was in the cache, and whether it is new in the cache.
        """
        self._now += 1
        ranks = self._rank[self._places, values]
        hits = ranks != NOT_CACHED
        uses = ranks >> TIME_BITS if self.eviction == "frequency" else np.full_like(ranks, -1)
        ranks[hits] = (np.minimum(uses[hits] + 1, MOST_USES) << TIME_BITS) + self._now
        self._rank[self._places, values] = ranks
        fresh = ~hits & (values & values - 1 != 0)
        for cluster in np.flatnonzero(fresh).tolist():
            fresh[cluster] = self._add(cluster, values[cluster])
        return hits, fresh

    def _add(self, cluster: int, value: int) -> bool:
        """Add a part to the cache in place of the part of least rank, if the capacity is not 0."""
        if not self.capacity[cluster]:
            return False
        ranks = self._rank[cluster]
        if self._held[cluster] >= self.capacity[cluster]:
            ranks[ranks.argmin()] = NOT_CACHED
        else:
            self._held[cluster] += 1
        ranks[value] = self._now
        return True


class ClusteredPopularCache(Strategy):
    """Cache of whole groups in front of a clustered cache.

    Args:
        clusters: clusters of subscribers.
        whole: largest number of groups in the cache of whole groups.
        parts: largest number of parts in the cache of each cluster; one number for all clusters, or
            one for each.
        eviction: "frequency" or "recency".

    Attributes:
        whole: names of whole groups.
        parts: clustered cache.

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import ClusteredPopularCache, Clusters, pack_groups
        >>> group = pack_groups(np.array([[1, 1, 0, 1, 1]], dtype=bool))
        >>> cache = ClusteredPopularCache(Clusters([[0, 1, 2], [3, 4]]), whole=5, parts=3)
        >>> cache.count(group), cache.count(group)
        (array([4]), array([1]))
    """

    def __init__(
        self,
        clusters: Clusters,
        whole: int,
        parts: int | Sequence[int],
        eviction: Eviction = "frequency",
    ) -> None:
        super().__init__(clusters.subscribers)
        self.whole = KeyCache(whole, eviction)
        self.parts = ClusteredCache(clusters, parts, eviction)

    def _plan(self, group: Bytes) -> Plan:
        name = group_name(group)
        if self.whole.touch(name):
            return (Wrap(name),)
        new = np.bitwise_count(group).sum() > 1 and self._add(name)
        return self.parts._plan(group, (name,) if new else ())

    def _count(self, groups: Bytes) -> Index:
        counts, sizes = np.ones(len(groups), dtype=np.intp), group_sizes(groups)
        others = []
        for place, group in enumerate(groups):
            name = group_name(group)
            if not self.whole.touch(name):
                others.append(place)
                if sizes[place] > 1:
                    self._add(name)
        counts[others] = self.parts._count(groups[others])
        return counts

    def _add(self, name: bytes) -> bool:
        """Add a whole group to the cache, and tell whether there is room for it."""
        return self.whole.add(name) != name

    def forget(self, subscriber: int | None = None) -> None:
        self.whole.forget(subscriber)
        self.parts.forget(subscriber)

    def _identity(self) -> str:
        return f"{self.whole!r} {self.parts._identity()}"

    def _snapshot(self) -> bytes:
        return write([self.whole.snapshot(), self.parts._snapshot()])

    def _restore(self, snapshot: bytes) -> None:
        whole, parts = read(tuple[bytes, bytes], snapshot, refusal=NO_SNAPSHOT)
        restore_groups(self.whole, whole, self.subscribers)
        self.parts._restore(parts)
