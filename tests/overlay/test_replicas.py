"""Replicas of enclaves: what they cost, what they survive, and what common coins are for."""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain, combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from ccbps.arrays import Bytes, Randomness
from ccbps.errors import DecodeError, ParameterError, SerializationError
from ccbps.keys.plain_key import SigningKey
from ccbps.overlay import (
    Behaviour,
    Collusion,
    HyShare,
    Outcome,
    PhysicalBroker,
    Simulation,
    Topology,
    Trial,
)
from ccbps.overlay.enclave.attestation import ENCLAVE, Member, Policy
from ccbps.overlay.enclave.enclave import (
    SealedQueue,
    SimulatedEnclave,
    SimulatedPlatform,
    introduce,
    replicate,
)
from ccbps.overlay.enclave.enclave_process import _Inside, common_coins
from ccbps.overlay.enclave.sessions import Session
from ccbps.overlay.splits import simulator
from ccbps.overlay.splits.fragments import Agreed, Fragment, join_fragments
from tests.support.effort import examples

THREE = Topology.line(3)
SHAPES = [THREE, Topology.line(1), Topology.star(3), Topology.tree(3, 2, subscribers=2)]


def secrets(count: int, size: int = 8) -> Bytes:
    return np.random.default_rng(0).integers(0, 256, (count, size), dtype=np.uint8)


def middle(k: int, n: int | None = None, replicas: int = 2, **options: Any) -> HyShare:
    """An enclave in the middle of a line of three."""
    return HyShare(k, n, enclaves=["B2"], replicas={"B2": replicas}, **options)


def share(protocol: HyShare, behaviours: dict[str, Behaviour], **options: Any) -> Outcome:
    """Share 200 secrets on a line of three, with behaviours by names such as "B1.1"."""
    by_broker = {}
    for names, behaviour in behaviours.items():
        for name, number in (each.split(".") for each in names.split()):
            by_broker[PhysicalBroker(name, int(number))] = behaviour
    return Simulation(THREE, protocol, behaviours=by_broker, **options).share(secrets(200))


# -- counts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "counts"), [(2, [8, 12, 16]), (3, [12, 18, 24]), (7, [28, 42, 56])])
def test_a_line_of_three_takes_2k_and_2k_for_each_replica(k: int, counts: list[int]) -> None:
    for replicas, count in enumerate(counts, 1):
        assert count == 2 * k + 2 * k * replicas
        protocol = middle(k, replicas=replicas)
        assert protocol.messages(THREE) == count
        simulation = Simulation(THREE, protocol)
        outcome = simulation.share(secrets(5))
        assert outcome.messages == 5 * count and outcome.intact["S1"].all()
        assert simulation.count(5).links == outcome.links
        assert outcome.received["B2.1"] == 5 * k
        assert outcome.received["B3.1"] == 5 * replicas
        assert outcome.received["S1"] == 5 * k


@given(
    topology=st.sampled_from(SHAPES),
    sizes=st.sampled_from([(2, 2, 2), (3, 3, 3), (2, 4, 2), (3, 4, 3)]),
    direct=st.booleans(),
    data=st.data(),
)
@settings(max_examples=examples(60), deadline=None)
def test_messages_equal_the_formula(
    topology: Topology, sizes: tuple[int, int, int], direct: bool, data: st.DataObject
) -> None:
    k, n, m = sizes
    enclaves = data.draw(st.sets(st.sampled_from(topology.route), min_size=1, max_size=3))
    replicas = {name: data.draw(st.integers(1, 3)) for name in sorted(enclaves)}
    protocol = HyShare(k, n, m=m, enclaves=enclaves, replicas=replicas, direct=direct)
    simulation, sent = Simulation(topology, protocol), secrets(2)
    outcome = simulation.share(sent)
    assert outcome.messages == protocol.messages(topology, 2)
    assert all(intact.all() for intact in outcome.intact.values())
    counted = simulation.count(2)
    assert (counted.links, counted.time) == (outcome.links, outcome.time)
    assert all(intact.all() for intact in counted.intact.values())


# -- faults ---------------------------------------------------------------------------------------


def test_a_secret_is_lost_only_if_all_replicas_fail() -> None:
    for failing in chain.from_iterable(combinations((1, 2, 3), count) for count in range(4)):
        faults = {f"B2.{number}": Behaviour(crash=0) for number in failing}
        outcome = share(middle(2, replicas=3), faults)
        assert {*outcome.intact["S1"].tolist()} == {len(failing) < 3}
        assert not outcome.wrong["S1"].any()


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_trials_lose_a_share_of_secrets_that_is_a_power(replicas: int) -> None:
    """A secret is lost with probability q to the number of replicas."""
    count, q = 200, 0.6
    runs = [
        Trial(
            topology="line",
            hops=1,
            protocol="HyShare",
            k=2,
            enclaves=["B1"],
            replicas=replicas,
            failing=q,
            seed=seed,
        ).run()
        for seed in range(count)
    ]
    assert {run.delivered for run in runs} == {0.0, 1.0}
    assert {run.formula for run in runs} == {4 * replicas}
    lost, p = sum(1 - run.delivered for run in runs), q**replicas
    assert abs(lost - count * p) < 5 * math.sqrt(count * p * (1 - p))


def test_a_receiver_may_keep_copies_of_different_replicas() -> None:
    """Each replica drops half of its fragments, and they come at different times."""
    drop = {"B2.1": Behaviour(drop=0.5), "B2.2": Behaviour(drop=0.5, delay=0.5)}
    alone = share(middle(2, replicas=1), {"B2.1": Behaviour(drop=0.5)}).intact["S1"].mean()
    outcome = share(middle(2), drop)
    assert not outcome.wrong["S1"].any()
    assert abs(alone - 0.25) < 0.15
    assert abs(outcome.intact["S1"].mean() - 0.75**2) < 0.15
    # Copies are not sent on.
    assert outcome.received["S1"] < 2 * 200


def test_replicas_that_lost_other_secrets_send_equal_fragments() -> None:
    lossy = {
        "B1.1 B1.2": Behaviour(drop=0.3),
        "B3.1": Behaviour(curious=True),
    }
    outcome = share(middle(2), lossy)
    one, two = outcome.views[PhysicalBroker("B3", 1)]
    assert not np.array_equal(one.secret, two.secret)
    left = dict(zip(one.secret.tolist(), map(bytes, one.value), strict=True))
    right = dict(zip(two.secret.tolist(), map(bytes, two.value), strict=True))
    both = left.keys() & right.keys()
    assert 20 < len(both) < min(len(left), len(right))
    assert all(left[number] == right[number] for number in both)


FAULTS = st.builds(
    Behaviour,
    drop=st.sampled_from([0.0, 0.4]),
    delay=st.sampled_from([0.0, 0.5, 9.0]),
    crash=st.sampled_from([math.inf, 2.5]),
)


@given(
    topology=st.sampled_from(SHAPES),
    sizes=st.sampled_from([(2, 2), (3, 3), (2, 3)]),
    seed=st.integers(0, 99),
    data=st.data(),
)
@settings(max_examples=examples(40), deadline=None)
def test_replicas_that_lose_and_delay_give_no_wrong_secret(
    topology: Topology, sizes: tuple[int, int], seed: int, data: st.DataObject
) -> None:
    """Whatever copies are lost and late, those that come belong together."""
    enclaves = data.draw(st.sets(st.sampled_from(topology.route), min_size=1, max_size=3))
    replicas = {name: data.draw(st.integers(2, 3)) for name in sorted(enclaves)}
    protocol = HyShare(*sizes, enclaves=enclaves, replicas=replicas)
    hosts = [host for name in sorted(enclaves) for host in protocol.hosts(name)]
    behaviours = {host: data.draw(FAULTS) for host in hosts}
    simulation = Simulation(topology, protocol, behaviours=behaviours, seed=seed)
    outcome = simulation.share(secrets(10))
    assert not any(wrong.any() for wrong in outcome.wrong.values())
    assert outcome.messages <= protocol.messages(topology, 10)


@pytest.mark.parametrize(
    ("sizes", "checked", "result"),
    [
        ((2, 2), False, "wrong"),
        ((2, 3), False, "lost"),
        ((2, 2), True, "lost"),
        ((2, 3), True, "intact"),
    ],
)
def test_without_common_coins_fragments_do_not_belong_together(
    sizes: tuple[int, int], checked: bool, result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One receiver has the second replica's fragments, the others those of the first.

    With exactly k fragments and no checks they join to something wrong, and nothing shows it. With
    checks more than half of the fragments, from one split, are enough.
    """
    late = {"B2.2": Behaviour(delay=0.5)}

    def only_to(self: Any, time: float, sender: Any, receiver: Any, load: Any) -> None:
        """Lose what the first replica sends to the first receiver."""
        if (str(sender), str(receiver)) != ("B2.1", "B3.1"):
            deliver(self, time, sender, receiver, load)

    deliver = simulator._Run.deliver
    monkeypatch.setattr(simulator._Run, "deliver", only_to)
    protocol = middle(*sizes)
    outcome = share(protocol, late, checked=checked)
    assert outcome.intact["S1"].all()
    monkeypatch.setattr(simulator._Run, "coins", lambda self, name: (self.rng.bytes, None))
    outcome = share(protocol, late, checked=checked)
    assert {*outcome.intact["S1"].tolist()} == {result == "intact"}
    assert {*outcome.wrong["S1"].tolist()} == {result == "wrong"}


# -- what brokers see -----------------------------------------------------------------------------


def test_copies_tell_colluders_nothing_more() -> None:
    """Two replicas' fragments are equal, so sets that learn secrets are the same as with one."""
    sent = secrets(2)
    protocol = HyShare(2, 3, enclaves=["B2"], replicas={"B2": 2})
    rule = Collusion(protocol, THREE)
    assert len(rule.brokers) == 3 + 2 + 3
    simulation = Simulation(
        THREE, protocol, behaviours=dict.fromkeys(rule.brokers, Behaviour(curious=True))
    )
    outcome = simulation.share(sent)
    learnt = set()
    for some in chain.from_iterable(combinations(rule.brokers, count) for count in range(9)):
        found = simulation.recovered(outcome, some).count
        assert found == len(sent) * rule.recovers(some), some
        learnt.add(found)
    assert learnt == {0, 2}
    for receiver in protocol.hosts("B3"):
        first, second = outcome.views[receiver]
        assert np.array_equal(first.value, second.value)


@pytest.mark.parametrize("replicas", [{"B1": 2}, {"B2": 0}, {"B2": 1.5}])
def test_replicas_are_of_enclaves(replicas: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="replicas"):
        HyShare(2, enclaves=["B2"], replicas=replicas)


def test_the_numbers_of_replicas_print() -> None:
    assert repr(middle(2, 3)) == "HyShare(2, 3, enclaves=['B2'], replicas={'B2': 2})"


# -- real processes -------------------------------------------------------------------------------

SECRET = b"32 bytes of a seed for matching."
AGREED = Agreed(2, 2, 1)
NAMES = ["one", "two", "left", "right"]
KEYS = {name: SigningKey.generate() for name in NAMES}


def attest(enclave: SimulatedEnclave, name: str) -> Session:
    member = Member(name, KEYS[name], enclave._policy)
    session, opening = member.accept(enclave.name, enclave.attest(member.challenge(enclave.name)))
    enclave.open(opening)
    return session


def policy_of(platform: SimulatedPlatform, **changes: Any) -> Policy:
    """Two logical enclaves in a row, the first one in two replicas and the second in two."""
    names = "first", "second"
    policy = Policy(
        platform.identity,
        platform.measurement,
        2,
        2,
        {name: KEYS[name].identity for name in NAMES} | dict.fromkeys(names, ENCLAVE),
        routes={"first": ("second",), "second": ("left", "right")},
        sources={"first": ("one", "two"), "second": ("first",)},
        splits={"first": 1, "second": 0},
        replicas={"first": 2, "second": 2},
    )
    return structs.replace(policy, **changes)


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[list[SimulatedEnclave], list[SimulatedEnclave]]]:
    """Start two replicas of either enclave; each of the first knows each of the second."""
    platform = SimulatedPlatform()
    policy = policy_of(platform)
    with ExitStack() as stack:
        first, second = (
            [stack.enter_context(platform.launch(name, policy)) for _ in range(2)]
            for name in ("first", "second")
        )
        replicate(*first)
        for one in first:
            for other in second:
                introduce(one, other)
        yield first, second


def test_a_secret_goes_through_two_replicated_enclaves(
    started: tuple[list[SimulatedEnclave], list[SimulatedEnclave]],
) -> None:
    first, second = started
    inward = [[attest(replica, name) for name in ("one", "two")] for replica in first]
    outward = [[attest(replica, name) for name in ("left", "right")] for replica in second]
    fragments = Fragment.of(SECRET, 2).split(2)
    between = [
        replica.regenerate([s.seal(f) for s, f in zip(sessions, fragments, strict=True)])
        for replica, sessions in zip(first, inward, strict=True)
    ]
    assert [len(messages) for messages in between] == [2, 2]
    assert len({message for messages in between for message in messages}) == 4
    with pytest.raises(DecodeError, match=r"no seed of common coins.*replicate"):
        second[0].regenerate([between[0][0]])
    replicate(*second)
    # Each replica of the second hop has the first copy from another replica of the first one.
    after = [second[0].regenerate([between[1][0]]), second[1].regenerate([between[0][1]])]
    came = [
        [session.open(message) for session, message in zip(sessions, messages, strict=True)]
        for sessions, messages in zip(outward, after, strict=True)
    ]
    assert came[0] == came[1]
    assert join_fragments([came[0][0], came[1][1]], AGREED) == SECRET
    assert join_fragments([*came[0], *came[1]], AGREED) == SECRET
    # The second copy came too late: the secret was regenerated.
    with pytest.raises(DecodeError, match="regenerated before"):
        second[0].regenerate([between[0][0]])


def test_seeds_are_given_to_replicas_only(
    started: tuple[list[SimulatedEnclave], list[SimulatedEnclave]],
) -> None:
    first, second = started
    with pytest.raises(DecodeError, match="of no replica of 'second'"):
        replicate(first[0], second[0])
    member = attest(first[0], "one")
    seed = Fragment(bytes(8), 1, (), bytes(32))
    with pytest.raises(DecodeError, match="of no replica of 'first'"):
        first[0]._ask(b"take_seed", member.seal(seed))
    with pytest.raises(DecodeError, match="not a sealed fragment"):
        first[0]._ask(b"take_seed", b"")
    # A replica of the other policy is none.
    platform = first[0]._platform
    alone = structs.replace(first[0]._policy, replicas={})
    launch = platform.launch
    with launch("first", alone) as other, launch("first", alone) as twin:
        for pair in ((first[0], other), (other, first[0])):
            with pytest.raises(DecodeError, match="another policy"):
                replicate(*pair)
        with pytest.raises(DecodeError, match="no session with a replica"):
            replicate(other, twin)


def both_inside() -> tuple[_Inside, _Inside]:
    """Two replicas in this process, with a session."""
    platform = SimulatedPlatform()
    policy = policy_of(platform)
    replicas = _Inside("first", policy), _Inside("first", policy)
    keys = os.urandom(8), os.urandom(32), os.urandom(32)
    for replica, end in zip(replicas, (False, True), strict=True):
        replica.keep("first", Session(keys, enclave=end))
    return replicas


def test_a_replica_takes_one_seed_which_does_not_print_or_pickle() -> None:
    one, two = both_inside()
    (message,) = one.give_seed()
    two.take_seed(message)
    assert one.seed == two.seed and len(one.seed) == 32
    assert one.seed not in message
    for replica in (one, two):
        assert one.seed.hex() not in repr(replica) and str(one.seed) not in repr(replica)
        with pytest.raises(SerializationError):
            pickle.dumps(replica)
    with pytest.raises(DecodeError, match="replay"):
        two.take_seed(message)
    (again,) = one.give_seed()
    two.take_seed(again)
    one.seed = bytes(32)
    with pytest.raises(DecodeError, match="another seed") as refused:
        two.take_seed(*one.give_seed())
    assert two.seed.hex() not in str(refused.value)
    # It is no fragment of a secret, either.
    with pytest.raises(DecodeError, match="'first' does not send to 'first'"):
        two.regenerate(*one.give_seed())


@pytest.mark.parametrize("checked", [0, 3])
def test_common_coins_are_of_a_seed_a_name_and_a_value(checked: int) -> None:
    seed, secret = os.urandom(32), Fragment.of(SECRET, 2, checked=checked)

    def fragments(seed: bytes, **changes: Any) -> list[bytes]:
        changed = structs.replace(secret, **changes)
        parts = changed.split(3, randomness=common_coins(seed, changed))
        return [part.value[8 * bool(checked) :][: len(SECRET)] for part in parts]

    def xor(left: bytes, right: bytes) -> bytes:
        return bytes(a ^ b for a, b in zip(left, right, strict=True))

    assert fragments(seed) == fragments(seed)
    other = SECRET[::-1]
    for changed in (fragments(bytes(32)), fragments(seed, name=bytes(8))):
        assert not {*changed} & {*fragments(seed)}
    # With the coins of a name alone, two values of one name would differ by one difference.
    pairs = zip(fragments(seed), fragments(seed, value=other), strict=True)
    differences = [xor(one, two) for one, two in pairs]
    assert len({*differences}) == 3 and xor(SECRET, other) not in differences


def test_a_seed_that_leaks_later_confirms_guesses_and_opens_nothing() -> None:
    """With k = 2 a fragment is the secret and a coin, times its point: coins of names open it."""
    seed, secret = os.urandom(32), Fragment.of(SECRET, 2)

    def opened(coins: Callable[[Fragment], Randomness], guess: Fragment) -> bytes:
        """Remove the coins of a guess from the fragment of point 1, which was recorded."""
        fragment = secret.split(2, randomness=coins(secret))[0].value
        drawn = coins(guess)(8 + len(SECRET))[8:]
        return bytes(a ^ b for a, b in zip(fragment, drawn, strict=True))

    def of_names(fragment: Fragment) -> Randomness:
        return common_coins(seed, structs.replace(fragment, value=b"any"))

    def of_values(fragment: Fragment) -> Randomness:
        return common_coins(seed, fragment)

    wrong = structs.replace(secret, value=bytes(len(SECRET)))
    assert opened(of_names, wrong) == SECRET
    assert opened(of_values, secret) == SECRET
    assert opened(of_values, wrong) not in (SECRET, wrong.value)


def test_a_replica_that_lies_is_noticed_where_copies_are_compared() -> None:
    """`join_fragments` leaves out what differs; whoever keeps first copies only has a mixture."""
    secret = Fragment.of(SECRET, 2)
    true, lie = secret.split(2), structs.replace(secret, value=bytes(32)).split(2)
    for copies in ([*true, *lie], [*true, lie[0]], [*lie, true[1]]):
        with pytest.raises(DecodeError):
            join_fragments(copies, AGREED)
    assert join_fragments([true[0], lie[1]], AGREED) not in (SECRET, bytes(32))
    checked = Fragment.of(SECRET, 2, checked=3)
    split = checked.split(3)
    forged = structs.replace(checked, value=bytes(32)).split(3)
    agreed = Agreed(2, 3, 1, checked=True)
    assert join_fragments([split[0], split[1], forged[2]], agreed) == SECRET
    with pytest.raises(DecodeError):
        join_fragments([split[0], forged[2]], agreed)


def test_the_queue_before_an_enclave_takes_copies() -> None:
    """From two replicas, in two sessions: first copies are enough, later ones are ignored."""
    queue = SealedQueue(AGREED)
    halves = Fragment.of(SECRET, 2).split(2)
    ends = [Session((bytes([number]) * 8, bytes(32), bytes(32)), enclave=True) for number in (1, 2)]
    assert [queue.add(end.seal(halves[0])) for end in ends] == [None, None]
    enough = queue.add(ends[1].seal(halves[1]))
    assert enough is not None and len(enough) == 3
    queue.done(enough[0])
    assert queue.add(ends[0].seal(halves[1])) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"replicas": {"one": 2}},
        {"replicas": {"first": 0}},
        {"replicas": {"nobody": 2}},
        {"sources": {"first": ("first",), "second": ("first",)}},
        {"routes": {"first": ("second",), "second": ("second",)}},
    ],
)
def test_policies_name_replicas_of_enclaves(changes: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=r"replicas|must be one other member"):
        policy_of(SimulatedPlatform(), **changes)
