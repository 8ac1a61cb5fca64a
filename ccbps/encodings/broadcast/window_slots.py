"""Rank-one gates with labels at the leaves: an event that is encoded once for all subscriptions.

The publisher's part of a slot is a sum over digits of the event (windows of a few bits). The
subscriber knows each summand for each value of the digit: a private entry, times common random
bits, which here the subscriber alone draws. So the subscriber writes it down in advance, one line
for each value, and masks each line with a pad that only the label of that value opens. The event
message is the label of every digit's value; a label's lowest bits, `select`, are the value plus a
shift that clients alone know, and tell the broker which line to open.

Of the pads of one digit at one slot (a *coordinate*), the line with select 0 goes into the slot
itself; the others are rows of the interest message, masked by it. Two kinds need fewer:

- *direct*: the digit is one bit, and the slot holds it plain: the select bit serves as pad;
- *programmed*: the coordinate holds an entry of a table whose sum is one, times one random bit
  that no other coordinate defines. That bit is chosen so that all lines together sum to zero, and
  the last row is not sent.

A view is one label for each digit, one pad for each label opened, and slots and rows; pads not
opened are unknown, each is used once, and hides a row or a programmed bit. Slots are uniform given
the answer, as in `ccbps.encodings.formula.rank_one`.

Before there is an event, no pad is opened, and interests must show nothing at all. Every slot but
the root has a random bit of its own. The root has a pad: of a coordinate that is not direct, or of
one that is made plain for this. A select bit would not suffice, as all the round's interests share
it.

Sources: Naor, Pinkas and Sumner, EC 1999 (row reduction); Yao, FOCS 1986, and Applebaum, Ishai and
Kushilevitz, CRYPTO 2006 (labels); Pinkas, Schneider, Smart and Williams, ASIACRYPT 2009.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from graphlib import TopologicalSorter
from typing import Final, Literal, TypeAlias

from ccbps.encodings.formula.gates import GATE_ONE, Coefficient, GateWalk, Matrix, Vector
from ccbps.programs.branching import Label
from ccbps.programs.formula import Formula, Lookup, Scan

Entries: TypeAlias = tuple[Label, ...]
Column: TypeAlias = list[tuple[Coefficient, Entries, bool]]
"""Coefficients, entries by value, and whether the entries sum to one."""

ROOT: Final = 0
"""Slot that ends as the answer."""
MOST_COUNTED: Final = 32
"""Digits of a scan for which all cuts are compared, in time of the fourth power."""


@dataclass(frozen=True, slots=True)
class Line:
    """Part of a coordinate: row * column's entry of the digit's value.

    Attributes:
        row: coefficient.
        term: number of the term.
        column: number of the term's column.
    """

    row: Coefficient
    term: int
    column: int


@dataclass(slots=True)
class WindowTerm:
    """Delivery of a leaf: rows[b] * (sum of c * entries[value] in columns[v]) to targets[b][v].

    Attributes:
        digit: number of the digit.
        rows: coefficients, shape (n,).
        columns: V lists of coefficient, entries by value, and whether the entries sum to one.
        targets: slots, shape (n, V).
    """

    digit: int
    rows: Vector
    columns: list[Column]
    targets: Matrix


@dataclass(slots=True)
class Coordinate:
    """A digit at a slot.

    Attributes:
        digit: number of the digit.
        slot: number of the slot.
        lines: lines whose sum is delivered there.
        kind: kind of the coordinate, which tells its rows.
        defines: random bit that a programmed coordinate chooses.
        pad: number of its bit among the pad bits of its digit's labels; -1 for direct ones.
        rows: first of its rows, and their number.
    """

    digit: int
    slot: int
    lines: list[Line] = field(default_factory=list)
    kind: Literal["direct", "programmed", "plain"] = "plain"
    defines: int = -1
    pad: int = -1
    rows: tuple[int, int] = (0, 0)


class WindowSlots(GateWalk):
    """Slots and rows of a formula over digits.

    Attributes:
        widths: bits of each digit.
        terms: deliveries of leaves.
        labels: interest bits and constants for slots: rows, columns, label, targets.
        coordinates: every digit at every slot that depends on it, in the order of rows.
        order: coordinates that define random bits, each after those whose bits it needs.
        free: random bits that no coordinate defines.
        digits: numbers of digits that the formula uses, ascending.
        pads: bits of a pad, by digit.
        rows: rows of an interest message.
    """

    def __init__(self, formula: Formula, widths: Sequence[int]) -> None:
        super().__init__()
        self.widths = tuple(widths)
        self.terms: list[WindowTerm] = []
        self.labels: list[tuple[Vector, Vector, Label, Matrix]] = []
        self._left_digits = splitter(max(self.widths, default=1))
        self.deliver(formula)
        coordinates: dict[tuple[int, int], Coordinate] = {}
        for number, term in enumerate(self.terms):
            for c, targets in zip(term.rows, term.targets, strict=True):
                for v, slot in enumerate(targets):
                    if term.columns[v]:
                        key = term.digit, slot
                        coordinate = coordinates.setdefault(key, Coordinate(*key))
                        coordinate.lines.append(Line(c, number, v))
        if not coordinates and self.widths:
            # The answer does not depend on the event, and is shown no earlier for that.
            narrowest = min(range(len(self.widths)), key=self.widths.__getitem__)
            coordinates[narrowest, ROOT] = Coordinate(narrowest, ROOT)
        self.coordinates = [coordinates[key] for key in sorted(coordinates)]
        self.digits = sorted({digit for digit, _ in coordinates})
        self._define()
        defined = {coordinate.defines for coordinate in self.order}
        self.free = [c for c in range(self.randoms) if c not in defined]
        self.pads = dict.fromkeys(self.digits, 0)
        self.rows = 0
        for coordinate in self.coordinates:
            if coordinate.kind == "direct":
                continue
            coordinate.pad = self.pads[coordinate.digit]
            self.pads[coordinate.digit] += 1
            count = (1 << self.widths[coordinate.digit]) - 1 - (coordinate.kind == "programmed")
            coordinate.rows = self.rows, count
            self.rows += count

    @property
    def bits(self) -> int:
        """Bits of an interest message: slots, then rows."""
        return self.slots + self.rows

    @cached_property
    def free_bytes(self) -> int:
        """Bytes of a free random bit each."""
        return -(-len(self.free) // 8)

    @cached_property
    def select_bytes(self) -> int:
        """Bytes of the select bits of one label for each digit."""
        return -(-sum(self.widths[digit] for digit in self.digits) // 8)

    @cached_property
    def pad_bytes(self) -> int:
        """Bytes of a pad: words of 32 bits, which are moved faster than bytes."""
        return 4 * -(-max(self.pads.values(), default=0) // 32)

    # -- delivering -----------------------------------------------------------------------------

    def deliver_leaf(self, leaf: Formula, rows: Vector, columns: Vector, targets: Matrix) -> None:
        if isinstance(leaf, Label) and not leaf.event:
            self.labels.append((rows, columns, leaf, targets))
        elif isinstance(leaf, Lookup):
            entries = [[(c, leaf.entries, leaf.odd)] for c in columns]
            self.terms.append(WindowTerm(leaf.digit, rows, entries, targets))
        elif isinstance(leaf, Scan):
            nothing: Vector = (None,) * len(columns)
            self._scan(leaf, 0, len(leaf.steps), rows, nothing, columns, targets)
        else:
            raise TypeError(f"no leaf of this encoding: {type(leaf).__name__}")

    def _scan(
        self, scan: Scan, first: int, stop: int, rows: Vector, equal: Vector, value: Vector,
        targets: Matrix,
    ) -> None:  # fmt: skip
        """Deliver digits first .. stop - 1 of a scan: rows (x) (equal * eq + value * g)."""
        last = stop == len(scan.steps)
        if stop - first == 1:
            digit, equals, values = scan.steps[first]
            columns: list[Column] = []
            for e, g in zip(equal, value, strict=True):
                parts: Column = [] if last else [(e, equals, True)]
                parts.append((g, values, False))
                columns.append([part for part in parts if part[0] is not None])
            self.terms.append(WindowTerm(digit, rows, columns, targets))
            return
        middle = first + self._left_digits(stop - first, len(rows), len(value), last)
        rho, s, gate, left, below = self.open(targets)
        self._scan(scan, first, middle, rows, s, (None, *value), left)
        self._scan(scan, middle, stop, rho, equal, value, below)
        self.close(rho, s, gate)

    # -- kinds ------------------------------------------------------------------------------------

    def parts(self, coordinate: Coordinate) -> list[tuple[tuple[int, ...], Entries, bool]]:
        """Return the summands of a coordinate.

        Each is a monomial of random bits, entries, and whether these sum to one.
        """
        summands = []
        for line in coordinate.lines:
            for c, entries, odd in self.terms[line.term].columns[line.column]:
                bits = sorted({x for x in (line.row, c) if x is not None and x != GATE_ONE})
                summands.append((tuple(bits), entries, odd))
        return summands

    def _can_be_direct(self, coordinate: Coordinate) -> bool:
        """Tell whether a digit is one bit, and stands at a slot without a random bit."""
        if self.widths[coordinate.digit] > 1 or not coordinate.lines:
            return False
        return all(odd and not monomial for monomial, _, odd in self.parts(coordinate))

    def _define(self) -> None:
        """Choose each coordinate's kind, and the random bits that programmed ones define."""
        needs: dict[int, set[int]] = {}

        def reaches(start: int, goal: int) -> bool:
            waiting, seen = [start], set()
            while waiting:
                bit = waiting.pop()
                if bit == goal:
                    return True
                if bit not in seen:
                    seen.add(bit)
                    waiting.extend(needs.get(bit, ()))
            return False

        for coordinate in self.coordinates:
            if self._can_be_direct(coordinate):
                coordinate.kind = "direct"
        at_root = [coordinate for coordinate in self.coordinates if coordinate.slot == ROOT]
        if at_root and all(coordinate.kind == "direct" for coordinate in at_root):
            at_root[0].kind = "plain"
        for coordinate in self.coordinates:
            if coordinate.kind == "direct":
                continue
            parts = self.parts(coordinate)
            for monomial, _, odd in parts:
                if not odd or len(monomial) != 1 or monomial[0] in needs:
                    continue
                bit = monomial[0]
                others = [m for m, _, _ in parts if m != monomial]
                # The bit must not be computed from itself.
                if len(others) != len(parts) - 1:
                    continue
                used = {x for m in others for x in m}
                if any(reaches(x, bit) for x in used):
                    continue
                needs[bit] = used
                coordinate.kind, coordinate.defines = "programmed", bit
                break
        by_bit = {coordinate.defines: coordinate for coordinate in self.coordinates}
        graph = {bit: used & needs.keys() for bit, used in needs.items()}
        self.order = [by_bit[bit] for bit in TopologicalSorter(graph).static_order()]


def splitter(width: int) -> Callable[[int, int, int, bool], int]:
    """Return a function that cuts a scan so that slots and rows together are fewest.

    Args:
        width: bits of a digit.

    Returns:
        a function from the number of digits, rows and columns, and whether the scan's last digit is
        among them, to the digits of the left part. Long scans are cut in halves.
    """

    @cache
    def fewest(digits: int, n: int, v: int, last: bool) -> tuple[int, int]:
        """Return the fewest slots and rows, and the digits of the left part."""
        if digits == 1:
            rows = ((1 << width) - 1) * n * v
            return rows if last else rows - (n - 1) - (v - 1) - (width == 1), 0
        return min(
            (n + v + fewest(h, n, v + 1, False)[0] + fewest(digits - h, n + 1, v, last)[0], h)
            for h in range(1, digits)
        )

    def left(digits: int, n: int, v: int, last: bool) -> int:
        return digits // 2 if digits > MOST_COUNTED else fewest(digits, n, v, last)[1]

    return left
