"""Access control: policies, tokens, delegations, labels and domains."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.access.authority import Authority as Authority
    from ccbps.access.delegation import Delegation as Delegation
    from ccbps.access.delegation import Link as Link
    from ccbps.access.guard import Guard as Guard
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
