"""InnerProductMatch: encrypted answers are plaintext answers; parameters, refusals, bad bytes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Category, Int, Keyword, Schema, Text, UInt
from ccbps.algebra.pairing import pairing
from ccbps.errors import DecodeError, ParameterError, UnsupportedPredicateError
from ccbps.forms import vectors
from ccbps.matching import InnerProductMatch, Matcher, Operation, from_json, inner_product
from ccbps.matching.contract import estimate
from ccbps.matching.contract.access import MAC_BYTES
from ccbps.matching.contract.estimate import measured_rates
from ccbps.planner import plan
from ccbps.wire import KEY_HEADER_BYTES
from tests.support.effort import examples
from tests.support.refusals import refused
from tests.support.reusable_checks import BODY, answers, plain, roles, sealed
from tests.support.strategies import predicates, record, rows, schemas, small_types

SCHEMA = Schema(
    issue=Category(["AAPL", "IBM", "SAP"]), price=UInt(16), change=Int(2, nullable=True)
)
RECORDS: list[dict[str, Any]] = [
    {"issue": "IBM", "price": 119, "change": 1},
    {"issue": "IBM", "price": 0, "change": None},
    {"issue": "AAPL", "price": 65535, "change": -2},
    {"issue": "SAP", "price": 119, "change": 0},
]


def transparent(schema: Schema = SCHEMA, **options: Any) -> InnerProductMatch:
    return InnerProductMatch(schema, **options, pairing="transparent")


FORMS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "equalities with wildcards": (
        {},
        ["issue = 'IBM'", "issue = 'IBM' AND price = 119", "change IS NULL", "price = 65535"],
    ),
    "sets": (
        {"members": {"price": 3, "issue": 2}},
        ["price IN (0, 119)", "issue <> 'SAP' AND price IN (1, 119, 65535)", "price = 0"],
    ),
    "domains": (
        {"domains": ["issue", "change"], "members": {"price": 0}},
        [
            "change >= 0 AND issue > 'AAPL'",
            "change <> 1",
            "NOT change <> 1",
            "hamming(price, 0) < 99",
        ],
    ),
    "alternatives": (
        {"domains": ["change"], "alternatives": 3},
        [
            "issue = 'IBM' AND price = 119 OR change < 0 OR price = 0",
            "price IN (0, 119, 5)",
            "at_least(2, issue = 'IBM', price = 119, change IS NULL)",
            "issue = 'SAP'",
        ],
    ),
}
ALWAYS = [
    "TRUE",
    "FALSE",
    "price < 70000",
    "price < 0",
    "issue = 'MSFT'",
    "price = 1 AND price = 2",
]


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_predicates(name: str) -> None:
    options, texts = FORMS[name]
    texts = [*texts, *ALWAYS]
    matches = answers(transparent(**options), RECORDS, texts)
    assert np.array_equal(matches, plain(SCHEMA, RECORDS, texts))


def test_large_batches_are_answered_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_product, "TOGETHER", 5)
    matches = answers(transparent(), RECORDS, ALWAYS[:2])
    assert matches.tolist() == [[True, False]] * len(RECORDS)


def test_on_the_curve() -> None:
    options, texts = (
        {"domains": ["change"], "members": {"price": 0}},
        ["issue = 'IBM'", *ALWAYS[:2]],
    )
    texts.append("issue = 'IBM' AND change IS NOT NULL")
    matcher = InnerProductMatch(SCHEMA, **options)
    publisher, subscriber, broker = roles(matcher)
    events, interests = publisher.encode(RECORDS[:2]), subscriber.encode(texts)
    matches = broker.match_all(events, broker.prepare(interests))
    assert np.array_equal(matches, plain(SCHEMA, RECORDS[:2], texts))
    assert broker.match(events, interests[[3, 3]]).tolist() == [True, False]
    assert matcher.size == 7
    assert matcher.event_bytes == KEY_HEADER_BYTES + 7 * 48 + MAC_BYTES
    assert matcher.interest_bytes == KEY_HEADER_BYTES + 7 * 96 + MAC_BYTES


@given(schema=schemas(small_types(), max_attributes=3), data=st.data())
@settings(max_examples=examples(400), deadline=None)
def test_any_predicate_that_is_proposed_for(schema: Schema, data: st.DataObject) -> None:
    """Whatever `propose` takes; NULL, private constants and contradictions among it."""
    drawn = data.draw(predicates(schema))
    predicate = schema.parse(drawn.text).bind(**drawn.private)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(InnerProductMatch.__init__.__kwdefaults__, "pairing", "transparent")
        made = list(InnerProductMatch.propose(schema, predicate))
    records = [record(row) for row in data.draw(rows(schema, max_size=6))]
    for matcher in made:
        seen = answers(matcher, records, [predicate])[:, 0]
        assert seen.tolist() == predicate.evaluate(records).tolist()


def some_predicate(rng: random.Random) -> str:
    """Draw an OR of one or two ANDs of conditions on the attributes of `MIXED`."""

    def condition() -> str:
        name = rng.choice(["a", "b", "c"])
        if name == "c":
            return f"c = {rng.randrange(4) * 9000}"
        operator = rng.choice(["=", "<>", "<", ">="])
        value = rng.randrange(-2, 2) if name == "b" else rng.randrange(4)
        text = rng.choice([f"{name} {operator} {value}", f"{name} IN ({value}, 1)"])
        if name == "b" and rng.random() < 0.3:
            text = rng.choice(["b IS NULL", "b IS NOT NULL"])
        return f"NOT {text}" if rng.random() < 0.2 else text

    parts = [
        " AND ".join(condition() for _ in range(rng.randrange(1, 4)))
        for _ in range(rng.randrange(1, 3))
    ]
    return " OR ".join(parts)


MIXED = Schema(a=UInt(2), b=Int(2, nullable=True), c=UInt(16))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("transparent", 40),
        pytest.param("transparent", 10_000, marks=pytest.mark.slow),
        pytest.param("bls12-381", 500, marks=pytest.mark.slow),
    ],
)
def test_many_random_predicates(name: str, count: int) -> None:
    rng = random.Random(count)
    matcher = InnerProductMatch(MIXED, domains=["a", "b"], alternatives=2, pairing=name)
    publisher, subscriber, broker = roles(matcher)
    texts: list[str] = []
    while len(texts) < count:
        text = some_predicate(rng)
        try:
            matcher.prepare(text)
        except UnsupportedPredicateError:  # NOT c = 9000
            continue
        texts.append(text)
    records = [
        {"a": rng.randrange(4), "b": rng.choice([None, -2, -1, 0, 1]), "c": rng.randrange(4) * 9000}
        for _ in range(count)
    ]
    seen = broker.match(publisher.encode(records), subscriber.encode(texts))
    exact = [MIXED.parse(text).evaluate([row])[0] for text, row in zip(texts, records, strict=True)]
    assert seen.tolist() == exact
    assert 0.1 < np.mean(exact) < 0.8


# -- parameters -----------------------------------------------------------------------------------


LENGTHS: list[tuple[dict[str, Any], int]] = [
    ({}, 4),  # d + 1
    ({"members": {"price": 5}}, 8),
    ({"alternatives": 2}, 10),  # C(d + t, t)
    ({"alternatives": 3}, 20),
    ({"members": {"price": 0}, "alternatives": 2}, 6),
    ({"domains": ["issue", "change"], "members": {"price": 0}}, 1 + 2 + 4),
    ({"domains": ["issue", "change"]}, 1 + 2 + 4 + 1),
]


@pytest.mark.parametrize(("options", "length"), LENGTHS)
def test_lengths_of_vectors(options: dict[str, Any], length: int) -> None:
    matcher = transparent(**options)
    assert matcher.size == length + 1
    assert f"{length} coordinates and a pad" in matcher.explain()
    assert from_json(matcher.to_json()) == matcher
    given = {"members": {}, "domains": (), "alternatives": 1, **options}
    assert vectors.length_of(SCHEMA, **given) == length
    # The prime of the pairing, and products of functions that are never 1 together are left out.
    box = Schema(a=UInt(2), b=UInt(6))
    assert transparent(box, domains=["a", "b"]).size == 68


def test_wrong_parameters_are_refused() -> None:
    for options, message in (
        ({"members": {"volume": 2}}, "members must name attributes"),
        ({"members": {"issue": 2}, "domains": ["issue"]}, "members must name attributes"),
        ({"members": ["issue"]}, "members"),
        ({"members": {"price": -1}}, "members of 'price'"),
        ({"members": {"price": 1.5}}, "members of 'price'"),
        ({"members": {"price": 600}}, "members of 'price'"),
        ({"domains": "volume"}, "domains must name attributes"),
        ({"domains": ["issue", "issue"]}, "domains must name attributes"),
        ({"domains": [["issue"]]}, "domains must name attributes"),
        ({"domains": 5}, "domains must name attributes"),
        ({"alternatives": 0}, "alternatives"),
        ({"alternatives": 512}, "alternatives"),
        ({"domains": ["price"]}, "65,5.. coordinates.*ThreeBrokerMatch"),
        ({"members": {"price": 100}, "alternatives": 9}, "at most 511 are allowed"),
    ):
        refused(ParameterError, message, transparent, **options)
    refused(ParameterError, "pairing must be", InnerProductMatch, SCHEMA, pairing="toy")
    wide = Schema(a=Text(40), b=UInt(8))
    refused(ParameterError, "'a' has .* bits, and at most 254", transparent, wide)
    assert transparent(wide, members={"a": 0}).size == 3
    assert transparent(Schema(a=Keyword(128))).size == 3


def test_a_pairing_that_is_not_installed_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError("a pairing needs pymcl: pip install 'ccbps[pairings]'")

    monkeypatch.setattr(inner_product, "pairing_named", missing)
    refused(ParameterError, "pip install", InnerProductMatch, SCHEMA)
    assert not list(InnerProductMatch.propose(SCHEMA, SCHEMA.parse("issue = 'IBM'")))


PROPOSED: list[tuple[str, dict[str, Any]]] = [
    ("issue = 'IBM' AND price = 3", {"members": {}, "domains": [], "alternatives": 1}),
    ("price IN (3, 9, 12)", {"members": {"price": 3}, "domains": [], "alternatives": 1}),
    ("issue <> 'IBM'", {"members": {}, "domains": ["issue"], "alternatives": 1}),
    ("change > -1 OR price = 2", {"members": {"change": 2}, "domains": [], "alternatives": 2}),
    ("TRUE", {"members": {}, "domains": [], "alternatives": 1}),
    ("price < 3", {"members": {"price": 3}, "domains": [], "alternatives": 1}),
]


@pytest.mark.parametrize(("text", "parameters"), PROPOSED)
def test_proposals_have_what_a_predicate_needs(text: str, parameters: dict[str, Any]) -> None:
    (matcher,) = InnerProductMatch.propose(SCHEMA, SCHEMA.parse(text))
    assert matcher.parameters() == {**parameters, "pairing": "bls12-381"}
    matcher.prepare(text)


def test_attributes_are_left_out_of_a_proposal_where_it_would_be_too_long() -> None:
    many = Schema(**{f"a{i}": UInt(16) for i in range(20)})
    text = "a0 = 1 AND a1 = 2 OR a2 = 3 OR a3 = 4 OR a4 = 1"
    (matcher,) = InnerProductMatch.propose(many, many.parse(text))
    assert matcher.parameters()["members"] == {f"a{i}": 0 for i in range(5, 20)}
    for none in ("a0 < 5000", "NOT a0 = 4", "a0 = :x"):
        assert not list(InnerProductMatch.propose(many, many.parse(none)))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("price < 5000", {}, r"more values.*'price': 5,000, of which it takes 1.*ThreeBrokerMatch"),
        ("change > -2", {}, "make it with more members, or name the attribute in domains"),
        ("price = 1 OR issue = 'IBM'", {}, "alternatives=1; make it with more alternatives"),
        ("price IN (1, 2, 3) AND issue < 'SAP'", {"alternatives": 3}, "more ANDs"),
        ("price = 1", {"members": {"price": 0}}, "left out of this matcher's vectors"),
        ("hamming(price, 3) <= 8", {}, "Hamming distance.*accepted is an OR of a few ANDs"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, options: dict[str, Any], message: str) -> None:
    _, subscriber, _ = roles(transparent(**options))
    error = refused(UnsupportedPredicateError, message, subscriber.encode, text)
    assert "price" not in error.summary and "issue" not in error.summary


def test_a_set_that_is_too_large_for_one_and_is_several() -> None:
    texts = ["price IN (0, 119, 7)", "price IN (119, 65535) AND issue <> 'SAP'"]
    matcher = transparent(members={"issue": 2}, alternatives=3)
    assert [len(matcher.prepare(text)) for text in texts] == [3, 2]
    assert np.array_equal(answers(matcher, RECORDS, texts), plain(SCHEMA, RECORDS, texts))


# -- messages -------------------------------------------------------------------------------------


def test_malformed_points_are_one_clear_error() -> None:
    matcher = InnerProductMatch(Schema(a=UInt(4)), members={"a": 0})
    publisher, subscriber, broker = roles(matcher)
    events, interests = publisher.encode({"a": [1, 2, 3]}), subscriber.encode(["TRUE", "FALSE"])
    group = pairing("bls12-381")
    identity = bytes([0xC0]) + bytes(47)
    outside = bytes([0x80]) + bytes(46) + bytes([4])  # on the curve, and not of order r
    for point in (identity, outside, bytes(48), group.encode(group.g1)[:47] + b"\0"):
        altered = events.copy()
        altered[1, BODY.start : BODY.start + 48] = np.frombuffer(point, dtype=np.uint8)
        sealed(publisher, altered)
        refused(DecodeError, "row 1", broker.match_all, altered, interests)
    altered = interests.copy()
    altered[0, BODY.start : BODY.start + 96] = np.frombuffer(identity + bytes(48), dtype=np.uint8)
    refused(DecodeError, "row 0", broker.prepare, sealed(subscriber, altered))
    assert broker.match_all(events, interests).tolist() == [[True, False]] * 3


def test_messages_do_not_depend_on_what_is_in_them() -> None:
    """Always, never and all else have the same length, and points that differ everywhere."""
    matcher = transparent(domains=["change"], alternatives=2)
    _, subscriber, _ = roles(matcher)
    messages = subscriber.encode([*ALWAYS, "issue = 'IBM'", "issue = 'IBM'"])
    points = messages[:, BODY].reshape(len(messages) * matcher.size, -1)
    assert len(np.unique(points, axis=0)) == len(points)


def test_only_the_transparent_model_is_broken() -> None:
    card, real = transparent().leakage, InnerProductMatch(SCHEMA).leakage
    assert (card.security, real.security) == ("broken", "computational")
    assert not card.protects and len(real.protects) == 6
    assert card.attacks[0].startswith("transparent")


# -- cost -----------------------------------------------------------------------------------------


def test_costs_name_powers_and_pairings() -> None:
    matcher: Matcher = InnerProductMatch(SCHEMA)
    counted = {(cost.role, cost.per, cost.operation): cost.count for cost in matcher.costs}
    assert counted["broker", "pair", Operation.PAIRING] == 5
    assert counted["publisher", "event", Operation.EXPONENTIATION] == 5
    assert "5 x pairing of a product (bls12-381)" in matcher.explain()


def test_a_pair_has_a_price_where_making_an_interest_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def counted(prepare: Any, most: int) -> estimate.Work:
        """Take the number of answers for the seconds of a unit: a clock would be too coarse."""
        return estimate.Work(0.0, float(np.size(prepare(1)())))

    monkeypatch.setattr(estimate, "PREPARING", 1e-9)
    monkeypatch.setattr(estimate, "work_of", counted)
    rates = measured_rates(transparent(), SCHEMA.parse("issue = 'IBM'"), 100)
    assert rates["broker", "pair"] == 1.0


@pytest.mark.slow
def test_a_plan_knows_what_a_pair_costs() -> None:
    text = "issue = 'IBM' AND price = 3"
    (matcher,) = InnerProductMatch.propose(SCHEMA, SCHEMA.parse(text))
    rates = measured_rates(matcher, SCHEMA.parse(text), 100)
    # A pair takes milliseconds, and is no part of what an event takes.
    assert rates["broker", "pair"] > rates["broker", "event"]
    names = [c.name for c in plan(SCHEMA, text, events=100, subscriptions=10).candidates]
    assert any(name.startswith("InnerProductMatch") for name in names)
