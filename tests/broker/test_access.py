"""Access control at a broker: before and after matching deliver the same, and nothing else."""

from __future__ import annotations

import itertools
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from ccbps.access import Grant, Rule, attenuate_token, present_token, read_token
from ccbps.access.policy import ACTIONS
from ccbps.broker import Enactment, MatchingBroker, Subscription, permitted
from ccbps.broker.enforcement import When
from ccbps.errors import CcbpsError, DecodeError, ParameterError, RefusedError, ReplayError
from tests.support.access_world import AUTHORITY, SCHEMA, AccessWorld, user_key
from tests.support.broker_world import refused
from tests.support.effort import examples

WHENS: tuple[When, When] = ("before", "after")
TEXTS = ["TRUE", "x < 4", "x > 2", "x = 5", "x BETWEEN 1 AND 6", "FALSE"]
ROLES = {"r": ["ann", "cem"], "s": ["bob", "cem"]}


def usual(when: When, **options: object) -> AccessWorld:
    """Return a world in which feed publishes, and doctors receive half of it."""
    grants = [
        Grant("feed", ("publish",), "x < 7"),
        Grant("doctor", ("subscribe", "receive"), "x < 4"),
        Grant("nurse", ("receive", "subscribe"), "x > 2", 2.0, 3.0),
    ]
    roles = {"feed": ["feed"], "doctor": ["ann", "bob"], "nurse": ["cem"]}
    world = AccessWorld(roles, grants, (), when, **options)
    for user in ("feed", "ann", "bob", "cem"):
        world.enter(user)
    return world


@given(
    st.lists(
        st.builds(
            Grant,
            st.sampled_from(["r", "s"]),
            st.lists(st.sampled_from(ACTIONS[1:]), min_size=1, max_size=3, unique=True).map(tuple),
            st.sampled_from(TEXTS),
        ),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.tuples(st.sampled_from(TEXTS[:3]), st.sampled_from(["r", "s"])), max_size=1),
    st.lists(st.sampled_from(TEXTS), min_size=3, max_size=3),
)
@settings(max_examples=examples(25), deadline=None)
def test_before_and_after_matching_deliver_what_the_policy_allows(
    grants: list[Grant], denied: list[tuple[str, str]], asked: list[str]
) -> None:
    rules = [Rule("no", "owner", text, roles=(role,)) for text, role in denied]
    users, found = ["ann", "bob", "cem"], list[dict[str, list[int]]]()
    for when in WHENS:
        world = AccessWorld(ROLES, grants, rules, when)
        for user in users:
            world.enter(user)
        policy = world.authority.policy
        for user, text in zip(users, asked, strict=True):
            rights = [policy.filter(policy.roles_of(user), one) for one in ACTIONS[2:]]
            may = None not in rights
            try:
                world.subscribe(user, "a", text)
            except RefusedError:
                # Before matching both rights are asked for at once, after matching one by one.
                assert not may
        expected: dict[str, list[int]] = {user: [] for user in users}
        for publisher, x in itertools.product(users, range(8)):
            allowed = policy.allows(publisher, "publish", {"x": [x]})[0]
            if policy.filter(policy.roles_of(publisher), "publish") is None or not allowed:
                with refused("publish"):
                    world.publish(publisher, x)
                continue
            world.publish(publisher, x)
            for user, text in zip(users, asked, strict=True):
                parts = [SCHEMA.parse(text).evaluate({"x": [x]})]
                parts += [policy.allows(user, action, {"x": [x]}) for action in ACTIONS[2:]]
                expected[user] += [x] * all(part[0] for part in parts)
        received: dict[str, list[int]] = {}
        for user in users:
            if policy.filter(policy.roles_of(user), "receive") is None:
                with refused("receive"):
                    world.received(user)
                received[user] = []
            else:
                received[user] = world.received(user)
        assert received == expected
        found.append(received)
    assert found[0] == found[1]


@pytest.mark.parametrize("when", WHENS)
def test_nothing_is_done_without_a_token_and_nothing_in_the_authoritys_name(when: When) -> None:
    world = usual(when)
    (wanted,) = world.wants("ann", "a", "TRUE")
    for call in (
        lambda: world.broker.subscribe("eve", wanted),
        lambda: world.broker.publish("eve", world.event("eve", 1)),
        lambda: world.broker.take("eve"),
    ):
        with refused("token"):
            call()
    with refused("owner"):
        world.broker.subscribe("authority", wanted)
    with refused("owner"):
        world.publish("authority", 1)
    with refused("publish"):  # the event does not match the publisher's filter
        world.publish("feed", 7)
    with refused("publish", "lets ann not publish"):
        world.publish("ann", 1)
    with refused("receive"):
        world.received("feed")


def test_before_matching_only_permitted_subscriptions_are_taken() -> None:
    world = usual("before")
    bare = Subscription("a", world.encode("TRUE"))
    with refused("permit", "the authority encodes it"):
        world.broker.subscribe("ann", bare)
    (wanted,) = world.wants("ann", "a", "TRUE")
    with refused("permit", "another subscription"):
        world.broker.subscribe("bob", wanted)
    with refused("permit", "another subscription"):
        world.broker.subscribe("ann", structs.replace(bare, permit=wanted.permit))
    with pytest.raises(DecodeError):
        world.broker.subscribe("ann", structs.replace(wanted, permit=b"no permit"))
    world.broker.subscribe("ann", wanted)
    with refused("permit"):  # a name is part of what is permitted
        world.broker.subscribe("ann", structs.replace(wanted, name="b"))


@pytest.mark.parametrize("when", WHENS)
def test_revocation_and_new_filters_reach_subscriptions_that_exist(when: When) -> None:
    world = usual(when)
    told: list[str] = []
    world.broker.on_notice = told.append
    wanted = {user: world.wants(user, "a", "TRUE")[0] for user in ("ann", "bob", "cem")}
    for user, one in wanted.items():
        world.broker.subscribe(user, one)
    world.publish("feed", 3)
    assert [world.received(user) for user in wanted] == [[3], [3], [3]]
    world.enact(revoked=["ann"])
    assert world.broker.subscriptions("ann") == []
    assert told == ["ann"]
    world.publish("feed", 3)
    with refused("revoked"):
        world.received("ann")
    with refused("revoked"):  # it stays marked, and a second try is an error
        world.broker.subscribe("ann", wanted["ann"])
    assert world.received("bob") == [3]
    # Narrower from here on, for all subscriptions of the role.
    narrower = [Grant("feed", ("publish",)), Grant("doctor", ("subscribe", "receive"), "x < 2")]
    world.enact(grants=[*narrower, world.authority.policy.grants[2]])
    if when == "before":
        assert world.broker.subscriptions("bob") == []
        assert world.broker.notices("bob") == [
            "subscription a ended: policy version 3 has other filters for bob"
        ]
        with refused("permit", "permitted anew"):
            world.broker.subscribe("bob", wanted["bob"])
        world.subscribe("bob", "a", "TRUE")
        assert world.broker.notices("bob") == []
    for x in (1, 3):
        world.publish("feed", x)
    assert world.received("bob") == [1]
    # A role that is taken away ends what it allowed; others are untouched.
    world.enact(roles={"feed": ["feed"], "doctor": [], "nurse": ["cem"]})
    assert [world.broker.subscriptions(user) for user in ("bob", "cem")] == [[], ["a"]]
    with refused("revoked", "has no role"):
        world.broker.subscribe("bob", wanted["bob"])


@pytest.mark.parametrize("when", WHENS)
def test_deliveries_stop_when_the_token_ends_and_go_on_with_the_next(when: When) -> None:
    world = usual(when)
    world.enter("ann", seconds=60)
    world.subscribe("ann", "a", "TRUE")
    world.publish("feed", 1)
    world.clock.now += 61
    world.publish("feed", 2)
    with refused("expired"):
        world.received("ann")
    world.enter("ann")
    world.publish("feed", 3)
    assert world.received("ann") == [1, 3]  # what came while it had no token is not for it
    less = attenuate_token(world.tokens["ann"], AUTHORITY.identity, actions=["subscribe"])
    world.tokens["ann"] = less
    world.present("ann")
    with refused("receive"):
        world.received("ann")


@pytest.mark.parametrize("when", WHENS)
def test_rates_hold_on_both_sides(when: When) -> None:
    world = usual(when)
    world.subscribe("cem", "a", "TRUE")
    for x in (3, 4, 5, 6, 3):
        world.publish("feed", x)
    assert [one.number for one in world.broker.take("cem")] == [0, 1, 2]
    # The same deliveries again are not charged again, and no more come.
    assert [one.number for one in world.broker.take("cem")] == [0, 1, 2]
    world.clock.now += 1
    assert world.received("cem") == [3, 4, 5, 6, 3]
    limited = [Grant("feed", ("publish",), rate=1.0)]
    world.enact(grants=limited)
    world.publish("feed", 1)
    with refused("rate"):
        world.publish("feed", 1)


def test_a_rate_holds_for_whoever_asks_from_the_middle() -> None:
    world = usual("before")
    world.subscribe("cem", "a", "TRUE")
    for _ in range(20):
        world.publish("feed", 3)
    got = [one.number for after in (17, 8, 2, -1) for one in world.broker.take("cem", after=after)]
    assert got == [0, 1, 2]
    world.clock.now += 0.5
    assert [one.number for one in world.broker.take("cem", 1, after=2)] == [3]


@pytest.mark.parametrize("when", WHENS)
def test_a_broker_goes_on_with_its_policy_and_its_tokens(tmp_path: Path, when: When) -> None:
    world = usual(when, path=tmp_path / "broker.db")
    (wanted,) = world.wants("ann", "a", "TRUE")
    world.broker.subscribe("ann", wanted)
    old = world.enactment()
    world.enact(revoked=["bob"])
    world.broker.close()
    with pytest.raises(ParameterError, match="has a policy in force"):
        MatchingBroker(world.matcher.broker(world.key), path=tmp_path / "broker.db")
    world.broker = world.start()
    with pytest.raises(ReplayError):  # no decision is loosened
        world.broker.enact(old)
    with refused("revoked"):
        world.broker.subscribe("bob", wanted)
    world.publish("feed", 3)  # tokens count on, though none was presented again
    assert world.received("ann") == [3]
    stale = present_token(world.tokens["cem"], user_key("cem"), bytes(16), "cem", 10**9)
    with refused("proof"):  # of a session that is over
        world.broker.present("cem", stale)
    world.broker.close()


def test_policies_for_a_broker_are_signed_whole() -> None:
    world = usual("after")
    new, old = world.enactment(), world.authority.policy.version
    (name, messages), *others = new.filters.items()
    for bad in (
        structs.replace(new, filters=dict(others)),
        structs.replace(new, filters={**new.filters, name: others[0][1]}),
        structs.replace(new, notice=world.authority.notice().to_bytes()[:-1] + b"x"),
        structs.replace(new, signature=bytes(64)),
    ):
        with pytest.raises(DecodeError):
            world.broker.enact(bad)
    for text in ("unsigned", ""):
        with pytest.raises(DecodeError):
            world.broker.enact(text.encode())
    # Signed, but of another matcher, without a filter, or under another name.
    one = Subscription.from_bytes(messages[0])
    short = structs.replace(one, interests=one.interests[:, :-1].copy())
    for filters in (
        {**new.filters, name: (short.to_bytes(),)},
        dict(others),
        {**new.filters, name: (structs.replace(one, name="other").to_bytes(),)},
    ):
        bad = structs.replace(new, filters=filters)
        with pytest.raises(DecodeError):
            world.broker.enact(structs.replace(bad, signature=world.authority.sign(bad.signed)))
    assert world.guard.stamp() == old
    assert Enactment.from_bytes(new.to_bytes()) == new
    bare = MatchingBroker(world.matcher.broker(world.key))
    with pytest.raises(ParameterError, match="enforces no policy"):
        bare.enact(new)
    with pytest.raises(ParameterError, match="keep must be 0"):
        usual("after", keep=5)


def test_kept_publications_are_for_the_policy_that_judged_them() -> None:
    world = usual("before", keep=10)
    world.publish("feed", 1)
    world.subscribe("ann", "a", "TRUE")
    assert world.received("ann") == [1]
    world.enact(grants=world.authority.policy.grants)
    world.subscribe("bob", "a", "TRUE")
    assert world.received("bob") == []


@pytest.mark.parametrize("when", WHENS)
def test_policies_that_change_during_publications_let_nothing_through_that_none_allows(
    when: When,
) -> None:
    # Each version lets the feed publish one half, and doctors receive the other half and x = 0.
    world, halves = usual(when), ["x < 4", "x > 3"]

    def grants(version: int) -> list[Grant]:
        other = halves[1 - version % 2]
        return [
            Grant("feed", ("publish",), halves[version % 2]),
            Grant("doctor", ("subscribe", "receive"), other),
            Grant("doctor", ("subscribe", "receive"), "x = 0"),
        ]

    world.enact(grants=grants(0))
    refusals, stop = [0], threading.Event()

    def subscribe() -> None:
        while not stop.is_set():
            for user in ("ann", "bob"):
                try:
                    world.subscribe(user, "a", "TRUE")
                except CcbpsError:
                    refusals[0] += 1

    def change() -> None:
        version = 1
        while not stop.is_set():
            world.enact(grants=grants(version))
            version += 1

    threads = [threading.Thread(target=one) for one in (subscribe, change)]
    for thread in threads:
        thread.start()
    draw, accepted, reasons = random.Random(1), 0, set[str]()
    for _ in range(examples(300)):
        try:
            world.publish("feed", draw.randrange(8))
            accepted += 1
        except RefusedError as error:
            reasons.add(error.reason)
    stop.set()
    for thread in threads:
        thread.join()
    assert accepted
    assert reasons <= {"publish", "version"}
    for user in ("ann", "bob"):
        assert {*world.received(user)} <= {0}


def test_tokens_can_be_revoked_one_by_one() -> None:
    world = usual("before")
    world.subscribe("ann", "a", "TRUE")
    numbers = read_token(world.tokens["ann"], AUTHORITY.identity).numbers
    world.enact(revoked_tokens=numbers)
    world.publish("feed", 1)
    with refused("revoked"):
        world.received("ann")
    world.enter("ann")
    world.publish("feed", 2)
    assert world.received("ann") == [2]


def test_a_permit_needs_rights_and_roles() -> None:
    world = usual("before")
    wanted, policy = Subscription("a", world.encode("TRUE")), world.authority.policy
    with refused("grant"):
        permitted(world.authority, "feed", wanted, ("feed",), policy=policy)
    with refused("roles"):
        permitted(world.authority, "ann", wanted, ("nurse",), policy=policy)
    world.enact(rules=[])
    with refused("version", "narrow it anew"):
        permitted(world.authority, "ann", wanted, ("doctor",), policy=policy)
