"""MaskedTopicMatch and AdditiveMaskMatch: the cheapest reusable matchers, and the weakest.

- `MaskedTopicMatch`: a topic is sent as H(topic XOR k) with a group key k; the broker compares.
- `AdditiveMaskMatch`: a value v of an attribute is sent as v + k with the attribute's key k; the
  broker compares masked values with masked bounds. Exact, as nothing wraps around.

Hazard: the broker sees which topics are equal, and all differences and the order of values; one
known value gives k and with it everything, and so do events that fill a domain, with nothing known.
They are here because systems use them, and as the lower end of every comparison.
Source: [Survey] section 4.1 on Chen et al.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Randomness, Words
from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.inputs.topic import keyword_codes
from ccbps.keys.role_key import Role
from ccbps.leakage import LeakageCard
from ccbps.matching.boxes.cells import Cells, groups_of, in_all
from ccbps.matching.parameters import Cost
from ccbps.matching.reusable import ReusableMatcher
from ccbps.predicates import Schema
from ccbps.predicates.box import Box
from ccbps.predicates.codes import pack
from ccbps.predicates.schema import Events
from ccbps.wire import Cause

__all__ = ["AdditiveMaskMatch", "MaskedTopicMatch"]


TOKEN_BYTES: Final = 16
MASK_BITS: Final = 62
"""Masks are below 2^62 and codes at most 2^61: the sum fits 64 bits, and nothing wraps around."""


def box_ranges(schema: Schema, box: Box) -> Words:
    """Bounds of a box, both inclusive: uint64, shape (attributes, 2). An empty range is (1, 0)."""
    return np.array([box.ranges[name] for name in schema], dtype=np.uint64)


class AdditiveMaskMatch(ReusableMatcher):
    """v + k for every attribute; conjunctions of intervals. Broken by its events alone.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching import AdditiveMaskMatch
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

    scheme = "additive mask"
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
        self._set_up(schema, 8 * len(schema), 16 * len(schema), {})
        sizes = [(1 << MASK_BITS) + schema[name].size for name in schema]
        self._limits = np.array(sizes, dtype=np.uint64)  # no masked value gets there

    def __reduce__(self) -> tuple[type[AdditiveMaskMatch], tuple[Schema]]:
        return AdditiveMaskMatch, (self.schema,)

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
            Cost("publisher", "event", "64-bit addition", n),
            Cost("subscriber", "interest", "64-bit addition", 2 * n),
            Cost("broker", "pair", "bit AND", n),
        )

    def _generate(self, randomness: Randomness) -> dict[str, Any]:
        words = np.frombuffer(randomness(8 * len(self.schema)), dtype="<u8") >> np.uint64(2)
        return {"masks": [int(word) for word in words]}

    def _issue(
        self, master: Mapping[str, Any], role: Role, name: str, randomness: Randomness
    ) -> dict[str, Any]:
        return {} if role == "broker" else {"masks": master["masks"]}

    def _encode_events(
        self, key: Mapping[str, Any], events: Events, out: Bytes, randomness: Randomness
    ) -> None:
        masks = np.array(key["masks"], dtype=np.uint64)
        codes = np.stack([events.codes[name][0] for name in self.schema], axis=1)
        out[:] = (codes + masks).astype("<u8").view(np.uint8).reshape(len(out), -1)

    def _prepare(self, interest: Any) -> Words:
        return box_ranges(self.schema, self._predicate(interest).box())

    def _encode_interests(
        self,
        key: Mapping[str, Any],
        interests: Sequence[Words],
        out: Bytes,
        randomness: Randomness,
    ) -> None:
        masks = np.array(key["masks"], dtype=np.uint64)[:, None]
        out[:] = (np.stack(interests) + masks).astype("<u8").view(np.uint8).reshape(len(out), -1)

    def _check_events(self, key: Mapping[str, Any], bodies: Bytes) -> Bytes:
        wrong = (_words(bodies) >= self._limits).any(axis=1)
        return np.where(wrong, Cause.VALUE, Cause.NONE).astype(np.uint8)

    def _check_interests(self, key: Mapping[str, Any], bodies: Bytes) -> Bytes:
        bounds = _words(bodies).reshape(len(bodies), -1, 2)
        wrong = (bounds >= self._limits[:, None]).any(axis=(1, 2))
        # An empty range is low = high + 1.
        wrong |= (bounds[:, :, 0] > bounds[:, :, 1] + np.uint64(1)).any(axis=1)
        return np.where(wrong, Cause.VALUE, Cause.NONE).astype(np.uint8)

    def _table(self, key: Mapping[str, Any], bodies: Bytes) -> list[_Ranges]:
        return [_Ranges.of(_words(part).reshape(len(part), -1, 2)) for part in groups_of(bodies)]

    def _match_all(self, key: Mapping[str, Any], events: Bytes, table: list[_Ranges]) -> Bools:
        values = list(_words(events).T)
        return np.concatenate([in_all(one.cells, values, len(one.low)) for one in table], axis=1)

    def _covers(self, key: Mapping[str, Any], wide: list[_Ranges], narrow: list[_Ranges]) -> Bools:
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


class MaskedTopicMatch(ReusableMatcher):
    """H(topic XOR k): equality of all attributes together. Shows which topics are equal.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching import MaskedTopicMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = MaskedTopicMatch(schema)
        >>> server = matcher.key_server()
        >>> publisher = matcher.publisher(server.publisher_key())
        >>> subscriber = matcher.subscriber(server.subscriber_key("alice"))
        >>> broker = matcher.broker(server.broker_key())
        >>> events = publisher.encode({"issue": ["IBM", "AAPL"], "price": [119, 121]})
        >>> interests = subscriber.encode(["issue = 'IBM' AND price = 119"])
        >>> broker.match_all(events, interests)
        array([[ True],
               [False]])
    """

    scheme = "masked topic"
    operators = ("=", "and")
    covering = True

    def __init__(self, schema: Schema) -> None:
        """
        Args:
            schema: a subscription names one value for every attribute: the topic.
        """
        self._set_up(schema, TOKEN_BYTES, TOKEN_BYTES, {})

    def __reduce__(self) -> tuple[type[MaskedTopicMatch], tuple[Schema]]:
        return MaskedTopicMatch, (self.schema,)

    @property
    def leakage(self) -> LeakageCard:
        """What the broker learns."""
        return LeakageCard(
            scheme="MaskedTopicMatch",
            adversary="the broker, which follows the protocol and keeps all it sees",
            hides=(
                "topics of which no event or subscription is known, from anyone who neither has "
                "the group key nor knows how often topics occur",
            ),
            learns=("every match", "which events and subscriptions have the same topic"),
            security="computational",
            assumption="HMAC-SHA256 is a pseudorandom function",
            reuse="reusable",
            hazards=(
                "a client colludes with the broker: with the group key it can try all topics",
            ),
            attacks=(
                "frequency: the most frequent token is the most frequent topic",
                "known plaintext: one known event names all events and subscriptions of its topic",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role."""
        return (
            Cost("publisher", "event", "SHA-256 of a block", 2),
            Cost("subscriber", "interest", "SHA-256 of a block", 2),
            Cost("broker", "pair", "128-bit comparison", 1),
        )

    def _generate(self, randomness: Randomness) -> dict[str, Any]:
        return {"key": randomness(32).hex()}

    def _issue(
        self, master: Mapping[str, Any], role: Role, name: str, randomness: Randomness
    ) -> dict[str, Any]:
        return {} if role == "broker" else {"key": master["key"]}

    @staticmethod
    def _tokens(key: Mapping[str, Any], codes: NDArray[np.uint64]) -> Bytes:
        """A token for each row of codes. HMAC stands for H(topic XOR k): the same leakage, without
        what XOR gives away about related topics."""
        # Topics repeat: each distinct one is hashed once.
        distinct, index = np.unique(codes, axis=0, return_inverse=True)
        base = HMAC(bytes.fromhex(key["key"]), SHA256())
        tokens = np.empty((len(distinct), TOKEN_BYTES), dtype=np.uint8)
        for row, topic in enumerate(distinct.astype("<u8")):
            context = base.copy()
            context.update(topic.tobytes())
            tokens[row] = np.frombuffer(context.finalize()[:TOKEN_BYTES], dtype=np.uint8)
        return tokens[index.reshape(-1)]

    def _encode_events(
        self, key: Mapping[str, Any], events: Events, out: Bytes, randomness: Randomness
    ) -> None:
        out[:] = self._tokens(key, keyword_codes(events, self.schema.names))

    def _prepare(self, interest: Any) -> Words:
        predicate = self._predicate(interest)
        codes = []
        for name, (low, high) in predicate.box().ranges.items():
            if low != high:
                raise UnsupportedPredicateError(
                    f"a topic names one value of {name!r}: use = on every attribute",
                    text=predicate.text,
                )
            codes.append(pack([low], self.schema[name].limbs)[:, 0])
        return np.concatenate(codes)

    def _encode_interests(
        self,
        key: Mapping[str, Any],
        interests: Sequence[Words],
        out: Bytes,
        randomness: Randomness,
    ) -> None:
        out[:] = self._tokens(key, np.stack(interests))

    def _table(self, key: Mapping[str, Any], bodies: Bytes) -> Words:
        return np.ascontiguousarray(bodies).view("<u8")

    def _match_all(self, key: Mapping[str, Any], events: Bytes, table: Words) -> Bools:
        tokens = np.ascontiguousarray(events).view("<u8")
        out: Bools = tokens[:, :1] == table[:, 0]
        out &= tokens[:, 1:] == table[:, 1]
        return out

    def _covers(self, key: Mapping[str, Any], wide: Words, narrow: Words) -> Bools:
        return np.asarray((wide[:, None] == narrow).all(axis=2))
