"""Branching programs that count: a node for each place and each number so far.

They are built as graphs. Their nodes are numbered at the end, and nodes on no path are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

from ccbps.programs.branching import ONE, ZERO, BranchingProgram, Label, constant, negation
from ccbps.programs.comparison import check_widths


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
