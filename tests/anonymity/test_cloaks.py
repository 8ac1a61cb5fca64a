"""Cloaks of subscriptions: hulls, every matcher, and groups that stay."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps import Category, Decimal, Int, Keyword, Schema, SharedSeed, Text, UInt
from ccbps.anonymity import Distinct, StickyCloaks, cloak
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


# -- groups that stay ------------------------------------------------------------------------------


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
