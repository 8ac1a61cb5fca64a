"""Topics of events and subscriptions: the values of some attributes together, as codes.

Matchers of equality compare them: one value for each attribute of the topic, and nothing about the
others. A topic is a row of limbs, uint64, the most significant limb of each attribute first.

Hazard: topics are plaintext.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ccbps.arrays import Words
from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.attributes import Events
from ccbps.predicates.codes import pack


def chosen_names(schema: Schema, names: Sequence[str] | None) -> tuple[str, ...]:
    """Check a list of attributes; return them in the schema's order, or all for None.

    Raises:
        ParameterError: no list of names, none, not in the schema, or named twice.
    """
    if names is None:
        return schema.names
    wanted, came = f"must name some of {', '.join(schema)}", f"each once, got {names!r}"
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise ParameterError(f"attributes must be a list of names, which {wanted}, {came}")
    for name in names:
        if name not in schema.names:
            raise ParameterError(f"no attribute {name!r}: attributes {wanted}, {came}")
    if len(set(names)) < len(names):
        raise ParameterError(f"attributes must differ: they {wanted}, {came}")
    return tuple(name for name in schema if name in names)


def topic_attributes(schema: Schema, attributes: Sequence[str] | None) -> tuple[str, ...]:
    """Check the attributes that make a topic, as `chosen_names` does; a name stands for itself."""
    if isinstance(attributes, str):
        attributes = [attributes]
    return chosen_names(schema, None if attributes is None else tuple(attributes))


def topic_codes(events: Events, attributes: Sequence[str]) -> Words:
    """Return the topic of each event, shape (events, limbs)."""
    return np.concatenate([events.codes[name] for name in attributes]).T


def topic_of(predicate: Predicate, attributes: Sequence[str]) -> Words:
    """Return the topic that a predicate names, shape (limbs,).

    Raises:
        UnsupportedPredicateError: an attribute of the topic is left open, or another constrained.
    """
    schema, names = predicate.schema, ", ".join(attributes)
    codes = []
    for name, (low, high) in predicate.box().ranges.items():
        if name not in attributes:
            if (low, high) != (0, schema[name].size - 1):
                raise UnsupportedPredicateError(
                    f"{name!r} is not part of the topic ({names}): leave it out",
                    text=predicate.text,
                )
            continue
        if low != high:
            raise UnsupportedPredicateError(
                f"a topic has one value of {name!r}: use = on each of {names}", text=predicate.text
            )
        codes.append(pack([low], schema[name].limbs)[:, 0])
    return np.concatenate(codes)
