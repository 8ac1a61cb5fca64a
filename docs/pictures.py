"""Draw the pictures of the documentation: group programs and rank-one gates, with every element and
slot computed by the library, and the diagrams.

`make docs` draws them; `python docs/pictures.py` does it alone. Both write to docs/images. The
pictures are not part of the repository.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from hashlib import shake_256
from itertools import product as every
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra import A5, S5, Group
from ccbps.circuits import CircuitBuilder
from ccbps.encodings.group import GroupEncoding
from ccbps.programs.barrington import preserving
from ccbps.programs.group import PreservingProgram
from ccbps.programs.selector import optimized_selector

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))

from diagrams import draw_choice, draw_job, draw_p3s, draw_parties, draw_trio
from drawing import (
    BROKER,
    CHOSEN,
    IDENTITY,
    INK,
    PUBLISHER,
    QUIET,
    SUBSCRIBER,
    TILE,
    WIDTH,
    Drawing,
)
from layers import draw_layers
from slots import draw_gate, draw_growth, draw_slots
from speed import draw_speed

IMAGES = DOCS / "images"

ALPHA, BETA = "\N{GREEK SMALL LETTER ALPHA}", "\N{GREEK SMALL LETTER BETA}"
INVERSE = "^\N{MINUS SIGN}1"
LOW = "₁₂₃₄"


def cycles(group: Group, rank: int) -> str:
    """Write an element as cycles without spaces, as all points are single figures: (12345)."""
    return group.cycle(int(rank)).replace(" ", "")


def found(group: Group, rank: int) -> tuple[str, tuple[str, str, str]]:
    """Return the broker's product: its cycles and colours."""
    return cycles(group, rank), BROKER if rank == group.alpha else IDENTITY


def inputs(count: int) -> NDArray[np.bool_]:
    """Return all assignments of some bits, 0 ... 0 first."""
    return np.array(list(every([False, True], repeat=count)))


def example_program() -> PreservingProgram:
    """Return the program of (x1 AND x2) OR NOT x3."""
    builder = CircuitBuilder()
    x1, x2, x3 = builder.inputs(3)
    return preserving(builder.build((x1 & x2) | ~x3), A5)


def draw_program() -> str:
    program = example_program()
    group, half = program.group, program.length // 2
    drawing = Drawing("The group program of (x1 AND x2) OR NOT x3, and its value everywhere", 292)
    wide, narrow, gap = 65, 53, 4
    # One row is the blocks f and h of the outermost f, h, f, h.
    blocks = (("NOT (x₁ AND x₂)", 0, half - 1), ("x₃", half - 1, half))
    for row, y in enumerate((34, 122)):
        drawing.text(10, y - 8, "index", QUIET)
        left = [10 + i * (wide + narrow + 2 * gap) for i in range(half + 1)]
        for i in range(half):
            at = row * half + i
            bit, x = program.index[at], left[i] + wide + gap
            drawing.tile(left[i], y, wide, cycles(group, program.interstitials[at]), SUBSCRIBER)
            drawing.text(x + narrow / 2, y - 8, str(bit + 1), QUIET, anchor="middle")
            drawing.tile(x, y, narrow, f"{ALPHA}^x{LOW[bit]}", PUBLISHER)
        for name, start, stop in blocks:
            drawing.bracket(left[start] + wide + gap, left[stop] - gap, y + TILE + 5, name)
    drawing.tile(left[half], y, wide, cycles(group, program.interstitials[-1]), SUBSCRIBER)
    values = inputs(3)
    step = (WIDTH - 14) / len(values)
    drawing.text(10, 212, f"product of all {program.elements} elements, by x₁ x₂ x₃", QUIET)
    for i, (bits, rank) in enumerate(zip(values, program.evaluate(values), strict=True)):
        x = 10 + i * step
        name = " ".join(str(int(bit)) for bit in bits)
        drawing.text(x + (step - 6) / 2, 236, name, INK, anchor="middle")
        drawing.tile(x, 245, step - 6, *found(group, int(rank)))
    return drawing.svg()


def draw_selector() -> str:
    selector = optimized_selector(4, A5)
    none = selector.table[selector.inputs]
    drawing = Drawing("The optimized selector of four inputs: one row of elements a choice", 232)
    left, wide, narrow = 48, 56, 22
    drawing.text(10, 24, "takes", QUIET)
    for column, index in enumerate(selector.index):
        x = left + (column + 1) * wide + column * narrow
        drawing.text(x + narrow / 2, 24, f"{ALPHA}^x{LOW[index]}", PUBLISHER[2], anchor="middle")
    for choice in range(selector.inputs + 1):
        y = 36 + choice * (TILE + 9)
        name = "none" if choice == selector.inputs else f"x{LOW[choice]}"
        drawing.text(10, y + TILE / 2 + 4.5, name)
        for column, rank in enumerate(selector.table[choice]):
            x = left + column * (wide + narrow)
            colours = SUBSCRIBER if rank == none[column] else CHOSEN
            drawing.tile(x, y, wide, cycles(A5, rank), colours)
            if column < selector.length:
                drawing.tile(x + wide + 3, y, narrow - 6, "", PUBLISHER)
    return drawing.svg()


def messages(
    program: PreservingProgram, bits: NDArray[np.bool_], blinders: str
) -> tuple[list[int], int]:
    """Return both clients' elements in turn, and the broker's product of them."""
    encoding = GroupEncoding(program.group, program.length)
    (segment,) = encoding.segments
    draw = shake_256(blinders.encode()).digest(encoding.segment_randomness)
    randomness = np.frombuffer(draw, dtype=np.uint8)[None].copy()
    event = np.zeros((1, encoding.event_bytes), dtype=np.uint8)
    interest = np.zeros((1, encoding.interest_bytes), dtype=np.uint8)
    chosen = bits[None, program.index]
    encoding.encode_event(encoding.raw_event(chosen, segment), randomness, segment, event)
    raw = encoding.raw_interest(program.interstitials[None, :-1], segment)
    carried = encoding.encode_interest(
        raw, np.zeros(1, dtype=np.uint8), randomness, segment, interest
    )
    encoding.finish_interest(program.interstitials[-1:], carried, interest)
    # In S5 a byte is an element, and nothing is filled up.
    shown = np.empty(2 * program.length + 1, dtype=np.uint8)
    shown[1::2], shown[::2] = event[0], interest[0, : program.length + 1]
    part, _ = encoding.decode_segment(event, interest[:, segment.place])
    whole = program.group.multiplication[part, interest[:, program.length]]
    return shown.tolist(), int(whole[0])


def plain(program: PreservingProgram, bits: NDArray[np.bool_]) -> tuple[list[int], int]:
    """Return the elements and the product before blinding."""
    shown = np.zeros(2 * program.length + 1, dtype=np.uint8)
    shown[::2] = program.interstitials
    shown[1::2] = np.where(bits[program.index], program.group.alpha, 0)
    return shown.tolist(), int(program.evaluate(bits[None])[0])


def blinded_rows() -> Iterator[tuple[str, list[int], int]]:
    """Yield x1 AND x2 in S5: elements and product of each row of the picture."""
    builder = CircuitBuilder()
    x1, x2 = builder.inputs(2)
    program = preserving(builder.build(x1 & x2), S5)
    for bits, blinders in (((True, True), "RS"), ((True, False), "TU")):
        x = np.array(bits)
        name = f"x = ({int(x[0])}, {int(x[1])})"
        yield f"{name}, not blinded", *plain(program, x)
        for letter in blinders:
            yield f"{name}, blinded by {letter}", *messages(program, x, letter)


def draw_blinding() -> str:
    drawing = Drawing("A program for x1 AND x2, blinded twice for each of two events", 400)
    wide, gap = 65, 4
    y = 0
    for row, (name, elements, product) in enumerate(blinded_rows()):
        y += 26 if row != 3 else 46
        drawing.text(10, y, name, QUIET)
        y += 7
        for i, rank in enumerate(elements):
            colours = PUBLISHER if i % 2 else SUBSCRIBER
            drawing.tile(10 + i * (wide + gap), y, wide, cycles(S5, rank), colours)
        end = 10 + len(elements) * (wide + gap)
        drawing.text(end + 9, y + TILE / 2 + 4.5, "=", QUIET, anchor="middle")
        drawing.tile(end + 22, y, wide + 12, *found(S5, product))
        y += TILE
    return drawing.svg()


def draw_commutator() -> str:
    group = A5
    drawing = Drawing("Four blocks, aimed at alpha, beta and their inverses", 196)
    targets = [group.alpha, group.beta]
    targets += [int(group.inverses[rank]) for rank in targets]
    wide, gap, left = 106, 10, 96
    for column, name in enumerate((ALPHA, BETA, ALPHA + INVERSE, BETA + INVERSE)):
        x = left + column * (wide + gap) + wide / 2
        drawing.text(
            x, 22, f"{'fh'[column % 2]}, aimed at {name}", QUIET, anchor="middle", size=11.5
        )
    end = left + 4 * (wide + gap) + 32
    drawing.text(end + 50, 22, "product", QUIET, anchor="middle", size=11.5)
    for row, (f, h) in enumerate(inputs(2)):
        y = 34 + row * (TILE + 12)
        drawing.text(10, y + TILE / 2 + 4.5, f"f = {int(f)}, h = {int(h)}")
        whole = 0
        for column, target in enumerate(targets):
            rank = target if (f, h)[column % 2] else 0
            whole = int(group.multiplication[whole, rank])
            x = left + column * (wide + gap)
            drawing.tile(x, y, wide, cycles(group, rank), SUBSCRIBER if rank else IDENTITY)
        drawing.text(end - 16, y + TILE / 2 + 4.5, "=", QUIET, anchor="middle")
        drawing.tile(end, y, 100, cycles(group, whole), BROKER if whole else IDENTITY)
    return drawing.svg()


PICTURES: dict[str, Callable[[], str]] = {
    "group_commutator.svg": draw_commutator,
    "group_program.svg": draw_program,
    "group_selector.svg": draw_selector,
    "group_blinding.svg": draw_blinding,
    "rank_one_gate.svg": draw_gate,
    "rank_one_slots.svg": draw_slots,
    "rank_one_growth.svg": draw_growth,
    "parties.svg": draw_parties,
    "trio.svg": draw_trio,
    "p3s.svg": draw_p3s,
    "spark_job.svg": draw_job,
    "choosing.svg": draw_choice,
    "layers.svg": draw_layers,
    "speed.svg": draw_speed,
}
"""File names and what draws them."""


def write(folder: Path = IMAGES) -> None:
    """Write every picture that is missing or has changed to a folder."""
    for name, draw in PICTURES.items():
        write_changed(folder / name, draw())


def write_changed(path: Path, text: str) -> None:
    """Write a text to a file, unless the file holds it already: Sphinx reads what is new."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
