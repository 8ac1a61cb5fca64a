"""Attribute types: an order-preserving code of fixed width for every value of an attribute.

`AttributeType` is the base of all types. Values of a type are numbered 0, 1, ... in the order in
which SQL compares them. The code is that number; a nullable type adds one, and code 0 is then NULL.
Every comparison with a constant becomes an inclusive range of codes, clamped exactly where the
constant is outside the domain: `volume < 10**9` on a 16-bit attribute is the full range, never an
error.

A type is a frozen public value: it validates itself, compares, hashes and pickles.
"""

from __future__ import annotations

import datetime
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, ClassVar, Final, NoReturn, ParamSpec, TypeAlias

import numpy as np
import numpy.typing as npt

from ccbps.checks import Printable
from ccbps.errors import EventError, ParameterError
from ccbps.predicates.codes import BoolArray, CodeArray, increment, limbs_for, pack
from ccbps.predicates.columns import Column, column_of

FEW_ROWS: Final = 4
"""Rows up to which a column of plain values is encoded value by value."""
_PLAIN: Final = frozenset({int, str, bool, datetime.datetime, datetime.date})
"""Classes of values that are never missing."""
EMPTY: Final = (1, 0)
"""The canonical empty range where both bounds are free."""

Problems: TypeAlias = list[tuple[BoolArray, str]]
"""(mask, reason) of the rows that do not fit."""
Numbering: TypeAlias = tuple[npt.NDArray[np.uint64], Problems]
"""Numbers of an array of values, and the rows that are not values."""


class ConstantError(TypeError):
    """A constant or operator does not fit the type; the front end adds name and position."""


class Code(int):
    """A value of an attribute by its code, where it cannot be given as itself."""


class PatternError(ConstantError):
    """A constant, pattern or Hamming attribute that is valid SQL but outside the language."""


class Refused(ValueError):
    """A value of an event is not in the domain; `encode` adds attribute, row and what fits."""


P = ParamSpec("P")

_NEEDS: Final = {
    "like": "LIKE needs a Text or Category attribute",
    "hamming": "hamming(attribute, value) needs a UInt attribute",
}


def is_prefix(pattern: Any) -> bool:
    """Tell whether a LIKE pattern ends in its one wildcard; without one it is an equality.

    Raises:
        PatternError: other wildcards, or a backslash (an escape to some engines, not to others).
        ConstantError: not a string.
    """
    if not isinstance(pattern, str):
        raise ConstantError("LIKE needs a string pattern in single quotes")
    stem = pattern.removesuffix("%")
    if "%" in stem or "_" in stem or "\\" in stem:
        raise PatternError(
            "LIKE takes a text with at most one wildcard, a final %, and without _ or backslash"
        )
    return stem != pattern


def explained(example: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Make a decorator of constructors, which refuse wrong arguments with an example of a call."""

    def decorate(constructor: Callable[P, None]) -> Callable[P, None]:
        signature = inspect.signature(constructor)

        @wraps(constructor)
        def checked(*arguments: P.args, **options: P.kwargs) -> None:
            try:
                signature.bind(*arguments, **options)
            except TypeError as error:
                problem = str(error)
            else:
                return constructor(*arguments, **options)
            name = type(arguments[0]).__name__
            raise ParameterError(f"{name}: {problem}; write for example {name}({example})")

        return checked

    return decorate


class AttributeType(Printable, ABC):
    """A numbering of values, in SQL's order.

    Example:
        >>> from ccbps import UInt
        >>> kind = UInt(8, nullable=True)
        >>> kind.bits, kind.lowest, kind.highest              # code 0 is NULL
        (9, 1, 256)
        >>> kind.encode([None, 0, 255])
        array([[  0,   1, 256]], dtype=uint64)
        >>> kind.code_range("<", 10**9)                       # clamped as SQL would answer
        (1, 256)

    Attributes:
        nullable: True if records may leave the attribute out (NULL, code 0).
        cardinality: number of values, NULL not counted.
        accepts: description of a value that fits, for error messages.
    """

    nullable: bool
    cardinality: int
    accepts: str
    _special_operators: ClassVar[tuple[str, ...]] = ()  # those of `_NEEDS` that fit the type

    # -- methods that a type defines --------------------------------------------------------

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments except `nullable`, as JSON values."""

    @abstractmethod
    def bisect(self, constant: Any) -> tuple[int, int]:
        """Count the values (< constant, <= constant).

        Raises:
            ConstantError: the constant is of a kind that this type does not compare with.
        """

    @abstractmethod
    def number_of(self, value: Any) -> int:
        """Return the number of one Python value of an event.

        Raises:
            Refused: not a value of this type.
        """

    def numbers_of(self, values: npt.NDArray[Any], scale: int) -> Numbering | None:
        """Return the numbers of the values of a `Column` that is not a dictionary.

        Called only on types whose numbers fit one limb. Rows of missing values may hold anything.

        Returns:
            numbers and problems; None when the type does not take arrays of this dtype.
        """
        return None

    def prefix_range(self, prefix: str) -> tuple[int, int]:
        """Return the numbers of the first and the last value that start with `prefix`."""
        raise ConstantError(_NEEDS["like"])

    def check_operator(self, operator: str) -> None:
        """Refuse an operator of `code_range` that never fits this type.

        Raises:
            ConstantError: the operator does not fit, whatever the constant.
        """
        if operator in _NEEDS and operator not in self._special_operators:
            raise ConstantError(_NEEDS[operator])
        if operator == "hamming" and self.nullable:
            raise PatternError("hamming(attribute, value) needs an attribute without NULL")

    # -- codes, which follow from them ------------------------------------------------------

    @cached_property
    def size(self) -> int:
        """Number of codes, the NULL code included."""
        return self.cardinality + self.nullable

    @property
    def aligned(self) -> bool:
        """True if texts with a common prefix have codes with a common prefix, and no others do."""
        return False

    @cached_property
    def bits(self) -> int:
        """Width of a code in bits, at least 1."""
        return max(1, (self.size - 1).bit_length())

    @cached_property
    def limbs(self) -> int:
        """Width of a code in 64-bit limbs."""
        return limbs_for(self.bits)

    @cached_property
    def lowest(self) -> int:
        """Code of the least value: 0, or 1 when code 0 is NULL."""
        return int(self.nullable)

    @property
    def highest(self) -> int:
        """Code of the greatest value."""
        return self.size - 1

    def code_range(self, operator: str, constant: Any) -> tuple[int, int]:
        """Return the codes (low, high), both included, that satisfy a comparison.

        `low` is `lowest` for ``<`` and ``<=``; `high` is `highest` for ``>`` and ``>=``; an empty
        range has ``high == low - 1`` and is (1, 0) for ``=`` and ``like``. NULL is never inside.

        Args:
            operator: one of = < <= > >=; or "like", for values that start with a text; or
                "hamming", for the one value from which a Hamming distance is counted.
            constant: value to compare with, or its `Code`. For "like" a text, and one trailing
                ``%`` or none.

        Raises:
            ConstantError: the operator or the constant does not fit this type.
        """
        self.check_operator(operator)
        if operator == "like" and is_prefix(constant):
            first, last = self.prefix_range(constant.removesuffix("%"))
            return (first + self.lowest, last + self.lowest) if first <= last else EMPTY
        if isinstance(constant, Code):
            below, upto = int(constant), constant + 1
        else:
            below, upto = (number + self.lowest for number in self.bisect(constant))
        if operator == "hamming" and below == upto:
            raise ConstantError(f"hamming(attribute, value) needs a value that is {self.accepts}")
        if operator in ("=", "like", "hamming"):
            return (below, upto - 1) if below < upto else EMPTY
        if operator in ("<", "<="):
            return self.lowest, (below if operator == "<" else upto) - 1
        if operator in (">", ">="):
            return (upto if operator == ">" else below), self.highest
        raise ConstantError(f"unknown operator {operator!r}")

    def encode(self, values: Any, *, attribute: str = "value") -> CodeArray:
        """Encode a column of values.

        Args:
            values: list, NumPy array, pandas or polars Series or Arrow array, one value per row.
            attribute: name used in error messages.

        Returns:
            uint64, shape (limbs, rows), most significant limb first.

        Raises:
            EventError: a value is missing in a type that is not nullable, of the wrong kind, or
                outside the domain; names attribute and row, never the value.
        """
        if (
            type(values) is list
            and 0 < len(values) <= FEW_ROWS
            and _PLAIN.issuperset(map(type, values))
        ):
            # For a batch of one, calls of NumPy would take most of the time.
            lowest = self.lowest
            try:
                return pack([self.number_of(value) + lowest for value in values], self.limbs)
            except Refused:
                pass  # the reason is named below
        codes, problems = self.examine(values, attribute=attribute)
        if problems:
            row, reason = min((int(np.argmax(mask)), reason) for mask, reason in problems)
            raise EventError(
                f"attribute {attribute!r}, row {row}: {reason}", attribute=attribute, row=row
            )
        return codes

    def examine(self, values: Any, *, attribute: str = "value") -> tuple[CodeArray, Problems]:
        """Encode a column as `encode` does, and find all rows that do not fit.

        Returns:
            codes, and (mask, reason) of the rows that do not fit.

        Raises:
            EventError: the whole column is of a wrong kind.
        """
        column = column_of(values, attribute)
        problems: Problems = []
        if not self.nullable and column.missing.any():
            reason = (
                "the value is missing (None, NaN or NaT); "
                f"declare it {type(self).__name__}(..., nullable=True) to allow that"
            )
            problems.append((column.missing, reason))
        rows = len(column.missing)
        if column.missing.all():  # also the empty batch, whose dtype says nothing
            return np.zeros((self.limbs, rows), dtype=np.uint64), problems
        if column.distinct is not None:
            codes, refused = self._examine_dictionary(column, column.distinct)
        else:
            outcome = self.numbers_of(column.values, column.scale)
            if outcome is None:
                row = int(np.argmin(column.missing))
                raise EventError(
                    f"attribute {attribute!r}, row {row}: wrong type ({column.values.dtype}); "
                    f"expected {self.accepts}",
                    attribute=attribute,
                    row=row,
                )
            numbers, refused = outcome
            codes = np.zeros((self.limbs, rows), dtype=np.uint64)
            codes[-1] = numbers
            codes = increment(codes) if self.nullable else codes
        codes[:, column.missing] = 0
        present = [(mask & ~column.missing, reason) for mask, reason in refused]
        problems += [
            (mask, f"{reason}; expected {self.accepts}") for mask, reason in present if mask.any()
        ]
        return codes, problems

    def _examine_dictionary(
        self, column: Column, distinct: list[Any]
    ) -> tuple[CodeArray, Problems]:
        used = np.zeros(len(distinct), dtype=np.bool_)
        used[column.values[~column.missing]] = True
        numbers = [0] * len(distinct)
        places: dict[str, list[int]] = {}
        for place in np.flatnonzero(used).tolist():
            try:
                numbers[place] = self.number_of(distinct[place]) + self.lowest
            except Refused as problem:
                places.setdefault(str(problem), []).append(place)
        problems = [
            (np.isin(column.values, positions), reason) for reason, positions in places.items()
        ]
        return np.ascontiguousarray(pack(numbers, self.limbs)[:, column.values]), problems

    def _set(self, **fields: Any) -> None:
        # Constructors set the fields by this.
        vars(self).update(fields)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: make another one")

    def __delattr__(self, name: str) -> NoReturn:
        self.__setattr__(name, None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AttributeType):
            return NotImplemented
        return type(self) is type(other) and self.describe() == other.describe()

    def __hash__(self) -> int:
        return hash((type(self), self.cardinality, self.nullable))

    def describe(self) -> dict[str, Any]:
        """Return type name and parameters as JSON values, in a fixed order, for a fingerprint."""
        return {"type": type(self).__name__, **self.parameters(), "nullable": self.nullable}

    def __repr__(self) -> str:
        # JSON numbers and strings read like Python's; a list of strings does too.
        parts = [json.dumps(value, ensure_ascii=False) for value in self.parameters().values()]
        if self.nullable:
            parts.append("nullable=True")
        return f"{type(self).__name__}({', '.join(parts)})"
