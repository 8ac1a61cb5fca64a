"""The whole pipeline, for tests: encode, match, deliver. As a program, on a cluster.

python cluster_program.py spark://127.0.0.1:7077 /folder/of/keys /folder/of/data 127.0.0.1:7400

The last one is the server of the publisher's ledger. Before the pipeline, tasks that encode run
twice; after it, a stream encodes the same. Leaves its results in a file, and ends with its input.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import ccbps
from ccbps import Category, Schema, UInt
from ccbps import spark as cs
from ccbps.delivery import SimpleCache
from ccbps.matching import FormulaMatch, TagMatch

SCHEMA = Schema(issue=Category(["AAPL", "IBM", "MSFT"]), price=UInt(10))
BOX = FormulaMatch.box(SCHEMA)
TAGS = TagMatch(SCHEMA, topic=["issue"])
LABELS = [f"s{number}" for number in range(4)]
EVENTS = 3000
PLAIN = 271828182
"""A value that is not valid, and that no error shows."""


READABLE = {
    **{
        f"{what}.compress": "false"
        for what in ("eventLog", "broadcast", "rdd", "shuffle", "shuffle.spill")
    },
    "sql.parquet.compression.codec": "uncompressed",
    "sql.streaming.stateStore.rocksdb.compression": "none",
}
"""Settings of Spark under which keys can be searched in what it writes."""


def plain(label: str) -> str:
    number = int(label[1:])
    return f"price < {200 + 150 * number} AND issue = '{['AAPL', 'IBM', 'MSFT', 'IBM'][number]}'"


def quotes(spark: SparkSession) -> DataFrame:
    return spark.range(0, EVENTS, 1, 6).selectExpr(
        "id AS event",
        "element_at(array('AAPL', 'IBM', 'MSFT'), CAST(id % 3 + 1 AS int)) AS issue",
        "CAST(id * 37 % 1024 AS int) AS price",
    )


def pairs(df: DataFrame) -> list[list[object]]:
    return sorted([row["subscription"], row["event"]] for row in df.collect())


def main(master: str, keys: Path, data: Path, server: str) -> None:
    session = SparkSession.builder.master(master).appName("ccbps on a cluster")
    for name, value in {
        "ui.enabled": "false",
        "driver.host": "127.0.0.1",
        "executor.memory": "512m",
        "sql.shuffle.partitions": "4",
        "task.maxFailures": "3",
        "eventLog.enabled": "true",
        "eventLog.dir": (data / "log").as_uri(),
        "local.dir": str(data / "local"),
        **READABLE,
        # And in what errors show of the frames that they went through.
        "sql.execution.pyspark.udf.tracebackWithLocals.enabled": "true",
        # A task that takes longer than another one, and than this, is run beside itself.
        "speculation": "true",
        "speculation.minTaskRuntime": "2s",
        "speculation.multiplier": "1",
        "speculation.quantile": "0.1",
        "speculation.efficiency.enabled": "false",
    }.items():
        session = session.config(f"spark.{name}", value)
    spark = session.getOrCreate()
    ledger = cs.RemoteLedger(server)
    run_twice(spark, keys, data, ledger)
    found = {"driver": ccbps.__file__} | pipeline(spark, keys, data, ledger)
    run_as_stream(spark, keys, data, ledger)
    (data / "found").write_text(json.dumps(found))
    (data / "end").touch()
    sys.stdin.read()
    spark.stop()


def encoded(df: DataFrame, keys: Path, ledger: cs.EventLedger | cs.RemoteLedger) -> DataFrame:
    key = cs.FileKey(keys / "publisher")
    return cs.encode_events(df, BOX, key, ledger=ledger, labels=LABELS, keep=["event"])


def run_twice(spark: SparkSession, keys: Path, data: Path, ledger: cs.RemoteLedger) -> None:
    """Encode with tasks of which the first is run twice at once, and the second one fails at first.
    Each attempt leaves the messages that it made. What executors keep stays on their disks."""
    for name in ("begun", "made"):
        (data / "attempts" / name).mkdir(parents=True)

    def leave(name: str, text: str) -> None:
        """Leave a file; the first task's attempts wait for each other's."""
        task, folder = TaskContext.get(), data / "attempts" / name
        part, number = task.partitionId(), task.taskAttemptId()
        (data / f"{name}-{number}").write_text(text)
        (data / f"{name}-{number}").rename(folder / f"{part}-{number}")
        until = time.monotonic() + 90
        while part == 0 and len([*folder.glob("0-*")]) < 2 and time.monotonic() < until:
            time.sleep(0.05)

    def begin(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        leave("begun", ccbps.__file__)
        yield from batches

    def record(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        made = []
        for batch in batches:
            made += [
                f"{row['subscription']} {row['round']} {row['event_message'].hex()}"
                for row in batch.to_pylist()
            ]
            yield batch
        leave("made", "\n".join(made))
        task = TaskContext.get()
        if task.partitionId() == 1 and task.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails")

    rows = quotes(spark)
    sent = encoded(rows.mapInArrow(begin, rows.schema), keys, ledger)
    kept = sent.mapInArrow(record, sent.schema).repartition(4).persist(StorageLevel.DISK_ONLY)
    kept.write.parquet(str(data / "first"))


def run_as_stream(
    spark: SparkSession, keys: Path, data: Path, ledger: cs.EventLedger | cs.RemoteLedger
) -> None:
    """Encode, in a few micro-batches."""
    quotes(spark).write.parquet(str(data / "quotes"))
    source = spark.readStream.schema(quotes(spark).schema).option("maxFilesPerTrigger", 3)
    stream = encoded(source.parquet(str(data / "quotes")), keys, ledger).writeStream
    stream = stream.option("checkpointLocation", str(data / "checkpoint")).format("parquet")
    stream.trigger(availableNow=True).start(str(data / "streamed")).awaitTermination()


def pipeline(
    spark: SparkSession, keys: Path, data: Path, ledger: cs.RemoteLedger | None = None
) -> dict[str, Any]:
    """Encode, match, deliver; what came out, and what should have. Without a ledger, in a file."""
    key = {path.name: cs.FileKey(path) for path in keys.iterdir()}
    found: dict[str, Any] = {}
    sent = encoded(quotes(spark), keys, ledger or cs.EventLedger(data / "ledger", rounds=10_000))
    sent.write.parquet(str(data / "events"))
    (data / "half-way").touch()
    events = spark.read.parquet(str(data / "events"))
    wishes = spark.createDataFrame(
        [(label, plain(label)) for label in LABELS], "subscription string, predicate string"
    )
    made = cs.encode_interests(wishes, BOX, key["subscribers"], rounds=range(EVENTS), partitions=4)
    made.write.parquet(str(data / "interests"))
    interests = spark.read.parquet(str(data / "interests"))
    matches = cs.match(events, interests, BOX).where("matched")
    found["match"] = pairs(matches)

    for name, df in (("event", events), ("interest", interests)):
        cs.write_messages(df, data / f"{name}-store", BOX, kind=name)  # type: ignore[arg-type]
    stores = data / "event-store", data / "interest-store"
    decided = cs.match_messages(spark, *stores, BOX).where("matched")
    found["stores"] = pairs(decided.join(events, ["subscription", "round"]))

    number = F.substring("subscription", 2, 9).cast("int")
    payload = F.concat(F.lit("quote "), F.col("event").cast("string"))
    groups = matches.select("event", number.alias("members"), payload.alias("payload"))
    sealed = cs.seal_for_groups(groups, SimpleCache(len(LABELS), 100), key["sealer"])
    opened = cs.open_from_groups(sealed, key["own"])
    found["delivered"] = sorted(
        [f"s{row['subscriber']}", row["event"]]
        for row in opened.where(F.col("payload").cast("string") == payload).collect()
    )

    tagged = cs.encode_events(quotes(spark), TAGS, key["tag-publisher"], keep=["event"])
    asked = cs.encode_interests(
        wishes.where("subscription < 's2'").withColumn("predicate", F.lit("price < 300")),
        TAGS,
        key["tag-subscriber"],
    )
    for name, df in (("tagged", tagged), ("asked", asked)):
        df.write.parquet(str(data / name))
    sides = [spark.read.parquet(str(data / name)) for name in ("tagged", "asked")]
    found["tags"] = pairs(cs.match(*sides, TAGS, key["tag-broker"]))
    found["wanted"] = sorted(
        [label, row["event"]]
        for label in LABELS
        for row in quotes(spark).where(plain(label)).collect()
    )
    found["wanted tags"] = sorted(
        [label, row["event"]]
        for label in LABELS[:2]
        for row in quotes(spark).where("price < 300").collect()
    )
    one, cut = quotes(spark).where("event = 7"), events.withColumn("event_message", F.lit(b"cut"))
    wish = wishes.limit(1).withColumn("predicate", F.lit(f"price < 300 AND cost = {PLAIN}"))
    found["errors"] = {
        name: told(make)
        for name, make in {
            "value": lambda: cs.encode_events(
                one.withColumn("price", F.lit(PLAIN)), TAGS, key["tag-publisher"]
            ),
            "predicate": lambda: cs.encode_interests(wish, TAGS, key["tag-subscriber"]),
            "no key": lambda: cs.encode_events(one, TAGS, cs.FileKey(keys / "none")),
            "other key": lambda: cs.match(*sides, TAGS, key["tag-stranger"]),
            "message": lambda: cs.match(cut.where("event = 7"), interests, BOX),
        }.items()
    }
    return found


def told(make: Callable[[], DataFrame]) -> str:
    """The whole text of the error that a DataFrame, or its result, comes to."""
    try:
        make().collect()
    except Exception as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("no error")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
