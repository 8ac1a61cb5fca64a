"""Attacks on InnerProductMatch of the catalogue: figures without and with the defence.

`tests/security/test_attack_inner_product.py` asserts what each routine of these attacks recovers.
"""

from __future__ import annotations

import pytest

from ccbps.attacks import (
    inner_product_collusion,
    inner_product_first_components,
    inner_product_relations,
)


@pytest.mark.parametrize("pairing", ["transparent", "bls12-381"])
def test_a_client_reads_the_events_of_its_epoch(pairing: str) -> None:
    outcome = inner_product_collusion(events=12, epochs=3, bits=6, pairing=pairing)
    assert outcome.curve.at == (1, 2, 3)
    assert outcome.curve.lines["with new keys"] == (1, 1 / 2, 1 / 3)
    read = outcome["events read"]
    assert read.undefended == read.expected == 1


def test_first_components_give_differences() -> None:
    outcome = inner_product_first_components(pairs=120)
    found = outcome["differences found"]
    assert found.expected is not None and found.defended is not None
    # Of two uniform bytes, 112.7 of 256 pairs are at most 64 apart.
    assert found.expected == pytest.approx(112.746 / 256, abs=1e-4)
    assert abs(found.undefended - found.expected) < 4.5 * (0.25 / 120) ** 0.5
    assert found.defended <= 0.05


def test_repeated_factors_have_relations_and_fresh_ones_have_none() -> None:
    outcome = inner_product_relations(events=2)
    relations = outcome["relations beyond answers"]
    assert (relations.undefended, relations.defended, relations.expected) == (11, 0, 11)


@pytest.mark.slow
def test_relations_grow_with_equal_events() -> None:
    lines = inner_product_relations(events=4).curve.lines
    assert lines["without defence"] == (0, 11, 22, 33)
    assert set(lines["with fresh factors"]) == {0}
