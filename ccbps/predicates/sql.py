"""SQL front end: text to a typed expression tree, every complaint with its place in the text.

sqlglot reads the text; this module accepts the part of its syntax tree that is the predicate
language, resolves names against the schema and checks every constant against its attribute's type.
Numbers stay exact. sqlglot is imported on the first parse.

Convention: standard SQL quoting: 'strings' in single quotes, "names" in double quotes, no
backslash escapes. Names match exactly, else without regard to case if that is unique.
"""

from __future__ import annotations

import decimal
import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ccbps.errors import (
    PredicateError,
    PredicateSyntaxError,
    PredicateTypeError,
    UnknownAttributeError,
    UnsupportedPredicateError,
)
from ccbps.predicates import expression as tree
from ccbps.predicates.constants import PatternError, check_constant, check_use
from ccbps.predicates.predicate import Predicate
from ccbps.predicates.schema import Schema
from ccbps.predicates.syntax import Syntax, read_syntax
from ccbps.predicates.temporal import Instant
from ccbps.predicates.types import Bool, ConstantError

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["parse"]

_COMPARISONS: Final = {"EQ": "=", "NEQ": "!=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_SYMBOLS: Final = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%"}
_FLIPPED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LANGUAGE: Final = (
    "accepted are comparisons of an attribute with a constant, BETWEEN, IN, LIKE 'prefix%', "
    "IS NULL, AND, OR, NOT, at_least(k, ...) and hamming(attribute, value) <= t"
)


def parse(schema: Schema, text: str) -> Predicate:
    """Read a predicate; see `Schema.parse`."""
    if not isinstance(text, str):
        raise PredicateSyntaxError(f"a predicate is a string of SQL, got {type(text).__name__}")
    try:
        reader = _Reader(schema, read_syntax(text, schema.names))
        return Predicate(schema, text, reader.condition(reader.syntax.root))
    except RecursionError:
        pass
    raise PredicateSyntaxError("the predicate is nested too deeply", text=text, position=0)


class _Reader:
    """Turns nodes of sqlglot into nodes of the expression tree."""

    def __init__(self, schema: Schema, syntax: Syntax) -> None:
        self.schema = schema
        self.syntax = syntax
        # By class name, so that nothing of sqlglot is needed when this module is imported.
        self._conditions: dict[str, Callable[[Any], tree.Expression]] = {
            "And": self._connective,
            "Or": self._connective,
            "Not": self._not,
            "Between": self._between,
            "In": self._in,
            "Like": self._like,
            "Is": self._is,
            "Column": self._bare_attribute,
            "Boolean": self._truth,
            "Null": self._truth,
            "Anonymous": self._at_least,
            **dict.fromkeys(_COMPARISONS, self._compare),
        }

    # -- errors ---------------------------------------------------------------------------------

    def _error(
        self,
        kind: type[PredicateError],
        message: str,
        node: exp.Expr,
        summary: str | None = None,
    ) -> PredicateError:
        position = self.syntax.position(node)
        return kind(message, text=self.syntax.text, position=position, summary=summary)

    def _unsupported(self, what: str, node: exp.Expr, summary: str | None = None) -> PredicateError:
        message, summary = (f"{said}; {_LANGUAGE}" for said in (what, summary or what))
        return self._error(UnsupportedPredicateError, message, node, summary)

    def _construct(self, node: exp.Expr, at: exp.Expr | None = None) -> PredicateError:
        """Refuse a construct by its name, which is a word of the predicate's."""
        kind = type(node).__name__
        if kind in ("Struct", "Parameter"):
            return self._unsupported("a private constant is written :name", at or node)
        if kind in _COMPARISONS:
            what = (
                "a comparison stands where an attribute or a constant is expected; join "
                "comparisons with AND, as in 1 < price AND price < 3, or write BETWEEN"
            )
            return self._error(UnsupportedPredicateError, what, at or node)
        if kind in _SYMBOLS:
            what = (
                "constants are computed beforehand, and dates written in single quotes: arithmetic "
                f"({_SYMBOLS[kind]}) is not supported"
            )
            return self._unsupported(what, at or node, "arithmetic is not supported")
        what = f"{_title(node)} is not supported"
        return self._unsupported(what, at or node, "an operator or function is not supported")

    def _only(self, node: exp.Expr, *allowed: str) -> None:
        """Refuse clauses of SQL that sqlglot keeps as further arguments of a node."""
        for name, value in node.args.items():
            if name not in allowed and value not in (None, False, []):
                what = f"{_title(node)} with {name!r} is not supported"
                raise self._unsupported(what, node, "a clause is not supported")

    # -- conditions -----------------------------------------------------------------------------

    def condition(self, node: exp.Expr) -> tree.Expression:
        """A node that stands where a condition is expected."""
        node = _unwrapped(node)
        read = self._conditions.get(type(node).__name__)
        if read is not None:
            return read(node)
        if type(node).__name__ in ("Literal", "Neg", "Placeholder"):
            raise self._error(
                PredicateTypeError, "a constant is not a condition; compare it with one", node
            )
        raise self._construct(node)

    def _connective(self, node: exp.Expr) -> tree.Expression:
        # A long chain nests to the left; walking it with a stack costs no recursion.
        kind = type(node)
        parts: list[tree.Expression] = []
        waiting = [node]
        while waiting:
            part = waiting.pop()
            if type(part) is kind:
                self._only(part, "this", "expression")
                waiting += [part.args["expression"], part.args["this"]]
            else:
                parts.append(self.condition(part))
        build = tree.And if kind.__name__ == "And" else tree.Or
        return build(tuple(parts), parts[0].position)

    def _not(self, node: exp.Expr) -> tree.Expression:
        return tree.Not(self.condition(node.this), self.syntax.position(node))

    def _truth(self, node: exp.Expr) -> tree.Expression:
        value = bool(node.this) if type(node).__name__ == "Boolean" else None
        return tree.Truth(value, self.syntax.position(node))

    def _bare_attribute(self, node: exp.Expr) -> tree.Expression:
        name = self._attribute(node)
        position = self.syntax.position(node)
        if not isinstance(self.schema[name], Bool):
            raise self._error(
                PredicateTypeError,
                f"attribute {name!r} ({self._kind(name)}) is not a condition by itself; "
                "compare it with a constant",
                node,
            )
        return tree.Compare(name, "=", tree.Constant(True, position), position)

    def _compare(self, node: exp.Expr) -> tree.Expression:
        self._only(node, "this", "expression")
        operator = _COMPARISONS[type(node).__name__]
        left, right = _unwrapped(node.this), _unwrapped(node.args["expression"])
        if not _is_subject(left) and _is_subject(right):
            left, right, operator = right, left, _FLIPPED[operator]
        if _is_call(left, "hamming"):
            return self._hamming(left, operator, right)
        name = self._subject(left)
        operand = self._operand(name, operator, right)
        return tree.Compare(name, operator, operand, self.syntax.position(left))

    def _between(self, node: exp.Expr) -> tree.Expression:
        self._only(node, "this", "low", "high", "negate")
        name = self._subject(_unwrapped(node.this))
        low = self._operand(name, ">=", node.args["low"])
        high = self._operand(name, "<=", node.args["high"])
        position = self.syntax.position(node.this)
        return _negated(node, tree.Between(name, low, high, position))

    def _in(self, node: exp.Expr) -> tree.Expression:
        items = node.expressions
        if not items and node.args.get("query") is None:
            raise self._unsupported("IN needs a list of constants in parentheses", node)
        self._only(node, "this", "expressions", "negate")
        name = self._subject(_unwrapped(node.this))
        position = self.syntax.position(node.this)
        operands = tuple(self._operand(name, "=", item) for item in items)
        return _negated(node, tree.In(name, operands, position))

    def _like(self, node: exp.Expr) -> tree.Expression:
        self._only(node, "this", "expression", "negate")
        name = self._subject(_unwrapped(node.this))
        operand = self._operand(name, "like", node.args["expression"])
        return _negated(node, tree.Like(name, operand, self.syntax.position(node.this)))

    def _is(self, node: exp.Expr) -> tree.Expression:
        self._only(node, "this", "expression", "negate")
        name = self._subject(_unwrapped(node.this))
        if type(node.args["expression"]).__name__ != "Null":
            what = "IS is only supported with NULL; a Bool attribute is a condition by itself"
            raise self._unsupported(what, node)
        return _negated(node, tree.IsNull(name, self.syntax.position(node.this)))

    def _at_least(self, node: exp.Expr) -> tree.Expression:
        if _is_call(node, "hamming"):
            raise self._unsupported("hamming(...) needs a limit: hamming(...) <= t", node)
        if not _is_call(node, "at_least"):
            raise self._unsupported("functions are not supported", node)
        arguments = node.expressions
        count = _whole_number(arguments[0]) if arguments else None
        parts = arguments[1:]
        if count is None or not 1 <= count <= len(parts):
            raise self._error(
                PredicateTypeError,
                "at_least(k, p1, ..., pn) needs a public whole number k from 1 to n",
                arguments[0] if arguments else node,
            )
        conditions = tuple(self.condition(part) for part in parts)
        return tree.AtLeast(count, conditions, self.syntax.position(node))

    def _hamming(self, node: exp.Expr, operator: str, bound: exp.Expr) -> tree.Expression:
        if operator not in ("<=", "<"):
            raise self._unsupported("hamming(...) is only compared with <= or < and a limit", node)
        limit = _whole_number(bound)
        if limit is None:
            raise self._error(
                PredicateTypeError, "the limit of hamming(...) is a public whole number", bound
            )
        if len(node.expressions) != 2:
            raise self._error(PredicateTypeError, "hamming takes an attribute and a value", node)
        name = self._subject(_unwrapped(node.expressions[0]))
        value = self._operand(name, "hamming", node.expressions[1])
        return tree.Hamming(name, value, limit - (operator == "<"), self.syntax.position(node))

    # -- attributes and constants ---------------------------------------------------------------

    def _kind(self, name: str) -> str:
        return type(self.schema[name]).__name__

    def _subject(self, node: exp.Expr) -> str:
        """The attribute that a condition is about."""
        kind = type(node).__name__
        if kind == "Column":
            return self._attribute(node)
        if kind in ("Literal", "Neg", "Placeholder", "Null", "Boolean"):
            raise self._unsupported("a condition needs an attribute, not only constants", node)
        if _is_call(node, "hamming"):
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
        node = _unwrapped(node)
        position = self.syntax.position(node)
        use = "=" if operator == "!=" else operator
        kind = self.schema[name]
        try:
            check_use(kind, use)
            if type(node).__name__ == "Placeholder":
                return self._placeholder(node)
            value = self._constant(node)
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

    def _constant(self, node: exp.Expr) -> Any:
        kind = type(node).__name__
        if kind == "Null":
            return None
        if kind == "Boolean":
            return bool(node.this)
        if kind == "Literal":
            return str(node.this) if node.args.get("is_string") else self._number(node, node)
        if kind == "Neg":
            inner = _unwrapped(node.this)
            if type(inner).__name__ == "Literal" and not inner.args.get("is_string"):
                number = self._number(inner, node)
                # Minus rounds a Decimal to the context's precision.
                return -number if isinstance(number, int) else number.copy_negate()
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

    def _number(self, literal: exp.Expr, node: exp.Expr) -> int | decimal.Decimal:
        digits = str(literal.this)
        try:
            # int() refuses very long texts; a Decimal of them is exact as well.
            if digits.isdigit() and len(digits) <= 1000:
                return int(digits)
            return decimal.Decimal(digits)
        except (ValueError, decimal.InvalidOperation):
            raise self._error(PredicateTypeError, "not a number that can be read", node) from None

    def _instant(self, node: exp.Expr) -> Instant:
        """DATE '...', TIMESTAMP '...' and casts of a string to one of them."""
        self._only(node, "this", "to", "_type")
        target = getattr(node.args["to"].this, "name", "")
        text = _unwrapped(node.this)
        is_text = type(text).__name__ == "Literal" and text.args.get("is_string")
        if not is_text or target not in ("DATE", "TIMESTAMP", "TIMESTAMPTZ", "DATETIME"):
            raise self._unsupported("only a string is cast, to DATE or TIMESTAMP", node)
        try:
            instant = Instant.parse(str(text.this))
        except ValueError as problem:
            raise self._error(
                PredicateTypeError,
                f"{problem}; expected text such as '2024-01-31' or '2024-01-31 12:30:00'",
                text,
            ) from None
        return instant.date() if target == "DATE" else instant


def _unwrapped(node: exp.Expr) -> exp.Expr:
    while type(node).__name__ == "Paren":
        node = node.this
    return node


def _negated(node: exp.Expr, condition: tree.Expression) -> tree.Expression:
    # Some versions of sqlglot keep NOT LIKE as a flag of LIKE, others as NOT around it.
    return tree.Not(condition, condition.position) if node.args.get("negate") else condition


def _is_call(node: exp.Expr, function: str) -> bool:
    return type(node).__name__ == "Anonymous" and str(node.this).lower() == function


def _is_subject(node: exp.Expr) -> bool:
    return type(node).__name__ == "Column" or _is_call(node, "hamming")


def _whole_number(node: exp.Expr) -> int | None:
    node = _unwrapped(node)
    negative = type(node).__name__ == "Neg"
    literal = _unwrapped(node.this) if negative else node
    if type(literal).__name__ != "Literal" or literal.args.get("is_string"):
        return None
    digits = str(literal.this)
    if not digits.isdigit() or len(digits) > 9:
        return None
    return -int(digits) if negative else int(digits)


def _title(node: exp.Expr) -> str:
    """What to call a construct in a message: its SQL name as sqlglot has it."""
    if type(node).__name__ == "Anonymous":
        return f"function {node.this}"
    name = getattr(node, "sql_name", None)
    return str(name() if name is not None else node.key).upper()
