"""Shapes: predicates that differ in nothing but literals are read once.

Most predicates of a batch come from one pattern: ``price < 120``, ``price < 121``. `split` cuts a
text at its literals. What remains between them is the shape, and the tree of one text of a shape
gives that of any other: the literals are exchanged, and the places in the text move.

Whatever is not certainly the same as reading the text in full is left to that: comments, escapes,
characters beyond plain SQL, literals that are part of the structure (``at_least(2, ...)``), and all
that is refused, so that every error is that of the full reading.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate
from typing import Any, Final, TypeAlias

from ccbps.predicates import expression as tree
from ccbps.predicates.attributes import Attributes
from ccbps.predicates.constants import check_constant
from ccbps.predicates.literals import Reading
from ccbps.predicates.types import AttributeType, ConstantError

Pieces: TypeAlias = tuple[tuple[str, ...], list[str]]
"""What stands between the literals, with a mark for the kind of each; and the literals."""

_LITERAL: Final = re.compile(
    r"""('(?:[^'\\\x00-\x1f\x7f]|'')*'"""  # not with backslashes or control characters
    r"""|(?<![\w.$@])[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?(?![\w.$@]))"""
)
_PLAIN: Final = re.compile(
    r"""(?:[A-Za-z0-9_ \t\n\r(),<>=!]|"[A-Za-z_][A-Za-z0-9_]*"|:[A-Za-z_]|-(?!-))*+"""
)


def split(text: str) -> Pieces:
    """Cut a text at what looks like literals; ``"".join`` of all pieces in turn is the text."""
    pieces = _LITERAL.split(text)
    found = pieces[1::2]
    return (*pieces[::2], "".join(["'" if one[0] == "'" else "1" for one in found])), found


class Shape:
    """One text that was read in full, as a pattern for others of the same shape.

    Args:
        schema: what the text was read with.
        text: the text.
        expression: its tree.
        readings: how its constants come from literals, by their position.

    Attributes:
        schema: as given.
        usable: whether `fill` can give anything.
        private_names: placeholders of all texts of this shape, in order of first appearance.
    """

    def __init__(
        self,
        schema: Attributes,
        text: str,
        expression: tree.Expression,
        readings: Mapping[int, Reading],
    ) -> None:
        self.schema = schema
        self._expression = expression
        names = [operand.name for *_, operand in tree.privates_of(expression)]
        self.private_names = tuple(dict.fromkeys(names))
        between, self._literals = split(text)
        ends = list(accumulate(map(len, _LITERAL.split(text)), initial=0))
        starts = ends[1:-1:2]
        # Constants by position; a position that is that of two is that of neither.
        uses: dict[int, tuple[str, str] | None] = {}
        positions = set()
        for node in tree.iter_nodes(expression):
            positions.add(node.position)
            for attribute, use, operand in tree.operands_of(node):
                place = operand.position
                positions.add(place)
                if isinstance(operand, tree.Constant) and place in readings:
                    uses[place] = None if place in uses else (attribute, use)
        # How every literal is read and used; None where it is no constant.
        known = [uses.get(start) for start in starts]
        self._slots = [
            (start, readings[start], _check(schema[use[0]], use[1])) if use else None
            for start, use in zip(starts, known, strict=True)
        ]
        self._places = [(place, bisect_left(starts, place)) for place in sorted(positions)]
        # A word that touches a string may be its prefix, as in N'...' and x'...'.
        touching = any(
            kind == "'" and re.search(r'[\w"]$', before)
            for before, kind in zip(between, between[-1], strict=False)
        )
        self.usable = all(map(_PLAIN.fullmatch, between[:-1])) and not touching

    def fill(self, literals: list[str]) -> tree.Expression | None:
        """The tree of the text of this shape that has these literals; None if it must be read."""
        if not self.usable:
            return None
        values: dict[int, Any] = {}
        moved = [0]
        for slot, old, new in zip(self._slots, self._literals, literals, strict=True):
            moved.append(moved[-1] + len(new) - len(old))
            if slot is None:
                if new != old:
                    return None
                continue
            start, reading, check = slot
            content = new[1:-1].replace("''", "'") if new[0] == "'" else new
            try:
                value = reading(content)
                check(value)
            except ConstantError:
                return None
            values[start] = value
        places = {place: place + moved[before] for place, before in self._places}
        return _Filling(values, places).node(self._expression)


def _check(kind: AttributeType, use: str) -> Callable[[Any], object]:
    """`check_constant` for a use that is known to fit the type."""
    return kind.bisect if use in ("=", "<", "<=", ">", ">=") else partial(check_constant, kind, use)


class _Filling:
    """A tree with other constants in other places."""

    def __init__(self, values: dict[int, Any], places: dict[int, int]) -> None:
        self.values, self.places = values, places

    def operand(self, operand: tree.Operand) -> tree.Operand:
        place = self.places[operand.position]
        if isinstance(operand, tree.Private):
            return tree.Private(operand.name, place)
        return tree.Constant(self.values.get(operand.position, operand.value), place)

    def node(self, node: tree.Expression) -> tree.Expression:
        place = self.places[node.position]
        if isinstance(node, tree.Compare):
            return tree.Compare(node.attribute, node.operator, self.operand(node.operand), place)
        if isinstance(node, (tree.And, tree.Or)):
            return type(node)(tuple(map(self.node, node.parts)), place)
        if isinstance(node, tree.Between):
            low, high = self.operand(node.low), self.operand(node.high)
            return tree.Between(node.attribute, low, high, place)
        if isinstance(node, tree.In):
            return tree.In(node.attribute, tuple(map(self.operand, node.items)), place)
        if isinstance(node, tree.Like):
            return tree.Like(node.attribute, self.operand(node.pattern), place)
        if isinstance(node, tree.Not):
            return tree.Not(self.node(node.part), place)
        if isinstance(node, tree.IsNull):
            return tree.IsNull(node.attribute, place)
        if isinstance(node, tree.AtLeast):
            return tree.AtLeast(node.count, tuple(map(self.node, node.parts)), place)
        if isinstance(node, tree.Hamming):
            return tree.Hamming(node.attribute, self.operand(node.value), node.limit, place)
        return tree.Truth(node.value, place)
