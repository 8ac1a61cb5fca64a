"""Quotes from a broker that speaks Kafka's protocol, through encoder, matcher and delivery."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Schema, SharedSeed, UInt
from ccbps import spark as cs
from ccbps.matching import FormulaMatch
from tests.spark.conftest import KEY
from tests.spark.kafka_source import Topic

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = Schema(price=UInt(10), volume=UInt(8))
BOX = FormulaMatch.box(SCHEMA)
PREDICATES = {"alice": "price < 300", "bob": "price >= 200 AND volume > 100"}


@pytest.fixture
def broker() -> Iterator[tuple[Any, str]]:
    """A producer, in whose process a broker runs, and the broker's address."""
    kafka = pytest.importorskip("confluent_kafka")
    producer = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none"})
    (address,) = producer.list_topics(timeout=10).brokers.values()
    return producer, f"{address.host}:{address.port}"


def quotes(first: int, count: int) -> list[dict[str, int]]:
    return [{"price": n * 37 % 1024, "volume": n * 11 % 256} for n in range(first, first + count)]


def produce(producer: Any, records: list[dict[str, int]]) -> None:
    for number, record in enumerate(records):
        producer.produce("quotes", json.dumps(record).encode(), partition=number % 4)
    assert producer.flush(10) == 0


def run(spark: SparkSession, servers: str, wishes: DataFrame, folder: Path) -> list[Any]:
    """One more run of the job: all that is new; returns all matches so far."""
    topic = spark.readStream.format("kafka_topic").option("servers", servers)
    read = topic.option("topic", "quotes").load()
    record = F.from_json(F.col("value").cast("string"), "price int, volume int")
    sent = cs.encode_events(
        read.select("place", record.alias("r")).select("place", "r.*"),
        BOX,
        KEY,
        ledger=cs.EventLedger(folder / "ledger", rounds=1000),
        labels=list(PREDICATES),
        event="place",
        keep=["place"],
    )
    query = (
        cs.match(sent, wishes, BOX)
        .where("matched")
        .writeStream.format("parquet")
        .option("path", str(folder / "matches"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found: list[Any] = spark.read.parquet(str(folder / "matches")).collect()
    return found


def test_quotes_from_kafka_are_matched_exactly_once(
    spark: SparkSession, seed: SharedSeed, broker: tuple[Any, str], tmp_path: Path
) -> None:
    producer, servers = broker
    spark.dataSource.register(Topic)
    rows = [(label, text, n) for label, text in PREDICATES.items() for n in range(1000)]
    wanted = spark.createDataFrame(rows, "subscription string, predicate string, round long")
    cs.encode_interests(wanted, BOX, KEY).write.parquet(str(tmp_path / "interests"))
    wishes = spark.read.parquet(str(tmp_path / "interests"))
    sent: list[dict[str, int]] = []
    places: dict[str, dict[str, int]] = {}
    for count in (200, 3, 97):
        some = quotes(len(sent), count)
        produce(producer, some)
        for number, record in enumerate(some):
            before = sum(place.startswith(f"{number % 4}-") for place in places)
            places[f"{number % 4}-{before}"] = record
        sent += some
        found = run(spark, servers, wishes, tmp_path)
        got = [(row["subscription"], row["place"]) for row in found]
        assert len(set(got)) == len(got)
        assert set(got) == {
            (label, place)
            for label, text in PREDICATES.items()
            for place, record in places.items()
            if SCHEMA.parse(text).evaluate([record])[0]
        }
    # Nothing new, nothing more.
    assert len(run(spark, servers, wishes, tmp_path)) == len(got)
