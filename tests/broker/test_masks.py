"""Masks of contents at the running broker: the same deliveries from fewer tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ccbps import Category, Schema, UInt
from ccbps.broker import MatchingBroker, Publication, Subscription
from ccbps.errors import DecodeError, ParameterError
from ccbps.filters import ContentFilter, FilterKey, MaskLayout
from ccbps.matching import BroadcastMatch, InnerProductMatch, KeywordMatch, TagMatch
from ccbps.matching.broken import PrefixMatch
from tests.support.broker_world import World, count, in_match, received

MASKED = World(TagMatch, masked=True)
SCHEMA = Schema(issue=Category(["AAPL", "IBM", "SAP"]), price=UInt(6), grade=UInt(4))
PARTS = [
    ["issue = 'IBM'", "issue = 'SAP'", "issue >= 'IBM'"],
    ["price < 9", "price BETWEEN 30 AND 33", "price > 50", "price = 7"],
    ["grade >= 12", "grade = 0", "grade BETWEEN 3 AND 12"],
]
boxes = st.tuples(*(st.none() | st.sampled_from(own) for own in PARTS)).map(
    lambda parts: " AND ".join(part for part in parts if part) or "TRUE"
)
rows = st.fixed_dictionaries(
    {
        "issue": st.sampled_from(["AAPL", "IBM", "SAP"]),
        "price": st.sampled_from([7, 8, 9, 31, 33, 34, 51]),
        "grade": st.sampled_from([0, 11, 12, 15]),
    }
)


class Quotes:
    """Parties of a matcher for quotes, with masks."""

    def __init__(self, matcher: Any, **options: Any) -> None:
        self.matcher, self.schema = matcher, matcher.schema
        self.contents = ContentFilter(self.schema, FilterKey(bytes(16)), **options)
        server = matcher.key_server()
        self.feed = matcher.publisher(server.publisher_key())
        self.alice = matcher.subscriber(server.subscriber_key("alice"))
        self.key = server.broker_key()

    def broker(self, **options: Any) -> MatchingBroker:
        options = {"masks": self.contents.layout, **options}
        return MatchingBroker(self.matcher.broker(self.key), **options)

    def wants(self, name: str, text: str) -> Subscription:
        mask = self.contents.interests([text])[0].tobytes()
        return Subscription(name, self.alice.encode(text), mask=mask)

    def event(self, number: int, record: dict[str, Any]) -> Publication:
        mask = self.contents.events([record])[0].tobytes()
        return Publication(number, self.feed.encode([record])[0].tobytes(), b"", mask=mask)


QUOTES = Quotes(TagMatch(SCHEMA))


@given(st.lists(boxes, min_size=1, max_size=8), st.lists(rows, min_size=1, max_size=8))
def test_deliveries_are_those_of_the_predicates(
    texts: list[str], records: list[dict[str, Any]]
) -> None:
    broker = QUOTES.broker()
    for number, text in enumerate(texts):
        broker.subscribe(f"client {number % 3}", QUOTES.wants(f"s{number}", text))
    broker.publish_all("feed", [QUOTES.event(n, record) for n, record in enumerate(records)])
    met = np.stack([SCHEMA.parse(text).evaluate(records) for text in texts], axis=1)
    for client in range(3):
        expected = {
            number: tuple(f"s{n}" for n in range(client, len(texts), 3) if met[number, n])
            for number in range(len(records))
        }
        out = {one.number: tuple(sorted(one.names)) for one in broker.take(f"client {client}")}
        assert out == {number: names for number, names in expected.items() if names}
    pairs = len(records) * len(texts)
    tested, masked, saved = (
        count(broker, f"pairs_{n}_total") for n in ("tested", "masked", "saved")
    )
    assert tested + masked + saved == pairs
    assert tested >= met.any(axis=0).any()


def test_few_pairs_are_tested() -> None:
    broker = QUOTES.broker()
    names = ["AAPL", "IBM", "SAP"]
    texts = [f"issue = '{name}' AND price = {p}" for name in names for p in range(40)]
    broker.subscribe_all([("alice", QUOTES.wants(text.replace(" ", ""), text)) for text in texts])
    for number in range(30):
        record = {"issue": names[number % 3], "price": number, "grade": 3}
        broker.publish("feed", QUOTES.event(number, record))
    assert received(broker, "alice") == [[*range(30)]]
    assert count(broker, "pairs_masked_total") > 0.97 * 30 * 120
    assert 30 <= count(broker, "pairs_tested_total") < 0.03 * 30 * 120


@pytest.mark.slow
def test_a_matcher_with_pairings() -> None:
    schema = Schema(issue=Category(["AAPL", "IBM", "SAP"]), grade=UInt(3))
    quotes = Quotes(InnerProductMatch(schema))
    broker = quotes.broker()
    for name in ("AAPL", "IBM", "SAP"):
        broker.subscribe("alice", quotes.wants(name, f"issue = '{name}' AND grade = 3"))
    broker.publish("feed", quotes.event(0, {"issue": "IBM", "grade": 3}))
    assert [one.names for one in broker.take("alice")] == [("IBM",)]
    assert count(broker, "pairs_tested_total") == 1


def test_masks_are_kept_and_matched_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "broker.db"
    broker = MASKED.broker_of_alice(path=path, keep=2)
    broker.publish("feed", MASKED.event(0, 3))
    broker.close()
    broker = MASKED.broker(path=path, keep=2)
    broker.publish("feed", MASKED.event(1, 4))
    broker.publish("feed", MASKED.event(2, 30))
    broker.subscribe("bob", MASKED.wants("kept", "price > 3"))
    assert received(broker, "alice", "bob") == [[0, 1], [1, 2]]
    assert count(broker, "pairs_masked_total") >= 1
    broker.close()
    other = ContentFilter(MASKED.matcher.schema, FilterKey.generate())
    for masks in (None, other.layout):
        with pytest.raises(ParameterError, match="another content filter, or none"):
            MASKED.broker(path=path, keep=2, masks=masks)


def test_masks_that_are_missing_or_malformed_are_refused() -> None:
    broker, contents = MASKED.broker_of_alice(), MASKED.contents
    assert contents is not None
    wanted, event = MASKED.wants("b", "price < 9"), MASKED.event(0, 3)
    assert wanted.mask is not None
    assert event.mask is not None
    foreign = ContentFilter(MASKED.matcher.schema, FilterKey.generate())
    for sent, masks in (
        (wanted, foreign.interests(["price < 9"])),
        (event, foreign.events({"price": [3]})),
    ):
        good = sent.mask or b""
        for mask, message in [
            (None, "needs one"),
            (b"", "has a mask of"),
            (good[:-1], "has a mask of"),
            (good + good[-contents.bits // 8 :], "has a mask of"),
            (masks[0].tobytes(), "another schema, key or filter"),
        ]:
            bad = structs.replace(sent, mask=mask)
            calls: list[Callable[[], object]] = [partial(broker.publish, "feed", bad)]
            if isinstance(bad, Subscription):
                calls = [
                    partial(broker.subscribe, "bob", bad),
                    partial(broker.subscribe_all, [("bob", bad)]),
                ]
            for call in calls:
                with pytest.raises(DecodeError, match=message):
                    call()
    assert broker.subscriptions("bob") == []
    broker.publish("feed", event)
    assert received(broker, "alice") == [[0]]
    # Fewer masks than a subscription may have are fine.
    few = ContentFilter(MASKED.matcher.schema, FilterKey(bytes(16)), masks=1)
    broker.subscribe("bob", structs.replace(wanted, mask=few.interests(["price < 9"])[0].tobytes()))
    broker.publish("feed", MASKED.event(1, 4))
    assert received(broker, "bob") == [[1]]


def test_a_broker_without_masks_refuses_them() -> None:
    world = World()
    broker = world.broker_of_alice()
    with pytest.raises(DecodeError, match="compares no masks"):
        broker.subscribe("bob", structs.replace(world.wants("b", "price < 9"), mask=bytes(24)))
    with pytest.raises(DecodeError, match="compares no masks"):
        broker.publish("feed", structs.replace(world.event(0, 3), mask=bytes(24)))


def test_matchers_that_hide_more_take_no_masks() -> None:
    layout = QUOTES.contents.layout
    with pytest.raises(ParameterError, match="show what other matchers hide"):
        MatchingBroker(BroadcastMatch.box(SCHEMA).broker(), masks=layout)
    with pytest.raises(ParameterError, match=r"take ContentFilter\.layout"):
        QUOTES.broker(masks=QUOTES.contents)


@pytest.mark.parametrize("text", ["", "x:128:4", "00" * 8 + ":100:4", "00" * 8 + ":128:0"])
def test_layouts_are_read_strictly(text: str) -> None:
    with pytest.raises(ParameterError, match="name:bits:masks"):
        MaskLayout.from_text(text)


@pytest.mark.parametrize("kind", [TagMatch, PrefixMatch])
def test_a_false_mask_hides_nothing_from_others(kind: type[Any]) -> None:
    """A client sends another's interest, or one that covers it, with a mask that no event has."""
    world = World(kind, masked=True)
    broker = world.broker()
    wanted = world.wants("a", "price < 9")
    assert wanted.mask is not None
    never = wanted.mask[:8] + b"\xff" * (len(wanted.mask) - 8)
    broker.subscribe("eve", structs.replace(wanted, mask=never))
    broker.subscribe("eve", structs.replace(world.wants("wide", "price < 20"), mask=never))
    broker.subscribe("alice", wanted)
    broker.publish("feed", world.event(0, 3))
    assert received(broker, "alice", "eve") == [[0], []]
    broker.unsubscribe("eve", "a")
    broker.publish("feed", world.event(1, 3))
    assert received(broker, "alice") == [[0, 1]]
    # Equal interests with equal masks are tested once.
    before = count(broker, "pairs_tested_total")
    broker.subscribe("bob", structs.replace(wanted, name="same"))
    broker.publish("feed", world.event(2, 3))
    assert received(broker, "bob") == [[2]]
    assert count(broker, "pairs_tested_total") == before + 1


def test_subscriptions_that_come_and_go_during_a_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """The book makes new columns while the old ones are matched: nothing is missed or mixed up."""
    broker = MASKED.broker()
    for number in range(100):
        text = f"price BETWEEN {number // 10} AND {number % 10 + 10}"
        broker.subscribe("alice", MASKED.wants(f"a{number}", text))
    meanwhile = in_match(broker, monkeypatch)

    def change() -> None:
        for number in range(99):
            broker.unsubscribe("alice", f"a{number}")
        for number in range(25):
            text = f"price BETWEEN {20 + number // 5} AND {25 + number % 5}"
            broker.subscribe("bob", MASKED.wants(f"b{number}", text))

    meanwhile.todo = [change]
    broker.publish("feed", MASKED.event(0, 10))
    ((delivery,),) = [broker.take("alice")]
    assert delivery.names == ("a99",)
    assert broker.take("bob") == []
    broker.publish("feed", MASKED.event(1, 25))
    assert received(broker, "alice", "bob") == [[0], [1]]
    assert count(broker, "interests") == 26


def test_a_user_who_was_revoked_matches_nothing() -> None:
    quotes = Quotes(KeywordMatch(SCHEMA))
    server = quotes.matcher.key_server()
    alice = quotes.matcher.subscriber(server.subscriber_key("alice"))
    feed = quotes.matcher.publisher(server.publisher_key("feed"))
    broker = MatchingBroker(
        quotes.matcher.broker(server.broker_key()), masks=quotes.contents.layout
    )
    wanted = structs.replace(
        quotes.wants("a", "issue = 'IBM'"), interests=alice.encode("issue = 'IBM'")
    )
    record = {"issue": "IBM", "price": 3, "grade": 3}
    event = structs.replace(quotes.event(0, record), event=feed.encode([record])[0].tobytes())
    broker.subscribe("alice", wanted)
    broker.publish("feed", event)
    assert received(broker, "alice") == [[0]]
    broker.revoke("nobody", server.revoke("subscriber", "alice"))
    again = feed.encode([record])[0].tobytes()
    broker.publish("feed", structs.replace(event, number=1, event=again))
    assert received(broker, "alice") == [[0]]
