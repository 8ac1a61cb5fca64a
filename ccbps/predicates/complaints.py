"""Complaints: every refusal of a construct of SQL, in one voice and with its place in the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ccbps.errors import PredicateError, UnsupportedPredicateError
from ccbps.predicates.syntax import Syntax

if TYPE_CHECKING:
    from sqlglot import exp

COMPARISONS: Final = {"EQ": "=", "NEQ": "!=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
"""Comparison operators by sqlglot's names for them."""

_SYMBOLS: Final = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%"}
_LANGUAGE: Final = (
    "accepted are comparisons of an attribute with a constant, BETWEEN, IN, LIKE 'prefix%', "
    "IS NULL, IS TRUE, AND, OR, NOT, at_least(k, ...) and hamming(attribute, value) <= t"
)


class Complaints:
    """Errors about nodes of one parsed text."""

    def __init__(self, syntax: Syntax) -> None:
        self.syntax = syntax

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
        if kind in COMPARISONS:
            what = (
                "a comparison stands where an attribute or a constant is expected; join "
                "comparisons with AND, as in 1 < price AND price < 3, or write BETWEEN; whether a "
                "condition holds is written (price < 3) IS TRUE"
            )
            return self._error(UnsupportedPredicateError, what, at or node)
        if kind == "Is":
            what = "the condition before IS is written in parentheses, as in (price < 3) IS TRUE"
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


def _title(node: exp.Expr) -> str:
    """What to call a construct in a message: its SQL name as sqlglot has it."""
    if type(node).__name__ == "Anonymous":
        return f"function {node.this}"
    name = getattr(node, "sql_name", None)
    return str(name() if name is not None else node.key).upper()
