"""Attacks on onions of the catalogue: figures without and with the defence.

`tests/security/test_attack_onion.py` and `test_attack_universal_onion.py` assert what else is tried
and refused.
"""

from __future__ import annotations

import pytest

from ccbps.attacks import onion_markers, onion_rogue_key, onion_signs


def test_a_rogue_key_opens_messages_for_all_without_proofs() -> None:
    outcome = onion_rogue_key(nodes=4)
    assert outcome.curve.at == (2, 3, 4)
    assert outcome.curve.lines == {"without defence": (1,) * 3, "with proofs": (0,) * 3}
    assert outcome["messages opened"].expected == 1


@pytest.mark.parametrize(
    ("hops", "marks", "expected"),
    [(4, 2, 7 / 15), pytest.param(5, 1, 2 / 8, marks=pytest.mark.slow)],
)
def test_markers_come_through_an_honest_node_and_no_verifier(
    hops: int, marks: int, expected: float
) -> None:
    onions = 30
    linked = onion_markers(hops=hops, marks=marks, onions=onions, seed=2)["onions linked"]
    assert linked.expected == pytest.approx(expected)
    assert abs(linked.undefended - expected) < 4 * (expected * (1 - expected) / onions) ** 0.5
    assert linked.defended == 0


def test_a_sign_shows_until_its_block_is_opened() -> None:
    onions = 60
    outcome = onion_signs(hops=4, nodes=2, onions=onions)
    followed = outcome["onions followed"]
    assert followed.expected == pytest.approx(1 / 3) and followed.defended == 0
    assert abs(followed.undefended - 1 / 3) < 4 * (2 / 9 / onions) ** 0.5
    first, second = outcome.curve.lines["without defence"]
    assert first > second == followed.undefended
