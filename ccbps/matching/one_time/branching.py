"""BranchingMatch: conjunctions, ranges, any formula, matched with perfect security.

Publisher and subscriber share one-time randomness. Each sends one message; from the two the broker
computes whether the event matches the predicate, and learns nothing else: not the event, not the
constants, and (for `BranchingMatch.box`) not even which attributes are constrained.

`ccbps.matching.templates` explains templates and boxes.

Security: perfect against the broker, given fresh shared randomness for every pair of messages
(`OneTimePad`); with a `SharedSeed`, computational. Broker and one client together learn the other
client's input. Sources: Ishai and Kushilevitz, FOCS 2000; `ccbps.encodings.branching.encoding`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

from ccbps.arrays import Bytes
from ccbps.checks import whole
from ccbps.encodings.branching.encoding import BranchingEncoding
from ccbps.forms.bits import event_words
from ccbps.forms.branching import CompiledForm, too_many_nodes
from ccbps.matching.contract.scheme import Draw
from ccbps.matching.one_time.encoded import TemplateScheme
from ccbps.matching.templates import MAX_SIZE
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.form import Form
from ccbps.programs.branching import sorted_edges

LAYOUT: Final = 2
"""Rule by which bodies follow from the program: part of the fingerprint."""


class BranchingMatch(TemplateScheme):
    """One-time matcher of templates and boxes, by branching programs.

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
        program: the branching program of all parties.
        encoding: the encoders and the decoder.
    """

    name = "branching"
    _size_name = "nodes"

    def __init__(
        self,
        schema: Schema,
        template: str | Predicate | None = None,
        *,
        max_nodes: int = MAX_SIZE,
    ) -> None:
        """Compile a template.

        Args:
            schema: schema of the events.
            template: SQL, with ``:name`` wherever the subscriber has a private constant. Required:
                the matcher without a template is `BranchingMatch.box(schema)`.
            max_nodes: greatest number n of nodes of the program. A message takes n^2 / 16 bytes:
                a megabyte for the 4,096 nodes that are allowed by default.

        Raises:
            ParameterError: there is no template, it is for another schema or already bound, or the
                program would have more than `max_nodes` nodes.
            PredicateError: the template does not parse or does not fit the schema.
        """
        self._compile(schema, self._template_form(schema, template), max_nodes)

    @classmethod
    def box(cls, schema: Schema, *, max_nodes: int = MAX_SIZE) -> Self:
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
            max_nodes: greatest number of nodes of the program.

        Raises:
            ParameterError: the program would have more than `max_nodes` nodes.
        """
        matcher = cls.__new__(cls, schema)
        nodes = 2 * schema.bits + 1
        if nodes > whole("max_nodes", max_nodes, 2):
            raise too_many_nodes(nodes, max_nodes)
        matcher._compile(schema, matcher._box_form(schema), max_nodes)
        return matcher

    def _compile(self, schema: Schema, form: Form, max_nodes: int) -> None:
        compiled = CompiledForm(schema, form, whole("max_nodes", max_nodes, 2))
        self.program = compiled.program
        self._use(schema, compiled, BranchingEncoding(self.program))

    @property
    def size(self) -> int:
        """Number of nodes of the program, source and sink included."""
        return self.program.size + 1

    def layout(self) -> Any:
        edges = sorted_edges(self.program.edges)
        return [LAYOUT, [[u, v, sorted(e.event), sorted(e.interest), e.one] for (u, v), e in edges]]

    def explain(self) -> str:
        return self._explain(
            [
                ("shape", self._shape),
                ("program", f"{self.size} nodes, {len(self.program.edges)} edges"),
                ("matrix", f"{self.encoding.layout.bits:,} bits per message"),
            ]
        )

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        self.encoding.encode_event(event_words(events).T, draw.rows, out)
