"""Rules on sensitive values: the figures of the sources, and windows against counting."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.anonymity import Distinct, Diversity, Entropy, Recursive
from ccbps.anonymity.diversity import effective_values
from ccbps.anonymity.partition import merged
from ccbps.errors import ParameterError

RULES = [Distinct(2), Distinct(3), Entropy(2), Entropy(2.5), Recursive(1.5, 2), Recursive(2, 3)]


def kept(rule: Diversity, values: list[int]) -> bool:
    counts = sorted(Counter(values).values(), reverse=True)
    if isinstance(rule, Distinct):
        return len(counts) >= rule.l
    if isinstance(rule, Entropy):
        total = sum(counts)
        entropy = sum(c / total * math.log(total / c) for c in counts)
        return entropy >= math.log(rule.l) - 1e-9
    assert isinstance(rule, Recursive)
    return bool(counts) and counts[0] < rule.c * sum(counts[rule.l - 1 :])


def test_classes_of_the_specification() -> None:
    four, nine = [4, 2, 2], [9, 1]
    assert [Distinct(n).allows(four) for n in (3, 4)] == [True, False]
    assert [Entropy(n).allows(four) for n in (2.82, 2.83)] == [True, False]
    assert effective_values(np.zeros(3, int), np.array(four), 1).round(2) == [2.83]
    assert [Recursive(c, 2).allows(four) for c in (1, 1.01)] == [False, True]
    assert [Recursive(c, 3).allows(four) for c in (2, 2.01)] == [False, True]
    assert [Distinct(n).allows(nine) for n in (2, 3)] == [True, False]
    assert effective_values(np.zeros(2, int), np.array(nine), 1).round(2) == [1.38]
    assert [Recursive(c, 2).allows(nine) for c in (9, 9.01)] == [False, True]


@pytest.mark.parametrize("rule", RULES, ids=repr)
@given(values=st.lists(st.integers(0, 3), min_size=1, max_size=12), longest=st.integers(1, 6))
def test_windows_are_counted_right(rule: Diversity, values: list[int], longest: int) -> None:
    found = rule.windows(np.array(values), 1, len(values) + 1, longest)
    for end in range(1, len(values) + 1):
        for size in range(1, longest + 1):
            expected = size <= end and kept(rule, values[end - size : end])
            assert found[end - 1, size - 1] == expected


@pytest.mark.parametrize("rule", RULES, ids=repr)
@given(
    one=st.lists(st.integers(0, 3), min_size=1, max_size=9),
    other=st.lists(st.integers(0, 3), min_size=1, max_size=9),
)
def test_a_union_of_classes_that_keep_a_rule_keeps_it(
    rule: Diversity, one: list[int], other: list[int]
) -> None:
    values, groups = np.array(one + other), np.array([0] * len(one) + [1] * len(other))
    assert rule.of_groups(groups, values, 2).tolist() == [kept(rule, one), kept(rule, other)]
    if kept(rule, one) and kept(rule, other):
        assert kept(rule, one + other)


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), max_size=30),
    st.integers(1, 6),
    st.sampled_from([None, *RULES]),
)
def test_merged_classes_are_unions_of_neighbours_and_enough(
    rows: list[tuple[int, int]], k: int, rule: Diversity | None
) -> None:
    numbers, values = (np.array([row[i] for row in rows], dtype=np.intp) for i in (0, 1))
    classes = np.unique(numbers, return_inverse=True)[1].astype(np.intp)
    out = merged(classes, k, rule, values)
    enough = len(rows) >= k and (rule is None or kept(rule, values.tolist()))
    assert (out >= 0).all() == (enough or not rows)
    if enough:
        assert np.array_equal(np.unique(out), np.arange(out.max() + 1))
        assert (np.diff(out[np.argsort(classes, kind="stable")]) >= 0).all()
        for number in range(int(out.max()) + 1):
            own = values[out == number].tolist()
            assert len(own) >= k
            assert rule is None or kept(rule, own)
        for number in np.unique(classes):
            assert len(np.unique(out[classes == number])) == 1


@pytest.mark.parametrize(
    ("rule", "arguments"),
    [(Distinct, (0,)), (Entropy, (0.5,)), (Recursive, (-1, 2)), (Recursive, (1, 1))],
)
def test_rules_that_ask_for_nothing(rule: type[Diversity], arguments: tuple[float, ...]) -> None:
    with pytest.raises(ParameterError):
        rule(*arguments)
