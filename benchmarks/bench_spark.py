"""What does Spark add to a match, and what does it gain? Unit: pairs a second, local[2].

In one run, over the same messages: the match through Spark (Parquet to answers, both cores), the
same kernel called directly on one core (arrays in memory), the join and the transport alone (a
Spark expression over the same columns), and a plaintext Spark filter over the same pairs.

    python benchmarks/bench_spark.py [--events 4000] [--subscribers 100]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from timing import machine, seconds

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ccbps import Schema, SharedSeed, UInt
from ccbps import spark as cs
from ccbps.matching import BranchingMatch
from ccbps.spark.arrow import binary_rows

KEY = cs.EnvKey("CCBPS_BENCH_SEED")
SCHEMA = Schema(a=UInt(16), b=UInt(16), c=UInt(20))
MATCHER = BranchingMatch.box(SCHEMA)


def prepare(spark: SparkSession, events: int, subscribers: int, folder: Path) -> None:
    """Messages and plaintext of all pairs, as Parquet, joined already: one row a pair."""
    rng = np.random.default_rng(3)
    records = pa.table({n: rng.integers(0, 1 << SCHEMA[n].bits, events) for n in SCHEMA})
    table = spark.createDataFrame(records.append_column("round", pa.array(np.arange(events))))
    bounds = rng.integers(0, 1 << 15, subscribers)
    rows = [(f"s{i:04d}", f"a >= {b} AND c < {32 * b}", int(b)) for i, b in enumerate(bounds)]
    subs = spark.createDataFrame(rows, "subscription string, predicate string, bound long")
    subs = subs.repartition(8, "subscription")
    labels = subs.select("subscription")
    addressed = labels.crossJoin(F.broadcast(table))
    rounds = F.broadcast(spark.range(events).withColumnRenamed("id", "round"))
    for name, df in (
        ("events", cs.encode_events(addressed, MATCHER, KEY)),
        ("interests", cs.encode_interests(subs.drop("bound").crossJoin(rounds), MATCHER, KEY)),
        ("plain", subs.drop("predicate").crossJoin(F.broadcast(table))),
    ):
        df.write.option("compression", "none").parquet(str(folder / name))
    both = spark.read.parquet(str(folder / "events")).join(
        spark.read.parquet(str(folder / "interests")), ["subscription", "round"]
    )
    both.write.option("compression", "none").parquet(str(folder / "pairs"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=4000)
    parser.add_argument("--subscribers", type=int, default=100)
    options = parser.parse_args()
    os.environ[KEY.name] = SharedSeed.generate().to_text()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.sql.execution.arrow.maxBytesPerBatch", "8m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    pairs = options.events * options.subscribers
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(spark, options.events, options.subscribers, folder)

        def read(kind: str) -> object:
            return spark.read.parquet(str(folder / kind))

        column = cs.match_column("event_message", "interest_message", MATCHER)
        matches = read("pairs").select(column.alias("matched"))
        joined = cs.match(read("events"), read("interests"), MATCHER)
        transport = read("pairs").where("event_message = interest_message")
        plain = read("plain").where("a >= bound AND c < 32 * bound")

        arrays = read("pairs").select("event_message", "interest_message").toArrow()
        chunks = [
            tuple(binary_rows(part, MATCHER.event_bytes)[0] for part in batch.columns)
            for batch in arrays.to_batches()
        ]
        broker = MATCHER.broker()

        def kernel() -> int:
            return sum(int(broker.match(e, i).sum()) for e, i in chunks)

        actions: dict[str, Callable[[], object]] = {
            "Spark match of pairs": lambda: matches.where("matched").count(),
            "Spark join and match": lambda: joined.where("matched").count(),
            "kernel, one core": kernel,
            "Spark a = b, same bytes": transport.count,
            "plaintext Spark filter": plain.count,
        }
        counts = {name: action() for name, action in actions.items()}
        plain_count = counts["plaintext Spark filter"]
        for name in ("Spark match of pairs", "Spark join and match", "kernel, one core"):
            assert counts[name] == plain_count, f"{name}: {counts[name]} != {plain_count}"
        best = seconds(actions, rounds=5)
    spark.stop()
    print(f"{machine()}; {pairs:,} pairs, {MATCHER.event_bytes} bytes a side")
    base = best["kernel, one core"]
    print(f"{'':<26}{'pairs/s':>14}{'ratio to kernel':>17}{'ratio to plaintext':>20}")
    for name, took in best.items():
        to_plain = best["plaintext Spark filter"] / took
        print(f"{name:<26}{pairs / took:>14,.0f}{base / took:>17.2f}{to_plain:>20.3f}")


if __name__ == "__main__":
    main()
