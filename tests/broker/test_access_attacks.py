"""Attacks on access control: by clients, thieves of files, brokers that restart, and races."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from ccbps import Category, Schema
from ccbps.access import (
    Authority,
    Grant,
    Guard,
    Policy,
    attenuate_token,
    issue_token,
    present_token,
    read_token,
)
from ccbps.access.rates import Bucket
from ccbps.broker import (
    Enforcement,
    MatchingBroker,
    Payloads,
    Publication,
    Subscription,
    enactment,
    permitted,
)
from ccbps.broker.enforcement import MOST_ENDED, When
from ccbps.broker.subscriptions import Subscriptions
from ccbps.errors import DecodeError, ParameterError, RefusedError, ReplayError
from ccbps.filters import CuckooFilter, FilterKey, TopicTokens
from ccbps.matching import ObliviousTopicMatch
from tests.support.access_world import AUTHORITY, SCHEMA, AccessWorld, Clock, user_key
from tests.support.broker_world import in_match, refused
from tests.support.meanwhile import Meanwhile

WHENS: tuple[When, When] = ("before", "after")
ROLES = {"feed": ["feed"], "doctor": ["ann", "bob"], "nurse": ["cem"]}
GRANTS = [
    Grant("feed", ("publish",), "x < 7"),
    Grant("doctor", ("subscribe", "receive"), "x < 4"),
    Grant("nurse", ("receive", "subscribe"), "x > 2", 2.0, 3.0),
]


def usual(when: When = "before", **options: Any) -> AccessWorld:
    world = AccessWorld(ROLES, GRANTS, (), when, **options)
    for user in ("feed", "ann", "bob", "cem"):
        world.enter(user)
    return world


# -- clients -------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", WHENS)
def test_nobody_takes_the_filters_of_the_policy_away(when: When) -> None:
    world = usual(when)
    (name, *_) = world.broker.subscriptions("authority")
    for call in (
        lambda: world.broker.unsubscribe("authority", name),
        lambda: world.broker.subscribe("authority", Subscription(name, world.encode("TRUE"))),
        lambda: world.broker.subscribe_all(
            [("authority", Subscription("a", world.encode("TRUE")))]
        ),
        lambda: world.broker.present("authority", world.shown("ann")),
    ):
        with refused("owner"):
            call()
    for call in (
        lambda: world.broker.take("authority"),
        lambda: world.broker.subscribe_all([("eve", world.wants("ann", "a", "TRUE")[0])]),
    ):
        with refused("token"):
            call()
    assert name in world.broker.subscriptions("authority")
    world.publish("feed", 1)


def test_the_policy_in_force_that_is_brought_again_changes_nothing() -> None:
    world = usual("before", keep=10)
    same = world.enactment()
    world.broker.enact(same)
    world.publish("feed", 1)
    for _ in range(3):
        world.broker.enact(same.to_bytes(), client="mallory")
    world.subscribe("ann", "a", "TRUE")
    assert world.received("ann") == [1]


def test_whoever_brings_policies_is_charged_for_the_time() -> None:
    clock = Clock()
    world = usual("before", clock=lambda: 0.0, timer=clock)
    old = world.enactment()
    world.enact(grants=GRANTS)

    def verify(*_: object) -> None:
        clock.now += 100
        raise ReplayError("older")

    world.broker.access.read = verify  # type: ignore[method-assign]
    with pytest.raises(ReplayError):
        world.broker.enact(old, client="mallory")
    with refused("cost"):
        world.broker.enact(old, client="mallory")


def test_an_earlier_enactment_of_a_version_does_not_come_back() -> None:
    # With one-time matchers, the later one has the rounds that are left.
    world = usual("before")
    earlier, later = world.enactment(), world.enactment()
    world.broker.enact(later)
    with pytest.raises(ReplayError, match="later policy"):
        world.broker.enact(earlier)
    renumbered = structs.replace(earlier, number=later.number + 1)
    with pytest.raises(DecodeError):
        world.broker.enact(renumbered)


@pytest.mark.parametrize("when", WHENS)
def test_an_authority_that_starts_again_takes_no_rights_away(when: When) -> None:
    roles = {"feed": ["feed"], "low": ["ann"], "high": ["ann"]}
    grants = [
        Grant("feed", ("publish",)),
        Grant("low", ("subscribe", "receive"), "x < 2"),
        Grant("high", ("subscribe", "receive"), "x > 5"),
    ]
    world = AccessWorld(roles, grants, (), when)
    world.enter("feed")
    world.enter("ann", roles=["low"])
    old = world.authority
    if when == "before":
        narrowed = old.policy.narrow(("low",), "TRUE")
        bare = Subscription("a", world.encode(narrowed))
        wanted = permitted(old, "ann", bare, ("low",), policy=old.policy)
    else:
        (wanted,) = world.wants("ann", "a", "TRUE")
    world.broker.subscribe("ann", wanted)
    # It does not know for which roles it issued tokens.
    world.authority = Authority(AUTHORITY, old.policy, clock=lambda: 2000.0)
    world.enact()
    for x in range(8):
        world.publish("feed", x)
    assert world.received("ann") == [0, 1]
    # Nobody makes two policies of one version.
    other = Policy(SCHEMA, version=1, roles=roles, grants=grants[:2])
    world.authority = Authority(AUTHORITY, other, clock=lambda: 3000.0)
    with pytest.raises(ReplayError, match="another notice"):
        world.enact()


def test_a_rate_is_not_refilled_by_other_roles_or_policies() -> None:
    roles = {"feed": ["feed"], "a": ["feed"]}
    grants = [Grant("feed", ("publish",), "TRUE", 2.0, 3.0), Grant("a", ("publish",), "x < 9", 3.0)]
    world = AccessWorld(roles, grants)
    tokens = [
        world.authority.issue("feed", user_key("feed").identity, roles=some)
        for some in (["feed"], ["a"], ["a", "feed"])
    ]
    world.enact()
    accepted = 0
    for turn in range(12):
        world.tokens["feed"] = tokens[turn % 3]
        world.present("feed")
        if turn % 4 == 3:
            world.enact(grants=[structs.replace(grants[0], burst=3.0 + turn), grants[1]])
        for _ in range(4):
            try:
                world.publish("feed", 1)
                accepted += 1
            except RefusedError as error:
                assert error.reason == "rate"  # noqa: PT017
    assert accepted == 3


def test_a_burst_below_one_lets_events_through_all_the_same() -> None:
    world = AccessWorld({"feed": ["feed"]}, [Grant("feed", ("publish",), rate=0.5, burst=0.1)])
    world.enter("feed")
    world.publish("feed", 1)
    with refused("rate"):
        world.publish("feed", 1)
    world.clock.now += 2
    world.publish("feed", 1)


# -- tokens --------------------------------------------------------------------------------------


def renewing(world: AccessWorld, token: bytes) -> bytes:
    session = world.authority.session
    world.counter += 1
    shown = present_token(token, user_key("ann"), session, "ann", world.counter)
    return world.authority.renew(shown)


def test_a_renewed_token_gains_nothing() -> None:
    world = usual()
    key = user_key("ann").identity
    without = world.authority.issue("ann", key, roles=[])
    with refused("revoked", "none of the token's roles"):
        renewing(world, without)
    old = world.authority.issue("ann", key)
    world.enact(roles={**ROLES, "doctor": ["bob"], "nurse": ["ann", "cem"]})
    with refused("revoked", "none of the token's roles"):
        renewing(world, old)
    # Whoever has a token that was attenuated to end does not go on for ever.
    new = world.authority.issue("ann", key)
    brief = attenuate_token(new, AUTHORITY.identity, until=world.clock.now + 10)
    with refused("attenuated"):
        renewing(world, brief)
    fewer = attenuate_token(new, AUTHORITY.identity, actions=["receive"])
    assert read_token(renewing(world, fewer), AUTHORITY.identity).actions == {"receive"}


def test_an_attenuation_means_what_biscuit_says() -> None:
    import biscuit_auth as biscuit

    world = usual()
    token = world.tokens["ann"]
    public = biscuit.PublicKey.from_bytes(AUTHORITY.identity, biscuit.Algorithm.Ed25519)
    for code in (
        'check if action($a), ["receive"].contains($a), action($b), ["publish"].contains($b)',
        'check if action($a), ["receive"].contains($a) or action($a), ["publish"].contains($a)',
        'check all action($a), ["receive"].contains($a)',
        'reject if action($a), ["receive"].contains($a)',
        'user("bob")',
        'role("nurse")',
        "right($a) <- action($a)",
    ):
        block = biscuit.BlockBuilder(code)
        bent = bytes(biscuit.Biscuit.from_bytes(token, public).append(block).to_bytes())
        with pytest.raises(DecodeError):
            read_token(bent, AUTHORITY.identity)


def test_a_token_that_is_newer_than_the_policy_waits_for_it() -> None:
    # A broker that lost its file was brought an older policy, in which bob is not revoked.
    world = usual()
    old = world.enactment()
    world.enact(revoked=["bob"])
    newer = world.authority.issue("ann", user_key("ann").identity)
    world.broker = world.start()
    world.broker.enact(old)
    world.tokens["ann"] = newer
    with refused("policy", "bring it the new one"):
        world.present("ann")
    version = world.authority.policy.version
    guard = Guard(AUTHORITY.identity, oldest=version)
    with pytest.raises(ReplayError, match="the oldest"):
        guard.install(old.notice)
    guard.install(world.enactment().notice)
    world.enact()
    world.present("ann")


def test_a_broker_whose_clock_is_late_takes_new_tokens() -> None:
    world = usual()
    world.clock.now += 30
    token = world.authority.issue("ann", user_key("ann").identity, seconds=60)
    world.clock.now -= 30
    world.tokens["ann"] = token
    world.present("ann")
    world.clock.now += 30 + 61
    with refused("expired"):
        world.broker.take("ann")


def test_filters_are_no_subscriptions_to_all_topics() -> None:
    world, tokens = usual("after"), TopicTokens(FilterKey(bytes(16)))
    (wanted,) = world.wants("ann", "a", "TRUE")
    world.broker.subscribe("ann", structs.replace(wanted, token=tokens.one("news")))
    assert tokens.one("news") in CuckooFilter.from_bytes(world.broker.topic_filter())
    world.broker.subscribe("ann", structs.replace(wanted, name="b"))
    with pytest.raises(ParameterError, match="subscribed to all topics"):
        world.broker.topic_filter()
    world.broker.unsubscribe("ann", "b")
    world.broker.topic_filter()


# -- files ---------------------------------------------------------------------------------------


def test_a_token_in_the_file_is_of_its_client(tmp_path: Path) -> None:
    import sqlite3

    world = usual(path=tmp_path / "broker.db")
    world.broker.close()
    with sqlite3.connect(tmp_path / "broker.db") as file:
        file.execute("UPDATE tokens SET client = 'eve' WHERE client = 'ann'")
    file.close()
    with pytest.raises(DecodeError, match="not that of eve"):
        world.start()


@pytest.mark.parametrize("when", WHENS)
def test_a_client_that_is_shut_out_must_present_and_subscribe_anew(
    tmp_path: Path, when: When
) -> None:
    world = usual(when, path=tmp_path / "broker.db")
    world.subscribe("ann", "a", "TRUE")
    old = world.wants("ann", "a", "TRUE")
    world.broker.revoke("ann")
    world.broker.admit("ann")
    access = world.broker.access
    for _ in range(2):
        with refused("token"):
            world.broker.subscribe("ann", old[0])
        with refused("token"):
            world.broker.take("ann")
        world.broker.close()
        world.broker = world.start()
    assert not any(client == "ann" for client, _ in access._permits)
    world.broker.close()


# -- races ---------------------------------------------------------------------------------------


def in_thread(act: Callable[[], object]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("when", WHENS)
def test_a_policy_counts_with_its_filters_only(when: When, monkeypatch: pytest.MonkeyPatch) -> None:
    world, accepted = usual(when), [0]
    world.subscribe("ann", "a", "TRUE")

    def publish() -> None:
        world.publish("feed", 1)
        accepted[0] += 1

    # While the filters of the new policy are registered, and while old ones are taken away.
    added = Meanwhile(monkeypatch, Subscriptions, "add", before=True)
    gone = Meanwhile(monkeypatch, Subscriptions, "remove", before=True)
    added.todo, gone.todo = [lambda: in_thread(publish)], [lambda: in_thread(publish)]
    grants = [Grant("feed", ("publish",), "x < 6"), Grant("doctor", ("subscribe", "receive"))]
    world.enact(grants=[*grants, Grant("doctor", ("receive",), "x < 3")])
    assert accepted == [2]
    expected = [1] if when == "before" else [1, 1]
    assert world.received("ann") == expected


@pytest.mark.parametrize("when", WHENS)
def test_two_policies_during_a_publication_have_it_published_again(
    when: When, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = usual(when)
    event = world.event("feed", 6)

    def change() -> None:
        for text in ("x < 6", "x < 5"):
            world.enact(grants=[Grant("feed", ("publish",), text), *GRANTS[1:]])

    in_match(world.broker, monkeypatch).todo = [change]
    with refused("version", "publish it again"):
        world.broker.publish("feed", event)
    with refused("publish"):
        world.broker.publish("feed", event)


def test_what_an_older_policy_judged_is_not_kept_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = usual("before", keep=10)
    narrower = [Grant("feed", ("publish",), "x < 1"), *GRANTS[1:]]
    in_match(world.broker, monkeypatch).todo = [lambda: world.enact(grants=narrower)]
    world.publish("feed", 3)
    world.subscribe("ann", "a", "TRUE")
    assert world.received("ann") == []


def test_a_client_that_is_revoked_during_a_delivery_gets_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = usual("before")
    world.subscribe("ann", "a", "TRUE")
    sealed = structs.replace(world.event("feed", 1), payload=None)
    in_match(world.broker, monkeypatch).todo = [lambda: world.enact(revoked=["ann"])]
    receipt = world.broker.publish("feed", sealed)
    assert receipt.clients in ((), ("ann",))
    with refused("revoked"):
        world.broker.take("ann")


@pytest.mark.parametrize("when", WHENS)
def test_payloads_that_come_later_are_for_those_who_may_receive(when: When) -> None:
    world = usual(when)
    with refused("permit") if when == "before" else nullcontext():
        world.broker.subscribe_all([("ann", Subscription("z", world.encode("TRUE")))])
    every = [(user, one) for user in ("ann", "cem") for one in world.wants(user, "a", "TRUE")]
    world.broker.subscribe_all(every)
    sealed = structs.replace(world.event("feed", 6), payload=None)
    receipt = world.broker.publish("feed", sealed)
    assert receipt.clients == ("cem",)
    with pytest.raises(ParameterError, match="ann does not match"):
        world.broker.deliver("feed", Payloads(receipt.number, {"ann": b"6"}))
    for publisher, reason in (("ann", "publish"), ("eve", "token")):
        with refused(reason):
            world.broker.deliver(publisher, Payloads(receipt.number, {"cem": b"6"}))
    world.broker.deliver("feed", Payloads(receipt.number, {"cem": b"6"}))
    assert [world.received(user) for user in ("ann", "cem")] == [[], [6]]
    # A publisher that was revoked meanwhile delivers nothing.
    receipt = world.broker.publish("feed", structs.replace(world.event("feed", 6), payload=None))
    world.enact(revoked=["feed"])
    with refused("revoked"):
        world.broker.deliver("feed", Payloads(receipt.number, {"cem": b"6"}))


def test_roles_of_a_token_decide_about_subscriptions_that_exist() -> None:
    roles = {"feed": ["feed"], "low": ["ann"], "high": ["ann"]}
    grants = [
        Grant("feed", ("publish",)),
        Grant("low", ("subscribe", "receive"), "x < 2"),
        Grant("high", ("subscribe", "receive"), "x > 5"),
    ]
    for when in WHENS:
        world = AccessWorld(roles, grants, (), when)
        world.enter("feed")
        chosen = ((["low"], [0, 1]), (["high"], [6, 7]), (None, [0, 1, 6, 7]))
        tokens = [
            world.authority.issue("ann", user_key("ann").identity, roles=some) for some, _ in chosen
        ]
        world.enter("ann")
        world.subscribe("ann", "a", "TRUE")
        for token, (some, passes) in zip(tokens, chosen, strict=True):
            world.tokens["ann"] = token
            world.present("ann")
            for x in range(8):
                world.publish("feed", x)
            # Before matching, a subscription that was narrowed by other roles gets nothing.
            assert world.received("ann") == (passes if when == "after" or some is None else [])


# -- memory and time -----------------------------------------------------------------------------


def test_what_is_remembered_of_clients_is_bounded() -> None:
    world = usual("after")
    narrow = [Grant("feed", ("publish",)), Grant("nurse", ("subscribe",))]
    for turn in range(4):
        world.enact(grants=GRANTS)
        for n in range(100):
            world.subscribe("ann", f"{turn}.{n}", "TRUE")
        world.enact(grants=narrow)
        assert world.broker.subscriptions("ann") == []
    notices = world.broker.notices("ann")
    assert len(notices) == MOST_ENDED
    assert "subscription 3.99 ended" in notices[-1]
    world.broker.revoke("ann")
    world.broker.admit("ann")
    assert world.broker.notices("ann") == []


def test_a_clock_that_is_set_back_takes_no_rate_away() -> None:
    clock = Clock()
    bucket = Bucket(2.0, 3.0, clock)
    clock.now -= 1000
    assert bucket.level() == 3.0
    bucket.take(3)
    clock.now += 1
    assert bucket.level() == 2.0


def test_brokers_without_a_policy_have_no_notices_and_charge_for_none() -> None:
    world = AccessWorld({}, [])
    bare = MatchingBroker(
        world.matcher.broker(world.key), timer=iter(range(0, 10**9, 100)).__next__
    )
    for _ in range(50):
        assert bare.notices("ann") == []


@pytest.mark.parametrize("when", WHENS)
def test_where_subscribers_decide_a_policy_has_no_filters(when: When) -> None:
    matcher = ObliviousTopicMatch(Schema(issue=Category(["AAPL", "IBM"])), ["issue"])
    broker = MatchingBroker(matcher, access=Enforcement(Guard(AUTHORITY.identity), when))

    def nothing(name: str, _: object) -> list[Subscription]:
        return [Subscription(name, np.empty((0, 0), dtype=np.uint8))]

    for version, text, works in ((1, "issue = 'IBM'", False), (1, "TRUE", True)):
        grants = [Grant("a", ("subscribe", "receive"), text), Grant("a", ("publish",))]
        policy = Policy(matcher.schema, version=version, roles={"a": ["ann"]}, grants=grants)
        new = enactment(Authority(AUTHORITY, policy), when, subscriptions=nothing)
        if works:
            broker.enact(new)
        else:
            with pytest.raises(ParameterError, match="no filters but TRUE"):
                broker.enact(new)


# -- secrets -------------------------------------------------------------------------------------


def test_nothing_prints_or_pickles_secrets(caplog: pytest.LogCaptureFixture) -> None:
    world = usual()
    secret = AUTHORITY.export_secret()
    shown = world.shown("ann")
    texts = [repr(one) for one in (world.authority, world.guard, world.broker.access)]
    for call in (
        lambda: world.broker.present("ann", shown),
        lambda: world.broker.present("eve", shown),
        lambda: issue_token(AUTHORITY, 'a"b', bytes(32), [], policy=1, starts=0, seconds=9),
        lambda: Authority(AUTHORITY, "policy"),  # type: ignore[arg-type]
    ):
        try:
            call()
        except Exception as error:
            texts.append(repr(error))
    texts.append(caplog.text)
    for text in texts:
        assert secret.hex() not in text
        assert repr(secret)[2:-1] not in text
        assert repr(world.authority._naming)[2:-1] not in text
        assert repr(shown.token)[2:40] not in text
    for one in (world.authority, user_key("ann")):
        with pytest.raises(TypeError):
            pickle.dumps(one)
    assert Policy.from_bytes(world.authority.policy.to_bytes()) == world.authority.policy
    assert SCHEMA.parse("x < 4").text in world.authority.policy.grants[1].filter
    assert isinstance(world.event("feed", 1), Publication)
