"""The catalogue of attacks: every attack is complete, exported, and says what is true of itself."""

from __future__ import annotations

import math

import pytest

from ccbps import attacks
from ccbps.attacks import Attack, Curve, Figure, Outcome, all_attacks
from ccbps.errors import ParameterError

ALL = all_attacks()


@pytest.mark.parametrize("attack", ALL.values(), ids=ALL)
def test_an_attack_is_complete(attack: Attack) -> None:
    assert attack.title[0].isupper() and not attack.title.endswith(".")
    assert not attack.adversary.endswith(".") and not attack.defence.endswith(".")
    assert attack.about.endswith(".")
    assert attack.taxonomy is not None or attack.goal != "availability"
    assert getattr(attacks, attack.function.__name__) is attack.function
    assert "seed" not in list(attack.parameters)[:-1]
    assert not any(default is attack.function for default in attack.parameters.values())


@pytest.mark.slow
@pytest.mark.parametrize("attack", ALL.values(), ids=ALL)
def test_an_attack_runs_and_its_defence_changes_a_figure(attack: Attack) -> None:
    outcome = attack.run()
    assert outcome.attack == attack.name
    assert outcome.figures
    both = [figure for figure in outcome.figures if figure.defended is not None]
    assert any(figure.defended != figure.undefended for figure in both)
    assert all(not math.isnan(figure.undefended) for figure in outcome.figures)
    assert len(outcome.curve.lines) >= 2 and len(outcome.curve.at) >= 3
    assert outcome.to_dict() == attack.run().to_dict()


def test_an_outcome_is_a_table() -> None:
    curve = Curve("k", "error", (1.0, 2.0), {"without defence": (0.0, 1.0)})
    outcome = Outcome((Figure("error", "", 2.0, 134.2, 2.0), Figure("time", "ms", 1.5)), curve)
    assert str(outcome).splitlines() == [
        "           without defence  with defence  expected",
        "error                    2         134.2         2",
        "time (ms)              1.5",
    ]
    assert outcome["time"].unit == "ms"
    with pytest.raises(KeyError, match="no figure 'tim'; there are 'error', 'time'"):
        outcome["tim"]


def test_a_line_has_a_value_for_each_place() -> None:
    with pytest.raises(ParameterError, match="line 'a' must have 2 values"):
        Curve("x", "y", (1.0, 2.0), {"a": (1.0,)})


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ParameterError, match="there is no attack 'flood'; attacks are"):
        attacks.run("flood")
    with pytest.raises(ParameterError, match="has no parameter 'speed'; its parameters are flood"):
        attacks.run("publication-flood", speed=1)


@pytest.mark.parametrize("attack", ALL.values(), ids=ALL)
def test_bad_arguments_are_refused_before_the_attack_runs(attack: Attack) -> None:
    bad = [-1, "x", None, True, [], math.nan, math.inf, 10**30, 1e300]
    for name, default in attack.parameters.items():
        values: list[object] = [-1, 1.5, "x", None, True, math.nan] if name == "seed" else bad
        for value in [*values, *([default + 0.5] if isinstance(default, int) else [])]:
            with pytest.raises(ParameterError, match=f"^{name} must be"):
                attack.run(**{name: value})
