"""What a job does: counted, shown, and with batches that suit the messages."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

from ccbps import spark as cs
from ccbps.errors import ParameterError
from ccbps.matching import FormulaMatch, UGPMatch
from ccbps.predicates import Schema, UInt
from ccbps.spark import watching
from tests.spark.test_stores import BOX, event_rows, frame, interest_rows
from tests.spark.test_streams import ended

pytestmark = pytest.mark.spark


def test_a_job_counts_what_passes(spark: SparkSession) -> None:
    rounds = {"s0": list(range(20)), "s1": [1, 2]}
    events = event_rows(rounds)
    events["s1", 2] = b"x" * 7
    seen, encoded = Observation(), Observation()
    counted = cs.observe(frame(spark, events, "event_message"), encoded)
    decided = cs.match(
        counted, frame(spark, interest_rows(rounds), "interest_message"), BOX, on_error="reject"
    )
    matches = sum(bool(row["matched"]) for row in cs.observe(decided, seen).collect())
    assert 0 < matches < 22
    assert seen.get == {"rows": 22, "bytes": 0, "matches": matches, "rejected": 1}
    assert encoded.get == {"rows": 22, "bytes": 21 * BOX.event_bytes + 7}
    nothing = Observation()
    cs.observe(frame(spark, {}, "event_message"), nothing).collect()
    assert nothing.get == {"rows": 0, "bytes": 0}


@pytest.mark.slow
def test_a_stream_tells_in_its_progress(spark: SparkSession, tmp_path: Path) -> None:
    frame(spark, event_rows({"s0": list(range(9))}), "event_message").coalesce(1).write.parquet(
        str(tmp_path / "in")
    )
    stream = spark.readStream.schema("subscription string, round long, event_message binary")
    query = (
        cs.observe(stream.parquet(str(tmp_path / "in")), "sent")
        .writeStream.foreachBatch(lambda df, _: df.collect() and None)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    told = [one["observedMetrics"]["sent"] for one in query.recentProgress]
    rows = [one if isinstance(one, dict) else one.asDict() for one in told]
    # Spark Connect hands on a row's values and their schema.
    found = [one.get("values", [*one.values()]) for one in rows]
    assert [9, 9 * BOX.event_bytes] in found


@pytest.mark.slow
def test_a_stream_tells_matches_and_rejected_rows(spark: SparkSession, tmp_path: Path) -> None:
    rounds = {"s0": list(range(9))}
    short = F.when(F.col("round") == 4, F.lit(b"short")).otherwise(F.col("event_message"))
    events = frame(spark, event_rows(rounds), "event_message").withColumn("event_message", short)
    events.coalesce(1).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("subscription string, round long, event_message binary")
    interests = frame(spark, interest_rows(rounds), "interest_message")
    decided = cs.match(stream.parquet(str(tmp_path / "in")), interests, BOX, on_error="reject")
    with cs.progress(spark, "matching"):
        query = ended(cs.observe(decided, "decided"), tmp_path)
    out = spark.read.parquet(str(tmp_path / "out"))
    matches = out.where("matched").count()
    assert 0 < matches < 9
    told = [one["observedMetrics"]["decided"] for one in query.recentProgress]
    rows = [one if isinstance(one, dict) else one.asDict() for one in told]
    assert [9, 0, matches, 1] in [one.get("values", [*one.values()]) for one in rows]


def test_progress_is_shown(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(1)
        yield from batches

    rows = spark.range(0, 1000, 1, 4)
    with cs.progress(spark, "counting"):
        assert rows.mapInArrow(slow, rows.schema).selectExpr("sum(id)").collect()[0][0] == 499500
    shown = capsys.readouterr().err
    assert re.search(r"counting: .*[1-4]/[4-9]", shown), shown
    with pytest.raises(ValueError, match="inside"), cs.progress(spark, "failing"):
        raise ValueError("inside")


def test_the_bar_follows_the_tasks() -> None:
    bar = SimpleNamespace(n=0, total=None)

    def update(by: int) -> None:
        bar.n += by

    bar.update = update
    watching._show(bar, {})
    assert (bar.n, bar.total) == (0, None)
    watching._show(bar, {1: (2, 4), 2: (0, 3)})
    assert (bar.n, bar.total) == (2, 7)


def test_settings_suit_the_width(spark: SparkSession) -> None:
    wide = UGPMatch(Schema(a=UInt(2)), 1)
    huge: Any = SimpleNamespace(event_bytes=1 << 31, interest_bytes=1)
    for matcher in (BOX, wide):
        found = cs.settings_for(matcher)
        width = max(matcher.event_bytes, matcher.interest_bytes)
        most = int(found["spark.sql.execution.arrow.maxRecordsPerBatch"])
        assert most * width <= 8 << 20
        assert (most == 10_000) == (matcher is BOX)
        assert most == 10_000 or (most + 1) * width > 8 << 20
        before = {name: spark.conf.get(name) for name in found}
        for name, value in found.items():
            spark.conf.set(name, value)
        assert spark.range(3).count() == 3
        for name, value in before.items():
            spark.conf.set(name, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watching, "check_matcher", lambda _: None)
        with pytest.raises(ParameterError, match="does not fit into an Arrow batch"):
            cs.settings_for(huge)
    with pytest.raises(ParameterError, match="matcher must be a matcher"):
        cs.settings_for(FormulaMatch)  # type: ignore[arg-type]
