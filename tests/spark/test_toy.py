"""A scheme that Spark's functions were not written for goes through them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ccbps import Category, Schema, UInt
from ccbps import spark as cs
from tests.spark.test_all_pairs import issued
from tests.support.toy_scheme import ToyMatch

pytestmark = pytest.mark.spark


def test_a_new_scheme_has_spark_functions(spark: SparkSession, tmp_path: Path) -> None:
    matcher = ToyMatch(Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8)))
    keys = issued(matcher, tmp_path)
    quotes = spark.createDataFrame(
        [(0, "IBM", 119), (1, "AAPL", 7), (2, "IBM", 119)], "event long, issue string, price int"
    )
    wanted = spark.createDataFrame(
        [("alice", "issue = 'IBM' AND price = 119"), ("bob", "issue = 'AAPL' AND price = 8")],
        "subscription string, predicate string",
    )
    sent = cs.encode_events(quotes, matcher, keys["publisher"], keep=["event"])
    kept = cs.encode_interests(wanted, matcher, keys["subscriber"])
    found = cs.match(sent, kept, matcher, keys["broker"]).collect()
    assert {(row.subscription, row.event) for row in found} == {("alice", 0), ("alice", 2)}
