"""Routers on a simulated network: a small overlay, which clients at its edges load."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

from ccbps.arrays import Bools
from ccbps.overlay.links import Links
from ccbps.overlay.routing.relations import Codes, Others, PlainRelation, Relation
from ccbps.overlay.routing.router import Publication, Router


class CountedRelation(PlainRelation):
    """Boxes and records in plaintext, with a count of the work of matching.

    Attributes:
        compared: number of filters that were compared with an event.
    """

    compared = 0

    def matches(self, event: Codes, others: Others) -> Bools:
        self.compared += len(others)
        return super().matches(event, others)


def line_of_routers(
    brokers: int,
    relation: Relation,
    deliver: Callable[[str, Publication], None],
    *,
    delay: float = 0.001,
) -> tuple[Links, list[Router]]:
    """Put routers on a line of links, without advertisements; return the network and the routers.

    Args:
        brokers: number of routers, 2 or more.
        relation: knowledge of filters and events, which all routers share.
        deliver: function from a client's name and a publication, which delivers it.
        delay: seconds of a message on a link.
    """
    names = [f"broker {place}" for place in range(brokers)]
    links = Links(pairwise(names), delay=delay)
    routers = {
        name: Router(relation, partial(links.send, name), deliver, advertise=False)
        for name in names
    }
    for name, router in routers.items():
        links.attach(name, router)
        for neighbour in links.neighbours(name):
            router.connect(neighbour)
    return links, [*routers.values()]
