"""Networks of brokers, and the way of a first secret through a network that nobody trusts."""

from ccbps.overlay.splits.collusion import Collusion, Estimate, estimate_risk
from ccbps.overlay.splits.fragments import Agreed, Fragment, join_fragments
from ccbps.overlay.splits.placement import (
    breadth_first,
    fewest_messages,
    longest_chain,
    most_enclaves,
    shortest_chains,
)
from ccbps.overlay.splits.protocols import ISSPS, SSPS, HyShare
from ccbps.overlay.splits.simulator import HONEST, Behaviour, Outcome, Simulation
from ccbps.overlay.splits.trials import Trial, TrialResult
from ccbps.overlay.topology import PhysicalBroker, Topology, parallel_paths, shared_brokers

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
