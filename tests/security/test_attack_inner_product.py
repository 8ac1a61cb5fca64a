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
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ccbps import Category, Schema, UInt
from ccbps.algebra.modular import inverse
from ccbps.algebra.pairing import pairing
from ccbps.functional import InnerProducts
from ccbps.functional.inner_product import Basis
from ccbps.matching import InnerProductMatch
from tests.support.reusable_checks import BODY, plain, roles, secrets_of

ORDER = pairing("transparent").order
BIT = Schema(a=UInt(1))
SCHEMA = Schema(issue=Category(["AAPL", "IBM", "SAP"]), price=UInt(16))


# -- the broker alone -----------------------------------------------------------------------------


def rank(rows: Any) -> int:
    """Return the rank of a matrix modulo the order of the groups."""
    rows, found = np.array(rows, dtype=object) % ORDER, 0
    for column in range(rows.shape[1]):
        pivots = np.flatnonzero(rows[found:, column]) + found
        if not len(pivots):
            continue
        rows[[found, pivots[0]]] = rows[[pivots[0], found]]
        rows[found] = rows[found] * inverse(rows[found, column], ORDER) % ORDER
        others = rows[found + 1 :]
        others -= others[:, column : column + 1] * rows[found]
        others %= ORDER
        found += 1
    return found


def logarithms(bodies: Any) -> list[int]:
    """Return the logarithms of the points of messages in the transparent model."""
    data = np.ascontiguousarray(bodies).tobytes()
    return [int.from_bytes(data[at + 1 : at + 33]) for at in range(0, len(data), 33)]


def relations(views: Callable[[], tuple[Sequence[int], Sequence[int]]]) -> tuple[int, Any]:
    """Count the independent linear relations that hold in all views, and return the views.

    Args:
        views: makes what a broker sees with fresh keys: logarithms of points of G1 and of G2.
    """
    rows: list[Any] = []
    while not rows or len(rows) < len(rows[0]) + 5:
        left, right = (np.array([1, *part], dtype=object) for part in views())
        rows.append(np.outer(left, right).ravel())
    return len(rows[0]) - rank(rows), np.array(rows)


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
        return events, interests

    found, views = relations(view)
    matches = plain(BIT, records, texts)
    assert found == matches.sum()
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
    return [int(x) for row in events for x in row], [int(x * factors[3]) for x in asked[0]]


@pytest.mark.parametrize(
    ("same_factor", "pad", "more"), [(False, True, 0), (True, True, 11), (False, False, 19)]
)
def test_weaker_schemes_have_more_relations(same_factor: bool, pad: bool, more: int) -> None:
    """Two matches; equal points, with 4 of G2 each; a token of identity elements, with 7 of G1."""
    assert relations(lambda: weak_view(same_factor, pad))[0] == 2 + more


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
    pairs = list(zip(products.read_ciphertext(sent), products.read_token(asked), strict=True))
    found = [
        difference
        for difference in range(-20, 21)
        if group.cancels([*pairs, (group.power(first[0], -difference), first[1])])
    ]
    assert found == [value - constant]
    # What is sent shows only that they differ.
    assert not group.cancels(pairs)


# -- the broker and one client --------------------------------------------------------------------


class Colluding:
    """A broker with the key of one client: points of messages without the secret matrix."""

    def __init__(self, matcher: InnerProductMatch, key: Any) -> None:
        self.group, self.products = pairing("bls12-381"), matcher._products
        basis = self.products.basis(bytes.fromhex(secrets_of(key)["seed"]))
        unit = np.array([[int(i == j) for j in range(matcher.size)] for i in range(matcher.size)])
        self.rows, self.dual = (
            times(unit.astype(object)) for times in (basis.times, basis.times_dual)
        )

    def _cleared(self, points: Sequence[Any], matrix: Any) -> list[Any]:
        out = []
        for row in matrix:
            powers = [
                self.group.power(point, int(number))
                for point, number in zip(points, row, strict=True)
            ]
            total = powers[0]
            for other in powers[1:]:
                total = self.group.multiply(total, other)
            out.append(total)
        return out

    def event(self, body: Any) -> list[Any]:
        """Return g1^(b y): all coordinates of an event, with one unknown factor."""
        return self._cleared(self.products.read_ciphertext(body.tobytes()), self.rows)

    def interest(self, body: Any) -> list[Any]:
        """Return g2^(a x): all coefficients of a subscription, likewise."""
        return self._cleared(self.products.read_token(body.tobytes()), self.dual)

    def ratio(self, base: Any, power: Any, bits: int) -> int | None:
        """Return x with base^x = power, in 2^(bits / 2) steps."""
        steps, group = 1 << bits // 2, self.group
        small, table = group.power(base, 0), {}
        for number in range(steps):
            table[str(small)] = number
            small = group.multiply(small, base)
        back, at = group.power(base, -steps), power
        for number in range(steps):
            if str(at) in table:
                return number * steps + table[str(at)]
            at = group.multiply(at, back)
        return None


@pytest.mark.parametrize("role", ["publisher", "subscriber"])
def test_broker_and_one_client_read_events_and_subscriptions(role: str) -> None:
    """From: messages of others, and a key of either side."""
    matcher = InnerProductMatch(SCHEMA, domains=["issue"])
    server = matcher.key_server()
    publisher, subscriber, _ = roles(matcher, server)
    key = server.publisher_key() if role == "publisher" else server.subscriber_key("mallory")
    broker = Colluding(matcher, key)
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
