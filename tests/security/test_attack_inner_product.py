"""Attacks on InnerProductMatch by the broker, alone and with one client.

1. The broker alone computes with what it has: the generators, all points, all their pairings. In
   generic groups, whatever it can find out is a linear relation between these that always holds.
   In the transparent model, where points are their logarithms, all such relations are found: there
   is one for each pair that matches, and none else. Equal events, equal subscriptions, sums of
   messages, "always" and "never" and messages before any event are all part of it.
2. The same search finds what it should find in weaker schemes: repeated factors, and no pad.
3. With the first components of the printed scheme, small products are found by trying.
4. Broker and one client, of either side, read events and subscriptions of everybody.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from ccbps import Category, Schema, UInt
from ccbps.algebra.pairing import pairing
from ccbps.attacks.schemes.inner_product import Colluder, difference_of, logarithms
from ccbps.attacks.schemes.relations import observed, pairings, relations_in
from ccbps.functional import InnerProducts
from ccbps.functional.inner_product import Basis
from ccbps.matching import InnerProductMatch
from tests.support.reusable_checks import BODY, plain, roles

ORDER = pairing("transparent").order
BIT = Schema(a=UInt(1))
SCHEMA = Schema(issue=Category(["AAPL", "IBM", "SAP"]), price=UInt(16))


# -- the broker alone -----------------------------------------------------------------------------


BOTH = [{"a": 0}, {"a": 1}]
ALIKE = [{"a": 1}, {"a": 1}]
CASES: list[tuple[list[dict[str, Any]], list[str]]] = [
    (ALIKE, ["a = 0", "a = 0"]),
    (ALIKE, ["a = 1", "a = 0"]),
    (BOTH, ["TRUE", "FALSE"]),
    (ALIKE, ["FALSE", "FALSE"]),
    (BOTH, ["a = 1", "a = 1"]),
    (ALIKE, ["TRUE", "TRUE"]),
    (BOTH, ["a = 0", "a = 1"]),
    (BOTH, ["TRUE", "a = 1"]),
]
OTHERS: list[tuple[dict[str, Any], int]] = [
    ({"domains": ["a"]}, 2),
    ({"alternatives": 2}, 1),
    ({"members": {"a": 2}}, 1),
]


@pytest.mark.parametrize(
    ("records", "texts", "options", "repeated"),
    [
        *((records, texts, {}, 1) for records, texts in CASES[:4]),
        *(pytest.param(*case, {}, 1, marks=pytest.mark.slow) for case in CASES[4:]),
        *(
            pytest.param(*case, options, repeated, marks=pytest.mark.slow)
            for case in CASES
            for options, repeated in OTHERS
        ),
    ],
)
def test_the_only_relations_are_matches(
    records: list[dict[str, Any]], texts: list[str], options: dict[str, Any], repeated: int
) -> None:
    records = records * repeated
    matcher = InnerProductMatch(BIT, **options, pairing="transparent")
    n = matcher.size

    def view() -> tuple[list[int], list[int]]:
        publisher, subscriber, _ = roles(matcher)
        messages = publisher.encode(records), subscriber.encode(texts)
        events, interests = (logarithms(part[:, BODY]) for part in messages)
        return [1, *events], [1, *interests]

    views = observed(lambda: pairings(*view(), ORDER), ORDER)
    matches = plain(BIT, records, texts)
    assert relations_in(views, ORDER) == matches.sum()
    # And these are the products that the broker computes anyway.
    for event, interest in np.argwhere(matches):
        at = np.arange(n)
        terms = (1 + event * n + at) * (1 + len(texts) * n) + 1 + interest * n + at
        assert not (views[:, terms].sum(axis=1) % ORDER).any()


def weak_view(same_factor: bool, pad: bool) -> tuple[list[int], list[int]]:
    """Two ciphertexts of one vector and a token of the vector 0, as a weaker scheme has them."""
    group = pairing("transparent")
    basis = Basis(group, 3, os.urandom(32))
    factors = group.exponents(4)
    sent = basis.times_dual(np.array([[1, 1, 0]] * 2, dtype=object))
    asked = basis.times(np.array([[0, 0, factors[2] if pad else 0]], dtype=object))
    events = [list(sent[0] * factors[0]), list(sent[1] * factors[0 if same_factor else 1])]
    ones, twos = [x for row in events for x in row], [x * factors[3] for x in asked[0]]
    return [1, *map(int, ones)], [1, *map(int, twos)]


@pytest.mark.parametrize(
    ("same_factor", "pad", "more"), [(False, True, 0), (True, True, 11), (False, False, 19)]
)
def test_weaker_schemes_have_more_relations(same_factor: bool, pad: bool, more: int) -> None:
    """Two matches; equal points, with 4 of G2 each; a token of identity elements, with 7 of G1."""
    rows = observed(lambda: pairings(*weak_view(same_factor, pad), ORDER), ORDER)
    assert relations_in(rows, ORDER) == 2 + more


# -- first components -----------------------------------------------------------------------------


def test_first_components_give_the_difference_of_value_and_constant() -> None:
    """From: the scheme as it is printed, which sends g^a and g^b too. Here x - v is searched."""
    products, drawn = InnerProducts(2), []

    def recorded(count: int) -> bytes:
        drawn.append(os.urandom(count))
        return drawn[-1]

    basis, group, value, constant = products.basis(os.urandom(32)), products.group, 119, 112
    sent = products.ciphertexts(basis, [[value, 1]], recorded)[0].tobytes()
    asked = products.tokens(basis, [[1, -constant]], recorded)[0].tobytes()
    # The factors are the last that each of the two calls has drawn.
    b, a = (group.exponents(1, lambda _, part=part: part)[0] for part in (drawn[0], drawn[2]))
    first = group.power(group.g1, b), group.power(group.g2, a)
    points = products.read_ciphertext(sent), products.read_token(asked)
    assert difference_of(group, *points, first, 20) == value - constant
    assert difference_of(group, *points, first, 6) is None
    # What is sent shows only that they differ.
    assert not group.cancels(list(zip(*points, strict=True)))


# -- the broker and one client --------------------------------------------------------------------


@pytest.mark.parametrize("role", ["publisher", "subscriber"])
def test_broker_and_one_client_read_events_and_subscriptions(role: str) -> None:
    """From: messages of others, and a key of either side."""
    matcher = InnerProductMatch(SCHEMA, domains=["issue"])
    server = matcher.key_server()
    publisher, subscriber, _ = roles(matcher, server)
    key = server.publisher_key() if role == "publisher" else server.subscriber_key("mallory")
    broker = Colluder(matcher, key, "bls12-381")
    # Coordinates: 1, price, issue = IBM, issue = SAP, in the matcher's order; and the pad.
    places = {monomial: at for at, monomial in enumerate(matcher._vectors.monomials)}
    one, price, issues = places[()], places[((1, 1),)], [places[((0, 1),)], places[((0, 2),)]]
    event = broker.event(publisher.encode({"issue": ["SAP"], "price": [40_007]})[0, BODY])
    assert broker.ratio(event[one], event[price], 16) == 40_007
    nothing = broker.group.power(broker.group.g1, 0)
    assert [event[at] == nothing for at in issues] == [True, False]

    sent = subscriber.encode(["price = 4711", "issue <> 'AAPL'"])
    first, second = (broker.interest(row) for row in sent[:, BODY])
    nothing = broker.group.power(broker.group.g2, 0)
    assert [first[at] == nothing for at in issues] == [True, True]  # which attributes it limits
    assert broker.ratio(broker.group.inverse(first[price]), first[one], 16) == 4711
    assert second[price] == nothing
    both = [broker.group.multiply(second[one], second[at]) == nothing for at in issues]
    assert both == [True, True] and second[one] != nothing  # IBM and SAP are allowed, AAPL is not

    # A key of another epoch reads nothing.
    server.rotate()
    later = matcher.publisher(server.publisher_key()).encode({"issue": ["SAP"], "price": [7]})
    other = broker.event(later[0, BODY])
    assert broker.ratio(other[one], other[price], 8) is None
