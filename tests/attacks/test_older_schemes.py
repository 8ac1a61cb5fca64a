"""Attacks on broken and older schemes: their figures without and with the defence."""

from __future__ import annotations

import pytest

from ccbps import attacks


@pytest.mark.parametrize(
    ("name", "parameters", "figure", "undefended", "defended"),
    [
        ("break-aspe", {"subscriptions": 10}, "values read", 1.0, 0.2),
        ("break-aspe", {"subscriptions": 10}, "bounds read", 1.0, None),
        ("solve-aspe", {"events": 60}, "values read", 1.0, 0.2),
    ],
)
def test_figures_of_schemes(
    name: str, parameters: dict[str, int], figure: str, undefended: float, defended: float | None
) -> None:
    """The adversary gets at least `undefended`, and at most `defended` with the defence."""
    outcome = attacks.run(name, **parameters)
    measured = outcome[figure]
    assert measured.undefended >= undefended
    assert defended is None or (measured.defended is not None and measured.defended <= defended)
    for each in outcome.figures:
        if each.expected is not None:
            assert each.undefended == pytest.approx(each.expected, rel=0.1)
