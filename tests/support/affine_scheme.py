"""Equality of all attributes by an affine map over a prime field: a perfect scheme, and short."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gmpy2
import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import ParameterError, SamplingError
from ccbps.forms.bits import event_bits
from ccbps.forms.topic import topic_of
from ccbps.leakage import LeakageCard, Protects
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Cost, Draw, Operation, PairScheme, Sizes
from ccbps.predicates import Events, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.wire import Cause

DRAWS = 100
"""Draws of each number; less than one in two is rejected."""


class AffineMatch(Matcher, PairScheme):
    """Both send a code times a, plus b: equal codes match, and all others are uniform."""

    name = "affine"
    operators = ("=", "and")

    def __init__(self, schema: Schema) -> None:
        if schema.bits > 30:
            raise ParameterError(f"schema must have at most 30 bits, got {schema.bits}")
        self.prime = int(gmpy2.next_prime(1 << schema.bits))
        self._set_up(schema, Sizes(4, 4, 2 * DRAWS * 4))

    def parameters(self) -> dict[str, Any]:
        return {}

    @property
    def leakage(self) -> LeakageCard:
        return self._perfect("the schema", "every constant", {Protects.CONSTANTS})

    @property
    def costs(self) -> tuple[Cost, ...]:
        return tuple(Cost(role, "pair", Operation.WORD, 2) for role in ("publisher", "subscriber"))

    def prepare(self, interest: Any) -> Any:
        topic_of(bound_predicate(self.schema, interest), self.schema.names)
        box = bound_predicate(self.schema, interest).box()
        code = 0
        for name, (low, _) in box.ranges.items():
            code = code << self.schema[name].bits | low
        return code

    def identify(self, prepared: int) -> bytes:
        return prepared.to_bytes(4, "little")

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        bits = event_bits(events).astype(np.uint64)
        codes = bits @ (1 << np.arange(self.schema.bits, dtype=np.uint64)[::-1])
        self._send(codes, draw, out)

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Any], draw: Draw, out: Bytes
    ) -> None:
        self._send(np.array(interests.values, dtype=np.uint64)[interests.index], draw, out)

    def _send(self, codes: NDArray[np.uint64], draw: Draw, out: Bytes) -> None:
        draws = draw.rows(0, len(out)).reshape(len(out), 2, DRAWS, 4).copy().view("<u4")[..., 0]
        a, b = self.coefficients(draws)
        sent = (a * codes + b) % np.uint64(self.prime)
        out[:] = sent.astype("<u4").view(np.uint8).reshape(len(out), 4)

    def coefficients(self, draws: NDArray[np.uint32]) -> tuple[NDArray[np.uint64], ...]:
        a = uniform(draws[:, 0], self.prime - 1) + np.uint64(1)
        return a, uniform(draws[:, 1], self.prime)

    def match_pairs(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bytes]:
        answers = (events == interests).all(axis=1)
        return answers, np.full(len(events), Cause.NONE, dtype=np.uint8)


def uniform(draws: NDArray[np.uint32], bound: int) -> NDArray[np.uint64]:
    """The first draw of each row that is below a bound, of so many bits as that has."""
    values = draws & np.uint32((1 << (bound - 1).bit_length()) - 1)
    good = values < bound
    if not good.any(axis=1).all():
        raise SamplingError("all draws were rejected")
    return values[np.arange(len(values)), good.argmax(axis=1)].astype(np.uint64)
