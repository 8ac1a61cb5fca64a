"""Streams of messages, matched with what is there and with other streams."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Category, Schema, SharedSeed, UInt
from ccbps import spark as cs
from ccbps.errors import RandomnessReuseError
from ccbps.matching import BroadcastMatch, FormulaMatch, TagMatch
from tests.spark.conftest import KEY
from tests.spark.test_all_pairs import issued
from tests.spark.test_stores import BOX, answers, event_rows, frame, interest_rows, wanted

pytestmark = pytest.mark.spark

EVENTS = {"s0": list(range(40)), "s1": list(range(0, 40, 3)), "s2": [1]}
INTERESTS = {"s0": list(range(10, 60)), "s1": list(range(30)), "s3": [2]}
SCHEMA = "subscription string, round long, {}_message binary"


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Messages of both sides in a few files."""
    folder = tmp_path_factory.mktemp("streams")
    for kind, rows in (("event", event_rows(EVENTS)), ("interest", interest_rows(INTERESTS))):
        frame(spark, rows, f"{kind}_message").repartition(3).write.parquet(str(folder / kind))
    return folder


def stream(spark: SparkSession, folder: Path, kind: str) -> DataFrame:
    source = spark.readStream.schema(SCHEMA.format(kind)).option("maxFilesPerTrigger", 1)
    return source.parquet(str(folder / kind))


def run(df: DataFrame, folder: Path) -> DataFrame:
    """What a stream gives, in all its micro-batches."""
    query = (
        df.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return df.sparkSession.read.parquet(str(folder / "out"))


def test_a_stream_of_events_meets_interests_that_are_there(
    spark: SparkSession, written: Path, tmp_path: Path
) -> None:
    events = stream(spark, written, "event").withColumn(
        "event_message",
        F.when(F.expr("subscription = 's0' AND round = 11"), F.lit(b"short")).otherwise(
            F.col("event_message")
        ),
    )
    interests = spark.read.parquet(str(written / "interest"))
    found = run(cs.match(events, interests, BOX, on_error="reject"), tmp_path)
    assert found.columns == ["subscription", "round", "matched", "rejected"]
    expected = {**wanted(EVENTS, INTERESTS), ("s0", 11): None}
    assert answers(found) == expected
    reasons = [row["rejected"] for row in found.where("rejected IS NOT NULL").collect()]
    assert len(reasons) == 1
    assert "wrong number of bytes" in reasons[0]
    # What is there is looked through.
    with pytest.raises(RandomnessReuseError, match="one message in interests"):
        cs.match(events, interests.union(interests), BOX)


@pytest.mark.slow
def test_streams_of_both_sides_meet(spark: SparkSession, written: Path, tmp_path: Path) -> None:
    sides = [stream(spark, written, kind) for kind in ("event", "interest")]
    assert answers(run(cs.match(*sides, BOX), tmp_path)) == wanted(EVENTS, INTERESTS)


@pytest.mark.slow
def test_a_stream_with_state_goes_on_after_a_batch_that_its_store_has(
    spark: SparkSession, written: Path, tmp_path: Path
) -> None:
    """A program that is killed between the store's commit and Spark's computes a batch again."""
    killed = tmp_path / "killed"
    cs.register_source(spark)

    def write(df: DataFrame, number: int) -> None:
        cs.write_messages(
            df, tmp_path / "store", BOX, kind="event", mode="append", batch=("events", number)
        )
        if not killed.exists():
            killed.touch()
            raise RuntimeError("killed here")

    def go() -> None:
        events = stream(spark, written, "event")
        query = (
            events.union(events)
            .dropDuplicates(["subscription", "round"])
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with pytest.raises(Exception, match="killed here"):
        go()
    go()
    store = spark.read.format("ccbps").load(str(tmp_path / "store"))
    assert {(r["subscription"], r["round"]) for r in store.collect()} == {
        (name, number) for name, rounds in EVENTS.items() for number in rounds
    }


QUOTES = Schema(issue=Category(["AAPL", "IBM", "MSFT"]), price=UInt(10))
BAD = {
    1: {"issue": None, "price": 3},
    3: {"issue": "SAP", "price": 4},
    5: {"issue": "IBM", "price": 1024},
    7: {"cost": 5},  # the columns have changed
    9: {"issue": "IBM", "price": "cheap"},  # and so has a type
}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Quotes in files, of which some are bad, and what two subscribers want, one of them badly."""
    folder = tmp_path_factory.mktemp("mixed")
    for name in ("quotes", "wishes"):
        (folder / name).mkdir()
    for number in range(12):
        row = BAD.get(number, {"issue": QUOTES["issue"].values[number % 3], "price": number})
        (folder / "quotes" / f"{number}.json").write_text(json.dumps({"event": number, **row}))
    for label, predicate in (("alice", "issue = 'IBM'"), ("bob", "price <"), ("carol", None)):
        wish = json.dumps({"subscription": label, "predicate": predicate})
        (folder / "wishes" / f"{label}.json").write_text(wish)
    return folder


def read(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    schema = {
        "quotes": "event long, issue string, price int",
        "wishes": "subscription string, predicate string",
    }[name]
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 4)
    return source.json(str(folder / name))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pairs", "broadcast", "server"])
def test_encoders_set_bad_rows_of_a_stream_aside(
    spark: SparkSession, seed: SharedSeed, mixed: Path, tmp_path: Path, kind: str
) -> None:
    quotes, options = read(spark, mixed, "quotes"), {"keep": ["event"], "on_error": "reject"}
    ledger = cs.EventLedger(tmp_path / "ledger")
    good = spark.read.schema(quotes.schema).json(str(mixed / "quotes"))
    good = good.where(~F.col("event").isin([*BAD]))
    if kind == "server":
        matcher = TagMatch(QUOTES)
        sources = issued(matcher, tmp_path)
        encoded = run(
            cs.encode_events(quotes, matcher, sources["publisher"], **options), tmp_path / "events"
        )
        wishes = read(spark, mixed, "wishes")
        asked = run(
            cs.encode_interests(wishes, matcher, sources["subscriber"], on_error="reject"),
            tmp_path / "interests",
        )
        why = {row["subscription"]: row["rejected"] for row in asked.collect()}
        assert (why["alice"], why["carol"]) == (None, None)
        assert "one condition in SQL" in why["bob"]
        sides = [df.where("rejected IS NULL").drop("rejected") for df in (encoded, asked)]
        matches = cs.match(*sides, matcher, sources["broker"]).collect()
        wanted = {("alice", r["event"]) for r in good.where("issue = 'IBM'").collect()}
        assert {(r["subscription"], r["event"]) for r in matches} == wanted
        assert len(wanted) == 2
    else:
        matcher = BroadcastMatch.box(QUOTES) if kind == "broadcast" else FormulaMatch.box(QUOTES)
        addressed = {"ledger": ledger, "event": "event", **options}
        if kind == "pairs":
            addressed["labels"] = ["alice", "bob"]
        encoded = run(cs.encode_events(quotes, matcher, KEY, **addressed), tmp_path / "events")
        left = encoded.where("rejected IS NULL")
        again = cs.encode_events(good, matcher, KEY, **addressed)
        assert {tuple(r) for r in left.collect()} == {tuple(r) for r in again.collect()}
        assert ledger.used() == 12 - len(BAD)
    assert encoded.where("event_message IS NOT NULL").count() == (12 - len(BAD)) * (
        2 if kind == "pairs" else 1
    )
    reasons = {r["event"]: r["rejected"] for r in encoded.where("rejected IS NOT NULL").collect()}
    assert reasons.keys() == BAD.keys()
    for event, text in reasons.items():
        assert ("'price'" if event in (5, 9) else "'issue'") in text
        assert not any(shown in text for shown in ("SAP", "1024", "cheap"))
