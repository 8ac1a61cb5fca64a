"""The running broker against dictionaries: any sequence of what clients do, with restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ccbps.broker import Payloads, Publication, Quota
from ccbps.errors import ReplayError
from ccbps.matching import TagMatch
from ccbps.matching.broken import PrefixMatch
from tests.support import effort
from tests.support.broker_world import PREDICATES, TOPICS, World, count, meant, refused

WORLDS = {
    "tag": World(TagMatch),
    "prefix": World(PrefixMatch),
    "masked": World(TagMatch, masked=True),
}
CLIENTS = ["alice", "bob", "carol"]
REMEMBER = 3


class Running(RuleBasedStateMachine):
    """What a broker is to do, in the plainest way."""

    clients = st.sampled_from(CLIENTS)
    parties = st.sampled_from([*CLIENTS, "feed"])
    names = st.sampled_from(["a", "b", "c"])
    # Many are equal.
    topics = st.sampled_from([None, None, "news", *TOPICS])
    wishes = st.sampled_from([PREDICATES[0]] * 4 + PREDICATES)
    path: Path

    @initialize(
        kind=st.sampled_from([*WORLDS]),
        prefilter=st.sampled_from(["cuckoo", "bloom", None]),
        keep=st.integers(0, 3),
        room=st.sampled_from([1, 3, 100]),
        when_full=st.sampled_from(["drop", "refuse"]),
        stored=st.sampled_from([True, True, True, False]),
    )
    def start(
        self, kind: str, prefilter: Any, keep: int, room: int, when_full: str, stored: bool
    ) -> None:
        self.world, self.stored, self.keep, self.room = WORLDS[kind], stored, keep, room
        self.drops = when_full == "drop"
        if stored:
            for file in self.path.parent.glob("broker*"):
                file.unlink()
        self.options = {
            "prefilter": prefilter,
            "keep": keep,
            "durable": False,
            "path": self.path if stored else None,
            "quota": Quota(queue=room, subscriptions=3),
            "when_full": when_full,
            "remember": REMEMBER,
        }
        self.broker = self.world.broker(**self.options)
        self.wanted: dict[tuple[str, str], tuple[str, str | None]] = {}
        self.queues: dict[str, list[tuple[int, frozenset[str]]]] = {one: [] for one in CLIENTS}
        self.messages: dict[tuple[str, str], bytes] = {}
        self.kept: list[tuple[int, int, str | None]] = []
        self.unsealed: dict[int, set[str]] = {}
        self.sent: dict[int, Publication] = {}
        self.seen: dict[tuple[str, int], int] = {}
        self.revoked: set[str] = set()
        self.number = self.matched = 0

    def matches(self, predicate: str, topic: str | None, price: int, about: str | None) -> bool:
        return meant(predicate, price) and (None in (topic, about) or topic == about)

    def recipients(self, price: int, about: str | None) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for (client, name), (predicate, topic) in self.wanted.items():
            if self.matches(predicate, topic, price, about):
                found[client] = found.get(client, frozenset()) | {name}
        return found

    def put(self, wanted: dict[str, frozenset[str]], number: int) -> None:
        for client, names in wanted.items():
            if len(self.queues[client]) >= self.room:
                del self.queues[client][0]
            self.queues[client].append((number, names))

    def is_held_back(self, clients: set[str]) -> bool:
        return not self.drops and any(len(self.queues[one]) >= self.room for one in clients)

    # -- what clients do ----------------------------------------------------------------------

    @rule(client=clients, name=names, predicate=wishes, topic=topics)
    def subscribe(self, client: str, name: str, predicate: str, topic: str | None) -> None:
        subscription = self.world.wants(name, predicate, topic)
        if client in self.revoked:
            with refused("revoked", "revoked"):
                self.broker.subscribe(client, subscription)
            return
        message = subscription.to_bytes()
        self.broker.subscribe(client, message)
        if self.messages.get((client, name)) == message:
            return  # nothing has changed
        self.messages[client, name] = message
        self.wanted[client, name] = predicate, topic
        queue = self.queues[client]
        for number, price, about in self.kept:
            there = number in [one for one, _ in queue] or len(queue) >= self.room
            if self.matches(predicate, topic, price, about) and not there:
                queue.append((number, frozenset([name])))

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        client, name = data.draw(st.sampled_from(sorted(self.wanted)))
        self.broker.unsubscribe(client, name)
        del self.wanted[client, name], self.messages[client, name]

    @rule(client=clients)
    def one_too_many(self, client: str) -> None:
        if len([one for one, _ in self.wanted if one == client]) == 3:
            with refused("subscriptions"):
                self.broker.subscribe(client, self.world.wants("d", "price < 9"))

    @rule(price=st.integers(0, 31), topic=topics, again=st.booleans())
    def publish(self, price: int, topic: str | None, again: bool) -> None:
        event, wanted = self.world.event(self.number, price, topic), self.recipients(price, topic)
        if self.is_refused(event):
            return
        if self.is_held_back({*wanted}):
            with refused("queue", "a queue is full"):
                self.broker.publish("feed", event)
            return
        for turn in range(2 if again else 1):
            assert self.broker.publish("feed", event).again == bool(turn)
        self.put(wanted, self.number)
        if self.keep:
            self.kept = [*self.kept, (self.number, price, topic)][-self.keep :]
        self.count(event)

    @rule(price=st.integers(0, 31), topic=topics)
    def publish_without_payload(self, price: int, topic: str | None) -> None:
        event, wanted = self.world.bare(self.number, price, topic), self.recipients(price, topic)
        if self.is_refused(event):
            return
        if wanted and len(self.unsealed) >= self.room:
            with refused("queue", "deliver first"):
                self.broker.publish("feed", event)
            return
        assert {*self.broker.publish("feed", event).clients} == {*wanted}
        if wanted:
            self.unsealed[self.number] = {*wanted}
        self.count(event)

    def is_refused(self, event: Publication) -> bool:
        """A publisher that was revoked, or that would make the broker forget what is unsealed."""
        if "feed" in self.revoked:
            with refused("revoked", "feed was revoked"):
                self.broker.publish("feed", event)
            return True
        oldest = sorted(self.sent)[: REMEMBER - 1]
        if len(self.sent) + 1 == 2 * REMEMBER and {*oldest} & {*self.unsealed}:
            with refused("queue", "deliver first"):
                self.broker.publish("feed", event)
            return True
        return False

    def count(self, event: Publication) -> None:
        self.sent[self.number] = event
        self.number += 1
        self.matched += 1
        if len(self.sent) == 2 * REMEMBER:  # the older half is forgotten
            for number in sorted(self.sent)[: REMEMBER - 1]:
                del self.sent[number]

    @precondition(lambda self: self.unsealed and "feed" not in self.revoked)
    @rule(data=st.data(), last=st.booleans(), again=st.booleans())
    def deliver(self, data: st.DataObject, last: bool, again: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.unsealed)))
        left = self.unsealed[number]
        some = data.draw(st.sets(st.sampled_from(sorted(left)))) if left else set()
        messages = dict.fromkeys(some, b"payload %d" % number)
        if self.is_held_back(some):
            with refused("queue", "a queue is full"):
                self.broker.deliver("feed", Payloads(number, messages, last))
            return
        for _ in range(2 if again else 1):
            self.broker.deliver("feed", Payloads(number, messages, last))
        self.put(dict.fromkeys(some, frozenset[str]()), number)
        left -= some
        if last or not left:
            del self.unsealed[number]

    @precondition(lambda self: "feed" not in self.revoked)
    @rule()
    def publish_what_was_published(self) -> None:
        for number, event in self.sent.items():
            receipt = self.broker.publish("feed", event)
            assert receipt.again
            left = self.unsealed.get(number, set())
            assert left - self.revoked <= {*receipt.clients} <= {*CLIENTS} - self.revoked
            other = Publication(number, event.event, b"something else")
            with pytest.raises(ReplayError, match="something else"):
                self.broker.publish("feed", other)
        if self.sent and min(self.sent):
            with pytest.raises(ReplayError, match="too old to tell"):
                self.broker.publish("feed", self.world.event(min(self.sent) - 1, 3))

    @rule(client=clients, most=st.integers(1, 3))
    def acknowledge(self, client: str, most: int) -> None:
        if client not in self.revoked:
            some = self.broker.take(client, most)
            if some:
                self.broker.acknowledge(client, some[-1].sequence)
                del self.queues[client][: len(some)]

    # -- what an operator does ----------------------------------------------------------------

    @rule(client=parties)
    def revoke(self, client: str) -> None:
        self.broker.revoke(client)
        self.revoked.add(client)
        self.queues[client] = []
        if client == "feed":
            self.kept = []
        for key in [key for key in self.wanted if key[0] == client]:
            del self.wanted[key], self.messages[key]
        for left in self.unsealed.values():
            left.discard(client)

    @rule(client=parties)
    def admit(self, client: str) -> None:
        self.broker.admit(client)
        self.revoked.discard(client)

    @precondition(lambda self: self.stored)
    @rule()
    def restart(self) -> None:
        self.broker.close()
        self.broker = self.world.broker(**self.options)
        self.matched = 0

    # -- what must be true ----------------------------------------------------------------------

    @invariant()
    def queues_hold_what_matched(self) -> None:
        if not hasattr(self, "broker"):
            return
        for client in CLIENTS:
            if client in self.revoked:
                continue
            found = self.broker.take(client, 1000)
            assert [(one.number, frozenset(one.names)) for one in found] == self.queues[client]
            assert all(one.payload == b"payload %d" % one.number for one in found)
            sequences = [one.sequence for one in found]
            assert sequences == sorted({*sequences})
            # A sequence number is never used for two deliveries, whatever happens.
            for one in found:
                assert self.seen.setdefault((client, one.sequence), one.number) == one.number

    @invariant()
    def metrics_count_what_is_there(self) -> None:
        if hasattr(self, "broker"):
            assert count(self.broker, "subscriptions") == len(self.wanted)
            assert count(self.broker, "clients") == len({client for client, _ in self.wanted})
            topics = {topic for _, topic in self.wanted.values()} - {None}
            assert count(self.broker, "topics") == len(topics)
            assert count(self.broker, "kept") == len(self.kept)
            assert count(self.broker, "waiting") == sum(map(len, self.queues.values()))
            assert count(self.broker, "match_seconds_count") == self.matched

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            self.broker.close()


def test_any_sequence_of_what_clients_do(tmp_path: Path) -> None:
    class Here(Running):
        path = tmp_path / "broker.db"

    count = 400 if effort.everything else 25
    run_state_machine_as_test(
        Here, settings=settings(max_examples=count, stateful_step_count=30, deadline=None)
    )
