"""SQL front end: text to a typed expression tree, every complaint with its place in the text.

sqlglot reads the text; this module accepts the part of its syntax tree that is the predicate
language. sqlglot is imported on the first parse.

Convention: standard SQL quoting: 'strings' in single quotes, "names" in double quotes, no
backslashes. Of Spark's SQL there are `names` in backticks, ``<=>``, `isnull` and `isnotnull`, IS
TRUE, and numbers with suffixes, too; "strings" in double quotes only where they are asked for (see
`ccbps.predicates.syntax.single_quoted`), since the same text would mean another thing elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ccbps.errors import PredicateSyntaxError, PredicateTypeError
from ccbps.predicates import expression as tree
from ccbps.predicates.attributes import Attributes
from ccbps.predicates.boolean import Bool
from ccbps.predicates.complaints import COMPARISONS
from ccbps.predicates.literals import Reading
from ccbps.predicates.operands import Operands, is_call, unwrapped
from ccbps.predicates.syntax import Syntax, read_syntax

if TYPE_CHECKING:
    from sqlglot import exp

_FLIPPED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

_NOT_COMPARED: Final = frozenset({"Anonymous", "Boolean", "Column", "Null"})
"""Conditions that are no comparisons: IS NULL of these is IS NULL of an attribute, or refused."""


def read_sql(schema: Attributes, text: str) -> tuple[tree.Expression, dict[int, Reading]]:
    """Read a predicate; see `Schema.parse`.

    Returns:
        The predicate as a tree, and how its constants come from literals, by their position.
    """
    if not isinstance(text, str):
        raise PredicateSyntaxError(f"a predicate is a string of SQL, got {type(text).__name__}")
    try:
        reader = _Reader(schema, read_syntax(text, schema.names))
        return reader.condition(reader.syntax.root), reader.readings
    except RecursionError:
        pass
    raise PredicateSyntaxError("the predicate is nested too deeply", text=text, position=0)


class _Reader(Operands):
    """Turns nodes of sqlglot into nodes of the expression tree."""

    def __init__(self, schema: Attributes, syntax: Syntax) -> None:
        super().__init__(schema, syntax)
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
            "NullSafeEQ": self._same,
            "NullSafeNEQ": self._same,
            "Anonymous": self._call,
            **dict.fromkeys(COMPARISONS, self._compare),
        }

    # -- conditions -----------------------------------------------------------------------------

    def condition(self, node: exp.Expr) -> tree.Expression:
        """A node that stands where a condition is expected."""
        node = unwrapped(node)
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
        operator = COMPARISONS[type(node).__name__]
        left, right = unwrapped(node.this), unwrapped(node.args["expression"])
        if not _is_subject(left) and _is_subject(right):
            left, right, operator = right, left, _FLIPPED[operator]
        if is_call(left, "hamming"):
            return self._hamming(left, operator, right)
        name = self._subject(left)
        operand = self._operand(name, operator, right)
        return tree.Compare(name, operator, operand, self.syntax.position(left))

    def _between(self, node: exp.Expr) -> tree.Expression:
        self._only(node, "this", "low", "high", "negate")
        name = self._subject(unwrapped(node.this))
        low = self._operand(name, ">=", node.args["low"])
        high = self._operand(name, "<=", node.args["high"])
        position = self.syntax.position(node.this)
        return _negated(node, tree.Between(name, low, high, position))

    def _in(self, node: exp.Expr) -> tree.Expression:
        items = node.expressions
        if not items and node.args.get("query") is None:
            raise self._unsupported("IN needs a list of constants in parentheses", node)
        self._only(node, "this", "expressions", "negate")
        name = self._subject(unwrapped(node.this))
        position = self.syntax.position(node.this)
        operands = tuple(self._operand(name, "=", item) for item in items)
        return _negated(node, tree.In(name, operands, position))

    def _like(self, node: exp.Expr) -> tree.Expression:
        self._only(node, "this", "expression", "negate")
        name = self._subject(unwrapped(node.this))
        operand = self._operand(name, "like", node.args["expression"])
        return _negated(node, tree.Like(name, operand, self.syntax.position(node.this)))

    def _is(self, node: exp.Expr) -> tree.Expression:
        self._only(node, "this", "expression", "negate")
        subject, kind = unwrapped(node.this), type(node.args["expression"]).__name__
        if kind == "Null":
            return _negated(node, self._is_null(subject))
        if kind != "Boolean":
            raise self._unsupported("IS is only supported with NULL, TRUE and FALSE", node)
        return _negated(node, _is(self.condition(subject), bool(node.args["expression"].this)))

    def _is_null(self, subject: exp.Expr) -> tree.Expression:
        """IS NULL of an attribute, or of a condition: whether it is unknown."""
        position = self.syntax.position(subject)
        if type(subject).__name__ not in self._conditions.keys() - _NOT_COMPARED:
            return tree.IsNull(self._subject(subject), position)
        condition = self.condition(subject)
        while isinstance(condition, tree.Not):
            condition = condition.part
        names, operands = tree.attributes_of(condition), tree.operands_of(condition)
        if operands and not any(_is_null_constant(operand) for *_, operand in operands):
            return tree.IsNull(names[0], position)
        what = "IS NULL is for attributes and for conditions about one attribute, without NULL"
        raise self._unsupported(what, subject)

    def _same(self, node: exp.Expr) -> tree.Expression:
        """``<=>`` and IS [NOT] DISTINCT FROM, for which NULL is a value."""
        self._only(node, "this", "expression")
        left, right = unwrapped(node.this), unwrapped(node.args["expression"])
        if not _is_subject(left) and _is_subject(right):
            left, right = right, left
        name, position = self._subject(left), self.syntax.position(left)
        null: tree.Expression = tree.IsNull(name, position)
        if type(right).__name__ == "Null":
            same = null
        else:
            operand = self._operand(name, "=", right)
            equal = tree.Compare(name, "=", operand, position)
            same = tree.And((tree.Not(null, position), equal), position)
        return tree.Not(same, position) if type(node).__name__ == "NullSafeNEQ" else same

    def _call(self, node: exp.Expr) -> tree.Expression:
        for function, negate in (("isnull", False), ("isnotnull", True)):
            if is_call(node, function):
                if len(node.expressions) != 1:
                    raise self._error(PredicateTypeError, f"{function} takes an attribute", node)
                null = self._is_null(unwrapped(node.expressions[0]))
                return tree.Not(null, null.position) if negate else null
        return self._at_least(node)

    def _at_least(self, node: exp.Expr) -> tree.Expression:
        if is_call(node, "hamming"):
            raise self._unsupported("hamming(...) needs a limit: hamming(...) <= t", node)
        if not is_call(node, "at_least"):
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
        name = self._subject(unwrapped(node.expressions[0]))
        value = self._operand(name, "hamming", node.expressions[1])
        return tree.Hamming(name, value, limit - (operator == "<"), self.syntax.position(node))


def _negated(node: exp.Expr, condition: tree.Expression) -> tree.Expression:
    # Some versions of sqlglot keep NOT LIKE as a flag of LIKE, others as NOT around it.
    return tree.Not(condition, condition.position) if node.args.get("negate") else condition


def _is(node: tree.Expression, value: bool) -> tree.Expression:
    """Whether a condition is TRUE (FALSE): never unknown, and no longer than the condition."""
    if isinstance(node, tree.Not):
        return _is(node.part, not value)
    if isinstance(node, (tree.And, tree.Or)):
        parts = tuple(_is(part, value) for part in node.parts)
        build = tree.And if isinstance(node, tree.And) == value else tree.Or
        return build(parts, node.position)
    if isinstance(node, tree.AtLeast):
        count = node.count if value else len(node.parts) - node.count + 1
        return tree.AtLeast(count, tuple(_is(part, value) for part in node.parts), node.position)
    if isinstance(node, tree.Truth):
        return tree.Truth(node.value is value, node.position)
    if isinstance(node, tree.IsNull):
        return node if value else tree.Not(node, node.position)
    if isinstance(node, tree.Between) and (
        _is_null_constant(node.low) or _is_null_constant(node.high)
    ):
        low = tree.Compare(node.attribute, ">=", node.low, node.position)
        high = tree.Compare(node.attribute, "<=", node.high, node.position)
        return _is(tree.And((low, high), node.position), value)
    if isinstance(node, tree.In):
        items = tuple(item for item in node.items if not _is_null_constant(item))
        less, never = len(items) < len(node.items), tree.Truth(False, node.position)
        if not items:
            return never
        node = tree.In(node.attribute, items, node.position)
        if less and not value:  # its private constants are still to be bound
            return tree.And((never, node), node.position)
    elif any(_is_null_constant(operand) for *_, operand in tree.operands_of(node)):
        return tree.Truth(False, node.position)
    known = tree.Not(tree.IsNull(node.attribute, node.position), node.position)
    decided = node if value else tree.Not(node, node.position)
    return tree.And((known, decided), node.position)


def _is_null_constant(operand: tree.Operand) -> bool:
    return isinstance(operand, tree.Constant) and operand.value is None


def _is_subject(node: exp.Expr) -> bool:
    return type(node).__name__ == "Column" or is_call(node, "hamming")


def _whole_number(node: exp.Expr) -> int | None:
    node = unwrapped(node)
    negative = type(node).__name__ == "Neg"
    literal = unwrapped(node.this) if negative else node
    if type(literal).__name__ != "Literal" or literal.args.get("is_string"):
        return None
    digits = str(literal.this)
    if not digits.isdigit() or len(digits) > 9:
        return None
    return -int(digits) if negative else int(digits)
