"""Simulated networks of brokers, a run for each row: sweeps and Monte Carlo on all cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from ccbps.errors import ParameterError
from ccbps.overlay import Trial
from ccbps.overlay.trials import TrialResult
from ccbps.spark.frames import column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["simulate"]

_KINDS = {
    "str": StringType(),
    "int": LongType(),
    "int | None": LongType(),
    "float": DoubleType(),
    "bool": BooleanType(),
    "Collection[str]": ArrayType(StringType()),
}
_NEEDED = ("topology", "hops", "protocol", "k")
_TRIAL = {field.name: _KINDS[str(field.type)] for field in fields(Trial)}
_RESULT = {field.name: _KINDS[str(field.type)] for field in fields(TrialResult)}


def simulate(trials: DataFrame) -> DataFrame:
    """Simulate how secrets travel through a network of brokers, a trial for each row.

    Each row is computed by itself; `DataFrame.repartition` gives each core its share of them. Rows
    with a seed of their own are samples, which ``groupBy`` averages.

    Args:
        trials: columns named and meant as the attributes of `ccbps.overlay.Trial`: topology, hops,
            protocol and k, and any of the others, NULL for their default. Other columns are kept.

    Returns:
        all columns of `trials`, and those of `ccbps.overlay.TrialResult`: messages, formula, held,
        delivered and recovered.

    Raises:
        ParameterError: a column is missing, or has the name of a result. On the workers: a trial is
            not possible.

    Example:
        .. code-block:: python

            trials = spark.range(20).selectExpr(
                "'line' AS topology", "3L AS hops", "'ISSPS' AS protocol", "2L AS k", "3L AS n",
                "0.1D AS failing", "id AS seed",
            )
            average = cs.simulate(trials).agg({"delivered": "avg"}).first()[0]
    """
    for name in _NEEDED:
        if name not in trials.columns:
            raise ParameterError(f"trials must have a column {name!r}, got {trials.columns}")
    for name in _RESULT:
        if name in trials.columns:
            raise ParameterError(f"trials has a column {name!r}, which is a result's: rename it")
    given = [name for name in _TRIAL if name in trials.columns]
    typed = trials.select(
        *[
            column(name).cast(_TRIAL[name]).alias(name) if name in given else column(name)
            for name in trials.columns
        ]
    )
    results = [StructField(name, kind) for name, kind in _RESULT.items()]
    schema = StructType([*typed.schema.fields, *results])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = batch.select(given).to_pylist()
            made = [asdict(_trial(row).run()) for row in rows]
            columns = [pa.array([row[name] for row in made]) for name in _RESULT]
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, *columns], names=[*batch.schema.names, *_RESULT]
            )

    return typed.mapInArrow(run, schema)


def _trial(row: dict[str, Any]) -> Trial:
    return Trial(**{name: value for name, value in row.items() if value is not None})
