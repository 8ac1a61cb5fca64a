"""Selectors: alpha-preserving programs with one index sequence for all choices of an input x_i.

A program of fixed structure (`ccbps.programs.barrington.fixed_structure`) still shows the input of
each instruction by its index sequence. A selector over all n inputs takes the place of each
instruction. Its index sequence is public and always the same. Its interstitial elements, which only
the subscriber sees, choose the input.

- **FSGP**: Barrington's transform of OR_j (x_j AND s_j), where the subscriber sets one s_j:
  depth 1 + log2 n, so 4 n^2 elements.
- **OFSGP**: for each bit the block alpha^x u alpha^x u^-1. It is the identity for
  u alpha u^-1 = alpha^-1, and a conjugate of alpha^x for another u. The publisher has 2 n elements
  and the subscriber 2 n, 4 n in all. A single use of each bit is not enough: u alpha v = u v would
  make alpha the identity.

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
from ccbps.checks import whole
from ccbps.circuits.circuit import CircuitBuilder
from ccbps.errors import ParameterError
from ccbps.programs.barrington import partner_of, preserving
from ccbps.programs.group import PreservingProgram

MAX_TABLE: Final = 1 << 26
"""Largest number of elements of a selector's table, a byte each. It grows with the square or the
cube of the number of inputs. Longer tables are refused before any array is allocated."""


@dataclass(frozen=True, slots=True, eq=False)
class Selector:
    """An alpha-preserving program for each choice of one of n inputs, or of none.

    Attributes:
        group: group of the elements.
        index: public index sequence, shape (length,).
        table: interstitial elements for each choice, shape (n + 1, length + 1). Row n selects no
            input.
    """

    group: Group
    index: Index = field(repr=False)
    table: Ranks = field(repr=False)

    @property
    def blocks(self) -> tuple[int, int] | None:
        """Element u of the chosen input and of another, in blocks alpha^x u alpha^x u^-1.

        It is None for selectors of other blocks.
        """
        if self.length != 2 * self.inputs:
            return None
        return int(self.table[0, 1]), int(self.table[-1, 1])

    @property
    def inputs(self) -> int:
        """Number of inputs n."""
        return len(self.table) - 1

    @property
    def length(self) -> int:
        """Number of the publisher's elements in a selector."""
        return len(self.index)

    def program(self, choice: int) -> PreservingProgram:
        """Return the program that computes x_choice, or 0 for choice n."""
        return PreservingProgram(self.group, self.table[choice], self.index)


@lru_cache(maxsize=8)
def optimized_selector(inputs: int, group: Group) -> Selector:
    """Return OFSGP's selector, with the index sequence 1, 1, 2, 2, ..., n, n.

    Raises:
        ParameterError: there is no input, or the table has more than `MAX_TABLE` elements.
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
    """Return FSGP's selector: the transform of OR_j (x_j AND s_j).

    The subscriber's neighbouring elements are multiplied.

    Raises:
        ParameterError: there is no input, or the table has more than `MAX_TABLE` elements.
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
    # s_j is 1 in row j only. The subscriber multiplies alpha^s into the neighbouring element.
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
    whole("inputs", inputs, 1)
    if (inputs + 1) * (length + 1) > MAX_TABLE:
        raise ParameterError(f"a selector of {inputs:,} inputs is too long; {instead}")


def _frozen(group: Group, index: NDArray[np.integer], table: Ranks) -> Selector:
    sequence: Index = index.astype(np.int32)
    sequence.flags.writeable = table.flags.writeable = False
    return Selector(group, sequence, table)


def seams(program: PreservingProgram, selector: Selector, low: int, high: int) -> Ranks:
    """Return the elements in front of the selectors of instructions low .. high - 1.

    Each is a product: the last element of the selector before, the interstitial between, and the
    first element of the selector. The shape is (high - low,).
    """
    multiply, table = selector.group.multiplication, selector.table
    choices = program.index[low:high]
    out: Ranks = multiply[program.interstitials[low:high], table[choices, 0]]
    first = 0 if low else 1
    out[first:] = multiply[table[program.index[low + first - 1 : high - 1], -1], out[first:]]
    return out


def selected(program: PreservingProgram, selector: Selector, start: int, stop: int) -> Ranks:
    """Return interstitials of a program with a selector in place of each instruction.

    There are program.length * selector.length + 1 in total. The last element of a selector, the
    interstitial between and the first element of the next selector become their product.

    Args:
        program: program whose instructions are replaced.
        selector: selector of the program's inputs.
        start: place of the first interstitial.
        stop: place behind the last interstitial.

    Returns:
        Ranks, shape (stop - start,).
    """
    m = selector.length
    end = program.length * m + 1
    whole("stop", stop, whole("start", start, 0, end), end)
    if start == stop:
        return np.zeros(0, dtype=np.uint8)
    low, high = start // m, min(-(-stop // m), program.length)
    if low == program.length:  # only the very last interstitial
        low -= 1
    rows = selector.table[program.index[low:high]]
    out = np.empty((high - low) * m + 1, dtype=np.uint8)
    out[:-1].reshape(-1, m)[:] = rows[:, :-1]
    out[:-1:m] = seams(program, selector, low, high)
    # If another selector follows, the last element is in front of it and is cut off below.
    out[-1] = selector.group.multiplication[rows[-1, -1], program.interstitials[high]]
    return out[start - low * m : stop - low * m]
