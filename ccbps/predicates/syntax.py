"""Syntax: the door to sqlglot. Text in, its syntax tree out, and the exact values of literals.

sqlglot records the positions of names and of most literals. An error about anything else is shown
at the nearest of these.

Where Spark's SQL and standard SQL would read a literal in two ways, it is refused: the same text
must not select other rows here than in `DataFrame.filter`. A `Reading` takes a number's digits, or
what is between the quotes of a string, to a value. Which reading a constant needs follows from its
neighbours in the text. So two predicates that differ in nothing but literals have the same
readings.
"""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from msgspec import Struct

from ccbps.errors import PredicateSyntaxError, UnsupportedPredicateError
from ccbps.predicates.numeric import Decimal, Int, UInt
from ccbps.predicates.temporal import Instant
from ccbps.predicates.types import AttributeType, ConstantError, PatternError

if TYPE_CHECKING:
    from sqlglot import exp

MAX_TEXT: Final = 1 << 17
"""Characters of a predicate; the parser takes seconds for so many."""
_MAX_DIGITS: Final = 1000
"""Characters of a number."""
_MAX_SPAN: Final = 100
"""Characters of a string beside INTERVAL; the parser's time grows with their square."""
# The parser spends about 20 frames of Python's stack on one level of parentheses or NOT.
_MAX_NESTING: Final = 24
_OPENING: Final = frozenset({"(", "[", "{"})
_CLOSING: Final = frozenset({")", "]", "}"})
_PREFIXES: Final = frozenset({"not", "-", "+", "~", "case", "!"})
_FOREIGN: Final = {
    "&": "AND",
    "&&": "AND",
    "\u2227": "AND",
    "|": "OR",
    "||": "OR",
    "\u2228": "OR",
    "~": "NOT",
    "\u00ac": "NOT",
    "^": "AND, OR and NOT",
    "=>": ">=",
    "=<": "<=",
    "><": "<>",
    "=!": "<>",
    "===": "=",
    "\u2264": "<=",
    "\u2265": ">=",
    "\u2260": "<>",
}
"""Operators of other languages, and what to write. Some come as two tokens."""
_NAMED: Final = "a private constant is written :name, and its name begins with a letter"
# Spark keeps the backslash of these two, for LIKE.
_ESCAPE: Final = re.compile(r"\\(?![%_])")
_SUFFIXED: Final = re.compile(r"(.*?)(BD|[A-Z])", re.IGNORECASE)
_ZONE: Final = re.compile(r"(?<=:\d\d)(\.\d+)?\s*(Z|[+-]\d\d(:?\d\d)?)$")
_WIDTHS: Final = {"Y": 8, "S": 16, "L": 64}

Reading: TypeAlias = Callable[[str], Any]
"""A function from the text of a literal to its value; it raises ConstantError."""


_parsing: ContextVar[bool] = ContextVar("parsing", default=False)


@cache
def _log_nothing() -> None:
    """Keep sqlglot from logging parts of a predicate: it is refused or it is not."""
    import logging

    logging.getLogger("sqlglot").addFilter(lambda record: not _parsing.get())


class Syntax(Struct, frozen=True):
    """A parsed text.

    Attributes:
        text: text as given.
        root: root of sqlglot's tree.
    """

    text: str
    root: exp.Expr

    def position(self, node: exp.Expr) -> int:
        """Return the offset of a node's first name or literal, else of its condition's."""
        around: exp.Expr | None = node
        for _ in range(_MAX_NESTING):  # a bound on the work, as texts may be hostile
            if around is None or (around is not node and type(around).__name__ in ("And", "Or")):
                break
            for side in (around, around.args.get("expression")):
                part: Any = side
                while hasattr(part, "meta"):
                    if "start" in part.meta:
                        return int(part.meta["start"])
                    part = part.args.get("this")
            around = around.parent
        return 0


def read_syntax(text: str, names: Sequence[str]) -> Syntax:
    """Parse a text.

    Args:
        text: one condition.
        names: attribute names, for a hint when one of them is a word of SQL.

    Raises:
        PredicateSyntaxError: not one condition in SQL.
        UnsupportedPredicateError: an operator of another language, with what to write instead.
    """
    from sqlglot import ErrorLevel, exp
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import ParseError, TokenError

    if len(text) > MAX_TEXT:
        problem = f"a predicate has at most {MAX_TEXT:,} characters, got {len(text):,}"
        # Without the text: the error would print all of it.
        raise PredicateSyntaxError(f"{problem}; join the answers of several shorter predicates")
    if not text.strip():
        raise _malformed(text, "the predicate is empty", 0)
    dialect = Dialect.get_or_raise("")
    if "`" in text and (position := _open_quote(text)) is not None:
        raise _malformed(text, "this is never closed", position)
    try:
        tokens = dialect.tokenize(_backticks_quoted(text))
    except TokenError:
        position = _open_quote(text)
        problem = "this is never closed" if position is not None else "not SQL"
        raise _malformed(text, problem, position or 0) from None
    if not tokens:
        raise _malformed(text, "the predicate is empty", 0)
    tokens = _suffixed(tokens)
    _check_operators(text, tokens)
    _check_nesting(text, tokens)
    _check_spans(text, tokens)
    _log_nothing()
    parsing = _parsing.set(True)
    try:
        parser = dialect.parser(error_level=ErrorLevel.IMMEDIATE)
        trees = parser.parse_into(exp.Condition, tokens, text)
    except ParseError as error:
        problem, position = _explain(text, error)
    except (AttributeError, IndexError, TypeError, ValueError):
        # sqlglot 28 and 29 stumble over the pipe syntax, which is no condition anyway.
        problem, position = "not one condition in SQL", 0
    else:
        if len(trees) == 1 and trees[0] is not None:
            return Syntax(text, trees[0])
        separators = [token.start for token in tokens if token.text == ";"]
        problem, position = "expected one condition", separators[0] if separators else 0
    finally:
        _parsing.reset(parsing)
    reserved = {token.text.lower() for token in tokens if token.token_type.name not in _NAMES}
    hints = [name for name in names if name.lower() in reserved]
    if hints:
        problem += f"; an attribute named like a word of SQL is written `{hints[0]}`"
    # sqlglot's messages may repeat any word of the text.
    raise PredicateSyntaxError(
        problem, text=text, position=position, summary="the text is not one condition in SQL"
    )


_NAMES: Final = frozenset({"VAR", "IDENTIFIER", "STRING", "NUMBER"})
_SUFFIXES: Final = frozenset({"L", "S", "Y", "D", "F", "BD"})


def _suffixed(tokens: list[Any]) -> list[Any]:
    """Join numbers and Spark's suffixes, such as 3L, to one token each."""
    kept: list[Any] = []
    for token in tokens:
        before = kept[-1] if kept else token
        touching = before.token_type.name == "NUMBER" and token.start == before.end + 1
        if touching and token.text.upper() in _SUFFIXES:
            # The tree keeps a number's text as it is.
            place = {"line": token.line, "col": token.col, "start": before.start, "end": token.end}
            kept[-1] = type(before)(before.token_type, before.text + token.text, **place)
        else:
            kept.append(token)
    return kept


def _malformed(text: str, problem: str, position: int) -> PredicateSyntaxError:
    return PredicateSyntaxError(problem, text=text, position=position)


def _check_operators(text: str, tokens: list[Any]) -> None:
    """Refuse Python's and C's operators, which bind tighter than comparisons; say what to write."""
    if tokens[0].token_type.name in ("WHERE", "SELECT"):
        problem = "a predicate is only the text after WHERE"
        raise _malformed(text, problem, int(tokens[0].start))
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.token_type.name in ("STRING", "IDENTIFIER"):
            continue
        if word := _foreign(before, token):
            # Between two sides it is a pattern's.
            pattern = word == "~" and before is not None and before.token_type.name in _NAMES
            instead = "LIKE 'prefix%'" if pattern else _FOREIGN[word]
            problem = f"{word} is not supported; write {instead}"
            start = token.start if token.text.startswith(word) else before.start
            raise UnsupportedPredicateError(problem, text=text, position=int(start))
        if before is not None and (problem := _misspelt(before, token)):
            raise _malformed(text, problem, int(before.start))


def _touching(before: Any, token: Any) -> bool:
    return before is not None and token.start == before.end + 1


def _foreign(before: Any, token: Any) -> str:
    """Return the operator of another language that a token is, or ends; no text for others."""
    word = token.text
    if _touching(before, token) and before.text + word in _FOREIGN:
        return str(before.text + word)
    if word.startswith("\u00ac"):
        return "\u00ac"
    return word if word in _FOREIGN else ""


def _misspelt(before: Any, token: Any) -> str:
    """Return what is wrong with a number or a placeholder; no text where nothing is."""
    kinds = before.token_type.name, token.token_type.name
    if kinds == ("NUMBER", "VAR") and _touching(before, token):
        return "a number is written in digits alone, as in 1000 or 1e3"
    if (before.text == ":" and kinds[1] == "NUMBER") or (
        before.text == "%" and token.text in ("s", "d", "(") and _touching(before, token)
    ):
        return _NAMED
    return ""


def _check_nesting(text: str, tokens: list[Any]) -> None:
    # Counted before parsing, since a parser that runs out of stack cannot be controlled.
    depth = 0
    run = 0
    for token in tokens:
        word = token.text.lower() if token.token_type.name != "STRING" else ""
        depth += (word in _OPENING) - (word in _CLOSING)
        run = run + 1 if word in _PREFIXES else (run if word in _OPENING else 0)
        if depth + run > _MAX_NESTING:
            problem = f"the predicate is nested more than {_MAX_NESTING} levels deep"
            raise _malformed(text, problem, int(token.start))


def _check_spans(text: str, tokens: list[Any]) -> None:
    """Refuse long strings beside INTERVAL, which the parser searches for numbers with units."""
    words = [token for token in tokens if token.token_type.name == "INTERVAL"]
    strings = [len(token.text) for token in tokens if token.token_type.name == "STRING"]
    if words and max(strings, default=0) > _MAX_SPAN:
        problem = (
            f"INTERVAL is not supported; beside an attribute of that name, which may be written "
            f"`interval`, strings have at most {_MAX_SPAN} characters"
        )
        raise UnsupportedPredicateError(problem, text=text, position=int(words[0].start))


def _explain(text: str, error: Any) -> tuple[str, int]:
    """Return (problem, position) of a ParseError, whose column is that of a token's end."""
    if not error.errors:
        return "not a condition in SQL", 0
    detail = error.errors[0]
    line, column = detail.get("line") or 1, detail.get("col") or 1
    lines = text.split("\n")
    line_start = sum(len(before) + 1 for before in lines[: line - 1])
    position = line_start + column - max(1, len(detail.get("highlight") or ""))
    problem = str(detail.get("description") or "not a condition in SQL")
    if problem.startswith("Required keyword"):
        problem = "something is missing here"
    elif problem.startswith("Invalid expression"):
        problem = "unexpected here"
    return problem, min(max(position, 0), max(len(text) - 1, 0))


_CLOSED: Final = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`\"]*`|--[^\n]*|/\*.*?\*/|[^'\"`]", re.DOTALL
)


def _backticks_quoted(text: str) -> str:
    """Put names in backticks, as in Spark's SQL, in double quotes; the text keeps its length."""
    if "`" not in text:
        return text
    return _CLOSED.sub(lambda m: f'"{m[0][1:-1]}"' if m[0].startswith("`") else m[0], text)


def single_quoted(text: str) -> str:
    """Rewrite strings in double quotes, as in Spark, to strings in single quotes.

    Names are in backticks then, or in no quotes. A text that is no SQL stays as it is, and is
    refused later.
    """
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import TokenError

    if not isinstance(text, str) or '"' not in text or len(text) > MAX_TEXT:
        return text
    if _open_quote(text) is not None:
        return text
    try:
        tokens = Dialect.get_or_raise("").tokenize(_backticks_quoted(text))
    except TokenError:
        return text
    pieces, end = [], 0
    for token in tokens:
        if token.token_type.name == "IDENTIFIER" and text[token.start] == '"':
            pieces += [text[end : token.start], "'" + token.text.replace("'", "''") + "'"]
            end = token.end + 1
    return "".join([*pieces, text[end:]])


def _open_quote(text: str) -> int | None:
    """Return the offset of a quote or comment that is never closed."""
    position = 0
    while position < len(text):
        match = _CLOSED.match(text, position)
        if match is None or (text.startswith("/*", position) and not match[0].endswith("*/")):
            return position
        position = match.end()
    return None


# -- literals --------------------------------------------------------------------------------------


def read_string(text: str) -> str:
    """Read a string."""
    if _ESCAPE.search(text):
        raise PatternError(
            "a backslash in a string is an escape in Spark's SQL, and itself in standard SQL, so "
            "none is taken here; pass such a string as the value of a private constant, :name"
        )
    return text


def read_number(digits: str) -> int | decimal.Decimal:
    """Read a number without a sign."""
    if len(digits) > _MAX_DIGITS:
        raise ConstantError(f"a number is written with at most {_MAX_DIGITS:,} characters")
    try:
        return int(digits) if digits.isdigit() else decimal.Decimal(digits)
    except (ValueError, decimal.InvalidOperation):
        raise ConstantError("not a number that can be read") from None


def read_negative(digits: str) -> int | decimal.Decimal:
    """Read a number that has a minus before it."""
    value = read_number(digits)
    # Minus rounds a Decimal to the context's precision.
    return -value if isinstance(value, int) else value.copy_negate()


def read_suffixed(text: str, kind: AttributeType, *, negative: bool) -> int | decimal.Decimal:
    """Read a number with one of Spark's suffixes, which give it a type, for a type of attribute."""
    match = _SUFFIXED.fullmatch(text)
    assert match is not None
    value, suffix = (read_negative if negative else read_number)(match[1]), match[2].upper()
    if suffix in _WIDTHS:
        bound = 1 << _WIDTHS[suffix] - 1
        if not isinstance(value, int) or not -bound <= value < bound:
            raise ConstantError(
                "with the suffix Y, S or L a number is whole and has 8, 16 or 64 bits; write it "
                "without the suffix"
            )
    elif suffix != "BD" and not compares_like_float(kind, value, single=suffix == "F"):
        raise ConstantError(
            "with the suffix D or F a number is a binary float, which compares with this "
            "attribute's values in another way than the decimal number; write it without the suffix"
        )
    return value


def compares_like_float(
    kind: AttributeType, constant: int | decimal.Decimal, *, single: bool
) -> bool:
    """Tell whether values of a type compare with a number as they do with the nearest float.

    Spark compares decimals with floats as float64, and integers with a float32 as either. True also
    for types that have no numbers.

    Args:
        kind: the type.
        constant: the number.
        single: True if the float is a float32.

    Raises:
        ConstantError: the type does not compare with the number.
    """
    if not isinstance(kind, Decimal | Int | UInt):
        return True
    below, upto = kind.bisect(constant)
    try:
        double = float(constant)
    except OverflowError:
        return False
    with np.errstate(over="ignore"):
        nearest = float(np.float32(double)) if single else double
    # Rounding keeps the order, so that the neighbours decide.
    if not math.isfinite(nearest) or (below < upto and nearest != double):
        return False
    low, step = (kind.low, kind.step) if isinstance(kind, Decimal) else (kind.least, 1)
    for neighbour, sign in ((below - 1, -1), (upto, 1)):
        if 0 <= neighbour < kind.cardinality:
            value = float(Fraction(low) + neighbour * Fraction(step))
            floats = [value, float(np.float32(value))] if single else [value]
            if any(sign * real <= sign * nearest for real in floats):
                return False
    return True


def read_timestamp(text: str, expected: str = "expected text such as '2024-01-31' or") -> Instant:
    """Read TIMESTAMP '...'."""
    try:
        return Instant.parse(text)
    except ValueError as problem:
        raise ConstantError(f"{problem}; {expected} '2024-01-31 12:30:00'") from None


def read_clock(text: str) -> Instant:
    """Read TIMESTAMP_NTZ '...': date and time as written, without the zone, as in Spark."""
    read_timestamp(text)
    return Instant.parse(_ZONE.sub(r"\1", text.strip()))


def read_date(text: str) -> Instant:
    """Read DATE '...': the date as written, without time of day and zone, as in Spark."""
    read_timestamp(text)
    return Instant.parse(text.strip()[:10])


def read_day(text: str) -> Instant:
    """Read a string that is compared with days.

    Spark takes it for a date where the column is a DATE, and for a point in time where it is a
    TIMESTAMP, which an attribute does not tell.
    """
    expected = "days compare with text such as '2024-01-31', or TIMESTAMP"
    instant = read_timestamp(read_string(text), expected)
    if instant != read_date(text):
        raise PatternError(
            "with a time of day, a string compares in one way with dates and in another with "
            "timestamps; write DATE '2024-01-31', or TIMESTAMP '2024-01-31 12:30:00'"
        )
    return instant
