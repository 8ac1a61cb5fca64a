"""Predicates as lookups of digits: layers of sums of products, and both parties' private bits.

A code is cut into digits of a few bits, the most significant one first. An event gives the value of
each digit as a one-hot vector of 2^w bits; the last bit follows from the others, as their sum is 1.
An interest has *tables* of 2^w bits, one for each value of a digit. A condition on a code of m
digits is a few lookups:

=============  ==============================================  ===============  ===================
leaf           meaning                                         tables           gates
=============  ==============================================  ===============  ===================
``interval``   the code lies in one of k intervals             k (4 m - 4) + 1  k (4 m - 4) + 1
``chain``      code <= bound, code >= bound, "the first bits   2 m - 1          2 m - 1
               of the code are these", or false
``equal``      code = value, or false                          m                2 m - 1
``hamming``    at most t bits of the code differ               (w + 1) a digit  up to t + 1 a digit
``literal``    one bit of the event                            one a digit      none of its own
=============  ==============================================  ===============  ===================

A set of codes has *ends*: codes that are in the set while the code before is not, or the other way
round. k intervals have up to 2 k ends, and so has the set of all codes outside of them. The leaf is
``t + e_1 r_1 + e'_1 r'_1 + ...``, with a letter for each end. Here t says that the set has the last
code with this first digit, e that a digit equals the end's, and r that the digits behind are below
the end's: ``r_1 = s_2 + e_2 r_2``, and so on; s says that one digit is below the end's. All are 0
for an end that is not used: the first and the last code need none. So the tables of an attribute
that is not limited are 0 but for t, and those of a condition that never holds are all 0. A code of
one digit needs no ends: t takes any set.

Leaves are negated by inverting t, never by a constant: an interest whose tables are all zero
matches nothing.

Conditions whose constants are all public are bits that the publisher computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes
from ccbps.errors import ParameterError
from ccbps.forms.bits import WORD, event_bits
from ccbps.predicates import Events, Schema
from ccbps.predicates.codes import Intervals, limbs_for, pack
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
from ccbps.predicates.hiding import AnyLeaf, HiddenTree, LeafKind, LiteralLeaf, RangeLeaf
from ccbps.predicates.types import EMPTY
from ccbps.programs.layers import (
    Layers,
    Sum,
    at_least,
    conjunction,
    disjunction,
    event_bit,
    product,
    row,
    table,
    total,
)

MAX_WINDOW: Final = 8
"""Largest number of bits of a digit."""
Kind = Literal["interval", "chain", "equal", "hamming", "literal"]
Digits = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A leaf of the program: its tables, and how an interest fills them.

    Attributes:
        kind: kind of the leaf.
        name: the attribute; empty for a literal.
        negated: True if the public formula negates the leaf.
        states: limits of a Hamming distance for which the first digit has tables.
        ends: ends of a set of codes that have tables.
    """

    kind: Kind
    name: str
    negated: bool = False
    states: tuple[int, ...] = ()
    ends: int = 0


class DigitForm:
    """Lookups and layers of a form, and the bits of both parties.

    Attributes:
        schema: the attributes.
        windows: bits of a digit, by attribute; the first digit of a code may be shorter.
        digit_bits: bits of every digit.
        tables: digit that each table is looked up with.
        table_rows: first row of each table among the interest's bits, and the end of the last one.
        rows: bits of an interest: those of all tables, then single ones.
        public: conditions that the publisher computes, a bit each.
        program: the layers.
    """

    program: Layers

    def __init__(self, schema: Schema, windows: Mapping[str, int], most: int | None = None) -> None:
        self.schema, self.windows, self._most = schema, dict(windows), most
        self._digits: dict[str, range] = {}
        self.digit_bits: list[int] = []
        for name, bits in schema.widths.items():
            count, first = -(-bits // windows[name]), len(self.digit_bits)
            self._digits[name] = range(first, first + count)
            self.digit_bits += [bits - windows[name] * (count - 1)] + [windows[name]] * (count - 1)
        self.public: list[Form] = []
        self.tables: list[int] = []
        self._leaves: list[_Leaf] = []
        self._single = 0

    def _finish(self, answer: Sum) -> None:
        """Set the program and the places of rows, at the end of a constructor."""
        sizes = (1 << self.digit_bits[digit] for digit in self.tables)
        self.table_rows = list(accumulate(sizes, initial=0))
        self.program = Layers.of(answer, len(self.public), self._single)
        self.rows = self.table_rows[-1] + self._single

    # -- events -----------------------------------------------------------------------------------

    @property
    def event_bits(self) -> int:
        """Bits of an event's message: one-hot vectors without the last bit, then computed bits."""
        return sum((1 << width) - 1 for width in self.digit_bits) + len(self.public)

    def event_rows(self, events: Events) -> Bytes:
        """Return the bits of events' messages, 0 and 1, shape (count, event_bits), uint8."""
        bits, start = event_bits(events).view(np.uint8), 0
        parts = []
        for width in self.digit_bits:
            value = _value(bits[:, start : start + width])
            parts.append(value[:, None] == np.arange((1 << width) - 1))
            start += width
        parts += [form.evaluate(events)[:, None] for form in self.public]
        return np.concatenate(parts, axis=1).view(np.uint8)

    # -- the program ------------------------------------------------------------------------------

    def _table(self, digit: int) -> Sum:
        if len(self.tables) == self._most:
            raise ParameterError(
                f"there would be more than the {self._most:,} tables that max_gates allows: use "
                "fewer or narrower conditions, or digits of more bits"
            )
        self.tables.append(digit)
        return table(len(self.tables) - 1)

    def _row(self) -> Sum:
        """Take one more private bit, behind all tables."""
        self._single += 1
        return row(self._single - 1)

    def _computed(self, form: Form) -> Sum:
        """Write a bit of the publisher's for a form without a private constant."""
        self.public.append(form)
        return event_bit(len(self.public) - 1)

    def _leaf(
        self, kind: Kind, name: str, negated: bool = False, limit: int = 0, intervals: int = 1
    ) -> Sum:
        """Write a leaf, and keep the data to fill it."""
        digits, ends = self._digits.get(name, range(0)), 0
        states: tuple[int, ...] = ()
        if kind == "interval":
            inside, ends = self._table(digits[0]), 2 * intervals * (len(digits) > 1)
            answer = total([inside, *(self._rest(digits) for _ in range(ends))])
        elif kind == "chain":
            inside = self._table(digits[0])
            answer = total([inside, self._rest(digits)]) if len(digits) > 1 else inside
        elif kind == "equal":
            answer = conjunction([self._table(digit) for digit in digits])
        elif kind == "hamming":
            answer, states = self._distance(digits, limit, negated)
        else:
            answer = total([self._table(digit) for digit in range(len(self.digit_bits))])
        self._leaves.append(_Leaf(kind, name, negated, states, ends))
        return answer

    def _rest(self, digits: range) -> Sum:
        """Write e_1 (s_2 + e_2 (s_3 + ...)), a table for each."""
        equal, steps = [self._table(digits[0])], []
        for digit in digits[1:-1]:
            steps.append(self._table(digit))
            equal.append(self._table(digit))
        rest = self._table(digits[-1])
        for step, same in zip(reversed(steps), reversed(equal[1:]), strict=True):
            rest = total([step, product(same, rest)])
        return product(equal[0], rest)

    def _distance(self, digits: range, limit: int, negated: bool) -> tuple[Sum, tuple[int, ...]]:
        """Write "at most `limit` bits differ", or more than that, digit by digit.

        Returns:
            the sum, and the limits that the first digit has tables for.
        """
        widths = [self.digit_bits[digit] for digit in digits]
        before = [0, *accumulate(widths)]
        # The limits that are asked for, from the last digit back to the first.
        wanted = [{limit}]
        for place in range(len(digits) - 1, 0, -1):
            left = {s - r for s in wanted[0] for r in range(widths[place] + 1)}
            wanted.insert(0, {s for s in left if 0 <= s < before[place]})
        states = tuple(sorted(wanted[0]))
        held = {s: self._table(digits[0]) for s in states}
        for place in range(1, len(digits)):
            exactly = [self._table(digits[place]) for _ in range(widths[place] + 1)]
            new = {}
            for s in wanted[place]:
                parts = []
                for r, same in enumerate(exactly):
                    always = s - r < 0 if negated else s - r >= before[place]
                    if always:
                        parts.append(same)
                    elif s - r in held:
                        parts.append(product(same, held[s - r]))
                new[s] = total(parts)
            held = new
        return held[limit], states

    # -- interests --------------------------------------------------------------------------------

    def fill(self, number: int, low: Sequence[int], high: Sequence[int], invert: Bools) -> Bytes:
        """Return the bits of a leaf's tables for some interests, shape (count, bits), uint8.

        Args:
            number: number of the leaf.
            low: least code of each interest, or the centre of a distance.
            high: greatest code; an interest whose range is empty never holds.
            invert: interests in which the leaf is negated, in addition to the formula.
        """
        leaf = self._leaves[number]
        if leaf.kind == "interval":
            pairs = zip(low, high, strict=True)
            return self.fill_sets(number, [((a, b),) if a <= b else () for a, b in pairs], invert)
        digits = self._digits[leaf.name]
        bits = self.schema[leaf.name].bits
        some = np.array([a <= b for a, b in zip(low, high, strict=True)], dtype=np.bool_)
        top = (1 << bits) - 1
        lows = self._split(
            leaf.name, [min(a, top) if ok else 0 for a, ok in zip(low, some, strict=True)]
        )
        highs = self._split(
            leaf.name, [min(b, top) if ok else 0 for b, ok in zip(high, some, strict=True)]
        )
        invert = invert ^ np.bool_(leaf.negated)
        if leaf.kind == "chain":
            greatest = self.schema[leaf.name].size - 1
            full = np.array([b >= greatest for b in high], dtype=np.bool_)
            free = [
                (b - a + 1).bit_length() - 1 if ok else 0
                for a, b, ok in zip(low, high, some, strict=True)
            ]
            below = np.array([a == 0 for a in low], dtype=np.bool_)
            mode = np.where(below, 0, np.where(full, 1, 2))
            parts = self._fill_chain(digits, lows, highs, np.array(free), mode, some, invert)
        elif leaf.kind == "equal":
            parts = [(self._all(d) == lows[:, [j]]) & some[:, None] for j, d in enumerate(digits)]
        else:
            parts = self._fill_distance(leaf, digits, lows)
        return np.concatenate(parts, axis=1).view(np.uint8)

    def fill_sets(self, number: int, sets: Sequence[Intervals], invert: Bools) -> Bytes:
        """Return the bits of an interval's tables for sets of codes, shape (count, bits), uint8.

        Args:
            number: number of the leaf.
            sets: intervals of each interest; those of a code of several digits have no more ends
                than the leaf has tables for.
            invert: interests in which the leaf is negated, in addition to the formula.
        """
        leaf = self._leaves[number]
        digits, last = self._digits[leaf.name], self.schema[leaf.name].size - 1
        ends = [
            [end for low, high in allowed for end in (low, high + 1) if 0 < end <= last]
            for allowed in sets
        ]
        counts = np.array([len(some) for some in ends], dtype=np.int64)
        split = self._split(leaf.name, [end for some in ends for end in some])
        owner = np.repeat(np.arange(len(sets)), counts)
        first = np.array([bool(allowed) and allowed[0][0] <= 0 for allowed in sets], dtype=np.bool_)
        width = self.digit_bits[digits[0]]
        turns = np.bincount(owner << width | split[:, 0], minlength=len(sets) << width) & 1 != 0
        turns = turns.reshape(len(sets), 1 << width)
        turns[:, 0] ^= first ^ invert ^ np.bool_(leaf.negated)
        parts = [np.logical_xor.accumulate(turns, axis=1)]
        if leaf.ends:
            here = np.full((len(sets), leaf.ends, len(digits)), -1)
            starts = np.repeat(np.cumsum(counts) - counts, counts)
            here[owner, np.arange(len(owner)) - starts] = split
            # Of an end that is not used, no digit is equal or greater.
            for end in here.transpose(1, 2, 0)[:, :, :, None]:
                for j, digit in enumerate(digits):
                    value = self._all(digit)
                    if j:
                        parts.append(value < end[j])
                    if j + 1 < len(digits):
                        parts.append(value == end[j])
        return np.concatenate(parts, axis=1).view(np.uint8)

    def _fill_chain(
        self,
        digits: range,
        low: Digits,
        high: Digits,
        free: NDArray[Any],
        mode: NDArray[Any],
        some: Bools,
        invert: Bools,
    ) -> list[Bools]:
        parts, last = [], len(digits) - 1
        # Bits behind each digit: those of a block that are free.
        behind = [sum(self.digit_bits[d] for d in digits[j + 1 :]) for j in range(last + 1)]
        for j, digit in enumerate(digits):
            value, a, b = self._all(digit), low[:, [j]], high[:, [j]]
            loose = np.clip(free - behind[j], 0, self.digit_bits[digit])[:, None]
            ends = (free >= behind[j])[:, None]  # here, or before
            here = ends & ((free < behind[j] + self.digit_bits[digit]) | (j == 0))[:, None]
            block = here & (value >> loose == a >> loose)
            step = np.select(
                [mode[:, None] == 0, mode[:, None] == 1],
                [
                    (value < b) | ((j == last) & (value == b)),
                    (value > a) | ((j == last) & (value == a)),
                ],
                block,
            )
            step &= some[:, None]
            same = np.where(
                mode[:, None] == 0, value == b, (value == a) & ~(ends & (mode == 2)[:, None])
            )
            same &= some[:, None]
            if j == 0:
                step = step ^ invert[:, None]
            parts += [step] if j == last else [step, same]
        return parts

    def _fill_distance(self, leaf: _Leaf, digits: range, centre: Digits) -> list[Bools]:
        parts: list[Bools] = []
        for j, digit in enumerate(digits):
            differ = np.bitwise_count(self._all(digit) ^ centre[:, [j]])
            if j == 0:
                compare = np.greater if leaf.negated else np.less_equal
                parts += [compare(differ, s) for s in leaf.states]
            else:
                parts += [differ == r for r in range(self.digit_bits[digit] + 1)]
        return parts

    def _all(self, digit: int) -> Digits:
        """Return all values of a digit, shape (1, 2^w)."""
        return np.arange(1 << self.digit_bits[digit])[None, :]

    def _split(self, name: str, codes: Sequence[int]) -> Digits:
        """Return the digits of codes, shape (count, digits)."""
        digits, behind = self._digits[name], 0
        words = pack(codes, limbs_for(self.schema[name].bits))[::-1]
        out = np.empty((len(codes), len(digits)), dtype=np.int64)
        for j, digit in reversed(list(enumerate(digits))):
            width = self.digit_bits[digit]
            limb, place = divmod(behind, WORD)
            value = words[limb] >> np.uint64(place)
            if place + width > WORD and limb + 1 < len(words):
                value |= words[limb + 1] << np.uint64(WORD - place)
            out[:, j] = value & np.uint64((1 << width) - 1)
            behind += width
        return out


def _value(bits: NDArray[Any]) -> Digits:
    """Return the numbers of rows of bits, the most significant one first."""
    weights: Digits = 1 << np.arange(bits.shape[1], dtype=np.int64)[::-1]
    value: Digits = np.matmul(bits, weights)
    return value


class FormulaDigits(DigitForm):
    """Lookups of a code form: a template, or the box.

    Args:
        schema: the attributes.
        windows: bits of a digit, by attribute.
        form: code form whose private bounds are None.
        most: greatest number of tables; None for any.

    Raises:
        ParameterError: there would be more tables.
    """

    def __init__(
        self, schema: Schema, windows: Mapping[str, int], form: Form, most: int | None = None
    ) -> None:
        super().__init__(schema, windows, most)
        self._shape = [(type(leaf), leaf.attribute, is_bound(leaf)) for leaf in iter_leaves(form)]
        self._finish(self._build(form))

    def interest_rows(self, forms: Sequence[Form]) -> Bytes:
        """Return the private bits of interests, 0 and 1, shape (count, rows), uint8.

        Args:
            forms: the same form, with the private bounds of each filled in.

        Raises:
            ParameterError: a form has another structure.
        """
        private: list[list[InRange | HammingWithin]] = []
        for form in forms:
            leaves = list(iter_leaves(form))
            if [(type(leaf), leaf.attribute) for leaf in leaves] != [s[:2] for s in self._shape]:
                raise ParameterError("the predicate does not have the structure of the template")
            private.append([x for x, s in zip(leaves, self._shape, strict=True) if not s[2]])
        out, same = [np.empty((len(forms), 0), dtype=np.uint8)], np.zeros(len(forms), np.bool_)
        for number in range(len(self._leaves)):
            bounds = [_bounds(leaves[number]) for leaves in private]
            low, high = zip(*bounds, strict=True) if bounds else ((), ())
            out.append(self.fill(number, low, high, same))
        return np.concatenate(out, axis=1)

    def _build(self, form: Form) -> Sum:
        if is_bound(form):
            return self._computed(form)
        match form:
            case AllOf():
                return conjunction(self._parts(form))
            case AnyOf(disjoint=True):
                return total(self._parts(form))
            case AnyOf():
                return disjunction(self._parts(form))
            case AtLeastOf(k, parts):
                return at_least(k, [self._build(part) for part in parts])
            case InRange(attribute=name, low=low, high=high, equal=equal, negated=negated):
                if equal and low is None and high is None:
                    short = len(self._digits[name]) == 1
                    return self._leaf("chain" if negated or short else "equal", name, negated)
                if form.prefix or low == 0 or (high is not None and high >= self._top(name)):
                    return self._leaf("chain", name, negated)
                return self._leaf("interval", name, negated)
            case HammingWithin(attribute=name, limit=limit, negated=negated):
                return self._leaf("hamming", name, negated, limit)
        raise AssertionError("no form of another class")

    def _parts(self, form: AllOf | AnyOf) -> list[Sum]:
        """Build the private parts in order, then the public ones as a single bit."""
        private = [part for part in form.parts if not is_bound(part)]
        public = tuple(part for part in form.parts if is_bound(part))
        sums = [self._build(part) for part in private]
        if public:
            whole: Form = AllOf(public)
            if isinstance(form, AnyOf):
                whole = AnyOf(public, form.disjoint)
            sums.append(self._computed(public[0] if len(public) == 1 else whole))
        return sums

    def _top(self, name: str) -> int:
        """Return the greatest code of an attribute."""
        return self.schema[name].size - 1


class BoxDigits(DigitForm):
    """Lookups of a box: a set of codes for each attribute.

    Attributes:
        intervals: greatest number of intervals by attribute; that of any set where a code is one
            digit.

    Args:
        schema: the attributes.
        windows: bits of a digit, by attribute.
        intervals: intervals of an attribute, by attribute.
        most: greatest number of tables; None for any.

    Raises:
        ParameterError: there would be more tables.
    """

    def __init__(
        self,
        schema: Schema,
        windows: Mapping[str, int],
        intervals: Mapping[str, int],
        most: int | None = None,
    ) -> None:
        super().__init__(schema, windows, most)
        leaves = [self._leaf("interval", name, intervals=intervals[name]) for name in schema]
        most_of = {leaf.name: leaf.ends // 2 for leaf in self._leaves}
        self.intervals = {name: count or schema[name].size for name, count in most_of.items()}
        self._finish(conjunction(leaves))

    def interest_rows(self, boxes: Sequence[Mapping[str, Intervals]]) -> Bytes:
        """Return the private bits of interests, 0 and 1, shape (count, rows), uint8.

        Args:
            boxes: the set of codes of each attribute, as `Predicate.sets` for `intervals`.
        """
        same = np.zeros(len(boxes), dtype=np.bool_)
        parts = [
            self.fill_sets(number, [box[name] for box in boxes], same)
            for number, name in enumerate(self.schema)
        ]
        return np.concatenate(parts, axis=1)


class HiddenDigits(DigitForm):
    """Lookups of a hidden tree.

    A node is ``(a + t) (b + t) + t + n``: an AND for t = 0, an OR for t = 1, inverted for n = 1.

    Args:
        schema: the attributes.
        windows: bits of a digit, by attribute.
        depth: levels of nodes.
        kind: kind of leaves.
        most: greatest number of tables; None for any.

    Raises:
        ParameterError: there would be more tables.
    """

    def __init__(
        self,
        schema: Schema,
        windows: Mapping[str, int],
        depth: int,
        kind: LeafKind,
        most: int | None = None,
    ) -> None:
        super().__init__(schema, windows, most)
        self.depth, self.kind = depth, kind
        self._nodes = [(self._row(), self._row()) for _ in range((1 << depth) - 1)]
        self._finish(self._node(0))

    def _node(self, number: int) -> Sum:
        if number >= len(self._nodes):
            return self._any_leaf()
        either, negated = self._nodes[number]
        left = total([self._node(2 * number + 1), either])
        right = total([self._node(2 * number + 2), either])
        return total([product(left, right), either, negated])

    def _any_leaf(self) -> Sum:
        if self.kind == "literal":
            return self._leaf("literal", "")
        kind: Kind = "chain" if self.kind == "compare" else "interval"
        parts = [self._leaf(kind, name) for name in self.schema]
        if self.kind != "box":
            return total(parts)
        return total([conjunction(parts), self._row()])

    def interest_rows(self, trees: Sequence[HiddenTree]) -> Bytes:
        """Return the private bits of interests, 0 and 1, shape (count, rows), uint8."""
        count, names = len(trees), list(self.schema)
        parts, single = [], []
        for number in range(1 << self.depth):
            leaves = [tree.leaves[number] for tree in trees]
            negated = np.array([leaf.negated for leaf in leaves], dtype=np.bool_)
            if self.kind == "literal":
                parts.append(self._literals(leaves))
                continue
            ranges = [leaf.ranges for leaf in leaves if isinstance(leaf, RangeLeaf)]
            never = np.zeros(count, dtype=np.bool_)
            if self.kind == "box":
                single.append(negated)
                negated = never
            else:
                # A sum of parts that are all false is the opposite of an AND without parts.
                negated = negated ^ np.array([not named for named in ranges], dtype=np.bool_)
            for place, name in enumerate(names):
                other = (0, self.schema[name].size - 1) if self.kind == "box" else EMPTY
                bounds = [named.get(name, other) for named in ranges]
                invert = never if place else negated
                low, high = zip(*bounds, strict=True) if bounds else ((), ())
                parts.append(self.fill(number * len(names) + place, low, high, invert))
        nodes = [
            np.array([getattr(tree.nodes[i], what) for tree in trees], dtype=np.bool_)
            for i in range(len(self._nodes))
            for what in ("either", "negated")
        ]
        last = [np.asarray(bits)[:, None].view(np.uint8) for bits in [*nodes, *single]]
        return np.concatenate([*parts, *last], axis=1)

    def _literals(self, leaves: Sequence[AnyLeaf]) -> Bytes:
        """Return the tables of literals: one digit's table gives the bit, the others are zero."""
        out = np.zeros((len(leaves), sum(1 << width for width in self.digit_bits)), dtype=np.uint8)
        starts = list(accumulate(self.digit_bits, initial=0))
        for place, leaf in enumerate(leaves):
            assert isinstance(leaf, LiteralLeaf)
            first = 0
            for digit, width in enumerate(self.digit_bits):
                at, values = slice(first, first + (1 << width)), np.arange(1 << width)
                if leaf.bit is not None and starts[digit] <= leaf.bit < starts[digit + 1]:
                    out[place, at] = values >> starts[digit + 1] - 1 - leaf.bit & 1
                if digit == 0:
                    out[place, at] ^= np.uint8(leaf.negated)
                first += 1 << width
        return out


def _bounds(leaf: InRange | HammingWithin) -> tuple[int, int]:
    """Return the bounds of a range, or the centre of a distance twice."""
    return leaf.bounds if isinstance(leaf, InRange) else (leaf.centre, leaf.centre)
