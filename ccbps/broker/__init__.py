"""The running broker: subscriptions, publications, deliveries, quotas and a file."""

from ccbps.broker.matching_broker import MatchingBroker
from ccbps.broker.messages import Delivery, Publication, Receipt, Subscription
from ccbps.broker.quotas import Quota

__all__ = ["Delivery", "MatchingBroker", "Publication", "Quota", "Receipt", "Subscription"]
