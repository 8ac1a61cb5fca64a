"""Columns by their names, functions of Arrow over them, and DataFrames of their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as F

from ccbps.errors import ParameterError
from ccbps.spark.frames import refuse_alike
from ccbps.spark.workers import on_worker

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Batches: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
AGAIN: Final = "__ccbps_again"
"""Column of rows that `mark_repeated` has marked."""
REPEATED: Final = "the pair and round occurs more than once"
NUMBER_REPEATED: Final = "the number occurs more than once"
"""Why such a row is set aside."""


def column(name: str) -> Column:
    """Return a column by its name, whatever characters the name has."""
    return F.col("`" + name.replace("`", "``") + "`")


def struct(names: Sequence[str], *, marked: bool = False) -> Column:
    """Join several columns to one, for a function that reads them together, by position.

    Args:
        marked: the first one is NULL in rows that `mark_repeated` has marked.
    """
    values = [column(name) for name in names]
    if marked:
        values[0] = F.when(~column(AGAIN), values[0])
    return F.struct(*[value.alias(str(i)) for i, value in enumerate(values)])


def row_function(kind: str) -> Callable[[Callable[..., pa.Array]], Callable[..., Column]]:
    """Make a function of Arrow columns that Spark computes once for each row.

    Spark would push a filter of the result below an ordinary `F.arrow_udf`, compute it there, and
    again above for the rows that are left.
    """
    return lambda function: F.arrow_udf(kind)(on_worker(function)).asNondeterministic()


def map_batches(df: DataFrame, function: Batches, schema: Any) -> DataFrame:
    """Run `DataFrame.mapInArrow`, whatever characters the columns' names have.

    A failure shows no locals of `function`.
    """
    names = df.columns

    @on_worker
    def mapped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from function(batch.rename_columns(names) for batch in batches)

    # Spark looks its columns up as if their names were expressions, in which a dot has a meaning.
    return df.toDF(*[f"c{place}" for place in range(len(names))]).mapInArrow(mapped, schema)


def finish(df: DataFrame, dropped: Sequence[str], value: Column, output: str) -> DataFrame:
    """Drop the columns `dropped` of a DataFrame, and add `value` as `output`."""
    kept = [name for name in df.columns if name not in dropped]
    if output in kept:
        raise ParameterError(f"output={output!r}: the DataFrame has a column of that name")
    refuse_alike(df, {"the DataFrame": kept, "the result": [output]})
    return df.select(*[column(name) for name in kept], value.alias(output))


def finish_struct(
    df: DataFrame,
    dropped: Sequence[str],
    value: Column,
    field: str,
    output: str,
    repeated: str = REPEATED,
) -> DataFrame:
    """Add two columns for a STRUCT: its `field` as `output`, and its `rejected` as "rejected".

    Args:
        df: the rows; those that `mark_repeated` has marked are rejected as `repeated`.
        dropped: columns that do not stay.
        value: the STRUCT.
    """
    both = "__ccbps_both"
    why, marks = F.col(f"{both}.rejected"), [AGAIN] * (AGAIN in dropped)
    if marks:
        why = F.when(column(AGAIN), F.lit(repeated)).otherwise(why)
    result = finish(df, [name for name in dropped if name != AGAIN], value, both)
    result = finish(result, [], F.col(f"{both}.{field}"), output)
    return finish(result, [both, *marks], why, "rejected")
