"""Attacks on groups and classes: figures of formulas and of the source, and what rules change."""

from __future__ import annotations

import pytest

from ccbps.anonymity import expected_candidates
from ccbps.attacks import cloaked_bounds, colluding_versions, fresh_cloaks, homogeneous_classes
from ccbps.errors import ParameterError


def test_bounds_are_found_of_a_group_and_not_of_a_member() -> None:
    """40 ranges of 1,000 values, 500 events: an error of 2 without groups, and of 245 in fives."""
    error = cloaked_bounds(runs=30)["error of both bounds"]
    assert error.undefended == pytest.approx(error.expected, abs=0.6)
    assert error.defended == pytest.approx(245, abs=80)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "expected", "within"), [(2, 134, 14), (5, 245, 20), (10, 335, 25)])
def test_errors_of_bounds_by_size_of_groups(k: int, expected: float, within: float) -> None:
    outcome = cloaked_bounds(k=k, runs=400)
    error, cheapest, within_hull = outcome.figures
    assert error.undefended == pytest.approx(2, abs=0.2)
    assert error.defended == pytest.approx(expected, abs=within)
    # A guess within the hull is better where groups are large.
    assert within_hull.defended is not None
    assert (within_hull.defended < 0.85 * expected) == (k > 2)
    # Groups whose hulls cost less hide less.
    assert cheapest.defended is not None
    assert cheapest.defended < expected + within


def test_fresh_groups_are_intersected_and_sticky_ones_are_not() -> None:
    """100 subscribers, k = 10: 10, 1.8 and 1.1 candidates after 1, 2 and 3 epochs."""
    assert [round(expected_candidates(100, 10, t), 1) for t in (1, 2, 3)] == [10, 1.8, 1.1]
    figures = fresh_cloaks(epochs=3, runs=8).figures
    # Groups of `cloak` have k members or a few more.
    for figure, within in zip(figures, (3, 1.2, 0.6), strict=True):
        assert figure.undefended == pytest.approx(figure.expected, abs=within)
        assert figure.defended == figures[0].undefended


def test_what_two_receivers_find_on_average() -> None:
    fewest, mean, share = colluding_versions(runs=3).figures
    assert (fewest.undefended, fewest.defended) == (1, 3)
    assert mean.undefended < 3 < (mean.defended or 0)
    assert share.undefended > 0.2 and share.defended == 0


def test_as_many_values_are_certain_as_k_records_have_one_value() -> None:
    certain, _, loss = homogeneous_classes(records=600, k=4).figures
    assert certain.undefended == pytest.approx(certain.expected, abs=0.1)
    assert certain.defended == 0
    assert (loss.defended or 0) > loss.undefended


@pytest.mark.parametrize("often", [1.0, 7.0])
def test_one_value_alone_is_refused(often: float) -> None:
    with pytest.raises(ParameterError, match="often must be"):
        homogeneous_classes(often=often)
