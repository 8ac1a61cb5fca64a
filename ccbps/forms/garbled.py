"""Predicates as circuits of few ANDs over both parties' bits, for garbling.

The bits are those of `ccbps.forms.formula`, and so are all formulas but thresholds. A formula for a
threshold repeats its parts; a circuit counts, and has each part once.

=============================  =========================================  ==================
condition                      ANDs of two event bits                     ANDs of an event
                                                                          and a private bit
=============================  =========================================  ==================
comparison on k bits           k - 1                                      1
BETWEEN, private bounds        2 k - 2                                    2
equality                       k - 1                                      1 where no code is
                                                                          left for "never"
hamming on k bits              k - HW(k), and at most log2 k more         0
at_least of n parts            n - HW(n), at most log2 n more, and those
                               of the parts
AND, OR of n parts             n - 1, and those of the parts
public bounds                  0                                          0
=============================  =========================================  ==================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ccbps.circuits.circuit import Circuit, CircuitBuilder, Wire
from ccbps.circuits.counting import at_least, count_ands
from ccbps.forms.formula import FormulaForm
from ccbps.forms.leaves import Leaves
from ccbps.predicates import Schema
from ccbps.predicates.form import Form
from ccbps.programs.branching import Label
from ccbps.programs.formula import And, Chain, Formula, Sum


@dataclass(frozen=True, slots=True)
class _Threshold:
    """A part of a formula: at least k of some parts hold."""

    k: int
    parts: tuple[Formula, ...]


class GarbledForm(FormulaForm):
    """A form's circuit, and the bits of both parties.

    Args:
        schema: schema of the events.
        form: code form whose private bounds are None.
        max_gates: largest number of ANDs.

    Attributes:
        circuit: its inputs are the event's bits, then the interest's; its output is the answer.

    Raises:
        TooManyGates: the circuit would have more ANDs; it has not been built.
    """

    def __init__(self, schema: Schema, form: Form, max_gates: int) -> None:
        super().__init__(Leaves(schema), form, max_gates)
        builder = CircuitBuilder()
        writer = _Writer(
            builder, builder.inputs(self.event_bits), builder.inputs(self.private_bits)
        )
        self.circuit: Circuit = builder.build(writer.wire(self.formula))

    def _threshold(self, k: int, parts: list[Formula]) -> Any:
        # No formula of `ccbps.programs.formula`, and for `_Writer` alone.
        self._count(count_ands(len(parts)) + len(parts).bit_length())
        return _Threshold(k, tuple(parts))


class _Writer:
    """Formulas as wires."""

    def __init__(self, builder: CircuitBuilder, event: list[Wire], interest: list[Wire]) -> None:
        self._builder, self._event, self._interest = builder, event, interest

    def wire(self, formula: Formula | _Threshold) -> Wire:
        """Return the wire of a formula."""
        match formula:
            case Label():
                return self._label(formula)
            case Sum(parts):
                out = self._builder.constant(False)
                for part in parts:
                    out ^= self.wire(part)
                return out
            case And(left, right):
                return self.wire(left) & self.wire(right)
            case Chain(maps, bit, slope, offset):
                out = self._label(bit) & self._label(slope) ^ self._label(offset)
                for factor, addend in reversed(maps):
                    out = self._label(factor) & out ^ self._label(addend)
                return out
            case _Threshold(k, several):
                return at_least(self._builder, k, [self.wire(part) for part in several])
        raise AssertionError("formulas of digits are for other encodings")

    def _label(self, label: Label) -> Wire:
        out = self._builder.constant(label.one)
        for wires, bits in ((self._event, label.event), (self._interest, label.interest)):
            for bit in sorted(bits):
                out ^= wires[bit]
        return out
