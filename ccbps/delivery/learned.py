"""Clusters and capacities that are learned from traffic, for a given number of keys.

The source's clustered and clustered-popular caches waste keys in two ways. All clusters have one
size and one capacity, so some keys serve no part and some parts have no key. And half of the keys
are for whole groups, whether groups recur or not. Here a sample of traffic decides:

- Subscribers that are often in the same groups stand side by side in a row. A dynamic program cuts
  the row into the clusters that take fewest wraps. A key costs the same everywhere (a Lagrange
  multiplier). A part of one member takes no key, since the member has one.
- The number of keys for whole groups is optimal for the frequency with which groups recur. Whole
  groups also get the keys for which clusters have no use. The frequency is the larger of two
  estimates: from the groups that recur in the sample, and, for groups too rare to recur in it, as
  if all were equally popular. If the cache is full, a group is added at its second occurrence. So
  groups that occur once evict nothing.

Uniform groups do not recur, so all keys are for parts of clusters of two sizes.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import Final, NamedTuple, Self

import numpy as np

from ccbps.arrays import Bytes, Index, Reals
from ccbps.checks import whole
from ccbps.delivery.clustered import ClusteredPopularCache
from ccbps.delivery.groups import Clusters, check_groups, similar_order, unpack_groups
from ccbps.delivery.key_cache import Eviction, KeyCache
from ccbps.delivery.plans import NO_SNAPSHOT
from ccbps.errors import ParameterError
from ccbps.records import read, write

MOST: Final = 12
"""Largest number of subscribers of a cluster."""
SAMPLE: Final = 1 << 14
"""Number of groups of the sample from which clusters are learned."""
SHARES: Final = 40
"""Number of shares of keys for whole groups that are tried."""
NEARLY: Final = 0.75
"""Share of the parts of a cluster beyond which all of them get keys."""
REMEMBERED: Final = 4
"""Number of digests of groups that came once, per key of a whole group."""


class LearnedCache(ClusteredPopularCache):
    """Cache of whole groups that came twice, in front of a clustered cache, learned from a sample.

    Args:
        clusters: clusters of subscribers.
        whole: largest number of groups in the cache of whole groups.
        parts: largest number of parts in the cache of each cluster; one number for all clusters, or
            one for each.
        eviction: "frequency" or "recency".

    Attributes:
        seen: digests of groups that came once.

    Example:
        >>> import numpy as np
        >>> from ccbps.delivery import LearnedCache, pack_groups
        >>> kinds = np.arange(40) % 4                      # of interests
        >>> interested = np.random.default_rng(1).random((5000, 4)) < 0.5
        >>> groups = pack_groups(interested[:, kinds])
        >>> cache = LearnedCache.learn(groups, subscribers=40, keys=20)
        >>> _ = cache.count(groups)
        >>> bool(cache.count(groups).mean() < 2)           # of 20 members each
        True
    """

    def __init__(
        self,
        clusters: Clusters,
        whole: int,
        parts: int | list[int],
        eviction: Eviction = "frequency",
    ) -> None:
        super().__init__(clusters, whole, parts, eviction)
        self.seen = KeyCache(REMEMBERED * whole, "recency")

    @classmethod
    def learn(
        cls, groups: Bytes, subscribers: int, keys: int, eviction: Eviction = "frequency"
    ) -> Self:
        """Return the best strategy for traffic like a sample.

        Args:
            groups: packed sample, shape (events, subscribers / 8, rounded up). Some ten thousand
                events are enough for clusters. Groups that seldom recur need more.
            subscribers: number N of subscribers.
            keys: number of keys of groups and parts together, without the subscribers' own keys.
            eviction: "frequency" or "recency".

        Raises:
            ShapeError: the groups have another shape.
            ParameterError: there is no group, or the number of keys is negative.
        """
        check_groups(groups, subscribers)
        keys = whole("keys", keys, 0)
        if not len(groups):
            raise ParameterError("groups must be at least one, got none")
        again, different = popularity(groups)
        repeats = np.sort(_group_counts(groups) - 1)[::-1]  # of each group, in the sample
        repeats = repeats[repeats > 0]
        most = max(round(different), len(repeats))
        row = _Row(groups[:SAMPLE], subscribers)
        tried: list[tuple[float, int, _Cut]] = []
        for share in range(SHARES + 1 if most else 1):
            # The first keys of whole groups are worth most, so shares are closer near all keys.
            for_groups = min(round(keys * (1 - (1 - share / SHARES) ** 2)), most)
            cut = row.cut(keys - for_groups)
            hit = again * min(1.0, for_groups / different) if different else 0.0
            hit = max(hit, float(repeats[:for_groups].sum()) / len(groups))
            tried.append((hit + (1 - hit) * cut.wraps, for_groups, cut))
        _, for_groups, cut = min(tried, key=lambda option: option[0])
        if most:  # add the keys that clusters leave over
            for_groups = keys - sum(cut.keys)
        return cls(Clusters(cut.clusters), for_groups, cut.keys, eviction)

    def _snapshot(self) -> bytes:
        return write([super()._snapshot(), self.seen.snapshot()])

    def _restore(self, snapshot: bytes) -> None:
        caches, seen = read(tuple[bytes, bytes], snapshot, refusal=NO_SNAPSHOT)
        super()._restore(caches)
        self.seen.restore(seen)

    def _add(self, name: bytes) -> bool:
        digest = blake2b(name, digest_size=8).digest()
        if len(self.whole) >= self.whole.capacity and not self.seen.touch(digest):
            self.seen.add(digest)
            return False
        self.seen.remove(digest)
        return super()._add(name)


def popularity(groups: Bytes) -> tuple[float, float]:
    """Estimate the share p of events whose groups recur, and the number S of these groups.

    All these groups are assumed to be equally popular. Then two events have equal groups with
    probability p^2 / S, and three events with p^3 / S^2, which determines p and S. Without
    three equal groups in the sample, both are 0.

    Args:
        groups: packed sample.
    """
    counts = _group_counts(groups).astype(np.float64)
    events = float(len(groups))
    pairs = (counts * (counts - 1)).sum() / max(1.0, events * (events - 1))
    triples = (counts * (counts - 1) * (counts - 2)).sum()
    triples /= max(1.0, events * (events - 1) * (events - 2))
    if not triples:
        return 0.0, 0.0
    share = min(1.0, pairs * pairs / triples)
    return float(share), float(share * share / pairs)


def _group_counts(groups: Bytes) -> Index:
    """Count the events of each different group."""
    return np.array([*Counter(group.tobytes() for group in groups).values()], dtype=np.intp)


class _Cut(NamedTuple):
    """Clusters, the keys for the parts of each, and the wraps of an event."""

    clusters: list[list[int]]
    keys: list[int]
    wraps: float


class _Row:
    """Subscribers in a row, those that are often in the same groups side by side."""

    def __init__(self, groups: Bytes, subscribers: int) -> None:
        self.order = similar_order(groups, subscribers)
        self.wraps, self.keys, self.misses = _segments(
            unpack_groups(groups, subscribers).T[self.order]
        )

    def cut(self, keys: int) -> _Cut:
        """Cut the row into clusters that have at most a number of keys.

        This is the better of the cuts at the two prices whose numbers of keys are nearest. In the
        cut with too many keys, each cluster gets the same share of the keys that it needs.
        """
        low, high = 0.0, 1.0
        for _ in range(40):
            price = (low + high) / 2
            _, used = self._cut_at(price)
            low, high = (low, price) if used <= keys else (price, high)
        return min((self._fitted(low, keys), self._fitted(high, keys)), key=lambda cut: cut.wraps)

    def _fitted(self, price: float, keys: int) -> _Cut:
        ends, used = self._cut_at(price)
        share = min(1.0, keys / used) if used else 1.0
        clusters, keys_of, wraps = [], [], 0.0
        for start, end in ends:
            place = end - start - 1, start
            clusters.append(self.order[start:end].tolist())
            keys_of.append(int(self.keys[place] * share))
            wraps += float(self.wraps[place] + (1 - share) * self.misses[place])
        return _Cut(clusters, keys_of, wraps)

    def _cut_at(self, price: float) -> tuple[list[tuple[int, int]], int]:
        """Return the best clusters if a key costs a number of wraps, and the number of keys."""
        cost = self.wraps + price * self.keys
        count = cost.shape[1]
        best, last = np.zeros(count + 1), np.zeros(count + 1, dtype=np.intp)
        for end in range(1, count + 1):
            sizes = np.arange(min(MOST, end))
            totals = best[end - 1 - sizes] + cost[sizes, end - 1 - sizes]
            size = int(totals.argmin())
            best[end], last[end] = totals[size], size + 1
        ends, end, used = [], count, 0
        while end:
            start = end - int(last[end])
            used += int(self.keys[end - start - 1, start])
            ends.append((start, end))
            end = start
        return ends[::-1], used


def _segments(rows: Bytes) -> tuple[Reals, Index, Reals]:
    """Evaluate the clusters of each size, 1 to `MOST`, that begin at each place of a row.

    Args:
        rows: groups of each subscriber, 0 or 1, shape (subscribers, events).

    Returns:
        wraps of an event, keys, and further wraps of an event without keys, each of shape (sizes,
        subscribers). A cluster that does not fit has infinitely many wraps.
    """
    count, events = rows.shape
    wraps = np.full((MOST, count), np.inf)
    keys, misses = np.zeros((MOST, count), dtype=np.intp), np.zeros((MOST, count))
    members = np.bitwise_count(np.arange(1 << MOST)).astype(np.intp)
    for start in range(count):
        values = np.zeros(events, dtype=np.intp)
        for size in range(min(MOST, count - start)):
            values |= rows[start + size].astype(np.intp) << size
            seen = np.bincount(values, minlength=2 << size)
            more = members[: 2 << size] - 1  # wraps of a part without a key, beyond the first
            several = more > 0
            used, every = int((seen[several] > 0).sum()), int(several.sum())
            nonempty = events - seen[0]
            misses[size, start] = (more * several * seen).sum() / events
            missed = 0
            if used >= NEARLY * every:
                used = every
            else:
                # A part that came once in the sample is as likely to be new next time (Good,
                # Turing).
                missed = (more * (several & (seen == 1))).sum()
            wraps[size, start], keys[size, start] = (nonempty + missed) / events, used
    return wraps, keys, misses
