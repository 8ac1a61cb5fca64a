"""A column of a batch with few distinct values: each value once, and an index per row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ccbps.checks import Printable, Redacted, array
from ccbps.errors import ParameterError, ShapeError

T_co = TypeVar("T_co", covariant=True)


class DictionaryColumn(Printable, Redacted, Generic[T_co], frozen=True):
    """A column in which row i has the value ``values[index[i]]``, in Arrow's terms and layout.

    Attributes:
        values: the distinct values.
        index: integers 0 .. len(values) - 1, shape (rows,).
    """

    values: Sequence[T_co]
    index: NDArray[np.intp]

    def __post_init__(self) -> None:
        array("index", self.index, np.intp, ("rows",))
        # A negative one is as good as a large one.
        if len(self.index) and self.index.view(np.uintp).max() >= len(self.values):
            raise ShapeError(f"index must lie within the {len(self.values)} values")

    def __len__(self) -> int:
        return len(self.index)

    def used(self) -> DictionaryColumn[T_co]:
        """Return the same column without values that no row has."""
        counts = np.bincount(self.index, minlength=len(self.values))
        if counts.all():
            return self
        place = np.cumsum(counts > 0) - 1
        values = [value for value, count in zip(self.values, counts, strict=True) if count]
        return DictionaryColumn(values, place[self.index].astype(np.intp))

    def __repr__(self) -> str:
        return f"<DictionaryColumn of {len(self.values)} values, {len(self.index)} rows>"


def dictionary_of_strings(texts: Sequence[str]) -> DictionaryColumn[str]:
    """Make a column of strings, one per row, with each distinct string once.

    Raises:
        ParameterError: an object is not a string.
    """
    for text in texts:
        if not isinstance(text, str):
            raise ParameterError(f"each row must be a str, got {type(text).__name__}")
    places: dict[str, int] = {}
    index = np.array([places.setdefault(text, len(places)) for text in texts], dtype=np.intp)
    return DictionaryColumn(list(places), index)


def pair_column(
    pairs: DictionaryColumn[str] | Sequence[str] | None, count: int
) -> DictionaryColumn[str] | None:
    """Make a column of pair labels, one for each of `count` rows. None stays None.

    Raises:
        ParameterError: the labels are not strings, or not as many as the rows.
    """
    if pairs is None:
        return None
    if isinstance(pairs, str) or not isinstance(pairs, (DictionaryColumn, Iterable)):
        raise ParameterError(
            f"pairs must be a sequence of pair labels, one per row, got {type(pairs).__name__}"
        )
    if hasattr(pairs, "to_pylist"):  # Arrow
        pairs = pairs.to_pylist()
    column = pairs if isinstance(pairs, DictionaryColumn) else dictionary_of_strings(list(pairs))
    if len(column) != count:
        raise ParameterError(f"pairs must be {count} labels, one per row, got {len(column)}")
    return column
