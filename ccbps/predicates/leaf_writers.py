"""Normal forms as circuits of AND, OR and NOT whose inputs are the leaves of a hidden tree.

Of several ways to write a part the shallowest is taken:

- A set of codes is an OR of ranges, or a hull without gaps: ``x NOT IN (5, 9)``.
- A range is one leaf, except that ``compare`` needs two for what is neither below nor above a
  bound, nor a block of a prefix, and ``literal`` a circuit over the attribute's bits.

The work is counted, so that a hostile predicate is refused before it is done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from typing import Final

from ccbps.circuits import (
    Circuit,
    CircuitBuilder,
    Wire,
    balance,
    blocks,
    counting,
    negation_normal_form,
)
from ccbps.predicates.attributes import Attributes
from ccbps.predicates.hidden import AnyLeaf, Below, CompareLeaf, IntervalLeaf, LiteralLeaf, Prefix
from ccbps.predicates.normal import AtLeast, Conjunction, Distance, NormalForm, Part
from ccbps.predicates.products import Intervals, common, complement

_MAX_WORK: Final = 1 << 18
"""In units of some 5 microseconds."""

_MAX_DECISIONS: Final = 256
"""Bits times ranges of a set that is also tried bit by bit."""


class DoesNotFit(Exception):
    """No tree of the depth asked for was found.

    Attributes:
        needed_depth: a depth that is enough; None where the predicate is too large to find one.
    """

    def __init__(self, needed_depth: int | None) -> None:
        super().__init__("too large" if needed_depth is None else f"needs depth {needed_depth}")
        self.needed_depth = needed_depth

    @property
    def needed_leaves(self) -> int | None:
        """2^needed_depth."""
        return None if self.needed_depth is None else 1 << self.needed_depth


class Work:
    """What may still be done."""

    def __init__(self) -> None:
        self._left = _MAX_WORK

    def spend(self, amount: int) -> None:
        self._left -= amount
        if self._left < 0:
            raise DoesNotFit(None)


class Writer(ABC):
    """Writes normal forms as wires of a circuit over leaves.

    Attributes:
        leaves: what the circuit's inputs stand for, not negated.
    """

    spell_out = True
    """Whether Hamming distances become sets of codes."""

    def __init__(self, schema: Attributes, work: Work) -> None:
        self.schema = schema
        self.work = work
        self.normal = NormalForm(schema, spell_out=self.spell_out)
        self.builder = CircuitBuilder()
        self.leaves: list[AnyLeaf] = []
        self._known: dict[Hashable, Wire] = {}

    def circuit(self, parts: Iterable[Part]) -> Circuit:
        """The OR of the parts over leaves: AND and OR, NOT on inputs only, or a constant."""
        wire = self.builder.any_of(map(self.wire, parts))
        return balance(negation_normal_form(self.builder.build(wire)))

    @abstractmethod
    def constant(self, value: bool) -> AnyLeaf:
        """The leaf that is always `value`."""

    @abstractmethod
    def negated(self, leaf: AnyLeaf) -> AnyLeaf:
        """The leaf's opposite."""

    @abstractmethod
    def inside(self, attribute: str, low: int, high: int) -> list[Wire]:
        """Wires whose AND is [the attribute's code is in the range]; never all of its codes."""

    def leaf(self, content: Hashable, leaf: AnyLeaf) -> Wire:
        """The wire of a leaf; `content` tells leaves apart."""
        if content not in self._known:
            self.work.spend(4)
            (self._known[content],) = self.builder.inputs(1)
            self.leaves.append(leaf)
        return self._known[content]

    def wire(self, part: Part) -> Wire:
        """The wire of a part."""
        if isinstance(part, Distance):
            made = self.distance(part)
        elif isinstance(part, AtLeast):
            made = counting.at_least(part.k, [self.wire(other) for other in part.parts])
        else:
            made = self.builder.all_of(self.conjuncts(part))
        return ~made if part.negated else made

    def conjuncts(self, part: Conjunction) -> list[Wire]:
        """Wires whose AND is the conjunction, negated or not."""
        wires = [wire for name, allowed in part.sets.items() for wire in self.member(name, allowed)]
        return wires + [self.wire(other) for other in part.parts]

    def distance(self, part: Distance) -> Wire:
        """[the code differs from the value in at most `limit` bits]."""
        raise DoesNotFit(None)

    def member(self, attribute: str, allowed: Intervals) -> list[Wire]:
        """Wires whose AND is [the attribute's code is in the set], a set neither empty nor full."""
        last = self.schema[attribute].size - 1
        low, high = allowed[0][0], allowed[-1][1]
        hull = self.inside(attribute, low, high) if (low, high) != (0, last) else []
        if len(allowed) == 1:
            return hull
        gaps = common(complement(allowed, last), ((low, high),))
        without = hull + [~self._range(attribute, *gap) for gap in gaps]
        ranges = self.builder.any_of(self._range(attribute, *pair) for pair in allowed)
        return min(without, [ranges], key=_weight)

    def _range(self, attribute: str, low: int, high: int) -> Wire:
        return self.builder.all_of(self.inside(attribute, low, high))


def _weight(wires: list[Wire]) -> int:
    """How much of a tree an AND of these takes; its depth is the binary logarithm."""
    return sum(1 << wire.depth for wire in wires)


class Ranges(Writer):
    def constant(self, value: bool) -> IntervalLeaf:
        return IntervalLeaf(value, None, 1, 0)

    def negated(self, leaf: AnyLeaf) -> IntervalLeaf:
        assert isinstance(leaf, IntervalLeaf)
        return IntervalLeaf(not leaf.negated, leaf.attribute, leaf.low, leaf.high)

    def inside(self, attribute: str, low: int, high: int) -> list[Wire]:
        leaf = IntervalLeaf(False, attribute, low, high)
        return [self.leaf((attribute, low, high), leaf)]


def _block(bits: int, low: int, high: int) -> Prefix | None:
    """A range that is all codes of one prefix, as that."""
    size = high - low + 1
    if size & (size - 1) or low % size:
        return None
    return Prefix(low, bits - (size.bit_length() - 1))


class Comparisons(Writer):
    def constant(self, value: bool) -> CompareLeaf:
        return CompareLeaf(value, None, None)

    def negated(self, leaf: AnyLeaf) -> CompareLeaf:
        assert isinstance(leaf, CompareLeaf)
        return CompareLeaf(not leaf.negated, leaf.attribute, leaf.condition)

    def inside(self, attribute: str, low: int, high: int) -> list[Wire]:
        kind = self.schema[attribute]
        if low == 0:
            return [self._leaf(attribute, Below(high + 1))]
        above = ~self._leaf(attribute, Below(low))
        if high == kind.size - 1:
            return [above]
        block = _block(kind.bits, low, high)
        if block is not None:
            return [self._leaf(attribute, block)]
        return [above, self._leaf(attribute, Below(high + 1))]

    def _leaf(self, attribute: str, condition: Below | Prefix) -> Wire:
        return self.leaf((attribute, condition), CompareLeaf(False, attribute, condition))


class Literals(Writer):
    spell_out = False

    def constant(self, value: bool) -> LiteralLeaf:
        return LiteralLeaf(value, None)

    def negated(self, leaf: AnyLeaf) -> LiteralLeaf:
        assert isinstance(leaf, LiteralLeaf)
        return LiteralLeaf(not leaf.negated, leaf.bit)

    def bits(self, attribute: str) -> list[Wire]:
        """The wires of an attribute's bits, most significant first."""
        first = 0
        for name in self.schema:
            if name == attribute:
                break
            first += self.schema[name].bits
        places = range(first, first + self.schema[attribute].bits)
        return [self.leaf(place, LiteralLeaf(False, place)) for place in places]

    def inside(self, attribute: str, low: int, high: int) -> list[Wire]:
        kind = self.schema[attribute]
        bits = self.bits(attribute)
        self.work.spend(3 * kind.bits)
        block = _block(kind.bits, low, high)
        if block is not None:
            codes = block.value >> (kind.bits - block.length)
            return [blocks.equal(bits[: block.length], codes)]
        self.work.spend(kind.bits**2 * (1 + (low > 0 and high < kind.size - 1)))
        if high == kind.size - 1:
            return [~blocks.less_than(bits, low)]
        return [blocks.within(bits, low, high)]

    def member(self, attribute: str, allowed: Intervals) -> list[Wire]:
        made = super().member(attribute, allowed)
        kind = self.schema[attribute]
        if kind.bits * len(allowed) > _MAX_DECISIONS:
            return made
        self.work.spend(16 * kind.bits * len(allowed))
        decided = _decision(self.builder, self.bits(attribute), allowed, kind.size)
        return min(made, [decided], key=_weight)

    def distance(self, part: Distance) -> Wire:
        bits = self.bits(part.attribute)
        self.work.spend(4 * len(bits) ** 2)
        k = len(bits)
        different = [x ^ bool(part.value >> (k - 1 - i) & 1) for i, x in enumerate(bits)]
        return ~counting.at_least(part.limit + 1, different)


def _decision(builder: CircuitBuilder, bits: list[Wire], allowed: Intervals, size: int) -> Wire:
    """[the code, which is below `size`, is in the set]: bit by bit, without those of no matter."""
    if not allowed or allowed == ((0, size - 1),):
        return builder.constant(bool(allowed))
    first, *rest = bits
    half = 1 << len(rest)
    if size <= half:
        return _decision(builder, rest, allowed, size)
    zero = common(allowed, ((0, half - 1),))
    one = tuple((low - half, high - half) for low, high in common(allowed, ((half, size - 1),)))
    if common(zero, ((0, size - half - 1),)) == one:
        return _decision(builder, rest, zero, half)
    if_zero = _decision(builder, rest, zero, half)
    if common(zero, one) == one:  # read with codes of either half
        return _decision(builder, rest, one, half) | (~first & if_zero)
    if_one = _decision(builder, rest, one, size - half)
    if common(zero, one) == zero:
        return if_zero | (first & if_one)
    return (first & if_one) | (~first & if_zero)
