"""ThreeBrokerMatch with grants: public parameters, roles, brokers in one process."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import pytest

from ccbps import Category, Schema, UInt
from ccbps.errors import DecodeError, ParameterError, PredicateError, UnsupportedPredicateError
from ccbps.keys import ClientKey
from ccbps.matching import Matcher, ThreeBrokerMatch, from_json
from ccbps.predicates import Predicate
from ccbps.shares.clients import BrokerKey, part_of, sealed_part
from ccbps.testing import conformance_tests

SCHEMA = Schema(issue=Category(["AAPL", "IBM", "MSFT"], nullable=True), price=UInt(16))
RECORDS = [{"issue": issue, "price": price} for issue in ("AAPL", None) for price in (5, 99, 120)]
TEXTS = ["price < 100", "issue = 'AAPL'", "TRUE"]
BOX = ThreeBrokerMatch.box(SCHEMA, grants=True)


class Granted(ThreeBrokerMatch):
    """The same scheme, which proposes matchers that demand grants."""

    @classmethod
    def propose(cls, schema: Schema, predicate: Predicate) -> Iterator[Matcher]:  # type: ignore[override]
        for matcher in super().propose(schema, predicate):
            size = matcher.parameters()["gates"] + 1
            parameters = {**matcher.parameters(), "grants": True, "gates": size}
            yield cls.from_parameters(schema, parameters)


TestGranted = conformance_tests(Granted)


@pytest.mark.parametrize("reveal", ["brokers", "subscriber"])
@pytest.mark.parametrize(
    "grant", ["price < 100", "issue IS NOT NULL", "price < 3", "NOT price BETWEEN 50 AND 100"]
)
def test_answers_are_interest_and_grant(reveal: str, grant: str) -> None:
    matcher = ThreeBrokerMatch.box(SCHEMA, grants=True, reveal=reveal)  # type: ignore[arg-type]
    events = SCHEMA.encode(RECORDS)
    expected = np.stack([SCHEMA.parse(text).evaluate(events) for text in TEXTS], axis=1)
    expected &= SCHEMA.parse(grant).evaluate(events)[:, None]
    brokers = matcher.local()
    assert np.array_equal(brokers.match_all(RECORDS, TEXTS, grant=grant), expected)
    assert not brokers.match_all(RECORDS, TEXTS, grant=None).any()


def test_clients_and_brokers_in_one_process() -> None:
    brokers = BOX.local()
    authority = BOX.authority(brokers.public)
    ann, bob, publisher = (
        make(brokers.public) for make in (BOX.subscriber, BOX.subscriber, BOX.publisher)
    )
    for role in (ann, bob, publisher):
        brokers.greet(role.hellos)
    sent = publisher.encode(RECORDS)
    own = np.concatenate([ann.encode(TEXTS), bob.encode(TEXTS)])
    with pytest.raises(ParameterError, match="must be the hello of the client that gives grants"):
        brokers.match_messages(sent, own)
    with pytest.raises(DecodeError, match="a hello for broker 0 has"):
        brokers.name_authority(authority.hellos[::-1])
    brokers.name_authority(authority.hellos)
    brokers.grant(authority.grant("price < 100", to=ann.client))
    with pytest.raises(DecodeError, match=r"row 3: .* a client that has no grant.*\(and 2 more"):
        brokers.match_messages(sent, own)
    brokers.grant(authority.grant("issue = 'AAPL'", to=[bob.client]))
    events = SCHEMA.encode(RECORDS)
    meant = np.stack([SCHEMA.parse(text).evaluate(events) for text in TEXTS], axis=1)
    expected = [
        meant & SCHEMA.parse(grant).evaluate(events)[:, None]
        for grant in ("price < 100", "issue = 'AAPL'")
    ]
    assert np.array_equal(brokers.match_messages(sent, own), np.concatenate(expected, axis=1))
    brokers.grant(authority.grant("TRUE", to=ann.client, number=0))
    with pytest.raises(DecodeError, match=r"the brokers refuse a grant: .* not newer than"):
        brokers.match_messages(sent, own)


def test_grants_are_public_parameters_and_stated() -> None:
    usual = ThreeBrokerMatch.box(SCHEMA)
    made = [
        BOX,
        usual,
        ThreeBrokerMatch.box(SCHEMA, grants=True, intervals=2),
        ThreeBrokerMatch(SCHEMA, "price < :p", grants=True),
        ThreeBrokerMatch(SCHEMA, "price < :p"),
        ThreeBrokerMatch.hidden(SCHEMA, leaves=2, grants=True),
        ThreeBrokerMatch.hidden(SCHEMA, leaves=2),
    ]
    assert len({matcher.fingerprint for matcher in made}) == len(made)
    for matcher in made:
        assert from_json(matcher.to_json()) == pickle.loads(pickle.dumps(matcher)) == matcher
    assert (BOX.event_bytes, BOX.interest_bytes) == (usual.event_bytes, usual.interest_bytes)
    gates = usual.size
    assert BOX.size == gates + 1
    grant = 76 + 2 * (usual.interest_bytes - 52 + 16)
    text = BOX.explain()
    assert f"{gates + 1} bits a pair sent by each broker, and 1 to open" in text
    assert (
        f"grants:      of {grant} bytes, for each client; {gates} bits an event and client" in text
    )
    assert "grants:" not in usual.explain()
    assert any("which clients have a grant" in line for line in BOX.leakage.learns)
    assert any("which events a grant allows" in line for line in BOX.leakage.hides)
    assert not any("grant" in line for line in (*usual.leakage.learns, *usual.leakage.hides))
    with pytest.raises(ParameterError, match="grants must be True or False"):
        ThreeBrokerMatch.box(SCHEMA, grants=1)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="at least 16 gates, and max_gates allows 14"):
        ThreeBrokerMatch.box(SCHEMA, grants=True, max_gates=14)


def test_a_grant_is_a_box_whatever_interests_are() -> None:
    template = ThreeBrokerMatch(SCHEMA, "price < :p OR issue = 'IBM'", grants=True)
    records = [*RECORDS, {"issue": "IBM", "price": 7}]
    events = SCHEMA.encode(records)
    expected = template.meaning({"p": 100}, events) & (events.codes["price"][0] >= 7)
    got = template.local().match_all(records, [{"p": 100}], grant="price >= 7")
    assert expected.any() and np.array_equal(got[:, 0], expected)
    public = BOX.local().public
    with pytest.raises(UnsupportedPredicateError, match="differ in several attributes"):
        BOX.authority(public).grant("price < 3 OR issue = 'IBM'", to=bytes(16))
    with pytest.raises(UnsupportedPredicateError, match="more intervals than"):
        BOX.authority(public).grant("price IN (1, 3, 5)", to=bytes(16))
    with pytest.raises(PredicateError):
        BOX.authority(public).grant("prise < 3", to=bytes(16))
    wider = ThreeBrokerMatch.box(SCHEMA, grants=True, intervals=3)
    assert len(wider.authority(public).grant("price IN (1, 3, 5)", to=bytes(16))) == 1


def test_roles_and_brokers_refuse_what_is_not_theirs() -> None:
    usual, public = ThreeBrokerMatch.box(SCHEMA), BOX.local().public
    with pytest.raises(ParameterError, match="demands no grants: make it with grants=True"):
        usual.authority(public)
    key = BrokerKey.generate()
    hello = BOX.authority([key.public, *public[1:]]).hellos[0]
    with pytest.raises(ParameterError, match="and None where it does not"):
        usual.broker(0, key, None, authority=hello)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="authority= must be the hello"):
        BOX.broker(0, key, None)  # type: ignore[arg-type]
    with pytest.raises(DecodeError, match="a hello for broker 1 has"):
        BOX.broker(1, key, None, authority=hello)  # type: ignore[arg-type]
    party = usual.broker(0, key, None)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="demands no grants"):
        party.grant(np.zeros((0, 76), dtype=np.uint8))


def test_names_follow_from_keys_and_matchers() -> None:
    key, other = (ClientKey.generate(BOX.local().public) for _ in range(2))
    names = {make(key).client for make in (BOX.subscriber, BOX.publisher, BOX.authority)}
    assert len(names) == 1 and {len(name) for name in names} == {16}
    assert BOX.subscriber(other).client not in names
    assert ThreeBrokerMatch.box(SCHEMA).subscriber(key).client not in names
    # Processes that make grants of one authority use random places of their own.
    made = [BOX.authority(key).grant("TRUE", to=bytes(16), number=5) for _ in range(2)]
    assert not np.array_equal(made[0][:, 24:48], made[1][:, 24:48])
    assert not np.array_equal(made[0][:, 76:], made[1][:, 76:])
    # Broker 0 gets the head, and the others what is sealed for each of them.
    sizes = [sealed_part(party, made[0], "grant").shape[1] for party in range(3)]
    assert sizes == [76, *[76 + BOX.interest_bytes - 52 + 16] * 2]
    assert part_of(0, made[0]).shape[1] == 52


def test_grants_of_an_authority_rise_in_number() -> None:
    authority = BOX.authority(BOX.local().public)
    numbers = [authority.grant("TRUE", to=bytes(16))[0, 68:76].tobytes() for _ in range(50)]
    values = [int.from_bytes(number, "little") for number in numbers]
    assert values == sorted(set(values)) and values[0] > 1 << 60
