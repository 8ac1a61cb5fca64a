"""k-anonymity of DataFrames: checked by SQL, in one pass, in batches and streams."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Schema, UInt
from ccbps import spark as cs
from ccbps.anonymity import Anonymizer, Distinct
from ccbps.errors import ParameterError
from ccbps.matching import TagMatch
from tests.support.spark_session import issued, streamed

pytestmark = pytest.mark.spark

SCHEMA = Schema(age=UInt(10), place=UInt(12), ill=UInt(3))
HULL = ("age_low", "age_high", "place_low", "place_high")


def people(spark: SparkSession, count: int, partitions: int) -> DataFrame:
    return spark.range(0, count, 1, partitions).select(
        "id",
        (F.xxhash64("id") % 1000 + 1000).cast("int").__mod__(1000).alias("age"),
        (F.abs(F.hash("id")) % 4096).alias("place"),
        (F.abs(F.hash(F.col("id") + 7)) % 8).alias("ill"),
    )


def check(spark: SparkSession, before: DataFrame, after: DataFrame, k: int, values: int) -> int:
    """Check by SQL that classes are enough, and that rows are inside; count the rows."""
    before.createOrReplaceTempView("before")
    after.createOrReplaceTempView("after")
    hull = ", ".join(HULL)
    small = spark.sql(
        f"SELECT {hull} FROM after GROUP BY {hull} "
        f"HAVING count(*) < {k} OR count(DISTINCT ill) < {values}"
    )
    assert small.count() == 0
    outside = spark.sql(
        "SELECT count(*) AS rows, "
        "count_if(NOT (age BETWEEN age_low AND age_high AND place BETWEEN place_low AND place_high"
        " AND before.ill = after.ill)) AS wrong, count(DISTINCT id) AS ids "
        "FROM after JOIN before USING (id)"
    ).first()
    assert outside is not None
    assert outside.wrong == 0
    assert outside.rows == outside.ids
    return int(outside.rows)


@pytest.mark.slow
def test_rows_are_k_anonymous_and_can_be_encoded(spark: SparkSession, tmp_path: Path) -> None:
    anonymizer = Anonymizer(SCHEMA, 3, sensitive=["ill"], diversity=Distinct(2))
    before = people(spark, 200, 2).cache()
    after = cs.anonymize(before, anonymizer, keep=["id"], piece=20).cache()
    assert after.columns == [*anonymizer.released.names, "id"]
    assert check(spark, before, after, 3, 2) > 150
    matcher = TagMatch(anonymizer.released)
    keys = issued(matcher, tmp_path)
    sent = cs.encode_events(after, matcher, keys["publisher"], keep=["id"])
    text = "age < 400 AND place BETWEEN 0 AND 2000"
    subscriber = matcher.subscriber(keys["subscriber"].load())
    message = subscriber.encode([anonymizer.rewrite(text)])[0].tobytes()
    asked = spark.createDataFrame(
        [("alice", bytearray(message))], "subscription string, interest_message binary"
    )
    found = {row.id for row in cs.match(sent, asked, matcher, keys["broker"]).collect()}
    wanted = {row.id for row in before.join(after.select("id"), "id").where(text).collect()}
    assert found >= wanted
    assert len(found) < 150


def test_what_is_refused(spark: SparkSession) -> None:
    anonymizer = Anonymizer(SCHEMA, 3)
    df = people(spark, 3, 1)
    with pytest.raises(ParameterError, match="column 'ill' is missing"):
        cs.anonymize(df.drop("ill"), anonymizer)
    with pytest.raises(ParameterError, match="keep names 'age'"):
        cs.anonymize(df, anonymizer, keep=["age"])
    with pytest.raises(ParameterError, match="column 'age_low' of its own"):
        cs.anonymize(df.withColumn("age_low", F.lit(1)), anonymizer, keep=["age_low"])
    with pytest.raises(ParameterError, match="piece must be a whole number of rows, at least 3"):
        cs.anonymize(df, anonymizer, piece=2)


@pytest.mark.slow
def test_a_stream_is_anonymous_in_each_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    anonymizer = Anonymizer(SCHEMA, 4, sensitive=["ill"])
    before = people(spark, 300, 3)
    before.write.parquet(str(tmp_path / "in"))
    stream = (
        spark.readStream.schema(before.schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(tmp_path / "in"))
    )
    after = streamed(cs.anonymize(stream.coalesce(1), anonymizer, keep=["id"]), tmp_path)
    assert check(spark, before, after, 4, 1) == 300


@pytest.mark.slow
def test_a_million_rows_in_one_pass(spark: SparkSession, tmp_path: Path) -> None:
    anonymizer = Anonymizer(SCHEMA, 10, sensitive=["ill"], diversity=Distinct(3))
    people(spark, 1_000_000, 4).write.parquet(str(tmp_path / "in"))
    before = spark.read.parquet(str(tmp_path / "in"))
    after = cs.anonymize(before, anonymizer, keep=["id"])
    plan = after._jdf.queryExecution().toString() if hasattr(after, "_jdf") else ""  # type: ignore[operator]
    assert "Exchange" not in plan
    after.write.parquet(str(tmp_path / "out"))
    written = spark.read.parquet(str(tmp_path / "out"))
    assert check(spark, before, written, 10, 3) == 1_000_000
    widths = written.agg(F.avg(F.col("age_high") - F.col("age_low"))).first()
    assert widths is not None
    assert widths[0] < 50
