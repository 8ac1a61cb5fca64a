"""Parsed predicates of a process, kept so that batches of one job are read once.

Parsing is most of what preparing an interest costs. Batches bring the same texts again and again,
and texts that differ in nothing but literals: ``price < 120``, ``price < 121``. `split` cuts a text
at its literals. What remains between them is the shape, and the tree of one text of a shape gives
that of any other: the literals are exchanged, and the places in the text move.

Texts for which this might differ from reading in full are read in full: those with comments,
escapes, characters beyond plain SQL or literals that are part of the structure, as in
``at_least(2, ...)``, and all that are refused, so that every error is that of the full reading.

Hazard: the texts stay in the memory of the process that reads them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate
from threading import Lock
from typing import Any, Final, Generic, TypeAlias, TypeVar

from ccbps.checks import Printable
from ccbps.predicates import expression as tree
from ccbps.predicates.attributes import Attributes
from ccbps.predicates.schema import Predicate, Schema
from ccbps.predicates.sql import read_sql
from ccbps.predicates.syntax import Reading
from ccbps.predicates.types import AttributeType, ConstantError

Pieces: TypeAlias = tuple[tuple[str, ...], list[str]]
"""The text between the literals, with a mark for the kind of each; and the literals."""

_Key: TypeAlias = tuple[str | tuple[str, ...], tuple[str, ...]]
"""A text or its shape, and the names of a schema."""

V = TypeVar("V")

_LITERAL: Final = re.compile(
    r"""('(?:[^'\\\x00-\x1f\x7f]|'')*'"""  # not with backslashes or control characters
    r"""|(?<![\w.$@])[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?(?![\w.$@]))"""
)
_PLAIN: Final = re.compile(
    r"""(?:[A-Za-z0-9_ \t\n\r(),<>=!]|"[A-Za-z_][A-Za-z0-9_]*"|:[A-Za-z_]|-(?!-))*+"""
)


def split(text: str) -> Pieces:
    """Cut a text at its literals; ``"".join`` of all pieces in turn is the text."""
    pieces = _LITERAL.split(text)
    literals = pieces[1::2]
    marks = "".join(["'" if literal[0] == "'" else "1" for literal in literals])
    return (*pieces[::2], marks), literals


class Shape:
    """One text that was read in full, as a pattern for others of the same shape.

    Args:
        schema: schema that the text was read with.
        text: the text.
        expression: its tree.
        readings: readings of its literals, by their position.

    Attributes:
        schema: schema that the text was read with.
        usable: True if `fill` can give a tree at all.
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
        self.private_names = tree.private_names_of(expression)
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
        self._slots = [
            (start, readings[start], _check(schema[use[0]], use[1])) if use else None
            for start, use in ((start, uses.get(start)) for start in starts)
        ]
        self._places = [(place, bisect_left(starts, place)) for place in sorted(positions)]
        # A word that touches a string may be its prefix, as in N'...' and x'...'.
        touching = any(
            kind == "'" and re.search(r'[\w"]$', before)
            for before, kind in zip(between, between[-1], strict=False)
        )
        self.usable = all(map(_PLAIN.fullmatch, between[:-1])) and not touching

    def fill(self, literals: list[str]) -> tree.Expression | None:
        """Return the tree of the text with these literals; None if the text must be read."""
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
        return _filled(self._expression, values, places)


def _filled(
    node: tree.Expression, values: Mapping[int, Any], places: Mapping[int, int]
) -> tree.Expression:
    """Copy a tree with new values and new places, both looked up by the old place."""
    place = places[node.position]
    if isinstance(node, tree.Condition):
        operands = tuple(
            tree.Private(operand.name, places[operand.position])
            if isinstance(operand, tree.Private)
            else tree.Constant(
                values.get(operand.position, operand.value), places[operand.position]
            )
            for operand in node.operands
        )
        return tree.Condition(node.attribute, node.operator, operands, place, node.limit)
    if isinstance(node, tree.Not):
        return tree.Not(_filled(node.part, values, places), place)
    if isinstance(node, tree.AtLeast):
        parts = tuple(_filled(part, values, places) for part in node.parts)
        return tree.AtLeast(node.count, parts, place)
    return tree.Truth(node.value, place)


def _check(kind: AttributeType, use: str) -> Callable[[Any], object]:
    """Return a function that raises ConstantError for constants that do not fit type and use."""
    return partial(kind.code_range, use) if use in ("like", "hamming") else kind.bisect


class _Kept(Generic[V]):
    """The values used last, while their texts have at most so many characters in all."""

    def __init__(self, characters: int) -> None:
        self._most, self._used = characters, 0
        self._values: OrderedDict[_Key, tuple[int, V]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: _Key) -> V | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][1]

    def put(self, key: _Key, value: V, size: int) -> None:
        if size > self._most:
            return
        with self._lock:
            before, _ = self._values.pop(key, (0, None))
            self._values[key] = size, value
            self._used += size - before
            while self._used > self._most:
                _, (gone, _) = self._values.popitem(last=False)
                self._used -= gone


class ParsedPredicates(Printable):
    """The predicates parsed last, by text and schema, and the shapes of their texts.

    A predicate takes some sixty times its text, so the number of characters is bounded: of all
    texts, and of all shapes. Texts that are refused are not kept. Threads may share it.
    """

    def __init__(self, characters: int) -> None:
        self._predicates: _Kept[Predicate] = _Kept(characters)
        self._shapes: _Kept[Shape] = _Kept(characters)

    def __repr__(self) -> str:
        return f"<ParsedPredicates: {len(self)}>"

    def __len__(self) -> int:
        return len(self._predicates)

    def parse(self, schema: Schema, text: str) -> Predicate:
        """Read a predicate as `Schema.parse` does: the same trees, the same errors."""
        # Not by the schema itself, whose hash takes all categories of all attributes.
        names = schema.names
        predicate = self._predicates.get((text, names))
        if predicate is None or predicate.schema != schema:
            predicate = self._read(schema, names, text)
            self._predicates.put((text, names), predicate, len(text))
        return predicate

    def _read(self, schema: Schema, names: tuple[str, ...], text: str) -> Predicate:
        between, literals = split(text)
        shape = self._shapes.get((between, names))
        if shape is not None and shape.schema == schema:
            filled = shape.fill(literals)
            if filled is not None:
                return Predicate(schema, text, filled, shape.private_names)
        expression, readings = read_sql(schema, text)
        shape = Shape(schema, text, expression, readings)
        if shape.usable:
            self._shapes.put((between, names), shape, len(text))
        return Predicate(schema, text, expression, shape.private_names)


PARSED: Final = ParsedPredicates(1 << 20)
"""The predicates of this process: some twenty thousand, in 60 MB."""
