"""Cloaks of subscriptions: hulls, every matcher, and the attacks of the card."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps import Category, Decimal, Int, Keyword, Schema, SharedSeed, Text, UInt
from ccbps.anonymity import Cloaks, Distinct, StickyCloaks, cloak, expected_candidates
from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.matching import FormulaMatch, TagMatch
from ccbps.predicates.box_predicates import predicate_of

SCHEMA = Schema(
    issue=Category(["AAPL", "IBM", "MSFT"]),
    price=Decimal(0, 1000, "0.5"),
    change=Int(8, nullable=True),
)
DOMAIN = 1000
LINE = Schema(x=Decimal(0, DOMAIN - 1, 1))


# -- predicates of boxes ---------------------------------------------------------------------------


@st.composite
def boxes(draw: Any) -> dict[str, tuple[int, int]]:
    out = {}
    for name in SCHEMA:
        ends = st.integers(0, SCHEMA[name].size - 1)
        out[name] = tuple(sorted((draw(ends), draw(ends))))
    return out


@given(boxes())
def test_the_predicate_of_a_box_is_the_box(ranges: dict[str, tuple[int, int]]) -> None:
    box = SCHEMA.parse("TRUE").box()
    box.ranges.update(ranges)
    written = predicate_of(box)
    assert written.box().ranges == ranges


def test_bounds_are_not_in_the_text_nor_in_a_repr() -> None:
    box = SCHEMA.parse("price BETWEEN 119.5 AND 121 AND issue = 'IBM'").box()
    written = predicate_of(box)
    assert written.text == '"issue" = :b0 AND "price" BETWEEN :b1 AND :b2'
    assert not {"239", "242", "IBM"} & set(repr(written).split())


def test_names_that_are_words_of_sql() -> None:
    schema = Schema(order=UInt(8), größe=Text(2))
    box = schema.parse("\"order\" < 7 AND größe >= 'ab'").box()
    assert predicate_of(box, box).alternatives() == [
        {"order": ((0, 6),), "größe": (box.ranges["größe"],)}
    ]


def test_boxes_that_have_no_predicate() -> None:
    with pytest.raises(ParameterError, match="without events"):
        predicate_of(SCHEMA.parse("price < 3 AND price > 5").box())
    with pytest.raises(ParameterError, match="at least one"):
        predicate_of()
    with pytest.raises(ParameterError, match="one schema"):
        predicate_of(SCHEMA.parse("TRUE").box(), LINE.parse("TRUE").box())


# -- groups ----------------------------------------------------------------------------------------


def texts(rng: random.Random, count: int) -> list[str]:
    out = []
    for _ in range(count):
        low, width = rng.uniform(0, 900), rng.uniform(1, 90)
        out.append(f"price BETWEEN {low:.0f} AND {low + width:.0f}")
        if rng.random() < 0.5:
            out[-1] += f" AND issue = '{rng.choice(['AAPL', 'IBM', 'MSFT'])}'"
        if rng.random() < 0.5:
            out[-1] += f" AND change > {rng.randrange(-100, 100)}"
    return out


@given(st.integers(0, 999), st.integers(1, 6), st.sampled_from([None, Distinct(2)]))
def test_hulls_hold_their_members_and_groups_are_enough(
    seed: int, k: int, rule: Distinct | None
) -> None:
    rng = random.Random(seed)
    interests = texts(rng, rng.randrange(6, 25))
    cloaks = cloak(SCHEMA, interests, k, diversity=rule)
    assert np.bincount(cloaks.groups).min() >= k
    for number, hull in enumerate(cloaks.hulls):
        own = [cloaks.boxes[row] for row in np.flatnonzero(cloaks.groups == number)]
        for name in SCHEMA:
            ends = [box.ranges[name] for box in own]
            assert hull.ranges[name] == (min(a for a, _ in ends), max(b for _, b in ends))
        if rule:
            assert len({tuple(box.ranges.values()) for box in own}) >= 2


def test_redundant_is_the_expected_number_of_useless_deliveries() -> None:
    interests = [f"x BETWEEN {a} AND {a + 7 * a % 90}" for a in range(0, 900, 37)]
    cloaks = cloak(LINE, interests, 4)
    everything = {"x": np.arange(DOMAIN)}
    matched = np.stack([p.evaluate(everything) for p in cloaks.predicates], axis=1)
    wanted = np.stack([LINE.parse(text).evaluate(everything) for text in interests], axis=1)
    received = cloaks.deliveries(matched)
    assert (received >= wanted).all()
    assert (received & ~wanted).sum() / DOMAIN == pytest.approx(cloaks.redundant)


def test_typical_events_in_place_of_widths() -> None:
    """Nobody sends events from 100 to 800, so a hull across them costs nothing."""
    interests = ["x = 90", "x BETWEEN 90 AND 95", "x BETWEEN 80 AND 99", "x > 801", "x > 840"]
    events = {"x": [*range(100), *range(801, 1000)]}
    groups = cloak(LINE, [*interests, "x = 0", "x BETWEEN 0 AND 40"], 2, events=events)
    matched = np.stack([p.evaluate(events) for p in groups.predicates], axis=1)
    plain = cloak(LINE, [*interests, "x = 0", "x BETWEEN 0 AND 40"], 2)
    other = np.stack([p.evaluate(events) for p in plain.predicates], axis=1)
    assert groups.deliveries(matched).sum() <= plain.deliveries(other).sum()


@pytest.mark.parametrize("reusable", [False, True])
def test_a_matcher_encodes_hulls(reusable: bool) -> None:
    interests = texts(random.Random(4), 12)
    cloaks = cloak(SCHEMA, interests, 3)
    rng = np.random.default_rng(4)
    events = SCHEMA.encode(
        {
            "issue": rng.choice(["AAPL", "IBM", "MSFT"], 40).tolist(),
            "price": rng.integers(0, 1000, 40),
            "change": rng.integers(-128, 128, 40),
        }
    )
    if reusable:
        matcher = TagMatch(SCHEMA)
        server = matcher.key_server()
        sent = matcher.publisher(server.publisher_key()).encode(events)
        kept = matcher.subscriber(server.subscriber_key("anonymizer")).encode(cloaks.predicates)
        matched = matcher.broker(server.broker_key()).match_all(sent, kept)
    else:
        formula, seed = FormulaMatch.box(SCHEMA), SharedSeed.generate()
        pairs = len(events) * len(cloaks.predicates)
        each = events.take(np.repeat(np.arange(len(events)), len(cloaks.predicates)))
        first = formula.publisher(seed).encode(each, rounds=range(pairs))
        second = formula.subscriber(seed).encode(
            [*cloaks.predicates] * len(events), rounds=range(pairs)
        )
        matched = formula.broker().match(first, second).reshape(len(events), -1)
    received = cloaks.deliveries(matched)
    wanted = np.stack([SCHEMA.parse(text).evaluate(events) for text in interests], axis=1)
    assert (received >= wanted).all()
    assert (
        matched.tolist()
        == np.stack([hull.evaluate(events) for hull in cloaks.hulls], axis=1).tolist()
    )


def test_what_is_refused() -> None:
    with pytest.raises(ParameterError, match="k=3 needs as many subscriptions, got 2"):
        cloak(LINE, ["x < 3", "x < 4"], 3)
    with pytest.raises(ParameterError, match=r"that keep Distinct\(l=2\)"):
        cloak(LINE, ["x < 3"] * 5, 2, diversity=Distinct(2))
    with pytest.raises(ParameterError, match="interest 1 never matches"):
        cloak(LINE, ["x < 3", "x < 3 AND x > 3"], 2)
    with pytest.raises(ParameterError, match="one attribute, got 3"):
        cloak(SCHEMA, ["price < 3", "change = 1 AND issue = 'IBM'"], 2, method="optimal")
    with pytest.raises(UnsupportedPredicateError):
        cloak(LINE, ["x <> 3"], 1)
    with pytest.raises(ParameterError, match="at most 64"):
        cloak(Schema(t=Text(20)), ["t < 'b'"], 1)
    with pytest.raises(ParameterError, match="'word' cannot become a range"):
        cloak(Schema(word=Keyword(16)), ["word = 'a'", "word = 'b'"], 2)


def test_attributes_that_nobody_limits_may_be_of_any_type() -> None:
    schema = Schema(word=Keyword(200), x=UInt(4))
    cloaks = cloak(schema, ["x < 3", "x < 5"], 2)
    assert cloaks.hulls[0].ranges == {"word": (0, schema["word"].size - 1), "x": (0, 4)}
    (everything,) = cloak(schema, ["TRUE", "TRUE"], 2).predicates
    assert everything.text == "TRUE"


# -- attacks ---------------------------------------------------------------------------------------


def bounds_error(cloaks: Cloaks, target: int, events: np.ndarray) -> float | None:
    """A broker sees who gets an event, and an accomplice reads the event: how far off are they?"""
    hull = cloaks.hulls[cloaks.groups[target]]
    inside = hull.evaluate(LINE.encode({"x": events}))
    got, rest = np.sort(events[inside]), np.sort(events[~inside])
    if not len(got):
        return None
    below, above = rest[rest < got[0]], rest[rest > got[-1]]
    low = ((below[-1] if len(below) else -1) + 1 + got[0]) / 2
    high = ((above[0] if len(above) else DOMAIN) - 1 + got[-1]) / 2
    own_low, own_high = cloaks.boxes[target].ranges["x"]
    return float(abs(low - own_low) + abs(high - own_high))


@pytest.mark.parametrize(
    ("k", "error", "within", "seeds"),
    [(1, 2.0, 0.6, 12)]
    + [
        pytest.param(k, e, w, 400, marks=pytest.mark.slow)
        for k, e, w in [(1, 2.0, 0.2), (2, 134, 14), (5, 245, 20), (10, 335, 25)]
    ],
)
def test_a_broker_with_an_accomplice_finds_the_hull_and_no_more(
    k: int, error: float, within: float, seeds: int
) -> None:
    """40 ranges of 1,000 values, 500 events; groups by lower bound."""
    errors = []
    for seed in range(seeds):
        rng = random.Random(seed)
        interests = sorted(tuple(sorted(rng.sample(range(DOMAIN), 2))) for _ in range(40))
        boxes = [LINE.parse(f"x BETWEEN {a} AND {b}").box() for a, b in interests]
        groups = np.arange(40) // k
        hulls = []
        for number in range(groups[-1] + 1):
            own = [boxes[row].ranges["x"] for row in np.flatnonzero(groups == number)]
            hull = LINE.parse("TRUE").box()
            hull.ranges["x"] = (min(a for a, _ in own), max(b for _, b in own))
            hulls.append(hull)
        cloaks = Cloaks(LINE, tuple(boxes), groups, tuple(hulls))
        target = 20 - 20 % k + rng.randrange(k)
        events = np.array([rng.randrange(DOMAIN) for _ in range(500)])
        found = bounds_error(cloaks, target, events)
        errors += [] if found is None else [found]
    assert np.mean(errors) == pytest.approx(error, abs=within)


def test_fresh_groups_are_intersected_and_sticky_ones_are_not() -> None:
    """100 subscribers, k = 10: 10, 1.8 and 1.1 candidates after 1, 2 and 3 epochs."""
    assert [round(expected_candidates(100, 10, t), 1) for t in (1, 2, 3)] == [10, 1.8, 1.1]
    rng = random.Random(1)
    left = np.zeros((400, 3))
    for run in range(400):
        candidates = set(range(100))
        for epoch in range(3):
            candidates &= {0, *rng.sample(range(1, 100), 9)}
            left[run, epoch] = len(candidates)
    assert left.mean(axis=0) == pytest.approx([10, 1.82, 1.07], abs=0.15)


def test_regrouping_real_subscriptions_gives_members_away_and_sticky_groups_do_not() -> None:
    """Half of the others come and go in each epoch; who stays is found only among fresh cloaks."""
    rng = random.Random(3)
    sticky = StickyCloaks(LINE, 5)

    def interest() -> str:
        low = rng.randrange(900)
        return f"x BETWEEN {low} AND {low + rng.randrange(1, 99)}"

    people = {f"s{n}": interest() for n in range(40)}
    for name, text in people.items():
        sticky.join(name, text)
    sticky.advance()
    (mine,) = [g for g in sticky.groups if "s0" in sticky.members(g)]
    place = next(p for p in mine.places if sticky._names[p] == "s0")
    fresh, kept = set(people), set(mine.places)
    for epoch in range(4):
        names = [*people]
        cloaks = cloak(LINE, people.values(), 5)
        row = names.index("s0")
        fresh &= {names[i] for i in np.flatnonzero(cloaks.groups == cloaks.groups[row])}
        (now,) = [g for g in sticky.groups if place in g.places]
        assert now.hull.ranges == mine.hull.ranges
        kept &= set(now.places)
        for name in rng.sample(names[1:], 20):
            del people[name]
            sticky.leave(name)
        for n in range(20):
            people[f"e{epoch}-{n}"] = interest()
            sticky.join(f"e{epoch}-{n}", people[f"e{epoch}-{n}"])
        sticky.advance()
    assert len(fresh) == 1
    assert kept == set(mine.places)
    assert len(kept) >= 5


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 14)), max_size=60), st.integers(1, 4))
def test_sticky_groups_never_change_in_the_eyes_of_the_broker(
    steps: list[tuple[bool, int]], k: int
) -> None:
    sticky, seen, present = StickyCloaks(LINE, k), {}, {}
    for advance, number in steps:
        name = f"s{number}"
        if advance:
            sticky.advance()
        elif name in present:
            sticky.leave(name)
            del present[name]
        else:
            present[name] = (number * 60, number * 60 + 3 * number)
            sticky.join(name, f"x BETWEEN {present[name][0]} AND {present[name][1]}")
        for group in sticky.groups:
            view = (group.hull.ranges["x"], group.places)
            assert seen.setdefault(group.number, view) == view
            assert len(group.places) >= k
            for member in sticky.members(group):
                low, high = group.hull.ranges["x"]
                assert low <= present[member][0] and present[member][1] <= high
        grouped = [name for group in sticky.groups for name in sticky.members(group)]
        assert sorted([*grouped, *sticky.waiting]) == sorted(present)


def test_who_may_join_and_leave() -> None:
    sticky = StickyCloaks(LINE, 2)
    sticky.join("alice", "x < 3")
    assert sticky.advance() == ()
    assert sticky.waiting == ("alice",)
    with pytest.raises(ParameterError, match="there already"):
        sticky.join("alice", "x < 4")
    with pytest.raises(ParameterError, match="never matches"):
        sticky.join("bob", "x < 3 AND x > 3")
    with pytest.raises(ParameterError, match="'carol' is not a subscriber"):
        sticky.leave("carol")
    assert "3" not in repr(sticky)
