"""What does it cost to give events their rounds in Spark? Seconds of an encoding, local[2].

Every event is encoded for every subscription, in one run:

- rounds numbered by hand, with a join, without a check that no round occurs twice: the limit;
- the same with the check, which computes the input a second time;
- rounds from a ledger, for new events;
- the same again, as if a job is repeated;
- rounds from a ledger's server.

    python benchmarks/bench_addressing.py [--quick] [--events N] [--subscribers N]
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from report import Table, options
from spark_session import key_files, measured_spark
from timing import one_thread, seconds
from workloads import SCHEMA

from ccbps import SharedSeed
from ccbps import spark as cs
from ccbps.matching import FormulaMatch

MATCHER = FormulaMatch.box(SCHEMA)
ROUNDS = 2


def written(df: DataFrame) -> None:
    """Compute all of a DataFrame, and keep none."""
    df.write.format("noop").mode("overwrite").save()


def main() -> None:
    given = options(__doc__, quick="few events", events=100_000, subscribers=10)
    count, people = (500, 3) if given.quick else (given.events, given.subscribers)
    with measured_spark() as (spark, folder):
        measure(spark, folder, count, people)


def measure(spark: SparkSession, folder: Path, count: int, people: int) -> None:
    rng = np.random.default_rng(3)
    columns = {name: rng.integers(0, 1 << SCHEMA[name].bits, count) for name in SCHEMA}
    table = pa.table({"id": np.arange(count), **columns})
    spark.createDataFrame(table).repartition(8).write.parquet(str(folder / "events"))
    events = spark.read.parquet(str(folder / "events"))
    key = key_files(folder, seed=SharedSeed.generate())["seed"]
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
    heads = {"seconds": ".2f", "times limit": ".2f", "M messages/s": ".2f"}
    table = Table("An encoding of all events for all subscriptions", heads, width=40)
    best = seconds(ways, rounds=ROUNDS)
    for name, took in best.items():
        table.row(name, took, took / next(iter(best.values())), count * people / took / 1e6)
    size = (folder / "ledger 0").stat().st_size
    table = Table("Ledger", {"bytes an event": ".0f"})
    table.row("file", size / count)


if __name__ == "__main__":
    one_thread()
    main()
