"""Networks of brokers: how a first secret gets through one that nobody trusts."""

from ccbps.overlay.behaviour import HONEST, Behaviour, Outcome
from ccbps.overlay.collusion import Collusion
from ccbps.overlay.collusion_samples import Estimate, estimate_risk
from ccbps.overlay.fragments import Agreed, Fragment, join_fragments
from ccbps.overlay.paths import parallel_paths, shared_brokers
from ccbps.overlay.placement import (
    breadth_first,
    fewest_messages,
    longest_chain,
    most_enclaves,
    shortest_chains,
)
from ccbps.overlay.protocols import ISSPS, SSPS, HyShare
from ccbps.overlay.simulator import Simulation
from ccbps.overlay.topology import PhysicalBroker, Topology
from ccbps.overlay.trials import Trial, TrialResult

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
