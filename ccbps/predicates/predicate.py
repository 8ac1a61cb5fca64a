"""Predicate: one subscription over a schema, as text, tree, plaintext meaning, form and box.

A predicate with ``:name`` placeholders is a public template; `bind` makes a subscription from it
that keeps the template's text and tree and holds the private values beside them.

Hazard: a bound predicate, and any predicate without placeholders, is the subscriber's secret. Its
repr shows attribute names only, and `evaluate` is plaintext.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ccbps.errors import (
    ParameterError,
    PredicateError,
    PredicateTypeError,
    UnsupportedPredicateError,
)
from ccbps.predicates.box import Box, box_of
from ccbps.predicates.codes import BoolArray
from ccbps.predicates.constants import PatternError, check_constant
from ccbps.predicates.expression import (
    Expression,
    Private,
    attributes_of,
    iter_nodes,
    operands_of,
)
from ccbps.predicates.form import AllOf, AnyOf, Form, HammingWithin
from ccbps.predicates.lowering import lower
from ccbps.predicates.meaning import evaluate
from ccbps.predicates.schema import Events, Schema
from ccbps.predicates.types import ConstantError

__all__ = ["Predicate"]


class Predicate:
    """A parsed predicate; made by `Schema.parse`.

    Example:
        >>> from ccbps import Schema, UInt
        >>> schema = Schema(price=UInt(16), volume=UInt(16))
        >>> predicate = schema.parse("price < 120 AND volume > 1000")
        >>> predicate                              # no constants: they are the subscriber's secret
        <Predicate over price, volume>
        >>> predicate.evaluate({"price": [119, 119, 121], "volume": [1001, 1000, 1001]})
        array([ True, False, False])

    Attributes:
        schema: what its names mean.
        text: as written.
        expression: the tree, placeholders included.
        private_names: names of the placeholders, in order of first appearance.
    """

    __slots__ = ("_box", "_constants", "_form", "expression", "private_names", "schema", "text")

    def __init__(
        self,
        schema: Schema,
        text: str,
        expression: Expression,
        constants: Mapping[str, Any] | None = None,
    ) -> None:
        self.schema = schema
        self.text = text
        self.expression = expression
        self._constants: dict[str, Any] = dict(constants or {})
        self._box: Box | None = None
        self._form: Form | None = None
        names = [operand.name for _, _, operand in _privates(expression)]
        self.private_names: tuple[str, ...] = tuple(dict.fromkeys(names))

    def __repr__(self) -> str:
        names = ", ".join(attributes_of(self.expression)) or "no attribute"
        return f"<Predicate over {names}>"

    @property
    def unbound_names(self) -> tuple[str, ...]:
        """Names of the placeholders that have no value yet."""
        return tuple(name for name in self.private_names if name not in self._constants)

    def bind(self, /, **values: Any) -> Predicate:
        """The subscription with these private constants.

        Example:
            >>> from ccbps import Schema, UInt
            >>> template = Schema(price=UInt(16)).parse("price < :limit")
            >>> template.unbound_names
            ('limit',)
            >>> template.bind(limit=120).evaluate({"price": [119, 120]})
            array([ True, False])

        Raises:
            ParameterError: a placeholder is left out, or a name is not a placeholder.
            PredicateTypeError: a value does not fit its attribute, or is NULL.
            UnsupportedPredicateError: a private LIKE pattern is more than a prefix.
        """
        missing = [name for name in self.private_names if name not in values]
        unknown = [name for name in values if name not in self.private_names]
        if missing or unknown:
            known = ", ".join(self.private_names) or "none"
            problem = f"lacks {', '.join(missing)}" if missing else f"has no {', '.join(unknown)}"
            raise ParameterError(f"bind {problem}; private constants of this predicate: {known}")
        for attribute, use, operand in _privates(self.expression):
            self._check(attribute, use, operand, values[operand.name])
        return Predicate(self.schema, self.text, self.expression, values)

    def _check(self, attribute: str, use: str, operand: Private, value: Any) -> None:
        subject = f"private constant :{operand.name}, attribute {attribute!r}"
        problem: str
        refuse: type[PredicateError] = PredicateTypeError
        if value is None:
            problem = "a private constant cannot be NULL"
        else:
            try:
                check_constant(self.schema[attribute], use, value)
            except ConstantError as error:
                problem = str(error)
                if isinstance(error, PatternError):
                    refuse = UnsupportedPredicateError
            else:
                return
        # Raised outside the handler: the cause's frames would hold the private value.
        raise refuse(f"{subject}: {problem}", text=self.text, position=operand.position)

    def _require_bound(self) -> None:
        if self.unbound_names:
            raise ParameterError(
                f"private constants without a value: {', '.join(self.unbound_names)}; "
                "call bind first"
            )

    def evaluate(self, records: Any) -> BoolArray:
        """Which records SQL's WHERE would keep, shape (count,).

        Args:
            records: `Events` of this schema, or anything `Schema.encode` takes.

        Raises:
            ParameterError: a private constant has no value.
            EventError: the records do not fit the schema.
        """
        self._require_bound()
        events: Events = self.schema.encode(records)
        return evaluate(self.expression, events, MappingProxyType(self._constants))

    @property
    def never_matches(self) -> bool:
        """Whether no event at all can match, as with a word that is not in a Category's list.

        SQL accepts such a condition and finds nothing, and so does every matcher; ask here before a
        subscription waits forever. True is certain. The answer may be False for a contradiction
        that runs through many alternatives or through ``hamming``.

        Example:
            >>> from ccbps import Category, Schema
            >>> schema = Schema(issue=Category(["AAPL", "IBM"]))
            >>> schema.parse("issue = 'ibm'").never_matches          # the list has IBM
            True

        Raises:
            ParameterError: a private constant has no value.
        """
        self._require_bound()
        return self._is_empty(self.true_form())

    def _is_empty(self, form: Form) -> bool:
        if isinstance(form, AllOf) and any(map(self._is_empty, form.parts)):
            return True
        if isinstance(form, AnyOf):
            return all(map(self._is_empty, form.parts))
        if isinstance(form, HammingWithin):
            return False
        try:
            box = box_of(self.schema, form, self.expression, self.text)
        except UnsupportedPredicateError:  # not a box, so not empty, or too much work to tell
            return False
        return any(low > high for low, high in box.ranges.values())

    def true_form(self) -> Form:
        """Code form of "the predicate is TRUE"; bounds of unbound placeholders are None."""
        if self._form is None:
            self._form = lower(self.schema, self.expression, self._constants)
        return self._form

    def box(self) -> Box:
        """The predicate as one range of codes for every attribute.

        Example:
            >>> from ccbps import Schema, UInt
            >>> schema = Schema(price=UInt(16), volume=UInt(16))
            >>> schema.parse("price < 120 AND NOT price < 100").box().ranges
            {'price': (100, 119), 'volume': (0, 65535)}

        Raises:
            ParameterError: a private constant has no value.
            UnsupportedPredicateError: the predicate is not a box; says which attribute needs more.
        """
        if self._box is None:
            self._require_bound()
            self._box = box_of(self.schema, self.true_form(), self.expression, self.text)
        # Its dict is the caller's; this predicate may be others' too.
        return Box(self.schema, dict(self._box.ranges))


def _privates(expression: Expression) -> list[tuple[str, str, Private]]:
    """(attribute, use, placeholder) of every placeholder, in the order of the text."""
    return [
        (attribute, use, operand)
        for node in iter_nodes(expression)
        for attribute, use, operand in operands_of(node)
        if isinstance(operand, Private)
    ]
