"""Draw the layers of the package from its code: rooms on floors, and their imports."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import networkx as nx
from drawing import BROKER, IDENTITY, PUBLISHER, SUBSCRIBER, TILE, WIDTH, Drawing

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ccbps"
FLOOR = 78
SIDE = 14


def floors() -> list[list[str]]:
    """Return the names of rooms by floor, from the top, from the contract of `make lint`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contract = project["tool"]["importlinter"]["contracts"][0]
    return [
        [name.strip().removeprefix("ccbps.") for name in layer.split("|")]
        for layer in contract["layers"]
    ]


def storeys() -> list[list[str]]:
    """Return `floors` with all single files, which every room may use, on the ground floor."""
    upper = [[name for name in rooms if (PACKAGE / name).is_dir()] for rooms in floors()]
    ground = [name for rooms in floors() for name in rooms if not (PACKAGE / name).is_dir()]
    return [*filter(None, upper), ground]


def modules() -> dict[str, Path]:
    """Return every module of the package by its full name."""
    names = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def imports() -> set[tuple[str, str]]:
    """Return pairs of a module and a module that it imports, wherever the import stands."""
    known = modules()
    pairs = set()
    for name, path in known.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                wholes = [f"{node.module}.{alias.name}" for alias in node.names]
                pairs |= {(name, whole if whole in known else node.module) for whole in wholes}
            elif isinstance(node, ast.Import):
                pairs |= {(name, alias.name) for alias in node.names}
    return {(name, other) for name, other in pairs if other in known}


def room(module: str) -> str:
    """Return the room of a module: its folder or file under ``ccbps``."""
    return module.split(".")[1] if "." in module else ""


def arrows() -> set[tuple[str, str]]:
    """Return pairs of a room and a room that it imports."""
    pairs = {(room(name), room(other)) for name, other in imports()}
    return {(a, b) for a, b in pairs if a and b and a != b}


def around(
    start: tuple[float, float],
    end: tuple[float, float],
    tiles: Iterable[tuple[float, float, float]],
) -> list[tuple[float, float]]:
    """Return points by which an arrow passes the floors between its ends beside their tiles."""
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
    """Draw rooms on their floors, and arrows to the rooms that they import.

    There is no arrow where another way leads there, and none to the ground floor.
    """
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
    for a, b in sorted(nx.transitive_reduction(nx.DiGraph(sorted(arrows()))).edges):
        if a in place and b not in levels[-1]:
            (x, y, width), (u, v, other) = place[a], place[b]
            start, end = (x + width / 2, y + TILE), (u + other / 2, v - 1)
            drawing.line([start, *around(start, end, place.values()), end])
    for name, (x, y, width) in place.items():
        floor = int((y - 12) // FLOOR)
        tint = colours[floor] if floor < len(colours) else IDENTITY
        drawing.tile(x, y, width, name, tint)
    return drawing.svg()
