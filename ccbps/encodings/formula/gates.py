"""Walk over a formula that opens gates and hands out slots and common random bits.

Encodings differ in the deliveries of leaves, and in the senders of slots:
`ccbps.encodings.formula.rank_one` has one message of a publisher for each subscription,
`ccbps.encodings.broadcast.window_slots` one for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from ccbps.encodings.straight_line.program import StraightLineBuilder
from ccbps.programs.formula import And, Formula, Sum

Coefficient: TypeAlias = int | None
"""Number of a common random bit, or `GATE_ONE`; None is zero."""
Vector: TypeAlias = tuple[Coefficient, ...]
GATE_ONE: Final = -1

Numbers: TypeAlias = tuple[int, ...]
"""Slots, or common random bits; `GATE_ONE` among the latter."""
Matrix: TypeAlias = tuple[Numbers, ...]
"""Slots, n rows of V."""


class Gate(Struct, frozen=True):
    """Product for the broker to add: slots[targets] += slots[lefts] (x) slots[rights]."""

    lefts: Numbers
    rights: Numbers
    targets: Matrix


class GateWalk(ABC):
    """Walk that delivers a formula to slot 0, the root.

    Attributes:
        gates: gates in the order in which the broker adds their products.
        masks: rho and S of each gate, as numbers of common random bits.
        slots: number of slots.
        randoms: number of common random bits.
    """

    def __init__(self) -> None:
        self.slots, self.randoms = 1, 0
        self.gates: list[Gate] = []
        self.masks: list[tuple[Numbers, Numbers]] = []

    @property
    def products(self) -> int:
        """Number of products of two bits that the broker computes."""
        return sum(len(gate.lefts) * len(gate.rights) for gate in self.gates)

    def deliver(
        self,
        formula: Formula,
        rows: Vector = (GATE_ONE,),
        columns: Vector = (GATE_ONE,),
        targets: Matrix = ((0,),),
    ) -> None:
        """Add rows (x) columns times the formula's value to slots."""
        if isinstance(formula, Sum):
            for part in formula.parts:
                self.deliver(part, rows, columns, targets)
        elif isinstance(formula, And):
            rho, s, gate, left, below = self.open(targets)
            self.deliver(formula.left, rows, s, left)
            self.deliver(formula.right, rho, columns, below)
            self.close(rho, s, gate)
        else:
            self.deliver_leaf(formula, rows, columns, targets)

    @abstractmethod
    def deliver_leaf(self, leaf: Formula, rows: Vector, columns: Vector, targets: Matrix) -> None:
        """Add rows (x) columns times the value of a part that is neither a sum nor an AND."""

    def open(self, targets: Matrix) -> tuple[Numbers, Numbers, Gate, Matrix, Matrix]:
        """Open a gate with new E and W slots.

        Returns:
            (1, rho) and (1, S), for the parts on the right and on the left; the gate; and the
            slots of the left part, (E | T), and of the right part, (W ; T).
        """
        height, width = len(targets), len(targets[0])
        slots = range(self.slots, self.slots + height + width)
        randoms = range(self.randoms, self.randoms + height + width)
        self.slots += height + width
        self.randoms += height + width
        gate = Gate(tuple(slots[:height]), tuple(slots[height:]), targets)
        left = tuple((slot, *row) for slot, row in zip(gate.lefts, targets, strict=True))
        rho, s = (GATE_ONE, *randoms[:height]), (GATE_ONE, *randoms[height:])
        return rho, s, gate, left, (gate.rights, *targets)

    def close(self, rho: Numbers, s: Numbers, gate: Gate) -> None:
        """Close a gate whose parts are both delivered."""
        self.gates.append(gate)
        self.masks.append((rho[1:], s[1:]))

    def add_products(
        self, builder: StraightLineBuilder, place: Mapping[int, int] | Sequence[int]
    ) -> None:
        """Append the steps that add all gates' products, given the register of each slot."""
        for gate in self.gates:
            for left, row in zip(gate.lefts, gate.targets, strict=True):
                for right, target in zip(gate.rights, row, strict=True):
                    builder.add(place[target], place[left], place[right])
