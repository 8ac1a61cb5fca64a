"""Declared columns: attribute types from the types of Arrow and Spark, as far as these tell them.

Booleans and integers of 8 to 64 bits determine an attribute type. The range of a decimal or a
timestamp and the words of a string do not show in a column's type: the caller says them.

pyarrow and pyspark are recognised by the module of a value's type, and never imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from ccbps.errors import ParameterError
from ccbps.predicates.attributes import closest
from ccbps.predicates.columns import comes_from
from ccbps.predicates.numeric import Bool, Int, UInt
from ccbps.predicates.types import AttributeType

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


def types_of_arrow(
    schema: Any, columns: Iterable[str] | None, given: Mapping[str, AttributeType]
) -> dict[str, AttributeType]:
    """Return attribute types of a ``pyarrow.Schema``; see `Schema.from_arrow`."""
    if not (comes_from(schema, "pyarrow") and hasattr(schema, "field_by_name")):
        raise ParameterError(
            f"from_arrow takes a pyarrow.Schema, got {type(schema).__name__}; of a table, pass "
            "table.schema"
        )
    return _types([(f.name, str(f.type), f.nullable) for f in schema], columns, given)


def types_of_spark(
    schema: Any, columns: Iterable[str] | None, given: Mapping[str, AttributeType]
) -> dict[str, AttributeType]:
    """Return attribute types of a Spark ``StructType``; see `Schema.from_spark`."""
    if not (comes_from(schema, "pyspark") and hasattr(schema, "fields")):
        raise ParameterError(
            f"from_spark takes a StructType, got {type(schema).__name__}; of a DataFrame, pass "
            "df.schema"
        )
    fields = [(f.name, f.dataType.simpleString(), f.nullable) for f in schema.fields]
    return _types(fields, columns, given)


def _types(
    fields: list[tuple[str, str, bool]],
    columns: Iterable[str] | None,
    given: Mapping[str, AttributeType],
) -> dict[str, AttributeType]:
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
        attribute = given.get(name) or _type_of(kind, nullable)
        if attribute is not None:
            types[name] = attribute
        else:
            missing.append(f"{name}={_example(kind, nullable)} for {kind}")
    if missing:
        raise ParameterError(
            "the types of some columns do not say which values there are; pass for example "
            f"{'; '.join(missing)}; or name the columns that you want"
        )
    return types


def _type_of(kind: str, nullable: bool) -> AttributeType | None:
    """Return the attribute type that a column's type determines, if it does."""
    return _DETERMINED[kind](nullable=nullable) if kind in _DETERMINED else None


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


def has_values(kind: str) -> bool:
    """Tell whether some attribute type takes values of a column's type, given by its name."""
    return _type_of(kind, False) is not None or _example(kind, False) != _UNKNOWN
