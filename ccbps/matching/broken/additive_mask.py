"""AdditiveMaskMatch: the cheapest reusable matcher of intervals, and the weakest.

A value v of an attribute is sent as v + k with the attribute's key k; the broker compares masked
values with masked bounds. Exact, as nothing wraps around.

Hazard: the broker sees all differences and the order of values. One known value gives k, and with
it everything; so do events that fill a domain, without any known value. The scheme is here because
systems use it, and as the lower end of every comparison.
Source: [Survey] section 4.1 on Chen et al.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Randomness, Words
from ccbps.checks import instance, whole
from ccbps.leakage import LeakageCard
from ccbps.matching.broken.cells import CellGroup, Cells, groups_of, match_groups
from ccbps.matching.contract.scheme import Cost, Draw, Operation, Side, Sizes
from ccbps.matching.reusable import BOXES, ReusableMatcher, bytes_of, causes, check_widths, words_of
from ccbps.predicates import Events, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.box import Box

TOKEN_BYTES: Final = 16
MASK_BITS: Final = 62
"""Masks are below 2^62 and codes at most 2^61: the sum fits 64 bits, and nothing wraps around."""
COVERED_BITS: Final = 42
"""Largest number of bits of an attribute of which only one mask in a million tells something.

A message v + k is at least v, and at most v + 2^62 - 1. For a domain of b bits, one key in
2^(62 - b) is so near an end of the masks that this excludes a part of the domain.
"""


def box_ranges(schema: Schema, box: Box) -> Words:
    """Return the bounds of a box, ends included, uint64, shape (attributes, 2).

    An empty range is (1, 0).
    """
    return np.array([box.ranges[name] for name in schema], dtype=np.uint64)


class AdditiveMaskMatch(ReusableMatcher):
    """v + k for every attribute; conjunctions of intervals. Broken by its events alone.

    Args:
        schema: attributes of at most 61 bits each.

    Raises:
        ParameterError: an attribute is wider.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching.broken import AdditiveMaskMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = AdditiveMaskMatch(schema)
        >>> server = matcher.key_server()
        >>> publisher = matcher.publisher(server.publisher_key())
        >>> subscriber = matcher.subscriber(server.subscriber_key("alice"))
        >>> broker = matcher.broker(server.broker_key())
        >>> events = publisher.encode({"issue": ["IBM", "AAPL"], "price": [119, 121]})
        >>> interests = subscriber.encode(["price < 120", "issue = 'AAPL' AND price > 100"])
        >>> broker.match_all(events, interests)
        array([[ True, False],
               [False,  True]])
    """

    name = "additive mask"
    parts = ("masks",)
    operators = BOXES
    covering = True

    def __init__(self, schema: Schema) -> None:
        check_widths(schema, MASK_BITS - 1)
        limits = [(1 << MASK_BITS) + schema[name].size for name in schema]
        self._limits = np.array(limits, dtype=np.uint64)  # no masked value gets there
        self._set_up(schema, Sizes(8 * len(schema), 16 * len(schema)))

    @property
    def leakage(self) -> LeakageCard:
        wide = [name for name in self.schema if self.schema[name].bits > COVERED_BITS]
        one_in = 1 << MASK_BITS - max(self.schema.widths.values())
        near_ends = (
            f"of {', '.join(wide)}, whose domains are wide beside the masks: a bound on all "
            f"values, from one message, under one key in {one_in:,}"
        )
        return self._card(
            hides=(
                f"where in its domain of at most {COVERED_BITS} bits an attribute's values lie, as "
                "long as they fill a small part of it, none is NULL, no range is open at an end, "
                "and neither a value nor a bound nor their distribution is known",
            ),
            learns=(
                "every match",
                "the differences and the order of all values and bounds of an attribute",
                "the values and bounds themselves, where the events fill an attribute's domain",
                "which attributes a subscription constrains",
                *([near_ends] if wide else []),
            ),
            security="broken",
            assumption="a few events give away the key of a Bool, a Category or a UInt(8)",
            hazards=("a client colludes with the broker: it has all masks",),
            attacks=(
                "events alone: once their values span the domain, the least message is the key; "
                "for Bool, Category and UInt(8) they soon do",
                "known plaintext: one value and its message give the attribute's key and all "
                "values",
                "known width: a range as wide as the domain starts at the key, and so does that "
                "of x < c; no plaintext is needed",
                "events alone: NULL is 0, and recognized as what occurs often and lies far "
                "below all others",
                "distribution: if it is known, the median of all events gives the key to about "
                "a thousandth of the domain",
                "events alone: a message is at least its value, and less than it plus "
                f"2^{MASK_BITS}; of a domain of b bits, that excludes a part for one key in "
                f"2^({MASK_BITS} - b)",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        n = len(self.schema)
        return (
            Cost("publisher", "event", Operation.WORD, n),
            Cost("subscriber", "interest", Operation.WORD, 2 * n),
            Cost("broker", "pair", Operation.BIT, n),
        )

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        words = np.frombuffer(randomness(8 * len(self.schema)), dtype="<u8") >> np.uint64(2)
        return {"masks": [int(word) for word in words]}

    def check_part(self, name: str, value: Any) -> None:
        for _, mask in zip(self.schema, instance(name, value, list), strict=True):
            whole("mask", mask, 0, (1 << 62) - 1)

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        masks = np.array(key["masks"], dtype=np.uint64)
        codes = np.stack([events.codes[name][0] for name in self.schema], axis=1)
        out[:] = bytes_of(codes + masks)

    def prepare(self, interest: Any) -> Words:
        return box_ranges(self.schema, bound_predicate(self.schema, interest).box())

    def _distinct(self, key: Mapping[str, Any], interests: Sequence[Words]) -> Bytes:
        masks = np.array(key["masks"], dtype=np.uint64)[:, None]
        return bytes_of(np.stack(interests) + masks)

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        words = words_of(bodies)
        if side == "event":
            return causes((words >= self._limits).any(axis=1))
        bounds = words.reshape(len(bodies), -1, 2)
        wrong = (bounds >= self._limits[:, None]).any(axis=(1, 2))
        # An empty range is low = high + 1.
        return causes(wrong | (bounds[:, :, 0] > bounds[:, :, 1] + np.uint64(1)).any(axis=1))

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> list[_Ranges]:
        return [_Ranges.of(words_of(part).reshape(len(part), -1, 2)) for part in groups_of(bodies)]

    def match(self, key: Mapping[str, Any], events: Bytes, table: list[_Ranges]) -> Bools:
        return match_groups(table, list(words_of(events).T))

    def covers(self, key: Mapping[str, Any], wide: list[_Ranges], narrow: list[_Ranges]) -> Bools:
        outer, inner = _all_bounds(wide), _all_bounds(narrow)
        covers = np.ones((len(outer), len(inner)), dtype=np.bool_)
        for place in range(len(self.schema)):
            covers &= outer[:, None, place, 0] <= inner[:, place, 0]
            covers &= outer[:, None, place, 1] >= inner[:, place, 1]
        return covers | (inner[:, :, 0] > inner[:, :, 1]).any(axis=1)


@dataclass(frozen=True, slots=True)
class _Ranges(CellGroup):
    """Masked ranges of a group of interests.

    Attributes:
        bounds: masked bounds, shape (interests, attributes, 2), both inclusive.
    """

    bounds: Words

    @classmethod
    def of(cls, bounds: Words) -> _Ranges:
        """Build the cells of masked ranges."""
        cells = []
        for low, high in bounds.transpose(1, 2, 0):
            used = low <= high
            ends = low[used], high[used] + np.uint64(1)
            cells.append(Cells.of(*ends, np.flatnonzero(used), len(bounds)))
        return cls(tuple(cells), len(bounds), bounds)


def _all_bounds(table: list[_Ranges]) -> Words:
    return np.concatenate([group.bounds for group in table])
