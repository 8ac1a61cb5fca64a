"""PrefixMatch: prefix-preserving encryption of every attribute; a range is a set of prefixes.

An event is the ciphertext of each attribute's code. A subscription is a box: the range of each
attribute, as the fewest prefixes, each enciphered. An encrypted value starts with an encrypted
prefix exactly when the value starts with the prefix, so the broker compares leading bits.

A prefix is a range of ciphertexts, so the broker finds an event's cell
(`ccbps.matching.broken.cells`) for each attribute rather than compare it with every prefix.

Hazard: ciphertexts are compared by their prefixes without any subscription, and every interval
shows which children changed places on the way to its ends: a hundred of them place all events with
nothing known. See the card.
Source: [Survey] section 4.1 on [LLS04]; Algorithms 1 to 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Randomness
from ccbps.ciphers.prefix_preserving import MAX_BITS, CryptoPAn
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import ParameterError
from ccbps.forms.prefixes import Prefix, most_prefixes, range_prefixes
from ccbps.keys.role_key import Role
from ccbps.leakage import LeakageCard
from ccbps.matching.broken.cells import Cells, groups_of, in_all, unpacked
from ccbps.matching.broken.prefix_bodies import UNUSED, Field, Keys, ends, event_keys, wire
from ccbps.matching.contract.bodies import Draw, Sizes
from ccbps.matching.contract.costs import Cost, Operation
from ccbps.matching.contract.interests import bound_predicate
from ccbps.matching.contract.kinds import Side
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import ServerScheme, TableScheme
from ccbps.predicates import Events, Keyword, Schema
from ccbps.predicates.codes import pack
from ccbps.predicates.types import AttributeType
from ccbps.wire import Cause

KEY_BYTES: Final = 32
KEPT_CIPHERS: Final = 64


@lru_cache(maxsize=KEPT_CIPHERS)
def _cipher(key: str, bits: int) -> CryptoPAn:
    """Ciphers keep a table of their leading bits, so those in use stay in memory."""
    return CryptoPAn(bytes.fromhex(key), bits)


@dataclass(frozen=True, slots=True)
class _Group:
    """A group of interests at the broker.

    Attributes:
        cells: of each attribute.
        prefixes: of each attribute, keys of all prefixes, interest after interest.
        counts: prefixes of each attribute and interest, shape (attributes, interests).
    """

    cells: tuple[Cells, ...]
    prefixes: tuple[Keys, ...]
    counts: Index

    @property
    def count(self) -> int:
        """Interests in the group."""
        return int(self.counts.shape[1])


class PrefixMatch(Matcher, ServerScheme, TableScheme):
    """Conjunctions of intervals over prefix-preserving ciphertexts. Broken by its intervals.

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
    operators = ("=", "<", "interval", "prefix", "and")
    covering = True

    def __init__(self, schema: Schema) -> None:
        """
        Args:
            schema: attributes of at most 128 bits each.

        Raises:
            ParameterError: an attribute is wider.
        """
        fields: list[Field] = []
        event = interest = 0
        for name in schema:
            bits = schema[name].bits
            if bits > MAX_BITS:
                raise ParameterError(
                    f"attribute {name!r} must have at most {MAX_BITS} bits, got {bits}; "
                    "declare it shorter, or as a Keyword(64)"
                )
            field = Field(name, bits, -(-bits // 8), _slots(schema[name]), event, interest)
            fields.append(field)
            event += field.width
            interest += field.slots * (field.width + 1)
        self._fields = tuple(fields)
        self._set_up(schema, Sizes(event, interest))

    def parameters(self) -> dict[str, Any]:
        """None beyond the schema."""
        return {}

    def layout(self) -> Any:
        """Slots of each attribute."""
        return [field.slots for field in self._fields]

    @property
    def leakage(self) -> LeakageCard:
        """What the broker learns."""
        return LeakageCard(
            scheme="PrefixMatch",
            adversary="the broker, which follows the protocol and keeps all it sees",
            hides=(
                "in which half of a prefix's range a value lies, as long as none of these "
                "tells: a bound of a subscription, a known value (NULL is one), a known "
                "distribution, an end of the domain",
            ),
            protects=frozenset(),
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
            reuse="reusable",
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
        """Operations of each role: leading bits that are in a table take none."""
        bits = self.schema.bits
        prefixes = sum(field.slots * field.bits for field in self._fields)
        return (
            Cost("publisher", "event", Operation.AES_BLOCK, bits, note="at most"),
            Cost("subscriber", "interest", Operation.AES_BLOCK, prefixes, note="at most"),
            Cost("broker", "pair", Operation.BIT, len(self._fields)),
        )

    # -- keys and messages --------------------------------------------------------------------

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        """See `ServerScheme.generate`."""
        return {"keys": [randomness(KEY_BYTES).hex() for _ in self._fields]}

    def issue(
        self,
        master: dict[str, Any],
        role: Role,
        name: str,
        randomness: Randomness,
    ) -> dict[str, Any]:
        """See `ServerScheme.issue`."""
        return {} if role == "broker" else {"keys": master["keys"]}

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        """See `Scheme.encode_events`."""
        for field, text in zip(self._fields, key["keys"], strict=True):
            codes = _cipher(text, field.bits).encrypt(events.codes[field.name])
            field.values_of(out)[:] = wire(codes, field.bits)

    def prepare(self, interest: Any) -> list[list[Prefix]]:
        """The prefixes of each attribute's range."""
        ranges = bound_predicate(self.schema, interest).box().ranges
        prepared = []
        for field in self._fields:
            low, high = ranges[field.name]
            # No event has a code above the greatest: counting them in makes for fewer prefixes.
            if low <= high == self.schema[field.name].size - 1:
                high = (1 << field.bits) - 1
            prepared.append(range_prefixes(low, high, field.bits))
        return prepared

    def encode_interests(
        self,
        key: Mapping[str, Any],
        interests: DictionaryColumn[list[list[Prefix]]],
        draw: Draw,
        out: Bytes,
    ) -> None:
        """See `Scheme.encode_interests`."""
        for number, field in enumerate(self._fields):
            ranges = [prepared[number] for prepared in interests.values]
            prefixes = [prefix for prefixes in ranges for prefix in prefixes]
            codes = pack([value for value, _ in prefixes], -(-field.bits // 64))
            lengths = np.array([length for _, length in prefixes], dtype=np.uint8)
            whole = wire(_cipher(key["keys"][number], field.bits).encrypt(codes), field.bits)
            rows = np.repeat(np.arange(len(ranges)), [len(prefixes) for prefixes in ranges])
            body = field.body_of(whole, lengths, rows, len(ranges))
            at = slice(field.interest_at, field.interest_at + body.shape[1])
            out[:, at] = body[interests.index]

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        """See `Scheme.check`."""
        wrong = np.zeros(len(bodies), dtype=np.bool_)
        for field in self._fields:
            wrong |= field.strays(bodies) if side == "event" else field.malformed(bodies)
        return np.where(wrong, Cause.VALUE, Cause.NONE).astype(np.uint8)

    # -- the broker ---------------------------------------------------------------------------

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> list[_Group]:
        """Cells of events, and prefixes."""
        return [self._group(part) for part in groups_of(bodies)]

    def _group(self, bodies: Bytes) -> _Group:
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
        return _Group(tuple(cells), tuple(prefixes), np.stack(counts))

    def match(self, key: Mapping[str, Any], events: Bytes, table: list[_Group]) -> Bools:
        """See `TableScheme.match`."""
        keys = [event_keys(field, events) for field in self._fields]
        return np.concatenate([in_all(one.cells, keys, one.count) for one in table], axis=1)

    def covers(self, key: Mapping[str, Any], wide: list[_Group], narrow: list[_Group]) -> Bools:
        """See `TableScheme.covers`."""
        return np.block([[_group_covers(outer, inner) for inner in narrow] for outer in wide])


def _group_covers(wide: _Group, narrow: _Group) -> Bools:
    inside = np.ones((narrow.count, wide.count), dtype=np.bool_)
    for cells, prefixes, counts in zip(wide.cells, narrow.prefixes, narrow.counts, strict=True):
        some = counts > 0
        if some.any():
            # A range is within another exactly when each of its prefixes starts with one of those.
            starts = np.cumsum(counts) - counts
            every = np.bitwise_and.reduceat(cells.look_up(prefixes), starts[some], axis=0)
            inside[some] &= unpacked(every, wide.count)
    inside |= (narrow.counts == 0).any(axis=0)[:, None]
    return inside.T


def _slots(kind: AttributeType) -> int:
    """Prefixes that a range of this type takes at most."""
    if isinstance(kind, Keyword):  # compared for equality; IS NOT NULL is all but code 0
        return kind.bits if kind.nullable else 1
    return most_prefixes(kind.bits)
