"""Vocabulary: events as sets of words, boxes as AND of ORs of words.

Words of an attribute a:

- "a = code" for every code, NULL among them; "a is not NULL" if it is nullable;
- with *points* p_1 .. p_l: "a > p_i" and "a < p_i";
- with *partitions* (cells, shifts): the domain is cut into cells of equal width, `shifts` times,
  each time starting a little earlier; "a is in cell c of partition j".

An event has all its words that are true. A box takes, for each attribute, the equality word; or the
two point words that enclose its range; or the cells, of the partition that fits best, that the
range touches. So a range is widened, and never narrowed, except where it is

- strictly between two points (``100 < a AND a < 200``), or open to a side, or one value;
- made of whole cells of one partition.

`Vocabulary.widened` says what a box really comes to. A range that takes in NULL together with some
values but not all is widened to "anything".

Hazard: the cells of a range are neighbours. Whoever sees which words stand together in the clauses
of a few hundred ranges has all cells of a partition in order.
Source: [RR06] by way of [Survey] section 4.1; cells and their choice are reconstructed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from ccbps.arrays import Bools, Words
from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.forms.values import Code, by_attribute, codes_of, codes_to_json, listed, whole_number
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.box import Box
from ccbps.predicates.codes import at_most
from ccbps.predicates.types import EMPTY

EQUAL: Final = 0
PRESENT: Final = 1
POINT: Final = 2
CELL: Final = 3
KINDS: Final = 4
MAX_CELL_BITS: Final = 62

Word: TypeAlias = tuple[int, int]
"""(family, value): a family is one kind of word of one attribute, ``4 * attribute + kind``."""

Clause: TypeAlias = tuple[Word, ...]
"""Words one of which must hold."""


def spread_points(box: Box, parts: int = 16) -> dict[str, list[Code]]:
    """Points that cut the domain of each attribute into equal parts, where a box has a range."""
    points = {}
    for name, (low, high) in box.ranges.items():
        kind = box.schema[name]
        whole = low <= kind.lowest and high == kind.highest
        if low < high and not whole:
            cuts = {kind.lowest + kind.cardinality * part // parts for part in range(1, parts)}
            points[name] = [Code(code) for code in sorted(cuts)]
    return points


@dataclass(frozen=True, slots=True, repr=False)
class Column:
    """At most one word of every event of a batch; plaintext.

    Attributes:
        family: the words' family.
        values: uint64, shape (limbs, events).
        holds: which events have a word here, or None for all.
    """

    family: int
    values: Words
    holds: Bools | None


class Vocabulary:
    """Public: which words there are.

    Attributes:
        columns: the most words an event can have.
        clauses: the most clauses a box can take.
        slots: the most words in a clause.
    """

    def __init__(
        self,
        schema: Schema,
        points: Mapping[str, Sequence[Any]] | None,
        partitions: Mapping[str, tuple[int, int]] | None,
    ) -> None:
        self.schema = schema
        chosen = by_attribute(schema, "points", points, "{'price': [50, 100]}")
        cut = by_attribute(schema, "partitions", partitions, "{'price': (16, 4)}")
        both = chosen.keys() & cut.keys()
        if both:
            raise ParameterError(f"attribute {min(both)!r}: give points or partitions, not both")
        self.points = {name: self._points(name, values) for name, values in chosen.items()}
        self.cells = {name: self._cells(name, given) for name, given in cut.items()}
        self.columns = len(schema) + sum(schema[name].nullable for name in schema)
        self.columns += sum(len(p) for p in self.points.values())
        self.columns += sum(shifts for _, shifts, _ in self.cells.values())
        self.clauses = len(schema) + len(self.points)
        self.slots = max([1, *(cells + 1 for cells, _, _ in self.cells.values())])

    def parameters(self) -> dict[str, Any]:
        """Points and partitions as JSON."""
        return {
            "points": codes_to_json(self.points),
            "partitions": {name: list(cells[:2]) for name, cells in self.cells.items()},
        }

    def _points(self, name: str, values: Any) -> list[int]:
        codes = codes_of(f"points of {name!r}", self.schema[name], values)
        if not codes or codes != sorted(set(codes)):
            raise ParameterError(f"points of {name!r} must be one or more ascending values")
        return codes

    def _cells(self, name: str, given: Any) -> tuple[int, int, int]:
        """(cells, shifts, width of a cell)."""
        kind = self.schema[name]
        what, wanted = f"partitions of {name!r}", "(cells, shifts), both positive integers"
        pair = listed(what, given) if np.ndim(given) == 1 else []
        numbers = [whole_number(what, number, wanted) for number in pair]
        if len(numbers) != 2 or min(numbers) < 1:
            raise ParameterError(f"{what} must be {wanted}, got {given!r}")
        cells, shifts = numbers
        if kind.bits > MAX_CELL_BITS:
            raise ParameterError(
                f"attribute {name!r} has {kind.bits} bits, cells take at most {MAX_CELL_BITS}"
            )
        width = -(-kind.cardinality // cells)
        if shifts > width:
            raise ParameterError(
                f"partitions of {name!r}: at most as many shifts as values in a cell, "
                f"{width}; got {shifts}"
            )
        return cells, shifts, width

    def _attributes(self) -> list[tuple[int, str]]:
        return list(enumerate(self.schema))

    # -- events -----------------------------------------------------------------------------

    def of_events(self, events: Events) -> list[Column]:
        """The words of a batch of events: exactly `columns` columns."""
        found: list[Column] = []
        for number, name in self._attributes():
            codes, kind = events.codes[name], self.schema[name]
            family = KINDS * number
            found.append(Column(family + EQUAL, codes, None))
            present: Bools | None = None
            if kind.nullable:
                present = np.asarray(codes.any(axis=0), dtype=np.bool_)  # code 0 is NULL
                zero = np.zeros((1, events.count), dtype=np.uint64)
                found.append(Column(family + PRESENT, zero, present))
            for place, point in enumerate(self.points.get(name, ())):
                upto, below = at_most(codes, point), at_most(codes, point - 1)
                value = (2 * place + below).astype(np.uint64)[None]
                holds = ~upto | below  # neither word is true of the point itself
                found.append(
                    Column(family + POINT, value, holds if present is None else holds & present)
                )
            if name in self.cells:
                cells, shifts, width = self.cells[name]
                values = codes[0] - np.uint64(kind.lowest)
                for shift in range(shifts):
                    start = np.uint64(shift * width // shifts)
                    cell = (values + start) // np.uint64(width) + np.uint64(shift * (cells + 1))
                    found.append(Column(family + CELL, cell[None], present))
        return found

    # -- boxes ------------------------------------------------------------------------------

    def of_predicate(self, predicate: Predicate) -> tuple[Clause, ...] | None:
        """Clauses all of which must hold; None if no event matches.

        Raises:
            UnsupportedPredicateError: no box, or a range on an attribute without points or cells.
        """
        box = predicate.box()
        if EMPTY in box.ranges.values():
            return None
        clauses: list[Clause] = []
        for number, name in self._attributes():
            low, high = box.ranges[name]
            for clause in self._of_range(number, name, low, high, predicate.text):
                clauses.append(clause)
        return tuple(clauses)

    def _of_range(self, number: int, name: str, low: int, high: int, text: str) -> list[Clause]:
        kind = self.schema[name]
        family = KINDS * number
        if (low, high) == (0, kind.size - 1):
            return []
        if low == high:
            return [((family + EQUAL, low),)]
        if (low, high) == (kind.lowest, kind.highest):
            return [((family + PRESENT, 0),)]
        if name not in self.points and name not in self.cells:
            raise UnsupportedPredicateError(
                f"a range of {name!r} needs points or partitions for it in the matcher", text=text
            )
        if low < kind.lowest:
            return []
        if name in self.cells:
            shift, first, last = self._best(name, low, high)
            start = shift * (self.cells[name][0] + 1)
            return [tuple((family + CELL, start + cell) for cell in range(first, last + 1))]
        points = self.points[name]
        found: list[Clause] = []
        before, after = bisect_left(points, low), bisect_right(points, high)
        if low > kind.lowest and before:
            found.append(((family + POINT, 2 * (before - 1)),))
        if high < kind.highest and after < len(points):
            found.append(((family + POINT, 2 * after + 1),))
        return found or ([((family + PRESENT, 0),)] if kind.nullable else [])

    def _best(self, name: str, low: int, high: int) -> tuple[int, int, int]:
        """(partition, first cell, last cell) that enclose a range with the least around it."""
        shifts = self.cells[name][1]
        return min(self._touched(name, shift, low, high) for shift in range(shifts))[1:]

    def _touched(self, name: str, shift: int, low: int, high: int) -> tuple[int, int, int, int]:
        """(codes inside, partition, first cell, last cell)."""
        _, shifts, width = self.cells[name]
        start = shift * width // shifts - self.schema[name].lowest
        first, last = (low + start) // width, (high + start) // width
        inside = self._cell_range(name, shift, first, last)
        return inside[1] - inside[0], shift, first, last

    def _cell_range(self, name: str, shift: int, first: int, last: int) -> tuple[int, int]:
        """Codes in cells `first` to `last` of a partition."""
        kind = self.schema[name]
        _, shifts, width = self.cells[name]
        start = shift * width // shifts - kind.lowest
        low = max(first * width - start, kind.lowest)
        return low, min((last + 1) * width - start - 1, kind.highest)

    def widened(self, predicate: Predicate) -> Box:
        """The box that a predicate is widened to: what words can say of it."""
        clauses = self.of_predicate(predicate)
        if clauses is None:
            return predicate.box()
        ranges = {name: (0, self.schema[name].size - 1) for name in self.schema}
        names = self.schema.names
        for clause in clauses:
            family, value = clause[0]
            name, kind = names[family // KINDS], self.schema[names[family // KINDS]]
            low, high = ranges[name]
            if family % KINDS == EQUAL:
                low, high = value, value
            elif family % KINDS == PRESENT:
                low = kind.lowest
            elif family % KINDS == POINT:
                point = self.points[name][value // 2]
                low = max(low, kind.lowest)
                low, high = (low, min(high, point - 1)) if value % 2 else (point + 1, high)
            else:
                shift, first = divmod(value, self.cells[name][0] + 1)
                low, high = self._cell_range(name, shift, first, first + len(clause) - 1)
            ranges[name] = (low, high)
        return Box(self.schema, ranges)
