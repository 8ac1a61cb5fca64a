"""Predicates as circuits over the event's bits, the subscription's constants hard-coded.

Wire i is bit i of the event, see `ccbps.forms.bits`. The output is true where the predicate is
TRUE in SQL; NULL, which is code 0, is treated as the code form says.

Conditions on one attribute joined by AND, OR and NOT become one set of codes. Its ranges are
compared, or those of its complement, or the set is read bit by bit: the shallowest is taken. Codes
from `AttributeType.size` up do not occur in events, and circuits may say anything there: a range
that ends at the greatest code needs no upper comparison.

=================================  =====================================================
condition on k bits, k = 8, 16     depth in AND and OR, NOT being free
=================================  =====================================================
equality                           ceil(log2 k): 3, 4
comparison                         at most 4, 6
BETWEEN                            at most 5, 7
hamming <= t                       at most 6, 10 (a threshold of k literals)
AND, OR of n conditions            ceil(log2(sum of 2**depth))
=================================  =====================================================

Hazard: the circuit is the subscription, in plain sight.
"""

from __future__ import annotations

from math import inf

from ccbps.algebra.group import Group
from ccbps.circuits import Circuit, balance, without_xor
from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.hiding import Literals
from ccbps.programs.barrington import fixed_structure, preserving_length
from ccbps.programs.group import PreservingProgram


def predicate_circuit(predicate: Predicate) -> Circuit:
    """Write the predicate as a circuit of one output over ``schema.bits`` inputs.

    It is in negation normal form (NOT on inputs only, no XOR) and balanced.

    Raises:
        ParameterError: a private constant has no value; bind it first.
    """
    writer = Literals(predicate.schema, work=inf)
    for name in predicate.schema:  # so that the inputs are all bits, in order
        writer.bits(name)
    return writer.circuit([writer.normal.of(predicate.true_form())])


def subscribed(schema: Schema, interest: Predicate | Circuit) -> Circuit:
    """Return a subscription's circuit, that of the shortest program among those tried.

    Args:
        schema: attributes of events.
        interest: a predicate of this schema, or a circuit over its bits.

    Raises:
        ParameterError: a private constant has no value; or a circuit has another number of inputs,
            or not one output.
    """
    if isinstance(interest, Predicate):
        return predicate_circuit(interest)
    if interest.inputs != schema.bits:
        raise ParameterError(
            f"the circuit must have {schema.bits} inputs, one for each bit of the schema, "
            f"got {interest.inputs}"
        )
    if len(interest.outputs) != 1:
        raise ParameterError(f"the circuit must have one output, got {len(interest.outputs)}")
    return min(interest, balance(without_xor(interest)), key=preserving_length)


def program_within(
    schema: Schema, interest: Predicate | Circuit, length: int, group: Group
) -> PreservingProgram:
    """Write a subscription as a program of fixed structure over the schema's bits.

    Args:
        schema: attributes of events.
        interest: as for `subscribed`.
        length: number of instructions that the program is filled up to.
        group: group of the program.

    Raises:
        UnsupportedPredicateError: it needs more instructions.
        ParameterError: see `subscribed`.
    """
    circuit = subscribed(schema, interest)
    needed = preserving_length(circuit)
    if needed > length:
        raise UnsupportedPredicateError(
            f"the predicate's circuit has depth {circuit.depth} and its program {needed:,} "
            f"instructions; this matcher takes {length:,}, enough for any of depth "
            f"{depth_within(length)}: use a matcher of greater depth or length, or a simpler "
            "predicate",
            text=interest.text if isinstance(interest, Predicate) else "",
        )
    return fixed_structure(circuit, length, group)


def depth_within(length: int) -> int:
    """Return the greatest depth d with 4^d <= length: programs of such circuits always fit."""
    return (length.bit_length() - 1) // 2
