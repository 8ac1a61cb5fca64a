"""BroadcastMatch as its broker and its subscribers see it: what the card says voids it, and what
the broker does not find in all messages of many rounds.

Attacks on labels and nonces themselves are in `test_attack_broadcast.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import stats

from ccbps import Schema, SharedSeed, UInt
from ccbps.arrays import Bools, Bytes
from ccbps.encodings.labels import LABEL_BYTES, NONCE_BYTES
from ccbps.matching import BroadcastMatch
from ccbps.wire import ROUND_HEADER_BYTES
from tests.support.statistics import bit_statistics, broadcast_view, corrected

WIDTH, WINDOW = 16, 2
MATCHER = BroadcastMatch.box(Schema(a=UInt(WIDTH), b=UInt(WIDTH)), window=WINDOW)
DIGITS = WIDTH // WINDOW
SECRET = {"a": 31_337, "b": 4_242}


def labels_of(event: Bytes) -> Bytes:
    """Shape (digits, 16); digits of `a`, the first one first, then those of `b`."""
    return event[0, ROUND_HEADER_BYTES:].reshape(-1, LABEL_BYTES)


def digits(value: int) -> list[int]:
    return [value >> WINDOW * (DIGITS - 1 - i) & (1 << WINDOW) - 1 for i in range(DIGITS)]


def again(seed: SharedSeed, record: dict[str, int], number: int) -> Bytes:
    """By a program that has the seed and remembers no rounds."""
    return MATCHER.publisher(seed).encode([record], [number])


def read(seed: SharedSeed, event: Bytes, number: int) -> dict[str, int]:
    """An event's values, by whoever holds the seed: its labels among those of all digits."""
    found = np.full(2 * DIGITS, -1)
    for digit in range(1 << WINDOW):
        value = sum(digit << WINDOW * i for i in range(DIGITS))
        same = (labels_of(again(seed, {"a": value, "b": value}, number)) == labels_of(event)).all(1)
        found[same] = digit
    assert (found >= 0).all()
    values = [
        sum(d << WINDOW * i for i, d in enumerate(part[::-1])) for part in found.reshape(2, -1)
    ]
    return dict(zip("ab", map(int, values), strict=True))


# -- hazards on the card ------------------------------------------------------------------------


def test_a_round_used_for_two_events_shows_the_broker_where_they_differ() -> None:
    seed, other = SharedSeed.generate(), {"a": SECRET["a"] ^ 3, "b": SECRET["b"] ^ 1 << 9}
    first, second = again(seed, SECRET, 5), again(seed, other, 5)
    low = (1 << WINDOW) - 1
    shown = (labels_of(first) ^ labels_of(second))[:, 0] & low
    assert shown.tolist() == digits(3) + digits(1 << 9)
    # As it should be, under rounds of their own, nothing is equal and select bits say nothing.
    apart = again(seed, other, 6)
    assert not (labels_of(first) == labels_of(apart)).all(axis=1).any()


def test_a_subscriber_who_sees_an_event_message_reads_it() -> None:
    seed = SharedSeed.generate()
    assert read(seed, again(seed, SECRET, 9), 9) == SECRET
    with pytest.raises(AssertionError):
        read(SharedSeed.generate(), again(seed, SECRET, 9), 9)


def test_a_subscriber_who_sees_an_interest_message_reads_it_without_the_broker() -> None:
    """By events of his own in that round; the broker's part of the work has no key."""
    seed, anybody = SharedSeed.generate(), MATCHER.broker()
    interest = MATCHER.subscriber(seed).encode(
        "a BETWEEN 1000 AND 31337 AND b >= 77", [4], pairs=["somebody else"]
    )

    def matches(a: int, b: int) -> bool:
        return bool(anybody.match(again(seed, {"a": a, "b": b}, 4), interest)[0])

    def bound(within: Callable[[int], bool], inside: int, outside: int) -> int:
        while abs(outside - inside) > 1:
            middle = (inside + outside) // 2
            inside, outside = (middle, outside) if within(middle) else (inside, middle)
        return inside

    assert bound(lambda a: matches(a, 500), 2000, -1) == 1000
    assert bound(lambda a: matches(a, 500), 2000, 1 << WIDTH) == 31_337
    assert bound(lambda b: matches(2000, b), 500, -1) == 77
    # Who leaves keeps the seed; with another one he has nothing.
    old = again(SharedSeed.generate(), {"a": 2000, "b": 500}, 4)
    assert not anybody.examine(old, interest)[0].any()


# -- before there is an event -------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 2])
def test_interests_do_not_show_before_their_event_which_are_equal(window: int) -> None:
    """One bit of the event plus one private bit: all interests of a round share the event's part.

    Were that a bit, two interests would show the sum of their constants. By the sum of the slots
    that end as the answer, behind header and nonce.
    """
    matcher = BroadcastMatch(Schema(x=UInt(1)), "hamming(x, :a) <= 0", window=window)
    seed, rounds = SharedSeed(bytes(32)), range(1000)
    first, equal, other = (
        matcher.subscriber(seed).encode({"a": a}, rounds)[:, ROUND_HEADER_BYTES + NONCE_BYTES] & 1
        for a in (0, 0, 1)
    )
    for shown in (first ^ equal, first ^ other):
        assert 400 < np.count_nonzero(shown) < 600


# -- what the broker does not find --------------------------------------------------------------

ROUNDS = 2500
FAMILY_ERROR = 1e-7

WORLDS: dict[str, tuple[Sequence[dict[str, int]], Sequence[str]]] = {
    "all equal": ([{"a": 900, "b": 900}], ["a < 1000 AND b < 1000"] * 2),
    "nested": ([{"a": 900, "b": 900}], ["a < 60000", "a < 1000 AND b BETWEEN 900 AND 901"]),
    "other attributes": ([{"a": 900, "b": 900}], ["a = 900", "b = 900"]),
    "other events": (
        [{"a": n, "b": 65_535 - n} for n in range(0, 65_536, 4096)],
        ["TRUE", "a >= 0 AND b <= 65535"],
    ),
}
"""Events, in turn, and two interests; both always match."""


def seen(world: str, spoil: Callable[[Bytes], Bytes] | None = None) -> Bools:
    """Every bit that the broker sees or computes, of two interests of each round, and the sums of
    both interests' bits and of one round's bits and the next one's; shape (bits, rounds)."""
    records, texts = WORLDS[world]
    # Seeded: the least p-value of tens of thousands of statistics is no exact one.
    draw = np.random.default_rng([*world.encode(), spoil is not None]).bytes
    seed, broker = SharedSeed.generate(draw), MATCHER.broker()
    events = MATCHER.publisher(seed).encode(
        [records[n % len(records)] for n in range(ROUNDS)], range(ROUNDS)
    )
    views = []
    for number, text in enumerate(texts):
        interests = MATCHER.subscriber(seed, randomness=draw).encode(
            text, range(ROUNDS), pairs=[f"s{number}"] * ROUNDS
        )
        assert broker.match(events, interests).all()
        # Headers are what their round alone makes them.
        tags = events[:, 1:ROUND_HEADER_BYTES] ^ interests[:, 1:ROUND_HEADER_BYTES]
        assert (tags == tags[0]).all()
        if spoil is not None:
            interests = spoil(interests)
        bodies = events[:, ROUND_HEADER_BYTES:], interests[:, ROUND_HEADER_BYTES:]
        views.append(
            np.vstack(
                [
                    *broadcast_view(MATCHER.encoding, *bodies),
                    np.unpackbits(interests, axis=1, bitorder="little").T.astype(np.bool_),
                ]
            )
        )
    labels = np.unpackbits(events, axis=1, bitorder="little").T.astype(np.bool_)
    first, second = views
    every = np.vstack([labels, first, second])
    return np.vstack([every, first ^ second, every ^ np.roll(every, 1, axis=1)])


def likeness(first: Bools, second: Bools) -> float:
    """Bound the chance that two worlds that look the same differ so much in any bit, or in the
    product or sum of two bits."""
    return corrected(np.concatenate(bit_statistics(first, second, 20_000, 7)))


@pytest.mark.parametrize("world", list(WORLDS)[1:])
def test_worlds_with_the_same_answers_look_the_same(world: str) -> None:
    """Equal and nested interests, other attributes, other events: one event and two interests a
    round, and from round to round."""
    assert likeness(seen("all equal"), seen(world)) > FAMILY_ERROR


def test_a_broker_would_find_interests_that_are_written_with_the_same_masks() -> None:
    """Where both are the same message, this test sees it."""

    kept: list[Bytes] = []

    def same(interests: Bytes) -> Bytes:
        kept.append(interests)
        return kept[0]

    assert likeness(seen("all equal"), seen("all equal", same)) < 1e-30


def test_lengths_are_those_of_the_matcher() -> None:
    seed = SharedSeed.generate()
    texts = ["TRUE", "FALSE", "a = 5", "a BETWEEN 1 AND 65534 AND b BETWEEN 1 AND 65534"]
    interests = MATCHER.subscriber(seed).encode(texts, range(4))
    events = MATCHER.publisher(seed).encode([{"a": 0, "b": 0}, {"a": 65_535, "b": 65_535}], [0, 1])
    assert interests.shape == (4, MATCHER.interest_bytes)
    assert events.shape == (2, MATCHER.event_bytes)


def test_an_event_opens_no_interest_of_another_round() -> None:
    """Even where the broker passes over the tag that tells rounds apart."""
    seed, count = SharedSeed.generate(), 4000
    events = MATCHER.publisher(seed).encode([{"a": 900, "b": 900}] * count, range(count))
    interests = MATCHER.subscriber(seed).encode("a < 1000", range(count))
    mixed = np.roll(interests, 1, axis=0)
    mixed[:, :ROUND_HEADER_BYTES] = interests[:, :ROUND_HEADER_BYTES]
    broker = MATCHER.broker()
    assert broker.match(events, interests).all()
    answers, causes = broker.examine(events, mixed)
    assert not causes.any()
    assert stats.binomtest(int(answers.sum()), count).pvalue > FAMILY_ERROR
