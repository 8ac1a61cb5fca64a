"""Policies in an overlay: four actions on content, at one version, and what bogus brokers get."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Schema, UInt
from ccbps.access import (
    Authority,
    Body,
    Grant,
    Guard,
    HopPolicy,
    Policy,
    Rule,
    SealedMessage,
    Stamp,
    attenuate_token,
    present_token,
)
from ccbps.errors import DecodeError, ParameterError, RefusedError, ReplayError
from ccbps.keys import SigningKey
from ccbps.overlay import GuardedMessage, OverlayPolicy, PlainRelation, Publication
from ccbps.overlay.rights import Rights
from tests.support.effort import examples
from tests.support.guarded_world import KEYS, LINE, RELATION, World
from tests.support.refusals import refused

KEY = SigningKey(bytes(32))
USERS = [f"c{n}" for n in range(1, 9)]
ROLES = {"feed": ["c1", "c3"], "doctor": ["c2", "c6", "c8"], "nurse": ["c3", "c7"]}
GRANTS = [
    Grant("feed", ("advertise",), "x < 60"),
    Grant("feed", ("publish",), "x < 50"),
    Grant("doctor", ("subscribe", "receive"), "x < 30"),
    Grant("nurse", ("subscribe", "receive"), "x BETWEEN 10 AND 40"),
    Grant("nurse", ("receive",)),
]
PAIR = {"B1": "clinic", "B2": "clinic"}
EXCHANGE = {"B1": "clinic", "B2": "clinic", "B4": "carrier", "B6": "registry"}


def policy_of(version: int, grants: Any = GRANTS, **changes: Any) -> Policy:
    settings = {"roles": ROLES, **changes}
    return Policy(RELATION.schema, version=version, grants=grants, **settings)


class Policed(World):
    """Brokers with guards, to which all users with a role presented their tokens."""

    def __init__(self, *domains: Any, policy: Policy | None = None, when: Any = "before", **o: Any):
        self.authority = Authority(KEY, policy or policy_of(1), clock=lambda: self.now)
        self.guards: dict[str, Guard] = {}
        self.when, self.now, self.count = when, 1000.0, 0
        super().__init__(*(domains or (EXCHANGE,)), **o)
        self.enact()
        for user in self.users():
            self.enter(user)

    def start(self, name: str, policy: HopPolicy, **options: Any) -> None:
        self.guards[name] = Guard(
            KEY.identity, clock=lambda: self.now, timer=lambda: self.links.time
        )
        super().start(name, policy, guard=self.guards[name], when=self.when, **options)

    def users(self) -> list[str]:
        policy = self.authority.policy
        return [user for user in USERS if policy.roles_of(user) and f"B{user[1:]}" in self.brokers]

    def enter(self, user: str, token: bytes | None = None) -> None:
        self.count += 1
        token = token or self.authority.issue(user, KEYS[user].identity, seconds=1e6)
        guard = self.guards[f"B{user[1:]}"]
        guard.present(user, present_token(token, KEYS[user], guard.session, user, self.count))

    def of(self, broker: str) -> OverlayPolicy:
        return OverlayPolicy.of(self.authority, content=self.map.domain(broker) != "carrier")

    def enact(self, policy: Policy | None = None, *brokers: str) -> list[tuple[str, str, str, int]]:
        if policy is not None:
            self.authority.enact(policy)
        ended = []
        for name in brokers or self.brokers:
            ended += self.brokers[name].enact(self.of(name))
        self.links.run()
        return ended  # type: ignore[return-value]

    def stamped(self, kind: Any, client: str, *content: Any, **fields: Any) -> tuple[Stamp, Body]:
        fields.setdefault("policy", self.guards[f"B{client[1:]}"].stamp())
        return super().stamped(kind, client, *content, **fields)

    def owners(self, kind: Any = "subscription") -> dict[str, set[str]]:
        """Owners of the filters in each broker's routing tables."""
        return {
            name: {
                owner
                for table in broker._ways["vitals"].router.tables[kind].values()
                for owner, _ in table
            }
            for name, broker in self.brokers.items()
        }


def denied(reason: str, call: Any, *arguments: Any, **options: Any) -> str:
    error = refused(RefusedError, "", call, *arguments, **options)
    assert error.reason == reason, error
    return str(error)


# -- four actions --------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_each_of_four_actions_is_allowed_denied_and_given_up(when: Any) -> None:
    world = Policed(when=when)
    # advertise
    assert "lets c1 not advertise" in denied("advertise", world.advertise, "c1", "x < 61")
    denied("advertise", world.advertise, "c2", "x = 1")
    advertised = world.advertise("c1", "x < 60")
    # subscribe
    denied("subscribe", world.subscribe, "c1")
    subscribed = {client: world.subscribe(client) for client in ("c2", "c6")}
    # publish
    assert "version 1 lets c1 not publish this" in denied("publish", world.publish, "c1", 55)
    denied("publish", world.publish, "c2", 5)
    # receive
    assert [world.publish("c1", x) for x in (5, 29, 30)] == [{"c2", "c6"}, {"c2", "c6"}, set()]
    # un-subscribe: only one's own, and at each hop
    world.home("c6").withdraw("subscription", "vitals", "c2", subscribed["c2"])
    assert world.publish("c1", 5) == {"c2", "c6"}
    world.home("c6").withdraw("subscription", "vitals", "c6", subscribed["c6"])
    world.links.run()
    assert world.publish("c1", 5) == {"c2"}
    assert not any("c6" in owners for owners in world.owners().values())
    # un-advertise
    world.home("c2").withdraw("advertisement", "vitals", "c1", advertised)
    assert world.publish("c1", 5) == {"c2"}
    world.home("c1").withdraw("advertisement", "vitals", "c1", advertised)
    world.links.run()
    assert not any(world.owners("advertisement").values())
    denied("order", world.publish, "c1", 5)
    # Only events out of reach of the filters were dropped, and only where they are not narrowed.
    assert world.dropped() == (
        {} if when == "before" else {"B2": {"delivery receive": 1}, "B6": {"delivery receive": 1}}
    )


def test_before_matching_events_that_nobody_may_receive_do_not_travel() -> None:
    for when, messages in (("before", 0), ("after", 3)):
        world = Policed(when=when)
        world.advertise("c1", "x < 60")
        world.subscribe("c6")
        sent = world.links.messages
        assert world.publish("c1", 30) == set()
        assert world.links.messages - sent == messages


TEXTS = ["TRUE", "x < 20", "x > 30", "x = 25", "x BETWEEN 10 AND 45", "FALSE", "x < 9 OR x > 50"]
BOXES = TEXTS[:-1]


@given(
    st.lists(
        st.builds(
            Grant,
            st.sampled_from(["doctor", "nurse"]),
            st.sampled_from([("subscribe", "receive"), ("receive",), ("subscribe",)]),
            st.sampled_from(TEXTS),
        ),
        min_size=1,
        max_size=4,
    ),
    st.lists(
        st.builds(Rule, st.just("no"), st.just("owner"), st.sampled_from(TEXTS[1:])), max_size=1
    ),
    st.lists(st.sampled_from(BOXES), min_size=3, max_size=3),
    st.integers(0, 1 << 30),
)
@settings(max_examples=examples(100), deadline=None)
def test_before_and_after_matching_deliver_what_the_narrowed_subscription_matches(
    grants: list[Grant], rules: list[Rule], asked: list[str], seed: int
) -> None:
    draw, clients = random.Random(seed), ["c2", "c3", "c6"]
    domains = {"B1": "clinic", "B2": "clinic", "B3": "clinic", "B4": "carrier", "B6": "registry"}
    feed = [Grant("feed", ("advertise", "publish"))]
    rules = [msgspec.structs.replace(rule, roles=("doctor", "nurse")) for rule in rules]
    roles = {"feed": ["c1"], "doctor": ["c2", "c6"], "nurse": ["c3", "c6"]}
    policy = policy_of(1, [*feed, *grants], rules=rules, roles=roles)
    events = draw.sample(range(64), 6)
    expected: list[set[str]] = [set() for _ in events]
    for client, text in zip(clients, asked, strict=True):
        if (narrowed := policy.narrow(policy.roles_of(client), text)) is not None:
            for place, matched in enumerate(narrowed.evaluate({"x": events})):
                expected[place] |= {client} if matched else set()
    for when in ("before", "after"):
        world = Policed(domains, policy=policy, when=when)
        world.advertise("c1")
        for client, text in zip(clients, asked, strict=True):
            try:
                world.subscribe(client, text)
            except RefusedError:
                assert policy.filter(policy.roles_of(client), "subscribe") is None
        assert [world.publish("c1", x) for x in events] == expected


def test_a_token_that_was_attenuated_or_has_ended_counts_at_the_edge() -> None:
    world = Policed()
    world.advertise("c1", "x < 60")
    world.subscribe("c2")
    world.subscribe("c6")
    token = world.authority.issue("c2", KEYS["c2"].identity, seconds=10)
    world.enter("c2", attenuate_token(token, KEY.identity, actions=["subscribe"]))
    assert world.publish("c1", 1) == {"c6"}
    world.enter("c2", attenuate_token(token, KEY.identity, actions=["receive"]))
    denied("subscribe", world.subscribe, "c2")
    world.enter("c2", token)
    assert world.publish("c1", 1) == {"c2", "c6"}
    world.now += 11
    assert world.publish("c1", 1) == {"c6"}
    assert world.brokers["B2"].dropped == {"delivery receive": 1, "delivery expired": 1}
    denied("expired", world.subscribe, "c2")
    world.guards["B1"].leave("c1")
    denied("token", world.publish, "c1", 1)


def test_rates_hold_at_the_edges_and_what_is_over_them_waits() -> None:
    grants = [
        Grant("feed", ("advertise",)),
        Grant("feed", ("publish",), rate=4.0, burst=8.0),
        Grant("doctor", ("subscribe", "receive"), rate=0.5, burst=2.0),
    ]
    world = Policed(PAIR, policy=policy_of(1, grants))
    world.advertise("c1")
    world.subscribe("c2")
    content, start = RELATION.event_bytes({"x": 1}), world.links.time
    for _ in range(8):
        world.home("c1").publish(*world.stamped("event", "c1", content))
    denied("rate", world.home("c1").publish, *world.stamped("event", "c1", content))
    seen = []
    for seconds in (2, 4, 6, 8, 14):
        world.links.run(until=start + seconds)
        seen.append(sum(world.got.values()))
    assert seen == [2, 3, 4, 5, 8]
    assert [number for _, number, _ in world.got] == sorted(n for _, n, _ in world.got)
    assert world.dropped() == {}
    # What waits goes with the right to receive it.
    for _ in range(6):
        world.home("c1").publish(*world.stamped("event", "c1", content))
    world.links.run(until=world.links.time + 2)
    world.guards["B2"].leave("c2")
    before = sum(world.got.values())
    world.links.run()
    assert sum(world.got.values()) == before
    assert world.brokers["B2"].dropped["delivery token"] >= 3


# -- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_revocation_reaches_filters_in_all_routing_tables(when: Any) -> None:
    world = Policed(LINE, when=when)
    for client in ("c1", "c3"):
        world.advertise(client, "x < 60")
    for client in ("c2", "c6", "c7", "c8"):
        world.subscribe(client)
    assert world.publish("c1", 20) == {"c2", "c6", "c7", "c8"}
    old, revoked = world.brokers["B8"], ["c1", "c8"]
    ended = world.enact(policy_of(2, revoked=revoked))
    assert {(kind, client) for _, kind, client, _ in ended} == {
        ("advertisement", "c1"), ("subscription", "c8"),
    }  # fmt: skip
    assert not any("c8" in owners for owners in world.owners().values())
    assert not any("c1" in owners for owners in world.owners("advertisement").values())
    assert not any(place[2] in revoked for b in world.brokers.values() for place in b._own)
    assert world.publish("c3", 20) == {"c2", "c6", "c7"}
    denied("revoked", world.subscribe, "c8")
    denied("revoked", world.publish, "c1", 20)
    # Back in the next version, it subscribes anew.
    world.enact(policy_of(3))
    assert old is world.brokers["B8"]
    world.subscribe("c8")
    assert world.publish("c3", 20) == {"c2", "c6", "c7", "c8"}


def test_a_bogus_edge_that_keeps_a_revoked_filter_gets_it_past_no_honest_broker() -> None:
    world = Policed(LINE)
    world.advertise("c1", "x < 60")
    world.subscribe("c8")
    add = world.last("B8", "B7", type(world.last("B8", "B7", object).message))
    honest = [name for name in LINE if name != "B8"]
    world.enact(policy_of(2, revoked=["c8"]), *honest)
    assert {name for name, owners in world.owners().items() if "c8" in owners} == {"B8"}
    world.brokers["B7"].receive("B8", add)
    world.links.run()
    assert world.brokers["B7"].dropped == {"in subscribe": 1}
    sent = len(world.sent)
    assert world.publish("c1", 1) == set()
    assert not any(to == "B8" for _, to, _ in world.sent[sent:])


def test_a_message_waits_for_its_version_and_what_follows_it_waits_too() -> None:
    world = Policed(LINE)
    world.advertise("c1", "x < 60")
    world.subscribe("c7", "x < 45")
    world.enact(policy_of(2), *[name for name in LINE if name not in ("B5", "B6")])
    world.enter("c1")
    assert world.publish("c1", 12) == set()
    assert len(world.brokers["B5"]._behind["B4"]) == 1
    number = world.number
    second = world.advertise("c3", "x < 60")  # an older message could overtake it
    assert len(world.brokers["B5"]._behind["B4"]) == 2
    for name in ("B5", "B6"):
        world.brokers[name].enact(world.of(name))
        world.links.run()
        assert bool(world.got) == (name == "B6")
    assert [*world.got] == [("c7", number, b"payload")]
    assert not any(broker._behind for broker in world.brokers.values())
    assert "c3" in world.owners("advertisement")["B8"]
    world.home("c3").withdraw("advertisement", "vitals", "c3", second)
    assert world.dropped() == {}


def test_a_filter_of_somebody_new_waits_where_its_version_comes_late() -> None:
    world = Policed()
    world.advertise("c1", "x < 60")
    world.enact(policy_of(2, roles={**ROLES, "doctor": ["c4", "c6"]}), "B1", "B2", "B6")
    world.enact(policy_of(3, roles={**ROLES, "doctor": ["c2"]}), "B1", "B6")
    denied("revoked", world.subscribe, "c6")
    world.enact(policy_of(4), "B6")
    world.subscribe("c6")
    assert world.owners() == {"B1": set(), "B2": set(), "B4": set(), "B6": {"c6"}}
    world.enact()
    assert all("c6" in owners for owners in world.owners().values())
    assert world.publish("c1", 1) == {"c6"}
    assert world.dropped() == {}


def test_a_broker_with_the_notice_and_without_the_filters_guesses_nothing() -> None:
    world = Policed()
    world.advertise("c1", "x < 60")
    world.subscribe("c6")
    world.authority.enact(policy_of(2))
    for name in world.brokers:
        bare = OverlayPolicy.of(world.authority, content=False)
        world.brokers[name].enact(bare if name == "B6" else world.of(name))
    assert world.publish("c1", 1) == set()
    world.enact()
    assert {client for client, _, _ in world.got} == {"c6"}


def test_a_version_that_was_skipped_comes_later_and_one_that_is_over_never() -> None:
    world = Policed(PAIR)
    world.advertise("c1", "x < 60")
    world.subscribe("c2")
    world.authority.enact(policy_of(2))
    second = world.of("B2")
    world.brokers["B1"].enact(second)
    world.authority.enact(policy_of(3, [*GRANTS[:2], Grant("doctor", ("subscribe", "receive"))]))
    world.brokers["B2"].enact(world.of("B2"))
    assert [world.publish("c1", x) for x in (5, 35)] == [set(), set()]
    assert [len(waiting) for waiting in world.brokers["B2"]._behind.values()] == [1]
    world.brokers["B2"].enact(second)
    # Judged by version 2, and not by version 3: of 5 and 35, c2 gets 5.
    assert [number for _, number, _ in world.got] == [world.number - 1]
    assert not world.brokers["B2"]._behind
    world.enact()
    old = world.last("B1", "B2", Publication)
    for name in ("B1", "B2"):
        world.brokers[name].forget(3)
    rights = world.brokers["B2"]._rights
    assert rights is not None
    assert [*rights._policies] == [3]
    world.brokers["B2"].receive("B1", old)
    assert world.brokers["B2"].dropped == {"in version": 1}
    assert world.guards["B2"].stamp() == 3
    refused(ReplayError, "none of an earlier", world.brokers["B2"].enact, second)
    refused(ParameterError, "guard", World(PAIR).brokers["B1"].forget, 1)


def test_clients_sign_the_version_in_force_at_their_edge() -> None:
    world = Policed()
    world.advertise("c1", "x < 60")
    world.subscribe("c6")
    content = RELATION.event_bytes({"x": 1})
    for version, text in ((None, "no version"), (0, "version 0"), (2, "version 2")):
        stamped = world.stamped("event", "c1", content, policy=version)
        assert f"signed for {text}: sign it anew" in denied(
            "version", world.home("c1").publish, *stamped
        )
    # No later broker changes it, nor takes it away.
    world.publish("c1", 1)
    true = world.last("B4", "B6")
    world.enact(policy_of(2))
    world.got.clear()
    assert isinstance(true.message, Publication)
    for version in (None, 0, 2):
        sealed = SealedMessage.from_bytes(true.message.content)
        stamp = msgspec.structs.replace(sealed.stamp, policy=version, number=999)
        sealed = msgspec.structs.replace(sealed, stamp=stamp)
        message = Publication("c1", 999, sealed.to_bytes())
        world.brokers["B6"].receive("B4", GuardedMessage("vitals", message))
    assert world.brokers["B6"].dropped == {"in malformed": 3}  # members find out by the seal
    world.brokers["B4"].receive("B2", GuardedMessage("vitals", message))
    assert world.brokers["B4"].dropped == {"in label": 1}  # others by the signature


class Unstamped(Rights):
    """Rights of a broker that judges by the newest version that it has."""

    def version(self, stamp: Stamp) -> int:
        return super().version(msgspec.structs.replace(stamp, kind="advertisement", policy=0))


@pytest.mark.parametrize("is_stamped", [True, False])
@pytest.mark.parametrize("count", [300, pytest.param(6000, marks=pytest.mark.slow)])
def test_racing_deliveries_are_allowed_by_some_version(count: int, is_stamped: bool) -> None:
    """Versions alternate while events travel, each broker hearing of them at another time."""
    draw, versions = random.Random(39), count // 12
    always = [Grant("feed", ("advertise",)), Grant("doctor", ("subscribe",))]
    grants = [
        [*always, Grant("feed", ("publish",)), Grant("doctor", ("receive",), "x < 32")],
        [*always, Grant("feed", ("publish",), "x < 32"), Grant("doctor", ("receive",))],
    ]
    roles = {"feed": ["c1"], "doctor": ["c2", "c4", "c6"]}
    policies = [policy_of(v + 1, grants[v % 2], roles=roles) for v in range(versions)]
    domains = {"B1": "clinic", "B2": "clinic", "B4": "clinic", "B6": "registry"}
    world = Policed(domains, pairs=[("clinic", "registry")], policy=policies[0], verify="border",
                    when="after")  # fmt: skip
    if not is_stamped:
        for broker in world.brokers.values():
            assert broker._rights is not None
            broker._rights.__class__ = Unstamped
    world.links._delay = 0.5, 3.0
    values, made, reasons = dict[int, int](), Counter[bool](), set[str]()
    world.advertise("c1")
    for client in ("c2", "c4", "c6"):
        world.subscribe(client)
    for policy in policies[1:]:
        world.authority.enact(policy)
        for name in world.brokers:
            late = world.brokers[name].enact, world.of(name)
            world.links.after(draw.uniform(0, 5), lambda call=late: call[0](call[1]))
        for _ in range(10):
            world.links.run(until=world.links.time + draw.uniform(0, 1.2))
            x = draw.randrange(64)
            stamped = world.stamped("event", "c1", RELATION.event_bytes({"x": x}))
            try:
                world.home("c1").publish(*stamped)
                values[world.number] = x
            except RefusedError as error:
                reasons.add(error.reason)
        world.links.run(until=world.links.time + 5.1)
    world.links.run()
    for _, number, _ in world.got:
        # No version lets c1 publish more than this and doctors receive it, too.
        made[values[number] < 32] += 1
    assert not any(broker._behind for broker in world.brokers.values())
    assert reasons == {"publish"}
    assert made.total() > count
    assert (made[False] == 0) if is_stamped else (made[False] > count // 100)


# -- bogus brokers -------------------------------------------------------------------------------


@pytest.mark.parametrize("verify", ["every hop", "border"])
def test_a_broker_that_injects_is_stopped_at_the_next_hop_if_every_hop_verifies(
    verify: Any,
) -> None:
    world = Policed(LINE, verify=verify)
    world.advertise("c1", "x < 60")
    for client in ("c3", "c6"):
        world.subscribe(client)
    assert world.publish("c1", 20) == {"c3", "c6"}
    key = world.rings["clinic"].key(world.map.topic("vitals"), 0)
    injected = {
        "c1's, forged": ("c1", KEYS["B1"], 20, "label"),
        "own": ("B1", KEYS["B1"], 20, "label"),
        "a doctor's": ("c2", KEYS["c2"], 20, "publish"),
        "c1's, outside of its grant": ("c1", KEYS["c1"], 55, "publish"),
    }
    for place, (owner, signer, x, reason) in enumerate(injected.values()):
        body = Body.of(RELATION.event_bytes({"x": x}), b"forged")
        stamp = Stamp.sign(signer, "event", owner, 9000 + place, "vitals", body, policy=1)
        content = SealedMessage.seal(stamp, body, 0, key or b"").to_bytes()
        world.got.clear()
        for broker in world.brokers.values():
            broker.dropped.clear()
        message = GuardedMessage("vitals", Publication(owner, 9000 + place, content))
        world.brokers["B2"].receive("B1", message)  # B1 is bogus, of the same domain
        world.links.run()
        if verify == "every hop":
            assert world.dropped() == {"B2": {f"in {reason}": 1}}
            assert not world.got
        else:
            # It reaches the domain's clients and stops at the border or, unread, behind it.
            reached = {client for client, _, _ in world.got}
            assert reached == ({"c3"} if x == 20 else set())
            assert world.brokers["B2"].dropped == {}


def test_a_revoked_publisher_with_a_bogus_edge_is_stopped_by_the_next_broker() -> None:
    world = Policed(LINE, policy=policy_of(1, roles={**ROLES, "feed": ["c1", "c2"]}))
    for client in ("c1", "c2"):
        world.advertise(client, "x < 60")
    world.subscribe("c6")
    world.enact(policy_of(2, roles={**ROLES, "feed": ["c1", "c2"]}, revoked=["c1"]))
    key = world.rings["clinic"].key(world.map.topic("vitals"), 0) or b""
    for version, reason in ((1, None), (2, "in publish"), (1, "in version")):
        if reason == "in version":
            for broker in world.brokers.values():
                broker.forget(2)
        number = 9000 + version + (reason == "in version") * 10
        body = Body.of(RELATION.event_bytes({"x": 1}), b"late")
        stamp = Stamp.sign(KEYS["c1"], "event", "c1", number, "vitals", body, policy=version)
        content = SealedMessage.seal(stamp, body, 0, key).to_bytes()
        world.brokers["B2"].receive(
            "B1", GuardedMessage("vitals", Publication("c1", number, content))
        )
        world.links.run()
        if reason is None:
            # What was signed for an earlier version counts until that is forgotten.
            assert {client for client, _, _ in world.got} == {"c6"}
            world.got.clear()
        else:
            assert world.brokers["B2"].dropped[reason] == 1
            assert not world.got


# -- policies ------------------------------------------------------------------------------------


def test_only_the_authoritys_policies_of_the_relations_schema_count() -> None:
    world = Policed()
    broker, true = world.brokers["B1"], world.of("B1")
    eve = Authority(SigningKey.generate(), policy_of(2))
    refused(DecodeError, "not signed", broker.enact, OverlayPolicy.of(eve, content=True))
    other = policy_of(1, GRANTS[:1]).to_bytes()
    for changed in ({"policy": other}, {"policy": b""}, {"notice": eve.notice().to_bytes()}):
        refused(DecodeError, "not signed", broker.enact, msgspec.structs.replace(true, **changed))
    mixed = OverlayPolicy(true.notice, policy_of(2).to_bytes())
    mixed = msgspec.structs.replace(mixed, signature=KEY.sign(mixed.signed))
    refused(DecodeError, "two versions", broker.enact, mixed)
    mixed = OverlayPolicy(true.notice, other)
    mixed = msgspec.structs.replace(mixed, signature=KEY.sign(mixed.signed))
    refused(ReplayError, "another policy of version 1", broker.enact, mixed)
    assert broker.enact(true) == []
    assert OverlayPolicy.from_bytes(true.to_bytes()) == true
    coarse = PlainRelation(Schema(x=UInt(6)), bits={"x": 2})
    refused(ParameterError, "by all bits", Rights(Guard(KEY.identity), coarse).enact, true)
    refused(ParameterError, "when", Rights, Guard(KEY.identity), RELATION, "during")
    assert repr(broker._rights) == "<Rights before matching by <Guard with policy 1, 1 clients>>"


def test_without_a_policy_nothing_is_allowed() -> None:
    world = Policed(PAIR)
    world.start("B1", HopPolicy())
    world.brokers["B1"].refresh("vitals")
    body = Body.of(RELATION.event_bytes({"x": 1}))
    stamp = Stamp.sign(KEYS["c1"], "event", "c1", 99, "vitals", body, policy=1)
    denied("policy", world.brokers["B1"].publish, stamp, body)
