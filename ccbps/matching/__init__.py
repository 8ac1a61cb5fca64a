"""Matchers: one file each, all with the same three roles and verbs.

Schemes with a known attack are in `ccbps.matching.broken`.
"""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.keys.role_key import KeyUpdate as KeyUpdate
    from ccbps.keys.role_key import RoleKey as RoleKey
    from ccbps.matching.catalogue import *  # noqa: F403
    from ccbps.matching.contract.broker import Broker as Broker
    from ccbps.matching.contract.estimate import Estimate as Estimate
    from ccbps.matching.contract.estimate import Seconds as Seconds
    from ccbps.matching.contract.key_server import KeyServer as KeyServer
    from ccbps.matching.contract.matcher import Matcher as Matcher
    from ccbps.matching.contract.roles import Publisher as Publisher
    from ccbps.matching.contract.roles import Subscriber as Subscriber
    from ccbps.matching.contract.scheme import Answers as Answers
    from ccbps.matching.contract.scheme import Cost as Cost
    from ccbps.matching.contract.scheme import Keying as Keying
    from ccbps.matching.contract.scheme import Operation as Operation
    from ccbps.matching.contract.table import Table as Table
    from ccbps.matching.contract.traffic import Traffic as Traffic
    from ccbps.matching.one_time.deferred import DeferredPublisher as DeferredPublisher
    from ccbps.matching.schemes import SCHEMES as SCHEMES
    from ccbps.matching.schemes import from_json as from_json
