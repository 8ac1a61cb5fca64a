"""Products: for every attribute a set of codes; what is true of events is a union of them.

AND intersects products. OR merges those that differ in one attribute or contain each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from math import comb
from typing import Final, TypeAlias

from ccbps.predicates.attributes import Attributes
from ccbps.predicates.codes import Intervals, common, complement, joined
from ccbps.predicates.form import (
    AllOf,
    Always,
    AtLeastOf,
    Form,
    HammingWithin,
    InRange,
    iter_leaves,
)

MAX_PRODUCTS: Final = 256
_MAX_CHOICES: Final = 64

Product: TypeAlias = dict[str, Intervals]
"""Allowed codes of the attributes that are constrained; never an empty set of codes."""


class NotABox(Exception):
    """The true set is not a box.

    Attributes:
        reason: a sentence that names attributes.
        summary: the same without names.
        attributes: the attributes that it is about.
        intervals: the codes of the one attribute, where it is one that needs several intervals.
    """

    def __init__(
        self, reason: str, summary: str, attributes: Iterable[str], intervals: Intervals = ()
    ) -> None:
        super().__init__(reason)
        self.reason, self.summary = reason, summary
        self.attributes = frozenset(attributes)
        self.intervals = intervals


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


def union_of(schema: Attributes, form: Form) -> list[Product]:
    """Return products whose union is the true set; no product at all when it is empty.

    Raises:
        NotABox: there are too many products, or a Hamming distance.
    """
    if isinstance(form, InRange):
        allowed = codes_of(schema, form)
        if allowed == ((0, schema[form.attribute].size - 1),):
            return [{}]
        return [{form.attribute: allowed}] if allowed else []
    if isinstance(form, HammingWithin):
        raise NotABox(
            f"a Hamming distance on attribute {form.attribute!r} is not an interval",
            "a Hamming distance is not an interval",
            [form.attribute],
        )
    if isinstance(form, AtLeastOf) and comb(len(form.parts), form.k) > _MAX_CHOICES:
        reason = f"at_least with more than {_MAX_CHOICES} ways to choose"
        raise NotABox(reason, reason, [leaf.attribute for leaf in iter_leaves(form)])
    parts = [union_of(schema, part) for part in form.children]
    if isinstance(form, AllOf):
        return _all_of(schema, parts)
    if isinstance(form, AtLeastOf):
        parts = [_all_of(schema, list(choice)) for choice in combinations(parts, form.k)]
    return [{}] if isinstance(form, Always) else _any_of(schema, parts)


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
                reason = "too many alternatives"
                raise NotABox(reason, reason, {name for product in merged for name in product})
    return merged


def _pair(schema: Attributes, left: Product, right: Product) -> Product | None:
    """Return the union of two products if it is a product that is easy to see."""
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
