"""Arrow columns as NumPy arrays: slices, NULLs, odd widths, every binary type."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.arrow import binary_column, binary_rows, integers, strings, with_nulls

TYPES = [pa.binary(), pa.large_binary()]


@pytest.mark.parametrize("kind", TYPES, ids=str)
@given(
    values=st.lists(st.none() | st.binary(min_size=4, max_size=4) | st.binary(max_size=6)),
    cut=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_binary_rows_give_every_row_of_the_right_width(
    kind: pa.DataType, values: list[bytes | None], cut: tuple[int, int]
) -> None:
    array = pa.array(values, type=kind)[cut[0] : max(cut[0], len(values) - cut[1])]
    rows, good = binary_rows(array, 4)
    for row, ok, value in zip(rows, good, array.to_pylist(), strict=True):
        assert ok == (value is not None and len(value) == 4)
        assert row.tobytes() == (value if ok else b"\0\0\0\0")


def test_binary_rows_are_a_view_where_nothing_is_wrong() -> None:
    array = pa.array([b"abcd", b"efgh", b"ijkl"])[1:]
    rows, good = binary_rows(array, 4)
    assert good.all()
    buffer = np.frombuffer(array.buffers()[2], dtype=np.uint8)
    assert np.shares_memory(rows, buffer)


def test_binary_rows_take_fixed_size_columns() -> None:
    rows, good = binary_rows(pa.array([b"abcd", None], type=pa.binary(4)), 4)
    assert good.tolist() == [True, False]
    assert rows[0].tobytes() == b"abcd"


@given(st.lists(st.none() | st.binary(min_size=3, max_size=3)))
def test_binary_column_inverts_binary_rows(values: list[bytes | None]) -> None:
    rows, good = binary_rows(pa.array(values, type=pa.binary()), 3)
    back = binary_column(rows[good], good)
    back.validate(full=True)
    assert back.to_pylist() == values


def test_strings_and_integers_read_plain_columns() -> None:
    column = strings(pa.array(["b", "a", "b"]))
    assert [column.values[i] for i in column.index] == ["b", "a", "b"]
    assert integers(pa.array([3, 1], pa.int32())).tolist() == [3, 1]
    assert np.array_equal(integers(pa.array([], pa.int64())), [])


@given(st.lists(st.none() | st.binary(max_size=3)))
def test_with_nulls_puts_values_back_in_their_rows(values: list[bytes | None]) -> None:
    there = pa.array([v for v in values if v is not None], pa.binary())
    valid = np.array([v is not None for v in values], dtype=np.bool_)
    back = with_nulls(there, valid)
    assert back.type == pa.binary()
    assert back.to_pylist() == values
