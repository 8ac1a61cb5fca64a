"""k-anonymity of DataFrames, before they are encoded: one pass, and no shuffle.

Each task puts the rows of its partition into classes, piece by piece. Every class has k rows of one
piece, so the result is k-anonymous whatever the partitions are. Partitions only affect the rows
lost: a partition with fewer than k rows is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ccbps.anonymity import Anonymizer
from ccbps.anonymity.releases import HIGH, LOW
from ccbps.checks import instance, whole
from ccbps.columnar.anonymity import anonymous_rows
from ccbps.errors import ParameterError
from ccbps.spark.columns import column, map_batches
from ccbps.spark.frames import check_keep, require

PIECE: Final = 1 << 17
"""Rows of a piece: large enough for narrow ranges, small enough for a worker's memory."""


def anonymize(
    df: DataFrame, anonymizer: Anonymizer, *, keep: Sequence[str] = (), piece: int = PIECE
) -> DataFrame:
    """Make the rows of a DataFrame k-anonymous, with ranges in place of identifying values.

    The result has the columns of ``anonymizer.released``, of the types that they had, so
    `encode_events` with a matcher for that schema comes next. Subscriptions are rewritten and
    encoded where they are made, by `Anonymizer.rewrite`.

    A stream is made k-anonymous micro-batch by micro-batch: the trigger's interval is the time that
    rows wait for one another. Small micro-batches need few partitions: call ``coalesce(1)`` first.

    Hazard: the input must be stable. If Spark computes it twice, with its rows in another order,
    there are two independent releases, which can be intersected: write the result once.

    Example:
        .. code-block:: python

            from ccbps.anonymity import Anonymizer

            hidden = cs.anonymize(quotes.coalesce(1), Anonymizer(schema, k=2, sensitive=["issue"]))
            # issue, price_low, price_high: both rows have 119 to 121

    Args:
        df: the rows, with the columns of ``anonymizer.schema``; batch or stream.
        anonymizer: the way classes are made; public.
        keep: names of other columns that stay as they are. They may identify a row.
        piece: number of rows that are put into classes together, at least k.

    Returns:
        A row for each row that may be published. A partition whose rows are too few, or do not keep
        the rule on sensitive values, has none.

    Raises:
        ParameterError: a column is missing, or has the name of a result; or `piece` is too small.
        EventError: (as the cause of Spark's error, when the result is computed) a value does not
            fit the schema.
    """
    schema = instance("anonymizer", anonymizer, Anonymizer).schema
    whole("piece", piece, anonymizer.k, unit="rows")
    kept = check_keep(keep, [], [*schema])
    require(df, [*schema, *kept], rest=False)
    out = StructType()
    for name in anonymizer.released:
        source = name
        if name not in schema:
            source = name.removesuffix(HIGH if name.endswith(HIGH) else LOW)
        out.add(name, df.schema[source].dataType)
    for name in kept:
        if name in anonymizer.released:
            raise ParameterError(f"keep: the result has a column {name!r} of its own; rename it")
        out.add(df.schema[name])
    rows = df.select(*map(column, [*schema, *kept]))
    return map_batches(rows, partial(anonymous_rows, anonymizer, tuple(kept), piece), out)
