"""What the broker reads where a program starts again at round 0, and that a ledger ends it.

The broker has the messages that were sent before and after the restart, nothing else. Under one
round's randomness R1, R2, Z two events give messages R1 L(x) R2 + Z and R1 L(x') R2 + Z: their
difference is R1 (L(x) - L(x')) R2, which is zero where the events are equal and has the rank of
L(x) - L(x') otherwise.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ccbps import OneTimePad, Schema, SharedSeed, UInt
from ccbps.attacks.schemes.reused_rounds import equal_events, of_same_round, sent_after_restarts
from ccbps.errors import RandomnessReuseError
from ccbps.matching import BranchingMatch

MATCHER = BranchingMatch.box(Schema(a=UInt(3)))
COUNT = 40


def days() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Events before and after the restart."""
    rng = np.random.default_rng(3)
    return rng.integers(0, 8, COUNT), rng.integers(0, 8, COUNT)


def test_rounds_used_again_show_which_events_are_equal() -> None:
    before, after = days()
    records = [{"a": day} for day in (before, after)]
    sent = sent_after_restarts(MATCHER, SharedSeed.generate(), records, range(COUNT))
    assert of_same_round(*sent).all()
    equal = equal_events(*sent)
    assert 0 < equal.sum() < COUNT
    assert np.array_equal(equal, before == after)


@pytest.mark.parametrize("kind", ["seed", "pad"])
def test_with_a_ledger_nothing_is_sent_again_but_the_same(tmp_path: Path, kind: str) -> None:
    secret = SharedSeed.generate().export_secret() * MATCHER.randomness_bytes * COUNT
    (before, after), path = days(), tmp_path / "rounds"
    sent = []
    for day in (before, after):
        # A restart: nothing is left in memory.
        source = SharedSeed(secret[:32]) if kind == "seed" else OneTimePad(secret)
        publisher = MATCHER.publisher(source, ledger=path)
        messages = {}
        for number, value in enumerate(day.tolist()):
            try:
                messages[number] = publisher.encode([{"a": value}], [number])
            except RandomnessReuseError:
                assert len(sent) == 1
        sent.append(messages)
    assert len(sent[0]) == COUNT
    again = np.flatnonzero(before == after).tolist() if kind == "seed" else []
    assert sorted(sent[1]) == again
    assert all(np.array_equal(sent[0][number], sent[1][number]) for number in again)
