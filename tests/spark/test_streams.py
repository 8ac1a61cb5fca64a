"""Streams of messages, matched with what is there and with other streams."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Category, Schema, SharedSeed, UInt
from ccbps import spark as cs
from ccbps.errors import ParameterError, RandomnessReuseError
from ccbps.matching import BroadcastMatch, FormulaMatch, TagMatch
from tests.support.spark_session import (
    KEY,
    answers,
    damaged,
    drained,
    issued,
    reasons,
    streamed,
)
from tests.support.stored_pairs import BOX, KINDS, frame, wanted

pytestmark = pytest.mark.spark

EVENTS = {"s0": list(range(40)), "s1": list(range(0, 40, 3)), "s2": [1]}
INTERESTS = {"s0": list(range(10, 60)), "s1": list(range(30)), "s3": [2]}


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Messages of both sides in a few files."""
    folder = tmp_path_factory.mktemp("streams")
    for kind, rounds in (("event", EVENTS), ("interest", INTERESTS)):
        frame(spark, rounds, kind).repartition(3).write.parquet(str(folder / kind))
    return folder


def stream(spark: SparkSession, folder: Path, kind: str) -> DataFrame:
    source = spark.readStream.schema(KINDS.format(kind)).option("maxFilesPerTrigger", 1)
    return source.parquet(str(folder / kind))


def test_a_stream_of_events_meets_interests_that_are_there(
    spark: SparkSession, written: Path, tmp_path: Path
) -> None:
    here = {"subscription = 's0' AND round = 11": b"short"}
    events = damaged(stream(spark, written, "event"), "event_message", here)
    interests = spark.read.parquet(str(written / "interest"))
    found = streamed(cs.match(events, interests, BOX, on_error="reject"), tmp_path)
    assert found.columns == ["subscription", "round", "matched", "rejected"]
    assert answers(found) == {**wanted(EVENTS, INTERESTS), ("s0", 11): None}
    (reason,) = reasons(found, "subscription", "round").values()
    assert "wrong number of bytes" in reason
    # What is there is looked through.
    with pytest.raises(RandomnessReuseError, match="one message in interests"):
        cs.match(events, interests.union(interests), BOX)


@pytest.mark.slow
def test_streams_of_both_sides_meet(spark: SparkSession, written: Path, tmp_path: Path) -> None:
    sides = [stream(spark, written, kind) for kind in ("event", "interest")]
    assert answers(streamed(cs.match(*sides, BOX), tmp_path)) == wanted(EVENTS, INTERESTS)


@pytest.mark.slow
def test_state_of_two_streams_is_dropped_behind_the_watermark(
    spark: SparkSession, written: Path, tmp_path: Path
) -> None:
    """Where a column of times with a watermark is among the ids, here ten rounds an hour."""
    for kind in ("event", "interest"):
        rows = spark.read.parquet(str(written / kind))
        for hour in range(6):
            (tmp_path / kind).mkdir(exist_ok=True)
            part = rows.where(F.expr(f"round DIV 10 = {hour}")).coalesce(1)
            part.write.mode("append").parquet(str(tmp_path / kind))
            time.sleep(0.01)  # files are read in the order of their times
    sides = [
        stream(spark, tmp_path, kind)
        .withColumn("hour", F.timestamp_seconds(F.expr("(500000 + round DIV 10) * 3600")))
        .withWatermark("hour", "1 hour")
        for kind in ("event", "interest")
    ]
    matched = cs.match_pairs(*sides, BOX, on=["subscription", "round", "hour"])
    query = drained(matched, tmp_path)
    states = [one["stateOperators"][0] for one in query.recentProgress if one["stateOperators"]]
    held = [state["numRowsTotal"] for state in states]
    assert max(held) < sum(map(len, [*EVENTS.values(), *INTERESTS.values()]))
    assert held[-1] < max(held)
    found = spark.read.parquet(str(tmp_path / "out"))
    assert answers(found.drop("hour")) == wanted(EVENTS, INTERESTS)


@pytest.mark.slow
def test_what_comes_twice_in_a_stream_is_dropped_within_the_watermark(
    spark: SparkSession, written: Path, tmp_path: Path
) -> None:
    """And the state that knows what came is dropped behind it, here of ten rounds an hour."""
    rows = spark.read.parquet(str(written / "event"))
    twice = rows.where("round % 2 = 0")
    for hour in range(4):
        part = rows.union(twice).where(F.expr(f"round DIV 10 = {hour}")).coalesce(1)
        part.write.mode("append").parquet(str(tmp_path / "event"))
        time.sleep(0.01)  # files are read in the order of their times
    late = twice.where("round DIV 10 = 3").coalesce(1)  # again in another micro-batch
    late.write.mode("append").parquet(str(tmp_path / "event"))
    once = (
        stream(spark, tmp_path, "event")
        .withColumn("hour", F.timestamp_seconds(F.expr("(500000 + round DIV 10) * 3600")))
        .withWatermark("hour", "1 hour")
        .dropDuplicatesWithinWatermark(["subscription", "round"])
    )
    interests = spark.read.parquet(str(written / "interest"))
    query = drained(cs.match(once, interests, BOX), tmp_path)
    found = spark.read.parquet(str(tmp_path / "out")).drop("hour")
    assert found.count() == found.distinct().count()
    assert answers(found) == wanted(EVENTS, INTERESTS)
    states = [one["stateOperators"][0] for one in query.recentProgress if one["stateOperators"]]
    assert max(state["numRowsTotal"] for state in states) < sum(map(len, EVENTS.values()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["source", "batch"])
def test_a_stream_of_events_meets_a_store_that_grows(
    spark: SparkSession, written: Path, tmp_path: Path, kind: str
) -> None:
    """As a table, through the data source; or each micro-batch as a store of its own."""
    cs.register_source(spark)
    interests, store = spark.read.parquet(str(written / "interest")), tmp_path / "store"

    def decide(df: DataFrame, number: int) -> None:
        sent = tmp_path / f"events {number}"
        cs.write_messages(df, sent, BOX, kind="event")
        decided = cs.match_messages(df.sparkSession, sent, store, BOX)
        decided.write.mode("append").parquet(str(tmp_path / "out"))

    def go(part: DataFrame, files: str) -> None:
        cs.write_messages(part, store, BOX, kind="interest", mode="append")
        for path in (written / "event").glob(files):
            shutil.copy(path, tmp_path / "event")
        events = stream(spark, tmp_path, "event")
        if kind == "source":
            asked = spark.read.format("ccbps").load(str(store))
            drained(cs.match(events, asked, BOX), tmp_path)
        else:
            drained(events, tmp_path, decide)

    (tmp_path / "event").mkdir()
    few = F.col("subscription") != "s1"
    go(interests.where(few), "part-00000*.parquet")
    go(interests.where(~few), "part-0000[12]*.parquet")
    # Events of the first file came before the interests of s1.
    (path,) = (written / "event").glob("part-00000*.parquet")
    first = {(r["subscription"], r["round"]) for r in spark.read.parquet(str(path)).collect()}
    left = {
        key: value
        for key, value in wanted(EVENTS, INTERESTS).items()
        if key[0] != "s1" or key not in first
    }
    assert answers(spark.read.parquet(str(tmp_path / "out"))) == left


@pytest.mark.slow
@pytest.mark.parametrize("how", ["closure", "blocks", "topic"])
def test_a_stream_of_events_meets_all_interests(
    spark: SparkSession, tmp_path: Path, how: str
) -> None:
    matcher = TagMatch(QUOTES)
    sources = issued(matcher, tmp_path)
    quotes = spark.range(30).selectExpr(
        "id AS event",
        "element_at(array('AAPL', 'IBM'), CAST(id % 2 + 1 AS int)) AS issue",
        "CAST(id AS int) AS price",
        "IF(id % 3 = 0, NULL, id % 3) AS topic",
    )
    asked = spark.createDataFrame(
        [("alice", "issue = 'IBM'", 1), ("bob", "price < 20", None), ("carol", "price > 9", 2)],
        "subscription string, predicate string, topic long",
    )
    keep = ["event", "topic"]
    encoded = cs.encode_events(quotes, matcher, sources["publisher"], keep=keep)
    encoded.repartition(4).write.parquet(str(tmp_path / "events"))
    interests = cs.encode_interests(asked, matcher, sources["subscriber"], keep=["topic"])
    schema = "event long, topic long, event_message binary"
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    events = source.parquet(str(tmp_path / "events"))
    if how == "topic":
        same = "(e.topic IS NULL OR w.topic IS NULL OR e.topic = w.topic)"
        options = {"topic": "topic"}
    else:
        options, same = {"strategy": how}, "true"
        interests = interests.drop("topic")
    found = streamed(
        cs.match_all_pairs(events, interests, matcher, sources["broker"], **options),
        tmp_path / "run",
    )
    means = "CASE subscription WHEN 'alice' THEN issue = 'IBM' WHEN 'bob' THEN price < 20 "
    means += "ELSE price > 9 END"
    every = quotes.alias("e").crossJoin(asked.alias("w")).where(f"{same} AND {means}")
    rows = [(r["subscription"], r["event"]) for r in found.collect()]
    assert sorted(rows) == sorted(map(tuple, every.select("subscription", "event").collect()))
    stream_of_wishes = spark.readStream.schema("subscription string, interest_message binary")
    stream_of_wishes = stream_of_wishes.parquet(str(tmp_path / "events"))
    with pytest.raises(ParameterError, match="interests is a stream, of which nobody knows"):
        cs.match(events, stream_of_wishes, matcher, sources["broker"])


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
        once = events.union(events).dropDuplicates(["subscription", "round"])
        drained(once, tmp_path, write)

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
        encoded = streamed(
            cs.encode_events(quotes, matcher, sources["publisher"], **options), tmp_path / "events"
        )
        wanted = read(spark, mixed, "wishes")
        asked = streamed(
            cs.encode_interests(wanted, matcher, sources["subscriber"], on_error="reject"),
            tmp_path / "interests",
        )
        why = reasons(asked, "subscription")
        assert why.keys() == {"bob", "carol"} and why["carol"] == "the predicate is NULL"
        assert "one condition in SQL" in why["bob"]
        sides = [df.where("rejected IS NULL").drop("rejected") for df in (encoded, asked)]
        matches = cs.match(*sides, matcher, sources["broker"]).collect()
        met = {("alice", r["event"]) for r in good.where("issue = 'IBM'").collect()}
        assert {(r["subscription"], r["event"]) for r in matches} == met
        assert len(met) == 2
    else:
        matcher = BroadcastMatch.box(QUOTES) if kind == "broadcast" else FormulaMatch.box(QUOTES)
        addressed = {"ledger": ledger, "event": "event", **options}
        if kind == "pairs":
            addressed["labels"] = ["alice", "bob"]
        encoded = streamed(cs.encode_events(quotes, matcher, KEY, **addressed), tmp_path / "events")
        left = encoded.where("rejected IS NULL")
        again = cs.encode_events(good, matcher, KEY, **addressed)
        assert {tuple(r) for r in left.collect()} == {tuple(r) for r in again.collect()}
        assert ledger.used() == 12 - len(BAD)
    assert encoded.where("event_message IS NOT NULL").count() == (12 - len(BAD)) * (
        2 if kind == "pairs" else 1
    )
    why = reasons(encoded, "event")
    assert why.keys() == BAD.keys()
    for event, text in why.items():
        assert ("'price'" if event in (5, 9) else "'issue'") in text
        assert not any(shown in text for shown in ("SAP", "1024", "cheap"))
