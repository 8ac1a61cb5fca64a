"""Predicates as formulas over GF(2): of a code form or a hidden tree, and both parties' input bits.

A `FormulaForm` is the formula of a code form. A condition with public constants only is one bit
that the publisher computes: it costs nothing. The event's bits are those of
`ccbps.forms.bits`, then one for each such condition. The interest's bits are the private bounds of
the form's leaves, in the order of the leaves. The formula depends on the form's structure and
public bounds only. So the rows of two subscriptions to one template differ in nothing but the bits.

=======================  =====================================================  ============
leaf                     formula                                                private bits
=======================  =====================================================  ============
x = :c                   AND of all bits; where no code is left over to mean    k (+ 1)
                         "never", and of a private bit
x < :c, x <= :c          chain                                                  2k
x > :c, x >= :c          chain, negated                                         2k
BETWEEN :a AND :b        sum of two chains                                      4k
LIKE :prefix             chain; on other types than Text, as BETWEEN            2k
hamming(x, :c) <= t      threshold of the bits that differ                      k
public bounds            a bit of the publisher's                               0
=======================  =====================================================  ============

AND is a tree of gates (`ccbps.programs.formula.conjunction`), OR the same by De Morgan, or a free
sum where at most one part can hold. "At least k of n" is cheap for few
parts, and not for many.

A `HiddenForm` is the formula of a full binary tree of public depth, in which everything else is
private bits. A node is negated XOR (t XOR (a XOR t) AND (b XOR t)): an AND for t = 0, an OR for
t = 1. Leaves of one kind can each be any leaf of that kind (`ccbps.predicates.hiding`):

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

from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace

from ccbps import predicates
from ccbps.arrays import Words
from ccbps.errors import ParameterError
from ccbps.forms.bits import LITTLE, WORD, event_words, reversed_bits
from ccbps.forms.leaves import Leaves
from ccbps.predicates import Events
from ccbps.predicates.form import (
    AllOf,
    AnyOf,
    AtLeastOf,
    Form,
    HammingWithin,
    InRange,
    is_bound,
    iter_leaves,
)
from ccbps.predicates.types import EMPTY
from ccbps.programs.branching import ONE, ZERO, interest_bit
from ccbps.programs.formula import (
    And,
    Formula,
    at_least,
    at_least_gates,
    conjunction,
    disjunction,
    gates,
    negation,
    total,
)

if TYPE_CHECKING:
    from ccbps.predicates.hiding import AnyLeaf, HiddenTree, LeafKind, RangeLeaf

NODE_BITS: Final = 2
"""Private bits of a node: t, and 1 if it is negated."""


class TooManyGates(ParameterError):
    """A formula would have more AND gates than are allowed."""


class _Compiled:
    """A formula and the bits of both parties.

    Attributes:
        leaves: conditions as the encoding takes them.
        formula: the formula.
        private_bits: bits of the interest's input.
        public: conditions that the publisher computes, a bit each.
    """

    formula: Formula
    private_bits = 0

    def __init__(self, leaves: Leaves) -> None:
        self.leaves = leaves
        self.public: list[Form] = []

    @property
    def event_bits(self) -> int:
        """Bits of the event's input."""
        return self.leaves.schema.bits + len(self.public)

    def event_rows(self, events: Events) -> Words:
        """Return packed bits of events, shape (count, words); bits that are computed come last."""
        words = event_words(events)
        if not self.public:
            return np.ascontiguousarray(words.T)
        out = np.zeros((events.count, max(1, -(-self.event_bits // WORD))), dtype=np.uint64)
        out[:, : len(words)] = words.T
        for bit, form in enumerate(self.public, self.leaves.schema.bits):
            out[:, bit // WORD] |= form.evaluate(events).astype(np.uint64) << np.uint64(bit % WORD)
        return out

    def _row(self, bits: int) -> Words:
        """Pack the private bits, a number with the first bit lowest, to shape (1, words)."""
        packed = bits.to_bytes(8 * max(1, -(-self.private_bits // WORD)), "little")
        return np.frombuffer(packed, LITTLE)[None, :]


class FormulaForm(_Compiled):
    """A form's formula, and the bits of both parties.

    Args:
        leaves: conditions as the encoding takes them.
        form: code form whose private bounds are None.
        max_gates: largest number of AND gates.

    Raises:
        TooManyGates: the formula would have more gates; it has not been built.
    """

    def __init__(self, leaves: Leaves, form: Form, max_gates: int) -> None:
        super().__init__(leaves)
        self._max_gates, self._gates = max_gates, 0
        # For each leaf with private bounds its kind and first private bit.
        self._private_slots: list[tuple[str, int]] = []
        self.formula = self._build(form)
        private = iter(self._private_slots)
        # Each leaf of the template, with the place of its private bits if it has some.
        self._leaves = [
            (type(leaf), leaf.attribute, None if is_bound(leaf) else next(private))
            for leaf in iter_leaves(form)
        ]

    def interest_row(self, form: Form) -> Words:
        """Return the private bits of a subscription: shape (1, words), uint64.

        Args:
            form: the same form with its private bounds filled in.

        Raises:
            ParameterError: the form has another structure.
        """
        leaves = list(iter_leaves(form))
        structure = [(type(leaf), leaf.attribute) for leaf in leaves]
        if structure != [(kind, name) for kind, name, _ in self._leaves]:
            raise ParameterError("the predicate does not have the structure of the template")
        bits = 0
        for leaf, (_, _, slot) in zip(leaves, self._leaves, strict=True):
            if slot is not None:
                kind, first = slot
                bits |= self._fill(kind, leaf) << first
        return self._row(bits)

    # -- the formula ------------------------------------------------------------------------------

    def _build(self, form: Form) -> Formula:
        if is_bound(form):
            return self._computed(form)
        match form:
            case AllOf() | AnyOf(disjoint=False):
                formulas = self._parts(form)
                self._count(len(formulas) - 1)
                return (conjunction if isinstance(form, AllOf) else disjunction)(formulas)
            case AnyOf():
                return disjunction(self._parts(form), disjoint=True)
            case AtLeastOf(k, parts):
                return self._threshold(k, [self._build(part) for part in parts])
            case InRange() | HammingWithin():
                formula = self._range(form) if isinstance(form, InRange) else self._hamming(form)
                return negation(formula) if form.negated else formula
        raise AssertionError("no form of another class")

    def _parts(self, form: AllOf | AnyOf) -> list[Formula]:
        """Build the parts: nested ones of the same kind taken apart, public ones together."""
        private: list[Form] = []
        public: list[Form] = []
        pending: list[Form] = list(reversed(form.parts))
        while pending:
            part = pending.pop()
            if is_bound(part):
                public.append(part)
            elif isinstance(part, AllOf | AnyOf) and replace(part, parts=form.parts) == form:
                pending.extend(reversed(part.parts))
            else:
                private.append(part)
        # In the order of the form, which is the order of private bits.
        formulas = [self._build(part) for part in private]
        if public:
            computed = public[0] if len(public) == 1 else replace(form, parts=tuple(public))
            formulas.append(self._computed(computed))
        return formulas

    def _computed(self, form: Form) -> Formula:
        """Add a bit of the publisher's for a form that has no private constant."""
        if not form.children and isinstance(form, AllOf | AnyOf):
            return ONE if isinstance(form, AllOf) else ZERO
        self.public.append(form)
        return self.leaves.computed(len(self.public) - 1)

    def _count(self, more: int) -> None:
        self._gates += more
        if self._gates > self._max_gates:
            raise TooManyGates(
                f"the formula would have more than the {self._max_gates:,} AND gates that "
                "max_gates allows; use fewer or narrower conditions"
            )

    def _private(self, kind: str, count: int) -> int:
        first = self.private_bits
        self._private_slots.append((kind, first))
        self.private_bits += count
        return first

    def _range(self, form: InRange) -> Formula:
        leaves, name = self.leaves, form.attribute
        size = leaves.schema[name].size
        if form.equal:
            # Where every code may occur, one more private bit says that none is meant.
            spare = size < 1 << leaves.bits[name]
            width = leaves.equality_bits(name)
            first = self._private("equal" if spare else "equal or never", width + (not spare))
            parts = list(leaves.equality(name, first))
            if not spare:
                parts.append(interest_bit(first + width))
            self._count(len(parts) - 1)
            return conjunction(parts)
        chain_bits, both = leaves.chain_bits(name), form.low is None and form.high is None
        if both and not form.prefix:
            private = leaves.interval(name, self._private("interval", 2 * chain_bits))
        else:
            kind = "prefix" if form.prefix else "above" if form.low is None else "below"
            private = leaves.chain(name, self._private(kind, chain_bits))
        self._count(gates(private))
        if both:
            return private
        if form.high is not None and form.high >= size - 1:
            return negation(private)
        public = form.high if form.low is None else form.low - 1
        if public == -1:
            return private
        computed = InRange(name, 0, public, equal=False, negated=False)
        return total([private, self._computed(computed)])

    def _hamming(self, form: HammingWithin) -> Formula:
        bits = self.leaves.bits[form.attribute]
        differ = self.leaves.each_bit(form.attribute, self._private("bits", bits))
        same = [negation(part) for part in differ]
        return self._threshold(bits - form.limit, same)

    def _threshold(self, k: int, parts: list[Formula]) -> Formula:
        """Write "at least k of the parts hold"."""
        sizes = [gates(part) for part in parts]
        self._count(at_least_gates(k, sizes) - sum(sizes))
        return at_least(k, parts)

    def _fill(self, kind: str, leaf: InRange | HammingWithin) -> int:
        """Return a leaf's private bits as a number, the first bit lowest."""
        leaves, name = self.leaves, leaf.attribute
        bits = leaves.bits[name]
        if isinstance(leaf, HammingWithin):
            return reversed_bits(leaf.centre, bits)
        low, high = leaf.bounds
        empty = high < low
        if kind == "equal":
            return leaves.equal(name, (1 << bits) - 1 if empty else low)
        if kind == "equal or never":
            code = leaves.equal(name, 0 if empty else low)
            return code | (not empty) << leaves.equality_bits(name)
        if kind == "interval":
            return leaves.within(name, low, high)
        if kind == "prefix":
            free = (high - low + 1).bit_length() - 1
            return leaves.never(name) if empty else leaves.prefix(name, low, bits - free)
        return leaves.below(name, high + 1 if kind == "below" else low)


class HiddenForm(_Compiled):
    """The formula of a hidden tree, and the bits of both parties.

    The private bits are those of nodes, in heap order, and then of leaves.

    Args:
        leaves: conditions as the encoding takes them.
        depth: levels of nodes.
        kind: kind of leaves.
    """

    def __init__(self, leaves: Leaves, depth: int, kind: LeafKind) -> None:
        super().__init__(leaves)
        schema = leaves.schema
        self.depth, self.kind = depth, kind
        self._widths = {
            name: leaves.chain_bits(name) * (1 if kind == "compare" else 2) for name in schema
        }
        content = schema.bits if kind == "literal" else sum(self._widths.values())
        self._leaf_bits = 1 + content
        self._first_leaf = NODE_BITS * ((1 << depth) - 1)
        self.private_bits = self._first_leaf + (self._leaf_bits << depth)
        self.formula = self._node(0)

    def interest_row(self, tree: HiddenTree) -> Words:
        """Return the private bits of a tree: shape (1, words), uint64."""
        bits = 0
        for i, node in enumerate(tree.nodes):
            bits |= (node.either | node.negated << 1) << NODE_BITS * i
        for i, leaf in enumerate(tree.leaves):
            bits |= self._fill(leaf) << self._first_leaf + self._leaf_bits * i
        return self._row(bits)

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
        if isinstance(leaf, predicates.hiding.LiteralLeaf):
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
        free = predicates.hiding.block(low, high)
        assert free is not None
        return leaves.prefix(name, low, schema[name].bits - free)
