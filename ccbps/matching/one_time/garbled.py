"""GarbledMatch: any circuit of both parties' bits, at the price of its ANDs.

Publisher and subscriber share one-time randomness. The subscriber garbles a public circuit, with
its own bits folded in, and the publisher sends a label for each bit of the event. The broker
evaluates the circuit on labels, learns one output, and nothing else. There are three kinds of
matchers. They differ in the public part of a subscription:

- `GarbledMatch.box`: nothing. Every attribute lies in a private interval.
- ``GarbledMatch(schema, template)``: the template, with ``:name`` for constants that only the
  subscriber knows.
- `GarbledMatch.circuit`: a circuit, such as one from a Bristol file, some of whose inputs are the
  publisher's, and some the subscriber's.

An AND takes 32 bytes of an interest, or 16 where the subscriber knows an operand; XOR and NOT are
free. `FormulaMatch` decides boxes and most templates in a fraction of the bytes, with perfect
security. Garbling wins where a circuit uses a result many times over, and a formula repeats it.

Security: computational: AES-128 under public keys as an ideal cipher. Broker and one client
together learn the other client's input. Sources and equations: `ccbps.encodings.garbling.encoding`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Self

import numpy as np
from msgspec.structs import replace

from ccbps.arrays import Bools, Bytes, Words
from ccbps.checks import whole
from ccbps.circuits import Circuit
from ccbps.circuits.bristol import BristolCircuit
from ccbps.dictionary import DictionaryColumn
from ccbps.encodings.garbling.encoding import LABEL_BYTES, GarbledEncoding
from ccbps.encodings.garbling.hashing import BLOCK_BITS, HASHES_A_GATE
from ccbps.errors import ParameterError
from ccbps.forms.bits import event_words
from ccbps.forms.formula import TooManyGates
from ccbps.forms.garbled import GarbledForm
from ccbps.leakage import LeakageCard, Protects
from ccbps.matching.contract.matcher import within_text
from ccbps.matching.contract.scheme import Cost, Draw, Operation
from ccbps.matching.one_time.encoded import TemplateScheme
from ccbps.matching.public_circuits import (
    CIRCUIT_FIELDS,
    answers,
    circuit_over,
    described,
    from_described,
    private_bits,
)
from ccbps.matching.templates import MAX_SIZE
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.form import Form

LAYOUT: Final = 1
"""Number of the rule by which bodies follow from the circuit; part of fingerprints."""
KEY_BITS: Final = 128 - BLOCK_BITS - (HASHES_A_GATE - 1).bit_length()
"""Bits of security against those who try labels, for one pair of parties and epoch."""


class GarbledMatch(TemplateScheme):
    """One-time matcher of templates, boxes and public circuits, by garbling.

    Example:
        A Hamming distance of 64 bits takes 63 ANDs for counting, and a few for comparing:

        >>> from ccbps import Schema, SharedSeed, UInt
        >>> from ccbps.matching import GarbledMatch
        >>> matcher = GarbledMatch(Schema(mark=UInt(64)), "hamming(mark, :mine) <= 12")
        >>> seed = SharedSeed.generate()
        >>> events = matcher.publisher(seed).encode({"mark": [2**13 - 1, 2**12]}, rounds=[0, 1])
        >>> interests = matcher.subscriber(seed).encode({"mine": 0}, rounds=[0, 1])
        >>> matcher.broker().match(events, interests)
        array([False,  True])
        >>> matcher.size
        67

    Attributes:
        template: the public predicate, or None.
        private: schema of the subscriber's values, for a circuit; or None.
        circuit_of_bits: the circuit; its inputs are the event's bits, then the subscriber's.
        encoding: the encoders and the decoder.
    """

    name = "garbled"
    _size_name = "gates"
    private: Schema | None = None
    circuit_of_bits: Circuit

    def __init__(
        self,
        schema: Schema,
        template: str | Predicate | None = None,
        *,
        max_gates: int = MAX_SIZE,
    ) -> None:
        """Write the circuit of a template.

        Args:
            schema: schema of the events.
            template: SQL, with ``:name`` wherever the subscriber has a private constant. Required:
                without one, take `GarbledMatch.box` or `GarbledMatch.circuit`.
            max_gates: largest number of ANDs, at 32 bytes of an interest each.

        Raises:
            ParameterError: there is no template, it is for another schema or already bound, or the
                circuit would have more than `max_gates` ANDs.
            PredicateError: the template does not parse or does not fit the schema.
        """
        more = f"; for a circuit, {type(self).__name__}.circuit(schema, circuit, private)"
        self._use_shape(schema, self._template_form(schema, template, more), max_gates)

    @classmethod
    def box(cls, schema: Schema, *, max_gates: int = MAX_SIZE) -> Self:
        """Make the matcher that hides which attributes a predicate constrains, and how.

        Example:
            >>> from ccbps import Schema, UInt
            >>> from ccbps.matching import FormulaMatch, GarbledMatch
            >>> schema = Schema(price=UInt(16), volume=UInt(16), area=UInt(20))
            >>> garbled, formula = GarbledMatch.box(schema), FormulaMatch.box(schema)
            >>> garbled.event_bytes, garbled.interest_bytes        # FormulaMatch is the one to take
            (840, 3313)
            >>> formula.event_bytes, formula.interest_bytes
            (81, 84)

        Args:
            schema: schema of the events; B bits take about 2 B ANDs.
            max_gates: largest number of ANDs.

        Raises:
            ParameterError: the circuit would have more than `max_gates` ANDs.
        """
        matcher = cls.__new__(cls, schema)
        matcher._use_shape(schema, matcher._box_form(schema), max_gates)
        return matcher

    @classmethod
    def circuit(
        cls,
        schema: Schema,
        circuit: Circuit | BristolCircuit,
        private: Schema,
        *,
        max_gates: int = 1 << 20,
    ) -> Self:
        """Make the matcher of a public circuit over the event's bits and private values.

        An interest is a mapping with the values of `private`.

        Example:
            >>> from ccbps import Schema, SharedSeed, UInt
            >>> from ccbps.circuits import CircuitBuilder
            >>> from ccbps.circuits.blocks import add, less_than
            >>> from ccbps.matching import GarbledMatch
            >>> b = CircuitBuilder()
            >>> x, y, least = b.inputs(8), b.inputs(8), b.inputs(9)
            >>> enough = b.build(~less_than(add(x, y), least))    # x + y >= least
            >>> matcher = GarbledMatch.circuit(
            ...     Schema(x=UInt(8), y=UInt(8)), enough, Schema(least=UInt(9))
            ... )
            >>> seed = SharedSeed.generate()
            >>> events = matcher.publisher(seed).encode({"x": [9, 9], "y": [1, 2]}, rounds=[0, 1])
            >>> interests = matcher.subscriber(seed).encode({"least": 11}, rounds=[0, 1])
            >>> matcher.broker().match(events, interests)
            array([False,  True])

        Args:
            schema: schema of the events.
            circuit: circuit of one output; its inputs are the bits of `schema`, then of `private`,
                each most significant first, in the schema's order. A circuit from a Bristol file
                comes as the `BristolCircuit` that `bristol.load` gives: its values are the
                attributes of `schema`, then of `private`, least significant bit first.
            private: schema of the subscriber's values.
            max_gates: largest number of ANDs.

        Raises:
            ParameterError: the circuit's inputs are not these bits, or a file's values not these
                attributes; it does not have one output, or it has too many ANDs.
        """
        matcher = cls.__new__(cls, schema)
        matcher.private, matcher.private_names = private, tuple(private)
        matcher.operators = ()
        matcher._use_circuit(schema, circuit_over(schema, private, circuit), schema.bits, max_gates)
        return matcher

    _form: GarbledForm | None

    def _use_shape(self, schema: Schema, form: Form, max_gates: int) -> None:
        """Take the circuit of a template or a box."""
        limit = whole("max_gates", max_gates, 1)
        try:
            garbled = GarbledForm(schema, form, limit)
        except TooManyGates as error:
            raise ParameterError(str(error).replace("formula", "circuit")) from None
        self._use_circuit(schema, garbled.circuit, garbled.event_bits, limit, garbled)

    def _use_circuit(
        self,
        schema: Schema,
        circuit: Circuit,
        event_bits: int,
        max_gates: int,
        form: GarbledForm | None = None,
    ) -> None:
        limit = whole("max_gates", max_gates, 1)
        if len(circuit.outputs) != 1:
            raise ParameterError(f"the circuit must have one output, got {len(circuit.outputs)}")
        self.circuit_of_bits = circuit
        encoding = GarbledEncoding(circuit, event_bits)
        plan = encoding.plan
        if plan.gates + plan.half_gates > limit:
            raise ParameterError(
                f"the circuit has {plan.gates + plan.half_gates:,} ANDs, and max_gates allows "
                f"{limit:,}: an interest would take {encoding.interest_bytes:,} bytes"
            )
        within_text(encoding.interest_bytes)
        self._use(schema, form, encoding)

    # -- public parameters ------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of ANDs, those with one ciphertext included."""
        plan = self.encoding.plan
        return int(plan.gates + plan.half_gates)

    def layout(self) -> Any:
        circuit = described(self.circuit_of_bits)
        return [LAYOUT, self.encoding.plan.event_bits, *map(circuit.__getitem__, CIRCUIT_FIELDS)]

    def parameters(self) -> dict[str, Any]:
        if self.private is None:
            return super().parameters()
        private = json.loads(self.private.to_json())
        return {**described(self.circuit_of_bits), "private": private}

    @classmethod
    def from_parameters(cls, schema: Schema, parameters: Mapping[str, Any]) -> Self:
        if "private" not in parameters:
            return super().from_parameters(schema, parameters)
        if parameters.keys() != {*CIRCUIT_FIELDS, "private"}:
            raise ParameterError(f"the parameters are not those of a {cls.__name__}")
        private = Schema.from_json(json.dumps(parameters["private"]))
        return cls.circuit(schema, from_described(parameters), private)

    @property
    def _shape(self) -> str:
        if self.private is None:
            return super()._shape
        return f"circuit with private {', '.join(self.private)}"

    def _hidden_part(self) -> tuple[str, str, set[Protects]]:
        public, hidden, protects = super()._hidden_part()
        if self.private is not None:
            public = "the schemas of both parties and the whole circuit"
            hidden = f"every private value: {', '.join(self.private)}"
            protects = {Protects.CONSTANTS}
        return public, hidden, protects

    @property
    def leakage(self) -> LeakageCard:
        card = super().leakage
        return replace(
            card,
            learns=(
                *card.learns,
                "the number of the round",
            ),
            security="computational",
            assumption=(
                "AES-128 under public keys is an ideal cipher, and each round's randomness is "
                "uniform, known only to the pair and used once; about "
                f"{KEY_BITS} bits: 128 - log2({HASHES_A_GATE} hashes of a key in each of "
                f"2^{BLOCK_BITS} rounds), and log2(n) fewer if n pairs of parties, or epochs of "
                "their seeds, use the circuit"
            ),
            hazards=(
                "a round is used for two events or two predicates: two labels of one wire show "
                "the round's global offset, and with it every private bit",
                *card.hazards[1:],
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        plan, aes = self.encoding.plan, Operation.AES_BLOCK
        hashes, labels = int(plan.ciphertexts), len(plan.used)
        return (
            Cost("publisher", "pair", Operation.WORD, 2 * labels),
            Cost("subscriber", "pair", aes, 2 * hashes, note="a key a gate for 2^16 rounds"),
            Cost("broker", "pair", aes, hashes, note="a key a gate for 2^16 rounds"),
        )

    def explain(self) -> str:
        plan = self.encoding.plan
        return self._explain(
            [
                ("shape", self._shape),
                (
                    "circuit",
                    f"{plan.gates:,} gates of two ciphertexts, {plan.half_gates:,} of one",
                ),
                ("labels", f"{len(plan.used):,} of an event, {LABEL_BYTES} bytes each"),
            ]
        )

    # -- interests and messages -------------------------------------------------------------------

    def prepare(self, interest: Any) -> Words:
        """Return the private bits of a subscription, shape (1, words)."""
        if self.private is None:
            row: Words = super().prepare(interest)
            return row
        bits = private_bits(self.private, interest)
        octets = np.zeros(8 * max(1, -(-len(bits) // 64)), dtype=np.uint8)
        octets[: -(-len(bits) // 8)] = np.packbits(bits, bitorder="little")
        return octets.view("<u8")[None, :]

    def meaning(self, interest: Any, events: Events) -> Bools:
        if self.private is None:
            return super().meaning(interest, events)
        return answers(self.circuit_of_bits, self.private, interest, events)

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        if self._form is None:
            rows = np.ascontiguousarray(event_words(events).T)
        else:
            rows = self._form.event_rows(events)
        self.encoding.encode_event(rows, draw.rows, out)

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Words], draw: Draw, out: Bytes
    ) -> None:
        rows = np.concatenate(interests.values)
        index = None if len(rows) == 1 else interests.index
        rounds = draw.rounds(0, len(out))
        self.encoding.encode_interest(rows, draw.rows, out, rounds=rounds, index=index)
