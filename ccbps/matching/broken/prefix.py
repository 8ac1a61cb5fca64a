"""PrefixMatch: prefix-preserving encryption of every attribute; a range is a set of prefixes.

An event is the ciphertext of each attribute's code. A subscription is a box: the range of each
attribute, as the fewest prefixes, each enciphered. An encrypted value starts with an encrypted
prefix exactly when the value starts with the prefix, so the broker compares leading bits.

A prefix is a range of ciphertexts, so the broker finds an event's cell
(`ccbps.matching.broken.cells`) for each attribute rather than compare it with every prefix.

Bodies: a ciphertext of k bits is big-endian and left-aligned in ceil(k/8) bytes. A prefix is
a *slot*: such a ciphertext, zero after the prefix, and a byte for the length. A body has one
attribute after the other: in an event their ciphertexts, in an interest all their slots, unused
ones last.

Hazard: ciphertexts are compared by their prefixes without any subscription, and every interval
shows which children changed places on the way to its ends: a hundred of them place all events with
nothing known. See the card.
Source: [Survey] section 4.1 on [LLS04]; Algorithms 1 to 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Index, Randomness
from ccbps.checks import instance
from ccbps.ciphers.prefix_preserving import MAX_BITS, CryptoPAn
from ccbps.forms.prefixes import Prefix, most_prefixes, range_prefixes
from ccbps.keys.role_key import hex_bytes
from ccbps.leakage import LeakageCard
from ccbps.matching.broken.cells import CellGroup, Cells, groups_of, match_groups, unpacked
from ccbps.matching.contract.scheme import Cost, Draw, Operation, Side, Sizes
from ccbps.matching.reusable import BOXES, ReusableMatcher, causes, check_widths
from ccbps.predicates import Events, Keyword, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.codes import CodeArray, pack
from ccbps.predicates.types import AttributeType

KEY_BYTES: Final = 32
KEPT_CIPHERS: Final = 64


Keys = NDArray[Any]
"""Values that order ciphertexts and prefixes: uint64, or bytes where one takes more than 7."""

UNUSED: Final = 0xFF
"""Length of a slot that holds no prefix."""


@dataclass(frozen=True, slots=True)
class Field:
    """Places of an attribute in the bodies.

    Attributes:
        name: name of the attribute.
        bits: width of the attribute, bits.
        slots: number of prefixes that an interest has room for.
        event_at: first byte in the body of an event.
        interest_at: first byte in the body of an interest.
    """

    name: str
    bits: int
    slots: int
    event_at: int
    interest_at: int

    @property
    def width(self) -> int:
        """Bytes of a ciphertext."""
        return -(-self.bits // 8)

    @property
    def interest_bytes(self) -> int:
        """Bytes of the attribute in the body of an interest."""
        return self.slots * (self.width + 1)

    def values_of(self, bodies: Bytes) -> Bytes:
        """Return the ciphertexts of event bodies, shape (rows, width)."""
        return bodies[:, self.event_at : self.event_at + self.width]

    def slots_of(self, bodies: Bytes) -> Bytes:
        """Return the slots of interest bodies, shape (rows, slots, width + 1)."""
        chosen = bodies[:, self.interest_at : self.interest_at + self.interest_bytes]
        return chosen.reshape(len(bodies), self.slots, self.width + 1)

    def body_of(self, ciphertexts: Bytes, lengths: Bytes, rows: Index, count: int) -> Bytes:
        """Return this attribute's part of interest bodies, shape (count, bytes).

        Args:
            ciphertexts: ciphertexts of codes that begin with the prefixes, (prefixes, width).
            lengths: lengths of the prefixes, bits.
            rows: interest of each prefix, ascending.
            count: number of interests.
        """
        slots = np.empty((len(rows), self.width + 1), dtype=np.uint8)
        slots[:, :-1] = ciphertexts & mask(lengths, self.width)
        slots[:, -1] = lengths
        # In the order of ciphertexts: that of the codes would show which bits are flipped.
        order = np.lexsort((keys_of(slots), rows))
        starts = np.searchsorted(rows, np.arange(count))
        body = np.zeros((count, self.slots, self.width + 1), dtype=np.uint8)
        body[:, :, -1] = UNUSED
        body[rows, np.arange(len(rows)) - starts[rows]] = slots[order]
        return body.reshape(count, self.interest_bytes)

    def strays(self, bodies: Bytes) -> Bools:
        """Return the event bodies that have bits after this attribute's ciphertext."""
        spare = 8 * self.width - self.bits
        return np.asarray(self.values_of(bodies)[:, -1] & ((1 << spare) - 1), dtype=np.bool_)

    def malformed(self, bodies: Bytes) -> Bools:
        """Return the interest bodies with slots of this attribute that nobody encodes."""
        slots = self.slots_of(bodies)
        lengths = slots[:, :, -1]
        used = lengths != UNUSED
        wrong = (used & (lengths > self.bits)).any(axis=1)
        wrong |= (used[:, 1:] & ~used[:, :-1]).any(axis=1)
        inside = mask(np.where(used, lengths, 0).reshape(-1), self.width)
        beyond = slots[:, :, :-1] & ~inside.reshape(slots[:, :, :-1].shape)
        wrong |= beyond.any(axis=(1, 2))
        # Ascending, and no prefix within another.
        firsts, lasts = ends(slots.reshape(-1, slots.shape[2]))
        after = firsts.reshape(lengths.shape)[:, 1:] > lasts.reshape(lengths.shape)[:, :-1]
        return np.asarray(wrong | (used[:, 1:] & ~after).any(axis=1), dtype=np.bool_)


def wire(codes: CodeArray, bits: int) -> Bytes:
    """Return codes as big-endian bytes, left-aligned; shape (rows, width)."""
    width = -(-bits // 8)
    whole = np.ascontiguousarray(codes.T.astype(">u8")).view(np.uint8)
    whole = whole.reshape(codes.shape[1], 8 * codes.shape[0])[:, 8 * codes.shape[0] - width :]
    spare = 8 * width - bits
    if not spare:
        return whole
    out = whole << np.uint8(spare)
    out[:, :-1] |= whole[:, 1:] >> np.uint8(8 - spare)
    return out


def mask(lengths: Bytes, width: int) -> Bytes:
    """Return rows with ones in the first `length` bits; shape (rows, width)."""
    left = lengths.astype(np.int32)[:, None] - 8 * np.arange(width, dtype=np.int32)
    return (0xFF00 >> left.clip(0, 8) & 0xFF).astype(np.uint8)


def keys_of(slots: Bytes) -> Keys:
    """Return keys of rows of value and length, which order by value, then by length.

    The key of a whole value is greater than that of any prefix it starts with, and not greater than
    such a prefix's last key (`ends`).
    """
    width = slots.shape[1] - 1
    if width > 7:
        return np.ascontiguousarray(slots).view(f"S{width + 1}")[:, 0]
    wide = np.zeros((len(slots), 8), dtype=np.uint8)
    wide[:, :width] = slots[:, :-1]
    wide[:, 7] = slots[:, -1]
    return wide.view(">u8")[:, 0].astype(np.uint64)


def ends(slots: Bytes) -> tuple[Keys, Keys]:
    """Return the first and the last key of each prefix."""
    last = slots.copy()
    last[:, :-1] |= ~mask(slots[:, -1], slots.shape[1] - 1)
    last[:, -1] = UNUSED
    return keys_of(slots), keys_of(last)


def event_keys(field: Field, bodies: Bytes) -> Keys:
    """Return the keys of an attribute's ciphertexts in event bodies, shape (rows,)."""
    points = np.empty((len(bodies), field.width + 1), dtype=np.uint8)
    points[:, :-1] = field.values_of(bodies)
    points[:, -1] = field.bits
    return keys_of(points)


@dataclass(frozen=True, slots=True)
class _Prefixes(CellGroup):
    """Prefixes of a group of interests.

    Attributes:
        prefixes: keys of all prefixes of each attribute, interest after interest.
        counts: number of prefixes of each attribute and interest, shape (attributes, interests).
    """

    prefixes: tuple[Keys, ...]
    counts: Index


@lru_cache(maxsize=KEPT_CIPHERS)
def _cipher(key: str, bits: int) -> CryptoPAn:
    # Ciphers keep a table of their leading bits, so those in use stay in memory.
    return CryptoPAn(bytes.fromhex(key), bits)


class PrefixMatch(ReusableMatcher):
    """Conjunctions of intervals over prefix-preserving ciphertexts. Broken by its intervals.

    Args:
        schema: attributes of at most 128 bits each.

    Raises:
        ParameterError: an attribute is wider.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching.broken import PrefixMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = PrefixMatch(schema)
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

    name = "prefix-preserving"
    parts = ("keys",)
    operators = BOXES
    covering = True

    def __init__(self, schema: Schema) -> None:
        check_widths(schema, MAX_BITS, "; declare it shorter, or as a Keyword(64)")
        fields: list[Field] = []
        event = interest = 0
        for name in schema:
            fields.append(Field(name, schema[name].bits, _slots(schema[name]), event, interest))
            event += fields[-1].width
            interest += fields[-1].interest_bytes
        self._fields = tuple(fields)
        self._set_up(schema, Sizes(event, interest))

    def layout(self) -> Any:
        return [field.slots for field in self._fields]

    @property
    def leakage(self) -> LeakageCard:
        return self._card(
            hides=(
                "in which half of a prefix's range a value lies, as long as none of these "
                "tells: a bound of a subscription, a known value (NULL is one), a known "
                "distribution, an end of the domain",
            ),
            learns=(
                "every match",
                "how many leading bits any two values or bounds of an attribute share; hence "
                "which are equal, and how often",
                "which attributes a subscription constrains",
                "the number and the lengths of a range's prefixes: hence the number of its "
                "codes, and the digits of both bounds after their first difference, up to a "
                "reflection",
                "from some 100 intervals together, where all values and bounds lie, up to one "
                "reflection of the domain",
            ),
            security="broken",
            assumption="100 intervals give away where values lie, with nothing known beforehand",
            hazards=("a client colludes with the broker: it has the keys of all attributes",),
            attacks=(
                "ciphertext only: 100 intervals place events within 1 % of the domain, up to one "
                "reflection, which a single known value or x < c resolves",
                "distribution: if it is known, events are placed without a single subscription",
                "known plaintext: m known values give every other value its longest prefix in "
                "common with one of them, and one bit more",
                "ranges: the lengths of the prefixes of x < c are the digits of c, so such a "
                "subscription is a known value in itself",
                "frequency: the most frequent ciphertext is the most frequent value",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role. Leading bits that are in a table take none."""
        bits = self.schema.bits
        prefixes = sum(field.slots * field.bits for field in self._fields)
        return (
            Cost("publisher", "event", Operation.AES_BLOCK, bits, note="at most"),
            Cost("subscriber", "interest", Operation.AES_BLOCK, prefixes, note="at most"),
            Cost("broker", "pair", Operation.BIT, len(self._fields)),
        )

    # -- keys and messages --------------------------------------------------------------------

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        return {"keys": [randomness(KEY_BYTES).hex() for _ in self._fields]}

    def check_part(self, name: str, value: Any) -> None:
        for _, text in zip(self._fields, instance(name, value, list), strict=True):
            hex_bytes(text, KEY_BYTES)

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        for field, text in zip(self._fields, key["keys"], strict=True):
            codes = _cipher(text, field.bits).encrypt(events.codes[field.name])
            field.values_of(out)[:] = wire(codes, field.bits)

    def prepare(self, interest: Any) -> list[list[Prefix]]:
        ranges = bound_predicate(self.schema, interest).box().ranges
        prepared = []
        for field in self._fields:
            low, high = ranges[field.name]
            # No event has a code above the greatest: counting them in makes for fewer prefixes.
            if low <= high == self.schema[field.name].size - 1:
                high = (1 << field.bits) - 1
            prepared.append(range_prefixes(low, high, field.bits))
        return prepared

    def _distinct(self, key: Mapping[str, Any], interests: Sequence[list[list[Prefix]]]) -> Bytes:
        parts = []
        for number, field in enumerate(self._fields):
            ranges = [prepared[number] for prepared in interests]
            prefixes = [prefix for prefixes in ranges for prefix in prefixes]
            codes = pack([value for value, _ in prefixes], -(-field.bits // 64))
            lengths = np.array([length for _, length in prefixes], dtype=np.uint8)
            encrypted = wire(_cipher(key["keys"][number], field.bits).encrypt(codes), field.bits)
            rows = np.repeat(np.arange(len(ranges)), [len(prefixes) for prefixes in ranges])
            parts.append(field.body_of(encrypted, lengths, rows, len(ranges)))
        return np.hstack(parts)

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        wrong = np.zeros(len(bodies), dtype=np.bool_)
        for field in self._fields:
            wrong |= field.strays(bodies) if side == "event" else field.malformed(bodies)
        return causes(wrong)

    # -- the broker ---------------------------------------------------------------------------

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> list[_Prefixes]:
        return [self._group(part) for part in groups_of(bodies)]

    def _group(self, bodies: Bytes) -> _Prefixes:
        cells, prefixes, counts = [], [], []
        for field in self._fields:
            slots = field.slots_of(bodies)
            used = slots[:, :, -1] != UNUSED
            chosen = slots[used]
            firsts, lasts = ends(chosen)
            counts.append(used.sum(axis=1))
            prefixes.append(firsts)
            if counts[-1].all() and not chosen[:, -1].any():
                cells.append(Cells.everything(firsts, len(bodies)))
            else:
                cells.append(Cells.of(firsts, lasts, np.nonzero(used)[0], len(bodies)))
        return _Prefixes(tuple(cells), len(bodies), tuple(prefixes), np.stack(counts))

    def match(self, key: Mapping[str, Any], events: Bytes, table: list[_Prefixes]) -> Bools:
        return match_groups(table, [event_keys(field, events) for field in self._fields])

    def covers(
        self, key: Mapping[str, Any], wide: list[_Prefixes], narrow: list[_Prefixes]
    ) -> Bools:
        return np.block([[_group_covers(outer, inner) for inner in narrow] for outer in wide])


def _group_covers(wide: _Prefixes, narrow: _Prefixes) -> Bools:
    inside = np.ones((narrow.count, wide.count), dtype=np.bool_)
    for cells, prefixes, counts in zip(wide.cells, narrow.prefixes, narrow.counts, strict=True):
        used = counts > 0
        if used.any():
            # A range is within another exactly when each of its prefixes starts with one of those.
            starts = np.cumsum(counts) - counts
            every = np.bitwise_and.reduceat(cells.look_up(prefixes), starts[used], axis=0)
            inside[used] &= unpacked(every, wide.count)
    inside |= (narrow.counts == 0).any(axis=0)[:, None]
    return inside.T


def _slots(kind: AttributeType) -> int:
    """Return the most prefixes that a range of this type takes."""
    if isinstance(kind, Keyword):  # Compared for equality; IS NOT NULL is all but code 0.
        return kind.bits if kind.nullable else 1
    return most_prefixes(kind.bits)
