"""Options, tables and pictures of the benchmarks."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Table", "options", "picture"]


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

    Args:
        width: characters of the names.
        columns: titles of the columns, each with the format of its figures, such as ``.2f``. A
            column is as wide as its title and two blanks, and no less than `least`.
        title: title of the names.
        least: least characters of a column.
    """

    def __init__(
        self, width: int, columns: Mapping[str, str], *, title: str = "", least: int = 9
    ) -> None:
        self._width = width
        self._formats = [(max(least, len(name) + 2), form) for name, form in columns.items()]
        self._print(title, columns)

    def row(self, name: object, *figures: Any) -> None:
        """Print a row. Texts stand as they are, and None leaves a column empty."""
        self._print(
            str(name),
            (
                figure or "" if figure is None or isinstance(figure, str) else f"{figure:{form}}"
                for figure, (_, form) in zip(figures, self._formats, strict=False)
            ),
        )

    def _print(self, name: str, cells: Iterable[str]) -> None:
        widths = (width for width, _ in self._formats)
        line = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=False))
        print(f"{name:<{self._width}}{line}".rstrip(), flush=True)


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
