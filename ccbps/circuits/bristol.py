"""Bristol Fashion and the older Bristol Format: circuits as text, read and written.

Both have a header and then one gate per line:

=====================  =========================================================================
Bristol Fashion        gates wires / inputs n_1 n_2 ... / outputs m_1 m_2 ... ; gates AND, XOR,
                       INV (or NOT), EQ (a constant), EQW (a copy), MAND (several ANDs)
Bristol Format (old)   gates wires / n_1 n_2 m ; gates AND, XOR, INV
=====================  =========================================================================

The first wires are the inputs, value after value, and the last wires the outputs. `loads` tells the
two formats apart by the third line. Neither has OR: `dumps` writes ~(~a & ~b), which is as deep.

Convention: *within a value the least significant wire comes first*, in the files and in the
`Circuit` of a `BristolCircuit`. Blocks and matchers take the most significant bit first.
`BristolCircuit.most_significant_first` converts to their order, `BristolCircuit.from_blocks`
converts back, and `BristolCircuit.integers` works on integers. `PublicFunctionMatch` takes the
`BristolCircuit` itself.

Hazard: `BristolCircuit.circuit` in place of the other order has the right size, but computes
another function.

Source: [BF]; header, gates and MAND as described there and in SCALE-MAMBA's documentation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np

from ccbps.checks import choice
from ccbps.circuits.circuit import Circuit, Gate, Op
from ccbps.errors import DecodeError, ParameterError

_GATES = {"AND": Op.AND, "XOR": Op.XOR, "INV": Op.NOT, "NOT": Op.NOT}
# Every other wire has a line. The number of inputs is in the header and may be any number.
_MOST_INPUTS = 1 << 20


@dataclass(frozen=True)
class BristolCircuit:
    """A circuit whose wires are grouped into values.

    Attributes:
        circuit: inputs and outputs in file order, least significant wire of each value first.
        input_widths: bits of each input value.
        output_widths: bits of each output value.

    Raises:
        ParameterError: the widths do not add up to the circuit's inputs and outputs.
    """

    circuit: Circuit
    input_widths: tuple[int, ...]
    output_widths: tuple[int, ...]

    def __post_init__(self) -> None:
        for name, widths, total in (
            ("input_widths", self.input_widths, self.circuit.inputs),
            ("output_widths", self.output_widths, len(self.circuit.outputs)),
        ):
            if min(widths, default=0) < 0 or sum(widths) != total:
                raise ParameterError(f"{name} must add up to {total}, got {widths}")

    @classmethod
    def from_blocks(
        cls, circuit: Circuit, input_widths: Sequence[int], output_widths: Sequence[int]
    ) -> BristolCircuit:
        """Convert a circuit whose values have the most significant bit first to the files' order.

        Args:
            circuit: circuit of this package's blocks.
            input_widths: bits of each input value.
            output_widths: bits of each output value.

        Raises:
            ParameterError: the widths do not add up to the circuit's inputs and outputs.
        """
        turned = cls(circuit, tuple(input_widths), tuple(output_widths))
        return cls(turned.most_significant_first(), turned.input_widths, turned.output_widths)

    def most_significant_first(self) -> Circuit:
        """Return the circuit with the wires of each value, in and out, in the opposite order.

        This is the order of blocks and matchers.
        """
        inputs = _reversed_values(self.input_widths)
        gates = tuple(
            Gate(op, *(inputs[wire] if 0 <= wire < len(inputs) else wire for wire in (a, b)))
            for op, a, b in self.circuit.gates
        )
        outputs = [self.circuit.outputs[place] for place in _reversed_values(self.output_widths)]
        return Circuit(
            self.circuit.inputs,
            gates,
            tuple(inputs[wire] if wire < len(inputs) else wire for wire in outputs),
        )

    def integers(self, *values: Sequence[int]) -> list[list[int]]:
        """Compute the function on unsigned integers, many at a time.

        Args:
            values: integers of each input value, in sequences of one length.

        Returns:
            For each output value its integers.

        Raises:
            ParameterError: the number of sequences is not that of the input values, their lengths
                differ, or an integer does not fit its width.
        """
        counts = {len(column) for column in values}
        if len(values) != len(self.input_widths) or len(counts) > 1:
            raise ParameterError(
                f"values must be {len(self.input_widths)} sequences of one length, "
                f"got {len(values)} of lengths {sorted(counts)}"
            )
        count = counts.pop() if counts else 1
        parts = [np.zeros((count, 0), dtype=np.bool_)]
        for place, (column, width) in enumerate(zip(values, self.input_widths, strict=True)):
            if any(value < 0 or value >> width for value in column):
                raise ParameterError(f"input value {place} must be integers of {width} bits")
            size = -(-width // 8)
            joined = b"".join(int(value).to_bytes(size, "little") for value in column)
            rows = np.frombuffer(joined, dtype=np.uint8).reshape(count, size)
            bits = np.unpackbits(rows, axis=1, bitorder="little")[:, :width]
            parts.append(bits.astype(np.bool_))
        out = self.circuit.evaluate(np.concatenate(parts, axis=1))
        columns, start = [], 0
        for width in self.output_widths:
            packed = np.packbits(out[:, start : start + width], axis=1, bitorder="little")
            columns.append([int.from_bytes(row.tobytes(), "little") for row in packed])
            start += width
        return columns


def _reversed_values(widths: Sequence[int]) -> list[int]:
    """Return the place of each wire when every value is reversed. The map is its own inverse."""
    places: list[int] = []
    for width in widths:
        start = len(places)
        places.extend(range(start + width - 1, start - 1, -1))
    return places


def load(path: str | os.PathLike[str]) -> BristolCircuit:
    """Read a file of either format, as `loads` reads a text."""
    try:
        text = Path(path).read_text(encoding="ascii")
    except UnicodeDecodeError:
        raise DecodeError("a Bristol circuit must be ASCII text, and this file is not") from None
    return loads(text)


def loads(text: str) -> BristolCircuit:
    """Read a circuit of either format.

    Constants become FALSE and TRUE gates, copies disappear, and a MAND becomes its ANDs. Gates keep
    their order. Wires are renumbered.

    Raises:
        DecodeError: the text is not a circuit. The message names the line and its expected form.
    """
    lines = _lines(text)
    number, words = next(lines, (1, []))
    gate_count, wire_count = _numbers(number, words, 2, "the numbers of gates and of wires")
    inputs, outputs, body, number = _header(lines)
    first, last = sum(inputs), wire_count - sum(outputs)
    if first > wire_count or last < 0:
        raise _error(number, f"no more inputs or outputs than {wire_count} wires", [])
    if first > _MOST_INPUTS:
        raise _error(number, f"at most {_MOST_INPUTS} input wires", [str(first)])
    place = {wire: wire for wire in range(first)}
    gates: list[Gate] = []
    line_count = 0
    for line_count, (number, words) in enumerate(body, 1):
        if line_count > gate_count:
            raise _error(number, f"the end after {gate_count} gates", words)
        for op, operands, target in _gate(number, words):
            if target in place or not 0 <= target < wire_count:
                raise _error(number, f"a wire below {wire_count} without a value", [str(target)])
            for wire in operands:
                if wire not in place:
                    raise _error(number, "a wire that has a value already", [str(wire)])
            read = [place[wire] for wire in operands]
            if op is None:
                place[target] = read[0]
            else:
                place[target] = first + len(gates)
                gates.append(Gate(op, *read))
    if line_count < gate_count:
        raise _error(number + 1, f"{gate_count} gates", [f"the end after {line_count}"])
    for wire in range(last, wire_count):
        if wire not in place:
            raise _error(number, f"a gate for output wire {wire}", ["the end"])
    circuit = Circuit(first, tuple(gates), tuple(place[w] for w in range(last, wire_count)))
    return BristolCircuit(circuit, inputs, outputs)


Line = tuple[int, list[str]]


def _lines(text: str) -> Iterator[Line]:
    """Yield the numbers, from 1, and words of the lines that are not blank."""
    for number, line in enumerate(text.splitlines(), 1):
        if words := line.split():
            yield number, words


def _error(number: int, expected: str, got: list[str]) -> DecodeError:
    shown = " ".join(got)
    shown = shown if len(shown) <= 40 else shown[:40] + "..."
    return DecodeError(f"line {number}: expected {expected}" + (f", got {shown!r}" if got else ""))


def _numbers(number: int, words: list[str], count: int, expected: str) -> list[int]:
    # str.isdigit is also true of digits that int() refuses, and int() takes signs and underscores.
    if len(words) != count or not all(word.isascii() and word.isdigit() for word in words):
        raise _error(number, expected, words or ["the end"])
    if any(len(word) > 18 for word in words):
        raise _error(number, "smaller numbers", words)
    return [int(word) for word in words]


def _header(lines: Iterator[Line]) -> tuple[tuple[int, ...], tuple[int, ...], Iterator[Line], int]:
    """Return input and output widths, the lines after the header, and its last line's number."""
    second, third = next(lines, None), next(lines, None)
    if second is None:
        raise _error(2, "the inputs' widths", ["the end"])
    number, words = second
    if third is not None and third[1][-1].isdigit():
        inputs = _widths(number, words, "input")
        outputs = _widths(*third, "output")
        return inputs, outputs, lines, third[0]
    # A third line that is a gate already, or none at all: the old format.
    n_1, n_2, m = _numbers(number, words, 3, "two input widths and one output width")
    return (n_1, n_2), (m,), chain([third] if third else [], lines), number


def _widths(number: int, words: list[str], kind: str) -> tuple[int, ...]:
    expected = f"the number of {kind} values and the width of each"
    values = _numbers(number, words, len(words), expected)
    if values[0] != len(values) - 1:
        raise _error(number, expected, words)
    return tuple(values[1:])


def _gate(number: int, words: list[str]) -> list[tuple[Op | None, list[int], int]]:
    """Read a line as (operation, operands, wire) of each gate, with no operation for a copy."""
    name = words[-1]
    if len(words) < 4:
        raise _error(number, "a gate", words)
    ins, outs, *wires = _numbers(
        number, words[:-1], len(words) - 1, "a gate's numbers before its name"
    )
    if name == "MAND":
        if not outs or ins != 2 * outs or len(wires) != ins + outs:
            raise _error(number, "2n inputs and n outputs of MAND", words)
        # The i-th input of the first half goes with the i-th of the second.
        return [(Op.AND, [wires[i], wires[outs + i]], wires[ins + i]) for i in range(outs)]
    if name not in _GATES and name not in ("EQ", "EQW"):
        raise _error(number, "AND, XOR, INV, NOT, EQ, EQW or MAND", [name])
    operands = 2 if name in ("AND", "XOR") else 1
    if (ins, outs) != (operands, 1) or len(wires) != operands + 1:
        raise _error(number, f"{operands} inputs and 1 output of {name}", words)
    if name == "EQ":
        if wires[0] > 1:
            raise _error(number, "the constant 0 or 1 of EQ", words)
        return [(Op(wires[0]), [], wires[1])]
    return [(_GATES.get(name), wires[:-1], wires[-1])]


def dumps(
    circuit: Circuit | BristolCircuit,
    *,
    input_widths: Sequence[int] | None = None,
    output_widths: Sequence[int] | None = None,
    style: Literal["fashion", "format"] = "fashion",
) -> str:
    """Write a circuit as text.

    Reading the text gives the same circuit, with the exception of OR. In the old format constants
    and outputs that are inputs, or the same wire twice, are written by several gates, too.

    Args:
        circuit: circuit with or without values. Wires are written in their order: for a circuit
            that has the most significant bits first, pass `BristolCircuit.from_blocks`.
        input_widths: bits of each input value; by default a single value. Not to be given with a
            `BristolCircuit`.
        output_widths: bits of each output value, with the same default.
        style: "fashion", or "format" for the old one, which has at most two input values and one
            output value.

    Raises:
        ParameterError: widths or style are not as above, or the circuit has a constant but no
            input, and the style is "format".
    """
    choice("style", style, ("fashion", "format"))
    if not isinstance(circuit, BristolCircuit):
        ins = (circuit.inputs,) if input_widths is None else tuple(input_widths)
        outs = (len(circuit.outputs),) if output_widths is None else tuple(output_widths)
        circuit = BristolCircuit(circuit, ins, outs)
    elif input_widths is not None or output_widths is not None:
        raise ParameterError("a BristolCircuit has its widths; leave the arguments out")
    ins, outs = circuit.input_widths, circuit.output_widths
    if style == "format" and (len(ins) > 2 or len(outs) != 1):
        raise ParameterError(
            "the old format takes at most 2 input values and 1 output value, "
            f"got {len(ins)} and {len(outs)}; use style='fashion'"
        )
    lines, wires = _Writer(circuit.circuit, old=style == "format").lines()
    header = [f"{len(lines)} {wires}"]
    if style == "format":
        header.append(" ".join(str(width) for width in (*ins, 0, 0)[:2]) + f" {outs[0]}")
    else:
        header += [" ".join(map(str, (len(widths), *widths))) for widths in (ins, outs)]
    return "\n".join([*header, "", *lines]) + "\n"


class _Writer:
    """Gates in the file's vocabulary. The wires of the outputs get their numbers last."""

    def __init__(self, circuit: Circuit, *, old: bool) -> None:
        self.circuit, self.old = circuit, old
        self.gates: list[tuple[str, tuple[int, ...]]] = []  # gate g drives wire inputs + g

    def _add(self, name: str, *operands: int) -> int:
        self.gates.append((name, operands))
        return self.circuit.inputs + len(self.gates) - 1

    def _constant(self, value: bool) -> int:
        if not self.old:
            return self._add("EQ", int(value))
        if not self.circuit.inputs:
            raise ParameterError("the old format has no constants without inputs; use 'fashion'")
        false = self._add("XOR", 0, 0)
        return self._add("INV", false) if value else false

    def _copy(self, wire: int) -> int:
        return self._add("INV", self._add("INV", wire)) if self.old else self._add("EQW", wire)

    def lines(self) -> tuple[list[str], int]:
        """Return a line for each gate, and the number of wires."""
        first = self.circuit.inputs
        place = list(range(first))
        for op, a, b in self.circuit.gates:
            if op == Op.OR:
                neither = self._add("AND", self._add("INV", place[a]), self._add("INV", place[b]))
                place.append(self._add("INV", neither))
            elif op == Op.NOT:
                place.append(self._add("INV", place[a]))
            elif op.operands:
                place.append(self._add(op.name, place[a], place[b]))
            else:
                place.append(self._constant(op == Op.TRUE))
        outputs: dict[int, None] = {}
        for output in self.circuit.outputs:
            wire = place[output]
            outputs[self._copy(wire) if wire < first or wire in outputs else wire] = None
        wires = first + len(self.gates)
        others = [wire for wire in range(wires) if wire not in outputs]
        final = {wire: number for number, wire in enumerate([*others, *outputs])}
        lines = []
        for wire, (name, operands) in enumerate(self.gates, first):
            read = operands if name == "EQ" else map(final.__getitem__, operands)
            lines.append(" ".join(map(str, (len(operands), 1, *read, final[wire], name))))
        return lines, wires
