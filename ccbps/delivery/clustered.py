"""Strategies that cut a group along clusters of subscribers, and cache keys of the parts.

A cluster of n subscribers has 2^n - 1 parts, few enough for most to be in a cache; a group takes a
wrap for each cluster that it has somebody in.

Source: [OP01] sections 4.3 and 4.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Index
from ccbps.delivery.groups import Clusters
from ccbps.delivery.key_cache import NO_SNAPSHOT, Eviction, KeyCache
from ccbps.delivery.names import group_name, set_name
from ccbps.delivery.plans import Plan, Strategy, Wrap
from ccbps.delivery.whole_groups import restore_groups
from ccbps.errors import DecodeError, ParameterError
from ccbps.records import read, write

EVENTS: Final = 1 << 10
"""Groups whose parts are found together."""
TIME_BITS: Final = 40
NAMES: Final = 1 << 18
"""Names of parts that are remembered."""
NOT_CACHED: Final = np.iinfo(np.int64).max


class ClusteredCache(Strategy):
    """A cache of parts for each cluster, all of the same capacity.

    Attributes:
        subscribers: N.
        clusters: of subscribers.
        capacity: parts in the cache of each cluster.

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import ClusteredCache, Clusters, pack_groups
        >>> rows = np.array([[1, 1, 0, 1, 1], [1, 1, 0, 0, 1]], dtype=bool)
        >>> cache = ClusteredCache(Clusters([[0, 1, 2], [3, 4]]), capacity=3)
        >>> cache.count(pack_groups(rows))                 # the part of 0 and 1 has a key by then
        array([4, 2])
    """

    def __init__(
        self,
        clusters: Clusters,
        capacity: int | Sequence[int],
        eviction: Eviction = "frequency",
    ) -> None:
        """
        Args:
            clusters: of subscribers. Memory is 8 bytes x clusters x 2^(size of the largest).
            capacity: parts in the cache of each cluster; one number for all, or one for each.
            eviction: "frequency" or "recency".

        Raises:
            ParameterError: a capacity is negative, or not one for each cluster; or there is no such
                eviction.
        """
        super().__init__(clusters.subscribers)
        count = len(clusters.sizes)
        each = [capacity] * count if isinstance(capacity, int) else [*capacity]
        if len(each) != count or not all(type(one) is int and one >= 0 for one in each):
            raise ParameterError(
                f"capacity must be a whole number, at least 0, or {count} of them, got {capacity!r}"
            )
        KeyCache(0, eviction)
        self.clusters, self.capacity, self.eviction = clusters, each, eviction
        shape = len(clusters.sizes), 1 << int(clusters.sizes.max())
        # Of each part in the cache how often it was used, then when: the least one is evicted.
        self._rank = np.full(shape, NOT_CACHED, dtype=np.int64)
        self._held = [0] * shape[0]
        self._rows = np.arange(shape[0])
        self._now = 0
        self._names: dict[tuple[int, int], bytes] = {}

    def _plan(self, group: Bytes) -> Plan:
        values = self.clusters.values(group[None])[0]
        hits, fresh = self._touch(values)
        return self.plan_of(values, hits, fresh, ())

    def plan_of(self, values: Index, hits: Bools, fresh: Bools, carries: tuple[bytes, ...]) -> Plan:
        """The plan for parts of which some are in the cache, and some come into it."""
        wraps: list[Wrap] = []
        made: dict[bytes, tuple[int, ...]] = {}
        for cluster, value in enumerate(values.tolist()):
            if not value:
                continue
            if hits[cluster]:
                wraps.append(Wrap(self._name(cluster, value), carries))
                continue
            one_by_one, new = self._part(cluster, value), carries
            if fresh[cluster]:
                name = self._name(cluster, value)
                made[name], new = (*one_by_one,), (*carries, name)
            wraps += self._each(one_by_one, new)
        return Plan((*wraps,), made)

    def _part(self, cluster: int, value: int) -> list[int]:
        """Its members."""
        return [one for j, one in enumerate(self.clusters.clusters[cluster]) if value >> j & 1]

    def _name(self, cluster: int, value: int) -> bytes:
        """The name of a part's key; the last ones are remembered."""
        name = self._names.get((cluster, value))
        if name is None:
            if len(self._names) >= NAMES:
                self._names.clear()
            name = set_name(
                sorted(self._part(cluster, value)), self._rank.shape[1].bit_length() - 1
            )
            self._names[cluster, value] = name
        return name

    def forget(self, subscriber: int | None = None) -> None:
        """Drop the keys of parts that a subscriber is in, or all of them."""
        for cluster, everybody in enumerate(self.clusters.clusters):
            if subscriber is None or subscriber in everybody:
                ranks = self._rank[cluster]
                bits = -1 if subscriber is None else 1 << everybody.index(subscriber)
                gone = (np.arange(len(ranks)) & bits != 0) & (ranks != NOT_CACHED)
                ranks[gone] = NOT_CACHED
                self._held[cluster] -= int(gone.sum())

    def _identity(self) -> str:
        return f"{self.clusters.clusters} {self.capacity} {self.eviction}"

    def _snapshot(self) -> bytes:
        at = np.nonzero(self._rank != NOT_CACHED)
        found = np.stack([*at, self._rank[at]], axis=1).astype(">i8")
        return self._now.to_bytes(8) + found.tobytes()

    def _restore(self, snapshot: bytes) -> None:
        if len(snapshot) % 24 != 8:
            raise DecodeError(NO_SNAPSHOT)
        cluster, value, rank = np.frombuffer(snapshot[8:], ">i8").reshape(-1, 3).T.astype(np.int64)
        outside = (cluster < 0) | (cluster >= len(self._held))
        outside |= (value < 0) | (value >= self._rank.shape[1])
        now = int.from_bytes(snapshot[:8])
        outside |= (rank < 0) | (rank & (1 << TIME_BITS) - 1 > now)
        held = np.bincount(cluster[~outside], minlength=len(self._held))
        twice = len({*zip(cluster.tolist(), value.tolist(), strict=True)}) != len(rank)
        if now >> TIME_BITS or twice or outside.any() or (held > self.capacity).any():
            raise DecodeError(NO_SNAPSHOT)
        self._rank[:] = NOT_CACHED
        self._rank[cluster, value] = rank
        self._held, self._now = held.tolist(), now

    def _count(self, groups: Bytes) -> Index:
        counts = np.empty(len(groups), dtype=np.intp)
        for start in range(0, len(groups), EVENTS):
            values = self.clusters.values(groups[start : start + EVENTS])
            counts[start : start + EVENTS] = self.count_values(values)
        return counts

    def count_values(self, values: Index) -> Index:
        """Encryptions for groups that are given as numbers, shape (events, clusters)."""
        counts = np.empty(len(values), dtype=np.intp)
        sizes = np.bitwise_count(values).astype(np.intp)
        # A hit is one wrap, a miss one for each member.
        for place, (row, size) in enumerate(zip(values, sizes, strict=True)):
            hits, _ = self._touch(row)
            counts[place] = size[~hits].sum() + hits.sum()
        return counts

    def _touch(self, values: Index) -> tuple[Bools, Bools]:
        """Which parts are in the cache, and which come into it now. A part of one member needs no
        key of its own: the member's does as well, and counts as one in the cache."""
        self._now += 1
        ranks = self._rank[self._rows, values]
        hits = ranks != NOT_CACHED
        used = ranks >> TIME_BITS if self.eviction == "frequency" else np.full_like(ranks, -1)
        ranks[hits] = (used[hits] + 1 << TIME_BITS) + self._now
        self._rank[self._rows, values] = ranks
        fresh = ~hits & (values & values - 1 != 0)
        for cluster in np.flatnonzero(fresh).tolist():
            fresh[cluster] = self._add(cluster, values[cluster])
        return hits, fresh

    def _add(self, cluster: int, value: int) -> bool:
        """Take a part's key into the cache, in place of the least used."""
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
    """A simple cache of whole groups before a clustered one.

    Attributes:
        subscribers: N.
        whole: names of whole groups.
        parts: the clustered cache.

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
        """
        Args:
            clusters: of subscribers.
            whole: groups in the simple cache.
            parts: parts in the cache of each cluster; one number for all, or one for each.
            eviction: "frequency" or "recency".
        """
        super().__init__(clusters.subscribers)
        self.whole, self.parts = (
            KeyCache(whole, eviction),
            ClusteredCache(clusters, parts, eviction),
        )

    def _plan(self, group: Bytes) -> Plan:
        name = group_name(group)
        if self.whole.touch(name):
            return Plan((Wrap(name),), {})
        values = self.parts.clusters.values(group[None])[0]
        hits, fresh = self.parts._touch(values)
        one_by_one = self._members(group)
        new = len(one_by_one) > 1 and self._take(name)
        plan = self.parts.plan_of(values, hits, fresh, (name,) if new else ())
        if new:
            plan.fresh[name] = (*one_by_one,)
        return plan

    def _count(self, groups: Bytes) -> Index:
        counts = np.ones(len(groups), dtype=np.intp)
        sizes = np.bitwise_count(groups).sum(axis=1)
        for start in range(0, len(groups), EVENTS):
            block = groups[start : start + EVENTS]
            others = []
            for place, group in enumerate(block):
                name = group_name(group)
                if not self.whole.touch(name):
                    others.append(place)
                    if sizes[start + place] > 1:
                        self._take(name)
            values = self.parts.clusters.values(block[others])
            counts[start + np.array(others, dtype=np.intp)] = self.parts.count_values(values)
        return counts

    def forget(self, subscriber: int | None = None) -> None:
        """Drop the keys of groups and parts that a subscriber is in, or all of them."""
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

    def _take(self, name: bytes) -> bool:
        """Take a whole group in, unless there is no room for any."""
        return self.whole.add(name) != name
