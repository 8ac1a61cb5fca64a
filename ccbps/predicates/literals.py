"""Literals: the exact values of the texts of constants in SQL.

Where Spark's SQL and standard SQL would read a literal in two ways, it is refused: the same text
must not select other rows here than in `DataFrame.filter`.

A `Reading` takes a number's digits, or what is between the quotes of a string, to a value. Which
reading a constant needs is a matter of what stands around it, so that two predicates that differ
in nothing but literals have the same readings.
"""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np

from ccbps.predicates.numeric import Decimal, Int, UInt
from ccbps.predicates.temporal import Instant
from ccbps.predicates.types import AttributeType, ConstantError, PatternError

Reading: TypeAlias = Callable[[str], Any]
"""From the text of a literal to its value; raises ConstantError."""


# Spark keeps the backslash of these two, for LIKE.
_ESCAPE: Final = re.compile(r"\\(?![%_])")
_SUFFIXED: Final = re.compile(r"(.*?)(BD|[A-Z])", re.IGNORECASE)
_WIDTHS: Final = {"Y": 8, "S": 16, "L": 64}


def words(text: str) -> str:
    """Read a string."""
    if _ESCAPE.search(text):
        raise PatternError(
            "a backslash in a string is an escape in Spark's SQL, and itself in standard SQL, so "
            "none is taken here; pass such a string as the value of a private constant, :name"
        )
    return text


def number(digits: str) -> int | decimal.Decimal:
    """Read a number without a sign."""
    try:
        # int() refuses very long texts; a Decimal of them is exact as well.
        if digits.isdigit() and len(digits) <= 1000:
            return int(digits)
        return decimal.Decimal(digits)
    except (ValueError, decimal.InvalidOperation):
        raise ConstantError("not a number that can be read") from None


def minus(digits: str) -> int | decimal.Decimal:
    """Read a number that has a minus before it."""
    value = number(digits)
    # Minus rounds a Decimal to the context's precision.
    return -value if isinstance(value, int) else value.copy_negate()


def suffixed(text: str, kind: AttributeType, *, negative: bool) -> int | decimal.Decimal:
    """Read a number with one of Spark's suffixes, which give it a type, for a type of attribute."""
    match = _SUFFIXED.fullmatch(text)
    assert match is not None
    value, suffix = (minus if negative else number)(match[1]), match[2].upper()
    if suffix in _WIDTHS:
        bound = 1 << _WIDTHS[suffix] - 1
        if not isinstance(value, int) or not -bound <= value < bound:
            raise ConstantError(
                "with the suffix Y, S or L a number is whole and has 8, 16 or 64 bits; write it "
                "without the suffix"
            )
    elif suffix != "BD" and not compares_like_float(kind, value, single=suffix == "F"):
        raise ConstantError(
            "with the suffix D or F a number is a binary float, which compares with this "
            "attribute's values in another way than the decimal number; write it without the suffix"
        )
    return value


def compares_like_float(
    kind: AttributeType, constant: int | decimal.Decimal, *, single: bool
) -> bool:
    """Tell whether values of a type compare with a number as they do with the nearest float.

    Spark compares decimals with floats as float64, and integers with a float32 as either. True also
    for types that have no numbers.

    Args:
        kind: the type.
        constant: the number.
        single: whether the float is a float32.

    Raises:
        ConstantError: the type does not compare with the number.
    """
    if not isinstance(kind, Decimal | Int | UInt):
        return True
    below, upto = kind.bisect(constant)
    try:
        double = float(constant)
    except OverflowError:
        return False
    with np.errstate(over="ignore"):
        nearest = float(np.float32(double)) if single else double
    # Rounding keeps the order, so that the neighbours decide.
    if not math.isfinite(nearest) or (below < upto and nearest != double):
        return False
    low, step = (kind.low, kind.step) if isinstance(kind, Decimal) else (kind.least, 1)
    for neighbour, sign in ((below - 1, -1), (upto, 1)):
        if 0 <= neighbour < kind.cardinality:
            value = float(Fraction(low) + neighbour * Fraction(step))
            floats = [value, float(np.float32(value))] if single else [value]
            if any(sign * real <= sign * nearest for real in floats):
                return False
    return True


def timestamp(text: str) -> Instant:
    """Read TIMESTAMP '...'."""
    try:
        return Instant.parse(text)
    except ValueError as problem:
        raise ConstantError(
            f"{problem}; expected text such as '2024-01-31' or '2024-01-31 12:30:00'"
        ) from None


def date(text: str) -> Instant:
    """Read DATE '...': the date as written, without time of day and zone, as in Spark."""
    timestamp(text)
    return Instant.parse(text.strip()[:10])


def day(text: str) -> Instant:
    """Read a string that is compared with days.

    Spark takes it for a date where the column is a DATE, and for a point in time where it is a
    TIMESTAMP, which an attribute does not tell.
    """
    try:
        instant = Instant.of(words(text))
    except ValueError as problem:
        raise ConstantError(
            f"{problem}; days compare with text such as '2024-01-31', or TIMESTAMP "
            "'2024-01-31 12:30:00'"
        ) from None
    if instant != date(text):
        raise PatternError(
            "with a time of day, a string compares in one way with dates and in another with "
            "timestamps; write DATE '2024-01-31', or TIMESTAMP '2024-01-31 12:30:00'"
        )
    return instant
