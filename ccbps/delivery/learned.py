"""Clusters and capacities that are learned from traffic, for a given number of keys.

Two things waste keys in the source's clustered and clustered-popular caches. All clusters have one
size and one capacity, so that some keys serve no part and some parts have no key; and half of the
keys are for whole groups, whether groups come again or not. Here a sample of traffic decides:

- Subscribers that are often in the same groups stand side by side, and a dynamic program cuts the
  row into clusters: fewest wraps, where a key costs the same everywhere (a Lagrange multiplier).
  A part of one member takes no key, since the member has one.
- As many keys are for whole groups as is best, given how often groups come again, and those that
  clusters have no use for. How often is estimated in two ways, of which the larger counts: by the
  groups that come again in the sample, and, for groups that the sample is too small to show twice,
  as if all were equally popular. When the cache is full, a group is taken in when it comes for the
  second time, so that groups that come once push nothing out.

For uniform groups nothing comes again, so all keys are for parts, of two sizes of clusters.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import Final, NamedTuple, Self

import numpy as np

from ccbps.arrays import Bytes, Index, Reals
from ccbps.delivery.clustered import ClusteredPopularCache
from ccbps.delivery.groups import Clusters, require_groups, similar_order
from ccbps.delivery.key_cache import NO_SNAPSHOT, Eviction, KeyCache
from ccbps.errors import ParameterError
from ccbps.records import read, write

MOST: Final = 12
"""Subscribers of a cluster."""
SAMPLE: Final = 1 << 14
"""Groups of the sample from which clusters are learned."""
SHARES: Final = 40
"""Shares of keys for whole groups that are tried."""
NEARLY: Final = 0.75
"""Of all parts of a cluster: if the sample has as many, there are keys for all of them."""
REMEMBERED: Final = 4
"""Digests of groups that came once, for each key."""


class LearnedCache(ClusteredPopularCache):
    """Whole groups that came twice, before parts along clusters: all learned from a sample.

    Attributes:
        subscribers: N.
        whole: names of whole groups.
        parts: the clustered cache.
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
        """
        Args:
            clusters: of subscribers.
            whole: groups in the cache of whole groups.
            parts: parts in the cache of each cluster; one number for all, or one for each.
            eviction: "frequency" or "recency".
        """
        super().__init__(clusters, whole, parts, eviction)
        self.seen = KeyCache(REMEMBERED * whole, "recency")

    @classmethod
    def learn(
        cls, groups: Bytes, subscribers: int, keys: int, eviction: Eviction = "frequency"
    ) -> Self:
        """What is best for traffic like this.

        Args:
            groups: a sample, packed, shape (events, subscribers / 8, rounded up); some ten
                thousand are enough for clusters, more for groups that seldom come again.
            subscribers: N.
            keys: of groups and parts, together; the subscribers' own keys are not counted.
            eviction: "frequency" or "recency".

        Raises:
            ParameterError: there is no group, or keys is negative.
        """
        require_groups(groups, subscribers)
        if not len(groups) or type(keys) is not int or keys < 0:
            raise ParameterError(
                f"groups must be at least one, and keys a whole number, at least 0, got "
                f"{len(groups)} groups and keys={keys!r}"
            )
        again, different = popularity(groups)
        seen = _seen_again(groups)
        most = max(round(different), len(seen))
        row = _Row(groups[:SAMPLE], subscribers)
        best: tuple[float, int, _Cut] | None = None
        for share in range(SHARES + 1 if most else 1):
            # Whole groups are worth most first, so shares are closer together near all keys.
            whole = min(round(keys * (1 - (1 - share / SHARES) ** 2)), most)
            cut = row.cut(keys - whole)
            hit = again * min(1.0, whole / different) if different else 0.0
            hit = max(hit, float(seen[:whole].sum()) / len(groups))
            cost = hit + (1 - hit) * cut.wraps
            if best is None or cost < best[0]:
                best = cost, whole, cut
        assert best is not None
        _, whole, cut = best
        if most:  # what clusters leave over
            whole = keys - sum(cut.keys)
        return cls(Clusters(cut.clusters), whole, cut.keys, eviction)

    def _snapshot(self) -> bytes:
        return write([super()._snapshot(), self.seen.snapshot()])

    def _restore(self, snapshot: bytes) -> None:
        caches, seen = read(tuple[bytes, bytes], snapshot, refusal=NO_SNAPSHOT)
        super()._restore(caches)
        self.seen.restore(seen)

    def _take(self, name: bytes) -> bool:
        digest = blake2b(name, digest_size=8).digest()
        if len(self.whole) >= self.whole.capacity and not self.seen.touch(digest):
            self.seen.add(digest)
            return False
        self.seen.remove(digest)
        return super()._take(name)


def popularity(groups: Bytes) -> tuple[float, float]:
    """Of groups that come again, their share p of events, and how many there are, S.

    As if all were equally popular: then two events are equal with probability p^2 / S, three with
    p^3 / S^2, which gives both. Groups of which no three are equal count as coming once.

    Args:
        groups: a sample, packed.
    """
    counts = np.array([*Counter(group.tobytes() for group in groups).values()], dtype=np.float64)
    events = float(len(groups))
    pairs = (counts * (counts - 1)).sum() / max(1.0, events * (events - 1))
    triples = (counts * (counts - 1) * (counts - 2)).sum()
    triples /= max(1.0, events * (events - 1) * (events - 2))
    if not triples:
        return 0.0, 0.0
    share = min(1.0, pairs * pairs / triples)
    return float(share), float(share * share / pairs)


def _seen_again(groups: Bytes) -> Index:
    """How often each group came again in the sample, the most popular one first; at least once."""
    counts = np.array([*Counter(group.tobytes() for group in groups).values()], dtype=np.intp) - 1
    return np.sort(counts[counts > 0])[::-1]


class _Cut(NamedTuple):
    """Clusters, keys for the parts of each, and wraps of an event."""

    clusters: list[list[int]]
    keys: list[int]
    wraps: float


class _Row:
    """Subscribers in a row, those that are often in the same groups side by side."""

    def __init__(self, groups: Bytes, subscribers: int) -> None:
        bits = np.unpackbits(groups, axis=1, count=subscribers, bitorder="little").T
        self.order = similar_order(groups, subscribers)
        self.wraps, self.keys, self.misses = _segments(bits[self.order])

    def cut(self, keys: int) -> _Cut:
        """The row in clusters, with at most so many keys.

        Of the two cuts on either side of that number the better one. That with too many keys gets
        the same share of what it wants for each cluster, and misses the others."""
        low, high = 0.0, 1.0
        for _ in range(40):
            price = (low + high) / 2
            _, used = self._cut_at(price)
            low, high = (low, price) if used <= keys else (price, high)
        return min((self._fitted(low, keys), self._fitted(high, keys)), key=lambda cut: cut.wraps)

    def _fitted(self, price: float, keys: int) -> _Cut:
        ends, used = self._cut_at(price)
        share = min(1.0, keys / used) if used else 1.0
        clusters, each, wraps = [], [], 0.0
        for start, end in ends:
            place = end - start - 1, start
            clusters.append([int(one) for one in self.order[start:end]])
            each.append(int(self.keys[place] * share))
            wraps += float(self.wraps[place] + (1 - share) * self.misses[place])
        return _Cut(clusters, each, wraps)

    def _cut_at(self, price: float) -> tuple[list[tuple[int, int]], int]:
        """The best clusters where a key costs so many wraps; and keys of all of them."""
        cost = self.wraps + price * self.keys
        count = cost.shape[1]
        best, last = np.zeros(count + 1), np.zeros(count + 1, dtype=np.intp)
        for end in range(1, count + 1):
            most = min(MOST, end)
            sizes = np.arange(most)
            found = best[end - 1 - sizes] + cost[sizes, end - 1 - sizes]
            size = int(found.argmin())
            best[end], last[end] = found[size], size + 1
        ends, end, used = [], count, 0
        while end:
            start = end - int(last[end])
            used += int(self.keys[end - start - 1, start])
            ends.append((start, end))
            end = start
        return ends[::-1], used


def _segments(rows: Bytes) -> tuple[Reals, Index, Reals]:
    """Of clusters of each size, 1 .. `MOST`, from each place on: wraps of an event; keys; and how
    many more wraps there are without keys; shape (sizes, subscribers). A cluster that does not fit
    is worth nothing."""
    count, events = rows.shape
    wraps = np.full((MOST, count), np.inf)
    keys, misses = np.zeros((MOST, count), dtype=np.intp), np.zeros((MOST, count))
    multiple = np.bitwise_count(np.arange(1 << MOST)).astype(np.intp)
    for start in range(count):
        values = np.zeros(events, dtype=np.intp)
        for size in range(min(MOST, count - start)):
            values |= rows[start + size].astype(np.intp) << size
            seen = np.bincount(values, minlength=2 << size)
            parts = multiple[: 2 << size]
            several = parts > 1
            found, every = int((seen[several] > 0).sum()), int(several.sum())
            nonempty = events - seen[0]
            misses[size, start] = ((parts - 1) * several * seen).sum() / events
            if found >= NEARLY * every:
                wraps[size, start], keys[size, start] = nonempty / events, every
                continue
            # What came once in the sample is as likely to be new next time (Good, Turing).
            missed = ((parts - 1) * (several & (seen == 1))).sum()
            wraps[size, start] = (nonempty + missed) / events
            keys[size, start] = found
    return wraps, keys, misses
