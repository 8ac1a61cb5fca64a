"""FormulaMatch: any formula of comparisons, matched with perfect security in a few dozen bytes.

Publisher and subscriber share one-time randomness. Each sends one message; from the two the broker
computes whether the event matches the predicate, and learns nothing else. There are three kinds of
matchers. They differ in the public part of a subscription:

- `FormulaMatch.box`: nothing. Every attribute lies in a private interval; which attributes are
  constrained stays hidden.
- ``FormulaMatch(schema, template)``: the template, a formula with ``:name`` for constants that only
  the subscriber knows. Conditions with public constants alone cost nothing.
- `FormulaMatch.hidden`: the number of leaves and their kind. The formula of a subscription stays
  hidden.

An AND gate takes two bits of a message, and one more for each gate above it; XOR and NOT are free.

Security: perfect against the broker, given fresh shared randomness for every pair of messages
(`OneTimePad`); with a `SharedSeed`, computational. Broker and one client together learn the other
client's input. Sources and proof: `ccbps.encodings.formula.rank_one`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from ccbps.arrays import Bytes, Randomness
from ccbps.encodings.formula.encoding import LAYOUT, FormulaEncoding
from ccbps.forms.formula import FormulaForm, HiddenForm
from ccbps.forms.leaves import Leaves
from ccbps.keys.randomness import RandomnessSource
from ccbps.keys.seeds import SharedSeed
from ccbps.matching.contract.scheme import Draw
from ccbps.matching.one_time.formula_scheme import FormulaScheme
from ccbps.matching.templates import MAX_SIZE
from ccbps.predicates import Events, Predicate, Schema

if TYPE_CHECKING:
    from ccbps.encodings.formula.ahead import AheadEncoding
    from ccbps.matching.one_time.deferred import DeferredPublisher
    from ccbps.predicates.hiding import LeafKind


class FormulaMatch(FormulaScheme):
    """One-time matcher of formulas of comparisons.

    Example:
        A template: everybody sees the formula, and only the subscriber its constants.

        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import FormulaMatch
        >>> schema = Schema(price=UInt(16), volume=UInt(16))
        >>> matcher = FormulaMatch(schema, "price < :limit OR volume > 1000")
        >>> seed = SharedSeed.generate()
        >>> events = matcher.publisher(seed).encode({"price": [119, 120], "volume": [5, 5]}, [0, 1])
        >>> interests = matcher.subscriber(seed).encode({"limit": 120}, rounds=[0, 1])
        >>> matcher.broker().match(events, interests)
        array([ True, False])

    Attributes:
        template: the public predicate, or None.
        hidden_tree: levels and kind of leaves of a hidden formula, or None.
        formula: the formula that all parties compute.
        encoding: the encoders and the decoder.
    """

    name = "formula"
    _rule = LAYOUT

    def __init__(
        self,
        schema: Schema,
        template: str | Predicate | None = None,
        *,
        max_gates: int = MAX_SIZE,
    ) -> None:
        """Write the formula of a template.

        Args:
            schema: schema of the events.
            template: SQL, with ``:name`` wherever the subscriber has a private constant. Required:
                without one, take `FormulaMatch.box` or `FormulaMatch.hidden`.
            max_gates: largest number of AND gates of the formula. A gate takes two bits of either
                message, and one more for each gate that it is under.

        Raises:
            ParameterError: there is no template, it is for another schema or already bound, or the
                formula would have more than `max_gates` gates.
            PredicateError: the template does not parse or does not fit the schema.
        """
        self._use_template(schema, template, max_gates)

    @classmethod
    def box(cls, schema: Schema, *, max_gates: int = MAX_SIZE) -> Self:
        """Make the matcher that hides which attributes a predicate constrains, and how.

        Example:
            >>> from ccbps import Schema, SharedSeed, UInt
            >>> from ccbps.matching import FormulaMatch
            >>> matcher = FormulaMatch.box(Schema(price=UInt(16), volume=UInt(16)))
            >>> seed = SharedSeed.generate()
            >>> events = matcher.publisher(seed).encode([{"price": 119, "volume": 5}], rounds=[0])
            >>> interests = matcher.subscriber(seed).encode("price BETWEEN 100 AND 120", rounds=[0])
            >>> matcher.broker().match(events, interests)
            array([ True])

        Args:
            schema: schema of the events; B bits take 2 B gates and those that join attributes.
            max_gates: largest number of AND gates.

        Raises:
            ParameterError: the formula would have more than `max_gates` gates.
        """
        matcher = cls.__new__(cls, schema)
        matcher._use_box(schema, max_gates)
        return matcher

    @classmethod
    def hidden(
        cls,
        schema: Schema,
        *,
        leaves: int | None = None,
        depth: int | None = None,
        leaf: LeafKind = "box",
        max_gates: int = MAX_SIZE,
    ) -> Self:
        """Make the matcher that hides the formula itself.

        Example:
            >>> from ccbps import Schema, SharedSeed, UInt
            >>> from ccbps.matching import FormulaMatch
            >>> schema = Schema(price=UInt(16), volume=UInt(16))
            >>> matcher = FormulaMatch.hidden(schema, leaves=4, leaf="interval")
            >>> seed = SharedSeed.generate()
            >>> events = matcher.publisher(seed).encode([{"price": 119, "volume": 5}], rounds=[0])
            >>> text = "price < 100 OR NOT volume BETWEEN 6 AND 900"
            >>> interests = matcher.subscriber(seed).encode(text, rounds=[0])
            >>> matcher.broker().match(events, interests)
            array([ True])

        Args:
            schema: schema of the events.
            leaves: leaves of the tree, a power of two. Give this or `depth`.
            depth: levels of nodes of the tree.
            leaf: kind of the leaves: "literal", a bit of the event; "compare", a comparison, an
                equality or a prefix of one attribute; "interval", an interval of one attribute;
                "box", an interval of every attribute. All of them may be negated, and unused ones
                are constants.
            max_gates: largest number of AND gates.

        Raises:
            ParameterError: a value is not possible, or the formula would have more than
                `max_gates` gates.
        """
        matcher = cls.__new__(cls, schema)
        matcher._use_hidden(schema, leaves, depth, leaf, max_gates)
        return matcher

    def _leaves(self, schema: Schema) -> Leaves:
        return Leaves(schema)

    def _use_form(self, schema: Schema, form: FormulaForm | HiddenForm) -> None:
        encoding = FormulaEncoding(form.formula, form.event_bits, form.private_bits)
        self._use(schema, form, encoding)

    # -- event messages in two parts --------------------------------------------------------------

    def deferred(
        self,
        own_seed: SharedSeed,
        pair_seed: RandomnessSource,
        *,
        ledger: str | os.PathLike[str] | None = None,
        randomness: Randomness = os.urandom,
    ) -> DeferredPublisher:
        """Make the publisher's role that works for each subscription before there are events.

        Args:
            own_seed: a seed that nobody else has.
            pair_seed: a seed that is shared with a subscriber, or a master of many pairs; as for
                `publisher`.
            ledger: path of a file that remembers the rounds of both seeds, as for `publisher`.
            randomness: source of randomness: the operating system's, unless a test says otherwise.

        Raises:
            ParameterError: `own_seed` is not a seed, or equals `pair_seed`.
            LedgerError: the file cannot be used.
        """
        rows = self._form.event_rows
        from ccbps.matching.one_time.deferred import DeferredPublisher  # here, since few defer

        return DeferredPublisher(self, self._ahead, rows, own_seed, pair_seed, ledger, randomness)

    def complete(self, labels: Bytes, ahead: Bytes) -> Bytes:
        """Complete event messages from their two parts. The broker does this: all data is public.

        Args:
            labels: labels from `DeferredPublisher.encode`, shape (batch, label_bytes), or labels of
                one event for all messages.
            ahead: messages from `DeferredPublisher.prepare`, shape (batch, ahead_bytes).

        Returns:
            the messages that the ordinary `publisher` of these pairs and rounds encodes, byte for
            byte; uint8, shape (batch, event_bytes).

        Raises:
            DecodeError: some bytes are not such messages of this matcher, or labels and message
                ahead are of different rounds or seeds. It names the rows.
        """
        from ccbps.matching.one_time.deferred import completed

        return completed(self, self._ahead, labels, ahead)

    @cached_property
    def _ahead(self) -> AheadEncoding:
        from ccbps.encodings.formula.ahead import AheadEncoding

        return AheadEncoding(self.encoding)

    # -- the contract -----------------------------------------------------------------------------

    def explain(self) -> str:
        slots = self.encoding.slots
        event, interest = slots.bits
        return self._explain(
            [
                ("bits", f"{event:,} of an event, {interest:,} of an interest"),
                ("products", f"{slots.products:,} at the broker"),
            ]
        )

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        self.encoding.encode_event(self._form.event_rows(events), draw.rows, out)
