"""Circuits from expressions: wires with operators, constants folded, every gate made once.

``x & y``, ``x | y``, ``x ^ y`` and ``~x`` on wires of one builder add gates; a bool may stand for a
wire. Folding keeps the function and never adds depth: constants disappear, x & x = x, x & ~x = 0,
~~x = x, and NOT moves out of XOR, where it is free.

Convention: a builder knows the depth of each wire while the circuit grows, in the measure of
`Circuit.depths`, so that blocks can choose between forms.

Source: [G76], Huffman's rule for the least depth: joining the two shallowest operands of an AND or
OR first gives depth ceil(log2(sum of 2**depth)), and no other order gives less.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ccbps.circuits.circuit import Circuit, Gate, Op
from ccbps.errors import ParameterError

_CONSTANTS = (Op.FALSE, Op.TRUE)


@dataclass(frozen=True, slots=True, eq=False)
class Wire:
    """A wire of a circuit under construction. Equal only to itself.

    Attributes:
        builder: whose wire it is.
        number: its number there, not in the finished circuit.
    """

    builder: CircuitBuilder = field(repr=False)
    number: int

    def __and__(self, other: Wire | bool) -> Wire:
        return self.builder.gate(Op.AND, self, other)

    def __or__(self, other: Wire | bool) -> Wire:
        return self.builder.gate(Op.OR, self, other)

    def __xor__(self, other: Wire | bool) -> Wire:
        return self.builder.gate(Op.XOR, self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Wire:
        return self.builder.gate(Op.NOT, self)

    def __bool__(self) -> bool:
        raise TypeError("a wire has no truth value yet; write & | ^ ~ instead of and, or, not")

    @property
    def depth(self) -> int:
        """Depth of the wire: AND and OR 1, XOR 2, NOT 0."""
        return self.builder.depth_of(self)

    @property
    def constant(self) -> bool | None:
        """The value, where it is the same for every input and folding has found that."""
        return self.builder.constant_of(self)


class CircuitBuilder:
    """Collects inputs and gates; `build` makes the circuit.

    Example:
        >>> from ccbps.circuits import CircuitBuilder
        >>> builder = CircuitBuilder()
        >>> x, y, z = builder.inputs(3)
        >>> circuit = builder.build(x & ~y | z)
        >>> circuit.inputs, circuit.depth
        (3, 2)
        >>> circuit.evaluate([[1, 0, 0], [1, 1, 0]])
        array([[ True],
               [False]])
    """

    def __init__(self) -> None:
        # An input is a node without a gate. Wires of equal structure are one wire, so that
        # comparing numbers compares structure.
        self._gates: list[Gate | None] = []
        self._depths: list[int] = []
        self._wires: list[Wire] = []
        self._known: dict[Gate, Wire] = {}
        self._inputs: list[int] = []

    def _wire(self, wire: Wire | bool) -> Wire:
        if isinstance(wire, Wire):
            if wire.builder is not self:
                raise ParameterError("wire of another builder; build its circuit and embed that")
            return wire
        if wire is True or wire is False:
            return self.constant(wire)
        raise ParameterError(f"operands must be wires or bools, got {type(wire).__name__}")

    def _new(self, gate: Gate | None) -> Wire:
        wire = Wire(self, len(self._wires))
        if gate is None:
            depth = 0
        else:
            read = (gate.a, gate.b)[: gate.op.operands]
            depth = gate.op.levels + max((self._depths[a] for a in read), default=0)
        self._gates.append(gate)
        self._depths.append(depth)
        self._wires.append(wire)
        return wire

    def _once(self, gate: Gate) -> Wire:
        if gate not in self._known:
            self._known[gate] = self._new(gate)
        return self._known[gate]

    def inputs(self, count: int) -> list[Wire]:
        """The next `count` inputs of the circuit."""
        if count < 0:
            raise ParameterError(f"count must be at least 0, got {count}")
        wires = [self._new(None) for _ in range(count)]
        self._inputs.extend(wire.number for wire in wires)
        return wires

    def constant(self, value: bool) -> Wire:
        """The wire that is always `value`."""
        return self._once(Gate(_CONSTANTS[bool(value)]))

    def depth_of(self, wire: Wire) -> int:
        """Depth of a wire."""
        return self._depths[self._wire(wire).number]

    def constant_of(self, wire: Wire) -> bool | None:
        """The wire's value when it is a constant, else None."""
        gate = self._gates[self._wire(wire).number]
        return bool(gate.op) if gate is not None and gate.op in _CONSTANTS else None

    def _unnegated(self, wire: Wire) -> tuple[Wire, bool]:
        """(x, True) for ~x, (x, False) for any other x."""
        gate = self._gates[wire.number]
        if gate is not None and gate.op == Op.NOT:
            return self._wires[gate.a], True
        return wire, False

    def gate(self, op: Op, a: Wire | bool, b: Wire | bool = False) -> Wire:
        """The wire of ``op(a, b)``, folded; NOT does not look at `b`.

        Raises:
            ParameterError: an operand is not a wire of this builder, or `op` is a constant.
        """
        a = self._wire(a)
        if op == Op.NOT:
            return self._negation(a)
        if op in _CONSTANTS:
            raise ParameterError(f"{op.name} has no operands; use constant")
        b = self._wire(b)
        if b.number < a.number:  # all three are commutative
            a, b = b, a
        if op == Op.XOR:
            return self._sum(a, b)
        absorbing = op == Op.OR
        for x, y in ((a, b), (b, a)):
            value = self.constant_of(x)
            if value is not None:
                return x if value == absorbing else y
        if a is b:
            return a
        (plain_a, negated_a), (plain_b, negated_b) = self._unnegated(a), self._unnegated(b)
        if plain_a is plain_b and negated_a != negated_b:
            return self.constant(absorbing)
        return self._once(Gate(op, a.number, b.number))

    def _negation(self, a: Wire) -> Wire:
        value = self.constant_of(a)
        if value is not None:
            return self.constant(not value)
        plain, negated = self._unnegated(a)
        return plain if negated else self._once(Gate(Op.NOT, a.number))

    def _sum(self, a: Wire, b: Wire) -> Wire:
        odd = False
        parts = []
        for wire in (a, b):
            value = self.constant_of(wire)
            if value is not None:
                odd ^= value
                continue
            plain, negated = self._unnegated(wire)
            odd ^= negated
            parts.append(plain)
        if len(parts) == 2 and parts[0] is parts[1]:
            parts = []
        if not parts:
            return self.constant(odd)
        if len(parts) == 1:
            out = parts[0]
        else:
            first, second = sorted(wire.number for wire in parts)
            out = self._once(Gate(Op.XOR, first, second))
        return self._negation(out) if odd else out

    def all_of(self, wires: Iterable[Wire | bool]) -> Wire:
        """AND of any number of wires in the least depth, ceil(log2(sum of 2**depth)).

        Of none: true.
        """
        return self.joined(Op.AND, wires)

    def any_of(self, wires: Iterable[Wire | bool]) -> Wire:
        """OR of any number of wires, likewise in the least depth; of none: false."""
        return self.joined(Op.OR, wires)

    def joined(self, op: Op, wires: Iterable[Wire | bool]) -> Wire:
        """`all_of` for AND, `any_of` for OR."""
        absorbing = op == Op.OR
        distinct: dict[int, Wire] = {}
        for operand in wires:
            wire = self._wire(operand)
            value = self.constant_of(wire)
            if value == absorbing:
                return wire
            if value is not None:
                continue
            opposite = self._known.get(Gate(Op.NOT, wire.number))
            plain, negated = self._unnegated(wire)
            if negated:
                opposite = plain
            if opposite is not None and opposite.number in distinct:
                return self.constant(absorbing)
            distinct[wire.number] = wire
        if not distinct:
            return self.constant(not absorbing)
        # Ties go to the older wire, so that equal chains become equal gates.
        heap = [(self._depths[number], number) for number in distinct]
        heapq.heapify(heap)
        waiting = set(distinct)
        while len(heap) > 1:
            _, first = heapq.heappop(heap)
            _, second = heapq.heappop(heap)
            waiting -= {first, second}
            wire = self.gate(op, self._wires[first], self._wires[second])
            if self.constant_of(wire) is not None:  # a part of the chain met its opposite
                return wire
            if wire.number not in waiting:
                waiting.add(wire.number)
                heapq.heappush(heap, (self._depths[wire.number], wire.number))
        return self._wires[heap[0][1]]

    def embed(self, circuit: Circuit, wires: Sequence[Wire | bool]) -> list[Wire]:
        """A copy of `circuit` whose inputs are `wires`; returns its outputs.

        Raises:
            ParameterError: not as many wires as the circuit has inputs.
        """
        if len(wires) != circuit.inputs:
            raise ParameterError(
                f"wires must be {circuit.inputs}, one for each input, got {len(wires)}"
            )
        placed = [self._wire(wire) for wire in wires]
        for op, a, b in circuit.gates:
            if op in _CONSTANTS:
                placed.append(self.constant(bool(op)))
            elif op == Op.NOT:
                placed.append(self._negation(placed[a]))
            else:
                placed.append(self.gate(op, placed[a], placed[b]))
        return [placed[wire] for wire in circuit.outputs]

    def build(self, *outputs: Wire | bool) -> Circuit:
        """The circuit of these outputs: all inputs made so far, and the gates that are needed."""
        wanted = [self._wire(wire).number for wire in outputs]
        needed, waiting = set(wanted), list(wanted)
        while waiting:
            gate = self._gates[waiting.pop()]
            for operand in () if gate is None else (gate.a, gate.b)[: gate.op.operands]:
                if operand not in needed:
                    needed.add(operand)
                    waiting.append(operand)
        place = {number: i for i, number in enumerate(self._inputs)}
        place[-1] = -1
        gates: list[Gate] = []
        for number in sorted(needed):
            made = self._gates[number]
            if made is not None:
                place[number] = len(self._inputs) + len(gates)
                gates.append(Gate(made.op, place[made.a], place[made.b]))
        return Circuit(len(self._inputs), tuple(gates), tuple(place[n] for n in wanted))
