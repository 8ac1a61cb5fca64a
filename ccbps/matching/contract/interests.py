"""Interests as callers give them: predicates with all their constants, and columns of interests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ccbps.circuits import Circuit
from ccbps.dictionary import DictionaryColumn, dictionary_of_strings
from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.parsed import PARSED
from ccbps.predicates.schema import told_apart

Interest = str | Predicate | Circuit | Mapping[str, Any]
"""One subscription: a predicate, a circuit (where a matcher takes circuits), or values for a
matcher's private constants."""


def bound_predicate(schema: Schema, interest: Any, what: str = "an interest") -> Predicate:
    """SQL text or a `Predicate` of this schema, with all its constants; `what` it is, for errors.

    Raises:
        ParameterError: it is neither, or of another schema.
        PredicateError: it does not parse, or a private constant has no value.
    """
    if isinstance(interest, str):
        interest = PARSED.parse(schema, interest)
    if not isinstance(interest, Predicate):
        raise ParameterError(
            f"{what} is a predicate (SQL text or Predicate), got {type(interest).__name__}"
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


def is_one_interest(interest: Any) -> bool:
    """One, and not a sequence or column of them. What is neither counts as one: it is refused."""
    return isinstance(interest, (str, Predicate, Circuit, Mapping)) or not isinstance(
        interest, (DictionaryColumn, Iterable)
    )


def interest_column(
    interests: Sequence[Interest] | DictionaryColumn[Interest],
) -> DictionaryColumn[Any]:
    """One interest per row; equal ones become one value, so that each is prepared once."""
    if isinstance(interests, DictionaryColumn):
        return interests.used()
    rows = list(interests)
    texts = [interest for interest in rows if isinstance(interest, str)]
    if len(texts) == len(rows):
        return dictionary_of_strings(texts)
    numbers: dict[Any, int] = {}
    index = [numbers.setdefault(_identity(row), len(numbers)) for row in rows]
    first = np.unique(index, return_index=True)[1]
    return DictionaryColumn([rows[i] for i in first], np.array(index, dtype=np.intp))


def _identity(interest: Any) -> Any:
    """Equal for interests that are the same; best if the converse holds, too."""
    if isinstance(interest, Predicate):
        return interest.identity()
    if isinstance(interest, (str, Circuit)):
        return interest
    if isinstance(interest, Mapping):
        items = told_apart(interest)
        return id(interest) if items is None else items
    return id(interest)
