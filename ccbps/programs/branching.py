"""Mod-2 branching programs over the bits of two parties, and how to compose them.

A program is a DAG on nodes 0 .. s in topological order. Each edge carries an affine bit: a sum mod
2 of event bits, interest bits and a constant. The value is the number of paths from node 0
to node s whose edges all carry 1, mod 2; equally det(L) over GF(2) of the s x s matrix with
L[u, v - 1] = label of edge u -> v and ones just below the diagonal.

No label ever multiplies an event bit with an interest bit, so L = L_event + L_interest and each
party can encode its own half.

Costs, in *inner nodes* (s = inner nodes + 1):

=====================  =====================================================
AND (series)           sum of the parts, plus 1 for each join
XOR, disjoint OR       sum of the parts (parallel)
NOT                    0 (one constant edge from source to sink)
OR                     as AND, by De Morgan
equality of k bits     k - 1 (a chain of k edges)
comparison             k
interval               2k - 1: two chains that share their last node
=====================  =====================================================

Hazard: a program is public. Constants written into labels are visible to everyone; constants that
must stay private are interest bits.

Source: Ishai and Kushilevitz, FOCS 2000.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from ccbps.errors import ParameterError, ShapeError


class Label(Struct, frozen=True):
    """An affine bit: XOR of event bits, interest bits and a constant. Add labels with ``^``.

    Attributes:
        event: numbers of event bits.
        interest: numbers of interest bits.
        one: True if the constant 1 is added.
    """

    event: frozenset[int] = frozenset()
    interest: frozenset[int] = frozenset()
    one: bool = False

    def __xor__(self, other: Label) -> Label:
        return Label(
            self.event ^ other.event, self.interest ^ other.interest, self.one != other.one
        )

    def __bool__(self) -> bool:
        return bool(self.event or self.interest or self.one)


ZERO = Label()
ONE = Label(one=True)


def event_bit(index: int) -> Label:
    """Return the label of bit ``index`` of the event."""
    return Label(event=frozenset((index,)))


def interest_bit(index: int) -> Label:
    """Return the label of bit ``index`` of the subscriber's private constants."""
    return Label(interest=frozenset((index,)))


def differences(first_event: int, bits: int, first_interest: int) -> list[Label]:
    """Return the sum of each event bit with an interest bit, which is 1 where the two differ.

    Args:
        first_event: number of the first event bit.
        bits: number of event bits.
        first_interest: number of the first interest bit.
    """
    return [event_bit(first_event + i) ^ interest_bit(first_interest + i) for i in range(bits)]


class BranchingProgram(Struct, frozen=True):
    """A mod-2 branching program. Build one with the functions of `ccbps.programs`.

    Attributes:
        size: s, the sink's number; the matrix L is s x s and the DAG has s + 1 nodes.
        edges: ``(u, v) -> Label`` with 0 <= u < v <= s; parallel edges are merged by XOR, and
            edges whose label is the constant 0 are left out.
    """

    size: int
    edges: dict[tuple[int, int], Label]

    @classmethod
    def from_edges(cls, size: int, edges: Iterable[tuple[int, int, Label]]) -> BranchingProgram:
        """Build a program of edges: merge parallel ones, leave out those that are constantly 0."""
        merged: dict[tuple[int, int], Label] = {}
        for u, v, label in edges:
            merged[u, v] = merged.get((u, v), ZERO) ^ label
        return cls(size, {key: label for key, label in sorted_edges(merged) if label})

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ParameterError(f"size must be at least 1, got {self.size}")
        for u, v in self.edges:
            if not 0 <= u < v <= self.size:
                raise ParameterError(f"edge ({u}, {v}) must run upward within nodes 0..{self.size}")

    def __hash__(self) -> int:
        return hash(self.size)

    @property
    def inner_nodes(self) -> int:
        """Number of nodes other than source and sink."""
        return self.size - 1

    @property
    def event_bits(self) -> int:
        """Greatest number of an event bit used, plus 1."""
        return 1 + max((i for e in self.edges.values() for i in e.event), default=-1)

    @property
    def interest_bits(self) -> int:
        """Greatest number of an interest bit used, plus 1."""
        return 1 + max((i for e in self.edges.values() for i in e.interest), default=-1)


def sorted_edges(edges: dict[tuple[int, int], Label]) -> list[tuple[tuple[int, int], Label]]:
    """Return edges by target, then by source: the order in which columns of L are built."""
    return sorted(edges.items(), key=lambda item: (item[0][1], item[0][0]))


def constant(value: bool | Label) -> BranchingProgram:
    """Build one edge from source to sink that carries a label (or a public bit)."""
    label = value if isinstance(value, Label) else Label(one=value)
    return BranchingProgram.from_edges(1, [(0, 1, label)])


def series(*programs: BranchingProgram) -> BranchingProgram:
    """Join programs by AND: a sink is the next source. Inner nodes add, plus one for each join."""
    edges, shift = [], 0
    for program in programs:
        edges += [(u + shift, v + shift, e) for (u, v), e in program.edges.items()]
        shift += program.size
    return BranchingProgram.from_edges(shift, edges)


def parallel(*programs: BranchingProgram) -> BranchingProgram:
    """Join programs by XOR: common source and sink, inner nodes add. OR, if no two are true."""
    size = 1 + sum(program.inner_nodes for program in programs)
    edges, shift = [], 0
    for program in programs:
        place = {0: 0, program.size: size}
        edges += [
            (place.get(u, u + shift), place.get(v, v + shift), e)
            for (u, v), e in program.edges.items()
        ]
        shift += program.inner_nodes
    return BranchingProgram.from_edges(size, edges)


def negation(program: BranchingProgram, by: Label = ONE) -> BranchingProgram:
    """Negate a program, or add any label (an interest bit hides whether it does). No node."""
    edges = [(u, v, e) for (u, v), e in program.edges.items()]
    return BranchingProgram.from_edges(program.size, [*edges, (0, program.size, by)])


def conjunction(programs: Sequence[BranchingProgram]) -> BranchingProgram:
    """Join any number of programs by AND; of none: true."""
    return series(*programs) if programs else constant(True)


def disjunction(
    programs: Sequence[BranchingProgram], *, disjoint: bool = False
) -> BranchingProgram:
    """Join any number of programs by OR; of none: false.

    Args:
        programs: the programs.
        disjoint: whether at most one of them is ever true, which saves nodes.
    """
    if disjoint:
        return parallel(*programs) if programs else constant(False)
    return negation(conjunction([negation(p) for p in programs]))


# -- comparison: values are lists of labels, most significant bit first ---------------------------


def check_widths(value: Sequence[Label], other: Sequence[Label]) -> None:
    """Check that both values have the same number of bits, at least 1.

    Raises:
        ShapeError: they have different numbers of bits, or none.
    """
    if not value or len(value) != len(other):
        raise ShapeError(
            "both sides must have the same number of bits, at least 1, "
            f"got {len(value)} and {len(other)}"
        )


def equality(value: Sequence[Label], other: Sequence[Label]) -> BranchingProgram:
    """Return [value = other]: a chain of k edges, of which edge i carries value_i + other_i + 1."""
    check_widths(value, other)
    return BranchingProgram.from_edges(
        len(value),
        [(i, i + 1, x ^ c ^ ONE) for i, (x, c) in enumerate(zip(value, other, strict=True))],
    )


def less_than(
    value: Sequence[Label], bound: Sequence[Label], flip: Label = ZERO
) -> BranchingProgram:
    """Return [value < bound] XOR flip, most significant bit first, with k inner nodes.

    Let e_i be "the first i bits are equal". The first difference decides, so
    [x < c] = sum over i of e_i c_i (1 + x_i) mod 2. For i < k - 1 the term is (e_i + e_{i+1}) c_i:
    it needs only the private constants c_i + c_{i-1} on an edge from chain node i to the sink. The
    last term takes an additional node: e_{k-1} --c_{k-1}--> node --(1 + x_{k-1})--> sink.

    `flip`, on the edge source -> sink, negates the comparison. It also makes constants that no
    k-bit bound gives (bound 0 and flip 1: always true).
    """
    check_widths(value, bound)
    k = len(value)
    last, sink = k, k + 1
    edges = [
        *_chain(value, bound, range(k), sink),
        (k - 1, last, bound[k - 1]),
        (last, sink, value[k - 1] ^ ONE),
        (0, sink, flip),
    ]
    return BranchingProgram.from_edges(sink, edges)


def below_constant(value: Sequence[Label], bound: int) -> BranchingProgram:
    """Return [value < bound] for a public bound, without its trailing zeros and the last node."""
    if bound <= 0 or bound >> len(value):
        return constant(bound > 0)
    k = len(value) - (bound & -bound).bit_length() + 1
    digits = [ONE if bound >> (len(value) - 1 - i) & 1 else ZERO for i in range(k)]
    return BranchingProgram.from_edges(
        k, [*_chain(value[:k], digits, range(k), k), (k - 1, k, value[k - 1] ^ ONE)]
    )


def interval(
    value: Sequence[Label], low: Sequence[Label], high: Sequence[Label]
) -> BranchingProgram:
    """Return [low <= value <= high], bounds included, with 2k - 1 inner nodes.

    It is [x <= high] + [x < low] mod 2: two chains from one source to one sink. Their last terms
    are h (1 + x (1 + c)) and l c (1 + x), with h, l the two chains' nodes k - 1 and x, c the last
    bits. Both have the form a + b x, so a single node in front of an edge labelled x serves both.

    The interval is empty if low = high + 1. With low > high + 1 the sum is 1 between the bounds:
    canonicalise empty intervals first.
    """
    check_widths(value, low)
    check_widths(value, high)
    k = len(value)
    low_chain = [0, *range(k, 2 * k - 1)]
    last, sink = 2 * k - 1, 2 * k
    high_end, low_end = k - 1, low_chain[-1]
    edges = [
        *_chain(value, high, range(k), sink),
        *_chain(value, low, low_chain, sink),
        (high_end, sink, ONE),
        (high_end, last, ONE ^ high[-1]),
        (low_end, sink, low[-1]),
        (low_end, last, low[-1]),
        (last, sink, value[-1]),
    ]
    return BranchingProgram.from_edges(sink, edges)


def _chain(
    value: Sequence[Label], bound: Sequence[Label], nodes: Sequence[int], sink: int
) -> list[tuple[int, int, Label]]:
    """Return the equality chain over all bits but the last, and the exits (e_i + e_{i+1}) c_i."""
    edges = []
    for i in range(len(value) - 1):
        edges.append((nodes[i], nodes[i + 1], value[i] ^ bound[i] ^ ONE))
        edges.append((nodes[i], sink, bound[i]))
        edges.append((nodes[i + 1], sink, bound[i]))
    return edges


# -- counting: graphs with a node for each place and each number so far ---------------------------


def hamming_within(value: Sequence[Label], other: Sequence[Label], limit: int) -> BranchingProgram:
    """Return [Hamming distance of two bit strings <= limit].

    It has a node for each bit and each distance so far.
    """
    check_widths(value, other)
    if not 0 <= limit < len(value):
        return constant(limit >= 0)
    graph = _Graph()
    row = {0: graph.source}
    for x, c in zip(value, other, strict=True):
        following: dict[int, int] = {}
        for distance, node in row.items():
            for reached, label in ((distance, x ^ c ^ ONE), (distance + 1, x ^ c)):
                if reached <= limit:
                    following.setdefault(reached, graph.node())
                    graph.add(node, following[reached], label)
        row = following
    for node in row.values():
        graph.add(node, graph.sink, ONE)
    return graph.program()


def at_least(count: int, programs: Sequence[BranchingProgram]) -> BranchingProgram:
    """Return [at least `count` of the programs are true].

    It has a node for each program and each number so far.
    """
    if not 0 < count <= len(programs):
        return constant(count <= 0)
    graph = _Graph()
    row = {0: graph.source}
    for done, program in enumerate(programs):
        following: dict[int, int] = {}
        for true, node in row.items():
            left = len(programs) - done - 1
            if true + 1 == count:
                graph.embed(program, node, graph.sink)
            else:
                following.setdefault(true + 1, graph.node())
                graph.embed(program, node, following[true + 1])
            if true + left >= count:
                following.setdefault(true, graph.node())
                graph.embed(negation(program), node, following[true])
        row = following
    return graph.program()


def at_least_size(count: int, sizes: Sequence[int]) -> int:
    """Return the size of `at_least` of programs of some sizes, before any node is dropped."""
    if count <= 0 or count > len(sizes):
        return 1
    nodes, row = 0, {0}
    for done, size in enumerate(sizes):
        following = set()
        for true in row:
            nodes += size - 1
            if true + 1 < count:
                following.add(true + 1)
            if true + len(sizes) - done - 1 >= count:
                nodes += size - 1
                following.add(true)
        nodes += len(following)
        row = following
    return nodes + 1


class _Graph:
    """A DAG under construction with a source and a sink. Its nodes are numbered at the end."""

    source = 0
    sink = 1

    def __init__(self) -> None:
        self._nodes = 2
        self._edges: dict[tuple[int, int], Label] = {}

    def node(self) -> int:
        self._nodes += 1
        return self._nodes - 1

    def add(self, u: int, v: int, label: Label) -> None:
        self._edges[u, v] = self._edges.get((u, v), ZERO) ^ label

    def embed(self, program: BranchingProgram, u: int, v: int) -> None:
        """Insert a program between two nodes."""
        inner = [u, *(self.node() for _ in range(program.inner_nodes)), v]
        for (a, b), label in program.edges.items():
            self.add(inner[a], inner[b], label)

    def program(self) -> BranchingProgram:
        """Return the program of the nodes on a path from source to sink, in reverse postorder."""
        forward: dict[int, list[int]] = {}
        for (u, v), label in self._edges.items():
            if label:
                forward.setdefault(u, []).append(v)
        useful = {self.sink: None}
        for node in self._postorder(forward):  # targets come before their sources
            if any(target in useful for target in forward.get(node, ())):
                useful[node] = None
        if self.source not in useful:
            return constant(False)
        _, *order = useful
        order = [*reversed(order), self.sink]
        number = {node: i for i, node in enumerate(order)}
        return BranchingProgram.from_edges(
            len(order) - 1,
            [
                (number[u], number[v], label)
                for (u, v), label in self._edges.items()
                if u in number and v in number
            ],
        )

    def _postorder(self, forward: dict[int, list[int]]) -> list[int]:
        order: list[int] = []
        seen = {self.source}
        stack = [(self.source, iter(forward.get(self.source, ())))]
        while stack:
            node, targets = stack[-1]
            for target in targets:
                if target not in seen:
                    seen.add(target)
                    stack.append((target, iter(forward.get(target, ()))))
                    break
            else:
                order.append(node)
                stack.pop()
        return order
