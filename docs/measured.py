"""Figures of figures.json, which `make figures` writes, by name and as pages show them.

A *name* has four parts, the program, the title of a table, a row and a column:
``bench_ledger / Microseconds and bytes of a round / consecutive / encode``. A *ratio* is two names
with ÷ between them, the second of which may leave out the parts that both begin with. A *format*
follows a bar: a format of Python, or a number of digits that count, 3 if there is none; ``*1000``
in front multiplies. Whole numbers and texts stand as they are if there is no format.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).resolve().parent / "figures.json"

Figure = str | int | float | None


class UnknownFigureError(LookupError):
    """Name of no figure."""


@cache
def load() -> dict[str, Any]:
    """Return what the file has, by program."""
    entries: dict[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return entries


def table_of(program: str, title: str) -> dict[str, Any]:
    """Return a table of a program: `columns`, and `rows` by name."""
    tables = entry_of(program)["tables"]
    if title not in tables:
        raise UnknownFigureError(f"{program} has no table {title!r}, only {[*tables]}")
    table: dict[str, Any] = tables[title]
    return table


def entry_of(program: str) -> dict[str, Any]:
    """Return a program's entry."""
    if program not in load():
        raise UnknownFigureError(f"no program {program!r} in figures.json, only {[*load()]}")
    entry: dict[str, Any] = load()[program]
    return entry


def cell(table: dict[str, Any], row: str, column: str) -> Figure:
    """Return a figure of a table, None if there is none yet."""
    if row not in table["rows"]:
        raise UnknownFigureError(f"no row {row!r}, only {[*table['rows']]}")
    if column not in table["columns"]:
        raise UnknownFigureError(f"no column {column!r}, only {table['columns']}")
    value: Figure = table["rows"][row][table["columns"].index(column)]
    return value


def value_of(name: str) -> Figure:
    """Return the figure of a name of four parts, or the ratio of two."""
    first, *rest = (split(part, " / ") for part in name.split(" ÷ "))
    names = [first] + [first[: len(first) - len(other)] + other for other in rest]
    if len(names) > 2 or any(len(parts) != 4 for parts in names):
        raise UnknownFigureError(f"{name!r} is not 'program / table / row / column'")
    values = [cell(table_of(*parts[:2]), *parts[2:]) for parts in names]
    return values[0] if len(values) == 1 else ratio(*values)


def ratio(a: Figure, b: Figure) -> float | None:
    """Return the ratio of two figures; None if there is none."""
    return a / b if isinstance(a, int | float) and isinstance(b, int | float) and b else None


def figure(text: str) -> str:
    """Return a figure as a page shows it: a name, and a format after a bar."""
    name, _, form = (part.strip() for part in text.partition("|"))
    value = value_of(name)
    if value is None:
        raise UnknownFigureError(f"no figure is measured yet: {name}")
    return shown(value, form)


def shown(value: Figure, form: str = "") -> str:
    """Format a figure."""
    factor, form = re.fullmatch(r"(?:\*([\d.e-]+) ?)?(.*)", form.strip()).groups()  # type: ignore[union-attr]
    if value is None or isinstance(value, str):
        return value or ""
    if factor:
        value = value * float(factor)
    if form and not form.isdigit():
        return f"{value:{form}}"
    if isinstance(value, int) and not form:
        return f"{value:,}"
    digits = int(form or 3)
    places = digits - 1 - math.floor(math.log10(abs(value))) if value else digits - 1
    return f"{round(value, places):,.{max(0, places)}f}"


def markdown(name: str, rows: Iterable[str] = (), columns: str = "", head: str = "") -> list[str]:
    """Return the lines of a Markdown table, of all rows if none are chosen."""
    program, title = two(split(name, " / "), name)
    table = table_of(program, title)
    chosen = [titled(text) for text in split(columns, ";")] or [
        (column, column, "") for column in table["columns"]
    ]
    is_measured = False
    lines = [[head, *(title for _, title, _ in chosen)], ["---"] * (1 + len(chosen))]
    for row, row_title, _ in [titled(text) for text in rows] or [
        (row, row, "") for row in table["rows"]
    ]:
        cells = []
        for column, _, form in chosen:
            values = [cell(table, row, part) for part in split(column, " ÷ ")]
            is_measured |= None not in values
            cells.append(shown(values[0] if len(values) == 1 else ratio(*values), form))
        lines.append([row_title, *cells])
    if not is_measured:
        return ["*Not measured yet.*"]
    return ["| " + " | ".join(text.replace("|", r"\|") for text in line) + " |" for line in lines]


def split(text: str, mark: str) -> list[str]:
    """Return the parts of a text, without those that are empty."""
    return [part.strip() for part in text.split(mark) if part.strip()]


def two(parts: list[str], name: str) -> list[str]:
    """Return the program and the title of a table."""
    if len(parts) != 2:
        raise UnknownFigureError(f"{name!r} is not 'program / table'")
    return parts


def titled(text: str) -> tuple[str, str, str]:
    """Return the name of a column or row, its title on the page, and its format."""
    name, _, form = (part.strip() for part in text.partition("|"))
    name, _, title = (part.strip() for part in name.partition("->"))
    return name, title or name, form


def source(program: str) -> str:
    """Return the line below a table."""
    entry = entry_of(program)
    return f"`{entry['command']}` on {entry['machine']}"


def uses(text: str) -> Iterable[str]:
    """Yield what a page's text shows of the file, as Sphinx does; for tests without Sphinx."""
    for name in re.findall(r"\{figure\}`([^`]+)`", text):
        yield figure(name.replace(r"\|", "|"))
    for program in re.findall(r"\{machine\}`([^`]+)`", text):
        yield str(entry_of(program)["machine"])
    for name, body in re.findall(r"^`{3,}\{figures\} (.+)\n((?:.*\n)*?)`{3,}$", text, re.M):
        given = dict(re.findall(r"^:(\w+): (.*)$", body, re.M))
        rows = re.findall(r"^[^:\n].*$", body, re.M)
        yield "\n".join(markdown(name, rows, **given))
