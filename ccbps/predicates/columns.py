"""Columns: one attribute's values from any container, as arrays without a loop over rows.

A `Column` is either a NumPy array of numbers, booleans or datetime64, or a dictionary: the list of
distinct Python values and, for every row, the position of its value in that list. Text is always
a dictionary, so that each distinct string is encoded once. Missing values (None, NaN, NaT, pd.NA,
the NA of NumPy's strings, Arrow nulls) are a separate mask; values under it mean nothing.
Integers may have a scale, so that Arrow decimals are integers, too, and exact.

pandas and pyarrow are recognised by the module of a value's type and are never imported unless
the caller already holds such a value. All other containers with Arrow's C interface (polars,
DuckDB) are read by pyarrow.
"""

from __future__ import annotations

import decimal
import importlib
import itertools
import operator
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ccbps.checks import Redacted
from ccbps.errors import EventError
from ccbps.loading import need
from ccbps.predicates.codes import BoolArray


class Column(Redacted, frozen=True, eq=False):
    """Values of one attribute, one for each row.

    Attributes:
        missing: rows without a value, shape (rows,), bool.
        values: the values themselves, shape (rows,), of dtype kind b, i, u, f (float64 or wider)
            or M; for a dictionary, the row's position in `distinct`.
        distinct: distinct Python values of a dictionary column, else None.
        scale: decimals of a column of kind i or u, whose values are ``values * 10**-scale``.
    """

    missing: BoolArray
    values: npt.NDArray[Any]
    distinct: list[Any] | None = None
    scale: int = 0


def comes_from(value: object, package: str) -> bool:
    """Tell whether the type of `value`, or a type it derives from, belongs to `package`."""
    return any(base.__module__.partition(".")[0] == package for base in type(value).__mro__)


def is_arrow(value: object) -> bool:
    """Tell whether `value` exports itself through Arrow's C interface, as polars and DuckDB do."""
    return hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")


def arrow_table(records: Any) -> Any:
    """Convert a value that `is_arrow` to a pyarrow Table, mostly without a copy.

    Raises:
        EventError: it is not a table, but a single column.
    """
    pa = _pyarrow(records)
    try:
        return pa.table(records)
    except (pa.ArrowException, TypeError, ValueError):
        problem = f"records of type {type(records).__name__} are not a table with named columns"
    raise EventError(problem)


def _pyarrow(value: object) -> Any:
    library = type(value).__module__.partition(".")[0]
    return need(f"a {type(value).__name__} of {library}, read through Arrow,", "arrow")


def length_of(values: Any, attribute: str) -> int:
    """Count the rows of a column given by the caller.

    Raises:
        EventError: it is a single value, not a column.
    """
    if isinstance(values, (str, bytes)):
        raise _not_a_column(attribute)
    try:
        return len(values)
    except TypeError:  # a number, or a zero-dimensional array
        raise _not_a_column(attribute) from None


def column_of(values: Any, attribute: str) -> Column:
    """Normalize a list, NumPy array, pandas or polars Series or Arrow array to a `Column`.

    Raises:
        EventError: not one-dimensional, or of a kind that no attribute type takes.
    """
    if comes_from(values, "pyarrow"):
        return _from_arrow(values, attribute)
    if comes_from(values, "pandas"):
        return _from_pandas(values, attribute)
    if isinstance(values, np.ndarray):
        return _from_numpy(values, attribute)
    if is_arrow(values):
        pa = _pyarrow(values)
        make = pa.chunked_array if hasattr(values, "__arrow_c_stream__") else pa.array
        return _from_arrow(make(values), attribute)
    length_of(values, attribute)
    return _from_objects(list(values))


def _not_a_column(attribute: str) -> EventError:
    return EventError(
        f"attribute {attribute!r}: expected one value per record in a list or one-dimensional "
        "array; write a single record as a list of one mapping",
        attribute=attribute,
    )


def _unsupported(attribute: str, kind: str) -> EventError:
    return EventError(
        f"attribute {attribute!r}: a column of {kind} has no encoding; convert it to numbers, "
        "strings, booleans or timestamps first",
        attribute=attribute,
    )


def _from_numpy(values: npt.NDArray[Any], attribute: str) -> Column:
    if values.ndim != 1:
        raise _not_a_column(attribute)
    missing = np.zeros(values.shape, dtype=np.bool_)
    if isinstance(values, np.ma.MaskedArray):
        missing = np.ma.getmaskarray(values).copy()
        values = values.filled(values.dtype.type(0)) if values.dtype.kind in "biuf" else values.data
    kind = values.dtype.kind
    if kind in "biu":
        return Column(missing, values)
    if kind == "f":
        wide = values.astype(np.result_type(values, np.float64))
        return Column(missing | np.isnan(wide), wide)
    if kind == "M":
        return Column(missing | np.isnat(values), values)
    if kind in "UT":
        if hasattr(values.dtype, "na_object"):
            gone = _equal_to_na(values)
            missing |= gone
            # Sorting would refuse some kinds of NA and mistake others for their neighbours.
            values = np.where(gone, "", values).astype(np.dtypes.StringDType())
        distinct, index = np.unique(values, return_inverse=True)
        return Column(missing, index.reshape(-1).astype(np.intp), distinct.tolist())
    if kind == "O":
        column = _from_objects(values.tolist())
        return Column(column.missing | missing, column.values, column.distinct)
    raise _unsupported(attribute, f"NumPy dtype {values.dtype}")


def _equal_to_na(texts: npt.NDArray[Any]) -> BoolArray:
    """Find the rows of a StringDType array that hold its NA."""
    na = texts.dtype.na_object  # type: ignore[attr-defined]
    if isinstance(na, str):
        return np.asarray(texts == na, dtype=np.bool_)
    # Not by ==, which NaN and pandas.NA do not answer.
    return _identical(texts.tolist(), na)


_DTYPES: Final[dict[type, tuple[type, ...]]] = {
    int: (np.int64, np.uint64),
    bool: (np.bool_,),
    float: (np.float64,),
}


def _from_objects(values: list[Any]) -> Column:
    """Convert Python objects: through NumPy if all are of one plain type, else to a dictionary."""
    kinds = set(map(type, values))
    missing = np.zeros(len(values), dtype=np.bool_)
    if type(None) in kinds:
        missing = _identical(values, None)
        kinds.discard(type(None))
    if kinds == {str}:
        return _dictionary(["" if value is None else value for value in values], missing)
    if len(kinds) > 1 or not kinds <= _DTYPES.keys():
        return _tagged_dictionary(values)
    if missing.any():
        values = [0 if value is None else value for value in values]
    for dtype in _DTYPES[next(iter(kinds), float)]:
        try:
            array: npt.NDArray[Any] = np.array(values, dtype=dtype)
        except OverflowError:
            continue
        return Column(missing | np.isnan(array), array)
    # Integers beyond 64 bits stay Python integers, so that the range check is exact.
    return _dictionary(values, missing)


def _identical(values: list[Any], other: object) -> BoolArray:
    same = map(operator.is_, values, itertools.repeat(other))
    return np.fromiter(same, dtype=np.bool_, count=len(values))


def _dictionary(values: Sequence[Any], missing: BoolArray) -> Column:
    place = {value: number for number, value in enumerate(dict.fromkeys(values))}
    index = np.fromiter(map(place.__getitem__, values), dtype=np.intp, count=len(values))
    return Column(missing, index, list(place))


def _tagged_dictionary(values: list[Any]) -> Column:
    """Convert values of mixed types to a dictionary.

    The type is part of the key, as 1 == True == 1.0. So is the fold, as both times of the hour that
    clocks repeat are equal.
    """
    keys = [(type(value), value, getattr(value, "fold", 0)) for value in values]
    none = np.zeros(len(values), dtype=np.bool_)
    try:
        keyed = _dictionary(keys, none)
    except (TypeError, OverflowError):
        # Something unhashable, such as a datetime64 far away in NumPy 2.5, so certainly not a value
        # of ours: let the type refuse it by row.
        keyed = Column(none, np.arange(len(values), dtype=np.intp), keys)
    assert keyed.distinct is not None
    distinct = [value for _, value, _ in keyed.distinct]
    gone = np.array([_is_missing(value) for value in distinct], dtype=np.bool_)
    missing = gone[keyed.values] if len(values) else keyed.missing
    return Column(missing, keyed.values, distinct)


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NaTType", "NAType"):
        return True
    if isinstance(value, (float, np.floating)):
        return bool(np.isnan(value))
    if isinstance(value, decimal.Decimal):
        return value.is_nan()
    return isinstance(value, np.datetime64) and bool(np.isnat(value))


def _from_pandas(series: Any, attribute: str) -> Column:
    pd: Any = importlib.import_module("pandas")

    if not isinstance(series, (pd.Series, pd.Index, pd.api.extensions.ExtensionArray)):
        raise _not_a_column(attribute)
    series = pd.Series(series)
    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        return _from_numpy(series.to_numpy(), attribute)
    if isinstance(dtype, pd.ArrowDtype):
        arrow: Any = importlib.import_module("pyarrow")
        return _from_arrow(arrow.array(series.array), attribute)
    missing = series.isna().to_numpy(dtype=np.bool_)
    if isinstance(dtype, pd.DatetimeTZDtype):
        return Column(missing, series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy())
    if isinstance(dtype, (pd.StringDtype, pd.CategoricalDtype)):
        codes, distinct = pd.factorize(series)
        return Column(missing, np.where(missing, 0, codes).astype(np.intp), list(distinct))
    if hasattr(dtype, "numpy_dtype"):  # the masked Int64, Float64 and boolean family
        plain = series.array.to_numpy(dtype=dtype.numpy_dtype, na_value=dtype.numpy_dtype.type(0))
        column = _from_numpy(plain, attribute)
        return Column(column.missing | missing, column.values)
    raise _unsupported(attribute, f"pandas dtype {dtype}")


def _from_arrow(array: Any, attribute: str) -> Column:
    pa: Any = importlib.import_module("pyarrow")
    kinds: Any = pa.types

    if not isinstance(array, (pa.Array, pa.ChunkedArray)):
        raise _not_a_column(attribute)
    if kinds.is_dictionary(array.type):
        words = array.type.value_type
        plain = pa.large_string() if kinds.is_string_view(words) else words
        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        # Not by a cast of the whole, which Arrow does not have for dictionaries of string views.
        array = pa.chunked_array([c.dictionary.cast(plain).take(c.indices) for c in chunks], plain)
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    dtype = array.type
    missing = array.is_null().to_numpy(zero_copy_only=False).astype(np.bool_)
    if kinds.is_null(dtype):
        return Column(missing, np.zeros(len(array), dtype=np.float64))
    if kinds.is_boolean(dtype) or kinds.is_integer(dtype):
        nothing = 0 if kinds.is_integer(dtype) else False
        return Column(missing, array.fill_null(nothing).to_numpy(zero_copy_only=False))
    if kinds.is_floating(dtype):
        floats = array.cast(pa.float64()).fill_null(float("nan")).to_numpy(zero_copy_only=False)
        return Column(missing | np.isnan(floats), floats)
    if kinds.is_string(dtype) or kinds.is_large_string(dtype) or kinds.is_string_view(dtype):
        return _arrow_dictionary(array.cast(pa.large_string()), missing)
    if kinds.is_timestamp(dtype) or kinds.is_date(dtype):
        unit = dtype.unit if kinds.is_timestamp(dtype) else "D" if dtype.bit_width == 32 else "ms"
        whole = array.cast(pa.int32() if unit == "D" else pa.int64()).fill_null(0)
        ticks = whole.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        return Column(missing, ticks.view(f"M8[{unit}]"))
    if kinds.is_decimal(dtype):
        if missing.all():
            return Column(missing, np.zeros(len(missing), dtype=np.int64))
        decimals = _integers_of(array)
        if decimals is None:
            return _arrow_dictionary(array, missing)
        return Column(missing, decimals[0], scale=decimals[1])
    raise _unsupported(attribute, f"Arrow type {dtype}")


def _integers_of(array: Any) -> tuple[npt.NDArray[Any], int] | None:
    """Return integers of 64 bits and their scale for an Arrow array of decimals, not all null.

    A number is ``integer * 10**-scale``, exactly. An integer under a null means nothing. Arrow
    keeps integers in two's complement of 32 to 256 bits, on a little-endian machine. Where the
    values fit 64 bits, the lowest words are those values, and nothing is copied. A column with many
    decimals that are all zero (Spark likes DECIMAL(38, 18)) is brought to a smaller scale first.

    Returns:
        (integers, scale); None when the values do not fit 64 bits.
    """
    if array.type.bit_width <= 64:
        return _lowest_words(array, np.dtype(f"i{array.type.bit_width // 8}")), array.type.scale
    compute: Any = importlib.import_module("pyarrow.compute")
    unit = Fraction(10) ** array.type.scale
    ends = compute.min_max(array)
    low, high = (int(Fraction(ends[name].as_py()) * unit) for name in ("min", "max"))
    surplus = 0
    while not -(2**63) <= low <= high < 2**64 or (low < 0 and high >= 2**63):
        low, high, surplus = low // 10, high // 10, surplus + 1
    if surplus:
        arrow: Any = importlib.import_module("pyarrow")
        make = arrow.decimal128 if array.type.bit_width == 128 else arrow.decimal256
        try:
            # Refused when a digit that is not zero would be lost.
            array = array.cast(make(array.type.precision, array.type.scale - surplus))
        except arrow.ArrowInvalid:
            return None
    dtype = np.dtype(np.int64 if high < 2**63 else np.uint64)
    return _lowest_words(array, dtype), array.type.scale


def _lowest_words(array: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    words = array.type.bit_width // (8 * dtype.itemsize)
    stop = array.offset + len(array)
    # A buffer may be longer than what is in use.
    buffer = np.frombuffer(array.buffers()[1], dtype=dtype, count=words * stop)
    return buffer[words * array.offset :: words]


def _arrow_dictionary(array: Any, missing: BoolArray) -> Column:
    encoded = array.dictionary_encode()
    index = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.intp)
    return Column(missing, index, encoded.dictionary.to_pylist())
