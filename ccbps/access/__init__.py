"""Who may do what: labels of information flow, policies of hops, domains of brokers."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.access.domains import DomainManager as DomainManager
    from ccbps.access.domains import DomainMap as DomainMap
    from ccbps.access.domains import KeyRing as KeyRing
    from ccbps.access.domains import SealedMessage as SealedMessage
    from ccbps.access.domains import Topic as Topic
    from ccbps.access.hops import AgeingQueue as AgeingQueue
    from ccbps.access.hops import Clearance as Clearance
    from ccbps.access.hops import Connections as Connections
    from ccbps.access.hops import Hop as Hop
    from ccbps.access.hops import HopPolicy as HopPolicy
    from ccbps.access.hops import HopRule as HopRule
    from ccbps.access.labels import Body as Body
    from ccbps.access.labels import Label as Label
    from ccbps.access.labels import Party as Party
    from ccbps.access.labels import Stamp as Stamp
