"""Networks of brokers, and the transport of a first secret through a network that nobody trusts."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.overlay.credentials.member import Member as Member
    from ccbps.overlay.credentials.tree import Certificate as Certificate
    from ccbps.overlay.credentials.tree import Credential as Credential
    from ccbps.overlay.credentials.tree import CredentialEvent as CredentialEvent
    from ccbps.overlay.credentials.tree import CredentialTree as CredentialTree
    from ccbps.overlay.credentials.tree import split_credential as split_credential
    from ccbps.overlay.guarded import GuardedBroker as GuardedBroker
    from ccbps.overlay.guarded import GuardedMessage as GuardedMessage
    from ccbps.overlay.links import Links as Links
    from ccbps.overlay.links import Port as Port
    from ccbps.overlay.onion.cells import RelayKey as RelayKey
    from ccbps.overlay.onion.circuit import Circuit as Circuit
    from ccbps.overlay.onion.circuit import draw_path as draw_path
    from ccbps.overlay.onion.garlic import Garlic as Garlic
    from ccbps.overlay.onion.garlic import GarlicRelay as GarlicRelay
    from ccbps.overlay.onion.relay import Relay as Relay
    from ccbps.overlay.onion.relay import Stream as Stream
    from ccbps.overlay.onion.relay import cookie_of as cookie_of
    from ccbps.overlay.onion.served import RelayServer as RelayServer
    from ccbps.overlay.onion.served import Tunnel as Tunnel
    from ccbps.overlay.onion.universal_onion import Onion as Onion
    from ccbps.overlay.onion.universal_onion import OnionNode as OnionNode
    from ccbps.overlay.onion.universal_onion import Passage as Passage
    from ccbps.overlay.onion.universal_onion import ReturnOnion as ReturnOnion
    from ccbps.overlay.onion.universal_onion import Step as Step
    from ccbps.overlay.onion.universal_onion import UniversalOnions as UniversalOnions
    from ccbps.overlay.rights import OverlayPolicy as OverlayPolicy
    from ccbps.overlay.routing.edge import EdgeBroker as EdgeBroker
    from ccbps.overlay.routing.relations import MatcherRelation as MatcherRelation
    from ccbps.overlay.routing.relations import PlainRelation as PlainRelation
    from ccbps.overlay.routing.relations import Relation as Relation
    from ccbps.overlay.routing.reliable import ReliableRouter as ReliableRouter
    from ccbps.overlay.routing.router import Publication as Publication
    from ccbps.overlay.routing.router import Router as Router
    from ccbps.overlay.routing.served import ServedRouter as ServedRouter
    from ccbps.overlay.splits.collusion import Collusion as Collusion
    from ccbps.overlay.splits.collusion import RiskEstimate as RiskEstimate
    from ccbps.overlay.splits.collusion import estimate_risk as estimate_risk
    from ccbps.overlay.splits.fragments import Agreed as Agreed
    from ccbps.overlay.splits.fragments import Fragment as Fragment
    from ccbps.overlay.splits.fragments import join_fragments as join_fragments
    from ccbps.overlay.splits.moving import MovingEnclaves as MovingEnclaves
    from ccbps.overlay.splits.placement import breadth_first as breadth_first
    from ccbps.overlay.splits.placement import fewest_messages as fewest_messages
    from ccbps.overlay.splits.placement import longest_chain as longest_chain
    from ccbps.overlay.splits.placement import most_enclaves as most_enclaves
    from ccbps.overlay.splits.placement import shortest_chains as shortest_chains
    from ccbps.overlay.splits.protocols import ISSPS as ISSPS
    from ccbps.overlay.splits.protocols import SSPS as SSPS
    from ccbps.overlay.splits.protocols import HyShare as HyShare
    from ccbps.overlay.splits.simulator import HONEST as HONEST
    from ccbps.overlay.splits.simulator import Behaviour as Behaviour
    from ccbps.overlay.splits.simulator import Outcome as Outcome
    from ccbps.overlay.splits.simulator import Simulation as Simulation
    from ccbps.overlay.splits.trials import Trial as Trial
    from ccbps.overlay.splits.trials import TrialResult as TrialResult
    from ccbps.overlay.topology import PhysicalBroker as PhysicalBroker
    from ccbps.overlay.topology import Topology as Topology
    from ccbps.overlay.topology import missing_links as missing_links
    from ccbps.overlay.topology import parallel_paths as parallel_paths
    from ccbps.overlay.topology import shared_brokers as shared_brokers
