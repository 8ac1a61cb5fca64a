"""Schemas from columns' types, and schemas suggested from data."""

from __future__ import annotations

import datetime
import decimal
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Bool, Category, Decimal, Int, Keyword, Schema, Text, Timestamp, UInt
from ccbps.errors import EventError, ParameterError
from tests.support.effort import examples
from tests.support.strategies import Exported, record, rows, schemas

# -- types of columns ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.bool_(), Bool()),
        *((getattr(pa, f"int{width}")(), Int(width)) for width in (8, 16, 32, 64)),
        *((getattr(pa, f"uint{width}")(), UInt(width)) for width in (8, 16, 32, 64)),
    ],
)
def test_arrow_types_that_say_what_they_hold(kind: Any, expected: Any) -> None:
    for nullable in (False, True):
        suggestion = Schema.from_arrow(pa.schema([pa.field("a", kind, nullable)]))["a"]
        assert type(suggestion) is type(expected)
        assert suggestion.nullable == nullable and suggestion.cardinality == expected.cardinality


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (pa.string(), "Text(8)"),
        (pa.large_string(), "Keyword(64)"),
        (pa.string_view(), "Keyword(64)"),
        (pa.dictionary(pa.int32(), pa.string()), 'Category(["a", "b"])'),
        (pa.decimal128(10, 2), 'Decimal(0, 1000, "0.01")'),
        (pa.decimal256(10, 0), 'Decimal(0, 1000, "1")'),
        (pa.float32(), 'Decimal(0, 1000, "0.01")'),
        (pa.float64(), 'Decimal(0, 1000, "0.01")'),
        (pa.date32(), 'Timestamp("day", "2020-01-01", "2029-12-31")'),
        (pa.date64(), 'Timestamp("day", "2020-01-01", "2029-12-31")'),
        (pa.timestamp("us"), 'Timestamp("us", "2020-01-01", "2029-12-31")'),
        (pa.timestamp("ns", "UTC"), 'Timestamp("ns", "2020-01-01", "2029-12-31")'),
    ],
)
def test_what_arrow_types_do_not_say_is_asked_for(kind: Any, written: str) -> None:
    schema = pa.schema([pa.field("a", kind, False), pa.field("b", pa.int8())])
    with pytest.raises(ParameterError) as caught:
        Schema.from_arrow(schema)
    assert written in str(caught.value) and "b=" not in str(caught.value)
    # What the error says to write is taken.
    given_type = eval(written)
    assert Schema.from_arrow(schema, a=given_type).names == ("a", "b")
    assert Schema.from_arrow(schema, ["a"], a=given_type) == Schema(a=given_type)
    assert Schema.from_arrow(schema, ["b"]) == Schema(b=Int(8, nullable=True))


def test_types_without_attributes_are_refused() -> None:
    schema = pa.schema([("a", pa.list_(pa.int8())), ("b", pa.null()), ("c", pa.binary())])
    with pytest.raises(ParameterError, match=r"a=.*b=.*c="):
        Schema.from_arrow(schema)


def test_columns_come_in_the_order_asked_for_and_exist() -> None:
    schema = pa.schema([("price", pa.int8()), ("volume", pa.int8())])
    assert Schema.from_arrow(schema, ["volume", "price"]).names == ("volume", "price")
    with pytest.raises(ParameterError, match="'prise' is none; the closest is 'price'"):
        Schema.from_arrow(schema, ["prise"])
    with pytest.raises(ParameterError, match="'prise' is none"):
        Schema.from_arrow(schema, prise=UInt(8))
    with pytest.raises(ParameterError, match="not among the columns"):
        Schema.from_arrow(schema, ["price"], volume=UInt(8))
    with pytest.raises(ParameterError, match="occurs twice"):
        Schema.from_arrow(pa.schema([("a", pa.int8()), ("a", pa.int8())]))
    with pytest.raises(ParameterError, match="identifier"):
        Schema.from_arrow(pa.schema([("a b", pa.int8())]))
    for other in (pa.table({"a": [1]}), {"a": "int8"}, None):
        with pytest.raises(ParameterError, match=r"pyarrow\.Schema"):
            Schema.from_arrow(other)
    for other in (schema, pa.struct([("a", pa.int8())])):
        with pytest.raises(ParameterError, match="from_spark takes a StructType"):
            Schema.from_spark(other)


def test_spark_types() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    struct = types.StructType(
        [
            types.StructField("a", types.BooleanType(), False),
            types.StructField("b", types.ByteType()),
            types.StructField("c", types.ShortType(), False),
            types.StructField("d", types.IntegerType(), False),
            types.StructField("e", types.LongType(), False),
        ]
    )
    assert Schema.from_spark(struct) == Schema(
        a=Bool(), b=Int(8, nullable=True), c=Int(16), d=Int(32), e=Int(64)
    )
    for kind, written in [
        (types.StringType(), "Keyword(64)"),
        (types.VarcharType(5), "Text(8)"),
        (types.CharType(5), "Text(8)"),
        (types.DecimalType(10, 3), 'Decimal(0, 1000, "0.001")'),
        (types.DoubleType(), 'Decimal(0, 1000, "0.01")'),
        (types.DateType(), 'Timestamp("day"'),
        (types.TimestampType(), 'Timestamp("us"'),
        (types.TimestampNTZType(), 'Timestamp("us"'),
        (types.ArrayType(types.LongType()), "convert"),
    ]:
        with pytest.raises(ParameterError) as caught:
            Schema.from_spark(types.StructType([types.StructField("x", kind, False)]))
        assert f"x={written}" in str(caught.value) or written in str(caught.value)


def test_neither_arrow_nor_spark_is_imported() -> None:
    code = (
        "import sys, ccbps; print(ccbps.Schema.suggest({'a': [1, 2]}).schema);"
        "assert not {'pyarrow', 'pyspark', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- suggestions --------------------------------------------------------------------------------


def suggested(values: Any) -> Any:
    """The type suggested for one column, and what the report says of it."""
    suggestion = Schema.suggest({"a": values})
    return suggestion.schema["a"], suggestion.report.split("\n", 2)[2]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, False, None], Bool(nullable=True)),
        ([0, 0], UInt(1)),
        ([0, 127], UInt(8)),
        ([0, 128], UInt(9)),
        ([2**63, 1], UInt(64)),
        ([2**64 - 1], UInt(64)),
        ([-1, 0], Int(3)),
        ([-(2**63)], Int(64)),
        ([2**63 - 1, -1], Int(64)),
        ([-100, 3, None], Int(9, nullable=True)),
        ([1.0, 2.0, float("nan")], UInt(3, nullable=True)),
        ([0.5, 99.99], Decimal(0, 200, "0.01")),
        ([-0.5, 1.25], Decimal("-2.5", "2.5", "0.01")),
        ([1, 2.5], Decimal(0, 5, "0.1")),
        ([0.03], Decimal(0, "0.06", "0.01")),
        ([0.000001], Decimal(0, "0.000002", "0.000001")),
        (np.array([0.1, 119.5], np.float32), Decimal(0, 240, "0.1")),
        ([decimal.Decimal("1.50"), 3], Decimal(0, 6, "0.1")),
        (pa.array([decimal.Decimal("1.50")], pa.decimal128(10, 2)), Decimal(0, 3, "0.01")),
        (pa.array([decimal.Decimal("1.5")], pa.decimal128(38, 18)), Decimal(0, 3, "0.000001")),
        (["2024-02-29"], Timestamp("day", "2024-01-01", "2025-12-31")),
        (
            [datetime.datetime(2020, 1, 1, 12), datetime.datetime(2023, 1, 1)],
            Timestamp("s", "2020-01-01", "2026-12-31T23:59:59"),
        ),
        ([datetime.date(9999, 1, 1)], Timestamp("day", "9999-01-01", "9999-12-31")),
        (
            np.array(["2024-01-01", "2024-01-01T00:00:00.001"], "M8[ns]"),
            Timestamp("ms", "2024-01-01", "2025-12-31T23:59:59"),
        ),
        (["IBM", "SAP"] * 4, Category(["IBM", "SAP"])),
        (["IBM", "SAP"], Text(5)),
        (["a\0b", "c"], Keyword(64)),
        (["a rather long text", None], Keyword(64, nullable=True)),
        ([""], Text(1)),
    ],
)
def test_what_is_suggested(values: Any, kind: Any) -> None:
    suggestion, report = suggested(values)
    assert suggestion == kind
    assert "why: " in report and "check: " in report
    assert ("NULL is refused" in report) == (not kind.nullable)
    suggestion.encode(values)


def test_the_room_that_is_promised_is_there() -> None:
    for values in ([0], [1], [100, 2], [2**62], [-(2**61), 3], [119.37, 0.5], [-7.125, 3]):
        kind, report = suggested(values)
        greatest = max(values, key=abs)
        kind.encode([2 * greatest])
        assert min(values) >= 0 or len(kind.encode([-2 * greatest]))
        assert "twice as much fits" in report
    for end in (2**63, -(2**62)):
        assert "all that 64 bits hold" in suggested([end])[1]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([None, None], "no values"),
        ([], "no values"),
        ([[1], [2]], "several kinds"),
        ([1, "a"], "several kinds"),
        ([True, 1], "several kinds"),
        ([b"a"], "several kinds"),
        ([1.5, float("inf")], "infinite"),
        ([1 / 3], "more than 6 decimals"),
        ([2**64], "do not fit 64 bits"),
        ([2**63, -1], "do not fit 64 bits"),
        ([-(2**63) - 1], "do not fit 64 bits"),
        ([0.000001, 10**9 + 0.5], "no type takes|more than 6"),
        (["\ud800"], "Unicode"),
        (np.array(["20000-01-01"], "M8[D]"), "times"),
        (np.zeros((2, 2)), "one value per record"),
        (np.array([1 + 1j]), "no encoding"),
        ([decimal.Decimal("Infinity")], "infinite"),
        ([decimal.Decimal("1e500")], "beyond"),
        ([None, float(2**63)], "beyond 2\\^53"),
    ],
)
def test_what_no_type_takes_is_left_out_with_the_reason(values: Any, reason: str) -> None:
    with pytest.raises(ParameterError, match=f"(?s)no column.*a: left out.*why: .*({reason})"):
        Schema.suggest({"a": values})
    if others := [1] * len(values):
        suggestion = Schema.suggest({"a": values, "b": others, "c d": others})
        assert suggestion.schema == Schema(b=UInt(2))
        assert "a: left out" in suggestion.report and "c d: left out" in suggestion.report


@given(st.data(), schemas())
@settings(max_examples=examples(200))
def test_a_suggested_schema_takes_the_data(data: st.DataObject, schema: Schema) -> None:
    records = [record(row) for row in data.draw(rows(schema))]
    try:
        suggestion = Schema.suggest(records)
    except ParameterError:
        # Nothing but NULL, or numbers that only a grid of one's own makes few enough.
        reasons = {choice for row in records for choice in row.values() if choice is not None}
        if not all(isinstance(value, decimal.Decimal) for value in reasons):
            raise
        return
    events = suggestion.schema.encode(records)
    assert len(events) == len(records)
    for name in suggestion.schema:
        assert f"{name}: {suggestion.schema[name]!r}" in suggestion.report
    assert f"{suggestion.schema.bits} bits for each event" in suggestion.report


@pytest.mark.parametrize(
    "make",
    [
        dict,
        lambda columns: [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ],
        pd.DataFrame,
        pa.table,
        lambda columns: pa.table(columns).to_batches()[0],
        lambda columns: np.rec.fromarrays(list(columns.values()), names=list(columns)),
        lambda columns: Exported(pa.table(columns)),
    ],
)
def test_data_come_in_any_container(make: Any) -> None:
    columns = {"price": [1.5, 2.25], "volume": [3, 4]}
    suggestion = Schema.suggest(make(columns))
    assert suggestion.schema == Schema(price=Decimal(0, "4.5", "0.01"), volume=UInt(4))


def test_rows_may_lack_a_name_and_columns_of_one_length() -> None:
    assert Schema.suggest([{"a": 1}, {"b": 2}]).schema == Schema(
        a=UInt(2, nullable=True), b=UInt(3, nullable=True)
    )
    with pytest.raises(EventError, match="differ in length"):
        Schema.suggest({"a": [1], "b": [1, 2]})
    with pytest.raises(ParameterError, match="'a' occurs twice"):
        Schema.suggest(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]))
    for other in (None, 5, "a", [1, 2]):
        with pytest.raises(ParameterError, match="suggest takes"):
            Schema.suggest(other)


def test_nan_is_said_to_be_null() -> None:
    kind, report = suggested([1.5, float("nan")])
    assert kind.nullable and "NaN is NULL" in report


def test_what_is_given_is_taken() -> None:
    suggestion = Schema.suggest({"a": ["x"] * 9, "b": [1] * 9}, a=Keyword(48))
    assert suggestion.schema == Schema(a=Keyword(48), b=UInt(2))
    assert "why: you said so" in suggestion.report
    with pytest.raises(ParameterError, match="'aa' is none; the closest is 'a'"):
        Schema.suggest({"a": ["x"]}, aa=Keyword(48))
