"""Functions of all schemes: their list, proposals for a predicate, a matcher from its text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from ccbps.errors import DecodeError
from ccbps.matching import broken, catalogue
from ccbps.matching.contract.matcher import Matcher, making, matcher_fields
from ccbps.predicates import Predicate, Schema

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


def proposals(
    schema: Schema, predicate: Predicate, *, include_broken: bool = False
) -> Iterator[Matcher]:
    """Yield matchers of every scheme that take a predicate, or a template with private constants.

    Args:
        schema: the events' attributes.
        predicate: the predicate or template.
        include_broken: True to propose schemes with a known attack, too. They do not warn when
            they are proposed; their repr and their card, `Matcher.leakage`, name them broken.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import proposals
        >>> schema = Schema(price=UInt(8), volume=UInt(8))
        >>> matchers = proposals(schema, schema.parse("price < 10 OR NOT volume = 3"))
        >>> any("OFSGPMatch" in repr(matcher) for matcher in matchers)
        True
    """
    for scheme in SCHEMES:
        # List all of them first: a matcher that the caller makes between two of them must warn.
        with making(again=True):
            proposed = list(scheme.propose(schema, predicate))
        for matcher in proposed:
            if include_broken or matcher.leakage.security != "broken":
                yield matcher


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
        DecodeError: it is not such a text, or no scheme has that name and version.
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
