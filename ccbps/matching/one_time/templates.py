"""Public templates, and the values that subscribers give their private constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ccbps.errors import ParameterError
from ccbps.matching.contract.matcher import from_text
from ccbps.predicates import Predicate, Schema

MAX_TEMPLATE: Final = 1 << 17
"""Most characters of a template in a text: so many take some seconds to parse."""


def public_template(
    schema: Schema, template: str | Predicate | None, matcher: str, more: str = ""
) -> Predicate:
    """A template as a predicate whose private constants have no values.

    Args:
        schema: what it is to be of.
        template: SQL text, or a predicate.
        matcher: name of the matcher's class, for errors.
        more: what else to take without a template, besides the box.

    Raises:
        ParameterError: there is none, it is for another schema or already bound.
        PredicateError: it does not parse or does not fit the schema.
    """
    if template is None:
        raise ParameterError(
            f"{matcher}(schema, template) needs a public template, such as "
            "'price < :limit AND issue = :issue'; for subscriptions that each bring their own "
            f"conjunction of intervals, and hide it, take {matcher}.box(schema){more}"
        )
    predicate = schema.parse(template) if isinstance(template, str) else template
    if not isinstance(predicate, Predicate):
        raise ParameterError(
            f"template must be SQL text or a Predicate, got {type(template).__name__}"
        )
    if predicate.schema != schema:
        raise ParameterError("the template was parsed for another schema")
    if predicate.unbound_names != predicate.private_names:
        raise ParameterError(
            "the template's private constants have values, and a template is public; "
            "pass the predicate before bind()"
        )
    return predicate


def bound_template(template: Predicate, interest: Any) -> Predicate:
    """The template with an interest's values.

    Raises:
        ParameterError: the interest is no mapping from names to values, or does not fit.
        PredicateError: a value is not of its attribute.
    """
    if not isinstance(interest, Mapping):
        names = ", ".join(f":{name}" for name in template.private_names)
        raise ParameterError(
            "this matcher has a template: an interest is a mapping with values for its "
            f"private constants ({names or 'none'}), got {type(interest).__name__}"
        )
    if not all(isinstance(name, str) for name in interest):
        raise ParameterError("names of private constants must be strings")
    return template.bind(**interest)


def limit_template(template: Any) -> None:
    """Refuse a template that is too long for a text, which anybody may send."""
    if from_text() and isinstance(template, str) and len(template) > MAX_TEMPLATE:
        raise ParameterError(f"a text's template has at most {MAX_TEMPLATE:,} characters")
