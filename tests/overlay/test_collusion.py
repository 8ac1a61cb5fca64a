"""Which colluding brokers recover a secret: the rule, its counts and risks, against all subsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import combinations, product
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.arrays import Bools
from ccbps.errors import DecodeError, ParameterError
from ccbps.overlay import (
    ISSPS,
    SSPS,
    Agreed,
    Collusion,
    Fragment,
    HyShare,
    PhysicalBroker,
    Topology,
    estimate_risk,
    join_fragments,
)
from tests.reference import collusion as twin
from tests.support.effort import examples

NETWORKS = {
    "line of 1": Topology.line(1),
    "line of 2": Topology.line(2),
    "line of 3": Topology.line(3),
    "tree": Topology.tree(2, 2),
    "star": Topology.star(2),
    "ring": Topology.ring(4),
    "two at one leaf": Topology.tree(2, 1, subscribers=2),
    # Its second branch leads to nobody.
    "off the route": Topology([("B1", "B2"), ("B1", "B3")], "B1", {"S1": "B2"}),
}
SPLITS = [(2, 2, 2), (2, 3, 3), (3, 3, 3), (2, 3, 2), (2, 4, 2), (2, 4, 3), (3, 4, 3), (3, 5, 4)]
"""k, n and m: m = n with k = n and k < n; m < n with equal and unequal numbers of points."""
LINES = [(*sizes, hops) for sizes, hops in product(SPLITS, (1, 2, 3)) if sizes[2] * hops <= 12]


def subsets(size: int) -> Bools:
    """All sets of so many brokers, a row each."""
    return (np.arange(1 << size)[:, None] >> np.arange(size) & 1).astype(np.bool_)


def cases() -> Iterator[Collusion]:
    for topology, (k, n, m) in product(NETWORKS.values(), SPLITS):
        yield Collusion(SSPS(k, n, m=m), topology)
        yield Collusion(ISSPS(k, n, m=m), topology)
        route = topology.route
        for chosen in ([route[0]], route[-1:], route[1:2], route[::2], route, []):
            yield Collusion(HyShare(k, n, m=m, enclaves=chosen), topology)


SMALL = [case for case in cases() if len(case.brokers) <= 12]


def messages(case: Collusion, *, fresh: bool = True) -> twin.Messages:
    protocol = case.protocol
    return twin.send(
        case.topology.children,
        case.topology.root,
        protocol.k,
        protocol.n,
        protocol.m,
        again=not isinstance(protocol, SSPS),
        enclaves=protocol.enclaves if isinstance(protocol, HyShare) else (),
        fresh=fresh,
    )


def chosen_of(case: Collusion, row: Iterable[bool]) -> list[PhysicalBroker]:
    return [broker for broker, colludes in zip(case.brokers, row, strict=True) if colludes]


def test_the_networks_are_what_the_tests_need() -> None:
    kinds = {type(case.protocol) for case in SMALL}
    assert kinds == {SSPS, ISSPS, HyShare}
    assert {len(case.topology.route) for case in SMALL} == {1, 2, 3, 4}
    assert max(len(case.topology.children["B1"]) for case in SMALL) == 2


# -- the rule, against what colluders know from the messages themselves -------------------------


@pytest.mark.parametrize(
    "network", [pytest.param(n, marks=pytest.mark.slow if n == "ring" else ()) for n in NETWORKS]
)
def test_the_rule_says_what_the_messages_do(network: str) -> None:
    cases = [case for case in SMALL if case.topology is NETWORKS[network]]
    assert cases
    for case in cases:
        sent, rows = messages(case), subsets(len(case.brokers))
        slow = [twin.SECRET in sent.known(chosen_of(case, row)) for row in rows]
        assert case.recovers_each(rows).tolist() == slow, case


def test_one_set_is_asked_about_as_many_are() -> None:
    for case in SMALL:
        if len(case.brokers) <= 6:
            rows = subsets(len(case.brokers))
            each = [case.recovers(chosen_of(case, row)) for row in rows]
            assert each == case.recovers_each(rows).tolist()


def test_brokers_off_the_route_and_hosts_of_enclaves_learn_nothing() -> None:
    off = Collusion(ISSPS(2), NETWORKS["off the route"])
    assert not off.recovers([PhysicalBroker("B3", 1), PhysicalBroker("B3", 2)])
    assert PhysicalBroker("B3", 1) not in off.brokers
    inside = Collusion(HyShare(2, enclaves=["B1", "B2"]), Topology.line(2))
    assert inside.brokers == [PhysicalBroker("B1", 1), PhysicalBroker("B2", 1)]
    assert not inside.recovers(inside.brokers)
    assert inside.fewest is None and inside.most == 2
    assert inside.tolerated() == [1, 2, 1]
    assert inside.risk([0, 0.5, 1]).tolist() == [0, 0, 0]


SECRET = bytes(range(8))


def test_real_fragments_join_exactly_where_the_rule_says() -> None:
    """Fragments of both depths are pooled: of what B1 and B2 were sent."""
    case = Collusion(ISSPS(2, 3), Topology.line(2))
    held: dict[PhysicalBroker, dict[tuple[int, ...], bytes]] = {one: {} for one in case.brokers}
    whole = Fragment.of(SECRET, 2)
    for fragment in whole.split(3):
        held[PhysicalBroker("B1", fragment.path[-1])][fragment.path] = fragment.value
        for part in fragment.split(3):
            held[PhysicalBroker("B2", part.path[-1])][part.path] = part.value

    def join(children: dict[int, bytes]) -> bytes | None:
        parts = [Fragment(whole.name, 2, (point,), one) for point, one in children.items()]
        try:
            return join_fragments(parts, Agreed(2, 3, 1))
        except DecodeError:
            return None

    found = set()
    for row in subsets(len(case.brokers)):
        colluders = chosen_of(case, row)
        values = {path: value for one in colluders for path, value in held[one].items()}
        joined = twin.pool(values, join)
        assert joined == (SECRET if case.recovers(colluders) else None)
        found.add(joined)
    assert found == {SECRET, None}


def test_why_every_next_hop_gets_a_split_of_its_own() -> None:
    """Were the same shares sent to two next hops, brokers of both together would have k of them."""
    case = Collusion(ISSPS(2, 3), Topology.tree(2, 2))
    across = [PhysicalBroker("B2", 1), PhysicalBroker("B3", 2)]
    assert not case.recovers(across)
    assert twin.SECRET not in messages(case).known(across)
    assert twin.SECRET in messages(case, fresh=False).known(across)
    # With one next hop it makes no difference.
    line = Collusion(ISSPS(2, 3), Topology.line(2))
    own, same = messages(line), messages(line, fresh=False)
    for row in subsets(len(line.brokers)):
        colluders = chosen_of(line, row)
        assert (twin.SECRET in own.known(colluders)) == (twin.SECRET in same.known(colluders))


# -- counts --------------------------------------------------------------------------------------


def by_brute_force(case: Collusion) -> list[int]:
    rows = subsets(len(case.brokers))
    safe = rows[~case.recovers_each(rows)]
    return np.bincount(safe.sum(axis=1), minlength=len(case.brokers) + 1).tolist()


def test_counts_are_those_of_all_subsets() -> None:
    for case in SMALL:
        counts = by_brute_force(case)
        assert case.tolerated() == counts, case
        sizes = [comb(len(case.brokers), j) for j in range(len(case.brokers) + 1)]
        some = [j for j, count in enumerate(counts) if count < sizes[j]]
        assert case.fewest == (some[0] if some else None), case
        assert case.most == max(j for j, count in enumerate(counts) if count), case


@st.composite
def networks(draw: st.DrawFn) -> Collusion:
    """Up to four logical brokers, linked in any way, subscribers anywhere, any enclaves."""
    count = draw(st.integers(1, 4))
    names = [f"B{i}" for i in range(1, count + 1)]
    edges = [(names[draw(st.integers(0, i - 1))], names[i]) for i in range(1, count)]
    edges += [pair for pair in combinations(names, 2) if draw(st.booleans())]
    ends = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
    topology = Topology(edges, names[0], {f"S{i}": end for i, end in enumerate(ends)})
    k = draw(st.integers(2, 3))
    n = draw(st.integers(k, 5))
    m = draw(st.integers(k, min(n, 4)))
    enclaves = draw(st.sets(st.sampled_from(names)))
    protocols = [SSPS(k, n, m=m), ISSPS(k, n, m=m), HyShare(k, n, m=m, enclaves=enclaves)]
    return Collusion(draw(st.sampled_from(protocols)), topology)


@given(case=networks(), data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_any_small_network(case: Collusion, data: st.DataObject) -> None:
    if len(case.brokers) <= 12:
        assert case.tolerated() == by_brute_force(case)
    sent = messages(case)
    for _ in range(5):
        row = data.draw(st.lists(st.booleans(), min_size=(n := len(case.brokers)), max_size=n))
        colluders = chosen_of(case, row)
        assert case.recovers(colluders) == (twin.SECRET in sent.known(colluders))


def test_large_networks_are_counted_exactly() -> None:
    for protocol in (SSPS(3, 5), ISSPS(3, 5), HyShare(3, 5, enclaves=["B100"])):
        case = Collusion(protocol, Topology.line(200))
        counts, brokers = case.tolerated(), len(case.brokers)
        assert len(counts) == brokers + 1
        assert counts[:3] == [comb(brokers, j) for j in range(3)]
        assert 0 < counts[3] < comb(brokers, 3)
        assert counts[case.most] > 0 and not any(counts[case.most + 1 :])
    # Three of one logical broker of five, or of three different numbers of five.
    line = Topology.line(200)
    recover = comb(1000, 3) - Collusion(ISSPS(3, 5), line).tolerated()[3]
    assert recover == 200 * comb(5, 3)
    recover = comb(1000, 3) - Collusion(SSPS(3, 5), line).tolerated()[3]
    assert recover == comb(5, 3) * 200**3


# -- what the source says, and what is so ------------------------------------------------------


def least_honest(case: Collusion) -> int:
    """How many brokers of each logical one must not collude, whoever else does.

    The smallest h such that no set recovers the secret if it leaves out h of every logical broker.
    """
    rows = subsets(len(case.brokers))
    honest = np.stack(
        [
            (~rows[:, [i for i, one in enumerate(case.brokers) if one.broker == name]]).sum(axis=1)
            for name in case.topology.route
        ]
    ).min(axis=0)
    return int(honest[case.recovers_each(rows)].max()) + 1


@pytest.mark.parametrize("protocol", [SSPS, ISSPS])
def test_theorem_1_is_true_for_m_equal_n_only(protocol: type[SSPS] | type[ISSPS]) -> None:
    for k, n, m, hops in LINES:
        counts = by_brute_force(Collusion(protocol(k, n, m=m), Topology.line(hops)))
        all_safe = [count == comb(m * hops, j) for j, count in enumerate(counts)]
        # No k - 1 brokers recover the secret, and some k do.
        assert (all_safe[k - 1] and not all_safe[k]) == (m == n), (k, n, m)
        # With m < n some k - 1 do already.
        assert all_safe[k - 1] == (m == n), (k, n, m)
    assert Collusion(protocol(2, 4, m=2), Topology.line(1)).recovers([PhysicalBroker("B1", 1)])


def test_a_broker_receives_more_than_k_fragments_but_one_of_each_split() -> None:
    """The lemma in the proof of Theorem 1, and what the proof needs of it."""
    for (k, n), hops in product([(2, 2), (2, 3), (3, 3)], (1, 2, 3)):
        sent = messages(Collusion(ISSPS(k, n), Topology.line(hops))).sent
        for broker, fragments in sent.items():
            hop = int(broker[0][1:])
            assert len(fragments) == n ** (hop - 1)  # at the third hop more than k
            assert len({fragment[:2] for fragment in fragments}) == len(fragments)
    few = messages(Collusion(ISSPS(2, 3, m=2), Topology.line(1))).sent
    assert {broker: len(fragments) for broker, fragments in few.items()} == {
        ("B1", 1): 2,
        ("B1", 2): 1,
    }


def test_theorem_2_is_true_for_k_equal_n_only() -> None:
    for k, n, m, hops in LINES:
        needed = least_honest(Collusion(ISSPS(k, n, m=m), Topology.line(hops)))
        assert (needed == 1) == (k == n), (k, n, m)
        if m == n:
            assert needed == n - k + 1, (k, n)


def test_the_best_case_is_that_of_ssps() -> None:
    for k, n, m, hops in LINES:
        line = Topology.line(hops)
        split, forward = (Collusion(each(k, n, m=m), line) for each in (ISSPS, SSPS))
        assert split.most == forward.most and split.fewest == forward.fewest
        if m == n:
            ratio = Fraction(split.most, len(split.brokers))
            assert ratio == Fraction(k - 1, m)
            assert (ratio == Fraction(k - 1, k)) == (k == n)
        # Whatever SSPS tolerates ISSPS does; and more, if m = n and there is more than one hop.
        rows = subsets(len(split.brokers))
        by_split, by_forward = split.recovers_each(rows), forward.recovers_each(rows)
        assert not np.any(by_split & ~by_forward)
        if m == n:
            assert (sum(split.tolerated()) > sum(forward.tolerated())) == (hops > 1)
    # With m < n there may be no more: here a tolerated set has no first broker of any of the three.
    few = [Collusion(each(2, 3, m=2), Topology.line(3)).tolerated() for each in (ISSPS, SSPS)]
    assert few[0] == few[1] == [1, 3, 3, 1, 0, 0, 0]


# -- risk ----------------------------------------------------------------------------------------


def exact_risk(case: Collusion, share: Fraction) -> Fraction:
    size, (p, q) = len(case.brokers), share.as_integer_ratio()
    recovering = [comb(size, j) - safe for j, safe in enumerate(case.tolerated())]
    total = sum(sets * p**j * (q - p) ** (size - j) for j, sets in enumerate(recovering))
    return Fraction(total, q**size)


SHARES = [0.0, 1e-9, 1e-3, 0.05, 0.25, 0.5, 0.9, 1 - 2**-40, 1.0]


def test_risk_is_the_sum_over_all_sets() -> None:
    for case in SMALL:
        risks = case.risk(SHARES)
        assert risks.shape == (len(SHARES),)
        for share, risk in zip(SHARES, risks.tolist(), strict=True):
            assert risk == pytest.approx(
                float(exact_risk(case, Fraction(share))), rel=1e-12, abs=0
            ), case


def test_risk_of_a_large_network_is_as_exact() -> None:
    for protocol in (SSPS(3, 5), ISSPS(20, 30), HyShare(7, 9, m=8, enclaves=["B2", "B9"])):
        case = Collusion(protocol, Topology.line(30))
        for share in (1e-6, 0.01, 0.3):
            risk = float(case.risk(share))
            assert risk == pytest.approx(float(exact_risk(case, Fraction(share))), rel=1e-12, abs=0)
    # Far below what 1 minus a probability could show.
    tiny = float(Collusion(ISSPS(20, 30), Topology.line(30)).risk(1e-6))
    assert 0 < tiny < 1e-100


def test_risk_has_the_shape_of_the_shares() -> None:
    case = Collusion(ISSPS(2), Topology.line(2))
    assert case.risk(0.5).shape == () and case.risk(np.full((2, 3), 0.1)).shape == (2, 3)
    grid = case.risk(np.linspace(0, 1, 101))
    assert grid[0] == 0 and grid[-1] == 1 and np.all(np.diff(grid) > 0)
    # Where rounding takes a sum of probabilities above 1.
    grid = Collusion(ISSPS(2, 40), Topology.line(2)).risk(np.linspace(0.5, 1, 1001))
    assert np.all(grid <= 1) and np.all(grid > 0.999)


# -- samples -------------------------------------------------------------------------------------

LARGER = [
    Collusion(protocol, Topology.tree(3, 2))
    for protocol in (SSPS(2, 3), ISSPS(3, 4), ISSPS(3, 5, m=4), HyShare(3, 5, enclaves=["B1"]))
]


def assert_near(case: Collusion, exact: float, **options: Any) -> None:
    estimate = estimate_risk(case, 40_000, seed=7, **options)
    assert abs(estimate.risk - exact) < 5 * estimate.error


@pytest.mark.parametrize("case", LARGER, ids=str)
def test_samples_agree_with_the_exact_risk(case: Collusion) -> None:
    for share in (0.1, 0.3):
        assert_near(case, float(case.risk(share)), share=share)
    for count in (0, 2, 5, len(case.brokers)):
        exact = 1 - case.tolerated()[count] / comb(len(case.brokers), count)
        assert_near(case, exact, count=count)


def test_the_standard_error_is_that_of_repeated_estimates() -> None:
    case = Collusion(ISSPS(2, 3), Topology.line(3))
    found = [estimate_risk(case, 500, seed=seed, share=0.2) for seed in range(400)]
    spread = np.std([one.risk for one in found])
    # Of 400 values the standard deviation is known to 1 / sqrt(800) of itself.
    assert spread == pytest.approx(np.mean([one.error for one in found]), rel=5 / 800**0.5)


def test_a_seed_gives_one_estimate() -> None:
    case = Collusion(ISSPS(2, 3), Topology.line(3))
    one, again, other = (estimate_risk(case, 5000, seed=s, share=0.2) for s in (1, 1, 2))
    assert one == again != other


def test_machines_that_carry_several_brokers() -> None:
    line = Topology.line(4)
    case = Collusion(ISSPS(2, 3), line)
    # One machine for each number: ISSPS is then no better than a single logical broker.
    rack = {broker: broker.number for broker in case.brokers}
    exact = float(Collusion(ISSPS(2, 3), Topology.line(1)).risk(0.2))
    assert_near(case, exact, share=0.2, machines=rack)
    # One for each logical broker: any of them is enough.
    site = {broker: broker.broker for broker in case.brokers}
    assert_near(case, 1 - 0.8**4, share=0.2, machines=site)
    assert estimate_risk(case, 100, seed=3, count=1, machines=site).risk == 1
    # Any assignment, some brokers alone: all sets of machines.
    mixed: dict[PhysicalBroker, Any] = {
        PhysicalBroker("B1", 1): 0,
        PhysicalBroker("B2", 1): 0,
        PhysicalBroker("B1", 2): 1,
        PhysicalBroker("B3", 3): 1,
    }
    names = [mixed.get(broker, broker) for broker in case.brokers]
    units = [*dict.fromkeys(names)]
    chosen = subsets(len(units))
    recovered = case.recovers_each(chosen[:, [units.index(name) for name in names]])
    sizes = chosen.sum(axis=1)
    for count in (1, 2, 4):
        exact = float(recovered[sizes == count].mean())
        assert_near(case, exact, count=count, machines=mixed)
    exact = float(np.sum(recovered * 0.3**sizes * 0.7 ** (len(units) - sizes)))
    assert_near(case, exact, share=0.3, machines=mixed)
    # A machine named like a broker is another one.
    named = {PhysicalBroker("B1", 1): ("B1", 2)}
    line = Collusion(ISSPS(2), Topology.line(1))
    assert estimate_risk(line, 2000, seed=1, count=1, machines=named).risk == 0.0


# -- refusals ------------------------------------------------------------------------------------


def test_refusals_name_the_argument() -> None:
    case = Collusion(HyShare(2, 3, enclaves=["B2"]), Topology.line(2))
    for broker in [("B9", 1), ("B1", 0), ("B1", 4), ("B2", 2), ("B1", "1")]:
        with pytest.raises(ParameterError, match=r"^colluders must be PhysicalBroker"):
            case.recovers([PhysicalBroker(*broker)])  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match=r"^colluders .* got 'B1\.1'"):
        case.recovers(["B1.1"])  # type: ignore[list-item]
    with pytest.raises(ParameterError, match=r"^enclaves .* 'B7' is none"):
        Collusion(HyShare(2, enclaves=["B7"]), Topology.line(2))
    for wrong in (np.zeros((1, 3), np.bool_), np.zeros(4, np.bool_), np.zeros((1, 4), np.uint8)):
        with pytest.raises(
            ParameterError, match=r"^chosen must be a bool array of shape \(sets, 4\)"
        ):
            case.recovers_each(wrong)  # type: ignore[arg-type]
    for share in (-0.1, 5, float("nan"), [0.5, 2]):
        with pytest.raises(ParameterError, match=r"^share must be"):
            case.risk(share)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"samples": 0, "share": 0.5}, "^samples must be"),
        ({"share": 0.5, "count": 1}, "either share or count"),
        ({}, "either share or count"),
        ({"share": 1.5}, "^share must be"),
        ({"count": 5}, "^count must be a whole number from 0 to 4"),
        ({"count": 0.5}, "^count must be"),
        ({"share": 0.5, "machines": {PhysicalBroker("B9", 1): "x"}}, "^machines must be"),
    ],
)
def test_refusals_of_samples(wrong: dict[str, object], message: str) -> None:
    case = Collusion(HyShare(2, 3, enclaves=["B2"]), Topology.line(2))
    with pytest.raises(ParameterError, match=message):
        estimate_risk(case, **{"samples": 10, "seed": 1, **wrong})  # type: ignore[arg-type]
