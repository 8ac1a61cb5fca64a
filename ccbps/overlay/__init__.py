"""Networks of brokers: how a first secret gets through one that nobody trusts."""

from ccbps.overlay.fragments import Fragment, join_fragments
from ccbps.overlay.protocols import ISSPS, SSPS, HyShare
from ccbps.overlay.topology import PhysicalBroker, Topology, parallel_paths, shared_brokers

__all__ = [
    "ISSPS",
    "SSPS",
    "Fragment",
    "HyShare",
    "PhysicalBroker",
    "Topology",
    "join_fragments",
    "parallel_paths",
    "shared_brokers",
]
