"""Options, tables and pictures of the benchmarks.

Tables are also recorded, if the environment names a file for them (`RECORD`):
`benchmarks/figures.py` collects the figures of all programs for the pages of the documentation.
"""

from __future__ import annotations

import argparse
import json
import math
import numbers
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["RECORD", "Table", "options", "picture"]

RECORD = "CCBPS_FIGURES"
"""Environment variable that names a file; each row of a table is appended to it as a line."""


def options(doc: str | None, /, given: Sequence[str] | None = None, **kinds: Any) -> Any:
    """Parse a benchmark's options, and print the first line of its docstring with ``--help``.

    Args:
        doc: docstring of the benchmark.
        given: arguments; None for those of this process.
        kinds: options by name. A number is a default value, a text the help of a flag, `Path` an
            optional path, and a mapping any other settings of an option.
    """
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    for name, kind in kinds.items():
        if isinstance(kind, str):
            settings: Mapping[str, Any] = {"action": "store_true", "help": kind}
        elif isinstance(kind, int | float):
            settings = {"type": type(kind), "default": kind, "help": f"(default: {kind:,})"}
        else:
            settings = {"type": Path} if kind is Path else kind
        parser.add_argument(f"--{name.replace('_', '-')}", **settings)
    return parser.parse_args(given)


class Table:
    """Table that is printed a row at a time: a name to the left, and figures to the right.

    Pages find a figure by the title of its table, the name of its row and the title of its column.
    So titles are the same in every run, and no two rows of a table have the same name.

    Args:
        title: title of the table, a line above it.
        columns: titles of the columns, each with the format of its figures, such as ``.2f``. A
            column is as wide as its title and two blanks, and no less than `least`.
        head: title of the names.
        width: characters of the names.
        least: least characters of a column.
    """

    def __init__(
        self,
        title: str,
        columns: Mapping[str, str],
        *,
        head: str = "",
        width: int = 28,
        least: int = 9,
    ) -> None:
        self._title, self._columns, self._width = title, [*columns], width
        self._formats = [(max(least, len(name) + 2), form) for name, form in columns.items()]
        print(f"\n{title}\n")
        self._print(head, columns)

    def row(self, name: object, *figures: Any) -> None:
        """Print a row. Texts stand as they are, and None leaves a column empty."""
        self._print(
            str(name),
            (
                figure or "" if figure is None or isinstance(figure, str) else f"{figure:{form}}"
                for figure, (_, form) in zip(figures, self._formats, strict=False)
            ),
        )
        if record := os.environ.get(RECORD):
            cells = [_plain(figure) for figure in figures]
            cells += [None] * (len(self._columns) - len(cells))
            line = {"table": self._title, "columns": self._columns, "row": str(name).strip()}
            with Path(record).open("a", encoding="utf-8") as file:
                file.write(json.dumps({**line, "figures": cells}) + "\n")

    def _print(self, name: str, cells: Iterable[str]) -> None:
        widths = (width for width, _ in self._formats)
        line = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=False))
        print(f"{name:<{self._width}}{line}".rstrip(), flush=True)


def _plain(figure: Any) -> str | int | float | None:
    """Return a figure as JSON has it: a float with four digits, and None if it is not finite."""
    if figure is None or isinstance(figure, str):
        return figure
    if isinstance(figure, numbers.Integral):
        return int(figure)
    return float(f"{float(figure):.4g}") if math.isfinite(figure) else None


@contextmanager
def picture(
    path: Path, size: tuple[float, float], panels: int = 1, **settings: Any
) -> Iterator[tuple[Any, Any]]:
    """Yield a figure and its axes, an array of them for several panels; then write it to a file.

    Args:
        path: path of the file; its folder is made if it does not exist.
        size: width and height in inches.
        panels: number of panels, side by side.
        settings: further settings of `matplotlib.pyplot.subplots`.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(1, panels, figsize=size, layout="constrained", **settings)
    yield figure, axes
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"drawn to {path}")
