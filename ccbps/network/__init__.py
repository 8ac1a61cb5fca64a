"""Connections between machines: TLS 1.3, pinned certificates, framed messages, time-outs."""

from ccbps.network.channel import Channel, Server, connect
from ccbps.network.identity import Certificate, Credentials, Identity

__all__ = ["Certificate", "Channel", "Credentials", "Identity", "Server", "connect"]
