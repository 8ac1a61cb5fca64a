"""Matchers: one file each, all with the same three roles and verbs."""

from ccbps.keys.role_key import KeyUpdate, RoleKey
from ccbps.matching.broker import Broker
from ccbps.matching.catalogue import *  # noqa: F403
from ccbps.matching.contract import Answers, Keying
from ccbps.matching.costs import Cost, Operation
from ccbps.matching.key_server import KeyServer
from ccbps.matching.matcher import Matcher
from ccbps.matching.one_time.deferred import DeferredPublisher
from ccbps.matching.roles import Publisher, Subscriber
from ccbps.matching.schemes import SCHEMES, from_json, proposals
from ccbps.matching.table import Table

__all__ = [
    "SCHEMES",
    "Answers",
    "Broker",
    "Cost",
    "DeferredPublisher",
    "KeyServer",
    "KeyUpdate",
    "Keying",
    "Matcher",
    "Operation",
    "Publisher",
    "RoleKey",
    "Subscriber",
    "Table",
    "from_json",
    "proposals",
    *(scheme.__name__ for scheme in SCHEMES),
]
