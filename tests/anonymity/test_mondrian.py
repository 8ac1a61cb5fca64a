"""Mondrian, against a recursion that cuts one part after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.anonymity import Distinct, Diversity, Entropy, Recursive
from ccbps.anonymity.mondrian import mondrian

Point = tuple[int, ...]


def parts(
    rows: list[int],
    points: list[Point],
    scale: list[int],
    k: int,
    rule: Diversity | None,
    values: list[int],
) -> list[list[int]]:
    def width(d: int) -> float:
        column = [points[row][d] for row in rows]
        return (max(column) - min(column)) / scale[d]

    def keeps(half: list[int]) -> bool:
        own = [values[row] for row in half]
        return rule is None or rule.allows([own.count(value) for value in set(own)])

    for d in sorted(range(len(scale)), key=lambda d: -width(d)):
        order = sorted(rows, key=lambda row: points[row][d])
        cuts = [
            c
            for c in range(k, len(order) - k + 1)
            if points[order[c - 1]][d] != points[order[c]][d]
        ]
        if not cuts:
            continue
        cut = min(cuts, key=lambda c: (abs(2 * c - len(order)), c))
        halves = order[:cut], order[cut:]
        if all(map(keeps, halves)):
            return [p for half in halves for p in parts(half, points, scale, k, rule, values)]
    return [rows]


@given(
    st.lists(st.tuples(*[st.integers(0, 9)] * 2, st.integers(0, 2)), min_size=1, max_size=40),
    st.integers(1, 4),
    st.sampled_from([None, Distinct(2), Entropy(1.5), Recursive(3, 2)]),
)
def test_parts_are_those_of_the_recursion(
    rows: list[Point], k: int, rule: Diversity | None
) -> None:
    points, values = [row[:2] for row in rows], [row[2] for row in rows]
    scale = [9, 20]
    expected = parts([*range(len(rows))], points, scale, k, rule, values)
    found = mondrian(
        np.array(points, dtype=np.uint64).T, np.array(scale, float), k, rule, np.array(values)
    )
    numbered = [sorted(np.flatnonzero(found == n).tolist()) for n in range(found.max() + 1)]
    assert numbered == [sorted(part) for part in expected]


@pytest.mark.slow
def test_a_million_points() -> None:
    rng = np.random.default_rng(2)
    points = rng.integers(0, 1 << 20, (3, 1_000_000), dtype=np.uint64)
    sizes = np.bincount(mondrian(points, np.full(3, 2.0**20), 10))
    assert sizes.min() >= 10
    assert sizes.max() < 20
