"""Read the inputs that arguments name: texts, settings, schemas and matchers."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from decimal import Decimal as Number
from pathlib import Path
from typing import Any, Final, TypeVar

from ccbps import checks
from ccbps.cli.command import Option
from ccbps.errors import ParameterError
from ccbps.loading import need
from ccbps.matching import Matcher, from_json
from ccbps.matching.contract.scheme import Keying
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.written import schema_from_text
from ccbps.shares.operators import Operator

T = TypeVar("T")

MATCHER: Final = Option(
    "--matcher FILE", "matcher that plan --out or explain --out wrote", required=True
)
OPERATORS: Final = "public files of the operators of brokers 0, 1 and 2"
_SCHEMA: Final = (
    "--schema TEXT",
    "schema of events: 'price=UInt(16), ...' as in Python, or its JSON text",
)
SCHEMA: Final = Option(*_SCHEMA)
SCHEMA_NEEDED: Final = Option(*_SCHEMA, required=True)

NUMBERS: Final = 1 << 63
"""Rounds, and numbers of publications, are below it: SQLite's integers and messages hold them."""


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
        values[name] = read_value(value)
    return values


def read_value(text: str) -> Any:
    """Return the value of a text that is JSON, or else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def read_matcher(path: str) -> Matcher:
    """Return the matcher that ``ccbps plan --out`` or ``ccbps explain --out`` wrote to a file.

    Raises:
        DecodeError: the file holds no matcher.
    """
    return from_json(read_file(path))


def read_shares_matcher(path: str) -> Any:
    """Return a matcher for three brokers from its file.

    Raises:
        DecodeError: the file holds no matcher.
        ParameterError: the matcher has one broker.
        OSError: the file cannot be read.
    """
    matcher = read_matcher(path)
    if matcher.keying is not Keying.BROKERS:
        raise ParameterError(f"{type(matcher).__name__} has one broker: run ccbps broker")
    return matcher


def read_operators(paths: list[str]) -> tuple[Operator, Operator, Operator]:
    """Return the public sides of three operators from their files.

    Raises:
        DecodeError: a file holds none.
        OSError: a file cannot be read.
    """
    first, second, third = (Operator.from_text(read_file(path)) for path in paths)
    return first, second, third


def read_predicate(arguments: Namespace) -> tuple[Matcher | None, Predicate]:
    """Return the matcher of --matcher, if there is one, and the predicate with its --value.

    Raises:
        DecodeError: the file of the matcher holds none.
        ParameterError: --schema holds no schema, or --value no setting.
        PredicateError: the predicate cannot be used.
    """
    matcher = None if arguments.matcher is None else read_matcher(arguments.matcher)
    schema = read_schema(arguments.schema) if matcher is None else matcher.schema
    predicate = schema.parse(read_text(arguments.predicate))
    if arguments.value:
        predicate = predicate.bind(**read_settings("--value", arguments.value))
    return matcher, predicate


def read_schema(argument: str) -> Schema:
    """Return a schema from the text that Python shows of it, or from its JSON text.

    Raises:
        DecodeError: the text looks like JSON, and is no schema.
        ParameterError: the text is no schema in the short form.
    """
    return schema_from_text(read_text(argument))


def read_values(text: str) -> dict[str, Any]:
    """Read values of private constants.

    Raises:
        ParameterError: the text is no JSON object.
    """
    with contextlib.suppress(ValueError, RecursionError):
        values = json.loads(text, parse_float=Number)
        if isinstance(values, dict):
            return values
    raise ParameterError(
        "this matcher has a public template, and takes values of its private constants as a JSON "
        'object, {"limit": 120}'
    )


def read_rounds(text: str) -> range:
    """Read the rounds of ``FIRST:COUNT``.

    Raises:
        ParameterError: the text has another form, or a round is too large.
    """
    match = re.fullmatch("([0-9]{1,20}):([0-9]{1,20})", text)
    if match is None or not int(match[2]):
        shown = checks.shown(text)
        raise ParameterError(f"--rounds takes FIRST:COUNT, such as 0:1000, got {shown}")
    return numbers_from("--rounds FIRST", int(match[1]), int(match[2]))


def check_picture(path: str | None) -> None:
    """Refuse a file for a picture before its contents are computed.

    Raises:
        ParameterError: pictures have no such format.
        ImportError: matplotlib is not installed.
    """
    if path is None:
        return
    formats = need("--plot", "plot").FigureCanvasBase.filetypes
    if Path(path).suffix[1:].lower() not in formats:
        shown = checks.shown(path)
        raise ParameterError(f"--plot takes a file such as picture.png or picture.svg, got {shown}")


def numbers_from(option: str, first: int, count: int = 1) -> range:
    """Return rounds, or numbers of publications, that follow one another.

    Args:
        option: name of the option that gave the first, for errors.
        first: first number.
        count: number of numbers.

    Raises:
        ParameterError: a number would be negative, or too large.
    """
    hint = "all numbers from it on are below 2^63"
    checks.whole(option, first, 0, NUMBERS - count, hint=hint)
    return range(first, first + count)
