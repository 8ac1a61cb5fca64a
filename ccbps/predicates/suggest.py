"""Schemas of tables: attribute types from the types of columns, or from values.

Booleans and integers of 8 to 64 bits determine an attribute type. The range of a decimal or a
timestamp and the words of a string are not part of a column's type: the caller gives them, or they
are suggested from values. pyarrow and pyspark are recognised by the module of a value's type.

Data show past values, not future ones. So every range is widened: twice the greatest magnitude for
numbers, as many years again for times, half as much again for short texts. The report says what the
reader must check.

Hazard: ranges and lists of words come from the data, and a schema is public.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from ccbps.errors import EventError, ParameterError
from ccbps.predicates.attributes import Attributes, closest, named_columns
from ccbps.predicates.columns import column_of, comes_from, length_of
from ccbps.predicates.numeric import Bool, Decimal, Int, UInt
from ccbps.predicates.temporal import UNITS, Instant, Timestamp
from ccbps.predicates.textual import Category, Keyword, Text
from ccbps.predicates.types import AttributeType

# -- from the types of Arrow and Spark -------------------------------------------------------------

# By the names that Arrow and Spark give to their types.
_WIDTHS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DETERMINED: Final[dict[str, Callable[..., AttributeType]]] = {
    **dict.fromkeys(("bool", "boolean"), Bool),
    **{name: partial(Int, width) for name, width in _WIDTHS.items()},
    **{f"int{width}": partial(Int, width) for width in _WIDTHS.values()},
    **{f"uint{width}": partial(UInt, width) for width in _WIDTHS.values()},
}
_WORDS: Final = re.compile(r"(large_)?string(_view)?|(var)?char\(.*|dictionary<values=\w*string.*")
_DECIMAL: Final = re.compile(r"decimal\d*\(\d+, ?(-?\d+)\)")
_UNKNOWN: Final = "(an attribute type, of what you convert it to)"
_TIMES: Final = {"date": "day", "date32[day]": "day", "date64[ms]": "day"}
_TIME: Final = re.compile(r"timestamp(?:_ntz|_ltz)?(?:\[(s|ms|us|ns)\b.*)?")


_TABLES: Final = {
    "pyarrow": ("from_arrow takes a pyarrow.Schema", "of a table, pass table.schema"),
    "pyspark": ("from_spark takes a StructType", "of a DataFrame, pass df.schema"),
}


def types_of_columns(
    schema: Any, library: str, columns: Iterable[str] | None, given: Mapping[str, AttributeType]
) -> dict[str, AttributeType]:
    """Return attribute types of a ``pyarrow.Schema`` or a Spark ``StructType``.

    Args:
        schema: the table's schema.
        library: "pyarrow" or "pyspark".
        columns: as for `Schema.from_arrow`.
        given: attribute types that the caller chose.

    Raises:
        ParameterError: as `Schema.from_arrow`.
    """
    arrow = library == "pyarrow"
    if not comes_from(schema, library) or not hasattr(
        schema, "field_by_name" if arrow else "fields"
    ):
        takes, hint = _TABLES[library]
        raise ParameterError(f"{takes}, got {type(schema).__name__}; {hint}")
    fields = [
        (f.name, str(f.type) if arrow else f.dataType.simpleString(), f.nullable)
        for f in (schema if arrow else schema.fields)
    ]
    present = [name for name, _, _ in fields]
    chosen = present if columns is None else list(columns)
    for name in (*chosen, *given):
        if present.count(name) != 1:
            problem = "occurs twice" if name in present else f"is none{closest(name, present)}"
            raise ParameterError(f"column {name!r} {problem}")
    for name in given:
        if name not in chosen:
            raise ParameterError(f"column {name!r} is not among the columns asked for")
    declared = {name: (kind, nullable) for name, kind, nullable in fields}
    missing: list[str] = []
    types: dict[str, AttributeType] = {}
    for name in chosen:
        kind, nullable = declared[name]
        if name in given:
            types[name] = given[name]
        elif kind in _DETERMINED:
            types[name] = _DETERMINED[kind](nullable=nullable)
        else:
            missing.append(f"{name}={_example(kind, nullable)} for {kind}")
    if missing:
        raise ParameterError(
            "the types of some columns do not say which values there are; pass for example "
            f"{'; '.join(missing)}; or name the columns that you want"
        )
    return types


def _example(kind: str, nullable: bool) -> str:
    """Write an example for a column whose type determines no attribute type."""
    null = ", nullable=True" if nullable else ""
    if _WORDS.fullmatch(kind):
        return f'Category(["a", "b"]{null}), Keyword(64{null}) or Text(8{null})'
    time = _TIME.fullmatch(kind)
    if time or kind in _TIMES:
        unit = (time[1] or "us") if time else _TIMES[kind]
        return f'Timestamp("{unit}", "2020-01-01", "2029-12-31"{null})'
    number = _DECIMAL.fullmatch(kind)
    if number or kind in ("float", "double", "halffloat"):
        decimals = int(number[1]) if number else 2
        step = f"0.{'1':0>{decimals}}" if decimals > 0 else "1"
        return f'Decimal(0, 1000, "{step}"{null})'
    return _UNKNOWN


# -- from values -----------------------------------------------------------------------------------


_ROWS: Final = 100_000
"""Rows of a Spark DataFrame that are collected."""

_EXTREMES: Final = 3
"""Rows that follow them, of the least and the greatest values and of NULLs."""
_INCOMPLETE: Final = "the list is of a sample, and perhaps incomplete"

_NUMERAL: Final = re.compile(r"-?(0|[1-9]\d{0,17})(\.\d{1,9})?")
"""Text that is a number, and no name such as 007."""
_MAX_DECIMALS: Final = 6
_CLOSE: Final = 5e-4  # in steps; half of what a Decimal accepts of a float
_MOST_WORDS: Final = 64
_REPEATED: Final = 4
_SHORT: Final = 8

S = TypeVar("S", bound=Attributes)


class _LeftOut(Exception):
    """A column does not become an attribute; the message gives the reason and a remedy."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """An attribute type, with the reason for it and what to check, in words."""

    kind: AttributeType
    why: str
    check: str


@dataclass(frozen=True, slots=True)
class Suggestion(Generic[S]):
    """A suggested schema, with the reasons for it; made by `Schema.suggest`.

    Example:
        >>> from ccbps import Schema
        >>> suggestion = Schema.suggest({"price": [119.5, 27.25], "note": ["", None]})
        >>> suggestion
        Suggestion(schema=Schema(price=Decimal("0", "240", "0.01"), note=Text(1, nullable=True)))
        >>> print(suggestion.report.splitlines()[0])
        2 records, 24 bits for each event

    Attributes:
        schema: a schema that takes the data.
        report: text with the choice, its reason, its cost and points to check, for each column.
    """

    schema: S
    report: str = field(repr=False)


def suggest(
    make: Callable[[Mapping[str, AttributeType]], S], data: Any, given: Mapping[str, AttributeType]
) -> Suggestion[S]:
    """Suggest a schema, see `Schema.suggest`; `make` makes the schema of its attribute types."""
    without: dict[str, str] = {}
    extremes, more, names = 0, False, None
    if comes_from(data, "pyspark") and hasattr(data, "selectExpr"):
        names = list(data.columns)
        data, without, more = _sample(data)
        extremes = _EXTREMES
    columns = _columns(data)
    lengths = {length_of(column, name) for name, column in columns.items()}
    if len(lengths) > 1:
        raise EventError("the columns differ in length; every record needs one value of each")
    names = list(columns) if names is None else names
    for name in given:
        if name not in names:
            raise ParameterError(f"column {name!r} is none{closest(name, names)}")
    types: dict[str, AttributeType] = {}
    lines: list[str] = []
    for name in names:
        try:
            if name in without:
                raise _LeftOut(without[name])
            choice = _choice(name, columns[name], given.get(name), extremes)
        except _LeftOut as problem:
            lines += [f"{name}: left out", f"  why: {problem}"]
            continue
        kind = types[name] = choice.kind
        if more and isinstance(kind, Category) and name not in given:
            choice = replace(choice, check=f"{choice.check}; {_INCOMPLETE}")
        lines += [
            f"{name}: {kind!r}, {kind.bits} bit{'s' * (kind.bits > 1)}",
            f"  why: {choice.why}",
            f"  check: {choice.check}",
        ]
    if not types:
        raise ParameterError("\n".join(["no column has values that an attribute may have", *lines]))
    schema = make(types)
    others = " and the extremes of all" if more else ""
    head = f"{max(lengths) - extremes} records{others}, {schema.bits} bits for each event"
    return Suggestion(schema, "\n".join([head, *lines]))


def _choice(name: str, data: Any, given: AttributeType | None, extremes: int) -> _Choice:
    """Choose a type for the values of a column, with room for others like them.

    Args:
        name: name of the column.
        data: its values.
        given: type that the caller chose.
        extremes: number of last rows that are no records, but extremes of such: they widen ranges,
            and do not count.

    Raises:
        _LeftOut: no attribute type takes them.
    """
    if not name.isidentifier():
        raise _LeftOut("its name is not an identifier; rename it")
    if given is not None:
        return _Choice(given, "you said so", f"a value must be {given.accepts}")
    try:
        column = column_of(data, name)
    except EventError as problem:
        raise _LeftOut(str(problem)) from None
    nullable = bool(column.missing.any())
    values = column.values[~column.missing]
    if not len(values):
        raise _LeftOut("it has no values")
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
    return _Choice(choice.kind, choice.why, f"{choice.check}; NULL is refused")


def _columns(data: Any) -> dict[str, Any]:
    """Return the columns by name of any container that `Attributes.encode` takes."""
    table = named_columns(data)
    if table is not None:
        names, column = table
        for name, count in Counter(map(str, names)).items():
            if count > 1:
                raise ParameterError(f"column {name!r} occurs twice; rename one of the two")
        return {str(name): column(name) for name in names}
    if isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
        present = dict.fromkeys(name for row in data for name in row)
        return {str(name): [row.get(name) for row in data] for name in present}
    raise ParameterError(
        "suggest takes a mapping of names to columns, a list of mappings, a pandas or Spark "
        f"DataFrame or an Arrow table, got {type(data).__name__}"
    )


def _sample(frame: Any) -> tuple[Any, dict[str, str], bool]:
    """Collect rows of a Spark DataFrame.

    Returns:
        (table, without, more): an Arrow table of the first rows and then three of extremes: the
        least value of each column, the greatest, and one that is NULL where some value is; why
        other columns are not in it; and whether the DataFrame has more rows.
    """
    if frame.isStreaming:
        raise ParameterError(
            "suggest looks at rows, and this DataFrame is a stream; pass spark.read, of the same "
            "source, in place of spark.readStream"
        )
    without: dict[str, str] = {}
    columns: dict[str, str] = {}
    by_folded: dict[str, str] = {}
    for column in frame.schema.fields:
        name = column.name
        other = by_folded.setdefault(name.lower(), name)
        if other in columns or other in without:
            raise ParameterError(
                f"columns {other!r} and {name!r} have the same name to Spark, which does not "
                "tell upper case from lower; rename one of them, as cs.clean_names(df) does"
            )
        kind, quoted = column.dataType.simpleString(), _quoted(name)
        if kind == "float":
            without[name] = (
                "encode_events refuses FLOAT, which holds neither most decimals nor all whole "
                "numbers; cast it to the decimals it stands for, as in CAST(x AS DECIMAL(12, 2))"
            )
        elif kind not in _DETERMINED and _example(kind, False) == _UNKNOWN:
            without[name] = (
                f"no attribute has values of type {kind}; convert it to numbers, strings, "
                "booleans, dates or timestamps"
            )
        else:
            # To Spark, NaN is the greatest double; to an attribute, it is NULL.
            columns[name] = f"nanvl({quoted}, CAST(NULL AS DOUBLE))" if kind == "double" else quoted
    if not columns:
        return {}, without, False
    rows = frame.selectExpr(*map(_quoted, columns)).limit(_ROWS + 1)
    for extreme in ("min({x})", "max({x})", "CASE WHEN count({x}) = count(*) THEN min({x}) END"):
        expressions = [
            f"{extreme.replace('{x}', value)} AS {_quoted(name)}" for name, value in columns.items()
        ]
        rows = rows.unionAll(frame.selectExpr(*expressions))
    table = rows.toArrow()
    count = table.num_rows - _EXTREMES
    if count <= _ROWS:
        return table, without, False
    return table.take([*range(_ROWS), *range(count, table.num_rows)]), without, True


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# -- one column ---------------------------------------------------------------------------------


def _of_objects(values: list[Any], count: int, nullable: bool) -> _Choice:
    """Choose for distinct Python values that occur `count` times in all."""
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
    raise _LeftOut("its values are of several kinds, or of one that no attribute has")


def _truth(nullable: bool) -> _Choice:
    return _Choice(
        Bool(nullable=nullable), "truth values", "anything but true and false is refused"
    )


# -- numbers ------------------------------------------------------------------------------------


def _of_exact(numbers: list[decimal.Decimal], nullable: bool) -> _Choice:
    if not all(number.is_finite() and abs(number.adjusted()) <= 100 for number in numbers):
        raise _LeftOut("some of its numbers are infinite, or beyond all types")
    fractions = [Fraction(number) for number in numbers]
    decimals = 0
    while any((fraction * 10**decimals).denominator != 1 for fraction in fractions):
        decimals += 1
    return _of_range(min(fractions), max(fractions), decimals, nullable)


def _of_integers(values: npt.NDArray[Any], scale: int, nullable: bool) -> _Choice:
    # Types of columns often have more decimals than their values: Spark likes DECIMAL(38, 18).
    while scale > 0 and scale > _MAX_DECIMALS and not np.any(values % 10):
        values, scale = values // 10, scale - 1
    unit = Fraction(10) ** -scale
    low, high = int(values.min()) * unit, int(values.max()) * unit
    return _of_range(low, high, max(scale, 0), nullable)


def _of_floats(values: npt.NDArray[Any], nullable: bool) -> _Choice:
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        raise _LeftOut("some of its floats are infinite, which no type takes; make them NULL")
    if np.abs(values).max() > 1 << 53:
        raise _LeftOut("its floats are beyond 2^53, where whole numbers have gaps; read exact ones")
    for decimals in range(_MAX_DECIMALS + 1):
        scaled = values * 10**decimals
        # The error of a float32 or float64 of that many decimals, as far as a Decimal takes it.
        off = np.minimum(np.abs(scaled) * 1e-7, _CLOSE) if decimals else 0.0
        if np.all(np.abs(scaled - np.rint(scaled)) <= off):
            unit = Fraction(1, 10**decimals)
            low, high = (round(float(end)) * unit for end in (scaled.min(), scaled.max()))
            choice = _of_range(low, high, decimals, nullable)
            return replace(choice, check=f"{choice.check}; NaN is NULL") if nullable else choice
    raise _LeftOut(
        f"its floats have more than {_MAX_DECIMALS} decimals; round them, and pass a Decimal type"
    )


def _of_range(low: Fraction, high: Fraction, decimals: int, nullable: bool) -> _Choice:
    """Choose for numbers from `low` to `high` of at most so many decimals."""
    shown = f"from {_text(low, decimals)} to {_text(high, decimals)}"
    values = f"numbers of {decimals} decimal{'s' * (decimals > 1)}" if decimals else "whole numbers"
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
        raise _LeftOut(f"no type takes numbers {shown}: {problem}") from None
    capped = not decimals and int(bound).bit_length() > kind.bits - nullable - (low < 0)
    room = "all that 64 bits hold" if capped else "twice as much fits"
    return _Choice(kind, f"{values} {shown}; {room}", f"anything but {kind.accepts} is refused")


def _rounded_up(number: Fraction) -> Fraction:
    """Round up to two digits that are not zero."""
    unit = Fraction(10) ** (math.floor(math.log10(number)) - 1)
    return math.ceil(number / unit) * unit


def _text(number: Fraction, decimals: int) -> str:
    """Write a number of at most so many decimals exactly."""
    digits = f"{abs(int(number * 10**decimals)):0{decimals + 1}}"
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[:-decimals]}.{digits[-decimals:]}" if decimals else sign + digits


# -- times --------------------------------------------------------------------------------------


def _of_times(values: npt.NDArray[Any], nullable: bool) -> _Choice:
    # All that decides is in these: the extremes, and one value off the grid of each unit.
    deciding = [values.min(), values.max()]
    for unit in ("D", "s", "ms", "us"):
        off = values[values.astype(f"M8[{unit}]") != values]
        deciding += off[:1].tolist() if not len(off) else [off[0]]
    try:
        return _of_instants([Instant.of(value) for value in deciding], nullable)
    except ValueError as problem:
        raise _LeftOut(f"its times are {problem}") from None


def _of_instants(instants: list[Instant], nullable: bool) -> _Choice:
    unit = next(
        (name for name, size in UNITS.items() if all(i.seconds % size == 0 for i in instants)), "ns"
    )
    clock = "" if unit == "day" else "T23:59:59"
    latest = 2261 if unit == "ns" else 9999  # nanoseconds of later years do not fit 64 bits
    try:
        shown = [instant.iso() for instant in (min(instants), max(instants))]
        first, last = (int(text[:4]) for text in shown)
        end = max(last, min(latest, last + max(1, last - first)))
        kind = Timestamp(unit, f"{first:04}-01-01", f"{end:04}-12-31{clock}", nullable=nullable)
    except (ValueError, OverflowError) as problem:
        raise _LeftOut(f"no type takes its times: {problem}") from None
    times = "days" if unit == "day" else f"times in whole units of {unit!r}"
    return _Choice(
        kind,
        f"{times} from {' to '.join(shown)}; as many years again fit, at least one",
        f"anything but {kind.accepts} is refused",
    )


# -- words --------------------------------------------------------------------------------------


def _of_words(words: list[str], count: int, nullable: bool) -> _Choice:
    """Choose for distinct words that occur `count` times in all."""
    try:
        instants = [Instant.parse(word) for word in words]
    except ValueError:
        pass
    else:
        return _of_instants(instants, nullable)
    if all(map(_NUMERAL.fullmatch, words)):  # as a CSV file has them
        choice = _of_exact([decimal.Decimal(word) for word in words], nullable)
        return replace(choice, why=f"texts that are {choice.why}")
    try:
        longest = max(len(word.encode("utf-8")) for word in words)
    except UnicodeEncodeError:
        raise _LeftOut("some of its strings are not valid Unicode") from None
    seen = f"{len(words)} words of at most {longest} bytes in {count} values"
    if len(words) <= _MOST_WORDS and count >= _REPEATED * len(words):
        return _Choice(
            Category(words, nullable=nullable),
            f"{seen}, each of them often",
            "the list is public; other words are refused",
        )
    if longest <= _SHORT and not any("\0" in word for word in words):
        kind = Text(max(1, longest + -(-longest // 2)), nullable=nullable)
        return _Choice(
            kind,
            f"{seen}; half as much again fits; takes LIKE and order",
            f"anything but {kind.accepts} is refused; Keyword(64) takes strings of any length",
        )
    return _Choice(
        Keyword(64, nullable=nullable),
        f"{seen}, too many for a list",
        f"takes =, != and IN only; Text({longest}) takes LIKE and order, for {8 * longest} bits",
    )
