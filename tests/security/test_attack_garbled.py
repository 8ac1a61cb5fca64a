"""Two labels of one wire: what a broker reads where a round of garbling serves two events.

Labels of a wire differ by Delta, the same for all wires of a round. So two events of one round show
Delta wherever a bit differs, and with it both labels of every wire. The broker then evaluates the
circuit on all inputs, and reads private bits off ciphertexts. A ledger of rounds ends it.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ccbps import Schema, SharedSeed, UInt
from ccbps.errors import RandomnessReuseError
from ccbps.matching import GarbledMatch
from ccbps.matching.contract.access import bodies_of

Bytes = NDArray[np.uint8]
BITS = 6
MATCHER = GarbledMatch.box(Schema(x=UInt(BITS)))
ROUND = [7]


def sent(seed: SharedSeed, value: int) -> Bytes:
    """The message of an event, by a role that knows of no other."""
    return MATCHER.publisher(seed).encode({"x": [value]}, ROUND)


def labels(message: Bytes) -> Bytes:
    return bodies_of(MATCHER, message, "event").reshape(BITS, 16)


def forged(message: Bytes, delta: Bytes, change: int) -> Bytes:
    """The same event with other bits: Delta turns a label into the other one."""
    out = message.copy()
    body = bodies_of(MATCHER, out, "event").reshape(BITS, 16)
    for bit in range(BITS):
        if change >> BITS - 1 - bit & 1:
            body[bit] ^= delta
    return out


def answers(message: Bytes, delta: Bytes, interest: Bytes) -> list[bool]:
    """The answers for the event changed in all ways."""
    broker = MATCHER.broker()
    return [
        bool(broker.match(forged(message, delta, change), interest)[0])
        for change in range(1 << BITS)
    ]


def test_two_events_of_one_round_show_delta_and_the_private_bounds() -> None:
    seed, low, high = SharedSeed.generate(), 13, 41
    first, second = (sent(seed, value) for value in (0b010110, 0b011110))
    wanted = MATCHER.subscriber(seed).encode(f"x BETWEEN {low} AND {high}", ROUND)
    apart = labels(first) ^ labels(second)
    (place,) = np.flatnonzero(apart.any(axis=1))
    delta = apart[place]
    assert place == 2 and delta[8] & 1  # the differing bit, and the last bit of Delta
    found = answers(first, delta, wanted)
    # Which change gives which event the broker does not know, but how many match, it does; and if
    # it knows one event, everything.
    assert sum(found) == high - low + 1
    known = [found[0b010110 ^ value] for value in range(1 << BITS)]
    assert known == [low <= value <= high for value in range(1 << BITS)]


def test_events_of_two_rounds_show_nothing_of_the_kind() -> None:
    seed = SharedSeed.generate()
    first = MATCHER.publisher(seed).encode({"x": [0b010110, 0b011110]}, [7, 8])
    apart = labels(first[:1]) ^ labels(first[1:])
    assert apart.any(axis=1).all()
    wanted = MATCHER.subscriber(seed).encode("x BETWEEN 13 AND 41", ROUND)
    found = [answers(first[:1], row, wanted) for row in apart]
    truth = [13 <= (0b010110 ^ change) <= 41 for change in range(1 << BITS)]
    assert all(row != truth for row in found)


def test_a_role_refuses_to_use_a_round_twice() -> None:
    publisher = MATCHER.publisher(SharedSeed.generate())
    publisher.encode({"x": [1]}, ROUND)
    with pytest.raises(RandomnessReuseError):
        publisher.encode({"x": [2]}, ROUND)


def test_one_event_for_two_interests_of_one_round_shows_where_they_differ() -> None:
    """Two garblings of one round: ciphertexts differ by Delta where private bits do."""
    seed = SharedSeed.generate()
    texts = ("x BETWEEN 13 AND 41", "x BETWEEN 12 AND 41")
    bodies = [
        bodies_of(MATCHER, MATCHER.subscriber(seed).encode(text, ROUND), "interest")[0, :-9]
        for text in texts
    ]
    apart = (bodies[0] ^ bodies[1]).reshape(-1, 16)
    differ = {row.tobytes() for row in apart if row.any()}
    assert len(differ) == 1  # Delta itself, in the ciphertexts that private bits changed
    delta = np.frombuffer(differ.pop(), dtype=np.uint8)
    event = sent(seed, 20)
    wanted = MATCHER.subscriber(seed).encode(texts[0], ROUND)
    found = answers(event, delta, wanted)
    assert found == [13 <= (20 ^ change) <= 41 for change in range(1 << BITS)]
