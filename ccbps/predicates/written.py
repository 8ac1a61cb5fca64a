"""Schemas as people write them: ``price=UInt(16), issue=Category(["AAPL", "IBM"])``.

The text is the repr of a schema. It is read as an expression of calls and literals, and nothing in
it is run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from ccbps.errors import ParameterError
from ccbps.predicates.numeric import Bool, Decimal, Int, UInt
from ccbps.predicates.schema import Schema
from ccbps.predicates.temporal import Timestamp
from ccbps.predicates.textual import Category, Keyword, Text
from ccbps.predicates.types import AttributeType

T = TypeVar("T")

_TYPES: Final[dict[str, type[AttributeType]]] = {
    kind.__name__: kind for kind in (Bool, Category, Decimal, Int, Keyword, Text, Timestamp, UInt)
}


def schema_from_text(text: str) -> Schema:
    """Return a schema from the text that Python shows of it, or from its JSON text.

    Example:
        >>> from ccbps.predicates.written import schema_from_text
        >>> schema_from_text("price=UInt(16), member=Bool()")
        Schema(price=UInt(16), member=Bool())

    Args:
        text: ``price=UInt(16), ...``, with or without ``Schema(...)`` around it, or JSON.

    Raises:
        DecodeError: the text looks like JSON, and is no schema.
        ParameterError: the text is no schema in the short form.
    """
    text = text.strip()
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
