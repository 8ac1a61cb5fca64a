"""Adversaries who have answers only, against what formulas and plaintext say."""

from __future__ import annotations

import numpy as np
import pytest

from ccbps import Int, Keyword, Schema, Text, UInt
from ccbps.attacks import (
    bisect_bounds,
    contained,
    event_bits,
    events_to_place,
    place_bounds,
    placing,
    placing_error,
)
from ccbps.errors import ParameterError

SCHEMA = Schema(price=UInt(16), volume=UInt(16))


def boxes(rng: np.random.Generator, count: int, attributes: int) -> np.ndarray:
    """Bounds of random boxes over 1,000 values, shape (boxes, attributes, 2)."""
    low = rng.integers(0, 500, (count, attributes))
    return np.stack([low, low + rng.integers(200, 500, low.shape)], axis=2)


def answers(points: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    low, high = bounds[..., 0], bounds[..., 1]
    return ((points.T[:, None] >= low) & (points.T[:, None] <= high)).all(axis=2).astype(np.int64)


@pytest.mark.parametrize("events", [100, 500, 2000])
def test_bounds_are_placed_as_exactly_as_the_formula_says(events: int) -> None:
    rng, errors = np.random.default_rng(events), []
    for _ in range(12):
        points, bounds = rng.integers(0, 1000, (1, events)), boxes(rng, 30, 1)
        placed = place_bounds(points.astype(float), answers(points, bounds), np.array([1000.0]))
        errors.append(np.abs(placed - bounds).mean())
    spread = np.std(errors) / np.sqrt(len(errors))
    assert np.mean(errors) == pytest.approx(placing_error(1000, events), abs=4 * spread)


def test_other_conditions_make_events_fewer() -> None:
    """Of two attributes, an event tells of one where the condition on the other one holds."""
    rng, errors = np.random.default_rng(1), []
    for _ in range(6):
        points, bounds = rng.integers(0, 1000, (2, 3000)), boxes(rng, 20, 2)
        sizes = np.array([1000.0, 1000.0])
        placed = place_bounds(points.astype(float), answers(points, bounds), sizes)
        share = (bounds[:, ::-1, 1] - bounds[:, ::-1, 0] + 1) / 1000
        expected = [placing_error(1000, 3000, each) for each in share.ravel().tolist()]
        errors.append(np.abs(placed - bounds).mean() / np.mean(expected))
    assert np.mean(errors) == pytest.approx(1, abs=0.15)


def test_dummies_that_are_drawn_anew_make_it_longer_and_no_more() -> None:
    rng = np.random.default_rng(2)
    points, bounds = rng.integers(0, 1000, (1, 4000)), boxes(rng, 30, 1)
    own = answers(points, bounds)
    hits = own + np.take_along_axis(own, rng.integers(0, 30, own.shape), axis=1)
    errors = []
    for events in (100, 4000):
        seen = hits[:events]
        placed = place_bounds(
            points[:, :events].astype(float),
            seen,
            np.array([1000.0]),
            sent=2,
            rates=seen.mean(axis=1) / 2,
        )
        errors.append(np.abs(placed - bounds).mean())
    assert errors[0] > 1.5 * placing_error(1000, 100)
    assert errors[1] < 2


def test_a_subscription_that_never_matched_is_not_placed() -> None:
    points = np.array([[3.0, 900.0]])
    placed = place_bounds(points, np.zeros((2, 1), np.int64), np.array([1000.0]))
    assert placed.tolist() == [[[499.5, 499.5]]]
    nothing = place_bounds(points[:, :0], np.zeros((0, 1), np.int64), np.array([1000.0]))
    assert nothing.tolist() == placed.tolist()


@pytest.mark.parametrize("sent", [1, 2])
def test_parts_are_found_by_answers(sent: int) -> None:
    rng = np.random.default_rng(3)
    points, limits = rng.integers(0, 1000, 20000), np.array([100, 300, 500, 700, 900])
    own = (points[:, None] >= limits).astype(np.int64)
    hits = own.copy()
    if sent == 2:
        hits += np.take_along_axis(own, rng.integers(0, 5, own.shape), axis=1)
    assert contained(hits, sent).tolist() == (limits[:, None] > limits).tolist()
    assert not contained(hits[:0], sent).any()


def test_what_answers_leave_of_an_event() -> None:
    """15 limits, 16 values apart: 4 of 8 bits are left; with dummies more, without answers all."""
    points = np.arange(256)
    inside = points[:, None] >= np.arange(16, 256, 16)
    hits, values = inside.astype(np.int64), points[None].astype(float)
    assert event_bits(values, inside, hits).tolist() == [4]
    assert event_bits(values, inside[:, :0], hits[:1, :0]).tolist() == [8]
    rng = np.random.default_rng(4)
    hits += np.take_along_axis(hits, rng.integers(0, 15, hits.shape), axis=1)
    (left,) = event_bits(values, inside, hits, sent=2, rates=hits.mean(axis=1) / 2)
    assert 4 < left < 8


@pytest.mark.parametrize("bounds", [(0, 65535), (0, 0), (65535, 65535), (1000, 1001), (7, 50000)])
def test_chosen_events_find_any_bounds(bounds: tuple[int, int]) -> None:
    asked = []

    def matches(event: dict[str, int]) -> bool:
        asked.append(event)
        return bounds[0] <= event["price"] <= bounds[1]

    found = bisect_bounds(matches, {"price": bounds[1]}, {"price": 1 << 16})
    assert found == {"price": bounds}
    assert len(asked) <= 32


def test_answers_that_end_leave_the_middle() -> None:
    assert bisect_bounds(lambda _: None, {"price": 99}, {"price": 1000}) == {"price": (49, 549)}


@pytest.mark.parametrize(("size", "accuracy"), [(2, 0.01), (1000, 0.01), (65536, 0.001)])
def test_formulas_are_inverse(size: int, accuracy: float) -> None:
    events = events_to_place(size, accuracy, share=0.3)
    assert placing_error(size, events, share=0.3) == pytest.approx(accuracy * size)
    assert events_to_place(size, accuracy, share=0) == float("inf")


def test_placing_tells_numbers_and_no_constants() -> None:
    one = placing(SCHEMA.parse("price BETWEEN 12000 AND 20000"))
    assert one is not None
    assert (one.events, one.chosen) == (50, 32)
    # The other condition holds for half of the events.
    both = placing(SCHEMA.parse("price BETWEEN 12000 AND 20000 AND volume >= 32768"))
    assert both is not None
    assert (both.events, both.chosen) == (410, 64)
    narrow = placing(SCHEMA.parse("price = 7"))
    assert narrow is not None
    assert narrow.events == 66000  # before one matches
    either = placing(SCHEMA.parse("price < 300 OR price > 60000 AND volume > 99"))
    assert either is not None
    assert either.chosen == 32 + 64


@pytest.mark.parametrize("text", ["TRUE", "price < 3 AND price > 5"])
def test_predicates_without_bounds(text: str) -> None:
    assert placing(SCHEMA.parse(text)) is None


def test_private_constants_are_not_in_the_numbers() -> None:
    form = SCHEMA.parse("price < :limit AND volume >= :least")
    expected = placing(form)
    assert expected is not None
    assert (expected.events, expected.least, expected.chosen) == (50, True, 64)
    for limit in (0, 1, 900, 1 << 20):
        assert placing(form.bind(limit=limit, least=60000)) == expected


def test_types_of_attributes() -> None:
    schema = Schema(word=Keyword(64), long=Text(200), small=Int(4, nullable=True))
    assert placing(schema.parse("word = 'merger' AND small > 3")) is None
    long = placing(schema.parse("long < 'm'"))
    assert long is not None
    assert long.events == 50
    small = placing(schema.parse("small IS NULL"))
    assert small is not None
    with pytest.raises(ParameterError, match="accuracy"):
        placing(schema.parse("small > 3"), accuracy=0.5)
