"""What does Spark add to a match, and what does it gain? Unit: pairs per second, local[2].

FormulaMatch, and with half the events BranchingMatch and BroadcastMatch, in the same run. Of each:
the match through Spark (Parquet to answers, both cores), the same kernel called directly on one
core (arrays in memory), the join and the transport alone (a Spark expression over the same
columns), and a plaintext Spark filter over the same pairs. Message stores are fast enough for
Spark's fixed cost to show, so they take more pairs: the match of two stores, files to answers, with
the kernel and the plaintext filter again. With a broadcast, workers look up the event of each row
in "Spark join and match"; in arrays, all interests of an event follow one another.

    python benchmarks/bench_spark.py [--events N] [--store-events N] [--subscribers N] [--quick]
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from report import Table, options
from spark_session import measured_spark
from timing import one_thread, seconds
from workloads import SCHEMA

from ccbps import SharedSeed
from ccbps import spark as cs
from ccbps.arrow import binary_rows
from ccbps.matching import Answers, BranchingMatch, BroadcastMatch, FormulaMatch
from ccbps.matching.contract.matcher import Matcher

KEY = cs.EnvKey("CCBPS_BENCH_SEED")
MATCHERS: tuple[Matcher, ...] = (
    FormulaMatch.box(SCHEMA),
    BranchingMatch.box(SCHEMA),
    BroadcastMatch.box(SCHEMA),
)
NAMES = ("events", "interests", "plain")


def frames(
    spark: SparkSession, matcher: Matcher, events: int, subscribers: int
) -> tuple[DataFrame, DataFrame, DataFrame]:
    """Return messages of events and of interests, and the plaintext of all pairs."""
    rng = np.random.default_rng(3)
    records = pa.table({n: rng.integers(0, 1 << SCHEMA[n].bits, events) for n in SCHEMA})
    table = spark.createDataFrame(records.append_column("round", pa.array(np.arange(events))))
    bounds = rng.integers(0, 1 << 15, subscribers)
    rows = [(f"s{i:04d}", f"a >= {b} AND c < {32 * b}", int(b)) for i, b in enumerate(bounds)]
    subs = spark.createDataFrame(rows, "subscription string, predicate string, bound long")
    subs = subs.repartition(8, "subscription")
    addressed = subs.select("subscription").crossJoin(F.broadcast(table))
    rounds = F.broadcast(spark.range(events).withColumnRenamed("id", "round"))
    return (
        cs.encode_events(table if matcher.answers is Answers.ROUND else addressed, matcher, KEY),
        cs.encode_interests(subs.drop("bound").crossJoin(rounds), matcher, KEY),
        subs.drop("predicate").crossJoin(F.broadcast(table)),
    )


def prepare(
    spark: SparkSession, matcher: Matcher, events: int, subscribers: int, folder: Path
) -> None:
    """Write messages and plaintext of all pairs as Parquet, and joined messages, a row a pair."""
    for name, df in zip(NAMES, frames(spark, matcher, events, subscribers), strict=True):
        df.write.option("compression", "none").parquet(str(folder / name))
    both = spark.read.parquet(str(folder / "events")).join(
        spark.read.parquet(str(folder / "interests")),
        ["round"] if matcher.answers is Answers.ROUND else ["subscription", "round"],
    )
    both.write.option("compression", "none").parquet(str(folder / "pairs"))


def prepare_stores(
    spark: SparkSession, matcher: Matcher, events: int, subscribers: int, folder: Path
) -> None:
    """Write stores of messages, and plaintext of all pairs as Parquet."""
    *sides, plain = frames(spark, matcher, events, subscribers)
    for name, df in zip(NAMES, sides, strict=False):
        cs.write_messages(df, folder / name, matcher, kind=name[:-1], partitions=8)
    plain.write.option("compression", "none").parquet(str(folder / "plain"))


def main() -> None:
    given = options(__doc__, events=10_000, store_events=20_000, subscribers=100, quick="few pairs")
    if given.quick:
        given.events, given.store_events, given.subscribers = 200, 300, 5
    sizes = {
        "pairs": given.events * given.subscribers,
        "stores": given.store_events * given.subscribers,
    }
    os.environ[KEY.name] = SharedSeed.generate().to_text()
    with measured_spark(sql_execution_arrow_maxBytesPerBatch="8m") as (spark, folder):
        speeds: dict[str, dict[str, dict[str, float]]] = {size: {} for size in sizes}
        for matcher in MATCHERS:
            part = 1 if matcher is MATCHERS[0] else 2
            with tempfile.TemporaryDirectory(dir=folder) as name:
                best = measure(spark, matcher, given, part, Path(name))
            print(
                f"{matcher!r}: {matcher.event_bytes} + {matcher.interest_bytes} bytes", flush=True
            )
            for size, took in best.items():
                # The kernel always decides the fewer pairs.
                speeds[size][type(matcher).__name__] = {
                    n: sizes["pairs" if n == KERNEL else size] / part / s for n, s in took.items()
                }
    first, *others = (type(matcher).__name__ for matcher in MATCHERS)
    heads = {first: ",.0f"}
    for other in others:
        heads |= {other: ",.0f", f"{first} : {other}": ".2f"}
    for size, title in (("pairs", "Messages as tables"), ("stores", "Message stores")):
        print(f"\n{sizes[size]:,} pairs")
        table = Table(f"{title}, pairs a second", heads, least=14)
        for name, ours in speeds[size][first].items():
            cells = [ours]
            for other in others:
                cells += [speeds[size][other][name], ours / speeds[size][other][name]]
            table.row(name, *cells)


KERNEL, PLAIN = "kernel, one core", "plaintext Spark filter"
STORES = "Spark match of stores"


def measure(
    spark: SparkSession, matcher: Matcher, given: Any, part: int, folder: Path
) -> dict[str, dict[str, float]]:
    """Return the seconds of everything, by the number of pairs, with a part of the events."""
    (folder / "stores").mkdir()
    events, store_events = given.events // part, given.store_events // part
    prepare(spark, matcher, events, given.subscribers, folder)
    prepare_stores(spark, matcher, store_events, given.subscribers, folder / "stores")

    def read(kind: str) -> DataFrame:
        return spark.read.parquet(str(folder / kind))

    # Read without Spark, which collects a gigabyte at most.
    arrays = pq.read_table(folder / "pairs", columns=["event_message", "interest_message", "round"])
    if matcher.answers is Answers.ROUND:
        arrays = arrays.sort_by("round")
    event_rows, interest_rows = (
        np.concatenate([binary_rows(part, width)[0] for part in side.chunks])
        for side, width in zip(
            arrays.columns[:2], (matcher.event_bytes, matcher.interest_bytes), strict=True
        )
    )
    broker = matcher.broker()

    def on_one_core() -> int:
        return int(broker.match(event_rows, interest_rows).sum())

    column = cs.match_udf(matcher)("event_message", "interest_message")
    matches = read("pairs").select(column.alias("matched"))
    joined = cs.match(read("events"), read("interests"), matcher)
    transport = read("pairs").where("event_message = interest_message")
    stores = folder / "stores" / "events", folder / "stores" / "interests"
    condition = "a >= bound AND c < 32 * bound"
    actions: dict[str, dict[str, Callable[[], int]]] = {
        "pairs": {
            "Spark match of pairs": matches.where("matched").count,
            "Spark join and match": joined.where("matched").count,
            KERNEL: on_one_core,
            "Spark a = b, same bytes": transport.count,
            PLAIN: read("plain").where(condition).count,
        },
        "stores": {
            STORES: cs.match_messages(spark, *stores, matcher).where("matched").count,
            KERNEL: on_one_core,
            PLAIN: read("stores/plain").where(condition).count,
        },
    }
    best = {}
    for size, group in actions.items():
        counts = {name: action() for name, action in group.items()}
        for name, count in counts.items():
            if "match" in name or (name, size) == (KERNEL, "pairs"):
                assert count == counts[PLAIN], f"{name}: {count} != {counts[PLAIN]}"
        best[size] = seconds(group, rounds=3)
    return best


if __name__ == "__main__":
    one_thread()
    main()
