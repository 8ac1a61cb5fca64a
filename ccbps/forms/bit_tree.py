"""Bags of bits: predicates as monotone trees whose leaves say that one bit of a code has one value.

An attribute of n bits turns into n literals (position, value), position 0 being the most
significant bit. A comparison becomes at most n leaves, an interval at most 2n::

    x < c:  bit 1 of c -> OR(x_i = 0, rest);  bit 0 of c -> AND(x_i = 0, rest)

and an interval follows its bounds from the most significant bit while they agree. Nodes are
thresholds: AND is "all of", OR "one of". Negation is at the leaves, as in `ccbps.predicates.form`.

Hazard: the tree is the predicate, and its shape alone is most of it: the sequence of AND and OR in
a comparison spells the constant's bits.
Source: [BSW07] section 4.3 for comparisons; [IRC12] uses them in filters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ccbps.predicates import Schema
from ccbps.predicates.form import AllOf, AtLeastOf, Form, HammingWithin, InRange


@dataclass(frozen=True, slots=True)
class Literal:
    """A leaf: bit `position` of an attribute (0 is the most significant) has `value`."""

    attribute: str
    position: int
    value: int = field(repr=False)


@dataclass(frozen=True, slots=True)
class Threshold:
    """A node: at least `least` of two or more parts hold, 1 <= least <= len(parts)."""

    least: int
    parts: tuple[BitNode, ...]


@dataclass(frozen=True, slots=True)
class Fixed:
    """A constant: holds always, or never."""

    value: bool


BitNode: TypeAlias = Literal | Threshold | Fixed

TRUE: Final = Fixed(True)
FALSE: Final = Fixed(False)


def _threshold(least: int, parts: Sequence[BitNode]) -> BitNode:
    """Join parts to "at least `least` of them hold", simplified."""
    least -= sum(part is TRUE for part in parts)
    rest = [part for part in parts if not isinstance(part, Fixed)]
    if least <= 0:
        return TRUE
    if least > len(rest):
        return FALSE
    if len(rest) == 1:
        return rest[0]
    # AND in AND and OR in OR are one node.
    every = least == len(rest)
    flat: list[BitNode] = []
    for part in rest:
        joins = isinstance(part, Threshold) and (
            part.least == 1 if least == 1 else every and part.least == len(part.parts)
        )
        flat.extend(part.parts if joins and isinstance(part, Threshold) else [part])
    return Threshold(len(flat) if every else least, tuple(flat))


def _both(*parts: BitNode) -> BitNode:
    return _threshold(len(parts), parts)


def _either(*parts: BitNode) -> BitNode:
    return _threshold(1, parts)


def _within(name: str, bits: int, at: int, low: int, high: int) -> BitNode:
    """Write low <= (the lowest bits - at bits) <= high."""
    width = bits - at
    if high < low:
        return FALSE
    if (low, high) == (0, (1 << width) - 1):
        return TRUE
    half = 1 << (width - 1)
    zero, one = Literal(name, at, 0), Literal(name, at, 1)
    if high < half:
        return _both(zero, _within(name, bits, at + 1, low, high))
    if low >= half:
        return _both(one, _within(name, bits, at + 1, low - half, high - half))
    lower = _within(name, bits, at + 1, low, half - 1)
    upper = _within(name, bits, at + 1, 0, high - half)
    # Where one half is whole, its literal suffices, and the other half's is implied.
    if lower is TRUE:
        return _either(zero, upper)
    if upper is TRUE:
        return _either(one, lower)
    return _either(_both(zero, lower), _both(one, upper))


def _range(schema: Schema, leaf: InRange) -> BitNode:
    name, bits = leaf.attribute, schema[leaf.attribute].bits
    size, last = schema[name].size, (1 << bits) - 1
    low, high = leaf.bounds
    # Codes of the size and above do not occur: a range that reaches the last code goes on.
    reaches = high >= size - 1
    if not leaf.negated:
        return _within(name, bits, 0, low, last if reaches else high)
    if high < low:
        return TRUE
    above = FALSE if reaches else _within(name, bits, 0, high + 1, last)
    below = _within(name, bits, 0, 0, low - 1)
    if low == high:  # one code left out: some bit differs
        return _threshold(1, _bits(name, bits, low ^ last))
    return _either(below, above)


def _bits(name: str, bits: int, value: int) -> list[BitNode]:
    return [Literal(name, at, value >> (bits - 1 - at) & 1) for at in range(bits)]


def _hamming(schema: Schema, leaf: HammingWithin) -> BitNode:
    name, bits = leaf.attribute, schema[leaf.attribute].bits
    if leaf.negated:
        return _threshold(leaf.limit + 1, _bits(name, bits, leaf.centre ^ ((1 << bits) - 1)))
    return _threshold(bits - leaf.limit, _bits(name, bits, leaf.centre))


def bit_tree(schema: Schema, form: Form) -> BitNode:
    """Write a bound predicate's form as a tree, simplified; `TRUE` or `FALSE` if it is constant.

    Raises:
        ParameterError: a private constant is not bound.
    """
    if isinstance(form, InRange):
        return _range(schema, form)
    if isinstance(form, HammingWithin):
        return _hamming(schema, form)
    parts = [bit_tree(schema, part) for part in form.children]
    if isinstance(form, AtLeastOf):
        return _threshold(form.k, parts)
    return _threshold(len(parts) if isinstance(form, AllOf) else 1, parts)


def iter_literals(node: BitNode) -> Iterator[Literal]:
    """Yield the leaves, left to right."""
    if isinstance(node, Literal):
        yield node
    elif isinstance(node, Threshold):
        for part in node.parts:
            yield from iter_literals(part)
