"""Who may do what: policies, tokens, delegations, labels, hops and domains."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.access.authority import Authority as Authority
    from ccbps.access.delegation import Delegation as Delegation
    from ccbps.access.delegation import Link as Link
    from ccbps.access.domains import DomainManager as DomainManager
    from ccbps.access.domains import DomainMap as DomainMap
    from ccbps.access.domains import KeyRing as KeyRing
    from ccbps.access.domains import SealedMessage as SealedMessage
    from ccbps.access.domains import Topic as Topic
    from ccbps.access.guard import Guard as Guard
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
    from ccbps.access.negotiation import Negotiation as Negotiation
    from ccbps.access.negotiation import Offer as Offer
    from ccbps.access.notice import Entitlement as Entitlement
    from ccbps.access.notice import Notice as Notice
    from ccbps.access.notice import Permit as Permit
    from ccbps.access.policy import Change as Change
    from ccbps.access.policy import Decision as Decision
    from ccbps.access.policy import Grant as Grant
    from ccbps.access.policy import Policy as Policy
    from ccbps.access.policy import Rule as Rule
    from ccbps.access.tokens import Presentation as Presentation
    from ccbps.access.tokens import Token as Token
    from ccbps.access.tokens import attenuate_token as attenuate_token
    from ccbps.access.tokens import issue_token as issue_token
    from ccbps.access.tokens import present_token as present_token
    from ccbps.access.tokens import read_token as read_token
