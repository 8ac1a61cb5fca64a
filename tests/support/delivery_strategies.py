"""Every strategy of delivery to groups, small, and groups as traffic brings them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ccbps.arrays import Bytes
from ccbps.delivery import (
    BuildUpCache,
    ClusteredCache,
    ClusteredPopularCache,
    Clusters,
    KeyHierarchy,
    LearnedCache,
    Naive,
    SimpleCache,
    Strategy,
    pack_groups,
)
from ccbps.delivery.groups import even_sizes
from ccbps.delivery.key_cache import Eviction

EVICTIONS: tuple[Eviction, ...] = ("frequency", "recency")


def uniform(seed: int, events: int, subscribers: int) -> Bytes:
    """Draw uniform groups."""
    rng = np.random.default_rng(seed)
    return pack_groups(rng.integers(0, 2, (events, subscribers)).astype(np.bool_))


def popular(seed: int, events: int, subscribers: int, share: float, groups: int) -> Bytes:
    """Draw uniform groups, and with probability `share` one of a few groups that come again."""
    rng = np.random.default_rng(seed)
    again = uniform(12345, groups, subscribers)
    drawn = uniform(seed + 1, events, subscribers)
    rows = rng.random(events) < share
    drawn[rows] = again[rng.integers(0, groups, int(rows.sum()))]
    return drawn


def makers(subscribers: int, eviction: Eviction = "frequency") -> dict[str, Callable[[], Strategy]]:
    """Return a function for each strategy, by its name."""
    clusters = Clusters.of_sizes(even_sizes(subscribers, -(-subscribers // 4)), "random", seed=2)
    sample = popular(3, 200, subscribers, 0.7, 6)
    return {
        "naive": lambda: Naive(subscribers),
        "simple": lambda: SimpleCache(subscribers, 5, eviction),
        "build-up": lambda: BuildUpCache(subscribers, 5, eviction),
        "clustered": lambda: ClusteredCache(clusters, 4, eviction),
        "clustered-popular": lambda: ClusteredPopularCache(clusters, 3, 4, eviction),
        "hierarchy": lambda: KeyHierarchy(subscribers),
        "learned": lambda: LearnedCache.learn(sample, subscribers, 30, eviction),
        "nothing cached": lambda: ClusteredPopularCache(clusters, 0, 0, eviction),
    }


def strategy_of(name: str, subscribers: int, eviction: Eviction = "frequency") -> Strategy:
    """Make a strategy."""
    return makers(subscribers, eviction)[name]()


NAMES = [*makers(8)]
