"""Delivery of payloads to matched subscribers; nobody else can read them."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.delivery.canary import Canary as Canary
    from ccbps.delivery.canary import detection_chance as detection_chance
    from ccbps.delivery.canary import share_needed as share_needed
    from ccbps.delivery.clustered import ClusteredCache as ClusteredCache
    from ccbps.delivery.clustered import ClusteredPopularCache as ClusteredPopularCache
    from ccbps.delivery.group_opener import GroupOpener as GroupOpener
    from ccbps.delivery.group_protocol import SealedEvent as SealedEvent
    from ccbps.delivery.group_sealer import GroupSealer as GroupSealer
    from ccbps.delivery.groups import Clusters as Clusters
    from ccbps.delivery.groups import pack_groups as pack_groups
    from ccbps.delivery.key_cache import KeyCache as KeyCache
    from ccbps.delivery.key_tree import KeyTree as KeyTree
    from ccbps.delivery.key_tree import RangeKey as RangeKey
    from ccbps.delivery.key_tree import TreeKey as TreeKey
    from ccbps.delivery.learned import LearnedCache as LearnedCache
    from ccbps.delivery.naive import PayloadOpener as PayloadOpener
    from ccbps.delivery.naive import PayloadSealer as PayloadSealer
    from ccbps.delivery.plans import Strategy as Strategy
    from ccbps.delivery.plans import Wrap as Wrap
    from ccbps.delivery.policies import PolicyOpener as PolicyOpener
    from ccbps.delivery.policies import PolicySealer as PolicySealer
    from ccbps.delivery.routable import RoutableOpener as RoutableOpener
    from ccbps.delivery.routable import RoutableSealer as RoutableSealer
    from ccbps.delivery.routable import read_routable as read_routable
    from ccbps.delivery.strategies import BuildUpCache as BuildUpCache
    from ccbps.delivery.strategies import KeyHierarchy as KeyHierarchy
    from ccbps.delivery.strategies import Naive as Naive
    from ccbps.delivery.strategies import SimpleCache as SimpleCache
    from ccbps.keys.delivery_keys import BrokerState as BrokerState
    from ccbps.keys.delivery_keys import SubscriberKey as SubscriberKey
    from ccbps.keys.delivery_keys import SubscriberRing as SubscriberRing
