"""Trials: one network, faults and colluders drawn at random, and what came of it.

A trial is made from plain values, so that a table of them can be spread over workers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np

from ccbps.errors import ParameterError
from ccbps.overlay.splits.behaviour import Behaviour
from ccbps.overlay.splits.protocols import ISSPS, SSPS, HyShare
from ccbps.overlay.splits.simulator import Simulation
from ccbps.overlay.topology.topology import PhysicalBroker, Topology, check_count

SECRET_BYTES: Final = 32
FRAGMENTS: Final = 1 << 21
"""Fragments of secrets that are simulated together."""
MOST_HELD: Final = 1 << 24
"""Messages of one trial that hold fragments: some ten seconds, and at most 1.5 GB."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What came of a trial.

    Attributes:
        messages: that were sent.
        formula: messages that the protocol takes without faults.
        held: whether messages held fragments; if not, they were only counted.
        delivered: the share of secrets that subscribers have, of all secrets and subscribers.
        recovered: the share of secrets that the colluders joined from what they saw.
    """

    messages: int
    formula: int
    held: bool
    delivered: float
    recovered: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One network, and how many of its brokers fail or collude.

    Attributes:
        topology: "line", "star", "ring" or "tree".
        hops: brokers of a line, leaves of a star, brokers of a ring, or levels of a tree.
        fanout: of a tree.
        protocol: "SSPS", "ISSPS" or "HyShare".
        k: fragments of a split that give it back.
        n: fragments of a split; k by default.
        enclaves: logical brokers that are enclaves, of HyShare.
        secrets: of 32 bytes, which the publisher shares.
        failing: the probability of each physical broker to have crashed.
        colluding: the probability of each physical broker to collude with the others that do.
        seed: of all that is random.
        most_held: with more messages than this, they are only counted, and hold nothing.

    Example:
        >>> from ccbps.overlay import Trial
        >>> result = Trial(topology="line", hops=3, protocol="ISSPS", k=3, secrets=400).run()
        >>> result.messages == result.formula == 400 * (2 * 3**3 + 3**2 + 3)
        True
        >>> result.delivered, result.recovered
        (1.0, 0.0)
    """

    topology: str
    hops: int
    protocol: str
    k: int
    n: int | None = None
    fanout: int = 1
    enclaves: Collection[str] = ()
    secrets: int = 1
    failing: float = 0.0
    colluding: float = 0.0
    seed: int = 0
    most_held: int = MOST_HELD

    def network(self) -> Topology:
        """The topology.

        Raises:
            ParameterError: there is none of this name, or a size is not possible.
        """
        if self.topology == "tree":
            return Topology.tree(self.hops, self.fanout)
        shapes = {"line": Topology.line, "star": Topology.star, "ring": Topology.ring}
        if self.topology not in shapes:
            raise ParameterError(
                f"topology must be 'line', 'star', 'ring' or 'tree', got {self.topology!r}"
            )
        return shapes[self.topology](self.hops)

    def rule(self) -> SSPS | ISSPS:
        """The protocol.

        Raises:
            ParameterError: there is none of this name, or a number is not possible.
        """
        if self.enclaves and self.protocol != "HyShare":
            raise ParameterError(f"enclaves are for HyShare, and protocol is {self.protocol!r}")
        if self.protocol == "SSPS":
            return SSPS(self.k, self.n)
        if self.protocol == "ISSPS":
            return ISSPS(self.k, self.n)
        if self.protocol == "HyShare":
            return HyShare(self.k, self.n, enclaves=self.enclaves)
        raise ParameterError(
            f"protocol must be 'SSPS', 'ISSPS' or 'HyShare', got {self.protocol!r}"
        )

    def run(self) -> TrialResult:
        """Simulate it.

        Raises:
            ParameterError: see `network` and `rule`; or a probability or count is not possible; or
                fragments are needed, and there would be too many.
        """
        self._check()
        topology, protocol = self.network(), self.rule()
        rng = np.random.default_rng([self.seed, 1])
        behaviours = self._behaviours(protocol.brokers(topology), rng)
        simulation = Simulation(topology, protocol, behaviours=behaviours, seed=self.seed)
        formula = protocol.messages(topology, self.secrets)
        if formula > self.most_held:
            if behaviours:
                raise ParameterError(
                    f"{formula:,} messages are too many for brokers that fail or look, with "
                    f"most_held={self.most_held:,}: share fewer secrets, or on shorter ways"
                )
            counted = simulation.count(self.secrets)
            return TrialResult(counted.messages, formula, False, 1.0, 0.0)
        colluders = [broker for broker, what in behaviours.items() if what.curious]
        messages = delivered = recovered = 0
        step = max(1, FRAGMENTS * self.secrets // formula)
        for start in range(0, self.secrets, step):
            count = min(step, self.secrets - start)
            secrets = rng.integers(0, 256, (count, SECRET_BYTES), dtype=np.uint8)
            outcome = simulation.share(secrets)
            messages += outcome.messages
            delivered += sum(int(intact.sum()) for intact in outcome.intact.values())
            found = simulation.recovered(outcome, colluders)
            if found.count:
                right = (found.value == secrets[found.secret]).all(axis=1)
                recovered += int(right.sum())
        wanted = self.secrets * len(topology.subscribers)
        return TrialResult(messages, formula, True, delivered / wanted, recovered / self.secrets)

    def _check(self) -> None:
        for name, share in (("failing", self.failing), ("colluding", self.colluding)):
            if not 0 <= share <= 1:
                raise ParameterError(f"{name} must be a probability of 0 to 1, got {share!r}")
        check_count(self.secrets, "secrets")
        check_count(self.seed, "seed", least=0)

    def _behaviours(
        self, hosts: list[PhysicalBroker], rng: np.random.Generator
    ) -> dict[PhysicalBroker, Behaviour]:
        """Of the brokers that fail or collude."""
        fails, colludes = rng.random((2, len(hosts))) < [[self.failing], [self.colluding]]
        return {
            host: Behaviour(curious=bool(tells), crash=0.0 if fails_ else float("inf"))
            for host, fails_, tells in zip(hosts, fails, colludes, strict=True)
            if fails_ or tells
        }
