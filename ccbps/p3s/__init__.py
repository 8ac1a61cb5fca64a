"""P3S: publish/subscribe by functional encryption; subscribers match, and no server can."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.p3s.clients import Delivery as Delivery
    from ccbps.p3s.clients import Publisher as Publisher
    from ccbps.p3s.clients import Subscriber as Subscriber
    from ccbps.p3s.lines import Line as Line
    from ccbps.p3s.lines import local as local
    from ccbps.p3s.lines import serve as serve
    from ccbps.p3s.servers import DisseminationServer as DisseminationServer
    from ccbps.p3s.servers import Repository as Repository
    from ccbps.p3s.servers import TokenAuthority as TokenAuthority
