"""Counting true wires with as few ANDs as known: n - HW(n), XOR being free.

`ccbps.circuits.blocks` prefers small depth. Where ciphertexts are paid for ANDs, as in garbled
circuits, these blocks are better.

Source: Boyar and Peralta, Theoretical Computer Science 2008 (the bound is tight).
"""

from __future__ import annotations

from collections.abc import Sequence

from ccbps.circuits.circuit import CircuitBuilder, Wire


def count_ones(builder: CircuitBuilder, wires: Sequence[Wire]) -> list[Wire]:
    """Count the true ones of n wires, in binary, least significant bit first.

    It takes n - HW(n) ANDs, where HW(n) is the number of ones of n in binary.
    """
    digits: list[Wire] = []
    column = list(wires)
    while column:
        carries, waiting = list[Wire](), column
        while len(waiting) > 2:
            a, b, c, *rest = waiting
            carries.append(((a ^ c) & (b ^ c)) ^ c)
            waiting = [*rest, a ^ b ^ c]
        if len(waiting) == 2:
            a, b = waiting
            carries.append(a & b)
            waiting = [a ^ b]
        digits += waiting
        column = carries
    return digits


def count_ands(count: int) -> int:
    """Return the number of ANDs of `count_ones` for so many wires."""
    return count - count.bit_count()


def at_least(builder: CircuitBuilder, limit: int, wires: Sequence[Wire]) -> Wire:
    """Return whether at least `limit` of n wires are true.

    It takes the ANDs of `count_ones`, and less than one more for each bit of the count.
    """
    if limit <= 0 or limit > len(wires):
        return builder.constant(limit <= 0)
    digits = count_ones(builder, wires)
    reached = builder.constant(True)
    for place, digit in enumerate(digits):
        reached = digit & reached if limit >> place & 1 else digit | reached
    return reached
