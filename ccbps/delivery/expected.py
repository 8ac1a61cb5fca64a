"""Expected numbers of encryptions per event: the source's formulas, and the bounds.

N subscribers, C keys in the cache, K clusters. Groups are uniform among all 2^N, or, with
probability p, uniform in a popular set of S groups, of which the cache is taken to hold as many as
it can ("smart").

*Errata*, [OP01]: "probability (p - 1)" is 1 - p; "equations 4a and 4b" of section 4.1 are 3a and
3b. Of Table 1's sixteen numbers fifteen come out. The sixteenth, clustered-popular caches for the
small popular set, is printed as 6.7; equation 6 gives 10.07. (6.7 comes out if a popular group that
is cached costs nothing, and one that is not costs one encryption for each cluster.) Equation 4 says
more than one hit per event where a cluster's cache is larger than all its groups, as in the column
for 114 clusters; it is used as it stands.

Source: [OP01] section 4, equations 1 to 6d, and section 6 for the bound.
"""

from __future__ import annotations

import math

from ccbps.errors import ParameterError


def naive(subscribers: int) -> float:
    """Equation 1."""
    return subscribers / 2


def simple(subscribers: int, cache: float, *, popular: float = 0.0, groups: int = 0) -> float:
    """Equation 2, and with a popular set equation 3.

    Args:
        subscribers: N.
        cache: C.
        popular: p; 0 for uniform groups.
        groups: S.
    """
    if not popular:
        found = cache / 2.0**subscribers
        return found + (1 - found) * naive(subscribers)
    hit = min(1.0, cache / groups)
    of_popular = hit + (1 - hit) * naive(subscribers)
    return (1 - popular) * naive(subscribers) + popular * of_popular


def clustered(subscribers: int, cache: float, clusters: int) -> float:
    """Equation 4: uniform groups; the source gives none for popular ones, which cost the same."""
    size, each = subscribers / clusters, cache / clusters
    hit = each / 2.0**size
    return float(clusters * (hit + (1 - hit) * size / 2))


def clustered_popular(
    subscribers: int, cache: float, clusters: int, *, popular: float = 0.0, groups: int = 0
) -> float:
    """Equation 5, and with a popular set equation 6; half of the cache is for whole groups.

    Args:
        subscribers: N.
        cache: C, both halves.
        clusters: K.
        popular: p; 0 for uniform groups.
        groups: S.
    """
    half, rest = cache / 2, clustered(subscribers, cache / 2, clusters)
    if not popular:
        hit = half / 2.0**subscribers
        return hit + (1 - hit) * rest
    hit = min(1.0, half / groups)
    return (1 - popular) * rest + popular * (hit + (1 - hit) * rest)


def cluster_count(subscribers: int, cache: float) -> int:
    """The source's rule: the largest K for which a cluster has no fewer groups than keys,
    2^(N / K) >= C / K."""
    found = [k for k in range(1, subscribers + 1) if 2.0 ** (subscribers / k) >= cache / k]
    if not found:
        raise ParameterError(f"a cache of {cache} keys is too large for {subscribers} subscribers")
    return max(found)


def key_hierarchy(subscribers: int) -> float:
    """Keys of a binary tree that exactly cover a uniform group, N a power of two: 0.35889 N.

    A node is in the cover if all below it are in the group, and not all below its sibling are.
    """
    if subscribers < 1 or subscribers & subscribers - 1:
        raise ParameterError(f"subscribers must be a power of two, got {subscribers}")
    total, size = 2.0**-subscribers, 1
    while size < subscribers:
        total += subscribers / size * (2.0**-size - 4.0**-size)
        size *= 2
    return total


def source_bound(subscribers: int, keys: int) -> float:
    """The source's bound: if every group is p of S keys, S^p >= 2^N, so p >= N / log2 S."""
    return subscribers / math.log2(keys)


def counting_bound(subscribers: int, keys: int) -> int:
    """The least p for which sets of at most p of S keys are as many as groups: for some group, at
    least as many encryptions are needed, however keys are chosen.

    Sharper than `source_bound`, which counts sequences.
    """
    sets, total, count = 1, 1, 0
    while total < 1 << subscribers and count < keys:
        sets = sets * (keys - count) // (count + 1)
        count += 1
        total += sets
    return count
