"""Content pre-filters: masks of bits that tell a broker which pairs cannot match.

An event's mask is a Bloom filter of its *truths*: PRF(attribute = value), and for ranges
PRF(the first j bits of the attribute's code) for the first few j. A subscription's masks hold the
bits of its *needs*, truths that a matching event has. The broker makes the encrypted test only for
pairs in which the event's mask has all bits of one of the subscription's masks. That takes no key
and a few AND operations on words.

Each mask begins with a word that names the schema, the key and the parameters. Masks of another
filter would silently suppress matches, so they are refused.

A pair that matches always passes. If an event has a truths of k bits each in a mask of m bits, a
pair with u unmet needs still passes with probability (1 - (1 - 1/m)^(k a))^(k u).

A range is covered by one or two prefixes: it is cut where the bits of its first and last code
diverge, and each half is widened to the longest prefix that contains it. Several ranges, or a set
of values, take a mask for each choice of prefixes, up to `masks`. Beyond that, sets are widened
further, until one mask is left. Predicates that are no OR of a few ANDs get a mask that all events
pass.

Hazard: masks leak much that the encrypted test may hide: which subscriptions have needs in common,
or contain one another; which events share values or prefixes, and so are close; and how frequent
each value is. Never use masks with a one-time matcher, which hides all of that.
Sources: R. Barazzutti, P. Felber, H. Mercier, E. Onica and E. Riviere, Thrifty privacy, DEBS 2012;
[Survey] 5.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from math import ceil, log, prod
from typing import Annotated, Any, Final, Self, TypeAlias

import numpy as np
from msgspec import Meta

from ccbps.arrays import Bools, Bytes, Words
from ccbps.checks import array, instance, number, whole
from ccbps.errors import DecodeError, ParameterError, UnsupportedPredicateError
from ccbps.filters.bloom import bloom_size, places_of
from ccbps.filters.hashing import Keys, SipHash, as_key_bytes
from ccbps.keys.plain_key import FilterKey
from ccbps.keys.secret import Confined
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.codes import CodeArray, Intervals, pack
from ccbps.records import Record

LEVELS: Final = 8
MASKS: Final = 4
HEAD_BYTES: Final = 8
"""Bytes in front of each mask that name its filter."""
CELLS: Final = 1 << 15
"""Pairs of masks that are compared at once, to fit the cache."""
_MOST_LEVELS: Final = 63

Need: TypeAlias = tuple[int, int, int]
"""Number of an attribute, bits of a prefix (0 for the whole code), and the value of these bits."""


class MaskLayout(Record, frozen=True):
    """A content filter as brokers know it: enough to check its masks, and no key.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.filters import ContentFilter, FilterKey, MaskLayout
        >>> contents = ContentFilter(Schema(price=UInt(8)), FilterKey(bytes(16)))
        >>> contents.layout.to_text()
        '4b5b306f4ce7d647:128:4'
        >>> MaskLayout.from_text('4b5b306f4ce7d647:128:4') == contents.layout
        True
        >>> contents.layout.check_event(contents.events({"price": [7]})[0].tobytes())
        >>> contents.layout.check_event(bytes(24))
        Traceback (most recent call last):
            ...
        ccbps.errors.DecodeError: a mask of another schema, key or filter than the broker's

    Attributes:
        name: first bytes of each mask, which name schema, key and parameters.
        bits: bits of a mask, a multiple of 64.
        masks: largest number of masks of a subscription.
    """

    name: Annotated[bytes, Meta(min_length=HEAD_BYTES, max_length=HEAD_BYTES)]
    bits: Annotated[int, Meta(ge=64, multiple_of=64)]
    masks: Annotated[int, Meta(ge=1)]

    def to_text(self) -> str:
        """Return the layout as text without blanks."""
        return f"{self.name.hex()}:{self.bits}:{self.masks}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `to_text` gave.

        Raises:
            ParameterError: it is no such text.
        """
        parts = re.fullmatch(r"([0-9a-f]{16}):([1-9][0-9]{1,8}):([1-9][0-9]{0,8})", text)
        if parts is None or int(parts[2]) % 64:
            raise ParameterError(f"the layout of masks must be name:bits:masks, got {text!r}")
        return cls(bytes.fromhex(parts[1]), int(parts[2]), int(parts[3]))

    def check_event(self, mask: bytes | None) -> None:
        """Refuse a message that is no mask of an event.

        Raises:
            DecodeError: it is missing, of another length, or of another filter.
        """
        self._check(mask, "a publication", {HEAD_BYTES + self.bits // 8})

    def check_interest(self, mask: bytes | None) -> None:
        """Refuse a message that does not hold masks of a subscription.

        Raises:
            DecodeError: they are missing, too many, of another length, or of another filter.
        """
        size = self.bits // 8
        lengths = range(HEAD_BYTES + size, HEAD_BYTES + self.masks * size + 1, size)
        self._check(mask, "a subscription", lengths)

    def _check(self, mask: bytes | None, what: str, lengths: Collection[int]) -> None:
        if mask is None:
            raise DecodeError(f"this broker compares masks, and {what} needs one")
        if len(mask) not in lengths:
            raise DecodeError(
                f"{what} has a mask of {min(lengths)} to {max(lengths)} bytes here, got {len(mask)}"
            )
        if mask[:HEAD_BYTES] != self.name:
            raise DecodeError("a mask of another schema, key or filter than the broker's")


class ContentFilter(Confined):
    """The clients' side of a content pre-filter: masks of events and of subscriptions.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.filters import ContentFilter, FilterKey, may_match
        >>> schema = Schema(issue=Category(["AAPL", "IBM", "SAP"]), price=UInt(8))
        >>> contents = ContentFilter(schema, FilterKey(bytes(16)))
        >>> events = contents.events({"issue": ["IBM", "SAP"], "price": [119, 7]})
        >>> interests = contents.interests(["issue = 'IBM'", "price < 20 OR price = 119"])
        >>> events.shape, interests.shape
        ((2, 24), (2, 72))
        >>> may_match(events, interests)
        array([[ True,  True],
               [False,  True]])

    Attributes:
        schema: attributes of events.
        levels: number of prefixes of each attribute that are in an event's mask.
        rate: requested probability that a pair with one unmet need passes.
        bits: number m of bits of a mask, a multiple of 64.
        hashes: number k of bits of each truth.
        masks: largest number of masks of a subscription.
        elements: number a of truths of an event.
    """

    def __init__(
        self,
        schema: Schema,
        key: FilterKey,
        *,
        levels: int | Mapping[str, int] = LEVELS,
        rate: float = 0.01,
        bits: int | None = None,
        hashes: int | None = None,
        masks: int = MASKS,
    ) -> None:
        """Make the filter of a schema under a key of publishers and subscribers.

        Args:
            schema: attributes of events.
            key: secret key, which brokers do not have.
            levels: number of prefixes, for all attributes or by attribute; 0 for equality alone. An
                attribute of b bits has at most b - 1, and at most 63.
            rate: probability that a pair with one unmet need passes. It determines `bits` and
                `hashes`.
            bits: bits of a mask, in place of the number that follows from `rate`; rounded up to a
                multiple of 64.
            hashes: bits of each truth, in place of the number that follows from `rate`.
            masks: largest number of masks of a subscription, at least 1.

        Raises:
            ParameterError: an argument does not fit.
        """
        self.schema = instance("schema", schema, Schema)
        self._hashing = SipHash(instance("key", key, FilterKey))
        given = dict(levels) if isinstance(levels, Mapping) else dict.fromkeys(schema, levels)
        for name in given:
            if name not in schema:
                raise ParameterError(f"levels: the schema has no attribute {name!r}")
        self.levels = {
            name: min(
                whole(f"levels of {name!r}", given.get(name, LEVELS), 0),
                schema[name].bits - 1,
                _MOST_LEVELS,
            )
            for name in schema
        }
        self.elements = sum(self.levels.values()) + len(schema)
        self.rate = number("rate", rate)
        if not 0 < self.rate < 1:
            raise ParameterError(f"rate must be above 0 and below 1, got {rate!r}")
        size = bloom_size(self.elements, self.rate) if bits is None else whole("bits", bits, 1)
        self.bits = 64 * ceil(size / 64)
        best = max(1, round(self.bits / self.elements * log(2)))
        self.hashes = best if hashes is None else whole("hashes", hashes, 1)
        self.masks = whole("masks", masks, 1)
        content = [schema.to_json(), self.levels, self.bits, self.hashes]
        digest = blake2b(
            json.dumps(content).encode(),
            digest_size=HEAD_BYTES,
            key=key.export_secret(),
            person=b"ccbps contents 2",
        )
        self._head = np.frombuffer(digest.digest(), dtype=np.uint64)

    def __repr__(self) -> str:
        return (
            f"<ContentFilter over {', '.join(self.schema.names)}: {self.bits} bits, "
            f"{self.hashes} hashes>"
        )

    @property
    def event_bytes(self) -> int:
        """Bytes of an event's mask."""
        return HEAD_BYTES + self.bits // 8

    @property
    def interest_bytes(self) -> int:
        """Bytes of a subscription's masks."""
        return HEAD_BYTES + self.masks * self.bits // 8

    @property
    def layout(self) -> MaskLayout:
        """Layout by which a broker compares masks; public."""
        return MaskLayout(self._head.tobytes(), self.bits, self.masks)

    def false_positives(self, unmet: int = 1) -> float:
        """Return the probability that an event passes a mask of which some needs are unmet.

        Example:
            >>> from ccbps import Schema, UInt
            >>> from ccbps.filters import ContentFilter, FilterKey
            >>> schema = Schema(a=UInt(8), b=UInt(8), c=UInt(8), d=UInt(8))
            >>> few = ContentFilter(schema, FilterKey(bytes(16)), levels=0, bits=64, hashes=3)
            >>> round(few.false_positives(), 4)
            0.0051

        Args:
            unmet: number of needs that are not met.
        """
        load = 1 - (1 - 1 / self.bits) ** (self.hashes * self.elements)
        return float(load ** (self.hashes * whole("unmet", unmet, 0)))

    def events(self, records: Any) -> Bytes:
        """Return the masks of records, uint8 of shape (records, event_bytes).

        Raises:
            EventError: the records do not fit the schema.
        """
        events: Events = self.schema.encode(records)
        whole_rows = np.zeros((events.count, self.event_bytes // 8), dtype=np.uint64)
        whole_rows[:, :1], out = self._head, whole_rows[:, 1:]
        for place, name in enumerate(self.schema):
            codes = events.codes[name]
            first = _first_bits(codes, self.schema[name].bits)
            for level in range(self.levels[name] + 1):
                values = codes if not level else first[None] >> np.uint64(64 - level)
                distinct, index = np.unique(values, axis=1, return_inverse=True)
                out |= self._masks(_keys(place, level, distinct))[index.reshape(-1)]
        return whole_rows.view(np.uint8)

    def interests(self, predicates: Iterable[str | Predicate]) -> Bytes:
        """Return the masks of subscriptions, uint8 of shape (subscriptions, interest_bytes).

        Args:
            predicates: SQL texts or predicates with all their constants.

        Raises:
            ParameterError, PredicateError: one does not fit.
        """
        needs = [self._needs(bound_predicate(self.schema, text)) for text in predicates]
        distinct = sorted({need for own in needs for choice in own for need in choice})
        of_need: dict[Need, Words] = {}
        if distinct:
            keys = [_keys(a, j, pack([v], self._limbs(a, j))).tobytes() for a, j, v in distinct]
            of_need = dict(zip(distinct, self._masks(keys), strict=True))
        out = np.zeros((len(needs), self.masks, self.bits // 64), dtype=np.uint64)
        for row, own in zip(out, needs, strict=True):
            if not own:
                row[:] = ~np.uint64(0)  # it never matches
                continue
            for mask, choice in zip(row, own, strict=False):
                for need in choice:
                    mask |= of_need[need]
            # Sorted by their bits: in the order of values they would tell which prefix is lower.
            row[: len(own)] = row[np.lexsort(row[: len(own)].T)]
            row[len(own) :] = row[len(own) - 1]
        rows = np.empty((len(needs), self.interest_bytes // 8), dtype=np.uint64)
        rows[:, :1], rows[:, 1:] = self._head, out.reshape(len(needs), self.masks * self.bits // 64)
        return rows.view(np.uint8)

    # -- needs ------------------------------------------------------------------------------------

    def _needs(self, predicate: Predicate) -> list[list[Need]]:
        """Return the choices of a subscription: all needs of one of them are met if it matches."""
        try:
            products = predicate.alternatives()
        except UnsupportedPredicateError:
            return [[]]
        if not products:
            return []
        each = self.masks // len(products)
        if not each:
            return [[]]
        return [choice for product in products for choice in self._choices(product, each)]

    def _choices(self, product: Mapping[str, Intervals], most: int) -> list[list[Need]]:
        """Return at most `most` choices for an AND of sets of codes."""
        sets = {name: self._covers(name, intervals) for name, intervals in product.items()}
        while prod(map(len, sets.values())) > most:
            name = max(sets, key=lambda other: len(sets[other]))
            first, last = product[name][0][0], product[name][-1][1]
            sets[name] = [self._enclosing(name, first, last)]
        choices: list[list[Need]] = [[]]
        for covers in sets.values():
            choices = [
                choice if cover is None else [*choice, cover]
                for choice in choices
                for cover in covers
            ]
        return choices

    def _covers(self, name: str, intervals: Intervals) -> list[Need | None]:
        """Return needs such that each code of a set meets one; None for a need always met."""
        covers: list[Need | None] = []
        bits = self.schema[name].bits
        for low, high in intervals:
            whole_need = self._enclosing(name, low, high)
            # Codes from the size up do not occur, so a range that ends there may go on.
            top = (1 << bits) - 1 if high == self.schema[name].size - 1 else high
            common = bits - (low ^ top).bit_length()
            if low == high or common >= self.levels[name]:
                covers.append(whole_need)
                continue
            middle = (top >> (bits - common - 1)) << (bits - common - 1)
            left = self._enclosing(name, low, middle - 1)
            right = self._enclosing(name, middle, top)
            halves = [half and half[1] for half in (left, right)]
            covers += [whole_need] if halves == [common + 1] * 2 else [left, right]
        return [None] if None in covers else list(dict.fromkeys(covers))

    def _enclosing(self, name: str, low: int, high: int) -> Need | None:
        """Return the longest prefix that holds a range, or its one code; None for no prefix."""
        place, bits = self.schema.names.index(name), self.schema[name].bits
        if low == high:
            return place, 0, low
        high = (1 << bits) - 1 if high == self.schema[name].size - 1 else high
        level = min(bits - (low ^ high).bit_length(), self.levels[name])
        return (place, level, low >> (bits - level)) if level else None

    # -- bits -------------------------------------------------------------------------------------

    def _limbs(self, place: int, level: int) -> int:
        return 1 if level else self.schema[self.schema.names[place]].limbs

    def _masks(self, keys: Keys) -> Words:
        """Return the bits of truths, uint64 of shape (truths, words)."""
        places = places_of(*self._hashing.many(as_key_bytes(keys)), self.bits, self.hashes)
        out = np.zeros((places.shape[1], self.bits // 64), dtype=np.uint64)
        rows = np.arange(places.shape[1])
        for place in places:
            out[rows, place >> 6] |= np.uint64(1) << (place & 63).astype(np.uint64)
        return out


def may_match(events: Bytes, interests: Bytes) -> Bools:
    """Tell which pairs pass a content pre-filter, bool of shape (events, interests).

    Anybody can do this; there is no key. Hand the result to `Broker.match_all`.

    Args:
        events: masks that `ContentFilter.events` made, or rows of other tables with such masks.
        interests: masks that `ContentFilter.interests` made.

    Raises:
        ShapeError: an argument is not an array of bytes.
        DecodeError: they are not of one filter.
    """
    rows, wanted = _words("events", events), _words("interests", interests)
    own, asked = rows[:, 1:], wanted[:, 1:]
    size = own.shape[1]
    if not size or asked.shape[1] % size:
        raise DecodeError(
            f"masks of {8 * size + 8} bytes and of {asked.shape[1] * 8 + 8} bytes are not of one "
            "filter"
        )
    if len(rows) and len(wanted):
        for name, heads in (("events", rows[:, 0]), ("interests", wanted[:, 0])):
            other = heads != wanted[0, 0]
            if other.any():
                raise DecodeError(
                    f"{name}, row {int(other.argmax())}: a mask of another schema, key or filter "
                    "than that of the first interest: make all masks with the same ones"
                )
    masks = asked.reshape(len(asked), asked.shape[1] // size, size)
    out = np.zeros((len(own), len(asked)), dtype=np.bool_)
    # Masks that repeat the one before them are compared once.
    fresh = np.ones(masks.shape[:2], dtype=np.bool_)
    fresh[:, 1:] = (masks[:, 1:] != masks[:, :-1]).any(axis=2)
    owners, places = np.nonzero(fresh)
    asked, absent = masks[owners, places], ~own
    step = max(1, CELLS // max(1, len(asked)))
    for start in range(0, len(own), step):
        lacks = absent[start : start + step]
        # Most pairs fail in the first word, so the others are looked up one by one.
        row, mask = np.nonzero((lacks[:, :1] & asked[:, 0]) == 0)
        for word in range(1, size):
            good = (lacks[row, word] & asked[mask, word]) == 0
            row, mask = row[good], mask[good]
        out[start + row, owners[mask]] = True
    return out


def _words(name: str, rows: Bytes) -> Words:
    checked: Bytes = array(name, rows, np.uint8, ("rows", "bytes"))
    if checked.shape[1] % 8 or not checked.shape[1]:
        raise DecodeError(f"{name}: masks are of whole words, got {checked.shape[1]} bytes")
    words: Words = np.ascontiguousarray(checked).view(np.uint64)
    return words


def _first_bits(codes: CodeArray, bits: int) -> Words:
    """Return the first 64 bits of codes, from the left."""
    top = bits - 64 * (len(codes) - 1)
    first = codes[0] << np.uint64(64 - top)
    if len(codes) > 1 and top < 64:
        first = first | codes[1] >> np.uint64(top)
    return np.asarray(first, dtype=np.uint64)


def _keys(place: int, level: int, values: CodeArray) -> Bytes:
    """Write truths as bytes: attribute, level and value, one row for each value."""
    head = np.array([[place, level]] * values.shape[1], dtype="<u2").reshape(-1, 2)
    body = np.ascontiguousarray(values.T).astype("<u8")
    return np.concatenate([head.view(np.uint8), body.view(np.uint8)], axis=1)
