"""How an encoding takes conditions on one attribute: formulas, and the private bits that fill them.

An encoding reads an event as bits (`BitLeaves`) or as digits of several bits
(`ccbps.forms.window_leaves`). Either says how a comparison, an equality and a literal are written
as a formula over private bits, and which private bits make it the condition that is wanted.
Private bits are numbers with the first bit lowest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from ccbps.arrays import Words
from ccbps.forms import chains
from ccbps.forms.bits import WORD, event_words, first_bits
from ccbps.predicates import Events, Schema
from ccbps.predicates.form import Form
from ccbps.programs import ONE, event_bit, interest_bit
from ccbps.programs.formula import And, Formula, total


class Leaves(ABC):
    """Conditions on the attributes of a schema.

    A *chain* on an attribute is any of: code < bound, "the first bits of the code are these", and
    false. Attributes are given by their name, `first` is the number of the first private bit.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.first_bits = first_bits(schema)

    @abstractmethod
    def chain(self, name: str, first: int) -> Formula:
        """A chain."""

    @abstractmethod
    def chain_bits(self, name: str) -> int:
        """Private bits of a chain."""

    @abstractmethod
    def below(self, name: str, bound: int) -> int:
        """A chain's private bits for code < bound, 0 <= bound <= 2^k for k bits."""

    @abstractmethod
    def prefix(self, name: str, value: int, length: int) -> int:
        """A chain's private bits for "the first `length` bits are those of `value`"."""

    @abstractmethod
    def never(self, name: str) -> int:
        """A chain's private bits for false."""

    @abstractmethod
    def equality(self, name: str, first: int) -> list[Formula]:
        """Parts that all hold where the code is a private one."""

    @abstractmethod
    def equality_bits(self, name: str) -> int:
        """Private bits of `equality`."""

    @abstractmethod
    def equal(self, name: str, value: int) -> int:
        """Private bits of `equality` for a code."""

    @abstractmethod
    def each_bit(self, name: str, first: int) -> list[Formula]:
        """For each bit of the code whether it differs from a private bit."""

    @abstractmethod
    def parity(self, first: int) -> Formula:
        """The sum of those bits of all codes whose private bit is 1."""

    @abstractmethod
    def computed(self, number: int) -> Formula:
        """A bit that the publisher computes of an event, by its number."""

    def interval(self, name: str, first: int) -> Formula:
        """low <= code <= high: the sum of two chains."""
        second = first + self.chain_bits(name)
        return total([self.chain(name, first), self.chain(name, second)])

    def within(self, name: str, low: int, high: int) -> int:
        """Private bits of `interval`; any empty one is as good as another.

        The sum of two comparisons is an interval only where low <= high + 1; otherwise it would
        hold for high < code < low.
        """
        if high < low:
            low, high = 0, -1
        second = self.below(name, low) << self.chain_bits(name)
        return self.below(name, high + 1) | second


class BitLeaves(Leaves):
    """For an event of bits: those of all codes, then those that the publisher computes."""

    def chain(self, name: str, first: int) -> Formula:
        """See `Leaves.chain`."""
        return chains.chain(self.first_bits[name], self.schema[name].bits, first)

    def chain_bits(self, name: str) -> int:
        """See `Leaves.chain_bits`."""
        return chains.chain_bits(self.schema[name].bits)

    def below(self, name: str, bound: int) -> int:
        """See `Leaves.below`."""
        return chains.below_bits(self.schema[name].bits, bound)

    def prefix(self, name: str, value: int, length: int) -> int:
        """See `Leaves.prefix`."""
        return chains.prefix_bits(self.schema[name].bits, value, length)

    def never(self, name: str) -> int:
        """See `Leaves.never`."""
        return 0

    def equality(self, name: str, first: int) -> list[Formula]:
        """See `Leaves.equality`."""
        return [total([different, ONE]) for different in self.each_bit(name, first)]

    def equality_bits(self, name: str) -> int:
        """See `Leaves.equality_bits`."""
        return self.schema[name].bits

    def equal(self, name: str, value: int) -> int:
        """See `Leaves.equal`."""
        return chains.reversed_bits(value, self.schema[name].bits)

    def each_bit(self, name: str, first: int) -> list[Formula]:
        """See `Leaves.each_bit`."""
        start = self.first_bits[name]
        count = self.schema[name].bits
        return [event_bit(start + i) ^ interest_bit(first + i) for i in range(count)]

    def parity(self, first: int) -> Formula:
        """See `Leaves.parity`."""
        count = self.schema.bits
        return total([And(event_bit(i), interest_bit(first + i)) for i in range(count)])

    def computed(self, number: int) -> Formula:
        """See `Leaves.computed`."""
        return event_bit(self.schema.bits + number)


def event_rows(schema: Schema, public: Sequence[Form], events: Events) -> Words:
    """Packed bits of events, those of forms that the publisher computes last: (count, words)."""
    words = event_words(events)
    bits = schema.bits + len(public)
    out = np.zeros((events.count, max(1, -(-bits // WORD))), dtype=np.uint64)
    out[:, : len(words)] = words.T
    for i, form in enumerate(public):
        word, bit = divmod(schema.bits + i, WORD)
        out[:, word] |= form.evaluate(events).astype(np.uint64) << np.uint64(bit)
    return out
