"""The layers of the package, drawn from its code: rooms on floors, and who imports whom."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from drawing import BROKER, IDENTITY, PUBLISHER, SUBSCRIBER, TILE, WIDTH, Drawing

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ccbps"
FLOOR = 78
SIDE = 14


def floors() -> list[list[str]]:
    """Names of rooms, the upper floors first, from the contract that `make lint` checks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contract = project["tool"]["importlinter"]["contracts"][0]
    return [
        [name.strip().removeprefix("ccbps.") for name in layer.split("|")]
        for layer in contract["layers"]
    ]


def storeys() -> list[list[str]]:
    """As `floors`, with the single files, which every room may use, on one ground floor."""
    upper = [[name for name in rooms if (PACKAGE / name).is_dir()] for rooms in floors()]
    ground = [name for rooms in floors() for name in rooms if not (PACKAGE / name).is_dir()]
    return [*filter(None, upper), ground]


def modules() -> dict[str, Path]:
    """Every module of the package by its full name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports() -> dict[str, set[str]]:
    """Modules of the package that each one imports, also for type checking or inside functions."""
    known = modules()
    found: dict[str, set[str]] = {}
    for name, path in known.items():
        found[name] = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    found[name].add(whole if whole in known else node.module)
            elif isinstance(node, ast.Import):
                found[name].update(alias.name for alias in node.names)
        found[name] &= known.keys() - {name}
    return found


def room(module: str) -> str:
    """The room of a module: the folder or file under ``ccbps``."""
    return module.split(".")[1] if "." in module else ""


def arrows() -> set[tuple[str, str]]:
    """Which room imports which."""
    pairs = {(room(name), room(other)) for name, others in imports().items() for other in others}
    return {(a, b) for a, b in pairs if a and b and a != b}


def reduced(pairs: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Arrows that do not follow from the others."""
    below: dict[str, set[str]] = {}
    for a, b in pairs:
        below.setdefault(a, set()).add(b)

    def reach(start: str, without: str) -> set[str]:
        seen: set[str] = set()
        waiting = [other for other in below.get(start, ()) if other != without]
        while waiting:
            found = waiting.pop()
            if found not in seen:
                seen.add(found)
                waiting += below.get(found, ())
        return seen

    return {(a, b) for a, others in below.items() for b in others if b not in reach(a, b)}


def around(
    start: tuple[float, float],
    end: tuple[float, float],
    tiles: Iterable[tuple[float, float, float]],
) -> list[tuple[float, float]]:
    """Points by which an arrow passes the floors between its ends beside their tiles."""
    between: dict[float, list[tuple[float, float]]] = {}
    for x, y, width in tiles:
        if start[1] < y and y + TILE < end[1]:
            between.setdefault(y, []).append((x, x + width))
    points, here = [], start
    for y, spans in sorted(between.items()):
        ends = sorted(spans)
        gaps = [ends[0][0] - SIDE, ends[-1][1] + SIDE]
        gaps += [(left[1] + right[0]) / 2 for left, right in pairwise(ends)]
        straight = here[0] + (end[0] - here[0]) * (y - here[1]) / (end[1] - here[1])
        if any(low - SIDE < straight < high + SIDE for low, high in ends):
            straight = min(gaps, key=lambda gap, wanted=straight: abs(gap - wanted))
        points += [(straight, y), (straight, y + TILE)]
        here = points[-1]
    return points


def draw_layers() -> str:
    """Rooms on their floors; an arrow goes from a room to one that it imports, unless another way
    leads there. None go to the ground floor, which every room may use."""
    levels = storeys()
    drawing = Drawing("The layers of ccbps: imports point down", FLOOR * len(levels) - 18)
    colours = [PUBLISHER, PUBLISHER, BROKER, SUBSCRIBER, SUBSCRIBER]
    place: dict[str, tuple[float, float, float]] = {}
    for number, rooms in enumerate(levels):
        gap = 24 if len(rooms) < 5 else 8
        width = min(190.0, (WIDTH - 2 * SIDE - gap * (len(rooms) - 1)) / len(rooms))
        start = (WIDTH - width * len(rooms) - gap * (len(rooms) - 1)) / 2
        for column, name in enumerate(rooms):
            place[name] = start + column * (width + gap), 12.0 + number * FLOOR, width
    for a, b in sorted(reduced(arrows())):
        if a in place and b not in levels[-1]:
            (x, y, width), (u, v, other) = place[a], place[b]
            start, end = (x + width / 2, y + TILE), (u + other / 2, v - 1)
            drawing.line([start, *around(start, end, place.values()), end])
    for name, (x, y, width) in place.items():
        floor = int((y - 12) // FLOOR)
        tint = colours[floor] if floor < len(colours) else IDENTITY
        drawing.tile(x, y, width, name, tint)
    return drawing.svg()
