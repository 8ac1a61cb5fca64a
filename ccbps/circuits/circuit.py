"""Boolean circuits with gates of at most two inputs, and how to build them from expressions.

Convention: wires are numbered, first the inputs 0 .. n-1, then one wire for each gate in
topological order: a gate reads wires below its own. Operands that a gate does not have are -1 (the
second of NOT, both of the constants).

Depth is the cost of a program over a group: AND and OR are one level, NOT and constants none. XOR
is two, because it stands for (a | b) & (~a | ~b).

``x & y``, ``x | y``, ``x ^ y`` and ``~x`` on wires of one `CircuitBuilder` add gates. A bool may
stand for a wire. Folding keeps the function and never adds depth: constants disappear, x & x = x,
x & ~x = 0, ~~x = x, and NOT moves out of XOR, where it is free. A builder tracks the depth of each
wire while the circuit grows, so that blocks can choose between forms.

Not protected: a circuit shows its function, and with it a subscription's constants.

Sources: [SSM] section 2 (circuits of fan-in two, depth in AND and OR, NOT free); [G76], Huffman's
rule for the least depth: joining the two shallowest operands of an AND or OR first gives depth
ceil(log2(sum of 2**depth)). No other order gives less.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import NDArray

from ccbps.arrays import Bools, Words
from ccbps.checks import Printable, Redacted, whole
from ccbps.errors import ParameterError, ShapeError

WORD = 64
# Words of wires that evaluation holds at a time: 2**20 words are 8 MB, about a second-level cache.
_WORKING_WORDS = 1 << 20
_ONES = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


class Op(IntEnum):
    """Operation of a gate."""

    FALSE = 0
    TRUE = 1
    NOT = 2
    AND = 3
    OR = 4
    XOR = 5

    @property
    def operands(self) -> int:
        """Number of wires read: 0, 1 or 2."""
        return _OPERANDS[self]

    @property
    def levels(self) -> int:
        """Number of levels that the gate adds to the depth."""
        return _LEVELS[self]


_OPERANDS = (0, 0, 1, 2, 2, 2)
_LEVELS = (0, 0, 0, 1, 1, 2)
_WORD_OPERATIONS = {Op.AND: np.bitwise_and, Op.OR: np.bitwise_or, Op.XOR: np.bitwise_xor}


class Gate(NamedTuple):
    """A gate: its operation and the wires it reads, -1 for none."""

    op: Op
    a: int = -1
    b: int = -1


class Circuit(Printable, Redacted, frozen=True, dict=True):
    """An immutable circuit, compared gate by gate. `CircuitBuilder` makes circuits.

    Attributes:
        inputs: n, number of input wires.
        gates: gates in topological order. Gate g drives wire n + g.
        outputs: output wires. Any wire may be an output, also repeatedly.

    Raises:
        ParameterError: a gate reads a wire that is not below its own, or an output is not a wire.
    """

    inputs: int
    gates: tuple[Gate, ...]
    outputs: tuple[int, ...]

    def __post_init__(self) -> None:
        force_setattr(self, "inputs", int(whole("inputs", self.inputs, 0)))
        gates = tuple(Gate(Op(op), int(a), int(b)) for op, a, b in self.gates)
        for wire, (op, a, b) in enumerate(gates, self.inputs):
            count = _OPERANDS[op]
            fits = (0 <= a < wire) if count else a == -1
            fits = fits and ((0 <= b < wire) if count == 2 else b == -1)
            if not fits:
                raise ParameterError(
                    f"gate {wire - self.inputs}, {op.name} on wire {wire}, must read {count} "
                    f"wires below {wire} and have -1 for the others, got a={a}, b={b}"
                )
        outputs = tuple(int(wire) for wire in self.outputs)
        for wire in outputs:
            if not 0 <= wire < self.inputs + len(gates):
                raise ParameterError(
                    f"outputs must be wires 0..{self.inputs + len(gates) - 1}, got {wire}"
                )
        force_setattr(self, "gates", gates)
        force_setattr(self, "outputs", outputs)

    def __repr__(self) -> str:
        # Gates hold a subscriber's constants: a repr shows the shape only.
        return (
            f"<Circuit: {self.inputs} inputs, {self.size} gates, {len(self.outputs)} outputs, "
            f"depth {self.depth}>"
        )

    def __reduce__(self) -> tuple[type[Circuit], tuple[int, tuple[Gate, ...], tuple[int, ...]]]:
        # Cached properties are not pickled.
        return Circuit, (self.inputs, self.gates, self.outputs)

    @property
    def wires(self) -> int:
        """Number of wires: inputs and gates."""
        return self.inputs + len(self.gates)

    @property
    def size(self) -> int:
        """Number of AND, OR and XOR gates. NOT and constants are free."""
        return sum(gate.op >= Op.AND for gate in self.gates)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Depth of every wire: AND and OR 1, XOR 2, NOT and constants 0."""
        depths = [0] * self.inputs
        for op, a, b in self.gates:
            below = max(depths[a] if a >= 0 else 0, depths[b] if b >= 0 else 0)
            depths.append(below + _LEVELS[op])
        return tuple(depths)

    @property
    def output_depths(self) -> tuple[int, ...]:
        """Depth of every output."""
        return tuple(self.depths[wire] for wire in self.outputs)

    @property
    def depth(self) -> int:
        """Greatest depth of an output, d."""
        return max(self.output_depths, default=0)

    # -- evaluation ---------------------------------------------------------------------------

    def evaluate(self, bits: NDArray[np.bool_] | NDArray[np.integer] | Sequence[object]) -> Bools:
        """Return the outputs for rows of input bits.

        Cost: one word operation for every gate and 64 rows, gates of one level together.

        Args:
            bits: bool or 0/1 integers, shape (..., n).

        Returns:
            Output bits, shape (..., outputs), bool.

        Raises:
            ShapeError: the last axis is not n long, or the values are not bits.
        """
        rows = np.asarray(bits)
        if rows.ndim == 0 or rows.shape[-1] != self.inputs:
            raise ShapeError(f"bits must have shape (..., {self.inputs}), got {rows.shape}")
        if rows.dtype != np.bool_:
            if rows.size and (rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() > 1):
                raise ShapeError(f"bits must be bool, or integers 0 and 1, got {rows.dtype}")
            rows = rows.astype(np.bool_)
        shape = rows.shape[:-1]
        count = int(np.prod(shape, dtype=np.int64))
        words = pack_lanes(rows.reshape(count, self.inputs))
        out = np.empty((len(self.outputs), words.shape[1]), dtype=np.uint64)
        chunk = max(1, _WORKING_WORDS // max(1, self.wires))
        for start in range(0, words.shape[1], chunk):
            part = words[:, start : start + chunk]
            values = np.empty((self.wires, part.shape[1]), dtype=np.uint64)
            values[: self.inputs] = part
            for op, wires, left, right in self._schedule:
                if op.operands == 2:
                    values[wires] = _WORD_OPERATIONS[op](values[left], values[right])
                elif op == Op.NOT:
                    values[wires] = ~values[left]
                else:
                    values[wires] = _ONES if op == Op.TRUE else 0
            out[:, start : start + chunk] = values[list(self.outputs)]
        return unpack_lanes(out, count).reshape(*shape, len(self.outputs))

    @cached_property
    def _schedule(self) -> list[tuple[Op, NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]]:
        """Operations with their wires and operands, independent gates of one kind together."""
        ranks = [0] * self.inputs
        groups: dict[tuple[int, Op], list[tuple[int, int, int]]] = {}
        for wire, (op, a, b) in enumerate(self.gates, self.inputs):
            # Every gate counts here: gates of equal rank do not depend on one another.
            rank = 1 + max(ranks[a] if a >= 0 else 0, ranks[b] if b >= 0 else 0)
            ranks.append(rank)
            groups.setdefault((rank, op), []).append((wire, a, b))
        joined = []
        for (_, op), members in sorted(groups.items()):
            wires, left, right = np.array(members, dtype=np.intp).T
            joined.append((op, wires, left, right))
        return joined

    # -- circuits from circuits ---------------------------------------------------------------

    def cone(self, positions: Iterable[int] | None = None) -> Circuit:
        """Return the circuit of the outputs at `positions` (default: all), with the same inputs.

        It has only the gates that these outputs need.

        Raises:
            ParameterError: there is no output at a position.
        """
        last = len(self.outputs) - 1
        chosen = range(last + 1) if positions is None else positions
        outputs = [self.outputs[whole("a position", position, 0, last)] for position in chosen]
        return needed_part([None] * self.inputs + list(self.gates), range(self.inputs), outputs)


def needed_part(
    nodes: Sequence[Gate | None], inputs: Sequence[int], outputs: Sequence[int]
) -> Circuit:
    """Return the circuit of the gates that some outputs need, renumbered.

    Args:
        nodes: gates in topological order, with None for inputs. Operands are places in it.
        inputs: places of the inputs.
        outputs: places of the outputs.
    """
    needed, waiting = set(outputs), list(outputs)
    while waiting:
        node = nodes[waiting.pop()]
        for operand in () if node is None else (node.a, node.b)[: node.op.operands]:
            if operand not in needed:
                needed.add(operand)
                waiting.append(operand)
    place = {number: wire for wire, number in enumerate(inputs)} | {-1: -1}
    gates: list[Gate] = []
    for number in sorted(needed):
        node = nodes[number]
        if node is not None:
            place[number] = len(inputs) + len(gates)
            gates.append(Gate(node.op, place[node.a], place[node.b]))
    return Circuit(len(inputs), tuple(gates), tuple(place[number] for number in outputs))


def pack_lanes(bits: Bools) -> Words:
    """Pack rows of bits, shape (rows, n), into words of 64 rows each, shape (n, words), uint64.

    Bit r of word w is row 64 w + r. Rows that fill up the last word are 0.
    """
    rows, n = bits.shape
    padded = np.zeros((n, -(-rows // WORD) * WORD), dtype=np.bool_)
    padded[:, :rows] = bits.T
    packed = np.packbits(padded, axis=1, bitorder="little")
    return packed.view("<u8").astype(np.uint64, copy=False)


def unpack_lanes(words: Words, rows: int) -> Bools:
    """Unpack the first `rows` rows of `pack_lanes`, shape (rows, n), bool."""
    packed = np.ascontiguousarray(words.astype("<u8", copy=False)).view(np.uint8)
    bits = np.unpackbits(packed, axis=1, count=rows, bitorder="little")
    return np.ascontiguousarray(bits.T).view(np.bool_)


# -- circuits from expressions ---------------------------------------------------------------------


_CONSTANTS = (Op.FALSE, Op.TRUE)


class Wire(Redacted, frozen=True, eq=False):
    """A wire of a circuit under construction. It is equal only to itself.

    Attributes:
        builder: builder of the circuit.
        number: number in the builder, not in the finished circuit.
        gate: gate that drives the wire; None for an input.
        depth: depth of the wire: AND and OR 1, XOR 2, NOT 0.
    """

    builder: CircuitBuilder
    number: int
    gate: Gate | None
    depth: int
    _hidden = ("builder", "gate", "depth")

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
    def constant(self) -> bool | None:
        """Value of a wire that folding has reduced to a constant; None for any other wire."""
        return bool(self.gate.op) if self.gate and self.gate.op in _CONSTANTS else None


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
        self._wires: list[Wire] = []
        self._by_gate: dict[Gate, Wire] = {}

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
        depth = 0
        if gate is not None:
            read = (gate.a, gate.b)[: gate.op.operands]
            depth = gate.op.levels + max((self._wires[a].depth for a in read), default=0)
        self._wires.append(Wire(self, len(self._wires), gate, depth))
        return self._wires[-1]

    def _once(self, gate: Gate) -> Wire:
        if gate not in self._by_gate:
            self._by_gate[gate] = self._new(gate)
        return self._by_gate[gate]

    def inputs(self, count: int) -> list[Wire]:
        """Add the next `count` inputs of the circuit."""
        return [self._new(None) for _ in range(whole("count", count, 0))]

    def constant(self, value: bool) -> Wire:
        """Return the wire that is always `value`."""
        return self._once(Gate(_CONSTANTS[bool(value)]))

    def _unnegated(self, wire: Wire) -> tuple[Wire, bool]:
        """Return (x, True) for ~x, and (x, False) for any other x."""
        if wire.gate is not None and wire.gate.op == Op.NOT:
            return self._wires[wire.gate.a], True
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
        heap = [(self._wires[number].depth, number) for number in distinct]
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
        gates = [wire.gate for wire in self._wires]
        inputs = [number for number, gate in enumerate(gates) if gate is None]
        return needed_part(gates, inputs, numbers)
