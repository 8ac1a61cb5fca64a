"""Answers that add up: the report, its adversaries on whole deployments, and the defences."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ccbps import Category, Keyword, Schema, UInt
from ccbps.attacks import answers, answers_add_up, chosen_events, placing
from ccbps.attacks.deployment import deploy
from ccbps.errors import ParameterError, UnsupportedPredicateError

SCHEMA = Schema(price=UInt(10))
TEXTS = [f"price BETWEEN {low} AND {low + 300}" for low in range(20, 700, 30)]


def test_what_is_measured_is_what_formulas_say() -> None:
    outcomes = [answers_add_up(most=400, subscriptions=30, seed=seed) for seed in (1, 2)]
    for name, within in (("error of a bound", 0.25), ("error of a width", 0.5)):
        measured = np.mean([each[name].undefended for each in outcomes])
        expected = np.mean([each[name].expected or 0 for each in outcomes])
        assert measured == pytest.approx(expected, rel=within)
    for each in outcomes:
        assert each["nested pairs in order"].undefended > 0.95
        assert each["bounds within 1 % of the domain"].undefended > 0.95
        assert (each["bounds within 1 % of the domain"].defended or 0) < 0.5
        # A cloak's bounds are found as exactly, and they are those of others.
        assert (each["error of a bound"].defended or 0) > 5
        lines = each.curve.lines
        assert lines["with 2 dummies"][-1] > lines["without defence"][-1]
        assert len({*lines["with no answers"]}) == 1


def test_chosen_events_place_every_bound_unless_answers_end() -> None:
    outcome = chosen_events(subscriptions=20)
    assert outcome["error of a bound"].undefended == 0
    assert 24 < outcome["events for a subscription"].undefended <= 32
    assert (outcome["error of a bound"].defended or 0) > 0.5
    assert outcome.curve.lines["with cloaks of 5"][-1] > 0.02
    assert outcome.curve.lines["with 2 dummies"][4] > outcome.curve.lines["without defence"][4]


@pytest.fixture(scope="module")
def plain() -> Any:
    return answers(SCHEMA, TEXTS, most=1000, events_per_second=10)


def test_a_report_prints_and_converts(plain: Any) -> None:
    content = json.loads(json.dumps(plain.to_dict()))
    assert content["events"] == plain.events
    assert plain.seconds == plain.events / 10
    shown = str(plain)
    assert "23 subscriptions, 46 bounds, 0 nested pairs" in shown
    assert f"after {plain.events:,.0f} events" in shown
    assert repr(plain) == "<AnswersReport: 23 subscriptions, 46 bounds>"
    pytest.importorskip("matplotlib")
    assert plain.plot().axes[0].get_xlabel() == "events"


@pytest.mark.parametrize(
    ("options", "factor"),
    [({"k": 3}, 20), ({"dummies": 2}, 2), ({"rounds": 40}, 10), ({"reveal": "subscriber"}, 100)],
)
def test_defences_leave_more_doubt(plain: Any, options: dict[str, Any], factor: float) -> None:
    defended = answers(SCHEMA, TEXTS, most=1000, **options)
    assert defended.bound_errors[-1] > factor * plain.bound_errors[-1]
    assert defended.width_errors[-1] > plain.width_errors[-1]
    if "rounds" not in options:
        assert defended.event_bits["price"] > plain.event_bits["price"]
        assert defended.deliveries > 1.2


def test_without_answers_nothing_is_learned() -> None:
    silent = answers(SCHEMA, TEXTS, most=1000, reveal="subscriber")
    assert silent.events is None
    assert silent.seconds is None
    assert silent.chosen == 0
    assert {*silent.ordered} == {0}
    assert "not in this simulation" in str(silent)


def test_several_attributes_and_typical_events() -> None:
    """A word is compared, not placed; events come from the records that are given."""
    schema = Schema(word=Keyword(64), issue=Category(["A", "B"]), price=UInt(8), rest=UInt(4))
    rng = np.random.default_rng(5)
    records = {
        "word": rng.choice(["merger", "dividend"], 500).tolist(),
        "issue": rng.choice(["A", "B"], 500).tolist(),
        "price": rng.integers(0, 100, 500),
        "rest": rng.integers(0, 16, 500),
    }
    texts = [f"word = 'merger' AND issue = 'B' AND price < {limit}" for limit in range(20, 90, 10)]
    report = answers(schema, texts, events=records, most=2000, accuracy=0.02)
    assert set(report.event_bits) == {"issue", "price"}
    assert report.bounds == 2 * len(texts)
    assert report.ordered[-1] == 1
    assert report.misordered[-1] == 0
    assert report.bound_errors[-1] < 0.02


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ([], {}, "at least one subscription"),
        (["TRUE"], {}, "no subscription has a bound"),
        (["price < 5", "price < 5 AND price > 7"], {}, "subscription 1 never matches"),
        (["price < 5"], {"reveal": "nobody"}, "reveal"),
        (["price < 5"], {"k": 2}, "k=2 needs as many"),
        (["price < 5"], {"most": 3}, "most"),
        (["price < 5"], {"events": []}, "at least one record"),
    ],
)
def test_what_is_refused(texts: list[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        answers(SCHEMA, texts, **options)


def test_subscriptions_are_boxes() -> None:
    with pytest.raises(UnsupportedPredicateError):
        answers(SCHEMA, ["price <> 5"])


def test_the_formula_of_plans_is_what_the_adversary_reaches() -> None:
    """After as many events as `placing` says, the mean error is the accuracy."""
    schema = Schema(price=UInt(16), volume=UInt(16))
    rng = np.random.default_rng(6)
    lows = rng.integers(2000, 30000, (60, 2)).tolist()
    texts = [
        f"price BETWEEN {a} AND {a + 30000} AND volume BETWEEN {b} AND {b + 30000}" for a, b in lows
    ]
    known = placing(schema.parse(texts[0]), accuracy=0.005)
    assert known is not None
    errors = [
        deploy(schema, texts, None, round(known.events), seed=seed).bound_errors(10**6).mean()
        for seed in range(3)
    ]
    assert np.mean(errors) == pytest.approx(known.accuracy, rel=0.25)
