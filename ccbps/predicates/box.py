"""Normal forms, unions of products, and boxes: predicates as sets of codes.

A *normal form* consists of conjunctions of sets of codes, and of negated conjunctions. An OR is a
negated conjunction of negated parts. So chains of AND and of OR are flat, whatever way they are
nested and negated, and conditions on one attribute in one chain are one set of codes:
``price > 5 AND price < 9``, ``price IN (5, 7) OR price > 9``. Constants are gone, but at the root.
Codes from `AttributeType.size` up do not occur in events; sets end below.

A *product* is the AND of a set of codes for each attribute. `union_of` writes a normal form as a
union of products: AND intersects them, and OR merges those that differ in one attribute or contain
each other.

A *box* is one range of codes for every attribute of a schema. It hides which attributes a
subscription constrains: "don't care" is a full range, an equality a short one, a contradiction an
empty one. `box_of` decides exactly whether the events for which a predicate is TRUE form one box,
whatever way it is written, up to a bound on the work: a union of products is a box exactly when it
covers its own bounding box.

Not protected: all three are the subscription itself. Their reprs show nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import combinations
from math import comb
from typing import Final, TypeAlias, TypeVar

from msgspec.structs import replace

from ccbps.checks import Printable, Redacted
from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.predicates.attributes import Attributes, Events
from ccbps.predicates.codes import (
    BoolArray,
    Intervals,
    common,
    complement,
    conjunction,
    in_range,
    joined,
)
from ccbps.predicates.expression import Condition, Constant, Expression, iter_nodes, operands_of
from ccbps.predicates.form import AllOf, AtLeastOf, Form, HammingWithin, InRange
from ccbps.predicates.types import EMPTY

MAX_HAMMING_CODES: Final = 1024
"""Most codes that a Hamming distance, or its negation, is spelled out to."""
MAX_PRODUCTS: Final = 256
MAX_PIECES: Final = 1 << 14
"""Most products that the comparison of two unions holds at a time."""
_MAX_CHOICES: Final = 64
_SHOWN: Final = 5
"""Intervals that an error spells out."""

_HELP: Final = (
    "accepted is a conjunction of intervals, equalities and prefixes; write several "
    "subscriptions, or take FormulaMatch.hidden(schema, leaves=n), or FormulaMatch(schema, "
    "template), whose template is any formula"
)

_SEVERAL: Final = "or write several subscriptions"
_SETS_HELP: Final = (
    "accepted is a conjunction of sets of values, each of a few intervals; take a box with more "
    f"intervals, a template or a hidden formula, {_SEVERAL}"
)
_UNION_HELP: Final = (
    "accepted is an OR of a few ANDs of sets of values; write several subscriptions, or take "
    "FormulaMatch(schema, template), whose template is any formula"
)

T = TypeVar("T")

Product: TypeAlias = dict[str, Intervals]
"""Allowed codes of the attributes that are constrained; never an empty set of codes."""


class Conjunction(Redacted, frozen=True):
    """An AND: every attribute in `sets` has a code of its set, and all `parts` hold.

    Attributes:
        sets: allowed codes of the attributes that are constrained.
        parts: other parts.
        negated: True if the truth value is inverted.
    """

    sets: Product
    parts: tuple[Part, ...]
    negated: bool


class AtLeast(Redacted, frozen=True):
    """A threshold: at least `k` of the parts hold, 1 < k < number of parts; or its negation."""

    k: int
    parts: tuple[Part, ...]
    negated: bool


class Distance(Redacted, frozen=True):
    """A Hamming distance: a code differs from `value` in at most `limit` bits; or its negation."""

    attribute: str
    value: int
    limit: int
    negated: bool


Part: TypeAlias = Conjunction | AtLeast | Distance

ALWAYS: Final = Conjunction({}, (), negated=False)
NEVER: Final = Conjunction({}, (), negated=True)


class NormalForm:
    """A maker of normal forms over one schema.

    Args:
        schema: the attributes.
        spell_out: True to turn Hamming distances into sets of codes, where these have at most
            `MAX_HAMMING_CODES` codes inside or outside.
    """

    def __init__(self, schema: Attributes, *, spell_out: bool) -> None:
        self.schema = schema
        self._spell_out = spell_out

    def of(self, form: Form) -> Part:
        """Return the normal form of a code form.

        Raises:
            ParameterError: a bound is private and not filled in.
        """
        if isinstance(form, InRange):
            return self.member(form.attribute, codes_of(self.schema, form))
        if isinstance(form, HammingWithin):
            return self._hamming(form)
        parts = [self.of(part) for part in form.children]
        if isinstance(form, AtLeastOf):
            return self._at_least(form.k, parts)
        return self.all_of(parts) if isinstance(form, AllOf) else self.any_of(parts)

    def member(self, attribute: str, allowed: Intervals) -> Part:
        """Return [the attribute's code is in the set]."""
        if allowed == ((0, self.schema[attribute].size - 1),):
            return ALWAYS
        return Conjunction({attribute: allowed}, (), negated=False) if allowed else NEVER

    def negation(self, part: Part) -> Part:
        """Return the negation of a part, which is free."""
        if isinstance(part, Conjunction) and len(part.sets) == 1 and not part.parts:
            ((name, allowed),) = part.sets.items()
            return self.member(name, complement(allowed, self.schema[name].size - 1))
        return replace(part, negated=not part.negated)

    def all_of(self, parts: Iterable[Part]) -> Part:
        """Return the AND of any number of parts."""
        sets: dict[str, list[Intervals]] = {}
        others: list[Part] = []
        for part in parts:
            if part == NEVER:
                return NEVER
            if not isinstance(part, Conjunction) or part.negated:
                others.append(part)
                continue
            others.extend(part.parts)
            for name, allowed in part.sets.items():
                sets.setdefault(name, []).append(allowed)
        merged = {name: _by_halves(alternatives, common, ()) for name, alternatives in sets.items()}
        if not all(merged.values()):
            return NEVER
        if len(others) == 1 and not merged:
            return others[0]
        return Conjunction(merged, tuple(others), negated=False)

    def any_of(self, parts: Iterable[Part]) -> Part:
        """Return the OR of any number of parts."""
        return self.negation(self.all_of(map(self.negation, parts)))

    def _at_least(self, k: int, parts: list[Part]) -> Part:
        k -= sum(part == ALWAYS for part in parts)
        parts = [part for part in parts if part not in (ALWAYS, NEVER)]
        if k <= 0 or k > len(parts):
            return ALWAYS if k <= 0 else NEVER
        if k == len(parts):
            return self.all_of(parts)
        return self.any_of(parts) if k == 1 else AtLeast(k, tuple(parts), negated=False)

    def _hamming(self, form: HammingWithin) -> Part:
        value, limit, bits = form.centre, form.limit, self.schema[form.attribute].bits
        if limit < 0 or limit >= bits:
            return ALWAYS if (limit >= bits) != form.negated else NEVER
        inside: Part = Distance(form.attribute, value, limit, negated=False)
        if limit == 0 or self._spell_out:
            # More than `limit` bits differ, if at most bits - limit - 1 differ from the opposite.
            opposite, others = value ^ ((1 << bits) - 1), bits - limit - 1
            if _ball(bits, limit) <= MAX_HAMMING_CODES:
                inside = self.member(form.attribute, _around(value, limit, bits))
            elif _ball(bits, others) <= MAX_HAMMING_CODES:
                outside = self.member(form.attribute, _around(opposite, others, bits))
                inside = self.negation(outside)
        return self.negation(inside) if form.negated else inside


def _by_halves(items: Sequence[T], join: Callable[[T, T], T], nothing: T) -> T:
    """Join items by halves: thousands of constants then cost about as much as sorting them."""
    if len(items) < 2:
        return items[0] if items else nothing
    middle = len(items) // 2
    first = _by_halves(items[:middle], join, nothing)
    return join(first, _by_halves(items[middle:], join, nothing))


def _ball(bits: int, limit: int) -> int:
    """Count the codes within a Hamming distance."""
    return sum(comb(bits, flipped) for flipped in range(limit + 1))


def _around(value: int, limit: int, bits: int) -> Intervals:
    """Return the codes within a Hamming distance of `value`."""
    codes = [
        value ^ sum(1 << place for place in places)
        for flipped in range(limit + 1)
        for places in combinations(range(bits), flipped)
    ]
    return joined((code, code) for code in codes)


def codes_of(schema: Attributes, leaf: InRange) -> Intervals:
    """Return the codes of events for which a leaf holds.

    Raises:
        ParameterError: a bound is private and not filled in.
    """
    last = schema[leaf.attribute].size - 1
    low, high = leaf.bounds
    low, high = max(low, 0), min(high, last)
    inside = ((low, high),) if low <= high else ()
    return complement(inside, last) if leaf.negated else inside


# -- unions of products -------------------------------------------------------------------------


class NotABox(Exception):
    """The true set is not a box.

    Attributes:
        reason: a sentence that names attributes.
        summary: the same without names.
        attributes: the attributes concerned.
        intervals: codes of the attribute that needs several intervals, where there is one.
    """

    def __init__(
        self, reason: str, summary: str, attributes: Iterable[str], intervals: Intervals = ()
    ) -> None:
        super().__init__(reason)
        self.reason, self.summary = reason, summary
        self.attributes = frozenset(attributes)
        self.intervals = intervals


def union_of(
    schema: Attributes, part: Part, *, most_pairs: int = MAX_PRODUCTS**2, negated: bool = False
) -> list[Product]:
    """Return products whose union is the true set of a part; none where the set is empty.

    Args:
        schema: the attributes.
        part: the part.
        most_pairs: largest number of pairs of products that are joined by AND at a time.
        negated: True to return products of the negation's true set.

    Raises:
        NotABox: there are too many products, or a Hamming distance.
    """
    if isinstance(part, Distance):
        raise NotABox(
            f"a Hamming distance on attribute {part.attribute!r} is not an interval",
            "a Hamming distance is not an interval",
            [part.attribute],
        )
    negated = negated != part.negated
    if isinstance(part, AtLeast) and comb(len(part.parts), part.k - negated) > _MAX_CHOICES:
        reason = f"at_least with more than {_MAX_CHOICES} ways to choose"
        raise NotABox(reason, reason, _attributes_of(part))
    unions = [
        union_of(schema, inner, most_pairs=most_pairs, negated=negated) for inner in part.parts
    ]
    if isinstance(part, AtLeast):
        k = len(unions) - part.k + 1 if negated else part.k
        choices = combinations(unions, k)
        return _any_of(schema, [_all_of(schema, list(choice), most_pairs) for choice in choices])
    if not negated:
        return _all_of(schema, [[dict(part.sets)], *unions], most_pairs)
    sets = part.sets.items()
    outside = [{name: complement(allowed, schema[name].size - 1)} for name, allowed in sets]
    return _any_of(schema, [*([product] for product in outside), *unions])


def _attributes_of(part: Part) -> set[str]:
    if isinstance(part, Distance):
        return {part.attribute}
    names = part.sets if isinstance(part, Conjunction) else ()
    return set(names).union(*map(_attributes_of, part.parts))


def _all_of(schema: Attributes, unions: list[list[Product]], most_pairs: int) -> list[Product]:
    def both(first: list[Product], second: list[Product]) -> list[Product]:
        if len(first) * len(second) > most_pairs:
            raise _too_many([*first, *second])
        pairs = (_intersection(left, right) for left in first for right in second)
        return _merged(schema, [product for product in pairs if product is not None])

    return _by_halves(unions, both, [{}])


def _any_of(schema: Attributes, unions: list[list[Product]]) -> list[Product]:
    return _by_halves(unions, lambda first, second: _merged(schema, first + second), [])


def _merged(schema: Attributes, products: list[Product]) -> list[Product]:
    """Write the same union in fewer products, as far as pairs of them can be merged."""
    merged: list[Product] = []
    pending = list(reversed(products))
    while pending:
        product = pending.pop()
        for place, other in enumerate(merged):
            both = _pair(schema, other, product)
            if both is not None:
                del merged[place]
                pending.append(both)
                break
        else:
            merged.append(product)
            if len(merged) > MAX_PRODUCTS:
                raise _too_many(merged)
    return merged


def _too_many(products: list[Product]) -> NotABox:
    reason = "too many alternatives"
    return NotABox(reason, reason, {name for product in products for name in product})


def _pair(schema: Attributes, left: Product, right: Product) -> Product | None:
    """Return the union of two products if it is obviously a product, else None."""
    if _contains(left, right):
        return left
    if _contains(right, left):
        return right
    differing = [name for name in {**left, **right} if left.get(name) != right.get(name)]
    if len(differing) != 1 or differing[0] not in left or differing[0] not in right:
        return None  # an attribute that only one of them constrains would be a containment
    name = differing[0]
    allowed = joined(left[name] + right[name])
    merged = {**left, name: allowed}
    if allowed == ((0, schema[name].size - 1),):
        del merged[name]
    return merged


def _contains(outer: Product, inner: Product) -> bool:
    return all(
        name in inner and common(inner[name], allowed) == inner[name]
        for name, allowed in outer.items()
    )


def _intersection(left: Product, right: Product) -> Product | None:
    merged = {**left, **right}
    for name in left.keys() & right.keys():
        merged[name] = common(left[name], right[name])
        if not merged[name]:
            return None
    return merged


def difference(schema: Attributes, whole: Product, part: Product) -> list[Product]:
    """Return `whole` without `part`: a product for each attribute that `part` limits."""
    pieces: list[Product] = []
    inside = dict(whole)
    for name, allowed in part.items():
        last = schema[name].size - 1
        here = inside.get(name, ((0, last),))
        outside = common(here, complement(allowed, last))
        if outside:
            pieces.append({**inside, name: outside})
        inside[name] = common(here, allowed)
        if not inside[name]:
            return pieces
    return pieces


def is_within(schema: Attributes, inner: Iterable[Product], outer: Iterable[Product]) -> bool:
    """Tell whether each event of one union of products is in another union, too."""
    left = [*inner]
    for part in outer:
        left = [piece for whole in left for piece in difference(schema, whole, part)]
        if len(left) > MAX_PIECES:
            raise NotABox("too many alternatives to compare", "too many alternatives", set())
    return not left


# -- boxes -----------------------------------------------------------------------------------------


class Box(Printable, Redacted, frozen=True):
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
        schema: schema of the attributes.
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
        sets = _single_product(schema, NormalForm(schema, spell_out=False).of(form))
        for name, allowed in sets.items():
            if len(allowed) > 1:
                raise NotABox(
                    f"attribute {name!r} needs more than one interval",
                    "an attribute needs more than one interval",
                    [name],
                    allowed,
                )
    except NotABox as problem:
        example = ""
        if problem.intervals:
            (name,) = problem.attributes
            example = f'{_HELP}, here with "{_template(name, problem.intervals)}"'
        raise _refusal(schema, expression, text, problem, _HELP, example) from None
    return Box(schema, {name: allowed[0] if allowed else EMPTY for name, allowed in sets.items()})


def sets_of(
    schema: Attributes, form: Form, expression: Expression, text: str, most: Mapping[str, int]
) -> dict[str, Intervals]:
    """Derive the set of codes of each attribute, for a bound predicate that is an AND of such sets.

    Args:
        schema: the attributes, and their order.
        form: the predicate's code form, all bounds filled in.
        expression: the same predicate as a tree; used to find positions for errors.
        text: the same predicate as written; likewise.
        most: greatest number of intervals of each attribute.

    Raises:
        UnsupportedPredicateError: the true set is not such an AND, an attribute needs more
            intervals, or deciding it takes more than 64 choices of an at_least or 256 alternatives.
    """
    try:
        sets = _single_product(schema, NormalForm(schema, spell_out=True).of(form))
    except NotABox as problem:
        raise _refusal(schema, expression, text, problem, _SETS_HELP) from None
    needed = {name: intervals_needed(schema[name].size, sets[name]) for name in schema}
    more = {name: count for name, count in needed.items() if count > most[name]}
    if more:
        name = next(iter(more))
        larger = NotABox(
            f"attribute {name!r} has more intervals than intervals={most[name]} allows",
            "an attribute has more intervals than the matcher allows",
            [name],
            sets[name],
        )
        special = f"take a box with at least intervals={more}, {_SEVERAL}"
        raise _refusal(schema, expression, text, larger, _SETS_HELP, special)
    return sets


def alternatives_of(
    schema: Attributes, form: Form, expression: Expression, text: str
) -> list[Product]:
    """Derive products whose union is the true set of a bound predicate; none where it is empty.

    Args:
        schema: the attributes.
        form: the predicate's code form, all bounds filled in.
        expression: the same predicate as a tree; used to find positions for errors.
        text: the same predicate as written; likewise.

    Raises:
        UnsupportedPredicateError: there are more than 256 products, an at_least with more than 64
            choices, or a Hamming distance of more than 1024 codes.
    """
    try:
        return union_of(schema, NormalForm(schema, spell_out=True).of(form))
    except NotABox as problem:
        raise _refusal(schema, expression, text, problem, _UNION_HELP) from None


def intervals_needed(size: int, allowed: Intervals) -> int:
    """Count the intervals that are needed for a set of codes below `size`, or for its complement.

    An interval has two ends. An end at the first or last code is none.
    """
    ends = sum((low > 0) + (high < size - 1) for low, high in allowed)
    return -(-ends // 2)


def _refusal(
    schema: Attributes,
    expression: Expression,
    text: str,
    problem: NotABox,
    advice: str,
    special: str = "",
) -> UnsupportedPredicateError:
    """Return the error of a predicate that is not a box.

    Args:
        schema: the attributes.
        expression: the predicate as a tree.
        text: the predicate as written.
        problem: the reason.
        advice: advice that names no attribute.
        special: advice for this predicate, in its place.
    """
    reason = problem.reason
    if problem.intervals:
        (name,) = problem.attributes
        shown = _as_written(schema, expression, name, problem.intervals)
        reason += f" ({len(problem.intervals)}{f': {shown}' if shown else ''})"
    return UnsupportedPredicateError(
        f"{reason}; {special or advice}",
        text=text,
        position=_position(expression, problem.attributes),
        summary=f"{problem.summary}; {advice}",
    )


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


def _single_product(schema: Attributes, part: Part) -> dict[str, Intervals]:
    """Return the set of codes of each attribute, where the true set of a part is their product.

    Raises:
        NotABox: the true set is no product, or finding out is too much work.
    """
    full: dict[str, Intervals] = {name: ((0, schema[name].size - 1),) for name in schema}
    union = union_of(schema, part)
    if not union:
        return {**full, schema.names[0]: ()}
    bounding = {
        name: joined(pair for product in union for pair in product[name])
        for name in schema
        if all(name in product for product in union)
    }
    rest: list[Product] = [bounding] if len(union) > 1 else []
    for product in union:
        rest = [piece for part in rest for piece in difference(schema, part, product)]
        if len(rest) > MAX_PRODUCTS:
            break
    if not rest:
        return {**full, **bounding}
    varying = [name for name in schema if len({product.get(name) for product in union}) > 1]
    names = ", ".join(repr(name) for name in varying)
    summary = "alternatives that differ in several attributes"
    raise NotABox(f"{summary} ({names})", summary, varying)


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
