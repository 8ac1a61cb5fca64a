"""A few bad rows amid a million: each is set aside with its reason, and no other answer changes."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Category, Schema, UInt
from ccbps import spark as cs
from ccbps.matching import FormulaMatch
from tests.spark.conftest import KEY

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = Schema(issue=Category(["AAPL", "IBM", "MSFT"]), price=UInt(10))
BOX = FormulaMatch.box(SCHEMA)
OTHER = FormulaMatch.box(Schema(issue=Category(["AAPL", "IBM"]), price=UInt(10)))
LABELS, ROUNDS = 10, 100_000
PREDICATE = "issue = 'IBM' AND price < 700"


def addressed(spark: SparkSession) -> DataFrame:
    """A million rows, of which some cannot be encoded."""
    rows = spark.range(LABELS * ROUNDS).selectExpr(
        "concat('s', id % 10) AS subscription",
        "id div 10 AS round",
        "element_at(array('AAPL', 'IBM', 'MSFT'), CAST(id % 7 % 3 + 1 AS int)) AS issue",
        "CAST(id % 1024 AS int) AS price",
    )
    issue = F.expr(
        "CASE WHEN subscription = 's1' AND round = 77 THEN NULL "
        "WHEN subscription = 's2' AND round = 99999 THEN 'SAP' ELSE issue END"
    )
    price = F.expr("CASE WHEN subscription = 's3' AND round = 5 THEN 1024 ELSE price END")
    return rows.withColumn("issue", issue).withColumn("price", price)


def test_bad_rows_amid_a_million(spark: SparkSession, seed: object, tmp_path: object) -> None:
    rows = addressed(spark)
    again = rows.where("subscription = 's9' AND round = 3").withColumn("price", F.lit(1))
    encoded = cs.encode_events(rows.union(again), BOX, KEY, on_error="reject")
    encoded.write.parquet(f"{tmp_path}/events")
    events = spark.read.parquet(f"{tmp_path}/events")
    refused = {
        (row["subscription"], row["round"]): row["rejected"]
        for row in events.where("rejected IS NOT NULL").collect()
    }
    assert refused.keys() == {("s1", 77), ("s2", 99999), ("s3", 5), ("s9", 3)}
    assert "more than once" in refused["s9", 3]
    assert "'issue'" in refused["s1", 77]
    assert "'issue'" in refused["s2", 99999]
    assert "'price'" in refused["s3", 5]
    assert not any(value in text for text in refused.values() for value in ("SAP", "1024"))

    wishes = rows.select("subscription", "round").withColumn(
        "predicate",
        F.expr(
            f"CASE WHEN subscription = 's4' AND round = 8 THEN 'price <' ELSE \"{PREDICATE}\" END"
        ),
    )
    wishes = wishes.union(wishes.where("subscription = 's9' AND round = 4"))
    cs.encode_interests(wishes, BOX, KEY, on_error="reject").write.parquet(f"{tmp_path}/interests")
    interests = spark.read.parquet(f"{tmp_path}/interests")
    counts = interests.where("rejected IS NOT NULL").groupBy("subscription", "round").count()
    bad = {(row["subscription"], row["round"]): row["count"] for row in counts.collect()}
    assert bad == {("s4", 8): 1, ("s9", 4): 2}

    # Of a matcher whose schema has changed; cut off; of another round; and one that is twice.
    foreign = cs.encode_events(rows.where("round = 31 AND issue != 'MSFT'"), OTHER, KEY).where(
        "subscription = 's5'"
    )
    assert foreign.count() == 1
    alien = bytes(foreign.collect()[0]["event_message"])
    moved = bytes(events.where("subscription = 's6' AND round = 41").collect()[0]["event_message"])
    damage = (
        F.when(F.expr("subscription = 's5' AND round = 31"), F.lit(alien))
        .when(F.expr("subscription = 's6' AND round = 40"), F.lit(moved))
        .when(F.expr("subscription = 's7' AND round = 50"), F.lit(b"cut off"))
        .otherwise(F.col("event_message"))
    )
    poisoned = events.drop("rejected").withColumn("event_message", damage)
    twice = poisoned.where("subscription = 's8' AND round = 60")
    decided = cs.match(
        poisoned.union(twice), interests.drop("rejected"), BOX, on_error="reject"
    ).join(rows, ["subscription", "round"])
    reasons = {
        (row["subscription"], row["round"]): row["rejected"]
        for row in decided.where("rejected IS NOT NULL").collect()
    }
    assert reasons.keys() == {
        *(("s5", 31), ("s6", 40), ("s7", 50), ("s8", 60), ("s9", 3), ("s9", 4))
    }
    for (label, number), text in {
        ("s5", 31): "another matcher|wrong number",
        ("s6", 40): "different matchers, pairs, rounds",
        ("s7", 50): "wrong number of bytes",
        ("s8", 60): "more than once",
        ("s9", 3): "more than once",
        ("s9", 4): "more than once",
    }.items():
        assert any(part in reasons[label, number] for part in text.split("|"))
    found = decided.agg(
        F.count("*").alias("rows"),
        F.count_if(F.col("matched").isNull()).alias("unknown"),
        F.count_if(F.col("matched") != F.expr(PREDICATE)).alias("wrong"),
        F.count_if("matched").alias("matches"),
    ).collect()[0]
    # Of three pairs and rounds, one side has two rows.
    assert found["rows"] == LABELS * ROUNDS + 3
    assert found["unknown"] == len({*refused, *bad, *reasons}) + 3
    assert found["wrong"] == 0
    assert found["matches"] > 100_000
