"""Rows of a DataFrame that have the same ids as others, and encoders, which take none of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F

from ccbps.errors import ParameterError, RandomnessReuseError
from ccbps.spark.columns import (
    AGAIN,
    REPEATED,
    column,
    finish,
    finish_struct,
    row_function,
    struct,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

_INTEGERS: Final = {"tinyint", "smallint", "int", "bigint"}
_EXACT_TYPES: Final = {
    *_INTEGERS,
    *("string", "binary", "boolean", "date", "timestamp", "timestamp_ntz"),
}


def encode_rows(
    df: DataFrame,
    encode: Callable[[pa.Array], pa.Array],
    columns: Sequence[str],
    kept: Sequence[str],
    output: str,
    *,
    reject: bool,
    once: Sequence[str] = (),
    what: str = "",
    repeated: str = REPEATED,
) -> DataFrame:
    """Encode some columns of each row as a message.

    Args:
        df: the rows; those that `mark_repeated` has marked are not encoded.
        encode: gets `columns` as a struct of fields by position; returns messages, or with `reject`
            a struct of `message` and `rejected`.
        columns: what is encoded.
        kept: columns that stay.
        output: name of the column of messages.
        reject: set rows aside with the reason, in a column "rejected".
        once: columns whose values no two rows may share; none if that is of no matter.
        what: what such values are for, in the error.
        repeated: the reason of rows that share them.

    Raises:
        RandomnessReuseError: without `reject`, two rows share them. Runs one job to find out.
    """
    if once and reject:
        df = mark_repeated(df, once, what)
    dropped = [name for name in df.columns if name not in kept]
    value = struct(columns, marked=AGAIN in df.columns)
    if reject:
        message = row_function("message binary, rejected string")(encode)(value)
        return finish_struct(df, dropped, message, "message", output, repeated)
    result = finish(df, dropped, row_function("binary")(encode)(value), output)
    if once:
        check_once(df, once, what)
    return result


def mark_repeated(
    df: DataFrame, columns: Sequence[str], what: str, content: Column | None = None
) -> DataFrame:
    """Add a column `AGAIN`: whether the same values of `columns` occur in other rows, too.

    Rows with a NULL there are not marked. With `content`, only rows with different content are. It
    is computed with the result, from rows in the order of `columns`, in which they stay.
    """
    _refuse_stream(df, what)
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
    """Return whether values of these columns are equal where their bytes are, in both DataFrames.

    Not so floats, strings under a collation, and types that Spark casts to compare them.
    """
    for name in columns:
        kinds = {df.schema[name].dataType.simpleString() for df in (one, other)}
        if not (kinds <= _EXACT_TYPES and (len(kinds) == 1 or kinds <= _INTEGERS)):
            return False
    return True


def check_once(df: DataFrame, columns: Sequence[str], what: str) -> None:
    """Refuse a DataFrame in which the same values of `columns` occur in two rows. Runs a job."""
    _refuse_stream(df, what)
    keys = [column(name).alias(f"key{i}") for i, name in enumerate(columns)]
    rows = df.select(*keys).dropna()
    same = [f"key{i}" for i in range(len(keys))]
    if has_exact(df, df, columns):
        # Sorted numbers of eight bytes are a third of the work of whole keys in a table. Equal keys
        # have equal hashes; whether equal hashes have equal keys is looked at where there are some.
        hashes = rows.select(F.xxhash64(*same).alias("hash")).repartition("hash")
        if not _several(hashes.sortWithinPartitions("hash"), ["hash"]):
            return
    found = _several(rows, same)
    if found:
        values = ", ".join(f"{name} {found[0][f'key{i}']!r}" for i, name in enumerate(columns))
        raise RandomnessReuseError(f"{values} occurs {found[0]['count']} times: {what}")


def _refuse_stream(df: DataFrame, what: str) -> None:
    if df.isStreaming:
        raise ParameterError(
            f"a streaming DataFrame cannot be checked for {what}: call this in foreachBatch"
        )


def _several(df: DataFrame, columns: Sequence[str]) -> list[Row]:
    """Return values that several rows have: one row of them, or none."""
    rows: list[Row] = df.groupBy(*columns).count().where("`count` > 1").limit(1).collect()
    return rows
