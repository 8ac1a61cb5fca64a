"""Write a predicate's normal form as SQL: sets of values, joined by AND and OR.

The normal form is the meaning of a predicate, however it was written; matchers decide it. The text
can be parsed again, except words of a Keyword, which are known by their hashes only, and sets that
are cut short.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from decimal import localcontext
from typing import Final

from ccbps.predicates import (
    AttributeType,
    Bool,
    Box,
    Category,
    Decimal,
    Int,
    Keyword,
    Predicate,
    Text,
    Timestamp,
    UInt,
)
from ccbps.predicates.attributes import Attributes
from ccbps.predicates.box import AtLeast, Conjunction, NormalForm, Part
from ccbps.predicates.codes import Intervals, complement
from ccbps.predicates.temporal import UNITS, Instant

SHOWN: Final = 8
"""Number of values or intervals of a set that are written out."""


def normal_text(predicate: Predicate, most: int = SHOWN) -> str:
    """Write the meaning of a predicate.

    Args:
        predicate: predicate whose private constants have values.
        most: number of values and intervals of a set that are written out.

    Raises:
        ParameterError: a private constant has no value.
    """
    form = NormalForm(predicate.schema, spell_out=False).of(predicate.true_form())
    return _Writer(predicate.schema, most).part(form)


def box_text(box: Box) -> str:
    """Write the meaning of a box."""
    sets: dict[str, Intervals] = {
        name: (bounds,) if bounds[0] <= bounds[1] else ()
        for name, bounds in box.ranges.items()
        if bounds != (0, box.schema[name].size - 1)
    }
    return _Writer(box.schema, SHOWN).part(Conjunction(sets, (), negated=False))


class _Writer:
    def __init__(self, schema: Attributes, most: int) -> None:
        self._schema, self._most = schema, most

    def part(self, part: Part, negate: bool = False, inside: bool = False) -> str:
        """Write a part of a normal form. NOT goes down to the sets, so that no NULL is negated."""
        negated = part.negated != negate
        if isinstance(part, AtLeast):
            # Fewer than k of n hold where more than n - k do not.
            k = len(part.parts) + 1 - part.k if negated else part.k
            parts = ", ".join(self.part(inner, negated) for inner in part.parts)
            return f"at_least({k}, {parts})"
        if not isinstance(part, Conjunction):
            text = f"hamming({part.attribute}, {part.value}) <= {part.limit}"
            return f"NOT {text}" if negated else text
        terms = []
        for name, allowed in part.sets.items():
            if negated:
                allowed = complement(allowed, self._schema[name].size - 1)
            terms += _either([*self._set(name, allowed)], alone=negated)
        terms += [self.part(inner, negated, inside=True) for inner in part.parts]
        if not terms:
            return "FALSE" if negated else "TRUE"
        joined = (" OR " if negated else " AND ").join(terms)
        return f"({joined})" if inside and len(terms) > 1 else joined

    def _set(self, name: str, allowed: Intervals) -> Iterator[str]:
        """Yield conditions, of which one holds if the code of an attribute is in a set."""
        kind, null = self._schema[name], False
        values: list[tuple[int, int]] = []
        for low, high in allowed:
            null |= low < kind.lowest
            if high >= kind.lowest:
                values.append((max(low, kind.lowest), high))
        if not allowed:
            yield "FALSE"
        if null:
            yield f"{name} IS NULL"
        if isinstance(kind, Keyword):
            yield from self._words(name, kind, values)
            return
        singles = [low for low, high in values if low == high]
        if singles:
            yield self._among(name, "", [_value(kind, code) for code in singles])
        wider = [(low, high) for low, high in values if low < high]
        for low, high in wider[: self._most]:
            yield _interval(name, kind, low, high)
        if len(wider) > self._most:
            yield f"{name} in {len(wider) - self._most} more intervals"

    def _words(self, name: str, kind: Keyword, values: list[tuple[int, int]]) -> Iterator[str]:
        """Yield a condition on a few words, or on all but a few."""
        if all(low == high for low, high in values):
            if values:
                yield self._among(name, "", [_value(kind, low) for low, _ in values])
            return
        others = [
            code
            for low, high in complement(tuple(values), kind.highest)
            for code in range(max(low, kind.lowest), high + 1)
        ]
        if others:
            yield self._among(name, "NOT ", [_value(kind, code) for code in others])
        else:
            yield f"{name} IS NOT NULL"

    def _among(self, name: str, negation: str, values: Sequence[str]) -> str:
        if len(values) == 1:
            return f"{name} {'!=' if negation else '='} {values[0]}"
        shown = [*values[: self._most]]
        if len(values) > self._most:
            shown.append(f"{len(values) - self._most} more")
        return f"{name} {negation}IN ({', '.join(shown)})"


def _either(conditions: list[str], *, alone: bool) -> list[str]:
    """Join conditions by OR. If their surroundings are joined by OR, return each by itself."""
    if alone or len(conditions) < 2:
        return [f"({text})" if alone and " AND " in text else text for text in conditions]
    return [f"({' OR '.join(_either(conditions, alone=True))})"]


def _interval(name: str, kind: AttributeType, low: int, high: int) -> str:
    """Write the condition that a code is in an interval of at least two codes."""
    if (low, high) == (kind.lowest, kind.highest):
        return f"{name} IS NOT NULL"
    if isinstance(kind, Text):
        bounds = []
        if low > kind.lowest:
            bounds.append(_lower_text(name, kind, low))
        if high < kind.highest:
            bounds.append(_upper_text(name, kind, high))
        return " AND ".join(bounds)
    if low == kind.lowest:
        return f"{name} <= {_value(kind, high)}"
    if high == kind.highest:
        return f"{name} >= {_value(kind, low)}"
    return f"{name} BETWEEN {_value(kind, low)} AND {_value(kind, high)}"


def _lower_text(name: str, kind: Text, low: int) -> str:
    """Write a lower bound. No text has a NUL, so such a bound follows the text before the NUL."""
    before, nul, _ = _bytes(kind, low).partition(b"\0")
    return f"{name} > {_quoted(before.decode())}" if nul else f"{name} >= {_value(kind, low)}"


def _upper_text(name: str, kind: Text, high: int) -> str:
    """Write an upper bound. The last code of a prefix is no text; then the next code is one."""
    with contextlib.suppress(UnicodeDecodeError):
        before, _, _ = _bytes(kind, high).partition(b"\0")
        return f"{name} <= {_quoted(before.decode())}"
    return f"{name} < {_value(kind, high + 1)}"


def _bytes(kind: Text, code: int) -> bytes:
    return (code - kind.lowest).to_bytes(kind.chars).rstrip(b"\0")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _value(kind: AttributeType, code: int) -> str:
    """Write the value of a code."""
    number = code - kind.lowest
    if isinstance(kind, UInt | Int):
        return str(kind.least + number)
    if isinstance(kind, Decimal):
        with localcontext(prec=300):
            return format(kind.low + kind.step * number, "f")
    if isinstance(kind, Category):
        return _quoted(kind.values[number])
    if isinstance(kind, Bool):
        return "TRUE" if number else "FALSE"
    if isinstance(kind, Timestamp):
        return _quoted(Instant(kind.start.seconds + number * UNITS[kind.unit]).iso())
    if isinstance(kind, Text):
        return _quoted(_bytes(kind, code).decode("utf-8", "backslashreplace"))
    return f"#{number:x}"
