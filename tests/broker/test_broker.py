"""The running broker: messages, pre-filter, covering, rounds, and payloads that come later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ccbps import Category, Schema, SharedSeed
from ccbps.broker import Delivery, MatchingBroker, Payloads, Publication, Quota, Subscription
from ccbps.broker.last_rounds import LastRounds
from ccbps.delivery import GroupOpener, GroupSealer, SimpleCache, pack_groups
from ccbps.errors import (
    DecodeError,
    FilterFullError,
    ParameterError,
    ReplayError,
)
from ccbps.filters import CountingBloomFilter, CuckooFilter
from ccbps.matching import FormulaMatch, ObliviousTopicMatch
from ccbps.matching.broken import PrefixMatch
from tests.support.broker_world import (
    SCHEMA,
    RoundWorld,
    World,
    count,
    meant,
    received,
    refused,
    token,
)

# -- messages ------------------------------------------------------------------------------------


@given(data=st.binary(max_size=60), kind=st.integers(14, 19), at=st.integers(0, 10**9))
def test_any_bytes_are_refused_or_are_what_they_say(data: bytes, kind: int, at: int) -> None:
    whole = Publication(1, b"event", b"payload", bytes(16), 3, {"a/b": b"1"}, {"a/b": b"2"})
    wanted = Subscription("a", np.zeros((2, 3), dtype=np.uint8), bytes(16), "feed", 7)
    delivery = Delivery(1, "feed", 2, ("a", "b"), b"payload", None, b"wrap")
    for message in (whole, wanted, delivery):
        sent = message.to_bytes()
        found = type(message).from_bytes(sent)
        assert found.to_bytes() == sent
        bent = bytearray(sent)
        bent[at % len(sent)] ^= 1 + at % 255
        for other in (bytes(bent), sent[: at % len(sent)], bytes([kind, 1]) + data):
            try:
                read = type(message).from_bytes(other)
            except DecodeError:
                continue
            assert read.to_bytes() == other


@pytest.mark.parametrize("name", ["", "a/b", "a+b", "#", "$x", "a\n", "é" * 129, "\ud800"])
def test_names_fit_into_labels_and_topics(world: World, name: str) -> None:
    with pytest.raises(ParameterError, match="name must be 1 to 256 bytes"):
        Subscription(name, np.zeros((1, 1), dtype=np.uint8))
    with pytest.raises(ParameterError, match="client must be 1 to 256 bytes"):
        world.broker().revoke(name)


# -- pre-filter and covering ---------------------------------------------------------------------


def test_hopeless_topics_are_not_matched(world: World) -> None:
    broker = world.broker()
    for n in range(20):
        broker.subscribe(f"client {n}", world.wants("a", "price < 9", "quotes"))
    for number in range(10):
        broker.publish("feed", world.event(number, 3, "news"))
    assert count(broker, "pairs_tested_total") == 0
    assert count(broker, "prefiltered_total") == 10
    found = CuckooFilter.from_bytes(broker.topic_filter())
    assert token("quotes") in found
    assert token("news") not in found
    broker.publish("feed", world.event(10, 3, "quotes"))
    assert count(broker, "deliveries_total") == 20
    # Equal interests are one test.
    assert count(broker, "pairs_tested_total") == 1
    assert count(broker, "pairs_saved_total") == 19


@pytest.mark.parametrize("leave", list(permutations("abcd", 3)))
def test_those_with_equal_interests_leave_in_any_order(
    world: World, leave: tuple[str, ...]
) -> None:
    broker = world.broker()
    for client in "abcd":
        broker.subscribe(client, world.wants("x", "price < 9"))
    for number, client in enumerate(leave):
        broker.unsubscribe(client, "x")
        broker.publish("feed", world.event(number, 3))
    stays = [leave.index(client) if client in leave else 3 for client in "abcd"]
    assert received(broker, *"abcd") == [[*range(times)] for times in stays]


def test_subscriptions_ask_the_filter_of_what_is_kept(world: World) -> None:
    """Algorithm 1: the filter forgets topics when their last publication goes."""
    broker = world.broker(keep=3)
    for number, topic in enumerate(["news", "quotes", "news", "quotes", "quotes", "news"]):
        broker.publish("feed", world.event(number, 3, topic))
    broker.subscribe("alice", world.wants("a", "price < 9", "news"))
    broker.subscribe("alice", world.wants("b", "price < 9", "weather"))
    assert received(broker, "alice") == [[5]]
    assert count(broker, "kept_prefiltered_total") == 1
    for number in range(6, 8):
        broker.publish("feed", world.event(number, 3, "quotes"))
    assert count(broker, "kept_prefiltered_total") == 1
    broker.publish("other", world.event(7, 3, "sports"))
    broker.subscribe("bob", world.wants("a", "price < 9", "news"))
    assert count(broker, "kept_prefiltered_total") == 2
    # Numbers are each publisher's own; and what waits already does not come twice.
    broker.publish("feed", world.event(8, 3, "sports"))
    broker.publish("other", world.event(8, 3, "sports"))
    broker.subscribe("bob", world.wants("b", "price < 9", "sports"))
    broker.subscribe("bob", world.wants("c", "price < 9", "sports"))
    waiting = broker.take("bob")
    assert [(delivery.publisher, delivery.number) for delivery in waiting] == [
        ("other", 7),
        ("feed", 8),
        ("other", 8),
    ]
    # Each has the name of the subscription that brought it: c matches the last two as well.
    assert [delivery.names for delivery in waiting] == [("b",)] * 3
    # The same subscription again changes nothing, and brings nothing again.
    wanted = world.wants("d", "price < 9", "sports")
    broker.acknowledge("bob", broker.take("bob")[-1].sequence)
    broker.subscribe("bob", wanted)
    broker.acknowledge("bob", broker.take("bob")[-1].sequence)
    broker.subscribe("bob", wanted)
    assert broker.take("bob") == []
    # An event for all topics is kept for everybody.
    broker.publish("feed", world.event(9, 3))
    broker.subscribe("carol", world.wants("a", "price < 9", "weather"))
    assert received(broker, "carol") == [[9]]
    broker.revoke("feed")
    broker.subscribe("dave", world.wants("a", "price < 9", "weather"))
    assert broker.take("dave") == []
    assert count(broker, "kept_prefiltered_total") == 3


def test_kept_publications_fill_a_queue_and_no_more(world: World) -> None:
    for quota, fit in ((Quota(queue=2), 2), (Quota(queue_bytes=25), 2), (Quota(queue_bytes=5), 1)):
        broker = world.broker(keep=5, quota=quota, when_full="refuse")
        for number in range(4):
            broker.publish("feed", world.event(number, 3))
        broker.subscribe("alice", world.wants("a", "price < 9"))
        found = broker.take("alice")
        assert [one.number for one in found] == [*range(fit)]
        assert [one.sequence for one in found] == [*range(fit)]


def test_subscribers_that_decide_get_everything_of_their_topic(world: World) -> None:
    matcher = ObliviousTopicMatch(Schema(issue=Category(["AAPL", "IBM"])), ["issue"])
    broker = MatchingBroker(matcher)
    nothing = np.empty((0, 0), dtype=np.uint8)
    for client, topic in (("alice", "quotes"), ("bob", None), ("carol", "news")):
        broker.subscribe(client, Subscription("a", nothing, token(topic)))
    broker.publish("feed", Publication(0, b"event", b"payload", token("quotes")))
    assert received(broker, "alice", "bob", "carol") == [[0], [0], []]
    assert broker.take("alice")[0].event == b"event"
    with pytest.raises(DecodeError, match="send the payload along"):
        broker.publish("feed", Publication(1, b"event", None))
    with pytest.raises(DecodeError, match="no event for all"):
        broker.publish("feed", Publication(1, None, b"payload"))
    broker.unsubscribe("bob", "a")
    broker.publish("feed", Publication(1, b"event", b"payload"))
    assert received(broker, "alice", "bob", "carol") == [[0, 1], [0], [1]]


def test_a_wrap_is_that_of_the_first_name(world: World) -> None:
    broker = world.broker()
    for name in "abc":
        broker.subscribe("alice", world.wants(name, "price < 9"))
    one = world.event(0, 3)
    broker.publish("feed", Publication(0, one.event, b"", wraps={"alice/b": b"for b"}))
    (found,) = broker.take("alice")
    assert (found.names, found.wrap) == (("b", "a", "c"), b"for b")


def test_filters_grow_and_lose_no_topic(world: World) -> None:
    broker = world.broker()
    interest = world.alice.encode("price < 9")
    everything = [(f"c{n}", Subscription("a", interest, token(f"t{n}"))) for n in range(1500)]
    broker.subscribe_all(everything[:1000])
    for client, one in everything[1000:]:
        broker.subscribe(client, one)
    found = CuckooFilter.from_bytes(broker.topic_filter())
    assert all(one.token in found for _, one in everything)
    for n in range(1000):
        broker.unsubscribe(f"c{n}", "a")
    assert count(broker, "topics") == 500
    for number, n in enumerate((3, 1400)):
        broker.publish("feed", world.event(number, 3, f"t{n}"))
    assert received(broker, "c3", "c1400") == [[], [1]]


def test_covered_interests_are_tested_when_the_covering_one_matches() -> None:
    world = World(PrefixMatch)
    broker = world.broker()
    for name, predicate in (("wide", "price < 24"), ("in", "price < 16"), ("deep", "price < 8")):
        broker.subscribe("alice", world.wants(name, predicate))
    broker.subscribe("bob", world.wants("as wide", "price < 24"))
    broker.publish("feed", world.event(0, 30))
    counters = "pairs_tested_total", "pairs_saved_total"
    assert [count(broker, name) for name in counters] == [1, 3]
    broker.publish("feed", world.event(1, 3))
    assert [count(broker, name) for name in counters] == [4, 4]
    broker.unsubscribe("alice", "wide")
    broker.unsubscribe("bob", "as wide")
    broker.publish("feed", world.event(2, 12))
    assert [one.names for one in broker.take("alice")] == [("wide", "in", "deep"), ("in",)]


# -- rounds, wraps, and payloads that are sealed later -------------------------------------------


def test_one_time_matchers_run_on_provisioned_rounds() -> None:
    matcher = FormulaMatch.box(SCHEMA)
    master = SharedSeed.generate()
    feed, subscriber = matcher.publisher(master), matcher.subscriber(master)
    broker = MatchingBroker(matcher.broker())
    wanted = {"alice/a": "price < 9", "bob/a": "price > 3", "bob/b": "price = 5"}
    for label, predicate in wanted.items():
        client, name = label.split("/")
        stack = subscriber.encode(predicate, rounds=range(4), pairs=[label] * 4)
        broker.subscribe(client, Subscription(name, stack, token("quotes"), "feed", 0))
    got = Counter[tuple[str, int]]()
    for turn, price in enumerate([2, 5, 20]):
        rows = feed.encode({"price": [price] * 3}, rounds=[turn] * 3, pairs=[*wanted])
        events = {label: row.tobytes() for label, row in zip(wanted, rows, strict=True)}
        wraps = {label: label.encode() for label in wanted}
        sent = Publication(turn, None, b"sealed", token("quotes"), turn, events, wraps)
        broker.publish("feed", sent.to_bytes())
        with pytest.raises(ReplayError, match="rounds grow"):
            broker.publish("feed", Publication(turn + 9, None, b"", None, turn, events))
    for client in ("alice", "bob"):
        for one in broker.take(client):
            assert one.wrap == f"{client}/{one.names[0]}".encode()
            got.update((f"{client}/{name}", one.number) for name in one.names)
    assert {*got} == {
        (label, turn)
        for label, predicate in wanted.items()
        for turn, price in enumerate([2, 5, 20])
        if meant(predicate, price)
    }
    # Another publisher's events are no answer to these interests, and a round that nobody
    # provisioned has none.
    rows = feed.encode({"price": [5]}, rounds=[3], pairs=["bob/b"])
    other = Publication(0, None, b"", None, 3, {"bob/b": rows[0].tobytes()})
    broker.publish("somebody", other)
    broker.publish("feed", Publication(9, None, b"", None, 77, {"bob/b": rows[0].tobytes()}))
    assert count(broker, "pairs_refused_total") == 0
    alien = matcher.publisher(SharedSeed.generate())
    rows = alien.encode({"price": [5]}, rounds=[78], pairs=["bob/b"])
    more = subscriber.encode("price = 5", rounds=[78], pairs=["bob/b"])
    broker.subscribe("bob", Subscription("b", more, None, "feed", 78))
    broker.publish("feed", Publication(10, None, b"", None, 78, {"bob/b": rows[0].tobytes()}))
    assert count(broker, "pairs_refused_total") == 1
    assert len(broker.take("bob")) == 2
    with pytest.raises(DecodeError, match="names its publisher"):
        broker.subscribe("alice", Subscription("x", subscriber.encode("price < 1", rounds=[50])))
    wrong = np.zeros((1, 3), dtype=np.uint8)
    with pytest.raises(DecodeError, match="wrong number of bytes"):
        broker.subscribe("alice", Subscription("x", wrong, None, "feed", 3))


def test_broadcast_matchers_need_one_event_for_all() -> None:
    world = RoundWorld()
    broker = world.broker()
    for client, predicate in (("alice", "price < 9"), ("bob", "price > 3")):
        broker.subscribe(client, world.wants(f"{client}/a", predicate))
    broker.publish("feed", world.event(0, 1, 5, b"both"))
    broker.publish("feed", world.event(1, 2, 20, b"bob"))
    assert [[one.payload for one in broker.take(c)] for c in ("alice", "bob")] == [
        [b"both"],
        [b"both", b"bob"],
    ]


def test_payloads_are_sealed_for_those_who_match(world: World) -> None:
    """The publisher learns who matches, and seals with as few encryptions as a strategy needs."""
    broker = world.broker()
    numbers = {"alice": 0, "bob": 1, "carol": 2}
    sealer = GroupSealer(SimpleCache(3, capacity=9))
    openers = {name: GroupOpener(sealer.join(n), capacity=9) for name, n in numbers.items()}
    for client, predicate in zip(numbers, ["price < 9", "price < 20", "price > 9"], strict=True):
        broker.subscribe(client, world.wants("a", predicate))
    for number, price in enumerate([3, 12, 3]):
        event = world.bare(number, price)
        receipt = broker.publish("feed", event)
        assert receipt.clients == (("alice", "bob"), ("bob", "carol"), ("alice", "bob"))[number]
        assert broker.publish("feed", event).again
        group = pack_groups(np.isin(range(3), [numbers[one] for one in receipt.clients]))
        sealed = sealer.seal(b"event %d" % number, number, group)
        messages = {one: sealed.for_subscriber(numbers[one]) for one in receipt.clients}
        with pytest.raises(ParameterError, match="does not match"):
            broker.deliver("feed", Payloads(number, {**messages, "mallory": b""}))
        broker.deliver("feed", Payloads(number, messages))
        broker.deliver("feed", Payloads(number, messages))  # again, which does nothing
        with pytest.raises(ParameterError, match="no publication 99"):
            broker.deliver("feed", Payloads(99, messages))
    got = {
        client: [openers[client].open(one.payload) for one in broker.take(client)]
        for client in numbers
    }
    assert got == {
        "alice": [b"event 0", b"event 2"],
        "bob": [b"event 0", b"event 1", b"event 2"],
        "carol": [b"event 1"],
    }


# -- arguments and small parts -------------------------------------------------------------------


def test_publications_that_come_after_another_wait_for_it(world: World, path: Path) -> None:
    first, *later = (
        replace(world.event(number, 5), after=number - 1 if number else None) for number in range(3)
    )
    with closing(MatchingBroker(world.matcher.broker(world.key), path=path)) as broker:
        for publication in later:
            with refused("order", "comes after .* send it first"):
                broker.publish("feed", publication)
        assert not broker.publish("feed", first).again
        assert not broker.publish("feed", later[0]).again
    with closing(MatchingBroker(world.matcher.broker(world.key), path=path)) as broker:
        # The one before it was accepted by a broker that has ended.
        assert not broker.publish("feed", later[1]).again
        # It is the same publication, whichever one it comes after.
        assert broker.publish("feed", replace(later[1], after=None)).again
        with pytest.raises(ReplayError, match="something else"):
            broker.publish("feed", replace(later[1], payload=b"other"))


def test_misuse_is_refused(world: World) -> None:
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: MatchingBroker(world.matcher), "broker must be a Broker"),
        (lambda: world.broker(prefilter="bitmap"), "prefilter must be"),
        (lambda: world.broker(when_full="wait"), "when_full must be"),
        (lambda: world.broker(keep=-1), "keep must be"),
        (lambda: Quota(rate=0.0), "rate must be a number above 0"),
        (lambda: Quota(queue=1.5), "queue must be"),  # type: ignore[arg-type]
        (lambda: Publication(-1, b"", b""), "number must be"),
        (lambda: Publication(1, b"", b"", b"short"), "token must be bytes of length >= 16"),
        (lambda: Publication(1, "text", b""), r"event must be bytes \| null, got str"),  # type: ignore[arg-type]
        (lambda: Publication(1, b"", b"", events={"a": b""}), "the subscription in events must"),
        (lambda: Publication(1, b"", b"", wraps={"/a": b""}), "the client in wraps must"),
        (
            lambda: Publication(1, b"", b"", wraps={"a/b": "text"}),  # type: ignore[dict-item]
            "wraps must be bytes, got str",
        ),
        (lambda: world.broker().take("alice", 0), "most must be"),
        (lambda: world.broker().acknowledge("alice", "1"), "sequence must be"),  # type: ignore[arg-type]
        (lambda: Subscription("a", np.zeros(3, dtype=np.uint8)), "interests must be a uint8"),
        (lambda: world.broker(prefilter=None).topic_filter(), "no filter"),
    ]
    for call, said in wrong:
        with pytest.raises(ParameterError, match=said):
            call()
    broker = world.broker_of_alice()
    with pytest.raises(ParameterError, match="all topics"):
        broker.topic_filter()
    with pytest.raises(ParameterError, match="already"):
        broker.subscribe_all([("alice", world.wants("a", "price < 9"))])
    with pytest.raises(ParameterError, match="already"):
        broker.subscribe_all([("bob", world.wants("a", "price < 9"))] * 2)


def test_metrics_are_openmetrics_text(world: World) -> None:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    broker = world.broker(quota=Quota(message_bytes=5000))
    seen = []
    for number in range(2):
        families = {one.name: one for one in text_string_to_metric_families(broker.metrics())}
        matched, tested = count(broker, "match_seconds_count"), count(broker, "pairs_tested_total")
        refusals = {
            sample.labels["reason"]: sample.value
            for sample in families["ccbps_refused"].samples
            if sample.name == "ccbps_refused_total"
        }
        seen.append((matched, tested, refusals))
        broker.subscribe("alice", world.wants("a", "price < 9"))
        broker.publish("feed", world.event(number, 3))
        with refused("size"):
            broker.publish("feed", bytes(6000))
        with pytest.raises(DecodeError):
            broker.publish("feed", b"")
    assert seen == [(0, 0, {}), (1, 1, {"size": 1, "DecodeError": 1})]


@pytest.mark.parametrize("kind", ["cuckoo", "bloom"])
def test_a_filter_into_which_tokens_do_not_fit_lets_everything_through(
    world: World, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise FilterFullError("full")

    broker = world.broker(prefilter=kind)
    broker.subscribe("alice", world.wants("a", "price < 9", "quotes"))
    for name in ("add", "add_all"):
        monkeypatch.setattr(CuckooFilter, name, full)
        monkeypatch.setattr(CountingBloomFilter, name, full)
    broker.subscribe("bob", world.wants("a", "price < 9", "news"))
    with pytest.raises(FilterFullError):
        broker.topic_filter()
    for number, topic in enumerate(("quotes", "news", "nothing")):
        broker.publish("feed", world.event(number, 3, topic))
    assert received(broker, "alice", "bob") == [[0], [1]]
    monkeypatch.undo()
    broker.unsubscribe("alice", "a")
    broker.unsubscribe("bob", "a")
    broker.subscribe("bob", world.wants("a", "price < 9", "quotes"))
    assert token("quotes") in {"cuckoo": CuckooFilter, "bloom": CountingBloomFilter}[
        kind
    ].from_bytes(broker.topic_filter())


def test_seeds_of_filters_are_not_told(world: World) -> None:
    """Whoever knew the hash could choose topics that fill one bucket."""
    broker = world.broker()
    broker.subscribe("alice", world.wants("a", "price < 9", "quotes"))
    held = broker._subscriptions.topics.filter
    told = {CuckooFilter.from_bytes(broker.topic_filter()).hashing.identity() for _ in range(3)}
    assert len(told) == 3
    assert held is not None
    assert held.hashing.identity() not in told


@pytest.mark.parametrize("path", [None, "broker.db"])
def test_clients_are_told_before_their_rounds_are_used_up(tmp_path: Path, path: str | None) -> None:
    """At a tenth of them, and at their end: for 5 rounds, before the last one and after it."""
    world, told = RoundWorld(), list[tuple[int, str, list[str]]]()
    broker = world.broker(path=None if path is None else tmp_path / path)
    broker.subscribe("alice", world.wants("alice/a", "price < 10"))
    broker.subscribe("bob", world.wants("bob/b", "price < 10", "others"))
    if path is not None:
        broker.close()
        broker = world.broker(path=tmp_path / path)
    number = 0
    broker.on_notice = lambda client: told.append((number, client, broker.notices(client)))
    for number in range(5):
        broker.publish("feed", world.event(number, number, 20))
    assert [(number, client, len(texts)) for number, client, texts in told] == [
        (3, "alice", 1),
        (4, "alice", 1),
    ]
    (before,), (after,) = told[0][2], told[1][2]
    assert before.startswith(
        "subscription a has messages for rounds of feed up to 4 only: the next"
    )
    assert after.endswith(
        "no more rounds of feed: the next round is 5; subscribe again with rounds from 5 on"
    )
    assert broker.notices("alice") == [after]
    assert broker.notices("bob") == broker.notices("nobody") == []
    broker.unsubscribe("alice", "a")
    assert broker.notices("alice") == []


def test_a_broker_knows_who_was_here(tmp_path: Path) -> None:
    world = World()
    broker = world.broker_of_alice(path=tmp_path / "broker.db")
    broker.publish("feed", world.event(0, 20))
    broker.close()
    broker = world.broker(path=tmp_path / "broker.db")
    assert [broker.knows(name) for name in ("alice", "feed", "alcie")] == [True, True, False]
    with pytest.raises(ParameterError, match="client must be"):
        broker.knows("no/name")


def test_ends_of_rounds_take_bounded_memory() -> None:
    """A client that subscribes again and again leaves nothing behind."""
    rounds, row = LastRounds(), np.zeros((10, 8), dtype=np.uint8)
    rounds.add("bob", Subscription("b", row, None, "feed", 0))
    for first in range(20_000):
        rounds.add("alice", Subscription("a", row, None, f"feed {first % 100}", 10 + first))
    assert sum(map(len, rounds._ends.values())) < 1100
    assert rounds.due("feed", 8) == set()
    assert rounds.due("feed", 9) == {"bob"}
    assert rounds.due("feed 99", 10 + 19_999 + 9) == {"alice"}
    rounds.remove("alice", ["a", "c"])
    assert rounds.due("feed 99", 10**9) == set()
    assert rounds.of("alice") == {}
