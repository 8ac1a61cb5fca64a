"""ThresholdMatch: Hamming distances and weighted scores, with everything private but their size.

Publisher and subscriber share one-time randomness. The event's bits and the subscriber's weights
and limit give a number whose sign says whether they match. The broker learns a multiple of it by an
unknown square, whose Legendre symbol is the sign: `ccbps.encodings.threshold`.

Security: perfect against the broker, given fresh shared randomness for every pair of messages
(`OneTimePad`); with a `SharedSeed`, computational. Broker and one client together learn the other
client's input. Sources: Feige, Kilian and Naor, STOC 1994; [SSM] section 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np

from ccbps.algebra.sign_primes import MOST_TOTAL
from ccbps.arrays import Bools, Bytes, Numbers
from ccbps.checks import fields, text, whole
from ccbps.dictionary import DictionaryColumn
from ccbps.encodings.threshold import ThresholdEncoding
from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.forms.bits import event_bits
from ccbps.forms.topic import topic_attributes
from ccbps.leakage import LeakageCard, Protects
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import (
    Cost,
    Draw,
    Operation,
    Operator,
)
from ccbps.matching.one_time.encoded import EncodedScheme
from ccbps.predicates import Events, Predicate, Schema, UInt
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.form import AllOf, AnyOf, HammingWithin

LIMIT: Final = "at_least"
"""Name of the limit of a score among the values of an interest."""
WITHIN: Final = "within"
"""Name of the greatest distance, where an interest has values of several attributes."""
BEYOND: Final = "beyond"
"""Name that takes the place of `WITHIN` for distances that are greater."""
MOST_CONDITIONS: Final = 1024
"""Largest number of conditions of a score."""


class _Sum(NamedTuple):
    """Weights of the event's bits, shape (bits,), and the limit that their sum must reach."""

    weights: Numbers
    limit: int


class ThresholdMatch(Matcher, EncodedScheme):
    """One-time matcher of Hamming distances and of weighted scores.

    Example:
        A distance to a private value, with a private limit:

        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import ThresholdMatch
        >>> schema = Schema(mark=UInt(16), price=UInt(16))
        >>> matcher = ThresholdMatch(schema, "mark")
        >>> seed = SharedSeed.generate()
        >>> records = {"mark": [0b1111, 0b111111], "price": [5, 5]}
        >>> events = matcher.publisher(seed).encode(records, rounds=[0, 1])
        >>> interests = matcher.subscriber(seed).encode("hamming(mark, 7) <= 2", rounds=[0, 1])
        >>> matcher.broker().match(events, interests)
        array([ True, False])

        A score with private weights of public conditions:

        >>> conditions = {"cheap": "price < 100", "marked": "mark > 0", "new": "mark > 40"}
        >>> score = ThresholdMatch.score(schema, conditions, total=10)
        >>> wanted = {"cheap": 5, "new": 3, "marked": -2, "at_least": 3}
        >>> events = score.publisher(seed).encode(records, rounds=[0, 1])
        >>> interests = score.subscriber(seed).encode(wanted, rounds=[0, 1])
        >>> score.broker().match(events, interests)
        array([ True,  True])

    Attributes:
        attributes: names of the attributes whose bits are compared; none for scores.
        conditions: public conditions by name, or None.
        total: bound of the sum of absolute weights; public.
        encoding: the encoders and the decoder.
    """

    name = "threshold"
    operators: tuple[Operator, ...] = ("hamming", "not")
    attributes: tuple[str, ...] = ()
    conditions: Mapping[str, str] | None = None

    def __init__(self, schema: Schema, attributes: str | Sequence[str] | None = None) -> None:
        """Take attributes, to which interests ask for Hamming distances.

        With one attribute, an interest is a predicate: ``hamming(mark, 7) <= 2``, or NOT of it.
        With several, whose distances are added, it is a mapping: a value of each, and
        ``"within"``, the greatest distance, or ``"beyond"``, for distances that are greater.

        Args:
            schema: schema of the events.
            attributes: name of a `UInt`, or names of several; None for all of the schema.

        Raises:
            ParameterError: there is no such attribute, one may be NULL, or they have more than
                1,024 bits together.
        """
        self.attributes = topic_attributes(schema, attributes)
        for name in self.attributes:
            kind = schema[name]
            if not isinstance(kind, UInt) or kind.nullable:
                raise ParameterError(
                    f"attributes must be UInts that are not nullable, and {name!r} is {kind!r}; "
                    "for scores of other conditions, take ThresholdMatch.score"
                )
        self._values = Schema({name: schema[name] for name in self.attributes})
        if self._values.bits > MOST_TOTAL:
            raise ParameterError(
                f"the attributes have {self._values.bits:,} bits together, at most {MOST_TOTAL:,} "
                "are possible: take fewer attributes"
            )
        if len(self.attributes) > 1:
            if {WITHIN, BEYOND} & {*self.attributes}:
                raise ParameterError(f"an attribute cannot be called {WITHIN!r} or {BEYOND!r}")
            self.private_names = (*self.attributes, WITHIN)
        self._use(schema, self._values.bits, self._values.bits)

    @classmethod
    def score(cls, schema: Schema, conditions: Mapping[str, str], *, total: int) -> Self:
        """Make the matcher for sums of private weights of the public conditions that hold.

        An interest is a mapping: weights by the names of conditions (0 where there is none), and
        "at_least": the sum that a matching event has or exceeds. All are whole numbers.

        Args:
            schema: schema of the events.
            conditions: predicates by name. They are public; publishers evaluate them.
            total: bound of the sum of the absolute weights of an interest, at most 1,024. Messages
                grow with its square, roughly.

        Raises:
            ParameterError: `total` is out of range, there is no condition, or one has a private
                constant or a name that is not possible.
            PredicateError: a condition does not parse.
        """
        matcher = cls.__new__(cls, schema)
        if not isinstance(conditions, Mapping) or not conditions:
            raise ParameterError("conditions must be SQL texts by name, and at least one of them")
        if len(conditions) > MOST_CONDITIONS:
            raise ParameterError(
                f"there may be at most {MOST_CONDITIONS:,} conditions, got {len(conditions):,}"
            )
        for name in conditions:
            if text("names of conditions", name) == LIMIT:
                raise ParameterError(f"a condition cannot be called {LIMIT!r}: it is the limit")
        matcher.conditions = {name: text(name, sql) for name, sql in conditions.items()}
        matcher._parsed = [
            bound_predicate(schema, sql, "a condition") for sql in matcher.conditions.values()
        ]
        matcher.operators = ("at_least",)
        matcher.private_names = (*matcher.conditions, LIMIT)
        matcher._use(schema, len(conditions), whole("total", total, 1, MOST_TOTAL))
        return matcher

    _parsed: Sequence[Predicate] = ()
    _values: Schema

    def _use(self, schema: Schema, bits: int, total: int) -> None:
        self.total = total
        self._set_up(schema, self._encoded_sizes(ThresholdEncoding(bits, total)))

    def parameters(self) -> dict[str, Any]:
        if self.conditions is None:
            return {"attributes": list(self.attributes)}
        # A list, since the order of conditions is that of bits.
        return {"conditions": [list(item) for item in self.conditions.items()], "total": self.total}

    @classmethod
    def from_parameters(cls, schema: Schema, parameters: Mapping[str, Any]) -> Self:
        if parameters.keys() != {"conditions", "total"}:
            return super().from_parameters(schema, parameters)
        pairs = parameters["conditions"]
        try:
            conditions = dict(pairs)
        except (TypeError, ValueError):
            raise ParameterError("conditions must be pairs of a name and SQL text") from None
        if len(conditions) != len(pairs):
            raise ParameterError("names of conditions must differ")
        return cls.score(schema, conditions, total=parameters["total"])

    def layout(self) -> Any:
        return hex(self.encoding.prime)

    @classmethod
    def propose(cls, schema: Schema, predicate: Predicate) -> Iterator[Self]:
        form = predicate.true_form()
        if predicate.schema == schema and isinstance(form, HammingWithin):
            yield cls(schema, form.attribute)

    def __repr__(self) -> str:
        if self.conditions is None:
            return f"<{type(self).__name__} distance of {self._listed}>"
        return f"<{type(self).__name__} score of {', '.join(self.conditions)}>"

    @property
    def _listed(self) -> str:
        return ", ".join(self.attributes)

    def explain(self) -> str:
        if self.conditions is None:
            shape = f"Hamming distance of {self._listed}"
        else:
            shape = "score of " + ", ".join(f"{n} ({sql})" for n, sql in self.conditions.items())
        prime = self.encoding.prime.bit_length()
        return self._explain(
            [
                ("shape", shape),
                ("weights", f"sum of absolute values at most {self.total:,}"),
                ("prime", f"{prime:,} bits"),
            ]
        )

    @property
    def leakage(self) -> LeakageCard:
        if self.conditions is None:
            public = f"the schema, and that predicates ask for Hamming distances of {self._listed}"
            hidden = "the value, the limit, and whether it is the least or the greatest distance"
        else:
            public = f"the schema, the conditions, and that weights sum to at most {self.total}"
            hidden = "the weights, hence the conditions that matter, and the limit"
        return self._perfect(public, hidden, {Protects.CONSTANTS})

    @property
    def costs(self) -> tuple[Cost, ...]:
        bits, size = self.encoding.bits, f"{self.encoding.prime.bit_length()} bits"
        return (
            Cost("publisher", "pair", Operation.WORD, bits * -(-self.encoding.number_bytes // 8)),
            Cost("subscriber", "pair", Operation.MODULAR_PRODUCT, bits + 2, size),
            Cost("broker", "pair", Operation.WORD, bits * -(-self.encoding.number_bytes // 8)),
            Cost("broker", "pair", Operation.LEGENDRE_SYMBOL, 1, size),
        )

    # -- interests and messages -------------------------------------------------------------------

    def prepare(self, interest: Any) -> _Sum:
        """Return weights and limit of an interest."""
        if self.conditions is not None:
            return self._score(interest)
        if len(self.attributes) > 1:
            return self._distance(*self._centre(interest))
        predicate = bound_predicate(self.schema, interest)
        form, bits = predicate.true_form(), self.encoding.bits
        if isinstance(form, AllOf | AnyOf) and not form.parts:  # TRUE or FALSE, as of a limit of 64
            never = isinstance(form, AnyOf)
            return self._sum(np.ones(bits, dtype=np.int64), bits + 1 if never else 0)
        if not isinstance(form, HammingWithin) or form.attribute != self._listed:
            raise UnsupportedPredicateError(
                f"this matcher takes one condition on a Hamming distance of {self._listed}, such "
                f"as 'hamming({self._listed}, 5) <= 2', or NOT in front of it",
                text=predicate.text,
                summary="this matcher takes one condition on a Hamming distance",
            )
        return self._distance(form.centre, form.limit, form.negated)

    def _centre(self, interest: Any) -> tuple[int, int, bool]:
        """Return the value, the limit, and whether distances beyond it are meant, of a mapping."""
        beyond = isinstance(interest, Mapping) and BEYOND in interest
        limit = BEYOND if beyond else WITHIN
        values = fields("an interest", interest, [*self.attributes, limit])
        centre = 0
        for name, bits in self._values.widths.items():
            code = whole(f"value of {name!r}", values[name], 0, (1 << bits) - 1)
            centre = centre << bits | code
        return centre, whole(limit, values[limit]), beyond

    def _distance(self, centre: int, limit: int, beyond: bool) -> _Sum:
        bits = self.encoding.bits
        ones = np.array([centre >> bits - 1 - place & 1 for place in range(bits)])
        # The distance is the number of ones plus the sum of x_i (1 - 2 y_i).
        weights, count = 2 * ones - 1, int(ones.sum())
        if beyond:
            return self._sum(-weights, limit + 1 - count)
        return self._sum(weights, count - limit)

    def _score(self, interest: Any) -> _Sum:
        assert self.conditions is not None
        if not isinstance(interest, Mapping):
            raise ParameterError(
                "an interest is a mapping with weights of conditions and the limit, "
                f"{LIMIT!r}; got {type(interest).__name__}"
            )
        values = fields(
            "an interest",
            {**dict.fromkeys(self.conditions, 0), **interest},
            [*self.conditions, LIMIT],
        )
        most = self.total
        weights = [whole(f"weight of {n!r}", values[n], -most, most) for n in self.conditions]
        if sum(map(abs, weights)) > most:
            raise ParameterError(
                f"the absolute weights sum to {sum(map(abs, weights)):,}, and this matcher takes "
                f"at most {most:,}: use smaller weights, or a matcher with a larger total"
            )
        return self._sum(np.array(weights), whole(LIMIT, values[LIMIT]))

    def _sum(self, weights: Numbers, limit: int) -> _Sum:
        """Keep the limit within what sums may reach: the answers stay the same."""
        least = int(weights[weights < 0].sum())
        most = int(weights[weights > 0].sum())
        return _Sum(weights.astype(np.int64), min(max(limit, least), most + 1))

    def meaning(self, interest: Any, events: Events) -> Bools:
        if self.private_names is None:
            return super().meaning(interest, events)
        weights, limit = self.prepare(interest)
        return np.asarray(self._bits(events).astype(np.int64) @ weights >= limit)

    def identify(self, prepared: _Sum) -> bytes:
        return np.append(prepared.weights, prepared.limit).tobytes()

    def _bits(self, events: Events) -> Bytes:
        """Return the bits of events, shape (events, bits), uint8."""
        if self.conditions is None:
            codes = {name: events.codes[name] for name in self._values}
            return event_bits(Events(self._values, events.count, codes)).view(np.uint8)
        columns = [condition.evaluate(events) for condition in self._parsed]
        return np.ascontiguousarray(np.array(columns, dtype=np.bool_).T).view(np.uint8)

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        self.encoding.encode_event(self._bits(events), draw.rows, out)

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[_Sum], draw: Draw, out: Bytes
    ) -> None:
        weights = np.array([value.weights for value in interests.values])
        limits = np.array([value.limit for value in interests.values], dtype=np.int64)
        self.encoding.encode_interest(weights, limits, draw.rows, out, index=interests.index)
