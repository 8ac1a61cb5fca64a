"""Parsed predicates: what a process has read, so that batches of one job are read once.

Batches bring the same texts again and again, and texts that differ in literals only; parsing is
most of what preparing an interest costs.

Hazard: the texts stay in the memory of the process that reads them.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final, Generic, TypeAlias, TypeVar

from ccbps.predicates.schema import Predicate, Schema
from ccbps.predicates.shapes import Shape, split
from ccbps.predicates.sql import read_sql

_Key: TypeAlias = tuple[str | tuple[str, ...], tuple[str, ...]]
"""A text or its shape, and the names of a schema."""

V = TypeVar("V")


class _Kept(Generic[V]):
    """What was used last, up to a number of characters in all."""

    def __init__(self, characters: int) -> None:
        self._most, self._used = characters, 0
        self._values: OrderedDict[_Key, tuple[int, V]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: _Key) -> V | None:
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[1]

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


class ParsedPredicates:
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
        """As `Schema.parse`: the same trees, the same errors."""
        # Not by the schema itself, whose hash takes all categories of all attributes.
        names = schema.names
        found = self._predicates.get((text, names))
        if found is not None and (found.schema is schema or found.schema == schema):
            return found
        predicate = self._read(schema, names, text)
        self._predicates.put((text, names), predicate, len(text))
        return predicate

    def _read(self, schema: Schema, names: tuple[str, ...], text: str) -> Predicate:
        between, literals = split(text)
        shape = self._shapes.get((between, names))
        if shape is not None and (shape.schema is schema or shape.schema == schema):
            filled = shape.fill(literals)
            if filled is not None:
                return Predicate(schema, text, filled, private_names=shape.private_names)
        expression, readings = read_sql(schema, text)
        shape = Shape(schema, text, expression, readings)
        if shape.usable:
            self._shapes.put((between, names), shape, len(text))
        return Predicate(schema, text, expression)


PARSED: Final = ParsedPredicates(1 << 20)
"""Of this process: some twenty thousand predicates, and 60 MB."""
