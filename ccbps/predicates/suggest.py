"""Suggestions: a schema for data like these, and the reasons for it.

Data show which values there were, not which will come. So every range is widened: twice the
greatest magnitude for numbers, as many years again for times, half as much again for short texts.
What data do not show is left to the reader of the report.

Hazard: ranges and lists of words come from the data, and a schema is public.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import numpy as np

from ccbps.errors import EventError, ParameterError
from ccbps.predicates.attributes import Attributes, closest
from ccbps.predicates.columns import arrow_table, column_of, comes_from, is_arrow, length_of
from ccbps.predicates.declared import has_values
from ccbps.predicates.ranges import Choice, LeftOut, choice_for
from ccbps.predicates.types import AttributeType

__all__ = ["Suggestion", "suggest"]

_ROWS: Final = 100_000
"""Rows of a Spark DataFrame that are collected."""

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
    head = ""
    if comes_from(data, "pyspark") and hasattr(data, "selectExpr"):
        data, head = _sample(data), ", of a sample and the extremes"
    columns = _columns(data)
    lengths = {length_of(column, name) for name, column in columns.items()}
    if len(lengths) > 1:
        raise EventError("the columns differ in length; every record needs one value of each")
    for name in given:
        if name not in columns:
            raise ParameterError(f"column {name!r} is none{closest(name, list(columns))}")
    types: dict[str, AttributeType] = {}
    lines: list[str] = []
    for name, column in columns.items():
        try:
            choice = _choice(name, column, given.get(name))
        except LeftOut as problem:
            lines += [f"{name}: left out", f"  why: {problem}"]
            continue
        kind = types[name] = choice.kind
        lines += [
            f"{name}: {kind!r}, {kind.bits} bit{'s' * (kind.bits > 1)}",
            f"  why: {choice.why}",
            f"  check: {choice.check}",
        ]
    if not types:
        raise ParameterError("\n".join(["no column has values that an attribute may have", *lines]))
    schema = make(types)
    head = f"{max(lengths)} records{head}, {schema.bits} bits for each event"
    return Suggestion(schema, "\n".join([head, *lines]))


def _choice(name: str, column: Any, given: AttributeType | None) -> Choice:
    if not name.isidentifier():
        raise LeftOut("its name is not an identifier; rename it")
    if given is not None:
        return Choice(given, "you said so", f"a value must be {given.accepts}")
    try:
        found = column_of(column, name)
    except EventError as problem:
        raise LeftOut(str(problem)) from None
    return choice_for(found)


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


def _sample(frame: Any) -> Any:
    """An Arrow table of the first rows of a Spark DataFrame, and of extremes of the others.

    The last three rows are the least value of each column, the greatest, and one that is NULL where
    some value is.
    """
    fields = [f.name for f in frame.schema.fields if has_values(f.dataType.simpleString())]
    if not fields:
        raise ParameterError("no column has values that an attribute may have")
    names = ["`" + name.replace("`", "``") + "`" for name in fields]
    least = frame.selectExpr(*[f"min({name}) AS {name}" for name in names])
    greatest = frame.selectExpr(*[f"max({name}) AS {name}" for name in names])
    null = frame.selectExpr(
        *[f"CASE WHEN count({n}) = count(*) THEN min({n}) END AS {n}" for n in names]
    )
    rows = frame.selectExpr(*names).limit(_ROWS)
    return rows.unionAll(least).unionAll(greatest).unionAll(null).toArrow()
