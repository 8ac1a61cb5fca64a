"""PublicFunctionMatch: a public circuit, both inputs private, by blinded group programs.

Everybody knows the circuit f; the publisher has the event's bits x, the subscriber has her own
values, y, and the broker learns f(x, y). Gates between a bit of x and something only y decides are
the subscriber's elements and cost nothing, so x XOR y is one instruction: a Hamming match of n bits
with private y and a public limit takes 4^d elements on each side (d the depth of the sorting
network), where `OFSGPMatch`, which hides the circuit too, takes 2 n times as many.

Security: perfect against the broker; broker and one client together learn the other's input.
Source: [SSM] Definition 11 and Lemma 22 (the model and protocol of Feige, Kilian and Naor 1994).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra import Group
from ccbps.circuits import Circuit, CircuitBuilder, Wire, blocks
from ccbps.circuits.bristol import BristolCircuit
from ccbps.circuits.networks import NETWORKS, NetworkName
from ccbps.errors import EventError, ParameterError, PredicateTypeError
from ccbps.inputs.circuit import event_bits
from ccbps.matching.one_time.group_program import GroupMatch
from ccbps.matching.roles import Interest
from ccbps.predicates import Predicate, Schema, UInt
from ccbps.programs.barrington import preserving, preserving_length
from ccbps.programs.group import PreservingProgram

__all__ = ["PublicFunctionMatch"]


class PublicFunctionMatch(GroupMatch):
    """A public circuit over private bits of both parties.

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
        private: what the subscriber's values are, as attributes of a schema.
    """

    scheme = "FKN"

    def __init__(
        self,
        schema: Schema,
        circuit: Circuit | BristolCircuit,
        private: Schema,
        *,
        group: str | Group = "A5",
    ) -> None:
        """
        Args:
            schema: the events' attributes.
            circuit: one output; inputs are the bits of `schema`, then of `private`, each most
                significant first, in the schema's order. A circuit from a Bristol file comes as
                the `BristolCircuit` that `bristol.load` gives: its values are the attributes of
                `schema`, then of `private`, and each is read in the file's order, least
                significant bit first. (Its `circuit` alone would read numbers from the wrong end.)
                Bits are those of an attribute's codes: a UInt is its own code, an Int counts
                from its least value up and is not in two's complement.
            private: the subscriber's values; an interest is a record of it.
            group: "A5" (bit-sliced, the faster) or "S5" (as in the paper).

        Raises:
            ParameterError: the circuit's inputs are not these bits, or a file's values not these
                attributes; it does not have one output, or its program is too long.
        """
        if isinstance(circuit, BristolCircuit):
            circuit = _in_order(circuit, schema, private)
        wanted = schema.bits + private.bits
        if circuit.inputs != wanted:
            raise ParameterError(
                f"the circuit must have {schema.bits} + {private.bits} = {wanted} inputs, one for "
                f"each bit of the schema and of private, got {circuit.inputs}"
            )
        self.circuit, self.private = circuit.cone(), private
        blank = self._program(schema, np.zeros(private.bits, dtype=np.bool_), group)
        self._positions = blank.index
        described = {
            "private": private.describe(),
            "gates": [list(map(int, gate)) for gate in self.circuit.gates],
            "outputs": list(self.circuit.outputs),
        }
        self._set_up(schema, group, blank.length, described)
        self.private_names = tuple(private)

    @classmethod
    def hamming(
        cls,
        bits: int,
        *,
        limit: int | None = None,
        network: NetworkName | None = None,
        group: str | Group = "A5",
    ) -> PublicFunctionMatch:
        """The match "x and y differ in at most t bits", with private x and y.

        Args:
            bits: n, width of the event's attribute x and of the subscriber's value y.
            limit: t where it is public. None: it is a private value, too, which costs a choice
                among all limits, log2 n more levels.
            network: the sorting network, "batcher" or "bose-nelson". None: the shortest program
                of both and of `ccbps.circuits.blocks.at_least`.
            group: as for the class.
        """
        if type(bits) is not int or bits < 1:
            raise ParameterError(f"bits must be a whole number of at least 1, got {bits!r}")
        if limit is not None and type(limit) is not int:
            raise ParameterError(f"limit must be a whole number or None, got {limit!r}")
        if network is not None and network not in NETWORKS:
            raise ParameterError(
                f"network must be one of {', '.join(map(repr, NETWORKS))} or None, got {network!r}"
            )
        chosen = (*NETWORKS, None) if network is None else (network,)
        circuits = [_hamming_circuit(bits, limit, name) for name in chosen]
        known = range(bits, circuits[0].inputs)
        circuit = min(circuits, key=lambda circuit: preserving_length(circuit, known))
        private = Schema(y=UInt(bits))
        if limit is None:
            private = Schema(y=UInt(bits), t=UInt(bits.bit_length()))
        return cls(Schema(x=UInt(bits)), circuit, private, group=group)

    def __repr__(self) -> str:
        return (
            f"<PublicFunctionMatch of {', '.join(self.schema)} and private "
            f"{', '.join(self.private)}, {self.group.name}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.schema, self.circuit, self.private, self.group.name)

    @property
    def _public(self) -> str:
        return (
            f"the schema, the circuit ({self.circuit.size} gates) and the group {self.group.name}"
        )

    @property
    def _hidden(self) -> str:
        return f"every private value: {', '.join(self.private)}"

    def _program(
        self, schema: Schema, bits: NDArray[np.bool_], group: str | Group
    ) -> PreservingProgram:
        known = {schema.bits + i: bool(bit) for i, bit in enumerate(bits.tolist())}
        return preserving(self.circuit, self._group_of(group), known)

    def _prepare(self, interest: Interest) -> PreservingProgram:
        if isinstance(interest, (str, Predicate)) or not isinstance(interest, Mapping):
            raise ParameterError(
                "an interest is a mapping with the values of "
                f"{', '.join(self.private)}, got {type(interest).__name__}"
            )
        missing = [name for name in self.private if name not in interest]
        unknown = [str(name) for name in interest if name not in tuple(self.private)]
        if missing or unknown:
            what = f"lacks {', '.join(missing)}" if missing else f"has no {', '.join(unknown)}"
            raise ParameterError(f"an interest {what}; private values: {', '.join(self.private)}")
        problem = None
        try:
            record = self.private.encode([dict(interest)])
        except EventError as error:
            problem = error.attribute
        else:
            return self._program(self.schema, event_bits(record)[0], self.group)
        # Raised outside the handler: the error and its frames hold the private value.
        where = "the private values" if problem is None else f"the private value of {problem!r}"
        raise PredicateTypeError(f"{where} cannot be encoded as {self.private!r} asks")


def _in_order(file: BristolCircuit, schema: Schema, private: Schema) -> Circuit:
    """A file's circuit, most significant bits first, if its values are the attributes."""
    attributes = {
        f"{of}{name!r}": one[name].bits
        for of, one in (("", schema), ("private ", private))
        for name in one
    }
    # The old format writes a value of no bits where there is one operand only.
    widths = [width for width in file.input_widths if width]
    if widths != list(attributes.values()):
        wanted = ", ".join(f"{name} {bits}" for name, bits in attributes.items())
        raise ParameterError(
            "a Bristol circuit's values must be the attributes, bit for bit: "
            f"{wanted}; the file's have {', '.join(map(str, widths)) or 'no'} bits. Give "
            "attributes of these widths, or pass BristolCircuit.most_significant_first() if its "
            "bits, in that order, are those of the attributes"
        )
    return file.most_significant_first()


def _hamming_circuit(bits: int, limit: int | None, network: NetworkName | None) -> Circuit:
    """Whether x and y differ in at most `limit` bits, or t if that is None; inputs x, y (and t)."""
    builder = CircuitBuilder()
    x, y = builder.inputs(bits), builder.inputs(bits)
    differ = [a ^ b for a, b in zip(x, y, strict=True)]
    lines = None if network is None else NETWORKS[network](bits).on_wires(differ)

    def more_than(value: int) -> Wire:
        # Line n - k of a sorting network is set where at least k bits differ.
        if lines is None or not 0 <= value < bits:
            return blocks.at_least(value + 1, differ)
        return lines[bits - value - 1]

    if limit is not None:
        return builder.build(~more_than(limit))
    t = builder.inputs(bits.bit_length())
    exceeded = builder.any_of(blocks.equal(t, value) & more_than(value) for value in range(bits))
    return builder.build(~exceeded)


@lru_cache(maxsize=64)
def _rebuild(schema: Schema, circuit: Circuit, private: Schema, group: str) -> PublicFunctionMatch:
    return PublicFunctionMatch(schema, circuit, private, group=group)
