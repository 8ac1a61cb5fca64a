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
=====================  =====================================================

Hazard: a program is public. Constants written into labels are visible to everyone; constants that
must stay private are interest bits.

Source: Ishai and Kushilevitz, FOCS 2000.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ccbps.errors import ParameterError, ShapeError


@dataclass(frozen=True, slots=True)
class Label:
    """An affine bit: XOR of event bits, interest bits and a constant. Add labels with ``^``.

    Attributes:
        event: numbers of event bits.
        interest: numbers of interest bits.
        one: whether the constant 1 is added.
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


@dataclass(frozen=True, slots=True)
class BranchingProgram:
    """A mod-2 branching program. Build one with the functions of `ccbps.programs`.

    Attributes:
        size: s, the sink's number; the matrix L is s x s and the DAG has s + 1 nodes.
        edges: ``(u, v) -> Label`` with 0 <= u < v <= s; parallel edges are merged by XOR, and
            edges whose label is the constant 0 are left out.
    """

    size: int
    edges: dict[tuple[int, int], Label] = field(hash=False)

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

    @property
    def inner_nodes(self) -> int:
        """Count the nodes other than source and sink."""
        return self.size - 1

    @property
    def event_bits(self) -> int:
        """Return one more than the largest event bit used."""
        return 1 + max((i for e in self.edges.values() for i in e.event), default=-1)

    @property
    def interest_bits(self) -> int:
        """Return one more than the largest interest bit used."""
        return 1 + max((i for e in self.edges.values() for i in e.interest), default=-1)

    def matrix(self, event: NDArray[np.uint8], interest: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the matrix L for each pair of 0/1 rows.

        Args:
            event: event bits, shape (batch, event bits).
            interest: interest bits, shape (batch, interest bits).

        Returns:
            shape (batch, s, s).

        Raises:
            ShapeError: the batches differ.
        """
        if len(event) != len(interest):
            raise ShapeError(f"{len(event)} event rows do not pair with {len(interest)} others")
        out = np.zeros((len(event), self.size, self.size), dtype=np.uint8)
        below = np.arange(1, self.size)
        out[:, below, below - 1] = 1
        for (u, v), label in self.edges.items():
            ones = event[:, list(label.event)].sum(1) + interest[:, list(label.interest)].sum(1)
            out[:, u, v - 1] = (ones + label.one) % 2
        return out

    def evaluate(self, event: NDArray[np.uint8], interest: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Count paths mod 2 for each pair of 0/1 rows, by the recurrence over nodes."""
        matrix = self.matrix(event, interest)
        paths = np.zeros((len(event), self.size + 1), dtype=np.uint8)
        paths[:, 0] = 1
        for node in range(1, self.size + 1):
            arriving = paths[:, :node] & matrix[:, :node, node - 1]
            paths[:, node] = np.bitwise_xor.reduce(arriving, axis=1)
        return paths[:, self.size].astype(bool)


def sorted_edges(
    edges: dict[tuple[int, int], Label],
) -> list[tuple[tuple[int, int], Label]]:
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
