"""Decomposition of an event space: records as leaves of a binary tree, boxes as nodes that cover.

The space of all attributes is cut in halves, attribute after attribute, the highest bits first. A
node of the tree is a text of bits, the root is empty, and a node covers those that it is a prefix
of. A record is a leaf: the bits of its codes, interleaved, up to the depth of the tree. A box is
the fewest nodes that cover it. Below the depth nothing is cut, so a cover may hold more than the
box, and never less.

One tree for all attributes (`Decomposition`) binds them to one another. A tree for each attribute
needs fewer nodes; but keys that follow from one node of each tree can be put together by two users,
each of whom has one of them.

Not protected: the nodes are the box.
Source: [TKR14] (dz expressions).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ccbps.checks import Printable, instance, whole
from ccbps.errors import UnsupportedPredicateError
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.bound import bound_predicate

Node: TypeAlias = str
"""A node of the tree: bits from the root, "0" or "1" each."""


class Decomposition(Printable):
    """A binary tree over the space of a schema.

    Args:
        schema: attributes. They are cut in turn, in their order.
        depth: number of cuts; all bits of the schema by default.

    Raises:
        ParameterError: the depth is not 1 to the bits of the schema.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.forms.decomposition import Decomposition
        >>> tree = Decomposition(Schema(x=UInt(2), y=UInt(2)))
        >>> list(tree.leaves([{"x": 2, "y": 1}]))
        ['1001']
        >>> tree.cover("x >= 2")
        ['1']
        >>> tree.cover("x >= 2 AND y = 1")
        ['1001', '1011']
    """

    def __init__(self, schema: Schema, depth: int | None = None) -> None:
        self.schema = instance("schema", schema, Schema)
        most = schema.bits
        self.depth = whole("depth", most if depth is None else depth, 1, most, unit="cuts")
        rounds = range(max(schema.widths.values()))
        order = [(name, at) for at in rounds for name in schema if at < schema.widths[name]]
        self._order = order[: self.depth]

    def __repr__(self) -> str:
        return f"<Decomposition of {', '.join(self.schema.names)}: {self.depth} cuts>"

    def leaves(self, records: Any) -> Iterator[Node]:
        """Yield the leaf of each record.

        Raises:
            EventError: a record does not fit the schema.
        """
        events = self.schema.encode(records)
        digits = np.empty((events.count, self.depth), dtype="U1")
        for cut, (name, at) in enumerate(self._order):
            limb, shift = divmod(self.schema.widths[name] - 1 - at, 64)
            bits = events.codes[name][-1 - limb] >> np.uint64(shift) & np.uint64(1)
            digits[:, cut] = np.where(bits, "1", "0")
        yield from digits.view(f"U{self.depth}")[:, 0].tolist()

    def cover(self, predicate: str | Predicate, *, most: int = 1 << 12) -> list[Node]:
        """Return the fewest nodes that cover a box, from left to right.

        Args:
            predicate: SQL text or a predicate whose meaning is a box.
            most: greatest number of nodes.

        Raises:
            UnsupportedPredicateError: it is no box, or takes more nodes.
        """
        parsed = bound_predicate(self.schema, predicate, "a predicate")
        sizes = {name: self.schema[name].size - 1 for name in self.schema}
        # Codes above the greatest one do not occur: a range that reaches it goes on.
        wanted = {
            name: (low, (1 << self.schema.widths[name]) - 1 if high >= sizes[name] else high)
            for name, (low, high) in parsed.box().ranges.items()
        }
        nodes: list[Node] = []
        waiting: list[tuple[Node, Mapping[str, tuple[int, int]]]] = [
            ("", {name: (0, (1 << bits) - 1) for name, bits in self.schema.widths.items()})
        ]
        while waiting:
            node, held = waiting.pop()
            pairs = [(held[name], wanted[name]) for name in wanted]
            if any(high < low or end < low or high < start for (start, end), (low, high) in pairs):
                continue
            inside = all(low <= start and end <= high for (start, end), (low, high) in pairs)
            if inside or len(node) == self.depth:
                nodes.append(node)
                if len(nodes) > most:
                    raise UnsupportedPredicateError(
                        f"the box takes more than {most} nodes: take a smaller depth, which covers "
                        "more than the box, or simpler ranges",
                        text=parsed.text,
                    )
                continue
            name, _ = self._order[len(node)]
            start, end = held[name]
            middle = (start + end) // 2
            waiting.append((node + "1", {**held, name: (middle + 1, end)}))
            waiting.append((node + "0", {**held, name: (start, middle)}))
        return joined(nodes)


def joined(nodes: Sequence[Node]) -> list[Node]:
    """Join pairs of halves to the node above them; the nodes are sorted and none covers another."""
    out: list[Node] = []
    for node in nodes:
        out.append(node)
        while len(out) > 1 and out[-1] and out[-2][:-1] == out[-1][:-1] and out[-1] != out[-2]:
            out[-2:] = [out[-1][:-1]]
    return out


def covers(node: Node, other: Node) -> bool:
    """Return whether a node covers another one or is the same."""
    return other.startswith(node)
