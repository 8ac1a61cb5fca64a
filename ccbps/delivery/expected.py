"""Expected numbers of encryptions per event, and groups drawn as in the source.

There are N subscribers, C keys in the cache and K clusters. Groups are uniform among all 2^N, or,
with probability p, uniform in a popular set of S groups. The cache is assumed to hold as many
groups of that set as it can ("smart").

*Errata*, [OP01]: "probability (p - 1)" is 1 - p; "equations 4a and 4b" of section 4.1 are 3a and
3b. Of the sixteen numbers of Table 1 fifteen follow from the equations. The sixteenth,
clustered-popular caches for the small popular set, is printed as 6.7; equation 6 gives 10.07. (6.7
follows if a cached popular group costs nothing, and another popular group costs one encryption for
each cluster.) Equation 4 gives more than one hit per event where the cache of a cluster is larger
than the number of its groups, as in the column for 114 clusters; it is used unchanged.

Source: [OP01] section 4, equations 1 to 6d, and section 6 for the bound.
"""

from __future__ import annotations

import math

import numpy as np

from ccbps.arrays import Bytes
from ccbps.checks import number, whole
from ccbps.errors import ParameterError


def naive(subscribers: int) -> float:
    """Return the expected encryptions without a cache: equation 1."""
    return subscribers / 2


def simple(subscribers: int, cache: float, *, popular: float = 0.0, groups: int = 0) -> float:
    """Return the expected encryptions of simple caches: equation 2, or 3 with a popular set.

    Args:
        subscribers: number N of subscribers.
        cache: number C of keys in the cache.
        popular: probability p of the popular set; 0 for uniform groups.
        groups: number S of groups of the popular set.
    """
    return _whole_groups_first(naive(subscribers), subscribers, cache, popular, groups)


def clustered(subscribers: int, cache: float, clusters: int) -> float:
    """Return the expected encryptions of clustered caches: equation 4, for uniform groups.

    The source has no equation for popular groups, which cost the same.
    """
    size, keys = subscribers / clusters, cache / clusters
    hit = keys / 2.0**size
    return float(clusters * (hit + (1 - hit) * size / 2))


def clustered_popular(
    subscribers: int, cache: float, clusters: int, *, popular: float = 0.0, groups: int = 0
) -> float:
    """Return the expected encryptions of clustered-popular caches.

    This is equation 5, or 6 with a popular set. Half of the cache is for whole groups.

    Args:
        subscribers: number N of subscribers.
        cache: number C of keys in both halves of the cache.
        clusters: number K of clusters.
        popular: probability p of the popular set; 0 for uniform groups.
        groups: number S of groups of the popular set.
    """
    miss = clustered(subscribers, cache / 2, clusters)
    return _whole_groups_first(miss, subscribers, cache / 2, popular, groups)


def _whole_groups_first(
    miss: float, subscribers: int, cache: float, popular: float, groups: int
) -> float:
    """Return the expected encryptions if a cached group costs 1, and any other `miss`."""
    if not popular:
        hit = cache / 2.0**subscribers
        return hit + (1 - hit) * miss
    hit = min(1.0, cache / groups)
    return (1 - popular) * miss + popular * (hit + (1 - hit) * miss)


def cluster_count(subscribers: int, cache: float) -> int:
    """Return the number K of clusters by the source's rule.

    It is the largest K for which a cluster has no fewer groups than keys: 2^(N / K) >= C / K.

    Raises:
        ParameterError: there is no such number.
    """
    counts = [k for k in range(1, subscribers + 1) if 2.0 ** (subscribers / k) >= cache / k]
    if not counts:
        raise ParameterError(f"a cache of {cache} keys is too large for {subscribers} subscribers")
    return max(counts)


def key_hierarchy(subscribers: int) -> float:
    """Return the expected keys of a binary tree that exactly cover a uniform group: 0.35889 N.

    A node is in the cover if all below it are in the group, and not all below its sibling are.

    Raises:
        ParameterError: the number of subscribers is not a power of two.
    """
    if subscribers < 1 or subscribers & subscribers - 1:
        raise ParameterError(f"subscribers must be a power of two, got {subscribers}")
    total, size = 2.0**-subscribers, 1
    while size < subscribers:
        total += subscribers / size * (2.0**-size - 4.0**-size)
        size *= 2
    return total


def source_bound(subscribers: int, keys: int) -> float:
    """Return the source's bound: if every group is p of S keys, S^p >= 2^N, so p >= N / log2 S."""
    return subscribers / math.log2(keys)


def counting_bound(subscribers: int, keys: int) -> int:
    """Return the smallest p for which there are as many sets of at most p of S keys as groups.

    Some group takes at least p encryptions, whatever the keys are. The bound is sharper than
    `source_bound`, which counts sequences.
    """
    sets, total, count = 1, 1, 0
    while total < 1 << subscribers and count < keys:
        sets = sets * (keys - count) // (count + 1)
        count += 1
        total += sets
    return count


def uniform_groups(events: int, subscribers: int, rng: np.random.Generator) -> Bytes:
    """Draw subsets of the subscribers, all with equal probability.

    Returns:
        packed groups, shape (events, subscribers / 8, rounded up).
    """
    width = -(-subscribers // 8)
    groups = rng.integers(0, 256, (events, width), dtype=np.uint8)
    groups[:, -1] &= np.uint8(255 >> (8 * width - subscribers))
    return groups


class PopularSet:
    """Groups that come with probability p, each as often as the others; otherwise uniform groups.

    Args:
        subscribers: number N of subscribers.
        groups: number S of groups of the popular set, which are uniform.
        share: probability p of the popular set.
        rng: generator that draws the set.

    Attributes:
        popular: groups of the popular set, packed, shape (S, subscribers / 8, rounded up).

    Raises:
        ParameterError: the share is no probability, or there are no groups.
    """

    def __init__(
        self, subscribers: int, groups: int, share: float, rng: np.random.Generator
    ) -> None:
        self.subscribers, self.share = subscribers, number("share", share, 0, 1)
        self.popular = uniform_groups(whole("groups", groups, 1), subscribers, rng)

    def draw(self, events: int, rng: np.random.Generator) -> Bytes:
        """Draw the groups of a number of events, packed."""
        groups = uniform_groups(events, self.subscribers, rng)
        rows = np.flatnonzero(rng.random(events) < self.share)
        groups[rows] = self.popular[rng.integers(0, len(self.popular), len(rows))]
        return groups
