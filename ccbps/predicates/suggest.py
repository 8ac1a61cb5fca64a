"""Suggestions: a schema for data like these, and the reasons for it.

Data show which values there were, not which will come. So every range is widened: twice the
greatest magnitude for numbers, as many years again for times, half as much again for short texts.
What data do not show is left to the reader of the report.

Hazard: ranges and lists of words come from the data, and a schema is public.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

import numpy as np

from ccbps.errors import EventError, ParameterError
from ccbps.predicates.attributes import Attributes, closest
from ccbps.predicates.columns import arrow_table, column_of, comes_from, is_arrow, length_of
from ccbps.predicates.declared import has_values
from ccbps.predicates.ranges import Choice, LeftOut, choice_for
from ccbps.predicates.textual import Category
from ccbps.predicates.types import AttributeType

_ROWS: Final = 100_000
"""Rows of a Spark DataFrame that are collected."""

_EXTREMES: Final = 3
"""Rows that follow them, of the least and the greatest values and of NULLs."""
_INCOMPLETE: Final = "the list is of a sample, and perhaps incomplete"

S = TypeVar("S", bound=Attributes)


@dataclass(frozen=True, slots=True)
class Suggestion(Generic[S]):
    """A schema, and why it is as it is; made by `Schema.suggest`.

    Example:
        >>> from ccbps import Schema
        >>> found = Schema.suggest({"price": [119.5, 27.25], "note": ["", None]})
        >>> found
        Suggestion(schema=Schema(price=Decimal("0", "240", "0.01"), note=Text(1, nullable=True)))
        >>> print(found.report.splitlines()[0])
        2 records, 24 bits for each event

    Attributes:
        schema: a schema that takes the data.
        report: for each column what was chosen and why, what it costs, and what to check.
    """

    schema: S
    report: str = field(repr=False)


def suggest(
    make: Callable[[Mapping[str, AttributeType]], S], data: Any, given: Mapping[str, AttributeType]
) -> Suggestion[S]:
    """See `Schema.suggest`; `make` makes the schema of its attribute types."""
    without: dict[str, str] = {}
    extremes, more, names = 0, False, None
    if comes_from(data, "pyspark") and hasattr(data, "selectExpr"):
        names = list(data.columns)
        data, without, more = _sample(data)
        extremes = _EXTREMES
    columns = _columns(data)
    lengths = {length_of(column, name) for name, column in columns.items()}
    if len(lengths) > 1:
        raise EventError("the columns differ in length; every record needs one value of each")
    names = list(columns) if names is None else names
    for name in given:
        if name not in names:
            raise ParameterError(f"column {name!r} is none{closest(name, names)}")
    types: dict[str, AttributeType] = {}
    lines: list[str] = []
    for name in names:
        try:
            if name in without:
                raise LeftOut(without[name])
            choice = _choice(name, columns[name], given.get(name), extremes)
        except LeftOut as problem:
            lines += [f"{name}: left out", f"  why: {problem}"]
            continue
        kind = types[name] = choice.kind
        if more and isinstance(kind, Category) and name not in given:
            choice = replace(choice, check=f"{choice.check}; {_INCOMPLETE}")
        lines += [
            f"{name}: {kind!r}, {kind.bits} bit{'s' * (kind.bits > 1)}",
            f"  why: {choice.why}",
            f"  check: {choice.check}",
        ]
    if not types:
        raise ParameterError("\n".join(["no column has values that an attribute may have", *lines]))
    schema = make(types)
    others = " and the extremes of all" if more else ""
    head = f"{max(lengths) - extremes} records{others}, {schema.bits} bits for each event"
    return Suggestion(schema, "\n".join([head, *lines]))


def _choice(name: str, column: Any, given: AttributeType | None, extremes: int) -> Choice:
    if not name.isidentifier():
        raise LeftOut("its name is not an identifier; rename it")
    if given is not None:
        return Choice(given, "you said so", f"a value must be {given.accepts}")
    try:
        found = column_of(column, name)
    except EventError as problem:
        raise LeftOut(str(problem)) from None
    return choice_for(found, extremes)


def _columns(data: Any) -> dict[str, Any]:
    """Columns by name, of any container that `Attributes.encode` takes."""
    if comes_from(data, "pyarrow") and hasattr(data, "column_names"):
        return {name: data.column(place) for place, name in enumerate(data.column_names)}
    if comes_from(data, "pandas") and hasattr(data, "columns"):
        return {str(name): data[name] for name in data.columns}
    if isinstance(data, np.ndarray) and data.dtype.names is not None:
        return {name: data[name] for name in data.dtype.names}
    if isinstance(data, Mapping):
        return {str(name): column for name, column in data.items()}
    if isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
        names = dict.fromkeys(name for row in data for name in row)
        return {str(name): [row.get(name) for row in data] for name in names}
    if is_arrow(data):
        return _columns(arrow_table(data))
    raise ParameterError(
        "suggest takes a mapping of names to columns, a list of mappings, a pandas or Spark "
        f"DataFrame or an Arrow table, got {type(data).__name__}"
    )


def _sample(frame: Any) -> tuple[Any, dict[str, str], bool]:
    """Rows of a Spark DataFrame.

    Returns:
        (table, without, more): an Arrow table of the first rows and then three of extremes: the
        least value of each column, the greatest, and one that is NULL where some value is; why
        other columns are not in it; and whether the DataFrame has more rows.
    """
    if frame.isStreaming:
        raise ParameterError(
            "suggest looks at rows, and this DataFrame is a stream; pass spark.read, of the same "
            "source, in place of spark.readStream"
        )
    without: dict[str, str] = {}
    columns: dict[str, str] = {}
    by_folded: dict[str, str] = {}
    for one in frame.schema.fields:
        other = by_folded.setdefault(one.name.lower(), one.name)
        if other in columns or other in without:
            raise ParameterError(
                f"columns {other!r} and {one.name!r} have the same name to Spark, which does not "
                "tell upper case from lower; rename one of them, as cs.clean_names(df) does"
            )
        kind, name = one.dataType.simpleString(), "`" + one.name.replace("`", "``") + "`"
        if kind == "float":
            without[one.name] = (
                "encode_events refuses FLOAT, which holds neither most decimals nor all whole "
                "numbers; cast it to the decimals it stands for, as in CAST(x AS DECIMAL(12, 2))"
            )
        elif not has_values(kind):
            without[one.name] = (
                f"no attribute has values of type {kind}; convert it to numbers, strings, "
                "booleans, dates or timestamps"
            )
        else:
            # To Spark, NaN is the greatest double; to an attribute, it is NULL.
            columns[one.name] = f"nanvl({name}, CAST(NULL AS DOUBLE))" if kind == "double" else name
    if not columns:
        return {}, without, False
    names = {name: "`" + name.replace("`", "``") + "`" for name in columns}
    least = [f"min({x}) AS {names[name]}" for name, x in columns.items()]
    greatest = [f"max({x}) AS {names[name]}" for name, x in columns.items()]
    null = [
        f"CASE WHEN count({x}) = count(*) THEN min({x}) END AS {names[name]}"
        for name, x in columns.items()
    ]
    rows = frame.selectExpr(*names.values()).limit(_ROWS + 1)
    for extremes in (least, greatest, null):
        rows = rows.unionAll(frame.selectExpr(*extremes))
    table = rows.toArrow()
    count = table.num_rows - _EXTREMES
    if count <= _ROWS:
        return table, without, False
    return table.take([*range(_ROWS), *range(count, table.num_rows)]), without, True
