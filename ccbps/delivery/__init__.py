"""Delivery: the payload reaches the matched subscribers, and nobody else can read it."""

from ccbps.delivery.clustered import ClusteredCache, ClusteredPopularCache
from ccbps.delivery.group_messages import SealedEvent
from ccbps.delivery.group_opener import GroupOpener
from ccbps.delivery.group_sealer import GroupSealer
from ccbps.delivery.groups import Clusters, pack_groups
from ccbps.delivery.hierarchy import KeyHierarchy
from ccbps.delivery.key_cache import KeyCache
from ccbps.delivery.learned import LearnedCache
from ccbps.delivery.naive import PayloadOpener, PayloadSealer
from ccbps.delivery.plans import Plan, Strategy, Wrap
from ccbps.delivery.whole_groups import BuildUpCache, Naive, SimpleCache
from ccbps.keys.delivery_keys import BrokerState, SubscriberKey, SubscriberRing

__all__ = [
    "BrokerState",
    "BuildUpCache",
    "ClusteredCache",
    "ClusteredPopularCache",
    "Clusters",
    "GroupOpener",
    "GroupSealer",
    "KeyCache",
    "KeyHierarchy",
    "LearnedCache",
    "Naive",
    "PayloadOpener",
    "PayloadSealer",
    "Plan",
    "SealedEvent",
    "SimpleCache",
    "Strategy",
    "SubscriberKey",
    "SubscriberRing",
    "Wrap",
    "pack_groups",
]
