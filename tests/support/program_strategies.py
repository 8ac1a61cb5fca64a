"""Hypothesis strategies and fixed makers: programs, circuits for them, and inputs.

A random program of hundreds of nodes has too many edges for hypothesis, so NumPy makes it from a
drawn seed and a drawn size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps.circuits import Circuit, Gate, Op
from ccbps.programs import branching as programs
from ccbps.programs.branching import BranchingProgram, Label
from tests.support.circuit_strategies import all_rows

Bits = NDArray[np.uint8]

seeds = st.integers(0, 2**32 - 1)


def event_bits(first: int, count: int) -> list[Label]:
    """Return the labels of neighbouring event bits."""
    return [programs.event_bit(first + i) for i in range(count)]


def interest_bits(first: int, count: int) -> list[Label]:
    """Return the labels of neighbouring private bits."""
    return [programs.interest_bit(first + i) for i in range(count)]


def box_program(widths: Sequence[int]) -> BranchingProgram:
    """Return the conjunction of intervals with private bounds."""
    parts, event, interest = [], 0, 0
    for k in widths:
        low, high = interest_bits(interest, k), interest_bits(interest + k, k)
        parts.append(programs.interval(event_bits(event, k), low, high))
        event, interest = event + k, interest + 2 * k
    return programs.conjunction(parts)


def random_program(size: int, seed: int, inputs: int = 90) -> BranchingProgram:
    """Draw a DAG on `size` + 1 nodes, with labels of any affine form.

    Most edges are near the diagonal or lead into the sink, as in real programs. Half of the labels
    take the next input bit, so that neighbours can be treated together.
    """
    rng = np.random.default_rng(seed)
    edges: dict[tuple[int, int], Label] = {}
    near = [(u, u + 1 + int(rng.geometric(0.5)) - 1) for u in range(size) for _ in range(2)]
    exits = [(u, size) for u in range(size) if rng.random() < 0.5]
    far = [(int(u), int(v)) for u, v in rng.integers(0, size + 1, (size, 2)) if u < v]
    for u, v in [*near, *exits, *far]:
        if v > size:
            continue
        kind = rng.integers(6)
        chosen = rng.integers(0, inputs, 3).tolist()
        if kind < 3:
            label = Label(event=frozenset({u % inputs}), interest=frozenset({u % inputs}))
        elif kind == 3:
            label = Label(event=frozenset(chosen), one=bool(rng.integers(2)))
        elif kind == 4:
            label = Label(interest=frozenset(chosen), one=bool(rng.integers(2)))
        else:
            label = programs.ONE
        edges[u, v] = label
    return BranchingProgram(size, edges)


def bit_rows(width: int) -> Bits:
    """Return the rows of `all_rows` as uint8."""
    return all_rows(width).view(np.uint8)


def input_bits(program: BranchingProgram, batch: int, seed: int) -> tuple[Bits, Bits]:
    """Draw 0/1 rows for both parties, at least one bit wide."""
    rng = np.random.default_rng(seed)
    widths = max(1, program.event_bits), max(1, program.interest_bits)
    event, interest = (rng.integers(0, 2, (batch, k), dtype=np.uint8) for k in widths)
    return event, interest


# -- circuits for group programs ----------------------------------------------------------------

GATES = (Op.NOT, Op.AND, Op.OR)


@st.composite
def shallow_circuits(
    draw: st.DrawFn,
    max_depth: int = 3,
    max_inputs: int = 4,
    max_gates: int = 10,
    ops: Sequence[Op] = tuple(Op),
) -> Circuit:
    """Draw a circuit of one output, any wire, and of bounded depth, so that programs are short."""
    n = draw(st.integers(1, max_inputs))
    gates: list[Gate] = []
    depths = [0] * n
    for _ in range(draw(st.integers(0, max_gates))):
        op = draw(st.sampled_from(sorted(ops, reverse=True)))
        below = [wire for wire, d in enumerate(depths) if d + op.levels <= max_depth]
        if op.operands and not below:
            continue
        operands = [draw(st.sampled_from(below[::-1])) for _ in range(op.operands)]
        gates.append(Gate(op, *operands))
        depths.append(op.levels + max((depths[wire] for wire in operands), default=0))
    output = len(depths) - 1 - draw(st.integers(0, len(depths) - 1))
    return Circuit(n, tuple(gates), (output,))


def complete_circuit(depth: int, inputs: int, seed: int) -> Circuit:
    """Draw a complete tree of ANDs and ORs over random literals."""
    rng = np.random.default_rng(seed)
    gates: list[Gate] = []

    def add(gate: Gate) -> int:
        gates.append(gate)
        return inputs + len(gates) - 1

    level = rng.integers(0, inputs, 2**depth).tolist()
    level = [add(Gate(Op.NOT, wire)) if rng.integers(2) else wire for wire in level]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=True)
        level = [add(Gate(Op.AND if rng.integers(2) else Op.OR, a, b)) for a, b in pairs]
    return Circuit(inputs, tuple(gates), (level[0],))


def every_formula(inputs: int, depth: int) -> list[Circuit]:
    """List all formulas of AND and OR over literals and constants, up to the operands' order."""
    single = [*(Gate(Op.NOT, i) for i in range(inputs)), Gate(Op.FALSE), Gate(Op.TRUE)]
    formulas = [Circuit(inputs, (), (i,)) for i in range(inputs)]
    formulas += [Circuit(inputs, (gate,), (inputs,)) for gate in single]
    done = 0
    for _ in range(depth):
        latest = len(formulas)
        pairs = [(formulas[a], formulas[b]) for b in range(done, latest) for a in range(b + 1)]
        formulas += [_joined(op, a, b) for a, b in pairs for op in (Op.AND, Op.OR)]
        done = latest
    return formulas


def _joined(op: Op, first: Circuit, second: Circuit) -> Circuit:
    shift = len(first.gates)

    def moved(wire: int) -> int:
        return wire + shift if wire >= second.inputs else wire

    gates = [*first.gates, *(Gate(gate.op, moved(gate.a), moved(gate.b)) for gate in second.gates)]
    gates.append(Gate(op, first.outputs[0], moved(second.outputs[0])))
    return Circuit(first.inputs, tuple(gates), (first.inputs + len(gates) - 1,))
