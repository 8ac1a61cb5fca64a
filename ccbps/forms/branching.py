"""Predicates as branching programs: the program of a code form, and both parties' input bits.

The event's bits are those of `ccbps.forms.bits`. The interest's bits are the private bounds of the
form's leaves, in the order of the leaves. The program depends on the form's structure and public
bounds only, so what `CompiledForm.interest_words` makes of two subscriptions to one template
differs in nothing but the bits.

=======================  =====================================================  ============
leaf                     program                                                private bits
=======================  =====================================================  ============
x = :c                   equality; where no code is left over to mean "never",  k (+ 1)
                         one more edge that a private bit cuts
x < :c, x <= :c          comparison [x < t], a private bit on the edge from     k + 1
                         source to sink for t = 2^k
x > :c, x >= :c          the same, negated                                      k + 1
BETWEEN :a AND :b,       interval                                               2k
LIKE :prefix
public bounds            comparisons with trailing zeros left out               0
=======================  =====================================================  ============
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ccbps import programs
from ccbps.arrays import Words
from ccbps.errors import ParameterError
from ccbps.forms.bits import WORD
from ccbps.predicates import Schema
from ccbps.predicates.box import Box
from ccbps.predicates.form import (
    AllOf,
    Always,
    AnyOf,
    AtLeastOf,
    Form,
    HammingWithin,
    InRange,
    Never,
    iter_leaves,
)
from ccbps.programs import ONE, ZERO, BranchingProgram, Label

FAR: Final = 8
"""How many times the limit a program must have for its nodes not to be counted to the end."""


def box_form(schema: Schema, box: Box | None = None) -> Form:
    """A private interval on every attribute: the box template, or (with a box) it filled in."""

    def leaf(name: str) -> InRange:
        low, high = (None, None) if box is None else box.ranges[name]
        return InRange(name, low, high, equal=False, negated=False)

    return AllOf(tuple(leaf(name) for name in schema))


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where a leaf's private bounds lie: kind of leaf, first bit and bits of a value."""

    kind: str
    first: int
    bits: int


class CompiledForm:
    """A form's program, and how to fill its private bits.

    Attributes:
        schema: what the form's attributes are.
        program: the branching program.
        private_bits: bits of the interest's input.
    """

    def __init__(self, schema: Schema, form: Form, max_nodes: int | None = None) -> None:
        """Args:
            schema: what the form's attributes are.
            form: private bounds None.
            max_nodes: most nodes of the program, source and sink included; None: any number.

        Raises:
            ParameterError: the program would have more nodes; it has not been built.
        """
        self.schema = schema
        self._first_bits = schema.first_bits
        self._slots: list[_Slot | None] = []
        self.private_bits = 0
        self._form = form
        # One after the other, as they stand: the order of leaves is the order of their bits.
        leaves, inner = [], 0
        summed = max_nodes is not None and not _counts(form)
        for leaf in iter_leaves(form):
            leaves.append(self._leaf(leaf))
            # A program has all inner nodes of its leaves, but for those that count. Far beyond
            # the limit there is no need to know how many there would be.
            inner += leaves[-1].inner_nodes
            if summed and max_nodes is not None and inner > FAR * max_nodes:
                raise too_many_nodes(inner, max_nodes, counted=False)
        nodes = 1 + self._size(form, iter([leaf.size for leaf in leaves]))
        if max_nodes is not None and nodes > max_nodes:
            raise too_many_nodes(nodes, max_nodes)
        self.program: BranchingProgram = self._compile(form, iter(leaves))

    def interest_words(self, form: Form) -> Words:
        """The private bits of a subscription: shape (words, 1), uint64.

        Args:
            form: the same form with its private bounds filled in.
        """
        bits = 0
        leaves = list(iter_leaves(form))
        templates = list(iter_leaves(self._form))
        if len(leaves) != len(templates):
            raise ParameterError("the predicate does not have the structure of the template")
        for slot, leaf, template in zip(self._slots, leaves, templates, strict=True):
            if leaf.attribute != template.attribute or type(leaf) is not type(template):
                raise ParameterError("the predicate does not have the structure of the template")
            if slot is not None:
                bits |= self._fill(slot, leaf)
        words = max(1, -(-self.private_bits // WORD))
        return np.frombuffer(bits.to_bytes(8 * words, "little"), dtype="<u8")[:, None]

    def _fill(self, slot: _Slot, leaf: InRange | HammingWithin) -> int:
        """A leaf's private bits as a number, the first bit lowest."""
        k = slot.bits
        values: list[int | None]
        flags: list[bool] = []
        if isinstance(leaf, HammingWithin):
            values = [leaf.value]
        else:
            assert leaf.low is not None and leaf.high is not None
            empty = leaf.high < leaf.low
            if slot.kind == "equal":
                values = [(1 << k) - 1 if empty else leaf.low]
            elif slot.kind == "equal or never":
                values, flags = [0 if empty else leaf.low], [not empty]
            elif slot.kind == "interval":
                values = [leaf.low, leaf.high]
            else:
                bound = leaf.high + 1 if slot.kind == "below" else leaf.low
                values, flags = [bound % (1 << k)], [bound >> k == 1]
        out, position = 0, slot.first
        for value in values:
            assert value is not None
            out |= int(f"{value:0{k}b}"[::-1], 2) << position
            position += k
        for flag in flags:
            out |= int(flag) << position
            position += 1
        return out

    def _leaf(self, leaf: InRange | HammingWithin) -> BranchingProgram:
        program, slot = self._range(leaf) if isinstance(leaf, InRange) else self._hamming(leaf)
        self._slots.append(slot)
        return programs.negation(program) if leaf.negated else program

    def _size(self, form: Form, leaves: Iterator[int]) -> int:
        """Size of the form's program, from those of its leaves; for `AtLeastOf` it may be less."""
        match form:
            case Always() | Never():
                return 1
            case AllOf(parts) | AnyOf(parts, disjoint=False):
                return sum(self._size(part, leaves) for part in parts)
            case AnyOf(parts):
                return 1 + sum(self._size(part, leaves) - 1 for part in parts)
            case AtLeastOf(k, parts):
                return programs.at_least_size(k, [self._size(part, leaves) for part in parts])
        return next(leaves)

    def _compile(self, form: Form, leaves: Iterator[BranchingProgram]) -> BranchingProgram:
        match form:
            case Always() | Never():
                return programs.constant(isinstance(form, Always))
            case AllOf(parts):
                return programs.conjunction([self._compile(part, leaves) for part in parts])
            case AnyOf(parts, disjoint):
                return programs.disjunction(
                    [self._compile(part, leaves) for part in parts], disjoint=disjoint
                )
            case AtLeastOf(k, parts):
                return programs.at_least(k, [self._compile(part, leaves) for part in parts])
        return next(leaves)

    def _value(self, name: str) -> list[Label]:
        start = self._first_bits[name]
        return [programs.event_bit(start + i) for i in range(self.schema[name].bits)]

    def _private(self, kind: str, bits: int, values: int, flags: int) -> _Slot:
        slot = _Slot(kind, self.private_bits, bits)
        self.private_bits += values * bits + flags
        return slot

    @staticmethod
    def _bits(first: int, count: int) -> list[Label]:
        return [programs.interest_bit(first + i) for i in range(count)]

    def _hamming(self, form: HammingWithin) -> tuple[BranchingProgram, _Slot | None]:
        value = self._value(form.attribute)
        k = len(value)
        if form.value is not None:
            return programs.hamming_within(value, _constant_bits(form.value, k), form.limit), None
        slot = self._private("value", k, 1, 0)
        return programs.hamming_within(value, self._bits(slot.first, k), form.limit), slot

    def _range(self, form: InRange) -> tuple[BranchingProgram, _Slot | None]:
        value = self._value(form.attribute)
        k, size = len(value), self.schema[form.attribute].size
        if form.low is not None and form.high is not None:
            return self._public_range(value, form.low, form.high, size, form.equal), None
        if form.equal:
            if size < 1 << k:
                slot = self._private("equal", k, 1, 0)
                return programs.equality(value, self._bits(slot.first, k)), slot
            slot = self._private("equal or never", k, 1, 1)
            gate = programs.constant(programs.interest_bit(slot.first + k))
            return programs.series(gate, programs.equality(value, self._bits(slot.first, k))), slot
        if form.low is None and form.high is None:
            slot = self._private("interval", k, 2, 0)
            low, high = self._bits(slot.first, k), self._bits(slot.first + k, k)
            return programs.interval(value, low, high), slot
        slot = self._private("above" if form.low is None else "below", k, 1, 1)
        below = programs.less_than(
            value, self._bits(slot.first, k), programs.interest_bit(slot.first + k)
        )
        if form.low is None:
            return programs.negation(below), slot
        return programs.parallel(below, programs.below_constant(value, form.low)), slot

    @staticmethod
    def _public_range(
        value: list[Label], low: int, high: int, size: int, equal: bool
    ) -> BranchingProgram:
        if high < low:
            return programs.constant(False)
        if equal:
            return programs.equality(value, _constant_bits(low, len(value)))
        upper = (
            programs.constant(True)
            if high >= size - 1
            else programs.below_constant(value, high + 1)
        )
        return programs.parallel(upper, programs.below_constant(value, low))


def _counts(form: Form) -> bool:
    """Whether a form has `AtLeastOf`, some parts of which may be left out."""
    parts = form.parts if isinstance(form, AllOf | AnyOf | AtLeastOf) else ()
    return isinstance(form, AtLeastOf) or any(map(_counts, parts))


def too_many_nodes(nodes: int, max_nodes: int, *, counted: bool = True) -> ParameterError:
    """What says that a program would have more nodes than are allowed."""
    size = nodes - 1
    some = "" if counted else "at least "
    return ParameterError(
        f"the program would have {some}{nodes:,} nodes, and a message about "
        f"{size * (size + 1) // 16:,} bytes; max_nodes allows {max_nodes:,}: use fewer or "
        "narrower conditions, or raise max_nodes if such messages are what you want"
    )


def _constant_bits(value: int, bits: int) -> list[Label]:
    return [ONE if value >> (bits - 1 - i) & 1 else ZERO for i in range(bits)]
