"""Operands: names resolved against the schema, and constants checked against its types.

Convention: names match exactly, else without regard to case if that is unique. Numbers are exact.
"""

from __future__ import annotations

import difflib
from functools import partial
from typing import TYPE_CHECKING, Final, TypeGuard

from ccbps.errors import (
    PredicateError,
    PredicateTypeError,
    UnknownAttributeError,
    UnsupportedPredicateError,
)
from ccbps.predicates import expression as tree
from ccbps.predicates import literals
from ccbps.predicates.attributes import Attributes
from ccbps.predicates.complaints import Complaints
from ccbps.predicates.constants import PatternError, check_constant, check_use
from ccbps.predicates.literals import Reading
from ccbps.predicates.syntax import Syntax
from ccbps.predicates.temporal import Timestamp
from ccbps.predicates.types import AttributeType, ConstantError

if TYPE_CHECKING:
    from sqlglot import exp

_QUOTES: Final = (
    "strings are written in single quotes; double_quoted_strings=True takes them in double quotes, "
    "and names in backticks only"
)


class Operands(Complaints):
    """Reads nodes of sqlglot that stand for an attribute, a constant or a placeholder.

    Attributes:
        readings: how each constant comes from its literal, by its position in the text.
    """

    def __init__(self, schema: Attributes, syntax: Syntax) -> None:
        super().__init__(syntax)
        self.schema = schema
        self.readings: dict[int, Reading] = {}

    def _kind(self, name: str) -> str:
        return type(self.schema[name]).__name__

    def _subject(self, node: exp.Expr) -> str:
        """The attribute that a condition is about."""
        kind = type(node).__name__
        if kind == "Column":
            return self._attribute(node)
        if kind in ("Literal", "Neg", "Placeholder", "Null", "Boolean"):
            backticks = "; a quoted name is written in backticks" if _is_string(node) else ""
            what = f"a condition needs an attribute, not only constants{backticks}"
            raise self._unsupported(what, node)
        if is_call(node, "hamming"):
            raise self._unsupported("hamming(...) is only compared with <= or < and a limit", node)
        raise self._construct(node)

    def _attribute(self, node: exp.Expr, *, hint: str = "") -> str:
        if node.args.get("table") is not None:
            raise self._unsupported("a name with a dot is not supported", node)
        self._only(node, "this")
        identifier = node.this
        if type(identifier).__name__ != "Identifier":
            raise self._construct(identifier, node)
        name = str(identifier.this)
        if name in self.schema:
            return name
        guess = ""
        folded = [known for known in self.schema if known.lower() == name.lower()]
        if len(folded) == 1:
            return folded[0]
        if folded:
            problem = f"attribute {name!r} is ambiguous between {', '.join(folded)}"
        else:
            by_folded = {known.lower(): known for known in self.schema}
            close = difflib.get_close_matches(name.lower(), by_folded, n=1)
            guess = f"; the closest is {by_folded[close[0]]!r}" if close else ""
            problem = f"unknown attribute {name!r}; the schema has {', '.join(self.schema)}{guess}"
        if self._in_double_quotes(node):
            hint = f"; {_QUOTES}"
        # What is not an attribute may be a constant whose quotes were forgotten.
        summary = f"unknown attribute; the schema has {', '.join(self.schema)}{guess}; {_QUOTES}"
        raise self._error(UnknownAttributeError, problem + hint, node, summary)

    def _in_double_quotes(self, node: exp.Expr) -> bool:
        return self.syntax.text.startswith('"', self.syntax.position(node))

    def _operand(self, name: str, operator: str, node: exp.Expr) -> tree.Operand:
        """A constant or placeholder, checked against the attribute's type."""
        node = unwrapped(node)
        use = "=" if operator == "!=" else operator
        kind = self.schema[name]
        try:
            check_use(kind, use)
            if type(node).__name__ == "Placeholder":
                return self._placeholder(node)
            constant = self._constant(kind, node)
            if constant.value is not None:
                check_constant(kind, use, constant.value)
            return constant
        except ConstantError as problem:
            refuse: type[PredicateError] = PredicateTypeError
            if isinstance(problem, PatternError):
                refuse = UnsupportedPredicateError
            message = f"attribute {name!r} ({self._kind(name)}): {problem}"
            raise self._error(refuse, message, node) from None

    def _placeholder(self, node: exp.Expr) -> tree.Private:
        name = node.this
        if not isinstance(name, str) or not name.isidentifier():
            raise self._unsupported("a private constant is written :name", node)
        return tree.Private(name, self.syntax.position(node))

    def _constant(self, kind: AttributeType, node: exp.Expr) -> tree.Constant:
        """A constant that is compared with an attribute of this type."""
        if type(node).__name__ == "Null":
            return tree.Constant(None, self.syntax.position(node))
        if type(node).__name__ == "Boolean":
            return tree.Constant(bool(node.this), self.syntax.position(node))
        reading, literal = self._literal(kind, node)
        position = self.syntax.position(literal)
        self.readings[position] = reading
        return tree.Constant(reading(str(literal.this)), position)

    def _literal(self, kind: AttributeType, node: exp.Expr) -> tuple[Reading, exp.Expr]:
        """The one literal of a constant, and how to read it."""
        what = type(node).__name__
        if what == "Literal" and node.args.get("is_string"):
            days = isinstance(kind, Timestamp) and kind.unit == "day"
            return literals.day if days else literals.words, node
        if what == "Literal":
            return _number(kind, node, negative=False), node
        if what == "Neg":
            inner = unwrapped(node.this)
            if type(inner).__name__ == "Literal" and not inner.args.get("is_string"):
                return _number(kind, inner, negative=True), inner
            if type(inner).__name__ == "Placeholder":
                raise self._unsupported("a private constant brings its own sign", node)
        if what == "Cast":
            return self._instant(node)
        if what in ("Date", "Timestamp") or is_call(node, "to_date"):
            return self._converted(node)
        if what == "Column":
            name = self._attribute(node, hint="; strings are written in single quotes")
            quotes = f"; {_QUOTES}" if self._in_double_quotes(node) else ""
            raise self._unsupported(
                f"attribute {name!r} stands where a constant is expected; attributes are not "
                f"compared with one another{quotes}",
                node,
            )
        raise self._construct(node)

    def _converted(self, node: exp.Expr) -> tuple[Reading, exp.Expr]:
        """date('...'), to_date('...') and timestamp('...')."""
        call = is_call(node, "to_date")
        arguments = node.expressions if call else [node.this, *node.expressions]
        text = (
            unwrapped(arguments[0]) if len(arguments) == 1 and not node.args.get("zone") else None
        )
        if not _is_string(text):
            what = "date(...), to_date(...) and timestamp(...) take one string, without a format"
            raise self._unsupported(what, node)
        return literals.timestamp if type(node).__name__ == "Timestamp" else literals.date, text

    def _instant(self, node: exp.Expr) -> tuple[Reading, exp.Expr]:
        """DATE '...', TIMESTAMP '...' and casts of a string to one of them."""
        self._only(node, "this", "to", "_type")
        target = getattr(node.args["to"].this, "name", "")
        text = unwrapped(node.this)
        if not _is_string(text) or target not in ("DATE", "TIMESTAMP", "TIMESTAMPTZ", "DATETIME"):
            what = (
                "only a string is cast, to DATE or TIMESTAMP; other constants are written plainly"
            )
            raise self._unsupported(what, node)
        return literals.date if target == "DATE" else literals.timestamp, text


def _number(kind: AttributeType, literal: exp.Expr, *, negative: bool) -> Reading:
    if str(literal.this)[-1:].isalpha():
        return partial(literals.suffixed, kind=kind, negative=negative)
    return literals.minus if negative else literals.number


def _is_string(node: exp.Expr | None) -> TypeGuard[exp.Expr]:
    return node is not None and type(node).__name__ == "Literal" and bool(node.args["is_string"])


def unwrapped(node: exp.Expr) -> exp.Expr:
    while type(node).__name__ == "Paren":
        node = node.this
    return node


def is_call(node: exp.Expr, function: str) -> bool:
    return type(node).__name__ == "Anonymous" and str(node.this).lower() == function
