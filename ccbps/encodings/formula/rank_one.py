"""Rank-one gates: which bits a formula's messages hold, and how they are made and read.

An AND gate delivers the n x V matrix sigma (x) beta e w to slots T, bits that the broker gets as
the sum of a publisher's and a subscriber's part. The clients share sigma and beta and draw rho
(n bits) and S (V bits). The broker gets, besides T::

    E = sigma e + rho        n slots
    W = beta w + S           V slots

and adds E (x) W to T. For that to be right, T has to hold rho (x) beta w + sigma (x) S e +
rho (x) S: what the left part delivers to (E | T) is sigma (x) (1, S) e, and what the right part
delivers to (W ; T) is (1, rho) (x) beta w. Both are rank one, so parts may be gates again: a gate
under d others takes 2 + d slots. A leaf takes none: who knows a bit adds it, times coefficients. A
chain of affine maps carries two row vectors, sigma (x) (beta eq + gamma g), and is cut in halves.

Which slots a message holds:

- slots to which both parties contribute are masked with a common one-time pad and sent by both;
- slots to which one party alone contributes are sent by that one, masked by their own rho or S;
- where the publisher contributes the same to several slots, it sends the first only; the subscriber
  alone sends the sum of both, from which the broker makes the second. The root stays apart: an
  interest by itself would show the answer if it holds for every event. Publisher's slots
  sigma_0 e + rho_0 of several gates with the same e are one slot and share rho_0.

Privacy. For fixed inputs, (rho, S) to the decoded (E, W) of all gates is a bijection, and decoded
to received slots is another (each slot is its decoded value plus products of others): slots are
uniform among those that decode to the answer. The pad makes the pair of messages a function of
slots and of further uniform bits.

Sources: Beaver, CRYPTO 1991, and Applebaum, Ishai and Kushilevitz, FOCS 2011 (the gate for one
slot); Ishai and Kushilevitz, ICALP 2002; Cramer, Fehr, Ishai and Kushilevitz, EUROCRYPT 2003;
Kolesnikov, ASIACRYPT 2005 (formulas); Heath and Kolesnikov, CCS 2021 (outer products of shares).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ccbps.encodings.formula.gates import (
    GATE_ONE,
    Coefficient,
    Gate,
    GateWalk,
    Matrix,
    Numbers,
    Vector,
)
from ccbps.programs.branching import ONE, Label
from ccbps.programs.formula import And, Chain, Formula

Side: TypeAlias = Literal["publisher", "subscriber"]
SIDES: Final[tuple[Side, Side]] = ("publisher", "subscriber")
Columns: TypeAlias = list[list[tuple[Coefficient, Label]]]
"""For each of V columns, coefficients and the labels that they are multiplied with."""
Content: TypeAlias = set[tuple[int | None, tuple[int, ...]]]
"""Polynomial: monomials of at most one input bit, and common random bits."""
Frozen: TypeAlias = frozenset[tuple[int | None, tuple[int, ...]]]


class Term(Struct):
    """Part of one party of targets[b][v]: rows[b] times the sum of c * value in columns[v].

    Attributes:
        rows: coefficients, shape (n,).
        columns: V lists of coefficient and label.
        targets: slots, shape (n, V).
    """

    rows: Vector
    columns: Columns
    targets: Matrix


class RankOne(GateWalk):
    """Slots of a formula.

    Attributes:
        root: slot that ends as the answer.
        random_bits: number of common random bits.
        terms: terms that either party adds.
        both: slots that both parties send.
        lone: slots that one party sends alone.
        ties: (slot, first): the publisher sends the first only, the subscriber the sum of its parts
            of both; the broker begins with slot = first + that sum.
        order: slots of either party's message, in the order of its bits.
    """

    def __init__(self, formula: Formula) -> None:
        super().__init__()
        self.root = 0
        # By rows and targets: columns of terms that share them are added first.
        self._terms: dict[Side, dict[tuple[Vector, Matrix], Term]] = {side: {} for side in SIDES}
        # Slots and random bits in whose place another one stands.
        self._merged: dict[int, int] = {}
        self._same: dict[int, int] = {}
        self.deliver(formula)
        publisher, subscriber = map(self._touched, SIDES)
        for (rho, s), gate in zip(self.masks, self.gates, strict=True):
            self._share(rho, s, gate, publisher, subscriber)
        self._merge(subscriber)
        slots = [slot for slot in range(self.slots) if slot not in self._merged]
        contents = self._contents()
        firsts: dict[Frozen, int] = {}
        self.both, self.ties = [], []
        for slot in slots:
            if slot in publisher and slot in subscriber:
                # Nothing is tied to the root: its sum with another slot could be the answer.
                own = slot == self.root
                first = slot if own else firsts.setdefault(frozenset(contents[slot]), slot)
                if first == slot:
                    self.both.append(slot)
                else:
                    self.ties.append((slot, first))
        self.lone: dict[Side, list[int]] = {
            "publisher": [t for t in slots if t in publisher and t not in subscriber],
            "subscriber": [t for t in slots if t not in publisher],
        }
        self.order: dict[Side, list[int]] = {
            "publisher": self.both + self.lone["publisher"],
            "subscriber": [*self.both, *(t for t, _ in self.ties), *self.lone["subscriber"]],
        }
        self.terms = {side: list(terms.values()) for side, terms in self._terms.items()}
        self._renumber()

    @property
    def bits(self) -> tuple[int, int]:
        """Bits of the publisher's and of the subscriber's message."""
        return len(self.order["publisher"]), len(self.order["subscriber"])

    # -- delivering -----------------------------------------------------------------------------

    def deliver_leaf(self, leaf: Formula, rows: Vector, columns: Vector, targets: Matrix) -> None:
        if isinstance(leaf, Label):
            self._leaf(rows, [[(c, leaf)] for c in columns], targets)
        elif isinstance(leaf, Chain):
            nothing: Vector = (None,) * len(columns)
            self._chain(leaf, 0, len(leaf.maps) + 1, rows, nothing, columns, targets)
        else:
            raise TypeError(f"no leaf of this encoding: {type(leaf).__name__}")

    def _chain(
        self, chain: Chain, first: int, stop: int, rows: Vector, equal: Vector, value: Vector,
        targets: Matrix,
    ) -> None:  # fmt: skip
        """Deliver maps first .. stop - 1 of a chain, z -> eq z + g.

        They add rows (x) (equal * eq + value * g) to the targets.
        """
        whole = stop == len(chain.maps) + 1
        if stop - first == 1 and whole:
            # The last one is a product of a publisher's and a subscriber's bit, and a known bit.
            self.deliver(And(chain.bit, chain.slope), rows, value, targets)
            self.deliver(chain.offset, rows, value, targets)
            return
        if stop - first == 1:
            factor, addend = chain.maps[first]
            pairs = zip(equal, value, strict=True)
            self._leaf(rows, [[(e, factor), (v, addend)] for e, v in pairs], targets)
            return
        # In halves, the last map counting as two, as it takes a gate of its own.
        middle = first + (stop - first + whole) // 2
        rho, s, gate, left, below = self.open(targets)
        self._chain(chain, first, middle, rows, s, (None, *value), left)
        self._chain(chain, middle, stop, rho, equal, value, below)
        self.close(rho, s, gate)

    def _leaf(self, rows: Vector, columns: Columns, targets: Matrix) -> None:
        """Add a label's event bits to the publisher's part, the rest to the subscriber's."""
        for side in SIDES:
            own: Columns = [
                [
                    (c, part)
                    for c, label in column
                    if c is not None and (part := _of(label, side)) is not None
                ]
                for column in columns
            ]
            if any(own):
                self._add(side, rows, own, targets)

    def _add(self, side: Side, rows: Vector, columns: Columns, targets: Matrix) -> None:
        term = Term(rows, [[] for _ in columns], targets)
        term = self._terms[side].setdefault((rows, targets), term)
        for column, more in zip(term.columns, columns, strict=True):
            column += more

    # -- who sends what ---------------------------------------------------------------------------

    def _touched(self, side: Side) -> set[int]:
        """Return the slots to which a party's inputs contribute, and the root.

        The answer needs both messages, whoever knows the formula's bits.
        """
        touched = {self.root}
        for term in self._terms[side].values():
            for v, column in enumerate(term.columns):
                if column:
                    touched.update(row[v] for row in term.targets)
        return touched

    def _share(
        self, rho: Numbers, s: Numbers, gate: Gate, publisher: set[int], subscriber: set[int]
    ) -> None:
        """Give a gate's masks to one party: to the subscriber wherever it contributes anyway."""

        def holder(slot: int) -> Side:
            return "publisher" if slot in publisher and slot not in subscriber else "subscriber"

        below = (gate.rights, *gate.targets)
        ones: Columns = [[(c, ONE)] for c in s]
        if all(slot in subscriber for row in below for slot in row):
            self._add("subscriber", (GATE_ONE, *rho), ones, below)
        else:
            for c, row in zip((GATE_ONE, *rho), below, strict=True):
                for slot, column in zip(row, ones, strict=True):
                    self._add(holder(slot), (c,), [column], ((slot,),))
        for slot, c in zip(gate.lefts, rho, strict=True):
            mask: Columns = [[(c, ONE)]]
            self._add(holder(slot), (GATE_ONE,), mask, ((slot,),))

    def _merge(self, subscriber: set[int]) -> None:
        """Join the publisher's slots that hold the same event bits under a mask of their own."""
        contents = self._contents()
        firsts: dict[Frozen, tuple[int, int]] = {}
        for (rho, _), gate in zip(self.masks, self.gates, strict=True):
            slot, mask = gate.lefts[0], rho[0]
            if slot in subscriber:
                continue
            key = frozenset(contents[slot] ^ {(None, (mask,))})
            first, first_mask = firsts.setdefault(key, (slot, mask))
            if first != slot:
                self._merged[slot], self._same[mask] = first, first_mask
        same = self._merged
        self.gates = [
            Gate(tuple(same.get(t, t) for t in gate.lefts), gate.rights, gate.targets)
            for gate in self.gates
        ]

    def _contents(self) -> dict[int, Content]:
        """Return the publisher's part of each slot, as a polynomial of input and random bits."""
        same = self._same
        contents: dict[int, Content] = defaultdict(set)
        for term in self._terms["publisher"].values():
            for c, row in zip(term.rows, term.targets, strict=True):
                for column, slot in zip(term.columns, row, strict=True):
                    for d, label in column:
                        factors = {same.get(f, f) for f in (c, d) if f is not None and f >= 0}
                        product = tuple(sorted(factors))
                        bits = [*label.event, *([None] if label.one else [])]
                        contents[slot] ^= {(bit, product) for bit in bits}
        return contents

    def _renumber(self) -> None:
        """Number the common random bits that are left from 0 on."""
        left = [c for c in range(self.randoms) if c not in self._same]
        number: dict[Coefficient, int] = {c: i for i, c in enumerate(left)}
        number.update({c: number[first] for c, first in self._same.items()})
        number[GATE_ONE] = GATE_ONE
        self.random_bits = len(left)
        for terms in self.terms.values():
            for term in terms:
                term.rows = tuple(number[c] for c in term.rows)
                term.columns = [[(number[c], x) for c, x in column] for column in term.columns]


def _of(label: Label, side: Side) -> Label | None:
    """Return a label's part of one side, if any; constants are the subscriber's."""
    if side == "publisher":
        return Label(event=label.event) if label.event else None
    return Label(interest=label.interest, one=label.one) if label.interest or label.one else None
