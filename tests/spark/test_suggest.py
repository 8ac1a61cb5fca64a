"""Schemas suggested from Spark DataFrames."""

from __future__ import annotations

from typing import Any

import pytest

from ccbps import Category, Decimal, Schema, Timestamp, UInt
from ccbps import spark as cs
from ccbps.predicates import suggest as module

pytestmark = pytest.mark.spark


def test_of_a_spark_frame_a_sample_and_the_extremes_are_collected(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ROWS", 10)
    frame = spark.range(1000).selectExpr(
        "CAST(id AS INT) AS number",
        "CAST(id / 4 AS DECIMAL(38, 18)) AS price",
        "CASE WHEN id < 999 THEN 'a' END AS word",
        "DATE '2024-01-01' + CAST(id AS INT) AS day",
        "array(id) AS more",
        "id AS `a b`",
    )
    found = Schema.suggest(frame)
    assert found.report.startswith("13 records, of a sample and the extremes")
    assert found.schema == Schema(
        number=UInt(11),
        price=Decimal(0, 500, "0.000001"),
        word=Category(["a"], nullable=True),
        day=Timestamp("day", "2024-01-01", "2028-12-31"),
    )
    assert (
        found.schema.names
        == Schema.from_spark(
            frame.schema,
            ["number", "price", "word", "day"],
            **{name: found.schema[name] for name in ("price", "word", "day")},
        ).names
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["Adj Close", "2nd", "ok", "a.b", "a-b"], ["Adj_Close", "_2nd", "ok", "a_b", "a_b_2"]),
        (["a b", "A_B", "a_b_2"], ["a_b_3", "A_B", "a_b_2"]),
        (["x", "x", "X"], ["x", "x_2", "X_3"]),
        (["", " ", "`", "größe"], ["_", "__2", "__3", "größe"]),
    ],
)
def test_names_become_identifiers(spark: Any, before: list[str], after: list[str]) -> None:
    frame = spark.range(1).selectExpr(*["id"] * len(before)).toDF(*before)
    cleaned = cs.clean_names(frame)
    assert cleaned.columns == after
    assert len({name.lower() for name in after}) == len(after)
    assert all(name.isidentifier() for name in after)
    assert cleaned.collect() == frame.collect()
