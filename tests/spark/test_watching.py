"""What a job does: counted, shown, and with batches that suit the messages."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.streaming import StreamingQuery

from ccbps import spark as cs
from ccbps.errors import ParameterError
from ccbps.matching import FormulaMatch, ObliviousTopicMatch, UGPMatch
from ccbps.matching.broken import AdditiveMaskMatch
from ccbps.predicates import Category, Schema, UInt
from ccbps.spark import watching
from tests.support.spark_session import changed, damaged, drained, issued, wishes
from tests.support.stored_pairs import BOX, KINDS, frame, rows_of

pytestmark = pytest.mark.spark

OFFERS = Schema(kind=Category(["a", "b"]))


def observed(query: StreamingQuery, name: str) -> list[list[int]]:
    """What a stream's micro-batches have counted."""
    told = [one["observedMetrics"][name] for one in query.recentProgress]
    rows = [one if isinstance(one, dict) else one.asDict() for one in told]
    # Spark Connect hands on a row's values and their schema.
    return [one.get("values", [*one.values()]) for one in rows]


def test_a_job_counts_what_passes(spark: SparkSession) -> None:
    rounds = {"s0": list(range(20)), "s1": [1, 2]}
    events = rows_of(rounds, "event") | {("s1", 2): b"x" * 7}
    seen, encoded = Observation(), Observation()
    counted = cs.observe(frame(spark, events, "event"), encoded)
    decided = cs.match(counted, frame(spark, rounds, "interest"), BOX, on_error="reject")
    matches = sum(bool(row["matched"]) for row in cs.observe(decided, seen).collect())
    assert 0 < matches < 22
    assert seen.get == {"rows": 22, "bytes": 0, "matches": matches, "rejected": 1}
    assert encoded.get == {"rows": 22, "bytes": 21 * BOX.event_bytes + 7}
    nothing = Observation()
    cs.observe(frame(spark, {}, "event"), nothing).collect()
    assert nothing.get == {"rows": 0, "bytes": 0}


@pytest.fixture(scope="module")
def decided(spark: SparkSession) -> DataFrame:
    """Answers for 22 pairs, one of which has a malformed event."""
    rounds = {"s0": list(range(20)), "s40": [1, 2]}
    events = rows_of(rounds, "event") | {("s0", 4): b"short"}
    return cs.match_pairs(
        frame(spark, events, "event"),
        frame(spark, rounds, "interest"),
        BOX,
        output="hit",
        on_error="reject",
    ).cache()


def test_pairs_are_counted_with_the_bytes_of_their_messages(decided: DataFrame) -> None:
    seen = Observation()
    rows = cs.observe(decided, seen, BOX, matched="hit").collect()
    matches = sum(bool(row["hit"]) for row in rows)
    assert 0 < matches < 21
    width = BOX.event_bytes + BOX.interest_bytes
    assert seen.get == {"pairs": 22, "matches": matches, "bytes": 22 * width, "rejected": 1}


def test_matches_are_counted_in_the_column_that_is_named(decided: DataFrame) -> None:
    seen = Observation()
    rows = cs.observe(decided, seen, matched="hit").collect()
    matches = sum(bool(row["hit"]) for row in rows)
    assert seen.get == {"rows": 22, "bytes": 0, "matches": matches, "rejected": 1}


def test_a_column_of_matches_that_is_not_there_is_refused(decided: DataFrame) -> None:
    for matcher, name, problem in (
        (BOX, None, "column 'matched' is missing"),
        (None, "found", "column 'found' is missing"),
        (None, "round", "column 'round' must be a boolean, got long"),
        (ObliviousTopicMatch(OFFERS, ["kind"], group="toy64"), "hit", "matched= does not apply"),
    ):
        with pytest.raises(ParameterError, match=problem):
            cs.observe(decided, "seen", matcher, matched=name)


@pytest.mark.slow
def test_matches_of_all_pairs_are_rows_without_a_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    matcher = AdditiveMaskMatch(OFFERS)
    keys = issued(matcher, tmp_path)
    plain = spark.createDataFrame([(n, "ab"[n % 2]) for n in range(6)], "event long, kind string")
    events = cs.encode_events(plain, matcher, keys["publisher"], keep=["event"])
    short = damaged(events, "event_message", {"event = 0": b"short"})
    asked = wishes(spark, {"s0": "kind = 'a'", "s1": "kind = 'b'"})
    interests = cs.encode_interests(asked, matcher, keys["subscriber"])
    found = cs.match(short, interests, matcher, keys["broker"], on_error="reject")
    seen = Observation()
    assert len(cs.observe(found, seen, matcher).collect()) == 6
    assert seen.get == {"matches": 5, "rejected": 1}
    # In a row of both messages, there are pairs again.
    column = cs.match_udf(matcher, keys["broker"])("event_message", "interest_message")
    both = events.crossJoin(interests).withColumn("hit", column)
    cells = Observation()
    cs.observe(both, cells, matcher, matched="hit").collect()
    width = matcher.event_bytes + matcher.interest_bytes
    assert cells.get == {"pairs": 12, "matches": 6, "bytes": 12 * width}


@pytest.mark.slow
def test_a_stream_tells_what_passes_in_its_progress(spark: SparkSession, tmp_path: Path) -> None:
    rounds = {"s0": list(range(9))}
    events = damaged(frame(spark, rounds, "event"), "event_message", {"round = 4": b"short"})
    events.coalesce(1).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(KINDS.format("event")).parquet(str(tmp_path / "in"))
    interests = frame(spark, rounds, "interest")
    sent = cs.observe(stream, "sent")
    decided = cs.match(sent, interests, BOX, on_error="reject")
    with cs.progress(spark, "matching"):
        counted = cs.observe(decided, "decided", BOX)
        query = drained(cs.observe(counted, "passed"), tmp_path)
    out = spark.read.parquet(str(tmp_path / "out"))
    matches = out.where("matched").count()
    assert 0 < matches < 9
    width = BOX.event_bytes + BOX.interest_bytes
    for name, numbers in {
        "sent": [9, 8 * BOX.event_bytes + len(b"short")],
        "passed": [9, 0, matches, 1],
        "decided": [9, matches, 9 * width, 1],
    }.items():
        assert numbers in observed(query, name)


def test_progress_is_shown(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(1)
        yield from batches

    rows = spark.range(0, 1000, 1, 4)
    with cs.progress(spark, "counting"):
        assert rows.mapInArrow(slow, rows.schema).selectExpr("sum(id)").collect()[0][0] == 499500
    shown = capsys.readouterr().err
    assert re.search(r"counting: .*[0-9]/[4-9]", shown), shown
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
    huge = Mock(spec=FormulaMatch, event_bytes=1 << 31, interest_bytes=1)
    for matcher in (BOX, wide):
        found = cs.settings_for(matcher)
        width = max(matcher.event_bytes, matcher.interest_bytes)
        most = int(found["spark.sql.execution.arrow.maxRecordsPerBatch"])
        assert most * width <= 8 << 20
        assert (most == 10_000) == (matcher is BOX)
        assert most == 10_000 or (most + 1) * width > 8 << 20
        with changed(spark, found):
            assert spark.range(3).count() == 3
    with pytest.raises(ParameterError, match="does not fit into an Arrow batch"):
        cs.settings_for(huge)
    with pytest.raises(ParameterError, match="matcher must be a Matcher, got ABCMeta"):
        cs.settings_for(FormulaMatch)  # type: ignore[arg-type]
