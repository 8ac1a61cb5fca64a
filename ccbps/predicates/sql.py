"""SQL front end: text to a typed expression tree, every complaint with its place in the text.

sqlglot reads the text; this module accepts the part of its syntax tree that is the predicate
language. sqlglot is imported on the first parse, and its nodes are told apart by class name.

Convention: standard SQL quoting: 'strings' in single quotes, "names" in double quotes, no
backslashes. From Spark's SQL come `names` in backticks, ``<=>``, `isnull` and `isnotnull`, IS TRUE,
and numbers with suffixes. "Strings" in double quotes are read only on request (see
`ccbps.predicates.syntax.single_quoted`), since elsewhere the same text means something else. Names
match exactly, else without regard to case if that is unique. Numbers are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from ccbps.errors import (
    PredicateError,
    PredicateSyntaxError,
    PredicateTypeError,
    UnknownAttributeError,
    UnsupportedPredicateError,
)
from ccbps.predicates import expression as tree
from ccbps.predicates import syntax
from ccbps.predicates.attributes import Attributes, closest
from ccbps.predicates.numeric import Bool
from ccbps.predicates.syntax import Reading, Syntax, read_syntax
from ccbps.predicates.temporal import Timestamp
from ccbps.predicates.types import AttributeType, ConstantError, PatternError

if TYPE_CHECKING:
    from sqlglot import exp

_COMPARISONS: Final = {"EQ": "=", "NEQ": "!=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
"""Comparison operators by sqlglot's names for them."""

_FLIPPED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARITHMETIC: Final = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%"}
_CONSTANTS: Final = ("Literal", "Neg", "Placeholder")

_NOT_COMPARED: Final = frozenset({"Anonymous", "Boolean", "Column", "Null"})
"""Conditions that are no comparisons: IS NULL of these is IS NULL of an attribute, or refused."""

_LANGUAGE: Final = (
    "accepted are comparisons of an attribute with a constant, BETWEEN, IN, LIKE 'prefix%', "
    "IS NULL, IS TRUE, AND, OR, NOT, at_least(k, ...) and hamming(attribute, value) <= t"
)
_PATTERNS: Final = ("Contains", "ILike", "RegexpILike", "RegexpLike", "SimilarTo", "StartsWith")
_QUOTES: Final = (
    "strings are written in single quotes; double_quoted_strings=True takes them in double quotes, "
    "and names in backticks only"
)
_CASTS: Final[dict[str, Reading]] = {
    "DATE": syntax.read_date,
    **dict.fromkeys(
        ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "DATETIME"), syntax.read_timestamp
    ),
    "TIMESTAMPNTZ": syntax.read_clock,
}
"""How a string is read that is cast, by sqlglot's names of types."""
_HAMMING: Final = "hamming(...) is only compared with <= or < and a limit"
_PRIVATE: Final = "a private constant is written :name"
_ADVICE: Final = {
    "Struct": _PRIVATE,
    "Parameter": _PRIVATE,
    "Is": "the condition before IS is written in parentheses, as in (price < 3) IS TRUE",
    **dict.fromkeys(
        _COMPARISONS,
        "a comparison stands where an attribute or a constant is expected; join comparisons with "
        "AND, as in 1 < price AND price < 3, or write BETWEEN; whether a condition holds is "
        "written (price < 3) IS TRUE",
    ),
}


def read_sql(schema: Attributes, text: str) -> tuple[tree.Expression, dict[int, Reading]]:
    """Read a predicate; see `Schema.parse`.

    Returns:
        (expression, readings): the predicate as a tree, and how its constants come from literals,
        by their position.
    """
    if not isinstance(text, str):
        raise PredicateSyntaxError(f"a predicate is a string of SQL, got {type(text).__name__}")
    try:
        reader = _Reader(schema, read_syntax(text, schema.names))
        return reader.condition(reader.syntax.root), reader.readings
    except RecursionError:
        pass
    raise PredicateSyntaxError("the predicate is nested too deeply", text=text, position=0)


class _Reader:
    """A reader of one text: turns nodes of sqlglot into nodes of the expression tree.

    Attributes:
        readings: reading of each literal, by its position in the text.
    """

    def __init__(self, schema: Attributes, syntax: Syntax) -> None:
        self.schema = schema
        self.syntax = syntax
        self.readings: dict[int, Reading] = {}
        self._conditions: dict[str, Callable[[Any], tree.Expression]] = {
            **dict.fromkeys(("And", "Or"), self._connective),
            "Not": self._not,
            "Between": self._between,
            "In": self._in,
            "Like": self._like,
            "Is": self._is,
            "Column": self._bare_attribute,
            **dict.fromkeys(("Boolean", "Null"), self._truth),
            **dict.fromkeys(("NullSafeEQ", "NullSafeNEQ"), self._same),
            "Anonymous": self._call,
            **dict.fromkeys(_COMPARISONS, self._compare),
        }

    # -- conditions -----------------------------------------------------------------------------

    def condition(self, node: exp.Expr) -> tree.Expression:
        """Read a node that stands where a condition is expected."""
        node = _unwrapped(node)
        read = self._conditions.get(_kind(node))
        if read is not None:
            return read(node)
        if _kind(node) in _CONSTANTS:
            raise self._mistyped("a constant is not a condition; compare it with one", node)
        raise self._construct(node)

    def _connective(self, node: exp.Expr) -> tree.Expression:
        # A long chain nests to the left; walking it with a stack costs no recursion.
        kind = type(node)
        parts: list[tree.Expression] = []
        pending = [node]
        while pending:
            part = pending.pop()
            if type(part) is kind:
                self._only(part, "this", "expression")
                pending += [part.args["expression"], part.args["this"]]
            else:
                parts.append(self.condition(part))
        count = len(parts) if kind.__name__ == "And" else 1
        return tree.AtLeast(count, tuple(parts), parts[0].position)

    def _not(self, node: exp.Expr) -> tree.Expression:
        return tree.Not(self.condition(node.this), self.syntax.position(node))

    def _truth(self, node: exp.Expr) -> tree.Expression:
        value = bool(node.this) if _kind(node) == "Boolean" else None
        return tree.Truth(value, self.syntax.position(node))

    def _bare_attribute(self, node: exp.Expr) -> tree.Expression:
        name, position = self._attribute(node), self.syntax.position(node)
        if not isinstance(self.schema[name], Bool):
            problem = f"attribute {name!r} ({self._type_name(name)}) is not a condition by itself"
            raise self._mistyped(f"{problem}; compare it with a constant", node)
        return tree.Condition(name, "=", (tree.Constant(True, position),), position)

    def _sides(self, node: exp.Expr) -> tuple[exp.Expr, exp.Expr, bool]:
        """Return the two sides of a comparison, its subject first, and whether they are swapped."""
        self._only(node, "this", "expression")
        left, right = _unwrapped(node.this), _unwrapped(node.args["expression"])
        swapped = not _is_subject(left) and _is_subject(right)
        return (right, left, True) if swapped else (left, right, False)

    def _compare(self, node: exp.Expr) -> tree.Expression:
        subject, constant, swapped = self._sides(node)
        operator = _COMPARISONS[_kind(node)]
        if swapped:
            operator = _FLIPPED[operator]
        if _is_call(subject, "hamming"):
            return self._hamming(subject, operator, constant)
        return self._on_attribute(subject, operator, operator, constant)

    def _on_attribute(
        self, subject: exp.Expr, operator: str, use: str, *constants: exp.Expr
    ) -> tree.Condition:
        """Read a condition on the attribute `subject`, with operands all of the same use."""
        name = self._subject(_unwrapped(subject))
        operands = tuple(self._operand(name, use, constant) for constant in constants)
        return tree.Condition(name, operator, operands, self.syntax.position(subject))

    def _between(self, node: exp.Expr) -> tree.Expression:
        self._only(node, "this", "low", "high", "negate")
        name = self._subject(_unwrapped(node.this))
        low = self._operand(name, ">=", node.args["low"])
        high = self._operand(name, "<=", node.args["high"])
        position = self.syntax.position(node.this)
        if not (tree.is_null(low) or tree.is_null(high)):
            return _negated(node, tree.Condition(name, "between", (low, high), position))
        # One half is unknown for every row, but the other can still make it FALSE.
        least = tree.Condition(name, ">=", (low,), position)
        greatest = tree.Condition(name, "<=", (high,), position)
        return _negated(node, tree.both(least, greatest, position))

    def _in(self, node: exp.Expr) -> tree.Expression:
        items = node.expressions
        if not items and node.args.get("query") is None:
            raise self._unsupported("IN needs a list of constants in parentheses", node)
        self._only(node, "this", "expressions", "negate")
        return _negated(node, self._on_attribute(node.this, "in", "=", *items))

    def _like(self, node: exp.Expr) -> tree.Expression:
        self._only(node, "this", "expression", "negate")
        pattern = node.args["expression"]
        return _negated(node, self._on_attribute(node.this, "like", "like", pattern))

    def _is(self, node: exp.Expr) -> tree.Expression:
        self._only(node, "this", "expression", "negate")
        subject, truth = _unwrapped(node.this), node.args["expression"]
        if _kind(truth) == "Null":
            return _negated(node, self._is_null(subject))
        if _kind(truth) != "Boolean":
            problem = "IS is only supported with NULL, TRUE and FALSE; values are compared with ="
            raise self._unsupported(problem, node)
        return _negated(node, _is(self.condition(subject), bool(truth.this)))

    def _is_null(self, subject: exp.Expr) -> tree.Expression:
        """Read IS NULL of an attribute, or of a condition: whether it is unknown."""
        position = self.syntax.position(subject)
        if _kind(subject) not in self._conditions.keys() - _NOT_COMPARED:
            return tree.Condition(self._subject(subject), "null", (), position)
        condition = self.condition(subject)
        while isinstance(condition, tree.Not):
            condition = condition.part
        operands = condition.operands if isinstance(condition, tree.Condition) else ()
        if operands and not any(map(tree.is_null, operands)):
            null = tree.Condition(tree.attributes_of(condition)[0], "null", (), position)
            if not tree.private_names_of(condition):
                return null
            # No value of a private constant is NULL, and all of them are still to be bound.
            never = tree.both(tree.Truth(False, position), condition, position)
            return tree.AtLeast(1, (null, never), position)
        problem = "IS NULL is for attributes and for conditions about one attribute, without NULL"
        raise self._unsupported(problem, subject)

    def _same(self, node: exp.Expr) -> tree.Expression:
        """Read ``<=>`` and IS [NOT] DISTINCT FROM, for which NULL is a value."""
        subject, constant, _ = self._sides(node)
        name, position = self._subject(subject), self.syntax.position(subject)
        same: tree.Expression = tree.Condition(name, "null", (), position)
        if _kind(constant) != "Null":
            equal = tree.Condition(name, "=", (self._operand(name, "=", constant),), position)
            same = tree.both(tree.Not(same, position), equal, position)
        return tree.Not(same, position) if _kind(node) == "NullSafeNEQ" else same

    def _call(self, node: exp.Expr) -> tree.Expression:
        for function in ("isnull", "isnotnull"):
            if _is_call(node, function):
                if len(node.expressions) != 1:
                    raise self._mistyped(f"{function} takes an attribute", node)
                null = self._is_null(_unwrapped(node.expressions[0]))
                return null if function == "isnull" else tree.Not(null, null.position)
        if _is_call(node, "hamming"):
            raise self._unsupported("hamming(...) needs a limit: hamming(...) <= t", node)
        if not _is_call(node, "at_least"):
            raise self._unsupported("functions are not supported", node)
        arguments = node.expressions
        count = _whole_number(arguments[0]) if arguments else None
        if count is None or not 1 <= count < len(arguments):
            raise self._mistyped(
                "at_least(k, p1, ..., pn) needs a public whole number k from 1 to n",
                arguments[0] if arguments else node,
            )
        conditions = tuple(self.condition(part) for part in arguments[1:])
        return tree.AtLeast(count, conditions, self.syntax.position(node))

    def _hamming(self, node: exp.Expr, operator: str, bound: exp.Expr) -> tree.Expression:
        if operator not in ("<=", "<"):
            raise self._unsupported(_HAMMING, node)
        limit = _whole_number(bound)
        if limit is None:
            raise self._mistyped("the limit of hamming(...) is a public whole number", bound)
        if len(node.expressions) != 2:
            raise self._mistyped("hamming takes an attribute and a value", node)
        name = self._subject(_unwrapped(node.expressions[0]))
        value = self._operand(name, "hamming", node.expressions[1])
        bits = limit - (operator == "<")
        return tree.Condition(name, "hamming", (value,), self.syntax.position(node), bits)

    # -- attributes -----------------------------------------------------------------------------

    def _type_name(self, name: str) -> str:
        return type(self.schema[name]).__name__

    def _subject(self, node: exp.Expr) -> str:
        """Return the attribute that a condition is about."""
        if _kind(node) == "Column":
            return self._attribute(node)
        if _kind(node) in (*_CONSTANTS, "Null", "Boolean"):
            backticks = "; a quoted name is written in backticks" if _is_string(node) else ""
            problem = f"a condition needs an attribute, not only constants{backticks}"
            raise self._unsupported(problem, node)
        if _is_call(node, "hamming"):
            raise self._unsupported(_HAMMING, node)
        raise self._construct(node)

    def _attribute(self, node: exp.Expr, *, hint: str = "") -> str:
        if node.args.get("table") is not None:
            raise self._unsupported("a name with a dot is not supported", node)
        self._only(node, "this")
        identifier = node.this
        if _kind(identifier) != "Identifier":
            raise self._construct(identifier, node)
        name = str(identifier.this)
        if name in self.schema:
            return name
        guess = ""
        folded = [attribute for attribute in self.schema if attribute.lower() == name.lower()]
        if len(folded) == 1:
            return folded[0]
        if folded:
            problem = f"attribute {name!r} is ambiguous between {', '.join(folded)}"
        else:
            guess = closest(name, [*self.schema])
            problem = f"unknown attribute {name!r}; the schema has {', '.join(self.schema)}{guess}"
        if self._in_double_quotes(node):
            hint = f"; {_QUOTES}"
        elif name[:1] in ("$", "#"):
            hint = f"; {_PRIVATE}"
        elif name.lower() in ("none", "nan", "nil"):
            hint = "; a missing value is found with IS NULL"
        # A name that is no attribute may be a constant whose quotes were forgotten.
        summary = f"unknown attribute; the schema has {', '.join(self.schema)}{guess}; {_QUOTES}"
        raise self._error(UnknownAttributeError, problem + hint, node, summary)

    def _in_double_quotes(self, node: exp.Expr) -> bool:
        return self.syntax.text.startswith('"', self.syntax.position(node))

    # -- constants ------------------------------------------------------------------------------

    def _operand(self, name: str, operator: str, node: exp.Expr) -> tree.Operand:
        """Read a constant or placeholder, checked against the attribute's type."""
        node = _unwrapped(node)
        use = "=" if operator == "!=" else operator
        kind = self.schema[name]
        try:
            kind.check_operator(use)
            if _kind(node) == "Placeholder":
                return self._placeholder(node)
            constant = self._constant(kind, node)
            if constant.value is not None:
                kind.code_range(use, constant.value)
            return constant
        except ConstantError as problem:
            refuse: type[PredicateError] = PredicateTypeError
            if isinstance(problem, PatternError):
                refuse = UnsupportedPredicateError
            message = f"attribute {name!r} ({self._type_name(name)}): {problem}"
            raise self._error(refuse, message, node) from None

    def _placeholder(self, node: exp.Expr) -> tree.Private:
        name = node.this
        if not isinstance(name, str) or not name.isidentifier():
            raise self._unsupported(_PRIVATE, node)
        return tree.Private(name, self.syntax.position(node))

    def _constant(self, kind: AttributeType, node: exp.Expr) -> tree.Constant:
        """Read a constant that is compared with an attribute of this type."""
        if _kind(node) in ("Null", "Boolean"):
            value = bool(node.this) if _kind(node) == "Boolean" else None
            return tree.Constant(value, self.syntax.position(node))
        reading, literal = self._literal(kind, node)
        position = self.syntax.position(literal)
        self.readings[position] = reading
        return tree.Constant(reading(str(literal.this)), position)

    def _literal(self, kind: AttributeType, node: exp.Expr) -> tuple[Reading, exp.Expr]:
        """Return the one literal of a constant, and how to read it."""
        if _is_string(node):
            days = isinstance(kind, Timestamp) and kind.unit == "day"
            return syntax.read_day if days else syntax.read_string, node
        inner = _unwrapped(node.this) if _kind(node) == "Neg" else node
        if _kind(inner) == "Literal" and not _is_string(inner):
            return _number(kind, inner, negative=inner is not node), inner
        if _kind(node) == "Neg" and _kind(inner) == "Placeholder":
            raise self._unsupported("a private constant brings its own sign", node)
        if _kind(node) == "Cast":
            return self._cast(node)
        if _kind(node) in ("Date", "Timestamp") or _is_call(node, "to_date"):
            return self._converted(node)
        if _kind(node) == "Column":
            name = self._attribute(node, hint="; strings are written in single quotes")
            quotes = f"; {_QUOTES}" if self._in_double_quotes(node) else ""
            raise self._unsupported(
                f"attribute {name!r} stands where a constant is expected; attributes are not "
                f"compared with one another{quotes}",
                node,
            )
        raise self._construct(node)

    def _converted(self, node: exp.Expr) -> tuple[Reading, exp.Expr]:
        """Read date('...'), to_date('...') and timestamp('...')."""
        call = _is_call(node, "to_date")
        arguments = node.expressions if call else [node.this, *node.expressions]
        text = _unwrapped(arguments[0]) if len(arguments) == 1 else None
        if not _is_string(text) or node.args.get("zone"):
            problem = "date(...), to_date(...) and timestamp(...) take one string, without a format"
            raise self._unsupported(problem, node)
        return syntax.read_timestamp if _kind(node) == "Timestamp" else syntax.read_date, text

    def _cast(self, node: exp.Expr) -> tuple[Reading, exp.Expr]:
        """Read DATE '...', TIMESTAMP '...' and casts of a string to one of them."""
        self._only(node, "this", "to", "_type")
        reading = _CASTS.get(getattr(node.args["to"].this, "name", ""))
        text = _unwrapped(node.this)
        if not _is_string(text) or reading is None:
            problem = (
                "only a string is cast, to DATE, TIMESTAMP or TIMESTAMP_NTZ; other constants are "
                "written plainly"
            )
            raise self._unsupported(problem, node)
        return reading, text

    # -- complaints -----------------------------------------------------------------------------

    def _error(
        self, kind: type[PredicateError], message: str, node: exp.Expr, summary: str | None = None
    ) -> PredicateError:
        position = self.syntax.position(node)
        return kind(message, text=self.syntax.text, position=position, summary=summary)

    def _mistyped(self, message: str, node: exp.Expr) -> PredicateError:
        return self._error(PredicateTypeError, message, node)

    def _unsupported(
        self, problem: str, node: exp.Expr, summary: str | None = None
    ) -> PredicateError:
        message, summary = (f"{text}; {_LANGUAGE}" for text in (problem, summary or problem))
        return self._error(UnsupportedPredicateError, message, node, summary)

    def _construct(self, node: exp.Expr, at: exp.Expr | None = None) -> PredicateError:
        """Refuse a construct by its name, which is a word of the predicate's."""
        kind, at = _kind(node), at or node
        if kind in _ADVICE:
            return self._error(UnsupportedPredicateError, _ADVICE[kind], at)
        if kind in _ARITHMETIC:
            problem = (
                "constants are computed beforehand, and dates written in single quotes: arithmetic "
                f"({_ARITHMETIC[kind]}) is not supported"
            )
            return self._unsupported(problem, at, "arithmetic is not supported")
        problem = f"{_title(node)} is not supported"
        if kind in _PATTERNS:
            problem += "; a text is compared with =, or by how it begins, as in name LIKE 'prefix%'"
            return self._error(UnsupportedPredicateError, problem, at, problem)
        return self._unsupported(problem, at, "an operator or function is not supported")

    def _only(self, node: exp.Expr, *allowed: str) -> None:
        """Refuse clauses of SQL that sqlglot keeps as further arguments of a node."""
        for name, value in node.args.items():
            if name not in allowed and value not in (None, False, []):
                problem = f"{_title(node)} with {name!r} is not supported"
                raise self._unsupported(problem, node, "a clause is not supported")


# -- the expression tree ------------------------------------------------------------------------


def _negated(node: exp.Expr, condition: tree.Expression) -> tree.Expression:
    # Some versions of sqlglot keep NOT LIKE as a flag of LIKE, others as NOT around it.
    return tree.Not(condition, condition.position) if node.args.get("negate") else condition


def _is(node: tree.Expression, value: bool) -> tree.Expression:
    """Write [the condition is TRUE], or [it is FALSE]: it is never unknown, and grows linearly."""
    if isinstance(node, tree.Not):
        return _is(node.part, not value)
    if isinstance(node, tree.Truth):
        return tree.Truth(node.value is value, node.position)
    if not isinstance(node, tree.Condition):
        parts = tuple(_is(part, value) for part in node.parts)
        count = node.count if value else len(parts) - node.count + 1
        return tree.AtLeast(count, parts, node.position)
    if node.operator == "null":
        return node if value else tree.Not(node, node.position)
    never = tree.Truth(False, node.position)
    items = tuple(item for item in node.operands if not tree.is_null(item))
    if len(items) < len(node.operands):
        if node.operator != "in" or not items:
            return never
        node = tree.Condition(node.attribute, "in", items, node.position)
        if not value:  # its private constants are still to be bound
            return tree.both(never, node, node.position)
    null = tree.Condition(node.attribute, "null", (), node.position)
    decided = node if value else tree.Not(node, node.position)
    return tree.both(tree.Not(null, node.position), decided, node.position)


# -- nodes of sqlglot ---------------------------------------------------------------------------


def _kind(node: exp.Expr) -> str:
    return type(node).__name__


def _unwrapped(node: exp.Expr) -> exp.Expr:
    while _kind(node) == "Paren":
        node = node.this
    return node


def _is_call(node: exp.Expr, function: str) -> bool:
    return _kind(node) == "Anonymous" and str(node.this).lower() == function


def _is_subject(node: exp.Expr) -> bool:
    return _kind(node) == "Column" or _is_call(node, "hamming")


def _is_string(node: exp.Expr | None) -> TypeGuard[exp.Expr]:
    return node is not None and _kind(node) == "Literal" and bool(node.args.get("is_string"))


def _title(node: exp.Expr) -> str:
    """Name a construct for a message: its SQL name as sqlglot has it."""
    if _kind(node) == "Anonymous":
        return f"function {node.this}"
    name = getattr(node, "sql_name", None)
    return str(name() if name is not None else node.key).upper()


def _number(kind: AttributeType, literal: exp.Expr, *, negative: bool) -> Reading:
    if str(literal.this)[-1:].isalpha():
        return partial(syntax.read_suffixed, kind=kind, negative=negative)
    return syntax.read_negative if negative else syntax.read_number


def _whole_number(node: exp.Expr) -> int | None:
    node = _unwrapped(node)
    literal = _unwrapped(node.this) if _kind(node) == "Neg" else node
    digits = str(literal.this)
    if _kind(literal) != "Literal" or _is_string(literal) or not digits.isdigit():
        return None
    number = int(digits) if len(digits) < 10 else None
    return number if number is None or literal is node else -number
