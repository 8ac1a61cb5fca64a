"""AdditiveMaskMatch: the cheapest reusable matcher of intervals, and the weakest.

A value v of an attribute is sent as v + k with the attribute's key k; the broker compares masked
values with masked bounds. Exact, as nothing wraps around.

Hazard: the broker sees all differences and the order of values; one known value gives k and with it
everything, and so do events that fill a domain, with nothing known. It is here because systems use
it, and as the lower end of every comparison.
Source: [Survey] section 4.1 on Chen et al.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Randomness, Words
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import ParameterError
from ccbps.keys.role_key import Role
from ccbps.leakage import LeakageCard
from ccbps.matching.broken.cells import Cells, groups_of, in_all
from ccbps.matching.contract.bodies import Draw, Sizes
from ccbps.matching.contract.costs import Cost, Operation
from ccbps.matching.contract.interests import bound_predicate
from ccbps.matching.contract.kinds import Side
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import ServerScheme, TableScheme
from ccbps.predicates import Events, Schema
from ccbps.predicates.box import Box
from ccbps.wire import Cause

TOKEN_BYTES: Final = 16
MASK_BITS: Final = 62
"""Masks are below 2^62 and codes at most 2^61: the sum fits 64 bits, and nothing wraps around."""


def box_ranges(schema: Schema, box: Box) -> Words:
    """Bounds of a box, both inclusive: uint64, shape (attributes, 2). An empty range is (1, 0)."""
    return np.array([box.ranges[name] for name in schema], dtype=np.uint64)


class AdditiveMaskMatch(Matcher, ServerScheme, TableScheme):
    """v + k for every attribute; conjunctions of intervals. Broken by its events alone.

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
    operators = ("=", "<", "interval", "prefix", "and")
    covering = True

    def __init__(self, schema: Schema) -> None:
        """
        Args:
            schema: attributes of at most 61 bits each.

        Raises:
            ParameterError: an attribute is wider.
        """
        for name in schema:
            if schema[name].bits >= MASK_BITS:
                raise ParameterError(
                    f"attribute {name!r} must have less than {MASK_BITS} bits, "
                    f"got {schema[name].bits}"
                )
        limits = [(1 << MASK_BITS) + schema[name].size for name in schema]
        self._limits = np.array(limits, dtype=np.uint64)  # no masked value gets there
        self._set_up(schema, Sizes(8 * len(schema), 16 * len(schema)))

    def parameters(self) -> dict[str, Any]:
        """None beyond the schema."""
        return {}

    @property
    def leakage(self) -> LeakageCard:
        """What the broker learns."""
        return LeakageCard(
            scheme="AdditiveMaskMatch",
            adversary="the broker, which follows the protocol and keeps all it sees",
            hides=(
                "where in its domain an attribute's values lie, as long as they fill a small "
                "part of it, none is NULL, no range is open at an end, and neither a value nor "
                "a bound nor their distribution is known",
            ),
            protects=frozenset(),
            learns=(
                "every match",
                "the differences and the order of all values and bounds of an attribute",
                "the values and bounds themselves, where the events fill an attribute's domain",
                "which attributes a subscription constrains",
            ),
            security="broken",
            assumption="a few events give away the key of a Bool, a Category or a UInt(8)",
            reuse="reusable",
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
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role."""
        n = len(self.schema)
        return (
            Cost("publisher", "event", Operation.WORD, n),
            Cost("subscriber", "interest", Operation.WORD, 2 * n),
            Cost("broker", "pair", Operation.BIT, n),
        )

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        """See `ServerScheme.generate`."""
        words = np.frombuffer(randomness(8 * len(self.schema)), dtype="<u8") >> np.uint64(2)
        return {"masks": [int(word) for word in words]}

    def issue(
        self,
        master: dict[str, Any],
        role: Role,
        name: str,
        randomness: Randomness,
    ) -> dict[str, Any]:
        """See `ServerScheme.issue`."""
        return {} if role == "broker" else {"masks": master["masks"]}

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        """See `Scheme.encode_events`."""
        masks = np.array(key["masks"], dtype=np.uint64)
        codes = np.stack([events.codes[name][0] for name in self.schema], axis=1)
        out[:] = (codes + masks).astype("<u8").view(np.uint8).reshape(len(out), -1)

    def prepare(self, interest: Any) -> Words:
        """Bounds, uint64 (attributes, 2)."""
        return box_ranges(self.schema, bound_predicate(self.schema, interest).box())

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Words], draw: Draw, out: Bytes
    ) -> None:
        """See `Scheme.encode_interests`."""
        masks = np.array(key["masks"], dtype=np.uint64)[:, None]
        masked = (np.stack(interests.values) + masks).astype("<u8")
        out[:] = masked.view(np.uint8).reshape(len(masked), -1)[interests.index]

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        """See `Scheme.check`."""
        words = _words(bodies)
        if side == "event":
            wrong = (words >= self._limits).any(axis=1)
        else:
            bounds = words.reshape(len(bodies), -1, 2)
            wrong = (bounds >= self._limits[:, None]).any(axis=(1, 2))
            # An empty range is low = high + 1.
            wrong |= (bounds[:, :, 0] > bounds[:, :, 1] + np.uint64(1)).any(axis=1)
        return np.where(wrong, Cause.VALUE, Cause.NONE).astype(np.uint8)

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> list[_Ranges]:
        """Masked bounds, and cells of events."""
        return [_Ranges.of(_words(part).reshape(len(part), -1, 2)) for part in groups_of(bodies)]

    def match(self, key: Mapping[str, Any], events: Bytes, table: list[_Ranges]) -> Bools:
        """See `TableScheme.match`."""
        values = list(_words(events).T)
        return np.concatenate([in_all(one.cells, values, len(one.low)) for one in table], axis=1)

    def covers(self, key: Mapping[str, Any], wide: list[_Ranges], narrow: list[_Ranges]) -> Bools:
        """See `TableScheme.covers`."""
        empty = np.zeros((0, len(self.schema)), dtype=np.uint64)
        low, high = (np.concatenate([empty, *ends]) for ends in _ends(wide))
        first, last = (np.concatenate([empty, *ends]) for ends in _ends(narrow))
        covers = np.ones((len(low), len(first)), dtype=np.bool_)
        for a, b, c, d in zip(low.T, high.T, first.T, last.T, strict=True):
            covers &= (a[:, None] <= c) & (b[:, None] >= d)
        return covers | (first > last).any(axis=1)


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Masked ranges of a group of interests: bounds, shape (interests, attributes), and cells."""

    low: Words
    high: Words
    cells: tuple[Cells, ...]

    @classmethod
    def of(cls, bounds: Words) -> _Ranges:
        """From bounds of shape (interests, attributes, 2), both inclusive."""
        low, high = bounds[:, :, 0], bounds[:, :, 1]
        some = low <= high
        cells = tuple(
            Cells.of(a[s], b[s] + np.uint64(1), np.flatnonzero(s), len(bounds))
            for a, b, s in zip(low.T, high.T, some.T, strict=True)
        )
        return cls(low, high, cells)


def _ends(table: list[_Ranges]) -> tuple[list[Words], list[Words]]:
    return [one.low for one in table], [one.high for one in table]


def _words(bodies: Bytes) -> Words:
    words: Words = np.ascontiguousarray(bodies).view("<u8").astype(np.uint64, copy=False)
    return words
