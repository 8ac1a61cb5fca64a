"""Boxes: predicates that are one range of codes for every attribute.

A box over all attributes of a schema hides which attributes a subscription constrains: "don't
care" is a full range, an equality a short one, a contradiction an empty one. `box_of` decides
exactly whether the events for which a predicate is TRUE form one box, whatever way it is written,
up to a bound on the work.

`union_of` brings the predicate to a union of products. If several remain, their union is a box
exactly when it covers its own bounding box.

Not protected: a box is the subscription itself. Its repr hides the ranges.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.predicates.attributes import Attributes, Events
from ccbps.predicates.codes import BoolArray, Intervals, conjunction, in_range
from ccbps.predicates.expression import Condition, Constant, Expression, iter_nodes, operands_of
from ccbps.predicates.form import Form
from ccbps.predicates.normal import (
    MAX_PRODUCTS,
    Conjunction,
    NormalForm,
    NotABox,
    Part,
    Product,
    difference,
    union_of,
)
from ccbps.predicates.types import EMPTY

_SHOWN: Final = 5
"""Intervals that an error spells out."""

_HELP: Final = (
    "accepted is a conjunction of intervals, equalities and prefixes; write several "
    "subscriptions, or take FormulaMatch(schema, template), whose template is any formula"
)


@dataclass(frozen=True, slots=True, repr=False)
class Box:
    """One inclusive range of codes for every attribute.

    Example:
        >>> from ccbps import Schema, UInt
        >>> schema = Schema(price=UInt(16), volume=UInt(16))
        >>> box = schema.parse("price < 120").box()
        >>> box                                         # the ranges are the subscriber's secret
        <Box over 2 attributes>
        >>> box.ranges
        {'price': (0, 119), 'volume': (0, 65535)}

    Attributes:
        schema: attributes that the codes are of.
        ranges: (low, high) for every attribute, in the schema's order. Don't-care is
            (0, size - 1), the NULL code included; a box without events has (1, 0) for the first
            attribute and don't-care for the others.
    """

    schema: Attributes
    ranges: dict[str, tuple[int, int]]

    def __post_init__(self) -> None:
        if tuple(self.ranges) != self.schema.names:
            raise ParameterError("a box needs one range for every attribute, in schema order")
        for name, (low, high) in self.ranges.items():
            inside = 0 <= low <= high < self.schema[name].size
            if not inside and (low, high) != EMPTY:
                raise ParameterError(f"attribute {name!r}: not a range of its codes")

    def __repr__(self) -> str:
        return f"<Box over {len(self.ranges)} attributes>"

    def evaluate(self, events: Events) -> BoolArray:
        """Tell which events are inside, shape (count,)."""
        return conjunction(
            [in_range(events.codes[name], low, high) for name, (low, high) in self.ranges.items()]
        )


def box_of(schema: Attributes, form: Form, expression: Expression, text: str) -> Box:
    """Derive the box of a bound predicate.

    Args:
        schema: the attributes, and their order in the box.
        form: the predicate's code form, all bounds filled in.
        expression: the same predicate as a tree; used to find positions for errors.
        text: the same predicate as written; likewise.

    Raises:
        UnsupportedPredicateError: the true set is not a box, or deciding it takes more than 64
            choices of an at_least or 256 alternatives.
    """
    try:
        part = NormalForm(schema, spell_out=False).of(form)
        return _single_box(schema, union_of(schema, part))
    except NotABox as problem:
        position = _position(expression, problem.attributes)
        reason, example = problem.reason, ""
        if problem.intervals:
            (name,) = problem.attributes
            shown = _as_written(schema, expression, name, problem.intervals)
            reason += f" ({len(problem.intervals)}{f': {shown}' if shown else ''})"
            example = f', here with "{_template(name, problem.intervals)}"'
        raise UnsupportedPredicateError(
            f"{reason}; {_HELP}{example}",
            text=text,
            position=position,
            summary=f"{problem.summary}; {_HELP}",
        ) from None


def _position(expression: Expression, attributes: frozenset[str]) -> int | None:
    """Return the position of the first condition on one of the attributes."""
    for node in iter_nodes(expression):
        if isinstance(node, Condition) and node.attribute in attributes:
            return node.position
    return expression.position


def _as_written(
    schema: Attributes, expression: Expression, name: str, intervals: Intervals
) -> str | None:
    """Write the intervals in the constants of the text; None where others would be needed.

    Values of private constants are not in the text, and so they are never shown.
    """
    kind = schema[name]
    written: dict[int, str] = {}
    for node in iter_nodes(expression):
        for attribute, use, operand in operands_of(node):
            value = operand.value if isinstance(operand, Constant) else None
            compared = attribute == name and use not in ("like", "hamming")
            if compared and isinstance(value, int | Decimal | str):
                low, high = kind.code_range("=", value)
                if low == high:
                    written[low] = repr(value) if isinstance(value, str) else str(value)
    if any(code not in written for pair in intervals for code in pair):
        return None
    shown = [
        written[low] if low == high else f"{written[low]} to {written[high]}"
        for low, high in intervals[:_SHOWN]
    ]
    more = len(intervals) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _template(name: str, intervals: Intervals) -> str:
    """Write a template that takes such intervals, with private constants for all bounds."""
    name = name if name.isidentifier() else f'"{name}"'
    if all(low == high for low, high in intervals):
        between = ", ..., " if len(intervals) > 2 else ", "
        return f"{name} IN (:v1{between}:v{len(intervals)})"
    between = " OR ... OR " if len(intervals) > 2 else " OR "
    first, last = (f"{name} BETWEEN :low{i} AND :high{i}" for i in (1, len(intervals)))
    return first + between + last


def _single_box(schema: Attributes, union: list[Product]) -> Box:
    full = {name: (0, schema[name].size - 1) for name in schema}
    if not union:
        return Box(schema, {**full, schema.names[0]: EMPTY})
    bounding = {
        name: (
            min(product[name][0][0] for product in union),
            max(product[name][-1][1] for product in union),
        )
        for name in schema
        if all(name in product for product in union)
    }
    box: Product = {name: (bounds,) for name, bounds in bounding.items()}
    rest = [box]
    for product in union:
        rest = [piece for part in rest for piece in difference(schema, part, product)]
        if len(rest) > MAX_PRODUCTS:
            break
    if not rest:
        return Box(schema, {**full, **bounding})
    if len(union) > 1:
        varying = [name for name in schema if len({product.get(name) for product in union}) > 1]
        names = ", ".join(repr(name) for name in varying)
        summary = "alternatives that differ in several attributes"
        raise NotABox(f"{summary} ({names})", summary, varying)
    name, needed = next((n, allowed) for n, allowed in union[0].items() if len(allowed) > 1)
    raise NotABox(
        f"attribute {name!r} needs more than one interval",
        "an attribute needs more than one interval",
        [name],
        needed,
    )


def is_empty(schema: Attributes, form: Form) -> bool:
    """Tell whether a bound form certainly holds for no event; False where that is too much work."""
    return _is_never(schema, NormalForm(schema, spell_out=False).of(form))


def _is_never(schema: Attributes, part: Part) -> bool:
    parts = part.parts if isinstance(part, Conjunction) and not part.negated else ()
    if any(_is_never(schema, other) for other in parts):
        return True
    try:
        return not union_of(schema, part)
    except NotABox:
        return False
