"""Normal form: a predicate as conjunctions of sets of codes, and of negated conjunctions.

An OR is a negated conjunction of negated parts. So chains of AND and of OR are flat, whatever way
they are nested and negated, and conditions on one attribute in one chain are one set of codes:
``price > 5 AND price < 9``, ``price IN (5, 7) OR price > 9``. Constants are gone, but at the root.

Codes from `AttributeType.size` up do not occur in events; sets end below.

Not protected: a normal form is the subscription itself. Its repr shows nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import Final, TypeAlias

from ccbps.predicates.attributes import Attributes
from ccbps.predicates.codes import Intervals, common, complement, joined
from ccbps.predicates.form import AllOf, Always, AnyOf, AtLeastOf, Form, HammingWithin, InRange
from ccbps.predicates.products import Product, codes_of

MAX_HAMMING_CODES: Final = 1024
"""Most codes that a Hamming distance, or its negation, is spelled out to."""


@dataclass(frozen=True, slots=True, repr=False)
class Conjunction:
    """negated XOR (the code of every attribute in `sets` is in its set, and all `parts` hold)."""

    sets: Product
    parts: tuple[Part, ...]
    negated: bool


@dataclass(frozen=True, slots=True, repr=False)
class AtLeast:
    """negated XOR (at least `k` of the parts hold), 1 < k < number of parts."""

    k: int
    parts: tuple[Part, ...]
    negated: bool


@dataclass(frozen=True, slots=True, repr=False)
class Distance:
    """negated XOR (the attribute's code differs from `value` in at most `limit` bits)."""

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
        spell_out: whether Hamming distances become sets of codes, where these have at most
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
        if isinstance(form, AllOf):
            return self.all_of(parts)
        if isinstance(form, AnyOf):
            return self.any_of(parts)
        if isinstance(form, AtLeastOf):
            return self._at_least(form.k, parts)
        return ALWAYS if isinstance(form, Always) else NEVER

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
        merged = {name: _in_all(alternatives) for name, alternatives in sets.items()}
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


def _in_all(sets: Sequence[Intervals]) -> Intervals:
    """Intersect sets by halves: thousands of constants cost about as much as sorting them."""
    if len(sets) == 1:
        return sets[0]
    middle = len(sets) // 2
    return common(_in_all(sets[:middle]), _in_all(sets[middle:]))


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
