"""Matchers: from a file, by name, or those that take a predicate."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ccbps import matching
from ccbps.cli.values import read_text
from ccbps.errors import ParameterError
from ccbps.matching import Matcher, from_json
from ccbps.matching.contract.scheme import Keying
from ccbps.matching.schemes import SCHEMES
from ccbps.predicates import Schema

_REUSE: Final = {
    Keying.ROUNDS: "one-time",
    Keying.SERVER: "reusable",
    Keying.SESSION: "session",
}
MAKERS: Final = ("box", "hidden")
"""Ways to make a matcher beside its constructor: FormulaMatch.box."""


def read_matcher(path: str) -> Matcher:
    """The matcher that ``ccbps explain --out`` wrote.

    Raises:
        DecodeError: it is not a matcher's text.
    """
    return from_json(read_text(path))


def make_matcher(schema: Schema, name: str, options: Mapping[str, Any]) -> Matcher:
    """A matcher by the name of its scheme.

    Args:
        schema: of events.
        name: ``TagMatch``, ``FormulaMatch.box``.
        options: arguments of its constructor, beside the schema.

    Raises:
        ParameterError: there is no such scheme, or it does not take these options.
    """
    scheme_name, _, maker = name.partition(".")
    scheme = {scheme.__name__: scheme for scheme in SCHEMES}.get(scheme_name)
    if scheme is None or (maker and (maker not in MAKERS or not hasattr(scheme, maker))):
        known = ", ".join(name for name in matching.__all__ if name.endswith("Match"))
        raise ParameterError(f"there is no matcher {name}; there are {known}")
    make: Any = getattr(scheme, maker) if maker else scheme
    try:
        made: Matcher = make(schema, **options)
    except TypeError as error:
        raise ParameterError(f"{name} does not take these options: {error}") from None
    return made


def table_of(matchers: Iterable[Matcher]) -> list[tuple[Matcher | None, str]]:
    """A line for each matcher, behind a heading: what its messages take, and what it is worth.

    Those that are broken come last.
    """
    ordered = sorted(matchers, key=lambda matcher: matcher.leakage.security == "broken")
    lines: list[tuple[Matcher | None, str]] = [
        (None, "event bytes  interest bytes  messages  security       matcher")
    ]
    for matcher in ordered:
        alike = [one for one in ordered if repr(one) == repr(matcher)]
        sizes = f"{matcher.event_bytes:>11,}  {matcher.interest_bytes:>14,}"
        worth = f"{_REUSE[matcher.keying]:<8}  {matcher.leakage.security:<13}"
        name = repr(matcher).strip("<>") + _differences(matcher, alike)
        lines.append((matcher, f"{sizes}  {worth}  {name}"))
    return lines


def _differences(matcher: Matcher, alike: list[Matcher]) -> str:
    """The parameters that tell a matcher from others of the same name."""
    own = matcher.parameters()
    others = [one.parameters() for one in alike if one is not matcher]
    shown = [
        f"{name}={json.dumps(value)}"
        for name, value in own.items()
        if any(other.get(name) != value for other in others)
    ]
    return f" {' '.join(shown)}" if shown else ""
