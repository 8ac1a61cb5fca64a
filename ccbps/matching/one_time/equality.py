"""EqualityMatch and MembershipMatch: is an attribute one of some private values?

Publisher and subscriber share one-time randomness. Each sends one message, no longer than the
values: `ccbps.encodings.equality`. The broker learns whether the event has one of the subscriber's
values, and nothing else: neither values nor, with `MembershipMatch`, how many they are.

Security: perfect against the broker, given fresh shared randomness for every pair of messages
(`OneTimePad`); with a `SharedSeed`, computational. Broker and one client together learn the other
client's input. Sources: Feige, Kilian and Naor, STOC 1994; `ccbps.encodings.equality`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Final, Self

import numpy as np

from ccbps.algebra.binary_field import MOST_BITS
from ccbps.arrays import Bytes, Words
from ccbps.checks import whole
from ccbps.dictionary import DictionaryColumn
from ccbps.encodings.equality import EqualityEncoding
from ccbps.errors import CcbpsError, ParameterError, UnsupportedPredicateError
from ccbps.forms.bits import event_words, reversed_bits
from ccbps.forms.topic import chosen_names
from ccbps.leakage import LeakageCard, Protects
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import (
    Cost,
    Draw,
    Operation,
    Operator,
)
from ccbps.matching.one_time.encoded import EncodedScheme
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.bound import bound_predicate

MOST_MEMBERS: Final = 1 << 12
"""Largest number of values of an interest."""


class MembershipMatch(Matcher, EncodedScheme):
    """One-time matcher of membership in a private set of values.

    Example:
        >>> from ccbps import Category, Schema, SharedSeed, UInt
        >>> from ccbps.matching import MembershipMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM", "SAP"]), price=UInt(16))
        >>> matcher = MembershipMatch(schema, ["issue", "price"], members=4)
        >>> seed = SharedSeed.generate()
        >>> records = [{"issue": "IBM", "price": 120}, {"issue": "SAP", "price": 120}]
        >>> events = matcher.publisher(seed).encode(records, rounds=[0, 1])
        >>> wanted = "issue IN ('AAPL', 'IBM') AND price IN (120, 121)"
        >>> interests = matcher.subscriber(seed).encode(wanted, rounds=[0, 1])
        >>> matcher.broker().match(events, interests)
        array([ True, False])

    Attributes:
        attributes: names of the attributes whose values are compared; public.
        members: greatest number of values of an interest, a power of two; public.
        encoding: the encoders and the decoder.
    """

    name = "membership"
    operators: tuple[Operator, ...] = ("=", "interval", "prefix", "in", "and", "or")

    def __init__(
        self, schema: Schema, attributes: Sequence[str] | None = None, *, members: int
    ) -> None:
        """Take attributes and a number of values.

        Args:
            schema: schema of the events.
            attributes: names of the attributes whose values are compared, all that a predicate
                may constrain; None for all attributes.
            members: greatest number of values of an interest (of combinations, where there are
                several attributes), rounded up to a power of two. A message has as many elements.

        Raises:
            ParameterError: an attribute is not in the schema, there are none, their codes have
                more than 1,024 bits together (1,023 if all codes are values), or there are more
                than 4,096 members.
        """
        slots = 1 << (whole("members", members, 1, MOST_MEMBERS) - 1).bit_length()
        self._use(schema, attributes, slots)

    def _use(self, schema: Schema, attributes: Sequence[str] | None, slots: int) -> None:
        names = chosen_names(schema, attributes)
        self.attributes, self.members = names, slots
        # A view of the events, whose bits are their values.
        self._values = Schema({name: schema[name] for name in names})
        bits = self._values.bits
        # A value that no event has: it fills the slots that are not used.
        spare = any(kind.size < 1 << kind.bits for kind in map(schema.__getitem__, names))
        needed = bits if spare or self._exact else bits + 1
        width = needed if needed < 8 else -(-needed // 8) * 8
        if width > MOST_BITS:
            most = MOST_BITS - (needed - bits)
            raise ParameterError(
                f"the attributes have codes of {bits:,} bits together, at most {most:,} are "
                "possible: take fewer attributes, or Keyword(bits), which hashes them"
            )
        self._unused = _unused(self._values, width)
        self._set_up(schema, self._encoded_sizes(EqualityEncoding(width, slots)))

    _exact = False
    """True if an element is no longer than values need, even if then no element is unused."""

    def parameters(self) -> dict[str, Any]:
        return {"attributes": list(self.attributes), "members": self.members}

    @classmethod
    def propose(cls, schema: Schema, predicate: Predicate) -> Iterator[Self]:
        # Hazard: attributes and the number of values follow from the predicate, and are public.
        if predicate.schema != schema or predicate.unbound_names:
            return
        try:
            sets = predicate.sets(dict.fromkeys(schema, MOST_MEMBERS))
        except CcbpsError:
            return
        counts = {name: sum(b - a + 1 for a, b in sets[name]) for name in schema}
        names = [name for name in schema if counts[name] < schema[name].size] or [*schema]
        try:
            matcher = cls._for_values(schema, names, prod(counts[name] for name in names))
            matcher.prepare(predicate)
        except CcbpsError:
            return
        yield matcher

    @classmethod
    def _for_values(cls, schema: Schema, names: list[str], values: int) -> Self:
        """Make the matcher for so many values of some attributes."""
        return cls(schema, names, members=max(values, 1))

    def __repr__(self) -> str:
        many = "" if self.members == 1 else f" of {self.members} values"
        return f"<{type(self).__name__}{many} over {self._listed}>"

    def explain(self) -> str:
        return self._explain(
            [
                ("compares", self._listed),
                ("values", f"at most {self.members:,} per interest"),
                ("field", f"2^{self.encoding.field.bits} elements"),
            ]
        )

    @property
    def leakage(self) -> LeakageCard:
        hidden = "the value that a subscription asks for"
        public = f"the schema, and that subscriptions ask for values of {self._listed}"
        if not self._exact:
            public += f", at most {self.members} of them"
            hidden = "the values that a subscription asks for, and their number"
        return self._perfect(public, hidden, {Protects.CONSTANTS})

    @property
    def _listed(self) -> str:
        return ", ".join(self.attributes)

    @property
    def costs(self) -> tuple[Cost, ...]:
        products = self.members * self.encoding.field.integer_products
        words = -(-self.encoding.event_bytes // 8)
        return (
            Cost("publisher", "pair", Operation.MULTIPLICATION, products),
            Cost("subscriber", "pair", Operation.MULTIPLICATION, products),
            Cost("broker", "pair", Operation.WORD, 3 * words),
        )

    # -- interests and messages -------------------------------------------------------------------

    def prepare(self, interest: Any) -> Words:
        """Return the values of an interest, shape (limbs, 1, members)."""
        predicate = bound_predicate(self.schema, interest)
        sets = predicate.sets(dict.fromkeys(self.schema, MOST_MEMBERS))
        never = not all(sets.values())
        for name, allowed in sets.items():
            full = ((0, self.schema[name].size - 1),)
            if not never and name not in self._values and allowed != full:
                raise self._refusal(
                    predicate,
                    f"it constrains {name!r}, and this matcher compares {self._listed} only",
                )
        counts = [sum(b - a + 1 for a, b in sets[name]) for name in self.attributes]
        values = 0 if never else prod(counts)
        if values > self.members:
            raise self._refusal(
                predicate,
                f"it has {values:,} values, and this matcher takes at most {self.members:,}",
            )
        codes = [
            [code for low, high in sets[name] for code in range(low, high + 1)]
            for name in (() if never else self.attributes)
        ]
        numbers = [] if never else [self._number(row) for row in product(*codes)]
        if len(numbers) < self.members:
            if self._unused is None:
                raise self._refusal(
                    predicate, "no event fulfils it, and every value is that of some event"
                )
            numbers += [self._unused] * (self.members - len(numbers))
        size, limbs = 8 * self.encoding.field.limbs, self.encoding.field.limbs
        octets = b"".join(number.to_bytes(size, "little") for number in numbers)
        rows = np.frombuffer(octets, dtype="<u8").reshape(-1, limbs).astype(np.uint64)
        return np.ascontiguousarray(rows.T)[:, None]

    def _number(self, codes: Sequence[int]) -> int:
        """Return the value of codes as `event_words` orders its bits."""
        value = 0
        for name, code in zip(self.attributes, codes, strict=True):
            value = value << self.schema[name].bits | code
        return reversed_bits(value, self._values.bits)

    def _refusal(self, predicate: Predicate, problem: str) -> UnsupportedPredicateError:
        takes = "one value" if self._exact else f"at most {self.members:,} values"
        advice = f"take a predicate that leaves {takes} of {self._listed}, or another matcher"
        return UnsupportedPredicateError(
            f"{type(self).__name__} does not take this predicate: {problem}; {advice}",
            text=predicate.text,
            summary=f"{type(self).__name__} does not take this predicate; {advice}",
        )

    def identify(self, prepared: Words) -> bytes:
        return prepared.tobytes()

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        codes = {name: events.codes[name] for name in self.attributes}
        words = event_words(Events(self._values, events.count, codes))
        values = np.zeros((self.encoding.field.limbs, events.count), dtype=np.uint64)
        values[: len(words)] = words
        self.encoding.encode_event(values, draw.rows, out)

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Words], draw: Draw, out: Bytes
    ) -> None:
        values = np.concatenate(interests.values, axis=1)
        index = None if len(interests.values) == 1 else interests.index
        self.encoding.encode_interest(values, draw.rows, out, index=index)


class EqualityMatch(MembershipMatch):
    """One-time matcher of equality with one private value.

    Example:
        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import EqualityMatch
        >>> schema = Schema(account=UInt(64), amount=UInt(32))
        >>> matcher = EqualityMatch(schema, ["account"])
        >>> seed = SharedSeed.generate()
        >>> records = {"account": [17, 18], "amount": [1, 1]}
        >>> events = matcher.publisher(seed).encode(records, rounds=[0, 1])
        >>> interests = matcher.subscriber(seed).encode("account = 18", rounds=[0, 1])
        >>> matcher.broker().match(events, interests)
        array([False,  True])
        >>> matcher.event_bytes, matcher.interest_bytes          # header and value
        (16, 16)

    Attributes:
        attributes: names of the attributes whose values are compared; public.
        encoding: the encoders and the decoder.
    """

    name = "equality"
    operators = ("=", "and")
    _exact = True

    def __init__(self, schema: Schema, attributes: Sequence[str] | None = None) -> None:
        """Take attributes.

        Args:
            schema: schema of the events.
            attributes: names of the attributes whose values are compared; None for all. A
                predicate gives a value to each of them and constrains no other.

        Raises:
            ParameterError: an attribute is not in the schema, there are none, or their codes have
                more than 1,024 bits together.
        """
        self._use(schema, attributes, 1)

    def parameters(self) -> dict[str, Any]:
        return {"attributes": list(self.attributes)}

    @classmethod
    def _for_values(cls, schema: Schema, names: list[str], values: int) -> Self:
        return cls(schema, names)

    def explain(self) -> str:
        bits = self.encoding.field.bits
        return self._explain([("compares", self._listed), ("field", f"2^{bits} elements")])


def _unused(values: Schema, width: int) -> int | None:
    """Return an element of so many bits that no event has as its value, if there is one."""
    if width > values.bits:
        return 1 << values.bits
    value, spare = 0, False
    for kind in map(values.__getitem__, values):
        unused = kind.size < 1 << kind.bits and not spare
        spare |= unused
        value = value << kind.bits | (kind.size if unused else 0)
    return reversed_bits(value, values.bits) if spare else None
