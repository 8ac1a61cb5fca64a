"""Ranges: the attribute type that takes the values of a column, with room for others like them."""

from __future__ import annotations

import datetime
import decimal
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ccbps.errors import ParameterError
from ccbps.predicates.boolean import Bool
from ccbps.predicates.columns import Column
from ccbps.predicates.numeric import Decimal, Int, UInt
from ccbps.predicates.temporal import Instant, Timestamp
from ccbps.predicates.textual import Category, Keyword, Text
from ccbps.predicates.types import AttributeType

_MAX_DECIMALS: Final = 6
_CLOSE: Final = 5e-4  # in steps; half of what a Decimal accepts of a float
_MOST_WORDS: Final = 64
_REPEATED: Final = 4
_SHORT: Final = 8
_UNITS: Final = {"day": Fraction(86_400)} | {
    name: Fraction(1, 1000**power) for power, name in enumerate(("s", "ms", "us", "ns"))
}


class LeftOut(Exception):
    """Why a column does not become an attribute, and what would help."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An attribute type, why it was chosen, and what to check, in words."""

    kind: AttributeType
    why: str
    check: str


def choice_for(column: Column, extremes: int = 0) -> Choice:
    """The choice for a column's values.

    Args:
        column: the values.
        extremes: how many of the last rows are no records, but extremes of such: they widen ranges,
            and do not count.

    Raises:
        LeftOut: no attribute type takes them.
    """
    nullable = bool(column.missing.any())
    values = column.values[~column.missing]
    if not len(values):
        raise LeftOut("it has no values")
    if column.distinct is not None:
        seen = [column.distinct[place] for place in np.unique(values).tolist()]
        count = np.count_nonzero(~column.missing[: len(column.missing) - extremes])
        choice = _of_objects(seen, int(count), nullable)
    elif values.dtype.kind == "b":
        choice = _truth(nullable)
    elif values.dtype.kind == "f":
        choice = _of_floats(values, nullable)
    elif values.dtype.kind == "M":
        choice = _of_times(values, nullable)
    else:
        choice = _of_integers(values, column.scale, nullable)
    if nullable:
        return choice
    return Choice(choice.kind, choice.why, f"{choice.check}; NULL is refused")


def _of_objects(values: list[Any], count: int, nullable: bool) -> Choice:
    """Of distinct Python values; `count` in all."""
    if all(isinstance(value, str) for value in values):
        return _of_words(values, count, nullable)
    if all(isinstance(value, (bool, np.bool_)) for value in values):
        return _truth(nullable)
    if all(isinstance(value, (datetime.date, np.datetime64)) for value in values):
        return _of_instants([Instant.of(value) for value in values], nullable)
    if not any(isinstance(value, bool) for value in values):
        if all(isinstance(value, (int, decimal.Decimal)) for value in values):
            return _of_exact([decimal.Decimal(value) for value in values], nullable)
        if all(isinstance(value, (int, float)) for value in values):
            return _of_floats(np.array(values, dtype=np.float64), nullable)
    raise LeftOut("its values are of several kinds, or of one that no attribute has")


def _truth(nullable: bool) -> Choice:
    return Choice(Bool(nullable=nullable), "truth values", "anything but true and false is refused")


# -- numbers ------------------------------------------------------------------------------------


def _of_exact(numbers: list[decimal.Decimal], nullable: bool) -> Choice:
    if not all(number.is_finite() and abs(number.adjusted()) <= 100 for number in numbers):
        raise LeftOut("some of its numbers are infinite, or beyond all types")
    fractions = [Fraction(number) for number in numbers]
    decimals = 0
    while any((fraction * 10**decimals).denominator != 1 for fraction in fractions):
        decimals += 1
    return _of_range(min(fractions), max(fractions), decimals, nullable)


def _of_integers(values: npt.NDArray[Any], scale: int, nullable: bool) -> Choice:
    # Types of columns often have more decimals than their values: Spark likes DECIMAL(38, 18).
    while scale > 0 and scale > _MAX_DECIMALS and not np.any(values % 10):
        values, scale = values // 10, scale - 1
    unit = Fraction(10) ** -scale
    low, high = int(values.min()) * unit, int(values.max()) * unit
    return _of_range(low, high, max(scale, 0), nullable)


def _of_floats(values: npt.NDArray[Any], nullable: bool) -> Choice:
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        raise LeftOut("some of its floats are infinite, which no type takes; make them NULL")
    if np.abs(values).max() > 1 << 53:
        raise LeftOut("its floats are beyond 2^53, where whole numbers have gaps; read exact ones")
    for decimals in range(_MAX_DECIMALS + 1):
        scaled = values * 10**decimals
        # What a float32 or a float64 of that many decimals is off, as far as a Decimal takes it.
        off = np.minimum(np.abs(scaled) * 1e-7, _CLOSE) if decimals else 0.0
        if np.all(np.abs(scaled - np.rint(scaled)) <= off):
            unit = Fraction(1, 10**decimals)
            low, high = (round(float(end)) * unit for end in (scaled.min(), scaled.max()))
            choice = _of_range(low, high, decimals, nullable)
            return replace(choice, check=f"{choice.check}; NaN is NULL") if nullable else choice
    raise LeftOut(
        f"its floats have more than {_MAX_DECIMALS} decimals; round them, and pass a Decimal type"
    )


def _of_range(low: Fraction, high: Fraction, decimals: int, nullable: bool) -> Choice:
    """Of numbers of at most so many decimals from `low` to `high`."""
    shown = f"from {_text(low, decimals)} to {_text(high, decimals)}"
    what = f"numbers of {decimals} decimal{'s' * (decimals > 1)}" if decimals else "whole numbers"
    bound = 2 * max(abs(low), abs(high))
    kind: AttributeType
    try:
        if decimals:
            bound = _rounded_up(bound)
            least = _text(-bound if low < 0 else Fraction(0), decimals)
            kind = Decimal(least, _text(bound, decimals), f"1e-{decimals}", nullable=nullable)
        else:
            make, width = (Int, 1) if low < 0 else (UInt, 0)
            kind = make(min(64, max(1, width + int(bound).bit_length())), nullable=nullable)
            if not kind.least <= low <= high < kind.least + kind.cardinality:
                raise ParameterError("they do not fit 64 bits")
    except ParameterError as problem:
        raise LeftOut(f"no type takes numbers {shown}: {problem}") from None
    capped = not decimals and int(bound).bit_length() > kind.bits - nullable - (low < 0)
    room = "all that 64 bits hold" if capped else "twice as much fits"
    return Choice(kind, f"{what} {shown}; {room}", f"anything but {kind.accepts} is refused")


def _rounded_up(number: Fraction) -> Fraction:
    """To two digits that are not zero."""
    unit = Fraction(10) ** (math.floor(math.log10(number)) - 1)
    return math.ceil(number / unit) * unit


def _text(number: Fraction, decimals: int) -> str:
    """A number that has at most so many decimals, exactly."""
    digits = f"{abs(int(number * 10**decimals)):0{decimals + 1}}"
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[:-decimals]}.{digits[-decimals:]}" if decimals else sign + digits


# -- times --------------------------------------------------------------------------------------


def _of_times(values: npt.NDArray[Any], nullable: bool) -> Choice:
    # All that decides is in these: the extremes, and one value off the grid of each unit.
    deciding = [values.min(), values.max()]
    for unit in ("D", "s", "ms", "us"):
        off = values[values.astype(f"M8[{unit}]") != values]
        deciding += off[:1].tolist() if not len(off) else [off[0]]
    try:
        return _of_instants([Instant.of(value) for value in deciding], nullable)
    except ValueError as problem:
        raise LeftOut(f"its times are {problem}") from None


def _of_instants(instants: list[Instant], nullable: bool) -> Choice:
    unit = next(
        (name for name, size in _UNITS.items() if all(i.seconds % size == 0 for i in instants)),
        "ns",
    )
    clock = "" if unit == "day" else "T23:59:59"
    latest = 2261 if unit == "ns" else 9999  # nanoseconds of later years do not fit 64 bits
    try:
        shown = [instant.iso() for instant in (min(instants), max(instants))]
        first, last = (int(text[:4]) for text in shown)
        end = max(last, min(latest, last + max(1, last - first)))
        kind = Timestamp(unit, f"{first:04}-01-01", f"{end:04}-12-31{clock}", nullable=nullable)
    except (ValueError, OverflowError) as problem:
        raise LeftOut(f"no type takes its times: {problem}") from None
    what = "days" if unit == "day" else f"times in whole units of {unit!r}"
    return Choice(
        kind,
        f"{what} from {' to '.join(shown)}; as many years again fit, at least one",
        f"anything but {kind.accepts} is refused",
    )


# -- words --------------------------------------------------------------------------------------


def _of_words(words: list[str], count: int, nullable: bool) -> Choice:
    """Of distinct words that occur `count` times in all."""
    try:
        instants = [Instant.parse(word) for word in words]
    except ValueError:
        pass
    else:
        return _of_instants(instants, nullable)
    try:
        longest = max(len(word.encode("utf-8")) for word in words)
    except UnicodeEncodeError:
        raise LeftOut("some of its strings are not valid Unicode") from None
    seen = f"{len(words)} words of at most {longest} bytes in {count} values"
    if len(words) <= _MOST_WORDS and count >= _REPEATED * len(words):
        return Choice(
            Category(words, nullable=nullable),
            f"{seen}, each of them often",
            "the list is public; other words are refused",
        )
    if longest <= _SHORT and not any("\0" in word for word in words):
        kind = Text(max(1, longest + -(-longest // 2)), nullable=nullable)
        return Choice(
            kind,
            f"{seen}; half as much again fits; takes LIKE and order",
            f"anything but {kind.accepts} is refused; Keyword(64) takes strings of any length",
        )
    return Choice(
        Keyword(64, nullable=nullable),
        f"{seen}, too many for a list",
        f"takes =, != and IN only; Text({longest}) takes LIKE and order, for {8 * longest} bits",
    )
