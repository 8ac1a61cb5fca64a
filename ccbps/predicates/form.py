"""Code form: a predicate as two-valued logic over ranges of codes, with negation at the leaves.

A form is true exactly where the predicate is TRUE in SQL; unknown and false are both false here.
NULL is an ordinary code (0), and forms spell out where it must not count. Matchers compile forms.

Not protected: a form with its bounds filled in is the subscription. Its repr hides the bounds; the
form of an unbound predicate (`None` for private bounds) is the public template.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ccbps.errors import ParameterError
from ccbps.predicates.attributes import Events
from ccbps.predicates.codes import BoolArray, conjunction, disjunction, distance_at_most, in_range


class Form(ABC):
    """A node of the code form.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.predicates import Form
        >>> schema = Schema(price=UInt(16), volume=UInt(16))
        >>> form = schema.parse("NOT (price < 120 OR volume < 5)").true_form()
        >>> isinstance(form, Form), len(form.children)
        (True, 2)
        >>> form.evaluate(schema.encode({"price": [120, 119], "volume": [5, 5]}))
        array([ True, False])
    """

    __slots__ = ()

    @abstractmethod
    def evaluate(self, events: Events) -> BoolArray:
        """Evaluate the form for every event, shape (count,).

        Raises:
            ParameterError: a bound is private and not filled in.
        """

    @property
    def children(self) -> tuple[Form, ...]:
        """Parts of an inner node; a leaf has none."""
        return getattr(self, "parts", ())


def _unbound(attribute: str) -> ParameterError:
    return ParameterError(f"a private constant on attribute {attribute!r} is not bound; bind first")


@dataclass(frozen=True, slots=True)
class InRange(Form):
    """A leaf: (low <= code <= high) XOR negated, over codes that include the NULL code.

    An empty range has ``high == low - 1``: (1, 0) where both bounds are free, otherwise next to
    the public bound, so `high` may be -1 and `low` may be one more than the greatest code.

    Example:
        >>> from ccbps import Schema, UInt
        >>> form = Schema(price=UInt(16)).parse("price < 120").true_form()
        >>> form, form.low, form.high
        (InRange(attribute='price', equal=False, negated=False), 0, 119)

    Attributes:
        attribute: name in the schema.
        low: least code inside, or None while it depends on an unbound private constant.
        high: greatest code inside, or None likewise.
        equal: whether the range comes from an equality: it holds one code or none.
        negated: whether the truth value is inverted.
        prefix: whether the range comes from a private LIKE. It then holds the codes that begin
            with some bits, or none.
    """

    attribute: str
    low: int | None = field(repr=False)
    high: int | None = field(repr=False)
    equal: bool
    negated: bool
    prefix: bool = field(default=False, repr=False)

    @property
    def bounds(self) -> tuple[int, int]:
        """(low, high).

        Raises:
            ParameterError: a bound is private and not filled in.
        """
        if self.low is None or self.high is None:
            raise _unbound(self.attribute)
        return self.low, self.high

    def evaluate(self, events: Events) -> BoolArray:
        return in_range(events.codes[self.attribute], *self.bounds) ^ np.bool_(self.negated)


@dataclass(frozen=True, slots=True)
class HammingWithin(Form):
    """A leaf: (bits that differ between code and value <= limit) XOR negated.

    The attribute is never nullable.

    Example:
        >>> from ccbps import Schema, UInt
        >>> form = Schema(flags=UInt(8)).parse("hamming(flags, 12) < 3").true_form()
        >>> form, form.value
        (HammingWithin(attribute='flags', limit=2, negated=False), 12)

    Attributes:
        attribute: name of a UInt attribute.
        value: the centre, or None while it is an unbound private constant.
        limit: number of bits, 0..bits.
        negated: whether the truth value is inverted.
    """

    attribute: str
    value: int | None = field(repr=False)
    limit: int
    negated: bool

    @property
    def centre(self) -> int:
        """Code from which distances are counted.

        Raises:
            ParameterError: it is private and not filled in.
        """
        if self.value is None:
            raise _unbound(self.attribute)
        return self.value

    def evaluate(self, events: Events) -> BoolArray:
        inside = distance_at_most(events.codes[self.attribute], self.centre, self.limit)
        return inside ^ np.bool_(self.negated)


@dataclass(frozen=True, slots=True)
class AllOf(Form):
    """An AND: all parts hold; at least one part.

    Example:
        >>> from ccbps import Schema, UInt
        >>> form = Schema(price=UInt(16)).parse("price > 5 AND NOT price > 9").true_form()
        >>> form.parts[1]
        InRange(attribute='price', equal=False, negated=True)
    """

    parts: tuple[Form, ...]

    def evaluate(self, events: Events) -> BoolArray:
        return conjunction([part.evaluate(events) for part in self.parts])


@dataclass(frozen=True, slots=True)
class AnyOf(Form):
    """An OR: some part holds; at least one part.

    Example:
        >>> from ccbps import Schema, UInt
        >>> Schema(price=UInt(16)).parse("price IN (5, 9)").true_form().disjoint
        True
        >>> Schema(price=UInt(16)).parse("price < 5 OR price > 9").true_form().disjoint
        False

    Attributes:
        parts: the alternatives.
        disjoint: whether at most one of them can hold, for every event and all private constants.
    """

    parts: tuple[Form, ...]
    disjoint: bool

    def evaluate(self, events: Events) -> BoolArray:
        return disjunction([part.evaluate(events) for part in self.parts])


@dataclass(frozen=True, slots=True)
class AtLeastOf(Form):
    """A threshold: at least `k` of the parts hold, 1 <= k <= number of parts.

    Example:
        >>> from ccbps import Schema, UInt
        >>> schema = Schema(price=UInt(16), volume=UInt(16), age=UInt(8))
        >>> form = schema.parse("at_least(2, price < 120, volume > 1000, age < 5)").true_form()
        >>> form.k, len(form.parts)
        (2, 3)
    """

    k: int
    parts: tuple[Form, ...]

    def evaluate(self, events: Events) -> BoolArray:
        held = np.sum([part.evaluate(events) for part in self.parts], axis=0)
        return np.asarray(held >= self.k, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Always(Form):
    """A constant: true for every event.

    Example:
        >>> from ccbps import Schema, UInt
        >>> Schema(price=UInt(16)).parse("price IS NOT NULL").true_form()
        Always()
    """

    def evaluate(self, events: Events) -> BoolArray:
        return np.ones(events.count, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Never(Form):
    """A constant: false for every event.

    Example:
        >>> from ccbps import Schema, UInt
        >>> Schema(price=UInt(16)).parse("price = NULL").true_form()
        Never()
    """

    def evaluate(self, events: Events) -> BoolArray:
        return np.zeros(events.count, dtype=np.bool_)


def iter_leaves(form: Form) -> Iterator[InRange | HammingWithin]:
    """Yield the leaves that look at an attribute, left to right.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.predicates import iter_leaves
        >>> schema = Schema(price=UInt(16), volume=UInt(16))
        >>> form = schema.parse("price < 5 AND (volume > 3 OR price > 2)").true_form()
        >>> [leaf.attribute for leaf in iter_leaves(form)]
        ['price', 'volume', 'price']
    """
    pending = [form]
    while pending:
        node = pending.pop()
        if isinstance(node, InRange | HammingWithin):
            yield node
        pending.extend(reversed(node.children))


def is_bound(form: Form) -> bool:
    """Tell whether no bound of a form is private and not filled in."""
    return all(
        None not in ((leaf.low, leaf.high) if isinstance(leaf, InRange) else (leaf.value,))
        for leaf in iter_leaves(form)
    )
