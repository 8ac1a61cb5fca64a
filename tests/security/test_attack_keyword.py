"""Attacks on KeywordMatch and AccessTreeMatch by the broker, alone and with one user.

The adversaries are those of `ccbps.attacks.schemes.keyword` and `access_tree`.

1. Frequency. Tokens are deterministic: the broker counts them and reads a popular value off.
2. Broker and one user add their halves of the key: x, and s. With them they read all messages of
   all users, of the past too, and forge messages of users who never misbehaved.
3. Whoever has s and x tests tokens that the broker kept, by a dictionary.
4. The shape of an access tree is the constant of a comparison. No key is needed.
5. With the shape comes the bit that each leaf asks for, so that a dozen comparisons give a name to
   all tokens: the broker reads every event and every interest, or that and the mirror image.
6. Leaf results: one event that the broker knows tells which value of a bit each token stands for,
   and so the bits of all other events. For interests whose shape says nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ccbps import Category, Schema, UInt
from ccbps.attacks.schemes import access_tree, keyword
from ccbps.attacks.schemes.views import View, name_by_frequency, watch
from ccbps.matching import KeywordMatch
from ccbps.matching.broken import AccessTreeMatch
from ccbps.wire import KEY_HEADER_BYTES
from tests.support.reusable_checks import BODY, sealed, users

ISSUES = ["AAPL", "GOOG", "IBM", "MSFT"]
SCHEMA = Schema(issue=Category(ISSUES), price=UInt(4))
REST = slice(KEY_HEADER_BYTES + 8, BODY.stop)
"""What follows the sender's identifier, up to the MAC."""


def view_of(server: Any, events: Any, *interests: Any) -> View:
    """What the broker has of messages of several users."""
    key = server.broker_key().export_secret_data()
    return View(key, events[:, BODY], np.concatenate(interests)[:, BODY])


@pytest.mark.parametrize("shown", ["interests", "events"])
def test_frequencies_of_tokens_are_those_of_values(shown: Any) -> None:
    """From: what the broker gets in the protocol, and how popular the values are."""
    matcher = KeywordMatch(Schema(issue=SCHEMA["issue"]), group="toy64", trapdoors=shown)
    server, _, publisher, alice, bob = users(matcher, "alice", "bob")
    popularity = {"IBM": 40, "AAPL": 25, "MSFT": 10, "GOOG": 3}
    values = [value for value, count in popularity.items() for _ in range(count)]
    np.random.default_rng(5).shuffle(values)
    texts = [f"issue = '{value}'" for value in values]
    interests = alice.encode(texts[:30]), bob.encode(texts[30:])
    view = view_of(server, publisher.encode({"issue": values}), *interests)
    sent = view.interests if shown == "interests" else view.events
    tokens = [token for (token,) in keyword.read_tokens(matcher, view, sent)]
    read = name_by_frequency(tokens, list(popularity))
    assert [read[token] for token in tokens] == values


def test_parts_of_conjunctions_show_equal_values_of_events_that_match_nothing() -> None:
    """From: what the broker gets in the protocol. It cuts an interest into its equalities."""
    matcher = KeywordMatch(SCHEMA, group="toy64")
    _, broker, publisher, alice, _ = users(matcher, "alice", "bob")
    records = [{"issue": issue, "price": price} for issue in ISSUES for price in range(8)]
    events, interests = publisher.encode(records), alice.encode("issue = 'IBM' AND price = 9")
    assert not broker.match_all(events, interests).any()
    slots = interests[:, REST].reshape(1, 2, -1)
    slots[:, 1, 0], slots[:, 1, 1:] = 255, 0  # the first alone is left
    seen = broker.match_all(events, sealed(broker, interests))[:, 0]
    assert seen.tolist() == [record["issue"] == "IBM" for record in records]


def test_contradictions_look_like_equalities_that_nobody_repeats() -> None:
    """From: what the broker gets in the protocol. A contradiction names the attributes of its text,
    and has tokens of its own: by itself it is not seen to be one, nor to be equal to another."""
    matcher = KeywordMatch(SCHEMA, group="toy64")
    _, broker, publisher, alice, bob = users(matcher, "alice", "bob")
    contradictions = [
        "price = 1 AND price = 2",
        "price = 1 AND price = 2",
        "price = 77",
        "price = 3 AND issue = 'IBM' AND NOT (issue = 'IBM')",
        "issue = 'IBM' AND issue = 'GOOG'",
        "FALSE",
    ]
    honest = ["price = 1", "price = 2", "price = 3", "price = 4 AND issue = 'IBM'"]
    honest += ["issue = 'GOOG'", "issue = 'MSFT'"]

    def view(texts: list[str]) -> tuple[Any, list[int]]:
        """Attributes in each slot, and how many different tokens each attribute has."""
        table = (
            broker.prepare(np.concatenate([alice.encode(texts), bob.encode(texts[:3])]))
            .parts[0]
            .content
        )
        assert ((table.places >= 0) == (table.attributes < len(SCHEMA))).all()
        return table.attributes.tolist(), [
            len(table.entries.get(number, ())) for number in range(len(SCHEMA))
        ]

    attributes, tokens = view(contradictions)
    assert attributes == view(honest)[0]
    assert tokens == [3, 7]  # one for each slot that is used: no two are equal
    events = publisher.encode([{"issue": i, "price": p} for i in ISSUES for p in range(16)])
    assert not broker.match_all(events, alice.encode(contradictions)).any()


def test_contradictions_are_told_where_there_are_more_tokens_than_values() -> None:
    """From: subscriptions and the broker's key. Four issues have four tokens; more than that, and
    those that nobody repeats are of what never holds. No event is needed."""
    matcher = KeywordMatch(Schema(issue=SCHEMA["issue"]), group="toy64")
    server, _, publisher, alice, bob = users(matcher, "alice", "bob")
    rng = np.random.default_rng(6)
    texts = [f"issue = '{ISSUES[i]}'" for i in rng.integers(0, 4, 40)]
    never = np.sort(rng.choice(40, 6, replace=False))
    for row in never:
        texts[row] = "issue = 'IBM' AND issue = 'GOOG'"
    interests = alice.encode(texts[:20]), bob.encode(texts[20:])
    view = view_of(server, publisher.encode([]), *interests)
    tokens = [token for (token,) in keyword.read_tokens(matcher, view, view.interests)]
    assert len(set(tokens)) == 10 > len(ISSUES)
    assert np.array_equal(keyword.find_contradictions(tokens, len(ISSUES)), never)
    honest = [token for row, token in enumerate(tokens) if row not in never]
    assert not len(keyword.find_contradictions(honest, len(ISSUES)))


def test_the_broker_and_one_user_read_and_forge_everything() -> None:
    """From: the broker's key and one user's key. Gives x, s, and the keys of all other users."""
    matcher = KeywordMatch(SCHEMA, group="toy64")
    server, broker, publisher, _, bob = users(matcher, "alice", "bob")
    mallory = server.subscriber_key("alice").export_secret_data()
    past = publisher.encode([{"issue": "IBM", "price": 11}, {"issue": "MSFT", "price": 0}])
    secret_interest = bob.encode("issue = 'GOOG' AND price = 7")
    view = view_of(server, past, secret_interest)

    master = keyword.pool_keys(matcher, view.key, mallory)
    truth = server.key.export_secret_data()
    assert (f"{master.x:x}", master.s.hex()) == (truth["x"], truth["s"])

    events, interests = keyword.read_messages(matcher, view, master)
    assert events == [[("issue", 2), ("price", 11)], [("issue", 3), ("price", 0)]]
    assert interests == [[("issue", 1), ("price", 7)]]

    # Forging: bob's key is x - x2 of bob.
    wanted = [("issue", 2), ("price", 11)]
    forgery = secret_interest.copy()
    forgery[0, BODY] = keyword.forge_interest(matcher, view, master, view.interests[0], wanted)
    sealed(broker, forgery)
    assert broker.match_all(past, forgery)[:, 0].tolist() == [True, False]


def test_one_user_and_the_brokers_tokens() -> None:
    """From: one user's key, and tokens of other users that a broker kept or lost. Gives keywords.

    Nobody's other half is needed: h^sigma is the token, and every user has h and s.
    """
    matcher = KeywordMatch(Schema(price=UInt(4)), group="toy64")
    server, _, publisher, _, bob = users(matcher, "alice", "bob")
    view = view_of(server, publisher.encode([]), bob.encode(["price = 9", "price = 2"]))
    stolen = [token for (token,) in keyword.read_tokens(matcher, view, view.interests)]
    mallory = server.subscriber_key("alice").export_secret_data()
    named = keyword.name_stolen_tokens(matcher, mallory, stolen)
    assert named == [("price", 9), ("price", 2)]


# -- access trees -------------------------------------------------------------------------------

PRICES = Schema(price=UInt(8))


def test_the_shape_of_a_comparison_is_its_constant() -> None:
    """From: the message alone. Gives the constant of every "price < c", without any key."""
    matcher = AccessTreeMatch(PRICES, group="toy64")
    constants = range(1, 256)
    texts = [f"price < {constant}" for constant in constants]
    # The adversary's table: shapes are public and fixed.
    table = [access_tree.read_tree(matcher, row) for row in watch(matcher, [], texts).interests]
    shapes = dict(zip(table, constants, strict=True))
    assert len(shapes) == 255  # no two constants share a shape
    chosen = [1, 77, 128, 254]  # under other keys
    sent = watch(matcher, [], [f"price < {constant}" for constant in chosen]).interests
    assert [shapes[access_tree.read_tree(matcher, row)] for row in sent] == chosen


@pytest.mark.parametrize("nullable", [True, False])
def test_twelve_comparisons_give_every_event_and_every_interest(nullable: bool) -> None:
    """Ciphertext only: 200 events, 12 comparisons, 4 equalities. Gives all of them; without NULL
    among the codes, all of them and their mirror image, and nothing else fits."""
    schema = Schema(price=UInt(8, nullable=nullable))
    matcher = AccessTreeMatch(schema, group="toy64")
    server, _, publisher, alice, bob = users(matcher, "alice", "bob")
    rng = np.random.default_rng(12)
    signs, constants = rng.choice(["<", ">="], 12), rng.integers(2, 255, 12)
    texts = [f"price {sign} {c}" for sign, c in zip(signs, constants, strict=True)]
    texts += [f"price = {c}" for c in rng.integers(0, 256, 4)]
    prices = rng.integers(0, 256, 200).tolist()
    events = publisher.encode({"price": prices})
    view = view_of(server, events, alice.encode(texts[::2]), bob.encode(texts[1::2]))

    results = access_tree.read_by_shapes(matcher, view, access_tree.tabulate_shapes(matcher))

    codes = [price + nullable for price in prices]
    ranges = [schema.parse(text).box().ranges["price"] for text in texts[::2] + texts[1::2]]
    if nullable:
        assert results == [(codes, ranges)]
    else:
        mirrored = [255 - code for code in codes], [(255 - hi, 255 - lo) for lo, hi in ranges]
        assert sorted(results) == sorted([(codes, ranges), mirrored])


def test_one_comparison_gives_every_event_where_null_is_a_code() -> None:
    """Its leaves ask for all bits, and nothing else has its shape: for all constants but two."""
    schema = Schema(price=UInt(8, nullable=True))
    matcher = AccessTreeMatch(schema, group="toy64")
    shapes = access_tree.tabulate_shapes(matcher)
    limits = {schema.parse(f"price < {c}").box().ranges["price"]: c for c in range(1, 256)}
    enough = [
        limits[origins[0][0]]
        for (places, _), origins in shapes.items()
        if len(origins) == 1 and len(set(places)) == schema.bits and origins[0][0] in limits
    ]
    assert len(enough) == 253
    prices = list(range(0, 256, 5))
    for limit in (enough[0], 77, enough[-1]):
        view = watch(matcher, {"price": prices}, f"price < {limit}")
        ((codes, ranges),) = access_tree.read_by_shapes(matcher, view, shapes)
        assert codes == [price + 1 for price in prices]
        assert ranges == [schema.parse(f"price < {limit}").box().ranges["price"]]


def test_leaf_results_and_one_known_event_give_the_others() -> None:
    """From: the broker's view of one interest, and one event it knows. Gives all other events'
    bits, which no interest asked for as such."""
    matcher = AccessTreeMatch(PRICES, group="toy64")
    prices = [200, 3, 77, 128, 255, 0]
    view = watch(matcher, {"price": prices}, "price = 90")  # matches nothing
    recovered, constant = access_tree.read_by_known_event(matcher, view, prices[0])
    assert recovered == prices
    # The same known event tells what the tokens stand for: the interest's secret constant.
    assert constant == 90
