"""The plaintext meaning of formulas and of branching programs, by their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccbps.programs.branching import BranchingProgram, Label
from ccbps.programs.formula import And, Chain, Formula, Lookup, Scan, Sum

Bits = NDArray[np.uint8]


def evaluate(
    formula: Formula, event: NDArray[Any], interest: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Compute the plaintext value of a formula, shape (batch,).

    Args:
        formula: formula over the bits of both parties.
        event: bits, or a whole number for each digit; shape (bits or digits, batch).
        interest: bits, shape (bits, batch).
    """
    match formula:
        case Sum(parts):
            values = [evaluate(part, event, interest) for part in parts]
            return np.asarray(np.bitwise_xor.reduce(values, axis=0))
        case And(left, right):
            return evaluate(left, event, interest) & evaluate(right, event, interest)
        case Chain(maps, bit, slope, offset):
            value = evaluate(bit, event, interest) & evaluate(slope, event, interest)
            value ^= evaluate(offset, event, interest)
            for factor, addend in reversed(maps):
                value &= evaluate(factor, event, interest)
                value ^= evaluate(addend, event, interest)
            return value
        case Lookup(digit, entries):
            return _entry(entries, event, interest, digit)
        case Scan(steps):
            digit, _, less = steps[-1]
            value = _entry(less, event, interest, digit)
            for digit, equal, less in reversed(steps[:-1]):
                value &= _entry(equal, event, interest, digit)
                value ^= _entry(less, event, interest, digit)
            return value
    value = np.full(interest.shape[1], formula.one)
    for i in formula.event:
        value ^= event[i]
    for i in formula.interest:
        value ^= interest[i]
    return value


def _entry(
    entries: tuple[Label, ...], event: NDArray[Any], interest: NDArray[np.bool_], digit: int
) -> NDArray[np.bool_]:
    values = np.array([evaluate(entry, event[:0], interest) for entry in entries])
    return np.asarray(np.take_along_axis(values, event[digit][None].astype(np.intp), axis=0)[0])


def matrix_of(program: BranchingProgram, event: Bits, interest: Bits) -> Bits:
    """Return the matrix L for each pair of 0/1 rows, shape (batch, s, s)."""
    size = program.size
    out = np.zeros((len(event), size, size), dtype=np.uint8)
    below = np.arange(1, size)
    out[:, below, below - 1] = 1
    for (u, v), label in program.edges.items():
        ones = event[:, list(label.event)].sum(1) + interest[:, list(label.interest)].sum(1)
        out[:, u, v - 1] = (ones + label.one) % 2
    return out


def value_of(program: BranchingProgram, event: Bits, interest: Bits) -> NDArray[np.bool_]:
    """Count paths mod 2 for each pair of 0/1 rows, by the recurrence over nodes."""
    matrix = matrix_of(program, event, interest)
    paths = np.zeros((len(event), program.size + 1), dtype=np.uint8)
    paths[:, 0] = 1
    for node in range(1, program.size + 1):
        arriving = paths[:, :node] & matrix[:, :node, node - 1]
        paths[:, node] = np.bitwise_xor.reduce(arriving, axis=1)
    return paths[:, program.size].astype(bool)
