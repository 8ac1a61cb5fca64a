"""Rewriting: other circuits for the same function.

==========================  ====================================================================
`without_xor`               AND, OR, NOT only; depth unchanged
`negation_normal_form`      NOT on inputs only, no XOR; depth unchanged, each gate at most twice
                            (an XOR is three gates)
`balance`                   each chain of ANDs, and of ORs, in the least depth for its operands
`pad`                       every path to an output at depth d: a program of 4^d instructions
`fix_inputs`                some inputs hard-coded, constants folded
==========================  ====================================================================

All fold constants and keep the inputs and the order of the outputs. Every function but `pad` uses
`CircuitBuilder`, so its result has no gate twice, and only gates that an output needs.
"""

from __future__ import annotations

from collections.abc import Mapping

from ccbps.checks import whole
from ccbps.circuits.circuit import Circuit, CircuitBuilder, Gate, Op, Wire
from ccbps.errors import ParameterError

_CHAINS = (Op.AND, Op.OR)
_DUAL = {Op.AND: Op.OR, Op.OR: Op.AND}


def without_xor(circuit: Circuit) -> Circuit:
    """Replace XOR by (a | b) & ~(a & b). The depth is unchanged: XOR counts as two levels."""
    builder = CircuitBuilder()
    wires = builder.inputs(circuit.inputs)
    for gate in circuit.gates:
        if gate.op == Op.XOR:
            a, b = wires[gate.a], wires[gate.b]
            wires.append((a | b) & ~(a & b))
        else:
            wires.append(builder.copied(gate, wires))
    return builder.build(*(wires[wire] for wire in circuit.outputs))


def negation_normal_form(circuit: Circuit) -> Circuit:
    """Move NOT to the inputs, by De Morgan, and replace XOR. The depth is unchanged.

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
    # Needed forms by wire and sign: 0 for plain, 1 for negated.
    forms: dict[tuple[int, int], Wire] = {}
    for wire, x in enumerate(builder.inputs(circuit.inputs)):
        forms[wire, 0], forms[wire, 1] = x, ~x
    for wire, (op, a, b) in enumerate(circuit.gates, circuit.inputs):
        for sign in (0, 1):
            if not needed[wire] >> sign & 1:
                continue
            if op == Op.NOT:
                forms[wire, sign] = forms[a, 1 - sign]
            elif op == Op.XOR:
                # a ^ b = (a | b) & (~a | ~b), and ~(a ^ b) = (a | ~b) & (~a | b).
                some = forms[a, 0] | forms[b, sign]
                forms[wire, sign] = some & (forms[a, 1] | forms[b, 1 - sign])
            elif op in _CHAINS:
                chosen = _DUAL[op] if sign else op
                forms[wire, sign] = builder.gate(chosen, forms[a, sign], forms[b, sign])
            else:
                forms[wire, sign] = builder.constant((op == Op.TRUE) != bool(sign))
    return builder.build(*(forms[wire, 0] for wire in circuit.outputs))


def balance(circuit: Circuit) -> Circuit:
    """Join each maximal chain of ANDs or of ORs in the least depth for its operands.

    Chains run through wires that are used elsewhere, too, so gates may be repeated. The depth never
    grows. The size may grow, quadratically at worst. NOT and XOR end a chain: rewrite to negation
    normal form first to get the longest chains. Where constants fold, chains become longer and are
    balanced again.
    """
    while True:
        out = _balanced(circuit)
        if out.output_depths == circuit.output_depths:
            return out
        circuit = out


def _balanced(circuit: Circuit) -> Circuit:
    """Balance all chains once."""
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
    for wire, gate in enumerate(circuit.gates, first):
        if wire in chains:
            wires[wire] = builder.joined(gate.op, (wires[operand] for operand in chains[wire]))
        elif needed[wire]:
            wires[wire] = builder.copied(gate, wires)
    return builder.build(*(wires[wire] for wire in circuit.outputs))


def _operands(circuit: Circuit, root: int) -> list[int]:
    """List the distinct operands of the maximal chain of `root`'s operation that ends in `root`."""
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
    """Pad a circuit so that every path from an output to an input has the given depth.

    A wire that is not deep enough for its gate, or an output for the circuit, is joined to itself
    by as many ANDs as it lacks. So an output's group program (Barrington's transform) has 4^depth
    instructions, and all circuits of one padded depth give programs of one length. To fill up
    programs to any length without longer circuits, see
    `ccbps.programs.barrington.fixed_structure`.

    Raises:
        ParameterError: an output is deeper than `depth` (balance the circuit first, or increase
            `depth`), or the circuit has no input to be joined.
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

    # Each wire has a list of forms: at its own depth, one level deeper, two levels deeper, ...
    wires = [[wire] for wire in range(first)]
    for wire, (op, a, b) in enumerate(folded.gates, first):
        below = depths[wire] - op.levels
        read = (a, b)[: op.operands]
        wires.append([add(op, *(lifted(wires[i], below - depths[i]) for i in read))])
    outputs = []
    for wire in folded.outputs:
        op = folded.gates[wire - first].op if wire >= first else Op.NOT
        if depth and op in (Op.FALSE, Op.TRUE):
            # After folding, a constant is only an output: write it as x AND NOT x, x OR NOT x.
            joined = add(Op.OR if op == Op.TRUE else Op.AND, 0, add(Op.NOT, 0))
            outputs.append(lifted([joined], depth - 1))
        else:
            outputs.append(lifted(wires[wire], depth - depths[wire]))
    return Circuit(first, tuple(gates), tuple(outputs))


def fix_inputs(circuit: Circuit, values: Mapping[int, bool]) -> Circuit:
    """Replace the inputs in `values` by constants. The other inputs keep their order.

    Raises:
        ParameterError: a key is not an input.
    """
    for wire in values:
        whole("an input in values", wire, 0, circuit.inputs - 1)
    builder = CircuitBuilder()
    free = iter(builder.inputs(circuit.inputs - len(values)))
    wires: list[Wire | bool] = [
        bool(values[i]) if i in values else next(free) for i in range(circuit.inputs)
    ]
    return builder.build(*builder.embed(circuit, wires))
