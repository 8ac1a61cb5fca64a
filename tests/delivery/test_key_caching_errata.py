"""Errata of [OP01], the paper on key caches, beyond those in `test_delivery_strategies`."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ccbps.delivery import expected
from ccbps.delivery.clustered import ClusteredCache
from ccbps.delivery.expected import PopularSet, uniform_groups
from ccbps.delivery.groups import Clusters, even_sizes, pack_groups
from ccbps.delivery.strategies import BuildUpCache, KeyHierarchy, SimpleCache


def test_the_rule_gives_113_clusters_and_not_114() -> None:
    """2^(N / K) >= C / K holds for 113; Table 1's column is for 114, and takes fewer."""
    assert expected.cluster_count(1000, 50_000) == 113
    assert 2 ** (1000 / 113) >= 50_000 / 113
    assert 2 ** (1000 / 114) < 50_000 / 114
    # The chance of a hit, by equation 4.
    chance = 50_000 / 114 / 2 ** (1000 / 114)
    assert chance == pytest.approx(1.0033, abs=0.00005)
    popular = {"popular": 0.8, "groups": 100_000}
    for clusters, uniform, again in ((113, 128.8, 77.7), (114, 112.7, 68.0)):
        assert expected.clustered_popular(1000, 100_000, clusters) == pytest.approx(
            uniform, abs=0.05
        )
        found = expected.clustered_popular(1000, 100_000, clusters, **popular)
        assert found == pytest.approx(again, abs=0.05)


def test_equation_4_is_no_upper_bound() -> None:
    """27 subscribers in 4 clusters, by the rule: of the three with 7, not all groups have keys."""
    assert expected.cluster_count(27, 430) == 4
    assert even_sizes(27, 4) == [7, 7, 7, 6]
    bound = expected.clustered(27, 430, 4)
    assert bound == pytest.approx(4.0, abs=0.05)
    cache = ClusteredCache(Clusters.of_sizes(even_sizes(27, 4)), 430 // 4)
    groups = uniform_groups(12_000, 27, np.random.default_rng(1))
    assert cache.count(groups)[6_000:].mean() > 1.1 * bound


@pytest.mark.parametrize(
    ("share", "groups", "keys", "better"),
    [(0.8, 100_000, 5_000, "clustered"), (0.9, 10_000, 10_000, "simple")],
)
def test_clustered_popular_is_not_best_for_all_sizes_of_caches(
    share: float, groups: int, keys: int, better: str
) -> None:
    """By the formulas that Figure 8 shows, with either popular set of Table 1."""
    popular = {"popular": share, "groups": groups}

    def both(keys: int) -> tuple[float, dict[str, float]]:
        count, half = (expected.cluster_count(1000, size) for size in (keys, keys / 2))
        others = {
            "clustered": expected.clustered(1000, keys, count),
            "simple": expected.simple(1000, keys, **popular),
        }
        return expected.clustered_popular(1000, keys, half, **popular), others

    found, others = both(keys)
    assert min(others, key=lambda name: others[name]) == better
    assert others[better] < 0.95 * found
    found, others = both(50_000)
    assert found < min(others.values())


def test_strategies_do_not_perform_alike_for_popular_groups() -> None:
    """Simple and build-up caches gain most from groups that come again, trees nothing; clustered
    caches gain where not all parts have keys, since parts of popular groups come more often."""
    rng = np.random.default_rng(2)
    again = PopularSet(64, 100, 0.9, rng)
    warm, events = again.draw(4_000, rng), again.draw(2_000, rng)
    tree = KeyHierarchy(64).count(events).mean()
    assert tree == pytest.approx(expected.key_hierarchy(64), rel=0.03)
    for strategy in (SimpleCache(64, 100), BuildUpCache(64, 100)):
        strategy.count(warm)
        assert strategy.count(events).mean() < tree / 3
    means = []
    for groups in (np.concatenate([warm, events]), uniform_groups(6_000, 64, rng)):
        cache = ClusteredCache(Clusters.of_sizes([16] * 4), 100)
        means.append(cache.count(groups)[4_000:].mean())
    assert means[0] < 0.7 * means[1]


@pytest.mark.parametrize("levels", [4, 6, 8, 10])
def test_a_sublinear_number_of_encryptions_takes_polynomially_many_keys(levels: int) -> None:
    """Clusters of log2 N subscribers: N / log2 N encryptions of any event, with fewer than N^2
    keys. The source says that every sublinear number takes exponentially many keys."""
    subscribers = 1 << levels
    clusters = -(-subscribers // levels)
    sizes = even_sizes(subscribers, clusters)
    assert max(sizes) == levels
    capacity = 1 << levels
    keys = clusters * capacity
    assert keys < subscribers**2
    cache = ClusteredCache(Clusters.of_sizes(sizes), capacity)
    # Event v has, in each cluster, the part whose bits are v: after all, every part has its key.
    parts = (np.arange(capacity)[:, None] >> np.arange(levels)) & 1
    rows = np.concatenate([parts[:, :size] for size in sizes], axis=1).astype(np.bool_)
    cache.count(pack_groups(rows))
    rng = np.random.default_rng(3)
    everybody = pack_groups(np.ones((1, subscribers), dtype=np.bool_))
    assert cache.count(everybody).tolist() == [clusters]
    assert cache.count(uniform_groups(500, subscribers, rng)).max() <= clusters
    # And the source's own bound allows it: it says p >= N / log2 S, no more.
    assert expected.source_bound(subscribers, keys) <= clusters
    assert clusters / subscribers == pytest.approx(1 / math.log2(subscribers), rel=0.1)
