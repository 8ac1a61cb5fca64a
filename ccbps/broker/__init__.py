"""The running broker: subscriptions, publications, deliveries, quotas and a file."""

from ccbps.broker.matching_broker import MatchingBroker
from ccbps.broker.messages import Delivery, Payloads, Publication, Receipt, Subscription
from ccbps.broker.quotas import Quota

__all__ = [
    "Delivery",
    "MatchingBroker",
    "Payloads",
    "Publication",
    "Quota",
    "Receipt",
    "Subscription",
]
