"""Hypothesis strategies and fixed makers: circuits and rows of input bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps.circuits import Circuit, Gate, Op

Bools = NDArray[np.bool_]


@st.composite
def circuits(
    draw: st.DrawFn,
    max_inputs: int = 5,
    max_gates: int = 16,
    ops: Sequence[Op] = tuple(Op),
    min_outputs: int = 0,
) -> Circuit:
    """Draw a circuit: gates read any wires below them, outputs are any wires."""
    n = draw(st.integers(1, max_inputs))
    gates: list[Gate] = []
    for wire in range(n, n + draw(st.integers(0, max_gates))):
        op = draw(st.sampled_from(sorted(ops, reverse=True)))
        # This shrinks towards late wires, that is, towards a single chain.
        below = st.integers(0, wire - 1).map(lambda back, wire=wire: wire - 1 - back)
        operands = [draw(below) for _ in range(op.operands)]
        gates.append(Gate(op, *operands))
    wires = st.integers(0, n + len(gates) - 1)
    outputs = draw(st.lists(wires, min_size=min_outputs, max_size=3))
    return Circuit(n, tuple(gates), tuple(outputs))


def all_rows(width: int) -> Bools:
    """Return all rows of a width, shape (2**width, width), counting up, most significant first."""
    numbers = np.arange(1 << width)[:, None]
    return (numbers >> np.arange(width)[::-1] & 1).astype(np.bool_)


def bits_of(numbers: Sequence[int], width: int) -> Bools:
    """Convert numbers to rows of bits, shape (len(numbers), width), most significant bit first."""
    rows = [[number >> (width - 1 - i) & 1 for i in range(width)] for number in numbers]
    return np.array(rows, dtype=np.bool_).reshape(len(numbers), width)


def numbers_of(rows: Bools) -> list[int]:
    """Convert rows of bits to numbers. It undoes `bits_of`."""
    return [int("0" + "".join("01"[bit] for bit in row.tolist()), 2) for row in rows]
