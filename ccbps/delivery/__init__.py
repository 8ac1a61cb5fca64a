"""Delivery of payloads to matched subscribers; nobody else can read them."""

from ccbps.delivery.clustered import ClusteredCache, ClusteredPopularCache
from ccbps.delivery.group_opener import GroupOpener
from ccbps.delivery.group_protocol import SealedEvent
from ccbps.delivery.group_sealer import GroupSealer
from ccbps.delivery.groups import Clusters, pack_groups
from ccbps.delivery.key_cache import KeyCache
from ccbps.delivery.learned import LearnedCache
from ccbps.delivery.naive import PayloadOpener, PayloadSealer
from ccbps.delivery.plans import Strategy, Wrap
from ccbps.delivery.strategies import BuildUpCache, KeyHierarchy, Naive, SimpleCache
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
    "SealedEvent",
    "SimpleCache",
    "Strategy",
    "SubscriberKey",
    "SubscriberRing",
    "Wrap",
    "pack_groups",
]
