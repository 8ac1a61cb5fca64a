"""Records of a file or of standard input: JSON lines, or CSV with a line of names."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from ccbps.cli.command import Parser
from ccbps.errors import EventError
from ccbps.predicates import AttributeType, Bool, Category, Int, Keyword, Text, UInt
from ccbps.predicates.attributes import Attributes

BATCH: Final = 256
"""Records of a file at a time. Of standard input each comes alone, as soon as it is there."""
_TEXTUAL: Final = (Category, Keyword, Text)
_TRUTH: Final = {"true": True, "false": False, "1": True, "0": False}


class Record(NamedTuple):
    """One record.

    Attributes:
        values: by name.
        text: as JSON, for those who get it.
    """

    values: dict[str, Any]
    text: str


def add_records(parser: Parser, name: str, about: str) -> None:
    """The arguments that say where records are; `batches` takes them."""
    optional: dict[str, Any] = {} if name.startswith("-") else {"nargs": "?", "default": "-"}
    parser.add_argument(name, metavar="FILE", help=about, **optional)
    parser.add_argument(
        "--format",
        choices=("json", "csv"),
        help="JSON lines, or CSV with a line of names; by default as the file's name ends",
    )


def batches(path: str, kind: str | None, schema: Attributes) -> Iterator[list[Record]]:
    """Records, some at a time.

    Args:
        path: of a file; ``-`` for standard input.
        kind: "json", "csv", or None for what the path says.
        schema: what values of CSV are to be; columns that it does not have stay text.

    Raises:
        EventError: a line is no record.
    """
    csv_given = kind == "csv" or (kind is None and path.endswith(".csv"))
    with _opened(path, "" if csv_given else None) as file:
        found = _from_csv(path, file, schema) if csv_given else _from_json(path, file)
        while batch := [*islice(found, 1 if path == "-" else BATCH)]:
            yield batch


@contextmanager
def _opened(path: str, newline: str | None) -> Iterator[TextIO]:
    if path == "-":
        yield sys.stdin
        return
    with Path(path).open(encoding="utf-8", newline=newline) as file:
        yield file


def _from_json(path: str, file: TextIO) -> Iterator[Record]:
    for number, line in enumerate(_lines(path, file), 1):
        text = line.strip()
        if not text:
            continue
        try:
            values = json.loads(text, parse_float=Decimal)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise EventError(f"{path}, line {number}: not a JSON object")
        yield Record(values, text)


def _from_csv(path: str, file: TextIO, schema: Attributes) -> Iterator[Record]:
    rows = csv.DictReader(_lines(path, file), strict=True)
    try:
        for row in rows:
            if None in row or None in row.values():
                raise EventError(f"{path}, line {rows.line_num}: not as many values as names")
            values = {
                name: _value(schema[name], text) if name in schema else text
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


def _value(kind: AttributeType, text: str) -> Any:
    """What a text of CSV stands for; what it cannot be stays text, and the schema refuses it."""
    if kind.nullable and not text:
        return None
    if isinstance(kind, _TEXTUAL):
        return text
    if isinstance(kind, UInt | Int):
        try:
            return int(text)
        except ValueError:
            return text
    return _TRUTH.get(text.lower(), text) if isinstance(kind, Bool) else text
