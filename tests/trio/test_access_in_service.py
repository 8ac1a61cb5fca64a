"""Access control at three brokers: the authority is a client that has said hello."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ccbps import Schema, UInt
from ccbps.access import Authority, Grant, Guard, Policy, present_token
from ccbps.broker import (
    Enforcement,
    Hellos,
    MatchingBroker,
    Publication,
    Subscription,
    enactment,
    permitted,
)
from ccbps.broker.enforcement import When
from ccbps.errors import DecodeError
from ccbps.matching import ThreeBrokerMatch
from tests.support.access_world import AUTHORITY, user_key
from tests.support.broker_world import refused
from tests.support.trios import Parts

SCHEMA = Schema(price=UInt(8))
MATCHER = ThreeBrokerMatch.box(SCHEMA)
WANTED = {"ann": "price < 100", "bob": "price > 20"}
PRICES = [5, 30, 60, 99, 150, 210]
POLICY = Policy(
    SCHEMA,
    version=1,
    roles={"feed": ["feed"], "doctor": ["ann"], "nurse": ["bob"]},
    grants=[
        Grant("feed", ("publish",), "price < 200"),
        Grant("doctor", ("subscribe", "receive"), "price > 10"),
        Grant("nurse", ("subscribe",), "price < 160"),
        Grant("nurse", ("receive",), "price > 50"),
    ],
)


@pytest.fixture(scope="module")
def parts() -> Iterator[Parts]:
    """Brokers 1 and 2, and what broker 0 needs."""
    parts = Parts()
    with parts.follower(1, MATCHER), parts.follower(2, MATCHER):
        yield parts


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.slow)])
def test_three_brokers_deliver_what_the_policy_allows(
    parts: Parts, tmp_path: Path, when: When
) -> None:
    authority, path = Authority(AUTHORITY, POLICY), tmp_path / "broker.db"
    tokens = {user: authority.issue(user, user_key(user).identity) for user in ("feed", *WANTED)}
    roles = {name: MATCHER.subscriber(parts.public) for name in ("authority", *WANTED)}
    feed, numbers = MATCHER.publisher(parts.public), iter(range(100))

    def start() -> MatchingBroker:
        guard = Guard(authority.identity)
        return MatchingBroker(leader, path=path, access=Enforcement(guard, when))

    def bring_policy() -> None:
        role = roles["authority"]
        broker.enact(enactment(authority, when, lambda one: role.seal(role.encode(one))))

    def present() -> None:
        for user, token in tokens.items():
            session = broker.access.session
            shown = present_token(token, user_key(user), session, user, next(numbers))
            broker.present(user, shown)

    def subscribe(user: str) -> None:
        policy, narrowed = authority.policy, SCHEMA.parse(WANTED[user])
        if when == "after":
            role = roles[user]
            broker.subscribe(user, Subscription("a", role.seal(role.encode(narrowed))))
            return
        role, own = roles["authority"], policy.roles_of(user)
        bare = Subscription("a", role.seal(role.encode(policy.narrow(own, narrowed))))
        broker.subscribe(user, permitted(authority, user, bare, own, policy=policy))

    def publish(price: int) -> None:
        (event,) = feed.seal(feed.encode({"price": [price]}))
        broker.publish("feed", Publication(next(numbers), event.tobytes(), b"%d" % price))

    def received(user: str) -> list[int]:
        waiting = broker.take(user)
        if waiting:
            broker.acknowledge(user, waiting[-1].sequence)
        return [int(one.payload) for one in waiting]

    def expected(user: str) -> list[int]:
        event, own = {"price": PRICES}, authority.policy.roles_of(user)
        texts = [authority.policy.filter(own, one) for one in ("subscribe", "receive")]
        passed = SCHEMA.parse(WANTED[user]).evaluate(event)
        passed &= authority.policy.allows("feed", "publish", event)
        for one in texts:
            assert one is not None
            passed &= one.evaluate(event)
        return [price for price, allowed in zip(PRICES, passed, strict=True) if allowed]

    with parts.leader(MATCHER, patience=20) as leader:
        broker = start()
        with pytest.raises(DecodeError, match="authority did not say hello"):
            bring_policy()
        broker.greet("feed", Hellos(feed.hellos))
        broker.greet("authority", Hellos(roles["authority"].hellos))
        if when == "after":
            for user in WANTED:
                broker.greet(user, Hellos(roles[user].hellos))
        bring_policy()
        present()
        for user in WANTED:
            subscribe(user)
        for price in PRICES[:3]:
            publish(price)
        broker.close()
    with parts.leader(MATCHER, patience=20) as leader:
        broker = start()
        for price in PRICES[3:-1]:
            publish(price)
        with refused("publish"):
            publish(PRICES[-1])
        assert {user: received(user) for user in WANTED} == {
            user: expected(user) for user in WANTED
        }
        authority.revoke("ann")
        bring_policy()
        assert broker.subscriptions("ann") == []
        publish(60)
        assert received("bob") == [60]
        with refused("revoked"):
            received("ann")
        broker.close()
