"""Literals: what the text of a constant in SQL stands for, exactly.

A `Reading` takes a number's digits, or what is between the quotes of a string, to a value. Which
reading a constant needs is a matter of what stands around it, so that two predicates that differ
in nothing but literals have the same readings.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any, TypeAlias

from ccbps.predicates.temporal import Instant
from ccbps.predicates.types import ConstantError

__all__ = ["Reading", "date", "minus", "number", "timestamp", "words"]

Reading: TypeAlias = Callable[[str], Any]
"""From the text of a literal to its value; raises ConstantError."""


def words(text: str) -> str:
    """A string."""
    return text


def number(digits: str) -> int | decimal.Decimal:
    """A number without a sign."""
    try:
        # int() refuses very long texts; a Decimal of them is exact as well.
        if digits.isdigit() and len(digits) <= 1000:
            return int(digits)
        return decimal.Decimal(digits)
    except (ValueError, decimal.InvalidOperation):
        raise ConstantError("not a number that can be read") from None


def minus(digits: str) -> int | decimal.Decimal:
    """A number with a minus before it."""
    value = number(digits)
    # Minus rounds a Decimal to the context's precision.
    return -value if isinstance(value, int) else value.copy_negate()


def timestamp(text: str) -> Instant:
    """TIMESTAMP '...'."""
    try:
        return Instant.parse(text)
    except ValueError as problem:
        raise ConstantError(
            f"{problem}; expected text such as '2024-01-31' or '2024-01-31 12:30:00'"
        ) from None


def date(text: str) -> Instant:
    """DATE '...': the day that a point in time is in."""
    return timestamp(text).date()
