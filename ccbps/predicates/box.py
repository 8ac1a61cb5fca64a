"""Boxes: predicates that are one range of codes for every attribute.

A box over all attributes of a schema hides which attributes a subscription constrains: "don't
care" is a full range, an equality a short one, a contradiction an empty one. `box_of` decides
exactly whether the events for which a predicate is TRUE form one box, whatever way it is written,
up to a bound on the work.

It works on unions of *products*: for every attribute a set of codes, kept as disjoint sorted
intervals. AND intersects; OR merges products that differ in one attribute or contain each other.
If several products remain, their union is a box exactly when it covers its own bounding box.

Not protected: a box is the subscription itself. Its repr hides the ranges.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations
from math import comb
from typing import Final, TypeAlias

from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.predicates.codes import BoolArray, conjunction, in_range
from ccbps.predicates.expression import (
    And,
    AtLeast,
    Constant,
    Expression,
    Not,
    Or,
    attributes_of,
    iter_nodes,
    operands_of,
)
from ccbps.predicates.form import AllOf, Always, AnyOf, AtLeastOf, Form, HammingWithin, InRange
from ccbps.predicates.schema import Events, Schema
from ccbps.predicates.types import EMPTY, OPERATORS

__all__ = ["Box", "box_of"]

_MAX_CHOICES: Final = 64
_MAX_PRODUCTS: Final = 256
_SHOWN: Final = 5
"""Intervals that an error spells out."""

Intervals: TypeAlias = tuple[tuple[int, int], ...]
"""Disjoint, not even touching, ascending, each (low, high) inclusive; empty means no code."""

Product: TypeAlias = dict[str, Intervals]
"""Allowed codes of the attributes that are constrained; never an empty set of codes."""

_HELP: Final = (
    "accepted is a conjunction of intervals, equalities and prefixes; write several "
    "subscriptions, or take BranchingMatch(schema, template), whose template is any formula"
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
        schema: what the codes mean.
        ranges: (low, high) for every attribute, in the schema's order. Don't-care is
            (0, size - 1), the NULL code included; a box without events has (1, 0) for the first
            attribute and don't-care for the others.
    """

    schema: Schema
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
        """Whether each event is inside, shape (count,)."""
        return conjunction(
            [in_range(events.codes[name], low, high) for name, (low, high) in self.ranges.items()]
        )


class _NotABox(Exception):
    """Why there is no box, the same without names, and the attributes it is about.

    `intervals` is what the one attribute needs, where it is one that needs several.
    """

    def __init__(
        self, reason: str, summary: str, attributes: Iterable[str], intervals: Intervals = ()
    ) -> None:
        super().__init__(reason)
        self.reason, self.summary = reason, summary
        self.attributes = frozenset(attributes)
        self.intervals = intervals


def box_of(schema: Schema, form: Form, expression: Expression, text: str) -> Box:
    """The box of a bound predicate.

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
        return _single_box(schema, _union(schema, form))
    except _NotABox as problem:
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
    """Where the first condition on one of the attributes stands."""
    for node in iter_nodes(expression):
        inner = isinstance(node, (And, Or, Not, AtLeast))
        if not inner and attributes.intersection(attributes_of(node)):
            return node.position
    return expression.position


def _as_written(
    schema: Schema, expression: Expression, name: str, intervals: Intervals
) -> str | None:
    """The intervals in the constants of the text; None where others would be needed.

    Values of private constants are not in the text, and so they do not come in here either.
    """
    kind = schema[name]
    written: dict[int, str] = {}
    for node in iter_nodes(expression):
        for attribute, use, operand in operands_of(node):
            value = operand.value if isinstance(operand, Constant) else None
            if attribute == name and use in OPERATORS and isinstance(value, (int, Decimal, str)):
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
    """A template that takes such intervals, with private constants in place of all bounds."""
    name = name if name.isidentifier() else f'"{name}"'
    if all(low == high for low, high in intervals):
        between = ", ..., " if len(intervals) > 2 else ", "
        return f"{name} IN (:v1{between}:v{len(intervals)})"
    between = " OR ... OR " if len(intervals) > 2 else " OR "
    first, last = (f"{name} BETWEEN :low{i} AND :high{i}" for i in (1, len(intervals)))
    return first + between + last


def _single_box(schema: Schema, union: list[Product]) -> Box:
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
        rest = [piece for part in rest for piece in _difference(schema, part, product)]
        if len(rest) > _MAX_PRODUCTS:
            break
    if not rest:
        return Box(schema, {**full, **bounding})
    if len(union) > 1:
        varying = [name for name in schema if len({product.get(name) for product in union}) > 1]
        names = ", ".join(repr(name) for name in varying)
        summary = "alternatives that differ in several attributes"
        raise _NotABox(f"{summary} ({names})", summary, varying)
    name, needed = next((n, allowed) for n, allowed in union[0].items() if len(allowed) > 1)
    raise _NotABox(
        f"attribute {name!r} needs more than one interval",
        "an attribute needs more than one interval",
        [name],
        needed,
    )


# -- unions of products -------------------------------------------------------------------------


def _union(schema: Schema, form: Form) -> list[Product]:
    """Products whose union is the true set; no product at all when it is empty."""
    if isinstance(form, InRange):
        return _leaf(schema, form)
    if isinstance(form, Always):
        return [{}]
    if isinstance(form, AllOf):
        return _all_of(schema, [_union(schema, part) for part in form.parts])
    if isinstance(form, AnyOf):
        return _any_of(schema, [_union(schema, part) for part in form.parts])
    if isinstance(form, AtLeastOf):
        if comb(len(form.parts), form.k) > _MAX_CHOICES:
            reason = f"at_least with more than {_MAX_CHOICES} ways to choose"
            raise _NotABox(
                reason,
                reason,
                [leaf for part in form.parts for leaf in _names(part)],
            )
        parts = [_union(schema, part) for part in form.parts]
        choices = combinations(parts, form.k)
        return _any_of(schema, [_all_of(schema, list(choice)) for choice in choices])
    if isinstance(form, HammingWithin):
        raise _NotABox(
            f"a Hamming distance on attribute {form.attribute!r} is not an interval",
            "a Hamming distance is not an interval",
            [form.attribute],
        )
    return []  # Never


def _names(form: Form) -> list[str]:
    if isinstance(form, (InRange, HammingWithin)):
        return [form.attribute]
    return [name for child in form.children for name in _names(child)]


def _leaf(schema: Schema, leaf: InRange) -> list[Product]:
    last = schema[leaf.attribute].size - 1
    if leaf.low is None or leaf.high is None:
        raise ParameterError(f"a private constant on attribute {leaf.attribute!r} is not bound")
    inside: Intervals = ((leaf.low, leaf.high),) if leaf.low <= leaf.high else ()
    allowed = _complement(inside, last) if leaf.negated else inside
    if allowed == ((0, last),):
        return [{}]
    return [{leaf.attribute: allowed}] if allowed else []


# Both combine halves rather than one part after another: a list of thousands of constants then
# costs about as much as sorting it.


def _all_of(schema: Schema, unions: list[list[Product]]) -> list[Product]:
    if len(unions) < 2:
        return unions[0] if unions else [{}]
    middle = len(unions) // 2
    first, second = _all_of(schema, unions[:middle]), _all_of(schema, unions[middle:])
    pairs = (_intersection(left, right) for left in first for right in second)
    return _merged(schema, [product for product in pairs if product is not None])


def _any_of(schema: Schema, unions: list[list[Product]]) -> list[Product]:
    if len(unions) < 2:
        return unions[0] if unions else []
    middle = len(unions) // 2
    first, second = _any_of(schema, unions[:middle]), _any_of(schema, unions[middle:])
    return _merged(schema, first + second)


def _merged(schema: Schema, products: list[Product]) -> list[Product]:
    """The same union in fewer products, as far as pairs of them can be merged."""
    done: list[Product] = []
    waiting = list(reversed(products))
    while waiting:
        product = waiting.pop()
        for place, other in enumerate(done):
            both = _pair(schema, other, product)
            if both is not None:
                del done[place]
                waiting.append(both)
                break
        else:
            done.append(product)
            if len(done) > _MAX_PRODUCTS:
                reason = "too many alternatives"
                raise _NotABox(reason, reason, {name for one in done for name in one})
    return done


def _pair(schema: Schema, left: Product, right: Product) -> Product | None:
    """Union of two products if it is a product that is easy to see."""
    if _contains(left, right):
        return left
    if _contains(right, left):
        return right
    differing = [name for name in {**left, **right} if left.get(name) != right.get(name)]
    if len(differing) != 1 or differing[0] not in left or differing[0] not in right:
        return None  # an attribute that only one of them constrains would be a containment
    name = differing[0]
    allowed = _sum(left[name], right[name])
    merged = {**left, name: allowed}
    if allowed == ((0, schema[name].size - 1),):
        del merged[name]
    return merged


def _contains(outer: Product, inner: Product) -> bool:
    return all(
        name in inner and _common(inner[name], allowed) == inner[name]
        for name, allowed in outer.items()
    )


def _intersection(left: Product, right: Product) -> Product | None:
    merged = {**left, **right}
    for name in left.keys() & right.keys():
        merged[name] = _common(left[name], right[name])
        if not merged[name]:
            return None
    return merged


def _difference(schema: Schema, whole: Product, part: Product) -> list[Product]:
    """`whole` without `part`, as disjoint products: one for each attribute that `part` limits."""
    pieces: list[Product] = []
    inside = dict(whole)
    for name, allowed in part.items():
        last = schema[name].size - 1
        here = inside.get(name, ((0, last),))
        outside = _common(here, _complement(allowed, last))
        if outside:
            pieces.append({**inside, name: outside})
        inside[name] = _common(here, allowed)
        if not inside[name]:
            return pieces
    return pieces


# -- sets of codes of one attribute -------------------------------------------------------------


def _complement(allowed: Intervals, last: int) -> Intervals:
    """The codes 0..last that are not allowed."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for low, high in allowed:
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= last:
        gaps.append((start, last))
    return tuple(gaps)


def _common(left: Intervals, right: Intervals) -> Intervals:
    """Codes in both sets."""
    found: list[tuple[int, int]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        low = max(left[i][0], right[j][0])
        high = min(left[i][1], right[j][1])
        if low <= high:
            found.append((low, high))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def _sum(left: Intervals, right: Intervals) -> Intervals:
    """Codes in either set; neighbouring codes join into one interval."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(left + right):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)
