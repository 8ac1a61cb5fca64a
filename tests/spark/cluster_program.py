"""The whole pipeline, for tests: encode, match, deliver. As a program, on a cluster; prints JSON.

python cluster_program.py spark://127.0.0.1:7077 /folder/of/keys /folder/of/data 127.0.0.1:7400

The last one is the server of the publisher's ledger.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

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
        "eventLog.enabled": "true",
        "eventLog.compress": "false",
        "eventLog.dir": (data / "log").as_uri(),
        "local.dir": str(data / "local"),
    }.items():
        session = session.config(f"spark.{name}", value)
    spark = session.getOrCreate()
    found: dict[str, object] = {"driver": ccbps.__file__}

    @F.udf("string")
    def where() -> str:
        import ccbps as here

        time.sleep(0.5)
        return here.__file__

    spread = spark.range(0, 8, 1, 8)
    found["executors"] = [row[0] for row in spread.select(where()).distinct().collect()]

    found |= pipeline(spark, keys, data, cs.RemoteLedger(server))
    print(json.dumps(found))
    spark.stop()


def pipeline(
    spark: SparkSession, keys: Path, data: Path, ledger: cs.RemoteLedger | None = None
) -> dict[str, object]:
    """Encode, match, deliver; what came out, and what should have. Without a ledger, in a file."""
    key = {path.name: cs.FileKey(path) for path in keys.iterdir()}
    found: dict[str, object] = {}
    sent = cs.encode_events(
        quotes(spark),
        BOX,
        key["publisher"],
        ledger=ledger or cs.EventLedger(data / "ledger", rounds=10_000),
        labels=LABELS,
        keep=["event"],
    )
    sent.write.parquet(str(data / "events"))
    (data / "half-way").touch()
    events = spark.read.parquet(str(data / "events"))
    wishes = spark.createDataFrame(
        [(label, plain(label)) for label in LABELS], "subscription string, predicate string"
    )
    rounds = spark.range(EVENTS).withColumnRenamed("id", "round")
    made = cs.encode_interests(wishes.crossJoin(rounds), BOX, key["subscribers"])
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
    try:
        cs.encode_events(
            quotes(spark).withColumn("price", F.lit(5000)).withColumnRenamed("event", "round"),
            TAGS,
            key["tag-publisher"],
        ).collect()
    except Exception as error:
        found["error"] = str(error)
    return found


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
