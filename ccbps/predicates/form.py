"""Code form: a predicate as two-valued logic over ranges of codes, with negation at the leaves.

A form is true exactly where the predicate is TRUE in SQL; unknown and false are both false here.
NULL is an ordinary code (0), and forms spell out where it must not count. Matchers compile forms.

`lower` derives a form from an expression. Two mutually recursive readings, T(e) = "e is TRUE" and
F(e) = "e is FALSE", push negation to the leaves: T(NOT e) = F(e), F(at least k of n) = at least
n - k + 1 are FALSE. Neither holds where e is unknown, so two-valued logic is enough afterwards.

Hidden: the shape of a form (nodes, attributes, order, flags, which bounds are public) depends on
the expression and its public constants only. Private constants fill bounds in and change nothing
else: a private constant outside the domain makes a range empty, it does not remove a leaf. This is
why the bounds of BETWEEN are both private as soon as one of its constants is.

Not protected: a form with its bounds filled in is the subscription. Its repr hides the bounds; the
form of an unbound predicate (`None` for private bounds) is the public template.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

import numpy as np

from ccbps.checks import Redacted
from ccbps.errors import ParameterError
from ccbps.predicates import expression as tree
from ccbps.predicates.attributes import Attributes, Events
from ccbps.predicates.codes import (
    BoolArray,
    conjunction,
    disjunction,
    distance_at_most,
    in_range,
    joined,
)
from ccbps.predicates.types import EMPTY, is_prefix


class Form(Redacted, frozen=True):
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

    _hidden: ClassVar[tuple[str, ...]] = ()

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


class InRange(Form, frozen=True):
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
        equal: True if the range comes from an equality: it holds one code or none.
        negated: True if the truth value is inverted.
        prefix: True if the range comes from a private LIKE: it holds the codes that begin with some
            bits, or none.
    """

    attribute: str
    low: int | None
    high: int | None
    equal: bool
    negated: bool
    prefix: bool = False
    _hidden = ("low", "high", "prefix")

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


class HammingWithin(Form, frozen=True):
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
        limit: greatest number of bits that differ, 0..bits.
        negated: True if the truth value is inverted.
    """

    attribute: str
    value: int | None
    limit: int
    negated: bool
    _hidden = ("value",)

    @property
    def centre(self) -> int:
        """Code from which distances are counted.

        Raises:
            ParameterError: the centre is private and not filled in.
        """
        if self.value is None:
            raise _unbound(self.attribute)
        return self.value

    def evaluate(self, events: Events) -> BoolArray:
        inside = distance_at_most(events.codes[self.attribute], self.centre, self.limit)
        return inside ^ np.bool_(self.negated)


class AllOf(Form, frozen=True):
    """An AND: all parts hold. Without parts it is true for every event.

    Example:
        >>> from ccbps import Schema, UInt
        >>> form = Schema(price=UInt(16)).parse("price > 5 AND NOT price > 9").true_form()
        >>> form.parts[1]
        InRange(attribute='price', equal=False, negated=True)
    """

    parts: tuple[Form, ...]

    def evaluate(self, events: Events) -> BoolArray:
        if not self.parts:
            return np.ones(events.count, dtype=np.bool_)
        return conjunction([part.evaluate(events) for part in self.parts])


class AnyOf(Form, frozen=True):
    """An OR: some part holds. Without parts it is false for every event.

    Example:
        >>> from ccbps import Schema, UInt
        >>> Schema(price=UInt(16)).parse("price IN (5, 9)").true_form().disjoint
        True
        >>> Schema(price=UInt(16)).parse("price < 5 OR price > 9").true_form().disjoint
        False

    Attributes:
        parts: the alternatives.
        disjoint: True if at most one of them can hold, for every event and all private constants.
    """

    parts: tuple[Form, ...]
    disjoint: bool

    def evaluate(self, events: Events) -> BoolArray:
        if not self.parts:
            return np.zeros(events.count, dtype=np.bool_)
        return disjunction([part.evaluate(events) for part in self.parts])


class AtLeastOf(Form, frozen=True):
    """A threshold: at least `k` of the parts hold, 1 < k < number of parts.

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


ALWAYS: Final = AllOf(())
"""The form that is true for every event."""
NEVER: Final = AnyOf((), disjoint=True)
"""The form that is false for every event."""


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
        if isinstance(node, (InRange, HammingWithin)):
            yield node
        else:
            pending.extend(reversed(node.children))


def is_bound(form: Form) -> bool:
    """Tell whether all private bounds of a form are filled in."""
    return all(
        None not in ((leaf.low, leaf.high) if isinstance(leaf, InRange) else (leaf.value,))
        for leaf in iter_leaves(form)
    )


# -- from expressions ------------------------------------------------------------------------------


def lower(schema: Attributes, expression: tree.Expression, constants: Mapping[str, Any]) -> Form:
    """Derive the code form of "the expression is TRUE".

    Args:
        schema: the attributes, which give the codes of constants.
        expression: the predicate; its constants have been checked against the schema.
        constants: values of private constants; bounds of those without a value are None.
    """
    return _Lowering(schema, constants).read(expression, True)


class _Lowering:
    def __init__(self, schema: Attributes, constants: Mapping[str, Any]) -> None:
        self.schema = schema
        self.constants = constants

    def read(self, node: tree.Expression, truth: bool) -> Form:
        """Return T(node) for the truth value True, F(node) for False."""
        if isinstance(node, tree.Not):
            return self.read(node.part, not truth)
        if isinstance(node, tree.Truth):
            return ALWAYS if node.value is truth else NEVER
        if isinstance(node, tree.Condition):
            return self._condition(node, truth)
        parts = tuple(self.read(part, truth) for part in node.parts)
        count = node.count if truth else len(parts) - node.count + 1
        if count == len(parts):
            return AllOf(parts)
        return AnyOf(parts, disjoint=False) if count == 1 else AtLeastOf(count, parts)

    def _condition(self, node: tree.Condition, truth: bool) -> Form:
        kind = self.schema[node.attribute]
        if node.operator == "null":
            if not kind.nullable:
                return NEVER if truth else ALWAYS
            null = InRange(node.attribute, 0, 0, equal=True, negated=False)
            return null if truth else self._not_null(node.attribute)[0]
        if node.operator == "in":
            return self._in(node, truth)
        if any(map(tree.is_null, node.operands)):
            return NEVER
        values = [tree.value_of(operand, self.constants) for operand in node.operands]
        if node.operator == "hamming":
            if node.limit < 0:
                return NEVER if truth else ALWAYS
            centre = None if values[0] is None else kind.code_range("hamming", values[0])[0]
            limit = min(node.limit, kind.bits)
            return HammingWithin(node.attribute, centre, limit, negated=not truth)
        if node.operator == "!=":
            truth = not truth
        operator = node.operator.replace("!=", "=")
        public = isinstance(node.operands[0], tree.Constant)
        low: int | None
        high: int | None
        if any(value is None for value in values):
            low = kind.lowest if operator in ("<", "<=") else None
            high = kind.highest if operator in (">", ">=") else None
        elif operator == "between":
            low, high = kind.code_range(">=", values[0])[0], kind.code_range("<=", values[1])[1]
            if low > high:
                low, high = EMPTY
        else:
            low, high = kind.code_range(operator, values[0])
        # A private pattern may or may not end in %, and the flags must not tell which.
        like = operator == "like"
        equal = public and not is_prefix(values[0]) if like else operator == "="
        prefix = like and not public and kind.aligned
        leaf = InRange(node.attribute, low, high, equal=equal, negated=not truth, prefix=prefix)
        # A range never contains NULL, so only its complement has to exclude it.
        guard = () if truth else self._not_null(node.attribute)
        return AllOf((*guard, leaf)) if guard else leaf

    def _not_null(self, attribute: str) -> tuple[Form, ...]:
        kind = self.schema[attribute]
        if not kind.nullable:
            return ()
        return (InRange(attribute, kind.lowest, kind.highest, equal=False, negated=False),)

    def _in(self, node: tree.Condition, truth: bool) -> Form:
        items = [item for item in node.operands if not tree.is_null(item)]
        if not items or (not truth and len(items) < len(node.operands)):
            # With a NULL in the list, "not equal to any" is never certain.
            return NEVER
        kind = self.schema[node.attribute]
        # Public constants go first: their leaves must not depend on a private one. They become as
        # few ranges as possible; four hundred neighbours are one range.
        constants = [item.value for item in items if isinstance(item, tree.Constant)]
        ranges = [kind.code_range("=", value) for value in constants]
        taken = {low for low, high in ranges if low <= high}
        bounds: list[tuple[int | None, int | None, bool]] = [
            (low, high, low == high) for low, high in joined((code, code) for code in taken)
        ]
        # Each private constant keeps a leaf of its own. One that is there already, as a public
        # constant or an earlier private one, is emptied: at most one alternative holds.
        for item in items:
            if isinstance(item, tree.Constant):
                continue
            value = tree.value_of(item, self.constants)
            if value is None:
                bounds.append((None, None, True))
                continue
            low, high = kind.code_range("=", value)
            if low in taken:
                low, high = EMPTY
            elif low <= high:
                taken.add(low)
            bounds.append((low, high, True))
        leaves = tuple(
            InRange(node.attribute, low, high, equal=equal, negated=not truth)
            for low, high, equal in bounds
        )
        if truth:
            return AnyOf(leaves, disjoint=True)
        return AllOf((*self._not_null(node.attribute), *leaves))
