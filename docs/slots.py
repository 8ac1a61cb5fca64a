"""Draw pictures of rank-one gates from the slots of `ccbps.encodings.formula.rank_one`."""

from __future__ import annotations

from collections import defaultdict
from math import log10

from drawing import (
    BROKER,
    CHOSEN,
    FAINT,
    IDENTITY,
    INK,
    PUBLISHER,
    QUIET,
    SUBSCRIBER,
    TILE,
    WIDTH,
    Drawing,
)
from formula_table import bound, box_schema, halves

from ccbps import Schema, UInt
from ccbps.encodings.formula.gates import GATE_ONE, Gate
from ccbps.encodings.formula.rank_one import RankOne
from ccbps.forms.leaves import Leaves
from ccbps.matching import BranchingMatch, FormulaMatch
from ccbps.programs.branching import event_bit, interest_bit
from ccbps.programs.formula import And

RHO, LOW = "\N{GREEK SMALL LETTER RHO}", "₁₂₃₄"
BITS = 3
"""Of the interval that is drawn."""
CELL = 38

Monomial = tuple[str | None, frozenset[int]]
"""An input bit's name, or None for 1, and common random bits."""


def contents(slots: RankOne, side: str) -> dict[int, set[Monomial]]:
    """Return a party's parts of each slot, as sums of products."""
    found: dict[int, set[Monomial]] = defaultdict(set)
    for term in slots.terms[side]:
        for c, row in zip(term.rows, term.targets, strict=True):
            for column, slot in zip(term.columns, row, strict=True):
                for d, label in column:
                    random = frozenset(f for f in (c, d) if f is not None and f != GATE_ONE)
                    names = [f"x{LOW[i]}" for i in label.event]
                    names += [f"c{LOW[i]}" for i in label.interest]
                    found[slot] ^= {(name, random) for name in names}
                    if label.one:
                        found[slot] ^= {(None, random)}
    return found


def written(content: set[Monomial], randoms: str) -> str:
    """Write a sum of products, random bits first and sums with inputs first."""
    parts = sorted((sorted(random), name or "~") for name, random in content)
    products = [
        " ".join([*(randoms[f] for f in random), *([] if name == "~" else [name])])
        for random, name in sorted(parts, key=lambda part: (part[1] == "~", part[0]))
    ]
    return " + ".join(products)


def together(publisher: set[Monomial], subscriber: set[Monomial]) -> set[Monomial]:
    """Return the sum of both parts, where x and c of a leaf make e or w."""
    found = publisher ^ subscriber
    for i, value in enumerate("ew"):
        for random in [random for name, random in found if name == f"x{LOW[i]}"]:
            found -= {(f"x{LOW[i]}", random), (f"c{LOW[i]}", random)}
            found |= {(value, random)}
    return found


def draw_gate() -> str:
    """Draw the three slots of one gate, and the parts of both parties."""
    slots = RankOne(And(*(event_bit(i) ^ interest_bit(i) for i in range(2))))
    (gate,) = slots.gates
    publisher, subscriber = (contents(slots, side) for side in ("publisher", "subscriber"))
    columns = {"E": gate.lefts[0], "W": gate.rights[0], "T": slots.root}
    drawing = Drawing("One gate: what each party adds to the slots E, W and T", 226)
    wide, gap, left = (130, 130, 272), 12, 160
    rows = (
        ("publisher adds", PUBLISHER, publisher),
        ("subscriber adds", SUBSCRIBER, subscriber),
        ("broker gets the sum", BROKER, None),
    )
    for row, (name, colours, added) in enumerate(rows):
        y = 38 + row * (TILE + 12)
        drawing.text(14, y + TILE / 2 + 4.5, name)
        x = left
        for width, (letter, slot) in zip(wide, columns.items(), strict=True):
            if not row:
                drawing.text(x + width / 2, 26, f"slot {letter}", QUIET, anchor="middle")
            content = added[slot] if added else together(publisher[slot], subscriber[slot])
            drawing.tile(x, y, width, written(content, RHO + "S"), colours)
            x += width + gap
    y = 168
    note = f"e = x{LOW[0]} + c{LOW[0]},  w = x{LOW[1]} + c{LOW[1]};  {RHO}, S: common random bits"
    drawing.text(left, y + 4, note, QUIET)
    drawing.text(14, y + 36, "broker computes")
    drawing.tile(left, y + 18, sum(wide) + 2 * gap, "T + E W  =  e w", BROKER)
    return drawing.svg()


def draw_slots() -> str:
    """Draw the slots of an interval: a panel for each gate, under the gate that it feeds."""
    slots = RankOne(Leaves(Schema(x=UInt(BITS))).interval("x", 0))
    height = 420
    title = f"The slots of an interval of {BITS} bits, gate by gate"
    drawing = Drawing(title, height)
    kinds = dict.fromkeys(slots.both, BROKER)
    kinds |= dict.fromkeys(slots.lone["publisher"], PUBLISHER)
    kinds |= dict.fromkeys(slots.lone["subscriber"], SUBSCRIBER)
    kinds |= {slot: CHOSEN for slot, _ in slots.ties}
    events: dict[int, set[int]] = defaultdict(set)
    for term in slots.terms["publisher"]:
        for row in term.targets:
            for column, slot in zip(term.columns, row, strict=True):
                events[slot] |= {i for _, label in column for i in label.event}
    drawn: set[int] = set()

    def cell(x: float, y: float, slot: int, known: bool) -> None:
        again = known or slot in drawn
        colours = IDENTITY if known else kinds[slot]
        drawing.tile(x, y, CELL - 4, str(slot), colours, dashed=again)
        drawn.add(slot)

    def known_bits(part: tuple[int, ...]) -> str:
        found = sorted(set().union(*(events[slot] for slot in part)))
        names = " ".join(f"x{LOW[i]}" for i in found)
        return names or "c"

    def panel(gate: Gate, x: float, y: float) -> None:
        name = f"{known_bits(gate.lefts)}  \N{MULTIPLICATION SIGN}  {known_bits(gate.rights)}"
        middle = x + CELL * (1 + len(gate.rights)) / 2
        drawing.text(middle, y - 8, name, QUIET, anchor="middle", size=11.5)
        for v, slot in enumerate(gate.rights):
            cell(x + (1 + v) * CELL, y, slot, False)
        for b, slot in enumerate(gate.lefts):
            cell(x, y + (1 + b) * (TILE + 4), slot, False)
        for b, row in enumerate(gate.targets):
            for v, slot in enumerate(row):
                cell(x + (1 + v) * CELL, y + (1 + b) * (TILE + 4), slot, True)

    roots = [gate for gate in slots.gates if gate.targets == ((slots.root,),)]
    half = WIDTH / 2
    drawing.text(WIDTH / 2, 24, "root", QUIET, anchor="middle")
    drawing.tile(WIDTH / 2 - CELL / 2, 32, CELL - 4, str(slots.root), kinds[slots.root])
    drawn.add(slots.root)
    for number, (gate, name) in enumerate(zip(roots, ("x < high + 1", "x < low"), strict=True)):
        start = number * half
        left = start + half / 2 - CELL
        drawing.text(left + CELL, 74, name, INK, anchor="middle", size=13.5)
        panel(gate, left, 106)
        sides = (
            (tuple((e, *row) for e, row in zip(gate.lefts, gate.targets, strict=True)), 30),
            ((gate.rights, *gate.targets), 230),
        )
        for targets, place in sides:
            (child,) = [gate for gate in slots.gates if gate.targets == targets]
            right = place > 100
            wide = (1 + len(child.rights)) * CELL
            bend = [(left + CELL + (30 if right else -30), 176), (start + place + wide / 2, 214)]
            drawing.line(bend[::-1])
            panel(child, start + place, 240)
    event, interest = slots.bits
    y = 352
    legend = (
        (BROKER, f"both send it: {len(slots.both)}", 14),
        (PUBLISHER, f"publisher alone: {len(slots.lone['publisher'])}", 180),
        (SUBSCRIBER, f"subscriber alone: {len(slots.lone['subscriber'])}", 362),
        (CHOSEN, f"subscriber alone, tied: {len(slots.ties)}", 544),
    )
    for colours, text, x in legend:
        drawing.tile(x, y, CELL - 10, "", colours)
        drawing.text(x + CELL - 4, y + TILE / 2 + 4.5, text, size=11.5)
    note = (
        f"Left column E, upper row W. Dashed: slots of a gate above or beside. "
        f"An event has {event} bits, an interest {interest}."
    )
    drawing.text(14, y + 52, note, QUIET, size=11.5)
    return drawing.svg()


def draw_growth() -> str:
    """Draw bytes of a pair of messages by the bits of a box."""
    counts = [2**i for i in range(6)]
    schemas = [box_schema([16] * count) for count in counts]
    formulas = [FormulaMatch.box(schema) for schema in schemas]
    branching = [BranchingMatch.box(schema) for schema in schemas]
    curves = (
        ("BranchingMatch", "#1f77b4", [2 * m.encoding.message_bytes for m in branching]),
        ("half-gates (computational)", "#9467bd", [sum(halves(m)) / 8 for m in formulas]),
        (
            "FormulaMatch",
            "#2ca02c",
            [m.encoding.event_bytes + m.encoding.interest_bytes for m in formulas],
        ),
        ("lower bound", "#9a9a9a", [sum(bound([16] * count)) / 8 for count in counts]),
    )
    drawing = Drawing("Bytes of an event and an interest with the bits of a box", 380)
    left, right, top, bottom = 76.0, WIDTH - 210.0, 24.0, 330.0
    first, last = log10(14), log10(600)
    low, high = log10(4), log10(300_000)

    def place(bits: float, size: float) -> tuple[float, float]:
        across = (log10(bits) - first) / (last - first)
        up = (log10(size) - low) / (high - low)
        return left + across * (right - left), bottom - up * (bottom - top)

    for size in (10, 100, 1_000, 10_000, 100_000):
        _, y = place(16, size)
        drawing.line([(left, y), (right, y)], arrow=False, colour=FAINT)
        drawing.text(left - 8, y + 4.5, f"{size:,}", QUIET, anchor="end", size=11.5)
    for count in counts:
        x, _ = place(16 * count, 10)
        drawing.line([(x, bottom), (x, bottom + 5)], arrow=False)
        drawing.text(x, bottom + 20, str(16 * count), QUIET, anchor="middle", size=11.5)
    drawing.line([(left, bottom), (right, bottom)], arrow=False)
    drawing.text(left - 60, top - 6, "bytes, both messages", QUIET, size=11.5)
    across = "bits of the box, in attributes of 16"
    drawing.text((left + right) / 2, bottom + 40, across, QUIET, anchor="middle", size=11.5)
    for name, colour, sizes in curves:
        points = [place(16 * n, size) for n, size in zip(counts, sizes, strict=True)]
        drawing.curve(points, colour)
        x, y = points[-1]
        drawing.text(x + 12, y + 4.5, name, colour)
    return drawing.svg()
