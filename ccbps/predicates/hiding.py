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

`hide` writes a predicate as a tree, of the least depth that is found with bounded work. The
predicate's normal form becomes a circuit of AND, OR and NOT whose inputs are leaves. Where that
is too deep, the predicate as a union of products is tried, too. The circuit is unfolded into the
tree, whose spare leaves are constants. Of several ways to write a part the shallowest is taken:

- A set of codes is an OR of ranges, or a hull without gaps: ``x NOT IN (5, 9)``.
- A range is one leaf, except that ``compare`` needs two for a range that is neither below nor above
  a bound, nor a block of a prefix, and ``literal`` a circuit over the attribute's bits.
- All ranges of a conjunction are one ``box``, and none where they can move into the alternatives of
  an OR beside them.

The work is counted, so that a hostile predicate is refused before it is done.

Not protected: a tree is the subscription itself. No repr shows its contents.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from ccbps.arrays import Bools
from ccbps.checks import Printable, choice, whole
from ccbps.circuits import (
    Circuit,
    CircuitBuilder,
    Op,
    Wire,
    balance,
    blocks,
    negation_normal_form,
    networks,
)
from ccbps.errors import ParameterError
from ccbps.predicates.attributes import Attributes, Events
from ccbps.predicates.box import (
    AtLeast,
    Conjunction,
    Distance,
    NormalForm,
    NotABox,
    Part,
    union_of,
)
from ccbps.predicates.codes import Intervals, common, complement, conjunction, in_range
from ccbps.predicates.form import AtLeastOf, Form

LeafKind: TypeAlias = Literal["literal", "compare", "interval", "box"]

MAX_DEPTH: Final = 16
"""Most levels of a tree: it is written out, all 2^depth leaves."""

_MAX_PAIRS: Final = 256
"""Most pairs of products that are joined by AND at a time."""
MAX_WORK: Final = 1 << 18
"""Most work, in units of some 5 microseconds."""
_MAX_DECISIONS: Final = 256
"""Bits times ranges of a set that is also tried bit by bit."""


@dataclass(frozen=True, slots=True, repr=False)
class TreeNode:
    """A node: the OR of its two children if `either`, else their AND; inverted if `negated`."""

    either: bool
    negated: bool


@dataclass(frozen=True, slots=True, repr=False)
class LiteralLeaf:
    """A leaf of kind ``literal``: one bit of the event is set.

    Attributes:
        negated: True if the truth value is inverted.
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
class RangeLeaf:
    """A leaf of another kind: the code of every attribute named is in its range.

    Attributes:
        negated: True if the truth value is inverted: without ranges, the leaf is then always false.
        ranges: (low, high), bounds included and never empty; other attributes are unlimited. Of
            kind ``compare``, a range begins at 0 or is a `block`.
    """

    negated: bool
    ranges: Mapping[str, tuple[int, int]]

    def evaluate(self, events: Events) -> Bools:
        """Evaluate the leaf for every event, shape (count,)."""
        inside = [np.ones(events.count, dtype=np.bool_)]
        inside += [in_range(events.codes[name], *pair) for name, pair in self.ranges.items()]
        return conjunction(inside) ^ np.bool_(self.negated)


AnyLeaf: TypeAlias = LiteralLeaf | RangeLeaf


def block(low: int, high: int) -> int | None:
    """Count the free last bits of a range that is all codes of one prefix; None for others."""
    size = high - low + 1
    return None if size & (size - 1) or low % size else size.bit_length() - 1


@dataclass(frozen=True, slots=True, repr=False)
class HiddenTree(Printable):
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


# -- writing a predicate as a tree -----------------------------------------------------------------


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


def hide(schema: Attributes, form: Form, depth: int, kind: LeafKind) -> HiddenTree:
    """Write a tree that is true of the same events of the schema as the form.

    Args:
        schema: the attributes.
        form: code form of a bound predicate.
        depth: levels of the tree, 0..`MAX_DEPTH`; it has 2^depth leaves.
        kind: kind of its leaves.

    Raises:
        DoesNotFit: the form needs a deeper tree, or is too large.
        ParameterError: `depth` or `kind` is not possible; or a bound is private and not filled in.
    """
    writer = _WRITERS[choice("leaf", kind, _WRITERS)](schema)
    depth = whole("depth", depth, 0, MAX_DEPTH)
    pending = [form]
    while pending:
        node = pending.pop()
        writer.spend(16 + (4 * len(node.children) ** 2 if isinstance(node, AtLeastOf) else 0))
        pending.extend(node.children)
    part = writer.normal.of(form)
    circuit = writer.circuit([part])
    if circuit.depth > depth:
        circuits = [circuit, *_as_products(part, writer)]
        circuit = min(circuits, key=lambda candidate: candidate.depth)
    if circuit.depth > depth:
        raise DoesNotFit(circuit.depth)
    return _unfolded(circuit, writer, depth)


def _as_products(part: Part, writer: Writer) -> list[Circuit]:
    """Write a part as a union of products, unless that is too much work."""
    normal = writer.normal
    try:
        union = union_of(writer.schema, part, most_pairs=_MAX_PAIRS)
        # One by one: the normal form of their OR would be one leaf less open to each of them.
        parts = [
            normal.all_of(normal.member(*pair) for pair in product.items()) for product in union
        ]
        return [writer.circuit(parts)]
    except (NotABox, DoesNotFit):
        return []


def _unfolded(circuit: Circuit, writer: Writer, depth: int) -> HiddenTree:
    """Unfold the circuit into a tree; spare leaves are constants, true and joined by AND."""
    nodes = [TreeNode(either=False, negated=False)] * ((1 << depth) - 1)
    leaves: list[AnyLeaf] = [writer.always] * (1 << depth)
    pending = [(circuit.outputs[0], 0)]
    while pending:
        wire, place = pending.pop()
        op, a, b = (Op.XOR, 0, 0) if wire < circuit.inputs else circuit.gates[wire - circuit.inputs]
        if op in (Op.AND, Op.OR):
            nodes[place] = TreeNode(either=op == Op.OR, negated=False)
            pending += [(a, 2 * place + 1), (b, 2 * place + 2)]
            continue
        if op in (Op.FALSE, Op.TRUE):
            leaf = writer.always
        else:
            leaf = writer.leaves[a if op == Op.NOT else wire]
        if op in (Op.FALSE, Op.NOT):
            leaf = replace(leaf, negated=not leaf.negated)
        while place < len(nodes):
            place = 2 * place + 1
        leaves[place - len(nodes)] = leaf
    return HiddenTree(depth, tuple(nodes), tuple(leaves))


class Writer:
    """A writer of normal forms as wires of a circuit over leaves: by default ``interval`` leaves.

    Attributes:
        normal: the maker of normal forms.
        leaves: leaves that the circuit's inputs stand for, not negated.
        always: the leaf that is true of every event.
        spell_out: True if Hamming distances become sets of codes.
    """

    always: AnyLeaf = RangeLeaf(False, {})
    spell_out = True

    def __init__(self, schema: Attributes, *, work: float = MAX_WORK) -> None:
        self.schema = schema
        self.normal = NormalForm(schema, spell_out=self.spell_out)
        self.builder = CircuitBuilder()
        self.leaves: list[AnyLeaf] = []
        self._wires: dict[Hashable, Wire] = {}
        self._work = work

    def spend(self, amount: int) -> None:
        """Count work.

        Raises:
            DoesNotFit: it is too much.
        """
        self._work -= amount
        if self._work < 0:
            raise DoesNotFit(None)

    def circuit(self, parts: Iterable[Part]) -> Circuit:
        """Write the OR of the parts over leaves: AND and OR, NOT on inputs only, or a constant."""
        wire = self.builder.any_of(map(self.wire, parts))
        return balance(negation_normal_form(self.builder.build(wire)))

    def inside(self, attribute: str, low: int, high: int) -> list[Wire]:
        """Return wires whose AND is [the code is in the range]; the range is never all codes."""
        return [self.box({attribute: (low, high)})]

    def leaf(self, content: Hashable, leaf: AnyLeaf) -> Wire:
        """Return the wire of a leaf; `content` tells leaves apart."""
        if content not in self._wires:
            self.spend(4)
            (self._wires[content],) = self.builder.inputs(1)
            self.leaves.append(leaf)
        return self._wires[content]

    def box(self, ranges: dict[str, tuple[int, int]]) -> Wire:
        """Return the wire of a leaf with these ranges."""
        return self.leaf(frozenset(ranges.items()), RangeLeaf(False, ranges))

    def wire(self, part: Part) -> Wire:
        """Return the wire of a part."""
        if isinstance(part, Distance):
            wire = self.distance(part)
        elif isinstance(part, AtLeast):
            wire = networks.at_least(part.k, [self.wire(other) for other in part.parts])
        else:
            wire = self.builder.all_of(self.conjuncts(part))
        return ~wire if part.negated else wire

    def conjuncts(self, part: Conjunction) -> list[Wire]:
        """Return wires whose AND is the conjunction, its negation left aside."""
        wires = [wire for name, allowed in part.sets.items() for wire in self.member(name, allowed)]
        return wires + [self.wire(other) for other in part.parts]

    def distance(self, part: Distance) -> Wire:
        """Return the wire of [the code differs from the value in at most `limit` bits]."""
        raise DoesNotFit(None)

    def member(self, attribute: str, allowed: Intervals) -> list[Wire]:
        """Return wires whose AND is [the code is in the set]; the set is neither empty nor full."""
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
    """Return how much of a tree an AND of these takes; its depth is the binary logarithm."""
    return sum(1 << wire.depth for wire in wires)


class Comparisons(Writer):
    """A writer of ``compare`` leaves: a bound or a prefix of one attribute each."""

    def inside(self, attribute: str, low: int, high: int) -> list[Wire]:
        if low == 0:
            return [self.box({attribute: (0, high)})]
        above = ~self.box({attribute: (0, low - 1)})
        if high == self.schema[attribute].size - 1:
            return [above]
        if block(low, high) is not None:
            return [self.box({attribute: (low, high)})]
        return [above, self.box({attribute: (0, high)})]


class Literals(Writer):
    """A writer of ``literal`` leaves: circuits over the bits of codes."""

    always = LiteralLeaf(True, None)
    spell_out = False

    def bits(self, attribute: str) -> list[Wire]:
        """Return the wires of an attribute's bits, most significant first."""
        first = self.schema.first_bits[attribute]
        places = range(first, first + self.schema[attribute].bits)
        return [self.leaf(place, LiteralLeaf(False, place)) for place in places]

    def inside(self, attribute: str, low: int, high: int) -> list[Wire]:
        kind = self.schema[attribute]
        bits = self.bits(attribute)
        self.spend(3 * kind.bits)
        free = block(low, high)
        if free is not None:
            return [blocks.equal(bits[: kind.bits - free], low >> free)]
        self.spend(kind.bits**2 * (1 + (low > 0 and high < kind.size - 1)))
        if high == kind.size - 1:
            return [~blocks.less_than(bits, low)]
        return [blocks.within(bits, low, high)]

    def member(self, attribute: str, allowed: Intervals) -> list[Wire]:
        wires = super().member(attribute, allowed)
        kind = self.schema[attribute]
        if kind.bits * len(allowed) > _MAX_DECISIONS:
            return wires
        self.spend(16 * kind.bits * len(allowed))
        decided = _decision(self.builder, self.bits(attribute), allowed, kind.size)
        return min(wires, [decided], key=_weight)

    def distance(self, part: Distance) -> Wire:
        bits = self.bits(part.attribute)
        k = len(bits)
        self.spend(4 * k**2)
        different = [x ^ bool(part.value >> (k - 1 - i) & 1) for i, x in enumerate(bits)]
        return ~networks.at_least(part.limit + 1, different)


def _decision(builder: CircuitBuilder, bits: list[Wire], allowed: Intervals, size: int) -> Wire:
    """Decide [the code, which is below `size`, is in the set], bit by bit, free bits left out."""
    if not allowed or allowed == ((0, size - 1),):
        return builder.constant(bool(allowed))
    first, *rest = bits
    half = 1 << len(rest)
    if size <= half:
        return _decision(builder, rest, allowed, size)
    low_half = common(allowed, ((0, half - 1),))
    high_half = tuple(
        (low - half, high - half) for low, high in common(allowed, ((half, size - 1),))
    )
    if common(low_half, ((0, size - half - 1),)) == high_half:
        return _decision(builder, rest, low_half, half)
    if_zero = _decision(builder, rest, low_half, half)
    if common(low_half, high_half) == high_half:  # read with codes of either half
        return _decision(builder, rest, high_half, half) | (~first & if_zero)
    if_one = _decision(builder, rest, high_half, size - half)
    if common(low_half, high_half) == low_half:
        return if_zero | (first & if_one)
    return (first & if_one) | (~first & if_zero)


class Boxes(Writer):
    """A writer of ``box`` leaves: ranges on many attributes each, and few leaves."""

    def conjuncts(self, part: Conjunction) -> list[Wire]:
        ranges = self._hulls(part)
        wires: list[Wire] = []
        for name, allowed in part.sets.items():
            last = self.schema[name].size - 1
            gaps = common(complement(allowed, last), (ranges.get(name, (0, last)),))
            wires.extend(~self.box({name: gap}) for gap in gaps)
        others = list(part.parts)
        if ranges:
            box = Conjunction({name: (pair,) for name, pair in ranges.items()}, (), negated=False)
            if not self._absorb(others, box):
                wires.append(self.box(ranges))
        return wires + [self.wire(other) for other in others]

    def _hulls(self, part: Conjunction) -> dict[str, tuple[int, int]]:
        """Return the ranges of a conjunction that limit anything, gaps left aside."""
        hulls = {name: (allowed[0][0], allowed[-1][1]) for name, allowed in part.sets.items()}
        return {n: pair for n, pair in hulls.items() if pair != (0, self.schema[n].size - 1)}

    def _absorb(self, parts: list[Part], box: Part) -> bool:
        """Move a box into one of the parts that it is joined with, if one takes it for nothing."""
        for place, part in enumerate(parts):
            joined = self._absorbed(part, box)
            if joined is not None:
                parts[place] = joined
                return True
        return False

    def _absorbed(self, part: Part, box: Part) -> Part | None:
        """Return part AND box in no more leaves than `part`; None if no such form is found."""
        self.spend(8)
        if not isinstance(part, Conjunction):
            return None
        if not part.negated:
            if self._hulls(part):
                return self.normal.all_of([part, box])
            others = list(part.parts)
            if not self._absorb(others, box):
                return None
            return self.normal.all_of([Conjunction(part.sets, (), negated=False), *others])
        alternatives = list(map(self.normal.negation, part.parts))
        if part.sets:  # several of them would come apart: they are one leaf, negated
            ((name, allowed), *more) = part.sets.items()
            outside = complement(allowed, self.schema[name].size - 1)
            if more or len(outside) > 1:
                return None
            alternatives.append(self.normal.member(name, outside))
        joined = [self._absorbed(alternative, box) for alternative in alternatives]
        taken = [alternative for alternative in joined if alternative is not None]
        return self.normal.any_of(taken) if len(taken) == len(joined) else None


_WRITERS: Final[dict[str, type[Writer]]] = {
    "literal": Literals,
    "compare": Comparisons,
    "interval": Writer,
    "box": Boxes,
}
