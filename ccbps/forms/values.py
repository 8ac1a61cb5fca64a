"""Arguments that list values of attributes: checked, as codes, and as JSON.

A code names a value exactly, whatever its type, and equal values alike: 5 and 5.0, or the dates of
two libraries. So JSON has codes, and a matcher made of JSON takes them in place of values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ccbps.checks import instance
from ccbps.errors import ParameterError
from ccbps.predicates import Schema
from ccbps.predicates.types import AttributeType, Refused


class Code(int):
    """A value of an attribute by its code, where it cannot be given as itself: in JSON."""


def listed(name: str, values: Any) -> list[Any]:
    """Check an argument that must hold several values; return them as a list."""
    # Text and mappings can be listed, but letters or keys are not what is meant.
    if not isinstance(values, str | bytes | Mapping):
        with suppress(TypeError):
            return list(values)
    raise ParameterError(f"{name} must be a list of values, got {values!r}")


def by_attribute(schema: Schema, argument: str, given: Any, example: str) -> dict[str, Any]:
    """Check an argument that must be a mapping from attributes, or None; return it as a dict."""
    if given is None:
        return {}
    hint = f"map attributes to values, such as {example}"
    for name in instance(argument, given, Mapping, hint=hint):
        if name not in schema:
            raise ParameterError(f"the schema has no attribute {name!r} for {argument}")
    return dict(given)


def codes_of(name: str, kind: AttributeType, values: Any) -> list[int]:
    """Encode an argument that must list values of an attribute."""
    codes = []
    for value in listed(name, values):
        try:
            code = value if isinstance(value, Code) else kind.number_of(value) + kind.lowest
            if not kind.lowest <= code <= kind.highest:
                raise Refused("out of range")
        except Refused as error:
            raise ParameterError(f"{name}: {error}; expected {kind.accepts}") from None
        codes.append(int(code))
    return codes


def codes_to_json(codes: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
    """Write codes of attributes in hexadecimal: alike for equal values, such as 5 and 5.0."""
    return {name: list(map(hex, values)) for name, values in codes.items()}


def codes_from_json(argument: str, given: Any) -> dict[str, list[Code]]:
    """Read the codes that `codes_to_json` wrote.

    Raises:
        ParameterError: the text is malformed.
    """
    with suppress(AttributeError, TypeError, ValueError):
        codes = {name: [Code(text, 16) for text in texts] for name, texts in given.items()}
        if codes_to_json(codes) == given:
            return codes
    raise ParameterError(
        f"{argument} must be lists of codes in hexadecimal by attribute, got {given!r}"
    )
