"""Connections between machines: TLS 1.3, pinned certificates, framed messages, time-outs."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.network.channel import Channel as Channel
    from ccbps.network.channel import Server as Server
    from ccbps.network.channel import connect as connect
    from ccbps.network.identity import Certificate as Certificate
    from ccbps.network.identity import Credentials as Credentials
    from ccbps.network.identity import Identity as Identity
