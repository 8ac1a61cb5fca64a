"""Messages of pairs and rounds, made without Spark, for message stores and streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from ccbps import Schema, SharedSeed, UInt
from ccbps import spark as cs
from ccbps.matching import FormulaMatch

SCHEMA = Schema(a=UInt(8), b=UInt(6))
BOX = FormulaMatch.box(SCHEMA)
SEED = SharedSeed.generate()
KINDS = "subscription string, round long, {}_message binary"
Rows = dict[tuple[str, int], Any]
Rounds = dict[str, list[int]]


def predicate(label: str) -> str:
    return f"a >= {3 * int(label[1:])} AND b < {60 - int(label[1:])}"


def record(label: str, number: int) -> dict[str, int]:
    return {"a": (37 * number + int(label[1:])) % 256, "b": number * number % 64}


def rows_of(rounds: Rounds, kind: str) -> Rows:
    """Messages by pair and round, in no order."""
    keys = [(label, number) for label, numbers in rounds.items() for number in numbers]
    labels, numbers = [label for label, _ in keys], [number for _, number in keys]
    if kind == "event":
        made = BOX.publisher(SEED).encode([record(*key) for key in keys], numbers, pairs=labels)
    else:
        made = BOX.subscriber(SEED).encode([*map(predicate, labels)], numbers, pairs=labels)
    return dict(zip(keys, map(bytes, made), strict=True))


def frame(spark: SparkSession, rows: Rows | Rounds, kind: str) -> DataFrame:
    """Rows, or those of some rounds, shuffled."""
    if rows and isinstance(next(iter(rows)), str):
        rows = rows_of(rows, kind)  # type: ignore[arg-type]
    mixed = [(*key, value) for key, value in rows.items()]
    np.random.default_rng(5).shuffle(mixed)  # type: ignore[arg-type]
    return spark.createDataFrame([(s, int(r), m) for s, r, m in mixed], KINDS.format(kind))


def write(spark: SparkSession, rows: Rows | Rounds, path: Path, kind: str, **options: Any) -> None:
    df = frame(spark, rows, kind)
    cs.write_messages(df, path, BOX, kind=kind, **options)  # type: ignore[arg-type]


def append(spark: SparkSession, rows: Rows | Rounds, path: Path, kind: str, **options: Any) -> None:
    write(spark, rows, path, kind, mode="append", **options)


def wanted(events: Rounds, interests: Rounds) -> dict[tuple[str, int], bool]:
    """Answers of all pairs and rounds that both sides have."""
    out = {}
    for label in events.keys() & interests.keys():
        plain = SCHEMA.parse(predicate(label))
        for number in set(events[label]) & set(interests[label]):
            out[label, number] = bool(plain.evaluate([record(label, number)])[0])
    return out
