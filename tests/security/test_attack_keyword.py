"""Attacks on KeywordMatch and AccessTreeMatch by the broker, alone and with one user.

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

from collections import Counter
from typing import Any

import numpy as np
import pytest

from ccbps import Category, Schema, UInt
from ccbps.algebra.prime_order import prime_order_group
from ccbps.ciphers.proxy_search import MasterKey, ProxySearch, UserKey
from ccbps.matching import Broker, KeywordMatch
from ccbps.matching.broken import AccessTreeMatch
from ccbps.wire import KEY_HEADER_BYTES
from tests.support.reusable_checks import BODY, sealed, users

ISSUES = ["AAPL", "GOOG", "IBM", "MSFT"]
SCHEMA = Schema(issue=Category(ISSUES), price=UInt(4))
USER = slice(KEY_HEADER_BYTES, KEY_HEADER_BYTES + 8)
REST = slice(USER.stop, BODY.stop)
"""What follows the sender's identifier, up to the MAC."""
toy_group = prime_order_group("toy64")


@pytest.mark.parametrize("shown", ["interests", "events"])
def test_frequencies_of_tokens_are_those_of_values(shown: Any) -> None:
    """From: what the broker gets in the protocol, and how popular the values are."""
    matcher = KeywordMatch(Schema(issue=SCHEMA["issue"]), group="toy64", trapdoors=shown)
    server, _, publisher, alice, bob = users(matcher, "alice", "bob")
    popularity = {"IBM": 40, "AAPL": 25, "MSFT": 10, "GOOG": 3}
    values = [value for value, count in popularity.items() for _ in range(count)]
    np.random.default_rng(5).shuffle(values)
    if shown == "interests":
        texts = [f"issue = '{value}'" for value in values]
        sent = np.concatenate([alice.encode(texts[:30]), bob.encode(texts[30:])])
        trapdoors = sent[:, REST][:, 1:]
    else:
        sent = publisher.encode({"issue": values})
        trapdoors = sent[:, REST]
    halves = server.broker_key().export_secret_data()["users"]
    senders = [row.tobytes().hex() for row in sent[:, USER]]
    scheme = ProxySearch(toy_group)
    tokens = [
        scheme.tokens(int(halves[user], 16), row[None])[0]
        for user, row in zip(senders, trapdoors, strict=True)
    ]
    ranked = [token for token, _ in Counter(tokens).most_common()]
    read = dict(zip(ranked, popularity, strict=True))
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
    _, broker, _, alice, bob = users(matcher, "alice", "bob")
    rng = np.random.default_rng(6)
    texts = [f"issue = '{ISSUES[i]}'" for i in rng.integers(0, 4, 40)]
    never = np.sort(rng.choice(40, 6, replace=False))
    for row in never:
        texts[row] = "issue = 'IBM' AND issue = 'GOOG'"
    interests = np.concatenate([alice.encode(texts[:20]), bob.encode(texts[20:])])
    table = broker.prepare(interests).parts[0].content
    counts = np.bincount(table.places[:, 0])
    assert len(counts) == 10 > len(ISSUES)
    assert np.array_equal(np.flatnonzero(counts[table.places[:, 0]] == 1), never)


def test_the_broker_and_one_user_read_and_forge_everything() -> None:
    """From: the broker's key and one user's key. Gives x, s, and the keys of all other users."""
    matcher = KeywordMatch(SCHEMA, group="toy64")
    server, broker, publisher, _, bob = users(matcher, "alice", "bob")
    halves = server.broker_key().export_secret_data()["users"]
    mallory = server.subscriber_key("alice").export_secret_data()
    past = publisher.encode([{"issue": "IBM", "price": 11}, {"issue": "MSFT", "price": 0}])
    secret_interest = bob.encode("issue = 'GOOG' AND price = 7")

    x = (int(mallory["x1"], 16) + int(halves[mallory["user"]], 16)) % toy_group.order
    s = bytes.fromhex(mallory["s"])
    truth = server.key.export_secret_data()
    assert (f"{x:x}", s.hex()) == (truth["x"], truth["s"])

    # Reading: a dictionary of all keywords, each with its token g^(x sigma).
    words = [(name, code) for name in SCHEMA for code in range(SCHEMA[name].size)]
    keywords = [f"{name}\0".encode() + code.to_bytes(8, "big") for name, code in words]
    scheme = ProxySearch(toy_group)
    tokens = toy_group.generator_powers([x * sigma for sigma in scheme.sigmas(s, keywords)])
    sender = halves[past[0, USER].tobytes().hex()]
    rows = past[:, REST].reshape(4, -1)
    results = scheme.search(scheme.re_encrypt(int(sender, 16), rows), tokens)
    read = [words[int(np.flatnonzero(column)[0])] for column in results.T]
    assert read == [("issue", 2), ("price", 11), ("issue", 3), ("price", 0)]
    victim = secret_interest[0, USER].tobytes().hex()
    slots = secret_interest[0, REST].reshape(2, -1)[:, 1:]
    places = [tokens.index(token) for token in scheme.tokens(int(halves[victim], 16), slots)]
    assert [words[place] for place in places] == [("issue", 1), ("price", 7)]

    # Forging: bob's key is x - x2 of bob.
    forged_key = scheme.user_key(MasterKey(x, s), int(halves[victim], 16))
    honest = server.subscriber_key("bob").export_secret_data()
    assert f"{forged_key.x1:x}" == honest["x1"] and forged_key.h.hex() == honest["h"]
    forgery = secret_interest.copy()
    forgery[0, REST].reshape(2, -1)[:, 1:] = scheme.trapdoors(
        forged_key, [keywords[words.index(("issue", 2))], keywords[words.index(("price", 11))]]
    )
    sealed(broker, forgery)
    assert broker.match_all(past, forgery)[:, 0].tolist() == [True, False]


def test_one_user_and_the_brokers_tokens() -> None:
    """From: one user's key, and tokens of other users that a broker kept or lost. Gives keywords.

    Nobody's other half is needed: h^sigma is the token, and every user has h and s.
    """
    matcher = KeywordMatch(Schema(price=UInt(4)), group="toy64")
    server, _, _, _, bob = users(matcher, "alice", "bob")
    halves = server.broker_key().export_secret_data()["users"]
    scheme = ProxySearch(toy_group)
    secret = bob.encode(["price = 9", "price = 2"])
    victim = int(halves[secret[0, USER].tobytes().hex()], 16)
    stolen = scheme.tokens(victim, secret[:, REST][:, 1:])

    mallory = server.subscriber_key("alice").export_secret_data()
    user = UserKey(int(mallory["x1"], 16), bytes.fromhex(mallory["s"]), bytes.fromhex(mallory["h"]))
    keywords = [b"price\0" + code.to_bytes(8, "big") for code in range(16)]
    dictionary = scheme.group.table(toy_group.decode(user.h)).powers(
        scheme.sigmas(user.s, keywords)
    )
    assert [dictionary.index(token) for token in stolen] == [9, 2]


# -- access trees -------------------------------------------------------------------------------

PRICES = Schema(price=UInt(8))


def public_tree(matcher: AccessTreeMatch, interest: Any) -> tuple[list[int], list[tuple[int, int]]]:
    """Bit positions of the leaves, and the steps, as they stand in a message."""
    slots, steps = matcher._split(interest[None, REST])
    used = slots[0, :, 2:].any(axis=1)
    positions = np.ascontiguousarray(slots[0, used, :2]).view("<u2").reshape(-1)
    return positions.tolist(), [(k, n) for k, n in steps[0].tolist() if n]


def test_the_shape_of_a_comparison_is_its_constant() -> None:
    """From: the message alone. Gives the constant of every "price < c", without any key."""
    matcher = AccessTreeMatch(PRICES, group="toy64")
    _, _, _, alice, _ = users(matcher, "alice", "bob")
    shapes: dict[Any, int] = {}
    for constant in range(1, 256):  # the adversary's table: shapes are public and fixed
        tree = public_tree(matcher, alice.encode(f"price < {constant}")[0])
        shapes[repr(tree)] = constant
    assert len(shapes) == 255  # no two constants share a shape
    _, _, _, victim, _ = users(matcher, "alice", "bob")  # other keys
    for constant in (1, 77, 128, 254):
        sent = victim.encode(f"price < {constant}")[0]
        assert shapes[repr(public_tree(matcher, sent))] == constant


Range = tuple[int, int]
Leaf = tuple[int, int]
"""(position, which of the tokens that the broker has for it)"""


def shapes_of(matcher: AccessTreeMatch) -> dict[str, list[tuple[Range, list[int]]]]:
    """For each public tree of a comparison or an equality, what makes it: the range of codes, and
    the bits that its leaves ask for. From public parameters alone."""
    results: dict[str, list[tuple[Range, list[int]]]] = {}
    for text in [f"price {sign} {c}" for sign in ("<", ">=", "=") for c in range(256)]:
        predicate = matcher.schema.parse(text)
        tree = matcher.prepare(predicate)
        shape = repr(([place for place, _ in tree.leaves], list(tree.steps)))
        origin = predicate.box().ranges["price"], [word[-1] for _, word in tree.leaves]
        if tree.leaves and origin not in results.setdefault(shape, []):
            results[shape].append(origin)
    return results


def readings(
    matcher: AccessTreeMatch, broker: Broker, events: Any, interests: Any
) -> list[tuple[list[int], list[Range]]]:
    """Every reading of the codes of all events and the ranges of all interests that fits what the
    broker has: messages, and the tokens that it computes from them."""
    table = broker.prepare(interests).parts[0].content
    leaf_tokens: list[Leaf] = [
        (at, k) for at, tokens in table.tokens.items() for k in range(len(tokens))
    ]
    leaves = [[leaf_tokens[number] for number in numbers] for _, numbers in table.trees]
    shapes = shapes_of(matcher)
    choices = [shapes[repr(public_tree(matcher, interest))] for interest in interests]
    # A world says, for each position, which token stands for 0.
    worlds: list[tuple[dict[int, int], dict[int, Range]]] = [({}, {})]
    for row in sorted(range(len(choices)), key=lambda row: len(choices[row])):
        extended = []
        for zeros, ranges in worlds:
            for origin, bits in choices[row]:
                new = {at: k ^ bit for (at, k), bit in zip(leaves[row], bits, strict=True)}
                if all(zeros.get(at, zero) == zero for at, zero in new.items()):
                    extended.append((zeros | new, ranges | {row: origin}))
        worlds = extended
    opened = matcher.open_events(broker._access.key, events[:, BODY])
    held = matcher.leaf_results(opened, table)
    out = []
    for zeros, ranges in worlds:
        codes = np.zeros(len(events), dtype=np.int64)
        for number, (at, k) in enumerate(leaf_tokens):
            bits = held[number] != (zeros[at] == k)  # the token of 0 that holds is a 0
            codes |= bits.astype(np.int64) << (matcher.schema.bits - 1 - at)
        out.append((codes.tolist(), [ranges[row] for row in range(len(choices))]))
    return out


@pytest.mark.parametrize("nullable", [True, False])
def test_twelve_comparisons_give_every_event_and_every_interest(nullable: bool) -> None:
    """Ciphertext only: 200 events, 12 comparisons, 4 equalities. Gives all of them; without NULL
    among the codes, all of them and their mirror image, and nothing else fits."""
    schema = Schema(price=UInt(8, nullable=nullable))
    matcher = AccessTreeMatch(schema, group="toy64")
    _, broker, publisher, alice, bob = users(matcher, "alice", "bob")
    rng = np.random.default_rng(12)
    signs, constants = rng.choice(["<", ">="], 12), rng.integers(2, 255, 12)
    texts = [f"price {sign} {c}" for sign, c in zip(signs, constants, strict=True)]
    texts += [f"price = {c}" for c in rng.integers(0, 256, 4)]
    prices = rng.integers(0, 256, 200).tolist()
    events = publisher.encode({"price": prices})
    interests = np.concatenate([alice.encode(texts[::2]), bob.encode(texts[1::2])])

    results = readings(matcher, broker, events, interests)

    codes = [price + nullable for price in prices]
    ranges = [schema.parse(text).box().ranges["price"] for text in texts[::2] + texts[1::2]]
    if nullable:
        assert results == [(codes, ranges)]
    else:
        mirrored = [255 - code for code in codes], [(255 - hi, 255 - lo) for lo, hi in ranges]
        assert sorted(results) == sorted([(codes, ranges), mirrored])


def test_leaf_results_and_one_known_event_give_the_others() -> None:
    """From: the broker's view of one interest, and one event it knows. Gives all other events'
    bits, which no interest asked for as such."""
    matcher = AccessTreeMatch(PRICES, group="toy64")
    _, broker, publisher, alice, _ = users(matcher, "alice", "bob")
    prices = [200, 3, 77, 128, 255, 0]
    events = publisher.encode({"price": prices})
    table = broker.prepare(alice.encode("price = 90")).parts[0].content  # matches nothing
    opened = matcher.open_events(broker._access.key, events[:, BODY])
    held = matcher.leaf_results(opened, table)
    assert held.shape == (8, 6)  # a token for each bit
    leaf_tokens = prices[0]
    recovered = []
    for event in range(1, 6):
        value = 0
        for position in table.tokens:
            bit = leaf_tokens >> (7 - position) & 1
            same = held[position, event] == held[position, 0]
            value = value << 1 | (bit if same else 1 - bit)
        recovered.append(value)
    assert recovered == prices[1:]
    # The same known event tells what the tokens stand for: the interest's secret constant.
    constant = 0
    for position in table.tokens:
        bit = leaf_tokens >> (7 - position) & 1
        constant = constant << 1 | (bit if held[position, 0] else 1 - bit)
    assert constant == 90
