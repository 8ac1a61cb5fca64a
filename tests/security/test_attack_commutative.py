"""Attacks on multiple-layer commutative encryption, by who works together.

- Whoever holds the keys of all layers of an entry of a broker's table tries words. Among brokers
  that takes r of them: r in a row, or one of each pair that shares a layer.
- The publisher stands for all nodes that a chain would have above it. It shares all layers of the
  last broker's table: these two read all filters, whatever r is.
- No key is needed by who can send guesses. A subscriber subscribes to them, and the broker r hops
  above it sees which of its entries they fall on. The publisher publishes them, and any broker at
  all sees it.
- With one broker and two layers (`CommutativeMatch`), the broker and any client are two in a row.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from ccbps import Category, Schema
from ccbps.attacks.schemes.commutative import (
    CIPHER,
    pool_layer_keys,
    read_table,
    try_filters,
    try_notifications,
)
from ccbps.ciphers.pohlig_hellman import LayerKey
from ccbps.matching import CommutativeMatch
from ccbps.overlay.commutative_tree import LayeredTree
from ccbps.wire import KEY_HEADER_BYTES
from tests.support.reusable_checks import users

WORDS = [f"word {number}".encode() for number in range(40)]
SECRET = {"alice": WORDS[7], "bob": WORDS[23]}
every_case = pytest.mark.parametrize("layers", [2, 3, 4])


def chain_of(layers: int) -> LayeredTree:
    """One whose filters have reached the top."""
    chain = LayeredTree.chain(6, {"alice": 1, "bob": 1, "mallory": 1}, layers=layers, cipher=CIPHER)
    for name, word in SECRET.items():
        chain.subscribe(name, word)
    return chain


@every_case
@pytest.mark.parametrize("first", [1, 2])
def test_r_nodes_in_a_row_read_all_filters(layers: int, first: int) -> None:
    chain = chain_of(layers)
    nodes = [chain.nodes[f"broker {place}"] for place in range(first, first + layers)]
    # What the lowest of them keeps has layers that the others share with nodes below it.
    recovered = read_table(chain, nodes[0], pool_layer_keys(nodes), WORDS)
    assert set(recovered.values()) == set(SECRET.values())


@every_case
def test_the_last_broker_and_the_publisher_read_all_filters(layers: int) -> None:
    """Two nodes in a row, for any number of layers."""
    chain = chain_of(layers)
    last, publisher = chain.nodes["broker 6"], chain.nodes["publisher"]
    recovered = read_table(chain, last, pool_layer_keys([last, publisher]), WORDS)
    assert set(recovered.values()) == set(SECRET.values())


def layers_of(chain: LayeredTree, subscriber: str, place: int) -> set[LayerKey]:
    """The keys that a subscriber's filter is still under in the table of a broker."""
    order = [subscriber, *(f"broker {i}" for i in range(1, 7)), "publisher"]
    around = [
        (order[max(low, 0)], order[min(low + chain.layers, 7)])
        for low in range(place - chain.layers + 1, place)
    ]
    keys = [chain.nodes[low].keys[high] for low, high in around]
    words = [CIPHER.remove([entry], *keys)[0] for entry in chain.nodes[order[place]].table]
    assert CIPHER.encode(SECRET[subscriber]) in words  # so these are the layers, and no others
    return set(keys)


@every_case
def test_how_many_nodes_hold_all_layers_of_a_table(layers: int) -> None:
    """r brokers, never less; with the publisher the fewer, the nearer to it the table is."""
    chain = chain_of(layers)
    others = [node for name, node in chain.nodes.items() if name not in (*SECRET, "mallory")]
    for place in range(1, 7):
        broker_node, victim = chain.nodes[f"broker {place}"], layers_of(chain, "alice", place)
        needed: dict[bool, int] = {}
        for count in range(1, layers + 1):
            for colluders in combinations(others, count):
                if broker_node in colluders and victim <= set(pool_layer_keys(colluders)):
                    needed.setdefault(chain.nodes["publisher"] in colluders, count)
        # The publisher holds a layer of the r - 1 highest tables. From the last one, place 6, up to
        # the publisher there are 2 nodes, from place 5 there are 3.
        from_there = {True: 8 - place} if 8 - place <= layers else {}
        assert needed == {False: layers} | from_there


@every_case
def test_a_subscriber_and_the_broker_r_hops_up_find_filters_without_a_key(layers: int) -> None:
    chain = chain_of(layers)
    broker = chain.nodes[f"broker {layers}"]
    victims = set(broker.table)
    recovered = try_filters(chain, "mallory", broker, WORDS)  # through honest brokers below
    assert set(recovered) == victims
    assert set(recovered.values()) == set(SECRET.values())
    # The broker that mallory is connected to, or one below the r-th, sees no such thing.
    for place in range(1, layers):
        below = chain.nodes[f"broker {place}"]
        assert all(len({trail[0] for trail in trails}) == 1 for trails in below.table.values())


@every_case
def test_the_publisher_and_any_broker_find_filters_without_a_key(layers: int) -> None:
    chain = chain_of(layers)
    seen = try_notifications(chain, WORDS)
    assert set(seen) == {f"broker {place}" for place in range(1, 7)}
    for name, recovered in seen.items():  # what one broker saw of its own table
        assert set(recovered) == set(chain.nodes[name].table)
        assert set(recovered.values()) == set(SECRET.values())


def test_the_broker_and_one_client_of_the_matcher_read_everybody() -> None:
    schema = Schema(issue=Category([word.decode() for word in WORDS]))
    matcher = CommutativeMatch(schema, group="toy64")
    server, broker, publisher, _ = users(matcher)
    alice = matcher.subscriber(server.subscriber_key("alice"))
    interest = alice.encode("issue = 'word 7'")
    events = publisher.encode([{"issue": "word 7"}, {"issue": "word 23"}])
    # The colluders: the broker, and mallory, who is an ordinary subscriber.
    mallory = matcher.subscriber(server.subscriber_key("mallory"))
    guesses = mallory.encode([f"issue = '{word.decode()}'" for word in WORDS])
    assert broker.covers(guesses, interest)[:, 0].nonzero()[0].tolist() == [7]
    assert broker.match_all(events, guesses).nonzero()[1].tolist() == [7, 23]


def test_identifiers_say_nothing_of_names() -> None:
    """A broker that can think of a client's name does not recognize it, here or elsewhere."""
    matcher = CommutativeMatch(Schema(issue=Category(["a", "b"])), group="toy64")
    servers = [matcher.key_server(), matcher.key_server()]
    keys = [server.subscriber_key("alice") for server in servers for _ in range(2)]
    sent = [matcher.subscriber(key).encode("issue = 'a'")[0] for key in keys]
    assert len({row[KEY_HEADER_BYTES : KEY_HEADER_BYTES + 8].tobytes() for row in sent}) == 4
    # What comes from two keys of one name is matched all the same.
    broker = matcher.broker(servers[0].broker_key())
    event = matcher.publisher(servers[0].publisher_key()).encode({"issue": ["a", "b"]})
    assert broker.match_all(event, np.stack(sent[:2])).tolist() == [[True] * 2, [False] * 2]
