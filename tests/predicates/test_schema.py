"""Attribute types and schemas: codes, their order, boundaries, containers, and refusals."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.errors import EventError, ParameterError
from ccbps.predicates import (
    AttributeType,
    Bool,
    Category,
    Decimal,
    Int,
    Keyword,
    Schema,
    Text,
    Timestamp,
    UInt,
)
from ccbps.predicates.codes import at_most, distance_at_most, in_range, increment, pack, unpack
from tests.support.strategies import (
    Exported,
    Moment,
    attribute_types,
    domain,
    record,
    rows,
    schemas,
)

BIG = 2**64 - 1


def codes(kind: AttributeType, values: Any) -> list[int]:
    return unpack(kind.encode(values))


# -- codes of several limbs -------------------------------------------------------------------


wide = st.integers(0, 2**130 - 1) | st.sampled_from([0, BIG, BIG + 1, 2**128 - 1, 2**128])


@given(values=st.lists(wide, max_size=6), low=wide, high=st.integers(-1, 2**200))
def test_codes_compare_like_integers(values: list[int], low: int, high: int) -> None:
    packed = pack(values, 3)
    assert unpack(packed) == values
    assert at_most(packed, high).tolist() == [value <= high for value in values]
    assert in_range(packed, low, high).tolist() == [low <= value <= high for value in values]
    assert unpack(increment(packed)) == [value + 1 for value in values]
    near = [(value ^ low).bit_count() <= 60 for value in values]
    assert distance_at_most(packed, low, 60).tolist() == near


# -- every type -------------------------------------------------------------------------------


@given(data=st.data(), kind=attribute_types())
def test_codes_fit_their_width_and_null_is_zero(data: st.DataObject, kind: AttributeType) -> None:
    drawn = data.draw(st.lists(domain(kind), max_size=8))
    values = [value.iso() if isinstance(value, Moment) else value for value in drawn]
    encoded = kind.encode([*values, None] if kind.nullable else values)
    assert encoded.dtype == np.uint64
    assert encoded.shape == (kind.limbs, len(values) + kind.nullable)
    numbers = unpack(encoded)
    assert all(kind.lowest <= code <= kind.highest for code in numbers[: len(values)])
    if kind.nullable:
        assert numbers[-1] == 0
    assert kind.highest == kind.size - 1 < 2**kind.bits


@given(data=st.data(), kind=attribute_types())
def test_codes_keep_the_order_of_values(data: st.DataObject, kind: AttributeType) -> None:
    left, right = data.draw(domain(kind)), data.draw(domain(kind))

    def key(value: Any) -> Any:
        if isinstance(value, Moment):
            return value.sortable()
        return value.encode() if isinstance(value, str) else value

    plain = [value.iso() if isinstance(value, Moment) else value for value in (left, right)]
    first, second = codes(kind, plain)
    assert (first == second) == (left == right)
    if not isinstance(kind, Keyword):
        assert (first < second) == (key(left) < key(right))


@given(kind=attribute_types(), data=st.data())
def test_code_range_of_a_value_brackets_its_code(data: st.DataObject, kind: AttributeType) -> None:
    drawn = data.draw(domain(kind))
    value = drawn.iso() if isinstance(drawn, Moment) else drawn
    (code,) = codes(kind, [value])
    assert kind.code_range("=", value) == (code, code)
    if not isinstance(kind, Keyword):
        assert kind.code_range("<", value) == (kind.lowest, code - 1)
        assert kind.code_range("<=", value) == (kind.lowest, code)
        assert kind.code_range(">", value) == (code + 1, kind.highest)
        assert kind.code_range(">=", value) == (code, kind.highest)


@pytest.mark.parametrize(
    ("kind", "size", "bits", "limbs"),
    [
        (UInt(1), 2, 1, 1),
        (UInt(64), 2**64, 64, 1),
        (UInt(64, nullable=True), 2**64 + 1, 65, 2),
        (Int(8), 256, 8, 1),
        (Decimal(0, 1, "0.1"), 11, 4, 1),
        (Category(["only"]), 1, 1, 1),
        (Category(["only"], nullable=True), 2, 1, 1),
        (Keyword(128), 2**128, 128, 2),
        (Keyword(256, nullable=True), 2**256 + 1, 257, 5),
        (Text(12), 2**96, 96, 2),
        (Timestamp("day", "2024-01-01", "2024-12-31"), 366, 9, 1),
        (Bool(), 2, 1, 1),
        (Bool(nullable=True), 3, 2, 1),
    ],
)
def test_size_bits_and_limbs(kind: AttributeType, size: int, bits: int, limbs: int) -> None:
    assert (kind.size, kind.bits, kind.limbs) == (size, bits, limbs)
    assert kind.lowest == int(kind.nullable)


@pytest.mark.parametrize(
    "kind",
    [
        UInt(16),
        Int(7, nullable=True),
        Decimal("-0.50", 2, "0.25"),
        Category(["b", "a", "é"]),
        Keyword(33),
        Text(12),
        Timestamp("ms", "2020-01-01T00:00:00.5", "2020-01-02"),
        Bool(),
    ],
)
def test_types_repeat_pickle_and_describe_themselves(kind: AttributeType) -> None:
    assert eval(repr(kind), {**globals(), "true": True}) == kind
    assert pickle.loads(pickle.dumps(kind)) == kind
    assert hash(pickle.loads(pickle.dumps(kind))) == hash(kind)
    described = kind.describe()
    assert json.loads(json.dumps(described)) == described
    assert described["type"] == type(kind).__name__
    assert described["nullable"] == kind.nullable


def test_equal_decimals_describe_alike() -> None:
    assert Decimal("0.0", "1.00", "0.10") == Decimal(0, 1, 0.1)
    assert Decimal("-0", "1.00", "0.10").describe() == Decimal(0, 1, 0.1).describe()
    assert Decimal(0, "1e3", 1).describe()["high"] == "1000"


@pytest.mark.parametrize(
    "build",
    [
        lambda: UInt(0),
        lambda: UInt(65),
        lambda: UInt(True),
        lambda: Int(1.5),  # type: ignore[arg-type]
        lambda: Decimal(0, 1, 0),
        lambda: Decimal(0, 1, "0.3"),
        lambda: Decimal(1, 0, 1),
        lambda: Decimal(0, "nan", 1),
        lambda: Decimal(0, True, 1),
        lambda: Decimal(0, "one", 1),
        lambda: Decimal(0, "1_0", 1),
        lambda: Decimal(0, 2**41, 1),
        lambda: Decimal(0, "1e200", "1e199"),
        lambda: Category([]),
        lambda: Category(["a", "a"]),
        lambda: Category("abc"),
        lambda: Category([1, 2]),  # type: ignore[list-item]
        lambda: Category(None),  # type: ignore[arg-type]
        lambda: Timestamp(["day"], "2020-01-01", "2021-01-01"),  # type: ignore[arg-type]
        lambda: Schema([("a", UInt(1))]),  # type: ignore[arg-type]
        lambda: Schema("a"),  # type: ignore[arg-type]
        lambda: Category(["\ud800"]),
        lambda: Keyword(7),
        lambda: Keyword(257),
        lambda: Text(0),
        lambda: Timestamp("minute", "2020-01-01", "2021-01-01"),
        lambda: Timestamp("day", "2020-01-01T10:00", "2021-01-01"),
        lambda: Timestamp("day", "2021-01-01", "2020-01-01"),
        lambda: Timestamp("day", "2021-02-30", "2022-01-01"),
        lambda: Timestamp("ns", "1000-01-01", "2020-01-01"),
        lambda: Timestamp("s", 0, "2020-01-01"),
        lambda: Timestamp("s", "0001-01-01T00:00+02:00", "2020-01-01"),
        lambda: Schema(),
        lambda: Schema({"not a name": UInt(1)}),
        lambda: Schema(price=16),  # type: ignore[arg-type]
        lambda: Schema({"a": UInt(1)}, a=UInt(1)),
    ],
)
def test_bad_parameters_are_refused(build: Callable[[], object]) -> None:
    with pytest.raises(ParameterError):
        build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: UInt(), r"UInt: .*'bits'; write for example UInt\(16\)"),
        (lambda: Int(nullable=True), r"Int: .*'bits'; write for example Int\(16\)"),
        (lambda: Decimal(0, 1000), r"Decimal: .*'step'; .* Decimal\(0, 1000, \"0.01\"\)"),
        (lambda: Category("AAPL", "IBM"), r"Category: .*Category\(\[\"AAPL\", "),
        (lambda: Keyword(), r"Keyword: .*'bits'; write for example Keyword\(64\)"),
        (lambda: Text(length=3), r"Text: .*; write for example Text\(8\)"),
        (lambda: Timestamp("day"), r"Timestamp: .*'start'; .*\(\"day\", \"2024-01-01\", "),
    ],
)
def test_a_constructor_says_what_is_missing(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        build()


# -- numbers ----------------------------------------------------------------------------------


def test_integers_of_64_bits_are_exact() -> None:
    assert codes(UInt(64), [0, BIG, 2**53 + 1]) == [0, BIG, 2**53 + 1]
    assert codes(UInt(64, nullable=True), [0, None, BIG]) == [1, 0, BIG + 1]
    assert codes(UInt(64), np.array([0, BIG], dtype=np.uint64)) == [0, BIG]
    assert codes(Int(64), [-(2**63), -1, 0, 2**63 - 1]) == [0, 2**63 - 1, 2**63, BIG]
    assert codes(Int(8), np.array([-128, 0, 127], dtype=np.int8)) == [0, 128, 255]


@pytest.mark.parametrize(
    ("operator", "constant", "expected"),
    [
        ("=", 300, (1, 0)),
        ("=", decimal.Decimal("1.5"), (1, 0)),
        ("=", decimal.Decimal("2.0"), (2, 2)),
        ("<", 0, (0, -1)),
        ("<", -5, (0, -1)),
        ("<", 10**9, (0, 255)),
        ("<", decimal.Decimal("1.5"), (0, 1)),
        ("<=", decimal.Decimal("1e999999"), (0, 255)),
        (">", 255, (256, 255)),
        (">", -5, (0, 255)),
        (">=", decimal.Decimal("1.5"), (2, 255)),
        (">=", decimal.Decimal("-1e999999"), (0, 255)),
        (">=", 0.1, (1, 255)),
    ],
)
def test_constants_clamp(operator: str, constant: Any, expected: tuple[int, int]) -> None:
    assert UInt(8).code_range(operator, constant) == expected
    if operator != "=" or expected != (1, 0):
        shifted = (expected[0] + 1, expected[1] + 1)
        assert UInt(8, nullable=True).code_range(operator, constant) == shifted


def test_decimals_accept_every_spelling_of_a_value() -> None:
    kind = Decimal("-1", 1, "0.01", nullable=True)
    spellings = [0.07, "0.07", decimal.Decimal("0.070"), None, float("nan"), 1, np.float32(0.07)]
    assert codes(kind, spellings) == [108, 108, 108, 0, 0, 201, 108]
    assert codes(kind, np.array([0.07, np.nan, -1])) == [108, 0, 1]
    exact = pa.array([decimal.Decimal("0.07"), None], type=pa.decimal128(10, 4))
    assert codes(kind, exact) == [108, 0]
    everything = codes(kind, np.arange(-100, 101) / 100)
    assert everything == list(range(1, 202))


def test_decimals_with_2_to_the_40_steps_are_told_apart() -> None:
    kind = Decimal("0", str(decimal.Decimal(2**40) / 100), "0.01")
    ticks = np.arange(2**40 - 1000, 2**40 + 1)
    assert unpack(kind.encode(ticks / 100)) == ticks.tolist()


# -- text -------------------------------------------------------------------------------------


def test_category_codes_follow_utf8_order_not_the_list() -> None:
    kind = Category(["é", "b", "B", "a", "\U0001f600", "\uff5e"])
    assert kind.values == ("B", "a", "b", "é", "\uff5e", "\U0001f600")
    assert codes(kind, ["B", "a", "\U0001f600"]) == [0, 1, 5]
    assert kind.code_range("like", "%") == (0, 5)
    assert kind.code_range("like", "b%") == (2, 2)
    assert kind.code_range("like", "x%") == (1, 0)
    assert kind.code_range("<", "az") == (0, 1)


def test_text_codes_are_padded_bytes() -> None:
    kind = Text(12)
    assert codes(kind, ["ab"]) == [int.from_bytes(b"ab".ljust(12, b"\0"), "big")]
    highest = int.from_bytes(b"ab".ljust(12, b"\xff"), "big")
    assert kind.code_range("like", "ab%") == (codes(kind, ["ab"])[0], highest)
    assert kind.code_range("=", "a" * 13) == (1, 0)
    assert kind.code_range("like", "a" * 13 + "%") == (1, 0)
    longest = codes(kind, ["a" * 12])[0]
    assert kind.code_range("<", "a" * 13) == (0, longest)
    assert kind.code_range(">", "a" * 13) == (longest + 1, kind.highest)


def test_keyword_is_a_hash_with_a_stated_rate() -> None:
    digest = hashlib.blake2b(b"IBM", digest_size=16).digest()
    assert codes(Keyword(128), ["IBM"]) == [int.from_bytes(digest, "big")]
    assert Keyword(9).false_positive_rate == 2**-9
    short = hashlib.blake2b(b"IBM", digest_size=2).digest()
    assert codes(Keyword(9), ["IBM"]) == [int.from_bytes(short, "big") >> 7]


# -- time -------------------------------------------------------------------------------------


def test_every_spelling_of_a_moment() -> None:
    kind = Timestamp("s", "1969-12-31", "2038-01-19")
    zone = datetime.timezone(datetime.timedelta(hours=2))
    spellings = [
        "1970-01-02",
        "1970-01-02T00:00:00Z",
        "1970-01-02 02:00:00+02:00",
        datetime.date(1970, 1, 2),
        datetime.datetime(1970, 1, 2),
        datetime.datetime(1970, 1, 2, 2, tzinfo=zone),
        np.datetime64("1970-01-02"),
        np.datetime64("1970-01-02T00", "h"),
        pd.Timestamp("1970-01-02"),
        pd.Timestamp("1970-01-02T02:00", tz=zone),
    ]
    assert set(codes(kind, spellings)) == {2 * 86_400}
    for unit in ("D", "h", "m", "s", "ms", "us", "ns", "20s", "5D"):
        array = np.array(["1970-01-01"], dtype=f"M8[{unit}]")
        assert codes(kind, array) == [86_400]
    for arrow in (pa.date32(), pa.date64(), pa.timestamp("us"), pa.timestamp("ns", tz="UTC")):
        column = pa.array([datetime.datetime(1970, 1, 2)], type=pa.timestamp("ns")).cast(arrow)
        assert codes(kind, column) == [2 * 86_400]
    series = pd.Series(pd.to_datetime(["1970-01-02T02:00+02:00"], utc=True))
    assert codes(kind, series) == [2 * 86_400]
    assert codes(kind, series.dt.tz_convert("Asia/Tokyo")) == [2 * 86_400]


def test_coarse_dates_far_away_are_refused_not_wrapped() -> None:
    kind = Timestamp("ns", "1970-01-01", "2200-01-01", nullable=True)
    far = np.array(["9999-01-01", "NaT"], dtype="M8[D]")
    with pytest.raises(EventError) as caught:
        kind.encode(far)
    assert caught.value.row == 0
    assert codes(kind, np.array(["NaT", "1970-01-01"], dtype="M8[D]")) == [0, 1]
    # So far away that NumPy, which wraps around, converts them to 1970.
    for unit, ticks in (("h", 2**61), ("7s", 2**62), ("W", 2**62)):
        dates = np.array([0, ticks]).astype(f"M8[{unit}]")
        for values in (dates, list(dates)):
            with pytest.raises(EventError) as caught:
                kind.encode(values)
            assert caught.value.row == 1


@pytest.mark.parametrize(
    ("operator", "constant", "expected"),
    [
        ("<", "2024-01-02", (0, 0)),
        ("<", "2024-01-01T12:00", (0, 0)),
        ("<=", "2024-01-01T12:00:00.000000000001", (0, 0)),
        (">=", "2024-01-01T12:00", (1, 365)),
        ("=", "2024-01-01T12:00", (1, 0)),
        ("=", "2024-01-01T02:00+02:00", (0, 0)),
        (">", "1999-01-01", (0, 365)),
        ("<", "1999-01-01", (0, -1)),
        (">", "2024-12-31", (366, 365)),
        ("=", datetime.date(2024, 12, 31), (365, 365)),
        ("=", np.datetime64("2024-12-31"), (365, 365)),
    ],
)
def test_moments_finer_than_the_unit_clamp(
    operator: str, constant: Any, expected: tuple[int, int]
) -> None:
    kind = Timestamp("day", "2024-01-01", "2024-12-31")
    assert kind.code_range(operator, constant) == expected


@pytest.mark.parametrize(
    "noons",
    [["2024-12-31 12:00"], np.array(["2024-12-31T12:00"], dtype="M8[m]")],
    ids=["text", "datetime64"],
)
def test_noon_of_the_last_day_is_no_whole_day_and_in_seconds_after_the_end(noons: Any) -> None:
    with pytest.raises(EventError, match=r"finer than the unit 'day'; .* without a time of day"):
        Timestamp("day", "2024-01-01", "2024-12-31").encode(noons)
    with pytest.raises(EventError, match=r"out of range; .* to 2024-12-31 00:00:00 \(UTC\)"):
        Timestamp("s", "2024-01-01", "2024-12-31").encode(noons)
    until = Timestamp("s", "2024-01-01", "2024-12-31T23:59:59")
    assert codes(until, noons) == [366 * 86_400 - 43_200]


# -- refusals ---------------------------------------------------------------------------------

SECRET = 7_654_321
SECRET_WORD = "classified"
EARLY = datetime.datetime.min.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2)))


@pytest.mark.parametrize(
    ("kind", "values", "row"),
    [
        (UInt(8), [1, SECRET], 1),
        (UInt(8), [-1], 0),
        (UInt(8), [2**70], 0),
        (UInt(64), [1, 2**64], 1),
        (UInt(8), np.array([1, SECRET]), 1),
        (UInt(8), np.array([1, -1]), 1),
        (UInt(8), np.array([2**64 - 1], dtype=np.uint64), 0),
        (Int(64), np.array([2**64 - 1], dtype=np.uint64), 0),
        (Int(8), np.array([-128, -129]), 1),
        (UInt(8), [True], 0),
        (UInt(8), np.array([True]), 0),
        (UInt(8), [1, True], 1),
        (UInt(8), ["one"], 0),
        (UInt(8), ["1", "256"], 1),
        (Int(8), ["-128", "1.5"], 1),
        (UInt(8), [[1]], 0),
        (UInt(8), [1.5], 0),
        (UInt(8), [1, 1.5], 1),
        (UInt(8), [float("inf")], 0),
        (UInt(8), [1, float("inf")], 1),
        (UInt(8), [1, decimal.Decimal("inf")], 1),
        (UInt(64), [2.0**60], 0),
        (UInt(8), [1, None], 1),
        (UInt(8), [1.0, float("nan")], 1),
        (UInt(8), pd.array([1, None], dtype="Int64"), 1),
        (UInt(8), pa.array([1, None]), 1),
        (Decimal(0, 1, "0.1"), [0.05], 0),
        (Decimal(0, 1, "0.1"), ["0.05"], 0),
        (Decimal(0, 1, "0.1"), [0.1, 1.1], 1),
        (Decimal(0, 1, "0.1"), ["1e999999999"], 0),
        (Decimal(0, 1, "0.1"), ["x"], 0),
        (UInt(8), [" 10 ", "1_0"], 1),
        (UInt(8), ["+1e1", "\uff11\uff12"], 1),
        (Int(8), ["-5", "-1_0"], 1),
        (Decimal(0, 1, "0.1"), [".1", "1.", "."], 2),
        (Decimal(0, 1, "0.1"), ["0_0.1"], 0),
        (Decimal(0, 1, "0.1"), [float("inf")], 0),
        (Decimal(0, 1, "0.1"), [True], 0),
        (Category(["a"]), ["a", SECRET_WORD], 1),
        (Category(["a"]), [1], 0),
        (Category(["a"]), np.array([b"a"], dtype=object), 0),
        (Keyword(8), [1], 0),
        (Keyword(8), ["\ud800"], 0),
        (Text(3), ["abc", SECRET_WORD], 1),
        (Text(3), ["éé"], 0),
        (Text(3), ["a\0"], 0),
        (Bool(), [0], 0),
        (Bool(), np.array([0, 1]), 0),
        (Bool(), [True, "x"], 1),
        (Timestamp("day", "2024-01-01", "2024-12-31"), ["2024-01-01T10:00"], 0),
        (Timestamp("day", "2024-01-01", "2024-12-31"), ["2025-01-01"], 0),
        (Timestamp("day", "2024-01-01", "2024-12-31"), ["yesterday"], 0),
        (Timestamp("day", "2024-01-01", "2024-12-31"), [5], 0),
        (Timestamp("day", "2024-01-01", "2024-12-31"), np.array([5]), 0),
        (Timestamp("day", "2024-01-01", "2024-12-31"), np.array(["2025-01-01"], "M8[ns]"), 0),
        (Timestamp("day", "2024-01-01", "2024-12-31"), np.array(["2024-02-01T01"], "M8[h]"), 0),
        (Timestamp("day", "2024-01-01", "2024-12-31"), [pd.NaT], 0),
        (Timestamp("day", "2024-01-01", "2024-12-31"), [EARLY], 0),
    ],
)
def test_bad_values_name_the_row_and_never_the_value(
    kind: AttributeType, values: Any, row: int
) -> None:
    with pytest.raises(EventError) as caught:
        Schema(price=kind).encode({"price": values})
    assert caught.value.attribute == "price"
    assert caught.value.row == row
    message = str(caught.value)
    assert "'price'" in message and f"row {row}" in message
    assert str(SECRET) not in message and SECRET_WORD not in message


def test_a_missing_value_says_how_to_allow_it() -> None:
    with pytest.raises(EventError, match=r"declare it UInt\(..., nullable=True\)"):
        Schema(price=UInt(8)).encode({"price": [None]})


@pytest.mark.parametrize("values", [5, "abc", np.zeros((2, 2)), np.array(3), None])
def test_a_column_must_be_one_dimensional(values: Any) -> None:
    with pytest.raises(EventError, match="one value per record"):
        Schema(price=UInt(8)).encode({"price": values})


@pytest.mark.parametrize(
    "values",
    [np.array([1j]), np.array([b"x"]), pa.array([b"x"]), pa.array([[1]]), pd.interval_range(0, 2)],
)
def test_kinds_without_an_encoding_are_refused(values: Any) -> None:
    with pytest.raises(EventError, match="has no encoding"):
        UInt(8).encode(values)


# -- schemas ----------------------------------------------------------------------------------

SCHEMA = Schema(
    issue=Category(["IBM", "SAP"]),
    price=Decimal(0, 1000, "0.01"),
    volume=UInt(20, nullable=True),
    day=Timestamp("day", "2024-01-01", "2024-12-31"),
    flag=Bool(),
)
ROWS: list[dict[str, Any]] = [
    {"issue": "SAP", "price": 1.25, "volume": 7, "day": datetime.date(2024, 1, 2), "flag": True},
    {
        "issue": "IBM",
        "price": 999.99,
        "volume": None,
        "day": datetime.date(2024, 12, 31),
        "flag": False,
    },
]
EXPECTED = {
    "issue": [1, 0],
    "price": [125, 99_999],
    "volume": [8, 0],
    "day": [1, 365],
    "flag": [1, 0],
}


def _columns() -> dict[str, Any]:
    return {name: [row[name] for row in ROWS] for name in SCHEMA}


def _structured() -> Any:
    fields = [("day", "M8[D]"), ("issue", "U3"), ("price", "f8"), ("volume", "f8"), ("flag", "?")]
    values = [
        ("2024-01-02", "SAP", 1.25, 7.0, True),
        ("2024-12-31", "IBM", 999.99, float("nan"), False),
    ]
    return np.array(values, dtype=fields)


def _frame() -> pd.DataFrame:
    return pd.DataFrame(ROWS).assign(id=[1, 2])


def _views() -> pa.Table:
    """As polars exports it: strings as views, categories as dictionaries of them."""
    table = pa.Table.from_pylist(ROWS)
    issue = pa.DictionaryArray.from_arrays(
        pa.array([1, 0], pa.uint32()), pa.array(["IBM", "SAP"], pa.string_view())
    )
    return table.set_column(0, "issue", issue)


@pytest.mark.parametrize(
    "records",
    [
        ROWS,
        Exported(pa.Table.from_pylist(ROWS)),
        Exported(_views()),
        pa.Table.from_pylist(ROWS).to_reader(),
        {name: Exported(pa.chunked_array([column])) for name, column in _columns().items()},
        tuple({**row, "id": 1} for row in ROWS),
        _columns(),
        {name: np.array(column, dtype=object) for name, column in _columns().items()},
        _structured(),
        _frame(),
        _frame().astype({"issue": "category", "volume": "Int64", "flag": "boolean"}),
        _frame().astype({"issue": object, "day": "datetime64[ns]"}),
        _frame().convert_dtypes(dtype_backend="pyarrow"),
        _frame().set_index(pd.Index([7, 7])),
        pa.Table.from_pylist(ROWS),
        pa.concat_tables([pa.Table.from_pylist(ROWS)[:1], pa.Table.from_pylist(ROWS)[1:]]),
        pa.RecordBatch.from_pylist(ROWS),
        pa.table({**_columns(), "issue": pa.array(["SAP", "IBM"]).dictionary_encode()}),
        pa.table({**_columns(), "issue": pa.array(["SAP", "IBM"], pa.large_string())}),
        {name: pa.array(column) for name, column in _columns().items()},
        {**_columns(), "volume": np.ma.MaskedArray([7, 99_999_999], mask=[False, True])},
    ],
    ids=lambda records: type(records).__name__,
)
def test_every_container_encodes_alike(records: Any) -> None:
    events = SCHEMA.encode(records)
    assert events.count == len(events) == 2
    assert {name: unpack(code) for name, code in events.codes.items()} == EXPECTED


@pytest.mark.parametrize(
    "records",
    [
        [],
        {name: [] for name in SCHEMA},
        _frame().iloc[:0],
        pa.Table.from_pylist(ROWS)[:0],
        pa.Table.from_batches([], pa.Table.from_pylist(ROWS).schema),
        _structured()[:0],
    ],
    ids=lambda records: type(records).__name__,
)
def test_empty_batches_are_fine(records: Any) -> None:
    events = SCHEMA.encode(records)
    assert len(events) == 0
    assert all(code.shape == (1, 0) for code in events.codes.values())
    assert SCHEMA.parse("price < 3").evaluate(events).shape == (0,)


def _without(name: str) -> dict[str, Any]:
    return {key: column for key, column in _columns().items() if key != name}


@pytest.mark.parametrize(
    ("records", "message", "attribute"),
    [
        (_without("price"), "missing", "price"),
        (pd.DataFrame(_without("price")), "missing", "price"),
        (pa.table(_without("price")), "missing", "price"),
        (_structured()[["issue", "day"]], "missing", "price"),
        ([ROWS[0], {"issue": "IBM"}], "missing from row 1", "price"),
        ({**_columns(), "price": [1.0]}, "has 1 values", "price"),
        ([ROWS[0], 5], "row 1 is a int", None),
        (5, "records must be", None),
        (ROWS[0], "list of one mapping", "issue"),
        (Exported(pa.chunked_array([[1, 2]])), "not a table", None),
        ({**_without("price"), "Price": [1, 2]}, "the closest is 'Price'", "price"),
        ([{**_without("price"), "prize": 3}], "row 0; the closest is 'prize'", "price"),
        ("price", "records must be", None),
        (pd.DataFrame([[1, 2]], columns=["issue", "issue"]), "appears twice", "issue"),
    ],
)
def test_records_that_do_not_fit_the_schema(
    records: Any, message: str, attribute: str | None
) -> None:
    with pytest.raises(EventError, match=message) as caught:
        SCHEMA.encode(records)
    assert caught.value.attribute == attribute


def test_a_schema_is_an_immutable_picklable_value() -> None:
    assert SCHEMA.names == ("issue", "price", "volume", "day", "flag") == tuple(SCHEMA)
    assert len(SCHEMA) == 5 and "price" in SCHEMA and SCHEMA["price"].bits == 17
    assert SCHEMA.bits == 1 + 17 + 21 + 9 + 1
    twin = Schema({name: SCHEMA[name] for name in SCHEMA})
    assert twin == SCHEMA and hash(twin) == hash(SCHEMA)
    assert pickle.loads(pickle.dumps(SCHEMA)) == SCHEMA
    backwards = Schema({name: SCHEMA[name] for name in reversed(SCHEMA.names)})
    assert backwards != SCHEMA
    assert backwards.describe() != SCHEMA.describe()
    assert json.loads(json.dumps(SCHEMA.describe())) == SCHEMA.describe()
    assert repr(Schema(a=UInt(3, nullable=True))) == "Schema(a=UInt(3, nullable=True))"
    with pytest.raises(AttributeError):
        SCHEMA._attributes = {}
    with pytest.raises(KeyError):
        SCHEMA["nothing"]


def test_events_take_and_hide_values() -> None:
    events = SCHEMA.encode(ROWS)
    assert repr(events) == "<Events: 2 over issue, price, volume, day, flag>"
    assert unpack(events.take([1, 1, 0]).codes["price"]) == [99_999, 99_999, 125]
    assert unpack(events.take(np.array([False, True])).codes["price"]) == [99_999]
    assert len(events.take([])) == 0
    assert SCHEMA.encode(events) is events
    with pytest.raises(EventError, match="another schema"):
        Schema(issue=Category(["x"])).encode(events)


@given(data=st.data(), schema=schemas())
@settings(max_examples=50)
def test_arrow_and_lists_agree(data: st.DataObject, schema: Schema) -> None:
    batch = [record(row) for row in data.draw(rows(schema))]
    lists = schema.encode(batch)
    columns = {name: [row[name] for row in batch] for name in schema}
    arrow = {}
    for name, column in columns.items():
        if isinstance(schema[name], Decimal):
            column = [None if value is None else str(value) for value in column]
        unsigned = isinstance(schema[name], UInt)
        arrow[name] = pa.array(column, type=pa.uint64() if unsigned else None)
    tables = schema.encode(pa.table(arrow))
    # A few rows are encoded value by value, and many as arrays.
    single = [schema.encode([row]) for row in batch]
    for name in schema:
        assert np.array_equal(lists.codes[name], tables.codes[name])
        alone = [code for events in single for code in unpack(events.codes[name])]
        assert alone == unpack(lists.codes[name])


def test_import_loads_no_optional_package() -> None:
    code = (
        "import sys, ccbps.predicates as p; s = p.Schema(a=p.UInt(3)); s.encode([{'a': 1}]);"
        "from ccbps.matching import FormulaMatch; FormulaMatch.box(s);"
        "names = 'pyspark', 'pandas', 'pyarrow', 'sqlglot', 'sqlite3', 'tempfile', 'difflib';"
        "print([m for m in names if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_hour_that_clocks_repeat_is_two_times_in_one_batch() -> None:
    first = datetime.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    schema = Schema(t=Timestamp("s", "2026-01-01", "2027-01-01"))
    times = [first, first.replace(fold=1), first]
    one_by_one = [int(schema.encode([{"t": t}]).codes["t"][0, 0]) for t in times]
    assert schema.encode({"t": times}).codes["t"][0].tolist() == one_by_one
    assert one_by_one[1] - one_by_one[0] == 3600
