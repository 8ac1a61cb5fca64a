"""Attacks on multiple-layer commutative encryption, by who works together.

- r nodes in a row hold the keys of all layers of what each of them has in its table: they try
  words. Less than r in a row lack a layer.
- A subscriber and the broker r hops above it need no key: the one subscribes to guesses, the other
  sees which of its table entries they fall on.
- With one broker and two layers (`CommutativeMatch`), the broker and any client are two in a row.
"""

from __future__ import annotations

import pytest

from ccbps import Category, Schema
from ccbps.ciphers.pohlig_hellman import TOY_PRIME_64, LayerKey, PohligHellman
from ccbps.matching import CommutativeMatch
from ccbps.matching.commutative_chain import Chain, ChainNode

CIPHER = PohligHellman(TOY_PRIME_64)
WORDS = [f"word {number}".encode() for number in range(40)]
SECRET = {"alice": WORDS[7], "bob": WORDS[23]}
every_case = pytest.mark.parametrize("layers", [2, 3, 4])


def chain_of(layers: int) -> Chain:
    """One whose filters have reached the top."""
    chain = Chain(6, {"alice": 1, "bob": 1, "mallory": 1}, layers=layers, cipher=CIPHER)
    for name, word in SECRET.items():
        chain.subscribe(name, word)
    return chain


def keys_of(nodes: list[ChainNode]) -> list[LayerKey]:
    """Distinct keys that the colluders hold."""
    found: list[LayerKey] = []
    for node in nodes:
        found += [key for key in node.keys.values() if key not in found]
    return found


def read(entry: int, keys: list[LayerKey], layers: int) -> set[bytes]:
    """Words whose encryption under some `layers` - 1 of the keys is the entry."""
    guesses = {int(CIPHER.encode(word)): word for word in WORDS}
    bare = {entry}
    for _ in range(layers - 1):
        bare = {int(x) for value in bare for key in keys for x in CIPHER.remove([value], key)}
    return {guesses[value] for value in bare if value in guesses}


@every_case
@pytest.mark.parametrize("first", [1, 2])
def test_r_nodes_in_a_row_read_all_filters(layers: int, first: int) -> None:
    chain = chain_of(layers)
    nodes = [chain.nodes[f"broker {place}"] for place in range(first, first + layers)]
    # What the lowest of them keeps has layers that the others share with nodes below it.
    found = set()
    for entry in nodes[0].table:
        found |= read(entry, keys_of(nodes), layers)
    assert found == set(SECRET.values())


@every_case
def test_fewer_nodes_in_a_row_read_none(layers: int) -> None:
    chain = chain_of(layers)
    for first in range(1, 6 - layers + 2):
        nodes = [chain.nodes[f"broker {first + hop}"] for hop in range(layers - 1)]
        keys = keys_of(nodes)
        for node in nodes:
            for entry in node.table:
                assert not read(entry, keys, layers)


@every_case
def test_a_subscriber_and_the_broker_r_hops_up_find_filters_without_a_key(layers: int) -> None:
    chain = chain_of(layers)
    broker = chain.nodes[f"broker {layers}"]
    victims = set(broker.table)
    found: dict[int, bytes] = {}
    for word in WORDS:  # mallory subscribes to guesses, through honest brokers below
        chain.subscribe("mallory", word)
        for entry in victims:
            if entry not in found and any(trail[0] == "mallory" for trail in broker.table[entry]):
                found[entry] = word
    assert set(found) == victims
    assert set(found.values()) == set(SECRET.values())
    # The broker that mallory is connected to, or one below the r-th, sees no such thing.
    for place in range(1, layers):
        below = chain.nodes[f"broker {place}"]
        assert all(len({trail[0] for trail in trails}) == 1 for trails in below.table.values())


def test_the_broker_and_one_client_of_the_matcher_read_everybody() -> None:
    schema = Schema(issue=Category([word.decode() for word in WORDS]))
    matcher = CommutativeMatch(schema, group="toy64")
    server = matcher.key_server()
    alice = matcher.subscriber(server.subscriber_key("alice"))
    publisher = matcher.publisher(server.publisher_key())
    interest = alice.encode("issue = 'word 7'")
    events = publisher.encode([{"issue": "word 7"}, {"issue": "word 23"}])
    # The colluders: the broker, and mallory, who is an ordinary subscriber.
    broker = matcher.broker(server.broker_key())
    mallory = matcher.subscriber(server.subscriber_key("mallory"))
    guesses = mallory.encode([f"issue = '{word.decode()}'" for word in WORDS])
    assert broker.covers(guesses, interest)[:, 0].nonzero()[0].tolist() == [7]
    assert broker.match_all(events, guesses).nonzero()[1].tolist() == [7, 23]
