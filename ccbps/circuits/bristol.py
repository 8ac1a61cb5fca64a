"""Bristol Fashion and the older Bristol Format: circuits as text, in and out.

Both list gates, one per line, after a header:

=====================  =========================================================================
Bristol Fashion        gates wires / inputs n_1 n_2 ... / outputs m_1 m_2 ... ; gates AND, XOR,
                       INV (or NOT), EQ (a constant), EQW (a copy), MAND (several ANDs)
Bristol Format (old)   gates wires / n_1 n_2 m ; gates AND, XOR, INV
=====================  =========================================================================

The first wires are the inputs, value after value, the last wires the outputs. `loads` tells the two
apart by the third line. Neither has OR: `dumps` writes ~(~a & ~b), whose depth is the same.

Convention: *within a value the least significant wire comes first*, in the files and therefore in
the `Circuit` of a `BristolCircuit`. Blocks and matchers take the most significant bit first:
`BristolCircuit.most_significant_first` is the circuit in their order, `BristolCircuit.from_blocks`
the way back, and `BristolCircuit.integers` works on integers. `PublicFunctionMatch` takes the
`BristolCircuit` itself.

Hazard: `BristolCircuit.circuit` where the other order is wanted is a circuit of the right size that
computes something else.

Source: [BF]; header, gates and MAND as described there and in SCALE-MAMBA's documentation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from ccbps.circuits.circuit import Circuit, Gate, Op
from ccbps.errors import DecodeError, ParameterError

_GATES = {"AND": Op.AND, "XOR": Op.XOR, "INV": Op.NOT, "NOT": Op.NOT}
# Every other wire has a line of its own; inputs are a number in the header, which may be anything.
_MOST_INPUTS = 1 << 20


@dataclass(frozen=True)
class BristolCircuit:
    """A circuit and how its wires group into values.

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
        """A circuit whose values have the most significant bit first, in the files' order.

        Args:
            circuit: as blocks of this package make it.
            input_widths, output_widths: bits of each value.

        Raises:
            ParameterError: the widths do not add up to the circuit's inputs and outputs.
        """
        turned = cls(circuit, tuple(input_widths), tuple(output_widths))
        return cls(turned.most_significant_first(), turned.input_widths, turned.output_widths)

    def most_significant_first(self) -> Circuit:
        """The circuit with the wires of each value, in and out, in the opposite order.

        Blocks of this package and matchers take them like this.
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
        """The function on unsigned integers, many at a time.

        Args:
            values: for each input value the integers, all of one length.

        Returns:
            For each output value the integers.

        Raises:
            ParameterError: not one sequence for each input value, lengths differ, or an integer
                does not fit its width.
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
                raise ParameterError(f"input value {place} takes integers of {width} bits")
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
    """Where each wire goes when every value is turned around; its own inverse."""
    places: list[int] = []
    for width in widths:
        start = len(places)
        places.extend(range(start + width - 1, start - 1, -1))
    return places


def load(path: str | os.PathLike[str]) -> BristolCircuit:
    """Read a file of either format; see `loads`."""
    try:
        text = Path(path).read_text(encoding="ascii")
    except UnicodeDecodeError:
        raise DecodeError("a Bristol circuit is ASCII text, and this file is not") from None
    return loads(text)


def loads(text: str) -> BristolCircuit:
    """Read a circuit of either format.

    Constants become FALSE and TRUE gates, copies disappear, a MAND becomes its ANDs. Gates keep
    their order, so wires are numbered anew.

    Raises:
        DecodeError: the text is not a circuit; names the line and what was wanted there.
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
    seen = 0
    for number, words in body:
        seen += 1
        if seen > gate_count:
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
    if seen < gate_count:
        raise _error(number + 1, f"{gate_count} gates", [f"the end after {seen}"])
    for wire in range(last, wire_count):
        if wire not in place:
            raise _error(number, f"a gate for output wire {wire}", ["the end"])
    circuit = Circuit(first, tuple(gates), tuple(place[w] for w in range(last, wire_count)))
    return BristolCircuit(circuit, inputs, outputs)


Line = tuple[int, list[str]]


def _lines(text: str) -> Iterator[Line]:
    """Numbers, from 1, and words of the lines that are not blank."""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if words:
            yield number, words


def _error(number: int, wanted: str, got: list[str]) -> DecodeError:
    shown = " ".join(got)
    shown = shown if len(shown) <= 40 else shown[:40] + "..."
    return DecodeError(f"line {number}: expected {wanted}" + (f", got {shown!r}" if got else ""))


def _numbers(number: int, words: list[str], count: int, wanted: str) -> list[int]:
    # str.isdigit is also true of digits that int() refuses, and int() takes signs and underscores.
    if len(words) != count or not all(word.isascii() and word.isdigit() for word in words):
        raise _error(number, wanted, words or ["the end"])
    if any(len(word) > 18 for word in words):
        raise _error(number, "smaller numbers", words)
    return [int(word) for word in words]


def _header(lines: Iterator[Line]) -> tuple[tuple[int, ...], tuple[int, ...], Iterator[Line], int]:
    """(input widths, output widths, the lines after the header, the header's last line)."""
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
    return (n_1, n_2), (m,), _chain(third, lines), number


def _chain(first: Line | None, rest: Iterator[Line]) -> Iterator[Line]:
    if first is not None:
        yield first
    yield from rest


def _widths(number: int, words: list[str], kind: str) -> tuple[int, ...]:
    wanted = f"the number of {kind} values and the width of each"
    values = _numbers(number, words, len(words), wanted)
    if values[0] != len(values) - 1:
        raise _error(number, wanted, words)
    return tuple(values[1:])


def _gate(number: int, words: list[str]) -> list[tuple[Op | None, list[int], int]]:
    """One line as (operation, operands, wire) of each of its gates; no operation for a copy."""
    name = words[-1]
    if len(words) < 4:
        raise _error(number, "a gate", words)
    known = _numbers(number, words[:-1], len(words) - 1, "a gate's numbers before its name")
    ins, outs, wires = known[0], known[1], known[2:]
    if name == "MAND":
        if not outs or ins != 2 * outs or len(wires) != ins + outs:
            raise _error(number, "2n inputs and n outputs of MAND", words)
        # The i-th input of the first half goes with the i-th of the second.
        return [(Op.AND, [wires[i], wires[outs + i]], wires[ins + i]) for i in range(outs)]
    if name not in _GATES and name not in ("EQ", "EQW"):
        raise _error(number, "AND, XOR, INV, NOT, EQ, EQW or MAND", [name])
    wanted = 2 if name in ("AND", "XOR") else 1
    if (ins, outs) != (wanted, 1) or len(wires) != wanted + 1:
        raise _error(number, f"{wanted} inputs and 1 output of {name}", words)
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
    """The circuit as text. Reading it gives the same circuit, except for OR (see above), and in the
    old format for constants and for outputs that are inputs, or the same wire twice.

    Args:
        circuit: with its values, or without. Wires are written in the order they have: for one
            that has the most significant bits first, pass `BristolCircuit.from_blocks`.
        input_widths: bits of each input value; default one value. Not with a `BristolCircuit`.
        output_widths: bits of each output value, likewise.
        style: "fashion", or "format" for the old one: at most two input values, one output value.

    Raises:
        ParameterError: widths or style are not as above; the old format cannot write a constant of
            a circuit that has no input.
    """
    if style not in ("fashion", "format"):
        raise ParameterError(f"style must be 'fashion' or 'format', got {style!r}")
    if isinstance(circuit, BristolCircuit):
        if input_widths is not None or output_widths is not None:
            raise ParameterError("a BristolCircuit has its widths; leave the arguments out")
        whole = circuit
    else:
        n, m = circuit.inputs, len(circuit.outputs)
        whole = BristolCircuit(
            circuit,
            (n,) if input_widths is None else tuple(input_widths),
            (m,) if output_widths is None else tuple(output_widths),
        )
    ins, outs = whole.input_widths, whole.output_widths
    if style == "format" and (len(ins) > 2 or len(outs) != 1):
        raise ParameterError(
            "the old format has at most 2 input values and 1 output value, "
            f"got {len(ins)} and {len(outs)}; use style='fashion'"
        )
    lines, wires = _Writer(whole.circuit, old=style == "format").lines()
    header = [f"{len(lines)} {wires}"]
    if style == "format":
        header.append(" ".join(str(width) for width in (*ins, 0, 0)[:2]) + f" {outs[0]}")
    else:
        header += [" ".join(map(str, (len(widths), *widths))) for widths in (ins, outs)]
    return "\n".join([*header, "", *lines]) + "\n"


class _Writer:
    """Gates in the file's vocabulary; the wires of the outputs get their numbers last."""

    def __init__(self, circuit: Circuit, *, old: bool) -> None:
        self.circuit, self.old = circuit, old
        self.gates: list[tuple[str, list[int]]] = []  # of wire inputs + g

    def _add(self, name: str, *operands: int) -> int:
        self.gates.append((name, list(operands)))
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
        """(one line for each gate, number of wires)"""
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
            read = operands if name == "EQ" else [final[operand] for operand in operands]
            lines.append(" ".join(map(str, (len(read), 1, *read, final[wire], name))))
        return lines, wires
