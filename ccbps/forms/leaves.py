"""Conditions on one attribute as an encoding takes them: formulas, and private bits to fill them.

An encoding reads an event as bits (`BitLeaves`) or as digits of several bits
(`ccbps.forms.window_leaves`). Either writes a comparison, an equality and a literal as a formula
over private bits, and a condition as the private bits that make the formula say it. Private bits
are numbers with the first bit lowest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from ccbps.arrays import Words
from ccbps.forms.bits import WORD, event_words
from ccbps.predicates import Events, Schema
from ccbps.predicates.form import Form
from ccbps.programs import chains, event_bit
from ccbps.programs.formula import Formula, total


class Leaves(ABC):
    """Conditions on the attributes of a schema.

    A *chain* on an attribute is any of: code < bound, "the first bits of the code are these", and
    false. Attributes are given by their name, `first` is the number of the first private bit.

    Attributes:
        schema: the attributes.
        bits: bits of the code of each attribute.
        first_bits: number of each attribute's first bit.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.bits = schema.widths
        self.first_bits = schema.first_bits

    @abstractmethod
    def chain(self, name: str, first: int) -> Formula:
        """Write a chain."""

    @abstractmethod
    def chain_bits(self, name: str) -> int:
        """Count the private bits of a chain."""

    @abstractmethod
    def below(self, name: str, bound: int) -> int:
        """Return a chain's private bits for code < bound, 0 <= bound <= 2^k for k bits."""

    @abstractmethod
    def prefix(self, name: str, value: int, length: int) -> int:
        """Return a chain's private bits for "the first `length` bits are those of `value`"."""

    @abstractmethod
    def never(self, name: str) -> int:
        """Return a chain's private bits for false."""

    @abstractmethod
    def equality(self, name: str, first: int) -> Sequence[Formula]:
        """Write parts that all hold where the code is a private one."""

    @abstractmethod
    def equality_bits(self, name: str) -> int:
        """Count the private bits of `equality`."""

    @abstractmethod
    def equal(self, name: str, value: int) -> int:
        """Return the private bits of `equality` for a code."""

    @abstractmethod
    def each_bit(self, name: str, first: int) -> Sequence[Formula]:
        """Write, for each bit of the code, whether it differs from a private bit."""

    @abstractmethod
    def parity(self, first: int) -> Formula:
        """Write the sum of those bits of all codes whose private bit is 1."""

    @abstractmethod
    def computed(self, number: int) -> Formula:
        """Write a bit that the publisher computes of an event, by its number."""

    def interval(self, name: str, first: int) -> Formula:
        """Write low <= code <= high: the sum of two chains."""
        second = first + self.chain_bits(name)
        return total([self.chain(name, first), self.chain(name, second)])

    def within(self, name: str, low: int, high: int) -> int:
        """Return the private bits of `interval`; any empty one is as good as another.

        The sum of two comparisons is an interval only where low <= high + 1; otherwise it would
        hold for high < code < low.
        """
        if high < low:
            low, high = 0, -1
        second = self.below(name, low) << self.chain_bits(name)
        return self.below(name, high + 1) | second


class BitLeaves(Leaves):
    """Conditions on an event of bits: those of all codes, then those that are computed."""

    def chain(self, name: str, first: int) -> Formula:
        return chains.chain(self.first_bits[name], self.bits[name], first)

    def interval(self, name: str, first: int) -> Formula:
        return chains.interval(self.first_bits[name], self.bits[name], first)

    def chain_bits(self, name: str) -> int:
        return chains.chain_bits(self.bits[name])

    def below(self, name: str, bound: int) -> int:
        return chains.below_bits(self.bits[name], bound)

    def prefix(self, name: str, value: int, length: int) -> int:
        return chains.prefix_bits(self.bits[name], value, length)

    def never(self, name: str) -> int:
        return 0

    def equality(self, name: str, first: int) -> Sequence[Formula]:
        return chains.equalities(self.first_bits[name], self.bits[name], first)

    def equality_bits(self, name: str) -> int:
        return self.bits[name]

    def equal(self, name: str, value: int) -> int:
        return chains.reversed_bits(value, self.bits[name])

    def each_bit(self, name: str, first: int) -> Sequence[Formula]:
        return chains.differences(self.first_bits[name], self.bits[name], first)

    def parity(self, first: int) -> Formula:
        return chains.parity(self.schema.bits, first)

    def computed(self, number: int) -> Formula:
        return event_bit(self.schema.bits + number)


def event_rows(schema: Schema, public: Sequence[Form], events: Events) -> Words:
    """Return packed bits of events, shape (count, words); bits that are computed come last."""
    words = event_words(events)
    bits = schema.bits + len(public)
    out = np.zeros((events.count, max(1, -(-bits // WORD))), dtype=np.uint64)
    out[:, : len(words)] = words.T
    for i, form in enumerate(public):
        word, bit = divmod(schema.bits + i, WORD)
        out[:, word] |= form.evaluate(events).astype(np.uint64) << np.uint64(bit)
    return out
