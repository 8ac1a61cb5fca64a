"""Circuits from expressions: wires with operators, folded constants, no gate twice.

``x & y``, ``x | y``, ``x ^ y`` and ``~x`` on wires of one builder add gates. A bool may stand for a
wire. Folding keeps the function and never adds depth: constants disappear, x & x = x, x & ~x = 0,
~~x = x, and NOT moves out of XOR, where it is free.

Convention: a builder tracks the depth of each wire while the circuit grows, in the measure of
`Circuit.depths`, so that blocks can choose between forms.

Source: [G76], Huffman's rule for the least depth: joining the two shallowest operands of an AND or
OR first gives depth ceil(log2(sum of 2**depth)). No other order gives less.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ccbps.checks import whole
from ccbps.circuits.circuit import Circuit, Gate, Op, needed_part
from ccbps.errors import ParameterError

_CONSTANTS = (Op.FALSE, Op.TRUE)


@dataclass(frozen=True, slots=True, eq=False)
class Wire:
    """A wire of a circuit under construction. It is equal only to itself.

    Attributes:
        builder: builder of the circuit.
        number: number in the builder, not in the finished circuit.
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
        return self.builder._depths[self.number]

    @property
    def constant(self) -> bool | None:
        """Value of a wire that folding has reduced to a constant; None for any other wire."""
        gate = self.builder._gates[self.number]
        return bool(gate.op) if gate is not None and gate.op in _CONSTANTS else None


class CircuitBuilder:
    """A collection of inputs and gates, from which `build` makes a circuit.

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
        self._by_gate: dict[Gate, Wire] = {}
        self._inputs: list[int] = []

    def _wire(self, wire: Wire | bool) -> Wire:
        if isinstance(wire, Wire):
            if wire.builder is not self:
                raise ParameterError(
                    "operands must be wires of this builder, got one of another builder; build its "
                    "circuit and embed that"
                )
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
        if gate not in self._by_gate:
            self._by_gate[gate] = self._new(gate)
        return self._by_gate[gate]

    def inputs(self, count: int) -> list[Wire]:
        """Add the next `count` inputs of the circuit."""
        wires = [self._new(None) for _ in range(whole("count", count, 0))]
        self._inputs.extend(wire.number for wire in wires)
        return wires

    def constant(self, value: bool) -> Wire:
        """Return the wire that is always `value`."""
        return self._once(Gate(_CONSTANTS[bool(value)]))

    def _unnegated(self, wire: Wire) -> tuple[Wire, bool]:
        """Return (x, True) for ~x, and (x, False) for any other x."""
        gate = self._gates[wire.number]
        if gate is not None and gate.op == Op.NOT:
            return self._wires[gate.a], True
        return wire, False

    def gate(self, op: Op, a: Wire | bool, b: Wire | bool = False) -> Wire:
        """Return the wire of ``op(a, b)``, folded. NOT ignores `b`.

        Raises:
            ParameterError: an operand is not a wire of this builder, or `op` is a constant.
        """
        a = self._wire(a)
        if op == Op.NOT:
            return self._negation(a)
        if op in _CONSTANTS:
            raise ParameterError(f"op must have operands, got {op.name}; use constant")
        b = self._wire(b)
        if b.number < a.number:  # all three are commutative
            a, b = b, a
        if op == Op.XOR:
            return self._sum(a, b)
        absorbing = op == Op.OR
        for x, y in ((a, b), (b, a)):
            if x.constant is not None:
                return x if x.constant == absorbing else y
        if a is b:
            return a
        (plain_a, negated_a), (plain_b, negated_b) = self._unnegated(a), self._unnegated(b)
        if plain_a is plain_b and negated_a != negated_b:
            return self.constant(absorbing)
        return self._once(Gate(op, a.number, b.number))

    def _negation(self, a: Wire) -> Wire:
        if a.constant is not None:
            return self.constant(not a.constant)
        plain, negated = self._unnegated(a)
        return plain if negated else self._once(Gate(Op.NOT, a.number))

    def _sum(self, a: Wire, b: Wire) -> Wire:
        odd = False
        parts = []
        for wire in (a, b):
            if wire.constant is not None:
                odd ^= wire.constant
                continue
            plain, negated = self._unnegated(wire)
            odd ^= negated
            parts.append(plain)
        if not parts or (len(parts) == 2 and parts[0] is parts[1]):
            return self.constant(odd)
        out = parts[0]
        if len(parts) == 2:
            out = self._once(Gate(Op.XOR, *sorted(wire.number for wire in parts)))
        return self._negation(out) if odd else out

    def all_of(self, wires: Iterable[Wire | bool]) -> Wire:
        """Join any number of wires by AND, in the least depth, ceil(log2(sum of 2**depth)).

        For no wires the result is true.
        """
        return self.joined(Op.AND, wires)

    def any_of(self, wires: Iterable[Wire | bool]) -> Wire:
        """Join any number of wires by OR, in the least depth. For no wires the result is false."""
        return self.joined(Op.OR, wires)

    def joined(self, op: Op, wires: Iterable[Wire | bool]) -> Wire:
        """Join wires as `all_of` for AND, and as `any_of` for OR."""
        absorbing = op == Op.OR
        distinct: set[int] = set()
        for operand in wires:
            wire = self._wire(operand)
            if wire.constant == absorbing:
                return wire
            if wire.constant is not None:
                continue
            plain, negated = self._unnegated(wire)
            opposite = plain if negated else self._by_gate.get(Gate(Op.NOT, wire.number))
            if opposite is not None and opposite.number in distinct:
                return self.constant(absorbing)
            distinct.add(wire.number)
        if not distinct:
            return self.constant(not absorbing)
        # Ties go to the older wire, so that equal chains become equal gates.
        heap = [(self._depths[number], number) for number in distinct]
        heapq.heapify(heap)
        while len(heap) > 1:
            _, first = heapq.heappop(heap)
            _, second = heapq.heappop(heap)
            distinct -= {first, second}
            wire = self.gate(op, self._wires[first], self._wires[second])
            if wire.constant is not None:  # a part of the chain met its opposite
                return wire
            if wire.number not in distinct:
                distinct.add(wire.number)
                heapq.heappush(heap, (wire.depth, wire.number))
        return self._wires[heap[0][1]]

    def copied(self, gate: Gate, wires: Mapping[int, Wire] | Sequence[Wire]) -> Wire:
        """Return a wire of a circuit's gate, on the wires that stand for the circuit's."""
        op, a, b = gate
        if op in _CONSTANTS:
            return self.constant(bool(op))
        return self.gate(op, wires[a], wires[b] if op.operands == 2 else False)

    def embed(self, circuit: Circuit, wires: Sequence[Wire | bool]) -> list[Wire]:
        """Copy a circuit whose inputs become `wires`. Return its outputs.

        Raises:
            ParameterError: the number of wires is not that of the circuit's inputs.
        """
        if len(wires) != circuit.inputs:
            raise ParameterError(
                f"wires must be {circuit.inputs}, one for each input, got {len(wires)}"
            )
        placed = [self._wire(wire) for wire in wires]
        for gate in circuit.gates:
            placed.append(self.copied(gate, placed))
        return [placed[wire] for wire in circuit.outputs]

    def build(self, *outputs: Wire | bool) -> Circuit:
        """Build the circuit of some outputs: all inputs so far, and the gates it needs."""
        numbers = [self._wire(wire).number for wire in outputs]
        return needed_part(self._gates, self._inputs, numbers)
