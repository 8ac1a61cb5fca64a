"""ThreeBrokerMatch: boxes of sets, predicates that do not fit, answers for subscribers only."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ccbps import Category, Schema, Text, UInt
from ccbps.errors import DecodeError, ParameterError, ShapeError, UnsupportedPredicateError
from ccbps.leakage import FROM_ANSWERS, Protects
from ccbps.matching import Matcher, ThreeBrokerMatch, from_json
from ccbps.matching.contract.parties import Party
from ccbps.matching.three_brokers import matcher as module
from ccbps.predicates import Predicate
from ccbps.shares.answers import SealedAnswers
from ccbps.shares.clients import HEAD_BYTES
from ccbps.testing import conformance_tests

QUOTES = Schema(
    issue=Category(["AAPL", "GOOG", "IBM", "MSFT"], nullable=True),
    price=UInt(16),
    volume=UInt(10, nullable=True),
)
RECORDS = [
    {"issue": issue, "price": price, "volume": volume}
    for issue in ("AAPL", "IBM", "MSFT", None)
    for price, volume in ((0, None), (119, 0), (120, 7), (65_535, 1_023))
]
FREE = [
    "issue IN ('AAPL', 'MSFT')",
    "issue <> 'IBM'",
    "NOT issue IN ('AAPL', 'GOOG', 'MSFT')",
    "issue IS NULL OR issue = 'IBM'",
    "issue IS NOT NULL AND price <> 120",
    "NOT price BETWEEN 100 AND 119 AND volume IS NULL",
    "price < 100 OR price > 120",
    "issue LIKE 'A%' OR issue LIKE 'M%'",
    "volume BETWEEN 7 AND 8 AND price <> 119 AND issue <> 'MSFT'",
]
"""Predicates that a box of one interval takes."""
MORE = {
    "price IN (0, 120, 65535)": {"price": 2},
    "price IN (1, 119, 130)": {"price": 3},
    "price <> 119 AND price <> 120 AND price <> 500": {"price": 2},
    "volume <> 7": {"volume": 2},
    "NOT volume BETWEEN 1 AND 7 AND price IN (119, 65535)": {"price": 2, "volume": 2},
}
"""Predicates that need more intervals."""


@pytest.mark.parametrize("digits", [2, 4, 8])
def test_boxes_take_sets_as_in_plaintext(digits: int) -> None:
    matcher = ThreeBrokerMatch.box(QUOTES, digits=digits, intervals={"price": 3, "volume": 2})
    texts = [*FREE, *MORE] if digits > 2 else [*MORE, *FREE[4:7]]
    events = QUOTES.encode(RECORDS)
    expected = np.stack([QUOTES.parse(text).evaluate(events) for text in texts], axis=1)
    assert 0 < expected.sum() < expected.size
    assert np.array_equal(matcher.local().match_all(RECORDS, texts), expected)


def test_sets_of_one_digit_and_gaps_cost_nothing() -> None:
    matcher = ThreeBrokerMatch.box(QUOTES)
    assert matcher.size == 1 + 13 + 9 + 2
    # Codes of volume have 11 bits, and its first digit 3.
    rows = 8 + 13 * 16 + 8 + 2 * (8 + 3 * 16)
    assert matcher.interest_bytes == HEAD_BYTES + rows // 8
    for text in FREE:
        matcher.prepare(text)
    wider = ThreeBrokerMatch.box(QUOTES, intervals=2)
    assert wider.size == 1 + 25 + 17 + 2
    assert wider.event_bytes == matcher.event_bytes


@pytest.mark.parametrize("text", MORE)
def test_predicates_that_need_more_intervals_say_how_many(text: str) -> None:
    needed = MORE[text]
    with pytest.raises(UnsupportedPredicateError) as refusal:
        ThreeBrokerMatch.box(QUOTES).prepare(text)
    message = str(refusal.value)
    assert f"attribute '{next(iter(needed))}' has more intervals than intervals=1" in message
    assert f"take a box with at least intervals={needed}, or write several" in message
    # The summary is for logs, and names nothing of the predicate.
    assert "an attribute has more intervals" in refusal.value.summary
    assert not any(name in refusal.value.summary for name in (*needed, *"0123456789"))
    ThreeBrokerMatch.box(QUOTES, intervals=needed).prepare(text)
    fewer = {name: count - 1 for name, count in needed.items() if count > 1}
    with pytest.raises(UnsupportedPredicateError, match=re.escape(f"at least intervals={needed}")):
        ThreeBrokerMatch.box(QUOTES, intervals=fewer).prepare(text)


def test_alternatives_of_several_attributes_are_no_box() -> None:
    matcher = ThreeBrokerMatch.box(QUOTES, intervals=8)
    with pytest.raises(UnsupportedPredicateError, match="differ in several attributes"):
        matcher.prepare("price = 3 OR volume = 3")


@pytest.mark.parametrize(
    ("intervals", "message"),
    [
        (0, "intervals must be a whole number, at least 1, got 0"),
        ({"price": True}, r"intervals\['price'\] must be a whole number"),
        ({"prise": 3}, "intervals names prise, and the attributes are issue, price, volume"),
        (10**9, "more than the 16,384 tables that max_gates allows"),
    ],
)
def test_intervals_must_be_possible(intervals: object, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        ThreeBrokerMatch.box(QUOTES, intervals=intervals)  # type: ignore[arg-type]


def test_intervals_are_public_parameters() -> None:
    made = [
        ThreeBrokerMatch.box(QUOTES),
        ThreeBrokerMatch.box(QUOTES, intervals=2),
        ThreeBrokerMatch.box(QUOTES, intervals={"price": 2}),
        ThreeBrokerMatch.hidden(QUOTES, leaves=1),
        ThreeBrokerMatch(QUOTES, "price < :p"),
    ]
    assert len({matcher.fingerprint for matcher in made}) == len(made)
    for matcher in made:
        assert from_json(matcher.to_json()) == pickle.loads(pickle.dumps(matcher)) == matcher
    # A single digit takes any set, whatever is asked for.
    assert ThreeBrokerMatch.box(QUOTES, intervals={"issue": 9}) == made[0]
    assert "intervals:   issue: any set of values, price: 2, volume: 1\n" in made[2].explain()
    assert "intervals:" not in made[3].explain()
    fields = json.loads(made[0].to_json())
    fields["parameters"]["intervals"]["price"] = 2
    with pytest.raises(ParameterError, match="the matcher has 37 gates, not 25"):
        from_json(json.dumps(fields))


def test_many_interests_are_encoded_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PREPARED", 3)
    brokers = ThreeBrokerMatch.box(Schema(price=UInt(9), note=Text(20))).local()
    texts = [f"price < {n} AND note <> 'b'" for n in (0, 5, 9, 511, 5, 7, 300, 9)]
    records = {"price": [4, 8, 8], "note": ["a", "b", ""]}
    expected = [[n > p and t != "b" for n in (0, 5, 9, 511, 5, 7, 300, 9)] for p, t in
                zip(records["price"], records["note"], strict=True)]  # fmt: skip
    assert np.array_equal(brokers.match_all(records, texts), expected)


# -- answers for subscribers only -----------------------------------------------------------------


class ForSubscribers(ThreeBrokerMatch):
    """The same scheme, which proposes matchers whose brokers learn no answers."""

    @classmethod
    def propose(cls, schema: Schema, predicate: Predicate) -> Iterator[Matcher]:  # type: ignore[override]
        for matcher in super().propose(schema, predicate):
            parameters = {**matcher.parameters(), "reveal": "subscriber"}
            yield cls.from_parameters(schema, parameters)


TestForSubscribers = conformance_tests(ForSubscribers)
SMALL = Schema(price=UInt(8), volume=UInt(4))
MATCHERS = {
    "box": ThreeBrokerMatch.box(SMALL, reveal="subscriber"),
    "template": ThreeBrokerMatch(SMALL, "price < :p OR volume = 3", reveal="subscriber"),
    "hidden": ThreeBrokerMatch.hidden(SMALL, leaves=2, reveal="subscriber"),
}


@pytest.mark.parametrize("kind", MATCHERS)
def test_answers_reach_subscribers_as_in_plaintext(kind: str) -> None:
    matcher, rng = MATCHERS[kind], np.random.default_rng(2)
    records = {"price": rng.integers(0, 256, 30), "volume": rng.integers(0, 16, 30)}
    interests: list[object] = ["price < 100", "price >= 30 AND volume < 9", "volume = 3"]
    if kind == "template":
        interests = [{"p": 100}, {"p": 7}, {"p": 0}]
    events = SMALL.encode(records)
    expected = np.stack([matcher.meaning(one, events) for one in interests], axis=1)
    assert 0 < expected.sum() < expected.size
    assert np.array_equal(matcher.local().match_all(records, interests), expected)


def test_reveal_is_public_and_stated() -> None:
    matcher, usual = MATCHERS["box"], ThreeBrokerMatch.box(SMALL)
    assert matcher != usual and matcher.fingerprint != usual.fingerprint
    assert from_json(matcher.to_json()) == pickle.loads(pickle.dumps(matcher)) == matcher
    assert (matcher.event_bytes, matcher.interest_bytes) == (
        usual.event_bytes + 16,
        usual.interest_bytes,
    )
    assert matcher.size == usual.size
    assert "and 16 bytes to the subscriber; " in matcher.explain()
    assert "reveal:      no broker learns the answers\n" in matcher.explain()
    assert "reveal:      the three brokers learn the answers\n" in usual.explain()
    card = matcher.leakage
    assert Protects.MATCH in card.protects and Protects.MATCH not in usual.leakage.protects
    assert not card.answers and not set(FROM_ANSWERS) & set(card.attacks)
    assert not any("whether each event matches" in text for text in card.learns)
    with pytest.raises(ParameterError, match="reveal must be 'brokers' or 'subscriber'"):
        ThreeBrokerMatch.box(SMALL, reveal="nobody")  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "answer"), [("x IS NULL AND x = :p", False), ("x <= 1", True)])
@pytest.mark.parametrize("option", [{}, {"reveal": "subscriber"}, {"grants": True}])
def test_a_template_that_asks_for_nothing_is_answered(
    text: str, answer: bool, option: dict[str, Any]
) -> None:
    """Its interests have no bits: the predicate is constant over the schema."""
    matcher = ThreeBrokerMatch(Schema(x=UInt(1)), text, **option)
    interest = dict.fromkeys(matcher.private_names or (), 0)
    found = Party(matcher).answers([{"x": 0}, {"x": 1}], [interest])
    assert found.tolist() == [[answer], [answer]]


def test_roles_refuse_what_is_not_theirs() -> None:
    matcher = MATCHERS["box"]
    brokers = matcher.local()
    publisher, subscriber = matcher.publisher(brokers.public), matcher.subscriber(brokers.public)
    sent, own = publisher.encode({"price": [1], "volume": [1]}), subscriber.encode(["price < 9"])
    keys = publisher.payload_keys(sent)
    assert np.array_equal(publisher.payload_keys(sent[:, :HEAD_BYTES]), keys)
    with pytest.raises(DecodeError, match="row 0"):
        matcher.publisher(brokers.public).payload_keys(sent)
    with pytest.raises(ShapeError, match="at least 52"):
        publisher.commitments(sent[:, :51])
    parts = [SealedAnswers(np.zeros((1, 16), np.uint8), np.zeros((1, 1, 16), np.uint8))] * 3
    with pytest.raises(DecodeError, match="row 0"):
        matcher.subscriber(brokers.public).open(sent, own, parts, publisher.commitments(sent))
    with pytest.raises(DecodeError, match="event 0: the answers do not fit"):
        subscriber.open(sent, own, parts, publisher.commitments(sent))
    usual = ThreeBrokerMatch.box(SMALL)
    with pytest.raises(ParameterError, match='take one with reveal="subscriber"'):
        usual.publisher(brokers.public).payload_keys(sent)
    with pytest.raises(ParameterError, match='take one with reveal="subscriber"'):
        usual.subscriber(brokers.public).open(sent, own, parts, publisher.commitments(sent))
