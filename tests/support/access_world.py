"""A broker with an authority and its clients, for tests of access control."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ccbps import Schema, UInt
from ccbps.access import Authority, Grant, Guard, Policy, Presentation, Rule, present_token
from ccbps.broker import (
    Enactment,
    Enforcement,
    MatchingBroker,
    Publication,
    Subscription,
    enactment,
    permitted,
)
from ccbps.broker.enforcement import When
from ccbps.keys import SigningKey
from ccbps.matching import TagMatch

SCHEMA = Schema(x=UInt(3))
AUTHORITY = SigningKey(bytes(32))


class Clock:
    """Clock that stands still until it is set."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def user_key(user: str) -> SigningKey:
    return SigningKey(user.encode().ljust(32, b"."))


class AccessWorld:
    """One policy, one broker, and clients that present their tokens when they are named first."""

    def __init__(
        self,
        roles: dict[str, list[str]],
        grants: Iterable[Grant],
        rules: Iterable[Rule] = (),
        when: When = "before",
        **options: Any,
    ) -> None:
        self.when, self.clock, self.counter, self.options = when, Clock(), 0, options
        policy = Policy(SCHEMA, version=1, roles=roles, grants=grants, rules=rules)
        self.authority = Authority(AUTHORITY, policy, clock=self.clock)
        self.matcher = TagMatch(SCHEMA)
        self.keys = self.matcher.key_server()
        self.key = self.keys.broker_key()
        self.encode = self.matcher.subscriber(self.keys.subscriber_key("authority")).encode
        self.feed = self.matcher.publisher(self.keys.publisher_key())
        self.tokens: dict[str, bytes] = {}
        self.numbers: dict[str, int] = {}
        self.broker = self.start()
        self.enact()

    def start(self) -> MatchingBroker:
        """Start a broker, which reads its file if it has one."""
        self.guard = Guard(self.authority.identity, clock=self.clock, timer=self.clock)
        return MatchingBroker(
            self.matcher.broker(self.key),
            access=Enforcement(self.guard, self.when),
            **self.options,
        )

    def enactment(self) -> Enactment:
        return enactment(self.authority, self.when, self.encode)

    def enact(self, **changes: Any) -> None:
        """Enact a new version of the policy, or the one in force."""
        if changes:
            self.authority.enact(self.authority.policy.following(**changes))
        self.broker.enact(self.enactment())

    def enter(self, user: str, **settings: Any) -> None:
        """Let a user present a new token."""
        self.tokens[user] = self.authority.issue(user, user_key(user).identity, **settings)
        self.enact()
        self.present(user)

    def shown(self, user: str) -> Presentation:
        """Return a new presentation of a user's token."""
        self.counter += 1
        key, session = user_key(user), self.guard.session
        return present_token(self.tokens[user], key, session, user, self.counter)

    def present(self, user: str) -> None:
        self.broker.present(user, self.shown(user))

    def wants(self, user: str, name: str, text: str) -> list[Subscription]:
        """Return subscriptions as the policy asks for them: narrowed and permitted, or bare."""
        if self.when == "after":
            return [Subscription(name, self.encode(text))]
        policy = self.authority.policy
        roles = policy.roles_of(user)
        parts = policy.narrow_parts(roles, text) or [SCHEMA.parse("FALSE")]
        bare = [
            Subscription(f"{name}{place or ''}", self.encode(part))
            for place, part in enumerate(parts)
        ]
        return [permitted(self.authority, user, one, roles, policy=policy) for one in bare]

    def subscribe(self, user: str, name: str, text: str) -> None:
        for one in self.wants(user, name, text):
            self.broker.subscribe(user, one)

    def event(self, user: str, x: int) -> Publication:
        number = self.numbers[user] = self.numbers.get(user, -1) + 1
        event = self.feed.encode({"x": [x]})[0].tobytes()
        return Publication(number, event, b"%d" % x)

    def publish(self, user: str, x: int) -> None:
        self.broker.publish(user, self.event(user, x))

    def received(self, user: str) -> list[int]:
        """Return the values that wait for a user, and acknowledge them."""
        deliveries = self.broker.take(user, 1000)
        if deliveries:
            self.broker.acknowledge(user, deliveries[-1].sequence)
        return [int(one.payload) for one in deliveries]
