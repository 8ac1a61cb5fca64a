"""The subscriber's and the broker's straight-line programs of a broadcast encoding.

Input rows of bits, in whole bytes each:

============  =========================================================================
subscriber    free random bits; select bits of value 0 of each digit; pads of all labels
              of all digits; interest bits
broker        bits of the interest message; select bits of the event's labels; their pads
============  =========================================================================
"""

from __future__ import annotations

from itertools import accumulate

from ccbps.encodings.broadcast.window_slots import Coordinate, WindowSlots, WindowTerm
from ccbps.encodings.formula.gates import GATE_ONE, Coefficient, Matrix, Vector
from ccbps.encodings.straight_line.program import WORD, StraightLine, StraightLineBuilder
from ccbps.programs.branching import ONE, ZERO, Label


def subscriber_program(slots: WindowSlots, interest_bits: int) -> StraightLine:
    """Write the program that writes interest messages."""
    return _Writer(slots, interest_bits).build()


def broker_program(slots: WindowSlots) -> StraightLine:
    """Write the program that answers."""
    select = 8 * -(-slots.bits // 8)
    pads = select + 8 * slots.select_bytes
    builder = StraightLineBuilder(pads + 8 * slots.pad_bytes * len(slots.digits))
    hots: dict[int, list[int]] = {}
    place = {digit: i for i, digit in enumerate(slots.digits)}
    for digit in slots.digits:
        hots[digit] = _hot(builder, select, slots.widths[digit])
        select += slots.widths[digit]
    for coordinate in slots.coordinates:
        hot = hots[coordinate.digit]
        if coordinate.kind == "direct":
            if len(coordinate.lines) & 1:
                builder.add(coordinate.slot, hot[1])
            continue
        pad = pads + 8 * slots.pad_bytes * place[coordinate.digit]
        builder.add(coordinate.slot, pad + coordinate.pad)
        row, count = coordinate.rows
        for q in range(count):
            builder.add(coordinate.slot, slots.slots + row + q, hot[q + 1])
            if coordinate.kind == "programmed":
                # The row that is not sent is the sum of the others.
                builder.add(coordinate.slot, slots.slots + row + q, hot[-1])
    slots.add_products(builder, range(slots.slots))
    return builder.build(0)


class _Writer:
    """Writer of the subscriber's program: random bits first, then entries, slots and rows."""

    def __init__(self, slots: WindowSlots, interest_bits: int) -> None:
        self._slots = slots
        widths = [slots.widths[digit] for digit in slots.digits]
        labels = [1 << width for width in widths]
        self._select = 8 * slots.free_bytes
        self._pads = self._select + 8 * slots.select_bytes
        self._inputs = self._pads + 8 * slots.pad_bytes * sum(labels)
        self._builder = StraightLineBuilder(self._inputs + interest_bits)
        self._sums: dict[tuple[frozenset[int], bool], int] = {}
        self._products: dict[tuple[int, ...], int] = {}
        self._random = {bit: i for i, bit in enumerate(slots.free)}
        self._first_label = dict(zip(slots.digits, accumulate(labels, initial=0), strict=False))
        self._first_select = dict(zip(slots.digits, accumulate(widths, initial=0), strict=False))

    def build(self) -> StraightLine:
        builder, slots = self._builder, self._slots
        for coordinate in slots.order:
            self._define(coordinate)
        columns = [self._entries(term) for term in slots.terms]
        words = -(-slots.bits // WORD)
        output = builder.new(WORD * words)
        for coordinate in slots.coordinates:
            self._coordinate(coordinate, columns, output)
        for rows, cs, label, targets in slots.labels:
            self._outer(rows, cs, label, targets, output)
        for (rho, s), gate in zip(slots.masks, slots.gates, strict=True):
            self._outer((GATE_ONE, *rho), s, ONE, (gate.rights, *gate.targets), output)
            for slot, bit in zip(gate.lefts, rho, strict=True):
                builder.add(output + slot, self._random[bit])
        return builder.build(output, words)

    def _value(self, label: Label) -> int | None:
        """Return the register of a sum of interest bits; None for zero."""
        if label == ZERO:
            return None
        if label == ONE:
            return self._builder.one
        if len(label.interest) == 1 and not label.one:
            return self._inputs + next(iter(label.interest))
        key = label.interest, label.one
        if key not in self._sums:
            self._sums[key] = self._builder.new()
            for bit in sorted(label.interest):
                self._builder.add(self._sums[key], self._inputs + bit)
            if label.one:
                self._builder.add(self._sums[key], self._builder.one)
        return self._sums[key]

    def _monomial(self, bits: tuple[int, ...]) -> int:
        """Return the register of a product of random bits."""
        if not bits:
            return self._builder.one
        if len(bits) == 1:
            return self._random[bits[0]]
        if bits not in self._products:
            self._products[bits] = self._builder.new()
            left, right = bits
            self._builder.add(self._products[bits], self._random[left], self._random[right])
        return self._products[bits]

    def _pad(self, coordinate: Coordinate, value: int) -> int:
        label = self._first_label[coordinate.digit] + value
        return self._pads + 8 * self._slots.pad_bytes * label + coordinate.pad

    def _define(self, coordinate: Coordinate) -> None:
        """Choose the random bit with which all lines of a coordinate sum to zero."""
        register = self._builder.new()
        for value in range(1 << self._slots.widths[coordinate.digit]):
            self._builder.add(register, self._pad(coordinate, value))
        for bits, entries, odd in self._slots.parts(coordinate):
            if bits == (coordinate.defines,):
                continue
            label = ZERO
            for entry in entries:
                label ^= entry
            total = self._value(ONE if odd else label)
            if total is not None:
                self._builder.add(register, self._monomial(bits), total)
        self._random[coordinate.defines] = register

    def _factor(self, c: Coefficient) -> int | None:
        assert c is not None
        return None if c == GATE_ONE else self._random[c]

    def _entries(self, term: WindowTerm) -> list[list[int | None]]:
        """Return the register of each entry of a term, by column and value."""
        registers = []
        for column in term.columns:
            values: list[int | None] = []
            for value in range(1 << self._slots.widths[term.digit]):
                parts = [
                    (self._factor(c), entry)
                    for c, entries, _ in column
                    if (entry := self._value(entries[value])) is not None
                ]
                if not parts:
                    values.append(None)
                elif len(parts) == 1 and parts[0][0] is None:
                    values.append(parts[0][1])
                else:
                    register = self._builder.new()
                    for factor, entry in parts:
                        self._builder.add(register, entry, factor)
                    values.append(register)
            registers.append(values)
        return registers

    def _coordinate(
        self, coordinate: Coordinate, columns: list[list[list[int | None]]], output: int
    ) -> None:
        builder = self._builder
        width = self._slots.widths[coordinate.digit]
        select = self._select + self._first_select[coordinate.digit]
        if coordinate.kind == "direct":
            for line in coordinate.lines:
                entry = columns[line.term][line.column][0]
                if entry is not None:
                    builder.add(output + coordinate.slot, entry)
            if len(coordinate.lines) & 1:
                builder.add(output + coordinate.slot, select)
            return
        lines = builder.new(1 << width)
        for value in range(1 << width):
            builder.add(lines + value, self._pad(coordinate, value))
            for line in coordinate.lines:
                entry = columns[line.term][line.column][value]
                if entry is not None:
                    builder.add(lines + value, entry, self._factor(line.row))
        # By select bits: line q is then that of the value q plus the shift.
        for bit in range(width):
            apart = 1 << bit
            for value in range(1 << width):
                if value & apart:
                    continue
                swap = builder.new(2)
                builder.add(swap, lines + value)
                builder.add(swap, lines + value + apart)
                builder.add(swap + 1, swap, select + bit)
                builder.add(lines + value, swap + 1)
                builder.add(lines + value + apart, swap + 1)
        builder.add(output + coordinate.slot, lines)
        row, count = coordinate.rows
        for q in range(count):
            place = output + self._slots.slots + row + q
            builder.add(place, lines)
            builder.add(place, lines + 1 + q)

    def _outer(
        self, rows: Vector, columns: Vector, label: Label, targets: Matrix, output: int
    ) -> None:
        """Add rows (x) columns times a label, all known to the subscriber, to slots."""
        value = self._value(label)
        if value is None:
            return
        for v, column in enumerate(columns):
            register = self._builder.new()
            self._builder.add(register, value, self._factor(column))
            for c, row in zip(rows, targets, strict=True):
                self._builder.add(output + row[v], register, self._factor(c))


def _hot(builder: StraightLineBuilder, first: int, width: int) -> list[int]:
    """Return for each number but zero the register that is set if select bits are that number."""
    if width == 1:
        return [-1, first]
    bits = []
    for i in range(width):
        inverted = builder.new()
        builder.add(inverted, first + i)
        builder.add(inverted, builder.one)
        bits.append((inverted, first + i))
    registers = [-1]
    for number in range(1, 1 << width):
        register = bits[0][number & 1]
        for i in range(1, width):
            product = builder.new()
            builder.add(product, register, bits[i][number >> i & 1])
            register = product
        registers.append(register)
    return registers
