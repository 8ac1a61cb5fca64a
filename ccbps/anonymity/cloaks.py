"""Cloaks: groups of k subscriptions, each of which the broker knows by a single subscription.

A trusted party, the anonymizer, puts subscriptions into groups of at least k and gives the broker
one subscription for each group: the hull of its members, the smallest box that holds them all. The
broker forwards an event that matches a hull to all members. Each member filters once more, since it
may get events that it did not ask for; `Cloaks.redundant` is their expected number.

A broker that colludes with a subscriber, and so reads events, learns the hull and the members of a
group, but not which member has which subscription.

Hazard: a subscription hides among k only if they are of k different subscribers. New groups in each
epoch expose members (`ccbps.anonymity.sticky`). The bounds of a hull are bounds of members. Groups
of one attribute are numbered in the order of their hulls: where matchers hide hulls, rename the
groups, and send them in another order.
Source: [RCT13]. Its grouping is an integer programme; here it is `ccbps.anonymity.partition`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ccbps.anonymity.diversity import Diversity, numbered
from ccbps.anonymity.partition import (
    METHODS,
    SUPPRESSED,
    Method,
    check_ordered,
    partition,
)
from ccbps.arrays import Bools, Index
from ccbps.checks import Redacted, array, choice, instance, whole
from ccbps.errors import ParameterError
from ccbps.predicates import Box, Predicate, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.box_predicates import predicate_of


class Cloaks(Redacted, frozen=True, eq=False, dict=True):
    """Groups of subscriptions, and one subscription for each group; made by `cloak`.

    Attributes:
        schema: attributes of events.
        boxes: boxes of the members, the anonymizer's secret.
        groups: group of each member, from 0, shape (members,).
        hulls: hull of each group, a box.
    """

    schema: Schema
    boxes: tuple[Box, ...]
    groups: Index
    hulls: tuple[Box, ...]

    def __repr__(self) -> str:
        return f"<Cloaks: {len(self.groups)} subscriptions in {len(self.hulls)} groups>"

    @cached_property
    def predicates(self) -> tuple[Predicate, ...]:
        """Subscription of each group, which any matcher for boxes can encode."""
        return tuple(predicate_of(hull) for hull in self.hulls)

    def deliveries(self, matched: Bools) -> Bools:
        """Tell to which members events go, shape (events, members).

        Args:
            matched: groups that match each event, shape (events, groups).
        """
        given = array("matched", matched, np.bool_, ("events", len(self.hulls)))
        return np.asarray(given[:, self.groups], dtype=np.bool_)

    @property
    def redundant(self) -> float:
        """Expected number of useless deliveries of an event that is uniform in the domain."""
        hulls = [volume(hull) for hull in self.hulls]
        received = sum(hulls[group] for group in self.groups.tolist())
        return float(received - sum(map(volume, self.boxes)))


def cloak(
    schema: Schema,
    interests: Iterable[str | Predicate],
    k: int,
    *,
    diversity: Diversity | None = None,
    method: Method | None = None,
    events: Any = None,
) -> Cloaks:
    """Put subscriptions into groups of at least k.

    If they limit one attribute only, they are sorted by lower bound and cut at the least cost
    (`ccbps.anonymity.contiguous`). Otherwise they are cut in the widest dimension, again and again
    (`ccbps.anonymity.mondrian`).

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.anonymity import cloak
        >>> schema = Schema(price=UInt(8))
        >>> texts = ["price BETWEEN 10 AND 20", "price BETWEEN 200 AND 210", "price >= 205",
        ...          "price BETWEEN 15 AND 25"]
        >>> cloaks = cloak(schema, texts, k=2)
        >>> cloaks.groups
        array([0, 1, 1, 0])
        >>> [hull.ranges["price"] for hull in cloaks.hulls]
        [(10, 25), (200, 255)]
        >>> matched = [p.evaluate({"price": [12, 100, 220]}) for p in cloaks.predicates]
        >>> import numpy as np
        >>> cloaks.deliveries(np.stack(matched, axis=1)).astype(int)
        array([[1, 0, 0, 1],
               [0, 0, 0, 0],
               [0, 1, 1, 0]])

    Args:
        schema: attributes of events.
        interests: SQL texts or predicates with all their constants. Each is one box that is not
            empty, of a subscriber of its own.
        k: least number of members of a group.
        diversity: rule on the members' subscriptions; `Distinct` (2) asks for two that differ.
        method: "optimal" for one attribute, "mondrian" for any; None for the first that fits.
        events: typical records. With them, the cost of a group is the number of these that are
            delivered in vain, in place of widths. They matter for one attribute only.

    Raises:
        ParameterError: there are fewer than k interests, or they break the rule; or an argument
            does not fit.
        UnsupportedPredicateError: an interest is not a box.
        EventError: the events do not fit the schema.
    """
    instance("schema", schema, Schema)
    predicates = [bound_predicate(schema, interest) for interest in interests]
    boxes = [predicate.box() for predicate in predicates]
    cloaks = cloak_boxes(schema, boxes, k, diversity, method, events)
    if cloaks is None:
        rule = f" that keep {diversity!r}" if diversity else ""
        raise ParameterError(
            f"k={k} needs as many subscriptions{rule}, got {len(boxes)}: wait for more"
        )
    return cloaks


def cloak_boxes(
    schema: Schema,
    boxes: Iterable[Box],
    k: int,
    diversity: Diversity | None = None,
    method: Method | None = None,
    events: Any = None,
) -> Cloaks | None:
    """Put boxes into groups, as `cloak` does; return None where all together are not enough."""
    members = tuple(boxes)
    choice("method", method, METHODS)
    if diversity is not None:
        instance("diversity", diversity, Diversity, hint="take Distinct(2), for example")
    if len(members) < whole("k", k, 1):
        return None
    for place, box in enumerate(members):
        if any(high < low for low, high in box.ranges.values()):
            raise ParameterError(f"interest {place} never matches: leave it out")
    full = {name: (0, schema[name].size - 1) for name in schema}
    limited = [name for name in schema if any(box.ranges[name] != full[name] for box in members)]
    for name in limited:
        check_ordered(schema, name, "leave it out of the subscriptions")
    if method == "optimal" and len(limited) > 1:
        raise ParameterError(
            f"method='optimal' takes subscriptions to one attribute, got {len(limited)}; take "
            "method='mondrian'"
        )
    # Where nobody limits anything, all boxes are the same point.
    bounds = [[box.ranges[name] for name in limited] or [(0, 0)] for box in members]
    ends = np.array(bounds, dtype=np.uint64)
    lows, highs = ends[:, :, 0].T, ends[:, :, 1].T
    values = None if diversity is None else numbered(np.concatenate([lows, highs]))
    scale = np.array([max(1, full[name][1]) for name in limited] or [1], dtype=np.float64)
    low, high = lows, highs
    if events is not None and len(limited) == 1:
        codes = np.sort(schema.encode(events).codes[limited[0]][0])
        # An interval is as wide as the number of events in it.
        low = np.searchsorted(codes, lows, side="left").astype(np.uint64)
        high = np.searchsorted(codes, highs, side="right").astype(np.uint64)
    groups = partition(low, high, scale, k, diversity, values, method)
    if groups[0] == SUPPRESSED:
        return None
    hulls = []
    for number in range(int(groups.max()) + 1):
        own = groups == number
        least, most = lows[:, own].min(axis=1).tolist(), highs[:, own].max(axis=1).tolist()
        pairs = zip(limited, zip(least, most, strict=True), strict=bool(limited))
        hulls.append(Box(schema, {**full, **dict(pairs)}))
    return Cloaks(schema, members, groups, tuple(hulls))


def volume(box: Box) -> float:
    """Return the share of the domain that a box holds."""
    sizes = [box.schema[name].size for name in box.ranges]
    pairs = zip(box.ranges.values(), sizes, strict=True)
    return float(prod((high - low + 1) / size for (low, high), size in pairs))
