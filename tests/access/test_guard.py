"""The guard: decisions by the latest notice, sessions by proof, versions without races."""

from __future__ import annotations

import random
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from ccbps import Schema, UInt
from ccbps.access import (
    Authority,
    Grant,
    Guard,
    Notice,
    Permit,
    Policy,
    attenuate_token,
    issue_token,
    present_token,
    read_token,
)
from ccbps.access.policy import ACTIONS
from ccbps.access.rates import Bucket
from ccbps.errors import (
    CcbpsError,
    DecodeError,
    MissingKeyError,
    ParameterError,
    RefusedError,
    ReplayError,
)
from ccbps.keys import SigningKey
from tests.support.effort import examples

SCHEMA = Schema(x=UInt(3))
KEY, ANN, BOB, EVE = (SigningKey(bytes([place]) * 32) for place in range(4))


def policy_of(version: int = 1, revoked: tuple[str, ...] = (), **changes: Any) -> Policy:
    settings: dict[str, Any] = {
        "roles": {"doctor": ["ann", "bob"], "nurse": ["ann"], "feed": ["eve"]},
        "grants": [
            Grant("doctor", ("subscribe", "receive"), "x < 4"),
            Grant("nurse", ("receive",), "x = 7", 5.0, 3.0),
            Grant("feed", ("publish", "advertise"), rate=2.0),
        ],
        "revoked": revoked,
    }
    return Policy(SCHEMA, version=version, **{**settings, **changes})


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.authority = Authority(KEY, policy_of(), clock=self.clock)
        self.guard = Guard(KEY.identity, clock=self.clock, timer=self.clock)
        self.install()
        self.counter = 0

    def install(self) -> None:
        self.guard.install(self.authority.notice().to_bytes())

    def enter(self, client: str, key: SigningKey, **settings: Any) -> bytes:
        token = self.authority.issue(client, key.identity, **settings)
        self.install()  # roles of the token may be new
        self.present(client, key, token)
        return token

    def permit(self, client: str, role: str, subscription: bytes) -> Permit:
        policy = self.authority.policy
        return self.authority.permit(client, (role,), subscription, policy=policy)

    def present(self, client: str, key: SigningKey, token: bytes) -> None:
        self.counter += 1
        self.guard.present(
            client, present_token(token, key, self.guard.session, client, self.counter)
        )


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(RefusedError) as error:
        call()
    return error.value.reason


def test_without_a_policy_or_a_token_nothing_is_allowed() -> None:
    world = World()
    empty = Guard(KEY.identity)
    assert refused(empty.stamp) == "policy"
    for action in ACTIONS:
        assert refused(lambda action=action: world.guard.require("ann", action)) == "token"
    token = issue_token(KEY, "ann", ANN.identity, ["doctor"], policy=1, starts=0, seconds=1e10)
    presented = present_token(token, ANN, empty.session, "ann", 1)
    assert refused(lambda: empty.present("ann", presented)) == "policy"


def test_a_right_is_that_of_the_policy_for_the_roles_of_the_token() -> None:
    world = World()
    names = {one.text: name for name, (one, _) in world.authority.filters().items()}
    world.enter("ann", ANN)
    assert world.guard.right("ann", "receive").name == names["(x < 4) OR (x = 7)"]
    assert world.guard.right("ann", "subscribe").name == names["x < 4"]
    assert refused(lambda: world.guard.right("ann", "publish")) == "publish"
    world.enter("ann", ANN, roles=["nurse"])  # a session with fewer roles
    names = {one.text: name for name, (one, _) in world.authority.filters().items()}
    assert world.guard.right("ann", "receive").name == names["x = 7"]
    assert refused(lambda: world.guard.right("ann", "subscribe")) == "subscribe"
    world.enter("eve", EVE)
    assert world.guard.right("eve", "publish").name == b""


def test_revocation_reaches_sessions_that_exist() -> None:
    world = World()
    world.enter("ann", ANN)
    token = world.enter("bob", BOB)
    stolen = present_token(token, BOB, world.guard.session, "bob", 99)
    world.authority.revoke("ann")
    world.install()
    assert refused(lambda: world.guard.right("ann", "receive")) == "revoked"
    assert world.guard.right("bob", "receive")
    numbers = read_token(token, KEY.identity).numbers
    less = attenuate_token(token, KEY.identity, actions=["receive"])
    world.authority.revoke(tokens=numbers)
    world.install()
    assert refused(lambda: world.guard.right("bob", "receive")) == "revoked"
    assert refused(lambda: world.guard.present("bob", stolen)) == "revoked"
    assert refused(lambda: world.present("bob", BOB, less)) == "revoked"  # made from it
    world.enter("bob", BOB)  # a new token counts
    assert world.guard.right("bob", "receive")
    assert refused(lambda: world.authority.issue("ann", ANN.identity)) == "revoked"


def test_a_role_that_is_taken_away_counts_no_more_and_a_new_one_needs_a_new_token() -> None:
    world = World()
    world.enter("ann", ANN)
    roles = {"doctor": ["bob"], "nurse": ["ann"], "feed": ["eve", "ann"]}
    world.authority.enact(policy_of(2, roles=roles))
    world.install()
    assert refused(lambda: world.guard.right("ann", "subscribe")) == "subscribe"
    assert refused(lambda: world.guard.right("ann", "publish")) == "publish"
    world.enter("ann", ANN)
    assert world.guard.right("ann", "publish")


def test_tokens_end_and_shrink() -> None:
    world = World()
    token = world.enter("ann", ANN, seconds=60)
    world.present("ann", ANN, attenuate_token(token, KEY.identity, actions=["receive"]))
    assert world.guard.right("ann", "receive")
    assert refused(lambda: world.guard.right("ann", "subscribe")) == "subscribe"
    assert world.guard.ends("ann") == 1060
    world.clock.now = 1060.5
    assert refused(lambda: world.guard.right("ann", "receive")) == "expired"
    assert refused(lambda: world.present("ann", ANN, token)) == "expired"
    world.guard.leave("ann")
    assert refused(lambda: world.guard.right("ann", "receive")) == "token"


def test_a_presentation_counts_once_and_only_for_its_key() -> None:
    world = World()
    token = world.enter("ann", ANN)
    sent = present_token(token, ANN, world.guard.session, "ann", 50)
    world.guard.present("ann", sent)
    with pytest.raises(ReplayError):
        world.guard.present("ann", sent)
    world.guard.leave("ann")
    with pytest.raises(ReplayError):
        world.guard.present("ann", sent)
    assert refused(lambda: world.present("ann", EVE, token)) == "proof"
    assert refused(lambda: world.guard.present("bob", sent)) == "proof"
    other = Guard(KEY.identity, clock=world.clock)
    other.install(world.authority.notice().to_bytes())
    assert refused(lambda: other.present("ann", sent)) == "proof"


def test_renewal_needs_the_key_and_a_token_in_force_and_never_widens() -> None:
    world = World()
    authority = world.authority
    token = authority.issue("ann", ANN.identity, seconds=60, roles=["doctor"])
    less = attenuate_token(token, KEY.identity, actions=["receive"])
    world.clock.now = 1050
    new = authority.renew(present_token(less, ANN, authority.session, "ann", 1), seconds=100)
    read = read_token(new, KEY.identity)
    assert (read.ends, read.roles, read.actions) == (1150, ("doctor",), {"receive"})
    with pytest.raises(ReplayError):
        authority.renew(present_token(less, ANN, authority.session, "ann", 1))
    for sent, reason in [
        (present_token(token, EVE, authority.session, "ann", 9), "proof"),
        (present_token(token, ANN, world.guard.session, "ann", 9), "proof"),
    ]:
        assert refused(lambda sent=sent: authority.renew(sent)) == reason
    world.clock.now = 1061
    late = present_token(token, ANN, authority.session, "ann", 9)
    assert refused(lambda: authority.renew(late)) == "expired"
    authority.revoke("ann")
    live = present_token(new, ANN, authority.session, "ann", 10)
    assert refused(lambda: authority.renew(live)) == "revoked"
    numbered = World()
    token = numbered.authority.issue("bob", BOB.identity)
    numbered.authority.revoke(tokens=read_token(token, KEY.identity).numbers)
    again = present_token(token, BOB, numbered.authority.session, "bob", 1)
    assert refused(lambda: numbered.authority.renew(again)) == "revoked"


def test_notices_are_signed_and_never_go_back() -> None:
    world = World()
    old = world.authority.notice()
    world.authority.revoke("bob")
    world.install()
    with pytest.raises(ReplayError, match="older"):
        world.guard.install(old.to_bytes())
    forged = structs.replace(world.authority.notice(), revoked=())
    with pytest.raises(DecodeError, match="not signed"):
        world.guard.install(forged.to_bytes())
    other = Authority(KEY, policy_of(2, revoked=("ann",)))
    with pytest.raises(ReplayError, match="another"):
        world.guard.install(other.notice().to_bytes())
    with pytest.raises(DecodeError):
        world.guard.install(Authority(EVE, policy_of(9)).notice().to_bytes())
    assert world.guard.stamp() == 2
    with pytest.raises(ParameterError, match="greater than 2"):
        world.authority.enact(policy_of(2))
    with pytest.raises(ParameterError, match="schema"):
        world.authority.enact(Policy(Schema(y=UInt(3)), version=3, roles={}, grants=[]))


@given(st.data())
@settings(max_examples=examples(40))
def test_altered_notices_and_permits_are_refused(data: st.DataObject) -> None:
    world = World()
    notice = world.authority.notice()
    permit = world.permit("bob", "doctor", bytes(32))
    message = data.draw(st.sampled_from([notice, permit])).to_bytes()
    changed = bytearray(message)
    changed[data.draw(st.integers(0, len(message) - 1))] ^= data.draw(st.integers(1, 255))
    world.enter("bob", BOB)

    def use() -> None:
        if message == notice.to_bytes():
            world.guard.install(bytes(changed))
        else:
            world.guard.allows("bob", Permit.from_bytes(bytes(changed)), bytes(32))

    with pytest.raises(CcbpsError):
        use()


def test_a_permit_is_for_one_client_one_subscription_and_the_filters_in_force() -> None:
    world = World()
    world.enter("bob", BOB)
    digest = sha256(b"subscription").digest()
    permit = world.permit("bob", "doctor", digest)
    world.guard.allows("bob", permit, digest)
    world.enter("ann", ANN)
    assert refused(lambda: world.guard.allows("ann", permit, digest)) == "permit"
    assert refused(lambda: world.guard.allows("bob", permit, bytes(32))) == "permit"
    world.authority.enact(policy_of(2))  # the same filters
    world.install()
    world.guard.check_permit("bob", permit)
    changed = [Grant("doctor", ("subscribe", "receive"), "x < 3")]
    world.authority.enact(policy_of(3, grants=changed))
    world.install()
    assert refused(lambda: world.guard.check_permit("bob", permit)) == "permit"
    assert refused(lambda: world.permit("eve", "feed", digest)) == "grant"
    assert refused(lambda: world.permit("bob", "nurse", digest)) == "roles"


@given(
    st.floats(0.5, 20),
    st.floats(1, 30),
    st.lists(st.tuples(st.floats(0, 3), st.integers(0, 40)), min_size=20, max_size=60),
)
@settings(max_examples=examples(60))
def test_a_bucket_lets_through_no_more_than_rate_and_burst(
    rate: float, burst: float, asked: list[tuple[float, int]]
) -> None:
    clock = Clock()
    bucket, passed, start = Bucket(rate, burst, clock), 0, clock.now
    for pause, wanted in asked:
        clock.now += pause
        taken = max(0, min(wanted, int(bucket.level())))
        bucket.take(taken)
        passed += taken
        assert passed <= burst + rate * (clock.now - start) + 1e-6
    # One who always asks gets the rate on average.
    bucket, passed, seconds = Bucket(rate, burst, clock), 0, 2000.0
    for _ in range(1000):
        clock.now += seconds / 1000
        taken = int(bucket.level())
        bucket.take(taken)
        passed += taken
    capacity = min(rate, int(burst) / (seconds / 1000))
    assert capacity * seconds * 0.9 - 2 <= passed <= rate * seconds + burst


def test_rates_are_per_client_and_action() -> None:
    world = World()
    world.enter("eve", EVE)
    for _ in range(2):
        world.guard.require("eve", "publish")
    assert refused(lambda: world.guard.require("eve", "publish")) == "rate"
    world.guard.require("eve", "advertise")
    world.clock.now += 0.5
    world.guard.require("eve", "publish")
    world.enter("ann", ANN, roles=["nurse"])
    right = world.guard.right("ann", "receive")
    assert [world.guard.spend("ann", "receive", right, most) for most in (2, 5, 5)] == [2, 1, 0]


def test_stamped_messages_are_judged_by_one_version_and_others_by_none() -> None:
    draw = random.Random(3)
    versions = 12
    # Each version lets the feed publish half of the events, and receivers have the other half.
    halves = ["x < 4", "x > 3"]
    policies = [
        Policy(
            SCHEMA,
            version=version,
            roles={"feed": ["eve"], "doctor": ["ann"]},
            grants=[
                Grant("feed", ("publish",), halves[version % 2]),
                Grant("doctor", ("receive",), f"{halves[1 - version % 2]} OR x = {version % 8}"),
            ],
        )
        for version in range(1, versions + 1)
    ]
    authority = Authority(KEY, policies[0])
    notices = [authority.notice(), *(authority.enact(policy) for policy in policies[1:])]
    ingress, egress = Guard(KEY.identity), Guard(KEY.identity)

    def may(version: int, x: int) -> tuple[bool, bool]:
        policy, codes = policies[version - 1], {"x": x}
        return policy.test(("feed",), "publish")(codes), policy.test(("doctor",), "receive")(codes)

    def allowed_by_some(x: int) -> bool:
        return any(all(may(version, x)) for version in range(1, versions + 1))

    wrong, queue, judged = {"stamped": 0, "unstamped": 0}, list[tuple[int, int]](), 0
    for race in range(6000):
        if race % 500 == 0:
            ingress.install(notices[race // 500].to_bytes())
        if race % 500 == 200:  # a notice takes its time to the other broker
            egress.install(notices[race // 500].to_bytes())
        queue.append((ingress.stamp(), draw.choice([0, 2, 4, 6, 7])))
        if race < 300:
            continue
        draw.shuffle(queue)
        stamp, x = queue.pop()
        try:
            version = egress.at(stamp).version
        except MissingKeyError:
            queue.append((stamp, x))  # it waits, and nobody guesses
            continue
        judged += 1
        published, now = may(stamp, x)[0], egress.stamp()
        wrong["stamped"] += published and may(version, x)[1] and not allowed_by_some(x)
        wrong["unstamped"] += published and may(now, x)[1] and not allowed_by_some(x)
    assert judged > 4000
    assert wrong["stamped"] == 0
    assert wrong["unstamped"] > 100
    egress.forget(below=versions)
    assert egress.at(versions).version == versions
    with pytest.raises(RefusedError, match="version 11 is over") as caught:
        egress.at(versions - 1)  # and not MissingKeyError: it would wait for ever
    assert caught.value.reason == "version"


def test_a_guard_that_skipped_a_version_keeps_it_without_putting_it_into_force() -> None:
    authority, guard = Authority(KEY, policy_of()), Guard(KEY.identity)
    first = authority.notice().to_bytes()
    newer = authority.revoke("ann").to_bytes()
    guard.install(newer)
    version = guard.stamp()
    with pytest.raises(MissingKeyError):
        guard.at(version - 1)
    with pytest.raises(ReplayError):
        guard.keep(newer)
    guard.keep(first)
    assert (guard.at(version - 1).version, guard.stamp()) == (version - 1, version)
    guard.forget(below=version)
    with pytest.raises(ReplayError):
        guard.keep(first)
    with pytest.raises(DecodeError):
        guard.keep(Authority(EVE, policy_of()).notice().to_bytes())


def test_filters_have_names_that_tell_nothing_but_equality() -> None:
    world = World()
    notice, filters = world.authority.notice(), world.authority.filters()
    assert notice.filter_names == {*filters}
    again = Authority(EVE, policy_of()).filters()
    assert {*filters}.isdisjoint(again)  # names need the authority's key
    shown = notice.to_bytes()
    assert b"x <" not in shown
    assert b"x =" not in shown
    assert isinstance(Notice.from_bytes(shown), Notice)


def test_an_authority_does_not_print_or_pickle_its_key() -> None:
    import pickle

    authority = Authority(KEY, policy_of())
    assert KEY.export_secret().hex() not in repr(authority)
    with pytest.raises(CcbpsError):
        pickle.dumps(authority)
    token = issue_token(KEY, "ann", ANN.identity, [], policy=1, starts=0, seconds=9)
    assert KEY.export_secret() not in token
