"""Networks of brokers, simulated: counts equal the formulas, and faults lose what they must."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.arrays import Bytes
from ccbps.errors import ParameterError, ShapeError
from ccbps.overlay import (
    HONEST,
    ISSPS,
    SSPS,
    Agreed,
    Behaviour,
    Collusion,
    Fragment,
    HyShare,
    Outcome,
    PhysicalBroker,
    Simulation,
    Topology,
    join_fragments,
)
from ccbps.overlay.splits.bundles import Bundle, recovered
from ccbps.sharing import Shamir
from tests.support.effort import examples

SHAPES = {
    "line of 1": Topology.line(1),
    "line of 4": Topology.line(4),
    "star": Topology.star(3),
    "ring": Topology.ring(5),
    "tree": Topology.tree(3, 2, subscribers=2),
    "imported": Topology(
        [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "a")],
        "a",
        {"near": "a", "far": "d", "other": "d"},
    ),
}
SIZES = [(2, 2, 2), (3, 3, 3), (2, 3, 3), (2, 4, 2), (3, 4, 3)]


def secrets(count: int, size: int = 4, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (count, size), dtype=np.uint8)


def protocols(topology: Topology, k: int, n: int, m: int) -> Iterator[SSPS | ISSPS]:
    yield SSPS(k, n, m=m)
    yield ISSPS(k, n, m=m)
    for count in (1, 2, len(topology.links)):
        for enclaves in combinations(topology.links, count):
            yield HyShare(k, n, m=m, enclaves=enclaves)
            yield HyShare(k, n, m=m, enclaves=enclaves, direct=True)


# -- counts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_messages_equal_the_formula_at_every_party(shape: str, sizes: tuple[int, int, int]) -> None:
    topology, sent = SHAPES[shape], secrets(2)
    for protocol in protocols(topology, *sizes):
        simulation = Simulation(topology, protocol)
        outcome = simulation.share(sent)
        assert outcome.messages == protocol.messages(topology, len(sent)), protocol
        arrived = dict.fromkeys(protocol.arriving(topology), 0)
        for name, count in outcome.received.items():
            arrived[name.rpartition(".")[0] or name] += count
        assert arrived == {n: 2 * c for n, c in protocol.arriving(topology).items()}, protocol
        assert set(outcome.intact) == set(topology.subscribers)
        assert all(found.all() for found in outcome.intact.values()), protocol
        assert not any(found.any() for found in outcome.wrong.values())
        counted = simulation.count(len(sent))
        assert counted.links == outcome.links
        assert all(found.all() for found in counted.intact.values())
        assert counted.time == outcome.time


@pytest.mark.parametrize("k", [2, 3, 4])
def test_messages_of_the_source(k: int) -> None:
    three = Topology.line(3)
    wanted = {
        (): 2 * k**3 + k**2 + k,
        ("B1",): 2 * k**2 + 2 * k,
        ("B2",): 4 * k,
        ("B3",): 2 * k**2 + 2 * k,
    }
    for enclaves, count in wanted.items():
        protocol = HyShare(k, enclaves=enclaves)
        assert protocol.messages(three) == count
        assert Simulation(three, protocol).share(secrets(1)).messages == count
    for hops in range(1, 6):
        line, n = Topology.line(hops), k + 1
        assert SSPS(k, n).messages(line) == n * (hops + 1)
        issps = sum(k**i for i in range(1, hops + 1)) + k**hops
        assert ISSPS(k).messages(line) == HyShare(k, enclaves=[]).messages(line) == issps
        assert Simulation(line, ISSPS(k)).share(secrets(1)).messages == issps
        assert HyShare(k, enclaves=line.links).messages(line) == k * (hops + 1)
        assert HyShare(k, enclaves=line.links, direct=True).messages(line) == hops + 1


@pytest.mark.parametrize(("k", "reduction"), [(3, 183), (7, 14_707)])
def test_one_enclave_on_ten_hops(k: int, reduction: int) -> None:
    line = Topology.line(10)
    alone = Simulation(line, ISSPS(k)).count().messages
    counts = [
        Simulation(line, HyShare(k, enclaves=[broker])).count().messages for broker in line.links
    ]
    assert round(alone / min(counts)) == reduction


def test_messages_of_a_broker() -> None:
    outcome = Simulation(Topology.line(3), ISSPS(2)).share(secrets(5))
    assert outcome.links["publisher", "B1.2"] == 5
    assert outcome.links["B1.2", "B2.1"] == 5
    assert outcome.links["B2.1", "B3.2"] == 10
    assert outcome.links["B3.2", "S1"] == 20
    assert outcome.received["B3.1"] == 20
    assert outcome.time == 4.0


# -- faults ---------------------------------------------------------------------------------------

FAULTS = {
    "drop": Behaviour(drop=1),
    "crash": Behaviour(crash=0),
    "late": Behaviour(delay=100),
    "crash later": Behaviour(crash=1.5),
}
ALTERS = Behaviour(alter=1)


def at(names: str, **behaviour: Any) -> dict[PhysicalBroker, Behaviour]:
    """Give brokers, such as "B1.1 B2.1", one behaviour."""
    pairs = [name.split(".") for name in names.split()]
    return {PhysicalBroker(name, int(number)): Behaviour(**behaviour) for name, number in pairs}


def share(topology: Topology, protocol: SSPS | ISSPS, count: int = 3, **options: Any) -> Outcome:
    return Simulation(topology, protocol, **options).share(secrets(count))


def some_at(
    data: st.DataObject, topology: Topology, protocol: HyShare, *behaviours: Behaviour
) -> dict[PhysicalBroker, Behaviour]:
    """Give n - k brokers of each logical one, but of no enclave, any of some behaviours."""
    count = protocol.n - protocol.k
    return {
        host: data.draw(st.sampled_from(behaviours))
        for broker in topology.route
        if broker not in protocol.enclaves
        for host in data.draw(st.permutations(protocol.hosts(broker)))[:count]
    }


@given(
    shape=st.sampled_from(["line of 4", "star", "tree", "imported"]),
    sizes=st.sampled_from([(2, 3), (2, 4), (3, 4), (2, 2)]),
    enclaves=st.integers(0, 1),
    data=st.data(),
)
@settings(max_examples=examples(60), deadline=None)
def test_dropped_fragments_of_n_minus_k_brokers_lose_no_secret(
    shape: str, sizes: tuple[int, int], enclaves: int, data: st.DataObject
) -> None:
    topology = SHAPES[shape]
    protocol = HyShare(*sizes, enclaves=topology.route[1:2] * enclaves)
    behaviours = some_at(data, topology, protocol, *FAULTS.values())
    outcome = share(topology, protocol, behaviours=behaviours)
    assert all(intact.all() for intact in outcome.intact.values())


@given(
    shape=st.sampled_from(["line of 4", "star", "tree"]),
    sizes=st.sampled_from([(2, 3), (3, 4), (3, 5)]),
    enclaves=st.integers(0, 1),
    data=st.data(),
)
@settings(max_examples=examples(25), deadline=None)
def test_altered_fragments_of_n_minus_k_brokers_lose_no_secret_if_they_are_checked(
    shape: str, sizes: tuple[int, int], enclaves: int, data: st.DataObject
) -> None:
    topology = SHAPES[shape] if sizes == (2, 3) else Topology.line(2)
    protocol = HyShare(*sizes, enclaves=topology.route[1:2] * enclaves)
    behaviours = some_at(data, topology, protocol, ALTERS)
    outcome = share(topology, protocol, 2, behaviours=behaviours, checked=True)
    assert outcome.messages == protocol.messages(topology, 2)
    assert all(intact.all() for intact in outcome.intact.values())


@given(k=st.integers(2, 3), more=st.integers(0, 2), data=st.data())
@settings(max_examples=examples(40), deadline=None)
def test_dropped_paths_of_ssps_lose_no_secret(k: int, more: int, data: st.DataObject) -> None:
    line, n = SHAPES["line of 4"], k + more
    *broken, good = data.draw(st.permutations(range(1, n + 1)))[: more + 1]
    behaviours = {
        PhysicalBroker(data.draw(st.sampled_from(line.route)), number): data.draw(
            st.sampled_from([FAULTS["drop"], FAULTS["crash"]])
        )
        for number in broken
    }
    assert share(line, SSPS(k, n), behaviours=behaviours).intact["S1"].all()
    behaviours[PhysicalBroker("B2", good)] = Behaviour(drop=1)
    outcome = share(line, SSPS(k, n), behaviours=behaviours)
    assert not outcome.intact["S1"].any() and not outcome.wrong["S1"].any()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("broker", ["B1", "B2", "B3", "B4"])
def test_one_broker_more_loses_the_secret(fault: str, broker: str) -> None:
    behaviours = {PhysicalBroker(broker, number): FAULTS[fault] for number in (1, 3)}
    outcome = share(SHAPES["line of 4"], ISSPS(2, 3), behaviours=behaviours)
    # Nobody waits longer than the subscriber does; and B1 had sent everything by then.
    arrives = fault == "late" or (fault, broker) == ("crash later", "B1")
    assert {*outcome.intact["S1"].tolist()} == {arrives}
    assert not outcome.wrong["S1"].any()


HALF, PART = "B1.1 B2.1 B3.1", HyShare(2, 3, enclaves=["B2"])


@pytest.mark.parametrize(
    ("protocol", "behaviours", "result"),
    [
        # Reed-Solomon decoding finds half as many altered fragments as there are to spare.
        *[(each, at(HALF, alter=1), "intact") for each in (SSPS(2, 4), ISSPS(2, 4), ISSPS(2, 5))],
        (ISSPS(3, 5), at(HALF, alter=1), "intact"),
        # With k fragments nobody notices an altered one.
        (ISSPS(3), at("B2.1", alter=1), "wrong"),
        # A broker that crashes before it sends does not send.
        (ISSPS(2), at("B1.1", delay=5, crash=1.5), "lost"),
        # One broker in each of two logical ones breaks two of three paths of SSPS.
        (SSPS(2, 3), at("B1.1", crash=0) | at("B2.2", drop=1), "lost"),
        (ISSPS(2, 3), at("B1.1", crash=0) | at("B2.2", drop=1), "intact"),
        # One of three brokers that share four points has two of them.
        (ISSPS(3, 4, m=3), at("B1.1", crash=0), "lost"),
        # An enclave is a single point of failure.
        (HyShare(2, 4, enclaves=["B2"]), at("B2.1", crash=0), "lost"),
        # An enclave waits for late fragments until its patience ends.
        (HyShare(2, enclaves=["B2"]), at("B1.1", delay=7.5), "intact"),
        (HyShare(2, enclaves=["B2"]), at("B1.1", delay=8.0), "intact"),
        (HyShare(2, enclaves=["B2"]), at("B1.1", delay=8.5), "lost"),
        *[(PART, at("B1.1", delay=delay), "intact") for delay in (7.5, 8.0, 8.5)],
    ],
)
def test_faults_on_a_line_of_three(
    protocol: SSPS | ISSPS, behaviours: dict[PhysicalBroker, Behaviour], result: str
) -> None:
    outcome = share(Topology.line(3), protocol, behaviours=behaviours)
    intact, wrong = ({*each["S1"].tolist()} for each in (outcome.intact, outcome.wrong))
    assert (intact, wrong) == ({result == "intact"}, {result == "wrong"})
    if result == "wrong":
        checked = share(Topology.line(3), protocol, behaviours=behaviours, checked=True)
        assert not checked.wrong["S1"].any() and not checked.intact["S1"].any()


def test_brokers_that_crash_send_no_messages() -> None:
    outcome = share(Topology.line(1), ISSPS(2), 2, behaviours=at("B1.1", delay=5, crash=1.5))
    assert not outcome.intact["S1"].any() and outcome.messages == 6
    enclave = HyShare(2, 4, enclaves=["B2"])
    assert share(Topology.line(3), enclave, behaviours=at("B2.1", crash=0)).received["S1"] == 0


def test_what_an_enclaves_host_alters_is_refused() -> None:
    behaviours = at("B2.1", alter=0.2, curious=True)
    outcome = share(Topology.line(3), PART, 300, behaviours=behaviours)
    assert 100 < sum(outcome.refused.values()) < 260  # of 900
    assert set(outcome.refused) == {"B3.1", "B3.2", "B3.3"}
    assert not outcome.wrong["S1"].any()
    # Of three fragments two or more must come: 0.8^3 + 3 * 0.8^2 * 0.2 = 0.896.
    assert 240 < outcome.intact["S1"].sum() < 295


def test_some_dropped_fragments_lose_some_secrets() -> None:
    outcome = share(Topology.line(2), SSPS(2), 2000, behaviours=at("B1.1", drop=0.25))
    assert 1400 < outcome.intact["S1"].sum() < 1600
    assert outcome.messages == 2000 + 3 * 2000 + 2 * outcome.intact["S1"].sum()


# -- what brokers see ---------------------------------------------------------------------------


def all_curious(topology: Topology, protocol: SSPS | ISSPS, seed: int = 0) -> Simulation:
    behaviours = dict.fromkeys(protocol.brokers(topology), Behaviour(curious=True))
    return Simulation(topology, protocol, behaviours=behaviours, seed=seed)


@pytest.mark.parametrize("protocol", [SSPS(2, 3), ISSPS(2), ISSPS(2, 3)], ids=repr)
def test_whoever_sees_enough_recovers_secrets(protocol: SSPS | ISSPS) -> None:
    line, sent = Topology.line(3), secrets(6)
    simulation = all_curious(line, protocol)
    outcome = simulation.share(sent)
    for broker in line.route:
        hosts = protocol.hosts(broker)
        for some in combinations(hosts, protocol.k):
            found = simulation.recovered(outcome, some)
            assert np.array_equal(found.value[np.argsort(found.secret)], sent)
        for few in combinations(hosts, protocol.k - 1):
            assert simulation.recovered(outcome, few).count == 0
    across = [PhysicalBroker(b, i) for i, b in enumerate(line.route[: protocol.k], 1)]
    wanted = len(sent) if isinstance(protocol, SSPS) else 0
    assert simulation.recovered(outcome, across).count == wanted


@pytest.mark.parametrize(
    ("topology", "protocol"),
    [
        (Topology.line(2), ISSPS(2, 3)),
        (Topology.line(2), SSPS(2, 3)),
        (Topology.line(2), ISSPS(2, 4, m=3)),
        (Topology.line(2), SSPS(3, 4, m=3)),
        (Topology.star(2), ISSPS(2)),
        (Topology.line(3), HyShare(2, 3, enclaves=["B2"])),
        (Topology.tree(2, 2), HyShare(2, enclaves=["B1"])),
    ],
    ids=repr,
)
def test_what_all_sets_of_colluders_join_is_what_the_rule_says(
    topology: Topology, protocol: SSPS | ISSPS
) -> None:
    simulation, sent = all_curious(topology, protocol), secrets(2)
    outcome, rule = simulation.share(sent), Collusion(protocol, topology)
    found = set()
    for count in range(len(rule.brokers) + 1):
        for some in combinations(rule.brokers, count):
            learnt = simulation.recovered(outcome, some)
            assert learnt.count == len(sent) * rule.recovers(some), some
            assert not learnt.count or np.array_equal(learnt.value, sent[learnt.secret])
            found.add(learnt.count)
    assert found == {0, len(sent)}


def test_an_enclaves_host_sees_no_values() -> None:
    sent = secrets(6)
    simulation = all_curious(Topology.line(3), HyShare(2, enclaves=["B2"]))
    outcome = simulation.share(sent)
    host = PhysicalBroker("B2", 1)
    assert sum(view.count for view in outcome.views[host]) == 12
    assert all(view.value.size == 0 for view in outcome.views[host])
    assert simulation.recovered(outcome, [host]).count == 0
    assert simulation.recovered(outcome, [host, PhysicalBroker("B3", 1)]).count == 0


def test_splits_for_different_brokers_are_different() -> None:
    star = Topology.star(2)
    simulation = all_curious(star, ISSPS(2))
    outcome = simulation.share(secrets(3))
    apart = [PhysicalBroker("B2", 1), PhysicalBroker("B3", 2)]
    assert simulation.recovered(outcome, apart).count == 0
    together = [PhysicalBroker("B2", 1), PhysicalBroker("B2", 2)]
    assert simulation.recovered(outcome, together).count == 3


def test_a_run_follows_from_its_seed() -> None:
    sent = secrets(3)

    def seen(seed: int) -> list[bytes]:
        outcome = all_curious(SHAPES["tree"], ISSPS(2, 3), seed).share(sent)
        return [view.value.tobytes() for views in outcome.views.values() for view in views]

    assert seen(1) == seen(1) != seen(2)


def test_rows_are_the_fragments_of_messages() -> None:
    """A bundle's rows and `Fragment` are split and joined alike."""
    secret, scheme = b"a secret", Shamir(2, 3)
    rows = Bundle.of(np.frombuffer(secret, dtype=np.uint8)[None])
    random = np.random.default_rng(3)
    parts = [
        p
        for one in rows.split(scheme, "a", random.bytes)
        for p in one.split(scheme, "b", random.bytes)
    ]
    fragments = [
        Fragment(b"8 bytes.", 2, (*path.tolist(),), value.tobytes())
        for part in parts
        for path, value in zip(part.path, part.value, strict=True)
    ]
    assert join_fragments(fragments[2:], Agreed(2, 3, 2)) == secret
    assert recovered(parts[2:], scheme).value.tobytes() == secret
    assert recovered([*parts[:2], *parts[:2]], scheme).count == 0


# -- arguments ----------------------------------------------------------------------------------


LINE = Topology.line(2)
FIRST, SECOND = PhysicalBroker("B1", 1), PhysicalBroker("B1", 2)
CURIOUS = Simulation(LINE, ISSPS(2), behaviours={FIRST: Behaviour(curious=True)})


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            lambda: Simulation(LINE, ISSPS(2), behaviours={PhysicalBroker("B3", 1): HONEST}),
            r"behaviours has .*'B3', number=1\), which is not on the route",
        ),
        (
            lambda: Simulation(LINE, HyShare(2, enclaves=["B1"]), behaviours={SECOND: HONEST}),
            r"behaviours has .*'B1', number=2\)",
        ),
        (CURIOUS.count, "count is for honest brokers"),
        (lambda: Simulation(LINE, ISSPS(2)).count(0), "secrets must be .*, at least 1, got 0"),
        (lambda: Simulation(LINE, ISSPS(2), patience=-1.0), "patience must be .* at least 0"),
        (lambda: Simulation(LINE, ISSPS(2), patience=math.nan), "patience must be a finite number"),
        (lambda: Simulation(LINE, ISSPS(2), seed=-1), "seed must be a whole number, at least 0"),
        (lambda: Behaviour(delay=-1), "delay must be a finite number, at least 0"),
        (lambda: Behaviour(crash=math.nan), "crash must be a finite number, at least 0"),
        (lambda: Behaviour(crash=-1), "crash must be a finite number, at least 0"),
        (lambda: Behaviour(alter=1.5), "alter must be a finite number from 0 to 1"),
        (
            lambda: CURIOUS.recovered(CURIOUS.share(secrets(1)), [SECOND]),
            r"B1.2 kept nothing that it saw",
        ),
        (lambda: ISSPS(2).messages(LINE, -3), "secrets must be a whole number"),
        (lambda: HyShare(2, enclaves=None), "enclaves must be a list of names"),
        (lambda: HyShare(2, enclaves=5), "enclaves must be a list of names"),
        (lambda: HyShare(2, enclaves=[1, "B1"]), "enclaves must be a list of names"),
        (lambda: HyShare(2, enclaves="B1"), "enclaves must be a list of names"),
    ],
)
def test_arguments_are_checked(use: Callable[[], object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        use()


@pytest.mark.parametrize("shape", [(3,), (0, 4), (4, 0)])
def test_secrets_are_rows_of_bytes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="secrets must"):
        CURIOUS.share(np.zeros(shape, dtype=np.uint8))


def test_a_broker_that_saw_too_little_recovers_nothing() -> None:
    assert CURIOUS.recovered(CURIOUS.share(secrets(1)), [FIRST]).count == 0
    assert "direct=True" in repr(HyShare(2, enclaves=["B1"], direct=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1,), "k must be .* from 2 to 255, got 1"),
        ((3, 2), "n must be .* from 3 to 255, got 2"),
        ((2, 256), "n must be .* got 256"),
        ((2, 3, 1), "m must be a whole number from 2 to 3, got 1"),
        ((2, 3, 4), "m must be a whole number from 2 to 3, got 4"),
    ],
)
def test_thresholds_are_checked(arguments: tuple[int, ...], message: str) -> None:
    k, n, m = (*arguments, None, None)[:3]
    for make in (SSPS, ISSPS):
        with pytest.raises(ParameterError, match=message):
            make(k, n, m=m)


def test_enclaves_are_brokers_of_the_topology() -> None:
    for use in (
        lambda p: p.messages(Topology.line(2)),
        lambda p: Simulation(Topology.line(2), p),
        lambda p: Collusion(p, Topology.line(2)),
    ):
        with pytest.raises(ParameterError, match="enclaves must be brokers of the topology, 'B3'"):
            use(HyShare(2, enclaves=["B1", "B3"]))


def test_times_may_be_without_end() -> None:
    """An enclave that waits for all fragments, and a broker that delays for ever."""
    outcome = Simulation(LINE, ISSPS(2), patience=math.inf).count()
    assert all(intact.all() for intact in outcome.intact.values())
    for name in ("delay", "crash"):
        assert getattr(Behaviour(**{name: math.inf}), name) == math.inf
