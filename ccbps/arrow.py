"""Arrow columns as NumPy arrays and back, without a copy where the bytes allow it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Index
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import ParameterError, ShapeError


def is_valid(*arrays: pa.Array) -> NDArray[np.bool_]:
    """Mark the rows in which no column is NULL, shape (rows,)."""
    out = np.ones(len(arrays[0]), dtype=np.bool_)
    for array in arrays:
        if array.null_count:
            out &= array.is_valid().to_numpy(zero_copy_only=False)
    return out


def binary_rows(array: pa.Array, width: int) -> tuple[Bytes, NDArray[np.bool_]]:
    """Convert a binary column to rows of `width` bytes.

    Returns:
        The rows, and for each whether it has `width` bytes. If all have, the rows are a view of the
        column's buffer. Otherwise they are a copy, with zeros for the other rows.

    Raises:
        ParameterError: the column is not binary.
    """
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    if array.type not in (pa.binary(), pa.large_binary()):
        raise ParameterError(f"messages must be a binary column, got {array.type}")
    offsets, values = binary_buffers(array)
    good = (np.diff(offsets) == width) & is_valid(array)
    if good.all():
        return values[offsets[0] : offsets[-1]].reshape(len(array), width), good
    rows = np.zeros((len(array), width), dtype=np.uint8)
    if good.any():
        rows[good] = binary_rows(array.filter(pa.array(good)), width)[0]
    return rows, good


def binary_buffers(array: pa.Array) -> tuple[Index, Bytes]:
    """Return the offsets, shape (rows + 1,), and the bytes of a column of strings or binary."""
    if not len(array):
        return np.zeros(1, dtype=np.int32), np.empty(0, dtype=np.uint8)
    _, offsets, data = array.buffers()
    large = array.type in (pa.large_binary(), pa.large_string())
    starts: Index = np.frombuffer(offsets, dtype=np.int64 if large else np.int32)
    values = np.empty(0, np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    return starts[array.offset :][: len(array) + 1], values


def check_room(rows: int, width: int) -> None:
    """Check that the messages of an Arrow batch fit one binary column, before they are computed.

    Raises:
        ShapeError: they do not fit.
    """
    if rows * width > np.iinfo(np.int32).max:
        raise ShapeError(
            f"{rows} messages of {width} bytes are too many for one Arrow batch of 2 GiB; set "
            "spark.sql.execution.arrow.maxRecordsPerBatch to "
            f"{max(1, np.iinfo(np.int32).max // (4 * width))} or less"
        )


def binary_column(rows: Bytes, valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """Convert rows of bytes to a binary column.

    Args:
        rows: bytes of the valid rows, in order, shape (valid rows, width).
        valid: True for the valid rows; the others become NULL. None if all rows are valid.
    """
    width = rows.shape[1]
    lengths = np.full(len(rows) if valid is None else len(valid), width, dtype=np.int64)
    if valid is not None:
        lengths[~valid] = 0
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    check_room(len(rows), width)
    mask = None
    if valid is not None and not valid.all():
        mask = pa.array(valid).buffers()[1]
    return pa.Array.from_buffers(
        pa.binary(),
        len(lengths),
        [mask, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(rows))],
    )


def with_nulls(values: pa.Array, valid: NDArray[np.bool_]) -> pa.Array:
    """Return a column with `values` in the valid rows, in order, and NULL in the others."""
    return values.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def integers(array: pa.Array) -> NDArray[np.int64]:
    """Convert a column of whole numbers without NULL."""
    out: NDArray[np.int64] = pc.cast(array, pa.int64()).to_numpy(zero_copy_only=False)
    return out


def strings(array: pa.Array) -> DictionaryColumn[str]:
    """Convert a column without NULL to strings, each distinct string once."""
    encoded = pc.cast(array, pa.string()).dictionary_encode()
    index = encoded.indices.to_numpy(zero_copy_only=False).astype(np.intp)
    return DictionaryColumn(encoded.dictionary.to_pylist(), index)


def row_name(names: Sequence[str], columns: Sequence[pa.Array], row: int) -> str:
    """Name a row by its public columns, for an error: ``subscription='s1', round=5``."""
    return ", ".join(f"{n}={c[row].as_py()!r}" for n, c in zip(names, columns, strict=True))


def by_round(
    pairs: pa.Array, rounds: pa.Array
) -> tuple[NDArray[np.intp], DictionaryColumn[str], NDArray[np.int64]]:
    """Sort rows by pair and round: successive rounds of a pair take one run of the cipher.

    Args:
        pairs: column of pair labels without NULL.
        rounds: column of round numbers without NULL.

    Returns:
        The order of the rows, and the labels and rounds in that order.
    """
    label, number = strings(pairs), integers(rounds)
    order = np.lexsort((number, label.index))
    return order, DictionaryColumn(label.values, label.index[order]), number[order]


def chosen(rows: NDArray[np.bool_], *columns: pa.Array) -> list[pa.Array]:
    """Select rows of columns. If all rows are selected, return the columns themselves."""
    if rows.all():
        return list(columns)
    mask = pa.array(rows)
    return [column.filter(mask) for column in columns]
