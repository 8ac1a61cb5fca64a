"""Predicates as circuits over the event's bits, the subscription's constants hard-coded.

Wire i is bit i of the event, see `ccbps.forms.bits`. The output is true where the predicate is
TRUE in SQL; NULL, which is code 0, is treated as the code form says.

Conditions on one attribute joined by AND, OR and NOT become one set of codes, and its ranges are
compared, or those of its complement. Codes from `AttributeType.size` up do not occur in events, and
circuits may say anything there: a range that ends at the greatest code needs no upper comparison.

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

from dataclasses import dataclass

from ccbps.algebra.group import Group
from ccbps.circuits import (
    Circuit,
    CircuitBuilder,
    Wire,
    balance,
    blocks,
    counting,
    negation_normal_form,
    without_xor,
)
from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.codes import Intervals, common, complement, joined
from ccbps.predicates.form import AllOf, Always, AnyOf, AtLeastOf, Form, HammingWithin, InRange
from ccbps.predicates.normal import codes_of
from ccbps.programs.barrington import fixed_structure, preserving_length
from ccbps.programs.group import PreservingProgram


def predicate_circuit(predicate: Predicate) -> Circuit:
    """Write the predicate as a circuit of one output over ``schema.bits`` inputs.

    It is in negation normal form (NOT on inputs only, no XOR) and balanced.

    Raises:
        ParameterError: a private constant has no value; bind it first.
    """
    return form_circuit(predicate.schema, predicate.true_form())


def form_circuit(schema: Schema, form: Form) -> Circuit:
    """Write a code form, all its bounds filled in, as `predicate_circuit` does."""
    compiler = _Compiler(schema)
    circuit = compiler.builder.build(compiler.wire(form))
    # Forms negate whole comparisons; De Morgan opens their chains to those around them.
    return balance(negation_normal_form(circuit))


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


@dataclass(frozen=True, slots=True)
class _CodeSet:
    """The codes of one attribute for which a form holds."""

    attribute: str
    codes: Intervals


class _Compiler:
    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.builder = CircuitBuilder()
        self._values = {name: self.builder.inputs(schema[name].bits) for name in schema}

    def wire(self, form: Form) -> Wire:
        """Return the form's wire, in this compiler's builder."""
        reduced = self._reduce(form)
        return reduced if isinstance(reduced, Wire) else self._member(reduced)

    def _reduce(self, form: Form) -> Wire | _CodeSet:
        """Reduce a form to a set of codes as long as it looks at one attribute's ranges only."""
        match form:
            case AllOf(parts) | AnyOf(parts):
                return self._join(parts, isinstance(form, AllOf))
            case AtLeastOf(k, parts):
                return counting.at_least(k, [self.wire(part) for part in parts], self.builder)
            case InRange():
                return _CodeSet(form.attribute, codes_of(self.schema, form))
            case HammingWithin():
                value = self._values[form.attribute]
                k = len(value)
                different = [x ^ bool(form.centre >> (k - 1 - i) & 1) for i, x in enumerate(value)]
                inside = ~counting.at_least(form.limit + 1, different)
                return ~inside if form.negated else inside
        return self.builder.constant(isinstance(form, Always))

    def _join(self, parts: tuple[Form, ...], conjunction: bool) -> Wire | _CodeSet:
        wires: list[Wire] = []
        sets: dict[str, _CodeSet] = {}
        for part in parts:
            reduced = self._reduce(part)
            if isinstance(reduced, Wire):
                wires.append(reduced)
                continue
            name, codes = reduced.attribute, reduced.codes
            if name in sets:
                other = sets[name].codes
                codes = common(other, codes) if conjunction else joined(other + codes)
            sets[name] = _CodeSet(name, codes)
        if not wires and len(sets) == 1:
            return next(iter(sets.values()))
        wires.extend(map(self._member, sets.values()))
        return self.builder.all_of(wires) if conjunction else self.builder.any_of(wires)

    def _member(self, codes: _CodeSet) -> Wire:
        """Return whether the attribute's code is in the set."""
        name, last = codes.attribute, self.schema[codes.attribute].size - 1
        plain, others = (
            self.builder.any_of([self._inside(name, *pair) for pair in intervals])
            for intervals in (codes.codes, complement(codes.codes, last))
        )
        return min(plain, ~others, key=lambda wire: wire.depth)

    def _inside(self, name: str, low: int, high: int) -> Wire:
        value, greatest = self._values[name], self.schema[name].size - 1
        both = blocks.within(value, low, high)
        if high < greatest:
            return both
        return min(both, ~blocks.less_than(value, low), key=lambda wire: wire.depth)
