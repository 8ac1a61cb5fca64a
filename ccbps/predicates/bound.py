"""Predicates as arguments: SQL text or a `Predicate`, of one schema and with all constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.predicates.schema import Predicate, Schema


def bound_predicate(schema: Schema, interest: Any, name: str = "an interest") -> Predicate:
    """Return the predicate of SQL text or a `Predicate`, with all its constants.

    Args:
        schema: the predicate's schema.
        interest: the text or predicate.
        name: name of the argument in errors.

    Raises:
        ParameterError: `interest` is neither, or of another schema.
        PredicateError: the text does not parse, or a private constant has no value.
    """
    if isinstance(interest, str):
        from ccbps.predicates.parsed import PARSED  # here, since a publisher reads no predicates

        interest = PARSED.parse(schema, interest)
    if not isinstance(interest, Predicate):
        event = isinstance(interest, Mapping) and interest.keys() == set(schema)
        hint = "; an event is encoded by a publisher" if event else ""
        raise ParameterError(
            f"{name} is a predicate (SQL text or Predicate), got {type(interest).__name__}{hint}"
        )
    if interest.schema != schema:
        raise ParameterError("the predicate was parsed for another schema")
    if interest.unbound_names:
        names = ", ".join(interest.unbound_names)
        raise UnsupportedPredicateError(
            f"private constants ({names}) need values; call bind first",
            text=interest.text,
            summary="private constants need values; call bind first",
        )
    return interest
