"""What brokers that collude learn of a secret: nothing, from the messages that they really got.

Splitting is linear over the bits: all that brokers see is a sum of bits of the secret and of
uniform bits that nobody else uses. So they learn nothing if, and only if, no sum of bits that they
see is a sum of bits of the secret alone (otherwise the distributions for two secrets are the same,
or do not overlap). Many runs, each with secrets and randomness of its own, are enough rows to find
every such sum by elimination. A second test compares distributions, without that argument.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from ccbps.arrays import Bytes
from ccbps.overlay import (
    ISSPS,
    SSPS,
    Behaviour,
    HyShare,
    Outcome,
    PhysicalBroker,
    Simulation,
    Topology,
)

SIZE = 2
"""Bytes of a secret."""
SECRETS = 1500
"""More than bits seen, so that a sum that fits all of them by chance has probability 2^-100."""


def run(topology: Topology, protocol: SSPS | ISSPS, secrets: Bytes, seed: int = 5) -> Outcome:
    behaviours = dict.fromkeys(protocol.brokers(topology), Behaviour(curious=True))
    return Simulation(topology, protocol, behaviours=behaviours, seed=seed).share(secrets)


def seen(outcome: Outcome, colluders: Iterable[PhysicalBroker]) -> Bytes:
    """A row of all bytes that colluders saw of each secret."""
    columns = []
    for broker in colluders:
        for view in outcome.views[broker]:
            rows = view.value[np.lexsort((*view.path.T[::-1], view.secret))]
            columns.append(rows.reshape(len(outcome.intact["S1"]), -1))
    return np.concatenate(columns, axis=1)


def rank(rows: Bytes) -> int:
    """Of a matrix of bits, packed in rows of bytes."""
    numbers = [int.from_bytes(row.tobytes()) for row in rows]
    found = 0
    while numbers:
        pivot = numbers.pop()
        if pivot:
            found += 1
            low = pivot & -pivot
            numbers = [number ^ pivot if number & low else number for number in numbers]
    return found


def bits_told(view: Bytes, secrets: Bytes) -> int:
    """Sums of bits of the secret that follow from what was seen."""
    both = np.concatenate([view, secrets], axis=1)
    assert len(both) >= 8 * both.shape[1] + 100
    return rank(view) + 8 * secrets.shape[1] - rank(both)


def coalitions(
    topology: Topology, protocol: SSPS | ISSPS, count: int
) -> list[list[PhysicalBroker]]:
    """The worst for so many of a kind: all of one logical broker, of each one, of whole paths."""
    numbers = [*combinations(range(1, protocol.m + 1), count)]
    whole = [[PhysicalBroker(b, i) for b in topology.route for i in some] for some in numbers]
    if isinstance(protocol, SSPS):
        return whole
    hidden = protocol.enclaves if isinstance(protocol, HyShare) else frozenset()
    open_ = [broker for broker in topology.route if broker not in hidden]
    return [
        [PhysicalBroker(b, i) for j, b in enumerate(open_) for i in numbers[j % len(numbers)]]
        for numbers in ([*numbers[s:], *numbers[:s]] for s in range(len(numbers)))
    ]


CASES = [
    (Topology.line(3), SSPS(3)),
    (Topology.line(3), SSPS(2, 4)),
    (Topology.line(3), ISSPS(2)),
    (Topology.line(2), ISSPS(3)),
    (Topology.line(2), ISSPS(2, 3)),
    (Topology.line(3), HyShare(2, enclaves=["B2"])),
    (Topology.tree(2, 2), ISSPS(2)),
    (Topology.ring(4), ISSPS(2)),
]


@pytest.mark.parametrize(("topology", "protocol"), CASES, ids=lambda x: repr(x).strip("<>"))
def test_fewer_than_k_of_each_logical_broker_learn_nothing(
    topology: Topology, protocol: SSPS | ISSPS
) -> None:
    secrets = np.random.default_rng(3).integers(0, 256, (SECRETS, SIZE), dtype=np.uint8)
    outcome = run(topology, protocol, secrets)
    for few in coalitions(topology, protocol, protocol.k - 1):
        assert bits_told(seen(outcome, few), secrets) == 0
    for enough in coalitions(topology, protocol, protocol.k)[:1]:
        assert bits_told(seen(outcome, enough), secrets) == 8 * SIZE


def test_colluders_across_brokers_learn_nothing_in_issps_and_all_in_ssps() -> None:
    secrets = np.random.default_rng(4).integers(0, 256, (SECRETS, SIZE), dtype=np.uint8)
    line = Topology.line(3)
    across = [PhysicalBroker("B1", 1), PhysicalBroker("B2", 2), PhysicalBroker("B3", 1)]
    assert bits_told(seen(run(line, ISSPS(2), secrets), across), secrets) == 0
    assert bits_told(seen(run(line, SSPS(2), secrets), across), secrets) == 8 * SIZE


def difference(brokers: list[PhysicalBroker], protocol: SSPS | ISSPS) -> float:
    """The p-value of a chi-square test: are the upper halves of two bytes that these brokers see
    distributed alike for two secrets?"""
    tables = []
    for secret in (0x00, 0xB7):
        secrets = np.full((20_000, 1), secret, dtype=np.uint8)
        view = seen(run(Topology.line(2), protocol, secrets, seed=secret), brokers) >> 4
        tables.append(np.bincount(view[:, 0] * 16 + view[:, 1], minlength=256))
    both = np.array(tables)[:, np.sum(tables, axis=0) > 0]
    return float(stats.chi2_contingency(both).pvalue)


def test_distributions_of_two_secrets() -> None:
    first, second = PhysicalBroker("B2", 1), PhysicalBroker("B1", 2)
    assert difference([first], ISSPS(2)) > 1e-6
    assert difference([second, first], ISSPS(2)) > 1e-6
    assert difference([second, PhysicalBroker("B1", 1)], ISSPS(2)) < 1e-100
    assert difference([second, first], SSPS(2)) < 1e-100
