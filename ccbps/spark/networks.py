"""Simulated networks of brokers, a run for each row: sweeps and Monte Carlo on all cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, types

from ccbps.errors import ParameterError
from ccbps.overlay import Trial
from ccbps.overlay.splits.trials import TrialResult
from ccbps.spark.columns import map_batches
from ccbps.spark.frames import WHOLE

_KINDS = {
    "str": types.StringType(),
    "int": types.LongType(),
    "int | None": types.LongType(),
    "float": types.DoubleType(),
    "bool": types.BooleanType(),
    "Collection[str]": types.ArrayType(types.StringType()),
}
_FITS = {"long": WHOLE, "double": (*WHOLE, "float", "double", "decimal")}
_SHARES = ("failing", "colluding")
_NEEDED = ("topology", "hops", "protocol", "k")
_TRIAL = {field.name: _KINDS[str(field.type)] for field in fields(Trial)}
_RESULT = {field.name: _KINDS[str(field.type)] for field in fields(TrialResult)}


def simulate(trials: DataFrame) -> DataFrame:
    """Simulate how secrets travel through a network of brokers, with a trial in each row.

    Each row is computed by itself. `DataFrame.repartition` gives each core its share of them. Rows
    with a seed of their own are samples, which ``groupBy`` averages.

    Args:
        trials: rows whose columns are attributes of `ccbps.overlay.Trial`: topology, hops, protocol
            and k, and any of the others. A NULL among the others is the default. Columns of other
            names are kept.

    Returns:
        All columns of `trials`, and those of `ccbps.overlay.TrialResult`: messages, formula, held,
        delivered and recovered.

    Raises:
        ParameterError: a column is missing, of another type, or has the name of a result; or, when
            the result is computed, a trial is not possible.

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
    lower = [name.lower() for name in trials.columns]
    for name in _RESULT:
        if name in lower:
            raise ParameterError(f"trials has a column {name!r}, which is a result's: rename it")
    given = [name for name in _TRIAL if name in trials.columns]
    for name in given:
        kind, wanted = trials.schema[name].dataType, _TRIAL[name]
        if kind.typeName() not in _FITS.get(wanted.typeName(), (wanted.typeName(),)):
            raise ParameterError(
                f"column {name!r} must be {wanted.simpleString()}, got {kind.simpleString()}: "
                "cast it"
            )
    results = [types.StructField(name, kind) for name, kind in _RESULT.items()]
    schema = types.StructType([*trials.schema.fields, *results])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            results = [_trial(row).run() for row in batch.select(given).to_pylist()]
            columns = [_values(name, results) for name in _RESULT]
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, *columns], names=[*batch.schema.names, *_RESULT]
            )

    return map_batches(trials, run, schema)


def _trial(row: dict[str, Any]) -> Trial:
    for name in _NEEDED:
        if row[name] is None:
            raise ParameterError(f"column {name!r} is NULL, and has no default")
    if None in (row.get("enclaves") or ()):
        raise ParameterError("column 'enclaves' has a NULL among its names")
    values: dict[str, Any] = {name: value for name, value in row.items() if value is not None}
    for name in {*values} & {*_SHARES}:
        values[name] = float(values[name])
    return Trial(**values)


def _values(name: str, results: list[TrialResult]) -> pa.Array:
    try:
        return pa.array([getattr(result, name) for result in results])
    except OverflowError:
        raise ParameterError(
            f"{name} are too many for a LONG: share fewer secrets, or on shorter ways"
        ) from None
