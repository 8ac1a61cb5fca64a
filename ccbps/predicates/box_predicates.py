"""Predicates of boxes: ranges of codes written as SQL, with their bounds as private constants.

A box is the meaning of a predicate. Parts of the package compute boxes of their own, such as the
hull of several subscriptions, but matchers take predicates. The text has a placeholder for each
bound. The placeholders' values are codes, so that no value has to be computed from a code.

Not protected: the bounds are the subscription. They are not in the text.
"""

from __future__ import annotations

from ccbps.checks import instance
from ccbps.errors import ParameterError
from ccbps.predicates.box import Box
from ccbps.predicates.parsed import PARSED
from ccbps.predicates.schema import Predicate, Schema
from ccbps.predicates.types import EMPTY, Code


def predicate_of(*boxes: Box) -> Predicate:
    """Write the union of boxes as a predicate.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.predicates.box_predicates import predicate_of
        >>> box = Schema(price=UInt(16), volume=UInt(16)).parse("price < 120 AND volume = 7").box()
        >>> predicate = predicate_of(box)
        >>> predicate.text
        '"price" <= :b0 AND "volume" = :b1'
        >>> predicate.box().ranges
        {'price': (0, 119), 'volume': (7, 7)}

    Args:
        *boxes: one or more boxes of one `Schema`.

    Raises:
        ParameterError: there is no box, they are of different schemas, or one of them holds no
            event or limits a `Keyword` to several codes.
    """
    if not boxes:
        raise ParameterError("predicate_of needs at least one box")
    schema = instance("a box's schema", boxes[0].schema, Schema)
    bounds: list[int] = []
    alternatives = []
    for box in boxes:
        if box.schema != schema:
            raise ParameterError("the boxes must be of one schema")
        conditions = [_condition(box, name, bounds) for name in schema]
        alternatives.append([text for text in conditions if text] or ["TRUE"])
    if len(boxes) == 1:
        text = " AND ".join(alternatives[0])
    else:
        text = " OR ".join(f"({' AND '.join(texts)})" for texts in alternatives)
    constants = {f"b{place}": Code(code) for place, code in enumerate(bounds)}
    return PARSED.parse(schema, text).bind(**constants)


def _condition(box: Box, name: str, bounds: list[int]) -> str:
    """Write the range of one attribute, or "" where it is no limit, and append its bounds."""
    kind, (low, high) = box.schema[name], box.ranges[name]
    if (low, high) == EMPTY:
        raise ParameterError("a box without events has no predicate: leave it out")

    def bound(code: int) -> str:
        bounds.append(code)
        return f":b{len(bounds) - 1}"

    quoted = f'"{name}"'  # which may be a word of SQL
    with_null, above = kind.nullable and low == 0, high < kind.highest
    if with_null and high == 0:
        return f"{quoted} IS NULL"
    if with_null:
        return f"({quoted} <= {bound(high)} OR {quoted} IS NULL)" if above else ""
    if low == high:
        return f"{quoted} = {bound(low)}"
    below = low > kind.lowest
    if below and above:
        return f"{quoted} BETWEEN {bound(low)} AND {bound(high)}"
    if below:
        return f"{quoted} >= {bound(low)}"
    if above:
        return f"{quoted} <= {bound(high)}"
    return f"{quoted} IS NOT NULL" if kind.nullable else ""
