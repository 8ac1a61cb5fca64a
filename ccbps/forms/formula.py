"""Predicates as formulas over GF(2): the formula of a code form, and both parties' input bits.

Whatever a form says with public constants alone is one bit that the publisher computes: it costs
nothing. The event's bits are those of `ccbps.forms.bits`, then one for each such condition. The
interest's bits are the private bounds of the form's leaves, in the order of the leaves. The formula
depends on the form's structure and public bounds only, so what `FormulaForm.interest_row` makes of
two subscriptions to one template differs in nothing but the bits.

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
sum where at most one part can hold. "At least k of n" is `ccbps.programs.thresholds`: few parts are
cheap, many are not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ccbps.arrays import Words
from ccbps.errors import ParameterError
from ccbps.forms.bits import WORD
from ccbps.forms.leaves import Leaves, event_rows
from ccbps.predicates import Events
from ccbps.predicates.form import (
    AllOf,
    Always,
    AnyOf,
    AtLeastOf,
    Form,
    HammingWithin,
    InRange,
    Never,
    is_bound,
    iter_leaves,
)
from ccbps.programs import ONE, ZERO, interest_bit
from ccbps.programs.chains import reversed_bits
from ccbps.programs.formula import Formula, conjunction, disjunction, gates, negation, total
from ccbps.programs.thresholds import at_least, at_least_gates


class TooManyGates(ParameterError):
    """A formula would have more AND gates than are allowed."""


class FormulaForm:
    """A form's formula, and the bits of both parties.

    Args:
        leaves: conditions as the encoding takes them.
        form: code form whose private bounds are None.
        max_gates: largest number of AND gates.

    Attributes:
        leaves: as given.
        formula: the formula.
        event_bits: bits of the event's input.
        private_bits: bits of the interest's input.
        public: conditions that the publisher computes, a bit each.

    Raises:
        TooManyGates: the formula would have more gates; it has not been built.
    """

    def __init__(self, leaves: Leaves, form: Form, max_gates: int) -> None:
        self.leaves = leaves
        self.public: list[Form] = []
        self._max_gates, self._gates = max_gates, 0
        self.private_bits = 0
        # For each leaf with private bounds its kind and first private bit.
        self._private_slots: list[tuple[str, int]] = []
        self.formula = self._build(form)
        private = iter(self._private_slots)
        # Each leaf of the template, with the place of its private bits if it has some.
        self._leaves = [
            (type(leaf), leaf.attribute, None if is_bound(leaf) else next(private))
            for leaf in iter_leaves(form)
        ]
        self.event_bits = leaves.schema.bits + len(self.public)

    def event_rows(self, events: Events) -> Words:
        """Return packed bits of events, shape (count, words)."""
        return event_rows(self.leaves.schema, self.public, events)

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
        return as_row(bits, self.private_bits)

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
        raise AssertionError("Always and Never are public")

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
        if isinstance(form, Always | Never):
            return ONE if isinstance(form, Always) else ZERO
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
        chain_bits = leaves.chain_bits(name)
        if form.prefix:
            private = leaves.chain(name, self._private("prefix", chain_bits))
            self._count(gates(private))
            return private
        if form.low is None and form.high is None:
            both = leaves.interval(name, self._private("interval", 2 * chain_bits))
            self._count(gates(both))
            return both
        kind = "above" if form.low is None else "below"
        private = leaves.chain(name, self._private(kind, chain_bits))
        self._count(gates(private))
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


def as_row(bits: int, count: int) -> Words:
    """Pack `count` bits of a number, the lowest first, to words: shape (1, words)."""
    words = max(1, -(-count // WORD))
    return np.frombuffer(bits.to_bytes(8 * words, "little"), dtype="<u8")[None, :]
