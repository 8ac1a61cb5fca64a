"""Products: for every attribute a set of codes; what is true of events is a union of them.

The sets are disjoint sorted intervals. AND intersects products; OR merges those that differ in one
attribute or contain each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from math import comb
from typing import Final, TypeAlias

from ccbps.errors import ParameterError
from ccbps.predicates.attributes import Attributes
from ccbps.predicates.form import AllOf, Always, AnyOf, AtLeastOf, Form, HammingWithin, InRange

MAX_PRODUCTS: Final = 256
_MAX_CHOICES: Final = 64

Intervals: TypeAlias = tuple[tuple[int, int], ...]
"""Disjoint, not even touching, ascending, each (low, high) inclusive; empty means no code."""

Product: TypeAlias = dict[str, Intervals]
"""Allowed codes of the attributes that are constrained; never an empty set of codes."""


class NotABox(Exception):
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


def union_of(schema: Attributes, form: Form) -> list[Product]:
    """Products whose union is the true set; no product at all when it is empty."""
    if isinstance(form, InRange):
        return _leaf(schema, form)
    if isinstance(form, Always):
        return [{}]
    if isinstance(form, AllOf):
        return _all_of(schema, [union_of(schema, part) for part in form.parts])
    if isinstance(form, AnyOf):
        return _any_of(schema, [union_of(schema, part) for part in form.parts])
    if isinstance(form, AtLeastOf):
        if comb(len(form.parts), form.k) > _MAX_CHOICES:
            reason = f"at_least with more than {_MAX_CHOICES} ways to choose"
            raise NotABox(
                reason,
                reason,
                [leaf for part in form.parts for leaf in _names(part)],
            )
        parts = [union_of(schema, part) for part in form.parts]
        choices = combinations(parts, form.k)
        return _any_of(schema, [_all_of(schema, list(choice)) for choice in choices])
    if isinstance(form, HammingWithin):
        raise NotABox(
            f"a Hamming distance on attribute {form.attribute!r} is not an interval",
            "a Hamming distance is not an interval",
            [form.attribute],
        )
    return []  # Never


def _names(form: Form) -> list[str]:
    if isinstance(form, (InRange, HammingWithin)):
        return [form.attribute]
    return [name for child in form.children for name in _names(child)]


def _leaf(schema: Attributes, leaf: InRange) -> list[Product]:
    last = schema[leaf.attribute].size - 1
    if leaf.low is None or leaf.high is None:
        raise ParameterError(f"a private constant on attribute {leaf.attribute!r} is not bound")
    inside: Intervals = ((leaf.low, leaf.high),) if leaf.low <= leaf.high else ()
    allowed = complement(inside, last) if leaf.negated else inside
    if allowed == ((0, last),):
        return [{}]
    return [{leaf.attribute: allowed}] if allowed else []


# Both combine halves rather than one part after another: a list of thousands of constants then
# costs about as much as sorting it.


def _all_of(schema: Attributes, unions: list[list[Product]]) -> list[Product]:
    if len(unions) < 2:
        return unions[0] if unions else [{}]
    middle = len(unions) // 2
    first, second = _all_of(schema, unions[:middle]), _all_of(schema, unions[middle:])
    pairs = (_intersection(left, right) for left in first for right in second)
    return _merged(schema, [product for product in pairs if product is not None])


def _any_of(schema: Attributes, unions: list[list[Product]]) -> list[Product]:
    if len(unions) < 2:
        return unions[0] if unions else []
    middle = len(unions) // 2
    first, second = _any_of(schema, unions[:middle]), _any_of(schema, unions[middle:])
    return _merged(schema, first + second)


def _merged(schema: Attributes, products: list[Product]) -> list[Product]:
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
            if len(done) > MAX_PRODUCTS:
                reason = "too many alternatives"
                raise NotABox(reason, reason, {name for one in done for name in one})
    return done


def _pair(schema: Attributes, left: Product, right: Product) -> Product | None:
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
    """`whole` without `part`, as disjoint products: one for each attribute that `part` limits."""
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


# -- sets of codes of one attribute -------------------------------------------------------------


def complement(allowed: Intervals, last: int) -> Intervals:
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


def common(left: Intervals, right: Intervals) -> Intervals:
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
