"""Quotes from a broker that speaks Kafka's protocol, through encoder, matcher and delivery."""

from __future__ import annotations

import json
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Category, Schema, SharedSeed, UInt
from ccbps import spark as cs
from ccbps.filters import FilterKey, TopicTokens
from ccbps.matching import FormulaMatch, TagMatch
from tests.spark.kafka_source import Topic
from tests.support.spark_session import KEY, ROOT, issued, rows_by, save, stored, streamed
from tests.support.spark_session import wishes as wanted

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = Schema(price=UInt(10), volume=UInt(8))
BOX = FormulaMatch.box(SCHEMA)
PREDICATES = {"alice": "price < 300", "bob": "price >= 200 AND volume > 100"}


@pytest.fixture
def broker() -> Iterator[tuple[Any, str]]:
    """A producer, in whose process a broker runs, and the broker's address."""
    kafka = pytest.importorskip("confluent_kafka")
    producer = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none"})
    (address,) = producer.list_topics(timeout=60).brokers.values()
    return producer, f"{address.host}:{address.port}"


def quotes(first: int, count: int) -> list[dict[str, int]]:
    return [{"price": n * 37 % 1024, "volume": n * 11 % 256} for n in range(first, first + count)]


def produce(producer: Any, records: list[dict[str, Any]]) -> None:
    for number, record in enumerate(records):
        producer.produce("quotes", json.dumps(record).encode(), partition=number % 4)
    assert producer.flush(60) == 0


@pytest.fixture
def wishes(spark: SparkSession, seed: SharedSeed, tmp_path: Path) -> DataFrame:
    """Interests for a thousand rounds."""
    asked = cs.encode_interests(wanted(spark, PREDICATES), BOX, KEY, rounds=range(1000))
    return stored(asked, tmp_path / "interests")


def run(
    spark: SparkSession, servers: str, wishes: DataFrame, folder: Path, own_ids: bool = False
) -> set[tuple[str, str]]:
    """One more run of the job: all that is new; returns all matches so far, each of which is there
    once.

    Args:
        own_ids: records bring ids of their own, under which they may come twice.
    """
    spark.dataSource.register(Topic)
    topic = spark.readStream.format("kafka_topic").option("servers", servers)
    read = topic.option("topic", "quotes").load()
    record = F.from_json(F.col("value").cast("string"), "id string, price int, volume int")
    place = F.concat_ws("-", "topic", "partition", "offset").alias("place")
    rows = read.select(place, record.alias("r"))
    rows = rows.select("r.id" if own_ids else "place", "r.price", "r.volume")
    sent = cs.encode_events(
        rows.toDF("place", "price", "volume"),
        BOX,
        KEY,
        ledger=cs.EventLedger(folder / "ledger", rounds=1000),
        labels=list(PREDICATES),
        event="place",
        keep=["place"],
    )
    if own_ids:
        sent = sent.dropDuplicates(["subscription", "round"])
    matches = streamed(cs.match(sent, wishes, BOX).where("matched"), folder)
    return {*rows_by(matches, "subscription", "place")}


def matching(records: dict[str, dict[str, int]]) -> set[tuple[str, str]]:
    """Subscriptions and names of the records that they match."""
    return {
        (label, name)
        for label, text in PREDICATES.items()
        for name, record in records.items()
        if SCHEMA.parse(text).evaluate([record])[0]
    }


def test_quotes_from_kafka_are_matched_exactly_once(
    spark: SparkSession, broker: tuple[Any, str], wishes: DataFrame, tmp_path: Path
) -> None:
    producer, servers = broker
    places: dict[str, dict[str, int]] = {}
    for count in (200, 3, 97):
        some = quotes(len(places), count)
        produce(producer, some)
        for number, record in enumerate(some):
            before = sum(place.startswith(f"quotes-{number % 4}-") for place in places)
            places[f"quotes-{number % 4}-{before}"] = record
        assert run(spark, servers, wishes, tmp_path) == matching(places)
    # Nothing new, nothing more.
    assert run(spark, servers, wishes, tmp_path) == matching(places)


def test_a_topic_that_is_read_again_from_its_start_has_the_rounds_that_it_had(
    spark: SparkSession, broker: tuple[Any, str], wishes: DataFrame, tmp_path: Path
) -> None:
    producer, servers = broker
    produce(producer, quotes(0, 40))
    found = run(spark, servers, wishes, tmp_path)
    for name in ("checkpoint", "out"):
        shutil.rmtree(tmp_path / name)
    assert run(spark, servers, wishes, tmp_path) == found
    assert cs.EventLedger(tmp_path / "ledger").used() == 40


def test_records_that_a_producer_sends_twice_are_matched_once_by_ids_of_their_own(
    spark: SparkSession, broker: tuple[Any, str], wishes: DataFrame, tmp_path: Path
) -> None:
    producer, servers = broker
    records = {f"order {n}": record for n, record in enumerate(quotes(0, 40))}
    sent = [{"id": name, **record} for name, record in records.items()]
    produce(producer, sent + sent[:8])
    assert run(spark, servers, wishes, tmp_path, own_ids=True) == matching(records)
    produce(producer, sent[4:12])
    assert run(spark, servers, wishes, tmp_path, own_ids=True) == matching(records)
    assert cs.EventLedger(tmp_path / "ledger").used() == 40


ISSUES = [f"issue {number}" for number in range(9)]
SHOP = Schema(issue=Category(ISSUES), price=UInt(10))
ASKED = {
    "alice": ("issue 3", "issue = 'issue 3' AND price < 500"),
    "bob": ("issue 8", "issue = 'issue 8'"),
    "carol": (None, "price < 100"),
}


def test_events_by_token_are_matched_in_the_job_of_the_page(
    spark: SparkSession, broker: tuple[Any, str], tmp_path: Path
) -> None:
    """The events of a topic are in one partition, in order; a job that runs again goes on."""
    job = runpy.run_path(str(ROOT / "examples" / "deployment" / "kafka_matching.py"))
    producer, servers = broker
    matcher = TagMatch(SHOP)
    keys = issued(matcher, tmp_path)
    topics = FilterKey(bytes(16))  # whose tokens are in more than one partition
    tokens, source = TopicTokens(topics), save(tmp_path / "topics", topics)
    rows = [(name, *ASKED[name]) for name in ASKED]
    frame = spark.createDataFrame(rows, "subscription string, topic string, predicate string")
    named = frame.withColumn("token", cs.topic_tokens("topic", source))
    interests = stored(
        cs.encode_interests(named, matcher, keys["subscriber"], keep=["token"]), tmp_path / "asked"
    )
    records = [{"issue": ISSUES[n * 5 % 9], "price": n * 37 % 1024} for n in range(60)]

    def publish(some: list[dict[str, Any]]) -> None:
        quotes = spark.createDataFrame(some, "issue string, price int").coalesce(1)
        for row in job["to_records"](quotes, matcher, keys["publisher"], source).collect():
            producer.produce("events", bytes(row["value"]), key=bytes(row["key"]))
        assert producer.flush(60) == 0

    def matched() -> list[tuple[str, str]]:
        spark.dataSource.register(Topic)
        read = spark.readStream.format("kafka_topic").option("servers", servers)
        log = read.option("topic", "events").load()
        return sorted(
            (row["place"], row["subscription"])
            for row in streamed(
                job["match_records"](log, interests, matcher, keys["broker"]), tmp_path
            ).collect()
        )

    publish(records[:40])
    first = matched()
    # Not an event at all.
    producer.produce("events", b"malformed", key=tokens.one("issue 3"))
    publish(records[40:])
    assert set(first) < set(matched())

    log = sorted(logged(servers), key=lambda one: (one[0], one[1]))
    partitions: dict[bytes, set[int]] = {}
    for partition, _, key in log:
        partitions.setdefault(key, set()).add(partition)
    assert all(len(places) == 1 for places in partitions.values())
    assert len(set.union(*partitions.values())) > 1
    expected = []
    for issue in ISSUES:
        places = [f"events-{p}-{offset}" for p, offset, key in log if key == tokens.one(issue)]
        sent = [one for one in records if one["issue"] == issue]
        if issue == "issue 3":
            places.pop(sum(one["issue"] == issue for one in records[:40]))  # the malformed one
        for name, (topic, text) in ASKED.items():
            if topic in (None, issue):
                fits = SHOP.parse(text).evaluate(sent)
                expected += [(place, name) for place, fit in zip(places, fits, strict=True) if fit]
    assert {name for _, name in expected} == {*ASKED}
    assert matched() == sorted(expected)


def logged(servers: str) -> list[tuple[int, int, bytes]]:
    """Partition, offset and key of all records of the topic of events."""
    reader = Topic({"servers": servers, "topic": "events"}).streamReader(None)
    start, end = reader.initialOffset(), reader.latestOffset()
    return [
        (partition, offset, key)
        for one in reader.partitions(start, end)
        for _, partition, offset, key, _ in reader.read(one)
    ]
