"""Truth values, integers, unsigned and of two's complement, and fixed-point decimals.

Constants are exact: they become fractions, and floor and ceiling give the codes on either side. So
`price < 0.1` never depends on binary floating point. Event values are exact as well, and are never
rounded. Only for binary floats, which are rarely on a decimal grid, a `Decimal` has a small
tolerance.

Convention: NaN is a missing value (NULL); infinity is an error; a bool is not a number.
"""

from __future__ import annotations

import decimal
import re
from abc import abstractmethod
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from ccbps.checks import shown, whole
from ccbps.errors import ParameterError
from ccbps.predicates.grid import Grid
from ccbps.predicates.types import AttributeType, ConstantError, Numbering, Refused, explained

_MAX_DIGITS: Final = 1000
_MAX_TEXT: Final = 4000  # characters of a number
# Python's own numbers have underscores and the digits of all alphabets, too.
_NUMBER: Final = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)
_EXACT_FLOAT: Final = 2**53
_TOLERANCE: Final = 1e-3  # in steps; far above float64's error on 2**40 steps, far below a half
_MAX_STEPS: Final = 2**40


def _exact(constant: Any) -> Fraction | int:
    """Return the exact value of a constant; a float counts as the decimal it prints as."""
    if isinstance(constant, np.generic):
        constant = constant.item()
    if isinstance(constant, bool) or not isinstance(constant, int | float | decimal.Decimal):
        raise ConstantError("a numeric attribute compares with numbers, written without quotes")
    if isinstance(constant, int):
        return int(constant)
    number = decimal.Decimal(str(constant)) if isinstance(constant, float) else constant
    try:
        return _fraction(number)
    except Refused as problem:
        raise ConstantError(f"a numeric attribute does not compare with this: {problem}") from None


@cache
def _unit(scale: int) -> Fraction:
    """Return 10**-scale."""
    return Fraction(10) ** -scale


def _fraction(number: decimal.Decimal) -> Fraction:
    """Return the exact value, clamped where it is far outside every domain, in little time.

    Raises:
        Refused: not finite, or of very many decimals.
    """
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):
        raise Refused("not finite")
    if not number:
        return Fraction(0)
    if number.adjusted() > _MAX_DIGITS:
        # Any other number of this magnitude gives the same answers.
        return Fraction(10**_MAX_DIGITS) * (-1 if number < 0 else 1)
    if exponent < -_MAX_DIGITS:
        raise Refused(f"more than {_MAX_DIGITS} decimals")
    return Fraction(number)


class Bool(AttributeType):
    """A truth value; FALSE sorts before TRUE. Integers 0 and 1 are not accepted for it.

    Example:
        >>> from ccbps import Bool, Schema
        >>> schema = Schema(active=Bool(), checked=Bool(nullable=True))
        >>> records = {"active": [True, True, False], "checked": [True, None, True]}
        >>> schema.parse("active AND checked").evaluate(records)
        array([ True, False, False])
    """

    @explained("nullable=True")
    def __init__(self, *, nullable: bool = False) -> None:
        self._set(nullable=bool(nullable), cardinality=2, accepts="a boolean (True or False)")

    def parameters(self) -> dict[str, Any]:
        return {}

    def bisect(self, constant: Any) -> tuple[int, int]:
        if not isinstance(constant, bool | np.bool_):
            raise ConstantError("a Bool compares with TRUE and FALSE")
        return int(constant), int(constant) + 1

    def number_of(self, value: Any) -> int:
        if not isinstance(value, bool | np.bool_):
            raise Refused(f"wrong type ({type(value).__name__})")
        return int(value)

    def numbers_of(self, values: npt.NDArray[Any], scale: int) -> Numbering | None:
        return (values.astype(np.uint64), []) if values.dtype.kind == "b" else None


class _Number(AttributeType):
    """A type of numbers on a grid. Exact values go by the grid, and floats by arrays of them."""

    @property
    @abstractmethod
    def _grid(self) -> Grid:
        """Values as exact numbers."""

    @abstractmethod
    def _numbers_of_floats(self, values: npt.NDArray[Any]) -> Numbering:
        """Return what `numbers_of` does for values of kind f."""

    def bisect(self, constant: Any) -> tuple[int, int]:
        return self._grid.bisect(_exact(constant))

    def numbers_of(self, values: npt.NDArray[Any], scale: int) -> Numbering | None:
        if values.dtype.kind in "iu":
            return self._grid.numbers_of(values, _unit(scale))
        return self._numbers_of_floats(values) if values.dtype.kind == "f" else None

    def number_of(self, value: Any) -> int:
        if type(value) is int:  # the common case
            return self._grid.number_of(value)
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, float):
            numbers, problems = self._numbers_of_floats(np.array([value]))
            for mask, reason in problems:
                if mask[0]:
                    raise Refused(reason)
            return int(numbers[0])
        if isinstance(value, bool) or not isinstance(value, int | str | decimal.Decimal):
            raise Refused(f"wrong type ({type(value).__name__})")
        if isinstance(value, int):
            return self._grid.number_of(value)
        if isinstance(value, str):
            if len(value) > _MAX_TEXT:
                raise Refused(f"text of more than {_MAX_TEXT:,} characters")
            if not _NUMBER.fullmatch(value):
                raise Refused("not a number")
        try:
            number = decimal.Decimal(value) if isinstance(value, str) else value
            return self._grid.number_of(_fraction(number))
        except decimal.InvalidOperation:
            raise Refused("not a number") from None


class _WholeNumber(_Number):
    """Integers from `least` up, `2**width` of them.

    Attributes:
        width: bits of a value. (`bits` is the width of a code, one more for NULL if need be.)
    """

    width: int

    @explained("16")
    def __init__(self, bits: int, *, nullable: bool = False) -> None:
        width = whole(f"{type(self).__name__} bits", bits, 1, 64)
        self._set(width=width, nullable=bool(nullable), cardinality=2**width)
        self._set(accepts=f"a whole number {self.least}..{self.least + self.cardinality - 1}")

    @property
    def least(self) -> int:
        """Least value."""
        return 0

    def parameters(self) -> dict[str, Any]:
        return {"bits": self.width}

    @cached_property
    def _grid(self) -> Grid:
        return Grid(Fraction(self.least), Fraction(1), self.cardinality, "not a whole number")

    def _numbers_of_floats(self, values: npt.NDArray[Any]) -> Numbering:
        infinite = ~np.isfinite(values)
        values = np.where(infinite, 0.0, values)
        inexact = np.abs(values) > _EXACT_FLOAT
        values = np.where(inexact, 0.0, values)
        integers = np.rint(values)
        numbers, problems = self._grid.numbers_of(integers.astype(np.int64), Fraction(1))
        return numbers, [
            (infinite, "not finite"),
            (values != integers, "not a whole number"),
            (inexact, "a float beyond 2**53 is not exact, pass integers"),
            *problems,
        ]


class UInt(_WholeNumber):
    """Unsigned integers 0..2**bits - 1, bits 1..64.

    Example:
        >>> from ccbps import UInt
        >>> UInt(16)
        UInt(16)
        >>> UInt(16).encode([0, 65535])
        array([[    0, 65535]], dtype=uint64)
        >>> UInt(16).encode(["12", "7"])                  # text, as a CSV file has it
        array([[12,  7]], dtype=uint64)
        >>> UInt(16).encode([65536])
        Traceback (most recent call last):
            ...
        ccbps.errors.EventError: attribute 'value', row 0: out of range; expected ...
    """

    _special_operators: ClassVar[tuple[str, ...]] = ("hamming",)


class Int(_WholeNumber):
    """Two's complement integers -2**(bits-1)..2**(bits-1) - 1, bits 1..64.

    Example:
        >>> from ccbps import Int
        >>> Int(8).encode([-128, 0, 127])
        array([[  0, 128, 255]], dtype=uint64)
    """

    @property
    def least(self) -> int:
        return -int(2 ** (self.width - 1))


def _parameter(name: str, value: Any) -> decimal.Decimal:
    try:
        if isinstance(value, bool) or (isinstance(value, str) and not _NUMBER.fullmatch(value)):
            raise TypeError
        number = decimal.Decimal(value if isinstance(value, int) else str(value))
    except (decimal.InvalidOperation, TypeError):
        raise ParameterError(f"Decimal {name} must be a number, got {shown(value)}") from None
    if not number.is_finite() or abs(number.adjusted()) > 100:
        raise ParameterError(f"Decimal {name} must be finite and below 10**100, got {shown(value)}")
    return number


def _shortest(number: decimal.Decimal) -> str:
    """Write a number without trailing zeros: equal numbers alike, and none rounded."""
    digits = format(number.copy_abs(), "f") if number else "0"
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return f"-{digits}" if number < 0 else digits


class Decimal(_Number):
    """Decimal numbers low, low + step, ..., high.

    Example:
        >>> from ccbps import Decimal, Schema
        >>> price = Decimal(0, 1000, "0.01")
        >>> price.bits
        17
        >>> Schema(price=price).parse("price < 119.505").evaluate({"price": [119.5, "119.51"]})
        array([ True, False])

    Attributes:
        low: least value.
        high: greatest value, a whole number of steps above `low`.
        step: distance of neighbours, > 0. At most 2**40 steps fit into the larger magnitude of
            low and high, so that a float64 tells neighbours apart with room to spare.
    """

    low: decimal.Decimal
    high: decimal.Decimal
    step: decimal.Decimal

    @explained('0, 1000, "0.01"')
    def __init__(self, low: Any, high: Any, step: Any, *, nullable: bool = False) -> None:
        given = {"low": low, "high": high, "step": step}
        self._set(**{name: _parameter(name, value) for name, value in given.items()})
        accepts = f"a number {self.low}..{self.high} in steps of {self.step}"
        self._set(nullable=bool(nullable), accepts=accepts)
        if self.step <= 0:
            raise ParameterError(f"Decimal step must be > 0, got {step!r}")
        if self.high < self.low:
            raise ParameterError(f"Decimal high {high!r} is below low {low!r}")
        low_steps, high_steps = (
            Fraction(end) / Fraction(self.step) for end in (self.low, self.high)
        )
        if (high_steps - low_steps).denominator != 1:
            raise ParameterError(
                f"Decimal high {high!r} is not a whole number of steps {step!r} above low {low!r}"
            )
        if max(abs(low_steps), abs(high_steps)) > _MAX_STEPS:
            raise ParameterError("Decimal may have at most 2**40 steps between 0 and low or high")
        self._set(cardinality=int(high_steps - low_steps) + 1)

    def parameters(self) -> dict[str, Any]:
        return {name: _shortest(getattr(self, name)) for name in ("low", "high", "step")}

    @cached_property
    def _grid(self) -> Grid:
        low, step = Fraction(self.low), Fraction(self.step)
        return Grid(low, step, self.cardinality, "not a multiple of step")

    def _numbers_of_floats(self, values: npt.NDArray[Any]) -> Numbering:
        infinite = ~np.isfinite(values)
        with np.errstate(over="ignore"):  # to infinity, which is as far outside
            position = (np.where(infinite, 0.0, values) - float(self.low)) / float(self.step)
        position = np.clip(position, -1.0, float(self.cardinality))
        nearest = np.rint(position)
        outside = (nearest < 0) | (nearest >= self.cardinality)
        between = np.abs(position - nearest) > _TOLERANCE
        numbers = np.where(infinite | outside, 0.0, nearest).astype(np.uint64)
        problems = [
            (infinite, "not finite"),
            (outside & ~infinite, "out of range"),
            (between & ~outside & ~infinite, "not a multiple of step"),
        ]
        return numbers, problems
