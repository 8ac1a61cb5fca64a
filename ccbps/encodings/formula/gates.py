"""The walk over a formula that opens gates and hands out slots and common random bits.

What leaves deliver, and who sends what, differs between encodings:
`ccbps.encodings.formula.rank_one` has one message of a publisher for each subscription,
`ccbps.encodings.broadcast.window_slots` one for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, TypeAlias

from ccbps.programs.formula import And, Formula, Sum

Coefficient: TypeAlias = int | None
"""Number of a common random bit, or `GATE_ONE`; None is zero."""
GATE_ONE: Final = -1

Matrix: TypeAlias = tuple[tuple[int, ...], ...]
"""Slots, n rows of V."""


@dataclass(frozen=True, slots=True)
class Gate:
    """slots[targets] += slots[lefts] (x) slots[rights]."""

    lefts: tuple[int, ...]
    rights: tuple[int, ...]
    targets: Matrix


class GateWalk(ABC):
    """Delivers a formula to slot 0, the root.

    Attributes:
        gates: in the order in which the broker adds their products.
        masks: rho and S of each gate, as numbers of common random bits.
        slots: number of slots.
        randoms: number of common random bits.
    """

    def __init__(self) -> None:
        self.slots, self.randoms = 1, 0
        self.gates: list[Gate] = []
        self.masks: list[tuple[list[int], list[int]]] = []

    @property
    def products(self) -> int:
        """Products of two bits that the broker computes."""
        return sum(len(gate.lefts) * len(gate.rights) for gate in self.gates)

    def deliver(
        self,
        formula: Formula,
        rows: tuple[Coefficient, ...] = (GATE_ONE,),
        columns: tuple[Coefficient, ...] = (GATE_ONE,),
        targets: Matrix = ((0,),),
    ) -> None:
        """Add rows (x) columns times the formula's value to slots."""
        if isinstance(formula, Sum):
            for part in formula.parts:
                self.deliver(part, rows, columns, targets)
        elif isinstance(formula, And):
            rho, s, gate = self.open(targets)
            self.deliver(formula.left, rows, (GATE_ONE, *s), beside(gate.lefts, targets))
            self.deliver(formula.right, (GATE_ONE, *rho), columns, (gate.rights, *targets))
            self.close(rho, s, gate)
        else:
            self.deliver_leaf(formula, rows, columns, targets)

    @abstractmethod
    def deliver_leaf(
        self,
        leaf: Formula,
        rows: tuple[Coefficient, ...],
        columns: tuple[Coefficient, ...],
        targets: Matrix,
    ) -> None:
        """As `deliver`, for what is neither a sum nor an AND."""

    def open(self, targets: Matrix) -> tuple[list[int], list[int], Gate]:
        """A gate with new E and W slots, and its rho and S."""
        height, width = len(targets), len(targets[0])
        slots = range(self.slots, self.slots + height + width)
        randoms = list(range(self.randoms, self.randoms + height + width))
        self.slots += height + width
        self.randoms += height + width
        gate = Gate(tuple(slots[:height]), tuple(slots[height:]), targets)
        return randoms[:height], randoms[height:], gate

    def close(self, rho: list[int], s: list[int], gate: Gate) -> None:
        """To be called when both parts of a gate are delivered."""
        self.gates.append(gate)
        self.masks.append((rho, s))


def beside(lefts: tuple[int, ...], targets: Matrix) -> Matrix:
    """(E | T)."""
    return tuple((slot, *row) for slot, row in zip(lefts, targets, strict=True))
