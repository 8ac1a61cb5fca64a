"""One event for all interests of its round: looked up by workers, or joined if there are many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Category, Schema, UInt
from ccbps import spark as cs
from ccbps.errors import RandomnessReuseError
from ccbps.matching import BroadcastMatch
from ccbps.spark import pairs
from tests.support.spark_session import (
    KEY,
    Pairs,
    answers,
    damaged,
    explained,
    stored,
    wishes,
)

pytestmark = pytest.mark.spark

SCHEMA = Schema(issue=Category(["AAPL", "GOOG", "IBM"]), price=UInt(16))
BOX = BroadcastMatch.box(SCHEMA)
PREDICATES = ["issue = 'IBM'", "price < 30000", "issue >= 'GOOG' AND price > 20000", "price < 0"]
ROUNDS = 12
Stages = tuple[DataFrame, DataFrame, Pairs]


@pytest.fixture(scope="module")
def stages(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stages:
    """Both sides' messages through Parquet, and the answers; one round has no event, and one has
    no interest."""
    folder, rng = tmp_path_factory.mktemp("messages"), np.random.default_rng(5)
    table = pa.table(
        {
            "round": np.arange(ROUNDS),
            "sent": [f"day {n}" for n in range(ROUNDS)],
            "issue": rng.choice(["AAPL", "GOOG", "IBM"], ROUNDS).tolist(),
            "price": rng.integers(0, 1 << 16, ROUNDS),
        }
    )
    events = cs.encode_events(spark.createDataFrame(table), BOX, KEY, keep=["sent"])
    assert events.columns == ["round", "sent", "event_message"]
    subscriptions = wishes(spark, {f"s{i}": text for i, text in enumerate(PREDICATES)})
    numbers = spark.range(1, ROUNDS + 1).withColumnRenamed("id", "round")
    interests = cs.encode_interests(subscriptions.crossJoin(numbers), BOX, KEY)
    encoded = SCHEMA.encode(table.select(list(SCHEMA)))
    expected = {
        (f"s{i}", number): bool(answer)
        for i, text in enumerate(PREDICATES)
        for number, answer in enumerate(SCHEMA.parse(text).evaluate(encoded).tolist())
        if number
    }
    assert 0 < sum(map(bool, expected.values())) < len(expected)
    return stored(events, folder / "events"), stored(interests, folder / "interests"), expected


@pytest.fixture(params=["at workers", "joined"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Few events, or more than travel with a plan."""
    if request.param == "joined":
        monkeypatch.setattr(pairs, "PLAN_BYTES", (ROUNDS - 1) * BOX.event_bytes)
    return str(request.param)


def test_answers_are_the_plaintext_ones(stages: Stages, way: str) -> None:
    events, interests, expected = stages
    found = cs.match(events, interests, BOX)
    assert found.columns == ["round", "sent", "subscription", "matched"]
    assert answers(found) == expected
    assert {(r["round"], r["sent"]) for r in found.collect()} == {
        (n, f"day {n}") for n in range(1, ROUNDS)
    }
    # Event messages are not joined where they are few.
    plan = explained(found)
    assert "interest_message" in plan
    assert ("event_message" in plan) == (way == "joined")
    assert ("BroadcastHashJoin" in plan) or way == "joined"


def test_columns_may_have_any_names_and_kinds(stages: Stages, way: str) -> None:
    """As many as name a round; a round that is NULL is nobody's."""
    events, interests, expected = stages
    market = F.when(F.col("round") % 2 == 0, "east `x`").otherwise("west")
    sent = events.select(
        F.col("round").cast("int").alias("no. round"), market.alias("in.`m`"), "event_message"
    )
    none = sent.limit(1).withColumn("no. round", F.lit(None).cast("int"))
    wanted = interests.select(
        F.col("round").alias("no. round"),
        market.alias("in.`m`"),
        F.col("subscription").alias("who"),
        F.col("interest_message").alias("wish"),
    )
    found = cs.match_pairs(
        sent.unionByName(none),
        wanted,
        BOX,
        on=["in.`m`", "no. round"],
        subscription="who",
        interest="wish",
        output="hit",
    )
    assert found.columns == ["in.`m`", "no. round", "who", "hit"]
    assert {(r["who"], r["no. round"]): r["hit"] for r in found.collect()} == expected


def test_rounds_of_other_kinds_are_joined(stages: Stages) -> None:
    events, interests, expected = stages
    kind = F.col("round").cast("decimal(9,0)")
    found = cs.match(events.withColumn("round", kind), interests, BOX)
    assert answers(found) == expected


def test_a_null_message_has_no_answer(stages: Stages, way: str) -> None:
    events, interests, expected = stages
    found = cs.match(
        damaged(events, "event_message", {"round = 3": None}),
        damaged(interests, "interest_message", {"subscription = 's1'": None}),
        BOX,
    )
    wanted = {at: None if at[1] == 3 or at[0] == "s1" else one for at, one in expected.items()}
    assert answers(found) == wanted


def test_what_comes_twice_is_refused(stages: Stages, way: str) -> None:
    events, interests, _ = stages
    sent = events.union(events.where("round = 4"))
    asked = interests.union(interests.where("round = 4 AND subscription = 's2'"))
    for left, right, named in (
        (sent, interests, "round 4 occurs 2 times"),
        (events, asked, "subscription 's2', round 4 occurs 2 times"),
    ):
        with pytest.raises(RandomnessReuseError, match=named):
            cs.match(left, right, BOX)


@pytest.mark.slow
def test_rows_that_cannot_be_used_are_set_aside(stages: Stages, way: str) -> None:
    events, interests, expected = stages
    again = interests.where("round = 5 AND subscription = 's2'")
    # The interest of round 6 is of another round; that of round 7 is cut.
    other = interests.where("round = 8 AND subscription = 's0'").withColumn("round", F.lit(6))
    cut = interests.where("round = 7 AND subscription = 's0'").withColumn(
        "interest_message", F.substring("interest_message", 1, 9)
    )
    kept = interests.where("NOT (round IN (6, 7) AND subscription = 's0')")
    wanted = kept.unionByName(again).unionByName(other).unionByName(cut)
    sent = events.union(events.where("round = 4"))
    rows = cs.match(sent, wanted, BOX, on_error="reject").collect()
    bad: dict[Any, str] = {}
    for row in rows:
        at = row["subscription"], row["round"]
        if row["rejected"] is None:
            assert row["matched"] == expected[at]
        else:
            assert row["matched"] is None
            bad[at] = row["rejected"]
    twice = "occurs more than once"
    causes = {(f"s{i}", 4): twice for i in range(len(PREDICATES))}
    causes |= {("s2", 5): twice, ("s0", 6): "different", ("s0", 7): "bytes"}
    assert bad.keys() == causes.keys()
    assert all(causes[at] in bad[at] for at in bad)
    # The round whose event came twice, and the interest that did, have two rows each.
    assert len(rows) == len(expected) + len(PREDICATES) + 1
    with pytest.raises(Exception, match=r"round=6, subscription='s0'"):
        cs.match(events, kept.unionByName(other), BOX).collect()


def test_events_of_a_round_may_not_come_twice(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [(1, "IBM", 3), (1, "IBM", 3)], "round long, issue string, price int"
    )
    with pytest.raises(RandomnessReuseError, match="round 1 occurs 2 times"):
        cs.encode_events(rows, BOX, KEY)


def test_events_and_interests_need_the_columns_of_their_side(
    stages: Stages, spark: SparkSession
) -> None:
    events, interests, _ = stages
    with pytest.raises(ValueError, match="'subscription' is in both DataFrames"):
        cs.match(events.withColumn("subscription", F.lit("x")), interests, BOX)
    with pytest.raises(ValueError, match="column 'subscription' is missing: interests"):
        cs.match(events, interests.drop("subscription"), BOX)


@pytest.mark.slow
def test_stores_answer_as_match_does(stages: Stages, spark: SparkSession, tmp_path: Path) -> None:
    """In several parts, of rounds with gaps on the side of the interests."""
    events, interests, expected = stages
    cs.write_messages(events, tmp_path / "events", BOX, kind="event", partitions=3)
    wanted = interests.where("round != 7 OR subscription = 's1'")
    cs.write_messages(wanted, tmp_path / "interests", BOX, kind="interest", partitions=2)
    paths = tmp_path / "events", tmp_path / "interests"
    for path in paths:
        assert len(list(path.glob("part-*.arrow"))) > 1
    found = cs.match_messages(spark, *paths, BOX, verify=True)
    assert found.columns == ["subscription", "round", "matched"]
    rows = {at: answer for at, answer in expected.items() if at[1] != 7 or at[0] == "s1"}
    assert answers(found) == rows == answers(cs.match(events, wanted, BOX))
    only = cs.match_messages(spark, *paths, BOX, matches_only=True)
    assert answers(only) == {at: True for at, one in rows.items() if one}
    with pytest.raises(ValueError, match=r"events=.* holds interest messages, not event messages"):
        cs.match_messages(spark, *paths[::-1], BOX)


@pytest.mark.slow
def test_stores_name_events_that_are_none(
    stages: Stages, spark: SparkSession, tmp_path: Path
) -> None:
    events, interests, expected = stages
    other_kind = F.concat(F.lit(b"\7"), F.substring("event_message", 2, BOX.event_bytes))
    changed = damaged(events, "event_message", {"round = 5": other_kind})
    cs.write_messages(changed, tmp_path / "events", BOX, kind="event")
    cs.write_messages(interests, tmp_path / "interests", BOX, kind="interest")
    paths = tmp_path / "events", tmp_path / "interests"
    with pytest.raises(Exception, match=r"subscription='s\d', round=5: .*not an event message"):
        cs.match_messages(spark, *paths, BOX).collect()
    rejected = cs.match_messages(spark, *paths, BOX, on_error="reject")
    assert answers(rejected) == {at: None if at[1] == 5 else one for at, one in expected.items()}
    texts = rejected.where("rejected IS NOT NULL").select("round", "rejected").distinct().collect()
    assert [row["round"] for row in texts] == [5]
    other = events.where("round = 6").withColumn("round", F.lit(4).cast("long"))
    again = events.union(other)
    with pytest.raises(ValueError, match="round=4 occurs twice; a round has one message"):
        cs.write_messages(again, tmp_path / "twice", BOX, kind="event", partitions=4)
    assert not list((tmp_path / "twice").iterdir())


def test_messages_in_the_same_row_are_matched_as_a_column(stages: Stages) -> None:
    events, interests, expected = stages
    column = cs.match_udf(BOX)("event_message", "interest_message")
    both = events.join(interests, "round")
    assert answers(both.select("subscription", "round", column.alias("matched"))) == expected
