"""What does a pre-filter save in Spark? Seconds of a match without and with it, local[2].

Events have topics of which one in ten is wanted. In one run: FormulaMatch over pairs, each event
with its subscriptions in rounds of their own; and TagMatch, each event with every interest. Beside
the filter stands what Spark has itself, a semi-join with the tokens that are wanted, which is exact
and needs the tokens in a DataFrame; and nanoseconds a row of tokens and filter, over a scan.

    python benchmarks/bench_spark_prefilter.py [--quick] [--events N] [--subscribers N]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from report import Table, options
from spark_session import key_files, measured_spark
from timing import one_thread, timed
from workloads import SCHEMA

from ccbps import SharedSeed
from ccbps import spark as cs
from ccbps.filters import FilterKey
from ccbps.matching import FormulaMatch, TagMatch

TOPICS, WANTED, REPEATS = 100, 10, 2


def seconds(df: DataFrame, *columns: str) -> float:
    """Return the least seconds of some runs that compute columns, and ship none."""
    values = [F.count(F.col(name)) for name in columns]
    return min(timed(df.select(*values).collect) for _ in range(REPEATS))


def numbered(spark: SparkSession, count: int) -> DataFrame:
    rng = np.random.default_rng(3)
    columns = {name: rng.integers(0, 1 << SCHEMA[name].bits, count) for name in SCHEMA}
    topics = pa.array([f"topic {n}" for n in rng.integers(0, TOPICS, count)])
    table = pa.table({"round": np.arange(count), "topic": topics, **columns})
    return spark.createDataFrame(table).repartition(8)


def kept(df: DataFrame, path: Path) -> DataFrame:
    """Write a DataFrame to files, and return what a job reads from them."""
    df.write.option("compression", "none").parquet(str(path))
    return df.sparkSession.read.parquet(str(path))


def compare(title: str, without: DataFrame, ways: dict[str, DataFrame], *columns: str) -> None:
    table = Table(f"{title}, seconds of a match", {"seconds": ".2f", "times": ".2f"}, width=38)
    base = seconds(without, *columns)
    table.row("no filter", base, 1.0)
    for name, df in ways.items():
        took = seconds(df, *columns)
        table.row(name, took, base / took)


def main() -> None:
    given = options(__doc__, quick="few events", events=20_000, subscribers=50)
    count, people = (500, 5) if given.quick else (given.events, given.subscribers)
    with measured_spark() as (spark, folder):
        measure(spark, folder, count, people)


def measure(spark: SparkSession, folder: Path, count: int, people: int) -> None:
    tags, pairs = TagMatch(SCHEMA), FormulaMatch.box(SCHEMA)
    server = tags.key_server()
    files = key_files(
        folder,
        seed=SharedSeed.generate(),
        topics=FilterKey.generate(),
        feed=server.publisher_key(),
        alice=server.subscriber_key("alice"),
        broker=server.broker_key(),
    )
    plain = numbered(spark, count)
    plain = plain.withColumn("token", cs.topic_tokens("topic", files["topics"]))
    plain = kept(plain, folder / "plain")
    asked = plain.where(F.col("topic").isin([f"topic {n}" for n in range(WANTED)]))
    wanted = cs.make_filter(asked)
    tokens = asked.select("token").distinct().cache()
    tokens.count()
    share = asked.count() / count
    print(f"{count:,} events, {share:.0%} of a topic that is wanted; {wanted!r}")
    print(f"{count * people:,} pairs of FormulaMatch, {20 * count * people:,} of TagMatch")

    def ways(events: DataFrame, rest: Any) -> dict[str, DataFrame]:
        semi = events.join(F.broadcast(tokens), "token", "left_semi")
        return {
            "prefilter": rest(cs.prefilter(events, wanted)),
            "Spark's semi-join with the tokens": rest(semi),
        }

    labels = spark.createDataFrame([(f"s{n}",) for n in range(people)], "subscription string")
    both = plain.crossJoin(F.broadcast(labels))
    events = kept(
        cs.encode_events(both.drop("topic"), pairs, files["seed"], keep=["token"]),
        folder / "events",
    )
    condition = F.lit("a >= 1000 AND c < 500000").alias("predicate")
    interests = kept(
        cs.encode_interests(both.select("subscription", "round", condition), pairs, files["seed"]),
        folder / "interests",
    )

    def by_pairs(some: DataFrame) -> DataFrame:
        return cs.match(some, interests, pairs)

    compare(
        "FormulaMatch",
        by_pairs(events),
        ways(events, by_pairs),
        "matched",
    )
    sent = kept(
        cs.encode_events(plain.drop("topic"), tags, files["feed"], keep=["round", "token"]),
        folder / "sent",
    )
    many = [(f"s{n}", f"a >= {n} AND c < {500 * n}") for n in range(20 * people)]
    rows = spark.createDataFrame(many, "subscription string, predicate string")
    subs = kept(
        cs.encode_interests(rows, tags, files["alice"], keep=["subscription"]), folder / "subs"
    )

    def by_all(some: DataFrame) -> DataFrame:
        return cs.match(some, subs, tags, files["broker"])

    compare(
        "TagMatch",
        by_all(sent),
        ways(sent, by_all),
        "subscription",
    )
    rows_read = events.count()
    scan = seconds(events.select("token"), "token")
    filtered = seconds(cs.prefilter(events.select("token"), wanted), "token")
    alone, read = (took / rows_read * 1e9 for took in (filtered - scan, scan))
    table = Table("Nanoseconds a row", {"nanoseconds": ",.0f"})
    table.row("the filter alone", alone)
    table.row("to read the row", read)


if __name__ == "__main__":
    one_thread()
    main()
