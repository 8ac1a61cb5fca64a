"""Runs of neighbours: the cheapest ones, against programmes that try everything."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.anonymity import Distinct, Diversity, Entropy, Recursive
from ccbps.anonymity.contiguous import cost, runs
from ccbps.anonymity.partition import partition

Range = tuple[int, int]


def group_cost(group: list[Range]) -> int:
    low, high = min(a for a, _ in group), max(b for _, b in group)
    return sum((high - low) - (b - a) for a, b in group)


def cheapest_runs(items: list[Range], k: int, rule: Diversity | None) -> float:
    """Try every way to cut the sorted ranges."""
    items = sorted(items)
    best = math.inf
    for cuts in range(2 ** (len(items) - 1)):
        ends = [i + 1 for i in range(len(items) - 1) if cuts >> i & 1]
        edges = [0, *ends, len(items)]
        groups = [items[a:b] for a, b in itertools.pairwise(edges)]
        if all(len(g) >= k and keeps(rule, g) for g in groups):
            best = min(best, sum(map(group_cost, groups)))
    return best


def keeps(rule: Diversity | None, group: list[Range]) -> bool:
    return rule is None or rule.allows([group.count(item) for item in set(group)])


def cheapest_partition(items: list[Range], k: int, rule: Diversity) -> float:
    """Try every partition into any sets."""

    def rest_of(rest: list[Range]) -> float:
        if not rest:
            return 0
        first, *others = rest
        best = math.inf
        for size in range(k - 1, len(others) + 1):
            for chosen in itertools.combinations(range(len(others)), size):
                group = [first, *(others[i] for i in chosen)]
                if keeps(rule, group):
                    left = [others[i] for i in range(len(others)) if i not in chosen]
                    best = min(best, group_cost(group) + rest_of(left))
        return best

    return rest_of(items)


def greedy(items: list[Range], k: int, rule: Diversity) -> float:
    groups: list[list[Range]] = []
    current: list[Range] = []
    for item in sorted(items):
        current.append(item)
        if len(current) >= k and keeps(rule, current):
            groups.append(current)
            current = []
    if current:
        groups[-1] += current
    return sum(map(group_cost, groups))


def found_cost(items: list[Range], k: int, rule: Diversity | None) -> float:
    ends = np.array(items, dtype=np.uint64).reshape(-1, 2)
    values = np.unique(ends, axis=0, return_inverse=True)[1].reshape(-1)
    groups = partition(
        ends[None, :, 0], ends[None, :, 1], np.ones(1), k, rule, values if rule else None
    )
    if groups[0] < 0:
        return math.inf
    members = [[items[i] for i in np.flatnonzero(groups == g)] for g in range(groups.max() + 1)]
    assert all(len(g) >= k and keeps(rule, g) for g in members)
    assert cost(ends[:, 0], ends[:, 1], groups) == sum(map(group_cost, members))
    return sum(map(group_cost, members))


ranges = st.tuples(st.integers(0, 12), st.integers(0, 6)).map(lambda p: (p[0], p[0] + p[1]))
rules = st.sampled_from([None, Distinct(2), Distinct(3), Entropy(2), Recursive(2, 2)])


@given(st.lists(ranges, min_size=1, max_size=9), st.integers(1, 4))
def test_runs_are_the_cheapest(items: list[Range], k: int) -> None:
    assert found_cost(items, k, None) == cheapest_runs(items, k, None)


@given(st.lists(ranges, min_size=1, max_size=8), st.integers(1, 4), rules)
def test_runs_that_keep_a_rule_are_the_cheapest_of_few_members(
    items: list[Range], k: int, rule: Diversity | None
) -> None:
    found, best = found_cost(items, k, rule), cheapest_runs(items, k, rule)
    if len(items) <= 3 * k - 1:
        assert found == best
    else:  # longer runs are tried only where shorter ones do not suffice
        assert found >= best
        assert math.isinf(found) == math.isinf(best)


def test_costs_of_the_source_greedy_runs_and_any_sets() -> None:
    """8 ranges of 1 to 39 values, k = 3, l = 2, 60 times: 312, 259 and 256 on average."""
    rule, costs = Distinct(2), []
    for seed in range(60):
        rng = random.Random(seed)
        items = [(a, a + rng.randrange(1, 40)) for a in (rng.randrange(100) for _ in range(8))]
        costs.append((greedy(items, 3, rule), found_cost(items, 3, rule)))
        costs[-1] += (cheapest_partition(items, 3, rule),)
    assert [round(sum(column) / 60) for column in zip(*costs, strict=True)] == [312, 259, 256]
    assert sum(own == best for _, own, best in costs) == 54


def test_blocks_and_slabs_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    lows = np.sort(rng.integers(0, 10_000, 500)).astype(np.uint64)
    highs = lows + rng.integers(0, 300, 500).astype(np.uint64)
    whole = runs(lows, highs, 4)
    monkeypatch.setattr("ccbps.anonymity.contiguous.SLAB", 40)
    assert np.array_equal(runs(lows, highs, 4), whole)


def test_values_beyond_floats() -> None:
    """Bounds of 64 bits: costs count from the least bound, so near values stay apart."""
    base = 2**64 - 20
    lows = np.array([base, base + 1, base + 10, base + 11], dtype=np.uint64)
    assert runs(lows, lows, 2).tolist() == [0, 2]
