"""BranchingMatch: conjunctions, ranges, any formula, matched with perfect security.

Publisher and subscriber share one-time randomness. Each sends one message; from the two the broker
computes whether the event matches the predicate, and learns nothing else: not the event, not the
constants, and (for `BranchingMatch.box`) not even which attributes are constrained.

A *template* is public: the broker and everybody else know the shape of the predicate, with
``:name`` for constants that only the subscriber knows. The *box* template is "every attribute lies
in a private interval"; it takes any conjunction of comparisons, ranges, equalities and prefixes as
SQL text and hides which of them are used.

Security: perfect against the broker, given fresh shared randomness for every pair of messages
(`OneTimePad`); with a `SharedSeed`, computational. Broker and one client together learn the other
client's input. Sources: Ishai and Kushilevitz, FOCS 2000; `ccbps.encodings.branching`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Words
from ccbps.dictionary import DictionaryColumn
from ccbps.encodings.branching import BranchingEncoding, Draw
from ccbps.errors import ParameterError
from ccbps.inputs.branching import CompiledForm, box_form, event_words
from ccbps.keys.seeds import RandomnessReader
from ccbps.leakage import LeakageCard
from ccbps.matching.matcher import Matcher
from ccbps.matching.parameters import Cost, bound_predicate, fingerprint_of
from ccbps.matching.roles import Interest
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.form import Form
from ccbps.predicates.schema import Events
from ccbps.programs.branching import sorted_edges
from ccbps.wire import HEADER_BYTES, TAG_BYTES, Cause, Kind, check_headers, write_header

__all__ = ["BranchingMatch"]


MAX_NODES: Final = 4096
"""Most nodes of a program by default: its messages are a megabyte each."""


class BranchingMatch(Matcher):
    """The public side: schema, template, sizes. Makes the three roles.

    Example:
        A template: everybody sees the formula, and only the subscriber its constants.

        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import BranchingMatch
        >>> schema = Schema(price=UInt(16), volume=UInt(16))
        >>> matcher = BranchingMatch(schema, "price < :limit OR volume > 1000")
        >>> seed = SharedSeed.generate()
        >>> events = matcher.publisher(seed).encode({"price": [119, 120], "volume": [5, 5]}, [0, 1])
        >>> interests = matcher.subscriber(seed).encode({"limit": 120}, rounds=[0, 1])
        >>> matcher.broker().match(events, interests)
        array([ True, False])

    Attributes:
        schema: the events' attributes.
        template: the public predicate, or None for the box.
        max_nodes: most nodes the program was allowed to have.
        program: the branching program all parties use.
        event_bytes: bytes of one event message, header included.
        interest_bytes: bytes of one interest message, header included.
        randomness_bytes: bytes of shared randomness one round uses.
        fingerprint: 32 bytes that name these public parameters.
    """

    def __init__(
        self,
        schema: Schema,
        template: str | Predicate | None = None,
        *,
        max_nodes: int = MAX_NODES,
    ) -> None:
        """
        Args:
            schema: the events' attributes.
            template: SQL, with ``:name`` wherever the subscriber has a private constant. Required:
                the matcher without a template is `BranchingMatch.box(schema)`.
            max_nodes: most nodes of the program. A message takes a sixteenth of their square in
                bytes: a megabyte for the 4,096 nodes that are allowed by default.

        Raises:
            ParameterError: there is no template, it is for another schema or already bound, or the
                program would have more than `max_nodes` nodes.
            PredicateError: the template does not parse or does not fit the schema.
        """
        if template is None:
            raise ParameterError(
                "BranchingMatch(schema, template) needs a public template, such as "
                "'price < :limit AND issue = :issue'; for subscriptions that each bring their own "
                "conjunction of intervals, and hide it, take BranchingMatch.box(schema)"
            )
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
        self._set_up(schema, predicate, predicate.true_form(), max_nodes)

    @classmethod
    def box(cls, schema: Schema, *, max_nodes: int = MAX_NODES) -> BranchingMatch:
        """The matcher that hides which attributes a predicate constrains, and how.

        Example:
            >>> from ccbps import Schema, SharedSeed, UInt
            >>> from ccbps.matching import BranchingMatch
            >>> matcher = BranchingMatch.box(Schema(price=UInt(16), volume=UInt(16)))
            >>> seed = SharedSeed.generate()
            >>> events = matcher.publisher(seed).encode([{"price": 119, "volume": 5}], rounds=[0])
            >>> interests = matcher.subscriber(seed).encode("price BETWEEN 100 AND 120", rounds=[0])
            >>> matcher.broker().match(events, interests)
            array([ True])

        Args:
            schema: the events' attributes; for B bits the program has 2 B + 1 nodes.
            max_nodes: as for a template.

        Raises:
            ParameterError: the program would have more than `max_nodes` nodes.
        """
        matcher = cls.__new__(cls, schema)
        matcher._set_up(schema, None, box_form(schema), max_nodes)
        return matcher

    def _set_up(
        self, schema: Schema, template: Predicate | None, form: Form, max_nodes: int
    ) -> None:
        if type(max_nodes) is not int or max_nodes < 2:
            raise ParameterError(
                f"max_nodes must be a whole number of at least 2, got {max_nodes!r}"
            )
        self.max_nodes = max_nodes
        self.schema = schema
        self.template = template
        self.private_names = None if template is None else template.private_names
        if template is None:
            self.operators = ("=", "<", "interval", "prefix", "and")
        self._compiled = CompiledForm(schema, form, max_nodes)
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
        self.fingerprint = fingerprint_of(parameters)

    def __repr__(self) -> str:
        shape = "box" if self.template is None else f"template {self.template.text!r}"
        return f"<BranchingMatch {shape} over {', '.join(self.schema)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # Small and public: rebuilt from schema and template wherever it arrives.
        template = None if self.template is None else self.template.text
        return _rebuild, (self.schema, template, self.max_nodes)

    @property
    def leakage(self) -> LeakageCard:
        """What the broker learns."""
        hidden = "every constant of the predicate"
        public = "the schema"
        if self.template is None:
            hidden += ", and which attributes it constrains"
        else:
            hidden = "the private constants of the predicate"
            public += (
                " and the template with its public constants, so that an answer says which "
                "condition an event fulfils, but for private constants"
            )
        return self._perfect(public, hidden)

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role for a pair."""
        counts = self.encoding.operations.items()
        return tuple(Cost(role, "pair", "64-bit word operation", count) for role, count in counts)

    def explain(self) -> str:
        """Program size, bytes per side, predicted operations and the leakage card, as text."""
        shape = (
            "box: a private interval on every attribute"
            if self.template is None
            else f"template: {self.template.text}"
        )
        return self._explain(
            f"BranchingMatch over {', '.join(self.schema)} ({self.schema.bits} bits)",
            [
                ("shape", shape),
                ("program", f"{self.program.size + 1} nodes, {len(self.program.edges)} edges"),
                ("matrix", f"{self.encoding.layout.bits:,} bits per message"),
                (
                    "operations",
                    "64-bit word operations per pair: "
                    + ", ".join(f"{cost.role} {cost.count:,}" for cost in self.costs),
                ),
            ],
        )

    def _prepare(self, interest: Interest) -> Words:
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
        box = bound_predicate(self.schema, interest, "this matcher is a box: an interest").box()
        return self._compiled.interest_words(box_form(self.schema, box))

    def _content(self, prepared: Words) -> bytes:
        return prepared.tobytes()

    def _encode_events(self, events: Events, reader: RandomnessReader, out: Bytes) -> None:
        draw = self._draw(Kind.EVENT, reader, out)
        self.encoding.encode_event(event_words(events), draw, out[:, HEADER_BYTES:])

    def _encode_interests(
        self, interests: DictionaryColumn[Words], reader: RandomnessReader, out: Bytes
    ) -> None:
        draw = self._draw(Kind.INTEREST, reader, out)
        words = np.concatenate(interests.values, axis=1)
        index = None if len(interests.values) == 1 else interests.index
        self.encoding.encode_interest(words, draw, out[:, HEADER_BYTES:], index=index)

    def _draw(self, kind: Kind, reader: RandomnessReader, out: Bytes) -> Draw:
        """The encoder's randomness; headers are written along, while rows are in the cache."""

        def draw(start: int, stop: int) -> Bytes:
            rows = reader(start, stop)
            write_header(out[start:stop], kind, self.fingerprint, rows[:, :TAG_BYTES])
            return rows[:, TAG_BYTES:]

        return draw

    def _examine(self, events: Bytes, interests: Bytes) -> tuple[NDArray[np.bool_], Bytes]:
        answers, heads, stray = self.encoding.decode_with_heads(events, interests, HEADER_BYTES)
        causes = check_headers(heads[0], heads[1], self.fingerprint)
        causes[stray & (causes == Cause.NONE)] = Cause.PADDING
        return answers, causes


@lru_cache(maxsize=64)
def _rebuild(schema: Schema, template: str | None, max_nodes: int) -> BranchingMatch:
    """Unpickle. A worker that receives the same matcher with every task builds it once."""
    if template is None:
        return BranchingMatch.box(schema, max_nodes=max_nodes)
    return BranchingMatch(schema, template, max_nodes=max_nodes)
