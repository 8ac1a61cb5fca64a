"""The plan of a garbled circuit: labels, gates with one or two ciphertexts, and private bits.

A circuit's inputs are bits of the event and bits of the interest. The garbler knows the interest's
bits. So a wire is one of

- *known*: it depends on the interest alone. The garbler computes it, and it costs nothing;
- a *label* and a known *turn*: the wire is the label's bit plus the turn. XOR and NOT cost nothing,
  whether the other operand is a label or known.

An AND of a known bit and a label is a half gate, one ciphertext. An AND of two labels is a gate,
two ciphertexts. OR is an AND between negations. All turns are private: a gate computes
``(a + alpha) (b + beta)``, and whoever reads its output adds another turn, gamma.

A plan is public, and follows from the circuit alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from ccbps.arrays import Bools, Index
from ccbps.checks import whole
from ccbps.circuits.circuit import Circuit, CircuitBuilder, Op, Wire

Kind: TypeAlias = Literal["gate", "half gate", "xor"]
CIPHERTEXTS: Final[dict[Kind, int]] = {"gate": 2, "half gate": 1, "xor": 0}
"""Ciphertexts of each kind."""
LAYER_GATES: Final = 16
"""Most labels of a layer: a wider one becomes several, so that the cache holds more rows."""


class Layer(NamedTuple):
    """Labels of one kind that do not depend on one another.

    Attributes:
        kind: the operation that makes these labels.
        first: place of the first of them; the others follow.
        size: number of labels that are made.
        operands: places of the operands, those of a gate together: one for half gates, else two.
        turns: for each operand the place of its turn among the known bits.
        known: places of the known bits of half gates.
        start: number of the first ciphertext; the others follow, those of a gate together.
        gate: number of the first gate or half gate, which names its key.
    """

    kind: Kind
    first: int
    size: int
    operands: Index
    turns: Index
    known: Index
    start: int
    gate: int


class Output(NamedTuple):
    """An output: a label's place, or -1 for none; and the place of its turn."""

    label: int
    turn: int


class _Value(NamedTuple):
    """A wire: the number of a label's node, or None; and its turn."""

    node: int | None
    turn: Wire


class _Node(NamedTuple):
    """A label that is made of others, with their turns, and the known bit of a half gate."""

    kind: Kind
    operands: tuple[_Value, ...]
    known: Wire | None = None


class GarblingPlan:
    """The plan of a circuit.

    Attributes:
        event_bits: bits of the event among the circuit's inputs, which come first.
        interest_bits: bits of the interest.
        used: bits of the event that have labels. Their labels are the first ones.
        labels: number of places of labels.
        layers: all other labels, in an order in which they can be made.
        known: circuit from the interest's bits to the known bits.
        outputs: the circuit's outputs.
        gates: number of gates with two ciphertexts.
        half_gates: number of gates with one ciphertext.
    """

    def __init__(self, circuit: Circuit, event_bits: int) -> None:
        """Read a circuit.

        Args:
            circuit: its inputs are the event's bits, then the interest's.
            event_bits: number of the former.

        Raises:
            ParameterError: the circuit has fewer inputs.
        """
        event_bits = int(whole("event_bits", event_bits, 0, circuit.inputs))
        self.event_bits, self.interest_bits = event_bits, circuit.inputs - event_bits
        self._builder, self._nodes = CircuitBuilder(), list[_Node | None]()
        outputs = self._read(circuit.cone())
        self._outputs = [value.node for value in outputs if value.node is not None]
        chosen = self._needed()
        self.used = np.array([n for n in chosen if n < event_bits], dtype=np.intp)
        self._places: dict[int, int] = {}
        self._known: list[Wire] = []
        self.layers = self._layers([n for n in chosen if n >= event_bits])
        number = self._number
        self.outputs = tuple(
            Output(-1 if node is None else number[node], self._place(turn))
            for node, turn in outputs
        )
        self.known = self._builder.build(*self._known)
        count = {kind: sum(x.size for x in self.layers if x.kind == kind) for kind in CIPHERTEXTS}
        self.gates, self.half_gates = count["gate"], count["half gate"]

    @property
    def ciphertexts(self) -> int:
        """Number of ciphertexts."""
        return 2 * self.gates + self.half_gates

    def known_bits(self, interests: Bools) -> Bools:
        """Compute the known bits of interests, shape (interests, known bits)."""
        return self.known.evaluate(interests)

    # -- reading ----------------------------------------------------------------------------------

    def _read(self, circuit: Circuit) -> list[_Value]:
        """Turn all gates into nodes, and return the outputs."""
        false = self._builder.constant(False)
        self._nodes += [None] * self.event_bits
        wires = [_Value(number, false) for number in range(self.event_bits)]
        wires += [_Value(None, wire) for wire in self._builder.inputs(self.interest_bits)]
        for op, a, b in circuit.gates:
            if op in (Op.FALSE, Op.TRUE):
                wires.append(_Value(None, self._builder.constant(op == Op.TRUE)))
            elif op == Op.NOT:
                wires.append(_negation(wires[a]))
            elif op == Op.XOR:
                wires.append(self._sum(wires[a], wires[b]))
            elif op == Op.AND:
                wires.append(self._product(wires[a], wires[b]))
            else:
                neither = self._product(_negation(wires[a]), _negation(wires[b]))
                wires.append(_negation(neither))
        return [wires[wire] for wire in circuit.outputs]

    def _made(self, kind: Kind, *operands: _Value, known: Wire | None = None) -> _Value:
        self._nodes.append(_Node(kind, operands, known))
        return _Value(len(self._nodes) - 1, self._builder.constant(False))

    def _sum(self, a: _Value, b: _Value) -> _Value:
        turn = a.turn ^ b.turn
        if a.node is None or b.node is None:
            return _Value(b.node if a.node is None else a.node, turn)
        if a.node == b.node:
            return _Value(None, turn)
        return self._made("xor", a, b)._replace(turn=turn)

    def _product(self, a: _Value, b: _Value) -> _Value:
        if a.node is None:
            a, b = b, a
        if a.node is None:
            return _Value(None, a.turn & b.turn)
        if b.node is not None and a.node != b.node:
            return self._made("gate", a, b)
        # Of one label, the product is the first operand where the two are equal, and else 0.
        known = b.turn if b.node is None else ~(a.turn ^ b.turn)
        if known.constant is not None:
            return a if known.constant else _Value(None, known)
        return self._made("half gate", a, known=known)

    def _needed(self) -> list[int]:
        """Return the nodes that outputs depend on, in order."""
        needed = set(self._outputs)
        for number in range(len(self._nodes) - 1, self.event_bits - 1, -1):
            if number in needed:
                needed.update(self._operands(number))
        return sorted(needed)

    # -- layers -----------------------------------------------------------------------------------

    def _layers(self, chosen: Sequence[int]) -> tuple[Layer, ...]:
        """Group nodes: gates by their depth in gates, and sums between two depths."""
        ranks = dict.fromkeys(self.used.tolist(), (0, 1))
        groups: dict[tuple[int, int, Kind], list[int]] = {}
        for number in chosen:
            node = self._nodes[number]
            assert node is not None
            depth, place = max(map(ranks.__getitem__, self._operands(number)))
            rank = (depth, place + 1) if node.kind == "xor" else (depth + 1, 0)
            ranks[number] = rank
            groups.setdefault((*rank, node.kind), []).append(number)
        steps = [
            (kind, numbers[at : at + LAYER_GATES])
            for (_, _, kind), numbers in sorted(groups.items())
            for at in range(0, len(numbers), LAYER_GATES)
        ]
        return tuple(self._placed(steps))

    def _placed(self, steps: Sequence[tuple[Kind, list[int]]]) -> Iterator[Layer]:
        """Give labels their places.

        Those of labels that nobody reads any more are used again, from the next layer on.
        """
        last = {int(node): -1 for node in self.used}
        for step, (_, numbers) in enumerate(steps):
            last |= {x: step for number in numbers for x in self._operands(number)}
        last |= {node: len(steps) for node in self._outputs}
        self._number = {int(node): place for place, node in enumerate(self.used)}
        taken, start, gate = bytearray(b"\1" * len(self.used)), 0, 0
        for step, (kind, numbers) in enumerate(steps):
            nodes = [node for node in map(self._nodes.__getitem__, numbers) if node is not None]
            operands = [self._number[x] for number in numbers for x in self._operands(number)]
            turns = [self._place(x.turn) for node in nodes for x in node.operands]
            known = [self._place(node.known) for node in nodes if node.known is not None]
            first = taken.find(bytes(len(numbers)))
            if first < 0:
                first = len(taken)
            taken[first : first + len(numbers)] = b"\1" * len(numbers)
            for operand in {x for number in numbers for x in self._operands(number)}:
                taken[self._number[operand]] = last[operand] > step
            self._number |= {number: first + place for place, number in enumerate(numbers)}
            read, added, bits = (np.array(x, dtype=np.intp) for x in (operands, turns, known))
            yield Layer(kind, first, len(nodes), read, added, bits, start, gate)
            start += CIPHERTEXTS[kind] * len(nodes)
            gate += len(nodes) if kind != "xor" else 0
        self.labels = len(taken)

    def _operands(self, number: int) -> list[int]:
        """Return the numbers of a node's operands."""
        node = self._nodes[number]
        assert node is not None
        return [value.node for value in node.operands if value.node is not None]

    def _place(self, wire: Wire) -> int:
        """Return the place of a known bit."""
        if wire.number not in self._places:
            self._places[wire.number] = len(self._known)
            self._known.append(wire)
        return self._places[wire.number]


def _negation(value: _Value) -> _Value:
    return value._replace(turn=~value.turn)
