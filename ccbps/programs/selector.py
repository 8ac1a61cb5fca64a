"""Selectors: alpha-preserving programs with one index sequence that compute any x_i one chooses.

A program of fixed structure (`ccbps.programs.barrington.fixed_structure`) still shows by its index
sequence which input each instruction takes. Put a selector over all n inputs in place of each
instruction: its index sequence is public and always the same, and its interstitial elements, which
only the subscriber sees, choose the input.

- **FSGP**: Barrington's transform of OR_j (x_j AND s_j), where the subscriber sets one s_j:
  depth 1 + log2 n, so 4 n^2 elements.
- **OFSGP**: for each bit the block alpha^x u alpha^x u^-1, which is the identity for
  u alpha u^-1 = alpha^-1, and a conjugate of alpha^x for another u: 2 n elements of the publisher
  and 2 n of the subscriber, 4 n in all. One use of each bit cannot do: u alpha v = u v would make
  alpha the identity.

Erratum: the block that gives alpha^(2x) (u = 1) works in S5, where alpha^2 is conjugate to alpha.
In A5 it is not; u with alpha (u alpha u^-1) conjugate to alpha works in both groups.

Source: [SSM] sections 4.3 and 4.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra.group import Group
from ccbps.arrays import Index, Ranks
from ccbps.circuits.builder import CircuitBuilder
from ccbps.errors import ParameterError
from ccbps.programs.barrington import partner_of, preserving
from ccbps.programs.group import PreservingProgram

MAX_TABLE: Final = 1 << 26
"""Most elements of a selector's table, a byte each: it grows with the square of the number of
inputs, or with the cube, and longer ones are refused before any array is made."""


@dataclass(frozen=True, slots=True, eq=False)
class Selector:
    """An alpha-preserving program for each choice of one of n inputs, or of none.

    Attributes:
        group: where the elements are.
        index: the public index sequence, shape (length,).
        table: interstitial elements for each choice, shape (n + 1, length + 1); row n is for none.
    """

    group: Group
    index: Index = field(repr=False)
    table: Ranks = field(repr=False)

    @property
    def blocks(self) -> tuple[int, int] | None:
        """u of a chosen input and of another, for selectors of blocks alpha^x u alpha^x u^-1."""
        if self.length != 2 * self.inputs:
            return None
        return int(self.table[0, 1]), int(self.table[-1, 1])

    @property
    def inputs(self) -> int:
        """n, the number of inputs to choose from."""
        return len(self.table) - 1

    @property
    def length(self) -> int:
        """Elements of the publisher in one selector."""
        return len(self.index)

    def program(self, choice: int) -> PreservingProgram:
        """The program that computes x_choice, or 0 for choice n."""
        return PreservingProgram(self.group, self.table[choice], self.index)


@lru_cache(maxsize=8)
def optimized_selector(inputs: int, group: Group) -> Selector:
    """OFSGP's: index sequence 1, 1, 2, 2, ..., n, n.

    Raises:
        ParameterError: no input, or a table of more than `MAX_TABLE` elements.
    """
    _check(inputs, 2 * inputs, "put fewer or narrower attributes in the schema")
    multiply, inverse = group.multiplication, group.inverses
    alpha, partner = group.alpha, partner_of(group)
    # u alpha u^-1 = target is conjugation by rho = u^-1.
    chosen = int(inverse[group.conjugator(alpha, partner)])
    other = int(inverse[group.conjugator(alpha, int(inverse[alpha]))])
    rho = group.conjugator(int(multiply[alpha, partner]), alpha)
    u = np.full((inputs + 1, inputs), other, dtype=np.uint8)
    np.fill_diagonal(u, chosen)
    table = np.zeros((inputs + 1, 2 * inputs + 1), dtype=np.uint8)
    table[:, 1::2] = u
    table[:, 2::2] = inverse[u]
    table[:, 0] = inverse[rho]
    table[:, -1] = multiply[table[:, -1], rho]
    return _frozen(group, np.repeat(np.arange(inputs), 2), table)


@lru_cache(maxsize=8)
def barrington_selector(inputs: int, group: Group) -> Selector:
    """FSGP's: the transform of OR_j (x_j AND s_j), with the subscriber's elements multiplied.

    Raises:
        ParameterError: no input, or a table of more than `MAX_TABLE` elements.
    """
    # An OR of parts f and h has 2 (f + h) instructions. So n parts of 4, half of them x_j's, have
    # 4 n^2 when they are joined in pairs, and never fewer: a^2 + b^2 >= (a + b)^2 / 2.
    _check(inputs, 2 * inputs * inputs, "use optimized_selector (OFSGPMatch)")
    builder = CircuitBuilder()
    wires = builder.inputs(2 * inputs)
    pairs = zip(wires[:inputs], wires[inputs:], strict=True)
    circuit = builder.build(builder.any_of(x & s for x, s in pairs))
    program = preserving(circuit, group)
    multiply = group.multiplication
    # s_j is 1 in row j only. The subscriber multiplies alpha^s into what is beside it.
    table = np.empty((inputs + 1, int((program.index < inputs).sum()) + 1), dtype=np.uint8)
    running = np.full(inputs + 1, program.interstitials[0], dtype=np.uint8)
    done = 0
    for wire, element in zip(program.index.tolist(), program.interstitials[1:], strict=True):
        if wire < inputs:
            table[:, done] = running
            done += 1
            running[:] = element
        else:
            running[wire - inputs] = multiply[running[wire - inputs], group.alpha]
            running = multiply[running, element]
    table[:, done] = running
    return _frozen(group, program.index[program.index < inputs], table)


def _check(inputs: int, length: int, instead: str) -> None:
    if inputs < 1:
        raise ParameterError(f"a selector needs at least 1 input, got {inputs}")
    if (inputs + 1) * (length + 1) > MAX_TABLE:
        raise ParameterError(f"a selector of {inputs:,} inputs is too long: {instead}")


def _frozen(group: Group, index: NDArray[np.integer], table: Ranks) -> Selector:
    sequence: Index = index.astype(np.int32)
    sequence.flags.writeable = table.flags.writeable = False
    return Selector(group, sequence, table)


def seams(program: PreservingProgram, selector: Selector, low: int, high: int) -> Ranks:
    """The elements in front of the selectors of instructions low .. high - 1, shape (high - low,).

    Each is the last of the selector before, what lies between, and the first of this one.
    """
    multiply, table = selector.group.multiplication, selector.table
    choices = program.index[low:high]
    out: Ranks = multiply[program.interstitials[low:high], table[choices, 0]]
    first = 0 if low else 1
    out[first:] = multiply[table[program.index[low + first - 1 : high - 1], -1], out[first:]]
    return out


def selected(program: PreservingProgram, selector: Selector, start: int, stop: int) -> Ranks:
    """Interstitials start .. stop - 1 of `program` with a selector in place of each instruction.

    The whole has program.length * selector.length + 1 of them. The last of one selector, what lies
    between and the first of the next are one element: their product.

    Returns:
        ranks, shape (stop - start,).
    """
    m = selector.length
    total = program.length * m
    if not 0 <= start <= stop <= total + 1:
        raise ParameterError(f"start..stop must lie in 0..{total + 1}, got {start}..{stop}")
    if start == stop:
        return np.zeros(0, dtype=np.uint8)
    low, high = start // m, min(-(-stop // m), program.length)
    if low == program.length:  # the very last one alone
        low -= 1
    rows = selector.table[program.index[low:high]]
    out = np.empty((high - low) * m + 1, dtype=np.uint8)
    out[:-1].reshape(-1, m)[:] = rows[:, :-1]
    out[:-1:m] = seams(program, selector, low, high)
    # If another selector follows, what comes last here is in front of it and not asked for.
    out[-1] = selector.group.multiplication[rows[-1, -1], program.interstitials[high]]
    return out[start - low * m : stop - low * m]
