"""TagMatch: answers are plaintext answers for every box, messages are fixed in size and checked."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Category, Keyword, Schema, Text, UInt
from ccbps.ciphers.word_prf import NonceHash
from ccbps.errors import DecodeError, ParameterError, UnsupportedPredicateError
from ccbps.forms.prefixes import range_prefixes
from ccbps.keys.role_key import RoleKey
from ccbps.matching import TagMatch
from ccbps.matching.tag import tag
from ccbps.matching.tag.tag_words import NOT_NULL, PREFIX, nodes_of, nodes_within
from ccbps.wire import KEY_HEADER_BYTES, Cause
from tests.support.effort import examples
from tests.support.refusals import refused
from tests.support.reusable_checks import (
    BODY,
    answers,
    conjunctions,
    plain,
    roles,
    sealed,
    secrets_of,
)
from tests.support.strategies import record, rows, schemas

QUOTES = Schema(
    issue=Category(["AAPL", "GOOG", "IBM", "MSFT"]), price=UInt(16), volume=UInt(20, nullable=True)
)


def quotes(count: int, seed: int) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    volume = [None if v >= 2**20 else int(v) for v in rng.integers(0, 1_100_000, count)]
    issue = [("AAPL", "GOOG", "IBM", "MSFT")[i] for i in rng.integers(0, 4, count)]
    return {"issue": issue, "price": rng.integers(0, 2**16, count).tolist(), "volume": volume}


# -- covers -------------------------------------------------------------------------------------


def test_nodes_of_intervals_are_their_covers_among_decoys() -> None:
    for bits, nullable in product(range(1, 5), (False, True)):
        kind, last = UInt(bits, nullable=nullable), 2**bits - 1 + nullable
        for low in range(last + 1):
            for high in range(low, last + 1):
                nodes = nodes_of(low, high, kind)
                assert 0 < len(nodes) == len(set(nodes)) <= nodes_within(kind)
                cover = [node[1:] for node in nodes if node[0] == PREFIX]
                if not nullable:
                    assert sorted(cover) == range_prefixes(low, high, bits)
                    single = low != high and (low == 0) != (high == last)
                    assert len(nodes) == bits or not single  # one bound: a node of each length
                held = []
                for code in range(last + 1):
                    lengths = (0, kind.bits) if nullable and code == 0 else range(kind.bits + 1)
                    mine = {
                        (PREFIX, code >> (kind.bits - n) << (kind.bits - n), n) for n in lengths
                    }
                    if nullable and code:
                        mine.add((NOT_NULL, 0, 0))
                    held.append(not mine.isdisjoint(nodes))
                assert held == [low <= code <= high for code in range(last + 1)]


# -- correctness --------------------------------------------------------------------------------


@given(schema=schemas(), data=st.data())
@settings(max_examples=examples(80))
def test_answers_are_plaintext_answers_for_any_schema(schema: Schema, data: st.DataObject) -> None:
    topic = data.draw(st.lists(st.sampled_from(schema.names), unique=True, max_size=2))
    matcher = TagMatch(schema, topic=topic)
    publisher, subscriber, broker = roles(matcher)
    records = [record(row) for row in data.draw(rows(schema))]
    interests = []
    for predicate in data.draw(st.lists(conjunctions(schema), min_size=1, max_size=4)):
        try:
            ranges = predicate.box().ranges
        except UnsupportedPredicateError:
            ranges = {}
        asked = [(*ranges[name], schema[name].size - 1) for name in topic if ranges]
        if not ranges or not all(
            low == high or (low, high) in ((0, last), (1, 0)) for low, high, last in asked
        ):
            refused(UnsupportedPredicateError, "", subscriber.encode, predicate)
            continue
        interests.append(predicate)
    matches = broker.match_all(publisher.encode(records), subscriber.encode(interests))
    assert matches.T.tolist() == [predicate.evaluate(records).tolist() for predicate in interests]


@pytest.mark.parametrize("topic", [(), ("issue",), ("issue", "price"), tuple(QUOTES)])
def test_answers_many_pairs_as_plaintext(topic: tuple[str, ...]) -> None:
    rng = np.random.default_rng(6)
    records = quotes(700, 7)
    texts = ["TRUE", "issue = 'IBM'", "price < 5 AND price > 9", "volume IS NULL"]
    for row in rng.integers(0, 700, 60).tolist():
        issue, price = records["issue"][row], records["price"][row]
        texts.append(f"issue = '{issue}' AND price = {price}")
        if "price" not in topic:
            texts.append(f"issue = '{issue}' AND price <= {price}")
            texts.append(f"price BETWEEN {price} AND {price + 9_000}")
            texts.append(f"price >= {price}")
        if "volume" not in topic:
            texts.append(f"issue = '{issue}' AND volume > {int(rng.integers(0, 2**20))}")
    matcher = TagMatch(QUOTES, topic=topic)
    publisher, subscriber, broker = roles(matcher)
    events, interests = publisher.encode(records), subscriber.encode(texts)
    expected = plain(QUOTES, records, texts)
    assert np.array_equal(broker.match_all(events, interests), expected)
    for column in (0, 1, 5):  # few interests take another table
        alone = broker.match_all(events, interests[column : column + 1])[:, 0]
        assert np.array_equal(alone, expected[:, column])
    assert np.array_equal(broker.match(events[: len(texts)], interests), expected.diagonal())


@pytest.mark.slow
def test_answers_two_million_pairs_as_plaintext() -> None:
    rng = np.random.default_rng(11)
    records = quotes(2_000, 12)
    texts = [
        f"issue = '{records['issue'][i]}' AND price BETWEEN {low} AND {low + width}"
        for i, low, width in zip(
            range(1_000), rng.integers(0, 60_000, 1_000), rng.integers(0, 9_000, 1_000), strict=True
        )
    ]
    expected = plain(QUOTES, records, texts)
    for topic in ((), ("issue",)):
        assert np.array_equal(answers(TagMatch(QUOTES, topic=topic), records, texts), expected)


def test_equal_interests_sets_and_keys_are_tried_once_an_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[int] = []

    class Counting(NonceHash):
        def _hash(self, mixed: Any, out: Any) -> None:
            tried.append(len(mixed))
            super()._hash(mixed, out)

    monkeypatch.setattr(tag, "NonceHash", Counting)
    publisher, subscriber, broker = roles(TagMatch(QUOTES))
    records = quotes(20, 3)
    texts = [f"price < {bound} AND volume > {bound}" for bound in range(9_000, 49_000, 1_000)]
    expected = plain(QUOTES, records, texts)
    events, interests = publisher.encode(records), subscriber.encode(texts)

    def cost(which: Any) -> int:
        tried.clear()
        matches = broker.match_all(events, interests[which])
        assert np.array_equal(matches, expected[:, which])
        return sum(tried)

    all_of_them = cost(np.arange(40))
    assert cost(np.arange(4_000) % 40) == all_of_them
    assert cost(np.sort(np.arange(4_000) % 40)) == all_of_them
    keys = np.ascontiguousarray(interests[:, BODY]).view("<u8").reshape(-1, 2)
    assert all_of_them <= 20 * len(np.unique(keys, axis=0))


def test_topics_wider_than_a_block_are_told_apart() -> None:
    schema = Schema(name=Text(12), tag=Keyword(128), x=UInt(3))
    names = ["", "a", "twelve bytes", "twelve bytez", "swelve bytes"]
    records = {"name": names, "tag": ["t", "u", "t", "t", "u"], "x": [1, 1, 2, 2, 2]}
    texts = [f"name = '{name}'" for name in names] + ["tag = 't'", "tag = 'u' AND x > 1"]
    matches = answers(TagMatch(schema, topic=("name", "tag")), records, texts)
    assert np.array_equal(matches, plain(schema, records, texts))


def test_chance_of_a_wrong_match_is_stated() -> None:
    matcher = TagMatch(QUOTES)
    assert (matcher.tags, matcher.keys) == (3 + 17 + 23, 2 + 30 + 40)
    assert matcher.false_positive_rate == 43 * 72 / 2**64
    assert TagMatch(QUOTES, topic=["issue"]).tags == 2 * (17 + 23)


# -- groups and epochs --------------------------------------------------------------------------


def test_events_reach_the_groups_that_their_publisher_has_keys_of() -> None:
    matcher = TagMatch(QUOTES, topic=["issue"], groups=3)
    server = matcher.key_server()
    records = quotes(200, 4)
    texts = ["price < 30000 AND issue = 'IBM'", "volume > 9000", "volume IS NULL"]
    expected = plain(QUOTES, records, texts)
    assert expected.any(axis=0).all()
    interests = np.stack(
        [
            matcher.subscriber(server.subscriber_key("alice", group=group)).encode(texts)
            for group in range(3)
        ]
    )
    broker = matcher.broker(server.broker_key())
    table = broker.prepare(interests.reshape(9, -1))
    for reached in ([0, 1, 2], [1], [2, 0, 2]):
        publisher = matcher.publisher(server.publisher_key("feed", groups=reached))
        events = publisher.encode(records)
        assert not broker.examine_events(events).any()
        matches = broker.match_all(events, table).reshape(200, 3, 3)
        for group in range(3):
            assert np.array_equal(matches[:, group], expected & (group in reached))
    everywhere = matcher.publisher(server.publisher_key()).encode(records)
    assert np.array_equal(broker.match_all(everywhere, interests[2]), expected)


def test_groups_follow_from_names_and_are_checked() -> None:
    matcher = TagMatch(QUOTES, groups=4)
    server = matcher.key_server()
    names = [f"subscriber {number}" for number in range(40)]
    assert {tag.group_of(name, 4) for name in names} == set(range(4))
    for name in names[:5]:
        given = server.subscriber_key(name, group=tag.group_of(name, 4))
        assert server.subscriber_key(name).export_secret_data() == given.export_secret_data()
    with pytest.raises(ParameterError, match="keys of this matcher take no option 'groups'"):
        server.subscriber_key("alice", groups=[1])
    with pytest.raises(ParameterError, match="keys of this matcher take no option 'group'"):
        server.publisher_key(group=1)
    for group in (-1, 4, True, "0", 1.0):
        with pytest.raises(ParameterError, match="group must be a whole number from 0 to 3, got"):
            server.subscriber_key("alice", group=group)
        with pytest.raises(ParameterError, match="group must be a whole number from 0 to 3, got"):
            server.publisher_key(groups=[0, group])
    refused(ParameterError, "at least one group, got none", server.publisher_key, groups=[])
    with pytest.raises(ParameterError, match=r"groups must be an Iterable, got int; such as \[0\]"):
        server.publisher_key(groups=3)
    for groups in (0, -1, 2.0, True, "2"):
        with pytest.raises(ParameterError, match="groups must be a whole number, at least 1, got"):
            TagMatch(QUOTES, groups=groups)  # type: ignore[arg-type]
    most = tag.MAX_TAGS // TagMatch(QUOTES).tags
    refused(ParameterError, "at most 16384 tags", TagMatch, QUOTES, groups=most + 1)
    assert TagMatch(QUOTES, groups=most).tags == most * TagMatch(QUOTES).tags
    assert TagMatch(QUOTES, groups=4) != TagMatch(QUOTES)


def test_epochs_step_alike_on_restored_servers_and_leave_nothing_of_the_last() -> None:
    matcher = TagMatch(QUOTES)
    server = matcher.key_server()
    restored = matcher.key_server(RoleKey.from_text(server.key.to_text()))
    old = server.key.export_secret_data()["root"]
    _, subscriber, broker = roles(matcher, server)
    before = subscriber.encode("price < 9")
    for each in (server, restored):
        each.rotate()
        assert each.epoch == each.key.epoch == 1
    assert secrets_of(server.key) == secrets_of(restored.key) != {"root": old}
    publisher, subscriber, later = roles(matcher, restored)
    events = publisher.encode(quotes(3, 1))
    assert later.match_all(events, subscriber.encode("TRUE")).all()
    refused(DecodeError, "another key epoch", later.match_all, events, before)
    refused(DecodeError, "another key epoch", broker.match_all, events, before)


def test_contradictions_are_encrypted_anew() -> None:
    _, subscriber, _ = roles(TagMatch(QUOTES, topic=["issue"]))
    texts = ["price < 5 AND price > 9", "issue = 'IBM' AND price < 5"] * 2
    bodies = subscriber.encode(texts)[:, BODY]
    assert np.array_equal(bodies[1], bodies[3])
    keys = [set(map(bytes, body.reshape(-1, 16))) for body in bodies]
    assert not keys[0] & keys[2] and not keys[0] & keys[1]


# -- messages -----------------------------------------------------------------------------------


def test_broken_messages_are_refused() -> None:
    matcher = TagMatch(QUOTES, topic="issue")
    publisher, subscriber, broker = roles(matcher)
    events, interests = publisher.encode(quotes(2, 1)), subscriber.encode(["TRUE", "price < 9"])
    events[1, KEY_HEADER_BYTES + 16 : KEY_HEADER_BYTES + 24] = 255
    interests[0, KEY_HEADER_BYTES : KEY_HEADER_BYTES + 8] = 255
    sealed(publisher, events)
    sealed(subscriber, interests)
    assert broker.examine_events(events).tolist() == [Cause.NONE, Cause.VALUE]
    assert broker.examine_interests(interests).tolist() == [Cause.VALUE, Cause.NONE]
    with pytest.raises(DecodeError, match="row 1: the message holds a value"):
        broker.match_all(events, interests[1:])


def test_parameters_and_predicates_are_checked() -> None:
    for topic in ("cost", ["issue", "issue"], 5, None, [5], [["issue"]]):
        with pytest.raises(ParameterError, match=r"topic must name attributes of .*; got "):
            TagMatch(QUOTES, topic=topic)  # type: ignore[arg-type]
    many = Schema({f"a{i}": UInt(8) for i in range(16)})
    with pytest.raises(ParameterError, match="at most 16384 tags"):
        TagMatch(many, topic=[f"a{i}" for i in range(12)])
    subscriber = roles(TagMatch(QUOTES, topic="issue"))[1]
    with pytest.raises(UnsupportedPredicateError, match="takes = or no condition") as caught:
        subscriber.encode(["TRUE", "issue > 'GOOG'"])
    assert caught.value.row == 1


def test_what_is_proposed_names_equalities_as_topics() -> None:
    predicate = QUOTES.parse("issue = 'IBM' AND price < 5")
    assert [matcher.topic for matcher in TagMatch.propose(QUOTES, predicate)] == [(), ("issue",)]
    assert [matcher.topic for matcher in TagMatch.propose(QUOTES, QUOTES.parse("price < 5"))] == [
        ()
    ]
    assert not list(TagMatch.propose(QUOTES, QUOTES.parse("price < 5 OR volume > 9")))
