"""Hidden formulas: a full binary tree of public depth, in which everything else is private bits.

A node is negated XOR (t XOR (a XOR t) AND (b XOR t)): an AND for t = 0, an OR for t = 1. Leaves of
one kind each hold what any leaf of that kind may be (`ccbps.predicates.hidden`):

=============  =========================================================  =========================
kind           formula                                                    private bits
=============  =========================================================  =========================
``literal``    negated XOR a sum of event bits, each times a private bit  1 + B for B event bits
``compare``    negated XOR one chain for each attribute                   1 + those of the chains
``interval``   negated XOR two chains for each attribute                  1 + those of the chains
``box``        negated XOR the AND of an interval on each attribute       1 + those of the chains
=============  =========================================================  =========================

Chains of attributes that a leaf does not use say false, or (in a box) intervals are full.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ccbps.arrays import Words
from ccbps.forms.formula import as_row
from ccbps.forms.leaves import Leaves, event_rows
from ccbps.predicates import Events
from ccbps.predicates.form import Form
from ccbps.predicates.hidden import (
    Below,
    BoxLeaf,
    CompareLeaf,
    HiddenTree,
    IntervalLeaf,
    Leaf,
    LiteralLeaf,
)
from ccbps.predicates.hiding import LeafKind
from ccbps.programs import interest_bit
from ccbps.programs.formula import And, Formula, conjunction, total

NODE_BITS: Final = 2
"""Private bits of a node: t, and whether it is negated."""


class HiddenForm:
    """The formula of a hidden tree, and how to fill both parties' bits; as `FormulaForm`.

    Attributes:
        leaves: how the encoding takes conditions.
        depth: levels of nodes.
        kind: kind of leaves.
        formula: the formula.
        event_bits: bits of the event's input.
        private_bits: bits of the interest's input: those of nodes, in heap order, then of leaves.
    """

    def __init__(self, leaves: Leaves, depth: int, kind: LeafKind) -> None:
        self.leaves, self.depth, self.kind = leaves, depth, kind
        self.event_bits = leaves.schema.bits
        self.public: list[Form] = []
        self._leaf_bits = (
            1
            + {
                "literal": lambda: leaves.schema.bits,
                "compare": lambda: sum(map(leaves.chain_bits, leaves.schema)),
                "interval": lambda: 2 * sum(map(leaves.chain_bits, leaves.schema)),
                "box": lambda: 2 * sum(map(leaves.chain_bits, leaves.schema)),
            }[kind]()
        )
        self._first_leaf = NODE_BITS * ((1 << depth) - 1)
        self.private_bits = self._first_leaf + (self._leaf_bits << depth)
        self.formula = self._node(0)

    def event_rows(self, events: Events) -> Words:
        """Packed bits of events, shape (count, words)."""
        return event_rows(self.leaves.schema, (), events)

    def interest_row(self, tree: HiddenTree) -> Words:
        """The private bits of a tree: shape (1, words), uint64."""
        bits = 0
        for i, node in enumerate(tree.nodes):
            bits |= (node.either | node.negated << 1) << NODE_BITS * i
        for i, leaf in enumerate(tree.leaves):
            bits |= self._fill(leaf) << self._first_leaf + self._leaf_bits * i
        return as_row(bits, self.private_bits)

    def _node(self, number: int) -> Formula:
        inner = (1 << self.depth) - 1
        if number >= inner:
            return self._leaf(self._first_leaf + self._leaf_bits * (number - inner))
        either = interest_bit(NODE_BITS * number)
        left = total([self._node(2 * number + 1), either])
        right = total([self._node(2 * number + 2), either])
        return total([And(left, right), either ^ interest_bit(NODE_BITS * number + 1)])

    def _leaf(self, first: int) -> Formula:
        negated = interest_bit(first)
        leaves, first = self.leaves, first + 1
        if self.kind == "literal":
            return total([leaves.parity(first), negated])
        write: Callable[[str, int], Formula] = leaves.interval
        if self.kind == "compare":
            write = leaves.chain
        parts = []
        for name in leaves.schema:
            parts.append(write(name, first))
            first += self._attribute_bits(name)
        return total([conjunction(parts) if self.kind == "box" else total(parts), negated])

    def _attribute_bits(self, name: str) -> int:
        return self.leaves.chain_bits(name) * (1 if self.kind == "compare" else 2)

    def _fill(self, leaf: Leaf) -> int:
        """A leaf's private bits as a number, the first bit lowest."""
        if isinstance(leaf, LiteralLeaf):
            bit = 0 if leaf.bit is None else 1 << leaf.bit
            return leaf.negated | bit << 1
        assert isinstance(leaf, CompareLeaf | IntervalLeaf | BoxLeaf)
        out, first = int(leaf.negated), 1
        for name in self.leaves.schema:
            out |= self._attribute(leaf, name) << first
            first += self._attribute_bits(name)
        return out

    def _attribute(self, leaf: CompareLeaf | IntervalLeaf | BoxLeaf, name: str) -> int:
        leaves = self.leaves
        if isinstance(leaf, BoxLeaf):
            low, high = leaf.ranges.get(name, (0, leaves.schema[name].size - 1))
            return leaves.within(name, low, high)
        if isinstance(leaf, IntervalLeaf):
            low, high = (leaf.low, leaf.high) if leaf.attribute == name else (1, 0)
            return leaves.within(name, low, high)
        if leaf.attribute != name or leaf.condition is None:
            return leaves.never(name)
        if isinstance(leaf.condition, Below):
            return leaves.below(name, leaf.condition.bound)
        return leaves.prefix(name, leaf.condition.value, leaf.condition.length)
