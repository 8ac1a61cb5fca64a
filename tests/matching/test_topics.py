"""Matchers of topics: MaskedTopicMatch, CommutativeMatch, and chains of commutative layers.

Encrypted answers are plaintext answers, covering is equality, and bad input is refused. Chains
deliver to exactly those who asked and forward equal filters once.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Category, Keyword, Schema, Text, UInt
from ccbps.ciphers.pohlig_hellman import TOY_PRIME_64, PohligHellman
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError, UnsupportedPredicateError
from ccbps.matching import CommutativeMatch, MaskedTopicMatch, Matcher
from ccbps.matching.contract.access import MAC_BYTES
from ccbps.overlay.commutative_tree import FilterMessage, LayeredTree, NotificationMessage
from ccbps.wire import KEY_HEADER_BYTES, Cause
from tests.support.effort import examples
from tests.support.refusals import refused
from tests.support.reusable_checks import BODY, answers, plain, roles, sealed, secrets_of
from tests.support.strategies import record, rows, schemas, small_types
from tests.support.topic_strategies import topics_and_records

SCHEMA = Schema(issue=Category(["AAPL", "GOOG", "IBM", "MSFT"]), price=UInt(16))


def check_topics(matcher: Matcher, records: list[dict[str, Any]], texts: list[str]) -> None:
    """Check the answers to all pairs and to rows, and that equal boxes cover one another."""
    schema, (publisher, subscriber, broker) = matcher.schema, roles(matcher)
    events, interests = publisher.encode(records), subscriber.encode(texts)
    expected = plain(schema, records, texts)
    assert np.array_equal(broker.match_all(events, interests), expected)
    count = min(len(records), len(texts))
    pairs = broker.match(events[:count], interests[:count])
    assert pairs.tolist() == expected[:count].diagonal().tolist()
    boxes = [schema.parse(text).box().ranges for text in texts]
    same = [[wide == narrow for narrow in boxes] for wide in boxes]
    assert broker.covers(interests, interests).tolist() == same


# -- masked topics --------------------------------------------------------------------------------


@given(
    schema=schemas(small_types(), max_attributes=3)
    | st.builds(
        lambda k, t: Schema(k=k, t=t),
        st.builds(Keyword, st.sampled_from([48, 128]), nullable=st.booleans()),
        st.builds(Text, st.sampled_from([3, 20]), nullable=st.booleans()),
    ),
    data=st.data(),
)
@settings(max_examples=examples(60))
def test_topic_answers_are_the_plaintext_meaning(schema: Schema, data: st.DataObject) -> None:
    records = [record(row) for row in data.draw(rows(schema))]
    texts = [
        " AND ".join(
            f"{name} IS NULL" if value is None else f"{name} = {literal(value)}"
            for name, value in row.items()
        )
        for row in [*records[:3], *map(record, data.draw(rows(schema, max_size=3)))]
    ]
    check_topics(MaskedTopicMatch(schema), records, texts)


def literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).upper()


def test_tokens_are_hmac_of_the_codes() -> None:
    matcher = MaskedTopicMatch(SCHEMA)
    server = matcher.key_server()
    key = bytes.fromhex(server.publisher_key().export_secret_data()["key"])
    event = matcher.publisher(server.publisher_key()).encode([{"issue": "IBM", "price": 300}])
    topic = (2).to_bytes(8, "little") + (300).to_bytes(8, "little")
    token = hmac.new(key, topic, hashlib.sha256).digest()[:16]
    assert event[0, BODY].tobytes() == token
    for place in (0, 15):  # All of a token is compared.
        bent = event[:, BODY].copy()
        bent[0, place] ^= 1
        assert not matcher.match({}, event[:, BODY], matcher.table({}, bent)).any()


TOY = PohligHellman(TOY_PRIME_64)
WORDS = [b"IBM", b"SAP", b"GOOG"]
every_chain = pytest.mark.parametrize(
    ("layers", "brokers"), [(r, n) for r in (2, 3, 4) for n in range(1, 6)]
)

# -- chains -------------------------------------------------------------------------------------


@every_chain
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_notifications_reach_exactly_those_whose_word_is_equal(
    layers: int, brokers: int, data: st.DataObject
) -> None:
    places = data.draw(st.lists(st.integers(1, brokers), min_size=1, max_size=5))
    subscribers = {f"subscriber {i}": place for i, place in enumerate(places)}
    chain = LayeredTree.chain(brokers, subscribers, layers=layers, cipher=TOY)
    expected = data.draw(
        st.lists(st.tuples(st.sampled_from(list(subscribers)), st.sampled_from(WORDS)), max_size=8)
    )
    for name, word in expected:
        chain.subscribe(name, word)
    for word in WORDS:
        chain.sent_down.clear()
        assert chain.publish(word) == {name for name, asked in expected if asked == word}
        # Nobody gets a notification for nothing: links to subscribers carry matches only.
        for (_, to), count in chain.sent_down.items():
            if to in subscribers:
                assert (to, word) in expected
                assert count == 1


@every_chain
def test_equal_filters_are_forwarded_once_from_broker_r_on(layers: int, brokers: int) -> None:
    chain = LayeredTree.chain(brokers, {"a": 1, "b": 1, "c": 1}, layers=layers, cipher=TOY)
    for name in "abc":
        chain.subscribe(name, b"IBM")
    for place in range(1, brokers):
        link = f"broker {place}", f"broker {place + 1}"
        # Below the r-th broker filters still have layers of their own subscribers.
        assert chain.sent_up[link] == (3 if place < layers else 1)
    # One subscriber's equal filters stop at its own broker.
    before = chain.sent_up.total()
    chain.subscribe("a", b"IBM")
    assert chain.sent_up.total() == before + 1
    chain.subscribe("a", b"SAP")
    assert chain.sent_up.total() == before + 1 + brokers


@every_chain
def test_nodes_have_keys_of_their_neighbours_up_to_r_hops_only(layers: int, brokers: int) -> None:
    chain = LayeredTree.chain(brokers, {"a": 1}, layers=layers, cipher=TOY)
    order = ["a", *(f"broker {i}" for i in range(1, brokers + 1)), "publisher"]
    for i, name in enumerate(order):
        near = {other for j, other in enumerate(order) if 0 < abs(i - j) <= layers}
        assert set(chain.nodes[name].keys) == near
        for other in near:
            assert chain.nodes[name].keys[other] == chain.nodes[other].keys[name]
    refused(KeyMismatchError, "shares no key with 'nobody'", chain.nodes["a"].key, "nobody")


@every_chain
def test_r_layers_between_hops_and_one_less_in_tables(layers: int, brokers: int) -> None:
    """Each message between brokers can be read with the r keys of the pairs around the hop."""
    chain = LayeredTree.chain(brokers, {"a": 1}, layers=layers, cipher=TOY)
    order = ["a", *(f"broker {i}" for i in range(1, brokers + 1)), "publisher"]

    def at(place: int) -> str:
        return order[min(max(place, 0), brokers + 1)]

    node = chain.nodes["a"]
    message: FilterMessage | None = node.encrypt_filter(b"IBM")
    for place in range(1, brokers + 1):
        assert message is not None
        pairs = [(at(low), at(low + layers)) for low in range(place - layers, place)]
        keys = [chain.nodes[low].keys[high] for low, high in pairs]
        assert TOY.remove([message.element], *keys) == [TOY.encode(b"IBM")]
        node = chain.nodes[order[place]]
        message = node.secure_table_building(message)
        (entry,) = node.table
        # The first pair's layer came off here: the broker is its upper end.
        assert pairs[0][1] == node.name
        assert TOY.remove([entry], *keys[1:]) == [TOY.encode(b"IBM")]


def test_look_up_says_where_equal_filters_came_from() -> None:
    chain = LayeredTree.chain(2, {"a": 1, "b": 2}, cipher=TOY)
    chain.subscribe("a", b"IBM")
    publisher, broker = chain.nodes["publisher"], chain.nodes["broker 2"]
    message = publisher.encrypt_notification(b"IBM", ("broker 1", "broker 2"), 2)
    assert message.to == "broker 2"
    assert broker.secure_look_up(message)[1] == [("a", "broker 1")]
    other = publisher.encrypt_notification(b"SAP", ("broker 1", "broker 2"), 2)
    assert broker.secure_look_up(other)[1] == []
    assert broker.forward(other) == []


def test_chains_and_messages_that_do_not_fit_are_refused() -> None:
    for brokers, layers in ((0, 2), (1, 1)):
        with pytest.raises(ParameterError, match=r"(brokers|layers) must be a whole number"):
            LayeredTree.chain(brokers, {}, layers=layers, cipher=TOY)
    for subscribers in ({"a": 0}, {"a": 3}, {"broker 1": 1}, {"publisher": 1}):
        refused(ParameterError, "a name of its own", LayeredTree.chain, 2, subscribers, cipher=TOY)
    chain = LayeredTree.chain(2, {"a": 1}, cipher=TOY)
    refused(ParameterError, "no subscriber is named 'b'", chain.subscribe, "b", b"IBM")
    broker = chain.nodes["broker 1"]
    for element in (0, 1, int(TOY.prime) - 1, 5 - int(TOY.prime)):
        with pytest.raises(ParameterError, match="not an element"):
            broker.secure_table_building(FilterMessage(element, ("a",)))
        with pytest.raises(ParameterError, match="not an element"):
            broker.forward(NotificationMessage(element, "broker 1"))
    good = chain.nodes["a"].encrypt_filter(b"IBM").element
    with pytest.raises(KeyMismatchError, match="shares no key with 'mallory'"):
        broker.secure_table_building(FilterMessage(good, ("mallory",)))
    # Made-up trails would fill the table, and give each event as many copies.
    for trail in ((), ("a", "broker 1", "broker 1")):
        filled = FilterMessage(good, trail)
        refused(ParameterError, "needs a trail", broker.secure_table_building, filled)
    with pytest.raises(KeyMismatchError, match="shares no key with 'mallory'"):
        broker.secure_table_building(FilterMessage(good, ("a", "mallory")))
    assert not broker.table
    assert "keys" in repr(broker)
    assert str(good) not in repr(chain)


@pytest.mark.slow
def test_a_chain_of_full_size() -> None:
    chain = LayeredTree.chain(3, {"a": 1, "b": 2})
    chain.subscribe("a", b"IBM")
    chain.subscribe("b", b"SAP")
    assert [chain.publish(word) for word in WORDS] == [{"a"}, {"b"}, set()]


# -- commutative layers ---------------------------------------------------------------------------


@given(drawn=topics_and_records())
@settings(max_examples=examples(80), deadline=None)
def test_answers_are_the_plaintext_meaning(drawn: Any) -> None:
    schema, attributes, texts, records = drawn
    check_topics(CommutativeMatch(schema, attributes, group="toy64"), records, texts)


def test_clients_that_come_later_match_those_that_were_there() -> None:
    matcher = CommutativeMatch(SCHEMA, ["issue"], group="toy64")
    server = matcher.key_server()
    broker = matcher.broker(server.broker_key())
    names = ["alice", "bob", "carol"]
    subscribers = [matcher.subscriber(server.subscriber_key(name)) for name in names]
    publishers = [matcher.publisher(server.publisher_key(name)) for name in names]
    interests = np.vstack([s.encode("issue = 'IBM'") for s in subscribers])
    event = {"issue": "IBM", "price": 1}
    events = np.vstack([p.encode([event, event | {"issue": "GOOG"}]) for p in publishers])
    assert broker.match_all(events, interests).tolist() == [[True] * 3, [False] * 3] * 3
    # On the way to the broker the same topic looks different for each client.
    assert len({row.tobytes() for row in interests[:, BODY][:, 8:]}) == 3
    assert len({row.tobytes() for row in events[::2, BODY][:, 8:]}) == 3
    assert broker.covers(interests, interests).all()


def test_a_publisher_and_a_subscriber_of_one_name_have_different_layers() -> None:
    matcher = CommutativeMatch(SCHEMA, group="toy64")
    server = matcher.key_server()
    publisher = server.publisher_key("alice").export_secret_data()
    other = server.subscriber_key("alice").export_secret_data()
    assert publisher["layers"][0] != other["layers"][0]
    assert publisher["layers"][1] == other["layers"][1]
    assert set(secrets_of(server.broker_key())) == {"broker"}


def test_malformed_elements_are_refused_by_cause() -> None:
    matcher = CommutativeMatch(SCHEMA, ["issue"], group="toy64")
    publisher, subscriber, broker = roles(matcher)
    events = publisher.encode([{"issue": "IBM", "price": 1}] * 5)
    interests = subscriber.encode(["issue = 'IBM'"] * 5)
    prime = matcher.cipher.prime
    element = int.from_bytes(events[0, BODY][-8:].tobytes(), "big")
    for row, bad in enumerate((0, 1, prime - 1, prime - element)):
        for messages in (events, interests):
            messages[row, BODY][-8:] = np.frombuffer(bad.to_bytes(8, "big"), dtype=np.uint8)
    sealed(publisher, events)
    sealed(subscriber, interests)
    expected = [Cause.VALUE] * 4 + [Cause.NONE]
    assert broker.examine_events(events).tolist() == expected
    assert broker.examine_interests(interests).tolist() == expected
    for first, second in ((events, interests[4:]), (events[4:], interests)):
        with pytest.raises(DecodeError, match="no message of this scheme has") as caught:
            broker.match_all(first, second)
        assert caught.value.rows == (0, 1, 2, 3)
        refused(DecodeError, "", broker.match, first, second[:1].repeat(len(first), axis=0))
    refused(DecodeError, "do not pair", broker.match, events, interests[:2])


ISSUES = CommutativeMatch(SCHEMA, ["issue"], group="toy64")
WHOLE = MaskedTopicMatch(SCHEMA)


@pytest.mark.parametrize(
    ("matcher", "topic", "text"),
    [
        (ISSUES, "issue = 'IBM'", "price < 3"),
        (ISSUES, "issue = 'IBM'", "issue = 'IBM' OR issue = 'GOOG'"),
        (ISSUES, "issue = 'IBM'", "TRUE"),
        (ISSUES, "issue = 'IBM'", "issue = 'IBM' AND price = 3"),
        (WHOLE, "issue = 'IBM' AND price = 3", "issue = 'IBM'"),
        (WHOLE, "issue = 'IBM' AND price = 3", "issue = 'IBM' AND price < 7"),
        (WHOLE, "issue = 'IBM' AND price = 3", "FALSE"),
    ],
)
def test_interests_that_name_no_topic_are_refused(matcher: Matcher, topic: str, text: str) -> None:
    _, subscriber, _ = roles(matcher)
    message = "has one value of" if matcher is WHOLE else ""
    assert refused(UnsupportedPredicateError, message, subscriber.encode, [topic, text]).row == 1


def test_parameters_are_checked_and_kept() -> None:
    for attributes in ([], ["volume"], ["issue", "issue"]):
        with pytest.raises(ParameterError, match="must name some of issue, price"):
            CommutativeMatch(SCHEMA, attributes)
    refused(ParameterError, r"group must be .*, got 'toy'", CommutativeMatch, SCHEMA, group="toy")
    toy = CommutativeMatch(SCHEMA, ["issue"], group="toy64")
    full = CommutativeMatch(SCHEMA)
    assert full.event_bytes == full.interest_bytes == KEY_HEADER_BYTES + 8 + 256 + MAC_BYTES
    assert full.leakage.security == "computational"
    assert toy.leakage.security == "broken"
    assert "toy" in str(toy.leakage)
    assert {cost.role for cost in full.costs} == {"publisher", "subscriber", "broker"}
    assert "exponentiation (modp2048, 256-bit exponent)" in full.explain()
    refused(KeyMismatchError, "another matcher", full.broker, toy.key_server().broker_key())


@pytest.mark.parametrize("group", ["modp2048", "secp256k1"])
def test_groups_of_full_size(group: str) -> None:
    if group == "secp256k1":
        pytest.importorskip("coincurve")
    matcher = CommutativeMatch(SCHEMA, ["issue"], group=group)
    records = [{"issue": name, "price": 0} for name in ("IBM", "GOOG")]
    assert answers(matcher, records, "issue = 'IBM'").tolist() == [[True], [False]]


def test_it_is_proposed_on_the_attributes_that_have_a_value() -> None:
    matchers = list(CommutativeMatch.propose(SCHEMA, SCHEMA.parse("issue = 'IBM'")))
    assert {matcher.attributes for matcher in matchers} == {("issue",)}
    assert matchers[-1].group.name == "modp2048"  # before it the curve, where its library is
    assert len(matchers) == 1 + bool(importlib.util.find_spec("coincurve"))
    for text in ("TRUE", "issue = 'IBM' AND price < 3", "issue = 'IBM' OR price = 3", "FALSE"):
        assert not list(CommutativeMatch.propose(SCHEMA, SCHEMA.parse(text)))


# -- trees --------------------------------------------------------------------------------------


def random_tree(seed: int, layers: int) -> tuple[LayeredTree, dict[str, tuple[str, ...]]]:
    """Make a tree of up to 10 brokers with 12 subscribers; return it and their ways up."""
    draw = random.Random(seed)
    names = [f"b{number}" for number in range(draw.randint(1, 10))]
    parents = {name: draw.choice(["publisher", *names[:place]]) for place, name in enumerate(names)}
    homes = {f"s{number}": draw.choice(names) for number in range(12)}
    ways = {}
    for subscriber, broker in homes.items():
        way = [broker]
        while way[-1] != "publisher":
            way.append(parents[way[-1]])
        ways[subscriber] = tuple(way)
    return LayeredTree(parents, homes, layers=layers, cipher=TOY), ways


@given(st.integers(0, 1 << 32), st.integers(2, 4))
@settings(max_examples=examples(150))
def test_a_tree_delivers_what_was_asked_for(seed: int, layers: int) -> None:
    tree, ways = random_tree(seed, layers)
    draw = random.Random(seed + 1)
    wanted = {name: {draw.choice(b"abc")} for name in ways}
    for name, letters in wanted.items():
        for letter in letters:
            tree.subscribe(name, bytes([letter]))
    for letter in b"abcd":
        tree.sent_down.clear()
        reached = tree.publish(bytes([letter]))
        assert reached == {name for name, letters in wanted.items() if letter in letters}
        # The publisher sends a copy for each way down of r hops, whether somebody asked or not.
        down = {way[-2 : -2 - layers : -1] for way in ((name, *up) for name, up in ways.items())}
        sent = sum(count for (sender, _), count in tree.sent_down.items() if sender == "publisher")
        assert sent == len(down)


def test_more_layers_save_fewer_entries() -> None:
    """Two clients at each of eight leaves ask for one word; equal filters meet r hops up."""
    names = [""] + [f"{bits:0{n}b}" for n in (1, 2, 3) for bits in range(1 << n)]
    parents = {f"b{name}": f"b{name[:-1]}" if name else "publisher" for name in names}
    leaves = [name for name in parents if len(name) == 4]
    homes = {f"{leaf}{client}": leaf for leaf in leaves for client in "xy"}
    saved = []
    for layers in (2, 3, 4):
        tree = LayeredTree(parents, homes, layers=layers, cipher=TOY)
        for name in homes:
            tree.subscribe(name, b"w")
        entries = sum(len(tree.nodes[name].table) for name in parents)
        saved.append(4 * len(homes) - entries)  # without aggregation: one a subscriber and broker
        assert tree.publish(b"w") == homes.keys()
    assert saved == sorted(saved, reverse=True)
    assert saved[0] > saved[1] > saved[2] > 0


def test_ways_must_lead_to_the_publisher() -> None:
    for parents in ({"a": "b", "b": "a"}, {"a": "c"}, {"a": "a"}):
        refused(ParameterError, "does not lead to", LayeredTree, parents, {}, cipher=TOY)
