"""Schemas suggested from Spark DataFrames."""

from __future__ import annotations

from typing import Any

import pytest

from ccbps import Category, Decimal, Schema, Text, Timestamp, UInt
from ccbps import spark as cs
from ccbps.errors import ParameterError
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
    assert found.report.startswith("10 records and the extremes of all, ")
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


def test_extremes_are_no_records(spark: Any) -> None:
    found = Schema.suggest(spark.range(1).selectExpr("'secret' AS word", "id"))
    assert found.report.startswith("1 records, ")
    assert found.schema == Schema(word=Text(9), id=UInt(1))
    assert "1 words of at most 6 bytes in 1 values" in found.report


def test_a_list_from_a_sample_is_marked(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = spark.range(40).selectExpr("IF(id < 20, 'a', 'b') AS word")
    assert "perhaps incomplete" not in Schema.suggest(frame).report
    monkeypatch.setattr(module, "_ROWS", 20)
    found = Schema.suggest(frame)
    assert found.schema == Schema(word=Category(["a", "b"]))
    assert "the list is of a sample, and perhaps incomplete" in found.report


def test_columns_of_other_types_are_left_out_with_the_reason(spark: Any) -> None:
    left = {
        "single": "CAST(id AS FLOAT)",
        "pair": "struct(id AS x)",
        "list": "array(id)",
        "lookup": "map(id, id)",
        "nothing": "NULL",
        "bytes": "X'00'",
        "folded": "'a' COLLATE UTF8_LCASE",
        "tree": "parse_json('{}')",
        "month": "INTERVAL 3 MONTH",
    }
    columns = [f"{x} AS {name}" for name, x in left.items()]
    found = Schema.suggest(spark.range(3).selectExpr(*columns, "id"))
    assert found.schema == Schema(id=UInt(3))
    for name in left:
        assert f"{name}: left out" in found.report
    assert "cast it to the decimals" in found.report
    assert "no attribute has values of type array<bigint>" in found.report
    with pytest.raises(ParameterError, match=r"(?s)no column.*tree: left out"):
        Schema.suggest(spark.range(3).selectExpr("parse_json('{}') AS tree"))


def test_nan_hides_no_greatest_value(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS", 2)
    values = "IF(id = 3, DOUBLE('NaN'), CAST(id * 10 AS DOUBLE)) AS x"
    frame = spark.range(9).selectExpr(values, "IF(id = 8, DOUBLE('inf'), 0.5D) AS y")
    found = Schema.suggest(frame)
    assert found.schema == Schema(x=UInt(8, nullable=True))
    assert "NaN is NULL" in found.report
    assert "y: left out\n  why: some of its floats are infinite" in found.report


def test_streams_and_names_that_are_the_same_to_spark_are_refused(spark: Any) -> None:
    with pytest.raises(ParameterError, match="is a stream; pass"):
        Schema.suggest(spark.readStream.format("rate").load())
    with pytest.raises(ParameterError, match="'A' and 'a' have the same name"):
        Schema.suggest(spark.range(1).selectExpr("id AS A", "id AS a"))


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
