"""Trials: a network whose faults and colluders are drawn at random, and the result.

A trial is made from plain values, so that a table of trials can be spread over workers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np

from ccbps.checks import choice, number, whole
from ccbps.errors import ParameterError
from ccbps.overlay.splits.protocols import ISSPS, SSPS, HyShare
from ccbps.overlay.splits.simulator import HONEST, Behaviour, Simulation
from ccbps.overlay.topology import Topology

SECRET_BYTES: Final = 32
FRAGMENTS: Final = 1 << 21
"""Number of fragments of secrets that are simulated together."""
MOST_HELD: Final = 1 << 24
"""Largest number of messages of a trial with fragments. They take some ten seconds, and at most
1.5 GB."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Result of a trial.

    Attributes:
        messages: number of messages that were sent.
        formula: number of messages that the protocol takes without faults.
        held: True if messages held fragments, False if they were only counted.
        delivered: share of secrets that subscribers have, of all secrets and subscribers.
        recovered: share of secrets that the colluders recovered from their fragments.
    """

    messages: int
    formula: int
    held: bool
    delivered: float
    recovered: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Network with random failures and random colluders.

    Attributes:
        topology: "line", "star", "ring" or "tree".
        hops: brokers of a line, leaves of a star, brokers of a ring, or levels of a tree.
        fanout: links of each broker of a tree to brokers of the next level.
        protocol: "SSPS", "ISSPS" or "HyShare".
        k: number of fragments of a split that recover it.
        n: number of fragments of a split; k by default.
        enclaves: names of logical brokers that are enclaves, for HyShare.
        replicas: number of replicas of each enclave.
        secrets: number of secrets of 32 bytes that the publisher shares.
        failing: probability of each physical broker to have crashed.
        colluding: probability of each physical broker to collude with the others that do.
        seed: seed of all random choices.
        most_held: largest number of messages with fragments. More messages are only counted.

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
    replicas: int = 1
    secrets: int = 1
    failing: float = 0.0
    colluding: float = 0.0
    seed: int = 0
    most_held: int = MOST_HELD

    def network(self) -> Topology:
        """Make the topology.

        Raises:
            ParameterError: there is none of this name, or a size is not possible.
        """
        choice("topology", self.topology, ("line", "star", "ring", "tree"))
        if self.topology == "tree":
            return Topology.tree(self.hops, self.fanout)
        shape: Topology = getattr(Topology, self.topology)(self.hops)
        return shape

    def rule(self) -> SSPS | ISSPS:
        """Make the protocol.

        Raises:
            ParameterError: there is none of this name, or a number is not possible.
        """
        choice("protocol", self.protocol, ("SSPS", "ISSPS", "HyShare"))
        if self.protocol == "HyShare":
            replicas = dict.fromkeys(self.enclaves, self.replicas)
            return HyShare(self.k, self.n, enclaves=self.enclaves, replicas=replicas)
        if self.enclaves:
            raise ParameterError(f"enclaves are for HyShare, and protocol is {self.protocol!r}")
        return SSPS(self.k, self.n) if self.protocol == "SSPS" else ISSPS(self.k, self.n)

    def run(self) -> TrialResult:
        """Simulate the network.

        Raises:
            ParameterError: a name, size, probability or count is not possible; or fragments are
                needed, and there would be too many.
        """
        number("failing", self.failing, 0, 1)
        number("colluding", self.colluding, 0, 1)
        whole("secrets", self.secrets, 1)
        topology, protocol = self.network(), self.rule()
        rng = np.random.default_rng([whole("seed", self.seed, 0), 1])
        brokers = protocol.brokers(topology)
        fails, colludes = rng.random((2, len(brokers))) < [[self.failing], [self.colluding]]
        drawn = {
            broker: Behaviour(curious=bool(curious), crash=0.0 if crashed else float("inf"))
            for broker, crashed, curious in zip(brokers, fails, colludes, strict=True)
        }
        behaviours = {broker: drawn[broker] for broker in brokers if drawn[broker] != HONEST}
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
        colluders = [broker for broker in behaviours if behaviours[broker].curious]
        messages = delivered = recovered = 0
        step = max(1, FRAGMENTS * self.secrets // formula)
        for start in range(0, self.secrets, step):
            count = min(step, self.secrets - start)
            secrets = rng.integers(0, 256, (count, SECRET_BYTES), dtype=np.uint8)
            outcome = simulation.share(secrets)
            messages += outcome.messages
            delivered += sum(int(intact.sum()) for intact in outcome.intact.values())
            learned = simulation.recovered(outcome, colluders)
            if learned.count:
                recovered += int((learned.value == secrets[learned.secret]).all(axis=1).sum())
        wanted = self.secrets * len(topology.subscribers)
        return TrialResult(messages, formula, True, delivered / wanted, recovered / self.secrets)
