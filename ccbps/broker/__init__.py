"""The running broker: subscriptions, publications, deliveries, quotas and a file."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.broker.enforcement import Enactment as Enactment
    from ccbps.broker.enforcement import Enforcement as Enforcement
    from ccbps.broker.enforcement import enactment as enactment
    from ccbps.broker.enforcement import permitted as permitted
    from ccbps.broker.matching_broker import MatchingBroker as MatchingBroker
    from ccbps.broker.messages import Delivery as Delivery
    from ccbps.broker.messages import Hellos as Hellos
    from ccbps.broker.messages import Payloads as Payloads
    from ccbps.broker.messages import Publication as Publication
    from ccbps.broker.messages import Receipt as Receipt
    from ccbps.broker.messages import SealedGrants as SealedGrants
    from ccbps.broker.messages import Subscription as Subscription
    from ccbps.broker.quotas import Quota as Quota
