"""Networks of brokers: how a first secret gets through one that nobody trusts."""

from ccbps.overlay.splits.behaviour import HONEST, Behaviour, Outcome
from ccbps.overlay.splits.collusion import Collusion
from ccbps.overlay.splits.collusion_samples import Estimate, estimate_risk
from ccbps.overlay.splits.fragments import Agreed, Fragment, join_fragments
from ccbps.overlay.splits.placement import (
    breadth_first,
    fewest_messages,
    longest_chain,
    most_enclaves,
    shortest_chains,
)
from ccbps.overlay.splits.protocols import ISSPS, SSPS, HyShare
from ccbps.overlay.splits.simulator import Simulation
from ccbps.overlay.splits.trials import Trial, TrialResult
from ccbps.overlay.topology.paths import parallel_paths, shared_brokers
from ccbps.overlay.topology.topology import PhysicalBroker, Topology

__all__ = [
    "HONEST",
    "ISSPS",
    "SSPS",
    "Agreed",
    "Behaviour",
    "Collusion",
    "Estimate",
    "Fragment",
    "HyShare",
    "Outcome",
    "PhysicalBroker",
    "Simulation",
    "Topology",
    "Trial",
    "TrialResult",
    "breadth_first",
    "estimate_risk",
    "fewest_messages",
    "join_fragments",
    "longest_chain",
    "most_enclaves",
    "parallel_paths",
    "shared_brokers",
    "shortest_chains",
]
