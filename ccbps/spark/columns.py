"""Columns by name, functions of Arrow columns, and rows whose identifiers must occur once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from ccbps.errors import ParameterError, RandomnessReuseError
from ccbps.spark.frames import refuse_alike
from ccbps.spark.workers import on_worker

Batches: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
AGAIN: Final = "__ccbps_again"
"""Boolean column that `mark_repeated` adds."""
REPEATED: Final = "the pair and round occurs more than once"
NUMBER_REPEATED: Final = "the number occurs more than once"
"""Reasons of rows whose identifiers other rows have, too."""
_BOTH: Final = "__ccbps_both"
_INTEGERS: Final = {"tinyint", "smallint", "int", "bigint"}
_EXACT_TYPES: Final = {
    *_INTEGERS,
    *("string", "binary", "boolean", "date", "timestamp", "timestamp_ntz"),
}


def clean_names(df: DataFrame) -> DataFrame:
    """Rename columns so that attributes may have their names: ``Adj Close`` becomes ``Adj_Close``.

    A character that is no letter, digit or underscore becomes an underscore, and a name that begins
    with a digit gets an underscore in front. Names that are then equal, whatever their case, get
    numbers. Other names stay as they are.

    Example:
        .. code-block:: python

            raw = quotes.withColumnRenamed("price", "Adj Close")
            found = Schema.suggest(cs.clean_names(raw))
            # found.schema has subscription, round, issue and Adj_Close; found.report says why
    """
    names: list[str] = []
    identifiers = {name.lower() for name in df.columns if name.isidentifier()}
    for name in df.columns:
        base = re.sub(r"\W", "_", name).lstrip() or "_"
        base = base if base.isidentifier() else f"_{base}"
        clean, number = base, 1
        taken = {other.lower() for other in names}
        while clean.lower() in taken or (clean != name and clean.lower() in identifiers):
            number += 1
            clean = f"{base}_{number}"
        names.append(clean)
    return df.toDF(*names)


def column(name: str) -> Column:
    """Return a column by its name, which may contain any characters."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """Write the name of a column in SQL. Spark parses a text faster than it takes in `Column`s."""
    return "`" + name.replace("`", "``") + "`"


def row_function(kind: str) -> Callable[[Callable[..., pa.Array]], Callable[..., Column]]:
    """Make a function of Arrow columns that Spark computes once for each row.

    Spark pushes a filter on the result of an ordinary `F.arrow_udf` below the function. It would
    compute the function in the filter, and again for the rows that pass.
    """
    return lambda function: F.arrow_udf(kind)(on_worker(function)).asNondeterministic()


def map_batches(
    df: DataFrame, function: Batches, schema: Any, *, barrier: bool = False
) -> DataFrame:
    """Run `DataFrame.mapInArrow` on columns whose names may contain any characters.

    If the function fails, the error shows none of its local variables. With `barrier`, all tasks
    run at once, and all run again if one fails.
    """
    names = df.columns

    @on_worker
    def mapped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from function(batch.rename_columns(names) for batch in batches)

    # Spark reads the names of these columns as expressions, in which a dot has a meaning.
    numbered = df.toDF(*[f"c{place}" for place in range(len(names))])
    return numbered.mapInArrow(mapped, schema, barrier=barrier)


def finish(
    df: DataFrame,
    dropped: Sequence[str],
    value: Column,
    output: str,
    *,
    field: str = "",
    repeated: str = REPEATED,
) -> DataFrame:
    """Drop columns of a DataFrame, and add a result.

    Args:
        df: the rows. Rows that `mark_repeated` has marked are rejected.
        dropped: names of the columns that do not stay.
        value: the result; with `field`, a STRUCT of this field and of `rejected`, a reason.
        output: name of the column of results.
        field: field of `value` that becomes `output`; the reason becomes the column "rejected".
        repeated: reason of marked rows.
    """
    kept = [name for name in df.columns if name not in (*dropped, AGAIN)]
    taken = kept
    for name in [output, "rejected"] if field else [output]:
        if name in taken:
            raise ParameterError(f"output={name!r}: the DataFrame has a column of that name")
        refuse_alike(df, {"the DataFrame": taken, "the result": [name]})
        taken = [*taken, name]
    columns = [column(name) for name in kept]
    if not field:
        return df.select(*columns, value.alias(output))
    why = F.col(f"{_BOTH}.rejected")
    marks = [column(AGAIN)] if AGAIN in df.columns else []
    if marks:
        why = F.when(column(AGAIN), F.lit(repeated)).otherwise(why)
    both = df.select(*columns, *marks, value.alias(_BOTH))
    return both.select(*columns, F.col(f"{_BOTH}.{field}").alias(output), why.alias("rejected"))


def encode_rows(
    df: DataFrame,
    encode: Callable[[pa.Array], pa.Array],
    columns: Sequence[str],
    kept: Sequence[str],
    output: str,
    *,
    reject: bool,
    once: Sequence[str] = (),
    purpose: str = "",
) -> DataFrame:
    """Encode some columns of each row as a message.

    Args:
        df: the rows. Rows that `mark_repeated` has marked are not encoded.
        encode: a function of a struct, whose fields are `columns` in this order. It returns binary
            messages, or with `reject` a struct of `message` and `rejected`.
        columns: names of the columns that the function needs.
        kept: names of the columns that stay.
        output: name of the column of messages.
        reject: set aside rows that cannot be encoded, with a reason in a column "rejected".
        once: names of the columns whose values no two rows may share; empty for no such rule.
        purpose: use of such values, for the error.

    Raises:
        RandomnessReuseError: without `reject`, two rows share such values; a job checks this.
    """
    if once and reject:
        df = mark_repeated(df, once, purpose)
    dropped = [name for name in df.columns if name not in kept]
    values = [column(name) for name in columns]
    if AGAIN in df.columns:
        values[0] = F.when(~column(AGAIN), values[0])
    row = F.struct(*[value.alias(str(place)) for place, value in enumerate(values)])
    value = row_function("message binary, rejected string" if reject else "binary")(encode)(row)
    repeated = NUMBER_REPEATED if len(once) == 1 else REPEATED
    field = "message" if reject else ""
    result = finish(df, dropped, value, output, field=field, repeated=repeated)
    if once and not reject:
        check_once(df, once, purpose)
    return result


def mark_repeated(
    df: DataFrame, columns: Sequence[str], purpose: str, content: Column | None = None
) -> DataFrame:
    """Add a column `AGAIN`: whether other rows have the same values of some columns.

    Rows with a NULL in these columns are not marked. The column is computed with the result, and
    leaves the rows sorted by `columns`.

    Args:
        df: the rows, not a stream.
        columns: names of the columns to compare.
        purpose: use of the values, for the error.
        content: a value that tells rows apart: only rows that differ in it are marked. None marks
            equal rows, too.
    """
    _refuse_stream(df, purpose)
    names = [column(name) for name in columns]
    same = Window.partitionBy(*names)
    again = F.count("*").over(same) > 1
    if content is not None:
        # NULL is no content of its own.
        again = F.coalesce(F.min(content).over(same) < F.max(content).over(same), F.lit(False))
    for name in names:
        again = again & name.isNotNull()
    return df.select("*", again.alias(AGAIN))


def has_exact(one: DataFrame, other: DataFrame, columns: Iterable[str]) -> bool:
    """Return whether values of some columns are equal exactly if their bytes are.

    Floats, strings under a collation, and types that Spark casts to compare them are not exact.
    """
    for name in columns:
        kinds = {df.schema[name].dataType.simpleString() for df in (one, other)}
        if not (kinds <= _EXACT_TYPES and (len(kinds) == 1 or kinds <= _INTEGERS)):
            return False
    return True


def check_once(df: DataFrame, columns: Sequence[str], purpose: str) -> None:
    """Refuse a DataFrame in which two rows have the same values of some columns. Runs a job."""
    _refuse_stream(df, purpose)
    keys = [f"key{place}" for place in range(len(columns))]
    named = zip(columns, keys, strict=True)
    rows = df.select(*[column(name).alias(key) for name, key in named]).dropna()
    if has_exact(df, df, columns):
        # Sorting hashes of eight bytes is a third of the work of a table of whole keys. Equal keys
        # have equal hashes, so keys are compared only if there are equal hashes.
        hashes = rows.select(F.xxhash64(*keys).alias("hash")).repartition("hash")
        if not _first_repeated(hashes.sortWithinPartitions("hash"), ["hash"]):
            return
    for row in _first_repeated(rows, keys):
        values = ", ".join(f"{name} {row[key]!r}" for name, key in zip(columns, keys, strict=True))
        raise RandomnessReuseError(f"{values} occurs {row['count']} times: {purpose}")


def _refuse_stream(df: DataFrame, purpose: str) -> None:
    if df.isStreaming:
        raise ParameterError(
            f"a streaming DataFrame cannot be checked for {purpose}: call this in foreachBatch"
        )


def _first_repeated(df: DataFrame, columns: Sequence[str]) -> list[Row]:
    """Return one row of values that several rows have, with their count; or no row."""
    rows: list[Row] = df.groupBy(*columns).count().where("`count` > 1").limit(1).collect()
    return rows
