"""Arrow decimals as 64-bit integers: a number is ``integer * 10**-scale``, exactly.

Arrow keeps the integers in two's complement of 32 to 256 bits. Where the values of a column fit 64
bits, its lowest words are those values, and nothing is copied. A column with many decimals that are
all zero (Spark likes DECIMAL(38, 18)) is brought to a smaller scale first.

Convention: the machine is little-endian, as Arrow's buffers are on it.
"""

from __future__ import annotations

import importlib
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt


def integers_of(array: Any) -> tuple[npt.NDArray[Any], int] | None:
    """Integers and scale of an Arrow array of decimals, not all of them null.

    What stands under a null means nothing. None when the values do not fit 64 bits.
    """
    if array.type.bit_width <= 64:
        return _lowest_words(array, np.dtype(f"i{array.type.bit_width // 8}")), array.type.scale
    arrow: Any = importlib.import_module("pyarrow")
    compute: Any = importlib.import_module("pyarrow.compute")
    unit = Fraction(10) ** array.type.scale
    ends = compute.min_max(array)
    low, high = (int(Fraction(ends[name].as_py()) * unit) for name in ("min", "max"))
    surplus = 0
    while (dtype := _dtype_of(low // 10**surplus, high // 10**surplus)) is None:
        surplus += 1
    if surplus:
        make = arrow.decimal128 if array.type.bit_width == 128 else arrow.decimal256
        try:
            # Refused when a digit that is not zero would be lost.
            array = array.cast(make(array.type.precision, array.type.scale - surplus))
        except arrow.ArrowInvalid:
            return None
    return _lowest_words(array, dtype), array.type.scale


def _dtype_of(low: int, high: int) -> np.dtype[Any] | None:
    """The dtype of 64 bits that holds all of low..high."""
    for dtype in (np.int64, np.uint64):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return np.dtype(dtype)
    return None


def _lowest_words(array: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    words = array.type.bit_width // (8 * dtype.itemsize)
    stop = array.offset + len(array)
    # A buffer may be longer than what is in use.
    buffer = np.frombuffer(array.buffers()[1], dtype=dtype, count=words * stop)
    return buffer[words * array.offset :: words]
