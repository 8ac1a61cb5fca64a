"""Attacks on broken and older schemes: their figures without and with the defence."""

from __future__ import annotations

import pytest

from ccbps import attacks

Bounds = tuple[float, float | None]
"""The least that the adversary gets without the defence, and the most that it gets with it."""


@pytest.mark.parametrize(
    ("name", "parameters", "figures"),
    [
        (
            "break-aspe",
            {"events": 200, "subscriptions": 5},
            {"values read": (1.0, 0.2), "bounds read": (1.0, None)},
        ),
        ("solve-aspe", {"events": 60}, {"values read": (1.0, 0.2)}),
        ("read-prefixes", {"events": 200, "intervals": 50}, {"events placed": (0.9, 0.6)}),
        ("extend-prefixes", {"events": 300}, {"events placed": (0.9, 0.7)}),
        (
            "unmask-values",
            {"events": 2000, "runs": 10},
            {"values read": (0.9, 0.3), "values read, one known event": (1.0, 0.3)},
        ),
        (
            "divide-paillier",
            {},
            {
                "values read, with subscriptions": (1.0, 0.3),
                "values within 1, events alone": (0.99, None),
            },
        ),
        ("guess-topics", {"topics": 6, "events": 120}, {"topics of events read": (1.0, 0.65)}),
        ("replace-requests", {"subscribers": 2}, {"payloads read": (1.0, 0.0)}),
        ("rank-topics", {"topics": 50, "events": 2000}, {"events named": (0.4, 0.35)}),
        (
            "pool-user-keys",
            {"values": 20, "events": 100},
            {"events read": (1.0, 0.6), "subscriptions read": (1.0, None)},
        ),
        ("rank-tokens", {}, {"events named": (0.5, 0.4)}),
        ("read-access-trees", {"events": 300, "comparisons": 8}, {"events read": (1.0, 0.3)}),
        (
            "pool-layers",
            {"filters": 2},
            {
                "filters read by two brokers": (1.0, 0.0),
                "filters read by the last broker and the publisher": (1.0, None),
            },
        ),
        (
            "guess-filters",
            {},
            {
                "filters found by a subscriber": (1.0, 0.0),
                "filters found by the publisher": (1.0, 0.0),
            },
        ),
        ("read-legendre", {}, {"bits read": (1.0, 0.6)}),
    ],
)
def test_figures_of_schemes(
    name: str, parameters: dict[str, int], figures: dict[str, Bounds]
) -> None:
    outcome = attacks.run(name, **parameters)
    for figure, (least, most) in figures.items():
        assert outcome[figure].undefended >= least
        defended = outcome[figure].defended
        assert most is None or (defended is not None and defended <= most)
    for each in outcome.figures:
        if each.expected is not None:
            assert each.undefended == pytest.approx(each.expected, rel=0.1)
