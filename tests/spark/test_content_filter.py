"""Content pre-filters in DataFrames: the same answers from fewer tests, by any strategy."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import Category, Schema, UInt
from ccbps import spark as cs
from ccbps.errors import ParameterError
from ccbps.filters import ContentFilter, FilterKey
from ccbps.matching import BroadcastMatch, ObliviousTopicMatch, TagMatch
from tests.support.spark_session import Places, damaged, issued, save

pytestmark = pytest.mark.spark

SCHEMA = Schema(issue=Category(["AAPL", "IBM", "SAP"]), price=UInt(8))
TEXTS = ["issue = 'IBM' AND price < 40", "price BETWEEN 100 AND 130", "issue = 'SAP'", "price = 7"]


def quotes(spark: SparkSession) -> DataFrame:
    return spark.range(0, 120, 1, 2).select(
        "id",
        F.element_at(
            F.array(*map(F.lit, ["AAPL", "IBM", "SAP"])), (F.col("id") % 3 + 1).cast("int")
        ).alias("issue"),
        (F.col("id") * 2).cast("int").alias("price"),
    )


@pytest.mark.slow
def test_answers_are_the_same_by_any_strategy(
    spark: SparkSession, tmp_path: Path, places: Places
) -> None:
    key = FilterKey.generate()
    source, matcher = save(tmp_path / "masks", key), TagMatch(SCHEMA)
    keys = issued(matcher, tmp_path)
    rows = quotes(spark).withColumn("mask", cs.event_masks(SCHEMA, source, levels=7))
    contents = ContentFilter(SCHEMA, key, levels=7)
    records = [row.asDict() for row in rows.orderBy("id").collect()]
    expected = contents.events({n: [r[n] for r in records] for n in SCHEMA})
    assert [bytes(r["mask"]) for r in records] == [mask.tobytes() for mask in expected]
    wishes = spark.createDataFrame(
        [(f"s{n}", text) for n, text in enumerate(TEXTS)], "subscription string, predicate string"
    ).withColumn("mask", cs.interest_masks("predicate", SCHEMA, source, levels=7))
    sent = cs.encode_events(
        rows.withColumn("topic", F.lit("all")),
        matcher,
        keys["publisher"],
        keep=["id", "mask", "topic"],
    ).cache()
    kept = cs.encode_interests(
        wishes.withColumn("topic", F.when(F.col("subscription") != "s1", F.lit("all"))),
        matcher,
        keys["subscriber"],
        keep=["subscription", "mask", "topic"],
    ).cache()
    wanted = {
        (f"s{n}", int(row["id"]))
        for n, text in enumerate(TEXTS)
        for row, fits in zip(records, SCHEMA.parse(text).evaluate(records), strict=True)
        if fits
    }

    def found(events: DataFrame, interests: DataFrame, strategy: str) -> set[tuple[str, int]]:
        topic = "topic" if strategy == "topic" else None
        out = cs.match_all_pairs(
            events, interests, matcher, keys["broker"], topic=topic, mask="mask", strategy=strategy
        )
        assert "mask" not in out.columns
        matches = [(row.subscription, row.id) for row in out.collect()]
        assert len(set(matches)) == len(matches)
        return set(matches)

    for strategy in ("closure", "blocks", "topic"):
        assert found(sent, kept, strategy) == wanted
    both = (df.drop("topic") for df in (sent, kept))
    matches = cs.match(*both, matcher, keys["broker"], mask="mask").collect()
    assert sorted((row.subscription, row.id) for row in matches) == sorted(wanted)
    # What a mask says is not tested: with masks that no event has, nothing is found.
    head = contents.interests(["TRUE"])[0, :8].tobytes()
    never = F.lit(head + b"\xff" * (contents.interest_bytes - 8))
    assert found(sent, damaged(kept, "mask", {"subscription = 's2'": never}), "closure") == {
        pair for pair in wanted if pair[0] != "s2"
    }
    # A mask that is NULL or of another width says nothing.
    odd = damaged(kept, "mask", {"subscription = 's0'": None, "subscription = 's3'": b"short"})
    events = damaged(sent, "mask", {"id % 7 = 0": None, "id % 7 = 1": b"broken"})
    for strategy in ("closure", "blocks"):
        assert found(events, odd, strategy) == wanted
    # Nor does one of another key.
    theirs = ContentFilter(SCHEMA, FilterKey.generate(), levels=7).interests(["price = 1"])
    foreign = damaged(kept, "mask", {"subscription = 's0'": theirs[0].tobytes()})
    assert found(sent, foreign, "closure") == wanted
    everything = damaged(sent, "mask", {"TRUE": None})
    assert found(everything, kept, "closure") == wanted
    secret = key.export_secret()
    places.check_hidden([secret, secret.hex().encode(), key.to_text().encode()])


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    source = save(tmp_path / "masks", FilterKey.generate())
    with pytest.raises(ParameterError, match="no attribute 'no'"):
        cs.event_masks(SCHEMA, source, levels={"no": 1})
    with pytest.raises(ParameterError, match="KeySource"):
        cs.interest_masks("predicate", SCHEMA, FilterKey.generate())  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="masks must be"):
        cs.interest_masks("predicate", SCHEMA, source, masks=0)
    empty = spark.createDataFrame([], "event_message binary, id long")
    asked = spark.createDataFrame([], "subscription string, interest_message binary")
    with pytest.raises(ParameterError, match="column 'mask' is missing"):
        cs.match_all_pairs(empty, asked, TagMatch(SCHEMA), source, mask="mask")
    with pytest.raises(ParameterError, match="mask= does not apply to BroadcastMatch: masks"):
        cs.match(empty, asked, BroadcastMatch.box(SCHEMA), mask="mask")
    own = ObliviousTopicMatch(SCHEMA, ["issue"], group="toy64")
    with pytest.raises(ParameterError, match="mask= does not apply to ObliviousTopicMatch"):
        cs.match(empty, None, own, source, mask="mask")
