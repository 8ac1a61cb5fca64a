"""The attack on P3S of the catalogue: figures without and with the defence.

`tests/security/test_attack_p3s.py` asserts what each server reads in its log.
"""

from __future__ import annotations

from ccbps.attacks import p3s_co_matches


def test_wider_tokens_help_if_they_differ() -> None:
    outcome = p3s_co_matches(seed=6)
    advantage, fetches = outcome["advantage on overlaps"], outcome["fetches of an event"]
    assert advantage.defended is not None and fetches.defended is not None
    assert advantage.undefended > 0.9 and advantage.defended < 0.5
    assert fetches.defended > 2 * fetches.undefended
    _, equal, uneven = outcome.curve.lines.values()
    assert equal[0] == uneven[0] == advantage.undefended
    assert equal[-1] > uneven[-1] + 0.3


def test_advantages_lie_between_guessing_and_knowing() -> None:
    outcome = p3s_co_matches(subscribers=3, events=4, bits=3, wider=1, seed=9)
    assert outcome.curve.at == (0, 1)
    assert all(0 <= each <= 1 for line in outcome.curve.lines.values() for each in line)
