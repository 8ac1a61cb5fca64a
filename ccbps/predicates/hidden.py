"""Hidden trees: a predicate as a full binary tree of public depth, all else in it private.

A tree of depth d has 2^d - 1 nodes and 2^d leaves, whatever the predicate. A node negates or not
the AND or the OR of its two children. Leaves are of one kind; each says something of an event, or
its opposite:

=============  ==================================================================================
kind           content of a leaf
=============  ==================================================================================
``literal``    one bit of the event is set
``compare``    one attribute: its code is below a bound, or starts with some bits (all: equality)
``interval``   one attribute: its code is in a range
``box``        any number of attributes: the code of each is in its range
=============  ==================================================================================

Each kind has the constants, too: they fill up the leaves that a predicate does not need.

Not protected: a tree is the subscription itself. No repr shows its contents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ccbps.arrays import Bools
from ccbps.errors import ParameterError
from ccbps.predicates.attributes import Events
from ccbps.predicates.codes import conjunction, in_range


class _Hidden:
    """A repr without contents."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


@dataclass(frozen=True, slots=True, repr=False)
class TreeNode(_Hidden):
    """A node: the OR of its two children if `either`, else their AND; inverted if `negated`."""

    either: bool
    negated: bool


@dataclass(frozen=True, slots=True, repr=False)
class LiteralLeaf(_Hidden):
    """A leaf of kind ``literal``: one bit of the event is set.

    Attributes:
        negated: whether the truth value is inverted.
        bit: number of the bit among the codes of all attributes in schema order, most significant
            bit first; None for the constant `negated`.
    """

    negated: bool
    bit: int | None

    def evaluate(self, events: Events) -> Bools:
        """Evaluate the leaf for every event, shape (count,)."""
        if self.bit is None:
            return np.full(events.count, self.negated, dtype=np.bool_)
        for name, first in reversed(events.schema.first_bits.items()):
            place = events.schema[name].bits - 1 - (self.bit - first)
            if self.bit >= first and place >= 0:
                word = events.codes[name][-1 - place // 64] >> np.uint64(place % 64)
                return np.asarray(word & np.uint64(1) != self.negated, dtype=np.bool_)
        raise ParameterError(f"a leaf's bit is beyond the {events.schema.bits} bits of the events")


@dataclass(frozen=True, slots=True, repr=False)
class RangeLeaf(_Hidden):
    """A leaf of another kind: the code of every attribute named is in its range.

    Attributes:
        negated: whether the truth value is inverted; without ranges this is false everywhere.
        ranges: (low, high), bounds included and never empty; other attributes are unlimited. Of
            kind ``compare``, a range begins at 0 or is a `block`.
    """

    negated: bool
    ranges: Mapping[str, tuple[int, int]]

    def evaluate(self, events: Events) -> Bools:
        """Evaluate the leaf for every event, shape (count,)."""
        everywhere = np.ones(events.count, dtype=np.bool_)
        inside = [in_range(events.codes[name], *pair) for name, pair in self.ranges.items()]
        return conjunction([everywhere, *inside]) ^ np.bool_(self.negated)


AnyLeaf: TypeAlias = LiteralLeaf | RangeLeaf


def block(low: int, high: int) -> int | None:
    """Count the last bits that are free in a range of all codes of one prefix; None for others."""
    size = high - low + 1
    return None if size & (size - 1) or low % size else size.bit_length() - 1


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
        """Evaluate the tree for every event, shape (count,)."""
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
