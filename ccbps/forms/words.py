"""Vocabulary: events as sets of words, boxes as AND of ORs of words.

Words of an attribute a:

- "a = code" for every code, NULL among them; "a is not NULL" if it is nullable;
- with *points* p_1 .. p_l: "a > p_i" and "a < p_i";
- with *partitions* (cells, shifts): the domain is cut into cells of equal width, `shifts` times,
  each time starting a little earlier; "a is in cell c of partition j".

An event has all words that are true of it. A box takes, for each attribute, the equality word; or
the two point words that enclose its range; or the cells that the range touches, in the partition
that fits best. So a range is widened, and never narrowed, except where it is

- strictly between two points (``100 < a AND a < 200``), or open to a side, or one value;
- made of whole cells of one partition.

`Vocabulary.widened` gives the box that results. A range that takes in NULL together with some
values but not all is widened to "anything".

Points and values of dictionaries are kept as codes. A code names a value exactly, whatever its
type, and equal values alike: 5 and 5.0, or the dates of two libraries. So JSON has codes, and a
matcher made of JSON takes them in place of values.

Hazard: the cells of a range are neighbours. Whoever sees which words stand together in the clauses
of a few hundred ranges has all cells of a partition in order.
Source: [RR06] by way of [Survey] section 4.1; cells and their choice are reconstructed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from ccbps.arrays import Bools, Words
from ccbps.checks import instance, whole
from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.box import Box
from ccbps.predicates.codes import at_most
from ccbps.predicates.types import EMPTY, AttributeType, Code, Refused

EQUAL: Final = 0
PRESENT: Final = 1
POINT: Final = 2
CELL: Final = 3
KINDS: Final = 4
MAX_CELL_BITS: Final = 62

Word: TypeAlias = tuple[int, int]
"""(family, value): a family is one kind of word of one attribute, ``4 * attribute + kind``."""

Clause: TypeAlias = tuple[Word, ...]
"""Words, at least one of which must hold."""


# -- arguments that list values ------------------------------------------------------------------


def listed(name: str, values: Any) -> list[Any]:
    """Check an argument that must hold several values; return them as a list."""
    # Text and mappings can be listed, but letters or keys are not what is meant.
    if not isinstance(values, str | bytes | Mapping):
        with suppress(TypeError):
            return list(values)
    raise ParameterError(f"{name} must be a list of values, got {values!r}")


def by_attribute(schema: Schema, argument: str, given: Any, example: str) -> dict[str, Any]:
    """Check an argument that must be a mapping from attributes, or None; return it as a dict."""
    if given is None:
        return {}
    hint = f"map attributes to values, such as {example}"
    for name in instance(argument, given, Mapping, hint=hint):
        if name not in schema:
            raise ParameterError(f"the schema has no attribute {name!r} for {argument}")
    return dict(given)


def codes_of(name: str, kind: AttributeType, values: Any) -> list[int]:
    """Encode an argument that must list values of an attribute."""
    codes = []
    for value in listed(name, values):
        try:
            code = value if isinstance(value, Code) else kind.number_of(value) + kind.lowest
            if not kind.lowest <= code <= kind.highest:
                raise Refused("out of range")
        except Refused as error:
            raise ParameterError(f"{name}: {error}; expected {kind.accepts}") from None
        codes.append(int(code))
    return codes


def codes_to_json(codes: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
    """Write codes of attributes in hexadecimal: alike for equal values, such as 5 and 5.0."""
    return {name: list(map(hex, values)) for name, values in codes.items()}


def codes_from_json(argument: str, given: Any) -> dict[str, list[Code]]:
    """Read the codes that `codes_to_json` wrote.

    Raises:
        ParameterError: the text is malformed.
    """
    with suppress(AttributeError, TypeError, ValueError):
        codes = {name: [Code(text, 16) for text in texts] for name, texts in given.items()}
        if codes_to_json(codes) == given:
            return codes
    raise ParameterError(
        f"{argument} must be lists of codes in hexadecimal by attribute, got {given!r}"
    )


# -- words -----------------------------------------------------------------------------------------


def spread_points(box: Box, parts: int = 16) -> dict[str, list[Code]]:
    """Cut the domain of each attribute with a range in the box into equal parts, by points."""
    points = {}
    for name, (low, high) in box.ranges.items():
        kind = box.schema[name]
        unlimited = low <= kind.lowest and high == kind.highest
        if low < high and not unlimited:
            cuts = {kind.lowest + kind.cardinality * part // parts for part in range(1, parts)}
            points[name] = [Code(code) for code in sorted(cuts)]
    return points


@dataclass(frozen=True, slots=True, repr=False)
class Column:
    """A column of plaintext words: at most one for each event of a batch.

    Attributes:
        family: family of the words.
        values: values of the words, uint64, shape (limbs, events).
        holds: events that have a word here, bool, shape (events,); None for all.
    """

    family: int
    values: Words
    holds: Bools | None


class Vocabulary:
    """The public list of all words.

    Attributes:
        columns: largest number of words of an event.
        clauses: largest number of clauses of a box.
        slots: largest number of words in a clause.
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
        """Return points and partitions as JSON values."""
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
        """Check (cells, shifts); return them and the width of a cell."""
        kind, argument = self.schema[name], f"partitions of {name!r}"
        pair: list[Any] = []
        with suppress(ParameterError):
            pair = listed(argument, given)
        if len(pair) != 2:
            raise ParameterError(f"{argument} must be (cells, shifts), got {given!r}")
        if kind.bits > MAX_CELL_BITS:
            raise ParameterError(
                f"attribute {name!r} has {kind.bits} bits, cells take at most {MAX_CELL_BITS}"
            )
        cells = whole(f"{argument}, cells", pair[0], 1)
        width = -(-kind.cardinality // cells)
        return cells, whole(f"{argument}, shifts", pair[1], 1, width), width

    # -- events -----------------------------------------------------------------------------

    def of_events(self, events: Events) -> list[Column]:
        """Return the words of a batch of events: exactly `columns` columns."""
        columns: list[Column] = []
        for number, name in enumerate(self.schema):
            codes, kind = events.codes[name], self.schema[name]
            family = KINDS * number
            columns.append(Column(family + EQUAL, codes, None))
            present: Bools | None = None
            if kind.nullable:
                present = np.asarray(codes.any(axis=0), dtype=np.bool_)  # code 0 is NULL
                zero = np.zeros((1, events.count), dtype=np.uint64)
                columns.append(Column(family + PRESENT, zero, present))
            for place, point in enumerate(self.points.get(name, ())):
                upto, below = at_most(codes, point), at_most(codes, point - 1)
                value = (2 * place + below).astype(np.uint64)[None]
                holds = ~upto | below  # neither word is true of the point itself
                columns.append(
                    Column(family + POINT, value, holds if present is None else holds & present)
                )
            if name in self.cells:
                cells, shifts, width = self.cells[name]
                values = codes[0] - np.uint64(kind.lowest)
                for shift in range(shifts):
                    start = np.uint64(shift * width // shifts)
                    cell = (values + start) // np.uint64(width) + np.uint64(shift * (cells + 1))
                    columns.append(Column(family + CELL, cell[None], present))
        return columns

    # -- boxes ------------------------------------------------------------------------------

    def of_predicate(self, predicate: Predicate) -> tuple[Clause, ...] | None:
        """Return the clauses all of which must hold; None if no event matches.

        Raises:
            UnsupportedPredicateError: no box, or a range on an attribute without points or cells.
        """
        box = predicate.box()
        if EMPTY in box.ranges.values():
            return None
        clauses: list[Clause] = []
        for number, name in enumerate(self.schema):
            low, high = box.ranges[name]
            clauses += self._of_range(number, name, low, high, predicate.text)
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
        clauses: list[Clause] = []
        before, after = bisect_left(points, low), bisect_right(points, high)
        if low > kind.lowest and before:
            clauses.append(((family + POINT, 2 * (before - 1)),))
        if high < kind.highest and after < len(points):
            clauses.append(((family + POINT, 2 * after + 1),))
        return clauses or ([((family + PRESENT, 0),)] if kind.nullable else [])

    def _best(self, name: str, low: int, high: int) -> tuple[int, int, int]:
        """Return the (partition, first cell, last cell) that enclose a range most closely."""
        _, shifts, width = self.cells[name]
        choices = []
        for shift in range(shifts):
            start = shift * width // shifts - self.schema[name].lowest
            first, last = (low + start) // width, (high + start) // width
            inside = self._cell_range(name, shift, first, last)
            choices.append((inside[1] - inside[0], shift, first, last))
        return min(choices)[1:]

    def _cell_range(self, name: str, shift: int, first: int, last: int) -> tuple[int, int]:
        """Return the codes (low, high) in cells `first` to `last` of a partition."""
        kind = self.schema[name]
        _, shifts, width = self.cells[name]
        start = shift * width // shifts - kind.lowest
        low = max(first * width - start, kind.lowest)
        return low, min((last + 1) * width - start - 1, kind.highest)

    def widened(self, predicate: Predicate) -> Box:
        """Return the box that a predicate is widened to by its words."""
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
