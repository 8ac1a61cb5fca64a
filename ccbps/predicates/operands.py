"""Operands: names resolved against the schema, and constants checked against its types.

Convention: names match exactly, else without regard to case if that is unique. Numbers are exact.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

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
from ccbps.predicates.types import ConstantError

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["Operands", "is_call", "unwrapped"]


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
            raise self._unsupported("a condition needs an attribute, not only constants", node)
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
        if identifier.args.get("quoted") and not hint:
            hint = "; strings are written in single quotes"
        # What is not an attribute may be a constant whose quotes were forgotten.
        summary = (
            f"unknown attribute; the schema has {', '.join(self.schema)}{guess}; strings are "
            "written in single quotes"
        )
        raise self._error(UnknownAttributeError, problem + hint, node, summary)

    def _operand(self, name: str, operator: str, node: exp.Expr) -> tree.Operand:
        """A constant or placeholder, checked against the attribute's type."""
        node = unwrapped(node)
        position = self.syntax.position(node)
        use = "=" if operator == "!=" else operator
        kind = self.schema[name]
        try:
            check_use(kind, use)
            if type(node).__name__ == "Placeholder":
                return self._placeholder(node)
            value = self._constant(node, position)
            if value is not None:
                check_constant(kind, use, value)
            return tree.Constant(value, position)
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

    def _constant(self, node: exp.Expr, position: int) -> Any:
        kind = type(node).__name__
        if kind == "Null":
            return None
        if kind == "Boolean":
            return bool(node.this)
        reading, literal = self._literal(node)
        self.readings[position] = reading
        return reading(str(literal.this))

    def _literal(self, node: exp.Expr) -> tuple[Reading, exp.Expr]:
        """The one literal of a constant, and how to read it."""
        kind = type(node).__name__
        if kind == "Literal":
            return literals.words if node.args.get("is_string") else literals.number, node
        if kind == "Neg":
            inner = unwrapped(node.this)
            if type(inner).__name__ == "Literal" and not inner.args.get("is_string"):
                return literals.minus, inner
            if type(inner).__name__ == "Placeholder":
                raise self._unsupported("a private constant brings its own sign", node)
        if kind == "Cast":
            return self._instant(node)
        if kind == "Column":
            name = self._attribute(node, hint="; strings are written in single quotes")
            raise self._unsupported(
                f"attribute {name!r} stands where a constant is expected; attributes are not "
                "compared with one another",
                node,
            )
        raise self._construct(node)

    def _instant(self, node: exp.Expr) -> tuple[Reading, exp.Expr]:
        """DATE '...', TIMESTAMP '...' and casts of a string to one of them."""
        self._only(node, "this", "to", "_type")
        target = getattr(node.args["to"].this, "name", "")
        text = unwrapped(node.this)
        is_text = type(text).__name__ == "Literal" and text.args.get("is_string")
        if not is_text or target not in ("DATE", "TIMESTAMP", "TIMESTAMPTZ", "DATETIME"):
            raise self._unsupported("only a string is cast, to DATE or TIMESTAMP", node)
        return literals.date if target == "DATE" else literals.timestamp, text


def unwrapped(node: exp.Expr) -> exp.Expr:
    while type(node).__name__ == "Paren":
        node = node.this
    return node


def is_call(node: exp.Expr, function: str) -> bool:
    return type(node).__name__ == "Anonymous" and str(node.this).lower() == function
