"""Three brokers as services: broker 0 leads, the other two follow, and all match together."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.trio.follower import Follower as Follower
    from ccbps.trio.leader import Leader as Leader
    from ccbps.trio.members import Trio as Trio
