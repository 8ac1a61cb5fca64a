"""Conditions on one attribute as an encoding takes them: formulas, and private bits to fill them.

An encoding reads an event as bits (`Leaves`) or as digits, which are windows of several bits
(`WindowLeaves`). Either writes a comparison, an equality and a literal as a formula over private
bits, and a condition as values of these bits. Private bits are numbers with the first bit lowest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bytes
from ccbps.forms.bits import WORD, code_bits, reversed_bits
from ccbps.predicates import Events, Schema
from ccbps.predicates.form import Form
from ccbps.programs.branching import ONE, ZERO, Label, differences, event_bit, interest_bit
from ccbps.programs.formula import And, Chain, Formula, Lookup, Scan, negation, total


class Leaves:
    """Conditions on an event of bits: those of all codes, then those that are computed.

    A *chain* on an attribute is any of: code < bound, "the first bits of the code are these", and
    false. Attributes are given by their name, `first` is the number of the first private bit.

    The bits of a chain on k bits, from its first one on: the k - 1 first bits of the bound or the
    prefix, inverted; the k - 1 first addends; the last map's slope and offset. Both blocks have the
    most significant bit first.

    Attributes:
        schema: the attributes.
        bits: bits of the code of each attribute.
        first_bits: number of each attribute's first bit.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.bits = schema.widths
        self.first_bits = schema.first_bits

    def chain(self, name: str, first: int) -> Formula:
        """Write a chain."""
        return Chain.over(self.first_bits[name], self.bits[name], first)

    def chain_bits(self, name: str) -> int:
        """Count the private bits of a chain."""
        return 2 * self.bits[name]

    def below(self, name: str, bound: int) -> int:
        """Return a chain's private bits for code < bound, 0 <= bound <= 2^k for k bits."""
        bits = self.bits[name]
        if bound >> bits:
            # Always true: the first addend is 1, and all others are 0.
            return 1 << (bits - 1 if bits > 1 else 1)
        return self._chain_row(bits, bound, bound ^ bound >> 1, bool(bound & 1))

    def prefix(self, name: str, value: int, length: int) -> int:
        """Return a chain's private bits for "the first `length` bits are those of `value`"."""
        bits = self.bits[name]
        addends = 0 if length == bits else 1 << (bits - 1 - length)
        return self._chain_row(bits, value, addends, length == bits)

    @staticmethod
    def _chain_row(bits: int, value: int, addends: int, slope: bool) -> int:
        """Return a chain's bits for a number, k addends (first one highest) and the last slope."""
        last = not value & 1 and slope
        offset = bool(addends & 1) ^ last
        different = (~value & (1 << bits) - 1) >> 1
        in_order = (different << (bits - 1) | addends >> 1) << 2 | slope << 1 | offset
        return reversed_bits(in_order, 2 * bits)

    def never(self, name: str) -> int:
        """Return a chain's private bits for false."""
        return 0

    def equality(self, name: str, first: int) -> Sequence[Formula]:
        """Write parts that all hold where the code is a private one."""
        return [negation(part) for part in self.each_bit(name, first)]

    def equality_bits(self, name: str) -> int:
        """Count the private bits of `equality`."""
        return self.bits[name]

    def equal(self, name: str, value: int) -> int:
        """Return the private bits of `equality` for a code."""
        return reversed_bits(value, self.bits[name])

    def each_bit(self, name: str, first: int) -> Sequence[Formula]:
        """Write, for each bit of the code, whether it differs from a private bit."""
        return differences(self.first_bits[name], self.bits[name], first)

    def parity(self, first: int) -> Formula:
        """Write the sum of those bits of all codes whose private bit is 1."""
        bits = range(self.schema.bits)
        return total([And(event_bit(i), interest_bit(first + i)) for i in bits])

    def computed(self, number: int) -> Formula:
        """Write a bit that the publisher computes of an event, by its number."""
        return event_bit(self.schema.bits + number)

    def interval(self, name: str, first: int) -> Formula:
        """Write low <= code <= high: the sum of two chains."""
        second = first + self.chain_bits(name)
        return total([self.chain(name, first), self.chain(name, second)])

    def within(self, name: str, low: int, high: int) -> int:
        """Return the private bits of `interval`; all empty intervals have the same bits.

        The sum of two comparisons is an interval only where low <= high + 1; otherwise it would
        hold for high < code < low.
        """
        if high < low:
            low, high = 0, -1
        second = self.below(name, low) << self.chain_bits(name)
        return self.below(name, high + 1) | second


class WindowLeaves(Leaves):
    """Conditions on an event of digits: windows of each code, first bits first; then computed bits.

    A digit of w bits has 2^w values. In a comparison, a digit has two tables of private bits: one
    marks the equal value, the other the smaller values. In an equality it has the first only.

    Args:
        schema: the attributes.
        window: bits of a digit; the last one of a code may be shorter.
    """

    def __init__(self, schema: Schema, window: int) -> None:
        super().__init__(schema)
        self.window = window
        # Of each attribute its first digit and the digits' bits.
        self._digits: dict[str, tuple[int, list[int]]] = {}
        count = 0
        for name, bits in self.bits.items():
            widths = [min(window, bits - i) for i in range(0, bits, window)]
            self._digits[name] = count, widths
            count += len(widths)
        self.code_digits = count

    def widths(self, computed: int) -> list[int]:
        """List the bits of every digit, where the publisher computes so many further bits."""
        return [w for _, widths in self._digits.values() for w in widths] + [1] * computed

    def positions(self, digits: Sequence[int]) -> NDArray[np.intp]:
        """Find the bits of some digits among those that `digit_values` reads, the lowest last.

        Returns:
            positions, shape (window, digits). The first bits of a digit that has fewer are at 0,
            where a zero stands.
        """
        out = np.zeros((self.window, len(digits)), dtype=np.intp)
        starts: list[tuple[int, int]] = []
        limbs = 1
        for name, bits in self.bits.items():
            limbs += -(-bits // WORD)
            first = WORD * limbs - bits
            for width in self._digits[name][1]:
                starts.append((first, width))
                first += width
        for i, digit in enumerate(digits):
            if digit < self.code_digits:
                first, width = starts[digit]
            else:
                first, width = WORD * limbs + digit - self.code_digits, 1
            out[self.window - width :, i] = np.arange(first, first + width)
        return out

    def chain(self, name: str, first: int) -> Formula:
        digit, widths = self._digits[name]
        steps = []
        for i, width in enumerate(widths):
            equal: tuple[Label, ...] = ()
            if i + 1 < len(widths):
                equal = _table(first, width)
                first += 1 << width
            steps.append((digit + i, equal, _table(first, width)))
            first += 1 << width
        return Scan(tuple(steps))

    def chain_bits(self, name: str) -> int:
        _, widths = self._digits[name]
        return sum(2 << width for width in widths) - (1 << widths[-1])

    def below(self, name: str, bound: int) -> int:
        if bound >> self.bits[name]:
            return self.prefix(name, 0, 0)
        return self._tables(name, [(digit, (1 << digit) - 1) for digit in self._cut(name, bound)])

    def prefix(self, name: str, value: int, length: int) -> int:
        _, widths = self._digits[name]
        tables = []
        for i, (digit, width) in enumerate(zip(self._cut(name, value), widths, strict=True)):
            left = length - sum(widths[:i])
            if left >= width and i + 1 < len(widths):
                tables.append((digit, 0))
            elif left < 0:
                tables.append((0, 0))
            else:
                free = max(0, width - left)
                start = digit >> free << free
                tables.append((0, ((1 << (1 << free)) - 1) << start))
                length = -1
        return self._tables(name, tables)

    def never(self, name: str) -> int:
        return self._tables(name, [(0, 0)] * len(self._digits[name][1]))

    def equality(self, name: str, first: int) -> list[Formula]:
        digit, widths = self._digits[name]
        parts: list[Formula] = []
        for i, width in enumerate(widths):
            parts.append(Lookup(digit + i, _table(first, width), odd=True))
            first += 1 << width
        return parts

    def equality_bits(self, name: str) -> int:
        return sum(1 << width for width in self._digits[name][1])

    def equal(self, name: str, value: int) -> int:
        out = first = 0
        for digit, width in zip(self._cut(name, value), self._digits[name][1], strict=True):
            out |= 1 << first + digit
            first += 1 << width
        return out

    def each_bit(self, name: str, first: int) -> list[Formula]:
        digit, widths = self._digits[name]
        parts: list[Formula] = []
        for i, width in enumerate(widths):
            for bit in reversed(range(width)):
                private = interest_bit(first + len(parts))
                entries = tuple(
                    private ^ (ONE if v >> bit & 1 else ZERO) for v in range(1 << width)
                )
                parts.append(Lookup(digit + i, entries, odd=width == 1))
        return parts

    def parity(self, first: int) -> Formula:
        parts = []
        for digit, width in enumerate(self.widths(0)):
            entries = []
            for value in range(1 << width):
                entry = ZERO
                for i in range(width):
                    if value >> (width - 1 - i) & 1:
                        entry ^= interest_bit(first + i)
                entries.append(entry)
            parts.append(Lookup(digit, tuple(entries), odd=False))
            first += width
        return total(parts)

    def computed(self, number: int) -> Formula:
        return Lookup(self.code_digits + number, (ZERO, ONE), odd=True)

    def _cut(self, name: str, value: int) -> list[int]:
        """Cut a code into digits."""
        digits, shift = [], self.bits[name]
        for width in self._digits[name][1]:
            shift -= width
            digits.append(value >> shift & ((1 << width) - 1))
        return digits

    def _tables(self, name: str, tables: list[tuple[int, int]]) -> int:
        """Join a chain's private bits: of each digit the equal value, and a table of others."""
        out = first = 0
        widths = self._digits[name][1]
        for i, ((equal, others), width) in enumerate(zip(tables, widths, strict=True)):
            if i + 1 < len(widths):
                out |= 1 << first + equal
                first += 1 << width
            out |= others << first
            first += 1 << width
        return out


def _table(first: int, width: int) -> tuple[Label, ...]:
    return tuple(interest_bit(first + value) for value in range(1 << width))


def digit_values(events: Events, public: Sequence[Form], positions: NDArray[np.intp]) -> Bytes:
    """Compute the digits of events, shape (count, digits), uint8.

    Args:
        events: encoded by the schema.
        public: conditions that the publisher computes, a bit each.
        positions: `WindowLeaves.positions`.
    """
    bits = code_bits(events)
    if public:
        computed = np.stack([form.evaluate(events) for form in public], axis=1)
        bits = np.concatenate([bits, computed.view(np.uint8)], axis=1)
    value: Bytes = bits[:, positions[0]]
    for places in positions[1:]:
        value <<= 1
        value |= bits[:, places]
    return value
