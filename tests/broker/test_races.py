"""The running broker: what happens while a publication is being matched, in every order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ccbps.broker import Payloads
from ccbps.broker.books import RoundBook
from ccbps.errors import RefusedError
from ccbps.matching.broken import PrefixMatch
from tests.support.broker_world import PREDICATES, RoundWorld, World, in_match, received
from tests.support.meanwhile import Meanwhile


@pytest.mark.parametrize("keep", [0, 5])
def test_subscriptions_that_change_during_a_match_miss_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, keep: int
) -> None:
    broker = world.broker_of_alice(keep=keep)
    broker.subscribe("bob", world.wants("a", "price < 5"))
    meanwhile = in_match(broker, monkeypatch)
    changes: list[tuple[Callable[[], object], dict[str, int]]] = [
        # In its own place: not lost, and once.
        (lambda: broker.subscribe("alice", world.wants("a", "price < 8")), {"alice": 1, "bob": 1}),
        (lambda: broker.subscribe("carol", world.wants("a", "price < 8")), {"carol": 1}),
        (lambda: broker.subscribe("dave", world.wants("a", "price > 20")), {"dave": 0}),
        (lambda: broker.unsubscribe("bob", "a"), {"alice": 1, "bob": 0, "carol": 1}),
    ]
    for number, (change, wanted) in enumerate(changes):
        meanwhile.todo = [change]
        broker.publish("feed", world.event(number, 3))
        for numbers, times in zip(received(broker, *wanted), wanted.values(), strict=True):
            assert numbers.count(number) == times, (number, wanted)
    for numbers in received(broker, "alice", "bob", "carol"):
        assert len(numbers) == len({*numbers})


def test_a_publication_that_comes_twice_at_once_is_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = world.broker_of_alice()
    event, receipts = world.event(0, 3), []
    meanwhile = in_match(broker, monkeypatch)
    meanwhile.todo = [lambda: receipts.append(broker.publish("feed", event))]
    receipts.append(broker.publish("feed", event))
    assert [one.again for one in receipts] == [False, True]
    assert len(broker.take("alice")) == 1


@pytest.mark.parametrize(("masked", "events"), [(False, 150), (True, 40)])
def test_changes_of_subscriptions_and_publications_go_on_together(
    masked: bool, events: int
) -> None:
    """A subscription that is always there misses nothing, and nothing is delivered twice."""
    world = World(masked=masked)
    broker = world.broker()
    broker.subscribe("alice", world.wants("always", "price < 31"))
    stop, failures = threading.Event(), []

    def churn(client: str) -> None:
        try:
            while not stop.is_set():
                for predicate in PREDICATES:
                    broker.subscribe(client, world.wants("a", predicate, "news"))
                    broker.subscribe(client, world.wants("b", predicate))
                    broker.unsubscribe(client, "a")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=churn, args=(f"churn {n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for number in range(events):
        broker.publish("feed", world.event(number, number % 31, "news"))
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert received(broker, "alice") == [[*range(events)]]


# -- what comes in during a match ------------------------------------------------------------------


def test_what_comes_in_during_a_match_is_matched_if_it_concerns_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = world.broker()
    broker.subscribe("alice", world.wants("a", "price < 9", "quotes"))
    meanwhile = in_match(broker, monkeypatch)
    meanwhile.todo = [
        lambda: broker.subscribe("bob", world.wants("a", "price < 8", "news")),
        lambda: broker.subscribe("carol", world.wants("a", "price < 7", "quotes")),
        lambda: broker.subscribe("dave", world.wants("a", "price < 6")),
        lambda: broker.subscribe("erin", world.wants("a", "price > 9")),
    ]
    broker.publish("feed", world.event(0, 3, "quotes"))
    names = ("alice", "bob", "carol", "dave", "erin")
    assert received(broker, *names) == [[0], [], [0], [0], []]
    # Nothing of it is held longer than needed.
    assert broker._subscriptions._added == []
    assert broker._subscriptions._under_way == []


def test_two_matches_at_once_both_meet_what_came_in(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later one ends first; the earlier one must still know what it has not seen."""
    broker = world.broker_of_alice()
    meanwhile = in_match(broker, monkeypatch)
    meanwhile.todo = [
        lambda: broker.subscribe("carol", world.wants("a", "price < 8")),
        lambda: broker.publish("feed", world.event(1, 3)),
        lambda: broker.subscribe("dave", world.wants("a", "price < 7")),
    ]
    broker.publish("feed", world.event(0, 3))
    assert [sorted(numbers) for numbers in received(broker, "carol", "dave")] == [[0, 1]] * 2


def test_who_comes_and_goes_during_a_match_leaves_nothing_to_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = world.broker_of_alice()
    meanwhile = in_match(broker, monkeypatch)
    meanwhile.todo = [
        lambda: broker.subscribe("bob", world.wants("a", "price < 8")),
        lambda: broker.unsubscribe("bob", "a"),
        lambda: broker.subscribe("carol", world.wants("a", "price > 8")),  # has its number
    ]
    broker.publish("feed", world.event(0, 3))
    assert received(broker, "alice", "bob", "carol") == [[0], [], []]


def test_numbers_of_those_who_left_answer_for_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    world = RoundWorld()
    broker = world.broker(keep=5)
    for client, predicate in (("alice", "price < 9"), ("carol", "price > 9")):
        broker.subscribe(client, world.wants(f"{client}/a", predicate))
    meanwhile = Meanwhile(monkeypatch, RoundBook, "find")
    meanwhile.todo = [
        lambda: broker.unsubscribe("alice", "a"),
        lambda: broker.subscribe("bob", world.wants("bob/a", "price > 9")),  # which gets its number
    ]
    broker.publish("feed", world.event(0, 0, 3))
    assert broker.take("bob") == broker.take("alice") == []


def test_rounds_concern_their_publisher_only_also_what_is_new_or_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = RoundWorld()
    broker = world.broker(keep=5)
    broker.subscribe("alice", world.wants("alice/a", "price < 9"))
    meanwhile = Meanwhile(monkeypatch, RoundBook, "find")
    meanwhile.todo = [
        lambda: broker.subscribe("bob", world.wants("bob/a", "price < 9", "other")),
        lambda: broker.subscribe("carol", world.wants("carol/a", "price < 9")),
    ]
    broker.publish("feed", world.event(0, 0, 3))
    broker.subscribe("dave", world.wants("dave/a", "price < 9", "other"))
    broker.subscribe("erin", world.wants("erin/a", "price < 9"))
    names = ("alice", "bob", "carol", "dave", "erin")
    assert received(broker, *names) == [[0], [], [0], [], [0]]


def test_covered_interests_are_not_lost_when_the_covering_one_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(PrefixMatch)
    broker = world.broker()
    broker.subscribe("alice", world.wants("wide", "price < 24"))
    broker.subscribe("bob", world.wants("in", "price < 16"))
    leaving = threading.Thread(target=broker.unsubscribe, args=("alice", "wide"))

    def leave() -> None:
        leaving.start()
        leaving.join(0.3)  # it waits until the match is over

    meanwhile = in_match(broker, monkeypatch)
    meanwhile.todo = [leave]
    broker.publish("feed", world.event(0, 3))
    leaving.join()
    assert len(broker.take("bob")) == 1
    broker.unsubscribe("bob", "in")
    broker.publish("feed", world.event(1, 3))
    assert len(broker.take("bob")) == 1


# -- who is revoked meanwhile ----------------------------------------------------------------------


def test_publishers_that_are_revoked_during_a_match_publish_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = world.broker_of_alice(keep=5)
    meanwhile = in_match(broker, monkeypatch)
    meanwhile.todo = [lambda: broker.revoke("feed")]
    with pytest.raises(RefusedError, match="feed was revoked"):
        broker.publish("feed", world.event(0, 3))
    assert broker.take("alice") == []
    broker.subscribe("bob", world.wants("a", "price < 9"))
    assert broker.take("bob") == []


@pytest.mark.parametrize("method", ["examine_interests", "examine_all"])
def test_subscribers_that_are_revoked_while_they_subscribe_get_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """While their interests are checked, and while they are matched with what is kept."""
    broker = world.broker(keep=5)
    broker.publish("feed", world.event(0, 3))
    meanwhile = Meanwhile(monkeypatch, type(broker._broker), method)
    meanwhile.todo = [lambda: broker.revoke("alice")]
    if method == "examine_interests":
        with pytest.raises(RefusedError, match="alice was revoked"):
            broker.subscribe("alice", world.wants("a", "price < 9"))
    else:
        broker.subscribe("alice", world.wants("a", "price < 9"))
    broker.publish("feed", world.event(1, 3))
    broker.admit("alice")
    assert broker.take("alice") == []
    assert broker.subscriptions("alice") == []


@pytest.mark.parametrize("revoked", [True, False])
def test_who_left_gets_nothing_though_the_books_still_have_it(
    world: World, monkeypatch: pytest.MonkeyPatch, revoked: bool
) -> None:
    broker = world.broker_of_alice()
    parts = broker._subscriptions
    meanwhile = Meanwhile(monkeypatch, parts, "remove" if revoked else "_take_out", before=True)
    meanwhile.todo = [lambda: broker.publish("feed", world.event(0, 3))]
    if revoked:
        broker.revoke("alice")
        broker.admit("alice")
    else:
        broker.unsubscribe("alice", "a")
    assert meanwhile.todo == broker.take("alice") == []


@pytest.mark.parametrize("stored", [False, True])
def test_a_client_that_comes_back_gets_nothing_from_before(
    world: World, path: Path, stored: bool
) -> None:
    options = {"path": path if stored else None}
    broker = world.broker_of_alice(**options)
    event = world.bare(0, 3)
    receipt = broker.publish("feed", event)
    assert receipt.clients == ("alice",)
    broker.revoke("alice")
    assert broker.publish("feed", event).clients == ()
    broker.admit("alice")
    if stored:
        broker.close()
        broker = world.broker(**options)
    broker.deliver("feed", Payloads(0, dict.fromkeys(receipt.clients, b"sealed before")))
    assert broker.take("alice") == []
