"""A progress bar on standard error, where somebody looks at it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def progress(
    total: int | None, unit: str, *, shown: bool = True
) -> Iterator[Callable[[int], object]]:
    """Show a progress bar in the block, and give a function that advances it.

    There is no bar if standard error is no terminal, or if tqdm is missing.

    Args:
        total: amount at the end; None if it is unknown, so that the bar only counts.
        unit: unit of the amount.
        shown: False for no bar at all.
    """
    bar = None
    if shown and sys.stderr.isatty():
        with suppress(ImportError):
            from tqdm import tqdm

            bar = tqdm(total=total, unit=unit, unit_scale=True, leave=False, file=sys.stderr)
    if bar is None:
        yield lambda amount: None
        return
    with bar:
        yield bar.update
