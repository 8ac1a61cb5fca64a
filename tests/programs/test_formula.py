"""Formulas: thresholds mean counts, and their gates are counted before they are built."""

from __future__ import annotations

import numpy as np
import pytest

from ccbps.programs.branching import event_bit
from ccbps.programs.formula import at_least, at_least_gates, conjunction, exactly, gates
from tests.support.program_values import evaluate


@pytest.mark.parametrize("n", range(1, 9))
def test_thresholds_mean_counts_and_have_the_gates_that_are_told(n: int) -> None:
    # Parts of 1, 2 and 3 gates, over event bits of their own.
    widths = [i % 3 + 2 for i in range(n)]
    starts = np.cumsum([0, *widths]).tolist()
    parts = [
        conjunction([event_bit(start + i) for i in range(width)])
        for start, width in zip(starts, widths, strict=False)
    ]
    event = np.random.default_rng(n).random((starts[-1], 300)) < 0.8
    private = np.zeros((0, 300), dtype=np.bool_)
    counts = np.sum([evaluate(part, event, private) for part in parts], axis=0)
    for k in range(-1, n + 2):
        formula = at_least(k, parts)
        assert np.array_equal(evaluate(formula, event, private), counts >= k)
        assert gates(formula) == at_least_gates(k, [gates(part) for part in parts])
        if 0 <= k <= n:
            assert np.array_equal(evaluate(exactly(k, parts), event, private), counts == k)
