"""BranchingMatch: conjunctions, ranges, any formula, matched with perfect security.

Publisher and subscriber share one-time randomness. Each sends one message; from the two the broker
computes whether the event matches the predicate, and learns nothing else: not the event, not the
constants, and (for `BranchingMatch.box`) not even which attributes are constrained.

A *template* is public: the broker and everybody else know the shape of the predicate, with
``:name`` for constants that only the subscriber knows. The *box* template is "every attribute lies
in a private interval"; it takes any conjunction of comparisons, ranges, equalities and prefixes as
SQL text and hides which of them there are.

Security: perfect against the broker, given fresh shared randomness for every pair of messages
(`OneTimePad`); with a `SharedSeed`, computational. Broker and one client together learn the other
client's input. Sources: Ishai and Kushilevitz, FOCS 2000; `ccbps.encodings.branching`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccbps.dictionary import DictionaryColumn, dictionary_of_strings, pair_column
from ccbps.encodings.branching import BranchingEncoding
from ccbps.errors import CcbpsError, DecodeError, ParameterError, PredicateError, ShapeError
from ccbps.leakage import LeakageCard
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.branching import CompiledForm, box_form, event_words
from ccbps.predicates.form import Form
from ccbps.programs.branching import sorted_edges
from ccbps.randomness import Pairs, RandomnessSource
from ccbps.rounds import RoundLedger, as_rounds
from ccbps.wire import (
    HEADER_BYTES,
    TAG_BYTES,
    Cause,
    Kind,
    check_headers,
    raise_for,
    write_header,
)

__all__ = ["BranchingBroker", "BranchingMatch", "BranchingPublisher", "BranchingSubscriber"]

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
Interest = str | Predicate | Mapping[str, Any]
"""One subscription: a predicate for a box, or values for a template's private constants."""


class BranchingMatch:
    """The public side: schema, template, sizes. Makes the three roles.

    Attributes:
        schema: the events' attributes.
        template: the public predicate, or None for the box.
        program: the branching program all parties use.
        event_bytes, interest_bytes: bytes of one message, header included.
        randomness_bytes: bytes of shared randomness one round uses.
        fingerprint: 32 bytes that name these public parameters.
    """

    def __init__(self, schema: Schema, template: str | Predicate) -> None:
        """
        Args:
            schema: the events' attributes.
            template: SQL, with ``:name`` wherever the subscriber has a private constant.

        Raises:
            PredicateError: the template does not parse or does not fit the schema.
        """
        predicate = schema.parse(template) if isinstance(template, str) else template
        if not isinstance(predicate, Predicate):
            raise ParameterError(
                f"template must be SQL text or a Predicate, got {type(template).__name__}"
            )
        if predicate.schema != schema:
            raise ParameterError("the template was parsed for another schema")
        if predicate.unbound_names != predicate.private_names:
            raise ParameterError(
                "the template's private constants have values, and a template is public; "
                "pass the predicate before bind()"
            )
        self._set_up(schema, predicate, predicate.true_form())

    @classmethod
    def box(cls, schema: Schema) -> BranchingMatch:
        """The matcher that hides which attributes a predicate constrains, and how."""
        matcher = cls.__new__(cls)
        matcher._set_up(schema, None, box_form(schema))
        return matcher

    def _set_up(self, schema: Schema, template: Predicate | None, form: Form) -> None:
        self.schema = schema
        self.template = template
        self._compiled = CompiledForm(schema, form)
        self.program = self._compiled.program
        self.encoding = BranchingEncoding(self.program)
        self.event_bytes = self.interest_bytes = HEADER_BYTES + self.encoding.message_bytes
        self.randomness_bytes = TAG_BYTES + self.encoding.randomness_bytes
        edges = [
            [u, v, sorted(e.event), sorted(e.interest), e.one]
            for (u, v), e in sorted_edges(self.program.edges)
        ]
        parameters = {
            "scheme": "branching 1",
            "schema": schema.describe(),
            "template": None if template is None else template.text,
            "size": self.program.size,
            "edges": edges,
        }
        self.fingerprint = sha256(json.dumps(parameters, sort_keys=True).encode()).digest()

    def __repr__(self) -> str:
        shape = "box" if self.template is None else f"template {self.template.text!r}"
        return f"<BranchingMatch {shape} over {', '.join(self.schema)}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BranchingMatch):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __reduce__(self) -> tuple[Any, ...]:
        # Small and public: rebuilt from schema and template wherever it arrives.
        return _rebuild, (self.schema, None if self.template is None else self.template.text)

    @property
    def leakage(self) -> LeakageCard:
        """What the broker learns."""
        hidden = "every constant of the predicate"
        public = "the schema"
        if self.template is None:
            hidden += ", and which attributes it constrains"
        else:
            hidden = "the private constants of the predicate"
            public += " and the template with its public constants"
        return LeakageCard(
            scheme="BranchingMatch",
            adversary="the broker, which follows the protocol and keeps all it sees",
            hides=("every attribute of the event", hidden),
            learns=(
                "whether the event matches the predicate",
                f"public parameters: {public}",
                "which messages belong to one pair and round",
                "over many pairs, which are of one event or one subscription, as far as "
                "labels and rounds tell",
            ),
            security="perfect",
            assumption=(
                "each round's randomness is uniform, known to the pair only and used once; "
                "with SharedSeed instead of OneTimePad, AES-256-CTR and HKDF-SHA256 stand for it"
            ),
            reuse="one-time",
            hazards=(
                "a round used for two events or two predicates",
                "the broker and one of the two clients work together",
            ),
        )

    def publisher(self, seed: RandomnessSource) -> BranchingPublisher:
        """The role that encodes events."""
        return BranchingPublisher(self, seed)

    def subscriber(self, seed: RandomnessSource) -> BranchingSubscriber:
        """The role that encodes predicates."""
        return BranchingSubscriber(self, seed)

    def broker(self) -> BranchingBroker:
        """The role that matches. It holds nothing secret."""
        return BranchingBroker(self)

    def explain(self) -> str:
        """Program size, bytes a side, predicted operations and the leakage card, as text."""
        operations = self.encoding.operations
        shape = (
            "box: a private interval on every attribute"
            if self.template is None
            else f"template: {self.template.text}"
        )
        lines = [
            f"BranchingMatch over {', '.join(self.schema)} ({self.schema.bits} bits)",
            f"  {shape}",
            f"  program:     {self.program.size + 1} nodes, {len(self.program.edges)} edges",
            f"  messages:    {self.event_bytes} bytes a side ({HEADER_BYTES} of them header; "
            f"{self.encoding.layout.bits} bits of matrix)",
            f"  randomness:  {self.randomness_bytes} bytes a round "
            f"({-(-self.randomness_bytes // 16)} AES blocks)",
            "  operations:  64-bit word operations a pair: "
            + ", ".join(f"{role} {count:,}" for role, count in operations.items()),
            *("  " + line for line in str(self.leakage).splitlines()),
        ]
        return "\n".join(lines)

    def _private_words(self, interest: Interest) -> Words:
        """A subscription's private bits, shape (words, 1)."""
        if self.template is not None:
            if not isinstance(interest, Mapping):
                names = ", ".join(f":{name}" for name in self.template.private_names)
                raise ParameterError(
                    "this matcher has a template: an interest is a mapping with values for its "
                    f"private constants ({names or 'none'}), got {type(interest).__name__}"
                )
            if not all(isinstance(name, str) for name in interest):
                raise ParameterError("names of private constants must be strings")
            return self._compiled.interest_words(self.template.bind(**interest).true_form())
        if isinstance(interest, str):
            interest = self.schema.parse(interest)
        if not isinstance(interest, Predicate):
            raise ParameterError(
                "this matcher is a box: an interest is a predicate (SQL text or Predicate), "
                f"got {type(interest).__name__}"
            )
        if interest.schema != self.schema:
            raise ParameterError("the predicate was parsed for another schema")
        return self._compiled.interest_words(box_form(self.schema, interest.box()))


@lru_cache(maxsize=64)
def _rebuild(schema: Schema, template: str | None) -> BranchingMatch:
    """Unpickle. A worker that receives the same matcher with every task builds it once."""
    return BranchingMatch.box(schema) if template is None else BranchingMatch(schema, template)


class _Encoder:
    """What publisher and subscriber have in common: a seed, and rounds that they never reuse."""

    kind: Kind

    def __init__(self, matcher: BranchingMatch, seed: RandomnessSource) -> None:
        if not isinstance(seed, RandomnessSource):
            raise ParameterError(
                f"seed must be a SharedSeed or a OneTimePad, got {type(seed).__name__}"
            )
        self.matcher = matcher
        self._seed = seed
        self._ledger = RoundLedger()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.matcher!r}>"

    def _encode(
        self,
        inputs: Words,
        rounds: ArrayLike,
        count: int,
        pairs: Pairs | Sequence[str] | None,
        out: Bytes | None,
        index: NDArray[np.intp] | None = None,
    ) -> Bytes:
        """Claim the rounds, draw their randomness, write headers and bodies."""
        matcher, encoding = self.matcher, self.matcher.encoding
        numbers = as_rounds(rounds, count)
        column = pair_column(pairs, count)
        shape = (count, matcher.event_bytes)
        if out is None:
            out = np.empty(shape, dtype=np.uint8)
        elif out.shape != shape or out.dtype != np.uint8 or not out.flags.c_contiguous:
            raise ShapeError(f"out must be C-contiguous uint8 of shape {shape}, got {out.shape}")
        # A reader that cannot serve all rounds raises before any of them is claimed.
        reader = self._seed.reader(matcher.fingerprint, matcher.randomness_bytes, numbers, column)
        self._ledger.claim(numbers, column)
        messages = out

        def draw(start: int, stop: int) -> Bytes:
            rows = reader(start, stop)
            write_header(messages[start:stop], self.kind, matcher.fingerprint, rows[:, :TAG_BYTES])
            return rows[:, TAG_BYTES:]

        encode = encoding.encode_event if self.kind is Kind.EVENT else encoding.encode_interest
        if count:
            encode(inputs, draw, messages[:, HEADER_BYTES:], index=index)
        return messages


class BranchingPublisher(_Encoder):
    """Encodes events. Holds the seed; made by `BranchingMatch.publisher`."""

    kind = Kind.EVENT

    def encode(
        self,
        events: Any,
        rounds: ArrayLike,
        *,
        pairs: Pairs | Sequence[str] | None = None,
        out: Bytes | None = None,
    ) -> Bytes:
        """Messages for events, each under its own round.

        Args:
            events: `Events`, or any records `Schema.encode` takes.
            rounds: a round for each event.
            pairs: a pair label for each event, when the seed is a master for many pairs.
            out: where to write, C-contiguous uint8 of the result's shape; made when None.

        Returns:
            uint8, shape (events, event_bytes).

        Raises:
            EventError: a record does not fit the schema.
            RandomnessReuseError: a round was used before, or twice here; nothing is encoded.
            PadExhaustedError: the one-time pad ends before a round; nothing is encoded.
        """
        batch = self.matcher.schema.encode(events)
        return self._encode(event_words(batch), rounds, batch.count, pairs, out)


class BranchingSubscriber(_Encoder):
    """Encodes predicates. Holds the seed; made by `BranchingMatch.subscriber`."""

    kind = Kind.INTEREST

    def encode(
        self,
        interest: Interest | Sequence[Interest] | DictionaryColumn[Interest],
        rounds: ArrayLike,
        *,
        pairs: Pairs | Sequence[str] | None = None,
        out: Bytes | None = None,
    ) -> Bytes:
        """Messages for one subscription in many rounds, or for a subscription a round.

        Args:
            interest: for a box, a predicate as SQL text or `Predicate`; for a template, a mapping
                from private names to values; or a sequence (or `DictionaryColumn`) of them, one a
                round.
            rounds: round numbers. Messages do not depend on events: provision them ahead.
            pairs: a pair label for each round, when the seed is a master for many pairs.
            out: where to write, C-contiguous uint8 of the result's shape; made when None.

        Returns:
            uint8, shape (rounds, interest_bytes).

        Raises:
            PredicateError: a predicate does not parse, does not fit the schema, or is no box.
            RandomnessReuseError: a round was used before, or twice here; nothing is encoded.
            PadExhaustedError: the one-time pad ends before a round; nothing is encoded.
        """
        count = len(as_rounds(rounds, None))
        if isinstance(interest, (str, Predicate, Mapping)):
            return self._encode(self.matcher._private_words(interest), rounds, count, pairs, out)
        if not isinstance(interest, (DictionaryColumn, Iterable)):
            self.matcher._private_words(interest)  # says what an interest is
        column = interest if isinstance(interest, DictionaryColumn) else _interest_column(interest)
        if len(column) != count:
            raise ParameterError(f"{len(column)} interests need as many rounds, got {count}")
        column = column.used()
        words = []
        for number, value in enumerate(column.values):
            try:
                words.append(self.matcher._private_words(value))
            except CcbpsError as error:
                row = int(np.flatnonzero(column.index == number)[0])
                error.add_note(f"interest of row {row}")
                if isinstance(error, PredicateError):
                    error.row = row
                raise
        inputs = np.concatenate(words, axis=1) if words else np.zeros((1, 0), dtype=np.uint64)
        return self._encode(inputs, rounds, count, pairs, out, column.index)


def _interest_column(interests: Iterable[Interest]) -> DictionaryColumn[Any]:
    """One interest a row; equal texts become one value, so that each is parsed once."""
    rows = list(interests)
    texts = [interest for interest in rows if isinstance(interest, str)]
    if len(texts) == len(rows):
        return dictionary_of_strings(texts)
    return DictionaryColumn(rows, np.arange(len(rows), dtype=np.intp))


class BranchingBroker:
    """Matches messages. Holds public parameters only; made by `BranchingMatch.broker`."""

    def __init__(self, matcher: BranchingMatch) -> None:
        self.matcher = matcher

    def __repr__(self) -> str:
        return f"<BranchingBroker of {self.matcher!r}>"

    def match(self, events: Bytes, interests: Bytes) -> NDArray[np.bool_]:
        """Which pairs of messages match; row i of one belongs to row i of the other.

        Args:
            events: uint8, shape (batch, event_bytes).
            interests: uint8, shape (batch, interest_bytes).

        Returns:
            bool, shape (batch,).

        Raises:
            DecodeError: some bytes are not messages of this matcher, or two are of different
                pairs or rounds; names the rows.
        """
        answers, causes = self.examine(events, interests)
        raise_for(causes)
        return answers

    def examine(
        self, events: Bytes, interests: Bytes
    ) -> tuple[NDArray[np.bool_], NDArray[np.uint8]]:
        """As `match`, but refuses rows one by one.

        Returns:
            answers, shape (batch,), False where refused; and the `ccbps.wire.Cause` of each row.
        """
        width = self.matcher.event_bytes
        for name, rows in (("events", events), ("interests", interests)):
            array = np.asarray(rows)
            if array is not rows or array.dtype != np.uint8 or array.shape[1:] != (width,):
                raise DecodeError(
                    f"{name} must be uint8 messages of {width} bytes, an array of shape "
                    f"(batch, {width}); got {type(rows).__name__} of {array.dtype} {array.shape}"
                )
        if len(events) != len(interests):
            raise DecodeError(f"{len(events)} events do not pair with {len(interests)} interests")
        answers, heads, stray = self.matcher.encoding.decode_with_heads(
            events, interests, HEADER_BYTES
        )
        causes = check_headers(heads[0], heads[1], self.matcher.fingerprint)
        causes[stray & (causes == Cause.NONE)] = Cause.PADDING
        answers[causes != Cause.NONE] = False
        return answers, causes
