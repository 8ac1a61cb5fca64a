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
client's input. Sources: Ishai and Kushilevitz, FOCS 2000; `ccbps.encodings.branching.encoding`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Words
from ccbps.dictionary import DictionaryColumn
from ccbps.encodings.branching.encoding import BranchingEncoding
from ccbps.errors import CcbpsError, ParameterError
from ccbps.forms.bits import event_words
from ccbps.forms.branching import CompiledForm, box_form, too_many_nodes
from ccbps.leakage import LeakageCard, Protects
from ccbps.matching.contract.matcher import Matcher, from_text
from ccbps.matching.contract.scheme import (
    Cost,
    Draw,
    Interest,
    Operation,
    Operator,
    PairScheme,
    Sizes,
    bound_predicate,
)
from ccbps.matching.one_time.templates import bound_template, limit_template, public_template
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.form import Form
from ccbps.programs.branching import sorted_edges
from ccbps.wire import padding_causes

MAX_NODES: Final = 4096
"""Most nodes of a program by default: its messages are a megabyte each."""
LAYOUT: Final = 2
"""Rule by which bodies follow from the program: part of the fingerprint."""


class BranchingMatch(Matcher, PairScheme):
    """Make the three roles for a public template, or for boxes.

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
        schema: schema of the events.
        template: the public predicate, or None for the box.
        program: the branching program all parties use.
    """

    name = "branching"
    operators: tuple[Operator, ...] = (
        "=", "<", "interval", "prefix", "in", "and", "or", "not", "at_least", "hamming",
    )  # fmt: skip

    def __init__(
        self,
        schema: Schema,
        template: str | Predicate | None = None,
        *,
        max_nodes: int = MAX_NODES,
    ) -> None:
        """
        Args:
            schema: schema of the events.
            template: SQL, with ``:name`` wherever the subscriber has a private constant. Required:
                the matcher without a template is `BranchingMatch.box(schema)`.
            max_nodes: most nodes of the program. A message takes a sixteenth of their square in
                bytes: a megabyte for the 4,096 nodes that are allowed by default.

        Raises:
            ParameterError: there is no template, it is for another schema or already bound, or the
                program would have more than `max_nodes` nodes.
            PredicateError: the template does not parse or does not fit the schema.
        """
        predicate = public_template(schema, template, "BranchingMatch")
        self._compile(schema, predicate, predicate.true_form(), max_nodes)

    @classmethod
    def box(cls, schema: Schema, *, max_nodes: int = MAX_NODES) -> BranchingMatch:
        """Make the matcher that hides which attributes a predicate constrains, and how.

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
            schema: schema of the events; for B bits the program has 2 B + 1 nodes.
            max_nodes: as for a template.

        Raises:
            ParameterError: the program would have more than `max_nodes` nodes.
        """
        matcher = cls.__new__(cls, schema)
        matcher._compile(schema, None, box_form(schema), max_nodes)
        return matcher

    def _compile(
        self, schema: Schema, template: Predicate | None, form: Form, max_nodes: int
    ) -> None:
        if type(max_nodes) is not int or max_nodes < 2:
            raise ParameterError(f"max_nodes must be a whole number, at least 2, got {max_nodes!r}")
        if template is None and 2 * schema.bits + 1 > max_nodes:
            raise too_many_nodes(2 * schema.bits + 1, max_nodes)
        self.template = template
        self.private_names = None if template is None else template.private_names
        if template is None:
            self.operators = ("=", "<", "interval", "prefix", "and")
        self._compiled = CompiledForm(schema, form, max_nodes)
        self.program = self._compiled.program
        self.encoding = BranchingEncoding(self.program)
        body = self.encoding.message_bytes
        self._set_up(schema, Sizes(body, body, self.encoding.randomness_bytes))

    def parameters(self) -> dict[str, Any]:
        """Return the template and the number of nodes."""
        template = None if self.template is None else self.template.text
        return {"template": template, "nodes": self.program.size + 1}

    @classmethod
    def from_parameters(cls, schema: Schema, parameters: Mapping[str, Any]) -> BranchingMatch:
        """Make the matcher of these parameters; see `Scheme.from_parameters`."""
        if parameters.keys() != {"template", "nodes"}:
            raise ParameterError("the parameters are not those of a BranchingMatch")
        template, nodes = parameters["template"], parameters["nodes"]
        _bounded(template, nodes)
        if template is None:
            matcher = cls.box(schema, max_nodes=nodes)
        else:
            matcher = cls(schema, template, max_nodes=nodes)
        if matcher.program.size + 1 != nodes:
            raise ParameterError(f"the program has {matcher.program.size + 1} nodes, not {nodes}")
        return matcher

    def layout(self) -> Any:
        """Return the rule of bodies and the program's edges."""
        edges = sorted_edges(self.program.edges)
        return [LAYOUT, [[u, v, sorted(e.event), sorted(e.interest), e.one] for (u, v), e in edges]]

    @classmethod
    def propose(cls, schema: Schema, wanted: Predicate) -> Iterator[BranchingMatch]:
        """Yield a box for what is a box, and a template for what has private constants."""
        if wanted.schema != schema:
            return
        with suppress(CcbpsError):
            if wanted.private_names:
                yield cls(schema, wanted.text)
            else:
                box = cls.box(schema)
                box.prepare(wanted)
                yield box

    def __repr__(self) -> str:
        shape = "box" if self.template is None else f"template {self.template.text!r}"
        return f"<BranchingMatch {shape} over {', '.join(self.schema)}>"

    @property
    def leakage(self) -> LeakageCard:
        """State what the broker learns."""
        if self.template is None:
            hidden = "every constant of the predicate, and which attributes it constrains"
            return self._perfect("the schema", hidden, {Protects.CONSTANTS, Protects.ATTRIBUTES})
        return self._perfect(
            "the schema and the template with its public constants, so that an answer says which "
            "condition an event fulfils, but for private constants",
            "the private constants of the predicate",
            {Protects.CONSTANTS},
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Count the operations of each role for a pair."""
        counts = self.encoding.operations.items()
        return tuple(Cost(role, "pair", Operation.WORD, count) for role, count in counts)

    def explain(self) -> str:
        """Show program size, bytes per side, operations and the leakage card, as text."""
        shape = (
            "box: a private interval on every attribute"
            if self.template is None
            else f"template: {self.template.text}"
        )
        return self._explain(
            [
                ("shape", shape),
                ("program", f"{self.program.size + 1} nodes, {len(self.program.edges)} edges"),
                ("matrix", f"{self.encoding.layout.bits:,} bits per message"),
            ]
        )

    def prepare(self, interest: Interest) -> Words:
        """Return a subscription's private bits, shape (words, 1)."""
        if self.template is not None:
            form = bound_template(self.template, interest).true_form()
            return self._compiled.interest_words(form)
        box = bound_predicate(self.schema, interest, "this matcher is a box: an interest").box()
        return self._compiled.interest_words(box_form(self.schema, box))

    def meaning(self, interest: Any, events: Events) -> Bools:
        """Return what an interest means for events; see `Scheme.meaning`."""
        if self.template is None:
            return super().meaning(interest, events)
        return self.template.bind(**interest).evaluate(events)

    def identify(self, prepared: Words) -> bytes:
        """Return bytes that name a prepared interest; see `PairScheme.identify`."""
        return prepared.tobytes()

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        """Write event messages; see `Scheme.encode_events`."""
        self.encoding.encode_event(event_words(events), draw.rows, out)

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Words], draw: Draw, out: Bytes
    ) -> None:
        """Write interest messages; see `Scheme.encode_interests`."""
        words = np.concatenate(interests.values, axis=1)
        index = None if len(interests.values) == 1 else interests.index
        self.encoding.encode_interest(words, draw.rows, out, index=index)

    def match_pairs(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bytes]:
        """Match pairs of bodies; see `PairScheme.match_pairs`."""
        return self.match_behind(events, interests, np.empty((2, len(events), 0), dtype=np.uint8))

    def match_behind(self, events: Bytes, interests: Bytes, heads: Bytes) -> tuple[Bools, Bytes]:
        """Match pairs of bodies and copy heads in one pass; see `PairScheme.match_behind`."""
        answers, stray = self.encoding.decode_with_heads(events, interests, heads)
        return answers, padding_causes(stray)


def _bounded(template: Any, nodes: Any) -> None:
    """Refuse what a text must not ask for: matrices grow with the square of their nodes."""
    limit_template(template)
    if from_text() and type(nodes) is int and nodes > MAX_NODES:
        how = "BranchingMatch.box(schema" if template is None else "BranchingMatch(schema, ..."
        raise ParameterError(
            f"a text may ask for at most {MAX_NODES:,} nodes, got {nodes:,}; if such messages "
            f"are what you want, make the matcher by {how}, max_nodes={nodes})"
        )
