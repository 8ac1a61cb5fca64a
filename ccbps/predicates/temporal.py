"""Timestamps: whole units (days down to nanoseconds) from a start to an end, both included.

Time without a zone is UTC, and a value with a zone is converted to UTC. Constants are exact: ISO
text becomes a fraction of seconds since 1970, and one that is finer than the unit falls between
two codes just as SQL would compare it. An event value finer than the unit is refused, because
rounding it would change which predicates it satisfies.

Convention: proleptic Gregorian calendar, years 1..9999, no leap seconds.
"""

from __future__ import annotations

import datetime
import re
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ccbps.checks import Redacted, choice, shown
from ccbps.errors import ParameterError
from ccbps.predicates.codes import BoolArray
from ccbps.predicates.grid import Grid
from ccbps.predicates.types import AttributeType, ConstantError, Numbering, Refused, explained

UNITS: Final = {"day": Fraction(86_400)} | {
    name: Fraction(1, 1000**power) for power, name in enumerate(("s", "ms", "us", "ns"))
}
"""Units of time, in seconds."""
_EPOCH: Final = datetime.date(1970, 1, 1).toordinal()
_ISO: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,18}))?)?\s*(Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_INT64_MAX: Final = 2**63 - 1


class Instant(Redacted, frozen=True, order=True):
    """A point in time, exactly.

    Attributes:
        seconds: seconds since 1970-01-01 00:00:00 UTC.
    """

    seconds: Fraction

    @classmethod
    def parse(cls, text: str) -> Instant:
        """Read ISO text: a date, or date and time with up to 18 decimals and an offset.

        Raises:
            ValueError: not such a text; the message does not repeat it.
        """
        match = _ISO.fullmatch(text.strip())
        if match is None:
            raise ValueError("not an ISO date or timestamp")
        year, month, day, hour, minute, second, fraction, zone = match.groups()
        try:
            days = datetime.date(int(year), int(month), int(day)).toordinal() - _EPOCH
        except ValueError:
            raise ValueError("no such date") from None
        clock = (int(hour or 0), int(minute or 0), int(second or 0))
        if clock[0] > 23 or clock[1] > 59 or clock[2] > 59:
            raise ValueError("no such time of day")
        total = Fraction(days * 86_400 + clock[0] * 3600 + clock[1] * 60 + clock[2])
        if fraction:
            total += Fraction(int(fraction), 10 ** len(fraction))
        if zone and zone != "Z":
            digits = zone[1:].replace(":", "").ljust(4, "0")
            offset = int(digits[:2]) * 3600 + int(digits[2:]) * 60
            total += offset if zone[0] == "-" else -offset
        return cls(total)

    @classmethod
    def of(cls, value: Any) -> Instant:
        """Convert ISO text, a date, a datetime, a pandas Timestamp or a datetime64.

        Raises:
            ValueError: text that is not ISO, or NaT.
            TypeError: anything else.
        """
        if isinstance(value, Instant):
            return value
        if isinstance(value, str):
            return cls.parse(value)
        if isinstance(value, np.datetime64):
            if np.isnat(value):
                raise ValueError("not a time")
            converted = _ticks_of(np.array([value]))
            if converted is None or converted[2][0]:
                raise ValueError("too far away" if converted else "finer than a nanosecond")
            return cls(int(converted[0][0]) * UNITS[converted[1]])
        if isinstance(value, datetime.datetime):
            # Not astimezone(), which overflows in the first and last hours of the calendar.
            offset = value.utcoffset() or datetime.timedelta()
            seconds = (value.toordinal() - _EPOCH) * 86_400
            seconds += value.hour * 3600 + value.minute * 60 + value.second
            # pandas Timestamps carry nanoseconds beyond datetime's microseconds.
            nanoseconds = value.microsecond * 1000 + getattr(value, "nanosecond", 0)
            local = seconds + Fraction(nanoseconds, 10**9)
            return cls(local - Fraction(offset // datetime.timedelta(microseconds=1), 10**6))
        if isinstance(value, datetime.date):
            return cls(Fraction((value.toordinal() - _EPOCH) * 86_400))
        raise TypeError("not a date or timestamp")

    def iso(self) -> str:
        """Write ISO text: a date at midnight, else date and time with the decimals it takes."""
        days, rest = divmod(self.seconds, 86_400)
        day = datetime.date.fromordinal(int(days) + _EPOCH).isoformat()
        return f"{day}T{_clock(rest)}" if rest else day


def _ticks_of(values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], str, BoolArray] | None:
    """Convert datetime64 values to whole numbers of a unit.

    Returns:
        numbers, the unit, and which values are too far away for 64 bits of it; None for values
        finer than a nanosecond.
    """
    unit, _ = np.datetime_data(values.dtype)
    unit = {"Y": "D", "M": "D", "W": "D", "h": "s", "m": "s"}.get(unit, unit)
    name = "day" if unit == "D" else unit
    if name not in UNITS:
        return None
    # Where 64 bits do not hold the result, NumPy raises an error, or wraps around before 2.5.
    most = np.array([(1 << 63) - 1]).view(f"M8[{unit}]").astype(values.dtype).view(np.int64)
    least, most = (number.view(values.dtype) for number in (-most, most))
    overflowed = ~((values >= least) & (values <= most))
    if overflowed.any():
        values = np.where(overflowed, np.array(["NaT"], dtype=values.dtype), values)
    return values.astype(f"M8[{unit}]", copy=False).astype(np.int64), name, overflowed


def _clock(seconds: Fraction) -> str:
    """Write a time of day with the decimals it takes."""
    whole, fraction = divmod(seconds, 1)
    clock = f"{int(whole) // 3600:02}:{int(whole) // 60 % 60:02}:{int(whole) % 60:02}"
    decimals = f"{int(fraction * 10**18):018}".rstrip("0")
    return f"{clock}.{decimals}" if decimals else clock


def _parameter(name: str, value: Any) -> Instant:
    try:
        instant = Instant.of(value)
        instant.iso()  # an offset can move it out of the calendar
        return instant
    except (TypeError, ValueError, OverflowError) as problem:
        raise ParameterError(
            f"Timestamp {name} must be an ISO date or timestamp, got {shown(value)}: {problem}"
        ) from None


class Timestamp(AttributeType):
    """A point in time on a grid.

    Example:
        >>> from ccbps import Schema, Timestamp
        >>> schema = Schema(
        ...     day=Timestamp("day", "2024-01-01", "2024-12-31"),
        ...     at=Timestamp("s", "2024-01-01", "2024-12-31 23:59:59"),
        ... )
        >>> schema["day"].bits, schema["at"].bits
        (9, 25)
        >>> records = {"day": ["2024-05-01", "2024-06-01"], "at": ["2024-05-01 12:00:00"] * 2}
        >>> schema.parse("day >= '2024-06-01' AND at < '2024-05-01 14:30+02:00'").evaluate(records)
        array([False,  True])

    Attributes:
        unit: "day", "s", "ms", "us" or "ns".
        start: least value, a whole number of units since 1970.
        end: greatest value (included), likewise. A date alone means its midnight.
    """

    unit: str
    start: Instant
    end: Instant

    @explained('"day", "2024-01-01", "2024-12-31"')
    def __init__(self, unit: str, start: Any, end: Any, *, nullable: bool = False) -> None:
        self._set(
            unit=choice("Timestamp unit", unit, UNITS),
            start=_parameter("start", start),
            end=_parameter("end", end),
            nullable=bool(nullable),
        )
        for name, value in (("start", self.start), ("end", self.end)):
            ticks = value.seconds / UNITS[unit]
            if ticks.denominator != 1:
                raise ParameterError(f"Timestamp {name} is finer than the unit {unit!r}")
            if abs(ticks) > _INT64_MAX:
                raise ParameterError(f"Timestamp {name} does not fit 64 bits of {unit!r}")
        if self.end < self.start:
            raise ParameterError("Timestamp end is before start")
        if self.unit == "day":
            days = f"{self.start.iso()} to {self.end.iso()}"
            accepts = f"a date from {days} (UTC), without a time of day"
        else:
            # A bare date would read as the whole of the last day, and is its first moment.
            first, last = (
                f"{instant.iso()[:10]} {_clock(instant.seconds % 86_400)}"
                for instant in (self.start, self.end)
            )
            accepts = (
                f"a date or timestamp from {first} to {last} (UTC), in whole units of {unit!r}"
            )
        units = (self.end.seconds - self.start.seconds) / UNITS[unit]
        self._set(accepts=accepts, cardinality=int(units) + 1)

    @cached_property
    def _grid(self) -> Grid:
        finer = f"finer than the unit {self.unit!r}"
        return Grid(self.start.seconds, UNITS[self.unit], self.cardinality, finer)

    def parameters(self) -> dict[str, Any]:
        return {"unit": self.unit, "start": self.start.iso(), "end": self.end.iso()}

    def bisect(self, constant: Any) -> tuple[int, int]:
        try:
            instant = Instant.of(constant)
        except TypeError:
            raise ConstantError(
                "a Timestamp compares with ISO dates and timestamps in single quotes"
            ) from None
        except ValueError as problem:
            raise ConstantError(
                f"{problem}; a Timestamp compares with text such as '2024-01-31' or "
                "'2024-01-31 12:30:00'"
            ) from None
        return self._grid.bisect(instant.seconds)

    def number_of(self, value: Any) -> int:
        try:
            instant = Instant.of(value)
        except TypeError:
            raise Refused(f"wrong type ({type(value).__name__})") from None
        except ValueError as problem:
            raise Refused(str(problem)) from None
        return self._grid.number_of(instant.seconds)

    def numbers_of(self, values: npt.NDArray[Any], scale: int) -> Numbering | None:
        converted = _ticks_of(values) if values.dtype.kind == "M" else None
        if converted is None:
            return None
        ticks, unit, overflowed = converted
        numbers, problems = self._grid.numbers_of(ticks, UNITS[unit])
        problems = [(mask & ~overflowed, reason) for mask, reason in problems]
        return numbers, [*problems, (overflowed, "out of range")]
