"""Functions of all schemes: their list, and a matcher from its text."""

from __future__ import annotations

import json
import re
from typing import Final

from ccbps.errors import DecodeError
from ccbps.matching import broken, catalogue
from ccbps.matching.contract.matcher import Matcher, matcher_fields

SCHEMES: Final[tuple[type[Matcher], ...]] = tuple(
    scheme
    for listing in (catalogue, broken)
    for scheme in (getattr(listing, name) for name in getattr(listing, "__all__", vars(listing)))
    if isinstance(scheme, type) and issubclass(scheme, Matcher)
)
"""Every scheme: first `FormulaMatch`, then by folder and file, then those with a known attack."""


def page(scheme: type[Matcher]) -> str:
    """Return the name of a scheme's page: ``fsgp`` or ``access_tree``, for example."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", scheme.__name__.removesuffix("Match"))
    return words.lower()


def from_json(text: str) -> Matcher:
    """Make the matcher of a text from `Matcher.to_json`.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import FormulaMatch, from_json
        >>> matcher = FormulaMatch(Schema(price=UInt(8)), "price < :limit")
        >>> text = matcher.to_json()                      # public: print it, send it, keep it
        >>> from_json(text) == matcher
        True

    Raises:
        DecodeError: the text is not a matcher's, or no scheme has its name and version.
        ParameterError: the parameters are not possible.
    """
    fields = matcher_fields(text)
    for scheme in SCHEMES:
        if scheme.name == fields["scheme"]:
            return scheme.from_json(text)
    raise DecodeError(
        f"no scheme here is called {json.dumps(fields['scheme'])[:60]}: upgrade ccbps, or, for a "
        "scheme of another package, call from_json of its class"
    )
