"""Public circuits over private bits of both parties: their inputs, their text, and interests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools
from ccbps.circuits import Circuit, Gate, Op
from ccbps.circuits.bristol import BristolCircuit
from ccbps.errors import EventError, ParameterError, PredicateTypeError
from ccbps.forms.bits import event_bits
from ccbps.predicates import Events, Predicate, Schema

CIRCUIT_FIELDS: Final = ("inputs", "gates", "outputs")
"""Names under which a circuit is described."""


def circuit_over(schema: Schema, private: Schema, circuit: Circuit | BristolCircuit) -> Circuit:
    """Return a circuit whose inputs are the bits of events, then of private values.

    Args:
        schema: schema of the events.
        private: schema of the subscriber's values.
        circuit: the circuit, each attribute's most significant bit first; or that of a file.

    Raises:
        ParameterError: the circuit's inputs are not these bits, or a file's values not these
            attributes.
    """
    if isinstance(circuit, BristolCircuit):
        circuit = _in_order(circuit, schema, private)
    inputs = schema.bits + private.bits
    if circuit.inputs != inputs:
        raise ParameterError(
            f"the circuit must have {schema.bits} + {private.bits} = {inputs} inputs, one for "
            f"each bit of the schema and of private, got {circuit.inputs}"
        )
    return circuit


def described(circuit: Circuit) -> dict[str, Any]:
    """Return a circuit as JSON, under the names of `CIRCUIT_FIELDS`."""
    gates = [list(map(int, gate)) for gate in circuit.gates]
    return {"inputs": circuit.inputs, "gates": gates, "outputs": list(circuit.outputs)}


def from_described(fields: Mapping[str, Any]) -> Circuit:
    """Make the circuit that `described` wrote, among other fields.

    Raises:
        ParameterError: the fields describe no circuit.
    """
    inputs, gates, outputs = (fields[name] for name in CIRCUIT_FIELDS)
    lists = [[inputs], outputs, *(gates if isinstance(gates, list) else [None])]
    if not all(isinstance(numbers, list) for numbers in lists) or any(
        type(number) is not int for numbers in lists for number in numbers
    ):
        raise ParameterError("a circuit is described by lists of whole numbers")
    if any(len(gate) != 3 or gate[0] not in list(Op) for gate in gates):
        raise ParameterError("gates must be lists of an operation and two wires")
    return Circuit(inputs, tuple(Gate(Op(op), a, b) for op, a, b in gates), tuple(outputs))


def private_bits(private: Schema, interest: Any) -> Bools:
    """Return an interest's values as bits, in the order of the circuit's last inputs.

    Args:
        private: schema of the values.
        interest: a mapping of the values.

    Raises:
        ParameterError: `interest` is no mapping, or has other names.
        PredicateTypeError: a value cannot be encoded.
    """
    if isinstance(interest, (str, Predicate)) or not isinstance(interest, Mapping):
        raise ParameterError(
            "an interest is a mapping with the values of "
            f"{', '.join(private)}, got {type(interest).__name__}"
        )
    missing = [name for name in private if name not in interest]
    unknown = [str(name) for name in interest if name not in tuple(private)]
    if missing or unknown:
        problem = f"lacks {', '.join(missing)}" if missing else f"has no {', '.join(unknown)}"
        raise ParameterError(f"an interest {problem}; private values: {', '.join(private)}")
    try:
        bits: Bools = event_bits(private.encode([dict(interest)]))[0]
        return bits
    except EventError as error:
        name = error.attribute
    # Raised outside the handler: the error and its frames hold the private value.
    where = "the private values" if name is None else f"the private value of {name!r}"
    raise PredicateTypeError(f"{where} cannot be encoded as {private!r} asks")


def _in_order(file: BristolCircuit, schema: Schema, private: Schema) -> Circuit:
    """Return a file's circuit, most significant bits first, if its values are the attributes."""
    attributes = {repr(name): schema[name].bits for name in schema}
    attributes |= {f"private {name!r}": private[name].bits for name in private}
    # The old format writes a value of no bits where there is one operand only.
    widths = [width for width in file.input_widths if width]
    if widths != list(attributes.values()):
        expected = ", ".join(f"{name} {bits}" for name, bits in attributes.items())
        raise ParameterError(
            "a Bristol circuit's values must be the attributes, bit for bit: "
            f"{expected}; the file's have {', '.join(map(str, widths)) or 'no'} bits. Give "
            "attributes of these widths, or pass BristolCircuit.most_significant_first() if its "
            "bits, in that order, are those of the attributes"
        )
    return file.most_significant_first()


def answers(circuit: Circuit, private: Schema, interest: Any, events: Events) -> Bools:
    """Return a circuit's first output for events and one interest, in plaintext."""
    bits = event_bits(events)
    own = np.broadcast_to(private_bits(private, interest), (len(bits), private.bits))
    return circuit.evaluate(np.hstack([bits, own]))[:, 0]
