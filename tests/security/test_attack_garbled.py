"""Two labels of one wire: what a broker reads where a round of garbling serves two events.

Labels of a wire differ by Delta, the same for all wires of a round. So two events of one round show
Delta wherever a bit differs, and with it both labels of every wire. The broker then evaluates the
circuit on all inputs, and reads private bits off ciphertexts. A ledger of rounds ends it.
"""

from __future__ import annotations

import pytest

from ccbps import Schema, SharedSeed, UInt
from ccbps.arrays import Bytes
from ccbps.attacks.schemes.garbled import answers_to_changes, delta_of, delta_of_interests
from ccbps.errors import RandomnessReuseError
from ccbps.matching import GarbledMatch
from ccbps.matching.contract.access import bodies_of

BITS = 6
MATCHER = GarbledMatch.box(Schema(x=UInt(BITS)))
ROUND = [7]


def sent(seed: SharedSeed, value: int) -> Bytes:
    """The message of an event, by a role that knows of no other."""
    return MATCHER.publisher(seed).encode({"x": [value]}, ROUND)


def body(message: Bytes) -> Bytes:
    return bodies_of(MATCHER, message, "event")[0]


def test_two_events_of_one_round_show_delta_and_the_private_bounds() -> None:
    seed, low, high = SharedSeed.generate(), 13, 41
    first, second = (sent(seed, value) for value in (0b010110, 0b011110))
    wanted = MATCHER.subscriber(seed).encode(f"x BETWEEN {low} AND {high}", ROUND)
    (place,), (delta,) = delta_of(body(first), body(second))
    assert place == 2 and delta[8] & 1  # the differing bit, and the last bit of Delta
    found = answers_to_changes(MATCHER, first[0], delta, wanted[0])
    # Which change gives which event the broker does not know, but how many match, it does; and if
    # it knows one event, everything.
    assert sum(found) == high - low + 1
    known = [found[0b010110 ^ value] for value in range(1 << BITS)]
    assert known == [low <= value <= high for value in range(1 << BITS)]


def test_events_of_two_rounds_show_nothing_of_the_kind() -> None:
    seed = SharedSeed.generate()
    first = MATCHER.publisher(seed).encode({"x": [0b010110, 0b011110]}, [7, 8])
    places, apart = delta_of(body(first[:1]), body(first[1:]))
    assert len(places) == len(apart) == BITS
    wanted = MATCHER.subscriber(seed).encode("x BETWEEN 13 AND 41", ROUND)
    found = [answers_to_changes(MATCHER, first[0], row, wanted[0]).tolist() for row in apart]
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
    first, other = (MATCHER.subscriber(seed).encode(text, ROUND) for text in texts)
    bodies = (bodies_of(MATCHER, each, "interest")[0] for each in (first, other))
    (delta,) = delta_of_interests(*bodies)  # in the ciphertexts that private bits changed
    found = answers_to_changes(MATCHER, sent(seed, 20)[0], delta, first[0])
    assert found.tolist() == [13 <= (20 ^ change) <= 41 for change in range(1 << BITS)]
