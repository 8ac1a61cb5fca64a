"""Textual attribute types: a closed list of names, hashed words, and short prefix-able text.

All three compare the UTF-8 bytes, which is SQL's binary collation: upper case before lower case,
no locale, no normalisation, no padding of trailing blanks. LIKE 'pre%' is then a range of codes.

Not protected: a `Category` list is public, as every parameter of a type is.
Convention: constants are strings and are never trimmed or converted; a constant outside the
domain splits it where SQL would.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from functools import cached_property
from typing import Any, ClassVar

from ccbps import primitives
from ccbps.checks import whole
from ccbps.errors import ParameterError
from ccbps.predicates.types import AttributeType, ConstantError, Refused, explained


def _constant_bytes(constant: Any, kind: str) -> bytes:
    if not isinstance(constant, str):
        raise ConstantError(f"a {kind} attribute compares with strings in single quotes")
    try:
        return _value_bytes(constant)
    except Refused:
        raise ConstantError("the string is not valid Unicode") from None


def _value_bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise Refused(f"wrong type ({type(value).__name__})")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:
        raise Refused("not valid Unicode") from None


class Category(AttributeType):
    """A name of a closed, public list.

    Example:
        >>> from ccbps import Category, Schema
        >>> issue = Category(["MSFT", "AAPL", "IBM"])
        >>> issue
        Category(["AAPL", "IBM", "MSFT"])
        >>> issue.bits
        2
        >>> Schema(issue=issue).parse("issue = 'IBM'").evaluate({"issue": ["IBM", "AAPL"]})
        array([ True, False])

    Attributes:
        values: the distinct names, sorted by their UTF-8 bytes, whatever order they came in.
    """

    values: tuple[str, ...]
    _special_operators: ClassVar[tuple[str, ...]] = ("like",)

    @explained('["AAPL", "IBM", "MSFT"]')
    def __init__(self, values: Iterable[str], *, nullable: bool = False) -> None:
        names = list(values) if isinstance(values, Iterable) else [values]
        if isinstance(values, str) or not all(isinstance(name, str) for name in names):
            raise ParameterError(
                'Category values must be a list of strings, such as Category(["AAPL", "IBM"])'
            )
        if not names:
            raise ParameterError("Category needs at least one value")
        if len(set(names)) != len(names):
            raise ParameterError("Category values must be distinct")
        try:
            names.sort(key=lambda name: name.encode("utf-8"))
        except UnicodeEncodeError:
            raise ParameterError("Category values must be valid Unicode") from None
        values = tuple(str(name) for name in names)
        more = f", ... ({len(values)} in all)" if len(values) > 8 else ""
        accepts = f"one of {', '.join(map(repr, values[:8]))}{more}"
        self._set(values=values, nullable=bool(nullable), cardinality=len(values), accepts=accepts)

    @cached_property
    def _sorted(self) -> list[bytes]:
        return [name.encode("utf-8") for name in self.values]

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        return {name: number for number, name in enumerate(self._sorted)}

    def parameters(self) -> dict[str, Any]:
        return {"values": list(self.values)}

    def bisect(self, constant: Any) -> tuple[int, int]:
        name = _constant_bytes(constant, "Category")
        return bisect.bisect_left(self._sorted, name), bisect.bisect_right(self._sorted, name)

    def number_of(self, value: Any) -> int:
        number = self._numbers.get(_value_bytes(value))
        if number is None:
            raise Refused("not in the list")
        return number

    def prefix_range(self, prefix: str) -> tuple[int, int]:
        start = _constant_bytes(prefix, "Category")
        first = bisect.bisect_left(self._sorted, start)
        # Sorted by bytes, the names with one prefix are neighbours.
        end = bisect.bisect_left(
            self._sorted[first:], True, key=lambda name: not name.startswith(start)
        )
        return first, first + end - 1


class Keyword(AttributeType):
    """A string of any length, as BLAKE2b of its UTF-8 bytes, truncated to `width` bits.

    Only =, != and IN fit it. Two strings share a code with probability `false_positive_rate`, and
    then compare equal.

    Example:
        >>> from ccbps import Keyword, Schema
        >>> word = Keyword(64)
        >>> word.false_positive_rate
        5.421010862427522e-20
        >>> Schema(word=word).parse("word = 'merger'").evaluate({"word": ["merger", "dividend"]})
        array([ True, False])

    Attributes:
        width: bits of the hash, 8..256. (`bits` is the width of a code.)
    """

    width: int

    @explained("64")
    def __init__(self, bits: int, *, nullable: bool = False) -> None:
        self._set(width=whole("Keyword bits", bits, 8, 256), nullable=bool(nullable))
        self._set(cardinality=2**self.width, accepts="a string")

    @property
    def false_positive_rate(self) -> float:
        """Probability that a given other string has the same code."""
        return float(2.0**-self.width)

    def parameters(self) -> dict[str, Any]:
        return {"bits": self.width}

    def _hash(self, text: bytes) -> int:
        size = -(-self.width // 8)
        digest = primitives.blake2b(text, digest_size=size).digest()
        return int.from_bytes(digest, "big") >> (8 * size - self.width)

    def check_operator(self, operator: str) -> None:
        if operator != "=":
            raise ConstantError("a Keyword is hashed and only takes =, != and IN")

    def bisect(self, constant: Any) -> tuple[int, int]:
        number = self._hash(_constant_bytes(constant, "Keyword"))
        return number, number + 1

    def number_of(self, value: Any) -> int:
        return self._hash(_value_bytes(value))


class Text(AttributeType):
    """A string of at most `chars` bytes of UTF-8 without NUL, zero padded on the right.

    Example:
        >>> from ccbps import Schema, Text
        >>> schema = Schema(code=Text(8))
        >>> schema.parse("code LIKE 'IB%'").evaluate({"code": ["IBM", "ib", "IB"]})
        array([ True, False,  True])

    Attributes:
        chars: bytes of UTF-8 of the longest string, 1..1024. A non-ASCII character takes 2 to 4.
    """

    chars: int
    _special_operators: ClassVar[tuple[str, ...]] = ("like",)

    @explained("8")
    def __init__(self, chars: int, *, nullable: bool = False) -> None:
        self._set(chars=whole("Text chars", chars, 1, 1024), nullable=bool(nullable))
        accepts = f"a string of at most {self.chars} bytes of UTF-8 without NUL"
        self._set(cardinality=256**self.chars, accepts=accepts)

    @property
    def aligned(self) -> bool:
        # Strings are numbers of whole bytes, unless NULL takes the code 0.
        return not self.nullable

    def parameters(self) -> dict[str, Any]:
        return {"chars": self.chars}

    def _padded(self, text: bytes, filler: bytes = b"\0") -> int:
        return int.from_bytes(text[: self.chars].ljust(self.chars, filler), "big")

    def _constant(self, constant: Any) -> bytes:
        text = _constant_bytes(constant, "Text")
        if b"\0" in text:
            raise ConstantError("a Text attribute does not compare with strings that contain NUL")
        return text

    def bisect(self, constant: Any) -> tuple[int, int]:
        text = self._constant(constant)
        number = self._padded(text)
        if len(text) <= self.chars:
            return number, number + 1
        # Too long to be equal to any value: its own first bytes still sort before it.
        return number + 1, number + 1

    def prefix_range(self, prefix: str) -> tuple[int, int]:
        text = self._constant(prefix)
        if len(text) > self.chars:
            return 1, 0
        return self._padded(text), self._padded(text, b"\xff")

    def number_of(self, value: Any) -> int:
        text = _value_bytes(value)
        if b"\0" in text:
            raise Refused("contains NUL")
        if len(text) > self.chars:
            raise Refused("too long")
        return self._padded(text)
