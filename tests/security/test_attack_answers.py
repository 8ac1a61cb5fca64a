"""What answers alone give: no matcher that tells the broker who matched what can prevent these.

The attacker reads no message. It has the answers, and public parameters. What finds constants is
run on answers of a perfect one-time matcher and of a reusable one, and finds the same from both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import numpy as np
import pytest
from numpy.typing import NDArray

from ccbps import Bool, Schema, SharedSeed, UInt
from ccbps.attacks import bisect_bounds, contained, event_bits, place_bounds
from ccbps.matching import FormulaMatch, TagMatch
from tests.support.reusable_checks import users

Bools = NDArray[np.bool_]
Records = dict[str, NDArray[np.int64]]
Answer = Callable[[Records, Sequence[str]], Bools]


def one_time(schema: Schema) -> Answer:
    """Answers for all pairs from FormulaMatch.box, each pair in a round of its own."""
    matcher, seed, rounds = FormulaMatch.box(schema), SharedSeed.generate(), count()
    publisher, subscriber = matcher.publisher(seed), matcher.subscriber(seed)

    def answer(records: Records, texts: Sequence[str]) -> Bools:
        size = len(next(iter(records.values())))
        columns = []
        for text in texts:
            numbers = [next(rounds) for _ in range(size)]
            events = publisher.encode(records, numbers)
            columns.append(matcher.broker().match(events, subscriber.encode(text, numbers)))
        return np.stack(columns, axis=1)

    return answer


def reusable(schema: Schema) -> Answer:
    """Answers for all pairs from TagMatch."""
    matcher = TagMatch(schema)
    _, broker, publisher, subscriber = users(matcher)

    def answer(records: Records, texts: Sequence[str]) -> Bools:
        return broker.match_all(publisher.encode(records), subscriber.encode(list(texts)))

    return answer


both = pytest.mark.parametrize("world", [one_time, reusable])


def test_answers_to_a_public_condition_are_the_attributes_it_is_about() -> None:
    """A template hides its private constants only. With `halted` in the clear, a match says it."""
    matcher = FormulaMatch(Schema(halted=Bool(), price=UInt(8)), "halted = TRUE AND price < :limit")
    seed, rng = SharedSeed.generate(), np.random.default_rng(3)
    halted, price = rng.random(300) < 0.5, rng.integers(0, 256, 300)
    rounds = list(range(300))
    events = matcher.publisher(seed).encode({"halted": halted, "price": price}, rounds)
    interests = matcher.subscriber(seed).encode({"limit": 255}, rounds)
    answers = matcher.broker().match(events, interests)
    assert np.array_equal(answers, halted & (price < 255))
    assert halted[answers].all() and answers.sum() > 100


@both
def test_containment_orders_subscriptions_and_places_every_event(
    world: Callable[[Schema], Answer],
) -> None:
    """15 limits on a price, equally far apart, in an order that the broker does not know."""
    schema = Schema(price=UInt(8))
    rng = np.random.default_rng(9)
    prices, order = rng.integers(0, 256, 4000), rng.permutation(15)
    answers = world(schema)({"price": prices}, [f"price >= {16 * (j + 1)}" for j in order])
    limits = 16 * (order + 1)
    assert contained(answers).tolist() == (limits[:, None] > limits).tolist()
    # With an accomplice who reads events, the limits themselves are found.
    found = place_bounds(prices[None].astype(float), answers, np.array([256.0]))
    assert found[:, 0].tolist() == [[limit, 255] for limit in limits]
    # An event lies between the last limit that it meets and the next: 16 of 256 values.
    every = np.arange(256)
    (left,) = event_bits(every[None].astype(float), every[:, None] >= limits, answers[:500])
    assert left == 4


@both
def test_chosen_events_give_all_four_bounds_of_a_box(world: Callable[[Schema], Answer]) -> None:
    """The broker has events of its choice published, through an honest publisher."""
    schema = Schema(price=UInt(16), volume=UInt(16))
    answer = world(schema)
    published: list[dict[str, int]] = []
    secret = "price BETWEEN 11907 AND 20211 AND volume BETWEEN 1003 AND 40960"

    def matches(event: dict[str, int]) -> bool:
        published.append(event)
        columns = {name: np.array([value]) for name, value in event.items()}
        return bool(answer(columns, [secret])[0, 0])

    matching = {"price": 12000, "volume": 2500}
    found = bisect_bounds(matches, matching, dict.fromkeys(schema, 65536))
    assert found == {"price": (11907, 20211), "volume": (1003, 40960)}
    assert len(published) <= 59
