"""What does it cost to give events their rounds in Spark? Seconds of an encoding, local[2].

In one run, each event for each subscription: rounds numbered by hand, with a join and the check
that none occurs twice, which computes the input a second time; the same without the check, which is
the limit; a ledger that sees the events first; and again, as when a job is repeated; and a ledger
that a server has.

    python benchmarks/bench_addressing.py [--quick] [--events N] [--subscribers N]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_session import local_spark
from timing import machine, one_thread, seconds

from ccbps import Schema, SharedSeed, UInt
from ccbps import spark as cs
from ccbps.matching import FormulaMatch

SCHEMA = Schema(a=UInt(16), b=UInt(16), c=UInt(20))
MATCHER = FormulaMatch.box(SCHEMA)
ROUNDS = 3


def written(df: DataFrame) -> None:
    """All of it is computed, and none is kept."""
    df.write.format("noop").mode("overwrite").save()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few events")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--subscribers", type=int, default=10)
    options = parser.parse_args()
    if options.quick:
        options.events, options.subscribers = 500, 3
    with local_spark() as spark:
        print(machine())
        with tempfile.TemporaryDirectory() as name:
            measure(spark, Path(name), options)


def measure(spark: SparkSession, folder: Path, options: Any) -> None:
    count, people = options.events, options.subscribers
    rng = np.random.default_rng(3)
    columns = {name: rng.integers(0, 1 << SCHEMA[name].bits, count) for name in SCHEMA}
    table = pa.table({"id": np.arange(count), **columns})
    spark.createDataFrame(table).repartition(8).write.parquet(str(folder / "events"))
    events = spark.read.parquet(str(folder / "events"))
    (folder / "seed").write_text(SharedSeed.generate().to_text())
    key = cs.FileKey(folder / "seed")
    labels = [f"subscriber {n}" for n in range(people)]
    whom = spark.createDataFrame([(label,) for label in labels], "subscription string")
    joined = events.crossJoin(F.broadcast(whom)).withColumnRenamed("id", "round")
    unchecked = cs.encode_events(joined, MATCHER, key)
    made = iter(range(10**9))

    def by_ledger(path: Path) -> None:
        allotted(cs.EventLedger(path, rounds=count))

    def by_server(path: Path) -> None:
        with cs.LedgerServer(cs.EventLedger(path, rounds=count), key) as server:
            allotted(cs.RemoteLedger(server.address))

    def allotted(ledger: cs.EventLedger | cs.RemoteLedger) -> None:
        written(cs.encode_events(events, MATCHER, key, ledger=ledger, labels=labels, event="id"))

    ways: dict[str, Callable[[], object]] = {
        "joined by hand, unchecked: the limit": lambda: written(unchecked),
        "joined by hand, and checked": lambda: written(cs.encode_events(joined, MATCHER, key)),
        "a ledger, new events": lambda: by_ledger(folder / f"ledger {next(made)}"),
        "a ledger, the same again": lambda: by_ledger(folder / "ledger 0"),
        "a ledger's server, new events": lambda: by_server(folder / f"ledger {next(made)}"),
    }
    print(f"FormulaMatch, {count:,} events for {people} subscriptions")
    print(f"{'':<40}{'seconds':>9}{'times limit':>13}{'M messages/s':>14}")
    limit = 0.0
    for name, took in seconds(ways, rounds=ROUNDS).items():
        limit = limit or took
        speed = count * people / took / 1e6
        print(f"{name:<40}{took:9.2f}{took / limit:13.2f}{speed:14.2f}")
    size = (folder / "ledger 0").stat().st_size
    print(f"the ledger: {size / count:.0f} bytes an event")


if __name__ == "__main__":
    one_thread()
    main()
