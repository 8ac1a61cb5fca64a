"""Hidden formulas: a full binary tree of public depth, in which everything else is private bits.

A node is negated XOR (t XOR (a XOR t) AND (b XOR t)): an AND for t = 0, an OR for t = 1. Leaves of
one kind can each be any leaf of that kind (`ccbps.predicates.hidden`):

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

from typing import Final

from ccbps.arrays import Words
from ccbps.forms.formula import as_row
from ccbps.forms.leaves import Leaves, event_rows
from ccbps.predicates import Events
from ccbps.predicates.form import Form
from ccbps.predicates.hidden import AnyLeaf, HiddenTree, LiteralLeaf, RangeLeaf, block
from ccbps.predicates.hiding import LeafKind
from ccbps.predicates.types import EMPTY
from ccbps.programs import interest_bit
from ccbps.programs.formula import And, Formula, conjunction, total

NODE_BITS: Final = 2
"""Private bits of a node: t, and whether it is negated."""


class HiddenForm:
    """The formula of a hidden tree, and the bits of both parties, as in `FormulaForm`.

    Args:
        leaves: conditions as the encoding takes them.
        depth: levels of nodes.
        kind: kind of leaves.

    Attributes:
        leaves: as given.
        depth: as given.
        kind: as given.
        formula: the formula.
        event_bits: bits of the event's input.
        private_bits: bits of the interest's input: those of nodes, in heap order, then of leaves.
    """

    def __init__(self, leaves: Leaves, depth: int, kind: LeafKind) -> None:
        schema = leaves.schema
        self.leaves, self.depth, self.kind = leaves, depth, kind
        self.event_bits = schema.bits
        self.public: list[Form] = []
        self._widths = {
            name: leaves.chain_bits(name) * (1 if kind == "compare" else 2) for name in schema
        }
        content = schema.bits if kind == "literal" else sum(self._widths.values())
        self._leaf_bits = 1 + content
        self._first_leaf = NODE_BITS * ((1 << depth) - 1)
        self.private_bits = self._first_leaf + (self._leaf_bits << depth)
        self.formula = self._node(0)

    def event_rows(self, events: Events) -> Words:
        """Return packed bits of events, shape (count, words)."""
        return event_rows(self.leaves.schema, (), events)

    def interest_row(self, tree: HiddenTree) -> Words:
        """Return the private bits of a tree: shape (1, words), uint64."""
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
        write = leaves.chain if self.kind == "compare" else leaves.interval
        parts = []
        for name, width in self._widths.items():
            parts.append(write(name, first))
            first += width
        return total([conjunction(parts) if self.kind == "box" else total(parts), negated])

    def _fill(self, leaf: AnyLeaf) -> int:
        """Return a leaf's private bits as a number, the first bit lowest."""
        if isinstance(leaf, LiteralLeaf):
            bit = 0 if leaf.bit is None else 1 << leaf.bit
            return leaf.negated | bit << 1
        # A sum of parts that are all false is the opposite of an AND without parts.
        constant = self.kind != "box" and not leaf.ranges
        out, first = int(leaf.negated != constant), 1
        for name, width in self._widths.items():
            out |= self._attribute(leaf, name) << first
            first += width
        return out

    def _attribute(self, leaf: RangeLeaf, name: str) -> int:
        leaves, schema = self.leaves, self.leaves.schema
        if self.kind == "box":
            return leaves.within(name, *leaf.ranges.get(name, (0, schema[name].size - 1)))
        if self.kind == "interval":
            return leaves.within(name, *leaf.ranges.get(name, EMPTY))
        if name not in leaf.ranges:
            return leaves.never(name)
        low, high = leaf.ranges[name]
        if low == 0:
            return leaves.below(name, high + 1)
        free = block(low, high)
        assert free is not None
        return leaves.prefix(name, low, schema[name].bits - free)
