"""AccessTreeMatch: encrypted answers are plaintext answers, trees fit their slots, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ccbps.matching.broken.access_tree as access_tree
from ccbps import Bool, Category, Schema, UInt
from ccbps.delivery import PolicyOpener, PolicySealer
from ccbps.errors import DecodeError, ParameterError, PredicateError, UnsupportedPredicateError
from ccbps.functional import Authority, CpAbe
from ccbps.matching.broken import AccessTreeMatch
from ccbps.matching.contract.access import MAC_BYTES
from ccbps.wire import KEY_HEADER_BYTES, Cause
from tests.support.effort import examples
from tests.support.refusals import refused
from tests.support.reusable_checks import BODY, plain, sealed, users
from tests.support.strategies import predicates, record, rows, schemas, small_types

SCHEMA = Schema(issue=Category(["AAPL", "GOOG", "IBM", "MSFT"]), price=UInt(4))
RECORDS = [
    {"issue": "IBM", "price": 3},
    {"issue": "IBM", "price": 12},
    {"issue": "AAPL", "price": 5},
]
TEXTS = [
    "price < 5",
    "price BETWEEN 4 AND 12 AND issue = 'IBM'",
    "issue IN ('AAPL', 'MSFT') OR price = 12",
    "at_least(2, issue = 'IBM', price > 4, price < 13)",
    "TRUE",
    "price = 1 AND price = 2",
    "hamming(price, 7) <= 1",
    "NOT (price = 3)",
]
MANY = " OR ".join(f"price = {n} AND issue < 'GOOG'" for n in range(0, 16, 2))


def toy(leaves: int | None = None, schema: Schema = SCHEMA) -> AccessTreeMatch:
    return AccessTreeMatch(schema, leaves=leaves, group="toy64")


@given(schema=schemas(small_types(), 3), data=st.data())
@settings(max_examples=examples(80), deadline=None)
def test_answers_are_the_plaintext_meaning(schema: Schema, data: st.DataObject) -> None:
    matcher = toy(200, schema)
    _, broker, publisher, alice, bob = users(matcher, "alice", "bob")
    records = schema.encode([record(row) for row in data.draw(rows(schema, 6))])
    drawn = data.draw(st.lists(predicates(schema, private=False), min_size=2, max_size=3))
    asked = [schema.parse(predicate.text) for predicate in drawn]
    interests = np.concatenate([alice.encode(asked[:1]), bob.encode(asked[1:])])
    matches = broker.match_all(publisher.encode(records), broker.prepare(interests))
    assert matches.T.tolist() == [predicate.evaluate(records).tolist() for predicate in asked]


@pytest.mark.parametrize("group", ["secp256k1", pytest.param("modp2048", marks=pytest.mark.slow)])
def test_full_size(group: str) -> None:
    matcher = AccessTreeMatch(SCHEMA, group=group)
    _, broker, publisher, alice = users(matcher)
    events, interests = publisher.encode(RECORDS), alice.encode(TEXTS)
    assert np.array_equal(broker.match_all(events, interests), plain(SCHEMA, RECORDS, TEXTS))
    width = {"secp256k1": 33, "modp2048": 256}[group]
    assert matcher.event_bytes == KEY_HEADER_BYTES + 8 + 6 * (2 * width + 16) + MAC_BYTES
    assert matcher.interest_bytes == KEY_HEADER_BYTES + 8 + 12 * (2 + 2 * width + 4) + MAC_BYTES


def test_wide_attributes() -> None:
    schema = Schema(size=UInt(64, nullable=True))  # 65 bits
    matcher = toy(130, schema)
    _, broker, publisher, alice = users(matcher)
    records = {"size": [0, 2**63, 2**64 - 1, None]}
    texts = [
        "size >= 9223372036854775808",
        "size IS NULL",
        "size BETWEEN 1 AND 18446744073709551614",
    ]
    matches = broker.match_all(publisher.encode(records), alice.encode(texts))
    assert matches.T.tolist() == [
        [False, True, True, False],
        [False, False, False, True],
        [False, True, False, False],
    ]


def test_at_most_two_tokens_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = toy()
    _, broker, publisher, alice, bob = users(matcher, "alice", "bob")
    texts = [f"price {operator} {bound}" for operator in ("<", ">", "=") for bound in range(1, 15)]
    table = (
        broker.prepare(np.concatenate([alice.encode(texts), bob.encode(texts)])).parts[0].content
    )
    assert {len(tokens) for tokens in table.tokens.values()} == {2}
    assert sum(len(tokens) for tokens in table.tokens.values()) == 2 * 4
    counted = []
    evaluate = access_tree.evaluate
    monkeypatch.setattr(access_tree, "evaluate", lambda *tree: counted.append(1) or evaluate(*tree))
    events = publisher.encode(RECORDS)
    key = broker._access.key
    matches = matcher.match(key, matcher.open_events(key, events[:, BODY]), table)
    assert (matches[:, : len(texts)] == matches[:, len(texts) :]).all()
    assert len(counted) <= len(texts)  # equal trees once


def test_trees_that_need_more_leaves_are_refused() -> None:
    _, _, _, alice = users(toy(3))
    assert alice.encode("price < 14").shape == (1, toy(3).interest_bytes)
    problem = "takes 4 bit leaves, this matcher has 3"
    with pytest.raises(UnsupportedPredicateError, match=problem) as refusal:
        alice.encode(["TRUE", "issue > 'AAPL'", "price = 4"])
    assert refusal.value.row == 2
    refused(PredicateError, "", alice.encode, "weight = 4")


def test_long_lists_are_nested_and_long_thresholds_refused() -> None:
    schema = Schema(word=UInt(20))
    matcher = toy(8000, schema)
    _, broker, publisher, alice = users(matcher)
    odd = [3 * n for n in range(300)]
    text = f"word IN ({', '.join(map(str, odd))})"
    matches = broker.match_all(publisher.encode({"word": [6, 7, 897]}), alice.encode(text))
    assert matches[:, 0].tolist() == [True, False, True]
    parts = ", ".join(f"word = {n}" for n in odd)
    with pytest.raises(UnsupportedPredicateError, match="at_least takes at most 255 parts"):
        alice.encode(f"at_least(2, {parts})")


def test_parameters() -> None:
    for wrong in (0, 20_000, "8", True):
        refused(ParameterError, "leaves must be a whole number from 1 to 16,384", toy, wrong)
    wide = Schema({f"a{number}": UInt(64) for number in range(1024)})
    refused(ParameterError, r"bits must be .* from 1 to 65,535, got 65536", toy, 4, wide)


def test_malformed_bodies() -> None:
    matcher = toy(7)
    _, broker, publisher, alice = users(matcher)
    events = np.repeat(publisher.encode(RECORDS[:1]), 3, axis=0)
    events[1, KEY_HEADER_BYTES + 8 : KEY_HEADER_BYTES + 16] = 255
    events[2, BODY][-32:] = 0
    sealed(publisher, events)
    assert broker.examine_events(events).tolist() == [0, Cause.VALUE, Cause.VALUE]
    good = alice.encode("price < 3 OR issue = 'IBM'")  # 4 + 2 leaves

    def changed(*changes: tuple[int, int]) -> np.ndarray[Any, np.dtype[np.uint8]]:
        row = good.copy()
        for place, value in changes:
            row[0, place] = value
        return sealed(alice, row)

    steps = KEY_HEADER_BYTES + 8 + 7 * (2 + 16)
    used = int((good[0, steps:-MAC_BYTES].reshape(-1, 2)[:, 1] > 0).sum())
    last = steps + 2 * (used - 1)
    bad = [
        changed((KEY_HEADER_BYTES + 8, 6)),  # a position beyond the last bit
        changed(*((KEY_HEADER_BYTES + 8 + 2 + place, 255) for place in range(8))),  # no residue
        changed((steps, 1)),  # a leaf with a threshold
        changed((last, 0)),  # none of them
        changed((last, 9)),  # more than there are
        changed((last + 1, 9)),  # more parts than results
        changed((last, 0), (last + 1, 0)),  # results left over
        changed((steps, 0), (steps + 1, 0)),  # begins with nothing
        changed((steps + 1, 2), (steps, 1)),  # a threshold of nothing
        changed((last + 3, 1)),  # one leaf more than there are
        changed(*((place, 0) for place in range(steps + 2, last + 2))),  # leaves left over
    ]
    causes = broker.examine_interests(np.concatenate([good, *bad]))
    assert causes.tolist() == [0] + [Cause.VALUE] * len(bad)
    swapped = alice.encode("price < 3")
    body = swapped[0, KEY_HEADER_BYTES + 8 :]
    body[18:36], body[90:108] = body[90:108].copy(), body[18:36].copy()  # a gap between the leaves
    sealed(alice, swapped)
    assert broker.examine_interests(swapped).tolist() == [Cause.VALUE]
    refused(DecodeError, "a value that no message of this scheme has", broker.prepare, bad[0])


def test_any_altered_step_is_refused_or_another_sound_tree() -> None:
    """No altered tree makes the broker fail: whatever passes the check can be evaluated."""
    matcher = toy(6)
    _, broker, publisher, alice = users(matcher)
    events = publisher.encode(RECORDS)
    good = alice.encode("at_least(2, issue = 'IBM', price > 7, price < 12)")
    steps = KEY_HEADER_BYTES + 8 + 6 * (2 + 16)
    random = np.random.default_rng(1)
    altered = np.repeat(good, 3000, axis=0)
    places = random.integers(steps, good.shape[1] - MAC_BYTES, (3000, 2))
    for column in places.T:
        altered[np.arange(3000), column] = random.integers(0, 5, 3000)
    sealed(alice, altered)
    passed = altered[broker.examine_interests(altered) == 0]
    assert 10 < len(passed) < 3000
    assert broker.match_all(events, passed).shape == (3, len(passed))


def test_interests_of_revoked_users_match_nothing() -> None:
    matcher = toy()
    server, broker, publisher, alice, bob = users(matcher, "alice", "bob")
    events = publisher.encode(RECORDS)
    table = broker.prepare(np.concatenate([alice.encode("price < 15"), bob.encode("price < 15")]))
    broker.revoke(server.revoke("subscriber", "bob"))
    assert broker.match_all(events, table).tolist() == [[True, False]] * 3
    table.add(alice.encode(["TRUE", "price > 3"]))  # one part now, with bob's interest in it
    answers = [[True, False, True, price > 3] for price in (3, 12, 5)]
    assert broker.match_all(events, table).tolist() == answers
    assert broker.load(table.to_bytes(), drop_unserved=True).ids == [0, 2, 3]
    refused(DecodeError, "a user this broker does not serve", broker.prepare, bob.encode("TRUE"))


def test_matchers_say_what_they_leak() -> None:
    matcher = toy(9)
    assert matcher.leakage.security == "broken"
    assert matcher.leakage.attacks[0].startswith("tree shapes: 12 comparisons give every event")
    text = matcher.explain()
    assert "the tree of every interest and the positions of its bits" in text
    assert "per event: 6 x exponentiation (toy64), at most" in text


def test_proposals_have_leaves_enough() -> None:
    for text, leaves in (("price < 5", 12), ("NOT (price = 3) OR issue = 'IBM'", 12), (MANY, 48)):
        (matcher,) = AccessTreeMatch.propose(SCHEMA, SCHEMA.parse(text))
        assert matcher.leaves == leaves
        matcher.prepare(text)
    assert not list(AccessTreeMatch.propose(SCHEMA, SCHEMA.parse("price < :x")))


def test_payloads_reach_whoever_matches_and_satisfies_the_policy() -> None:
    # The whole flow of the source: the filter is the subscriber's, the policy the publisher's.
    roles = Schema(doctor=Bool(), ward=Category(["A", "B"]), rank=UInt(3))
    authority = Authority.generate(CpAbe(roles, pairing="transparent"))
    held = {
        "alice": {"doctor": True, "ward": "A", "rank": 1},
        "bob": {"doctor": False, "ward": "B", "rank": 6},
        "carol": {"doctor": True, "ward": "B", "rank": 3},
    }
    policies = ["doctor AND ward = 'A'", "rank >= 3", "NOT doctor OR ward = 'B'"]
    matcher = toy(40)
    _, broker, publisher, *subscribers = users(matcher, *held)
    sealer = PolicySealer(authority.public)
    sealed = [
        sealer.seal([f"record {row}".encode()], policy)[0] for row, policy in enumerate(policies)
    ]
    events, delivered, expected = publisher.encode(RECORDS), set(), set()
    for (name, attributes), subscriber in zip(held.items(), subscribers, strict=True):
        opener, encoded = PolicyOpener(authority.key(attributes)), SCHEMA.encode(RECORDS)
        for text in TEXTS:
            matches = broker.match_all(events, broker.prepare(subscriber.encode([text])))[:, 0]
            forwarded = [row for row in range(len(RECORDS)) if matches[row]]
            payloads, _ = opener.examine([sealed[row] for row in forwarded])
            delivered |= {
                (name, text, row, payload)
                for row, payload in zip(forwarded, payloads, strict=True)
                if payload is not None
            }
            expected |= {
                (name, text, row, f"record {row}".encode())
                for row, policy in enumerate(policies)
                if SCHEMA.parse(text).evaluate(encoded)[row]
                and roles.parse(policy).evaluate(roles.encode([attributes]))[0]
            }
    assert delivered == expected
    assert 0 < len(expected) < len(held) * len(TEXTS) * len(RECORDS)
