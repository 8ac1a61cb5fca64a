"""Stored messages: a change of the wire format is seen, and has to be made on purpose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccbps import SharedSeed
from ccbps.matching import BranchingMatch, Matcher
from tests.vectors.matching import generate_formula, generate_group
from tests.vectors.matching.generate_branching import cases
from tests.vectors.matching.parts import SCHEMA

STORED: dict[str, Any] = {
    path.stem: json.loads(path.read_text())
    for path in sorted((Path(__file__).parents[1] / "vectors" / "matching").glob("*.json"))
}


def matcher_of(scheme: str, case: dict[str, Any]) -> Matcher:
    if scheme == "branching":
        return BranchingMatch.box(SCHEMA)
    if scheme == "formula":
        return generate_formula.MATCHERS[case["kind"]]
    return generate_group.MATCHERS[scheme][case["group"]]


@pytest.mark.parametrize(
    ("scheme", "number"),
    [(scheme, i) for scheme, vectors in STORED.items() for i in range(len(vectors["cases"]))],
)
def test_messages_are_the_stored_ones(scheme: str, number: int) -> None:
    vectors = STORED[scheme]
    case = vectors["cases"][number]
    matcher = matcher_of(scheme, case)
    seed = SharedSeed(bytes.fromhex(vectors["seed"])).pair(vectors["pair"])
    rounds = np.array([case["round"]], dtype=np.uint64)
    event = matcher.publisher(seed).encode([case["event"]], rounds)
    wanted = case["predicate"] if scheme == "branching" else case["interest"]
    interest = matcher.subscriber(seed).encode(wanted, rounds)
    assert event.tobytes().hex() == case["event_message"]
    assert interest.tobytes().hex() == case["interest_message"]
    assert matcher.broker().match(event, interest).tolist() == [case["matched"]]


def test_stored_messages_are_what_the_generators_make() -> None:
    assert set(STORED) == {"branching", "formula", "ofsgp", "public_function"}
    assert cases() == STORED["branching"]["cases"]
    assert generate_formula.cases() == STORED["formula"]["cases"]
    for scheme in generate_group.CASES:
        assert generate_group.cases(scheme) == STORED[scheme]["cases"]
