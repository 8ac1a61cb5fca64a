"""Predicates as branching programs: the program of a code form, and both parties' input bits.

The event's bits are those of `ccbps.forms.bits`. The interest's bits are the private bounds of the
form's leaves, in the order of the leaves. The program depends on the form's structure and public
bounds only. So the rows of two subscriptions to one template (`CompiledForm.interest_row`) differ
in nothing but the bits.

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
from typing import Final

import numpy as np

from ccbps.arrays import Words
from ccbps.errors import ParameterError
from ccbps.forms.bits import WORD
from ccbps.predicates import Schema
from ccbps.predicates.box import Box
from ccbps.predicates.form import AllOf, AnyOf, AtLeastOf, Form, HammingWithin, InRange, iter_leaves
from ccbps.programs import branching as programs
from ccbps.programs.branching import ONE, ZERO, BranchingProgram, Label

FAR: Final = 8
"""Multiple of the limit from which on the nodes of a program are not counted to the end."""


def _private_text(kind: str, low: int, high: int, k: int) -> str:
    """Write a leaf's private bits, the first one first, for codes of k bits."""
    match kind:
        case "public":
            return ""
        case "interval":
            return f"{low:0{k}b}{high:0{k}b}"
        case "below" | "above":
            bound = high + 1 if kind == "below" else low
            return f"{bound % (1 << k):0{k}b}{bound >> k}"
        case "equal or never":
            return f"{low:0{k}b}1" if low <= high else "0" * (k + 1)
    return "1" * k if high < low else f"{low:0{k}b}"


def box_form(schema: Schema, box: Box | None = None) -> Form:
    """Return a private interval on every attribute: the box template, or one filled in by `box`."""
    leaves = []
    for name in schema:
        low, high = (None, None) if box is None else box.ranges[name]
        leaves.append(InRange(name, low, high, equal=False, negated=False))
    return AllOf(tuple(leaves))


class CompiledForm:
    """Compile a form to a program, and its private bounds to input bits.

    Attributes:
        schema: schema of the form's attributes.
        program: the branching program.
        private_bits: bits of the interest's input.
    """

    def __init__(self, schema: Schema, form: Form, max_nodes: int | None = None) -> None:
        """Build the program of a form.

        Args:
            schema: schema of the form's attributes.
            form: the form; its private bounds are None.
            max_nodes: most nodes of the program, source and sink included; None: any number.

        Raises:
            ParameterError: the program would have more nodes; it has not been built.
        """
        self.schema = schema
        self.private_bits = 0
        self._first_bits = schema.first_bits
        self._form = form
        self._kinds: list[str] = []  # of the leaves' private bits
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

    def interest_row(self, form: Form) -> Words:
        """Return the private bits of a subscription, shape (1, words), uint64.

        Args:
            form: the same form with its private bounds filled in.

        Raises:
            ParameterError: the form has other leaves.
        """
        leaves, expected = list(iter_leaves(form)), iter_leaves(self._form)
        if [(type(x), x.attribute) for x in leaves] != [(type(x), x.attribute) for x in expected]:
            raise ParameterError("the predicate does not have the structure of the template")
        bits = ""
        for kind, leaf in zip(self._kinds, leaves, strict=True):
            low, high = (leaf.low, leaf.high) if isinstance(leaf, InRange) else (leaf.value,) * 2
            assert low is not None and high is not None
            bits += _private_text(kind, low, high, self.schema[leaf.attribute].bits)
        words = max(1, -(-self.private_bits // WORD))
        packed = int("0" + bits[::-1], 2).to_bytes(8 * words, "little")
        return np.frombuffer(packed, dtype="<u8")[None]

    def _leaf(self, leaf: InRange | HammingWithin) -> BranchingProgram:
        start, bits = self._first_bits[leaf.attribute], self.schema[leaf.attribute].bits
        value = [programs.event_bit(start + i) for i in range(bits)]
        program, kind = (
            self._range(leaf, value) if isinstance(leaf, InRange) else self._hamming(leaf, value)
        )
        self._kinds.append(kind)
        return programs.negation(program) if leaf.negated else program

    def _size(self, form: Form, leaves: Iterator[int]) -> int:
        """Return the size of the form's program from its leaves'; an `AtLeastOf` may have less."""
        match form:
            case AllOf(parts) | AnyOf(parts, disjoint=False):
                return sum(self._size(part, leaves) for part in parts) or 1
            case AnyOf(parts):
                return 1 + sum(self._size(part, leaves) - 1 for part in parts)
            case AtLeastOf(k, parts):
                return programs.at_least_size(k, [self._size(part, leaves) for part in parts])
        return next(leaves)

    def _compile(self, form: Form, leaves: Iterator[BranchingProgram]) -> BranchingProgram:
        if not isinstance(form, AllOf | AnyOf | AtLeastOf):
            return next(leaves)
        parts = [self._compile(part, leaves) for part in form.parts]
        if isinstance(form, AllOf):
            return programs.conjunction(parts)
        if isinstance(form, AnyOf):
            return programs.disjunction(parts, disjoint=form.disjoint)
        return programs.at_least(form.k, parts)

    def _private(self, count: int) -> list[Label]:
        """Return the next bits of the interest's input."""
        first = self.private_bits
        self.private_bits += count
        return [programs.interest_bit(first + i) for i in range(count)]

    def _hamming(self, form: HammingWithin, value: list[Label]) -> tuple[BranchingProgram, str]:
        kind = "value" if form.value is None else "public"
        k = len(value)
        centre = self._private(k) if form.value is None else _constant_bits(form.value, k)
        return programs.hamming_within(value, centre, form.limit), kind

    def _range(self, form: InRange, value: list[Label]) -> tuple[BranchingProgram, str]:
        k, size = len(value), self.schema[form.attribute].size
        if form.low is not None and form.high is not None:
            return _public_range(value, form.low, form.high, size, form.equal), "public"
        if form.equal and size < 1 << k:
            return programs.equality(value, self._private(k)), "equal"
        if form.low is None and form.high is None and not form.equal:
            return programs.interval(value, self._private(k), self._private(k)), "interval"
        *bits, flag = self._private(k + 1)
        if form.equal:
            gate = programs.constant(flag)
            return programs.series(gate, programs.equality(value, bits)), "equal or never"
        below = programs.less_than(value, bits, flag)
        if form.low is None:
            return programs.negation(below), "above"
        return programs.parallel(below, programs.below_constant(value, form.low)), "below"


def _public_range(
    value: list[Label], low: int, high: int, size: int, equal: bool
) -> BranchingProgram:
    if high < low:
        return programs.constant(False)
    if equal:
        return programs.equality(value, _constant_bits(low, len(value)))
    upper = programs.constant(True)
    if high < size - 1:
        upper = programs.below_constant(value, high + 1)
    return programs.parallel(upper, programs.below_constant(value, low))


def _counts(form: Form) -> bool:
    """Return whether a form has an `AtLeastOf`, some parts of which may be left out."""
    parts = form.parts if isinstance(form, AllOf | AnyOf | AtLeastOf) else ()
    return isinstance(form, AtLeastOf) or any(map(_counts, parts))


def too_many_nodes(nodes: int, max_nodes: int, *, counted: bool = True) -> ParameterError:
    """Return the error of a program that would have more nodes than are allowed."""
    size = nodes - 1
    some = "" if counted else "at least "
    return ParameterError(
        f"the program would have {some}{nodes:,} nodes, and a message about "
        f"{size * (size + 1) // 16:,} bytes; max_nodes allows {max_nodes:,}: use fewer or "
        "narrower conditions, or raise max_nodes if such messages are what you want"
    )


def _constant_bits(value: int, bits: int) -> list[Label]:
    return [ONE if value >> (bits - 1 - i) & 1 else ZERO for i in range(bits)]
