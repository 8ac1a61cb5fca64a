"""Read the inputs that arguments name: texts, settings, schemas, matchers and records."""

from __future__ import annotations

import ast
import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from decimal import Decimal as Number
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO, TypeVar

from ccbps.cli.command import Option
from ccbps.errors import EventError, ParameterError
from ccbps.matching import Matcher, from_json
from ccbps.predicates import (
    AttributeType,
    Bool,
    Category,
    Decimal,
    Int,
    Keyword,
    Schema,
    Text,
    Timestamp,
    UInt,
)
from ccbps.predicates.attributes import Attributes

T = TypeVar("T")

MATCHER: Final = Option("--matcher FILE", "matcher that explain --out wrote", required=True)
SCHEMA: Final = Option(
    "--schema TEXT", "schema of events: 'price=UInt(16), ...' as in Python, or its JSON text"
)
RECORD_FORMAT: Final = Option(
    "--format",
    "JSON lines, or CSV with a line of names (default: by the name of the file)",
    choices=("json", "csv"),
)
BATCH: Final = 256
"""Records read from a file at a time. From standard input each record is taken as it comes."""

_TYPES: Final[dict[str, type[AttributeType]]] = {
    kind.__name__: kind for kind in (Bool, Category, Decimal, Int, Keyword, Text, Timestamp, UInt)
}
_TRUTH: Final = {"true": True, "false": False, "1": True, "0": False}


def read_file(path: str) -> str:
    """Return the text of a file.

    Raises:
        OSError: the file cannot be read.
        ParameterError: the file is not UTF-8.
    """
    try:
        return Path(path).read_text("utf-8")
    except UnicodeDecodeError:
        raise ParameterError(f"{path} is not a text in UTF-8") from None


def read_text(argument: str) -> str:
    """Return an argument's text: of a file for ``@FILE``, of standard input for ``@-``."""
    if argument == "@-":
        return sys.stdin.read()
    return read_file(argument[1:]) if argument.startswith("@") else argument


def read_settings(option: str, settings: Sequence[str]) -> dict[str, Any]:
    """Return values by name. A value is JSON, or else a string.

    Args:
        option: name of the option, for errors.
        settings: texts of the form ``NAME=VALUE``.

    Raises:
        ParameterError: a text is no such setting, or a name occurs twice.
    """
    values: dict[str, Any] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier() or name in values:
            raise ParameterError(f"{option} takes NAME=VALUE, each name once, got {text!r}")
        try:
            values[name] = json.loads(value)
        except (ValueError, RecursionError):
            values[name] = value
    return values


def read_matcher(path: str) -> Matcher:
    """Return the matcher that ``ccbps explain --out`` wrote to a file.

    Raises:
        DecodeError: the file holds no matcher.
    """
    return from_json(read_file(path))


def read_schema(argument: str) -> Schema:
    """Return a schema from the text that Python shows of it, or from its JSON text.

    The text is ``price=UInt(16), issue=Category(["AAPL", "IBM"])``, with or without ``Schema(...)``
    around it. Nothing in it is run.

    Raises:
        DecodeError: the text looks like JSON, and is no schema.
        ParameterError: the text is no schema in the short form.
    """
    text = read_text(argument).strip()
    if text.startswith("{"):
        return Schema.from_json(text)
    try:
        tree = ast.parse(text if text.startswith("Schema(") else f"Schema({text})", mode="eval")
        types = _call(tree.body, {"Schema": _attributes}, _attribute_type)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ParameterError(
            f'schema must be such as \'price=UInt(16), issue=Category(["AAPL", "IBM"])\', with '
            f"the types {', '.join(_TYPES)}: {error}"
        ) from None
    return Schema(types)


def _attributes(*unnamed: AttributeType, **types: AttributeType) -> dict[str, AttributeType]:
    if unnamed:
        raise ValueError("an attribute has no name")
    return types


def _attribute_type(call: ast.expr) -> AttributeType:
    return _call(call, _TYPES, ast.literal_eval)


def _call(
    call: ast.expr, functions: Mapping[str, Callable[..., T]], read: Callable[[ast.expr], Any]
) -> T:
    """Return the result of a call of one of the functions, with each argument read by `read`.

    Raises:
        ValueError: the expression is no such call.
    """
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(f"{ast.unparse(call)} is not a type")
    if call.func.id not in functions:
        raise ValueError(f"there is no type {call.func.id}")
    named = {word.arg: read(word.value) for word in call.keywords if word.arg is not None}
    if len(named) < len(call.keywords):
        raise ValueError("a name is missing")
    return functions[call.func.id](*map(read, call.args), **named)


class Record(NamedTuple):
    """Record of a file.

    Attributes:
        values: values by name.
        text: the record as JSON, for the subscribers that receive it.
    """

    values: dict[str, Any]
    text: str


def read_records(path: str, form: str | None, schema: Attributes) -> Iterator[list[Record]]:
    """Yield batches of records.

    Args:
        path: path of a file; ``-`` for standard input.
        form: "json" or "csv"; None to decide by the path.
        schema: types of the values of CSV. Columns outside the schema stay text.

    Raises:
        EventError: a line is no record.
    """
    is_csv = form == "csv" or (form is None and path.endswith(".csv"))
    with ExitStack() as stack:
        file = sys.stdin
        if path != "-":
            newline = "" if is_csv else None
            file = stack.enter_context(Path(path).open(encoding="utf-8", newline=newline))
        records = _csv_records(path, file, schema) if is_csv else _json_records(path, file)
        while batch := [*islice(records, 1 if path == "-" else BATCH)]:
            yield batch


def _json_records(path: str, file: TextIO) -> Iterator[Record]:
    for number, line in enumerate(_lines(path, file), 1):
        text = line.strip()
        if not text:
            continue
        try:
            values = json.loads(text, parse_float=Number)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise EventError(f"{path}, line {number}: not a JSON object")
        yield Record(values, text)


def _csv_records(path: str, file: TextIO, schema: Attributes) -> Iterator[Record]:
    rows = csv.DictReader(_lines(path, file), strict=True)
    try:
        for row in rows:
            if None in row or None in row.values():
                raise EventError(f"{path}, line {rows.line_num}: not as many values as names")
            values = {
                name: _csv_value(schema[name], text) if name in schema else text
                for name, text in row.items()
            }
            yield Record(values, json.dumps(values))
    except csv.Error as error:
        raise EventError(f"{path}, line {rows.line_num}: {error}") from None


def _lines(path: str, file: TextIO) -> Iterator[str]:
    try:
        yield from file
    except UnicodeDecodeError:
        raise EventError(f"{path} is not a text in UTF-8") from None


def _csv_value(kind: AttributeType, text: str) -> Any:
    """Convert a text of CSV. Return it unchanged if it does not fit; the schema refuses it then."""
    if kind.nullable and not text:
        return None
    if isinstance(kind, UInt | Int):
        try:
            return int(text)
        except ValueError:
            return text
    return _TRUTH.get(text.lower(), text) if isinstance(kind, Bool) else text
