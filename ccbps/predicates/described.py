"""Descriptions: schemas, templates and matchers as JSON text, for parties without trust.

The text is read strictly. A type's description must be exactly the one that the type gives of
itself; anything else, an unknown field or version included, is a `DecodeError`. Nothing in the text
is run or imported, and the work is bounded by its length.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from ccbps import predicates
from ccbps.checks import other_version
from ccbps.errors import DecodeError, ParameterError
from ccbps.predicates.attributes import Attributes
from ccbps.predicates.types import AttributeType

_VERSION: Final = 1
_MAX_CHARACTERS: Final = 1 << 26
_MAX_NUMBER: Final = 1000
"""Characters of one number or point in time, which are exact however long they are."""
_MAX_SHOWN: Final = 300
"""Characters of the problem that an error shows."""

_TYPES: Final = ("Bool", "UInt", "Int", "Decimal", "Category", "Keyword", "Text", "Timestamp")
"""Names of the types, which `ccbps.predicates` loads on first use."""


def to_text(name: str, content: dict[str, Any]) -> str:
    """Return JSON text of a "schema", "predicate" or "matcher"."""
    return json.dumps({"ccbps": name, "version": _VERSION, **content})


def from_text(
    name: str, text: str, fields: set[str], *, most: int = _MAX_CHARACTERS
) -> dict[str, Any]:
    """Read the fields of a text that `to_text` wrote.

    Raises:
        DecodeError: the text is malformed.
    """
    if not isinstance(text, str):
        raise DecodeError(f"a {name} is read from a string of JSON, got {type(text).__name__}")
    if len(text) > most:
        raise DecodeError(f"a {name} of more than {most:,} characters is not read")
    try:
        content = json.loads(
            text, object_pairs_hook=_fields_once, parse_float=_no_float, parse_constant=_no_float
        )
    except DecodeError:
        raise
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or content.get("ccbps") != name:
        raise DecodeError(f'this is not JSON text of a {name}: {{"ccbps": "{name}", ...}}')
    if type(content.get("version")) is not int or content["version"] != _VERSION:
        raise DecodeError(other_version(f"this {name}", content.get("version"), _VERSION))
    return _checked_fields(name, content, {"ccbps", "version", *fields})


def types_of(described: object) -> dict[str, AttributeType]:
    """Read names and types from a description by `Attributes.describe`.

    Raises:
        DecodeError: it is no description that `describe` gives.
    """
    attributes = _checked_fields("schema", described, {"attributes"})["attributes"]
    if not isinstance(attributes, list):
        raise DecodeError("the attributes of a schema are a list")
    types: dict[str, AttributeType] = {}
    for place, attribute in enumerate(attributes):
        subject = f"attribute {place} of the schema"
        name = attribute.get("name") if isinstance(attribute, dict) else None
        if not isinstance(name, str) or name in types:
            raise DecodeError(f"{subject} is not an object with a name of its own")
        types[name] = _type_of(subject, attribute)
    try:
        Attributes(types)
    except ParameterError as error:
        problem = str(error)[:_MAX_SHOWN]
    else:
        return types
    raise DecodeError(f"not a schema: {problem}")


def _type_of(subject: str, attribute: dict[str, Any]) -> AttributeType:
    parameters = {key: value for key, value in attribute.items() if key not in ("name", "type")}
    if attribute.get("type") not in _TYPES:
        raise DecodeError(f"{subject} has none of the types {', '.join(_TYPES)}")
    kind = getattr(predicates, attribute["type"])
    long = any(isinstance(v, str) and len(v) > _MAX_NUMBER for v in parameters.values())
    if long or not isinstance(parameters.get("nullable"), bool):
        raise DecodeError(f"{subject} is not described as a {kind.__name__} is")
    try:
        attribute_type: AttributeType = kind(**parameters)
        # Compared as text, in which 1 is not true: defaults, surplus and other spellings differ.
        same = json.dumps(attribute_type.describe(), sort_keys=True) == json.dumps(
            {"type": kind.__name__, **parameters}, sort_keys=True
        )
        problem = "" if same else f"not described as a {kind.__name__} describes itself"
    except (ParameterError, TypeError) as error:
        problem = str(error)
    if problem:
        raise DecodeError(f"{subject}: {problem[:_MAX_SHOWN]}")
    return attribute_type


def _checked_fields(subject: str, content: object, names: set[str]) -> dict[str, Any]:
    if not isinstance(content, dict) or content.keys() != names:
        raise DecodeError(f"a {subject} has the fields {', '.join(sorted(names))} and no others")
    return content


def _fields_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise DecodeError("a field of the JSON text occurs twice")
    return fields


def _no_float(text: str) -> NoReturn:
    raise DecodeError("the JSON text has a number that is not whole")
