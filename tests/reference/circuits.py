"""Circuits one row at a time, gate by gate, in plain Python: the twin of `Circuit.evaluate`."""

from __future__ import annotations

from collections.abc import Sequence

from ccbps.circuits import Circuit


def value(circuit: Circuit, bits: Sequence[bool]) -> list[bool]:
    """Return the outputs for a row of input bits."""
    wires = [bool(bit) for bit in bits]
    assert len(wires) == circuit.inputs
    for op, a, b in circuit.gates:
        match op.name:
            case "FALSE":
                wires.append(False)
            case "TRUE":
                wires.append(True)
            case "NOT":
                wires.append(not wires[a])
            case "AND":
                wires.append(wires[a] and wires[b])
            case "OR":
                wires.append(wires[a] or wires[b])
            case "XOR":
                wires.append(wires[a] != wires[b])
    return [wires[wire] for wire in circuit.outputs]


def depth(circuit: Circuit, wire: int) -> int:
    """Return the longest path from an input to a wire, on which XOR counts twice."""
    if wire < circuit.inputs:
        return 0
    op, a, b = circuit.gates[wire - circuit.inputs]
    levels = {"AND": 1, "OR": 1, "XOR": 2}.get(op.name, 0)
    return levels + max((depth(circuit, w) for w in (a, b) if w >= 0), default=0)
