"""Rewriting: other circuits for the same function, and what they are good for.

==========================  ====================================================================
`without_xor`               AND, OR, NOT only; depth unchanged
`negation_normal_form`      NOT on inputs only, no XOR; depth unchanged, each gate at most twice
                            (an XOR is three gates)
`balance`                   each chain of ANDs, and of ORs, in the least depth for its operands
`pad`                       every path to an output at depth d: a program of 4^d instructions
`fix_inputs`                some inputs hard-coded, constants folded
==========================  ====================================================================

All fold constants and keep the inputs and the order of the outputs. Every function but `pad` goes
through `CircuitBuilder`, so its result holds no gate twice and none that no output needs.
"""

from __future__ import annotations

from collections.abc import Mapping

from ccbps.circuits.builder import CircuitBuilder, Wire
from ccbps.circuits.circuit import Circuit, Gate, Op
from ccbps.errors import ParameterError

_CHAINS = (Op.AND, Op.OR)
_DUAL = {Op.AND: Op.OR, Op.OR: Op.AND}


def without_xor(circuit: Circuit) -> Circuit:
    """XOR written as (a | b) & ~(a & b). Depth unchanged: XOR counts as two levels."""
    builder = CircuitBuilder()
    wires = builder.inputs(circuit.inputs)
    for op, a, b in circuit.gates:
        if op == Op.XOR:
            wires.append((wires[a] | wires[b]) & ~(wires[a] & wires[b]))
        else:
            wires.append(_copy(builder, wires, op, a, b))
    return builder.build(*(wires[wire] for wire in circuit.outputs))


def negation_normal_form(circuit: Circuit) -> Circuit:
    """NOT on inputs only, and AND, OR and constants above; by De Morgan, depth unchanged.

    A wire that is needed both plain and negated becomes two.
    """
    plain, negated = 1, 2
    needed = [0] * circuit.wires
    for wire in circuit.outputs:
        needed[wire] |= plain
    for wire in range(circuit.wires - 1, circuit.inputs - 1, -1):
        op, a, b = circuit.gates[wire - circuit.inputs]
        mark = needed[wire]
        if mark and op == Op.XOR:
            mark = plain | negated
        elif op == Op.NOT:
            mark = mark >> 1 | (mark << 1 & negated)
        for operand in (a, b)[: op.operands]:
            needed[operand] |= mark
    builder = CircuitBuilder()
    # (plain, negated) of each wire; a form that is not needed is left None.
    forms: list[list[Wire | None]] = [[x, ~x] for x in builder.inputs(circuit.inputs)]

    def form(wire: int, sign: int) -> Wire:
        found = forms[wire][sign]
        assert found is not None
        return found

    for wire, (op, a, b) in enumerate(circuit.gates, circuit.inputs):
        made: list[Wire | None] = [None, None]
        for sign in (0, 1):
            if not needed[wire] >> sign & 1:
                continue
            if op == Op.NOT:
                made[sign] = form(a, 1 - sign)
            elif op == Op.XOR:
                # a ^ b = (a | b) & (~a | ~b), and ~(a ^ b) = (a | ~b) & (~a | b).
                some = form(a, 0) | form(b, sign)
                made[sign] = some & (form(a, 1) | form(b, 1 - sign))
            elif op in _CHAINS:
                chosen = _DUAL[op] if sign else op
                made[sign] = builder.gate(chosen, form(a, sign), form(b, sign))
            else:
                made[sign] = builder.constant((op == Op.TRUE) != bool(sign))
        forms.append(made)
    return builder.build(*(form(wire, 0) for wire in circuit.outputs))


def balance(circuit: Circuit) -> Circuit:
    """Each maximal chain of one operation, AND or OR, in the least depth for its operands.

    Chains run through wires that are used elsewhere too, so gates may be repeated: the depth never
    grows, the size may, quadratically at worst. NOT and XOR end a chain; rewrite to negation normal
    form first to get the longest ones. Where constants fold, chains grow together and are balanced
    again.
    """
    while True:
        out = _balanced(circuit)
        if out.output_depths == circuit.output_depths:
            return out
        circuit = out


def _balanced(circuit: Circuit) -> Circuit:
    """One pass of `balance`."""
    first = circuit.inputs
    chains: dict[int, list[int]] = {}
    needed = [False] * circuit.wires
    for wire in circuit.outputs:
        needed[wire] = True
    for wire in range(circuit.wires - 1, first - 1, -1):
        if not needed[wire]:
            continue
        gate = circuit.gates[wire - first]
        if gate.op in _CHAINS:
            chains[wire] = _operands(circuit, wire)
        for operand in chains.get(wire, (gate.a, gate.b)[: gate.op.operands]):
            needed[operand] = True
    builder = CircuitBuilder()
    wires = dict(enumerate(builder.inputs(first)))
    for wire, (op, a, b) in enumerate(circuit.gates, first):
        if wire in chains:
            wires[wire] = builder.joined(op, (wires[operand] for operand in chains[wire]))
        elif needed[wire]:
            wires[wire] = _copy(builder, wires, op, a, b)
    return builder.build(*(wires[wire] for wire in circuit.outputs))


def _operands(circuit: Circuit, root: int) -> list[int]:
    """The distinct operands of the maximal chain of `root`'s operation that ends in `root`."""
    op = circuit.gates[root - circuit.inputs].op
    seen, operands, waiting = {root}, [], [root]
    while waiting:
        gate = circuit.gates[waiting.pop() - circuit.inputs]
        for wire in (gate.a, gate.b):
            if wire in seen:
                continue
            seen.add(wire)
            if wire >= circuit.inputs and circuit.gates[wire - circuit.inputs].op == op:
                waiting.append(wire)
            else:
                operands.append(wire)
    return operands


def pad(circuit: Circuit, depth: int) -> Circuit:
    """Every output at depth `depth`, whichever way one goes from it to the inputs.

    Wherever a wire is not deep enough for its gate, or an output for the circuit, it is joined to
    itself by as many ANDs as it lacks. So an output's group program (Barrington's transform) has
    4^depth instructions, and all circuits of one padded depth give programs of one length. To fill
    up programs to any length without longer circuits, see
    `ccbps.programs.barrington.fixed_structure`.

    Raises:
        ParameterError: an output is deeper already (balance first, or ask for more); or the circuit
            has no input, and nothing can be joined.
    """
    if depth < circuit.depth:
        raise ParameterError(
            f"depth must be at least the circuit's own, {circuit.depth}, got {depth}"
        )
    if depth and not circuit.inputs:
        raise ParameterError(f"a circuit without inputs has depth 0 always, got depth={depth}")
    folded = fix_inputs(circuit, {})
    gates: list[Gate] = []
    first, depths = folded.inputs, folded.depths

    def add(op: Op, *operands: int) -> int:
        gates.append(Gate(op, *operands))
        return first + len(gates) - 1

    def lifted(forms: list[int], levels: int) -> int:
        while len(forms) <= levels:
            forms.append(add(Op.AND, forms[-1], forms[-1]))
        return forms[levels]

    # For each wire its forms: as deep as it is, one level deeper, two, ...
    wires = [[wire] for wire in range(first)]
    for wire, (op, a, b) in enumerate(folded.gates, first):
        below = depths[wire] - op.levels
        operands = [lifted(wires[one], below - depths[one]) for one in (a, b)[: op.operands]]
        wires.append([add(op, *operands)])
    outputs = []
    for wire in folded.outputs:
        op = folded.gates[wire - first].op if wire >= first else Op.NOT
        if depth and op in (Op.FALSE, Op.TRUE):
            # Folded, a constant is an output and nothing else: as x AND NOT x, x OR NOT x.
            joined = add(Op.OR if op == Op.TRUE else Op.AND, 0, add(Op.NOT, 0))
            outputs.append(lifted([joined], depth - 1))
        else:
            outputs.append(lifted(wires[wire], depth - depths[wire]))
    return Circuit(first, tuple(gates), tuple(outputs))


def fix_inputs(circuit: Circuit, values: Mapping[int, bool]) -> Circuit:
    """The circuit with the inputs in `values` hard-coded; the others keep their order.

    Raises:
        ParameterError: a key is not an input.
    """
    for wire in values:
        if not 0 <= wire < circuit.inputs:
            raise ParameterError(f"values must name inputs 0..{circuit.inputs - 1}, got {wire}")
    builder = CircuitBuilder()
    free = iter(builder.inputs(circuit.inputs - len(values)))
    wires: list[Wire | bool] = [
        bool(values[i]) if i in values else next(free) for i in range(circuit.inputs)
    ]
    return builder.build(*builder.embed(circuit, wires))


def _copy(
    builder: CircuitBuilder, wires: Mapping[int, Wire] | list[Wire], op: Op, a: int, b: int
) -> Wire:
    if op.operands == 0:
        return builder.constant(op == Op.TRUE)
    return builder.gate(op, wires[a], wires[b] if op.operands == 2 else False)
