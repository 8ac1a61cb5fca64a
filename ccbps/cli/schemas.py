"""Schemas as people write them: ``price=UInt(16), issue=Category(["AAPL", "IBM"])``.

This is what Python shows of a schema, with or without ``Schema(...)`` around it. It is read as a
text: nothing in it is run. The JSON text of `Schema.to_json` is read, too.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from ccbps.cli.values import text_of
from ccbps.errors import ParameterError
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

SCHEMA_HELP: Final = "of events: 'price=UInt(16), ...' as in Python, or JSON of Schema.to_json"

_TYPES: Final[dict[str, type[AttributeType]]] = {
    kind.__name__: kind for kind in (Bool, Category, Decimal, Int, Keyword, Text, Timestamp, UInt)
}


def read_schema(argument: str) -> Schema:
    """The schema of an argument.

    Raises:
        DecodeError: it looks like JSON and is no schema's.
        ParameterError: it is no schema in the short form.
    """
    text = text_of(argument).strip()
    if text.startswith("{"):
        return Schema.from_json(text)
    try:
        call = ast.parse(text if text.startswith("Schema(") else f"Schema({text})", mode="eval")
        types = _types_of(call.body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ParameterError(
            f'schema must be such as \'price=UInt(16), issue=Category(["AAPL", "IBM"])\', with '
            f"the types {', '.join(_TYPES)}: {error}"
        ) from None
    return Schema(types)


def _types_of(call: ast.expr) -> dict[str, AttributeType]:
    _, given, attributes = _parts(call, {"Schema": Schema})
    if given:
        raise ValueError("an attribute has no name")
    return {name: _type_of(kind) for name, kind in attributes.items()}


def _type_of(call: ast.expr) -> AttributeType:
    kind, given, options = _parts(call, _TYPES)
    values = {name: ast.literal_eval(value) for name, value in options.items()}
    made: AttributeType = kind(*map(ast.literal_eval, given), **values)
    return made


def _parts(
    call: ast.expr, known: dict[str, Any]
) -> tuple[Any, list[ast.expr], dict[str, ast.expr]]:
    """What is called, with which arguments.

    Raises:
        ValueError: it is no call of something known.
    """
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(f"{ast.unparse(call)} is not a type")
    if call.func.id not in known:
        raise ValueError(f"there is no type {call.func.id}")
    named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    if len(named) < len(call.keywords):
        raise ValueError("a name is missing")
    return known[call.func.id], call.args, named
