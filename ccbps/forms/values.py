"""Arguments that list values of attributes: checked, as codes, and as JSON.

A code names a value exactly, whatever its type, and equal values alike: 5 and 5.0, or the dates of
two libraries. So JSON has codes, and a matcher made of JSON takes them in place of values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, SupportsIndex

import numpy as np

from ccbps.errors import ParameterError
from ccbps.predicates import Schema
from ccbps.predicates.types import AttributeType, Refused


class Code(int):
    """A value of an attribute by its code, where it cannot be given as itself: in JSON."""


def whole_number(what: str, value: Any, wanted: str) -> int:
    """An argument that must be an integer, of NumPy or not, as an int."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, SupportsIndex):
        raise ParameterError(f"{what} must be {wanted}, got {value!r}")
    try:
        return value.__index__()
    except TypeError:  # an array of several numbers
        raise ParameterError(f"{what} must be {wanted}, got {value!r}") from None


def listed(what: str, values: Any) -> list[Any]:
    """An argument that must hold several values, as a list."""
    # Text and mappings can be listed, but letters or keys are not what is meant.
    if not isinstance(values, str | bytes | Mapping):
        with suppress(TypeError):
            return list(values)
    raise ParameterError(f"{what} must be a list of values, got {values!r}")


def by_attribute(schema: Schema, argument: str, given: Any, example: str) -> dict[str, Any]:
    """An argument that must be a mapping from attributes, or None, as a dict."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ParameterError(
            f"{argument} must be a mapping from attributes, such as {example}, got {given!r}"
        )
    for name in given:
        if name not in schema:
            raise ParameterError(f"the schema has no attribute {name!r} for {argument}")
    return dict(given)


def codes_of(what: str, kind: AttributeType, values: Any) -> list[int]:
    """Codes of an argument that must list values of an attribute."""
    codes = []
    for value in listed(what, values):
        try:
            code = value if isinstance(value, Code) else kind.number_of(value) + kind.lowest
            if not kind.lowest <= code <= kind.highest:
                raise Refused("out of range")
        except Refused as error:
            raise ParameterError(f"{what}: {error}; wanted {kind.accepts}") from None
        codes.append(int(code))
    return codes


def codes_to_json(codes: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
    """Codes of attributes in hexadecimal: alike for values that are, such as 5 and 5.0."""
    return {name: [hex(code) for code in some] for name, some in codes.items()}


def codes_from_json(argument: str, given: Any) -> dict[str, list[Code]]:
    """What `codes_to_json` wrote, as values.

    Raises:
        ParameterError: it did not write that.
    """
    try:
        found = {name: [Code(text, 16) for text in some] for name, some in given.items()}
    except (AttributeError, TypeError, ValueError):
        found = None
    if found is None or codes_to_json(found) != given:
        raise ParameterError(
            f"{argument} must be lists of codes in hexadecimal by attribute, got {given!r}"
        )
    return found
