"""PaillierRangeMatch: encrypted answers are plaintext answers and those of the scheme's own
comparisons; bad input is refused. TOY moduli can be factored; they make the tests fast.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Category, Decimal, Schema, Text, UInt
from ccbps.algebra.modular import integer, rows_from, rows_to
from ccbps.ciphers.nabeel import NabeelComparer
from ccbps.errors import DecodeError, ParameterError, SerializationError
from ccbps.matching.broken import PaillierRangeMatch
from ccbps.wire import Cause
from tests.support.effort import examples
from tests.support.refusals import refused
from tests.support.reusable_checks import (
    BODY,
    answers,
    check_answers,
    plain,
    roles,
    sealed,
    secrets_of,
)
from tests.support.strategies import schemas

TOY = 256
SCHEMA = Schema(
    issue=Category(["AAPL", "GOOG", "IBM", "MSFT"]), price=Decimal(0, 1000, "0.01"), volume=UInt(32)
)
TEXTS = [
    "issue = 'IBM' AND price < 120 AND volume > 1000",
    "price BETWEEN 100 AND 120",
    "volume = 0",
    "TRUE",
    "price < 5 AND price > 6",
]


def toy(schema: Schema) -> PaillierRangeMatch:
    return PaillierRangeMatch(schema, TOY, toy=True)


MATCHER = toy(SCHEMA)
SERVER = MATCHER.key_server()
PUBLISHER, SUBSCRIBER, BROKER = roles(MATCHER, SERVER)
BROKER_KEY = SERVER.broker_key().export_secret_data()
RECORDS: list[dict[str, Any]] = [
    {"issue": "IBM", "price": 119.50, "volume": 2500},
    {"issue": "IBM", "price": 120.00, "volume": 1000},
    {"issue": "AAPL", "price": 0, "volume": 0},
    {"issue": "MSFT", "price": 1000, "volume": 2**32 - 1},
]


@given(schema=schemas(), data=st.data())
@settings(max_examples=examples(80))
def test_answers_are_the_plaintext_meaning(schema: Schema, data: st.DataObject) -> None:
    if any(schema[name].bits > TOY - 67 for name in schema):
        refused(ParameterError, "need a modulus of at least", toy, schema)
    else:
        check_answers(toy(schema), data)


@given(st.lists(st.integers(0, 2**16 - 1), min_size=1), st.data())
@settings(max_examples=examples(40))
def test_intervals_and_their_edges(values: list[int], data: st.DataObject) -> None:
    schema = Schema(x=UInt(16))
    edge = st.sampled_from([0, 2**16 - 1, *values]) | st.integers(0, 2**16 - 1)
    pairs = data.draw(st.lists(st.tuples(edge, edge), min_size=1, max_size=6))
    texts = [f"x BETWEEN {min(p)} AND {max(p)}" for p in pairs] + [f"x = {p[0]}" for p in pairs]
    texts += [f"x < {p[0]}" for p in pairs] + [f"x BETWEEN {p[0]} AND {p[1]}" for p in pairs]
    matches = answers(toy(schema), {"x": values}, texts)
    np.testing.assert_array_equal(matches, plain(schema, {"x": values}, texts))


def test_answers_are_those_of_a_modular_product_for_every_comparison() -> None:
    """The table's way (sums against a reference, ranks) against D(E_p E_s), pair by pair."""
    events, interests = PUBLISHER.encode(RECORDS), SUBSCRIBER.encode(TEXTS)
    key = BROKER_KEY
    comparer = NabeelComparer(integer(key["n"]), integer(key["mu"]))
    size, want = TOY // 4, np.ones((len(events), len(interests)), dtype=np.bool_)
    for i, event in enumerate(events[:, BODY]):
        values = rows_from(event.reshape(-1, size))
        for j, interest in enumerate(interests[:, BODY]):
            bounds = rows_from(interest.reshape(-1, size))
            for value, low, high in zip(values, bounds[::2], bounds[1::2], strict=True):
                want[i, j] &= comparer.at_least(value, low) and not comparer.at_least(value, high)
    np.testing.assert_array_equal(BROKER.match_all(events, interests), want)
    table = BROKER.prepare(interests)
    np.testing.assert_array_equal(BROKER.match_all(events, table), want)
    np.testing.assert_array_equal(BROKER.match(events[[0, 1, 3]], interests[[0, 0, 3]]), [1, 0, 1])
    assert want[0].tolist() == [True, True, False, True, False]


def test_events_are_randomized_and_bounds_are_not() -> None:
    first, second = PUBLISHER.encode(RECORDS), PUBLISHER.encode(RECORDS)
    assert (first[:, BODY] != second[:, BODY]).any(axis=1).all()
    assert np.array_equal(SUBSCRIBER.encode(TEXTS), SUBSCRIBER.encode(TEXTS))


# -- refusals -----------------------------------------------------------------------------------


def test_bytes_that_no_client_wrote_are_refused() -> None:
    n = integer(BROKER_KEY["n"])
    size = TOY // 4
    events, interests = PUBLISHER.encode(RECORDS), SUBSCRIBER.encode(TEXTS)
    for role, messages, examine, match in (
        (PUBLISHER, events, BROKER.examine_events, lambda m: BROKER.match_all(m, interests)),
        (SUBSCRIBER, interests, BROKER.examine_interests, BROKER.prepare),
    ):
        (good,) = rows_from(messages[:1, BODY][:, -size:])
        for wrong in (0, 1, n, good - 1, good + n * n, 2 ** (8 * size) - 1):
            bad = messages.copy()
            bad[2, BODY][-size:] = rows_to([wrong % 2 ** (8 * size)], size)
            sealed(role, bad)
            assert examine(bad).tolist()[:4] == [0, 0, Cause.VALUE, 0]
            refused(DecodeError, r"row 2: .* holds a value that no message", match, bad)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PaillierRangeMatch(SCHEMA, 1024), "from 2,048 to 16,384, got 1024"),
        (lambda: PaillierRangeMatch(SCHEMA, 112, toy=True), "from 128 to 16,384, got 112"),
        (lambda: PaillierRangeMatch(SCHEMA, 2056), "a multiple of 16"),
        (lambda: PaillierRangeMatch(SCHEMA, "2048"), "must be a whole number"),  # type: ignore[arg-type]
        (lambda: toy(Schema(x=UInt(3), wide=Text(30))), "attribute 'wide': values of"),
    ],
)
def test_parameters_out_of_range_are_refused(call: Any, message: str) -> None:
    refused(ParameterError, message, call)


# -- about the matcher --------------------------------------------------------------------------


def test_a_toy_is_kept_as_one() -> None:
    assert MATCHER.sizes.interest == 6 * TOY // 4
    assert PaillierRangeMatch(SCHEMA, 272, toy=True) != MATCHER
    again = PaillierRangeMatch.from_parameters(SCHEMA, MATCHER.parameters())
    assert (again.modulus_bits, again.toy) == (TOY, True)


def test_keys_hold_what_their_role_may_know() -> None:
    server = MATCHER.key_server()
    keys = server.key, server.broker_key(), server.publisher_key(), server.subscriber_key("a")
    master, broker, publisher, subscriber = [secrets_of(key) for key in keys]
    assert set(broker) == {"n", "mu", "attributes"}
    for data in (broker, publisher, subscriber):
        text = json.dumps(data)
        assert master["p"] not in text and master["q"] not in text
    shown = repr(server) + repr(server.key) + repr(MATCHER.publisher(server.publisher_key()))
    for secret in (master["p"], master["kappa"], *(a["r"] for a in master["attributes"])):
        assert secret not in json.dumps(broker) + shown
    assert len({a["r"] for a in master["attributes"]}) == len(SCHEMA)
    refused(SerializationError, "", pickle.dumps, server.key)
    assert MATCHER.key_server(type(server.key).from_text(server.key.to_text())).key == server.key


@pytest.mark.slow
def test_full_size() -> None:
    matches = answers(PaillierRangeMatch(SCHEMA), RECORDS, TEXTS)
    np.testing.assert_array_equal(matches, plain(SCHEMA, RECORDS, TEXTS))
