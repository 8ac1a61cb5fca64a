"""What a leaked key file tells of messages that the broker kept: all of them, or none of the past.

The attacker is a broker that keeps every message and then finds the publisher's key file. It knows
the public parameters and the labels, writes the event that each message could be under every seed
that it can compute from the file, and compares.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ccbps import EpochSeed, Schema, SeedRing, SharedSeed, UInt
from ccbps.keys.sources import from_text
from ccbps.matching import BranchingMatch

MATCHER = BranchingMatch.box(Schema(a=UInt(4)))
PAIRS = ["alice", "bob"]
EPOCHS, LEAK = 5, 3


def guesses(seed: SharedSeed | SeedRing, label: str, number: int) -> NDArray[np.uint8]:
    """Messages of all events of one pair and round; the role is new each time, and forgets."""
    return np.concatenate(
        [
            MATCHER.publisher(seed).encode([{"a": value}], [number], pairs=[label])
            for value in range(16)
        ]
    )


def events_read(file: str, messages: list[NDArray[np.uint8]]) -> list[list[int | None]]:
    """For each epoch and pair the event that was sent, as far as the file tells."""
    found: list[list[int | None]] = [[None] * len(PAIRS) for _ in messages]
    seed = from_text(file)
    while True:
        for row, label in enumerate(PAIRS):
            tables = {number: guesses(seed, label, number) for number in range(EPOCHS)}
            for epoch, kept in enumerate(messages):
                for table in tables.values():
                    for value in np.flatnonzero((table == kept[row]).all(axis=1)).tolist():
                        found[epoch][row] = value
        if not isinstance(seed, EpochSeed) or seed.epoch > EPOCHS:
            return found
        seed = seed.step()


def traffic(seed: SharedSeed) -> tuple[list[list[int]], list[NDArray[np.uint8]], str]:
    """An event for each pair in each epoch, its messages, and the key file of epoch `LEAK`."""
    rng = np.random.default_rng(5)
    events, messages, file = [], [], ""
    for epoch in range(EPOCHS):
        sent = rng.integers(0, 16, len(PAIRS)).tolist()
        records, rounds = [{"a": value} for value in sent], [epoch] * len(PAIRS)
        messages.append(MATCHER.publisher(seed).encode(records, rounds, pairs=PAIRS))
        events.append(sent)
        if epoch == LEAK:
            file = seed.to_text()
        if isinstance(seed, EpochSeed):
            seed = seed.step()
    return events, messages, file


def test_a_leaked_epoch_seed_reads_nothing_of_earlier_epochs() -> None:
    master = EpochSeed.generate()
    for label in PAIRS:
        master.pair(label)
    events, messages, file = traffic(master)
    found = events_read(file, messages)
    assert found[LEAK:] == events[LEAK:]  # the attack works: this epoch and later ones are open
    assert found[:LEAK] == [[None] * len(PAIRS)] * LEAK


def test_a_leaked_master_seed_reads_everything() -> None:
    """Why there are epochs: with one seed for good, the same file opens the past as well."""
    events, messages, file = traffic(SharedSeed.generate())
    assert events_read(file, messages) == events
