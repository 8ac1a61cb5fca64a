"""Attributes, which are public names and types; and events, which are codes of them.

`Attributes` is the part of a `Schema` that knows nothing of predicates. `encode` turns a batch of
records from any common container into an `Events` value: codes of every attribute, many rows at a
time.

Hazard: `Events` are plaintext. They stay with the publisher, and their repr shows no value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NoReturn, Self

import numpy as np
import numpy.typing as npt

from ccbps.checks import Printable, Redacted, instance
from ccbps.errors import EventError, ParameterError
from ccbps.predicates.codes import CodeArray
from ccbps.predicates.columns import arrow_table, comes_from, is_arrow, length_of
from ccbps.predicates.types import AttributeType

_COMPARED: Final = 200
"""Names that a guess looks at, and characters of each; time grows with the square of a length."""


class Attributes(Printable):
    """An ordered, immutable mapping of attribute names to attribute types; see `Schema`.

    Attributes:
        bits: bits of all codes of one event together.
    """

    __slots__ = ("_attributes", "_widths", "bits")
    _attributes: dict[str, AttributeType]
    _widths: dict[str, int]
    bits: int

    def __init__(
        self, mapping: Mapping[str, AttributeType] | None = None, /, **attributes: AttributeType
    ) -> None:
        hint = "for example Schema(price=UInt(16), active=Bool())"
        instance("a schema's attributes", {} if mapping is None else mapping, Mapping, hint=hint)
        merged: dict[str, Any] = {**(mapping or {}), **attributes}
        if len(merged) < len(mapping or {}) + len(attributes):
            raise ParameterError("a schema names every attribute once")
        if not merged:
            raise ParameterError("a schema needs at least one attribute")
        for name, kind in merged.items():
            if not isinstance(name, str) or not name.isidentifier():
                raise ParameterError(f"attribute name {name!r} is not an identifier")
            instance(f"attribute {name!r}", kind, AttributeType, hint="write for example UInt(16)")
        object.__setattr__(self, "_attributes", merged)
        object.__setattr__(self, "_widths", {name: kind.bits for name, kind in merged.items()})
        object.__setattr__(self, "bits", sum(self._widths.values()))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} is immutable: make another one")

    def __delattr__(self, name: str) -> NoReturn:
        self.__setattr__(name, None)

    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, AttributeType]]]:
        return type(self), (self._attributes,)

    @property
    def names(self) -> tuple[str, ...]:
        """Attribute names in order."""
        return tuple(self._attributes)

    @property
    def widths(self) -> dict[str, int]:
        """Bits of the code of each attribute."""
        return self._widths.copy()

    @property
    def first_bits(self) -> dict[str, int]:
        """Number of each attribute's first, most significant, bit among all bits of an event."""
        widths = self.widths
        return dict(zip(widths, accumulate(widths.values(), initial=0), strict=False))

    def __getitem__(self, name: str) -> AttributeType:
        return self._attributes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._attributes

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Attributes):
            return NotImplemented
        if self._attributes is other._attributes:
            return True
        # Order counts: it is the order of the attributes' bits in every message.
        return list(self._attributes.items()) == list(other._attributes.items())

    def __hash__(self) -> int:
        return hash(tuple(self._attributes.items()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={kind!r}" for name, kind in self._attributes.items())
        return f"{type(self).__name__}({shown})"

    def describe(self) -> dict[str, Any]:
        """Return names and types as JSON values, in a list because order counts."""
        described = [{"name": name, **kind.describe()} for name, kind in self._attributes.items()]
        return {"attributes": described}

    def encode(self, records: Any) -> Events:
        """Encode a batch of records.

        Example:
            >>> from ccbps import Schema, UInt
            >>> schema = Schema(price=UInt(16), volume=UInt(16, nullable=True))
            >>> schema.encode([{"price": 120, "volume": 2500}, {"price": 121, "volume": None}])
            <Events: 2 over price, volume>
            >>> schema.encode({"price": [120, 121], "volume": [2500, None], "age": [1, 2]})
            <Events: 2 over price, volume>

        Args:
            records: mapping of names to columns, list of mappings, pandas or polars DataFrame,
                pyarrow Table or RecordBatch, structured NumPy array, or any other object that
                exports itself to Arrow (``__arrow_c_stream__``). Columns that the schema does not
                name are ignored.

        Raises:
            EventError: an attribute is missing, columns differ in length, or a value does not fit
                its type; names the attribute and the first such row, never the value.
        """
        if isinstance(records, Events):
            if records.schema != self:
                raise EventError("these events were encoded with another schema")
            return records
        columns = self._columns(records)
        lengths = {name: length_of(column, name) for name, column in columns.items()}
        count = next(iter(lengths.values()))
        for name, length in lengths.items():
            if length != count:
                raise EventError(
                    f"attribute {name!r} has {length} values, {self.names[0]!r} has {count}; "
                    "every record needs one value of each",
                    attribute=name,
                )
        codes = {
            name: kind.encode(columns[name], attribute=name)
            for name, kind in self._attributes.items()
        }
        return Events(self, count, codes)

    def _columns(self, records: Any) -> dict[str, Any]:
        table = None if type(records) is list else named_columns(records)
        if table is not None:
            names, column = table
            for name in self:
                if names.count(name) != 1:
                    problem = "appears twice in the records"
                    if name not in names:
                        problem = f"is missing from the records{closest(name, names)}"
                    raise EventError(f"attribute {name!r} {problem}", attribute=name)
            return {name: column(name) for name in self}
        if isinstance(records, str | bytes) or not isinstance(records, Sequence):
            text = isinstance(records, str)
            hint = "; a predicate is encoded by a subscriber" if text else ""
            raise EventError(
                "records must be a mapping of names to columns, a list of mappings, a pandas or "
                "polars DataFrame, a pyarrow Table or a structured NumPy array, got "
                f"{type(records).__name__}{hint}"
            )
        for row, record in enumerate(records):
            if not isinstance(record, Mapping):
                raise EventError(
                    f"row {row} is a {type(record).__name__}, expected a mapping of attribute "
                    "names to values",
                    row=row,
                )
        try:
            return {name: [record[name] for record in records] for name in self}
        except KeyError:
            missing = (
                (row, n) for n in self for row, record in enumerate(records) if n not in record
            )
            row, name = next(missing)
        raise EventError(
            f"attribute {name!r} is missing from row {row}{closest(name, list(records[row]))}; "
            "NULL is written as None",
            attribute=name,
            row=row,
        )


def named_columns(records: Any) -> tuple[list[Any], Callable[[Any], Any]] | None:
    """Return the names of a table's columns, and a function from a name to its column.

    None where the records are not a table of columns.
    """
    if comes_from(records, "pyarrow") and hasattr(records, "column_names"):
        return list(records.column_names), records.column
    if comes_from(records, "pandas"):
        return (list(records.columns), records.__getitem__) if hasattr(records, "columns") else None
    if isinstance(records, np.ndarray) and records.dtype.names is not None:
        return list(records.dtype.names), records.__getitem__
    if isinstance(records, Mapping):
        return list(records), records.__getitem__
    return named_columns(arrow_table(records)) if is_arrow(records) else None


def closest(name: str, present: list[Any]) -> str:
    """Guess the name of the column that was meant, for an error."""
    import difflib  # here, since only errors need it

    names = [other for other in present[:_COMPARED] if isinstance(other, str)]
    by_folded = {other.lower(): other for other in names if len(other) <= _COMPARED}
    close = difflib.get_close_matches(name.lower()[:_COMPARED], by_folded, n=1)
    return f"; the closest is {by_folded[close[0]]!r}" if close else ""


class Events(Printable, Redacted, frozen=True, eq=False):
    """A batch of encoded records.

    Example:
        >>> from ccbps import Schema, UInt
        >>> events = Schema(price=UInt(16)).encode({"price": [120, 121, 122]})
        >>> len(events)
        3
        >>> events.codes["price"]
        array([[120, 121, 122]], dtype=uint64)
        >>> events.take([0, 2])
        <Events: 2 over price>

    Attributes:
        schema: attributes of the records.
        count: number of records.
        codes: for every attribute, uint64 of shape (limbs, count), most significant limb first.
    """

    schema: Attributes
    count: int
    codes: dict[str, CodeArray]

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"<Events: {self.count} over {', '.join(self.schema.names)}>"

    def take(self, indices: npt.ArrayLike) -> Events:
        """Return the records at `indices` (positions or a bool mask), in that order."""
        chosen = np.asarray(indices)
        if chosen.size == 0 and chosen.dtype != np.bool_:
            chosen = chosen.astype(np.intp)
        codes = {name: code[:, chosen] for name, code in self.codes.items()}
        count = int(np.count_nonzero(chosen)) if chosen.dtype == np.bool_ else len(chosen)
        return Events(self.schema, count, codes)
