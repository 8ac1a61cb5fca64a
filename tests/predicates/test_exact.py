"""Exact numbers: integers and decimals of any container are on the grid or refused, not rounded.

The oracle is two lines of fractions. Also what is numeric and must end: numbers of huge exponents.
"""

from __future__ import annotations

import decimal
import math
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.errors import EventError, PredicateTypeError
from ccbps.predicates import AttributeType, Category, Decimal, Int, Schema, UInt
from ccbps.predicates.codes import unpack
from ccbps.predicates.syntax import compares_like_float
from tests.support.effort import examples

D = decimal.Decimal
COARSE = Decimal(0, 10**9, 10**6)
MONEY = Decimal(0, "655.35", "0.01")
KINDS = [
    UInt(8),
    UInt(64),
    Int(8),
    Int(64),
    COARSE,
    MONEY,
    Decimal("-1.50", "2.25", "0.25"),
    Decimal("0.1", "0.7", "0.3"),
    Decimal("0.15", "0.75", "0.15"),
    Decimal(-(2**40), 2**40, 1),
    Decimal("-7e30", "7e30", "1e30"),
    Decimal(0, "12345678901.234567", "0.012345678901234567"),
]


def described(kind: AttributeType) -> tuple[Fraction, Fraction]:
    """Least value and step."""
    if isinstance(kind, (UInt, Int)):
        return Fraction(kind.least), Fraction(1)
    assert isinstance(kind, Decimal)
    return Fraction(kind.low), Fraction(kind.step)


def number(kind: AttributeType, value: Fraction) -> int | None:
    low, step = described(kind)
    position = (value - low) / step
    whole = position.denominator == 1 and 0 <= position < kind.cardinality
    return int(position) if whole else None


@given(
    st.sampled_from(
        [MONEY, Int(64), UInt(64), Decimal("0.1", "0.7", "0.3"), Decimal(0, 9, "1e-9")]
    ),
    st.integers(0, 2**64 - 1),
    st.fractions(-2, 2).map(lambda part: part.limit_denominator(10**4)),
    st.sampled_from([Fraction(1), Fraction(1, 10**12), Fraction(0)]),
)
@settings(max_examples=examples(400))
def test_a_float_is_taken_where_it_compares_like_the_number(
    kind: AttributeType, place: int, part: Fraction, scale: Fraction
) -> None:
    low, step = described(kind)
    near = low + step * (place % kind.cardinality)
    constant = near + step * part * scale
    digits = decimal.Context(prec=40).divide(D(constant.numerator), D(constant.denominator))
    exact = Fraction(digits)
    last = low + step * (kind.cardinality - 1)
    # Floats keep the order, so that no value further away can compare otherwise.
    values = [v for v in (near + step * k for k in range(-3, 4)) if low <= v <= last]
    sign = [(value > exact) - (value < exact) for value in values]
    as_float = [(float(v) > float(exact)) - (float(v) < float(exact)) for v in values]
    assert compares_like_float(kind, digits, single=False) == (sign == as_float)


@pytest.mark.parametrize(
    ("number", "taken"),
    [("0.5F", True), ("0.1F", False), ("0.105F", True), ("1e39F", False), ("16777217F", True),
     ("0.1D", True), ("0.10000000000000001D", False), ("1e400D", False), ("-1e300D", True)],
)  # fmt: skip
def test_suffixes_of_floats_are_taken_where_they_change_nothing(number: str, taken: bool) -> None:
    schema = Schema(price=MONEY)
    if taken:
        assert (
            schema.parse(f"price < {number}").box() == schema.parse(f"price < {number[:-1]}").box()
        )
    else:
        with pytest.raises(PredicateTypeError, match="binary float"):
            schema.parse(f"price < {number}")


def spelled(units: int, scale: int) -> D:
    """``units * 10**-scale``, with all its decimals."""
    return D((int(units < 0), tuple(map(int, str(abs(units)))), -scale))


def integers(values: list[D]) -> list[int] | None:
    return [int(value) for value in values] if all(v == int(v) for v in values) else None


def arrow(make: Any, precision: int, then: Any = lambda array: array) -> Any:
    """Arrow's own layout, as its conversion from Python refuses some negative scales."""

    def column(values: list[D], scale: int) -> Any:
        units = [int(value.scaleb(scale, decimal.Context(prec=80))) for value in values]
        if max(map(abs, units)) >= 10**precision:
            return None
        width = make(precision, scale).bit_width // 8
        rows = [10**precision - 1, *units, -1]
        data = b"".join(row.to_bytes(width, "little", signed=True) for row in rows)
        buffers = [None, pa.py_buffer(data)]
        array = pa.Array.from_buffers(make(precision, scale), len(rows), buffers)
        return then(array.slice(1, len(units)))

    return column


def typed(make: Callable[[list[int]], Any]) -> Callable[[list[D], int], Any]:
    """Integers of 64 bits, where the values are."""

    def column(values: list[D], scale: int) -> Any:
        whole = integers(values)
        return make(whole) if whole and all(abs(value) < 2**63 for value in whole) else None

    return column


CONTAINERS: dict[str, Callable[[list[D], int], Any]] = {
    "list of Decimals": lambda values, scale: values,
    "pandas objects": lambda values, scale: pd.Series(values, dtype=object),
    "list of ints": lambda values, scale: integers(values),
    "list of NumPy ints": typed(lambda values: list(np.array(values, dtype=np.int64))),
    "int64": typed(lambda values: np.array(values, dtype=np.int64)),
    "pandas Int64": typed(lambda values: pd.array(values, dtype="Int64")),
    "pandas categories": typed(lambda values: pd.Series(values).astype("category")),
    "Arrow int64": typed(lambda values: pa.array(values, type=pa.int64())),
    "decimal128": arrow(pa.decimal128, 38),
    "decimal256": arrow(pa.decimal256, 76),
    "pandas decimals": arrow(
        pa.decimal128, 38, lambda a: pd.Series(pd.arrays.ArrowExtensionArray(a))
    ),
    "dictionary": arrow(pa.decimal256, 76, lambda array: array.dictionary_encode()),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[AttributeType, list[int], int]:
    """A type, and numbers on its grid, near it and far away, as units of 10**-scale."""
    kind = draw(st.sampled_from(KINDS))
    scale = draw(st.sampled_from([-31, -6, -1, 0, 1, 2, 6, 17, 18, 20]))
    low, step = described(kind)
    unit = Fraction(10) ** -scale
    last = kind.cardinality - 1
    places = st.integers(0, last) | st.sampled_from([0, last, last // 10 * 10, -1, last + 1])
    near = st.builds(
        lambda place, by: math.floor((low + place * step) / unit) + by,
        places,
        st.sampled_from([0, 0, 0, 0, 1, -1]),
    )
    far = st.sampled_from([0, -1, 2**63, 2**64 - 1, 2**64, -(2**63), 10**37, 10**60])
    units = draw(st.lists(near | near | near | far, min_size=1, max_size=4))
    if draw(st.booleans()):  # or else hardly any column is accepted
        units = [count for count in units if number(kind, count * unit) is not None] or units
    return kind, units, scale


@pytest.mark.parametrize("container", CONTAINERS)
@given(drawn=columns())
def test_exact_numbers_are_on_the_grid_or_refused(
    container: str, drawn: tuple[AttributeType, list[int], int]
) -> None:
    kind, units, scale = drawn
    values = [spelled(unit, scale) for unit in units]
    column = CONTAINERS[container](values, scale)
    if column is None:
        return
    expected = [number(kind, Fraction(value)) for value in values]
    if None not in expected:
        assert unpack(kind.encode(column)) == expected
        return
    with pytest.raises(EventError) as caught:
        kind.encode(column)
    assert caught.value.row == expected.index(None)


WIDTHS = [pa.decimal128(38, 18), pa.decimal128(38, 2), pa.decimal256(76, 3)]


@pytest.mark.parametrize(
    ("kind", "values", "reason"),
    [
        (COARSE, [999_999_500], "not a multiple of step"),
        (COARSE, np.array([999_999_500]), "not a multiple of step"),
        (COARSE, np.array([2**64 - 1], dtype=np.uint64), "out of range"),
        (COARSE, pa.array([999_999_500]), "not a multiple of step"),
        (COARSE, pd.array([999_999_500], dtype="Int64"), "not a multiple of step"),
        (COARSE, [D(999_999_500)], "not a multiple of step"),
        (COARSE, ["999999500"], "not a multiple of step"),
        (COARSE, [Fraction(999_999_500)], "wrong type"),
        (MONEY, ["118.199999"], "not a multiple of step"),
        (MONEY, [D("118.199999")], "not a multiple of step"),
        (MONEY, pa.array([D("118.199999")], pa.decimal128(18, 6)), "not a multiple of step"),
        (UInt(8), pa.array([D("5.00000000000000000001")], pa.decimal128(38, 20)), "not a whole"),
        (UInt(8), pa.array([D("5.5")], pa.decimal128(2, 1)), "not a whole number"),
        (UInt(64), pa.array([D(2**64)], pa.decimal128(38, 0)), "out of range"),
        (UInt(64), [1, 2.0**60], "a float beyond"),
    ],
)
def test_a_number_off_the_grid_is_refused_with_its_reason(
    kind: AttributeType, values: Any, reason: str
) -> None:
    with pytest.raises(EventError, match=f"row [01]: {reason}"):
        kind.encode(values)


def test_exact_numbers_mean_what_they_are() -> None:
    schema = Schema(x=COARSE)
    predicate = schema.parse("x = 1000000000")
    assert predicate.evaluate({"x": [10**9, 999_000_000]}).tolist() == [True, False]
    assert predicate.evaluate({"x": pa.array([D(10**9)], pa.decimal128(38, 9))}).tolist() == [True]


@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_decimal_columns_reach_64_bits(dtype: Any) -> None:
    values = [2**53 + 1, None, 0, 2**64 - 1]
    column = pa.array([None if value is None else D(value) for value in values], type=dtype)
    expected = [2**53 + 2, 0, 1, 2**64]
    assert unpack(UInt(64, nullable=True).encode(column)) == expected
    assert unpack(UInt(64, nullable=True).encode(column.slice(1, 2))) == [0, 1]
    least = pa.array([D(-(2**63)), D(2**63 - 1)], type=dtype)
    assert unpack(Int(64).encode(least)) == [0, 2**64 - 1]


def test_decimals_of_both_signs_blame_the_right_row() -> None:
    column = pa.array([D(2**64 - 1), D(-1)], type=pa.decimal128(20, 0))
    with pytest.raises(EventError, match="row 1: out of range") as caught:
        UInt(64).encode(column)
    assert caught.value.row == 1


@pytest.mark.parametrize("name", ["decimal32", "decimal64", "decimal128", "decimal256"])
def test_arrow_decimals_of_every_width(name: str) -> None:
    if not hasattr(pa, name):
        pytest.skip(f"this pyarrow has no {name}")
    kind = Decimal(-10, 10, "0.01", nullable=True)
    column = pa.array([D("9.99"), D("-0.50"), None, D("3.00")], type=getattr(pa, name)(5, 2))
    assert unpack(kind.encode(column)) == [2000, 951, 0, 1301]
    assert unpack(kind.encode(column.slice(1, 2))) == [951, 0]
    assert unpack(kind.encode(column.slice(2, 1))) == [0]
    assert unpack(kind.encode(pa.chunked_array([column.slice(3), column.slice(0, 1)]))) == [
        1301,
        2000,
    ]
    assert kind.encode(column.slice(0, 0)).shape == (1, 0)


def test_what_stands_under_an_arrow_null_means_nothing() -> None:
    kind = Decimal(0, 1000, "0.01", nullable=True)
    words = np.array([[125 * 10**16, 0], [7, 2**62], [20 * 10**18 % 2**64, 1]], dtype=np.uint64)
    buffers = [pa.py_buffer(b"\x05"), pa.py_buffer(words.tobytes())]
    column = pa.Array.from_buffers(pa.decimal128(38, 18), 3, buffers)
    assert column.to_pylist()[:2] == [D("1.25"), None]
    assert unpack(kind.encode(column)) == [126, 0, 2001]


def test_many_decimals_that_are_not_zero_are_kept() -> None:
    # Beyond 64 bits whatever the scale, so these are neither words nor rescaled.
    kind = Decimal(0, "12345678901.234567", "0.012345678901234567")
    step = Fraction(kind.step)
    places = [10**12 - 1, 0, 3, 10**12 - 1]
    values = [spelled(int(place * step * 10**18), 18) for place in places]
    assert unpack(kind.encode(pa.array(values, type=pa.decimal128(38, 18)))) == places
    values[2] += D("1e-18")
    with pytest.raises(EventError, match="row 2: not a multiple of step"):
        kind.encode(pa.array(values, type=pa.decimal128(38, 18)))


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="long double is a double here")
def test_floats_wider_than_64_bits_are_not_narrowed() -> None:
    wide = np.array([2**53], dtype=np.longdouble) + 1
    with pytest.raises(EventError, match="beyond"):
        UInt(64).encode(wide)
    with pytest.raises(EventError, match="not a whole number"):
        UInt(8).encode(np.array([5], dtype=np.longdouble) + np.longdouble(2) ** -60)
    assert unpack(MONEY.encode(np.array([1.25], dtype=np.longdouble))) == [125]


def test_floats_far_away_are_out_of_range() -> None:
    for far in (1e308, -1e308):
        with pytest.raises(EventError, match="row 1: out of range"):
            MONEY.encode([0.5, far])


@pytest.mark.parametrize("precision", [3, 28])
def test_negative_constants_keep_all_their_digits(precision: int) -> None:
    digits = "1.0000000000000000000000000000000000001"
    with decimal.localcontext() as context:
        context.prec = precision
        predicate = Schema(x=Int(8)).parse(f"x > -{digits}")
        assert predicate.evaluate({"x": [-2, -1, 0]}).tolist() == [False, True, True]


# -- huge exponents ---------------------------------------------------------------------------

HUGE: list[tuple[AttributeType, Any, str]] = [
    (kind, form(sign + text), reason)
    for kind, forms in ((Decimal(0, 1, "0.01"), (str, D)), (UInt(8), (D,)), (Int(64), (D,)))
    for form in forms
    for sign in ("", "-")
    for text, reason in (
        ("1e-400000000", "more than 1000 decimals"),
        ("1." + "0" * 2000, "more than 1000 decimals"),
        ("1e99999999", "out of range"),
        ("1e400000000", "out of range"),
    )
]


def test_huge_exponents_end() -> None:
    code = (
        "from tests.predicates.test_exact import HUGE\n"
        "from ccbps.errors import EventError\n"
        "for kind, value, _ in HUGE:\n"
        "    for column in ([value], [0, value]):\n"
        "        try: kind.encode(column)\n"
        "        except EventError: continue\n"
        "        raise AssertionError(kind)\n"
    )
    # Another process, as nothing interrupts arithmetic on integers of gigabytes.
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(("kind", "value", "reason"), HUGE, ids=lambda _: "")
def test_huge_exponents_are_refused_with_the_reason(
    kind: AttributeType, value: Any, reason: str
) -> None:
    with pytest.raises(EventError, match=f"row 0: {reason}"):
        kind.encode([value])


def test_zero_is_zero_whatever_its_exponent() -> None:
    for zero in ("0e99999999", "-0e-99999999"):
        assert unpack(Decimal(0, 1, "0.01").encode([zero, D(zero)])) == [0, 0]
        assert unpack(UInt(8).encode([D(zero)])) == [0]
        assert UInt(8).code_range("<=", D(zero)) == (0, 0)


# -- NumPy's strings with a missing value -----------------------------------------------------


@pytest.mark.parametrize(
    "na",
    [None, np.nan, pd.NA, "gone", object()],
    ids=["None", "NaN", "pandas.NA", "a string", "an object"],
)
def test_the_missing_value_of_numpy_strings_is_null(na: Any) -> None:
    column = np.array(["b", na, "a", na], dtype=np.dtypes.StringDType(na_object=na))
    kind = Category(["a", "b", "gone"], nullable=True)
    assert unpack(kind.encode(column)) == [2, 0, 1, 0]
    assert unpack(kind.encode(column[1:2])) == [0]
    assert unpack(kind.encode(column[::2])) == [2, 1]
    assert kind.encode(column[:0]).shape == (1, 0)
    with pytest.raises(EventError, match="row 1: the value is missing"):
        Category(["a", "b", "gone"]).encode(column)
    with pytest.raises(EventError, match="row 0: not a number"):
        UInt(8, nullable=True).encode(column)
    numbers = np.array(["7", na, "12"], dtype=np.dtypes.StringDType(na_object=na))
    assert unpack(UInt(8, nullable=True).encode(numbers)) == [8, 0, 13]
