"""Matchers: one file each, all with the same three roles and verbs.

Schemes with a known attack are in `ccbps.matching.broken`.
"""

from ccbps.keys.role_key import KeyUpdate, RoleKey
from ccbps.matching import catalogue
from ccbps.matching.catalogue import *  # noqa: F403
from ccbps.matching.contract.broker import Broker
from ccbps.matching.contract.key_server import KeyServer
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.roles import Publisher, Subscriber
from ccbps.matching.contract.scheme import Answers, Cost, Keying, Operation
from ccbps.matching.contract.table import Table
from ccbps.matching.one_time.deferred import DeferredPublisher
from ccbps.matching.schemes import SCHEMES, from_json, proposals

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
    *(name for name in vars(catalogue) if name.endswith("Match")),
]
