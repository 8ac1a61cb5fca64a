"""Attacks on KeywordMatch and AccessTreeMatch by the broker, alone and with one user.

1. Frequency. Tokens are deterministic: the broker counts them and reads a popular value off.
2. Broker and one user add their halves of the key: x, and s. With them they read all messages of
   all users, of the past too, and forge messages of users who never misbehaved.
3. Whoever has s and x tests tokens that the broker kept, by a dictionary.
4. The shape of an access tree is the constant of a comparison. No key is needed.
5. Leaf results: one event that the broker knows tells which value of a bit each token stands for,
   and so the bits of all other events.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from ccbps import Category, Schema, UInt
from ccbps.algebra.prime_order import prime_order_group
from ccbps.ciphers.proxy_search import MasterKey, ProxySearch, UserKey
from ccbps.matching import AccessTreeMatch, KeywordMatch
from ccbps.matching.reusable_roles import ReusableBroker
from ccbps.wire import HEADER_BYTES

ISSUES = ["AAPL", "GOOG", "IBM", "MSFT"]
SCHEMA = Schema(issue=Category(ISSUES), price=UInt(4))
BODY = HEADER_BYTES + 8
toy_group = prime_order_group("toy64")


def roles(matcher: Any) -> tuple[Any, ...]:
    server = matcher.key_server()
    publisher = matcher.publisher(server.publisher_key())
    keys = [server.subscriber_key(name) for name in ("alice", "bob")]
    return server, publisher, *(matcher.subscriber(key) for key in keys)


@pytest.mark.parametrize("shown", ["interests", "events"])
def test_frequencies_of_tokens_are_those_of_values(shown: Any) -> None:
    """From: what the broker gets in the protocol, and how popular the values are."""
    matcher = KeywordMatch(Schema(issue=SCHEMA["issue"]), group="toy64", trapdoors=shown)
    server, publisher, alice, bob = roles(matcher)
    popularity = {"IBM": 40, "AAPL": 25, "MSFT": 10, "GOOG": 3}
    values = [value for value, count in popularity.items() for _ in range(count)]
    np.random.default_rng(5).shuffle(values)
    if shown == "interests":
        texts = [f"issue = '{value}'" for value in values]
        sent = np.concatenate([alice.encode(texts[:30]), bob.encode(texts[30:])])
        trapdoors = sent[:, BODY + 1 :]
    else:
        sent = publisher.encode({"issue": values})
        trapdoors = sent[:, BODY:]
    halves = server.broker_key().export_secret_data()["users"]
    users = [row.tobytes().hex() for row in sent[:, HEADER_BYTES:BODY]]
    scheme = ProxySearch(toy_group)
    tokens = [
        scheme.tokens(int(halves[user], 16), row[None])[0]
        for user, row in zip(users, trapdoors, strict=True)
    ]
    ranked = [token for token, _ in Counter(tokens).most_common()]
    read = dict(zip(ranked, popularity, strict=True))
    assert [read[token] for token in tokens] == values


def test_the_broker_and_one_user_read_and_forge_everything() -> None:
    """From: the broker's key and one user's key. Gives x, s, and the keys of all other users."""
    matcher = KeywordMatch(SCHEMA, group="toy64")
    server, publisher, _, bob = roles(matcher)
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
    sender = halves[past[0, HEADER_BYTES:BODY].tobytes().hex()]
    rows = past[:, BODY:].reshape(4, -1)
    found = scheme.search(scheme.re_encrypt(int(sender, 16), rows), tokens)
    read = [words[int(np.flatnonzero(column)[0])] for column in found.T]
    assert read == [("issue", 2), ("price", 11), ("issue", 3), ("price", 0)]
    victim = secret_interest[0, HEADER_BYTES:BODY].tobytes().hex()
    slots = secret_interest[0, BODY:].reshape(2, -1)[:, 1:]
    wanted = [tokens.index(token) for token in scheme.tokens(int(halves[victim], 16), slots)]
    assert [words[place] for place in wanted] == [("issue", 1), ("price", 7)]

    # Forging: bob's key is x - x2 of bob.
    forged_key = scheme.user_key(MasterKey(x, s), int(halves[victim], 16))
    honest = server.subscriber_key("bob").export_secret_data()
    assert f"{forged_key.x1:x}" == honest["x1"] and forged_key.h.hex() == honest["h"]
    forgery = secret_interest.copy()
    forgery[0, BODY:].reshape(2, -1)[:, 1:] = scheme.trapdoors(
        forged_key, [keywords[words.index(("issue", 2))], keywords[words.index(("price", 11))]]
    )
    broker = matcher.broker(server.broker_key())
    assert broker.match_all(past, forgery)[:, 0].tolist() == [True, False]


def test_one_user_and_the_brokers_tokens() -> None:
    """From: one user's key, and tokens of other users that a broker kept or lost. Gives keywords.

    Nobody's other half is needed: h^sigma is the token, and every user has h and s.
    """
    matcher = KeywordMatch(Schema(price=UInt(4)), group="toy64")
    server, _, _, bob = roles(matcher)
    halves = server.broker_key().export_secret_data()["users"]
    scheme = ProxySearch(toy_group)
    secret = bob.encode(["price = 9", "price = 2"])
    victim = int(halves[secret[0, HEADER_BYTES:BODY].tobytes().hex()], 16)
    stolen = scheme.tokens(victim, secret[:, BODY + 1 :])

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
    slots, steps = matcher._split(interest[None, BODY:])
    used = slots[0, :, 2:].any(axis=1)
    positions = np.ascontiguousarray(slots[0, used, :2]).view("<u2").reshape(-1)
    return positions.tolist(), [(k, n) for k, n in steps[0].tolist() if n]


def test_the_shape_of_a_comparison_is_its_constant() -> None:
    """From: the message alone. Gives the constant of every "price < c", without any key."""
    matcher = AccessTreeMatch(PRICES, group="toy64")
    _, _, alice, _ = roles(matcher)
    shapes: dict[Any, int] = {}
    for constant in range(1, 256):  # the adversary's table: shapes are public and fixed
        tree = public_tree(matcher, alice.encode(f"price < {constant}")[0])
        shapes[repr(tree)] = constant
    assert len(shapes) == 255  # no two constants share a shape
    _, _, victim, _ = roles(matcher)  # other keys
    for constant in (1, 77, 128, 254):
        sent = victim.encode(f"price < {constant}")[0]
        assert shapes[repr(public_tree(matcher, sent))] == constant


def test_leaf_results_and_one_known_event_give_the_others() -> None:
    """From: the broker's view of one interest, and one event it knows. Gives all other events'
    bits, which no interest asked for as such."""
    matcher = AccessTreeMatch(PRICES, group="toy64")
    server, publisher, alice, _ = roles(matcher)
    broker: ReusableBroker = matcher.broker(server.broker_key())
    prices = [200, 3, 77, 128, 255, 0]
    events = publisher.encode({"price": prices})
    table = broker.prepare(alice.encode("price = 90")).content  # matches nothing
    held = matcher.leaf_results(broker._key, events[:, HEADER_BYTES:], table)
    assert held.shape == (8, 6)  # a token for each bit
    known = prices[0]
    recovered = []
    for event in range(1, 6):
        value = 0
        for position in table.tokens:
            bit = known >> (7 - position) & 1
            same = held[position, event] == held[position, 0]
            value = value << 1 | (bit if same else 1 - bit)
        recovered.append(value)
    assert recovered == prices[1:]
    # The same known event tells what the tokens stand for: the interest's secret constant.
    constant = 0
    for position in table.tokens:
        bit = known >> (7 - position) & 1
        constant = constant << 1 | (bit if held[position, 0] else 1 - bit)
    assert constant == 90
