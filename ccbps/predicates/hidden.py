"""Hidden trees: a predicate as a full binary tree of public depth, all else in it private.

A tree of depth d has 2^d - 1 nodes and 2^d leaves, whatever the predicate. A node negates or not
the AND or the OR of its two children; leaves are of one kind:

=============  ==================================================================================
kind           what a leaf says, negated or not
=============  ==================================================================================
``literal``    one bit of the event
``compare``    one attribute: its code is below a bound, or starts with some bits (all: equality)
``interval``   one attribute: its code is in a range
``box``        any number of attributes: the code of each is in its range
=============  ==================================================================================

Each kind has the constants, too: they fill up the leaves that a predicate does not need.

Not protected: a tree is the subscription itself. No repr shows what is in it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ccbps.arrays import Bools
from ccbps.errors import ParameterError
from ccbps.predicates.attributes import Events
from ccbps.predicates.codes import at_most, conjunction, in_range


class _Hidden:
    """A repr without contents."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


@dataclass(frozen=True, slots=True, repr=False)
class TreeNode(_Hidden):
    """negated XOR (a OR b if `either`, else a AND b), of the two children."""

    either: bool
    negated: bool


class Leaf(_Hidden, ABC):
    """A condition on an event, or a constant."""

    __slots__ = ()

    @abstractmethod
    def evaluate(self, events: Events) -> Bools:
        """Its truth for every event, shape (count,)."""


@dataclass(frozen=True, slots=True, repr=False)
class LiteralLeaf(Leaf):
    """negated XOR one bit of the event; without a bit, the constant `negated`.

    Attributes:
        negated: whether the truth value is inverted.
        bit: its number: codes of all attributes in schema order, most significant bit first.
    """

    negated: bool
    bit: int | None

    def evaluate(self, events: Events) -> Bools:
        if self.bit is None:
            return _constant(events, self.negated)
        place = self.bit
        for name in events.schema:
            bits = events.schema[name].bits
            if place < bits:
                limb, shift = divmod(bits - 1 - place, 64)
                word = events.codes[name][-1 - limb] >> np.uint64(shift)
                return np.asarray(word & np.uint64(1) != self.negated, dtype=np.bool_)
            place -= bits
        raise ParameterError(f"a leaf's bit is beyond the {events.schema.bits} bits of the events")


@dataclass(frozen=True, slots=True, repr=False)
class Below(_Hidden):
    """code < bound, with a bound of 0..2^k for k bits."""

    bound: int


@dataclass(frozen=True, slots=True, repr=False)
class Prefix(_Hidden):
    """The first `length` bits of the code, 0..k, are those of `value`, whose other bits are 0."""

    value: int
    length: int


@dataclass(frozen=True, slots=True, repr=False)
class CompareLeaf(Leaf):
    """negated XOR a condition on one attribute; without one, the constant `negated`.

    Attributes:
        negated: whether the truth value is inverted.
        attribute: its name, or None for the constant.
        condition: on its code; None for the constant.
    """

    negated: bool
    attribute: str | None
    condition: Below | Prefix | None

    def evaluate(self, events: Events) -> Bools:
        if self.attribute is None or self.condition is None:
            return _constant(events, self.negated)
        codes = events.codes[self.attribute]
        if isinstance(self.condition, Below):
            return at_most(codes, self.condition.bound - 1) ^ np.bool_(self.negated)
        low, free = self.condition.value, events.schema[self.attribute].bits - self.condition.length
        return in_range(codes, low, low + (1 << free) - 1) ^ np.bool_(self.negated)


@dataclass(frozen=True, slots=True, repr=False)
class IntervalLeaf(Leaf):
    """negated XOR low <= code <= high on one attribute; without one, the constant `negated`.

    Attributes:
        negated: whether the truth value is inverted.
        attribute: its name, or None for the constant.
        low: least code inside; 1 for the constant.
        high: greatest code inside; 0 for the constant.
    """

    negated: bool
    attribute: str | None
    low: int
    high: int

    def evaluate(self, events: Events) -> Bools:
        if self.attribute is None:
            return _constant(events, self.negated)
        inside = in_range(events.codes[self.attribute], self.low, self.high)
        return inside ^ np.bool_(self.negated)


@dataclass(frozen=True, slots=True, repr=False)
class BoxLeaf(Leaf):
    """negated XOR (the code of every attribute named is in its range).

    Attributes:
        negated: whether the truth value is inverted; without ranges this is false everywhere.
        ranges: (low, high), bounds included and never empty; other attributes are unlimited.
    """

    negated: bool
    ranges: Mapping[str, tuple[int, int]]

    def evaluate(self, events: Events) -> Bools:
        inside = [
            in_range(events.codes[name], low, high) for name, (low, high) in self.ranges.items()
        ]
        return conjunction([_constant(events, True), *inside]) ^ np.bool_(self.negated)


AnyLeaf: TypeAlias = LiteralLeaf | CompareLeaf | IntervalLeaf | BoxLeaf


@dataclass(frozen=True, slots=True, repr=False)
class HiddenTree:
    """A full binary tree of public depth; nodes in heap order, so that it needs no links.

    Attributes:
        depth: d, levels of nodes.
        nodes: 2^d - 1 of them; node i has children 2 i + 1 and 2 i + 2.
        leaves: 2^d of them, left to right, of one kind; leaf j stands at place 2^d - 1 + j.
    """

    depth: int
    nodes: tuple[TreeNode, ...]
    leaves: tuple[AnyLeaf, ...]

    def __post_init__(self) -> None:
        if self.depth < 0 or len(self.leaves) != 1 << self.depth:
            raise ParameterError("leaves must be 2^depth")
        if len(self.nodes) != len(self.leaves) - 1:
            raise ParameterError("nodes must be 2^depth - 1")
        if len({type(leaf) for leaf in self.leaves}) != 1:
            raise ParameterError("leaves must be of one kind")

    def __repr__(self) -> str:
        return f"<HiddenTree: depth {self.depth}>"

    def evaluate(self, events: Events) -> Bools:
        """Truth of the tree for every event, shape (count,)."""
        values = [leaf.evaluate(events) for leaf in self.leaves]
        for level in range(self.depth - 1, -1, -1):
            first = (1 << level) - 1
            values = [
                ((a | b) if node.either else (a & b)) ^ np.bool_(node.negated)
                for node, a, b in zip(
                    self.nodes[first : 2 * first + 1], values[::2], values[1::2], strict=True
                )
            ]
        return values[0]


def _constant(events: Events, value: bool) -> Bools:
    return np.full(events.count, value, dtype=np.bool_)
