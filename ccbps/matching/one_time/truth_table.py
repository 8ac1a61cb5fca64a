"""TruthTableMatch: any private predicate on events of at most 20 bits.

Publisher and subscriber share one-time randomness. The subscriber sends the masked truth table of
its predicate, and the publisher a place in it: `ccbps.encodings.truth_table`. The broker learns
whether the event matches, and nothing else: the predicate may be any function at all.

Security: perfect against the broker, given fresh shared randomness for every pair of messages
(`OneTimePad`); with a `SharedSeed`, computational. Broker and one client together learn the other
client's input. Source: Ishai et al., TCC 2013.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self, get_args

import numpy as np

from ccbps.arrays import Bytes, Numbers
from ccbps.dictionary import DictionaryColumn
from ccbps.encodings.truth_table import MOST_BITS, TruthTableEncoding
from ccbps.errors import ParameterError
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


class TruthTableMatch(Matcher, EncodedScheme):
    """One-time matcher of any predicate on events of few bits.

    Example:
        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import TruthTableMatch
        >>> matcher = TruthTableMatch(Schema(x=UInt(5), y=UInt(5)))
        >>> seed = SharedSeed.generate()
        >>> events = matcher.publisher(seed).encode({"x": [3, 7], "y": [9, 9]}, rounds=[0, 1])
        >>> wanted = "hamming(x, 7) <= 1 AND y > 8 OR x IN (1, 30) AND NOT y = 4"
        >>> interests = matcher.subscriber(seed).encode(wanted, rounds=[0, 1])
        >>> matcher.broker().match(events, interests)
        array([ True,  True])
        >>> matcher.event_bytes, matcher.interest_bytes
        (10, 136)

    Attributes:
        encoding: the encoders and the decoder.
    """

    name = "truth table"
    operators: tuple[Operator, ...] = get_args(Operator)

    def __init__(self, schema: Schema) -> None:
        """Take the schema of the events.

        Args:
            schema: at most 20 bits. An interest takes 2^bits bits.

        Raises:
            ParameterError: the schema has more bits.
        """
        if schema.bits > MOST_BITS:
            raise ParameterError(
                f"events have {schema.bits} bits, and a table of all of them takes at most "
                f"{MOST_BITS}: leave out attributes, narrow them, or take FormulaMatch.hidden"
            )
        encoding = TruthTableEncoding(schema.bits)
        self._set_up(schema, self._encoded_sizes(encoding, encoding.pieces))

    def parameters(self) -> dict[str, Any]:
        return {}

    @classmethod
    def propose(cls, schema: Schema, predicate: Predicate) -> Iterator[Self]:
        if schema.bits <= MOST_BITS:
            yield from super().propose(schema, predicate)

    def explain(self) -> str:
        return self._explain([("table", f"{1 << self.schema.bits:,} bits per interest")])

    @property
    def leakage(self) -> LeakageCard:
        protects = {Protects.CONSTANTS, Protects.ATTRIBUTES, Protects.FORMULA}
        return self._perfect("the schema", "the predicate, which may be any function", protects)

    @property
    def costs(self) -> tuple[Cost, ...]:
        octets = self.sizes.interest
        return (
            Cost("publisher", "pair", Operation.WORD, 10),
            Cost("subscriber", "pair", Operation.WORD, 5 * octets, note="a byte each"),
            Cost("broker", "pair", Operation.WORD, 10),
        )

    # -- interests and messages -------------------------------------------------------------------

    def prepare(self, interest: Any) -> Bytes:
        """Return the truth table of a predicate, shape (sizes.interest,)."""
        predicate = bound_predicate(self.schema, interest)
        values = np.arange(1 << self.schema.bits, dtype=np.uint64)
        codes, valid = {}, np.ones(len(values), dtype=np.bool_)
        for name in reversed([*self.schema]):
            kind = self.schema[name]
            code = values & np.uint64((1 << kind.bits) - 1)
            values >>= np.uint64(kind.bits)
            valid &= code < kind.size  # no event has another code
            codes[name] = np.where(valid, code, np.uint64(0))[None]
        events = Events(self.schema, len(values), {name: codes[name] for name in self.schema})
        return np.packbits(predicate.evaluate(events) & valid, bitorder="little")

    def identify(self, prepared: Bytes) -> bytes:
        return prepared.tobytes()

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        values: Numbers = np.zeros(events.count, dtype=np.int64)
        for name, bits in self.schema.widths.items():
            values = values << bits | events.codes[name][-1].astype(np.int64)
        self.encoding.encode_event(values, draw.shared, out)

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Bytes], draw: Draw, out: Bytes
    ) -> None:
        self.encoding.encode_interest(np.stack(interests.values), interests.index, draw.shared, out)
