"""Access control with one-time matchers: the authority has a subscription for each publisher."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ccbps import SharedSeed
from ccbps.access import Authority, Grant, Guard, Policy, present_token
from ccbps.access.policy import ACTIONS
from ccbps.broker import (
    Enforcement,
    MatchingBroker,
    Publication,
    Subscription,
    enactment,
    permitted,
)
from ccbps.broker.enforcement import When
from ccbps.matching import BroadcastMatch, FormulaMatch
from ccbps.predicates import Predicate
from tests.support.access_world import AUTHORITY, SCHEMA, user_key
from tests.support.broker_world import refused

PUBLISHERS = ("feed", "lab")
ASKED = {"ann": "x < 6", "bob": "x > 0"}
ROUNDS = range(8)
POLICY = Policy(
    SCHEMA,
    version=1,
    roles={"feed": ["feed"], "lab": ["lab"], "doctor": ["ann"], "nurse": ["bob"]},
    grants=[
        Grant("feed", ("publish",)),
        Grant("lab", ("publish",), "x < 5"),
        Grant("doctor", ("subscribe", "receive"), "x > 1"),
        Grant("doctor", ("receive",), "x = 0"),
        Grant("nurse", ("subscribe",), "x < 6"),
        Grant("nurse", ("receive",), "x > 3"),
    ],
)


class World:
    """One broker, two publishers with a seed each, and two subscribers.

    Each publisher shares its seed with whoever encodes subscriptions to its events.
    """

    def __init__(self, kind: Any, when: When) -> None:
        self.matcher, self.when = kind.box(SCHEMA), when
        self.is_common = kind is BroadcastMatch
        self.authority = Authority(AUTHORITY, POLICY)
        seeds = {name: SharedSeed.generate() for name in PUBLISHERS}
        self.subscribers = {name: self.matcher.subscriber(one) for name, one in seeds.items()}
        self.publishers = {name: self.matcher.publisher(one) for name, one in seeds.items()}
        # Subscriptions of the broker, by publisher, which need events of their own.
        self.labels: dict[str, list[str]] = {name: [] for name in PUBLISHERS}
        guard = Guard(self.authority.identity)
        self.broker = MatchingBroker(self.matcher.broker(), access=Enforcement(guard, when))
        self.broker.enact(enactment(self.authority, when, subscriptions=self.filters))
        for user in (*PUBLISHERS, *ASKED):
            token = self.authority.issue(user, user_key(user).identity)
            self.broker.present(user, present_token(token, user_key(user), guard.session, user, 0))
        for user, text in ASKED.items():
            self.subscribe(user, text)

    def encode(self, client: str, name: str, publisher: str, predicate: Predicate) -> Subscription:
        label = f"{client}/{name}"
        self.labels[publisher].append(label)
        pairs = [label] * len(ROUNDS)
        rows = self.subscribers[publisher].encode(predicate, rounds=ROUNDS, pairs=pairs)
        return Subscription(name, rows, None, publisher, 0)

    def filters(self, name: str, predicate: Predicate) -> list[Subscription]:
        return [self.encode("authority", f"{name}.{one}", one, predicate) for one in PUBLISHERS]

    def subscribe(self, user: str, text: str) -> None:
        roles = POLICY.roles_of(user)
        for publisher in PUBLISHERS:
            if self.when == "after":
                one = self.encode(user, publisher, publisher, SCHEMA.parse(text))
                self.broker.subscribe(user, one)
                continue
            for place, part in enumerate(POLICY.narrow_parts(roles, text)):
                one = self.encode(user, f"{publisher}{place}", publisher, part)
                permit = permitted(self.authority, user, one, roles, policy=POLICY)
                self.broker.subscribe(user, permit)

    def publish(self, publisher: str, number: int, x: int) -> None:
        feed, event, labels = self.publishers[publisher], {"x": [x]}, self.labels[publisher]
        common, own = None, dict[str, bytes]()
        if self.is_common:
            common = feed.encode(event, rounds=[number])[0].tobytes()
        else:
            events = {"x": [x] * len(labels)}
            rows = feed.encode(events, rounds=[number] * len(labels), pairs=labels)
            own = {label: row.tobytes() for label, row in zip(labels, rows, strict=True)}
        sent = Publication(number, common, b"%d" % x, round=number, events=own)
        self.broker.publish(publisher, sent)


@pytest.mark.parametrize("kind", [BroadcastMatch, FormulaMatch])
def test_before_equals_after_equals_plaintext_in_rounds(kind: Any) -> None:
    found = []
    for when in ("before", "after"):
        world = World(kind, when)
        expected: dict[str, list[tuple[str, int]]] = {user: [] for user in ASKED}
        for (number, x), publisher in itertools.product(enumerate(range(8)), PUBLISHERS):
            event = {"x": [x]}
            if not POLICY.allows(publisher, "publish", event)[0]:
                with refused("publish"):
                    world.publish(publisher, number, x)
                continue
            world.publish(publisher, number, x)
            for user, text in ASKED.items():
                parts = [SCHEMA.parse(text).evaluate(event)]
                parts += [POLICY.allows(user, action, event) for action in ACTIONS[2:]]
                expected[user] += [(publisher, x)] * all(part[0] for part in parts)
        received = {
            user: [(one.publisher, int(one.payload)) for one in world.broker.take(user)]
            for user in ASKED
        }
        assert received == expected
        assert all(received.values())
        found.append(received)
    assert found[0] == found[1]
