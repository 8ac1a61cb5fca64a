"""PublicFunctionMatch: a public circuit, both inputs private, by blinded group programs.

Everybody knows the circuit f; the publisher has the event's bits x, the subscriber has her own
values y, and the broker learns f(x, y). Gates between a bit of x and a wire that depends on y alone
are the subscriber's elements and cost nothing, so x XOR y is one instruction: a Hamming match of n
bits with private y and a public limit takes 4^d elements on each side (d the depth of the sorting
network), where `OFSGPMatch`, which hides the circuit too, takes 2 n times as many.

Security: perfect against the broker; broker and one client together learn the other's input.
Source: [SSM] Definition 11 and Lemma 22 (the model and protocol of Feige, Kilian and Naor 1994).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra import Group
from ccbps.arrays import Bools
from ccbps.checks import choice, whole
from ccbps.circuits import Circuit, CircuitBuilder, Wire, blocks, networks
from ccbps.circuits.bristol import BristolCircuit
from ccbps.circuits.networks import NETWORKS, NetworkName
from ccbps.errors import ParameterError
from ccbps.leakage import Protects
from ccbps.matching.contract.scheme import Interest
from ccbps.matching.group.group_match import PROPOSED, GroupMatch
from ccbps.matching.public_circuits import (
    CIRCUIT_FIELDS,
    answers,
    circuit_over,
    described,
    from_described,
    private_bits,
)
from ccbps.predicates import Events, HammingWithin, Predicate, Schema, UInt
from ccbps.programs.barrington import preserving, preserving_length
from ccbps.programs.group import PreservingProgram

WIDEST: Final = 64
"""Largest number of bits of a value whose Hamming distance is proposed."""


class PublicFunctionMatch(GroupMatch):
    """Public circuit over private bits of both parties.

    Example:
        At most one of four bits differs from the subscriber's, which are private:

        >>> from ccbps import SharedSeed
        >>> from ccbps.matching import PublicFunctionMatch
        >>> matcher = PublicFunctionMatch.hamming(4, limit=1)
        >>> matcher
        <PublicFunctionMatch of x and private y, A5>
        >>> seed = SharedSeed.generate()
        >>> events = matcher.publisher(seed).encode({"x": [0b1010, 0b0101]}, rounds=[0, 1])
        >>> interests = matcher.subscriber(seed).encode({"y": 0b1011}, rounds=[0, 1])
        >>> matcher.broker().match(events, interests)
        array([ True, False])

    Attributes:
        circuit: f; its inputs are the schema's bits, then those of `private`, most significant
            bit of each value first.
        private: schema of the subscriber's values.
    """

    name = "FKN"
    _hides = frozenset({Protects.CONSTANTS})

    def __init__(
        self,
        schema: Schema,
        circuit: Circuit | BristolCircuit,
        private: Schema,
        *,
        group: str | Group = "A5",
    ) -> None:
        """Turn the circuit into a program.

        Args:
            schema: schema of the events.
            circuit: circuit of one output; its inputs are the bits of `schema`, then of `private`,
                each most significant first, in the schema's order. A circuit from a Bristol file
                comes as the `BristolCircuit` that `bristol.load` gives: its values are the
                attributes of `schema`, then of `private`, and each is read in the file's order,
                least significant bit first. (Its `circuit` alone would read numbers from the wrong
                end.) Bits are those of an attribute's codes: a UInt is its own code, an Int counts
                from its least value up and is not in two's complement.
            private: schema of the subscriber's values; an interest is a record of it.
            group: "A5" (bit-sliced, the faster) or "S5" (as in the paper).

        Raises:
            ParameterError: the circuit's inputs are not these bits, or a file's values not these
                attributes; it does not have one output, or its program is too long.
        """
        self.circuit, self.private = circuit_over(schema, private, circuit).cone(), private
        # Few gates can make a long program: each level has four times the length.
        needed = preserving_length(self.circuit, range(schema.bits, self.circuit.inputs))
        elements = self._affordable_group(group, needed)
        blank = self._program(schema, np.zeros(private.bits, dtype=np.bool_), elements)
        self._positions = blank.index
        self.private_names = tuple(private)
        gates = f"{self.circuit.size} gates"
        self._public = f"the schema, the circuit ({gates}) and the group {elements.name}"
        self._hidden = f"every private value: {', '.join(private)}"
        self._compile(schema, elements, blank.length)

    @classmethod
    def hamming(
        cls,
        bits: int,
        *,
        limit: int | None = None,
        network: NetworkName | None = None,
        group: str | Group = "A5",
    ) -> PublicFunctionMatch:
        """Make the match "x and y differ in at most t bits", with private x and y.

        Args:
            bits: n, width of the event's attribute x and of the subscriber's value y, in bits.
            limit: t, if it is public. None if it is a private value, too, which costs a choice
                among all limits, log2 n more levels.
            network: the sorting network, "batcher" or "bose-nelson". None for the shortest program
                of both and of `ccbps.circuits.networks.at_least`.
            group: "A5" or "S5", as for the class.
        """
        bits = whole("bits", bits, 1)
        if limit is not None:
            limit = whole("limit", limit)
        choice("network", network, (*NETWORKS, None))
        chosen = (*NETWORKS, None) if network is None else (network,)
        schema, private = Schema(x=UInt(bits)), Schema(y=UInt(bits))
        if limit is None:
            private = Schema(y=UInt(bits), t=UInt(bits.bit_length()))
        return cls(schema, _hamming_circuit(schema, "x", limit, chosen), private, group=group)

    def parameters(self) -> dict[str, Any]:
        private = json.loads(self.private.to_json())
        return {**described(self.circuit), "private": private, "group": self.group.name}

    @classmethod
    def from_parameters(cls, schema: Schema, parameters: Mapping[str, Any]) -> Self:
        if parameters.keys() != {*CIRCUIT_FIELDS, "private", "group"}:
            raise ParameterError("the parameters are not those of a PublicFunctionMatch")
        private = Schema.from_json(json.dumps(parameters["private"]))
        return cls(schema, from_described(parameters), private, group=parameters["group"])

    @classmethod
    def propose(cls, schema: Schema, predicate: Predicate) -> Iterator[Self]:
        """Yield a Hamming distance from a private value: ``hamming(x, :y) <= 3``, or NOT that."""
        names = predicate.private_names
        form = predicate.true_form() if predicate.schema == schema and len(names) == 1 else None
        if not isinstance(form, HammingWithin) or schema[form.attribute].bits > WIDEST:
            return
        circuit = _hamming_circuit(schema, form.attribute, form.limit, (*NETWORKS, None))
        if form.negated:
            builder = CircuitBuilder()
            inside = builder.embed(circuit, builder.inputs(circuit.inputs))
            circuit = builder.build(~inside[0])
        if preserving_length(circuit, range(schema.bits, circuit.inputs)) <= PROPOSED:
            yield cls(schema, circuit, Schema({names[0]: schema[form.attribute]}))

    def __repr__(self) -> str:
        return (
            f"<PublicFunctionMatch of {', '.join(self.schema)} and private "
            f"{', '.join(self.private)}, {self.group.name}>"
        )

    def _program(self, schema: Schema, bits: NDArray[np.bool_], group: Group) -> PreservingProgram:
        constants = {schema.bits + i: bool(bit) for i, bit in enumerate(bits.tolist())}
        return preserving(self.circuit, group, constants)

    def prepare(self, interest: Interest) -> PreservingProgram:
        """Return the circuit's program with the private values in it."""
        return self._program(self.schema, private_bits(self.private, interest), self.group)

    def meaning(self, interest: Any, events: Events) -> Bools:
        return answers(self.circuit, self.private, interest, events)


def _hamming_circuit(
    schema: Schema, name: str, limit: int | None, networks: Sequence[NetworkName | None]
) -> Circuit:
    """Build the circuit "an attribute differs from y in at most `limit` bits", or t if None.

    Inputs are the schema's bits, y (and t). The network with the shortest program is taken.
    """
    circuits = [_hamming_by(schema, name, limit, network) for network in networks]
    private = range(schema.bits, circuits[0].inputs)
    return min(circuits, key=lambda circuit: preserving_length(circuit, private))


def _hamming_by(
    schema: Schema, name: str, limit: int | None, network: NetworkName | None
) -> Circuit:
    builder, bits = CircuitBuilder(), schema[name].bits
    start = schema.first_bits[name]
    x, y = builder.inputs(schema.bits)[start : start + bits], builder.inputs(bits)
    differ = [a ^ b for a, b in zip(x, y, strict=True)]
    lines = None if network is None else NETWORKS[network](bits).on_wires(differ)

    def more_than(value: int) -> Wire:
        # Line n - k of a sorting network is set where at least k bits differ.
        if lines is None or not 0 <= value < bits:
            return networks.at_least(value + 1, differ)
        return lines[bits - value - 1]

    if limit is not None:
        return builder.build(~more_than(limit))
    t = builder.inputs(bits.bit_length())
    exceeded = builder.any_of(blocks.equal(t, value) & more_than(value) for value in range(bits))
    return builder.build(~exceeded)
