"""Stored messages: a change of the wire format is seen, and has to be made on purpose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccbps import SharedSeed
from ccbps.matching import BranchingMatch
from tests.vectors.matching.generate_branching import SCHEMA, cases

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "vectors" / "matching" / "branching.json").read_text()
)


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda c: f"round {c['round']}")
def test_messages_are_the_stored_ones(case: dict[str, Any]) -> None:
    matcher = BranchingMatch.box(SCHEMA)
    seed = SharedSeed(bytes.fromhex(VECTORS["seed"])).pair(VECTORS["pair"])
    rounds = np.array([case["round"]], dtype=np.uint64)
    event = matcher.publisher(seed).encode([case["event"]], rounds)
    interest = matcher.subscriber(seed).encode(case["predicate"], rounds)
    assert event.tobytes().hex() == case["event_message"]
    assert interest.tobytes().hex() == case["interest_message"]
    assert matcher.broker().match(event, interest).tolist() == [case["matched"]]


def test_stored_messages_are_what_the_generator_makes() -> None:
    assert cases() == VECTORS["cases"]
