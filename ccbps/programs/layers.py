"""Sums of products over GF(2) in layers, for parties that compute on shares.

Parties add shared values without a message. A product of two shared values has to be shared anew
before it can be multiplied again, and that takes a message. So a program is layers of *gates*. A
gate is a sum of any number of products, and it costs each party one bit, whatever their number
(`ccbps.shares`). The operands are, with their numbers in this order:

- bits of an event, the same for all interests;
- rows of an interest's private bits;
- gates of earlier layers.

A gate may also look up *tables*. A table is 2^w private bits of the interest, one for each value of
a digit of the event. The event gives this value as a one-hot vector of 2^w bits. So a lookup is a
sum of 2^w products, which a gate includes at no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """A sum over GF(2), still to be computed.

    Attributes:
        tables: tables that are looked up.
        products: pairs of factors.
        bits: bits of the event.
        rows: rows of the interest.
        gates: sums that are gates of their own.
    """

    tables: tuple[int, ...] = ()
    products: tuple[tuple[Sum, Sum], ...] = ()
    bits: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    gates: tuple[Sum, ...] = ()


def table(number: int) -> Sum:
    """Write the lookup of a table."""
    return Sum(tables=(number,))


def event_bit(number: int) -> Sum:
    """Write a bit of the event."""
    return Sum(bits=(number,))


def row(number: int) -> Sum:
    """Write a private bit of the interest."""
    return Sum(rows=(number,))


def product(left: Sum, right: Sum) -> Sum:
    """Write a product."""
    return Sum(products=((left, right),))


def total(parts: Iterable[Sum]) -> Sum:
    """Write the sum of some sums, computed in one gate."""
    parts = list(parts)
    return Sum(
        tuple(number for part in parts for number in part.tables),
        tuple(pair for part in parts for pair in part.products),
        tuple(number for part in parts for number in part.bits),
        tuple(number for part in parts for number in part.rows),
        tuple(gate for part in parts for gate in part.gates),
    )


def gate(part: Sum) -> Sum:
    """Write a sum as a gate of its own: a sum that is also a factor needs one."""
    return part if _operand(part) else Sum(gates=(part,))


def conjunction(parts: Sequence[Sum]) -> Sum:
    """Write an AND of at least one part, as a tree of few layers."""
    return _tree(parts, product)


def either(left: Sum, right: Sum) -> Sum:
    """Write an OR."""
    return total([gate(left), gate(right), product(left, right)])


def disjunction(parts: Sequence[Sum]) -> Sum:
    """Write an OR of at least one part, as a tree of few layers."""
    return _tree(parts, either)


def _tree(parts: Sequence[Sum], join: Callable[[Sum, Sum], Sum]) -> Sum:
    while len(parts) > 1:
        pairs = [join(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = [*pairs, *parts[2 * len(pairs) :]]
    return parts[0]


def at_least(count: int, parts: Sequence[Sum]) -> Sum:
    """Write "at least `count` of the parts hold", 1 <= count <= number of parts.

    At least k of some parts and x hold where at least k of the parts do (a), or x and at least
    k - 1 (b). As b holds wherever a does, that is ``a + x b + x a``, and it needs no constant.
    """
    held: list[Sum] = []  # at least 1, 2, ... of the parts so far
    for number, part in enumerate(parts):
        before, left = held, len(parts) - number - 1
        held = before[:]
        for k in range(max(1, count - left), min(count, number + 1) + 1):
            if k > number:
                held += [part if k == 1 else product(part, before[-1])]
            elif k == 1:
                held[0] = either(before[0], part)
            else:
                same, fewer = before[k - 1], before[k - 2]
                held[k - 1] = total([gate(same), product(part, fewer), product(part, same)])
    return held[count - 1]


class Gate(NamedTuple):
    """A sum of lookups, of products of operands, and of operands."""

    tables: tuple[int, ...]
    products: tuple[Pair, ...]
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layers:
    """A program: its gates by layer, with the answer as the only gate of the last one.

    Attributes:
        bits: bits of the event that are operands.
        rows: rows of the interest that are operands.
        layers: gates of each layer.
    """

    bits: int
    rows: int
    layers: list[list[Gate]]

    @classmethod
    def of(cls, answer: Sum, bits: int, rows: int) -> Layers:
        """Sort the gates of a sum into as few layers as there can be."""
        levels: dict[Sum, int] = {}
        # Without recursion: a chain of digits may be longer than Python's stack.
        pending = [(answer, False)]
        while pending:
            node, ready = pending.pop()
            if node in levels:
                continue
            factors = [part for pair in node.products for part in pair]
            needed = [*node.gates, *(_inner(part) for part in factors if not _input(part))]
            if ready:
                levels[node] = 1 + max((levels[part] for part in needed), default=-1)
            else:
                pending.append((node, True))
                pending += [(part, False) for part in needed]
        order = sorted(levels, key=levels.__getitem__)
        numbers = {node: place for place, node in enumerate(order, bits + rows)}

        def number(part: Sum) -> int:
            """Return the number of an operand."""
            if not _input(part):
                return numbers[_inner(part)]
            return part.bits[0] if part.bits else bits + part.rows[0]

        def gate_of(node: Sum) -> Gate:
            operands = [*node.bits, *(bits + place for place in node.rows)]
            operands += (numbers[part] for part in node.gates)
            products = tuple((number(a), number(b)) for a, b in node.products)
            return Gate(node.tables, products, tuple(operands))

        layers = groupby(order, key=levels.__getitem__)
        return cls(bits, rows, [[gate_of(node) for node in nodes] for _, nodes in layers])

    @property
    def gates(self) -> int:
        """Number of gates, which is the bits that each party sends for a pair."""
        return sum(map(len, self.layers))


def _input(part: Sum) -> bool:
    """Tell whether a sum is one bit of the event, or one row of the interest."""
    return _operand(part) and not part.gates


def _operand(part: Sum) -> bool:
    """Tell whether a sum needs no gate of its own: it is an input, or a gate already."""
    single = len(part.bits) + len(part.rows) + len(part.gates) == 1
    return single and not part.tables and not part.products


def _inner(part: Sum) -> Sum:
    """Return the gate of an operand that is one, and any other sum itself."""
    return part.gates[0] if _operand(part) else part
