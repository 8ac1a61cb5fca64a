"""What do generations cost, what does compaction bring, and what is the data source? local[2].

The same pairs of FormulaMatch in stores of one generation and of many: matched, compacted and
matched again; and read as tables, through the data source "ccbps" and from Parquet. All beside
the match of Parquet files, which joins messages in Spark. The limit is to read the bytes once.

    python benchmarks/bench_stores.py [--rounds N] [--subscribers N] [--generations N] [--quick]
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from report import Table, options
from spark_session import measured_spark
from timing import one_thread, seconds, timed
from workloads import SCHEMA

from ccbps import SharedSeed
from ccbps import spark as cs
from ccbps.matching import FormulaMatch

KEY = cs.EnvKey("CCBPS_BENCH_SEED")
BOX = FormulaMatch.box(SCHEMA)


def sides(spark: SparkSession, rounds: int, subscribers: int) -> tuple[DataFrame, DataFrame]:
    """Return messages of events and of interests."""
    rng = np.random.default_rng(3)
    numbers = spark.range(rounds).selectExpr(
        "id AS round", "id * 7 % 65536 AS a", "id * 31 % 65536 AS b", "id * 1009 % 1048576 AS c"
    )
    rows = [(f"s{i:04d}", f"a >= {b}") for i, b in enumerate(rng.integers(0, 1 << 16, subscribers))]
    subs = spark.createDataFrame(rows, "subscription string, predicate string")
    addressed = subs.repartition(8, "subscription").crossJoin(F.broadcast(numbers))
    return cs.encode_events(addressed, BOX, KEY), cs.encode_interests(addressed, BOX, KEY)


def read_once(folder: Path) -> int:
    """Sum the bytes of all files, mapped."""
    return sum(int(np.memmap(path, np.uint8, "r").sum(dtype=np.int64)) for path in folder.iterdir())


def main() -> None:
    given = options(
        __doc__, rounds=10_000, subscribers=100, generations=50, quick="few pairs and generations"
    )
    if given.quick:
        given.rounds, given.subscribers, given.generations = 1000, 10, 3
    os.environ[KEY.name] = SharedSeed.generate().to_text()
    with measured_spark(sql_execution_arrow_maxBytesPerBatch="8m") as (spark, folder):
        measure(spark, given, folder)


def measure(spark: SparkSession, given: Any, folder: Path) -> None:
    paths = {kind: folder / f"{kind}.parquet" for kind in ("event", "interest")}
    both = sides(spark, given.rounds, given.subscribers)
    for path, df in zip(paths.values(), both, strict=True):
        df.write.option("compression", "none").parquet(str(path))
    events, interests = (spark.read.parquet(str(path)) for path in paths.values())
    print(f"{given.rounds * given.subscribers:,} pairs of {BOX.event_bytes} + ", end="")
    print(f"{BOX.interest_bytes} bytes, {given.generations} generations")

    one, many, wants = folder / "one", folder / "many", folder / "wants"
    cs.write_messages(interests, wants, BOX, kind="interest", partitions=8)
    took = {"written at once": timed(lambda: write(events, one))}
    step = -(-given.rounds // given.generations)

    def write_generations() -> None:
        for low in range(0, given.rounds, step):
            some = events.where(F.col("round").between(low, low + step - 1))
            cs.write_messages(some, many, BOX, kind="event", mode="append", partitions=2)

    took["written in many generations"] = timed(write_generations)

    def matched(path: Path) -> Callable[[], int]:
        return lambda: cs.match_messages(spark, path, wants, BOX).where("matched").count()

    cs.register_source(spark)
    actions: dict[str, Callable[[], int]] = {
        "match of Parquet": cs.match(events, interests, BOX).where("matched").count,
        "match of one generation": matched(one),
        "match of many generations": matched(many),
        "table from the data source": lambda: weigh(spark.read.format("ccbps").load(str(one))),
        "table from Parquet": lambda: weigh(events),
        "the limit: bytes read once": lambda: read_once(one),
    }
    found = [action() for action in list(actions.values())[:3]]
    assert len(set(found)) == 1, found
    best = seconds(actions, rounds=3)
    took["compacted"] = timed(lambda: cs.compact_messages(spark, many, BOX, kind="event"))
    again = matched(many)
    assert again() == found[0]
    best |= seconds({"match once compacted": again}, rounds=3)
    unit = best["match of one generation"]
    heads = {"seconds": ".2f", "of the match of one generation": ".2f"}
    table = Table("Seconds of a job", heads)
    for label, value in {**took, **best}.items():
        table.row(label, value, value / unit)


def write(events: DataFrame, path: Path) -> None:
    cs.write_messages(events, path, BOX, kind="event", partitions=8)


def weigh(df: DataFrame) -> int:
    """Run a job that touches all messages."""
    found: int = df.agg(F.sum(F.length("event_message"))).collect()[0][0]
    return found


if __name__ == "__main__":
    one_thread()
    main()
