"""KeywordMatch: encrypted answers are plaintext answers, users come and go, bad input."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Category, Schema, UInt
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError, UnsupportedPredicateError
from ccbps.keys.role_key import RoleKey
from ccbps.matching import KeywordMatch
from ccbps.matching.contract.access import MAC_BYTES
from ccbps.wire import KEY_HEADER_BYTES, Cause
from tests.support.effort import examples
from tests.support.refusals import refused
from tests.support.reusable_checks import BODY, plain, sealed, secrets_of, users
from tests.support.strategies import record, rows, schemas

SCHEMA = Schema(
    issue=Category(["AAPL", "GOOG", "IBM", "MSFT"]), price=UInt(3), size=UInt(64, nullable=True)
)
RECORDS = [
    {"issue": "IBM", "price": 3, "size": 2**64 - 1},
    {"issue": "IBM", "price": 4, "size": None},
    {"issue": "GOOG", "price": 3, "size": 0},
]
Side = Literal["interests", "events"]
sides = pytest.mark.parametrize("side", ["interests", "events"])


def toy(side: Side = "interests", **rest: Any) -> KeywordMatch:
    return KeywordMatch(SCHEMA, group="toy64", trapdoors=side, **rest)


@sides
@given(schema=schemas(), data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_answers_are_the_plaintext_meaning(side: Side, schema: Schema, data: st.DataObject) -> None:
    matcher = KeywordMatch(schema, group="toy64", trapdoors=side)
    _, broker, publisher, alice, bob = users(matcher, "alice", "bob")
    drawn = data.draw(rows(schema))
    records = schema.encode([record(row) for row in drawn])
    predicates = []
    for _ in range(data.draw(st.integers(0, 4))):
        # Values of one record, or of several: some match and some do not.
        names = data.draw(st.lists(st.sampled_from(schema.names), unique=True))
        terms, values = ["TRUE"], {}
        for name in names if drawn else []:
            value = record(data.draw(st.sampled_from(drawn)))[name]
            terms.append(f"{name} IS NULL" if value is None else f"{name} = :{name}")
            if value is not None:
                values[name] = value
        predicates.append(schema.parse(" AND ".join(terms)).bind(**values))
    half = len(predicates) // 2
    interests = np.concatenate([alice.encode(predicates[:half]), bob.encode(predicates[half:])])
    matches = broker.match_all(publisher.encode(records), interests)
    assert matches.T.tolist() == [predicate.evaluate(records).tolist() for predicate in predicates]


@sides
@pytest.mark.parametrize("group", ["secp256k1", pytest.param("modp2048", marks=pytest.mark.slow)])
def test_full_size(group: str, side: Side) -> None:
    matcher = KeywordMatch(SCHEMA, group=group, trapdoors=side, equalities=2)
    _, broker, publisher, alice = users(matcher)
    texts = ["issue = 'IBM'", "issue = 'IBM' AND price = 3", "size IS NULL", "price = 9", "TRUE"]
    events, interests = publisher.encode(RECORDS), alice.encode(texts)
    matches = broker.match_all(events, broker.prepare(interests))
    assert np.array_equal(matches, plain(SCHEMA, RECORDS, texts))
    assert broker.match(events, interests[:3]).tolist() == [True, False, False]
    width = {"secp256k1": 33, "modp2048": 256}[group]
    ciphertext, trapdoor = 2 * width + 16, 2 * width
    if side == "events":
        ciphertext, trapdoor = trapdoor, ciphertext
    assert matcher.event_bytes == KEY_HEADER_BYTES + 8 + 3 * ciphertext + MAC_BYTES
    assert matcher.interest_bytes == KEY_HEADER_BYTES + 8 + 2 * (1 + trapdoor) + MAC_BYTES


@sides
def test_contradictions_look_like_equalities(side: Side) -> None:
    matcher = toy(side)
    _, broker, publisher, alice = users(matcher)
    interests = alice.encode(["price = 1 AND price = 2", "FALSE", "issue = 'IBM'"])
    matches = broker.match_all(publisher.encode(RECORDS), interests)
    assert matches.T.tolist() == [[False] * 3, [False] * 3, [True, True, False]]
    assert (interests[:, BODY] != 0).sum(axis=1).min() > 16


def test_messages_of_one_value_are_all_different() -> None:
    _, _, publisher, alice = users(toy())
    for messages in (publisher.encode(RECORDS[:1] * 4), alice.encode(["issue = 'IBM'"] * 4)):
        assert len(np.unique(messages, axis=0)) == 4


# -- users --------------------------------------------------------------------------------------


@sides
def test_a_revoked_user_is_refused_and_others_go_on(side: Side) -> None:
    matcher = toy(side)
    server, broker, publisher, alice, bob = users(matcher, "alice", "bob")
    assert server.users == ("publisher:publisher", "subscriber:alice", "subscriber:bob")
    interests = np.concatenate([alice.encode("issue = 'IBM'"), bob.encode(["price = 3", "TRUE"])])
    events, table = publisher.encode(RECORDS), broker.prepare(interests)
    assert broker.match_all(events, table).any(axis=0).all()
    identifier = server.revoke("subscriber", "bob")
    broker.revoke(identifier)
    matches = broker.match_all(events, table)
    assert matches.T.tolist() == [[True, True, False], [False] * 3, [False] * 3]
    refusal = refused(DecodeError, "a user this broker does not serve", broker.prepare, interests)
    assert refusal.rows == (1, 2)
    assert broker.examine_interests(interests).tolist() == [0, Cause.USER, Cause.USER]
    assert broker.match_all(events, interests[:1]).T.tolist() == [[True, True, False]]
    # Neither the server nor a new broker knows bob any more; whoever is revoked stays revoked.
    assert identifier.hex() not in matcher.broker(server.broker_key()).users
    refused(ParameterError, "subscriber 'bob' was revoked", server.subscriber_key, "bob")
    refused(ParameterError, "no subscriber 'bob' has a key", server.revoke, "subscriber", "bob")
    refused(ParameterError, "revoked before", broker.revoke, identifier)
    wrong: Any
    for wrong in ("bob", 8, identifier[1:]):
        refused(ParameterError, r"user must be 8 bytes, got .*key server", broker.revoke, wrong)


def test_a_user_with_a_newer_key_than_the_brokers_learns_what_to_do() -> None:
    matcher = toy()
    server, broker, *_ = users(matcher, "alice")
    carol = matcher.subscriber(server.subscriber_key("carol")).encode("price = 3")
    advice = r"issued after the broker's, which broker.admit\(server.broker_key\(\)\) takes in"
    refused(DecodeError, advice, broker.prepare, carol)
    broker.admit(server.broker_key())
    assert len(broker.prepare(carol)) == 1


def test_a_server_that_forgot_a_user_gives_the_same_key_again() -> None:
    matcher = KeywordMatch(Schema(topic=UInt(8)), group="toy64")
    server = matcher.key_server()
    before = server.key
    publisher, alice = server.publisher_key(), server.subscriber_key("alice")
    restored = matcher.key_server(before)
    assert restored.users == ()
    assert restored.subscriber_key("alice").export_secret_data() == alice.export_secret_data()
    assert restored.publisher_key().export_secret_data() == publisher.export_secret_data()
    assert (
        restored.subscriber_key("bob").export_secret_data()["x1"]
        != alice.export_secret_data()["x1"]
    )
    # Publishers and subscribers of one name are two users.
    namesake = restored.subscriber_key("publisher").export_secret_data()
    assert namesake["user"] != publisher.export_secret_data()["user"]
    # Messages from before are matched by the broker of the restored server.
    broker = matcher.broker(restored.broker_key())
    sent = matcher.publisher(publisher).encode({"topic": [1, 2]})
    assert broker.match_all(sent, matcher.subscriber(alice).encode("topic = 2")).tolist() == [
        [False],
        [True],
    ]


def test_a_revoked_publisher_is_refused() -> None:
    matcher = toy()
    server, broker, publisher, alice = users(matcher)
    second = matcher.publisher(server.publisher_key("second"))
    broker.admit(server.broker_key())
    broker.revoke(server.revoke("publisher", "publisher"))
    events = np.concatenate([publisher.encode(RECORDS), second.encode(RECORDS)])
    assert broker.examine_events(events).tolist() == [Cause.USER] * 3 + [0] * 3
    assert broker.match_all(events[3:], alice.encode("price = 3"))[:, 0].tolist() == [1, 0, 1]


def test_users_who_join_later() -> None:
    matcher = toy()
    server, broker, publisher, _ = users(matcher)
    late = matcher.subscriber(server.subscriber_key("late"))
    interests = late.encode("price = 4")
    assert broker.examine_interests(interests).tolist() == [Cause.USER]
    broker.admit(server.broker_key())
    matches = broker.match_all(publisher.encode(RECORDS), interests)
    assert matches[:, 0].tolist() == [False, True, False]
    refused(KeyMismatchError, "another master key", broker.admit, matcher.key_server().broker_key())
    refused(KeyMismatchError, "wanted a broker's", broker.admit, server.subscriber_key("late"))


def test_a_broker_does_not_take_back_whom_it_revoked() -> None:
    matcher = toy()
    server, *_ = users(matcher)
    key = server.broker_key()
    alice = bytes.fromhex(server.subscriber_key("alice").export_secret_data()["user"])
    first, second = matcher.broker(key), matcher.broker(key)
    first.revoke(alice)
    first.admit(server.broker_key())  # the server still knows alice
    assert alice.hex() not in first.users
    assert alice.hex() in second.users and alice.hex() in matcher.broker(key).users
    first.admit(key)
    refused(ParameterError, f"no user {alice.hex()} is served here", first.revoke, alice)


@sides
def test_tables_grow_shrink_and_come_back_without_revoked_users(side: Side) -> None:
    matcher = toy(side)
    server, broker, publisher, alice, bob = users(matcher, "alice", "bob")
    texts = ["price = 3", "issue = 'IBM'", "TRUE"]
    both = np.concatenate([alice.encode(texts), bob.encode(texts)])
    events = publisher.encode(RECORDS)
    table = broker.prepare(both, ids=["a0", "a1", "a2", "b0", "b1", "b2"])
    broker.revoke(server.revoke("subscriber", "bob"))
    expected = {"a0": [1, 0, 1], "a1": [1, 1, 0], "a2": [1, 1, 1]}

    def answers(table: Any) -> dict[Any, list[int]]:
        return dict(
            zip(table.ids, broker.match_all(events, table).T.astype(int).tolist(), strict=True)
        )

    # Parts are joined, with bob's interests in them; then one of bob's and one of alice's goes.
    table.add(alice.encode("size IS NULL"), ids=["late"])
    table.add(alice.encode([*texts, *texts, "price = 4"]))
    assert {name: answers(table)[name] for name in expected} == expected
    assert answers(table)["late"] == [0, 1, 0] and answers(table)[6] == [0, 1, 0]
    assert all(answers(table)[name] == [0, 0, 0] for name in ("b0", "b1", "b2"))
    table.remove(["a0", "b0", 0, 1, 2, 3, 4, 5])
    assert answers(table) == {
        "a1": [1, 1, 0],
        "a2": [1, 1, 1],
        "b1": [0, 0, 0],
        "b2": [0, 0, 0],
        "late": [0, 1, 0],
        6: [0, 1, 0],
    }
    refused(
        DecodeError, "revoked, or with a key that was issued after", broker.load, table.to_bytes()
    )
    loaded = broker.load(table.to_bytes(), drop_unserved=True)
    assert answers(loaded) == {"a1": [1, 1, 0], "a2": [1, 1, 1], "late": [0, 1, 0], 6: [0, 1, 0]}


def test_a_change_of_key_does_not_bring_back_who_was_revoked() -> None:
    matcher = toy()
    server, broker, publisher, _, _ = users(matcher, "alice", "bob")
    server.revoke("subscriber", "bob")
    assert server.rotate() is None  # interests are encoded again
    assert server.users == ()
    refused(ParameterError, "subscriber 'bob' was revoked", server.subscriber_key, "bob")
    renewed = matcher.subscriber(server.subscriber_key("alice")).encode("price = 3")
    assert broker.examine_interests(renewed).tolist() == [Cause.EPOCH]
    feed = matcher.publisher(server.publisher_key())
    after = matcher.broker(server.broker_key())
    assert after.examine_events(publisher.encode(RECORDS)).tolist() == [Cause.EPOCH] * 3
    assert after.match_all(feed.encode(RECORDS), renewed)[:, 0].tolist() == [True, False, True]


def test_keys_are_given_again_and_servers_come_back() -> None:
    matcher = toy()
    server = matcher.key_server()
    key = server.subscriber_key("alice")
    assert server.subscriber_key("alice") == key
    assert set(secrets_of(key)) == {"user", "x1", "s", "h"}
    again = matcher.key_server(RoleKey.from_text(server.key.to_text()))
    assert again.subscriber_key("alice") == key
    assert again.users == ("subscriber:alice",)
    # A publisher of the same name is another user.
    assert (
        server.publisher_key("alice").export_secret_data()["user"]
        != key.export_secret_data()["user"]
    )


# -- bad input ----------------------------------------------------------------------------------


def test_parameters() -> None:
    for wrong in (0, 4, "2", True):
        with pytest.raises(ParameterError, match="equalities must be a whole number from 1 to 3"):
            KeywordMatch(SCHEMA, equalities=wrong, group="toy64")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="trapdoors must be 'interests' or 'events'"):
        KeywordMatch(SCHEMA, group="toy64", trapdoors="both")  # type: ignore[arg-type]
    refused(ParameterError, "group must be ", KeywordMatch, SCHEMA, group="p256")
    wide = Schema({f"a{number}": UInt(1) for number in range(256)})
    with pytest.raises(ParameterError, match=r"number of attributes must be .* from 1 to 255"):
        KeywordMatch(wide, group="toy64")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("price < 3", "attribute 'price' needs a range"),
        ("price = 1 OR issue = 'IBM'", "differ in several attributes"),
        ("issue = 'IBM' AND price = 3", "2 equalities; this matcher takes 1"),
    ],
)
def test_predicates_that_are_no_equalities(text: str, problem: str) -> None:
    _, _, _, alice = users(toy(equalities=1))
    assert refused(UnsupportedPredicateError, problem, alice.encode, ["price = 3", text]).row == 1


def test_malformed_bodies() -> None:
    _, broker, publisher, alice = users(toy())
    events = np.repeat(publisher.encode(RECORDS[:1]), 4, axis=0)
    body = events[:, BODY][:, 8:]
    body[1, :8] = 255  # no residue
    body[2, 32:64] = 0  # an attribute left out
    body[3, 8:16] = 0
    sealed(publisher, events)
    assert broker.examine_events(events).tolist() == [0] + [Cause.VALUE] * 3
    interests = np.repeat(alice.encode("issue = 'IBM'"), 5, axis=0)
    slots = interests[:, BODY][:, 8:].reshape(5, 3, 17)
    slots[1, 0, 0] = 3  # no such attribute
    slots[2, 1, 0] = 0  # an attribute without a trapdoor
    slots[3, 0, 1:9] = 255
    slots[4, 0, 0] = 255  # a trapdoor without an attribute
    sealed(alice, interests)
    assert broker.examine_interests(interests).tolist() == [0] + [Cause.VALUE] * 4
    with pytest.raises(DecodeError, match="a value that no message of this scheme has"):
        broker.match_all(publisher.encode(RECORDS), interests)


# -- what it says of itself ---------------------------------------------------------------------


def test_card_and_costs() -> None:
    matcher = toy(equalities=2)
    text = matcher.explain()
    assert "per pair: 2 x modular product (toy64), at most" in text
    assert "per pair: 2 x SHA-256 block, at most" in text
    assert "which interests hold equal values, across all users" in text
    assert "which events hold equal values, across all users" in toy("events").explain()
    assert "secp256k1" in KeywordMatch(SCHEMA).explain()


@pytest.mark.parametrize(
    ("text", "slots"),
    [("price = 3", 1), ("price = 3 AND issue = 'IBM'", 2), ("TRUE", 1), ("price = 1 AND FALSE", 1)],
)
def test_proposals_have_a_slot_for_each_equality(text: str, slots: int) -> None:
    (matcher,) = KeywordMatch.propose(SCHEMA, SCHEMA.parse(text))
    assert matcher.equalities == slots
    matcher.prepare(text)


@pytest.mark.parametrize("text", ["price < 3", "price = 1 OR issue = 'IBM'", "price = :x"])
def test_nothing_is_proposed_for_other_predicates(text: str) -> None:
    assert not list(KeywordMatch.propose(SCHEMA, SCHEMA.parse(text)))
