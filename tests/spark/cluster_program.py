"""The whole pipeline, for tests: encode, match, deliver. As a program, on a cluster.

python cluster_program.py spark://127.0.0.1:7077 /folder/of/keys /folder/of/data 127.0.0.1:7400

The last one is the server of the publisher's ledger. Before the pipeline, tasks that encode run
twice; after it, streams do the same. Leaves its results in a file, and ends with its input.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

import ccbps
from ccbps import Category, Schema, UInt
from ccbps import spark as cs
from ccbps.delivery import SimpleCache
from ccbps.matching import FormulaMatch, TagMatch, ThreeBrokerMatch

SCHEMA = Schema(issue=Category(["AAPL", "IBM", "MSFT"]), price=UInt(10))
BOX = FormulaMatch.box(SCHEMA)
THREE = ThreeBrokerMatch.box(SCHEMA)
TAGS = TagMatch(SCHEMA, topic=["issue"])
LABELS = [f"s{number}" for number in range(4)]
EVENTS = 3000
PLAIN = 271828182
"""A value that is not valid, and that no error shows."""
PLANTED = sha256(b"what is planted").digest()
"""As long as a key, and none: put where keys must not be, for the search to find."""

READABLE = {
    **{
        f"{what}.compress": "false"
        for what in ("eventLog", "broadcast", "rdd", "shuffle", "shuffle.spill")
    },
    "sql.parquet.compression.codec": "uncompressed",
    "sql.streaming.stateStore.rocksdb.compression": "none",
}
"""Settings of Spark under which keys can be searched in what it writes."""
GROUPS = "event long, members array<int>, payload string"
STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.shuffle.partitions": "1",
}
"""Settings of streams with state: in RocksDB, and in one place, as there is little of it."""
LOCALS = "spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled"
"""Under it errors show what the frames held that they went through."""


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
    found["errors"] = errors(spark, keys, data, ledger)
    run_as_stream(spark, keys, data, ledger)
    found["planted"] = plant(spark, data)
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
    """Encode, to files and to a store; seal and open, with state. In a few micro-batches."""
    quotes(spark).write.parquet(str(data / "quotes"))

    def read(name: str, schema: StructType | str) -> DataFrame:
        source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 3)
        return source.parquet(str(data / name))

    def run(name: str, writer: DataStreamWriter) -> None:
        writer = writer.option("checkpointLocation", str(data / "checkpoint" / name))
        writer.trigger(availableNow=True).start().awaitTermination()

    def write(df: DataFrame, name: str) -> None:
        run(name, df.writeStream.format("parquet").option("path", str(data / name)))

    def keep(df: DataFrame, number: int) -> None:
        batch = ("kept", number)
        cs.write_messages(df, data / "kept", BOX, kind="event", mode="append", batch=batch)

    messages = encoded(read("quotes", quotes(spark).schema), keys, ledger)
    write(messages, "streamed")
    run("kept", messages.writeStream.foreachBatch(keep))
    before = {name: spark.conf.get(name) for name in STATE}
    for name, value in STATE.items():
        spark.conf.set(name, value)
    cache, groups = SimpleCache(len(LABELS), 100), read("groups", GROUPS)
    sealed = cs.seal_for_groups(groups, cache, cs.FileKey(keys / "sealer"))
    write(sealed, "sealed")
    write(cs.open_from_groups(read("sealed", sealed.schema), cs.FileKey(keys / "own")), "opened")
    for name, value in before.items():
        spark.conf.set(name, value)


def pipeline(
    spark: SparkSession,
    keys: Path,
    data: Path,
    ledger: cs.EventLedger | cs.RemoteLedger | None = None,
) -> dict[str, Any]:
    """Encode, match, deliver; what came out, and what should have. Without a ledger, in a file."""
    key = {path.name: cs.FileKey(path) for path in keys.iterdir()}
    found: dict[str, Any] = {}
    ledger = ledger or cs.EventLedger(data / "ledger", rounds=10_000)
    sent = encoded(quotes(spark), keys, ledger)
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

    # Made in place, they are the same messages, or they would be refused.
    ahead, again = range(EVENTS), data / "interest-store"
    cs.write_interests(wishes, again, BOX, key["subscribers"], rounds=ahead, mode="append")
    encode = cs.encode_event_udf(TAGS, key["tag-publisher"])
    made = quotes(spark).select(encode(F.struct(*TAGS.schema)).alias("message"))
    assert made.where("message IS NULL").count() == 0

    number = F.substring("subscription", 2, 9).cast("int")
    payload = F.concat(F.lit("quote "), F.col("event").cast("string"))
    groups = matches.select("event", number.alias("members"), payload.alias("payload"))
    gathered = groups.groupBy("event", "payload").agg(F.collect_list("members").alias("members"))
    gathered.write.parquet(str(data / "groups"))
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
    return found


def errors(
    spark: SparkSession, keys: Path, data: Path, ledger: cs.EventLedger | cs.RemoteLedger
) -> dict[str, str]:
    """What the functions say of bad values, messages and keys, while they hold good ones."""
    key = {path.name: cs.FileKey(path) for path in keys.iterdir()}
    one, cache = quotes(spark).where("event = 7"), SimpleCache(len(LABELS), 100)
    events, interests, tagged, asked = (
        spark.read.parquet(str(data / name)) for name in ("events", "interests", "tagged", "asked")
    )
    sent = spark.createDataFrame(
        [(7, "s0", 7, "quote")], "event long, subscription string, round long, payload string"
    )
    sealed = cs.seal_payloads(sent, key["publisher"], keep=["subscription", "round"])
    # Not as a literal: errors of Connect show the request that they came of.
    private = F.col("event") + F.lit(PLAIN - 7)
    wish = sent.withColumn("predicate", F.concat(F.lit("price < 300 AND cost = "), private))
    group = sent.withColumn("members", F.array(F.lit(9)))
    message = sent.selectExpr("event", "0 AS subscriber", "CAST('cut' AS binary) AS message")
    made = {
        "value": lambda: cs.encode_events(
            one.withColumn("price", private.cast("int")), TAGS, key["tag-publisher"]
        ),
        "predicate": lambda: cs.encode_interests(wish, TAGS, key["tag-subscriber"]),
        "no key": lambda: cs.encode_events(one, TAGS, cs.FileKey(keys / "none")),
        "damaged key": lambda: cs.encode_events(one, TAGS, key["damaged"]),
        "other key": lambda: cs.match(tagged, asked, TAGS, key["tag-stranger"]),
        "message": lambda: cs.match(
            events.where("event = 7").withColumn("event_message", F.lit(b"cut")), interests, BOX
        ),
        "content": lambda: encoded(one.withColumn("price", F.lit(1)), keys, ledger),
        "label": lambda: cs.encode_interests(
            sent.withColumn("subscription", F.lit("nobody")).withColumn(
                "predicate", F.lit("price < 300")
            ),
            BOX,
            key["subscribers"],
        ),
        "number": lambda: cs.seal_payloads(
            sent.withColumn("event", -F.col("event")), key["publisher"]
        ),
        "round": lambda: cs.wrap_keys(sent.withColumn("round", F.lit(-1)), key["publisher"]),
        "other seed": lambda: cs.open_payloads(
            cs.wrap_keys(sealed, key["publisher"]), key["other-subscribers"]
        ),
        "member": lambda: cs.seal_for_groups(group, cache, key["sealer"]),
        "group message": lambda: cs.open_from_groups(message, key["own"]),
        "request": lambda: cs.answer_key_requests(
            message.withColumnRenamed("message", "request"), key["sealer"]
        ),
        "topic": lambda: one.select(cs.topic_tokens("price", key["topics"])),
    }
    spark.conf.set(LOCALS, "true")
    out = {name: told(make) for name, make in made.items()}
    spark.conf.unset(LOCALS)
    return out


def plant(spark: SparkSession, data: Path) -> dict[str, str]:
    """Put what is as long as a key where none must be: into a plan, rows that are shuffled and
    written, and an error's frame. Returns the texts of the plan and of the error."""
    digits = F.col("id").cast("string").cast("binary")
    rows = spark.range(8).withColumn("planted", F.concat(F.lit(bytearray(PLANTED)), digits))
    # As long as the result is kept, what was shuffled for it is.
    rows.repartition(2).persist(StorageLevel.DISK_ONLY).write.parquet(str(data / "planted"))
    with contextlib.redirect_stdout(io.StringIO()) as plan:
        rows.explain(extended=True)

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held, listed, array = PLANTED, [*PLANTED], np.frombuffer(PLANTED, np.uint8)
        raise ValueError(f"{len(held)}, {len(listed)}, {len(array)}")

    spark.conf.set(LOCALS, "true")
    error = told(lambda: rows.select("id").mapInArrow(fail, "id long"))
    spark.conf.unset(LOCALS)
    return {"plan": plan.getvalue(), "error": error}


def told(make: Callable[[], DataFrame]) -> str:
    """The whole text of the error that a DataFrame, or its result, comes to."""
    try:
        make().collect()
    except Exception as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("no error")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
