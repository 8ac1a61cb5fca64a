"""AspeMatch: encrypted answers are plaintext answers, with real numbers and exactly, through
covering and key updates; and whatever does not fit is refused.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Category, Int, Keyword, Schema, Text, UInt
from ccbps.ciphers.aspe import random_factors
from ccbps.errors import (
    DecodeError,
    EventError,
    KeyMismatchError,
    ParameterError,
    SerializationError,
)
from ccbps.keys.role_key import RoleKey
from ccbps.matching import KeyUpdate
from ccbps.matching.broken import AspeMatch
from ccbps.matching.contract.parties import Party
from ccbps.wire import Cause
from tests.support.effort import examples
from tests.support.refusals import refused
from tests.support.reusable_checks import (
    BODY,
    check_answers,
    check_covering,
    plain,
    sealed,
    secrets_of,
)
from tests.support.strategies import schemas, small_types

SCHEMA = Schema(
    price=UInt(16), issue=Category(["AAPL", "IBM", "SAP"]), volume=Int(12, nullable=True)
)
TEXTS = [
    "price < 30000",
    "price BETWEEN 100 AND 40000 AND issue = 'IBM'",
    "volume IS NULL",
    "issue LIKE 'A%' AND volume >= -7",
    "price = 0",
    "price > 9 AND price < 3",
    "TRUE",
    "price = 65535 AND volume = 2047",
]
both = pytest.mark.parametrize("exact", [False, True], ids=["real", "exact"])


def records(count: int, seed: int = 1) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {
            "price": int(rng.choice([0, 1, 100, 29999, 30000, 65535, rng.integers(65536)])),
            "issue": str(rng.choice(["AAPL", "IBM", "SAP"])),
            "volume": None if rng.random() < 0.3 else int(rng.choice([-2048, -7, -8, 0, 2047])),
        }
        for _ in range(count)
    ]


def party_of(exact: bool, schema: Schema = SCHEMA) -> Party:
    return Party(AspeMatch(schema, exact=exact))


def rotated(party: Party) -> tuple[Any, Party]:
    """Change the key; return the token and the roles of the next epoch."""
    return party.server.rotate(), Party(party.matcher, server=party.server)


narrow = st.one_of(
    schemas(small_types(), 3), st.just(SCHEMA), st.just(Schema(price=UInt(31), note=Text(3)))
)
wide = schemas().filter(lambda schema: all(schema[name].bits <= 64 for name in schema))


@st.composite
def drawn(draw: st.DrawFn) -> AspeMatch:
    """A matcher of real numbers, or an exact one, which takes wider attributes."""
    exact = draw(st.booleans())
    return AspeMatch(draw(narrow | wide if exact else narrow), exact=exact)


@settings(max_examples=examples(80), deadline=None)
@given(drawn(), st.data())
def test_answers_are_plaintext_answers(matcher: AspeMatch, data: st.DataObject) -> None:
    check_answers(matcher, data)


@settings(max_examples=examples(60), deadline=None)
@given(drawn(), st.data())
def test_covering_is_containment_of_boxes(matcher: AspeMatch, data: st.DataObject) -> None:
    check_covering(matcher, data)


@both
def test_many_pairs_in_blocks(exact: bool) -> None:
    batch = records(150)
    rng = np.random.default_rng(2)
    texts = [f"price BETWEEN {a} AND {a + 20000}" for a in rng.integers(0, 60000, 700)]
    answers = party_of(exact).answers(batch, texts)
    assert np.array_equal(answers, plain(SCHEMA, batch, texts))


@pytest.mark.parametrize("bits, exact", [(32, False), (32, True), (64, True)])
def test_neighbours_are_told_apart_in_wide_domains(bits: int, exact: bool) -> None:
    schema = Schema({f"a{i}": UInt(bits) for i in range(8)})
    party, top = party_of(exact, schema), 2**bits - 1
    values = [0, 1, top // 2, top // 2 + 1, top - 1, top]
    batch = [dict.fromkeys(schema, value) for value in values]
    texts = [f"a7 = {value}" for value in values]
    interests = party.subscriber.encode(texts)
    assert np.array_equal(party.answers(batch, texts), np.eye(6, dtype=np.bool_))
    assert np.array_equal(party.broker.covers(interests, interests), np.eye(6, dtype=np.bool_))


@both
def test_messages_do_not_repeat(exact: bool) -> None:
    """Not one of many thousand ciphertexts of one value: of events, bounds and corners."""
    party = party_of(exact)
    events = party.publisher.encode([records(1)[0]] * 5_000)
    assert len(np.unique(events, axis=0)) == len(events)
    text = "price BETWEEN 7 AND 9 AND issue = 'IBM' AND volume = 5"
    interests, numbers = party.subscriber.encode([text] * 600), party.matcher._numbers
    ciphertexts = numbers.numbers_of(interests[:, BODY]).reshape(-1, *numbers.shape)
    assert len(np.unique(ciphertexts, axis=0)) == len(ciphertexts) == 600 * 8


def test_blinds_of_exact_messages_take_all_values() -> None:
    """A factor has 12 bits here. What is drawn beside it is uniform: no residue is rare."""
    party = party_of(True)
    numbers = party.matcher._numbers
    key = numbers._key(party.keys["publisher"].export_secret_data())
    events = party.publisher.encode([records(1)[0]] * 8_000)
    rows = numbers.queries(numbers.numbers_of(events[:, BODY])[:, 0])
    opened = key.ring.matmul(rows, np.swapaxes(key.matrix, 1, 2))  # rho (q, blind, 0, 1)
    assert not opened[:, :, -2].any()
    assert len(np.unique(opened[:, :, -1], axis=1).T) <= 4_095
    for residues, prime in zip(opened[:, :, -3], key.ring.primes, strict=True):
        counts = np.bincount((residues % prime * 8 // prime).astype(int), minlength=8)
        assert (abs(counts - 1_000) < 6 * 30).all()  # with a deviation of 30


# -- key epochs ------------------------------------------------------------------------------------


@both
def test_stored_interests_follow_the_keys(exact: bool) -> None:
    old, batch = party_of(exact), records(60)
    late, interests = old.publisher.encode(batch), old.subscriber.encode(TEXTS)
    table, truth = old.broker.prepare(interests), plain(SCHEMA, batch, TEXTS)
    covers = old.broker.covers(table, table)

    token, new = rotated(old)
    events = new.publisher.encode(batch)
    updated, moved = (old.broker.update(stored, token, new.broker) for stored in (interests, table))
    for stored in (updated, moved, new.subscriber.encode(TEXTS)):
        assert np.array_equal(new.broker.match_all(events, stored), truth)
        assert np.array_equal(new.broker.covers(stored, stored), covers)
    assert not (updated == interests)[:, BODY].all(axis=1).any()

    # Both epochs side by side, and neither takes messages of the other.
    assert np.array_equal(old.broker.match_all(late, table), truth)
    for party, message in ((new, late), (old, events)):
        assert set(party.broker.examine_events(message)) == {Cause.EPOCH}
        refused(DecodeError, "key epoch", party.broker.match_all, message, interests)
    refused(KeyMismatchError, "epoch", new.broker.match_all, events, table)
    server = old.matcher.key_server(RoleKey.from_text(old.server.key.to_text()))
    assert old.server.epoch == server.epoch == 1
    restored = Party(old.matcher, server=server).subscriber.encode(TEXTS)
    assert np.array_equal(new.broker.match_all(events, restored), truth)


@both
def test_64_updates_in_turn(exact: bool) -> None:
    # As many values as real numbers take with 2 attributes: the tolerance is used up.
    schema = Schema(a=UInt(36 if exact else 35), b=UInt(8))
    party, top = party_of(exact, schema), 2 ** schema["a"].bits - 1
    values = [0, 1, top // 2, top // 2 + 1, top - 1, top]
    table = party.broker.prepare(party.subscriber.encode([f"a = {value}" for value in values]))
    for _ in range(64):
        token, new = rotated(party)
        table, party = party.broker.update(table, token, new.broker), new
    events = party.publisher.encode([{"a": v, "b": 9} for v in values])
    assert np.array_equal(party.broker.match_all(events, table), np.eye(6, dtype=np.bool_))


@both
def test_updates_are_refused_where_they_do_not_belong(exact: bool) -> None:
    first, other = party_of(exact), party_of(exact)
    broker, interests = first.broker, first.subscriber.encode(TEXTS)
    table = broker.prepare(interests)
    (token, next_epoch), (second, last) = rotated(first), rotated(first)
    token, middle = KeyUpdate.from_text(token.to_text()), next_epoch.broker
    foreign, stranger = rotated(other)
    for message, old, stored, update, new in (
        ("epoch 1; this broker's are of epoch 0", broker, table, second, last.broker),
        ("leads to epoch 1; the new broker is of epoch 2", broker, table, token, last.broker),
        ("prepared with another matcher, key or epoch", middle, table, second, last.broker),
        ("another matcher or key server", broker, table, foreign, stranger.broker),
        (r"KeyServer\.rotate", broker, table, last.keys["broker"], last.broker),
    ):
        refused(KeyMismatchError, message, old.update, stored, update, new)
    refused(DecodeError, "key epoch", middle.update, interests, second, last.broker)
    refused(ParameterError, "new must be a Broker", broker.update, table, token, table)
    moved = middle.update(broker.update(table, token, middle), second, last.broker)
    assert moved.ids == table.ids
    assert broker.update(interests[:0], token, middle).shape == interests[:0].shape
    assert len(broker.update(broker.prepare(interests[:0]), token, middle)) == 0
    assert token.export_secret_data()["change"][:16] not in repr(token)
    refused(SerializationError, "", pickle.dumps, token)


@both
def test_servers_that_were_rotated_apart_are_not_taken_for_each_other(exact: bool) -> None:
    """From one saved key two servers draw different keys of the same epoch."""
    party, batch = party_of(exact), records(20)
    broker, interests = party.broker, party.subscriber.encode(TEXTS)
    saved = RoleKey.from_text(party.server.key.to_text())
    restored = Party(party.matcher, server=party.matcher.key_server(saved))
    (token, new), (other, apart) = rotated(party), rotated(restored)
    servers = party.server, restored.server
    assert [server.epoch for server in servers] == [1, 1]
    assert {server.key.key_id[:2] for server in servers} == {saved.key_id[:2]}

    events, strange = (some.publisher.encode(batch) for some in (new, apart))
    assert set(new.broker.examine_events(strange)) == {Cause.KEY}
    moved = broker.update(interests, token, new.broker)
    message = "under another master key"
    refused(DecodeError, message, new.broker.match_all, strange, moved)
    refused(DecodeError, message, new.broker.match_all, events, apart.subscriber.encode(TEXTS))
    table = broker.prepare(interests)
    refused(KeyMismatchError, "leads to epoch 1", broker.update, table, other, new.broker)
    third, later = rotated(restored)
    refused(KeyMismatchError, "epoch 1", new.broker.update, moved, third, later.broker)
    stored = broker.update(table, token, new.broker)
    assert np.array_equal(new.broker.match_all(events, stored), plain(SCHEMA, batch, TEXTS))
    token, last = rotated(party)
    assert len(new.broker.update(stored, token, last.broker)) == len(TEXTS)


def test_epochs_end() -> None:
    party = party_of(False)
    key, data = party.server.key, party.server.key.export_secret_data()
    last = RoleKey.make(key.matcher, "server", key.key_id, 0xFFFF, data)
    refused(ParameterError, "no epoch is left", party.matcher.key_server(last).rotate)


# -- what is drawn ---------------------------------------------------------------------------------


@both
def test_the_place_of_a_known_bound_is_uniform(exact: bool) -> None:
    """A subscription has four bounds; an event that is below the first attribute's lower one, and
    inside of all others, shows where that one went."""
    schema, count = Schema(a=UInt(8), b=UInt(8)), 4_000
    party, randomness = party_of(exact, schema), np.random.default_rng(6).bytes
    subscriber = party.matcher.subscriber(party.keys["subscriber"], randomness=randomness)
    interests = subscriber.encode(["a BETWEEN 100 AND 200 AND b BETWEEN 100 AND 200"] * count)
    probes = [{"a": 50, "b": 150}, {"a": 250, "b": 150}, {"a": 150, "b": 50}, {"a": 150, "b": 250}]
    numbers = party.matcher._numbers
    queries = numbers.queries(numbers.numbers_of(party.publisher.encode(probes)[:, BODY])[:, 0])
    bounds = numbers.differences(numbers.numbers_of(interests[:, BODY])[:, :-2])
    failed = ~np.stack([numbers.inside(queries, bound[None]) for bound in bounds])
    assert (failed.sum(axis=0) == 1).all()  # (place, probe, interest): each fails one bound
    places = failed.argmax(axis=0)
    for probe in places:
        # 1,000 in each place, with a deviation of 27.
        assert (abs(np.bincount(probe, minlength=4) - count / 4) < 6 * 27.4).all()
    # The order as a whole is uniform too, not only turned round: 24 of them.
    orders = np.unique(places.T, axis=0, return_counts=True)[1]
    assert len(orders) == 24 and (abs(orders - count / 24) < 6 * np.sqrt(count / 24)).all()


def test_random_factors_spread_over_sixteen_powers_of_two() -> None:
    words = np.random.default_rng(7).integers(0, 2**64, 32_000, dtype=np.uint64)
    factors = random_factors(words)
    assert factors.min() >= 2.0**-8 and factors.max() < 2.0**8
    power = np.floor(np.log2(factors)).astype(int)
    # 2,000 in each, with a deviation of 43; and within one uniform, not at its ends.
    assert (abs(np.bincount(power + 8, minlength=16) - 2_000) < 6 * 43.3).all()
    within = factors / 2.0**power
    assert within.min() >= 1 and (abs(np.histogram(within, 8, (1, 2))[0] - 4_000) < 6 * 60).all()


def test_messages_of_one_value_differ_in_size_by_their_factors() -> None:
    """Products of equal events with a bound, and of equal bounds, corners with an event: what is
    left when the factors of the others are the same is the spread of their own."""
    schema, count = Schema(a=UInt(8)), 1_000
    party = party_of(False, schema)
    numbers = party.matcher._numbers
    events = numbers.numbers_of(party.publisher.encode([{"a": 15}] * count)[:, BODY])[:, 0]
    # 15 is as far from both bounds.
    interests = party.subscriber.encode(["a BETWEEN 10 AND 20"] * count)
    rows = numbers.numbers_of(interests[:, BODY])
    corners = rows[:, 2:].reshape(count, 2, -1)
    for sizes in (
        events @ rows[0, 0],
        rows[:, 0] @ events[0],
        rows[:, 1] @ events[0],
        corners[:, 0] @ rows[0, 0],
        corners[:, 1] @ rows[0, 0],
    ):
        exponents = np.log2(np.abs(sizes))
        # Between factors of 2^-8 and 2^8 there are 16 powers of two. Of 1,000 some are near both.
        assert 15 < exponents.max() - exponents.min() <= 16.001
        assert 4 < exponents.std() < 5.3  # 4.6 for a uniform exponent


# -- refused ---------------------------------------------------------------------------------------


def test_attributes_that_are_too_wide() -> None:
    with pytest.raises(ParameterError, match="at most 64 bits, got 128"):
        AspeMatch(Schema(word=Keyword(128)), exact=True)
    with pytest.raises(ParameterError, match=r"'a' must have at most .* use exact=True"):
        AspeMatch(Schema(a=UInt(40)))
    many = Schema({f"a{i}": UInt(8) for i in range(256)})
    with pytest.raises(
        ParameterError, match="number of attributes must be a whole number from 1 to 253"
    ):
        AspeMatch(many, exact=True)


def test_events_that_are_no_number_are_refused() -> None:
    publisher = party_of(False).publisher
    for price in (1 << 16, float("nan")):
        with pytest.raises(EventError, match="price"):
            publisher.encode([{"price": price, "issue": "IBM", "volume": 0}])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e9])
def test_real_messages_with_numbers_that_do_not_occur(value: float) -> None:
    party = party_of(False)
    broker = party.broker
    for role, content, examine in (
        (party.publisher, records(3), broker.examine_events),
        (party.subscriber, TEXTS[:3], broker.examine_interests),
    ):
        messages = role.encode(content)
        messages[1, BODY][-8:] = np.array([value], dtype="<f8").view(np.uint8)
        assert examine(sealed(role, messages)).tolist() == [0, Cause.VALUE, 0]
    refused(DecodeError, "row 1", broker.prepare, messages)


def test_exact_messages_with_residues_that_do_not_occur() -> None:
    party = party_of(True)
    events = party.publisher.encode(records(3))
    prime = party.matcher._numbers.ring.primes[-1]
    events[2, BODY][-4:] = np.array([prime], dtype="<u4").view(np.uint8)
    causes = party.broker.examine_events(sealed(party.publisher, events))
    assert causes.tolist() == [0, 0, Cause.VALUE]


@both
def test_keys_that_do_not_fit(exact: bool) -> None:
    party = party_of(exact)
    matcher, key = party.matcher, party.keys["publisher"]
    data = key.export_secret_data()
    for inverse in (data["inverse"][:-16], data["inverse"] + "00" * 8):
        bent = {**data, "inverse": inverse}
        wrong = RoleKey.make(key.matcher, "publisher", key.key_id, 0, bent)
        refused(KeyMismatchError, "key's content is not that of", matcher.publisher, wrong)
    other = AspeMatch(SCHEMA, exact=not exact)
    refused(KeyMismatchError, "another matcher", other.publisher, key)
    strange = Party(matcher).publisher.encode(records(2))
    assert set(party.broker.examine_events(strange)) == {Cause.KEY}
    assert not secrets_of(party.keys["broker"])


@both
def test_a_matcher_tells_which_numbers_it_has(exact: bool) -> None:
    matcher = AspeMatch(SCHEMA, exact=exact)
    card = matcher.leakage
    assert any("divisors" in text for text in card.attacks) == exact
    assert "security manager" in matcher.explain()


def test_what_is_proposed_for_narrow_and_wide_attributes() -> None:
    predicate = SCHEMA.parse("price < 3")
    assert [matcher.exact for matcher in AspeMatch.propose(SCHEMA, predicate)] == [False, True]
    wide = Schema(a=UInt(40))
    assert [matcher.exact for matcher in AspeMatch.propose(wide, wide.parse("a < 3"))] == [True]
    assert not list(AspeMatch.propose(SCHEMA, SCHEMA.parse("price < 3 OR volume > 9")))
